"""This step writes augmented training rows as TinyBERT does (lib.train.augment).

The texts are saved where other steps save weights, in the run's model folder. So
committed records leave them out: they are large, can be made again from the seed, and
may not be published."""

import json
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lib import data as sources
from lib.core.names import Refused, derive_seed
from lib.core.options import Augment, Numerics
from lib.core.store import RunWriter, TrainingOutput
from lib.stats.metrics import Metrics
from lib.train import augment as words
from lib.train import loop

CHUNK = 2000  # Number of sentences whose replacement words are computed together.


def augment(
    run: RunWriter,
    data: sources.DataDescriptor,
    augment: loop.SettingsJson,
    numerics: loop.SettingsJson,
) -> Metrics:
    """Augment the training rows of a task as TinyBERT does.

    A student is then distilled on more rows. Words are replaced by similar ones, which
    the run's input `language_model` (a saved model) proposes. Variants of every row are
    written to the run's folder. Raises Refused for a task of answer spans.

    Returns {"sentences": number of distinct texts, "words": number of their words that
    may be replaced, "one_piece": share of these that are one token, "masked_lm":
    whether a masked-LM head proposed words, "rows_in": number of rows before,
    "rows_out": number of rows after}.

    run: the folder of this run, for writing.
    data: JSON that says which rows of which task are used.
    augment: settings: sentences to draw, probability of a replacement, number of
    candidates.
    numerics: dtype, number of threads and device."""
    arithmetic, options = (
        loop.set_dtype_threads_and_device(numerics),
        Augment(**augment),
    )
    if sources.find_task_by_name(data["source"], data["task"]).span:
        raise Refused(
            f"{data['task']} cannot be augmented: its answers are places in the text"
        )
    split = sources.load(data, run.seed)["train"]
    source = words.WordReplacer(run.inputs["language_model"].model_folder)
    texts = [*split.a, *(split.b or [])]
    candidate_ids, report = collect_replacement_candidates(
        run, texts, source, options.candidates, arithmetic
    )
    counts = []
    folder = run.folder / "model"
    folder.mkdir(exist_ok=True)
    with open(folder / "variants.jsonl", "w") as file:
        for made in iterate_row_variants(
            split, source, candidate_ids, options, run.seed
        ):
            file.write(json.dumps(made) + "\n")
            counts.append(1 + sum(len(side) - 1 for side in made))
            run.report_progress(0.9 + 0.1 * len(counts) / len(split))
    run.save_arrays("rows", y=split.y, index=split.index, counts=np.array(counts))
    return report | {"rows_in": len(split), "rows_out": sum(counts)}


class CandidatesAndMetrics(NamedTuple):
    # {text: token ids of the K candidates for each of its replaceable words, int32
    # [words, K]}.
    candidates_by_text: dict[str, np.ndarray]
    metrics: Metrics


def collect_replacement_candidates(
    run: TrainingOutput,
    texts: list[str],
    replacer: words.WordReplacer,
    candidates_per_word: int,
    numerics: Numerics,
) -> CandidatesAndMetrics:
    """Find for each text the words by which augmentation may replace its words.

    Returns ({text: token ids of candidates for each word that may be replaced, int32
    [words, K], padded with -1}, metrics). Metrics are "sentences" (number of distinct
    texts), "words" (number of their words that may be replaced), "one_piece" (share of
    these that are one token) and "masked_lm" (whether the model has a masked-LM head).
    A text that occurs several times is processed once.

    run: gets reports of the progress.
    replacer: the masked language model that proposes words.
    candidates_per_word: K."""
    unique = list(dict.fromkeys(texts))
    candidate_ids, near, words_seen, one_piece = {}, {}, 0, 0
    for start in range(0, len(unique), CHUNK):
        part = unique[start : start + CHUNK]
        arrays = words.find_replacement_candidates(
            part, replacer, candidates_per_word, numerics, near
        )
        candidate_ids |= zip(
            part, np.split(arrays["ids"], np.cumsum(arrays["sizes"])[:-1]), strict=True
        )
        words_seen += len(arrays["ids"])
        one_piece += int(arrays["one_piece"])
        run.report_progress(0.9 * (start + len(part)) / len(unique))
    metrics = {
        "sentences": len(unique),
        "words": words_seen,
        "one_piece": one_piece / max(1.0, words_seen),
        "masked_lm": replacer.head is not None,
    }
    return CandidatesAndMetrics(candidate_ids, metrics)


def iterate_row_variants(
    split: sources.Split,
    replacer: words.WordReplacer,
    candidates_by_text: dict[str, np.ndarray],
    augment_settings: Augment,
    seed: int,
) -> Iterator[list[list[words.TextVariant]]]:
    """Yield for each row the variants of its texts, with words replaced at random.

    A row's variants are one list for each text, the original first. Each row has a
    random generator of its own, seeded by `seed` and its row number, so that its
    variants depend on no other row.

    split: the training rows.
    replacer: the model whose tokenizer splits the texts.
    candidates_by_text: {text: token ids of candidates for its replaceable words, int32
    [words, K]}.
    augment_settings: the number of sentences to draw, and the probability of a
    replacement."""
    for i, index in enumerate(split.index):
        dice = np.random.default_rng(derive_seed(seed, f"augment:{index}"))
        texts = [column[i] for column in split.list_text_columns()]
        yield [
            words.sample_text_variants(
                text, replacer, candidates_by_text[text], augment_settings, dice
            )
            for text in texts
        ]
