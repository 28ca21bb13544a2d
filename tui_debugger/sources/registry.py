"""The one door: a path in, a source out. Imported before the first frame, so without NumPy.

Every layout has a reader here; other packages bring readers as entry points.
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
    """How sure a reader is that a path holds a dump of its layout."""

    POSSIBLE = 1
    """Nothing speaks against it."""
    LIKELY = 2
    """Some names are those of its layout."""
    SURE = 3
    """No other layout looks like this."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """The dump that a reader found at a path."""

    root: Path
    """Directory of the dump: at the path, above it, or up to two levels below."""
    sureness: Sureness
    """The surest of all readers opens the path."""
    refusal: NotADumpError | None = None
    """Why the dump cannot be opened (several dumps, a known layout that is not read); else None."""
    why: str = ""
    """Names that it was recognised by, such as ``rank_0/.dump_metadata``; empty: see ``Reader.looked_for``."""


class Has(Enum):
    """Whether a layout holds something."""

    YES = "yes"
    SOME = "some"
    """Only where it was recorded."""
    NO = "no"
    UNKNOWN = "?"


class Edges(Enum):
    """How it is known which tensor was made from which."""

    KNOWN = "known"
    """The recorder wrote them."""
    INFERRED = "inferred"
    """From nesting, and from values or numbers that are equal."""
    NONE = "none"
    UNKNOWN = "?"


class Order(Enum):
    """The order of nodes within a step."""

    EXECUTION = "execution"
    NAMES = "names"
    """Nothing tells in which order they ran."""
    UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class Shows:
    """What a layout can show; the defaults say that nothing is known."""

    values: Has = Has.UNKNOWN
    statistics: Has = Has.UNKNOWN
    hashes: Has = Has.UNKNOWN
    order: Order = Order.UNKNOWN
    edges: Edges = Edges.UNKNOWN
    stacks: Has = Has.UNKNOWN
    gradients: Has = Has.UNKNOWN
    record: tuple[str, ...] = ()
    """How to record it: three lines at most."""
    limits: tuple[str, ...] = ()
    """Further limits of its numbers: two or three words for the header, a colon, and the meaning, such as "four
    decimals: 0.0000 is less than 0.00005, not zero".
    """
    recorded_in: str = ""
    """Where statistics without values stand: ``statistic.csv``."""
    values_advice: str = ""
    """How to make a recorder write values that it can leave out: ``msprobe: task tensor``."""
    tensors_advice: str = ""
    """How to make the recorder write more inputs and outputs of nodes."""


SHOWS_NOTHING: Final = Shows(Has.NO, Has.NO, Has.NO, Order.NAMES, Edges.NONE, Has.NO, Has.NO)
"""A layout replaces what it has."""
NO_EDGES: Final = "no edges: an origin is the first bad tensor in order, unless the inputs of its node were dumped, too"
EDGES_INFERRED: Final = (
    "edges inferred: from names, nesting and equal tensors; an origin is as sure as the edges that lead to it"
)
ORDER_OF_NAMES: Final = "order of names: which node ran first is not known"
STATISTICS_ONLY: Final = "statistics only: what needs the values of tensors cannot be judged"
NO_VALUES: Final = "no values: neither tensors nor their statistics were recorded; nothing can be judged"
HASHES_ONLY: Final = "hashes only: what needs the values of tensors or their statistics cannot be judged"


def limits_of(shows: Shows, *, graph: bool) -> tuple[str, ...]:
    """The limits of a verdict on a dump: two or three words each, a colon, and the meaning.

    ``graph``: this dump has edges at all.
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
    """One layout of dumps. Readers of other packages are entry points of the group ``tui_debugger.sources``."""

    @property
    def name(self) -> str:
        """The name of the layout, for people."""

    @property
    def looked_for(self) -> str:
        """What it looks for, in words that follow "Looked for"."""

    def recognises(self, path: Path) -> Recognised | None:
        """Returns what it found; None when nothing there is of its layout.

        Looks at few names only, and needs neither NumPy nor time.
        """

    def open(self, path: Path, store: DiskCache | None = None, notices: Sequence[str] = ()) -> Source:
        """Opens what ``recognises`` found at the same path; raises NotADumpError when it is gone.

        ``store`` may remember findings; ``notices`` go into ``RunInfo.notices``.
        """


