"""What is known of the tensors of a step, and of what reads each: the ground on which ``by_design`` decides.

A graph has the nodes of all steps. So what reads a tensor is asked of the values: a node that is clean, and could not
be so had it read something bad, read another tensor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tui_debugger.causes.by_design_table import (
    ABSORBS,
    CONVERTS,
    COPIES,
    FRESH,
    LIKE,
    MAKES_NUMBERS,
    OPERATORS,
    PASSES_ON,
    READS_NO_VALUES,
    SOFTENS,
    VIEWS,
    WEIGHS,
)
from tui_debugger.graph.categories import BUFFER_UPDATE, INPUT_UPDATE, assigned, draws_updates, is_backward, plain_type
from tui_debugger.graph.table import NodeFlag, NodeTable, real_consumers, real_inputs
from tui_debugger.model import Category

DEPTH: Final = 200
"""Operators in a row that pass something on, at most: only a graph with a circle has more."""


@dataclass(frozen=True, slots=True)
class ElementCounts:
    """The counts of NaN and Inf in a tensor, and the largest finite magnitude, as far as they are known."""

    nan: int = 0
    positive: int = 0
    negative: int = 0
    count: int = 0  # 0: not known
    peak: float | None = None  # largest finite magnitude
    largest: float | None = None  # number that its type holds
    counted: bool = True  # else only whether there are some of a kind is known
    lowest: bool | None = None  # it has the lowest number of its type, and nothing above 0, as masks have

    @property
    def infinite(self) -> bool:
        return bool(self.positive or self.negative)

    @property
    def bad(self) -> bool:
        return bool(self.nan) or self.infinite


class Readers:
    """The readers and the contents of the tensors of one step."""

    def __init__(self, nodes: NodeTable, contents: Callable[[int, int], ElementCounts | None]) -> None:
        """``contents`` says what an output (node row, slot) holds in that step; None when not known."""
        self._nodes = nodes
        self._contents = contents

    def _kind(self, row: int) -> str:
        kind = plain_type(self._nodes.op_type(row)) if row >= 0 else ""
        is_view = kind == "select" and (draws_updates(self._nodes) or len(real_inputs(self._nodes, row)) < 2)
        return "selectview" if is_view else kind  # PyTorch's is an index, MindSpore's takes elements of two tensors

    def _category(self, row: int) -> Category:
        """The category of a node. An input that no node made is fed as data, like a graph input."""
        return self._nodes.category_of(row) if row >= 0 else Category.PARAMETER

    def _is_change(self, row: int) -> bool:
        return self._nodes.op_type(row) in {BUFFER_UPDATE, INPUT_UPDATE}

    def _is_backward(self, row: int) -> bool:
        return row >= 0 and (is_backward(self._nodes.op_type(row)) or self._nodes.category_of(row) is Category.GRADIENT)

    def _is_partial(self) -> bool:
        """Tells whether what reads a tensor may not be known."""
        return bool((self._nodes.flags & int(NodeFlag.FILE_ONLY | NodeFlag.INFERRED | NodeFlag.PARTIAL)).any())

    def _given(self, row: int) -> tuple[list[tuple[int, int]], list[ElementCounts | None]]:
        """The inputs of an operator (node row, slot; see ``unmade``), and what they hold."""
        inputs = [each for each in enumerate(real_inputs(self._nodes, row)) if not self._nodes.orders_only(each[1][0])]
        held = [made if made[0] >= 0 else unmade(row, at) for at, made in inputs]
        return held, [self._contents(*each) for each in held]

    def _read_clean(self, row: int, slot: int) -> bool:  # noqa: ARG002 - of a step whose tensors are looked up
        """Tells whether a node read a clean tensor in this step: the graph has the inputs of all steps."""
        return False

    def _outputs(self, row: int) -> dict[int, ElementCounts]:
        outputs = {at: self._contents(row, at) for at in range(max(int(self._nodes.outputs[row]), 1))}
        return {at: contents for at, contents in outputs.items() if contents is not None}

    def _is_clean(self, row: int) -> bool:
        outputs = self._outputs(row).values()
        return bool(outputs) and not any(each.bad for each in outputs)

    def _consumers(self, row: int, slot: int) -> list[tuple[int, int]]:
        """What reads an output (node row, input), but not what changes a buffer; of what nothing made: its own node."""
        if row < 0:
            return [unmade(row, slot)]
        return [each for each in real_consumers(self._nodes, row, slot) if each[1] or not self._is_change(each[0])]

    def _readers(self, row: int, slot: int) -> list[tuple[int, int]]:
        """Readers of an output's values (node row, input), without clean backward passes, which say nothing."""
        forward = not self._is_backward(row)
        return [
            (consumer, position)
            for consumer, position in dict.fromkeys(self._consumers(row, slot))
            if self._kind(consumer) not in READS_NO_VALUES
            and not LIKE.fullmatch(self._kind(consumer))
            and not is_backward(self._nodes.op_type(consumer))
            and not (forward and self._is_backward(consumer) and self._is_clean(consumer))
            and not self._is_unread_view(consumer)
            and (self._is_change(consumer) or self._ran(consumer))  # that a buffer changes is no work
            and not (row >= 0 and self._writes(consumer) and consumer in (assigned(self._nodes, row) or ()))
        ]

    def _ran(self, row: int) -> bool:  # noqa: ARG002 - of a step whose nodes are looked up
        """Tells whether a node may have run in this step: a graph has the nodes of all steps."""
        return True

    def _writes(self, row: int) -> bool:
        operands = OPERATORS.get(self._kind(row))
        return operands is not None and bool(operands.written)

    def _read_another(self, row: int) -> bool:
        """Tells whether a reader of a bad tensor is clean, so that it read another tensor in this step."""
        return self._kind(row) in PASSES_ON and self._is_clean(row)

    def _handed_on(self, row: int) -> tuple[int, int] | None:
        """The only input of a module in a graph of our client: the module may just have returned it."""
        inputs = real_inputs(self._nodes, row) if row >= 0 and draws_updates(self._nodes) else []
        alone = len(inputs) == 1 and inputs[0][0] >= 0 and not self._is_backward(row) and not is_known(self._kind(row))
        return inputs[0] if alone else None

    def _hands_on(self, row: int, slot: int = 0) -> bool:
        """Tells whether a module returns the very elements that it is made of."""
        source, mine = self._handed_on(row), self._contents(row, slot) if row >= 0 else None
        return source is not None and mine is not None and holds_the_same(mine, self._contents(*source))

    def _is_unread_view(self, row: int, depth: int = 0) -> bool:
        """Tells whether an operator only shows or copies elements (to save them, say) that nothing computes with."""
        kind = self._kind(row)
        shows = kind in VIEWS | COPIES | CONVERTS or (row >= 0 and self._hands_on(row))
        bad = shows and any(each.bad for each in self._outputs(row).values())
        return (
            shows
            and depth < DEPTH
            and all(
                self._is_unread_view(each, depth + 1)
                or (self._is_backward(each) and self._is_clean(each))
                or (bad and self._read_another(each))
                for each, _ in real_consumers(self._nodes, row)
            )
        )

    def _is_unread_number(self, row: int, slot: int) -> bool:
        """Tells whether a tensor of constants has no readers: a mask that was not needed."""
        if self._is_partial() or self._readers(row, slot):
            return False
        return self._is_number(row) or (self._kind(row) in FRESH and not self._is_made_of_others(row))

    def _is_number(self, row: int, depth: int = 0) -> bool:
        kind = self._kind(row) if row >= 0 else ""
        if LIKE.fullmatch(kind) or self._nodes.category_of(row) is Category.CONSTANT:
            return True
        inputs = real_inputs(self._nodes, row) if row >= 0 else []
        if depth > DEPTH or kind not in OPERATORS or kind in FRESH or (not inputs and not OPERATORS[kind].written):
            return kind in MAKES_NUMBERS
        return all(each >= 0 and self._is_number(each, depth + 1) for each, _ in inputs)

    def _is_made_of_others(self, row: int) -> bool:
        """Tells whether an operator was given more than numbers of the program."""
        inputs = real_inputs(self._nodes, row)
        return any(each < 0 or self._nodes.category_of(each) is not Category.CONSTANT for each, _ in inputs)


