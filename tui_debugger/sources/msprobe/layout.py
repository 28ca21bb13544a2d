"""Finds the steps and ranks of an msprobe dump by the names of directories: ``step3/rank0/dump.json``.

Without a process group a process writes to ``proc{pid}`` (AclGraphDumper: ``pid{pid}``) instead of ``rank{R}``.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tui_debugger.sources.directories import DumpLayout, NamesReader, directories_in, names_in
from tui_debugger.sources.paths import leads_back
from tui_debugger.sources.rank_names import rank_of_folder
from tui_debugger.sources.registry import SHOWS_NOTHING, Edges, Has, Order
from tui_debugger.text.numbers import first_of

CALLS: Final = "dump.json"
SAVED: Final = "debug.json"
"""The tensors that the program saved by name (level debug)."""
TENSORS: Final = "dump_tensor_data"
_STEP: Final = re.compile(r"step_?(\d{1,18})")
_PROCESS: Final = re.compile(r"(?:proc|pid)_?(\d{1,18})")
_LEVELS_UP: Final = 3


def read_layout(root: Path) -> DumpLayout[str]:
    layout: DumpLayout[str] = DumpLayout(os.fspath(root))
    if _holds_calls(layout.root):  # the files of one step alone
        step, rank = _number(_STEP, root.parent.name), rank_of_folder(root.name)
        layout.units[rank or 0] = {step or 0: layout.root}
        layout.directories.append(layout.root)
        return layout
    processes: dict[int, dict[int, str]] = {}
    for name in layout.names(layout.root):
        match, path = _STEP.fullmatch(name), f"{layout.root}/{name}"
        if match is None:
            if (_is_step(path) or _has_steps(path)) and not leads_back(path, layout.root):
                layout.miss(path, "calls that msprobe recorded, in no directory called stepN: open it by itself")
            continue
        step = int(match[1])
        for each in layout.names(path, step=step):
            if (rank := rank_of_folder(each)) is not None:
                _place(layout, layout.units, rank, step, f"{path}/{each}")
            elif (match := _PROCESS.fullmatch(each)) is not None:
                _place(layout, processes, step, int(match[1]), f"{path}/{each}")
            elif _holds_calls(f"{path}/{each}") and not leads_back(f"{path}/{each}", layout.root):
                layout.miss(f"{path}/{each}", "calls that msprobe recorded, in no directory called rankN", step=step)
    _add_processes(layout, processes)
    layout.sort()
    return layout


def _place(layout: DumpLayout[str], places: dict[int, dict[int, str]], one: int, other: int, path: str) -> None:
    """Notes the directory of a step and rank; a second one (``rank_0`` beside ``rank0``) is reported as unread."""
    first = places.setdefault(one, {}).setdefault(other, path)
    if first != path:
        layout.miss(path, f"the same step and rank as {os.path.relpath(first, layout.root)}: give one of them alone")


def _add_processes(layout: DumpLayout[str], processes: dict[int, dict[int, str]]) -> None:
    """Numbers processes that had no rank: 0 if a step has one only, else by process number."""
    several = any(len(each) > 1 for each in processes.values()) or bool(processes and layout.units)
    pids = sorted({pid for each in processes.values() for pid in each})
    first = max(layout.units, default=-1) + 1
    numbers = {pid: first + place if several else 0 for place, pid in enumerate(pids)}
    for step, found in processes.items():
        for pid, path in found.items():
            layout.units.setdefault(numbers[pid], {})[step] = path
    if several:
        told = first_of([f"proc{pid} is rank {numbers[pid]}" for pid in pids], 4)
        layout.notices.append(f"processes recorded without a rank: {told}")


@dataclass(frozen=True, slots=True)
class MsprobeReader(NamesReader):
    """Dumps of msprobe: see ``registry.Reader``."""

    def is_dump(self, directory: Path) -> bool:
        """Whether steps lie in it, or the files of one step that lies in no dump."""
        return _root_at(directory) == directory


def _has_steps(directory: str) -> bool:
    return any(_STEP.fullmatch(name) and _is_step(f"{directory}/{name}") for name in directories_in(directory))


def _is_step(directory: str) -> bool:
    """Whether a directory of a rank with the calls of a step lies in it."""
    return any(_is_of_rank(name) and _holds_calls(f"{directory}/{name}") for name in directories_in(directory))


def _holds_calls(directory: str) -> bool:
    """Whether msprobe's files lie here; ``dump.json`` counts beside another one, or in a directory of a rank."""
    there = {CALLS, SAVED, "stack.json", "construct.json", TENSORS}.intersection(names_in(directory))
    if TENSORS in there and any(map(_is_of_rank, directories_in(f"{directory}/{TENSORS}"))):
        there.remove(TENSORS)  # AclGraphDumper collects the files of a step there, and moves them when it ends
    return bool(there & {SAVED, TENSORS}) or (CALLS in there and (len(there) > 1 or _is_named(directory)))


def _is_named(directory: str) -> bool:
    return _is_of_rank(os.path.basename(directory))  # noqa: PTH119 - text all the way


def _is_of_rank(name: str) -> bool:
    return rank_of_folder(name) is not None or _PROCESS.fullmatch(name) is not None


def _number(pattern: re.Pattern[str], name: str) -> int | None:
    match = pattern.fullmatch(name)
    return int(match[1]) if match is not None else None


def _root_at(place: Path) -> Path | None:
    """The dump that a directory is, or whose step or rank of a step it is."""
    if _STEP.fullmatch(place.name) and _is_step(os.fspath(place)):
        return place.parent
    if _has_steps(os.fspath(place)):
        return place
    if _holds_calls(os.fspath(place)):
        return place.parent.parent if _STEP.fullmatch(place.parent.name) else place
    return None


def _around(start: Path) -> Path | None:
    places = (start, *list(start.parents)[:_LEVELS_UP])
    return next((root for place in places if (root := _root_at(place)) is not None), None)


READER: Final = MsprobeReader(
    name="msprobe",
    looked_for="dump.json of msprobe in directories such as step0/rank0",
    source="tui_debugger.sources.msprobe.source:MsprobeSource",
    holds=_has_steps,
    around=_around,
    shows=replace(
        SHOWS_NOTHING,
        values=Has.SOME,
        statistics=Has.YES,
        hashes=Has.SOME,
        order=Order.EXECUTION,
        edges=Edges.INFERRED,
        stacks=Has.YES,
        gradients=Has.YES,
        record=(
            'debugger = PrecisionDebugger(config_path="config.json")  # from tdbg dump-config --msprobe',
            "debugger.start(model=model)  # before the forward pass of a step",
            "debugger.stop(); debugger.step()  # after its backward pass",
        ),
        recorded_in="dump.json",
        values_advice='msprobe: in config.json "task": "tensor"',
        tensors_advice='msprobe: in config.json "level": "mix", "scope" and "list" empty, "data_mode": ["all"]',
    ),
)
