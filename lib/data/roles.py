"""This module finds out which columns of a user's table are texts and which one is the
label, and whether labels are classes or scores.

A column is a text if its name says so, or the user names it. Ids, languages and dates
are left out, and so are columns whose value follows from the label, such as the name of
a class beside its code. Where any other column is left, an error is raised that has the
line to type."""

import csv
import re
import shlex
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lib.core.names import check_name
from lib.data.lines import Table, cell_text, clip_text, refuse_content, short_path
from lib.data.read import Row

LABELS = {
    *("label", "labels", "class", "target", "score", "stars", "rating", "gold"),
    *("gold_label", "sentiment", "category", "intent", "emotion", "similarity"),
}
# Words in the names of text columns. `lib.dataset` names texts "a" and "b".
TEXTS = {
    *("text", "sentence", "question", "premise", "hypothesis", "review"),
    *("title", "body", "tweet", "content", "utterance", "query", "passage", "document"),
    *("context", "answer", "comment", "message", "headline", "abstract", "summary"),
    *("description", "statement", "claim", "evidence", "response", "post", "phrase"),
    *("string", "caption", "quote", "transcript", "article", "story", "email"),
}
LETTERS = ("a", "b")
# Words in the names of columns that are no texts.
OTHERS = {
    *("id", "idx", "index", "guid", "uid", "uuid", "key", "no", "number", "line"),
    *("lang", "language", "locale", "date", "time", "timestamp", "datetime", "year"),
    *("month", "day", "created", "updated", "url", "link", "source", "file", "author"),
    *("filename", "user", "username", "split", "fold", "genre", "type", "length"),
    *("len", "count", "confidence", "label", "class", "target", "score", "rating"),
}
# Names of index columns. The last three are written by pandas.
INDEX = ("#", "", "unnamed: 0", "__index_level_0__")
CLASSES, SCORES = "classes", "scores"
# Largest number of classes, and of classes that are whole numbers with gaps between
# them; more such numbers are scores.
MOST_CLASSES, MOST_GRADES = 100, 20
# Number, which may have a decimal comma and a percent sign.
NUMBER = re.compile(r"([+-]?(?:\d+[.,]?\d*|[.,]\d+)(?:e[+-]?\d+)?)\s*%?", re.A | re.I)
# Largest share of rows that may have an empty cell or a misplaced answer.
FEW = 0.05
SEVERAL = re.compile(r"\d+(,\s*\d+){2,}")


@dataclass(frozen=True)
class Roles:
    """Roles are the columns of a table that are read: one or two texts, and a label.

    unused: the other columns by reason, as text for the user."""

    texts: tuple[str, ...]
    label: str
    unused: tuple[str, ...]

    def columns(self, kind: str) -> str:
        """Return the text that a user types to choose these columns and a kind of
        label."""
        names = (*self.texts, self.label)
        quoted = ", ".join(f'"{name}"' if "," in name else name for name in names)
        return f"{quoted}: {kind}"


@dataclass(frozen=True)
class Coding:
    """A Coding maps the labels of a column to class codes or scores.

    kind: CLASSES or SCORES.
    labels: the class names, () for scores.
    scale: the scores that become 0 and 5.
    code: f(label) -> class code or score.
    lines: sentences for the user, the first a short summary.
    is_open: whether the labels are numbers that could also be of the other kind."""

    kind: str
    labels: tuple[str, ...]
    scale: tuple[float, float]
    code: Callable[[str], float]
    lines: tuple[str, ...]
    is_open: bool


def read_columns(text: str) -> tuple[list[str], str]:
    """Return (names of columns, kind of label or "") of a text that a user types, such
    as "title, body, stars: scores"."""
    kind = next((k for k in (CLASSES, SCORES) if re.search(rf":\s*{k}\s*$", text)), "")
    if kind:
        text = text.rpartition(":")[0]
    cells = next(csv.reader([text], skipinitialspace=True), [])
    return [cell.strip() for cell in cells if cell.strip()], kind


