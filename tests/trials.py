"""Make the trials by which settings of base are chosen, and note what came of each.

    python tests/trials.py --list                 all trials, in the order of the
    protocol python tests/trials.py W1                     one setting, at seed 90
    python tests/trials.py W1 --task CoLA         the whole model of another task python
    tests/trials.py W1 D5                  a later question, with the settings before it

A trial is judged by the rule of `data/published/protocol_base.md`, on rows of the pool
that its seed did not draw. Each model is a line of `data/published/trials_base.csv`; a
setting is given up at its first model that fails."""

import argparse
import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from lib import data
from lib.cluster import sweep
from lib.core import paths
from lib.core.spec import Spec, find_transitive_input_specs
from lib.core.store import Run, Store
from lib.core.store import count_core_seconds as seconds
from lib.data import Split, unseen
from lib.model import backbone, parts
from lib.papers import grids, published, students
from lib.papers.bermo import recipes as bermo
from lib.papers.ghostbert import recipes as ghostbert
from lib.papers.nas_pruning import recipes as nas
from lib.stats import metrics
from lib.train import heads, loop
from lib.train.batches import encode_split, make_batch
from lib.train.steps.bag_of_words import compute_word_count_features

SEED, MOST, RATIO = 90, 2000, 0.3
NEAR, MENDED = 0.9, 1.10  # A level and a loss have to be so near.
SMALL = {
    "MRPC": 2868,
    "RTE": 1690,
}  # So many rows train in a trial where the pool has no others.
JUDGED = {"SST-2": 8243, "CoLA": 1672, "MRPC": 1888, "STS-B": 2616, "RTE": 277}

WHOLE = {"W1": (3, 2e-5), "W2": (3, 5e-5), "W3": (10, 2e-5)}
DISTIL = {
    f"D{4 * i + j}": (epochs, lr, taps)
    for i, epochs in enumerate((3, 10, 20))
    for j, (lr, taps) in enumerate(
        ((2e-5, 0.0), (2e-5, 1e-2), (1e-4, 0.0), (1e-4, 1e-2)), 1
    )
}
SEARCH = {"S1": 3, "S2": 10}
PRUNING = {"M1": (10, 50), "M2": (25, 125)}
SETTINGS = {**WHOLE, **DISTIL, **SEARCH, **PRUNING}
FIELDS = "setting,task,seed,model,metric,rows,score,error,chance,untrained,far,teacher,loss,passes"
FIELDS += ",core_seconds,why"


def change(settings: dict, **fields) -> None:
    """Change the fields of base's Train in a table of lib.papers."""
    settings["base"] = replace(settings["base"], **fields)


def take(setting: str) -> None:
    """Let the recipes of base have a setting of the protocol's lists."""
    told = SETTINGS[setting]
    if setting in WHOLE:
        for table in (grids.TEACHER, nas.TEACHER):
            change(table, epochs=told[0], lr=told[1])
    elif setting in DISTIL:
        epochs, lr, taps = told
        change(students.DISTIL, epochs=epochs, lr=lr, taps=taps)
        change(ghostbert.FINETUNE, taps=taps)
    elif setting in SEARCH:
        change(nas.INTERMEDIATE, epochs=told)
        change(nas.PREDICTION, epochs=told)
    else:
        change(bermo.MASKED, epochs=told[0])
        bermo.WARMUPS["base"] = {"": (told[1], 1, 1)}


@dataclass(frozen=True)
class Trial:
    """A Trial is one model of a setting, and what the rule asks of it."""

    model: str
    spec: Spec
    is_whole: bool = False  # Its level is asked for.
    may_fail: bool = False  # That it learns nothing is what the claim says.
    rival: Spec | None = None  # Its distillation loss is held against that of this one.


def trials(setting: str, task: str, seed: int) -> Iterator[Trial]:
    """Yield the models of a setting, the cheapest first."""
    at = ("base", task)
    if setting in WHOLE:
        yield Trial("Plain", grids.teacher_spec(*at).with_seed(seed), is_whole=True)
    elif setting in DISTIL:
        for m in (3, 1):
            prune, ghost = (
                ghostbert.table_model_spec(*at, m, name).with_seed(seed)
                for name in ("Prune", "Ghost")
            )
            yield Trial(f"Prune {m}/12", prune)
            yield Trial(f"Ghost {m}/12", ghost, rival=prune)
        yield Trial(
            "Distilled",
            ghostbert.table_model_spec(*at, ghostbert.HEADS, "Distilled").with_seed(
                seed
            ),
        )
        for m, name in product((3, 1), ("Prune", "Ghost")):
            module = ghostbert.make_ghost_options("base") if name == "Ghost" else None
            spec = ghostbert.student_trained_on_labels_spec(*at, m, module).with_seed(
                seed
            )
            yield Trial(f"{name}, labels twice {m}/12", spec)
    elif setting in SEARCH:
        yield Trial("30 % NAS", nas.pruned_spec(*at, ratio=RATIO).with_seed(seed))
        yield Trial(
            "30 % Random",
            nas.retrained_random_architecture_spec(*at, ratio=RATIO).with_seed(seed),
        )
        sized = nas.retrained_random_architecture_spec(
            *at, ratio=RATIO, keeps_searched_sizes=True
        ).with_seed(seed)
        yield Trial("30 % Random, searched sizes", sized)
    else:
        yield Trial(
            "BERMo", bermo.pruned_spec(*at, "BERMo", kept_share=0.1).with_seed(seed)
        )
        yield Trial(
            "BERT",
            bermo.pruned_spec(*at, "BERT", kept_share=0.1).with_seed(seed),
            may_fail=True,
        )


