"""Takes looks at tensors: here, or spread over threads, processes or hosts through an injected executor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import suppress
from functools import partial
from typing import Final

import numpy as np

from tui_debugger.analysis.dtypes import is_numeric
from tui_debugger.analysis.npy import TensorFile, open_array
from tui_debugger.analysis.record import Change, Closeness, Job, Record
from tui_debugger.analysis.stats import Accumulator, Comparison, compare
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import Progress, ProgressFn, no_progress

PIECE: Final = 1 << 20
"""Bytes that are read at once: a multiple of every block, small beside the last-level cache."""
CHUNK: Final = 64
"""Most looks per task handed to an executor."""
POLL_SECONDS: Final = 0.1
"""How often ``progress`` is asked whether to go on while tasks run elsewhere."""

OnRecord = Callable[[int, Record], None]
Checkpoint = Callable[[], None]


class _Buffers(threading.local):
    """Read buffers of one thread, for the tensor and its previous step."""

    def __init__(self) -> None:
        self.pair = (np.empty(PIECE, np.uint8), np.empty(PIECE, np.uint8))


_buffers = _Buffers()


def look(job: Job, checkpoint: Checkpoint | None = None) -> Record:
    """Reads one tensor (and its previous step when that is needed) once and measures what is asked.

    Never raises for a bad file: the record says what is wrong. Elements without numbers (text, dates) give a record
    with the type and shape and no statistics.

    Args:
        job: what to read and what to measure.
        checkpoint: called between the pieces of a big tensor; may raise to stop.
    """
    try:
        with TensorFile(job.spec) as file:
            return _measure_file(file, job, checkpoint)
    except UnreadableTensorError as error:
        return Record(None, None, error=error.what, need=job.need)
    except MemoryError:
        return Record(None, None, error="does not fit into memory", need=job.need)


def measure(
    jobs: Sequence[Job],
    *,
    executor: Executor | None = None,
    on_record: OnRecord,
    progress: ProgressFn = no_progress,
) -> None:
    """Takes all looks and reports each record as soon as it is there.

    Args:
        jobs: the looks; what they are made of is picklable, so any ``concurrent.futures`` executor will do.
        executor: where to work; None works right here.
        on_record: called in the caller's thread with ``Job.id`` and the record, in any order.
        progress: called in the caller's thread with done and total jobs. When it raises (``CancelledError``), work
            that has not begun is cancelled and the exception goes on; what was reported stands.
    """
    if executor is None:
        _measure_here(jobs, on_record, progress, 0, len(jobs))
        return
    chunks = list(_chunks(jobs, getattr(executor, "_max_workers", 0) or 1))
    left = _measure_elsewhere(chunks, executor, on_record, progress, len(jobs))
    if left:  # the pool died, for example because a worker was killed: finish the work here
        _measure_here(left, on_record, progress, len(jobs) - len(left), len(jobs))


def _measure_here(jobs: Sequence[Job], on_record: OnRecord, progress: ProgressFn, done: int, total: int) -> None:
    for job in jobs:
        snapshot = Progress(done, total)
        progress(snapshot)
        on_record(job.id, look(job, partial(progress, snapshot)))
        done += 1
    progress(Progress(done, total))


def _measure_elsewhere(
    chunks: Sequence[tuple[Job, ...]], executor: Executor, on_record: OnRecord, progress: ProgressFn, total: int
) -> list[Job]:
    """Returns the jobs that were not done because the executor broke."""
    pending: dict[Future[list[Record]], tuple[Job, ...]] = {}
    left: list[Job] = []
    done = 0
    try:
        with suppress(BrokenExecutor):
            pending.update((executor.submit(look_all, chunk), chunk) for chunk in chunks)
        left += [job for chunk in chunks[len(pending) :] for job in chunk]
        progress(Progress(0, total))
        while pending:
            finished, _ = wait(pending, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            for future in finished:
                chunk = pending.pop(future)
                if isinstance(future.exception(), BrokenExecutor):
                    left += chunk
                    continue
                for job, record in zip(chunk, future.result(), strict=True):
                    on_record(job.id, record)
                done += len(chunk)
            progress(Progress(done, total))
    finally:
        for future in pending:
            future.cancel()
    return left


def look_all(jobs: Sequence[Job]) -> list[Record]:
    """Several looks: what one task of an executor does."""
    return [look(job) for job in jobs]


def _chunks(jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, ...]]:
    """Pieces small enough that the last ones do not leave workers idle."""
    size = max(1, min(CHUNK, len(jobs) // (workers * 4)))
    for start in range(0, len(jobs), size):
        yield tuple(jobs[start : start + size])


def _measure_file(file: TensorFile, job: Job, checkpoint: Checkpoint | None) -> Record:
    meta = file.layout.meta
    if not is_numeric(file.layout.dtype):
        return Record(meta, None, need=job.need)
    accumulator = Accumulator(job.need.ranges)
    if job.previous is None or not job.need.previous:
        _accumulate(file, accumulator, checkpoint)
        return Record(meta, accumulator.stats(), accumulator.ranges, need=job.need)
    change, close, previous = None, dict[Closeness, bool](), "ok"
    try:
        with TensorFile(job.previous) as other:
            if other.layout.shape != file.layout.shape:
                previous = "shape"
            elif not is_numeric(other.layout.dtype):
                previous = "unreadable"
            else:
                change, close = _compare_files(file, other, accumulator, job, checkpoint)
    except UnreadableTensorError:
        previous = "unreadable"
    if accumulator.count != file.layout.count:
        accumulator = Accumulator(job.need.ranges)
        _accumulate(file, accumulator, checkpoint)
    return Record(meta, accumulator.stats(), accumulator.ranges, change, close, previous, need=job.need)


def _accumulate(file: TensorFile, accumulator: Accumulator, checkpoint: Checkpoint | None) -> None:
    (buffer, _), step = _buffers.pair, PIECE // file.layout.dtype.itemsize
    for start in range(0, file.layout.count, step):
        if start and checkpoint:
            checkpoint()
        accumulator.add(file.read(start, min(step, file.layout.count - start), buffer))


def _compare_files(
    file: TensorFile, other: TensorFile, accumulator: Accumulator, job: Job, checkpoint: Checkpoint | None
) -> tuple[Change, dict[Closeness, bool]]:
    """Reads both files side by side, so that each is read once and little is kept."""
    if file.layout.fortran != other.layout.fortran and job.previous is not None:
        _accumulate(file, accumulator, checkpoint)
        return compare(open_array(job.spec), open_array(job.previous), job.need.closeness)
    comparison = Comparison(job.need.closeness)
    (buffer, other_buffer), count = _buffers.pair, file.layout.count
    step = PIECE // max(file.layout.dtype.itemsize, other.layout.dtype.itemsize)
    for start in range(0, count, step):
        if start and checkpoint:
            checkpoint()
        length = min(step, count - start)
        block = file.read(start, length, buffer)
        accumulator.add(block)
        comparison.add(block, other.read(start, length, other_buffer))
    return comparison.result()
