"""Nothing that happens to an index gets in the way: a miss, a rebuilt file, or none at all, and never an exception."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cache.stores import RECORDS, index_file, said, started, works
from tests.thorough import few
from tui_debugger.cache import DiskCache
from tui_debugger.cache.database import Database
from tui_debugger.cache.files import contradicts
from tui_debugger.cache.store import STRIKES

KEY = b"key"


# -- damaged files ---------------------------------------------------------------------------------


def _random(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


def _zero_length(path: Path) -> None:
    os.truncate(path, 0)


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _header_only(path: Path) -> None:
    os.truncate(path, 100)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "file").touch()


def _link(path: Path) -> None:
    other = path.with_name("elsewhere")
    path.rename(other)
    path.symlink_to(other)


def _gone(path: Path) -> None:
    path.unlink()


def _directory_gone(path: Path) -> None:
    shutil.rmtree(path.parent)


def _of_another_program(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE entries (secret)")
    connection.close()


def _without_a_table(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE payloads")
    connection.close()


def _with_text_for_numbers(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE entries SET used = 'yesterday', size = 'large', checksum = 'fine'")
    connection.close()


def _header(at: int, value: int) -> Callable[[Path], None]:
    def harm(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([value]))

    harm.__name__ = f"_byte_{at}_{value}"
    return harm


HARM = [
    _header(18, 7),  # "this format can only be read"
    _header(60, 9),  # "of another version"
    _header(30, 1),  # "of so many pages"
    _random,
    _zero_length,
    _cut,
    _header_only,
    _directory,
    _link,
    _gone,
    _directory_gone,
    _of_another_program,
    _without_a_table,
    _with_text_for_numbers,
]


@pytest.mark.covering
@pytest.mark.parametrize("opened", [True, False], ids=["while open", "between runs"])
@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("first", ["get", "put", "info"])
def test_a_damaged_index_is_rebuilt_at_once(
    store: DiskCache, harm: Callable[[Path], None], opened: bool, first: str
) -> None:
    store.put_many("records", RECORDS)
    if not opened:
        store.close()
    harm(index_file(store))
    if first == "get":
        found = store.get_many("records", RECORDS)
        assert all(found[key] == RECORDS[key] for key in found)
    elif first == "info":
        assert store.info().path == store.path
    assert works(store)
    files = [path for path in store.path.glob("index-*") if path.is_file() and not path.is_symlink()]
    assert len(files) == 2, "the index and its journal; nothing stays of what was damaged"


@pytest.mark.parametrize("step", few(range(7), 3))
def test_no_damaged_byte_makes_another_payload(store: DiskCache, step: int) -> None:
    store.put_many("records", RECORDS)
    store.close()
    path = index_file(store)
    whole = path.read_bytes()
    known = set()
    for at in [*range(step, 200, 7), *range(200 + step, len(whole), 331)]:
        damaged = bytearray(whole)
        damaged[at] ^= 0x81
        path.write_bytes(damaged)
        other = DiskCache(store.path)
        found = other.get_many("records", RECORDS)
        assert {key: RECORDS[key] for key in found} == found, at
        other.put("records", KEY, b"new")
        assert other.get("records", KEY) in (b"new", None)
        other.info()
        known.add(len(found))
        other.close()
        for each in store.path.iterdir():
            each.unlink()
    assert len(known) > 1, "some of it did harm, and some did not"


def test_a_damaged_payload_is_missing_and_goes(store: DiskCache) -> None:
    store.put_many("records", RECORDS)
    store.close()
    path = index_file(store)
    key = max(RECORDS)
    content = path.read_bytes()
    place = content.index(RECORDS[key][:8000]) + 4000
    path.write_bytes(content[:place] + b"\xff" + content[place + 1 :])
    assert store.get_many("records", RECORDS) == {other: RECORDS[other] for other in RECORDS if other != key}
    assert store.info().kinds["records"].entries == len(RECORDS) - 1
    assert index_file(store) == path, "one bad payload costs one payload"


def test_payloads_that_changed_places_are_missing(store: DiskCache) -> None:
    store.put_many("records", {b"a": b"1" * 100, b"b": b"2" * 100})
    store.close()
    with sqlite3.connect(index_file(store)) as connection:
        connection.execute("UPDATE payloads SET id = 3 - id + 100")
        connection.execute("UPDATE payloads SET id = id - 100")
    connection.close()
    assert store.get_many("records", [b"a", b"b"]) == {}


# -- no room, no permission ------------------------------------------------------------------------


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[DiskCache], None]]:
    """Makes the disk of a store full: SQLite says so when the file would grow."""

    def fill(store: DiskCache) -> None:
        store.put("records", KEY, b"before")
        plain = Database.put

        def put(database: Database, *arguments: object) -> None:
            pages = database._number("page_count")
            database._connection.execute(f"PRAGMA max_page_count = {pages}")
            plain(database, *arguments)  # type: ignore[arg-type] # passed on as they came

        monkeypatch.setattr(Database, "put", put)
        monkeypatch.setattr("tui_debugger.cache.files.room", lambda _: 0)

    return fill


def test_on_a_full_disk_writes_are_dropped_and_reads_go_on(
    store: DiskCache, full: Callable[[DiskCache], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    full(store)
    for _ in range(STRIKES + 2):
        store.put("records", b"large", bytes(500_000))
        assert store.get("records", KEY) == b"before"
        assert store.get("records", b"large") is None
    assert store.trouble == "database or disk is full"
    assert store.info().trouble == store.trouble
    monkeypatch.undo()
    store.put("records", b"late", b"1")
    assert store.get("records", b"late") is None, "writing is off for this session"
    assert works(DiskCache(store.path)), "and on again in the next one"


def test_a_disk_with_room_again_is_used_again(
    store: DiskCache, full: Callable[[DiskCache], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    full(store)
    store.put("records", b"large", bytes(500_000))
    assert store.trouble
    monkeypatch.undo()
    assert works(store)


def test_a_file_that_may_not_grow(store: DiskCache) -> None:
    program = """
