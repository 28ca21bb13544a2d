"""Origins and paths in words: the screen and the commands say the same."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from tui_debugger.causes.table import InputState, OriginKind
from tui_debugger.check.types import TensorRow
from tui_debugger.diagnose.explain.operators import BadOperator
from tui_debugger.diagnose.explain.rules import likely_operator_causes
from tui_debugger.diagnose.origin.path import Branch, Path, PathEnd, PathHop
from tui_debugger.diagnose.origin.search import (
    MissingValue,
    NotJudged,
    Origin,
    OriginInput,
    OriginReport,
    OriginSpread,
    StepSearch,
    findings,
)
from tui_debugger.diagnose.origin.upstream import HopLink, Way
from tui_debugger.graph.categories import plain_type
from tui_debugger.graph.table import PARAMETER
from tui_debugger.model import Frame, Hit, Side, TensorKey
from tui_debugger.stats.fields import TENSOR_TABLE
from tui_debugger.text.clean import clean
from tui_debugger.text.distribution import STATISTIC_TITLES, statistic_columns, statistic_texts
from tui_debugger.text.documents import row_of
from tui_debugger.text.hits import contents, finding_words, hit_text, watch_line
from tui_debugger.text.numbers import and_more, are, first_of, plural
from tui_debugger.text.phrases import tail
from tui_debugger.text.rows import frame_row, key_row, meta_row, result_row, stats_row
from tui_debugger.text.tables import Column, Cut, FullWidthLine, cut_middle, table_lines
from tui_debugger.text.tables import Row as TableRow
from tui_debugger.text.tensors import round_text, run_text, shape_text, short_names, slot_text, step_text, type_text
from tui_debugger.text.writer import Line, Meaning, Terminal, meant
from tui_debugger.watch.condition_table import CONDITIONS

_NAMED = 6
"""The most nodes that are named in a sentence."""


# -- origins ---------------------------------------------------------------------------------------


def found_words(found: Origin | Hit) -> str:
    """``-Inf 1 of 4``, ``zeros ≥ 100 % → 100 %``: what is bad about a tensor."""
    hit = found if isinstance(found, Hit) else dataclasses.replace(found.hit, results=found.results)
    return clean(hit_text(hit, apart=False))


def node_words(each: Origin | NotJudged, graphs: Sequence[str]) -> str:
    """The node as ``find_node`` takes it: ``NODE``, ``NODE#2`` for its second run, ``GRAPH/NODE`` if several graphs."""
    graph = f"{each.graph}/" if graphs else ""
    return clean(f"{graph}{each.node}{round_text(each.hit.key.round)}")


def when_words(origin: Origin, graphs: Sequence[str] = ()) -> str:
    """``step 3``; ``step 1#2, kernel_graph_0`` with several graphs."""
    graph = f", {clean(origin.graph)}" if graphs else ""
    return f"step {step_text(origin.step, origin.hit.key.round)}{graph}"


def _place(origin: Origin) -> str:
    key = origin.hit.key
    return label(key, key.side.label, key.slot, origin)


def label(key: TensorKey, role: str, slot: int, origin: Origin) -> str:
    """``in:0``, ``out:1``; ``value`` for a parameter itself."""
    own = origin.type == PARAMETER and role == "out" and key.node == origin.node
    return "value" if own else f"{role}:{slot}"


def row_label(row: TensorRow, origin: Origin) -> str:
    return label(row.key, row.role, row.slot, origin)


