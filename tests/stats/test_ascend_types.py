"""Every element type, format, rank, length of blocks and number of groups of Ascend devices, with dirt in the padding.

Where the vendor's parser has a rule, ``test_ascend_vendor`` holds files against it; here they are held against the
table of formulas in ``ascend_files``, one element at a time.
"""

from __future__ import annotations

import math
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.ascend_files import (
    BITS,
    CODES,
    FORMATS,
    MISSING,
    TYPES,
    UNREADABLE,
    Written,
    device_index,
    dirty,
    file_bytes,
    nano_bytes,
    packed_bytes,
    random_values,
    to_device,
    write,
)
from tests.stats.requests import look
from tests.thorough import few
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec
from tui_debugger.stats import ascend_file
from tui_debugger.stats.ascend_file import is_converted, read_header
from tui_debugger.stats.npy import TensorFile, open_array, open_lazily, read_meta

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

READABLE = sorted(set(TYPES) - {"string", *UNREADABLE, *MISSING})
BLOCKS = (8, 16, 32, 64)
HOSTS: dict[str, tuple[Shape, ...]] = {
    "NC1HWC0": ((2, 17, 3, 2), (3, 5, 1, 1), (1, 40, 2, 2)),
    "NC1HWC0_C04": ((2, 3, 3, 2), (2, 7, 1, 5)),
    "FRACTAL_Z": ((18, 17, 3, 2), (5, 40, 1, 1)),
    "FRACTAL_Z_C04": ((18, 3, 3, 3), (5, 4, 1, 5), (16, 1, 2, 2)),
    "FRACTAL_NZ": ((37, 18), (2, 17, 33), (3, 2, 5, 20)),
    "NDC1HWC0": ((2, 17, 3, 2, 2),),
    "FRACTAL_Z_3D": ((18, 17, 2, 2, 1),),
    "C1HWNCoC0": ((2, 17, 2, 2),),
}


def spec_of(path: Path, member: str = "output.0") -> ReadSpec:
    return ReadSpec(str(path), "ascend", member=member)


def saved(tmp_path: Path, *tensors: Written, **others: Any) -> Path:
    return write(tmp_path / "Conv2D.x.2.7.1600", file_bytes(outputs=tensors, **others))


def blocks_of(fmt: str) -> tuple[int, ...]:
    return {"NC1HWC0_C04": (4,), "FRACTAL_Z_C04": (16,)}.get(fmt, BLOCKS)


def dirty_bits(values: Array, fmt: str, c0: int, dtype: str, groups: int = 1) -> Array:
    """Device elements with dirt in the padding; elements of less than a byte have theirs within their bits."""
    device = dirty(values, fmt, c0, dtype, groups)
    return device & ((1 << BITS[dtype]) - 1) if dtype in BITS and values.dtype.kind == "u" else device


@pytest.mark.usefixtures("measured_by")
@pytest.mark.parametrize("dtype", READABLE)
@pytest.mark.parametrize("fmt", HOSTS)
def test_every_type_and_format_with_blocks_of_any_length(tmp_path: Path, fmt: str, dtype: str) -> None:
    random = np.random.default_rng(TYPES[dtype])
    for host in HOSTS[fmt]:
        for c0 in blocks_of(fmt):
            values = random_values(random, host, dtype)
            device = dirty_bits(values, fmt, c0, dtype)
            if dtype in BITS and device.shape[-1] * BITS[dtype] % 8:
                continue
            path = saved(tmp_path, Written(values, dtype, fmt, device=device, padding=b"\xff" * 37))
            found = open_array(spec_of(path))
            assert (found.shape, is_converted(read_header(path).tensors[0])) == (host, True)
            assert found.tobytes() == decoded(values, dtype).tobytes(), (host, c0)
    flat = device.reshape(-1)
    places = [device_index(at, host, fmt, c0) for at in np.ndindex(*host)]
    assert flat[places].tobytes() == values.tobytes(), "the formulas say the same"


