"""The source of dumps of torch files: modules record one after the other, and nothing says what flows where.

A layout tells which files belong to a step of a rank, and lists their tensors in the order of recording. A tensor that
a step recorded several times, such as for each micro-batch, has as many rounds.

A module whose inputs and outputs were recorded is one node with both sides: clean inputs and a bad output tell that the
bad values start there, if it is known to have no weights. The inputs of a module around others are a node of their own,
because they were recorded before the modules in it.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import numpy as np

from tui_debugger.arrays import Int32, Int64
from tui_debugger.graph.build import FileNode, ranks
from tui_debugger.graph.categories import ACTIVATION_GRADIENT, BIAS_GRADIENT, WEIGHT_GRADIENT, gradient_of
from tui_debugger.graph.table import PARAMETER, NodeFlag
from tui_debugger.model import BIAS, ProgressFn, ReadSpec, Side, UnreadablePart
from tui_debugger.sources import directories
from tui_debugger.sources.base import MOST_ROUNDS, TensorPlaces
from tui_debugger.sources.graphless import ROOT, FilesTable, FileState, GraphlessSource, InferredRankNodes, ListedStep

GRAPH: Final = "model"
"""The graph of all nodes but parameters."""
PARAMETERS, PARAMETERS_ROOT = "parameters", 1
"""The graph of parameters: these are often recorded at some steps only, and have a previous step of their own."""
ROOT_MODULE: Final = "(root)"
"""The name of the outermost module where it has none."""
MODULE, MODULE_INPUT, TENSOR = "Module", "ModuleInput", "Tensor"
_RECOMPUTED: Final = "recomputed"


@dataclass(frozen=True, slots=True)
class TorchDumpTensor:
    """One tensor as it was recorded."""

    node: str
    path: str
    """Display path of the node."""
    kind: str
    file: str
    member: str
    """Its place in the file."""
    side: Side = Side.OUTPUT
    slot: int = 0
    partial: bool = False
    """The node may be made of more than its recorded inputs, such as weights."""


def module_tensor(
    module: str,
    side: Side,
    slot: int,
    file: str,
    member: str,
    *,
    around: bool = False,
    recomputed: bool = False,
    partial: bool = False,
) -> TorchDumpTensor:
    """Returns an input or output of a module.

    ``around``: the module has other modules in it. ``recomputed``: it ran a second time, for the backward pass.
    ``partial``: it may have weights.
    """
    name, kind = module or ROOT_MODULE, MODULE
    if around and side is Side.INPUT:
        name, kind, side = f"{name}.inputs", MODULE_INPUT, Side.OUTPUT
    path = name.replace(".", "/")
    if recomputed:
        name, path = f"{_RECOMPUTED}/{name}", f"Recomputed/{path}"
    return TorchDumpTensor(name, path, kind, file, member, side, slot, partial)


def named_tensor(  # noqa: PLR0917 - a row
    name: str, scope: str, file: str, member: str, slot: int = 0, recomputed: bool = False
) -> TorchDumpTensor:
    """A tensor that the program recorded by a name, such as ``attn_out`` in the scope ``layer_id=1``."""
    full = f"{scope}/{name}" if scope else name
    path = full.replace(".", "/")
    if recomputed:
        full, path = f"{_RECOMPUTED}/{full}", f"Recomputed/{path}"
    return TorchDumpTensor(full, path, TENSOR, file, member, slot=slot)


def parameter(name: str, file: str, member: str) -> TorchDumpTensor:
    return TorchDumpTensor(name, name.replace(".", "/"), PARAMETER, file, member)


def weight_gradient(name: str, file: str, member: str) -> TorchDumpTensor:
    kind = BIAS_GRADIENT if re.search(BIAS, name) else WEIGHT_GRADIENT
    return TorchDumpTensor(gradient_of(name), gradient_of(name), kind, file, member)


def gradient(name: str, file: str, member: str, slot: int = 0) -> TorchDumpTensor:
    full = gradient_of(name or ROOT_MODULE)
    return TorchDumpTensor(full, full, ACTIVATION_GRADIENT, file, member, slot=slot)


class KeywordSlots:
    """Slots of inputs and outputs, also of keyword arguments: behind the slots that are numbers."""

    def __init__(self) -> None:
        self._slots: dict[tuple[str, Side], dict[str, int]] = {}

    def of(self, module: str, side: Side, label: str) -> int:
        """The slot of an input or output: its label if that is a free number, else the next one."""
        slots = self._slots.setdefault((module, side), {})
        if label not in slots:
            number = int(label) if label.isdecimal() and len(label) < 4 else -1
            taken = set(slots.values())
            slots[label] = number if number >= 0 and number not in taken else max(taken, default=-1) + 1
        return slots[label]


def modules_around(modules: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for module in modules:
        inner = module
        while inner:
            inner = inner.rpartition(".")[0]
            found.add(inner)
    return found


Layout = directories.DumpLayout[tuple[str, ...]]
"""Unit: the files that are looked at to list a step of a rank."""


@dataclass(slots=True)
class TorchStepListing:
    """The tensors of one step of a rank."""

    tensors: list[TorchDumpTensor] = field(default_factory=list)
    """In the order in which they were recorded."""
    parts: list[UnreadablePart] = field(default_factory=list)
    state: FileState = ()
    """State of the listed files, before they were read."""
    placements: dict[str, str] = field(default_factory=dict)
    """By node, which part of a larger tensor it is, in words."""


class _TorchDumpNodes(InferredRankNodes):
    def add(self, tensors: Sequence[TorchDumpTensor], placements: dict[str, str]) -> Int32:
        """Adds the nodes that are new; returns the row of each tensor."""
        fresh: dict[str, FileNode] = {}
        for each in tensors:
            if each.node not in self.rows:
                before = fresh[each.node].outputs if each.node in fresh else 1
                outputs = max(before, each.slot + 1 if each.side is Side.OUTPUT else 1)
                graph = (PARAMETERS, PARAMETERS_ROOT) if each.kind == PARAMETER else (GRAPH, ROOT)
                fresh[each.node] = FileNode(*graph, each.node, each.path, each.kind, outputs)
        if fresh:
            self.append_nodes(fresh, fresh.values())
            graphs = tuple(replace(each, is_root=True) for each in self.table.graphs)
            self.table = replace(self.table, graphs=graphs)
            self._place(tensors, fresh)
        self._flag(tensors)
        self.place_parts({self.rows[node]: text for node, text in placements.items() if node in self.rows})
        return np.array([self.rows[each.node] for each in tensors], np.int32)

    def _flag(self, tensors: Sequence[TorchDumpTensor]) -> None:
        """Marks the nodes that may be made of more than their inputs."""
        flags = self.table.flags.copy()
        rows = [self.rows[each.node] for each in tensors if each.partial]
        flags[rows] |= int(NodeFlag.PARTIAL)
        if not np.array_equal(flags, self.table.flags):
            self.table = replace(self.table, flags=flags)

    def _place(self, tensors: Sequence[TorchDumpTensor], fresh: dict[str, FileNode]) -> None:
        """Orders new nodes by where they were recorded first: by their first output, else by their first input."""
        first: dict[str, tuple[bool, int]] = {}
        for at, each in enumerate(tensors):
            place = (each.side is Side.INPUT, at)
            first[each.node] = min(first.get(each.node, place), place)
        before = len(self.table) - len(fresh)
        self.insert((self.rows[node] for node in sorted(first, key=lambda node: first[node][1])), before)
        positions = np.zeros(len(self.table), np.int64)
        positions[self.sequence] = np.arange(len(self.sequence))
        self.table = replace(self.table, order=ranks(self.table, positions))


def _rounds(tensors: Sequence[TorchDumpTensor]) -> tuple[Int64, Int64]:
    """Returns the round of each tensor (0: recorded once), and the round in which it was recorded.

    Where a node recorded one of its tensors less often than the others, it belongs to the last rounds.
    """
    keys = [(each.node, each.side, each.slot) for each in tensors]
    counts: dict[tuple[str, Side, int], int] = {}
    numbers = np.zeros(len(tensors), np.int64)
    for at, key in enumerate(keys):
        numbers[at] = counts[key] = counts.get(key, 0) + 1
    most: dict[str, int] = {}
    for (node, _, _), count in counts.items():
        most[node] = max(most.get(node, 0), count)
    repeated = np.array([most[each.node] > 1 for each in tensors], np.bool_)
    numbers += np.array([most[key[0]] - counts[key] for key in keys], np.int64)
    during = np.maximum.accumulate(np.where(repeated, numbers, 1)) if len(tensors) else numbers
    return np.where(repeated, numbers, 0), np.where(repeated, numbers, during)


class TorchDumpSource(GraphlessSource[tuple[str, ...], _TorchDumpNodes]):
    """A layout implements ``_find`` (which files hold a step) and ``_list`` (which tensors)."""

    layout: ClassVar[str]
    graph = GRAPH

    @abstractmethod
    def _list(self, rank: int, step: int, files: tuple[str, ...], progress: ProgressFn) -> TorchStepListing:
        """Lists the tensors of a step."""

    def _paths(self, unit: tuple[str, ...]) -> Iterable[str]:
        return unit

    def _name(self) -> str:
        return self.layout

    _new_nodes = _TorchDumpNodes

    def _graphs(self, rank: int) -> Sequence[tuple[int, str, Sequence[int]]]:
        parameters = sorted(self._layout.parameters.get(rank, ()))
        return (*super()._graphs(rank), (PARAMETERS_ROOT, PARAMETERS, parameters))

    def _read(self, rank: int, step: int, nodes: _TorchDumpNodes, progress: ProgressFn) -> ListedStep:
        files = self._layout.units[rank][step]
        listing = self._list(rank, step, files, progress)
        if not listing.tensors and not listing.parts:
            where = (files or (str(self._root),))[0]
            listing.parts.append(self._part(where, f"no tensor in step {step}", rank, step))
        number, during = _rounds(listing.tensors)
        listed = np.flatnonzero(number <= MOST_ROUNDS)
        if len(listed) < len(listing.tensors):
            left = len(listing.tensors) - len(listed)
            why = f"{left:,} tensors that were recorded more than {MOST_ROUNDS:,} times in one step"
            listing.parts.append(self._part(str(self._root), why, rank, step))
        tensors = [listing.tensors[at] for at in listed.tolist()]
        rows = nodes.add(tensors, listing.placements)
        by = _in_order(tensors, nodes.table.order[rows], number[listed], during[listed])
        ordered = [tensors[at] for at in by.tolist()]
        specs = {member: ReadSpec("", "pt", member=member) for member in {each.member for each in ordered}}
        table = FilesTable(
            TensorPlaces(
                rows[by],
                [each.side for each in ordered],
                [each.slot for each in ordered],
                np.zeros(len(by)),
                number[listed][by],
            ),
            [each.file for each in ordered],
            [specs[each.member] for each in ordered],
        )
        return ListedStep(table, listing.parts, listing.state)


def _in_order(tensors: Sequence[TorchDumpTensor], order: Int32, number: Int64, during: Int64) -> Int64:
    """Rows sorted by round, in each by the order of nodes, inputs before outputs; parameters last.

    ``order`` is of the nodes; ``number`` and ``during`` are the results of ``_rounds``.
    """
    if not tensors:
        return np.zeros(0, np.int64)
    block = during.copy()
    once = np.flatnonzero(number == 0)
    once = once[np.argsort(order[once], kind="stable")]
    block[once] = np.maximum.accumulate(block[once]) if len(once) else block[once]
    parameters = np.array([each.kind == PARAMETER for each in tensors], np.bool_)
    block[parameters] = number[parameters] + MOST_ROUNDS + 1
    side = np.array([int(each.side) for each in tensors])
    slot = np.array([each.slot for each in tensors])
    by: Int64 = np.lexsort((slot, side, order, block))
    return by
