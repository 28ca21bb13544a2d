"""Work beside the event loop: newest work wins, stale results are dropped, progress is throttled, leaving is quick."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from textual._context import NoActiveAppError
from textual.message import Message

from tests.patience import PATIENCE
from tui_debugger.errors import CancelledError
from tui_debugger.model import Progress
from tui_debugger.tui import work as work_module
from tui_debugger.tui.work import Delivery, JobProgress, JobRunner


class Inbox:
    """An event loop of a kind: keeps what threads post until a test delivers it."""

    def __init__(self) -> None:
        self.messages: list[Delivery] = []
        self.results: list[Any] = []
        self.errors: list[Exception] = []
        self._changed = threading.Condition()
        self.workers = JobRunner(self, self.errors.append)

    def __call__(self, message: Message) -> None:
        assert isinstance(message, Delivery)
        with self._changed:
            self.messages.append(message)
            self._changed.notify_all()

    def until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE)

    def run(self, job: Callable[[JobProgress], Any], **options: Any) -> int:
        return self.workers.run("lane", job, self.results.append, **options)

    def deliver(self) -> None:
        with self._changed:
            messages, self.messages = self.messages, []
        for message in messages:
            message.deliver()


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


def test_newer_work_replaces_what_waits_and_cancels_what_runs(inbox: Inbox) -> None:
    started, seen = threading.Event(), []

    def long(report: JobProgress) -> None:
        started.set()
        try:
            while True:
                report(Progress(0, 0))
        except CancelledError:
            seen.append("cancelled")
            raise

    inbox.run(long)
    assert started.wait(PATIENCE)
    numbers = [inbox.run(lambda _, number=number: number) for number in range(50)]
    assert numbers == sorted(set(numbers))
    inbox.until(lambda: bool(inbox.messages))
    inbox.deliver()
    assert seen == ["cancelled"]
    assert inbox.results == [49]
    assert not inbox.errors
    assert inbox.workers.idle
    inbox.workers.close()


def test_a_result_that_was_overtaken_on_the_way_is_dropped(inbox: Inbox) -> None:
    inbox.run(lambda _: 1)
    inbox.until(lambda: len(inbox.messages) == 1)
    inbox.run(lambda _: 2)
    inbox.until(lambda: len(inbox.messages) == 2)
    inbox.deliver()
    assert inbox.results == [2]
    inbox.workers.close()


def test_it_is_idle_only_once_the_results_are_handed_over(inbox: Inbox) -> None:
    workers = inbox.workers
    seen: list[bool] = []
    workers.run("lane", lambda report: report.partial(1), lambda _: seen.append(workers.idle))
    inbox.until(lambda: len(inbox.messages) == 2)
    assert not workers.busy("lane")
    assert not workers.idle
    inbox.deliver()
    assert seen == [False, False]
    assert workers.idle
    workers.close()


def test_a_screen_that_is_gone_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def post(_: Message) -> None:
        sent.set()
        raise NoActiveAppError

    sent, raised = threading.Event(), []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    workers = JobRunner(post, lambda _: None)
    workers.run("lane", lambda _: 1, lambda _: None)
    assert sent.wait(PATIENCE)
    workers.close(PATIENCE)
    assert raised == []


def test_partial_results_come_before_the_last_one(inbox: Inbox) -> None:
    def job(report: JobProgress) -> str:
        report.partial("some")
        return "all"

    inbox.run(job)
    inbox.until(lambda: len(inbox.messages) == 2)
    inbox.deliver()
    assert inbox.results == ["some", "all"]
    inbox.workers.close()


def test_who_waits_gets_what_is_there_in_time_before_the_call_returns(inbox: Inbox) -> None:
    inbox.run(lambda _: "quick", wait=PATIENCE)
    assert inbox.results == ["quick"]
    inbox.run(lambda _: 1 / 0, wait=PATIENCE)
    assert [type(error) for error in inbox.errors] == [ZeroDivisionError]
    assert inbox.messages == []
    gate = threading.Event()
    inbox.run(lambda _: gate.wait(PATIENCE) and "slow", wait=0.001)
    assert inbox.results == ["quick"]
    gate.set()
    inbox.until(lambda: len(inbox.messages) == 1)
    inbox.deliver()
    assert inbox.results == ["quick", "slow"]
    assert inbox.workers.idle
    inbox.workers.close()


def test_esc_cancels_and_the_work_says_so(inbox: Inbox) -> None:
    started = threading.Event()

    def long(report: JobProgress) -> None:
        started.set()
        while True:
            report(Progress(0, 0, "step 3"))

    workers = inbox.workers
    mine: list[Exception] = []
    inbox.run(long, failed=mine.append, progressed=lambda _: None)
    assert started.wait(PATIENCE)
    assert workers.cancel("lane")
    inbox.until(lambda: not workers.busy("lane") and bool(inbox.messages))
    inbox.deliver()
    assert [type(error) for error in mine] == [CancelledError]
    assert not inbox.errors
    assert not workers.cancel("lane")
    assert not workers.cancel("no such lane")
    workers.close()


def test_whatever_a_job_raises_reaches_the_screen(inbox: Inbox) -> None:
    def broken(_: JobProgress) -> None:
        raise ZeroDivisionError

    inbox.run(broken)
    inbox.until(lambda: len(inbox.messages) == 1)
    inbox.deliver()
    assert [type(error) for error in inbox.errors] == [ZeroDivisionError]
    inbox.run(lambda _: "goes on")
    inbox.until(lambda: len(inbox.messages) == 1)
    inbox.deliver()
    assert inbox.results == ["goes on"]
    inbox.workers.close()


def test_progress_comes_at_most_four_times_a_second_and_replaces_itself(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(work_module.time, "monotonic", lambda: now[0])

    def job(report: JobProgress) -> str:
        for step in range(1000):
            now[0] += 0.01
            report(Progress(step, 1000))
        return "done"

    told: list[Progress] = []
    inbox.run(job, progressed=told.append)
    inbox.until(lambda: not inbox.workers.busy("lane") and inbox.messages[-1].replaces is None)
    first, second, *_, last = inbox.messages
    assert second.can_replace(first)
    assert not last.can_replace(first)
    assert not second.can_replace(last)
    inbox.deliver()
    assert 30 <= len(told) <= 41  # ten seconds
    assert inbox.results == ["done"]
    monkeypatch.undo()
    inbox.workers.close()


def test_a_lane_shows_how_far_it_is_until_it_ends(inbox: Inbox) -> None:
    gate = threading.Event()
    workers = inbox.workers
    inbox.run(lambda _: gate.wait(PATIENCE))
    workers.show_progress("lane", Progress(1, 2))
    assert workers.cancel_shown()
    gate.set()
    inbox.until(lambda: bool(inbox.messages))
    inbox.deliver()
    assert not workers.progress
    assert not workers.cancel_shown()
    workers.close()


def test_threads_of_others_reach_the_event_loop_the_same_way(inbox: Inbox) -> None:
    thread = threading.Thread(target=lambda: inbox.workers.call(lambda: inbox.results.append("called"), "what"))
    thread.start()
    thread.join(PATIENCE)
    inbox.workers.call(lambda: None, "what")
    inbox.workers.call(lambda: None)
    called, same, other = inbox.messages
    assert same.can_replace(called)
    assert not other.can_replace(called)
    inbox.deliver()
    assert inbox.results == ["called"]


def test_leaving_does_not_wait_for_work_that_never_ends(inbox: Inbox) -> None:
    workers = inbox.workers
    started, gate = threading.Event(), threading.Event()

    def deaf(_: JobProgress) -> str:
        started.set()
        gate.wait()
        return "too late"

    inbox.run(deaf)
    assert started.wait(PATIENCE)
    begin = time.monotonic()
    workers.close(timeout=0.05)
    assert time.monotonic() - begin < 5
    threads = [t for t in threading.enumerate() if t.name == "tdbg-lane"]
    assert all(t.daemon for t in threads)
    gate.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert inbox.messages == []
