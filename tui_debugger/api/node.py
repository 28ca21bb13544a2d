"""Nodes of the computational graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui_debugger.api.arguments import Numbers, numbers, slot_numbers
from tui_debugger.api.run import Run
from tui_debugger.api.stack import StackEntry, stack_entries

if TYPE_CHECKING:
    from tui_debugger.api.tensors import Tensors

__all__ = ["Node"]


class Node:
    """A node of the computational graph of one rank. Immutable; made by ``DumpAnalyzer`` only.

    Two nodes are equal when they are the same node of the same analyzer.

    Examples:
        >>> from tui_debugger import DumpAnalyzer
        >>> from tui_debugger.demo import demo_dump
        >>> run = DumpAnalyzer(demo_dump())
        >>> node = run.select_nodes("Log-op381")[0]
        >>> print(node)
        rank: 0
        graph_name: kernel_graph_0
        node_name: Default/network-WithLossCell/_backbone-Net/Log-op381
    """

    __slots__ = ("_rank", "_row", "_run")

    def __init__(self, run: Run, rank: int, row: int) -> None:
        """``row`` is the node's row in the table of its rank."""
        self._run = run
        self._rank = rank
        self._row = row

    @property
    def place(self) -> tuple[Run, int, int]:
        """Where it is (run, rank, row of the node table), for this package's own use."""
        return self._run, self._rank, self._row

    @property
    def name(self) -> str:
        """Full name of an operator, bare name of a parameter, key of a constant (``cst1``)."""
        return self._run.nodes(self._rank).names[self._row]

    @property
    def stack(self) -> list[StackEntry]:
        """Source stack, innermost entry first; empty for parameters and constants.

        Each entry is a dict with ``file_path``, ``line_no``, ``code_line`` and ``has_substack``.

        Examples:
            >>> from tui_debugger import DumpAnalyzer
            >>> from tui_debugger.demo import demo_dump
            >>> entry = DumpAnalyzer(demo_dump()).select_nodes("Log-op381")[0].stack[0]
            >>> entry["line_no"], entry["code_line"]
            (53, 'e = self.log(self.energy(self.abs(x), (1, 2)))        # -inf for an all-zero sample')
        """
        return stack_entries(self._run.nodes(self._rank).stack(self._row))

    @property
    def rank(self) -> int:
        """The rank whose graph it belongs to."""
        return self._rank

    @property
    def root_graph_id(self) -> int:
        """Number of the root graph under which its tensors are dumped."""
        return self._run.nodes(self._rank).graph_of(self._row).root_id

    @property
    def graph_name(self) -> str:
        """Name of its graph."""
        return self._run.nodes(self._rank).graph_of(self._row).name

    def get_input_tensors(self, iterations: Numbers = None, slots: list[int] | None = None) -> Tensors:
        """The tensors that the node is fed with: *all* outputs of every node that feeds it, in input order.

        An input is resolved to the output it comes from, with nodes that only route values (Load, TupleGetItem,
        UpdateState) among them, as the graph has it. The parameter that an Assign writes to is left out.

        Args:
            iterations: which iterations; None means all. Those that were not dumped are left out.
            slots: positions in that list of outputs; None means all.

        Returns:
            The tensors, by input, then slot, then iteration.

        Raises:
            DebuggerParamTypeError: an argument of a wrong type.

        Examples:
            >>> from tui_debugger import DumpAnalyzer
            >>> from tui_debugger.demo import demo_dump
            >>> node = DumpAnalyzer(demo_dump()).select_nodes("RowNorm/Div-op385")[0]
            >>> [tensor.node.name.rpartition("/")[2] for tensor in node.get_input_tensors(iterations=3)]
            ['inputs0', 'ReduceSum-op384']
        """
        slots = slot_numbers(slots)
        wanted = self._iterations(iterations)
        nodes = self._run.nodes(self._rank)
        held = [
            (row, slot)
            for row in self._run.view(self._rank).inputs(self._row)
            for slot in range(int(nodes.outputs[row]))
        ]
        if slots is not None:
            held = [output for position, output in enumerate(held) if position in slots]
        return self._tensors(held, wanted)

    def get_output_tensors(self, iterations: Numbers = None, slots: list[int] | None = None) -> Tensors:
        """The output tensors of the node.

        Args:
            iterations: which iterations; None means all. Those that were not dumped are left out.
            slots: which output slots; None means all.

        Returns:
            The tensors, by slot, then iteration.

        Raises:
            DebuggerParamTypeError: an argument of a wrong type.

        Examples:
            >>> from tui_debugger import DumpAnalyzer
            >>> from tui_debugger.demo import demo_dump
            >>> node = DumpAnalyzer(demo_dump()).select_nodes("0-Block/ln1-LayerNorm/LayerNorm-op386")[0]
            >>> [(tensor.slot, tensor.iteration) for tensor in node.get_output_tensors([2, 3], slots=[0, 1])]
            [(0, 2), (0, 3), (1, 2), (1, 3)]
        """
        slots = slot_numbers(slots)
        wanted = self._iterations(iterations)
        there = range(int(self._run.nodes(self._rank).outputs[self._row]))
        return self._tensors([(self._row, slot) for slot in there if slots is None or slot in slots], wanted)

    def _iterations(self, iterations: Numbers) -> list[int]:
        dumped = self._run.steps(self._rank, self.root_graph_id)
        return numbers(iterations, "iterations", dumped, strict=False)

    def _tensors(self, outputs: list[tuple[int, int]], iterations: list[int]) -> Tensors:
        from tui_debugger.api.tensors import of_outputs

        return of_outputs(self._run, self._rank, outputs, iterations)

    def __eq__(self, other: object) -> bool:
        """Whether it is the same node of the same analyzer."""
        if not isinstance(other, Node):
            return NotImplemented
        (run, *mine), (others, *theirs) = self.place, other.place
        return run is others and mine == theirs

    def __hash__(self) -> int:
        """Equal nodes have equal hashes."""
        return hash((id(self._run), self._rank, self._row))

    def __str__(self) -> str:
        """Rank, graph and name, a line each."""
        return f"rank: {self.rank}\ngraph_name: {self.graph_name}\nnode_name: {self.name}"

    def __repr__(self) -> str:
        """The same on one line."""
        return f"<Node {self.name} of {self.graph_name}, rank {self.rank}>"
