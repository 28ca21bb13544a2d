"""What a layout has to offer so that its dumps can be opened. Light: it is imported before the first frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tui_debugger.cache.store import DiskCache
    from tui_debugger.errors import NotADumpError
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
    """What a reader found at a path.

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
        """What people call the layout."""

    @property
    def looked_for(self) -> str:
        """What it looks for, in words that follow "Looked for"."""

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
