"""Members of .npz archives: what is read, and what is refused by name."""

from __future__ import annotations

import contextlib
import io
import mmap
import pickle
import resource
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.stats.requests import look
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec
from tui_debugger.stats import archive, npy
from tui_debugger.stats.npy import TensorFile, array_keys, open_array, open_lazily, read_meta
from tui_debugger.stats.scan import SPAN, spans_of

Array = npt.NDArray[Any]
Save = Callable[..., None]
ANY_TEMPORARY_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
BOTH = pytest.mark.parametrize("save", [np.savez, np.savez_compressed], ids=["stored", "packed"])
VALUES = np.arange(12.0).reshape(3, 4)


def member(path: Path, name: str) -> ReadSpec:
    return ReadSpec(str(path), "npz", member=name)


def saved(folder: Path, save: Save, **arrays: Any) -> Path:
    path = folder / "x.npz"
    path.unlink(missing_ok=True)
    save(path, **arrays)
    return path


def refused(path: Path, name: str, words: str) -> None:
    with pytest.raises(UnreadableTensorError, match=words) as caught:
        open_array(member(path, name))
    assert caught.value.where == f"{path}:{name}"


@BOTH
@ANY_TEMPORARY_FOLDER
@given(
    array=hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, min_side=0, max_side=7)), fortran=st.booleans()
)
def test_what_numpy_saves_comes_back(tmp_path: Path, save: Save, array: Array, fortran: bool) -> None:
    array = np.asfortranarray(array) if fortran else array
    path = saved(tmp_path, save, **{"first": np.ones(3), "enc/layer.0.weight": array})
    assert list(array_keys(str(path))) == ["first", "enc/layer.0.weight"]
    found = open_array(member(path, "enc/layer.0.weight"))
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes("A") == np.ascontiguousarray(array).tobytes() or found.tobytes() == array.tobytes()
    assert read_meta(member(path, "enc/layer.0.weight")).shape == array.shape


@BOTH
def test_big_arrays_are_never_in_memory_as_a_whole(tmp_path: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npy, "WHOLE_FILE", 1 << 12)
    monkeypatch.setattr(npy, "_IN_MEMORY", 1 << 12)
    values = np.arange(5000, dtype=np.float32)
    spec = member(saved(tmp_path, save, other=np.ones(1000), x=values), "x")
    for array in (open_lazily(spec), open_array(spec)):
        assert (array == values).all()
        assert not array.flags.writeable
        assert_mapped(array)


def assert_mapped(array: Array) -> None:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)


@BOTH
def test_pieces_are_read_from_anywhere(tmp_path: Path, save: Save) -> None:
    values = np.random.default_rng(0).normal(size=300_000)
    with TensorFile(member(saved(tmp_path, save, x=values), "x")) as file:
        for start, count in ((299_000, 1000), (0, 10), (100_000, 150_000), (5, 0)):
            assert (file.read(start, count) == values[start : start + count]).all()


@BOTH
def test_the_statistics_are_those_of_a_file_of_its_own(tmp_path: Path, save: Save) -> None:
    rng = np.random.default_rng(0)
    for values in (rng.normal(size=7), rng.normal(size=200_000).astype(np.float32), np.array([1.0, np.nan, np.inf])):
        np.save(tmp_path / "x.npy", values)
        path = saved(tmp_path, save, y=np.ones(3), x=values)
        alone, together = look(tmp_path / "x.npy"), look(member(path, "x"))
        assert together.stats == alone.stats
        assert together.meta == alone.meta


def test_what_is_packed_is_not_read_from_several_places_at_once(tmp_path: Path) -> None:
    values = np.zeros(SPAN + 1, np.int8)
    assert len(spans_of(member(saved(tmp_path, np.savez, x=values), "x"), None)) > 1
    assert spans_of(member(saved(tmp_path, np.savez_compressed, x=values), "x"), None) == ()


