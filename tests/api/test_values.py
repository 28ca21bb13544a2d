"""Where values come from when a tensor has no file of its own, or a broken one; and initial weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.api.analyzers import short
from tests.sources.writer import MLP, DumpWriter, Generation, Graph, Node, write_step
from tui_debugger import (
    DebuggerTensor,
    DumpAnalyzer,
    TensorChangeAboveThresholdCondition,
    TensorInitializationCondition,
    TensorOverflowCondition,
    TensorTooLargeCondition,
    Watchpoint,
)
from tui_debugger.api.nodes_and_tensors import constant_value
from tui_debugger.errors import UnreadableTensorError

Values = dict[str, npt.NDArray[Any]]
MATMUL, RELU, MOMENTUM = (node.name for node in MLP.nodes)


def written(root: Path, keep: str, steps: tuple[int, ...] = (0, 1)) -> dict[int, Values]:
    """A dump of which only ``input`` or ``output`` files are left; the output values of every node by step."""
    writer = DumpWriter(root, Generation.V2_0)
    writer.metadata()
    writer.graph(MLP)
    values = {step: write_step(writer, step) for step in steps}
    writer.history(steps)
    for path in root.glob("rank_0/Net/0/*/*.npy"):
        if f".{keep}." not in path.name:
            path.unlink()
    return values


def one(run: DumpAnalyzer, name: str, step: int) -> DebuggerTensor:
    (tensor,) = run.select_tensors(f"^{name}$", use_regex=True, iterations=step)
    return tensor


def test_in_a_dump_of_inputs_a_value_is_what_its_first_consumer_read(tmp_path: Path) -> None:
    values = written(tmp_path, "input")
    run = DumpAnalyzer(tmp_path)
    for step in (0, 1):
        for name in ("x", "fc1.weight", MATMUL):
            tensor = one(run, name, step)
            np.testing.assert_array_equal(tensor.value(), values[step][name])
            assert (tensor.shape, tensor.dtype) == ((2, 3), "float32")
            stats = tensor.statistics()
            assert stats is not None
            assert stats.mean == pytest.approx(values[step][name].astype(np.float64).mean())
    for nobody_reads in (RELU, MOMENTUM):
        assert one(run, nobody_reads, 0).value() is None
        assert one(run, nobody_reads, 0).shape is None


def test_in_a_dump_of_inputs_watchpoints_judge_them(tmp_path: Path) -> None:
    values = written(tmp_path, "input")
    run = DumpAnalyzer(tmp_path)
    tensors = run.select_tensors("")
    hits = run.check_watchpoints([Watchpoint(tensors, TensorTooLargeCondition(abs_mean_gt=0))])
    read = {"x", "fc1.weight", "accum.fc1.weight", MATMUL}
    assert {(hit.tensor.node.name, hit.tensor.iteration) for hit in hits} == {(n, s) for n in read for s in (0, 1)}
    changed = run.check_watchpoints([Watchpoint(tensors, TensorChangeAboveThresholdCondition(0))])
    weight = next(hit for hit in changed if (hit.tensor.node.name, hit.tensor.iteration) == ("fc1.weight", 1))
    before, now = (values[step]["fc1.weight"].astype(np.float64) for step in (0, 1))
    detail = weight.get_hit_detail()
    assert detail is not None
    ratio = np.abs(now - before).mean() / (np.abs(before).mean() + 1e-9)
    assert detail.param_dict["abs_mean_update_ratio_gt"] == pytest.approx(ratio)
    missing = run.check_watchpoints([Watchpoint(tensors, TensorTooLargeCondition(max_gt=99))], error_on_no_value=True)
    assert {(hit.tensor.node.name, hit.error_code) for hit in missing} == {(RELU, 32), (MOMENTUM, 32)}


def test_in_a_dump_of_inputs_constants_have_values_but_are_not_judged(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    add = Node("Default/Add-op1", "Add", (("x", 0), ("cst1", 0)))
    writer.graph(Graph((add,), parameters=("x",), constants={"cst1": "Default--data-0"}))
    for slot in (0, 1):
        writer.tensor(0, "Add", add.name, np.full(2, np.nan, np.float32), at=("input", slot))
    run = DumpAnalyzer(tmp_path)
    assert np.isnan(one(run, "cst1", 0).value()).all()
    hits = run.check_watchpoints([Watchpoint(run.select_tensors(""), TensorOverflowCondition())], True)
    assert [(hit.tensor.node.name, hit.error_code) for hit in hits] == [("x", 0), ("cst1", 32), (add.name, 32)]


def test_with_outputs_on_disk_an_input_file_stands_for_nothing_else(nan: DumpAnalyzer) -> None:
    """As in MindInsight: the graph input inputs1 has no file of its own, though its consumer's input was dumped."""
    assert one(nan, "inputs1", 0).value() is None


