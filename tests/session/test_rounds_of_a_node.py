"""What a node read and wrote in each of its runs within one step: the tensor table, and asking for one round."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.sources.memory import GRAPH, Key, MemorySource, Op
from tui_debugger.model import GraphRun, Side, TensorKey
from tui_debugger.session import Session
from tui_debugger.session.naming import find_node
from tui_debugger.text.rows import key_row
from tui_debugger.text.tensors import place_text

IN, OUT = Side.INPUT, Side.OUTPUT


@pytest.fixture
def session() -> Iterator[Session]:
    """Node ``loop/Add`` ran once at step 0 and three times at step 1."""
    once: dict[Key, np.ndarray] = {("loop/Add", OUT, 0): np.full(2, 9.0)}
    often: dict[Key, np.ndarray] = {("loop/Add", OUT, 0, number): np.full(2, float(number)) for number in (1, 2, 3)}
    often |= {("loop/Add", IN, 0, number): np.full(2, float(number - 1)) for number in (1, 2, 3)}
    history = [GraphRun(0, 0, GRAPH, True), *(GraphRun(1, 0, GRAPH, True, number) for number in (1, 2, 3))]
    opened = Session(MemorySource({0: {0: once, 1: often}}, ops=[Op("loop/Add")], history=history))
    yield opened
    opened.close()


def told(session: Session, step: int, number: int = 0, *, every: bool = False) -> list[tuple[str, int, int, float]]:
    rows = session.tensor_rows(0, step, 0, number, every=every)
    return [(row.role, row.key.round, row.rounds, float(session.read(row.key)[0])) for row in rows if row.index >= 0]


def test_the_newest_round_stands_first_and_the_earlier_ones_below_it(session: Session) -> None:
    assert told(session, 1) == [("in", 3, 3, 2.0), ("out", 3, 3, 3.0)]
    outputs = [row for row in told(session, 1, every=True) if row[0] == "out"]
    assert outputs == [("out", 3, 3, 3.0), ("out", 2, 3, 2.0), ("out", 1, 3, 1.0)]
    assert [row.earlier for row in session.tensor_rows(0, 1, 0, every=True)] == [False, True, True] * 2


def test_what_was_written_once_says_no_round(session: Session) -> None:
    assert told(session, 0, every=True) == [("out", 0, 0, 9.0)]
    assert told(session, 0, 1) == [("out", 0, 0, 9.0)]


def test_one_round_is_asked_for(session: Session) -> None:
    assert told(session, 1, 1) == [("in", 1, 3, 0.0), ("out", 1, 3, 1.0)]
    assert told(session, 1, 4) == []


def test_a_key_of_a_round_is_measured_and_found_again(session: Session) -> None:
    (row,) = session.measure([row for row in session.tensor_rows(0, 1, 0, 2) if row.role == "out"])
    assert row.stats is not None
    assert row.stats.maximum == 2.0
    assert key_row(row.key)["round"] == 2
    assert place_text(row.key) == "loop/Add:out:0#2"
    assert session.row_of(row.key).key == row.key


@pytest.mark.parametrize(
    ("text", "role", "slot", "number"),
    [
        ("loop/Add", "", None, 0),
        ("loop/Add#2", "", None, 2),
        ("Add:out:0#1", "out", 0, 1),
        ("Add:0#3", "out", 0, 3),
        ("Add:in#1", "in", None, 1),
    ],
)
def test_a_round_is_named_behind_the_slot(
    session: Session, text: str, role: str, slot: int | None, number: int
) -> None:
    nodes = session.nodes(0)
    found = find_node({0: nodes}, {0: session.in_scope(0)}, text)
    assert (found.node, found.asked.role, found.asked.slot, found.asked.round) == ("loop/Add", role, slot, number)


def test_a_name_that_ends_like_a_round_is_a_name() -> None:
    session = Session(MemorySource({0: {0: {}}}, ops=[Op("a/Add-op1"), Op("a/Add-op1#2")]))
    tables, scope = {0: session.nodes(0)}, {0: session.in_scope(0)}
    assert find_node(tables, scope, "a/Add-op1#2").node == "a/Add-op1#2"
    assert find_node(tables, scope, "Add-op1#2").node == "a/Add-op1#2"
    assert find_node(tables, scope, "a/Add-op1#2#1").asked.round == 1
    session.close()


def test_another_step_is_asked_for_its_newest_round() -> None:
    key = TensorKey(0, GRAPH, "a", OUT, 0, 1, 2)
    assert key.at_step(2) == TensorKey(0, GRAPH, "a", OUT, 0, 2)
    assert key.at_step(1) == key
