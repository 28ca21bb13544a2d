"""Files as Ascend devices dump them: what they hold is what the program knew, whatever the device made of it."""

from __future__ import annotations

import math
import mmap
import os
import struct
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices

from tests.ascend_files import (
    BITS,
    CODES,
    CONVERTED,
    MISSING,
    TYPES,
    UNREADABLE,
    Converted,
    Overflow,
    Written,
    block_of,
    damaged,
    device_index,
    file_bytes,
    from_device,
    numpy_type,
    overflow_bytes,
    packed_bytes,
    random_values,
    to_device,
    with_header,
    write,
)
from tests.stats.requests import look
from tests.stats.windows import whole
from tests.thorough import examples, few
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec, Side, TensorMeta, TensorStats
from tui_debugger.stats import ascend_file, npy
from tui_debugger.stats.archive import FileBytes
from tui_debugger.stats.ascend_file import is_converted, read_header
from tui_debugger.stats.ascend_nano import BadHeaderError
from tui_debugger.stats.blocks import measure_stats
from tui_debugger.stats.compare import compare as compare_tensors
from tui_debugger.stats.compare_pairs import Pairs
from tui_debugger.stats.device_order import device_order
from tui_debugger.stats.distribution import count_classes, histogram
from tui_debugger.stats.heat import shrink
from tui_debugger.stats.npy import TensorFile, open_array, open_lazily, open_window, read_meta
from tui_debugger.stats.quantiles import quantiles
from tui_debugger.stats.spans import SharedArrays
from tui_debugger.text.heat_map import heat_table_of
from tui_debugger.text.values import ValueTable, parse_slice

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
NUMBERS = sorted(set(TYPES) - {"resource", "string", *MISSING, *CODES, *UNREADABLE})
ANY_FOLDER = [HealthCheck.function_scoped_fixture]
FIVE = ("NDC1HWC0", "FRACTAL_Z_3D")


def spec_of(path: Path, member: str = "output.0") -> ReadSpec:
    return ReadSpec(str(path), "ascend", member=member)


def saved(tmp_path: Path, *outputs: Written, **others: Any) -> Path:
    return write(tmp_path / "Conv2D.Default_conv1.2.7.1600", file_bytes(outputs=outputs, **others))


def refused(path: Path, words: str, member: str = "output.0") -> None:
    with pytest.raises(UnreadableTensorError, match=words):
        open_array(spec_of(path, member))


def same(found: Array, values: Array) -> bool:
    """Shape, type and bits."""
    return found.shape == values.shape and found.dtype == values.dtype and found.tobytes() == values.tobytes()


# -- the two implementations of the tests agree --------------------------------------------------------------------


@st.composite
def tensors(draw: st.DrawFn, formats: tuple[str, ...] = CONVERTED) -> Written:
    """A tensor of any format and type: odd channels, groups, several batches."""
    fmt = draw(st.sampled_from(formats))
    dtype = draw(st.sampled_from([name for name in NUMBERS if fmt != "NC1HWC0_C04" or name not in BITS]))
    groups = draw(st.integers(1, 20)) if fmt == "FRACTAL_Z" and draw(st.booleans()) else 1
    small, channels = st.integers(1, 4), st.integers(1, 40)
    if fmt == "FRACTAL_NZ":
        shape = (*draw(st.lists(st.integers(1, 3), max_size=2)), draw(st.integers(1, 40)), draw(st.integers(1, 40)))
    else:
        rows = groups * draw(st.integers(1, 5)) if groups > 1 else draw(st.integers(1, 20))
        inner = [draw(small) for _ in range(3 if fmt in FIVE else 2)]
        shape = (rows, draw(channels if groups == 1 else st.integers(1, 20)), *inner)
    values = random_values(np.random.default_rng(draw(st.integers(0, 9))), shape, dtype)
    return Written(values, dtype, fmt, groups)


def on_host(tensor: Written) -> list[Any]:
    """The host's elements, found one by one in the device's buffer."""
    block = block_of(tensor.type_name, tensor.format)
    buffer = tensor.on_device().reshape(-1).tolist()
    return from_device(buffer, tensor.values.shape, tensor.format, block, tensor.groups)


