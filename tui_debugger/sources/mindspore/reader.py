"""Recognises a dump of MindSpore by the names of a few entries, at, above or below a path, and opens it.

Step directories can hold a million files, so nothing here lists one: every scan stops early.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_debugger import opener
from tui_debugger.errors import NotADumpError, SeveralDumpsError
from tui_debugger.sources.directories import directories_in, dumps_below, names_in
from tui_debugger.sources.mindspore.device_tree import find_tree, holds_tree
from tui_debugger.sources.mindspore.layout import (
    RANK,
    RANK_MARKS,
    SHOWS,
    RunLocation,
    is_rank,
    list_ranks,
)
from tui_debugger.sources.registry import Recognised, Sureness

if TYPE_CHECKING:
    from tui_debugger.cache.store import DiskCache
    from tui_debugger.sources.base import Source

_LEVELS_UP = 6
_LEVELS_BESIDE = 2

LOOKED_FOR = (
    "directories rank_0, rank_1 ... that hold .dump_metadata/, graphs/, execution_order/ or NET/GRAPH/STEP/, or a "
    "tree of Ascend devices: TIME/DEVICE/"
)


def find_dump(path: Path) -> RunLocation:
    """Finds the one run at, above (inside) or up to two levels below a path.

    Raises NotADumpError for nothing recognisable, several runs, or another layout.
    """
    found = _find(path)
    if found is None:
        raise NotADumpError(
            f"No MindSpore dump found. Looked for {LOOKED_FOR}",
            where=str(path),
            hint="name the directory that training dumped to (the path in its dump configuration) or one inside it",
        )
    if isinstance(found, Recognised):
        raise found.refusal or NotADumpError("No MindSpore dump found", where=str(path))
    return found


def _find(path: Path) -> RunLocation | Recognised | None:
    """The place of the run; or a refusal where it looks like one; else None."""
    if not opener.exists(path):
        return None
    # Symbolic links may lead into a dump or may be parts of one: try the path as written, then as resolved.
    starts = dict.fromkeys((Path(os.path.abspath(path)), Path(os.path.realpath(path))))  # noqa: PTH100 - keeps links
    for start in starts:
        found = _at_or_above(start, path)
        if found is not None:
            return found
    start = next(iter(starts))
    is_file = not opener.isdir(start)  # it is asked about alone
    if is_file:
        start = start.parent
    below = [] if is_file else dumps_below(start, lambda directory: _is_root(Path(directory)), directories_in)
    if len(below) == 1:
        return RunLocation(below[0], path)
    if below:
        return Recognised(start, Sureness.SURE, SeveralDumpsError(start, below))
    for place in list(start.parents)[:_LEVELS_BESIDE]:
        if _is_root(place):  # beside the ranks, for example a folder with the training script
            return RunLocation(place, path, str(start.relative_to(place)), beside=True)
    in_tree = (_device_tree(each, path) for each in starts)
    return next((found for found in in_tree if found is not None), None) or _refused(start, path)


def _refused(start: Path, path: Path) -> Recognised | None:
    """A refusal where something looks like a run that cannot be opened; else None."""
    closed = list_ranks(start).parts
    if closed:
        unlisted = NotADumpError(
            f"{closed[0].where} cannot be listed: {closed[0].why}",
            where=str(path),
            hint="see that you may read it, and that its copy is complete",
        )
        return Recognised(start, Sureness.LIKELY, unlisted)
    layout = _foreign(start)
    if not layout:
        return None
    unread = NotADumpError(
        f"This looks like {layout}; no complete dump of MindSpore's own is here",
        where=str(path),
        hint="name a dump whose tensors lie in rank_N/NET/GRAPH/STEP/",
    )
    return Recognised(start, Sureness.POSSIBLE, unread)


class MindSporeReader:
    """Dumps of MindSpore: see ``registry.Reader``."""

    name = "MindSpore"
    looked_for = LOOKED_FOR
    shows = SHOWS

    def recognises(self, path: Path) -> Recognised | None:
        """Finds the dump; dumps of old or other tools are refused, unless another reader takes them."""
        found = _find(path)
        if isinstance(found, RunLocation):
            why = "" if found.by_device else _mark_of(found.root)
            return Recognised(found.root, Sureness.POSSIBLE if found.beside else Sureness.SURE, why=why)
        return found

    def is_dump(self, directory: Path) -> bool:
        return _is_root(directory) or holds_tree(directory)

    def open(self, path: Path, store: DiskCache | None = None, notices: Sequence[str] = ()) -> Source:
        """Opens the dump at, around or below a path; raises NotADumpError as ``find_dump``."""
        from tui_debugger.sources.mindspore.source import MindSporeSource  # needs NumPy

        return MindSporeSource(find_dump(path), store, notices)


READER: Final = MindSporeReader()


def _mark_of(root: Path) -> str:
    """The first name that tells of a dump: ``rank_0/.dump_metadata``, or a rank with numbered graphs."""
    for name in sorted(directories_in(root)):
        if RANK.fullmatch(name) and is_rank(root / name):
            marks = (mark for mark in RANK_MARKS if opener.isdir(root / name / mark))
            graphs = (
                f"{net}/{graph}"
                for net in islice(directories_in(root / name), 50)
                for graph in directories_in(root / name / net)
                if graph.isdigit()
            )
            return f"{name}/{next(marks, None) or next(graphs, '')}"
    return ""


def _at_or_above(start: Path, given: Path) -> RunLocation | None:
    # Ranks above come first: their names are cheap, while the start may be a step with a million files.
    for place in (start, *list(start.parents)[:_LEVELS_UP]):
        match = RANK.fullmatch(place.name)
        if match and is_rank(place):
            inside = start.relative_to(place).parts
            step = int(inside[2]) if len(inside) > 2 and inside[1].isdigit() and inside[2].isdigit() else None
            return RunLocation(place.parent, given, str(start.relative_to(place.parent)), int(match[1]), step)
    return RunLocation(start, given) if _is_root(start) else None


def _is_root(directory: Path) -> bool:
    return any(RANK.fullmatch(name) and is_rank(directory / name) for name in directories_in(directory))


def _device_tree(start: Path, given: Path) -> RunLocation | Recognised | None:
    """The tree of devices at, around or below a path: see ``device_tree``."""
    found = find_tree(start)
    if len(found) > 1:
        return Recognised(start, Sureness.SURE, SeveralDumpsError(start, found))
    return RunLocation(found[0], given, by_device=True) if found else None


_OLD = "a dump of MindSpore 1.1 or 1.2 (iteration_N directories) in which no file is named after a tensor"
_GE = "an Ascend GE/ACL dump (graph mode O2: STEP/TIME/DEVICE/MODEL/... directories)"
_MSPROBE = "an msprobe dump"


def _foreign(start: Path) -> str:
    """A layout that this reader does not open, at the path, around it, or just below; empty when unknown."""
    for place in (start, *list(start.parents)[:_LEVELS_UP]):
        if re.fullmatch(r"iteration_\d+", place.name):
            return _OLD
        if re.fullmatch(r"\d{14}", place.name) and place.parent.name.isdigit():
            return _GE
        if re.fullmatch(r"step\d+", place.parent.name) and re.fullmatch(r"(rank|proc)\d*", place.name):
            return _MSPROBE
    for place in (start, *(start / name for name in islice(directories_in(start), 200))):
        layout = _layout_of(place)
        if layout:
            return layout
    return ""


def _layout_of(directory: Path) -> str:
    for name in names_in(directory):
        layout = _layout_of_entry(directory / name, name)
        if layout:
            return layout
    return ""


def _layout_of_entry(path: Path, name: str) -> str:
    def holds(pattern: str) -> bool:
        return any(re.fullmatch(pattern, inner) for inner in islice(directories_in(path), 50))

    if re.fullmatch(r"acl_dump_\d+\.json", name) or (name.isdigit() and holds(r"\d{14}")):
        return _GE
    if name in {"dump.json", "construct.json"} or (re.fullmatch(r"step\d+", name) and holds(r"(rank|proc)\d*")):
        return _MSPROBE
    old = re.fullmatch(r"iteration_\d+", name) and opener.isdir(path)
    if old or (re.fullmatch(r"device_\d+", name) and holds(r"iteration_\d+")):
        return _OLD
    return ""
