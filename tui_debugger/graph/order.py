"""Positions of nodes in execution order: from execution-order files, and by timestamps where those are silent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int32, Mask
from tui_debugger.graph.table import CONSTANT, PARAMETER, GraphInfo, NodeFlag, NodeTable


def execution_order(
    table: NodeTable, sequence: Sequence[range], execution_orders: Mapping[int | str, Sequence[str]]
) -> tuple[Int32, npt.NDArray[np.uint8]]:
    """Positions and flags: graph after graph as listed; what is not listed follows its predecessor in the file.

    Args:
        table: the nodes of the graph files.
        sequence: operator rows of every graph in the order of its file.
        execution_orders: full names in execution order, by graph name or by root graph id.
    """
    place: npt.NDArray[np.int64] = np.zeros(len(table), np.int64)
    flags = table.flags.copy()
    bases: dict[int | str, int] = {}  # a root graph and its sub-graphs may share one listing
    end = 0
    for info, rows in zip(table.graphs, sequence, strict=True):
        key = _listing_key(info, execution_orders)
        base = bases.setdefault(key, end)
        listed = dict.fromkeys(execution_orders.get(key, ()))
        position = dict(zip(listed, range(base + 1, base + 1 + len(listed)), strict=True))
        part = slice(rows.start, rows.stop)
        if position:
            known = np.array([position.get(name, 0) for name in table.names[part]], np.int64)
            flags[part][known > 0] |= int(NodeFlag.LISTED)
            before = np.maximum.accumulate(np.where(known > 0, np.arange(len(known)), -1))
            place[part] = np.where(before >= 0, known[before], base)
        else:
            place[part] = np.arange(base + 1, base + 1 + len(rows))
        end = max(end, int(place[rows.stop - 1]) if len(rows) else base, base + len(position)) + 1
    minor = np.where(flags & int(NodeFlag.LISTED), 0, 1)  # what follows a listed node comes behind it
    return ranks(table, place, minor), flags


def reorder_rows(table: NodeTable, rows: npt.NDArray[np.integer[Any]], stamps: npt.NDArray[np.int64]) -> NodeTable:
    """Puts nodes whose position no execution-order file tells where their timestamps belong.

    Args:
        table: the table.
        rows: the nodes.
        stamps: of each, in any unit; all of one step. Such a node comes right after the listed one of its root
            graph with the greatest timestamp up to its own. Of several for one row the first in time counts. Nodes
            without a timestamp follow the node they followed before. Parameters stay after all operators, constants
            last.
    """
    if not len(rows):
        return table
    never = np.iinfo(np.int64).max
    stamp: npt.NDArray[np.int64] = np.full(len(table), never)
    np.minimum.at(stamp, rows, stamps)
    stamp[stamp == never] = -1
    listed: Mask = (table.flags & int(NodeFlag.LISTED)).astype(np.bool_)
    operators = classes(table) == 0
    place = table.order.astype(np.int64).copy()
    roots = np.array([info.root_id for info in table.graphs] or [0], np.int64)[table.graph]
    for root in np.unique(roots[rows]).tolist():
        mine = (roots == root) & (stamp >= 0)
        anchors, moving = np.flatnonzero(listed & mine), np.flatnonzero(~listed & mine)
        anchors = anchors[np.argsort(stamp[anchors], kind="stable")]
        before = np.searchsorted(stamp[anchors], stamp[moving], side="right") - 1
        anchor_place = np.append(table.order[anchors], -1)[before]  # -1: before every anchor
        # Operators without anchors of their own graph's kind keep their graph's block only when files say so.
        place[moving] = np.where(operators[moving], anchor_place, 0)
    minor = np.where(listed, -1, stamp)
    _follow(table, np.flatnonzero(~listed & (stamp < 0)), place, minor)
    return replace(table, order=ranks(table, place, minor))


def order_graphs(table: NodeTable, sequence: Sequence[int]) -> NodeTable:
    """Puts operators in the order in which their graphs ran; in one graph they stay as they are.

    Args:
        table: the table.
        sequence: ``GraphInfo.root_id`` of graphs; others come behind.
    """
    place = {root: number for number, root in enumerate(sequence)}
    graph = np.array([place.get(info.root_id, len(place)) for info in table.graphs] or [0], np.int64)[table.graph]
    return replace(table, order=ranks(table, graph, table.order))


def observed_order(table: NodeTable, observed: Iterable[Sequence[int]]) -> list[int]:
    """All operators, as the graph lists them, but after what they were made from and what was seen to run before.

    A graph does not say which of two independent operators ran first; whoever watched them run does.

    Args:
        table: the nodes.
        observed: rows in the order in which they were seen to run, one sequence a run. Where that and the graph
            contradict each other, every operator is still there once.
    """
    from tui_debugger.graph.edges import edges

    flow, operators = edges(table), classes(table) == 0
    seen: dict[int, list[int]] = {}
    for sequence in observed:
        ran = [row for row in dict.fromkeys(sequence) if operators[row]]
        for before, row in pairwise(ran):
            seen.setdefault(row, []).append(before)

    def sources(row: int) -> list[int]:
        made_from = flow.in_node[flow.in_ptr[row] : flow.in_ptr[row + 1]].tolist()
        known = [source for source in {*made_from, *seen.get(row, ())} if source >= 0 and operators[source]]
        return sorted(known, key=lambda source: int(table.order[source]), reverse=True)

    order: dict[int, None] = {}
    entered: set[int] = set()
    for start in np.argsort(table.order, kind="stable").tolist():
        waiting = [start]
        while waiting:
            row = waiting[-1]
            if row in entered:
                order.setdefault(waiting.pop())
                continue
            entered.add(row)
            waiting += [source for source in sources(row) if source not in entered]
    return [row for row in order if operators[row]]


def _follow(
    table: NodeTable, rows: npt.NDArray[np.int64], place: npt.NDArray[np.int64], minor: npt.NDArray[np.int64]
) -> None:
    """Gives rows without a timestamp the place of the row they followed, in place."""
    by_order = np.argsort(table.order, kind="stable")
    known = np.ones(len(table), np.bool_)
    known[rows] = False
    previous = np.maximum.accumulate(np.where(known[by_order], np.arange(len(table)), -1))
    at = np.flatnonzero(~known[by_order])
    source, found = by_order[previous[at]], previous[at] >= 0
    place[by_order[at]], minor[by_order[at]] = (np.where(found, each[source], -1) for each in (place, minor))


def classes(table: NodeTable) -> npt.NDArray[np.int8]:
    """0 operators, 1 parameters, 2 constants: they come in this order."""
    kinds = np.array([{PARAMETER: 1, CONSTANT: 2}.get(name, 0) for name in (*table.types, "")], np.int8)
    classes: npt.NDArray[np.int8] = kinds[table.type_id]
    return classes


def ranks(table: NodeTable, place: npt.NDArray[np.integer], minor: npt.NDArray[np.integer] | None = None) -> Int32:
    """Dense positions from a sort by class, place, minor place, then the positions and rows they had."""
    rows = np.arange(len(table))
    keys = (rows, table.order, np.zeros_like(rows) if minor is None else minor, place, classes(table))
    ranks: Int32 = np.empty(len(table), np.int32)
    ranks[np.lexsort(keys)] = rows
    return ranks


def graph_number(name: str) -> int:
    """The number a graph's name ends with (``kernel_graph_3``, ``kernel_graph3``), 0 when there is none."""
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits) if digits and len(digits) < 10 else 0


def directory_names(graphs: Sequence[GraphInfo]) -> dict[int, str]:
    """Names of the graphs that have directories of their own, by number."""
    own = (info for info in reversed(graphs) if info.is_root or graph_number(info.name) == info.root_id)
    return {info.root_id: info.name for info in own}


def _listing_key(info: GraphInfo, execution_orders: Mapping[int | str, Sequence[str]]) -> int | str:
    """Which listing holds a graph's nodes: one of its own, else its root's; its name when there is none."""
    own = () if info.is_root else (graph_number(info.name),)
    return next((key for key in (info.name, *own, info.root_id) if key in execution_orders), info.name)
