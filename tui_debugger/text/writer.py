"""The one place that writes to a terminal, a pipe or a log: nothing goes there that could command it.

A test forbids ``print``, ``sys.stdout.write`` and the like elsewhere. Results for programs (JSON, CSV) go through
``write_data``: JSON escapes by itself what is not plain ASCII.
"""

from __future__ import annotations

import re
import sys
import traceback
from typing import IO, TYPE_CHECKING, Final

from tui_debugger.text.clean import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_COLOR: Final = re.compile("(\x1b\\[[0-9;]*m)")
_BLANK_LINE: Final = "\r\x1b[K"
"""Back to the first column, and what stands there is wiped away."""


def write_lines(*lines: str, flush: bool = False) -> None:
    """Writes lines to stdout. Each argument is one line: a line break in a name is shown, not obeyed."""
    _write(sys.stdout, map(clean, lines), flush=flush)


def write_colored(*lines: str) -> None:
    """Writes lines whose colours are meant to stdout: of a picture, or of ``argparse``. All else is made safe."""
    _write(sys.stdout, map(_colored, lines))


def write_errors(*lines: str) -> None:
    """Writes lines to stderr, each argument one line."""
    _write(sys.stderr, map(clean, lines))


def write_traceback() -> None:
    """Writes the traceback of the exception that is being handled to stderr: its text may hold names of a run."""
    write_errors(*traceback.format_exc().rstrip("\n").split("\n"))


def write_data(text: str, *, flush: bool = False) -> None:
    """Writes text for programs to stdout as it is: JSON, and CSV whose cells were cleaned."""
    sys.stdout.write(text)
    if flush:
        sys.stdout.flush()


def write_usage(text: str, stream: IO[str]) -> None:
    """Writes what ``argparse`` says, which since Python 3.14 has colours of its own."""
    _write(stream, map(_colored, text.removesuffix("\n").split("\n")))


class StatusLine:
    """One line of a terminal that is drawn again and again."""

    def __init__(self, stream: IO[str], columns: Callable[[], int]) -> None:
        """``columns``: how wide the terminal is."""
        self._stream = stream
        self._columns = columns

    def show(self, text: str) -> None:
        """Replaces the line. It is cut: what is broken over two lines cannot be taken back from the first one."""
        self._stream.write(_BLANK_LINE + clean(text)[: self._columns() - 1])
        self._stream.flush()

    def wipe(self) -> None:
        """Leaves nothing of it."""
        self._stream.write(_BLANK_LINE)
        self._stream.flush()


def _colored(line: str) -> str:
    pieces = _COLOR.split(line)
    return "".join(piece if place % 2 else clean(piece) for place, piece in enumerate(pieces))


def _write(stream: IO[str] | None, lines: Iterable[str], *, flush: bool = False) -> None:
    if stream is None:  # closed by who started us
        return
    for line in lines:
        stream.write(line + "\n")
    if flush:
        stream.flush()
