"""``tdbg export``: tensors, hits or graphs as files."""

from __future__ import annotations

import argparse
import os
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui_debugger.cli.options import (
    Commands,
    add_choice,
    add_command,
    add_watches,
    add_watchpoints,
    add_where,
    add_work,
    choice_of,
    chosen,
    flag,
    given_watchpoints,
    nothing_chosen,
    open_session,
    pairs_of,
    several_graphs,
    whole,
)
from tui_debugger.cli.output import Answer, left_out, note, outcome_of, unseen
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.text.documents import document as document_pieces
from tui_debugger.text.documents import row_of

if TYPE_CHECKING:
    from tui_debugger.check.sweep import Sweep, SweptTensor
    from tui_debugger.model import ProgressFn
    from tui_debugger.session import CheckResult, Session
    from tui_debugger.session.export_files import ExportResult
    from tui_debugger.session.export_graph import GraphPart

FORMATS = {
    "tensors": (".npy", ".npz", ".csv", "a directory (DIR/)"),
    "hits": (".csv", ".json"),
    "graph": (".csv", ".json", ".xlsx", ".dot", ".gv"),
}
DRAWN = (".dot", ".gv")
"""The formats of drawn graphs."""
DESCRIPTION = """\
Writes a part of a dump to files. The ending of OUT says how:

  tensors  x.npy   the one tensor that is chosen
           x.npz   all of them, named rank0/step3/NODE:out:0
           DIR/    one .npy each, rank0/step3/NODE.out.0.npy, and index.csv
           x.csv   the one tensor that is chosen: a row per element with its
                   index, or a 2-D window with --slice '[0, :, 3:9]'
  hits     x.csv   a row per parameter of each result
           x.json  everything that `tdbg check --json` says about a hit
  graph    x.csv, x.json   a row per node: inputs, types, shapes, consumers,
                   stack
           x.xlsx  a workbook: constants, parameters, operators, sources ...
           x.dot   a drawing for graphviz (also .gv): findings of the
                   watchpoints are coloured; without any, the recommended
                   watchpoints are used

bfloat16 and fp8, which .npy cannot name, are written as float32. A file appears
when it is complete or not at all; nothing is written into the dump.
"""
EPILOG = """\
exit codes:
  0    written; `tdbg check` is what judges hits
  2    nothing matched, a tensor could not be read (the others are written), OUT
       exists (--force replaces it) or cannot be written, or a wrong argument
  130  interrupted: nothing is written

examples:
  tdbg export DUMP tensors --filter '/Log-op' --step 3 --side out -o log.npy
  tdbg export DUMP tensors --category weight -o weights.npz
  tdbg export DUMP hits --watch TO -o hits.csv
  tdbg export DUMP graph --rank 0 -o graph.xlsx
  tdbg export DUMP graph --around Log-op381 --hops 3 --watch TO -o log.dot
"""


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "export",
        "write tensors, hits or graphs to files",
        DESCRIPTION,
        EPILOG,
        answer=_exported,
    )
    parser.add_argument(
        "what", type=_what, choices=tuple(FORMATS), metavar="{tensors,hits,graph}", help="what to write"
    )
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="file or directory to write")
    flag(parser, "--force", "replace what is there already")
    add_where(parser)
    add_work(parser)
    add_choice(parser)
    parser.add_argument("--slice", metavar="TEXT", help="for x.csv of a tensor: a window, for example '[0, :, 3:9]'")
    add_watches(
        parser,
        "for hits and drawings: a watchpoint (may be repeated)",
        "for hits and drawings: a TOML file of watchpoints (may be repeated); without any, the recommended ones are "
        "used",
    )
    graph = parser.add_argument_group("which part of a graph")
    graph.add_argument("--around", metavar="NODE", help="only this node, and what it is made from and used by")
    graph.add_argument(
        "--hops",
        type=whole("a number of hops from 1 to 99", 1, 99),
        metavar="N",
        help="with --around: how far to go each way (default: 2)",
    )
    graph.add_argument("--scope", metavar="SCOPE", help="only nodes inside this scope, such as Default/network or Net")
    flag(graph, "--no-marks", "of a drawing: check nothing, read no tensor, colour nothing")


