"""Tensors: outputs of a node at one iteration."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from tui_debugger.api.node import Node
from tui_debugger.errors import UnreadableTensorError

if TYPE_CHECKING:
    import numpy.typing as npt

    from tui_debugger.model import TensorStats

__all__ = ["DebuggerTensor"]

_STATED = frozenset(
    {"bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32", "float64"}
)
"""Element types of scalar constants that numpy knows by the same name."""


class DebuggerTensor:
    """An output of a node at one iteration; always an output, also where it was found as the input of another node.

    Immutable; made by ``DumpAnalyzer`` and ``Node`` only. Reads nothing before it is asked.

    Examples:
        >>> from tui_debugger import DumpAnalyzer
        >>> from tui_debugger.demo import demo_dump
        >>> run = DumpAnalyzer(demo_dump())
        >>> tensor = run.select_tensors("Log-op381", iterations=3)[0]
        >>> tensor.value()
        array([4.573498 , 4.6006303,      -inf, 4.476005 ], dtype=float32)
        >>> tensor.shape, tensor.dtype
        ((4,), 'float32')
    """

    __slots__ = ("_iteration", "_node", "_slot")

    def __init__(self, node: Node, slot: int, iteration: int) -> None:
        """``slot`` is the output's index at the node."""
        self._node = node
        self._slot = slot
        self._iteration = iteration

    @property
    def node(self) -> Node:
        """The node that makes it."""
        return self._node

    @property
    def slot(self) -> int:
        """Which output of its node it is."""
        return self._slot

    @property
    def iteration(self) -> int:
        """The iteration (step), from 0, as on disk."""
        return self._iteration

    @property
    def rank(self) -> int:
        """The rank that computed it."""
        return self._node.rank

    def value(self) -> npt.NDArray[Any] | None:
        """The values, read-only; a big file is memory-mapped.

        In a dump of inputs only, an output is read from the first node that consumed it. For a parameter that is its
        value *before* the iteration's update, whereas a parameter's own file holds its value after it.

        Returns:
            None when no values were dumped, or when the tensor has no elements.

        Raises:
            UnreadableTensorError: there is a file, but it is broken. It does not pass for a tensor that was not dumped.

        Examples:
            >>> from tui_debugger import DumpAnalyzer
            >>> from tui_debugger.demo import demo_dump
            >>> DumpAnalyzer(demo_dump()).select_tensors("head.bias", iterations=0)[0].value().shape
            (4,)
        """
        values = self._read()
        return values if values is not None and values.size else None

    def statistics(self) -> TensorStats | None:
        """Counts, extremes and moments of all elements, in float64; measured once, then known.

        Returns:
            None when the tensor was not dumped or its elements are no numbers. Of a tensor of which only statistics
            were dumped, what was recorded.

        Raises:
            UnreadableTensorError: the file is broken.

        Examples:
            >>> from tui_debugger import DumpAnalyzer
            >>> from tui_debugger.demo import demo_dump
            >>> tensors = DumpAnalyzer(demo_dump()).select_tensors("RowNorm/Div-op385")
            >>> [tensor.statistics().nan for tensor in tensors]
            [0, 0, 0, 128, 0, 0]
        """
        run, rank, row = self._node.place
        (record,) = run.outputs(rank).records(self._iteration, [(row, self._slot)])
        if record is not None:
            if record.error:
                raise UnreadableTensorError(record.error, where=self._where())
            return record.stats
        values = self._constant()
        if values is None or values.dtype.kind not in "biuf":
            return None
        from tui_debugger.stats.blocks import measure_stats

        return measure_stats(values)[0]

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Its dimensions, from the file's header; None when it was not dumped.

        Raises:
            UnreadableTensorError: the file is broken.
        """
        described = self._described()
        return described[1] if described else None

    @property
    def dtype(self) -> str | None:
        """Its element type by name, from the file's header; None when it was not dumped.

        The logical type: bfloat16 says ``bfloat16``, also where its values are stored as float32.

        Raises:
            UnreadableTensorError: the file is broken.
        """
        described = self._described()
        return described[0] if described else None

    def _read(self) -> npt.NDArray[Any] | None:
        run, rank, row = self._node.place
        values = run.outputs(rank).read(self._iteration, row, self._slot)
        return self._constant() if values is None else values

    def _described(self) -> tuple[str, tuple[int, ...]] | None:
        run, rank, row = self._node.place
        meta = run.outputs(rank).meta(self._iteration, row, self._slot)
        if meta is not None:
            return meta.dtype, meta.shape
        values = self._constant()
        return (values.dtype.name, values.shape) if values is not None else None

    def _constant(self) -> npt.NDArray[Any] | None:
        """The value of a constant that stands in the graph."""
        run, rank, row = self._node.place
        nodes = run.nodes(rank)
        text = nodes.constants.get(row)
        return constant_value(text, nodes.constant_types.get(row, "")) if text is not None and self._slot == 0 else None

    def _where(self) -> str:
        return f"rank {self.rank} iteration {self._iteration} {self._node.name}:{self._slot}"

    def __eq__(self, other: object) -> bool:
        """Tells whether it is the same tensor of the same analyzer."""
        if not isinstance(other, DebuggerTensor):
            return NotImplemented
        return (self.node, self.slot, self.iteration) == (other.node, other.slot, other.iteration)

    def __hash__(self) -> int:
        """Equal tensors have equal hashes."""
        return hash((self._node, self._slot, self._iteration))

    def __str__(self) -> str:
        """Rank, graph, node, slot and iteration, a line each."""
        return f"{self._node}\nslot: {self._slot}\niteration: {self._iteration}"

    def __repr__(self) -> str:
        """The same on one line."""
        return f"<DebuggerTensor {self._node.name}:{self._slot}, rank {self.rank}, iteration {self._iteration}>"


def constant_value(text: str, dtype: str = "") -> npt.NDArray[Any] | None:
    """A constant's value from its text in the graph: one bool, number or string; None for anything else.

    Args:
        text: as the graph has it.
        dtype: the element type that the graph states; where it fits no such value: int64, float32.
    """
    import numpy as np

    try:
        value: object = float(text) if text in {"nan", "inf", "-inf"} else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    kinds: dict[type, tuple[type[Any], str]] = {
        bool: (np.bool_, "b"),
        int: (np.int64, "iu"),
        float: (np.float32, "f"),
        str: (np.str_, ""),
    }
    if type(value) not in kinds:
        return None
    kind, letters = kinds[type(value)]
    stated = np.dtype(dtype) if dtype in _STATED else None
    try:
        return np.array(value, dtype=stated if stated is not None and stated.kind in letters else kind)
    except OverflowError:
        return None
