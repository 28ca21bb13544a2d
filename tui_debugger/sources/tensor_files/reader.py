"""Recognises directories of tensor files by names of steps, ranks and arrays in them, and opens them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_debugger import opener
from tui_debugger.sources import directories
from tui_debugger.sources.directories import MOST_ENTRIES, find_dump, is_directory, names_in, root_of
from tui_debugger.sources.registry import TENSOR_FILES, Recognised, Sureness
from tui_debugger.sources.tensor_files.layout import (
    CONVERTED,
    LEVELS_DEEP,
    SHOWS,
    SUFFIXES,
    any_of_rank,
    holds_arrays,
    is_array,
    parse_name,
    stem,
    subdirectories,
)
from tui_debugger.stats.formats import may_hold_tensors

if TYPE_CHECKING:
    from tui_debugger.cache.store import DiskCache
    from tui_debugger.sources.base import Source
    from tui_debugger.sources.registry import Reader

LOOKED_FOR: Final = (
    ".npy, .npz, .pt, .pth and .safetensors files in directories such as step_3, checkpoint-3 or rank_0/step_3, or with"
    " such names (step_3.npz)"
)
_LEVELS_UP: Final = 6


class TensorFilesReader:
    """Directories of tensor files: see ``registry.Reader``."""

    name = TENSOR_FILES
    looked_for = LOOKED_FOR
    shows = SHOWS

    def recognises(self, path: Path) -> Recognised | None:
        """Finds the dump: likely where names tell steps or ranks, else possible."""
        found = find_dump(path, _around, _has_run, subdirectories)
        if found is not None:
            found = replace(found, sureness=Sureness.LIKELY)
        elif _may_be_dump(start := directories.directory_of(path)) or (
            opener.isfile(path) and holds_arrays(os.fspath(path))
        ):
            found = Recognised(start, Sureness.POSSIBLE)
        else:
            return None
        return replace(found, why=_first_array(found.root))

    def is_dump(self, directory: Path) -> bool:
        return _has_run(os.fspath(directory))

    def open(self, path: Path, store: DiskCache | None = None, notices: Sequence[str] = ()) -> Source:  # noqa: ARG002
        from tui_debugger.sources.tensor_files.source import TensorFilesSource  # needs NumPy

        found = self.recognises(path)
        unsure = found is not None and found.sureness is Sureness.POSSIBLE
        alone = unsure and opener.isfile(path) and holds_arrays(os.fspath(path))
        return TensorFilesSource(root_of(found, path), path, notices, alone=alone)


READER: Reader = TensorFilesReader()


def _around(start: Path) -> Path | None:
    """The dump that a directory is or lies in: above the topmost directory that is named after a step.

    Files that tell only their rank belong to the step of a directory above, if one is named after a step.
    """
    own = not _is_step(start.name) and _has_steps(start)
    if own and not any_of_rank(filter(is_array, names_in(start))):
        return start
    for place in (start, *list(start.parents)[:_LEVELS_UP]):
        if not _is_step(place.name) or not _holds_arrays(place):
            continue
        while _is_step(place.parent.name):
            place = place.parent  # noqa: PLW2901 - the walk goes on from here
        return place.parent
    return start if own else None


def _may_be_dump(start: Path) -> bool:
    """Whether a directory has arrays without a step in any name."""
    names = list(names_in(start))
    if any(map(is_array, names)) or _holds_arrays(start):
        return True
    return any(may_hold_tensors(name) and holds_arrays(f"{start}/{name}") for name in names)


def _is_step(name: str) -> bool:
    """Whether a directory is named after a step or a rank, and after nothing else."""
    says = parse_name(name)
    return says.tells and not says.rest


def _has_steps(directory: Path) -> bool:
    """Whether an entry of a directory is named after a step or a rank, and holds arrays."""
    for name in names_in(directory):
        if not parse_name(stem(name)).tells:
            continue
        if is_array(name) or (not name.lower().endswith(SUFFIXES) and _holds_arrays(directory / name)):
            return True
    return False


def _has_run(directory: str) -> bool:
    """Like ``_has_steps``, without .npy files: several named after steps may be one tensor."""
    for name in names_in(directory):
        if name.lower().endswith(".npy") or not parse_name(stem(name)).tells:
            continue
        if is_array(name) or _holds_arrays(f"{directory}/{name}"):
            return True
    return False


def _holds_arrays(directory: Path | str) -> bool:
    return next(_arrays(directory), None) is not None


def _first_array(root: Path) -> str:
    """Relative path of an array in a dump, by which it was recognised."""
    path = next(_array_paths(root), None)
    return os.path.relpath(path, root) if path is not None else ""


def _arrays(directory: Path | str) -> Iterator[str]:
    return (os.path.basename(path) for path in _array_paths(directory))  # noqa: PTH119 - text all the way, for many


def _array_paths(directory: Path | str) -> Iterator[str]:
    """Yields files with arrays in a directory and below, as far as a few entries show."""
    budget, waiting, seen = MOST_ENTRIES, [(os.fspath(directory), 0)], set[str]()
    while waiting and budget > 0:
        path, depth = waiting.pop(0)
        real = os.path.realpath(path)
        if real in seen:
            continue
        seen.add(real)
        try:
            with opener.scandir(path) as entries:
                for entry in islice(entries, budget):
                    budget -= 1
                    if is_array(entry.name) or entry.name == CONVERTED:
                        yield entry.path
                    elif depth < LEVELS_DEEP and not entry.name.startswith(".") and is_directory(entry):
                        waiting.append((entry.path, depth + 1))
        except OSError:
            continue
