"""The run behind the Python API: its nodes in MindInsight's order, their source stacks, its steps."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tui_debugger.arrays import Array, Int32, Int64
from tui_debugger.errors import TdbgError
from tui_debugger.graph.table import CONSTANT, PARAMETER, NodeFlag, NodeTable
from tui_debugger.model import Frame
from tui_debugger.sources.registry import Edges, shown_by

if TYPE_CHECKING:
    from tui_debugger.check.outputs import OutputTensors
    from tui_debugger.session import Session


_OWN = "# Corresponding code candidate:"
_FORWARD = "# Corresponding forward node candidate:"


class StackEntry(dict[str, str | int | bool]):
    """One entry: ``file_path``, ``line_no``, ``code_line`` and ``has_substack``, as items and as attributes.

    A heading (of several candidates, or of the forward node's part) has no file and line 0; its text is ``code_line``.
    ``str()``, which ``select_by="code_stack"`` searches, has path, line number and code.
    """

    @property
    def file_path(self) -> str:
        return str(self["file_path"])

    @property
    def line_no(self) -> int:
        return int(self["line_no"])

    @property
    def code_line(self) -> str:
        return str(self["code_line"])

    @property
    def has_substack(self) -> bool:
        return bool(self["has_substack"])

    def __str__(self) -> str:
        if not self.file_path:
            return self.code_line
        return f"{'# - ' if self.has_substack else '#   '}{self.file_path}:{self.line_no}  {self.code_line}"


def stack_entries(frames: Iterable[Frame]) -> list[StackEntry]:
    """Returns the entries of a stack, innermost first, with the headings of the graph file."""
    entries: list[StackEntry] = []
    part = ""
    for frame in frames:
        heading = _FORWARD if frame.forward else _OWN if frame.depth else ""
        if heading != part:
            part = heading
            if heading:
                entries.append(_entry("", 0, heading, False))
        entries.append(_entry(frame.path, frame.line, frame.code, frame.substack))
    return entries


def _entry(path: str, line: int, code: str, substack: bool) -> StackEntry:
    return StackEntry(file_path=path, line_no=line, code_line=code, has_substack=substack)


_log = logging.getLogger("tui_debugger")

_OMITS_TARGET = "Assign"
"""MindInsight leaves the parameter that such a node writes to out of its inputs."""


class Run:
    """A session with the data that the API derives from it."""

    def __init__(self, session: Session) -> None:
        self._session: Session | None = session
        self._steps: dict[int, dict[int, list[int]]] = {}
        self._listed: set[int] = set()
        self._warned: set[int] = set()

    @property
    def session(self) -> Session:
        """The open session; TdbgError: it was closed."""
        if self._session is None:
            raise TdbgError("this DumpAnalyzer is closed", hint="make a new one")
        return self._session

    @property
    def closed(self) -> bool:
        return self._session is None

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Run:
        """Returns itself: copies of nodes, tensors and hits belong to the same open dump."""
        return self

    def __reduce__(self) -> NoReturn:
        """Raises TypeError: open files cannot be pickled."""
        msg = (
            "nodes, tensors and hits cannot be pickled: make a DumpAnalyzer in each process and pass names and numbers"
        )
        raise TypeError(msg)

    def nodes(self, rank: int) -> NodeTable:
        return self.session.nodes(rank)

    def view(self, rank: int) -> NodeView:
        """Returns the nodes of a rank in the API's order.

        Without a graph, nodes are what has files: every step is listed first, so that none is missing.
        """
        graph = self.has_graph(rank)
        if rank not in self._listed:
            if not graph:
                flow = self.session.flow(rank)
                for step in self.session.steps(rank):
                    flow.table(step)
            self._listed.add(rank)
        return self.nodes(rank).memo(NodeView.of_graph if graph else NodeView)

    def has_graph(self, rank: int) -> bool:
        """Tells whether a graph names the nodes of a rank; else nodes are what was dumped, even with inferred edges."""
        shows = shown_by(self.session.source)
        if shows is not None and shows.edges is Edges.INFERRED:
            return False
        return bool((self.nodes(rank).flags & int(NodeFlag.FILE_ONLY) == 0).any())

    def steps(self, rank: int, root: int) -> list[int]:
        if rank not in self._steps:
            by_root: dict[int, list[int]] = {}
            for each in self.session.history(rank):
                if each.has_data:
                    by_root.setdefault(each.root_graph, []).append(each.step)
            self._steps[rank] = by_root
        return self._steps[rank].get(root, [])

    def outputs(self, rank: int) -> OutputTensors:
        return self.session.outputs(rank)

    def warn_of_unknown(self, rank: int, step: int, outputs: OutputTensors) -> None:
        """Logs, once for a rank, that files of no node of the graph were skipped."""
        count = outputs.unknown(step) if rank not in self._warned and self.has_graph(rank) else 0
        if count:
            self._warned.add(rank)
            _log.warning(
                "rank %d step %d: %d dumped tensors are of no node of the graph: they cannot be selected here",
                *(rank, step, count),
            )

    def find(self, rank: int, graph: str, name: str) -> int:
        return self.nodes(rank).find(name, graph) if rank in self.session.ranks() else -1


class NodeView:
    """The node rows of one rank in MindInsight's order: constants, parameters, operators, each as in the graph.

    With a graph, ``rows`` are its nodes only, so that answers do not depend on which steps were listed before.
    """

    @classmethod
    def of_graph(cls, nodes: NodeTable) -> NodeView:
        return cls(nodes, graph=True)

    def __init__(self, nodes: NodeTable, *, graph: bool = False) -> None:
        """Use ``nodes.memo``, which makes it once."""
        kinds = np.array([{CONSTANT: 0, PARAMETER: 1}.get(name, 2) for name in (*nodes.types, "")], np.int8)
        kind = kinds[nodes.type_id]
        order = np.lexsort((np.arange(len(nodes)), kind))
        if graph:
            order = order[nodes.flags[order] & int(NodeFlag.FILE_ONLY) == 0]
        self._nodes = nodes
        self.rows: Int64 = order.astype(np.int64)
        self._readers: tuple[Int32, Int32] | None = None

    @cached_property
    def texts(self) -> list[tuple[str, ...]]:
        return [tuple(str(entry) for entry in stack_entries(stack)) for stack in self._nodes.stacks]

    def inputs(self, row: int) -> list[int]:
        """Returns the nodes that feed a node, in input order, with nodes that only route or order."""
        nodes = self._nodes
        made = [producer for producer, _ in nodes.inputs(row)]
        if made and made[0] >= 0 and nodes.op_type(row) == _OMITS_TARGET and nodes.op_type(made[0]) == PARAMETER:
            del made[0]
        return [producer for producer in made if producer >= 0]

    def readers(self, row: int) -> list[int]:
        """Returns the nodes that a node feeds, in the API's order; a node that reads it twice occurs twice."""
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
        place: Array = np.zeros(count, np.int64)
        place[self.rows] = np.arange(len(self.rows))
        consumer, producer = consumer[kept], nodes.in_node[kept]
        by = np.lexsort((np.arange(len(consumer)), place[consumer], producer))
        ends: Int32 = np.zeros(count + 1, np.int32)
        np.cumsum(np.bincount(producer, minlength=count), out=ends[1:])
        return ends, consumer[by].astype(np.int32)

    def _targets(self) -> Int64:
        """Returns the positions in ``in_node`` of the parameters that assignments write to."""
        nodes = self._nodes
        names = (*nodes.types, "")
        assigns = np.array([name == _OMITS_TARGET for name in names], np.bool_)[nodes.type_id]
        parameters = np.array([name == PARAMETER for name in names], np.bool_)[nodes.type_id]
        first = nodes.in_ptr[:-1][assigns & (np.diff(nodes.in_ptr) > 0)]
        made = nodes.in_node[first]
        targets: Int64 = first[(made >= 0) & parameters[made]].astype(np.int64)
        return targets
