"""The inventory of PATH: one walk that accounts for every entry, so that a verdict covers everything there.

A source claims the files that its tensors are read from. Every other file is looked at by its content: a file with
tensors is an unread part, and a doubt; text, pictures, programs and settings are counted. Which files count is decided
by neither a reader nor a list of names.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from tui_debugger import opener
from tui_debugger.model import Progress, ProgressFn, UnreadablePart, no_progress, sorted_parts
from tui_debugger.opener import why_not
from tui_debugger.sources.base import AccountingSource, Source, StepEntries, StepPlace, claimed_by
from tui_debugger.sources.directories import is_directory
from tui_debugger.sources.environments import environment_in
from tui_debugger.sources.joined import JoinedSource
from tui_debugger.sources.named_files import missing_beside
from tui_debugger.sources.paths import is_inside
from tui_debugger.sources.registry import TENSOR_FILES, Recogniser, opened_at
from tui_debugger.stats.formats import LOOKED_AT, Holds, LookedAt, looked_at, may_hold_tensors
from tui_debugger.text.numbers import and_more, are, plural

_MOST_NAMED: Final = 3
"""Number of files of one directory that are reported one by one."""
_MOST_ENTRIES: Final = 2_000_000
"""Entries that one inventory walks: no dump has more, but a link may lead into a file system."""
_MOST_ASKED: Final = 1000
"""Files of one directory that are looked at where each is a request over a network."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The entries under PATH that no reader claimed."""

    parts: tuple[UnreadablePart, ...] = ()
    """Files that hold tensors, dumps that are not open, and entries that cannot be looked at."""
    kinds: Mapping[str, int] = field(default_factory=dict)
    """The number of other entries: ``no tensors``, ``unknown format``, ``no regular file``, ``dangling link``."""
    unknown: tuple[str, ...] = ()
    """Binary files of no known format."""
    environments: tuple[str, ...] = ()
    """Installed environments, caches and object stores that were not entered, each with its marker."""
    ignored: tuple[str, ...] = ()

    @property
    def notices(self) -> tuple[str, ...]:
        found = []
        if self.unknown:
            number, are_ = plural(len(self.unknown), "binary file"), are(len(self.unknown))
            found.append(f"{number} {are_} of no known format and not looked at: {and_more(self.unknown, _MOST_NAMED)}")
        if self.environments:
            found.append(f"not entered: {and_more(self.environments, _MOST_NAMED)} (--no-default-ignore enters them)")
        if self.ignored:
            number = plural(len(self.ignored), "entry", "entries")
            found.append(f"ignored, by --ignore or the configuration: {number}: {and_more(self.ignored, _MOST_NAMED)}")
        return tuple(found)


NOTHING: Final = Inventory()


class RunInventory:
    """The inventory of one run. Entries outside of steps are walked once, and entries of a step once it was listed."""

    def __init__(self, *, enter_environments: bool = False) -> None:
        """``enter_environments``: also walk installed environments, caches and object stores."""
        self._looks: dict[str, _KnownFile] = {}
        self._enter = enter_environments
        self._lock = threading.Lock()
        self._walks: dict[Source, _InventoryWalk] = {}
        self._listed = -1
        self._inventory = NOTHING

    @property
    def taken(self) -> Inventory:
        return self._inventory

    def forget(self) -> None:
        """Has everything walked again: entries may have appeared. A file that did not change is not opened again."""
        with self._lock:
            self._walks.clear()
            self._listed = -1

    def take(self, source: Source, progress: ProgressFn = no_progress) -> Inventory:
        """Walks the paths that a source was opened at, unless nothing more was listed since the last time."""
        sources = source.sources if isinstance(source, JoinedSource) else (source,)
        listed = sum(each.listed if isinstance(each, AccountingSource) else 0 for each in sources)
        with self._lock:
            if listed != self._listed:
                self._inventory = _joined([self._walk(each, progress) for each in sources])
                self._listed = listed
            return self._inventory

    def _walk(self, source: Source, progress: ProgressFn) -> tuple[str, Inventory]:
        opened = opened_at(source)
        if opened is None:
            return "", NOTHING
        root = os.path.abspath(opened.root)  # noqa: PTH100 - keeps links
        accounting = source if isinstance(source, AccountingSource) else _EveryStep(source)
        told = {os.path.normpath(f"{root}/{part.where}") for part in source.unreadable()}
        walk = self._walks.get(source)
        if walk is None:
            start = _start(os.path.abspath(opened.path), root)  # noqa: PTH100 - as above
            places = _places_of(accounting)
            walk = _InventoryWalk(root, start, places, self._looks, enter=self._enter)
            walk.outside(opened.reader.name, told, progress)
            self._walks[source] = walk
        elif walk.whole:
            walk.opened(_places_of(accounting), told)
        for files in accounting.step_entries():
            walk.step(files, told, progress)
        return root, walk.result()


