"""This package trains, compresses and measures BERT models; notebooks use it to
reproduce four papers.

`python -m lib --help` lists the commands. The functions here serve a training loop of
your own, without any stored runs: `rows`, `dataset`, `network`, `fit`, `rank`,
`operate`, `save`. `load` opens a finished run. `trainer` makes the small model that
notebooks train to explain a method. Each function imports what it needs when it is
called, so that the package is imported fast."""

from __future__ import annotations

from pathlib import Path as _Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeAlias

    from datasets import Dataset, DatasetDict
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from lib.core.options import Train
    from lib.core.types import ProfileName, SplitName, TokenCount
    from lib.data import Split, Task
    from lib.export.opened import OpenedRun
    from lib.model.options import SurgeryOperation, SurgeryReport
    from lib.stats.metrics import Metrics
    from lib.train.learn import Trainer
    from lib.train.steps.importance import Importances

    ColumnsAndLabelKind = str  # Such as "title, body, stars: scores".
    GeneratedSentences: TypeAlias = None
    RowsPerBatch = int


def _find_repository_root() -> _Path | None:
    """Return the root of the repository's checkout that contains the working folder.

    The package `lib` is then imported from that checkout, even if the Python
    environment was installed from another one. The result is None outside of any
    checkout."""
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
    # The working folder is in another checkout of the project than this file. Import
    # the modules of this package from that checkout.
    __path__[:] = [str(_tree / "lib")]
    __file__ = str(_tree / "lib" / "__init__.py")
    exec(compile(_Path(__file__).read_text("utf-8"), __file__, "exec"))


def load(
    run_or_notebook_name: str,
    profile: ProfileName = "toy",
    keep: bool = False,
    **row_labels: Any,
) -> OpenedRun:
    """Open a finished run (training or measurement) with its model and predictions.

        run = load("ghostbert_t03", m=3, model="Ghost", task="CoLA", seed=0)
        run.model, run.tokenizer, run.predictions, run.rows

    Raises Refused where no run or several fit, and Absent for a run that was not made.

    run_or_notebook_name: the name of a run, such as "finetune-0a1b2c3d4e5f/0", or a
    part of it that has a "-" or is the digest; or a part of the name of a notebook that
    compares the run with others.
    profile: the size of the experiments, such as "toy" or "mini"; only for a notebook.
    keep: whether to execute a run of a notebook that is missing, or a run whose weights
    were not saved, and to save the weights.
    row_labels: labels that single out the run in the notebook, such as task and
    seed."""
    from lib.export import opened

    return opened.open_finished_run(run_or_notebook_name, profile, keep, **row_labels)


def rows(
    data_source: str | _Path | Dataset | Mapping[str, Dataset],
    columns: ColumnsAndLabelKind = "",
) -> tuple[Task, dict[SplitName, Split]]:
    """Read your own rows for the functions of this package, such as `fit` and `rank`.

    Return (Task, {"train": Split, "dev": Split, and "test" if the data have it with
    labels}). The Task has the classes and metrics; a Split has the texts and labels.
    Where the data have no development rows, a fifth of the texts, at most 1,000, is
    held out as such. A score becomes a number from 0 to 5, and so does what a model
    answers: `low + answer * (high - low) / 5` is on the scale of the file, with `low,
    high = task.scale`. Raises Refused, with a fix, where columns or rows are not clear,
    and Absent where files are missing.

    data_source: the path of a file or folder, "hub:NAME" for a data set of the Hugging
    Face hub, or a `datasets.Dataset` or `DatasetDict`.
    columns: the names of the text columns, then that of the label, such as "title,
    body, stars: scores". The word "scores" after the colon says that the label is a
    number to predict, "classes" that it is a class. With "" the columns and the kind of
    label are recognised by names and values."""
    from lib.data import own

    if isinstance(data_source, str | _Path):
        line = f"{data_source}: {columns}" if columns else str(data_source)
        reading = own.read_user_data(line)
    else:
        reading = own.read_dataset(data_source, columns)
    return reading.task, dict(reading.splits)


def dataset(splits: Mapping[SplitName, Split]) -> DatasetDict:
    """Return the Splits of a task, by name, as a DatasetDict for other libraries.

    Its columns are "a" (the text), "b" (the second text, for pairs) and "label" (class
    code from 0, score, or start and end of an answer span).

    splits: {"train", "dev", ...: Split}, as `rows` returns them."""
    import datasets

    tables = datasets.DatasetDict()
    for name, split in splits.items():
        columns = {"a": split.a, "b": split.b, "label": split.y}
        if not split.b:
            del columns["b"]
        tables[name] = datasets.Dataset.from_dict(columns)
    return tables


