"""Nodes of a dump, and tensors (outputs of a node at one iteration): one as an object, many as columns."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from tui_debugger.api.conditions import Numbers, numbers, slot_numbers
from tui_debugger.api.run import Run, StackEntry, stack_entries
from tui_debugger.arrays import Array, Int64, Integers, Mask
from tui_debugger.errors import DebuggerParamTypeError, DebuggerParamValueError, UnreadableTensorError
from tui_debugger.text.documents import Row
from tui_debugger.text.rows import key_row, meta_row, stats_row

if TYPE_CHECKING:
    from tui_debugger.model import TensorStats


__all__ = ["DebuggerTensor", "Node"]


_STATED = frozenset(
    {"bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32", "float64"}
)
"""Element types of scalar constants that numpy knows by the same name."""


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
        self._run = run
        self._rank = rank
        self._row = row

    @property
    def place(self) -> tuple[Run, int, int]:
        """The place of the node (run, rank, row of the node table), for internal use."""
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
        return self._rank

    @property
    def root_graph_id(self) -> int:
        """Number of the root graph under which its tensors are dumped."""
        return self._run.nodes(self._rank).graph_of(self._row).root_id

    @property
    def graph_name(self) -> str:
        return self._run.nodes(self._rank).graph_of(self._row).name

    def get_input_tensors(self, iterations: Numbers = None, slots: list[int] | None = None) -> DebuggerTensors:
        """Returns *all* outputs of every node that feeds this node, by input, then slot, then iteration.

        Routing nodes (Load, TupleGetItem, UpdateState) feed it, too, but not the parameter that an Assign writes to.
        ``slots`` are positions in that list. None means all; iterations that were not dumped are left out.

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
        return of_outputs(self._run, self._rank, held, wanted)

    def get_output_tensors(self, iterations: Numbers = None, slots: list[int] | None = None) -> DebuggerTensors:
        """Returns the node's output tensors, by slot, then iteration.

        ``iterations`` and ``slots``: None means all; iterations that were not dumped are left out.

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
        held = [(self._row, slot) for slot in there if slots is None or slot in slots]
        return of_outputs(self._run, self._rank, held, wanted)

    def _iterations(self, iterations: Numbers) -> list[int]:
        dumped = self._run.steps(self._rank, self.root_graph_id)
        return numbers(iterations, "iterations", dumped, strict=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Node):
            return NotImplemented
        (run, *mine), (others, *theirs) = self.place, other.place
        return run is others and mine == theirs

    def __hash__(self) -> int:
        return hash((id(self._run), self._rank, self._row))

    def __str__(self) -> str:
        return f"rank: {self.rank}\ngraph_name: {self.graph_name}\nnode_name: {self.name}"

    def __repr__(self) -> str:
        """Works for a closed analyzer, too: a debugger that shows a variable must see something."""
        if self._run.closed:
            return f"<Node {self._row} of rank {self.rank} of a closed DumpAnalyzer>"
        return f"<Node {self.name} of {self.graph_name}, rank {self.rank}>"


class DebuggerTensor:
    """An output of a node at one iteration, also when it was found as the input of another node.

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
        self._node = node
        self._slot = slot
        self._iteration = iteration

    @property
    def node(self) -> Node:
        return self._node

    @property
    def slot(self) -> int:
        return self._slot

    @property
    def iteration(self) -> int:
        """The iteration (step), from 0, as on disk."""
        return self._iteration

    @property
    def rank(self) -> int:
        return self._node.rank

    def value(self) -> Array | None:
        """Returns the values, read-only (a big file is memory-mapped); None without dumped values or elements.

        In a dump of inputs only, the first consumer's input is read; for a parameter that is its value *before* the
        iteration's update, but a parameter's own file holds the value after it. Raises UnreadableTensorError.

        Examples:
            >>> from tui_debugger import DumpAnalyzer
            >>> from tui_debugger.demo import demo_dump
            >>> DumpAnalyzer(demo_dump()).select_tensors("head.bias", iterations=0)[0].value().shape
            (4,)
        """
        values = self._read()
        return values if values is not None and values.size else None

    def statistics(self) -> TensorStats | None:
        """Returns counts, extremes and moments of all elements in float64, or recorded ones; None without either.

        Raises UnreadableTensorError when the file is broken.

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
        """Its dimensions; None when it was not dumped. UnreadableTensorError: the file is broken."""
        described = self._described()
        return described[1] if described else None

    @property
    def dtype(self) -> str | None:
        """Its logical element type (bfloat16 also when stored as float32); None when it was not dumped."""
        described = self._described()
        return described[0] if described else None

    def _read(self) -> Array | None:
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

    def _constant(self) -> Array | None:
        run, rank, row = self._node.place
        nodes = run.nodes(rank)
        text = nodes.constants.get(row)
        return constant_value(text, nodes.constant_types.get(row, "")) if text is not None and self._slot == 0 else None

    def _where(self) -> str:
        return f"rank {self.rank} iteration {self._iteration} {self._node.name}:{self._slot}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DebuggerTensor):
            return NotImplemented
        return (self.node, self.slot, self.iteration) == (other.node, other.slot, other.iteration)

    def __hash__(self) -> int:
        return hash((self._node, self._slot, self._iteration))

    def __str__(self) -> str:
        return f"{self._node}\nslot: {self._slot}\niteration: {self._iteration}"

    def __repr__(self) -> str:
        run, _, row = self._node.place
        name = f"{row} of a closed DumpAnalyzer" if run.closed else self._node.name
        return f"<DebuggerTensor {name}:{self._slot}, rank {self.rank}, iteration {self._iteration}>"


def constant_value(text: str, dtype: str = "") -> Array | None:
    """Returns a constant's value from its text in the graph: one bool, number or string; else None."""
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


