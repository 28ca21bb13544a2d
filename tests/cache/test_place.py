"""Where the index of a user lies and how large it may become."""

from __future__ import annotations

from pathlib import Path

import pytest

from tui_debugger.cache import default_store
from tui_debugger.cache.store import LIMIT, default_limit

Env = pytest.MonkeyPatch


def place(dump: Path | None = None) -> Path | None:
    store = default_store(dump)
    return None if store is None else store.path


def test_the_variables_in_their_order(monkeypatch: Env, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("TDBG_CACHE_DIR", str(tmp_path / "own"))
    assert place() == tmp_path / "own" / "index"
    monkeypatch.delenv("TDBG_CACHE_DIR")
    assert place() == tmp_path / "xdg" / "tdbg" / "index"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert place() == tmp_path / "home" / ".cache" / "tdbg" / "index"
    assert list(tmp_path.iterdir()) == [], "nothing is made"


def test_empty_is_off(monkeypatch: Env) -> None:
    monkeypatch.setenv("TDBG_CACHE_DIR", "")
    assert default_store() is None


@pytest.mark.parametrize("value", ["", "relative/cache"])
def test_a_cache_home_that_is_no_absolute_path_is_ignored(monkeypatch: Env, tmp_path: Path, value: str) -> None:
    monkeypatch.delenv("TDBG_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert place() == tmp_path / ".cache" / "tdbg" / "index"


def test_a_relative_directory_stays_where_it_was(monkeypatch: Env, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TDBG_CACHE_DIR", "here")
    store = default_store()
    monkeypatch.chdir(tmp_path / "other")
    assert store is not None
    store.put("records", b"key", b"1")
    assert (tmp_path / "here" / "index").is_dir()


def test_without_a_home_there_is_none(monkeypatch: Env) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("TDBG_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", nowhere)
    assert default_store() is None


def test_it_never_lies_in_a_dump(monkeypatch: Env, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    (dump / "rank_0").mkdir(parents=True)
    for inside in (dump, dump / "rank_0", dump / "rank_0" / "x"):
        monkeypatch.setenv("TDBG_CACHE_DIR", str(inside))
        assert default_store(dump) is None
        assert default_store(dump / "rank_0" / "..") is None
    (tmp_path / "link").symlink_to(dump / "rank_0")
    monkeypatch.setenv("TDBG_CACHE_DIR", str(tmp_path / "link"))
    assert default_store(dump) is None
    monkeypatch.setenv("TDBG_CACHE_DIR", str(tmp_path / "dump2"))
    assert default_store(dump) is not None


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("500M", 500 * 10**6),
        ("500 MB", 500 * 10**6),
        ("500mib", 500 * 2**20),
        ("2 GiB", 2 * 2**30),
        ("1.5k", 1500),
        ("1T", 10**12),
        ("123456", 123456),
        (" 7b ", 7),
        ("", LIMIT),
    ],
)
def test_sizes(monkeypatch: Env, text: str, limit: int) -> None:
    monkeypatch.setenv("TDBG_CACHE_LIMIT", text)
    assert default_limit() == (limit, "")
    store = default_store()
    assert store is not None
    assert (store.limit, store.trouble) == (limit, "")


@pytest.mark.parametrize("text", ["much", "-1", "5X", "1e9", "NaN", "M", "5 0", "9" * 40])
def test_what_is_no_size_is_said(monkeypatch: Env, text: str) -> None:
    monkeypatch.setenv("TDBG_CACHE_LIMIT", text)
    store = default_store()
    assert store is not None
    assert store.limit == LIMIT
    todo = "set it to a size such as 500M, or unset it"
    assert store.trouble == f"TDBG_CACHE_LIMIT is no size: {text!r}. 1 GB is used instead; {todo}"
    store.put("records", b"key", b"1")
    assert store.get("records", b"key") == b"1"


@pytest.mark.parametrize("text", ["0", "0M", "0.0"])
def test_no_room_is_off(monkeypatch: Env, text: str) -> None:
    monkeypatch.setenv("TDBG_CACHE_LIMIT", text)
    assert default_store() is None
