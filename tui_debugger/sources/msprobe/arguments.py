"""What the calls of a step were called with: the arguments of ``dump.json`` in their order, tensors by input slot."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tui_debugger.arrays import Int32
from tui_debugger.sources.base import Argument, CallArguments, OtherArgument, TensorSlot
from tui_debugger.sources.msprobe.calls import read_entries

_DEPTH: Final = 64
"""Lists in lists that are looked into, as in ``calls``."""
_PLAIN: Final = {"float": float, "int": int, "bool": bool, "str": str}
_NOT_FINITE: Final = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class StepArguments:
    """The arguments of the calls of one step."""

    def __init__(self, directory: str, rows: Int32) -> None:
        """Reads the calls anew.

        Args:
            directory: of the step and rank.
            rows: the row of every node of the step, by its number there.

        Raises:
            BadCallsError: they cannot be read.
        """
        self._rounds: dict[int, dict[int, dict[str, Any]]] = {}
        for (node, number), entry in read_entries(directory).items():
            self._rounds.setdefault(int(rows[node]), {})[number] = entry

    def of(self, row: int, round: int) -> CallArguments | None:  # noqa: A002 - see base.Source
        """Returns the arguments of a node's forward call; round 0 is the newest one."""
        rounds = self._rounds.get(row, {})
        entry = rounds.get(round, rounds.get(0)) if round else rounds.get(max(rounds, default=0))
        return None if entry is None else _arguments(entry)


def _arguments(entry: Mapping[str, Any]) -> CallArguments:
    """Counts slots as ``calls`` does: positional ones, keywords, parameters of the module."""
    slots = _Slots()
    positional = entry.get("input_args")
    if isinstance(positional, list):
        values = slots.items(positional)
    else:
        values = () if positional is None else slots.items((positional,))
    named, own = entry.get("input_kwargs"), entry.get("parameters")
    keywords = slots.named(named) if isinstance(named, dict) else {}
    parameters = slots.named(own) if isinstance(own, dict) else None
    return CallArguments(values, keywords, parameters=parameters)


class _Slots:
    """Gives arguments the slots that their tensors have."""

    def __init__(self) -> None:
        self._next = 0

    def items(self, values: Iterable[object], depth: int = 0) -> tuple[Argument, ...]:
        """Takes in a list of arguments."""
        return tuple([self._one(value, depth) for value in values])

    def named(self, values: Mapping[str, object], depth: int = 0) -> dict[str, Argument]:
        """Takes in arguments by name."""
        return {str(key): self._one(value, depth) for key, value in values.items()}

    def _one(self, value: object, depth: int) -> Argument:
        if isinstance(value, dict) and not ("shape" in value and "dtype" in value):
            if type(value.get("type")) is not str:
                return self.named(value, depth + 1) if depth < _DEPTH else OtherArgument("dict")
        elif isinstance(value, list):
            return self.items(value, depth + 1) if depth < _DEPTH else OtherArgument("list")
        slot, self._next = self._next, self._next + 1
        if isinstance(value, dict):
            return TensorSlot(slot) if "shape" in value and "dtype" in value else _scalar(value)
        return value if value is None or isinstance(value, (bool, int, float, str)) else OtherArgument("")


def _scalar(record: Mapping[str, Any]) -> Argument:
    kind, value = record["type"], record.get("value")
    if value is None and "value" in record:
        return None
    if kind == "slice" and isinstance(value, list) and len(value) == 3:
        return slice(*(each if isinstance(each, int) else None for each in value))
    if kind == "float" and isinstance(value, str):
        return _NOT_FINITE.get(value.lower(), OtherArgument(kind, value))
    wanted = _PLAIN.get(kind)
    if wanted is float and isinstance(value, int):
        return float(value)
    if isinstance(value, (bool, int, float, str)) and type(value) is wanted:
        return value
    return OtherArgument(kind, value if isinstance(value, str) else "")
