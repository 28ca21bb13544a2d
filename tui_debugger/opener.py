"""The one way to open a file of a dump, and what is said about whatever cannot be looked at in one.

A dump may hold anything in place of a file: a pipe that nobody writes to, a link to a device that never ends, a file
of a size that no such file has. So only regular files are opened, none of them waits, and what is no tensor is read up
to a size that is plausible for its kind.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

OPEN_FLAGS: Final = (
    os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
)
"""Non-blocking, because opening a named pipe would wait for a writer for ever."""
_KINDS: Final = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
)


METADATA_LIMIT: Final = 1 << 24
"""Bytes that a file about a run may have: settings, versions, a table of devices."""
GRAPH_LIMIT: Final = 1 << 29
"""Bytes that a graph file may have: a hundred times those of a graph of 100,000 nodes with the stack of each."""
LINE_LIMIT: Final = 1 << 16
"""Bytes that a line of a table may have."""


class NotRegularError(OSError):
    """The thing at a path is no regular file; ``strerror`` says what it is."""


class TooLargeError(OSError):
    """A file is larger than any of its kind; ``strerror`` says how large it is."""


def open_regular(path: str | bytes | Path) -> tuple[int, os.stat_result]:
    """Opens a regular file for reading; the caller closes the descriptor. Never waits for somebody who writes.

    Raises:
        OSError: it cannot be opened.
        NotRegularError: it is no regular file.
        ValueError: the path has a character that no path can have.
    """
    descriptor = os.open(path, OPEN_FLAGS)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            text = f"{kind_of(status.st_mode)} in place of a file"
            raise NotRegularError(errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL, text)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status


def read_regular(path: str | bytes | Path, limit: int) -> bytes:
    """Returns all bytes of a regular file.

    Args:
        path: the file.
        limit: bytes that it may have.

    Raises:
        OSError: see ``open_regular``.
        TooLargeError: it has more; nothing is read then.
    """
    descriptor, status = open_regular(path)
    with os.fdopen(descriptor, "rb") as file:
        if status.st_size > limit:
            raise TooLargeError(errno.EFBIG, f"{status.st_size:,} bytes, and {limit:,} are plausible")
        content = file.read(limit + 1)
    if len(content) > limit:  # it grew, or is none of those whose size is known
        raise TooLargeError(errno.EFBIG, f"more than {limit:,} bytes")
    return content


def read_lines(path: str | bytes | Path, *, cut: bool = False) -> Iterator[bytes]:
    """Yields the lines of a regular file without their ends; reads it in pieces, whatever its size.

    Args:
        path: the file.
        cut: of a line of more than ``LINE_LIMIT`` bytes the first ones are yielded, for who counts what makes no sense.

    Raises:
        OSError: see ``open_regular``.
        TooLargeError: a line has more than ``LINE_LIMIT`` bytes, and is not to be cut.
    """
    descriptor, _ = open_regular(path)
    with os.fdopen(descriptor, "rb") as file:
        while line := file.readline(LINE_LIMIT + 1):
            if len(line) > LINE_LIMIT and not cut:
                raise TooLargeError(errno.EFBIG, f"a line of more than {LINE_LIMIT:,} bytes")
            yield line.rstrip(b"\r\n")
            while len(line) > LINE_LIMIT and not line.endswith(b"\n"):
                line = file.readline(LINE_LIMIT + 1)


def kind_of(mode: int) -> str:
    """``a FIFO``: what lies at a path, by its ``st_mode``."""
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "a device")


def why_not(path: str | bytes | Path, error: OSError | None = None, *, wanted: str = "a directory") -> str:
    """In a few words why a path cannot be looked at: ``permission denied``, ``a FIFO in place of a directory``.

    Args:
        path: the path.
        error: what the system said; None: only that it is not what was wanted.
        wanted: what should be there.
    """
    if isinstance(error, NotRegularError):
        return str(error.strerror)
    try:
        kind = kind_of(os.stat(path).st_mode)  # noqa: PTH116 - a path of bytes
    except FileNotFoundError:
        return "a dangling link" if os.path.islink(path) else "vanished"  # noqa: PTH114 - see above
    except (OSError, ValueError) as problem:
        return _words(error if error is not None else problem)
    if kind != wanted and not (kind == "a file" and wanted.endswith(" file")):
        return f"{kind} in place of {wanted}"
    if error is not None:
        return _words(error)
    return "cannot be read" if os.access(path, os.R_OK) else "permission denied"


def _words(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        return "a loop of links"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:] if text else type(error).__name__
