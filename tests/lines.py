"""Count the tokens of the code of `lib` and `tests`, as a measure of size that cannot
be packed.

    python tests/lines.py [folder ...]      prints each folder's sum and its largest file

Comments, docstrings, line ends, the annotations of signatures and fields, and what is
imported for these alone do not count. Beside them stand the tokens of the notebooks'
code, and the lines of TOML that are no comment."""

import ast
import io
import json
import sys
import tokenize
from collections import Counter
from pathlib import Path

SILENT = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
)
SILENT += (tokenize.ENDMARKER, tokenize.ENCODING)
OWNERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def spans(tree):
    """Yield the places ((line, column), (line, column)) of docstrings and
    annotations."""
    for node in ast.walk(tree):
        if isinstance(node, OWNERS) and ast.get_docstring(node) is not None:
            yield place(node.body[0])
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            yield place(node.annotation)
        if isinstance(node, ast.FunctionDef) and node.returns:
            yield place(node.returns)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            yield place(node)


def place(node):
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def count_tokens(text):
    """How many tokens of a module's text count."""
    tree = ast.parse(text)
    places = sorted(spans(tree))
    lines = text.splitlines()
    count = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in SILENT:
            continue
        line, column = token.start
        start = (
            line,
            len(lines[line - 1][:column].encode()) if line <= len(lines) else column,
        )
        count += not any(first <= start < last for first, last in places)
    return count


def summary(folder):
    """A folder's sum, those of the folders in it, and its largest file, as one line."""
    counts = {
        path: count_tokens(path.read_text()) for path in Path(folder).rglob("*.py")
    }
    largest = max(counts, key=counts.get)
    parts = Counter()
    for path, count in counts.items():
        parts[
            path.relative_to(folder).parts[0] if path.parent != Path(folder) else "."
        ] += count
    inside = ", ".join(f"{name} {count:,}" for name, count in parts.most_common())
    total = f"{folder}: {sum(counts.values()):,} tokens" + f" ({inside})" * (
        len(parts) > 1
    )
    return f"{total}; largest {largest} {counts[largest]:,}"


def beside():
    """Tokens of the notebooks' code and lines of TOML, as one line."""
    books = [
        json.loads(path.read_text()) for path in Path("notebooks").rglob("*.ipynb")
    ]
    cells = [
        cell for book in books for cell in book["cells"] if cell["cell_type"] == "code"
    ]
    tokens = sum(count_tokens("".join(cell["source"])) for cell in cells)
    tables = [
        path.read_text()
        for path in [*Path("lib").rglob("*.toml"), *Path("data").rglob("*.toml")]
    ]
    lines = sum(
        bool(line.strip()) and line.strip()[0] != "#"
        for t in tables
        for line in t.splitlines()
    )
    return f"beside them: notebooks {tokens:,} tokens, TOML {lines:,} lines"


if __name__ == "__main__":
    print(*map(summary, sys.argv[1:] or ("lib", "tests")), sep="\n")
    print(beside())
