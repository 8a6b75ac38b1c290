"""EfficientBERT (Dong et al., Findings of EMNLP 2021): networks, settings, Specs and tables.

The settings of `paper` are the printed ones (section 4.3). Where the paper is silent they are those
of the public code. `toy` and `mini` have values of their own; each was chosen once, before the
first recorded run. Searches and claims have modules of their own. Free of torch.
"""

import re
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from lib.data import read, texts
from lib.measure import compare
from lib.measure.compare import Column
from lib.papers import grids, mini, published
from lib.papers.profiles import backbone, profile, shape, started
from lib.runs import files
from lib.runs.spec import Spec, known
from lib.search.net import BERT, QS, STACKS, Layer, Net, bert, parameters
from lib.train.options import Shared, Warmup

TOLD = files.toml(Path(__file__).with_suffix(".toml"))  # says what each of its tables is

# ---- PUBLISHED NETWORKS

TEACHER_ROW, PLUS = "BERT_BASE (Teacher)", "EfficientBERT+"  # rows of Table 2
COLD = "EfficientBERT w/o Warm-up KD"
# "EfficientBERT++" as the public code configures it, and as the public code counts it.
PLUS_PLUS = ("EfficientBERT++ (D = 360)", "EfficientBERT++ (D = 540)")
# Stands for MobileBERT_TINY: 24 thin layers of two networks each and as many parameters, without
# bottlenecks, with the teacher's number of heads.
THIN = "MobileBERT_TINY shape"


def _networks():
    """{name: Net} of architectures.csv, and of the plain BERTs of parameter_counts.csv.

    Formulas are those of the public code, because the paper prints them only as a picture.
    """
    nets = {}
    searched = published.lines("efficientbert", "architectures")
    for name, rows in groupby(searched, itemgetter("variant")):
        row, *_ = rows = list(rows)
        layers = tuple(
            Layer(own["formula"], int(own["stack"]), Fraction(own["ratio"]).denominator)
            for own in rows
        )
        widths = int(row["hidden size d"]), int(row["reference FFN width D"])
        nets[name] = Net(*widths, 12, row["embedding"], row["mismatch"], layers)
    nets[COLD] = nets["EfficientBERT"]
    configured = nets["EfficientBERT++"]
    nets |= zip(PLUS_PLUS, (configured, replace(configured, width=540)), strict=True)
    nets[THIN] = Net(144, 648, 12, "trigram", "truncate", (Layer(BERT, 2),) * 24)
    for row in published.lines("efficientbert", "parameter_counts"):
        sizes = ("layers", "hidden size d", "reference FFN width D", "heads")
        nets.setdefault(row["row"], bert(*(int(row[name]) for name in sizes)))
    return nets


NETS, HEADS = _networks(), 12
# Baselines of Table 2 that the paper fine-tuned from published weights (section 4.4).
GENERAL = {"TinyBERT_4": "2nd_General_TinyBERT_4L_312D"}

# ---- SETTINGS