def recognise(place: str, rows: Table, names: Sequence[str]) -> Roles:
    """Return the Roles of the columns of a training table.

    Raises Refused, with the line to type, where they are not clear.

    place: the path of the data, for errors.
    names: the columns that the user named, the label last; without any they are
    inferred from the header."""
    header = [cell_text(name, place) for name in rows[0][1]]
    if _is_row(header) and not (names and {*names} <= {*header}):
        raise refuse_content(place, *_describe_headless(place, rows, header))
    if names:
        for name in names:
            check_name(f"column of {place}", name, header)
        texts, labels, unclear = list(names[:-1]), [names[-1]], []
    else:
        labels = [name for name in header if is_label(name)]
        texts = [name for name in header if is_text(name) and name not in labels]
        unclear = [name for name in header if not (is_label(name) or is_text(name))]
    decided = _decided_columns(rows, header, labels[0]) if len(labels) == 1 else {}
    for name in texts if names else ():
        if decided.get(name, 0) > 1:
            fault = f"the text {clip_text(name)} is the label {clip_text(labels[0])} in other words"
            raise refuse_content(
                place, fault, "a text that leaves it open", "leave it out"
            )
    if not names:
        texts = [name for name in texts if decided.get(name, 0) < 2] or texts
        unclear = [name for name in unclear if not (name in decided or is_other(name))]
    chosen = [*texts, *labels]
    is_clear = len(labels) == 1 and len(texts) in (1, 2) and not unclear
    if not is_clear or any(header.count(name) > 1 for name in chosen):
        raise refuse_content(place, *_describe_misfit(place, rows, header))
    unused: dict[str, list[str]] = {}
    for name, why in _explain_unused(rows, header, chosen, decided).items():
        unused.setdefault(why, []).append(name or "a column without a name")
    unused_texts = [f"{', '.join(names)} ({why})" for why, names in unused.items()]
    return Roles(tuple(texts), labels[0], tuple(unused_texts))


def _explain_unused(
    rows: Table, header: list[str], chosen: Sequence[str], decided: Mapping[str, int]
) -> dict[str, str]:
    """Return {column: why it is left out}.

    chosen: the texts and the label, which is last.
    decided: what `_decided_columns` returned for the label."""
    reasons, label = {}, chosen[-1]
    for name in header:
        if name in chosen:
            continue
        if decided.get(name, 0) > 1:
            reasons[name] = "the label decides it"
        elif _decided_columns(rows, header, name).get(label, 0) > 1:
            reasons[name] = "it decides the label"
        elif is_other(name):
            reasons[name] = "no text, by its name"
        elif name in decided:
            reasons[name] = "always the same"
        else:
            reasons[name] = "not named by you"
    return reasons


def words(name: str) -> set[str]:
    """Return the words of a column's name, such as "review" and "text" of
    "reviewText2", also without a final "s"."""
    every = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)]
    return {*every, *(word.removesuffix("s") for word in every)}


def is_label(name: str) -> bool:
    return re.sub(r"\W", "_", name.lower()) in LABELS


def is_text(name: str) -> bool:
    has_word = words(name) & TEXTS and not words(name) & OTHERS
    return name.lower() in LETTERS or bool(has_word)


def is_other(name: str) -> bool:
    return name.lower() in INDEX or bool(words(name) & OTHERS)


def _is_row(header: Sequence[str]) -> bool:
    """Return whether a header looks like a row of data: it has a number or a sentence,
    and no name of a label."""
    looks = [NUMBER.fullmatch(name) or len(name.split()) > 4 for name in header]
    return any(looks) and not any(map(is_label, header))


def _decided_columns(rows: Table, header: list[str], label: str) -> dict[str, int]:
    """Return {column: number of different values} of the columns whose value follows
    from the label.

    It is empty where labels hardly repeat, so that nothing can be concluded."""
    columns = _columns(rows, header)
    labels = columns.pop(label, [])
    different = set(labels)
    if not labels or 2 * len(different) > len(labels):
        return {}
    return {
        name: len(set(values))
        for name, values in columns.items()
        if len({*zip(labels, values, strict=True)}) == len(different)
    }


