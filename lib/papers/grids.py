"""What the grids of all papers share: rows and settings of a profile, tasks and seeds, fine-tuned
teachers. Free of torch."""

from dataclasses import replace
from math import ceil
from pathlib import Path

from lib import data
from lib.data.read import GLUE, SENTEVAL, SQUAD
from lib.measure.compare import Column
from lib.papers import profiles
from lib.papers.profiles import backbone, profile
from lib.runs import files
from lib.runs.spec import Spec, known
from lib.train.options import Augment, Span, Targets, Train

TOLD = files.toml(Path(__file__).with_suffix(".toml"))  # says what each of its tables is
NAMES = ("ROWS", "HELD_OUT", "UNSEEN", "TRIES", "STEPS")
ROWS, HELD_OUT, UNSEEN, TRIES, STEPS = map(TOLD.get, NAMES)


def training(**fields):
    """{profile: Train} with what the trainings of each scale have in common, and these fields.

    A field that differs between the scales is a tuple: its values at toy, mini and paper.

    >>> training(epochs=(2, 3, 3), lr=(1e-3, 2e-4, 2e-5))["paper"].epochs
    3
    """
    return {
        name: Train(**own | {f: v[n] if isinstance(v, tuple) else v for f, v in fields.items()})
        for n, (name, own) in enumerate(TOLD["TRAINING"].items())
    }


TEACHER = training(
    epochs=(6, 3, 3), lr=(1e-3, 1e-4, 2e-5), warmup=(0.1, 0.1, 0.0), select=("last", "last", "best")
)
LABELS = Targets("hard")
SPAN = {name: Span(**told) for name, told in TOLD["SPAN"].items()}
LOOP = {"Adam beta1": 0.9, "Adam beta2": 0.999, "Learning Rate Decay": "Linear"}  # of every run


def tasks(profile_name, wanted=(), *, own):
    """The tasks of a page: those that are wanted, or a profile's own of {profile: tasks}.

    A page takes tasks of the kinds of its own: of GLUE, of SQuAD, of SentEval; AX has no training
    rows. A reader's data are one task, and stand for all. Raises ValueError, naming the nearest,
    for a profile that `own` lacks and for another task.
    """
    known("profile", profile_name, own)
    if mine := profiles.of(profile_name, "task"):
        for name in wanted:
            known("task of your own data", name, (mine,))
        return (mine,)
    listed = {name for names in own.values() for name in names}
    kinds = [kind for kind in (GLUE, SQUAD, SENTEVAL) if listed & kind.keys()]
    trained = [name for kind in kinds for name in kind if name != "AX"]
    for name in wanted:
        known("task of this page", name, trained)
    return tuple(wanted) or tuple(own[profile_name])


def seeds(profile_name, wanted=(), *, own):
    """The seeds of a page: those that are wanted, or a profile's own of {profile: seeds}.

    Raises ValueError, naming the nearest, for a profile that `own` lacks.
    """
    known("profile", profile_name, own)
    return tuple(wanted) or tuple(own[profile_name])


def picked(what, options, wanted=()):
    """{label: value} of the wanted labels, or of all. Raises ValueError naming the nearest label;
    what: that it names."""
    for name in wanted:
        known(what, name, options)
    return {name: options[name] for name in options if name in (wanted or options)}


def source(profile_name, task):
    """Where a task's rows come from: generated sentences at toy, else GLUE, SQuAD or, for probing,
    SentEval. At mini a treebank stands in for SentEval."""
    own = profile(profile_name).source
    if own == "toy" or task in GLUE:
        return own
    return "squad" if task in SQUAD else "treebank" if profile_name == "mini" else "senteval"


def dataset(profile_name, task):
    """Descriptor of a task's rows at a profile."""
    return described(profile_name, task, ROWS[profile_name].get(task), HELD_OUT[profile_name])


