"""Cells and columns that several lists share: categories, verdicts, states of health, statistics, watchpoints.

Not part of ``theme``, because they import the model and the conditions, which the first frame does without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.style import Style
from rich.text import Text

from tui_debugger.config import in_use
from tui_debugger.model import Category, ErrorBits, Verdict, Watchpoint
from tui_debugger.stats.fields import TENSOR_TABLE, Form, StatisticField
from tui_debugger.stats.health import Health
from tui_debugger.text.health import GLYPHS
from tui_debugger.text.hits import param_words
from tui_debugger.text.numbers import number, percent
from tui_debugger.text.tensors import amount
from tui_debugger.tui import theme
from tui_debugger.tui.widgets.text import Cell
from tui_debugger.tui.widgets.virtual_table import TableColumn
from tui_debugger.watch.condition_table import CONDITIONS, not_finite_words
from tui_debugger.watch.recommended import RECOMMENDED
from tui_debugger.watch.text import format_selection

if TYPE_CHECKING:
    from tui_debugger.check.hits import Blocked
    from tui_debugger.model import TensorStats
    from tui_debugger.session import CheckResult


VERDICT_GLYPHS: Final[dict[Verdict, tuple[str, Style]]] = {
    Verdict.FINDING: (theme.HIT_GLYPH, theme.FINDING),
    Verdict.BLOCKED: (theme.HIT_GLYPH, theme.FINDING),
    Verdict.CANNOT_JUDGE: ("?", theme.DOUBT),
    Verdict.NOT_COMPARABLE: (theme.NONE, theme.DIM),
    Verdict.BY_DESIGN: (GLYPHS[Health.CLEAN], theme.DIM),
}
CATEGORY_LABELS: Final[dict[Category, str]] = {
    Category.OTHER: "operator",
    Category.WEIGHT: "weight",
    Category.NORM: "norm",
    Category.OPTIMIZER_STATE: "optimizer state",
    Category.PARAMETER: "parameter",
    Category.GRADIENT: "gradient",
    Category.ACTIVATION: "activation",
    Category.CONSTANT: "constant",
}


HEALTH_STYLES: Final[Mapping[Health, Style]] = {
    Health.ABSENT: theme.NORMAL,
    Health.NOT_JUDGED: theme.DIM,
    Health.CLEAN: theme.WATCHED,
    Health.UNCHECKED: theme.DIM,
    Health.UNREADABLE: theme.DOUBT,
    Health.HIT: theme.DOUBT,
    Health.NOT_FINITE: theme.FINDING,
    Health.INF: theme.FINDING,
    Health.NAN: theme.FINDING,
    Health.ORIGIN: theme.FINDING + Style(reverse=True),
}

_WIDTHS: Final = {Form.COUNT: 6, Form.REAL: 10, Form.PERCENT: 6}


def _columns(fields: Sequence[StatisticField]) -> tuple[TableColumn, ...]:
    return tuple(TableColumn(field.on_screen, _WIDTHS[field.form], right=True) for field in fields)


COUNT_COLUMNS: Final = _columns(TENSOR_TABLE[:2])
EXTREME_COLUMNS: Final = _columns(TENSOR_TABLE[2:4])


def statistic_columns() -> tuple[TableColumn, ...]:
    """Returns the columns of statistics that the user chose, or the usual columns."""
    return _columns(in_use().table("tensors"))


def count_cells(stats: TensorStats | None, unknown: str = theme.NONE) -> list[Cell]:
    """Returns the numbers of NaN and Inf; ``unknown`` stands for missing statistics."""
    return _cells(TENSOR_TABLE[:2], stats, unknown)


def extreme_cells(stats: TensorStats | None) -> list[Cell]:
    """Returns the smallest and the largest finite element."""
    return _cells(TENSOR_TABLE[2:4], stats)


def statistic_cells(stats: TensorStats | None, unknown: str = theme.NONE) -> list[Cell]:
    """Returns the cells of ``statistic_columns``."""
    return _cells(in_use().table("tensors"), stats, unknown)


def _cells(fields: Sequence[StatisticField], stats: TensorStats | None, unknown: str = theme.NONE) -> list[Cell]:
    return [Text(unknown, theme.DIM) if stats is None else _statistic_cell(field, stats) for field in fields]


def _statistic_cell(field: StatisticField, stats: TensorStats) -> Cell:
    value = field.value(stats)
    if field.form is Form.REAL:
        return number(value)
    if field.form is Form.PERCENT:
        return Text(theme.NONE, theme.DIM) if value is None else percent(value)
    text = amount(stats, field.name)
    if not value:
        return Text(text, theme.DIM)
    return Text(text, theme.FINDING) if field.alarm else text


@dataclass(frozen=True)
class ResultCounts:
    """The counts of a check result.

    Attributes:
        findings: number of hits that are findings.
        by_watchpoint: findings by id of the watchpoint; only watchpoints that looked at some tensor.
        blocked: tensors that a watchpoint could not judge because of NaN or Inf, by its id; only watchpoints with any.
        doubts: reasons why the rest may not be clean, one sentence each.
    """

    findings: int
    by_watchpoint: Mapping[int, int]
    blocked: Mapping[int, Blocked]
    doubts: tuple[str, ...] = ()

    @classmethod
    def of(cls, result: CheckResult) -> ResultCounts:
        """Counts a result; takes time proportional to the number of hits."""
        from tui_debugger.check.verdicts import judge  # imports the condition table: only once there are hits

        counts = result.hits.counts()
        found = {watchpoint: 0 for watchpoint, looked_at in result.coverage.watched if looked_at}
        found |= {watchpoint: count for (watchpoint, verdict), count in counts.items() if verdict is Verdict.FINDING}
        doubts = tuple(doubt.text for doubt in judge(result).doubts) if result.watchpoints else ()
        return cls(result.hits.findings, found, result.hits.blocked(), doubts)


def watchpoint_cells(
    watchpoint: Watchpoint, nodes: int | None, tally: ResultCounts | None, *, outdated: bool
) -> Sequence[Cell]:
    """Returns the row of a watchpoint.

    Args:
        watchpoint: the watchpoint.
        nodes: number of nodes that it covers; None while they are counted.
        tally: the last counts; None before the first check. A watchpoint that was not checked has no count.
        outdated: the list changed since the last check: the old count is shown in brackets.
    """
    hits = None if tally is None else tally.by_watchpoint.get(watchpoint.id)
    blocked = None if tally is None or outdated or not watchpoint.enabled else tally.blocked.get(watchpoint.id)
    condition = CONDITIONS.get(watchpoint.condition)
    style = theme.NORMAL if watchpoint.enabled else theme.DIM
    found = Text(theme.NONE if hits is None else f"{hits:,}", theme.FINDING if hits else theme.DIM)
    if hits is not None and (outdated or not watchpoint.enabled):
        found = Text(f"({hits:,})", theme.DIM)
    return (
        Text("●" if watchpoint.enabled else "○", theme.WATCHED if watchpoint.enabled else theme.DIM),
        Text(str(watchpoint.id), theme.DIM),
        Text(condition.abbr if condition else "?", style + theme.STRONG),
        _condition_cell(watchpoint, style),
        Text("…" if nodes is None else f"{nodes:,}", theme.DOUBT if nodes == 0 else style),
        found,
        Text("" if blocked is None else f"{blocked.tensors:,} {_blocked_by(blocked.error)}", theme.DIM),
    )


def _blocked_by(error: ErrorBits) -> str:
    return not_finite_words(error).replace(" or ", "/")


def condition_text(watchpoint: Watchpoint) -> str:
    """Returns condition and visible parameters: ``tensor too large  mean |x| > 0.5``."""
    condition = CONDITIONS.get(watchpoint.condition)
    hidden = {spec.name for spec in condition.params if not spec.visible} if condition is not None else set()
    params = "  ".join(
        param_words(watchpoint.condition, name, value) for name, value in watchpoint.params if name not in hidden
    )
    words = watchpoint.condition.replace("_", " ")
    return f"{words}  {params}".rstrip()


def _condition_cell(watchpoint: Watchpoint, style: Style) -> Text:
    text = Text(condition_text(watchpoint), style, no_wrap=True)
    own_name = watchpoint.name and not watchpoint.name.startswith(RECOMMENDED)
    return text.append(f"  {watchpoint.name}", theme.DIM) if own_name else text


def watchpoint_search_text(watchpoint: Watchpoint) -> str:
    condition = CONDITIONS.get(watchpoint.condition)
    abbr = condition.abbr if condition else ""
    return f"{abbr} {condition_text(watchpoint)} {watchpoint.name} {format_selection(watchpoint.selection)}"
