"""``tdbg ls PATH``: the nodes of a dump in execution order; ``tdbg ls``: the dumps below the working directory."""

from __future__ import annotations

import argparse
import os
import time
from argparse import Namespace
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tui_debugger.cli.options import (
    Commands,
    add_command,
    add_where,
    categories_of,
    chosen,
    flag,
    is_whole,
    open_session,
    repeated,
    working_directory,
)
from tui_debugger.cli.output import Answer, note, outcome_of, print_table, unseen
from tui_debugger.errors import TdbgError
from tui_debugger.model import CATEGORY_WORDS, Category, Side
from tui_debugger.sources.search import DEPTH
from tui_debugger.text.clean import clean
from tui_debugger.text.documents import row_of
from tui_debugger.text.numbers import NONE, age, brief, moment, plural
from tui_debugger.text.tables import Column, Cut, FullWidthLine, Row
from tui_debugger.text.writer import terminal_of

if TYPE_CHECKING:
    from tui_debugger.arrays import Mask
    from tui_debugger.check.flow import DataFlow
    from tui_debugger.graph.table import NodeTable
    from tui_debugger.model import ProgressFn
    from tui_debugger.session import Session
    from tui_debugger.session.dumps import KnownDump, Overview
    from tui_debugger.sources.base import TensorTable

Line = tuple[str, int]
"""(source file or the end of its path, line number)."""


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "ls",
        "list the nodes or steps, the dumps here, or the layouts that can be read",
        "Lists nodes in execution order. in and out are the tensors dumped of a node's inputs and "
        "outputs at the last step that was dumped and can be listed (with --step: at the last one of those). "
        f"Without PATH it lists the dumps at and up to {DEPTH} levels below the working directory, with what the "
        "screen said of them last. With --steps it lists which graph ran at which step, in the order in which they "
        "ran, how many tensors were dumped, and what the program noted (loss, learning rate); #1, #2 mark a step of "
        "which a graph ran several times. With --formats it lists the layouts that can be read; PATH may be the name "
        "of a layout (how to record one), or a dump (which layout opens it, which names say so, which other layouts "
        "recognise something there).",
        answer=_ls,
        without_path="lists dumps",
    )
    instead = parser.add_argument_group("instead of nodes").add_mutually_exclusive_group()
    flag(instead, "--steps", "the steps and the run history")
    flag(instead, "--formats", "the layouts, or the layout of PATH")
    count = parser.add_mutually_exclusive_group()
    count.add_argument(
        "--count",
        action="store_true",
        default=None,
        help="with --steps: count the dumped tensors, however long that takes (default: up to 100 steps)",
    )
    count.add_argument("--no-count", dest="count", action="store_false", help="with --steps: do not count tensors")
    which = parser.add_argument_group("which nodes")
    repeated(
        which,
        "--category",
        "WORD",
        f"only nodes of these categories: {', '.join(CATEGORY_WORDS)}; for example weight,gradient (may be repeated)",
    )
    repeated(which, "--type", "T", "only operators of this type, such as MatMul or "
        "Parameter, in any case (may be repeated)")  # fmt: skip
    which.add_argument(
        "--line", type=_line, metavar="FILE:LINE", help="only nodes whose source stack names this line; the end of the "
        "path is enough",
    )  # fmt: skip
    flag(parser, "--files", "also every dumped tensor: side, slot, step")
    flag(parser, "--stack", "also the source stack, innermost line first")
    add_where(parser)


def _line(text: str) -> Line:
    path, colon, number = text.rpartition(":")
    if not (colon and path and is_whole(number)):
        msg = f"{text!r} is not FILE:LINE, such as train.py:31"
        raise argparse.ArgumentTypeError(msg)
    return path, int(number)


