"""Relations of a tensor: what it was made from and what uses it, hop by hop, with findings on each.

Parameters cross steps: a node that reads a parameter gets its value of the step before, and the optimizer's node makes
the new value from the gradient and the old value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tui_debugger.check.flow import DataFlow, Located
from tui_debugger.check.progress import retry_when_renumbered
from tui_debugger.check.tensors import tensor_row
from tui_debugger.check.types import CheckResult, TensorRow
from tui_debugger.diagnose.origin.text import tensor_dict
from tui_debugger.graph.categories import update_of
from tui_debugger.graph.table import NodeFlag, NodeTable, edges, real_consumers
from tui_debugger.model import PARAMETERS, Frame, Hit, ProgressFn, Side, TensorKey, Verdict, no_progress
from tui_debugger.text.clean import clean
from tui_debugger.text.distribution import statistic_texts
from tui_debugger.text.numbers import NONE, plural
from tui_debugger.text.phrases import tail
from tui_debugger.text.rows import hit_row, key_row
from tui_debugger.text.sketch import UNICODE, Edge, Ink, Sketch, SketchBox, SketchGraph, draw_sketch
from tui_debugger.text.tables import Column, Cut, FullWidthLine, table_lines
from tui_debugger.text.tables import Row as TableRow
from tui_debugger.text.tensors import run_text, shape_text, short_names, slot_text, step_text
from tui_debugger.text.writer import Meaning, meant
from tui_debugger.watch.condition_table import CONDITIONS

if TYPE_CHECKING:
    from tui_debugger.diagnose.run import DiagnosedRun


class RelationKind(Enum):
    """The relation of two tensors."""

    SELF = "self"
    """The tensor itself."""
    OUTPUT = "output"
    """Another output of the same node."""
    INPUT = "input"
    """A node makes one tensor from the other."""
    WEIGHT = "weight"
    """A node reads the value that a parameter had after the step before."""
    UPDATE = "update"
    """The optimizer's node writes a parameter with it."""
    BEFORE = "before"
    """The same parameter, one update earlier or later."""
    WRITTEN = "written"
    """A parameter that an optimizer's node writes, besides its outputs."""
    COPY = "copy"
    """An input file, and the tensor that its producer wrote."""


@dataclass(frozen=True, slots=True)
class Related:
    """One tensor beside another.

    Attributes:
        key: the tensor, as an output of the node that made it where known.
        row: that node's row in the rank's node table.
        tensor: where its value was dumped, not measured yet; maybe the input file of a reader. Index -1: not dumped.
        type: its node's operator type.
        tie: its relation to the tensor that was asked for.
        node: the node between the two, which reads one and makes the other.
        slots: that node's input slots.
        hit: what the last check of its step found on it.
        checked: its step was checked with the present watchpoints.
        watched: abbreviations of the enabled watchpoints that cover its node.
        ahead: its step would be the one after the last dumped step, and may never have run.
    """

    key: TensorKey
    row: int
    tensor: TensorRow
    type: str
    tie: RelationKind = RelationKind.SELF
    node: str = ""
    slots: tuple[int, ...] = ()
    hit: Hit | None = None
    checked: bool = False
    watched: tuple[str, ...] = ()
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class Relations:
    """A tensor and what is around it.

    Attributes:
        siblings: the other outputs of its node.
        maker: the node that made it, or that updates the parameter; for an input, its source; empty when unknown.
        producers: what it was made from, by input slot.
        consumers: what uses it, by node.
        stack: source lines of the node, innermost first.
        graphs: the names of the rank's graphs if there are several, so that a name alone may mean two nodes.
        edges: the dump tells what is made from what; else missing relations prove nothing.
    """

    centre: Related
    siblings: tuple[Related, ...]
    maker: str
    producers: tuple[Related, ...]
    consumers: tuple[Related, ...]
    stack: tuple[Frame, ...] = field(default=(), repr=False)
    graphs: tuple[str, ...] = ()
    edges: bool = True

    def nothing_words(self, *, upstream: bool) -> str:
        if not self.edges:
            return NO_FLOW
        return "nothing makes it" if upstream else "nothing uses it, as far as the graph says"


NO_FLOW = "not known: nothing in the dump tells what is made from what"


