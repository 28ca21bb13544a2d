"""Finds the arrays of a run, and its steps and ranks, by the names of directories and files.

``step_3``, ``step3``, ``global_step_3``, ``iter_3``, ``checkpoint-3`` and ``epoch_3`` name a step, alone or as a part
of a name (``grads_step_3.npz``); so does a bare number directly below the dump, a rank or an epoch. Ranks are named as
in ``rank_names``. File names of TensorRT-LLM's debug hook tell a step and modules. All other parts of a path are the
scope of a node.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

from tui_debugger import opener
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.notes import NOTES_FILE
from tui_debugger.opener import why_not
from tui_debugger.said import SAID_FILE
from tui_debugger.sources import directories
from tui_debugger.sources.directories import directories_in, is_directory, names_in
from tui_debugger.sources.environments import environment_in
from tui_debugger.sources.paths import is_inside, ways_to
from tui_debugger.sources.rank_names import (
    Places,
    RankName,
    confirmed,
    number_places,
    read_rank,
    read_share,
    sized_places,
)
from tui_debugger.sources.registry import SHOWS_NOTHING, Has
from tui_debugger.stats.formats import may_hold_tensors
from tui_debugger.text.numbers import first_of

SUFFIXES: Final = (".npy", ".npz", ".pt", ".pth", ".safetensors", ".distcp")
INDEX: Final = ".metadata"
"""The index of a checkpoint of PyTorch of which many ranks wrote a part each (``__0_0.distcp``)."""
PART: Final = ".distcp"
CONVERTED: Final = "tdbg-index.csv"
"""The index of a step that ``tdbg convert`` wrote: see ``converted``."""
CONVERTED_NODES: Final = "tdbg-nodes.jsonl"
"""The nodes of a rank that ``tdbg convert`` wrote, beside its steps: see ``converted_nodes``."""
LOG_OF_TRAINER: Final = "trainer_state.json"
"""The log of Hugging Face's Trainer, beside each checkpoint and beside the model: see ``stats.training_log``."""
INDEXES: Final = (".safetensors.index.json", ".bin.index.json")
"""Suffixes of files that tell the file of each tensor of a model."""
_SHARD: Final = re.compile(r"shard-\d{1,9}-model-\d{1,9}-of-\d{1,9}\.safetensors")
_SAVED_BY_TORCH: Final = re.compile(
    r"(?:(?:pytorch_model|adapter_model|optimizer|scheduler|sampler)(?:[-_]\d{1,5}(?:-of-\d{1,5})?)?\.bin"
    r"|random_states(?:_\d{1,5})?\.pkl"
    r"|(?:(?:.{0,200}[-_])?epoch=\d{1,6}(?!\d).{0,200}|last(?:-v\d{1,4})?)\.ckpt)",
    re.IGNORECASE,
)
"""Names of files that ``torch.save`` wrote under another suffix: by trainers, and by Lightning."""
_BESIDE: Final = re.compile(r"training_args\.bin")
"""Settings that trainers save beside the values: objects without a tensor."""
_EDGE: Final = r"(?:^|(?<=[._\- ]))"
_END: Final = r"(?=$|[._\- ])"
_STEP: Final = re.compile(
    rf"{_EDGE}(?:(?:global[_\-]?)?(?:step|iteration|iter)|checkpoint|ckpt)[_\-=]?(\d{{1,9}}){_END}", re.IGNORECASE
)
_EPOCH: Final = re.compile(rf"{_EDGE}epoch[_\-=]?(\d{{1,6}}){_END}", re.IGNORECASE)
_TRT_LLM: Final = re.compile(r"(\d{1,9})\.([A-Za-z_]\w*(?:-\d+\.[A-Za-z_]\w*)*)-((?:in|out)put(?:\..+)?)")
"""A file of TensorRT-LLM's debug hook: ``1.LlamaModel-24.LlamaDecoderLayer-2.Linear-output.0.pt`` is the first
output of child 2 of child 24 of the model, in round 1 of its loop."""
_SERIAL: Final = re.compile(r"(.+)_(\d{1,18})\.pt")
_FIRST_RECORD: Final = b"archive/data/"
_HEAD: Final = 30
"""Bytes before the name of the first record of an archive."""
NUMBER: Final = re.compile(r"\d{1,9}")
EPOCH: Final = 1_000_000
"""Added to steps per epoch where step numbers begin anew in every epoch."""
SNAPSHOTS: Final = "snapshots"
_FEW: Final = 4
_FIRST: Final = 64
_NAMED_AT_MOST: Final = 20
"""Number of missing files that are named one by one."""
LEVELS_DEEP: Final = 16
"""Number of nested directories that are looked into."""
SHOWS: Final = replace(
    SHOWS_NOTHING,
    values=Has.YES,
    gradients=Has.SOME,
    record=(
        "grads = {name: p.grad.numpy(force=True) for name, p in model.named_parameters()}",
        'numpy.savez(f"run/rank_{rank}/step_{step}/gradients.npz", **grads)',
        'torch.save(model.state_dict(), f"run/rank_{rank}/step_{step}/model.pt")',
    ),
    recorded_in="tdbg-index.csv",
    tensors_advice="save them as arrays beside the others",
)


