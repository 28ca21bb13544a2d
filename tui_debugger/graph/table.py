"""The nodes of one rank as columns: a hundred thousand nodes are a handful of arrays and lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int32, Mask
from tui_debugger.model import PARAMETERS, Category, Frame, Side, TensorKey

T = TypeVar("T")


PARAMETER, CONSTANT = "Parameter", "Constant"
"""The types of rows that are no operators."""
MONADS: Final = frozenset({"umonad", "iomonad"})
"""What stands for the value of a parameter or constant that only orders what runs."""
_IS_PARAMETER: Final = np.isin(np.arange(256), [int(category) for category in PARAMETERS])
"""By category."""


class NodeFlag(IntFlag):
    """Marks of a node row."""

    NONE = 0
    FILE_ONLY = 1
    """Known from file names only: no graph, or not in it."""
    UNCERTAIN = 2
    """Which files belong to this node stayed open: names and data flow do not decide."""
    STRUCTURAL = 4
    """Load, Depend, UpdateState, MakeTuple, TupleGetItem ...: never has files."""
    LISTED = 8
    """The execution-order file lists it: its position is known, not guessed."""


@dataclass(frozen=True, slots=True)
class GraphInfo:
    """One graph.

    Attributes:
        name: for example ``kernel_graph_0``.
        root_id: number of the graph whose directory its files lie in: its own when it has one, else its root's.
        is_root: whether training starts it; others are called (control flow), even if they have directories.
    """

    name: str
    root_id: int
    is_root: bool = True


@dataclass(frozen=True)
class NodeTable:
    """Columns over node rows. Append-only while ``lineage`` stays the same.

    Attributes:
        graphs: graphs of this rank; ``graph`` indexes into it.
        names: canonical ids, unique within a graph.
        paths: display path with ``/``: scope of the tree plus leaf (parameters and constants are
            put into the scope of their first consumer). Same length as ``names``.
        types: operator type names; ``type_id`` indexes into it (``Parameter``, ``Constant`` included).
        graph, type_id: int16/int32 indices.
        category: ``model.Category`` values (uint8).
        flags: ``NodeFlag`` values (uint8).
        order: position in execution order (int32): graphs as they ran, operators of each by the execution-order
            file, ties and gaps by timestamp, parameters after all operators, constants last; -1 when nothing is known.
        outputs: number of output slots (int16).
        in_ptr, in_node, in_slot: inputs in CSR form, row i has ``in_node[in_ptr[i]:in_ptr[i+1]]``; -1 = unknown.
            ``in_node`` is the direct producer (may be structural).
        stack_id: index into ``stacks`` or -1.
        stacks: unique stacks, each a tuple of frames, innermost first.
        constants: value text of graph constants by row, for those whose value stands in the graph; of parameters
            that only order what runs the name of that type.
        constant_types: element type by row of those constants, as the graph states it.
        file_names: full name by row where files spell a node otherwise than its canonical id: constants
            (``cst1`` is ``Default--data-0`` or ``Default_data-0``).
        placements: of parameters that are a part of a larger tensor which part, in words, by row.
        group_ranks: the ranks between which a node exchanges values, by row, where the graph says so.
        lineage: the same object for all tables in which a row number means the same node: a table that only grew
            or was put in another order has that of the table before, one that was built anew has its own.
    """

    graphs: tuple[GraphInfo, ...]
    names: Sequence[str]
    paths: Sequence[str]
    types: tuple[str, ...]
    graph: npt.NDArray[np.int16]
    type_id: Int32
    category: npt.NDArray[np.uint8]
    flags: npt.NDArray[np.uint8]
    order: Int32
    outputs: npt.NDArray[np.int16]
    in_ptr: Int32
    in_node: Int32
    in_slot: npt.NDArray[np.int16]
    stack_id: Int32
    stacks: Sequence[tuple[Frame, ...]] = ()
    constants: dict[int, str] = field(default_factory=dict)
    constant_types: dict[int, str] = field(default_factory=dict)
    file_names: dict[int, str] = field(default_factory=dict)
    placements: dict[int, str] = field(default_factory=dict)
    group_ranks: dict[int, tuple[int, ...]] = field(default_factory=dict)
    lineage: object = field(default_factory=object, repr=False)

    def __len__(self) -> int:
        """Number of node rows."""
        return len(self.names)

    @cached_property
    def _index(self) -> list[dict[str, int]]:
        """Row by name, for each graph."""
        if len(self.graphs) == 1:
            return [dict(zip(self.names, range(len(self)), strict=True))]
        index: list[dict[str, int]] = [{} for _ in self.graphs]
        for row, (graph, name) in enumerate(zip(self.graph.tolist(), self.names, strict=True)):
            index[graph][name] = row
        return index

    def find(self, name: str, graph: str | None = None) -> int:
        """Row of a canonical id (in the named graph, else in the first graph that has it), or -1."""
        for index, info in enumerate(self.graphs):
            if graph is None or info.name == graph:
                row = self._index[index].get(name, -1)
                if row >= 0:
                    return row
        return -1

    def graph_of(self, row: int) -> GraphInfo:
        """The graph a row belongs to."""
        return self.graphs[int(self.graph[row])]

    def key(
        self,
        rank: int,
        step: int,
        row: int,
        side: Side = Side.OUTPUT,
        slot: int = 0,
        *,
        round: int = 0,  # noqa: A002 - see TensorKey
    ) -> TensorKey:
        """The handle of a tensor of a node."""
        return TensorKey(rank, self.graph_of(row).name, self.names[row], side, slot, step, round)

    def op_type(self, row: int) -> str:
        """Operator type name of a row."""
        return self.types[int(self.type_id[row])]

    def orders_only(self, row: int) -> bool:
        """Tells whether a parameter or constant is a monad: it says what runs after what, and never has a value."""
        return self.constants.get(row, "") in MONADS

    def category_of(self, row: int) -> Category:
        """Category of a row."""
        return Category(int(self.category[row]))

    def are_parameters(self, rows: npt.NDArray[np.integer[Any]]) -> Mask:
        """Tells which rows are weights or other parameters."""
        found: Mask = _IS_PARAMETER[self.category[rows]]
        return found

    def inputs(self, row: int) -> list[tuple[int, int]]:
        """Direct (producer row, producer slot) pairs in input order; producer -1 = unknown."""
        start, stop = int(self.in_ptr[row]), int(self.in_ptr[row + 1])
        return [(int(n), int(s)) for n, s in zip(self.in_node[start:stop], self.in_slot[start:stop], strict=True)]

    def memo(self, build: Callable[[NodeTable], T]) -> T:
        """``build(self)``, computed once per table: edges, search texts and the like, each in its own module."""
        if build not in self._memo:
            self._memo[build] = build(self)
        result: T = self._memo[build]
        return result

    @cached_property
    def _memo(self) -> dict[object, Any]:
        return {}

    @cached_property
    def structural(self) -> Mask:
        """Mask over rows: nodes that only route values and never have files."""
        return (self.flags & int(NodeFlag.STRUCTURAL)).astype(np.bool_)

    @cached_property
    def watchable(self) -> Mask:
        """Mask over rows: nodes a watchpoint can cover, that is all but constants and structural nodes."""
        mask: Mask = (self.category != int(Category.CONSTANT)) & ~self.structural
        return mask

    def stack(self, row: int) -> tuple[Frame, ...]:
        """Source stack of a row, innermost frame first; empty when unknown."""
        index = int(self.stack_id[row])
        return self.stacks[index] if index >= 0 else ()
