"""Make the trials of mini's fair comparisons, and note what came of each.

    python tests/trials_fair.py --list     all trials, in the order of the protocol
    python tests/trials_fair.py T1         one setting, at seed 90

A trial is judged by the rule of `data/published/protocol_fair.md`: by the loss of
distillation, by how far the taps move, and on training rows that no trial learned from.
Each pair of models is a line of `data/published/trials_fair.csv`; a setting is given up
at its first pair that fails."""

import argparse
from dataclasses import dataclass

import numpy as np
from trials import add_line, attempt, scored

from lib import data
from lib.core.spec import Spec
from lib.core.store import Store
from lib.core.store import count_core_seconds as seconds
from lib.data import unseen
from lib.papers import grids
from lib.papers.ghostbert import recipes as ghostbert

SEED, MOST = 90, 2000
MENDED, MOVED = 1.10, 0.01  # A loss may be so much above its rival's; taps move so far.
TAPS = {"T1": 1e-2, "T2": 3e-3, "T3": 3e-2}
RATES = {"R1": 5e-4, "R2": 1e-3}
SETTINGS = {**TAPS, **RATES}
PAIRS = [(task, m) for task in ("SST-2", "STS-B") for m in (3, 9)]
FIELDS = (
    "setting,task,m,seed,ghost_loss,prune_loss,ratio,taps_moved,damage,ghost_score,prune_score,"
    "chance,passes,core_seconds,why"
).split(",")


@dataclass(frozen=True)
class Pair:
    """A Pair is a model with ghosts and one without, at one task and width."""

    task: str
    m: int
    ghost: Spec
    prune: Spec


def pairs(setting: str, seed: int = SEED) -> list[Pair]:
    """Return the Pairs of a setting, the cheapest first.

    A rate of the taps is of the ghosts alone, a rate of all weights is of both models.
    """
    ghost = (
        {"ghost_kernel_learning_rate": TAPS[setting]}
        if setting in TAPS
        else {"distillation_learning_rate": RATES[setting]}
    )
    prune = {} if setting in TAPS else ghost
    return [
        Pair(
            task,
            m,
            ghostbert.table_model_spec("mini", task, m, "Ghost", **ghost).with_seed(
                seed
            ),
            ghostbert.table_model_spec("mini", task, m, "Prune", **prune).with_seed(
                seed
            ),
        )
        for task, m in PAIRS
    ]


def needed(pair: Pair) -> list[Spec]:
    """Return the Specs whose weights a Pair is judged by."""
    both = [pair.ghost, pair.prune]
    return [*both, *(spec.input_specs_with_seeds["start"] for spec in both)]


def verdict(setting: str, line: dict) -> list[str]:
    """Return the reasons why a line fails; none where it passes."""
    faults = {"its ghosts are not mended": line["ratio"] > MENDED}
    if setting in TAPS:
        faults["its taps hardly move"] = line["taps_moved"] < MOVED
    for name in ("ghost", "prune"):
        faults[f"{name} is at chance"] = line[f"{name}_score"] <= line["chance"]
    return [why for why, there in faults.items() if there]


def rows(task: str) -> data.Split:
    """Return training rows of nine words and more that no run of mini learns from or is
    judged on.

    They are behind the first 9,000 of the fixed order and, of SST-2, none of its unseen
    rows. STS-B has those behind the rows of training and holding out."""
    described = grids.make_profile_data_descriptor("mini", task)
    first = (
        described.get("unseen", {}).get("beside")
        or described["rows"] + described["held_out"]
    )
    every = data.read_split("glue", task, "train")
    left = every.select_rows(np.sort(data.make_fixed_random_row_order(every)[first:]))
    there = data.load(described)
    free = ~np.isin(left.index, there["unseen"].index) if task == "SST-2" else True
    return left.select_rows(
        np.flatnonzero(free & (unseen.count_words_per_row(left) >= unseen.LONG))[:MOST]
    )


def judge(setting: str, pair: Pair, store: Store) -> dict:
    """Return the line of a Pair whose runs are there with their weights (FIELDS)."""
    task, split = data.find_task_by_name("glue", pair.task), rows(pair.task)
    first = {
        n: store.find_run(getattr(pair, n).parents["start"]) for n in ("ghost", "prune")
    }
    line = {"task": pair.task, "m": pair.m, "seed": pair.ghost.seed, "setting": setting}
    line |= {f"{name}_loss": run.metrics["distance"] for name, run in first.items()}
    line["ratio"] = line["ghost_loss"] / line["prune_loss"]
    told = first["ghost"].metrics
    line["taps_moved"] = told["taps_moved"]
    line["damage"] = 100 * (told["teacher_score"] - told["start_score"])
    for name in first:
        spec = getattr(pair, name)
        score, _ = scored(store.find_run(spec, needs_weights=True), spec, task, split)
        line[f"{name}_score"] = 100 * score
    most = np.bincount(split.y).max() / len(split) if task.labels else 0.0
    line["chance"] = 100 * float(most)
    line["core_seconds"] = round(sum(seconds(run.status) for run in first.values()))
    why = verdict(setting, line)
    return line | {"passes": "no" if why else "yes", "why": "; ".join(why)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("setting", nargs="?", choices=SETTINGS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.seed < SEED:
        parser.error(f"--seed is {args.seed}: trials have {SEED} and up")
    if args.list or not args.setting:
        for name in SETTINGS:
            print(name, *(f"{pair.task} {pair.m}/12" for pair in pairs(name)), sep=", ")
        return
    attempt(
        args.setting,
        pairs(args.setting, args.seed),
        needed,
        lambda pair, store: judge(args.setting, pair, store),
        lambda line: add_line("trials_fair", FIELDS, line, ".4g"),
    )


if __name__ == "__main__":
    main()
