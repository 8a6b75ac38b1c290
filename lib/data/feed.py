"""This module measures how much of a user's texts a model can read: which share of the
tokens its tokenizer does not know, and which rows are longer than its input."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lib.core import disk
from lib.data import Split
from lib.data.lines import read_json_or_parquet_file

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# ROWS: how many rows of the user's data, from the first on, are tokenised to check that
# the tokenizer fits. MUCH: share of unknown tokens, of truncated rows or of empty rows
# above which the user is warned.
ROWS, MUCH = 1000, 0.05
FILES = ("tokenizer.json", "vocab.txt", "tokenizer_config.json")


@dataclass(frozen=True)
class TokenizerCoverage:
    """A TokenizerCoverage says how well a tokenizer fits the first rows of a data set.

    A user is warned by it when the model cannot read much of the data.

    unknown_token_share: the share of tokens that are the unknown token, 0 to 1; special
    tokens such as [CLS] do not count.
    row_lengths: the number of tokens of each row before it is cut, special tokens
    included.
    empty_row_count: the number of rows that have only special tokens.
    max_length: the number of tokens to which the model cuts rows; 0 if it cuts none."""

    unknown_token_share: float
    row_lengths: np.ndarray
    empty_row_count: int
    max_length: int

    @property
    def truncated_row_share(self) -> float:
        """Return the share of rows, 0 to 1, that are longer than the model's input and
        are cut."""
        return (
            float(np.mean(self.row_lengths > self.max_length))
            if self.max_length
            else 0.0
        )

    @property
    def summary(self) -> str:
        rows = f"{len(self.row_lengths):,} rows"
        line = f"Of the first {rows}: {self.unknown_token_share:.1%} of the tokens are unknown"
        line += f", {self.empty_row_count} rows have no token" * bool(
            self.empty_row_count
        )
        if not self.max_length:
            return line
        usual = int(np.quantile(self.row_lengths, 0.95))
        cut = f"{self.truncated_row_share:.0%} of the rows are cut at {self.max_length} tokens"
        more = "; the length of 92_your_task sets it" * (
            self.truncated_row_share > MUCH
        )
        return f"{line}, {cut} (95 % have at most {usual}{more})"

    @property
    def needs_warning(self) -> bool:
        """Return whether the tokenizer fits the texts so badly that a user is warned.

        That is so if more than 5 % (MUCH) of the tokens are unknown, more than 5 % of
        the rows are cut, or more than 5 % of the rows have only special tokens."""
        return (
            max(
                self.unknown_token_share,
                self.truncated_row_share,
                self.empty_row_count / len(self.row_lengths),
            )
            > MUCH
        )


def measure_tokenizer_coverage(
    split: Split, tokenizer_folder: str | Path, max_length: int
) -> TokenizerCoverage | None:
    """Measure how well the tokenizer in a folder fits the first 1,000 rows of a Split.

    It counts unknown tokens and rows that the model would cut, so that a user is warned
    before a training. Returns None where the folder has no files of a BERT tokenizer or
    of the tokenizers library.

    max_length: the number of tokens to which the model cuts rows; 0 if it cuts none."""
    files = [Path(tokenizer_folder, name) for name in FILES]
    stamps = [disk.read_file_metadata(path) for path in files if path.exists()]
    return _measure_coverage_cached(split, str(tokenizer_folder), max_length, *stamps)


@lru_cache(8)
def _measure_coverage_cached(
    split: Split,
    tokenizer_folder: str,
    max_length: int,
    *tokenizer_files: disk.FileMetadata,
) -> TokenizerCoverage | None:
    tokenizer = load_tokenizer(Path(tokenizer_folder))
    if tokenizer is None:
        return None
    rows = split.select_rows(range(min(ROWS, len(split))))
    texts = rows.a if rows.b is None else [*zip(rows.a, rows.b, strict=True)]
    unknown = tokenizer.token_to_id(getattr(tokenizer.model, "unk_token", None) or "")
    ids = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
    lengths = np.array(list(map(len, ids)))
    unknown_count = sum(i == unknown for row in ids for i in row)
    special = tokenizer.num_special_tokens_to_add(rows.b is not None)
    return TokenizerCoverage(
        unknown_count / max(1, int(lengths.sum())),
        lengths + special,
        int(np.sum(lengths == 0)),
        max_length,
    )


def load_tokenizer(folder: Path) -> Tokenizer | None:
    """Return the tokenizer in a folder, without the import of transformers.

    None where the folder has no files of a BERT tokenizer or of the tokenizers library.
    Raises Exception where they are damaged."""
    from tokenizers import BertWordPieceTokenizer, Tokenizer

    saved, words, config = (folder / name for name in FILES)
    if saved.exists():
        tokenizer = Tokenizer.from_file(str(saved))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer
    if not words.exists():
        return None
    options = read_json_or_parquet_file(config) if config.exists() else {}
    is_lower = options.get("do_lower_case", True)
    # BertWordPieceTokenizer is a wrapper; the caller needs the Tokenizer inside it.
    return BertWordPieceTokenizer(str(words), lowercase=is_lower)._tokenizer
