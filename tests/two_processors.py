"""Write `data/published/two_processors.csv`: what comparisons become without the pairs
whose two models were trained on different processors.

    python tests/two_processors.py

There a teacher was made again, and its weights differ in their last digits from those
of the teacher before. The table has the comparisons that have such pairs, with their
estimate and word as published and without these pairs."""

import csv
from unittest import mock

from lib.claims import judging
from lib.core import paths
from lib.stats import compare

COLUMNS = ("profile", "claim", "comparison", "task", "shown", "word", "seeds")
COLUMNS += ("shown_without", "word_without", "seeds_without")


def read_processors(rows) -> dict:
    """Return {(task, seed): processor} of the rows that have a run."""
    return {
        (row.get("task"), row["seed"]): row["run"].env["processor"]
        for row in rows
        if row["run"]
    }


def pair_runs_of_one_processor(method_rows, baseline_rows, *further):
    """Pair runs as the published comparisons do, without pairs of two processors."""
    ours, theirs = map(read_processors, (method_rows, baseline_rows))
    mixed = {key for key in ours.keys() & theirs if ours[key] != theirs[key]}
    PAIRS.append((len(ours.keys() & theirs), len(mixed)))
    parts = (
        [row for row in rows if (row.get("task"), row["seed"]) not in mixed]
        for rows in (method_rows, baseline_rows)
    )
    return PAIR_ALL(*parts, *further)


PAIR_ALL, PAIRS = compare.pair_runs_by_task_and_seed, []


def main() -> None:
    lines = []
    for profile in judging.SCALES:
        published = judging.judge_planned_claims(profile)
        with mock.patch.object(
            compare, "pair_runs_by_task_and_seed", pair_runs_of_one_processor
        ):
            without = judging.judge_planned_claims(profile)
        for claim, verdict in published.items():
            for r, other in zip(verdict.results, without[claim].results, strict=True):
                told, rest = (
                    (x.measured_effect_text, x.verdict_word, x.seed_count_text)
                    for x in (r, other)
                )
                if told[0] != rest[0] and not r.claim_that_counts_it:
                    where = profile, claim, r.comparison.text, r.task
                    lines.append((*where, *told, *rest))
    with (paths.PUBLISHED / "two_processors.csv").open("w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *lines])
    pairs, mixed = map(sum, zip(*PAIRS, strict=True))
    print(f"{mixed} of {pairs} pairs are of two processors")


if __name__ == "__main__":
    main()
