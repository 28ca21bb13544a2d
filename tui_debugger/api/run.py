"""One dump as the API sees it: the nodes of every rank in MindInsight's order, and what feeds what."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from tui_debugger.api.stack import stack_entries
from tui_debugger.arrays import Int32, Int64
from tui_debugger.errors import TdbgError
from tui_debugger.graph.table import CONSTANT, PARAMETER, NodeFlag, NodeTable

if TYPE_CHECKING:
    from tui_debugger.session import Session
    from tui_debugger.session.judging import OutputTensors


_log = logging.getLogger("tui_debugger")

_OMITS_TARGET = "Assign"
"""MindInsight leaves the parameter that such a node writes to out of its inputs."""


class Run:
    """A session with what the API derives from it."""

    def __init__(self, session: Session) -> None:
        """Cheap: nothing is read before it is asked for."""
        self._session: Session | None = session
        self._steps: dict[int, dict[int, list[int]]] = {}
        self._listed: set[int] = set()
        self._warned: set[int] = set()

    @property
    def session(self) -> Session:
        """The open session.

        Raises:
            TdbgError: it was closed.
        """
        if self._session is None:
            raise TdbgError("this DumpAnalyzer is closed", hint="make a new one")
        return self._session

    def close(self) -> None:
        """Closes the session. Idempotent."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Run:
        """Itself: copies of nodes, tensors and hits speak of the same open dump."""
        return self

    def __reduce__(self) -> NoReturn:
        """Open files do not travel to other processes.

        Raises:
            TypeError: always.
        """
        msg = (
            "nodes, tensors and hits cannot be pickled: make a DumpAnalyzer in each process and pass names and numbers"
        )
        raise TypeError(msg)

    def nodes(self, rank: int) -> NodeTable:
        """The node table of a rank."""
        return self.session.nodes(rank)

    def view(self, rank: int) -> NodeView:
        """The nodes of a rank in the API's order.

        Without a graph, nodes are what has files: every step is listed first, so that none is missing.
        """
        nodes = self.nodes(rank)
        if rank not in self._listed:
            if not _has_graph(nodes):
                flow = self.session.flow(rank)
                for step in self.session.steps(rank):
                    flow.table(step)
                nodes = self.nodes(rank)
            self._listed.add(rank)
        return nodes.memo(NodeView)

    def steps(self, rank: int, root: int) -> list[int]:
        """The dumped steps of a root graph, ascending."""
        if rank not in self._steps:
            by_root: dict[int, list[int]] = {}
            for each in self.session.history(rank):
                if each.has_data:
                    by_root.setdefault(each.root_graph, []).append(each.step)
            self._steps[rank] = by_root
        return self._steps[rank].get(root, [])

    def outputs(self, rank: int) -> OutputTensors:
        """The output tensors of a rank, as they are now."""
        return self.session.outputs(rank)

    def warn_of_unknown(self, rank: int, step: int, count: int) -> None:
        """Says, once for a rank, that files were passed over that no node of its graph has."""
        if count and rank not in self._warned:
            self._warned.add(rank)
            _log.warning(
                "rank %d step %d: %d dumped tensors are of no node of the graph: they cannot be selected here",
                *(rank, step, count),
            )

    def find(self, rank: int, graph: str, name: str) -> int:
        """Row of a node by its names, or -1."""
        return self.nodes(rank).find(name, graph) if rank in self.session.ranks() else -1


class NodeView:
    """The node rows of one rank in MindInsight's order: constants, parameters, operators, each as in the graph.

    Attributes:
        rows: node rows in that order. Where there is a graph, these are its nodes: which others have files is known
            only of steps that were listed, and answers must not depend on what was read before.
    """

    def __init__(self, nodes: NodeTable) -> None:
        """Use ``nodes.memo(NodeView)``, which makes it once."""
        kinds = np.array([{CONSTANT: 0, PARAMETER: 1}.get(name, 2) for name in (*nodes.types, "")], np.int8)
        kind = kinds[nodes.type_id]
        order = np.lexsort((np.arange(len(nodes)), kind))
        if _has_graph(nodes):
            order = order[nodes.flags[order] & int(NodeFlag.FILE_ONLY) == 0]
        self._nodes = nodes
        self.rows: Int64 = order.astype(np.int64)
        self._readers: tuple[Int32, Int32] | None = None

    @cached_property
    def texts(self) -> list[tuple[str, ...]]:
        """The textual form of every entry of every stack, by stack number."""
        return [tuple(str(entry) for entry in stack_entries(stack)) for stack in self._nodes.stacks]

    def inputs(self, row: int) -> list[int]:
        """The nodes that a node is fed by, in input order; nodes that only route or order are among them."""
        nodes = self._nodes
        made = [producer for producer, _ in nodes.inputs(row)]
        if made and made[0] >= 0 and nodes.op_type(row) == _OMITS_TARGET and nodes.op_type(made[0]) == PARAMETER:
            del made[0]
        return [producer for producer in made if producer >= 0]

    def readers(self, row: int) -> list[int]:
        """The nodes that a node feeds, in the API's order; one that reads it twice is there twice."""
        if self._readers is None:
            self._readers = self._transposed()
        ends, consumers = self._readers
        found: list[int] = consumers[int(ends[row]) : int(ends[row + 1])].tolist()
        return found

    def _transposed(self) -> tuple[Int32, Int32]:
        nodes = self._nodes
        count = len(nodes)
        consumer = np.repeat(np.arange(count), np.diff(nodes.in_ptr))
        kept = nodes.in_node >= 0
        targets = self._targets()
        kept[targets] = False
        place: npt.NDArray[Any] = np.zeros(count, np.int64)
        place[self.rows] = np.arange(len(self.rows))
        consumer, producer = consumer[kept], nodes.in_node[kept]
        by = np.lexsort((np.arange(len(consumer)), place[consumer], producer))
        ends: Int32 = np.zeros(count + 1, np.int32)
        np.cumsum(np.bincount(producer, minlength=count), out=ends[1:])
        return ends, consumer[by].astype(np.int32)

    def _targets(self) -> Int64:
        """Positions in ``in_node`` of the parameters that assignments write to."""
        nodes = self._nodes
        names = (*nodes.types, "")
        assigns = np.array([name == _OMITS_TARGET for name in names], np.bool_)[nodes.type_id]
        parameters = np.array([name == PARAMETER for name in names], np.bool_)[nodes.type_id]
        first = nodes.in_ptr[:-1][assigns & (np.diff(nodes.in_ptr) > 0)]
        made = nodes.in_node[first]
        targets: Int64 = first[(made >= 0) & parameters[made]].astype(np.int64)
        return targets


def _has_graph(nodes: NodeTable) -> bool:
    return bool((nodes.flags & int(NodeFlag.FILE_ONLY) == 0).any())
