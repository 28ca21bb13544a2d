"""Selected tensors behave like a list, and cost no objects before they are asked for."""

from __future__ import annotations

import copy
import operator
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.api.analyzers import short, tensor_id
from tui_debugger import (
    DebuggerTensor,
    DumpAnalyzer,
    Node,
    TensorOverflowCondition,
    TensorTooLargeCondition,
    Watchpoint,
)
from tui_debugger.api.nodes_and_tensors import DebuggerTensors, TensorColumns
from tui_debugger.errors import DebuggerParamTypeError, DebuggerParamValueError


@pytest.fixture
def tensors(nan: DumpAnalyzer) -> DebuggerTensors:
    return nan.select_tensors("ln1-LayerNorm/LayerNorm-op", iterations=[2, 3])


def test_order_is_node_then_slot_then_iteration(tensors: DebuggerTensors) -> None:
    assert short(tensors) == [
        (node, slot, step) for node in ("LayerNorm-op386", "LayerNorm-op412") for slot in (0, 1, 2) for step in (2, 3)
    ]


def test_slots_and_ranks_are_chosen(nan: DumpAnalyzer) -> None:
    chosen = nan.select_tensors("LayerNorm-op386", iterations=3, slots=[2, 0], ranks=0)
    assert short(chosen) == [("LayerNorm-op386", 0, 3), ("LayerNorm-op386", 2, 3)]
    assert len(nan.select_tensors("LayerNorm-op386", slots=[])) == 0


def test_it_does_what_a_list_does(tensors: DebuggerTensors) -> None:
    as_list = list(tensors)
    assert len(tensors) == len(as_list) == 12
    assert [tensors[at] for at in range(-12, 12)] == [as_list[at] for at in range(-12, 12)]
    assert tensors[2:9:3] == as_list[2:9:3]
    assert list(reversed(tensors)) == as_list[::-1]
    assert tensors[5] in tensors
    assert "LayerNorm" not in tensors
    assert tensors.index(as_list[7]) == 7
    assert (tensors + tensors).index(as_list[7], 8) == 19
    assert (tensors + tensors).count(as_list[7]) == 2
    assert tensors
    assert not tensors[:0]
    assert repr(tensors[:0]) == "<no tensors>"
    assert repr(tensors).startswith("<12 tensors: <DebuggerTensor ")
    for wrong in (12, -13):
        with pytest.raises(IndexError):
            tensors[wrong]
    with pytest.raises(ValueError, match="not among"):
        tensors[:3].index(as_list[7])


def test_equality_is_by_element(nan: DumpAnalyzer, tensors: DebuggerTensors) -> None:
    again = nan.select_tensors("ln1-LayerNorm/LayerNorm-op", iterations=[2, 3])
    assert tensors == again
    assert tensors == list(again)
    assert list(again) == tensors
    assert tensors != again[1:]
    assert tensors != again[::-1]
    assert tensors != list(again[::-1])
    assert tensors != tuple(again)
    with pytest.raises(TypeError):
        hash(tensors)


def test_sums(tensors: DebuggerTensors) -> None:
    total = tensors[:2] + tensors[4:6]
    assert isinstance(total, DebuggerTensors)
    assert total == [*tensors[:2], *tensors[4:6]]
    assert list(tensors[:1]) + tensors[1:] == tensors
    assert tensors[:1] + list(tensors[1:]) == tensors
    with pytest.raises(TypeError):
        operator.add(tensors, (tensors[0],))


def test_nodes_and_tensors_are_values(nan: DumpAnalyzer, tensors: DebuggerTensors) -> None:
    one, two = nan.select_nodes("Log-op381") + nan.select_nodes("Log-op381")
    assert one == two
    assert len({one, two, *nan.select_nodes("Log-op")}) == 1
    assert len(set(tensors + tensors)) == 12
    assert one != nan.select_nodes("Mul-op383")[0]
    assert one != "Log"
    assert tensors[0].node == nan.select_nodes("LayerNorm-op386")[0]
    with pytest.raises(AttributeError):
        one.name = "other"
    assert str(tensors[0]) == (
        "rank: 0\ngraph_name: kernel_graph_0\nnode_name: Default/network-WithLossCell/_backbone-Net/"
        "blocks-SequentialCell/0-Block/ln1-LayerNorm/LayerNorm-op386\nslot: 0\niteration: 2"
    )


def test_two_analyzers_of_one_dump_understand_each_other(nan: DumpAnalyzer, dumps: Callable[[str], Path]) -> None:
    with DumpAnalyzer(dumps("mindspore-2.0-nan")) as other:
        mine, theirs = nan.select_tensors("Log-op"), other.select_tensors("Log-op")
        assert mine != theirs
        assert mine[0] not in theirs
        assert len(mine + theirs) == 12
        assert isinstance(mine + theirs, list)
        hits = nan.check_watchpoints([Watchpoint(theirs, TensorOverflowCondition())])
        assert [hit.tensor for hit in hits] == [mine[3]]
        assert nan.get_input_nodes(theirs[0].node) == nan.get_input_nodes(mine[0].node)


def test_a_node_of_another_dump_is_refused(nan: DumpAnalyzer, mlp: DumpAnalyzer) -> None:
    (node,) = mlp.select_nodes("fc1.bias")[:1]
    with pytest.raises(DebuggerParamValueError, match="another dump"):
        nan.get_output_nodes(node)
    with pytest.raises(DebuggerParamValueError, match="another dump"):
        nan.check_watchpoints([Watchpoint(mlp.select_tensors("fc1.bias"), TensorOverflowCondition())])


