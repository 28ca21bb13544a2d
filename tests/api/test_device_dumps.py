"""The compatible API on what Ascend devices dumped: values as after a conversion, overflows as the device recorded."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from tests.ascend_files import (
    DeviceDump,
    Overflow,
    Written,
    overflow_bytes,
    random_values,
    task_of,
    write_device_dump,
)
from tests.sources.writer import MLP, Node
from tui_debugger import DumpAnalyzer, OperatorOverflowCondition, TensorOverflowCondition, Watchpoint

MATMUL, RELU, MOMENTUM = (node.name for node in MLP.nodes)
RECORD = Overflow(task_of(RELU), 2, status=0x20)


def test_values_are_those_of_the_program(tmp_path: Path) -> None:
    dump = DeviceDump(tmp_path)
    dump.metadata()
    values = random_values(np.random.default_rng(0), (2, 17, 3, 3), "bfloat16")
    node = Node("Default/net-Net/Conv2D-op1", "Conv2D")
    dump.operator(0, node, [], [Written(values, format="NC1HWC0"), Written(np.ones(3))], task=3)
    run = DumpAnalyzer(tmp_path)
    found = [tensor.value() for tensor in sorted(run.select_tensors(""), key=lambda tensor: tensor.slot)]
    assert found[0].tobytes() == values.tobytes()
    assert found[0].shape == values.shape
    assert found[1].tolist() == [1, 1, 1]


def test_operators_that_overflowed_on_the_device_hit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dump = write_device_dump(tmp_path)
    dump.overflow(1, overflow_bytes({"AI Core": RECORD}))
    run = DumpAnalyzer(tmp_path)
    watchpoint = Watchpoint(run.select_tensors(""), OperatorOverflowCondition())
    (hit,) = run.check_watchpoints([watchpoint])
    assert (hit.tensor.node.name, hit.tensor.slot, hit.tensor.iteration) == (RELU, 0, 1)
    assert (hit.error_code, hit.error_msg) == (0, [])
    assert isinstance(hit.get_threshold(), OperatorOverflowCondition)
    assert hit.get_hit_detail() is not None
    assert not run.check_watchpoints([Watchpoint(run.select_tensors(""), TensorOverflowCondition())])
    assert not run.check_watchpoints([Watchpoint(run.select_tensors(MATMUL), OperatorOverflowCondition())])
    assert "cannot be judged" not in caplog.text


def test_where_only_inputs_were_dumped_the_operator_hits_all_the_same(tmp_path: Path) -> None:
    dump = DeviceDump(tmp_path)
    dump.metadata()
    dump.writer.graph(MLP)
    for task, node in enumerate(MLP.nodes, 10):
        dump.operator(0, node, [Written(np.ones((2, 3), np.float32))] * len(node.inputs), [], task=task)
    dump.overflow(0, overflow_bytes({"AI Core": RECORD}))
    run = DumpAnalyzer(tmp_path)
    hits = run.check_watchpoints([Watchpoint(run.select_tensors(""), OperatorOverflowCondition())])
    assert [hit.tensor.node.name for hit in hits] == [RELU]


def test_a_dump_that_would_not_tell_is_not_clean(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_device_dump(tmp_path, op_debug_mode=0)
    run = DumpAnalyzer(tmp_path)
    with caplog.at_level(logging.WARNING, "tui_debugger"):
        assert not run.check_watchpoints([Watchpoint(run.select_tensors(""), OperatorOverflowCondition())])
    assert "OperatorOverflowCondition cannot be judged" in caplog.text