import resource
store.put("records", b"small", b"1")
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
for _ in range(5):
    store.put("records", b"large", bytes(1_000_000))
    assert store.get("records", b"large") is None
print(bool(store.trouble), store.get("records", b"small") == b"1")
"""
    assert said(started(store, program)) == "True True"
    assert store.get("records", b"small") == b"1"
    assert works(store)


def test_a_file_that_may_not_be_made(store: DiskCache) -> None:
    program = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for _ in range(5):
    store.put("records", b"key", b"1")
    assert store.get("records", b"key") is None
print(bool(store.trouble), sorted(path.name for path in store.path.iterdir()))
"""
    assert said(started(store, program)) == "True []", "no half-made file stays"
    assert works(store)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("harm", ["of another user", "read-only"])
def test_without_permission_it_is_off(store: DiskCache, harm: str) -> None:
    store.put("records", KEY, b"secret")
    store.close()
    if harm == "read-only":
        for path in (store.path, *store.path.iterdir()):
            os.chown(path, 65534, 65534)
            path.chmod(0o500 if path.is_dir() else 0o400)
    program = """
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for _ in range(5):
    store.put("records", b"other", b"1")
    store.get("records", b"other")
cleared = store.clear()
print(store.get("records", b"other"), bool(cleared.trouble), cleared.freed)
"""
    # Everybody may enter pytest's directories here, and nobody but the store says no.
    for parent in store.path.parents:
        if parent.stat().st_mode & 0o005 != 0o005:
            parent.chmod(parent.stat().st_mode | 0o055)
    assert said(started(store, program)) == "None True 0"