class TestRefused:
    @BOTH
    def test_pickled_objects_are_never_loaded(self, tmp_path: Path, save: Save) -> None:
        path = saved(tmp_path, save, x=np.array([{}], object), y=VALUES)
        refused(path, "x", "pickled Python objects")
        assert (open_array(member(path, "y")) == VALUES).all()

    @BOTH
    def test_truncated_anywhere_nothing_wrong_comes_out(self, tmp_path: Path, save: Save) -> None:
        path = saved(tmp_path, save, x=VALUES, y=VALUES + 1)
        whole = path.read_bytes()
        for length in range(len(whole)):
            path.write_bytes(whole[:length])
            with pytest.raises(UnreadableTensorError):
                array_keys(str(path))

    @BOTH
    @ANY_TEMPORARY_FOLDER
    @given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
    def test_a_flipped_bit_is_refused_or_changes_nothing(self, tmp_path: Path, save: Save, at: int, bit: int) -> None:
        path = saved(tmp_path, save, x=VALUES, y=VALUES + 1)
        content = bytearray(path.read_bytes())
        content[at % len(content)] ^= 1 << bit
        path.write_bytes(content)
        try:
            names = array_keys(str(path))
        except UnreadableTensorError:
            return
        for name in set(names) & {"x", "y"}:
            try:
                array = open_array(member(path, name))
            except UnreadableTensorError:
                continue
            assert np.array_equal(array, VALUES + (name == "y"))

    @BOTH
    def test_a_wrong_checksum(self, tmp_path: Path, save: Save) -> None:
        path = saved(tmp_path, save, x=VALUES)
        content = bytearray(path.read_bytes())
        place = content.rindex(b"PK\1\2") + 16
        content[place] ^= 1
        path.write_bytes(content)
        refused(path, "x", "checksum")
        assert look(member(path, "x")).error is not None

    def test_a_name_twice(self, tmp_path: Path) -> None:
        path = saved(tmp_path, np.savez, x=VALUES, y=VALUES)
        with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
            warnings.simplefilter("ignore")
            archive.writestr("x.npy", _npy(VALUES + 1))
        refused(path, "x", "several times")
        assert (open_array(member(path, "y")) == VALUES).all()

    def test_members_that_share_their_bytes(self, tmp_path: Path) -> None:
        path = saved(tmp_path, np.savez, x=VALUES, y=VALUES)
        content = bytearray(path.read_bytes())
        struct.pack_into("<I", content, content.rindex(b"PK\1\2") + 42, 0)  # y begins where x does
        path.write_bytes(content)
        refused(path, "x", "shares its bytes")
        refused(path, "y", "shares its bytes")

    def test_what_unpacks_to_far_more_than_a_tensor_does(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(archive, "PLAUSIBLE", 1 << 20)
        path = saved(tmp_path, np.savez_compressed, x=np.zeros(1 << 20), y=np.zeros(1 << 10))
        refused(path, "x", r"would unpack from [\d,]+ to 8,388,736 bytes")
        assert not open_array(member(path, "y")).any()

    @pytest.mark.parametrize("size", [100, 1 << 30])
    def test_a_size_that_is_not_true(self, tmp_path: Path, size: int) -> None:
        path = saved(tmp_path, np.savez_compressed, x=VALUES)
        content = bytearray(path.read_bytes())
        struct.pack_into("<I", content, content.rindex(b"PK\1\2") + 24, size)
        path.write_bytes(content)
        with pytest.raises(UnreadableTensorError):
            open_array(member(path, "x"))

    def test_bytes_behind_the_values(self, tmp_path: Path) -> None:
        path = tmp_path / "x.npz"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", _npy(VALUES) + b"more")
        refused(path, "x", "bytes behind its values")

    def test_other_ways_of_packing(self, tmp_path: Path) -> None:
        path = tmp_path / "x.npz"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
            archive.writestr("x.npy", _npy(VALUES))
        refused(path, "x", "method 14")

    def test_a_member_that_is_gone(self, tmp_path: Path) -> None:
        refused(saved(tmp_path, np.savez, x=VALUES), "y", "is not in the archive")

    @pytest.mark.parametrize("content", [b"", b"x", b"\x93NUMPY", b"PK\5\6" + bytes(18)[:17]])
    def test_what_is_no_archive(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "x.npz").write_bytes(content)
        with pytest.raises(UnreadableTensorError):
            array_keys(str(tmp_path / "x.npz"))

    def test_a_sparse_file_of_a_gigabyte_costs_no_memory(self, tmp_path: Path) -> None:
        path = tmp_path / "x.npz"
        with path.open("wb") as file:
            file.truncate(1 << 30)
            file.seek(0, io.SEEK_END)
            file.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, 1 << 29, 1 << 29, 0))  # half of it a directory
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(UnreadableTensorError, match="directory has more than"):
            array_keys(str(path))
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


