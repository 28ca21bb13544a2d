"""``tdbg listen --no-screen`` whose output nobody reads: trainings go on, Ctrl-C works, what is missing is counted."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.scripted import ScriptedClient
from tests.live.session.doubles import NET
from tests.patience import PATIENCE

STEPS = 200


@pytest.fixture
def address() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="tdbg") as directory:
        yield f"unix:{directory}/s"


@contextlib.contextmanager
def listening(address: str, *options: object) -> Iterator[subprocess.Popen[str]]:
    """Output and errors in one pipe, of which nothing is read but that it listens."""
    command = [sys.executable, "-m", "tui_debugger", "listen", "--no-screen", "--host", address, *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        assert "waiting for a training" in process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def train(address: str, bad: int) -> None:
    """A training with findings in so many steps, from its beginning to its end, which comes in time."""
    steps = ",".join(map(str, range(bad)))
    command = [sys.executable, "-m", "tests.cli.recorder_program", address, str(bad or 3), f"bad={steps}", "begin=1"]
    subprocess.run(command, check=True, timeout=PATIENCE, cwd=Path(__file__).resolve().parents[2])


def documents(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_a_training_of_hundreds_of_steps_with_findings_goes_to_its_end(address: str, tmp_path: Path) -> None:
    """It stands at every finding, to be saved: who lets it go must not wait for a reader."""
    with listening(address, "--watch", "TO", "--json", "--save", tmp_path / "dump") as process:
        train(address, STEPS)
        out, _ = process.communicate(timeout=PATIENCE)
        *hits, summary = documents(out)
        assert len(out) > 1 << 17, "more than a pipe holds"
        assert (process.returncode, summary["findings"], summary["unprinted"]) == (1, len(hits), 0)
        assert len(hits) == 2 * STEPS
        assert summary["steps"] == [{"rank": 0, "steps": STEPS}]


def test_ctrl_c_ends_it_although_nobody_reads(address: str) -> None:
    with listening(address, "--watch", "TO", "--json") as process, contextlib.closing(ScriptedClient(address)) as other:
        other.hello()  # which is waited for when the other training has ended
        other.graph(NET)
        train(address, STEPS // 2)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 128 + signal.SIGINT
        assert process.stdout is not None
        assert "summary" not in process.stdout.read(), "the pipe was full"


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize("bad", [False, True], ids=["healthy", "bad"])
def test_on_a_full_disk_what_was_found_is_saved_and_counted(
    address: str, tmp_path: Path, options: tuple[str, ...], bad: bool
) -> None:
    """A result that cannot be written is none: 2, as of other commands. Without one there is nothing to write."""
    given = ("--host", address, "--watch", "TO", "--save", str(tmp_path / "dump"), *options)
    command = [sys.executable, "-m", "tui_debugger", "listen", "--no-screen", *given]
    with (
        Path("/dev/full").open("w") as full,
        subprocess.Popen(command, stdout=full, stderr=subprocess.PIPE, text=True) as process,
    ):
        assert process.stderr is not None
        assert "waiting for a training" in process.stderr.readline()
        train(address, 3 if bad else 0)
        said = process.stderr.read()
        assert process.wait(PATIENCE) == (2 if bad or options else 0)
    assert ("the output could not be written: No space left on device" in said) == (bad or bool(options))
    assert len(re.findall(r"FINDINGS: [246] findings", said)) == bad
    assert any((tmp_path / "dump").rglob("*.npy")) == bad