@dataclass(frozen=True, slots=True)
class EntryName:
    """The facts in the name of a directory, or of a file without its suffix."""

    rest: str
    """The remaining name: a part of a node's name, or several with ``/`` between them."""
    rank: int | None = None
    """Number of the rank; None where the name does not tell it."""
    step: int | None = None
    epoch: int | None = None
    places: Places = ()
    """Places of a rank along axes, where the name has no number of it."""

    @property
    def of_rank(self) -> bool:
        return self.rank is not None or bool(self.places)

    @property
    def tells(self) -> bool:
        """Whether it tells a step or a rank."""
        return self.of_rank or (self.step, self.epoch) != (None, None)


def parse_name(name: str) -> EntryName:
    return parse_names([name])[0]


def parse_names(names: Sequence[str]) -> list[EntryName]:
    """Parses the names in one directory, without suffixes of files: some ranks are only told by several names.

    The first of several steps (or ranks) in one name counts.
    """
    found = [_numbers_in(name) for name in names]
    ranks = confirmed([rank for _, rank in found])
    return [
        says if rank is None else replace(says, rest=rank.rest, rank=rank.rank, places=rank.places)
        for (says, _), rank in zip(found, ranks, strict=True)
    ]


def _numbers_in(name: str) -> tuple[EntryName, RankName | None]:
    """The numbers in one name, whose rest still contains the rank, and that rank."""
    if (match := _TRT_LLM.fullmatch(name)) is not None:
        return EntryName("/".join((*match[2].split("-"), match[3])), step=int(match[1])), None
    found: dict[str, int] = {}
    for what, pattern in (("step", _STEP), ("epoch", _EPOCH)):
        if (match := pattern.search(name)) is not None:
            found[what] = int(match[1])
            name = (name[: match.start()].rstrip("._- ") + "." + name[match.end() :].lstrip("._- ")).strip(".")
    return EntryName(name, None, found.get("step"), found.get("epoch")), read_rank(name, numbered=bool(found))


@dataclass(frozen=True, slots=True)
class Unit:
    """A directory, or one file, that holds arrays of one step."""

    path: str
    scope: tuple[str, ...]
    """Parts of the path that belong to the names of nodes, with a file's own name."""
    directory: bool
    """Whether it is a directory, not a file."""


Layout = directories.DumpLayout[list[Unit]]


def read_layout(root: Path) -> Layout:
    return _EntryLister(os.fspath(root)).read()


