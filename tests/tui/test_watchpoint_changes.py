"""No watchpoint changes silently: Space says what it does before and after, every change is undone with one key."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sources.memory import MemorySource, Op
from tests.tui.conftest import OpenScreen
from tests.tui.driver import Driver, opened_by
from tests.tui.sizes import every_size
from tui_debugger.model import NodeKind, NodeSelection, NodeSelector, ProgressFn, Watchpoint
from tui_debugger.session import Session
from tui_debugger.session.watchpoints import WatchpointStore, read_watch_file
from tui_debugger.sources.registry import open_source
from tui_debugger.text.hits import selection_words
from tui_debugger.tui.cells import ResultCounts
from tui_debugger.tui.dialogs.prompts import ConfirmScreen
from tui_debugger.tui.dialogs.watchpoint_form import WatchpointForm
from tui_debugger.tui.watcher import SelectionEditor, space_target
from tui_debugger.watch.text import parse_selection, parse_watch

NAN, MLP = "mindspore-2.0-nan", "mindspore-2.0-mlp"


def items(screen: Driver) -> tuple[Watchpoint, ...]:
    return screen.session.watchpoints.items()


async def select(screen: Driver, condition: str) -> Watchpoint:
    """Puts the cursor on the first watchpoint of a condition, then on the third entry of the node tree."""
    found = next(each for each in items(screen) if each.condition == condition)
    screen.main.watchpoints_pane.table.move_to_key(found.id)
    await screen.press_each("1", "g", "down", "down", "down")
    return found


# -- Space -----------------------------------------------------------------------------------------


@pytest.mark.turns("size")
@every_size
async def test_space_says_what_it_does_before_and_after(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(NAN, size=size) as screen:
        watched = await select(screen, "tensor_overflow")
        before, covered = items(screen), screen.session.watch_state(0, watched.id).sum()
        assert "Space takes 4 nodes out of TO #4" in screen.text
        await screen.press_each("space")
        assert screen.session.watch_state(0, watched.id).sum() == covered - 4
        assert "4 nodes taken out of TO #4 tensor overflow; u undoes" in screen.text
        await screen.press_each("down")
        assert "Space adds it to TO #4" in screen.text
        await screen.press_each("space")
        assert "Abs-op379 added to TO #4 tensor overflow; u undoes" in screen.text
        await screen.press_each("u")
        assert "undone: Abs-op379 added to TO #4 tensor overflow; U redoes" in screen.text
        await screen.press_each("u")
        assert "undone: 4 nodes taken out of TO #4 tensor overflow; U redoes" in screen.text
        assert items(screen) == before
        await screen.press_each("up")
        assert "Space takes 4 nodes out of TO #4" in screen.text


@pytest.mark.turns("size")
@every_size
async def test_space_asks_before_nodes_of_another_kind_come_in(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(NAN, size=size) as screen:
        before = items(screen)
        await screen.press_each("1", "g")
        assert "Space adds 124 nodes to WCL #1" in screen.text
        for refusal in ("enter", "n", "escape"):
            await screen.press_each("space")
            assert isinstance(screen.app.screen, ConfirmScreen)
            assert "WCL #1 weight change too large looks at 17 nodes: weights without" in screen.text
            assert "124 are of another kind: 81 operators" in screen.text
            await screen.press_each(refusal)
            assert items(screen) == before
            assert screen.app.screen is screen.main
        await screen.press_each("space", "y")
        assert screen.main.footer.notice.startswith("124 nodes added to WCL #1 weight change too large; u undoes")
        assert screen.session.watch_state(0, 1).sum() == 17 + 124
        await screen.press_each("u")
        assert items(screen) == before


@pytest.mark.turns("size")
@every_size
async def test_in_a_search_space_on_a_scope_is_about_the_nodes_that_are_shown(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(NAN, size=size) as screen:
        await select(screen, "tensor_overflow")
        before, covered = items(screen), screen.session.watch_state(0, 4)
        await screen.press_each("1", "slash", *"RowNorm", "enter", "g")
        assert screen.main.nodes_pane.scopes is not None
        assert "Space takes 4 nodes out of TO #4" in screen.text
        assert screen.main.nodes_pane.scopes.path(screen.main.nodes_pane.current) == "Default"
        await screen.press_each("space")
        assert "4 nodes taken out of TO #4 tensor overflow; u undoes" in screen.text
        nodes = screen.session.nodes(0)
        out = np.flatnonzero(covered & ~screen.session.watch_state(0, 4))
        assert all("norm-RowNorm" in nodes.names[row] or nodes.names[row] == "inputs0" for row in out.tolist())
        await screen.press_each("down", "up")
        assert "Space adds 4 nodes to TO #4" in screen.text
        await screen.press_each("space")
        assert (screen.session.watch_state(0, 4) == covered).all()
        await screen.press_each("u", "u")
        assert items(screen) == before


async def test_a_watchpoint_that_is_made_in_a_search_is_about_the_nodes_that_are_shown(open_screen: OpenScreen) -> None:
    async with open_screen(NAN, recommended=False) as screen:
        await screen.press_each("1", "slash", *"RowNorm", "enter", "g", "space")
        assert isinstance(screen.app.screen, WatchpointForm)
        await screen.type("to")
        await screen.press_each("f2", "enter")
        (made,) = items(screen)
        names = [screen.session.nodes(0).names[row] for row in np.flatnonzero(screen.session.watch_state(0, made.id))]
        assert len(names) == 4
        assert all("norm-RowNorm" in name or name == "inputs0" for name in names)


async def test_a_single_node_and_nodes_of_the_same_kind_need_no_question(open_screen: OpenScreen) -> None:
    async with open_screen(NAN) as screen:
        await select(screen, "weight_change_too_large")
        await screen.press_each("down", "space")
        assert screen.app.screen is screen.main
        assert "added to WCL #1" in screen.main.footer.notice
        await select(screen, "tensor_overflow")
        await screen.press_each("space", "space")
        assert screen.app.screen is screen.main
        assert "4 nodes added to TO #4" in screen.main.footer.notice


async def test_space_says_why_it_can_do_nothing(open_screen: OpenScreen) -> None:
    async with open_screen(NAN, recommended=False) as screen:
        await screen.press_each("1", "g")
        assert "Space makes a watchpoint of it" in screen.text
        screen.session.watchpoints.add(*parse_watch("TO @ category=tensor, -category=tensor"))
        screen.main.watcher.show_list()
        await screen.settled()
        assert "Space" not in screen.main.nodes_pane.detail
        await screen.press_each("space")
        assert "an expression of TO #1 leaves it out; W edits" in screen.main.footer.notice
        await screen.press_each("end", "space")
        assert "constants have no values" in screen.main.footer.notice


def words_of(path: str) -> str:
    return path.rpartition("/")[2].split("-")[0]


@pytest.mark.parametrize("every", [0, 3], ids=["all nodes", "a search shows some"])
@pytest.mark.parametrize("name", [NAN, MLP])
def test_what_space_announces_is_what_it_does(dumps: Callable[[str], Path], name: str, every: int) -> None:
    """For scopes of every depth and a node of each type, in the recommended watchpoints and some with exceptions."""
    session = Session(open_source(dumps(name)))
    session.open()
    session.add_recommended()
    for text in (
        "TO @ scope=Default, -category=parameter, -re=Mul",
        "TO @ category=tensor, -scope=Default/network-WithLossCell, -type=Add",
        "WL max_gt=1 @",
    ):
        session.watchpoints.add(*parse_watch(text))
    nodes, tree = session.nodes(0), session.tree(0)
    shown = np.arange(len(tree)) % every == 0 if every else None
    editor = SelectionEditor(nodes, tree, shown)
    scopes = [index for index in range(len(tree)) if tree.is_scope(index)]
    some = {words_of(tree.path(index)): index for index in range(len(tree)) if not tree.is_scope(index)}
    for watchpoint in session.watchpoints.items():
        target = space_target(session, 0, watchpoint)
        for index in (*scopes[watchpoint.id % 4 :: 4], *list(some.values())[watchpoint.id % 4 :: 4]):
            adds, count = target.change(tree, index, editor.part(index))
            edited = editor.toggled(watchpoint.selection, index, target)
            before = session.selection_mask(0, watchpoint.selection)
            after = session.selection_mask(0, edited) if count else before
            below = tree.rows_below(index, editor.part(index))
            assert int((before ^ after).sum()) == count
            assert bool((after & ~before).any()) == (adds and count > 0)
            assert (before == after)[[row for row in range(len(nodes)) if row not in below]].all()


# -- undo ------------------------------------------------------------------------------------------


async def by_form(screen: Driver) -> None:
    await screen.press_each("w")
    assert isinstance(screen.app.screen, WatchpointForm)
    await screen.type("tz")
    await screen.press_each("enter")


async def by_editing(screen: Driver) -> None:
    await screen.press_each("3", "g", "W")
    await screen.type("5")
    await screen.press_each("enter")


async def by_file(screen: Driver) -> None:
    path = Path("set.toml")
    path.write_text("[[watchpoint]]\nwatch = 'TL max_gt=1'\n[[watchpoint]]\nwatch = 'TS max_lt=1'\nenabled = false\n")
    screen.main.action_act("load_watchpoints")
    await screen.settled()
    screen.app.screen.query_one("#text").value = str(path)  # type: ignore[attr-defined] # a path is long to type
    await screen.press_each("enter")


async def by_palette(screen: Driver) -> None:
    screen.main.action_act("clear_watchpoints")
    await screen.settled()


def by(*keys: str) -> Callable[[Driver], object]:
    async def pressed(screen: Driver) -> None:
        await screen.press_each(*keys)

    return pressed


CHANGES = {
    "TZ #7 added": by_form,
    "WCL #1 edited": by_editing,
    "2 watchpoints added": by_file,
    "WCL #1 disabled": by("3", "g", "space"),
    "WCL #1 deleted": by("3", "g", "d"),
    "6 watchpoints deleted": by_palette,
    "Log-op381 added to WCL #1 weight change too large": by("1", "space"),
}


@pytest.mark.turns("size")
@every_size
async def test_a_changed_watchpoint_is_judged_at_once_where_the_statistics_are_known(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(NAN, size=size) as screen:
        hits = screen.main.hits_pane

        def found() -> list[int]:
            """How many findings each watchpoint has, as its row says."""
            assert screen.main.state.tally is not None
            return [screen.main.state.tally.by_watchpoint.get(each.id, 0) for each in items(screen)]

        before = found()
        await screen.press_each("w")
        await screen.type("tl")
        await screen.press("enter")
        await screen.press("down")
        await screen.type("10")
        await screen.press_each("enter")
        assert "● steps 0–5 checked" in screen.lines[2]
        assert found()[:6] == before
        many = found()[6]
        assert many > 0
        assert hits.count.startswith(f"{screen.main.state.result.hits.findings} ")  # type: ignore[union-attr] # checked
        await screen.press_each("3", "end", "W", "down", "end", "0", "enter")
        assert "max > 100" in screen.pane("watchpoints")[6]
        assert "● steps 0–5 checked" in screen.lines[2]
        assert 0 < found()[6] < many


@pytest.mark.turns("size")
@every_size
async def test_every_change_says_what_it_did_and_is_undone_and_done_again(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(NAN, size=size) as screen:
        before, hits = items(screen), screen.pane("hits")
        await screen.press_each("u")
        assert "nothing to undo" in screen.main.footer.notice, "what is there at the start is nobody's change"
        for words, change in CHANGES.items():
            await change(screen)  # type: ignore[misc] # coroutines of two kinds
            after = items(screen)
            assert after != before
            assert re.search(rf"{re.escape(words)}(: [\d,]+ nodes?, [\d,]+ hits?)?; u undoes", screen.text)
            await screen.press_each("u")
            assert items(screen) == before
            assert f"undone: {words}; U redoes" in screen.text
            await screen.press_each("U")
            assert items(screen) == after
            assert f"done again: {words}; u undoes" in screen.text
            await screen.press_each("u")
            assert items(screen) == before
        assert screen.pane("hits") == hits, "the hits are those of the list again"
        await screen.press_each("3", "d", "a", "U")
        assert "nothing to do again" in screen.main.footer.notice


async def test_undo_works_from_every_pane(open_screen: OpenScreen) -> None:
    async with open_screen(NAN) as screen:
        before = items(screen)
        for pane in ("1", "2", "3", "4", "5"):
            await screen.press_each("3", "d", pane, "u")
            assert items(screen) == before
        await screen.press_each("4", "enter", "g", "U")
        assert len(items(screen)) == len(before) - 1
        assert "u undoes" in screen.main.footer.notice


async def test_a_deleted_watchpoint_comes_back_under_the_cursor(open_screen: OpenScreen) -> None:
    async with open_screen(NAN) as screen:
        await screen.press_each("3", "down", "d", "end", "u")
        assert screen.main.state.watchpoint == 2


async def test_what_was_undone_is_not_there_the_next_time(dumps: Callable[[str], Path], tmp_path: Path) -> None:
    def open_session(progress: ProgressFn) -> Session:
        session = Session(open_source(dumps(NAN)), store=WatchpointStore(str(dumps(NAN)), tmp_path))
        session.open(progress)
        return session

    async with opened_by(open_session, title="run", recommended=None) as screen:
        kept = items(screen)
        assert len(kept) == 6
        await screen.press_each("3", "d", "u")
    (file,) = tmp_path.glob("*.toml")
    assert read_watch_file(file) == kept
    async with opened_by(open_session, title="run", recommended=None) as screen:
        assert items(screen) == kept
        await screen.press_each("u")
        assert items(screen) == kept, "the changes of another session are not undone"


async def test_the_recommended_ones_that_came_by_themselves_can_be_undone(open_screen: OpenScreen) -> None:
    async with open_screen(NAN, recommended=None) as screen:
        assert len(items(screen)) == 6
        await screen.press_each("u")
        assert items(screen) == ()
        assert "undone: 6 watchpoints added; U redoes" in screen.main.footer.notice


# -- the list --------------------------------------------------------------------------------------


@every_size
async def test_the_list_shows_words_and_never_an_expression(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(NAN, size=size) as screen:
        screen.session.watchpoints.add(*parse_watch(r"TO @ category=tensor, -re=(a|b)\w*[0-9]$, -fc1"))
        screen.main.watcher.show_list()
        await screen.press_each("3", "g")
        for watchpoint in items(screen):
            detail = screen.main.watchpoints_pane.detail
            assert detail.startswith(watchpoint.condition.replace("_", " ")[:15])
            assert detail in screen.text
            assert not set("()[]\\*$^|") & set(detail)
            await screen.press_each("down")
        await screen.press_each("g")
        if size[0] != 120:
            assert detail.startswith("tensor overflow: all tensors without names by an expression")
            assert "weight change too large: weights without biases · 51 not judged: NaN" in screen.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("category=weight, -re=bias$", "weights without names that end in bias"),
        ("^fc1", "names that begin with fc1"),
        (r"^fc1\.weight$", "the name fc1.weight"),
        ("fc1, fc2", "names with fc1, names with fc2"),
        ("fc[12], ~x|y", "names by an expression"),
        ("scope=Default/net, node=a, node=b", "Default/net, a, b"),
        ("node=a, node=b, node=c, scope=x, scope=y, scope=z", "3 scopes, 3 nodes by name"),
        ("type=ReLU, type=Tanh, -category=gradient", "ReLU, Tanh operators without gradients"),
        ("", "no nodes"),
    ],
)
def test_selections_in_words(text: str, words: str) -> None:
    assert selection_words(parse_selection(text), raw=False) == words


@given(st.text(max_size=12))
def test_no_expression_is_shown_raw(pattern: str) -> None:
    words = selection_words(NodeSelection((NodeSelector(NodeKind.REGEX, pattern),)), raw=False)
    if words != "biases":
        assert not set("()[]{}\\*+?$^|") & set(words)


@pytest.mark.turns("size")
@every_size
async def test_counts_stand_at_once_and_whole(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press_each("3")
        line = next(line for line in screen.lines if " TO " in line and "tensor over" in line)
        assert " 265 " in line
        assert " 910" in line
        tally = ResultCounts(1, {1: 1234567, 2: 0}, {}, ())
        screen.main.watchpoints_pane.show(items(screen), {1: 7654321}, tally, outdated=True)
        await screen.pilot.pause()
        assert "(1,234,567)" in screen.text
        assert "7,654,321" in screen.text
        rows = screen.pane("watchpoints")
        assert "(0)" in rows[1], "it was looked for and not found, by the older list"
        assert all(row.split()[-1] == "–" for row in rows[2:]), "these were not checked"


async def test_a_new_watchpoint_of_a_large_run_is_not_said_to_have_no_hits(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_screen(NAN) as screen:
        monkeypatch.setattr("tui_debugger.tui.checker.QUICK", -1)
        await by_form(screen)
        new = screen.pane("watchpoints")[-1]
        assert "tensor all zero" in new
        assert new.rstrip().endswith("–")
        assert "(910)" in screen.pane("watchpoints")[3]


async def test_what_could_not_be_judged_is_told_below_where_there_is_no_column_for_it(open_screen: OpenScreen) -> None:
    async with open_screen(NAN, size=(120, 40)) as screen:
        assert "not judged " not in "\n".join(line[:46] for line in screen.lines if "condition" in line)
        assert "weight change too large · 51 not judged" in screen.text, "the name whole, then what there is room for"
        await screen.pilot.resize_terminal(200, 50)
        await screen.settled()
        assert "not judged" in next(line for line in screen.lines if "condition" in line)


# -- hits ------------------------------------------------------------------------------------------


@pytest.mark.turns("size")
@every_size
async def test_the_numbers_of_a_search_in_the_hits_add_up(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press_each("4", "slash")
        await screen.type("weight")
        await screen.settled()
        hits = screen.main.hits_pane
        rows = screen.pane("hits")
        assert hits.count.startswith(f"{len(rows)} of 914 · at step 3: ")
        here = sum(row.split()[1] == "3" for row in rows)
        assert f"at step 3: {here} of 314" in hits.count
        await screen.press_each("enter", "m")
        more = len(screen.pane("hits")) - len(rows)
        assert more > 0
        assert hits.count.startswith(f"{len(rows)} of 914 · ")
        assert f"{more} without a finding" in hits.count


@pytest.mark.turns("size")
@every_size
async def test_the_hit_under_the_cursor_says_its_conditions_in_words(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press_each("4", "g")
        assert "Log-op381 · tensor overflow" in screen.text
        await screen.press_each("f")
        assert "TO #4 tensor overflow" in screen.text


async def test_two_graphs_with_nodes_of_one_name() -> None:
    ops = [Op("Exp-op1", graph="a"), Op("Log-op2", graph="a"), Op("Exp-op1", graph="b")]

    def open_session(_: ProgressFn) -> Session:
        session = Session(MemorySource({0: {0: {}}}, ops=ops))
        session.open()
        session.watchpoints.add(*parse_watch("TO"))
        return session

    async with opened_by(open_session, title="run", recommended=False) as screen:
        await screen.press_each("1", "g")
        assert "Space takes 2 nodes out of TO #1" in screen.text
        await screen.press_each("space")
        assert screen.session.watch_state(0, 1).tolist() == [0, 0, 1]


@every_size
async def test_a_comparison_is_a_watchpoint_in_a_few_keys_and_the_screen_says_what_it_found(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press("w")
        await screen.type("max>100")
        assert "--watch 'TL max_gt=100'" in screen.text
        await screen.press_each("enter")
        made = items(screen)[-1]
        assert (made.condition, made.params) == ("tensor_too_large", (("max_gt", 100.0),))
        assert screen.main.footer.notice == f"TL #{made.id} added: 265 nodes, 5 hits; u undoes"
