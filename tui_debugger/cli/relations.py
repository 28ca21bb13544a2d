"""``tdbg relations PATH NODE[:slot]``: the tensors that a tensor was made from, and its users."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from tui_debugger.cli.options import (
    Commands,
    add_command,
    add_node,
    add_watches,
    add_where,
    add_work,
    chosen,
    enabled_watchpoints,
    flag,
    open_session,
    whole,
)
from tui_debugger.cli.output import Answer, from_on, outcome_of, print_table, print_text, unseen
from tui_debugger.errors import TdbgError
from tui_debugger.text.documents import Row

if TYPE_CHECKING:
    from tui_debugger.check.types import TensorRow
    from tui_debugger.diagnose.relations import Neighbourhood, Related, RelatedTree, Relations
    from tui_debugger.model import ProgressFn, TensorKey
    from tui_debugger.session import Session

MOST_HOPS = 20
DESCRIPTION = """\
Shows what a tensor was made from and what uses it, with statistics. Who reads a
parameter in a step gets its value of the step before, and an optimizer's node
makes the new value; both are said. With --watch, what the watchpoints find on
each. Without --step that is the last dumped step.
"""
EPILOG = """\
exit codes:
  0    shown, whatever was found on the tensors
  2    no dump at the path, no such node or tensor, a part of the dump that
       cannot be listed, a tensor that cannot be read, a wrong argument
  130  interrupted

examples:
  tdbg relations DUMP Log-op381 --step 3
  tdbg relations DUMP head.weight --hops 2 --watch 'TL max_gt=100'
  tdbg relations DUMP Log-op381 --step 3 --sketch --watch TO
"""


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "relations",
        "show what made a tensor and what uses it",
        DESCRIPTION,
        EPILOG,
        answer=_related,
    )
    add_node(parser, "output 0")
    parser.add_argument(
        "--hops",
        type=whole(f"a number of hops from 1 to {MOST_HOPS}", 1, MOST_HOPS),
        metavar="N",
        help="how far to go each way (default: 1, with --sketch 2)",
    )
    flag(parser, "--sketch", "draw boxes and lines instead of a table: producers on the left, consumers on the right")
    add_watches(
        parser,
        "mark what this finds, for example 'TL max_gt=100' (may be repeated)",
    )
    add_where(
        parser,
        rank="ranks; the first one that has the node counts (default: all)",
        step="steps; the last one with the tensor counts (default: all)",
    )
    add_work(parser)


def _related(arguments: Namespace, progress: ProgressFn) -> Answer:
    if arguments.sketch and arguments.json:
        raise TdbgError(
            "--sketch has no meaning with --json",
            where="tdbg relations --sketch --json",
            hint="leave one of them out: the document has every hop of --hops",
        )
    from tui_debugger.diagnose.relations import consumers, measured, producers, relations, relations_table

    session = open_session(arguments, progress)
    key = _tensor(session, arguments, progress)
    _watch(session, key, arguments, progress)
    around = _around(session, key, arguments, progress) if arguments.sketch else None
    hops = 1 if around is not None else arguments.hops or 1
    found = _measured(session, relations(session, key, progress), measured, progress)
    up = _further(session, found.producers, hops, producers, progress)
    down = _further(session, found.consumers, hops, consumers, progress)
    return Answer(
        code=outcome_of(doubt=_unreadable(found, up, down)),
        missing=unseen(session, from_on(session, [(key.rank, key.step)])),
        notices=session.info.notices,
        document=lambda: _document(found, up, down),
        show=lambda _: _print_sketch(around) if around is not None else print_table(*relations_table(found, up, down)),
    )


def _document(found: Relations, up: Iterable[RelatedTree], down: Iterable[RelatedTree]) -> Row:
    from tui_debugger.diagnose.relations import RelatedTree, related_row

    return {
        "maker": found.maker or None,
        "tensor": related_row(RelatedTree(found.centre)),
        "other_outputs": [related_row(RelatedTree(each)) for each in found.siblings],
        "producers": [related_row(each, upstream=True) for each in up],
        "consumers": [related_row(each, upstream=False) for each in down],
    }


def _unreadable(found: Relations, up: Iterable[RelatedTree], down: Iterable[RelatedTree]) -> bool:
    """Tells whether a tensor of the picture exists but cannot be read."""
    waiting = [*up, *down]
    seen = [found.centre, *found.siblings]
    while waiting:
        tree = waiting.pop()
        seen.append(tree.related)
        waiting += tree.beyond
    return any(each.tensor.error and each.tensor.index >= 0 for each in seen)


_COLUMNS = 10_000
"""Columns of a sketch outside of terminals, where nothing is cut."""
_LINES = 200
"""Lines of a sketch at most."""


def _around(session: Session, key: TensorKey, arguments: Namespace, progress: ProgressFn) -> Neighbourhood:
    from tui_debugger.diagnose.relations import measured, neighbourhood

    found = neighbourhood(session, key, arguments.hops or 2, progress)
    return found.with_tensors(measured(session, found.tensors, progress))


def _print_sketch(found: Neighbourhood) -> None:
    from tui_debugger.diagnose.relations import MEANING_OF_MARK, mark_of, sketch_notes, sketch_of
    from tui_debugger.text.sketch import ASCII, UNICODE
    from tui_debugger.text.tensors import place_text, step_text
    from tui_debugger.text.writer import meant, terminal_of, write_lines

    terminal = terminal_of()
    width = terminal.columns if terminal is not None else _COLUMNS
    ink = UNICODE if terminal is None or terminal.shows("╔─▶◆✗") else ASCII
    spelled = terminal.spelled if terminal is not None else str
    drawn = sketch_of(found, max(width, 8), _LINES, ink=ink, spelled=spelled)
    marks = [mark_of(each, each.tensor) for each in found.tensors]
    middle = found.tensors[0].key
    print_text(f"{place_text(middle)}  step {step_text(middle.step)}  rank {middle.rank}")
    for row, owners in zip(drawn.cells, drawn.owners.tolist(), strict=True):
        pieces: list[str] = []
        used = max((at for at, cell in enumerate(row, 1) if cell != " "), default=0)
        for owner, cells in groupby(zip(owners[:used], row[:used], strict=True), key=itemgetter(0)):
            text = "".join(cell for _, cell in cells)
            pieces.append(meant(text, MEANING_OF_MARK.get(marks[owner]) if owner >= 0 else None))
        write_lines(tuple(pieces))
    print_text(*sketch_notes(found, drawn))


def _tensor(session: Session, arguments: Namespace, progress: ProgressFn) -> TensorKey:
    """The node's tensor in the first chosen rank, at the last chosen step with values. Raises TdbgError."""
    from tui_debugger.session.naming import find_in, no_such_tensor

    ranks = chosen(arguments.rank, session.ranks(), "rank")
    found = find_in(session, ranks, arguments.node, progress)
    rank = min(found.rows)
    asked = chosen(arguments.step, session.steps(rank), "step")
    steps = [step for step in session.steps(rank) if step in asked]
    there: list[TensorRow] = []
    for step in reversed(steps):
        listed = found.tensors(session, rank, step)
        there += listed
        wanted = found.meant(listed)
        if any(row.index >= 0 for row in wanted) or (wanted and step == steps[0]):
            return next((row for row in wanted if row.index >= 0), wanted[0]).key
    raise no_such_tensor(found, there)


