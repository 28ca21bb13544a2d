"""The small parts of the client: names, graphs, chunks, judgements."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.watch.scalar_judge import judge_scalar
from tui_debugger.graph.build import build_table
from tui_debugger.graph.messages import parse_graph, type_name
from tui_debugger.graph.table import NodeTable
from tui_debugger.live import wire
from tui_debugger.live.client.agent import of_the_training
from tui_debugger.live.client.judging import ClientJudge, as_watchpoint, resolve, watched
from tui_debugger.live.client.messages import GraphBuilder, cut, graph_chunks, stack_text, type_number
from tui_debugger.live.client.probe import Identity
from tui_debugger.live.client.recorded import CopyBudget, Recordings, measure
from tui_debugger.live.client.unpacking import to_numpy
from tui_debugger.live.graph import wire_params
from tui_debugger.live.wire import RemoteWatchpoint
from tui_debugger.model import Category, Watchpoint
from tui_debugger.stats.dtypes import canonical_name
from tui_debugger.stats.records import RequiredStats
from tui_debugger.watch.condition_table import CONDITIONS, Value, validate

# -- judging ---------------------------------------------------------------------------------------------

VALUES = {
    "zero_percentage_ge": 50.0,
    "rtol": 0.1,
    "range_start_inclusive": -1.0,
    "range_end_inclusive": 1.0,
    "range_percentage_gt": 1.0,
}


def _remote(watchpoint: Watchpoint, *nodes: tuple[str, str]) -> RemoteWatchpoint:
    """As a server sends it: every parameter in its place, those that are not set switched off."""
    wire_number = CONDITIONS[watchpoint.condition].wire
    return RemoteWatchpoint(watchpoint.id, wire_number, wire_params(watchpoint), tuple((*node, "g") for node in nodes))


def _every_condition() -> list[Watchpoint]:
    watchpoints = []
    for number, condition in enumerate(CONDITIONS.values(), 1):
        names = [spec.name for spec in condition.params if spec.visible]
        chosen: dict[str, Value] = {name: VALUES.get(name, 0.5) for name in names}
        if condition.id == "expression":
            chosen = {"expression": "max > 1 and dtype == 'float64' or nan > 0"}
        watchpoints.append(Watchpoint(number, condition.id, validate(condition.id, chosen)))
    return watchpoints


@pytest.mark.parametrize("watchpoint", _every_condition(), ids=lambda each: each.condition)
@pytest.mark.parametrize(
    ("array", "previous"),
    [
        ([1.0, 2.0], [1.0, 2.0]),
        ([0.0, 0.0], [5.0, 1.0]),
        ([np.nan, 1.0], [1.0, 1.0]),
        ([np.inf, 1.0], None),
        ([1.0, 2.0, 3.0], [1.0, 2.0]),
        ([], []),
    ],
    ids=["same", "zero", "nan", "inf", "shape", "empty"],
)
def test_a_condition_from_the_wire_judges_as_offline(
    watchpoint: Watchpoint, array: list[float], previous: list[float] | None
) -> None:
    judge = watched([_remote(watchpoint, ("x", "leaf"))], ["x"])
    need = judge.need("x")
    assert need is not None
    record = measure(np.array(array), need, None if previous is None else np.array(previous))
    initial = CONDITIONS[watchpoint.condition].initial_only
    expected = judge_scalar(watchpoint, record, first_step=False, initial=initial)
    found = judge.results("x", record, initial=initial)
    if expected is None or (previous is None and "previous" in str(expected)):
        assert not found
        return
    for result in found:  # several conditions share a number on the wire: the id may be that of another one
        assert CONDITIONS[result.condition].wire == CONDITIONS[expected.condition].wire
        assert (result.watchpoint, result.error, result.params) == (
            expected.watchpoint,
            expected.error,
            expected.params,
        )
    assert found or expected.error & 4


def test_unknown_conditions_are_left_out() -> None:
    assert as_watchpoint(RemoteWatchpoint(1, 99, (), ())) is None
    assert not watched([RemoteWatchpoint(1, 99, (), (("x", "", ""),))], ["x"])


def test_scopes_cover_what_is_below_them() -> None:
    judge = watched([_remote(Watchpoint(1, "tensor_overflow"), ("net/fc1", "scope"))], ["net/fc1/a", "net/fc10/b"])
    assert judge.need("net/fc1/a") is not None
    assert judge.need("net/fc10/b") is None


def test_a_watchpoint_that_names_a_node_twice_judges_it_once() -> None:
    judge = watched([_remote(Watchpoint(1, "tensor_overflow"), ("a", ""), ("kernel_graph_0/a", ""))], ["a"])
    assert len(judge.watchpoints("a")) == 1


def test_many_tensors_at_once_are_judged_as_each_alone() -> None:
    names = ["a", "b", "c"]
    judge = ClientJudge((each, names[: 1 + each.id % 3]) for each in _every_condition())
    arrays = [np.zeros(4), np.array([np.nan, 1.0]), np.array([1e30, -2.0, 3.0])]
    records = [(name, measure(array, judge.need(name) or RequiredStats())) for name in names for array in arrays]
    at_once = judge.evaluate(records)
    assert at_once == [judge.results(name, record) for name, record in records]
    assert any(at_once)


def test_a_record_that_holds_less_answers_the_watchpoints_that_it_can() -> None:
    overflow, unchanged = Watchpoint(1, "tensor_overflow"), Watchpoint(2, "weight_not_changed", validate("WNC", {}))
    judge = ClientJudge([(overflow, ["a"]), (unchanged, ["a"])])
    (found,) = judge.evaluate([("a", measure(np.array([np.nan]), RequiredStats()))], covered_only=True)
    assert [each.watchpoint for each in found] == [1]


@pytest.mark.parametrize("together", [1, 2, 1000])
def test_whatever_was_recorded_under_one_name_is_judged(monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    """Whether they are judged one by one, in pairs, or at the end: each counts, the first hit is the one reported."""
    monkeypatch.setattr("tui_debugger.live.client.recorded._TOGETHER", together)
    recordings = Recordings(Identity("test"), CopyBudget(1 << 20), keeping=True)
    recordings.add("a", "activation", np.zeros(1))
    recordings.watch([_remote(Watchpoint(1, "tensor_too_large", validate("TL", {"max_gt": 1.0})), ("a", ""))])
    for value in (1.0, 2.0, 1.0, 4.0, 1.0):
        recordings.add("a", "activation", np.array([value]))
    (hit,) = recordings.evaluate(recheck=False, initial=False)
    assert hit.result.params[0].actual == 2.0
    assert recordings.evaluate(recheck=False, initial=False) == [hit]
    recordings.next_step()
    recordings.add("a", "activation", np.array([1.0]))
    assert recordings.evaluate(recheck=False, initial=False) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a/b", "a/b"), ("graph/a/b", "a/b"), ("else/w", "w"), ("else/b", "else/b"), ("nowhere", "nowhere")],
)
def test_how_names_are_resolved(name: str, expected: str) -> None:
    assert resolve(name, ["a/b", "c/b", "w"]) == expected


# -- graphs ----------------------------------------------------------------------------------------------


def _table(builder: GraphBuilder) -> NodeTable:
    return build_table([parse_graph(builder.serialize())])


def test_weights_are_known_by_what_updates_them() -> None:
    builder = GraphBuilder()
    for name in ("odd name", "other", "table"):
        builder.add_parameter(name, ("float32", (2, 3)))
    builder.add_node("Gradients/other", "Gradient", ["other"], [("float32", (2, 3))])
    builder.add_update([("odd name", ""), ("other", "Gradients/other")])
    nodes = _table(builder)
    categories = {nodes.names[row]: nodes.category_of(row) for row in range(len(nodes))}
    assert categories["odd name"] is categories["other"] is Category.WEIGHT
    assert categories["table"] is Category.PARAMETER
    assert categories["Gradients/other"] is Category.GRADIENT


def test_nodes_with_several_outputs_and_a_stack() -> None:
    builder = GraphBuilder()
    frames = [("/home/me/train.py", 12, "a, b = f(x)"), ("/home/me/main.py", 3, "train()")]
    builder.add_node("f", "Split", (), [("bfloat16", (2,)), ("float8_e5m2", ())], stack_text(frames))
    builder.add_node("g", "Add", ["f", "not there"], [("int64", (1, 2, 3))])
    nodes = _table(builder)
    assert nodes.outputs[nodes.find("f")] == 2
    assert nodes.inputs(nodes.find("g")) == [(nodes.find("f"), 0), (-1, 0)]
    assert [(frame.path, frame.line, frame.code) for frame in nodes.stacks[0]] == frames
    slots = parse_graph(builder.serialize()).nodes[0].outputs
    assert [tuple(slot) for slot in slots] == [("bfloat16", (2,)), ("float8_e5m2", ())]


def test_numbers_of_element_types_are_read_back() -> None:
    for name in ("bool", "int8", "uint64", "float16", "float32", "float64", "bfloat16", "int4", *wire.OWN_TYPES):
        assert canonical_name(name)
        assert type_name(type_number(name)) == name
    assert type_number("string") == type_number("<U3") == 0


# -- chunks ----------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=30), max_size=8), st.integers(1, 12))
def test_bytes_are_cut_into_equal_pieces(chunks: list[bytes], size: int) -> None:
    pieces = list(cut([memoryview(chunk) for chunk in chunks], size))
    assert b"".join(pieces) == b"".join(chunks)
    assert all(len(piece) == size for piece in pieces[:-1])
    assert all(pieces)


def test_graphs_are_cut_as_mindspore_does() -> None:
    big, small = b"a" * (wire.CHUNK + 1), b"b"
    assert [(len(chunk.buffer), chunk.HasField("finished")) for chunk in graph_chunks([big])] == [
        (wire.CHUNK, False),
        (1, False),
    ]
    assert [(len(chunk.buffer), chunk.finished) for chunk in graph_chunks([big, small])] == [
        (wire.CHUNK, False),
        (1, True),
        (1, True),
    ]


# -- arrays ----------------------------------------------------------------------------------------------


class _Dlpack:
    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


@pytest.mark.parametrize("value", [3, 2.5, [1, 2], np.ones(2), _Dlpack(np.arange(3.0))])
def test_what_converts_to_an_array(value: Any) -> None:
    array = to_numpy(value)
    assert isinstance(array, np.ndarray)
    assert array.dtype.kind in "fi"


# -- signals ---------------------------------------------------------------------------------------------


TOLD = "save and stop"


class _Handler:
    def method(self, *_: object) -> None:
        raise ValueError(TOLD)

    def __call__(self, *_: object) -> None:
        raise ValueError(TOLD)


def _function(*_: object) -> None:
    raise ValueError(TOLD)


@pytest.mark.parametrize(
    "handler",
    [_function, _Handler().method, _Handler(), functools.partial(_function)],
    ids=lambda each: str(type(each)),
)
def test_what_a_handler_raises_is_told_from_other_errors(handler: Callable[[int, FrameType | None], None]) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(ValueError, match=TOLD) as caught:
            signal.raise_signal(signal.SIGUSR1)
        assert of_the_training(caught.value)
        with pytest.raises(ValueError, match="invalid literal") as other:
            int("x")
        assert not of_the_training(other.value)
    finally:
        signal.signal(signal.SIGUSR1, before)
