"""Reads the logs of PyTorch's DebugMode (``save_logs``): operations, hashes of their tensors, stacks; no values.

The usual hash is the L1 norm in float64, which is finite exactly when every element is. Any other hash says nothing of
values. ``t$5`` is tensor number 5 of the run: an input is fed by the last operation that put this number out. Without
numbers equal hashes tell the producer. An Inf has the sign of the values that it was made from, where these tell it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from tui_debugger.graph.stacks import is_framework
from tui_debugger.model import Frame, Side
from tui_debugger.opener import GRAPH_LIMIT, read_regular
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

FORMAT: Final = "torch.utils._debug_mode.DebugMode.logs"
NOTICES: Final = (
    "DebugMode records hashes, no values: they tell whether there is NaN or Inf (rarely of which sign), and abs_mean",
)
_TENSOR: Final = re.compile(r"\bd?t(?:\$(\d{1,18}))?: ([a-z][a-z0-9_]{0,20})\[([\d, ]*)\]")
_FRAME: Final = re.compile(r'^ *File "(.+?)", line (\d{1,9}), in .*(?:\n(?! *File ")(.*))?', re.MULTILINE)
_SCALAR: Final = re.compile(r"[+-]?(?:inf|nan|\d{1,30}(?:\.\d{0,30})?(?:e[+-]?\d{1,4})?)|True|False")
_ELEMENT_TYPES: Final = {
    "bf16": "bfloat16",
    "b8": "bool",
    "c32": "complex32",
    "c64": "complex64",
    "c128": "complex128",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e8m0fnu": "float8_e8m0fnu",
}
"""Short names that do not consist of kind and bits."""
_KINDS: Final = {"f": "float", "i": "int", "u": "uint"}
_MOST_DEPTH: Final = 64
_MOST_SLOTS: Final = 4096
_OTHER: Final = "…"
"""Stands for an argument that is neither a tensor nor a number."""
_INFINITE: Final = frozenset({"inf", "+inf", "-inf"})
_OPENING, _CLOSING = "([{", ")]}"


def read(path: str) -> LoggedStep:
    """Returns the operations of a log.

    Raises:
        OSError: it cannot be read.
        ValueError: DebugMode did not write it; the text says why.
    """
    try:
        found = json.loads(read_regular(path, GRAPH_LIMIT))
    except UnicodeDecodeError as error:
        raise ValueError("no text") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON (line {error.lineno}, column {error.colno}): incomplete, or damaged") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT or not isinstance(found.get("logs"), list):
        raise ValueError("no log of DebugMode")
    reader = _DebugModeReader()
    if found.get("version") != 1:
        reader.step.problems.append(f"version {str(found.get('version'))[:40]} of the format; 1 is known")
    for record in found["logs"]:
        reader.take(record)
    return reader.finished()


@dataclass(frozen=True, slots=True)
class _LoggedTensor:
    """A tensor as the text of a call names it: number in the run (-1: none), type, shape."""

    number: int
    dtype: str
    shape: tuple[int, ...] | None


class _DebugModeReader:
    def __init__(self) -> None:
        self.step = LoggedStep()
        self._around: list[tuple[int, str, bool]] = []
        """The open annotations: depth, text, whether it is a module."""
        self._made: dict[int, tuple[int, int]] = {}
        self._hashes = Hashes()
        self._numbers: dict[tuple[int, int], LogNumbers | None] = {}
        """Numbers of outputs, by operation and slot."""
        self._times: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        self._strange = 0

    def finished(self) -> LoggedStep:
        if self._strange:
            self.step.problems.append(f"{self._strange:,} records that are none of DebugMode")
        return self.step

    def take(self, record: object) -> None:
        if not isinstance(record, dict) or not isinstance(record.get("call_depth"), int):
            self._strange += 1
            return
        depth, kind = record["call_depth"], record.get("type")
        while self._around and self._around[-1][0] >= depth:
            self._around.pop()
        if kind == "annotate":
            text = " ".join(filter(None, (_text(record.get("tag")),))) or "?"
            self._around.append((depth, text, record.get("header") == "nn.Mod"))
        elif kind == "op":
            name, arguments = _text(record.get("op_name")), _text(record.get("args_str"))
            keywords = _text(record.get("kwargs_str")).lstrip(", ")
            self._take_call(record, name, ", ".join(filter(None, (arguments, keywords))))
        elif kind == "redistribute":
            self._take_call(record, "redistribute", _text(record.get("arg_str")))
        elif kind == "triton_kernel":
            self._take_kernel(record)
        elif kind != "output_placement":
            self._strange += 1

    def _operation(self, record: dict[str, Any], kind: str) -> LogOperation:
        leaf = kind.rpartition("::")[2].partition(".")[0] or "?"
        module = next((text for _, text, is_module in reversed(self._around) if is_module), "")
        backward = bool(_text(record.get("fwd_stack_trace"))) and not module
        place = module or ("Gradients" if backward else self._around[-1][1] if self._around else "")
        place = place.replace("/", ".")
        call = f"{place}/{leaf}" if place else leaf
        number = self._times.get(call, 0)
        self._times[call] = number + 1
        path = scope("" if backward else place, f"{leaf}.{number}", backward=backward)
        stack = (
            *_frames(_text(record.get("stack_trace"))),
            *_frames(_text(record.get("fwd_stack_trace")), forward=True),
        )
        operation = LogOperation(unique(f"{call}.{number}", self._seen), path, leaf, stack=stack)
        self.step.operations.append(operation)
        return operation

    def _take_call(self, record: dict[str, Any], kind: str, arguments: str) -> None:
        operation = self._operation(record, kind)
        log = _tree(record.get("log"))
        hashes = log if isinstance(log, dict) else {}
        taken = list[_LoggedTensor]()
        for argument in _arguments(arguments):
            tensors = list(_tensors(argument))
            taken += tensors
            operation.inputs += [(-1, 0)] * len(tensors) if tensors else [_scalar(argument)]
        given = _of_tensors(hashes.get("input_hash"), len(taken))
        slots = [at for at, each in enumerate(operation.inputs) if not isinstance(each, str)]
        for slot, tensor, value in zip(slots, taken, given, strict=True):
            made = operation.inputs[slot] = self._producer(operation, tensor, value)
            if value is not None:
                entry = LogTensor(Side.INPUT, slot, _numbers(value), tensor.dtype, tensor.shape)
                sign_from(entry.numbers, [self._numbers.get(made)])
                operation.tensors.append(entry)
        sources = [each.numbers for each in operation.tensors]
        sources += [
            LogNumbers(mean=float(each)) for each in operation.inputs if isinstance(each, str) and each in _INFINITE
        ]
        put = list(_tensors(_text(record.get("output_str"))))[:_MOST_SLOTS]
        number = len(self.step.operations) - 1
        for slot, (tensor, value) in enumerate(zip(put, _of_tensors(hashes.get("hash"), len(put)), strict=True)):
            entry = LogTensor(Side.OUTPUT, slot, _numbers(value), tensor.dtype, tensor.shape)
            sign_from(entry.numbers, sources)
            self._numbers[number, slot] = entry.numbers
            operation.tensors.append(entry)
            if tensor.number >= 0:
                self._made[tensor.number] = number, slot
            if value is not None:
                self._hashes.made(number, slot, (value, tensor.shape))

    def _producer(self, operation: LogOperation, tensor: _LoggedTensor, value: object) -> tuple[int, int]:
        if tensor.number >= 0:
            return self._made.get(tensor.number, (-1, 0))
        if value is None or value == 0 or value != value:  # noqa: PLR0124 - NaN, which is like any other NaN
            return -1, 0
        found = self._hashes.find((value, tensor.shape))
        operation.inferred += found[0] >= 0
        return found

    def _take_kernel(self, record: dict[str, Any]) -> None:
        """Takes a kernel of Triton: hashes of its arguments before and after; which of them it writes is unknown."""
        operation = self._operation(record, _text(record.get("kernel_name")))
        operation.type = f"triton {operation.type}"
        before, after = _tree(record.get("pre_hashes")), _tree(record.get("post_hashes"))
        described = {
            name.strip(): tensor
            for name, _, rest in (each.partition("=") for each in _arguments(_text(record.get("kwargs_str"))))
            for tensor in _tensors(rest)
        }
        number = len(self.step.operations) - 1
        for side, hashes in ((Side.INPUT, before), (Side.OUTPUT, after)):
            for slot, (name, value) in enumerate(
                list(hashes.items())[:_MOST_SLOTS] if isinstance(hashes, dict) else ()
            ):
                tensor = described.get(str(name), _LoggedTensor(-1, "", None))
                if side is Side.INPUT:
                    operation.inputs.append(self._producer(operation, tensor, value))
                elif tensor.number >= 0:
                    self._made[tensor.number] = number, slot
                operation.tensors.append(LogTensor(side, slot, _numbers(value), tensor.dtype, tensor.shape))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _tree(node: object, depth: int = 0) -> object:
    """Unpacks a tagged tree; None for an unknown node."""
    if not isinstance(node, dict):
        return node if isinstance(node, int | float) and not isinstance(node, bool) else None
    kind, items = node.get("type"), node.get("items")
    if "type" not in node or kind not in {"scalar", "nonfinite_float", "tuple", "list", "dict"}:
        return {str(key): _tree(value, depth + 1) for key, value in node.items()} if depth < _MOST_DEPTH else None
    if kind in {"tuple", "list"} and isinstance(items, list) and depth < _MOST_DEPTH:
        return [_tree(item, depth + 1) for item in items]
    if kind == "dict" and isinstance(items, list) and depth < _MOST_DEPTH:
        pairs = [pair for pair in items if isinstance(pair, list) and len(pair) == 2]
        return {str(key): _tree(value, depth + 1) for key, value in pairs}
    value = node.get("value")
    if kind == "nonfinite_float":
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}.get(str(value))
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _leaves(tree: object) -> Iterator[int | float]:
    if isinstance(tree, dict):
        for value in tree.values():
            yield from _leaves(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _leaves(value)
    elif isinstance(tree, int | float):
        yield tree


def _of_tensors(tree: object, count: int) -> list[int | float | None]:
    """The hash of each of ``count`` tensors; of several kinds the norm. None where they cannot be assigned."""
    hashes = list(_leaves(tree))
    each = len(hashes) // count if count else 0
    if not each or each * count != len(hashes):
        return [None] * count
    groups = [hashes[start : start + each] for start in range(0, len(hashes), each)]
    return [next((value for value in group if isinstance(value, float)), group[0]) for group in groups]


def _numbers(value: object) -> LogNumbers | None:
    """A float is a norm; an integer is a checksum, which says nothing of values."""
    if not isinstance(value, float) or value < 0:
        return None
    return LogNumbers(l1=value)


def _tensors(text: str) -> Iterator[_LoggedTensor]:
    for number, dtype, shape in _TENSOR.findall(text):
        yield _LoggedTensor(int(number) if number else -1, _element_type(dtype), shape_of(shape))


def _element_type(short: str) -> str:
    if short[1:].isdecimal() and short[0] in _KINDS:
        return _KINDS[short[0]] + short[1:]
    return _ELEMENT_TYPES.get(short, short)


def _arguments(text: str) -> list[str]:
    """Splits the arguments of a call at commas outside brackets."""
    found, depth, start = list[str](), 0, 0
    for at, letter in enumerate(text):
        if letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            depth -= 1
        elif letter == "," and depth <= 0:
            found.append(text[start:at].strip())
            start = at + 1
    found.append(text[start:].strip())
    return [each for each in found if each][:_MOST_SLOTS]


def _scalar(text: str) -> str:
    value = text.rpartition("=")[2].strip()
    return value if _SCALAR.fullmatch(value) else _OTHER


@lru_cache(maxsize=1 << 12)
def _frames(text: str, *, forward: bool = False) -> tuple[Frame, ...]:
    """Frames, innermost first, of a stack as Python prints it."""
    found = [
        Frame(path, int(line), code.strip(), int(line), forward=forward, framework=is_framework(path))
        for path, line, code in _FRAME.findall(text)
    ]
    return tuple(reversed(found))
