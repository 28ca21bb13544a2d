"""Commands in odd surroundings: streams that are closed, a removed directory, devices and pipes in place of files."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.sources.arrays import write_arrays
from tests.unprivileged import unprivileged

Capsys = pytest.CaptureFixture[str]
DEVICE = "/dev/null"
"""A device that everybody may open; nothing is lost where a test fails."""


def shell(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """What a line of the shell leaves behind; ``tdbg`` in it is the program."""
    program = f"{shlex.quote(sys.executable)} -m tui_debugger"
    return subprocess.run(
        ["bash", "-c", line.replace("tdbg", program)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    """A clean dump of one step."""
    write_arrays(tmp_path / "dump" / "step_0", {"layer": [[1.0, 2.0]]})
    return tmp_path / "dump"


@pytest.mark.parametrize("command", ["open .", "demo", "listen", "dump-config --check -", "dump-config --path /x -o -"])
def test_without_stdin_there_is_an_answer(arrays: Path, command: str) -> None:
    done = shell(f"tdbg {command} <&-", arrays)
    assert done.returncode in {0, 1, 2}
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or done.stdout or "do:" in done.stderr


@pytest.mark.parametrize("path", ["../dump", "."])
def test_a_working_directory_that_was_removed_is_no_failure_to_write(arrays: Path, path: str) -> None:
    done = shell(f"mkdir gone && cd gone && rmdir ../gone && tdbg check {path} --watch TO", arrays.parent)
    assert done.returncode == 2
    assert done.stderr == (
        "tdbg: the working directory cannot be found: No such file or directory\n"
        "  where: .\n  do:    change into one, or name a PATH\n"
    )


@pytest.mark.parametrize(
    "line", [("check", ""), ("check", ".", ""), ("diff", "", "."), ("diff", ".", ""), ("ranks", ".", "--against", "")]
)
def test_an_empty_path_is_not_the_working_directory(
    capsys: Capsys, arrays: Path, monkeypatch: pytest.MonkeyPatch, line: tuple[str, ...]
) -> None:
    monkeypatch.chdir(arrays)
    answer = run(capsys, *line)
    assert answer.code == 2
    assert "is empty" in answer.err
    assert not answer.out


def test_a_device_or_a_pipe_is_no_dump_and_no_dump_beside_it_is_opened(capsys: Capsys, arrays: Path) -> None:
    os.mkfifo(arrays / "pipe")
    for path in (Path(DEVICE), arrays / "pipe"):
        answer = run(capsys, "check", path, "--watch", "TO")
        assert answer.code == 2
        assert "in place of a directory" in answer.err


@pytest.mark.parametrize("option", [("--watch-file",), ("--map-file",)])
def test_a_device_that_never_ends_is_not_read_to_its_end(capsys: Capsys, arrays: Path, option: tuple[str, ...]) -> None:
    command = ("check", arrays) if option == ("--watch-file",) else ("diff", arrays, arrays)
    answer = run(capsys, *command, *option, "/dev/zero")
    assert answer.code == 2
    assert "more than 16,777,216 bytes" in answer.err


def test_rules_may_come_through_a_pipe(arrays: Path) -> None:
    done = shell("""tdbg check . --watch-file <(printf "[[watchpoint]]\\nwatch = 'TO'\\n")""", arrays)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("place", ["pipe", DEVICE, "/dev/stdout"])
def test_what_is_no_file_is_never_replaced(capsys: Capsys, arrays: Path, tmp_path: Path, place: str) -> None:
    target = tmp_path / place  # an absolute path stays what it is
    if place == "pipe":
        os.mkfifo(target)
    before = target.lstat()
    answer = unprivileged(lambda: run(capsys, "report", arrays, "-o", target, "--force"))
    assert answer.code == 2
    assert "never replaced" in answer.err
    assert (target.lstat().st_mode, target.lstat().st_ino) == (before.st_mode, before.st_ino)


@pytest.mark.parametrize("name", [".", "..", "/"])
def test_names_that_are_none_are_no_files(
    capsys: Capsys, arrays: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    for force in ((), ("--force",)):
        answer = run(capsys, "report", arrays, "-o", name, *force)
        assert answer.code == 2
        assert "do:" in answer.err
    assert list((tmp_path / "outer").rglob("*")) == [inner]


def test_the_working_directory_is_filled_and_not_replaced(
    capsys: Capsys, arrays: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    assert run(capsys, "convert", arrays, "-o", ".").code == 0
    assert inner.samefile(".")
    assert run(capsys, "check", ".", "--watch", "TO").code == 0
