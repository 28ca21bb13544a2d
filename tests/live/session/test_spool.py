"""The spool never grows beyond its limit, whatever is declared, and does not outlive its owner."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.thorough import examples
from tui_debugger.arrays import Array
from tui_debugger.live.spool import NO_ROOM, Spool, SpooledTensor, remove_abandoned
from tui_debugger.model import ReadSpec
from tui_debugger.stats.npy import open_array

BLOCK = 4096


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(1 << 20, parent=tmp_path)
    yield made
    made.close()


def keep(spool: Spool, step: int, values: Array, rank: int = 0) -> SpooledTensor | None:
    file = spool.open((rank, step), values.dtype.name, values.shape)
    if file is None:
        return None
    data = values.tobytes()
    for start in range(0, len(data), 1000):
        file.write(data[start : start + 1000])
    return file.finish()


def used(path: Path) -> int:
    """Bytes on disk, a block at least for each file."""
    files = [each.stat().st_size for each in path.rglob("*") if each.is_file() and each.name != "pid"]
    return sum(max(size, 1) for size in files)


@pytest.mark.parametrize("dtype", ["float32", "bool", "int64", "complex64", "float16"])
def test_what_is_kept_can_be_read(spool: Spool, dtype: str) -> None:
    values = np.arange(12).reshape(3, 4).astype(dtype)
    kept = keep(spool, 0, values)
    assert kept is not None
    np.testing.assert_array_equal(open_array(ReadSpec(str(kept.path), dtype=kept.dtype)), values)


def test_what_the_disk_refuses_is_counted_with_its_reason_and_leaves_nothing(spool: Spool) -> None:
    """A real refusal: files of this process may not grow beyond a limit for a while, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        assert keep(spool, 0, np.zeros(10_000, np.float32)) is None
        assert keep(spool, 0, np.zeros(1_000, np.float32)) is not None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert spool.lost == {"File too large": 1}
    assert used(spool.path) < 20_000
    assert not list(spool.path.rglob("*.part*"))
    assert keep(spool, 0, np.zeros(10_000, np.float32)) is not None


def test_what_finds_no_room_or_has_to_go_is_counted(tmp_path: Path) -> None:
    spool = Spool(3 * (BLOCK + 40_000), parent=tmp_path)
    for step in range(5):
        keep(spool, step, np.zeros(10_000, np.float32))
    assert spool.lost == {NO_ROOM: 2}
    assert keep(spool, 9, np.zeros(1_000_000, np.float32)) is None
    assert spool.lost == {NO_ROOM: 3}
    spool.close()


def test_the_oldest_steps_go_first(tmp_path: Path) -> None:
    dropped: list[tuple[int, int]] = []
    spool = Spool(3 * (BLOCK + 40_000), dropped.append, tmp_path)
    kept = [keep(spool, step, np.zeros(10_000, np.float32)) for step in range(5)]
    assert dropped == [(0, 0), (0, 1)]
    assert [each is not None and each.path.exists() for each in kept] == [False, False, True, True, True]
    spool.close()


def test_a_declared_size_takes_no_room(spool: Spool) -> None:
    before = keep(spool, 0, np.zeros(1000, np.float32))
    file = spool.open((0, 1), "float32", (100_000,))
    assert file is not None
    assert spool.size < 3 * BLOCK
    assert file.finish() is None  # nothing came
    assert before is not None
    assert before.path.exists()
    assert spool.size < 3 * BLOCK


@pytest.mark.parametrize("shape", [(1 << 40,), (-1,), (2,) * 40, (1 << 62, 4)])
def test_what_never_fits_is_refused_before_anything_is_written(spool: Spool, shape: tuple[int, ...]) -> None:
    assert spool.open((0, 0), "float32", shape) is None
    assert spool.open((0, 0), "string", (2,)) is None


def test_more_than_was_declared_is_no_tensor(spool: Spool) -> None:
    file = spool.open((0, 0), "float32", (2,))
    assert file is not None
    assert file.write(b"12345678")
    assert not file.write(b"9")
    assert file.finish() is None
    assert used(spool.path) == spool.size == 0


def test_a_step_that_is_being_written_stays(tmp_path: Path) -> None:
    spool = Spool(2 * BLOCK + 10_000, parent=tmp_path)
    file = spool.open((0, 0), "float32", (1000,))
    assert file is not None
    assert keep(spool, 1, np.zeros(5000, np.float32)) is None  # there is no room beside it
    assert file.write(b"\0" * 4000)
    assert file.finish() is not None
    spool.close()


@examples(30)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30_000), st.integers(-2000, 2000)), max_size=25))
def test_it_never_exceeds_its_limit(
    tmp_path_factory: pytest.TempPathFactory, tensors: list[tuple[int, int, int]]
) -> None:
    limit = 60_000
    spool = Spool(limit, parent=tmp_path_factory.mktemp("spool"))
    try:
        for step, size, lie in tensors:
            file = spool.open((0, step), "uint8", (max(size + lie, 0),))
            if file is not None:
                for start in range(0, size, 7000):
                    file.write(b"\1" * min(7000, size - start))
                    assert used(spool.path) <= limit
                kept = file.finish()
                assert kept is None or lie == 0 or max(size + lie, 0) == size
            assert spool.size <= limit
    finally:
        spool.close()


def test_it_is_gone_when_it_is_closed(tmp_path: Path) -> None:
    spool = Spool(parent=tmp_path)
    keep(spool, 0, np.zeros(3, np.float32))
    spool.close()
    spool.close()
    assert list(tmp_path.iterdir()) == []
    assert spool.open((0, 0), "float32", (1,)) is None


def test_what_a_killed_owner_left_is_removed_by_the_next_start(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys; from tui_debugger.live.spool import Spool\n"
        "Spool(parent=pathlib.Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    living = Spool(parent=tmp_path)
    assert list(tmp_path.iterdir()) == [living.path]
    assert remove_abandoned(tmp_path) == 0
    assert (living.path / "pid").read_text().strip() == str(os.getpid())
    living.close()
