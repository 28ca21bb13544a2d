"""The one door: a path in, a source out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tui_debugger.cache.store import DiskCache
    from tui_debugger.sources.base import Source


def find_run(path: Path) -> None:
    """Only looks whether ``open_source`` will find a run; needs neither NumPy nor time.

    Raises:
        NotADumpError: as ``open_source``.
    """
    from tui_debugger.sources.mindspore.layout import find_dump

    find_dump(path)


def open_source(path: Path, store: DiskCache | None = None) -> Source:
    """Opens the run at a path: the dump directory, up to two levels above it, or anything inside it.

    Looks at a few directories only; nothing is listed or read before it is asked for.

    Args:
        path: where to look.
        store: remembers what directories hold, and what was read of files to find their nodes, for the next time.

    Raises:
        NotADumpError: nothing recognisable, several runs, or a layout that cannot be read.
    """
    from tui_debugger.sources.mindspore.source import open_mindspore

    return open_mindspore(path, store)
