"""Settings of EfficientBERT (sections 3.1 to 4.6, captions) as the profile `paper` has them.

The column "Spec" of hyperparameters.csv names the setting of ours that stands beside a printed one:
a key of `settings`, or a text in quotes. It is empty where no part of the code decides the setting.
Free of torch.
"""

import pandas as pd

from lib.papers import efficientbert as paper
from lib.papers import efficientbert_search as search
from lib.papers import published
from lib.papers.grids import LOOP
from lib.papers.profiles import CHECKPOINTS
from lib.papers.settings import beside, text
from lib.search import surface
from lib.search.space import SPACES
from lib.train.options import Targets


def settings():
    """{name: what the Specs of `paper` have}; "task.epochs" is a field of an option."""
    trained = {
        "text": paper.PRETRAIN["paper"],
        "reading": paper.READ["paper"],
        "task": paper.FINETUNE["paper"],
        "CoLA": paper.finetuning(paper.FINETUNE, "paper", "CoLA"),
        "SQuAD": paper.finetuning(paper.FINETUNE, "paper", "SQuAD1"),
        "several tasks": paper.TOGETHER["paper"],
        "candidate": search.BRIEFLY["paper"],
        "on text": paper.WARM["paper"],
        "on task": paper.TAUGHT["paper"],
        "targets": Targets("soft"),
        "surface": surface.Recipe(),
    }
    options = {name: vars(option) for name, option in trained.items()}
    for name, net in paper.NETS.items():
        own = {"ratio": net.layers[0].ratio, "inner": net.inner(net.layers[0])}
        options[name] = vars(net) | own | {"layers": len(net.layers)}
    found = {
        f"{name}.{field}": value
        for name, option in options.items()
        for field, value in option.items()
    }
    named = published.table("efficientbert", "table01_operations")["Operation"]
    space = SPACES["paper"]
    alike = {*named.str.lower().str.replace(" ", "_")} == {*space.operations}
    (rows, scored), proxy = paper.PART, paper.PROXY["paper"]
    return found | {
        "stacks": " | ".join(map(str, space.stacks)),
        "ratios": " | ".join("1" if q == 1 else f"1/{q}" for q in space.ratios),
        "operations": "Table 1" if alike else "others",
        "repeats": found["EfficientBERT++.layers"] // found["EfficientBERT.layers"],
        "documents": f"{paper.BRIEF['paper']:,} documents",
        "first tenth": f"first {rows:,} rows of {proxy}",
        "last hundredth": f"last {scored:,} rows of it",
        "all but the last tenth": f"all but the last tenth of {len(paper.TENTH)} tasks",
        "last tenth": f"last {search.HELD_OUT['paper']:,} rows of {proxy}",
        "from scratch": paper.FROM_SCRATCH,
        "sampling": f"uniform in training, {search.METHOD['paper']} in ranking",
        "corpus": paper.TEXT,
        "encyclopedia": paper.ENCYCLOPEDIA,
        "Adam beta1": LOOP["Adam beta1"],
        "Adam beta2": LOOP["Adam beta2"],
        "learning rate decay": LOOP["Learning Rate Decay"].lower(),
        "teacher": CHECKPOINTS["paper"]["bert"],
        "weights": paper.GENERAL["TinyBERT_4"],
        "turns": paper.TURNS["paper"][paper.CLAIMED],
        "batch": paper.CLAIMED,
        "channels": surface.CHANNELS,
    }


def compared():
    """hyperparameters.csv beside `settings`. What it has in quotes is a text, and no option's."""
    table, ours = published.table("efficientbert", "hyperparameters"), settings()
    table = table.set_index(["Phase", "Hyperparameter", "Section"])
    names = table["Spec"].dropna()
    told = {row: n.strip("'") if n[0] == "'" else ours[n] for row, n in names.items()}
    return beside(table[["Value"]], {("in Specs", "Value"): told})


def small():
    """Settings of training as text, a column for each scale."""
    kinds = {
        "text": paper.PRETRAIN,
        "task, to the end": paper.FINETUNE,
        "task, a candidate": search.BRIEFLY,
        "several tasks": paper.TOGETHER,
        "teacher": paper.TEACHER,
    }
    names = "epochs batch lr warmup weight_decay clip dropout max_length pad_to select eval_every"
    table = {
        scale: {
            (kind, name): text(getattr(by[scale], name))
            for kind, by in kinds.items()
            for name in names.split()
        }
        for scale in paper.PRETRAIN
    }
    return pd.DataFrame(table).rename_axis(["training on", "setting"])