_CHUNK = 4096
"""Tensors that are made at a time while iterating."""


class TensorColumns:
    """Tensors of one run as four columns of equal length: rank, node row, slot, step."""

    __slots__ = ("rank", "row", "slot", "step")

    def __init__(self, rank: Integers, row: Integers, slot: Integers, step: Integers) -> None:
        self.rank = np.asarray(rank, np.int32)
        self.row = np.asarray(row, np.int32)
        self.slot = np.asarray(slot, np.int32)
        self.step = np.asarray(step, np.int64)

    def __len__(self) -> int:
        return len(self.row)

    def take(self, which: slice | Array) -> TensorColumns:
        return TensorColumns(self.rank[which], self.row[which], self.slot[which], self.step[which])

    def equal(self, rank: int, row: int, slot: int, step: int) -> Mask:
        mask: Mask = (self.row == row) & (self.step == step) & (self.slot == slot) & (self.rank == rank)
        return mask

    def groups(self) -> list[tuple[int, int, Int64]]:
        """Returns (step, rank, positions) by step, then rank; positions ascend."""
        count = len(self)
        if not count:
            return []
        by = np.lexsort((np.arange(count), self.rank, self.step))
        changes = (np.diff(self.step[by]) != 0) | (np.diff(self.rank[by]) != 0)
        parts = np.split(by.astype(np.int64), np.flatnonzero(changes) + 1)
        return [(int(self.step[part[0]]), int(self.rank[part[0]]), part) for part in parts]


def joined(parts: Sequence[TensorColumns]) -> TensorColumns:
    names = ("rank", "row", "slot", "step")
    columns = [np.concatenate([np.zeros(0, np.int64), *(getattr(part, name) for part in parts)]) for name in names]
    return TensorColumns(*columns)


