"""Infinities by design: an operator was told to write them, and whatever reads them made them finite again.

Every attention net has some in every step: a mask of -Inf that a softmax turns into zeros. *Intended* is

* an Inf that an operator was told to write, a constant, a mask of -Inf from outside (a graph input, a buffer, or an
  input that no node made where there is no graph), and what only passes such ones on. A mask is what is added in front
  of a softmax, what an operator is told to write, or what is compared to say which elements are selected;
* an overflow to -Inf of a very low number, which was written as a mask, where a softmax weighs with it;
* the logarithm of True and False, where it is used as a mask;
* a pole, as the logarithm of 0, where all that reads it selects other elements; in a backward pass NaN, too.

It is *absorbed* where every consumer is finite and of a kind that makes an Inf finite by its nature, or that selects
other elements, or intended and absorbed itself. Both together are no finding. An Inf in other data, or that only
differences and losses read, is a fault of the data.

Graphs of our client for PyTorch list what an operator was made from, each once, and need not list numbers. So an
operand that is not listed is taken by the type of its operator, and an Inf has to be intended in whatever input it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Final

from tui_debugger.causes.by_design_missing import Missing
from tui_debugger.causes.by_design_readers import DEPTH, ElementCounts, has_signs, is_infinite, stated, unmade
from tui_debugger.causes.by_design_table import (
    ABSORBS,
    ADDS,
    BOUNDED,
    CHOOSES,
    COMPARES,
    CONVERTS,
    FRESH,
    INTEGER_WORK,
    JOINS,
    KEEPS_SCRATCH,
    LOGARITHMS,
    LOGIC,
    MEASURES,
    MOVES,
    NOTHING,
    OPERATORS,
    OVERWRITES,
    PICKS,
    POLES,
    PRODUCTS,
    QUERIES,
    REPEATS,
    SELECTS,
    SOFTENS,
    SUBTRACTS,
    SUMS_WITH_PRODUCTS,
    TELLS_NOTHING,
    WEIGHS,
    ResultRule,
)
from tui_debugger.graph.categories import assigned, draws_updates
from tui_debugger.graph.table import NodeTable, real_consumers, real_inputs
from tui_debugger.model import PARAMETERS, Category

_SAME: Final = frozenset({"eq", "equal"})
_FUNCTIONS: Final = "function"
"""The suffix of the kinds of nodes that stand for functions which a training did not run one by one."""
_FORMULA: Final = 6
"""Operators in a row with which a formula of a backward pass passes on what it selects away, at most."""


class Designs(Missing):
    """Says of the tensors of one step which infinities are by design."""

    def __init__(self, nodes: NodeTable, contents: Callable[[int, int], ElementCounts | None]) -> None:
        super().__init__(nodes, contents)
        self._intended: dict[tuple[int, int], bool] = {}
        self._absorbed: dict[tuple[int, int], frozenset[str]] = {}
        self._masks: dict[tuple[int, int, bool], bool] = {}

    def intended(self, row: int, slot: int, depth: int = 0) -> bool:
        """Tells whether a tensor has an Inf, and every one was written because an operator was told to."""
        place = row, slot
        if place not in self._intended:
            self._intended[place] = False  # in a circle nobody wrote it
            self._intended[place] = depth < DEPTH and self._is_intended(row, slot, depth)
        return self._intended[place]

    def absorbed_by(self, row: int, slot: int, depth: int = 0) -> frozenset[str]:
        """The operator types that make an intended Inf finite; empty where it goes on, or nobody knows."""
        place = row, slot
        if place not in self._absorbed:
            self._absorbed[place] = frozenset()
            if depth < DEPTH and self.intended(row, slot):
                self._absorbed[place] = self._absorbing(row, slot, depth)
        return self._absorbed[place]

    def broke_before(self, row: int) -> bool:
        """Tells whether the intended Inf that a node was given made another one bad that comes first, in a training."""
        sources: dict[tuple[int, int], None] = {}
        pending = [row] if draws_updates(self._nodes) else []
        while pending and len(sources) < DEPTH:
            for each in real_inputs(self._nodes, pending.pop()):
                if each[0] >= 0 and each not in sources and self.intended(*each):
                    sources[each] = None
                    pending.append(each[0])
        readers: dict[int, None] = {}
        reads_on = list(sources)
        for each in reads_on:  # grows: what passes the Inf on is read as well
            for reader, _ in self._readers(*each) if len(readers) < DEPTH else ():
                if reader not in readers and self._order(reader) < self._order(row):
                    readers[reader] = None
                    reads_on += [(reader, at) for at in self._outputs(reader) if self.intended(reader, at)]
        return any(map(self._breaks, sorted(readers)))

    def _order(self, row: int) -> tuple[bool, bool, int]:
        """What weighs comes first, where rows that are masked as a whole begin; the backward pass comes last."""
        return self._is_backward(row), WEIGHS.fullmatch(self._kind(row)) is None, row

    def _breaks(self, row: int) -> bool:
        """Tells whether a node made something bad from inputs that hold nothing bad but intended Inf."""
        held, given = self._given(row)
        outputs = self._outputs(row).items()
        bad = any(each.bad and not self.intended(row, at) for at, each in outputs)
        return bad and self._all_intended(held, given, range(len(held)), 0, row)

    # -- intended ------------------------------------------------------------------------------------

    def may_be_intended(self, row: int) -> bool:
        category = self._category(row)
        if category in PARAMETERS or category is Category.CONSTANT:
            return category in (Category.PARAMETER, Category.CONSTANT)
        kind = self._kind(row)
        if kind in OPERATORS or kind in POLES | KEEPS_SCRATCH or "attention" in kind:
            return True
        return (source := self._handed_on(row)) is not None and self.may_be_intended(source[0])

    def _is_intended(self, row: int, slot: int, depth: int) -> bool:
        may_be = self.may_be_intended(row) or self.may_be_missing(row)
        out = self._contents(row, slot) if may_be else None
        if out is None or not out.bad:
            return False
        if self._is_scratch(row, slot) or (self._is_backward(row) and self._is_hidden(row, slot, depth)):
            return True
        if out.nan:
            return bool(self.left_out_by(row, slot))
        return self._is_told(row, slot, out, depth) and not self._is_bad_data(row, slot)

    def _is_bad_data(self, row: int, slot: int, depth: int = 0) -> bool:
        """Tells whether an Inf is bad data: all that reads it measures how far it is from other values."""
        if depth > _FORMULA or self._is_backward(row):
            return False
        readers = [each for each, _ in self._readers(row, slot) if not self._is_change(each)]
        return bool(readers) and all(self._measures(each, depth) for each in readers)

    def _measures(self, row: int, depth: int) -> bool:
        """Tells whether a bad node computes a difference or a loss of its input, maybe after moves."""
        kind = self._kind(row)
        bad = [slot for slot, each in self._outputs(row).items() if each.bad]
        if kind in MOVES or (kind in OPERATORS and OPERATORS[kind].written):
            return bool(bad) and all(self._is_bad_data(row, slot, depth + 1) for slot in bad)
        return bool(bad) and kind in MEASURES | SUBTRACTS and not self._ends_finite(row)

    def _ends_finite(self, row: int) -> bool:
        """Tells whether a result of a bad node becomes finite again, other than by a comparison."""
        pending = [row]
        for each in pending:  # grows
            for slot in (at for at, held in self._outputs(each).items() if held.bad):
                for reader, _ in self._readers(each, slot):
                    if self._is_clean(reader) and not (self._kind(reader) in COMPARES or self._read_another(reader)):
                        return True
                    pending += [reader] if reader not in pending and len(pending) < DEPTH else []
        return False

    def _is_told(self, row: int, slot: int, out: ElementCounts, depth: int) -> bool:
        """Tells whether a node was told to write every Inf of an output, or passes such ones on."""
        category, kind = self._category(row), self._kind(row)
        if category is Category.CONSTANT:
            constant = stated(self._nodes, row)
            return constant is None or has_signs(out, [constant])
        if category is Category.PARAMETER:
            # A mask may be fed as data; any other Inf in the data is a fault of the data.
            low = not out.positive and (
                self._is_mask(row, slot, depth) or self._is_compared(row, slot) or self._is_kept_unread(row, slot)
            )
            return low or self._is_put_in(row, out, depth)
        if kind in FRESH and not self._is_made_of_others(row):
            return out.count == out.positive + out.negative or (not out.positive and self._is_mask(row, slot, depth))
        if self._is_filler(row, slot):
            return not out.negative
        if self._hands_on(row, slot):
            passed_on = self.intended(*real_inputs(self._nodes, row)[0], depth + 1)
        else:
            passed_on = kind in OPERATORS and self._comes_from_operands(row, slot, out, depth)
        return (
            passed_on
            or self._overflows_a_mask(row, slot, out, depth)
            or self._is_pole(row, slot, out)
            or self._is_log_of_mask(row, slot, out, depth)
        )

    def _is_compared(self, row: int, slot: int) -> bool:
        """Tells whether every reader compares a tensor with a mask, as PyTorch does to detect causal masks."""
        readers = [each for each, _ in self._readers(row, slot) if not self._is_change(each)]
        return bool(readers) and all(
            self._kind(each) in _SAME
            and any(other != (row, slot) and self.intended(*other) for other in real_inputs(self._nodes, each))
            for each in readers
        )

    def _is_kept_unread(self, row: int, slot: int) -> bool:
        """Tells whether a buffer is only kept or copied: no reader is bad, and nothing changes it."""
        known = row >= 0 and self._is_fed(row) and draws_updates(self._nodes) and not self._is_partial()
        readers = self._readers(row, slot) if known and assigned(self._nodes, row) is None else []
        return known and assigned(self._nodes, row) is None and all(self._is_clean(each) for each, _ in readers)

    def copied(self, row: int) -> tuple[int, int] | None:
        """The buffer that an operator only shows or copies, unless the buffer itself was seen to be bad."""
        source = next(iter(real_inputs(self._nodes, row)), (-1, 0)) if self._is_unread_view(row) else (-1, 0)
        if source[0] < 0 or not self._is_kept_unread(*source):
            return None
        held = self._contents(*source)
        return source if held is None or not held.bad else None

    def _is_put_in(self, row: int, out: ElementCounts, depth: int) -> bool:
        """Tells whether operators of this step were told to write the Inf of a buffer."""
        made = assigned(self._nodes, row) if row >= 0 else None
        if not made or min(made) < 0:
            return False
        held = [(each, 0) for each in made]
        given = [self._contents(*each) for each in held]
        return has_signs(out, given) and self._all_intended(held, given, range(len(held)), depth)

    def _is_filler(self, row: int, slot: int) -> bool:
        """Tells whether fused attention keeps an output for its backward pass; CUDA kernels pad it with +Inf."""
        if not slot or "attention" not in self._kind(row) or self._is_backward(row):
            return False
        result = self._contents(row, 0)
        return result is not None and not result.bad and self._is_for_its_backward(row, slot)

    def _is_scratch(self, row: int, slot: int) -> bool:
        """Tells whether a CTC loss keeps an output for its backward pass: logarithms of 0, and unwritten memory."""
        return slot > 0 and self._kind(row) in KEEPS_SCRATCH and self._is_for_its_backward(row, slot)

    def _is_for_its_backward(self, row: int, slot: int) -> bool:
        return all(self._is_backward(reader) for reader, _ in real_consumers(self._nodes, row, slot))

    def _is_mask(self, row: int, slot: int, depth: int, *, joined: bool = False) -> bool:
        """Tells whether all that reads a graph input uses it as a mask (``joined``: it was laid over something)."""
        key = row, slot, joined
        if key not in self._masks:
            self._masks[key] = False  # in a circle it is none
            readers = [
                each
                for each in self._consumers(row, slot)
                if not self._is_backward(each[0]) and not self._is_unread_view(each[0])
            ]
            readers = [each for each in readers if self._ran(each[0])] or readers
            telling = [each for each in readers if self._kind(each[0]) not in TELLS_NOTHING]
            readers = telling or [each for each in readers if self._kind(each[0]) in COMPARES]
            first = self._first_mask(row)
            uses = (self._uses_mask(*each, depth, joined=joined, first=first) for each in readers)
            if same := self._same_inside(row, slot):
                uses = (self.intended(*each, depth + 1) for each in same)
            self._masks[key] = depth < DEPTH and bool(readers) and all(uses)
        return self._masks[key]

    def _uses_mask(self, row: int, at: int, depth: int, *, joined: bool, first: int = 0) -> bool:
        """Tells whether input ``at`` is used as a mask. ``first``: the first one of an attention that may be one."""
        kind = self._kind(row)
        if SOFTENS.fullmatch(kind):
            return joined or ("attention" in kind and at >= first)
        if kind in COMPARES | CONVERTS and self._is_clean(row) and self._ends_in_selection(row, 0):
            return True
        operands = OPERATORS.get(kind)
        if operands is None or operands.work is ResultRule.WEAKENS:
            return False
        if kind == "neg" or (kind in SUBTRACTS and at):
            return False  # its -Inf are +Inf there
        if at in operands.written and kind not in SELECTS:
            return True
        joined = joined or kind in JOINS
        slots = range(max(int(self._nodes.outputs[row]), 1))
        read = [slot for slot in slots if real_consumers(self._nodes, row, slot)]
        return bool(read) and all(self._is_mask(row, slot, depth + 1, joined=joined) for slot in read)

    def _first_mask(self, row: int) -> int:
        """The first input of an attention that may be a mask: where a graph says it, data need not be listed."""
        if row >= 0:
            return 0
        return 3 if QUERIES.fullmatch(self._kind(unmade(row, 0)[0])) else 1

    def _same_inside(self, row: int, slot: int) -> list[tuple[int, int]]:  # noqa: ARG002 - see StepDesigns
        """The inputs of operators inside a module that hold the same as one of its inputs, where these are known."""
        return []

    def _comes_from_operands(self, row: int, slot: int, out: ElementCounts, depth: int) -> bool:
        """Tells whether an operator was given every Inf that it put out, to write it or to pass it on."""
        kind = self._kind(row)
        operands = OPERATORS[kind]
        held, given = self._given(row)
        if operands.written:
            # What selects passes on data as well: it has to be known which of both was infinite.
            told = kind not in SELECTS or None not in given or self._is_mask(row, slot, depth, joined=True)
            return told and self._is_written(row, held, given, out, depth)
        slots = range(len(held)) if operands.passed is None or kind in SELECTS else operands.passed
        passed = [at for at in slots if at < len(held)]
        if not self._all_intended(held, given, range(len(held)), depth, row):
            return False
        if not any(map(is_infinite, given)):
            return not out.positive and (
                self.copied(row) is not None
                or (
                    kind in ADDS | SUMS_WITH_PRODUCTS | MOVES
                    and self._is_from_outside(held, given)
                    and self._is_mask(row, slot, depth, joined=kind in JOINS)
                )
            )
        if operands.work is ResultRule.COMPUTES:
            factors = given[1:3] if kind in SUMS_WITH_PRODUCTS else ()
            return not any(map(is_infinite, factors)) and _adds_none(kind, given, out)
        infinite = [each for each in given if is_infinite(each)] if all(given[at] is not None for at in passed) else []
        if not infinite:
            return False
        return has_signs(out, infinite) if operands.work is ResultRule.WEAKENS else _only_moves(kind, given, out)

    @staticmethod
    def _is_from_outside(held: Sequence[tuple[int, int]], given: Sequence[ElementCounts | None]) -> bool:
        """Tells whether an Inf can only come from an operand that no node made: a mask may be fed as data."""
        outside = [contents is None and row < 0 for (row, _), contents in zip(held, given, strict=True)]
        known = all(each or contents is not None for each, contents in zip(outside, given, strict=True))
        return any(outside) and known

    def _all_intended(
        self,
        held: Sequence[tuple[int, int]],
        given: Sequence[ElementCounts | None],
        slots: Iterable[int],
        depth: int,
        reader: int = -1,
    ) -> bool:
        return all(
            self.intended(*held[at], depth + 1) or (reader >= 0 and self._read_clean(reader, at))
            for at in slots
            if (contents := given[at]) is not None and contents.bad
        )

    def _is_written(
        self,
        row: int,
        held: Sequence[tuple[int, int]],
        given: Sequence[ElementCounts | None],
        out: ElementCounts,
        depth: int,
    ) -> bool:
        """Tells whether an operator writes given values that are infinite, or not known."""
        kind = self._kind(row)
        operands = OPERATORS[kind]
        told = () if kind in SELECTS else operands.written  # a graph input of any sign says what to write
        by_operators = [at for at, (each, _) in enumerate(held) if at not in told or not self._is_fed(each)]
        # What stands in a buffer that it changes is its own work, and that of what else changes the buffer.
        by_operators = [at for at in by_operators if not self._changes(row, held[at][0], depth)]
        if not self._all_intended(held, given, by_operators, depth, row):
            return False
        for at in operands.written:
            value, contents = (held[at][0], given[at]) if at < len(held) else (-1, None)
            if contents is None and value >= 0 and not self.may_be_intended(value):
                return False  # the output of some operator is not known, and that is not told
        passed = [at for at in operands.passed or () if at < len(held)]
        if not all(at < len(held) and _is_value(given[at]) for at in operands.written) and not self._states(held):
            # The type has to do, and whatever it writes has one sign.
            unknown = [at for at in passed if given[at] is None]
            return not (out.positive and out.negative and unknown)
        return has_signs(out, [contents for contents in given if contents is not None])

    def _changes(self, row: int, buffer: int, depth: int) -> bool:
        """Tells whether an operator writes into a buffer, and all else that does was told to write."""
        made = (assigned(self._nodes, buffer) if buffer >= 0 else None) or []
        others = [each for each in made if each != row]
        held = [self._contents(each, 0) for each in others]
        return (
            row in made
            and min(made) >= 0
            and self._all_intended([(each, 0) for each in others], held, range(len(others)), depth)
        )

    def _is_fed(self, row: int) -> bool:
        return self._category(row) is Category.PARAMETER

    def _states(self, held: Sequence[tuple[int, int]]) -> bool:
        """Tells whether the graph says which Inf an operator is given."""
        return any(row >= 0 and is_infinite(stated(self._nodes, row)) for row, _ in held)

    def _overflows_a_mask(self, row: int, slot: int, out: ElementCounts, depth: int) -> bool:
        """Tells whether a mask of a very low number overflowed: in a sum, or in a type that ends earlier."""
        kind = self._kind(row)
        if out.positive or kind not in BOUNDED | SUMS_WITH_PRODUCTS | {"logsoftmax", "logsoftmaxv2"}:
            return False
        held, given = self._given(row)
        known = [each for each in given if each is not None and not each.infinite and not each.nan]
        if not held or len(known) < len(held):
            return False
        if kind not in CONVERTS | SUMS_WITH_PRODUCTS and all(each.lowest is not None for each in known):
            small = [each for each in known if each.peak is not None and each.peak <= (each.largest or 0.0) / 2]
            lowest = [each for each in known if each.lowest]
            return bool(lowest) and len(lowest) + len(small) == len(known)
        # A training does not say how large clean tensors are.
        return (
            kind in BOUNDED | SUMS_WITH_PRODUCTS
            and self._is_mask(row, slot, depth, joined=kind in JOINS)
            and any(self._is_made_as_mask(*each, depth) for each in held)
        )

    def _is_made_as_mask(self, row: int, slot: int, depth: int) -> bool:
        """Tells whether a tensor is the work of operators that were told what to write, and that moved it."""
        if self._is_fed(row):
            return self._is_mask(row, slot, depth)
        operands = OPERATORS.get(self._kind(row))
        if operands is None or operands.work is ResultRule.WEAKENS or depth > DEPTH or self._kind(row) in ADDS:
            return False
        return bool(operands.written) or any(
            each[0] >= 0 and self._is_made_as_mask(*each, depth + 1) for each in real_inputs(self._nodes, row)[:1]
        )

    def may_hide(self, row: int) -> bool:
        """Tells whether NaN of a node may be by design: backward formulas divide by a norm of 0, and put 0 there."""
        hidden = self._is_backward(row) or self._kind(row) in KEEPS_SCRATCH
        return (hidden and self.may_be_intended(row)) or self.may_be_missing(row)

    def _is_hidden(self, row: int, slot: int, depth: int) -> bool:
        """Tells whether a formula of a backward pass selects other elements than those that a pole made bad."""
        held, given = self._given(row)
        made = self._kind(row) in POLES or any(each is not None and each.bad for each in given)
        selected = made and self._selected_away(row, slot, DEPTH - _FORMULA)
        return bool(selected) and self._all_intended(held, given, range(len(held)), depth, row)

    def _is_pole(self, row: int, slot: int, out: ElementCounts) -> bool:
        """Tells whether a function has a pole at a finite input, and other elements than that one are selected."""
        kind = self._kind(row)
        if kind not in POLES or (kind.startswith("log") and kind != "logit" and out.positive):
            return False
        _, given = self._given(row)
        clean = all(each is None or not each.bad for each in given)
        return clean and bool(self._selected_away(row, slot))

    def _is_log_of_mask(self, row: int, slot: int, out: ElementCounts, depth: int) -> bool:
        """Tells whether a mask is the logarithm of True and False. The logarithm of other zeros is a data fault."""
        inputs = real_inputs(self._nodes, row)[:1] if self._kind(row) in LOGARITHMS and not out.positive else []
        return any(self._says_where(*each) for each in inputs) and self._is_mask(row, slot, depth)

    def _says_where(self, row: int, slot: int, depth: int = 0) -> bool:
        """Tells whether a tensor is a condition for each element, as booleans or as 1 and 0."""
        kind = self._kind(row)
        if row < 0 or depth > _FORMULA or kind in COMPARES | LOGIC or self._is_boolean(row, slot):
            return row >= 0 and depth <= _FORMULA
        moved = real_inputs(self._nodes, row)[:1] if kind in MOVES else []
        return any(self._says_where(*each, depth + 1) for each in moved)

    def _is_boolean(self, row: int, slot: int) -> bool:  # noqa: ARG002 - of tensors whose type is known
        return False

    # -- absorbed ------------------------------------------------------------------------------------

    def _absorbing(self, row: int, slot: int, depth: int) -> frozenset[str]:
        if row >= 0 and (self._is_filler(row, slot) or self._is_scratch(row, slot)):
            return frozenset({self._nodes.op_type(row)})
        if left_out := self.left_out_by(row, slot):
            return left_out
        if row >= 0 and self._is_unread_view(row):
            shown = (each for each in real_inputs(self._nodes, row) if each[0] >= 0 and self.intended(*each))
            of_source = (self.absorbed_by(*each, depth + 1) for each in shown)
            return frozenset({NOTHING}) if self.copied(row) is not None else next(of_source, frozenset())
        if row >= 0 and (self._is_unread_number(row, slot) or self._is_unread_choice(row, slot)):
            return frozenset({NOTHING})
        return self._absorbing_readers(row, slot, depth)

    def _absorbing_readers(self, row: int, slot: int, depth: int) -> frozenset[str]:
        inside = [self.absorbed_by(*each, depth + 1) for each in self._same_inside(row, slot)]
        by_module = frozenset().union(*inside) if all(inside) else frozenset()
        readers = [each for each in self._readers(row, slot) if not self._read_another(each[0])]
        # A mask that is kept, and that this step does not use, is read by nothing.
        unread = not readers and row >= 0 and (self._is_fed(row) or self._is_returned(row))
        found: set[str] = {NOTHING} if unread else set()
        is_mask = row >= 0 and self._is_fed(row) and self._is_only_mask(row, slot)
        for consumer, position in readers:
            kind, outputs = self._kind(consumer), self._outputs(consumer)
            if self._is_change(consumer):
                changed = real_inputs(self._nodes, consumer)[0]
                outputs = {0: held} if (held := self._contents(*changed)) is not None else {}
                if held is not None and not held.bad:
                    continue  # the buffer is changed in another way in this step
                consumer = changed[0]  # noqa: PLW2901 - the buffer stands for what is drawn to change it
            if not outputs:
                return frozenset()
            for at, contents in outputs.items():
                if not contents.bad:
                    absorbs = _absorbs(kind, position) or self._converts_away(consumer, at)
                    if not (by_module or absorbs or (is_mask and kind.endswith(_FUNCTIONS))):
                        return frozenset()
                    found |= by_module or {self._nodes.op_type(consumer)}
                    continue
                further = self.absorbed_by(consumer, at, depth + 1)
                if not further:
                    return frozenset()
                found |= further
        return frozenset(found)

    def _is_only_mask(self, row: int, slot: int) -> bool:
        """Tells whether a tensor holds nothing but -Inf and 0, as masks that are added do, and data hardly ever."""
        held = self._contents(row, slot)
        return held is not None and not held.nan and not held.positive and held.peak == 0

    def _is_returned(self, row: int) -> bool:
        """Tells whether a module returned what a node made, and nothing is known to read that."""
        return any(self._hands_on(each) for each, _ in real_consumers(self._nodes, row))

    def _is_unread_choice(self, row: int, slot: int) -> bool:
        """Tells whether a mask remains among top-k elements, and nothing reads them in this step."""
        return self._kind(row) in CHOOSES and not self._is_partial() and not self._readers(row, slot)

    def _selected_away(self, row: int, slot: int, depth: int = 0) -> frozenset[str]:
        """The operator types that select other elements than the infinite ones; empty where any may go on."""
        found: set[str] = set()
        for consumer, _ in self._readers(row, slot) if depth < DEPTH else ():
            kind, outputs = self._kind(consumer), self._outputs(consumer)
            if kind in COMPARES:
                continue
            if self._is_clean(consumer):
                if not (kind in SELECTS | OVERWRITES | PICKS or self._converts_away(consumer, 0)):
                    return frozenset()
                found.add(self._nodes.op_type(consumer))
                continue
            hidden = self._is_backward(consumer) or not any(each.nan for each in outputs.values())
            if kind not in OPERATORS or not outputs or not hidden:
                return frozenset()
            for at in (at for at, contents in outputs.items() if contents.bad):
                further = self._selected_away(consumer, at, depth + 1)
                if not further:
                    return frozenset()
                found |= further
        return frozenset(found)

    def _converts_away(self, row: int, slot: int) -> bool:
        """Tells whether an operator made integers of an Inf, and all that reads those selects some of them."""
        return self._kind(row) in CONVERTS and self._ends_in_selection(row, slot)

    def _ends_in_selection(self, row: int, slot: int, depth: int = 0) -> bool:
        readers = self._readers(row, slot) if depth < DEPTH else []
        return bool(readers) and all(
            self._kind(reader) in SELECTS | OVERWRITES
            or (self._kind(reader) in INTEGER_WORK and self._ends_in_selection(reader, 0, depth + 1))
            for reader, _ in readers
        )


def _is_value(contents: ElementCounts | None) -> bool:
    """Tells whether an operand is what an operator writes: infinite, or one number; 0 and 1 say where it writes."""
    if contents is None or contents.infinite:
        return contents is not None
    return contents.count == 1 and contents.peak is not None and contents.peak > 1


def _absorbs(kind: str, position: int) -> bool:
    """Tells whether it is for an operator's kind to make finite what was written for its input at a position."""
    is_written = kind in OPERATORS and position in OPERATORS[kind].written and kind not in SELECTS
    return not is_written and bool(kind in PICKS or WEIGHS.fullmatch(kind) or ABSORBS.fullmatch(kind))