GLUE = ("MNLI", "QQP", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE")
TASKS = {"toy": ("CoLA",), "mini": mini.ONE, "paper": GLUE}
SQUAD = {"toy": ("SQuAD1", "SQuAD2"), "mini": ("SQuAD1",), "paper": ("SQuAD1", "SQuAD2")}
SEEDS = {"toy": (0,), "mini": mini.THREE, "paper": (0, 1, 2)}
# Tasks and seeds of Tables 2 and 5; Figure 4 has these seeds too.
PAIRED, HEADLINES = TASKS | {"mini": mini.BOTH}, SEEDS | {"mini": mini.FIVE}
PROXY = {"toy": "CoLA", "mini": "SST-2", "paper": "MNLI"}  # on which a search scores candidates
MULTITASK = {"toy": ("CoLA", "RTE"), "mini": mini.BOTH, "paper": GLUE}  # learned together

# Hidden sizes for the paper's 540, for the 360 of TINY and ++, and for the 768 of TinyBERT_6.
SIZES = {"toy": {540: 96, 360: 60, 768: 192}, "mini": {540: 288, 360: 192, 768: 384}}
LAYERS = {"toy": 2, "mini": 6}  # for the paper's six; toy takes the formulas of layers 1 and 4
# Least and most parameters of a candidate. At the small scales they are shares of the way from the
# smallest candidate to the largest; the paper's 15 to 16 lie so between 12.7 and 25.9 million.
LIMITS = {"paper": (15_000_000, 16_000_000)}
WINDOW = {"toy": (0.15, 0.4), "mini": (0.174, 0.25)}

COLUMNS = tuple(Column(*told) for told in TOLD["COLUMNS"])
DEV_COLUMNS = tuple(column for column in COLUMNS if column.split == "dev")  # Table 3
SELECT_BY, TENTH, SPANS = map(TOLD.get, ("SELECT_BY", "TENTH", "SPANS"))

_ALL = dict(warmup=0.1, weight_decay=0.01, spare_norms=True)
PRETRAIN = grids.training(
    epochs=(2, 2, 10), batch=(32, 32, 256), lr=(2e-3, 1e-3, 1e-4), max_length=(64, 64, 128), **_ALL
)
FINETUNE = grids.training(epochs=(3, 3, 10), lr=(1e-3, 3e-4, 5e-5), **_ALL)
FINETUNE["paper"] = replace(FINETUNE["paper"], select="best", eval_every=50)
TOGETHER = grids.training(  # several tasks, stage 3
    epochs=(2, 1, 10), batch=(32, 32, 256), lr=(1e-3, 3e-4, 4e-4), **_ALL
)
CANDIDATE = FINETUNE | {"paper": replace(TOGETHER["paper"], epochs=3)}  # stages 1 and 2
TEACHER = grids.TEACHER | {"paper": replace(FINETUNE["paper"], epochs=3, lr=3e-5, eval_every=0)}
SPAN = {
    scale: replace(grids.SPAN[scale], stride=stride)
    for scale, stride in (("toy", 64), ("mini", 128), ("paper", 32))
}
SPANNED = {"toy": {"max_length": 96}, "mini": {"max_length": 192, "epochs": 2}}  # fields of Train
_SMALL = Warmup("scores", "shared", mask=True)
_PAPER = Warmup("scores", "shared", zero=True, gold=True, hide_first=True)
WARM = {"toy": _SMALL, "mini": _SMALL, "paper": _PAPER}  # on text
TAUGHT = {name: replace(own, prediction=1.0) for name, own in WARM.items()}  # on a task
FROM_SCRATCH = 3  # epochs on Wikipedia of networks with TinyBERT_6's embedding, at paper
# A candidate reads 2 % of the paper's Wikipedia for an epoch. The small scales skip the text.
BRIEF = {"paper": 120_000}  # documents
READ = {"paper": replace(PRETRAIN["paper"], epochs=1)}
# Rows of MNLI that stages 1 and 2 train on and score by: the first tenth and the last hundredth.
PART = (39270, 3927)
DEVIATIONS = published.deviations("efficientbert")


def proxy(profile_name):
    """The task on which a search scores candidates."""
    return grids.tasks(profile_name, own={profile_name: (PROXY[profile_name],)})[0]


together = partial(grids.tasks, own=MULTITASK)


def network(name):
    """The published network of a table's row; a formula names the base network that has it.

    So a formula of a reader's own stands wherever a row may. Raises ValueError naming the nearest
    row, and FormulaError that names the fault.
    """
    if "W2" in name:
        base = NETS["Base Model"]
        return replace(base, layers=tuple(replace(l, formula=name) for l in base.layers))
    known("published network", name, NETS)
    return NETS[name]


def scaled(name, profile_name):
    """A published network at the widths and depth of a profile; at `paper` the network itself.

    Its depth is the largest one, up to the scaled depth, whose layers match those of the teacher.
    """
    net, sizes = network(name), SIZES.get(profile_name)
    if sizes is None:
        return net
    teacher = shape(profile_name).layers
    most = max(1, LAYERS[profile_name] * len(net.layers) // 6)
    depth = next(n for n in range(most, 0, -1) if not (n % teacher and teacher % n))
    heads = net.heads * shape(profile_name).heads // HEADS
    hidden = sizes.get(net.hidden) or net.hidden * sizes[540] / 540
    hidden = heads * round(hidden / heads)
    return replace(
        net,
        heads=heads,
        hidden=hidden,
        width=hidden * net.width // net.hidden,
        layers=tuple(net.layers[i * len(net.layers) // depth] for i in range(depth)),
    )


def tables(profile_name):
    """The widths of a profile's backbone that `lib.search.net.parameters` needs beside a Net."""
    of = shape(profile_name)
    return dict(teacher=of.hidden, vocab=of.vocab, positions=of.positions, types=of.types)


def window(profile_name):
    """Least and most parameters of a candidate, counted with the projection."""
    if profile_name in LIMITS:
        return LIMITS[profile_name]
    whole = scaled("Supernet", profile_name)
    low, high = (
        parameters(
            replace(whole, layers=tuple(replace(l, stack=k, q=q) for l in whole.layers)),
            "with projection",
            **tables(profile_name),
        )
        for k, q in ((STACKS[0], QS[-1]), (STACKS[-1], QS[0]))
    )
    return tuple(round(low + share * (high - low)) for share in WINDOW[profile_name])


# ---- TEXT

TEXT, ENCYCLOPEDIA = "wikipedia+books", "wikipedia"
WIKI = ", Wiki"  # how Table 5 marks a network that has read ENCYCLOPEDIA alone
# Texts of Table 5; the supernet of stages 1 and 2 has read the last one.
TEXTS = {"toy": (TEXT,), "mini": (TEXT,), "paper": (TEXT, ENCYCLOPEDIA)}


def corpus(profile_name, count=None, name=TEXT):
    """Descriptor of the text for pre-training; count: of so many documents, else the profile's."""
    if profile_name == "toy":
        return {"sentences": count or 2000, "seed": 1}
    return texts.describe(name, count or (4000 if profile_name == "mini" else None))


def brief_text(profile_name):
    """Descriptor of the text that a candidate reads before its task, at profiles of BRIEF."""
    return corpus(profile_name, BRIEF[profile_name], ENCYCLOPEDIA)


def pretrained(profile_name, net, start=None, text=None, train=None, shared=None):
    """Spec of a network that is distilled on text from the whole backbone.

    start: the run that it inherits weights from. shared: how a supernet is trained one part in each
    step. text, train: others than the profile's.
    """
    return Spec(
        "predistil",
        {
            "corpus": text or corpus(profile_name),
            "net": net.to_json(),
            "warmup": WARM[profile_name],
            "train": train or PRETRAIN[profile_name],
            "numerics": profile(profile_name).numerics,
            "shared": shared,
        },
        {"teacher": backbone(profile_name), "start": start},
        seed=0,
    )


def supernet(profile_name, text=TEXT):
    """Spec of the largest network, pre-trained whole: all others inherit from it."""
    read = corpus(profile_name, name=text)
    return pretrained(profile_name, scaled("Supernet", profile_name), text=read)


def searching(profile_name):
    """Spec of the supernet that candidates of stages 1 and 2 inherit from."""
    return supernet(profile_name, TEXTS[profile_name][-1])


def prepared(profile_name, name, text=TEXT):
    """Spec of a published network, pre-trained and ready to be trained on a task.

    It inherits from the supernet of its text. It begins from scratch if its row says so, or if it
    has the embedding of TinyBERT_6 (at `paper` with three epochs of Wikipedia). At `paper` a
    baseline of GENERAL is a published checkpoint.
    """
    net, paper = scaled(name, profile_name), profile_name == "paper"
    if paper and name in GENERAL:
        return started(profile_name, GENERAL[name])
    if net.embedding != "plain":
        start = None if name in (COLD, THIN) else supernet(profile_name, text)
        return pretrained(profile_name, net, start, corpus(profile_name, name=text))
    if not paper:
        return pretrained(profile_name, net)
    train = replace(PRETRAIN["paper"], epochs=FROM_SCRATCH)
    return pretrained("paper", net, text=corpus("paper", name=ENCYCLOPEDIA), train=train)


# ---- TASKS


def teacher(profile_name, task):
    """Spec of the fine-tuned backbone that teaches a task."""
    train = finetuning(TEACHER, profile_name, task)
    return grids.teacher(profile_name, task, train=train, span=span(profile_name, task))


def span(profile_name, task):
    return grids.span(profile_name, task, SPAN)


def finetuning(settings, profile_name, task):
    """Train of a task, out of {profile: Train}.

    Rows of SQuAD have a length of their own. Some tasks choose the best model by two metrics. At
    `paper` CoLA and SQuAD have the printed epochs and learning rate.
    """
    train, spanned = settings[profile_name], task in read.SQUAD
    if spanned:
        train = replace(train, **SPANNED.get(profile_name, {}))
    if train.select == "best":
        train = replace(train, select_by=SELECT_BY.get(task, ()))
    if profile_name != "paper" or settings is TEACHER:
        return train
    more = {"CoLA": {"epochs": 50}, "QQP": {"eval_every": 250}}.get(task, {})
    return replace(train, **more | ({"lr": 1e-4, "eval_every": 500} if spanned else {}))


def tuned(
    profile_name, task, net, start, classifier=None, train=None, rows=None, gamma=1.0, **changes
):
    """Spec of a network that is distilled on a task from its fine-tuned teacher.

    start: the run that it inherits weights from, or None. classifier: the task whose head a `start`
    of several tasks hands on. train, rows: settings and data other than those of the tables.
    gamma: weight of the prediction loss (equation 4). changes: of `train`, each where it is not 0.
    """
    changes = {name: value for name, value in changes.items() if value}
    train = replace(train or finetuning(FINETUNE, profile_name, task), **changes)
    told = {"net": net.to_json(), "classifier": classifier, "span": span(profile_name, task)}
    told |= {"train": train, "warmup": replace(TAUGHT[profile_name], prediction=gamma)}
    inputs = {"teacher": teacher(profile_name, task), "start": start}
    return Spec("warmup", grids.common(profile_name, task, rows, **told), inputs)


def student(profile_name, task, model, text=TEXT, **tuning):
    """Spec of a row of the paper's tables on a task: the teacher, or a published network, which has
    read a text.

    "+" takes encoder, pooler and classifier from the supernet of several tasks, and is fine-tuned
    at once. The others are pre-trained first. tuning: gamma and changes as in `tuned`.
    """
    if model == TEACHER_ROW:
        return teacher(profile_name, task)
    net = scaled(model, profile_name)
    if model != PLUS:
        return tuned(profile_name, task, net, prepared(profile_name, model, text), **tuning)
    head = "QNLI" if task == "WNLI" else task  # as coded: WNLI is not learned with the others
    own = head if head in together(profile_name) else None
    return tuned(profile_name, task, net, several(profile_name), own, **tuning)


def shared(profile_name):
    """How stage 3 trains its supernet: in each step one part, of a size in the window.

    Each layer draws (k, q) from all 16 pairs and, once more, from the pair that stage 2 found.
    """
    every = [(k, q) for k in STACKS for q in QS]
    found = scaled("Search Stage 2", profile_name).layers
    return Shared(window(profile_name), [[*every, (l.stack, l.q)] for l in found])


def several(profile_name):
    """Spec of stage 3's supernet, with the formulas of stage 2.

    It inherits from the supernet, is pre-trained in parts, then fine-tuned in parts on several
    tasks. At `paper` a tenth of each task's rows is left out for the search.
    """

    def rows(task):
        if profile_name != "paper":
            return grids.dataset(profile_name, task)
        return grids.described(profile_name, task, None, TENTH.get(task, 0), False, in_order=True)

    whole, found = scaled("Supernet", profile_name), scaled("Search Stage 2", profile_name)
    layers = zip(whole.layers, found.layers, strict=True)
    net = replace(whole, layers=tuple(replace(l, formula=f.formula) for l, f in layers))
    names, parts = together(profile_name), shared(profile_name)
    return Spec(
        "multitask",
        {
            "data": {task: rows(task) for task in names},
            "net": net.to_json(),
            "warmup": TAUGHT[profile_name],
            "train": TOGETHER[profile_name],
            "numerics": profile(profile_name).numerics,
            "shared": parts,
        },
        {f"teacher:{task}": teacher(profile_name, task) for task in names}
        | {"start": pretrained(profile_name, net, supernet(profile_name), shared=parts)},
        seed=0,
    )


def candidate(profile_name, net, warm=True, train=None, rows=None, **tuning):
    """Spec of a network as stages 1 and 2 train a candidate, on the proxy task.

    warm: it inherits from the supernet. At `paper` it first reads some text, and its rows are PART.
    train, rows: settings and data other than those. tuning: as in `student`.
    """
    task, start = proxy(profile_name), searching(profile_name) if warm else None
    if profile_name in BRIEF:
        start = pretrained(profile_name, net, start, brief_text(profile_name), READ[profile_name])
    if profile_name == "paper":
        rows = rows or grids.described(profile_name, task, *PART, False, in_order=True)
    train = train or CANDIDATE[profile_name]
    return tuned(profile_name, task, net, start, train=train, rows=rows, **tuning)


# ---- ROWS AND TABLES

# Rows of Table 2, and the baselines of it that are trained here too.
OWN = (TEACHER_ROW, "EfficientBERT_TINY", COLD, "EfficientBERT", PLUS, "EfficientBERT++")
BASELINES = {"paper": ("TinyBERT_4", THIN)}
OTHER_BASE = ("TinyBERT_6", "EfficientBERT (TinyBERT_6)")  # Table 7
TIMED = ("BERT_BASE", "EfficientBERT_TINY", "EfficientBERT", "EfficientBERT++")  # Figure 1
CLAIMED = 128  # batch of claim E5 (Table 2)
TURNS = {"toy": {1: 50}, "mini": {1: 100, CLAIMED: 50}, "paper": {1: 100, CLAIMED: 100}}


tasks = partial(grids.tasks, own=TASKS)  # those of Tables 2 and 5 are PAIRED
seeds = partial(grids.seeds, own=SEEDS)  # and HEADLINES


def printed(table):
    """A published table as `lib.papers.published.rows` gives it, without citations in the names."""
    return published.rows(
        "efficientbert", table, "Model", rename=lambda name: re.sub(r" \([^)]*\d{4}\w?\)", "", name)
    )


def sizes(names):
    """Parts of a table: parameters of networks at the paper's size, counted as its #Params are."""
    told = published.table("efficientbert", "parameter_counts").set_index("row")["printed equals"]
    by, cells = told.dropna().str.split("; ").str[-1], {}
    for name in names:
        key = "BERT_BASE" if name.startswith("BERT_BASE") else name.removesuffix(WIKI)
        if key in NETS or "W2" in key:
            count = parameters(network(key), by.get(key, "with projection"))
            cells[name] = {("counted", "M parameters"): f"{count / 1e6:.1f}"}
    return cells


def table(printed, runs, networks=(), columns=COLUMNS):
    """A table of the paper with our scores and sizes beside it, as a DataFrame.

    printed: as `printed` gives it. runs: lib.page.runs.Runs. networks: rows that it lacks.
    """
    parts = [printed, sizes([*printed, *networks])]
    for source, frame, at in runs.frames:
        parts.append(compare.by_task(frame, grids.metrics(at, columns), source))
        there, heading = compare.there(frame), (source, "M parameters")
        counts = zip(there["model"], there.get("parameters", ()), strict=False)
        parts.append({model: {heading: f"{count / 1e6:.2f}"} for model, count in counts})
    return compare.table(*parts)


def latency(batch, runs, names=TIMED[1:], length=128):
    """Spec of the passes of Figure 1: networks at full size with random weights, beside BERT-base.

    length: of the sequences, in tokens.
    """
    models = {"BERT_BASE": {"shape": "bert-base"}}
    models |= {name: {"net": network(name).to_json()} for name in names}
    told = {"models": models, "reference": "BERT_BASE"} | grids.clock(runs, length, batch)
    return Spec("latency", told, seed=0)


def mapped(profile_name, task):
    """Spec of what Figures 7 and 8 show: fine-tuned networks beside their teacher.

    Arrays of the first four development rows are kept; similarity is measured on more of them.
    """
    names = ("EfficientBERT", *OTHER_BASE)
    inputs = {f"model:{name}": student(profile_name, task, name) for name in names}
    inputs["reference"] = teacher(profile_name, task)
    told = {"rows": [0, 1, 2, 3], "examples": 64 if profile_name == "toy" else 200}
    told["max_length"] = FINETUNE[profile_name].max_length
    return Spec("maps", grids.common(profile_name, task, **told), inputs, seed=0)
