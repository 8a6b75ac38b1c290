"""The words of `verdicts.csv` by an independent script, and all pages held to them.

The script knows the file's columns and nothing of lib. The last tests make a page by
lib, to show that the script finds what differs."""

import csv
import html
import io
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "figures").glob("*/*.page.md"))
PAGES = [path for path in PAGES if path.parent.name in ("base", "mini")]
WORDS = (
    "agrees",
    "the other way round",
    "no such effect here",
    "too noisy to say",
    "not measured",
)
MARKS = dict(zip(WORDS, "✓✗○?–", strict=True))
HEAD = "| statement | ours [95 %] | printed | word |"
SEEDS = 3


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


LINES = read(ROOT / "data" / "records" / "verdicts.csv")


def number(line, column, other=np.nan):
    return float(line[column]) if line[column] else other


def word(line):
    """The first of five rules that fits a line of verdicts.csv."""
    null, low, high = (number(line, name) for name in ("no_effect", "low", "high"))
    least = number(line, "region_low", -np.inf)
    most = number(line, "region_high", np.inf)
    aim = number(line, "printed", number(line, "interest"))
    if number(line, "interest") == null:  # It is read as a direction alone.
        aim = np.nan
    if line["reason"] or number(line, "seeds") < SEEDS or np.isnan(low):
        return "not measured"
    if least <= low and high <= most:
        return "agrees"
    if high < least or low > most:
        return "the other way round"
    if least <= aim <= most and (null < high < aim or high <= null < aim):
        return "no such effect here"
    if least <= aim <= most and (aim < low < null or aim < null <= low):
        return "no such effect here"
    return "too noisy to say"


def size(line):
    """Whether an interval that agrees is nearer to no effect than the printed value, or
    beyond."""
    null, low, high = (number(line, name) for name in ("no_effect", "low", "high"))
    printed, mean = number(line, "printed"), number(line, "estimate")
    interest = number(line, "interest")
    least = number(line, "region_low", -np.inf)
    most = number(line, "region_high", np.inf)
    if word(line) == "agrees" and np.isnan(printed) and interest != null:
        below = high < interest if interest > null else low > interest
        return "weaker than the effect of interest" * bool(
            below and least <= interest <= most
        )
    aims = printed != null and least <= printed <= most
    if word(line) != "agrees" or not aims or low <= printed <= high:
        return ""
    if np.isfinite(least) == np.isfinite(most):
        stronger = abs(mean - null) > abs(printed - null)
    else:  # The claim has a direction.
        stronger = mean > printed if np.isfinite(least) else mean < printed
    return "stronger than printed" if stronger else "weaker than printed"


def digits(line, value):
    """A number as a page has it, without a plus sign: never 0 where it is not 0."""
    slope = any(
        word in line["cell"].partition(" ::")[0] for word in ("per ", "straighter")
    )
    points = line["unit"].startswith("points") and not (slope or " | " in line["cell"])
    large = points or (number(line, "no_effect") and abs(value) >= 1)
    if abs(value) < 1e-4:  # What a sum of shares leaves in place of 0
        value = 0.0
    text = np.format_float_positional(
        value, precision=2 - bool(large), min_digits=2 - bool(large)
    )
    if value and not float(text):
        exact = float(np.format_float_scientific(value, precision=0))
        text = np.format_float_positional(exact)
    return text.replace("-", "−")


def ours(line):
    """What was measured, with its remarks, as a page has it, without plus signs."""
    return value(line) + "".join(f" ({remark})" for remark in remarks(line) if remark)


def value(line):
    """What was measured, without plus signs."""
    if line["counts"] and line["counts"] != "nan":
        text = line["counts"]
    elif not line["estimate"]:
        text = "–"
    elif line["reason"]:
        seeds = line["seeds"]
        text = f"{digits(line, number(line, 'estimate'))} ({seeds} seed{'s' * (seeds != '1')})"
    else:
        mean, *ends = (
            digits(line, number(line, name)) for name in ("estimate", "low", "high")
        )
        text = f"{mean} [{', '.join(ends)}]"
    return text


def remarks(line):
    """What stands beside the value: collapsed runs, and seeds that are missing yet."""
    yield line["collapsed"]
    is_interim = line["low"] and not line["counts"] and not line["reason"]
    count = max(int(line["seeds"]), int(line["done"]))
    if is_interim and count < int(line["planned"]):
        yield f"{count} of {line['planned']} planned seeds so far"


def reading(line):
    """The word with its size and Holm's mark, as a page has it."""
    own = word(line)
    has_region = line["region_low"] and line["region_high"]
    if own == "the other way round" and has_region and " value " not in line["cell"]:
        own += ": they differ"
    stays = word(line) in WORDS[:3] and line["holm"] and float(line["holm"]) < 0.05
    return own + f" ({size(line)})" * bool(size(line)) + " †" * bool(stays)


