"""The values screen: every key, every kind of array, at 80x24."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.tui.screens_host import HOSTILE, PENDING, opened
from tests.tui.views.host import PlainHost
from tui_debugger.check.types import TensorRow
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import (
    Progress,
    ProgressFn,
    RunInfo,
    Side,
    TensorKey,
    TensorMeta,
    TensorStats,
    no_progress,
)
from tui_debugger.tui.actions import VALUE_ACTIONS, Action
from tui_debugger.tui.values import screen as value_screen
from tui_debugger.tui.values import window
from tui_debugger.tui.values.screen import ValuesScreen
from tui_debugger.tui.views.registry import ViewTarget

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


class Reads:
    """The part of a session that the view needs: values by step, or what goes wrong instead."""

    info = RunInfo("/nowhere", "test")
    results_edition = 0

    def __init__(self, row: TensorRow, now: Any, before: Any = None) -> None:
        self.by_step = {row.key.step: now, row.key.step - 1: before}

    def why_no_previous(self, _: TensorKey) -> str:
        return "this tensor has no previous step"

    def read(self, key: TensorKey, progress: ProgressFn = no_progress) -> Array:
        progress(Progress(1, 4))
        found = self.by_step[key.step]
        if isinstance(found, Exception):
            raise found
        return np.asanyarray(found)

    def file_state(self, _: TensorKey) -> None:
        return None


def screen_of(
    array: Any, row: TensorRow | None = None, previous: Any = None, host: Any = None, at: Any = None
) -> ValuesScreen:
    row = row or row_of(array)
    host = host or PlainHost(Reads(row, array, previous))  # type: ignore[arg-type]  # all that is asked of it
    before = None if previous is None else replace(row.key, step=row.key.step - 1)
    return ValuesScreen(host, ViewTarget(row.key, 0, at=at), row, before)


def pressable(action: Action) -> tuple[str, ...]:
    """An action's keys as Textual calls them."""
    names = {"<": "less_than_sign", ">": "greater_than_sign"}
    return tuple(names.get(key, key) for key in action.keys)


def counted(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def where(screen: ValuesScreen) -> tuple[int, ...] | None:
    return screen.cursor_index


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
        ]:
            await view.press(*keys)
            assert where(screen) == place, keys
        rows, columns = screen.grid.page_rows, screen.grid.page_columns
        assert rows >= 12
        assert columns >= 7
        await view.press("pagedown")
        assert where(screen) == (rows, 0)
        await view.press("greater_than_sign")
        assert where(screen) == (rows, columns)
        await view.press("pageup", "less_than_sign")
        assert where(screen) == (0, 0)
        await view.press("up", "left", "pageup", "less_than_sign")
        assert where(screen) == (0, 0)


async def test_what_the_cursor_is_on_is_always_in_sight() -> None:
    screen = screen_of(counted(500, 500))
    async with opened(screen) as view:
        for keys in (("G", "end"), ("pageup", "less_than_sign"), ("n", "x"), ("g",), ("home",)):
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
    async def test_are_edited_in_place(self) -> None:
        screen = screen_of(counted(2, 3, 40, 60))
        async with opened(screen) as view:
            await view.press("s")
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

    @pytest.mark.parametrize("typed", ["[1, :, 2:4]", "1, :, 2:4"])
    async def test_what_is_typed_after_all_was_deleted_is_the_slice(self, typed: str) -> None:
        async with opened(screen_of(counted(2, 3, 4))) as view:
            await view.press("s", "ctrl+u")
            await view.type(typed)
            await view.press("enter")
            assert "slice [1, :, 2:4]" in view.text

    async def test_letters_typed_into_the_slice_are_no_commands(self) -> None:
        screen = screen_of(counted(4, 4))
        async with opened(screen) as view:
            await view.press("s")
            await view.type("nxf")
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
            await view.press("down", "G", "n", "x", "plus", "pagedown", "end", "t", "B")
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
            await view.command("scientific")
            assert "3.333e-01" in view.text
            await view.command("scientific")
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
            (np.array(["[red]\x1b[2J"]), "[red]\\x1b[2J", "= [red]\\x1b[2J"),
        ],
        ids=lambda value: str(value.dtype) if isinstance(value, np.ndarray) else "",
    )
    async def test_every_element_type(self, array: Array, shown: str, exact: str) -> None:
        async with opened(screen_of(array)) as view:
            assert shown in view.text
            assert exact in view.text
            view.check_clean()
            for action in VALUE_ACTIONS:
                if action.id != "slice":
                    await view.press(*pressable(action))
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
        monkeypatch.setattr(value_screen, "find_bad", None)
        array = counted(3, 3)
        async with opened(screen_of(array, row=row_of(array, stats=stats_of(array)))) as view:
            await view.press("n")
            assert "no NaN or Inf in this tensor" in view.text

    async def test_nothing_finite(self) -> None:
        async with opened(screen_of(np.full(3, np.nan))) as view:
            await view.press("x")
            assert "no finite value in this tensor" in view.text


