"""Worker processes: what they load, how they start and end, and what happens when they are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tui_debugger.errors import TdbgError
from tui_debugger.stats import workers as module
from tui_debugger.stats.cluster import executor_of
from tui_debugger.stats.workers import WORTH_HANDING_OVER, WORTH_STARTING, LostWorkerError, Pool, Workers, cores

DEADLINE = 60


def until(condition: Callable[[], Any]) -> Any:
    """Waits for a condition and returns what it said."""
    end = time.monotonic() + DEADLINE
    while not (answer := condition()):
        assert time.monotonic() < end, "nothing happened"
        os.sched_yield()
    return answer


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and that nobody asked for counts as gone."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def pids(pool: Pool) -> list[int]:
    """The processes of a pool that is ready with all of them."""
    pool.start()
    until(lambda: pool._threads.ready == pool._max_workers)
    return sorted(process._process.pid for process in pool._threads._processes)


class Stubborn(Exception):  # noqa: N818 - it is no error of anybody's
    """Cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("with a lambda")
        self.what = lambda: None


def raise_stubborn() -> None:
    """What a worker is asked to do."""
    raise Stubborn


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(2)
    yield made
    made.shutdown()


def test_a_call_is_answered_by_another_process(pool: Pool) -> None:
    assert pool.submit(pow, 2, 5).result(DEADLINE) == 32
    worker = pool.submit(os.getpid).result(DEADLINE)
    assert worker in pids(pool)
    assert worker != os.getpid()


def test_what_a_call_raises_comes_back(pool: Pool) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        pool.submit(int, "x").result(DEADLINE)
    assert pool.submit(int, "7").result(DEADLINE) == 7


def test_what_cannot_be_sent_back_is_told(pool: Pool) -> None:
    with pytest.raises(TypeError, match="pickle"):
        pool.submit(open, os.devnull).result(DEADLINE)
    with pytest.raises(RuntimeError, match="Stubborn: with a lambda"):
        pool.submit(raise_stubborn).result(DEADLINE)


def test_what_cannot_be_sent_is_the_callers_mistake(pool: Pool) -> None:
    with pytest.raises(Exception, match="lambda"):
        pool.submit(lambda: 1).result(DEADLINE)
    with pytest.raises(TypeError, match="keyword"):
        pool.submit(int, "7", base=8)
    assert pool.submit(int, "7").result(DEADLINE) == 7


def test_what_a_worker_prints_goes_nowhere(pool: Pool, capfd: pytest.CaptureFixture[str]) -> None:
    assert pool.submit(os.system, "echo out; echo err >&2").result(DEADLINE) == 0
    assert pool.submit(print, "out").result(DEADLINE) is None
    assert capfd.readouterr() == ("", "")


def test_a_worker_loads_nothing_but_analysis(pool: Pool) -> None:
    loaded = set(pool.submit(eval, "sorted(__import__('sys').modules)").result(DEADLINE))
    assert {"numpy", "ml_dtypes", "tui_debugger.stats.measure"} <= loaded
    assert not loaded & {"textual", "rich", "sqlite3", "google", "grpc", "tui_debugger.session", "tui_debugger.sources"}


def test_a_worker_is_single_threaded(pool: Pool) -> None:
    assert len(pool.submit(os.listdir, "/proc/self/task").result(DEADLINE)) == 1


def test_a_busy_worker_that_is_killed_is_replaced_and_its_task_is_known_to_be_lost(pool: Pool) -> None:
    first, second = pids(pool)
    for pid in (first, second):
        os.kill(pid, signal.SIGSTOP)  # whatever they are given now, they are in the middle of it
    tasks = [pool.submit(os.getpid) for _ in range(2)]
    until(lambda: all(task.running() for task in tasks))
    os.kill(first, signal.SIGKILL)
    os.kill(second, signal.SIGCONT)
    until(lambda: all(task.done() for task in tasks))
    outcomes = [task.exception() or task.result() for task in tasks]
    assert second in outcomes
    assert [type(outcome) for outcome in outcomes if outcome != second] == [LostWorkerError]
    assert first not in pids(pool)
    assert pool.submit(pow, 2, 5).result(DEADLINE) == 32


def test_a_pool_whose_workers_die_again_and_again_gives_up(pool: Pool) -> None:
    killed = 0
    while not pool.broken:
        with pytest.raises(BrokenExecutor):
            pool.submit(os._exit, 1).result(DEADLINE)
        killed += 1
    assert killed <= 6


