"""The hit list on several ranks, by keyboard: one row a tensor, filters, orders, what could not be judged."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from tests.session.opened import EVERYTHING, watch
from tests.sources.memory import MemorySource, Op
from tests.tui.conftest import OpenScreen
from tests.tui.driver import Driver, opened_by
from tests.tui.sizes import every_size
from tui_debugger.model import ProgressFn, Side
from tui_debugger.session import Session

NAN, TWO_RANKS = "mindspore-2.0-nan", "msprobe-mix-2rank-mb-md5"
NAMES = (
    "Default/embed-Net/Gather-op1",
    "Default/body-Net/Mul-op2",
    "Default/body-Net/Add-op10",
    "Default/head/Log-op9",
)
OPS = [Op(name, name.rpartition("/")[2].partition("-")[0]) for name in NAMES]
RANKS = 8


def values(rank: int, step: int) -> dict[tuple[str, Side, int], np.ndarray]:
    """Large values in Mul on all ranks, from step 1 NaN in Log on all, and large ones in Add on ranks 2 and 3."""
    outputs = {
        "Gather-op1": np.zeros(2),
        "Mul-op2": np.full(4, 9.0),
        "Add-op10": np.full(64, 9.0 if step and rank in {2, 3} else 0.0),
        "Log-op9": np.full(2, np.nan if step else 0.0),
    }
    return {(name, Side.OUTPUT, 0): outputs[name.rpartition("/")[2]].astype(np.float32) for name in NAMES}


@asynccontextmanager
async def eight_ranks(size: tuple[int, int] = (200, 50), *watches: str, overflow: bool = True) -> AsyncIterator[Driver]:
    """The hit list of a run of eight ranks and two steps."""

    def open_session(progress: ProgressFn) -> Session:
        source = MemorySource({r: {s: values(r, s) for s in (0, 1)} for r in range(RANKS)}, ops=OPS)
        session = Session(source)
        session.watchpoints.add("tensor_too_large", (("max_gt", 5.0),), EVERYTHING)
        if overflow:
            session.watchpoints.add("tensor_overflow", (), EVERYTHING)
        session.open(progress)
        watch(session, *watches)
        return session

    async with opened_by(open_session, size=size, title="eight", recommended=False, step=0) as screen:
        await screen.press_each("4", "g")
        yield screen


def listed(screen: Driver) -> list[str]:
    """Ranks and operator of each row."""
    rows = screen.main.hits_pane.rows
    assert rows is not None
    found = []
    for row in range(rows.row_count):
        cells = [str(cell) for cell in rows.cells(row)]
        found.append(f"{cells[1]} {cells[2]} {cells[3].split()[0]}" if len(cells) > 2 else cells[1])
    return found


def current(screen: Driver) -> tuple[int, int, str]:
    hit = screen.main.hits_pane.current
    assert hit is not None
    return hit.key.rank, hit.key.step, hit.key.node.rpartition("/")[2]


@pytest.mark.turns("size")
@every_size
async def test_ranks_are_one_row_that_unfolds(size: tuple[int, int]) -> None:
    async with eight_ranks(size) as screen:
        folded = ["0 ▸0–7 Mul-op2", "1 ▸0–7 Mul-op2", "1 ▸2–3 Add-op10", "1 ▸0–7 Log-op9"]
        assert listed(screen) == folded
        assert screen.main.hits_pane.count == "26 in 4 rows · at step 0: 8 · by step"
        assert "▸0–7" in screen.text
        assert "26 findings" in screen.text, "the header counts the same"
        await screen.press_each("down", "down", "space")
        assert listed(screen) == [*folded[:2], "1 ▾2–3 Add-op10", "1 └ 2 Add-op10", "1 └ 3 Add-op10", folded[3]]
        assert "└ 3" in screen.text
        await screen.press_each("down", "down", "space")
        assert listed(screen) == folded
        assert screen.main.hits_pane.table.cursor_row == 2, "from a rank to the row that it stood below"
        await screen.press_each("asterisk")
        assert len(listed(screen)) == 4 + 26
        assert screen.main.hits_pane.table.cursor_row == 18, "the cursor stays on its tensor"
        await screen.press_each("space")
        assert len(listed(screen)) == 4 + 24, "one row folds, the others stay as they are"
        await screen.press_each("asterisk")
        assert listed(screen) == folded


@pytest.mark.turns("size")
@every_size
async def test_n_and_enter_go_to_the_rank_that_is_shown_where_it_is_among_them(size: tuple[int, int]) -> None:
    async with eight_ranks(size) as screen:
        state = screen.main.state
        await screen.press_each("greater_than_sign", "greater_than_sign", "greater_than_sign")
        assert (state.rank, current(screen)) == (3, (3, 0, "Mul-op2"))
        places = []
        for _ in range(4):
            await screen.press_each("n")
            places.append((state.rank, state.step))
        assert places == [(3, 1), (3, 1), (3, 1), (3, 1)]
        assert "this is the last hit" in screen.main.footer.notice
        await screen.press_each(*["greater_than_sign"] * 4, "4", "g", "down", "down", "enter")
        assert (state.rank, state.step) == (2, 1), "the row of ranks 2 and 3 leads to the first of them"
        assert "Add-op10" in screen.main.nodes_pane.nodes.names[state.row]  # type: ignore[union-attr] # it is there
        await screen.press_each("4", "space", "down", "down", "enter")
        assert (state.rank, current(screen)) == (3, (3, 1, "Add-op10")), "a row below leads to its own rank"


@pytest.mark.turns("size")
@every_size
async def test_a_step_brings_its_first_hit_into_sight_with_what_follows_it(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press_each("4", "right_square_bracket")
        table = screen.main.hits_pane.table
        assert current(screen)[1] == screen.main.state.step == 4
        assert table.cursor_row - table.top == 2
        await screen.press_each("left_square_bracket")
        assert (current(screen)[1], table.top) == (3, 0)
        await screen.press_each("c")
        assert table.cursor_row - table.top == 2


@pytest.mark.turns("size")
@every_size
async def test_n_says_why_there_is_no_hit_to_go_to(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press_each("left_square_bracket", "0", "1", "n")
        assert "no hit at this step, 914 in the run: 0 shows all steps" in screen.main.footer.notice
        await screen.press_each("0", "n")
        assert screen.main.state.step == 3
    async with eight_ranks(size, overflow=False) as screen:
        await screen.press_each("3", "space", "n")
        assert "no watchpoint is enabled" in screen.main.footer.notice
        await screen.press_each("O")
        assert "no watchpoint is enabled" in screen.main.footer.notice


@pytest.mark.turns("size")
@every_size
async def test_filters_say_what_they_are_and_how_they_go(size: tuple[int, int]) -> None:
    async with eight_ranks(size) as screen:
        pane, everything = screen.main.hits_pane, listed(screen)
        await screen.press_each("x")
        assert listed(screen) == ["1 ▸0–7 Log-op9"]
        assert "⌫ clears  origins  x" in screen.text
        assert pane.count.startswith("8 of 26")
        await screen.press_each("x")
        assert listed(screen) == everything
        await screen.press_each("g", "0")
        assert listed(screen) == everything[:1], "this step, on every rank"
        assert "this step  0" in screen.text
        assert pane.count.startswith("8 of 26")
        await screen.press_each("0", "n", "4", "i")
        assert listed(screen) == everything[:3]
        assert "Default/body-Net  i" in screen.text
        await screen.press_each("x")
        assert listed(screen) == []
        assert "nothing in the list, 26 findings in the run: ⌫ clears" in screen.text
        await screen.press_each("backspace")
        assert listed(screen) == everything
        assert not pane.filters.display
        assert pane.count == "26 in 4 rows · at step 1: 18 · by step", "where one was before the list was empty"


@pytest.mark.turns("size")
@every_size
async def test_the_list_is_sorted_and_n_walks_it_as_it_is(size: tuple[int, int]) -> None:
    async with eight_ranks(size) as screen:
        orders = {
            "severity": ["Log-op9", "Mul-op2", "Mul-op2", "Add-op10"],
            "name": ["Add-op10", "Log-op9", "Mul-op2", "Mul-op2"],
            "size": ["Add-op10", "Mul-op2", "Mul-op2", "Log-op9"],
            "step": ["Mul-op2", "Mul-op2", "Add-op10", "Log-op9"],
        }
        for order, names in orders.items():
            await screen.press_each("comma")
            assert [row.split()[-1] for row in listed(screen)] == names
            assert f"by {order}" in screen.text
            await screen.press_each("g")
            walked = [current(screen)[2]]
            for _ in range(3):
                await screen.press_each("n")
                walked.append(current(screen)[2])
            assert walked == names
            assert "hit 4 of 4 rows" in screen.main.footer.notice


@pytest.mark.turns("size")
@every_size
async def test_what_nan_kept_from_being_judged_stands_apart(size: tuple[int, int]) -> None:
    async with eight_ranks(size) as screen:
        await screen.press_each("f")
        await screen.type("TL")
        await screen.press_each("space", "enter")
        assert listed(screen)[-2:] == ["NaN or Inf kept 8 tensors from being judged:", "1 ▸0–7 Log-op9"]
        assert "NaN or Inf kept 8 tensors from being judged:" in screen.text
        assert screen.main.hits_pane.count == "18 of 26 in 4 rows · at step 0: 8 of 8 · 8 not judged · by step"
        await screen.press_each("n", "n", "n", "n")
        assert "this is the last hit" in screen.main.footer.notice
        assert current(screen)[2] == "Add-op10", "it is no hit of this watchpoint"
        await screen.press_each("4", "down")
        assert screen.main.hits_pane.current is None
        assert "TL #1 tensor too large  f" in screen.text
        for key in ("enter", "space", "e", "Y", "o", "E"):
            await screen.press_each(key)
            assert screen.app.screen is screen.main, "a heading stands for nothing"


@pytest.mark.turns("size")
@every_size
async def test_rows_without_a_finding_are_counted_apart(size: tuple[int, int]) -> None:
    async with eight_ranks(size, "EX norm > 10*prev.norm") as screen:  # nothing to compare with at step 0
        await screen.press_each("m")
        rows = screen.main.hits_pane.rows
        assert rows is not None
        assert rows.merged
        assert rows.others > 0
        assert f" · {rows.others} without a finding · all in {rows.tensors} rows" in screen.main.hits_pane.count
        assert rows.others + sum(count for _, count in rows.counted.values()) == len(rows.shown)


@pytest.mark.turns("size")
@every_size
async def test_hits_of_an_expression_say_what_held_with_its_values(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press_each("w")
        await screen.type("ex")
        await screen.press("enter")  # leads to the field
        await screen.type("max > 1e3*std and zero_pct < 50")
        await screen.press_each("enter", "3", "end")
        assert "● steps 0–5 checked" in screen.lines[2]
        assert re.search(r"EX +expression  max > .* 265 +64 ", screen.text), "nodes and hits, in its row"
        await screen.press_each("4", "f")
        await screen.type("EX")
        await screen.press_each("space", "enter", "home")
        assert screen.main.hits_pane.count.startswith("64 of 978 · ")
        assert "EX #7 expression  f" in screen.text
        held = "max > 1000·std and zero_pct < 50 → 18.421 > 1000·0 and 0 < 50"
        assert screen.pane("hits")[0].startswith("✗ 0 ReduceSum-op382 ")
        assert screen.pane("hits")[0].endswith(held)
        assert "ReduceSum-op382 · expression" in screen.text
        for _ in range(len(held)):
            if "18.421 > 1000·0" in screen.text:
                break
            await screen.press("right")
        assert re.search(r"✗ +0 ReduceSum-op382 .*18\.421 > 1000·0", screen.text), "its name stays"


@pytest.mark.turns("size")
@every_size
async def test_every_count_on_the_screen_is_of_the_same_findings(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(NAN, size=size) as screen:
        main = screen.main
        hits = main.state.result.hits  # type: ignore[union-attr] # it was checked
        count = f"{hits.findings:,}"
        assert main.state.tally is not None
        assert main.state.tally.findings == hits.findings
        assert main.hits_pane.count.split()[0] == count
        assert f"{count} findings" in main.header.plain
        if main.has_class("-single"):
            assert f"4 Hits {count}" in screen.text
        await screen.press_each("4")
        await screen.press("slash")
        await screen.type("weight")
        await screen.settled()
        shown = sum(hits.found()[at] for at in main.hits_pane.rows.shown)  # type: ignore[union-attr] # likewise
        assert main.hits_pane.count.startswith(f"{shown:,} of {count}")
        assert main.hits_pane.rows.row_count == len(screen.pane("hits"))  # type: ignore[union-attr] # likewise


@every_size
async def test_calls_stand_with_their_scopes_below_whole_counts(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(TWO_RANKS, size=size) as screen:
        await screen.press("4")
        assert "4 Hits 1,001 · at step 3: 223 · 92 without a finding · " in screen.text, "no word without its number"
        (title,) = (line for line in screen.lines if " slot" in line and " node" in line)
        names = slice(title.index(" node") + 1, title.index(" slot"))
        calls = [line[names].strip() for line in screen.lines if "linear" in line[names] and "weight" not in line]
        assert calls
        assert [call for call in calls if "  " not in call] == [], "which of them it is"


@every_size
async def test_one_step_only_and_all_steps_again_is_where_one_was(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press_each("4", "down", "down", "left_square_bracket")
        before = screen.main.hits_pane.current, screen.main.state.step, screen.pane("hits")
        assert before[1] == 2
        await screen.press_each("0")
        assert screen.pane("hits") == []
        await screen.press_each("0")
        assert (screen.main.hits_pane.current, screen.main.state.step, screen.pane("hits")) == before
        await screen.press_each("down")
        assert screen.main.state.step == 3, "the next key leads on as ever"


@pytest.mark.turns("size")
@every_size
async def test_a_condition_stands_once_above_the_hits_that_share_it(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press("4", "home")
        rows = screen.main.hits_pane.table.rows
        said = [str(rows.cells(row)[4]) for row in range(40)]
        assert said[0] in {"TO", "tensor overflow"}
        assert set(said[1:15]) == {""}
        after = next(at for at, text in enumerate(said) if "TZ" in text)
        assert said[after + 1] == said[0], "a row that ends the group says its own"
        await screen.press("down")
        assert "tensor overflow" in screen.main.hits_pane.detail


@pytest.mark.turns("size")
@every_size
async def test_names_have_the_room_that_other_columns_do_not_need(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press("4", "home")
        (title,) = (line for line in screen.lines if " slot" in line and " node" in line)
        assert title.index(" slot") - title.index(" node") > {80: 32, 120: 28, 200: 50}[size[0]]
        assert "128 of 512" in screen.text
        if size == (200, 50):
            assert screen.main.hits_pane.size.height > screen.main.tensors_pane.size.height * 2
