"""The arguments of a node's call: the input that each tensor argument is, and the other values."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """An argument that is a recorded tensor: input ``source`` of the node, at ``place`` (-1: anywhere)."""

    source: str
    place: int = -1


@dataclass(frozen=True, slots=True)
class Unknown:
    """An argument that is not recorded, and why."""

    why: str


OTHERS: Final = Unknown("is another one in some steps")


@dataclass(frozen=True, slots=True)
class NodeCall:
    """The arguments of a node by name: ``TensorArgument``, ``Unknown``, a list of them, or the value."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    module: bool = False  # values are those of the module's attributes

    def merged(self, other: NodeCall) -> NodeCall:
        """The common arguments of two calls: those that differ are unknown."""
        if other.arguments == self.arguments:
            return self
        one, two = self.arguments, other.arguments
        keys = (*one, *(each for each in two if each not in one))
        both = {key: one[key] if key in one and key in two and _same(one[key], two[key]) else OTHERS for key in keys}
        return NodeCall(both, self.module)

    def text(
        self, name: str, inputs: Sequence[str], left_out: Collection[str], touched: Collection[str], *, several: bool
    ) -> str:
        """The text of the call in the graph, with the places of ``inputs`` that are not ``left_out``.

        ``touched`` are tensors that the program wrote to; ``several``: the node, or an input, may run several times in
        a step.
        """
        kept = [at for at, each in enumerate(inputs) if each not in left_out]
        unsure = [name] if name in touched else []

        def told(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [told(each) for each in value]
            if isinstance(value, Unknown):
                return {"no": value.why}
            if not isinstance(value, TensorArgument):
                return value
            place = value.place
            if place < 0 and list(inputs).count(value.source) == 1:
                place = list(inputs).index(value.source)
            if not 0 <= place < len(inputs) or inputs[place] != value.source or place not in kept:
                return {"no": OTHERS.why if place not in kept or place < 0 else "is not recorded"}
            if value.source in touched:
                unsure.append(value.source)
            return {"in": kept.index(place)}

        found = {key: told(each) for key, each in self.arguments.items()}
        more = {"module": True} if self.module else {}
        more |= {"passes": True} if several else {}
        return json.dumps({"arguments": found, **more, **({"unsure": unsure} if unsure else {})})


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (one == other or (one != one and other != other))  # noqa: PLR0124 - NaN
