"""Every day a part of the combinations runs in which no value of any list is missing; all of them with --thorough."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.thorough import ALL, LEFT, covering, group_of, pair_of, parts, values_of

pytest_plugins = ["pytester"]

LENGTHS = st.lists(st.integers(1, 7), min_size=1, max_size=4)


def every(*lengths: int) -> list[dict[str, int]]:
    return [dict(zip("abcd", places, strict=False)) for places in product(*map(range, lengths))]


@given(LENGTHS, st.integers(0, 50))
def test_every_value_is_kept_in_as_few_combinations_as_the_longest_list_is_long(lengths: list[int], start: int) -> None:
    combinations = every(*lengths)
    kept = [combinations[at] for at in covering(combinations, start=start)]
    assert len(kept) == max(lengths)
    for name, length in zip("abcd", lengths, strict=False):
        times = [sum(each[name] == at for each in kept) for at in range(length)]
        assert min(times) >= 1


@given(LENGTHS.filter(lambda lengths: len(lengths) > 1), st.integers(0, 50))
def test_every_pair_of_two_lists_is_kept(lengths: list[int], start: int) -> None:
    combinations = every(*lengths)
    kept = [combinations[at] for at in covering(combinations, ("a", "b"), start)]
    assert {(each["a"], each["b"]) for each in kept} == set(product(range(lengths[0]), range(lengths[1])))
    for name, length in zip("abcd", lengths, strict=False):
        assert {each[name] for each in kept} == set(range(length))


def test_values_of_a_short_list_take_turns() -> None:
    kept = [every(6, 2)[at] for at in covering(every(6, 2))]
    assert [sum(each["b"] == at for each in kept) for at in range(2)] == [3, 3]


def test_tests_of_a_file_take_other_combinations() -> None:
    assert covering(every(3, 3), start=0) != covering(every(3, 3), start=1)


def test_combinations_that_do_not_exist_are_not_needed() -> None:
    combinations = [{"a": 0, "b": 0}, {"a": 0, "b": 1}, {"a": 1, "b": 1}]
    assert covering(combinations) == [0, 2]


def test_without_combinations_nothing_is_kept() -> None:
    assert covering([]) == []


def test_of_the_tests_of_this_run_no_value_is_left_to_thorough_alone(request: pytest.FixtureRequest) -> None:
    """Looks at every test that was collected: a run of one file proves it of that file, a whole run of all."""
    every, left_out = request.config.stash[ALL], set(request.config.stash.get(LEFT, []))
    left = [item for item in left_out if not item.get_closest_marker("thorough")]
    shown: dict[str, set[object]] = {}
    for item in every:
        if item in left_out:
            continue
        shown.setdefault(group_of(item), set()).update(parts(values_of(item), pair_of(item)))
    for item in left:
        assert parts(values_of(item), pair_of(item)) <= shown[group_of(item)], item.nodeid


EXAMPLE = """
import pytest

@pytest.fixture(params=["x", "y"])
def place(request):
    return request.param

@pytest.mark.covering
class TestPlaces:
    @pytest.mark.parametrize("dump", ["one", "two", "three"])
    def test_of_a_class(self, dump, place):
        pass

@pytest.mark.covering("dump", "place")
@pytest.mark.parametrize("dump", ["one", "two"])
@pytest.mark.parametrize("size", [80, 120, pytest.param(200, marks=pytest.mark.thorough)])
def test_of_pairs(dump, place, size):
    pass

@pytest.mark.covering
@pytest.mark.parametrize(("command", "code"), [("check", 0), ("check", 1), ("ls", 0), ("ls", 1)])
@pytest.mark.parametrize("dump", ["one", "two"])
def test_of_rows(command, code, dump):
    pass

sizes = pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])

@pytest.mark.turns("size")
@sizes
def test_turns(size):
    pass

@pytest.mark.turns("size")
@sizes
@pytest.mark.parametrize("pane", ["nodes", "hits"])
def test_panes_turn(size, pane):
    pass

@pytest.mark.parametrize("size", [80, 120])
def test_of_all(size, place):
    pass

@pytest.fixture(params=["compiled", "numpy"])
def measured_by(request):
    return request.param

@pytest.mark.usefixtures("measured_by")
class TestMeasured:
    @pytest.mark.parametrize("size", [80, 120])
    @pytest.mark.parametrize("dump", ["one", "two", "three"])
    def test_of_a_product(self, size, dump):
        pass

    def test_of_no_list(self):
        pass
"""


@pytest.mark.parametrize(
    ("words", "ran"), [((), [3, 4, 4, 1, 2, 4, 6, 2]), (("--thorough",), [6, 12, 8, 3, 6, 4, 12, 2])]
)
def test_what_runs_of_a_file(pytester: pytest.Pytester, words: tuple[str, ...], ran: list[int]) -> None:
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text())
    pytester.makeini("[pytest]\nmarkers = covering\n  turns\n  thorough\nasyncio_mode = auto")
    pytester.makepyfile(EXAMPLE)
    result = pytester.runpytest_subprocess("--collect-only", "-q", *words)
    found = [line for line in result.outlines if "::" in line]
    names = ("test_of_a_class", "test_of_pairs", "test_of_rows", "test_turns", "test_panes_turn", "test_of_all")
    names += ("test_of_a_product", "test_of_no_list")
    assert len({line[-2] for line in found if "turn" in line}) == 3, "every size has its turn"
    ways = [sum("_of_a_product[" in line and way in line for line in found) for way in ("compiled", "numpy")]
    assert ways[0] == ways[1], "each way has half of the combinations"
    assert [sum(f"::{name}[" in line for line in found) for name in names] == ran
