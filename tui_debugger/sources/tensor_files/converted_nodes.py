"""The nodes and edges of a rank that ``tdbg convert`` wrote, as lines of JSON.

The first line holds facts about the original dump. Then come runs, steps with their previous runs, stacks, and nodes,
whose inputs are (number of a node in the order of lines, output slot).
"""

from __future__ import annotations

import io
import json
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Mask
from tui_debugger.graph.build import MAX_SLOTS
from tui_debugger.graph.table import GraphInfo, NodeFlag, NodeTable, pointers
from tui_debugger.model import Category, Frame, GraphRun
from tui_debugger.opener import read_regular
from tui_debugger.sources.registry import Edges, Has, Order, Shows
from tui_debugger.sources.tensor_files.layout import CONVERTED_NODES

NAME: Final = CONVERTED_NODES
"""The file, in the directory of a rank."""
_VERSION: Final = 1
_LIMIT: Final = 1 << 28
"""In bytes: ten times the size for 100,000 nodes."""
_MOST: Final = 2**62
_MOST_GRAPHS: Final = 1 << 15
_COLUMNS: Final = ("graph", "type", "category", "flags", "order", "outputs", "stack")

_TEXTS: Final = {
    "constant": "constants",
    "constant_type": "constant_types",
    "file_name": "file_names",
    "placement": "placements",
}
"""Texts that few nodes have: key in the file, and attribute of the table."""

Run = tuple[int, int, int]
"""Root graph, step, round."""


@dataclass(frozen=True, slots=True)
class ConvertedNodes:
    """The nodes of one rank, and the order in which graphs ran."""

    nodes: NodeTable
    runs: Sequence[GraphRun]
    """See ``Source.history``."""
    before: Mapping[Run, tuple[int, int] | None]
    """(step, round) of the dumped run before each run."""
    shows: Shows
    """Abilities of the original dump."""
    notices: Sequence[str]

    def lines(self, kept: Mask) -> Iterator[str]:
        """Yields the lines of the file, without nodes that are not kept."""
        nodes = self.nodes
        yield _line(
            {
                "version": _VERSION,
                "shows": {
                    "edges": self.shows.edges.value,
                    "order": self.shows.order.value,
                    "stacks": self.shows.stacks.value,
                    "gradients": self.shows.gradients.value,
                    "limits": list(self.shows.limits),
                    "values_advice": self.shows.values_advice,
                    "tensors_advice": self.shows.tensors_advice,
                },
                "notices": list(self.notices),
                "graphs": [[info.name, info.root_id, info.is_root] for info in nodes.graphs],
            }
        )
        for run in self.runs:
            yield _line({"run": asdict(run)})
        for at, before in self.before.items():
            yield _line({"at": list(at), "before": None if before is None else list(before)})
        for stack in nodes.stacks:
            yield _line({"stack": [_frame_cells(frame) for frame in stack]})
        number = np.cumsum(kept) - 1
        columns: dict[str, dict[int, str]] = {key: getattr(nodes, attribute) for key, attribute in _TEXTS.items()}
        for row in np.flatnonzero(kept).tolist():
            made = [
                [int(number[node]), slot] if node >= 0 and kept[node] else [-1, 0] for node, slot in nodes.inputs(row)
            ]
            yield _line(
                {
                    "node": nodes.names[row],
                    "path": nodes.paths[row],
                    "type": nodes.op_type(row),
                    "graph": int(nodes.graph[row]),
                    "category": nodes.category_of(row).name.lower(),
                    "order": int(nodes.order[row]),
                    "outputs": int(nodes.outputs[row]),
                    "marks": [flag.name.lower() for flag in NodeFlag if flag & int(nodes.flags[row]) and flag.name],
                    "inputs": made,
                    **({"stack_of": int(nodes.stack_id[row])} if nodes.stack_id[row] >= 0 else {}),
                    **{key: texts[row] for key, texts in columns.items() if row in texts},
                    **({"ranks": list(nodes.group_ranks[row])} if row in nodes.group_ranks else {}),
                }
            )


def path_of(directory: str | Path) -> str:
    """The file of a rank, given the directory of one of its steps."""
    return os.path.join(os.path.dirname(directory), NAME)  # noqa: PTH118, PTH120 - text all the way


def read_nodes(path: str) -> ConvertedNodes:
    """Reads the file of a rank.

    Raises OSError when it cannot be read, and ValueError, with the number of the line, when it makes no sense.
    """
    reader = _NodeLineReader()
    number = 0
    try:
        for line in io.BytesIO(read_regular(path, _LIMIT)):
            number += 1
            reader.take(json.loads(line))
        return reader.found()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"line {number}: {_why(error)}") from None


def _why(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return "no JSON"
    return str(error) if isinstance(error, ValueError) else "no line of nodes"


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, separators=(",", ":")) + "\n"


def _frame_cells(frame: Frame) -> list[Any]:
    return [getattr(frame, each.name) for each in fields(Frame)]


