"""Tensor files: what is read, and what is refused with a reason."""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec, TensorMeta
from tui_debugger.stats import npy
from tui_debugger.stats.npy import TensorFile, header_layout, open_array, read_meta

Array = npt.NDArray[Any]
ANY_TEMPORARY_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def saved(folder: Path, array: Array, name: str = "x.npy") -> ReadSpec:
    np.save(folder / name, array)
    return ReadSpec(str(folder / name))


def written(folder: Path, header: str | bytes, values: bytes = b"", version: int = 1) -> ReadSpec:
    text = header.encode() if isinstance(header, str) else header
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    (folder / "x.npy").write_bytes(b"\x93NUMPY" + bytes([version, 0]) + length + text + values)
    return ReadSpec(str(folder / "x.npy"))


@given(
    hnp.arrays(
        st.sampled_from(["?", "i1", "<i8", ">i4", "u2", "f2", "f4", ">f8", "c8", "c16"]),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
    ),
    st.booleans(),
)
@ANY_TEMPORARY_FOLDER
def test_what_numpy_saves_comes_back(tmp_path: Path, array: Array, fortran: bool) -> None:
    spec = saved(tmp_path, np.array(array, order="F" if fortran else "C"))
    found = open_array(spec)
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert found.tobytes() == array.tobytes()
    assert not found.flags.writeable
    assert read_meta(spec) == TensorMeta(array.dtype.name, array.shape, array.nbytes)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_header_versions(tmp_path: Path, version: int) -> None:
    spec = written(tmp_path, "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }   \n", b"\1\0\2\0", version)
    assert open_array(spec).tolist() == [1, 2]


def test_files_that_are_too_big_to_read_at_once_are_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npy, "WHOLE_FILE", 100)
    array = np.arange(200_000, dtype=np.float32).reshape(400, 500)
    found = open_array(saved(tmp_path, np.asfortranarray(array)))
    assert np.array_equal(found, array)
    assert not found.flags.writeable
    Path(tmp_path / "x.npy").unlink()
    assert found[399, 499] == array[399, 499]


def test_pieces_of_a_file_are_read_in_its_order(tmp_path: Path) -> None:
    array = np.arange(60_000, dtype=np.int64)
    buffer = np.empty(1 << 16, np.uint8)
    with TensorFile(saved(tmp_path, array)) as file:
        assert file.read(10, 5).tolist() == [10, 11, 12, 13, 14]
        assert np.array_equal(file.read(50_000, 8_000, buffer), array[50_000:58_000])


class TestDeclaredTypes:
    def test_bfloat16_stored_as_float32_keeps_its_values_and_shows_its_type(self, tmp_path: Path) -> None:
        spec = ReadSpec(saved(tmp_path, np.array([1.5], np.float32)).path, dtype="bfloat16")
        assert open_array(spec).dtype == np.float32
        assert read_meta(spec).dtype == "bfloat16"

    @pytest.mark.parametrize(
        ("descr", "declared"), [("<E2", ""), ("<E2", "BFloat16"), ("|V2", "bfloat16"), ("<V2", "BFloat16")]
    )
    def test_raw_bfloat16(self, tmp_path: Path, descr: str, declared: str) -> None:
        values = np.array([1.5, -2], ml_dtypes.bfloat16).tobytes()
        path = written(tmp_path, f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (2,), }}", values).path
        spec = ReadSpec(path, dtype=declared)
        assert open_array(spec).astype(float).tolist() == [1.5, -2]
        assert read_meta(spec) == TensorMeta("bfloat16", (2,), 4)

    @pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "bfloat16"])
    def test_what_numpy_saves_of_extension_types(self, tmp_path: Path, name: str) -> None:
        array = np.array([0.5, 2], getattr(ml_dtypes, name))
        spec = ReadSpec(saved(tmp_path, array).path, dtype=name)
        assert open_array(spec).astype(float).tolist() == [0.5, 2]
        assert read_meta(spec).dtype == name

    def test_int4_is_stored_as_int8(self, tmp_path: Path) -> None:
        spec = ReadSpec(saved(tmp_path, np.array([-8, 7], np.int8)).path, dtype="Int4")
        assert open_array(spec).tolist() == [-8, 7]
        assert read_meta(spec).dtype == "int4"

    def test_raw_elements_of_undeclared_type_are_refused(self, tmp_path: Path) -> None:
        spec = written(tmp_path, "{'descr': '|V2', 'fortran_order': False, 'shape': (1,), }", b"\0\0")
        with pytest.raises(UnreadableTensorError, match="nothing declares"):
            open_array(spec)