@runtime_checkable
class QuickReader(Reader, Protocol):
    """A reader for searches through many directories; other readers are asked what they recognise there."""

    def is_dump(self, directory: Path) -> bool:
        """Whether a dump lies in this very directory, by names in it and directly below it."""


@runtime_checkable
class DescribedReader(Reader, Protocol):
    """A reader that tells the abilities of its layout; those of other readers are unknown."""

    @property
    def shows(self) -> Shows:
        """What the layout can show."""


@runtime_checkable
class DescribedSource(Protocol):
    """A source that tells the abilities of this very dump, where they differ from its layout's."""

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
"""The readers of this package, as entry points are written; of equally sure readers the first one opens."""
GROUP: Final = "tui_debugger.sources"
"""Group of entry points of readers in other packages, looked up only where none of ``READERS`` is sure."""


def find_run(path: Path) -> None:
    """Raises NotADumpError where ``open_source`` will; needs neither NumPy nor time."""
    _find(reached(path))


def open_source(path: Path, store: DiskCache | None = None) -> Source:
    """Opens the run at a path: the dump directory, up to two levels above it, or anything inside it: see ``scope``.

    Looks at a few directories only; ``inventory`` later finds what else lies there. ``store`` remembers what
    directories hold, and what was read of files to find their nodes.

    Raises:
        NotADumpError: nothing recognisable, several runs, or a layout that cannot be read.
        TdbgError: the reader of another package failed.
    """
    from tui_debugger.sources.scope import refusal  # needs NumPy, as every source does

    path = reached(path, anew=True)
    chosen, problems = _find(path)
    source = _opened(chosen, path, store, problems)
    with suppress(TypeError):  # a source of another package that cannot be a key
        _OPENED[source] = OpenedAt(path, chosen.found.root, chosen.reader)
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
    """Where ``open_source`` opened a source; None for any other source."""
    return _OPENED.get(source)


def limits(source: Source) -> tuple[str, ...]:
    """The limits of a verdict on an open dump; none for a source without a reader, such as a training."""
    from tui_debugger.sources.base import Capability  # needs NumPy, as every source does

    shows = shown_by(source)
    return () if shows is None else limits_of(shows, graph=Capability.GRAPH in source.capabilities)


def shown_by(source: Source) -> Shows | None:
    """The abilities of an open dump; None for a source without a reader, such as a training."""
    if isinstance(source, DescribedSource):
        return source.shows
    opened = _OPENED.get(source)
    return None if opened is None else shows_of(opened.reader)


def shows_of(reader: Reader) -> Shows:
    shows = reader.shows if isinstance(reader, DescribedReader) else None
    return shows if isinstance(shows, Shows) else Shows()


def word_of(name: str) -> str:
    """A layout's name as people type it: ``tensor-files``."""
    return "-".join(name.casefold().split())


@dataclass(frozen=True, slots=True)
class Format:
    """A layout that can be read."""

    name: str
    looked_for: str
    shows: Shows
    package: str = ""
    """Entry point of a reader of another package; else empty."""


def _format(reader: Reader, package: str = "") -> Format:
    return Format(reader.name, reader.looked_for, shows_of(reader), package)


def known_formats() -> tuple[list[Format], list[str]]:
    """Every layout, and problems of readers of other packages."""
    found = [_format(each) for each in map(own_reader, READERS)]
    problems: list[str] = []
    for name, load in _entry_points():
        try:
            found.append(_format(load(), name))
        except Exception as error:  # noqa: BLE001, PERF203 - see ``_ask_others``
            problems.append(_cannot_be_used(name, error))
    return found, problems


@dataclass(frozen=True, slots=True)
class OpenedAt:
    """Where a source was opened."""

    path: Path
    """The path that was asked for."""
    root: Path
    """The directory of the dump."""
    reader: Reader


@dataclass(frozen=True, slots=True)
class Claim:
    """A reader that recognises something at a path."""

    format: Format
    found: Recognised
    opens: bool
    """Whether this reader opens the path."""


