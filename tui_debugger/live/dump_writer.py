"""Writes a dump directory in MindSpore's layout, which ``tdbg open`` and every other command read.

A .npy file is written piece by piece: a tensor that arrives in chunks need not fit into memory.

::

    ROOT/rank_R/.dump_metadata/         who trained
               /graphs/                 ms_output_trace_code_graph_N.pb
               /execution_order/        order of operators, steps that ran
               /notes.jsonl         scalars that the program noted, a line for each step
               /said.jsonl          what the training said beside values: see ``said``
               /NET/ROOT_GRAPH/STEP/    TYPE.NAME.0.0.TIME.output.SLOT.DefaultFormat.DTYPE.npy, statistic.csv

Names are spelled as MindSpore 2.4 to 2.6 does (the full name, ``/`` as ``--``, the element type at the end): the one
form that says everything about a tensor. The spool of a live session and the flight recorder of a training write
with it; it needs neither sources nor a session.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.model import TensorMeta, TensorStats
from tui_debugger.notes import NOTES_FILE, Notes, notes_line
from tui_debugger.said import SAID_FILE
from tui_debugger.stats.dtypes import canonical_name, dtype_of, name_of

PART: Final = ".part"
"""Ends the name of a file that is not complete: nobody takes it for a tensor."""
_STORED: Final = {"bfloat16": "<E2"}
"""MindSpore's spelling of types that numpy has no name for; others are raw bytes, their type is in the file name."""


class NpyFile:
    """A file that is being written: ``write`` what comes, then ``close`` it; until then it has no name of its own.

    Attributes:
        path: what it is called when it is complete.
        written: bytes of values so far.
        nbytes: bytes of values that were declared; more are refused.
    """

    def __init__(self, path: Path, dtype: str, shape: tuple[int, ...]) -> None:
        """Opens it and writes the header; the directory is made where it is missing.

        Raises:
            OSError: no room, no rights ...
            ValueError: an element type that cannot be stored, or an impossible shape.
        """
        descr, nbytes = descr_of(dtype), size_of(dtype, shape)
        if descr is None or nbytes is None:
            msg = f"{dtype} {shape} cannot be stored"
            raise ValueError(msg)
        self.path, self.nbytes, self.written = path, nbytes, 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._part = path.with_name(path.name[:-4][:200] + PART)
        self._file = self._part.open("wb")
        try:
            self._file.write(header(descr, shape))
        except BaseException:
            self.discard()
            raise

    def write(self, chunk: bytes | memoryview) -> None:
        """Adds bytes.

        Raises:
            OSError: no room.
            ValueError: more than were declared.
        """
        if self.written + len(chunk) > self.nbytes:
            msg = f"more than the declared {self.nbytes} bytes"
            raise ValueError(msg)
        self._file.write(chunk)
        self.written += len(chunk)

    def close(self) -> bool:
        """Gives the file its name when everything is there, else discards it; whether it is there.

        Raises:
            OSError: what was written could not be kept.
        """
        if self.written != self.nbytes:
            self.discard()
            return False
        try:
            self._file.close()
            os.replace(self._part, self.path)  # noqa: PTH105 - the same for bytes that are no text
        except BaseException:
            self.discard()
            raise
        return True

    def discard(self) -> None:
        """Removes it. Never raises."""
        with suppress(OSError, ValueError):
            self._file.close()
        with suppress(OSError):
            self._part.unlink()


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Gives a name to write to; what is there in the end gets its own name, or goes where writing failed."""
    part = path.with_name(path.name[:200] + PART)
    try:
        yield part
        os.replace(part, path)  # noqa: PTH105 - the same for bytes that are no text
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def _link(source: Path, path: Path) -> Path:
    """Gives a file a second name, or copies it where the file systems do not allow that."""
    import shutil

    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, path)
    except OSError:
        with _whole(path) as part:
            shutil.copyfile(source, part)
    return path


def _write(path: Path, content: str | bytes) -> None:
    with _whole(path) as part:
        part.write_bytes(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content)


def descr_of(dtype: str) -> str | None:
    """Tells how a header spells an element type; None for one that cannot be stored."""
    name = canonical_name(dtype)
    stored = dtype_of(name) if name else None
    if stored is None:
        return None
    if name in _STORED:
        return _STORED[name]
    if stored.isbuiltin == 2:  # of ml_dtypes
        return f"|V{stored.itemsize}"
    return str(stored.newbyteorder("<").str)


def size_of(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Bytes of the values; None for a type that cannot be stored or an impossible shape."""
    stored = dtype_of(dtype)
    if stored is None or len(shape) > 32 or any(size < 0 for size in shape):
        return None
    if math.prod(size for size in shape if size) * stored.itemsize >= 1 << 62:
        return None
    return math.prod(shape) * stored.itemsize