@pytest.mark.parametrize("parent", ["file", "circle", "name too long", "no name at all"])
def test_a_place_where_no_directory_can_be(tmp_path: Path, parent: str) -> None:
    place = tmp_path / "place"
    if parent == "file":
        place.touch()
    elif parent == "circle":
        place.symlink_to(place)
    elif parent == "name too long":
        place = tmp_path / ("x" * 300)
    else:
        place = tmp_path / "nul\0"
    store = DiskCache(place / "index")
    for _ in range(STRIKES + 1):
        store.put("records", KEY, b"1")
        assert store.get("records", KEY) is None
    assert store.trouble
    assert "\n" not in store.trouble
    assert store.info().kinds == {}
    assert store.clear().freed == 0


def test_what_will_not_work_is_not_tried_for_ever(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = DiskCache(tmp_path / "file" / "index")
    for _ in range(STRIKES):
        store.put("records", KEY, b"1")
    (tmp_path / "file").unlink()
    store.put("records", KEY, b"1")
    assert not (tmp_path / "file").exists(), "off for this session"
    assert store.trouble == "Not a directory"
    store.clear()
    assert store.trouble == ""
    assert works(store), "clearing is asking to try again"


# -- others that write -----------------------------------------------------------------------------


def test_a_locked_store_is_like_a_missing_one(store: DiskCache) -> None:
    store.put("records", KEY, b"1")
    holder = sqlite3.connect(index_file(store), isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert store.get("records", KEY) is None
    store.put("records", b"other", b"2")
    assert store.trouble == "database is locked"
    holder.execute("ROLLBACK")
    holder.close()
    assert store.get("records", KEY) == b"1"
    assert store.trouble == ""
    assert store.get("records", b"other") is None, "dropped"
    assert works(store)


def test_readers_do_not_mind_who_prepares_to_write(store: DiskCache) -> None:
    store.put("records", KEY, b"1")
    holder = sqlite3.connect(index_file(store), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    holder.execute("DELETE FROM entries")
    assert store.get("records", KEY) == b"1"
    holder.close()


def test_a_stuck_process_is_waited_for_once(store: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = []
    plain = Database.wait
    monkeypatch.setattr(Database, "wait", lambda self, seconds: (waits.append(seconds), plain(self, seconds))[1])
    clock = [0.0]
    monkeypatch.setattr("tui_debugger.cache.store.time.monotonic", lambda: clock[0])
    store = DiskCache(store.path)
    store.put("records", KEY, b"1")
    holder = sqlite3.connect(index_file(store), isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    for _ in range(20):
        assert store.get("records", KEY) is None
    assert waits == [0.0], "with the first failure all patience is gone"
    for clock[0] in (0.1, 10.0):
        assert store.get("records", KEY) is None
    assert waits == pytest.approx([0.0, 0.01, 0.2]), "a tenth of the time goes into waiting"
    holder.close()
    assert store.get("records", KEY) == b"1"


# -- no SQLite -------------------------------------------------------------------------------------


def test_a_python_without_sqlite(store: DiskCache) -> None:
    program = """
sys.modules["_sqlite3"] = None
store.put("records", b"key", b"1")
print(store.get("records", b"key"), bool(store.trouble), store.info().size, store.clear().freed)
from tui_debugger.cache import default_store
print(default_store())
"""
    assert said(started(store, program)).splitlines() == ["None True 0 0", "None"]


def test_our_own_mistakes_are_not_hidden(store: DiskCache) -> None:
    store.put("records", KEY, b"1")
    with pytest.raises(TypeError):
        store.put_many("records", {KEY: None})  # type: ignore[dict-item] # on purpose
    assert works(store), "and do no harm"


# -- is it the disk or the file? -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("complaint", "room", "damaged"),
    [
        ("database or disk is full", 0, False),
        ("database or disk is full", 10**12, True),
        ("attempt to write a readonly database", 0, True),
        ("disk I/O error", 10**12, False),
    ],
)
def test_a_complaint_that_the_system_does_not_share(
    store: DiskCache, monkeypatch: pytest.MonkeyPatch, complaint: str, room: int, damaged: bool
) -> None:
    store.put("records", KEY, b"1")
    monkeypatch.setattr("tui_debugger.cache.files.room", lambda _: room)
    assert contradicts(complaint, index_file(store)) is damaged
