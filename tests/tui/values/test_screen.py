"""The values screen: every key, every kind of array, at 80x24."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.tui.screens_host import HOSTILE, PENDING, opened
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import Side, TensorKey, TensorMeta, TensorStats
from tui_debugger.session.types import TensorRow
from tui_debugger.tui.values import screen as values
from tui_debugger.tui.values.keys import VALUE_ACTIONS
from tui_debugger.tui.values.screen import ValuesScreen

Array = np.ndarray[Any, Any]


def row_of(array: Array, node: str = "Default/Div-op385", *, stats: TensorStats | None = None) -> TensorRow:
    return TensorRow(
        TensorKey(0, "kernel_graph_0", node, Side.OUTPUT, 0, 3),
        role="out",
        slot=0,
        index=0,
        has_value=True,
        has_previous=True,
        meta=TensorMeta(array.dtype.name, array.shape, array.nbytes),
        stats=stats,
    )


def stats_of(array: Array) -> TensorStats:
    good = array[np.isfinite(array)]
    return TensorStats(
        count=array.size,
        nan=int(np.isnan(array).sum()),
        pos_inf=int(np.isposinf(array).sum()),
        neg_inf=int(np.isneginf(array).sum()),
        zero=int((array == 0).sum()),
        negative=int((good < 0).sum()),
        positive=int((good > 0).sum()),
        minimum=float(good.min()),
        maximum=float(good.max()),
        mean=float(good.mean()),
        abs_mean=float(np.abs(good).mean()),
        variance=float(good.var()),
        sum_squares=float((good**2).sum()),
    )


def screen_of(array: Array, **options: Any) -> ValuesScreen:
    return ValuesScreen(options.pop("row", row_of(array)), lambda: array, **options)


def counted(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def where(screen: ValuesScreen) -> tuple[int, ...] | None:
    return screen.grid.cursor_index


async def test_shows_facts_statistics_slice_numbers_and_the_exact_value_under_the_cursor() -> None:
    array = counted(2, 3, 40, 60) / np.float32(3)
    array[0, 0, 0, 1] = np.nan
    screen = screen_of(array, row=row_of(array, stats=stats_of(array)))
    async with opened(screen) as view:
        text = view.text
        assert "out:0  Default/Div-op385" in text
        assert "float32 (2, 3, 40, 60)  step 3  rank 0  kernel_graph_0" in text
        assert "count 14400" in text
        assert "NaN 1" in text
        assert "slice [0, 0, :, :]" in text
        await view.press("right", "right")
        assert "[0, 0, 0, 2] = 0.6666667" in view.text
        assert "row 1/40  column 3/60" in view.text
        assert "NaN" in next(line for line in view.lines if line.startswith("  0"))


async def test_every_key_that_moves() -> None:
    screen = screen_of(counted(100, 100))
    async with opened(screen) as view:
        for keys, place in [
            (("down", "j"), (2, 0)),
            (("right", "l"), (2, 2)),
            (("up", "k"), (0, 2)),
            (("left", "h"), (0, 0)),
            (("G",), (99, 0)),
            (("end",), (99, 99)),
            (("g",), (0, 99)),
            (("home",), (0, 0)),
            (("$",), (0, 99)),
            (("0",), (0, 0)),
        ]:
            await view.press(*keys)
            assert where(screen) == place, keys
        rows, columns = screen.grid.page_rows, screen.grid.page_columns
        assert rows >= 12
        assert columns >= 7
        await view.press("pagedown")
        assert where(screen) == (rows, 0)
        await view.press("L")
        assert where(screen) == (rows, columns)
        await view.press("pageup", "H")
        assert where(screen) == (0, 0)
        await view.press("up", "left", "pageup", "H")
        assert where(screen) == (0, 0)


async def test_what_the_cursor_is_on_is_always_in_sight() -> None:
    screen = screen_of(counted(500, 500))
    async with opened(screen) as view:
        for keys in (("G", "end"), ("pageup", "H"), ("n", "x"), ("g",), ("home",)):
            await view.press(*keys)
            value = screen.grid.form
            index = where(screen)
            assert index is not None
            assert value
            assert f"{float(counted(500, 500)[index]):.4f}"[:6].rstrip("0.") in view.text


async def test_a_huge_tensor_opens_at_once_and_its_last_corner_is_one_key_away() -> None:
    array = np.broadcast_to(np.float32(1.5), (100_000, 100_000))
    screen = screen_of(array)
    async with opened(screen) as view:
        await view.press("G", "end")
        assert where(screen) == (99_999, 99_999)
        assert "[99999, 99999] = 1.5" in view.text
        view.check_clean()


class TestSlices:
    @pytest.mark.parametrize("key", ["s", "slash"])
    async def test_are_edited_in_place(self, key: str) -> None:
        screen = screen_of(counted(2, 3, 40, 60))
        async with opened(screen) as view:
            await view.press(key)
            await view.press("ctrl+u")
            await view.press("delete", "delete")
            await view.type("[1, :, 3:9, 7]")
            await view.press("enter")
            assert "slice [1, :, 3:9, 7]" in view.text
            assert where(screen) == (1, 0, 3, 7)
            await view.press("G", "end")
            assert where(screen) == (1, 2, 8, 7)

    async def test_a_wrong_one_is_explained_and_can_be_corrected_or_dropped(self) -> None:
        screen = screen_of(counted(2, 3, 4))
        async with opened(screen) as view:
            await view.press("s", "ctrl+u", "delete")
            await view.type("[5, :, :]")
            await view.press("enter")
            assert "index 5 is outside dimension 0, which has 2 elements" in view.text
            assert view.open
            await view.press("escape")
            assert "slice [0, :, :]" in view.text
            assert view.open
            await view.press("escape")
            assert not view.open

    async def test_letters_typed_into_the_slice_are_no_commands(self) -> None:
        screen = screen_of(counted(4, 4))
        async with opened(screen) as view:
            await view.press("s")
            await view.type("nxe")
            assert where(screen) == (0, 0)
            assert not screen.grid.form.scientific

    async def test_brackets_move_along_the_chosen_fixed_dimension(self) -> None:
        screen = screen_of(counted(2, 3, 4, 5))
        async with opened(screen) as view:
            await view.press("]")
            assert "slice [1, 0, :, :]" in view.text
            assert "dimension 0 (0 to 1)" in view.text
            await view.press("]")
            assert "this is the last index of dimension 0" in view.text
            await view.press("}")
            assert "dimension 1 (0 to 2)" in view.text
            await view.press("]", "]")
            assert where(screen) == (1, 2, 0, 0)
            await view.press("{", "[")
            assert where(screen) == (0, 2, 0, 0)
            await view.press("[")
            assert "this is the first index of dimension 0" in view.text

    async def test_the_cursor_stays_on_its_row_and_column(self) -> None:
        screen = screen_of(counted(3, 50, 50))
        async with opened(screen) as view:
            await view.press("G", "end", "]")
            assert where(screen) == (1, 49, 49)

    async def test_without_fixed_dimensions_the_keys_say_so(self) -> None:
        async with opened(screen_of(counted(3, 3))) as view:
            for key in ("[", "]", "{", "}"):
                await view.press(key)
                assert "no dimension is fixed in this slice" in view.text

    async def test_an_empty_part_is_no_error(self) -> None:
        screen = screen_of(counted(3, 3))
        async with opened(screen) as view:
            await view.press("s", "ctrl+u", "delete")
            await view.type("[1:1, :]")
            await view.press("enter")
            assert "No elements" in view.text
            await view.press("down", "G", "n", "x", "plus", "e", "pagedown", "end")
            assert view.open


class TestFormats:
    async def test_digits_and_scientific(self) -> None:
        screen = screen_of(np.full((3, 3), 1 / 3))
        async with opened(screen) as view:
            assert "0.3333 " in view.text
            await view.press("plus")
            assert "0.33333 " in view.text
            await view.press("=", "-", "-", "-")
            assert " 0.333 " in view.text
            await view.press("e")
            assert "3.333e-01" in view.text
            await view.press("e")
            assert "3.333e-01" not in view.text

    @pytest.mark.parametrize("presses", [0, 10])
    async def test_from_0_to_10_digits_at_any_width(self, presses: int) -> None:
        screen = screen_of(np.full((3, 3), 2 / 3))
        async with opened(screen, (30, 12)) as view:
            await view.press(*["-"] * 12, *["plus"] * presses)
            assert f"{2 / 3:.{presses}f}" in view.text
            view.check_clean()

    @pytest.mark.parametrize(
        ("array", "shown", "exact"),
        [
            (np.array([[True, False]]), "True False", "= True"),
            (np.array([[-5, 0]], np.int64), "-5  0", "= -5"),
            (np.array([[255]], np.uint8), "255", "= 255"),
            (np.array([[1.5 - 2j]], np.complex64), "1.5000-2.0000j", "= (1.5-2j)"),
            (np.array([[0.1]], ml_dtypes.bfloat16), "0.1001", "= 0.100098"),
            (np.array([[448.0]], ml_dtypes.float8_e4m3fn), "448.0000", "= 448"),
            (np.array([[np.nan]], np.float16), "NaN", "= NaN"),
            (np.array([[-np.inf]]), "-Inf", "= -Inf"),
            (np.array(3.25), "3.2500", "[] = 3.25"),
            (np.array(["[red]\x1b[2J"]), "[red]␛[2J", "= [red]␛[2J"),
        ],
        ids=lambda value: str(value.dtype) if isinstance(value, np.ndarray) else "",
    )
    async def test_every_element_type(self, array: Array, shown: str, exact: str) -> None:
        async with opened(screen_of(array)) as view:
            assert shown in view.text
            assert exact in view.text
            view.check_clean()
            for action in VALUE_ACTIONS:
                if action.id not in {"slice", "keys"}:
                    await view.press(*action.keys)
            assert view.open

    async def test_columns_do_not_get_narrower_while_one_looks_around(self) -> None:
        array = counted(200, 4) * -1000
        screen = screen_of(array)
        async with opened(screen) as view:
            await view.press("G")
            wide = screen.grid._cell
            await view.press("g")
            assert screen.grid._cell == wide

    async def test_a_line_is_folded_to_the_width_and_keeps_its_place_when_that_changes(self) -> None:
        screen = screen_of(counted(768))
        async with opened(screen) as view:
            assert "+7" in view.text
            await view.press("G", "end")
            assert where(screen) == (767,)
            await view.resize(200, 50)
            assert where(screen) == (767,)
            assert "+19" in view.text
            await view.resize(40, 10)
            assert where(screen) == (767,)
            assert "[767] = 767.0" in view.text

    async def test_left_and_right_go_on_in_the_next_row_of_a_folded_line(self) -> None:
        screen = screen_of(counted(30))
        async with opened(screen) as view:
            await view.press(*["right"] * 12)
            assert where(screen) == (12,)
            await view.press(*["left"] * 20)
            assert where(screen) == (0,)


class TestJumps:
    async def test_n_and_N_find_bad_values_in_the_whole_tensor_whatever_slice_is_shown(self) -> None:  # noqa: N802 - keys
        array = counted(3, 4, 30, 30)
        array[1, 2, 25, 29], array[2, 0, 0, 0] = np.nan, -np.inf
        screen = screen_of(array, row=row_of(array, stats=stats_of(array)))
        async with opened(screen) as view:
            await view.press("n")
            assert where(screen) == (1, 2, 25, 29)
            assert "slice [1, 2, :, :]" in view.text
            assert "= NaN" in view.text
            await view.press("n")
            assert where(screen) == (2, 0, 0, 0)
            await view.press("n")
            assert where(screen) == (1, 2, 25, 29)
            assert "went on from the other end" in view.text
            await view.press("N")
            assert where(screen) == (2, 0, 0, 0)

    async def test_a_range_that_leaves_the_place_out_is_opened(self) -> None:
        array = counted(30, 30)
        array[20, 3] = np.inf
        screen = screen_of(array)
        async with opened(screen) as view:
            await view.press("s", "ctrl+u", "delete")
            await view.type("[0:5, 0:9]")
            await view.press("enter", "n")
            assert where(screen) == (20, 3)
            assert "slice [:, 0:9]" in view.text

    async def test_x_and_m(self) -> None:
        array = -counted(30, 30)
        array[7, 8], array[0, 0] = 5, np.nan
        screen = screen_of(array)
        async with opened(screen) as view:
            await view.press("x")
            assert where(screen) == (7, 8)
            await view.press("m")
            assert where(screen) == (29, 29)

    @pytest.mark.parametrize("array", [counted(3, 3), np.zeros((3, 3), np.int32)])
    async def test_nothing_bad(self, array: Array) -> None:
        async with opened(screen_of(array)) as view:
            await view.press("n")
            assert "no NaN or Inf in this tensor" in view.text

    async def test_known_statistics_save_the_search(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(values, "find_bad", None)
        array = counted(3, 3)
        async with opened(screen_of(array, row=row_of(array, stats=stats_of(array)))) as view:
            await view.press("n")
            assert "no NaN or Inf in this tensor" in view.text

    async def test_nothing_finite(self) -> None:
        async with opened(screen_of(np.full(3, np.nan))) as view:
            await view.press("x")
            assert "no finite value in this tensor" in view.text


class Later:
    """A runner whose work waits until the test lets it go."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any], None], Callable[[Exception], None]]] = []

    def __call__(
        self, work: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None:
        self.jobs.append((work, done, failed))

    def finish(self, number: int = 0) -> None:
        work, done, failed = self.jobs.pop(number)
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - as a worker does
            failed(error)
        else:
            done(result)


class TestBesideTheEventLoop:
    async def test_reading_shows_at_once_and_can_be_left(self) -> None:
        later = Later()
        async with opened(screen_of(counted(3, 3), run=later)) as view:
            assert "reading …  Esc cancels" in view.text
            await view.press("down", "n", "x", "s", "p", "e", "plus", "]")
            await view.press("escape")
            assert not view.open
            later.finish()
            await view.pilot.pause()

    async def test_a_long_search_can_be_cancelled_and_its_answer_is_dropped(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(values, "QUICK", 4)
        later = Later()
        array = counted(5, 5)
        array[3, 3] = np.nan
        screen = screen_of(array, run=later)
        async with opened(screen) as view:
            later.finish()
            await view.pilot.pause()
            await view.press("n")
            assert "searching …  Esc cancels" in view.text
            await view.press("escape")
            assert "cancelled" in view.text
            later.finish()
            await view.pilot.pause()
            assert where(screen) == (0, 0)
            await view.press("n")
            later.finish()
            await view.pilot.pause()
            assert where(screen) == (3, 3)

    async def test_only_the_newest_search_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(values, "QUICK", 4)
        later = Later()
        screen = screen_of(counted(5, 5), run=later)
        async with opened(screen) as view:
            later.finish()
            await view.press("x", "m")
            later.finish(0)
            await view.pilot.pause()
            assert where(screen) == (0, 0)
            await view.press("x")
            later.finish(1)
            await view.pilot.pause()
            assert where(screen) == (4, 4)


class TestWithoutValues:
    async def test_the_reason_is_shown(self) -> None:
        def load() -> Array:
            raise UnreadableTensorError("the file ends early \x1b[2J", where="/dump/[b]x", hint="dump it again")

        screen = ValuesScreen(row_of(counted(1)), load)
        async with opened(screen) as view:
            assert "These values cannot be read:" in view.text
            assert "the file ends early ␛[2J" in view.text
            assert "/dump/[b]x" in view.text
            assert "dump it again" in view.text
            for action in VALUE_ACTIONS:
                if action.id != "keys":
                    await view.press(*action.keys)
            assert view.open
            await view.press("escape")
            assert not view.open

    @pytest.mark.parametrize("error", [OSError("gone"), MemoryError(), ValueError("mmap length is greater")])
    async def test_any_failure_is_a_reason(self, error: Exception) -> None:
        def load() -> Array:
            raise error

        async with opened(ValuesScreen(row_of(counted(1)), load)) as view:
            assert (str(error) or type(error).__name__) in view.text

    @pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3), (0, 0, 0)])
    async def test_empty_tensors(self, shape: tuple[int, ...]) -> None:
        async with opened(screen_of(np.zeros(shape))) as view:
            assert "o elements" in view.text
            for action in VALUE_ACTIONS:
                if action.id not in {"slice", "keys"}:
                    await view.press(*action.keys)
            assert view.open
            await view.press("escape")
            assert not view.open


