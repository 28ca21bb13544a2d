"""Only what differs from what stands on the terminal is written, and then it looks as if all of it had been."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import pyte
import pytest
from rich.cells import cell_len, set_cell_size
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import App, ComposeResult
from textual.drivers.headless_driver import HeadlessDriver
from textual.widgets import Static

from tests.thorough import later
from tests.tui.driver import Driver, KnownSession
from tests.tui.meter import in_256_colours
from tests.tui.sizes import every_size
from tui_debugger.model import ProgressFn
from tui_debugger.session import Session
from tui_debugger.tui.app import TdbgApp
from tui_debugger.tui.views.registry import VIEWS, ViewKind
from tui_debugger.tui.written_lines import ExactCompositor, Pen, differences

SIZES = ((80, 24), later((120, 40)), (200, 50))
TOUR = (
    *("down", "pagedown", "4", "down", "pagedown", "right_square_bracket", "n", "n", "N", "o", "down", "escape"),
    *(
        "E",
        "escape",
        "H",
        "escape",
        "1",
        "slash",
        "l",
        "o",
        "g",
        "enter",
        "escape",
        "z",
        "z",
        "question_mark",
        "escape",
    ),
    *("w", "escape", "tab", "tab", "enter", "escape", "ctrl+l", "left_square_bracket"),
)


class Emulated(HeadlessDriver):
    """A terminal that takes what is written to it.

    Attributes:
        last: the one that was made last.
        screen: what it shows.
        written: bytes so far.
    """

    last: Emulated

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]  # as Textual makes it
        width, height = self._size or (80, 24)
        self.screen, self.written = pyte.Screen(width, height), 0
        self.stream = pyte.Stream(self.screen)
        Emulated.last = self

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        self.written += len(data.encode())
        self.stream.feed(data)


def cells(screen: pyte.Screen) -> list[list[tuple[object, ...]]]:
    """What a person sees: characters with their colours; of a blank its background."""
    return [[_seen(screen.buffer[y][x]) for x in range(screen.columns)] for y in range(screen.lines)]


def _seen(cell: pyte.screens.Char) -> tuple[object, ...]:
    drawn = cell.data != " " or cell.reverse or cell.underscore or cell.strikethrough
    return (cell.data, cell.bg, *((cell.fg, cell.bold, cell.italics, cell.reverse, cell.underscore) if drawn else ()))


def painted_whole(app: TdbgApp) -> list[list[tuple[object, ...]]]:
    """What a person sees of the screen in front, written from its first line to its last."""
    width, _ = app.size
    update = app.screen._compositor.render_full_update()
    return [list(_painted("".join(strip.render(app.console) for strip in line), width)) for line in update.strips]


@lru_cache(4096)
def _painted(line: str, width: int) -> tuple[tuple[object, ...], ...]:
    """A line on a terminal of its own: most are the same after the next key, and on the next screen."""
    fresh = pyte.Screen(width, 1)
    pyte.Stream(fresh).feed(line)
    return tuple(cells(fresh)[0])


def program(dump: Path) -> TdbgApp:
    def open_session(progress: ProgressFn) -> Session:
        session = KnownSession(dump)
        session.open(progress)
        return session

    app = TdbgApp(open_session, title="nan", recommended=True)
    app.driver_class = Emulated
    return app


@pytest.mark.parametrize("size", SIZES)
async def test_after_every_key_the_terminal_shows_what_a_whole_paint_would(
    dumps: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    await press_and_look(dumps("mindspore-2.0-nan"), monkeypatch, size, (*TOUR, *TOUR[::-3]))


IN_A_VIEW = (
    *("down", "down", "pagedown", "up", "right", "left", "tab", "down", "end", "home"),
    *("slash", "1", "enter", "escape", "question_mark", "pagedown", "escape"),
)
DIALOGS = (("w", ("down", "tab", "x")), ("s", ("2", "backspace")), ("1", ("f", "down", "space")), ("F", ("2",)))


@pytest.mark.parametrize("size", [SIZES[0], later((120, 40)), later((200, 50))])
@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.id)
async def test_after_every_key_of_a_view_the_terminal_shows_what_a_whole_paint_would(
    dumps: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, view: ViewKind, size: tuple[int, int]
) -> None:
    await press_and_look(dumps("mindspore-2.0-nan"), monkeypatch, size, ("4", view.key, *IN_A_VIEW))


@pytest.mark.parametrize("size", SIZES)
async def test_after_every_key_of_a_dialog_the_terminal_shows_what_a_whole_paint_would(
    dumps: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    keys = [key for first, inside in DIALOGS for key in (first, *inside, "escape", "escape")]
    await press_and_look(dumps("mindspore-2.0-nan"), monkeypatch, size, keys)


async def press_and_look(
    dump: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], keys: Sequence[str]
) -> None:
    """Presses keys, and goes back to the main screen; looks at the terminal after each."""
    in_256_colours(monkeypatch)
    app = program(dump)
    async with app.run_test(headless=False, size=size) as pilot:
        driver = Driver(app, pilot)
        await driver.until(lambda: app.main.session is not None)
        await driver.settled()
        for key in (*keys, *["escape"] * 4):
            await driver.press(key)
            await driver.settled()
            assert cells(Emulated.last.screen) == painted_whole(app), key
        assert app.screen is app.main


async def test_what_changes_below_a_notification_stays_below_it(
    dumps: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_256_colours(monkeypatch)
    app = program(dumps("mindspore-2.0-nan"))
    async with app.run_test(headless=False, size=(120, 40), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await driver.until(lambda: app.main.session is not None)
        await driver.settled()
        app.notify("above the panes " * 4, timeout=600)
        await driver.until(lambda: any("above the panes" in line for line in Emulated.last.screen.display))
        await driver.settled()
        for key in ("4", "down", "down", "pagedown", "5", "down", "2", "down", "1", "down"):
            await driver.press(key)
            await driver.settled()
            assert any("above the panes" in line for line in Emulated.last.screen.display), key
            assert cells(Emulated.last.screen) == painted_whole(app), key


@pytest.mark.turns("size")
@every_size
async def test_a_screen_in_front_costs_less_than_a_whole_paint_and_the_same_one_nothing(
    dumps: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    in_256_colours(monkeypatch)
    app = program(dumps("mindspore-2.0-nan"))
    async with app.run_test(headless=False, size=size) as pilot:
        driver = Driver(app, pilot)
        await driver.until(lambda: app.main.session is not None)
        await driver.settled()
        for key in ("question_mark", "escape", "o", "escape", "w", "escape"):
            before = Emulated.last.written
            await driver.press(key)
            await driver.settled()
            update = app.screen._compositor.render_full_update()
            whole = sum(len(strip.render(app.console).encode()) for line in update.strips for strip in line)
            assert Emulated.last.written - before < whole, key
        before = Emulated.last.written
        app.screen.refresh(repaint=True, layout=True)
        await driver.settled()
        assert Emulated.last.written - before < 100


STYLES = tuple(
    Style.parse(text)
    for text in ("", "red", "on blue", "bold red on blue", "dim", "bold", "italic on green", "reverse red", "underline")
)


class Sized(Static):
    """Notes every size that it hears of."""

    def __init__(self) -> None:
        super().__init__("text")
        self.display = False
        self.heard: list[int] = []

    def on_resize(self, event: events.Resize) -> None:
        self.heard.append(event.size.width)


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "Textual's own"])
async def test_a_widget_that_comes_hears_of_its_size_although_someone_asked_where_another_is(exact: bool) -> None:
    """Textual's own way is the counterexample: without it this test would not show anything."""

    class Asked(App[None]):
        def compose(self) -> ComposeResult:
            yield Sized()

    app = Asked()
    async with app.run_test(size=(80, 24)) as pilot:
        if exact:
            app.screen._compositor = ExactCompositor()
            app.screen.refresh(layout=True)
            await pilot.pause()
        new = app.query_one(Sized)
        new.display = True
        app.screen._compositor.update_widgets({new})  # has the map made anew for whoever asks next
        assert app.screen._compositor.full_map[new].region.width == 80
        await pilot.pause()
        assert new.size.width == 80
        assert new.heard == ([80] if exact else [])