def plain(cell):
    """The text of a cell of a Markdown table."""
    return html.unescape(
        re.sub(r"\\([*|])", r"\1", re.sub("<[^>]*>", "", cell))
    ).strip()


def comparisons(text):
    """[(claim, sentence, task of a part or "", ours, word and what belongs to it)] of a
    page."""
    found, claim, whole, inside = [], "", "", False
    for row in text.splitlines():
        if not row.startswith("|"):
            inside = False
        elif row.strip() == HEAD:
            inside = True
        elif inside and not row.startswith("|---"):
            cells = re.split(r"(?<!\\)\|", row.strip())[1:-1]
            if hit := re.match(r" \*\*([A-Z]\d+) ", cells[0]):
                claim = hit[1]
                continue
            first, measured, _, told = map(plain, cells)
            part = re.fullmatch(r"on (\S+) alone", first)
            whole = whole if part else first
            # A word has its mark before it, and a reason behind it.
            told = told.partition(" ")[2].partition("not measured: ")
            told = "not measured" if told[1] else told[0]
            found.append(
                (claim, whole, part[1] if part else "", measured.replace("+", ""), told)
            )
    return found


def faults(text, lines, profile="mini"):
    """What a page has that the lines of a profile have not: a list of sentences."""
    by = {}
    for line in lines:
        if line["profile"] == profile:
            by.setdefault((line["claim"], line["sentence"]), []).append(line)
    found = []
    for claim, sentence, task, measured, told in comparisons(text):
        if task:
            cells = {line["cell"] for line in by.get((claim, sentence), ())}
            own = [x for x in lines if x["claim"] == claim and x["cell"] in cells]
            own = [x for x in own if x["task"] == task and x["profile"] == profile]
        else:
            own = by.get((claim, sentence), [])
        if not own:
            found.append(f"{claim} {sentence} {task}: no line of verdicts.csv")
        if not any((ours(x), reading(x)) == (measured, told) for x in own):
            wanted = " or ".join(f"{ours(x)} {reading(x)}" for x in own)
            found.append(f"{claim} {sentence} {task}: {measured} {told}, not {wanted}")
    return found


def test_enough_comparisons_have_an_interval():
    assert sum(bool(line["low"]) and bool(line["high"]) for line in LINES) >= 50
    decided = [line for line in LINES if line["family"]]
    assert len(decided) >= 50 and {line["word"] for line in LINES} == {*WORDS}


def test_each_word_and_size_is_that_of_the_rules():
    wrong = [
        (line["claim"], line["cell"], line["task"], line["word"], word(line))
        for line in LINES
        if (line["word"], line["size"]) != (word(line), size(line))
    ]
    assert wrong == []


def test_a_line_has_a_reason_where_it_is_not_measured_and_an_interval_elsewhere():
    for line in LINES:
        measured = line["word"] != "not measured"
        about = line["claim"], line["cell"], line["task"]
        # Turns of a clock, and counts that are all or none, have no test.
        is_count = line["counts"] and line["region_low"] == line["region_high"]
        is_tested = line["unit"] != "times as fast as BERT-base" and not is_count
        assert measured == bool(line["low"] and line["high"]), about
        assert bool(line["p"]) == (measured and is_tested), about
        assert measured == (not line["reason"]), about
        if measured:
            low, mean, high = (
                number(line, name) for name in ("low", "estimate", "high")
            )
            assert low <= mean <= high and number(line, "seeds") >= SEEDS, about
            assert not line["p"] or 0 <= number(line, "p") <= 1, about
        assert bool(line["holm"]) == bool(line["family"]), about
        assert not line["holm"] or number(line, "holm") >= number(line, "p") - 1e-8, (
            about
        )
        assert line["sentence"] and line["unit"] and line["word"] in WORDS, about
        # No model has more seeds than are planned; turns of a clock are no seeds.
        assert int(line["done"]) <= int(line["planned"]) or not line["planned"], about


def test_a_decided_word_has_a_p_below_0_05():
    """The interval and p come from one distribution; counts and ratios have exact
    ones."""
    for line in LINES:
        if (
            line["word"] in WORDS[:3]
            and not line["counts"]
            and line["unit"] == "points"
        ):
            assert number(line, "p") <= 0.0501, (
                line["claim"],
                line["cell"],
                line["task"],
            )


