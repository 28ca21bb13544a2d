"""Files that the kernel reads: what is odd is left to others, and what is right is as Python reads it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.stats.kernels import needs_kernel
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec
from tui_debugger.stats import kernel, side_by_side
from tui_debugger.stats.kernel.files import Stored, StoredSums, look_at_files, read_files
from tui_debugger.stats.npy import TensorFile
from tui_debugger.stats.records import RequiredStats
from tui_debugger.stats.side_by_side import HeldValues, OtherUnreadableError, measure_span

pytestmark = needs_kernel


def contents(paths: list[Path], most: int, room: int) -> list[bytes | None]:
    buffer = np.zeros(room, np.uint8)
    table = read_files([os.fsencode(path) for path in paths], most, buffer)
    return [None if size < 0 else buffer[start : start + size].tobytes() for start, size, *_ in table.tolist()]


def test_small_files_are_read_one_behind_the_other(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(5)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * number)
    assert contents(paths, 100, 1000) == [bytes([number]) * number for number in range(5)]


def test_times_and_numbers_are_those_of_the_files(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x")
    os.utime(path, ns=(1, 1_700_000_000_123_456_789))
    status = path.stat()
    [[_, size, *state]] = read_files([os.fsencode(path)], 10, np.zeros(10, np.uint8)).tolist()
    assert (size, state) == (1, [status.st_mtime_ns, status.st_ctime_ns, status.st_ino])


def test_looks_are_those_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"xyz")
    (tmp_path / "link").symlink_to("x")
    os.utime(tmp_path / "x", ns=(1, 1_700_000_000_123_456_789))
    status = (tmp_path / "x").stat()
    look = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    paths = [os.fsencode(tmp_path / name) for name in ("x", "missing", "x/below", "link")]
    found = look_at_files([*paths, b""])
    assert found is not None
    assert [row if row[0] >= 0 else None for row in found.tolist()] == [look, None, None, look, None]
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        within = look_at_files([b"missing", b"x"], directory)
    finally:
        os.close(directory)
    assert within is not None
    assert within[1].tolist() == look
    assert look_at_files([paths[0] + b"\0more"]) is None


def test_names_that_do_not_end_are_not_read_on() -> None:
    call = kernel.function("look_at_files", "qpqip", "i")
    found = np.zeros((3, 4), np.int64)
    assert call(2, b"a\0bc", 4, -1, kernel.address(found)) == -1
    assert call(1, b"", 0, -1, kernel.address(found)) == -1
    assert call(-1, b"a\0", 2, -1, kernel.address(found)) == -1
    assert call(0, None, 0, -1, None) == 0


def test_a_full_buffer_leaves_the_rest_for_the_next_call(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(4)]
    for path in paths:
        path.write_bytes(b"1234")
    assert contents(paths, 4, 10) == [b"1234"] * 2
    assert contents(paths[2:], 4, 8) == [b"1234"] * 2


def test_what_is_no_small_regular_file_is_not_read(tmp_path: Path) -> None:
    for name, size in (("large", 11), ("small", 3)):
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("small")
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "fifo")
    names = ["large", "folder", "fifo", "missing", "dangling", "link", "small"]
    assert contents([tmp_path / name for name in names], 10, 20) == [None] * 5 + [b"xxx"] * 2
    assert read_files([os.fsencode(tmp_path / "small") + b"\0more"], 10, np.zeros(10, np.uint8))[0][1] == -1


def test_whoever_watches_what_is_opened_hears_of_it(tmp_path: Path) -> None:
    heard: list[object] = []
    listening = True
    sys.addaudithook(lambda event, arguments: heard.append(arguments[0]) if listening and event == "open" else None)
    read_files([os.fsencode(tmp_path / "x")], 10, np.zeros(10, np.uint8))
    listening = False
    assert os.fsencode(tmp_path / "x") in heard


def test_a_buffer_that_is_too_small_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no sense"):
        read_files([os.fsencode(tmp_path)], 11, np.zeros(10, np.uint8))
    kind = kernel.kind_of(np.dtype(np.float32))
    assert kind is not None
    sums = StoredSums((), ())
    for stored in (Stored(kind, np.zeros(39, np.uint8)), Stored(kind, np.zeros(19, np.uint8), 0)):
        with pytest.raises(ValueError, match="buffer"):
            sums.add(stored, None, 10, 5)


NEED = RequiredStats(
    frozenset({(-1.0, 1.0), (0.0, np.inf)}), change=True, closeness=frozenset({(1e-3, 0.0, False), (0.0, 0.0, True)})
)


def saved(path: Path, values: Any) -> ReadSpec:
    np.save(path, values.view("V2") if values.dtype == ml_dtypes.bfloat16 else values)
    return ReadSpec(str(path), dtype=values.dtype.name)


def by_python(monkeypatch: pytest.MonkeyPatch, *arguments: Any, **named: Any) -> Any:
    with monkeypatch.context() as context:
        context.setattr(side_by_side, "_add_by_kernel", lambda *_, **__: False)
        return measure_span(*arguments, **named)


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16", "int8", "int64", "complex64", ">f4"])
@pytest.mark.parametrize("other_name", [None, "float32", "int16"])
def test_spans_have_the_bits_that_pieces_read_by_python_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, other_name: str | None
) -> None:
    monkeypatch.setattr(side_by_side, "PIECE", 4096)
    random = np.random.default_rng(1)
    values = (random.standard_normal(100_000) * 9).astype(getattr(ml_dtypes, name, name))
    if values.dtype.kind == "f":
        values[5000:5003] = np.nan, np.inf, -np.inf
    spec = saved(tmp_path / "x.npy", values)
    near = (values.astype(np.complex128).real * (1 + 1e-4)).astype(other_name or "f4")
    other_spec = saved(tmp_path / "y.npy", near)
    into = np.zeros(values.nbytes, np.uint8)
    with TensorFile(spec) as file, TensorFile(other_spec) as opened:
        held = HeldValues(opened.layout, near)
        for other in (None,) if other_name is None else (opened, held):
            for span in ((0, 100_000), (17, 90_001), (3, 3)):
                found = measure_span(file, other, NEED, span, None)
                plain = by_python(monkeypatch, file, other, NEED, span, None)
                assert found.stats.values()[:7] == plain.stats.values()[:7]
                assert np.array_equal(found.stats.values(), plain.stats.values(), equal_nan=True)
                assert found.stats.ranges == plain.stats.ranges
                assert (found.change is None) == (plain.change is None)
                if found.change is not None:
                    assert repr(found.change.result()) == repr(plain.change.result())
        measure_span(file, None, NEED, (0, 100_000), None, into=into)
        assert into.tobytes() == values.tobytes()


@pytest.mark.parametrize("short", ["x", "y"])
def test_a_file_that_shrinks_while_it_is_read_is_no_end_of_the_program(tmp_path: Path, short: str) -> None:
    values = np.ones(2_000_000, np.float32)
    specs = [saved(tmp_path / f"{name}.npy", values) for name in ("x", "y")]
    with TensorFile(specs[0]) as file, TensorFile(specs[1]) as other:
        os.truncate(tmp_path / f"{short}.npy", 5_000_000)
        with pytest.raises(UnreadableTensorError if short == "x" else OtherUnreadableError):
            measure_span(file, other, NEED, (0, 2_000_000), None)


def test_a_span_is_stopped_between_stretches(tmp_path: Path) -> None:
    calls: list[int] = []

    def stop() -> None:
        calls.append(1)
        raise KeyboardInterrupt

    with (
        TensorFile(saved(tmp_path / "x.npy", np.ones(5_000_000, np.float32))) as file,
        pytest.raises(KeyboardInterrupt),
    ):
        measure_span(file, None, NEED, (0, 5_000_000), stop)
    assert calls == [1]