@dataclass(frozen=True, slots=True, eq=False)
class _RankListing:
    """The wanted nodes of one rank.

    ``rows`` are node rows in execution order. ``counts`` are the dumped (inputs, outputs) by node row, at the step
    ``counted`` of the row's root graph. ``steps`` are the steps for ``--files``; empty: the counted steps.
    """

    rank: int
    flow: DataFlow
    rows: list[int]
    counts: tuple[list[int], list[int]]
    counted: dict[int, int]
    steps: list[int]

    @property
    def nodes(self) -> NodeTable:
        return self.flow.nodes

    def step(self, row: int) -> int | None:
        """The step whose tensors of a node are counted."""
        return self.counted.get(self.nodes.graph_of(row).root_id)

    def facts(self, row: int) -> tuple[Any, ...]:
        """Returns the facts that must be equal for a node to be the same node in another rank."""
        nodes = self.nodes
        ins, outs = self.counts
        return (nodes.graph_of(row).name, nodes.names[row], nodes.op_type(row), _word(nodes, row), ins[row], outs[row])

    def same_as(self, other: _RankListing) -> bool:
        """Tells whether both ranks list exactly the same nodes, by comparing columns instead of rows."""
        mine, theirs = self.nodes, other.nodes
        return (
            self.rows == other.rows
            and self.counts == other.counts
            and mine.graphs == theirs.graphs
            and mine.types == theirs.types
            and mine.names == theirs.names
            and all(bool((getattr(mine, c) == getattr(theirs, c)).all()) for c in ("graph", "type_id", "category"))
        )


@dataclass(frozen=True, slots=True)
class _NodeLine:
    """A line of the list: a node row of the first of the ranks that share it."""

    listing: _RankListing
    row: int
    ranks: list[int]


def _ls(arguments: Namespace, progress: ProgressFn) -> Answer:
    if arguments.count is not None and not arguments.steps:
        raise TdbgError("--count and --no-count are about steps", where="--count", hint="add --steps")
    if arguments.formats:
        from tui_debugger.cli.ls_formats import formats

        return formats(arguments)
    if arguments.path is None and arguments.steps:
        raise TdbgError("no dump is named", where="tdbg ls --steps", hint="name one: tdbg ls PATH --steps")
    if arguments.path is None:
        arguments.path = working_directory()
        return _dumps(arguments, progress)
    if arguments.steps:
        from tui_debugger.cli.ls_steps import steps

        return steps(arguments, progress)
    return _listed(arguments, progress)


def _listed(arguments: Namespace, progress: ProgressFn) -> Answer:
    categories_of(arguments.category)  # a typo is reported before a large graph is read
    session = open_session(arguments, progress)
    ranks = chosen(arguments.rank, session.ranks(), "rank")
    chosen(arguments.step, (step for rank in ranks for step in session.steps(rank)), "step")
    listings = [_list_rank(session, rank, arguments, progress) for rank in ranks]
    entries, places = _merge(listings)
    missing = unseen(session)
    if not entries:
        missing.print_note()
        raise _nothing(arguments, listings)
    return Answer(
        missing=missing,
        notices=session.info.notices,  # such as a graph that cannot be read: names look different then
        document=lambda: {"nodes": [_json(entry, places, arguments) for entry in entries]},
        show=lambda _: _print(entries, places, arguments),
    )


# -- which nodes -----------------------------------------------------------------------------------


def _list_rank(session: Session, rank: int, arguments: Namespace, progress: ProgressFn) -> _RankListing:
    import numpy as np

    from tui_debugger.graph.search import NodeQuery, match

    flow = session.flow(rank, progress)
    steps = [step for step in session.steps(rank) if _wanted(step, arguments)]
    listed = steps if arguments.files and arguments.step is not None else []
    for step in sorted(listed):
        flow.table(step)
    counted = _counted(session, flow, steps)
    nodes = flow.nodes  # after the tables: files of unknown nodes make it longer
    wanted = NodeQuery(
        categories=categories_of(arguments.category),
        types=frozenset(word.lower() for word in arguments.type),
    )
    mask = match(nodes, wanted) & session.in_scope(rank)
    if arguments.line is not None:
        mask &= _on_line(session, rank, len(nodes), arguments.line)
    rows = np.flatnonzero(mask)
    order = nodes.order[rows].astype(np.int64)
    order[order < 0] = np.iinfo(np.int64).max  # unknown position: last
    rows = rows[np.argsort(order, kind="stable")]
    return _RankListing(rank, flow, rows.tolist(), _counts(flow, counted), counted, listed)


def _wanted(step: int, arguments: Namespace) -> bool:
    return arguments.step is None or any(first <= step <= last for first, last in arguments.step)