def needed(trial: Trial, task: str, seed: int) -> list[Spec]:
    """Return the Specs whose weights a trial is judged by."""
    rival = (
        [each.input_specs_with_seeds["start"] for each in (trial.spec, trial.rival)]
        if trial.rival
        else []
    )
    return [trial.spec, grids.teacher_spec("base", task).with_seed(seed), *rival]


def rows(task: str, seed: int) -> tuple[Split, Split]:
    """Return (the rows that a seed trains on, rows of its pool that it did not draw).

    The second ones have nine words and more, and are at most MOST.
    """
    described = grids.make_profile_data_descriptor("base", task)
    rest = described["drawn"]["rows"] - described["rows"]
    drawn, every = (
        data.load(each, seed) for each in (described, described | {"held_out": rest})
    )
    left = every["held_out"]
    free = ~np.isin(left.index, drawn["held_out"].index) & (
        unseen.count_words_per_row(left) >= unseen.LONG
    )
    chosen = np.random.default_rng(0).permutation(np.flatnonzero(free))[:MOST]
    return drawn["train"], left.select_rows(np.sort(chosen))


def error(metric: str, score: float, count: int) -> float:
    """Return the standard error of a score from 0 to 1 on so many rows, by the rule's
    formulas."""
    if metric == "accuracy":
        return (score * (1 - score) / count) ** 0.5
    return (1 - score**2) ** (0.5 if metric == "matthews" else 1) / count**0.5


def chance(task: data.Task, split: Split) -> float:
    """Return the score of one answer for all rows; that of a correlation is 0."""
    accuracy = task.labels and task.metrics[0] == "accuracy"
    return float(np.bincount(split.y).max() / len(split)) if accuracy else 0.0


def linear(task: data.Task, x, train: Split, new, split: Split) -> float:
    """Return the score of a linear model over features x [N, K] of training rows and
    new ones."""
    model = LogisticRegression(C=0.3, max_iter=1000) if task.labels else Ridge(10.0)
    return metrics.compute_metric(
        task.metrics[0], model.fit(x, train.y).predict(new), split.y
    )


def bag_of_words(task: data.Task, train: Split, split: Split) -> float:
    """Return the score of a linear model over word counts, as the step of this name
    fits it."""
    counter = CountVectorizer(token_pattern=r"\S+").fit(train.a + (train.b or []))
    both = (compute_word_count_features(counter, part) for part in (train, split))
    return linear(task, next(both), train, next(both), split)


@torch.inference_mode()
def vectors(model: torch.nn.Module, tokenizer, texts: list) -> np.ndarray:
    """Return the mean of the last states of each text's tokens, of length 1: [N, H]."""
    encoded = encode_split(
        tokenizer, Split(texts, None, np.zeros(len(texts), int), None), 128
    )
    found = []
    for start in range(0, len(texts), 32):
        batch = make_batch(encoded, range(start, min(start + 32, len(texts))))
        real = batch["attention_mask"].unsqueeze(-1).float()
        states = parts.get_encoder(model)(**batch).last_hidden_state
        found.append((states * real).sum(1) / real.sum(1))
    return torch.nn.functional.normalize(torch.cat(found), dim=1).numpy()


def cosine(task: data.Task, train: Split, split: Split) -> float:
    """Return the score of the untouched encoder's cosine for pairs; -1 for single
    texts.

    Classes are told apart by a threshold, which a thousand training rows give.
    """
    if split.b is None:
        return -1.0
    model, tokenizer = backbone.load(
        data.require_checkpoint_folder(grids.CHECKPOINTS["base"]["bert"])
    )
    train = train.select_rows(np.arange(min(1000, len(train))))
    near = [
        (vectors(model, tokenizer, part.a) * vectors(model, tokenizer, part.b)).sum(1)
        for part in (train, split)
    ]
    if not task.labels:
        return metrics.compute_metric(task.metrics[0], near[1], split.y)
    return linear(task, near[0][:, None] * 10, train, near[1][:, None] * 10, split)


