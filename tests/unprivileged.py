"""Runs something without the right to read what its mode forbids: tests of permissions hold for root, too.

On Linux this right is one of a thread. Whatever a thread starts has the rights that it has itself.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

_VERSION = 0x20080522
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1, 2
_CAPBSET_DROP = 24

Made = TypeVar("Made")


def _drop() -> None:
    """Gives up reading and listing everything, for this thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION, 0)
    data = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice, for 64 of them
    for right in (_DAC_OVERRIDE, _DAC_READ_SEARCH):
        libc.prctl(_CAPBSET_DROP, right, 0, 0, 0)  # else a process that root starts has all rights again
    if libc.capget(header, data):
        raise OSError(ctypes.get_errno(), "capget")
    for at in range(3):
        data[at] &= ~(1 << _DAC_OVERRIDE | 1 << _DAC_READ_SEARCH)
    if libc.capset(header, data):
        raise OSError(ctypes.get_errno(), "capset")


def unprivileged(work: Callable[[], Made]) -> Made:
    """What ``work`` returns or raises, done by a thread that may read no more than everybody else."""
    if os.geteuid() != 0:
        return work()
    if not sys.platform.startswith("linux"):
        pytest.skip("root may read everything")
    made: list[Made] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            _drop()
            made.append(work())
        except BaseException as error:  # noqa: BLE001 - it is raised again where it belongs
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return made[0]


@contextmanager
def forbidden(path: Path, mode: int = 0) -> Iterator[None]:
    """A path with a mode that forbids something, for a while."""
    before = path.stat().st_mode
    path.chmod(mode)
    try:
        yield
    finally:
        path.chmod(before)
