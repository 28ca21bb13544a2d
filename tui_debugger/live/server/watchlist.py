"""What a client has to be told so that it watches what it should. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from tui_debugger.live.server.commands import Unwatch, Watch
from tui_debugger.live.types import RemoteWatchpoint

PART_BYTES: Final = 2 * 1024 * 1024
"""Nodes of one command: clients refuse messages above 4 MiB, and a definition cannot be continued by a second one."""
_PART_IDS: Final = 1 << 30
_PARTS: Final = 64


def as_sent(watchpoints: Iterable[RemoteWatchpoint]) -> dict[int, RemoteWatchpoint]:
    """The list by the numbers that clients know.

    A watchpoint of very many nodes becomes several under numbers of their own (``own_id`` leads back). The name ``*``
    is left out: a client of MindSpore would report every hit under it. A watchpoint without nodes is none.
    """
    sent: dict[int, RemoteWatchpoint] = {}
    for watchpoint in watchpoints:
        for part, nodes in enumerate(_parts(watchpoint.nodes)[:_PARTS]):
            number = watchpoint.id if part == 0 else _PART_IDS + watchpoint.id * _PARTS + part
            sent[number] = replace(watchpoint, id=number, nodes=nodes)
    return sent


def own_id(number: int) -> int:
    """The watchpoint that a number which a client reports belongs to."""
    return (number - _PART_IDS) // _PARTS if number >= _PART_IDS else number


def difference(
    installed: Mapping[int, RemoteWatchpoint], wanted: Mapping[int, RemoteWatchpoint]
) -> Watch | Unwatch | None:
    """The next command on the way from one list to the other, deletions first; None when they are the same."""
    gone = min((number for number in installed if number not in wanted), default=None)
    if gone is not None:
        return Unwatch(gone)
    for number in sorted(wanted):
        if installed.get(number) != wanted[number]:
            return Watch(wanted[number])
    return None


def _parts(nodes: tuple[tuple[str, str, str], ...]) -> list[tuple[tuple[str, str, str], ...]]:
    parts: list[tuple[tuple[str, str, str], ...]] = []
    begin = size = 0
    named = tuple(node for node in nodes if node[0] and node[0] != "*")
    for position, node in enumerate(named):
        # A character takes at most four bytes; most names are ASCII, which only makes the parts smaller than allowed.
        bytes_here = 16 + sum(len(text) if text.isascii() else 4 * len(text) for text in node)
        if size and size + bytes_here > PART_BYTES:
            parts.append(named[begin:position])
            begin, size = position, 0
        size += bytes_here
    if begin < len(named):
        parts.append(named[begin:])
    return parts
