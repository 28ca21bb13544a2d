"""The one door: a path in, a source out. Light: it is imported before the first frame.

Every layout has a reader here. Other packages bring theirs as entry points.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast, runtime_checkable

from tui_debugger.errors import NotADumpError, TdbgError

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
    """

    root: Path
    sureness: Sureness
    refusal: NotADumpError | None = None


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


READERS: Final = (
    "tui_debugger.sources.mindspore.layout:READER",
    "tui_debugger.sources.msprobe.layout:READER",
    "tui_debugger.sources.sglang.layout:DUMPER",
    "tui_debugger.sources.sglang.layout:PASSES",
    "tui_debugger.sources.megatron.layout:READER",
    "tui_debugger.sources.logs.layout:TORCHTITAN_READER",
    "tui_debugger.sources.logs.layout:DEBUG_MODE_READER",
    "tui_debugger.sources.logs.layout:TE_LOGS_READER",
    "tui_debugger.sources.logs.layout:MONITOR_READER",
    "tui_debugger.sources.logs.layout:TREND_READER",
    "tui_debugger.sources.tensor_files.layout:READER",
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
    _find(path)


def open_source(path: Path, store: DiskCache | None = None) -> Source:
    """Opens the run at a path: the dump directory, up to two levels above it, or anything inside it.

    Looks at a few directories only; nothing is listed or read before it is asked for.

    Args:
        path: where to look.
        store: remembers what directories hold, and what was read of files to find their nodes, for the next time.

    Raises:
        NotADumpError: nothing recognisable, several runs, or a layout that cannot be read.
        TdbgError: the reader of another package failed.
    """
    chosen, problems = _find(path)
    if not chosen.foreign:
        return chosen.reader.open(path, store, problems)
    try:
        return chosen.reader.open(path, store, problems)
    except TdbgError:
        raise
    except Exception as error:
        raise TdbgError(
            f"the reader {chosen.foreign} failed: {_words(error)}",
            where=str(path),
            hint="update or remove the package that brings it",
        ) from error


def layout_of(path: Path) -> str:
    """Returns the name of the reader that opens a path.

    Raises:
        NotADumpError: as ``open_source``.
    """
    return _find(path)[0].reader.name


def dump_around(path: Path) -> Path | None:
    """Returns the dump that a directory is or lies in; None where none is likely to be."""
    try:
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
        self._readers: dict[str, Reader] = {text: _own_reader(text) for text in READERS}
        for name, load in _entry_points():
            try:
                self._readers[name] = load()
            except Exception as error:  # noqa: BLE001, PERF203 - see ``_ask_others``
                self.problems.append(_cannot_be_used(name, error))

    def layout_in(self, directory: Path) -> str:
        """Returns the name of the layout of the dump in this very directory; empty where there is none."""
        for name, reader in list(self._readers.items()):
            try:
                if _lies_in(reader, directory):
                    return reader.name
            except Exception as error:  # noqa: PERF203 - see ``_ask_others``
                if name in READERS:
                    raise
                self.problems.append(_cannot_be_used(name, error))
                del self._readers[name]
        return ""


def _lies_in(reader: Reader, directory: Path) -> bool:
    if isinstance(reader, QuickReader):
        return reader.is_dump(directory)
    found = reader.recognises(directory)
    if found is None or found.refusal is not None or found.sureness is Sureness.POSSIBLE:
        return False
    return os.path.realpath(found.root) == os.path.realpath(directory)


@dataclass(frozen=True, slots=True)
class _Choice:
    """A reader that recognised a path; ``foreign`` names one of another package."""

    reader: Reader
    found: Recognised
    foreign: str = ""


@dataclass(slots=True)
class _Search:
    """The answers of readers about a path.

    Attributes:
        best: the surest so far.
        looked_for: by all of them.
        problems: what is wrong with readers of other packages.
    """

    best: _Choice | None = None
    looked_for: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def sure(self) -> bool:
        return self.best is not None and self.best.found.sureness is Sureness.SURE

    def ask(self, reader: Reader, path: Path, foreign: str = "") -> None:
        found = reader.recognises(path)
        self.looked_for.append(reader.looked_for)
        if found is not None and (self.best is None or found.sureness > self.best.found.sureness):
            self.best = _Choice(reader, found, foreign)


def _find(path: Path) -> tuple[_Choice, tuple[str, ...]]:
    """Returns who opens a path, and what is wrong with readers of other packages."""
    if not os.path.exists(path):  # noqa: PTH110 - never raises
        raise NotADumpError(
            "No such file or directory, or no right to read it", where=str(path), hint="name a dump directory"
        )
    search = _Search()
    for text in READERS:
        search.ask(_own_reader(text), path)
        if search.sure:
            break
    if not search.sure:
        _ask_others(search, path)
    problems = tuple(search.problems)
    if search.best is None:
        raise NotADumpError(
            f"No dump found. Looked for {'; '.join(search.looked_for)} (here, up to two levels below, and above)"
            + "".join(f". {each}" for each in problems),
            where=str(path),
            hint="name the directory that training dumped to (the path in its dump configuration) or one inside it",
        )
    if search.best.found.refusal is not None:
        raise search.best.found.refusal
    return search.best, problems


def _own_reader(text: str) -> Reader:
    module, _, name = text.partition(":")
    return cast("Reader", getattr(import_module(module), name))


def _ask_others(search: _Search, path: Path) -> None:
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
