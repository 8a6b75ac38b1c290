import json
import re

import pandas as pd
import pytest

from lib.claims import lists, notebook
from lib.core.papers import list_papers_by_name
from lib.papers import grids, published


@pytest.mark.papers("ghostbert")
@pytest.mark.parametrize(
    "paper, name, said",
    [
        ("gostbert", "table1", "ghostbert"),
        ("ghostbert", "table12", "table11"),
        ("ghostbert", "../central", "table1"),
    ],
)
def test_an_unknown_name_is_refused_with_what_is_allowed(paper, name, said):
    with pytest.raises(ValueError, match=said):
        published.read_table(paper, name)


@pytest.mark.papers("ghostbert")
def test_a_dash_is_missing_and_a_width_stays_text():
    frame = published.read_table("ghostbert", "table2").set_index("Model")
    assert frame["QQP"].isna().sum() == 2
    assert pd.api.types.is_float_dtype(frame["QQP"])
    assert published.read_table("ghostbert", "table10")["m"].iloc[0] == "1/12"


@pytest.mark.papers()
def test_every_claim_has_an_id_of_its_own():
    claims = pd.DataFrame(lists.read_csv_in_published_folder("central"))
    assert claims["id"].is_unique
    assert set(claims["paper"]) == {
        "ghostbert",
        "efficientbert",
        "bermo",
        "nas_pruning",
    }
    assert not (claims == "").any(axis=None)


@pytest.mark.papers("ghostbert")
def test_rows_for_a_page_hold_the_printed_columns_alone():
    found = published.make_printed_score_table("ghostbert", "table4", "Model", [1])
    names = ("GhostBERT", "- DA & KD", "- Softmax", "- ReLU")
    assert list(found) == [("1/12", name) for name in names]
    row = found["1/12", "- ReLU"]
    assert row["published", "average"] == 78.1
    assert {("published", "Model"), ("published", "m")}.isdisjoint(row)


@pytest.mark.papers("ghostbert", "efficientbert")
def test_corrections_are_lines_for_the_places_that_they_name():
    wrong = published.list_transcription_corrections("efficientbert", "table03")[1]
    kept = published.list_transcription_corrections("ghostbert", "table9")[0]
    assert wrong.startswith(
        "NAS-BERT_30, Avg: printed 80.3, read as 80.4 (80.35); mean of 8 "
    )
    assert kept.startswith(
        "1/12 k=5, Avg.: printed 74.2; kept as printed;"
    ) and kept.endswith(".")
    both = published.list_transcription_corrections(
        "efficientbert", "table02", "table04"
    )
    heads = [line.split(",")[0] for line in both]  # a line of several places comes once
    assert heads == ["EfficientBERT++", "own models"]
    with pytest.raises(ValueError, match="table05"):
        published.list_transcription_corrections("efficientbert", "table17")


PAPERS = tuple(list_papers_by_name())


@pytest.mark.parametrize("paper", PAPERS)
def test_corrections_of_all_papers_have_the_same_columns(paper):
    columns = ["table", "row", "column", "printed", "read_as", "reason"]
    assert list(published.read_table(paper, "corrections")) == columns


@pytest.mark.parametrize("paper", PAPERS)
def test_every_correction_stands_on_a_page(paper):
    cells = [
        cell
        for path in notebook.find_notebooks()
        for cell in json.loads(path.read_text())["cells"]
        if cell["cell_type"] == "code"
    ]
    text = "\n".join("".join(cell["source"]) for cell in cells)
    calls = " ".join(
        re.findall(
            rf'published\.list_transcription_corrections\(\s*"{paper}",([^)]*)\)', text
        )
    )
    shown = set(re.findall('"([^"]+)"', calls))
    shown |= {"table08b", "table10b"} if "name.split" in calls else set()  # nas_s71
    if paper == "nas_pruning":  # which shows the corrections of its table itself
        shown |= set(re.findall(r'show_test_score_table\(\s*page, "(table\d+)_', text))
    for row in pd.read_csv(published.PUBLISHED / paper / "corrections.csv", dtype=str)[
        "table"
    ]:
        assert not shown.isdisjoint(row.split("; ")), (
            f"corrections of {row} stand on no page"
        )


@pytest.mark.papers("bermo")
def test_rows_can_be_named_by_several_columns_and_columns_renamed():
    labels = ["Pruning Approach", "Model"]
    rename = dict(
        rename_row=lambda name: name.removesuffix("_BASE"),
        new_name_by_column={"QQP F1": "F1"},
    )
    row = published.make_printed_score_table(
        "bermo", "table04_pruning_methods", labels, **rename
    )["L0 · BERMo"]
    assert row["published", "QQP Remaining %"] == 5.5
    assert ("published", "F1") in row and ("published", "Model") not in row


@pytest.mark.papers("ghostbert")
def test_gaps_are_points_above_each_other_row():
    with_widths = published.compute_printed_gains_of_method_over_other_rows(
        "ghostbert", "table4", "Model", "GhostBERT", [1]
    )
    rows = published.make_printed_score_table("ghostbert", "table4", "Model", [1])
    score = {name: row["published", "average"] for (_, name), row in rows.items()}
    gap = with_widths["- ReLU, 1/12, average"]
    assert gap == round(score["GhostBERT"] - score["- ReLU"], 2) > 0
    assert not any(at.startswith("GhostBERT") or "3/12" in at for at in with_widths)


@pytest.mark.papers("ghostbert", "nas_pruning")
def test_misses_are_told_by_place():
    assert {
        miss["row"]
        for miss in published.read_inconsistent_printed_values("ghostbert", "table11")
    } == {
        "After QK",
        "After V",
    }
    every = published.read_inconsistent_printed_values("nas_pruning")
    assert {miss["table"] for miss in every} > {"text 7.2"} and all(
        m["reason"] for m in every
    )
    with pytest.raises(
        ValueError, match="place of published misses of ghostbert: 'table4'"
    ):
        published.read_inconsistent_printed_values("ghostbert", "table4")


@pytest.mark.parametrize("paper", PAPERS)
def test_deviations_of_a_profile_join_those_of_all_profiles_and_of_all_papers(paper):
    told = published.read_deviation_sentences_by_profile(paper)
    assert list(told) == ["toy", "mini", "base", "paper"]
    assert "Dropout rates are multiples of 1/256." in set(told["toy"]) & set(
        told["mini"]
    )
    assert not any("1/256" in line for line in told["paper"])
    assert all(len(set(lines)) == len(lines) > 2 for lines in told.values())
    assert any(
        "MNLI, QQP and QNLI" in line and "never judged" in line for line in told["base"]
    )


@pytest.mark.papers("nas_pruning")
def test_deviations_have_parts():
    told = published.read_deviation_sentences_by_profile("nas_pruning", "digits")
    assert (
        "MNIST" in told["toy"][0] and told["paper"] == told["mini"] == told["toy"][1:]
    )


def test_trainings_of_four_scales_stand_in_one_table():
    made = grids.TEACHER
    assert [train.epochs for train in made.values()] == [6, 3, 3, 3]
    assert [train.pad_to for train in made.values()] == [0, 0, 0, 128]
    with pytest.raises(ValueError, match="unknown profile: 'tou'; did you mean 'toy'"):
        grids.select_tasks("tou", tasks_by_profile={"toy": ("CoLA",)})
    assert grids.select_seeds("toy", [7], seeds_by_profile={"toy": (0,)}) == (7,)