def flow_words(nodes: NodeTable) -> str:
    """Returns how far the dump does not tell what is made from what; empty if it does."""
    if not (edges(nodes).in_node >= 0).any():
        return NO_FLOW
    inferred = (nodes.flags & int(NodeFlag.INFERRED)).any()
    return "lines are inferred from equal tensors: the dump does not name them" if inferred else ""


def relations(session: DiagnosedRun, key: TensorKey, progress: ProgressFn = no_progress) -> Relations:
    """Returns what is around a tensor, without measuring; UnreadableTensorError where the run has no such node."""
    return retry_when_renumbered(lambda: _RelationsBuilder(session, key, progress).relations())


def producers(session: DiagnosedRun, key: TensorKey, progress: ProgressFn = no_progress) -> tuple[Related, ...]:
    return retry_when_renumbered(lambda: _RelationsBuilder(session, key, progress).producers())


def consumers(session: DiagnosedRun, key: TensorKey, progress: ProgressFn = no_progress) -> tuple[Related, ...]:
    return retry_when_renumbered(lambda: _RelationsBuilder(session, key, progress).consumers())


def measured(
    session: DiagnosedRun, related: Sequence[Related], progress: ProgressFn = no_progress
) -> tuple[Related, ...]:
    rows = session.measure([each.tensor for each in related], progress)
    return tuple(replace(each, tensor=row) for each, row in zip(related, rows, strict=True))


