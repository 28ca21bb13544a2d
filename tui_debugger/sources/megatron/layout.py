"""Finds what Megatron-LM saves with ``--save-activations-interval`` and its like, by names; nothing is read.

``activations/iter_0000003/mp_rank_00.pth``; the same for ``dgrads``, ``wgrads`` and ``params``. Behind the number of
the rank among tensor-parallel ones stand those among pipeline stages and experts, where there are several.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_debugger.errors import NotADumpError, SeveralDumpsError
from tui_debugger.sources.registry import Edges, Has, Order, Recognised, Shows, Sureness

if TYPE_CHECKING:
    from tui_debugger.cache.store import DiskCache
    from tui_debugger.sources.base import Source
    from tui_debugger.sources.registry import Reader

ACTIVATIONS, DGRADS, WGRADS, PARAMS = "activations", "dgrads", "wgrads", "params"
KINDS: Final = (ACTIVATIONS, DGRADS, WGRADS, PARAMS)
"""What is saved, in the order in which a step makes it."""
TOKENS: Final = "tokens_per_expert"
ITERATION: Final = re.compile(r"iter_(\d{7,18})")
FILE: Final = re.compile(r"mp_rank_(\d{2,9})(?:_(\d{3,9}))?(?:_(\d{3,9}))?\.pth")
_LEVELS_UP: Final = 3
_MOST_ENTRIES: Final = 20_000
_MOST_DIRECTORIES: Final = 2_000


class MegatronReader:
    """See ``registry.Reader``."""

    name = "Megatron-LM"
    looked_for = "activations, dgrads, wgrads or params of Megatron-LM (wgrads/iter_0000001/mp_rank_00.pth)"
    shows = Shows(
        values=Has.YES,
        statistics=Has.NO,
        hashes=Has.NO,
        order=Order.EXECUTION,
        edges=Edges.NONE,
        stacks=Has.NO,
        gradients=Has.YES,
        record=(
            "pretrain_gpt.py ... --save run --save-activations-interval 1",
            "  --save-dgrads-interval 1 --save-wgrads-interval 1",
        ),
        tensors_advice="Megatron-LM: --save-activations-interval 1 and --save-dgrads-interval 1, which save those of "
        "linear modules; msprobe records the others",
        limits=("last micro-batch: of activations and their gradients the earlier ones were not saved",),
    )

    def recognises(self, path: Path) -> Recognised | None:
        """Returns where the dump is; no other layout has these names."""
        found = find_root(path)
        return Recognised(found[0], Sureness.SURE, found[1]) if found is not None else None

    def is_dump(self, directory: Path) -> bool:
        """Tells whether such directories lie in this very directory."""
        return _holds(os.fspath(directory))

    def open(self, path: Path, store: DiskCache | None = None, notices: Sequence[str] = ()) -> Source:  # noqa: ARG002
        """Opens the dump at, around or below a path; what is read of it costs too little to remember it."""
        from tui_debugger.sources.megatron.source import MegatronSource  # needs NumPy

        found = find_root(path)
        if found is None:
            raise NotADumpError("The files of Megatron-LM are gone", where=str(path), hint="open it again")
        return MegatronSource(found[0], path, notices)


READER: Reader = MegatronReader()


def find_root(path: Path) -> tuple[Path, NotADumpError | None] | None:
    """Returns the directory of the dump at, above or below a path, and why it is refused if it is."""
    start = Path(os.path.abspath(path))  # noqa: PTH100 - keeps links
    if not os.path.isdir(start):  # noqa: PTH112 - never raises
        start = start.parent
    if _holds(os.fspath(start)):
        return start, None
    for place in list(start.parents)[: _LEVELS_UP - 1]:
        if start.relative_to(place).parts[0] in (*KINDS, TOKENS) and _holds(os.fspath(place)):
            return place, None
    below = _below(start)
    if len(below) > 1:
        return start, SeveralDumpsError(start, below)
    return (below[0], None) if below else None


def _holds(directory: str) -> bool:
    """Tells whether a kind with an iteration with a file lies in a directory."""
    return any(
        FILE.fullmatch(file)
        for kind in KINDS
        for name in _names(f"{directory}/{kind}")
        if ITERATION.fullmatch(name)
        for file in _names(f"{directory}/{kind}/{name}")
    )


def _below(start: Path) -> list[Path]:
    """Dumps one or two levels below, not looking inside one that was found."""
    found: list[Path] = []
    budget = _MOST_DIRECTORIES
    for name in islice(_directories(os.fspath(start)), budget):
        here = start / name
        if _holds(os.fspath(here)):
            found.append(here)
            continue
        children = list(islice(_directories(os.fspath(here)), budget))
        budget -= len(children)
        found += [here / child for child in children if _holds(os.fspath(here / child))]
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
