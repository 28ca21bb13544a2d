"""Shows where the bad values of a tensor begin: the path upstream, hop by hop, and the inputs of each hop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text
from textual import on
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget

from tui_debugger.causes.table import InputState
from tui_debugger.check.types import TensorRow
from tui_debugger.diagnose.origin.path import Branch, Path, PathEnd, PathHop, questions_about, trace
from tui_debugger.diagnose.origin.search import OriginInput, OriginSpread, spread_in
from tui_debugger.diagnose.origin.text import (
    explanation,
    headline,
    initial_words,
    is_overflow,
    last_part,
    length_words,
    nearest_words,
    path_lines,
    question_words,
    spread_words,
    tensor_name,
    way_words,
    why,
)
from tui_debugger.diagnose.origin.upstream import HopLink
from tui_debugger.model import ProgressFn
from tui_debugger.text.clean import clean
from tui_debugger.text.tensors import round_text, run_text, shape_text, short_names, slot_text, stack_text, step_text
from tui_debugger.text.writer import line_text
from tui_debugger.tui import theme
from tui_debugger.tui.actions import LOOK_AGAIN, SEARCH_VIEW, view_actions
from tui_debugger.tui.cells import (
    COUNT_COLUMNS,
    EXTREME_COLUMNS,
    count_cells,
    extreme_cells,
    statistic_cells,
    statistic_columns,
)
from tui_debugger.tui.dialogs.modal import PlainLine, plain_lines
from tui_debugger.tui.export import TENSOR_HEADER, Extract, file_stem, tensor_fields
from tui_debugger.tui.views.registry import VIEW_BY_ID, ViewTarget
from tui_debugger.tui.views.view import CHECKED, SeenResults, View, ViewChanges
from tui_debugger.tui.widgets.text import Cell, ScopedName, shorten
from tui_debugger.tui.widgets.virtual_table import LazyRows, ListRows, TableColumn, VirtualTable

if TYPE_CHECKING:
    from tui_debugger.session import Session
    from tui_debugger.tui.views.view import ViewHost


_WIDE = 180
"""Cells of a terminal from which on the details stand beside the path."""
LineId = tuple[int, ...]
"""Identifies a line: hop, branch of that hop, hop of the branch's own path, and so on."""


@dataclass(frozen=True, slots=True)
class PathLine:
    """One line.

    Attributes:
        place: an odd number of parts for a hop, an even number for a branch.
        path: the path with the hop, or with the hop that the branch feeds.
        item: a hop, or a branch.
        opened: the lines below it are shown.
    """

    place: LineId
    path: Path
    item: PathHop | Branch
    opened: bool = False

    @property
    def depth(self) -> int:
        return len(self.place) - 1

    @property
    def tensor(self) -> TensorRow:
        return self.item.tensor

    @property
    def row(self) -> int:
        return self.item.row

    @property
    def hop(self) -> PathHop | None:
        return self.item if isinstance(self.item, PathHop) else None

    @property
    def inner(self) -> int:
        """The number of lines that can be opened below: other inputs of a hop, 1 for the path of a branch."""
        return len(self.item.others) if isinstance(self.item, PathHop) else 1

    @property
    def is_end(self) -> bool:
        return self.item is self.path.end


@dataclass(frozen=True)
class ExpandedLines:
    """The lines that are shown besides the path itself.

    Attributes:
        places: hops whose other inputs are shown, branches whose path is shown.
        paths: the paths of branches that were followed.
    """

    places: frozenset[LineId] = frozenset()
    paths: Mapping[LineId, Path] = field(default_factory=dict)

    def toggled(self, place: LineId) -> ExpandedLines:
        return ExpandedLines(self.places ^ {place}, self.paths)

    def followed(self, place: LineId, path: Path) -> ExpandedLines:
        return ExpandedLines(self.places | {place}, {**self.paths, place: path})


def lines_of(path: Path, opened: ExpandedLines) -> tuple[PathLine, ...]:
    """Returns all lines, from the tensor that the view was opened on upstream."""
    return tuple(_lines(path, opened, (), 0))


