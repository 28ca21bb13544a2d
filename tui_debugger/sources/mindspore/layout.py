"""Finds a run, and says what its directories hold, by names only.

Step directories can hold a million files, so nothing here lists one: a directory is recognised by the names
of a few entries, and every scan stops early.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_debugger import opener
from tui_debugger.errors import NotADumpError, SeveralDumpsError
from tui_debugger.opener import why_not
from tui_debugger.sources.registry import Edges, Has, Order, Recognised, Shows, Sureness

if TYPE_CHECKING:
    from tui_debugger.cache.store import DiskCache
    from tui_debugger.model import UnreadablePart
    from tui_debugger.sources.base import Source


AUXILIARY = frozenset({".dump_metadata", "graphs", "execution_order", "debug_files"})
"""Directories of a rank that are no nets."""

Stamp = tuple[int, int, int, int]
"""(modification and change time in ns, inode, size): changes when a name appears in a directory or a file grows."""

NEVER: Stamp = (-1, -1, -1, -1)
_TENSOR: Final = ".npy"
_OF_DEVICE: Final = re.compile(r"[^.]+\..+(\.\d+){3}", re.DOTALL)
"""Files that an Ascend device wrote: see ``names.split_device_name``."""


@dataclass(frozen=True)
class GraphDirectory:
    """``NET/GRAPH`` of a rank: the data of one root graph.

    Attributes:
        net: net name.
        root_graph: number of the root graph; its sub-graphs share the directory.
        path: the directory.
        steps: step directories by step number; what lies in the place of one, and cannot be listed, is there too.
        constants: the directory of constants, or None.
    """

    net: str
    root_graph: int
    path: Path
    steps: dict[int, Path]
    constants: Path | None = None

    @cached_property
    def ascending(self) -> list[int]:
        """The numbers of its steps, ascending."""
        return sorted(self.steps)


@dataclass(frozen=True)
class RankLayout:
    """All graph directories of a rank, sorted by net and root graph.

    Attributes:
        path: the rank's directory.
        graphs: the graph directories.
        parts: what cannot be listed of nets, graphs and steps, as far as that shows without listing a step.
        auxiliary: which of ``AUXILIARY`` it has.
    """

    path: Path
    graphs: tuple[GraphDirectory, ...] = ()
    parts: tuple[UnreadablePart, ...] = ()
    auxiliary: frozenset[str] = frozenset()

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Dumped steps over all graphs, ascending."""
        return tuple(sorted({step for graph in self.graphs for step in graph.steps}))

    def graphs_at(self, step: int) -> list[GraphDirectory]:
        """Graph directories that hold a step."""
        return [graph for graph in self.graphs if step in graph.steps]

    def dumped(self, root_graph: int) -> set[int]:
        """Steps dumped for a root graph."""
        return {step for graph in self.graphs if graph.root_graph == root_graph for step in graph.steps}


def read_layout(rank: Path, number: int | None = None, nets: Collection[str] = ()) -> RankLayout:
    """Lists the nets, graphs and steps of a rank; what cannot be listed is a part of its own.

    Args:
        rank: the directory.
        number: the number of the rank.
        nets: names of nets that the dump is known to have: a file of that name is in the place of one.
    """
    found = _Reader(rank.parent, number)
    graphs: list[GraphDirectory] = []
    entries = found.entries(rank)
    for net in entries:
        path = rank / net.name
        if _may_be_net(net, nets) and found.directory(net, path):
            inside = found.entries(path, numbers=True)
            numbers = [entry for entry in inside if _is_number(entry.name)]
            if numbers or net.name in nets:
                found.note_misplaced([entry for entry in inside if not _is_digits(entry.name)], path)
            there = [path / entry.name for entry in numbers if found.directory(entry, path / entry.name)]
            graphs += [_read_graph(found, net.name, graph) for graph in there]
    graphs.sort(key=lambda graph: (graph.net, graph.root_graph))
    auxiliary = AUXILIARY.intersection(entry.name for entry in entries)
    return RankLayout(rank, tuple(graphs), tuple(sorted(found.parts, key=lambda part: part.where)), auxiliary)


