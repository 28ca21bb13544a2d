"""Walking the tensors of a run: which, in what order, with which numbers, and lazily."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.linked import own
from tests.old_tool import DUMPS
from tests.session.opened import opened, writable_copy
from tests.sources.memory import MemorySource, Op, Recorded
from tests.sources.writer import MLP, write_dump
from tui_debugger.check.sweep import BATCH, TensorChoice
from tui_debugger.errors import CancelledError
from tui_debugger.graph.search import NodeQuery
from tui_debugger.model import CATEGORY_WORDS, Category, Progress, Side, TensorStats
from tui_debugger.session import Session
from tui_debugger.stats.workers import MeasureWorkers

MATMUL, RELU, MOMENTUM = (node.name for node in MLP.nodes)


@pytest.mark.parametrize("dump", DUMPS)
def test_statistics_equal_those_of_the_old_tool(
    dump: str, dumps: Callable[[str], Path], golden: Callable[[str], dict[str, Any]]
) -> None:
    session = opened(dumps(dump))
    choice = TensorChoice(side=Side.OUTPUT, categories=frozenset(Category))
    ours = {(t.key.node, t.key.slot, t.key.step): t for t in session.sweep(session.pairs(), choice).measured()}
    compared = 0
    for old in golden(dump)["statistics"]:
        _, _, node, slot, step = old["id"]
        tensor = ours[node, slot, step]
        assert tensor.error == ""
        stats, meta = tensor.stats, tensor.meta
        assert stats is not None
        assert meta is not None
        assert (list(meta.shape), meta.nbytes) == (old["shape"], old["data_size"])
        counts = (stats.count, stats.nan, stats.neg_inf, stats.pos_inf, stats.zero, stats.negative, stats.positive)
        names = ("count", "nan_count", "neg_inf_count", "pos_inf_count", "zero_count")
        assert counts == (*(old[name] for name in names), old["neg_zero_count"], old["pos_zero_count"])
        if stats.finite:
            assert (stats.minimum, stats.maximum) == (old["min_value"], old["max_value"])
            largest = max(abs(old["min_value"]), abs(old["max_value"]))
            assert stats.mean is not None
            assert math.isclose(stats.mean, old["avg_value"], rel_tol=1e-9, abs_tol=1e-15 * largest)
        compared += 1
    assert compared > 300


def test_tensors_come_by_step_then_rank_then_execution_order(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0, 2), ranks=(0, 1))
    session = opened(tmp_path)
    keys = [tensor.key for tensor in session.sweep(session.pairs(), TensorChoice(side=Side.OUTPUT)).listed()]
    names = [MATMUL, RELU, MOMENTUM, "x", "fc1.weight", "accum.fc1.weight"]
    assert [(key.step, key.rank, key.node) for key in keys] == [
        (step, rank, name) for step in (0, 2) for rank in (0, 1) for name in names
    ]


def test_a_choice_narrows_by_side_slot_category_and_scope(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0,))
    session = opened(tmp_path)

    def chosen(choice: TensorChoice) -> list[tuple[str, str, int]]:
        sweep = session.sweep(session.pairs(), choice)
        found = [(t.key.node, t.key.side.label, t.key.slot) for t in sweep.listed()]
        assert sweep.count() == len(found)
        return found

    assert chosen(TensorChoice(slots={1})) == [(MATMUL, "in", 1), (MOMENTUM, "in", 1)]
    assert chosen(TensorChoice(categories=CATEGORY_WORDS["weight"])) == [("fc1.weight", "out", 0)]
    session.restrict(NodeQuery(text="ReLU"))
    assert chosen(TensorChoice()) == [(RELU, "in", 0), (RELU, "out", 0)]
    assert chosen(TensorChoice(side=Side.INPUT)) == [(RELU, "in", 0)]


def test_constants_are_left_out_unless_they_are_named(dumps: Callable[[str], Path]) -> None:
    session = opened(dumps("mindspore-2.0-nan"))
    pairs = session.pairs(steps=(0,))
    everything = session.sweep(pairs, TensorChoice(categories=frozenset(Category))).count()
    constants = list(session.sweep(pairs, TensorChoice(categories=CATEGORY_WORDS["constant"])).listed())
    assert "cst1" in {tensor.key.node for tensor in constants}
    assert all(session.nodes(0).category_of(tensor.row) is Category.CONSTANT for tensor in constants)
    assert session.sweep(pairs).count() == everything - len(constants)


def test_nothing_is_read_before_it_is_asked_for() -> None:
    """Measured a batch at a time: files behind the batch may be broken meanwhile and nobody has looked."""
    count = BATCH + 5
    values = {(f"n{i:04}", Side.OUTPUT, 0): np.full(2, i, np.float32) for i in range(count)}
    source = MemorySource({0: {0: values}}, ops=[Op(f"n{i:04}") for i in range(count)])
    session = Session(source)
    told: list[Progress] = []
    tensors = session.sweep(session.pairs()).measured(told.append)
    first = [next(tensors) for _ in range(BATCH)]
    Path(source.tensors(0, 0).spec(BATCH).path).write_bytes(b"")
    rest = list(tensors)
    assert [t.stats.maximum for t in first if t.stats] == list(range(BATCH))
    assert [bool(t.error) for t in rest] == [True, False, False, False, False]
    assert told[-1].done == told[-1].total
    source.close()


def test_what_was_measured_once_is_not_read_again(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0,))
    session = opened(tmp_path)
    before = list(session.sweep(session.pairs()).measured())
    for path in tmp_path.rglob("*.npy"):
        path.unlink()
    assert list(session.sweep(session.pairs()).measured()) == before


def test_an_executor_gives_the_same_answers(dumps: Callable[[str], Path]) -> None:
    alone = opened(dumps("mindspore-2.0-mlp"))
    with ThreadPoolExecutor(2) as executor:
        together = Session(alone.source, workers=MeasureWorkers(executor=executor))
        assert list(together.sweep(together.pairs()).measured()) == list(alone.sweep(alone.pairs()).measured())


def test_a_broken_file_is_a_row_with_its_reason(tmp_path: Path, dumps: Callable[[str], Path]) -> None:
    copy = writable_copy(dumps("mindspore-2.0-mlp"), tmp_path / "copy")
    session = opened(copy)
    victim = next(t for t in session.sweep(session.pairs()).listed() if t.spec is not None)
    assert victim.spec is not None
    own(Path(victim.spec.path)).write_bytes(b"no tensor")
    (row,) = [t for t in session.sweep(session.pairs()).measured() if t.error]
    assert row.key == victim.key
    assert "not a .npy file" in row.error
    assert row.stats is None


def test_statistics_that_the_dump_recorded_stand_for_values() -> None:
    stats = TensorStats(4, 1, 0, 0, 0, 1, 2, -1.0, 2.0, 0.5, None, None, 9.0)
    source = MemorySource({0: {0: {("a", Side.OUTPUT, 0): Recorded(stats, "float16", (2, 2))}}}, ops=[Op("a")])
    session = Session(source)
    (tensor,) = session.sweep(session.pairs()).measured()
    assert tensor.spec is None
    assert tensor.stats == stats
    assert tensor.meta is not None
    assert (tensor.meta.dtype, tensor.meta.shape) == ("float16", (2, 2))


def test_progress_can_stop_a_sweep_and_what_was_measured_stays_known(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0, 1, 2))
    session = opened(tmp_path)

    def stop(snapshot: Progress) -> None:
        if snapshot.total and snapshot.done > snapshot.total // 2:
            raise CancelledError("stopped")

    seen = []
    with pytest.raises(CancelledError):
        seen.extend(session.sweep(session.pairs()).measured(stop))
    assert 0 < len(seen) < session.sweep(session.pairs()).count()
    for path in tmp_path.rglob("*.npy"):
        path.unlink()
    again = session.sweep(session.pairs()).measured()
    assert [next(again) for _ in seen] == seen
