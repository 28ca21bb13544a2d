"""``select_tensor_statistics`` and ``summary_statistics``: rows of ``statistic.csv``, or the same from values."""

from __future__ import annotations

import csv
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.session.opened import opened
from tests.sources.memory import MemorySource, Op
from tests.sources.writer import MLP, DumpWriter, Generation, write_dump
from tui_debugger import DumpAnalyzer
from tui_debugger.api.statistic import (
    COLUMNS,
    SUMMARY_FILE,
    SummaryStatistic,
    TensorStatistic,
    select_tensor_statistics,
    summary_statistics,
)
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.model import Progress, Side
from tui_debugger.session import Session

MATMUL, RELU, MOMENTUM = (node.name for node in MLP.nodes)
VALUES = np.array([[1.0, -2.0, 0.0], [np.nan, np.inf, 70000.0]], np.float32)
IDENTITY = list(COLUMNS[:10])


def read_summary(directory: Path) -> list[dict[str, str]]:
    with (directory / SUMMARY_FILE).open(newline="") as file:
        return list(csv.DictReader(file))


# -- value classes ---------------------------------------------------------------------------------


def test_the_value_classes_have_the_old_fields_and_defaults() -> None:
    assert vars(TensorStatistic()) == {
        "op_type": "", "op_name": "", "task_id": 0, "stream_id": 0, "time_stamp": 0, "io": "", "slot": 0,
        "data_size": 0, "data_type": "", "shape": (), "max_value": -math.inf, "min_value": math.inf, "avg_value": 0,
        "count": 0, "negative_zero_count": 0, "positive_zero_count": 0, "nan_count": 0, "negative_inf_count": 0,
        "positive_inf_count": 0, "zero_count": 0,
    }  # fmt: skip
    assert vars(SummaryStatistic()) == {
        "op_type": "", "op_name": "", "tensor_name": "", "inf_number": 0, "nan_number": 0, "out_of_range_number": 0,
        "total_number": 0, "none_overflow_number": 0, "total_iterations": 0,
    }  # fmt: skip
    statistic = TensorStatistic("Add", "Add-op1", 1, 2, 3, "output")
    statistic.nan_count = 4
    assert (statistic.op_type, statistic.stream_id, statistic.io, statistic.nan_count) == ("Add", 2, "output", 4)


# -- recorded --------------------------------------------------------------------------------------


def test_recorded_rows_come_as_they_stand(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, Generation.V2_0, steps=(0, 1))
    path = writer.statistics(
        1, [("ReLU", "ReLU-op2", "output", 0, VALUES), ("MatMul", "MatMul-op1", "input", 1, VALUES)]
    )
    with path.open(newline="") as file:
        relu, matmul = csv.DictReader(file)
    found = select_tensor_statistics(opened(tmp_path), iterations=[1])
    assert found == {0: {1: {"ReLU-op2:output:0": [relu], "MatMul-op1:input:1": [matmul]}}}
    assert (relu["Max Value"], relu["NaN Count"], relu["Shape"], relu["Op Type"]) == ("70000", "1", "(2,3)", "ReLU")


def test_rows_of_the_newer_generation_have_its_own_columns(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_5)
    writer.graph(MLP)
    columns = [*IDENTITY, "Max Value", "L2Norm Value", "MD5"]
    writer.statistics(0, [("ReLU", RELU, "output", 0, VALUES)], columns=columns, trailing_comma=True)
    (row,) = select_tensor_statistics(opened(tmp_path))[0][0][f"{RELU}:output:0"]
    assert list(row) == columns
    assert all(isinstance(value, str) for value in row.values())


