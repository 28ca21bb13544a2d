"""Environment variables that make no sense count as not set, and every command says so once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import run
from tui_debugger.demo import demo_dump
from tui_debugger.environment import command_of, size_of, switch_of, user_directory
from tui_debugger.errors import TdbgError

Capsys = pytest.CaptureFixture[str]
Env = pytest.MonkeyPatch
Dumps = Callable[[str], Path]


@pytest.mark.parametrize(
    ("text", "off"),
    [("", False), ("on", False), ("off", True), (" OFF ", True), ("On", False), ("no", False), ("0", False)],
)
def test_switches(monkeypatch: Env, text: str, off: bool) -> None:
    monkeypatch.setenv("TDBG_X", text)
    found = switch_of("TDBG_X")
    assert found.off is off
    assert bool(found.wrong) == (text in {"no", "0"})
    assert not found.wrong or found.wrong.startswith(f"TDBG_X is neither on nor off: {text!r}")


def test_what_is_not_set_is_not_wrong(monkeypatch: Env) -> None:
    monkeypatch.delenv("TDBG_X", raising=False)
    assert switch_of("TDBG_X") == (False, "")
    assert size_of("TDBG_X", 5) == (5, "")
    assert command_of("TDBG_X", "less -R") == (["less", "-R"], "")


def test_a_command_that_no_shell_understands(monkeypatch: Env) -> None:
    monkeypatch.setenv("TDBG_X", "less '")
    found = command_of("TDBG_X", "less")
    assert found.words == []
    assert found.wrong.startswith('TDBG_X is no command: "less \'"')


@pytest.mark.parametrize("variable", ["TDBG_CACHE_LIMIT", "TDBG_KERNEL"])
def test_every_command_that_reads_a_dump_says_it_once_and_goes_on(
    capsys: Capsys, dumps: Dumps, monkeypatch: Env, variable: str
) -> None:
    dump = dumps("mindspore-2.0-nan")
    commands = [
        *([name, dump] for name in ("check", "origin", "ls", "health", "ranks", "stat", "report")),
        ["ls", dump, "--steps"],
        ["show", dump, "Default/network-TrainOneStepCell/network-WithLossCell/_backbone-Net/Log-op0", "--step", "3"],
    ]
    for words in commands:
        monkeypatch.delenv(variable, raising=False)
        before = run(capsys, *words)
        monkeypatch.setenv(variable, "abc")
        after = run(capsys, *words)
        assert after.code == before.code
        assert after.err.count(variable) == 1, words
        assert "'abc'" in after.err
    monkeypatch.setenv(variable, "abc")
    assert [each for each in run(capsys, "check", dump, "--json").json["notices"] if variable in each]


def test_without_the_index_its_size_is_no_matter(capsys: Capsys, dumps: Dumps, monkeypatch: Env) -> None:
    monkeypatch.setenv("TDBG_CACHE_LIMIT", "abc")
    assert "TDBG_CACHE_LIMIT" not in run(capsys, "check", dumps("mindspore-2.0-nan"), "--no-cache").err


def test_a_directory_of_the_user_does_not_move_with_the_working_directory(monkeypatch: Env, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_X_HOME", "/elsewhere")
    assert user_directory("XDG_X_HOME", ".local/x") == Path("/elsewhere/tdbg")
    for ignored in ("", "relative", "./here"):
        monkeypatch.setenv("XDG_X_HOME", ignored)
        assert user_directory("XDG_X_HOME", ".local/x") == tmp_path / ".local/x/tdbg"


def test_the_demo_says_where_it_could_not_be_unpacked(monkeypatch: Env, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(TdbgError) as caught:
        demo_dump()
    assert caught.value.where == str(tmp_path / "file" / "tdbg")

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(TdbgError, match="Could not determine home directory") as caught:
        demo_dump()
    assert caught.value.where == "XDG_CACHE_HOME"
