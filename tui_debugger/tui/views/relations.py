"""Shows a tensor in the middle, its producers on the left, its consumers on the right; Enter walks there.

As three lists, or as a sketch: two hops around the tensor, or the scopes around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text
from textual import on
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from tui_debugger.check.types import TensorRow
from tui_debugger.diagnose.relations import (
    Neighbourhood,
    Related,
    RelationKind,
    Relations,
    consumers,
    mark_of,
    neighbourhood,
    producers,
    relations,
    tie_words,
    watch_words,
)
from tui_debugger.model import ProgressFn, Side, TensorKey
from tui_debugger.text.clean import clean
from tui_debugger.text.hits import hit_text, said_words
from tui_debugger.text.phrases import tail
from tui_debugger.text.tensors import run_text, short_names, slot_text, stack_text, step_text, tensor_line
from tui_debugger.tui import theme
from tui_debugger.tui.actions import LOOK_AGAIN, SEARCH_VIEW, view_actions
from tui_debugger.tui.cells import count_cells
from tui_debugger.tui.dialogs.modal import plain_lines
from tui_debugger.tui.export import TENSOR_HEADER, Extract, file_stem, tensor_fields
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.views.relations_scopes import OpenScopes
from tui_debugger.tui.views.relations_sketch import ACTIONS as SKETCH_ACTIONS
from tui_debugger.tui.views.relations_sketch import GraphSketch, tensor_picture
from tui_debugger.tui.views.view import CHECKED, RUN_CHANGED, SeenResults, View, ViewChanges
from tui_debugger.tui.widgets.text import Cell, ScopedName, shorten
from tui_debugger.tui.widgets.virtual_table import LazyRows, TableColumn, VirtualTable

if TYPE_CHECKING:
    from tui_debugger.check.types import Pair
    from tui_debugger.graph.table import NodeTable
    from tui_debugger.session import Session
    from tui_debugger.tui.views.view import ViewHost


ItemId = tuple[int, ...]
"""Index in the side's list, then index in the list opened below that item, and so on."""


@dataclass(frozen=True, slots=True)
class RelationLine:
    """A tensor related to the item above it, or to the middle; ``opened``: its own relations stand below."""

    place: ItemId
    related: Related
    opened: bool = False

    @property
    def depth(self) -> int:
        return len(self.place) - 1


@dataclass(frozen=True)
class OpenedSide:
    """Producers or consumers.

    Attributes:
        first: tensors one hop away.
        inner: further tensors, by the item that they were opened at; kept after the item is closed.
        opened: the open items.
    """

    first: Sequence[Related] = ()
    inner: Mapping[ItemId, Sequence[Related]] = field(default_factory=dict)
    opened: frozenset[ItemId] = frozenset()

    def with_inner(self, place: ItemId, related: Sequence[Related]) -> OpenedSide:
        """Returns the side with an item opened, and the tensors one hop beyond it."""
        return OpenedSide(self.first, {**self.inner, place: related}, self.opened | {place})

    def toggled(self, place: ItemId) -> OpenedSide:
        return OpenedSide(self.first, self.inner, self.opened ^ {place})

    def anew(self, first: Sequence[Related], find: Callable[[Related], Sequence[Related]]) -> OpenedSide:
        """Returns the side with new contents and the same items open; items without relations (``find``) are closed."""
        side = OpenedSide(first)
        for place in sorted(self.inner, key=len):
            at = {item.place: item for item in replace(side, opened=frozenset(side.inner)).items()}.get(place)
            found = find(at.related) if at is not None else ()
            if found:
                side = side.with_inner(place, found)
        return replace(side, opened=side.opened & self.opened)

    def items(self) -> tuple[RelationLine, ...]:
        return tuple(self._items(self.first, ()))

    def _items(self, related: Sequence[Related], above: ItemId) -> Iterator[RelationLine]:
        for number, each in enumerate(related):
            place = (*above, number)
            opened = place in self.opened
            yield RelationLine(place, each, opened)
            if opened:
                yield from self._items(self.inner.get(place, ()), place)


