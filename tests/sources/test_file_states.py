"""Sizes and modification times of files, asked for in bulk."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tui_debugger import opener
from tui_debugger.sources import base as module
from tui_debugger.sources.base import directory_states, file_states, states_of


@pytest.fixture(params=["descriptor", "path"], autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, measured_by: str) -> None:  # noqa: ARG001
    """As on systems that know files relative to a directory, and on others; with the kernel and without it."""
    if request.param == "path":
        monkeypatch.setattr(module.os, "supports_dir_fd", set())
    elif os.stat not in os.supports_dir_fd:
        pytest.skip("this system has no such descriptors")


OLD = 1_600_000_000 * 10**9
"""A whole second, long ago, in ns."""


def states(directory: Path, names: Sequence[bytes]) -> list[tuple[int, int]]:
    sizes, times = directory_states(os.fsencode(directory), names)
    assert sizes.dtype == times.dtype == "i8"
    return list(zip(sizes.tolist(), times.tolist(), strict=True))


def look(path: Path | bytes) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116 - may be bytes
    return status.st_size, opener.state_of(status)


def test_states_are_those_of_os_stat(tmp_path: Path) -> None:
    names = [b"empty", b"caf\xe9 \xff.npy", "ж".encode(), b" ", b"-", b"x" * 255]
    for size, name in enumerate(names):
        with open(os.fsencode(tmp_path) + b"/" + name, "wb") as file:  # noqa: PTH123 - a path of bytes
            file.write(b"x" * size)
        os.utime(file.name, ns=(OLD + size, OLD + size))
    expected = [look(os.fsencode(tmp_path) + b"/" + name) for name in names]
    assert [size for size, _ in expected] == [0, 1, 2, 3, 4, 5]
    assert states(tmp_path, names) == expected
    sizes, times = file_states(os.fsencode(tmp_path) + b"/" + name for name in names)
    assert list(zip(sizes.tolist(), times.tolist(), strict=True)) == expected


def test_files_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    names = [b"gone", b"there", b"dangling", b"loop", b"y" * 300, b"there/below"]
    missing = (-1, 0)
    assert states(tmp_path, names) == [missing, look(tmp_path / "there"), missing, missing, missing, missing]


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "gone", tmp_path / "file"):
        assert states(place, [b"a", b"b"]) == [(-1, 0), (-1, 0)]
    assert states(tmp_path / "gone", []) == []
    assert directory_states(b"with\0nul", [b"a"])[0].tolist() == [-1]


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"12345")
    os.utime(tmp_path / "real", ns=(OLD, OLD))
    (tmp_path / "link").symlink_to("real")
    assert states(tmp_path, [b"link"]) == [look(tmp_path / "real")] != [(5, 0)]


@pytest.mark.parametrize("when", [0, -1, -1_500_000_000, 10**9, 2**31 * 10**9 + 7, 9_000_000_000 * 10**9 + 5])
def test_times_before_1970_and_after_2038(tmp_path: Path, when: int) -> None:
    (tmp_path / "file").touch()
    os.utime(tmp_path / "file", ns=(when, when))
    assert states(tmp_path, [b"file"]) == [look(tmp_path / "file")]


def test_a_time_beyond_int64_is_still_one_number(tmp_path: Path) -> None:
    far = 12_000_000_000 * 10**9
    (tmp_path / "file").touch()
    os.utime(tmp_path / "file", ns=(far, far))
    if (tmp_path / "file").stat().st_mtime_ns != far:
        pytest.skip("this file system knows no such year")
    assert states(tmp_path, [b"file"]) == [(0, 0)], "a time to come tells nothing"


def test_sizes_beyond_32_bits(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(5 * 2**31 + 3)
    assert (
        states(tmp_path, [b"sparse"]) == [look(tmp_path / "sparse")] == [(5 * 2**31 + 3, look(tmp_path / "sparse")[1])]
    )


# -- what a file is --------------------------------------------------------------------------------


def of(modified: int, changed: int | None = None, *, number: int = 7, size: int = 3) -> os.stat_result:
    """A state as stores give it."""
    changed = modified if changed is None else changed
    known = (0o100644, number, 1, 1, 0, 0, size, *(modified // 10**9,) * 3)
    return os.stat_result(known, {"st_mtime_ns": modified, "st_ctime_ns": changed})


def old(path: Path, content: bytes) -> int:
    """Writes a file whose time of modification is that of every other one here; returns what it is."""
    path.write_bytes(content)
    os.utime(path, ns=(OLD, OLD))
    return opener.state_of(path.stat())


def test_another_file_of_the_same_size_and_time_is_another_one(tmp_path: Path) -> None:
    before = old(tmp_path / "a", b"123")
    old(tmp_path / "b", b"456")
    (tmp_path / "b").replace(tmp_path / "a")
    assert 0 != opener.state_of((tmp_path / "a").stat()) != before


def test_a_file_that_was_written_to_and_whose_time_was_put_back_is_another_one(tmp_path: Path) -> None:
    before = old(tmp_path / "a", b"123")
    until_the_clock_of_the_file_system_has_moved(tmp_path)
    assert before != old(tmp_path / "a", b"456") != 0


def until_the_clock_of_the_file_system_has_moved(directory: Path) -> None:
    first = (directory / "clock").write_bytes(b"") or (directory / "clock").stat().st_ctime_ns
    while (directory / "clock").stat().st_ctime_ns == first:
        (directory / "clock").touch()


def test_the_same_file_is_the_same_one(tmp_path: Path) -> None:
    assert old(tmp_path / "a", b"123") == opener.state_of((tmp_path / "a").stat()) > 0


@pytest.mark.parametrize("seconds", [0, 1, 315_532_800, -5])
def test_times_that_stores_make_up_say_nothing(seconds: int) -> None:
    assert opener.state_of(of(seconds * 10**9)) == 0
    assert opener.state_of(of(seconds * 10**9, OLD + 1)) > 0, "the time of change is one of a real file system"


def states_together(statuses: Sequence[os.stat_result]) -> list[int]:
    rows = [(each.st_size, each.st_mtime_ns, each.st_ctime_ns, each.st_ino) for each in statuses]
    sizes, modified, changed, numbers = np.array(rows).T
    return states_of(sizes, modified, changed, numbers, time.time_ns()).tolist()


def test_one_time_for_all_says_nothing() -> None:
    alike = [of(OLD, number=number) for number in range(4)]
    assert states_together(alike) == [0] * 4
    assert states_together([of(0, size=-1), *alike]) == [0] * 5, "a file that is not there has no time"
    assert 0 not in states_together([*alike, of(OLD + 10**9)]), "times that differ are kept by somebody"
    assert 0 not in states_together([of(OLD, OLD + 5, number=number) for number in range(4)])
    assert 0 not in states_together([of(OLD + 5, number=number) for number in range(4)])
    assert 0 not in states_together([of(OLD)]), "one file alone says nothing of others"


def test_columns_say_of_each_file_what_is_said_of_it_alone() -> None:
    random = np.random.default_rng(0)
    modified, changed = random.integers(-(10**18), 3 * 10**18, (2, 1000))
    numbers = random.integers(0, 1 << 63, 1000, np.uint64)
    found = opener.state_of_times(modified, changed, numbers.view(np.int64), OLD)
    alone = [
        opener.state_of_times(*times, OLD)
        for times in zip(modified.tolist(), changed.tolist(), numbers.tolist(), strict=True)
    ]
    assert found.tolist() == alone
    assert 0 in alone
    assert len({each for each in alone if each}) == sum(each > 0 for each in alone) > 100


def test_a_time_of_a_moment_ago_says_nothing() -> None:
    now = time.time_ns()
    assert opener.state_of(of(now), now) == 0
    assert opener.state_of(of(now + 10**12), now) == 0, "another machine's clock"
    assert opener.state_of(of(now - opener.SETTLED - 1), now) > 0
