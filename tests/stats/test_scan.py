"""Scans: the same bits whoever works, nothing lost with a worker, stopped when asked."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.sources.writer import huge_file
from tests.stats.requests import EVERYTHING, requests_for, stopping
from tests.stats.test_measure import assert_equal_bits
from tui_debugger.errors import CancelledError
from tui_debugger.model import Progress, ProgressFn, no_progress
from tui_debugger.stats import scan as huge
from tui_debugger.stats import scan as module
from tui_debugger.stats import side_by_side
from tui_debugger.stats.measure import read_all
from tui_debugger.stats.records import ReadRequests, Records, RecordState, RequiredStats
from tui_debugger.stats.scan import scan
from tui_debugger.stats.workers import MeasureWorkers, OwnExecutor

pytestmark = pytest.mark.usefixtures("many_small_batches")


def sizes_of(requests: ReadRequests) -> npt.NDArray[np.int64]:
    return np.array([os.stat(path).st_size for path in requests.specs.paths])  # noqa: PTH116 - bytes


def taken(requests: ReadRequests, workers: MeasureWorkers, progress: ProgressFn = no_progress) -> Records:
    result = Records(len(requests))
    scan(requests, sizes_of(requests), workers, result.place, progress)
    return result


def every(requests: ReadRequests) -> npt.NDArray[np.int64]:
    return np.arange(len(requests))


@pytest.fixture(params=["here", "threads", "processes"])
def workers(request: pytest.FixtureRequest) -> Iterator[MeasureWorkers]:
    if request.param == "processes":
        with ProcessPoolExecutor(2, get_context("spawn")) as processes:  # as somebody may hand in
            yield MeasureWorkers(executor=processes)
        return
    made = MeasureWorkers(1 if request.param == "here" else 3)
    yield made
    made.close()


def test_records_have_the_same_bits_whoever_makes_them(
    requests: ReadRequests, alone: Records, workers: MeasureWorkers
) -> None:
    assert_equal_bits(taken(requests, workers), alone, every(requests))
    assert_equal_bits(taken(requests, workers), alone, every(requests))
    assert workers.notices == ()


def test_bad_files_are_told_the_same_way_everywhere(tmp_path: Path, workers: MeasureWorkers) -> None:
    files = [tmp_path / f"{row}.npy" for row in range(120)]
    for row, path in enumerate(files):
        np.save(path, np.full(row % 5, row, np.float32))
        os.utime(path, ns=(10**18, 10**18))
    files[7].write_bytes(b"")
    files[50].write_bytes(files[51].read_bytes()[:-1])
    for row in (8, 60):
        np.save(files[row], np.array(["text"]))
    requests = requests_for(files, range(-1, 119), EVERYTHING)
    alone = read_all(requests)
    assert_equal_bits(taken(requests, workers), alone, every(requests))
    assert set(alone.errors) == {7, 50}


def test_files_that_are_only_compared_with_stay_unknown(requests: ReadRequests, workers: MeasureWorkers) -> None:
    needs = [None if before < 0 else EVERYTHING for before in requests.previous.tolist()]
    some = requests_for([Path(os.fsdecode(path)) for path in requests.specs.paths], requests.previous.tolist(), needs)
    found = taken(some, workers)
    assert ((found.rows["state"] == RecordState.UNKNOWN) == (some.previous < 0)).all()
    assert_equal_bits(found, read_all(some), every(some))


def test_progress_counts_files_and_ends_with_all_of_them(requests: ReadRequests, workers: MeasureWorkers) -> None:
    seen: list[Progress] = []
    taken(requests, workers, seen.append)
    assert (seen[0].done, seen[-1].done) == (0, len(requests))
    assert {snapshot.total for snapshot in seen} == {len(requests)}
    counts = [snapshot.done for snapshot in seen]
    assert counts == sorted(counts)
    assert len(set(counts)) > 2


def test_nothing_to_look_at_is_no_work(workers: MeasureWorkers) -> None:
    seen: list[Progress] = []
    result = Records(0)
    scan(requests_for([], [], []), np.zeros(0, np.int64), workers, result.place, seen.append)
    assert {(snapshot.done, snapshot.total) for snapshot in seen} == {(0, 0)}


# -- huge tensors ------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    for target in (side_by_side, huge, module):
        monkeypatch.setattr(target, "SPAN", 10_000)


@pytest.mark.usefixtures("small_spans")
def test_a_huge_tensor_is_shared_span_by_span(tmp_path: Path) -> None:
    files = [tmp_path / f"{step}.npy" for step in range(4)]
    for step, path in enumerate(files):
        np.save(path, np.random.default_rng(step).standard_normal(95_000).astype(np.float32))
        os.utime(path, ns=(10**18, 10**18))
    np.save(files[2], np.asfortranarray(np.ones((500, 190), np.float32)))  # cannot be compared span by span
    requests = requests_for(files, range(-1, 3), EVERYTHING)
    given_away: list[Any] = []

    class Noting(ThreadPoolExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            given_away.append(fn)
            return super().submit(fn, *args, **kwargs)

    with Noting(2) as threads:
        found = taken(requests, MeasureWorkers(executor=threads))
    assert given_away.count(huge.measure_file_span) >= 20
    assert_equal_bits(found, read_all(requests), every(requests))
    assert found.rows["before"].tolist() == [0, 1, 2, 2]


@pytest.mark.usefixtures("small_spans")
def test_a_huge_tensor_that_ends_too_early_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.ones(95_000))
    requests = requests_for([path], [-1], RequiredStats())
    real = huge.measure_file_span

    def late(*arguments: Any) -> Any:
        if arguments[3][0] == 50_000:
            os.truncate(path, 300_000)
        return real(*arguments)

    monkeypatch.setattr(module, "measure_file_span", late)
    with ThreadPoolExecutor(2) as threads:
        found = taken(requests, MeasureWorkers(executor=threads))
    assert "is truncated" in found.errors[0]


# -- other work meanwhile ----------------------------------------------------------------------------------------------


def test_other_work_is_done_while_others_read(requests: ReadRequests, alone: Records) -> None:
    done: list[threading.Thread] = []

    def meanwhile() -> bool:
        done.append(threading.current_thread())
        return len(done) < 5

    result = Records(len(requests))
    with ThreadPoolExecutor(2) as threads:
        scan(requests, sizes_of(requests), MeasureWorkers(executor=threads), result.place, meanwhile=meanwhile)
    assert len(done) >= 5
    assert set(done) == {threading.current_thread()}
    assert_equal_bits(result, alone, every(requests))


def test_who_reads_alone_does_no_other_work(requests: ReadRequests, alone: Records) -> None:
    def meanwhile() -> bool:
        pytest.fail("called")

    result = Records(len(requests))
    scan(requests, sizes_of(requests), MeasureWorkers(jobs=1), result.place, meanwhile=meanwhile)
    assert_equal_bits(result, alone, every(requests))


def test_an_error_of_the_other_work_stops_the_work(requests: ReadRequests) -> None:
    def broken() -> bool:
        raise RuntimeError("other work")

    with ThreadPoolExecutor(2) as threads, pytest.raises(RuntimeError, match="other work"):
        scan(
            requests,
            sizes_of(requests),
            MeasureWorkers(executor=threads),
            Records(len(requests)).place,
            meanwhile=broken,
        )


# -- cancelling --------------------------------------------------------------------------------------------------------


def stopper(after: int) -> ProgressFn:
    def progress(snapshot: Progress) -> None:
        if snapshot.done >= after:
            raise CancelledError("stopped")

    return progress


def test_what_was_done_before_cancelling_stands(
    requests: ReadRequests, alone: Records, workers: MeasureWorkers
) -> None:
    result = Records(len(requests))
    with pytest.raises(CancelledError):
        scan(requests, sizes_of(requests), workers, result.place, stopper(100))
    done = np.flatnonzero(result.rows["state"] != RecordState.UNKNOWN)
    assert 100 <= len(done) < len(requests)
    part = Records(len(done))
    part.place(result, done, np.arange(len(done)))
    assert_equal_bits(part, alone, done)
    assert_equal_bits(taken(requests, workers), alone, every(requests))


def test_a_tensor_that_takes_minutes_is_cancelled_at_once(tmp_path: Path, workers: MeasureWorkers) -> None:
    requests = requests_for([huge_file(tmp_path / "huge.npy")], [-1], RequiredStats())
    with pytest.raises(CancelledError):
        taken(requests, workers, stopping())
    small = tmp_path / "small.npy"
    np.save(small, np.ones(3))
    assert taken(requests_for([small], [-1], RequiredStats()), workers).rows["count"].tolist() == [3]


def test_closing_the_workers_stops_a_scan(tmp_path: Path) -> None:
    workers = MeasureWorkers(2)
    requests = requests_for([huge_file(tmp_path / "huge.npy")], [-1], RequiredStats())
    closer = threading.Thread(target=workers.close)

    def progress(_: Progress) -> None:
        if not closer.ident and workers._executor is not None:
            closer.start()

    with pytest.raises(CancelledError):
        taken(requests, workers, progress)
    closer.join()


def test_an_error_of_the_receiver_stops_the_work(requests: ReadRequests, workers: MeasureWorkers) -> None:
    def broken(_: Progress) -> None:
        raise RuntimeError("receiver")

    with pytest.raises(RuntimeError, match="receiver"):
        taken(requests, workers, broken)


# -- lost workers ------------------------------------------------------------------------------------------------------


def test_a_batch_that_kills_its_workers_is_done_here(requests: ReadRequests, alone: Records) -> None:
    class Deadly(ThreadPoolExecutor):
        victims = 0

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            if requests.specs.paths[100] in args[0].specs.paths:
                self.victims += 1
                lost: Future[Any] = Future()
                lost.set_exception(BrokenExecutor("gone"))
                return lost
            return super().submit(fn, *args, **kwargs)

    with Deadly(2) as deadly:
        assert_equal_bits(taken(requests, MeasureWorkers(executor=deadly)), alone, every(requests))
    assert deadly.victims == module.TRIES


def test_an_executor_that_was_shut_down_leaves_the_work_here(requests: ReadRequests, alone: Records) -> None:
    threads = ThreadPoolExecutor(1)
    threads.shutdown()
    workers = MeasureWorkers(executor=threads)
    assert_equal_bits(taken(requests, workers), alone, every(requests))
    assert workers.notices


def test_what_workers_elsewhere_cannot_read_is_read_here(requests: ReadRequests, alone: Records) -> None:
    class Elsewhere(OwnExecutor):
        """A machine that does not see every other file."""

        remote = True
        _max_workers = 2

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            batch: ReadRequests = args[0]
            assert all(os.path.isabs(path) for path in batch.specs.paths)  # noqa: PTH117 - bytes
            paths = [path + b"x" if at % 2 else path for at, path in enumerate(batch.specs.paths)]
            specs = type(batch.specs)(paths, batch.specs.kinds, batch.specs.kind)
            future: Future[Any] = Future()
            future.set_result(fn(ReadRequests(specs, batch.previous, batch.needs, batch.need), **kwargs))
            return future

    assert_equal_bits(taken(requests, MeasureWorkers(executor=Elsewhere())), alone, every(requests))


def test_relative_names_reach_workers_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "x.npy", np.ones(3))
    monkeypatch.chdir(tmp_path)
    seen: list[bytes] = []

    class Elsewhere(OwnExecutor):
        remote = True

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            seen.extend(args[0].specs.paths)
            future: Future[Any] = Future()
            future.set_result(fn(*args, **kwargs))
            return future

    found = taken(requests_for([Path("x.npy")], [-1], RequiredStats()), MeasureWorkers(executor=Elsewhere()))
    assert seen == [os.fsencode(tmp_path / "x.npy")]
    assert found.rows["count"].tolist() == [3]