@dataclass(frozen=True, slots=True)
class Trail:
    """The tensors (key, node row) that were in the middle, in the order of visits; never empty."""

    visited: tuple[tuple[TensorKey, int], ...]
    at: int = 0

    @property
    def here(self) -> tuple[TensorKey, int]:
        return self.visited[self.at]

    def walked(self, key: TensorKey, row: int) -> Trail:
        """Returns the trail with one more tensor; tensors ahead of the current one are dropped."""
        if key == self.here[0]:
            return self
        return Trail((*self.visited[: self.at + 1], (key, row)), self.at + 1)

    def moved(self, by: int) -> Trail:
        return Trail(self.visited, max(0, min(self.at + by, len(self.visited) - 1)))


def columns(title: str, *, rounds: bool = False) -> tuple[TableColumn, ...]:
    return (
        TableColumn("", 1, frozen=True),
        TableColumn(title, 12, elastic=5, frozen=True),
        TableColumn("at", 8 if rounds else 5),
        TableColumn("NaN", 4, right=True),
        TableColumn("Inf", 4, right=True),
        TableColumn("watched", 7, elastic=2),
    )


def cells(item: RelationLine, row: TensorRow, *, middle: TensorKey, graphs: Mapping[str, str]) -> Sequence[Cell]:
    """Returns one line; a step, round or graph is named where it differs from those of ``middle``.

    ``row``: the tensor, measured or not yet. ``graphs``: short name of each graph; empty for one graph.
    """
    related, key = item.related, item.related.key
    scope, _, name = key.node.rpartition("/")
    text = Text("  " * item.depth, no_wrap=True)
    text.append(f"{theme.OPEN_GLYPH} " if item.opened else "", theme.DIM)
    elsewhere = key.step != middle.step or (key.round and middle.round and key.round != middle.round)
    if elsewhere:
        text.append(f"@{'next' if related.ahead else run_text(key)} ", theme.WATCHED)
    if key.graph != middle.graph:
        text.append(f"graph {graphs.get(key.graph, clean(key.graph))} ", theme.WATCHED)
    text.append(clean(name), theme.DIM if row.index < 0 else theme.NORMAL)
    if row.origin_text:  # the value of a constant
        text.append(f" = {clean(row.origin_text)}", theme.DIM)
    at = f"in:{related.slots[0]}" if related.slots else slot_text(key)
    more = "+" if len(related.slots) > 1 else ""
    return [
        _mark(related, row),
        ScopedName(text, scope, theme.DIM),
        Text(at + more, theme.DIM),
        *_counts(row),
        _watched(related),
    ]


def _mark(related: Related, row: TensorRow) -> Text:
    mark = mark_of(related, row)
    return Text(mark or " ", theme.DOUBT if mark == theme.UNCERTAIN_GLYPH else theme.FINDING)


def _counts(row: TensorRow) -> list[Cell]:
    waiting = row.index >= 0 and not row.error and row.meta is None
    return count_cells(row.stats, "…" if waiting else theme.NONE)


def _watched(related: Related) -> Text:
    text = Text(no_wrap=True)
    for word in watch_words(related).split():
        text.append(" " if text.plain else "")
        text.append(word, theme.FINDING if word.startswith(theme.HIT_GLYPH) else theme.DIM)
    return text


def where_words(related: Related) -> str:
    """Returns the text after a node's name: ``  out:0  step 3  rank 0``."""
    key = related.key
    step = "no step yet" if related.ahead else f"step {step_text(key.step)}"
    return f"  {slot_text(key)}  {step}  rank {key.rank}"


def detail(related: Related, row: TensorRow, head: tuple[str, str], *, upstream: bool, maker: str) -> Content:
    """Returns four lines about a tensor: name, relation, values, hits.

    ``head``: the node's shortened name, and its place. ``upstream``: the tensor is a producer. ``maker``: the node that
    made the tensor in the middle.
    """
    (name, where), key = head, related.key
    kind = f"{clean(related.type)}  " if related.type else ""
    lines: list[Content | str | tuple[str, str]] = [(name, "bold"), where, "\n", kind]
    tie = tie_words(related, upstream=upstream)
    if related.tie is RelationKind.SELF:
        tie += _made(key.side, clean(tail(maker)))
    values = "no later step was dumped" if related.ahead else _values(row)
    lines += [tie, "\n", values, "\n", _found(related)]
    return Content.assemble(*lines)