@pytest.mark.parametrize("reason", ["limits", "import", "frozen"])
def test_a_machine_without_workers(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    if reason == "limits":

        def refused(*_: Any, **__: Any) -> None:
            raise BlockingIOError(11, "Resource temporarily unavailable")

        monkeypatch.setattr(subprocess, "Popen", refused)
    elif reason == "import":
        monkeypatch.setattr(module, "START", "import nothing_of_this_name")
    else:
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    pool = Pool(2)
    with pytest.raises(BrokenExecutor):
        pool.submit(os.getpid).result(DEADLINE)
    until(lambda: pool.broken)
    with pytest.raises(BrokenExecutor):
        pool.submit(os.getpid)
    assert not pool.ready
    pool.shutdown()


def test_shutting_down_ends_busy_workers_at_once() -> None:
    pool = Pool(2)
    workers = pids(pool)
    tasks = [pool.submit(time.sleep, 3600) for _ in range(5)]
    until(lambda: tasks[0].running() and tasks[1].running())
    pool.shutdown()
    assert not any(alive(pid) for pid in workers)
    for task in tasks:
        with pytest.raises(BrokenExecutor):
            task.result(DEADLINE)
    with pytest.raises(BrokenExecutor):
        pool.submit(os.getpid)
    pool.shutdown()


def test_shutting_down_while_the_workers_start_leaves_none() -> None:
    pool = Pool(2)
    pool.start()
    threads = pool._threads
    until(lambda: threads._processes)
    started = [process._process.pid for process in threads._processes]
    pool.shutdown()
    until(lambda: not threads._running)
    assert not threads._processes
    assert not any(alive(pid) for pid in started)


def test_a_cancelled_call_is_not_made(pool: Pool) -> None:
    for pid in pids(pool):
        os.kill(pid, signal.SIGSTOP)
    tasks = [pool.submit(os.getpid) for _ in range(3)]
    until(lambda: tasks[0].running() and tasks[1].running())
    assert tasks[2].cancel()
    for pid in pids(pool):
        os.kill(pid, signal.SIGCONT)
    assert {task.result(DEADLINE) for task in tasks[:2]} == set(pids(pool))


PROGRAM = """
import json, os, signal, sys
from tui_debugger.stats.workers import Pool
if __name__ != "__main__":
    raise SystemExit("a worker must not run the program again")
pool = Pool(2)
pool.start()
while pool._threads.ready < 2:
    os.sched_yield()
print(json.dumps([process._process.pid for process in pool._threads._processes]), flush=True)
{then}
"""


def program(then: str, tmp_path: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A program with a pool, and the processes of that."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(then=then))
    process = subprocess.Popen(
        [sys.executable, "-W", "error", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


@pytest.mark.parametrize("then", ["", "pool.submit(__import__('time').sleep, 3600)", "del pool"])
def test_a_pool_that_is_forgotten_ends_with_the_program(tmp_path: Path, then: str) -> None:
    process, workers = program(then, tmp_path)
    out, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out, err) == (0, "", "")
    assert not any(alive(pid) for pid in workers)


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    process, workers = program("signal.pause()", tmp_path)
    assert all(alive(pid) for pid in workers)
    process.kill()
    process.communicate(timeout=DEADLINE)
    until(lambda: not any(alive(pid) for pid in workers))


def test_ctrl_c_is_for_the_parent_alone(tmp_path: Path) -> None:
    then = """
task = pool.submit(eval, "[__import__('time').sleep(0.001) for _ in range(5)] and 7")
try:
    os.killpg(0, signal.SIGINT)
    signal.pause()
except KeyboardInterrupt:
    print(task.result(60))
"""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(then=then))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=DEADLINE, start_new_session=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[1:] == ["7"]


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(2)
    yield made
    made.close()


def test_small_work_starts_nothing(workers: Workers) -> None:
    threads = threading.active_count()
    assert workers.executor(WORTH_STARTING - 1) is None
    assert threading.active_count() == threads


def test_big_work_starts_processes_and_later_work_uses_them(workers: Workers) -> None:
    pool = workers.executor(WORTH_STARTING)
    assert isinstance(pool, Pool)
    assert len(pids(pool)) == 2
    assert workers.executor(WORTH_HANDING_OVER) is pool
    assert workers.executor(WORTH_HANDING_OVER - 1) is None
    workers.close()
    assert workers.executor(WORTH_STARTING) is None


def test_one_job_works_right_here() -> None:
    workers = Workers(1)
    workers.prestart()
    assert workers.executor(1 << 50) is None
    workers.close()


def test_processes_can_be_started_ahead(workers: Workers) -> None:
    workers.prestart()
    pool = workers.executor(WORTH_HANDING_OVER)
    assert isinstance(pool, Pool)
    until(lambda: pool.ready)


def test_closing_ends_the_processes(workers: Workers) -> None:
    pool = workers.executor(WORTH_STARTING)
    assert isinstance(pool, Pool)
    started = pids(pool)
    workers.close()
    assert not any(alive(pid) for pid in started)
    workers.close()


def test_a_given_executor_is_used_and_left_open() -> None:
    with ThreadPoolExecutor(3) as threads:
        workers = Workers(executor=threads)
        assert workers.parallel == 3
        assert workers.executor(WORTH_HANDING_OVER) is threads
        workers.close()
        assert threads.submit(os.getpid).result() == os.getpid()


def test_by_default_every_core_works_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cores() == len(os.sched_getaffinity(0))
    monkeypatch.setattr(module, "cores", lambda: 128)
    assert Workers().parallel == module.MOST_JOBS
    assert Workers(20).parallel == 20
    monkeypatch.setattr(module, "cores", lambda: 1)
    assert Workers().executor(1 << 50) is None


@pytest.mark.parametrize(
    "text", ["", "dask", "dask:", "dask:tcp://", "dask:tcp://host", "dask:host:8786", "ray:tcp://h:1", "dask:tcp://h:x"]
)
def test_a_text_that_names_no_executor_is_refused(text: str) -> None:
    with pytest.raises(TdbgError) as caught:
        executor_of(text)
    assert caught.value.exit_code == 2
    assert repr(text) in caught.value.what
    assert "dask:tcp://" in caught.value.hint
