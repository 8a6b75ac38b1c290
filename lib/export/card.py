"""The model card of an exported model: how it was made, what it costs, how it scores."""

import json

from lib import data
from lib.measure.compare import spread
from lib.spec import ancestry, from_json
from lib.store import Store

# What the makers of a checkpoint say that it learned from, where that touches tasks.
SAW = {
    "all-MiniLM-L6-v2": "was tuned on a billion sentence pairs, by its makers' word also those of "
    "SNLI, MultiNLI and Quora's questions: MNLI and QQP are not new to it"
}


def card(run, told):
    """The text of a README.md. told: what lib.export.export returned."""
    spec, described = from_json(run.spec), run.spec["args"].get("data", {})
    remote, tokens = ", trust_remote_code=True" * told["remote"], told["tokens"]
    commit = run.env.get("commit", "unknown") + ", changed" * bool(run.env.get("changed"))
    commands = [f"python -m lib export {run.name} --keep"]
    return f"""---
library_name: transformers
---

# {described.get("task", "Encoder")}, step {spec.step}, seed {run.folder.name}

    transformers.AutoTokenizer.from_pretrained(FOLDER{remote})
    transformers.{told["auto"]}.from_pretrained(FOLDER{remote})

## Method

{chr(10).join(steps(spec))}

## Cost

{told["parameters"]:,} parameters, {told["nonzero"]:,} of them not zero;
{told["flops"] / 1e6:,.1f} MFLOPs for a row of {tokens} tokens.

{table("form, CPU ms of that row on one thread, largest difference", forms(told))}
## Scores

{table("development rows or as said, this seed, mean ± deviation (seeds)", scores(run))}
## Data

`{json.dumps(described)}`

## Contamination

{" ".join(contamination(spec, described))}

## Made by

{chr(10).join(f"    {line}" for line in commands)}

Commit {commit}; torch {run.env.get("torch", "unknown")}.
"""


def table(head, rows):
    lines = [head.split(", "), ["---"] * 3, *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def forms(told):
    for name, each in told["forms"].items():
        yield name, f"{each['ms']:.2f}", f"{each['difference']:.1e}"


def steps(spec):
    """Each run behind a model, inputs first: its step and what it was told."""
    behind = sorted(ancestry([spec]), key=lambda each: len(ancestry([each])))
    for number, each in enumerate([*behind, spec], 1):
        told = {
            name: value for name, value in each.args.items() if name not in ("data", "numerics")
        }
        yield f"{number}. `{each.step}`, seed {each.seed}: `{json.dumps(told)[:400]}`"


def scores(run):
    """The metrics of this run, and over all its seeds that are there."""
    store, described = Store(), run.spec["args"].get("data", {})
    there = [
        r
        for r in store.recorded() + store.folders()
        if r.folder.parent.name == run.folder.parent.name
    ]
    seeds = {each.folder.name: each.metrics for each in there}
    for metric in data.described(described).metrics if "task" in described else ():
        for name in (metric, f"unseen.{metric}", f"test.{metric}"):
            if name in run.metrics:
                points = [100 * each.get(name, float("nan")) for each in seeds.values()]
                yield name, f"{100 * run.metrics[name]:.1f}", spread(points)


def contamination(spec, described):
    """What the model may have seen of the rows that it is judged on."""
    names = {each.args["name"] for each in ancestry([spec]) if each.step == "checkpoint"}
    for name in sorted(names):
        yield f"{name} {SAW.get(name, 'may have seen the task: its pre-training is not searched')}."
    if not names:
        yield "Its pre-training read generated text alone."
    try:
        splits = data.load(described) if "task" in described else {}
    except FileNotFoundError:
        splits = {}
    if "dev" in splits:
        seen, dev = (
            set(zip(s.a, s.b or [""] * len(s), strict=True))
            for s in (splits["train"], splits["dev"])
        )
        yield f"{len(seen & dev)} of {len(dev)} development rows are word by word training rows."