def _places_of(source: AccountingSource) -> dict[str, _Place]:
    return {os.path.normpath(path): (rank, step) for rank, step, path in source.places()}


def _joined(found: Sequence[tuple[str, Inventory]]) -> Inventory:
    """Joins inventories of several dumps that are one run; paths are relative to the first dump."""
    first, inventory = found[0]
    if len(found) == 1:
        return inventory
    kinds: Counter[str] = Counter()
    for _, each in found:
        kinds.update(each.kinds)
    return Inventory(
        tuple(
            replace(part, where=os.path.relpath(f"{root}/{part.where}", first))
            for root, each in found
            for part in each.parts
        ),
        dict(kinds),
        tuple(name for _, each in found for name in each.unknown),
        tuple(name for _, each in found for name in each.environments),
    )


def _start(path: str, root: str) -> str:
    """Spells a path below the root where links lead there."""
    if is_inside(path, root) or is_inside(root, path):
        return path
    real, real_root = os.path.realpath(path), os.path.realpath(root)
    return root + real[len(real_root) :] if is_inside(real, real_root) else path


_Place = tuple[int | None, int | None]
"""Rank and step of an entry; None where it belongs to several, or to none that is known."""
_NOWHERE: Final[_Place] = (None, None)
_State = tuple[int, int, int]
"""Size, modification time in ns and inode of a file."""


@dataclass(frozen=True, slots=True)
class _KnownFile:
    """The look at a file, valid while ``state`` holds and no ``missing`` file appears that may tell its content."""

    state: _State
    look: LookedAt
    missing: Sequence[str]


class _EveryStep:
    """Accounts for a source that does not do so itself: all of its steps are listed."""

    listed = 0

    def __init__(self, source: Source) -> None:
        self._source = source

    def places(self) -> Iterator[StepPlace]:
        for rank in self._source.ranks():
            for step in self._source.steps(rank):
                yield from ((rank, step, path) for path in claimed_by(self._source.tensors(rank, step)))

    def step_entries(self) -> Iterable[StepEntries]:
        return ()


