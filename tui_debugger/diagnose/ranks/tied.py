"""Finds embeddings that two stages of a pipeline share: an equal weight on other ranks, under another name.

Nobody records that weights are tied. Weights that are equal by bytes, and still are after an update, are tied. Weights
that were equal only before the first update, or began alike, may also have been copied once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tui_debugger.check.contents import Content, KnownBy

_EMBEDDING: Final = re.compile(r"(?:^|[._/])(?:wte|shared|\w*embed\w*)[._/]weight$", re.IGNORECASE)

Held = Mapping[int, Content]


@dataclass(frozen=True, slots=True)
class TiedWeights:
    """A weight and an embedding (first rank that has it, name) on other ranks that are, or were, equal.

    ``proven`` means equal before and after an update; ``equal`` tells it by step.
    """

    embedding: tuple[int, str]
    weight: tuple[int, str]
    proven: bool
    equal: Mapping[int, bool]

    @property
    def parted(self) -> bool:
        return not all(self.equal.values())


def ties(
    held: Mapping[int, Mapping[str, Held]], began_as_one: Callable[[int, Sequence[tuple[int, str]]], bool]
) -> Iterator[TiedWeights]:
    """Yields the ties between ranks; ``held`` has the weights of all ranks by step and name.

    ``began_as_one`` tells whether the values of weights (rank, name) are alike at a step.
    """
    names = dict.fromkeys(name for weights in held.values() for name in weights)
    for embedding in filter(_EMBEDDING.search, names):
        for name in names:
            both = {step: (each[embedding], each[name]) for step, each in held.items() if {embedding, name} <= {*each}}
            if name != embedding and both and not any(one.keys() & other.keys() for one, other in both.values()):
                tie = _tie(embedding, name, both, began_as_one)
                if tie is not None and not (_EMBEDDING.search(name) and name < embedding):  # each pair once
                    yield tie


def _tie(
    embedding: str,
    name: str,
    both: Mapping[int, tuple[Held, Held]],
    began_as_one: Callable[[int, Sequence[tuple[int, str]]], bool],
) -> TiedWeights | None:
    equal: dict[int, bool] = {}
    contents = set[bytes]()
    at = (0, 0)
    for step, (one, other) in both.items():
        ranks = at if at[0] in one and at[1] in other else (min(one), min(other))
        here, there = one[ranks[0]], other[ranks[1]]
        if here.by is there.by and here.by > KnownBy.STATISTICS and not here.constant:
            at = ranks
            equal[step] = here.value == there.value
            contents |= {here.value} if equal[step] else set()
    pair = (at[0], embedding), (at[1], name)
    if any(equal.values()) or (equal and began_as_one(next(iter(equal)), pair)):
        return TiedWeights(*pair, len(contents) > 1, equal)
    return None
