"""The comparison on real dumps: the answer, the table, the list, another other side, tolerance, what leaves it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.session.opened import opened as opened_session
from tests.sources.writer import MLP, write_dump
from tests.tui.conftest import OpenScreen
from tests.tui.screens_host import Opened
from tests.tui.screens_host import opened as opened_screen
from tests.tui.sizes import every_size
from tests.tui.views.host import PlainHost
from tui_debugger.errors import CancelledError
from tui_debugger.model import Side as SideOf
from tui_debugger.model import TensorKey
from tui_debugger.session import Session
from tui_debugger.tui.dialogs.prompts import ChoiceScreen, PathPrompt, completion
from tui_debugger.tui.views.compare import COMPARE_ACTIONS, CompareView
from tui_debugger.tui.views.compare_panes import CellContent
from tui_debugger.tui.views.registry import ViewTarget

Dumps = Callable[[str], Path]
NAN = "mindspore-2.0-nan"
DIV = "Default/network-WithLossCell/_backbone-Net/norm-RowNorm/Div-op385"
RELU = MLP.nodes[1].name
BY_NAME, BY_FILE = ("w", *"name", "enter"), ("w", *"npy", "enter")


class View:
    """A comparison in front of a person."""

    def __init__(self, screen: CompareView, at: Opened, host: PlainHost) -> None:
        self.screen, self.at, self.host = screen, at, host

    async def press(self, *keys: str) -> None:
        await self.at.press(*keys)
        await self.at.pilot.pause()

    @property
    def text(self) -> str:
        return self.at.text

    @property
    def lines(self) -> list[str]:
        return [line.strip() for line in self.at.lines]

    @property
    def other(self) -> TensorKey:
        side = self.screen.other
        assert side is not None
        assert side.key is not None
        return side.key


@asynccontextmanager
async def comparing(session: Session, node: str, step: int, size: tuple[int, int] = (200, 50)) -> AsyncIterator[View]:
    nodes = session.nodes(0)
    row = next(row for row, name in enumerate(nodes.names) if name == node)
    key = TensorKey(0, nodes.graph_of(row).name, node, SideOf.OUTPUT, 0, step)
    host = PlainHost(session)
    screen = CompareView(host, ViewTarget(key, row))
    async with opened_screen(screen, size) as at:
        yield View(screen, at, host)
    session.close()


@pytest.fixture
def nan(dumps: Dumps) -> Session:
    return opened_session(dumps(NAN))


@pytest.fixture
def small(tmp_path: Path) -> Session:
    return opened_session(write_dump(tmp_path / "dump", ranks=(0, 1)).root)


# -- what it says ----------------------------------------------------------------------------------


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [(200, 50), (80, 24)])
async def test_against_the_previous_step_at_once(nan: Session, size: tuple[int, int]) -> None:
    async with comparing(nan, DIV, 3, size) as view:
        assert "here   step 3  rank 0  kernel_graph_0  float32 4×8×16" in view.text
        assert "there  step 2  float32 4×8×16" in view.text
        assert "✗ different: 512 of 512 (100 %)" in view.text
        assert "sign flips 198  NaN only here 128" in view.text
        assert "max |d| 0.31489" in view.text
        assert "slice [0, :, :]" in view.text
        here, there = (nan.read(replace(view.other, step=step))[0, 0, 0] for step in (3, 2))
        assert f"[0, 0, 0]  here {here!s}  there {there!s}" in view.text
        view.at.check_clean()


@pytest.mark.turns("columns")
@pytest.mark.parametrize("columns", [200, 120, 80])
async def test_the_element_under_the_cursor_is_whole_or_visibly_cut(nan: Session, columns: int) -> None:
    async with comparing(nan, DIV, 3, (columns, 24)) as view:
        (line,) = [line for line in view.lines if line.startswith("[0, 0, 0]  here")]
        assert " ULP" in line if columns > 80 else line.endswith("…")


async def test_three_lines_for_each_row(nan: Session) -> None:
    async with comparing(nan, DIV, 3) as view:
        first = [line[0] for line in view.lines if line.startswith(("0 ", "· ", "Δ "))]
        assert first[1:7] == ["0", "·", "Δ", "·", "Δ", "·"], "below the line of column numbers"
        await view.press("down", "down")
        assert view.screen.table.cursor_index == (0, 2, 0)
        await view.press("right", "pagedown")
        assert view.screen.table.cursor_index == (0, 7, 1)
        await view.press("home", "g")
        assert view.screen.table.cursor_index == (0, 0, 0)
        await view.press("G", "end")
        assert view.screen.table.cursor_index == (0, 7, 15)


async def test_numbers_of_both_and_of_the_difference(nan: Session) -> None:
    async with comparing(nan, DIV, 3, (80, 24)) as view:
        assert "mean |x|" not in view.text
        await view.press("tab")
        assert "mean |x|" in view.text
        assert "Largest 100 by absolute error" in view.text
        names = [line.split()[0] for line in view.lines if line.startswith(("here ", "there ", "d "))]
        assert names == ["here", "there", "here", "there", "d"]
        await view.press("tab")
        assert "slice [0, :, :]" in view.text


# -- the largest differences -----------------------------------------------------------------------


async def test_the_list_leads_to_the_element_whatever_the_slice_shows(nan: Session) -> None:
    async with comparing(nan, DIV, 3) as view:
        await view.press("n")
        assert view.screen.table.cursor_index == (2, 0, 0)
        assert "slice [2, :, :]" in view.text
        assert "NaN!" in view.text
        await view.press("n")
        assert view.screen.table.cursor_index == (2, 0, 1)
        await view.press("N")
        assert view.screen.table.cursor_index == (2, 0, 0)
        await view.press("tab", "end", "G", "enter")
        found = view.screen.found
        assert found is not None
        assert view.screen.table.cursor_index == found.by_abs[-1].index
        assert view.screen.table.grid.has_focus


async def test_the_order_of_the_list(nan: Session) -> None:
    async with comparing(nan, DIV, 3) as view:
        found = view.screen.found
        assert found is not None
        for name, entries in (("relative error", found.by_rel), ("units in the last place", found.by_ulp)):
            await view.press("comma")
            assert f"Largest 100 by {name}" in view.text
            assert view.screen.largest.table.rows.key(60) == entries[60].index


# -- another other side ----------------------------------------------------------------------------


async def test_steps_and_ranks_by_key(small: Session) -> None:
    async with comparing(small, RELU, 2) as view:
        assert view.other.step == 1
        await view.press("(")
        assert view.other.step == 0
        assert "there  step 0" in view.text
        await view.press("(")
        assert (view.other.step, "no earlier step has it" in view.text) == (0, True)
        await view.press(")")
        assert view.other.step == 1
        await view.at.command("other_rank(1)")
        assert (view.other.rank, view.other.step) == (1, 1)
        assert "there  rank 1  step 1" in view.text
        await view.at.command("other_rank(-1)")
        assert view.other.rank == 0


async def test_a_step_from_the_list(small: Session) -> None:
    async with comparing(small, RELU, 2) as view:
        await view.press("w")
        assert isinstance(view.at.app.screen, ChoiceScreen)
        assert "▶ step 1" in view.text
        await view.press(*"step", "space", "0", "enter")
        assert view.other.step == 0


async def test_another_tensor_by_a_part_of_its_name(small: Session) -> None:
    async with comparing(small, RELU, 2) as view:
        await view.press(*BY_NAME, *"matmul", "enter")
        assert view.other.node == MLP.nodes[0].name
        assert "MatMul-op1:out:0  step 2" in view.text
        await view.press(*BY_NAME, *"fc", "enter")
        assert "Which one?" in view.text
        await view.press(*"accum", "enter")
        assert view.other.node == "accum.fc1.weight"
        await view.press(*BY_NAME, *"nosuch", "enter")
        assert "no node is called 'nosuch'" in view.text


async def test_a_file_and_another_run(small: Session, tmp_path: Path) -> None:
    key_values = np.zeros((2, 3), np.float32)
    np.save(tmp_path / "zeros.npy", key_values)
    shutil.copytree(tmp_path / "dump", tmp_path / "other")
    async with comparing(small, RELU, 2) as view:
        await view.press(*BY_FILE)
        assert isinstance(view.at.app.screen, PathPrompt)
        await view.press(*_keys(f"{tmp_path}/zer"), "tab", "enter")
        assert f"there  {tmp_path}/zeros.npy" in view.text
        assert view.screen.found is not None
        assert view.screen.found.there.zero == 6
        await view.press("w", *"run", "enter", *_keys(f"{tmp_path}/other"), "enter")
        assert f"there  run {tmp_path}/other  step 2" in view.text
        assert "= equal: all 6 elements" in view.text
        await view.press("(")
        assert f"there  run {tmp_path}/other  step 1" in view.text


def _keys(text: str) -> list[str]:
    return [{"/": "slash", "-": "minus", "_": "underscore", ".": "full_stop"}.get(char, char) for char in text]


async def test_other_shapes_are_asked_about(small: Session, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(6))
    async with comparing(small, RELU, 2) as view:
        for answer in ("n", "y"):
            await view.press(*BY_FILE, *_keys(f"{tmp_path}/x.npy"), "enter")
            assert "They can be compared element by element, in C order." in view.text
            await view.press(answer)
            assert (view.screen.found is not None) == (answer == "y")
        assert "(element by element in C order)" in view.text


async def test_nothing_before_the_first_step(small: Session) -> None:
    async with comparing(small, RELU, 0) as view:
        assert "there is no step before 0" in view.text
        assert "there  –" in view.text, "nothing is on its way any more"
        assert "rank 0 has it at steps 1,2" in view.text
        assert "w chooses another" in view.text
        await view.press("n", "t", "down", "s", "T", "escape", "comma", "Y")
        await view.press("w", *"step", "space", "2", "enter")
        assert view.other.step == 2
        assert view.screen.found is not None


# -- tolerance, heat map, formats ------------------------------------------------------------------


async def test_the_tolerance_decides_what_is_different(small: Session) -> None:
    async with comparing(small, RELU, 2) as view:
        found = view.screen.found
        assert found is not None
        await view.press("T", *["backspace"] * 9, *_keys("atol=100"), "enter")
        assert "= equal within the tolerance: 6 of 6 (100 %) differ by less" in view.text
        assert "tolerance |d| ≤ 100" in view.text
        await view.press("T", *["backspace"] * 20, *_keys("rtol=-1"), "enter")
        assert "out of range" in view.text
        await view.press("escape")
        assert view.screen.tolerance.atol == 100
        await view.press("T", *["backspace"] * 20, "enter")
        assert view.screen.tolerance.exact
        await view.press(*["a"] * 8)
        now = view.screen.found
        assert now is not None
        assert (now.tolerance.percent, now.boundary) == (50, found.max_abs and found.max_abs * 0.5)
        assert f"{now.outside} of 6" in view.text
        await view.press(*["A"] * 20)
        assert view.screen.tolerance.exact


async def test_the_heat_map_shows_the_difference_and_the_cursor_stays(nan: Session) -> None:
    async with comparing(nan, DIV, 3) as view:
        await view.press("n", "right", "t")
        table = view.screen.table
        assert table.mapped
        assert table.cursor_index == (2, 0, 1)
        assert "NaN 128" in view.text
        await view.press("down", "right")
        assert table.cursor_index == (2, 1, 2)
        await view.press("enter")
        assert not view.screen.table.mapped
        assert table.cursor_index == (2, 1, 2)


async def test_one_of_four_things_in_the_cells(nan: Session) -> None:
    async with comparing(nan, DIV, 3) as view:
        await view.press("down", "right")
        for shown in (CellContent.DIFFERENCE, CellContent.HERE, CellContent.THERE, CellContent.ALL):
            await view.press("m")
            assert view.screen.table.shown is shown
            assert view.screen.table.cursor_index == (0, 1, 1), "the cursor stays on its element"
        await view.at.command("scientific")
        await view.press("plus", "plus", "minus")
        assert view.screen.table.grid.form.scientific
        assert view.screen.table.grid.form.precision == 5


async def test_slices(nan: Session) -> None:
    async with comparing(nan, DIV, 3) as view:
        await view.press("]")
        assert "slice [1, :, :]" in view.text
        await view.press("s", "end", *["backspace"] * 20, "0", "comma", "2", "comma", "colon", "enter")
        assert "slice [0, 2, :]" in view.text
        assert view.screen.table.cursor_index == (0, 2, 0)
        await view.press("s", "end", *["backspace"] * 20, "9", "enter")
        assert "entries" in view.text
        await view.press("escape")
        assert "slice [0, 2, :]" in view.text
        assert view.at.open


# -- work, other views, handing out ----------------------------------------------------------------


async def test_a_comparison_that_was_stopped_leaves_the_table(small: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    from tui_debugger.diagnose import compare as headless

    def stopped(*_: object, **__: object) -> None:
        raise CancelledError("stopped")

    monkeypatch.setattr(headless, "compare", stopped)
    async with comparing(small, RELU, 2) as view:
        assert "r compares them" in view.text
        assert "slice [:, :]" in view.text
        monkeypatch.undo()
        await view.press("r")
        assert "✗ different" in view.text


async def test_a_heat_map_that_comes_first_does_not_lose_the_comparison(small: Session) -> None:
    async with comparing(small, RELU, 2) as view:
        screen, couple = view.screen, view.screen.couple
        assert couple is not None
        drawn: list[object] = []
        screen.found, screen._unfinished = None, lambda: screen._compare(couple)
        screen._work_of_heat("drawing", lambda _: "picture", drawn.append)
        await view.press("down")
        assert drawn == ["picture"]
        assert screen.found is not None


async def test_other_views_open_on_the_tensor_that_is_shown(small: Session) -> None:
    async with comparing(small, RELU, 2) as view:
        await view.press("H")
        await view.press("m", "m", "m", "right", "enter")
        (trend, at), (values, other) = view.host.opened
        assert (trend, at.key.step) == ("trend", 2)
        assert (values, other.key.step, other.at) == ("values", 1, (0, 1))


async def test_everything_it_says_can_be_handed_out(nan: Session) -> None:
    async with comparing(nan, DIV, 3) as view:
        await view.press("n")
        extract = view.screen.extract()
        assert extract is not None
        assert extract.stem == "Div-op385.out0.rank0.step3.compare"
        for part in ("here   step 3", "there  step 2", "NaN only here 128", "mean |x|", "[2, 0, 0]"):
            assert part in extract.text
        assert extract.one.startswith("[2, 0, 0] here NaN  there 0.07533826")
        assert extract.header[0] == "index"
        assert len(extract.rows) == 100
        assert extract.array is not None
        pair = [nan.read(replace(view.other, step=step)).astype(np.float64)[2] for step in (3, 2)]
        assert np.array_equal(extract.array(), pair[0] - pair[1], equal_nan=True)


async def test_every_key_of_the_view_does_no_harm(small: Session) -> None:
    async with comparing(small, RELU, 2, (80, 24)) as view:
        for action in COMPARE_ACTIONS:
            for key in action.keys:
                await view.press(key)
                while view.at.app.screen is not view.screen:
                    await view.press("escape")
                if view.screen.table.slice_bar.editing:
                    await view.press("escape")
                assert view.at.open, key
        view.at.check_clean()


async def test_from_a_hit_in_the_whole_program(open_screen: OpenScreen) -> None:
    async with open_screen(NAN, size=(200, 50)) as screen:
        await screen.press("4", "C")
        await screen.until(lambda: "Inf only here 1" in screen.text)
        assert "Compare out:0  Default/network-WithLossCell/_backbone-Net/Log-op381" in screen.text
        await screen.press("escape")
        await screen.until(lambda: "Compare out:0" not in screen.text)


# -- completion ------------------------------------------------------------------------------------


def test_paths_are_completed(tmp_path: Path) -> None:
    (tmp_path / "golden").mkdir()
    (tmp_path / "golden" / "b.npy").touch()
    (tmp_path / "golden" / "a.txt").touch()
    (tmp_path / "golden" / ".hidden.npy").touch()
    assert completion(f"{tmp_path}/go", ".npy") == f"{tmp_path}/golden/"
    assert completion(f"{tmp_path}/golden/", ".npy") == f"{tmp_path}/golden/b.npy"
    assert completion(f"{tmp_path}/golden/", "/") is None
    assert completion(f"{tmp_path}/golden/.h", ".npy") == f"{tmp_path}/golden/.hidden.npy"
    assert completion("", ".npy") is None
    assert completion("~nobody-has-this-name/x", ".npy") is None
    assert completion("/no/such/place/x", ".npy") is None


@pytest.mark.parametrize("keys", [BY_FILE, ("w", *"run", "enter")])
async def test_a_path_that_cannot_be_is_refused_while_it_is_typed(small: Session, keys: tuple[str, ...]) -> None:
    async with comparing(small, RELU, 2) as view:
        await view.press(*keys)
        await view.press("tilde", *"isnobodyhere", "slash", "enter")
        assert isinstance(view.at.app.screen, PathPrompt)
        assert "not a usable path" in view.text


@pytest.mark.turns("size")
@every_size
async def test_a_search_walks_the_difference_or_the_tensor_that_is_shown(nan: Session, size: tuple[int, int]) -> None:
    async with comparing(nan, DIV, 3, size) as view:
        await view.press("/", "n", "a", "n", "enter")
        assert view.screen.table.cursor_index == (2, 0, 0), "NaN here and a number there"
        await view.press("n")
        assert view.screen.table.cursor_index == (2, 0, 1)
        await view.press("escape")
        assert view.screen.table.cursor_index == (0, 0, 0)
        await view.press("m", "m", "m", "/", "n", "a", "n", "enter")
        assert "no element is nan" in view.text, "the other tensor has none"
        await view.press("escape", "n")
        assert view.screen.table.cursor_index == (2, 0, 0), "the largest difference, as before"


async def test_a_search_in_the_list_of_the_largest_differences_marks_its_rows(nan: Session) -> None:
    async with comparing(nan, DIV, 3, (200, 50)) as view:
        await view.press("tab", "/", "1", "5", "enter")
        assert view.screen.largest.table.has_focus
        assert "15" in view.screen.largest.table.row_text(view.screen.largest.table.cursor_row)


@every_size
async def test_nan_everywhere_on_both_sides_is_no_equality(nan: Session, size: tuple[int, int]) -> None:
    async with comparing(nan, "head.weight", 5, size) as view:
        assert "cannot judge: all 64 elements are NaN on both sides: nothing to compare" in view.text
        assert "equal: all" not in view.text
