"""``tdbg trend``: tensors over all dumped steps, as a plot and a table; without NODE all weights."""

from __future__ import annotations

import argparse
import shutil
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tui_debugger.cli.options import (
    Commands,
    add_command,
    add_limit,
    add_node,
    add_top,
    add_where,
    add_work,
    chosen,
    flag,
    open_pairs,
    several_graphs,
    whole,
)
from tui_debugger.cli.output import Answer, outcome_of, print_table, print_text, unseen
from tui_debugger.errors import TdbgError
from tui_debugger.stats.fields import METRICS
from tui_debugger.text.tables import Column, Cut
from tui_debugger.text.writer import meant, write_lines

if TYPE_CHECKING:
    from tui_debugger.check.types import Pair
    from tui_debugger.diagnose.trend import Series
    from tui_debugger.model import ProgressFn, TensorKey
    from tui_debugger.notes import RunNotes
    from tui_debugger.session import Session
    from tui_debugger.session.naming import FoundNode

DESCRIPTION = """\
With NODE: shows how tensors change over the dumped steps: a plot, with NaN and
Inf marked on its axis, and a table. Means, deviation and norm are over finite
values.

Without NODE: follows every weight over the dumped steps, or over a directory of
checkpoints: growth of its norm, size and direction of its updates, its
effective rank; weights that never move, and weights that move much more or less
than others of their kind.
"""
EPILOG = """\
exit codes:
  0    done: these are facts, no verdict
  2    nothing matched, a step that cannot be read, or none that has a value; no
       weight has two steps to compare
  130  interrupted

examples:
  tdbg trend CHECKPOINTS --remarks
  tdbg trend DUMP --filter attn --step 0-100 --csv
  tdbg trend DUMP head.weight
  tdbg trend DUMP fc1.weight fc2.weight --metric norm --log
  tdbg trend DUMP Log-op381:out:0 --metric min,max --json
  tdbg trend DUMP --notes

columns of weights:
growth      last norm / first norm
update      |update| / |weight| of a step: the median over the steps, and the
            last one
cosine      between successive updates, median: 1 the same way on and on, -1
            back and forth
eff. rank   exp of the entropy of the normalised singular values, first and
            last; of a larger matrix from 256 of its rows and 1,024 of its
            columns
remarks     never moves; grows or shrinks 2 times; moves 3 times more or less
            than the median of its kind (robust z of the logarithm from 3.5 on);
            loses half its effective rank; NaN or Inf
"""
_WEIGHTS_SHOWN = 100
BACK = 100
"""The number of steps to look through, from the last one backwards, for a step with the node."""


@dataclass(frozen=True, slots=True)
class PlotOptions:
    """The place and the form of a plot."""

    metrics: tuple[str, ...]
    width: int
    height: int
    log: bool
    limit: int


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "trend",
        "tensors over the steps: a plot and a table; all weights",
        DESCRIPTION,
        EPILOG,
        answer=_trend,
    )
    add_node(parser, "every output (several tensors share a plot, up to nine)", nargs="*")
    flag(
        parser,
        "--notes",
        "draw what the program noted (loss, learning rate), or a loss that was recognised; NODE may be left out",
    )
    parser.add_argument(
        "--metric",
        type=_metrics,
        metavar="NAMES",
        help=f"what to draw: {', '.join(METRICS)} (default: min,mean,max of one tensor, norm of several)",
    )
    flag(parser, "--log", "logarithmic axis; symmetric for values of both signs")
    parser.add_argument(
        "--width", type=whole("a number of cells from 20 to 1000", 20, 1000), metavar="N", help="cells of a line"
    )
    parser.add_argument(
        "--height", type=whole("a number of lines from 4 to 200", 4, 200), default=14, metavar="N", help="of a plot"
    )
    flag(parser, "--remarks", "only weights with a remark (without NODE)")
    flag(parser, "--csv", "a row for every weight on stdout (without NODE)")
    add_top(parser, "weights", _WEIGHTS_SHOWN)
    add_limit(parser, "rows of each table, the last steps")
    add_where(parser)
    add_work(parser)


