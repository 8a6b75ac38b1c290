"""EfficientBERT (Dong et al., Findings of EMNLP 2021): its networks, its settings by profile, its Specs. Free of torch."""

from dataclasses import replace
from fractions import Fraction

from lib import published
from lib.data import squad, texts
from lib.options import Span, Train, Warmup
from lib.papers import grids
from lib.papers.profiles import backbone, profile
from lib.search.net import Layer, Net, bert
from lib.spec import Spec

# ---- PUBLISHED NETS: keys are the rows of data/published/efficientbert/parameter_counts.csv

HEADS = 12
PLUS_PLUS = "EfficientBERT++ (D = 360)", "EfficientBERT++ (D = 540)"   # as configured, as counted: the code has both


def _architectures():
    """{variant: Net} of architectures.csv; formulas as in public code, the paper prints them as a picture alone."""
    nets = {}
    for name, rows in published.table("efficientbert", "architectures").groupby("variant", sort=False):
        row = rows.iloc[0]
        layers = tuple(Layer(r["formula"], r["stack"], Fraction(r["ratio"]).denominator) for _, r in rows.iterrows())
        nets[name] = Net(int(row["hidden size d"]), int(row["reference FFN width D"]), HEADS, row["embedding"],
                         row["mismatch"], layers)
    configured = nets.pop("EfficientBERT++")
    return nets | {"EfficientBERT w/o Warm-up KD": nets["EfficientBERT"]} | dict(
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
SEEDS = {"toy": (0,), "mini": (0,), "paper": (0, 1, 2)}
PROXY = {"toy": "CoLA", "mini": "SST-2", "paper": "MNLI"}   # what a search scores its candidates on

# Hidden sizes that stand for the paper's: its own 540, the 360 of TINY and ++, the 768 of TinyBERT's base; all have 12 heads.
SIZES = {"toy": {540: 96, 360: 60, 768: 192}, "mini": {540: 288, 360: 192, 768: 384}, "paper": {540: 540, 360: 360, 768: 768}}
LAYERS = {"toy": 2, "mini": 6, "paper": 6}                  # for the paper's six; toy has the formulas of layers 1 and 4

_TOY = dict(batch=32, max_length=64, clip=1.0, warmup=0.1, weight_decay=0.01, spare_norms=True, dropout=0.1,
            byte_dropout=True)
_MINI = dict(batch=32, max_length=128, clip=1.0, warmup=0.1, weight_decay=0.01, spare_norms=True, dropout=0.1)
_PAPER = dict(max_length=128, pad_to=128, clip=1.0, warmup=0.1, weight_decay=0.01, spare_norms=True, dropout=0.1)
PRETRAIN = {"toy": Train(epochs=2, lr=2e-3, **_TOY), "mini": Train(epochs=2, lr=1e-3, **_MINI),
            "paper": Train(epochs=10, batch=256, lr=1e-4, **_PAPER)}
FINETUNE = {"toy": Train(epochs=3, lr=1e-3, **_TOY), "mini": Train(epochs=3, lr=3e-4, **_MINI),
            "paper": Train(epochs=10, batch=32, lr=5e-5, select="best", eval_every=50, **_PAPER)}
TEACHER = {"paper": Train(epochs=3, batch=32, lr=3e-5, max_length=128, pad_to=128, clip=1.0, warmup=0.1, weight_decay=0.01,
                          spare_norms=True, dropout=0.1, select="best")}   # toy and mini: those of all papers (grids)
SPAN = {"toy": Span(stride=64, max_query=32, max_answer=12), "mini": Span(stride=32, max_query=64, max_answer=30),
        "paper": Span(stride=32, max_query=64, max_answer=30)}
WARM = {"toy": Warmup("scores", "shared", mask=True), "mini": Warmup("scores", "shared", mask=True),
        "paper": Warmup("scores", "shared", zero=True, gold=True, hide_first=True)}

DEVIATIONS = {
    "toy": ("generated text and tasks, a teacher of 2 layers of 192 made here, networks of 2 layers of 96 (60 for TINY and ++) "
            "with the formulas of layers 1 and 4",
            "padding is masked in losses, batches are padded to their longest row; the last model counts",
            "pre-training for 2 epochs of 8,000 generated passages, one for all seeds"),
    "mini": ("teacher all-MiniLM-L6-v2 (6 layers of 384), networks of 288 (192 for TINY and ++) in place of 540 and 360",
             "pre-training for 2 epochs of 8,000 pairs out of as many documents of Wikipedia and books, one for all seeds",
             "SST-2 with 8,000 of 67,349 training rows; SQuAD 1.1 with 7,768 of 87,599 questions, scored on the whole "
             "development set",
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


def corpus(profile_name, count=None):
    """Text that networks are pre-trained on; count: fewer documents."""
    if profile_name == "toy":
        return {"sentences": count or 8000, "seed": 1}
    return texts.describe("wikipedia+books", count or (8000 if profile_name == "mini" else None))


def pretrained(profile_name, net, start=None, text=None, train=None):
    """Spec of a network after distillation on text from the whole backbone; start: what it inherits from."""
    inputs = {"teacher": backbone(profile_name)} | ({"start": start} if start else {})
    return Spec("predistil", {"corpus": text or corpus(profile_name), "net": net.to_json(), "warmup": WARM[profile_name],
                              "train": train or PRETRAIN[profile_name], "numerics": profile(profile_name).numerics}, inputs,
                seed=0)


def supernet(profile_name):
    """Spec of the largest network, pre-trained whole: what all others inherit from."""
    return pretrained(profile_name, scaled("Supernet", profile_name))


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


def tuned(profile_name, task, net, start, classifier=None):
    """Spec of a network after distillation on a task from its fine-tuned teacher."""
    return Spec("warmup", {"data": grids.dataset(profile_name, task), "net": net.to_json(), "classifier": classifier,
                           "train": finetuning(FINETUNE, profile_name, task), "span": span(profile_name, task),
                           "warmup": replace(WARM[profile_name], prediction=1.0),
                           "numerics": profile(profile_name).numerics},
                {"teacher": teacher(profile_name, task), "start": start})


def student(profile_name, task, name, warm=True):
    """Spec of a published network: pre-trained, with weights inherited from the supernet or without, then fine-tuned."""
    net = scaled(name, profile_name)
    inherits = warm and net.embedding == "trigram"
    return tuned(profile_name, task, net, pretrained(profile_name, net, supernet(profile_name) if inherits else None))
