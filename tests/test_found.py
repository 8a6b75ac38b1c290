"""What we found (`data/found.md`): its figures come from the records, and no number is
typed."""

import re

import pytest

from lib import data
from lib.claims import judging, lists
from lib.core import paths
from lib.core.store import Store
from lib.report import front, plot
from lib.report.verdicts import WORDS

pytestmark = pytest.mark.papers()  # The text is on all of them.
TEXT = (paths.DATA / "found.md").read_text()
FIELD = re.compile(r"\{(BASE\[)?([A-Z]\d+)\]?((?:\[[^\]]+\])*)(\.\w+)?\}")
SIDES = re.compile(
    r"\b(above|below|under|over|more|less|fewer|better|best|worse|higher|lower|beats?|helps?|"
    r"loses?|lost|far|gains?|rises?|falls?|mostly|outside|against|stays?|collapses?|learns?)\b"
)
# These sentences compare, and have no figure. They are on the papers, or on how runs
# were made, or name a comparison whose figure is the sentence before.
FACTS = {
    "GhostBERT's Table 1 compares a distilled BERT with ghosts and a plainly fine-tuned one.",
    "A part of each may be longer training: distilled models have twice the steps of those trained "
    "on labels alone, with augmented rows about three times, and in F5 the augmented rows double "
    "the steps of the distillation.",
    "The paper trains on augmented rows, about 20 new sentences of each row in the code that it "
    "builds on.",
    "So on STS-B the difference may be mostly whether a random network learns the task within two "
    "stages of three epochs; random networks that are retrained for longer (F18) have no runs.",
    "On STS-B students stay under half of the whole model's score, so neither is measured there.",
    "On STS-B no run of BERMo collapses either, but its score stays under half of the whole "
    "model's, so it is not counted.",
    "Masks over single weights leave matrices their size, so they save bytes and no time.",
}
# These numbers say which comparison it is, or are of the papers and of how runs were
# made.
NAMES = [
    r"(?:\d+|M)/12",  # widths and shares of FLOPs
    r"(?:10|30|40) % (?:of (?:the FLOPs|its weights)|NAS|on S(?:ST-2|TS-B)|IMP)",
    r"At 30 %:|, [13]0 %[:,]|to 10 %|at 10 %",
    r"95 %",
    r"Table 1\b",
    r"STS-B|SST-2|BERT-base|all-MiniLM-L6-v2",
    r"\bF\d+\b|\bG\d\b|[a-z]\d\d_\w+|_t\d\d_\w+|`91_frontier`",
    r"6 layers of 384(?:, 22\.7 M parameters)?|4,000 training rows",
    r"12 layers of 768(?:, 109 M parameters)?|all-mpnet-base-v2",
    r"8 of 10 against 0 of 10",  # BERMo's Table 3, runs of ten
    r"about 20 new sentences|20 sentences were",
    r"within 0\.2 points on average",  # BERMo's Table 5
    r"of N8 \(of the inputs",
    r"\(1e-4 in the first stage of 10 epochs, 1e-2 for the ghosts' kernels\)",  # trial D8 of base
    r"for 10 epochs where 25 are printed",
]
READINGS = ".verdict_text_of_first_comparison", ".verdict_text_with_symbol"
PARTS = dict(part.partition("\n\n")[::2] for part in f"\n{TEXT}".split("\n## ")[1:])


def sentences(text):
    return [
        s
        for line in text.split("\n")
        for s in re.split(r"(?<=[.?]) (?=[A-Z])", line.strip())
    ]


