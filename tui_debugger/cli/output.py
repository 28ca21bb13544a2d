"""The output of commands: tables, JSON, progress on stderr, Ctrl-C, and what could not be looked at."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tui_debugger import __version__
from tui_debugger.errors import CancelledError, TdbgError, reason_of
from tui_debugger.text.clean import clean
from tui_debugger.text.documents import document as document_pieces
from tui_debugger.text.writer import (
    Line,
    Meaning,
    StatusLine,
    meant,
    terminal_of,
    write_data,
    write_errors,
    write_lines,
)

if TYPE_CHECKING:
    from argparse import Namespace
    from types import FrameType

    from tui_debugger.check.types import Pair
    from tui_debugger.model import Progress, ProgressFn, TensorKey, UnreadablePart
    from tui_debugger.session import Session
    from tui_debugger.text.tables import Column, Row

T = TypeVar("T")
_EVERY = 0.1
"""Seconds between two redraws of the progress bar."""


def print_json(document: dict[str, Any]) -> None:
    """Writes a whole document to stdout; the first Ctrl-C is ignored meanwhile, a second one stops it."""
    parts = {"scope": list(_scopes)} if _scopes else {}
    pressed = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    with _handler(stop):
        for piece in document_pieces({**document, **parts}):
            write_data(piece)
        write_data("", flush=True)


def one_format(arguments: Namespace) -> bool:
    """Tells whether ``--csv`` was given. Raises TdbgError if ``--json`` was given, too: both write to stdout."""
    as_csv = getattr(arguments, "csv", False)
    if as_csv and arguments.json:
        raise TdbgError("--csv and --json exclude each other", where="--csv --json", hint="leave one out")
    return as_csv


def print_csv(titles: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    from tui_debugger.text.spreadsheets import CsvTable

    line = io.StringIO()
    table = CsvTable(line, for_lines=True)
    for row in chain([titles], rows):
        table.row(row)
        write_data(line.getvalue())
        line.seek(0)
        line.truncate()
    write_data("", flush=True)


def document_head(command: str, path: object, code: int) -> dict[str, Any]:
    return {"command": command, "path": None if path is None else str(path), "exit_code": code}


def failure(command: str, path: object, error: TdbgError) -> dict[str, Any]:
    """The JSON document of any command that failed: ``error`` has the three parts."""
    reason = {"what": error.what, "where": error.where, "hint": error.hint}
    return {**document_head(command, path, error.exit_code), "error": reason}


def nowhere(error: OSError) -> TdbgError:
    """Returns the error for a removed working directory."""
    what = f"the working directory cannot be found: {reason_of(error)}"
    return TdbgError(what, where=".", hint="change into one, or name a PATH")


def unusable(error: OSError) -> TdbgError:
    """Returns the error for an OSError about a path that no command handled, such as on a broken disk."""
    return TdbgError(
        f"the path cannot be used: {reason_of(error)}",
        where=os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else str(error.filename),
        hint="look whether the file system is there and works, and whether you may use the path",
    )


def undecided(command: str, path: object, error: TdbgError) -> dict[str, Any]:
    """The document of a judging command that could not begin: ``failure`` and the keys of its other documents.

    Imports nothing: Ctrl-C may have hit the import of numpy, which cannot be repeated then.
    """
    return {
        **document_head(command, path, error.exit_code),
        "verdict": "interrupted" if isinstance(error, CancelledError) else "cannot_judge",
        "reasons": [{"kind": "error", "text": error.what, "where": error.where, "hint": error.hint}],
        "error": failure(command, path, error)["error"],
        "version": __version__,
    }


@contextmanager
def documented(
    command: str,
    arguments: Namespace,
    document: Callable[[str, object, TdbgError], dict[str, Any]] = failure,
) -> Iterator[None]:
    """With ``--json`` prints an error as a document on stdout, made by ``document``, and raises it again.

    Raises CancelledError for Ctrl-C at any time, TdbgError for an OSError that names a file.
    """
    pressed = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        pressed.set()
        raise KeyboardInterrupt

    raised: TdbgError
    try:
        with _handler(stop):
            yield
        return
    except TdbgError as error:
        raised = error
    except KeyboardInterrupt:
        raised = CancelledError("interrupted")
    except Exception as error:
        if not pressed.is_set():
            if isinstance(error, OSError) and error.filename is not None:
                raised = unusable(error)
            else:
                raise
        else:
            raised = CancelledError("interrupted")  # which an import of numpy makes an ImportError
    if arguments.json:
        print_json(document(command, arguments.path, raised))
    raise raised


def print_table(columns: Sequence[Column | str], rows: Iterable[Row]) -> None:
    """Prints aligned columns that fit a terminal and stay whole in a pipe; put the longest column last.

    A column that is a text is left-aligned. Cells are made safe here.
    """
    from tui_debugger.text.tables import Column, table_lines

    every = [Column(each) if isinstance(each, str) else each for each in columns]
    write_lines(*table_lines(every, rows, terminal_of()))


def print_first(columns: Sequence[Column | str], rows: Sequence[T], cells: Callable[[T], Row], most: int) -> None:
    """Prints a table of the first ``most`` rows (0: all), and the number of further rows."""
    shown = rows[: most or None]
    print_table(columns, map(cells, shown))
    if len(rows) > len(shown):
        print_text(f"{len(rows) - len(shown):,} more (--top 0 lists all)")


def print_text(*lines: Line, hang: int | None = None) -> None:
    """Writes sentences to stdout, each a line, folded at the width of a terminal. ``hang``: see ``fold``."""
    terminal = terminal_of()
    if terminal is None:
        write_lines(*lines)
        return
    from tui_debugger.text.tables import fold

    write_lines(*(part for line in lines for part in (fold(line, terminal, hang) or [()])))


_EXITS: Final = {
    0: "clean",
    1: "a finding",
    TdbgError.exit_code: "cannot judge",
}


def meaning_of(code: int) -> Meaning:
    return {0: Meaning.CLEAN, 1: Meaning.FINDING}.get(code, Meaning.DOUBT)


def doubt_lines(doubts: Iterable[str]) -> list[Line]:
    """Returns the reasons for an undecided answer, a line each, safe to print."""
    return [meant(f"cannot judge: {clean(doubt)}", Meaning.DOUBT) for doubt in doubts]


def print_doubts(doubts: Sequence[str], most: int) -> None:
    """Prints the first ``most`` doubts, and the number of further ones."""
    for doubt in doubts[:most]:
        print_text(meant(f"doubt: {doubt}", Meaning.DOUBT))
    if len(doubts) > most:
        print_text(f"{len(doubts) - most} more doubts (--json lists them)")


def print_exit(code: int, words: str = "") -> None:
    """Writes the meaning of the exit code, on a terminal only: there nobody sees the code itself."""
    if terminal_of() is not None:
        print_text(f"exit code {code}: {words or _EXITS.get(code, 'interrupted' if code > 128 else 'failed')}")


def note(text: str, meaning: Meaning | None = None) -> None:
    """Writes a sentence to stderr, once a command."""
    if text in _noted:
        return
    _noted.add(text)
    write_errors(*on_errors(("tdbg: ", meant(text, meaning))))


def on_errors(line: Line, hang: int = len("tdbg: ")) -> Sequence[Line]:
    """Returns a sentence for stderr, folded if stderr is a terminal; ``hang`` as for ``fold``."""
    terminal = None if sys.stderr is None else terminal_of(sys.stderr)
    if terminal is None:
        return [line]
    from tui_debugger.text.tables import fold

    return fold(line, terminal, hang)


_LEFT_OUT: Final = 5
"""The most tensors that a notice names; the index of the written files names every tensor."""
_noted: set[str] = set()
_scopes: dict[str, None] = {}


def left_out(failures: Sequence[tuple[TensorKey, str]], *, with_graph: bool = False) -> list[str]:
    """Names the first tensors that were not written, and counts the others."""
    from tui_debugger.text.tensors import place_text

    named = [
        f"left out: rank {key.rank} step {key.step} {place_text(key, with_graph=with_graph)}: {reason}"
        for key, reason in failures[:_LEFT_OUT]
    ]
    more = len(failures) - _LEFT_OUT
    return [*named, f"left out: {more:,} more"] if more > 0 else named


def begin_notes() -> None:
    """Forgets the notes of the previous command."""
    _noted.clear()
    _scopes.clear()


def say_scope(text: str, *, on_stdout: bool) -> None:
    """Names the part of a run that a command looks at: on stdout, or on stderr if stdout takes data."""
    if not text:
        return
    _scopes[text] = None
    if on_stdout and text not in _noted:
        _noted.add(text)
        print_text(clean(text))
    note(text)


@contextmanager
def progress_bar() -> Iterator[ProgressFn]:
    """Yields a receiver of progress that draws a bar on a terminal's stderr and wipes it at the end."""
    if not sys.stderr.isatty():
        from tui_debugger.model import no_progress

        yield no_progress
        return
    line = StatusLine(sys.stderr, _columns)
    try:
        yield _Bar(line).draw
    finally:
        line.wipe()


