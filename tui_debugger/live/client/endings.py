"""Tells when a process is about to end, so that what is kept in memory can be written down, and what ends it.

That is: at exit (the end of the program, ``sys.exit``), at an exception that nobody catches, in the main thread or in
the one that trains, and at SIGTERM, SIGHUP and SIGINT. ``os._exit``, SIGKILL and a crash of the interpreter end a
process without a word; so does a signal while the program is inside a call that does not return to Python.

An exit status other than 0 is known of ``sys.exit``, ``exit`` and ``quit``: Python keeps nothing of ``raise
SystemExit(1)`` that could be looked at afterwards, and no hook is called. It looks like the end of a program.

Nothing of this changes how a program ends: hooks and signal handlers that are there are called afterwards, what a
signal does by default is done, and a handler that the program installs later replaces ours.
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
"""Called with the exception that ends the program, if there is one, and whether it really ends: a signal handler of
its own may let it go on."""


_LONGEST: Final = 200
"""Characters of the words about an exception."""
_USUAL: Final = (StopIteration, StopAsyncIteration, GeneratorExit)
"""Exceptions that end a loop in the usual way, if the program catches them."""


def cause_of(error: BaseException | None) -> str:
    """Says which exception, not caught, ends a training before its time; empty: it ends as it is meant to."""
    if error is None:
        return ""
    if isinstance(error, SystemExit):
        return _status_words(error.code)
    said = ""
    with contextlib.suppress(Exception):  # the text of an exception is the program's own code
        said = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {said}"[:_LONGEST] if said else type(error).__name__


def cause_of_handled(error: BaseException | None) -> str:
    """As ``cause_of``, of an exception that is handled just now, or on its way through a ``finally``."""
    return "" if isinstance(error, _USUAL) else cause_of(error)


def _status_words(status: object) -> str:
    if status is None or status == 0:
        return ""
    return f"exit status {status if isinstance(status, int) else 1}"


class EndListener:
    """One that wants to know when the process ends, or why.

    Attributes:
        thread: the one that trains: an exception that ends another one is nothing to tell.
    """

    def __init__(self, ended: Ended | None = None) -> None:
        """From now on. Signals are heard of where this is made in the main thread only.

        Args:
            ended: a bound method. Its object is not kept alive. None: only ``cause`` is wanted, and signals do what
                they did.
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
        """No longer. Idempotent."""
        _remove(self)

    @property
    def wants_signals(self) -> bool:
        """Tells whether signals are wanted, too."""
        return self._ended is not None

    @property
    def cause(self) -> str:
        """What ends the training before its time, as far as the process knows by now; empty: nothing."""
        if self._cause or hasattr(sys, "ps1"):  # a person at a prompt goes on after an exception
            return self._cause
        # An exception hook that was installed after ours, and does not call it, leaves the exception here.
        last = getattr(sys, "last_value", None)
        return cause_of(last) if last is not self._before else ""

    def goes_on(self) -> None:
        """The thread that calls trains on: what looked like an end was none."""
        self.thread, self._cause = threading.get_ident(), ""

    def hears(self, cause: str, thread: int | None, *, first: bool = False) -> None:
        """Keeps what ends a thread (None: the main one); of several causes the last, or with ``first`` the first."""
        if thread is None or thread == self.thread:
            self._cause = self._cause if first and self._cause else cause

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Around what must not be told in the middle of: a signal that comes meanwhile is followed afterwards."""
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
        """Tells whether a signal has to wait, because this very thread is at work."""
        if self._worker != threading.get_ident():
            return False
        self._late = [handler]
        return True

    def notify(self, error: BaseException | None, ends: bool) -> None:
        """The process ends. Whatever goes wrong here has no consequences."""
        if self._lock.acquire(timeout=_PATIENCE):
            try:
                ended = self._ended() if self._ended is not None else None
                if ended is not None:
                    with contextlib.suppress(Exception):
                        ended(error, ends)
            finally:
                self._lock.release()


class _ExceptionHook:
    """An exception hook in front of the one that was there. One that is no longer in use only passes on."""

    def __init__(self, before: Callable[..., Any]) -> None:
        self.before = before

    def __call__(self, *given: Any) -> None:
        """Called by Python: for the main thread with three arguments, for others with one that holds them."""
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
    """A signal handler in front of the one that was there. One that is no longer in use only passes on.

    Attributes:
        number: of the signal.
        func: the program's own handler, named as in ``functools.partial``: what it raises is the program's.
    """

    def __init__(self, number: int, before: Any) -> None:
        self.number = number
        self.before = before
        self.func: Callable[[int, FrameType | None], Any] = before if callable(before) else _by_default

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Called by Python."""
        chained = self.func is not _by_default
        if _handlers.get(number) is self and os.getpid() == _hooks.process:
            if any(each.waits(self) for each in _endings):
                return
            _notify(None, not chained)
        if chained or signal.getsignal(number) is self:  # a later handler that calls this one decides for itself
            self.func(number, frame)


class _Hooks:
    """The hooks that are installed in this process."""

    process = 0
    main: _ExceptionHook | None = None
    threads: _ExceptionHook | None = None
    leave: Final[dict[type | ModuleType, Callable[..., Any]]] = {}
    """By where they are: ``sys.exit``, and that of ``exit`` and ``quit``."""


_endings: Final[list[EndListener]] = []
_lock: Final = threading.RLock()
_handlers: Final[dict[int, _Handler]] = {}
_hooks: Final = _Hooks()


def _install(ending: EndListener) -> None:
    with _lock:
        if os.getpid() != _hooks.process:
            _endings.clear()  # those of the process that this one was forked from
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
    """Returns where the functions are by which a program leaves with an exit status, and their names."""
    quitter = type(getattr(builtins, "exit", None))
    return [(sys, "exit"), *([(quitter, "__call__")] if quitter.__module__ == "_sitebuiltins" else [])]


def _hearing(leave: Callable[..., Any], *, itself: bool) -> Callable[..., Any]:
    """One of ``_leaving``, which is then heard of: nothing tells the exit status when a process ends.

    ``itself``: the first argument is the object that is called.
    """

    @functools.wraps(leave)
    def heard(*given: Any, **named: Any) -> Any:
        if heard in _hooks.leave.values() and os.getpid() == _hooks.process:
            words = _status_words(next(iter((*given[itself:], *named.values())), None))
            error = cause_of_handled(sys.exc_info()[1]) if words else ""
            here = None if threading.current_thread() is threading.main_thread() else threading.get_ident()
            # A process of multiprocessing leaves with the status of what ended it: what came first says more.
            _hear(f"{words} after {error}" if error else words, here, first=bool(words))
        return leave(*given, **named)

    return heard


def _hear(cause: str, thread: int | None, *, first: bool = False) -> None:
    for ending in tuple(_endings):
        ending.hears(cause, thread, first=first)


def _handle(number: int) -> None:
    now = signal.getsignal(number)
    if now is None or now is _handlers.get(number) or now in (signal.SIG_IGN, signal.default_int_handler):
        return  # Ctrl+C is an exception by default, which is heard of as one; None: a handler that is not Python's
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
