"""How ranks share the work: groups of recorded and inferred layouts, and what dimensions of shards are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tui_debugger.diagnose.ranks.layout import (
    ParallelLayout,
    Split,
    ToldBy,
    inferred_layout,
    read_dims,
    recorded_layout,
)
from tui_debugger.session.session import open_dump

GRID = {rank: {"dp": (rank // 2, 2), "tp": (rank % 2, 2)} for rank in range(4)}
"""Two data-parallel copies of a model that two ranks share."""


def recorded(places: dict[int, dict[str, tuple[int, int]]]) -> ParallelLayout:
    layout = recorded_layout(sorted(places), places, "its files")
    assert layout is not None
    return layout


def test_ranks_that_differ_along_data_alone_are_replicas() -> None:
    layout = recorded(GRID)
    assert layout.replicas == ((0, 2), (1, 3))
    assert str(layout) == "dp 2 x tp 2 (recorded: its files)"
    assert layout.place_text(3) == "dp 1 of 2, tp 1 of 2"


def test_context_parallel_ranks_hold_the_same_weights() -> None:
    layout = recorded({rank: {"tp": (rank % 2, 2), "cp": (rank // 2, 2)} for rank in range(4)})
    assert layout.replicas == ((0, 2), (1, 3))


def test_axes_of_one_rank_are_none() -> None:
    layout = recorded({rank: {"dp": (rank, 2), "tp": (0, 1)} for rank in range(2)})
    assert layout.axes == ("dp",)
    assert layout.replicas == ((0, 1),)


@pytest.mark.parametrize(
    "places",
    [
        {0: {"dp": (0, 2)}, 1: {}},
        {0: {"dp": (0, 2)}, 1: {"dp": (2, 2)}},
        {0: {"dp": (0, 2)}, 1: {"dp": (1, 3)}},
        {0: {"dp": (0, 1)}, 1: {"dp": (0, 1)}},
    ],
    ids=["one rank says nothing", "a place beyond the last", "two sizes", "no axis of several ranks"],
)
def test_a_layout_that_contradicts_itself_is_not_believed(places: dict[int, dict[str, tuple[int, int]]]) -> None:
    assert recorded_layout((0, 1), places, "its files") is None


def test_an_inferred_layout_says_so() -> None:
    layout = inferred_layout((0, 1, 2, 3), ((0, 2), (1, 3)), "weights")
    assert layout.told_by is ToldBy.INFERRED
    assert layout.replicas == ((0, 2), (1, 3))
    assert "inferred" in str(layout)


def test_without_a_layout_nothing_must_be_equal() -> None:
    assert ParallelLayout((0, 1, 2)).replicas == ((0,), (1,), (2,))


def test_dimensions_of_a_shard() -> None:
    dims = read_dims("dims b s[cp:zigzag,sp] (num_heads*qkv_dim)[tp] 1 # dp:=moe_dp ep:replicated; tp 0 of 2")
    assert dims is not None
    assert dims.names == ("b", "s", "num_heads*qkv_dim", "1")
    assert dims.splits == ((), (Split("cp", zigzag=True), Split("sp")), (Split("tp"),), ())
    assert dims.replicated == {"ep"}
    assert dims.split_axes == {"cp", "sp", "tp"}


def test_a_partial_dimension_is_summed_up() -> None:
    dims = read_dims("b s h[tp:partial]")
    assert dims is not None
    assert {split.axis for splits in dims.splits for split in splits if split.partial} == {"tp"}


@pytest.mark.parametrize("text", ["", "dims ", "b s[tp", "b s[tp:diagonal]", "b # what", "b s[:zigzag]"])
def test_dimensions_that_nobody_understands_are_none(text: str) -> None:
    assert read_dims(text) is None


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("sglang-2rank", "dp 2 (recorded: parallel_info of the dumper)"),
        ("sglang-tp/tp2", "tp 2 (recorded: parallel_info of the dumper)"),
        ("megatron-tp2/good", "tp 2 (recorded: names of files)"),
    ],
)
def test_real_dumps_say_how_ranks_share_the_work(dumps: Callable[[str], Path], where: str, says: str) -> None:
    session = open_dump(dumps("sglang-megatron") / where, remember=False)
    found = {rank: session.parallel_places(rank) for rank in session.ranks()}
    session.close()
    places = {rank: places for rank, (places, _) in found.items()}
    assert str(recorded_layout(sorted(found), places, found[0][1])) == says
