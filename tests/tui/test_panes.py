"""The five panes on real dumps, by keyboard."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.linked import linked, own
from tests.session.opened import opened as opened_session
from tests.tui.conftest import OpenScreen
from tests.tui.driver import Driver
from tests.tui.sizes import every_size
from tui_debugger.model import Category, Frame, NodeKind, NodeSelection, NodeSelector, Verdict
from tui_debugger.tui.dialogs.filters import FilterScreen, HitFilterScreen
from tui_debugger.tui.dialogs.pages import HistoryScreen, SourceScreen
from tui_debugger.tui.dialogs.prompts import NumberPrompt, StepPrompt, TextPrompt
from tui_debugger.tui.dialogs.watchpoint_form import WatchpointForm
from tui_debugger.tui.panes.stack import line_hits
from tui_debugger.tui.values.screen import ValuesScreen

NAN, MLP = "mindspore-2.0-nan", "mindspore-2.0-mlp"


def shown_nodes(screen: Driver) -> list[str]:
    return screen.pane("nodes")


# -- nodes -----------------------------------------------------------------------------------------


async def test_scopes_open_and_close_and_enter_on_a_node_shows_its_tensors(open_screen: OpenScreen) -> None:
    async with open_screen(MLP) as screen:
        await screen.press("home")
        before = shown_nodes(screen)
        await screen.press("left")
        assert len(shown_nodes(screen)) < len(before)
        await screen.press("right")
        assert shown_nodes(screen) == before
        await screen.press("asterisk")
        assert len(shown_nodes(screen)) > len(before)
        tree = screen.main.nodes_pane.scopes
        assert tree is not None
        while screen.main.nodes_pane.current_row < 0:
            await screen.press("down")
        await screen.press("enter")
        await screen.settled()
        assert screen.main.current_pane == "tensors"
        assert screen.pane("tensors")


@pytest.mark.parametrize(("text", "kept"), [("fc2", "fc2"), ("~fc[23]\\.weight$", "fc3.weight"), ("FC2", "fc2")])
async def test_search_narrows_the_tree_and_esc_brings_it_back(open_screen: OpenScreen, text: str, kept: str) -> None:
    async with open_screen(MLP) as screen:
        before = shown_nodes(screen)
        await screen.press("slash")
        await screen.type(text)
        await screen.settled()
        leaves = [row for row in shown_nodes(screen) if "▾" not in row and "▸" not in row]
        assert leaves
        assert any(kept in row for row in shown_nodes(screen))
        assert " of " in screen.main.nodes_pane.count
        await screen.press("enter")
        assert screen.app.focused is screen.main.nodes_pane.table
        await screen.press("slash", "escape")
        await screen.settled()
        assert shown_nodes(screen) == before


async def test_a_broken_regular_expression_says_so_and_keeps_the_list(open_screen: OpenScreen) -> None:
    async with open_screen(MLP) as screen:
        before = shown_nodes(screen)
        await screen.press("slash")
        await screen.type("~fc[")
        await screen.settled()
        assert "not a regular expression" in screen.main.footer.notice
        assert screen.main.nodes_pane.search_bar.has_class("-wrong")
        await screen.press("escape")
        await screen.settled()
        assert shown_nodes(screen) == before


async def test_the_filter_dialog_restricts_by_category_and_backspace_clears(open_screen: OpenScreen) -> None:
    async with open_screen(MLP) as screen:
        await screen.press("f")
        assert isinstance(screen.app.screen, FilterScreen)
        await screen.press("escape")
        node_filter = screen.main.node_filter
        query = screen.main.state.query
        node_filter.set_query(type(query)(categories=frozenset({Category.WEIGHT})))
        await screen.settled()
        assert "10 of" in screen.main.nodes_pane.count
        assert "weight" in screen.text
        await screen.press("backspace")
        await screen.settled()
        assert " of " not in screen.main.nodes_pane.count


async def test_space_puts_a_scope_out_of_the_selected_watchpoint_and_in_again(open_screen: OpenScreen) -> None:
    async with open_screen(MLP, recommended=False) as screen:
        watchpoints = screen.session.watchpoints
        everything = NodeSelection((NodeSelector(NodeKind.CATEGORY, "tensor"),))
        watchpoints.add("tensor_overflow", {}, everything)
        screen.main.watcher.show_list()
        await screen.settled()
        watched = screen.session.watch_state(0, 1).sum()
        assert shown_nodes(screen)[0].startswith(" ●")
        await screen.press("space")
        await screen.settled()
        assert shown_nodes(screen)[0].startswith("  ")
        assert screen.session.watch_state(0, 1).sum() < watched
        await screen.press("space")
        await screen.settled()
        assert shown_nodes(screen)[0].startswith(" ●")
        assert screen.session.watch_state(0, 1).sum() == watched


async def test_space_without_a_watchpoint_opens_the_form_for_that_node(open_screen: OpenScreen) -> None:
    async with open_screen(MLP, recommended=False) as screen:
        await screen.press("space")
        assert isinstance(screen.app.screen, WatchpointForm)


# -- hits ------------------------------------------------------------------------------------------


async def test_n_walks_the_hits_from_any_pane_and_shows_the_tensor(open_screen: OpenScreen) -> None:
    async with open_screen(NAN, step=0) as screen:
        await screen.press("3", "n")
        await screen.settled()
        first = screen.main.hits_pane.hits[0]
        state = screen.main.state
        assert (state.step, state.row) == (3, first.row)
        assert screen.main.nodes_pane.current_row == first.row
        current = screen.main.tensors_pane.current
        assert current is not None
        assert (current.role, current.slot, current.hit) == ("out", first.key.slot, True)
        await screen.press("n")
        await screen.settled()
        assert state.row == screen.main.hits_pane.hits[1].row
        await screen.press("N")
        await screen.settled()
        assert state.row == first.row
        await screen.press("N")
        assert "first hit" in screen.main.footer.notice


async def test_capital_o_goes_from_origin_to_origin(open_screen: OpenScreen) -> None:
    async with open_screen(NAN, step=0) as screen:
        names = []
        for _ in range(3):
            await screen.press("O")
            await screen.settled()
            nodes = screen.main.nodes_pane.nodes
            assert nodes is not None
            names.append(nodes.op_type(screen.main.state.row))
        assert names[0] == "Log"
        assert names[2] != names[1]


async def test_enter_on_a_hit_goes_to_its_tensors_even_when_a_filter_hides_the_node(open_screen: OpenScreen) -> None:
    async with open_screen(NAN) as screen:
        await screen.press("slash")
        await screen.type("optimizer")
        await screen.press("enter")
        await screen.settled()
        await screen.press("4", "enter")
        await screen.settled()
        assert screen.main.current_pane == "tensors"
        hit = screen.main.hits_pane.hits[0]
        assert screen.main.nodes_pane.current_row == hit.row


async def test_rows_without_a_comparison_are_shown_on_request(open_screen: OpenScreen) -> None:
    async with open_screen(MLP) as screen:
        await screen.press("4")
        findings = screen.pane("hits")
        await screen.press("m")
        assert len(screen.pane("hits")) > len(findings)
        assert any("no previous step" in row for row in screen.pane("hits"))
        await screen.press("m")
        assert screen.pane("hits") == findings


async def test_hits_are_filtered_by_dialog_and_by_search(open_screen: OpenScreen) -> None:
    async with open_screen(MLP) as screen:
        await screen.press("4", "f")
        assert isinstance(screen.app.screen, HitFilterScreen)
        await screen.press("escape", "slash")
        await screen.type("fc2.weight")
        await screen.settled()
        rows = screen.pane("hits")
        assert rows
        assert all("fc2.weight" in row for row in rows)
        await screen.press("escape")
        await screen.until(lambda: len(screen.pane("hits")) > len(rows))


# -- tensors ---------------------------------------------------------------------------------------


async def test_the_tensor_table_shows_what_numpy_says(open_screen: OpenScreen) -> None:
    async with open_screen(NAN) as screen:
        await screen.press("5")
        await screen.settled()
        row = screen.main.tensors_pane.current
        assert row is not None
        assert row.stats is not None
        values = np.asarray(screen.session.read(row.key), np.float64)
        finite = values[np.isfinite(values)]
        assert row.stats.maximum == pytest.approx(finite.max())
        assert row.stats.neg_inf == np.isneginf(values).sum()
        line = screen.pane("tensors")[screen.main.tensors_pane.table.cursor_row]
        assert line.startswith(f"✗ out 0 {row.meta.shape[0] if row.meta else ''}")
        assert "float32" in line


async def test_enter_shows_values_and_e_writes_the_tensor(
    open_screen: OpenScreen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_screen(NAN) as screen:
        await screen.press("n", "5")
        await screen.settled()
        await screen.press("enter")
        assert isinstance(screen.app.screen, ValuesScreen)
        await screen.settled()
        await screen.press("escape", "e")
        assert isinstance(screen.app.screen, TextPrompt)
        await screen.press("enter")
        await screen.settled()
        assert "wrote" in screen.main.footer.notice
        (written,) = tmp_path.glob("*.npy")
        row = screen.main.tensors_pane.current
        assert row is not None
        np.testing.assert_array_equal(np.load(written), screen.session.read(row.key))


async def test_brackets_follow_the_data_flow(open_screen: OpenScreen) -> None:
    async with open_screen(NAN) as screen:
        await screen.press("n", "5")
        await screen.settled()
        await screen.press("home")
        node = screen.main.state.row
        await screen.press("left_parenthesis")
        await screen.settled()
        producer = screen.main.state.row
        assert producer != node
        assert (node in [row for row, _ in screen.session.consumers(0, producer)]) is True
        await screen.press("left_parenthesis")
        if screen.main.tensors_pane.current and screen.main.tensors_pane.current.role == "out":
            assert "put the cursor on an input" in screen.main.footer.notice


# -- stack -----------------------------------------------------------------------------------------


async def test_the_stack_of_the_node_and_the_lines_of_the_run(open_screen: OpenScreen) -> None:
    async with open_screen(NAN) as screen:
        await screen.press("2")
        await screen.settled()
        assert "self.log" in screen.pane("stack")[0]
        await screen.press("m")
        await screen.settled()
        assert any("train_nan.py" in row for row in screen.pane("stack"))
        await screen.press("slash")
        await screen.type("self.log")
        await screen.settled()
        assert len(screen.pane("stack")) == 2
        await screen.press("enter", "down", "enter")
        await screen.settled()
        assert screen.main.state.query.line is not None
        assert "train_nan.py" in str(screen.main.nodes_pane.filters.visual)
        nodes = screen.main.nodes_pane.nodes
        assert nodes is not None
        kept = screen.session.select(0, screen.main.state.query)
        assert {nodes.op_type(int(row)) for row in np.flatnonzero(kept)} >= {"Log"}
        await screen.press("1", "backspace")
        await screen.settled()
        assert screen.main.state.query.line is None


@pytest.mark.turns("size")
@every_size
async def test_enter_on_a_line_leads_to_its_nodes_where_one_pane_is_shown(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press("2", "enter")
        await screen.settled()
        assert screen.main.state.query.line is not None
        assert screen.main.current_pane == ("nodes" if screen.main.has_class("-single") else "stack")
        assert "train_nan.py:53" in screen.text
        assert screen.main.nodes_pane.count == "2 of 346"
        assert any("Log-op381" in row for row in shown_nodes(screen))
        await screen.press("2", "enter")  # the same line again takes the restriction away, and nobody goes elsewhere
        await screen.settled()
        assert (screen.main.state.query.line, screen.main.current_pane) == (None, "stack")


@pytest.mark.turns("size")
@every_size
async def test_lines_say_how_many_findings_their_nodes_have(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press("2")
        await screen.settled()
        rows = screen.pane("stack")
        assert "53 ✗1 ◆1 " in rows[0]
        assert "✗112 ◆2 ×212" in rows[1]
        for word in (rows[0], screen.text):
            assert "self.log" in word
        await screen.press("m")
        await screen.settled()
        for row in screen.pane("stack"):
            if "self.log" in row:
                assert "53 ✗1 ◆1 " in row
        await screen.press("left_square_bracket")
        await screen.settled()
        lines = [row for row in screen.pane("stack") if "self.log" in row]
        assert "53 ×1 ◇1 " in lines[0], "at this step nothing was found there"


def test_findings_of_lines_are_those_of_their_nodes(dumps: Callable[[str], Path]) -> None:
    """Column by column, and node by node."""
    session = opened_session(dumps(NAN))
    session.add_recommended()
    result = session.check(session.pairs())
    index, nodes = session.stack_index(0), session.nodes(0)
    found = [hit for hit in result.hits if hit.verdict is Verdict.FINDING]
    for step in (0, 3, 5):
        counted = line_hits(index, len(nodes), result, (0, step)).counts
        for file in index.files:
            for line in file.lines:
                rows = set(line.rows.tolist())
                here = [hit for hit in found if hit.row in rows and hit.key.step == step]
                far = [hit for hit in found if hit.row in rows and hit.key.step != step]
                counts = tuple(n for some in (here, far) for n in (len(some), sum(hit.origin for hit in some)))
                assert counted.get((file.path, line.line), (0, 0, 0, 0)) == counts
    assert not line_hits(index, len(nodes), result, (1, 3)).counts, "another rank has none"


async def test_v_opens_the_source(open_screen: OpenScreen) -> None:
    async with open_screen(NAN) as screen:
        await screen.press("n")
        await screen.settled()
        await screen.press("v")
        await screen.settled()
        assert isinstance(screen.app.screen, SourceScreen)


# -- steps -----------------------------------------------------------------------------------------


@pytest.mark.turns("size")
@every_size
async def test_a_step_reset_shows_that_step_and_continue_finds_the_next_hit(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(NAN, size=size, step=0) as screen:
        everything = screen.pane("hits")
        await screen.press("right_square_bracket")
        await screen.settled()
        assert screen.main.state.step == 1
        assert screen.pane("hits") == everything, "what is known of the run stays"
        assert "at step 1: 0" in screen.main.hits_pane.count
        await screen.press("c")
        await screen.settled()
        assert screen.main.state.step == 3
        assert screen.pane("hits")[screen.main.hits_pane.table.cursor_row].startswith("◆ 3 Log")
        await screen.press("left_square_bracket")
        await screen.settled()
        assert screen.main.state.step == 2
        await screen.press("n")
        await screen.settled()
        assert screen.main.state.step == 3, "n goes through the run"
        assert "● steps 0–5 checked" in screen.text


@pytest.mark.turns("size")
@every_size
async def test_hits_of_one_step_only_and_of_all_again(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(NAN, size=size) as screen:
        everything = screen.pane("hits")
        await screen.press("0")
        assert {row.split()[1] for row in screen.pane("hits")} == {"3"}
        await screen.press("left_square_bracket")
        await screen.settled()
        assert screen.pane("hits") == []
        assert "no hit at this step, 914 in the run: 0 shows all steps" in screen.text
        await screen.press("0")
        assert screen.pane("hits") == everything


@pytest.mark.turns("size")
@every_size
async def test_s_asks_for_a_step_and_y_lists_the_history(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press("s")
        assert isinstance(screen.app.screen, StepPrompt)
        await screen.press("4", "enter")
        await screen.settled()
        assert screen.main.state.step == 4
        assert screen.pane("hits")[screen.main.hits_pane.table.cursor_row].split()[1] == "4"
        assert len(screen.pane("hits")) == 914, "what is known of the run stays"
        await screen.press("y")
        assert isinstance(screen.app.screen, HistoryScreen)
        await screen.press("escape")


@pytest.mark.turns("size")
@every_size
async def test_n_steps_forward_stop_at_a_hit(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(NAN, size=size, step=0) as screen:
        await screen.press("F")
        assert isinstance(screen.app.screen, NumberPrompt)
        await screen.press("2", "enter")
        await screen.settled()
        assert screen.main.state.step == 2
        assert "no hit up to step 2" in screen.main.footer.notice
        await screen.press("F", "2", "enter")
        await screen.settled()
        assert screen.main.state.step == 3
        assert len(screen.pane("hits")) == 914, "what is known of the run stays"


async def test_the_ends_of_the_run_say_so(open_screen: OpenScreen) -> None:
    async with open_screen(NAN, step=0) as screen:
        await screen.press("left_square_bracket")
        assert "first dumped step" in screen.main.footer.notice
        await screen.press("less_than_sign")
        assert "first rank" in screen.main.footer.notice
        await screen.press("right_curly_bracket")
        assert "one graph" in screen.main.footer.notice


async def test_starting_at_a_step(open_screen: OpenScreen) -> None:
    async with open_screen(NAN, step=3) as screen:
        assert screen.main.state.step == 3
    async with open_screen(NAN, step=99, rank=7) as screen:
        assert (screen.main.state.rank, screen.main.state.step) == (0, 0)


@pytest.fixture
def two_ranks(dumps: Callable[[str], Path], tmp_path: Path) -> Path:
    """The NaN run twice: rank 1 is a copy of rank 0 that has no step 3."""
    copy = tmp_path / "ranks"
    linked(dumps(NAN), copy)
    (rank,) = [path for path in copy.rglob("rank_0") if path.is_dir()]
    shutil.copytree(rank, rank.with_name("rank_1"), copy_function=os.link)
    for step in [path for path in rank.with_name("rank_1").rglob("3") if path.is_dir()]:
        shutil.rmtree(step)
    return copy


@pytest.mark.turns("size")
@every_size
async def test_ranks_are_switched_by_key_and_the_hit_list_carries_them(
    open_screen: OpenScreen, two_ranks: Path, size: tuple[int, int]
) -> None:
    async with open_screen(two_ranks, size=size) as screen:
        state = screen.main.state
        assert list(screen.session.ranks()) == [0, 1]
        hits = screen.main.hits_pane.hits
        assert {hit.key.rank for hit in hits} == {0, 1}
        await screen.press("n")
        await screen.settled()
        assert (state.rank, state.step) == (0, 3)
        place = screen.main.nodes_pane.current_row
        await screen.press("greater_than_sign")
        await screen.settled()
        assert state.rank == 1
        assert screen.main.hits_pane.hits == hits, "what is known of the run stays"
        assert state.step in {2, 4}
        assert screen.main.nodes_pane.current_row == place
        assert screen.pane("tensors")
        assert "rank 1 of 2 ranks" in screen.main.header.plain
        await screen.press("less_than_sign")
        await screen.settled()
        assert state.rank == 0


@pytest.mark.turns("size")
@every_size
async def test_a_hit_on_another_rank_is_reached_with_n(
    open_screen: OpenScreen, two_ranks: Path, size: tuple[int, int]
) -> None:
    async with open_screen(two_ranks, size=size) as screen:
        state = screen.main.state
        await screen.press("greater_than_sign")
        await screen.settled()
        assert state.rank == 1
        screen.main.hits_pane.table.move_to(0)
        hit = screen.main.hits_pane.current
        assert hit is not None
        assert (hit.key.rank, hit.key.step) == (0, 3), "rank 1 has no step 3"
        await screen.press("n")
        await screen.settled()
        assert (state.rank, state.step) == (0, 3)
        assert screen.main.nodes_pane.current_row == hit.row
        current = screen.main.tensors_pane.current
        assert current is not None
        assert current.hit


# -- watchpoints -----------------------------------------------------------------------------------


async def test_watchpoints_are_disabled_deleted_and_brought_back(open_screen: OpenScreen) -> None:
    async with open_screen(MLP) as screen:
        await screen.press("3")
        rows = screen.pane("watchpoints")
        await screen.press("space")
        assert screen.pane("watchpoints")[0].startswith("○")
        await screen.settled()
        assert "● steps 0–" in screen.main.header.plain, "what is measured already is judged at once"
        await screen.press("space", "d")
        assert len(screen.pane("watchpoints")) == len(rows) - 1
        await screen.press("D")
        assert type(screen.app.screen).__name__ == "RunPrompt", "no key deletes all of them"
        await screen.press("escape")
        screen.main.action_act("clear_watchpoints")
        assert screen.pane("watchpoints") == []
        await screen.press("u", "u")
        await screen.settled()
        assert len(screen.pane("watchpoints")) == len(rows)
        assert "● steps 0–" in screen.main.header.plain


async def test_editing_a_watchpoint_outdates_the_hits_until_a_recheck(open_screen: OpenScreen) -> None:
    async with open_screen(MLP) as screen:
        await screen.press("3", "end", "enter")
        assert isinstance(screen.app.screen, WatchpointForm)
        await screen.press("escape", "f")
        await screen.settled()
        assert screen.main.state.query.watched == screen.main.state.watchpoint
        assert " of " in screen.main.nodes_pane.count
        await screen.press("f")
        await screen.settled()
        assert " of " not in screen.main.nodes_pane.count


async def test_hit_counts_add_up(open_screen: OpenScreen) -> None:
    async with open_screen(MLP) as screen:
        result = screen.main.state.result
        assert result is not None
        findings = sum(r.verdict is Verdict.FINDING for hit in result.hits for r in hit.results)
        counts = [int(row.split()[-1]) for row in screen.pane("watchpoints")]
        assert sum(counts) == findings


# -- damage ----------------------------------------------------------------------------------------


async def test_a_damaged_tensor_says_what_is_wrong_and_the_rest_works(
    open_screen: OpenScreen, dumps: Callable[[str], Path], tmp_path: Path
) -> None:
    copy = tmp_path / "damaged"
    linked(dumps(NAN), copy)
    broken = sorted(copy.rglob("*.npy"))[:400:7]
    for path in broken:
        own(path).write_bytes(path.read_bytes()[:20])
    async with open_screen(copy) as screen:
        assert "unreadable" in screen.main.header.plain
        bad = next(hit for hit in screen.main.hits_pane.hits if hit.verdict is Verdict.CANNOT_JUDGE)
        screen.main.navigator.go_to_hit(bad)
        await screen.settled()
        row = screen.main.tensors_pane.current
        assert row is not None
        assert row.error
        assert row.error.split()[0] in screen.pane("tensors")[screen.main.tensors_pane.table.cursor_row]


async def test_a_growing_dump_grows_on_screen_and_nothing_jumps(
    open_screen: OpenScreen, dumps: Callable[[str], Path], tmp_path: Path
) -> None:
    copy = tmp_path / "growing"
    linked(dumps(NAN), copy)
    (last,) = [path for path in copy.rglob("3") if path.is_dir() and path.parent.name.isdigit()]
    kept = tmp_path / "later"
    last.rename(kept)
    async with open_screen(copy, step=0) as screen:
        assert screen.main.state.step == 0
        steps = len(screen.session.steps(0))
        await screen.press("down", "down", "down")
        place = screen.main.nodes_pane.table.cursor_key
        kept.rename(last)
        screen.main.refreshed(screen.session.refresh())
        await screen.settled()
        assert len(screen.session.steps(0)) == steps + 1
        assert screen.main.nodes_pane.table.cursor_key == place
        await screen.press("c")
        await screen.settled()
        assert screen.main.state.step == 3


@pytest.mark.parametrize("keys", [("down", "down", "down"), ("n",), ("right_square_bracket",)])
async def test_a_pane_that_was_away_shows_what_came_meanwhile(open_screen: OpenScreen, keys: tuple[str, ...]) -> None:
    """One pane at a time: the tensor table follows the node list while it is not on the screen."""
    async with open_screen(NAN, size=(80, 24)) as screen:
        await screen.press("n", "5")
        await screen.settled()
        await screen.press("1")
        await screen.settled()
        await screen.press(*keys)
        await screen.settled()
        await screen.press("1", "5")
        await screen.settled()
        pane = screen.main.tensors_pane
        drawn = "\n".join(strip.text for strip in pane.table.render_lines(pane.table.size.region))
        pane.table.redraw()
        pane.table._set_dirty()
        anew = "\n".join(strip.text for strip in pane.table.render_lines(pane.table.size.region))
        assert drawn == anew
        first = anew.splitlines()[1]
        assert first.rstrip() in screen.text


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_the_path_below_the_stack_is_that_of_its_first_line_whatever_was_shown_before(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    """The cursor stays on the first row while the node, and with it the file, is another."""
    async with open_screen(MLP, size=size) as screen:
        pane = screen.main.stack_pane
        for path in ("/src/first.py", "/src/second.py", "/src/first.py"):
            pane.show_node((Frame(path, 3, "x = f(y)"),), "")
            await screen.pilot.pause()
            assert pane.detail == path
        pane.show_node((), "this node has no source stack")
        await screen.pilot.pause()
        assert not pane.detail


# -- tables ----------------------------------------------------------------------------------------


@every_size
async def test_a_table_that_does_not_fit_says_so_and_keeps_its_names(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    """Names lose their middle and keep the number of the operator; columns out of sight are counted."""
    async with open_screen(NAN, size=size) as screen:
        await screen.press("4", "home")
        hits = [line for line in screen.lines if " out:" in line]
        assert len(hits) > 5
        assert all(re.search(r"-op\d+ ", line) for line in hits), "every name keeps its number"
        await screen.press("5", "end")

        def titles() -> str:
            return [line for line in screen.lines if re.search(r" io +slot ", line)][-1]

        def numbers() -> list[str]:
            return re.sub(r".* (float|int)\d+", "", next(line for line in screen.lines if "✗ out" in line)).split()

        words = re.sub(r".* dtype|(\d+ (more )?)?→.*", "", titles()).split()
        assert len(words) >= len([each for each in numbers() if each.strip("│")]), "no number without a title"
        for _ in range(30):
            hidden = re.search(r" (?:(\d+) more|\+(\d+)) →", titles())
            if hidden is None:
                break
            assert int(hidden[1] or hidden[2]) > 0
            await screen.press("right")
        assert "→" not in titles()
        assert " from " in titles()
        assert any(re.search(r"✗ out +0 ", line) for line in screen.lines), "what names a row stays"