SENTENCES = [
    s
    for title, text in PARTS.items()
    if title != "README"
    for s in sentences(text)
    if s
]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The Verdicts at mini on all claims that the text names, and on all central ones,
    from the records."""
    store = Store(
        tmp_path_factory.mktemp("none") / "runs", paths.ROOT / "data" / "records"
    )
    ids = dict.fromkeys(
        [*judging.list_central_claim_ids(), *(id for _, id, *_ in FIELD.findall(TEXT))]
    )
    with data.plan_with_missing_data(use_local_data=False):
        return judging.judge_claims(list(ids), store)


@pytest.fixture(scope="module")
def found_at_base(tmp_path_factory):
    """The same at base, on all claims with planned runs there."""
    store = Store(
        tmp_path_factory.mktemp("none") / "runs", paths.ROOT / "data" / "records"
    )
    with data.plan_with_missing_data(use_local_data=False):
        return judging.judge_planned_claims("base", store)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_sentence_that_compares_has_a_figure_or_is_a_fact(sentence):
    figure = FIELD.search(sentence)
    assert figure or sentence in FACTS or not SIDES.search(sentence)


def test_every_fact_is_a_sentence():
    assert {*SENTENCES} >= FACTS and not [s for s in FACTS if FIELD.search(s)]


@pytest.mark.parametrize("title", PARTS)
def test_no_number_is_typed(title):
    """All figures are fields; what is left names a comparison, or is a fact that stands
    here."""
    text = re.sub(r"\{[^}]*\}", "", PARTS[title])
    for pattern in NAMES:
        text = re.sub(pattern, "", text)
    assert re.findall(r"[^\s|]*\d[^\s|]*", text) == []


def test_every_name_of_a_number_is_used():
    text = re.sub(r"\{[^}]*\}", "", TEXT)
    assert not [pattern for pattern in NAMES if not re.search(pattern, text)]


def test_no_word_is_typed():
    """A word on a comparison, or which claim has it, follows from the records alone."""
    text = re.sub(r"\{[^}]*\}", "", TEXT)
    assert not [
        word for word in WORDS if word in text.replace("neither is measured", "")
    ]
    assert "†" not in text.replace("† stays after Holm's correction", "")


def test_each_field_names_one_comparison_that_is_measured(found, found_at_base):
    """A field that names nothing would read "not measured", and one that names two the
    first."""
    fields = FIELD.findall(TEXT)
    assert len(fields) >= 60
    for base, id, keys, end in fields:
        verdict = found_at_base[id] if base else found[id]
        for key in re.findall(r"\[([^\]]+)\]", keys):
            verdict = verdict[key]
        assert end in (
            "",
            ".printed_effect_text",
            ".collapsed_runs_text",
            ".seed_count_text",
            *READINGS,
        ), (
            id,
            keys,
            end,
        )
        own = [r for r in verdict.results if not r.is_single_task_of_mean] or list(
            verdict.results
        )
        there = {(r.comparison.text, r.task) for r in own}
        assert len(there) == 1, (id, keys)
        if end == ".printed_effect_text":
            assert verdict.printed_effect_text != "–", (id, keys)
        assert str(verdict) != "not measured", (id, keys)
        assert (
            end not in READINGS
            or verdict.verdict_text_of_first_comparison != "not measured"
        ), (
            id,
            keys,
        )


def test_a_figure_and_its_printed_value_are_of_one_comparison():
    """ "{X} points (printed {Y.printed_effect_text})": X is Y."""
    pairs = re.findall(
        r"\{([^}]*)\}[^{}()]*\(printed \{([^}]*)\.printed_effect_text\}\)", TEXT
    )
    assert len(pairs) >= 8 and not [pair for pair in pairs if pair[0] != pair[1]]


def test_a_row_of_the_table_is_of_one_comparison():
    """So a printed value stands beside its own comparison."""
    rows = [row for row in PARTS["README"].splitlines() if row.startswith("| ")][1:]
    for row in rows:
        assert len({field[:3] for field in FIELD.findall(row)}) == 1, row


def test_a_line_of_a_paper_that_was_taken_away_is_left_out(monkeypatch):
    titles = dict(lists.PAPERS)
    lines = TEXT.splitlines()
    assert all(judging.needs_installed_papers_only(line) for line in lines)
    monkeypatch.delitem(lists.PAPERS, "bermo")
    left = [line for line in lines if not judging.needs_installed_papers_only(line)]
    assert len(left) == 2 and all("{PAPER[bermo]}" in line for line in left)
    assert len(titles) == 4


@pytest.mark.parametrize("paper", lists.PAPERS)
def test_a_paper_s_summary_has_its_rows_of_the_readme(paper):
    head, _, first, *rest = front.read_readme_results_table_of_paper(paper).splitlines()
    assert head.startswith("| comparison, ") and len(rest) >= 1
    assert first.startswith(f"| **{lists.PAPERS[paper]}**")
    assert not any("**" in row.split(" | ")[0] for row in rest)


def test_the_block_of_the_readme_is_that_of_the_records(found, found_at_base):
    """Else: python -m lib verify --write"""
    _, block, _ = (paths.ROOT / "README.md").read_text().split(judging.FOUND)
    texts = judging.fill_findings_template(found, found_at_base)
    assert block == texts["README"].strip() + "\n"
    assert [*texts] == [*PARTS] and not [
        t for t in texts.values() if "{" in t or not t.strip()
    ]


def test_a_record_that_is_gone_changes_the_text(found, found_at_base, tmp_path):
    empty = Store(tmp_path / "runs", tmp_path / "records")
    with data.plan_with_missing_data(use_local_data=False):
        none = judging.judge_claims(list(found), empty)
        none_at_base = judging.judge_planned_claims("base", empty)
    before = judging.fill_findings_template(found, found_at_base)
    after = judging.fill_findings_template(none, none_at_base)
    for title, text in before.items():
        assert text != after[title] and "not measured" in after[title], title
    assert "+64.8" in after["Searched, or random?"]  # Print stays.
    assert ": 0 measured, " in after["README"]


def test_the_text_and_the_picture_of_the_claims_have_one_total(found):
    """What is measured is in points and has a bar, or has another unit."""
    central = judging.list_central_claim_ids()
    every = judging.select_results_without_repeats_and_single_tasks(found, central)
    measured = [r for r in every if r.verdict_word != "not measured"]
    text = judging.summarise_central_verdicts(found)
    drawn = judging.make_forest_plot_rows(found, central)
    total, ours, parts, left = re.match(
        r"(\d+) central comparisons at mini: (\d+) measured \((.*?)\), (\d+) not measured\.",
        text,
    ).groups()
    assert int(total) == len(every) == int(ours) + int(left)
    assert int(ours) == len(measured) == sum(map(int, re.findall(r"\d+", parts)))
    bars = drawn["low"].notna().sum()
    assert bars == sum(r.unit == "points" for r in measured)
    counted = plot.format_forest_plot_title(drawn, "").split("; ")[0]
    counts = [int(number) for number in re.findall(r"\d+", counted)]
    assert counts[0] == bars == sum(counts[1:])


def test_the_share_that_is_shut_out_is_of_central_comparisons_that_count(found):
    out, total = judging.count_printed_effects_outside_intervals(found)
    held = [
        r
        for id in judging.list_central_claim_ids()
        for r in found[id].results
        if not (
            r.is_single_task_of_mean or r.claim_that_counts_it or r.unmeasured_reason
        )
        and r.printed is not None
    ]
    inside = [r for r in held if r.estimate.low <= r.printed <= r.estimate.high]
    assert (out, total) == (len(held) - len(inside), len(held)) and 0 < out <= total
    assert {lists.read_claims()[r.claim]["role"] for r in held} == {"central"}
