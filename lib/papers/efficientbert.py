"""EfficientBERT (Dong et al., Findings of EMNLP 2021): its networks, its settings by profile, its Specs. Free of torch."""

from dataclasses import replace
from fractions import Fraction

from lib import data, published
from lib.data import squad, texts
from lib.options import Shared, Span, Train, Warmup
from lib.papers import grids
from lib.papers.profiles import backbone, profile, shape
from lib.search.net import QS, STACKS, Layer, Net, bert, parameters
from lib.spec import Spec, known

# ---- PUBLISHED NETS: keys are the rows of data/published/efficientbert/parameter_counts.csv

HEADS = 12
PLUS_PLUS = "EfficientBERT++ (D = 360)", "EfficientBERT++ (D = 540)"   # as configured, as counted: the code has both
TEACHER_ROW, COLD, PLUS = "BERT_BASE (Teacher)", "EfficientBERT w/o Warm-up KD", "EfficientBERT+"   # rows of Table 2
NAMED = {"EfficientBERT++": PLUS_PLUS[0]}                              # rows of tables whose network has another name


def _architectures():
    """{variant: Net} of architectures.csv; formulas as in public code, the paper prints them as a picture alone."""
    nets = {}
    for name, rows in published.table("efficientbert", "architectures").groupby("variant", sort=False):
        row = rows.iloc[0]
        layers = tuple(Layer(r["formula"], r["stack"], Fraction(r["ratio"]).denominator) for _, r in rows.iterrows())
        nets[name] = Net(int(row["hidden size d"]), int(row["reference FFN width D"]), HEADS, row["embedding"],
                         row["mismatch"], layers)
    configured = nets.pop("EfficientBERT++")
    return nets | {COLD: nets["EfficientBERT"]} | dict(
        zip(PLUS_PLUS, (configured, replace(configured, width=540)), strict=True))


NETS = _architectures() | {
    "BERT_BASE": bert(12, 768, 3072), "BERT_TINY": bert(4, 312, 1200), "BERT_SMALL": bert(4, 512, 2048, heads=8),
    "TinyBERT_4": bert(4, 312, 1200), "TinyBERT_6": bert(6, 768, 3072),
    "BERT-PKD_4": bert(4, 768, 3072), "BERT-PKD_6": bert(6, 768, 3072),
    "DistilBERT_4": bert(4, 768, 3072), "DistilBERT_6": bert(6, 768, 3072),
    "MiniLM_4": bert(4, 384, 1536), "MiniLM_6": bert(6, 384, 1536),
}

# ---- SETTINGS: `paper` as printed (section 4.3) and, where the paper is silent, as coded; `toy` and `mini` have values of
# their own, chosen once before their first recorded run