def random_line(dice: random.Random, width: int) -> list[Segment]:
    """Text of some styles, with characters of two cells."""
    line: list[Segment] = []
    left = width
    while left:
        text = "".join(dice.choice("ab  1" if dice.random() < 0.97 else "界") for _ in range(dice.randint(1, 9)))
        text = set_cell_size(text, min(cell_len(text), left))
        line.append(Segment(text, dice.choice(STYLES)))
        left -= cell_len(text)
    return line


def edited(dice: random.Random, line: list[Segment]) -> list[Segment]:
    """The same line with some pieces replaced by others of their width."""
    return [
        piece
        for segment in line
        for piece in (random_line(dice, segment.cell_length) if dice.random() < 0.3 else [segment])
    ]


def test_writing_what_differs_makes_one_line_another() -> None:
    dice, width = random.Random(7), 60  # noqa: S311 - the same lines every time
    for _ in range(400):
        before = random_line(dice, width)
        after = edited(dice, before) if dice.random() < 0.8 else random_line(dice, width)
        changed, whole = pyte.Screen(width, 1), pyte.Screen(width, 1)
        for screen, pieces in (
            (changed, [(0, before)]),
            (changed, differences(before, after)),
            (whole, [(0, after)]),
        ):
            pen = Pen(ColorSystem.EIGHT_BIT)
            for x, piece in pieces:
                pen.write(x, 0, piece)
            pyte.Stream(screen).feed(pen.written())
        plain = pyte.Screen(width, 1)
        pyte.Stream(plain).feed("".join((segment.style or Style()).render(segment.text) for segment in after))
        assert cells(changed) == cells(whole) == cells(plain)
        assert changed.cursor.attrs == plain.cursor.attrs, "the look of the terminal is its own again"


