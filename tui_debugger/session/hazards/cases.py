"""An operator that made NaN or Inf, as the rules look at it, and the sentences that several rules share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tui_debugger.graph.operator_types import plain_type
from tui_debugger.model import TensorMeta, TensorStats
from tui_debugger.session.hazards.cause import Cause, Standing
from tui_debugger.session.types import TensorRow
from tui_debugger.stats.quantiles import FloatLimits
from tui_debugger.text.phrases import limits_of, num


@dataclass(frozen=True, slots=True)
class Case:
    """An operator that made NaN or Inf.

    Attributes:
        type: its type.
        inputs: what went in, by slot.
        meta, out: what came out.
    """

    type: str
    inputs: Sequence[TensorRow]
    meta: TensorMeta | None
    out: TensorStats

    def stats(self, slot: int) -> TensorStats | None:
        """Statistics of an input; None where it was not dumped."""
        return next((row.stats for row in self.inputs if row.slot == slot), None)

    @property
    def name(self) -> str:
        """Its type as the table of rules has it."""
        return type_name(self.type)

    @property
    def limits(self) -> FloatLimits | None:
        """What the output's element type can hold."""
        return limits_of(self.meta)


QUOTIENTS: Final = frozenset({"div", "realdiv", "truediv", "divide"})
"""Divisions, by ``type_name``: in:0 / in:1."""
Check = Callable[[Case], Iterator[Cause]]
"""What speaks for and against the usual reasons of one kind of operator."""


def type_name(op_type: str) -> str:
    """A type as the table has it: lower case, without version and vendor suffixes."""
    name = plain_type(op_type).removeprefix("aclnn")
    for suffix in ("ext", "v2", "v3"):
        name = name.removesuffix(suffix)
    return name


def are(amount: int) -> str:
    """``is`` for one, else ``are``."""
    return "is" if amount == 1 else "are"


def accounts(expected: int, made: int, kind: str) -> str:
    """Whether the number of such arguments explains the number of bad values."""
    if expected == made and made:
        return f": that is every {kind.lstrip('+-')} of the output"
    return ""


def overflow_cause(limits: FloatLimits, size: float, how: str, what: str) -> Cause:
    """Whether a result can exceed the element type."""
    title = f"a {what} beyond the range of {limits.name}"
    if size > limits.largest:
        return Cause(title, f"{how} exceeds what {limits.name} can hold, {num(limits.largest)}", Standing.LIKELY)
    return Cause(title, f"{how} stays below what {limits.name} can hold, {num(limits.largest)}", Standing.RULED_OUT)
