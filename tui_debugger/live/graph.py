"""The graph of a training: its nodes, the tensors that it can be asked for, and watchpoints in its terms.

As tried with MindSpore 2.0, nodes are named by the full name without the graph, with the graph's name and the
operator's type beside it. Scopes never hit, and a name of ``*`` makes all hits come back without names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int64, Mask
from tui_debugger.graph.build import build_table
from tui_debugger.graph.categories import (
    BIAS_ADD_GRADIENT,
    BUFFER_UPDATE,
    DRAWN_UPDATES,
    INPUT_UPDATE,
    PARAMETER_GRADIENT,
    change_of,
)
from tui_debugger.graph.messages import ParsedGraph, SlotType, parse_graph
from tui_debugger.graph.table import CONSTANT, PARAMETER, NodeTable, edges, real_inputs
from tui_debugger.live.dump_writer import size_of
from tui_debugger.live.wire import RemoteTensor, RemoteWatchpoint, TrainingInfo
from tui_debugger.model import Category, OperandState, ParamValue, Watchpoint
from tui_debugger.sources.base import TensorFlag, tensor_keys
from tui_debugger.stats.dtypes import dtype_of
from tui_debugger.watch.condition_table import CONDITIONS, IN_A_ROW, Condition
from tui_debugger.watch.evaluate import judging_plan
from tui_debugger.watch.expression import Fact

_MAYBE: Final = frozenset({"undefined", "tensor", "any", "ref"})
"""Types that the graph does not specify: it may be a tensor."""
_MOST_SLOTS: Final = 32767


class LiveRankGraph:
    """Nodes, and a place for every tensor that can be asked for; places are sorted like tables of tensors.

    Attributes:
        node, slot: row and output slot of each place.
        recorded: which places have a tensor; updates of our own client have none.
        alone: which places are of nodes that no other root graph has under the same name.
        gradients: which places are gradients of weights, as our own client names them.
        changes: rows of nodes that describe how modules or the program itself change parameters.
    """

    def __init__(self, data: Sequence[bytes], before: LiveRankGraph | None = None) -> None:
        """Parses serialized ``GraphProto``; BadGraphError if one is broken.

        If graphs were only added to ``before``, rows keep their numbers.
        """
        graphs = [parse_graph(each, where=f"graph {number} of the training") for number, each in enumerate(data)]
        self.data = tuple(data)
        self.nodes: NodeTable = build_table(graphs)
        if before is not None and self.data[: len(before.data)] == before.data:
            self.nodes = replace(self.nodes, lineage=before.nodes.lineage)
        self.roots = frozenset(info.root_id for info in self.nodes.graphs)
        places = _places(graphs, self.nodes)
        order = self.nodes.order
        places.sort(key=lambda place: (int(order[place[0]]), place[0], place[1]))
        self.node = np.array([row for row, _, _ in places], np.int32)
        self.slot = np.array([slot for _, slot, _ in places], np.int16)
        self._types = [kind for _, _, kind in places]
        kinds = self.nodes.type_id[self.node] if len(places) else np.zeros(0, np.int32)
        self.parameter = _is_type(self.nodes, kinds, PARAMETER)
        self.recorded: Mask = ~_is_type(self.nodes, kinds, *DRAWN_UPDATES)
        self.gradients = _is_type(self.nodes, kinds, PARAMETER_GRADIENT, BIAS_ADD_GRADIENT)
        changing = _is_type(self.nodes, self.nodes.type_id, BUFFER_UPDATE, INPUT_UPDATE)
        self.changes = frozenset(np.flatnonzero(changing).tolist())
        self.flags = np.where(_is_type(self.nodes, kinds, CONSTANT), int(TensorFlag.CONSTANT), 0).astype(np.uint8)
        keys = tensor_keys(self.node, np.ones(len(places)), self.slot)
        self._place_of = {key: place for place, key in enumerate(keys.tolist())}
        self.alone = self._alone()
        roots = np.array([info.root_id for info in self.nodes.graphs] or [0], np.int64)
        self._root: Int64 = roots[self.nodes.graph[self.node]]

    def __len__(self) -> int:
        return len(self.node)

    def place(self, row: int, slot: int) -> int:
        return self._place_of.get((row << 17) | (1 << 16) | slot, -1) if row >= 0 and 0 <= slot <= _MOST_SLOTS else -1

    def type(self, place: int) -> SlotType:
        return self._types[place]

    def nbytes(self, place: int) -> int | None:
        dtype, shape = self._types[place]
        return None if shape is None else size_of(dtype, shape)

    def remote(self, place: int, previous: bool = False) -> RemoteTensor:
        row = int(self.node[place])
        operator = not self.parameter[place] and not self.flags[place]
        name = self.nodes.names[row] if operator else self.nodes.file_names.get(row, self.nodes.names[row])
        return RemoteTensor(name, int(self.slot[place]), previous, truncate=not operator)

    def places_in(self, other: LiveRankGraph) -> Int64:
        """The place of each tensor in another graph by the name of its node; -1 for missing ones."""
        nodes = self.nodes
        rows = [other.nodes.find(nodes.names[row], nodes.graph_of(row).name) for row in range(len(nodes))]
        pairs = zip(self.node.tolist(), self.slot.tolist(), strict=True)
        return np.array([other.place(rows[row], slot) for row, slot in pairs], np.int64)

    def _alone(self) -> Mask:
        nodes = self.nodes
        if len(self.roots) < 2:
            return np.ones(len(self), np.bool_)
        roots: dict[str, set[int]] = {}
        for row in set(self.node.tolist()):
            roots.setdefault(nodes.names[row], set()).add(nodes.graph_of(row).root_id)
        return np.array([len(roots[nodes.names[row]]) == 1 for row in self.node.tolist()], np.bool_)

    def extends(self, other: LiveRankGraph) -> bool:
        """Tells whether this is the other graph with graphs added, so that all its rows mean the same here."""
        return self.nodes.lineage is other.nodes.lineage

    def of_root(self, root: int | None) -> Mask:
        """Mask of the places of a root graph and the graphs below it; None: all."""
        return np.ones(len(self), np.bool_) if root is None else self._root == root

    def root_of(self, place: int) -> int:
        return int(self._root[place])

    def name(self, row: int) -> tuple[str, str]:
        return self.nodes.names[row], self.nodes.graph_of(row).name

    def later_inputs(self, other: LiveRankGraph, names: Iterable[str]) -> dict[str, list[str]]:
        """The inputs of some nodes that only another graph has, by node name, spelled as in ``operands``."""
        found: dict[str, list[str]] = {}
        for name in names:
            row, now = self.find(name), other.find(name)
            if now >= 0 and (row >= 0 or now in other.changes):
                before = _spelled(self.nodes, real_inputs(self.nodes, row) if row >= 0 else ())
                after = _spelled(other.nodes, real_inputs(other.nodes, now))
                found[name] = [each for each in after if each not in before]
        return found

    def open_inputs(self) -> set[tuple[str, str]]:
        """The (name, graph) of nodes with inputs that the graph does not know."""
        flow = edges(self.nodes)
        reader = np.repeat(np.arange(len(self.nodes)), np.diff(flow.in_ptr))
        return {self.name(row) for row in np.unique(reader[flow.in_node < 0]).tolist()}

    def operands(self, states: Mapping[tuple[str, str], OperandState]) -> dict[tuple[int, int], OperandState]:
        """States of operands by node row and input slot; see ``wire`` for the names."""
        found: dict[tuple[int, int], OperandState] = {}
        for (node, read), state in states.items():
            row = self.find(node)
            if row >= 0 and (change := change_of(self.nodes, row)) is not None:
                row = change  # a buffer: what it is made of in the step is that of the node that says so
            wanted = self._output(read)
            for slot, holder in enumerate(real_inputs(self.nodes, row) if row >= 0 else ()):
                if holder == wanted or (wanted is None and holder[0] < 0):
                    found[row, slot] = state
        return found

    def outputs(self, designs: Mapping[int, frozenset[str]]) -> dict[tuple[int, int], frozenset[str]]:
        """The operator types that absorb an Inf, by node row and output slot instead of place."""
        return {(int(self.node[place]), int(self.slot[place])): types for place, types in designs.items()}

    def _output(self, name: str) -> tuple[int, int] | None:
        """Row and slot of the output with a name; None for an empty name."""
        if not name:
            return None
        node, _, slot = name.rpartition(":")
        return (self.find(node), int(slot)) if node and slot.isdecimal() else (self.find(name), 0)

    def find(self, name: str, root: int | None = None) -> int:
        """The row of a node by a client's name, with or without graph, preferably in ``root``; -1 if unknown."""
        graphs = [info.name for info in self.nodes.graphs if info.root_id == root] if len(self.roots) > 1 else ()
        row = next((row for graph in graphs if (row := self._find(name, graph)) >= 0), -1)
        return row if row >= 0 else self._find(name)

    def _find(self, name: str, graph: str | None = None) -> int:
        row = self.nodes.find(name, graph)
        if row >= 0:
            return row
        head, _, rest = name.partition("/")
        if any(info.name == head for info in self.nodes.graphs):
            return self.nodes.find(rest, head)
        row = self.nodes.find(name.rpartition("/")[2], graph)  # clients name parameters by the end of their name
        return row if row >= 0 and self.nodes.op_type(row) == PARAMETER else -1