def test_a_broken_file_does_not_pass_for_a_tensor_that_was_not_dumped(tmp_path: Path) -> None:
    written(tmp_path, "output")
    (path,) = tmp_path.glob("rank_0/Net/0/1/ReLU.*")
    path.write_bytes(path.read_bytes()[:-4])
    tensor = one(DumpAnalyzer(tmp_path), RELU, 1)
    for ask in (tensor.value, tensor.statistics, lambda: tensor.shape, lambda: tensor.dtype):
        with pytest.raises(UnreadableTensorError):
            ask()
    row = DumpAnalyzer(tmp_path).select_tensors(f"^{RELU}$", use_regex=True, iterations=1).table(statistics=True)[0]
    assert row["error"]
    assert row["count"] is None


def test_bfloat16_says_so(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_5)
    writer.tensor(0, "Cast", "Default/Cast-op1", np.array([1.5, 2], np.float32), dtype="bfloat16")
    writer.raw_bfloat16(1, "Cast", "Default/Cast-op1", np.array([1.5, 2], np.float32))
    stored, raw = DumpAnalyzer(tmp_path).select_tensors("")
    assert stored.dtype == raw.dtype == "bfloat16"
    values = raw.value()
    assert values is not None
    assert values.dtype == ml_dtypes.bfloat16
    assert values.astype(np.float32).tolist() == [1.5, 2.0]


def test_without_a_graph_nodes_are_what_has_files_in_any_step(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_3)
    writer.tensor(0, "Add", "Default/Add-op1", np.zeros(2, np.float32))
    writer.tensor(1, "Add", "Default/Add-op1", np.ones(2, np.float32))
    writer.tensor(1, "Mul", "Default/Mul-op2", np.ones(2, np.float32))
    run = DumpAnalyzer(tmp_path)
    assert [node.name for node in run.select_nodes("")] == ["Default/Add-op1", "Default/Mul-op2"]
    assert [tensor.value() is not None for tensor in run.select_tensors("Mul")] == [False, True]


@pytest.mark.parametrize(
    ("text", "value", "dtype"),
    [
        ("-1", -1, "int64"),
        ("True", True, "bool"),
        ("1e-07", np.float32(1e-07), "float32"),
        ("inf", np.inf, "float32"),
        ("'sum'", "sum", "str96"),
        ("(1, 2)", None, ""),
        ("None", None, ""),
        ("umonad", None, ""),
        ("9" * 30, None, ""),
    ],
)
def test_constants_that_stand_in_the_graph(text: str, value: object, dtype: str) -> None:
    found = constant_value(text)
    if value is None:
        assert found is None
    else:
        assert found is not None
        assert (found.shape, found.dtype.name, found.item()) == ((), dtype, value)