def _counted(session: Session, flow: DataFlow, steps: Sequence[int]) -> dict[int, int]:
    """The last step with data, by root graph: graphs may skip steps. Ignores steps that cannot be listed."""
    from tui_debugger.check.results import is_closed

    among, rank = set(steps), flow.rank
    runs = [run for run in session.history(rank) if run.has_data and run.step in among]
    while True:
        counted = {run.root_graph: run.step for run in runs}
        for step in sorted(set(counted.values())):
            flow.table(step)
        parts = session.unreadable()
        closed = {place for place in counted.items() if is_closed(parts, rank, *place)}
        if not closed:
            return counted
        runs = [run for run in runs if (run.root_graph, run.step) not in closed]


def _counts(flow: DataFlow, counted: dict[int, int]) -> tuple[list[int], list[int]]:
    import numpy as np

    nodes = flow.nodes
    roots = np.array([info.root_id for info in nodes.graphs] or [0])[nodes.graph]
    found = []
    for side in (Side.INPUT, Side.OUTPUT):
        counts = np.zeros(len(nodes), np.int64)
        for root, step in counted.items():
            table = flow.table(step)
            written = table.side == int(side)
            tensors = np.unique(np.stack([table.node[written], table.slot[written]]), axis=1)  # each round is one more
            of_step = np.bincount(tensors[0], minlength=len(nodes))
            counts[roots == root] = of_step[roots == root]
        found.append(counts.tolist())
    return found[0], found[1]


def _on_line(session: Session, rank: int, length: int, line: Line) -> Mask:
    import numpy as np

    mask = np.zeros(length, np.bool_)
    path, number = line
    for file in session.stack_index(rank).files:
        if _is_at(file.path, path):
            for source in file.lines:
                if source.line == number:
                    mask[source.rows] = True
    return mask


def _nothing(arguments: Namespace, listings: Sequence[_RankListing]) -> TdbgError:
    """The error if no node is left: names the option that may be wrong, and existing alternatives."""
    words = [f"--category {word}" for word in arguments.category] + [f"--type {word}" for word in arguments.type]
    if arguments.line is not None:
        words.append("--line {}:{}".format(*arguments.line))
    words += [f"--{name} {value}" for name in ("filter", "graph") if (value := getattr(arguments, name))]
    tables = [listing.nodes for listing in listings]
    hint = ""
    types = {table.types[index] for table in tables for index in set(table.type_id[~table.structural].tolist())}
    if not {word.lower() for word in arguments.type} <= {name.lower() for name in types}:
        hint = f"there is {', '.join(sorted(types))}"
    elif arguments.line is not None:
        hint = _lines_there(tables, arguments.line)
    return TdbgError("no node matches", where=" ".join(words) or str(arguments.path), hint=clean(hint))


def _lines_there(tables: Iterable[NodeTable], line: Line) -> str:
    """Names the existing lines of a file; empty if the line exists, so that another option left no node."""
    from tui_debugger.graph.stacks import stack_index

    path, number = line
    files = [file for table in tables for file in stack_index(table).files]
    named = {each.line for file in files if _is_at(file.path, path) for each in file.lines}
    if named:
        return "" if number in named else f"stacks name {path}:{brief(sorted(named))}"
    own = list(dict.fromkeys(file.path for file in files if not file.framework))
    return f"stacks name {', '.join(own[:5])}" if own else "this dump has no source stacks"


def _is_at(file: str, path: str) -> bool:
    """Tells whether ``path`` names a source file, or the end of its path."""
    return file == path or file.endswith("/" + path)


def _merge(listings: Sequence[_RankListing]) -> tuple[list[_NodeLine], dict[int, _RankListing]]:
    """Merges equal nodes of several ranks, in execution order, with their ranks side by side."""
    kinds: list[tuple[_RankListing, list[int]]] = []
    for listing in listings:
        for kind, ranks in kinds:
            if listing.same_as(kind):
                ranks.append(listing.rank)
                break
        else:
            kinds.append((listing, [listing.rank]))
    places = {listing.rank: listing for listing in listings}
    if len(kinds) == 1:
        listing, ranks = kinds[0]
        return [_NodeLine(listing, row, ranks) for row in listing.rows], places
    found: dict[tuple[Any, ...], tuple[int, _NodeLine]] = {}
    for listing, ranks in kinds:
        for place, row in enumerate(listing.rows):
            _, entry = found.setdefault(listing.facts(row), (place, _NodeLine(listing, row, [])))
            entry.ranks.extend(ranks)
    ordered = sorted(found.values(), key=lambda each: (each[0], each[1].ranks[0]))
    return [_NodeLine(entry.listing, entry.row, sorted(entry.ranks)) for _, entry in ordered], places