def test_a_line_that_is_the_same_costs_nothing_and_one_number_costs_that_number() -> None:
    before = [Segment("name", STYLES[1]), Segment("   1.5  ", STYLES[2]), Segment("2.5", STYLES[2])]
    assert not differences(before, [*before])
    assert not differences(before, [before[0], Segment("   1.5  2.5", STYLES[2])])
    one = [before[0], Segment("   1.7  ", STYLES[2]), before[2]]
    assert differences(before, one) == [(9, [Segment("7", STYLES[2])])]
    far = [Segment("a" * 30, STYLES[1]), Segment("b", STYLES[2])]
    changed = [Segment("x" + "a" * 29, STYLES[1]), Segment("c", STYLES[2])]
    assert differences(far, changed) == [(0, [Segment("x", STYLES[1])]), (30, [Segment("c", STYLES[2])])]


@pytest.mark.parametrize(("name", "turns"), [("name", 3), ("名", 5)])
def test_what_has_one_look_is_written_together_unless_terminals_may_disagree_on_a_width(name: str, turns: int) -> None:
    pen = Pen(ColorSystem.STANDARD)
    for y in range(2):
        pen.write(3, y, [Segment(name, Style.parse("red")), Segment("far " * 4, Style.parse("underline on blue"))])
    written = pen.written()
    assert len(re.findall(r"\x1b\[[0-9;]*m", written)) == turns, "red, blue, and the terminal's own look again"
    screen = pyte.Screen(40, 2)
    pyte.Stream(screen).feed(written)
    assert [line.rstrip() for line in screen.display] == [f"   {name}{'far ' * 4}".rstrip()] * 2