@pytest.mark.parametrize("dtype", few(READABLE, 8))
@pytest.mark.parametrize("groups", [2, 3, 5, 16])
@pytest.mark.parametrize("c0", [8, 16, 32])
def test_groups(tmp_path: Path, c0: int, groups: int, dtype: str) -> None:
    if dtype in BITS:
        return
    values = random_values(np.random.default_rng(groups), (groups * 3, 5, 2, 3), dtype)
    device = dirty(values, "FRACTAL_Z", c0, dtype, groups)
    found = open_array(spec_of(saved(tmp_path, Written(values, dtype, "FRACTAL_Z", groups, device=device))))
    assert (found.shape, found.tobytes()) == (values.shape, decoded(values, dtype).tobytes())


def decoded(values: Array, dtype: str) -> Array:
    """The numbers of codes, by the rule and not by a table."""
    if dtype not in CODES:
        return values
    if dtype == "complex32":
        pairs = np.ascontiguousarray(values).reshape(-1).view(np.float16).astype(np.float32)
        return (pairs[::2] + 1j * pairs[1::2]).astype(np.complex64).reshape(values.shape)
    numbers = [number_of(int(code), dtype) for code in values.reshape(-1)]
    return np.array(numbers, np.float32).reshape(values.shape)


def number_of(code: int, dtype: str) -> float:
    if dtype == "float4_e2m1":
        sign, exponent, fraction = (-1) ** (code >> 3), code >> 1 & 3, code & 1
        return sign * (fraction / 2 if not exponent else 2.0 ** (exponent - 1) * (1 + fraction / 2))
    if dtype == "float4_e1m2":
        return (-1.0) ** (code >> 3) * (code & 7) / 4
    return hifloat8(f"{code:08b}")


def hifloat8(bits: str) -> float:
    """The table of the specification: how many bits the exponent has is told by those before it."""
    sign, rest = (-1.0 if bits[0] == "1" else 1.0), bits[1:]
    if bits == "00000000":
        return 0.0
    if bits == "10000000":
        return math.nan
    if rest == "1101111":
        return sign * math.inf
    for start, count in (("11", 4), ("10", 3), ("01", 2), ("001", 1), ("0001", 0)):
        if rest.startswith(start):
            exponent, fraction = rest[len(start) : len(start) + count], rest[len(start) + count :]
            power = int("1" + exponent[1:], 2) * (-1 if exponent[0] == "1" else 1) if count else 0
            return sign * 2.0**power * (1 + int(fraction, 2) / 2 ** len(fraction))
    return sign * 2.0 ** (int(rest[4:], 2) - 23)