def test_a_comparison_that_stands_twice_has_one_value():
    """Also where two claims have it, it has the seeds and the word of the one that
    counts it."""
    values = {}
    for line in LINES:
        key = line["claim"], line["cell"], line["task"], line["profile"]
        values.setdefault(key, set()).add((ours(line), line["word"]))
    assert not [(key, found) for key, found in values.items() if len(found) > 1]
    twins = [line for line in LINES if line["same_as"]]
    assert len(twins) >= 10 and not [line for line in twins if line["family"]]
    for line in (line for line in twins if line["low"]):
        where = line["same_as"], line["profile"]
        own = [x for x in LINES if (x["claim"], x["profile"]) == where and x["low"]]
        sizes = [abs(number(x, "estimate")) for x in own if x["task"] == line["task"]]
        parts = line["task"].split(
            "/"
        )  # The other claim may have the tasks of a mean alone.
        for cell in {x["cell"] for x in own} if len(parts) > 1 else ():
            of = [
                number(x, "estimate")
                for x in own
                if x["cell"] == cell and x["task"] in parts
            ]
            sizes += [abs(np.mean(of))] if len(of) == len(parts) else []
        assert any(np.isclose(abs(number(line, "estimate")), sizes)), (
            line["claim"],
            line["cell"],
        )
        region = "task", "region_low", "region_high", "estimate", "low"
        same = [x["word"] for x in own if all(x[k] == line[k] for k in region)]
        assert not same or line["word"] in same, (line["claim"], line["cell"], same)


def id_of(path):
    base = "base " if path.parent.name == "base" else ""
    return base + path.name.partition(".")[0]


@pytest.mark.parametrize("path", PAGES, ids=id_of)
def test_a_page_has_the_words_and_values_of_the_records(path):
    """Else: make the page again, with the profile that its folder names."""
    assert faults(path.read_text(), LINES, path.parent.name) == []


def test_no_two_pages_show_two_values_of_one_comparison():
    values, found = {}, [(path, comparisons(path.read_text())) for path in PAGES]
    for path, rows in found:
        for claim, sentence, task, measured, told in rows:
            key = path.parent.name, claim, sentence, task
            values.setdefault(key, {}).setdefault((measured, told), path.name)
    assert not {key: each for key, each in values.items() if len(each) > 1}


def test_pages_have_comparisons():
    """Pages of another form than this script reads are older than the records: make
    them again."""
    assert sum(bool(comparisons(path.read_text())) for path in PAGES) >= 20


@pytest.mark.papers()
def test_the_first_screen_has_the_words_and_values_of_the_records():
    text = (ROOT / "README.md").read_text()
    block = text.split("<!-- found: `python -m lib verify --write` -->")[1]
    lines = [
        line for line in LINES if line["profile"] == "mini" and not line["same_as"]
    ]
    known = {}
    for line in LINES:
        if line["profile"] in ("mini", "base"):
            known.setdefault(value(line), []).append(line)
    interval = r"\+?−?[\d.]+ \[−?[\d.]+, −?[\d.]+\]|\d+ of \d+ against \d+ of \d+"
    told = rf"(?:{'|'.join(WORDS)})(?: \((?:weaker|stronger) than [a-z ]+\))?(?: †)?"
    rows = [row.split(" | ") for row in block.splitlines() if row.startswith("| ")][1:]
    assert len(rows) >= 18 and sum(row[0].startswith("| **") for row in rows) == 5
    for _, values, printed, words in rows:
        (found,), (shown,) = re.findall(interval, values), re.findall(told, words)
        readings = {reading(line) for line in known.get(found.replace("+", ""), [])}
        assert shown in readings, (values, words)
        assert words == f"{MARKS[shown.split(' (')[0].removesuffix(' †')]} {shown} |"
        block = block.replace(f" | {printed} | ", " | ")
    everywhere = {each.replace("+", "") for each in re.findall(interval, block)}
    assert len(everywhere) >= 12 and everywhere <= {*known}
    central = {
        row["id"]
        for path in (ROOT / "data" / "published").glob("*/claims.csv")
        for row in read(path)
        if row["role"] == "central"
    }
    held = [
        x
        for x in lines
        if x["claim"] in central
        and x["word"] != "not measured"
        and not x["beside"]
        and x["printed"]
    ]
    out = [
        x
        for x in held
        if not number(x, "low") <= number(x, "printed") <= number(x, "high")
    ]
    agree = sum(x["word"] == "agrees" for x in out)
    every = [x for x in lines if x["claim"] in central and not x["beside"]]
    counts = {word: sum(x["word"] == word for x in every) for word in WORDS}
    measured = len(every) - counts["not measured"]
    words = f"{counts['agrees']} agree, {counts['the other way round']} the other way round, "
    words += f"{counts['no such effect here']} no such effect here, "
    words += f"{counts['too noisy to say']} too noisy to say"
    total = f"{len(every)} central comparisons at mini: {measured} measured ({words}), "
    assert f"{total}{counts['not measured']} not measured" in block
    stay = [reading(x) for x in every if reading(x).endswith("†")]
    first = sum(text.startswith("agrees") for text in stay)
    assert f"After Holm's correction {len(stay)} stay (†): {first} agree, " in block
    shut = (
        f"Of {len(held)} with a printed value {len(out)} have it outside our interval"
    )
    assert f"{shut} ({agree} of these in the claimed region)." in block


