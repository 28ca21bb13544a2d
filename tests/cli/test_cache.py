"""``tdbg config --cache``: the answer matches the files of the index; ``--clear-cache`` empties it."""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path

import pytest

from tests.cli.running import run
from tui_debugger.cache import DiskCache, default_store

Capsys = pytest.CaptureFixture[str]
Env = pytest.MonkeyPatch

FIRST, LAST = 1_600_000_000, 1_700_000_000
"""When the payloads of ``filled`` were used."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: Env) -> Path:
    """Where the index of this test lies."""
    monkeypatch.setenv("TDBG_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "index"


@pytest.fixture
def filled(place: Path, monkeypatch: Env) -> DiskCache:
    """Two kinds, three payloads."""
    store = default_store()
    assert store is not None
    assert store.path == place
    with monkeypatch.context() as context:
        context.setattr("tui_debugger.cache.database.time.time", lambda: FIRST)
        store.put_many("records", {b"a": bytes(150_000), b"b": bytes(100_000)})
        context.setattr("tui_debugger.cache.database.time.time", lambda: LAST)
        store.put("listing", b"a", bytes(900))
    store.close()
    return store


def aged(dump: Path) -> None:
    """Lets the files of a dump be older than what is not believed yet."""
    for path in dump.rglob("*.npy"):
        os.utime(path, (LAST, LAST))


def on_disk(place: Path) -> int:
    return sum(path.stat().st_size for path in place.iterdir())


def test_where_how_large_and_what_is_in_it(capsys: Capsys, filled: DiskCache) -> None:
    answer = run(capsys, "config", "--cache")
    assert (answer.code, answer.err) == (0, "")
    shown = [re.split(r" {2,}", line) for line in answer.lines]
    assert [line[0] for line in shown] == ["index", "size", "listing", "records", "used"]
    said = {line[0]: line[1] for line in shown}
    assert said["index"] == str(filled.path)
    size, unit = re.fullmatch(r"(\S+) (kB) of at most 1 GB", said["size"]).groups()  # type: ignore[union-attr] # a failure says enough
    assert float(size) == pytest.approx(on_disk(filled.path) / 1000, rel=1e-3)
    assert unit == "kB"
    assert said["listing"] == "1 of 900 B together"
    assert said["records"] == "2 of 250 kB together"
    assert re.fullmatch(r"between 2020-09-1\d .* and 2023-11-1\d .*", said["used"])


def test_the_same_as_a_document(capsys: Capsys, filled: DiskCache, monkeypatch: Env) -> None:
    monkeypatch.setenv("TDBG_CACHE_LIMIT", "500M")
    answer = run(capsys, "config", "--cache", "--json")
    found = answer.json
    assert (answer.code, answer.err) == (0, "")
    moments = [datetime.fromisoformat(found.pop(name)).timestamp() for name in ("oldest", "newest")]
    assert moments == [FIRST, LAST]
    assert found == {
        "schema": 1,
        "command": "config",
        "path": str(filled.path),
        "exit_code": 0,
        "action": "info",
        "enabled": True,
        "size": on_disk(filled.path),
        "limit": 500_000_000,
        "kinds": {"listing": {"entries": 1, "size": 900}, "records": {"entries": 2, "size": 250_000}},
        "trouble": "",
    }


def test_before_anything_was_remembered(capsys: Capsys, place: Path) -> None:
    assert run(capsys, "config", "--cache").lines == [f"index  {place}", "size   0 B of at most 1 GB"]
    found = run(capsys, "config", "--cache", "--json").json
    assert (found["size"], found["kinds"], found["oldest"], found["newest"]) == (0, {}, None, None)
    cleared = run(capsys, "config", "--cache", "clear")
    assert (cleared.code, cleared.out) == (0, "nothing was remembered\n")
    assert not place.exists(), "looking makes nothing"


def test_clear_says_what_it_freed(capsys: Capsys, filled: DiskCache) -> None:
    before = on_disk(filled.path)
    answer = run(capsys, "config", "--cache", "clear")
    assert (answer.code, answer.err) == (0, "")
    amount = re.fullmatch(r"(\S+) kB freed\n", answer.out)
    assert amount is not None
    assert float(amount[1]) == pytest.approx(before / 1000, rel=1e-3)
    assert list(filled.path.iterdir()) == []
    assert filled.get("records", b"a") is None
    assert run(capsys, "config", "--cache", "--json").json["size"] == 0


def test_clear_as_a_document(capsys: Capsys, filled: DiskCache) -> None:
    before = on_disk(filled.path)
    found = run(capsys, "config", "--cache", "clear", "--json").json
    assert found == {
        "schema": 1,
        "command": "config",
        "path": str(filled.path),
        "exit_code": 0,
        "action": "clear",
        "freed": before,
    }


def test_the_demo_beside_it_stays(capsys: Capsys, monkeypatch: Env, tmp_path: Path) -> None:
    monkeypatch.delenv("TDBG_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    demo = tmp_path / "tdbg" / "mindspore-2.0-nan"  # where `tdbg demo` unpacks it
    demo.mkdir(parents=True)
    (demo / "a.npy").touch()
    store = default_store(demo)
    assert store is not None
    store.put("records", b"a", b"1")
    assert run(capsys, "config", "--cache", "clear").out != "nothing was remembered\n"
    assert (demo / "a.npy").exists()


def test_what_cannot_be_cleared_is_said(capsys: Capsys, filled: DiskCache, monkeypatch: Env) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:  # noqa: ARG001 - as pathlib has it
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    answer = run(capsys, "config", "--cache", "clear", "--json")
    assert answer.code == 2
    found = answer.json
    assert (found["command"], found["path"], found["exit_code"]) == ("config", str(filled.path), 2)
    assert found["error"] == {
        "what": "not all could be cleared: Permission denied",
        "where": str(filled.path),
        "hint": "remove the directory, or ask its owner to",
    }
    assert answer.err.startswith("tdbg: not all could be cleared")
    monkeypatch.undo()
    assert any(filled.path.iterdir())


def test_switched_off(capsys: Capsys, monkeypatch: Env) -> None:
    monkeypatch.setenv("TDBG_CACHE_DIR", "")
    assert run(capsys, "config", "--cache").out == "index  none: TDBG_CACHE_DIR is empty\n"
    found = run(capsys, "config", "--cache", "--json").json
    assert (found["path"], found["enabled"], found["trouble"]) == (None, False, "TDBG_CACHE_DIR is empty")
    answer = run(capsys, "config", "--cache", "clear", "--json")
    assert answer.code == 2
    assert answer.json["error"]["what"] == "there is nothing to clear: TDBG_CACHE_DIR is empty"
    assert all(answer.json["error"].values()), "what, where, what to do"


def test_no_room_is_off_and_what_is_there_can_be_cleared(capsys: Capsys, filled: DiskCache, monkeypatch: Env) -> None:
    monkeypatch.setenv("TDBG_CACHE_LIMIT", "0")
    assert run(capsys, "config", "--cache").lines[-1] == "trouble  TDBG_CACHE_LIMIT is 0"
    found = run(capsys, "config", "--cache", "--json").json
    assert (found["enabled"], found["size"]) == (False, on_disk(filled.path))
    assert run(capsys, "config", "--cache", "clear").code == 0
    assert list(filled.path.iterdir()) == []


def test_trouble_is_told(capsys: Capsys, filled: DiskCache, monkeypatch: Env) -> None:
    monkeypatch.setenv("TDBG_CACHE_LIMIT", "much")
    said = "TDBG_CACHE_LIMIT is no size: 'much'. 1 GB is used instead; set it to a size such as 500M, or unset it"
    assert run(capsys, "config", "--cache", "--json").json["trouble"] == said
    monkeypatch.delenv("TDBG_CACHE_LIMIT")
    for path in filled.path.glob("*.sqlite"):
        os.truncate(path, 5000)
    answer = run(capsys, "config", "--cache", "--json")
    assert (answer.code, answer.json["kinds"]) == (0, {})
    assert answer.json["trouble"]


def test_moments_that_no_calendar_has(capsys: Capsys, place: Path, monkeypatch: Env) -> None:
    store = default_store()
    assert store is not None
    monkeypatch.setattr("tui_debugger.cache.database.time.time", lambda: 2**62)
    store.put("records", b"a", b"1")
    store.close()
    answer = run(capsys, "config", "--cache", "--json")
    assert (answer.code, answer.json["oldest"], answer.json["path"]) == (0, None, str(place))
    assert run(capsys, "config", "--cache").code == 0


def test_a_path_cannot_command_the_terminal(capsys: Capsys, tmp_path: Path, monkeypatch: Env) -> None:
    monkeypatch.setenv("TDBG_CACHE_DIR", str(tmp_path / "a\x1b[31m"))
    answer = run(capsys, "config", "--cache")
    assert answer.code == 0
    assert "\x1b" not in answer.out
    assert "a\\x1b[31m" in answer.out


@pytest.mark.parametrize("wrong", [("forget",), ("--nosuch",), ("verify",), ("clear", "dump"), ("info", "dump")])
def test_a_wrong_argument_is_a_document_too(capsys: Capsys, wrong: tuple[str, ...]) -> None:
    answer = run(capsys, "config", "--cache", *wrong, "--json")
    assert (answer.code, answer.json["exit_code"], answer.json["command"]) == (2, 2, "config")
    assert all(answer.json["error"].values())


def test_ctrl_c_is_130_and_a_document(capsys: Capsys, place: Path, monkeypatch: Env) -> None:
    def pressed(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DiskCache, "info", pressed)
    answer = run(capsys, "config", "--cache", "--json")
    assert (answer.code, answer.json["exit_code"], answer.json["path"]) == (130, 130, str(place))


@pytest.mark.usefixtures("place")
def test_verify_of_a_dump_that_was_checked(capsys: Capsys, dump: Path) -> None:
    aged(dump)
    assert run(capsys, "config", "--cache", "verify", dump).out == "nothing is remembered of this dump as it is now\n"
    assert run(capsys, "check", dump, "--watch", "TO").code == 0
    said = run(capsys, "config", "--cache", "verify", dump, "--json")
    assert (said.code, said.json["unread"], said.json["lie"]) == (0, 0, "")
    assert said.json["right"] > 0
    assert "the index is right" in run(capsys, "config", "--cache", "verify", dump).out
