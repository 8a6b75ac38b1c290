"""This step predicts the rows of a user's file `test` with a finished model."""

from typing import TypeAlias

from lib import data as sources
from lib.core.options import Train
from lib.core.store import RunWriter
from lib.core.types import Digest
from lib.stats.metrics import Metrics
from lib.train import heads, loop

DigestOfTestRows: TypeAlias = Digest


def predict(
    run: RunWriter,
    data: sources.DataDescriptor,
    train: loop.SettingsJson,
    numerics: loop.SettingsJson,
    digest: DigestOfTestRows,
    span: loop.SettingsJson | None = None,
) -> Metrics:
    """Predict a user's test rows with a finished model, and return the metrics.

    It saves the predictions, labels and row numbers in a file `test`. Returns {metric:
    value}, with "test_rows" for the number of test rows. Raises Refused where the test
    rows have changed since the run was planned.

    run: the folder of this run. Its input `model` is an earlier result: a model that
    was fine-tuned on the task.
    data: JSON that says which task of which data source is used.
    train: the settings of the model's training, which say how rows are cut and padded.
    numerics: dtype, number of threads and device.
    digest: the digest of the test rows when the run was planned.
    span: settings that say how passages are cut, for a task of answer spans; None for
    other tasks."""
    arithmetic, training = loop.set_dtype_threads_and_device(numerics), Train(**train)
    split = sources.read_split(data["source"], data["task"], "test")
    sources.check_digest(
        "the test file", sources.digest_splits({"rows": split}), digest
    )
    task = sources.find_task_of_descriptor(data)
    model, tokenizer = heads.load_task_model_and_tokenizer(
        run.inputs["model"].model_folder, task, 0.0, run.seed
    )
    rows, marks = heads.encode_rows_and_make_scorer(
        tokenizer, split, task, training.max_length, span
    )
    metrics, arrays = marks(
        loop.predict_logits(model, rows, arithmetic, min_token_count=training.pad_to)
    )
    run.save_arrays("test", **arrays)
    return metrics | {"test_rows": len(split)}