def claims(path: Path) -> tuple[list[Claim], tuple[str, ...]]:
    """Asks every reader about a path: the surest first, which opens it unless it refuses.

    Also returns notices: other dumps, readers that fail. Raises NotADumpError when no reader recognises anything.
    """
    path = reached(path, anew=True)
    search = _asked(path, every=True)
    if search.best is None:
        raise _nothing(path, search)
    best = search.best
    ordered = sorted(search.choices, key=lambda each: (each is not best, -each.found.sureness))
    found = [
        Claim(_format(each.reader, each.foreign), each.found, each is best and each.found.refusal is None)
        for each in ordered
    ]
    closed = _closed_beside(os.path.realpath(path), os.path.realpath(best.found.root))
    return found, (*search.problems, *_beside(best, search.choices), *closed)


def layout_of(path: Path) -> str:
    """The name of the reader that opens a path; raises NotADumpError as ``open_source``."""
    return _find(reached(path))[0].reader.name


def dump_around(path: Path) -> Path | None:
    """The dump that a directory is or lies in; None where none is likely to be."""
    try:
        path = reached(path)
        found = _find(path)[0].found
    except NotADumpError:
        return None
    here = Path(os.path.realpath(path))
    inside = found.sureness > Sureness.POSSIBLE and here.is_relative_to(os.path.realpath(found.root))
    return found.root if inside else None


class Recogniser:
    """All readers, for a search: tells of one directory after the other whether a dump lies in it."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        """Problems of readers of other packages; a reader that fails is not asked again."""
        self._readers: dict[str, Reader] = {text: own_reader(text) for text in READERS}
        for name, load in _entry_points():
            try:
                self._readers[name] = load()
            except Exception as error:  # noqa: BLE001, PERF203 - see ``_ask_others``
                self.problems.append(_cannot_be_used(name, error))

    def layouts_in(self, directory: Path) -> Iterator[str]:
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
    """A reader that recognised a path; ``foreign`` names a reader of another package."""

    reader: Reader
    found: Recognised
    foreign: str = ""


_OPENED: Final[WeakKeyDictionary[object, OpenedAt]] = WeakKeyDictionary()
"""By open source."""


@dataclass(slots=True)
class _ReaderAnswers:
    """The answers of readers about a path."""

    best: _ReaderClaim | None = None
    """The surest so far."""
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
    """Returns the reader that opens a path, and problems of readers of other packages.

    An entry that the system refuses looks like a missing entry, and so like another layout or a second dump: all
    readers are asked again, once. A lasting refusal is counted as unreadable later.
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
    if not opener.exists(path):  # a dump that was found then lies beside it
        raise NotADumpError("It vanished while it was looked at", where=str(path), hint="look whether it is there")
    return search


def _beside(chosen: _ReaderClaim, choices: Sequence[_ReaderClaim]) -> tuple[str, ...]:
    """Returns a notice for each dump that is not part of the opened dump."""
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
    """Notices of entries below a path that cannot be looked at, where only the dump at ``root`` was found."""
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
"""By suffix of files that are not read, the suffix of files that are."""
_LOOKED_AT: Final = 2_000
_LEVELS_BELOW: Final = 3
"""A dump is looked for two levels below a path, and recognised by its entries."""
_SHOWN_CLOSED: Final = 4
_SHOWN_KINDS: Final = 4


def contents_text(path: Path) -> str:
    """The contents of an unrecognised directory by kind; empty where nobody can list it.

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
    module, _, name = text.partition(":")
    return cast("Reader", getattr(import_module(module), name))


def _ask_others(search: _ReaderAnswers, path: Path) -> None:
    """Asks the readers of other packages; a failure of one becomes a problem, and the others are asked."""
    for name, load in _entry_points():
        try:
            search.ask(load(), path, name)
        except Exception as error:  # noqa: BLE001, PERF203 - code of others may raise anything; each fails by itself
            search.problems.append(_cannot_be_used(name, error))


def _cannot_be_used(name: str, error: BaseException) -> str:
    return f"The reader {name} cannot be used: {_words(error)}; update or remove its package"


class _EntryPoint:
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
