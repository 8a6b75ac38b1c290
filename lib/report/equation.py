"""This module prepares the Markdown of a page, which has no script and no network.

An equation in LaTeX becomes an SVG drawing in the colour of the text around it. A link
to a notebook, or to its light page, becomes a link to its HTML page."""

import html
import os
import re
from collections.abc import Callable
from pathlib import Path

from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser
from matplotlib.textpath import TextPath

from lib.claims import notebook

CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.S)
EQUATION = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+)\$", re.S)
PARSER = MathTextParser("path")
# Letters of an SVG path for the kinds of segments of TextPath.
LETTERS = {
    TextPath.MOVETO: "M",
    TextPath.LINETO: "L",
    TextPath.CURVE3: "Q",
    TextPath.CURVE4: "C",
}
NOTEBOOK = re.compile(r"\]\(([\w./]+\.ipynb)\)")
LIGHT = re.compile(r"\]\([\w./]+/(\w+)\.page\.md\)")


def render_markdown(markdown: str, path: Path) -> str:
    """Return the Markdown of a cell with drawn equations and links to HTML pages.

    Code stays as it is. Raises Refused where matplotlib cannot set an equation."""
    return replace_outside_code(
        link_pages(markdown, "html", path), EQUATION, draw_equation
    )


def link_pages(markdown: str, page_ending: str, path: Path) -> str:
    """Return the Markdown of a notebook with its links to notebooks as links to pages.

    path: of the notebook that has the text. page_ending: "html" or "page.md"."""

    def make_page_link(match: re.Match[str]) -> str:
        target = os.path.normpath(path.parent / match[1])
        return f"]({notebook.make_notebook_id(target)}.{page_ending})"

    text = replace_outside_code(markdown, NOTEBOOK, make_page_link)
    return replace_outside_code(text, LIGHT, rf"](\1.{page_ending})")


def replace_outside_code(
    markdown: str,
    pattern: re.Pattern[str],
    replacement: str | Callable[[re.Match[str]], str],
) -> str:
    """Return a text with a pattern replaced, except in Markdown code."""
    parts = CODE.split(markdown)
    parts[::2] = [pattern.sub(replacement, part) for part in parts[::2]]
    return "".join(parts)


def draw_equation(match: re.Match[str]) -> str:
    """Return an equation as an SVG element: $$...$$ on a line of its own, $...$ within
    the text."""
    is_display = bool(match[1])
    text = " ".join((match[1] or match[2]).split())
    shown = text.replace(r"\frac", r"\dfrac") if is_display else text
    look = FontProperties(size=13 if is_display else 12, math_fontfamily="stix")
    width, height, depth, *_ = PARSER.parse(f"${shown}$", dpi=72, prop=look)
    lines = trace_svg_path(TextPath((0, 0), f"${shown}$", prop=look))
    place = "max-width:100%" if is_display else f"vertical-align:-{depth:.1f}pt"
    return (
        f'<svg class="equation" role="img" aria-label="{html.escape(text)}" '
        f'width="{width:.1f}pt" height="{height:.1f}pt" style="{place}" '
        f'viewBox="0 {depth - height:.1f} {width:.1f} {height:.1f}">'
        f'<path fill="currentColor" d="{lines}"/></svg>'
    )


def trace_svg_path(path: TextPath) -> str:
    """Return the outline of a text as an SVG path, whose y axis points down."""
    parts = []
    for points, code in path.iter_segments(curves=True, simplify=False):
        pairs = (f"{x:.2f} {-y:.2f}" for x, y in points.reshape(-1, 2))
        parts.append("Z" if code == path.CLOSEPOLY else LETTERS[code] + " ".join(pairs))
    return "".join(parts)
