"""Settings of EfficientBERT's sections 3.1, 4.2 and 4.3 and of its captions, as the profile `paper` has them. Free of torch."""

import pandas as pd

from lib import published
from lib.options import Targets
from lib.papers import efficientbert as paper
from lib.papers import efficientbert_search as search
from lib.papers.ghostbert import LOOP
from lib.papers.grids import TEACHER
from lib.papers.profiles import CHECKPOINTS
from lib.search import formula, surface
from lib.search.net import QS, STACKS

SHAPES = (
    "BERT_TINY",
    "TinyBERT_4",
    "BERT_SMALL",
    "BERT-PKD_4",
    "DistilBERT_4",
    "BERT-PKD_6",
    "DistilBERT_6",
    "MiniLM_4",
    "MiniLM_6",
)


def text(value):
    """Numbers in one form, so that 1e-4 and 0.0001 are alike; others as they are."""
    try:
        return f"{float(value):g}"
    except (TypeError, ValueError):
        return str(value)


def is_number(value):
    """Whether a text of `text` is a number."""
    return value.lstrip("-").replace("e-", "").replace(".", "").isdigit()


def settings():
    """{phase: {setting: what the code uses}} by the rows of hyperparameters.csv, out of what goes into the Specs; rows that no
    part of the code decides are left out."""
    pre, fine, together, brief = (
        each["paper"] for each in (paper.PRETRAIN, paper.FINETUNE, paper.TOGETHER, search.BRIEFLY)
    )
    base, plus, tiny, other = (
        paper.network(name)
        for name in (
            "Base Model",
            "EfficientBERT++",
            "EfficientBERT_TINY",
            "EfficientBERT (TinyBERT_6)",
        )
    )
    cola, squad = (paper.finetuning(paper.FINETUNE, "paper", task) for task in ("CoLA", "SQuAD1"))
    printed = {
        name.lower().replace(" ", "_")
        for name in published.table("efficientbert", "table01_operations")["Operation"]
    }
    recipe, turns = surface.Recipe(), paper.TURNS["paper"]
    inherits = "from the supernet, whole"
    return {
        "Search space": {
            "FFN stack number choices": " | ".join(map(str, STACKS)),
            "intermediate expansion ratio choices": " | ".join(
                "1" if q == 1 else f"1/{q}" for q in QS
            ),
            "mathematical operations": "Table 1"
            if printed == {*formula.BINARY, *formula.UNARY}
            else "others",
        },
        "Base model": {
            "embedding factorization": base.embedding,
            "number of Transformer layers M": len(base.layers),
            "hidden size d": base.hidden,
            "intermediate expansion ratio": base.layers[0].ratio,
            "intermediate hidden size d_i": base.inner(base.layers[0]),
        },
        "EfficientBERT": {
            "architecture": "the network that the public code configures",
            "retraining": inherits,
        },
        "EfficientBERT+": {
            "initial weights": "from the supernet of several tasks, pooler and classifier too"
        },
        "EfficientBERT++": {
            "number of Transformer layers M": len(plus.layers),
            "repeats of each EfficientBERT layer": len(plus.layers) // len(base.layers),
            "hidden size d": plus.hidden,
            "initial weights": inherits,
        },
        "EfficientBERT_TINY": {"hidden size d": tiny.hidden},
        "Search stages 1 and 2, supernet": {
            "state when candidates inherit": "frozen",
            "pre-training epochs": pre.epochs,
        },
        "Search stages 1 and 2, candidate": {
            "pre-training data": f"{paper.BRIEF['paper']:,} documents",
            "pre-training epochs": paper.READ["paper"].epochs,
            "fine-tuning data": f"first {paper.PART[0]:,} rows of {paper.PROXY['paper']}",
            "fine-tuning epochs": brief.epochs,
            "evaluation data": f"last {paper.PART[1]:,} rows of it",
        },
        "Search stage 3, supernet": {
            "state when candidates inherit": "activated",
            "pre-training epochs": pre.epochs,
            "fine-tuning epochs": together.epochs,
        },
        "Search stage 3, candidate": {
            "sampling": f"uniform in training, {search.METHOD['paper']} in ranking"
        },
        "Search stage 3": {
            "pre-training data": paper.TEXT,
            "fine-tuning data": f"all but the last tenth of {len(paper.TENTH)} tasks",
            "evaluation data": f"last {search.HELD_OUT['paper']:,} rows of {paper.PROXY['paper']}",
        },
        "All search stages": {
            "batch size": brief.batch,
            "pre-training learning rate": pre.lr,
            "fine-tuning learning rate": brief.lr,
        },
        "Retraining": {
            "pre-training epochs": pre.epochs,
            "fine-tuning epochs (all tasks except CoLA)": fine.epochs,
            "fine-tuning epochs (CoLA)": cola.epochs,
            "pre-training batch size": pre.batch,
            "fine-tuning batch size": fine.batch,
            "pre-training learning rate": pre.lr,
            "fine-tuning learning rate (GLUE)": fine.lr,
            "fine-tuning learning rate (SQuAD)": squad.lr,
        },
        "All experiments": {
            "gamma (pre-training)": paper.WARM["paper"].prediction,
            "gamma (fine-tuning)": paper.TAUGHT["paper"].prediction,
            "temperature t": Targets("soft").temperature,
            "maximum sequence length": fine.max_length,
            "optimizer": "AdamW",
            "Adam beta1": LOOP["Adam beta1"],
            "Adam beta2": LOOP["Adam beta2"],
            "L2 weight decay": fine.weight_decay,
            "warm-up proportion": fine.warmup,
            "learning rate decay": LOOP["Learning Rate Decay"].lower(),
            "teacher": CHECKPOINTS["paper"]["bert"],
        },
        "Transfer to TinyBERT_6 (Table 7)": {
            "pre-training data": paper.ENCYCLOPEDIA,
            "pre-training epochs (from scratch, both models)": paper.FROM_SCRATCH,
            "intermediate size the expansion ratio applies to": other.width,
        },
        "TinyBERT_4 re-run (Table 2)": {
            "data augmentation": "none",
            "initial weights": paper.GENERAL["TinyBERT_4"],
        },
        "Latency measurement (Table 2)": {
            "runs averaged": turns[paper.CLAIMED],
            "batch size": paper.CLAIMED,
        },
        "FFN nonlinearity plot (Figure 5)": {
            "input embedding dimensions": surface.CHANNELS,
            "axes X and Y, lowest value": recipe.low,
            "axes X and Y, highest value": recipe.high,
        },
        **{
            name: {
                "number of Transformer layers M": len(net.layers),
                "hidden size d": net.hidden,
                "intermediate hidden size d_i": net.inner(net.layers[0]),
            }
            for name in SHAPES
            for net in [paper.network(name)]
        },
    }


