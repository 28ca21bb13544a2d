"""What a hit row says: abbreviations, set and actual values, or why nothing could be compared."""

from __future__ import annotations

from rich.text import Text

from tui_debugger.analysis.conditions import CONDITIONS, reasons
from tui_debugger.model import ErrorBits, Hit, ParamResult, TensorStats, Verdict, WatchResult
from tui_debugger.tui import theme
from tui_debugger.tui.panes.numbers import count, number


def abbreviations(hit: Hit) -> Text:
    """Each watchpoint's abbreviation once, coloured by its verdict."""
    text = Text(no_wrap=True)
    seen: set[str] = set()
    for result in sorted(hit.results, key=lambda result: -result.verdict):
        condition = CONDITIONS.get(result.condition)
        abbr = condition.abbr if condition else "?"
        if abbr not in seen:
            seen.add(abbr)
            text.append(" " if text.plain else "")
            text.append(abbr, theme.FINDING if result.verdict is Verdict.FINDING else theme.DIM)
    return text


def details(hit: Hit) -> Text:
    """``mean |x| > 0.5 → 0.73``: for every hit parameter the set and the actual value; else the reasons."""
    text = Text(no_wrap=True)
    seen: set[str] = set()
    for result in sorted(hit.results, key=lambda result: -result.verdict):
        for part in _parts(result, hit.stats):
            if part.plain not in seen:
                text.append("  " if text.plain else "")
                text.append_text(part)
                seen.add(part.plain)
    if hit.detail:
        text.append(("  " if text.plain else "") + hit.detail, theme.DOUBT)
    return text


def _parts(result: WatchResult, stats: TensorStats | None) -> list[Text]:
    parts = [_param(result.condition, param) for param in result.params if param.hit]
    error = result.error
    if error & (ErrorBits.NAN | ErrorBits.INF) or (result.verdict is Verdict.FINDING and not parts and not error):
        parts.append(Text(contents(stats) or ", ".join(reasons(error)) or _summary(result.condition), theme.FINDING))
        error &= ~(ErrorBits.NAN | ErrorBits.INF)
    style = theme.FINDING if result.verdict is Verdict.FINDING else theme.DIM
    return parts + [Text(reason, style) for reason in reasons(error)]


def _summary(condition: str) -> str:
    """What a condition without parameters of its own says when it hits."""
    found = CONDITIONS.get(condition)
    text = found.summary.rstrip(".") if found is not None else condition
    return text[:1].lower() + text[1:]


def param_words(condition: str, name: str, value: float | bool) -> str:
    """A set parameter as people read it: ``mean |x| < 1e-12``, ``zeros ≥ 100 %``."""
    found = CONDITIONS.get(condition)
    spec = next((spec for spec in found.params if spec.name == name), None) if found is not None else None
    label, percent, _ = (spec.label if spec is not None and spec.label else name).partition(" %")
    return f"{label} {'yes' if value is True else 'no' if value is False else number(value)}{percent}"


def _param(condition: str, param: ParamResult) -> Text:
    text = Text(param_words(condition, param.name, param.value), theme.NORMAL)
    if param.actual is not None:
        text.append(" → ", theme.DIM)
        text.append(number(param.actual), theme.FINDING)
    return text


def contents(stats: TensorStats | None) -> str:
    """``NaN 1 Inf 3 of 256``: what a bad tensor contains; empty for a finite or unknown one."""
    if stats is None or not stats.bad:
        return ""
    found = [("NaN", stats.nan), ("+Inf", stats.pos_inf), ("-Inf", stats.neg_inf)]
    return " ".join(f"{name} {count(amount)}" for name, amount in found if amount) + f" of {count(stats.count)}"
