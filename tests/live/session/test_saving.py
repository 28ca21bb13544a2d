"""What a live session keeps becomes a dump that every command reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.live.recordings import recorded_graph
from tests.live.session.conftest import Live
from tests.live.session.doubles import LOSS, NET, RELU, WEIGHT, Array, graph, ones
from tests.sources.conformance import SourceConformance
from tui_debugger.errors import TdbgError
from tui_debugger.live import wire
from tui_debugger.live.dump_writer import DumpWriter, TensorName
from tui_debugger.live.spool import GONE
from tui_debugger.model import Side, TensorKey, TensorMeta, TensorStats
from tui_debugger.session.session import Session, open_dump
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source, TensorFlag

BIG = graph([(LOSS, "Log", ["x", WEIGHT], (300, 300)), (RELU, "ReLU", [LOSS], (2, 3))], ["x", WEIGHT])


def values(step: int) -> dict[str, Array]:
    return {**ones(step), LOSS: np.linspace(-step, step, 90_000, dtype=np.float32).reshape(300, 300)}


@pytest.fixture
def saved(live: Callable[..., Live], tmp_path: Path) -> tuple[Session, Session]:
    """A live session and the dump that was saved of it."""
    it = live(graphs=(BIG,), values=values, features=wire.FULL_STATISTICS, program="PyTorch 2.13.0 (tdbg 0.1)")
    it.arrive()
    for _ in range(2):
        it.run(2)
        for row in range(len(it.session.nodes(0))):
            step = it.session.state(0).step or 0
            it.session.measure(it.session.tensor_rows(0, step, row))
    text = it.session.save(tmp_path / "dump")
    assert text.startswith("4 steps of 1 rank: 8 tensors, statistics of 2 more")
    session = open_dump(tmp_path / "dump", remember=False)
    session.open()
    return it.session, session


def test_graph_steps_ranks_values_and_statistics_are_there(saved: tuple[Session, Session]) -> None:
    live, dump = saved
    assert list(dump.ranks()) == [0]
    assert list(dump.steps(0)) == [step for step in live.steps(0) if step >= 0] == [0, 1, 2, 3]
    assert [dump.nodes(0).names[row] for row in range(4)] == [live.nodes(0).names[row] for row in range(4)]
    assert dump.info.layout == "saved from PyTorch 2.13.0 (tdbg 0.1)"
    assert dump.info.device == "GPU"
    for name in (RELU, WEIGHT, "x"):
        for step in (1, 3):
            key = TensorKey(0, "kernel_graph_0", name, Side.OUTPUT, 0, step)
            np.testing.assert_array_equal(dump.read(key), live.read(key))


def test_of_what_was_not_fetched_the_statistics_are_there(saved: tuple[Session, Session]) -> None:
    live, dump = saved
    row = dump.nodes(0).find(LOSS)
    (before,) = [each for each in live.measure(live.tensor_rows(0, 3, row)) if each.role == "out"]
    (after,) = [each for each in dump.measure(dump.tensor_rows(0, 3, row)) if each.role == "out"]
    assert after.recorded
    assert not after.has_value
    assert after.stats is not None
    assert before.stats is not None
    for name in ("count", "nan", "pos_inf", "neg_inf", "zero", "negative", "positive", "minimum", "maximum", "mean"):
        assert getattr(after.stats, name) == getattr(before.stats, name), name
    assert after.stats.sum_squares == pytest.approx(before.stats.sum_squares, rel=1e-14)


def test_it_can_be_checked(saved: tuple[Session, Session]) -> None:
    _, dump = saved
    dump.watchpoints.add_missing(dump.recommended())
    result = dump.check(dump.pairs(steps=[3]))
    assert result.coverage.unreadable == 0
    assert result.coverage.checked == 4


class TestASavedSession(SourceConformance):
    @pytest.fixture
    def source(self, saved: tuple[Session, Session]) -> Source:
        return open_source(Path(saved[1].info.path))


def test_what_is_in_the_way_is_not_written_over(live: Callable[..., Live], tmp_path: Path) -> None:
    with pytest.raises(TdbgError, match="nothing to save"):
        live(graphs=()).session.save(tmp_path / "new")
    it = live()
    it.arrive()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(TdbgError, match="not empty"):
        it.session.save(tmp_path)
    with pytest.raises(TdbgError, match="not empty"):
        it.session.save(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert it.session.save(tmp_path / "empty").startswith("0 steps")


def test_a_step_of_which_nothing_is_kept_is_in_the_history_and_no_part_that_cannot_be_read(
    live: Callable[..., Live], tmp_path: Path
) -> None:
    it = live()
    it.arrive()
    it.run(1)
    it.run(1)
    it.session.read(TensorKey(0, "kernel_graph_0", WEIGHT, Side.OUTPUT, 0, 1))
    assert it.session.save(tmp_path / "dump").startswith("1 step of 1 rank: 1 tensor,")
    session = open_dump(tmp_path / "dump", remember=False)
    session.open()
    assert list(session.steps(0)) == [1]
    assert [run.step for run in session.history(0)] == [0, 1]
    assert session.unreadable() == ()
    session.close()


def test_values_from_before_the_first_step_are_named_and_left_out(live: Callable[..., Live], tmp_path: Path) -> None:
    it = live()
    it.arrive()
    it.session.read(TensorKey(0, "kernel_graph_0", WEIGHT, Side.OUTPUT, 0, -1))
    assert "before the first step left out" in it.session.save(tmp_path / "dump")


def test_values_that_somebody_removed_are_not_counted_as_saved(live: Callable[..., Live], tmp_path: Path) -> None:
    it = live(features=wire.FULL_STATISTICS)
    it.arrive()
    it.session.read(TensorKey(0, "kernel_graph_0", WEIGHT, Side.OUTPUT, 0, -1))
    it.run(1)
    row = it.session.nodes(0).find(RELU)
    assert [each.stats is not None for each in it.session.measure(it.session.tensor_rows(0, 0, row))] == [True, True]
    files = list(it.session.live.spool.path.rglob("*.npy"))
    assert len(files) > 1
    for file in files:
        file.unlink()
    text = it.session.save(tmp_path / "dump")
    assert ": 0 tensors, statistics of " in text
    assert dict(it.session.live.spool.lost) == {GONE: len(files)}


def test_a_value_from_before_the_first_step_counts_once_and_only_where_it_was_there(
    live: Callable[..., Live], tmp_path: Path
) -> None:
    it = live()
    it.arrive()
    it.session.read(TensorKey(0, "kernel_graph_0", WEIGHT, Side.OUTPUT, 0, -1))
    it.run(1)
    assert ": 1 tensor," in it.session.save(tmp_path / "before")
    it.session.live.spool.drop((0, -1))  # to make room: it counts what it lets go itself
    assert ": 0 tensors," in it.session.save(tmp_path / "after")
    assert not it.session.live.spool.lost


# -- the writer by itself ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bool", "int8", "uint64", "complex64", "bfloat16", "float8_e4m3fn"]
)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)])
def test_every_element_type_is_read_back(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    kind = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    array = (np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape) % 2).astype(kind)
    writer = DumpWriter(tmp_path)
    writer.graphs([NET])
    writer.array(4, TensorName("Log", LOSS), array)
    session = open_dump(tmp_path, remember=False)
    (row,) = session.measure(session.tensor_rows(0, 4, session.nodes(0).find(LOSS))[-1:])
    assert row.meta is not None
    assert (row.meta.dtype, row.meta.shape) == (dtype, shape)
    np.testing.assert_array_equal(session.read(row.key).astype(np.complex64), array.astype(np.complex64))


def test_big_endian_and_transposed_arrays_are_written_as_they_are_meant(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    array = np.arange(6, dtype=">f4").reshape(2, 3).T
    writer.array(0, TensorName("Log", LOSS), array)
    session = open_dump(tmp_path, remember=False)
    np.testing.assert_array_equal(session.read(session.tensor_rows(0, 0, 0)[0].key), array)


def test_the_graph_of_a_real_training_is_read_back(tmp_path: Path) -> None:
    data = recorded_graph("nan")
    writer = DumpWriter(tmp_path, rank=3, net="A/../b c", program="MindSpore 2.0.0")
    writer.metadata()
    writer.graphs([data])
    writer.history([2, 0, 1, 1, -1])
    writer.step(1)
    session = open_dump(tmp_path, remember=False)
    nodes = session.nodes(3)
    assert nodes.find("Default/network-WithLossCell/_backbone-Net/Log-op415") >= 0
    assert nodes.find("head.weight") >= 0
    assert [run.step for run in session.history(3)] == [0, 1, 2]
    assert sum(each.is_dir() for each in tmp_path.iterdir()) == 1


HOSTILE = ["../../etc/passwd", "a" * 400, 'x,y\n"z"', "/abs", "\x1b[31mred", "..", "\udcff\udcfe", "a--b/c"]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_from_a_training_stay_inside_the_directory(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "dump"
    writer = DumpWriter(inside)
    writer.metadata()
    path = writer.array(0, TensorName(name[:50], name), np.ones(3, np.float32))
    meta = TensorMeta("float32", (3,), 12)
    writer.statistics(1, [(TensorName(name[:50], name), meta, TensorStats(3, 0, 0, 0, 0, 0, 3, 1, 1, 1, 1, 0, 3.0))])
    assert path.resolve().is_relative_to(inside.resolve())
    assert list(tmp_path.iterdir()) == [inside]
    session = open_dump(inside, remember=False)
    assert list(session.steps(0)) == [0, 1]
    assert len(session.source.tensors(0, 0)) == 1
    table = session.source.tensors(0, 1)
    assert [int(flags) & TensorFlag.STAT_ONLY for flags in table.flags] == [TensorFlag.STAT_ONLY]