def _what(text: str) -> str:
    if text in FORMATS:
        return text
    msg = f"{text!r} is none of {', '.join(FORMATS)}; PATH comes first: tdbg export DUMP graph -o OUT"
    raise argparse.ArgumentTypeError(msg)


def _exported(arguments: Namespace, progress: ProgressFn) -> Answer:
    _check_options(arguments)
    target = _target(arguments)
    session = open_session(arguments, progress)
    writer = {"tensors": _tensors, "hits": _hits, "graph": _graph}[arguments.what]
    written = writer(session, target, arguments, progress)
    return Answer(
        code=outcome_of(doubt=written.doubt),
        missing=unseen(session),
        document=lambda: {"output": str(written.output), **written.rows},
        show=lambda _: written.print_notes(),
    )


@dataclass(frozen=True, slots=True)
class _Export:
    """What was written: ``rows`` for programs, ``notes`` for people; ``doubt``: not all of it could be read."""

    output: Path
    rows: dict[str, Any]
    notes: Sequence[str]
    doubt: object = False

    def print_notes(self) -> None:
        for line in self.notes:
            note(line)


# -- what may be written where ---------------------------------------------------------------------


def _check_options(arguments: Namespace) -> None:
    """Raises TdbgError for an option that would have no effect."""
    what, kind = arguments.what, Path(arguments.output).suffix.lower()
    of_tensors = {"--side": arguments.side != "all", "--slot": arguments.slot, "--category": arguments.category}
    of_hits = {"--watch": arguments.watch, "--watch-file": arguments.watch_file}
    drawn = what == "graph" and kind in DRAWN
    checked = what == "hits" or (drawn and not arguments.no_marks)
    of_graph = {"--around": arguments.around, "--hops": arguments.hops, "--scope": arguments.scope}
    idle = [
        *(name for name, given in of_tensors.items() if given and what != "tensors"),
        *(name for name, given in of_hits.items() if given and not checked),
        *(name for name, given in of_graph.items() if given and what != "graph"),
        *(["--hops"] if arguments.hops and not arguments.around else []),
        *(["--no-marks"] if arguments.no_marks and not drawn else []),
        *(["--slice"] if arguments.slice and (what, kind) != ("tensors", ".csv") else []),
        *(["--step"] if arguments.step and what == "graph" and not checked else []),
    ]
    if idle:
        raise TdbgError(
            f"{idle[0]} has no meaning here",
            where=f"tdbg export ... {what} -o {arguments.output}",
            hint="`tdbg export --help` says what goes with what",
        )


def _target(arguments: Namespace) -> Path:
    """Returns the path to write. Raises TdbgError if its ending does not fit or it exists."""
    target = Path(arguments.output).expanduser()
    directory = arguments.what == "tensors" and (arguments.output.endswith(("/", os.sep)) or target.is_dir())
    if not directory and target.suffix.lower() not in FORMATS[arguments.what]:
        raise TdbgError(
            f"what {arguments.what} should be written as is not clear",
            where=f"-o {arguments.output}",
            hint="the name must end with " + ", ".join(FORMATS[arguments.what]).replace(", a dir", ", or be a dir"),
        )
    there = (target.is_symlink() or target.exists()) and not (
        directory and target.is_dir() and not any(target.iterdir())
    )
    if there and not arguments.force:
        raise TdbgError(
            "there is something of that name already",
            where=str(target),
            hint="choose another name, or --force to " + ("add to it" if directory else "replace it"),
        )
    return target


# -- tensors ---------------------------------------------------------------------------------------


def _tensors(session: Session, target: Path, arguments: Namespace, progress: ProgressFn) -> _Export:
    sweep = session.sweep(pairs_of(session, arguments), choice_of(arguments))
    number = sweep.count(progress)
    if not number:
        raise nothing_chosen(arguments.path)
    return _tensor_report(_write_tensors(session, sweep, number, target, arguments, progress=progress))


