"""The tensors that a ``Recorder`` was given in one step: a ``Probe`` over NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tui_debugger.analysis.blocks import Array
from tui_debugger.analysis.dtypes import name_of
from tui_debugger.analysis.record import Need, Record
from tui_debugger.live.client.elements import type_number
from tui_debugger.live.client.graph import GRADIENTS, GraphBuilder
from tui_debugger.live.client.judging import Judge, Patience, resolve, watched
from tui_debugger.live.client.measure import measure, meta_of
from tui_debugger.live.client.probe import ClientHit, ClientValue, Identity
from tui_debugger.live.types import RemoteTensor, RemoteWatchpoint, Unrecorded
from tui_debugger.model import TensorMeta, TensorStats

PARAMETER_KINDS: Final = frozenset({"weight", "parameter"})
NODES: Final = 100_000
"""Names that are told apart; what comes with further ones is not kept."""
_PIECE: Final = 1 << 20
"""Elements of a strided array that are copied at once when it is sent."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A name that was recorded: a node of the graph."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    meta: TensorMeta


@dataclass(slots=True)
class Held:
    """What is kept of one tensor of this step.

    Attributes:
        record: what was measured when it came; None when nobody wanted to know.
        values: a copy; None when there was no room, or nobody is there who could ask.
    """

    meta: TensorMeta
    record: Record | None = None
    values: Array | None = None


@dataclass(slots=True)
class Room:
    """Bytes of copies that may be kept."""

    most: int
    used: int = 0

    def take(self, nbytes: int) -> bool:
        """Whether there is room for so many more; if so they are counted."""
        if self.used + nbytes > self.most:
            return False
        self.used += nbytes
        return True


