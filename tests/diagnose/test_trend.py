"""The history of a tensor against NumPy in float64, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.session.opened import opened
from tests.sources.memory import MemorySource, Op
from tests.sources.writer import MLP, DumpWriter, Graph, write_dump, write_step
from tui_debugger.diagnose.trend import (
    ONE,
    SEVERAL,
    PlotArea,
    PointState,
    about,
    cells,
    drawing,
    groups_for,
    joined,
    related,
    rows,
    trend,
    unchecked,
    with_hits,
    worth_marking,
    worth_marking_at,
)
from tui_debugger.errors import CancelledError, UnreadableTensorError
from tui_debugger.model import Progress, Side, TensorKey
from tui_debugger.session import Session
from tui_debugger.stats.fields import METRICS
from tui_debugger.stats.health import Health

Dumps = Callable[[str], Path]
MATMUL, RELU, MOMENTUM = (node.name for node in MLP.nodes)


def key_of(node: str, session: Session, *, side: Side = Side.OUTPUT, slot: int = 0, rank: int = 0) -> TensorKey:
    nodes = session.nodes(rank)
    return TensorKey(rank, nodes.graph_of(nodes.find(node)).name, node, side, slot, 0)


def reference(values: npt.NDArray[Any]) -> dict[str, float]:
    """Every metric by NumPy alone."""
    wide = values.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    nothing = not len(finite)
    return {
        "min": math.nan if nothing else float(finite.min()),
        "mean": math.nan if nothing else float(finite.mean()),
        "max": math.nan if nothing else float(finite.max()),
        "norm": math.nan if nothing else float(np.sqrt((finite**2).sum())),
        "abs_mean": math.nan if nothing else float(np.abs(finite).mean()),
        "std": math.nan if nothing else float(finite.std()),
        "nan": float(np.isnan(wide).sum()),
        "inf": float(np.isinf(wide).sum()),
        "zero": 100 * float((wide == 0).sum()) / wide.size,
    }


@pytest.mark.parametrize(
    ("dump", "node", "side"),
    [
        ("mindspore-2.0-nan", "head.weight", Side.OUTPUT),
        ("mindspore-2.0-nan", "Default/network-WithLossCell/_backbone-Net/Log-op381", Side.OUTPUT),
        ("mindspore-2.0-nan", "Default/network-WithLossCell/_backbone-Net/Log-op381", Side.INPUT),
        ("mindspore-2.10-mlp", "fc1.weight", Side.OUTPUT),
    ],
)
def test_every_number_equals_the_reference(dumps: Dumps, dump: str, node: str, side: Side) -> None:
    session = opened(dumps(dump))
    series = trend(session, key_of(node, session, side=side), session.steps(0))
    assert series.known == len(session.steps(0))
    for index, step in enumerate(series.steps.tolist()):
        expected = reference(session.read(series.key_at(step)))
        for metric in METRICS:
            found = float(series.of(metric)[index])
            assert np.isclose(found, expected[metric], rtol=1e-9, atol=1e-18, equal_nan=True), (metric, step)


def test_a_step_without_the_tensor_is_a_gap(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1, 2))
    for file in (tmp_path / "rank_0" / writer.net / "0" / "1").glob("ReLU*"):
        file.unlink()
    session = opened(tmp_path)
    series = trend(session, key_of(RELU, session), session.steps(0))
    assert series.state.tolist() == [PointState.MEASURED, PointState.ABSENT, PointState.MEASURED]
    assert np.isnan(series.values[:, 1]).all()
    assert cells(series, 1) == ("1", " ", "not dumped")
    assert about(series) == "float32 2×3, 3 steps: 2 measured, 1 not dumped"
    assert rows(series)[1]["min"] is None


def test_a_broken_file_says_why(tmp_path: Path) -> None:
    writer = write_dump(tmp_path)
    (file,) = (tmp_path / "rank_0" / writer.net / "0" / "1").glob("ReLU*output*")
    file.write_bytes(b"broken")
    session = opened(tmp_path)
    series = trend(session, key_of(RELU, session), session.steps(0))
    assert PointState(int(series.state[1])) is PointState.UNREADABLE
    assert series.errors[1, 0]
    assert Health(int(worth_marking(series)[1])) is Health.UNREADABLE
    assert cells(series, 1)[1] == "?"


def test_statistics_alone_are_shown_and_nothing_is_made_up(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)  # of unknown version: before 2.4 extremes leave NaN and Inf out
    writer.graph(MLP)
    values = {step: np.array([[1, -2, 0], [step, np.nan, np.inf]], np.float32) for step in (0, 1)}
    few = ("Op Type", "Op Name", "Task ID", "Stream ID", "Timestamp", "IO", "Slot", "Data Size", "Data Type", "Shape")
    for step, array in values.items():
        columns = {} if step == 0 else {"columns": (*few, "Max Value", "Min Value")}
        writer.statistics(step, [("ReLU", RELU.replace("/", "_"), "output", 0, array)], **columns)
    writer.history([0, 1])
    session = opened(tmp_path)
    series = trend(session, key_of(RELU, session), session.steps(0))
    assert series.state.tolist() == [PointState.RECORDED, PointState.RECORDED]
    assert series.of("max").tolist() == [1, 1]
    assert (series.of("nan")[0], series.of("inf")[0]) == (1, 1)
    unknown = [metric for metric in METRICS if np.isnan(series.of(metric)[1])]
    assert unknown == ["mean", "norm", "abs_mean", "std", "nan", "inf", "zero"]
    assert cells(series, 1)[-1] == "recorded"


def test_parts_joined_are_the_whole(dumps: Dumps) -> None:
    session = opened(dumps("mindspore-2.0-nan"), "TO")
    session.check(session.pairs())
    key = key_of("head.weight", session)
    whole = trend(session, key, session.steps(0))
    parts = [trend(session, key, part) for part in ([3, 4], [0, 1, 2], [4, 5], [])]
    again = joined(parts)
    for one, two in ((whole.steps, again.steps), (whole.state, again.state), (whole.health, again.health)):
        assert np.array_equal(one, two)
    assert np.array_equal(whole.values, again.values, equal_nan=True)
    assert whole.hit_texts == again.hit_texts


def test_steps_are_marked_by_what_the_session_found(dumps: Dumps) -> None:
    session = opened(dumps("mindspore-2.0-nan"), "TO")
    node = "Default/network-WithLossCell/_backbone-Net/Log-op381"
    series = trend(session, key_of(node, session), session.steps(0))
    assert set(series.health.tolist()) == {Health.UNCHECKED}
    assert unchecked(session, series) == [(0, step) for step in range(6)]
    assert [Health(int(code)).name for code in worth_marking(series)] == [*("ABSENT",) * 3, "INF", *("ABSENT",) * 2]
    session.check(session.pairs())
    series = with_hits(session, series)
    assert unchecked(session, series) == []
    assert [Health(code).name for code in series.health.tolist()] == [*("CLEAN",) * 3, "ORIGIN", *("CLEAN",) * 2]
    assert series.hit_texts == {(3, 0): "TO"}
    assert all(worth_marking_at(series, index) >= worth_marking(series)[index] for index in range(6))


def test_nothing_is_read_twice(dumps: Dumps) -> None:
    session = opened(dumps("mindspore-2.0-mlp"))
    key = key_of("fc1.weight", session)
    for reads in (True, False):
        told: list[Progress] = []
        trend(session, key, session.steps(0), told.append)
        assert any(each.text == "statistics" for each in told) == reads


def test_it_can_be_stopped(dumps: Dumps) -> None:
    session = opened(dumps("mindspore-2.0-mlp"))

    def stop(_: Progress) -> None:
        raise CancelledError("stopped")

    with pytest.raises(CancelledError):
        trend(session, key_of("fc1.weight", session), session.steps(0), stop)


def test_a_node_that_is_not_there_is_an_error(dumps: Dumps) -> None:
    session = opened(dumps("mindspore-2.0-mlp"))
    with pytest.raises(UnreadableTensorError, match="no such node"):
        trend(session, TensorKey(0, "kernel_graph_0", "nobody", Side.OUTPUT, 0, 0), session.steps(0))


def test_text_has_no_numbers() -> None:
    session = Session(MemorySource({0: {0: {("a", 1, 0): np.array(["x", "y"])}}}, ops=[Op("a")]))
    series = trend(session, key_of("a", session), [0])
    assert series.state.tolist() == [PointState.NO_NUMBERS]
    assert cells(series, 0)[-1] == "no numbers"


def test_a_weight_has_its_gradient_and_state(dumps: Dumps) -> None:
    session = opened(dumps("mindspore-2.0-nan"))
    found = related(session, key_of("head.weight", session))
    names = [(word, key.node.rpartition("/")[2]) for word, key in found]
    assert names[0] == ("gradient", "MatMul-op445")
    assert names[1:3] == [("state", "moment1.head.weight"), ("state", "moment2.head.weight")]
    back = related(session, found[0][1])
    assert ("weight", "head.weight") in [(word, key.node) for word, key in back]
    assert related(session, key_of("Default/network-WithLossCell/_backbone-Net/Log-op381", session)) == ()


def test_marks_of_bad_steps_stand_at_their_columns(dumps: Dumps) -> None:
    session = opened(dumps("mindspore-2.0-nan"))
    series = trend(session, key_of("head.weight", session), session.steps(0))
    shown = drawing([series], ONE[0], PlotArea(60, 12))
    columns = shown.plot.columns(series.steps.astype(np.float64)).tolist()
    assert [shown.mark_line[column] for column in columns] == [" ", " ", " ", "N", "N", "N"]
    assert shown.mark_line.count("N") == 3
    rightmost = max(len(row.rstrip()) for row in shown.plot.rows)
    assert rightmost == columns[2] + 1  # NaN is no value


def test_several_tensors_share_an_axis_and_have_marks_of_their_own(tmp_path: Path) -> None:
    session = opened(write_dump(tmp_path, ranks=(0, 1)).root)
    several = [trend(session, key_of("fc1.weight", session, rank=rank), session.steps(rank)) for rank in (0, 1)]
    assert groups_for(2) == SEVERAL
    shown = drawing(several, SEVERAL[0], PlotArea(80, 14))
    assert [(each.mark, each.text) for each in shown.legend] == [
        ("○", "rank 0 fc1.weight:out:0"),
        ("△", "rank 1 fc1.weight:out:0"),
    ]
    text = "".join(shown.plot.rows)
    assert text.count("○") + text.count("△") >= 4


def test_a_hundred_thousand_steps_keep_every_nan() -> None:
    count = 100_000
    steps = {step: {("a", 1, 0): np.array([np.nan if step == 77_777 else 1.0])} for step in (0, 77_777, count)}
    session = Session(MemorySource({0: steps}, ops=[Op("a")]))
    series = trend(session, key_of("a", session), session.steps(0))
    shown = drawing([series], ONE[0], PlotArea(100, 12))
    assert shown.mark_line.count("N") == 1


def test_a_graph_without_optimizer_has_no_relatives(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    graph = Graph(MLP.nodes[:2], MLP.parameters)
    writer.metadata()
    writer.graph(graph)
    write_step(writer, 0, graph)
    writer.history([0])
    session = opened(tmp_path)
    assert related(session, key_of("fc1.weight", session)) == ()
