"""What a store promises when nothing goes wrong."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.cache.stores import RECORDS, index_file, said, started, works
from tui_debugger.cache import DiskCache, KindInfo

KEY = bytes(range(16))


@pytest.mark.parametrize("payload", [b"", b"\0", b"statistics", bytes(range(256)) * 600, bytes(3_000_000)])
def test_what_is_put_is_had(store: DiskCache, payload: bytes) -> None:
    store.put("records", KEY, payload)
    assert store.get("records", KEY) == payload
    store.close()
    assert store.get("records", KEY) == payload
    assert DiskCache(store.path).get("records", KEY) == payload
    assert store.trouble == ""


def test_what_was_never_put_is_not_known(store: DiskCache) -> None:
    assert store.get("records", KEY) is None
    store.put("records", KEY, b"one")
    assert store.get("records", KEY[:-1]) is None
    assert store.get("listing", KEY) is None
    assert store.get_many("records", [b"", KEY, KEY + b"\0"]) == {KEY: b"one"}
    assert store.get_many("records", []) == {}


def test_a_key_has_one_payload_of_each_kind(store: DiskCache) -> None:
    store.put("records", KEY, b"old")
    store.put("listing", KEY, b"names")
    store.put_many("records", {KEY: b"new", b"other": b"1"})
    store.put_many("records", {})
    assert (store.get("records", KEY), store.get("listing", KEY), store.get("records", b"other")) == (
        b"new",
        b"names",
        b"1",
    )
    assert store.info().kinds == {"listing": KindInfo(1, 5), "records": KindInfo(2, 4)}


def test_asking_makes_nothing(store: DiskCache) -> None:
    assert store.get("records", KEY) is None
    assert store.info().size == 0
    assert store.clear().freed == 0
    assert not store.path.parent.exists()


def test_another_process_has_it_too(store: DiskCache) -> None:
    store.put_many("records", RECORDS)
    program = """
assert store.get_many("records", RECORDS) == RECORDS, store.trouble
store.put("listing", b"from", b"another")
"""
    said(started(store, program))
    assert store.get("listing", b"from") == b"another"


def test_nobody_else_may_read_it(store: DiskCache) -> None:
    mask = os.umask(0)
    try:
        store.put("records", KEY, b"secret")
    finally:
        os.umask(mask)
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in store.path.iterdir()} == {0o600}


def test_a_directory_that_all_may_read_is_closed_to_them(store: DiskCache) -> None:
    store.path.mkdir(parents=True, mode=0o777)
    store.put("records", KEY, b"secret")
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o700


def test_what_is_in_it_and_when_it_was_used(store: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    for now, key in ((1000.5, b"first"), (2000.0, b"second")):
        monkeypatch.setattr("time.time", lambda now=now: now)
        store.put("records", key, b"12345")
    info = store.info()
    assert (info.path, info.kinds) == (store.path, {"records": KindInfo(2, 10)})
    assert (info.oldest, info.newest, info.limit, info.trouble) == (1000, 2000, 10**9, "")
    assert info.size == sum(path.stat().st_size for path in store.path.iterdir())


def test_clearing_frees_all_of_it(store: DiskCache) -> None:
    store.put_many("records", RECORDS)
    other = DiskCache(store.path)
    assert other.get_many("records", RECORDS) == RECORDS
    before = store.info().size
    assert before > sum(map(len, RECORDS.values()))
    cleared = store.clear()
    assert (cleared.freed, cleared.trouble) == (before, "")
    assert list(store.path.iterdir()) == []
    assert store.get_many("records", RECORDS) == {}
    assert other.get_many("records", RECORDS) == {}, "who had it open sees that it is gone"
    assert works(other)
    assert store.get_many("records", RECORDS) == RECORDS, "and its next index is everybody's"


def test_clearing_touches_nothing_but_indexes(store: DiskCache, tmp_path: Path) -> None:
    store.put("records", KEY, b"1")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    kept = [store.path / "notes.txt", store.path / "index-1-0000000000000001.sqlite.bak"]
    for path in kept:
        path.write_text("mine")
    link = store.path / "index-1-0000000000000002.sqlite"
    link.symlink_to(elsewhere)
    folder = store.path / "index-1-0000000000000003.sqlite"
    folder.mkdir()
    store.clear()
    assert sorted(store.path.iterdir()) == sorted([*kept, link, folder])
    assert elsewhere.read_text() == "precious"


def test_other_versions_are_not_read_and_older_ones_are_removed(store: DiskCache) -> None:
    store.put("records", KEY, b"of this version")
    store.close()
    path = index_file(store)
    older = path.with_name("index-0-" + "0" * 16 + ".sqlite")
    newer = path.with_name("index-9-" + "0" * 16 + ".sqlite")
    os.link(path, newer)
    path.rename(older)
    again = DiskCache(store.path)
    assert again.get("records", KEY) is None
    again.put("records", KEY, b"new")
    assert again.get("records", KEY) == b"new"
    assert not older.exists()
    assert newer.exists(), "that of a later tdbg is none of our business"
    assert again.trouble == ""


def test_half_made_files_do_not_stay(store: DiskCache) -> None:
    store.path.mkdir(parents=True)
    now = store.path.stat().st_mtime
    forgotten, fresh = (store.path / f".new-index-1-{number:016x}.sqlite" for number in (1, 2))
    for path, age in ((forgotten, 7200), (fresh, 0)):
        path.touch()
        os.utime(path, (now - age, now - age))
    assert works(store)
    assert (forgotten.exists(), fresh.exists()) == (False, True)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files in /proc")
def test_it_closes_itself_with_the_last_reference(store: DiskCache) -> None:
    program = """
def opened():
    links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    return sum(os.readlink(link).startswith(sys.argv[1]) for link in links if os.path.lexists(link))
store.put("records", b"key", b"payload")
print(opened() > 0)
del store
print(opened())
"""
    assert said(started(store, program)).split() == ["True", "0"]