def why(origin: Origin, *, overflow: bool) -> str:
    what = f"{_place(origin)}: {found_words(origin)}"
    clean_ = "clean" if overflow else "without such a finding"
    other = clean(origin.other)
    written = origin.hit.key.side is Side.OUTPUT
    inputs = f"its inputs are {clean_}{_designed(origin)}"
    texts = {
        OriginKind.MADE: f"{what}; {inputs}",
        OriginKind.UNSEEN: f"its output was not dumped, {inputs}\n  {clean(origin.hit.key.node)} got it: {what}",
        OriginKind.CHANGED: f"{what}, but its written value is {clean_}:\n  overwritten since, or by the node itself",
        OriginKind.SOURCE: f"{what}; nothing in this run makes it"
        + ("" if origin.type == PARAMETER else ": it has no inputs"),
        OriginKind.UPDATED: what + (f"\n  {'updated by' if written else 'seen by'} {other}" if other else ""),
        OriginKind.BEFORE: f"{what}; so it was already before {when_words(origin)} ran",
        OriginKind.CONSTANT: f"{what}; it comes from a constant of the graph",
        OriginKind.DESIGNED: f"{what}; by design: its operator was told to write it, or to pass it on",
        OriginKind.TAINTED: f"{what}; {_bad_inputs(origin)}",
        OriginKind.UNKNOWN: _unknown(origin, what),
    }
    return texts[origin.start]


def _designed(origin: Origin) -> str:
    """Words for inputs with an Inf that was written by intent."""
    found = [source.row for source in origin.inputs if source.designed]
    if not found:
        return ""
    stats = [row.stats for row in found if row.stats is not None]
    infinite = "-Inf" if not any(each.pos_inf for each in stats) else "Inf"
    sign = "NaN" if any(each.nan for each in stats) else infinite
    slots = ", ".join(row_label(row, origin) for row in found)
    masked = "softmax" in plain_type(origin.type) and origin.hit.stats is not None and origin.hit.stats.nan
    whole = " in a whole row" if masked else ""
    return f";\n  its input is {sign} by design{whole}: {slots}"


def _bad_inputs(origin: Origin) -> str:
    bad = [source for source in origin.inputs if source.state is InputState.BAD]
    names = first_of([row_label(source.row, origin) for source in bad], 4)
    text = f"{names} {are(len(bad))} bad already"
    for each in bad[:4]:
        key = each.row.key
        source = each.row.origin_text or f"{key.node}:{key.slot}"
        text += f"\n    {row_label(each.row, origin)} ← {clean(source)}{_of_another_run(key, origin)}"
    return text


def _of_another_run(key: TensorKey, origin: Origin) -> str:
    """`` of step 1#1``, `` of step 3, kernel_graph_0``: empty where the origin's run wrote the tensor."""
    here = origin.hit.key
    if key.graph != origin.graph:
        return f" of step {run_text(key)}, {clean(key.graph)}"
    another = key.step != here.step or (key.round and here.round and key.round != here.round)
    return f" of step {run_text(key)}" if another else ""


def _unknown(origin: Origin, what: str) -> str:
    seen = clean(origin.hit.key.node)
    if origin.hit.key.node != origin.node and origin.type != PARAMETER:
        return f"its output was not dumped; not judged: {_missing_words(origin)}\n  {seen} got it: {what}"
    return f"{what}; not judged: {_missing_words(origin)}"


def _missing_words(each: Origin | NotJudged, word: str = "") -> str:
    """``in:1, in:3 were not dumped``: why the node cannot be called an origin."""
    if not each.missing:
        return "other ranks had a part in it" if each.exchanged else "no graph or file tells what it was made from"
    by_reason: dict[str, list[int]] = {}
    for missing in each.missing:
        by_reason.setdefault(word or missing.why, []).append(missing.slot)
    return ", ".join(f"{_slots(slots)} {_agreeing(reason, slots)}" for reason, slots in by_reason.items())


def _agreeing(reason: str, slots: list[int]) -> str:
    many = {"was": "were", "is": "are"}
    verb, _, rest = reason.partition(" ")
    return f"{many[verb]} {rest}" if len(slots) > 1 and verb in many else reason


def _slots(slots: list[int]) -> str:
    return and_more([f"in:{slot}" for slot in slots], _NAMED)


def not_judged_words(each: NotJudged) -> str:
    """``not judged: in:3 unknown (Add-op3:0)``."""
    names = [last_part(missing.name) for missing in each.missing if missing.name]
    return f"not judged: {_missing_words(each, 'unknown')}" + (f" ({and_more(names, _NAMED)})" if names else "")


def first_known_words(origin: Origin) -> str:
    """``first known bad; in:3 was not dumped``."""
    if origin.start is not OriginKind.UNKNOWN:
        return "first known bad"
    return f"first known bad; {_missing_words(origin)}"


