"""The one place that writes to a terminal, a pipe or a log: no text can control the terminal.

A test forbids ``print``, ``sys.stdout.write`` and the like elsewhere. JSON and CSV go through ``write_data``.
"""

from __future__ import annotations

import io
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import IO, TYPE_CHECKING, Final, cast

from tui_debugger.text.clean import clean

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

_COLOR: Final = re.compile("(\x1b\\[[0-9;]*m)")
_BLANK_LINE: Final = "\r\x1b[K"
"""Returns to the first column and erases the line."""


class Meaning(Enum):
    """The meanings of a piece of text, with their colours, which are those of the screen; the words say them, too."""

    FINDING = "1;38;5;214"
    DOUBT = "38;5;214"
    CLEAN = "1;38;5;75"


class Meant(str):
    """Text that has a meaning; an ordinary text for code that ignores colours."""

    __slots__ = ("meaning",)
    meaning: Meaning

    def __new__(cls, text: str, meaning: Meaning) -> Self:
        found = super().__new__(cls, text)
        found.meaning = meaning
        return found


def meant(text: str, meaning: Meaning | None) -> str:
    return text if meaning is None else Meant(text, meaning)


Pieces = tuple[str, ...]
Line = str | Pieces


def pieces_of(line: Line) -> Pieces:
    """Returns the pieces of a line, safe to print, with their meaning."""
    pieces = (line,) if isinstance(line, str) else line
    return tuple([Meant(clean(each), each.meaning) if isinstance(each, Meant) else clean(each) for each in pieces])


def line_text(line: Line) -> str:
    return line if isinstance(line, str) else "".join(line)


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal that is written to; ``columns`` are cells of a line, ``encoding`` limits its characters."""

    columns: int
    colored: bool = False
    encoding: str = "utf-8"

    def shows(self, text: str) -> bool:
        """Tells whether the terminal has every character of a text."""
        try:
            text.encode(self.encoding)
        except (UnicodeError, LookupError):
            return False
        return True

    def spelled(self, text: str) -> str:
        """Replaces characters that the terminal lacks by their numbers."""
        if text.isascii() or self.encoding.lower() in {"utf-8", "utf8"} or self.shows(text):
            return text
        return meant(
            text.encode(self.encoding, "backslashreplace").decode(self.encoding), getattr(text, "meaning", None)
        )


def terminal_of(stream: IO[str] | None = None) -> Terminal | None:
    """Returns the terminal of a stream (default: stdout); None for a pipe or a file. ``COLUMNS`` wins."""
    found: IO[str] | None = sys.stdout if stream is None else stream
    if found is None or not found.isatty():
        return None
    given = os.environ.get("COLUMNS", "")
    columns = int(given) if given.isascii() and given.isdecimal() and len(given) < 6 else 0
    if not columns:
        try:
            columns = os.get_terminal_size(found.fileno()).columns
        except (OSError, ValueError):
            columns = 0
    colored = "NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") != "dumb"
    return Terminal(
        columns or 80, colored, getattr(found, "encoding", "") or "utf-8"
    )  # a terminal may not know its size


def open_streams() -> None:
    """Replaces a missing stdin, stdout or stderr: else the next opened file would take its place.

    Writing to a missing stdout fails, as on a full disk; text for a missing stderr is dropped.
    """
    for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        with suppress(OSError):
            os.fstat(number)
            continue
        opened = os.open(os.devnull, flags)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
    if isinstance(getattr(sys.stdout, "buffer", None), io.FileIO):
        # PYTHONUNBUFFERED: Python loses what a write leaves over when a signal cuts it short. A buffer writes the rest.
        sys.stdout = open(  # noqa: SIM115 - lives as long as the process
            sys.stdout.fileno(), "w", buffering=1, encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False
        )
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - lives as long as the process
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - lives as long as the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - as above


def abandon(stream: IO[str]) -> None:
    """Redirects a broken stream to nowhere: its buffered text would fail again at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def write_lines(*lines: Line, flush: bool = False) -> None:
    """Writes lines to stdout, coloured on a terminal. A line break within an argument is shown, not obeyed."""
    _write(sys.stdout, _inked(lines, sys.stdout), flush=flush)