def relative(path: Path, root: Path) -> str:
    """The path below a directory, as people read it."""
    return os.path.relpath(path, root)


def stamp(path: Path) -> Stamp:
    """Returns what changes when entries appear in a directory (or a file is rewritten)."""
    try:
        status = opener.stat(path)
    except (OSError, ValueError):
        return NEVER
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)


def is_directory(path: Path) -> bool:
    """Tells whether a path is a directory that we may see; never raises, unlike ``Path.is_dir`` before Python 3.14."""
    return opener.isdir(path)


def may_hold_tensors(path: Path | bytes) -> bool:
    """Tells whether a directory outside a dump's layout has what looks like a tensor's file, or cannot be listed."""
    try:
        with opener.scandir(os.fsdecode(path)) as entries:
            return any(_is_tensor(entry.name) or entry.name == "statistic.csv" for entry in entries)
    except OSError:
        return True


def _is_tensor(name: str) -> bool:
    return name.endswith(_TENSOR) or _OF_DEVICE.fullmatch(name) is not None


def _read_graph(found: _Reader, net: str, path: Path) -> GraphDirectory:
    steps: dict[int, Path] = {}
    constants: Path | None = None
    note_misplaced: list[os.DirEntry[str]] = []
    for entry in found.entries(path, numbers=True):
        here = path / entry.name
        if entry.name == "constants":
            constants = here
            found.directory(entry, here)
        elif _is_number(entry.name):
            step = int(entry.name)
            if step in steps:
                found.miss(here, OSError(0, f"the same step as {steps[step].name}"), step)
            else:
                steps[step] = here
                found.directory(entry, here, step)
        elif not _is_digits(entry.name):
            note_misplaced.append(entry)
    found.note_misplaced(note_misplaced, path)
    return GraphDirectory(net, int(path.name), path, steps, constants)


class _Reader:
    """Lists directories, and notes what cannot be listed."""

    def __init__(self, root: Path, rank: int | None) -> None:
        self.parts: list[UnreadablePart] = []
        self._root, self._rank = root, rank

    def entries(self, path: Path, *, numbers: bool = False) -> list[os.DirEntry[str]]:
        """Returns what lies in a directory of ``numbers`` or of names; ``3`` comes before ``03``."""
        found: list[os.DirEntry[str]] = []
        try:
            with opener.scandir(path) as entries:
                found.extend(entries)
        except OSError as error:
            self.miss(path, error)
        for entry in found if numbers else ():
            if _is_digits(entry.name) and not _is_number(entry.name):
                self.miss(path / entry.name, OSError(0, f"a number of more than {_DIGITS} digits"))
        return sorted(found, key=lambda entry: (len(entry.name) if _is_number(entry.name) else 0, entry.name))

    def directory(self, entry: os.DirEntry[str], path: Path, step: int | None = None) -> bool:
        """Tells whether an entry is a directory that may be listed; if not, that is noted."""
        if not _is_directory(entry):
            self.miss(path, None, step)
        elif not opener.may_list(path):
            self.miss(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)), step)
        else:
            return True
        return False

    def note_misplaced(self, entries: Sequence[os.DirEntry[str]], path: Path) -> None:
        """Notes tensors where none should be: it is not known at which step they were written."""
        loose = [entry.name for entry in entries if _is_tensor(entry.name) and not entry.name.startswith(".")]
        if loose:
            why = f"{len(loose):,} {'file' if len(loose) == 1 else 'files'} outside a step"
            self._note(path / (f"*{_TENSOR}" if all(name.endswith(_TENSOR) for name in loose) else "*"), why)
        for entry in entries:
            if _is_directory(entry) and not _is_tensor(entry.name) and may_hold_tensors(path / entry.name):
                self.miss(path / entry.name, OSError(0, "tensors in a directory whose name is no number"))

    def miss(self, path: Path, error: OSError | None, step: int | None = None) -> None:
        """Notes what cannot be looked at."""
        self._note(path, why_not(path, error), step)

    def _note(self, path: Path, why: str, step: int | None = None) -> None:
        from tui_debugger.model import UnreadablePart  # not for the first frame, which finds the dump

        self.parts.append(UnreadablePart(relative(path, self._root), why, self._rank, step))


