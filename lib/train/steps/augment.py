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
from lib.core.store import RunWriter, Scratch
from lib.core.types import Json
from lib.data import Split
from lib.stats.metrics import Metrics
from lib.train import augment as words
from lib.train import loop
from lib.train.loop import SettingsJson

CHUNK = 2000  # Number of sentences whose candidates are computed together.


def augment(
    run: RunWriter, data: Json, augment: SettingsJson, numerics: SettingsJson
) -> Metrics:
    """Write augmented variants of every training row to the run's folder, and return
    counts of rows, sentences and words.

    A student is then distilled on more rows. The run's input `language_model` proposes
    the words. Raises Refused for a task of answer spans.

    data: the descriptor of the task's rows.
    augment: the fields of an Augment.
    numerics: the fields of a Numerics."""
    arithmetic, options = loop.read_numerics(numerics), Augment(**augment)
    if sources.task(data["source"], data["task"]).span:
        raise Refused(
            f"{data['task']} cannot be augmented: its answers are places in the text"
        )
    split = sources.load(data, run.seed)["train"]
    source = words.WordReplacer(run.inputs["language_model"].model_folder)
    texts = [*split.a, *(split.b or [])]
    candidate_ids, report = collect_candidates(
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
    # {text: candidates of its replaceable words, int32 [words, K]}.
    candidates_by_text: dict[str, np.ndarray]
    metrics: Metrics


def collect_candidates(
    run: Scratch,
    texts: list[str],
    replacer: words.WordReplacer,
    candidates_per_word: int,
    numerics: Numerics,
) -> CandidatesAndMetrics:
    """Return the candidates of lib.train.augment. A text that occurs several times is
    processed once.

    candidates_per_word: the number K."""
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
    split: Split,
    replacer: words.WordReplacer,
    candidates_by_text: dict[str, np.ndarray],
    augment_settings: Augment,
    seed: int,
) -> Iterator[list[list[str]]]:
    """Yield for each row a list of variants for each of its texts, the original first.

    Each row has a random generator of its own, so that its variants depend on no other
    row.

    candidates_by_text: {text: candidates of its replaceable words, int32 [words, K]}.
    augment_settings: the number of sentences to draw, and the probability of a
    replacement."""
    sides = [side for side in (split.a, split.b) if side]
    for i, index in enumerate(split.index):
        dice, texts = (
            np.random.default_rng(derive_seed(seed, f"augment:{index}")),
            [s[i] for s in sides],
        )
        yield [
            words.sample_variants(
                text, replacer, candidates_by_text[text], augment_settings, dice
            )
            for text in texts
        ]
