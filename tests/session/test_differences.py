"""Where a session differs from MindInsight on purpose: one test per row of README's table, and what belongs to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.session.opened import checked, file_of, found, only, opened, watch
from tests.sources.writer import MLP, DumpWriter, Generation, Graph, Node, write_dump, write_step
from tui_debugger.graph.search import NodeQuery
from tui_debugger.graph.table import NodeFlag
from tui_debugger.model import Category, ErrorBits, Side, TensorKey, Verdict
from tui_debugger.session import Session

Array = npt.NDArray[Any]

MATMUL, RELU, MOMENTUM = (node.name for node in MLP.nodes)


def sequence(root: Path, *steps: Array, name: str = "Add-op1") -> Session:
    """A session on a dump in which one operator's output takes these values, one step each."""
    writer = DumpWriter(root, Generation.V2_0)
    for step, values in enumerate(steps):
        writer.tensor(step, "Add", name, values)
    return opened(root)


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


def rewrite(root: Path, step: int, pattern: str, values: Array) -> None:
    """Replaces the values of the one file of a step that matches."""
    (path,) = (root / f"rank_0/Net/0/{step}").glob(pattern)
    np.save(path, values)


def test_every_writing_is_judged_in_the_order_of_time_stamps_as_numbers(tmp_path: Path) -> None:
    step = DumpWriter(tmp_path, Generation.V2_0).step(0)
    for clock, value in ((9, 1.0), (10, np.nan), (8, np.inf)):
        np.save(step / f"Add.Add-op1.0.0.{clock}.output.0.DefaultFormat.npy", floats(value, 0))
    session = opened(tmp_path, "TO")
    first, last = checked(session)
    assert [(hit.key.round, file_of(session, hit).name.split(".")[4]) for hit in (first, last)] == [(1, "8"), (3, "10")]
    assert [(hit.stats.nan, hit.stats.inf) for hit in (first, last) if hit.stats is not None] == [(0, 1), (1, 0)]


def test_older_writings_are_judged_too(tmp_path: Path) -> None:
    step = DumpWriter(tmp_path, Generation.V2_0).step(0)
    for clock, value in ((9, np.nan), (10, 1.0)):
        np.save(step / f"Add.Add-op1.0.0.{clock}.output.0.DefaultFormat.npy", floats(value, 0))
    assert [hit.key.round for hit in checked(opened(tmp_path, "TO"))] == [1]


def test_epsilon_is_used(tmp_path: Path) -> None:
    session = sequence(tmp_path, floats(0.001, 0.001), floats(0.002, 0.002))
    watch(session, "WCL abs_mean_update_ratio_gt=0.5")
    hit, result = only(checked(session, 1))
    assert result.params[0].actual == pytest.approx(1, rel=1e-5)
    watch(session, "WCL abs_mean_update_ratio_gt=0.5 epsilon=1")
    (hit,) = checked(session, 1)
    assert [r.watchpoint for r in hit.results] == [1]


def test_equal_nan_is_used(tmp_path: Path) -> None:
    session = sequence(tmp_path, floats(np.nan, 1), floats(np.nan, 1))
    watch(session, "WNC", "WNC equal_nan=true")
    (hit,) = checked(session, 1)
    suppressed, unchanged = hit.results
    assert suppressed.error is ErrorBits.NAN
    assert unchanged.error is ErrorBits.NONE
    assert unchanged.verdict is Verdict.FINDING


@pytest.mark.parametrize("text", ["WNC", "WCL abs_mean_update_ratio_gt=1", "WCS abs_mean_update_ratio_lt=1"])
def test_a_changed_shape_is_reported(tmp_path: Path, text: str) -> None:
    session = sequence(tmp_path, floats(1, 2, 3), floats(1, 2))
    watch(session, text)
    hit, result = only(checked(session, 1))
    assert result.error is ErrorBits.SHAPE_CHANGED
    assert hit.verdict is Verdict.FINDING


def test_the_same_elements_in_another_shape_are_a_changed_shape(tmp_path: Path) -> None:
    session = sequence(tmp_path, np.ones((2, 3)), np.ones((3, 2)))
    watch(session, "WNC")
    assert only(checked(session, 1))[1].error is ErrorBits.SHAPE_CHANGED


