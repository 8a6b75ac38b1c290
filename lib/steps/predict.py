"""Step: predict a split without public labels, such as GLUE's test rows, for its server."""

from lib import data as sources
from lib.data import unlabelled
from lib.train import heads, loop


def predict(run, data, train, numerics, span=None):
    """Input: `model`, fine-tuned on the task (for AX, on MNLI). data: a descriptor of
    `lib.data.unlabelled`. `train`, that of the model, tells how rows are cut and padded.

    Logits [N, C] and row numbers are saved as `test`; where every row has a label, as in a
    generated twin, labels and metrics as well.
    """
    numerics, train = loop.options(numerics, train)
    task, split = sources.described(data), unlabelled.load(data)
    model, tokenizer = heads.network(run.inputs["model"].model, task, 0.0, run.seed)
    rows, marks = heads.rows(tokenizer, split, task, train.max_length, span)
    logits = loop.predict(model, rows, numerics, pad_to=train.pad_to)
    metrics, arrays = {}, {"logits": logits, "index": split.index}
    if unlabelled.labelled(split):
        metrics, arrays = marks(logits)
    run.save_arrays("test", **arrays)
    return metrics | {"test_rows": len(split), "scored": bool(metrics)}
