"""The rank grid: ranks across, scopes down; values or verdicts of one step, compared between ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from rich.style import Style
from textual.widget import Widget

from tui_debugger.arrays import Int64
from tui_debugger.check.progress import scaled
from tui_debugger.diagnose.health import (
    HealthMap,
    StepColumns,
    cell_text,
    entry_name,
    health,
    tensor_of,
    watched_lines,
)
from tui_debugger.diagnose.ranks.grid import (
    ABSENT,
    LEAST,
    LEVEL_GLYPHS,
    NOT_FINITE,
    NOT_READ,
    OUTLIER,
    REPLICA_GLYPHS,
    REPLICA_WORDS,
    REPLICAS,
    SHOWN,
    STATISTICS,
    VERDICT,
    RankColumn,
    RankValues,
    noteworthy,
    rank_column,
    replica_codes,
    stacked,
    verdict_codes,
)
from tui_debugger.diagnose.ranks.replicas import compare_ranks
from tui_debugger.diagnose.ranks.report import compared_text, difference_text
from tui_debugger.diagnose.ranks.results import Replicas
from tui_debugger.model import ProgressFn
from tui_debugger.stats.health import WORTH_A_LOOK, Codes, Health
from tui_debugger.text.clean import clean
from tui_debugger.text.health import GLYPHS, legend_text
from tui_debugger.text.numbers import named, number, plural
from tui_debugger.tui import theme
from tui_debugger.tui.dialogs.modal import plain_lines
from tui_debugger.tui.export import Extract
from tui_debugger.tui.views.heat_map import GridRows, HeatGrid, HeatMapView, map_actions
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.views.view import ViewChanges, ViewHost
from tui_debugger.tui.widgets.text import shorten
from tui_debugger.tui.work import QUICK, QUICK_PAIRS

CodesOf = Callable[[Int64, Sequence[int]], Codes]
"""Takes (tree indices, ranks), returns a code for each combination."""


def _nothing(entries: Int64, ranks: Sequence[int]) -> Codes:
    return np.zeros((len(entries), len(ranks)), np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class RankColumns(StepColumns):
    """Ranks in place of steps; ``codes`` returns the contents of cells."""

    codes: CodesOf = _nothing

    def codes_of(self, map_: HealthMap, entries: Int64, steps: Sequence[int], ranks: Sequence[int]) -> Codes:  # noqa: ARG002 - see ``StepColumns``
        return self.codes(entries, steps)


class RankGrid(HeatGrid):
    """The cells; set ``codes`` and ``glyphs`` (glyph and style by code) before ``show_map``."""

    across: ClassVar[str] = "rank"

    def __init__(self) -> None:
        super().__init__()
        self.codes: CodesOf = _nothing
        self.glyphs: Sequence[tuple[str, Style]] = ((" ", theme.NORMAL),)

    def columns_for(self, map_: HealthMap, room: int) -> StepColumns:
        plain = StepColumns.laid_out(map_.ranks, room, fit=self._fit)
        return RankColumns(plain.steps, plain.bounds, plain.labels, plain.width, self.codes)

    def glyph(self, code: int) -> tuple[str, Style]:
        return self.glyphs[code]


def _health_glyphs() -> list[tuple[str, Style]]:
    from tui_debugger.tui.cells import HEALTH_STYLES

    return [(GLYPHS[each], HEALTH_STYLES[each]) for each in Health]


_REPLICA_STYLES: Final = (theme.NORMAL, theme.NORMAL, theme.WATCHED, theme.DOUBT, theme.FINDING)


STANDS_OUT: Final = LEAST + 6
"""Least level of a rank that stands out: it is off by more than 0.1 of the median."""


def _level_style(level: int) -> Style:
    if level == NOT_FINITE:
        return theme.FINDING
    if level == NOT_READ:
        return theme.DOUBT
    return theme.NORMAL if level == ABSENT else theme.WATCHED if level < STANDS_OUT else theme.DOUBT


ACTIONS: Final = map_actions(
    "Ranks",
    ("shown(1)", "m", "More", "Another one in the cells: verdict, replicas, norm, mean, zeros ..."),
    ("shown(-1)", "", "Statistic before", "The one before in the cells."),
    ("step(-1)", "[", "Step back", "The step before."),
    ("step(1)", "]", "Step forward", "The next step."),
    ("compare", "=", "Compare ranks", "Looks which tensors differ that must be equal on several ranks."),
    (
        "check",
        "r",
        "Recheck",
        "Checks with the enabled watchpoints (none: NaN, Inf) what was not checked; goes on after a stop.",
    ),
    across="rank",
    found="in which something was found, or that differ between ranks",
    pages=(("<", "Previous rank"), (">", "Next rank")),
)
HINTS: Final = (
    ("Enter", "values"),
    ("m", "statistic"),
    ("[ ]", "step"),
    ("=", "compare"),
    ("x", "findings"),
    ("z", "fit"),
    ("?", "keys"),
    ("Esc", "back"),
)
_WHOLE_LEGEND: Final = 108
"""Width of the screen from which the long legend fits."""
FIRST_PART: Final = 2
"""Ranks that are read before the first update; each further part has twice as many."""


class RanksView(HeatMapView):
    """Many ranks at once."""

    OWN_ACTIONS = ACTIONS
    DEFAULT_CSS = """
    RanksView {
        #where, #cell, #more, #legend, #found { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
        #where, #legend { color: $text-muted; }
        #cell, #found { text-style: bold; }
    }
    """
    heading = "Ranks"
    hints = HINTS

    def __init__(self, host: ViewHost, about: ViewTarget) -> None:
        super().__init__(host, about)
        self.values: RankValues | None = None
        self.replicas: Replicas | None = None
        self.shown = "norm"
        self.step = about.key.step
        self._columns: dict[tuple[int, str], dict[int, RankColumn]] = {}
        """By (step, statistic): the columns of the map's nodes, by rank."""
        self._differs: tuple[int, Codes] | None = None
        self._complete = False

    # -- contents ----------------------------------------------------------------------------------

    def body(self) -> Iterable[Widget]:
        yield from plain_lines("found", "where")
        yield RankGrid()
        yield from plain_lines("cell", "more", "legend")

    def on_mount(self) -> None:
        self.grid.focus()
        self._read(FIRST_PART)

    @property
    def grid(self) -> RankGrid:
        return self.query_one(RankGrid)

    def _legend(self) -> str:
        if self.shown == VERDICT:
            return legend_text(max(self.size.width - 2, 20))
        if self.shown == REPLICAS:
            return "  ".join(f"{REPLICA_GLYPHS[code]} {REPLICA_WORDS[code]}" for code in range(2, OUTLIER + 1))
        if self.size.width < _WHOLE_LEGEND:
            return "off the median by: · 0  ▂ 1e-4  ▄ 0.01  ▆ all  █ more  ! NaN, Inf  ? not read"
        return "off the median of the ranks by: · nothing  ▂ 1e-4  ▄ 0.01  ▆ all of it  █ more   ! NaN, Inf  ? not read"

    # -- reading ---------------------------------------------------------------------------------------

    def _read(self, count: int) -> None:
        """Reads the nodes of the first ranks and the contents of their cells, then of more ranks."""
        session, checks, name = self.session, self.checks, self.shown
        ranks = list(session.ranks())
        some = ranks[:count]
        old, columns = self.map, self._columns
        wanted = self.step

        def job(progress: ProgressFn) -> tuple[HealthMap, int, dict[int, RankColumn]]:
            pairs = session.pairs(some)
            map_ = health(session, checks, pairs, scaled(progress, 0, len(ranks), len(some)))
            step = wanted if wanted in map_.steps else (map_.steps or (wanted,))[-1]
            known = columns.get((step, name), {}) if old is not None and old.tree is map_.tree else {}
            return map_, step, self._read_columns(map_, step, name, known, progress)

        def done(found: tuple[HealthMap, int, dict[int, RankColumn]]) -> None:
            self._complete = count >= len(ranks)
            self._show(*found, name)
            if self._complete:
                self._compare_if_quick()
            else:
                self._read(2 * count)

        self.work(f"reading {plural(len(ranks), 'rank')}", job, done)

    def _read_columns(
        self, map_: HealthMap, step: int, name: str, known: dict[int, RankColumn], progress: ProgressFn
    ) -> dict[int, RankColumn]:
        if name not in STATISTICS:
            return known
        session = self.session
        return {
            rank: known[rank]
            if rank in known
            else rank_column(session, map_, rank, step, name, scaled(progress, at, len(map_.ranks), 1))
            for at, rank in enumerate(map_.ranks)
        }

    def _show(self, map_: HealthMap, step: int, columns: dict[int, RankColumn], name: str) -> None:
        self.step = step
        if self._take_map(map_):
            self._columns.clear()
            self._differs = None
        if name in STATISTICS:
            self._columns[step, name] = columns
            self.values = stacked(step, name, columns, len(map_.tree))
        if name == self.shown:
            self._arrange()

    def _load(self) -> None:
        map_, step, name = self.map, self.step, self.shown
        if map_ is None or name not in STATISTICS:
            self._arrange()
            return
        known = self._columns.get((step, name), {})
        if set(map_.ranks) <= set(known):
            self._show(map_, step, known, name)
            return
        self.work(
            f"{STATISTICS[name][0]} at step {step}",
            lambda progress: self._read_columns(map_, step, name, known, progress),
            lambda columns: self._show(map_, step, columns, name),
        )

    def take_in(self, changes: ViewChanges) -> None:
        """Reads changed steps again; the cursor stays."""
        for rank in {rank for rank, _ in changes.pairs} | changes.ranks:
            steps = set(changes.steps_of(rank))
            self.checks.forget_from(rank, steps)
            for (step, _), columns in self._columns.items():
                if not steps or step in steps:
                    columns.pop(rank, None)
        session, checks = self.session, self.checks
        map_, step, name = self.map, self.step, self.shown
        if map_ is None or changes.pairs or changes.ranks:
            self.replicas, self._differs = None, None
        known = dict(self._columns.get((step, name), {}))

        def job(progress: ProgressFn) -> tuple[HealthMap, int, dict[int, RankColumn]]:
            found = health(session, checks, None, progress)
            same = known if map_ is not None and found.tree is map_.tree else {}
            return found, step, self._read_columns(found, step, name, same, progress)

        def done(found: tuple[HealthMap, int, dict[int, RankColumn]]) -> None:
            self._show(*found, name)
            self._compare_if_quick()

        self.work_quietly(job, done)

    def _compare_if_quick(self) -> None:
        """Compares the ranks if that reads little; shows only the answer, so that no row moves."""
        session = self.session
        few = self.replicas is None and 2 <= len(session.ranks()) <= QUICK_PAIRS
        pairs = session.pairs() if few else ()
        if not pairs or len(pairs) > QUICK_PAIRS:
            return

        def job(progress: ProgressFn) -> Replicas | None:
            return compare_ranks(session, None, progress) if session.size(pairs) <= QUICK else None

        def done(found: Replicas | None) -> None:
            if found is not None:
                self.replicas, self._differs = found, None
                self._show_where()
                self._show_cell()

        self.work_quietly(job, done)

    # -- showing -----------------------------------------------------------------------------------

    def _codes(self, entries: Int64, ranks: Sequence[int]) -> Codes:
        map_ = self.map
        if map_ is None:
            return _nothing(entries, ranks)
        if self.shown == VERDICT:
            return verdict_codes(map_, entries, self.step, ranks)
        if self.shown == REPLICAS:
            if self.replicas is None:
                return _nothing(entries, ranks)
            if self._differs is None or self._differs[0] != self.step:
                self._differs = self.step, replica_codes(map_, self.replicas, self.step)
            place = {rank: at for at, rank in enumerate(map_.ranks)}
            found: Codes = self._differs[1][entries][:, [place[rank] for rank in ranks]]
            return found
        values = self.values
        if values is None or (values.step, values.name) != (self.step, self.shown):
            return _nothing(entries, ranks)
        return values.levels(entries, ranks)

    def _arrange(self) -> None:
        map_, grid = self.map, self.grid
        if map_ is None:
            return
        shown = noteworthy(map_, self.replicas) & map_.shown if self.findings_only else map_.shown
        grid.codes = self._codes
        if self.shown == VERDICT:
            grid.glyphs = _health_glyphs()
        elif self.shown == REPLICAS:
            grid.glyphs = list(zip(REPLICA_GLYPHS, _REPLICA_STYLES, strict=True))
        else:
            grid.glyphs = [(glyph, _level_style(level)) for level, glyph in enumerate(LEVEL_GLYPHS)]
        grid.set_empty("nothing was found: = compares ranks, r checks" if self.findings_only else "nothing was dumped")
        self._show_rows(map_, shown, map_.ranks)
        self.say("")
        self._show_where()
        self._show_cell()

    def _to_start(self) -> None:
        if self.about.row >= 0:
            self._go_to(self.about.key, self.about.key.rank)

    def _show_where(self) -> None:
        map_ = self.map
        if map_ is None:
            return
        title = STATISTICS[self.shown][0] if self.shown in STATISTICS else self.shown
        every = len(self.session.ranks())
        words = [f"{title} at step {self.step}", f"{len(map_.ranks):,} of {plural(every, 'rank')}"]
        if self.fit_all and self.grid.columns_shown.most > 1:
            words.append(f"up to {self.grid.columns_shown.most:,} ranks a column, the worst is shown")
        if self.replicas is not None:
            room = self.size.width - 4 - sum(len(each) + 5 for each in words)
            layout = self.replicas.layout
            words.append(str(layout) if len(str(layout)) <= room else layout.brief)
        words += self._row_words()
        if self.shown == VERDICT:
            words += watched_lines(map_) if map_.by_default else []
            words += [f"{len(map_.missing):,} steps not checked: r checks"] if map_.missing else []
        self.put_line("where", shorten("  ·  ".join(words), max(self.size.width - 4, 20)))
        self.put_line("found", self._found_text())

    def _found_text(self) -> str:
        replicas = self.replicas
        if replicas is None:
            return "= compares ranks: which tensors differ that must be equal"  # too much to read without being asked
        if replicas.not_reduced:
            first = replicas.not_reduced[0]
            where = f"{named('rank', first.group)} at step {first.key.step}"
            return f"The gradient of {clean(first.parameter)} was not reduced over {where}"
        if replicas.differences:
            more = len(replicas.firsts) - 1
            return difference_text(replicas.differences[0]) + (f" · {plural(more, 'more difference')}" if more else "")
        if not sum(replicas.compared.values()):
            return f"Nothing to compare between ranks: {replicas.layout.why or 'no tensor must be equal'}"
        return f"No difference: {compared_text(replicas)}"

    @property
    def rank_here(self) -> int:
        """The rank under the cursor; of several in a column, the rank that stands out most."""
        grid, ranks = self.grid, self.grid.steps_here
        if not ranks:
            return self.about.key.rank
        if len(ranks) == 1:
            return int(ranks[0])
        codes = self._codes(np.array([max(grid.entry, 0)]), ranks)[0]
        return int(ranks[int(codes.argmax())])

    def _show_cell(self) -> None:
        map_, grid = self.map, self.grid
        if map_ is None or grid.entry < 0 or not grid.steps_here or grid.entry >= len(map_.tree):
            self.put_line("cell", "")
            self.put_line("more", "")
            return
        rank, room = self.rank_here, max(self.size.width - 4, 20)
        path = clean(map_.tree.path(grid.entry))
        place = self.replicas.layout.place_text(rank) if self.replicas is not None else ""
        start = f"rank {rank}" + (f" ({place})" if place else "")
        self.put_line("cell", f"{start}  {shorten(path, max(room - len(start) - 2, 8))}")
        words = self._cell_words(map_, grid.entry, rank)
        while len(words) > room and "  ·  " in words:  # drop the least important words, which are last
            words = words.rpartition("  ·  ")[0]
        self.put_line("more", shorten(words, room))

    def _cell_words(self, map_: HealthMap, entry: int, rank: int) -> str:
        values = self.values
        if self.shown in STATISTICS:
            if values is None or values.name != self.shown or rank not in values.ranks:
                return "not read yet"
            row = values.numbers[entry]
            own, mark = row[values.ranks.index(rank)], values.marks[entry, values.ranks.index(rank)]
            known = row[np.isfinite(row)]
            if mark == ABSENT:
                return "not dumped at this step"
            words = [f"{STATISTICS[self.shown][0]} {number(float(own))}" if np.isfinite(own) else "no finite number"]
            words += ["NaN or Inf"] if mark == NOT_FINITE else ["not read or not recorded"] if mark == NOT_READ else []
            if len(known) > 1:
                middle = float(np.median(known))
                words.append(f"median of {len(known):,} ranks {number(middle)}")
                if np.isfinite(own) and middle and own != middle:
                    words.append(f"off by {number(abs(float(own) - middle) / abs(middle))} of the median")
                words.append(f"{number(float(known.min()))} to {number(float(known.max()))}")
            return "  ·  ".join(words)
        if self.shown == REPLICAS:
            return self._replica_words(map_, entry)
        cell = map_.cell(entry, (self.step,), (rank,))
        text = cell_text(map_, entry, (self.step,), cell, ranks=len(map_.ranks))
        return f"{text.health}  {text.details}"

    def _replica_words(self, map_: HealthMap, entry: int) -> str:
        replicas = self.replicas
        if replicas is None:
            return "= compares ranks"
        inside = set(map_.tree.row[entry : entry + int(map_.tree.size[entry])].tolist())
        found = [
            each
            for each in replicas.differences
            if each.key.step == self.step and map_.nodes.find(each.key.node, each.key.graph) in inside
        ]
        left_out = [
            each.parameter
            for each in replicas.not_reduced
            if each.key.step == self.step and map_.nodes.find(each.key.node, each.key.graph) in inside
        ]
        if left_out:
            return clean(f"not reduced: the gradient of {', '.join(left_out[:3])} went into no collective operation")
        if not found:
            return "nothing differs that must be equal"
        return difference_text(found[0]) + (f" · {len(found) - 1} more" if len(found) > 1 else "")

    # -- where it leads ----------------------------------------------------------------------------

    @property
    def target_here(self) -> ViewTarget:
        """The first output of the node under the cursor on that rank; else the view's own tensor."""
        map_, entry = self.map, self.grid.entry
        row = int(map_.tree.row[entry]) if map_ is not None and 0 <= entry < len(map_.tree) else -1
        if map_ is None or row < 0:
            return self.about
        return ViewTarget(*tensor_of(self.session, map_.nodes, row, (self.rank_here, self.step)))

    def _enter(self, target: ViewTarget) -> None:
        self.host.open("values", target)

    # -- keys --------------------------------------------------------------------------------------

    def action_shown(self, by: int) -> None:
        self.shown = SHOWN[(SHOWN.index(self.shown) + by) % len(SHOWN)]
        self._load()
        if self.shown == REPLICAS and self.replicas is None:
            self.action_compare()

    def action_step(self, by: int) -> None:
        steps = self.map.steps if self.map is not None else ()
        at = steps.index(self.step) + by if self.step in steps else -1
        if 0 <= at < len(steps):
            self.step = steps[at]
            self._load()
        else:
            self.say("there is no step before" if by < 0 else "there is no later step", note=True)

    def action_compare(self) -> None:
        if self.working:
            return
        session = self.session
        if self.replicas is not None and not self.replicas.found:
            self.say(self._found_text(), note=True)
            return

        def done(found: Replicas) -> None:
            self.replicas, self._differs = found, None
            self.shown = REPLICAS if found.found else self.shown
            keys = [each.key for each in found.not_reduced] + [each.key for each in found.differences]
            first = min(keys, key=lambda key: key.step, default=None)
            if first is not None and self.map is not None and first.step in self.map.steps:
                self.step = first.step
            self._load()
            if first is not None:
                self._go_to(first, first.rank)

        if self.replicas is not None:
            done(self.replicas)
        else:
            self.work("comparing ranks", lambda progress: compare_ranks(session, None, progress), done)

    def action_check(self) -> None:
        """Checks unchecked pairs; after a stop, reads the remaining ranks first."""
        if self.working:
            return
        if self.map is None or not self._complete:
            self._read(FIRST_PART if self.map is None else 2 * len(self.map.ranks))
            return
        session, checks = self.session, self.checks
        missing = checks.missing(session.pairs())

        def job(progress: ProgressFn) -> HealthMap:
            checks.check(missing, progress)
            return health(session, checks)

        def done(found: HealthMap) -> None:
            self.shown = VERDICT
            self._show(found, self.step, {}, VERDICT)

        self.work(f"checking {plural(len(missing), 'step')}", job, done)

    def _worth(self) -> int:
        return WORTH_A_LOOK if self.shown == VERDICT else OUTLIER - 1 if self.shown == REPLICAS else STANDS_OUT

    # -- handing out -------------------------------------------------------------------------------

    def extract(self) -> Extract | None:
        map_, rows = self.map, self.grid.rows
        if map_ is None or not isinstance(rows, GridRows):
            return None
        codes = self._codes(rows.entries, map_.ranks)
        names = [entry_name(map_, entry, flat=self.flat) for entry in rows.entries.tolist()]
        glyphs = ["".join(self.grid.glyph(code)[0] for code in row) for row in codes.tolist()]
        text = [f"{cells}  {name}" for cells, name in zip(glyphs, names, strict=True)]
        title = f"{self.shown} at step {self.step}, ranks {map_.ranks[0]} to {map_.ranks[-1]}" if map_.ranks else ""
        paths = [clean(map_.tree.path(entry)) for entry in rows.entries.tolist()]
        if self.values is not None and self.shown in STATISTICS:
            cells = [[repr(each) for each in row] for row in self.values.numbers[rows.entries].tolist()]
        else:
            cells = [list(row) for row in glyphs]
        table = [(path, *row) for path, row in zip(paths, cells, strict=True)]
        header = ("path", *(f"rank {rank}" for rank in map_.ranks))
        body = "\n".join([title, *text, "", self._legend()]) + "\n"
        return Extract("ranks", body, str(self.text_line("more").content), header, table)
