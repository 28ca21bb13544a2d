"""Differences of two tensors as text, and tolerances: ``rtol=1e-5 atol=1e-8``, ``5%``, ``exact``."""

from __future__ import annotations

import math
from typing import Final

from tui_debugger.model import TensorStats
from tui_debugger.stats.compare import Differences, DifferingElement
from tui_debugger.stats.compare_pairs import EXACT, Boundary
from tui_debugger.stats.fields import COMPARED, COMPARED_COUNTS
from tui_debugger.text.numbers import are, count, number, percent
from tui_debugger.text.phrases import of_all
from tui_debugger.text.values import exact_text

_NAMES = {"rtol": "rtol", "atol": "atol", "percent": "percent"}


def format_tolerance(tolerance: Boundary) -> str:
    words = [f"{name}={value!r}" for name, value in (("rtol", tolerance.rtol), ("atol", tolerance.atol)) if value]
    words += [f"{tolerance.percent!r}%"] if tolerance.percent else []
    return " ".join(words) or "exact"


def parse_tolerance(text: str) -> Boundary | str:
    """Returns the tolerance, or the error as text."""
    values: dict[str, float] = {}
    words = text.replace(",", " ").replace(" %", "%").split()
    if words in ([], ["exact"]):
        return EXACT
    for word in words:
        name, equals, number = word.partition("=") if not word.endswith("%") else ("percent", "=", word[:-1])
        if not equals or name not in _NAMES:
            return f"{word!r} is not one of rtol=X, atol=X, X%"
        try:
            value = float(number)
        except ValueError:
            return f"{number!r} is not a number"
        if not 0 <= value < math.inf or (name == "percent" and value > 100):
            return f"{word!r} is out of range: {'0 to 100' if name == 'percent' else '0 or more'}"
        values[name] = value
    return Boundary(**values)


NO_COSINE: Final = "no direction"


def _part_of(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({percent(100 * part / whole)} %)" if whole else "no elements"


def verdict(found: Differences) -> str:
    if not found.count:
        return "equal: both are without elements"
    if found.nothing_to_compare:
        return (
            f"cannot judge: {of_all(found.count, found.count)} {are(found.count)} NaN on both sides: nothing to compare"
        )
    within = "" if found.tolerance.exact else " within the tolerance"
    if found.outside:
        beyond = "" if found.tolerance.exact else " beyond the tolerance"
        return f"different{beyond}: {_part_of(found.outside, found.count)}"
    if found.different:
        return f"equal{within}: {_part_of(found.different, found.count)} differ by less{_nan_of(found)}"
    if found.odd.both_nan:
        return f"equal: {_part_of(found.equal, found.count)}{_nan_of(found)}"
    return f"equal: {of_all(found.count, found.count)}"


def _nan_of(found: Differences) -> str:
    """Returns the number of NaN pairs, which count as equal but cannot be compared."""
    both = found.odd.both_nan
    return f"; {both:,} {are(both)} NaN on both sides" if both else ""


def tolerance_text(tolerance: Boundary, boundary: float) -> str:
    """Returns ``|d| ≤ 1e-8 + 1e-5·|there|``, with the boundary of the slider, or ``exact``."""
    parts = []
    if tolerance.rtol or tolerance.atol:
        terms = [number(tolerance.atol)] if tolerance.atol or not tolerance.rtol else []
        terms += [f"{number(tolerance.rtol)}·|there|"] if tolerance.rtol else []
        parts.append(f"|d| ≤ {' + '.join(terms)}")
    if tolerance.percent:
        parts.append(f"|d| ≤ {number(boundary)} ({tolerance.percent:g} % of the greatest)")
    return " or ".join(parts) or "exact"


def odd_text(found: Differences) -> str:
    """Returns the numbers of NaN and Inf on each side; empty if all elements are finite."""
    odd = found.odd
    kinds = (
        ("NaN only here", odd.nan_here),
        ("NaN only there", odd.nan_there),
        ("both NaN", odd.both_nan),
        ("Inf only here", odd.inf_here),
        ("Inf only there", odd.inf_there),
        ("opposite Inf", odd.opposite_inf),
        ("same Inf", odd.same_inf),
    )
    return "  ".join(f"{name} {amount:,}" for name, amount in kinds if amount)


def counts_text(found: Differences) -> str:
    parts = [f"equal {found.equal:,}", f"different {found.different:,}"]
    parts += [f"sign flips {found.sign_flips:,}"] if found.sign_flips else []
    return "  ".join(filter(None, (*parts, odd_text(found))))


def error_text(found: Differences) -> str:
    """Returns absolute and relative errors, and the elements they cover if these are not all."""
    if not found.finite:
        return "no element is finite on both sides: there are no errors to measure" if found.count else ""
    parts = [f"max |d| {number(found.max_abs)}", f"mean |d| {number(found.mean_abs)}"]
    parts.append(f"max relative {number(found.max_rel)}")
    if found.from_zero:
        parts.append(f"(and {found.from_zero:,} from 0)")
    if found.finite < found.count:
        parts.append(f"over {found.finite:,} finite pairs")
    return "  ".join(parts)


def vector_text(found: Differences) -> str:
    if not found.finite:
        return ""
    cosine = NO_COSINE if found.cosine is None else f"{found.cosine:.9g}"
    relative = "" if found.relative_norm is None else f" ({number(found.relative_norm)} of ‖there‖)"
    return f"cosine {cosine}  ‖d‖ {number(found.norm)}{relative}"


def ulp_text(found: Differences) -> str:
    if not found.finite:
        return ""
    if found.ulps is None:
        return found.no_ulps
    ulps = found.ulps
    if not ulps.measured:
        return f"no pair is within the range of {ulps.type}"
    missing = found.finite - ulps.measured
    beyond = f"  ({missing:,} beyond its range)" if missing else ""
    return f"max {ulps.greatest:,} ULP of {ulps.type}  within 1 ULP {_part_of(ulps.within_one, ulps.measured)}{beyond}"


def element_text(entry: DifferingElement, *, exact: bool = False) -> str:
    """Returns one element of both tensors with all digits, and their distance; ``exact`` also gives it all digits."""
    plain = exact or isinstance(entry.difference, complex)
    far = exact_text(entry.difference) if plain else number(float(entry.difference))
    parts = [f"here {exact_text(entry.here)}", f"there {exact_text(entry.there)}", f"d {far}"]
    parts += [f"rel {number(entry.relative)}"] if entry.relative is not None else []
    parts += [f"{entry.ulp if exact else number(entry.ulp)} ULP"] if entry.ulp is not None else []
    return "  ".join(parts)


def stats_lines(found: Differences) -> list[str]:
    titles = ("", *(field.on_screen for field in (*COMPARED, *COMPARED_COUNTS)))
    rows = [titles, *(_stats_cells(name, getattr(found, name)) for name in ("here", "there", "difference"))]
    kept = [i for i in range(len(titles)) if i < _ALWAYS or any(row[i] != "0" for row in rows[1:])]
    widths = {i: max(len(row[i]) for row in rows) for i in kept}
    return ["  ".join(row[i].rjust(widths[i]) if i else row[i].ljust(widths[i]) for i in kept) for row in rows]


_ALWAYS: Final = 1 + len(COMPARED)
"""The number of columns that are always there; counts only if there is something to count."""


def _stats_cells(name: str, stats: TensorStats) -> tuple[str, ...]:
    sizes = (number(field.value(stats)) for field in COMPARED)
    counts = (count(int(field.value(stats) or 0)) for field in COMPARED_COUNTS)
    return ("d" if name == "difference" else name, *sizes, *counts)