def advice_words(origin: Origin, how: str = "") -> str:
    """Returns what to dump to know whether it starts there, with ``how`` to do so; empty where that would not help."""
    if origin.start is not OriginKind.UNKNOWN:
        return ""
    if origin.exchanged and not origin.missing:
        return f"dump the inputs of {clean(origin.node)} on every rank of its group"
    names = list(dict.fromkeys(missing.node for missing in origin.missing))
    own = [name for name in names if name == origin.node] or ([] if names else [origin.node])
    others = [clean(name) for name in names if name != origin.node]
    what = [f"the outputs of {and_more(others, _NAMED)}"] if others else []
    what += [f"the inputs of {clean(origin.node)}"] if own else []
    if others and not own:
        what.append(f"the inputs of {last_part(origin.node)}")
    return f"dump {' or '.join(what)}" + _in_brackets(how)


def _in_brackets(how: str) -> str:
    return f" ({how})" if how else ""


# -- paths -----------------------------------------------------------------------------------------


def last_part(name: str) -> str:
    """``Log-op381``: a node without its scope, safe to print."""
    return clean(tail(name))


def is_overflow(path: Path) -> bool:
    return CONDITIONS[path.question.condition].is_overflow


def spread_words(spread: OriginSpread, step: int) -> str:
    where = f"at step {step_text(step)}"
    more = plural(spread.origins, "more origin") if spread.origins else ""
    if not spread.tensors:
        return f"spread: nowhere; nothing like it ran after it {where}" + (f", but for {more}" if more else "")
    names = [*map(last_part, spread.next), *(["…"] if spread.tensors > len(spread.next) else [])]
    origins = f"it and {more}" if more else "it"
    return f"spread: from {origins} to {plural(spread.tensors, 'finding')} {where}: {', '.join(names)}"


def question_words(path: Path) -> str:
    """Returns what counts as bad: ``NaN or Inf``, or what the watchpoint looks for."""
    return "NaN or Inf" if is_overflow(path) else finding_words(path.question, raw=False)


def _question_text(path: Path) -> str:
    """Like ``question_words``, but the watchpoint is as ``--watch`` takes it."""
    return "NaN or Inf" if is_overflow(path) else clean(watch_line(dataclasses.replace(path.question, name="")))


def way_words(hop: PathHop | Branch) -> str:
    """How a tensor went into the hop before it: ``in:1 of Mul-op383``."""
    way, key = hop.way, hop.tensor.key
    slots = ", ".join(f"in:{slot}" for slot in way.slots)
    into = f"{slots} of {last_part(way.into)}"
    words = {
        HopLink.START: "this tensor",
        HopLink.INPUT: into,
        HopLink.WEIGHT: f"{into}: its value after step {run_text(key)}",
        HopLink.UPDATE: f"{into}, which wrote it",
        HopLink.BEFORE: f"itself after step {run_text(key)}"
        + (f", before {last_part(way.into)} wrote it" if way.into != key.node else f" of {clean(key.graph)}"),
        HopLink.RESULT: f"put out by {last_part(way.into)}, which wrote it",
        HopLink.COPY: f"written for {into}",
        HopLink.NEAREST: "the nearest origin in the steps that were checked",
        HopLink.SENT: f"sent by rank {key.rank}: {into}" + ("" if way.certain else " (likely: same shape)"),
    }
    text = words[way.link]
    if way.hidden:
        text += f", through {and_more([*map(last_part, way.hidden)], _NAMED)} (not dumped)"
    return text


def operator_reasons(origin: Origin) -> list[str]:
    """Returns what in the inputs gives NaN or Inf: ``the logarithm of 0: 1 of 4 elements of in:0 is 0, ...``."""
    hit = origin.hit
    if hit.stats is None:
        return []
    slots = {source.row.slot: source.row for source in origin.inputs if source.row.role == "in"}
    own = next((row.meta for row in origin.outputs if row.key == hit.key), None)
    made = own or next((row.meta for row in origin.outputs if row.meta is not None), None)
    return likely_operator_causes(BadOperator(origin.type, [slots[slot] for slot in sorted(slots)], made, hit.stats))