@examples(150)
@given(tensors())
def test_transposing_arrays_and_indexing_elements_agree(tensor: Written) -> None:
    assert on_host(tensor) == tensor.values.reshape(-1).tolist()


# -- values --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("measured_by")
@examples(400, suppress_health_check=ANY_FOLDER)
@given(tensor=tensors(), packed=st.booleans(), data=st.data())
def test_every_element_is_where_the_formulas_say(
    tmp_path: Path, tensor: Written, packed: bool, data: st.DataObject
) -> None:
    path = saved(tmp_path, tensor, packed=packed)
    found = open_array(spec_of(path))
    assert same(found, tensor.values)
    assert found.reshape(-1).tolist() == on_host(tensor)
    with TensorFile(spec_of(path)) as file:
        start = data.draw(st.integers(0, found.size - 1))
        count = data.draw(st.integers(1, found.size - start))
        assert file.read(start, count).tobytes() == tensor.values.reshape(-1)[start : start + count].tobytes()


@pytest.mark.usefixtures("measured_by")
@examples(80, suppress_health_check=ANY_FOLDER)
@given(tensor=tensors(), step=st.integers(1, 50), ahead=st.integers(1, 300))
def test_windows_of_any_size_make_up_the_whole(tmp_path: Path, tensor: Written, step: int, ahead: int) -> None:
    path = saved(tmp_path, tensor)
    flat = tensor.values.reshape(-1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ascend_file, "_AHEAD", ahead * flat.itemsize)
        with TensorFile(spec_of(path)) as file:
            parts = [file.read(at, min(step, flat.size - at)) for at in range(0, flat.size, step)]
    assert np.concatenate(parts).tobytes() == flat.tobytes()


@pytest.mark.parametrize("dtype", few(NUMBERS, 30))
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 3, 4, 5), (0, 3)])
def test_what_the_device_holds_as_the_program_does(tmp_path: Path, dtype: str, shape: Shape) -> None:
    values = random_values(np.random.default_rng(3), shape, dtype)
    path = saved(tmp_path, Written(values, dtype))
    assert same(open_array(spec_of(path)), values)
    size = numpy_type(dtype).itemsize
    assert read_meta(spec_of(path)) == TensorMeta(dtype.removeprefix("q"), shape, values.size * size)
    with TensorFile(spec_of(path)) as file:
        for start in range(values.size):
            assert file.read(start, values.size - start).tobytes() == values.reshape(-1)[start:].tobytes()


@pytest.mark.parametrize("shape", [(), (5,), (3, 20), (2, 3, 4)])
def test_fewer_than_four_dimensions_are_padded_with_ones(tmp_path: Path, shape: Shape) -> None:
    values = random_values(np.random.default_rng(4), shape, "float16")
    four = {0: (1, 1, 1, 1), 1: (1, *shape, 1, 1), 2: (1, *shape, 1), 3: (1, *shape)}[len(shape)]
    for fmt in ("NC1HWC0", "FRACTAL_Z"):
        device = to_device(values.reshape(four), fmt, 16)
        path = saved(tmp_path, Written(values, "float16", fmt, device=device))
        assert same(open_array(spec_of(path)), values)


def test_a_vector_of_the_matrix_unit(tmp_path: Path) -> None:
    values = random_values(np.random.default_rng(5), (37,), "float32")
    path = saved(tmp_path, Written(values, "", "FRACTAL_NZ", device=to_device(values[None], "FRACTAL_NZ", 16)))
    assert same(open_array(spec_of(path)), values)


def test_the_device_says_how_long_its_blocks_are(tmp_path: Path) -> None:
    """Newer devices hold 8 channels of float32 side by side."""
    values = random_values(np.random.default_rng(6), (2, 20, 3, 3), "float32")
    path = saved(tmp_path, Written(values, "", "NC1HWC0", device=to_device(values, "NC1HWC0", 8)))
    assert same(open_array(spec_of(path)), values)


