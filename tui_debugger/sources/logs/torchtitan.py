"""Reads torchtitan's numerics log (``dump_numerics``): statistics of each operation, its producers, its source line.

A block is an operation in the order of dispatch. ``Output hash`` is the L1 norm in float64. Inputs have only that, and
the name of the producer's block where the tool captured it; otherwise an equal hash tells the producer.
"""

from __future__ import annotations

import re
from typing import Final

from tui_debugger.graph.stacks import is_framework
from tui_debugger.model import Frame, Side
from tui_debugger.opener import read_lines
from tui_debugger.sources.logs.entries import (
    Hashes,
    LoggedStep,
    LogNumbers,
    LogOperation,
    LogTensor,
    scope,
    shape_of,
    sign_from,
    unique,
)
from tui_debugger.text.numbers import plural

NOTICES: Final = (
    "a numerics log has extremes, means and norms, no values: they show NaN and Inf, not how many there are",
    "tensors below the recorder's min_numel (1000 by default) and its excluded operators are not in the log",
    "inputs have the L1 norm only, and no shape; where no producer is named, the last output of that norm is inferred",
)
_KEY: Final = re.compile(r"\[(.+)/op_(\d{1,18})_(.+)\]")
_FIELD: Final = re.compile(r"\s+([A-Z][A-Za-z0-9 ]{1,40}):\s?(.*)")
_SHAPE: Final = re.compile(r"torch\.Size\(\[([\d, ]*)\]\)(?:, Dtype: torch\.([a-z0-9_]{1,40}))?")
_NUMBER: Final = re.compile(r"nan|[+-]?(?:inf|\d{1,40}(?:\.\d{1,40})?(?:e[+-]?\d{1,4})?)")
_TOTAL: Final = re.compile(r"Total captured activations: (\d{1,18})")
_NOWHERE: Final = "<none>"
_STATISTICS: Final = {"Min": "minimum", "Max": "maximum", "Mean": "mean", "L1 norm": "l1", "L2 norm": "l2"}
_MOST_SLOTS: Final = 4096


def read(path: str) -> LoggedStep:
    """Returns the operations of a log; raises OSError when it cannot be read."""
    step, blocks, total, foreign = LoggedStep(), list[tuple[str, dict[str, str]]](), -1, 0
    for raw in read_lines(path):
        line = raw.decode("utf-8", "replace").rstrip()
        if line[:1] == "[":
            blocks.append((line, {}))
        elif blocks:
            match = _FIELD.fullmatch(line)
            if match is not None:
                blocks[-1][1][match[1]] = match[2]
            elif line:
                foreign += 1
        elif (match := _TOTAL.fullmatch(line)) is not None:
            total = int(match[1])
    if foreign:
        step.problems.append(f"{plural(foreign, 'line')} that no numerics log has")
    if len(blocks) != total:
        said = f"of {total:,} captured operations" if total >= 0 else "operations, and no line that says how many"
        step.problems.append(f"it holds {len(blocks):,} {said}: it is cut, damaged, or still being written")
    _OperationBlocks(step).take(blocks)
    return step


class _OperationBlocks:
    def __init__(self, step: LoggedStep) -> None:
        self._step = step
        self._hashes = Hashes()
        self._numbers: dict[str, int] = {}
        """The number of the operation by the name that later blocks use."""
        self._outputs: list[list[str]] = []
        """The hashes of the outputs of each operation."""

    def take(self, blocks: list[tuple[str, dict[str, str]]]) -> None:
        seen: dict[str, int] = {}
        strange = 0
        for line, fields in blocks:
            match = _KEY.fullmatch(line)
            strange += match is None
            key = line.strip("[]") or "?"
            module, kind = (match[1], match[3]) if match is not None else ("", key)
            leaf = key.rpartition("/")[2]
            backward = fields.get("Phase", "") == "backward"
            name = unique(key, seen)
            path = scope("" if module == _NOWHERE else module, leaf, backward=backward)
            operation = LogOperation(name, path, kind, stack=_stack(fields.get("Location", "")))
            self._take_inputs(operation, fields)
            hashes = _words(fields.get("Output hash", ""))
            self._numbers[key] = len(self._step.operations)
            self._step.operations.append(operation)
            self._outputs.append(hashes)
            self._take_outputs(operation, fields, hashes)
        if strange:
            self._step.problems.append(f"{strange:,} names of blocks that are none of an operation")

    def _take_inputs(self, operation: LogOperation, fields: dict[str, str]) -> None:
        hashes = _words(fields.get("Input hashes", ""))
        producers = [each.strip() for each in fields.get("Input producers", "").split(";")][:_MOST_SLOTS]
        for slot in range(max(len(hashes), len([each for each in producers if each]))):
            value = hashes[slot] if slot < len(hashes) else ""
            made = self._numbers.get(producers[slot], -1) if slot < len(producers) and producers[slot] else -1
            if made >= 0:
                outputs = self._outputs[made]
                found = made, outputs.index(value) if value in outputs else 0
            else:
                found = self._hashes.find(value) if value else (-1, 0)
                operation.inferred += found[0] >= 0
            operation.inputs.append(found)
            if made >= 0 and value in self._outputs[made]:
                continue  # it is the recorded output
            if value:
                entry = LogTensor(Side.INPUT, slot, _hashed(value))
                sign_from(entry.numbers, [self._made(*found)])
                operation.tensors.append(entry)

    def _made(self, operation: int, slot: int) -> LogNumbers | None:
        if operation < 0:
            return None
        tensors = self._step.operations[operation].tensors
        return next((each.numbers for each in tensors if (each.side, each.slot) == (Side.OUTPUT, slot)), None)

    def _take_outputs(self, operation: LogOperation, fields: dict[str, str], hashes: list[str]) -> None:
        number = len(self._step.operations) - 1
        shape = _SHAPE.fullmatch(fields.get("Shape", ""))
        dims = shape_of(shape[1]) if shape is not None else None
        first = _first(fields, hashes)
        if "Shape" in fields and dims is None:
            first = None
        operation.tensors.append(LogTensor(Side.OUTPUT, 0, first, (shape[2] or "") if shape is not None else "", dims))
        for slot, value in enumerate(hashes):
            self._hashes.made(number, slot, value)
            if slot:
                entry = LogTensor(Side.OUTPUT, slot, _hashed(value))
                sign_from(entry.numbers, [first])
                operation.tensors.append(entry)


def _first(fields: dict[str, str], hashes: list[str]) -> LogNumbers | None:
    """The numbers of the first output; None when one of them cannot be read."""
    numbers = LogNumbers()
    for title, name in _STATISTICS.items():
        if title in fields:
            value = _number(fields[title])
            if value is None:
                return None
            setattr(numbers, name, value)
    if hashes:
        value = _number(hashes[0])
        if value is None:
            return None
        numbers.l1 = value
    return numbers


def _hashed(text: str) -> LogNumbers | None:
    value = _number(text)
    return None if value is None else LogNumbers(l1=value)


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text.strip()) else None


def _words(text: str) -> list[str]:
    return [each.strip() for each in text.split(",")][:_MOST_SLOTS] if text.strip() else []


def _stack(text: str) -> tuple[Frame, ...]:
    """A location is the end of a path and a line number; the text of the line is not in the log."""
    path, _, line = text.rpartition(":")
    if not path or not line.isdecimal() or len(line) > 9:
        return ()
    return (Frame(path, int(line), "", int(line), framework=is_framework(path) or path.startswith("torch/")),)