class TestPreviousStep:
    async def test_p_goes_there_and_back(self) -> None:
        array = counted(3, 3)
        screen = screen_of(array, previous=lambda: array * 2)
        async with opened(screen) as view:
            await view.press("G", "end")
            assert "= 8.0" in view.text
            await view.press("p")
            assert "= 16.0" in view.text
            assert "PREVIOUS STEP" in view.text
            await view.press("p")
            assert "= 8.0" in view.text
            assert "PREVIOUS STEP" not in view.text

    async def test_another_shape_gets_its_own_slice(self) -> None:
        screen = screen_of(counted(3, 3), previous=lambda: counted(2, 2, 2))
        async with opened(screen) as view:
            await view.press("G", "p")
            assert "slice [0, :, :]" in view.text
            assert where(screen) == (0, 1, 0)

    async def test_there_may_be_none_or_an_unreadable_one(self) -> None:
        async with opened(screen_of(counted(3))) as view:
            await view.press("p")
            assert "this tensor has no previous step" in view.text

        def broken() -> Array:
            raise UnreadableTensorError("truncated")

        async with opened(screen_of(counted(3), previous=broken)) as view:
            await view.press("p")
            assert "truncated" in view.text
            assert "[0] = 0.0" in view.text


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("size", [(80, 24), (200, 50), (20, 6)])
async def test_names_are_shown_literally_and_never_reach_the_terminal_raw(name: str, size: tuple[int, int]) -> None:
    array = counted(3, 3)
    row = row_of(array, node=name)
    row = replace(row, key=replace(row.key, graph=name))
    async with opened(screen_of(array, row=row), size) as view:
        view.check_clean()
        assert view.open


