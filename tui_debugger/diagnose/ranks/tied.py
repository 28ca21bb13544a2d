"""Embeddings that two stages of a pipeline share: a weight on other ranks, under another name, that is the same.

Nobody records that weights are tied. Values tell: weights that are equal by bytes, and still are after an update, are
tied. Where they were equal only before the first update, or began as one, they may also have been copied once.
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
    """A weight and an embedding on other ranks that are, or were, the same.

    Attributes:
        embedding, weight: their names, each with the first rank that has it.
        proven: they were updated alike.
        equal: whether they are, by step.
    """

    embedding: tuple[int, str]
    weight: tuple[int, str]
    proven: bool
    equal: Mapping[int, bool]

    @property
    def parted(self) -> bool:
        """Tells whether they are not the same at some step."""
        return not all(self.equal.values())


def ties(
    held: Mapping[int, Mapping[str, Held]], began_as_one: Callable[[int, Sequence[tuple[int, str]]], bool]
) -> Iterator[TiedWeights]:
    """Yields the ties between ranks.

    Args:
        held: by step and name the weights of all ranks.
        began_as_one: tells of weights at a step, each by rank and name, whether their values are alike.
    """
    names = dict.fromkeys(name for weights in held.values() for name in weights)
    for embedding in filter(_EMBEDDING.search, names):
        for name in names:
            both = {step: (each[embedding], each[name]) for step, each in held.items() if {embedding, name} <= {*each}}
            if name != embedding and both and not any(one.keys() & other.keys() for one, other in both.values()):
                tie = _tie(embedding, name, both, began_as_one)
                if tie is not None and not (_EMBEDDING.search(name) and name < embedding):  # once
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