def network(
    folder: str | _Path, task: Task, dropout: float = 0.1, seed: int = 0
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Return (model, tokenizer) of a saved encoder, with the head that a Task needs.

    Pass both to `fit` and `rank`. The head is one for classes, a score or answer spans.
    A head that the folder lacks gets random weights. Raises Absent where a file of the
    folder is missing, and Refused where configuration, weights, tokenizer and Task do
    not fit together. Of a folder with weights in parts, or of a pruned or otherwise
    changed model, only what loading needs is checked.

    folder: the folder of a BERT-like model in transformers' format.
    task: the classes and metrics of the data, as `rows` returns them.
    dropout: the rate of all dropout layers.
    seed: decides the random weights of a new head."""
    from lib.core import paths
    from lib.model import backbone
    from lib.papers import encoder
    from lib.train import heads

    place = paths.resolve_user_path(folder)
    is_changed = "surgery" in encoder.read_json_object(place / encoder.CONFIG)
    if not is_changed and not any(place.glob("*.index.json")):
        place = encoder.check_and_find_encoder_folder(folder, task)
    model, tokenizer = heads.load_task_model_and_tokenizer(place, task, dropout, seed)
    return backbone.set_class_names_and_problem_type(
        model, None if task.span else task.labels
    ), tokenizer


def _check_model_fits_task(
    model: PreTrainedModel, task: Task, max_length: TokenCount
) -> None:
    """Raise Refused if a model cannot be trained on a task.

    That is so where it reads fewer tokens, has another head, is in int8, or has no
    weight with a gradient.

    max_length: the number of tokens to which rows are cut."""
    from lib.core.names import Refused
    from lib.model.parts import get_recorded_model_changes
    from lib.papers import encoder
    from lib.train import heads

    config: Any = model.config
    family = config.model_type.removeprefix("operated-")
    offset = encoder.find_position_offset(family, config.to_dict())
    if max_length > (most := config.max_position_embeddings - offset):
        raise Refused(f"max_length is {max_length}; this model reads {most} at most")
    name, head = type(model).__name__, heads.HEADS[task.span]
    if head not in name or config.num_labels != task.output_width:
        raise Refused(
            f"the model is a {name} of {config.num_labels} outputs, the task needs a "
            f"{head} of {task.output_width}: open it by lib.network(folder, task)"
        )
    is_int8 = any(done["op"] == "int8" for done in get_recorded_model_changes(model))
    if is_int8 or not any(weight.requires_grad for weight in model.parameters()):
        raise Refused(
            "the model is in int8 or frozen, so it has no gradients: take it before "
            "int8, or call model.requires_grad_(True)"
        )


def fit(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    task: Task,
    rows: Mapping[SplitName, Split],
    train: Train,
    seed: int = 0,
    threads: int = 1,
) -> Metrics:
    """Train a model in place on the labels of your rows, and return its metrics.

    The result is a dict with the metrics on the development rows, such as "accuracy"
    from 0 to 1, and numbers of the training, such as "steps". The training computes in
    float32 on the model's device. Torch's thread count and random states are restored
    afterwards.
    Raises FloatingPointError where the loss is not finite, and Refused for a task of
    answer spans, and where model, task, rows and settings do not fit together.

    rows: {"train": Split, "dev": Split} of the Task, as `rows` returns them.
    train: the settings of the training, such as epochs and learning rate. The rate of
    dropout is that of the model (`network`); another one above 0 is refused.
    seed: decides the order of the training rows and dropout.
    threads: the number of CPU threads."""
    from torch import nn

    from lib.core.names import Refused, check_known_name
    from lib.train import loop
    from lib.train.learn import Trainer

    _check_model_fits_task(model, task, max(train.max_length, train.pad_to))
    for split in ("train", "dev"):
        check_known_name("split of rows", split, rows)
    for name in train.select_by:
        check_known_name("metric of train.select_by", name, task.metrics)
    rates = {part.p for part in model.modules() if isinstance(part, nn.Dropout)}
    if train.dropout and rates != {train.dropout}:
        raise Refused(
            f"train.dropout is {train.dropout}, the model's {sorted(rates)}: leave it "
            "out, and set the rate by lib.network(folder, task, dropout)"
        )
    with loop.use_float32_on_model_device(model, threads) as numerics:
        trainer = Trainer(tokenizer, task, rows, train, seed, numerics)
        return trainer.fit(model).result | trainer.compute_development_metrics(model)


def trainer(
    training_row_count: int = 2000,
    seed: int = 0,
    rows: Mapping[SplitName, Split] | GeneratedSentences = None,
) -> tuple[Trainer, PreTrainedModel]:
    """Return (Trainer, encoder) for a quick training on generated sentences.

    Notebooks that explain a compression method use it. The Trainer trains an encoder
    by `fit(encoder)` and scores it on development rows. The task is to tell whether a
    generated sentence is in order, or two of its words are swapped. The encoder has
    random weights, 2 layers, 96 hidden units, 12 heads and 384 neurons in each layer.

    training_row_count: the number of training rows; 2,000 other rows are for
    development.
    seed: the seed of the initial weights, the order of training rows and dropout.
    rows: {"train": Split, "dev": Split} of another task of two classes, in place of the
    generated sentences. Its texts may have only their words (lib.data.grammar)."""
    from tempfile import TemporaryDirectory

    import transformers

    from lib import data
    from lib.core import options
    from lib.train import learn
    from lib.train.steps.pretrain import write_toy_grammar_tokenizer

    task = data.find_task_by_name("toy", "BigramShift")
    with TemporaryDirectory() as folder:
        tokenizer = write_toy_grammar_tokenizer(_Path(folder))
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
    splits = rows or data.load(
        data.make_data_descriptor("toy", task.name, training_row_count)
    )
    return learn.Trainer(tokenizer, task, splits, train, seed), encoder


def rank(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    task: Task,
    split: Split,
    max_length: TokenCount = 128,
    batch: RowsPerBatch = 32,
    threads: int = 1,
) -> Importances:
    """Return the importance of attention heads and FFN neurons, for pruning.

    The result is (heads [L, A], neurons [L, F]). They are first-order Taylor scores
    (GhostBERT, section 2.3), estimates of how much the loss on the rows changes without
    a head or neuron, summed over batches. Pass them to `operate` as `head_scores` and
    `neuron_scores`. Raises Refused for a model whose layers have different sizes, for
    one without gradients (frozen, or in int8), and for a task of answer spans.

    split: the rows on which the loss and its gradients are computed.
    max_length: the number of tokens to which longer rows are cut.
    batch: rows of a batch.
    threads: the number of CPU threads."""
    from lib.core.options import Importance
    from lib.train import heads, loop
    from lib.train.steps import importance

    _check_model_fits_task(model, task, max_length)
    options = Importance("held_out", batch, max_length)
    encoded, _ = heads.encode_rows_and_make_scorer(tokenizer, split, task, max_length)
    with loop.use_float32_on_model_device(model, threads) as numerics:
        return importance.compute_taylor_importance(model, encoded, options, numerics)


def operate(
    model: PreTrainedModel, op: SurgeryOperation, **unsaved_operation_arguments: Any
) -> SurgeryReport:
    """Prune or otherwise change a model in place, and return a report of the change.

    For {"op": "cut", "heads": 3}, which keeps 3 heads of each layer, the report has the
    indices of the heads and neurons that remain in each layer. The operation is noted
    in the model, so that `save` writes it too. Raises Refused for an unknown operation,
    and for one that cannot follow an earlier operation on the same model.

    op: {"op": name of the operation, argument: value}. lib.model.surgery.OPERATIONS has
    the names, each with the function that takes the arguments. A module of lib.methods
    with a function `prune` is an operation too.
    unsaved_operation_arguments: arguments that `save` does not write, such as the
    importance scores of `rank`."""
    from lib.model import surgery

    return surgery.apply_surgery(model, op, **unsaved_operation_arguments)


def save(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    folder: str | _Path,
) -> None:
    """Write a model, which may be pruned, and its tokenizer to a folder.

    Operations that changed the model's architecture are noted in the configuration. So
    `network` and `lib.model.backbone.load` open it with the changed shape. Raises
    Refused for the path of a file.

    folder: the new folder."""
    from lib.model import backbone

    backbone.save(model, tokenizer, folder)
