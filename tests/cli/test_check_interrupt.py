"""Ctrl-C stops a check at once, and what was finished is told."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.checking import check
from tests.cli.terminals import Terminal
from tests.sources.writer import MLP, huge_file, write_dump
from tui_debugger.check import pipeline
from tui_debugger.errors import CancelledError
from tui_debugger.model import Progress, ProgressFn
from tui_debugger.session.session import Session

Capsys = pytest.CaptureFixture[str]

RELU = MLP.nodes[1].name


def with_huge_step(root: Path, step: int) -> Path:
    """A dump whose step cannot be finished by anybody who waits for it."""
    write_dump(root, steps=range(step + 3))
    np.save(next(root.glob("rank_0/Net/0/0/ReLU*output*")), np.array([np.nan, 1], np.float32))
    huge_file(next(root.glob(f"rank_0/Net/0/{step}/ReLU*output*")))
    return root


def test_ctrl_c_in_the_middle_of_a_tensor(tmp_path: Path) -> None:
    shell = Terminal(200, "check", str(with_huge_step(tmp_path, 2)), "--watch", "TO")
    shell.until("rank 0 step 2")
    code = shell.interrupt()
    assert code == 130
    lines = shell.out.splitlines()
    assert lines[1].endswith(f"NaN 1 of 2  {RELU}:out:0")
    assert "12 tensors checked, 0 unreadable, 10 skipped, 0 not comparable; steps 0,1; rank 0" in lines
    assert lines[-1] == "interrupted: 2 of 5 steps checked; NaN in 1 tensor at step 0, 1 origin ◆"
    assert shell.err.endswith("\r\x1b[K"), "nothing of the bar is left"
    assert "█" in shell.err
    assert "Traceback" not in shell.err


def test_ctrl_c_leaves_one_json_document(tmp_path: Path) -> None:

    shell = Terminal(200, "check", str(with_huge_step(tmp_path, 1)), "--json", "--watch", "TO")
    shell.until("rank 0 step 1")
    code = shell.interrupt()
    found = json.loads(shell.out)
    assert (code, found["exit_code"], found["verdict"], found["cancelled"]) == (130, 130, "interrupted", True)
    assert found["coverage"]["pairs"] == [{"rank": 0, "step": 0}]
    assert found["coverage"]["pairs_asked"] == 4
    assert [hit["node"] for hit in found["hits"]] == [RELU]


def cancelled_at(text: str) -> Callable[[ProgressFn], ProgressFn]:
    """Progress that is cancelled when it speaks of something."""

    def wrap(progress: ProgressFn) -> ProgressFn:
        def tell(snapshot: Progress) -> None:
            if text in snapshot.text:
                raise CancelledError("interrupted")
            progress(snapshot)

        return tell

    return wrap


@pytest.fixture
def stop_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def stop(text: str) -> None:
        real = Session.check

        def checked(self: Session, pairs: object, progress: ProgressFn, *rest: object) -> object:
            return real(self, pairs, cancelled_at(text)(progress), *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(Session, "check", checked)
        monkeypatch.setattr(pipeline, "MOST", 1)  # step by step, so that it is known what is finished when

    return stop


def test_what_was_finished_before_a_cancellation_is_printed(
    capsys: Capsys, tmp_path: Path, stop_at: Callable[[str], None]
) -> None:
    root = write_dump(tmp_path, ranks=(0, 1)).root
    stop_at("rank 1 step 1")
    answer = check(capsys, root, "--watch", "TO @ node=nosuch", "--watch", "TO")
    assert answer.code == 130
    assert (
        "18 tensors checked, 0 unreadable, 15 skipped, 0 not comparable; steps 0,1; ranks 0,1; 3 of these pairs: "
        "rank 1 without step 1" in answer.out
    )
    assert answer.last == "interrupted: 3 of 6 steps (ranks 0,1 so far) checked; no finding so far"
    assert "cannot judge" not in answer.out, "what was not looked at yet is no reproach"


def test_a_cancellation_before_the_first_step_is_over(
    capsys: Capsys, tmp_path: Path, stop_at: Callable[[str], None]
) -> None:
    root = write_dump(tmp_path).root
    stop_at("rank 0 step 0")
    answer = check(capsys, root, "--watch", "TO")
    assert answer.code == 130
    assert "0 tensors checked, 0 unreadable, 0 skipped, 0 not comparable; steps none; ranks none" in answer.lines
    assert answer.last == "interrupted: 0 of 3 steps checked; no finding so far"


def test_ctrl_c_between_two_steps_loses_nothing(
    capsys: Capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal is raised wherever the program is: here where a step was judged, but not yet gathered."""
    root = write_dump(tmp_path).root
    real, calls = Session.check, []

    def between(self: Session, pairs: object, *rest: object) -> object:
        calls.append(pairs)
        real(self, pairs[:2], *rest)  # type: ignore[index, arg-type]
        raise CancelledError("interrupted")

    monkeypatch.setattr(Session, "check", between)
    answer = check(capsys, root, "--watch", "TO")
    assert answer.code == 130
    assert answer.last == "interrupted: 2 of 3 steps checked; no finding so far"
    assert calls


def test_ctrl_c_while_the_dump_is_opened(capsys: Capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opening(_: Session, progress: ProgressFn, *, tree: bool) -> None:  # noqa: ARG001 - the signature of Session.open
        os.kill(os.getpid(), signal.SIGINT)
        progress(Progress(0, 0, "unreachable"))

    monkeypatch.setattr(Session, "open", opening)
    root = write_dump(tmp_path, steps=[0]).root
    answer = check(capsys, root, "--json")
    assert (answer.code, answer.json["verdict"], answer.json["exit_code"]) == (130, "interrupted", 130)
    assert answer.err == "tdbg: interrupted\n"


def test_the_signal_handler_is_put_back(capsys: Capsys, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    check(capsys, write_dump(tmp_path, steps=[0]).root, "--watch", "TO")
    assert signal.getsignal(signal.SIGINT) is before