def unmade(row: int, slot: int) -> tuple[int, int]:
    """Names an input that no node made like an output, with a row below -1; its own inverse."""
    return -2 - row, slot


def is_known(kind: str) -> bool:
    return kind in OPERATORS or any(table.fullmatch(kind) for table in (SOFTENS, WEIGHS, ABSORBS))


def holds_the_same(one: ElementCounts, other: ElementCounts | None) -> bool:
    """Tells whether another tensor may be the same one: as many elements, as many Inf, no NaN."""
    return other is not None and not other.nan and one.count == other.count and same_infinities(one, other)


def same_infinities(one: ElementCounts, other: ElementCounts) -> bool:
    """Tells whether two tensors have as many Inf of each sign; where they were not counted, whether both have some."""
    if one.counted and other.counted:
        return (one.positive, one.negative) == (other.positive, other.negative)
    return same_signs(one, other)


def same_signs(one: ElementCounts, other: ElementCounts | None) -> bool:
    return has_signs(one, [other]) and (other is None or has_signs(other, [one]))


def has_signs(out: ElementCounts, sources: Sequence[ElementCounts | None]) -> bool:
    """Tells whether every Inf has a sign that some source has."""
    positive = any(each is not None and each.positive for each in sources)
    negative = any(each is not None and each.negative for each in sources)
    return (positive or not out.positive) and (negative or not out.negative)


def is_infinite(contents: ElementCounts | None) -> bool:
    return contents is not None and contents.infinite


_NUMBER: Final = re.compile(r"[^\s(),\[\]]+")


def stated(nodes: NodeTable, row: int) -> ElementCounts | None:
    """Returns what the graph says of a constant's value; None where it does not, and for what is no constant."""
    text = nodes.constants.get(row)
    if text is None or text.endswith("…") or nodes.category_of(row) is not Category.CONSTANT:
        return None
    numbers = []
    for word in _NUMBER.findall(text):
        with suppress(ValueError):  # no number: a name, a type, a flag
            numbers.append(float(word))
    return ElementCounts(
        sum(map(math.isnan, numbers)),
        sum(each == math.inf for each in numbers),
        sum(each == -math.inf for each in numbers),
        len(numbers),
        max((abs(each) for each in numbers if math.isfinite(each)), default=0.0),
    )