def test_a_second_run_appends_its_rows(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    path = writer.statistics(0, [("ReLU", "ReLU-op2", "output", 0, VALUES)])
    with path.open("a") as file:
        file.write(",".join(IDENTITY) + ",Count\n")
        file.write('ReLU,ReLU-op2,0,0,7,output,0,4,float32,"(1,)",1\n')
        file.write("nothing,that\0makes\n\n")
    (rows,) = select_tensor_statistics(opened(tmp_path))[0][0].values()
    assert [row["Count"] for row in rows] == ["6", "1"]
    assert "Max Value" in rows[0]
    assert "Max Value" not in rows[1]


def test_every_graph_of_a_step_has_its_own_file(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    for graph, name in enumerate(("Add-op1", "Mul-op2")):
        path = writer.step(0, graph=graph) / "statistic.csv"
        path.write_text(f'{",".join(IDENTITY)}\nAdd,{name},0,0,7,output,0,4,float32,"(1,)"\n')
    assert list(select_tensor_statistics(opened(tmp_path))[0][0]) == ["Add-op1:output:0", "Mul-op2:output:0"]


def test_ranks_and_steps_are_chosen_and_a_step_of_another_rank_is_left_out(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 2), ranks=(0, 1))
    writer.tensor(5, "ReLU", RELU, np.ones((2, 3), np.float32), rank=1)
    session = opened(tmp_path)
    assert {rank: list(steps) for rank, steps in select_tensor_statistics(session).items()} == {0: [0, 2], 1: [0, 2, 5]}
    some = select_tensor_statistics(session, iterations={2, 5}, ranks=[1])
    assert {rank: list(steps) for rank, steps in some.items()} == {1: [2, 5]}


# -- computed --------------------------------------------------------------------------------------


def test_computed_rows_have_the_same_columns_as_text_to_the_last_digit(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, Generation.V2_0, steps=(0,))
    clock = writer.clock + 100
    values = np.array([[0.1, -2.0, 0.0], [np.nan, np.inf, 3.0]], np.float32)
    writer.tensor(0, "ReLU", "Default/network-Net/act-ReLU/ReLU-op2", values)
    found = select_tensor_statistics(opened(tmp_path))[0][0]
    *_, row = found["ReLU-op2:output:0"]  # the newest writing comes last
    finite = values[np.isfinite(values)].astype(np.float64)
    assert list(row) == list(COLUMNS)
    assert row == {
        "Op Type": "ReLU", "Op Name": "ReLU-op2", "Task ID": "0", "Stream ID": "0", "Timestamp": str(clock),
        "IO": "output", "Slot": "0", "Data Size": "24", "Data Type": "float32", "Shape": "(2,3)", "Max Value": "3.0",
        "Min Value": "-2.0", "Avg Value": row["Avg Value"], "Count": "6", "Negative Zero Count": "1",
        "Positive Zero Count": "2", "NaN Count": "1", "Negative Inf Count": "0", "Positive Inf Count": "1",
        "Zero Count": "1",
    }  # fmt: skip
    assert math.isclose(float(row["Avg Value"]), finite.mean(), rel_tol=1e-12)
    assert len(found) == 11
    assert "fc1.weight:output:0" in found


@pytest.mark.parametrize("generation", list(Generation))
def test_names_are_those_of_the_files(tmp_path: Path, generation: Generation) -> None:
    write_dump(tmp_path, generation, steps=(0,))
    spelled = {
        Generation.V2_0: "ReLU-op2",
        Generation.V2_10: RELU.replace("/", "_"),
    }.get(generation, RELU.replace("/", "--"))
    (row,) = select_tensor_statistics(opened(tmp_path))[0][0][f"{spelled}:output:0"]
    assert (row["Op Type"], row["Op Name"]) == ("ReLU", spelled)


def test_recorded_and_computed_rows_agree(tmp_path: Path) -> None:
    """The writer's rows come from plain numpy in six digits, as MindSpore prints them."""
    writer = write_dump(tmp_path / "dump", Generation.V2_0, steps=(0,))
    computed = select_tensor_statistics(opened(tmp_path / "dump"))[0][0]
    values = np.load(next((tmp_path / "dump").rglob("ReLU.*.output.*")))
    writer.statistics(0, [("ReLU", "ReLU-op2", "output", 0, values)])
    ((recorded,),) = select_tensor_statistics(opened(tmp_path / "dump"))[0][0].values()
    (ours,) = computed["ReLU-op2:output:0"]
    assert list(recorded) == list(ours)
    for title, text in recorded.items():
        if title in {"Max Value", "Min Value", "Avg Value"}:
            assert math.isclose(float(text), float(ours[title]), rel_tol=1e-5)
        elif title != "Timestamp":
            assert text == ours[title], title


def test_computed_rows_equal_the_old_tools_statistics(
    dumps: Callable[[str], Path], golden: Callable[[str], dict[str, Any]]
) -> None:
    session = opened(dumps("mindspore-2.0-mlp"))
    found = select_tensor_statistics(session)[0]
    compared = 0
    for old in golden("mindspore-2.0-mlp")["statistics"]:
        _, _, node, slot, step = old["id"]
        rows = found[step].get(f"{node.rpartition('/')[2]}:output:{slot}")
        if rows is None:
            assert node.startswith("cst")
            continue
        (row,) = rows
        assert row["Shape"] == f"({','.join(map(str, old['shape']))})"
        assert (float(row["Max Value"]), float(row["Min Value"])) == (old["max_value"], old["min_value"])
        titles = ("Data Size", "Count", "Negative Zero Count", "Positive Zero Count", "Zero Count")
        names = ("data_size", "count", "neg_zero_count", "pos_zero_count", "zero_count")
        assert [int(row[title]) for title in titles] == [old[name] for name in names]
        compared += 1
    assert compared > 100


def test_nothing_finite_no_numbers_and_other_types() -> None:
    values = {
        "nan": np.full(3, np.nan),
        "empty": np.zeros((0, 2), np.float32),
        "bf16": np.array([1.5], ml_dtypes.bfloat16),
        "flag": np.array(True),
        "text": np.array(["a", "b"]),
    }
    source = MemorySource({0: {0: {(k, Side.OUTPUT, 0): v for k, v in values.items()}}}, ops=[Op(k) for k in values])
    found = {name.split(":")[0]: row for name, (row,) in select_tensor_statistics(Session(source))[0][0].items()}
    source.close()
    for name, count, nan in (("nan", "3", "3"), ("empty", "0", "0"), ("text", "2", "0")):
        row = found[name]
        assert (row["Max Value"], row["Min Value"], row["Avg Value"]) == ("nan", "nan", "nan")
        assert (row["Count"], row["NaN Count"]) == (count, nan)
    assert (found["bf16"]["Data Type"], found["bf16"]["Max Value"]) == ("bfloat16", "1.5")
    assert (found["flag"]["Shape"], found["flag"]["Avg Value"], found["flag"]["Op Type"]) == ("()", "1.0", "Op")


def test_unreadable_tensors_are_left_out_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_dump(tmp_path, Generation.V2_0, steps=(0,))
    next(tmp_path.rglob("ReLU.*.output.*")).write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        found = select_tensor_statistics(opened(tmp_path))[0][0]
    assert len(found) == 10
    assert "ReLU-op2:output:0" not in found
    assert caplog.messages == ["rank 0 step 0: 1 tensors cannot be read and have no statistics"]


def test_it_can_be_stopped(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0,))

    def stop(_: Progress) -> None:
        raise CancelledError("stopped")

    with pytest.raises(CancelledError):
        select_tensor_statistics(opened(tmp_path), progress=stop)


