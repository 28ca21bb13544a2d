"""Dumps of MindSpore 1.1 and 1.2, written as the specification has them: iteration_N with raw files in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.sources.conformance import SourceConformance
from tui_debugger.cli.main import main
from tui_debugger.errors import SeveralDumpsError, UnreadableTensorError
from tui_debugger.model import Side
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source
from tui_debugger.sources.registry import layout_of
from tui_debugger.stats.npy import open_array

Array = npt.NDArray[Any]
MATMUL, WEIGHT = "Default/network-Net/fc1-Dense/MatMul-op4", "fc1.weight"


def write_tensor(
    directory: Path, node: str, values: Array, *, side: str = "output", slot: int = 0, dtype: str = "", fmt: str = "ND"
) -> Path:
    """One file: the name says what it is, its bytes are the values."""
    shape = "_".join(map(str, values.shape))
    dtype = dtype or values.dtype.name.capitalize()
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{node.replace('/', '--')}_{side}_{slot}_shape_{shape}_{dtype}_{fmt}.bin"
    path.write_bytes(values.tobytes())
    return path


def write_iteration(directory: Path, seed: int = 0) -> dict[str, Array]:
    """An operator with its input, and a weight."""
    random = np.random.default_rng(seed)
    values = {name: random.standard_normal((2, 3)).astype(np.float32) for name in ("in", MATMUL, WEIGHT)}
    write_tensor(directory, MATMUL, values["in"], side="input")
    write_tensor(directory, MATMUL, values[MATMUL])
    write_tensor(directory, WEIGHT, values[WEIGHT], fmt="DefaultFormat")
    return values


class TestIterations(SourceConformance):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        for step in (0, 2, 7):
            write_iteration(tmp_path / "Net" / f"iteration_{step}", step)
        return open_source(tmp_path)


class TestDevices(SourceConformance):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        for device in (0, 3):
            for step in (1, 10, 9):
                write_iteration(tmp_path / "Net" / f"device_{device}" / f"iteration_{step}", step)
        return open_source(tmp_path / "Net" / "device_3")


def test_iterations_are_steps_devices_are_ranks_and_scopes_come_back(tmp_path: Path) -> None:
    for device in (0, 3):
        for step in (10, 9):
            written = write_iteration(tmp_path / "Net" / f"device_{device}" / f"iteration_{step}", step)
    source = open_source(tmp_path)
    assert source.info.layout == "MindSpore 1.1 or 1.2 dump"
    assert (list(source.ranks()), list(source.steps(3))) == ([0, 3], [9, 10])
    table, nodes = source.tensors(3, 9), source.nodes(3)
    assert set(nodes.names) == {MATMUL, WEIGHT}
    assert nodes.op_type(nodes.find(MATMUL)) == "MatMul"
    for node, side, name in ((MATMUL, Side.INPUT, "in"), (MATMUL, Side.OUTPUT, MATMUL), (WEIGHT, Side.OUTPUT, WEIGHT)):
        values = open_array(table.spec(table.find(nodes.find(node), side, 0)))
        assert np.array_equal(values, written[name])


@pytest.mark.parametrize("inside", ["", "Net", "Net/device_0", "Net/device_0/iteration_1"])
def test_it_is_found_from_above_and_from_inside(tmp_path: Path, inside: str) -> None:
    write_iteration(tmp_path / "Net" / "device_0" / "iteration_1")
    write_iteration(tmp_path / "Net" / "device_1" / "iteration_1")
    assert layout_of(tmp_path / inside) == "MindSpore 1.1 or 1.2"
    assert list(open_source(tmp_path / inside).ranks()) == [0, 1]


def test_several_nets_are_several_dumps(tmp_path: Path) -> None:
    write_iteration(tmp_path / "Net" / "iteration_0")
    write_iteration(tmp_path / "Other" / "iteration_0")
    with pytest.raises(SeveralDumpsError):
        open_source(tmp_path)
    assert open_source(tmp_path / "Other").info.title == "Other"


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.float32(3).reshape(()), "Float32"),
        (np.arange(4, dtype=np.float16).reshape(1, 2, 2, 1), "kNumberTypeFloat16"),
        (np.array([True, False]), "Bool"),
        (np.arange(3, dtype=np.int64), "int64"),
        (np.arange(3).astype(ml_dtypes.bfloat16), "BFloat16"),
        (np.zeros((0, 4), np.float32), "Float32"),
    ],
)
def test_types_and_shapes_are_those_of_the_name(tmp_path: Path, values: Array, dtype: str) -> None:
    write_tensor(tmp_path / "Net" / "iteration_0", "x", values, dtype=dtype)
    source = open_source(tmp_path)
    found = open_array(source.tensors(0, 0).spec(0))
    assert (found.shape, found.dtype) == (values.shape, values.dtype)
    assert np.array_equal(found, values)


@pytest.mark.parametrize("change", [-1, 1, 1 << 30])
def test_a_file_of_another_length_is_one_unreadable_tensor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: int
) -> None:
    directory = tmp_path / "Net" / "iteration_0"
    write_iteration(directory)
    path = write_tensor(directory, "x", np.arange(6.0))
    os.truncate(path, path.stat().st_size + change)
    assert main(["check", str(tmp_path), "--watch", "TO"]) == 2
    assert "3 tensors checked, 1 unreadable" in capsys.readouterr().out
    table = open_source(tmp_path).tensors(0, 0)
    nodes = open_source(tmp_path).nodes(0)
    lost = table.find(nodes.find("x"), Side.OUTPUT, 0)
    with pytest.raises(UnreadableTensorError):
        open_array(table.spec(lost))
    others = [open_array(table.spec(index)) for index in range(len(table)) if index != lost]
    assert [values.shape for values in others] == [(2, 3)] * 3


def test_what_is_not_understood_is_said_and_nothing_is_called_clean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "Net" / "iteration_0"
    write_iteration(directory)
    assert main(["check", str(tmp_path), "--watch", "TO", "--no-cache"]) == 0
    capsys.readouterr()
    (directory / "Default--x.bin").write_bytes(b"1234")
    assert main(["check", str(tmp_path), "--watch", "TO", "--no-cache"]) == 2
    assert "Default--x.bin" in capsys.readouterr().out
    write_tensor(directory, "Default/y-op1", np.array([np.nan], np.float32))
    assert main(["check", str(tmp_path), "--watch", "TO", "--no-cache"]) == 1


@pytest.mark.parametrize("place", ["Net/Iteration_1", "Net/iteration1", "Net/device_0/old"])
def test_tensors_in_a_directory_that_is_no_iteration_are_a_doubt(tmp_path: Path, place: str) -> None:
    good = tmp_path / ("Net/device_0/iteration_0" if "device" in place else "Net/iteration_0")
    write_iteration(good)
    (tmp_path / place).mkdir()
    (tmp_path / place / "notes.txt").write_text("nothing")
    assert main(["check", str(tmp_path), "--watch", "TO", "--no-cache"]) == 0
    write_tensor(tmp_path / place, "x", np.array([np.nan]))
    assert main(["check", str(tmp_path), "--watch", "TO", "--no-cache"]) == 2
