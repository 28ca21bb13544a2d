"""What checking gives: hits in order, their texts, their values, and tables of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.opened_files import opened_tensor_files
from tests.sources.writer import MLP, DumpWriter, Generation, write_dump
from tui_debugger import (
    ConditionBase,
    DumpAnalyzer,
    TensorAllZeroCondition,
    TensorOverflowCondition,
    TensorTooLargeCondition,
    TensorUnchangedCondition,
    Watchpoint,
    WatchpointHit,
)
from tui_debugger.errors import DebuggerParamTypeError
from tui_debugger.model import Verdict

ADD = "Default/Add-op1"


def sequence(root: Path, *steps: npt.NDArray[Any] | bytes) -> DumpAnalyzer:
    """An analyzer on a dump in which one operator's output takes these values (or its file these bytes)."""
    writer = DumpWriter(root, Generation.V2_3)
    for step, values in enumerate(steps):
        path = writer.tensor(step, "Add", ADD, np.zeros(2, np.float32) if isinstance(values, bytes) else values)
        if isinstance(values, bytes):
            path.write_bytes(values)
    return DumpAnalyzer(root)


def floats(*values: float) -> npt.NDArray[np.float32]:
    return np.array(values, np.float32)


def checked(run: DumpAnalyzer, condition: ConditionBase, **more: Any) -> list[WatchpointHit]:
    return run.check_watchpoints([Watchpoint(run.select_tensors("", **more), condition)])


def test_only_parameters_that_hit_are_told(tmp_path: Path) -> None:
    (hit,) = checked(sequence(tmp_path, floats(1, 2)), TensorTooLargeCondition(abs_mean_gt=1, max_gt=5, min_gt=0.5))
    detail = hit.get_hit_detail()
    assert detail is not None
    assert str(detail) == (
        "The setting for watchpoint is abs_mean_gt = 1.0, min_gt = 0.5. "
        "The actual value of the tensor is abs_mean_gt = 1.5, min_gt = 1.0."
    )
    assert detail.param_dict == {"abs_mean_gt": 1.5, "max_gt": 2.0, "min_gt": 1.0}
    assert [(p.name, p.value, p.hit, p.actual_value) for p in detail.params] == [
        *(("abs_mean_gt", 1.0, True, 1.5), ("max_gt", 5.0, False, 2.0), ("min_gt", 0.5, True, 1.0))
    ]
    assert (detail.name, detail.condition_id) == ("TensorTooLarge", 15)
    assert hit.get_threshold().param_dict == {"abs_mean_gt": 1.0, "max_gt": 5.0, "min_gt": 0.5}
    assert str(hit) == (
        f"Watchpoint TensorTooLarge triggered on tensor:\n{hit.tensor}\n"
        "Threshold: {'abs_mean_gt': 1.0, 'max_gt': 5.0, 'min_gt': 0.5}\n"
        f"Hit detail: {detail}"
    )


@pytest.mark.parametrize("condition", [TensorOverflowCondition(), TensorUnchangedCondition(equal := 1.0, equal)])
def test_what_has_no_parameter_to_hit_says_none(condition: ConditionBase, tmp_path: Path) -> None:
    values = floats(1, np.nan) if condition.name == "TensorOverflow" else floats(1, 2)
    *_, hit = checked(sequence(tmp_path, values, values), condition)
    assert (hit.error_code, str(hit.get_hit_detail())) == (0, "None.")


@pytest.mark.parametrize(
    ("before", "now", "code", "sentences"),
    [
        (floats(1), floats(np.nan), 1, ["Tensor contains NaN."]),
        (floats(1), floats(np.inf), 2, ["A tensor contains +/-INF."]),
        (floats(1, 1), floats(np.nan, -np.inf), 3, ["Tensor contains NaN.", "A tensor contains +/-INF."]),
        (floats(1, 2), floats(1), 64, ["The shape differs from that of the previous step."]),
        (floats(1), b"broken", 128, ["The tensor or its value of the previous step cannot be read."]),
        (b"broken", floats(1), 128, ["The tensor or its value of the previous step cannot be read."]),
    ],
)
def test_why_nothing_could_be_compared(
    before: npt.NDArray[Any] | bytes, now: npt.NDArray[Any] | bytes, code: int, sentences: list[str], tmp_path: Path
) -> None:
    (hit,) = checked(sequence(tmp_path, before, now), TensorUnchangedCondition(), iterations=1)
    assert (hit.error_code, hit.error_msg, hit.get_hit_detail()) == (code, sentences, None)
    assert str(hit) == (
        f"Watchpoint TensorUnchanged check failed on tensor:\n{hit.tensor}\n"
        f"Threshold: {{'rtol': 1e-05, 'atol': 1e-08}}\nError detail: {sentences}"
    )


def test_the_first_dumped_step_has_nothing_before_it(tmp_path: Path) -> None:
    first, second = checked(sequence(tmp_path, floats(1), floats(1)), TensorUnchangedCondition())
    assert (first.error_code, first.verdict) == (4, Verdict.NOT_COMPARABLE)
    assert first.error_msg == ["The previous step value cannot be found."]
    assert (second.error_code, second.verdict) == (0, Verdict.FINDING)


def test_an_empty_tensor_never_hits_and_has_no_value(tmp_path: Path) -> None:
    run = sequence(tmp_path, floats())
    assert checked(run, TensorAllZeroCondition(0)) == []
    (tensor,) = run.select_tensors("")
    assert tensor.value() is None
    assert tensor.shape == (0,)