def described(profile_name, task, rows, held_out=0, judged=True, **more):
    """Descriptor of so many training rows of a task, and of its unseen rows at a profile.

    The unseen rows are the same ones, however many the others are; there are none where nothing is
    judged on them. more: other arguments of `lib.data.describe`. A reader's rows are as many as
    there are, and none of them is unseen.
    """
    if name := profiles.of(profile_name, "data"):
        own = profiles.rows(name, profile_name, rows, held_out)
        return data.describe("own", name, *own, **more)
    more |= UNSEEN[profile_name].get(task, {}) if judged else {}
    return data.describe(source(profile_name, task), task, rows, held_out, **more)


def common(profile_name, task, rows=None, /, **args):
    """Arguments of a step on a task: its rows, or the profile's own, the numerics, and these."""
    own = {"data": rows or dataset(profile_name, task), "numerics": profile(profile_name).numerics}
    own |= {"span": asked(profile_name)} if asked(profile_name) else {}
    own |= {"train": lengthened(profile_name, args.pop("train"))} if "train" in args else {}
    return own | args


def asked(profile_name):
    """How the passages of a reader's questions are cut; None of other tasks."""
    name = profiles.of(profile_name, "data")
    return SPAN[profile_name] if name and data.task("own", name).span else None


def lengthened(profile_name, train):
    """The settings of a training. Of a reader's few rows it has so many epochs that it has STEPS
    steps at least."""
    name = profiles.of(profile_name, "data")
    if not name or isinstance(train, dict):  # of a finished Spec
        return train
    rows = profiles.rows(name, profile_name, None, HELD_OUT[profile_name])[0]
    return replace(train, epochs=max(train.epochs, ceil(STEPS * train.batch / rows)))


def clock(runs, length, batch):
    """Arguments of step latency beside its models: turns, tokens and rows of a pass, one thread."""
    numerics = profile("toy").numerics
    return {"batch": batch, "length": length, "runs": runs, "numerics": numerics}


def span(profile_name, task, spans=SPAN):
    """How the passages of a task of spans are cut; None of other tasks."""
    return spans[profile_name] if task in SQUAD else asked(profile_name)


def teacher(profile_name, task, family="bert", train=None, span=None):
    """Spec of the fine-tuned whole model: the teacher and the start of many students, and the plain
    row of most tables. train: a paper's own settings; span: how a task such as SQuAD is cut."""
    told = {"train": train or TEACHER[profile_name], "targets": LABELS}
    told |= {"span": span} if span else {}
    start = {"start": backbone(profile_name, family)}
    return Spec("finetune", common(profile_name, task, **told), start)


def augmentation(profile_name, task, rows=None):
    """Spec of training rows and of others beside them in which a BERT has replaced words.

    TinyBERT's code does it so. The small scales make one new sentence of each. They are data, made
    once for all seeds. rows: descriptor of rows other than the profile's own.
    """
    tries = TRIES.get(task, 30) if profile_name == "paper" else 1
    options = Augment(tries=tries, p=0.4, candidates=15, neighbours="embeddings")
    args = common(profile_name, task, rows, augment=options)
    return Spec("augment", args, {"language_model": backbone(profile_name)}, seed=0)


def metrics(profile_name, printed=()):
    """{task: its columns (lib.measure.compare.Column)} for a table of scores.

    They are those that the paper prints, and of other tasks the first metric. At mini each task
    counts once, by its first column.
    """
    if name := profiles.of(profile_name, "data"):
        title = profiles.of(profile_name, "task")
        return {title: (Column(title, title, data.task("own", name).metrics[0]),)}
    own = profile(profile_name).source
    sources = ["toy"] if own == "toy" else ["glue", "squad", "treebank"]
    tasks = {name: task for each in sources for name, task in data.tasks(each).items()}
    found = {name: (Column(name, name, task.metrics[0]),) for name, task in tasks.items()}
    for name in {column.task for column in printed}:
        found[name] = tuple(column for column in printed if column.task == name)
    return {name: each[:1] for name, each in found.items()} if profile_name == "mini" else found