class TestEveryMemberIsAccountedFor:
    """Also one that numpy would not take for an array by its name."""

    @BOTH
    def test_an_array_of_another_name_is_read(self, tmp_path: Path, save: Save) -> None:
        path = with_member(saved(tmp_path, save, x=VALUES), "y.NPY", _npy(VALUES + 1))
        assert list(array_keys(str(path))) == ["x", "y.NPY"]
        assert (open_array(member(path, "y.NPY")) == VALUES + 1).all()
        assert look(member(path, "y.NPY")).stats == look(member(saved(tmp_path, save, y=VALUES + 1), "y")).stats

    @BOTH
    @pytest.mark.parametrize("content", [pickle.dumps(VALUES), b"\x89HDF\r\n\x1a\n", b"\x80\4cut"])
    def test_what_is_not_read_is_unreadable_by_its_name(self, tmp_path: Path, save: Save, content: bytes) -> None:
        path = with_member(saved(tmp_path, save, x=VALUES), "notes", content)
        assert list(array_keys(str(path))) == ["x", "notes"]
        refused(path, "notes", "pickle|HDF5")
        assert (open_array(member(path, "x")) == VALUES).all()

    def test_an_archive_in_the_archive(self, tmp_path: Path) -> None:
        inner = saved(tmp_path, np.savez, z=VALUES).read_bytes()
        path = with_member(saved(tmp_path, np.savez, x=VALUES), "more.npz", inner)
        assert list(array_keys(str(path))) == ["x", "more.npz"]
        refused(path, "more.npz", "an archive of NumPy")

    @BOTH
    def test_text_and_settings_say_nothing(self, tmp_path: Path, save: Save) -> None:
        path = with_member(saved(tmp_path, save, x=VALUES), "README.txt", b"Inf\n")
        with_member(path, "args.pkl", pickle.dumps({"lr": 0.1}))
        assert list(array_keys(str(path))) == ["x"]

    @BOTH
    def test_bytes_of_no_member(self, tmp_path: Path, save: Save) -> None:
        hidden = saved(tmp_path, save, h=VALUES).read_bytes()
        whole = saved(tmp_path, save, x=VALUES)
        for content in (hidden + whole.read_bytes(), bytes(200) + whole.read_bytes()):
            whole.write_bytes(content)
            with pytest.raises(UnreadableTensorError, match="belong to none of its members"):
                array_keys(str(whole))

    @BOTH
    def test_bytes_behind_the_archive(self, tmp_path: Path, save: Save) -> None:
        whole = saved(tmp_path, save, x=VALUES)
        content = whole.read_bytes()
        for behind in (_npy(VALUES), np.full(200, np.nan, np.float32).tobytes(), bytes(9000) + b"\1"):
            whole.write_bytes(content + behind)
            with pytest.raises(UnreadableTensorError, match="belong to none of its members"):
                array_keys(str(whole))
            whole.write_bytes(content[:-2] + struct.pack("<H", len(behind)) + behind)  # as a comment
            with pytest.raises(UnreadableTensorError, match="belong to none of its members"):
                array_keys(str(whole))
        words = "saved on a Monday, zum Gl\u00fcck".encode()
        for healthy in (content + bytes(9000), content[:-2] + struct.pack("<H", len(words)) + words + bytes(3)):
            whole.write_bytes(healthy)
            assert list(array_keys(str(whole))) == ["x"]

    def test_a_member_that_its_directory_lost(self, tmp_path: Path) -> None:
        path = saved(tmp_path, np.savez, x=VALUES, h=VALUES, y=VALUES)
        content = path.read_bytes()
        begin = content.index(b"PK\1\2")
        first, lost, last = (
            b"PK\1\2" + each for each in content[begin : content.index(b"PK\5\6")].split(b"PK\1\2")[1:]
        )
        for kept in (first + last, first + lost, lost + last):
            end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 2, 2, len(kept), begin, 0)
            path.write_bytes(content[:begin] + kept + end)
            with pytest.raises(UnreadableTensorError, match="belong to none of its members"):
                array_keys(str(path))

    def test_room_before_values_hides_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "x.npz"
        with zipfile.ZipFile(path, "w") as file:
            for name in ("d/", "x.npy", f"{'n' * 300}.npy"):
                info = zipfile.ZipInfo(name)
                info.extra = struct.pack("<2sH", b"FB", 400) + bytes(400)
                file.writestr(info, b"" if name == "d/" else _npy(VALUES))
        assert list(array_keys(str(path))) == ["x", "n" * 300]
        assert (open_array(member(path, "x")) == VALUES).all()


