"""Write `data/published/other_rules.csv`: what comparisons become under three rules that
are not the published ones.

    python tests/other_rules.py

"one processor": pairs are left out whose two models were trained on different
processors. There a teacher was made again, and its weights differ in their last digits.
"collapsed seeds count": a seed in which a model collapsed stays. The published rule,
which leaves it out, was made on 2026-11-26, after results had been seen.
"seeds of the plan": seeds that were added after results (`added.csv`) do not count.

The table has each comparison with an interval that changes, as published and under the
rule."""

import csv
from contextlib import contextmanager
from unittest import mock

from lib.claims import judging, lists
from lib.core import paths
from lib.stats import compare

COLUMNS = ("rule", "profile", "claim", "comparison", "task", "shown", "word", "seeds")
COLUMNS += ("shown_by_rule", "word_by_rule", "seeds_by_rule")
PAIR_ALL, READ_CSV = (
    compare.pair_runs_by_task_and_seed,
    lists.read_csv_in_published_folder,
)


class EveryLabel(tuple):
    """The labels of all models, as an argument that asks which may collapse."""

    def __contains__(self, label) -> bool:
        return True


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
    parts = (
        [row for row in rows if (row.get("task"), row["seed"]) not in mixed]
        for rows in (method_rows, baseline_rows)
    )
    return PAIR_ALL(*parts, *further)


def read_csv_without_added_seeds(table_name):
    return [] if table_name == "added" else READ_CSV(table_name)


@contextmanager
def forget_claims_around():
    """Let the claims be read anew within the block, and after it."""
    lists.read_claims.cache_clear()
    yield
    lists.read_claims.cache_clear()


RULES = {
    "one processor": mock.patch.object(
        compare, "pair_runs_by_task_and_seed", pair_runs_of_one_processor
    ),
    "collapsed seeds count": mock.patch.object(
        judging, "list_models_expected_to_collapse", lambda claim: EveryLabel()
    ),
    "seeds of the plan": mock.patch.object(
        lists, "read_csv_in_published_folder", read_csv_without_added_seeds
    ),
}


def tell(result) -> tuple[str, str, str]:
    return result.measured_effect_text, result.verdict_word, result.seed_count_text


def main() -> None:
    lines = []
    for profile in judging.SCALES:
        published = judging.judge_planned_claims(profile)
        for rule, patch in RULES.items():
            with patch, forget_claims_around():
                by_rule = judging.judge_planned_claims(profile)
            for claim, verdict in published.items():
                others = {
                    (r.comparison.text, r.task): r for r in by_rule[claim].results
                }
                for r in verdict.results:
                    place = r.comparison.text, r.task
                    other = others.get(place)
                    counts = other and r.estimate and not r.claim_that_counts_it
                    if counts and tell(r)[0] != tell(other)[0]:
                        lines.append(
                            (rule, profile, claim, *place, *tell(r), *tell(other))
                        )
    with (paths.PUBLISHED / "other_rules.csv").open("w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *lines])


if __name__ == "__main__":
    main()
