"""``tdbg origin --from NODE``: the path upstream from one tensor to where its bad values begin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tui_debugger import __version__
from tui_debugger.cli.options import chosen, open_session, pairs_of
from tui_debugger.cli.output import interruptible, note, print_json, progress_bar
from tui_debugger.errors import TdbgError
from tui_debugger.model import ProgressFn, TensorKey, Watchpoint
from tui_debugger.session.naming import find_node
from tui_debugger.session.origin.examine import State
from tui_debugger.session.origin.path import Ending, Path, with_nearest
from tui_debugger.session.origin.path_text import path_lines
from tui_debugger.session.origin.rows import path_rows
from tui_debugger.session.origin.search import OVERFLOW_ANYWHERE
from tui_debugger.session.origin.tracer import Tracer
from tui_debugger.session.tables import key_row
from tui_debugger.session.undisturbed import undisturbed
from tui_debugger.words.clean import clean

if TYPE_CHECKING:
    import argparse

    from tui_debugger.session import Session
    from tui_debugger.session.naming import Found

_CODES = {State.BAD: 1, State.CLEAN: 0, State.UNKNOWN: 2}
_VERDICTS = {State.BAD: "finding", State.CLEAN: "clean", State.UNKNOWN: "cannot_judge"}


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
        path = _find(session, arguments, watchpoints or (OVERFLOW_ANYWHERE,), progress)
    for notice in session.info.notices:
        note(notice)
    code = _CODES[path.state]
    if arguments.json:
        print_json(_document(path, arguments, code))
    else:
        print("\n".join(path_lines(path)))
    return code


def _find(
    session: Session, arguments: argparse.Namespace, watchpoints: Sequence[Watchpoint], progress: ProgressFn
) -> Path:
    ranks = chosen(arguments.rank, session.ranks(), "rank")
    tables = {rank: session.nodes(rank, progress) for rank in ranks}
    found = find_node(tables, {rank: session.in_scope(rank) for rank in ranks}, arguments.start)
    pairs = [pair for pair in pairs_of(session, arguments) if pair[0] in found.rows]
    path = undisturbed(lambda: _first_bad(session, found, pairs, watchpoints, progress))
    if path.ending is not Ending.CLEAN:
        return path
    report = session.find_origin(session.pairs(), watchpoints, progress, 0)
    return with_nearest(session, path, report.origins[0].hit if report.origins else None)


def _first_bad(
    session: Session,
    found: Found,
    pairs: Iterable[tuple[int, int]],
    watchpoints: Sequence[Watchpoint],
    progress: ProgressFn,
) -> Path:
    """The path from the earliest bad one of the tensors that were asked for; of the last one when none is bad.

    Raises:
        TdbgError: there is no such tensor.
        CancelledError: from ``progress``.
        RenumberedError: the nodes were read anew meanwhile.
    """
    tracers = [Tracer(session, watchpoint, progress) for watchpoint in watchpoints]
    judged: list[tuple[TensorKey, State]] = []
    for rank, step in pairs:
        for key in _keys(session, found, rank, step):
            for tracer in tracers:
                state = tracer.state(key)
                if state is State.BAD:
                    return tracer.trace(key)
                judged.append((key, state))
    if not judged:
        where = clean(f"{found.node} {found.asked}".strip())
        raise TdbgError("this node has no such tensor here", where=where, hint="`tdbg show` lists its tensors")
    known = [key for key, state in judged if state is State.CLEAN]
    return tracers[0].trace(known[-1] if known else judged[-1][0])


def _keys(session: Session, found: Found, rank: int, step: int) -> list[TensorKey]:
    """The wanted tensors at a step; of a node without more words its outputs."""
    rows = session.tensor_rows(rank, step, found.rows[rank])
    wanted = [row for row in rows if found.asked.covers(row)]
    outputs = [row for row in wanted if row.role == "out"]
    return [row.key for row in (outputs if outputs and not found.asked.role else wanted)]


# -- for machines ----------------------------------------------------------------------------------


def _document(path: Path, arguments: argparse.Namespace, code: int) -> dict[str, Any]:
    return {
        "command": "origin",
        "path": str(arguments.path),
        "exit_code": code,
        "verdict": _VERDICTS[path.state],
        "from": key_row(path.start.tensor.key),
        **path_rows(path),
        "nearest_origin": key_row(path.nearest.tensor.key) if path.nearest is not None else None,
        "version": __version__,
    }
