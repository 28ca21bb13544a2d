"""Statistics of the recorders on Ascend servers: their own columns, a file for each operator, empty tensors."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.sources.ascend_trees import ATB_TITLES, TIME
from tui_debugger.sources import open_source

Capsys = pytest.CaptureFixture[str]
MSPROBE = "Op Type,Op Name,Task ID,Stream ID,Timestamp,Input/Output,Slot,Data Size,Data Type,Format,Shape"
DEVICE = "Input/Output,Index,Data Size,Data Type,Format,Shape"
COUNTS = "Max Value,Min Value,Avg Value,Count,Nan Count,Negative Inf Count,Positive Inf Count"
NAME = "MatMul.Default_MatMul_1.11.2.1700000000000100"


def checked(capsys: Capsys, root: Path, watch: str = "TO") -> int:
    return run(capsys, "check", root, "--watch", watch, "--no-cache", "--jobs", "1").code


def of_msprobe(root: Path, titles: str, cells: str, shape: str = "1x3", dtype: str = "DT_FLOAT16") -> Path:
    """What msprobe writes for graph mode O2."""
    directory = root / f"rank_0/{TIME}/step_0"
    directory.mkdir(parents=True, exist_ok=True)
    row = f"MatMul,Default_MatMul_1,11,2,1700000000000100,Output,0,6,{dtype},ND,{shape},{cells}"
    (directory / "statistic.csv").write_text(f"{MSPROBE},{titles}\n{row}\n")
    return root


def of_device(root: Path, titles: str, cells: str, shape: str = "1x3", dtype: str = "DT_FLOAT16") -> Path:
    """What a device writes: a file for each operator."""
    directory = root / f"{TIME}/0/ge_default/1/0"
    directory.mkdir(parents=True, exist_ok=True)
    row = f"Output,0,6,{dtype},ND,{shape},{cells}"
    (directory / f"{NAME}.csv").write_text(f"{DEVICE},{titles}\n{row}\n")
    return root


WRITERS = pytest.mark.parametrize("write", [of_msprobe, of_device])
Write = Callable[..., Path]


@WRITERS
@pytest.mark.parametrize(
    ("titles", "cells", "code"),
    [
        (COUNTS, "2,1,1.5,3,0,0,0", 0),
        (COUNTS, "2,1,1.5,3,1,0,0", 1),
        (COUNTS, "inf,1,inf,3,0,0,1", 1),
        (COUNTS, "nan,nan,nan,3,3,0,0", 1),
        ("Max Value,Min Value", "2,1", 2),  # NaN never replaces a value: it may be there
        ("Max Value,Min Value", "inf,1", 1),
        ("Max Value,Min Value,NaN Count,Negative Inf Count,Positive Inf Count", "2,1,0,0,0", 0),
        ("L2Norm Value", "nan", 1),
        ("Max Value,Avg Value,L2Norm Value", "1,nan,2.4", 1),  # only infinities of both signs make a mean NaN, too
        ("Max Value,Min Value,Avg Value,L2Norm Value", "inf,-inf,nan,inf", 1),
        ("Max Value,Min Value,Avg Value,L2Norm Value", "1,-1,0,2.4", 0),
        ("L2Norm Value", "2.5", 0),
        (COUNTS, ",,,,,,", 2),  # a type of which the device computes nothing
    ],
)
def test_a_verdict_rests_on_what_was_recorded(
    write: Write, titles: str, cells: str, code: int, *, tmp_path: Path, capsys: Capsys
) -> None:
    assert checked(capsys, write(tmp_path, titles, cells)) == code


def test_the_short_title_of_a_norm(tmp_path: Path, capsys: Capsys) -> None:
    assert checked(capsys, of_device(tmp_path / "bad", "Count,l2norm", "3,nan")) == 1
    assert checked(capsys, of_device(tmp_path / "good", "Count,l2norm", "3,1.5")) == 0


@WRITERS
def test_cells_are_read_under_their_titles(write: Write, tmp_path: Path) -> None:
    with closing(open_source(write(tmp_path, COUNTS, "2,1,1.5,3,0,0,0"))) as source:
        table, nodes = source.tensors(0, 0), source.nodes(0)
        assert (nodes.names[0], table.recorded_meta(0)) == ("Default_MatMul_1", ("float16", (1, 3)))
        found = table.recorded(0)
        assert found is not None
        assert (found.minimum, found.maximum, found.mean, found.count) == (1.0, 2.0, 1.5, 3)


@pytest.mark.parametrize("name", ["12345.csv", "a.csv"])
def test_an_operator_without_a_name_is_a_doubt(name: str, tmp_path: Path, capsys: Capsys) -> None:
    directory = of_device(tmp_path, COUNTS, "2,1,1.5,3,0,0,0") / f"{TIME}/0/ge_default/1/0"
    (directory / name).write_text((directory / f"{NAME}.csv").read_text())
    assert checked(capsys, tmp_path) == 2


def test_a_table_of_something_else_is_no_doubt(tmp_path: Path, capsys: Capsys) -> None:
    directory = of_device(tmp_path, COUNTS, "2,1,1.5,3,0,0,0") / f"{TIME}/0/ge_default/1/0"
    (directory / "loss.csv").write_text("step,loss\n1,2.5\n")
    assert checked(capsys, tmp_path) == 0


def test_a_file_of_an_operator_that_is_cut(tmp_path: Path, capsys: Capsys) -> None:
    path = of_device(tmp_path, COUNTS, "2,1,1.5,3,0,0,0") / f"{TIME}/0/ge_default/1/0/{NAME}.csv"
    path.write_text(path.read_text()[:-8])
    assert checked(capsys, tmp_path) == 2


# -- tensors of no elements ----------------------------------------------------------------------------------------


def of_calls(root: Path, titles: str, cells: str, shape: str = "2x3", dtype: str = "") -> Path:  # noqa: ARG001 - see WRITERS
    """What msprobe writes for PyTorch."""
    numbers = dict(
        zip(
            ("Max", "Min", "Mean", "Norm"),
            [None if not cell else float(cell) for cell in cells.split(",")],
            strict=False,
        )
    )
    said = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [int(each) for each in shape.split("x")]}
    output = {**said, "Max": None, "Min": None, "Mean": None, "Norm": None, **numbers}
    calls = {"NPU.npu_fusion_attention.0.forward": {"input_args": [], "input_kwargs": {}, "output": [output]}}
    directory = root / "step0/rank0"
    directory.mkdir(parents=True)
    (directory / "dump.json").write_text(json.dumps({"task": "statistics", "level": "L1", "data": calls}))
    (directory / "stack.json").write_text("{}")
    return root


@pytest.mark.parametrize("write", [of_msprobe, of_device, of_calls])
@pytest.mark.parametrize("watch", ["TO", "TL max_gt=5 abs_mean_gt=3", "TZ zero_percentage_ge=50", "EX nan > 0"])
def test_a_tensor_of_no_elements_needs_no_judgement(write: Write, watch: str, tmp_path: Path, capsys: Capsys) -> None:
    """The fourth output of attention on an NPU is one: its statistics are empty."""
    assert checked(capsys, write(tmp_path / "none", "Max Value,Min Value,Avg Value", ",,", "0"), watch) == 0
    assert checked(capsys, write(tmp_path / "some", "Max Value,Min Value,Avg Value", ",,", "2x3"), watch) == 2


@pytest.mark.parametrize(
    ("cells", "code"),
    [("1,-1,0,2", 0), ("1,1,nan,1", 1), ("1,1,1,nan", 1), ("N/A,N/A,N/A,N/A", 2), ("x,1,1,1", 2), ("inf,1,inf,inf", 1)],
)
def test_rows_of_atb(cells: str, code: int, tmp_path: Path, capsys: Capsys) -> None:
    """A mean of NaN tells of NaN; a cell that is no number is a doubt."""
    directory = tmp_path / "atb_dump_data/data/0_4711/0"
    directory.mkdir(parents=True)
    row = f"0_4711,0,Linear,LinearOperation,0,Output,0,float,nd,2x3,{cells},N/A"
    (directory / "statistic.csv").write_text(f"{ATB_TITLES}\n{row}\n")
    assert checked(capsys, tmp_path) == code
