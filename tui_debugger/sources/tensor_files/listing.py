"""Lists the arrays of one step: their files and names, and missing or repeated ones."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

from tui_debugger import opener
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.graph.build import FileNode, clean_path
from tui_debugger.graph.categories import NAMED_GRADIENT, is_parameter_name
from tui_debugger.graph.table import ARRAY, PARAMETER
from tui_debugger.model import (
    Progress,
    ProgressFn,
    ReadSpec,
    Side,
    UnreadablePart,
)
from tui_debugger.opener import GRAPH_LIMIT, read_regular, why_not
from tui_debugger.sources.directories import is_directory
from tui_debugger.sources.environments import environment_in
from tui_debugger.sources.graphless import (
    ROOT,
    FileState,
    state_of_files,
)
from tui_debugger.sources.rank_names import read_share
from tui_debugger.sources.registry import Shows
from tui_debugger.sources.tensor_files.contents import (
    FileTensor,
    held_by,
    holds_several,
    is_whole,
    numbers_of,
)
from tui_debugger.sources.tensor_files.converted import NAME as INDEX_OF_STEP
from tui_debugger.sources.tensor_files.converted import IndexedTensor
from tui_debugger.sources.tensor_files.converted import read_index as read_indexed
from tui_debugger.sources.tensor_files.layout import (
    INDEX,
    INDEXES,
    LOG_OF_TRAINER,
    PART,
    Layout,
    Unit,
    is_array,
    is_beside,
    is_shard,
    natural,
)
from tui_debugger.sources.tensor_files.zero_partitions import file_with_names
from tui_debugger.stats.dtensor import TensorPart
from tui_debugger.stats.dtypes import has_no_name
from tui_debugger.stats.formats import Holds, may_hold_tensors
from tui_debugger.stats.npy import SUFFIX as ARCHIVE
from tui_debugger.stats.npy import look_at
from tui_debugger.stats.sharded import not_indexed

GRAPH: Final = "arrays"
"""The name of the one graph that all nodes are in."""
_SIDES: Final = {"in": Side.INPUT, "input": Side.INPUT, "out": Side.OUTPUT, "output": Side.OUTPUT}
_SLOT: Final = re.compile(r"(?:(.*)[./:])?(input|in|output|out)s?[._:](\d{1,4})", re.DOTALL)
_POSITION: Final = re.compile(r"arr_(\d{1,4})")
_PIECE: Final = re.compile(r"[-_.]\d.*")
"""The number of a file among the files of a model."""
_GRADIENT: Final = re.compile(r"(?:^|[./_])(?:grads?|gradients?)(?:[./_]|$)", re.IGNORECASE)
ORDER: Final = "model.safetensors.index.json"
"""The index of a whole model, which may lie beside the same tensors in pieces."""
_ONE_OF: Final = re.compile(r"(.+[-_.])(\d{1,6})([-_]of[-_])(\d{1,6})(\.[\w.]+)")
"""The name of one file of a model in several: ``model-00001-of-00002.safetensors``."""
STATISTICS: Final = "statistic.csv"
"""A table of the statistics of the tensors of a step."""
_NAMED_AT_MOST: Final = 20
"""Number of missing files that are named one by one."""
_MISSING: Final = "a file of the model that is missing"
_PROGRESS_EVERY: Final = 1024

NodeName = str | tuple[str, str]
"""Name of a node, with its graph if that is not ``GRAPH``; no tuple for most, which would double the memory."""


_Tensor = str | tuple[object, ...]
"""Identifies a tensor in its step; for output 0 the node's name alone, to save memory."""


def node_name(graph: str, name: str) -> NodeName:
    return name if graph == GRAPH else (graph, name)


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A tensor that its file name describes completely."""

    node: str
    op_type: str
    """Empty where the name does not tell it."""
    side: Side
    slot: int
    spec: ReadSpec
    """How it is read, without the path."""
    when: int = 0
    """A number that grows with the time of writing; 0 where the name does not tell it."""


@dataclass(frozen=True, slots=True)
class FileTree:
    """A layout in which each file is one tensor that its name describes completely."""

    layout: str
    read: Callable[[Path], Layout]
    """Lists the directories above the files."""
    parse: Callable[[Sequence[str], str], NamedFile | None]
    """Parses a file name below the directories of a scope; None for a file without a tensor."""
    shows: Shows
    refers: Callable[[Sequence[str], str], Sequence[str]] | None = None
    """Returns the names of the files that a file refers to instead of holding a tensor."""
    ending: str = ".bin"
    """Suffix of tensor files: such a file that cannot be parsed is a doubt."""
    recorded: Callable[[str], Iterable[tuple[IndexedTensor, str]]] | None = None
    """Yields the statistics in a directory's table, each with its problem if the tensor should have a file."""