class _RelationsBuilder:
    def __init__(self, session: DiagnosedRun, key: TensorKey, progress: ProgressFn) -> None:
        self.session = session
        self.key = key
        self.flow: DataFlow = session.flow(key.rank, progress)
        self.row = self.flow.row_of(key)
        self.here = (key.step, self.flow.located(key.step, self.row, key.side, key.slot, key.round).round)
        self._marks = _RelationMarks(session, key.rank)

    def centre(self) -> Related:
        return self._related(self._at(self.here, self.row, self.key.side, self.key.slot), RelationKind.SELF)

    def relations(self) -> Relations:
        nodes, key = self.flow.nodes, self.key
        updater, _ = self.flow.updater(self.row) if self._is_updated(self.row) else (-1, 0)
        made = nodes.names[updater] if updater >= 0 else "" if self._is_parameter(self.row) else key.node
        maker = made if key.side is Side.OUTPUT else self._taken_from()
        stack = next((nodes.stack(row) for row in (self.row, updater) if row >= 0 and nodes.stack(row)), ())
        return Relations(
            centre=self.centre(),
            siblings=self._siblings(),
            maker=maker,
            producers=self.producers(),
            consumers=self.consumers(),
            stack=tuple(frame for frame in stack if not frame.context),
            graphs=self.session.graph_names([key.rank]),
            edges=flow_words(nodes) != NO_FLOW,
        )

    def _taken_from(self) -> str:
        """Returns the source of an input: an operator, a parameter or a constant; empty where no graph tells."""
        holder = self.flow.holder(self.row, self.key.slot)
        return self.flow.nodes.names[holder.row] if holder.row >= 0 else ""

    # -- upstream ------------------------------------------------------------------------------------

    def producers(self) -> tuple[Related, ...]:
        key, row = self.key, self.row
        if key.side is Side.INPUT:
            at = self._feeder(row, key.slot)
            return (
                () if at is None or at.side is Side.INPUT else (self._related(at, RelationKind.COPY, row, (key.slot,)),)
            )
        if not self._is_parameter(row):
            return self._inputs(row)
        if not self._is_updated(row):
            return ()
        updater, _ = self.flow.updater(row)
        return self._inputs(updater, writes=row) if updater >= 0 else ()

    def _inputs(self, row: int, writes: int = -1) -> tuple[Related, ...]:
        slots = {*self.flow.slots(*self.at_side(row, Side.INPUT)), *range(len(self.flow.holders(row)))}
        found: dict[Located, list[int]] = {}
        for slot in sorted(slots):
            at = self._feeder(row, slot)
            if at is not None:
                found.setdefault(at, []).append(slot)
        return tuple(self._related(at, self._tie(at, writes), row, tuple(into)) for at, into in found.items())

    def _tie(self, at: Located, writes: int) -> RelationKind:
        if writes >= 0:
            return (
                RelationKind.BEFORE if at.row == writes or at.row in self.flow.shared(writes) else RelationKind.UPDATE
            )
        elsewhere = (at.step, at.round) != self.here and self._is_updated(at.row)
        return RelationKind.WEIGHT if elsewhere else RelationKind.INPUT

    def _feeder(self, row: int, slot: int) -> Located | None:
        """The tensor that feeds an input: its producer's output, else the node's own file; index -1 without both."""
        (step, number), holder = self.here, self.flow.holder(row, slot)
        held = self.flow.locate_held(step, holder, number, row)
        if held is not None:
            return held
        seen = self._at(self.here, row, Side.INPUT, slot)
        if seen.index >= 0:
            return seen
        return self._maker_of(seen) if holder.row >= 0 else None

    # -- downstream ----------------------------------------------------------------------------------

    def consumers(self) -> tuple[Related, ...]:
        key, row = self.key, self.row
        if key.side is Side.INPUT:
            return (self._made_by(row, self.here, (key.slot,), RelationKind.INPUT),)
        tie = RelationKind.INPUT
        after: tuple[int, int] | None = self.here
        if self._is_updated(row):
            after, tie = self._next_run(), RelationKind.WEIGHT
        run = after if after is not None else (max(self.session.around.steps(key.rank), default=key.step) + 1, 0)
        found: dict[int, list[int]] = {}
        for consumer, slot in real_consumers(self.flow.nodes, row, key.slot):
            found.setdefault(consumer, []).append(slot)
        made = [self._made_by(consumer, run, tuple(slots), tie) for consumer, slots in found.items()]
        if after is None:  # readers in the next step are known, but the optimizer's next value tells nothing
            made = [replace(each, ahead=True) for each in made if each.tie is not RelationKind.BEFORE]
        return (*made, *self._written_by())

    def _written_by(self) -> Iterator[Related]:
        """The parameters that the node writes, if it is an optimizer's."""
        for slot in sorted(self.flow.in_place(self.row)):
            holder = self.flow.holder(self.row, slot)
            if holder.row >= 0:
                at = self._at(self.here, holder.row, Side.OUTPUT, holder.slot)
                yield self._related(at, RelationKind.WRITTEN, self.row, (slot,))

    def _made_by(self, row: int, run: tuple[int, int], slots: tuple[int, ...], tie: RelationKind) -> Related:
        """Returns what a node makes of the tensor; for an optimizer's node, the parameter that it writes."""
        update = update_of(self.flow.nodes.op_type(row))
        if update is not None:
            written = self._written(row, slots)
            if written >= 0:
                tie = RelationKind.BEFORE if written == self.row else RelationKind.UPDATE
                return self._related(self._at(run, written, Side.OUTPUT, 0), tie, row, slots)
        outputs = self.flow.slots(run[0], row, Side.OUTPUT, run[1])
        return self._related(self._at(run, row, Side.OUTPUT, min(outputs, default=0)), tie, row, slots)

    def _written(self, row: int, slots: tuple[int, ...]) -> int:
        """The parameter that an optimizer's node writes with the inputs of some slots."""
        written = self.flow.in_place(row)
        mine = next((slot for slot in slots if slot in written), None)
        if mine is not None:  # the node writes this state or weight in place
            return self.flow.holder(row, mine).row
        return self.flow.holder(row, min(written, default=0)).row

    def _next_run(self) -> tuple[int, int] | None:
        """The run that reads a parameter's value of this run; None after the last dumped one."""
        turn = self.flow.turn(self.row, *self.here)
        later = [run for run in self.flow.runs_of(self.row) if self.flow.turn(self.row, *run) > turn]
        if not later:
            return None
        own = self._at(self.here, self.row, Side.OUTPUT, self.key.slot)
        return later[0] if self.flow.is_left_by(own, self.row, *later[0]) else (self.key.step + 1, 0)

    # -- one tensor ----------------------------------------------------------------------------------

    def _siblings(self) -> tuple[Related, ...]:
        key = self.key
        if key.side is Side.INPUT:
            return ()
        others = sorted({*self.flow.slots(*self.at_side(self.row, Side.OUTPUT))} - {key.slot})
        return tuple(
            self._related(self._at(self.here, self.row, Side.OUTPUT, slot), RelationKind.OUTPUT, self.row)
            for slot in others
        )

    def at_side(self, row: int, side: Side) -> tuple[int, int, Side, int]:
        return (self.here[0], row, side, self.here[1])

    def _at(self, run: tuple[int, int], row: int, side: Side, slot: int) -> Located:
        return self.flow.located(run[0], row, side, slot, run[1])

    def _related(self, at: Located, tie: RelationKind, node: int = -1, slots: tuple[int, ...] = ()) -> Related:
        nodes = self.flow.nodes
        made = self._maker_of(at) if node >= 0 else at
        text = nodes.constants.get(made.row, "") if self.flow.is_constant(made.row) else ""
        row = tensor_row(self.flow, at, (at.side.label, at.slot, text), lambda _: False)
        hit = self._marks.hit(row.key)
        return Related(
            key=self.flow.key(made),
            row=made.row,
            tensor=replace(row, hit=hit is not None and hit.verdict is Verdict.FINDING),
            type=nodes.op_type(made.row),
            tie=tie,
            node=nodes.names[node] if node >= 0 else "",
            slots=slots,
            hit=hit,
            checked=self._marks.checked(row.key),
            watched=self._marks.watched(made.row),
        )

    def _maker_of(self, at: Located) -> Located:
        """The output that an input file holds, where the graph tells."""
        holder = self.flow.holder(at.row, at.slot) if at.side is Side.INPUT else None
        if holder is None or holder.row < 0:
            return at
        made = Located(at.step, -1, holder.row, Side.OUTPUT, holder.slot, at.round)
        if not self._is_updated(holder.row):
            return made
        before = self.flow.before(holder.row, Side.OUTPUT, holder.slot, at.step, at.round)
        if before is None or not self.flow.is_left_by(before, holder.row, at.step, at.round):
            return replace(made, step=at.step - 1, round=0)
        return replace(before, index=-1)

    def _is_parameter(self, row: int) -> bool:
        return self.flow.nodes.category_of(row) in PARAMETERS

    def _is_updated(self, row: int) -> bool:
        return self._is_parameter(row) and self.flow.updated(row)