class DebuggerTensors(MutableSequence[DebuggerTensor]):
    """The tensors that an analyzer selected, in order; a ``DebuggerTensor`` is made when it is accessed.

    The sequence has all operations of a list. For tensors of several analyzers make a list of it.

    Examples:
        >>> from tui_debugger import DumpAnalyzer
        >>> from tui_debugger.demo import demo_dump
        >>> run = DumpAnalyzer(demo_dump())
        >>> tensors = run.select_tensors("RowNorm/Div-op385")
        >>> len(tensors), tensors[3] in tensors, len(tensors[2:4])
        (6, True, 2)
        >>> row = tensors[3:4].table(statistics=True)[0]
        >>> row["step"], row["dtype"], row["shape"], row["nan"]
        (3, 'float32', [4, 8, 16], 128)
    """

    __slots__ = ("columns", "run")

    def __init__(self, run: Run, columns: TensorColumns) -> None:
        self.run = run
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns)

    @overload
    def __getitem__(self, index: int) -> DebuggerTensor: ...
    @overload
    def __getitem__(self, index: slice) -> DebuggerTensors: ...
    def __getitem__(self, index: int | slice) -> DebuggerTensor | DebuggerTensors:
        columns = self.columns
        if isinstance(index, slice):
            return DebuggerTensors(self.run, columns.take(index))
        index = operator.index(index)  # numpy would accept lists and masks
        try:
            rank, row = int(columns.rank[index]), int(columns.row[index])
        except IndexError:
            msg = "tensor index out of range"
            raise IndexError(msg) from None
        return DebuggerTensor(Node(self.run, rank, row), int(columns.slot[index]), int(columns.step[index]))

    @overload
    def __setitem__(self, index: int, value: DebuggerTensor) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[DebuggerTensor]) -> None: ...
    def __setitem__(self, index: int | slice, value: DebuggerTensor | Iterable[DebuggerTensor]) -> None:
        given = self._own([value] if isinstance(value, DebuggerTensor) else value)
        places = list(range(len(self)))
        before = len(places)
        fresh: Any = list(range(before, before + len(given)))
        places[index] = fresh if isinstance(index, slice) else fresh[0]
        self.columns = joined([self.columns, given]).take(np.array(places, np.int64))

    def __delitem__(self, index: int | slice) -> None:
        places = np.arange(len(self))
        self.columns = self.columns.take(np.delete(places, index))

    def insert(self, index: int, value: DebuggerTensor) -> None:
        self[index:index] = [value]

    def append(self, value: DebuggerTensor) -> None:
        self.extend([value])

    def extend(self, values: Iterable[DebuggerTensor]) -> None:
        self.columns = joined([self.columns, self._own(values)])

    def clear(self) -> None:
        del self[:]

    def reverse(self) -> None:
        self.columns = self.columns.take(slice(None, None, -1))

    def sort(self, *, key: Callable[[DebuggerTensor], Any], reverse: bool = False) -> None:
        order = sorted(range(len(self)), key=[key(tensor) for tensor in self].__getitem__, reverse=reverse)
        self.columns = self.columns.take(np.array(order, np.int64))

    def copy(self) -> DebuggerTensors:
        return DebuggerTensors(self.run, self.columns)

    def _own(self, tensors: Iterable[DebuggerTensor]) -> TensorColumns:
        """Returns tensors of this analyzer as columns, or raises DebuggerParamValueError or DebuggerParamTypeError."""
        given = tensors if isinstance(tensors, DebuggerTensors) else list(tensors)
        if any(run is not self.run for run in _runs(given)):
            if all(isinstance(tensor, DebuggerTensor) for tensor in given):
                raise DebuggerParamValueError("a tensor of another analyzer", hint="make a list of each: list(...)")
            raise DebuggerParamTypeError("only tensors can come among tensors")
        return columns_of(given, self.run)

    def __iter__(self) -> Iterator[DebuggerTensor]:
        for start in range(0, len(self), _CHUNK):
            part = self.columns.take(slice(start, start + _CHUNK))
            rows = zip(*(column.tolist() for column in (part.rank, part.row, part.slot, part.step)), strict=True)
            for rank, row, slot, step in rows:
                yield DebuggerTensor(Node(self.run, rank, row), slot, step)

    def __contains__(self, tensor: object) -> bool:
        return bool(self._where(tensor).any())

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        found = np.flatnonzero(self._where(value))
        inside = found[np.isin(found, np.arange(len(self))[start:stop])]
        if not len(inside):
            msg = f"{value!r} is not among these tensors"
            raise ValueError(msg)
        return int(inside[0])

    def count(self, value: Any) -> int:
        return int(self._where(value).sum())

    def _where(self, tensor: object) -> Mask:
        run, place = place_of(tensor) if isinstance(tensor, DebuggerTensor) else (None, (0, 0, 0, 0))
        return self.columns.equal(*place) if run is self.run else np.zeros(len(self), np.bool_)

    def __add__(self, other: object) -> DebuggerTensors | list[DebuggerTensor]:
        """Returns the sum; a list when the others belong to another analyzer."""
        total = _sum(self, other)
        return NotImplemented if total is None else total

    def __radd__(self, other: object) -> DebuggerTensors | list[DebuggerTensor]:
        total = _sum(other, self)
        return NotImplemented if total is None else total

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DebuggerTensors) and other.run is self.run:
            mine, theirs = self.columns, other.columns
            return len(mine) == len(theirs) and all(
                np.array_equal(getattr(mine, name), getattr(theirs, name)) for name in TensorColumns.__slots__
            )
        if not isinstance(other, list | DebuggerTensors):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # equal to a list, so no more hashable than one

    def __repr__(self) -> str:
        if not len(self):
            return "<no tensors>"
        return f"<{len(self)} tensors: {self[0]!r}{', ...' if len(self) > 1 else ''}>"

    def table(self, statistics: bool = False) -> list[Row]:
        """Returns one flat dict per tensor, ready for ``pandas.DataFrame``.

        Keys: rank, step, graph, node, side, slot, round; with ``statistics`` (which measures every tensor) also dtype,
        shape, nbytes, the counts and moments (None if not dumped), and error (why it cannot be read).
        """
        rows: list[Row] = [{} for _ in range(len(self))]
        for step, rank, where in self.columns.groups():
            outputs = self.run.outputs(rank)
            part = self.columns.take(where)
            places = list(zip(part.row.tolist(), part.slot.tolist(), strict=True))
            for at, place in zip(where.tolist(), places, strict=True):
                rows[at] = key_row(outputs.key(step, place))
            if not statistics:
                continue
            for at, record in zip(where.tolist(), outputs.records(step, places), strict=True):
                meta, stats, error = (record.meta, record.stats, record.error) if record else (None, None, "")
                rows[at] |= {**meta_row(meta), **stats_row(stats), "error": error}
        return rows