@dataclass(frozen=True, slots=True)
class FoundArray:
    """One array of a step."""

    node: str
    side: Side
    slot: int
    path: str
    spec: ReadSpec
    op_type: str = ""
    row: IndexedTensor | None = None
    """Its row in an index of ``tdbg convert``."""
    part: TensorPart | None = None
    """Which part of a larger tensor it is."""
    nbytes: int = -1
    """Bytes of its values; -1: unknown."""
    when: int = 0
    member: str = ""

    @property
    def name(self) -> NodeName:
        return self.node if self.row is None else node_name(self.row.graph, self.node)


def node_of(scope: Sequence[str], key: str | None = None) -> tuple[str, Side, int]:
    """(node, side, slot) of an array below a scope of directories and file; ``key`` is its name in an archive."""
    position = _POSITION.fullmatch(key) if key is not None and scope else None
    if position is not None:
        return _node_name("/".join(scope)), Side.OUTPUT, int(position[1])
    full = "/".join(part for part in (*scope, *([key] if key else [])) if part)
    match = _SLOT.fullmatch(full)
    if match is not None and match[1]:
        return _node_name(match[1]), _SIDES[match[2]], int(match[3])
    return _node_name(full), Side.OUTPUT, 0


def _node_name(text: str) -> str:
    """A clean node name; names of parameters have dots."""
    name = clean_path(text) or "array"
    dotted = name.replace("/", ".")
    return dotted if _is_parameter(dotted) else name


def _is_parameter(name: str) -> bool:
    return not _GRADIENT.search(name) and is_parameter_name(name)


def file_node(found: FoundArray, outputs: int) -> FileNode:
    name, row = found.node, found.row
    if row is not None:
        return FileNode(row.graph, ROOT, name, row.path, row.type, outputs)
    if found.op_type:
        return FileNode(GRAPH, ROOT, name, name, found.op_type, outputs)
    path = name.replace(".", "/")
    if _is_parameter(name):
        return FileNode(GRAPH, ROOT, name, path, PARAMETER, outputs)
    if _GRADIENT.search(name):
        return FileNode(GRAPH, ROOT, name, f"Gradients/{path}", NAMED_GRADIENT, outputs)
    return FileNode(GRAPH, ROOT, name, path, ARRAY, outputs)


