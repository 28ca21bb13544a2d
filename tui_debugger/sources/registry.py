"""The one door: a path in, a source out. Light: it is imported before the first frame.

Every layout has a reader here. Other packages bring theirs as entry points.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast, runtime_checkable
from weakref import WeakKeyDictionary

from tui_debugger import opener
from tui_debugger.errors import NotADumpError, SeveralDumpsError, TdbgError
from tui_debugger.mounts import reached
from tui_debugger.sources.paths import is_inside
from tui_debugger.text.numbers import plural

if TYPE_CHECKING:
    from tui_debugger.cache.store import DiskCache
    from tui_debugger.sources.base import Source


class Sureness(IntEnum):
    """The degree to which a reader is sure that a path holds a dump of its layout."""

    POSSIBLE = 1
    """Nothing speaks against it."""
    LIKELY = 2
    """Some names are those of its layout."""
    SURE = 3
    """No other layout looks like this."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """The dump that a reader found at a path.

    Attributes:
        root: the directory of the dump: at the path, above it, or up to two levels below.
        sureness: how sure the reader is. The surest of all readers opens the path.
        refusal: why it cannot be opened all the same (several dumps, a known layout that is not read); else None.
        why: the names that it was recognised by, such as ``rank_0/.dump_metadata``; empty: see ``Reader.looked_for``.
    """

    root: Path
    sureness: Sureness
    refusal: NotADumpError | None = None
    why: str = ""


class Has(Enum):
    """Tells whether a layout holds something."""

    YES = "yes"
    SOME = "some"
    """Only where it was recorded."""
    NO = "no"
    UNKNOWN = "?"


class Edges(Enum):
    """The ways to know which tensor was made from which."""

    KNOWN = "known"
    """The recorder wrote them."""
    INFERRED = "inferred"
    """From nesting, and from values or numbers that are equal."""
    NONE = "none"
    UNKNOWN = "?"


class Order(Enum):
    """The orders of nodes within a step."""

    EXECUTION = "execution"
    NAMES = "names"
    """Nothing tells in which order they ran."""
    UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class Shows:
    """The abilities of a layout: what it can show and what it cannot. The defaults say that nothing is known.

    Attributes:
        values, statistics, hashes: of tensors.
        order: of nodes within a step.
        edges: between nodes.
        stacks: lines of source.
        gradients: tensors of the backward pass.
        record: how to record it: three lines at most.
        limits: what its numbers cannot tell besides: two or three words for the header, a colon, and what that means,
            such as "four decimals: 0.0000 is less than 0.00005, not zero".
        recorded_in: where statistics without values stand: ``statistic.csv``.
        values_advice: what makes the recorder write values, where it can do without: ``msprobe: task tensor``.
        tensors_advice: what makes it write more inputs and outputs of nodes.
    """

    values: Has = Has.UNKNOWN
    statistics: Has = Has.UNKNOWN
    hashes: Has = Has.UNKNOWN
    order: Order = Order.UNKNOWN
    edges: Edges = Edges.UNKNOWN
    stacks: Has = Has.UNKNOWN
    gradients: Has = Has.UNKNOWN
    record: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    recorded_in: str = ""
    values_advice: str = ""
    tensors_advice: str = ""


NO_EDGES: Final = "no edges: an origin is the first bad tensor in order, unless the inputs of its node were dumped, too"
EDGES_INFERRED: Final = (
    "edges inferred: from nesting and from equal tensors; an origin is as sure as the edges that lead to it"
)
ORDER_OF_NAMES: Final = "order of names: which node ran first is not known"
STATISTICS_ONLY: Final = "statistics only: what needs the values of tensors cannot be judged"
NO_VALUES: Final = "no values: neither tensors nor their statistics were recorded; nothing can be judged"
HASHES_ONLY: Final = "hashes only: what needs the values of tensors or their statistics cannot be judged"


def limits_of(shows: Shows, *, graph: bool) -> tuple[str, ...]:
    """Returns what a verdict on a dump cannot tell: two or three words each, a colon, and what that means.

    Args:
        shows: of its layout.
        graph: whether this dump has edges at all.
    """
    found = []
    if shows.values is Has.NO and shows.statistics is Has.NO:
        found.append(NO_VALUES if shows.hashes is Has.NO else HASHES_ONLY)
    elif shows.values is Has.NO:
        found.append(STATISTICS_ONLY)
    if not graph or shows.edges is Edges.NONE:
        found.append(NO_EDGES)
    elif shows.edges is Edges.INFERRED:
        found.append(EDGES_INFERRED)
    if shows.order is Order.NAMES:
        found.append(ORDER_OF_NAMES)
    return (*found, *shows.limits)


class Reader(Protocol):
    """One layout of dumps. Readers of other packages are entry points of the group ``tui_debugger.sources``.

    Attributes:
        name: what people call the layout.
        looked_for: what it looks for, in words that follow "Looked for".
    """

    @property
    def name(self) -> str:
        """The name of the layout, for people."""

    @property
    def looked_for(self) -> str:
        """The things that it looks for, in words that follow "Looked for"."""

    def recognises(self, path: Path) -> Recognised | None:
        """Returns what it found; None when nothing there is of its layout.

        Looks at names only, at few of them, and needs neither NumPy nor time.
        """

    def open(self, path: Path, store: DiskCache | None = None, notices: Sequence[str] = ()) -> Source:
        """Opens what it recognised.

        Args:
            path: as it was given to ``recognises``.
            store: may remember what was found, for the next time.
            notices: what people have to know, to be told among ``RunInfo.notices``.

        Raises:
            NotADumpError: it is gone.
        """


@runtime_checkable
class QuickReader(Reader, Protocol):
    """A reader for searches through many directories; other readers are asked what they recognise there."""

    def is_dump(self, directory: Path) -> bool:
        """Tells whether a dump lies in this very directory, by names in it and directly below it."""


@runtime_checkable
class DescribedReader(Reader, Protocol):
    """A reader that says what its layout can show; of other readers nothing is known."""

    @property
    def shows(self) -> Shows:
        """Returns what the layout can show and what it cannot."""


@runtime_checkable
class DescribedSource(Protocol):
    """A source that says what this very dump can show, where that is less or more than its layout can."""

    @property
    def shows(self) -> Shows:
        """Returns what the dump can show and what it cannot."""


TENSOR_FILES: Final = "tensor files"
"""The layout of files that no other layout claims."""
READERS: Final = (
    "tui_debugger.sources.mindspore.reader:READER",
    "tui_debugger.sources.mindspore.old_tree:READER",
    "tui_debugger.sources.msprobe.layout:READER",
    "tui_debugger.sources.sglang.layout:DUMPER",
    "tui_debugger.sources.sglang.layout:PASSES",
    "tui_debugger.sources.megatron.layout:READER",
    "tui_debugger.sources.logs.reader:TORCHTITAN_READER",
    "tui_debugger.sources.logs.reader:DEBUG_MODE_READER",
    "tui_debugger.sources.logs.reader:TE_LOGS_READER",
    "tui_debugger.sources.logs.reader:MONITOR_READER",
    "tui_debugger.sources.logs.reader:TREND_READER",
    "tui_debugger.sources.named_trees.layout:FX_READER",
    "tui_debugger.sources.named_trees.layout:ATB_READER",
    "tui_debugger.sources.named_trees.layout:SINGLE_READER",
    "tui_debugger.sources.tensor_files.reader:READER",
)
"""The readers of this package, as entry points are written; where two are equally sure, the first one opens."""
GROUP: Final = "tui_debugger.sources"
"""The group of entry points that readers of other packages are found by. They are looked up only where none of
``READERS`` is sure."""


def find_run(path: Path) -> None:
    """Only looks whether ``open_source`` will find a run; needs neither NumPy nor time.

    Raises:
        NotADumpError: as ``open_source``.
    """
    _find(reached(path))


def open_source(path: Path, store: DiskCache | None = None) -> Source:
    """Opens the run at a path: the dump directory, up to two levels above it, or anything inside it: see ``scope``.

    Looks at a few directories only; nothing is listed or read before it is asked for. What else lies there is a
    question for later: see ``inventory``.

    Args:
        path: where to look; a tar is read where it lies.
        store: remembers what directories hold, and what was read of files to find their nodes, for the next time.

    Raises:
        NotADumpError: nothing recognisable, several runs, or a layout that cannot be read.
        TdbgError: the reader of another package failed.
    """
    from tui_debugger.sources.scope import refusal  # needs NumPy, as every source does

    path = reached(path, anew=True)
    chosen, problems = _find(path)
    source = _opened(chosen, path, store, problems)
    with suppress(TypeError):  # a source of another package that cannot be a key
        _OPENED[source] = _OpenedSource(chosen, path)
    scope = source.scope
    if scope.places == () and not any(map(scope.covers, source.unreadable())):
        source.close()
        raise refusal(scope)
    return source


def _opened(chosen: _ReaderClaim, path: Path, store: DiskCache | None, notices: Sequence[str]) -> Source:
    if not chosen.foreign:
        return chosen.reader.open(path, store, notices)
    try:
        return chosen.reader.open(path, store, notices)
    except TdbgError:
        raise
    except Exception as error:
        raise TdbgError(
            f"the reader {chosen.foreign} failed: {_words(error)}",
            where=str(path),
            hint="update or remove the package that brings it",
        ) from error


def opened_at(source: Source) -> OpenedAt | None:
    """Returns where ``open_source`` opened a source; None for any other source."""
    opened = _OPENED.get(source)
    if opened is None:
        return None
    return OpenedAt(opened.path, opened.chosen.found.root, opened.chosen.reader.name)


def limits(source: Source) -> tuple[str, ...]:
    """Returns what a verdict on an open dump cannot tell; nothing of what no reader opened, such as a training."""
    from tui_debugger.sources.base import Capability  # needs NumPy, as every source does

    shows = shown_by(source)
    return () if shows is None else limits_of(shows, graph=Capability.GRAPH in source.capabilities)


def shown_by(source: Source) -> Shows | None:
    """Returns what an open dump can show; None of what no reader opened, such as a training."""
    if isinstance(source, DescribedSource):
        return source.shows
    opened = _OPENED.get(source)
    return None if opened is None else shows_of(opened.chosen.reader)


def shows_of(reader: Reader) -> Shows:
    """Returns what the layout of a reader can show; nothing is known where it does not say."""
    shows = reader.shows if isinstance(reader, DescribedReader) else None
    return shows if isinstance(shows, Shows) else Shows()


def word_of(name: str) -> str:
    """Returns a layout's name as people type it: ``tensor-files``."""
    return "-".join(name.casefold().split())