def _spelled(nodes: NodeTable, outputs: Sequence[tuple[int, int]]) -> list[str]:
    """Outputs as clients name them, without constants, whose numbers differ in every graph."""
    named = [(nodes.names[row] if row >= 0 else "", slot) for row, slot in outputs if not _is_constant(nodes, row)]
    return [f"{name}:{slot}" if name and slot else name for name, slot in named]


def _is_constant(nodes: NodeTable, row: int) -> bool:
    return row >= 0 and nodes.category_of(row) is Category.CONSTANT


def _places(graphs: Sequence[ParsedGraph], nodes: NodeTable) -> list[tuple[int, int, SlotType]]:
    """(row, slot, type) of every tensor; rows are numbered as in ``build_table``: graph by graph, in their order."""
    found: list[tuple[int, int, SlotType]] = []
    row = 0
    for graph in graphs:
        for node in graph.nodes:
            if not nodes.structural[row]:
                slots = enumerate(node.outputs[: _MOST_SLOTS + 1])
                found += [(row, slot, kind) for slot, kind in slots if _is_tensor(kind)]
            row += 1
        for parameter in graph.parameters:
            found.append((row, 0, parameter.type))
            row += 1
        for constant in graph.constants:
            if constant.value is None and constant.full_name and _is_tensor(constant.type):
                found.append((row, 0, constant.type))
            row += 1
    return found