class StepLister:
    """Lists the directories and archives of one step."""

    def __init__(
        self,
        root: Path,
        rank: int,
        step: int,
        progress: ProgressFn,
        tree: FileTree | None = None,
    ) -> None:
        self._root, self._rank, self._step, self._progress = root, rank, step, progress
        self._tree = tree
        self.arrays: list[FoundArray] = []
        """In the order of writing as far as names tell it, else of names."""
        self.parts: list[UnreadablePart] = []
        self.state: FileState = ()
        """State of everything that the listing depends on, taken after it."""
        self._found: dict[_Tensor, FoundArray] = {}
        self._state: list[str] = []
        self._visited: set[tuple[int, int]] = set()
        self.claimed: set[str] = set()
        """Files for which others stand (parts and indexes of checkpoints), and files without a tensor."""
        self._without_file: dict[_Tensor, tuple[str, str]] = {}
        """Tensors whose table says that they have a file: that table, and the problem without the file."""
        self._referred: dict[str, Sequence[str]] = {}
        """Files without values, and the names of the tensor files that they refer to."""
        self._sharded: set[str] = set()
        self._ordered: set[str] = set()
        """Directories with the index of a whole checkpoint."""
        self._expected: dict[str, set[str]] = {}
        """Files that an index names, with their tensors by the index."""
        self._together: dict[str, set[str]] = {}
        """By directory, names of files that may belong to one model in several files."""
        self._forms: dict[tuple[str, ...], str] = {}
        """By scope, the stem of the first model there, without the number of a file."""
        self.indexed = False
        """An index of ``tdbg convert`` was there."""
        self.apart: list[str] = []
        """Places of numbers that are not finite, and are no findings."""
        self.numbers: dict[str, int | float] = {}
        """Finite numbers beside the tensors, by the name that a tensor in their place would have."""
        self._order: dict[str, int] = {}
        self._done = 0
        self._first = ""
        progress(Progress(0, 0, f"listing step {step}"))

    def take_indexes(self, units: Sequence[Unit], indexes: Iterable[str]) -> None:
        """Reads the indexes of models whose files are units of the step by themselves."""
        files = {unit.path for unit in units if not unit.directory}
        for index in indexes:
            folder, name = os.path.split(index)
            if any(f"{folder}/{file}" in files for file in indexed_files(index) or ()):
                self._read_order(folder, name)

    def add(self, unit: Unit, *, indexed: bool) -> None:
        """Takes a unit; ``indexed``: ``tdbg convert`` wrote it, with an index."""
        self._first = self._first or unit.path
        if unit.directory:
            self._directory(unit.path, unit.scope, indexed=indexed)
        else:
            self._file(unit.path, unit.scope)

    def add_log(self, path: str) -> None:
        """Takes the log of a training that lies outside of the step."""
        self._file(path, tuple(os.path.splitext(os.path.relpath(path, self._root))[0].split("/")))  # noqa: PTH122 - text

    def end(self, *, final: bool) -> None:
        """Sorts the arrays, and reports missing ones; a ``final`` state may have settings only."""
        for folder, names in self._together.items():
            self._find_missing(folder, names)
        self._find_referred()
        for at, missing in self._without_file.items():
            if at not in self._found:
                self._miss(*missing)
        # Taken after the listing: a change in between is so young that the step is listed again.
        self.state = state_of_files(self._state)
        last = len(self._order)
        self.arrays = sorted(self._found.values(), key=lambda each: (self._order.get(each.member, last), each.when))
        self._found.clear()
        if not self.arrays and not self.parts and not final:
            self._miss(self._first or str(self._root), f"no array in step {self._step}")

    def names(self) -> bytes:
        """Digest of all names, for changes that the state does not show."""
        names = blake2b(digest_size=16)
        for each in self.arrays:
            names.update(f"{each.path}\0{each.spec}\0{each.member}\0{each.row}\0".encode("utf-8", "surrogateescape"))
        for part in self.parts:
            names.update(os.fsencode(f"{part.where}\0{part.why}\0"))
        return names.digest()

    def _directory(self, path: str, scope: tuple[str, ...], *, indexed: bool = False) -> None:
        self._state.append(path)
        try:
            status = opener.stat(path)
            if (status.st_dev, status.st_ino) in self._visited:
                return  # a link led here before
            self._visited.add((status.st_dev, status.st_ino))
            with opener.scandir(path) as entries:
                found = sorted(entries, key=lambda entry: natural(entry.name))
        except OSError as error:
            self._miss(path, why_not(path, error))
            return
        names = {entry.name for entry in found}
        if INDEX_OF_STEP in names:
            self.indexed = True
            self._take_index(path)
            return
        if indexed:
            self._miss(f"{path}/{INDEX_OF_STEP}", "is gone: tdbg convert writes one for each step")
        if ORDER in names:
            self._ordered.add(path)
        if self._tree is not None:
            if self._tree.recorded is not None and STATISTICS in names:
                self._take_statistics(f"{path}/{STATISTICS}", self._tree.recorded(path))
            for entry in found:
                self._named(entry, scope, self._tree)
            return
        self._any(path, scope, found)

    def _any(self, path: str, scope: tuple[str, ...], found: list[os.DirEntry[str]]) -> None:
        """Takes a directory of any program: nested arrays, named by directories and files."""
        for index in without_other_forms([entry.path for entry in found if entry.name.endswith(INDEXES)]):
            self._read_order(path, os.path.basename(index))  # noqa: PTH119 - text all the way
        environment = None if path == str(self._root) else environment_in(path, [entry.name for entry in found])
        for entry in found:
            if entry.name == INDEX and (self._has_parts(found) or self._is_index(entry.path)):
                self._file(entry.path, scope)
            if entry.name.startswith("."):
                continue
            directory = is_directory(entry)
            if is_array(entry.name) and directory:
                self._miss(entry.path, "a directory in place of a file")
            elif directory:
                if environment is None or not environment.covers(entry.name):  # the inventory reports it
                    self._directory(entry.path, (*scope, entry.name))
            elif _is_looked_into(entry.name):
                self._file(entry.path, (*scope, _stem(entry.name)))
            elif entry.is_symlink() and not opener.exists(entry.path):
                self._miss(entry.path, why_not(entry.path))

    def _named(self, entry: os.DirEntry[str], scope: tuple[str, ...], tree: FileTree) -> None:
        """Takes a file that its name describes completely."""
        says = tree.parse(scope, entry.name)
        if is_directory(entry):
            if says is not None:
                self._miss(entry.path, "a directory in place of a file")
            return
        try:
            named = tree.refers(scope, entry.path) if tree.refers is not None else ()
        except (UnreadableTensorError, OSError, ValueError, RecursionError) as error:
            self._miss(entry.path, error.what if isinstance(error, UnreadableTensorError) else str(error))
            return
        if named:
            self.claimed.add(entry.path)
            self._referred[entry.path] = named
        elif says is None:
            if entry.name.endswith(tree.ending):
                self._miss(entry.path, "no tensor's name")
        elif (at := _tensor(says.node, says.side, says.slot)) in self._found and self._found[at].row is None:
            self._miss(entry.path, f"the same tensor as one in {os.path.relpath(self._found[at].path, self._root)}")
        else:
            own = says.node, says.side, says.slot
            self._found[at] = FoundArray(*own, entry.path, says.spec, says.op_type, when=says.when)

    def _find_referred(self) -> None:
        """Reports files that others refer to and that are missing; a path may come from another machine."""
        for path, named in self._referred.items():
            folder = os.path.dirname(path)  # noqa: PTH120 - text all the way
            for name in named:
                parts = [part for part in name.split("/") if part]
                below = [f"{self._root}/{'/'.join(parts[at:])}" for at in range(len(parts))] if "/" in name else []
                there = (at for at in map(os.path.normpath, (f"{folder}/{name}", *below)) if opener.exists(at))
                if next(there, path) in self._referred:
                    self._miss(path, f"names a file of values that is not there: {name}")

    def _take_statistics(self, path: str, rows: Iterable[tuple[IndexedTensor, str]]) -> None:
        """Takes a table of statistics; a tensor with a file keeps the file instead of its row."""
        self._state.append(path)
        self.claimed.add(path)
        try:
            for row, problem in rows:
                at = _tensor(row.node, row.side, row.slot)
                if problem:
                    self._without_file[at] = path, f"{row.node}: {problem}"
                elif at in self._found and self._found[at].row is not None:
                    self._miss(path, f"two rows of one tensor: {row.node}")
                elif at not in self._found:
                    self._found[at] = FoundArray(row.node, row.side, row.slot, path, ReadSpec(""), row.type, row)
        except (OSError, ValueError) as error:
            self._miss(path, reason(path, error))

    def _take_index(self, path: str) -> None:
        """Takes the rows of an index of ``tdbg convert``; no other entry of the directory is looked at."""
        index = f"{path}/{INDEX_OF_STEP}"
        self._state.append(index)
        try:
            for number, row in enumerate(read_indexed(path)):
                if number % _PROGRESS_EVERY == 0:
                    self._progress(Progress(number, 0, f"listing step {self._step}"))
                where = f"{path}/{row.file}" if row.file else index
                at = (row.graph, row.node, row.side, row.slot, row.round)
                if row.error:
                    self._miss(f"{path}/{row.node}", f"not converted: {row.error}")
                elif at in self._found:
                    self._miss(index, f"two rows of one tensor: {row.node}")
                else:
                    declared = row.dtype if has_no_name(row.dtype) else ""
                    self._found[at] = FoundArray(
                        row.node, row.side, row.slot, where, ReadSpec("", dtype=declared), row=row
                    )
        except (OSError, ValueError) as error:
            self._miss(index, reason(index, error))

    def _file(self, path: str, scope: tuple[str, ...]) -> None:
        self._done += 1
        if self._done % _PROGRESS_EVERY == 0:
            self._progress(Progress(self._done, 0, f"listing step {self._step}"))
        folder, name = os.path.split(path)
        if name.endswith(PART):
            self.claimed.add(path)
            if not opener.exists(f"{folder}/{INDEX}"):
                self._miss(path, "a part of a checkpoint whose index .metadata is missing")
            return
        if is_shard(name):
            above, _, last = folder.rpartition("/")
            whole = last == "sharded" and (above in self._ordered or opener.lexists(f"{above}/{ORDER}"))
            self.claimed.add(path)
            if whole or folder in self._sharded:
                return  # its tensors lie beside it, too, or were listed with the first shard
            self._sharded.add(folder)
            scope = scope[:-1]
        if holds_several(path):
            self._state.append(path)
            self._together.setdefault(folder, set()).add(name)
        if names := file_with_names(path):
            self._state.append(names)
        try:
            found = held_by(path)
        except UnreadableTensorError as error:
            self._miss(path, error.what)
            return
        if found and found[0].place and scope and is_whole(scope[-1]):
            scope = self._scope_of_model(scope[:-1], _PIECE.sub("", scope[-1]), found)
        if holds_several(path):
            self._account(path, found)
        if not found:
            self.claimed.add(path)  # it was read completely, and has no tensor
        found.reverse()
        while found:  # one at a time: there may be a million, and two objects of each take much memory
            self._take(path, scope, found.pop())
        apart, finite = numbers_of(path)
        self.apart += apart
        self.numbers.update(("/".join((*scope, *map(str, place))), number) for place, number in finite.items())

    def _scope_of_model(self, scope: tuple[str, ...], form: str, found: Sequence[FileTensor]) -> tuple[str, ...]:
        """The scope of the tensors of a model; a second form of the same names is told apart by its stem.

        People keep a file of torch.save beside one of safetensors: both are read.
        """
        first = self._forms.setdefault(scope, form)
        if form != first and any(_tensor(*node_of(scope, held.key)) in self._found for held in found):
            return (*scope, form)
        return scope

    def _account(self, path: str, found: Sequence[FileTensor]) -> None:
        """Reports tensors that a file, or a checkpoint's parts, should hold and do not."""
        if not found and path.endswith(ARCHIVE):
            self._miss(path, "no array in it")
        if expected := self._expected.get(path):
            for lacking in sorted(expected - {held.key for held in found}):
                self._miss(f"{path}:{lacking}", "a tensor of the model that its file lacks")
        folder, name = os.path.split(path)
        if name == INDEX:
            try:
                self.parts += [self._part(*each) for each in not_indexed(path)]
            except OSError as error:
                self._miss(folder, why_not(folder, error))

    def _take(self, path: str, scope: tuple[str, ...], held: FileTensor) -> None:
        own = node_of(scope, held.key)
        at = _tensor(*own)
        if at in self._found:
            if _is_one_file(path, self._found[at].path):
                return
            first = os.path.relpath(self._found[at].path, self._root)
            where = path if held.key is None else f"{path}:{held.key}"
            self._miss(where, f"the same tensor as one in {first}")
        else:
            where, spec = held.spec.path, held.spec
            spec = spec.at("") if where else spec
            self._found[at] = FoundArray(
                *own, where or path, spec, part=held.part, nbytes=held.nbytes, member=held.member
            )

    def _has_parts(self, found: list[os.DirEntry[str]]) -> bool:
        return any(entry.name.endswith(PART) for entry in found)

    def _is_index(self, path: str) -> bool:
        """Whether ``.metadata`` without files of a checkpoint beside it is the index of one."""
        try:
            return look_at(path).holds is Holds.TENSORS
        except UnreadableTensorError as error:
            self._miss(path, error.what)
            return False

    def _read_order(self, folder: str, name: str) -> None:
        """Reads the file of each tensor of a model: the expected files, and the order of the tensors."""
        files = _weight_map(f"{folder}/{name}")
        if files is None:
            self._miss(f"{folder}/{name}", "cannot be read: whether all files of the model are there is not known")
            return
        self._order |= {tensor: number for number, tensor in enumerate(files, len(self._order))}
        for tensor, file in files.items():
            self._expected.setdefault(f"{folder}/{file}", set()).add(tensor)
        for file in sorted(set(files.values())):
            if not opener.lexists(f"{folder}/{file}"):
                self._miss(f"{folder}/{file}", _MISSING)

    def _find_missing(self, folder: str, names: set[str]) -> None:
        """Reports missing and surplus files of models in several files, by their names."""
        groups: dict[tuple[str, str, str, str], set[str]] = {}
        for name in names:  # a file of each rank is no file of several: see ``layout``
            if (says := _ONE_OF.fullmatch(name)) is not None and not is_shard(name) and not read_share(name):
                groups.setdefault((says[1], says[3], says[4], says[5]), set()).add(says[2])
        for (start, of, count, suffix), there in groups.items():
            first = min(map(int, there), default=0) > 0
            known = {f"{folder}/{start}{number}{of}{count}{suffix}" for number in there}
            if (named := known & self._expected.keys()) and named != known:
                for path in sorted(known - named):
                    self._miss(path, "a file of the model that its index does not name")
            width = len(next(iter(there)))
            wanted = (f"{number:0{width}}" for number in range(int(first), int(count) + int(first)))
            gone = [f"{folder}/{start}{number}{of}{count}{suffix}" for number in wanted if number not in there]
            gone = [path for path in gone if path not in self._expected]
            for path in gone[:_NAMED_AT_MOST]:
                self._miss(path, _MISSING)
            if len(gone) > _NAMED_AT_MOST:
                self._miss(f"{folder}/{start}*{suffix}", f"{len(gone):,} files of the model are missing")

    def _miss(self, path: str, why: str) -> None:
        self.parts.append(self._part(path, why))

    def _part(self, path: str, why: str) -> UnreadablePart:
        return UnreadablePart(os.path.relpath(path, self._root), why, self._rank, self._step)


