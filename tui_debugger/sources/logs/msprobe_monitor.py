"""Reads the files of msprobe's monitor, V1 and V2: CSV files of a rank with statistics of tensors by step.

A row is a tensor of a step. V2 has a file for each kind of tensor, and a ``scope`` column; V1 has a file for each
scope, rounds numbers to six decimals, and writes a row of ``nan`` where there was no tensor. A row that repeats in its
step is the next micro-batch.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tui_debugger.errors import reason_of
from tui_debugger.graph.table import PARAMETER
from tui_debugger.model import Side
from tui_debugger.sources.logs.entries import (
    LoggedStep,
    LogNumbers,
    LogOperation,
    LogTensor,
    number_rounds,
    scope,
    shape_of,
)
from tui_debugger.sources.logs.layout import MONITOR_FILE
from tui_debugger.sources.text_lines import text_lines
from tui_debugger.text.numbers import plural

NOTICES: Final = (
    "the monitor of msprobe writes statistics, no values; its NaN counts leave Inf out, which extremes and norms show",
    "numbers of monitor V1 have six decimals: 0.0 is not known, never zero",
    "monitor V2 has no shapes: of a tensor only the elements that are NaN, and one other, are counted",
    "a row of collective communication (cc) is all its calls of a step together; extremes leave out calls with NaN",
)
STATISTICS: Final = ("min", "max", "mean", "norm", "nans")
_FIELDS: Final = {"min": "minimum", "max": "maximum", "mean": "mean", "norm": "l2"}
_MODULE: Final = re.compile(r"(?:(.*)\.|\.?)(?:grad_)?(input|output)(?:[._](\d{1,4}))?", re.DOTALL)
_COLLECTIVE: Final = re.compile(r"(.+)/(pre|post)_(\d{1,4})", re.DOTALL)
_NUMBER: Final = re.compile(r"nan|[+-]?(?:inf|\d{1,40}(?:\.\d{0,40})?(?:e[+-]?\d{1,4})?)")
_ROOT: Final = "<root>"
_GRADIENTS: Final = "Gradients/"
_MOST_SLOTS: Final = 4096
_SCOPES: Final = {
    "forward": "actv",
    "actv": "actv",
    "backward": "actv_grad",
    "actv_grad": "actv_grad",
    "unreduced": "grad_unreduced",
    "grad_unreduced": "grad_unreduced",
    "reduced": "grad_reduced",
    "grad_reduced": "grad_reduced",
    "comm": "comm",
    "exp_avg": "exp_avg",
    "exp_avg_sq": "exp_avg_sq",
    "param_origin": "param_origin",
    "param_updated": "param_updated",
}
"""By scope in V2 or V1, the scope in V1."""
_ORDER: Final = {
    scope: number
    for number, scope in enumerate(
        (
            *("param_origin", "actv", "actv_grad", "grad_unreduced", "comm", "grad_reduced"),
            *("exp_avg", "exp_avg_sq", "param_updated"),
        )
    )
}


@dataclass(frozen=True, slots=True)
class MonitorRow:
    """One tensor of a step as a recorder names it."""

    target: str
    """Name of a parameter or a communication, or of a module with ``.input`` or ``.output``."""
    scope: str
    """A value of ``_SCOPES``."""
    stage: int
    """Number in a virtual pipeline; -1 or 0 where there is one only."""
    numbers: LogNumbers | None
    """Statistics; None: unreadable."""
    dtype: str
    shape: tuple[int, ...] | None
    texts: dict[str, str]


def read(paths: Sequence[str], rank: int) -> dict[int, LoggedStep]:  # noqa: ARG001 - all of them are of the rank
    """Returns the steps of one rank from its files; raises OSError when none of them can be read."""
    rows: dict[int, list[MonitorRow]] = {}
    problems = list[str]()
    failed: OSError | None = None
    good = 0
    for path in paths:
        name = path.rpartition("/")[2]
        try:
            strange = _read_file(path, name, rows)
        except OSError as error:
            failed = error
            problems.append(f"{name}: {reason_of(error)}")
            continue
        except ValueError as error:
            strange = 0
            problems.append(f"{name}: {error}")
        good += 1
        if strange:
            problems.append(f"{name}: {plural(strange, 'line')} without a statistic: the step is not known")
    if failed is not None and not good:
        raise failed
    if problems and not rows:
        raise ValueError("; ".join(problems[:4]))
    updated = any(row.scope == "param_updated" for each in rows.values() for row in each)
    return {number: step_of(rows[number], problems, updated=updated) for number in sorted(rows)}


def step_of(rows: Sequence[MonitorRow], problems: Sequence[str], *, updated: bool) -> LoggedStep:
    """Returns the operations of a step; ``updated``: parameters are also recorded as the step leaves them."""
    operations: dict[str, LogOperation] = {}
    last: dict[str, tuple[int, int]] = {}
    seen = set[tuple[str, Side, int]]()
    for at, row in enumerate(rows):
        operation, side, slot = _place(row, updated=updated)
        known = operations.setdefault(operation.name, operation)
        known.tensors.append(LogTensor(side, slot, row.numbers, row.dtype, row.shape, others=row.texts))
        if (known.name, side, slot) not in seen:  # a module comes after those inside it, as in the first micro-batch
            seen.add((known.name, side, slot))
            last[known.name] = _ORDER.get(row.scope, len(_ORDER)), at
    ordered = sorted(operations.values(), key=lambda each: last[each.name])
    _join(ordered, updated=updated)
    number_rounds(ordered)
    return LoggedStep(ordered, list(problems))


def _join(operations: Sequence[LogOperation], *, updated: bool) -> None:
    """Adds the edges that names tell, behind the inputs that were recorded.

    A module computes with the weights from the beginning of the step. Where these were not recorded, or nothing tells
    which modules have weights, the module is ``partial``.
    """
    rows = {operation.name: row for row, operation in enumerate(operations)}
    made_of: dict[int, list[int]] = {}
    weights = _weights_of(operations)
    for row, operation in enumerate(operations):
        name = operation.name
        back = _GRADIENTS if name.startswith(_GRADIENTS) else ""
        if operation.type in {"activation", "gradient"}:
            module = name.removeprefix(back)
            # A gradient also depends on values of the forward.
            known = None if back or weights is None else weights.get(module, [])
            begins = [rows.get(f"{each}/param_origin", rows.get(each, -1) if updated else -1) for each in known or ()]
            operation.partial = known is None or -1 in begins
            made_of.setdefault(row, []).extend(each for each in begins if each >= 0)
            around = None
            while module != _ROOT and around is None:
                module = module.rpartition(".")[0] or _ROOT
                around = rows.get(back + module)
            if around is not None and around > row:
                made_of.setdefault(around, []).append(row)
            continue
        weight, _, kind = name.rpartition("/")
        state = next((each for each in ("exp_avg_sq.", "exp_avg.") if name.startswith(each)), "")
        module_gradient = f"{_GRADIENTS}{weight.rpartition('.')[0]}"
        if kind == "grad_unreduced":
            sources = [module_gradient]
        elif kind == "grad_reduced":
            sources = [f"{weight}/grad_unreduced", module_gradient]
        elif state:
            parameter = name.removeprefix(state)
            sources = [f"{parameter}/grad_reduced", f"{parameter}/grad_unreduced"]
        elif operation.type == PARAMETER:
            sources = [f"exp_avg.{name}", f"{name}/grad_reduced", f"{name}/grad_unreduced"]
        else:
            continue
        source = next((rows[each] for each in sources if each in rows), None)
        if source is not None:
            made_of[row] = [source]
    for row, makers in made_of.items():
        if not makers:
            continue
        operation = operations[row]
        recorded = max((each.slot + 1 for each in operation.tensors if each.side is Side.INPUT), default=0)
        fed = operation.type in {"activation", "gradient"}  # has an input, recorded or not
        operation.inputs = [(-1, 0)] * min(max(recorded, fed), _MOST_SLOTS)
        operation.inputs += [(maker, 0) for maker in makers[-_MOST_SLOTS:]]
        operation.inferred, operation.flows = len(makers), True


def _weights_of(operations: Sequence[LogOperation]) -> dict[str, list[str]] | None:
    """Weights of each module, by their own rows or those of their gradients or optimizer state; None without any."""
    found: dict[str, list[str]] = {}
    for operation in operations:
        if operation.type in {"activation", "gradient"} or operation.path.startswith("Communication/"):
            continue
        name = operation.name
        for state in ("exp_avg_sq.", "exp_avg."):
            name = name.removeprefix(state)
        weight = name.partition("/")[0]
        known = found.setdefault(weight.rpartition(".")[0] or _ROOT, [])
        if weight not in known:
            known.append(weight)
    return found or None


def _place(row: MonitorRow, *, updated: bool) -> tuple[LogOperation, Side, int]:
    prefix = f"vpp{row.stage}." if row.stage > 0 else ""
    name = prefix + row.target
    side, slot = Side.OUTPUT, 0
    if row.scope in {"actv", "actv_grad"}:
        match = _MODULE.fullmatch(row.target)
        module, kind = (prefix + (match[1] or _ROOT), match[2]) if match is not None else (name, "output")
        slot = int(match[3] or 0) if match is not None else 0
        backward = row.scope == "actv_grad"
        if match is not None and (kind == "input") != backward:  # a backward puts out the gradient of an input
            side = Side.INPUT
        parent, _, leaf = module.rpartition(".")
        path = scope(parent, leaf, backward=backward)
        named = f"Gradients/{module}" if backward else module
        return LogOperation(named, path, "gradient" if backward else "activation", flows=False), side, slot
    if row.scope == "comm":
        match = _COLLECTIVE.fullmatch(row.target)
        call = row.target
        if match is not None:
            call, side, slot = match[1], Side.INPUT if match[2] == "pre" else Side.OUTPUT, int(match[3])
        return (
            LogOperation(prefix + call, f"Communication/{prefix}{call}", call.partition("/")[0], flows=False),
            side,
            slot,
        )
    if row.scope in {"exp_avg", "exp_avg_sq"}:
        name = name.removesuffix(f".{row.scope}")
        return LogOperation(f"{row.scope}.{name}", scope(name, row.scope), PARAMETER, flows=False), side, slot
    if row.scope == "param_updated" or (row.scope == "param_origin" and not updated):
        parent, _, leaf = name.rpartition(".")
        return LogOperation(name, scope(parent, leaf), PARAMETER, flows=False), side, slot
    path = scope(name, row.scope, backward=row.scope.startswith("grad"))
    kind = "all_reduce" if row.scope == "grad_reduced" else row.scope  # other ranks have a part in it
    return LogOperation(f"{name}/{row.scope}", path, kind, flows=False), side, slot


def _read_file(path: str, name: str, rows: dict[int, list[MonitorRow]]) -> int:
    """Adds the rows of a file; returns the number of lines that make no sense.

    Raises:
        OSError: it cannot be read.
        ValueError: the monitor did not write it.
    """
    match = MONITOR_FILE.fullmatch(name)
    said = match[1] if match is not None else ""
    header: list[str] | None = None
    strange = 0
    for text, whole in text_lines(path):
        try:
            words = next(csv.reader([text]), []) if whole else None
        except csv.Error:
            words = None
        if words is None:
            strange += 1
            continue
        if header is None:
            header = words
            if "step" not in header or not {"name", "module_name"} & set(header):
                raise ValueError("its first line names no step and no tensor")
            continue
        if not words:
            continue
        cells = dict(zip(header, words, strict=False))
        scope_name = _SCOPES.get(cells.get("scope", said), "")
        step = cells.get("step", "")
        if len(words) != len(header) or not scope_name or not (step.isascii() and step.isdecimal() and len(step) < 13):
            strange += 1
            continue
        row = _row(cells, scope_name)
        if row is not None:
            rows.setdefault(int(step), []).append(row)
    if header is None:
        raise ValueError("its first line is cut, or zeros" if strange else "empty")
    return strange


def _row(cells: Mapping[str, str], scope_name: str) -> MonitorRow | None:
    """A line as a row; None where there was no tensor."""
    texts = {name: cells[name] for name in STATISTICS if name in cells}
    empty = "nan" in {texts.get("nans"), cells.get("shape")}
    if empty and set(texts.values()) <= {"nan"}:
        return None
    rounded = "name" in cells
    shape = shape_of(cells["shape"][1:-1]) if re.fullmatch(r"\[[\d, ]*\]", cells.get("shape", "")) else None
    dtype = cells.get("dtype", "").removeprefix("torch.")
    stage = cells.get("vpp_stage", "")
    number = int(stage) if stage.isascii() and stage.isdecimal() and len(stage) < 5 else -1
    target = cells["name"] if rounded else cells["module_name"]
    return MonitorRow(target, scope_name, number, _numbers(texts, rounded=rounded), dtype, shape, texts)


def _numbers(texts: Mapping[str, str], *, rounded: bool) -> LogNumbers | None:
    found: dict[str, float] = {}
    for name, text in texts.items():
        if not _NUMBER.fullmatch(text):
            return None
        found[name] = float(text)
    return numbers_of(found, rounded=rounded)


def numbers_of(found: Mapping[str, float], *, rounded: bool) -> LogNumbers | None:
    """Numbers by their names in ``STATISTICS``; ``rounded``: zeros are unknown. None: they make no sense."""
    counted = found.get("nans")
    if counted is not None and (not math.isfinite(counted) or counted < 0):
        return None
    values = {_FIELDS[name]: value for name, value in found.items() if name != "nans"}
    numbers = LogNumbers.rounded(values) if rounded else LogNumbers.exact(values)
    numbers.nan = None if counted is None else min(int(counted), 1 << 62)
    return numbers if numbers.known else None
