"""This module has names, seeds and the errors for readers.

What the models need too stands in `lib.model.options`, since an export carries
`lib/model` alone."""

from lib.model.options import HEADLESS as HEADLESS
from lib.model.options import Refused as Refused
from lib.model.options import known as known
from lib.model.options import one_of as one_of
from lib.model.options import settled as settled
from lib.model.options import stream as stream


class Absent(Refused, FileNotFoundError):
    """Absent is raised where a file, a folder, weights or a run that is needed is not
    there."""


def one_line(error: BaseException) -> str:
    """Return an error in one line; what is Refused explains itself, others have their
    kind too."""
    text = " ".join(str(error).split())
    return text if isinstance(error, Refused) else f"{type(error).__name__}: {text}"
