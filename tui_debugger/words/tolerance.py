"""Tolerances as text: ``rtol=1e-5 atol=1e-8``, ``5%``, ``exact``."""

from __future__ import annotations

import math

from tui_debugger.analysis.difference.tolerance import EXACT, Tolerance

_NAMES = {"rtol": "rtol", "atol": "atol", "percent": "percent"}


def format_tolerance(tolerance: Tolerance) -> str:
    """The text that ``parse_tolerance`` reads back."""
    words = [f"{name}={value!r}" for name, value in (("rtol", tolerance.rtol), ("atol", tolerance.atol)) if value]
    words += [f"{tolerance.percent!r}%"] if tolerance.percent else []
    return " ".join(words) or "exact"


def parse_tolerance(text: str) -> Tolerance | str:
    """The tolerance, or what is wrong with the text."""
    values: dict[str, float] = {}
    words = text.replace(",", " ").replace(" %", "%").split()
    if words in ([], ["exact"]):
        return EXACT
    for word in words:
        name, equals, number = word.partition("=") if not word.endswith("%") else ("percent", "=", word[:-1])
        if not equals or name not in _NAMES:
            return f"{word!r} is none of rtol=X, atol=X, X%"
        try:
            value = float(number)
        except ValueError:
            return f"{number!r} is not a number"
        if not 0 <= value < math.inf or (name == "percent" and value > 100):
            return f"{word!r} is out of range: {'0 to 100' if name == 'percent' else '0 or more'}"
        values[name] = value
    return Tolerance(**values)
