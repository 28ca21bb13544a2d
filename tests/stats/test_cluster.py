"""A real dask cluster: a scheduler and two worker processes on this machine, and what happens when they die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sources.writer import huge_file
from tests.stats.requests import requests_for, stopping
from tests.stats.test_measure import assert_equal_bits
from tests.stats.test_scan import every, taken
from tests.stats.test_workers import alive, until
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.model import Progress
from tui_debugger.stats import cluster as module
from tui_debugger.stats.cluster import Cluster, executor_of
from tui_debugger.stats.records import ReadRequests, Records, RequiredStats
from tui_debugger.stats.workers import MeasureWorkers

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.usefixtures("many_small_batches")


class DaskCluster:
    """A scheduler on a free port, and workers of one thread each that nobody starts again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        note = folder / "scheduler.json"
        self.start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(note))
        self.address: str = until(lambda: note.exists() and _read(note))["address"]
        self.workers: dict[str, int] = {}

    def start(self, what: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "distributed.cli.dask_" + what, *arguments, "--no-dashboard"]
        with (self.folder / f"{len(self.processes)}.log").open("wb") as log:
            self.processes.append(subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log))

    def add_workers(self, count: int) -> None:
        """Starts workers and waits for them."""
        for _ in range(count):
            self.start("worker", self.address, "--no-nanny", "--nthreads", "1", "--host", "127.0.0.1")
        with distributed.Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(len(self.workers) + count, timeout=60)
            self.workers = client.run(os.getpid)

    def signal(self, number: int, *pids: int) -> None:
        for pid in pids:
            os.kill(pid, number)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def _read(note: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(note.read_text())
    except ValueError:  # it is being written
        return None
    return content


@contextmanager
def two_workers(folder: Path) -> Iterator[DaskCluster]:
    started = DaskCluster(folder)
    try:
        started.add_workers(2)
        yield started
    finally:
        started.end()


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    """For tests that leave it as it was."""
    with two_workers(tmp_path_factory.mktemp("dask")) as cluster:
        yield cluster


@pytest.fixture
def own_dask(tmp_path: Path) -> Iterator[DaskCluster]:
    """For tests that kill some of it, or leave it with work."""
    with two_workers(tmp_path) as cluster:
        yield cluster


@contextmanager
def workers_of(cluster: DaskCluster) -> Iterator[MeasureWorkers]:
    with closing(MeasureWorkers(executor=executor_of(f"dask:{cluster.address}"))) as workers:
        yield workers


@pytest.fixture
def workers(dask: DaskCluster) -> Iterator[MeasureWorkers]:
    with workers_of(dask) as workers:
        yield workers


@pytest.fixture
def own_workers(own_dask: DaskCluster) -> Iterator[MeasureWorkers]:
    with workers_of(own_dask) as workers:
        yield workers


def test_records_have_the_same_bits_as_local_ones(
    requests: ReadRequests, alone: Records, workers: MeasureWorkers
) -> None:
    assert workers.parallel == 2
    assert_equal_bits(taken(requests, workers), alone, every(requests))
    assert_equal_bits(taken(requests, workers), alone, every(requests))
    assert workers.notices == ()


def test_a_file_that_changed_is_read_again(tmp_path: Path, workers: MeasureWorkers) -> None:
    for value in (1.0, 2.0):  # dask would remember the answer to the same question
        np.save(tmp_path / "x.npy", np.full(3, value))
        found = taken(requests_for([tmp_path / "x.npy"], [-1], RequiredStats()), workers)
        assert found.rows["mean"].tolist() == [value]


def test_a_scan_is_cancelled_at_once(tmp_path: Path, own_workers: MeasureWorkers) -> None:
    requests = requests_for([huge_file(tmp_path / "huge.npy")], [-1], RequiredStats())
    with pytest.raises(CancelledError):
        taken(requests, own_workers, stopping())


def scan_with_workers_stopped(
    requests: ReadRequests, workers: MeasureWorkers, dask: DaskCluster, then: Callable[[list[int]], None]
) -> Records:
    """A scan whose first batches are with workers that stand still when ``then`` is called with their numbers."""
    pids = list(dask.workers.values())
    dask.signal(signal.SIGSTOP, *pids)
    cluster = workers.executor(1 << 40)
    assert isinstance(cluster, Cluster)
    called = False

    def progress(_: Progress) -> None:
        nonlocal called
        if not called and _processing(cluster) >= 2:
            called = True
            then(pids)

    result = taken(requests, workers, progress)
    assert called
    return result


def _processing(cluster: Cluster) -> int:
    """Tasks that the scheduler has given to workers."""
    return sum(len(tasks) for tasks in cluster._client.processing().values())


def lose_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives up soon. Not before something was killed: a cluster on a busy machine may answer as late as that."""
    monkeypatch.setattr(module, "GRACE", 0.3)
    monkeypatch.setattr(module, "LOOK_EVERY", 0.1)


def test_a_worker_killed_in_the_middle_loses_nothing(
    requests: ReadRequests, alone: Records, own_workers: MeasureWorkers, own_dask: DaskCluster
) -> None:
    def kill_one(pids: list[int]) -> None:
        own_dask.signal(signal.SIGKILL, pids[0])
        own_dask.signal(signal.SIGCONT, pids[1])

    found = scan_with_workers_stopped(requests, own_workers, own_dask, kill_one)
    assert_equal_bits(found, alone, every(requests))
    assert own_workers.notices == ()
    assert not alive(next(iter(own_dask.workers.values())))


def test_when_all_workers_are_killed_the_work_is_finished_here(
    requests: ReadRequests,
    alone: Records,
    own_workers: MeasureWorkers,
    own_dask: DaskCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kill_all(pids: list[int]) -> None:
        own_dask.signal(signal.SIGKILL, *pids)
        lose_patience(monkeypatch)

    found = scan_with_workers_stopped(requests, own_workers, own_dask, kill_all)
    assert_equal_bits(found, alone, every(requests))
    assert own_workers.notices == ("the workers were lost: the work was finished by this process alone",)
    assert own_workers.executor(1 << 40) is None


def test_when_the_scheduler_is_killed_the_work_is_finished_here(
    requests: ReadRequests,
    alone: Records,
    own_workers: MeasureWorkers,
    own_dask: DaskCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kill_the_scheduler(_: list[int]) -> None:
        own_dask.processes[0].kill()
        lose_patience(monkeypatch)

    found = scan_with_workers_stopped(requests, own_workers, own_dask, kill_the_scheduler)
    assert_equal_bits(found, alone, every(requests))
    assert own_workers.notices


def test_closing_leaves_the_cluster_alone(dask: DaskCluster) -> None:
    executor = executor_of(f"dask:{dask.address}")
    executor.shutdown()
    again = executor_of(f"dask:{dask.address}")
    assert again.submit(pow, 2, 5).result(60) == 32
    again.shutdown()
    assert all(process.poll() is None for process in dask.processes)


# -- clusters that cannot do the work ----------------------------------------------------------------------------------


def test_a_scheduler_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT", 0.3)
    with pytest.raises(TdbgError, match="no dask scheduler answers") as caught:
        executor_of("dask:tcp://127.0.0.1:1")
    assert caught.value.where == "--executor dask:tcp://127.0.0.1:1"
    assert "dask scheduler" in caught.value.hint


def test_a_cluster_without_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dask = DaskCluster(tmp_path)
    monkeypatch.setattr(module, "CONNECT", 2.0)
    try:
        with pytest.raises(TdbgError, match="has no workers") as caught:
            executor_of(f"dask:{dask.address}")
        assert caught.value.hint == f"start some with `dask worker {dask.address}`"
    finally:
        dask.end()


def test_workers_of_another_version(dask: DaskCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "__version__", "99.0")
    with pytest.raises(TdbgError, match=r"this is 99\.0") as caught:
        executor_of(f"dask:{dask.address}")
    assert caught.value.where in dask.workers
    assert caught.value.hint == "install tui_debugger 99.0 where the workers run"


def test_without_the_package_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(TdbgError, match="package for dask clusters is missing") as caught:
        executor_of("dask:tcp://127.0.0.1:8786")
    assert "tui_debugger[distributed]" in caught.value.hint


# -- the command -------------------------------------------------------------------------------------------------------


def tdbg(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tui_debugger", *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def test_a_check_on_a_cluster_says_what_a_local_one_says(dumps: Callable[[str], Path], dask: DaskCluster) -> None:
    command = ("check", str(dumps("mindspore-2.0-nan")), "--no-cache", "--json")
    local = tdbg(*command, "--jobs", "1")
    there = tdbg(*command, "--executor", f"dask:{dask.address}")
    assert (there.returncode, there.stderr) == (local.returncode, "") == (1, "")
    said, meant = json.loads(there.stdout), json.loads(local.stdout)
    assert said.pop("seconds") > 0 < meant.pop("seconds")
    assert said == meant


def test_a_wrong_executor_is_a_usage_error(dumps: Callable[[str], Path]) -> None:
    done = tdbg("check", str(dumps("mindspore-2.0-mlp")), "--executor", "dask:host")
    assert done.returncode == 2
    assert [line.strip().split(":")[0] for line in done.stderr.splitlines()] == ["tdbg", "where", "do"]
