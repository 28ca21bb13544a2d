"""``tdbg stat``: a table of the statistics of every chosen tensor."""

from __future__ import annotations

import heapq
import itertools
import os
import stat
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui_debugger.cli.options import (
    Commands,
    add_choice,
    add_command,
    add_where,
    add_work,
    choice_of,
    configured,
    flag,
    nothing_chosen,
    open_pairs,
    several_graphs,
    whole,
)
from tui_debugger.cli.output import (
    Unseen,
    documented,
    failure,
    interruptible,
    note,
    one_format,
    outcome_of,
    print_csv,
    print_exit,
    print_table,
    print_text,
    progress_bar,
    unseen,
)
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.stats import fields
from tui_debugger.text.documents import Row, document_of_rows
from tui_debugger.text.writer import terminal_of, write_data

if TYPE_CHECKING:
    from tui_debugger.check.sweep import SweptTensor
    from tui_debugger.check.types import Pair
    from tui_debugger.model import ProgressFn
    from tui_debugger.session import Session

SORTABLE = tuple(field.column for field in fields.COLUMNS)
COLUMNS = (
    *("rank", "step", "graph", "node", "side", "slot", "round", "dtype", "shape", "nbytes"),
    *SORTABLE,
    *("recorded", "remark", "error", "at_least"),
)
"""Columns of a row, in CSV and in JSON; JSON leaves out an empty ``at_least``."""
_MEANINGS = "\n".join(f"  {field.column:<9}  {field.help}" for field in fields.COLUMNS)
EPILOG = f"""\
Rows come by step, then rank, then execution order. Means, deviation (divisor n)
and norm are over finite elements. "recorded": the dump holds only statistics of
this tensor. "remark": what is wrong with what the dump recorded.
"at_least" names counts of which a recorder wrote less than all:
there may be more (the table shows ≥ 3, or – where nobody says).

statistics in JSON and CSV:
{_MEANINGS}

exit codes:
  0    done
  2    nothing matched, a tensor was unreadable or a part of the dump could not
       be listed (the rows of the rest are printed), or a wrong argument
  130  interrupted: the rows so far are printed
"""


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "stat",
        "statistics of tensors",
        "Statistics of every tensor in the chosen steps, ranks and nodes, one row each.",
        EPILOG,
    )
    add_where(parser)
    add_work(parser)
    add_choice(parser)
    flag(parser, "--csv", "CSV with every digit on stdout, written row by row")
    parser.add_argument("--sort", choices=SORTABLE, metavar="FIELD", help=f"greatest first, by {', '.join(SORTABLE)}")
    flag(parser, "--reverse", "with --sort: smallest first")
    parser.add_argument(
        "--limit", type=whole("a number of rows such as 20", least=1), metavar="N", help="only the first N rows"
    )
    parser.set_defaults(run=_run)


def _run(arguments: Namespace) -> int:
    seen = _RowSources()
    held: list[Row] = []
    with documented("stat", arguments):
        one_format(arguments)
        if arguments.reverse and not arguments.sort:
            raise TdbgError("--reverse needs --sort", where="--reverse", hint="for example --sort max --reverse")
        table = configured(arguments).table("stat")
        with _progress(arguments) as progress:
            rows = _rows(arguments, seen, progress)
            first = list(itertools.islice(rows, 1))  # so that a mistake is reported before anything is printed
            if not first and not seen.interrupted:
                raise nothing_chosen(arguments.path)
            _show(itertools.chain(first, rows), arguments, seen, held)
    seen.unseen.print_note()
    if arguments.csv:
        note(seen.line())
    elif not arguments.json:
        _print(held, table, graphs=seen.graphs)
        print_text("", seen.line())
        print_exit(seen.exit_code, seen.exit_words)
    if seen.failure is not None:
        raise seen.failure
    return seen.exit_code