class Later(PlainHost):
    """A host whose work waits until the test lets it go."""

    def __init__(self, array: Array) -> None:
        super().__init__(Reads(row_of(array), array))  # type: ignore[arg-type]  # all that is asked of it
        self.jobs: list[tuple[Any, ...]] = []
        self.stopped = 0

    def run(self, _: Any, work: Any, done: Any, failed: Any, told: Any) -> None:
        self.jobs.append((work, done, failed, told))

    def stop(self, _: Any) -> bool:
        self.stopped += 1
        return True

    def finish(self, number: int = 0) -> None:
        work, done, failed, told = self.jobs.pop(number)
        try:
            result = work(told)
        except Exception as error:  # noqa: BLE001 - as a worker does
            failed(error)
        else:
            done(result)


class TestBesideTheEventLoop:
    async def test_reading_shows_at_once_and_can_be_left(self) -> None:
        later = Later(counted(3, 3))
        async with opened(screen_of(counted(3, 3), host=later)) as view:
            assert "reading …  Esc stops" in view.text
            await view.press("down", "n", "x", "s", "p", "plus", "]", "t", "B", "enter", "Y", "e")
            assert view.open
            await view.press("escape")
            assert not view.open
            assert later.stopped == 1
            later.finish()
            await view.pilot.pause()

    async def test_a_long_search_can_be_cancelled_and_its_answer_is_dropped(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(window, "QUICK", 4)
        array = counted(5, 5)
        array[3, 3] = np.nan
        later = Later(array)
        screen = screen_of(array, host=later)
        async with opened(screen) as view:
            later.finish()
            await view.pilot.pause()
            await view.press("n")
            assert "searching …  Esc stops" in view.text
            await view.press("escape")
            assert "stopped" in view.text
            later.finish()
            await view.pilot.pause()
            assert where(screen) == (0, 0)
            await view.press("n")
            later.finish()
            await view.pilot.pause()
            assert where(screen) == (3, 3)

    async def test_only_the_newest_search_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(window, "QUICK", 4)
        later = Later(counted(5, 5))
        screen = screen_of(counted(5, 5), host=later)
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
        error = UnreadableTensorError("the file ends early \x1b[2J", where="/dump/[b]x", hint="dump it again")
        screen = screen_of(error, row_of(counted(1)))
        async with opened(screen) as view:
            assert "These values cannot be read:" in view.text
            assert "the file ends early \\x1b[2J" in view.text
            assert "/dump/[b]x" in view.text
            assert "dump it again" in view.text
            for action in VALUE_ACTIONS:
                await view.press(*pressable(action))
            assert view.open
            await view.press("escape")
            assert not view.open

    @pytest.mark.parametrize("error", [OSError("gone"), MemoryError(), ValueError("mmap length is greater")])
    async def test_any_failure_is_a_reason(self, error: Exception) -> None:
        async with opened(screen_of(error, row_of(counted(1)))) as view:
            assert (str(error) or type(error).__name__) in view.text

    @pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3), (0, 0, 0)])
    async def test_empty_tensors(self, shape: tuple[int, ...]) -> None:
        async with opened(screen_of(np.zeros(shape))) as view:
            assert "o elements" in view.text
            for action in VALUE_ACTIONS:
                if action.id != "slice":
                    await view.press(*pressable(action))
            assert view.open
            await view.press("escape")
            assert not view.open


class TestPreviousStep:
    async def test_p_goes_there_and_back(self) -> None:
        array = counted(3, 3)
        screen = screen_of(array, previous=array * 2)
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
        screen = screen_of(counted(3, 3), previous=counted(2, 2, 2))
        async with opened(screen) as view:
            await view.press("G", "p")
            assert "slice [0, :, :]" in view.text
            assert where(screen) == (0, 1, 0)

    async def test_there_may_be_none_or_an_unreadable_one(self) -> None:
        async with opened(screen_of(counted(3))) as view:
            await view.press("p")
            assert "this tensor has no previous step" in view.text

        broken = UnreadableTensorError("truncated")
        async with opened(screen_of(counted(3), previous=broken)) as view:
            await view.press("p")
            assert "truncated" in view.text
            assert "[0] = 0.0" in view.text


