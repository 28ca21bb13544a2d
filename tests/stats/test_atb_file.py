"""Files of tensors that ATB writes: lines of text, then the elements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec
from tui_debugger.stats.atb_file import named_instead
from tui_debugger.stats.formats import Holds, looked_at
from tui_debugger.stats.npy import open_array

TYPES = {
    0: "float32",
    1: "float16",
    2: "int8",
    3: "int32",
    4: "uint8",
    6: "int16",
    7: "uint16",
    8: "uint32",
    9: "int64",
    10: "uint64",
    11: "float64",
    12: "bool",
    16: "complex64",
    17: "complex128",
}


def lines(data: bytes, dtype: int = 0, dims: str = "2,3", **others: str) -> bytes:
    """The lines before the elements; ``others`` in place of the usual ones."""
    said = {
        "$Version": "1.0",
        "$Object.Count": "1",
        "$Object.Length": str(len(data)),
        "format": "2",
        "dtype": str(dtype),
        "dims": dims,
        "$Object.data": f"0,{len(data)}",
        **others,
        "$End": "1",
    }
    return "".join(f"{name}={value}\n" for name, value in said.items()).encode()


def read(path: Path) -> npt.NDArray[Any]:
    return open_array(ReadSpec(str(path), "atb"))


@pytest.mark.parametrize("number", TYPES)
def test_every_type_of_acl(number: int, tmp_path: Path) -> None:
    values = np.arange(6).reshape(2, 3).astype(TYPES[number])
    path = tmp_path / "outtensor0.bin"
    path.write_bytes(lines(values.tobytes(), number) + values.tobytes())
    found = read(path)
    assert (found.dtype, found.tolist()) == (values.dtype, values.tolist())
    assert looked_at(path.read_bytes(), path.read_bytes(), path.stat().st_size, path.name).holds is Holds.TENSORS


def test_bfloat16_and_a_scalar(tmp_path: Path) -> None:
    half, one = np.array([1.5, -2.0], ml_dtypes.bfloat16), np.array(7, np.float32)
    (tmp_path / "half.bin").write_bytes(lines(half.tobytes(), 27, "2") + half.tobytes())
    (tmp_path / "one.bin").write_bytes(lines(one.tobytes(), 0, "") + one.tobytes())
    assert read(tmp_path / "half.bin").tolist() == [1.5, -2.0]
    assert read(tmp_path / "one.bin").shape == ()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b"$Version=1.0\n", "ends inside its lines"),
        (lines(bytes(24), 13) + bytes(24), "type 13 of ACL"),
        (lines(bytes(24), dims="2,x") + bytes(24), "make no sense"),
        (lines(bytes(24)) + bytes(20), "truncated"),
        (lines(bytes(24), dims="2,4", **{"$Object.data": "0,24"}) + bytes(40), "need 32"),
        (lines(bytes(24), dims="2,2", **{"$Object.data": "0,24"}) + bytes(24), "need 16"),
        (lines(bytes(24)) + bytes(30), "behind its values"),
    ],
)
def test_a_damaged_file_says_why(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "outtensor0.bin"
    path.write_bytes(content)
    with pytest.raises(UnreadableTensorError, match=why):
        read(path)
    assert named_instead(str(path)) == ()


def test_a_file_that_names_another_one_holds_no_values(tmp_path: Path) -> None:
    path = tmp_path / "outtensor0.bin"
    path.write_bytes(
        b"$Version=1.0\n$Object.Count=0\n$Object.Length=0\ndata=intensor1.bin\ndims=2,3\ndtype=0\n$End=1\n"
    )
    assert named_instead(str(path)) == ("intensor1.bin",)
    with pytest.raises(UnreadableTensorError, match=r"values of another file: intensor1\.bin"):
        read(path)