def place_of(tensor: DebuggerTensor) -> tuple[Run, tuple[int, int, int, int]]:
    run, rank, row = tensor.node.place
    return run, (rank, row, tensor.slot, tensor.iteration)


def columns_of(tensors: DebuggerTensors | Iterable[DebuggerTensor], run: Run) -> TensorColumns:
    """Returns tensors as columns of a run, by node names if of another run, or raises DebuggerParamValueError."""
    if isinstance(tensors, DebuggerTensors) and tensors.run is run:
        return tensors.columns
    places = []
    for tensor in tensors:
        owner, (rank, row, slot, step) = place_of(tensor)
        places.append((rank, row if owner is run else row_in(run, tensor.node), slot, step))
    table = np.array(places, np.int64).reshape(-1, 4)
    return TensorColumns(table[:, 0], table[:, 1], table[:, 2], table[:, 3])


def row_in(run: Run, node: Node) -> int:
    """Returns the row of a node, or of the node with its name in another run; else DebuggerParamValueError."""
    owner, _, own = node.place
    if owner is run:
        return own
    row = run.find(node.rank, node.graph_name, node.name)
    if row < 0:
        raise DebuggerParamValueError(
            "this node belongs to another dump", where=f"rank {node.rank} {node.graph_name} {node.name}"
        )
    return row


def of_outputs(run: Run, rank: int, outputs: Sequence[tuple[int, int]], iterations: Sequence[int]) -> DebuggerTensors:
    table = np.array(outputs, np.int64).reshape(-1, 2)
    return DebuggerTensors(run, at_iterations(run, rank, table[:, 0], table[:, 1], iterations))


def at_iterations(run: Run, rank: int, rows: Integers, slots: Integers, iterations: Sequence[int]) -> TensorColumns:
    """Returns every (row, slot) at every iteration in which its root graph was dumped, in the order given."""
    nodes = run.nodes(rank)
    graphs = nodes.graph[rows] if len(rows) else np.zeros(0, np.int16)
    steps_of = {}
    for number, info in enumerate(nodes.graphs):
        dumped = set(run.steps(rank, info.root_id))
        kept = [step for step in iterations if not dumped or step in dumped]
        steps_of[number] = np.array(kept, np.int64)
    lengths = np.array([len(steps_of[number]) for number in range(len(nodes.graphs))], np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    flat = np.concatenate([np.zeros(0, np.int64), *steps_of.values()])
    counts = lengths[graphs] if len(rows) else np.zeros(0, np.int64)
    which = np.repeat(np.arange(len(rows)), counts)
    within = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    steps = flat[starts[graphs[which]] + within]
    return TensorColumns(np.full(len(which), rank), rows[which], slots[which], steps)


def _sum(one: object, two: object) -> DebuggerTensors | list[DebuggerTensor] | None:
    if not (isinstance(one, list | DebuggerTensors) and isinstance(two, list | DebuggerTensors)):
        return None
    runs = {id(run): run for part in (one, two) for run in _runs(part)}
    if None in runs.values() or len(runs) != 1:
        tensors: list[DebuggerTensor] = [*one, *two]
        return tensors
    (run,) = (run for run in runs.values() if run is not None)
    return DebuggerTensors(run, joined([columns_of(one, run), columns_of(two, run)]))


def _runs(part: list[Any] | DebuggerTensors) -> list[Run | None]:
    if isinstance(part, DebuggerTensors):
        return [part.run]
    return [place_of(each)[0] if isinstance(each, DebuggerTensor) else None for each in part]
