"""This package trains, compresses and measures BERT models; notebooks use it to
reproduce four papers.

`python -m lib --help` lists the commands. The functions here serve a training loop of
your own, without any stored runs: `rows`, `dataset`, `network`, `fit`, `rank`,
`operate`, `save`. `load` opens a finished run. `trainer` makes what the notebooks train
that explain a method. Each function imports what it needs when it is called."""

from __future__ import annotations

from pathlib import Path as _Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from datasets import Dataset, DatasetDict
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from lib.core.options import Train
    from lib.core.types import Json
    from lib.data import Split, Task
    from lib.export.opened import OpenedRun
    from lib.train.learn import Trainer


def _find_repository_root() -> _Path | None:
    """Return the root of the repository's checkout that contains the working folder, or
    None where none does.

    A Python environment may have been installed from another checkout. Commands,
    notebooks and workers then still use the code of the checkout where they are
    started."""
    try:
        place = _Path.cwd()
    except OSError:  # The working folder was deleted.
        return None
    for folder in (place, *place.parents):
        if (folder / "lib/core/paths.py").is_file():
            return folder
    return None


_tree = _find_repository_root()
if _tree and not _tree.samefile(_Path(__file__).parents[1]):
    # Import the modules of this package from that checkout instead.
    __path__[:] = [str(_tree / "lib")]
    __file__ = str(_tree / "lib" / "__init__.py")
    exec(compile(_Path(__file__).read_text("utf-8"), __file__, "exec"))


def load(
    name: str, profile: str = "toy", keep: bool = False, **columns: Any
) -> OpenedRun:
    """Open a finished run, given by its name, or by a notebook and the labels of a row
    of its grid.

        load("ghostbert_t03", m=3, model="Ghost", task="SST-2", seed=0)

    profile: the scale of the run, such as "toy".
    keep: whether to make the run where it, or its weights, are missing.
    columns: labels of the row. See lib.export.opened.load."""
    from lib.export import opened

    return opened.load(name, profile, keep, **columns)


def rows(
    place: str | Dataset | Mapping[str, Dataset], columns: str = ""
) -> tuple[Task, dict[str, Split]]:
    """Return (Task, {"train": Split, "dev": Split}) of your own rows, for the functions
    of this package.

    place: the path of a file or folder, or a `datasets.Dataset` or `DatasetDict`
    (lib.data.own).
    columns: names of the text columns, then of the label, such as "title, body, stars:
    scores", where ": scores" says that the label is a number to predict, and ":
    classes" that it is a class; "" where names and label are recognised. A path may be
    followed by them, after ": "."""
    from lib.data import own

    if isinstance(place, str):
        line = f"{place}: {columns}" if columns else place
        reading = own.read_dataset_line(line)
    else:
        reading = own.read_dataset(place, columns)
    return reading.task, dict(reading.splits)


def dataset(splits: Mapping[str, Split]) -> DatasetDict:
    """Return the Splits of a task, by name, as a `datasets.DatasetDict` for other
    libraries.

    Its columns are a (text), b (second text, for pairs) and label."""
    import datasets

    columns = {
        name: {"a": split.a} | ({"b": split.b} if split.b else {}) | {"label": split.y}
        for name, split in splits.items()
    }
    return datasets.DatasetDict(
        (k, datasets.Dataset.from_dict(v)) for k, v in columns.items()
    )


def network(
    folder: str | _Path, task: Task, dropout: float = 0.1, seed: int = 0
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Return (model, tokenizer) of a saved encoder, with the classification, regression
    or span head that a Task needs.

    A head that is not in the folder is drawn from the seed.

    dropout: the rate of all dropout layers."""
    from lib.train import heads

    return heads.load_network(folder, task, dropout, seed)


def fit(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    task: Task,
    rows: Mapping[str, Split],
    train: Train,
    seed: int = 0,
    threads: int = 1,
) -> Json:
    """Train a model in place on the labels of your rows, and return its metrics.

    These are the metrics of the development rows, and the training's own such as
    "steps". It computes in float32 on the model's device, and restores torch's thread
    count and random states. Raises FloatingPointError where the loss is not finite.

    rows: {"train": Split, "dev": Split} of the Task.
    train: the settings of the training.
    threads: the number of CPU threads."""
    from lib.train import loop
    from lib.train.learn import Trainer

    with loop.use_float32_on_model_device(model, threads) as numerics:
        trainer = Trainer(tokenizer, task, rows, train, seed, numerics)
        return trainer.fit(model).result | trainer.compute_development_metrics(model)


def trainer(
    count: int = 2000, seed: int = 0, rows: Mapping[str, Split] | None = None
) -> tuple[Trainer, PreTrainedModel]:
    """Return (Trainer, encoder) for the notebooks that explain a method by a small
    training.

    The task is whether a generated sentence is in order, or two of its words are
    swapped. The encoder has random weights: 2 layers, 96 channels, 12 heads, 384
    neurons.

    count: the number of training rows; 2,000 other rows are for development.
    rows: {"train": Split, "dev": Split} of another task of two classes, in words of
    lib.data.grammar."""
    from tempfile import mkdtemp

    import transformers

    from lib import data
    from lib.core import options
    from lib.train import learn
    from lib.train.steps.pretrain import write_tokenizer

    task, tokenizer = data.task("toy", "BigramShift"), write_tokenizer(_Path(mkdtemp()))
    train = options.Train(
        epochs=5,
        batch=32,
        lr=2e-3,
        max_length=64,
        warmup=0.1,
        clip=1.0,
        dropout=0.1,
        byte_dropout=True,
    )
    transformers.set_seed(seed)
    config = transformers.BertConfig(
        num_hidden_layers=2,
        hidden_size=96,
        intermediate_size=384,
        vocab_size=len(tokenizer),
        initializer_range=0.04,
    )
    encoder = transformers.BertForSequenceClassification(config)
    splits = rows or data.load(data.make_data_descriptor("toy", task.name, count))
    return learn.Trainer(tokenizer, task, splits, train, seed), encoder


def rank(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    task: Task,
    split: Split,
    max_length: int = 128,
    batch: int = 32,
    threads: int = 1,
) -> tuple[Tensor, Tensor]:
    """Return the importance of each head [L, A] and each FFN neuron [L, F] for the loss
    on a Split, by which a model can be pruned.

    These are first-order Taylor scores (GhostBERT, section 2.3).

    max_length: tokens to which rows are cut. batch: rows of a batch. threads: the
    number of CPU threads."""
    from lib.core.options import Importance
    from lib.train import heads, loop
    from lib.train.steps import importance

    options = Importance("held_out", batch, max_length)
    encoded, _ = heads.encode_rows(tokenizer, split, task, max_length)
    with loop.use_float32_on_model_device(model, threads) as numerics:
        return importance.compute_taylor_importance(model, encoded, options, numerics)


def operate(model: PreTrainedModel, op: Json, **more: Any) -> Json:
    """Change a model in place by one operation, such as the pruning {"op": "cut",
    "heads": 3}, and return its report.

    more: arguments of the operation, such as importance scores
    (lib.model.surgery.apply_surgery)."""
    from lib.model import surgery

    return surgery.apply_surgery(model, op, **more)


def save(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    folder: str | _Path | None,
) -> None:
    """Write a model to a folder, with the operations that changed its architecture, so
    that `lib.model.backbone.load` restores it."""
    from lib.model import backbone

    backbone.save(model, tokenizer, folder)
