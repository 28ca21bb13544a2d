"""Passes over whole tensors, span by span, by several threads; results come in the order of the spans.

Span bounds are fixed, so the result is the same to the last bit with any number of threads. Threads share the work
because the kernel releases the GIL. Work that is too little to share is done in the calling thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.errors import CancelledError
from tui_debugger.model import Progress, ProgressFn, no_progress
from tui_debugger.stats.workers import AHEAD, MeasureWorkers, in_order

SPAN: Final = 1 << 22
"""Elements of a span: some milliseconds of work, so that handing it over costs little."""

Span = tuple[int, int]
Checkpoint = Callable[[int], None]
"""Called with the number of done elements of a span; may raise to stop."""
T = TypeVar("T")
Work = Callable[[Any, Span, Checkpoint], T]
"""Returns the result of a span (first element, end) of prepared arrays; called in several threads."""


@dataclass(frozen=True, slots=True)
class SharedArrays:
    """Tensors for a common pass over ``count`` elements, and the workers that share it (None: no workers)."""

    arrays: tuple[Array, ...]
    count: int
    workers: MeasureWorkers | None = None


def shared_arrays(array: Array | SharedArrays) -> SharedArrays:
    return array if isinstance(array, SharedArrays) else SharedArrays((array,), array.size)


def flat_in_c_order(array: Array) -> Any:
    """Returns all elements in C order, to be sliced: a view, or an iterator that copies only the slice."""
    return array.reshape(-1) if array.flags.c_contiguous else array.flat


def flat_in_memory_order(array: Array) -> Any:
    """Returns all elements, in memory order where possible, to be sliced."""
    return flat_in_c_order(array.T if array.flags.f_contiguous else array)


def span_results(
    shared: SharedArrays,
    work: Work[T],
    what: str,
    progress: ProgressFn = no_progress,
    *,
    cost: int,
    prepare: Callable[..., Any] = flat_in_memory_order,
) -> Iterator[T]:
    """Yields the results of the spans, one after the other.

    ``cost`` of an element is in bytes, as ``MeasureWorkers.executor`` counts them; ``prepare`` takes the arrays and is
    cheap. ``progress`` is called in this thread with the elements done and ``what``; when it raises, no more spans are
    begun. Raises CancelledError when the workers were closed meanwhile.
    """
    spans = [(first, min(first + SPAN, shared.count)) for first in range(0, shared.count, SPAN)]
    prepared, workers = prepare(*shared.arrays), shared.workers
    in_memory = all(isinstance(array, np.ndarray) for array in shared.arrays)  # a FileArray reads on the way
    local = workers if workers is not None and workers.local and len(spans) > 1 and in_memory else None
    executor = local.executor(cost * shared.count) if local is not None else None
    if local is None or executor is None:
        for span in spans:

            def here(done: int, first: int = span[0]) -> None:
                progress(Progress(first + done, shared.count, what))

            yield work(prepared, span, here)
        return
    stopped, begun = threading.Event(), 0

    def check(_: int = 0) -> None:
        if stopped.is_set() or local.closed:
            raise CancelledError("closed")

    def tell() -> None:
        check()
        progress(Progress(begun, shared.count, what))

    def do(span: Span) -> T:
        with np.errstate(all="ignore"):
            return work(prepared, span, check)

    try:
        for found in in_order(executor, local.parallel * AHEAD, do, spans, tell):
            yield found
            begun += SPAN
    finally:
        stopped.set()