class _InventoryWalk:
    def __init__(
        self,
        root: str,
        start: str,
        places: Mapping[str, _Place],
        looks: dict[str, _KnownFile],
        *,
        enter: bool,
    ) -> None:
        self._root, self._start, self._places = root, start, places
        self.whole = _whole_ranks(places)
        """Directories of ranks that were not looked at yet: their contents were claimed as a whole."""
        self._looks, self._enter = looks, enter
        self._told: Collection[str] = ()
        self._progress: ProgressFn = no_progress
        self._done: set[tuple[_Place, tuple[str, ...]]] = set()
        self._real_start = os.path.realpath(start)
        self._missed: list[UnreadablePart] = []
        self._kinds: Counter[str] = Counter()
        self._unknown: list[str] = []
        self._environments: dict[str, str] = {}
        self._entries = 0
        self._left_path: set[str] = set()
        self._links: list[tuple[str, _Place]] = []
        """Links to directories that are walked by another path, unless they were not entered there."""
        self._not_entered: set[str] = set()
        self._recogniser = Recogniser()
        self._holding: dict[str, tuple[str, _Place]] = {}
        """By path, files with tensors that no reader claimed under it: (text of the report, place)."""

    def outside(self, layout: str, told: Collection[str], progress: ProgressFn) -> None:
        """Walks PATH down to the places of steps. An entry belongs to the rank and the step of all places beside it.

        ``layout``: of the open dump; the root may hold a dump of another layout, too. ``told``: paths that the source
        reports.
        """
        self._told, self._progress = told, progress
        if _chain(self._start) & self._places.keys():
            return
        if not opener.isdir(self._start):
            self._file(self._start, _NOWHERE)
            return
        if is_inside(self._root, self._start):
            for other in self._recogniser.layouts_in(Path(self._root)):
                if other not in (layout, TENSOR_FILES):
                    self._miss(self._root, f"also a dump of {other}, which is not open", _NOWHERE)
        above = {self._root: _NOWHERE, **_directories_above(self._places)}
        self._walk(self._start, _NOWHERE, self._places.keys(), above)

    def opened(self, places: Mapping[str, _Place], told: Collection[str]) -> None:
        """Walks the ranks that were looked at since the last time, down to the places of their steps."""
        self._told = told
        fresh = {path: place for path, place in self.whole.items() if path not in places}
        if not fresh:
            return
        self._places, self.whole = places, _whole_ranks(places)
        above = _directories_above(places)
        for path, place in fresh.items():
            if is_inside(path, self._start):
                self._walk(path, place, places.keys(), {path: place, **above})

    def step(self, files: StepEntries, told: Collection[str], progress: ProgressFn) -> None:
        """Walks the entries of one step once, as far as they lie under PATH."""
        place = (files.rank, files.step)
        if (place, tuple(files.entries)) in self._done:
            return
        self._told, self._progress = told, progress
        claimed = files.claimed()
        above = _directories_above(dict.fromkeys(claimed, place))
        for entry in map(os.path.normpath, files.entries):
            if files.step is None and entry not in self._places:
                continue  # walked with the entries outside of steps
            if is_inside(self._start, entry):
                if any(path in claimed for path in _chain(self._start) - _chain(entry)):
                    continue  # PATH is one of several places of the step, and accounted for by itself
                entry = self._start  # noqa: PLW2901 - PATH leads into the step
            elif not is_inside(entry, self._start):
                continue
            if opener.isdir(entry):
                self._walk(entry, place, claimed, above or {entry: place})
            elif entry not in claimed and entry not in self._told:
                self._file(entry, place)
        self._done.add((place, tuple(files.entries)))

    def result(self) -> Inventory:
        for link, of in self._links:  # into directories that were not entered
            real = os.path.realpath(link)
            if any(is_inside(real, closed) for closed in self._not_entered) and real not in self._left_path:
                self._left_path.add(real)
                self._walk(link, of, (), {})
        parts = sorted_parts((*self._missed, *self._held()))
        environments = tuple(f"{path} ({marker})" for path, marker in sorted(self._environments.items()))
        ignored = tuple(os.path.relpath(path, self._root) for path in opener.hidden_entries())
        kinds, unknown = dict(sorted(self._kinds.items())), tuple(sorted(self._unknown))
        return Inventory(parts, kinds, unknown, environments, ignored)

    def _held(self) -> Iterator[UnreadablePart]:
        """Yields files with tensors that are claimed under no name; many files of one directory as one part."""
        if not self._holding:
            return
        counted = set(_identities(self._places, self._holding))
        left: dict[str, list[str]] = {}
        for path in sorted(self._holding, key=lambda path: (opener.islink(path), path)):  # a file before links to it
            if not self._is_counted(path, counted):
                left.setdefault(path.rpartition("/")[0], []).append(path)
        for directory, paths in left.items():
            if len(paths) <= _MOST_NAMED:
                yield from (self._part(path, *self._holding[path]) for path in paths)
            else:
                why, place = self._holding[paths[0]]
                first = paths[0].rpartition("/")[2]
                yield self._part(f"{directory}/*", f"{len(paths):,} files, first {first}: {why}", place)

    def _walk(self, top: str, place: _Place, claimed: Collection[str], above: Mapping[str, _Place]) -> None:
        """Walks a directory.

        ``above`` has the directories that lead to something claimed, with the place of their other entries. Any other
        directory may be a dump of another recorder.
        """
        waiting = [(top, place)]
        while waiting:
            path, of = waiting.pop()
            of = above.get(path, of)
            try:
                with opener.scandir(path) as listing:
                    entries = [entry for entry in listing if entry.path not in claimed]
            except OSError as error:
                self._refused(path, why_not(path, error), of)
                continue
            self._entries += len(entries)
            self._progress(Progress(self._entries, 0, "accounting for every file"))
            if self._entries > _MOST_ENTRIES:
                self._miss(
                    path, f"more than {_MOST_ENTRIES:,} entries: the entries from here on were not looked at", of
                )
                return
            entries = [entry for entry in entries if entry.path not in self._told]
            if not entries:
                continue
            if path not in above and (dump := self._dump_in(path)):
                self._miss(path, dump, of)
                continue
            names = [entry.name for entry in entries]
            mount = opener.mount_of(path)
            if mount is not None and mount.waits and len(entries) > _MOST_ASKED:
                others = sum(not is_directory(entry) for entry in entries)
                if others > _MOST_ASKED:
                    self._miss(path, f"{others:,} more files: a request for each would be too many", of)
                    entries = [entry for entry in entries if is_directory(entry)]
            environment = None if self._enter or path == self._start else environment_in(path, names)
            for entry in entries:
                here = entry.path
                if not is_directory(entry):
                    self._file(here, of)
                elif environment is not None and here not in above and environment.covers(entry.name):
                    self._environments[os.path.relpath(path, self._root)] = environment.marker
                    self._not_entered.add(os.path.realpath(here))
                elif not entry.is_symlink() or self._leads_elsewhere(here):
                    waiting.append((here, of))
                else:
                    self._links.append((here, of))

    def _dump_in(self, path: str) -> str:
        """The report of another recorder's dump in a directory; empty without one."""
        layout = next(self._recogniser.layouts_in(Path(path)), "")
        return f"another dump ({layout}): not looked at" if layout else ""

    def _leads_elsewhere(self, link: str) -> bool:
        """Whether a link to a directory leads out of PATH to a target that was not walked yet."""
        real = os.path.realpath(link)
        if any(is_inside(real, seen) or is_inside(seen, real) for seen in (self._real_start, *self._left_path)):
            return False
        self._left_path.add(real)
        return True

    def _file(self, path: str, of: _Place) -> None:
        try:
            look = self._look(path)
        except opener.NotRegularError:
            self._kinds["no regular file"] += 1
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError) and not _may_be_tensors(path):
                self._kinds["dangling link"] += 1
            elif isinstance(error, OSError) and error.errno == errno.ENXIO:  # a socket
                self._kinds["no regular file"] += 1
            else:
                said = why_not(path, error if isinstance(error, OSError) else None, wanted="a file")
                self._refused(path, said, of)
        else:
            if look.holds is Holds.NOTHING:
                self._kinds["no tensors"] += 1
            elif look.holds is Holds.UNKNOWN:
                self._kinds["unknown format"] += 1
                self._unknown.append(os.path.relpath(path, self._root))
            else:
                self._holding[path] = look.why or f"{look.format}: not looked at", of
            self._named(path, of)

    def _named(self, path: str, of: _Place) -> None:
        """Reports missing files that a list (``mapping.csv``) names; of many the first one."""
        try:
            missing = list(missing_beside(path))
        except OSError as error:
            self._refused(path, why_not(path, error, wanted="a file"), of)
            return
        for where, why in missing if len(missing) <= _MOST_NAMED else missing[:1]:
            more = f" (the first of {len(missing):,} files)" if len(missing) > _MOST_NAMED else ""
            self._miss(where, why + more, of)

    def _look(self, path: str) -> LookedAt:
        descriptor, status = opener.open_regular(path)
        try:
            state, size = (status.st_size, status.st_mtime_ns, status.st_ino), status.st_size
            known = self._looks.get(path)
            if known is not None and known.state == state and not any(map(opener.exists, known.missing)):
                return known.look
            head = opener.pread(descriptor, min(size, LOOKED_AT), 0)
            tail = opener.pread(descriptor, LOOKED_AT, size - LOOKED_AT) if size > LOOKED_AT else head
        finally:
            opener.close(descriptor)
        missing: list[str] = []
        look = looked_at(head, tail, size, path, partial(_first_bytes_beside, path, missing))
        self._looks[path] = _KnownFile(state, look, missing)
        return look

    def _is_counted(self, path: str, counted: set[tuple[int, int]]) -> bool:
        """Whether a file was counted under another name; if not, counts it."""
        if opener.is_mounted(path):
            return opener.islink(path) and is_inside(os.path.realpath(path), self._real_start)
        status = opener.stat(path)
        identity = (status.st_dev, status.st_ino)
        if identity in counted:
            return True
        counted.add(identity)
        return False

    def _miss(self, path: str, why: str, of: _Place) -> None:
        self._missed.append(self._part(path, why, of))

    def _refused(self, path: str, why: str, of: _Place) -> None:
        self._missed.append(UnreadablePart(os.path.relpath(path, self._root), why, *of))

    def _part(self, path: str, why: str, of: _Place) -> UnreadablePart:
        return UnreadablePart(os.path.relpath(path, self._root), why, *of, unclaimed=True)