class _RelationMarks:
    """The findings and the watchpoints of tensors."""

    def __init__(self, session: DiagnosedRun, rank: int) -> None:
        self.session = session
        self._known: dict[tuple[int, int], CheckResult | None] = {}
        enabled = session.watchpoints.enabled()
        self._covers = [(CONDITIONS[each.condition].abbr, session.watch_state(rank, each.id)) for each in enabled]

    def watched(self, row: int) -> tuple[str, ...]:
        return tuple(dict.fromkeys(abbr for abbr, mask in self._covers if _is_set(mask, row)))

    def hit(self, key: TensorKey) -> Hit | None:
        known = self._of(key)
        at = known.hits.find(key) if known is not None else -1
        return known.hits[at] if known is not None and at >= 0 else None

    def checked(self, key: TensorKey) -> bool:
        return self._of(key) is not None

    def _of(self, key: TensorKey) -> CheckResult | None:
        pair = (key.rank, key.step)
        if pair not in self._known:
            self._known[pair] = self.session.known([pair])
        return self._known[pair]


def _is_set(mask: npt.NDArray[np.uint8], row: int) -> bool:
    return row < len(mask) and bool(mask[row])


# -- further around ----------------------------------------------------------------------------------

MOST_OF_A_HOP = 12
"""The most tensors of a hop that are looked at; findings come first, the others are counted."""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """A tensor and what is some hops around it, as a graph.

    Attributes:
        tensors: the middle one first; each with its tie to the tensor that it was found from.
        hops: their distances, negative upstream.
        edges: what is made from what, by index in ``tensors``, with the input slots.
        hidden: how many more there are, by distance.
        graphs: see ``Relations``.
        flow: see ``flow_words``.
    """

    tensors: tuple[Related, ...]
    hops: tuple[int, ...]
    edges: tuple[Edge, ...]
    hidden: Mapping[int, int]
    graphs: tuple[str, ...] = ()
    flow: str = ""

    def with_tensors(self, tensors: Sequence[Related]) -> Neighbourhood:
        return replace(self, tensors=tuple(tensors))


