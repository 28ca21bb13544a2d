"""What a worker process of ``pool`` runs: calls come in through stdin, answers go out through stdout."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from typing import IO, Final, NoReturn

START: Final = """\
import sys
size = int.from_bytes(sys.stdin.buffer.read(8), "little")
sys.path[:] = __import__("pickle").loads(sys.stdin.buffer.read(size))
from tui_debugger.analysis.worker import serve
serve()
"""
"""The program of a worker: it first gets the places where its modules are."""
_ONE_THREAD: Final = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Every core has a worker already: more threads would take memory and time from each other."""
_KEEP_FREED: Final = {"MALLOC_MMAP_THRESHOLD_": str(1 << 22), "MALLOC_TRIM_THRESHOLD_": str(1 << 24)}
"""Memory of arrays is used again (glibc): by default it goes back to the system and comes anew, page by page, for every
window of small tensors, which takes a quarter of the time. 16 MB of it are kept at most."""
ENVIRONMENT: Final = _ONE_THREAD | _KEEP_FREED
"""What a worker's environment has beyond ours."""


def send(pipe: IO[bytes], message: bytes) -> None:
    """Writes a message."""
    pipe.write(len(message).to_bytes(8, "little"))
    pipe.write(message)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes:
    """Reads a message.

    Raises:
        EOFError: there is none left, or it breaks off.
    """
    size = int.from_bytes(pipe.read(8), "little")
    message = pipe.read(size)
    if not size or len(message) < size:
        raise EOFError
    return message


def serve() -> NoReturn:
    """Answers calls until nobody is left to make any.

    The first message just says that the worker is there; an answer is (True, result) or (False, exception), pickled.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever presses Ctrl-C means the parent, and that decides
    calls, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not get between the answers
    from tui_debugger.analysis import huge, look  # noqa: F401 - before anybody waits for them

    try:
        send(answers, b"here")
        while True:
            send(answers, _answer(receive(calls)))
    except (EOFError, OSError):
        os._exit(0)  # nothing is left to be put in order: a worker only reads


def _answer(message: bytes) -> bytes:
    try:
        function, arguments = pickle.loads(message)  # noqa: S301 - the parent's own
        return pickle.dumps((True, function(*arguments)), pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 - the parent gets it, whatever it is
        try:
            return pickle.dumps((False, error), pickle.HIGHEST_PROTOCOL)
        except Exception:  # noqa: BLE001 - or hears of it
            return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
