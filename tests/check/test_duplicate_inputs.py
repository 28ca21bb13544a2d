"""Input files that hold what another file holds are judged once; a copy that says more is judged itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.session.opened import checked, opened
from tests.sources.writer import MLP, DumpWriter, Graph, Node, write_dump, write_step
from tui_debugger.graph.search import NodeQuery
from tui_debugger.model import ErrorBits, Hit, Side, Verdict
from tui_debugger.session import Session

MATMUL, RELU, MOMENTUM = (node.name for node in MLP.nodes)
TWO_READERS = Graph(
    nodes=(
        Node("Default/Mul-op1", "Mul", (("x", 0), ("cst1", 0))),
        Node("Default/Add-op2", "Add", (("Default/Mul-op1", 0), ("cst1", 0))),
        Node("Default/Sub-op3", "Sub", (("Default/Mul-op1", 0), ("x", 0))),
    ),
    parameters=("x",),
    constants={"cst1": "Default--data-0"},
)
MUL, ADD, SUB = (node.name for node in TWO_READERS.nodes)
NANS = np.full((2, 3), np.nan, np.float32)


def file(root: Path, step: int, node: str, side: str, slot: int) -> Path:
    (path,) = (root / f"rank_0/Net/0/{step}").glob(f"*.{node.replace('/', '_')}.*.{side}.{slot}.*")
    return path


def places(hits: Sequence[Hit], watchpoint: int | None = None) -> list[tuple[str, str, int]]:
    """Node, side and slot of what a watchpoint (None: any) found, sorted."""
    return sorted(
        (hit.key.node, hit.key.side.name.lower(), hit.key.slot)
        for hit in hits
        if any(r.verdict is Verdict.FINDING and watchpoint in (None, r.watchpoint) for r in hit.results)
    )


def readers(tmp_path: Path, *watches: str) -> Session:
    """A session on one step of two operators that read a constant of NaN, and a tensor that one of them got wrong."""
    writer = DumpWriter(tmp_path)
    writer.graph(TWO_READERS)
    rng = np.random.default_rng(0)
    values = {name: rng.standard_normal((2, 3)).astype(np.float32) for name in ("x", MUL, ADD, SUB)}
    for node in TWO_READERS.nodes:
        for slot, (producer, _) in enumerate(node.inputs):
            writer.tensor(0, node.type, node.name, values.get(producer, NANS), at=("input", slot))
        writer.tensor(0, node.type, node.name, values[node.name])
    writer.tensor(0, "Parameter", "x", values["x"])
    writer.constant(0, NANS)
    return opened(tmp_path, *watches)


def test_a_copy_is_judged_with_its_producer(tmp_path: Path) -> None:
    write_dump(tmp_path)
    for place in ((MATMUL, "output", 0), (RELU, "input", 0)):
        np.save(file(tmp_path, 1, *place), NANS)
    assert places(checked(opened(tmp_path, "TO"), 1)) == [(MATMUL, "output", 0)]


@pytest.mark.parametrize("step", [1, 2])
def test_an_input_that_stopped_changing_equals_the_parameter_of_the_step_before(tmp_path: Path, step: int) -> None:
    """As an optimizer's input does that was dumped before the kernel wrote: alone this is no reason to skip it."""
    write_dump(tmp_path)
    stale = file(tmp_path, step - 1, MOMENTUM, "input", 0)
    file(tmp_path, step, MOMENTUM, "input", 0).write_bytes(stale.read_bytes())
    assert places(checked(opened(tmp_path, "WNC"), step)) == [(MOMENTUM, "input", 0)]


def test_an_unchanged_weight_gives_one_row_and_not_one_for_every_reader(tmp_path: Path) -> None:
    write_dump(tmp_path)
    stale = file(tmp_path, 1, "fc1_weight", "output", 0).read_bytes()
    for step, node, side, slot in ((2, "fc1_weight", "output", 0), (2, MATMUL, "input", 1), (2, MOMENTUM, "input", 0)):
        file(tmp_path, step, node, side, slot).write_bytes(stale)
    assert places(checked(opened(tmp_path, "WNC"), 2)) == [("fc1.weight", "output", 0)]


@pytest.mark.parametrize("text", ["WNC", "WCL", "WCS"])
def test_the_same_elements_in_another_shape_are_no_copy_for_a_change(tmp_path: Path, text: str) -> None:
    write_dump(tmp_path)
    path = file(tmp_path, 1, RELU, "input", 0)
    np.save(path, np.load(path).reshape(3, 2))
    for step in (1, 2):
        errors = {
            (hit.key.node, hit.key.side): r.error
            for hit in checked(opened(tmp_path, text), step)
            for r in hit.results
            if r.error
        }
        assert errors == {(RELU, Side.INPUT): ErrorBits.SHAPE_CHANGED}
    assert places(checked(opened(tmp_path, "TO"))) == []