def test_watchpoints_are_checked_together_and_each_keeps_its_tensors(nan: DumpAnalyzer) -> None:
    log, div = nan.select_tensors("Log-op381"), nan.select_tensors("RowNorm/Div-op385")
    hits = nan.check_watchpoints(
        [
            Watchpoint(div, TensorOverflowCondition()),
            Watchpoint(log[3:] + log[3:] + div, TensorTooLargeCondition(max_gt=1e9)),
            Watchpoint([], TensorOverflowCondition()),
            Watchpoint(list(log), TensorOverflowCondition()),
        ]
    )
    found = [(hit.tensor.node.name.rpartition("/")[2], hit.get_threshold().name, hit.error_code) for hit in hits]
    assert found == [
        ("Log-op381", "TensorTooLarge", 2),
        ("Log-op381", "TensorOverflow", 0),
        ("Div-op385", "TensorOverflow", 0),
        ("Div-op385", "TensorTooLarge", 1),
    ]
    assert {hit.tensor.iteration for hit in hits} == {3}
    assert nan.check_watchpoints([]) == []


def test_hits_of_several_ranks_come_side_by_side(tmp_path: Path) -> None:
    write_dump(tmp_path, ranks=(0, 1), steps=(0, 1))
    run = DumpAnalyzer(tmp_path)
    everything = TensorTooLargeCondition(abs_mean_gt=0)
    operators = [node.name for node in MLP.nodes]
    hits = [hit for hit in checked(run, everything) if hit.tensor.node.name in operators]
    found = [(hit.tensor.iteration, hit.tensor.node.name, hit.tensor.rank) for hit in hits]
    assert found == [(step, name, rank) for step in (0, 1) for name in operators for rank in (0, 1)]
    assert {hit.tensor.rank for hit in checked(run, everything, ranks=[1])} == {1}


def test_missing_values_are_told_only_when_asked_for(nan: DumpAnalyzer) -> None:
    tensors = nan.select_tensors("inputs1", iterations=[0, 1]) + nan.select_tensors("cst1$", use_regex=True)[:1]
    watchpoints = [Watchpoint(tensors, TensorOverflowCondition())]
    assert nan.check_watchpoints(watchpoints) == []
    hits = nan.check_watchpoints(watchpoints, error_on_no_value=True)
    assert [(hit.tensor.node.name, hit.tensor.iteration, hit.error_code) for hit in hits] == [
        *(("inputs1", 0, 32), ("cst1", 0, 32), ("inputs1", 1, 32))
    ]
    assert hits[0].error_msg == ["Tensor has no value."]


def test_statistics_alone_are_judged_as_far_as_they_go(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    for step in (0, 1):
        writer.statistics(step, [("Add", "Add-op1", "output", 0, floats(0, 0, 8))])
    run = DumpAnalyzer(tmp_path)
    (tensor, _) = run.select_tensors("")
    assert tensor.value() is None
    assert (tensor.dtype, tensor.shape) == ("float32", (3,))
    stats = tensor.statistics()
    assert stats is not None
    assert (stats.count, stats.zero, stats.maximum) == (3, 2, 8.0)
    assert [hit.tensor.iteration for hit in checked(run, TensorTooLargeCondition(max_gt=7))] == [0, 1]
    assert [hit.error_code for hit in checked(run, TensorUnchangedCondition())] == [4]  # the second has no value
    again = run.check_watchpoints([Watchpoint(run.select_tensors(""), TensorUnchangedCondition())], True)
    assert [hit.error_code for hit in again] == [4, 32]


def test_tables_have_a_row_per_parameter(nan: DumpAnalyzer) -> None:
    tensors = nan.select_tensors("RowNorm/ReduceSum-op384", iterations=[2, 3])
    hits = nan.check_watchpoints(
        [
            Watchpoint(tensors, TensorTooLargeCondition(abs_mean_gt=10, max_gt=1000)),
            Watchpoint(tensors, TensorOverflowCondition()),
            Watchpoint(nan.select_tensors("Log-op381"), TensorOverflowCondition()),
        ]
    )
    rows = hits.table()
    assert [(row["step"], row["watchpoint"], row["abbr"], row["parameter"], row["hit"]) for row in rows] == [
        (2, 0, "TL", "abs_mean_gt", True),
        (2, 0, "TL", "max_gt", False),
        (3, 2, "TO", None, None),
    ]
    values = tensors[0].value()
    assert values is not None
    assert rows[0]["actual"] == pytest.approx(np.abs(values.astype(np.float64)).mean())
    assert (rows[0]["threshold"], rows[0]["verdict"], rows[0]["error"]) == (10.0, "finding", 0)
    assert len({tuple(row) for row in rows}) == 1
    assert json.loads(json.dumps(rows)) == rows


def test_what_was_read_once_is_not_read_again(dumps: Callable[[str], Path]) -> None:
    with DumpAnalyzer(dumps("mindspore-2.0-mlp")) as run:
        tensors = run.select_tensors("", iterations=[1])
        with opened_tensor_files() as opened:
            run.check_watchpoints([Watchpoint(tensors, TensorOverflowCondition())])
        assert len(opened) == sum(tensor.shape is not None for tensor in tensors) - 1  # the one constant with a file
        with opened_tensor_files() as opened:
            run.check_watchpoints([Watchpoint(tensors, TensorTooLargeCondition(max_gt=limit)) for limit in (1, 2, 3)])
            tensors.table(statistics=True)
        assert len(opened) == 1  # the constant


def test_a_condition_of_ones_own_cannot_be_checked(nan: DumpAnalyzer) -> None:
    class Own(ConditionBase):
        pass

    with pytest.raises(DebuggerParamTypeError, match="Own cannot be checked"):
        nan.check_watchpoints([Watchpoint(nan.select_tensors("Log-op381"), Own())])
