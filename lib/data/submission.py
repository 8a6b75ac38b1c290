"""The file that the GLUE server takes, of predictions for its test rows."""

import io
import zipfile
from pathlib import Path

import numpy as np

from lib.data import read
from lib.runs import files
from lib.runs.spec import known

TEST_ROWS, TASK_OF = {}, {}  # official rows of each file; the task whose codes a file holds
for _task in read.GLUE:
    TEST_ROWS |= read.LAYOUTS[_task]["server"]
    TASK_OF |= dict.fromkeys(read.LAYOUTS[_task]["server"], _task)
NAMED = ("MNLI", "QNLI", "RTE", "AX")  # the server takes names of classes here, digits elsewhere


def write(predictions, folder, partial=False, rows=TEST_ROWS):
    """Write `<name>.tsv` each, and submission.zip of all, whose path is returned. All is checked
    before anything is written.

    predictions: {name of TEST_ROWS: class codes [N], logits [N, C], or scores [N] for STS-B}, in
      the order of the test files.
    rows: number of rows of each name, another one for a generated twin.
    """
    for name in predictions:
        known("file of a GLUE submission", name, TEST_ROWS)
    missing = [name for name in TEST_ROWS if name not in predictions]
    if not predictions or (missing and not partial):
        raise ValueError(
            f"the submission lacks {', '.join(missing)}; the server wants all of {len(TEST_ROWS)}; "
            "fix: predict these too, or write the others with partial=True"
        )
    contents = {}
    for name in filter(predictions.__contains__, TEST_ROWS):
        cells = _cells(name, read.TASKS[TASK_OF[name]], predictions[name], rows[name])
        lines = "".join(f"{i}\t{cell}\n" for i, cell in enumerate(cells))
        contents[f"{name}.tsv"] = f"index\tprediction\n{lines}"
    packed, dated = io.BytesIO(), (1980, 1, 1, 0, 0, 0)  # equal predictions give equal bytes
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in contents.items():
            archive.writestr(zipfile.ZipInfo(name, dated), text, zipfile.ZIP_DEFLATED)
            files.write(Path(folder) / name, text)
    with files.whole(Path(folder) / "submission.zip") as place:
        place.write_bytes(packed.getvalue())
    return Path(folder) / "submission.zip"


def _cells(name, task, predictions, rows):
    """The column of one submission file."""
    values = np.asarray(predictions, np.float64)
    if values.shape not in (shapes := [(rows,), (rows, task.outputs)]):
        found = f"{name}: predictions of shape {list(values.shape)}"
        raise ValueError(f"{found}; expected, as in the test set, {' or '.join(map(str, shapes))}")
    if bad := np.count_nonzero(~np.isfinite(values)):
        raise ValueError(f"{name}: {bad} of {values.size} predictions are not finite")
    if not task.labels:  # + 0.0: no "-0.000"
        return [f"{value:.3f}" for value in np.clip(values.ravel(), 0, 5) + 0.0]
    codes = values.argmax(axis=1) if values.ndim == 2 else values
    bad = np.flatnonzero(~np.isin(codes, range(task.outputs)))
    if len(bad):
        allowed = f"codes 0 to {task.outputs - 1} ({', '.join(task.labels)})"
        raise ValueError(f"{name}: row {bad[0]} predicts {codes[bad[0]]:g}; allowed: {allowed}")
    return [task.labels[code] if task.name in NAMED else code for code in codes.astype(int)]
