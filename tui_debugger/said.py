"""Facts that a training told beside values: operand states, infinities by design, values it could not record.

The debugger learns them while the training can be asked. A saved dump has them in ``said.jsonl`` in a rank's
directory::

    {"step": 3, "graph": "kernel_graph_0", "node": "Sub", "slot": 1, "read": "nan"}
    {"step": 3, "graph": "kernel_graph_0", "node": "Add", "slot": 0, "by_design": ["Softmax"]}
    {"step": 3, "graph": "kernel_graph_0", "node": "Mul", "inputs": "unknown"}
    {"not_recorded": "rank 0: tensors without plain values", "why": "3, first inputs.input at step 0"}

An empty ``by_design`` says that an Inf is not by design.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeGuard

from tui_debugger.model import OperandState, UnreadablePart
from tui_debugger.opener import lexists, read_lines, why_not

SAID_FILE: Final = "said.jsonl"
_LARGEST_STEP: Final = 1 << 63
_MOST_SLOTS: Final = 1 << 16

Name = tuple[str, str]
"""The name of a node, and the name of its graph."""
Place = tuple[int, int]
"""The row of a node, and the number of an input or output."""


@dataclass(frozen=True, slots=True)
class Said:
    """The facts about the nodes of a step, by row. See ``sources.base.TensorTable``."""

    inputs_unknown: frozenset[int] = frozenset()
    operands: Mapping[Place, OperandState] = field(default_factory=dict)
    by_design: Mapping[Place, frozenset[str]] = field(default_factory=dict)

    def lines(self, step: int, name: Callable[[int], Name]) -> Iterator[str]:
        for row in sorted(self.inputs_unknown):
            yield _line(step, name(row), inputs="unknown")
        for (row, slot), state in sorted(self.operands.items()):
            yield _line(step, name(row), slot=slot, read=state.name.lower())
        for (row, slot), types in sorted(self.by_design.items()):
            yield _line(step, name(row), slot=slot, by_design=sorted(types))


def doubt_line(part: UnreadablePart) -> str:
    return json.dumps({"not_recorded": part.where, "why": part.why}) + "\n"


def _line(step: int, node: Name, **what: object) -> str:
    return json.dumps({"step": step, "graph": node[1], "node": node[0], **what}) + "\n"


@dataclass(slots=True)
class SaidOfRank:
    """The facts in a rank's file, by step and node name; ``wrong`` counts invalid lines."""

    inputs_unknown: dict[int, set[Name]] = field(default_factory=dict)
    operands: dict[int, dict[tuple[Name, int], OperandState]] = field(default_factory=dict)
    by_design: dict[int, dict[tuple[Name, int], frozenset[str]]] = field(default_factory=dict)
    not_recorded: list[tuple[str, str]] = field(default_factory=list)
    wrong: int = 0

    @classmethod
    def looked_at(cls, path: Path) -> tuple[SaidOfRank, str]:
        """Reads the file of a rank, where there is one, and tells what is wrong with the file."""
        said = cls()
        try:
            said = cls.read(path) if lexists(path) else said
        except OSError as error:
            return said, why_not(path, error, wanted="a file")
        lines = "1 line" if said.wrong == 1 else f"{said.wrong:,} lines"
        return said, f"{lines} without sense" if said.wrong else ""

    @property
    def doubts(self) -> list[UnreadablePart]:
        """What the training ran and nobody judged, as parts of the dump."""
        return [UnreadablePart(*each, unrecorded=True) for each in self.not_recorded]

    @classmethod
    def read(cls, path: Path) -> SaidOfRank:
        """Reads the file; raises OSError as ``opener.read_lines``."""
        said = cls()
        for line in read_lines(path, cut=True):
            said.wrong += bool(line.strip()) and not said._take(line)
        return said

    def of(self, step: int, find: Callable[[str, str], int]) -> Said:
        """Returns the facts of a step; ``find`` returns a node's row by name and graph, -1 for none."""
        operands = {(find(*name), slot): state for (name, slot), state in self.operands.get(step, {}).items()}
        designs = {(find(*name), slot): types for (name, slot), types in self.by_design.get(step, {}).items()}
        unknown = frozenset(find(*name) for name in self.inputs_unknown.get(step, ()))
        return Said(
            unknown - {-1},
            {place: state for place, state in operands.items() if place[0] >= 0},
            {place: types for place, types in designs.items() if place[0] >= 0},
        )

    def _take(self, line: bytes) -> bool:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return False
        if not isinstance(found, dict):
            return False
        lost, why = found.get("not_recorded"), found.get("why")
        if isinstance(lost, str) and isinstance(why, str):
            self.not_recorded.append((lost, why))
            return True
        step, slot, node, graph = (found.get(key) for key in ("step", "slot", "node", "graph"))
        if not _is_number(step, _LARGEST_STEP) or not isinstance(node, str) or not isinstance(graph, str):
            return False
        if found.get("inputs") == "unknown":
            self.inputs_unknown.setdefault(step, set()).add((node, graph))
            return True
        return _is_number(slot, _MOST_SLOTS) and self._say(step, ((node, graph), slot), found)

    def _say(self, step: int, place: tuple[Name, int], found: Mapping[str, object]) -> bool:
        types, state = found.get("by_design"), _STATES.get(str(found.get("read")))
        if state is not None:
            self.operands.setdefault(step, {})[place] = state
        elif isinstance(types, list) and all(isinstance(each, str) for each in types):
            self.by_design.setdefault(step, {})[place] = frozenset(types)
        else:
            return False
        return True


_STATES: Final = {each.name.lower(): each for each in OperandState}


def _is_number(value: object, end: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end