# -- output ----------------------------------------------------------------------------------------


def _print(entries: Sequence[_NodeLine], places: dict[int, _RankListing], arguments: Namespace) -> None:
    everywhere = len(places)
    by_rank = any(len(entry.ranks) != everywhere for entry in entries)
    by_graph = len({entry.listing.nodes.graph_of(entry.row).name for entry in entries}) > 1
    titles = [*(["rank"] if by_rank else []), "type", "category", "in", "out", *(["graph"] if by_graph else []), "name"]
    on_terminal = terminal_of() is not None
    lines: list[Row] = []
    for entry in entries:
        nodes, row = entry.listing.nodes, entry.row
        ins, outs = entry.listing.counts
        cells = [brief(entry.ranks)] if by_rank else []
        cells += [nodes.op_type(row), _word(nodes, row), str(ins[row]), str(outs[row])]
        cells += [nodes.graph_of(row).name] if by_graph else []
        lines.append([*cells, nodes.names[row]])
        below = []
        if arguments.stack:
            below += [f"{frame.path}:{frame.line}  {frame.code}" for frame in nodes.stack(row)]
        if arguments.files:
            below += _file_texts(entry, places)
        blank = [""] * (len(titles) - 1)
        lines += [FullWidthLine(f"    {text}") if on_terminal else [*blank, f"  {text}"] for text in below]
    print_table([_COLUMNS[title] for title in titles], lines)


_COLUMNS = {
    "rank": Column("rank", weight=6),
    "type": Column("type", cut=Cut.END, weight=8),
    "category": Column("category", weight=5),
    "in": Column("in", right=True, weight=4),
    "out": Column("out", right=True, weight=4),
    "graph": Column("graph", cut=Cut.END, weight=7),
    "name": Column("name", cut=Cut.MIDDLE, weight=9),
}


def _word(nodes: NodeTable, row: int) -> str:
    return Category(int(nodes.category[row])).name.lower()


def _file_texts(entry: _NodeLine, places: dict[int, _RankListing]) -> Iterator[str]:
    from tui_debugger.text.tensors import round_text

    for rank, step, table, index in _files(entry, places):
        side = Side(int(table.side[index])).label
        name = f"{side}:{int(table.slot[index])}{round_text(int(table.round[index]))}"
        yield f"{name} step {step}" + (f" rank {rank}" if len(places) > 1 else "")


def _files(entry: _NodeLine, places: dict[int, _RankListing]) -> Iterator[tuple[int, int, TensorTable, int]]:
    """(rank, step, table, index) of every tensor of a node at the chosen steps."""
    graph, name = entry.listing.nodes.graph_of(entry.row).name, entry.listing.nodes.names[entry.row]
    for rank in entry.ranks:
        listing = places[rank]
        row = entry.row if listing is entry.listing else listing.nodes.find(name, graph)
        steps = listing.steps or [step for step in (listing.step(row),) if step is not None]
        for step in steps:
            table = listing.flow.table(step)
            for index in table.of_node(row, every=True).tolist():
                yield rank, step, table, index


def _json(entry: _NodeLine, places: dict[int, _RankListing], arguments: Namespace) -> dict[str, Any]:
    from tui_debugger.text.rows import frame_row

    nodes, row = entry.listing.nodes, entry.row
    ins, outs = entry.listing.counts
    found = {
        "ranks": entry.ranks,
        "graph": nodes.graph_of(row).name,
        "node": nodes.names[row],
        "type": nodes.op_type(row),
        "category": _word(nodes, row),
        "path": nodes.paths[row],
        "order": int(nodes.order[row]),
        "step": entry.listing.step(row),
        "dumped_inputs": ins[row],
        "dumped_outputs": outs[row],
        "inputs": [
            f"{nodes.names[holder.row]}:{holder.slot}" if holder.row >= 0 else None
            for holder in entry.listing.flow.holders(row)
        ],
    }
    if arguments.stack:
        found["stack"] = [frame_row(frame) for frame in nodes.stack(row)]
    if arguments.files:
        found["tensors"] = [_json_file(*place) for place in _files(entry, places)]
    return found