class _Bar:
    def __init__(self, line: StatusLine) -> None:
        self._line = line
        self._next = 0.0

    def draw(self, snapshot: Progress) -> None:
        """Draws, at most every ``_EVERY`` seconds."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _EVERY
        width = 24
        filled = int(width * (snapshot.part or 0))
        share = "  …  " if snapshot.part is None else f"{100 * snapshot.part:3.0f} %"
        self._line.show(f"{'█' * filled}{'░' * (width - filled)} {share} {snapshot.text}")


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80  # a terminal may not know its size
    except (OSError, ValueError):
        return 80


@contextmanager
def interruptible(progress: ProgressFn) -> Iterator[ProgressFn]:
    """Turns Ctrl-C into ``CancelledError``, raised at once, so that finished work can still be reported.

    Yields ``progress``, which raises the error again if the first one was swallowed.
    """
    pressed = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        pressed.set()
        raise CancelledError("interrupted")

    def report(snapshot: Progress) -> None:
        if pressed.is_set():
            raise CancelledError("interrupted")
        progress(snapshot)

    with _handler(stop):
        try:
            yield report
        except CancelledError:
            raise
        except Exception:
            if pressed.is_set():  # what it interrupted, such as an import of numpy, made something else of it
                raise CancelledError("interrupted") from None
            raise


@contextmanager
def _handler(stop: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        with suppress(CancelledError, KeyboardInterrupt):
            signal.signal(signal.SIGINT, before)


@dataclass(frozen=True, slots=True)
class Unseen:
    """The parts that could not be looked at, in the order of their paths."""

    parts: tuple[UnreadablePart, ...] = ()

    def code(self, code: int) -> int:
        """Turns exit code 0 into 2, "cannot judge", if a part is missing."""
        return TdbgError.exit_code if self.parts and not code else code

    @property
    def rows(self) -> dict[str, Any]:
        """For JSON: ``reasons`` as in ``tdbg check``, and the parts."""
        if not self.parts:  # and imports nothing: Ctrl-C may have left an import of numpy in the middle
            return {"reasons": [], "unreadable": []}
        from tui_debugger.check.results import parts_text
        from tui_debugger.text.rows import part_rows

        reasons = [{"kind": "unreadable", "text": parts_text(self.parts)}]
        return {"reasons": reasons, "unreadable": part_rows(self.parts)}

    def print_note(self) -> None:
        """Prints one line to stderr: what, where, what to do."""
        if self.parts:
            from tui_debugger.check.results import advice_for, parts_text

            note(f"cannot judge: {parts_text(self.parts)}; {advice_for(self.parts)}")


ALL_SEEN: Final = Unseen()


def outcome_of(*, finding: object = False, doubt: object = False, interrupted: object = False) -> int:
    """The exit code of every command: a finding outranks a doubt, and an interruption outranks both."""
    if interrupted:
        return CancelledError.exit_code
    return 1 if finding else TdbgError.exit_code if doubt else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command answers: ``show`` prints it for people, ``csv`` are its titles and rows.

    ``code`` is without the ``missing`` parts, which are None where the answer has counted them; ``reasons`` are doubts
    beside them. ``show`` takes the exit code.
    """

    show: Callable[[int], None]
    document: Callable[[], Mapping[str, Any]]
    code: int = 0
    verdict: str = ""
    missing: Unseen | None = None
    reasons: Sequence[Mapping[str, object]] = ()
    notices: Iterable[str] = ()
    csv: Callable[[], tuple[Iterable[str], Iterable[Iterable[object]]]] | None = None


