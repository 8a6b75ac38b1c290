"""Count the code of `lib` and `tests`: lines that are neither blank, comment nor docstring.

    python tests/lines.py [folder ...]      prints each folder's sum and its largest file

Beside them stand the lines of the notebooks' code and of TOML that are neither blank nor comment.

`ruff format` at 100 columns decides where a line ends.
"""

import ast
import json
import sys
import tokenize
from collections import Counter
from pathlib import Path

SILENT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
OWNERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(path):
    """How many lines of a file hold code."""
    code = set()
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type not in (*SILENT, tokenize.ENDMARKER):
                code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(node, OWNERS) and ast.get_docstring(node) is not None:
            code -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(code)


def told(folder):
    """A folder's sum, those of the folders in it, and its largest file, as one line."""
    counts = {path: code_lines(path) for path in Path(folder).rglob("*.py")}
    largest = max(counts, key=counts.get)
    parts = Counter()
    for path, count in counts.items():
        parts[path.relative_to(folder).parts[0] if path.parent != Path(folder) else "."] += count
    inside = ", ".join(f"{name} {count:,}" for name, count in parts.most_common())
    total = f"{folder}: {sum(counts.values()):,} lines of code" + f" ({inside})" * (len(parts) > 1)
    return f"{total}; largest {largest} {counts[largest]}"


def beside():
    """Lines of the notebooks' code and of TOML, as one line."""
    books = [json.loads(path.read_text()) for path in Path("notebooks").glob("*.ipynb")]
    cells = [cell for book in books for cell in book["cells"] if cell["cell_type"] == "code"]
    tables = [*Path("lib").rglob("*.toml"), *Path("data").rglob("*.toml")]
    texts = ["".join(cell["source"]) for cell in cells], [path.read_text() for path in tables]
    counts = [
        sum(bool(line.strip()) and line.strip()[0] != "#" for t in part for line in t.splitlines())
        for part in texts
    ]
    return f"beside them: notebooks {counts[0]:,} lines of code, TOML {counts[1]:,} lines"


if __name__ == "__main__":
    print(*map(told, sys.argv[1:] or ("lib", "tests")), sep="\n")
    print(beside())