def test_a_bad_constant_is_found_where_it_is_read_although_its_own_file_is_bad_too(tmp_path: Path) -> None:
    assert places(checked(readers(tmp_path, "TO"))) == [(MUL, "input", 1)]


def test_watchpoints_on_different_readers_of_a_constant_do_not_hide_each_others_hits(tmp_path: Path) -> None:
    hits = checked(readers(tmp_path, f"TO @ node={MUL}", f"TO @ node={ADD}"))
    assert (places(hits, 1), places(hits, 2)) == ([(MUL, "input", 1)], [(ADD, "input", 1)])


def test_what_an_operator_wrote_over_its_input_is_decided_for_each_watchpoint(tmp_path: Path) -> None:
    """The first covers the operator too, which answers for its input; the second covers the producer only."""
    readers(tmp_path)
    for node, side, slot in ((ADD, "input", 0), (ADD, "output", 0), (SUB, "input", 0)):
        np.save(file(tmp_path, 0, node, side, slot), NANS)
    texts = (f"TO @ node={MUL}, node={ADD}, -type=Parameter", f"TO @ node={MUL}")
    alone = [places(checked(opened(tmp_path, text))) for text in texts]
    together = checked(opened(tmp_path, *texts))
    assert [places(together, 1), places(together, 2)] == alone
    assert (SUB, "input", 0) in alone[0]
    assert (ADD, "input", 0) in alone[1]


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("MatMul", [(MATMUL, "output", 0)]),
        ("ReLU", [(RELU, "input", 0)]),
        ("MatMul|ReLU", [(MATMUL, "output", 0)]),
        ("Momentum", []),
    ],
)
def test_an_input_is_in_scope_with_its_node_and_with_its_producer(
    tmp_path: Path, scope: str, expected: list[tuple[str, str, int]]
) -> None:
    """A copy is left out only where the file it is a copy of is looked at."""
    write_dump(tmp_path)
    for place in ((MATMUL, "output", 0), (RELU, "input", 0)):
        np.save(file(tmp_path, 1, *place), NANS)
    session = opened(tmp_path, "TO")
    session.restrict(NodeQuery(text=scope, regex=True))
    assert places(checked(session, 1)) == expected


def test_a_damaged_copy_is_in_scope_with_its_producer(tmp_path: Path) -> None:
    write_dump(tmp_path)
    np.save(file(tmp_path, 1, RELU, "input", 0), NANS)
    for scope in ("MatMul", "ReLU"):
        session = opened(tmp_path, "TO")
        session.restrict(NodeQuery(text=scope))
        assert places(checked(session, 1)) == [(RELU, "input", 0)]


def test_initial_weights_are_in_scope_with_the_weight_and_with_its_first_reader(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    writer.graph(MLP)
    write_step(writer, 0)
    np.save(file(tmp_path, 0, MATMUL, "input", 1), np.zeros((2, 3), np.float32))
    for scope, count in (("fc1.weight", 1), ("MatMul", 1), ("ReLU", 0)):
        session = opened(tmp_path, "WI @ category=weight")
        session.restrict(NodeQuery(text=scope))
        assert len(checked(session)) == count


@pytest.mark.parametrize("steps", [(0,), (1,), (0, 1)])
def test_a_bad_weight_of_the_step_before_is_found_in_the_step_that_read_it(
    tmp_path: Path, steps: tuple[int, ...]
) -> None:
    """That the step before would name it is no answer: nobody asked for that step, and the weight is clean again."""
    write_dump(tmp_path)
    weights = [next((tmp_path / f"rank_0/Net/0/{step}").glob("Parameter.fc1?weight.*")) for step in (0, 1)]
    np.save(weights[0], NANS)
    np.save(file(tmp_path, 1, MATMUL, "input", 1), NANS)
    found = {hit.key.step: places((hit,)) for hit in checked(opened(tmp_path, "TO"), *steps)}
    expected = {0: [("fc1.weight", "output", 0)], 1: [(MATMUL, "input", 1)]}
    assert found == {step: expected[step] for step in steps}
    np.save(weights[1], NANS)  # one row, where it is bad still
    assert places(checked(opened(tmp_path, "TO"), 1)) == [("fc1.weight", "output", 0)]