def _may_be_net(entry: os.DirEntry[str], nets: Collection[str]) -> bool:
    """Tells whether an entry of a rank is a net's directory, or in the place of one; other files are none of ours."""
    name = entry.name
    if name in nets:
        return True
    # A link that leads nowhere and whose name starts with a dot is the lock of an editor.
    return name not in AUXILIARY and not name.startswith(".") and not opener.isfile(entry.path)


_DIGITS = 9


def _is_number(name: str) -> bool:
    return _is_digits(name) and len(name) <= _DIGITS


def _is_digits(name: str) -> bool:
    return name.isascii() and name.isdigit()


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


RANK = re.compile(r"rank_(\d{1,9})")
_TOO_LONG = re.compile(r"rank_\d+")
_NEARLY = re.compile("rank", re.IGNORECASE)
RANK_MARKS = (".dump_metadata", "graphs", "execution_order")
"""Entries of which any makes a ``rank_N`` directory a rank of a dump; a net directory does as well."""

_MOST_ENTRIES = 20_000
_MOST_DIRECTORIES = 2_000
_LEVELS_UP = 6
_LEVELS_BESIDE = 2

LOOKED_FOR = "directories rank_0, rank_1 ... that hold .dump_metadata/, graphs/, execution_order/ or NET/GRAPH/STEP/"


@dataclass(frozen=True, slots=True)
class Found:
    """The place of a run, and the part of it that was named.

    Attributes:
        root: the directory that holds the ``rank_N`` directories.
        given: the path as the user wrote it.
        inside: the part of the given path below ``root``, empty when it was not inside.
        rank, step: what the given path points into, None when it does not say.
        beside: the path lies next to the ranks, not in one.
        by_device: ``root`` holds ``STEP/TIME/DEVICE/...`` in place of ranks: see ``read_device_layout``.
    """

    root: Path
    given: Path
    inside: str = ""
    rank: int | None = None
    step: int | None = None
    beside: bool = False
    by_device: bool = False


