"""Finds dumps of SGLang by the names of files; nothing is read.

Its dumper writes one file for each tensor, called after what it is: ``step=3___rank=0___dump_index=12___name=loss.pt``.
Its option ``--debug-tensor-dump-output-folder`` writes one file for each pass: ``TP0_PP0_Rank0_pid7/Pass00003.pt``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_debugger.errors import NotADumpError, SeveralDumpsError
from tui_debugger.sources.registry import Edges, Has, Order, Recognised, Shows, Sureness

if TYPE_CHECKING:
    from tui_debugger.cache.store import DiskCache
    from tui_debugger.sources.base import Source
    from tui_debugger.sources.registry import Reader

SUFFIX: Final = ".pt"
STEP_TAGS: Final = ("step", "curr_step", "forward_pass_id")
"""What the tag of the step is called; the first one in newer generations."""
SEPARATOR: Final = "___"
PASS: Final = re.compile(r"Pass(\d{1,18})\.pt")
PASS_RANK: Final = re.compile(r"TP(\d{1,9})_PP(\d{1,9})_Rank(\d{1,9})_pid(\d{1,18})")
_TAGGED: Final = re.compile(rf"(?:^|___)(?:{'|'.join(STEP_TAGS)})=\d+(?:___.*)?___name=|^name=.*___(?:step|curr_step)=")
_MOST_ENTRIES: Final = 20_000
"""The number of entries of a directory that are looked at to recognise a dump."""
_MOST_DIRECTORIES: Final = 2_000


def read_tags(stem: str) -> dict[str, str]:
    """Returns the tags of a file of the dumper by name, in their order.

    A tag ends at the next separator, and its name at its first ``=``: values may hold both signs.
    """
    tags: dict[str, str] = {}
    last = ""
    for part in stem.split(SEPARATOR):
        name, equals, value = part.partition("=")
        if equals and name not in tags:
            tags[name] = value
            last = name
        elif last:
            tags[last] += SEPARATOR + part
    return tags


def is_tagged(name: str) -> bool:
    """Tells whether a file is called as the dumper calls files."""
    return name.endswith(SUFFIX) and _TAGGED.search(name) is not None


def holds_tagged(directory: str) -> bool:
    """Tells whether files of the dumper lie in a directory."""
    return any(is_tagged(name) for name in _names(directory))


def holds_passes(directory: str) -> bool:
    """Tells whether directories of ranks with files of passes lie in a directory."""
    return any(PASS_RANK.fullmatch(name) and _is_pass_rank(f"{directory}/{name}") for name in _names(directory))


def _is_pass_rank(directory: str) -> bool:
    return any(PASS.fullmatch(name) for name in _names(directory))


@dataclass(frozen=True, slots=True)
class SGLangReader:
    """One of the two layouts: see ``registry.Reader``.

    Attributes:
        name, looked_for, shows: see there.
        holds: tells whether such a dump lies in this very directory.
        load: returns the source; imports NumPy.
    """

    name: str
    looked_for: str
    holds: Callable[[str], bool]
    load: Callable[[Path, Path, Sequence[str]], Source]
    shows: Shows

    def recognises(self, path: Path) -> Recognised | None:
        """Returns where the dump is; no other layout has these names."""
        found = find_root(path, self.holds)
        return Recognised(found[0], Sureness.SURE, found[1]) if found is not None else None

    def is_dump(self, directory: Path) -> bool:
        """Tells whether such a dump lies in this very directory."""
        return self.holds(os.fspath(directory))

    def open(self, path: Path, store: DiskCache | None = None, notices: Sequence[str] = ()) -> Source:  # noqa: ARG002
        """Opens the dump at, around or below a path; listing names costs too little to remember it."""
        found = find_root(path, self.holds)
        if found is None:
            raise NotADumpError("The files of the dump are gone", where=str(path), hint="open it again")
        return self.load(found[0], path, notices)


def _dumper(root: Path, path: Path, notices: Sequence[str]) -> Source:
    from tui_debugger.sources.sglang.dumper import DumperSource

    return DumperSource(root, path, notices)


def _passes(root: Path, path: Path, notices: Sequence[str]) -> Source:
    from tui_debugger.sources.sglang.passes import PassSource

    return PassSource(root, path, notices)


DUMPER: Final[Reader] = SGLangReader(
    "SGLang dumper",
    "files of SGLang's dumper (step=0___rank=0___…___name=….pt)",
    holds_tagged,
    _dumper,
    Shows(
        values=Has.YES,
        statistics=Has.NO,
        hashes=Has.NO,
        order=Order.EXECUTION,
        edges=Edges.NONE,
        stacks=Has.NO,
        gradients=Has.SOME,
        record=(
            "DUMPER_ENABLE=1 DUMPER_DIR=run DUMPER_NON_INTRUSIVE_MODE=all python -m sglang.launch_server ...",
            'dumper.dump("attn_out", x, layer_id=1)  # in the model, for more',
            "dumper.step()  # at the end of each step",
        ),
        tensors_advice="SGLang's dumper: DUMPER_NON_INTRUSIVE_MODE=all for inputs and outputs of every module, or "
        "dumper.dump() in the model",
    ),
)
PASSES: Final[Reader] = SGLangReader(
    "SGLang passes",
    "files of SGLang's passes (TP0_PP0_Rank0_pid7/Pass00000.pt)",
    holds_passes,
    _passes,
    Shows(
        values=Has.YES,
        statistics=Has.NO,
        hashes=Has.NO,
        order=Order.EXECUTION,
        edges=Edges.NONE,
        stacks=Has.NO,
        gradients=Has.NO,
        record=("python -m sglang.launch_server ... --debug-tensor-dump-output-folder run",),
        tensors_advice="passes hold outputs only; SGLang's dumper with DUMPER_NON_INTRUSIVE_MODE=all also inputs",
    ),
)


def find_root(path: Path, holds: Callable[[str], bool]) -> tuple[Path, NotADumpError | None] | None:
    """Returns the directory of the dump at, above or below a path, and why it is refused if it is."""
    start = Path(os.path.abspath(path))  # noqa: PTH100 - keeps links
    if not os.path.isdir(start):  # noqa: PTH112 - never raises
        start = start.parent
    for place in (start, start.parent):
        if holds(os.fspath(place)) and (place == start or PASS_RANK.fullmatch(start.name)):
            return place, None
    below = _below(start, holds)
    if len(below) > 1:
        return start, SeveralDumpsError(start, below)
    return (below[0], None) if below else None


def _below(start: Path, holds: Callable[[str], bool]) -> list[Path]:
    """Dumps one or two levels below, not looking inside one that was found."""
    found: list[Path] = []
    budget = _MOST_DIRECTORIES
    for name in islice(_directories(os.fspath(start)), budget):
        here = start / name
        if holds(os.fspath(here)):
            found.append(here)
            continue
        children = list(islice(_directories(os.fspath(here)), budget))
        budget -= len(children)
        found += [here / child for child in children if holds(os.fspath(here / child))]
    return sorted(found)


def _names(directory: str) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            for entry in islice(entries, _MOST_ENTRIES):
                yield entry.name
    except OSError:
        return


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
