"""Watches a dump that is still being written and reports changes."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tui_debugger.errors import TdbgError

if TYPE_CHECKING:
    from tui_debugger.sources.base import Changes

_LOG = logging.getLogger(__name__)

_SILENT_FILE_SYSTEMS = re.compile(
    r"nfs\d?|cifs|smb\w*|lustre|gpfs|beegfs|ceph|glusterfs|afs|9p|virtiofs|vboxsf|drvfs|panfs|pvfs2|orangefs|dpc|fuse\..*"
)
"""File systems on which another host (or the host of a container) writes without an event here."""


class Followed(Protocol):
    """What can be followed: a source, or a session, which also forgets what the changes make stale."""

    def refresh(self) -> Changes:
        """Looks for changes on disk."""

    def watch_paths(self) -> Sequence[Path]:
        """Directories whose changes matter; some may have vanished."""


class DiskFollower:
    """Calls ``source.refresh`` when something happens on disk, in a daemon thread of its own.

    Events come from watchfiles on the directories that the source names, never recursively: a step directory can hold a
    million files. Without events (network file systems, no inotify watches left, vanished directories) ``refresh`` is
    called every ``interval``: it looks at directory times only, which is cheaper than a general watcher's polling.
    """

    def __init__(
        self,
        source: Followed,
        on_change: Callable[[Changes], None],
        *,
        interval: float = 1.0,
        heartbeat: float = 10.0,
        polling: bool | None = None,
    ) -> None:
        """Nothing starts before ``start``.

        Args:
            source: what to refresh.
            on_change: called in the follower's thread with changes that are not empty; its exceptions are logged only.
            interval: seconds that events are collected before a refresh, and between polls.
            heartbeat: seconds after which a refresh happens without an event, because events get lost.
            polling: True never uses events, False always tries, None decides by file system.
        """
        self._source = source
        self._on_change = on_change
        self._interval = interval
        self._heartbeat = heartbeat
        self._polling = polling
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name="tdbg-follow", daemon=True)
            self._thread.start()

    def stop(self, timeout: float = 2.0) -> None:
        """Ends the thread and waits for it, at most ``timeout`` seconds. Idempotent; not for ``on_change``."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _run(self) -> None:
        while not self._stop.is_set():
            paths = self._paths()
            polling = self._polling if self._polling is not None else any(map(sends_no_events, one_a_device(paths)))
            if polling or not paths or not self._watch(paths):
                self._stop.wait(self._interval)
                self._refresh()

    def _paths(self) -> tuple[Path, ...]:
        try:
            return tuple(path for path in self._source.watch_paths() if path.is_dir())
        except (TdbgError, OSError):
            return ()

    def _watch(self, paths: tuple[Path, ...]) -> bool:
        """Refreshes on events until the watched directories change or ``stop``; False when events cannot be had."""
        from watchfiles import watch

        milliseconds = max(int(self._interval * 1000), 50)
        try:
            for _ in watch(
                *paths,
                watch_filter=None,
                debounce=milliseconds,
                step=min(milliseconds, 50),
                stop_event=self._stop,
                rust_timeout=max(int(self._heartbeat * 1000), 50),
                yield_on_timeout=True,
                raise_interrupt=False,
                recursive=False,
            ):
                self._refresh()
                if self._paths() != paths:
                    return True
        except (OSError, RuntimeError, ValueError) as problem:
            _LOG.info("no file system events, polling instead: %s", problem)
            return False
        return True

    def _refresh(self) -> None:
        if self._stop.is_set():
            return
        try:
            changes = self._source.refresh()
            if changes and not self._stop.is_set():
                self._on_change(changes)
        except Exception:  # noqa: BLE001 - a follower must outlive whatever a callback or a dying disk does
            _LOG.exception("refresh failed")


def one_a_device(paths: Sequence[Path]) -> list[Path]:
    """One path of each file system, since ``sends_no_events`` reads a table for each path."""
    found: dict[int, Path] = {}
    for path in paths:
        with suppress(OSError):  # it just vanished
            found.setdefault(path.stat().st_dev, path)
    return list(found.values())


def sends_no_events(path: Path, mounts: Path = Path("/proc/mounts")) -> bool:
    """Whether a path lies on a file system that sends no (or not all) events to this machine.

    ``mounts`` is the kernel's mount table; systems without one count as sending events.
    """
    try:
        lines = mounts.read_text("utf-8", "surrogateescape").splitlines()
        real = str(path.resolve())
    except (OSError, RuntimeError):  # no such table; a loop of links
        return False
    best, kind = "", ""
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[1])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return bool(_SILENT_FILE_SYSTEMS.fullmatch(kind))