def neighbourhood(
    session: DiagnosedRun, key: TensorKey, hops: int = 2, progress: ProgressFn = no_progress
) -> Neighbourhood:
    """Returns what is around a tensor, with all edges between what was found; measures nothing."""
    return retry_when_renumbered(lambda: _Neighbours(session, key, progress).found(hops))


class _Neighbours:
    def __init__(self, session: DiagnosedRun, key: TensorKey, progress: ProgressFn) -> None:
        self._session, self._progress = session, progress
        centre = _RelationsBuilder(session, key, progress).centre()
        self._tensors, self._hops = [centre], [0]
        self._number = {centre.key: 0}
        self._slots: dict[tuple[int, int], set[int]] = {}
        self._hidden: dict[int, int] = {}

    def found(self, hops: int) -> Neighbourhood:
        for sign in (-1, 1):
            front = [0]
            for hop in range(1, hops + 1):
                front = self._next(front, sign, hop)
        for number, hop in enumerate(self._hops):
            if hop > 0 or hop == -hops:  # the producers of the others were asked for
                self._link([(number, each) for each in self._neighbours_of(number, -1)], -1)
        edges = [
            Edge(source, target, ",".join(map(str, sorted(slots))))
            for (source, target), slots in sorted(self._slots.items())
        ]
        rank = self._tensors[0].key.rank
        graphs, flow = self._session.graph_names([rank]), flow_words(self._session.nodes(rank))
        return Neighbourhood(tuple(self._tensors), tuple(self._hops), tuple(edges), self._hidden, graphs, flow)

    def _next(self, front: Sequence[int], sign: int, hop: int) -> list[int]:
        """Goes one hop on from some tensors; returns the new ones."""
        ties = [(number, each) for number in front for each in self._neighbours_of(number, sign)]
        new = {each.key: each for _, each in reversed(ties) if each.key not in self._number}
        new = dict(reversed(new.items()))  # the first tie counts, in the order of the graph
        kept = set(sorted(new, key=lambda key: not new[key].tensor.hit)[:MOST_OF_A_HOP])
        first = len(self._tensors)
        for key, each in new.items():
            if key in kept:
                self._number[key] = len(self._tensors)
                self._tensors.append(each)
                self._hops.append(sign * hop)
        if len(new) > len(kept):
            self._hidden[sign * hop] = len(new) - len(kept)
        self._link(ties, sign)
        return list(range(first, len(self._tensors)))

    def _neighbours_of(self, number: int, sign: int) -> Sequence[Related]:
        each = self._tensors[number]
        if each.ahead:  # it is not known whether that step was ever run
            return ()
        builder = _RelationsBuilder(self._session, each.key, self._progress)
        return builder.producers() if sign < 0 else builder.consumers()

    def _link(self, ties: Iterable[tuple[int, Related]], sign: int) -> None:
        for number, each in ties:
            other = self._number.get(each.key, number)
            if other != number:
                pair = (other, number) if sign < 0 else (number, other)
                self._slots.setdefault(pair, set()).update(each.slots)


def sketch_of(
    found: Neighbourhood,
    width: int,
    height: int,
    row: Callable[[Related], TensorRow] = lambda related: related.tensor,
    *,
    ink: Ink = UNICODE,
    spelled: Callable[[str], str] = str,
) -> Sketch:
    """Draws what is around a tensor; ``row`` returns a tensor's newest row, ``spelled`` fits names to the terminal."""
    middle, graphs = found.tensors[0].key, short_names(found.graphs)

    def box(each: Related) -> SketchBox:
        key, mark = each.key, mark_of(each, row(each))
        elsewhere = key.step != middle.step or (key.round and middle.round and key.round != middle.round)
        note = ("@next" if each.ahead else f"@{run_text(key)}") if elsewhere else ""
        note += f" graph {graphs.get(key.graph, clean(key.graph))}" if key.graph != middle.graph else ""
        foot = "" if key.side is Side.OUTPUT and not key.slot else slot_text(key)
        name = clean(tail(key.node))
        return SketchBox(spelled(name), mark, spelled(note), foot, important=mark in {"◆", "✗"})

    hops = max(map(abs, found.hops))
    boxes = [box(each) for each in found.tensors]
    graph = SketchGraph(boxes, found.edges, hidden=found.hidden, hops=max(hops, 1))
    return draw_sketch(graph, width, height, ink=ink)


