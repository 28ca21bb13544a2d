"""``tdbg listen --no-screen`` whose output nobody reads: trainings go on, Ctrl-C works, what is missing is counted."""

from __future__ import annotations

import contextlib
import json
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


def train(address: str, steps: int) -> None:
    """A training with findings in every step, from its beginning to its end, which comes in time."""
    bad = ",".join(map(str, range(steps)))
    command = [sys.executable, "-m", "tests.cli.recorder_program", address, str(steps), f"bad={bad}", "begin=1"]
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
