"""This module has names, seeds and the errors for readers.

What the models need too stands in `lib.model.options`, since an export carries
`lib/model` alone."""

from lib.model.options import HEADLESS as HEADLESS
from lib.model.options import Refused as Refused
from lib.model.options import changed_fields as changed_fields
from lib.model.options import check_allowed as check_allowed
from lib.model.options import check_name as check_name
from lib.model.options import stream as stream


class Absent(Refused, FileNotFoundError):
    """Absent is raised where a file, a folder, weights or a run that is needed is not
    there."""


def error_in_one_line(error: BaseException) -> str:
    """Return an error in one line; what is Refused explains itself, others have their
    kind too."""
    text = " ".join(str(error).split())
    return text if isinstance(error, Refused) else f"{type(error).__name__}: {text}"