def _metrics(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name not in METRICS:
            msg = f"{name!r} is not one of {', '.join(METRICS)}"
            raise argparse.ArgumentTypeError(msg)
    return names


def _trend(arguments: Namespace, progress: ProgressFn) -> Answer:
    if not arguments.node and not arguments.notes:
        from tui_debugger.cli.trend_weights import weights

        return weights(arguments, progress)
    if arguments.remarks or arguments.csv:
        raise TdbgError("--remarks and --csv are about all weights", where="--remarks --csv", hint="leave NODE out")
    from tui_debugger.diagnose.trend import PointState

    session, pairs = open_pairs(arguments, progress)
    series = _read(session, pairs, arguments, progress)
    graphs = several_graphs(session)
    notes_of = _noted(session, pairs, series, progress) if arguments.notes else {}
    known = sum(each.known for each in series) + sum(len(each.curves()) for each in notes_of.values())
    unreadable = sum(each.count(PointState.UNREADABLE) for each in series)

    def show(_: int) -> None:
        width = arguments.width or max(shutil.get_terminal_size().columns, 20)
        metrics = arguments.metric or (("max", "mean", "min") if len(series) == 1 else ("norm",))
        wish = PlotOptions(metrics, width, arguments.height, arguments.log, arguments.limit)
        _print_notes(notes_of, wish)
        if series:
            _print(series, wish, graphs=graphs)

    return Answer(
        code=outcome_of(doubt=not known or unreadable),
        missing=unseen(session, graph=False),
        notices=[*_notes(session, series), *([] if known else ["no step has a value that could be read"])],
        document=lambda: _document(series, notes_of),
        show=show,
    )


def _read(session: Session, pairs: Iterable[Pair], arguments: Namespace, progress: ProgressFn) -> list[Series]:
    from tui_debugger.check.progress import scaled
    from tui_debugger.diagnose.trend import MOST, trend
    from tui_debugger.session.naming import find_in

    steps: dict[int, list[int]] = {}
    for rank, step in pairs:
        steps.setdefault(rank, []).append(step)
    if not steps:
        raise TdbgError("no step was dumped", where=str(arguments.path), hint="`tdbg ls --steps` lists what ran")
    ranks = chosen(arguments.rank, steps, "rank")
    keys: dict[TensorKey, None] = {}
    for text in arguments.node:
        keys.update(dict.fromkeys(_keys(session, find_in(session, ranks, text, progress), steps)))
    if not keys and arguments.node:
        raise TdbgError(
            "no such tensor was dumped", where=" ".join(arguments.node), hint="`tdbg show` lists what a node has"
        )
    if len(keys) > MOST:
        raise TdbgError(
            f"{len(keys)} tensors do not fit into one plot",
            where=" ".join(arguments.node),
            hint=f"choose up to {MOST}: a slot (NODE:0), a rank (--rank 0)",
        )
    return [
        _of_round(
            trend(session, replace(key, round=0), steps[key.rank], scaled(progress, number, len(keys))), key.round
        )
        for number, key in enumerate(keys)
    ]


def _of_round(series: Series, number: int) -> Series:
    """Keeps only one round of steps with several writings; a tensor that was written once is in every round."""
    if not number:
        return series
    kept = (series.rounds == 0) | (series.rounds == number)
    columns = {name: getattr(series, name)[kept] for name in ("steps", "rounds", "turns", "state", "health")}
    return replace(series, key=replace(series.key, round=number), values=series.values[:, kept], **columns)


def _notes(session: Session, series: list[Series]) -> list[str]:
    """Notes that rows are not in the order of step numbers, which are the axis of the plot."""
    from tui_debugger.text.tensors import order_text

    notes: dict[str, None] = {}
    for each in series:
        graph = session.nodes(each.key.rank).graph_of(each.row)
        ran = [run.step for run in session.history(each.key.rank) if run.root_graph == graph.root_id]
        if ran != sorted(ran):
            notes[
                f"{graph.name} ran in this order of steps: {order_text(ran)}; so do the rows, the plot goes by number"
            ] = None
    return list(notes)


def _keys(session: Session, found: FoundNode, steps: dict[int, list[int]]) -> list[TensorKey]:
    """The wanted tensors of every rank at their last step; by default outputs, else inputs."""
    keys: list[TensorKey] = []
    for rank, row in found.rows.items():
        asked = set(steps.get(rank, ()))
        ran = [step for step in session.steps(rank) if step in asked]
        for step in reversed(ran[-BACK:]):
            rows = [each for each in session.tensor_rows(rank, step, row, found.asked.round) if each.index >= 0]
            wanted = [each for each in rows if found.asked.covers(each)]
            if not found.asked.role:
                wanted = [each for each in wanted if each.role == "out"] or [
                    each for each in wanted if each.role == "in"
                ]
            if wanted:
                keys += [replace(each.key, round=found.asked.round) for each in wanted]
                break
    return keys


def _noted(session: Session, pairs: Sequence[Pair], series: list[Series], progress: ProgressFn) -> dict[int, RunNotes]:
    """The notes of the chosen ranks; looks for losses in the chosen steps if nothing was noted."""
    ranks = {each.key.rank for each in series} or {rank for rank, _ in pairs}
    session.find_losses([pair for pair in pairs if pair[0] in ranks], progress)
    return {rank: session.run_notes(rank) for rank in sorted(ranks)}


def _print_notes(notes_of: dict[int, RunNotes], wish: PlotOptions) -> None:
    from tui_debugger.diagnose.trend import PlotArea, drawing, note_groups
    from tui_debugger.text.clean import clean
    from tui_debugger.text.notes import value_text

    for rank, notes in notes_of.items():
        if not len(notes):
            write_lines(f"rank {rank}: nothing was noted, and no loss was recognised")
            continue
        write_lines(f"rank {rank}: notes of {len(notes):,} steps")
        for group in note_groups(notes):
            write_lines("")
            lines = drawing((), group, PlotArea(wish.width, wish.height, wish.log), notes).lines
            write_lines(*(line.rstrip() for line in lines))
        write_lines("")
        names, rows = notes.names(), notes.all()
        shown = rows[-wish.limit :] if wish.limit else rows
        cells = [
            [str(step), *(value_text(each[name]) if name in each else "" for name in names)] for step, each in shown
        ]
        columns = [Column("step", right=True, weight=9), *(Column(clean(name), cut=Cut.END) for name in names)]
        print_table(columns, cells)
        if len(shown) < len(rows):
            write_lines(f"… {len(rows) - len(shown):,} steps before (--limit 0 prints all)")
        write_lines("")


def _print(series: list[Series], wish: PlotOptions, *, graphs: bool) -> None:
    from tui_debugger.diagnose.trend import MARKS, TITLES, Group, PlotArea, about, cells, drawing, name

    ranks = [each.key.rank for each in series]
    columns = [Column(title, right=bool(title), weight=_WEIGHTS.get(title, 5)) for title in TITLES[:-1]]
    columns.append(Column(TITLES[-1], cut=Cut.END, weight=7))
    for each in series:
        print_text(name(each, ranks, with_graph=graphs), f"  {about(each)}")
    one = len(series) == 1
    groups = [Group(wish.metrics, MARKS[: len(wish.metrics)])] if one else [Group((each,), "") for each in wish.metrics]
    for group in groups:
        write_lines("")
        lines = drawing(series, group, PlotArea(wish.width, wish.height, wish.log)).lines
        print_text(lines[0].rstrip())
        write_lines(*(line.rstrip() for line in lines[1:]))
    for each in series:
        count = len(each.steps)
        first = max(count - wish.limit, 0) if wish.limit else 0
        write_lines("")
        if not one:
            print_text(name(each, ranks, with_graph=graphs))
        rows = [_row(cells(each, index)) for index in range(first, count)]
        print_table(columns, rows)
        if first:
            print_text(f"… {first:,} steps before (--limit 0 prints all)")


_WEIGHTS = {"step": 9, "": 8, "NaN": 8, "Inf": 8, "min": 7, "max": 7, "norm": 4}


def _row(row: tuple[str, ...]) -> tuple[str, ...]:
    """Removes the mark for "not checked", and moves the reason for missing numbers to the last column."""
    from tui_debugger.diagnose.trend import TITLES
    from tui_debugger.stats.health import Health
    from tui_debugger.text.health import GLYPHS, MEANING_OF_GLYPH

    mark = "" if row[1] == GLYPHS[Health.UNCHECKED] else meant(row[1], MEANING_OF_GLYPH.get(row[1]))
    rest = row[2:] if len(row) == len(TITLES) else (*[""] * (len(TITLES) - 3), row[2])
    return (row[0], mark, *rest)


def _document(series: list[Series], notes_of: dict[int, RunNotes]) -> dict[str, Any]:
    from tui_debugger import __version__
    from tui_debugger.diagnose.trend import note_rows, rows
    from tui_debugger.text.rows import key_row, meta_row

    tensors = []
    for each in series:
        where = {name: value for name, value in key_row(each.key).items() if name != "step"}
        tensors.append({**where, **meta_row(each.meta), "steps": rows(each)})
    notes = [{"rank": rank, "steps": note_rows(each)} for rank, each in notes_of.items()]
    return {
        "tensors": tensors,
        **({"notes": notes} if notes_of else {}),
        "version": __version__,
    }
