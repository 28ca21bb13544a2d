"""Files that appear whole or not at all, never over something else and never inside the dump."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.session.opened import snapshot
from tests.unprivileged import unprivileged
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.session.export_files import fresh_directory, fresh_file, fresh_text, save_npy


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "dump"
    path.mkdir()
    return path


@contextmanager
def files_no_longer_than(limit: int) -> Iterator[None]:
    """Lets the system refuse to write more: what a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_appears_when_it_is_complete(tmp_path: Path, dump: Path) -> None:
    target = tmp_path / "out.bin"
    with fresh_file(target, dump) as file:
        file.write(b"half")
        file.flush()
        assert not target.exists()
    assert target.read_bytes() == b"half"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dump", "out.bin"]


def test_its_mode_is_that_of_any_new_file(tmp_path: Path, dump: Path) -> None:
    (tmp_path / "usual").touch()
    with fresh_file(tmp_path / "ours", dump):
        pass
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize("failure", [CancelledError("stopped"), KeyboardInterrupt(), ValueError("bug")])
def test_nothing_is_left_of_what_was_interrupted(tmp_path: Path, dump: Path, failure: BaseException) -> None:
    def half_a_file() -> None:
        with fresh_file(tmp_path / "out", dump) as file:
            file.write(b"half")
            raise failure

    def half_a_directory() -> None:
        with fresh_directory(tmp_path / "many", dump) as directory:
            (directory / "one").write_bytes(b"half")
            raise failure

    for work in (half_a_file, half_a_directory):
        with pytest.raises(type(failure)):
            work()
    assert [path.name for path in tmp_path.iterdir()] == ["dump"]


def test_an_existing_file_stays_unless_it_may_be_replaced(tmp_path: Path, dump: Path) -> None:
    target = tmp_path / "out"
    target.write_bytes(b"mine")
    with pytest.raises(TdbgError, match="exists already"), fresh_file(target, dump):
        pytest.fail("not even begun")
    assert target.read_bytes() == b"mine"
    with fresh_file(target, dump, force=True) as file:
        file.write(b"new")
    assert target.read_bytes() == b"new"


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path, dump: Path) -> None:
    target = tmp_path / "out"

    def write() -> None:
        with fresh_file(target, dump) as file:
            file.write(b"ours")
            target.write_bytes(b"theirs")

    with pytest.raises(TdbgError, match="exists already"):
        write()
    assert target.read_bytes() == b"theirs"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dump", "out"]


@pytest.mark.parametrize("force", [False, True])
def test_a_dump_is_never_written_to(tmp_path: Path, dump: Path, force: bool) -> None:
    (dump / "rank_0").mkdir()
    (tmp_path / "link").symlink_to(dump / "rank_0")
    before = snapshot(dump)
    for target in (dump / "x", dump / "rank_0" / "x", tmp_path / "link" / "x", dump / "rank_0" / ".." / "x", dump):
        with pytest.raises(TdbgError, match="never written"), fresh_file(target, dump, force=force):
            pytest.fail("not even begun")
        with pytest.raises(TdbgError, match="never written"), fresh_directory(target, dump, force=force):
            pytest.fail("not even begun")
    assert snapshot(dump) == before


def test_a_full_disk_is_said_in_three_parts_and_leaves_nothing(tmp_path: Path, dump: Path) -> None:
    with files_no_longer_than(4096):
        with pytest.raises(TdbgError, match="could not be written") as stop:
            save_npy(np.zeros(100_000), tmp_path / "big.npy", dump)
        with pytest.raises(TdbgError) as other, fresh_text(tmp_path / "big.csv", dump) as file:
            file.write("0" * 100_000)
    assert stop.value.where == str(tmp_path / "big.npy")
    assert stop.value.hint
    assert os.strerror(errno.EFBIG) in other.value.what
    assert [path.name for path in tmp_path.iterdir()] == ["dump"]


def test_a_missing_directory_is_said(tmp_path: Path, dump: Path) -> None:
    for make in (fresh_file, fresh_directory):
        with pytest.raises(TdbgError, match="No such file") as stop, make(tmp_path / "no" / "x", dump):
            pytest.fail("not even begun")
        assert "make the directory" in stop.value.hint


def test_a_directory_that_may_not_be_written_is_said(tmp_path: Path, dump: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)

    def write() -> None:
        with pytest.raises(TdbgError, match="Permission denied"), fresh_file(closed / "x", dump):
            pytest.fail("not even begun")

    unprivileged(write)


@pytest.mark.parametrize("name", ["a\0b", "x" * 300])
def test_a_name_that_no_file_can_have_is_said(tmp_path: Path, dump: Path, name: str) -> None:
    with pytest.raises(TdbgError), fresh_file(tmp_path / name, dump):
        pytest.fail("not even begun")


def test_a_directory_appears_with_all_its_files(tmp_path: Path, dump: Path) -> None:
    target = tmp_path / "many"
    with fresh_directory(target, dump) as directory:
        (directory / "sub").mkdir()
        (directory / "sub" / "a").write_bytes(b"a")
        assert not target.exists()
    assert (target / "sub" / "a").read_bytes() == b"a"


def test_a_directory_with_files_is_only_added_to_when_it_may(tmp_path: Path, dump: Path) -> None:
    target = tmp_path / "many"
    target.mkdir()
    with fresh_directory(target, dump) as directory:  # empty: as good as new
        (directory / "a").write_bytes(b"old")
    with pytest.raises(TdbgError, match="not empty"), fresh_directory(target, dump):
        pytest.fail("not even begun")
    (target / "mine").write_bytes(b"mine")
    with fresh_directory(target, dump, force=True) as directory:
        (directory / "a").write_bytes(b"new")
        (directory / "sub").mkdir()
        (directory / "sub" / "b").write_bytes(b"b")
    found = {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}
    assert found == {"a": b"new", "mine": b"mine", "sub/b": b"b"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dump", "many"]
    with pytest.raises(TdbgError, match="a file of that name"), fresh_directory(target / "a", dump, force=True):
        pytest.fail("not even begun")


def test_names_that_are_no_unicode_are_written_with_escapes(tmp_path: Path, dump: Path) -> None:
    with fresh_text(tmp_path / "t", dump) as file:
        file.write("a\udcffb\n")
    assert (tmp_path / "t").read_bytes() == b"a\\udcffb\n"