def _lines(path: Path, opened: ExpandedLines, above: LineId, first: int) -> Iterator[PathLine]:
    for number, hop in enumerate(path.hops[first:], first):
        place = (*above, number)
        yield PathLine(place, path, hop, place in opened.places)
        if place not in opened.places:
            continue
        for at, branch in enumerate(hop.others):
            inner = (*place, at)
            followed = opened.paths.get(inner) if inner in opened.places else None
            yield PathLine(inner, path, branch, followed is not None)
            if followed is not None:
                yield from _lines(followed, opened, inner, 1)  # hop 0 of the branch's path is the branch itself
    if path.nearest is not None:
        yield PathLine((*above, len(path.hops), 0), path, path.nearest)


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns that the run needs.

    ``graphs``: short name of each graph, empty for one graph. ``rounds``: some tensor was written several times in a
    step. ``brief``: without the columns that the details beside the path have, too.
    """

    many_ranks: bool = False
    graphs: Mapping[str, str] = field(default_factory=dict)
    rounds: bool = False
    brief: bool = False


def path_columns(shape: Shape = Shape()) -> tuple[TableColumn, ...]:
    more = shape.many_ranks + bool(shape.graphs)
    return (
        TableColumn("", 1, frozen=True),
        TableColumn("step", 4, right=True, frozen=True),
        *((TableColumn("rank", 4, right=True, frozen=True),) if shape.many_ranks else ()),
        *((TableColumn("graph", 5, right=True, frozen=True),) if shape.graphs else ()),
        TableColumn("tensor", 18, elastic=3),
        TableColumn("slot", 8 if shape.rounds else 5),
        *(() if shape.brief else COUNT_COLUMNS),
        TableColumn("feeds", 32 - 5 * more, elastic=4),
        *(() if shape.brief else (*EXTREME_COLUMNS, TableColumn("dtype", 8), TableColumn("shape", 9, elastic=1))),
    )


def path_cells(line: PathLine, shape: Shape) -> Sequence[Cell]:
    row = line.tensor
    scope, _, name = row.key.node.rpartition("/")
    text = Text("  " * line.depth, no_wrap=True)
    if line.inner:
        text.append(f"{theme.OPEN_GLYPH if line.opened else theme.CLOSED_GLYPH} ", theme.DIM)
    text.append(clean(name), theme.NORMAL if line.hop is not None else theme.DIM)
    rank = [Text(str(row.key.rank), theme.DIM)] if shape.many_ranks else []
    graph = [Text(shape.graphs.get(row.key.graph, clean(row.key.graph)), theme.DIM)] if shape.graphs else []
    meta = row.meta
    kind = [clean(meta.dtype), shape_text(meta.shape)] if meta is not None else ["", ""]
    return [
        _mark(line),
        step_text(row.key.step),
        *rank,
        *graph,
        ScopedName(text, scope, theme.DIM, words_only=True),
        Text(slot_text(row.key), theme.DIM),
        *([] if shape.brief else count_cells(row.stats)),
        _way(line),
        *([] if shape.brief else [*extreme_cells(row.stats), *kind]),
    ]


def _mark(line: PathLine) -> Text:
    if line.item.way.link is HopLink.NEAREST or (line.is_end and line.path.ends_at_origin):
        return Text(theme.ORIGIN_GLYPH, theme.FINDING)
    if line.path.ending is PathEnd.CLEAN:
        return Text(" ")
    if line.is_end:  # the path goes on, but the data do not show where
        return Text(theme.UNCERTAIN_GLYPH, theme.DOUBT)
    return Text(theme.HIT_GLYPH, theme.FINDING)


def _way(line: PathLine) -> Text:
    text = Text(no_wrap=True)
    if line.hop is None and line.item.way.link is not HopLink.NEAREST:
        text.append("also ", theme.DIM)
    elsewhere = line.item.way.link in (HopLink.SENT, HopLink.WEIGHT, HopLink.BEFORE)
    text.append(way_words(line.item), theme.WATCHED if elsewhere else theme.NORMAL)
    if isinstance(line.item, PathHop) and line.item.others and not line.opened:
        text.append(f"  +{len(line.item.others)} more bad", theme.DIM)
    return text


# -- inputs and outputs of the node ------------------------------------------------------------------


def node_columns() -> tuple[TableColumn, ...]:
    statistics = statistic_columns()
    return (
        TableColumn("", 1, frozen=True),
        TableColumn("io", 8, frozen=True),
        *statistics[:4],
        TableColumn("dtype", 8),
        TableColumn("shape", 9, elastic=1),
        TableColumn("from", 12, elastic=3),
        *statistics[4:],  # beyond the 80th column
    )


def tensors_of(hop: PathHop) -> list[tuple[TensorRow, OriginInput | None]]:
    """Returns inputs, inputs of other ranks (of a collective), outputs; with what is known about each input."""
    source = [*hop.origin.inputs, *hop.peers]
    return [*((each.row, each) for each in source), *((row, None) for row in hop.origin.outputs)]


def node_cells(row: TensorRow, source: OriginInput | None, here: int) -> Sequence[Cell]:
    """Returns one input or output; ``here`` is the rank of the node."""
    rank = f" r{row.key.rank}" if row.key.rank != here else ""
    head: list[Cell] = [
        _state(row, source),
        Text(f"{row.role}:{row.slot}{round_text(row.key.round)}{rank}", theme.STRONG),
    ]
    if row.index < 0:
        return [*head, Text(f"not dumped  {clean(row.origin_text)}", theme.DIM)]
    if row.error:
        return [*head, Text(clean(row.error), theme.DOUBT)]
    meta = row.meta
    kind = [clean(meta.dtype), shape_text(meta.shape)] if meta is not None else ["", ""]
    numbers = statistic_cells(row.stats)
    return [*head, *numbers[:4], *kind, _from(row, source), *numbers[4:]]


def _state(row: TensorRow, source: OriginInput | None) -> Text:
    bad = row.hit if source is None else source.state is InputState.BAD
    if bad:
        return Text(theme.HIT_GLYPH, theme.FINDING)
    return Text(
        theme.UNCERTAIN_GLYPH if source is not None and source.state is InputState.UNKNOWN else " ", theme.DOUBT
    )


def _from(row: TensorRow, source: OriginInput | None) -> Text:
    words = [last_part(row.origin_text)] if row.origin_text else []
    if source is not None:
        words += ["constant"] if source.constant else []
        words += [f"value of step {run_text(row.key)}"] if source.before else []
    return Text("  ".join(words), theme.DIM, no_wrap=True)


_GROUP = "Origin (o)"
_ACTIONS = (
    LOOK_AGAIN,
    SEARCH_VIEW,
    *view_actions(
        _GROUP,
        ("branches", "space", "Open, close", "Shows what else was bad; on such a line its own path."),
        ("values", "v", "Values", "The values of the tensor under the cursor."),
        ("question", "m", "More", "The same for the next thing that was found on this tensor."),
    ),
)
_HEADER = ("step", "rank", "node", "slot", *TENSOR_HEADER, "how")


@dataclass(frozen=True, slots=True)
class _PathAnswer:
    """A path, the number of its question among all, and how far its origin spread (None: unknown)."""

    path: Path
    number: int
    questions: int
    spread: OriginSpread | None = None


class OriginView(View):
    """The path as a table; below it the inputs and outputs of the node under the cursor."""

    OWN_ACTIONS = _ACTIONS
    DEFAULT_CSS = """
    OriginView {
        #answer { text-style: bold; }
        #why { color: $text-muted; max-height: 6; }
        #both { height: 1fr; }
        #path { height: auto; max-height: 55%; min-height: 4; }
        #detail { height: 1fr; }
        #hop { height: 2; text-wrap: nowrap; text-overflow: ellipsis; }
        #fed { height: auto; max-height: 60%; min-height: 4; }
        #frames { color: $text-muted; height: 2; text-wrap: nowrap; text-overflow: ellipsis; }
        &.-wide {
            #both { layout: horizontal; }
            #path { width: 2fr; height: 1fr; max-height: 100%; margin-right: 2; }
            #detail { width: 3fr; }
            #fed { max-height: 100%; }
        }
    }
    """
    heading = "Origin"
    hints = (
        *(("Enter", "go there"), ("Space", "other bad inputs"), ("Tab", "inputs"), ("v", "values")),
        *(("E", "explain"), ("?", "keys"), ("Esc", "back")),
    )

    def __init__(self, host: ViewHost, about: ViewTarget) -> None:
        super().__init__(host, about)
        self._answer: _PathAnswer | None = None
        self._opened = ExpandedLines()
        self._lines: tuple[PathLine, ...] = ()
        self._columns_for = Shape()
        self._results = SeenResults(host.session)

    def body(self) -> Iterable[Widget]:
        yield from plain_lines("answer", "why")
        detail = PlainLine(id="hop"), VirtualTable(node_columns(), id="fed"), PlainLine(id="frames")
        yield Vertical(VirtualTable(path_columns(), empty="", id="path"), Vertical(*detail, id="detail"), id="both")

    @property
    def table(self) -> VirtualTable:
        return self.query_one("#path", VirtualTable)

    @property
    def tensors(self) -> VirtualTable:
        return self.query_one("#fed", VirtualTable)

    def on_mount(self) -> None:
        self.table.focus()
        self._ask(0)

    def on_resize(self) -> None:
        self.set_class(self.size.width >= _WIDE, "-wide")
        self._show_lines()
        key = self.about.key
        where = f"{slot_text(key)}  step {step_text(key.step)}  rank {key.rank}{self.graph_words(key)}"
        name = shorten(key.node, max(self.size.width - cell_len(where) - 21, 16))
        self.set_heading(f"Origin of {name}  {where}")

    # -- looking -------------------------------------------------------------------------------------

    def _ask(self, number: int) -> None:
        self.work_anew("going upstream", partial(_find, self.session, self.about, number), self._found)

    def look_again(self) -> None:
        if self._answer is None:
            self._ask(0)
            return
        job = partial(_find_again, self.session, self.about, self._answer, self._opened)
        self.work_anew("going upstream", job, self._found_again)

    def outdated_by(self, changes: ViewChanges) -> str:
        """Counts changes upstream; for a clean tensor also new results: the run's nearest origin may change."""
        return super().outdated_by(changes) or (CHECKED if changes.results and self._results.newer else "")

    def _found(self, answer: _PathAnswer) -> None:
        self._answer, self._opened = answer, ExpandedLines()
        self._show_answer(answer.path)
        self.table.move_to(len(self._lines) - 1)

    def _found_again(self, found: tuple[_PathAnswer, ExpandedLines]) -> None:
        here = self.line
        self._answer, self._opened = found
        self._show_answer(self._answer.path)
        if here is not None:  # the path may have other lines now: keep the cursor on its tensor
            same = (line.place for line in self._lines if line.tensor.key == here.tensor.key)
            self.table.move_to_key(next(same, self._lines[-1].place))

    def _show_answer(self, path: Path) -> None:
        self._results.note(self.session.pairs() if path.ending is PathEnd.CLEAN else ())
        self._show_lines()
        self.show_line("answer", Content(headline(path)))
        self.show_line("why", Content("\n".join(map(clean, self._reasons()))))

    def _reasons(self) -> list[str]:
        """Returns why the path ends there, and further remarks."""
        answer = self._answer
        if answer is None:
            return []
        path, lines = answer.path, list[str]()
        if path.ending is PathEnd.CLEAN:
            lines += filter(None, [initial_words(self.about.hit), nearest_words(path)])
        elif path.ending is not PathEnd.NO_VALUE:
            lines += (
                []
                if path.ending in (PathEnd.NOT_DUMPED, PathEnd.RANKS)
                else why(path.end.origin, overflow=is_overflow(path)).split("\n")
            )
            lines += explanation(path)
            lines.append(length_words(path))
            if answer.spread is not None:
                where = f"; {VIEW_BY_ID['health'].key} shows the map of it" if answer.spread.tensors else ""
                lines.append(spread_words(answer.spread, path.end.tensor.key.step) + where)
        if not is_overflow(path) or answer.questions > 1:
            which = (
                f" (finding {answer.number + 1} of {answer.questions}: m shows the next)"
                if answer.questions > 1
                else ""
            )
            lines.append(f"bad here means: {question_words(path)}{which}")
        return lines

    @property
    def _shape(self) -> Shape:
        if self._answer is None:
            return Shape()
        rounds = any(line.tensor.key.round for line in self._lines)
        graphs = short_names(self._answer.path.graphs)
        return Shape(len(self.session.ranks()) > 1, graphs, rounds, brief=self.has_class("-wide"))

    # -- what is shown -------------------------------------------------------------------------------

    def _show_lines(self) -> None:
        if self._answer is None:
            return
        self._lines = lines_of(self._answer.path, self._opened)
        shape = self._shape
        if shape != self._columns_for:
            self._columns_for = shape
            self.table.set_columns(path_columns(shape))
        rows = LazyRows(self._lines, lambda line: path_cells(line, shape), lambda line: line.place)
        self.table.set_rows(rows)
        self._show_hop()

    @property
    def line(self) -> PathLine | None:
        at = self.table.cursor_row
        return self._lines[at] if at < len(self._lines) else None

    @on(VirtualTable.RowHighlighted, "#path")
    def _moved(self, event: VirtualTable.RowHighlighted) -> None:
        event.stop()
        self._show_hop()

    def _show_hop(self) -> None:
        line = self.line
        if line is None:
            return
        key, hop = line.tensor.key, line.hop
        where = f"  {slot_text(key)}  {key.graph}  rank {key.rank}"
        room = self.size.width * (3 if self.has_class("-wide") else 5) // 5
        name = shorten(key.node, max(room - cell_len(where) - 5, 16))
        self.show_line("hop", Content.assemble((name, "bold"), clean(where), "\n", way_words(line.item)))
        tensors = tensors_of(hop) if hop is not None else []
        rows = [node_cells(row, source, key.rank) for row, source in tensors]
        self.tensors.set_rows(ListRows(rows), keep=False)
        stack = stack_text(hop.origin.stack, hop.origin.stack_of, hop.origin.node) if hop is not None else ()
        more = () if hop is not None or line.item is line.path.nearest else ("Space goes upstream from here",)
        self.show_line("frames", Content("\n".join([*stack, *more])))

    # -- keys ----------------------------------------------------------------------------------------

    @property
    def target_here(self) -> ViewTarget:
        """The tensor under the cursor: a hop, or a tensor of the lower table if that has the focus."""
        line = self.line
        if line is None:
            return self.about
        if self.tensors.has_focus and line.hop is not None and self.tensors.row_count:
            row, _ = tensors_of(line.hop)[self.tensors.cursor_row]
            return self.target_of(row.key)
        if line.tensor.key == self.about.key:
            return self.about
        return ViewTarget(line.tensor.key, line.row)

    @on(VirtualTable.RowSelected)
    def _chosen(self) -> None:
        self.host.go_to(self.target_here)

    def action_question(self) -> None:
        answer = self._answer
        if answer is not None and answer.questions > 1:
            self._ask((answer.number + 1) % answer.questions)
        elif not self.working:
            self.say("nothing else was found on this tensor", note=True)

    def action_branches(self) -> None:
        """Opens or closes the lines below the cursor; follows a branch when it is first opened."""
        line = self.line
        if line is None or self._answer is None or line.item is line.path.nearest:
            return
        if isinstance(line.item, PathHop):
            if not line.item.others:
                self.say("nothing else bad went into this tensor", note=True)
                return
            self._opened = self._opened.toggled(line.place)
            self._show_lines()
        elif line.place in self._opened.paths:
            self._opened = self._opened.toggled(line.place)
            self._show_lines()
        else:
            job = partial(trace, self.session, line.tensor.key, self._answer.path.question)
            self.work("going upstream", job, partial(self._followed, line))

    def _followed(self, line: PathLine, path: Path) -> None:
        self._opened = self._opened.followed(line.place, path)
        self._show_lines()
        self.say(f"{last_part(line.tensor.key.node)}: {headline(path)}", note=True)

    # -- what it hands out ---------------------------------------------------------------------------

    def extract(self) -> Extract | None:
        answer = self._answer
        line = self.line if answer is not None else None
        if answer is None or line is None:
            return None
        stem = file_stem(self.about.key, "origin")
        text = "\n".join(map(line_text, path_lines(answer.path)))
        graph = f"{line.tensor.key.graph}/" if answer.path.graphs else ""
        one = f"{tensor_name(line.tensor)}  {graph}{line.tensor.key.node}"
        rows = [_export_row(each) for each in self._lines]
        if answer.path.graphs:
            rows = [(line.tensor.key.graph, *row) for line, row in zip(self._lines, rows, strict=True)]
        return Extract(stem, text, one, ("graph", *_HEADER) if answer.path.graphs else _HEADER, rows)


