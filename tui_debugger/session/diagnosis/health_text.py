"""A health map as text: its columns, its lines, its rows, and what one cell says. For the screen and the command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int64
from tui_debugger.session.diagnosis.health import Cell, HealthMap
from tui_debugger.stats.health import Codes, Health, even_bounds, worst_of_groups
from tui_debugger.text.clean import clean
from tui_debugger.text.health import GLYPHS, WORDS, column_width, header, span_text
from tui_debugger.text.hits import hit_text, said_words, watch_line
from tui_debugger.text.numbers import plural
from tui_debugger.text.tensors import place_text, slot_text, step_text


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The steps of a map, laid out in columns.

    Attributes:
        steps: the steps.
        bounds: column i has steps[bounds[i]:bounds[i + 1]].
        labels: what may stand above each.
        width: cells of each.
    """

    steps: Sequence[int]
    bounds: Int64
    labels: tuple[str, ...]
    width: int

    @classmethod
    def laid_out(cls, steps: Sequence[int], room: int, *, fit: bool) -> Columns:
        """Columns for so much room; without ``fit`` there may be more of them than fit."""
        bounds = even_bounds(len(steps), room if fit else len(steps))
        groups = [steps[first:stop] for first, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
        groups = [group for group in groups if group]
        spans = [span_text(group) for group in groups]
        # A span is long; where not every column has room for one, its first step says enough.
        labels = spans if column_width(spans, room) > 2 else [step_text(group[0]) for group in groups]
        return cls(steps, bounds, tuple(labels), column_width(labels, room))

    def __len__(self) -> int:
        """Number of columns."""
        return len(self.labels)

    def of(self, column: int) -> Sequence[int]:
        """The steps of a column."""
        return self.steps[int(self.bounds[column]) : int(self.bounds[column + 1])]

    def at(self, step: int) -> int:
        """The column of a step, or of the nearest one after it."""
        place = self._place(step)
        return max(int(np.searchsorted(self.bounds, place, side="right")) - 1, 0)

    def _place(self, step: int) -> int:
        """The place of a step among the steps, which need not be ascending."""
        steps = np.asarray(self.steps)
        later = np.flatnonzero(steps >= step)
        return int(later[np.argmin(steps[later])]) if len(later) else max(len(steps) - 1, 0)

    @property
    def most(self) -> int:
        """Steps in the fullest column."""
        return int(np.diff(self.bounds).max(initial=0))

    def cells(self, map_: HealthMap, entries: Int64, ranks: Sequence[int], first: int, stop: int) -> Codes:
        """[entry, column] of some of the columns."""
        low, high = int(self.bounds[first]), int(self.bounds[stop])
        if high <= low:
            return np.zeros((len(entries), 0), np.uint8)
        cells = map_.cells(entries, self.steps[low:high], ranks)
        return worst_of_groups(cells, self.bounds[first : stop + 1] - low)


def map_lines(
    map_: HealthMap, entries: Int64, ranks: Sequence[int], room: int, *, fit: bool = True, flat: bool = False
) -> list[str]:
    """The map as lines, cells first: what follows them, the name, is never cut."""
    columns = Columns.laid_out(map_.steps, room, fit=fit)
    if not len(columns) or not len(entries):
        return []
    across = columns.width * len(columns)
    note = f" (up to {columns.most:,} in a column, the worst stands)" if columns.most > 1 else ""
    lines = [f"{header(columns.labels, columns.width, across).ljust(across)}  step{note}"]
    for entry, row in zip(entries.tolist(), columns.cells(map_, entries, ranks, 0, len(columns)), strict=True):
        line = "".join(GLYPHS[Health(code)].ljust(columns.width) for code in row.tolist())
        lines.append(
            f"{line}  {'' if flat else '  ' * int(map_.tree.depth[entry])}{entry_name(map_, entry, flat=flat)}"
        )
    return lines


def map_rows(map_: HealthMap, entries: Int64, ranks: Sequence[int]) -> list[tuple[str, bool, list[str]]]:
    """(path, whether it is a scope, health by step in words) of each entry, for JSON and CSV."""
    cells = map_.cells(entries, map_.steps, ranks)
    return [
        (map_.tree.path(entry), map_.tree.is_scope(entry), [Health(cell).name.lower() for cell in row.tolist()])
        for entry, row in zip(entries.tolist(), cells, strict=True)
    ]


def entry_name(map_: HealthMap, entry: int, *, flat: bool = False) -> str:
    """What a row is called: the last part of its path, with a slash for a scope; in a flat list the whole id.

    Of several graphs that has its own before it.
    """
    if flat:
        row = int(map_.tree.row[entry])
        graph = f"{map_.nodes.graph_of(row).name}/" if len(map_.nodes.graphs) > 1 else ""
        return clean(f"{graph}{map_.nodes.names[row]}")
    return clean(map_.tree.label[entry]) + ("/" if map_.tree.is_scope(entry) else "")


def looked_for(map_: HealthMap) -> list[str]:
    """What judged, a line each."""
    if map_.by_default:
        return ["looked for NaN and Inf in every tensor"]
    return [clean(f"looked for {watch_line(each)}") for each in map_.watchpoints]


@dataclass(frozen=True, slots=True)
class CellText:
    """What a cell says.

    Attributes:
        health: how it is, and at which step and rank.
        path: the scope or node.
        details: the worst tensor in it, and counts.
    """

    health: str
    path: str
    details: str

    def __str__(self) -> str:
        """Everything in one line."""
        return "  ".join(filter(None, (self.health, self.path, self.details)))


def cell_text(map_: HealthMap, entry: int, steps: Sequence[int], cell: Cell, *, ranks: int) -> CellText:
    """What a cell says: how it is and where; and what the worst in it is."""
    where = f"step {span_text(steps)}" if steps else "no step"
    if cell.pair is not None and len(steps) > 1:
        where += f" (worst at {step_text(cell.pair[1])})"
    if cell.pair is not None and ranks > 1 and cell.hit is not None:
        where += f" rank {cell.pair[0]}"
    words = f"{GLYPHS[cell.health]} {WORDS[cell.health]}".strip()
    details = "; ".join(_details(cell, scope=map_.tree.is_scope(entry)))
    return CellText(f"{words}  {where}", clean(map_.tree.path(entry)), details)


def _details(cell: Cell, *, scope: bool) -> list[str]:
    details = []
    if cell.hit is not None:
        worst = clean(place_text(cell.hit.key).rpartition("/")[2]) if scope else slot_text(cell.hit.key)
        details.append(clean(" ".join(filter(None, (worst, said_words(cell.hit), hit_text(cell.hit))))))
    if cell.counts and sum(count for _, count in cell.counts) > 1:
        counted = ", ".join(f"{WORDS[health]} {count:,}" for health, count in cell.counts)
        details.append(f"tensors: {counted}")
    if cell.checked:
        if scope:
            details.append(f"{cell.judged:,} of {plural(cell.nodes, 'node')} judged, {cell.dumped:,} dumped")
        if cell.checked < cell.pairs:
            details.append(f"{cell.checked:,} of {cell.pairs:,} steps checked")
    elif cell.pairs:
        details.append("not checked with these watchpoints: r checks what is missing")
    return details


def rows_of(
    map_: HealthMap, shown: npt.NDArray[np.bool_], *, depth: int | None = None, flat: bool = False, most: int = 40
) -> npt.NDArray[np.int64]:
    """Tree indices of a map's rows.

    Args:
        map_: the map.
        shown: mask over tree indices, of ``map_.shown`` or ``map_.noteworthy``.
        depth: levels that are seen; None: as many as give ``most`` rows at most, and one in any case.
        flat: nodes only, in execution order.
        most: see ``depth``.
    """
    tree = map_.tree
    if flat:
        leaves = np.flatnonzero(shown & (tree.row >= 0))
        order = map_.nodes.order[tree.row[leaves]].astype(np.int64)
        return leaves[np.argsort(np.where(order < 0, np.iinfo(np.int64).max, order), kind="stable")]
    counts = np.cumsum(np.bincount(tree.depth[shown])) if shown.any() else np.zeros(1, np.int64)
    levels = depth if depth is not None else max(int((counts <= most).sum()), 1)
    return np.flatnonzero(shown & (tree.depth < levels))