class TestRawFiles:
    def test_type_shape_and_offset_come_from_the_spec(self, tmp_path: Path) -> None:
        path = tmp_path / "x.bin"
        path.write_bytes(b"head" + np.arange(6, dtype=np.int16).tobytes())
        spec = ReadSpec(str(path), "raw", "int16", (2, 3), 4)
        assert open_array(spec).tolist() == [[0, 1, 2], [3, 4, 5]]
        assert read_meta(spec) == TensorMeta("int16", (2, 3), 12)

    @pytest.mark.parametrize(
        ("dtype", "shape", "part"),
        [
            ("what", (1,), "element type"),
            ("int8", None, "shape"),
            ("int8", (20,), "truncated"),
            ("int8", (-1,), "negative"),
        ],
    )
    def test_what_cannot_be_is_refused(
        self, tmp_path: Path, dtype: str, shape: tuple[int, ...] | None, part: str
    ) -> None:
        (tmp_path / "x.bin").write_bytes(b"0123456789")
        with pytest.raises(UnreadableTensorError, match=part):
            open_array(ReadSpec(str(tmp_path / "x.bin"), "raw", dtype, shape))


class TestBadFiles:
    """Every one is refused with what, where and usually a hint, never with a traceback."""

    def refused(self, spec: ReadSpec, part: str) -> None:
        for read in (open_array, read_meta):
            with pytest.raises(UnreadableTensorError, match=part) as caught:
                read(spec)
            assert caught.value.where == spec.path

    def test_missing(self, tmp_path: Path) -> None:
        self.refused(ReadSpec(str(tmp_path / "no.npy")), "no such file")

    def test_a_directory_and_a_pipe(self, tmp_path: Path) -> None:
        self.refused(ReadSpec(str(tmp_path)), "a directory")
        os.mkfifo(tmp_path / "pipe.npy")
        self.refused(ReadSpec(str(tmp_path / "pipe.npy")), "not a regular file")

    def test_a_name_that_cannot_exist(self) -> None:
        self.refused(ReadSpec("a\0b"), "null")
        self.refused(ReadSpec("/" + "x" * 300), "too long")

    def test_empty(self, tmp_path: Path) -> None:
        (tmp_path / "x.npy").touch()
        self.refused(ReadSpec(str(tmp_path / "x.npy")), "is empty")

    @pytest.mark.parametrize("length", range(1, 200, 3))
    def test_truncated_anywhere(self, tmp_path: Path, length: int) -> None:
        spec = saved(tmp_path, np.arange(20.0))
        whole = Path(spec.path).read_bytes()
        Path(spec.path).write_bytes(whole[:length])
        self.refused(spec, "ends inside|truncated|not a .npy")

    @pytest.mark.parametrize("length", [0, 7, 10, 60, 120, 127])
    def test_no_elements_are_no_excuse_for_a_cut_header(self, tmp_path: Path, length: int) -> None:
        spec = saved(tmp_path, np.zeros((0, 3), np.float32))
        whole = Path(spec.path).read_bytes()
        assert header_layout(whole, "") is not None
        Path(spec.path).write_bytes(whole[:length])
        self.refused(spec, "ends inside|is empty|not a .npy")
        assert header_layout(whole[:length], "") is None, "what takes many small files at once sees it, too"

    def test_truncated_big(self, tmp_path: Path) -> None:
        spec = saved(tmp_path, np.zeros(1_000_000, np.float32))
        os.truncate(spec.path, 3_000_000)
        self.refused(spec, "1000128 of 4000000 bytes")

    def test_shortened_while_it_is_read(self, tmp_path: Path) -> None:
        spec = saved(tmp_path, np.zeros(1_000_000, np.float32))
        with TensorFile(spec) as file:
            os.truncate(spec.path, 1000_000)
            with pytest.raises(UnreadableTensorError, match="became shorter"):
                file.read(500_000, 1000)

    def test_pickled_objects_are_never_loaded(self, tmp_path: Path) -> None:
        class Bomb:
            def __reduce__(self) -> tuple[Any, ...]:
                return (os.mkdir, (str(tmp_path / "exploded"),))

        np.save(tmp_path / "x.npy", np.array([Bomb()], object), allow_pickle=True)
        self.refused(ReadSpec(str(tmp_path / "x.npy")), "pickled")
        (tmp_path / "y.npy").write_bytes(pickle.dumps(Bomb()))
        self.refused(ReadSpec(str(tmp_path / "y.npy")), "not a .npy file")
        assert not (tmp_path / "exploded").exists()

    def test_versions_of_the_future(self, tmp_path: Path) -> None:
        self.refused(written(tmp_path, "{}", version=9), "version 9.0")

    def test_a_header_of_megabytes(self, tmp_path: Path) -> None:
        self.refused(written(tmp_path, b"(" * 10_000_000, version=2), "not plausible")

    @pytest.mark.parametrize(
        ("header", "part"),
        [
            ("", "damaged header"),
            ("{'descr': ", "damaged header"),
            ("(" * 60_000, "damaged header"),
            ("-" * 60_000 + "1", "damaged header"),
            ("__import__('os').system('true')", "damaged header"),
            (b"\xff\xfe\x00", "damaged header"),
            ("[1]", "without descr"),
            ("{'descr': '<f4', 'shape': (2,)}", "without descr"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}", "without descr"),
            ("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "damaged shape"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': [2]}", "damaged shape"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (2.0,)}", "damaged shape"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (True,)}", "damaged shape"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", "negative"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 9)}", "impossible shape"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 99999999999999999999)}", "impossible shape"),
            (f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({'1, ' * 99})}}", "impossible shape"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000,)}", "truncated"),
            ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", "structured"),
            ("{'descr': 'f4,f4', 'fortran_order': False, 'shape': (2,)}", "no tensor"),
            ("{'descr': '(2,)f4', 'fortran_order': False, 'shape': (2,)}", "no tensor"),
            ("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", "pickled"),
            ("{'descr': '|V0', 'fortran_order': False, 'shape': (2,)}", "no tensor"),
            ("{'descr': 'T', 'fortran_order': False, 'shape': (2,)}", "pickled|unknown element type"),
            ("{'descr': '\\d', 'fortran_order': False, 'shape': (2,)}", "unknown element type"),
            ("{'descr': 'rubbish', 'fortran_order': False, 'shape': (2,)}", "unknown element type"),
            ("{'descr': '<f4' * 3, 'fortran_order': False, 'shape': (2,)}", "damaged header"),
            ("{'descr': b'<f4', 'fortran_order': False, 'shape': (2,)}", "structured"),
        ],
    )
    def test_headers(self, tmp_path: Path, header: str | bytes, part: str) -> None:
        self.refused(written(tmp_path, header), part)


