"""Writes a dump directory in MindSpore's layout, which ``tdbg open`` and every other command read.

A .npy file is written piece by piece: a tensor that arrives in chunks need not fit into memory.

::

    ROOT/rank_R/.dump_metadata/         program and device
               /graphs/                 ms_output_trace_code_graph_N.pb
               /execution_order/        order of operators, steps that ran
               /notes.jsonl             scalars that the program noted, a line for each step
               /said.jsonl              what the training said besides values: see ``said``
               /NET/ROOT_GRAPH/STEP/    TYPE.NAME.0.0.TIME.output.SLOT.DefaultFormat.DTYPE.npy, statistic.csv

Names are spelled as MindSpore 2.4 to 2.6 does (the full name, ``/`` as ``--``, the element type at the end): the only
form with all facts of a tensor. The spool of a live session and the flight recorder use this module; it needs neither
sources nor a session.
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
"""Ends the name of an incomplete file, so that it is not taken for a tensor."""
_STORED: Final = {"bfloat16": "<E2"}
"""MindSpore's spelling of types that numpy has no name for; other such types are stored as raw bytes."""


class NpyFile:
    """A file that is being written; it gets its own name (``path``) only in ``close``, when it is complete."""

    def __init__(self, path: Path, dtype: str, shape: tuple[int, ...]) -> None:
        """Opens it and writes the header; ValueError for a type that cannot be stored or an impossible shape."""
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
        """Adds bytes; ValueError for more than were declared."""
        if self.written + len(chunk) > self.nbytes:
            msg = f"more than the declared {self.nbytes} bytes"
            raise ValueError(msg)
        self._file.write(chunk)
        self.written += len(chunk)

    def close(self) -> bool:
        """Gives the file its name if all bytes were written, else discards it; tells which."""
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
        with suppress(OSError, ValueError):
            self._file.close()
        with suppress(OSError):
            self._part.unlink()


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Yields a name to write to; the file is renamed to ``path``, or removed after an error."""
    part = path.with_name(path.name[:200] + PART)
    try:
        yield part
        os.replace(part, path)  # noqa: PTH105 - the same for bytes that are no text
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def _link(source: Path, path: Path) -> Path:
    """Makes a hard link, or a copy where the file systems do not allow links."""
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
    """The spelling of an element type in a .npy header; None for one that cannot be stored."""
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
_HEADER: Final = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,"
    "Max Value,Min Value,Avg Value,L2Norm Value,Count,Negative Zero Count,Positive Zero Count,"
    "NaN Count,Negative Inf Count,Positive Inf Count,Zero Count"
)
_COLUMNS: Final = _HEADER.split(",")


@dataclass(frozen=True, slots=True)
class TensorName:
    """The name of an output or input (``side``) of a node; ``type`` is ``Parameter`` for parameters."""

    type: str
    node: str
    slot: int = 0
    root_graph: int = 0
    side: str = "output"


class DumpWriter:
    """Writes the dump of one rank. Several writers of different ranks may share a directory."""

    def __init__(
        self, directory: Path, *, rank: int = 0, net: str = "training", program: str = "", device: str = ""
    ) -> None:
        """``net`` is a name of the network for users; ``program`` is framework and version: ``PyTorch 2.13.0``."""
        self.rank = rank
        self.path = directory / f"rank_{rank}"
        self._net = _file_text(net).strip(". ")[:100] or "training"
        self._program, self._device = program, device
        self._clock = 0
        self._mapped = 0

    def metadata(self) -> None:
        directory = self._directory(".dump_metadata")
        settings = {"net_name": self._net, "iteration": "all", "saved_data": "full"}
        config = {"device_target": self._device, "ms_version": VERSION, "program": self._program}
        for name, content in (("data_dump", {"common_dump_settings": settings}), ("config", config)):
            _write(directory / f"{name}.json", json.dumps(content))

    def graphs(self, graphs: Sequence[bytes], ran: Sequence[str] = ()) -> None:
        """Writes serialized GraphProto messages, and the order of their operators.

        ``ran`` has full names in the order in which they ran; other operators follow in the order of the graph.
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
        """Writes all steps at which a root graph ran; negative ones have no place in a dump."""
        lines = "".join(f"{step}\n" for step in sorted(set(steps)) if step >= 0)
        _write(self._directory("execution_order") / f"ms_global_execution_order_graph_{root_graph}.csv", lines)

    def notes(self, notes: Iterable[tuple[int, Notes]]) -> None:
        lines = [notes_line(step, of_step) for step, of_step in notes if of_step and step >= 0]
        if lines:
            self.path.mkdir(parents=True, exist_ok=True)
            _write(self.path / NOTES_FILE, "".join(lines))

    def said(self, lines: Iterable[str]) -> None:
        """Writes what the training said besides values, if anything: see ``said``."""
        if text := "".join(lines):
            self.path.mkdir(parents=True, exist_ok=True)
            _write(self.path / SAID_FILE, text)

    def step(self, step: int, root_graph: int = 0) -> Path:
        return self._directory(f"{self._net}/{root_graph}/{step}")

    def open(self, step: int, name: TensorName, dtype: str, shape: tuple[int, ...]) -> NpyFile:
        """A file for values that come in chunks, little-endian and in C order; ValueError as of ``NpyFile``."""
        return NpyFile(self._tensor_path(step, name, dtype), dtype, shape)

    def array(self, step: int, name: TensorName, values: npt.NDArray[Any]) -> Path:
        """Writes values; returns the file. ValueError: the element type cannot be stored."""
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
        """Takes over a finished .npy file: by a link where the file systems allow that, else by a copy."""
        return _link(source, self._tensor_path(step, name, dtype))

    def constant(self, number: int, dtype: str, source: Path, root_graph: int = 0) -> Path:
        """Takes over a finished .npy file as the value of the ``number``-th constant of its graph."""
        directory = self._directory(f"{self._net}/{root_graph}/constants")
        name = canonical_name(dtype) or dtype
        path = directory / f"Parameter.Default--data-{number}.0.0.0.output.0.DefaultFormat.{name}.npy"
        return _link(source, path)

    def statistics(
        self, step: int, rows: Iterable[tuple[TensorName, TensorMeta | None, TensorStats | None]], root_graph: int = 0
    ) -> Path:
        """Writes or replaces the ``statistic.csv`` of a step and root graph; unknown numbers (None, NaN) are empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows(self._statistics_row(*row) for row in rows)
        path = self.step(step, root_graph) / "statistic.csv"
        _write(path, text.getvalue())
        return path

    def _statistics_row(self, name: TensorName, meta: TensorMeta | None, stats: TensorStats | None) -> list[str]:
        place = [_type_text(name), _file_text(name.node), "0", "0", str(self._tick()), name.side, str(name.slot)]
        if stats is None:
            return [*place, "0", "", "()", *[""] * (len(_COLUMNS) - len(place) - 3)]
        shape = f"({','.join(map(str, meta.shape))})" if meta is not None else f"({stats.count})"
        norm = math.sqrt(stats.sum_squares) if stats.sum_squares >= 0 else math.nan
        return [
            *place,
            *(str(meta.nbytes if meta is not None else 0), meta.dtype if meta is not None else "", shape),
            *(_real(stats.maximum), _real(stats.minimum), _real(stats.mean), _real(norm)),
            *map(str, (stats.count, stats.negative, stats.positive, stats.nan, stats.neg_inf, stats.pos_inf)),
            str(stats.zero),
        ]

    def _tensor_path(self, step: int, name: TensorName, dtype: str) -> Path:
        directory = self.step(step, name.root_graph)
        ending = f".0.0.{self._tick()}.{name.side}.{name.slot}.DefaultFormat.{canonical_name(dtype) or dtype}.npy"
        spelled = f"{_type_text(name)}.{_file_text(name.node)}{ending}"
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
    """Without dots: the first dot of a file name ends the type."""
    return _file_text(name.type).replace(".", "_") or "Op"


def _file_text(text: str) -> str:
    """A text that may be a part of a file name: names come from the program."""
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
