"""Text files by line, and errors that name file, line and fix: what the readers of tasks and corpora share."""

import re


def malformed(path, line, found, expected, fix):
    return ValueError(f"{path}:{line}: {found}; expected {expected}; fix: {fix}")


def short(text):
    return repr(text if len(text) <= 60 else text[:57] + "...")


def each_line(path):
    """The lines of `read_lines`, and blank ones at the end, one after another: the file may be larger than the memory."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            for line in file:
                yield line.rstrip("\n")
    except UnicodeDecodeError:
        read_lines(path)  # says where
        raise


def read_lines(path):
    """Lines of a UTF-8 file, with or without a byte-order mark, whatever its line ends."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode("latin1")
        raise malformed(
            path,
            len(re.findall("\r\n?|\n", before)) + 1,
            f"byte 0x{error.object[error.start]:02x} is not UTF-8",
            "UTF-8 text",
            "convert the file (iconv -f latin1 -t utf-8), or download it again",
        ) from None
    # not splitlines(): it also cuts at form feeds and Unicode separators, which are text here
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    return lines