def _columns(rows: Table, header: list[str]) -> dict[str, list[str]]:
    """Return {column: cells} of a table, without rows that are not as wide as the
    header."""
    body = [
        ["" if cell is None else str(cell) for cell in cells]
        for _, cells in rows[1:]
        if len(cells) == len(header)
    ]
    return dict(zip(header, map(list, zip(*body, strict=True)), strict=False))


def _describe_misfit(
    place: str, rows: Table, header: list[str]
) -> tuple[str, str, str]:
    """Return (fault, what is expected, fix) for an error about the columns of a table.

    The fix is a line to type, with columns that have few empty cells."""
    fault = f"columns {', '.join(map(clip_text, header))}"
    expected = "one or two texts and a label, known by their names, each once"
    columns = {
        name: cells
        for name, cells in _columns(rows, header).items()
        if name and cells.count("") <= FEW * len(cells)
    }
    labels = [n for n in dict.fromkeys(header) if is_label(n)]
    labels = labels or [n for n in columns if words(n) & LABELS and not is_text(n)]
    labels = labels or [_shortest_list(columns) or "LABEL"]
    texts = [n for n in columns if is_text(n) and n not in labels]
    rest = [n for n in columns if n not in labels and not is_other(n)]
    texts = texts or _longest({name: columns[name] for name in rest})
    choices = [
        f"--data {shlex.quote(f'{short_path(place)}: ' + ', '.join([*(texts[:2] or ['TEXT']), n]))}"
        for n in labels[:3]
    ]
    return fault, expected, f"name them, the label last: {' or '.join(choices)}"


def _describe_headless(
    place: str, rows: Table, header: list[str]
) -> tuple[str, str, str]:
    """Return (fault, what is expected, fix) for an error about a file without a header.

    The fix is a command that adds one."""
    place = rows[0][0].rpartition(":")[0] or place
    numbers = [str(n) for n in range(1, len(header) + 1)]
    columns = _columns([(place, numbers), *rows], numbers)
    label, texts, names = _shortest_list(columns), 0, []
    for number, cells in columns.items():
        is_long = sum(map(len, cells)) > 12 * len(cells) and number != label
        texts += is_long
        names.append(f"text{texts}" if is_long else f"id{number}")
    if label:
        names[int(label) - 1] = "label"
    ending = Path(place).suffix
    line = ("\\t" if ending == ".tsv" else ",").join(names)
    form = f"(printf '{line}\\n'; cat {shlex.quote(short_path(place))}) > names{ending}"
    fault = f"a first line {clip_text(', '.join(header))} that is a row"
    return fault, "the names of the columns", f"put them before it, such as {form}"


