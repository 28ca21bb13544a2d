"""A store stays below its limit; what was not used for the longest time goes first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cache.stores import index_file
from tui_debugger.cache import DiskCache
from tui_debugger.cache.database import Database

LIMIT = 2_000_000
SLACK = 5 * 16384
"""Pages of the tables themselves."""


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def payload(number: int) -> bytes:
    return bytes([number % 256]) * 100_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the clock of the index."""
    now = [0]
    monkeypatch.setattr("tui_debugger.cache.database.time.time", lambda: now[0])

    def put(seconds: int) -> None:
        now[0] = seconds

    return put


def there(store: DiskCache, numbers: range) -> list[int]:
    """Which payloads there are, as somebody sees who leaves no trace."""
    other = DiskCache(store.path, limit=store.limit)
    found = other.get_many("records", map(key, numbers))
    assert all(found[key(number)] == payload(number) for number in numbers if key(number) in found)
    return [number for number in numbers if key(number) in found]


def test_the_oldest_go_first(tmp_path: Path, clock: Callable[[int], None]) -> None:
    store = DiskCache(tmp_path, limit=LIMIT)
    for number in range(40):
        clock(1000 * number)
        store.put("records", key(number), payload(number))
        assert index_file(store).stat().st_size <= LIMIT
    left = there(store, range(40))
    assert left == list(range(40 - len(left), 40))
    assert 12 <= len(left) <= 20, "room is used, and no more than there is"
    assert store.trouble == ""


def test_what_is_used_stays(tmp_path: Path, clock: Callable[[int], None]) -> None:
    store = DiskCache(tmp_path, limit=LIMIT)
    for number in range(40):
        clock(1000 * number)
        store.put("records", key(number), payload(number))
        assert store.get("records", key(0)) == payload(0)
    assert there(store, range(40))[0] == 0


def test_being_used_outlives_the_session(tmp_path: Path, clock: Callable[[int], None]) -> None:
    store = DiskCache(tmp_path, limit=LIMIT)
    for number in range(10):
        clock(1000 * number)
        store.put("records", key(number), payload(number))
    store.close()
    reader = DiskCache(tmp_path, limit=LIMIT)
    clock(50_000)
    reader.get("records", key(3))
    reader.close()
    assert store.info().newest == 50_000
    for number in range(10, 25):
        clock(50_000 + number)
        store.put("records", key(number), payload(number))
    assert 3 in there(store, range(25))
    assert not {0, 1, 2, 4} & set(there(store, range(25)))


def test_using_is_marked_once_a_minute(tmp_path: Path, clock: Callable[[int], None]) -> None:
    store = DiskCache(tmp_path)
    clock(1000)
    store.put("records", key(1), payload(1))

    def used_at(seconds: int) -> float | None:
        clock(seconds)
        store.get("records", key(1))
        store.close()
        return store.info().newest

    assert [used_at(seconds) for seconds in (1059, 1060, 1100, 1121, 500)] == [1000, 1060, 1060, 1121, 500]


def test_many_small_ones_count_as_well(tmp_path: Path, clock: Callable[[int], None]) -> None:
    store = DiskCache(tmp_path, limit=LIMIT)
    for turn in range(30):
        clock(turn)
        store.put_many("listing", {key(1000 * turn + number): b"x" * 200 for number in range(1000)})
        assert index_file(store).stat().st_size <= LIMIT + SLACK
    entries = store.info().kinds["listing"].entries
    assert LIMIT / 2 < entries * 250 < LIMIT
    assert store.get("listing", key(29_999)) == b"x" * 200


def test_one_that_is_larger_than_all_room_is_not_kept(tmp_path: Path) -> None:
    store = DiskCache(tmp_path, limit=LIMIT)
    store.put("records", key(1), payload(1))
    store.put("records", key(2), b"old")
    store.put_many("records", {key(2): bytes(LIMIT + 1), key(3): payload(3)})
    assert store.get("records", key(1)) == payload(1), "nothing had to go for it"
    assert store.get("records", key(2)) is None, "nor is what it would have replaced"
    assert store.get("records", key(3)) == payload(3)


def test_more_at_once_than_there_is_room_for(tmp_path: Path) -> None:
    store = DiskCache(tmp_path, limit=LIMIT)
    store.put_many("records", {key(number): payload(number) for number in range(60)})
    assert 12 <= len(there(store, range(60))) <= 20
    assert index_file(store).stat().st_size <= LIMIT


def test_a_lower_limit_shrinks_the_file(tmp_path: Path) -> None:
    store = DiskCache(tmp_path, limit=10 * LIMIT)
    store.put_many("records", {key(number): payload(number) for number in range(100)})
    store.close()
    assert index_file(store).stat().st_size > 5 * LIMIT
    lower = DiskCache(tmp_path, limit=LIMIT)
    lower.put("records", key(200), payload(200))
    assert index_file(lower).stat().st_size <= LIMIT
    assert lower.get("records", key(200)) == payload(200)


def test_nobody_waits_until_a_much_lower_limit_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui_debugger.cache.database.BATCH", LIMIT)
    store = DiskCache(tmp_path, limit=10 * LIMIT)
    store.put_many("records", {key(number): payload(number) for number in range(150)})
    lower = DiskCache(tmp_path, limit=LIMIT)
    sizes = [index_file(store).stat().st_size]
    while sizes[-1] > LIMIT:
        lower.put("records", key(200 + len(sizes)), payload(0))
        assert lower.get("records", key(200 + len(sizes))) == payload(0)
        sizes.append(index_file(store).stat().st_size)
        assert LIMIT / 2 < sizes[-2] - sizes[-1] <= LIMIT + SLACK or sizes[-1] <= LIMIT
    assert len(sizes) > 6


def test_a_file_at_its_limit_is_not_rearranged_for_every_payload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DiskCache(tmp_path, limit=LIMIT)
    for number in range(40):
        store.put("records", key(number), payload(number))
    sizes = []
    plain = Database._shrink

    def shrink(database: Database, limit: int) -> None:
        sizes.append(database._number("page_count"))
        plain(database, limit)
        assert database._number("page_count") == sizes[-1], "pages that became free are used again"

    monkeypatch.setattr(Database, "_shrink", shrink)
    for number in range(40, 80):
        store.put("records", key(number), payload(number))
    assert len(sizes) == 40
    assert store.trouble == ""


@pytest.mark.parametrize("limit", [0, 1, 100_000])
def test_no_room_at_all(tmp_path: Path, limit: int) -> None:
    store = DiskCache(tmp_path, limit=limit)
    store.put("records", key(1), payload(1))
    assert store.get("records", key(1)) is None
    assert store.trouble == ""
