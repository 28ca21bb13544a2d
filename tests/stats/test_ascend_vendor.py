"""Files of Ascend devices, held against the vendor's own parser: values are bit-equal, whatever lies in the padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests import ascend_vendor as vendor
from tests.ascend_files import TYPES, Written, dirty, file_bytes, nano_bytes, numpy_type, random_values, write
from tests.thorough import few
from tui_debugger.model import ReadSpec
from tui_debugger.stats.npy import open_array

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

VENDOR_TYPES = (
    *("float32", "float16", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("bool", "bfloat16", "complex64", "complex128"),
)
HOSTS: dict[str, tuple[Shape, ...]] = {
    "NC1HWC0": ((2, 17, 3, 3), (1, 16, 2, 5), (3, 40, 1, 1), (2, 5, 4, 1)),
    "FRACTAL_Z": ((18, 17, 3, 3), (16, 16, 1, 1), (5, 40, 2, 3)),
    "FRACTAL_NZ": ((37, 18), (2, 17, 33), (16, 16), (1, 1), (3, 2, 5, 20)),
    "NDC1HWC0": ((2, 17, 3, 2, 2),),
}
"""Shapes by format for which the vendor has a rule."""


@pytest.fixture(autouse=True)
def vendor_is_here() -> None:
    vendor.needed()


def spec_of(path: Path, member: str = "output.0") -> ReadSpec:
    return ReadSpec(str(path), "ascend", member=member)


def as_vendor_s(values: Array, dtype: str) -> Array:
    return values.astype(np.float32) if dtype == "bfloat16" else values


@pytest.mark.parametrize("dtype", VENDOR_TYPES)
@pytest.mark.parametrize("fmt", HOSTS)
def test_padded_tensors_are_what_the_vendor_reads(tmp_path: Path, fmt: str, dtype: str) -> None:
    random = np.random.default_rng(TYPES[dtype])
    for number, host in enumerate(HOSTS[fmt]):
        for c0 in (16, 32, 8):
            values = random_values(random, host, dtype)
            tensor = Written(values, dtype, fmt, device=dirty(values, fmt, c0, dtype), padding=b"\xff" * (number * 13))
            path = write(tmp_path / f"Conv2D.x.2.7.16{number}", file_bytes([tensor], [tensor], spaces=[b"\xff" * 40]))
            for member in ("input.0", "output.0"):
                found = open_array(spec_of(path, member))
                assert found.tobytes() == values.tobytes(), (host, c0)
                assert found.shape == host
                expected = vendor.program_values(path, member)
                assert as_vendor_s(found, dtype).tobytes() == expected.tobytes(), (host, c0)


@pytest.mark.parametrize("dtype", few(VENDOR_TYPES, 8))
@pytest.mark.parametrize("fmt", ["HWCN", "NHWC"])
def test_axes_are_put_in_the_order_of_the_program(tmp_path: Path, fmt: str, dtype: str) -> None:
    values = random_values(np.random.default_rng(1), (2, 3, 4, 5), dtype)
    axes = {"HWCN": (2, 3, 1, 0), "NHWC": (0, 2, 3, 1)}[fmt]
    path = write(tmp_path / "x", file_bytes(outputs=[Written(values, dtype, fmt, device=values.transpose(axes))]))
    found = open_array(spec_of(path))
    assert (found.shape, found.tobytes()) == (values.shape, values.tobytes())
    assert as_vendor_s(found, dtype).tobytes() == vendor.program_values(path, "output.0").tobytes()


@pytest.mark.parametrize("dtype", VENDOR_TYPES)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (0, 3), (2, 3, 4, 5)])
def test_plain_tensors_are_what_the_vendor_reads(tmp_path: Path, dtype: str, shape: Shape) -> None:
    values = random_values(np.random.default_rng(2), shape, dtype)
    header = {"format": 40, "original_shape": None}
    padding = b"\xff" * 32 if shape else b""
    path = write(tmp_path / "x", file_bytes(outputs=[Written(values, dtype, header=header, padding=padding)]))
    found, theirs = open_array(spec_of(path)), vendor.tensors(path)["output.0"]
    assert found.shape == shape
    assert as_vendor_s(found, dtype).tobytes() == np.asarray(theirs.data, as_vendor_s(found, dtype).dtype).tobytes()


def test_single_bits_come_from_the_highest_of_a_byte_on(tmp_path: Path) -> None:
    values = random_values(np.random.default_rng(3), (4, 16), "uint1")
    path = write(tmp_path / "x", file_bytes(outputs=[Written(values, "uint1", header={"shape": (8,)})]))
    theirs = vendor.tensors(path)["output.0"].data  # the vendor counts bytes
    path = write(tmp_path / "y", file_bytes(outputs=[Written(values, "uint1")]))
    assert open_array(spec_of(path)).reshape(-1).tolist() == theirs.tolist()


@pytest.mark.parametrize("dtype", ["float8_e5m2", "float8_e4m3fn", "hifloat8"])
def test_small_floats_but_where_the_vendor_is_wrong(tmp_path: Path, dtype: str) -> None:
    """The vendor's parser knows no NaN of e4m3fn, no sign of -Inf, and 49 codes of hifloat8 are others than its own
    types say: these decide, see ``test_ascend_types``."""
    codes = np.arange(256, dtype=np.uint8)
    values = codes if dtype == "hifloat8" else codes.view(numpy_type(dtype))
    path = write(tmp_path / "x", file_bytes(outputs=[Written(values, dtype)]))
    found = open_array(spec_of(path)).astype(np.float64)
    theirs = np.asarray(vendor.tensors(path)["output.0"].data, np.float64)
    same = (found == theirs) | (np.isnan(found) & np.isnan(theirs))
    wrong = {"float8_e5m2": [0xFC], "float8_e4m3fn": [0x7F, 0xFF], "hifloat8": [0xEF]}[dtype]
    if dtype == "hifloat8":
        wrong = sorted({*wrong, *(code for code in range(256) if 0x08 <= code & 0x7F < 0x20)})
        assert set(np.flatnonzero(~same).tolist()) <= set(wrong)
    else:
        assert np.flatnonzero(~same).tolist() == wrong


class TestSmallDevices:
    """Tags, lengths and values in place of a message."""

    def test_are_what_the_vendor_reads(self, tmp_path: Path) -> None:
        inputs = np.random.default_rng(4).normal(size=(2, 3)).astype(np.float16)
        outputs = np.arange(6, dtype=np.int32).reshape(3, 2)
        path = write(tmp_path / "Add.op.1.2.1700000000000000", nano_bytes([(inputs, 1)], [(outputs, 3)]))
        theirs = vendor.nano_values(path)
        for member, values, each in zip(("input.0", "output.0"), (inputs, outputs), theirs, strict=True):
            found = open_array(spec_of(path, member))
            assert found.tobytes() == values.tobytes() == each.tobytes()
            assert found.shape == values.shape == each.shape
