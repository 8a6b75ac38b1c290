"""Results are reused while runs are planned, and only then."""

from itertools import count

import pytest

from lib import data
from lib.core.memo import cache_results_while_enabled, enable_result_cache
from lib.papers import grids


@pytest.fixture
def number():
    """A function that returns another number at each call that is computed."""
    numbers = count()
    return cache_results_while_enabled(lambda *_, **__: next(numbers))


def test_within_a_block_each_result_is_computed_once(number):
    assert (number(1), number(1)) == (0, 1)
    with enable_result_cache():
        assert [number(1), number(1), number(2), number(1, a=3), number(1, a=3)] == [
            *(2, 2, 3, 4, 4)
        ]
        with enable_result_cache():
            assert number(1) == 2
        with enable_result_cache(start_with_empty_cache=True):
            assert number(1) == 5
        assert number(1) == 2
    assert number(1) == 6


def test_equal_arguments_of_other_types_have_results_of_their_own(number):
    """JSON has 1, 1.0 and true apart, and so have identities of runs."""
    with enable_result_cache():
        assert len({number(value) for value in (1, 1.0, True)}) == 3
        assert len({number(a=value) for value in (1, 1.0, True)}) == 3


def test_what_cannot_be_told_apart_is_computed(number):
    class Name(str):
        """Equal to each other of this name, as profiles of two readers are."""

    with enable_result_cache():
        assert number([1]) != number([1])
        assert number(Name("mini")) != number(Name("mini"))


def test_a_dict_that_a_caller_changes_is_not_that_of_the_next():
    made = cache_results_while_enabled(lambda: {"rows": 4})
    with enable_result_cache():
        made()["rows"] = 5
        assert made() == {"rows": 4}


def test_an_error_is_raised_at_each_call():
    @cache_results_while_enabled
    def fail(_):
        raise TypeError("as the function says")

    with enable_result_cache():
        for _ in range(2):
            with pytest.raises(TypeError, match="as the function says"):
                fail(1)


def test_specs_are_those_without_reuse():
    def make_identities():
        return [grids.teacher_spec("mini", task).id for task in ("SST-2", "STS-B")]

    with data.plan_with_missing_data():
        within = make_identities()
        made = [grids.teacher_spec("mini", "SST-2") for _ in range(2)]
        assert made[0] is made[1]
    with data.plan_with_missing_data(use_local_data=False):
        assert make_identities() == within
    with data.plan_with_missing_data(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("lib.core.memo._results", None)
        assert make_identities() == within


def test_changed_data_are_noticed_by_the_next_reading(monkeypatch):
    digests = iter("abc")
    monkeypatch.setattr(
        data, "find_local_or_committed_digest", lambda *_: next(digests)
    )
    found = []
    for _ in range(2):
        with enable_result_cache():
            found += [data.make_data_descriptor("glue", "CoLA", 8)["digest"]] * 2
    assert found == ["a", "a", "b", "b"]