def natural(name: str) -> list[tuple[int, str]]:
    """Sort key that puts ``layer10`` behind ``layer9``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", name) if part]


def is_array(name: str) -> bool:
    return (name.lower().endswith(SUFFIXES) and name[0] != ".") or _SAVED_BY_TORCH.fullmatch(name) is not None


def holds_arrays(path: str) -> bool:
    """Whether a file is read: by its name, else by its bytes."""
    name = os.path.basename(path)  # noqa: PTH119 - text all the way, for many
    return is_array(name) or (may_hold_tensors(name) and not is_beside(name) and _is_read(path))


def is_shard(name: str) -> bool:
    """Whether a file of that name holds pieces of tensors, as the files beside it do."""
    return _SHARD.fullmatch(name) is not None


def is_beside(name: str) -> bool:
    """Whether a file of that name is no part of the trained state."""
    return _BESIDE.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class _EntryFacts:
    """The facts that the directories above tell of an entry."""

    rank: int | None = None
    epoch: int | None = None
    scope: tuple[str, ...] = ()
    depth: int = 0
    places: Places = ()

    @property
    def of_rank(self) -> bool:
        return self.rank is not None or bool(self.places)

    def below(self, parsed: EntryName) -> _EntryFacts:
        scope = (*self.scope, *parsed.rest.split("/")) if parsed.rest else self.scope
        rank = self.rank if parsed.rank is None else parsed.rank
        epoch = self.epoch if parsed.epoch is None else parsed.epoch
        places = tuple(sorted((dict(self.places) | dict(parsed.places)).items()))
        return _EntryFacts(rank, epoch, scope, self.depth + 1, places)


_Loose = tuple[_EntryFacts, Unit]
"""An array whose step is unknown, with the other facts."""


class _EntryLister:
    def __init__(self, root: str) -> None:
        self._layout = Layout(root)
        self._found: list[tuple[_EntryFacts, int | None, Unit]] = []
        self._loose: list[_Loose] = []
        self._visited: set[tuple[int, int]] = set()
        self._numbers: dict[Places, int] = {}
        self._links: list[tuple[str, _EntryFacts, EntryName]] = []
        self._shares: dict[tuple[str, str, int, int | None], set[int]] = {}
        """Ranks that wrote a file each, by path before and after the rank, number of ranks, and step."""

    def read(self) -> Layout:
        self._visit(self._layout.root, _EntryFacts(), numbers=True)
        while self._links:  # last: a link to a visited directory adds nothing
            path, place, says = self._links.pop(0)
            if says.step is not None or self._identity(path) not in self._visited:
                self._take_directory(path, place, says)
        layout = self._layout
        stepped = {place.epoch for place, _, _ in self._found}
        ends = [each for each in self._loose if each[0].epoch is not None and each[0].epoch not in stepped]
        others = [each for each in self._loose if each[0].epoch is None or each[0].epoch in stepped]
        self._found += [(place, None, unit) for place, unit in ends]  # an epoch without steps is a step
        if others and not self._found:
            self._found += [(place, 0, unit) for place, unit in others]
            others = []
            layout.notices.append("no name holds a step, as step_3 does: all arrays count as step 0")
        numbers = self._step_numbers()
        self._number_ranks()
        for place, step, unit in self._found:
            steps = layout.units.setdefault(self._rank_of(place), {})
            steps.setdefault(numbers[place.epoch, step], []).append(unit)
        if others:
            self._take_final(others)
        self._find_missing()
        layout.sort()
        return layout

    def _number_ranks(self) -> None:
        """Numbers the ranks that are known by their places along axes."""
        ranks = [*(place for place, _, _ in self._found), *(place for place, _ in self._loose)]
        self._numbers = number_places({place.places for place in ranks if place.rank is None and place.places})
        self._layout.places = sized_places({number: places for places, number in self._numbers.items()})
        told = {number: at for at, number in self._numbers.items()}
        names = [f"rank {rank} is {' '.join(f'{a} {n}' for a, n in told[rank])}" for rank in sorted(told)]
        if len(names) > 1:
            self._layout.notices.append(f"ranks are numbered by the places that names tell: {first_of(names, _FEW)}")

    def _rank_of(self, place: _EntryFacts) -> int:
        return place.rank if place.rank is not None else self._numbers.get(place.places, 0)

    def _note_share(self, path: str, place: _EntryFacts, step: int | None) -> None:
        folder, name = os.path.split(path)
        if (match := read_share(name)) is not None:
            start, end = f"{folder}/{name[: match.start('rank')]}", name[match.end("rank") :]
            own = step if place.epoch is None else None  # the steps of epochs may get other numbers
            self._shares.setdefault((start, end, int(match["count"]), own), set()).add(int(match["rank"]))

    def _find_missing(self) -> None:
        """Reports the files of ranks that are missing."""
        for (start, end, count, step), there in self._shares.items():
            gone = count - sum(rank < count for rank in there)
            for rank in islice((rank for rank in range(count) if rank not in there), _NAMED_AT_MOST):
                self._layout.miss(f"{start}{rank}{end}", "the file of a rank that is missing", step=step)
            if gone > _NAMED_AT_MOST:
                self._layout.miss(f"{start}*{end}", f"the files of {gone:,} ranks are missing", step=step)

    def _take_final(self, loose: list[_Loose]) -> None:
        """Takes arrays outside of the steps: trainers save a state at the end, the last or the best."""
        final = self._layout.final = 1 + max(step for steps in self._layout.units.values() for step in steps)
        for place, unit in loose:
            self._layout.units.setdefault(self._rank_of(place), {}).setdefault(final, []).append(unit)

    def _step_numbers(self) -> dict[tuple[int | None, int | None], int]:
        """The step by epoch and number; steps of an epoch that counts anew are moved apart."""
        pairs = sorted(
            {(place.epoch, step) for place, step, _ in self._found}, key=lambda each: tuple(n or 0 for n in each)
        )
        found: dict[tuple[int | None, int | None], int] = {}
        first: dict[int, int | None] = {}
        again: set[int | None] = set()
        for epoch, step in pairs:
            if step is not None and first.setdefault(step, epoch) != epoch:
                again.add(epoch)
        if again:
            self._layout.notices.append(
                f"steps begin anew in every epoch: step 3 of epoch 2 is shown as {2 * EPOCH + 3}"
            )
        for epoch, step in pairs:
            if step is None:
                found[epoch, step] = epoch or 0
            else:
                found[epoch, step] = step + (EPOCH * (epoch or 0) if epoch in again else 0)
        return found

    def _visit(self, path: str, place: _EntryFacts, *, numbers: bool) -> None:
        """Visits a directory; with ``numbers`` a bare number in it is a step, unless another name tells a step."""
        if _has_index(path):
            self._loose.append((place, Unit(path, place.scope, directory=True)))
            return
        entries = self._entries(path, place)
        if is_hub_cache(entry.name for entry in entries):
            entries, place = self._snapshots(path, place), replace(place, depth=place.depth + 1)
        environment = None if path == self._layout.root else environment_in(path, [entry.name for entry in entries])
        parsed = parse_names([stem(entry.name) for entry in entries])
        named = any(each.step is not None for each in parsed)
        serial = {} if named else _serial_files(path, [entry.name for entry in entries])
        for entry, says in zip(entries, parsed, strict=True):
            if entry.name in serial:
                base, step = serial[entry.name]
                says = EntryName(base, step=step)  # noqa: PLW2901 - it says more here
            if numbers and not named and not says.tells and NUMBER.fullmatch(stem(entry.name)):
                says = EntryName("", step=int(stem(entry.name)))  # noqa: PLW2901 - it says more here
            directory = is_directory(entry)
            if directory and is_array(entry.name):
                self._layout.miss(entry.path, "a directory in place of a file", place.rank)
            elif is_array(entry.name):
                self._take_file(entry.path, place, says)
            elif directory and environment is not None and environment.covers(entry.name) and not says.tells:
                continue  # the inventory reports it
            elif directory and entry.is_symlink():
                self._links.append((entry.path, place, says))
            elif directory:
                self._take_directory(entry.path, place, says)
            elif holds_arrays(entry.path):
                self._take_file(entry.path, place, says)

    def _snapshots(self, path: str, place: _EntryFacts) -> list[os.DirEntry[str]]:
        """The entries in a cache of the Hugging Face hub: files of a single snapshot, else the snapshots."""
        snapshots = self._entries(f"{path}/{SNAPSHOTS}", place)
        return self._entries(snapshots[0].path, place) if len(snapshots) == 1 else snapshots

    def _take_file(self, path: str, place: _EntryFacts, says: EntryName) -> None:
        here = place.below(says)
        self._note_share(path, here, says.step)
        unit = Unit(path, here.scope, directory=False)
        if says.step is None:
            self._loose.append((here, unit))
        else:
            self._found.append((here, says.step, unit))

    def _take_directory(self, path: str, place: _EntryFacts, says: EntryName) -> None:
        here = place.below(says)
        if says.step is None:
            # Numbers directly below a rank or an epoch are steps; elsewhere they are layers.
            self._visit(path, here, numbers=says.tells and not says.rest)
            return
        self._take_step(path, here, says.step)

    def _take_step(self, path: str, here: _EntryFacts, step: int) -> None:
        """Takes the directory of a step as a whole; where it holds ranks, these and everything beside them."""
        if here.of_rank or not _holds_ranks(path):
            self._visited.add(self._identity(path))
            self._found.append((here, step, Unit(path, here.scope, directory=True)))
            return
        indexed = _has_index(path)
        if indexed:
            self._found.append((here, step, Unit(f"{path}/{INDEX}", here.scope, directory=False)))
        entries = self._entries(path, here)
        for entry, says in zip(entries, parse_names([stem(entry.name) for entry in entries]), strict=True):
            below = here.below(says)
            directory = is_directory(entry)
            if directory and is_array(entry.name):
                self._layout.miss(entry.path, "a directory in place of a file", below.rank, step)
            elif directory:
                self._take_step(entry.path, below, step)
            elif holds_arrays(entry.path) and not (indexed and entry.name.endswith(PART)):
                self._note_share(entry.path, below, step)
                self._found.append((below, step, Unit(entry.path, below.scope, directory=False)))

    def _identity(self, path: str) -> tuple[int, int]:
        """Identifies a directory, whichever links lead to it."""
        try:
            status = opener.stat(path)
        except OSError:
            return -1, -1
        return status.st_dev, status.st_ino

    def _entries(self, path: str, place: _EntryFacts) -> list[os.DirEntry[str]]:
        try:
            status = opener.stat(path)
            if (status.st_dev, status.st_ino) in self._visited:
                return []  # a link led here before
            self._visited.add((status.st_dev, status.st_ino))
            if place.depth > LEVELS_DEEP:
                self._layout.miss(path, f"more than {LEVELS_DEEP} directories below each other", place.rank)
                return []
            with opener.scandir(path) as entries:
                found = [entry for entry in entries if not entry.name.startswith((".", "__"))]
        except OSError as error:
            self._layout.miss(path, why_not(path, error), place.rank)
            return []
        self._layout.directories.append(path)
        beside = {CONVERTED_NODES, NOTES_FILE, SAID_FILE, LOG_OF_TRAINER}
        self._layout.beside |= {entry.path for entry in found if entry.name in beside or entry.name.endswith(INDEXES)}
        return sorted(found, key=lambda entry: natural(entry.name))


def narrowed(layout: Layout, path: Path) -> Layout:
    """Reduces the step into which a path leads to the entries there.

    Other steps stay complete: a step is compared with the one before.
    """
    for here in ways_to(os.path.abspath(layout.root), os.path.abspath(path)):  # noqa: PTH100 - keeps links
        found = False
        for steps in layout.units.values():
            for step, units in steps.items():
                if any(is_inside(unit.path, here) or is_inside(here, unit.path) for unit in units):
                    steps[step] = [part for unit in units for part in _part_of(unit, here)]
                    found = True
        if found:
            break
    return layout


def _part_of(unit: Unit, here: str) -> list[Unit]:
    """The part of a unit at or below a path."""
    if is_inside(unit.path, here):
        return [unit]
    if not is_inside(here, unit.path):
        return []
    folder, name = os.path.split(here)
    if name.endswith(INDEXES):
        return _part_of(unit, folder)
    if opener.exists(f"{unit.path}/{CONVERTED}") or name == INDEX or name.endswith(PART) or is_shard(name):
        return [unit]  # one of its files says where all tensors are
    scope = (*unit.scope, *filter(None, folder[len(unit.path) + 1 :].split("/")))
    if opener.isdir(here):
        return [Unit(here, (*scope, name), directory=True)]
    bare = os.path.splitext(name.removesuffix(".tar"))[0]  # noqa: PTH122 - text all the way, for many
    return [Unit(here, (*scope, bare), directory=False)] if holds_arrays(here) else []


def lone_file(path: Path) -> Layout:
    """The layout of a single file without a step in any name around it."""
    layout = Layout(os.fspath(path.parent))
    layout.units = {0: {0: [Unit(os.fspath(path), (), directory=False)]}}
    return layout


def is_hub_cache(names: Iterable[str]) -> bool:
    """Whether the names are those of a Hugging Face hub cache: links into ``blobs``."""
    return {"blobs", SNAPSHOTS} <= set(names)


def _has_index(path: str) -> bool:
    return opener.exists(f"{path}/{INDEX}") and any(name.endswith(PART) for name in names_in(path))


def _holds_ranks(directory: str) -> bool:
    """Whether ranks have a directory or a file each in a directory, or in one of few directories (``actor``) in it."""
    below, names = list[str](), list[str]()
    try:
        with opener.scandir(directory) as entries:
            for entry in islice(entries, directories.MOST_ENTRIES):
                if entry.name.startswith((".", "__")):
                    continue
                folder = is_directory(entry)
                if folder != is_array(entry.name):
                    names.append(entry.name)
                if folder and not is_array(entry.name):
                    below.append(entry.path)
    except OSError:
        return False
    return any_of_rank(names) or (len(below) <= _FEW and any(any_of_rank(names_in(path, _FIRST)) for path in below))


def any_of_rank(names: Iterable[str]) -> bool:
    return any(says.of_rank for says in parse_names([stem(name) for name in names]))


def _is_read(path: str) -> bool:
    """Whether a file is read, by its bytes."""
    from tui_debugger.stats.npy import look_at  # needs NumPy

    try:
        return look_at(path).reader != ""
    except UnreadableTensorError:
        return False


def stem(name: str) -> str:
    return os.path.splitext(name)[0] if is_array(name) else name  # noqa: PTH122 - text all the way, for many


def subdirectories(directory: str) -> Iterator[str]:
    """Yields the names of directories in a directory that are not named like arrays."""
    return (name for name in directories_in(directory) if not is_array(name))


def _serial_files(directory: str, names: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Name without the number, and step, of each file of msprobe's ``acl_save``: ``hidden_0.pt``, ``logits_1.pt``.

    One number counts all files of a process. Where the same names repeat in the same order, each repetition is a step,
    and a name is one node. Files of ``torch.save`` may have such names; their bytes differ, because PyTorch's C++
    library writes the values before the pickle. Empty where the names tell no steps.
    """
    found = sorted((int(says[2]), says[1], name) for name in names if (says := _SERIAL.fullmatch(name)) is not None)
    bases = [base for _, base, _ in found]
    every = len(set(bases))
    first = found[0][0] if found else 0
    in_turn = [number for number, _, _ in found] == list(range(first, first + len(found)))
    again = all(base == bases[at % every] for at, base in enumerate(bases)) and len(set(bases[:every])) == every
    if len(found) <= every or not in_turn or not again or not _is_of_library(f"{directory}/{found[0][2]}"):
        return {}
    return {name: (base, at // every) for at, (_, base, name) in enumerate(found)}


def _is_of_library(path: str) -> bool:
    try:
        return opener.first_bytes(path, len(_FIRST_RECORD), _HEAD) == _FIRST_RECORD
    except (OSError, ValueError):
        return False