def judge(trial: Trial, task_name: str, seed: int, store: Store) -> dict:
    """Return the line of a trial whose runs are there with their weights (FIELDS)."""
    task = data.find_task_by_name("glue", task_name)
    (train, split) = rows(task_name, seed)
    run, metric = store.find_run(trial.spec, needs_weights=True), task.metrics[0]
    score, answers = scored(run, trial.spec, task, split)
    least, margin = chance(task, split), 2 * error(metric, score, len(split))
    line = dict.fromkeys(FIELDS.split(","), "")
    line |= {"task": task_name, "seed": seed, "model": trial.model, "metric": metric}
    line |= {
        "rows": len(split),
        "score": 100 * score,
        "error": 50 * margin,
        "chance": 100 * least,
    }
    line["core_seconds"] = sum(
        cost(store, each)
        for each in {trial.spec, *find_transitive_input_specs([trial.spec])}
    )
    faults = {"at chance": answers < 2 or score < least + margin}
    if trial.is_whole:
        most = max(least, bag_of_words(task, train, split), cosine(task, train, split))
        line |= {"untrained": 100 * most}
        line["far"] = (score - most) / error(metric, score, JUDGED[task_name])
        level = published.read_table("ghostbert", "table1").iloc[0][task_name] / 100
        faults["not above what needs no training"] = score < most + margin
        faults["below the printed level"] = score - least < NEAR * (level - least)
    else:
        whole = grids.teacher_spec("base", task_name).with_seed(seed)
        best, _ = scored(store.find_run(whole, needs_weights=True), whole, task, split)
        line["teacher"] = 100 * best
        faults["less than half of its teacher"] = score - least < (best - least) / 2
    if trial.rival:
        own, other = (
            last_loss(store, each.input_specs_with_seeds["start"])
            for each in (trial.spec, trial.rival)
        )
        line["loss"] = own / other
        faults["its ghosts are not mended"] = own > MENDED * other
    why = [name for name, there in faults.items() if there and not trial.may_fail]
    return line | {"passes": "no" if why else "yes", "why": "; ".join(why)}


def scored(run: Run, spec: Spec, task: data.Task, split: Split) -> tuple[float, int]:
    """Return (the score of a run's model on rows, how many different answers it
    gives)."""
    model, tokenizer = backbone.load(run.model_folder)
    encoded, _ = heads.encode_rows_and_make_scorer(
        tokenizer, split, task, spec.args["train"]["max_length"], None
    )
    logits = loop.predict_logits(
        model, encoded, loop.set_dtype_threads_and_device(spec.args["numerics"])
    )
    said = logits.argmax(1) if task.labels else logits[:, 0]
    return float(metrics.compute_metric(task.metrics[0], said, split.y)), len(
        np.unique(said)
    )


def last_loss(store: Store, spec: Spec) -> float:
    """Return the mean loss of a distillation over the last tenth of its logged
    steps."""
    lines = store.find_run(spec, needs_weights=True).read_json_lines("events.jsonl")
    curve = [line["curve"]["loss"] for line in lines if "curve" in line]
    return float(np.mean(curve[-max(1, len(curve) // 10) :]))


def cost(store: Store, spec: Spec) -> float:
    """Return the seconds that a run took, 0 for one that is not there."""
    run = store.find_run(spec)
    return round(seconds(run.status)) if run else 0


def add_line(file: str, names: list, line: dict, form: str) -> None:
    """Add a line to a table of data/published, with numbers in a form such as `.2f`.

    A trial that goes on after a kill judges its first models again, so a line that is
    there is not added."""
    place = paths.PUBLISHED / f"{file}.csv"
    values = (line.get(name, "") for name in names)
    row = [format(v, form) if isinstance(v, float) else str(v) for v in values]
    rows = [names]
    if place.exists():
        rows = list(csv.reader(place.read_text().splitlines()))
    if row not in rows:
        rows.append(row)
    with place.open("w", newline="") as opened:
        csv.writer(opened, lineterminator="\n").writerows(rows)


def attempt(
    setting: str, models: Iterable, needed: Callable, judge: Callable, note: Callable
):
    """Make and judge the models of a setting one by one, and stop at the first that
    fails.

    `needed(model)` returns the Specs to make, `judge(model, store)` the line of a
    model, and `note(line)` adds it to a table.

    Raises SystemExit where a run fails.
    """
    store = Store()
    for model in models:
        lost = sweep.execute_specs(needed(model), store, keep_weights=True)
        if lost:
            raise SystemExit(f"not made: {lost}")
        line = judge(model, store)
        note(line)
        print({name: value for name, value in line.items() if value != ""}, flush=True)
        if line["passes"] == "no":
            print(f"{setting} is given up")
            return
    print(f"{setting} passes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="*", choices=[*SETTINGS, []])
    parser.add_argument("--task", default="SST-2", choices=JUDGED)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.seed < SEED:
        parser.error(f"--seed is {args.seed}: trials have {SEED} and up")
    for task, few in SMALL.items():
        grids.ROWS["base"][task] = few
    for setting in args.settings:
        take(setting)
    if args.list or not args.settings:
        for setting in SETTINGS:
            take(setting)
            print(
                setting,
                *(trial.model for trial in trials(setting, args.task, args.seed)),
            )
        return
    names, asked = FIELDS.split(","), "+".join(args.settings)
    attempt(
        args.settings[-1],
        trials(args.settings[-1], args.task, args.seed),
        lambda trial: needed(trial, args.task, args.seed),
        lambda trial, store: (
            judge(trial, args.task, args.seed, store) | {"setting": asked}
        ),
        lambda line: add_line("trials_base", names, line, ".2f"),
    )


if __name__ == "__main__":
    main()
