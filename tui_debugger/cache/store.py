"""Payloads by (kind, key) that outlive the process, never in the way: whatever happens to the index, work goes on."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tui_debugger.cache import files
from tui_debugger.cache.index import Index
from tui_debugger.cache.place import LIMIT, default_directory, default_limit, why_off


@dataclass(frozen=True, slots=True)
class KindInfo:
    """Entries of one kind: how many, and bytes of their payloads."""

    entries: int
    size: int


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What lies in a store.

    Attributes:
        path: its directory.
        size: bytes of its files.
        limit: bytes it may take.
        kinds: what there is, by kind.
        oldest, newest: when the entries that were not used for the longest and the shortest time were used, in seconds
            since 1970, to about a minute; None when there is none.
        trouble: what is wrong, one line; empty when all is well.
    """

    path: Path
    size: int = 0
    limit: int = LIMIT
    kinds: dict[str, KindInfo] = field(default_factory=dict)
    oldest: float | None = None
    newest: float | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Cleared:
    """What clearing a store did: how many bytes are free now, and why it is not empty (one line), if it is not."""

    freed: int
    trouble: str = ""


class Store:
    """Payloads by (kind, key), for every thread and any number of processes at once.

    Nothing here raises: what cannot be read is not known, what cannot be written is dropped. Another process may have
    written meanwhile, or the disk may have been full, so ``get`` may answer with any payload that was ever put under
    that key: a payload must say itself what it is valid for.
    """

    def __init__(self, path: Path, *, limit: int = LIMIT, note: str = "") -> None:
        """Nothing is opened before the first use, and nothing is made before the first ``put``.

        Args:
            path: a directory for the store alone: it is made for this user only.
            limit: bytes that it may take; payloads that were not used for the longest time go first.
            note: what to say in ``trouble`` while nothing else is wrong.
        """
        self.path = path
        self.limit = limit
        self._index = Index(path)
        self._note = note
        weakref.finalize(self, self._index.close)  # at the end of the process at the latest

    @property
    def trouble(self) -> str:
        """What is wrong, one line; empty when all is well."""
        return self._index.trouble or self._note

    def get(self, kind: str, key: bytes) -> bytes | None:
        """The payload, or None when it is not known."""
        return self.get_many(kind, (key,)).get(key)

    def get_many(self, kind: str, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The payloads that are known."""
        wanted = list(keys)
        if not wanted:
            return {}
        found = self._index.read(lambda database: database.get(kind, wanted))
        if found is None:
            return {}
        payloads, damaged = found
        if damaged:
            self._index.write(lambda database: database.drop(damaged), make=False)
        return payloads

    def put(self, kind: str, key: bytes, payload: bytes) -> None:
        """Remembers a payload."""
        self.put_many(kind, {key: payload})

    def put_many(self, kind: str, payloads: Mapping[bytes, bytes]) -> None:
        """Remembers payloads, all at once or none; not those that alone are larger than the store may be."""
        if payloads:
            self._index.write(lambda database: database.put(kind, payloads, self.limit), make=True)

    def info(self) -> StoreInfo:
        """What lies in it."""
        rows = self._index.read(lambda database: database.kinds()) or []
        return StoreInfo(
            self.path,
            size=files.taken(self.path),
            limit=self.limit,
            kinds={row.kind: KindInfo(row.entries, row.size) for row in rows},
            oldest=min((row.oldest for row in rows), default=None),
            newest=max((row.newest for row in rows), default=None),
            trouble=self.trouble,
        )

    def clear(self) -> Cleared:
        """Forgets everything, of other versions too, and tries again what did not work before."""
        return Cleared(*self._index.clear())

    def close(self) -> None:
        """Lets go of the file; the next use opens it again. Happens by itself at the end of the process."""
        self._index.close()


def default_store(dump: Path | None = None) -> Store | None:
    """The store of this user. Nothing is opened, read or written yet.

    It lies in ``index`` below ``$TDBG_CACHE_DIR``, else ``$XDG_CACHE_HOME/tdbg``, else ``~/.cache/tdbg``, and may take
    ``$TDBG_CACHE_LIMIT`` bytes (``500M``, ``2 GiB``; 1 GB when nothing is said).

    Args:
        dump: what is looked at. A store never lies in a dump, whatever the environment says.

    Returns:
        None when there is none: switched off (one of the variables is empty or 0), no home directory, a place inside
        the dump, a Python without sqlite3.
    """
    directory, _ = default_directory(dump)
    if directory is None or why_off():
        return None
    limit, note = default_limit()
    return Store(directory, limit=limit, note=note)