def _json_file(rank: int, step: int, table: TensorTable, index: int) -> dict[str, Any]:
    from tui_debugger.sources.base import TensorFlag

    recorded = bool(int(table.flags[index]) & TensorFlag.STAT_ONLY)
    return {
        "rank": rank,
        "step": step,
        "side": Side(int(table.side[index])).name.lower(),
        "slot": int(table.slot[index]),
        "round": int(table.round[index]),
        "file": None if recorded else table.spec(index).path,
    }


# -- the dumps below a directory -------------------------------------------------------------------


def _dumps(arguments: Namespace, progress: ProgressFn) -> Answer:
    from tui_debugger.session.dumps import RecentDumps, overview

    _refuse_options(arguments)
    (found,) = deque(overview(arguments.path, RecentDumps(), progress, with_recent=False), maxlen=1)
    if not found.dumps and not found.stopped:
        for notice in found.notices:
            note(notice)
        raise TdbgError(
            f"no dump found in {plural(found.looked, 'directory', 'directories')}",
            where=str(arguments.path),
            hint="name the directory that training dumped to: tdbg ls PATH",
        )
    return Answer(
        code=outcome_of(interrupted=found.stopped, doubt=not found.complete),
        notices=found.notices,
        document=lambda: _overview_document(found),
        show=lambda _: _print_dumps(found),
    )


def _refuse_options(arguments: Namespace) -> None:
    """Raises TdbgError for options that choose nodes: a list of dumps has none."""
    for name in ("category", "type", "line", "files", "stack", "rank", "step", "filter", "graph"):
        if getattr(arguments, name) not in (None, False, []):
            raise TdbgError(
                f"--{name} is about the nodes of a dump, and no dump is named",
                where=f"--{name}",
                hint=f"name one: tdbg ls PATH --{name}; without options tdbg ls lists the dumps here",
            )


def _print_dumps(found: Overview) -> None:
    now = time.time()
    columns = [
        Column("layout", cut=Cut.END, weight=4),
        Column("framework", cut=Cut.END, weight=5),
        Column("steps", weight=6),
        Column("ranks", right=True, weight=6),
        Column("written", right=True, weight=6),
        Column("last verdict", cut=Cut.END, weight=7),
        Column("path", cut=Cut.MIDDLE, weight=9),
    ]
    print_table(columns, [_dump_cells(each, found.start, now) for each in found.dumps])


def _dump_cells(dump: KnownDump, start: str, now: float) -> list[str]:
    facts = dump.facts
    verdict = dump.recent.verdict if dump.recent is not None else None
    verdict_text = NONE if verdict is None else verdict.words + (" (of before)" if dump.outdated else "")
    path = os.path.relpath(dump.path, start)
    if facts is None or facts.problem:
        return [*[NONE] * 5, facts.problem if facts is not None else "not looked at", path]
    written = NONE if facts.written is None else age(now - facts.written)
    steps = brief(facts.steps) or NONE
    return [facts.layout, facts.framework or NONE, steps, str(len(facts.ranks)), written, verdict_text, path]


def _overview_document(found: Overview) -> dict[str, Any]:
    from tui_debugger.text.rows import part_rows

    return {
        "dumps": [_dump_row(each) for each in found.dumps],
        "looked": found.looked,
        "notices": list(found.notices),
        "unreadable": part_rows(found.unlisted),
        "cancelled": found.stopped,
    }


def _dump_row(dump: KnownDump) -> dict[str, Any]:
    facts = dump.facts
    verdict = dump.recent.verdict if dump.recent is not None else None
    row: dict[str, Any] = {"path": dump.path}
    if facts is not None:
        row |= {name: getattr(facts, name) or None for name in ("layout", "framework", "device", "title", "problem")}
        row |= {**row_of(facts, "ranks", "steps"), "written": moment(facts.written)}
    row["opened"] = None if dump.recent is None else moment(dump.recent.opened)
    row["last_verdict"] = None
    if verdict is not None:
        row["last_verdict"] = {
            "words": verdict.words,
            "verdict": verdict.outcome,
            "exit_code": verdict.exit_code,
            "judged": moment(verdict.when),
            "outdated": dump.outdated,
        }
    return row