def place_words(path: Path, hop: PathHop) -> str:
    """``Log-op381 (Log), step 3``, with rank and graph where there are several."""
    origin = hop.origin
    rank = f"rank {origin.rank}, " if len(path.ranks) > 1 or path.ending is PathEnd.RANKS else ""
    return f"{last_part(origin.node)} ({clean(origin.type)}), {rank}{when_words(origin, path.graphs)}"


def headline(path: Path) -> str:
    hop = path.end
    where = place_words(path, hop)
    what = found_words(hop.origin)
    bad = f" ({what})" if what else ""
    asked, asked_about = question_words(path), _tensor_words(path, hop.tensor)
    texts = {
        PathEnd.ORIGIN: f"origin: {where}{bad}",
        PathEnd.SOURCE: f"comes from outside: {where}{bad}; nothing in the run makes it",
        PathEnd.FIRST_STEP: f"bad before the first dumped step: {where}{bad}",
        PathEnd.CONSTANT: f"comes from a constant of the graph: {where}{bad}",
        PathEnd.FROZEN: f"not updated: {where}{bad}; nothing changed it",
        PathEnd.DESIGNED: f"by design: {where}{bad}: its operator was told to write it, or to pass it on",
        PathEnd.NOT_DUMPED: f"not dumped: the path is lost before {where}{bad}",
        PathEnd.RANKS: f"another rank may have sent it: {where}{bad}",
        PathEnd.UNKNOWN: f"first known bad: {where}{bad}; {_not_known(hop.origin)}",
        PathEnd.CLEAN: f"clean: {asked_about} has no {asked if is_overflow(path) else 'such finding'}",
        PathEnd.NO_VALUE: f"cannot be judged: {asked_about}: {_no_value(hop.tensor)}",
    }
    return texts[path.ending]


def _not_known(origin: Origin) -> str:
    return "what it was made from is not known" if origin.start is not OriginKind.UNKNOWN else _missing_words(origin)


def _tensor_words(path: Path, row: TensorRow) -> str:
    """``Log-op381:out:0 of step 3``, with the graph where there are several."""
    return f"{tensor_name(row)} of step {step_text(row.key.step)}{_graph_words(path, row)}"


def _graph_words(path: Path, row: TensorRow) -> str:
    return f", {clean(row.key.graph)}" if path.graphs else ""


def tensor_name(row: TensorRow) -> str:
    """``Log-op381:out:0``, ``Log-op381:out:0#2``."""
    return f"{last_part(row.key.node)}:{slot_text(row.key)}"


def _no_value(row: TensorRow) -> str:
    if row.error:
        return clean(row.error)
    if row.index < 0:
        return "it was not dumped"
    return "what was recorded of it does not tell"


def explanation(path: Path) -> list[str]:
    if path.state is not InputState.BAD:
        return []
    return [*map(clean, path.reasons), *_explanation(path)]


def _explanation(path: Path) -> list[str]:
    if path.ending is PathEnd.NOT_DUMPED:
        return _lost(path)
    if path.ending is PathEnd.UNKNOWN:
        advice = advice_words(path.end.origin, path.advice)
        return [f"to know more, {advice}"] if advice else []
    if path.ending is PathEnd.RANKS:
        absent = ", ".join(map(str, path.absent))
        where = f"what rank {absent} put in was not dumped" if absent else "no other rank here has such a node"
        return [
            f"its own inputs are clean, but it exchanges values between ranks, and {where}",
            "to go on, dump the inputs of this node on every rank of its group",
        ]
    lines = []
    if path.end.peers:
        ranks = sorted({source.row.key.rank for source in path.end.peers})
        lines.append(f"what rank {', '.join(map(str, ranks))} put in is clean as well")
    return lines + (operator_reasons(path.end.origin) if is_overflow(path) and path.ending is PathEnd.ORIGIN else [])


