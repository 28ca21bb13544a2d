"""What was read of files is kept for their next tensor, and no more of it than memory has room for."""

from __future__ import annotations

from tui_debugger.stats.kept import Kept

LARGE = 1 << 24


def kept(count: int, size: int) -> Kept[int, str]:
    found: Kept[int, str] = Kept(lambda _: size)
    for key in range(count):
        found.get(key, lambda: "header")
    return found


def known(found: Kept[int, str], count: int) -> list[int]:
    def forgotten() -> str:
        raise LookupError

    keys = []
    for key in range(count):
        try:
            found.get(key, forgotten)
        except LookupError:
            continue
        keys.append(key)
    return keys


def test_hundreds_of_files_of_some_tensors_are_all_kept() -> None:
    assert known(kept(500, 1000), 500) == list(range(500))


def test_of_large_ones_the_last_are_kept() -> None:
    assert known(kept(100, LARGE), 100) == list(range(68, 100))


def test_thousands_of_small_files_are_not_kept_for_nothing() -> None:
    assert len(known(kept(10_000, 0), 10_000)) == 2048


def test_what_is_known_is_not_made_again() -> None:
    assert kept(1, 0).get(0, lambda: "made again") == "header"


def test_what_two_threads_make_at_once_counts_once() -> None:
    found = kept(0, LARGE // 8)
    for key in range(50):

        def second(key: int = key) -> str:
            found.get(key, lambda: "first")
            return "second"

        assert found.get(key, second) == "second"
    assert known(found, 50) == list(range(50))
