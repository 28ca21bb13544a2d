"""On dumps of MindSpore 2.10, which the old tool cannot read, every hit equals plain arithmetic on the files.

Nothing of the package takes part in the expectation: names are split with one regular expression, values come from
``np.load``, and each condition is written out once more in float64.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.session.opened import checked, file_of, opened
from tests.thorough import later
from tui_debugger.model import ErrorBits, Hit, Side, WatchResult
from tui_debugger.session import Session

Values = npt.NDArray[np.float64]

NAME = re.compile(r"(?P<tensor>.+\.\d+\.\d+)\.(?P<time>\d+)\.(?P<place>output\.\d+)\.\w+\.\w+\.npy")
NEVER = ("OO", "WI zero_percentage_ge=0")
"""Not judged by values, or judged on initial values only, which no output file holds."""
OVERFLOW = ("TO", "WO", "GE")
PLAIN = (
    "TZ zero_percentage_ge=100", "TZ zero_percentage_ge=50", "TZ zero_percentage_ge=0",
    "TL abs_mean_gt=0.1", "TL max_gt=1", "TL min_gt=0", "TL mean_gt=0.01",
    "TL abs_mean_gt=10 max_gt=0.5 min_gt=-0.1 mean_gt=5", "WL max_gt=0.3", "GL abs_mean_gt=1e-3",
    "TS abs_mean_lt=0.01", "TS max_lt=0.001", "TS min_lt=-1", "TS mean_lt=-0.01",
    "TS abs_mean_lt=1e-8 max_lt=0.001 min_lt=-2 mean_lt=0", "WS abs_mean_lt=0.05", "GV abs_mean_lt=1e-9",
    "TR range_start_inclusive=0 range_end_inclusive=0.5 range_percentage_gt=50",
    "TR range_start_inclusive=-0.1 range_end_inclusive=0.1 range_percentage_lt=20",
    "TR max_min_gt=2", "TR max_min_lt=0.5",
    "AR range_start_inclusive=-1 range_end_inclusive=0 range_percentage_gt=99.9 max_min_lt=0.1",
)  # fmt: skip
CHANGES = (
    "WCL abs_mean_update_ratio_gt=0.1", "WCL abs_mean_update_ratio_gt=1", "WCL abs_mean_update_ratio_gt=0.1 epsilon=1",
    "WCS abs_mean_update_ratio_lt=0.0001", "WCS abs_mean_update_ratio_lt=0.1", "WCS abs_mean_update_ratio_lt=0",
)  # fmt: skip
UNCHANGED = (
    "WNC", "WNC rtol=0.1", "WNC rtol=0 atol=0", "WNC rtol=0 atol=0.01", "WNC equal_nan=true", "WNC rtol=0.1 equal_nan=1"
)  # fmt: skip
RARE = ("WCS abs_mean_update_ratio_lt=0", "WCL abs_mean_update_ratio_gt=0.1 epsilon=1")
"""A ratio is never below 0, and nothing here changes by more than a tenth beside an epsilon of 1."""
WATCHES = (*NEVER, *OVERFLOW, *PLAIN, *CHANGES, *UNCHANGED)
QUANTITIES: dict[str, Callable[[Values], float]] = {
    "abs_mean": lambda x: float(np.mean(np.abs(x))),
    "mean": lambda x: float(np.mean(x)),
    "max": lambda x: float(np.max(x)),
    "min": lambda x: float(np.min(x)),
    "max_min": lambda x: float(np.max(x) - np.min(x)),
    "zero_percentage": lambda x: 100.0 * float(np.sum(x == 0)) / x.size,
}
HOLDS: dict[str, Callable[[float, float], bool]] = {
    "gt": lambda a, b: a > b,
    "lt": lambda a, b: a < b,
    "ge": lambda a, b: a >= b,
}


@dataclass
class Expected:
    """What plain arithmetic says about one watchpoint on one tensor.

    Attributes:
        error: why nothing can be compared.
        hit: whether the condition holds.
        actual: the value found, by parameter.
        close_call: the value found is so close to the threshold that rounding decides.
    """

    error: ErrorBits = ErrorBits.NONE
    hit: bool = False
    actual: dict[str, float] = field(default_factory=dict)
    close_call: bool = False


def settings(text: str) -> tuple[str, dict[str, float]]:
    abbr, *pairs = text.split()
    values = dict(pair.split("=") for pair in pairs)
    return abbr, {name: 1.0 if value == "true" else float(value) for name, value in values.items()}


def expectation(text: str, now: Values, before: Values | None) -> Expected:
    """One condition, written out once more from its definition."""
    abbr, params = settings(text)
    if abbr in ("OO", "WI") or not now.size:
        return Expected()
    nan, inf = bool(np.isnan(now).any()), bool(np.isinf(now).any())
    if abbr in OVERFLOW:
        return Expected(hit=nan or inf)
    error = ErrorBits.NAN if nan and not params.get("equal_nan") else ErrorBits.NONE
    error |= ErrorBits.INF if inf else ErrorBits.NONE
    if abbr in ("WCL", "WCS", "WNC"):
        if before is None:
            error |= ErrorBits.NO_PREVIOUS
        elif before.shape != now.shape:
            error |= ErrorBits.SHAPE_CHANGED
        elif not error and abbr == "WNC":
            return Expected(hit=unchanged(now, before, params))
    if error:
        return Expected(error)
    return thresholds(params, now, before)


def unchanged(now: Values, before: Values, params: dict[str, float]) -> bool:
    with np.errstate(invalid="ignore"):
        near = np.abs(now - before) <= params.get("atol", 1e-8) + params.get("rtol", 1e-5) * np.abs(before)
    near &= np.isfinite(before)
    if params.get("equal_nan"):
        near |= np.isnan(now) & np.isnan(before)
    return bool(near.all())


def thresholds(params: dict[str, float], now: Values, before: Values | None) -> Expected:
    expected = Expected()
    for name, value in params.items():
        quantity, _, sign = name.rpartition("_")
        if sign not in HOLDS:
            continue
        actual = quantify(quantity, params, now, before)
        if np.isnan(actual):
            continue
        expected.actual[name] = actual
        expected.hit |= HOLDS[sign](actual, value)
        rounding = 0.0 if "percentage" in name or "m" not in quantity else 1e-14 * float(np.abs(now).max())
        expected.close_call |= actual != value and abs(actual - value) <= rounding
    return expected


def quantify(quantity: str, params: dict[str, float], now: Values, before: Values | None) -> float:
    if quantity == "abs_mean_update_ratio":
        assert before is not None
        with np.errstate(invalid="ignore"):
            return float(np.mean(np.abs(now - before)) / (np.mean(np.abs(before)) + params.get("epsilon", 1e-9)))
    if quantity == "range_percentage":
        inside = (now >= params["range_start_inclusive"]) & (now <= params["range_end_inclusive"])
        return 100.0 * float(inside.sum()) / now.size
    return QUANTITIES[quantity](now)


def outputs(root: Path) -> Iterator[tuple[Path, Path | None]]:
    """Every output file of a dump of one rank and one graph, with its counterpart of the step before."""
    steps = sorted((path for path in root.glob("rank_0/*/0/*") if path.name.isdigit()), key=lambda path: int(path.name))
    before: dict[tuple[str, str], Path] = {}
    for step in steps:
        now: dict[tuple[str, str], Path] = {}
        for path in sorted(step.iterdir()):
            match = NAME.fullmatch(path.name)
            if match:
                assert now.setdefault((match["tensor"], match["place"]), path) == path, "two files of one tensor"
        for key, path in now.items():
            yield path, before.get(key)
        before = now


def doubles(path: Path) -> Values:
    values: Values = np.load(path).astype(np.float64)
    return values


@dataclass
class Compared:
    """One checked dump: results by file and watchpoint text, and the expectation beside them."""

    session: Session
    results: dict[tuple[Path, str], WatchResult]
    expected: dict[tuple[Path, str], Expected]


@pytest.fixture(scope="module", params=["mindspore-2.10-mlp", later("mindspore-2.10-nan")])
def compared(request: pytest.FixtureRequest, dumps: Callable[[str], Path]) -> Compared:
    root = dumps(request.param)
    session = opened(root, *WATCHES)
    texts: dict[int, str] = {w.id: text for w, text in zip(session.watchpoints.items(), WATCHES, strict=True)}
    hits: list[Hit] = [hit for hit in checked(session) if hit.key.side is Side.OUTPUT]
    results = {(file_of(session, hit), texts[r.watchpoint]): r for hit in hits for r in hit.results}
    assert len(results) == sum(len(hit.results) for hit in hits), "two results on one file"
    expected: dict[tuple[Path, str], Expected] = {}
    for path, previous in outputs(root):
        now, before = doubles(path), None if previous is None else doubles(previous)
        expected |= {(path, text): expectation(text, now, before) for text in WATCHES}
    return Compared(session, results, expected)


@pytest.mark.parametrize("text", WATCHES)
def test_hits_on_outputs_equal_plain_arithmetic(compared: Compared, text: str) -> None:
    ours: dict[Path, Any] = {path: result for (path, of), result in compared.results.items() if of == text}
    plain = {path: expected for (path, of), expected in compared.expected.items() if of == text}
    assert set(ours) <= set(plain)
    for path, expected in plain.items():
        result = ours.get(path)
        if expected.close_call:
            continue
        if not expected.hit and not expected.error:
            assert result is None, path.name
            continue
        assert result is not None, path.name
        assert result.error == expected.error, path.name
        found = {param.name: param.actual for param in result.params}
        scale = float(np.abs(doubles(path)).max(initial=0)) if expected.actual else 0.0
        for name, actual in expected.actual.items():
            assert found[name] == pytest.approx(actual, rel=1e-9, abs=1e-14 * scale), (path.name, name)


def test_the_parameter_sets_hit_something_and_spare_something(compared: Compared) -> None:
    for text in (*PLAIN, *CHANGES, *UNCHANGED):
        judged = [e for (_, of), e in compared.expected.items() if of == text and not e.error]
        assert not all(e.hit for e in judged) or text.endswith("_ge=0"), text
        assert any(e.hit for e in judged) or text in RARE, text


def test_hardly_any_comparison_is_a_close_call(compared: Compared) -> None:
    assert sum(e.close_call for e in compared.expected.values()) < 0.001 * len(compared.expected)


def test_every_output_file_is_judged(compared: Compared) -> None:
    """``zero_percentage_ge=0`` holds for every tensor of finite numbers, so it hits or says why not."""
    every = {path for path, _ in compared.expected}
    text = "TZ zero_percentage_ge=0"
    assert {path for path, of in compared.results if of == text} == {p for p in every if doubles(p).size}