def test_inputs_come_before_outputs_and_buffers_last(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    inputs = [random_values(rng, (2, 3), "float32"), random_values(rng, (), "int64")]
    outputs = [random_values(rng, (1, 17, 2, 2), "bfloat16"), random_values(rng, (5,), "bool")]
    data = file_bytes(
        [Written(each) for each in inputs],
        [Written(outputs[0], format="NC1HWC0"), Written(outputs[1])],
        op_name="Default/net/Conv2D-op3",
        buffers=[b"123456789"],
    )
    path = write(tmp_path / "x", data)
    header = read_header(path)
    assert [each.member for each in header.tensors] == ["input.0", "input.1", "output.0", "output.1"]
    assert (header.op_name, header.size) == ("Default/net/Conv2D-op3", len(data))
    assert header.tensors[2].format == "NC1HWC0"
    assert header.tensors[2].side is Side.OUTPUT
    for member, values in zip(header.by_member, (*inputs, *outputs), strict=True):
        assert same(open_array(spec_of(path, member)), values)
    refused(path, "is not in the file", "output.2")


class TestStatistics:
    def test_padding_counts_for_nothing(self, tmp_path: Path) -> None:
        values = np.full((3, 17, 5, 5), 2, np.float32)
        stats = look(spec_of(saved(tmp_path, Written(values, format="NC1HWC0")))).stats
        assert stats is not None
        assert (stats.count, stats.zero, stats.minimum, stats.mean) == (values.size, 0, 2, 2)

    @pytest.mark.parametrize("fmt", CONVERTED)
    def test_are_those_of_the_values(self, tmp_path: Path, fmt: str) -> None:
        shape = (300, 700) if fmt == "FRACTAL_NZ" else (9, 30, 20, 30) + (() if fmt not in FIVE else (2,))
        values = random_values(np.random.default_rng(8), shape, "float16")
        values.reshape(-1)[[3, 77, -1]] = np.nan, np.inf, -np.inf
        np.save(tmp_path / "same.npy", values)
        path = saved(tmp_path, Written(values, format=fmt))
        assert look(spec_of(path)).stats == look(tmp_path / "same.npy").stats

    def test_a_long_tensor_is_never_converted_as_a_whole(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        values = np.arange(64 * 40 * 32 * 32, dtype=np.float32).reshape(64, 40, 32, 32)
        path = saved(tmp_path, Written(values, format="NC1HWC0"))
        converted = Converted(monkeypatch)
        monkeypatch.setattr(ascend_file, "_AHEAD", 1 << 20)
        stats = look(spec_of(path)).stats
        assert stats is not None
        assert (stats.minimum, stats.maximum) == (0, values.size - 1)
        assert converted.most <= 1 << 18
        assert converted.total == values.size
        converted.pieces.clear()
        with TensorFile(spec_of(path)) as file:
            assert file.read(1_000_000, 10).tolist() == list(range(1_000_000, 1_000_010))
        assert converted.pieces == [10]


# -- what is not converted -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", ["C1HWNC0", "FRACTAL_ZZ", "FRACTAL_ZN_LSTM"])
def test_formats_that_are_not_converted_keep_the_shape_of_the_device(tmp_path: Path, fmt: str) -> None:
    device = random_values(np.random.default_rng(9), (2, 3, 16, 16), "float16")
    path = saved(tmp_path, Written(np.zeros((30, 40), np.float16), format=fmt, device=device))
    assert same(open_array(spec_of(path)), device)
    tensor = read_header(path).tensors[0]
    assert tensor.format == fmt
    assert not is_converted(tensor)


@pytest.mark.parametrize("original", [None, (30, 40, 50), (99, 99, 99, 99)])
def test_without_a_shape_that_fits_the_device_s_is_kept(tmp_path: Path, original: Shape | None) -> None:
    values = random_values(np.random.default_rng(10), (2, 5, 3, 3), "float32")
    tensor = with_header(Written(values, format="NC1HWC0"), original_shape=original)
    path = saved(tmp_path, tensor)
    assert same(open_array(spec_of(path)), np.ascontiguousarray(tensor.on_device()))
    assert not is_converted(read_header(path).tensors[0])


# -- .npy that the recorder left unconverted -----------------------------------------------------------------------


def unconverted(tmp_path: Path, device: Array, shape: Shape, fmt: str, **others: str) -> ReadSpec:
    path = tmp_path / f"MatMul.MatMul-op1.0.0.1.output.0.{fmt}.npy"
    np.save(path, device.reshape(shape))
    return ReadSpec(str(path), "ascend", member=fmt, **others)


def _entries(data: st.DataObject, shape: Shape) -> tuple[int | range, ...]:
    """Any index or range, forwards and backwards, for each dimension."""
    found: list[int | range] = []
    for length in shape:
        first = data.draw(st.integers(0, length - 1))
        ranges = [range(first, length), range(first, -1, -1), range(0, length, 2), range(first, first)]
        found.append(data.draw(st.sampled_from([first, *ranges])))
    return tuple(found)


class TestWindows:
    @examples(150, suppress_health_check=ANY_FOLDER)
    @given(tensor=tensors(), data=st.data())
    def test_a_part_is_the_same_part_of_the_whole(self, tmp_path: Path, tensor: Written, data: st.DataObject) -> None:
        """With every file taken for a long one."""
        path = saved(tmp_path, tensor)
        wanted = tensor.values
        entries = _entries(data, wanted.shape)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ascend_file, "WHOLE_FILE", 0)
            part = open_window(spec_of(path), entries)
        for axis, each in reversed(list(enumerate(entries))):
            wanted = wanted.take(list(each) if isinstance(each, range) else each, axis)
        assert same(part, np.asarray(wanted))

    def test_of_a_gigabyte_only_what_is_asked_for_is_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The file is one hole but for its header; how much of its map was touched the kernel tells."""
        host, device = (256, 250, 64, 64), (256, 16, 64, 64, 16)
        facts = {"shape": device, "original_shape": host, "size": 4 * math.prod(device)}
        empty = Written(np.zeros(1, np.float32), format="NC1HWC0", device=np.zeros(0, np.float32))
        path = saved(tmp_path, with_header(empty, **facts))
        os.truncate(path, path.stat().st_size + facts["size"])
        assert path.stat().st_size > 1 << 30
        maps, mapped = [], FileBytes.mapped

        def kept(content: FileBytes) -> tuple[mmap.mmap, int]:
            maps.append(mapped(content))
            return maps[-1]

        monkeypatch.setattr(FileBytes, "mapped", kept)
        tracemalloc.start()
        part = open_window(spec_of(path), (200, range(30), 31, range(64)))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        lines = Path("/proc/self/smaps").read_text().splitlines()
        at = next(number for number, line in enumerate(lines) if line.endswith(str(path)))
        resident = next(int(line.split()[1]) for line in lines[at:] if line.startswith("Rss:"))
        assert (part.shape, len(maps)) == ((30, 64), 1)
        assert resident < 1024, "kilobytes of the file"
        assert peak < 1 << 20, "bytes of memory"

    def test_a_shape_that_changed_is_said(self, tmp_path: Path) -> None:
        path = saved(tmp_path, Written(np.zeros((2, 3), np.float32)))
        with pytest.raises(UnreadableTensorError, match="another shape than before"):
            open_window(spec_of(path), (0, range(4)))


class TestLongTensors:
    """Every file taken for a long one."""

    @pytest.fixture(autouse=True)
    def every_file_is_long(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ascend_file, "WHOLE_FILE", 0)

    @examples(150, suppress_health_check=ANY_FOLDER)
    @given(tensor=tensors(), data=st.data())
    def test_are_indexed_as_numpy_s_are(self, tmp_path: Path, tensor: Written, data: st.DataObject) -> None:
        found, values = open_lazily(spec_of(saved(tmp_path, tensor))), tensor.values
        facts = ("shape", "dtype", "size", "nbytes", "ndim", "itemsize", "strides")
        assert [getattr(found, name) for name in facts] == [getattr(values, name) for name in facts]
        assert len(found) == len(values)
        index = data.draw(basic_indices(values.shape, allow_ellipsis=True))
        if not isinstance(found, np.ndarray):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(npy, "_GATHERED", data.draw(st.integers(1, 300)))
                patch.setattr(npy, "_LEAST_RUN", data.draw(st.integers(1, 40)))
                assert same(np.asarray(found[index]), np.asarray(values[index]))
        start, stop = sorted(data.draw(st.tuples(*[st.integers(0, values.size)] * 2)))
        assert same(np.asarray(found.reshape(-1)[start:stop]), values.reshape(-1)[start:stop])
        assert same(np.asarray(found.flat[start:stop]), values.reshape(-1)[start:stop])
        places = tuple(
            np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=3, max_size=3))) for n in values.shape
        )
        assert same(found[places], values[places])
        assert same(np.asarray(found), values)
        assert same(found.transpose(), values.transpose()), "whatever an array can do"

    def test_a_mask_and_other_indices_convert_all(self, tmp_path: Path) -> None:
        values = np.arange(60, dtype=np.float32).reshape(3, 20)
        found = open_lazily(spec_of(saved(tmp_path, Written(values, format="FRACTAL_NZ"))))
        assert (found[values > 50] == values[values > 50]).all()
        assert (found[[0, 2]] == values[[0, 2]]).all()
        with pytest.raises(IndexError, match="out of bounds"):
            found[3]
        with pytest.raises(IndexError, match="too many"):
            found[0, 0, 0]

    def test_stay_when_the_file_is_closed_and_may_be_read_by_several_threads(self, tmp_path: Path) -> None:
        values = np.arange(64 * 96, dtype=np.float32).reshape(64, 96)
        found = open_lazily(spec_of(saved(tmp_path, Written(values, format="FRACTAL_NZ"))))

        line, expected = found.reshape(-1), values.reshape(-1)

        def read(first: int) -> bool:
            return all((line[at : at + 7] == expected[at : at + 7]).all() for at in range(first, 6000, 7))

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(read, range(8)))

    @pytest.mark.parametrize("dtype", ["float32", "int4", "bfloat16"])
    def test_what_goes_through_them_converts_pieces(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
    ) -> None:
        """Comparisons, distributions, histograms, heat maps: never more than some hundred thousand at once."""
        values = random_values(np.random.default_rng(15), (40, 40, 32, 32), dtype)
        spec = spec_of(saved(tmp_path, Written(values, dtype, format="NC1HWC0")))
        converted = Converted(monkeypatch)
        monkeypatch.setattr(ascend_file, "_AHEAD", 1 << 18)
        found = open_lazily(spec)
        assert not converted.pieces, "nothing yet"
        by_pieces, at_once = measure_stats(found)[0], measure_stats(values)[0]
        for name in TensorStats.__slots__:  # sums but for the order of additions
            one, other = getattr(by_pieces, name), getattr(at_once, name)
            assert one == other or one == pytest.approx(other, rel=1e-12), name
        assert histogram(found, -1, 1) == histogram(values, -1, 1)
        here, plain = SharedArrays((found,), found.size), SharedArrays((values,), values.size)
        classes = count_classes(here)
        assert (classes.counts == count_classes(plain).counts).all()
        assert quantiles(here, classes) == quantiles(plain, count_classes(plain))
        both = Pairs(found, open_lazily(spec))
        assert not compare_tensors(both).different
        assert not compare_tensors(Pairs(values, found)).different
        assert not compare_tensors(Pairs(np.asfortranarray(values), found)).different
        table = heat_table_of(ValueTable(found, parse_slice("[3, :, :, 2]", values.shape)))
        picture = shrink(table.read, whole(table.shape, (10, 10)))
        expected = np.abs(values[3, :, :, 2].astype(np.float64))
        assert np.nanmax(np.abs(picture.values)) == np.max(expected[np.isfinite(expected)])
        assert converted.most <= 1 << 18
        converted.pieces.clear()
        assert same(found[3, 5, :2], values[3, 5, :2])
        assert 0 < converted.total <= 64


class TestUnconvertedNumpyFiles:
    def test_device_bytes_under_the_programs_shape_are_put_in_order(self, tmp_path: Path) -> None:
        values = random_values(np.random.default_rng(11), (32, 48), "float16")
        spec = unconverted(tmp_path, to_device(values, "FRACTAL_NZ", 16), values.shape, "FRACTAL_NZ")
        assert same(open_array(spec), values)

    def test_an_element_type_that_only_the_name_declares(self, tmp_path: Path) -> None:
        values = random_values(np.random.default_rng(11), (32, 48), "bfloat16")
        device = to_device(values, "FRACTAL_NZ", 16).view(np.uint16)
        spec = unconverted(tmp_path, device, values.shape, "FRACTAL_NZ", dtype="bfloat16")
        assert same(open_array(spec), values)

    def test_where_sizes_do_not_agree_the_file_is_read_as_it_is(self, tmp_path: Path) -> None:
        device = random_values(np.random.default_rng(12), (3, 2, 16, 16), "float16")
        assert same(open_array(unconverted(tmp_path, device, device.shape, "FRACTAL_NZ")), device)
        odd = random_values(np.random.default_rng(12), (30, 7), "float16")
        assert same(open_array(unconverted(tmp_path, odd, odd.shape, "FRACTAL_NZ")), odd)
        assert same(open_array(unconverted(tmp_path, odd, odd.shape, "FRACTAL_ZZ")), odd)

    def test_what_no_device_writes_is_read_as_numpy_wrote_it(self, tmp_path: Path) -> None:
        values = np.asfortranarray(random_values(np.random.default_rng(12), (32, 48), "float32"))
        path = tmp_path / "MatMul.x.0.0.1.output.0.FRACTAL_NZ.npy"
        np.save(path, values)  # in Fortran's order
        assert (open_array(ReadSpec(str(path), "ascend", member="FRACTAL_NZ")) == values).all()

    def test_a_cut_file(self, tmp_path: Path) -> None:
        spec = unconverted(tmp_path, np.zeros((32, 48), np.float16), (32, 48), "FRACTAL_NZ")
        whole = Path(spec.path).read_bytes()
        for length in (0, 5, 50, len(whole) - 1):
            Path(spec.path).write_bytes(whole[:length])
            with pytest.raises(UnreadableTensorError):
                open_array(spec)


# -- files with something wrong ------------------------------------------------------------------------------------


class TestRefused:
    @pytest.fixture
    def good(self) -> bytes:
        rng = np.random.default_rng(13)
        return file_bytes(
            [Written(random_values(rng, (4, 5), "float32"))],
            [Written(random_values(rng, (2, 17, 3, 3), "float16"), format="NC1HWC0")],
        )

    def test_a_file_cut_anywhere(self, tmp_path: Path, good: bytes) -> None:
        begin = read_header(write(tmp_path / "x", good)).tensors[1].start
        for length in range(len(good)):
            path = write(tmp_path / "x", good[:length])
            refused(path, "is truncated|ends inside its header|is empty")
            if length >= begin:
                open_array(spec_of(path, "input.0"))

    def test_what_the_whole_header_tells_of_must_be_there_and_no_more(self, tmp_path: Path, good: bytes) -> None:
        refused(write(tmp_path / "x", good + b"\0\1"), "has 2 bytes more than its header tells of")

    @pytest.mark.parametrize(
        ("facts", "words"),
        [
            ({"size": 95}, "has 95 bytes of values, where its shape takes 96"),
            ({"size": 1 << 63}, "impossible size"),
            ({"shape": (4, 1 << 61)}, "impossible shape"),
            ({"shape": (1,) * 33}, "more than 32 dimensions"),
            ({"data_type": 0}, "elements of type undefined"),
            ({"data_type": 37}, "elements of type float6_e3m2, and how six bits are packed is not published"),
            ({"data_type": 77}, "unknown element type number 77"),
        ],
    )
    def test_a_header_that_makes_no_sense(self, tmp_path: Path, facts: dict[str, Any], words: str) -> None:
        tensor = with_header(Written(np.zeros((4, 6), np.float32)), **facts)
        refused(saved(tmp_path, tensor), words)

    @pytest.mark.parametrize("length", [0xFFFFFFFFFFFFFFFF, 1 << 32, 1 << 20])
    def test_a_header_of_an_impossible_length(self, tmp_path: Path, length: int) -> None:
        refused(write(tmp_path / "x", struct.pack("<Q", length) + bytes(100)), "header")

    @pytest.mark.parametrize(
        "message", [b"\x08", b"\x0b\x01", b"\x1a\x7f", b"\x80" * 11, b"\x18\x01", b"\x20\x01", b"\x1a\x02\x1a\xff"]
    )
    def test_a_message_that_is_none(self, tmp_path: Path, message: bytes) -> None:
        with pytest.raises(BadHeaderError):
            read_header(write(tmp_path / "x", struct.pack("<Q", len(message)) + message))

    def test_a_small_header_makes_no_big_answer(self, tmp_path: Path) -> None:
        """A tensor of two bytes in the header each, and no values."""
        message = b"\x22\x00" * (1 << 16)
        with pytest.raises(BadHeaderError, match="more than"):
            read_header(write(tmp_path / "x", struct.pack("<Q", len(message)) + message))


def mutated(count: int) -> Iterator[bytes]:
    rng = np.random.default_rng(14)
    formats = [Written(random_values(rng, (2, 17, 3, 3), "float16"), format="NC1HWC0")]
    formats += [Written(random_values(rng, (20, 4, 2, 2), "int8"), "", "FRACTAL_Z", 4)]
    formats += [Written(random_values(rng, (3, 20, 20), "int4"), "int4", "FRACTAL_NZ")]
    formats += [Written(random_values(rng, (5,), "float32")), Written(random_values(rng, (), "complex64"))]
    files = [file_bytes([each], [other]) for each in formats for other in formats]
    files.append(overflow_bytes({"AI Core": Overflow(task=3, stream=7, status=1)}))
    for number in range(count):
        yield damaged(files[number % len(files)], rng)


def opened(path: Path, member: str) -> Array | None:
    """The values; None where the file is refused, with a reason."""
    try:
        return open_array(spec_of(path, member))
    except UnreadableTensorError as error:
        assert error.what  # noqa: PT017 - either outcome is right
        return None


@pytest.mark.parametrize("count", few([300, 10_000], 1))
def test_damaged_files_are_read_or_refused(tmp_path: Path, count: int) -> None:
    path, found = tmp_path / "x", list[bool]()
    for data in mutated(count):
        path.write_bytes(data)
        try:
            members = list(read_header(path).by_member)
        except BadHeaderError as error:
            assert str(error)  # noqa: PT017 - see above
            members = ["output.0"]
        for member in members[:40]:
            array = opened(path, member)
            assert array is None or array.nbytes <= 8 * len(data) + 8
            found.append(array is None)
    assert {True, False} == set(found)


def test_orders_stay_inside_the_buffer() -> None:
    """The last element stands inside, for every format and shape; two never stand at one place."""
    for fmt in CONVERTED:
        host = (2, 3, 5, 17) if fmt == "FRACTAL_NZ" else (3, 5, 2, 2) + (() if fmt not in FIVE else (2,))
        block = block_of("float32", fmt)
        device = to_device(np.zeros(host, np.float32), fmt, block)
        order = device_order(fmt, device.shape, host)
        assert order is not None
        buffer, found = np.arange(order.count, dtype=np.uint32), np.empty(math.prod(host), np.uint32)
        order.copy(buffer, 0, found)
        places = [device_index(at, host, fmt, block) for at in np.ndindex(*host)]
        assert found.tolist() == places
        assert len(set(places)) == len(places)


WINDOWS = ((1, 3), (2, 2), (3, 3), (1, 15), (4, 4), (1, 17), (5, 7))
"""Heights and widths: fewer neighbours than a vector holds, as many, and some more."""


@pytest.mark.usefixtures("measured_by")
@pytest.mark.parametrize("dtype", ["uint1", "int2", "int4", "int8", "bfloat16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("fmt", ["NC1HWC0", "NC1HWC0_C04", "FRACTAL_Z", "FRACTAL_Z_3D"])
def test_tensors_longer_than_a_tile_are_where_the_formulas_say(tmp_path: Path, fmt: str, dtype: str) -> None:
    if fmt == "NC1HWC0_C04" and dtype in BITS:
        return
    random = np.random.default_rng(3)
    for number, (high, wide) in enumerate(WINDOWS):
        channels = (3, 4, 2)[number % 3] if fmt == "NC1HWC0_C04" else (17, 64, 83)[number % 3]
        shape = (2, channels, *((2,) if fmt in FIVE else ()), high, wide)
        tensor = Written(random_values(random, shape, dtype), dtype, fmt)
        found = open_array(spec_of(saved(tmp_path, tensor)))
        assert same(found, tensor.values)
        assert found.reshape(-1).tolist() == on_host(tensor)


def test_small_elements_share_bytes_low_bits_first_and_single_bits_high_ones_first() -> None:
    assert packed_bytes(np.array([1, -1, 7], np.int8), "int4") == b"\xf1\x07"
    assert packed_bytes(np.array([1, 0, 1, 1], np.uint8), "uint1") == b"\xb0"