def _lost(path: Path) -> list[str]:
    lines = [f"bad end: {_tensor_words(path, path.end.tensor)}"]
    here = path.end.tensor.key.rank
    ends = [
        _tensor_words(path, row) + (f" of rank {row.key.rank}" if row.key.rank != here else "") for row in path.clean
    ]
    lines += [f"clean end: {and_more(ends, _NAMED)}"] if ends else []
    if path.suspects:
        lines.append(f"between them, not dumped: {and_more([*map(last_part, path.suspects)], _NAMED)}")
    lines += [f"not dumped: {clean(text)}" for text in path.outside[:_NAMED]]
    missing = plural(len(path.suspects), "node") if path.suspects else "these tensors"
    return [
        *lines,
        f"to go on, dump inputs and outputs of {missing}" + _in_brackets(path.advice),
    ]


def initial_words(hit: Hit | None) -> str:
    initial = (
        [result for result in findings(hit) if CONDITIONS[result.condition].initial_only] if hit is not None else []
    )
    return "a finding on initial values has no path: nothing was computed before them" if initial else ""


def length_words(path: Path) -> str:
    """``9 hops upstream, from step 5 back to step 3, over ranks 1, 0``."""
    hops = len(path.hops) - 1
    parts = [plural(hops, "hop") + " upstream" if hops else "starts here"]
    start, end = path.start.tensor.key, path.end.tensor.key
    if start.step != end.step or (start.round and end.round and start.round != end.round):
        parts.append(f"from step {run_text(start)} back to step {run_text(end)}")
    if len(path.ranks) > 1:
        parts.append(f"over ranks {', '.join(map(str, path.ranks))}")
    others = sum(len(hop.others) for hop in path.hops)
    parts += [f"{plural(others, 'other bad input')} on the way"] if others else []
    return ", ".join(parts)


def nearest_words(path: Path) -> str:
    if path.nearest is None:
        return "no origin is known in the steps that were checked"
    tensor = path.nearest.tensor
    what = contents(tensor.stats)
    rank = f"rank {tensor.key.rank}, step {step_text(tensor.key.step)}{_graph_words(path, tensor)}"
    return f"the nearest origin is {tensor_name(tensor)}, {rank}" + (f" ({what})" if what else "")


WIDTH = 80
"""The width of tables without a terminal."""
_FRAMES = 6
"""The most framework lines that are shown above the user's own."""


def wrapped(text: str, indent: str = "", hang: str | None = None) -> list[str]:
    """A paragraph in lines of ``WIDTH``, with ``hang`` before each but the first; names are never broken."""
    return textwrap.wrap(
        text,
        WIDTH,
        break_long_words=False,
        break_on_hyphens=False,
        initial_indent=indent,
        subsequent_indent=indent if hang is None else hang,
    )


def origin_lines(
    origin: Origin, head: str, *, overflow: bool, graphs: Sequence[str] = (), terminal: Terminal | None = None
) -> Iterator[Line]:
    """The lines of one origin, after a blank line; ``head`` is the word that it begins with.

    ``overflow``: it is about NaN and Inf, so "clean" says enough. ``graphs``: the run's graphs if several.
    ``terminal``: where its table has to fit; None: into ``WIDTH``.
    """
    yield ""
    place = f"{head}: rank {origin.rank}, {when_words(origin, graphs)}  ({clean(origin.type)})"
    yield meant(place, Meaning.FINDING)
    yield f"  {clean(origin.node)}"
    yield from f"  {why(origin, overflow=overflow)}".split("\n")
    yield from _block_table(origin, terminal)
    yield from _stack(origin)


def _block_table(origin: Origin, terminal: Terminal | None) -> Iterator[Line]:
    marks = [(source.row, "*" if source.before else "", _remark(source)) for source in origin.inputs]
    marks += [(row, "", "") for row in origin.outputs]
    rows = [(row_label(row, origin) + mark, row, remark) for row, mark, remark in marks]
    cells = [[label, *statistic_texts(row.stats)] for label, row, _ in rows]
    if terminal is not None:
        kinds = [meant(_kind(row, remark), _meaning(row)) for _, row, remark in rows]
        columns = [
            Column("", weight=9),
            *statistic_columns(TENSOR_TABLE),
            Column("dtype, shape", cut=Cut.END, weight=3),
        ]
        table = [[f"  {row[0]}", *row[1:], kind] for row, kind in zip(cells, kinds, strict=True)]
        yield from table_lines(columns, table, terminal)
    else:
        yield from _block_lines(rows, cells)
    if any(source.before for source in origin.inputs):
        yield "  * the value of before it was written over"