def compared():
    """hyperparameters.csv beside `settings`, as text, one row for each of its rows; a dash where there is nothing."""
    table, ours = (
        published.table("efficientbert", "hyperparameters").set_index(["Phase", "Hyperparameter"]),
        settings(),
    )
    return pd.DataFrame(
        {
            "section": table["Section"],
            "published": table["Value"].map(text),
            "in Specs": [text(ours.get(phase, {}).get(name, "–")) for phase, name in table.index],
        },
        table.index,
    )


def small():
    """Settings of training at each scale as text: one row for each kind of training and setting, one column for each scale."""
    kinds = {
        "text": paper.PRETRAIN,
        "task, to the end": paper.FINETUNE,
        "task, a candidate": search.BRIEFLY,
        "several tasks": paper.TOGETHER,
        "teacher": {name: paper.TEACHER.get(name, own) for name, own in TEACHER.items()},
    }
    names = (
        "epochs",
        "batch",
        "lr",
        "warmup",
        "weight_decay",
        "clip",
        "dropout",
        "max_length",
        "pad_to",
        "select",
        "eval_every",
    )
    return pd.DataFrame(
        {
            scale: {
                (kind, name): text(getattr(by[scale], name))
                for kind, by in kinds.items()
                for name in names
            }
            for scale in paper.PRETRAIN
        }
    ).rename_axis(["training on", "setting"])
