"""Where a value may have come from when a node exchanges values between ranks: the same node on the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tui_debugger.graph.operator_types import is_collective, is_receiving, is_sending
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import Side
from tui_debugger.session.origin.path import Link, Way
from tui_debugger.session.origin.upstream import Lead, Spot, Upstream

_NUMBER = re.compile(r"-op\d+$")


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the other ranks gave to a node.

    Attributes:
        leads: what was bad about it.
        inputs: the node of every other rank that took part, as an output of that node.
        absent: ranks whose part in it cannot be judged; without ``inputs`` nobody knows which ranks took part.
    """

    leads: tuple[Lead, ...]
    inputs: tuple[Spot, ...]
    absent: tuple[int, ...]


def exchanges(op_type: str) -> bool:
    """Whether what a node makes may come from another rank."""
    return is_collective(op_type) or is_receiving(op_type)


def exchanged(spot: Spot, row: int, ranks: Sequence[int], rank_of: Callable[[int], Upstream]) -> Exchange:
    """Looks at the other ranks' part in what a node made.

    Args:
        spot: the tensor, of the rank where it is bad.
        row: the node that made it.
        ranks: the ranks that have this step, its own among them.
        rank_of: looks around in a rank.
    """
    here = rank_of(spot.rank)
    group = here.flow.nodes.group_ranks.get(row)
    others = [rank for rank in ranks if rank != spot.rank and (group is None or rank in group)]
    if is_receiving(here.flow.nodes.op_type(row)):
        return _sent(spot, others, rank_of)
    leads, inputs, absent = list[Lead](), list[Spot](), list[int]()
    for rank in others:
        there = rank_of(rank)
        peer = same_node(here.flow.nodes, row, there.flow.nodes)
        if peer < 0:
            continue  # another stage of a pipeline, or another group
        at = Spot(rank, spot.step, peer, Side.OUTPUT, spot.slot, spot.round)
        inputs.append(at)
        bad = there.leads(at)
        leads += [Lead(lead.spot, Way(Link.SENT, lead.way.into, lead.way.slots), lead.began) for lead in bad]
        if not bad and there.hidden(at)[0]:
            absent.append(rank)
    absent += [rank for rank in group or () if rank != spot.rank and rank not in ranks]
    return Exchange(tuple(leads), tuple(inputs), tuple(absent))


def _sent(spot: Spot, ranks: Sequence[int], rank_of: Callable[[int], Upstream]) -> Exchange:
    """The inputs of sending nodes: one with the very statistics of what was received, else those of its shape."""
    received = rank_of(spot.rank).record(spot)
    alike, likely, inputs = list[Lead](), list[Lead](), list[Spot]()
    for rank in ranks:
        there = rank_of(rank)
        for row in _sending_nodes(there.flow.nodes):
            at = Spot(rank, spot.step, row, Side.OUTPUT, 0, spot.round)
            inputs.append(at)
            for lead in there.leads(at):
                record = there.record(lead.spot)
                same_kind = record is not None and received is not None and record.meta == received.meta
                exact = there.statistics_alike(lead.spot, received)
                way = Way(Link.SENT, lead.way.into, lead.way.slots, certain=exact)
                (alike if exact else likely if same_kind else []).append(Lead(lead.spot, way, lead.began))
    return Exchange(tuple(alike or likely), tuple(inputs), ())


def _sending_nodes(nodes: NodeTable) -> list[int]:
    kinds = np.array([is_sending(name) for name in nodes.types] + [False])
    rows: list[int] = np.flatnonzero(kinds[nodes.type_id]).tolist()
    return rows


def same_node(nodes: NodeTable, row: int, others: NodeTable) -> int:
    """The row of another rank's node with the same name; numbers of operators may differ; -1 when there is none."""
    name, graph = nodes.names[row], nodes.graph_of(row).name
    found = others.find(name, graph)
    if found >= 0 and others.op_type(found) == nodes.op_type(row):
        return found
    mine, theirs = _alike(nodes, nodes.op_type(row), name), _alike(others, nodes.op_type(row), name)
    place = mine.index(row)
    return theirs[place] if len(mine) == len(theirs) else -1


def _alike(nodes: NodeTable, op_type: str, name: str) -> list[int]:
    """Nodes of a type whose names differ in the operator's number only, in execution order."""
    stem = _NUMBER.sub("", name)
    if op_type not in nodes.types:
        return []
    rows = np.flatnonzero(nodes.type_id == nodes.types.index(op_type)).tolist()
    same = [each for each in rows if _NUMBER.sub("", nodes.names[each]) == stem]
    return sorted(same, key=lambda each: int(nodes.order[each]))