def _meaning(row: TensorRow) -> Meaning | None:
    return Meaning.DOUBT if row.index < 0 or row.error else None


def _block_lines(rows: Sequence[tuple[str, TensorRow, str]], cells: Sequence[Sequence[str]]) -> Iterator[str]:
    """The table in ``WIDTH`` columns: types and shapes come below it when they do not fit."""
    lines = _aligned([["", *STATISTIC_TITLES], *cells])
    kinds = ["dtype, shape", *(_kind(row, remark) for _, row, remark in rows)]
    wide = [f"  {line}  {kind}".rstrip() for line, kind in zip(lines, kinds, strict=True)]
    if max(map(len, wide)) <= WIDTH:
        yield from wide
    else:
        yield from (f"  {line}".rstrip() for line in lines)
        yield from (f"  {label}: {_kind(row, remark)}" for label, row, remark in rows)


def _remark(source: OriginInput) -> str:
    words = ["const"] if source.constant else []
    words += ["by design"] if source.designed else []
    return " ".join([*words, *(["bad"] if source.state is InputState.BAD else [])])


def _kind(row: TensorRow, remark: str) -> str:
    if row.index < 0:
        return "not dumped"
    if row.error:
        return clean(row.error)
    words = [row.meta.dtype, shape_text(row.meta.shape)] if row.meta is not None else []
    words += [remark] if remark else []
    words += ["(may belong to another node)"] if row.uncertain else []
    return clean(" ".join(words))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]


def _stack(origin: Origin) -> Iterator[str]:
    """The lines down to the user's own; without any of those, the innermost lines."""
    if not origin.stack:
        return
    if origin.stack_of != origin.node:
        yield f"  source of {clean(origin.stack_of)}:"
    own = next((number for number, frame in enumerate(origin.stack) if not frame.framework), None)
    last = own if own is not None else min(len(origin.stack), _FRAMES) - 1
    first = max(0, last - _FRAMES)
    if first:
        yield f"    … {first} inner framework lines"
    for number, frame in enumerate(origin.stack[first : last + 1], first):
        yield from _frame(frame, mine=number == own)


def _frame(frame: Frame, *, mine: bool) -> Iterator[str]:
    yield f"  {'>' if mine else ' '} {clean(frame.path)}:{frame.line}{' (forward)' if frame.forward else ''}"
    if frame.code:
        yield f"      {clean(frame.code)}"


_COLUMNS = (
    Column("", weight=8),
    Column("step", right=True, weight=7),
    Column("rank", right=True, weight=6),
    Column("graph", right=True, weight=5),
    Column("tensor", cut=Cut.MIDDLE, weight=9),
    *statistic_columns(TENSOR_TABLE[:4]),
    Column("dtype, shape", cut=Cut.END, weight=3),
)
_TITLES = [column.title for column in _COLUMNS]
_NAME = _TITLES.index("tensor")
_SHORTEST = 20
"""The length to which names may be cut."""
_BRANCHES = 3
"""The most other bad inputs of a hop that are named."""


def path_lines(path: Path, terminal: Terminal | None = None) -> Iterator[Line]:
    if not is_overflow(path):
        yield from wrapped(f"bad means: a finding of {question_words(path)}")
    if path.state is InputState.BAD:
        yield f"path: {length_words(path)}"
        yield from _table(path) if terminal is None else table_lines(*_path_table(path), terminal)
        heads = {PathEnd.ORIGIN: "origin", PathEnd.UNKNOWN: "first known bad"}
        head = heads.get(path.ending, "last hop")
        origin, overflow = path.end.origin, is_overflow(path)
        yield from origin_lines(origin, head, overflow=overflow, graphs=path.graphs, terminal=terminal)
        yield ""
        for line in explanation(path):
            yield from wrapped(line)
    elif path.state is InputState.CLEAN:
        yield from wrapped(nearest_words(path))
    yield meant(headline(path), _STATES[path.state])


