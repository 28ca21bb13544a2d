"""The table of floors is whole: the page about the audit is made of it."""

from __future__ import annotations

from tests.diagnose.recompute.floors import FLOORS, floor_lines, operator_names
from tests.readme_blocks import BLOCKS
from tui_debugger.diagnose.recompute.table import kinds


def test_every_kind_of_operator_has_its_floor_and_no_other() -> None:
    assert set(FLOORS) == set(kinds())
    assert all(each.computed and each.explained for each in FLOORS.values())


def test_every_kind_names_its_operators_and_has_a_line() -> None:
    assert all(operator_names(kind) for kind in kinds())
    lines = floor_lines()
    assert [line.partition("**")[2].partition("**")[0] for line in lines] == list(kinds())


def test_the_page_has_the_table_as_it_is() -> None:
    assert BLOCKS["floors"].written("floors") == BLOCKS["floors"].make()