def _write_tensors(
    session: Session, sweep: Sweep, number: int, target: Path, arguments: Namespace, *, progress: ProgressFn
) -> ExportResult:
    from tui_debugger.session.export_files import ExportResult, save_npy, write_csv, write_directory, write_npz

    dump, force = Path(session.info.path), arguments.force
    kind = "" if target.is_dir() else target.suffix.lower()
    if arguments.output.endswith(("/", os.sep)) or kind not in FORMATS["tensors"]:
        return write_directory(sweep.listed(progress), target, dump, with_graph=several_graphs(session), force=force)
    if kind == ".npz":
        return write_npz(sweep.listed(progress), target, dump, with_graph=several_graphs(session), force=force)
    tensor = _only(sweep, number, target, progress)
    if kind == ".csv":
        return write_csv(tensor, target, dump, window=arguments.slice or "", force=force)
    values = session.read(tensor.key)
    return ExportResult(save_npy(values, target, dump, force=force), 1, values.nbytes)


def _only(sweep: Sweep, number: int, target: Path, progress: ProgressFn) -> SweptTensor:
    """The tensor for a file that holds one. Raises TdbgError if there are several."""
    from tui_debugger.text.tensors import place_text

    tensor = next(sweep.listed(progress))
    if number > 1:
        key = tensor.key
        raise TdbgError(
            f"{number:,} tensors are chosen, but {target.suffix} holds one",
            where=f"the first one: rank {key.rank} step {key.step} {place_text(key)}",
            hint="narrow it with --rank, --step, --filter, --side and --slot, or write x.npz or DIR/",
        )
    return tensor


def _tensor_report(written: ExportResult) -> _Export:
    from tui_debugger.text.numbers import plural, size
    from tui_debugger.text.rows import key_row

    notes = [f"{plural(written.tensors, 'tensor')} ({size(written.nbytes)}) written to {written.path}"]
    notes += left_out(written.failures)
    missing = [{**key_row(key), "error": reason} for key, reason in written.failures]
    rows = {**row_of(written, "tensors", "nbytes"), "left_out": missing}
    return _Export(written.path, rows, notes, written.failures)


# -- hits ------------------------------------------------------------------------------------------


def _hits(session: Session, target: Path, arguments: Namespace, progress: ProgressFn) -> _Export:
    from tui_debugger.check.verdicts import coverage_line
    from tui_debugger.text.numbers import plural
    from tui_debugger.text.rows import coverage_row
    from tui_debugger.watch.text import format_watch

    result = _checked(session, arguments, progress)
    if not result.coverage.checked:
        unreadable = result.coverage.unreadable
        raise TdbgError(
            "no tensor could be read" if unreadable else "no tensor was looked at: there can be no hit",
            where=", ".join(format_watch(each) for each in result.watchpoints),
            hint="`tdbg check` says more about the same watchpoints",
        )
    _write_hits(session, result, target, arguments)
    rows = {"hits": len(result.hits), "coverage": coverage_row(result.coverage)}
    notes = [f"{plural(len(result.hits), 'hit')} written to {target}", coverage_line(result)]
    return _Export(target, rows, notes, result.coverage.unreadable)


def _write_hits(session: Session, result: CheckResult, target: Path, arguments: Namespace) -> None:
    from tui_debugger.session.export_files import fresh_text
    from tui_debugger.text.rows import FLAT_HIT_COLUMNS, coverage_row, flat_hit_rows, hit_row, watch_row
    from tui_debugger.text.spreadsheets import CsvTable

    watched = dict(result.coverage.watched)
    with fresh_text(target, Path(session.info.path), force=arguments.force) as file:
        if target.suffix.lower() == ".csv":
            table = CsvTable(file)
            table.row(FLAT_HIT_COLUMNS)
            for hit in result.hits:
                table.rows([row.get(name) for name in FLAT_HIT_COLUMNS] for row in flat_hit_rows(hit))
            return
        document = {
            "command": "export",
            "path": str(arguments.path),
            "watchpoints": [watch_row(each, watched.get(each.id, 0)) for each in result.watchpoints],
            "coverage": coverage_row(result.coverage),
            "hits": (hit_row(hit) for hit in result.hits),
        }
        file.writelines(document_pieces(document))