_STATES = {InputState.BAD: Meaning.FINDING, InputState.CLEAN: Meaning.CLEAN, InputState.UNKNOWN: Meaning.DOUBT}


def _path_columns(path: Path) -> list[int]:
    left_out = {*(() if len(path.ranks) > 1 else ("rank",)), *(() if path.graphs else ("graph",))}
    return [at for at in range(len(_TITLES)) if _TITLES[at] not in left_out]


def _path_table(path: Path) -> tuple[list[Column], list[TableRow]]:
    kept = _path_columns(path)
    rows: list[TableRow] = []
    for hop in path.hops:
        if hop is not path.start:
            rows += map(FullWidthLine, wrapped(f"↑ {way_words(hop)}", indent="     ", hang="       "))
        cells = _cells(path, hop)
        rows.append([meant(cells[0], _HOPS.get(cells[0])), *(cells[at] for at in kept[1:])])
        rows += map(FullWidthLine, _others(hop))
    return [_COLUMNS[at] for at in kept], rows


_HOPS = {"✗": Meaning.FINDING, "◆": Meaning.FINDING, "?": Meaning.DOUBT}


def _table(path: Path) -> Iterator[str]:
    rows = [_cells(path, hop) for hop in path.hops]
    kept = _path_columns(path)
    widths = [max(len(row[at]) for row in [_TITLES, *rows]) for at in range(len(_TITLES))]
    over = sum(widths[at] + 2 for at in kept) - 2 - WIDTH
    if over > 0:  # lines must not wrap: types and shapes go first, then the middle of long names
        over -= widths[kept.pop()] + 2
    widths[_NAME] -= min(max(over, 0), max(widths[_NAME] - _SHORTEST, 0))

    def line(cells: Sequence[str]) -> str:
        left = {0, _NAME, len(_TITLES) - 1}
        texts = [cells[at].ljust(widths[at]) if at in left else cells[at].rjust(widths[at]) for at in kept]
        return "  ".join(texts).rstrip()

    yield line(_TITLES)
    for hop, cells in zip(path.hops, rows, strict=True):
        if hop is not path.start:
            yield from wrapped(f"↑ {way_words(hop)}", indent="     ", hang="       ")
        cells[_NAME] = cut_middle(cells[_NAME], widths[_NAME])
        yield line(cells)
        yield from _others(hop)


def _cells(path: Path, hop: PathHop) -> list[str]:
    row = hop.tensor
    mark = "✗" if hop is not path.end else "◆" if path.ends_at_origin else "?"
    numbers = statistic_texts(row.stats)[:4]
    kind = type_text(row.meta)
    name = tensor_name(row)
    graph = short_names(path.graphs).get(row.key.graph, clean(row.key.graph)) if path.graphs else ""
    return [mark, str(row.key.step), str(row.key.rank), graph, name, *numbers, kind]


def _others(hop: PathHop) -> Iterator[str]:
    if not hop.others:
        return
    names = [f"{last_part(branch.tensor.key.node)} ({way_words(branch)})" for branch in hop.others[:_BRANCHES]]
    more = f", and {len(hop.others) - _BRANCHES:,} more" if len(hop.others) > _BRANCHES else ""
    yield from wrapped(f"also bad: {', '.join(names)}{more}", indent="       ")


Row = dict[str, Any]


def report_rows(report: OriginReport) -> Row:
    leading = {searched.pair[0] for searched in report.leading}
    first = report.shown_search
    return {
        "end": report.end.value,
        "origins": [origin_row(origin) for origin in report.origins],
        "not_judged": [_not_judged_row(each) for each in report.not_judged],
        "first_known": None if report.first_known is None else _first_known_row(report.first_known, report.advice),
        "first_by_rank": [_first_row(searched, searched.pair[0] in leading) for searched in report.first_searches],
        "spread": {
            "by_graph": first.by_graph if first is not None else None,
            "tensors": [_spread_row(hit) for hit in first.spread] if first is not None else [],
        },
        "bad_tensors": [
            {
                "rank": searched.pair[0],
                "step": searched.pair[1],
                "tensors": searched.bad,
                "parameters": searched.parameters,
            }
            for searched in report.searches
        ],
        "not_looked_at": [{"rank": rank, "step": step} for rank, step in report.left],
    }


