"""The bridge: newest work wins, stale answers are dropped, progress is throttled, leaving is quick."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from textual.message import Message

from tui_debugger.errors import CancelledError
from tui_debugger.model import Progress
from tui_debugger.tui import work as bridge_module
from tui_debugger.tui.messages import Answered, Failed, Finished, Progressed
from tui_debugger.tui.work import Report, Workers

WAIT = 10.0


class Inbox:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._changed = threading.Condition()

    def __call__(self, message: Message) -> None:
        with self._changed:
            self.messages.append(message)
            self._changed.notify_all()

    def until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, WAIT)


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


def test_newer_work_replaces_what_waits_and_cancels_what_runs(inbox: Inbox) -> None:
    bridge = Workers(inbox)
    started, seen = threading.Event(), []

    def long(report: Report) -> Finished:
        started.set()
        try:
            while True:
                report(Progress(0, 0))
        except CancelledError:
            seen.append("cancelled")
            raise

    bridge.run("lane", long)
    assert started.wait(WAIT)
    for number in range(50):
        last = bridge.run("lane", lambda _, number=number: Answered(number))
    inbox.until(lambda: bool(inbox.messages))
    assert seen == ["cancelled"]
    answers = [m for m in inbox.messages if isinstance(m, Answered)]
    assert [a.value for a in answers] == [49]
    assert answers[0].request == last
    assert bridge.fresh(answers[0])
    assert not bridge.busy("lane")
    bridge.close()


def test_an_answer_that_was_overtaken_on_the_way_is_not_fresh(inbox: Inbox) -> None:
    bridge = Workers(inbox)
    bridge.run("lane", lambda _: Answered(1))
    inbox.until(lambda: len(inbox.messages) == 1)
    bridge.run("lane", lambda _: Answered(2))
    inbox.until(lambda: len(inbox.messages) == 2)
    assert [bridge.fresh(m) for m in inbox.messages if isinstance(m, Finished)] == [False, True]
    bridge.close()


def test_esc_cancels_and_the_work_says_so(inbox: Inbox) -> None:
    bridge = Workers(inbox)
    started = threading.Event()

    def long(report: Report) -> Finished:
        started.set()
        while True:
            report(Progress(0, 0, "step 3"))

    bridge.run("lane", long)
    assert started.wait(WAIT)
    assert bridge.cancel("lane")
    inbox.until(lambda: any(isinstance(m, Failed) for m in inbox.messages))
    (failed,) = (m for m in inbox.messages if isinstance(m, Failed))
    assert isinstance(failed.error, CancelledError)
    assert not bridge.cancel("lane")
    assert not bridge.cancel("no such lane")
    bridge.close()


def test_whatever_a_worker_raises_reaches_the_screen(inbox: Inbox) -> None:
    bridge = Workers(inbox)

    def broken(_: Report) -> Finished:
        raise ZeroDivisionError

    bridge.run("lane", broken)
    inbox.until(lambda: len(inbox.messages) == 1)
    assert isinstance(inbox.messages[0], Failed)
    bridge.run("lane", lambda _: Answered("goes on"))
    inbox.until(lambda: len(inbox.messages) == 2)
    bridge.close()


def test_progress_comes_at_most_four_times_a_second_and_replaces_itself(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(bridge_module.time, "monotonic", lambda: now[0])

    def work(report: Report) -> Finished:
        for step in range(1000):
            now[0] += 0.01
            report(Progress(step, 1000))
        return Answered(None)

    bridge = Workers(inbox)
    bridge.run("lane", work)
    inbox.until(lambda: any(isinstance(m, Answered) for m in inbox.messages))
    told = [m for m in inbox.messages if isinstance(m, Progressed)]
    assert 30 <= len(told) <= 41  # ten seconds
    assert told[1].can_replace(told[0])
    assert not told[1].can_replace(Answered(None))
    monkeypatch.undo()
    bridge.close()


def test_leaving_does_not_wait_for_work_that_never_ends(inbox: Inbox) -> None:
    bridge = Workers(inbox)
    started, gate = threading.Event(), threading.Event()

    def deaf(_: Report) -> Finished:
        started.set()
        gate.wait()
        return Answered("too late")

    bridge.run("lane", deaf)
    assert started.wait(WAIT)
    begin = time.monotonic()
    bridge.close(timeout=0.05)
    assert time.monotonic() - begin < 5
    threads = [t for t in threading.enumerate() if t.name == "tdbg-lane"]
    assert all(t.daemon for t in threads)
    gate.set()
    for thread in threads:
        thread.join(WAIT)
    assert inbox.messages == []
