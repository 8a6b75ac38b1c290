"""The claims, the inconsistencies and the coverage under `data/published`, held to the
tables.

`lib.claims.checks` evaluates the formulas of these files.
"""

import os
import random
import re
from fractions import Fraction
from functools import cache

import pytest

from lib.claims import checks, lists, notebook
from lib.claims import judging as source
from lib.claims.cells import parse_comparisons
from lib.claims.lists import PAPERS
from lib.claims.lists import read_csv_in_published_folder as read
from lib.core.paths import PUBLISHED
from lib.core.spec import find_transitive_input_specs
from lib.model.formula import NUMPY
from lib.papers.efficientbert.search import net
from lib.papers.nas_pruning import gated
from lib.stats import cost

NO_TABLE = ("cells", "claims", "corrections", "checks", "misses", "settings")
RULES = "delta ordering trend within reached equal together none".split()
DEVIATIONS = set(
    "data model schedule search control hardware unspecified implementation".split()
)
KINDS = {"order", "difference", "ratio", "count", "trend", "shape", "statement"}
ROLES = {"central", "finding", "arithmetic", "setting", "background"}


@cache
def checked():
    """{id: (value, cells that it read)} of the claims that follow from printed
    cells."""
    found = {id: c for id, c in lists.read_claims().items() if c["check"]}
    return {
        id: checks.evaluate_formula_on_printed_tables(c["paper"], c["check"])
        for id, c in found.items()
    }


def touched(paper, table, column, row=None):
    """The ids of the claims whose check reads one printed cell, or a column without a
    row."""
    return [
        id
        for id, (_, cells) in checked().items()
        if lists.read_claims()[id]["paper"] == paper
        and any((t, c) == (table, column) and row in (None, i) for t, c, i in cells)
    ]


def test_central_claims_come_first_and_are_those_of_their_own_file():
    for paper in PAPERS:
        wanted = [line for line in read("central") if line["paper"] == paper]
        found = read(f"{paper}/claims")
        for line, claim in zip(wanted, found[: len(wanted)], strict=True):
            told = [
                claim[name]
                for name in ("id", "claim", "locator", "value", "role", "central")
            ]
            asked = [line[name] for name in ("id", "claim", "locator", "published")]
            assert told == [*asked, "central", line["id"]]
        assert [c["role"] for c in found].count("central") == len(wanted)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_claim_is_whole(paper):
    claims = read(f"{paper}/claims")
    pages = {notebook.make_notebook_id(path) for path in notebook.find_notebooks()}
    central = {line["id"] for line in read("central")}
    for name in ("id", "claim", "says"):
        assert len({c[name] for c in claims}) == len(claims), name
    for c in claims:
        assert all(c[name] for name in ("id", "locator", "value", "rule")), c
        assert c["kind"] in KINDS and c["role"] in ROLES and c["says"].endswith("."), c
        rule = c["rule"].split(":")[0]
        assert rule in RULES and (rule == "none") == (c["role"] == "background"), c
        assert bool(c["margin"]) == (rule != "none"), c
        assert set(filter(None, c["artefact"].split("; "))) <= pages, c
        alone = c["rule"].endswith(
            ("no page has it", "to be made on the page of the frontier")
        )
        assert c["artefact"] or rule == "none" or alone, c
        assert set(filter(None, c["deviations"].split("; "))) <= DEVIATIONS, c
        assert bool(c["deviations"]) == (c["role"] in ("central", "finding")), c
        assert not c["central"] or c["central"] in central, c
        assert bool(parse_comparisons(c["cells"])) == bool(c["cells"]), c
        if c["role"] == "finding":
            assert c["cells"] or c["cannot"], (
                c["id"],
                "say what decides it, or why nothing can",
            )


def test_a_claim_follows_from_the_tables_or_an_inconsistency_names_it():
    named = {id for i in read("inconsistencies") for id in i["claims"].split("; ")}
    for id, (found, _) in checked().items():
        assert (
            checks.agrees_with_printed_text(found, lists.read_claims()[id]["value"])
            or id in named
        ), (
            id,
            found,
        )


def test_inconsistencies_that_repeat_another_table_have_a_twin_that_counts():
    lines = read("inconsistencies")
    numbers = [(i["paper"], i["printed"], i["recomputed"]) for i in lines]
    counting = {n for n, i in zip(numbers, lines, strict=True) if not i["apart"]}
    for number, line in zip(numbers, lines, strict=True):
        assert line["apart"] in ("", "repeat", "rounding"), line
        if line["apart"] == "repeat":
            assert number in counting, line
        if line["apart"] == "rounding":  # half a unit of each of the numbers behind it
            assert abs(float(number[1]) - float(number[2])) <= 0.1 + 1e-9, line


