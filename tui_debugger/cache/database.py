"""One index file: an SQLite database of payloads by (kind, key), which drops the least recently used ones first.

It has a rollback journal, no write-ahead log. Measured on 50 payloads of 150 KB the log reads no faster and writes
slower; above all the journal works on network file systems, where many home directories lie and several machines share
an index, and needs no shared memory. Nothing is synced: a payload that a power cut damaged fails its checksum, which
covers kind and key as well.
"""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tui_debugger.cache.files import VERSION, DamagedIndexError

APPLICATION: Final = 0x54444247
""""TDBG", in the header of the file."""
PAGE: Final = 1 << 14
LARGEST: Final = 500_000_000
"""Limit of a payload in bytes: SQLite takes 10**9 for a row."""
BATCH: Final = 32_000_000
"""Bytes that one ``put`` may drop beyond the room for its entry: an index reaches a lowered limit little by little."""
RECENT: Final = 60
"""Seconds during which a used payload counts as just used."""

_TABLES = (
    # Two tables: marking a payload as used must not rewrite it.
    """CREATE TABLE entries (
        id INTEGER PRIMARY KEY, kind TEXT NOT NULL, key BLOB NOT NULL, used INTEGER NOT NULL, size INTEGER NOT NULL,
        checksum INTEGER NOT NULL, UNIQUE (kind, key))""",
    "CREATE INDEX entries_used ON entries (used)",
    "CREATE TABLE payloads (id INTEGER PRIMARY KEY, payload BLOB NOT NULL)",
)
_GET = "SELECT id, used, checksum, payload FROM entries JOIN payloads USING (id) WHERE kind = ? AND key = ?"
_ROW = 64
"""Approximate bytes of an entry besides its key and payload."""


@dataclass(frozen=True, slots=True)
class KindRow:
    """Entries of one kind: number, payload bytes, earliest and latest last use."""

    kind: str
    entries: int
    size: int
    oldest: int
    newest: int