Command = Callable[["Namespace", "ProgressFn"], Answer]
"""Answers a command line; what is wrong with it is a TdbgError."""


def runner(name: str, answer: Command, *, judges: bool = False) -> Callable[[Namespace], int]:
    """Returns the function that runs a command, prints its answer, and returns the exit code."""
    return partial(_run, name, answer, undecided if judges else failure)


def _run(
    name: str,
    command: Command,
    failed: Callable[[str, object, TdbgError], dict[str, Any]],
    arguments: Namespace,
) -> int:
    with documented(name, arguments, failed):
        as_csv = one_format(arguments)
        with progress_bar() as bar, interruptible(bar) as progress:
            answer = command(arguments, progress)
    code, missing = answer.code, answer.missing
    for notice in answer.notices:
        note(notice)
    if missing is not None:
        missing.print_note()
        code = missing.code(code)
    if arguments.json:
        head = document_head(name, arguments.path, code) | ({"verdict": answer.verdict} if answer.verdict else {})
        rows = {} if missing is None else missing.rows
        if answer.reasons:
            rows["reasons"] += answer.reasons
        print_json({**head, **answer.document(), **rows})
    elif as_csv and answer.csv is not None:
        print_csv(*answer.csv())
    else:
        answer.show(code)
    return code


def unseen(session: Session, pairs: Sequence[Pair] | None = None, *, graph: bool = True) -> Unseen:
    """Returns the unseen parts of the asked ranks and steps; to be called after all other work.

    ``pairs`` are the (rank, step) of the answer (None: all asked ones); ``graph``: the answer depends on the graph.
    """
    return Unseen(session.unreadable(pairs, graph=graph))


def from_on(session: Session, shown: Iterable[Pair]) -> list[Pair]:
    """The shown pairs and all later ones: a search for the last step depends on later steps as well."""
    found: list[Pair] = []
    for rank, step in shown:
        steps = list(session.steps(rank))
        later = steps[steps.index(step) :] if step in steps else [step]
        found += [(rank, each) for each in later]
    return found