@dataclass(frozen=True, slots=True)
class Format:
    """A layout that can be read.

    Attributes:
        name: what people call it.
        looked_for: what it is recognised by.
        shows: what it can show and what it cannot.
        package: the entry point of a reader of another package; else empty.
    """

    name: str
    looked_for: str
    shows: Shows
    package: str = ""


def known_formats() -> tuple[list[Format], list[str]]:
    """Returns every layout, and what is wrong with readers of other packages."""
    found = [Format(each.name, each.looked_for, shows_of(each)) for each in map(own_reader, READERS)]
    problems: list[str] = []
    for name, load in _entry_points():
        try:
            reader = load()
            found.append(Format(reader.name, reader.looked_for, shows_of(reader), name))
        except Exception as error:  # noqa: BLE001, PERF203 - see ``_ask_others``
            problems.append(_cannot_be_used(name, error))
    return found, problems


@dataclass(frozen=True, slots=True)
class OpenedAt:
    """The place where a source was opened.

    Attributes:
        path: the path that was asked for.
        root: the directory of the dump.
        layout: the name of the layout.
    """

    path: Path
    root: Path
    layout: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A reader that recognises something at a path.

    Attributes:
        format: its layout.
        found: what it recognised.
        opens: whether it is the one that opens the path.
    """

    format: Format
    found: Recognised
    opens: bool


def claims(path: Path) -> tuple[list[Claim], tuple[str, ...]]:
    """Asks every reader about a path: the surest first, which opens it unless it refuses.

    Returns:
        The readers that recognise something, and what people have to know: other dumps, readers that fail.

    Raises:
        NotADumpError: nobody recognises anything.
    """
    path = reached(path, anew=True)
    search = _asked(path, every=True)
    if search.best is None:
        raise _nothing(path, search)
    best = search.best
    ordered = sorted(search.choices, key=lambda each: (each is not best, -each.found.sureness))
    found = [
        Claim(
            Format(each.reader.name, each.reader.looked_for, shows_of(each.reader), each.foreign),
            each.found,
            each is best and each.found.refusal is None,
        )
        for each in ordered
    ]
    closed = _closed_beside(os.path.realpath(path), os.path.realpath(best.found.root))
    return found, (*search.problems, *_beside(best, search.choices), *closed)


def layout_of(path: Path) -> str:
    """Returns the name of the reader that opens a path.

    Raises:
        NotADumpError: as ``open_source``.
    """
    return _find(reached(path))[0].reader.name


def dump_around(path: Path) -> Path | None:
    """Returns the dump that a directory is or lies in; None where none is likely to be."""
    try:
        path = reached(path)
        found = _find(path)[0].found
    except NotADumpError:
        return None
    here = Path(os.path.realpath(path))
    inside = found.sureness > Sureness.POSSIBLE and here.is_relative_to(os.path.realpath(found.root))
    return found.root if inside else None


class Recogniser:
    """All readers, for a search: tells of one directory after the other whether a dump lies in it.

    Attributes:
        problems: what is wrong with readers of other packages; one that fails is not asked again.
    """

    def __init__(self) -> None:
        """Loads every reader."""
        self.problems: list[str] = []
        self._readers: dict[str, Reader] = {text: own_reader(text) for text in READERS}
        for name, load in _entry_points():
            try:
                self._readers[name] = load()
            except Exception as error:  # noqa: BLE001, PERF203 - see ``_ask_others``
                self.problems.append(_cannot_be_used(name, error))

    def layouts_in(self, directory: Path) -> Iterator[str]:
        """Yields the names of the layouts of dumps in this very directory."""
        for name, reader in list(self._readers.items()):
            try:
                if _lies_in(reader, directory):
                    yield reader.name
            except Exception as error:  # noqa: PERF203 - see ``_ask_others``
                if name in READERS:
                    raise
                self.problems.append(_cannot_be_used(name, error))
                del self._readers[name]


def _lies_in(reader: Reader, directory: Path) -> bool:
    if isinstance(reader, QuickReader):
        return reader.is_dump(directory)
    found = reader.recognises(directory)
    if found is None or found.refusal is not None or found.sureness is Sureness.POSSIBLE:
        return False
    return os.path.realpath(found.root) == os.path.realpath(directory)


@dataclass(frozen=True, slots=True)
class _ReaderClaim:
    """A reader that recognised a path; ``foreign`` names one of another package."""

    reader: Reader
    found: Recognised
    foreign: str = ""


@dataclass(frozen=True, slots=True)
class _OpenedSource:
    """The reader that opened a source, and the path that was given."""

    chosen: _ReaderClaim
    path: Path


_OPENED: Final[WeakKeyDictionary[object, _OpenedSource]] = WeakKeyDictionary()
"""By open source."""


@dataclass(slots=True)
class _ReaderAnswers:
    """The answers of readers about a path.

    Attributes:
        best: the surest so far.
        choices: all that recognised something.
        asked: the names of all of them.
        problems: what is wrong with readers of other packages.
    """

    best: _ReaderClaim | None = None
    choices: list[_ReaderClaim] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def sure(self) -> bool:
        return self.best is not None and self.best.found.sureness is Sureness.SURE

    def ask(self, reader: Reader, path: Path, foreign: str = "") -> None:
        found = reader.recognises(path)
        self.asked.append(reader.name)
        if found is None:
            return
        choice = _ReaderClaim(reader, found, foreign)
        self.choices.append(choice)
        if self.best is None or found.sureness > self.best.found.sureness:
            self.best = choice


def _find(path: Path) -> tuple[_ReaderClaim, tuple[str, ...]]:
    """Returns who opens a path, and what is wrong with readers of other packages.

    What the system refuses to tell looks like something that is not there, and then like another layout or a dump
    beside this one: everybody is asked again, once. What it goes on to refuse will be counted as unreadable.
    """
    before = opener.refusals()
    search = _asked(path)
    if opener.refusals() != before:
        search = _asked(path)
    if search.best is None:
        raise _nothing(path, search)
    if search.best.found.refusal is not None:
        raise search.best.found.refusal
    return search.best, tuple(search.problems)


def _asked(path: Path, *, every: bool = False) -> _ReaderAnswers:
    """Asks readers until one is sure, or ``every`` one."""
    if not opener.exists(path):
        raise NotADumpError(
            "No such file or directory, or no right to read it", where=str(path), hint="name a dump directory"
        )
    if not (opener.isdir(path) or opener.isfile(path)):  # /dev/null: else a dump somewhere in /dev would be opened
        raise NotADumpError(opener.why_not(path), where=str(path), hint="name a dump directory")
    search = _ReaderAnswers()
    for text in READERS:
        search.ask(own_reader(text), path)
        if search.sure and not every:
            break
    if every or not search.sure:
        _ask_others(search, path)
    if not opener.exists(path):  # what was found then lies beside it
        raise NotADumpError("It vanished while it was looked at", where=str(path), hint="look whether it is there")
    return search


def _beside(chosen: _ReaderClaim, choices: Sequence[_ReaderClaim]) -> tuple[str, ...]:
    """Returns a notice for each dump that is not part of the one that is opened."""
    root = os.path.realpath(chosen.found.root)
    notices: list[str] = []
    named: set[str] = set()
    for each in choices:
        name, refusal = each.reader.name, each.found.refusal
        if name == chosen.reader.name or each.found.sureness is Sureness.POSSIBLE:
            continue
        for place in refusal.dumps if isinstance(refusal, SeveralDumpsError) else (each.found.root,):
            here = os.path.realpath(place)
            if here in named:
                continue
            if here == root and each.found.sureness >= chosen.found.sureness:
                notices.append(f"this looks like {name} as much as like {chosen.reader.name}, which opens it")
            elif not is_inside(here, root) and not is_inside(root, here):
                named.add(here)
                notices.append(f"{place} is another dump ({name}) that is not looked at: name it to open it")
    return tuple(notices)


def _closed_beside(start: str, root: str) -> tuple[str, ...]:
    """Returns a notice for what cannot be looked at below a path, where only the dump at ``root`` was found."""
    closed: list[str] = []
    waiting, looked = [] if is_inside(start, root) else [(start, 0)], 0
    while waiting and looked < _LOOKED_AT:
        here, depth = waiting.pop(0)
        try:
            with opener.scandir(here) as listing:
                entries = sorted(islice(listing, _LOOKED_AT - looked), key=lambda entry: entry.name)
        except OSError as error:
            closed.append(f"{here} ({opener.why_not(here, error)})")
            continue
        looked += len(entries)
        for entry in entries:
            if entry.name.startswith(".") or is_inside(entry.path, root):
                continue
            if opener.isdir(entry.path):
                waiting += [(entry.path, depth + 1)] if depth < _LEVELS_BELOW else []
            elif not opener.isfile(entry.path):
                closed.append(f"{entry.path} ({opener.why_not(entry.path)})")
    notices = [f"{each} cannot be looked at: whether another dump lies there is not known" for each in closed]
    more = len(notices) - _SHOWN_CLOSED
    return (*notices[:_SHOWN_CLOSED], *([f"{more:,} more beside the dump cannot be looked at"] if more > 0 else ()))


def _nothing(path: Path, search: _ReaderAnswers) -> NotADumpError:
    parts = contents_text(path)
    return NotADumpError(
        f"No dump found here, up to two levels below, or above. {f'{parts}. ' if parts else ''}"
        f"Looked for {', '.join(search.asked)}" + "".join(f". {each}" for each in search.problems),
        where=str(path),
        hint="name the directory that training dumped to (the path in its dump configuration) or one inside it; "
        "`tdbg ls --formats` lists what is read",
    )


_READ_INSTEAD: Final = {
    ".h5": ".npy or .npz", ".hdf5": ".npy or .npz", ".mat": ".npy or .npz", ".zarr": ".npy or .npz",
    ".parquet": ".npy or .npz", ".csv": ".npy or .npz", ".txt": ".npy or .npz", ".pkl": ".npz or .pt",
    ".pickle": ".npz or .pt", ".ckpt": ".safetensors or .pt", ".gguf": ".safetensors", ".onnx": ".safetensors",
    ".tfevents": ".npz",
}  # fmt: skip
"""The files to read in place of others that are not read, by the suffix of the latter."""
_LOOKED_AT: Final = 2_000
_LEVELS_BELOW: Final = 3
"""Of directories below a path: a dump is looked for two levels below it, and is known by what lies in it."""
_SHOWN_CLOSED: Final = 4
_SHOWN_KINDS: Final = 4


def contents_text(path: Path) -> str:
    """Returns what lies in a directory that no reader recognises, by kind; empty where nobody can list it.

    ``It holds 12 .h5 files (not read; .npy or .npz would be), 3 .log files``.
    """
    counts: dict[str, int] = {}
    waiting, looked, refused = [os.fspath(path)], 0, False
    while waiting and looked < _LOOKED_AT:
        try:
            with opener.scandir(waiting.pop(0)) as entries:
                for entry in entries:
                    looked += 1
                    if looked > _LOOKED_AT:
                        break
                    suffix = os.path.splitext(entry.name)[1].lower()  # noqa: PTH122 - text all the way
                    directory = entry.is_dir(follow_symlinks=False)
                    if directory and suffix not in _READ_INSTEAD:
                        waiting.append(entry.path)
                    else:
                        kind = ".tfevents" if ".tfevents." in entry.name else suffix
                        counts[kind] = counts.get(kind, 0) + 1
        except OSError:
            refused = True
    if not counts and not refused and looked < _LOOKED_AT:
        return "It holds no files"
    ordered = sorted(counts.items(), key=lambda each: (each[0] not in _READ_INSTEAD, -each[1], each[0]))
    parts = []
    for kind, number in ordered[:_SHOWN_KINDS]:
        instead = f" (not read; {_READ_INSTEAD[kind]} would be)" if kind in _READ_INSTEAD else ""
        parts.append(plural(number, f"{kind} file") + instead if kind else f"{plural(number, 'file')} without a suffix")
    rest = sum(number for _, number in ordered[_SHOWN_KINDS:])
    parts += [f"{rest:,} of other kinds"] if rest else []
    return f"It holds {', '.join(parts)}" if parts else ""


def own_reader(text: str) -> Reader:
    """Returns a reader of this package, as ``READERS`` names it."""
    module, _, name = text.partition(":")
    return cast("Reader", getattr(import_module(module), name))


def _ask_others(search: _ReaderAnswers, path: Path) -> None:
    """Asks the readers of other packages. Whatever one of them does wrong is said, and the others are asked."""
    for name, load in _entry_points():
        try:
            search.ask(load(), path, name)
        except Exception as error:  # noqa: BLE001, PERF203 - code of others may raise anything; each fails by itself
            search.problems.append(_cannot_be_used(name, error))


def _cannot_be_used(name: str, error: BaseException) -> str:
    return f"The reader {name} cannot be used: {_words(error)}; update or remove its package"


class _EntryPoint:
    """Loads the reader of an entry point when it is called; a class makes an object."""

    def __init__(self, point: object) -> None:
        self._point = point

    def __call__(self) -> Reader:
        loaded = self._point.load()  # type: ignore[attr-defined]  # importlib.metadata is imported when it is needed
        return cast("Reader", loaded() if isinstance(loaded, type) else loaded)


def _entry_points() -> Iterator[tuple[str, _EntryPoint]]:
    from importlib.metadata import entry_points  # takes longer than all readers here

    for point in sorted(entry_points(group=GROUP), key=lambda each: (each.name, each.value)):
        yield f"{point.name!r} ({point.value})", _EntryPoint(point)


def _words(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