class Database:
    """An open index. Not thread-safe; methods may raise ``sqlite3.Error`` and leave no transaction behind."""

    def __init__(self, path: Path, wait: float) -> None:
        """Opens an index, or raises DamagedIndexError or OSError (gone); waits ``wait`` seconds for writers."""
        found = path.lstat()
        self._file = (found.st_dev, found.st_ino)
        self.path = path
        self._used: dict[int, int] = {}
        try:
            self._open(wait)
        except sqlite3.OperationalError:
            path.lstat()  # removed before the opening: no trouble with the file system
            raise

    def _open(self, wait: float) -> None:
        self._connection = _connected(self.path, wait)
        try:
            if self._number("application_id") != APPLICATION or self._number("user_version") != VERSION:
                msg = "not an index of this version"
                raise DamagedIndexError(msg)
            # TRUNCATE: one file less to make and remove, with network file systems in mind.
            self._connection.execute("PRAGMA journal_mode = TRUNCATE").fetchall()
        except BaseException:
            self._connection.close()
            raise

    @staticmethod
    def create(path: Path) -> None:
        """Fills an empty file that no other process knows."""
        connection = _connected(path, 0)
        try:
            for pragma in (f"page_size = {PAGE}", "auto_vacuum = INCREMENTAL", "journal_mode = OFF"):
                connection.execute(f"PRAGMA {pragma}").fetchall()
            connection.execute("BEGIN EXCLUSIVE")
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("COMMIT")
        finally:
            connection.close()

    def is_there(self) -> bool:
        """Whether the file still has its name: others may have removed it."""
        try:
            found = self.path.lstat()
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._file

    def wait(self, seconds: float) -> None:
        self._connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")

    def get(self, kind: str, keys: Iterable[bytes]) -> tuple[dict[bytes, bytes], list[int]]:
        """The known payloads, and the numbers of damaged ones."""
        found: dict[bytes, bytes] = {}
        damaged = []
        now = int(time.time())
        with self._transaction("BEGIN"):
            for key in keys:
                row = self._connection.execute(_GET, (kind, key)).fetchone()
                if row is None:
                    continue
                number, used, checksum, payload = row
                if not isinstance(payload, bytes) or _checksum(kind, key, payload) != checksum:
                    damaged.append(number)
                    continue
                found[key] = payload
                if not isinstance(used, int) or abs(now - used) >= RECENT:  # clocks go backwards, too
                    self._used[number] = now
        return found, damaged

    def drop(self, numbers: Iterable[int]) -> None:
        with self._transaction("BEGIN IMMEDIATE"):
            self._drop(numbers)

    def put(self, kind: str, payloads: Mapping[bytes, bytes], limit: int) -> None:
        """Writes the payloads that fit in one transaction; keeps the file below ``limit`` bytes, or shrinks it."""
        now = int(time.time())
        with self._transaction("BEGIN IMMEDIATE"):
            self._mark_used()
            for key in payloads:
                row = self._connection.execute("SELECT id FROM entries WHERE kind = ? AND key = ?", (kind, key))
                self._drop(number for (number,) in row.fetchall())
            for key, payload in self._fitting(payloads, limit):
                fields = (kind, key, now, len(payload), _checksum(kind, key, payload))
                number = self._connection.execute(
                    "INSERT INTO entries (kind, key, used, size, checksum) VALUES (?, ?, ?, ?, ?)", fields
                ).lastrowid
                self._connection.execute("INSERT INTO payloads (id, payload) VALUES (?, ?)", (number, payload))
        self._shrink(limit)

    def kinds(self) -> list[KindRow]:
        rows = self._connection.execute(
            "SELECT kind, COUNT(*), SUM(size), MIN(used), MAX(used) FROM entries GROUP BY kind ORDER BY kind"
        )
        found = [KindRow(*row) for row in rows.fetchall()]
        for row in found:
            if not all(isinstance(number, int) for number in (row.size, row.oldest, row.newest)):
                msg = "text where there were numbers"
                raise DamagedIndexError(msg)
        return found

    def close(self) -> None:
        """Closes the file; marks used payloads if that is possible at once."""
        with suppress(sqlite3.Error):  # only the order of dropping is lost
            if self._used and self.is_there():
                self.wait(0)
                with self._transaction("BEGIN IMMEDIATE"):
                    self._mark_used()
        with suppress(sqlite3.Error):
            self._connection.close()

    def _fitting(self, payloads: Mapping[bytes, bytes], limit: int) -> list[tuple[bytes, bytes]]:
        """Makes room for payloads; returns those that fit."""
        room = limit - _pages(1) * len(_TABLES) * 2
        fitting = []
        needed = 0
        for key, payload in payloads.items():
            takes = _taken(key, payload)
            if needed + takes <= room and len(payload) <= LARGEST:
                fitting.append((key, payload))
                needed += takes
        self._make_room(max(limit, self._taken() - BATCH) - needed)
        return fitting

    def _make_room(self, most: int) -> None:
        excess = self._taken() - most
        while excess > 0:
            numbers = []
            rows = self._connection.execute(
                "SELECT id, CAST(size AS INTEGER) FROM entries ORDER BY used, id LIMIT 1000"
            ).fetchall()
            for number, size in rows:
                numbers.append(number)
                excess -= size
                if excess <= 0:
                    break
            self._drop(numbers)
            excess = self._taken() - most  # sizes are rounded to pages: look again
            if not rows:
                return

    def _drop(self, numbers: Iterable[int]) -> None:
        rows = [(number,) for number in numbers]
        self._connection.executemany("DELETE FROM payloads WHERE id = ?", rows)
        self._connection.executemany("DELETE FROM entries WHERE id = ?", rows)

    def _mark_used(self) -> None:
        rows = [(now, number) for number, now in self._used.items()]
        self._connection.executemany("UPDATE entries SET used = ? WHERE id = ?", rows)
        self._used.clear()

    def _shrink(self, limit: int) -> None:
        """Gives pages back to the system. Below the limit they are kept for the next payloads."""
        excess = min(self._number("page_count") * PAGE - limit, BATCH)
        if excess > 0:
            # One step of this statement frees one page; ``execute`` takes one only, as it has no columns.
            self._connection.executescript(f"PRAGMA incremental_vacuum({_pages(excess) // PAGE})")

    def _taken(self) -> int:
        return (self._number("page_count") - self._number("freelist_count")) * PAGE

    def _number(self, pragma: str) -> int:
        (number,) = self._connection.execute(f"PRAGMA {pragma}").fetchone()
        return int(number)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        try:
            self._connection.execute(begin)
            yield
            self._connection.execute("COMMIT")
        except BaseException:  # Ctrl-C as well
            with suppress(sqlite3.Error):  # which has rolled back by itself on a full disk
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            raise


def _connected(path: Path, wait: float) -> sqlite3.Connection:
    connection: Any = sqlite3.connect(
        f"{path.as_uri()}?mode=rw",  # never makes a file
        uri=True,
        timeout=wait,
        isolation_level=None,  # transactions begin and end where this file says so
        check_same_thread=False,  # the caller ensures one use at a time
    )
    try:
        for pragma in ("synchronous = OFF", "temp_store = MEMORY", "trusted_schema = OFF", "cache_size = -4096"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
    except BaseException:
        connection.close()
        raise
    found: sqlite3.Connection = connection
    return found


def _checksum(kind: str, key: bytes, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(kind.encode() + b"\0" + key))


def _taken(key: bytes, payload: bytes) -> int:
    """Approximate bytes that an entry adds to the file: a large payload fills its own pages."""
    size = len(payload) + 2 * len(key) + _ROW
    return size if size < PAGE // 4 else _pages(size)


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE
