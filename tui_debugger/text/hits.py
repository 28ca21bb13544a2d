"""Hits and watchpoints in words: abbreviations, set and actual values, or why nothing could be compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tui_debugger.model import (
    BIAS,
    ErrorBits,
    Hit,
    NodeKind,
    NodeSelection,
    NodeSelector,
    ParamResult,
    ParamValue,
    TensorStats,
    Verdict,
    Watchpoint,
    WatchResult,
)
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import count, number
from tui_debugger.text.tensors import NOT_FINITE as NOT_FINITE_COUNTS
from tui_debugger.text.tensors import amount
from tui_debugger.watch.condition_table import CONDITIONS, EXPRESSION, NOT_FINITE, Condition, not_finite_words, reasons
from tui_debugger.watch.expression import filled_in, pretty
from tui_debugger.watch.recommended import RECOMMENDED
from tui_debugger.watch.text import format_selection, format_value, format_watch


class Emphasis(Enum):
    """How much a part of a sentence stands out."""

    PLAIN = "plain"
    DIM = "dim"
    DOUBT = "doubt"
    FINDING = "finding"


@dataclass(frozen=True, slots=True)
class HitPart:
    """A piece of a hit's description; ``actual`` is the found value; ``apart``: it is no finding and stands apart."""

    text: str
    emphasis: Emphasis = Emphasis.PLAIN
    actual: str = ""
    apart: bool = False

    def __str__(self) -> str:
        """``mean |x| > 0.5 → 0.73``."""
        return f"{self.text} → {self.actual}" if self.actual else self.text


def abbreviations(hit: Hit) -> list[tuple[str, Verdict]]:
    """Returns each watchpoint's abbreviation once with its verdict, findings first."""
    return _verdicts(hit, _abbreviation)


def conditions_of(hit: Hit) -> list[tuple[str, Verdict]]:
    """Like ``abbreviations`` with the names of conditions: ``tensor overflow``."""
    return _verdicts(hit, _condition_name)


def _verdicts(hit: Hit, named: Callable[[str], str]) -> list[tuple[str, Verdict]]:
    found: dict[str, Verdict] = {}
    for result in _findings_first(hit):
        found.setdefault(named(result.condition), result.verdict)
    return list(found.items())


def _findings_first(hit: Hit) -> list[WatchResult]:
    return sorted(hit.results, key=lambda result: -result.verdict)


def _abbreviation(condition: str) -> str:
    found = CONDITIONS.get(condition)
    return found.abbr if found else "?"


def said_words(hit: Hit) -> str:
    """Returns ``TO TL?``: findings, with "?" if they cannot be judged; leaves out conditions blocked by NaN or Inf."""
    marks = {Verdict.FINDING: "", Verdict.CANNOT_JUDGE: "?"}
    return " ".join(abbr + marks[verdict] for abbr, verdict in abbreviations(hit) if verdict in marks)


def condition_names(hit: Hit) -> str:
    names = [
        _condition_name(result.condition) + (" not judged" if _is_kept(result) else "")
        for result in _findings_first(hit)
    ]
    return ", ".join(dict.fromkeys(names))


def _condition_name(condition: str) -> str:
    return clean(condition.replace("_", " "))


def hit_text(hit: Hit, *, apart: bool = True) -> str:
    """Joins ``hit_parts``: ``mean |x| > 0.5 → 0.73, max > 1 → 3``; ``apart`` adds ``NaN 3 of 12 · WNC not judged``."""
    text = ""
    for part in (each for each in hit_parts(hit) if apart or not each.apart):
        text += (SEPARATOR if part.apart else ", ") if text else ""
        text += str(part)
    return text


SEPARATOR: Final = " · "
"""Between findings and the conditions that were not judged because of them."""


def not_judged(tensors: int, error: ErrorBits) -> str:
    """Returns ``51 not judged: NaN``: tensors that a watchpoint could not judge, counted apart from its findings."""
    return f"{tensors:,} not judged: {not_finite_words(error)}"


_OF_DEVICE: Final = "operator_overflow"


def hit_parts(hit: Hit) -> list[HitPart]:
    """Returns set and actual values of hit parameters, else the reasons; conditions blocked by NaN or Inf come last."""
    parts: dict[str, HitPart] = {}
    for result in _findings_first(hit):
        if result.condition == _OF_DEVICE and hit.detail and not contents(hit.stats):
            continue  # what the device recorded says it
        for part in _parts(result, hit.stats):
            parts.setdefault(str(part), part)
    if hit.detail:
        unreadable = Emphasis.DOUBT if hit.stats is None else Emphasis.FINDING
        emphasis = Emphasis.DIM if hit.verdict is Verdict.BY_DESIGN else unreadable
        parts.setdefault(hit.detail, HitPart(hit.detail, emphasis))
    kept = [CONDITIONS[result.condition].abbr for result in hit.results if _is_kept(result)]
    if kept:
        text = f"{' '.join(dict.fromkeys(kept))} not judged"
        parts.setdefault(text, HitPart(text, Emphasis.DIM, apart=True))
    return list(parts.values())


def _is_kept(result: WatchResult) -> bool:
    unjudged = result.verdict in (Verdict.BLOCKED, Verdict.BY_DESIGN)
    return unjudged and bool(result.error & NOT_FINITE) and result.condition in CONDITIONS


def _parts(result: WatchResult, stats: TensorStats | None) -> list[HitPart]:
    bounds = {param.name: param.value for param in result.params}
    parts = [_param(result.condition, param, bounds) for param in result.params if param.hit]
    error = result.error
    if result.verdict is Verdict.BY_DESIGN:
        return [HitPart(f"{contents(stats) or 'Inf'} by design", Emphasis.DIM)]
    if error & NOT_FINITE or (result.verdict is Verdict.FINDING and not parts and not error):
        text = contents(stats) or ", ".join(reasons(error & NOT_FINITE)) or _summary(result.condition)
        parts.append(HitPart(text, Emphasis.FINDING))
        error &= ~NOT_FINITE
    if result.verdict is Verdict.BLOCKED:
        return parts  # what else would have kept it from being judged does not matter
    emphasis = Emphasis.FINDING if result.verdict is Verdict.FINDING else Emphasis.DIM
    return parts + [HitPart(reason, emphasis) for reason in reasons(error, result.condition, bounds.items())]


def _summary(condition: str) -> str:
    found = CONDITIONS.get(condition)
    text = found.summary.rstrip(".") if found is not None else condition
    return text[:1].lower() + text[1:]


def param_words(condition: str, name: str, value: ParamValue, others: Mapping[str, ParamValue] | None = None) -> str:
    """Returns ``mean |x| < 1e-12``, ``share in [-1, 0] < 50 %``; the ends of a range come from ``others``."""
    found = CONDITIONS.get(condition)
    spec = next((spec for spec in found.params if spec.name == name), None) if found is not None else None
    label, percent, _ = (spec.label if spec is not None and spec.label else name).partition(" %")
    if isinstance(value, str):
        return clean(pretty(value))
    if spec is not None and spec.needs and others is not None and all(end in others for end in spec.needs):
        label = label.replace("range", _interval([number(float(others[end])) for end in spec.needs]))
    return f"{label} {'yes' if value is True else 'no' if value is False else number(value)}{percent}"


def _interval(ends: Sequence[str]) -> str:
    return f"[{', '.join(ends)}]"


def _expression(param: ParamResult) -> HitPart:
    text = str(param.value)
    return HitPart(clean(pretty(text)), Emphasis.PLAIN, clean(filled_in(text, quantity_texts(param))))


def quantity_texts(param: ParamResult) -> dict[str, str]:
    """Returns the value of each name in an expression as text; ``–`` if unknown."""
    return {name: quantity_text(value) for name, value in param.quantities}


def quantity_text(value: float | str | None) -> str:
    if value is None:
        return "–"
    return f"'{clean(value)}'" if isinstance(value, str) else number(value)


def _param(condition: str, param: ParamResult, all_params: Mapping[str, ParamValue]) -> HitPart:
    if param.name == EXPRESSION:
        return _expression(param)
    words = param_words(condition, param.name, param.value, all_params)
    percent = " %" if words.endswith(" %") else ""
    actual = "" if param.actual is None else f"{number(param.actual)}{percent}"
    return HitPart(words, Emphasis.PLAIN, actual)


def contents(stats: TensorStats | None) -> str:
    """Returns ``NaN 1 Inf 3 of 256``, ``NaN ≥ 1 of 256`` for a lower bound; empty for a finite or unknown tensor."""
    if stats is None or not stats.bad:
        return ""
    found = [f"{word} {amount(stats, name)}" for word, name in NOT_FINITE_COUNTS if getattr(stats, name)]
    return " ".join(found) + (f" of {count(stats.count)}" if stats.sized else "")


_PLURALS = {
    "tensor": "all tensors",
    "trainable": "weights",
    "weight": "weights",
    "gradient": "gradients",
    "weight_gradient": "gradients of weights",
    "searched_weight": "weights of L-BFGS",
    "activation": "activations",
    "parameter": "parameters",
    "optimizer_state": "optimizer state",
}


def watchpoint_name(watchpoint: Watchpoint) -> str:
    return f"{_abbreviation(watchpoint.condition)} #{watchpoint.id}"


def long_watchpoint_name(watchpoint: Watchpoint) -> str:
    return f"{watchpoint_name(watchpoint)} {_condition_name(watchpoint.condition)}"


def watch_words(watchpoint: Watchpoint, *, raw: bool = True) -> str:
    """Returns ``weights: changed too much since the previous step (update ratio > 1)``; ``raw``: see selections."""
    condition = CONDITIONS.get(watchpoint.condition)
    if condition is None:
        return clean(watchpoint.condition)
    parts = list(_limits(condition, dict(watchpoint.params)))
    limits = f" ({', '.join(parts)})" if parts else ""
    summary = condition.summary.rstrip(".")
    return f"{selection_words(watchpoint.selection, raw=raw)}: {summary[0].lower()}{summary[1:]}{limits}"


def finding_words(watchpoint: Watchpoint, *, raw: bool = True) -> str:
    return f"{_abbreviation(watchpoint.condition)} {watch_words(watchpoint, raw=raw)}"


def watch_line(watchpoint: Watchpoint) -> str:
    """Returns the ``--watch`` text; words for a recommended watchpoint, whose selection is long."""
    if watchpoint.name.startswith(RECOMMENDED):
        return finding_words(watchpoint)
    return format_watch(watchpoint)


def _limits(condition: Condition, params: Mapping[str, ParamValue]) -> Iterable[str]:
    values = {name: format_value(value) for name, value in params.items()}
    for spec in condition.params:
        if spec.name == EXPRESSION and spec.name in values:
            yield clean(pretty(values[spec.name]))
            continue
        if spec.name not in values or not (spec.visible and spec.check):
            continue
        label, percent, _ = spec.label.partition(" %")
        if spec.needs:
            label = label.replace("range", _interval([values.get(end, "") for end in spec.needs]))
        yield f"{label} {values[spec.name]}{'%' if percent else ''}"


def selection_words(selection: NodeSelection, *, raw: bool = True) -> str:
    """Returns ``weights without biases``, ``Tanh operators``; ``raw`` gives selection text if there are no words."""
    if not selection.include:
        return "no nodes"
    union = _union if raw else _short_union
    without = f" without {union(selection.exclude)}" if selection.exclude else ""
    return union(selection.include) + without


_NAMED = 2
"""The number of nodes and scopes that are named one by one in a line."""
_PLAIN = re.compile(r"(\^?)((?:[\w/-]|\\[./-])+)(\$?)", re.ASCII)
"""A regular expression that matches plain text, possibly at the start or end of the name."""


def _short_union(selectors: Iterable[NodeSelector]) -> str:
    listed = list(selectors)
    named = [each for each in listed if each.kind in (NodeKind.NODE, NodeKind.SCOPE)]
    known = [each for each in listed if each not in named and (each.kind is not NodeKind.REGEX or each.text == BIAS)]
    parts = [_union(known)] if known else []
    parts += [_pattern_words(each.text) for each in listed if each not in named and each not in known]
    scopes = [clean(each.text) for each in named if each.kind is NodeKind.SCOPE]
    nodes = [clean(each.text) for each in named if each.kind is NodeKind.NODE]
    parts += scopes if len(scopes) <= _NAMED else [f"{len(scopes):,} scopes"]
    parts += nodes if len(nodes) <= _NAMED else [f"{len(nodes):,} nodes by name"]
    return ", ".join(dict.fromkeys(parts))


def _pattern_words(pattern: str) -> str:
    match = _PLAIN.fullmatch(pattern)
    if match is None:
        return "names by an expression"
    start, text, end = match[1], match[2].replace("\\", ""), match[3]
    if start and end:
        return f"the name {text}"
    where = "that begin with" if start else "that end in" if end else "with"
    return f"names {where} {text}"


def _union(selectors: Iterable[NodeSelector]) -> str:
    types: list[str] = []
    parts: list[str] = []
    for selector in selectors:
        if selector.kind is NodeKind.TYPE:
            types.append(clean(selector.text))
        elif selector.kind is NodeKind.CATEGORY:
            parts.append(_PLURALS.get(selector.text, clean(selector.text)))
        elif selector == NodeSelector(NodeKind.REGEX, BIAS):
            parts.append("biases")
        else:
            parts.append(clean(format_selection(NodeSelection((selector,)))))
    return ", ".join([*parts, *([f"{', '.join(types)} operators"] if types else [])])