def _longest(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the columns with at least half as many characters as the longest
    column."""
    sizes = {name: sum(map(len, cells)) for name, cells in columns.items()}
    most = max(sizes.values(), default=0)
    return [name for name, size in sizes.items() if 2 * size >= most]


def _shortest_list(columns: Mapping[str, Sequence[str]]) -> str:
    """Return the column with the fewest different values, but at least two, or ""; it
    is probably the label."""
    counts = {
        n: len(set(cells)) for n, cells in columns.items() if n and not is_other(n)
    }
    counts = {name: count for name, count in counts.items() if count > 1}
    return min(counts, key=counts.__getitem__, default="")


def value_of(label: str) -> float | None:
    """Return a label as a number, also with a decimal comma or percent sign, or
    None."""
    match = NUMBER.fullmatch(label)
    return float(match[1].replace(",", ".")) if match else None


def code_labels(
    place: str, column: str, kind: str, rows: Mapping[str, Sequence[Row]]
) -> Coding:
    """Return the Coding of the labels of a user's rows.

    Raises Refused, with the row, where a label among scores is no finite number, where
    a class has two spellings or no training row, and where a class is called "nan";
    also for fewer than two different labels, or too many.

    place, column: the path and the label column, for errors.
    kind: CLASSES, SCORES, or "" to infer it.
    rows: {split name: rows}."""
    every = [row for part in rows.values() for row in part]
    values = {row.label: value_of(row.label) for row in every}
    most_classes = min(MOST_CLASSES, len(every) // 2)
    kind = kind or _kind(every, values)
    for row in every:
        value = values[row.label]
        if kind == SCORES:
            is_sound = value is not None and abs(value) < 1e30
            expected = "a finite number, as others are"
        else:
            is_sound, expected = row.label.lower() != "nan", "the name of a class"
        if not is_sound:
            fault = f"label {clip_text(row.label)}"
            raise refuse_content(row.place, fault, expected, "mend or drop the row")
    if kind == SCORES:
        count, most = len({*values.values()}), len(every)
        coding = _scores(values, count <= most_classes)
    else:
        coding = _classes(rows, values)
        count, most = len(coding.labels), most_classes
    if not 2 <= count <= most:
        fault = f"{count} different labels, such as {clip_text(min(values))}"
        fix = f"name the columns, the label last: --data '{short_path(place)}: TEXT, LABEL'"
        kinds = f"2 to {MOST_CLASSES} classes that repeat, or numbers"
        raise refuse_content(f"{place}, column {column}", fault, kinds, fix)
    return coding


def _kind(rows: Sequence[Row], values: Mapping[str, float | None]) -> str:
    """Return CLASSES or SCORES by the spelling of labels.

    Names and few whole numbers are classes, and other numbers are scores. Raises
    Refused for several labels in a cell."""
    for row in rows:
        if SEVERAL.fullmatch(row.label):
            fault = f"several labels in one cell, {clip_text(row.label)}"
            raise refuse_content(row.place, fault, "one", "drop such rows")
    numbers = {value for value in values.values() if value is not None}
    if 2 * sum(value is not None for value in values.values()) <= len(values):
        return CLASSES
    if any(value % 1 for value in numbers) or any(n.endswith("%") for n in values):
        return SCORES
    is_gapless = max(numbers) - min(numbers) + 1 == len(numbers)
    most = min(MOST_CLASSES, len(rows) // 2) if is_gapless else MOST_GRADES
    return CLASSES if len(numbers) <= most else SCORES


def _scores(values: Mapping[str, float | None], is_open: bool) -> Coding:
    numbers = {label: value for label, value in values.items() if value is not None}
    low, high = min(numbers.values()), max(numbers.values())

    def code(label: str) -> float:
        return 5 * (numbers[label] - low) / (high - low)

    return Coding(
        SCORES, (), (low, high), code, (f"scores from {low:g} to {high:g}",), is_open
    )


def _classes(
    rows: Mapping[str, Sequence[Row]], values: Mapping[str, float | None]
) -> Coding:
    """Return the Coding of classes.

    Spellings of one number, such as "1" and "1.0", are one class. Raises Refused for
    names that differ in case or blanks alone, and for a class without a training
    row."""
    spellings: dict[str | float, list[str]] = {}
    for label, value in values.items():
        folded = " ".join(unicodedata.normalize("NFKC", label).casefold().split())
        spellings.setdefault(folded if value is None else value, []).append(label)
    names = {}
    for same in spellings.values():
        same.sort(key=lambda label: (len(label), label))
        names |= dict.fromkeys(same, same[0])
    joint = [" and ".join(same) for same in spellings.values() if len(same) > 1]
    lines = [f"one class each: {'; '.join(joint)}"] * bool(joint)
    classes = {names[row.label] for row in rows["train"]}
    order = sorted(classes, key=lambda name: (values[name] or 0.0, name))
    for row in (row for part in rows.values() for row in part):
        name, fault = names[row.label], f"label {clip_text(row.label)}"
        if values[name] is None and name != row.label:
            fault, fix = f"{fault} beside {clip_text(name)}", "spell them alike"
            raise refuse_content(row.place, fault, "one spelling of a class", fix)
        if name not in classes:
            expected = f"a class that a training row has: {', '.join(order[:20])}"
            fix = "spell it as they do, or drop the row"
            raise refuse_content(row.place, fault, expected, fix)
    first = ", ".join(order[:10])
    first += f" and {len(order) - 10} more" * (len(order) > 10)
    codes = {label: order.index(name) for label, name in names.items()}
    about = f"{len(order)} classes: {first}", *lines
    is_open = len(order) > 2 and all(values[name] is not None for name in order)
    return Coding(CLASSES, tuple(order), (0.0, 5.0), codes.__getitem__, about, is_open)
