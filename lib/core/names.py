"""This module has the checks of names, the derivation of seeds, and the errors that
users see.

Most are defined in `lib.model.options`: the folder of an exported model has a copy of
`lib/model` only, and needs them too."""

from lib.model.options import HEADLESS as HEADLESS
from lib.model.options import VOCABULARIES as VOCABULARIES
from lib.model.options import Refused
from lib.model.options import check_known_name as check_known_name
from lib.model.options import check_value_is_allowed as check_value_is_allowed
from lib.model.options import derive_seed as derive_seed
from lib.model.options import list_non_default_fields as list_non_default_fields


class Absent(Refused, FileNotFoundError):
    """Absent is the error for something that is needed and missing.

    That is a file, a folder, the weights of a model, or a finished run (the stored
    result of a training or measurement). Absent is a Refused, the error about a user's
    input, so a command prints it in one line. It is a FileNotFoundError too, so code
    that handles missing files catches it."""


def format_error_in_one_line(error: BaseException) -> str:
    """Return the message of an error in one line, such as "KeyError: 'loss'".

    It is for status files and for lines of progress. The name of the class is left out
    for Refused, the error about a user's input, as its message explains itself."""
    text = " ".join(str(error).split())
    return text if isinstance(error, Refused) else f"{type(error).__name__}: {text}"