@given(st.binary(max_size=300), st.sampled_from([b"", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x01\x00\x40\x00{'descr': "]))
@ANY_TEMPORARY_FOLDER
def test_any_bytes_are_read_or_refused(tmp_path: Path, garbage: bytes, start: bytes) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(start + garbage)
    try:
        open_array(ReadSpec(str(path)))
    except UnreadableTensorError as error:
        assert error.where == str(path)  # noqa: PT017  # either outcome is right


@given(st.integers(0, 127), st.integers(0, 255))
@ANY_TEMPORARY_FOLDER
def test_a_flipped_byte_in_a_header_is_read_or_refused(tmp_path: Path, at: int, byte: int) -> None:
    spec = saved(tmp_path, np.arange(6.0).reshape(2, 3))
    data = bytearray(Path(spec.path).read_bytes())
    data[at] = byte
    Path(spec.path).write_bytes(data)
    try:
        open_array(spec)
    except UnreadableTensorError as error:
        assert error.what  # noqa: PT017  # either outcome is right


def extended(*texts: str) -> Array:
    """Values of float128, as text, because Python's numbers end where those of float64 do."""
    return np.array([np.longdouble(text) for text in texts])


@pytest.mark.skipif(np.finfo(np.longdouble).maxexp <= 1024, reason="here longdouble is float64")
@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (("1", "1e4000"), "1 too large"),
        (("-1e4000", "1e-4000", "-1e-4000", "0"), "1 too large, 2 too small"),
    ],
)
@pytest.mark.parametrize("dtype", [np.longdouble, np.clongdouble])
def test_float128_beyond_float64_is_unreadable_not_infinite(
    tmp_path: Path, texts: tuple[str, ...], why: str, dtype: type[np.generic]
) -> None:
    np.save(tmp_path / "x.npy", extended(*texts).astype(dtype))
    with pytest.raises(UnreadableTensorError, match=why):
        open_array(ReadSpec(str(tmp_path / "x.npy")))
    with TensorFile(ReadSpec(str(tmp_path / "x.npy"))) as file, pytest.raises(UnreadableTensorError, match=why):
        file.read(0, len(texts))


def test_float128_within_float64_is_read(tmp_path: Path) -> None:
    values = extended("1e300", "-inf", "nan", "0", "-0", "1e-300")
    np.save(tmp_path / "x.npy", values)
    np.testing.assert_array_equal(open_array(ReadSpec(str(tmp_path / "x.npy"))), values)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere a map of a file may not be cut")
def test_a_long_file_that_is_cut_while_it_is_looked_at_ends_no_process(tmp_path: Path) -> None:
    """In a process of its own: what read a map of it would end by SIGBUS."""
    program = (
        "import os, sys, numpy as np\n"
        "from tui_debugger.model import ReadSpec\n"
        "from tui_debugger.stats.npy import open_array\n"
        "path = sys.argv[1]\n"
        "np.save(path, np.asfortranarray(np.ones((2500, 2000), 'f8')))\n"
        "values = open_array(ReadSpec(path))\n"
        "os.truncate(path, 4096)\n"
        "print(values.sum())\n"
    )
    path = tmp_path / "long.npy"
    ended = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "5000000.0\n"), ended.stderr
