"""Measures many tensors: cuts read requests into batches, gives them to the workers, and gathers the records."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from tui_debugger import opener
from tui_debugger.arrays import Int64
from tui_debugger.errors import CancelledError, UnreadableTensorError
from tui_debugger.model import Progress, ProgressFn, ReadSpec, no_progress
from tui_debugger.stats.dtypes import is_numeric
from tui_debugger.stats.measure import batch_bounds, compared_with, costs, read_all, subset
from tui_debugger.stats.npy import TensorFile, ValueLayout
from tui_debugger.stats.records import ONLY_COMPARED, Before, ReadRequests, Records, RecordState, RequiredStats
from tui_debugger.stats.side_by_side import (
    SPAN,
    ChangeResult,
    Checkpoint,
    FileState,
    OtherTensor,
    PairReader,
    PartialResult,
    compared,
    file_state,
    put_asked,
    put_compared,
    put_file,
    put_stats,
    spans,
)
from tui_debugger.stats.workers import AHEAD, POLL, DaemonThreads, MeasureWorkers, OwnExecutor


@dataclass(slots=True)
class SpanResult:
    """The sums of one span of a tensor, and layout and state of its file at that time."""

    layout: ValueLayout
    state: FileState
    sums: PartialResult
    answer: ChangeResult


def spans_of(spec: ReadSpec, before: ReadSpec | None) -> tuple[tuple[int, int], ...]:
    """Returns the spans of a tensor that is big enough to share; none for a small tensor, or odd files."""
    try:
        with TensorFile(spec) as file:
            layout, packed = file.layout, file.packed
        if before is not None:
            with TensorFile(before) as other:
                if other.packed or other.layout.fortran != layout.fortran:
                    return ()
    except UnreadableTensorError:
        return ()
    return tuple(spans(layout.count)) if not packed and layout.count > SPAN and is_numeric(layout.dtype) else ()


def measure_file_span(
    spec: ReadSpec,
    before: ReadSpec | None,
    need: RequiredStats,
    span: tuple[int, int],
    checkpoint: Checkpoint | None = None,
) -> SpanResult | None:
    """Measures one span; None when that fails for any reason: measuring the whole tensor then tells the reason."""
    state = file_state(spec.path)
    sides = PairReader(spec, OtherTensor(before) if before is not None else None, need, checkpoint, span)
    try:
        with TensorFile(spec) as file, np.errstate(all="ignore"):
            if span[1] > file.layout.count or not is_numeric(file.layout.dtype):
                return None
            sums, answer = sides.measure(file)
            file.check(sums.stats.zeros)
            return SpanResult(file.layout, state, sums, answer)
    except (UnreadableTensorError, MemoryError):
        return None


def joined(parts: Sequence[SpanResult | None], need: RequiredStats) -> Records | None:
    """Makes one row from all spans of a tensor, in order; None when the files changed between spans."""
    first = parts[0]
    if first is None:
        return None
    total = first.sums
    for span in parts[1:]:
        if span is None or (span.layout, span.state) != (first.layout, first.state):
            return None
        if (span.answer.before, span.answer.state) != (first.answer.before, first.answer.state):
            return None
        total.merge(span.sums)
    if total.stats.count != first.layout.count:
        return None
    records = Records(1)
    put_asked(records, np.ones(1, np.bool_), need)
    put_file(records, 0, RecordState.MEASURED, first.layout, first.state)
    put_stats(records, 0, total)
    answer = compared(total, first.answer.state) if first.answer.before == Before.OK else first.answer
    put_compared(records, 0, answer)
    return records


Place = Callable[[Records, Int64, Int64], None]
"""Takes results: a table, rows of it, and the indices of these files in the requests."""
Meanwhile = Callable[[], bool]
"""Does other work for some milliseconds; False when there is none at the moment."""

TRIES: Final = 2
"""How often a batch is given away before the calling thread does it."""


def no_other_work() -> bool:
    return False


def scan(
    requests: ReadRequests,
    sizes: Int64,
    workers: MeasureWorkers,
    place: Place,
    progress: ProgressFn = no_progress,
    *,
    meanwhile: Meanwhile = no_other_work,
) -> None:
    """Serves all requests, of which ascending steps of one tensor are neighbours; results do not depend on the workers.

    ``sizes`` are bytes, -1 for a missing file. ``place`` gets new results, ``progress`` done and total files, and
    ``meanwhile`` runs while the workers are busy, all in the caller's thread. When ``progress`` raises
    (CancelledError), work that has not begun is dropped; placed results stay. CancelledError also when the workers were
    closed.
    """
    mount = next(filter(None, map(opener.mount_of, requests.specs.paths)), None)
    if mount is None:
        executor = workers.executor(int(costs(sizes).sum()))
        parallel = workers.parallel if executor is not None else 1
    else:
        # Workers on other machines would have to list the mount again and could not share fetched data, and reading
        # from a network needs no other core: threads of this process do it.
        parallel = MOUNTED_THREADS if mount.waits else 1
        sizes = sizes + _LIKE_A_REQUEST if mount.waits else sizes
        executor = DaemonThreads(parallel, "tdbg reader") if parallel > 1 else None
    remote = isinstance(executor, OwnExecutor) and executor.remote
    work = _ScanWork(requests, sizes, place, progress, parallel=parallel, remote=remote)
    work.tell()
    try:
        if executor is not None and not _by_workers(work, executor, workers, meanwhile):
            workers.give_up(executor, "the workers were lost: the work was finished by this process alone")
    finally:
        if executor is not None and mount is not None:
            executor.shutdown(wait=False, cancel_futures=True)
    while (task := work.next()) is not None:
        if workers.closed:
            raise CancelledError("closed")
        work.here(task)


def _by_workers(work: _ScanWork, executor: Executor, workers: MeasureWorkers, meanwhile: Meanwhile) -> bool:
    """Has the executor do the work; False when it broke and something is left."""
    pending: dict[Future[Any], _Task] = {}
    stopped = threading.Event()

    def check() -> None:
        if stopped.is_set() or workers.closed:
            raise CancelledError("closed")

    # An executor of processes cannot call check.
    checkpoint = (check,) if isinstance(executor, (DaemonThreads, ThreadPoolExecutor)) else ()
    try:
        while _fill(pending, work, executor, checkpoint) and not (
            isinstance(executor, OwnExecutor) and executor.broken
        ):
            if not pending:
                return True
            patience = 0 if meanwhile() else POLL
            for future in wait(pending, timeout=patience, return_when=FIRST_COMPLETED)[0]:
                work.take(pending.pop(future), future)
            if workers.closed:
                raise CancelledError("closed")
            work.tell()
        for future, task in pending.items():
            work.take(task, future) if future.done() else work.again(task)
        return False
    finally:
        stopped.set()
        for future in pending:
            future.cancel()


def _fill(
    pending: dict[Future[Any], _Task], work: _ScanWork, executor: Executor, checkpoint: tuple[Checkpoint, ...]
) -> bool:
    """Keeps the workers busy; False when the executor takes no more."""
    while len(pending) < work.most_pending and (task := work.next()) is not None:
        if task.tries >= TRIES:
            work.here(task)
            continue
        try:
            pending[executor.submit(task.function, *task.arguments, *checkpoint)] = task
        except (BrokenExecutor, RuntimeError):  # RuntimeError: it was shut down
            work.again(task)
            return False
    return True


@dataclass(eq=False, slots=True)
class _Task:
    """A unit of work for a worker.

    ``function`` accepts a checkpoint after its other arguments. ``deliver`` takes its result, and whether the result
    may be wrong about unreadable files. ``tries`` counts failed hand-overs.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    deliver: Callable[[Any, bool], None]
    tries: int = 0


