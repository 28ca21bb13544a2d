"""Finds the steps and ranks of an msprobe dump by the names of directories: ``step3/rank0/dump.json``.

Names only, nothing is read. Without a process group a process writes to ``proc{pid}`` instead of ``rank{R}``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_debugger.errors import NotADumpError
from tui_debugger.opener import why_not
from tui_debugger.sources.registry import Edges, Has, Order, Recognised, Shows, Sureness

if TYPE_CHECKING:
    from tui_debugger.cache.store import DiskCache
    from tui_debugger.model import UnreadablePart
    from tui_debugger.sources.base import Source

CALLS: Final = "dump.json"
SAVED: Final = "debug.json"
"""The tensors that the program saved by name (level debug)."""
TENSORS: Final = "dump_tensor_data"
LOOKED_FOR: Final = "dump.json of msprobe in directories such as step0/rank0"
_STEP: Final = re.compile(r"step_?(\d{1,18})")
_RANK: Final = re.compile(r"rank_?(\d{1,9})?")
_PROCESS: Final = re.compile(r"proc_?(\d{1,18})")
_MOST_ENTRIES: Final = 20_000
"""The number of entries of a directory that are looked at to recognise a dump."""
_MOST_DIRECTORIES: Final = 2_000


@dataclass(slots=True)
class Layout:
    """The steps of a dump.

    Attributes:
        root: its directory.
        units: the directory that holds the files of a step, by rank and step.
        parts: what could not be looked at.
        directories: those above the files: where steps and ranks appear.
        notices: what was assumed.
    """

    root: str
    units: dict[int, dict[int, str]] = field(default_factory=dict)
    parts: list[UnreadablePart] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def read_layout(root: Path) -> Layout:
    """Lists the directories of the steps and of their ranks."""
    from tui_debugger.model import UnreadablePart  # not for the first frame, which recognises the dump

    layout = Layout(os.fspath(root))
    if _holds_calls(layout.root):  # the files of one step alone
        step, rank = _number(_STEP, root.parent.name), _number(_RANK, root.name)
        layout.units[rank or 0] = {step or 0: layout.root}
        layout.directories.append(layout.root)
        return layout
    layout.directories.append(layout.root)
    processes: dict[int, dict[int, str]] = {}
    for name in _directories(layout.root):
        match = _STEP.fullmatch(name)
        if match is None:
            continue
        step, path = int(match[1]), f"{layout.root}/{name}"
        layout.directories.append(path)
        try:
            with os.scandir(path) as entries:
                found = sorted(entry.name for entry in entries if _is_directory(entry))
        except OSError as error:
            layout.parts.append(UnreadablePart(name, why_not(path, error), step=step))
            continue
        for each in found:
            if (match := _RANK.fullmatch(each)) is not None:
                layout.units.setdefault(int(match[1] or 0), {})[step] = f"{path}/{each}"
            elif (match := _PROCESS.fullmatch(each)) is not None:
                processes.setdefault(step, {})[int(match[1])] = f"{path}/{each}"
    _add_processes(layout, processes)
    layout.units = {rank: dict(sorted(steps.items())) for rank, steps in sorted(layout.units.items())}
    return layout


def _add_processes(layout: Layout, processes: dict[int, dict[int, str]]) -> None:
    """Gives processes that had no rank one: 0 to the only one of a step, else by process number."""
    several = any(len(each) > 1 for each in processes.values()) or bool(processes and layout.units)
    pids = sorted({pid for each in processes.values() for pid in each})
    first = max(layout.units, default=-1) + 1
    numbers = {pid: first + place if several else 0 for place, pid in enumerate(pids)}
    for step, found in processes.items():
        for pid, path in found.items():
            layout.units.setdefault(numbers[pid], {})[step] = path
    if several:
        told = ", ".join(f"proc{pid} is rank {numbers[pid]}" for pid in pids[:4]) + (", …" if len(pids) > 4 else "")
        layout.notices.append(f"processes recorded without a rank: {told}")


class MsprobeReader:
    """Dumps of msprobe: see ``registry.Reader``."""

    name = "msprobe"
    looked_for = LOOKED_FOR
    shows = Shows(
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
    )

    def recognises(self, path: Path) -> Recognised | None:
        """Returns where the dump is; no other layout has these names."""
        found = find_root(path)
        return Recognised(found[0], Sureness.SURE, found[1]) if found is not None else None

    def open(self, path: Path, store: DiskCache | None = None, notices: Sequence[str] = ()) -> Source:  # noqa: ARG002
        """Opens the dump at, around or below a path; what is read of it costs too little to remember it."""
        from tui_debugger.sources.msprobe.source import MsprobeSource  # needs NumPy

        found = find_root(path)
        if found is None:
            raise NotADumpError("The dump.json files are gone", where=str(path), hint="open it again")
        return MsprobeSource(found[0], path, notices)


READER: Final = MsprobeReader()


def find_root(path: Path) -> tuple[Path, NotADumpError | None] | None:
    """Returns the directory of the dump at, above or below a path, and why it is refused if it is."""
    start = Path(os.path.abspath(path))  # noqa: PTH100 - keeps links
    if not os.path.isdir(start):  # noqa: PTH112 - never raises
        start = start.parent
    for place in (start, *list(start.parents)[:3]):
        if _STEP.fullmatch(place.name) and _is_step(os.fspath(place)):
            return place.parent, None
        if _has_steps(os.fspath(place)):
            return place, None
        if _holds_calls(os.fspath(place)):
            return (place.parent.parent if _STEP.fullmatch(place.parent.name) else place), None
    below = _below(start)
    if len(below) == 1:
        return below[0], None
    if below:
        names = ", ".join(str(root.relative_to(start)) for root in below[:8]) + (", …" if len(below) > 8 else "")
        return start, NotADumpError(f"Several dumps here: {names}", where=str(start), hint="name one of them")
    return None


def _below(start: Path) -> list[Path]:
    """Dumps one or two levels below, not looking inside one that was found."""
    found: list[Path] = []
    budget = _MOST_DIRECTORIES
    for name in islice(_directories(os.fspath(start)), budget):
        here = start / name
        if _has_steps(os.fspath(here)):
            found.append(here)
            continue
        children = list(islice(_directories(os.fspath(here)), budget))
        budget -= len(children)
        found += [here / child for child in children if _has_steps(os.fspath(here / child))]
    return sorted(found)


def _has_steps(directory: str) -> bool:
    return any(_STEP.fullmatch(name) and _is_step(f"{directory}/{name}") for name in _directories(directory))


def _is_step(directory: str) -> bool:
    """Tells whether a directory holds that of a rank with the calls of a step."""
    return any(
        (_RANK.fullmatch(name) or _PROCESS.fullmatch(name)) and _holds_calls(f"{directory}/{name}")
        for name in _directories(directory)
    )


def _holds_calls(directory: str) -> bool:
    """Tells whether msprobe's files lie here: one of those that come beside it says that it is not any dump.json."""
    there = {name for name in (CALLS, SAVED, "stack.json", "construct.json", TENSORS) if _exists(directory, name)}
    return SAVED in there or (CALLS in there and (len(there) > 1 or _is_named(directory)))


def _is_named(directory: str) -> bool:
    name = os.path.basename(directory)  # noqa: PTH119 - text all the way
    return (_RANK.fullmatch(name) or _PROCESS.fullmatch(name)) is not None


def _exists(directory: str, name: str) -> bool:
    return os.path.lexists(f"{directory}/{name}")


def _number(pattern: re.Pattern[str], name: str) -> int | None:
    match = pattern.fullmatch(name)
    return int(match[1] or 0) if match is not None else None


def _directories(directory: str) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            for entry in islice(entries, _MOST_ENTRIES):
                if not entry.name.startswith((".", "__")) and _is_directory(entry):
                    yield entry.name
    except OSError:
        return


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