def find_dump(path: Path) -> Found:
    """Finds the one run at, above (inside) or up to two levels below a path.

    Raises:
        NotADumpError: nothing recognisable, several runs, or another layout.
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


def _find(path: Path) -> Found | Recognised | None:
    """Returns where the run is; why there is none to be opened, where it looks like one; else None."""
    if not opener.exists(path):
        return None
    # Symbolic links may lead into a dump or may be parts of one: try the path as written, then as resolved.
    starts = dict.fromkeys((Path(os.path.abspath(path)), Path(os.path.realpath(path))))  # noqa: PTH100 - keeps links
    for start in starts:
        found = _at_or_above(start, path)
        if found is not None:
            return found
    start = next(iter(starts))
    if not is_directory(start):
        start = start.parent
    below = _below(start)
    if len(below) == 1:
        return Found(below[0], path)
    if below:
        return Recognised(start, Sureness.SURE, SeveralDumpsError(start, below))
    for place in list(start.parents)[:_LEVELS_BESIDE]:
        if _is_root(place):  # beside the ranks, for example a folder with the training script
            return Found(place, path, str(start.relative_to(place)), beside=True)
    in_tree = (_device_tree(each, path) for each in starts)
    return next((found for found in in_tree if found is not None), None) or _refused(start, path)


def _refused(start: Path, path: Path) -> Recognised | None:
    """Returns why there is no run that can be opened, where there is something that looks like one; else None."""
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
        f"This is {layout}, which cannot be read yet",
        where=str(path),
        hint="name a dump whose tensors lie in rank_N/NET/GRAPH/STEP/",
    )
    return Recognised(start, Sureness.POSSIBLE, unread)


class MindSporeReader:
    """Dumps of MindSpore: see ``registry.Reader``."""

    name = "MindSpore"
    looked_for = LOOKED_FOR
    shows = Shows(
        values=Has.SOME,
        statistics=Has.SOME,
        hashes=Has.NO,
        order=Order.EXECUTION,
        edges=Edges.KNOWN,
        stacks=Has.YES,
        gradients=Has.YES,
        record=(
            "tdbg dump-config --yes --path /data/dump -o dump.json",
            "export MINDSPORE_DUMP_CONFIG=$PWD/dump.json",
            "python train.py",
        ),
        recorded_in="statistic.csv",
        values_advice="MindSpore: in data_dump.json saved_data tensor, or full",
        tensors_advice="MindSpore: in data_dump.json input_output 0, with all kernels or these in kernels",
    )

    def recognises(self, path: Path) -> Recognised | None:
        """Returns where the dump is; dumps of old or other tools are refused, unless another reader takes them."""
        found = _find(path)
        if isinstance(found, Found):
            why = "" if found.by_device else _mark_of(found.root)
            return Recognised(found.root, Sureness.POSSIBLE if found.beside else Sureness.SURE, why=why)
        return found

    def is_dump(self, directory: Path) -> bool:
        """Tells whether one of the entries is a rank."""
        return _is_root(directory)

    def open(self, path: Path, store: DiskCache | None = None, notices: Sequence[str] = ()) -> Source:
        """Opens the dump at, around or below a path."""
        from tui_debugger.sources.mindspore.source import open_mindspore  # needs NumPy

        return open_mindspore(path, store, notices)


READER: Final = MindSporeReader()


def _mark_of(root: Path) -> str:
    """Returns the first name that tells of a dump: ``rank_0/.dump_metadata``, or a rank with numbered graphs."""
    for name in sorted(_directories(root)):
        if RANK.fullmatch(name) and is_rank(root / name):
            marks = (mark for mark in RANK_MARKS if is_directory(root / name / mark))
            graphs = (
                f"{net}/{graph}"
                for net in islice(_directories(root / name), 50)
                for graph in _directories(root / name / net)
                if graph.isdigit()
            )
            return f"{name}/{next(marks, None) or next(graphs, '')}"
    return ""


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks of a dump.

    Attributes:
        directories: by number, ascending.
        nets: names of the directories in them that may be nets.
        parts: what looks like a rank and cannot be listed.
        others: names of directories that hold tensors as a rank does, and are called otherwise.
    """

    directories: dict[int, Path]
    nets: frozenset[str]
    parts: tuple[UnreadablePart, ...]
    others: tuple[str, ...] = ()


def list_ranks(root: Path) -> Ranks:
    """The ``rank_N`` directories of a dump."""
    parts: list[UnreadablePart] = []
    found: dict[int, Path] = {}
    holds: dict[int, set[str]] = {}

    def miss(path: Path, error: OSError, rank: int | None = None) -> None:
        from tui_debugger.model import UnreadablePart  # not for the first frame, which finds the dump

        parts.append(UnreadablePart(relative(path, root), why_not(path, error), rank))

    try:
        names = sorted(opener.listdir(root), key=lambda name: (len(name), name))
    except OSError as error:
        miss(root, error)
        names = []
    for name in names:
        match = RANK.fullmatch(name)
        if match is None:
            if _TOO_LONG.fullmatch(name):
                miss(root / name, OSError(0, "a number of more than 9 digits"))
            continue
        number, path = int(match[1]), root / name
        try:
            inner = {entry for entry in opener.listdir(path) if _is_visible(entry)}
        except OSError as error:
            miss(path, error, number)
            continue
        if number in found:
            miss(path, OSError(0, f"the same rank as {found[number].name}"), number)
        else:
            found[number], holds[number] = path, inner
    sure = {number for number, path in found.items() if is_rank(path)}
    nets = {name for number in sure for name in holds[number] if is_directory(found[number] / name)}
    kept = {
        number: path
        for number, path in sorted(found.items())
        if number in sure or holds[number] & nets or any(_holds_numbers(path / name) for name in holds[number])
    }
    others = [name for name in names if _NEARLY.match(name) and not _TOO_LONG.fullmatch(name) and is_rank(root / name)]
    return Ranks(kept, frozenset(nets), tuple(parts), tuple(others))


def _is_visible(name: str) -> bool:
    return not name.startswith(".") and name not in AUXILIARY