def _only_moves(kind: str, given: Sequence[ElementCounts | None], out: ElementCounts) -> bool:
    """Tells whether an operator that only moves elements put out no Inf that it did not get."""
    known = [each for each in given if each is not None]
    if not has_signs(out, known):
        return False
    if not all(each.counted for each in (out, *known)):
        return True
    if kind in REPEATS or out.count > sum(each.count for each in known):
        return True
    return all(
        held <= sum(counts)
        for held, counts in (
            (out.positive, [each.positive for each in known]),
            (out.negative, [each.negative for each in known]),
        )
    )


def _adds_none(kind: str, operands: Sequence[ElementCounts | None], out: ElementCounts) -> bool:
    """Tells whether an operator that computes put out no Inf of its own.

    The result has the share of Inf of its infinite input, or of several at most all shares together where the finite
    ones cannot overflow. What a graph lists behind the operands was written into some of their elements.
    """
    given, parts = operands[: _computed(kind)], operands[_computed(kind) :]
    written = [each for each in parts if each is not None and each.infinite]
    if written:
        return has_signs(out, operands) and _are_in_parts(given, written, out)
    infinite = [each for each in given if each is not None and each.infinite]
    if not all(each.counted for each in (out, *infinite)):  # a mask may hide an overflow beside it
        return (kind not in PRODUCTS or len(given) == 1) and has_signs(out, infinite)
    if not out.count or not all(each.count for each in infinite):
        return False
    shares = [Fraction(each.positive + each.negative, each.count) for each in infinite]
    share = Fraction(out.positive + out.negative, out.count)
    if share == max(shares) or (parts and share < max(shares) and has_signs(out, infinite)):
        return True  # numbers were written over some of the elements since
    peaks = [each.peak for each in given if each is not None and each.peak is not None]
    if kind not in BOUNDED | PRODUCTS or out.largest is None or len(peaks) < len(given):
        return False
    bound = math.prod(peaks) if kind in PRODUCTS else math.fsum(peaks)
    return max(shares) <= share <= sum(shares) and bound <= out.largest / 2  # rounding aside


def _computed(kind: str) -> int:
    return 3 if kind in SUMS_WITH_PRODUCTS else 1 if kind in CONVERTS or kind == "neg" else 2


def _are_in_parts(given: Sequence[ElementCounts | None], written: Sequence[ElementCounts], out: ElementCounts) -> bool:
    """Tells whether a result has so few Inf that all may come from its operands and from what was written into them."""
    known = [each for each in (out, *given, *written) if each is not None]
    counts = [each.count for each in given if each is not None and each.count > 1]
    if not counts or not all(each.counted or not each.infinite for each in known):
        return True
    held = sum(each.positive + each.negative for each in written)
    share = Fraction(held, min(each for each in counts)) + sum(
        Fraction(each.positive + each.negative, each.count) for each in given if each is not None and each.count
    )
    return Fraction(out.positive + out.negative, max(out.count, 1)) <= share
