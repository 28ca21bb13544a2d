"""Passes over whole tensors, span by span, by several processes; what spans add up to comes in their order.

Spans are always the same, whoever works and however many do, so that the answer is the same to the last bit. Threads
would be simpler, but between two calls of numpy, which take some ten microseconds each on what fits into a cache, they
wait for the interpreter's lock (see ``workers``). A worker process maps the file itself: no values travel. What no file
holds, and what is too little to share, is done right here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, wait
from concurrent.futures import CancelledError as DroppedError
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from tui_debugger import opener
from tui_debugger.arrays import Array
from tui_debugger.errors import CancelledError, UnreadableTensorError
from tui_debugger.model import Progress, ProgressFn, ReadSpec, no_progress
from tui_debugger.stats.dtypes import DType
from tui_debugger.stats.npy import open_lazily
from tui_debugger.stats.side_by_side import Identity, identity
from tui_debugger.stats.workers import OwnExecutor, Workers

SPAN: Final = 1 << 22
"""Elements of a span: some 10 to 50 ms of work, beside which half a millisecond for handing it over is little."""
AHEAD: Final = 2
"""Spans that are on their way for each worker: one is worked on, one waits."""
POLL: Final = 0.05
"""Seconds after which ``progress`` is asked at the latest whether to go on."""

Span = tuple[int, int]
Checkpoint = Callable[[int], None]
"""Told how many elements of a span are done; may raise to stop."""
T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class SpanTask(Protocol[T_co]):
    """The work on one span. Can be pickled, and holds nothing of its own: it is used for many spans."""

    @property
    def cost(self) -> int:
        """The cost of an element, in bytes as ``Workers.executor`` counts them."""

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
        specs: how others can read the same arrays; empty where nobody can.
        workers: who else works; None: nobody.
        files: what the others have to find. As it is when this is made, right after the tensors were opened: a view
            keeps them open, and another file may take the place of one meanwhile.
    """

    arrays: tuple[Array, ...]
    count: int
    specs: tuple[ReadSpec, ...] = ()
    workers: Workers | None = None
    files: tuple[_File, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Looks at the files."""
        files = zip(self.specs, self.arrays, strict=True) if self.specs else ()
        object.__setattr__(self, "files", tuple(_File.of(spec, array) for spec, array in files))


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
    spans = deque((first, min(first + SPAN, shared.count)) for first in range(0, shared.count, SPAN))
    prepared = ask().prepare(shared.arrays)

    def here(span: Span) -> T:
        return ask().do(prepared, span, lambda done: progress(Progress(span[0] + done, shared.count, what)))

    executor = _executor(shared, ask().cost * shared.count, len(spans))
    if executor is not None and shared.workers is not None:
        helpers = _Helpers(executor, shared.workers, shared)
        yield from _shared(spans, helpers, ask, here, lambda first: progress(Progress(first, shared.count, what)))
    while spans:
        yield here(spans.popleft())


def _shared(
    spans: deque[Span],
    helpers: _Helpers,
    ask: Callable[[], SpanTask[T]],
    here: Callable[[Span], T],
    tell: Callable[[int], None],
) -> Iterator[T]:
    """Goes on until all spans are done, or the workers are lost: what was not begun is then left in ``spans``."""
    pending: deque[tuple[Span, Future[T]]] = deque()
    try:
        while pending or (spans and not helpers.lost):
            while spans and len(pending) < helpers.most and helpers.ready and helpers.give(pending, spans[0], ask()):
                spans.popleft()
            if not pending:  # the workers are still starting
                if not helpers.lost:
                    yield here(spans.popleft())
                continue
            span, future = pending[0]
            tell(span[0])
            while wait([future], POLL).not_done:
                tell(span[0])
                helpers.check()
            pending.popleft()
            found = helpers.take(future)
            yield here(span) if found is None else found
    finally:
        for _, future in pending:
            future.cancel()


class _Helpers:
    """The workers besides this process."""

    def __init__(self, executor: Executor, workers: Workers, shared: SharedArrays) -> None:
        self.most = workers.parallel * AHEAD
        self._executor = executor
        self._workers = workers
        self._files = shared.files
        self.lost = False

    @property
    def ready(self) -> bool:
        return not isinstance(self._executor, OwnExecutor) or self._executor.ready

    def give(self, pending: deque[tuple[Span, Future[T]]], span: Span, task: SpanTask[T]) -> bool:
        """Hands a span over; False when nobody is left to take it."""
        try:
            pending.append((span, self._executor.submit(_on_worker, task, self._files, span)))
        except (BrokenExecutor, RuntimeError):  # RuntimeError: it was shut down
            self._lose()
            return False
        return True

    def check(self) -> None:
        """Raises CancelledError when the workers were closed."""
        if self._workers.closed:
            raise CancelledError("closed")

    def take(self, future: Future[T]) -> T | None:
        """Returns what a worker found; None when it could not: what others cannot read may still be mapped here."""
        try:
            return future.result()
        except (BrokenExecutor, DroppedError):
            self.check()
            if isinstance(self._executor, OwnExecutor) and self._executor.broken:
                self._lose()
            return None
        except (UnreadableTensorError, MemoryError):
            return None

    def _lose(self) -> None:
        self.check()
        self.lost = True
        self._workers.give_up(self._executor, "the workers were lost: the work was finished by this process alone")


@dataclass(frozen=True, slots=True)
class _File:
    """A tensor as another process finds it, if it is still the same."""

    spec: ReadSpec
    dtype: DType
    shape: tuple[int, ...]
    state: Identity | None

    @classmethod
    def of(cls, spec: ReadSpec, array: Array) -> _File:
        return cls(spec, array.dtype, array.shape, identity(spec.path))

    def read(self) -> Array:
        array = open_lazily(self.spec)
        if self.state is None or self != _File.of(self.spec, array):
            raise UnreadableTensorError("was written over meanwhile", where=self.spec.path)
        return array


def _on_worker(task: SpanTask[T], files: tuple[_File, ...], span: Span) -> T:
    """Returns what a worker does."""
    return task.do(task.prepare(tuple(file.read() for file in files)), span, _never)


def _never(_: int) -> None:
    """Nobody stops a worker in the middle of a span."""


def _executor(shared: SharedArrays, cost: int, spans: int) -> Executor | None:
    """Returns who else could do it: nobody where it is too little, and nobody who may see other files than this one."""
    if not shared.specs or shared.workers is None or spans < 2:
        return None
    if any(opener.is_mounted(spec.path) for spec in shared.specs):
        return None
    executor = shared.workers.executor(cost)
    return None if isinstance(executor, OwnExecutor) and executor.remote else executor
