"""This step predicts a reader's file `test` by the model that is chosen in the end."""

from lib import data as sources
from lib.core.options import Train
from lib.core.store import RunWriter
from lib.core.types import Json
from lib.train import heads, loop


def predict(
    run: RunWriter,
    data: Json,
    train: Json,
    numerics: Json,
    digest: str,
    span: Json | None = None,
) -> dict[str, float]:
    """Predict the rows of a file `test` by a finished model.

    Input: `model`, fine-tuned on the task of the descriptor `data`. digest: the digest
    of the task's test rows. train: the settings of the model, which say how rows are
    cut and padded.

    It saves logits [N, C], labels and row numbers as `test`. Raises Refused where the
    test rows have changed."""
    arithmetic, training = loop.read_numerics(numerics), Train(**train)
    split = sources.one_split(data["source"], data["task"], "test")
    sources.check("the test file", sources.digest({"rows": split}), digest)
    task = sources.task_of_descriptor(data)
    model, tokenizer = heads.network(run.inputs["model"].model, task, 0.0, run.seed)
    rows, marks = heads.rows(tokenizer, split, task, training.max_length, span)
    metrics, arrays = marks(
        loop.predict(model, rows, arithmetic, pad_to=training.pad_to)
    )
    run.save_arrays("test", **arrays)
    return metrics | {"test_rows": len(split)}