def _may_be_tensors(link: str) -> bool:
    """Whether a dangling link may have led to tensors or a directory, by its name."""
    name = link.rpartition("/")[2]
    suffix = name.rpartition(".")[2] if "." in name else ""
    is_lock = name.startswith(".") or name.lower().endswith("lock")  # of an editor, or of a program that runs
    return not is_lock and (not suffix.isalpha() or may_hold_tensors(name))


def _first_bytes_beside(path: str, missing: list[str], other: str) -> bytes | None:
    """Returns the first bytes of a file beside a file; adds it to ``missing`` where it does not exist."""
    directory, _, name = path.rpartition("/")
    beside = f"{directory}/{other.replace('*', name.rpartition('.')[0])}"
    try:
        return opener.first_bytes(beside, LOOKED_AT)
    except FileNotFoundError:
        missing.append(beside)
    except (OSError, ValueError):
        pass
    return None


def _whole_ranks(places: Mapping[str, _Place]) -> dict[str, _Place]:
    listed = {rank for rank, step in places.values() if step is not None}
    return {path: (rank, step) for path, (rank, step) in places.items() if rank is not None and rank not in listed}


def _chain(path: str) -> set[str]:
    found = {path}
    while (above := os.path.dirname(path)) not in found:  # noqa: PTH120 - text, for many
        found.add(above)
        path = above
    return found