def test_inconsistencies_are_computed_again():
    for line in checks.read_inconsistencies_csv_with_computed_values():
        assert all(
            line[name] for name in ("locator", "sort", "printed", "note", "what_we_do")
        ), line
        printed = checks.parse_printed_cell(line["printed"])
        if line["cell"]:
            assert (
                checks.evaluate_formula_on_printed_tables(line["paper"], line["cell"])[
                    0
                ]
                == printed
            ), line
        assert bool(line["how"]) == bool(line["recomputed"]), line
        if line["how"]:
            assert checks.agrees_with_printed_text(line["found"], line["recomputed"]), (
                line
            )
            assert checks.parse_printed_cell(line["recomputed"]) != printed, line
        assert (
            set(filter(None, line["claims"].split("; "))) <= lists.read_claims().keys()
        ), line


@pytest.mark.papers("ghostbert")
@pytest.mark.parametrize(
    "formula, message",
    [
        ("open('x')", "name 'open' is not defined"),
        ("cell('table3', 'GhostBERT Avg. acc', '5/12')", "table3.csv has no row 5/12"),
        (
            "setting('ghostbert_t03_pruned_vs_ghost', 'distil', 'train.rate')",
            "has train.rate at",
        ),
    ],
)
def test_a_formula_that_asks_for_what_is_not_there_is_refused(formula, message):
    with pytest.raises((ValueError, NameError), match=message):
        checks.evaluate_formula_on_printed_tables("ghostbert", formula)


def test_a_variable_of_an_expression_hides_a_name_of_math():
    assert checks.evaluate_printed_equation("2 * e", e=3) == 6
    assert (
        checks.evaluate_printed_equation("c * tau^2", "c = 2 * gamma", tau=3, gamma=1)
        == 18
    )
    assert checks.evaluate_printed_equation("max(e, 2)") > 2.7


def test_every_printed_column_feeds_a_claim_or_says_why_not():
    told = {(c["paper"], c["table"], c["column"]): c for c in read("coverage")}
    files = [
        (paper, path.stem)
        for paper in PAPERS
        for path in (PUBLISHED / paper).glob("*.csv")
    ]
    columns = [
        (*file, name)
        for file in files
        if file[1] not in NO_TABLE
        for name in read("/".join(file))[0]
    ]
    assert len(told) == len(read("coverage")) and set(told) == set(columns)
    for key, line in told.items():
        assert line["claims"] == "; ".join(touched(*key)), key
        assert bool(line["claims"]) != bool(line["why_none"]), key


@pytest.mark.papers("ghostbert")
def test_a_changed_number_names_the_claims_that_it_touches():
    assert touched("ghostbert", "table9", "CoLA", 6) == ["G58", "G61", "G66"]
    assert set(touched("ghostbert", "table4", "Avg.", 2)) < set(
        touched("ghostbert", "table4", "Avg.")
    )
    assert touched("nas_pruning", "table01_elmo_gpt_bert", "BERT") == []


# What is broken is drawn anew each time; a failure names the seed, and BREAK=seed draws
# it again.

SEED = int(os.environ.get("BREAK") or random.SystemRandom().randrange(10**6))
NAMES = [row["Operation"] for row in read("efficientbert/table01_operations")]
OPERATIONS = [name.lower().replace(" ", "_") for name in NAMES]
FUNCTIONS = {
    "parameters": cost,
    "flops": cost,
    "count_ghost_parameters": cost,
    "count_ghost_flops": cost,
}
FUNCTIONS |= {
    "count_attention_parameters": net,
    "count_ffn_parameters": net,
    "compute_flops_share_by_part": gated,
    "count_masked_encoder_flops": gated,
}


@pytest.fixture
def rng(request):
    print(f"BREAK={SEED}")  # pytest shows it where a test fails
    return random.Random(f"{SEED} {request.node.name}")


def holds(id):
    """Whether a claim is computed and agrees; one whose formula cannot be evaluated
    does not."""
    try:
        return (
            source.judge_claim_by_formula(lists.read_claims()[id]).verdict_word
            == "equal"
        )
    except Exception:
        return False


@cache
def whole():
    """The ids of the claims on arithmetic and settings that hold while nothing is
    broken."""
    lines = lists.read_claims().items()
    return [
        id
        for id, line in lines
        if line["role"] in ("arithmetic", "setting") and holds(id)
    ]


def of(*functions):
    """The ids of those whose formula calls one of these functions."""
    formulas = {id: lists.read_claims()[id]["check"] for id in whole()}
    return [
        id
        for id, text in formulas.items()
        if any(f"{name}(" in text for name in functions)
    ]


def test_a_broken_setting_turns_the_claim_that_states_it(rng):
    ids = of("setting", "settings")
    assert ids
    for id in ids:
        with pytest.MonkeyPatch.context() as patch:
            broken = break_setting(id, rng, patch)
            assert not holds(id), (id, broken)