TASKS = {"toy": ("CoLA", "RTE"), "mini": ("SST-2",),
         "paper": ("MNLI", "QQP", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE")}
SQUAD = {"toy": ("SQuAD1", "SQuAD2"), "mini": ("SQuAD1",), "paper": ("SQuAD1", "SQuAD2")}
SEEDS = {"toy": (0,), "mini": (0, 1, 2), "paper": (0, 1, 2)}
PROXY = {"toy": "CoLA", "mini": "SST-2", "paper": "MNLI"}   # what a search scores its candidates on
MULTITASK = {"toy": ("CoLA", "RTE"), "mini": ("SST-2", "CoLA", "MRPC"), "paper": TASKS["paper"]}   # fine-tuned on together

# Hidden sizes that stand for the paper's: its own 540, the 360 of TINY and ++, the 768 of TinyBERT's base; all have 12 heads.
SIZES = {"toy": {540: 96, 360: 60, 768: 192}, "mini": {540: 288, 360: 192, 768: 384}, "paper": {540: 540, 360: 360, 768: 768}}
LAYERS = {"toy": 2, "mini": 6, "paper": 6}                  # for the paper's six; toy has the formulas of layers 1 and 4
WINDOW = {"toy": (0.15, 0.4), "mini": (0.174, 0.25)}        # of the way from the smallest candidate to the largest, for
LIMITS = {"paper": (15_000_000, 16_000_000)}                # the paper's 15 to 16 of 12.7 to 25.9 million

_TOY = dict(batch=32, max_length=64, clip=1.0, warmup=0.1, weight_decay=0.01, spare_norms=True, dropout=0.1,
            byte_dropout=True)
_MINI = dict(batch=32, max_length=128, clip=1.0, warmup=0.1, weight_decay=0.01, spare_norms=True, dropout=0.1)
_PAPER = dict(max_length=128, pad_to=128, clip=1.0, warmup=0.1, weight_decay=0.01, spare_norms=True, dropout=0.1)
PRETRAIN = {"toy": Train(epochs=2, lr=2e-3, **_TOY), "mini": Train(epochs=2, lr=1e-3, **_MINI),
            "paper": Train(epochs=10, batch=256, lr=1e-4, **_PAPER)}
FINETUNE = {"toy": Train(epochs=3, lr=1e-3, **_TOY), "mini": Train(epochs=3, lr=3e-4, **_MINI),
            "paper": Train(epochs=10, batch=32, lr=5e-5, select="best", eval_every=50, **_PAPER)}
TOGETHER = FINETUNE | {"paper": Train(epochs=10, batch=256, lr=4e-4, **_PAPER)}          # several tasks, stage 3
CANDIDATE = FINETUNE | {"paper": Train(epochs=3, batch=256, lr=4e-4, **_PAPER)}          # stages 1 and 2
TEACHER = {"paper": Train(epochs=3, batch=32, lr=3e-5, max_length=128, pad_to=128, clip=1.0, warmup=0.1, weight_decay=0.01,
                          spare_norms=True, dropout=0.1, select="best")}   # toy and mini: those of all papers (grids)
SPAN = {"toy": Span(stride=64, max_query=32, max_answer=12), "mini": Span(stride=64, max_query=64, max_answer=30),
        "paper": Span(stride=32, max_query=64, max_answer=30)}
WARM = {"toy": Warmup("scores", "shared", mask=True), "mini": Warmup("scores", "shared", mask=True),
        "paper": Warmup("scores", "shared", zero=True, gold=True, hide_first=True)}
# Documents for candidates, 2 % of the paper's Wikipedia; none at the small scales, where they go straight to the task.
BRIEF = {"paper": 120_000}
# The tenth of each training set that stage 3 leaves out, and the proxy's parts of stages 1 and 2: (rows, held out).
TENTH = {"MNLI": 39270, "QQP": 36384, "QNLI": 10474, "SST-2": 6734, "CoLA": 855, "STS-B": 574, "MRPC": 366, "RTE": 249}
PART = (39270, 3927)

DEVIATIONS = {
    "toy": ("generated text and tasks, a teacher of 2 layers of 192 made here, networks of 2 layers of 96 (60 for TINY and ++) "
            "with the formulas of layers 1 and 4",
            "padding is masked in losses, batches are padded to their longest row; the last model counts",
            "pre-training for 2 epochs of 8,000 generated passages, one for all seeds"),
    "mini": ("teacher all-MiniLM-L6-v2 (6 layers of 384), networks of 288 (192 for TINY and ++) in place of 540 and 360",
             "pre-training for 2 epochs of 8,000 pairs out of as many documents of Wikipedia and books, one for all seeds",
             "SST-2 with 8,000 of 67,349 training rows; SQuAD 1.1 with 7,768 of 87,599 questions, 300 of them held out, in "
             "windows that begin 64 tokens apart, scored on the whole development set",
             "padding is masked in losses, batches are padded to their longest row; the last model counts"),
    "paper": ("optimiser AdamW with clipping at 1.0 and no decay on biases and LayerNorms, as coded; the paper says Adam with "
              "L2 decay",
              "metrics over the whole development set; the code averages them over batches"),
}


def scaled(name, profile_name):
    """A published network at the widths and depth of a profile; at `paper` itself."""
    net, sizes, layers = NETS[name], SIZES[profile_name], LAYERS[profile_name]
    depth = layers * (len(net.layers) // 6 or 1)
    hidden = sizes[net.hidden]
    return replace(net, hidden=hidden, width=hidden * net.width // net.hidden,
                   layers=tuple(net.layers[i * len(net.layers) // depth] for i in range(depth)))


def tables(profile_name):
    """What the size of a network depends on beside its Net (lib.search.net.parameters), of a profile's backbone."""
    sizes = shape(profile_name)
    return {"teacher": sizes.hidden, "vocab": sizes.vocab, "positions": sizes.positions, "types": sizes.types}


def window(profile_name):
    """Least and most parameters of a candidate, with projection: as printed, or as far between the smallest and the largest
    network as the paper's are."""
    if profile_name in LIMITS:
        return LIMITS[profile_name]
    whole = scaled("Supernet", profile_name)
    ends = [parameters(replace(whole, layers=tuple(replace(l, stack=k, q=q) for l in whole.layers)), "with projection",
                       **tables(profile_name)) for k, q in ((STACKS[0], QS[-1]), (STACKS[-1], QS[0]))]
    return tuple(round(ends[0] + share * (ends[1] - ends[0])) for share in WINDOW[profile_name])


# ---- TEXT

def corpus(profile_name, count=None, name="wikipedia+books"):
    """Text that networks are pre-trained on; count: fewer documents."""
    if profile_name == "toy":
        return {"sentences": count or 8000, "seed": 1}
    return texts.describe(name, count or (8000 if profile_name == "mini" else None))


def pretrained(profile_name, net, start=None, text=None, train=None, shared=None):
    """Spec of a network after distillation on text from the whole backbone; start: what it inherits from; shared: of a
    supernet, one part in each step."""
    inputs = {"teacher": backbone(profile_name)} | ({"start": start} if start else {})
    return Spec("predistil", {"corpus": text or corpus(profile_name), "net": net.to_json(), "warmup": WARM[profile_name],
                              "train": train or PRETRAIN[profile_name], "numerics": profile(profile_name).numerics,
                              "shared": shared}, inputs, seed=0)


def supernet(profile_name):
    """Spec of the largest network, pre-trained whole: what all others inherit from."""
    return pretrained(profile_name, scaled("Supernet", profile_name))


def prepared(profile_name, name):
    """Spec of a published network, pre-trained for retraining: after it has inherited from the supernet, or from scratch
    where it is to do without or has another embedding (TinyBERT_6's, at `paper` with three epochs of Wikipedia alone)."""
    net = scaled(name, profile_name)
    if net.embedding == "plain":
        paper = profile_name == "paper"
        return pretrained(profile_name, net, text=corpus(profile_name, name="wikipedia" if paper else "wikipedia+books"),
                          train=replace(PRETRAIN[profile_name], epochs=3) if paper else None)
    return pretrained(profile_name, net, None if name == COLD else supernet(profile_name))


# ---- TASKS

def tasks(profile_name, wanted=()):
    """Tasks of a page; the profile's own where none is wanted. Raises ValueError naming the nearest task."""
    known("profile", profile_name, TASKS)
    for name in wanted:
        data.task(grids.source(profile_name, name), name)
    return tuple(wanted) or TASKS[profile_name]


def teacher(profile_name, task):
    return grids.teacher(profile_name, task, train=finetuning(TEACHER, profile_name, task), span=span(profile_name, task))


def span(profile_name, task):
    return SPAN[profile_name] if task in squad.TASKS else None


def finetuning(settings, profile_name, task):
    """Settings of a task: longer rows for spans at toy, and at `paper` what is printed for CoLA and SQuAD."""
    train = settings.get(profile_name, grids.TEACHER[profile_name])
    if task in squad.TASKS and profile_name == "toy":
        return replace(train, max_length=96)
    if profile_name != "paper" or settings is TEACHER:
        return train
    more = {"CoLA": {"epochs": 50}, "QQP": {"eval_every": 250}}.get(task, {})
    return replace(train, **more | ({"lr": 1e-4, "eval_every": 500} if task in squad.TASKS else {}))


def tuned(profile_name, task, net, start, classifier=None, train=None, rows=None):
    """Spec of a network after distillation on a task from its fine-tuned teacher. start: what it inherits from, or None;
    train, rows: settings and data other than those of retraining."""
    inputs = {"teacher": teacher(profile_name, task)} | ({"start": start} if start else {})
    return Spec("warmup", {"data": rows or grids.dataset(profile_name, task), "net": net.to_json(), "classifier": classifier,
                           "train": train or finetuning(FINETUNE, profile_name, task), "span": span(profile_name, task),
                           "warmup": replace(WARM[profile_name], prediction=1.0),
                           "numerics": profile(profile_name).numerics}, inputs)


def student(profile_name, task, name):
    """Spec of a row of the paper's tables on a task: the teacher itself, or a published network, pre-trained and fine-tuned;
    "+" comes from the supernet of several tasks, with pooler and classifier, and is fine-tuned at once."""
    if name == TEACHER_ROW:
        return teacher(profile_name, task)
    if name != PLUS:
        name = NAMED.get(name, name)
        return tuned(profile_name, task, scaled(name, profile_name), prepared(profile_name, name))
    head = {"WNLI": "QNLI"}.get(task, task)   # as coded: WNLI is not among the tasks learned together
    return tuned(profile_name, task, scaled(name, profile_name), several(profile_name),
                 head if head in MULTITASK[profile_name] else None)


# ---- SEARCH

def shared(profile_name):
    """What stage 3 trains a supernet by: in each step a part of a size in the window, each layer's (k, q) one of all 16 or,
    once more, that of stage 2."""
    every = [(k, q) for k in STACKS for q in QS]
    return Shared(window(profile_name), [[*every, (l.stack, l.q)] for l in scaled("Search Stage 2", profile_name).layers])


def several(profile_name):
    """Spec of stage 3's supernet: the formulas of stage 2, weights of the supernet, pre-trained in parts, then in parts
    fine-tuned on several tasks, of whose training rows a tenth is left out for the search."""
    def rows(task):
        if profile_name != "paper":
            return grids.dataset(profile_name, task)
        return data.describe(grids.source(profile_name, task), task, None, TENTH[task])
    whole, found, parts = scaled("Supernet", profile_name), scaled("Search Stage 2", profile_name), shared(profile_name)
    net = replace(whole, layers=tuple(replace(l, formula=f.formula) for l, f in zip(whole.layers, found.layers, strict=True)))
    start = pretrained(profile_name, net, supernet(profile_name), shared=parts)
    names = MULTITASK[profile_name]
    return Spec("multitask", {"data": {task: rows(task) for task in names}, "net": net.to_json(),
                              "warmup": replace(WARM[profile_name], prediction=1.0), "train": TOGETHER[profile_name],
                              "numerics": profile(profile_name).numerics, "shared": parts},
                {f"teacher:{task}": teacher(profile_name, task) for task in names} | {"start": start}, seed=0)


def candidate(profile_name, net, warm=True):
    """Spec of a network trained as stages 1 and 2 train a candidate, with weights inherited from the supernet or without:
    at `paper` for an epoch on a fiftieth of Wikipedia, then on a tenth of MNLI; at the small scales on the task alone."""
    task, start = PROXY[profile_name], supernet(profile_name) if warm else None
    if profile_name in BRIEF:
        start = pretrained(profile_name, net, start, corpus(profile_name, BRIEF[profile_name], "wikipedia"),
                           replace(PRETRAIN[profile_name], epochs=1))
    rows = data.describe(grids.source(profile_name, task), task, *PART) if profile_name == "paper" else None
    return tuned(profile_name, task, net, start, train=CANDIDATE[profile_name], rows=rows)