class TestTypes:
    def test_all_codes_of_hifloat8(self, tmp_path: Path) -> None:
        codes = np.arange(256, dtype=np.uint8)
        found = open_array(spec_of(saved(tmp_path, Written(codes, "hifloat8"))))
        expected = np.array([hifloat8(f"{code:08b}") for code in range(256)], np.float32)
        assert np.array_equal(found, expected, equal_nan=True)
        by_code = {0x08: 1.0, 0x10: 2.0, 0x18: 0.5, 0x6E: 32768.0, 0x01: 2.0**-22, 0x6F: np.inf, 0xEF: -np.inf}
        assert {code: float(found[code]) for code in by_code} == by_code
        assert np.flatnonzero(np.isnan(found)).tolist() == [0x80]

    def test_hifloat8_and_float4_are_what_the_vendor_s_types_say(self, tmp_path: Path) -> None:
        types = pytest.importorskip("en_dtypes", reason="the vendor's element types: pip install -e '.[ascend-tests]'")
        for dtype, count in (("hifloat8", 256), ("float4_e2m1", 16), ("float4_e1m2", 16)):
            codes = np.arange(count, dtype=np.uint8)
            found = open_array(spec_of(saved(tmp_path, Written(codes, dtype))))
            expected = codes.view(getattr(types, dtype)).astype(np.float32)
            assert np.array_equal(found, expected, equal_nan=True)
            assert np.signbit(found).tolist() == np.signbit(expected).tolist()

    @pytest.mark.parametrize(("dtype", "code"), [("hifloat8", 0x80), ("hifloat8", 0xEF), ("complex32", 0x7C000000)])
    @pytest.mark.parametrize("long", [False, True])
    def test_what_is_not_finite_is_found(
        self, tmp_path: Path, dtype: str, code: int, long: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        values = random_values(np.random.default_rng(1), (2, 17, 3, 2), dtype)
        values.reshape(-1)[101] = code
        path = saved(tmp_path, Written(values, dtype, "NC1HWC0"))
        if long:
            monkeypatch.setattr(ascend_file, "WHOLE_FILE", 0)
        found = open_lazily(spec_of(path))
        assert np.flatnonzero(~np.isfinite(np.asarray(found).reshape(-1))).tolist() == [101]
        assert np.isfinite(np.asarray(found[1, 16, 2])).all()
        assert read_meta(spec_of(path)).dtype == dtype
        with TensorFile(spec_of(path)) as file:
            assert np.isfinite(file.read(100, 3)).tolist() == [True, False, True]

    @pytest.mark.parametrize("dtype", UNREADABLE)
    def test_types_whose_layout_is_not_published_are_refused_and_the_other_tensors_are_read(
        self, tmp_path: Path, dtype: str
    ) -> None:
        good = np.arange(3, dtype=np.float32)
        odd = Written(np.zeros(16, np.uint8), header={"data_type": TYPES[dtype]})
        path = saved(tmp_path, odd, Written(good))
        with pytest.raises(UnreadableTensorError, match=f"elements of type {dtype}"):
            open_array(spec_of(path))
        assert open_array(spec_of(path, "output.1")).tolist() == good.tolist()

    @pytest.mark.parametrize("code", [13, 14, 15, 24, 25, 26])
    def test_what_is_no_number_is_no_doubt(self, tmp_path: Path, code: int) -> None:
        text = Written(np.frombuffer(b"text\0and more", np.uint8), header={"data_type": code, "shape": (2,)})
        path = saved(tmp_path, text)
        assert (look(spec_of(path)).stats, look(spec_of(path)).error) == (None, "")
        assert open_array(spec_of(path)).tobytes() == b"text\0and more"


AXES = {"NHWC": "NHWC", "HWCN": "HWCN", "CHWN": "CHWN", "NDHWC": "NDHWC", "DHWCN": "DHWCN", "DHWNC": "DHWNC"}


class TestOrders:
    @pytest.mark.parametrize("fmt", AXES)
    def test_axes_are_put_in_the_order_of_the_program(self, tmp_path: Path, fmt: str) -> None:
        named = "NCHW" if len(fmt) == 4 else "NCDHW"
        shape = (2, 3, 4, 5, 6)[: len(named)]
        values = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
        device = values.transpose([named.index(axis) for axis in fmt])
        path = saved(tmp_path, Written(values, format=fmt, device=device))
        found = open_array(spec_of(path))
        assert (found.shape, found.tolist()) == (values.shape, values.tolist())
        assert is_converted(read_header(path).tensors[0])

    @pytest.mark.parametrize("fmt", AXES)
    def test_a_program_that_has_the_same_axes_keeps_them(self, tmp_path: Path, fmt: str) -> None:
        values = np.arange(2 ** len(fmt), dtype=np.float32).reshape((2,) * len(fmt))
        path = saved(tmp_path, Written(values, format=fmt))
        assert open_array(spec_of(path)).tolist() == values.tolist()
        assert is_converted(read_header(path).tensors[0])

    @pytest.mark.parametrize("fmt", ["NC1HWC0", "FRACTAL_Z", "NDC1HWC0", "FRACTAL_Z_3D"])
    @pytest.mark.parametrize("host", [(), (19,), (5, 7), (19, 3), (3, 19, 2), (2, 3, 4, 5)])
    def test_a_program_of_fewer_dimensions_has_none_for_n(self, tmp_path: Path, fmt: str, host: Shape) -> None:
        rank = 4 if fmt in ("NC1HWC0", "FRACTAL_Z") else 5
        shape = host if len(host) == rank else (1, *host, *(1,) * (rank - 1 - len(host)))
        self.is_read(tmp_path, fmt, host, shape)

    @pytest.mark.parametrize(
        ("fmt", "shape", "host"),
        [
            *((fmt, (18, 40, 1, 1), (18, 40)) for fmt in ("NC1HWC0", "FRACTAL_Z")),
            *((fmt, (3, 40, 1, 2), (3, 40, 2)) for fmt in ("NC1HWC0", "FRACTAL_Z")),
            *((fmt, (18, 1, 3, 2), (18, 3, 2)) for fmt in ("NC1HWC0", "FRACTAL_Z")),
            *((fmt, (18, 40, 1, 1, 1), (18, 40)) for fmt in ("NDC1HWC0", "FRACTAL_Z_3D")),
            *((fmt, (3, 40, 2, 5, 1), (3, 40, 2, 5)) for fmt in ("NDC1HWC0", "FRACTAL_Z_3D")),
            ("NC1HWC0", (7, 1, 1, 1), (7,)),
            ("NC1HWC0", (1, 1, 5, 7), (5, 7)),
            ("NDC1HWC0", (3, 40, 1, 1, 2), (3, 40, 2)),
        ],
    )
    def test_or_those_axes_that_make_the_device_s_shape(
        self, tmp_path: Path, fmt: str, shape: Shape, host: Shape
    ) -> None:
        self.is_read(tmp_path, fmt, host, shape)

    @staticmethod
    def is_read(tmp_path: Path, fmt: str, host: Shape, shape: Shape) -> None:
        values = np.arange(math.prod(host), dtype=np.float32).reshape(host)
        path = saved(tmp_path, Written(values, "", fmt, device=dirty(values.reshape(shape), fmt, 16, "float32")))
        found = open_array(spec_of(path))
        assert (found.shape, found.tolist()) == (host, values.tolist())
        assert is_converted(read_header(path).tensors[0])

    @pytest.mark.parametrize("fmt", ["NC1HWC0", "FRACTAL_Z"])
    @pytest.mark.parametrize("program", ["NHWC", "HWCN"])
    def test_a_program_whose_channels_stand_elsewhere(self, tmp_path: Path, fmt: str, program: str) -> None:
        values = np.arange(2 * 19 * 3 * 5, dtype=np.float32).reshape(2, 19, 3, 5)
        device = dirty(values, fmt, 16, "float32")
        host = np.ascontiguousarray(values.transpose(["NCHW".index(axis) for axis in program]))
        path = saved(tmp_path, Written(host, "", fmt, device=device))
        found = open_array(spec_of(path))
        assert (found.shape, found.tolist()) == (host.shape, host.tolist())

    @pytest.mark.parametrize(
        ("fmt", "host"), [("ND", (6, 4)), ("NCHW", (4, 6)), ("NC1HWC0", (16, 12)), ("RESERVED", (3, 8))]
    )
    def test_elements_are_never_poured_into_a_shape_because_the_counts_agree(
        self, tmp_path: Path, fmt: str, host: Shape
    ) -> None:
        device = np.arange(24 * 8, dtype=np.float32).reshape(2, 3, 4, 8)
        values = np.zeros((*host, 8) if fmt != "NC1HWC0" else host, np.float32)
        path = saved(tmp_path, Written(values, "", fmt, device=device))
        assert open_array(spec_of(path)).tolist() == device.tolist()
        assert not is_converted(read_header(path).tensors[0]), "it is said"

    @pytest.mark.parametrize("fmt", ["FRACTAL_ZN_LSTM", "FRACTAL_ZN_RNN", "ND_RNN_BIAS"])
    def test_formats_without_a_rule_keep_the_device_s_shape(self, tmp_path: Path, fmt: str) -> None:
        device = np.arange(512, dtype=np.float32).reshape(2, 1, 16, 16)
        path = saved(tmp_path, Written(np.zeros((3, 5), np.float32), "", fmt, device=device))
        assert open_array(spec_of(path)).tolist() == device.tolist()
        assert not is_converted(read_header(path).tensors[0])

    @pytest.mark.parametrize("code", [41, 46, 49, 77, 255])
    def test_unknown_formats_with_equal_shapes_are_no_failure(self, tmp_path: Path, code: int) -> None:
        values = np.arange(6, dtype=np.float32).reshape(2, 3)
        path = saved(tmp_path, Written(values, header={"format": code}))
        assert open_array(spec_of(path)).tolist() == values.tolist()
        assert is_converted(read_header(path).tensors[0])

    def test_a_format_that_names_the_length_of_its_blocks(self, tmp_path: Path) -> None:
        values = np.arange(20 * 19, dtype=np.float32).reshape(20, 19)
        for c0, fits in ((8, True), (16, False)):
            device = to_device(values, "FRACTAL_NZ", c0)
            tensor = Written(values, "", "FRACTAL_NZ", device=device, header={"format": FORMATS["FRACTAL_NZ_C0_8"]})
            found = open_array(spec_of(saved(tmp_path, tensor)))
            assert found.shape == (values.shape if fits else device.shape)


class TestMessages:
    def test_working_memory_attributes_and_unknown_fields_are_no_failure(self, tmp_path: Path) -> None:
        values = np.arange(5, dtype=np.float32)
        unknown = b"\xa0\x06\x01" + b"\xaa\x06\x02ab" + b"\xb1\x06" + b"\0" * 8 + b"\xbd\x06" + b"\0" * 4
        path = saved(tmp_path, Written(values), buffers=[b"\xff" * 9], spaces=[b"log\0" * 9, b"x"], unknown=unknown)
        assert open_array(spec_of(path)).tolist() == values.tolist()

    def test_memory_that_is_larger_than_the_tensor(self, tmp_path: Path) -> None:
        first, second = np.arange(5, dtype=np.float32), np.arange(3, dtype=np.int64)
        path = saved(tmp_path, Written(first, padding=b"\xff" * 12), Written(second, padding=b"\xff" * 40))
        assert open_array(spec_of(path)).tolist() == first.tolist()
        assert open_array(spec_of(path, "output.1")).tolist() == second.tolist()

    def test_an_input_that_was_not_given_is_no_tensor(self, tmp_path: Path) -> None:
        none = Written(np.zeros((), np.uint8), header={"data_type": 0, "format": 40, "shape": (), "size": 0})
        path = saved(tmp_path, Written(np.ones(2, np.float32)), replace_bytes(none))
        assert [each.absent for each in read_header(path).tensors] == [False, True]

    def test_a_list_without_a_shape(self, tmp_path: Path) -> None:
        values = np.arange(7, dtype=np.float32)
        path = saved(tmp_path, Written(values, header={"shape": (), "original_shape": None}))
        assert open_array(spec_of(path)).tolist() == values.tolist()

    def test_a_type_that_the_device_did_not_know_is_never_clean(self, tmp_path: Path) -> None:
        path = saved(tmp_path, Written(np.full(4, np.nan, np.float32), header={"data_type": 0}))
        with pytest.raises(UnreadableTensorError, match="whose type the device did not know"):
            open_array(spec_of(path))

    def test_zeros_behind_the_tensors_are_no_data_and_other_bytes_are(self, tmp_path: Path) -> None:
        data = file_bytes(outputs=[Written(np.ones(2, np.float32))])
        assert open_array(spec_of(write(tmp_path / "x", data + bytes(100)))).tolist() == [1, 1]
        with pytest.raises(UnreadableTensorError, match="than its header tells of"):
            open_array(spec_of(write(tmp_path / "y", data + bytes(100) + b"\1")))


def replace_bytes(tensor: Written) -> Written:
    """The tensor without any byte."""
    return Written(np.zeros(0, np.uint8), header=tensor.header)


class TestSmallDevices:
    def test_both_sides(self, tmp_path: Path) -> None:
        inputs = [(np.arange(6, dtype=np.float32).reshape(2, 3), 0), (np.ones(3, np.float16), 1)]
        outputs = [(np.arange(4, dtype=np.int64), 9)]
        path = write(tmp_path / "Add.x.1.2.1700000000000000", nano_bytes(inputs, outputs))
        for member, (values, _) in zip(("input.0", "input.1", "output.0"), (*inputs, *outputs), strict=True):
            assert open_array(spec_of(path, member)).tolist() == values.tolist()

    def test_a_header_cut_anywhere_is_refused(self, tmp_path: Path) -> None:
        whole = nano_bytes([(np.ones(2, np.float32), 0)], [])
        length = int.from_bytes(whole[:8], "little")
        for cut in range(4, length):
            content = cut.to_bytes(8, "little") + whole[8 : 8 + cut] + whole[8 + length :]
            try:
                found = open_array(spec_of(write(tmp_path / "x", content), "input.0"))
            except UnreadableTensorError:
                continue
            assert found.tolist() == [1, 1]


def test_every_choice_of_axes_is_one_of_the_formats() -> None:
    assert set(AXES) <= {"".join(each) for each in (*permutations("NCHW"), *permutations("NCDHW"))}


def test_packed_bytes_of_a_row_of_blocks_end_at_a_byte() -> None:
    assert len(packed_bytes(np.zeros(64, np.uint8), "float4_e2m1")) == 32