class TestOpening:
    async def test_the_cursor_starts_on_the_wanted_element(self) -> None:
        screen = screen_of(counted(3, 4, 30, 30), at=(2, 1, 7, 9))
        async with opened(screen) as view:
            assert where(screen) == (2, 1, 7, 9)
            assert "slice [2, 1, :, :]" in view.text

    @pytest.mark.parametrize("at", [(9, 9), (0,), (-1, 0)])
    async def test_an_element_that_the_tensor_does_not_have_is_no_element(self, at: tuple[int, ...]) -> None:
        screen = screen_of(counted(3, 3), at=at)
        async with opened(screen):
            assert where(screen) == (0, 0)

    async def test_other_views_open_on_the_element_under_the_cursor(self) -> None:
        array = counted(3, 3)
        row = row_of(array)
        host = PlainHost(Reads(row, array, array * 2))  # type: ignore[arg-type]  # all that is asked of it
        screen = screen_of(array, row, array * 2, host)
        async with opened(screen) as view:
            await view.press("down", "o", "p", "H")
            assert [(name, focus.key.step, focus.at) for name, focus in host.opened] == [
                ("origin", 3, (1, 0)),
                ("trend", 2, (1, 0)),
            ]
            await view.press("q")
            assert not view.open


class TestBits:
    async def test_a_line_below_shows_them_for_the_value_under_the_cursor(self) -> None:
        async with opened(screen_of(np.array([[1.0, -2.0]], np.float16))) as view:
            assert "mantissa" not in view.text
            await view.press("B")
            assert "bytes 00 3c  0x3c00  sign 0  exponent 01111 (2^0)  mantissa 0000000000" in view.text
            await view.press("right")
            assert "bytes 00 c0  0xc000  sign 1  exponent 10000 (2^1)" in view.text
            await view.press("t")
            assert "bytes 00 c0  0xc000" in view.text
            await view.press("B")
            assert "mantissa" not in view.text

    async def test_a_cell_of_many_elements_shows_those_of_the_one_that_it_shows(self) -> None:
        array = np.zeros((300, 300), np.float32)
        array[1, 1] = np.nan
        async with opened(screen_of(array)) as view:
            await view.press("B", "t")
            assert "bytes 00 00 c0 7f" in view.text


class TestHandingOut:
    async def test_the_slice_as_numbers_text_and_array(self) -> None:
        array = (counted(2, 3, 4) / np.float32(3)).astype(np.float32)
        screen = screen_of(array)
        async with opened(screen) as view:
            await view.press("s", "ctrl+u", "delete")
            await view.type("[1, ::2, 1:]")
            await view.press("enter", "right")
            given = screen.extract()
            assert given is not None
            assert given.stem == "Div-op385.out0.rank0.step3.1_0-3-2_1-4"
            assert given.one == "4.6666665"
            assert given.header == ("index", "1", "2", "3")
            assert [tuple(row) for row in given.rows] == [(index, *array[1, index, 1:]) for index in (0, 2)]
            assert given.array is not None
            assert given.array().tolist() == array[1, ::2, 1:].tolist()
            for part in (
                "float32 (2, 3, 4)",
                "slice [1, 0:3:2, 1:4]",
                "[1, 0, 2] = 4.6666665",
                "2 7.0000 7.3333 7.6667",
            ):
                assert part in given.text

    async def test_a_line_is_one_row_for_each_element(self) -> None:
        screen = screen_of(counted(23))
        async with opened(screen):
            given = screen.extract()
            assert given is not None
            assert given.stem == "Div-op385.out0.rank0.step3"
            assert given.header == ("index", "value")
            assert len(given.rows) == 23
            assert [tuple(row) for row in given.rows[20:]] == [(20, 20), (21, 21), (22, 22)]
            assert given.rows[-1] == (22, 22)
            assert given.text.endswith(" 20.0000 21.0000 22.0000")

    async def test_a_heat_map_is_in_the_text_too(self) -> None:
        array = np.array([[-2, 2], [np.nan, 0]], np.float32)
        screen = screen_of(array)
        async with opened(screen) as view:
            await view.press("t")
            given = screen.extract()
            assert given is not None
            rows = [line.split() for line in given.text.splitlines()]
            wide = screen.heat.zoom.wide
            assert ["0", "▤" * wide + "█" * wide] in rows
            assert ["1", "N" * wide + "·" * wide] in rows

    async def test_a_scalar_and_nothing(self) -> None:
        screen = screen_of(np.array(2.5))
        async with opened(screen):
            given = screen.extract()
            assert given is not None
            assert [tuple(row) for row in given.rows] == [("", 2.5)]
        screen = screen_of(np.zeros((0, 3)))
        async with opened(screen):
            assert screen.extract() is None

    async def test_of_a_huge_tensor_nothing_is_read_but_what_is_written(self) -> None:
        screen = screen_of(np.broadcast_to(np.float32(1.5), (100_000, 100_000)))
        async with opened(screen):
            given = screen.extract()
            assert given is not None
            assert len(given.text) < 1_000_000
            assert "99,999 rows and 80,000 columns more: export as .csv or .npy" in given.text
            assert len(given.rows) == 100_000


@pytest.mark.turns("size")
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
    async with opened(screen_of(counted(3, 3)), (160, 60)) as view:
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