def _find(session: Session, about: ViewTarget, number: int, progress: ProgressFn) -> _PathAnswer:
    questions = questions_about(session, about.hit)
    path = trace(session, about.key, questions[number], progress)
    return _PathAnswer(path, number, len(questions), _spread(session, path))


def _spread(session: Session, path: Path) -> OriginSpread | None:
    """Returns how far the origin at the end of a path spread; None if there is none, or its step was not checked."""
    if not path.hops or not path.ends_at_origin:
        return None
    key, row = path.end.tensor.key, path.end.row
    result = session.known([(key.rank, key.step)])
    return None if result is None else spread_in(result, session.nodes(key.rank), row, key)


def _find_again(
    session: Session, about: ViewTarget, answer: _PathAnswer, opened: ExpandedLines, progress: ProgressFn
) -> tuple[_PathAnswer, ExpandedLines]:
    questions = questions_about(session, about.hit)
    path = trace(session, about.key, answer.path.question, progress)
    followed = {
        place: trace(session, old.start.tensor.key, old.question, progress) for place, old in opened.paths.items()
    }
    there = {line.place: line.tensor.key for line in lines_of(path, ExpandedLines(opened.places, followed))}
    kept = {place: each for place, each in followed.items() if there.get(place) == each.start.tensor.key}
    again = _PathAnswer(path, min(answer.number, len(questions) - 1), len(questions), _spread(session, path))
    return again, ExpandedLines(opened.places, kept)


def _export_row(line: PathLine) -> tuple[object, ...]:
    key = line.tensor.key
    place = (key.step, key.rank, key.node, slot_text(key))
    return (*place, *tensor_fields(line.tensor), way_words(line.item))