async def test_truth_values_have_counts_only() -> None:
    array = np.array([True, True, False])
    stats = TensorStats(3, 0, 0, 0, 1, 0, 2, 0.0, 1.0, 0.6, 0.6, 0.2, 2.0)
    async with opened(screen_of(array, row=row_of(array, stats=stats))) as view:
        assert "count 3  True 2  False 1" in view.text
        assert "mean" not in view.text


async def test_no_finite_value_reads_as_a_dash() -> None:
    array = np.full(3, np.nan)
    stats = TensorStats(3, 3, 0, 0, 0, 0, 0, None, None, None, None, None, 0.0)
    async with opened(screen_of(array, row=row_of(array, stats=stats))) as view:
        assert "min –  max –  mean –" in view.text


async def test_the_key_page_lists_every_key_of_the_screen() -> None:
    async with opened(screen_of(counted(3, 3)), (120, 50)) as view:
        await view.press("?")
        for action in VALUE_ACTIONS:
            assert action.help in view.text
        await view.press("escape")
        assert view.open
        assert "[0, 0] = 0.0" in view.text


def test_no_two_actions_share_a_key_and_every_action_exists() -> None:
    keys = [key for action in VALUE_ACTIONS for key in action.keys]
    assert len(keys) == len(set(keys))
    for action in VALUE_ACTIONS:
        assert callable(getattr(ValuesScreen, f"action_{action.id.partition('(')[0]}"))


async def test_the_mouse_works_too() -> None:
    screen = screen_of(counted(100, 100))
    async with opened(screen) as view:
        await view.pilot.click("ValueGrid", offset=(20, 4))
        await view.pilot.pause()
        assert where(screen) not in {None, (0, 0)}
        assert view.result is PENDING
