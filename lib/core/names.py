"""This module has checks of names, seeded random generators, and the errors that
readers see.

Most are defined in `lib.model.options`, because an exported model carries `lib/model`
alone and needs them too."""

from lib.model.options import HEADLESS as HEADLESS
from lib.model.options import Refused as Refused
from lib.model.options import check_allowed as check_allowed
from lib.model.options import check_name as check_name
from lib.model.options import derive_seed as derive_seed
from lib.model.options import list_changed_fields as list_changed_fields


class Absent(Refused, FileNotFoundError):
    """Absent is raised where a file, a folder, weights or a run is needed and
    missing."""


def error_in_one_line(error: BaseException) -> str:
    """Return the message of an error in one line, behind the name of its class unless
    it is Refused.

    A Refused error explains itself."""
    text = " ".join(str(error).split())
    return text if isinstance(error, Refused) else f"{type(error).__name__}: {text}"
