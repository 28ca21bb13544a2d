"""Notices that are the same of several ranks are one sentence, and no rank is lost."""

from __future__ import annotations

import pytest

from tui_debugger.text.numbers import grouped_notices


def test_a_thousand_ranks_are_one_line() -> None:
    history = [f"rank_{rank} has no run history: derived from the dumped steps" for rank in range(1000)]
    assert grouped_notices((*history,)) == ("ranks 0-999 have no run history: derived from the dumped steps",)


def test_what_is_said_of_one_rank_stays_as_it_is_and_where_it_is() -> None:
    said = ("no version", "rank_3 has no graph: nodes come from file names", "rank 3: 2 files ignored", "the last")
    assert grouped_notices(said) == said


@pytest.mark.parametrize(
    ("notices", "told"),
    [
        (["rank_2 has a", "other", "rank_0 has a", "rank_1 has b"], ["ranks 0,2 have a", "other", "rank_1 has b"]),
        (["rank_0 has x: rank_1's is", "rank_2 has x: rank_1's is"], ["ranks 0,2 have x: rank_1's is"]),
        (["rank_0: 3 files ignored", "rank_1: 3 files ignored"], ["ranks 0,1, each: 3 files ignored"]),
        (["rank_0: 3 files odd", "rank_1: 4 files odd"], ["rank_0: 3 files odd", "rank_1: 4 files odd"]),
        (["notes of rank 1 cannot be read", "notes of rank 2 cannot be read"], ["notes of ranks 1,2 cannot be read"]),
        (["/a/rank_0/x is odd", "/a/rank_7/x is odd"], ["/a/rank_0/x is odd (the same of rank 7)"]),
        (["rank_1/x is odd", "rank_0/x is odd"], ["rank_0/x is odd (the same of rank 1)"]),
        (["hostA: rank_0 is odd", "hostB: rank_1 is odd"], ["hostA: rank_0 is odd", "hostB: rank_1 is odd"]),
        (["rank_0 is odd", "rank_0 is odd"], ["rank_0 is odd"]),
    ],
)  # fmt: skip
def test_several_ranks_are_named(notices: list[str], told: list[str]) -> None:
    assert grouped_notices(tuple(notices)) == tuple(told)