def origin_row(origin: Origin) -> Row:
    """An origin, or the first bad tensor of a step without one (``starts_here`` is false)."""
    return {
        **row_of(origin.hit.key, "rank", "step"),
        **row_of(origin, "graph", "node", "type", "starts_here", "start"),
        "other": origin.other or None,
        "unknown": [_missing_row(each) for each in origin.missing],
        "tensors": [key_row(hit.key) for hit in origin.hits],
        "results": [result_row(result) for result in origin.results],
        "inputs": [_input_row(source) for source in origin.inputs],
        "outputs": [tensor_dict(row) for row in origin.outputs],
        "stack": [frame_row(frame) for frame in origin.stack],
        "stack_of": origin.stack_of or None,
    }


def _not_judged_row(each: NotJudged) -> Row:
    return {
        **row_of(each.hit.key, "rank", "step"),
        **row_of(each, "graph", "node", "type"),
        "tensors": [key_row(hit.key) for hit in each.hits],
        "unknown": [_missing_row(missing) for missing in each.missing],
        "other_ranks": each.exchanged,
        "text": not_judged_words(each),
    }


def _missing_row(missing: MissingValue) -> Row:
    return {"slot": missing.slot, "from": missing.name or None, "why": missing.why}


def _first_known_row(origin: Origin, how: str) -> Row:
    return {**origin_row(origin), "text": first_known_words(origin), "to_know_more": advice_words(origin, how)}


def _first_row(searched: StepSearch, leads: bool) -> Row:
    return {
        "rank": searched.pair[0],
        "leads": leads,
        "origins": len(searched.origins),
        "order": None if searched.beginning is None else searched.beginning.hit.order[1],
        "first": None if searched.beginning is None else origin_row(searched.beginning),
        "bad_before": [origin_row(origin) for origin in searched.before],
    }


def _input_row(source: OriginInput) -> Row:
    row = tensor_dict(source.row)
    return {
        **row,
        **row_of(source, "state", "constant", "before"),
        "by_design": source.designed,
    }


def tensor_dict(row: TensorRow) -> Row:
    return {
        "role": row.role,
        "index": row.slot,
        "tensor": key_row(row.key) if row.index >= 0 else None,
        "from": row.origin_text or None,
        **meta_row(row.meta),
        "stats": stats_row(row.stats) if row.stats is not None else None,
        "bad": row.hit,
        "error": row.error or (None if row.index >= 0 else "not dumped"),
        **row_of(row, "recorded", "uncertain"),
    }


def _spread_row(hit: Hit) -> Row:
    return {
        **key_row(hit.key),
        "results": [result_row(result) for result in hit.results],
        "stats": stats_row(hit.stats) if hit.stats is not None else None,
    }


# -- paths -----------------------------------------------------------------------------------------


def path_rows(path: Path) -> Row:
    return {
        "question": _question_text(path),
        **row_of(path, "state", "ending"),
        "answer": headline(path),
        "explanation": explanation(path),
        "hops": [_hop_row(hop) for hop in path.hops],
        "not_dumped": list(path.suspects),
        "outside": list(path.outside),
        "clean_end": [tensor_dict(row) for row in path.clean],
        "absent_ranks": list(path.absent),
    }


def _hop_row(hop: PathHop) -> Row:
    return {
        **_way_row(hop.way),
        "text": way_words(hop),
        "tensor": tensor_dict(hop.tensor),
        "made": origin_row(hop.origin),
        "other_bad_inputs": [_branch_row(branch) for branch in hop.others],
        "other_ranks": [_input_row(source) for source in hop.peers],
    }


def _branch_row(branch: Branch) -> Row:
    return {**_way_row(branch.way), "text": way_words(branch), "tensor": tensor_dict(branch.tensor)}


def _way_row(way: Way) -> Row:
    return {
        "link": way.link.value,
        "into": way.into or None,
        "slots": list(way.slots),
        "through": list(way.hidden),
        "certain": way.certain,
    }
