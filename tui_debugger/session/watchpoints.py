"""The watchpoint list of a session and where it is kept between sessions."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from tui_debugger.errors import BadWatchpointError
from tui_debugger.model import NodeSelection, Watchpoint
from tui_debugger.session.watch_file import format_watch_file, parse_watch_file
from tui_debugger.watch.conditions import validate


class WatchpointStore:
    """Keeps a dump's watchpoint list in the user's state directory, one small file per run.

    It is a watchpoint file with two keys more (``run``, ``offered``), so that ``--watch-file`` takes it as it is.
    Losing it loses nothing but convenience, so a state directory that cannot be read or written is no error:
    ``problem`` says what went wrong.
    """

    def __init__(self, run_path: str, directory: Path | None = None) -> None:
        """``directory`` is for tests; the default is ``$XDG_STATE_HOME/tdbg`` (``~/.local/state/tdbg``)."""
        base = directory or Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "tdbg"
        real = os.path.realpath(run_path)
        digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
        self.path = base / f"watch-{digest}.toml"
        self.run_path = real
        self.problem = ""
        self._spoilt = False

    def load(self) -> tuple[tuple[Watchpoint, ...], bool]:
        """The stored watchpoints and whether the recommended set was already offered."""
        try:
            found = parse_watch_file(self.path.read_bytes(), str(self.path), self._dropped)
        except FileNotFoundError:
            return (), False
        except (OSError, BadWatchpointError) as error:
            self.problem = f"the saved watchpoints could not be read ({_one_line(error)})"
            self._spoilt = True
            return (), False
        return found.watchpoints, found.offered

    def _dropped(self, error: BadWatchpointError) -> None:
        self.problem = f"a saved watchpoint was dropped ({_one_line(error)})"
        self._spoilt = True

    def save(self, watchpoints: Iterable[Watchpoint], offered: bool) -> None:
        """Writes the list atomically; a failure is kept in ``problem``.

        A file that could not be used whole is somebody's work: it is put aside as ``.old``, not overwritten.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=self.path.parent, suffix=".tmp", delete=False
            ) as file:
                file.write(format_watch_file(watchpoints, {"run": self.run_path, "offered": offered}))
            if self._spoilt:
                self.path.replace(self.path.with_suffix(".old"))
                self._spoilt = False
            Path(file.name).replace(self.path)
        except OSError as error:
            self.problem = f"the watchpoints could not be saved ({error})"


def _one_line(error: Exception) -> str:
    return f"{error.what}: {error.where}" if isinstance(error, BadWatchpointError) else str(error)


class WatchpointList:
    """The watchpoints of one session, in id order. Safe to use from several threads.

    Attributes:
        version: grows with every change that can change a result; results carry the version they had.
    """

    def __init__(self, store: WatchpointStore | None = None) -> None:
        """Restores what the store has kept."""
        self._lock = threading.RLock()
        self._store = store
        self._items: dict[int, Watchpoint] = {}
        self._next = 1
        self._offered = False
        self.version = 0
        if store is not None:
            items, self._offered = store.load()
            for item in items:
                self._items[item.id] = item
                self._next = max(self._next, item.id + 1)

    def __len__(self) -> int:
        """Number of watchpoints, disabled ones included."""
        return len(self._items)

    @property
    def problem(self) -> str:
        """Why keeping the list failed, or empty."""
        return self._store.problem if self._store else ""

    @property
    def offered(self) -> bool:
        """Whether the recommended set was offered (and answered) for this run before."""
        return self._offered

    @offered.setter
    def offered(self, value: bool) -> None:
        with self._lock:
            self._offered = value
            self._keep()

    def items(self) -> tuple[Watchpoint, ...]:
        """All watchpoints in id order."""
        with self._lock:
            return tuple(self._items[key] for key in sorted(self._items))

    def enabled(self) -> tuple[Watchpoint, ...]:
        """The watchpoints that a check uses."""
        return tuple(w for w in self.items() if w.enabled)

    def snapshot(self) -> tuple[int, tuple[Watchpoint, ...]]:
        """The version, and the enabled watchpoints that it means."""
        with self._lock:
            return self.version, self.enabled()

    def get(self, watchpoint_id: int) -> Watchpoint | None:
        """One watchpoint, or None."""
        return self._items.get(watchpoint_id)

    def add(
        self,
        condition: str,
        params: Mapping[str, float | bool] | Iterable[tuple[str, float | bool]] = (),
        selection: NodeSelection | None = None,
        name: str = "",
    ) -> Watchpoint:
        """Creates a watchpoint with the next id.

        Raises:
            BadWatchpointError: a rule of the condition table is broken.
        """
        with self._lock:
            made = Watchpoint(
                id=self._next,
                condition=condition,
                params=validate(condition, dict(params)),
                selection=selection or NodeSelection(),
                name=name,
            )
            self._next += 1
            self._items[made.id] = made
            self._changed()
            return made

    def add_missing(self, watchpoints: Iterable[Watchpoint]) -> int:
        """Adds those whose condition, parameters and nodes the list does not hold yet; returns how many.

        A disabled one is added disabled.

        Raises:
            BadWatchpointError: a rule of the condition table is broken.
        """
        with self._lock:
            present = {(w.condition, w.params, w.selection) for w in self.items()}
            before = len(self)
            for each in watchpoints:
                rule = (each.condition, each.params, each.selection)
                if rule not in present:
                    present.add(rule)
                    added = self.add(*rule, each.name)
                    if not each.enabled:
                        self.set_enabled(added.id, False)
            return len(self) - before

    def replace(self, watchpoint: Watchpoint) -> Watchpoint:
        """Puts an edited watchpoint in the place of the one with its id.

        Raises:
            BadWatchpointError: unknown id, or a rule of the condition table is broken.
        """
        with self._lock:
            if watchpoint.id not in self._items:
                raise BadWatchpointError(
                    f"there is no watchpoint {watchpoint.id}", hint="it was deleted; create a new one"
                )
            checked = dataclasses.replace(watchpoint, params=validate(watchpoint.condition, dict(watchpoint.params)))
            if checked != self._items[watchpoint.id]:
                self._items[watchpoint.id] = checked
                self._changed()
            return checked

    def set_enabled(self, watchpoint_id: int, enabled: bool) -> None:
        """Switches one watchpoint on or off; unknown ids are ignored."""
        with self._lock:
            current = self._items.get(watchpoint_id)
            if current is not None and current.enabled != enabled:
                self._items[watchpoint_id] = dataclasses.replace(current, enabled=enabled)
                self._changed()

    def delete(self, watchpoint_id: int) -> None:
        """Deletes one watchpoint; its id is not used again in this session."""
        with self._lock:
            if self._items.pop(watchpoint_id, None) is not None:
                self._changed()

    def clear(self) -> None:
        """Deletes all watchpoints."""
        with self._lock:
            if self._items:
                self._items.clear()
                self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._keep()

    def _keep(self) -> None:
        if self._store is not None:
            self._store.save(self.items(), self._offered)
