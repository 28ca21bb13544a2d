"""statistic.csv of both generations, beside or instead of tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.sources.writer import MLP, DumpWriter, Generation, write_dump
from tui_debugger.model import Side, TensorStats
from tui_debugger.sources import open_source
from tui_debugger.sources.base import TensorFlag
from tui_debugger.sources.mindspore.statistics import Statistics, read_statistics

HEADER = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape"
OLD = (
    HEADER + ",Max Value,Min Value,Avg Value,Count,Negative Zero Count,Positive Zero Count,"
    "NaN Count,Negative Inf Count,Positive Inf Count,Zero Count"
)
ROW = 'Add,Add-op1,0,0,5,output,0,24,float32,"(2,3)"'


def read(path: Path, *lines: str) -> Statistics:
    (path / "statistic.csv").write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))
    return read_statistics(path / "statistic.csv")


def test_a_row_of_the_older_generation(tmp_path: Path) -> None:
    statistics = read(tmp_path, OLD, ROW + ",3,-1,0.5,6,1,4,0,0,0,1")
    assert statistics.prefixes == (b"Add.Add-op1",)
    assert statistics.meta(0) == ("float32", (2, 3))
    assert statistics.stats(0) == TensorStats(
        count=6, nan=0, pos_inf=0, neg_inf=0, zero=1, negative=1, positive=4,
        minimum=-1.0, maximum=3.0, mean=0.5, abs_mean=None, variance=None, sum_squares=0.0,
    )  # fmt: skip


def test_negative_zero_count_means_elements_below_zero(tmp_path: Path) -> None:
    stats = read(tmp_path, OLD, ROW + ",3,-1,0.5,6,5,1,0,0,0,0").stats(0)
    assert (stats.negative, stats.positive, stats.zero) == (5, 1, 0)


def test_a_row_of_the_newer_generation_ends_with_a_comma_and_has_the_configured_columns(tmp_path: Path) -> None:
    statistics = read(tmp_path, HEADER + ",L2Norm Value,Max Value,MD5", ROW + ",5,3,d41d8cd9,")
    stats = statistics.stats(0)
    assert (stats.count, stats.maximum, stats.minimum, stats.mean, stats.sum_squares) == (6, 3.0, None, None, 25.0)


def test_null_is_not_recorded_and_nan_is_a_bad_tensor(tmp_path: Path) -> None:
    statistics = read(
        tmp_path,
        HEADER + ",Max Value,Min Value,Avg Value,L2Norm Value",
        ROW + ",null,null,null,null,",
        ROW + ",nan,-nan,nan,nan,",
        ROW + ",inf,-inf,nan,inf,",
        ROW + ",inf,1,inf,inf,",
    )
    nothing, nan, both, positive = (statistics.stats(i) for i in range(4))
    assert not nothing.bad
    assert (nan.nan, nan.inf, nan.maximum) == (1, 0, None)
    assert (both.nan, both.pos_inf, both.neg_inf) == (0, 1, 1)
    assert (positive.pos_inf, positive.neg_inf, positive.minimum) == (1, 0, 1.0)


def test_an_empty_tensor_of_the_older_generation_has_no_extremes(tmp_path: Path) -> None:
    stats = read(tmp_path, OLD, ROW + ",-1.79769e+308,1.79769e+308,0,6,0,0,6,0,0,0").stats(0)
    assert (stats.minimum, stats.maximum, stats.mean, stats.nan) == (None, None, None, 6)


def test_averages_of_big_tensors_are_believed_from_2_4_on_only(tmp_path: Path) -> None:
    titles = HEADER + ",Max Value,Min Value,Avg Value,Count"
    statistics = read(tmp_path, titles, ROW + ",1,0,0.9,19999,", ROW + ",1,0,0.9,20000,")
    assert [statistics.stats(i).mean for i in (0, 1)] == [0.9, None]
    assert [statistics.stats(i, right_mean=True).mean for i in (0, 1)] == [0.9, 0.9]


def test_infinities_counted_among_the_signs_are_taken_out(tmp_path: Path) -> None:
    stats = read(tmp_path, OLD, ROW + ",inf,-inf,nan,6,2,3,0,1,2,1").stats(0)
    assert (stats.negative, stats.positive, stats.neg_inf, stats.pos_inf, stats.zero) == (1, 1, 1, 2, 1)


def test_broken_lines_are_counted_and_skipped(tmp_path: Path) -> None:
    statistics = read(
        tmp_path,
        ROW + ",before the header",
        OLD,
        "",
        "Add,Add-op1,0",
        ROW.replace("output", "sideways") + ",3,-1,0.5,6,1,4,0,0,0,1",
        ROW.replace(",5,", ",yesterday,") + ",3,-1,0.5,6,1,4,0,0,0,1",
        '"Add,Add-op1,0,0,5,output',
        ROW + ",3,-1,0.5,6,1,4,0,0,0,1,surplus",
        "\udcff\0\x1b[31m",
        OLD,
        ROW + ",3,-1,0.5,6,1,4,0,0,0,1",
    )
    assert len(statistics) == 1
    assert statistics.broken == 7


def test_a_last_line_without_its_end_was_cut(tmp_path: Path) -> None:
    """Its last number may be cut as well: 12 of 125."""
    whole = read(tmp_path, OLD, ROW + ",3,-1,0.5,6,1,4,0,0,0,125")
    file = tmp_path / "statistic.csv"
    file.write_bytes(file.read_bytes()[:-2])
    cut = read_statistics(file)
    assert (len(whole), whole.broken, len(cut), cut.broken) == (1, 0, 0, 1)


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"\xff\xfe", b"\n\n\n", b'"' * 1000, b"a," * 100_000])
def test_files_that_are_no_statistics_are_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "statistic.csv").write_bytes(content)
    assert len(read_statistics(tmp_path / "statistic.csv")) == 0


def test_rows_without_a_file_are_tensors_without_values(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, Generation.V2_0, steps=(0,))
    values = np.array([[1.0, -2.0, 0.0], [np.nan, np.inf, 5.0]], np.float32)
    writer.statistics(1, [("ReLU", "ReLU-op2", "output", 0, values)])
    source = open_source(tmp_path)
    table = source.tensors(0, 1)
    row = source.nodes(0).find("Default/network-Net/act-ReLU/ReLU-op2")
    index = table.find(row, Side.OUTPUT, 0)
    assert table.flags[index] == TensorFlag.STAT_ONLY
    assert table.recorded_meta(index) == ("float32", (2, 3))
    stats = table.recorded(index)
    assert stats is not None
    assert (stats.count, stats.nan, stats.pos_inf, stats.zero, stats.negative, stats.positive) == (6, 1, 1, 1, 1, 2)
    assert (stats.minimum, stats.maximum) == (-2.0, 5.0)


def test_rows_beside_files_add_statistics_and_never_replace_values(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, Generation.V2_0, steps=(0,))
    before = len(open_source(tmp_path).tensors(0, 0))
    writer.statistics(0, [("ReLU", "ReLU-op2", "output", 0, np.ones((2, 3), np.float32))])
    source = open_source(tmp_path)
    table = source.tensors(0, 0)
    assert len(table) == before
    recorded = [i for i in range(len(table)) if table.recorded(i) is not None]
    assert [source.nodes(0).names[table.node[i]] for i in recorded] == ["Default/network-Net/act-ReLU/ReLU-op2"]
    assert not any(flag & TensorFlag.STAT_ONLY for flag in table.flags)


@pytest.mark.parametrize("name", ["Default/network-Net/act-ReLU/ReLU-op2", "Default--network-Net--act-ReLU--ReLU-op2"])
def test_the_newer_generation_with_the_full_name(tmp_path: Path, name: str) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_5)
    writer.graph(MLP)
    columns = [*HEADER.split(","), "Max Value", "Min Value", "L2Norm Value"]
    ones = np.ones((2, 3), np.float32)
    writer.statistics(0, [("ReLU", name, "output", 0, ones)], columns=columns, trailing_comma=True)
    source = open_source(tmp_path)
    table = source.tensors(0, 0)
    assert [source.nodes(0).names[row] for row in table.node] == ["Default/network-Net/act-ReLU/ReLU-op2"]
    stats = table.recorded(0)
    assert stats is not None
    assert (stats.count, stats.maximum) == (6, 1.0)


def test_rows_of_two_runs_are_two_rounds(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    for value in (1.0, 2.0):
        writer.statistics(0, [("ReLU", "ReLU-op2", "output", 0, np.full((2, 3), value))])
    table = open_source(tmp_path).tensors(0, 0)
    stats = [table.recorded(row) for row in range(len(table))]
    assert table.round.tolist() == [1, 2]
    assert [each.maximum for each in stats if each is not None] == [1.0, 2.0]