def sketch_notes(found: Neighbourhood, drawn: Sketch) -> list[str]:
    notes = [found.flow] if found.flow else []
    notes += [f"{plural(drawn.beyond, 'tensor')} farther away: no room"] if drawn.beyond else []
    for number in drawn.left_out:
        edge = found.edges[number]
        source, target = (clean(tail(found.tensors[n].key.node)) for n in (edge.source, edge.target))
        notes.append(f"not drawn: {source} is in:{edge.label} of {target}")
    return notes


# -- in words ----------------------------------------------------------------------------------------


def tie_words(related: Related, *, upstream: bool) -> str:
    """The relation to the middle tensor in words: ``in:1 of MatMul-op12``; ``upstream``: it is a producer."""
    slots = ", ".join(f"in:{slot}" for slot in related.slots)
    node = clean(tail(related.node))
    at, step = f"{slots} of {node}", run_text(related.key)
    if related.ahead:
        return f"{at}, which reads it after the last dumped step"
    if related.tie is RelationKind.WEIGHT:
        when = f"step {step}" if related.tensor.index >= 0 else "the next step"
        return f"{at}: value after step {step}" if upstream else f"{at}, which reads it in {when}"
    if related.tie is RelationKind.BEFORE:
        return (
            f"itself after step {step}, before {node} wrote it"
            if upstream
            else f"itself after step {step}, written by {node}"
        )
    words = {
        RelationKind.SELF: "the tensor in the middle",
        RelationKind.OUTPUT: "another output of the same node",
        RelationKind.INPUT: at,
        RelationKind.UPDATE: f"{at}, which wrote it" if upstream else f"written with it by {node} ({slots})",
        RelationKind.WRITTEN: f"written by {node} ({slots})",
        RelationKind.COPY: f"what was written for {at}",
    }
    return words[related.tie]


def mark_of(related: Related, row: TensorRow) -> str:
    """Returns the present mark of a tensor: ``◆`` an origin, ``✗`` a finding, ``?`` a doubt."""
    if related.hit is not None and related.hit.origin:
        return "◆"
    if related.tensor.hit or (row.stats is not None and row.stats.bad):
        return "✗"
    return "?" if related.tensor.uncertain else ""


def watch_words(related: Related) -> str:
    """``TO ✗TL``: the watchpoints that cover a tensor, those with findings marked."""
    found = _found(related.hit)
    covers = [("✗" if abbr in found else "") + abbr for abbr in related.watched]
    return " ".join([*covers, *(f"✗{abbr}" for abbr in found if abbr not in related.watched)])


def _found(hit: Hit | None) -> Iterable[str]:
    if hit is None:
        return ()
    results = [result for result in hit.results if result.verdict is Verdict.FINDING]
    return list(dict.fromkeys(CONDITIONS[result.condition].abbr for result in results))


Row = dict[str, Any]
_COLUMNS = (
    Column("", weight=8),
    Column("graph", weight=5),
    Column("tensor", cut=Cut.MIDDLE, weight=9),
    Column("step", right=True, weight=7),
    Column("NaN", right=True, cut=Cut.END, weight=6),
    Column("Inf", right=True, weight=6),
    Column("min", right=True, weight=4),
    Column("max", right=True, weight=4),
    Column("watched", cut=Cut.END, weight=5),
)
_GRAPH = 1
"""The index of the column that is left out for a single graph."""


@dataclass(frozen=True, slots=True)
class RelatedTree:
    """A related tensor and the tensors one hop beyond it; empty where these were not looked up."""

    related: Related
    beyond: tuple[RelatedTree, ...] = ()


def related_trees(related: Sequence[Related]) -> tuple[RelatedTree, ...]:
    return tuple(RelatedTree(each) for each in related)


def relations_lines(found: Relations) -> Iterator[str]:
    return ("".join(line) for line in table_lines(*relations_table(found)))