def _made(side: Side, maker: str) -> str:
    if side is Side.INPUT:
        return f", taken from {maker}" if maker else ", taken from a node that no graph names"
    return f", made by {maker}" if maker else ", made by nothing in the run"


def _values(row: TensorRow) -> str:
    if row.error:
        return clean(row.error)
    if row.index < 0:
        value = f": {clean(row.origin_text)}" if row.origin_text else ""
        return f"not dumped at step {step_text(row.key.step)}{value}"
    if row.stats is None and row.meta is None:
        return "not measured yet"
    said = tensor_line(row.meta, row.stats)
    constant = f"  constant {clean(row.origin_text)}" if row.origin_text else ""
    seen = f"  (seen at in:{row.key.slot})" if row.key.side is Side.INPUT and row.role == "in" else ""
    return said + constant + seen + ("  recorded, no values" if row.recorded else "")


def _found(related: Related) -> str:
    if related.hit is not None:
        said = [word if word.endswith("?") else f"{theme.HIT_GLYPH}{word}" for word in said_words(related.hit).split()]
        return clean(f"{' '.join(said)}: {hit_text(related.hit)}" if said else hit_text(related.hit))
    watched = watch_words(related)
    if not watched:
        return "no watchpoint covers it"
    if related.tensor.index < 0:
        return f"watched by {watched}: not dumped"
    return f"watched by {watched}: {'nothing found' if related.checked else 'not checked'}"


class RelatedList(VirtualTable):
    """Producers, the tensor itself, or consumers."""

    @dataclass
    class Left(Message):
        """Go to the list on the left (``by`` -1) or on the right (1)."""

        by: int

    def __init__(self, title: str, empty: str, id: str) -> None:  # noqa: A002 - Textual's own name
        super().__init__(columns(title), empty=empty, id=id)

    def set_title(self, title: str, *, rounds: bool) -> None:
        """Replaces the heading; ``rounds`` widens the column of slots for rounds."""
        self.set_columns(columns(title, rounds=rounds))

    def action_pan_left(self) -> None:
        self.post_message(self.Left(-1))

    def action_pan_right(self) -> None:
        self.post_message(self.Left(1))


Around = tuple[Relations, Mapping[str, OpenedSide], Neighbourhood | None, OpenScopes | None]
"""The tensors around a tensor, the opened sides by list, the tensors and the scopes of the sketch (None: no sketch)."""


def look_around(
    session: Session, key: TensorKey, progress: ProgressFn, *, sketch: bool, scopes: Callable[[], OpenScopes] | None
) -> Around:
    """Returns the tensors around a tensor, with nothing opened."""
    around = neighbourhood(session, key, progress=progress) if sketch else None
    return relations(session, key, progress), _NOTHING_OPENED, around, scopes() if scopes else None


def look_again(
    session: Session,
    key: TensorKey,
    sides: Mapping[str, OpenedSide],
    progress: ProgressFn,
    *,
    sketch: bool,
    scopes: OpenScopes | None,
) -> Around:
    """Returns the tensors around a tensor again, with the same items opened."""
    found = relations(session, key, progress)
    looks = (("producers", producers, found.producers), ("consumers", consumers, found.consumers))
    anew = {name: sides[name].anew(first, partial(_keys_of, find, session, progress)) for name, find, first in looks}
    around = neighbourhood(session, key, progress=progress) if sketch else None
    return found, anew, around, scopes.anew() if scopes else None


def _keys_of(
    find: Callable[[Session, TensorKey, ProgressFn], Sequence[Related]],
    session: Session,
    progress: ProgressFn,
    related: Related,
) -> Sequence[Related]:
    return find(session, related.key, progress)


def with_rows(found: Relations, row: Callable[[Related], TensorRow]) -> Relations:
    """Returns the relations with the rows that ``row`` returns (measured ones)."""

    def known(related: Sequence[Related]) -> tuple[Related, ...]:
        return tuple(replace(each, tensor=row(each)) for each in related)

    (centre,) = known((found.centre,))
    return replace(
        found,
        centre=centre,
        siblings=known(found.siblings),
        producers=known(found.producers),
        consumers=known(found.consumers),
    )