def write_colored(*lines: str) -> None:
    """Writes lines with intended colours to stdout: a picture, or text of ``argparse``. All else is made safe."""
    _write(sys.stdout, map(_colored, lines))


def write_errors(*lines: Line) -> None:
    """Writes lines to stderr, coloured as by ``write_lines``."""
    _write(sys.stderr, _inked(lines, sys.stderr))


def write_traceback() -> None:
    """Writes the traceback of the handled exception to stderr, safely: its text may hold names of a run."""
    write_errors(*traceback.format_exc().rstrip("\n").split("\n"))


def write_data(text: str, *, flush: bool = False) -> None:
    """Writes text for programs to stdout unchanged: JSON, and CSV with cleaned cells."""
    sys.stdout.write(text)
    if flush:
        sys.stdout.flush()


def write_usage(text: str, stream: IO[str]) -> None:
    """Writes usage text of ``argparse``, which since Python 3.14 has its own colours."""
    _write(stream, map(_colored, text.removesuffix("\n").split("\n")))


class StatusLine:
    """One line of a terminal that is redrawn in place. Other text for stderr replaces it."""

    def __init__(self, stream: IO[str], columns: Callable[[], int]) -> None:
        """``columns``: the width of the terminal."""
        self._stream = stream
        self._columns = columns

    def show(self, text: str) -> None:
        """Replaces the line and cuts it: a line that wraps could not be erased."""
        _standing.add(self)
        _write_error(self._stream, _BLANK_LINE + clean(text)[: self._columns() - 1])

    def wipe(self) -> None:
        _standing.discard(self)
        _write_error(self._stream, _BLANK_LINE)


_standing: Final[set[StatusLine]] = set()
"""The lines that stand on a terminal, at most one of each process."""


class _ErrorStream(io.TextIOBase):
    def write(self, text: str, /) -> int:
        if sys.stderr is not None:
            _write_error(sys.stderr, "\n".join(map(clean, text.split("\n"))))
        return len(text)


def error_stream() -> IO[str]:
    """Returns a stderr for foreign code, such as Textual and ``logging``, that makes its text safe."""
    return cast("IO[str]", _ErrorStream())


def guard_logs() -> None:
    """Makes the process's logs and thread tracebacks safe: grpc logs exceptions with a peer's text."""
    import logging

    handler = logging.StreamHandler(error_stream())
    handler.setLevel(logging.WARNING)
    logging.lastResort = handler
    threading.excepthook = _write_failure


def _write_failure(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_type is SystemExit:
        return
    name = failed.thread.name if failed.thread is not None else "?"
    raised = failed.exc_value if failed.exc_value is not None else failed.exc_type()
    lines = "".join(traceback.format_exception(failed.exc_type, raised, failed.exc_traceback)).rstrip("\n").split("\n")
    write_errors(f"Exception in thread {name}:", *lines)


def _inked(lines: Iterable[Line], stream: IO[str] | None) -> Iterable[str]:
    if not any(isinstance(piece, Meant) for line in lines for piece in (line if isinstance(line, tuple) else (line,))):
        return ("".join(pieces_of(line)) for line in lines)
    terminal = terminal_of(stream)
    colored = terminal is not None and terminal.colored
    return ("".join(_ink(piece) if colored else piece for piece in pieces_of(line)) for line in lines)


def _ink(piece: str) -> str:
    return f"\x1b[{piece.meaning.value}m{piece}\x1b[0m" if isinstance(piece, Meant) and piece else piece


def _colored(line: str) -> str:
    pieces = _COLOR.split(line)
    return "".join(piece if place % 2 else clean(piece) for place, piece in enumerate(pieces))


def _write(stream: IO[str] | None, lines: Iterable[str], *, flush: bool = False) -> None:
    if stream is None:  # closed by who started us
        return
    if stream is sys.stderr:
        for status in tuple(_standing):
            status.wipe()
    for line in lines:
        if stream is sys.stderr:
            _write_error(stream, line + "\n")
        else:
            stream.write(line + "\n")
    if flush:
        stream.flush()


def _write_error(stream: IO[str], text: str) -> None:
    """Writes to stderr; a failure is ignored, as it must not change the result."""
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        abandon(stream)
