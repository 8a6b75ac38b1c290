"""This module prepares the Markdown of a notebook for an HTML page, which uses no
script and no network.

An equation in LaTeX becomes an SVG drawing in the colour of the text around it. A link
to a notebook, or to its Markdown page, becomes a link to its HTML page."""

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
# {kind of segment in matplotlib's TextPath: letter of this command in an SVG path}.
LETTERS = {
    TextPath.MOVETO: "M",
    TextPath.LINETO: "L",
    TextPath.CURVE3: "Q",
    TextPath.CURVE4: "C",
}
NOTEBOOK = re.compile(r"\]\(([\w./]+\.ipynb)\)")
LIGHT = re.compile(r"\]\([\w./]+/(\w+)\.page\.md\)")


def render_equations_and_redirect_links(
    markdown: str, notebook_path: Path, pages_folder: str = ""
) -> str:
    """Return a notebook's text for its HTML page, with equations drawn as SVG.

    So the page needs no script and no network to show equations. Links to notebooks
    become links to their HTML pages. Code is left unchanged. Raises ValueError where
    matplotlib cannot typeset an equation.

    markdown: the text of a notebook's cell.
    notebook_path: the notebook that has the text, since links are relative to it.
    pages_folder: the folder of the linked pages, seen from this page, with "/" at its
    end; "" is the folder of this page."""
    return replace_outside_code(
        redirect_notebook_links_to_pages(markdown, "html", notebook_path, pages_folder),
        EQUATION,
        render_equation_as_svg,
    )


def redirect_notebook_links_to_pages(
    markdown: str, page_extension: str, notebook_path: Path, pages_folder: str = ""
) -> str:
    """Return a notebook's text with links to notebooks turned into links to pages.

    A page is the HTML or Markdown that is made from a notebook. Links to Markdown pages
    are turned too, so that a reader stays among pages of one kind.

    markdown: the text of a notebook's cell, or an output in Markdown.
    page_extension: "html" for links to HTML pages, "page.md" for links to Markdown
    pages.
    notebook_path: the notebook that has the text, since links are relative to it.
    pages_folder: the folder of the linked pages, seen from this page, with "/" at its
    end; "" is the folder of this page."""

    def make_page_link(match: re.Match[str]) -> str:
        target = os.path.normpath(notebook_path.parent / match[1])
        return f"]({pages_folder}{notebook.make_notebook_id(target)}.{page_extension})"

    text = replace_outside_code(markdown, NOTEBOOK, make_page_link)
    return replace_outside_code(text, LIGHT, rf"]({pages_folder}\1.{page_extension})")


def replace_outside_code(
    markdown: str,
    pattern: re.Pattern[str],
    replacement: str | Callable[[re.Match[str]], str],
) -> str:
    """Return a Markdown text with a pattern replaced, except in its code.

    Code spans and code blocks stay as they are, even if they look like an equation or a
    link.

    replacement: a template or a function of the match, as in re.sub."""
    parts = CODE.split(markdown)
    parts[::2] = [pattern.sub(replacement, part) for part in parts[::2]]
    return "".join(parts)


def render_equation_as_svg(equation_match: re.Match[str]) -> str:
    """Return a LaTeX equation as an SVG element, so that a page needs no script.

    An equation of the form $$...$$ is set larger, for a line by itself. One of the form
    $...$ is aligned with the text around it. Raises ValueError where matplotlib cannot
    typeset it.

    equation_match: a match with the LaTeX code in group 1 ($$...$$) or group 2
    ($...$)."""
    is_display = bool(equation_match[1])
    text = " ".join((equation_match[1] or equation_match[2]).split())
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


def trace_svg_path(text_path: TextPath) -> str:
    """Return the outline of a text as the attribute `d` of an SVG path.

    The signs of y are turned, as the y axis of SVG points down."""
    parts = []
    for points, code in text_path.iter_segments(curves=True, simplify=False):
        pairs = (f"{x:.2f} {-y:.2f}" for x, y in points.reshape(-1, 2))
        parts.append(
            "Z" if code == text_path.CLOSEPOLY else LETTERS[code] + " ".join(pairs)
        )
    return "".join(parts)
