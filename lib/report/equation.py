"""This module prepares the text of a page, which has no script and needs no network.

An equation in LaTeX becomes a picture, and a link to a notebook becomes a link to its
page."""

import base64
import html
import io
import os
import re
from collections.abc import Callable
from pathlib import Path

from matplotlib import mathtext
from matplotlib.font_manager import FontProperties

from lib.claims import notebook

CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.S)
EQUATION = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+)\$", re.S)
NOTEBOOK = re.compile(r"\]\(([\w./]+\.ipynb)\)")


def readable(markdown: str, path: Path) -> str:
    """Return the Markdown text of a cell as a page shows it; code stays as it is.

    Raises Refused where matplotlib cannot set an equation.
    """
    return outside_code(linked(markdown, "html", path), EQUATION, drawn)


def linked(markdown: str, kind: str, path: Path) -> str:
    """Return a text of a notebook at a path, with links to the pages of notebooks;
    kind: "html" or "page.md"."""

    def to_page(match: re.Match[str]) -> str:
        return f"]({notebook.name_of(os.path.normpath(path.parent / match[1]))}.{kind})"

    return outside_code(markdown, NOTEBOOK, to_page)


def outside_code(
    markdown: str, pattern: re.Pattern[str], new: str | Callable[[re.Match[str]], str]
) -> str:
    """Return a text with a pattern replaced, but for what stands in code."""
    parts = CODE.split(markdown)
    parts[::2] = [pattern.sub(new, part) for part in parts[::2]]
    return "".join(parts)


def drawn(match: re.Match[str]) -> str:
    """Return an equation as an HTML image: $$...$$ on a line of its own, $...$ within
    the text."""
    is_display, picture = bool(match[1]), io.BytesIO()
    text = " ".join((match[1] or match[2]).split())
    shown = text.replace(r"\frac", r"\dfrac") if is_display else text
    look = FontProperties(size=13 if is_display else 12, math_fontfamily="stix")
    depth = mathtext.math_to_image(f"${shown}$", picture, look, dpi=72, format="svg")
    # The SVG's date goes, so that equal equations give equal bytes.
    picture = re.sub(rb"<metadata>.*?</metadata>", b"", picture.getvalue(), flags=re.S)
    place = "max-width:100%" if is_display else f"vertical-align:-{depth:.1f}pt"
    return (
        f'<img class="equation" alt="{html.escape(text)}" style="{place}" '
        f'src="data:image/svg+xml;base64,{base64.b64encode(picture).decode()}">'
    )