def reason(path: str, error: Exception) -> str:
    return why_not(path, error) if isinstance(error, OSError) else str(error)


def _tensor(node: str, side: Side, slot: int) -> _Tensor:
    return node if side is Side.OUTPUT and slot == 0 else (node, side, slot)


def _is_looked_into(name: str) -> bool:
    return is_array(name) or name == LOG_OF_TRAINER or (may_hold_tensors(name) and not is_beside(name))


def _stem(name: str) -> str:
    return os.path.splitext(name.removesuffix(".tar"))[0]  # noqa: PTH122 - text all the way, for many


def _weight_map(path: str) -> dict[str, str] | None:
    """The file of each tensor, by an index of a model's files; None when it cannot be read."""
    try:
        files = json.loads(read_regular(path, GRAPH_LIMIT))["weight_map"]
        return {str(tensor): file for tensor, file in files.items() if isinstance(file, str)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def indexed_files(path: str) -> set[str] | None:
    """The files that an index names; None: it cannot be read."""
    files = _weight_map(path)
    return None if files is None else set(files.values())


def any_there(folder: str, files: Iterable[str]) -> bool:
    return any(opener.lexists(f"{folder}/{name}") for name in files)


def without_other_forms(indexes: Sequence[str]) -> list[str]:
    """Drops the indexes of forms of a model that were not fetched.

    A model often comes in several forms (``.safetensors`` and ``.bin``), each with an index, and all indexes are
    fetched with the files of one form. An index without any of its files is dropped where the other indexes of its
    directory name all of its tensors, and have files there.
    """
    if len(indexes) < 2:
        return list(indexes)
    fetched: dict[str, set[str]] = {}
    absent: dict[str, dict[str, str]] = {}
    for index in indexes:
        folder, files = os.path.dirname(index), _weight_map(index) or {}  # noqa: PTH120 - text all the way
        if any_there(folder, files.values()):
            fetched.setdefault(folder, set()).update(files)
        elif files:
            absent[index] = files
    others = {index for index, files in absent.items() if files.keys() <= fetched.get(os.path.dirname(index), set())}  # noqa: PTH120 - text all the way
    return [index for index in indexes if index not in others]


def _is_one_file(one: str, other: str) -> bool:
    try:
        first, second = opener.stat(one), opener.stat(other)
    except OSError:
        return False
    return one != other and (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)
