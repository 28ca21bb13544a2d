"""``tdbg origin --from NODE``: the path upstream from one tensor to where its bad values begin."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tui_debugger import __version__
from tui_debugger.cli.options import chosen, open_session, pairs_of
from tui_debugger.cli.output import interruptible, note, print_json, progress_bar
from tui_debugger.cli.unseen import unseen
from tui_debugger.errors import TdbgError
from tui_debugger.model import ProgressFn, Watchpoint
from tui_debugger.session.naming import find_node, no_such_tensor
from tui_debugger.session.origin.blocks import WIDTH
from tui_debugger.session.origin.examine import State
from tui_debugger.session.origin.path import Ending, Path, with_nearest
from tui_debugger.session.origin.path_text import path_lines
from tui_debugger.session.origin.rows import path_rows
from tui_debugger.session.origin.search import OVERFLOW_ANYWHERE
from tui_debugger.session.origin.tracer import Tracer
from tui_debugger.session.tables import key_row
from tui_debugger.session.undisturbed import undisturbed
from tui_debugger.session.unreadable import parts_text
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import named, plural

if TYPE_CHECKING:
    import argparse

    from tui_debugger.session import Session
    from tui_debugger.session.naming import Found
    from tui_debugger.session.types import TensorRow

_CODES = {State.BAD: 1, State.CLEAN: 0, State.UNKNOWN: 2}
_VERDICTS = {State.BAD: "finding", State.CLEAN: "clean", State.UNKNOWN: "cannot_judge"}


@dataclass(frozen=True, slots=True)
class Looked:
    """What was judged until something bad was found, or to the end.

    Attributes:
        tensors: how many.
        ranks, steps: of which they are, ascending.
    """

    tensors: int
    ranks: tuple[int, ...]
    steps: tuple[int, ...]

    def places_text(self) -> str:
        """``steps 0-5; rank 0``."""
        return f"{named('step', self.steps)}; {named('rank', self.ranks)}"


def run(arguments: argparse.Namespace, watchpoints: Sequence[Watchpoint]) -> int:
    """Finds, prints, and returns the exit code.

    Args:
        arguments: of the command; ``start`` is the node.
        watchpoints: what is bad; none: NaN or Inf.

    Raises:
        TdbgError: no such node or tensor.
        CancelledError: Ctrl-C.
    """
    with progress_bar() as bar, interruptible(bar) as progress:
        session = open_session(arguments.path, arguments, progress)
        path, looked = _find(session, arguments, watchpoints or (OVERFLOW_ANYWHERE,), progress)
        missing = unseen(session)
    for notice in session.info.notices:
        note(notice)
    missing.tell()
    code = missing.code(_CODES[path.state])
    if arguments.json:
        print_json({**_document(path, looked, arguments, code), **missing.rows})
    else:
        if path.state is State.CLEAN:
            print(f"{plural(looked.tensors, 'tensor')} looked at, {looked.places_text()}")
        lines = list(path_lines(path))
        if code == TdbgError.exit_code and path.state is State.CLEAN:  # the last line says "clean"
            lines[-1:] = textwrap.wrap(f"cannot judge: {clean(parts_text(missing.parts))}", WIDTH)
        print("\n".join(lines))
    return code


def _find(
    session: Session, arguments: argparse.Namespace, watchpoints: Sequence[Watchpoint], progress: ProgressFn
) -> tuple[Path, Looked]:
    ranks = chosen(arguments.rank, session.ranks(), "rank")
    tables = {rank: session.nodes(rank, progress) for rank in ranks}
    found = find_node(tables, {rank: session.in_scope(rank) for rank in ranks}, arguments.start)
    pairs = [pair for pair in pairs_of(session, arguments) if pair[0] in found.rows]
    path, looked = undisturbed(lambda: _first_bad(session, found, pairs, watchpoints, progress))
    if path.ending is not Ending.CLEAN:
        return path, looked
    report = session.find_origin(session.pairs(), watchpoints, progress, 0)
    return with_nearest(session, path, report.origins[0].hit if report.origins else None), looked


def _first_bad(
    session: Session,
    found: Found,
    pairs: Sequence[tuple[int, int]],
    watchpoints: Sequence[Watchpoint],
    progress: ProgressFn,
) -> tuple[Path, Looked]:
    """The path from the earliest bad one of the tensors that were asked for.

    Of one that cannot be read when none is bad, for then nobody knows that all are clean; else of the last one.

    Raises:
        TdbgError: there is no such tensor.
        CancelledError: from ``progress``.
        RenumberedError: the nodes were read anew meanwhile.
    """
    tracers = [Tracer(session, watchpoint, progress) for watchpoint in watchpoints]
    judged: list[tuple[TensorRow, State]] = []
    for rank, step in pairs:
        for row in _rows(session, found, rank, step):
            for tracer in tracers:
                state = tracer.state(row.key)
                judged.append((row, state))
                if state is State.BAD:
                    return tracer.trace(row.key), _looked(judged)
    if not judged:
        raise no_such_tensor(
            found,
            (
                row
                for rank, step in pairs
                for row in session.tensor_rows(rank, step, found.rows[rank], found.asked.round)
            ),
        )
    doubtful = [row for row, state in judged if state is State.UNKNOWN and row.index >= 0]
    broken = [row for row in session.measure(doubtful, progress) if row.error]
    known = [row for row, state in judged if state is State.CLEAN]
    last = (broken or known or [row for row, _ in judged])[-1]
    return tracers[0].trace(last.key), _looked(judged)


def _looked(judged: Iterable[tuple[TensorRow, State]]) -> Looked:
    keys = {row.key for row, state in judged if state is not State.UNKNOWN}
    return Looked(len(keys), tuple(sorted({key.rank for key in keys})), tuple(sorted({key.step for key in keys})))


def _rows(session: Session, found: Found, rank: int, step: int) -> list[TensorRow]:
    """The wanted tensors at a step; of a node without more words its outputs."""
    rows = session.tensor_rows(rank, step, found.rows[rank], found.asked.round)
    wanted = [row for row in rows if found.asked.covers(row)]
    outputs = [row for row in wanted if row.role == "out"]
    return outputs if outputs and not found.asked.role else wanted


# -- for machines ----------------------------------------------------------------------------------


def _document(path: Path, looked: Looked, arguments: argparse.Namespace, code: int) -> dict[str, Any]:
    return {
        "command": "origin",
        "path": str(arguments.path),
        "exit_code": code,
        "verdict": "cannot_judge" if code == TdbgError.exit_code else _VERDICTS[path.state],
        "from": key_row(path.start.tensor.key),
        "looked_at": {"tensors": looked.tensors, "ranks": list(looked.ranks), "steps": list(looked.steps)},
        **path_rows(path),
        "nearest_origin": key_row(path.nearest.tensor.key) if path.nearest is not None else None,
        "version": __version__,
    }
