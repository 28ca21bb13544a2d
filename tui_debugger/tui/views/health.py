"""The health map: steps across, scopes down, the worst verdict in each cell: when it began and where it spread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from textual.content import Content
from textual.widget import Widget

from tui_debugger.check.progress import scaled
from tui_debugger.diagnose.health import (
    Cell,
    CellText,
    HealthMap,
    cell_text,
    health,
    map_parts,
    map_rows,
    tensor_of,
    watched_lines,
)
from tui_debugger.model import Side, TensorKey
from tui_debugger.stats.health import WORTH_A_LOOK
from tui_debugger.text.health import legend_text
from tui_debugger.text.tensors import step_text
from tui_debugger.tui.dialogs.modal import PlainLine, plain_lines
from tui_debugger.tui.export import Extract
from tui_debugger.tui.views.heat_map import GridRows, HeatGrid, HeatMapView, map_actions
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.widgets.text import shorten

if TYPE_CHECKING:
    from tui_debugger.check.types import Pair
    from tui_debugger.model import ProgressFn
    from tui_debugger.tui.views.view import ViewChanges


ACTIONS: Final = map_actions(
    "Health map",
    ("check", "r", "Recheck", "Checks what was not checked yet, with the enabled watchpoints (none: NaN, Inf)."),
    ("level(1)", "+ =", "More detail", "Opens the scopes one level deeper."),
    ("level(-1)", "-", "Less detail", "Closes the deepest level of scopes."),
    ("rank(-1)", "<", "Previous rank", "One rank back; before the first one come all, merged."),
    ("rank(1)", ">", "Next rank", "One rank on."),
    across="step",
    found="in which something was found or could not be judged",
    pages=(("[", "Step back"), ("]", "Step forward")),
)
HINTS: Final = (
    ("Enter", "go there"),
    ("r", "check"),
    ("+ -", "depth"),
    ("x", "findings"),
    ("z", "fit"),
    ("< >", "rank"),
    ("?", "keys"),
    ("Esc", "back"),
)
FIRST_PART: Final = 2
"""Steps that are checked before the first update; each further part has twice as many."""
LARGEST_PART: Final = 256
WIDE: Final = 1 << 20
"""Width of an exported text: enough for a column per step."""


class HealthView(HeatMapView):
    """The whole run at once."""

    OWN_ACTIONS = ACTIONS
    DEFAULT_CSS = """
    HealthView {
        #where, #cell, #worst, #legend, #covered { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
        #where, #legend { color: $text-muted; }
        #cell { text-style: bold; }
    }
    """
    heading = "Health map"
    hints = HINTS

    ranks: tuple[int, ...] = ()
    _cell: Cell | None = None
    _cell_text = CellText("", "", "")

    # -- contents ----------------------------------------------------------------------------------

    def body(self) -> Iterable[Widget]:
        yield PlainLine(id="where")
        yield HeatGrid()
        yield from plain_lines("cell", "worst", "legend", "covered")

    def on_mount(self) -> None:
        self.grid.focus()
        self._load()

    def _legend(self) -> str:
        vague = self.map is not None and self.map.vague
        return legend_text(max(self.size.width - 2, 20), vague=vague)

    def _load(self) -> None:
        session, checks = self.session, self.checks
        self.work("reading results", lambda progress: health(session, checks, None, progress), self._show)

    def take_in(self, changes: ViewChanges) -> None:
        session, checks = self.session, self.checks
        for rank in {rank for rank, _ in changes.pairs} | changes.ranks:
            checks.forget_from(rank, set(changes.steps_of(rank)))
        self.work_quietly(lambda progress: health(session, checks, None, progress), self._show)

    def _show(self, found: HealthMap) -> None:
        old = self.map
        self._take_map(found)
        if found.vague != (old is not None and old.vague):
            self.say("")  # the legend changes
        self.ranks = tuple(rank for rank in self.ranks if rank in found.ranks) or found.ranks
        self._arrange()

    def _to_start(self) -> None:
        """Moves the cursor to the tensor that the view was opened on, else to the first bad step."""
        map_, grid = self.map, self.grid
        if map_ is None:
            return
        placed = self.about.row >= 0 and self._go_to(self.about.key, self.about.key.step)
        if not placed and len(grid.columns_shown) and grid.row_count and grid.code_at(0, 0) < WORTH_A_LOOK:
            grid.next_finding(1, WORTH_A_LOOK)
        self._show_cell()

    def _arrange(self) -> None:
        map_ = self.map
        if map_ is None:
            return
        shown = map_.noteworthy(self.ranks) if self.findings_only else map_.shown
        self.grid.set_empty("nothing was found in what was checked" if self.findings_only else "nothing was dumped")
        self._show_rows(map_, shown, self.ranks)
        self._show_where()
        self._show_cell()

    def _show_where(self) -> None:
        map_ = self.map
        if map_ is None:
            return
        words = []
        if len(map_.ranks) > 1:
            words.append(
                f"all {len(map_.ranks)} ranks, the worst is shown" if len(self.ranks) > 1 else f"rank {self.ranks[0]}"
            )
        if self.fit_all and self.grid.columns_shown.most > 1:
            words.append(f"up to {self.grid.columns_shown.most:,} steps a column, the worst is shown")
        words += self._row_words()
        single = map_.by_default or len(map_.watchpoints) == 1
        words += watched_lines(map_) if single else [f"checked with {len(map_.watchpoints)} watchpoints"]
        self.put_line("where", "  ·  ".join(words))
        missing = len(map_.missing)
        hint = "   r checks what is missing" if missing and not self.working else ""
        self.put_line("covered", Content.assemble(map_.covered_text(), (hint, "bold")))

    def _show_cell(self) -> None:
        map_, grid = self.map, self.grid
        if map_ is None or grid.entry < 0 or not grid.steps_here or grid.entry >= len(map_.tree):
            self._cell = None
            self._cell_text = CellText("", "", "")
        else:
            self._cell = map_.cell(grid.entry, grid.steps_here, self.ranks)
            self._cell_text = cell_text(map_, grid.entry, grid.steps_here, self._cell, ranks=len(map_.ranks))
        shown, room = self._cell_text, max(self.size.width - 4, 20)
        self.put_line("cell", f"{shown.health}  {shorten(shown.path, max(room - len(shown.health) - 2, 8))}")
        self.put_line("worst", shown.details)

    # -- where it leads ----------------------------------------------------------------------------

    @property
    def target_here(self) -> ViewTarget:
        """The worst tensor of the cell; for a node without findings its first; else the view's own."""
        map_, cell, entry = self.map, self._cell, self.grid.entry
        if map_ is None or cell is None or cell.pair is None:
            return self.about
        if cell.hit is not None:
            return ViewTarget.of_hit(cell.hit)
        row = int(map_.tree.row[entry])
        return self._of_node(map_, row, cell.pair) if row >= 0 else self.about

    def _of_node(self, map_: HealthMap, row: int, pair: Pair) -> ViewTarget:
        if map_.pairs.get(pair) is not None:  # already listed, so this is cheap
            return ViewTarget(*tensor_of(self.session, map_.nodes, row, pair))
        graph, name = map_.nodes.graph_of(row).name, map_.nodes.names[row]
        own = self.session.nodes(pair[0]).find(name, graph)
        return ViewTarget(TensorKey(pair[0], graph, name, Side.OUTPUT, 0, pair[1]), own)

    def _enter(self, target: ViewTarget) -> None:
        self.host.go_to(target)

    # -- keys --------------------------------------------------------------------------------------

    def action_level(self, by: int) -> None:
        map_, tree = self.map, self._tree
        if map_ is None or tree is None or self.flat:
            return
        rows = tree.visible().indices
        level = max(int(map_.tree.depth[rows].max(initial=0)) + by, 0)
        tree.opened[:] = (map_.tree.depth < level) & (map_.tree.size > 1)
        above = [each for each in map_.tree.ancestors(self.grid.entry) if map_.tree.depth[each] >= level]
        at = above[-1] if above else self.grid.entry
        self._arrange()
        self.grid.move_to_key(at)

    def action_rank(self, by: int) -> None:
        if self.map is None or len(self.map.ranks) < 2:
            self.say("there is one rank only", note=True)
            return
        choices: Sequence[tuple[int, ...]] = (self.map.ranks, *((rank,) for rank in self.map.ranks))
        self.ranks = choices[(choices.index(self.ranks) + by) % len(choices)]
        self._arrange()

    # -- checking ----------------------------------------------------------------------------------

    def action_check(self) -> None:
        if self.working:
            return
        if self.map is None:
            self._load()
            return
        missing = self.checks.missing(self.session.pairs())
        if not missing:
            self.say("everything was checked with these watchpoints", note=True)
            return
        self._check(missing, 0, FIRST_PART)

    def _check(self, missing: Sequence[Pair], start: int, count: int) -> None:
        session, checks = self.session, self.checks
        part = missing[start : start + count]

        def job(progress: ProgressFn) -> HealthMap:
            checks.check(part, scaled(progress, start, len(missing), len(part)))
            return health(session, checks)

        def done(found: HealthMap) -> None:
            following = start + len(part)
            self._show(found)
            if following < len(missing) and not checks.missing(part):
                self._check(missing, following, min(2 * count, LARGEST_PART))

        self.work(f"checking {len(missing):,} of {len(session.pairs()):,} steps", job, done)

    def action_cancel(self) -> None:
        asked = self.working
        super().action_cancel()
        if asked and self.map is None:
            self.say("stopped: r starts again", note=True)
        elif asked:
            self._load()
            self.say("stopped: what was finished is shown", note=True)

    # -- handing out -------------------------------------------------------------------------------

    def extract(self) -> Extract | None:
        map_, grid = self.map, self.grid
        rows = grid.rows
        if map_ is None or not isinstance(rows, GridRows):
            return None
        lines = [
            "  ".join(parts) for parts in map_parts(map_, rows.entries, self.ranks, WIDE, fit=False, flat=self.flat)
        ]
        text = [*lines, "", legend_text(vague=map_.vague), *watched_lines(map_), map_.covered_text()]
        table = [(path, *cells) for path, _, cells in map_rows(map_, rows.entries, self.ranks)]
        header = ("path", *(f"step {step_text(step)}" for step in map_.steps))
        return Extract("health", "\n".join(text) + "\n", "  ".join(filter(None, self._cell_text)), header, table)
