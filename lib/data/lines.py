"""What the readers share: text files by line, the hub, and errors that name place and fix."""

import re
from contextlib import ExitStack

from lib import files


def malformed(place, found, expected, fix="download the file again"):
    """A ValueError for a file's content. place: its path, with a line where one is known."""
    return ValueError(f"{place}: {found}; expected {expected}; fix: {fix}")


def needed(path, what, fix):
    """The path of a file. Raises FileNotFoundError where it is not there."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing, {what}; fix: {fix}")
    return path


def short(text):
    return repr(text if len(text) <= 60 else text[:57] + "...")


def decoded(path):
    """The text of a UTF-8 file, with or without a byte-order mark. Raises ValueError with file and
    line where a byte is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        ends = re.findall("\r\n?|\n", error.object[: error.start].decode("latin1"))
        raise malformed(
            f"{path}:{len(ends) + 1}",
            f"byte 0x{error.object[error.start]:02x} is not UTF-8",
            "UTF-8 text",
            "convert the file (iconv -f latin1 -t utf-8), or download it again",
        ) from None


def read_lines(path):
    """Lines of a UTF-8 file, whatever its line ends, without blank ones at the end."""
    # not splitlines(): it also cuts at form feeds and Unicode separators, which are text here
    lines = decoded(path).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def each_line(path):
    """The same one after another, with blank ones at the end: the file may exceed the memory."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            for line in file:
                yield line.rstrip("\n")
    except UnicodeDecodeError:
        decoded(path)  # says where
        raise


def write(folder, contents):
    """Write files {name: bytes} to a folder, which is made. They appear together, each whole."""
    with ExitStack() as held:
        for name, data in contents.items():
            held.enter_context(files.whole(folder / name)).write_bytes(data)


def hub(what, fix, *wanted, loader=None):
    """What the hub's client `loader` gives, `datasets.load_dataset` where it is None. Raises
    ConnectionError in one line with the fix where it gives nothing.
    """
    try:
        if loader is None:
            from datasets import load_dataset as loader
        return loader(*wanted)
    except Exception as error:  # the client raises many kinds, by version and by failure
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        told = f"{what} cannot be had from the hub ({reason}); fix: check the network, or {fix}"
        raise ConnectionError(told) from error


def from_hub(task, folder, splits, text, loader, *wanted):
    """Fill a folder with files of the hub. Returns the folder.

    splits: {name: the hub's split}. text(rows): a file's content. `loader(*wanted)` gives the
    splits, as in `hub`. Raises FileExistsError where one of the files is in the folder already, and
    ValueError where the hub lacks a split.
    """
    there = [name for name in splits if (folder / name).exists()]
    if there:
        raise FileExistsError(
            f"{folder} already holds {', '.join(there)}; move it away to fetch {task} anew"
        )
    fix = f"put {', '.join(splits)} into {folder} by hand"
    loaded = hub(task, fix, *wanted, loader=loader)
    for name, split in splits.items():
        if split not in loaded:
            raise ValueError(
                f"the hub's {task} has no split {split}, but {', '.join(loaded)}; fix: put {name} "
                f"into {folder} by hand"
            )
    write(folder, {name: text(loaded[split]).encode() for name, split in splits.items()})
    return folder
