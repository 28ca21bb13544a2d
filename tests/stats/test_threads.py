"""Work never waits behind work that waits."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from tui_debugger.stats.workers import DaemonThreads


def test_every_piece_of_work_gets_a_thread_while_the_others_are_held() -> None:
    """Each waits for the next one to be there: a single one that is queued behind another stops them all."""
    threads = DaemonThreads(400, "test")
    for _ in range(20):
        arrived = [threading.Event() for _ in range(20)]

        def work(number: int, arrived: list[threading.Event] = arrived) -> int:
            arrived[number].set()
            assert arrived[(number + 1) % len(arrived)].wait(20)
            return number

        futures = [threads.submit(work, number) for number in range(len(arrived))]
        assert [future.result(20) for future in futures] == list(range(len(arrived)))
    threads.shutdown()


def test_no_more_threads_than_allowed() -> None:
    threads = DaemonThreads(2, "test")
    gate, names = threading.Event(), set()

    def work() -> None:
        names.add(threading.current_thread().name)
        gate.wait(20)

    futures = [threads.submit(work) for _ in range(6)]
    gate.set()
    for future in futures:
        future.result(20)
    assert len(names) <= 2
    threads.shutdown()


def test_what_work_raises_is_kept_for_who_asks_and_its_thread_goes_on() -> None:
    threads = DaemonThreads(1, "test")
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result(20)
    assert threads.submit(lambda: 7).result(20) == 7
    threads.shutdown()
    with pytest.raises(RuntimeError):
        threads.submit(lambda: 7)


def test_what_is_queued_is_dropped_on_request() -> None:
    threads = DaemonThreads(1, "test")
    begun, gate = threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return gate.wait(20)

    running, queued = threads.submit(work), threads.submit(lambda: 7)
    assert begun.wait(20)
    threads.shutdown(cancel_futures=True)
    assert queued.cancelled()
    gate.set()
    assert running.result(20)


HELD_UP = """
import os, sys
from tui_debugger.errors import CancelledError
from tui_debugger.stats.workers import WORTH_HANDING_OVER, MeasureWorkers

reading, _ = os.pipe()  # nobody ever writes
workers, started = MeasureWorkers(2), []

def read(_):
    started.append(1)
    os.read(reading, 1)

def interrupted():
    if started:
        raise CancelledError("as Ctrl-C does")

try:
    list(workers.map(read, [1, 2], WORTH_HANDING_OVER, interrupted))
except CancelledError:
    workers.close()
    sys.exit(7)
"""


def test_a_read_that_never_ends_does_not_hold_up_the_end_of_the_program() -> None:
    assert subprocess.run([sys.executable, "-c", HELD_UP], check=False, timeout=60).returncode == 7
