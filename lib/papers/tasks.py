"""The page of all tasks: what each gives away without reading, and what an encoder learns of it. Free of torch."""

from dataclasses import replace

import numpy as np
import pandas as pd

from lib import data
from lib.options import Span, Targets
from lib.papers.ghostbert import TEACHER
from lib.papers.profiles import profile, toy_backbone, untrained
from lib.spec import Spec

ROWS = 1500      # training rows of a generated task; real tasks take at most as many
MODELS = ("words", "scratch", "pre-trained")


def names(profile_name, wanted=()):
    """Tasks of the profile's source that can be learned: with rows to train on, at hand."""
    source = profile(profile_name).source
    there = {}
    for name in wanted or data.source(source).TASKS:
        try:
            if {"train", "dev"} <= data.splits(source, name).keys():
                there[name] = data.task(source, name)
        except FileNotFoundError:
            if wanted:
                raise
    return there


def grid(profile_name, wanted=(), seeds=(0,)):
    """One row for each task, model and seed: majority and bag of words, an encoder without and with pre-training."""
    where, rows = profile(profile_name), []
    for name, task in names(profile_name, wanted).items():
        count = min(ROWS, len(data.splits(where.source, name)["train"]))
        described = data.describe(where.source, name, count)
        common = {"data": described, "train": TEACHER["toy"], "targets": Targets("hard"), "numerics": where.numerics}
        if task.span:
            common |= {"train": replace(TEACHER["toy"], max_length=96), "span": Span(stride=64, max_query=32, max_answer=12)}
        specs = {"scratch": Spec("finetune", common, {"start": untrained()}),
                 "pre-trained": Spec("finetune", common, {"start": toy_backbone()})}
        if not task.span:
            specs["words"] = Spec("bag_of_words", {"data": described})
        rows += [{"task": name, "model": model, "seed": seed, "spec": spec.at(seed)}
                 for model, spec in specs.items() for seed in (seeds if model != "words" else seeds[:1])]
    return rows


def census(source, wanted=()):
    """One line a task of a source: rows of each split, classes, metric, lengths in words (5th, 50th and 95th percentile)
    with a histogram; tasks that are not at hand say so."""
    lines = []
    for name, task in data.source(source).TASKS.items():
        if wanted and name not in wanted:
            continue
        line = {"task": name, "input": "question, passage" if task.span else "pair" if task.pair else "sentence",
                "classes": "span" if task.span else len(task.labels) or "score", "metric": task.metrics[0]}
        try:
            splits = data.splits(source, name)
        except FileNotFoundError:
            lines.append(line | {"source": "not at hand"})
            continue
        line |= {split: len(rows) for split, rows in splits.items()}
        lengths = np.concatenate([words(rows) for rows in splits.values()])
        line["words 5, 50, 95 %"] = ", ".join(f"{q:.0f}" for q in np.percentile(lengths, (5, 50, 95)))
        line["lengths"] = bars(lengths)
        lines.append(line | {"source": stand_ins(source, name)})
    return pd.DataFrame(lines)


def words(split):
    """Words of each row, both sides together."""
    return np.array([len(a.split()) for a in split.a]) + (0 if split.b is None else
                                                          np.array([len(b.split()) for b in split.b]))


def bars(lengths, bins=12):
    """A histogram as text, from 0 to the 99th percentile."""
    counts, _ = np.histogram(lengths, bins, (0, np.percentile(lengths, 99) + 1))
    return "".join("▁▂▃▄▅▆▇█"[int(7 * c / counts.max())] for c in counts)


def stand_ins(source, name):
    """Where the rows come from: official files, or stand-ins for them."""
    if source != "glue":
        return {"toy": "generated here"}.get(source, "local files")
    from lib import paths
    from lib.data import glue
    found = {split: glue.stand_in(path) for split, path in glue.files(name, paths.data_root() / "glue").items()}
    partial = [f"{split}: {kind}" for split, kind in found.items() if kind]
    return "official files" + (f" but {', '.join(partial)}" if partial else "")
