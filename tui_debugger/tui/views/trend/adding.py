"""Which tensors can be laid over a history: found by name, of the same node, of other ranks, or related to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tui_debugger.model import Side, TensorKey
from tui_debugger.session import Session
from tui_debugger.session.diagnosis.trend import related
from tui_debugger.session.naming import place_text


@dataclass(frozen=True, slots=True)
class Offer:
    """A tensor that can be added."""

    text: str
    key: TensorKey


def _short(key: TensorKey, *, with_graph: bool = False) -> str:
    """The tensor with the end of its name first: that is what tells it from others."""
    scope, _, leaf = place_text(key, with_graph=with_graph).rpartition("/")
    return f"{leaf}  {scope}" if scope else leaf


def any_node(session: Session, key: TensorKey, _row: int) -> Sequence[Offer]:
    """The first output of every node of the rank, in execution order."""
    nodes = session.nodes(key.rank)
    rows = np.flatnonzero(nodes.watchable)
    several = len(nodes.graphs) > 1
    offers = []
    for row in rows[np.argsort(nodes.order[rows], kind="stable")].tolist():
        found = TensorKey(key.rank, nodes.graph_of(row).name, nodes.names[row], Side.OUTPUT, 0, key.step)
        offers.append(Offer(_short(found, with_graph=several), found))
    return offers


def same_node(session: Session, key: TensorKey, row: int) -> Sequence[Offer]:
    """Inputs, outputs and parameters of the node at a step, as they are on disk."""
    rows = session.tensor_rows(key.rank, key.step, row)
    found: dict[TensorKey, str] = {}
    for each in rows:
        if each.index >= 0:
            words = f"{each.role}:{each.slot}"
            found.setdefault(each.key.at_step(key.step), f"{words:<8} {_short(each.key)}")
    return [Offer(text, tensor) for tensor, text in found.items()]


def relatives_of(session: Session, key: TensorKey, _row: int) -> Sequence[Offer]:
    """The weight, gradient and optimizer state that belong to it."""
    return [Offer(f"{word:<9} {_short(tensor)}", tensor) for word, tensor in related(session, key)]


def other_ranks(session: Session, key: TensorKey, _row: int) -> Sequence[Offer]:
    """The same tensor of the other ranks that have its node."""
    return [
        Offer(f"rank {rank}", dataclasses.replace(key, rank=rank))
        for rank in session.ranks()
        if rank != key.rank and session.nodes(rank).find(key.node, key.graph) >= 0
    ]


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to another tensor.

    Attributes:
        title: the question.
        offers: what there is for a tensor, given as its key and the row of its node.
        nothing: said when there is nothing.
    """

    title: str
    offers: Callable[[Session, TensorKey, int], Sequence[Offer]]
    nothing: str = "there is no other one"


KINDS: Final[Mapping[str, Kind]] = {
    "any": Kind("Add which tensor?", any_node),
    "node": Kind("Which tensor of this node?", same_node),
    "related": Kind("What belongs to it", relatives_of, "no update operator reads this tensor directly"),
    "rank": Kind("Which rank?", other_ranks, "no other rank has this tensor"),
}
"""By the argument of the keys' action."""