# -- graph -----------------------------------------------------------------------------------------


def _graph(session: Session, target: Path, arguments: Namespace, progress: ProgressFn) -> _Export:
    from tui_debugger.model import Progress
    from tui_debugger.session.export_graph import rank_graphs, write_nodes_csv, write_nodes_json, write_workbook
    from tui_debugger.text.numbers import plural

    progress(Progress(0, 0, "reading the graph"))
    ranks = chosen(arguments.rank, session.ranks(), "rank")
    part = _part(session, ranks, arguments, progress)
    if target.suffix.lower() in DRAWN:
        marked = not arguments.no_marks and _marks(session, arguments, progress)
        result = _checked(session, arguments, progress) if marked else None
        return _drawing(session, part, target, arguments, result)
    write = {".csv": write_nodes_csv, ".json": write_nodes_json, ".xlsx": write_workbook}[target.suffix.lower()]
    number = write(rank_graphs(session, ranks, part), target, Path(session.info.path), force=arguments.force)
    return _Export(target, {"nodes": number}, [f"{plural(number, 'node')} written to {target}"])


def _part(session: Session, ranks: list[int], arguments: Namespace, progress: ProgressFn) -> GraphPart:
    """Returns the nodes that --around and --scope choose. Raises TdbgError for an unknown node or scope."""
    from tui_debugger.session.export_graph import GraphPart
    from tui_debugger.session.naming import find_in

    around = None
    if arguments.around:
        around = find_in(session, ranks, arguments.around, progress).rows
    part = GraphPart(arguments.scope or "", around, arguments.hops or 2)
    if arguments.scope and not any(part.mask(session, rank).any() for rank in part.ranks(ranks)):
        raise TdbgError(
            "no node is inside this scope" if around is None else "no node around is inside this scope",
            where=f"--scope {arguments.scope}",
            hint="a scope is one or several parts of a path, such as Default/network; `tdbg ls` lists the nodes",
        )
    return part


def _drawing(
    session: Session, part: GraphPart, target: Path, arguments: Namespace, result: CheckResult | None
) -> _Export:
    from tui_debugger.check.verdicts import coverage_line
    from tui_debugger.session.export_drawing import drawn_graphs, write_drawing
    from tui_debugger.text.numbers import plural
    from tui_debugger.text.rows import coverage_row

    ranks = chosen(arguments.rank, session.ranks(), "rank")
    graphs = drawn_graphs(session, ranks, result, part)
    drawing = write_drawing(graphs, target, Path(session.info.path), force=arguments.force)
    notes = [f"{plural(drawing.nodes, 'node')} and {plural(drawing.edges, 'edge')} written to {target}"]
    notes += [coverage_line(result)] if result is not None else ["nothing was checked: no node is coloured"]
    rows = row_of(drawing, "nodes", "edges")
    rows["coverage"] = coverage_row(result.coverage) if result is not None else None
    return _Export(target, rows, notes, result is not None and result.coverage.unreadable)


def _marks(session: Session, arguments: Namespace, progress: ProgressFn) -> bool:
    """Tells whether there is anything to check for the colours of a graph."""
    pairs = pairs_of(session, arguments)
    return bool(given_watchpoints(arguments) or (pairs and session.recommended(pairs, progress)))


def _checked(session: Session, arguments: Namespace, progress: ProgressFn) -> CheckResult:
    given, pairs = given_watchpoints(arguments), pairs_of(session, arguments)
    add_watchpoints(session, given, pairs, progress, recommended=not given)
    result = session.check(pairs, progress)
    if result.cancelled:
        raise CancelledError("interrupted: nothing is written")
    return result