def _holds_numbers(path: Path) -> bool:
    """Tells whether something in a directory has graphs, or cannot be looked at."""
    if opener.isfile(path):
        return False
    try:
        with opener.scandir(path) as entries:
            return any(entry.name.isdigit() for entry in islice(entries, _MOST_ENTRIES))
    except OSError:
        return True


def is_rank(directory: Path) -> bool:
    """Tells whether a ``rank_N`` directory looks like part of a dump; one without metadata counts."""
    if any(is_directory(directory / mark) for mark in RANK_MARKS):
        return True
    return any(
        graph.isdigit() for net in islice(_directories(directory), 50) for graph in _directories(directory / net)
    )


def _at_or_above(start: Path, given: Path) -> Found | None:
    # Ranks above come first: their names are cheap, while the start may be a step with a million files.
    for place in (start, *list(start.parents)[:_LEVELS_UP]):
        match = RANK.fullmatch(place.name)
        if match and is_rank(place):
            inside = start.relative_to(place).parts
            step = int(inside[2]) if len(inside) > 2 and inside[1].isdigit() and inside[2].isdigit() else None
            return Found(place.parent, given, str(start.relative_to(place.parent)), int(match[1]), step)
    return Found(start, given) if _is_root(start) else None


def _below(start: Path) -> list[Path]:
    """Dumps one or two levels below, not looking inside one that was found."""
    found: list[Path] = []
    others: list[Path] = []
    for name in islice(_directories(start), _MOST_DIRECTORIES):
        (found if _is_root(start / name) else others).append(start / name)
    budget = _MOST_DIRECTORIES
    for parent in others:
        children = list(islice(_directories(parent), budget))
        budget -= len(children)
        found += [parent / name for name in children if _is_root(parent / name)]
    return sorted(found)


def _is_root(directory: Path) -> bool:
    return any(RANK.fullmatch(name) and is_rank(directory / name) for name in _directories(directory))


_TIME = re.compile(r"\d{14}")
"""When training began: the second level of what graph mode O2 writes."""
_DEVICE_LEVEL = 2
_DEVICE_TREE_LEVELS = 6


def _device_tree(start: Path, given: Path) -> Found | None:
    """The dump of graph mode O2 at, around or right below a path: ``STEP/TIME/DEVICE/MODEL/ID/ITERATION``."""
    for place in (start, *list(start.parents)[: _DEVICE_TREE_LEVELS + 1]):
        if _holds_times(place):
            inside = start.relative_to(place).parts
            numbers = [int(part) if _is_number(part) else None for part in inside]
            step, _, rank = (*numbers, None, None, None)[: _DEVICE_LEVEL + 1]
            within = "" if place == start else str(start.relative_to(place))
            return Found(place, given, within, rank, step, by_device=True)
    below = [name for name in islice(_directories(start), 200) if not _is_digits(name) and _holds_times(start / name)]
    return Found(start / below[0], given, by_device=True) if len(below) == 1 else None


def _holds_times(directory: Path) -> bool:
    """Tells whether a directory has a ``STEP/TIME/DEVICE``."""
    steps = (directory / name for name in islice(_directories(directory), 200) if _is_digits(name))
    times = (step / name for step in steps for name in islice(_directories(step), 50) if _TIME.fullmatch(name))
    return any(_is_digits(device) for time in times for device in islice(_directories(time), 50))


def list_devices(root: Path) -> Ranks:
    """The devices of a dump of graph mode O2, each as a rank of its own; all in the one tree."""
    found: set[int] = set()
    reader = _Reader(root, None)
    for _, device in _each_device(reader, root):
        found.add(int(device.name))
    parts = tuple(sorted(reader.parts, key=lambda part: part.where))
    return Ranks(dict.fromkeys(sorted(found), root), frozenset(), parts)