class _ScanWork:
    """The tasks, and how many files are done."""

    def __init__(
        self,
        requests: ReadRequests,
        sizes: Int64,
        place: Place,
        progress: ProgressFn,
        *,
        parallel: int,
        remote: bool,
    ) -> None:
        self.most_pending = parallel * AHEAD
        self._remote = remote
        self._requests = _absolute(requests) if self._remote else requests
        self._sizes = sizes
        self._put = place
        self._progress = progress
        self._parallel = parallel
        self._done, self._total = 0, int(np.count_nonzero(requests.need != ONLY_COMPARED))
        self._tasks = self._cut()
        self._again: deque[_Task] = deque()

    def tell(self) -> None:
        """Reports the progress."""
        self._progress(Progress(self._done, self._total))

    def next(self) -> _Task | None:
        """Returns a task; None when all have been given out."""
        return self._again.popleft() if self._again else next(self._tasks, None)

    def again(self, task: _Task) -> None:
        """Takes back a task that was not done."""
        self._again.append(task)

    def here(self, task: _Task) -> None:
        """Does a task in this thread."""
        task.deliver(task.function(*task.arguments, self.tell), False)
        self.tell()

    def take(self, task: _Task, future: Future[Any]) -> None:
        """Delivers a worker's result, or raises its exception; a lost task is taken back."""
        if future.cancelled() or isinstance(future.exception(), BrokenExecutor):
            task.tries += 1
            self.again(task)
        else:
            task.deliver(future.result(), self._remote)

    def _cut(self) -> Iterator[_Task]:
        for start, end in batch_bounds(self._requests, self._sizes, self._parallel):
            huge = self._huge(start) if end == start + 1 and self._parallel > 1 else None
            if huge is not None:
                yield from huge
            else:
                yield self._batch(np.arange(start, end))

    def _batch(self, rows: Int64) -> _Task:
        batch, every = subset(self._requests, rows)
        return _Task(read_all, (batch,), partial(self._place, batch, every))

    def _place(self, batch: ReadRequests, every: Int64, records: Records, doubtful: bool) -> None:
        good = batch.need != ONLY_COMPARED
        if doubtful:
            bad = (records.rows["state"] == RecordState.UNREADABLE) | (records.rows["before"] == Before.UNREADABLE)
            if bad.any():
                self._again.append(dataclasses.replace(self._batch(every[bad]), tries=TRIES))
                good &= ~bad
        at = np.flatnonzero(good)
        self._put(records, at, every[at])
        self._done += len(at)

    def _huge(self, row: int) -> Iterator[_Task] | None:
        """Yields the spans of a file that is big enough to share."""
        if self._sizes[row] < SPAN or self._requests.need[row] == ONLY_COMPARED:
            return None
        need, before = (
            self._requests.needs[int(self._requests.need[row])],
            int(compared_with(self._requests, np.array([row]))[0]),
        )
        specs = self._spec(row), self._spec(before) if before >= 0 else None
        spans = spans_of(*specs)
        if not spans:
            return None
        found: dict[int, SpanResult | None] = {}

        def deliver(number: int, sums: SpanResult | None, _: bool) -> None:
            found[number] = sums
            if len(found) < len(spans):
                return
            records = joined([found[at] for at in range(len(spans))], need)
            if records is None:  # its files changed meanwhile, or cannot be read to the end
                self.again(self._batch(np.array([row])))
            else:
                self._put(records, np.zeros(1, np.int64), np.array([row]))
                self._done += 1

        return (
            _Task(measure_file_span, (*specs, need, span), partial(deliver, number))
            for number, span in enumerate(spans)
        )

    def _spec(self, row: int) -> ReadSpec:
        return self._requests.specs.spec(row)


MOUNTED_THREADS: Final = 16
"""Files that are read at the same time where reading waits for a network."""
_LIKE_A_REQUEST: Final = 1 << 20
"""Cost of a network request in bytes; it makes even few files worth sharing."""


def _absolute(requests: ReadRequests) -> ReadRequests:
    """Returns the requests with absolute paths, for workers in another directory."""
    here = os.path.join(os.fsencode(os.getcwd()), b"")  # noqa: PTH109,PTH118 - bytes
    paths = [path if path.startswith(b"/") else here + path for path in requests.specs.paths]
    return dataclasses.replace(requests, specs=dataclasses.replace(requests.specs, paths=paths))