def _watch(session: Session, key: TensorKey, arguments: Namespace, progress: ProgressFn) -> None:
    """Checks the step, neighbouring steps included, if watchpoints are given."""
    given = enabled_watchpoints(arguments)
    session.watchpoints.add_missing(given)
    if given:
        steps = session.steps(key.rank)
        at = steps.index(key.step) if key.step in steps else 0
        session.check([(key.rank, step) for step in steps[max(at - 1, 0) : at + 2]], progress)


Measure = Callable[..., "tuple[Related, ...]"]
FindRelated = Callable[..., "tuple[Related, ...]"]


def _measured(session: Session, found: Relations, measured: Measure, progress: ProgressFn) -> Relations:
    import dataclasses

    (centre,) = measured(session, [found.centre], progress)
    parts: Row = {
        name: measured(session, getattr(found, name), progress) for name in ("siblings", "producers", "consumers")
    }
    return dataclasses.replace(found, centre=centre, **parts)


def _further(
    session: Session, related: Sequence[Related], hops: int, find: FindRelated, progress: ProgressFn
) -> tuple[RelatedTree, ...]:
    """The tensors with their further relations; a tensor that was shown is not opened again."""
    from tui_debugger.diagnose.relations import RelatedTree, measured

    seen: set[TensorKey] = set()

    def beyond(each: Related, left: int) -> RelatedTree:
        key = each.key
        if left < 1 or key in seen:
            return RelatedTree(each)
        seen.add(key)
        further = measured(session, find(session, key, progress), progress)
        return RelatedTree(each, tuple(beyond(one, left - 1) for one in further))

    return tuple(beyond(each, hops - 1) for each in related)
