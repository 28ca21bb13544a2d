"""Sizes and modification times of many files, asked for by directory: a path is walked once, not for each file.

Measured with 950 files a directory, names included: 1.5 µs a file through the directory's descriptor, 1.7 by whole
paths. Calling ``fstatat`` through ctypes, all names in one buffer, takes 1.4: nearly all of it is the kernel's time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import numpy as np

from tui_debugger.arrays import Int64

States = tuple[Int64, Int64]
"""Sizes in bytes, and modification times in ns (as int64, so within 292 years of 1970); -1, 0 where there is none."""


def file_states(paths: Iterable[bytes]) -> States:
    """States of files anywhere; symbolic links are followed."""
    return _states(paths, None)


def directory_states(directory: bytes, names: Sequence[bytes]) -> States:
    """States of files of one directory; symbolic links are followed. Without the directory there are no files."""
    if os.stat not in os.supports_dir_fd:
        return file_states(directory + b"/" + name for name in names)
    try:
        descriptor = os.open(directory, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY)
    except (OSError, ValueError):
        return np.full(len(names), -1, np.int64), np.zeros(len(names), np.int64)
    try:
        return _states(names, descriptor)
    finally:
        os.close(descriptor)


def _states(paths: Iterable[bytes], descriptor: int | None) -> States:
    sizes: list[int] = []
    times: list[int] = []
    for path in paths:
        try:
            status = os.stat(path, dir_fd=descriptor)
        except (OSError, ValueError):  # noqa: PERF203 - calling a function for each costs more
            sizes.append(-1)
            times.append(0)
        else:
            sizes.append(status.st_size)
            times.append(status.st_mtime_ns)
    try:
        when = np.array(times, np.int64)
    except OverflowError:
        when = np.array([(time + 2**63) % 2**64 - 2**63 for time in times], np.int64)
    return np.array(sizes, np.int64), when
