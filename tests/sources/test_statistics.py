"""statistic.csv of both generations, beside or instead of tensors."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest

from tests.sources.scalar_statistics import stats_of
from tests.sources.writer import MLP, DumpWriter, Generation, write_dump
from tui_debugger.model import Side, TensorMeta, TensorStats
from tui_debugger.sources import open_source
from tui_debugger.sources.base import TensorFlag
from tui_debugger.sources.mindspore.statistics import Statistics, read_line_by_line, read_statistics
from tui_debugger.stats.records import Record, Records, RequiredStats

HEADER = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape"
OLD = (
    HEADER + ",Max Value,Min Value,Avg Value,Count,Negative Zero Count,Positive Zero Count,"
    "NaN Count,Negative Inf Count,Positive Inf Count,Zero Count"
)
ROW = 'Add,Add-op1,0,0,5,output,0,24,float32,"(2,3)"'


def read(path: Path, *lines: str) -> Statistics:
    (path / "statistic.csv").write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))
    return read_statistics(path / "statistic.csv")


def row_of(statistics: Statistics, row: int, *, right_mean: bool = False) -> TensorStats:
    found = statistics.columns(np.array([row]), right_mean=right_mean).stats(0)
    assert found == stats_of(statistics, row, right_mean=right_mean)
    return found


def test_a_row_of_the_older_generation(tmp_path: Path) -> None:
    statistics = read(tmp_path, OLD, ROW + ",3,-1,0.5,6,1,4,0,0,0,1")
    assert statistics.prefixes == (b"Add.Add-op1",)
    assert statistics.meta(0) == ("float32", (2, 3))
    assert row_of(statistics, 0) == TensorStats(
        count=6, nan=0, pos_inf=0, neg_inf=0, zero=1, negative=1, positive=4,
        minimum=-1.0, maximum=3.0, mean=0.5, abs_mean=None, variance=None, sum_squares=0.0,
    )  # fmt: skip


def test_negative_zero_count_means_elements_below_zero(tmp_path: Path) -> None:
    stats = row_of(read(tmp_path, OLD, ROW + ",3,-1,0.5,6,5,1,0,0,0,0"), 0)
    assert (stats.negative, stats.positive, stats.zero) == (5, 1, 0)


def test_a_row_of_the_newer_generation_ends_with_a_comma_and_has_the_configured_columns(tmp_path: Path) -> None:
    statistics = read(tmp_path, HEADER + ",L2Norm Value,Max Value,MD5", ROW + ",5,3,d41d8cd9,")
    stats = row_of(statistics, 0)
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
    nothing, nan, both, positive = (row_of(statistics, i) for i in range(4))
    assert not nothing.bad
    assert (nan.nan, nan.inf, nan.maximum) == (1, 0, None)
    assert (both.nan, both.pos_inf, both.neg_inf) == (0, 1, 1)
    assert (positive.pos_inf, positive.neg_inf, positive.minimum) == (1, 0, 1.0)


def test_an_empty_tensor_of_the_older_generation_has_no_extremes(tmp_path: Path) -> None:
    stats = row_of(read(tmp_path, OLD, ROW + ",-1.79769e+308,1.79769e+308,0,6,0,0,6,0,0,0"), 0)
    assert (stats.minimum, stats.maximum, stats.mean, stats.nan) == (None, None, None, 6)


def test_averages_of_big_tensors_are_believed_from_2_4_on_only(tmp_path: Path) -> None:
    titles = HEADER + ",Max Value,Min Value,Avg Value,Count"
    statistics = read(tmp_path, titles, ROW + ",1,0,0.9,19999,", ROW + ",1,0,0.9,20000,")
    assert [row_of(statistics, i).mean for i in (0, 1)] == [0.9, None]
    assert [row_of(statistics, i, right_mean=True).mean for i in (0, 1)] == [0.9, 0.9]


def test_infinities_counted_among_the_signs_are_taken_out(tmp_path: Path) -> None:
    stats = row_of(read(tmp_path, OLD, ROW + ",inf,-inf,nan,6,2,3,0,1,2,1"), 0)
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


NEW = HEADER + ",Max Value,Min Value,Avg Value,L2Norm Value,NaN Count,Negative Inf Count,Positive Inf Count,Zero Count"
ODD_TEXTS = (
    *(b",", b'"', b"\n", b"\r\n", b"\0", b" ", b"\xff", b"\xc2\xa0", b"nan", b"null", b"-1", b"1e400", b"1_0"),
    *(b"\x1c", b"\x01", b"9" * 20, b"9223372036854775807", b"op type", b"OP TYPE", b'""', b"output", b"Input", b"\t"),
    *(b"65536", b"\n\n", b" \n", b"\n ", b"(", b"x" * 70_000, b"\xd9\xa3", OLD.encode() + b"\n"),
)  # fmt: skip


def rows_of(statistics: Statistics) -> dict[str, object]:
    """Everything that was read, arrays as their bytes: NaN is as good as NaN."""
    told = {each.name: getattr(statistics, each.name) for each in dataclasses.fields(statistics)}
    told["numbers"] = np.array(statistics.numbers)
    return {name: each.tobytes() if isinstance(each, np.ndarray) else each for name, each in told.items()}


def plain_files() -> list[bytes]:
    numbers = ["null", "nan", "inf", "-inf", "1.5", "-2e-7"]
    old = [
        f"Conv2D,Default/net/conv-op{at % 7},0,0,{10**15 + at},{'input' if at % 3 else 'output'},{at % 4},24,"
        f'{("float32", "float16", "Float32")[at % 3]},"({at % 5},3)",{at * 0.37:.5g},{-at * 0.2:.4g},{numbers[at % 6]},'
        f"12,{at},1,0,0,0,2"
        for at in range(40)
    ]
    new = [
        f"MatMul,Default_net_MatMul-op{at},0,0,{10**15 + at},output,0,24,float32,(),{at},{-at},0.5,{at * 2},0,0,0,1,"
        for at in range(40)
    ]
    return ["".join(f"{line}\n" for line in lines).encode() for lines in ([OLD, *old], [NEW, *new], [NEW, *new] * 2)]


@pytest.mark.usefixtures("measured_by")
@pytest.mark.parametrize("seed", range(300))
def test_damaged_files_are_read_as_line_by_line(tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)  # noqa: S311 - no secret
    content = bytearray(choice.choice(plain_files()))
    for _ in range(choice.choice((0, 1, 1, 2, 5))):
        at = choice.randrange(len(content))
        content[at : at + choice.choice((0, 1, 9))] = choice.choice((b"", *ODD_TEXTS))
    file = tmp_path / "statistic.csv"
    file.write_bytes(content)
    assert rows_of(read_statistics(file)) == rows_of(read_line_by_line(file))


@pytest.mark.parametrize("right_mean", [False, True])
def test_rows_together_are_the_rows_one_by_one(tmp_path: Path, right_mean: bool) -> None:
    choice = random.Random(1)  # noqa: S311 - no secret
    values = ["null", "nan", "inf", "-inf", "0", "-0.0", "3", "-3", "1e200", "1.5", ""]
    counts = ["null", "0", "1", "5", "6", "-1", "30000", "9007199254740993", "1e300", "nan", "2.5"]
    for titles in (OLD, NEW, NEW.replace(",NaN Count", ""), OLD.replace("Max Value,Min Value,", "")):
        columns = titles.split(",")[10:]
        lines = [
            f"Add,Add-op{at},0,0,5,output,0,24,{choice.choice(('float32', 'bool'))},"
            f'"({choice.choice((2, 200, 0))},300)",'
            + ",".join(choice.choice(counts if title.endswith("Count") else values) for title in columns)
            for at in range(2000)
        ]
        statistics = read(tmp_path, titles, *lines)
        rows = np.arange(2000)[::-1].copy()
        found = statistics.columns(rows, right_mean=right_mean)
        assert found.right.sum() > 0
        assert not found.right.all()
        kept, need = Records(2000), RequiredStats(change=True)
        no_value = rows % 2 == 0
        right = found.right
        told = found._replace(rows=found.rows[right], right=right[right])
        kept.put_recorded_columns(rows[right], told, no_value[right], need)
        for row in rows[right].tolist():
            meta, previous = TensorMeta(*statistics.meta(row), 0), "none" if row % 2 else "no value"
            stats = stats_of(statistics, row, right_mean=right_mean)
            assert kept.get(row) == Record(meta, stats, previous=previous, need=need)
        assert all(kept.get(row) is None for row in rows[~right].tolist())
