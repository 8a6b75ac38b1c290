"""The core finds the papers by their folders."""

import sys
from types import ModuleType

import pytest

from lib.core import papers
from lib.core.names import Refused


def test_ids_of_notebooks_begin_with_the_prefix_of_their_paper():
    for name, paper in papers.list_papers_by_name().items():
        page = f"{paper.prefix}_01_summary"
        assert papers.find_paper_name_of_notebook(page) == name
        path = papers.find_notebook_path(page)
        assert path.parent.name == name and papers.make_notebook_id(path) == page
    assert papers.find_paper_name_of_notebook("91_frontier") == ""
    assert (
        papers.make_notebook_id(papers.find_notebook_path("91_frontier"))
        == "91_frontier"
    )


def test_a_folder_that_does_not_present_its_paper_is_refused(tmp_path, monkeypatch):
    (tmp_path / "fifth").mkdir()
    (tmp_path / "fifth/__init__.py").touch()
    module = ModuleType("lib.papers.fifth")
    module.TITLE = "Fifth"
    monkeypatch.setitem(sys.modules, "lib.papers.fifth", module)
    monkeypatch.setattr(papers, "FOLDER", tmp_path)
    with pytest.raises(Refused, match="fifth/__init__.py lacks PREFIX, ORDER; fix"):
        papers.list_papers_by_name.__wrapped__()


@pytest.mark.papers("ghostbert")
def test_modules_are_collected_of_the_papers_that_have_one():
    steps = papers.import_module_of_each_paper("steps")
    assert set(steps) < set(papers.list_papers_by_name()) and all(
        m.MAKING for m in steps.values()
    )
    assert papers.import_module_of_each_paper("nothing") == {}
