"""This module augments training texts as TinyBERT does (Jiao et al. 2020): it replaces
words by similar ones, so that a student is distilled on more rows.

A word may be replaced if it has only the letters a to z and is no stop word. If it is
one piece of the vocabulary, a masked language model reads "masked sentence [SEP]
original sentence", and the K likeliest pieces are its candidates. A word of several
pieces gets the K nearest words by input embeddings, and so does every word where the
model has no masked-LM head. Then N new sentences are drawn from each sentence: each
word with candidates is replaced with probability p by one of them, all equally likely.
K, N and p are settings (lib.core.options.Augment).

The candidates depend on the sentence alone. The random draws depend on seed and row
number alone. So neither the order nor the batching of rows changes a result."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch.nn import functional
from transformers import PreTrainedTokenizerFast

from lib.core import disk
from lib.core.names import Refused
from lib.core.options import Augment, Numerics
from lib.core.store import Run
from lib.core.types import Arrays
from lib.data import tokens
from lib.model import backbone
from lib.model.parts import get_encoder
from lib.train import loop
from lib.train.batches import EncodedRows, make_batch

# {type of device: largest number of tokens in a batch of masked sentences, padding
# included}.
TOKENS = {"cpu": 1024, "cuda": 65536}
LETTERS = re.compile("[a-z]+")
STOP = frozenset(disk.read_toml(Path(__file__).with_suffix(".toml"))["STOP"].split())


# Arrays with the candidates for replacements of words, as `find_replacement_candidates`
# returns them.
CandidateIdsAndWordCounts: TypeAlias = Arrays
TokenId: TypeAlias = int
TextVariant: TypeAlias = str


class SplitText(NamedTuple):
    words: list[str]
    replaceable_indices: list[int]


class MaskedWord(NamedTuple):
    word_number: int
    sentence_token_ids: list[TokenId]
    token_position: int  # In the sentence, where [CLS] is 0.


class WordReplacer:
    """A WordReplacer is a masked language model that proposes replacements for words.

    It serves TinyBERT's data augmentation. Raises Refused for a model without a
    WordPiece vocabulary.

    model_folder: the folder of the saved model. Without a masked-LM head, only its word
    embeddings are used."""

    def __init__(self, model_folder: Path) -> None:
        self.model, self.tokenizer = backbone.load(model_folder)
        self.rules = self.tokenizer.backend_tokenizer
        if type(self.rules.pre_tokenizer).__name__ != "BertPreTokenizer":
            raise Refused(
                f"the model in {model_folder} has no WordPiece vocabulary: take a BERT's"
            )
        # Masked-LM head, which maps the hidden states [B, H] of B masked tokens to
        # scores [B, V] of the V tokens of the vocabulary; None if the model has none.
        self.head = getattr(getattr(self.model, "cls", None), "predictions", None)
        # pyrefly: ignore[bad-argument-type]  # transformers' `to` is untyped.
        table = self.model.to(loop.get_device()).get_input_embeddings().weight
        assert isinstance(table, torch.Tensor)
        self.embeddings = table.detach()
        special = self.tokenizer.all_special_tokens
        self.names = self.tokenizer.convert_ids_to_tokens([*range(len(self.tokenizer))])
        self.usable = [
            not name.startswith("##") and name not in special for name in self.names
        ]
        # Ids [N] of the vocabulary's tokens that are whole words of the letters a to z,
        # and their embeddings [N, H], scaled to norm 1.
        self.places = np.array(
            [i for i, name in enumerate(self.names) if LETTERS.fullmatch(name)]
        )
        self.vectors = functional.normalize(self.embeddings[self.places])

    def list_piece_ids(self, word: str) -> list[TokenId]:
        """Return the token ids of a word's WordPieces.

        The list is empty where the vocabulary cannot spell the word."""
        ids = [token.id for token in self.rules.model.tokenize(word)]
        return [] if self.tokenizer.unk_token_id in ids else ids


def split_into_words(replacer: WordReplacer, text: str) -> SplitText:
    """Split a text into words, and mark the words that augmentation may replace.

    Words that may be replaced have only the letters a to z and are no stop words.
    Returns (words, indices of the words that may be replaced).

    replacer: the model whose tokenizer normalises and splits the text."""
    text = replacer.rules.normalizer.normalize_str(text)
    words = [word for word, _ in replacer.rules.pre_tokenizer.pre_tokenize_str(text)]
    return SplitText(
        words,
        [
            i
            for i, word in enumerate(words)
            if LETTERS.fullmatch(word) and word not in STOP
        ],
    )


def find_replacement_candidates(
    texts: Iterable[str],
    replacer: WordReplacer,
    candidates_per_word: int,
    numerics: Numerics,
    cached_nearest_ids_by_word: dict[str, list[TokenId]],
    max_batch_tokens: int | None = None,
) -> CandidateIdsAndWordCounts:
    """Find replacements for the words of some texts, to draw new sentences from them.

    A word that is one token is masked, and the likeliest K tokens are its candidates.
    All other words, and all words where the model has no masked-LM head, get the K
    nearest words by input embeddings. A word that would be masked beyond the model's
    longest input gets none, nor does a word that the vocabulary cannot spell. Stop
    words and words with other characters than a to z are never replaced, and are left
    out of the arrays.

    Returns arrays: "ids" (int32 [words, K]: token ids of the candidates of each
    replaceable word, all texts after each other, padded with -1), "sizes" (number of
    replaceable words of each text) and "one_piece" (number of words that are one
    token).

    texts: texts without repeats.
    replacer: the masked language model.
    candidates_per_word: K.
    numerics: the dtype of the forward passes.
    cached_nearest_ids_by_word: {word: ids of its nearest words} from earlier calls, a
    cache to which this function adds.
    max_batch_tokens: the largest number of tokens in a batch, padding included; None
    takes a default for the device."""
    sizes, masked, others, one_piece, slot = [], [], {}, 0, 0
    max_batch_tokens = max_batch_tokens or TOKENS[loop.get_device().type]
    limit = replacer.model.config.max_position_embeddings
    for text in texts:
        words, eligible = split_into_words(replacer, text)
        pieces = list(map(replacer.list_piece_ids, words))
        spelled = [ids or [replacer.tokenizer.unk_token_id] for ids in pieces]
        row = [i for ids in spelled for i in ids]
        starts = np.cumsum([1, *map(len, spelled)])
        sizes.append(len(eligible))
        for i in eligible:
            single = len(pieces[i]) == 1
            one_piece += single
            if not single or replacer.head is None:
                others[slot] = words[i]
            elif starts[i] < limit:
                # A word beyond the model's longest input cannot be masked, so it gets
                # no candidates.
                masked.append(MaskedWord(slot, row, starts[i]))
            slot += 1
    ids = np.full((slot, candidates_per_word), -1, dtype=np.int32)
    lengths = [min(2 * len(row) + 3, limit) for _, row, _ in masked]
    order, start = np.argsort(lengths, kind="stable"), 0
    for end in range(1, len(order) + 1):
        if (
            end == len(order)
            or (end + 1 - start) * lengths[order[end]] > max_batch_tokens
        ):
            batch = [masked[i] for i in order[start:end]]
            likeliest = predict_likeliest_piece_ids(
                replacer, batch, candidates_per_word, numerics
            )
            for (index, _, _), best in zip(batch, likeliest, strict=True):
                ids[index, : len(best)] = best
            start = end
    cached_nearest_ids_by_word.update(
        find_ids_of_nearest_words(
            replacer,
            sorted(set(others.values()) - cached_nearest_ids_by_word.keys()),
            candidates_per_word,
        )
    )
    for index, word in others.items():
        best = cached_nearest_ids_by_word[word]
        ids[index, : len(best)] = best
    return {"ids": ids, "sizes": np.array(sizes), "one_piece": np.array(one_piece)}


@torch.inference_mode()
def predict_likeliest_piece_ids(
    replacer: WordReplacer,
    masked_words: Sequence[MaskedWord],
    pieces_per_word: int,
    numerics: Numerics,
) -> list[list[TokenId]]:
    """Return the token ids of the likeliest WordPieces in place of each masked word.

    Augmentation may replace the word by any of them. Each list has at most
    `pieces_per_word` ids, in ascending order. Of these likeliest pieces, special tokens
    and pieces that continue a word are left out. The model reads "masked sentence [SEP]
    original sentence", cut to its longest input.

    masked_words: for each word (a number by which the caller knows it, not used here;
    token ids of its sentence without [CLS]; its position, where [CLS] is 0).
    numerics: the dtype of the forward pass."""
    tokenizer, where = replacer.tokenizer, loop.get_device()
    limit = replacer.model.config.max_position_embeddings
    columns = {"input_ids": [], "token_type_ids": []}
    for _, row, place in masked_words:
        row = [tokenizer.cls_token_id, *row, tokenizer.sep_token_id]
        both = (row + row[1:])[:limit]
        both[place] = tokenizer.mask_token_id
        columns["input_ids"].append(both)
        columns["token_type_ids"].append(([0] * len(row) + [1] * len(row))[: len(both)])
    batch = make_batch(
        EncodedRows(columns, None, tokenizer.pad_token_id),
        range(len(masked_words)),
        0,
        where,
    )
    with loop.autocast_to_dtype(numerics):
        hidden = get_encoder(replacer.model)(**batch)[0]
    # Only the masked tokens are scored, in float32: bfloat16 would give many of the
    # less likely candidates equal scores.
    hidden = hidden[
        range(len(masked_words)), [place for _, _, place in masked_words]
    ].float()
    assert replacer.head is not None
    scores = replacer.head(hidden)[:, : len(replacer.usable)]
    best = scores.topk(min(pieces_per_word, scores.shape[1])).indices.tolist()
    # The ids are sorted, as rounding may change the order of candidates of nearly equal
    # score.
    return [sorted(i for i in row if replacer.usable[i]) for row in best]


@torch.inference_mode()
def find_ids_of_nearest_words(
    replacer: WordReplacer,
    words: Iterable[str],
    neighbours_per_word: int,
) -> dict[str, list[TokenId]]:
    """Return {word: token ids of its nearest other words, sorted by id}.

    Each word gets up to `neighbours_per_word` words of the vocabulary, by cosine
    similarity of input embeddings; a word of several WordPieces has their mean
    embedding. They are the candidates by which augmentation replaces the word. A word
    that the vocabulary cannot spell gets an empty list.

    replacer: the model that has the embeddings."""
    neighbours = {word: [] for word in words}
    queries = {
        word: replacer.embeddings[ids].mean(0)
        for word in words
        if (ids := replacer.list_piece_ids(word))
    }
    rows = {replacer.names[place]: row for row, place in enumerate(replacer.places)}
    for part in tokens.split_into_chunks(queries, 512):  # This limits memory.
        asked = functional.normalize(torch.stack([queries[word] for word in part]))
        cosines = asked @ replacer.vectors.T
        for line, word in enumerate(part):
            if word in rows:
                cosines[line, rows[word]] = -torch.inf
        best = cosines.topk(min(neighbours_per_word, cosines.shape[1])).indices.tolist()
        for word, row in zip(part, best, strict=True):
            neighbours[word] = sorted(
                replacer.places[i] for i in row if i != rows.get(word)
            )
    return neighbours


def sample_text_variants(
    text: str,
    replacer: WordReplacer,
    candidate_ids: np.ndarray,
    augment_settings: Augment,
    generator: np.random.Generator,
) -> list[TextVariant]:
    """Draw new sentences from a text by replacing words at random, as TinyBERT does.

    Returns [the text, distinct new sentences...]. Sentences that are drawn twice are
    listed once, so the list may be shorter than 1 + `tries`. Words of new sentences are
    joined by spaces.

    replacer: the model whose tokenizer splits the text.
    candidate_ids: token ids of K candidates for each replaceable word of the text,
    int32 [words, K], padded with -1.
    augment_settings: `tries` (sentences to draw) and `p` (probability that a word is
    replaced).
    generator: the source of random numbers."""
    words, places = split_into_words(replacer, text)
    sizes = (candidate_ids >= 0).sum(1)
    chance = generator.random((2, augment_settings.tries, len(places)))
    chosen = candidate_ids[np.arange(len(places)), (chance[1] * sizes).astype(int)]
    made = {text: 0}
    for use, new in zip(
        (chance[0] < augment_settings.p) & (sizes > 0), chosen, strict=True
    ):
        replaced = {places[i]: replacer.names[new[i]] for i in np.flatnonzero(use)}
        made[" ".join(replaced.get(i, word) for i, word in enumerate(words))] = 0
    # Drop a variant that differs from the text only in spaces and normalisation.
    if text != " ".join(words):
        made.pop(" ".join(words), None)
    return list(made)


def iterate_pairs_of_text_variants(
    variants_of_each_text_of_row: list[list[TextVariant]],
) -> Iterator[tuple[str, str | None]]:
    """Yield the training rows (first text, second text) that augment one training row.

    Variants of the first text, the original included, are paired with the original
    second text. Then further variants of the second text are paired with the original
    first text. The second text is None where rows have one text.

    variants_of_each_text_of_row: for each text of the row, its variants, the original
    first."""
    left, *others = variants_of_each_text_of_row
    right = others[0] if others else [None]
    for text in left:
        yield text, right[0]
    for text in right[1:]:
        yield left[0], text


def encode_augmented_rows(
    augmentation_run: Run, tokenizer: PreTrainedTokenizerFast, max_length: int
) -> EncodedRows:
    """Return the tokenised augmented training rows that an earlier run wrote.

    Originals are included, and each variant has the label of its original. Token ids
    are computed once and cached on disk.

    augmentation_run: the folder of results of the run that augmented the rows.
    max_length: tokens to which rows are cut."""
    path = augmentation_run.model_folder / "variants.jsonl"
    names = [name for name in tokenizer.model_input_names if name != "attention_mask"]

    def iterate_encoded_rows() -> Iterator[dict[str, list[int]]]:
        with open(path) as file:
            pairs = (
                pair
                for line in file
                for pair in iterate_pairs_of_text_variants(json.loads(line))
            )
            for part in tokens.split_into_chunks(pairs):
                a, b = map(list, zip(*part, strict=True))
                texts = [a] if b[0] is None else [a, b]
                encoding = tokenizer(*texts, truncation=True, max_length=max_length)
                for row in range(len(part)):
                    yield {name: encoding[name][row] for name in names}

    words = tokens.digest_tokenizer(tokenizer)
    size_and_time = disk.read_file_metadata(path)[1:3]
    key = disk.digest_values(
        "augmented", augmentation_run.name, *size_and_time, words, max_length
    )
    arrays = augmentation_run.read_arrays("rows")
    labels = torch.from_numpy(np.repeat(arrays["y"], arrays["counts"]))
    return EncodedRows(
        tokens.load_or_compute_token_rows(key, iterate_encoded_rows, names),
        labels,
        tokenizer.pad_token_id,
    )
