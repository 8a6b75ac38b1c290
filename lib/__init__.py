"""This package has the models, trainers and measurements of the workbook.

`python -m lib --help` lists the commands. The functions here serve a loop of your own,
without Spec or store: `rows`, `dataset`, `network`, `fit`, `rank`, `operate`, `save`.
`trainer` makes what method notebooks train on. Each function imports what it needs when
it is called."""

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
    from lib.export.opened import Opened
    from lib.train.learn import Trainer


def _find_checkout() -> _Path | None:
    """Return the folder of the checkout that this process stands in, or None where it
    is in none.

    An environment may be that of another checkout: commands, notebooks, and workers of
    this one use the code beside them, not that which the environment was made with."""
    try:
        place = _Path.cwd()
    except OSError:  # The working folder was deleted.
        return None
    for folder in (place, *place.parents):
        if (folder / "lib/core/paths.py").is_file():
            return folder
    return None


_tree = _find_checkout()
if _tree and not _tree.samefile(_Path(__file__).parents[1]):
    # The modules of this package are then those of the other tree.
    __path__[:] = [str(_tree / "lib")]
    __file__ = str(_tree / "lib" / "__init__.py")
    exec(compile(_Path(__file__).read_text("utf-8"), __file__, "exec"))


def load(name: str, profile: str = "toy", keep: bool = False, **columns: Any) -> Opened:
    """Open a finished run, by a line of a notebook's grid or by its name; see
    lib.export.opened.load.

        load("ghostbert_t03", m=3, model="Ghost", task="SST-2", seed=0)
    """
    from lib.export import opened

    return opened.load(name, profile, keep, **columns)


def rows(
    place: str | Dataset | Mapping[str, Dataset], columns: str = ""
) -> tuple[Task, dict[str, Split]]:
    """Return (Task, {"train", "dev"}: Split) of a file or folder of your own, or of a
    `datasets.Dataset` or `DatasetDict`; see lib.data.own.

    columns: names of texts, then of the label, such as "title, body, stars: scores";
    "" where their names tell. The line of a file may have them behind its path."""
    from lib.data import own

    if isinstance(place, str):
        line = f"{place}: {columns}" if columns else place
        reading = own.read_user_line(line)
    else:
        reading = own.read_dataset(place, columns)
    return reading.task, dict(reading.splits)


def dataset(splits: Mapping[str, Split]) -> DatasetDict:
    """Return the Splits of `rows` as a `datasets.DatasetDict`.

    Its columns are a, b (of pairs of texts) and label.
    """
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
    """Return (model, tokenizer) of a saved encoder, under the head that a Task needs.

    A head that is not in the folder is drawn from the seed.
    """
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
    """Train a model in place on the labels of `rows`.

    It computes in float32 on the model's device, and leaves torch's threads and random
    states as they were. Returns the metrics of its development rows, with the
    training's own such as "steps". Raises FloatingPointError where the loss is not
    finite."""
    from lib.train import loop
    from lib.train.learn import Trainer

    with loop.use_float32_on_model_device(model, threads) as numerics:
        trainer = Trainer(tokenizer, task, rows, train, seed, numerics)
        return trainer.fit(model).result | trainer.scores(model)


def trainer(
    count: int = 2000, seed: int = 0, rows: Mapping[str, Split] | None = None
) -> tuple[Trainer, PreTrainedModel]:
    """Return (Trainer, encoder) of the method notebooks.

    The task is whether a generated sentence is in order, or two of its words have
    changed places. The encoder is new: 2 layers, 96 channels, 12 heads, 384 neurons.

    count: how many rows to train on; 2,000 others are judged. rows: {"train", "dev"} of
    another task of two classes, in words of lib.data.grammar.
    """
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
    splits = rows or data.load(data.describe_task_rows("toy", task.name, count))
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
    """Return how much the loss on a Split needs each head [L, A] and each neuron [L,
    F].

    These are first-order Taylor scores (GhostBERT, section 2.3).
    """
    from lib.core.options import Importance
    from lib.train import heads, loop
    from lib.train.steps import importance

    options = Importance("held_out", batch, max_length)
    encoded, _ = heads.encode_rows(tokenizer, split, task, max_length)
    with loop.use_float32_on_model_device(model, threads) as numerics:
        return importance.compute_taylor_importance(model, encoded, options, numerics)


def operate(model: PreTrainedModel, op: Json, **more: Any) -> Json:
    """Change a model in place by one operation, such as {"op": "cut", "heads": 3}.

    See lib.model.surgery.operate.
    """
    from lib.model import surgery

    return surgery.operate(model, op, **more)


def save(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    folder: str | _Path | None,
) -> None:
    """Write a model with its surgery, so that `lib.model.backbone.load` gives it
    back."""
    from lib.model import backbone

    backbone.save(model, tokenizer, folder)
