"""Passes over whole tensors, span by span, by several threads; what spans add up to comes in their order.

Spans are always the same, whoever works and however many do, so that the answer is the same to the last bit. Threads
share the work: the kernel lets go of the interpreter's lock. What is too little to share is done right here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.errors import CancelledError
from tui_debugger.model import Progress, ProgressFn, no_progress
from tui_debugger.stats.workers import AHEAD, MeasureWorkers, in_order

SPAN: Final = 1 << 22
"""Elements of a span: some milliseconds of work, beside which handing it over is little."""

Span = tuple[int, int]
Checkpoint = Callable[[int], None]
"""Told how many elements of a span are done; may raise to stop."""
T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class SpanTask(Protocol[T_co]):
    """The work on one span. Holds nothing of its own: it is used for many spans, by several threads."""

    @property
    def cost(self) -> int:
        """The cost of an element, in bytes as ``MeasureWorkers.executor`` counts them."""

    def prepare(self, arrays: tuple[Array, ...]) -> Any:
        """Returns what ``do`` needs of the arrays; cheap."""

    def do(self, prepared: Any, span: Span, checkpoint: Checkpoint) -> T_co:
        """Returns what a span, first element and end, adds up to."""


@dataclass(frozen=True, slots=True)
class SharedArrays:
    """Tensors that are gone through side by side, and who can do it.

    Attributes:
        arrays: their values.
        count: elements to go through.
        workers: who shares the work; None: nobody.
    """

    arrays: tuple[Array, ...]
    count: int
    workers: MeasureWorkers | None = None


def shared_arrays(array: Array | SharedArrays) -> SharedArrays:
    """Returns an array that only this process has; shared arrays are returned as they are."""
    return array if isinstance(array, SharedArrays) else SharedArrays((array,), array.size)


def flat_in_memory_order(array: Array) -> Any:
    """Returns all elements one after the other, as they lie in memory where that is possible, to be sliced."""
    return flat_in_c_order(array.T if array.flags.f_contiguous else array)


def flat_in_c_order(array: Array) -> Any:
    """Returns all elements in C order, to be sliced: a view, or what copies only the slice."""
    return array.reshape(-1) if array.flags.c_contiguous else array.flat


def span_results(
    shared: SharedArrays, ask: Callable[[], SpanTask[T]], what: str, progress: ProgressFn = no_progress
) -> Iterator[T]:
    """Yields what the spans of tensors add up to, one after the other.

    Args:
        shared: the tensors.
        ask: the task for the next span: it may know more than for the one before, as long as that changes no result.
        what: is said beside the progress.
        progress: called in this thread with elements done. When it raises, nothing more is begun, and what others are
            at is left to end by itself: a span is short.

    Raises:
        CancelledError: from ``progress``, or the workers were closed meanwhile.
    """
    spans = [(first, min(first + SPAN, shared.count)) for first in range(0, shared.count, SPAN)]
    prepared, workers = ask().prepare(shared.arrays), shared.workers
    in_memory = all(isinstance(array, np.ndarray) for array in shared.arrays)  # what is read on the way is no array
    local = workers if workers is not None and workers.local and len(spans) > 1 and in_memory else None
    executor = local.executor(ask().cost * shared.count) if local is not None else None
    if local is None or executor is None:
        for span in spans:

            def here(done: int, first: int = span[0]) -> None:
                progress(Progress(first + done, shared.count, what))

            yield ask().do(prepared, span, here)
        return
    stopped, begun = threading.Event(), 0

    def check(_: int = 0) -> None:
        if stopped.is_set() or local.closed:
            raise CancelledError("closed")

    def tell() -> None:
        check()
        progress(Progress(begun, shared.count, what))

    def do(given: tuple[Span, SpanTask[T]]) -> T:
        span, task = given
        with np.errstate(all="ignore"):
            return task.do(prepared, span, check)

    try:
        for found in in_order(executor, local.parallel * AHEAD, do, ((span, ask()) for span in spans), tell):
            yield found
            begun += SPAN
    finally:
        stopped.set()