# -- summary ---------------------------------------------------------------------------------------

CLEAN, LARGE = np.ones((2, 3), np.float32), np.full((2, 3), -70000.0, np.float32)
NAN, INF = np.full((2, 3), np.nan, np.float32), np.array([[np.inf, 1, 1], [1, 1, 1]], np.float32)


def test_a_summary_counts_the_rows_in_which_something_is_wrong(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump", Generation.V2_0)
    for rank in (0, 1):
        for step, values in enumerate((CLEAN, LARGE, NAN, INF)):
            writer.statistics(step, [("ReLU", "ReLU-op2", "output", 0, values)], rank=rank)
            writer.statistics(step, [("Add", "Add-op1", "input", 1, CLEAN)] * (2 if step == 0 else 1), rank=rank)
    statistics = select_tensor_statistics(opened(tmp_path / "dump"))
    summary_statistics(statistics, out_path=str(tmp_path / "new" / "place"))
    assert read_summary(tmp_path / "new" / "place") == [
        {"op_type": "ReLU", "op_name": "ReLU-op2", "tensor_name": "ReLU-op2:output:0", "inf_number": "2",
         "nan_number": "2", "out_of_range_number": "2", "total_number": "8", "none_overflow_number": "2",
         "total_iterations": "8"},
        {"op_type": "Add", "op_name": "Add-op1", "tensor_name": "Add-op1:input:1", "inf_number": "0",
         "nan_number": "0", "out_of_range_number": "0", "total_number": "10", "none_overflow_number": "10",
         "total_iterations": "8"},
    ]  # fmt: skip
    summary_statistics(statistics, overflow_value=70000, out_path=tmp_path / "new" / "place")
    assert read_summary(tmp_path / "new" / "place")[0]["out_of_range_number"] == "0"


def test_a_summary_of_computed_rows_says_the_same(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump", Generation.V2_0)
    for step, values in enumerate((CLEAN, LARGE, NAN, INF, np.full((2, 3), np.inf, np.float32))):
        writer.tensor(step, "ReLU", "ReLU-op2", values)
    summary_statistics(select_tensor_statistics(opened(tmp_path / "dump")), out_path=tmp_path)
    (row,) = read_summary(tmp_path)
    assert [row[name] for name in list(row)[3:]] == ["2", "1", "1", "5", "1", "5"]


def test_a_summary_takes_statistic_objects_too(tmp_path: Path) -> None:
    fields = {"op_type": "ReLU", "op_name": "ReLU-op2", "io": "output", "slot": 0}
    rows = [
        TensorStatistic(**fields, max_value=1.0, min_value=0.0),
        TensorStatistic(**fields, max_value=np.float32(70000), min_value=0.0, positive_inf_count=np.int64(1)),
        TensorStatistic(**fields, max_value=1.0, min_value=0.0, nan_count=3),
        TensorStatistic(**fields),
    ]
    summary_statistics({0: {4: {"ReLU-op2:output:0": rows}}}, out_path=tmp_path)
    (row,) = read_summary(tmp_path)
    assert list(row.values()) == ["ReLU", "ReLU-op2", "ReLU-op2:output:0", "1", "1", "1", "4", "2", "1"]


@pytest.mark.parametrize(
    ("row", "inf", "nan", "beyond"),
    [
        ({"Max Value": "nan", "Min Value": "-nan"}, 0, 1, 0),
        ({"Max Value": "inf", "Min Value": "1"}, 1, 0, 1),
        ({"Max Value": "1", "Min Value": "-inf"}, 1, 0, 1),
        ({"Max Value": "null", "Min Value": ""}, 0, 0, 0),
        ({}, 0, 0, 0),
        ({"Max Value": "nan", "Min Value": "nan", "NaN Count": "0", "Positive Inf Count": "6"}, 1, 0, 0),
        ({"Max Value": "-1.79769e+308", "Min Value": "1.79769e+308", "NaN Count": "6"}, 0, 1, 0),
        ({"Max Value": "65500", "Min Value": "-65500.1"}, 0, 0, 1),
        ({"NaN Count": "null", "Max Value": "nan"}, 0, 1, 0),
    ],
)
def test_what_a_row_does_not_record_is_taken_from_its_extremes(
    tmp_path: Path, row: dict[str, str], inf: int, nan: int, beyond: int
) -> None:
    """MindSpore 2.3 and newer record the configured columns only; a tensor of NaN must not count as clean."""
    full = {"Op Type": "A", "Op Name": "A-op1", "IO": "output", "Slot": "0", **row}
    summary_statistics({0: {0: {"A-op1:output:0": [full]}}}, out_path=tmp_path)
    (found,) = read_summary(tmp_path)
    assert [int(found[name]) for name in ("inf_number", "nan_number", "out_of_range_number")] == [inf, nan, beyond]
    assert int(found["none_overflow_number"]) == (not (inf or nan or beyond))


def test_no_statistics_no_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    summary_statistics({}, out_path=tmp_path / "new")
    assert caplog.messages
    assert not (tmp_path / "new").exists()


def test_a_summary_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    rows: Any = {0: {0: {"A:output:0": [{"Op Name": "A"}]}}}
    (tmp_path / "file").touch()
    with pytest.raises(TdbgError, match="could not be made"):
        summary_statistics(rows, out_path=tmp_path / "file" / "x")
    with pytest.raises(TdbgError, match="never written"):
        summary_statistics(rows, out_path=tmp_path / "dump" / "x", dump=tmp_path / "dump")
    assert not (tmp_path / "dump").exists()


def test_a_summary_is_never_written_into_the_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = write_dump(tmp_path / "dump", Generation.V2_0)
    run = DumpAnalyzer(writer.root)
    monkeypatch.chdir(writer.root)
    with pytest.raises(TdbgError, match="never written to"):
        run.summary_statistics(run.select_tensor_statistics())
    assert not list(writer.root.rglob("statistics_summary.csv"))
    run.summary_statistics(run.select_tensor_statistics(), out_path=tmp_path / "out")
    assert (tmp_path / "out" / "statistics_summary.csv").exists()
