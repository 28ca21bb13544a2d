"""The screen is opened on a terminal or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import run


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--map-step", "0:1"), "--map-step is for two runs"),
        (("--against", "/does/not/exist"), "/does/not/exist"),
        (("--against", "PATH", "--map-name", "nonsense"), "is no substitution"),
        (("--against", "PATH", "--map-rank", "x"), "is not two numbers"),
    ],
)
def test_another_run_that_cannot_be_compared_is_refused_in_the_shell(
    capsys: pytest.CaptureFixture[str], dumps: Callable[[str], Path], words: tuple[str, ...], says: str
) -> None:
    dump = str(dumps("mindspore-2.0-mlp"))
    answer = run(capsys, "open", dump, *(dump if word == "PATH" else word for word in words))
    assert answer.code == 2
    assert says in answer.err


@pytest.mark.parametrize("redirected", ["stdin", "stdout", "stderr"])
def test_a_stream_that_is_no_terminal_is_refused_in_the_shell(dumps: Callable[[str], Path], redirected: str) -> None:
    ours, its = os.openpty()
    dump = str(dumps("mindspore-2.0-nan"))
    try:
        streams = {name: subprocess.PIPE if name == redirected else its for name in ("stdin", "stdout", "stderr")}
        process = subprocess.Popen([sys.executable, "-m", "tui_debugger", "open", dump], **streams)
        try:
            errors = process.communicate(timeout=60)[1]
        finally:
            process.kill()
        said = (errors if redirected == "stderr" else os.read(ours, 10_000)).decode()
    finally:
        os.close(its)
        os.close(ours)
    assert process.returncode == 2
    assert "the screen needs a terminal" in said
    assert "Traceback" not in said