def read_device_layout(root: Path, device: int) -> RankLayout:
    """Returns what one device wrote: a root graph for each model, a step for each ``STEP`` at which it ran.

    A second time or iteration within a step is said to be left out: which of them came first is not known.
    """
    reader = _Reader(root, device)
    steps: dict[tuple[str, int], dict[int, Path]] = {}
    for step, place in _each_device(reader, root):
        if int(place.name) != device:
            continue
        for model in _subdirectories(reader, place):
            for number in _subdirectories(reader, model, numbers=True):
                found = steps.setdefault((model.name, int(number.name)), {})
                for iteration in _subdirectories(reader, number, numbers=True):
                    if step in found:
                        first = relative(found[step], root)
                        reader.miss(iteration, OSError(0, f"the same step of the same model as {first}"), step)
                    else:
                        found[step] = iteration
    graphs = [GraphDirectory(net, number, root / net, found) for (net, number), found in sorted(steps.items())]
    return RankLayout(root, tuple(graphs), tuple(sorted(reader.parts, key=lambda part: part.where)))


def _each_device(reader: _Reader, root: Path) -> Iterator[tuple[int, Path]]:
    """Yields (step, directory of a device)."""
    for step in _subdirectories(reader, root, numbers=True):
        for time in _subdirectories(reader, step):
            if _TIME.fullmatch(time.name):
                for device in _subdirectories(reader, time, numbers=True):
                    yield int(step.name), device


def _subdirectories(reader: _Reader, path: Path, *, numbers: bool = False) -> list[Path]:
    """The directories in one; those whose names are numbers, ascending."""
    wanted = (entry for entry in reader.entries(path, numbers=numbers) if not numbers or _is_number(entry.name))
    # Files beside them tell about the run (acl_dump_0.json): they are none of ours.
    paths = [(entry, path / entry.name) for entry in wanted if _is_directory(entry)]
    return [each for entry, each in paths if reader.directory(entry, each)]


_OLD = "a dump of MindSpore 1.1 or 1.2 (iteration_N directories) in which no file is named after a tensor"
_GE = "an Ascend GE/ACL dump (graph mode O2: STEP/TIME/DEVICE/MODEL/... directories)"
_MSPROBE = "an msprobe dump"


def _foreign(start: Path) -> str:
    """The name of a known layout that is not read: at the path, around it, or just below; empty when unknown."""
    for place in (start, *list(start.parents)[:_LEVELS_UP]):
        if re.fullmatch(r"iteration_\d+", place.name):
            return _OLD
        if re.fullmatch(r"\d{14}", place.name) and place.parent.name.isdigit():
            return _GE
        if re.fullmatch(r"step\d+", place.parent.name) and re.fullmatch(r"(rank|proc)\d*", place.name):
            return _MSPROBE
    for place in (start, *(start / name for name in islice(_directories(start), 200))):
        layout = _layout_of(place)
        if layout:
            return layout
    return ""


def _layout_of(directory: Path) -> str:
    for name in _entries(directory):
        layout = _layout_of_entry(directory / name, name)
        if layout:
            return layout
    return ""


def _layout_of_entry(path: Path, name: str) -> str:
    def holds(pattern: str) -> bool:
        return any(re.fullmatch(pattern, inner) for inner in islice(_directories(path), 50))

    if re.fullmatch(r"acl_dump_\d+\.json", name) or (name.isdigit() and holds(r"\d{14}")):
        return _GE
    if name in {"dump.json", "construct.json"} or (re.fullmatch(r"step\d+", name) and holds(r"(rank|proc)\d*")):
        return _MSPROBE
    old = re.fullmatch(r"iteration_\d+", name) and is_directory(path)
    if old or (re.fullmatch(r"device_\d+", name) and holds(r"iteration_\d+")):
        return _OLD
    return ""


def _entries(directory: Path) -> Iterator[str]:
    """Names in a directory, lazily and at most so many; nothing when it cannot be listed."""
    try:
        with opener.scandir(directory) as entries:
            for entry in islice(entries, _MOST_ENTRIES):
                yield entry.name
    except OSError:
        return


def _directories(directory: Path) -> Iterator[str]:
    """Names of directories in a directory (links to directories included), lazily."""
    try:
        with opener.scandir(directory) as entries:
            for entry in islice(entries, _MOST_ENTRIES):
                if _is_directory(entry):
                    yield entry.name
    except OSError:
        return