def break_setting(id, rng, patch):
    """Change one of the settings that a formula reads in the Specs that `paper` makes.
    Returns what was changed."""
    asked, setting = [], checks.collect_setting_values_of_full_size_runs

    def noted(*where, **labels):
        asked.append((where, labels))
        return setting(*where, **labels)

    with pytest.MonkeyPatch.context() as during:
        during.setitem(checks.OURS, "setting", noted)
        assert holds(id)
    (page, step, path), labels = rng.choice(asked)
    specs = {
        row["spec"]
        for row in checks.list_full_size_runs_of_notebook(page)
        if labels.items() <= row.items()
    }
    part, *names = path.split(".")
    value = rng.randrange(10**6, 10**7)
    for args in [
        each.args
        for each in specs | find_transitive_input_specs(specs)
        if each.step == step
    ]:
        told = args.get(part)
        if not names:
            patch.setitem(args, part, value)
        for place in told if isinstance(told, list) else [told]:
            for name in names[:-1]:
                place = place.get(name)
            if (
                names
                and isinstance(place, dict)
                and place.get("op", "ghost") == "ghost"
            ):
                patch.setitem(place, names[-1], value)
    return page, step, path, labels, value


def test_a_row_more_turns_the_claims_that_count_them(monkeypatch):
    axis, ids = checks.collect_label_values_of_full_size_runs, of("axis")
    monkeypatch.setitem(checks.OURS, "axis", lambda *where: axis(*where) | {-1})
    assert ids and not [id for id in ids if holds(id)]


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_broken_operation_turns_the_claim_on_formulas(name, rng, monkeypatch):
    (id,) = of("operation")
    function, off = NUMPY[name], rng.choice((-1, 1)) * 10 ** rng.uniform(-3, 1)
    monkeypatch.setitem(NUMPY, name, lambda *x: function(*x) + off)
    assert not holds(id), off


@pytest.mark.papers("ghostbert")
@pytest.mark.parametrize("what", FUNCTIONS)
def test_a_broken_count_turns_the_claims_that_state_it(what, rng, monkeypatch):
    called = re.compile(f"[':]{what}'")
    ids = [
        id
        for id in of("counted", "ours")
        if called.search(lists.read_claims()[id]["check"])
    ]
    function, factor = getattr(FUNCTIONS[what], what), rng.uniform(1.1, 3)

    def broken(*at, **told):
        found = function(*at, **told)
        parts = found if isinstance(found, dict) else {"": found}
        parts = {
            name: int(factor * part * 1000) / 1000 + 1 for name, part in parts.items()
        }
        return parts if isinstance(found, dict) else parts[""]

    monkeypatch.setattr(FUNCTIONS[what], what, broken)
    assert ids and not [id for id in ids if holds(id)], factor


def test_broken_cells_turn_the_claim_that_reads_them(rng):
    """Cells that it reads, drawn one after another, become larger, smaller or as
    another one."""
    ids = [id for id in of("") if checked()[id][1]]
    assert ids
    for id in ids:
        with pytest.MonkeyPatch.context() as patch:
            tries = (break_cell(id, rng, patch) for _ in range(100))
            assert not all(holds(id) for _ in tries), (
                f"{id} holds whatever its cells are"
            )


def break_cell(id, rng, patch):
    """Change one of the cells that a formula reads."""
    there = [
        (
            lists.read_csv_in_published_folder(
                f"{lists.read_claims()[id]['paper']}/{table}"
            )[row],
            column,
        )
        for table, column, row in checked()[id][1]
    ]
    (row, column), (other, name) = rng.choice(there), rng.choice(there)
    size = rng.choice((-1, 1)) * 10 ** rng.uniform(-4, 4)  # ratios too have all sizes
    number, alike = (
        isinstance(checks.parse_printed_cell(cell), Fraction)
        for cell in (row[column], other[name])
    )
    values = [str(size) if number else f"broken {rng.random()}"]
    values += [other[name]] * (alike == number)
    patch.setitem(row, column, rng.choice(values))


def test_every_settings_formula_and_count_claim_can_turn():
    """No check is a sum of typed numbers: it reads cells, settings, rows or counts of
    this code."""
    for id in of(""):
        ours = any(
            f"{name}(" in lists.read_claims()[id]["check"] for name in checks.OURS
        )
        assert ours or checked()[id][1], (id, lists.read_claims()[id]["check"])


def test_no_check_counts_rows_or_compares_a_text_with_itself():
    """A formula on a setting asks what the Specs have, or compares several rows."""
    for id, line in lists.read_claims().items():
        if line["role"] == "setting" and line["check"]:
            _, cells = checked()[id]
            assert (
                checks.formula_uses_project_code(line["check"])
                or len({(t, row) for t, _, row in cells}) > 1
            ), (
                id,
                line["check"],
            )