def result(low, high, text="a > b", seeds=3, **more):
    from lib.claims.cells import parse_comparison
    from lib.claims.words import Result
    from lib.stats.paired import Estimate

    e = Estimate(
        (low + high) / 2, low, high, seeds, 1, 1.0, 0.04, degrees_of_freedom=4.0
    )
    told = {
        "sentence": f"{text}, {low} to {high}",
        "axis_label": text,
        "holm_p_value": 0.01,
    } | more
    return Result("G1", parse_comparison(text), "SST-2", e, seeds, seeds, **told)


RESULTS = [
    result(1.2, 2.2, printed=1.5),
    result(1.0, 2.0, printed=5.0),
    result(-2.0, -1.0),
    result(3.0, 4.0, "a ~ b +- 1"),
    result(-1.0, 0.96, printed=1.0),
    result(-1.0, 1.0, printed=-1.0),
    result(-0.02, 1.0, printed=2.0, collapsed="1 of 3 runs of b collapsed"),
    result(0.5, 0.9, "variance ratio :: a over b <= value 1", printed=0.2),
    result(0.8, 1.4, "variance ratio :: a over b <= value 1", printed=0.5),
    result(1.0, 2.0, seeds=2),
    result(1.0, 2.5, reason="b learned nothing on SST-2"),
    result(100.0, 100.0, "diverged :: a > b", counts="3 of 3 against 0 of 3"),
    result(40.0, 40.0, "diverged :: a = value 0", counts="2 of 5"),
    result(1.0, 4.0, "c > d"),
    result(0.0, 3.0, "c > d", is_single_task_of_mean=True, holm_p_value=None),
]


@pytest.fixture(scope="module")
def made():
    """(a light page of these Results by the template, their lines of verdicts.csv)."""
    from lib.claims import judging
    from lib.claims.words import Verdict
    from lib.report import artefact, verdicts

    verdict = Verdict("G1", tuple(RESULTS), "a | b", "mini", "finding")
    told = [verdicts.convert_verdict_to_json(verdict) | {"leading": True}]
    more = {"deviations": {}, "id": "x", "counted": "", "folder": "", "judged": []}
    text = artefact.END.render(more | {"verdicts": told})
    with io.StringIO() as file:
        table = csv.writer(file)
        table.writerow(judging.HEAD)
        table.writerows(judging.format_verdicts_csv_rows({"G1": verdict}))
        file.seek(0)
        return text, list(csv.DictReader(file))


@pytest.mark.papers("ghostbert")
def test_a_page_of_all_words_is_read(made):
    text, lines = made
    rows = comparisons(text)
    assert len(rows) == len(RESULTS) == len(lines) and rows[-1][2] == "SST-2"
    assert [line["word"] for line in lines] == [word(line) for line in lines]
    assert {line["word"] for line in lines} == {*WORDS}
    assert "the other way round: they differ †" in [row[-1] for row in rows]
    assert faults(text, lines) == []


@pytest.mark.papers("ghostbert")
@pytest.mark.parametrize(
    "old, new",
    [
        ("✓ agrees", "○ no such effect here"),
        ("✗ the other way round</span> †", "✗ the other way round</span>"),
        ("+1.7 [1.2, 2.2]", "+1.7 [1.1, 2.2]"),
        ("−1.5 [−2.0, −1.0]", "1.5 [1.0, 2.0]"),
        (" (weaker than printed)", ""),
        (": they differ", ""),
        (" (1 of 3 runs of b collapsed)", ""),
        ("3 of 3 against 0 of 3", "2 of 3 against 0 of 3"),
        ("(2 seeds)", "(3 seeds)"),
        ("a &gt; b, 1.0 to 2.0", "a &gt; c, 1.0 to 2.0"),
        ("on SST-2 alone", "on STS-B alone"),
    ],
)
def test_a_page_that_differs_is_found(made, old, new):
    text, lines = made
    assert old in text
    assert faults(text.replace(old, new, 1), lines)


@pytest.mark.parametrize(
    "column", ["low", "high", "region_low", "printed", "reason", "seeds"]
)
def test_a_column_that_changes_changes_a_word(column):
    """No column is there for show: another value gives another word somewhere."""
    other = {"low": "-1000", "high": "1000", "region_low": "-1000", "printed": ""}
    other |= {"reason": "lacking", "seeds": "2"}
    measured = [line for line in LINES if line["low"]]
    assert any(
        word(line | {column: other[column]}) != line["word"] for line in measured
    )
