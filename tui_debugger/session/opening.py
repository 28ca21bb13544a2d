"""Opens a dump with everything a session of its own needs: the index of earlier sessions, and workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tui_debugger.cache.store import default_store
from tui_debugger.session.session import Session
from tui_debugger.session.watchpoints import WatchpointStore
from tui_debugger.sources.joined import open_sources
from tui_debugger.sources.registry import open_source
from tui_debugger.stats.workers import Workers


def open_dump(
    path: Path,
    *,
    workers: Workers | None = None,
    remember: bool = True,
    keep_watchpoints: bool = False,
    source_map: Sequence[tuple[str, str]] = (),
    more: Sequence[Path] = (),
) -> Session:
    """A session on the dump at a path, which the caller closes.

    Args:
        path: see ``sources.registry.open_source``.
        workers: who measures; None: as many threads as this process may use cores, once that is worth it.
        remember: use the index of statistics in the user's cache directory.
        keep_watchpoints: restore the watchpoints of the last session with this dump, and keep those of this one.
        source_map: see ``Session``.
        more: directories with further ranks of the same run.

    Raises:
        TdbgError: two of the directories have the same rank.
        NotADumpError: nothing recognisable, several runs, or a layout that cannot be read.
    """
    index = default_store(path) if remember else None
    source = open_sources((path, *more), index) if more else open_source(path, index)
    store = WatchpointStore(source.info.path) if keep_watchpoints else None
    return Session(source, store=store, source_map=source_map, workers=workers or Workers(), index=index)
