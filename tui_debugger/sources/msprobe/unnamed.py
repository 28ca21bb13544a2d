"""Tensors that no JSON names: a killed recorder leaves files that it did not write down yet.

The file name tells call, direction and slot: ``Functional.gelu.0.forward.output.0.pt``,
``Module.fc.Linear.forward.0.parameters.weight.npy``. AclGraphDumper never writes JSON beside its files:
``Aten.mm.0.output.pt``, ``Module.fc.Linear.0.input_kwargs.x.pt``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from tui_debugger import opener
from tui_debugger.graph.build import MAX_SLOTS
from tui_debugger.sources.msprobe.layout import TENSORS

_OF_CALL: Final = re.compile(r"(.+?\.(?:forward|backward)(?:\.\d{1,9})?)\.(input|output|parameters)\.(.+)")
_OF_GRADIENT: Final = re.compile(r"(.+?\.parameters_grad\.\d{1,9})\.(.+)")
_OF_REPLAY: Final = re.compile(r"(.+?)\.(\d{1,9})\.(input_kwargs|input|output)(?:\.(.+))?")
"""A file of AclGraphDumper, which replays forward passes only."""
_UNKNOWN: Final[Mapping[str, Any]] = {"type": ""}
"""Stands for an argument without a file, which is unknown."""
Tree = dict[str, Any]
"""Records, or trees of records, by the parts between the dots of names."""


def calls_of_files(
    directory: str, names: Iterable[str], known: Collection[str], order: Collection[str]
) -> dict[str, Any]:
    """The calls of files with values, as ``dump.json`` would have them.

    A file whose name tells no call, or an argument of a call in ``known``, is a call of its own. ``order`` has calls in
    the order in which they ran; the times of files place all other calls.
    """
    calls: dict[str, dict[str, Tree]] = {}
    alone: dict[str, Any] = {}
    files: dict[str, str] = {}
    for name in sorted(names):
        record = {"type": "", "dtype": "", "shape": None, "data_name": name}
        stem = name.rpartition(".")[0]
        call, side, place = _place_of(stem)
        if call and call not in known and _put(calls.setdefault(call, {}).setdefault(side, {}), place, record):
            files.setdefault(call, name)
        else:
            key = stem if stem not in known and stem not in calls and stem not in alone else name
            alone[key] = record
            files[key] = name
    entries = {call: _entry(call, sides) for call, sides in calls.items() if any(sides.values())} | alone
    places = {key: at for at, key in enumerate(order)}
    later = len(places)
    when = {key: _written(f"{directory}/{TENSORS}/{files[key]}") for key in entries if key not in places}
    by = sorted(entries, key=lambda key: (places.get(key, later), when.get(key, 0)))
    return {key: entries[key] for key in by}


def _place_of(stem: str) -> tuple[str, str, list[str]]:
    """Call, side and place of a tensor; no call where its name does not tell."""
    found = _OF_CALL.fullmatch(stem)
    if found is not None:
        place = [found[3]] if found[2] == "parameters" else found[3].split(".")
        return found[1], found[2], place
    found = _OF_GRADIENT.fullmatch(stem)
    if found is not None:
        return found[1], "gradients", [found[2]]
    found = _OF_REPLAY.fullmatch(stem)
    if found is None:
        return "", "", []
    call = f"{found[1]}.forward.{found[2]}" if found[1].startswith("Module.") else f"{found[1]}.{found[2]}.forward"
    return call, "output" if found[3] == "output" else "input", (found[4] or "0").split(".")


def is_of_replay(name: str) -> bool:
    """Whether a file is one of AclGraphDumper."""
    stem = name.rpartition(".")[0]
    return _OF_CALL.fullmatch(stem) is None and _OF_REPLAY.fullmatch(stem) is not None


def _put(tree: Tree, place: list[str], record: Mapping[str, Any]) -> bool:
    """Puts a record into a tree; returns False when its place is taken."""
    *around, last = place
    for part in around:
        tree = tree.setdefault(part, {})
        if _is_record(tree):
            return False
    if last in tree:
        return False
    tree[last] = record
    return True


def _is_record(tree: Mapping[str, Any]) -> bool:
    return tree.get("shape", "") is None


def _written(path: str) -> int:
    try:
        return opener.stat(path).st_mtime_ns
    except (OSError, ValueError):
        return 0


def _entry(call: str, sides: Mapping[str, Tree]) -> dict[str, Any]:
    if "gradients" in sides:
        return {name: [record] for name, record in sides["gradients"].items()}
    output = _listed(sides.get("output", {}))
    positional, named = _arguments(sides.get("input", {}))
    if ".backward" in call:
        return {"input": [*positional, *named.values()], "output": output}
    entry = {"input_args": positional, "input_kwargs": named, "output": output}
    return entry | {"parameters": sides["parameters"]} if "parameters" in sides else entry


def _arguments(tree: Tree) -> tuple[list[Any], dict[str, Any]]:
    """The arguments by position, and by name."""
    numbers = {int(part): part for part in tree if part.isdecimal() and len(part) < 6 and int(part) < MAX_SLOTS}
    positional = [
        _listed(tree[numbers[at]]) if at in numbers else _UNKNOWN for at in range(max(numbers, default=-1) + 1)
    ]
    numbered = set(numbers.values())
    return positional, {part: _listed(each) for part, each in tree.items() if part not in numbered}


def _listed(tree: Tree) -> Any:
    if _is_record(tree):
        return tree
    positional, named = _arguments(tree)
    return [*positional, *named.values()]
