"""The values that ``tdbg show`` prints: every element type, excerpts as numpy's, windows of tensors of any size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.cli.running import run
from tests.sources.memory import MemorySource, Op
from tests.sources.writer import DumpWriter, Generation
from tui_debugger.cli.show_report import cut, excerpt_text, nested, window_text
from tui_debugger.model import ReadSpec, Side
from tui_debugger.stats.npy import open_array

Capsys = pytest.CaptureFixture[str]
Memory = Callable[[npt.NDArray[Any]], str]
Array = npt.NDArray[Any]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """Makes ``tdbg show memory`` about one node with the given output."""

    def make(output: npt.NDArray[Any]) -> str:
        name = "Default/Add-op1"
        source = MemorySource({0: {0: {(name, Side.OUTPUT, 0): output}}}, ops=[Op(name, "Add")])
        monkeypatch.setattr("tui_debugger.session.session.open_source", lambda *_: source)
        return "memory"

    return make


@pytest.mark.parametrize(
    ("array", "values"),
    [
        (np.array([np.nan, np.inf, -np.inf, 1.5]), ["nan", "inf", "-inf", 1.5]),
        (np.array([[True, False]]), [[True, False]]),
        (np.array([2**63 - 1, -(2**63)]), [2**63 - 1, -(2**63)]),
        (np.array([2**64 - 1], np.uint64), [2**64 - 1]),
        (np.array([1 + 2j, complex(np.nan, 0)]), [[1.0, 2.0], ["nan", 0.0]]),
        (np.array([0.5, np.inf], ml_dtypes.bfloat16), [0.5, "inf"]),
        (np.array([0.1], np.float32), [0.10000000149011612]),
        (np.array(7, np.int8), 7),
        (np.array(["ab", "c\x1b"]), ["ab", "c\x1b"]),
        (np.zeros((0, 2)), []),
    ],
    ids=str,
)
def test_values_of_every_element_type(capsys: Capsys, memory: Memory, array: Array, values: Any) -> None:
    answer = run(capsys, "show", memory(array), "Add-op1", "--json")
    assert answer.code == 0
    assert answer.json["tensors"][0]["values"] == values
    assert run(capsys, "show", memory(array), "Add-op1").code == 0


def test_raw_bfloat16(capsys: Capsys, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump", Generation.V2_5)
    writer.raw_bfloat16(0, "Add", "Default/Add-op1", np.array([1.0, -2.0, np.nan], np.float32))
    answer = run(capsys, "show", writer.root, "Add-op1:0")
    assert answer.lines[-2:] == [
        "out:0 bfloat16 3 n=3 █▁▁▁▁▁▁▁▁█ x∈[-2, 1] μ=-0.5 σ=1.5 NaN! 1",
        "  [ 1.0000 -2.0000     NaN]",
    ]


def test_small_tensors_are_printed_whole_and_big_ones_at_their_ends() -> None:
    assert excerpt_text(np.arange(100), 4) == np.array2string(np.arange(100), max_line_width=78)
    big = excerpt_text(np.arange(10_000).reshape(100, 100), 4)
    lines = big.splitlines()
    assert lines[0] == "[[   0    1    2 ...   97   98   99]"
    assert lines[3] == " ..."
    assert lines[-1] == " [9900 9901 9902 ... 9997 9998 9999]]"
    assert len(lines) == 7


def test_the_excerpt_is_numpys_own() -> None:
    array = np.arange(10_000).reshape(10, 10, 100)
    assert excerpt_text(array, 4) == np.array2string(array, threshold=0, edgeitems=2, max_line_width=78)


def test_a_scalar_and_nothing() -> None:
    assert excerpt_text(np.array(1.5), 2) == "1.50"
    assert excerpt_text(np.zeros((0, 3)), 2) == "[]"
    assert window_text(np.array([1e-9, 0.0, 1.0]), 2) == "[1.00e-09        0     1.00]"


def test_neither_a_window_nor_an_excerpt_reads_the_rest_of_a_huge_tensor(tmp_path: Path) -> None:
    shape = (1 << 20, 1 << 14)  # 64 GiB of float32, all hole
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    path = tmp_path / "huge.npy"
    with path.open("wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
        file.truncate(128 + shape[0] * shape[1] * 4)
    array = open_array(ReadSpec(str(path)))
    assert excerpt_text(array, 4).splitlines()[-1] == " [0 0 0 ... 0 0 0]]"
    window, asked = cut(array, "[-1, 5:8]")
    assert asked.text == f"[{shape[0] - 1}, 5:8]"
    assert nested(window) == [0.0, 0.0, 0.0]


def test_a_slice_that_nobody_can_read_is_refused(capsys: Capsys, memory: Memory) -> None:
    answer = run(capsys, "show", memory(np.zeros((1001, 1000), np.int8)), "Add-op1", "[:, :]")
    assert (answer.code, answer.out) == (2, "")
    assert "[:, :] has 1,001,000 elements: at most 1,000,000 are printed" in answer.err
