"""Notices when a process is about to end, and why, so that data in memory can be written.

That is at exit (end of the program, ``sys.exit``), at an uncaught exception in the main thread or the training thread,
and at SIGTERM, SIGHUP and SIGINT. ``os._exit``, SIGKILL and a crash of the interpreter go unnoticed, and so does a
signal inside a call that does not return to Python.

An exit status other than 0 is known from ``sys.exit``, ``exit`` and ``quit`` only: Python calls no hook for ``raise
SystemExit(1)`` and keeps no trace, so that it looks like the end of a program.

None of this changes how a program ends: existing hooks and signal handlers are called afterwards, the default action
of a signal is taken, and a handler that the program installs later replaces ours.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import functools
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any, Final

SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGINT") if hasattr(signal, name))
_PATIENCE: Final = 5.0
"""Seconds at most that a signal waits for work in another thread."""

Ended = Callable[[BaseException | None, bool], None]
"""Called with the exception that ends the program, if any, and whether it really ends: a signal handler of the program

may let it go on.
"""


_LONGEST: Final = 200
"""Characters of the words about an exception."""
_USUAL: Final = (StopIteration, StopAsyncIteration, GeneratorExit)
"""Exceptions that usually end a loop, if the program catches them."""


def cause_of(error: BaseException | None) -> str:
    """Names the uncaught exception that ends a training early; empty: it ends as intended."""
    if error is None:
        return ""
    if isinstance(error, SystemExit):
        return _status_words(error.code)
    said = ""
    with contextlib.suppress(Exception):  # str() of an exception runs the program's code
        said = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {said}"[:_LONGEST] if said else type(error).__name__


def cause_of_handled(error: BaseException | None) -> str:
    """Like ``cause_of``, for an exception that is being handled, or on its way through a ``finally``."""
    return "" if isinstance(error, _USUAL) else cause_of(error)


def _status_words(status: object) -> str:
    if status is None or status == 0:
        return ""
    return f"exit status {status if isinstance(status, int) else 1}"


class EndListener:
    """Is told when and why the process ends; only exceptions of ``thread``, which trains, count."""

    def __init__(self, ended: Ended | None = None) -> None:
        """Starts to listen; for signals only in the main thread.

        ``ended`` is a bound method, whose object is not kept alive. None: only ``cause`` is wanted, and signals are
        left alone.
        """
        self.thread = threading.get_ident()
        self._ended = weakref.WeakMethod(ended) if ended is not None else None
        self._cause = ""
        self._before = getattr(sys, "last_value", None)
        self._lock = threading.RLock()
        self._worker: int | None = None
        self._late: list[_Handler] = []
        _install(self)

    def close(self) -> None:
        _remove(self)

    @property
    def wants_signals(self) -> bool:
        return self._ended is not None

    @property
    def cause(self) -> str:
        """The reason why the training ends early, as far as the process knows by now; empty: none."""
        if self._cause or hasattr(sys, "ps1"):  # an interactive session goes on after an exception
            return self._cause
        # An exception hook that was installed after ours, and does not call it, leaves the exception here.
        last = getattr(sys, "last_value", None)
        return cause_of(last) if last is not self._before else ""

    def goes_on(self) -> None:
        """The calling thread trains on: an apparent end was none."""
        self.thread, self._cause = threading.get_ident(), ""

    def hears(self, cause: str, thread: int | None, *, first: bool = False) -> None:
        """Keeps the exception that ended a thread (None: the main thread): the latest, or with ``first`` the first."""
        if thread is None or thread == self.thread:
            self._cause = self._cause if first and self._cause else cause

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Around work that must not be interrupted: a signal that comes meanwhile is handled afterwards."""
        late: list[_Handler] = []
        with self._lock:
            before, self._worker = self._worker, threading.get_ident()
            try:
                yield
            finally:
                self._worker = before
                if before is None:
                    late, self._late = self._late, []
                for handler in late:
                    handler(handler.number, None)

    def waits(self, handler: _Handler) -> bool:
        if self._worker != threading.get_ident():
            return False
        self._late = [handler]
        return True

    def notify(self, error: BaseException | None, ends: bool) -> None:
        """The process ends. Errors in here have no consequences."""
        if self._lock.acquire(timeout=_PATIENCE):
            try:
                ended = self._ended() if self._ended is not None else None
                if ended is not None:
                    with contextlib.suppress(Exception):
                        ended(error, ends)
            finally:
                self._lock.release()


class _ExceptionHook:
    """An exception hook in front of an older one; after it was replaced it only calls the older one."""

    def __init__(self, before: Callable[..., Any]) -> None:
        self.before = before

    def __call__(self, *given: Any) -> None:
        error, thread = (given[1], None) if len(given) > 1 else _of_a_thread(given[0])
        try:
            if self in (_hooks.main, _hooks.threads):
                if os.getpid() == _hooks.process and (thread is not None or not hasattr(sys, "ps1")):
                    _hear(cause_of(error), thread)
                if isinstance(error, Exception):
                    _notify(error, True, thread)
        finally:
            self.before(*given)