@dataclass(slots=True)
class Recordings:
    """The nodes seen so far and the tensors of this step.

    Attributes:
        who: for ``identity``.
        room: for copies of values, of this step and the one before.
        flight_judge: the watchpoints of the flight recorder.
        measuring: statistics of every tensor are wanted.
        keeping: a debugger is there, or will be in a moment: values are kept.
        copying: values are kept for somebody else.
        full: names were passed over.
    """

    who: Identity
    room: Room
    flight_judge: Judge = field(default_factory=Judge)
    measuring: bool = False
    keeping: bool = False
    copying: bool = False
    full: bool = False
    nodes: dict[str, Recorded] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    before: dict[str, Array] = field(default_factory=dict)
    judge: Judge = field(default_factory=Judge)
    patience: Patience = field(default_factory=Patience)

    # -- recording -----------------------------------------------------------------------------------

    def wanted(self, name: str, kind: str) -> bool:
        """Whether a tensor need be converted at all: while nobody is there, only to learn of its name."""
        return self.keeping or self.measuring or self.copying or _full_name(name, kind) not in self.nodes

    def add(self, name: str, kind: str, array: Array, inputs: Sequence[str] = ()) -> None:
        """Takes a tensor of this step; of two with one name the later one counts."""
        name = _full_name(name, kind)
        if name not in self.nodes and not self._add_node(name, kind, array, inputs):
            return
        held = Held(meta_of(array))
        need = self._need(name)
        if need is not None:
            held.record = measure(array, need, self.before.get(name))
        if self._wants_values(need) and self._take(name, array.nbytes):
            held.values = np.array(array, copy=True, order="C")
        self.held.pop(name, None)  # its place is that of the later one
        self.held[name] = held

    def _add_node(self, name: str, kind: str, array: Array, inputs: Sequence[str]) -> bool:
        if len(self.nodes) >= NODES:
            self.full = True
            return False
        self.nodes[name] = Recorded(name, kind, tuple(inputs), meta_of(array))
        return True

    def _need(self, name: str) -> Need | None:
        """What has to be measured of a tensor; None: nothing."""
        wanted, other = self.judge.need(name), self.flight_judge.need(name)
        if wanted is None and other is None:
            return Need() if self.measuring else None
        return (wanted or Need()) | (other or Need())

    def _wants_values(self, need: Need | None) -> bool:
        """Everything when a debugger is there; else what the next step is compared with."""
        return self.keeping or self.copying or (need is not None and need.previous)

    def _take(self, name: str, nbytes: int) -> bool:
        older = self.held.get(name)
        if older is not None and older.values is not None:
            self.room.used -= older.values.nbytes
        return self.room.take(nbytes)

    def next_step(self) -> None:
        """Lets go of this step's tensors, but for those that the next one's are compared with."""
        self.before = {
            name: held.values
            for name, held in self.held.items()
            if held.values is not None and self._wants_previous(name)
        }
        self.patience.next_step(self.held)
        self.held.clear()
        self.room.used = sum(array.nbytes for array in self.before.values())

    def _wants_previous(self, name: str) -> bool:
        """Previous values of parameters can be looked at, as in MindSpore; others are there for what judges changes."""
        need = self._need(name)
        return (need is not None and need.previous) or (self.keeping and self.nodes[name].kind in PARAMETER_KINDS)

    # -- what the protocol asks for --------------------------------------------------------------------

    def identity(self) -> Identity:
        """See ``Probe``."""
        return self.who

    def attached(self) -> None:
        """See ``Probe``."""
        self.keeping = True

    def detached(self) -> None:
        """See ``Probe``. Copies go at the end of the step."""
        self.keeping = False
        self.judge = Judge()

    def unrecorded(self) -> Sequence[Unrecorded]:
        """See ``Probe``."""
        return ()

    def graphs(self) -> Sequence[bytes]:
        """One graph: operators in the order in which they were first recorded, parameters, and what updates them."""
        builder = GraphBuilder()
        for node in self.nodes.values():
            if node.kind in PARAMETER_KINDS:
                builder.add_parameter(node.name, (node.meta.dtype, node.meta.shape))
        for node in self.nodes.values():
            if node.kind not in PARAMETER_KINDS:
                inputs = [self._input(each) for each in node.inputs]
                outputs = [(node.meta.dtype, node.meta.shape)]
                builder.add_node(node.name, node.kind[:1].upper() + node.kind[1:], inputs, outputs)
        weights = [node.name for node in self.nodes.values() if node.kind == "weight"]
        builder.add_update((name, GRADIENTS + name if GRADIENTS + name in self.nodes else "") for name in weights)
        return [builder.serialize()]

    def _input(self, name: str) -> str:
        return name if name in self.nodes else GRADIENTS + name

    def watch(self, watchpoints: Sequence[RemoteWatchpoint]) -> None:
        """See ``Probe``."""
        self.judge = watched(watchpoints, self.nodes)
        self.judge.patience = self.patience

    def evaluate(self, recheck: bool, initial: bool) -> Sequence[ClientHit]:
        """See ``Probe``. Tensors are judged by what was measured when they came: they may have changed since."""
        del recheck  # judging is cheap, and nothing of it is remembered
        return self.judged(self.judge, initial=initial)

    def judged(self, judge: Judge, *, initial: bool = False) -> list[ClientHit]:
        """The hits of one list of watchpoints, in the order of recording, parameters last."""
        names = sorted(self.held, key=lambda name: self.nodes[name].kind in PARAMETER_KINDS)
        hits = []
        for name in names:
            need = judge.need(name)
            record = self._record(name, need) if need is not None else None
            if record is not None:
                hits += [
                    ClientHit(name, 0, result, record.meta, record.stats)
                    for result in judge.results(name, record, initial=initial)
                ]
        return hits

    def _record(self, name: str, need: Need) -> Record | None:
        """What is known of a tensor, measured now from its copy when the watchpoints are newer than it."""
        held = self.held[name]
        if held.record is not None and held.record.need.covers(need):
            return held.record
        if held.values is None:
            return None
        held.record = measure(held.values, need | (held.record.need if held.record else Need()), self.before.get(name))
        return held.record

    def describe(self, tensor: RemoteTensor) -> TensorMeta | None:
        """See ``Probe``."""
        name = resolve(tensor.node, self.nodes)
        if tensor.slot:
            return None
        if tensor.previous:
            return meta_of(self.before[name]) if name in self.before else None
        return self.held[name].meta if name in self.held else None

    def statistics(self, tensor: RemoteTensor) -> tuple[TensorMeta, TensorStats | None] | None:
        """See ``Probe``."""
        meta = self.describe(tensor)
        if meta is None:
            return None
        name = resolve(tensor.node, self.nodes)
        if tensor.previous:
            return meta, measure(self.before[name], Need()).stats
        record = self._record(name, Need())
        return None if record is None else (meta, record.stats)

    def value(self, tensor: RemoteTensor) -> ClientValue | None:
        """See ``Probe``."""
        name = resolve(tensor.node, self.nodes)
        array = self.before.get(name) if tensor.previous else self.held[name].values if name in self.held else None
        if array is None or tensor.slot or not type_number(name_of(array.dtype)):
            return None  # texts, objects and numbers of 80 bits have no number in the protocol
        return ClientValue(name_of(array.dtype), array.shape, _bytes(array))


def _full_name(name: str, kind: str) -> str:
    return name if kind != "gradient" or name.startswith(GRADIENTS) else GRADIENTS + name


def _bytes(array: Array) -> Iterator[bytes]:
    """The elements, little-endian and in C order, in pieces."""
    flat = array.reshape(-1)
    for start in range(0, flat.size, _PIECE):
        piece = flat[start : start + _PIECE]
        yield piece.astype(piece.dtype.newbyteorder("<"), copy=False).tobytes()