@pytest.mark.parametrize(
    ("text", "stated", "dtype"),
    [
        *(("1", "int32", "int32"), ("1", "uint8", "uint8"), ("1.5", "float64", "float64"), ("True", "bool", "bool")),
        *(("1", "tuple", "int64"), ("1", "", "int64"), ("1", "float32", "int64"), ("300", "int8", None)),
    ],
)
def test_a_constant_has_the_type_that_the_graph_states(text: str, stated: str, dtype: str | None) -> None:
    found = constant_value(text, stated)
    assert (None if found is None else found.dtype.name) == dtype


def test_an_int32_constant_of_a_dump_is_one(analyzer: Any) -> None:
    run = analyzer("mindspore-2.0-multi-flow")
    constants = [tensor for tensor in run.select_tensors("cst", iterations=0) if tensor.value() is not None]
    assert {"int32", "int64"} <= {tensor.dtype for tensor in constants}


def test_constants_of_a_newer_dump_have_values_and_statistics(analyzer: Any) -> None:
    run = analyzer("mindspore-2.10-mlp")
    by_value = {str(tensor.value()): tensor for tensor in run.select_tensors("cst", iterations=0)}
    assert {"True", "False", "0"} <= set(by_value)
    assert by_value["True"].dtype == "bool"
    assert by_value["0"].shape == ()
    stats = by_value["True"].statistics()
    assert stats is not None
    assert (stats.count, stats.maximum) == (1, 1.0)


# -- initial weights -------------------------------------------------------------------------------


def test_initial_weights_are_what_the_first_consumer_read_at_the_first_step(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    writer.metadata()
    writer.graph(MLP)
    for step in (4, 5):
        write_step(writer, step)
    for path in tmp_path.glob("rank_0/Net/0/*/MatMul.*.input.1.*"):
        np.save(path, np.zeros((2, 3), np.float32))
    run = DumpAnalyzer(tmp_path)
    zero = TensorInitializationCondition(zero_percentage_ge=100)
    (hit,) = run.check_watchpoints([Watchpoint(run.select_tensors(""), zero)])
    assert short([hit.tensor]) == [("fc1.weight", 0, 4)]
    detail = hit.get_hit_detail()
    assert detail is not None
    assert detail.param_dict == {"zero_percentage_ge": 100.0}
    assert np.count_nonzero(hit.tensor.value()) == 6  # the parameter's own file: after the update
    assert run.check_watchpoints([Watchpoint(run.select_tensors("", iterations=5), zero)]) == []


def test_initial_weights_of_a_real_dump(mlp: DumpAnalyzer) -> None:
    """Its training script sets fc3.bias to -50 and leaves the other biases at 0."""
    weights = mlp.select_tensors(r"^(fc\d|head)\.", use_regex=True)
    hits = mlp.check_watchpoints([Watchpoint(weights, TensorInitializationCondition(zero_percentage_ge=100))])
    zero = ["fc1.bias", "fc2.bias", "fc4.bias", "head.bias"]
    assert sorted((hit.tensor.node.name, hit.tensor.iteration) for hit in hits) == [(name, 0) for name in zero]
    (low,) = mlp.check_watchpoints([Watchpoint(weights, TensorInitializationCondition(min_lt=-10))])
    assert short([low.tensor]) == [("fc3.bias", 0, 0)]
    assert str(low.get_hit_detail()).endswith("The actual value of the tensor is min_lt = -50.0.")


def test_without_input_files_initial_weights_cannot_be_judged(tmp_path: Path) -> None:
    written(tmp_path, "output")
    run = DumpAnalyzer(tmp_path)
    watchpoints = [Watchpoint(run.select_tensors(""), TensorInitializationCondition(max_gt=-99))]
    assert run.check_watchpoints(watchpoints) == []
    missing = run.check_watchpoints(watchpoints, error_on_no_value=True)
    assert [(hit.tensor.node.name, hit.tensor.iteration, hit.error_code) for hit in missing] == [
        *(("x", 0, 32), ("fc1.weight", 0, 32), ("accum.fc1.weight", 0, 32))
    ]
