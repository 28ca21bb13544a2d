"""The commands that a waiting training is answered with, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from tui_debugger.live import wire
from tui_debugger.live.types import RemoteTensor, RemoteWatchpoint

WIRE_NOT_CHANGED: Final = 20
_REQUEST_BYTES: Final = 1024 * 1024


class Level(IntEnum):
    """What a view asks for; the numbers of the wire."""

    VALUE = wire.VALUE
    STATISTICS = wire.STATISTICS
    BASE = wire.BASE


@dataclass(frozen=True, slots=True)
class Exit:
    """The process is to end."""


@dataclass(frozen=True, slots=True)
class RunStep:
    """Goes on to the end of the step, and over so many steps more as long as no watchpoint hits."""

    ahead: int = 0


@dataclass(frozen=True, slots=True)
class RunNode:
    """Goes on to a node; empty: the next one."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class Recheck:
    """Judges again what is there."""


@dataclass(frozen=True, slots=True)
class Watch:
    """A watchpoint that is new or changed."""

    watchpoint: RemoteWatchpoint


@dataclass(frozen=True, slots=True)
class Unwatch:
    """A watchpoint that is gone."""

    id: int


@dataclass(frozen=True, slots=True)
class View:
    """A request for tensors."""

    level: Level
    tensors: tuple[RemoteTensor, ...]


Command = Exit | RunStep | RunNode | Recheck | Watch | Unwatch | View


def encode(command: Command, *, swap_tolerances: bool = False) -> bytes:
    """The ``EventReply`` that carries a command.

    Args:
        command: what to say.
        swap_tolerances: the client reads atol before rtol (MindSpore before 1.6 reads them by position).
    """
    reply: Any = wire.message("EventReply")()
    match command:
        case Exit():
            reply.exit = True
        case RunStep(ahead):
            reply.run_cmd.run_level, reply.run_cmd.run_steps = wire.LEVEL_STEP, 1
            if ahead:
                reply.run_cmd.ahead = ahead
        case RunNode(name):
            reply.run_cmd.run_level, reply.run_cmd.node_name = wire.LEVEL_NODE, name.encode()
        case Recheck():
            reply.run_cmd.run_level = wire.LEVEL_RECHECK
        case Watch(watchpoint):
            _watch(reply.set_cmd, watchpoint, swap_tolerances)
        case Unwatch(number):
            reply.set_cmd.delete, reply.set_cmd.id = True, number
        case View(level, tensors):
            _view(reply.view_cmd, level, tensors)
    return bytes(reply.SerializeToString())


def status(number: int) -> bytes:
    """An ``EventReply`` that says only how it went; OK takes no bytes, as in MindSpore's own replies."""
    return bytes(wire.message("EventReply")(status=number).SerializeToString()) if number else b""


def matched(yes: bool) -> bytes:
    """The answer to a handshake. A false that is not written would read as a server of 1.0."""
    return bytes(wire.message("EventReply")(version_matched=yes).SerializeToString())


def _watch(target: Any, watchpoint: RemoteWatchpoint, swap_tolerances: bool) -> None:
    for name, kind, graph in watchpoint.nodes:
        node = target.watch_nodes.add(node_name=name.encode(), node_type=kind.encode())
        if graph:
            node.graph_name = graph.encode()
    target.watch_condition.condition = watchpoint.condition
    params = list(watchpoint.params)
    if swap_tolerances and watchpoint.condition == WIRE_NOT_CHANGED and len(params) > 1:
        params[0], params[1] = params[1], params[0]
    for name, value, disabled in params:
        param = target.watch_condition.params.add(name=name.encode())
        # As a client of MindSpore writes it: what is zero takes no bytes.
        if disabled:
            param.disabled = True
        elif value:
            param.value = value
    target.id = watchpoint.id


def _view(target: Any, level: Level, tensors: Sequence[RemoteTensor]) -> None:
    for tensor in tensors:
        added = target.tensors.add(node_name=tensor.node.encode(), slot=str(tensor.slot).encode())
        added.iter = b"prev" if tensor.previous else b""
        if tensor.truncate:
            added.truncate = True
    if level:
        target.level = int(level)


def groups(tensors: Sequence[RemoteTensor], most: int) -> list[tuple[RemoteTensor, ...]]:
    """Cuts a request into commands of bounded size."""
    cut: list[tuple[RemoteTensor, ...]] = []
    group: list[RemoteTensor] = []
    size = 0
    for tensor in tensors:
        bytes_here = 32 + 4 * len(tensor.node)
        if group and (len(group) == most or size + bytes_here > _REQUEST_BYTES):
            cut.append(tuple(group))
            group, size = [], 0
        group.append(tensor)
        size += bytes_here
    if group:
        cut.append(tuple(group))
    return cut