class _NodeLineReader:
    def __init__(self) -> None:
        self._graphs: tuple[GraphInfo, ...] | None = None
        self._shows = Shows()
        self._notices: list[str] = []
        self._runs: list[GraphRun] = []
        self._before: dict[Run, tuple[int, int] | None] = {}
        self._stacks: list[tuple[Frame, ...]] = []
        self._names: list[str] = []
        self._paths: list[str] = []
        self._types: dict[str, int] = {}
        self._numbers: dict[str, array[int]] = {name: array("q") for name in _COLUMNS}
        self._inputs, self._counts = array("i"), array("i")
        self._slots = array("h")
        self._texts: dict[str, dict[int, str]] = {key: {} for key in _TEXTS}
        self._ranks: dict[int, tuple[int, ...]] = {}

    def take(self, row: dict[str, Any]) -> None:
        if self._graphs is None:
            self._take_head(row)
        elif "run" in row:
            run = row["run"]
            name, has_data = _text(run["graph"]), _flag(run["has_data"])
            numbers = [_whole(run[each], _MOST) for each in ("step", "root_graph", "round", "began", "turn")]
            step, root, of_step, began, turn = numbers
            self._runs.append(GraphRun(step, root, name, has_data, of_step, began, turn))
        elif "before" in row:
            root, step, of_step = (_whole(each, _MOST) for each in row["at"])
            before = row["before"]
            self._before[root, step, of_step] = None if before is None else _pair(before, _MOST, _MOST)
        elif "stack" in row:
            self._stacks.append(tuple(_frame(cells) for cells in row["stack"]))
        else:
            self._take_node(row, self._graphs)

    def _take_head(self, row: dict[str, Any]) -> None:
        if row["version"] != _VERSION:
            raise ValueError(f"version {str(row['version'])[:20]}: {_VERSION} is known")
        shows = row["shows"]
        self._shows = Shows(
            edges=Edges(shows["edges"]),
            order=Order(shows["order"]),
            stacks=Has(shows["stacks"]),
            gradients=Has(shows["gradients"]),
            limits=tuple(_text(each) for each in shows["limits"]),
            values_advice=_text(shows["values_advice"]),
            tensors_advice=_text(shows["tensors_advice"]),
        )
        self._notices = [_text(each) for each in row["notices"]]
        graphs = [GraphInfo(_text(name), _whole(root, 1 << 31), _flag(main)) for name, root, main in row["graphs"]]
        if len(graphs) > _MOST_GRAPHS or len({info.name for info in graphs}) < len(graphs):
            raise ValueError("two graphs of one name, or too many")
        self._graphs = tuple(graphs)

    def _take_node(self, row: dict[str, Any], graphs: Sequence[GraphInfo]) -> None:
        name, kind = _text(row["node"]), _text(row["type"])
        if not name:
            raise ValueError("a node without a name")
        flags = NodeFlag.NONE
        for word in row["marks"]:
            flags |= NodeFlag[word.upper()]
        numbers = (
            _whole(row["graph"], len(graphs)),
            self._types.setdefault(kind, len(self._types)),
            int(Category[row["category"].upper()]),
            int(flags),
            _whole(row["order"] + 1, 1 << 31) - 1,
            _whole(row["outputs"], MAX_SLOTS + 1),
            _whole(row.get("stack_of", -1) + 1, len(self._stacks) + 1) - 1,
        )
        at = len(self._names)
        for each in row["inputs"]:
            made, slot = _pair(each, 1 << 31, MAX_SLOTS + 1)
            self._inputs.append(made)
            self._slots.append(slot)
        self._counts.append(len(row["inputs"]))
        for column, number in zip(self._numbers.values(), numbers, strict=True):
            column.append(number)
        for key, column_of_texts in self._texts.items():
            if key in row:
                column_of_texts[at] = _text(row[key])
        if "ranks" in row:
            self._ranks[at] = tuple(_whole(each, 1 << 31) for each in row["ranks"])
        self._paths.append(_text(row["path"]))
        self._names.append(name)

    def found(self) -> ConvertedNodes:
        if self._graphs is None:
            raise ValueError("empty")
        count = len(self._names)
        columns = {name: np.array(column, np.int64) for name, column in self._numbers.items()}
        made = np.array(self._inputs, np.int32)
        if len(set(zip(self._numbers["graph"], self._names, strict=True))) < count:
            raise ValueError("two nodes of one name in a graph")
        if (made >= count).any():
            raise ValueError("an input that is no node")
        order = columns["order"]
        place = np.argsort(np.argsort(np.where(order < 0, _MOST, order), kind="stable"), kind="stable")
        table = NodeTable(
            graphs=self._graphs,
            names=self._names,
            paths=self._paths,
            types=tuple(self._types),
            graph=columns["graph"].astype(np.int16),
            type_id=columns["type"].astype(np.int32),
            category=columns["category"].astype(np.uint8),
            flags=columns["flags"].astype(np.uint8),
            order=np.where(order < 0, -1, place).astype(np.int32),
            outputs=columns["outputs"].astype(np.int16),
            in_ptr=pointers(np.array(self._counts, np.int64)),
            in_node=made,
            in_slot=np.array(self._slots, np.int16),
            stack_id=columns["stack"].astype(np.int32),
            stacks=self._stacks,
            group_ranks=self._ranks,
            **{attribute: self._texts[key] for key, attribute in _TEXTS.items()},
        )
        return ConvertedNodes(table, self._runs, self._before, self._shows, self._notices)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("neither true nor false")
    return value


def _whole(value: Any, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < most:
        raise ValueError(f"{str(value)[:20]!r} is no number from 0 to {most - 1}")
    return value


def _pair(value: Any, *most: int) -> tuple[int, int]:
    """Two numbers; the first one may be -1."""
    first, second = value
    return _whole(first + 1, most[0] + 1) - 1, _whole(second, most[1])


def _frame(cells: Any) -> Frame:
    path, line, code, end_line, depth, *flags = cells
    numbers = (_whole(line, 1 << 31), _whole(end_line, 1 << 31), _whole(depth, 1 << 15))
    substack, forward, context, framework = map(_flag, flags)
    return Frame(_text(path), numbers[0], _text(code), numbers[1], numbers[2], substack, forward, context, framework)