def relations_table(
    found: Relations, up: Sequence[RelatedTree] | None = None, down: Sequence[RelatedTree] | None = None
) -> tuple[list[Column], list[TableRow]]:
    """The relations of a tensor as columns and rows; ``up`` and ``down`` have further hops."""
    ups = [*_entries(related_trees(found.producers) if up is None else up, upstream=True)]
    downs = [*_entries(related_trees(found.consumers) if down is None else down, upstream=False)]
    middle = [(related, 0, "") for related in (found.centre, *found.siblings)]
    names = short_names(found.graphs)
    kept = [at for at in range(len(_COLUMNS)) if names or at != _GRAPH]

    def block(entries: Sequence[tuple[Related, int, str]]) -> Iterator[TableRow]:
        for related, depth, how in entries:
            cells = _cells(related, depth, names)
            yield [cells[at] for at in kept]
            if how:
                yield FullWidthLine(f"    {'  ' * depth}{how}")

    maker = clean(tail(found.maker))
    made = "taken" if found.centre.key.side is Side.INPUT else f"made by {maker}" if maker else "made"
    nothing = (" nothing that the graph knows", " nothing, as far as the graph says")
    if not found.edges:
        nothing = (f" {found.nothing_words(upstream=True)}", f" {found.nothing_words(upstream=False)}")
    rows: list[TableRow] = [FullWidthLine(f"{made} from:" + ("" if ups else nothing[0])), *block(ups)]
    rows += [FullWidthLine("tensor:"), *block(middle)]
    rows += [FullWidthLine("used by:" + ("" if downs else nothing[1])), *block(downs)]
    return [_COLUMNS[at] for at in kept], rows


def _entries(items: Sequence[RelatedTree], depth: int = 0, *, upstream: bool) -> Iterator[tuple[Related, int, str]]:
    for item in items:
        yield item.related, depth, tie_words(item.related, upstream=upstream)
        yield from _entries(item.beyond, depth + 1, upstream=upstream)


MEANING_OF_MARK = {"◆": Meaning.FINDING, "✗": Meaning.FINDING, "?": Meaning.DOUBT}


def _cells(related: Related, depth: int, graphs: Mapping[str, str]) -> tuple[str, ...]:
    row, stats = related.tensor, related.tensor.stats
    mark = mark_of(related, row)
    mark = meant(mark, MEANING_OF_MARK.get(mark))
    name = f"{'  ' * depth}{clean(related.key.node.rpartition('/')[2])}:{slot_text(related.key)}"
    graph = graphs.get(related.key.graph, clean(related.key.graph)) if graphs else ""
    if stats is None:
        why = clean(row.error) or ("not dumped" if row.index < 0 else NONE)
        step = NONE if related.ahead else step_text(related.key.step)
        return (mark, graph, name, step, why, "", "", "", watch_words(related))
    nan, inf, least, most, *_ = statistic_texts(stats)
    bad = [meant(text, Meaning.FINDING if number else None) for text, number in ((nan, stats.nan), (inf, stats.inf))]
    return (mark, graph, name, step_text(related.key.step), *bad, least, most, watch_words(related))


# -- for machines ------------------------------------------------------------------------------------


def related_row(item: RelatedTree, *, upstream: bool | None = None) -> Row:
    related, row = item.related, item.related.tensor
    found: Row = {
        "tensor": key_row(related.key),
        "seen_at": key_row(row.key) if row.key != related.key else None,
        "type": related.type,
        "tie": related.tie.value,
        "node": related.node or None,
        "slots": list(related.slots),
        "text": None if upstream is None else tie_words(related, upstream=upstream),
        **{key: value for key, value in tensor_dict(row).items() if key not in {"role", "index", "tensor", "from"}},
        "dumped": row.index >= 0,
        "after_last_step": related.ahead,
        "shape_text": shape_text(row.meta.shape) if row.meta is not None else None,
        "watched": list(related.watched),
        "hit": hit_row(related.hit) if related.hit is not None else None,
    }
    if upstream is not None:
        found["producers" if upstream else "consumers"] = [related_row(each, upstream=upstream) for each in item.beyond]
    return found