def with_member(path: Path, name: str, content: bytes) -> Path:
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(name, content)
    return path


@pytest.mark.parametrize("kind", ["M8[D]", "m8[s]", ">M8[ns]"])
def test_dates_that_are_none_count_as_nan(tmp_path: Path, kind: str) -> None:
    values = np.array([3, "NaT", 5], kind) if "m8" in kind else np.array(["2020-01-02", "NaT", "2020-01-04"], kind)
    np.save(tmp_path / "x.npy", values)
    stats = look(tmp_path / "x.npy").stats
    assert stats is not None
    assert (stats.count, stats.nan, stats.pos_inf) == (3, 1, 0)
    assert (stats.minimum, stats.maximum) == (values[0].astype(np.int64), values[2].astype(np.int64))
    assert open_array(ReadSpec(str(tmp_path / "x.npy"))).dtype == values.dtype


def test_a_second_array_in_a_file_of_one(tmp_path: Path) -> None:
    with (tmp_path / "x.npy").open("wb") as file:
        np.save(file, VALUES)
        np.save(file, VALUES * np.nan)
    assert "behind its values" in look(tmp_path / "x.npy").error


@ANY_TEMPORARY_FOLDER
@given(garbage=st.binary(max_size=400), end=st.booleans())
def test_any_bytes_are_read_or_refused(tmp_path: Path, garbage: bytes, end: bool) -> None:
    path = tmp_path / "x.npz"
    tail = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(garbage), 0, 0) if end else b""
    path.write_bytes(garbage + tail)
    with contextlib.suppress(UnreadableTensorError):
        for name in array_keys(str(path)):
            open_array(member(path, name))


def _npy(array: Array) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["stored", "packed", "64 bits"])
def test_the_quick_way_to_a_directory_tells_what_zipfile_does(tmp_path: Path, kind: str) -> None:
    """Also of damaged ones, byte by byte: it says the same, or leaves them to ``zipfile``."""
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if kind == "packed" else zipfile.ZIP_STORED) as file:
        for name in ("x/data.pkl", "x/data/0", "x/version"):
            file.writestr(zipfile.ZipInfo(name), name * 3)
    content = path.read_bytes()
    content = with_64_bits(content) if kind == "64 bits" else content
    assert quick(content) == by_zipfile(path, content)
    assert [each.name for each in (quick(content) or ([], 0))[0]] == ["x/data.pkl", "x/data/0", "x/version"]
    begin = content.index(b"PK\1\2")
    answered = 0
    for at in range(begin, len(content)):
        for value in (0, 1, content[at] ^ 32, 255):
            changed = content[:at] + bytes([value]) + content[at + 1 :]
            found = quick(changed)
            answered += found is not None
            assert found is None or found == by_zipfile(path, changed), at
        assert quick(content[:at]) is None
    assert answered > 100  # of names, checksums, times and so on any value will do


def with_64_bits(content: bytes) -> bytes:
    """The same archive with the end that big ones have, and all of those that ``torch.save`` writes."""
    end = len(content) - 22
    *_, here, count, length, start, _ = struct.unpack("<4s4H2LH", content[end:])
    big = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, here, count, length, start)
    return content[:end] + big + struct.pack("<4sLQL", b"PK\6\7", 0, end, 1) + content[end:]


def quick(content: bytes) -> tuple[list[archive.ArchiveMember], int] | None:
    return archive._plain_directory(content[10:], 10)


def by_zipfile(path: Path, content: bytes) -> tuple[list[archive.ArchiveMember], int] | None:
    path.write_bytes(content)
    with path.open("rb") as file, contextlib.suppress(zipfile.BadZipFile):
        return archive._any_directory(file.fileno(), (0, len(content)))
    return None
