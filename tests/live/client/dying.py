"""A training of six steps that may end in its fifth one: ``python -m tests.live.client.dying HOW``."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator

import numpy as np

from tui_debugger.live.client import Recorder

LAST = 4
BROKE = "the data loader broke"


def main(how: str) -> None:
    """Trains in this process, in another thread of it, or in a child."""
    if how == "in a thread":
        thread = threading.Thread(target=train, args=("raise",))
        thread.start()
        thread.join()
    elif how == "generator":
        for _ in steps():
            return  # which closes it
    elif how.startswith("forked"):
        child = multiprocessing.get_context("fork").Process(target=train, args=(how.partition(" ")[2],))
        child.start()
        child.join()
    elif how == "again":
        try:
            raise MemoryError
        except MemoryError:  # it begins once more while it handles what ended the first try
            train("stop")
    else:
        train(how)


def train(how: str) -> None:
    """Six steps; in the fifth one it ends as it was told."""
    recorder = Recorder()
    weight = np.ones(3)
    try:
        for step in range(LAST + 2):
            recorder.record("h", weight * step)
            if step == LAST:
                if how in ("", "stop", "again"):
                    return
                end(how)
            weight = weight * 0.5
            recorder.record("w", weight, kind="weight")
            recorder.step()
    except StopIteration:
        pass
    finally:
        if how in ("close", "next", "stop"):
            recorder.close()


def steps() -> Iterator[int]:
    """Six steps; whoever takes them may have enough after the fourth one."""
    with Recorder() as recorder:
        for step in range(LAST + 2):
            recorder.record("h", np.ones(3))
            recorder.step()
            if step == LAST - 1:
                yield step


def end(how: str) -> None:
    """Ends the program."""
    if how in ("raise", "close"):
        raise ValueError(BROKE)
    if how == "next":
        next(iter(()))
    if how == "GeneratorExit":
        raise GeneratorExit
    if how == "cancelled":
        raise asyncio.CancelledError(BROKE)
    if how.startswith("quit"):
        quit(int(how.partition(" ")[2]))  # noqa: PLR1722 - many programs end so
    if how == "exit after":
        try:
            raise ValueError(BROKE)
        except ValueError:
            sys.exit(3)
    if how.startswith("exit"):
        status = how.partition(" ")[2]
        sys.exit(int(status) if status.isdigit() else status)
    if how == "_exit":
        os._exit(0)
    if how.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, how))


if __name__ == "__main__":
    main(sys.argv[1])