NARROW = 150
"""Width below which the lists stand one above the other."""
_FRAMES = 5
_LISTS = ("producers", "centre", "consumers")
_GROUP = "Relations (L)"
_ACTIONS = (
    LOOK_AGAIN,
    SEARCH_VIEW,
    *view_actions(
        _GROUP,
        ("walk_back", "[", "Step back", "The tensor that was in the middle before."),
        ("walk_forward", "]", "Step forward", "Forward again."),
        ("sketch", "t", "Other form", "Boxes and lines around the tensor and around its scopes, or the lists."),
        ("expand", "space", "Open, close", "Opens or closes what lies one hop beyond the cursor."),
        ("values", "v", "Values", "The values of the tensor under the cursor."),
        ("main", "", "Show in the panes", "Goes to the tensor under the cursor on the main screen."),
    ),
)
_NOTHING_OPENED: Mapping[str, OpenedSide] = {name: OpenedSide() for name in _LISTS}
_HEADER = (
    "side",
    "hop",
    "step",
    "node",
    "slot",
    "type",
    "how",
    "watchpoints",
    *TENSOR_HEADER,
)


Hints = tuple[tuple[str, str], ...]
_HINTS_OF_BOTH: Hints = (("v", "values"), ("?", "keys"), ("Esc", "back"))
_LIST_HINTS: Hints = (
    *(("← →", "lists"), ("Enter", "walk there"), ("[ ]", "back, forward"), ("t", "sketch"), ("Space", "one hop more")),
    *_HINTS_OF_BOTH,
)
_SKETCH_HINTS: Hints = (
    ("←↓↑→", "boxes"),
    ("Enter", "walk there"),
    ("-", "its scope"),
    ("[ ]", "back, forward"),
    ("t", "lists"),
    *_HINTS_OF_BOTH,
)
_SCOPE_HINTS: Hints = (
    *(("←↓↑→", "boxes"), ("Enter", "open, to the node"), ("-", "close"), ("[", "to the tensor"), ("s", "lists")),
    *_HINTS_OF_BOTH,
)