def _is_tensor(kind: SlotType) -> bool:
    return dtype_of(kind.dtype) is not None or kind.dtype in _MAYBE or kind.dtype.startswith("type ")


def _is_type(nodes: NodeTable, kinds: npt.NDArray[np.int32], *names: str) -> Mask:
    return np.isin(kinds, [number for number, name in enumerate(nodes.types) if name in names])


def remote_watchpoints(
    watchpoints: Iterable[tuple[Watchpoint, Mask]], nodes: NodeTable, info: TrainingInfo
) -> list[RemoteWatchpoint]:
    """The watchpoints to send, without constants and routing nodes: those with nodes and a condition it can judge."""
    found = []
    for watchpoint, mask in watchpoints:
        condition = CONDITIONS[watchpoint.condition]
        rows = np.flatnonzero(mask & nodes.watchable).tolist() if judged(condition, info) else []
        named = [(nodes.names[row], nodes.op_type(row), nodes.graph_of(row).name) for row in rows]
        named = [each for each in named if each[0] not in ("", "*")]
        if named:
            params = wire_params(watchpoint, ours=info.own_client)
            expression = judging_plan(watchpoint).expression
            asked = expression is not None and Fact("category") in expression.names
            categories = {nodes.names[row]: int(nodes.category[row]) for row in rows} if asked else {}
            found.append(RemoteWatchpoint(watchpoint.id, condition.wire, params, tuple(named), categories))
    return found


def judged(condition: Condition, info: TrainingInfo) -> bool:
    """Tells whether a client judges a condition: one of ours only if it says so, device overflows only on Ascend."""
    if condition.own:
        return info.own_client and bool(info.features & condition.feature)
    return not condition.is_device_overflow or info.backend == "Ascend"


def wire_params(watchpoint: Watchpoint, *, ours: bool = False) -> tuple[tuple[str, float | str, bool], ...]:
    """(name, value, disabled) of every parameter of the condition, in the order in which clients read them.

    ``ours``: our own client, which also knows ``in_a_row``. Before 1.6 MindSpore read the first two parameters of
    tensor_not_changed in reverse order: the server sees to that.
    """
    condition = CONDITIONS[watchpoint.condition]
    values = {spec.name: spec.default for spec in condition.params if spec.required and spec.default is not None}
    values |= dict(watchpoint.params)
    return tuple(
        (spec.name, _sent(values[spec.name]), False) if spec.name in values else (spec.name, 0.0, True)
        for spec in condition.params
        if spec.name != IN_A_ROW or (ours and IN_A_ROW in values)
    )


def _sent(value: ParamValue | None) -> float | str:
    return value if isinstance(value, str) else float(value or 0.0)