def _directories_above(places: Mapping[str, _Place]) -> dict[str, _Place]:
    """Returns the directories above some paths, each with the rank and the step that all paths below it share."""
    below: dict[str, _Place] = {}
    for path, place in places.items():
        directory = path.rpartition("/")[0]
        below[directory] = _shared(below.get(directory, place), place)
    found: dict[str, _Place] = {}
    for path, place in below.items():
        for directory in _chain(path):
            found[directory] = _shared(found.get(directory, place), place)
    return found


def _shared(one: _Place, other: _Place) -> _Place:
    return (one[0] if one[0] == other[0] else None, one[1] if one[1] == other[1] else None)


def _identities(places: Iterable[str], apart: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yields device and inode of every file in some files and directories, except ``apart``.

    Links to files are followed: a claimed link stands for its target.
    """
    waiting = [place for place in places if not opener.is_mounted(place)]  # mounts do not number their files
    while waiting:
        path = waiting.pop()
        try:
            status = opener.stat(path)
            if not opener.isdir(path):
                yield status.st_dev, status.st_ino
                continue
            with opener.scandir(path) as entries:
                for entry in entries:
                    if entry.path in apart:
                        continue
                    directory = is_directory(entry)
                    if entry.is_symlink() or directory:
                        waiting += [] if directory and entry.is_symlink() else [entry.path]
                    else:
                        yield status.st_dev, entry.inode()
        except OSError:
            continue
