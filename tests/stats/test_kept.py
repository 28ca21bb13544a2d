"""What was read of files is kept for their next tensor, and no more of it than memory has room for."""

from __future__ import annotations

from tui_debugger.stats.kept import Kept

LARGE = 1 << 24


def kept(count: int, size: int) -> Kept[int, str]:
    found: Kept[int, str] = Kept(lambda _: size)
    for key in range(count):
        found.put(key, f"header {key}")
    return found


def test_hundreds_of_files_of_some_tensors_are_all_kept() -> None:
    found = kept(500, 1000)
    assert [found.get(key) for key in range(500)] == [f"header {key}" for key in range(500)]


def test_of_large_ones_the_last_are_kept() -> None:
    found = kept(100, LARGE)
    assert [key for key in range(100) if found.get(key)] == list(range(68, 100))


def test_thousands_of_small_files_are_not_kept_for_nothing() -> None:
    found = kept(10_000, 0)
    assert sum(found.get(key) is not None for key in range(10_000)) == 2048


def test_what_is_put_again_counts_once() -> None:
    found = kept(40, LARGE)
    for _ in range(100):
        found.put(39, "anew")
    assert found.get(39) == "anew"
    assert [key for key in range(40) if found.get(key)] == list(range(8, 40))
