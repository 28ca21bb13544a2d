"""No hit is not yet clean: what a check looked at, and what it could not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.sources.writer import DumpWriter, Generation, write_dump
from tests.unreadable import WOUNDS, wound
from tui_debugger import (
    DumpAnalyzer,
    OperatorOverflowCondition,
    TensorAllZeroCondition,
    TensorInitializationCondition,
    TensorOverflowCondition,
    TensorUnchangedCondition,
    Watchpoint,
)
from tui_debugger.model import Coverage, Side
from tui_debugger.sources import open_source

NAN = np.full((2, 3), np.nan, np.float32)
RELU = "Default/network-Net/act-ReLU/ReLU-op2"


def dump(root: Path, steps: tuple[int, ...] = (0, 1)) -> DumpWriter:
    return write_dump(root, Generation.V2_3, steps=steps)


def test_every_tensor_counts_once_however_many_watchpoints_name_it(nan: DumpAnalyzer) -> None:
    log = nan.select_tensors("Log-op381")
    hits = nan.check_watchpoints(
        [
            Watchpoint(log + log, TensorOverflowCondition()),
            Watchpoint(log[:2], TensorAllZeroCondition(100)),
            Watchpoint([], TensorOverflowCondition()),
        ]
    )
    steps = tuple((0, step) for step in range(6))
    assert hits.coverage == Coverage(checked=6, steps=steps, watched=((0, 6), (1, 2), (2, 0)))


def test_nothing_asked_is_nothing_checked(nan: DumpAnalyzer, caplog: pytest.LogCaptureFixture) -> None:
    assert nan.check_watchpoints([]).coverage == Coverage()
    assert not caplog.records
    nothing = nan.check_watchpoints([Watchpoint([], TensorOverflowCondition())])
    assert (list(nothing), nothing.coverage) == ([], Coverage(watched=((0, 0),)))
    assert "nothing was checked" in caplog.text


def test_inputs_without_a_graph_are_nobodys_outputs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    DumpWriter(tmp_path, Generation.V2_3).tensor(0, "ReLU", RELU, NAN, at=("input", 0))
    run = DumpAnalyzer(tmp_path)
    assert [node.name for node in run.select_nodes("")] == [RELU]
    assert not run.check_watchpoints([Watchpoint(run.select_tensors(""), TensorOverflowCondition())])
    assert "nothing was checked" in caplog.text


def test_what_was_not_dumped_and_what_is_broken_is_not_checked(tmp_path: Path) -> None:
    writer = dump(tmp_path)
    (relu,) = tmp_path.glob("rank_0/Net/0/1/ReLU.*output*")
    relu.write_bytes(b"broken")
    (matmul,) = tmp_path.glob("rank_0/Net/0/0/MatMul.*output*")
    matmul.unlink()
    run = DumpAnalyzer(writer.root)
    tensors = run.select_tensors("Default/network")
    hits = run.check_watchpoints([Watchpoint(tensors, TensorOverflowCondition())])
    assert [(hit.tensor.node.name, hit.tensor.iteration, hit.error_code) for hit in hits] == [(RELU, 1, 128)]
    cover = hits.coverage
    assert (len(tensors), cover.checked, cover.unreadable, cover.skipped) == (4, 2, 1, 1)
    told = run.check_watchpoints([Watchpoint(tensors, TensorOverflowCondition())], error_on_no_value=True)
    assert [hit.error_code for hit in told] == [32, 128]
    assert told.coverage == cover


@pytest.mark.covering
@pytest.mark.parametrize("where", ["rank_1", "rank_0/Net/0/1", "rank_0/Net", "rank_0/graphs"])
@pytest.mark.parametrize("kind", WOUNDS)
def test_what_cannot_be_listed_is_in_the_coverage_and_told(
    where: str, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = write_dump(tmp_path, Generation.V2_3, ranks=(0, 1, 2))
    writer.metadata()
    words = wound(tmp_path / where, kind)
    run = DumpAnalyzer(tmp_path)
    hits = run.check_watchpoints([Watchpoint(run.select_tensors(""), TensorOverflowCondition())])
    assert [(part.where, part.why) for part in hits.coverage.parts] == [(where, words)]
    assert f"cannot judge: 1 part of the dump cannot be listed: {where} ({words})" in caplog.text
    caplog.clear()
    other = run.check_watchpoints([Watchpoint(run.select_tensors("", ranks=2), TensorOverflowCondition())])
    assert (other.coverage.parts, caplog.text) == ((), "")


def test_what_has_no_step_before_it_is_counted(tmp_path: Path) -> None:
    run = DumpAnalyzer(dump(tmp_path, steps=(0, 1, 2)).root)
    hits = run.check_watchpoints([Watchpoint(run.select_tensors(RELU), TensorUnchangedCondition())])
    assert (hits.coverage.checked, hits.coverage.not_comparable) == (3, 1)


def test_initial_weights_pass_over_everything_else(tmp_path: Path) -> None:
    run = DumpAnalyzer(dump(tmp_path).root)
    late = run.select_tensors("fc1.weight", iterations=1) + run.select_tensors(RELU)
    hits = run.check_watchpoints([Watchpoint(late, TensorInitializationCondition(max_gt=-1e9))])
    assert not hits
    assert (hits.coverage.checked, hits.coverage.skipped, hits.coverage.watched) == (0, 4, ((0, 0),))


def test_operator_overflow_is_never_silently_clean(nan: DumpAnalyzer, caplog: pytest.LogCaptureFixture) -> None:
    tensors = nan.select_tensors("Log-op381")
    with caplog.at_level(logging.WARNING, "tui_debugger"):
        hits = nan.check_watchpoints([Watchpoint(tensors, OperatorOverflowCondition())])
    assert not hits
    assert (hits.coverage.checked, hits.coverage.skipped) == (0, 6)
    assert "OperatorOverflowCondition cannot be judged" in caplog.text


@pytest.mark.parametrize("generation", [Generation.V2_0, Generation.V2_10])
@pytest.mark.parametrize(("name", "slot"), [("Default/lost-Foo/Foo-op9", 0), (RELU, 1)])
def test_files_that_the_graph_does_not_have_are_told_and_change_no_answer(
    generation: Generation, name: str, slot: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = write_dump(tmp_path, generation, steps=(0, 1))
    writer.tensor(1, "Foo" if "Foo" in name else "ReLU", name, NAN, at=("output", slot))
    run = DumpAnalyzer(tmp_path)
    before = run.select_tensors("")
    assert len(run.select_nodes("")) == 6
    for _ in range(2):
        assert not run.check_watchpoints([Watchpoint(run.select_tensors(""), TensorOverflowCondition())])
    assert run.select_tensors("") == before, "answers do not depend on what was read"
    assert len(run.select_nodes("")) == 6
    assert caplog.text.count("1 dumped tensors are of no node of the graph") == 1


@pytest.mark.parametrize("where", ["msprobe-monitor/v1", "msprobe-monitor/v2", "msprobe-debug-save", "te-logs"])
def test_without_a_graph_everything_that_was_dumped_can_be_selected(
    where: str, dumps: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    name, _, part = where.partition("/")
    path = dumps(name) / part
    with closing(open_source(path)) as source:
        dumped = {
            (rank, step, source.nodes(rank).names[node], slot)
            for rank in source.ranks()
            for step in source.steps(rank)
            for table in [source.tensors(rank, step)]
            for node, slot, side in zip(table.node.tolist(), table.slot.tolist(), table.side.tolist(), strict=True)
            if side == Side.OUTPUT
        }
    with DumpAnalyzer(path) as run:
        tensors = run.select_tensors("")
        selected = {(each.rank, each.iteration, each.node.name, each.slot) for each in tensors}
        assert dumped
        assert dumped <= selected
        run.check_watchpoints([Watchpoint(tensors, TensorOverflowCondition())])
        assert "no node of the graph" not in caplog.text


def test_a_whole_dump_has_no_unknown_files(nan: DumpAnalyzer, caplog: pytest.LogCaptureFixture) -> None:
    nan.check_watchpoints([Watchpoint(nan.select_tensors(""), TensorOverflowCondition())])
    assert not caplog.records


def test_what_needs_values_is_not_checked_on_statistics(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    for step in (0, 1, 2):
        writer.statistics(step, [("Add", "Add-op1", "output", 0, np.ones(3, np.float32))])
    run = DumpAnalyzer(tmp_path)
    late = run.select_tensors("", iterations=[1, 2])
    unchanged, zero = (
        Watchpoint(late, condition) for condition in (TensorUnchangedCondition(), TensorAllZeroCondition(1))
    )
    hits = run.check_watchpoints([unchanged])
    assert not hits
    assert (hits.coverage.checked, hits.coverage.skipped, hits.coverage.watched) == (0, 2, ((0, 0),))
    assert "TensorUnchangedCondition cannot be judged on 2 tensors: of these only statistics were dumped" in caplog.text
    caplog.clear()
    both = run.check_watchpoints([zero, unchanged])
    assert (both.coverage.checked, both.coverage.skipped, both.coverage.watched) == (2, 0, ((0, 2), (1, 0)))
    assert "TensorUnchangedCondition cannot be judged on 2 tensors" in caplog.text
    caplog.clear()
    assert len(run.check_watchpoints([unchanged], error_on_no_value=True)) == 2
    assert not run.check_watchpoints([zero])
    assert "cannot be judged" not in caplog.text
