"""Output that a thread writes: whoever prints never waits, nothing is lost in silence, failures are told."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterator
from typing import TextIO, cast

import pytest

from tests.patience import PATIENCE
from tui_debugger.text.backlog import Backlog, StreamBehind, writing_behind
from tui_debugger.text.writer import write_errors, write_lines


class Stalled(io.StringIO):
    """A stream whose reader does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = threading.Event()

    def write(self, text: str, /) -> int:
        assert self.reads.wait(PATIENCE)
        return super().write(text)


@pytest.fixture
def stalled() -> Iterator[Stalled]:
    stream = Stalled()
    yield stream
    stream.reads.set()


def test_who_prints_does_not_wait_and_all_arrives_in_order(stalled: Stalled) -> None:
    backlog = Backlog()
    stream = StreamBehind(backlog, stalled)
    for number in range(1000):
        stream.write(f"{number}\n")
    stalled.reads.set()
    backlog.drain()
    assert stalled.getvalue().split() == [str(number) for number in range(1000)]
    assert backlog.take_all() == 0


def test_lines_without_room_are_counted_and_the_last_words_have_room(stalled: Stalled) -> None:
    backlog = Backlog(room=100)
    stream = StreamBehind(backlog, stalled)
    for _ in range(30):
        stream.write(9 * "x" + "\n")
    assert backlog.take_all() == 20
    stream.write("the end\n")
    stalled.reads.set()
    backlog.drain()
    assert stalled.getvalue().splitlines() == 10 * [9 * "x"] + ["the end"]


def test_in_a_hurry_the_end_does_not_wait_for_a_reader(stalled: Stalled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui_debugger.text.backlog._HURRY", 0.0)
    backlog = Backlog()
    StreamBehind(backlog, stalled).write("line\n")
    backlog.hurry = True
    backlog.drain()
    assert not stalled.getvalue()


def test_stdout_and_stderr_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    both = io.StringIO()
    monkeypatch.setattr(sys, "stdout", both)
    monkeypatch.setattr(sys, "stderr", both)
    with writing_behind():
        write_lines("one")
        write_errors("two")
        write_lines("three")
    assert both.getvalue().split() == ["one", "two", "three"]
    assert sys.stdout is both


def test_a_pipe_whose_reader_went_away_is_told_to_who_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stream:
        monkeypatch.setattr(sys, "stdout", cast("TextIO", stream))
        with pytest.raises(BrokenPipeError), writing_behind():
            write_lines("nobody reads this")
        assert sys.stdout is stream
