"""Looks at tensors, here and elsewhere, with bad files, and cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tui_debugger.analysis import measure as module
from tui_debugger.analysis.measure import look, measure
from tui_debugger.analysis.record import Job, Need, Record
from tui_debugger.analysis.stats import compare, measure_stats
from tui_debugger.errors import CancelledError
from tui_debugger.model import Progress, ReadSpec

KEY = (1e-5, 1e-8, False)
EVERYTHING = Need(frozenset({(-1.0, 1.0)}), change=True, closeness=frozenset({KEY}))


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    """300 small tensors with a previous step; number 7 is truncated, 8 is missing, 9 changed its shape."""
    made = []
    for number in range(300):
        for step in (0, 1):
            np.save(tmp_path / f"{number}.{step}.npy", np.full((number % 5 + 1, 3), number + step, np.float32))
        now, before = (ReadSpec(str(tmp_path / f"{number}.{step}.npy")) for step in (1, 0))
        made.append(Job(number, now, before, EVERYTHING))
    (tmp_path / "7.1.npy").write_bytes((tmp_path / "7.1.npy").read_bytes()[:-1])
    (tmp_path / "8.1.npy").unlink()
    np.save(tmp_path / "9.0.npy", np.zeros((4, 4)))
    return made


def collect(jobs: list[Job], executor: Executor | None = None) -> dict[int, Record]:
    records: dict[int, Record] = {}

    def keep(number: int, record: Record) -> None:
        assert number not in records
        records[number] = record

    measure(jobs, executor=executor, on_record=keep)
    return records


def test_a_look_answers_all_that_is_needed_in_one_read(tmp_path: Path) -> None:
    now, before = np.random.default_rng(0).standard_normal((2, 300, 1000)).astype(np.float32)
    np.save(tmp_path / "now.npy", now)
    np.save(tmp_path / "before.npy", before)
    record = look(Job(0, ReadSpec(str(tmp_path / "now.npy")), ReadSpec(str(tmp_path / "before.npy")), EVERYTHING))
    stats, ranges = measure_stats(now, EVERYTHING.ranges)
    change, close = compare(now, before, EVERYTHING.closeness)
    assert record.stats is not None
    assert record.stats.mean == pytest.approx(stats.mean, rel=1e-12)
    assert (record.ranges, record.close, record.previous) == (ranges, close, "ok")
    assert record.change is not None
    assert record.change.ratio(1e-9) == pytest.approx(change.ratio(1e-9), rel=1e-12)
    assert record.need == EVERYTHING


def test_orders_of_the_two_files_may_differ(tmp_path: Path) -> None:
    array = np.random.default_rng(1).standard_normal((30, 40))
    np.save(tmp_path / "now.npy", array)
    np.save(tmp_path / "before.npy", np.asfortranarray(array))
    record = look(Job(0, ReadSpec(str(tmp_path / "now.npy")), ReadSpec(str(tmp_path / "before.npy")), EVERYTHING))
    assert record.close == {KEY: True}
    assert record.stats is not None
    assert record.stats.count == 1200


def test_a_previous_tensor_that_nobody_needs_is_not_opened(tmp_path: Path) -> None:
    np.save(tmp_path / "now.npy", np.ones(3))
    record = look(Job(0, ReadSpec(str(tmp_path / "now.npy")), ReadSpec("/nonexistent"), Need()))
    assert (record.previous, record.change) == ("none", None)


def test_what_is_wrong_with_a_file_is_in_its_record(jobs: list[Job]) -> None:
    records = collect(jobs)
    assert "truncated" in records[7].error
    assert "no such file" in records[8].error
    assert (records[7].stats, records[7].meta) == (None, None)
    assert records[9].previous == "shape"
    assert records[9].stats is not None
    assert records[10].change is not None


def test_an_unreadable_previous_tensor_does_not_spoil_the_statistics(jobs: list[Job]) -> None:
    assert jobs[20].previous is not None
    Path(jobs[20].previous.path).write_bytes(b"rubbish")
    record = look(jobs[20])
    assert (record.previous, record.change, record.error) == ("unreadable", None, "")
    assert record.stats is not None
    assert record.stats.count == 3


def test_elements_without_numbers_have_a_type_and_a_shape(tmp_path: Path) -> None:
    np.save(tmp_path / "text.npy", np.array(["a", "bc"]))
    record = look(Job(0, ReadSpec(str(tmp_path / "text.npy"))))
    assert (record.stats, record.error) == (None, "")
    assert record.meta is not None
    assert record.meta.shape == (2,)


@pytest.fixture(params=["threads", "processes"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    with ThreadPoolExecutor(2) if request.param == "threads" else ProcessPoolExecutor(2) as pool:
        yield pool


def test_records_are_the_same_wherever_they_are_made(jobs: list[Job], executor: Executor) -> None:
    assert collect(jobs, executor) == collect(jobs)


def test_progress_ends_with_everything_done(jobs: list[Job]) -> None:
    for pool in (None, ThreadPoolExecutor(1)):
        seen: list[Progress] = []
        measure(jobs, executor=pool, on_record=lambda *_: None, progress=seen.append)
        assert (seen[0].done, seen[-1].done, seen[-1].total) == (0, 300, 300)
        assert [p.done for p in seen] == sorted(p.done for p in seen)


def stopper(after: int) -> Callable[[Progress], None]:
    def progress(snapshot: Progress) -> None:
        if snapshot.done >= after:
            raise CancelledError("stopped")

    return progress


def test_cancelling_here_keeps_what_was_done(jobs: list[Job]) -> None:
    records: dict[int, Record] = {}
    with pytest.raises(CancelledError):
        measure(jobs, on_record=records.__setitem__, progress=stopper(50))
    assert len(records) == 50


def test_cancelling_works_inside_a_big_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", 1024)
    np.save(tmp_path / "big.npy", np.zeros(100_000))
    calls = 0

    def progress(_: Progress) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise CancelledError("stopped")

    records: list[int] = []
    with pytest.raises(CancelledError):
        measure(
            [Job(0, ReadSpec(str(tmp_path / "big.npy")))], on_record=lambda i, _: records.append(i), progress=progress
        )
    assert records == []


def test_cancelling_elsewhere_cancels_what_has_not_begun(jobs: list[Job]) -> None:
    gate, begun = threading.Event(), []

    class Held(ThreadPoolExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            def wait() -> Any:
                begun.append(args)
                assert gate.wait(10)
                return fn(*args, **kwargs)

            return super().submit(wait)

    with Held(1) as pool:
        with pytest.raises(CancelledError):
            measure(jobs, executor=pool, on_record=lambda *_: None, progress=stopper(0))
        gate.set()
    assert len(begun) <= 1


def test_an_error_of_the_receiver_stops_the_work(jobs: list[Job]) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("receiver")

    with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="receiver"):
        measure(jobs, executor=pool, on_record=broken)


def test_work_goes_on_here_when_a_pool_dies(jobs: list[Job]) -> None:
    class Dying(ThreadPoolExecutor):
        left = 2

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            self.left -= 1
            if self.left < 0:
                raise BrokenExecutor("gone")
            if self.left == 0:
                lost: Future[Any] = Future()
                lost.set_exception(BrokenExecutor("gone"))
                return lost
            return super().submit(fn, *args, **kwargs)

    with Dying(1) as pool:
        assert collect(jobs, pool) == collect(jobs)


def test_no_jobs_are_no_work() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert collect([], pool) == collect([]) == {}