def test_an_infinity_that_became_finite_has_changed(tmp_path: Path) -> None:
    session = sequence(tmp_path, floats(np.inf, 1), floats(5, 1), floats(5, 1))
    watch(session, "WNC", "WNC rtol=1 atol=1000")
    assert checked(session, 1) == ()
    assert [r.watchpoint for hit in checked(session, 2) for r in hit.results] == [1, 2]


def test_without_a_history_file_everything_is_judged(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    writer.graph(MLP)
    for step in (0, 4, 5):
        write_step(writer, step, seed=7 if step else 0)
    rewrite(tmp_path, 5, f"ReLU.{RELU.replace('/', '_')}.*.output.*", np.load(output(tmp_path, 4, "ReLU", RELU)))
    session = opened(tmp_path, "WNC")
    assert [run.step for run in session.history(0)] == [0, 4, 5]
    assert any("history" in notice for notice in session.info.notices)
    hits = checked(session)
    assert not any(r.error & ErrorBits.NO_HISTORY for hit in hits for r in hit.results)
    assert {hit.key.step for hit in hits if hit.verdict is Verdict.NOT_COMPARABLE} == {0}
    assert found(hits) == [(RELU, 5)]


def output(root: Path, step: int, op_type: str, node: str) -> Path:
    (path,) = (root / f"rank_0/Net/0/{step}").glob(f"{op_type}.{node.replace('/', '_')}.*.output.*")
    return path


def test_initial_weights_are_judged_and_shown(tmp_path: Path) -> None:
    write_dump(tmp_path)
    rewrite(tmp_path, 0, "MatMul.*.input.1.*", np.zeros((2, 3), np.float32))
    session = opened(tmp_path, "WI zero_percentage_ge=100 @ category=weight")
    hit, result = only(checked(session))
    assert (hit.key.node, hit.key.side, hit.key.slot, hit.key.step) == (MATMUL, Side.INPUT, 1, 0)
    assert result.params[0].actual == 100.0
    row = session.tensor_rows(0, 0, session.nodes(0).find(MATMUL))[1]
    assert row.origin_text == "fc1.weight:0"
    assert row.hit


@pytest.mark.parametrize("device", ["CPU", "GPU", "Ascend", ""])
def test_conditions_work_whatever_the_device(tmp_path: Path, device: str) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    writer.metadata(device=device)
    rewrite(tmp_path, 1, "ReLU.*.output.*", np.full((2, 3), np.nan, np.float32))
    session = opened(tmp_path)
    assert session.info.device == device
    assert session.add_recommended() > 0
    assert (RELU, 1) in found(checked(session, 1))


@pytest.mark.parametrize("generation", list(Generation))
def test_a_dump_without_graph_history_and_metadata_is_judged(tmp_path: Path, generation: Generation) -> None:
    """As PyNative mode leaves it: nodes and their categories come from file names."""
    writer = DumpWriter(tmp_path, generation)
    for step in (0, 1):
        write_step(writer, step)
    for path in writer.step(1).glob("ReLU*.output.*"):
        np.save(path, floats(np.nan))
    session = opened(tmp_path, "TO", "WNC rtol=1000 @ category=weight")
    nodes = session.nodes(0)
    assert np.all(nodes.flags & NodeFlag.FILE_ONLY)
    hits = checked(session, 1)
    relu, weight = (hit.key.node for hit in hits)
    assert relu.endswith("ReLU-op2")
    assert nodes.category_of(nodes.find(relu)) is Category.ACTIVATION
    assert weight in ("fc1.weight", "fc1_weight")


@pytest.mark.parametrize("generation", [Generation.V2_3, Generation.V2_5, Generation.V2_10])
def test_names_of_2_3_and_newer_lead_to_the_nodes_of_the_graph(tmp_path: Path, generation: Generation) -> None:
    write_dump(tmp_path, generation)
    rewrite(tmp_path, 1, "ReLU.*.output.*", np.full((2, 3), np.inf, np.float32))
    rewrite(tmp_path, 2, "Parameter.fc1[._]weight.*", np.full((2, 3), np.nan, np.float32))
    assert found(checked(opened(tmp_path, "TO"))) == [(RELU, 1), ("fc1.weight", 2)]


EMBEDDING = Graph(
    nodes=(
        Node("Default/Gather-op1", "Gather", (("embed.table", 0), ("ids", 0))),
        Node("Default/LayerNorm-op2", "LayerNorm", (("Default/Gather-op1", 0), ("norm.gamma", 0))),
        Node("Default/optimizer-Adam/Adam-op3", "Adam", (("embed.table", 0), ("moment1.embed.table", 0))),
        Node("Default/optimizer-Adam/Adam-op4", "Adam", (("norm.gamma", 0), ("moment1.norm.gamma", 0))),
    ),
    parameters=("ids", "embed.table", "norm.gamma", "moment1.embed.table", "moment1.norm.gamma"),
)


def test_weights_are_what_an_optimizer_updates(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    writer.graph(EMBEDDING)
    for step in (0, 1):
        write_step(writer, step, EMBEDDING)
    session = opened(tmp_path, "WNC rtol=1000 @ category=weight", "WNC rtol=1000 @ category=trainable")
    hits = checked(session, 1)
    watched = {hit.key.node: [r.watchpoint for r in hit.results] for hit in hits if hit.key.side is Side.OUTPUT}
    assert watched == {"embed.table": [1, 2], "norm.gamma": [2]}
    nodes = session.nodes(0)
    assert nodes.category_of(nodes.find("moment1.embed.table")) is Category.OPTIMIZER_STATE


def test_change_conditions_work_on_any_tensor(tmp_path: Path) -> None:
    write_dump(tmp_path)
    rewrite(tmp_path, 2, "ReLU.*.output.*", np.load(output(tmp_path, 1, "ReLU", RELU)))
    assert found(checked(opened(tmp_path, "WNC"), 2)) == [(RELU, 2)]


@pytest.mark.parametrize("raw", [False, True])
def test_bfloat16_is_decoded(tmp_path: Path, raw: bool) -> None:
    writer = DumpWriter(tmp_path)
    values = floats(1, -2.5, 3e38, np.inf)
    for step, factor in enumerate((1.0, 2.0**-6)):
        scaled = (values * np.float32(factor)).astype(ml_dtypes.bfloat16).astype(np.float32)
        if raw:
            writer.raw_bfloat16(step, "Add", "Default/Add-op0", scaled)
        else:
            writer.tensor(step, "Add", "Default/Add-op0", scaled, dtype="bfloat16")
    session = opened(tmp_path, "TO")
    hit, _ = only(checked(session, 0))
    assert hit.stats is not None
    assert (hit.stats.pos_inf, hit.stats.minimum) == (1, -2.5)
    assert hit.stats.maximum == pytest.approx(3e38, rel=0.01)
    (row,) = session.measure(session.tensor_rows(0, 0, hit.row))
    assert row.meta is not None
    assert (row.meta.dtype, row.meta.shape) == ("bfloat16", (4,))
    np.testing.assert_array_equal(session.read(hit.key).astype(np.float32)[:2], [1, -2.5])


def test_averages_of_more_than_20000_elements_are_right(tmp_path: Path) -> None:
    """MindSpore 1.6 to 2.3 take the mean of the first chunk: 0.2 for this tensor."""
    values = np.concatenate([np.zeros(10_000), np.ones(15_000)]).astype(np.float32)
    session = sequence(tmp_path, values)
    watch(session, "TL mean_gt=0.5")
    hit, result = only(checked(session))
    assert hit.stats is not None
    assert hit.stats.mean == pytest.approx(0.6)
    assert result.params[0].actual == pytest.approx(0.6)


def test_an_average_that_an_old_dump_recorded_wrongly_is_not_believed(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    writer.metadata()
    values = np.concatenate([np.zeros(10_000), np.ones(15_000)]).astype(np.float32)
    writer.statistics(0, [("Add", "Add-op1", "output", 0, values)])
    session = opened(tmp_path)
    (row,) = session.measure(session.tensor_rows(0, 0, session.nodes(0).find("Add-op1")))
    assert row.recorded
    assert row.stats is not None
    assert (row.stats.count, row.stats.zero, row.stats.mean) == (25_000, 10_000, None)


@pytest.mark.parametrize("values", [np.full(3, np.nan), np.full(3, np.inf), np.zeros(0)])
def test_a_tensor_without_finite_values_has_no_minimum_maximum_and_mean(tmp_path: Path, values: Array) -> None:
    session = sequence(tmp_path, values)
    (row,) = session.measure(session.tensor_rows(0, 0, session.nodes(0).find("Add-op1")))
    assert row.stats is not None
    assert (row.stats.minimum, row.stats.maximum, row.stats.mean) == (None, None, None)


def test_a_big_tensor_is_looked_at_through_a_window(tmp_path: Path) -> None:
    """The old tool refuses values from 1 GiB on. The file is sparse, and only its ends are read."""
    writer = DumpWriter(tmp_path, Generation.V2_0)
    path = writer.tensor(0, "Add", "Add-op1", np.zeros(0, np.float32))
    count = 300 << 20
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (count // 1024, 1024)}
        )
        file.truncate(file.tell() + 4 * count)
    session = opened(tmp_path)
    values = session.read(TensorKey(0, session.nodes(0).graphs[0].name, "Add-op1", Side.OUTPUT, 0, 0))
    assert values.nbytes > 1 << 30
    assert values[-1, -1] == 0


def test_weight_not_changed_is_recommended_and_names_the_frozen_weight(tmp_path: Path) -> None:
    write_dump(tmp_path)
    rewrite(tmp_path, 2, "Parameter.fc1_weight.*", np.load(parameter(tmp_path, 1)))
    session = opened(tmp_path)
    session.add_recommended()
    names = {w.id: w.condition for w in session.watchpoints.items()}
    assert "weight_not_changed" in names.values()
    hits = [hit for hit in checked(session, 2) if hit.key.node == "fc1.weight"]
    assert {names[r.watchpoint] for hit in hits for r in hit.results} == {"weight_not_changed"}


def parameter(root: Path, step: int) -> Path:
    (path,) = (root / f"rank_0/Net/0/{step}").glob("Parameter.fc1_weight.*")
    return path


def test_the_recommended_set_is_silent_on_a_healthy_attention_net(dumps: Callable[[str], Path]) -> None:
    session = opened(dumps("mindspore-2.10-nan"))
    session.add_recommended()
    assert found(checked(session, 0, 1, 2)) == []


def test_steps_start_at_0_everywhere(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0, 1))
    rewrite(tmp_path, 0, "ReLU.*.output.*", np.full((2, 3), np.nan, np.float32))
    session = opened(tmp_path, "TO")
    assert list(session.steps(0)) == [0, 1]
    assert [run.step for run in session.history(0)] == [0, 1]
    hit, _ = only(checked(session))
    assert hit.key.step == 0
    assert hit.order[0] == 0


def test_inputs_outputs_and_parameters_have_values(tmp_path: Path) -> None:
    write_dump(tmp_path)
    session = opened(tmp_path)
    rows = session.measure(session.tensor_rows(0, 1, session.nodes(0).find(MATMUL)))
    assert [(row.role, row.slot, row.origin_text) for row in rows] == [
        ("in", 0, "x:0"),
        ("in", 1, "fc1.weight:0"),
        ("out", 0, ""),
        ("param", 1, "fc1.weight:0"),
    ]
    assert all(row.stats is not None for row in rows)
    for row in rows:
        assert session.read(row.key).shape == (2, 3)


def test_constants_are_never_watched(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    writer.graph(Graph(MLP.nodes, MLP.parameters, {"cst1": "Default--data-0"}))
    write_step(writer, 0)
    writer.constant(0, np.full((2, 3), np.nan))
    session = opened(tmp_path, "TO")
    assert checked(session) == ()
    assert not session.select(0, NodeQuery(watched=0))[session.nodes(0).find("cst1")]