class RelationsView(View):
    """Three lists with a cursor each, or a sketch; the tensor under the cursor is described below."""

    OWN_ACTIONS = (*_ACTIONS, *SKETCH_ACTIONS)
    AUTO_FOCUS = "#centre"
    DEFAULT_CSS = """
    RelationsView {
        #lists { layout: horizontal; height: 1fr; }
        RelatedList { width: 1fr; height: 1fr; padding-right: 1; }
        #centre { width: 0.8fr; }
        #centre, #consumers { border-left: solid $border; }
        &.-sketch #lists { display: none; }
        &.-sketch #sketch { display: block; }
        &.-stacked #lists { layout: vertical; }
        &.-stacked RelatedList { width: 1fr; padding-right: 0; }
        &.-stacked #centre { width: 1fr; height: 3; }
        &.-stacked #centre, &.-stacked #consumers { border-left: none; }
        &.-stacked #source { height: 1; }
        #detail { height: 4; text-wrap: nowrap; text-overflow: ellipsis; }
        #source { color: $text-muted; height: 5; text-wrap: nowrap; text-overflow: ellipsis; }
        #message.-empty { display: block; height: 1; }
    }
    """
    heading = "Relations"
    hints: Hints = _LIST_HINTS

    def __init__(self, host: ViewHost, about: ViewTarget) -> None:
        super().__init__(host, about)
        self._trail = Trail(((about.key, about.row),))
        self._shown: Relations | None = None
        self._sides: dict[str, OpenedSide] = {name: OpenedSide() for name in _LISTS}
        self._items: dict[str, tuple[RelationLine, ...]] = dict.fromkeys(_LISTS, ())
        self._measured: dict[TensorKey, TensorRow] = {}
        self._results = SeenResults(host.session)
        self._sketching = bool(about.scope)
        self._around: Neighbourhood | None = None
        self._scopes: OpenScopes | None = None

    def body(self) -> Iterable[Widget]:
        with Container(id="lists"):
            yield RelatedList("made from", "", id="producers")
            yield RelatedList("tensor", "", id="centre")
            yield RelatedList("used by", "", id="consumers")
        yield GraphSketch()
        yield from plain_lines("detail", "source")

    def on_mount(self) -> None:
        self.set_class(self._sketching, "-sketch")
        self._focus()
        about = self.about
        first = partial(OpenScopes.at, self.session, about.key, about.row, about.scope) if about.scope else None
        self._walk_to(self._trail, first)

    def on_resize(self) -> None:
        self.set_class(self.size.width < NARROW, "-stacked")
        self._describe()

    def table(self, name: str) -> RelatedList:
        return self.query_one(f"#{name}", RelatedList)

    @property
    def sketch(self) -> GraphSketch:
        return self.query_one(GraphSketch)

    @property
    def side(self) -> str:
        """The list that has the focus; in the sketch, the list that would contain the tensor under the cursor."""
        if self._sketching:
            hop = self._around.hops[self._box] if self._around is not None and self._box >= 0 else 0
            return _LISTS[1 + (hop > 0) - (hop < 0)]
        return next((name for name in _LISTS if self.table(name).has_focus), "centre")

    @property
    def item(self) -> RelationLine | None:
        """The item under the cursor of that list; None in the sketch."""
        if self._sketching:
            return None
        items, at = self._items[self.side], self.table(self.side).cursor_row
        return items[at] if at < len(items) else None

    @property
    def related(self) -> Related | None:
        if self._sketching:
            return self._around.tensors[self._box] if self._around is not None and self._box >= 0 else None
        return self.item.related if self.item is not None else None

    @property
    def _box(self) -> int:
        """The number of the tensor under the cursor of the sketch, -1 among scopes."""
        keys = [each.key for each in self._around.tensors] if self._around is not None and self._scopes is None else []
        return keys.index(self.sketch.key) if self.sketch.key in keys else -1

    def _focus(self) -> None:
        (self.sketch if self._sketching else self.table("centre")).focus()

    def action_sketch(self) -> None:
        self._sketching = not self._sketching
        self.set_class(self._sketching, "-sketch")
        self._focus()
        self._leave_scopes()
        self._show_tensors()

    def _show_tensors(self) -> None:
        if self._sketching:
            job = partial(neighbourhood, self.session, self._trail.here[0])
            self.work("looking around", lambda progress: job(progress=progress), self._draw_anew)
        self._show_hints()
        self._describe()

    def _draw_anew(self, around: Neighbourhood) -> None:
        self._around = around
        self._draw_tensors(keep=False)
        self._results.note(self._pairs())
        self._measure()

    def _draw_tensors(self, *, keep: bool) -> None:
        if self._around is not None and self._scopes is None:
            self.sketch.show(tensor_picture(self._around, self._row), self.sketch.key if keep else None)
        self._show_hints()

    def _show_hints(self) -> None:
        hints = _LIST_HINTS if not self._sketching else _SKETCH_HINTS if self._scopes is None else _SCOPE_HINTS
        if hints != self.hints:
            self.hints = hints
            self.set_hints(hints)

    # -- scopes --------------------------------------------------------------------------------------

    @property
    def _entry(self) -> int:
        """The box under the cursor, among scopes."""
        key = self.sketch.key
        return key if isinstance(key, int) else 0

    @on(GraphSketch.Closed)
    def _close_scope(self) -> None:
        if self._scopes is None:
            related = self.related
            row = related.row if related is not None else self._trail.here[1]
            if row < 0:
                self.say("no graph has this node: there is no scope around it", note=True)
                return
            key = self._trail.here[0]
            self.work("looking around", lambda _: OpenScopes.at(self.session, key, row), self._enter_scopes)
        elif self._scopes.close(self._entry):
            self._draw_scopes()
        else:
            self.say("there is no scope around it", note=True)

    def _enter_scopes(self, scopes: OpenScopes) -> None:
        self._scopes = scopes
        self._draw_scopes()

    def _draw_scopes(self, entry: int | None = None) -> None:
        """Draws the scopes around the middle; the cursor goes there, or to ``entry``."""
        if self._scopes is not None:
            self.sketch.show(self._scopes.picture(2 if self.size.width < NARROW else 3), entry)
            self._show_hints()
            self._describe()

    @on(GraphSketch.Left)
    def _recentre(self, event: GraphSketch.Left) -> None:
        """Puts the box at the edge into the middle, and goes on from there."""
        if self._scopes is not None and self._scopes.middle != self._entry:
            self._scopes.centre(self._entry)
            self._draw_scopes()
            self.sketch.action_move(event.layers, 0)

    def _choose_scope(self, scopes: OpenScopes) -> None:
        if not scopes.tree.is_scope(self._entry):
            target = scopes.target(self._entry)
            self._walk_to(self._trail.walked(target.key, target.row))
        elif scopes.open(self._entry):
            self._draw_scopes()
        else:
            self.say("no operator in it: parameters and constants stand in the lists", note=True)

    def _leave_scopes(self) -> bool:
        """Returns whether scopes were shown."""
        was, self._scopes = self._scopes is not None, None
        if was and self._shown is not None:
            self._show_heading(self._shown)
        return was

    def action_search(self) -> None:
        if self._sketching:
            self.say("the lists can be searched: t shows them", note=True)
        else:
            super().action_search()

    # -- walking -------------------------------------------------------------------------------------

    def _walk_to(self, trail: Trail, scopes: Callable[[], OpenScopes] | None = None) -> None:
        key, _ = trail.here
        if self.outdated:
            self._measured.clear()
        job = partial(look_around, self.session, key, sketch=self._sketching, scopes=scopes)
        self.work_anew("looking around", job, partial(self._arrived, trail))

    def _arrived(self, trail: Trail, found: Around) -> None:
        self._trail = trail
        self._take(*found, keep=False)
        for name in _LISTS:
            self._show(name, keep=False)
        self._results.note(self._pairs())
        self._focus()
        self._describe()
        self._measure()

    def look_again(self) -> None:
        """Reads the relations of the same tensor again; open items and the cursor stay, as far as they exist."""
        sides, key, scopes = dict(self._sides), self._trail.here[0], self._scopes
        job = partial(look_again, self.session, key, sides, sketch=self._sketching, scopes=scopes)
        self.work_anew("looking around", job, self._arrived_again)

    def _arrived_again(self, found: Around) -> None:
        self._measured.clear()
        self._take(*found)
        for name in _LISTS:
            self._show(name)
        self._results.note(self._pairs())
        self._describe()
        self._measure()

    def outdated_by(self, changes: ViewChanges) -> str:
        """Counts changes at shown steps, new check results, and a later step if a parameter waits for its reader."""
        rank, steps = self._trail.here[0].rank, {step for _, step in self._pairs()}
        around = self._around.tensors if self._around is not None else ()
        waits = any(each.ahead for each in (*(item.related for item in self._items["consumers"]), *around))
        later = waits and any(step > self._trail.here[0].step for step in changes.steps_of(rank))
        if later or rank in changes.ranks or any(of == rank and step in steps for of, step in changes.rewritten):
            return RUN_CHANGED
        return CHECKED if changes.results and self._results.newer else ""

    def _pairs(self) -> set[Pair]:
        """Returns the pairs of all shown tensors, including those that were not dumped."""
        rank = self._trail.here[0].rank
        around = self._around.tensors if self._around is not None else ()
        listed = (item.related for items in self._items.values() for item in items)
        return {(rank, each.key.step) for each in (*listed, *around)}

    def _take(
        self,
        found: Relations,
        inner: Mapping[str, OpenedSide],
        around: Neighbourhood | None,
        scopes: OpenScopes | None,
        *,
        keep: bool = True,
    ) -> None:
        """Shows new contents; ``inner`` has the opened sides by list."""
        self._shown, self._scopes = found, scopes
        if around is not None:
            self._around = around
            self._draw_tensors(keep=keep)
        self._draw_scopes()
        self._sides = {
            "producers": replace(inner["producers"], first=found.producers),
            "centre": OpenedSide((found.centre, *found.siblings)),
            "consumers": replace(inner["consumers"], first=found.consumers),
        }
        if self._scopes is None:
            self._show_heading(found)
        titles = {"producers": f"made from {len(found.producers):,}", "centre": "tensor"}
        titles["consumers"] = f"used by {len(found.consumers):,}"
        for side, title in titles.items():
            first = self._sides[side].first
            rounds = any(bool(each.key.round) for each in first if not each.slots)
            self.table(side).set_title(title, rounds=rounds)
        for side in ("producers", "consumers"):
            self.table(side).set_empty(found.nothing_words(upstream=side == "producers"))

    def _show_heading(self, found: Relations) -> None:
        trail, key = self._trail, found.centre.key
        number = f"  {trail.at + 1} of {len(trail.visited)} visited" if len(trail.visited) > 1 else ""
        where = f"{slot_text(key)}  step {step_text(key.step)}  rank {key.rank}{self.graph_words(key)}{number}"
        name = shorten(key.node, max(self.size.width - len(where) - 22, 16))
        self.set_heading(f"Relations of {name}  {where}")

    def action_walk_back(self) -> None:
        self._move(-1, "nothing was visited before")

    def action_walk_forward(self) -> None:
        self._move(1, "this is the last one visited")

    def _move(self, by: int, at_end: str) -> None:
        moved = self._trail.moved(by)
        if self._leave_scopes():
            self._show_tensors()
        elif moved.at == self._trail.at:
            self.say(at_end, note=True)
        else:
            self._walk_to(moved)

    @on(VirtualTable.RowSelected)
    @on(GraphSketch.Chosen)
    def _chosen(self) -> None:
        related = self.related
        if self._scopes is not None:
            self._choose_scope(self._scopes)
        elif related is not None and related.ahead:
            self.say("no later step was dumped: there is nothing to go to", note=True)
        elif related is None or related.key == self._trail.here[0] or (self._sketching and self.side == "centre"):
            self.host.open("values", self.target_here)
        else:
            self._walk_to(self._trail.walked(related.key, related.row))

    @on(RelatedList.Left)
    def _change_list(self, event: RelatedList.Left) -> None:
        at = _LISTS.index(self.side) + event.by
        if 0 <= at < len(_LISTS) and self._items[_LISTS[at]]:
            self.table(_LISTS[at]).focus()

    def on_descendant_focus(self) -> None:
        self._describe()

    def action_expand(self) -> None:
        item, name = self.item, self.side
        if self._sketching:
            self.say("the sketch shows two hops: Enter walks on, - shows the scopes, t the lists", note=True)
        elif item is None or name == "centre":
            self.say("one hop more: put the cursor on a producer or a consumer", note=True)
        elif item.place in self._sides[name].inner:
            self._open(name, self._sides[name].toggled(item.place))
        else:
            find: Callable[[Session, TensorKey, ProgressFn], tuple[Related, ...]]
            find = producers if name == "producers" else consumers
            job = partial(find, self.session, item.related.key)
            self.work("looking around", job, partial(self._expanded, name, item))

    def _expanded(self, name: str, item: RelationLine, found: Sequence[Related]) -> None:
        if not found:
            if self._shown is not None:
                self.say(self._shown.nothing_words(upstream=name == "producers"), note=True)
            return
        self._open(name, self._sides[name].with_inner(item.place, found))

    def _open(self, name: str, side: OpenedSide) -> None:
        self._sides[name] = side
        self._show(name)
        self._describe()
        self._measure()

    # -- what is shown -------------------------------------------------------------------------------

    def _show(self, name: str, *, keep: bool = True) -> None:
        items = self._items[name] = self._sides[name].items()
        middle = self._shown.centre.key if self._shown is not None else self._trail.here[0]
        graphs = short_names(self._shown.graphs) if self._shown is not None else {}

        def drawn(item: RelationLine) -> Sequence[Cell]:
            return cells(item, self._row(item.related), middle=middle, graphs=graphs)

        self.table(name).set_rows(LazyRows(items, drawn, lambda item: item.place), keep=keep)

    def _row(self, related: Related) -> TensorRow:
        return self._measured.get(related.tensor.key, related.tensor)

    @on(VirtualTable.RowHighlighted)
    @on(GraphSketch.Moved)
    def _moved(self, event: VirtualTable.RowHighlighted | GraphSketch.Moved) -> None:
        event.stop()
        self._describe()
        self._measure()

    def _describe(self) -> None:
        related = self.related
        if self._scopes is not None:
            self._describe_scope(self._scopes)
        if related is None or self._shown is None:
            return
        row = self._row(related)
        where = where_words(related) + self.graph_words(related.key)
        name = shorten(related.key.node, max(self.size.width - cell_len(where) - 4, 16))
        text = detail(related, row, (name, where), upstream=self.side == "producers", maker=self._shown.maker)
        self.show_line("detail", text)
        self.show_line("source", Content("\n".join(self._source(related))))

    def _describe_scope(self, scopes: OpenScopes) -> None:
        entry = self._entry
        flow, hits, where = scopes.words(entry)
        name = shorten(scopes.tree.path(entry), max(self.size.width - cell_len(where) - 4, 16))
        self.set_heading(f"Scopes around {shorten(scopes.tree.path(scopes.middle), max(self.size.width - 24, 16))}")
        self.show_line("detail", Content.assemble((name, "bold"), where, "\n", flow, "\n", hits))
        row = int(scopes.tree.row[entry])
        self.show_line("source", Content("\n".join(self._stack(scopes.nodes, row))))

    def _source(self, related: Related) -> Sequence[str]:
        if self._shown is not None and self.side == "centre":
            return stack_text(self._shown.stack, lines=_FRAMES)
        return self._stack(self.session.nodes(related.key.rank), related.row)

    def _stack(self, nodes: NodeTable, row: int) -> Sequence[str]:
        return stack_text(nodes.stack(row), lines=_FRAMES) if 0 <= row < len(nodes) else ()

    # -- statistics of what is in sight --------------------------------------------------------------

    def _in_sight(self) -> list[TensorRow]:
        """Returns the visible tensors that were not measured yet."""
        sketched = self._around.tensors if self._sketching and self._around is not None else ()
        keys = self.sketch.in_sight
        seen = [each for each in sketched if each.key in keys]
        for name in () if self._sketching else _LISTS:
            table = self.table(name)
            seen += [item.related for item in self._items[name][table.top : table.top + table.page]]
        rows = {related.tensor.key: related.tensor for related in seen if related.tensor.index >= 0}
        return [row for key, row in rows.items() if key not in self._measured]

    def _measure(self) -> None:
        if self.working:
            return
        rows = self._in_sight()
        if rows:
            self.work("statistics", partial(self.session.measure, rows), self._take_statistics)

    def _take_statistics(self, rows: tuple[TensorRow, ...]) -> None:
        self._measured.update((row.key, row) for row in rows)
        for name in _LISTS:
            self._show(name)
        self._draw_tensors(keep=True)
        self._describe()
        self._measure()  # tensors that became visible meanwhile

    # -- other keys ----------------------------------------------------------------------------------

    @property
    def target_here(self) -> ViewTarget:
        related = self.related
        if self._scopes is not None:
            return self._scopes.target(self._entry)
        if related is None:
            key, row = self._trail.here
            return self.about if key == self.about.key else ViewTarget(key, row)
        key = related.tensor.key
        if key == self.about.key:
            return self.about
        row = related.row if key == related.key else self.session.nodes(key.rank).find(key.node, key.graph)
        return ViewTarget(key, row, related.hit)

    def action_main(self) -> None:
        self.host.go_to(self.target_here)

    # -- what it hands out ---------------------------------------------------------------------------

    def extract(self) -> Extract | None:
        found = self._shown
        if found is None:
            return None
        from tui_debugger.diagnose.relations import relations_lines

        stem = file_stem(found.centre.key, "relations")
        known = with_rows(found, self._row)
        one = self.related.key.node if self.related is not None else ""
        one = self._scopes.tree.path(self._entry) if self._scopes is not None else one
        text = "\n".join([*relations_lines(known), *(["", self.sketch.text] if self._sketching else [])])
        rows = [self._export(name, each) for name in _LISTS for each in self._items[name]]
        return Extract(stem, text, one, _HEADER, rows)

    def _export(self, name: str, item: RelationLine) -> tuple[object, ...]:
        related, row = item.related, self._row(item.related)
        key = related.key
        how = tie_words(related, upstream=name == "producers")
        place = (name, item.depth + (name != "centre"), key.step, key.node, slot_text(key))
        return (*place, related.type, how, watch_words(related), *tensor_fields(row))