def test_tables_are_flat_rows_in_order(nan: DumpAnalyzer, tensors: DebuggerTensors) -> None:
    rows = tensors.table()
    assert [[row["rank"], row["graph"], row["node"], row["slot"], row["step"]] for row in rows] == [
        tensor_id(tensor) for tensor in tensors
    ]
    assert {row["side"] for row in rows} == {"output"}
    measured = nan.select_tensors("RowNorm/Div-op385").table(statistics=True)
    for row, tensor in zip(measured, nan.select_tensors("RowNorm/Div-op385"), strict=True):
        values = tensor.value()
        assert values is not None
        assert (row["dtype"], row["shape"], row["count"]) == (values.dtype.name, list(values.shape), values.size)
        assert row["nan"] == np.isnan(values).sum()
        assert row["mean"] == pytest.approx(np.nanmean(values.astype(np.float64)))
        assert row["error"] == ""
    (absent,) = nan.select_tensors("inputs1", iterations=0).table(statistics=True)
    assert (absent["dtype"], absent["count"], absent["error"]) == (None, None, "")


def test_a_million_tensors_are_a_few_arrays(nan: DumpAnalyzer, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    real = DebuggerTensor.__init__

    def counted(self: DebuggerTensor, node: Node, slot: int, iteration: int) -> None:
        made.append(iteration)
        real(self, node, slot, iteration)

    monkeypatch.setattr(DebuggerTensor, "__init__", counted)
    small = nan.select_tensors("")
    assert not made
    tracemalloc.start()
    try:
        copies = 300
        columns: list[Any] = [np.tile(getattr(small.columns, name), copies) for name in TensorColumns.__slots__]
        many = DebuggerTensors(small.run, TensorColumns(*columns))
        assert len(many) == 3510 * copies > 1_000_000
        half = many[: len(many) // 2] + many[len(many) // 2 :]
        assert half == many
        assert many.count(small[17]) == copies
        hits = nan.check_watchpoints([Watchpoint(many, TensorOverflowCondition())])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(hits) == 910
    assert len(made) == len(hits) + 1
    assert peak < 300 * 2**20


def backwards(tensor: DebuggerTensor) -> int:
    return -tensor.iteration


EDITS: dict[str, Callable[[Any, Any], object]] = {
    "append": lambda tensors, more: tensors.append(more[0]),
    "extend by its own kind": lambda tensors, more: tensors.extend(more),
    "extend by a generator": lambda tensors, more: tensors.extend(each for each in more),
    "extend by itself": lambda tensors, _: tensors.extend(tensors),
    "add in place": operator.iadd,
    "insert": lambda tensors, more: tensors.insert(-2, more[1]),
    "replace one": lambda tensors, more: operator.setitem(tensors, -3, more[0]),
    "replace some": lambda tensors, more: operator.setitem(tensors, slice(1, 4), more),
    "replace every other": lambda tensors, more: operator.setitem(tensors, slice(0, 4, 2), more[:2]),
    "delete one": lambda tensors, _: operator.delitem(tensors, -1),
    "delete some": lambda tensors, _: operator.delitem(tensors, slice(1, None, 3)),
    "pop": lambda tensors, _: tensors.pop(2),
    "remove": lambda tensors, _: tensors.remove(tensors[4]),
    "reverse": lambda tensors, _: tensors.reverse(),
    "sort": lambda tensors, _: tensors.sort(key=backwards),
    "sort, reverse": lambda tensors, _: tensors.sort(key=backwards, reverse=True),
    "clear": lambda tensors, _: tensors.clear(),
    "copy": lambda tensors, more: tensors.copy().extend(more),
}


@pytest.mark.parametrize("name", EDITS)
def test_it_changes_as_a_list_does(name: str, nan: DumpAnalyzer, tensors: DebuggerTensors) -> None:
    more, part, other = nan.select_tensors("Log-op381"), tensors[2:5], tensors.copy()
    as_list = list(tensors)
    EDITS[name](tensors, more)
    EDITS[name](as_list, list(more))
    assert list(tensors) == as_list
    assert list(part) == list(other)[2:5], "a slice is a list of its own"
    assert len(other) == 12


def test_what_cannot_be_put_in(tensors: DebuggerTensors, mlp: DumpAnalyzer) -> None:
    before = list(tensors)
    with pytest.raises(DebuggerParamValueError, match="another analyzer"):
        tensors.extend(mlp.select_tensors("MatMul"))
    with pytest.raises(DebuggerParamTypeError):
        tensors.append("LayerNorm-op386")  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(IndexError):
        tensors[12] = before[0]
    with pytest.raises(IndexError):
        del tensors[12]
    with pytest.raises(ValueError, match="slice"):
        tensors[0:4:2] = before[:3]
    assert list(tensors) == before


def test_copies_speak_of_the_same_dump(nan: DumpAnalyzer) -> None:
    tensors = nan.select_tensors("Log-op381")
    (hit,) = nan.check_watchpoints([Watchpoint(tensors, TensorOverflowCondition())])
    assert copy.deepcopy(tensors) == tensors
    assert copy.deepcopy(hit).tensor == hit.tensor == copy.copy(hit.tensor)


def test_what_is_bound_to_an_open_dump_cannot_be_pickled_and_says_what_to_do(nan: DumpAnalyzer) -> None:
    tensors = nan.select_tensors("Log-op381")
    hits = nan.check_watchpoints([Watchpoint(tensors, TensorOverflowCondition())])
    for each in (tensors, tensors[0], tensors[0].node, hits):
        with pytest.raises(TypeError, match="make a DumpAnalyzer in each process"):
            pickle.dumps(each)
    condition = pickle.loads(pickle.dumps(TensorTooLargeCondition(max_gt=2)))  # noqa: S301 - our own
    assert (condition.name, condition.param_dict) == ("TensorTooLarge", {"max_gt": 2.0})
