"""Runs of every kind: several ranks and graphs, partial dumps, dumps that grow while one looks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.linked import linked
from tests.session.opened import checked, file_of, found, only, opened
from tests.sources.writer import (
    MLP,
    DumpWriter,
    Generation,
    Graph,
    Node,
    write_bare_rank,
    write_dump,
    write_run,
    write_step,
)
from tui_debugger.graph.search import NodeQuery
from tui_debugger.model import ErrorBits, Side, Verdict
from tui_debugger.session import Session
from tui_debugger.sources.registry import open_source

Array = npt.NDArray[Any]

MATMUL, RELU, MOMENTUM = (node.name for node in MLP.nodes)
NAN = np.full((2, 3), np.nan, np.float32)


def one(step: Path, pattern: str) -> Path:
    """The one file of a step directory that matches."""
    (path,) = step.glob(pattern)
    return path


# -- ranks -----------------------------------------------------------------------------------------


def test_ranks_are_checked_side_by_side(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1), ranks=(0, 1, 3))
    np.save(one(writer.step(1, rank=3), "ReLU.*.output.*"), NAN)
    np.save(one(writer.step(1, rank=0), "ReLU.*.output.*"), NAN)
    np.save(one(writer.step(0, rank=1), "MatMul.*.output.*"), NAN)
    session = opened(tmp_path, "TO")
    result = session.check(session.pairs())
    assert [(hit.key.rank, hit.key.step, hit.key.node) for hit in result.hits] == [
        (1, 0, MATMUL),
        (0, 1, RELU),
        (3, 1, RELU),
    ]
    assert sorted(result.coverage.steps) == [(rank, step) for rank in (0, 1, 3) for step in (0, 1)]
    assert [(hit.key.rank) for hit in session.check(session.pairs(ranks=(3,))).hits] == [3]


def test_a_rank_without_metadata_and_history_is_judged_like_the_others(tmp_path: Path) -> None:
    writer = write_bare_rank(tmp_path)
    held = np.load(one(writer.step(0, rank=1), "Parameter.fc1_weight.*"))
    np.save(one(writer.step(2, rank=1), "Parameter.fc1_weight.*"), held)
    session = opened(tmp_path, "WNC @ category=weight")
    assert session.flow(1).previous_step(session.nodes(1).find("fc1.weight"), 2, 0) == 0
    assert found(checked(session)) == [("fc1.weight", 2)]
    assert not any(hit.verdict is Verdict.CANNOT_JUDGE for hit in checked(session))


# -- graphs ----------------------------------------------------------------------------------------

TRAIN = Graph((Node("Default/Train/Add-op1", "Add"),), id=0, root=0)
EVALUATE = Graph((Node("Default/Eval/Mul-op2", "Mul"),), id=1, root=1)
EVALUATE_PART = Graph((Node("Default/Eval/Sub-op3", "Sub"),), id=2, root=1)
ADD, MUL, SUB = TRAIN.nodes[0].name, EVALUATE.nodes[0].name, EVALUATE_PART.nodes[0].name


@pytest.mark.parametrize("history", [True, False])
def test_the_step_before_is_the_last_one_in_which_the_same_root_graph_ran(tmp_path: Path, history: bool) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    for graph in (TRAIN, EVALUATE, EVALUATE_PART):
        writer.graph(graph)
    runs = ((TRAIN, (0, 1, 3, 4)), (EVALUATE, (2, 5)), (EVALUATE_PART, (2, 5)))
    constant = np.ones((2, 3), np.float32)
    for step in range(6):
        for graph in (graph for graph, steps in runs if step in steps):
            (node,) = graph.nodes
            writer.tensor(step, node.type, node.name, constant, graph=graph.root)
    if history:
        writer.history(runs[0][1], graph=0)
        writer.history(runs[1][1], graph=1)
    session = opened(tmp_path, "WNC")
    hits = checked(session)
    assert found(hits) == [(ADD, 1), (ADD, 3), (ADD, 4), (MUL, 5), (SUB, 5)]
    assert [(h.key.node, h.key.step) for h in hits if h.verdict is Verdict.NOT_COMPARABLE] == [
        (ADD, 0),
        (MUL, 2),
        (SUB, 2),
    ]
    nodes = session.nodes(0)
    assert session.flow(0).previous_step(nodes.find(SUB), 5, 0) == 2
    assert session.flow(0).previous_step(nodes.find(ADD), 3, 0) == 1


def test_two_graphs_that_run_in_one_step_are_both_judged(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    for graph in (TRAIN, EVALUATE):
        writer.graph(graph)
        write_step(writer, 0, graph)
        np.save(one(writer.step(0, graph=graph.root), "*.output.*"), NAN)
    hits = checked(opened(tmp_path, "TO"))
    assert sorted(found(hits)) == [(MUL, 0), (ADD, 0)]
    assert len({hit.key.graph for hit in hits}) == 2


# -- partial dumps ---------------------------------------------------------------------------------

SHARED = Graph(
    nodes=(
        Node("Default/fc/MatMul-op1", "MatMul", (("x", 0), ("fc.weight", 0))),
        Node("Default/a/ReLU-op2", "ReLU", (("Default/fc/MatMul-op1", 0),)),
        Node("Default/b/Tanh-op3", "Tanh", (("Default/fc/MatMul-op1", 0),)),
        Node("Default/c/MatMul-op4", "MatMul", (("Default/a/ReLU-op2", 0), ("fc.weight", 0))),
        Node("Default/optimizer/ApplyMomentum-op5", "ApplyMomentum", (("fc.weight", 0), ("accum.fc.weight", 0))),
    ),
    parameters=("x", "fc.weight", "accum.fc.weight"),
)


def partial(root: Path, generation: Generation, gone: str, steps: int = 3) -> DumpWriter:
    """A dump of ``SHARED`` without the files that match; parameters are values of before the optimizer ran."""
    writer = DumpWriter(root, generation)
    writer.metadata()
    writer.graph(SHARED)
    for step in range(steps):
        write_step(writer, step, SHARED)
        for path in writer.step(step).glob(gone):
            path.unlink()
    writer.history(range(steps))
    return writer


def replace_inputs(writer: DumpWriter, step: int, held: Array, values: Array) -> int:
    """Puts other values into every input file that holds certain values; returns how many did."""
    paths = [p for p in writer.step(step).glob("*.input.*") if np.array_equal(np.load(p), held)]
    for path in paths:
        np.save(path, values)
    return len(paths)


@pytest.mark.parametrize("generation", [Generation.V2_0, Generation.V2_5])
def test_inputs_only_a_tensor_with_several_consumers_has_one_row_in_the_first(
    tmp_path: Path, generation: Generation
) -> None:
    writer = partial(tmp_path, generation, "*.output.*")
    held = np.load(one(writer.step(1), "Tanh.*.input.0.*"))
    assert replace_inputs(writer, 1, held, NAN) == 2
    hit, _ = only(checked(opened(tmp_path, "TO")))
    assert (hit.key.node, hit.key.side, hit.key.slot, hit.key.step) == (SHARED.nodes[1].name, Side.INPUT, 0, 1)


@pytest.mark.parametrize("generation", [Generation.V2_0, Generation.V2_5])
def test_inputs_only_weights_are_judged_through_the_input_of_their_first_consumer(
    tmp_path: Path, generation: Generation
) -> None:
    writer = partial(tmp_path, generation, "*.output.*")
    before = np.load(
        one(writer.step(1), f"MatMul.*{'fc--' if generation is Generation.V2_5 else ''}MatMul-op1.*.input.1.*")
    )
    held = np.load(
        one(writer.step(2), f"MatMul.*{'fc--' if generation is Generation.V2_5 else ''}MatMul-op1.*.input.1.*")
    )
    assert replace_inputs(writer, 2, held, before) == 3
    session = opened(tmp_path, "WNC @ category=weight")
    hits = checked(session)
    assert [(h.key.node, h.key.slot, h.key.step) for h in hits if h.verdict is Verdict.FINDING] == [
        (SHARED.nodes[0].name, 1, 2)
    ]
    assert [h.verdict for h in hits if h.key.step == 0] == [Verdict.NOT_COMPARABLE]


@pytest.mark.parametrize("generation", list(Generation))
def test_outputs_only_everything_is_judged_and_inputs_are_shown_from_their_producers(
    tmp_path: Path, generation: Generation
) -> None:
    writer = partial(tmp_path, generation, "*.input.*")
    np.save(one(writer.step(2), "Tanh.*.output.*"), NAN)
    np.save(one(writer.step(2), "Parameter.fc[._]weight.*"), NAN)
    session = opened(tmp_path, "TO")
    tanh = SHARED.nodes[2].name
    hits = checked(session)
    assert found(hits) == [(tanh, 2), ("fc.weight", 2)]
    assert [hit.origin for hit in hits] == [True, True]  # nothing that the weight was updated with is bad
    rows = session.measure(session.tensor_rows(0, 2, session.nodes(0).find(SHARED.nodes[0].name)))
    weight = next(row for row in rows if row.role == "in" and row.slot == 1)
    assert (weight.key.node, weight.key.step, weight.key.side) == ("fc.weight", 1, Side.OUTPUT)
    assert weight.stats is not None
    assert not weight.stats.bad


def test_statistics_only_give_what_they_can(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    writer.metadata()
    writer.graph(MLP)
    good, bad, zero = np.ones((2, 3)), np.array([[1, np.nan, np.inf]]), np.zeros((2, 3))
    for step in (0, 1):
        rows = [("MatMul", "MatMul-op1", "output", 0, good), ("ReLU", "ReLU-op2", "output", 0, bad if step else zero)]
        writer.statistics(step, rows)
    session = opened(tmp_path, "TO", "TZ", "WNC")
    result = session.check(session.pairs())
    by = {(h.key.node, h.key.step, r.watchpoint): r for h in result.hits for r in h.results}
    assert by[RELU, 1, 1].verdict is Verdict.FINDING
    assert by[RELU, 0, 2].verdict is Verdict.FINDING
    assert by[MATMUL, 0, 3].verdict is Verdict.NOT_COMPARABLE
    assert by[MATMUL, 1, 3].verdict is Verdict.CANNOT_JUDGE
    assert by[MATMUL, 1, 3].error is ErrorBits.NO_VALUE
    assert (MATMUL, 1, 1) not in by
    shown = session.measure(session.tensor_rows(0, 1, session.nodes(0).find(RELU)))
    (row,) = [row for row in shown if row.role == "out"]
    assert row.recorded
    assert row.stats is not None
    assert (row.stats.nan, row.stats.pos_inf) == (1, 1)


def test_a_half_written_last_step_is_judged_as_far_as_it_goes(tmp_path: Path) -> None:
    writer = write_dump(tmp_path)
    writer.tensor(3, "MatMul", MATMUL, NAN)
    cut = one(writer.step(3), "MatMul.*.output.*")
    half = writer.tensor(3, "ReLU", RELU, NAN)
    half.write_bytes(half.read_bytes()[:-7])
    session = opened(tmp_path, "TO")
    result = session.check(session.pairs(steps=(3,)))
    assert result.coverage.unreadable == 1
    assert [(hit.key.node, hit.verdict) for hit in result.hits] == [
        (MATMUL, Verdict.FINDING),
        (RELU, Verdict.CANNOT_JUDGE),
    ]
    assert file_of(session, result.hits[0]) == cut


def test_a_step_in_which_the_tensor_was_not_dumped_cannot_be_judged_later(tmp_path: Path) -> None:
    writer = write_dump(tmp_path)
    one(writer.step(1), "ReLU.*.output.*").unlink()
    hits = [hit for hit in checked(opened(tmp_path, "WNC"), 2) if hit.key.node == RELU]
    hit, result = only(hits)
    assert result.error is ErrorBits.NO_PREVIOUS
    assert hit.verdict is Verdict.CANNOT_JUDGE


@pytest.mark.parametrize(("op_type", "node"), [("MatMul", MATMUL), ("ReLU", RELU)])
def test_an_input_of_zeros_is_found_although_the_nodes_output_is_zero_too(
    tmp_path: Path, op_type: str, node: str
) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    for pattern in (f"{op_type}.*.input.0.*", f"{op_type}.*.output.0.*"):
        np.save(one(writer.step(1), pattern), np.zeros((2, 3), np.float32))
    hits = [hit for hit in checked(opened(tmp_path, "TZ"), 1) if hit.key.node == node]
    assert [(hit.key.side, hit.key.slot) for hit in hits] == [(Side.INPUT, 0), (Side.OUTPUT, 0)]


def test_an_input_that_shows_what_was_written_in_place_is_no_finding_of_its_own(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    for pattern in ("ReLU.*.input.0.*", "ReLU.*.output.0.*"):
        np.save(one(writer.step(1), pattern), NAN)
    hit, _ = only(checked(opened(tmp_path, "TO"), 1))
    assert (hit.key.node, hit.key.side, hit.origin) == (RELU, Side.OUTPUT, True)


# -- growing ---------------------------------------------------------------------------------------


def test_a_new_step_is_checked_and_the_results_of_older_ones_stay_fresh(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    session = opened(tmp_path, "TO", "WNC")
    session.check(session.pairs())
    assert not session.refresh()
    write_step(writer, 2)
    np.save(one(writer.step(2), "ReLU.*.output.*"), np.load(one(writer.step(1), "ReLU.*.output.*")))
    writer.history((2,))
    changes = session.refresh()
    assert changes.new_steps == ((0, 2),)
    assert session.known(((0, 0), (0, 1))) is not None
    assert session.known(((0, 2),)) is None
    assert found(checked(session)) == [(RELU, 2)]
    assert session.cost(session.pairs()) == 0


def test_a_step_that_grows_is_judged_again(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    late = one(writer.step(1), "ReLU.*.output.*")
    kept = late.read_bytes()
    late.unlink()
    session = opened(tmp_path, "TO")
    assert checked(session) == ()
    late.write_bytes(kept)
    np.save(late, NAN)
    assert session.refresh().grown_steps == ((0, 1),)
    assert session.known(((0, 0),)) is not None
    assert session.known(((0, 1),)) is None
    assert found(checked(session)) == [(RELU, 1)]


def test_a_step_in_between_changes_what_the_next_one_is_compared_with(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0,))
    write_run(writer, 2, at=10**9)
    session = opened(tmp_path, "WNC")
    assert found(checked(session)) == []
    write_run(writer, 1, at=10**8)
    np.save(one(writer.step(1), "ReLU.*.output.*"), np.load(one(writer.step(2), "ReLU.*.output.*")))
    session.refresh()
    assert found(checked(session)) == [(RELU, 2)]


def test_a_truncated_file_becomes_readable_when_it_is_complete(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1, 2))
    session = opened(tmp_path, "TO", "WNC")
    path = one(writer.step(1), "ReLU.*.output.*")
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    before = session.check(session.pairs())
    assert before.coverage.unreadable == 1
    path.write_bytes(whole)
    changes = session.refresh()
    assert changes.grown_steps == ((0, 1), (0, 2)), "step 2 is compared with step 1"
    assert session.known(((0, 0),)) is not None
    assert session.known(((0, 1),)) is None
    after = session.check(session.pairs())
    assert after.coverage.unreadable == 0
    assert not any(hit.verdict is Verdict.CANNOT_JUDGE for hit in after.hits)


def test_a_file_that_stays_broken_is_not_read_again_and_again(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0,))
    path = one(writer.step(0), "ReLU.*.output.*")
    path.write_bytes(b"")
    os.utime(path, ns=(0, 0))
    session = opened(tmp_path, "TO")
    session.check(session.pairs())
    assert not session.refresh()
    assert session.known(session.pairs()) is not None


def test_a_graph_that_arrives_late_gives_the_results_their_names(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    write_step(writer, 0)
    np.save(one(writer.step(0), "ReLU.*.output.*"), NAN)
    session = opened(tmp_path, "TO")
    assert found(checked(session)) == [(RELU.replace("/", "_"), 0)]
    writer.graph(MLP)
    assert session.refresh().new_nodes
    assert session.known(((0, 0),)) is None
    assert found(checked(session)) == [(RELU, 0)]
    assert session.select(0, NodeQuery(hit=True)).nonzero()[0].tolist() == [session.nodes(0).find(RELU)]


def test_files_that_vanish_are_no_longer_judged(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    np.save(one(writer.step(1), "ReLU.*.output.*"), NAN)
    session = opened(tmp_path, "TO")
    assert found(checked(session)) == [(RELU, 1)]
    one(writer.step(1), "ReLU.*.output.*").unlink()
    session.refresh()
    assert checked(session) == ()


def test_without_a_graph_an_input_is_judged_once_and_attributes_not_at_all(
    dumps: Callable[[str], Path], tmp_path: Path
) -> None:
    """The same recommended set on the same dump says hardly more when the graph is missing."""
    target = tmp_path / "dump"
    linked(dumps("mindspore-2.10-nan"), target)
    shutil.rmtree(target / "rank_0" / "graphs")
    session = Session(open_source(target))
    session.add_recommended()
    for step in (0, 1, 2):
        named = [
            (hit.key.node, hit.key.side, hit.key.slot) for hit in session.check([(0, step)]).hits if hit.verdict > 1
        ]
        assert named == []
    bad = [hit for hit in session.check([(0, 3)]).hits if hit.stats is not None and hit.stats.bad]
    assert bad[0].key.node.endswith("Log-op0")
    assert bad[0].origin


def without_graph(root: Path) -> Path:
    """Inputs only, no graph: two nodes were fed with the same values, a third with an integer scalar."""
    writer, values = DumpWriter(root), np.array([1.0, 2.0, 900.0], np.float32)
    writer.metadata()
    writer.tensor(0, "Add", "Default/a-Net/Add-op0", values, at=("input", 0))
    writer.tensor(0, "Mul", "Default/b-Net/Mul-op0", values, at=("input", 0))
    writer.tensor(0, "Exp", "Default/c-Net/Exp-op0", np.array(7, np.int32), at=("input", 0))
    return root


def test_another_watchpoint_never_hides_a_hit(tmp_path: Path) -> None:
    """A copy judged by TO alone says nothing about TL."""
    watch = "TL max_gt=100 @ Mul-op0"
    alone = checked(opened(without_graph(tmp_path), watch))
    beside = checked(opened(tmp_path, "TO", watch))
    assert [hit.key for hit in alone] == [hit.key for hit in beside]
    assert only(beside)[1].condition == "tensor_too_large"


def test_a_watchpoint_that_names_a_node_judges_its_scalars_too(tmp_path: Path) -> None:
    assert checked(opened(without_graph(tmp_path), "TL max_gt=5")) != ()
    (hit,) = checked(opened(tmp_path, "TL max_gt=5 @ Exp-op0"))
    assert hit.key.side is Side.INPUT