class _Handler:
    """A signal handler in front of an older one (``func``, as in ``partial``); once replaced it only passes on."""

    def __init__(self, number: int, before: Any) -> None:
        self.number = number
        self.before = before
        self.func: Callable[[int, FrameType | None], Any] = before if callable(before) else _by_default

    def __call__(self, number: int, frame: FrameType | None) -> None:
        chained = self.func is not _by_default
        if _handlers.get(number) is self and os.getpid() == _hooks.process:
            if any(each.waits(self) for each in _endings):
                return
            _notify(None, not chained)
        if chained or signal.getsignal(number) is self:  # else a later handler called this one, and decides itself
            self.func(number, frame)


class _Hooks:
    process = 0
    main: _ExceptionHook | None = None
    threads: _ExceptionHook | None = None
    leave: Final[dict[type | ModuleType, Callable[..., Any]]] = {}
    """Wrapped functions by their place: ``sys.exit``, and the type of ``exit`` and ``quit``."""


_endings: Final[list[EndListener]] = []
_lock: Final = threading.RLock()
_handlers: Final[dict[int, _Handler]] = {}
_hooks: Final = _Hooks()


def _install(ending: EndListener) -> None:
    with _lock:
        if os.getpid() != _hooks.process:
            _endings.clear()  # listeners of the parent process
        _hooks.process = os.getpid()
        _endings.append(ending)
        if sys.excepthook is not _hooks.main:
            _hooks.main = _ExceptionHook(sys.excepthook)
            sys.excepthook = _hooks.main
        if threading.excepthook is not _hooks.threads:
            _hooks.threads = _ExceptionHook(threading.excepthook)
            threading.excepthook = _hooks.threads
        for where, name in _leaving():
            if getattr(where, name) is not _hooks.leave.get(where):
                _hooks.leave[where] = _hearing(getattr(where, name), itself=isinstance(where, type))
                setattr(where, name, _hooks.leave[where])
        atexit.unregister(_at_exit)
        atexit.register(_at_exit)
        if ending.wants_signals and threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                with contextlib.suppress(ValueError, OSError):
                    _handle(number)


def _leaving() -> list[tuple[type | ModuleType, str]]:
    quitter = type(getattr(builtins, "exit", None))
    return [(sys, "exit"), *([(quitter, "__call__")] if quitter.__module__ == "_sitebuiltins" else [])]


def _hearing(leave: Callable[..., Any], *, itself: bool) -> Callable[..., Any]:
    """Wraps such a function to note the exit status; ``itself``: its first argument is the called object."""

    @functools.wraps(leave)
    def heard(*given: Any, **named: Any) -> Any:
        if heard in _hooks.leave.values() and os.getpid() == _hooks.process:
            words = _status_words(next(iter((*given[itself:], *named.values())), None))
            error = cause_of_handled(sys.exc_info()[1]) if words else ""
            here = None if threading.current_thread() is threading.main_thread() else threading.get_ident()
            # A process of multiprocessing turns the error that ended it into a status: the first cause says more.
            _hear(f"{words} after {error}" if error else words, here, first=bool(words))
        return leave(*given, **named)

    return heard


def _hear(cause: str, thread: int | None, *, first: bool = False) -> None:
    for ending in tuple(_endings):
        ending.hears(cause, thread, first=first)


def _handle(number: int) -> None:
    now = signal.getsignal(number)
    if now is None or now is _handlers.get(number) or now in (signal.SIG_IGN, signal.default_int_handler):
        return  # Ctrl+C raises an exception by default, which a hook sees; None: not a Python handler
    _handlers[number] = _Handler(number, now)
    signal.signal(number, _handlers[number])


def _remove(ending: EndListener) -> None:
    with _lock:
        if ending in _endings:
            _endings.remove(ending)
        if _endings:
            return
        atexit.unregister(_at_exit)
        main, threads = _hooks.main, _hooks.threads
        if main is not None and sys.excepthook is main:
            sys.excepthook = main.before
        if threads is not None and threading.excepthook is threads:
            threading.excepthook = threads.before
        for where, name in _leaving():
            heard = _hooks.leave.pop(where, None)
            if heard is not None and getattr(where, name) is heard:
                setattr(where, name, heard.__wrapped__)  # type: ignore[attr-defined] # set by functools.wraps
        _hooks.main = _hooks.threads = None
        if threading.current_thread() is threading.main_thread():
            ours = dict(_handlers)
            _handlers.clear()
            for number, each in ours.items():
                before = each.before
                if signal.getsignal(number) is each:
                    signal.signal(number, before)


def _notify(error: BaseException | None, ends: bool, thread: int | None = None) -> None:
    if os.getpid() == _hooks.process:
        for ending in tuple(_endings):
            if thread is None or ending.thread == thread:
                ending.notify(error, ends)


def _of_a_thread(args: Any) -> tuple[Any, int | None]:
    return args.exc_value, args.thread.ident if args.thread is not None else None


def _at_exit() -> None:
    # An exception hook that was installed after ours, and does not call it, leaves the exception here.
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    _notify(error if isinstance(error, Exception) else None, True)


def _by_default(number: int, _: FrameType | None) -> None:
    """Ends the process as the signal would have, with its exit status."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
