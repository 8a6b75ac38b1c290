"""The model card of an exported model: how it was made, what it costs, how it scores."""

import json
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from lib import data
from lib.data.models import HUB
from lib.measure.compare import spread
from lib.runs.spec import ancestry, from_json, placeless
from lib.runs.store import Store

# What the makers of a checkpoint say that it learned from, where that touches tasks.
SAW = {
    "all-MiniLM-L6-v2": "was tuned on a billion sentence pairs, by its makers' word also those of "
    "SNLI, MultiNLI and Quora's questions: MNLI and QQP are not new to it"
}
APACHE, MIT = "apache-2.0", "mit"
LICENCES = {"roberta-base": MIT} | dict.fromkeys(
    ("all-MiniLM-L6-v2", "bert-base-uncased", "electra-small", "bert-mini"), APACHE
)
SETS = {"glue": "nyu-mll/glue", "squad": "rajpurkar/squad"}  # names of sources on the hub
BODY = """
# {{ title }}

    transformers.AutoTokenizer.from_pretrained(FOLDER{{ remote }})
    transformers.{{ auto }}.from_pretrained(FOLDER{{ remote }})
{% if labels %}
Classes: {{ labels }}.
{% endif %}
## Method

{{ method }}

## Cost

{{ cost }}

## Scores

{{ scores }}

## Data

`{{ described }}`

## Contamination

{{ contamination }}

## Made by

    {{ command }}

Commit {{ commit }}; torch {{ torch }}.
"""


def card(run, told):
    """The ModelCard of a run's model. told: what lib.export.export returned."""
    spec, described = from_json(run.spec), run.spec["args"].get("data", {})
    task = task_of(run)
    whole, some = told["parameters"], told["nonzero"]
    name = Path(task.name).name if task else "Encoder"
    apart = ", ".join(f"{form} by {most:.1e}" for form, most in told["forms"].items())
    return ModelCard.from_template(
        facts(run, spec, task),
        template_str=f"---\n{{{{ card_data }}}}\n---\n{BODY}",
        title=f"{name}, step {spec.step}, seed {run.folder.name}",
        auto=told["auto"],
        remote=", trust_remote_code=True" * told["remote"],
        labels=", ".join(task.labels) if task else "",
        method="\n".join(steps(spec)),
        cost=f"{whole:,} parameters, {some:,} of them not zero; {told['flops'] / 1e6:,.1f} MFLOPs "
        f"for a row of {told['tokens']} tokens. Outputs differ from the run's: {apart}.",
        scores="\n".join(f"| {' | '.join(line)} |" for line in scores(run, task)),
        described=json.dumps(placeless(described)),
        contamination=" ".join(contamination(spec, described)),
        command=f"python -m lib export {run.name} --keep",
        commit=run.env.get("commit", "unknown") + ", changed" * bool(run.env.get("changed")),
        torch=run.env.get("torch", "unknown"),
    )


def task_of(run):
    """The lib.data.Task that a run learned, or None."""
    described = run.spec["args"].get("data", {})
    return data.described(described) if "task" in described else None


def facts(run, spec, task):
    """The ModelCardData: base model, licence, data set, metrics and results."""
    bases = checkpoints(spec)
    licences = {LICENCES.get(name) for name in bases} or {APACHE}  # that of this project
    more = {}
    if task:
        source = run.spec["args"]["data"].get("source", "")
        kind = "question-answering" if task.span else "text-classification"
        here = {"dataset_type": SETS.get(source, source), "dataset_name": Path(task.name).name}
        results = [
            EvalResult(task_type=kind, metric_type=name, metric_value=value, **here)
            for name, value in measured(run, task).items()
        ]
        more = {"pipeline_tag": kind, "metrics": list(task.metrics), "eval_results": results}
        more |= {"datasets": [SETS[source]]} if source in SETS else {}
    return ModelCardData(
        base_model=[HUB[name] for name in bases if name in HUB] or None,
        library_name="transformers",
        license=licences.pop() if len(licences) == 1 else None,
        model_name=run.name,
        **more,
    )


def steps(spec):
    """Each run behind a model, inputs first: its step and its arguments."""
    behind = sorted(ancestry([spec]), key=lambda each: len(ancestry([each])))
    for number, each in enumerate([*behind, spec], 1):
        args = {name: v for name, v in each.args.items() if name not in ("data", "numerics")}
        yield f"{number}. `{each.step}`, seed {each.seed}: `{json.dumps(placeless(args))[:400]}`"


def measured(run, task):
    """{name: value} of the task's metrics that a run has, of development and other rows."""
    names = [f"{rows}{metric}" for metric in task.metrics for rows in ("", "unseen.", "test.")]
    return {name: run.metrics[name] for name in names if name in run.metrics}


def scores(run, task):
    """Lines of a table: the metrics of this run, and over all seeds that are at hand."""
    yield "rows and metric", "this seed", "mean ± deviation (seeds)"
    yield "---", "---", "---"
    store = Store()
    seeds = {
        each.folder.name: each.metrics
        for each in store.recorded() + store.folders()
        if each.folder.parent.name == run.folder.parent.name
    }
    for name, value in measured(run, task).items() if task else ():
        points = [100 * each.get(name, float("nan")) for each in seeds.values()]
        yield name, f"{100 * value:.1f}", spread(points)


def checkpoints(spec):
    """The names of the checkpoints that a model started from."""
    return sorted({each.args["name"] for each in ancestry([spec]) if each.step == "checkpoint"})


def contamination(spec, described):
    """What the model may have seen of the rows that it is judged on."""
    for name in checkpoints(spec):
        yield f"{name} {SAW.get(name, 'may have seen the task: its pre-training is not searched')}."
    if not checkpoints(spec):
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