def _show(rows: Iterable[Row], arguments: Namespace, seen: _RowSources, held: list[Row]) -> None:
    """Writes rows as they come, or holds them for a table; notes an interruption in ``seen``."""
    if arguments.json:
        _write_json(rows, arguments.path, seen)
        return
    with seen.stopped():
        if arguments.csv:
            print_csv(COLUMNS, _csv_rows(rows))
        else:
            held.extend(rows)


@contextmanager
def _progress(arguments: Namespace) -> Iterator[ProgressFn]:
    """The progress bar, unless rows are streamed to the same terminal, or through a pipe to its pager."""
    from tui_debugger.model import no_progress

    streaming = (arguments.csv or arguments.json) and _seen_at_once()
    with progress_bar() as bar, interruptible(no_progress if streaming else bar) as progress:
        yield progress


def _seen_at_once() -> bool:
    try:
        return sys.stdout.isatty() or stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):  # no file at all
        return False


class _RowSources:
    """The sources of the rows."""

    def __init__(self) -> None:
        self.tensors = 0
        self.unreadable = 0
        self.recorded = 0
        self.interrupted = False
        self.graphs = False
        self.failure: TdbgError | None = None
        self.about: tuple[Session, Sequence[Pair], bool] | None = None

    @cached_property
    def unseen(self) -> Unseen:
        """The parts that could not be looked at; to be asked after the rows are made."""
        if self.about is None or self.interrupted:
            return Unseen()
        session, pairs, graph = self.about
        return unseen(session, pairs, graph=graph)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Notes an early end of the work; the shown rows stay."""
        try:
            yield
        except CancelledError:
            self.interrupted = True
        except TdbgError as error:
            self.failure = error

    @property
    def exit_code(self) -> int:
        doubt = self.failure is not None or self.unreadable or not self.tensors or self.unseen.parts
        return outcome_of(interrupted=self.interrupted, doubt=doubt)

    @property
    def exit_words(self) -> str:
        if self.interrupted:
            return "interrupted: these are the rows so far"
        if self.exit_code:
            return "not everything that was asked for could be read"
        return "every tensor that was asked for is here"

    def line(self) -> str:
        """``1,141 tensors, 3 unreadable``."""
        from tui_debugger.text.numbers import plural

        parts = [plural(self.tensors, "tensor"), f"{self.unreadable:,} unreadable"]
        if self.recorded:
            parts.append(f"{self.recorded:,} with recorded statistics only")
        return ", ".join(parts) + ("; interrupted" if self.interrupted else "")

    def row(self) -> Row:
        from tui_debugger.text.documents import row_of

        return row_of(self, "tensors", "unreadable", "recorded", "interrupted")


def _rows(arguments: Namespace, seen: _RowSources, progress: ProgressFn) -> Iterator[Row]:
    """The rows to show, in their order. Ctrl-C ends them and is noted."""
    found = _measured(arguments, seen, progress)
    if arguments.sort is None:
        yield from itertools.islice(found, arguments.limit)
        return
    yield from _sorted(found, arguments.sort, arguments.limit, arguments.reverse)


def _measured(arguments: Namespace, seen: _RowSources, progress: ProgressFn) -> Iterator[Row]:
    try:
        session, pairs = open_pairs(arguments, progress)
        seen.about = session, pairs, True  # rows are named, and ordered, by what the graph says
        seen.graphs = several_graphs(session)
        for tensor in session.sweep(pairs, choice_of(arguments)).measured(progress):
            seen.tensors += 1
            seen.unreadable += bool(tensor.error)
            seen.recorded += tensor.spec is None
            yield _row(tensor)
    except CancelledError:
        seen.interrupted = True


def _row(tensor: SweptTensor) -> Row:
    from tui_debugger.text.rows import key_row, meta_row, stats_row

    stats = stats_row(tensor.stats)
    if tensor.spec is None and not stats["norm"] and (stats["min"] or stats["max"]):
        stats["norm"] = None  # not recorded
    row = {**key_row(tensor.key), **meta_row(tensor.meta), **stats}
    return {**row, "recorded": tensor.spec is None, "remark": tensor.remark, "error": tensor.error}


def _sorted(rows: Iterable[Row], name: str, limit: int | None, smallest: bool) -> Iterable[Row]:
    """Sorts by one field; rows without it come last. With a limit, no more rows than that are held."""
    sign = 1 if smallest else -1

    def key(row: Row) -> tuple[bool, float]:
        return (row[name] is None, 0.0 if row[name] is None else sign * float(row[name]))

    return sorted(rows, key=key) if limit is None else heapq.nsmallest(limit, rows, key=key)


def _csv_rows(rows: Iterable[Row]) -> Iterator[Iterable[object]]:
    for row in rows:
        shape = "" if row["shape"] is None else str(tuple(row["shape"]))
        bounds = " ".join(row.get("at_least", ()))
        cells = {**row, "shape": shape, "recorded": int(row["recorded"]), "at_least": bounds}
        yield [cells[name] for name in COLUMNS]


def _write_json(rows: Iterable[Row], path: Path, seen: _RowSources) -> None:
    def shown() -> Iterator[Row]:
        with seen.stopped():
            yield from rows

    def tail() -> Row:
        end = {"coverage": seen.row(), **seen.unseen.rows, "exit_code": seen.exit_code}
        if seen.failure is not None:
            end["error"] = failure("stat", path, seen.failure)["error"]
        return end

    for piece in document_of_rows({"command": "stat", "path": str(path)}, "tensors", shown(), tail):
        write_data(piece)


def _mark(row: Mapping[str, Any]) -> str:
    wrong = row["error"] or row["remark"]
    return f"! {wrong}" if wrong else "(recorded)" if row["recorded"] else ""


def _print(rows: Sequence[Row], table: Sequence[fields.StatisticField], *, graphs: bool) -> None:
    from tui_debugger.model import Side, TensorKey
    from tui_debugger.text.distribution import statistic_cell, statistic_columns
    from tui_debugger.text.numbers import NONE
    from tui_debugger.text.tables import Column, Cut
    from tui_debugger.text.tensors import place_text, shape_text
    from tui_debugger.text.writer import Meaning, meant

    def place(row: Row) -> str:
        side = Side[row["side"].upper()]
        key = TensorKey(row["rank"], row["graph"], row["node"], side, row["slot"], row["step"], row["round"])
        return place_text(key, with_graph=graphs)

    ranks = len({row["rank"] for row in rows}) > 1
    apart = terminal_of() is not None  # a remark would be cut with the name that it stands behind
    marks = [_mark(row) for row in rows]

    def cells(row: Row, mark: str) -> list[str]:
        remark = meant(mark, Meaning.DOUBT if row["error"] or row["remark"] else None)
        return [
            *(str(row["step"]), *([str(row["rank"])] if ranks else [])),
            row["dtype"] or NONE,
            NONE if row["shape"] is None else shape_text(row["shape"]),
            *(
                statistic_cell(field, _number(row[field.column]), at_least=field.column in row.get("at_least", ()))
                for field in table
            ),
            *([remark, place(row)] if apart else [f"{place(row)}  {mark}" if mark else place(row)]),
        ]

    columns = [
        Column("step", right=True, weight=8),
        *([Column("rank", right=True, weight=7)] if ranks else []),
        Column("dtype", weight=2),
        Column("shape", weight=3),
        *statistic_columns(table),
        *([Column("", cut=Cut.END, weight=8, label="remark")] if apart and any(marks) else []),
        Column("tensor", cut=Cut.MIDDLE, weight=9),
    ]
    made = [cells(row, mark) for row, mark in zip(rows, marks, strict=True)]
    if apart and not any(marks):
        made = [[*row[:-2], row[-1]] for row in made]
    print_table(columns, made)


def _number(value: float | str | None) -> float | None:
    return None if value is None else float(value)  # a text is a number that JSON cannot spell