@lru_cache(maxsize=1024)
def header(descr: str, shape: tuple[int, ...]) -> bytes:
    """The header of a .npy file of version 1.0, in C order."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    length = -(-(10 + len(text) + 1) // 64) * 64
    body = text.ljust(length - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body.encode("latin-1")


VERSION: Final = "2.5.0"
"""The release of MindSpore whose layout is written."""
PARAMETER: Final = "Parameter"
_LONGEST: Final = 240
"""Bytes of a file name; a longer one becomes a number and a line of ``mapping.csv``. File systems hold 255."""
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f]")
_COLUMNS: Final = (
    *("Op Type", "Op Name", "Task ID", "Stream ID", "Timestamp", "IO", "Slot", "Data Size", "Data Type", "Shape"),
    *("Max Value", "Min Value", "Avg Value", "L2Norm Value", "Count", "Negative Zero Count", "Positive Zero Count"),
    *("NaN Count", "Negative Inf Count", "Positive Inf Count", "Zero Count"),
)


@dataclass(frozen=True, slots=True)
class TensorName:
    """The name of an output or input of a node.

    Attributes:
        type: operator type, ``Parameter`` for parameters.
        node: full name; bare name of a parameter.
        slot: of the output or input.
        root_graph: number of the root graph that the node is in.
        side: ``output`` or ``input``.
    """

    type: str
    node: str
    slot: int = 0
    root_graph: int = 0
    side: str = "output"


class DumpWriter:
    """Writes the dump of one rank. Several writers of different ranks may share a directory.

    Attributes:
        path: the directory of the rank.
    """

    def __init__(
        self, directory: Path, *, rank: int = 0, net: str = "training", program: str = "", device: str = ""
    ) -> None:
        """Nothing is written yet.

        Args:
            directory: top directory of the dump; made where it is missing.
            rank: process number.
            net: name of the network, for people.
            program: framework and version: ``PyTorch 2.13.0``.
            device: ``CPU``, ``GPU``, ``Ascend``.
        """
        self.rank = rank
        self.path = directory / f"rank_{rank}"
        self._net = _file_text(net).strip(". ")[:100] or "training"
        self._program, self._device = program, device
        self._clock = 0
        self._mapped = 0

    def metadata(self) -> None:
        """Writes who trained.

        Raises:
            OSError: as everything here, when the disk is full or must not be written to.
        """
        directory = self._directory(".dump_metadata")
        settings = {"net_name": self._net, "iteration": "all", "saved_data": "full"}
        config = {"device_target": self._device, "ms_version": VERSION, "program": self._program}
        for name, content in (("data_dump", {"common_dump_settings": settings}), ("config", config)):
            _write(directory / f"{name}.json", json.dumps(content))

    def graphs(self, graphs: Sequence[bytes], ran: Sequence[str] = ()) -> None:
        """Writes graphs and the order of their operators.

        Args:
            graphs: each a serialized GraphProto.
            ran: full names in the order in which they ran; operators that are not named follow as the graph lists them.
        """
        from tui_debugger.graph.messages import message_class

        orders: dict[int, list[str]] = {}
        place = {_UNSAFE.sub("_", name): number for number, name in reversed([*enumerate(ran)])}
        directory = self._directory("graphs")
        taken: set[int] = set()
        for index, data in enumerate(graphs):
            graph = message_class("GraphProto").FromString(data)
            number = next(each for each in (_number(graph.name), index, *range(len(graphs) + 1)) if each not in taken)
            taken.add(number)
            model = b"\x22" + _varint(len(data)) + data  # ModelProto.graph: field 4, length-delimited
            _write(directory / f"ms_output_trace_code_graph_{number}.pb", model)
            root = int(graph.root_name) if graph.root_name.isdigit() and len(graph.root_name) < 10 else number
            names = (node.full_name.decode("utf-8", "replace") for node in graph.node)
            orders.setdefault(root, []).extend(_UNSAFE.sub("_", name) for name in names if name)
        directory = self._directory("execution_order")
        for root, order in orders.items():
            order.sort(key=lambda name: place.get(name, len(place)))
            lines = ["NodeExecutionOrder-FullNameWithScope", *order, ""]
            _write(directory / f"ms_execution_order_graph_{root}.csv", "\n".join(lines))

    def history(self, steps: Iterable[int], root_graph: int = 0) -> None:
        """Writes the steps at which a root graph ran, all of them; negative ones have no place in a dump."""
        lines = "".join(f"{step}\n" for step in sorted(set(steps)) if step >= 0)
        _write(self._directory("execution_order") / f"ms_global_execution_order_graph_{root_graph}.csv", lines)

    def notes(self, notes: Iterable[tuple[int, Notes]]) -> None:
        """Writes the scalars that the program noted of its steps, where there are any: see ``notes``."""
        lines = [notes_line(step, of_step) for step, of_step in notes if of_step and step >= 0]
        if lines:
            self.path.mkdir(parents=True, exist_ok=True)
            _write(self.path / NOTES_FILE, "".join(lines))

    def said(self, lines: Iterable[str]) -> None:
        """Writes what the training said of its steps beside values, where there is something: see ``said``."""
        if text := "".join(lines):
            self.path.mkdir(parents=True, exist_ok=True)
            _write(self.path / SAID_FILE, text)

    def step(self, step: int, root_graph: int = 0) -> Path:
        """The directory of a step; made where it is missing."""
        return self._directory(f"{self._net}/{root_graph}/{step}")

    def open(self, step: int, name: TensorName, dtype: str, shape: tuple[int, ...]) -> NpyFile:
        """A file for values that come in chunks, little-endian and in C order.

        Raises:
            OSError: it cannot be written.
            ValueError: the element type cannot be stored.
        """
        return NpyFile(self._tensor_path(step, name, dtype), dtype, shape)

    def array(self, step: int, name: TensorName, values: npt.NDArray[Any]) -> Path:
        """Writes values; returns the file.

        Raises:
            OSError: it cannot be written.
            ValueError: the element type cannot be stored.
        """
        plain = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False))
        file = self.open(step, name, name_of(values.dtype), values.shape)
        try:
            file.write(plain.reshape(-1).view(np.uint8).data)
            file.close()
        except BaseException:
            file.discard()
            raise
        return file.path

    def place(self, step: int, name: TensorName, dtype: str, source: Path) -> Path:
        """Takes over a finished .npy file: a link to it where the file systems allow that, else a copy."""
        return _link(source, self._tensor_path(step, name, dtype))

    def constant(self, number: int, dtype: str, source: Path, root_graph: int = 0) -> Path:
        """Takes over a finished .npy file as the value of a constant.

        Args:
            number: of the constant among those of its graph.
            dtype: its element type.
            source: the file.
            root_graph: of the constant.
        """
        directory = self._directory(f"{self._net}/{root_graph}/constants")
        name = canonical_name(dtype) or dtype
        path = directory / f"Parameter.Default--data-{number}.0.0.0.output.0.DefaultFormat.{name}.npy"
        return _link(source, path)

    def statistics(
        self, step: int, rows: Iterable[tuple[TensorName, TensorMeta | None, TensorStats | None]], root_graph: int = 0
    ) -> Path:
        """Writes the ``statistic.csv`` of a step, in place of one that is there.

        Args:
            step: the step.
            rows: tensors of one root graph; unknown numbers (None, NaN) are left empty, all of them without statistics.
            root_graph: that graph.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows(self._statistics_row(*row) for row in rows)
        path = self.step(step, root_graph) / "statistic.csv"
        _write(path, text.getvalue())
        return path

    def _statistics_row(self, name: TensorName, meta: TensorMeta | None, stats: TensorStats | None) -> list[str]:
        if stats is None:
            place = [_type_text(name), _node_text(name), "0", "0", str(self._tick()), name.side, str(name.slot)]
            return [*place, "0", "", "()", *[""] * (len(_COLUMNS) - len(place) - 3)]
        shape = f"({','.join(map(str, meta.shape))})" if meta is not None else f"({stats.count})"
        norm = math.sqrt(stats.sum_squares) if stats.sum_squares >= 0 else math.nan
        return [
            *(_type_text(name), _node_text(name), "0", "0", str(self._tick()), name.side, str(name.slot)),
            *(str(meta.nbytes if meta is not None else 0), meta.dtype if meta is not None else "", shape),
            *(_real(stats.maximum), _real(stats.minimum), _real(stats.mean), _real(norm)),
            *map(str, (stats.count, stats.negative, stats.positive, stats.nan, stats.neg_inf, stats.pos_inf)),
            str(stats.zero),
        ]

    def _tensor_path(self, step: int, name: TensorName, dtype: str) -> Path:
        directory = self.step(step, name.root_graph)
        ending = f".0.0.{self._tick()}.{name.side}.{name.slot}.DefaultFormat.{canonical_name(dtype) or dtype}.npy"
        spelled = f"{_type_text(name)}.{_node_text(name)}{ending}"
        if len(spelled.encode("utf-8", "surrogateescape")) <= _LONGEST:
            return directory / spelled
        self._mapped += 1
        number = f"{self._tick()}{self._mapped:06d}"
        with (directory / "mapping.csv").open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{number}.npy,{spelled}\n")
        return directory / f"{number}.npy"

    def _tick(self) -> int:
        """Microseconds since the epoch, never the same twice."""
        self._clock = max(self._clock + 1, time.time_ns() // 1000)
        return self._clock

    def _directory(self, name: str) -> Path:
        path = self.path / name
        path.mkdir(parents=True, exist_ok=True)
        return path


def _type_text(name: TensorName) -> str:
    """Without dots: the first one of a file name ends the type."""
    return _file_text(name.type).replace(".", "_") or "Op"


def _node_text(name: TensorName) -> str:
    return _file_text(name.node)


def _file_text(text: str) -> str:
    """A text that may be a part of a file name: names come from whoever trains."""
    return _UNSAFE.sub("_", text).replace("/", "--")


def _real(value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else repr(float(value))


def _number(name: bytes) -> int:
    match = re.search(rb"(\d{1,9})$", name)
    return int(match[1]) if match else -1


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
