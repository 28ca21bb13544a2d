"""What the configuration changes on screen: keys wherever they are named, columns, and themes that can be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.color import Color as RichColor
from rich.color import ColorSystem, ColorType
from rich.segment import Segment
from textual.color import Color

from tests.tui.conftest import OpenScreen
from tests.tui.driver import Driver, opened_by
from tests.tui.sizes import every_size
from tui_debugger.config import THEMES, Config, parse
from tui_debugger.errors import ConfigError
from tui_debugger.model import ProgressFn
from tui_debugger.session import Session
from tui_debugger.session.watchpoints import WatchpointStore
from tui_debugger.sources.registry import open_source
from tui_debugger.tui import actions, theme
from tui_debugger.tui.dialogs.prompts import ConfirmScreen
from tui_debugger.tui.palettes import PALETTES, ThemePalette, contrast
from tui_debugger.tui.settings import ADJUSTABLE, apply
from tui_debugger.tui.views.view import View

pytestmark = pytest.mark.usefixtures("_usual_keys_afterwards")
NAN = "mindspore-2.0-nan"


@pytest.fixture
def _usual_keys_afterwards() -> Iterator[None]:
    yield
    apply(Config())


def config(text: str) -> Config:
    return parse(text.encode(), Path("config.toml"))


# -- keys ------------------------------------------------------------------------------------------------


async def test_a_chosen_key_works_and_the_usual_one_does_not(open_screen: OpenScreen) -> None:
    async with open_screen(NAN, config=config('[keys]\nzoom = "B"\n')) as screen:
        await screen.press("z")
        assert not screen.main.zoomed
        await screen.press("B")
        assert screen.main.zoomed


async def test_two_actions_exchange_their_keys(open_screen: OpenScreen) -> None:
    async with open_screen(NAN, config=config('[keys]\nzoom = "2"\npane_stack = "z"\n')) as screen:
        await screen.press("z")
        assert (screen.main.current_pane, screen.main.zoomed) == ("stack", False)
        await screen.press("2")
        assert (screen.main.current_pane, screen.main.zoomed) == ("stack", True)


async def test_keys_of_lists_trees_and_panes_can_be_chosen(open_screen: OpenScreen) -> None:
    chosen = '[keys]\ncursor_down = ["down", "f2"]\nopen_all = "f3"\ntoggle_watch = "f4"\nnew_watchpoint = ";"\n'
    async with open_screen(NAN, config=config(chosen)) as screen:
        await screen.press("1", "home", "f2", "f2")
        assert screen.main.nodes_pane.table.cursor_row == 2
        await screen.press("down", "j")
        assert screen.main.nodes_pane.table.cursor_row == 3, "j is no key any more"
        await screen.press("semicolon")
        await screen.until(lambda: screen.app.screen is not screen.main)


async def test_whoever_changes_the_keys_can_still_leave(open_screen: OpenScreen) -> None:
    async with open_screen(NAN, config=config('[keys]\nquit = "f9"\npalette = ";"\n')) as screen:
        await screen.press("q")
        assert screen.app.is_running
        await screen.press("ctrl+p")
        await screen.until(lambda: screen.app.screen is not screen.main)
        await screen.press("escape")
        await screen.until(lambda: screen.app.screen is screen.main)
        await screen.press("ctrl+c")
        await screen.until(lambda: screen.app.return_code is not None or not screen.app.is_running)


async def test_footer_help_and_palette_name_the_keys_in_force(open_screen: OpenScreen) -> None:
    chosen = config('[keys]\nnext_hit = "f7"\norigin = "f8"\n')
    async with open_screen(NAN, size=(160, 200), config=chosen) as screen:
        assert "F7 Hit" in screen.lines[-1]
        await screen.press("question_mark")
        assert re.search(r"F7 +Next: Goes to the next hit", screen.text)
        assert re.search(r"F8 +Origin: Walks from this tensor", screen.text)
        await screen.press("escape")
        await screen.press("colon")
        await screen.type("next hit")
        await screen.until(lambda: "Next  F7" in screen.text)


@pytest.mark.turns("size")
@every_size
async def test_the_first_screen_names_the_keys_in_force(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    chosen = config('[keys]\nnext_hit = "f7"\norigin = "f8"\n')
    async with open_screen(NAN, size=size, config=chosen) as screen:
        assert screen.lines[-1].startswith(" F7 Hit  F8 Origin  E Explain  Enter ")
        assert screen.lines[1].rstrip().endswith("F8 path  E explain") == (size != (80, 24))
        await screen.press_each("f7")
        assert "hit 2 of 914" in screen.lines[-2]
        await screen.press_each("f8")
        assert type(screen.app.screen).__name__ == "OriginView"


async def test_a_key_that_opens_a_view_does_so_in_views_too_and_hints_name_it(open_screen: OpenScreen) -> None:
    chosen = config('[keys]\nexplain = "f6"\norigin = "f8"\ncancel = "f9"\n')
    async with open_screen(NAN, config=chosen) as screen:
        await screen.press("4", "home", "f6")
        await screen.until(lambda: isinstance(screen.app.screen, View))
        await screen.settled()
        view = screen.app.screen
        hints = re.sub(r"\[.*?\]", "", str(view.query_one("#box").border_subtitle))
        assert "F8 origin" in hints
        assert " o origin" not in hints
        await screen.press("o")
        assert screen.app.screen is view
        await screen.press("f8")
        await screen.until(lambda: type(screen.app.screen).__name__ == "OriginView")
        await screen.press("escape")  # stays, whatever is chosen


def test_every_action_can_be_given_a_key_of_its_own() -> None:
    free = "éèàùâêîôûëïüÿçñõãöäåæøßþðđłšžčćřťďňěůýíóáúőűąęśźżğışāēīōūģķļņĶĻŅŠŽČĆŘŤĎŇĚŮÝÍÓÁÚŐŰĄĘŚŹŻĞŞĀĒĪŌŪĢ"
    free += "ÀÂÃÄÅÆÇÈÊËÌÎÏÐÑÒÔÕÖØÙÛÜÞĐŁ"
    assert len(free) >= len(ADJUSTABLE)
    chosen = "\n".join(f'{action.setting} = "{key}"' for action, key in zip(ADJUSTABLE, free, strict=False))
    found = apply(config(f"[keys]\n{chosen}"))
    assert found.keys() == {action.setting for action in ADJUSTABLE}
    assert [action.main_key for action in ADJUSTABLE] == list(free[: len(ADJUSTABLE)])


def test_names_of_settings_are_unique() -> None:
    names = [action.setting for action in ADJUSTABLE]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z_0-9]+", name) for name in names)


def test_keys_with_a_mistake_are_no_screen_at_all() -> None:
    with pytest.raises(ConfigError, match="taken twice"):
        apply(config('[keys]\nrecheck = "n"\n'))
    assert actions.key_of("recheck") == "r", "nothing of it is in force"


# -- columns ---------------------------------------------------------------------------------------------


@pytest.mark.turns("size")
@every_size
async def test_tables_of_tensors_show_the_chosen_statistics(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    chosen = config('[columns]\ntensors = ["norm", "max", "std"]\n')
    async with open_screen(NAN, size=size, config=chosen) as screen:
        await screen.press("n", "5")
        await screen.settled()
        titles = next(line for line in screen.lines if "dtype" in line)
        assert re.search(r"dtype +norm +max +σ +(from|\d more)", titles)
        await screen.press("o")
        await screen.until(lambda: isinstance(screen.app.screen, View))
        await screen.settled()
        assert any(re.search(r"io +norm +max +σ +dtype", line) for line in screen.lines)


# -- recommended watchpoints -----------------------------------------------------------------------------


@pytest.mark.turns("size")
@every_size
async def test_the_screen_adds_the_recommended_watchpoints_of_the_file(
    dumps: Callable[[str], Path], size: tuple[int, int]
) -> None:
    chosen = config('[recommended]\nweight_not_changed = false\nalso = ["EX norm > 10*prev.norm"]\n')

    def open_session(progress: ProgressFn) -> Session:
        session = Session(open_source(dumps(NAN)))
        session.recommended_changes = chosen.recommended
        session.open(progress)
        return session

    async with opened_by(open_session, size=size, config=chosen) as screen:
        assert screen.lines[-2].strip() == "6 recommended watchpoints added; u takes them away"
        words = [row.split()[2] for row in screen.pane("watchpoints")]
        assert words == ["WCL", "GV", "TO", "TZ", "AR", "EX"]
        assert "● steps 0–5 checked" in screen.lines[2]


@pytest.mark.turns("size")
@every_size
async def test_the_screen_asks_once_before_it_adds_them(
    dumps: Callable[[str], Path], size: tuple[int, int], tmp_path: Path
) -> None:
    chosen = config('recommended = "ask"\n')

    def open_session(progress: ProgressFn) -> Session:
        session = Session(open_source(dumps(NAN)), store=WatchpointStore(str(dumps(NAN)), tmp_path))
        session.open(progress)
        return session

    async def asked(key: str) -> tuple[bool, list[str], str]:
        """Whether there was a question, the watchpoints after the answer, and what was said."""
        async with opened_by(open_session, size=size, config=chosen) as screen:
            question = isinstance(screen.app.screen, ConfirmScreen)
            if question:
                assert "6 watchpoints are recommended for this run" in screen.text
                assert not screen.pane("watchpoints")
                await screen.press(key)
                await screen.settled()
            return question, screen.pane("watchpoints"), screen.main.footer.notice

    assert await asked("escape") == (True, [], "no watchpoint: w makes one, a adds the recommended ones")
    question, watchpoints, said = await asked("y")
    assert (question, len(watchpoints)) == (True, 6), "who went back was not answered"
    assert said == "6 recommended watchpoints added; u takes them away"
    question, watchpoints, _ = await asked("y")
    assert (question, len(watchpoints)) == (False, 6)


# -- themes ----------------------------------------------------------------------------------------------


def drawn(screen: Driver) -> list[Segment]:
    """What goes to the terminal."""
    return [segment for strip in screen.app.screen._compositor.render_strips() for segment in strip]


def cells(screen: Driver) -> Iterator[tuple[str, Color, Color]]:
    """Every piece of text with its two colours; pixels are none."""
    for text, style, control in drawn(screen):
        if control or not text.strip(" ▀") or style is None:
            continue
        assert style.color is not None, text
        assert style.bgcolor is not None, text
        colors = [Color.from_rich_color(style.color), Color.from_rich_color(style.bgcolor)]
        yield (text, *(reversed(colors) if style.reverse else colors))


SCREENS = (
    ("4", "home"),
    ("1", "end"),
    ("question_mark",),
    ("4", "home", "o"),
    ("4", "home", "E"),
    ("n", "5", "end", "enter"),
    ("n", "5", "end", "enter", "t"),
    ("4", "home", "H"),
    ("4", "home", "b"),
    ("M",),
    ("w",),
    ("ctrl+p",),
    ("slash", "x"),
)


DARK = ThemePalette(theme.BACKGROUND, {}, {}, contrast=4.5)
FRAMES = re.compile(r"[─-╿▀-▟ ]*")
"""Lines around text, which are quiet in the dark theme."""


def as_shown(color: Color, system: ColorSystem) -> Color:
    """The nearest colour that a terminal has."""
    nearest = color.rich_color.downgrade(system)
    return Color(*nearest.get_truecolor())


@pytest.mark.parametrize("name", ["dark", *PALETTES])
async def test_every_text_of_a_theme_can_be_read(open_screen: OpenScreen, name: str) -> None:
    palette = PALETTES.get(name, DARK)
    async with open_screen(NAN, size=(120, 40), config=Config(theme=name)) as screen:
        for keys in SCREENS:
            await screen.press(*keys)
            await screen.settled()
            for system, needed in ((ColorSystem.TRUECOLOR, palette.contrast), (ColorSystem.EIGHT_BIT, 3.0)):
                shown = [(text, as_shown(one, system), as_shown(other, system)) for text, one, other in cells(screen)]
                if palette is DARK:  # what lies below the palette of commands is dimmed
                    shown = [cell for cell in shown if not FRAMES.fullmatch(cell[0]) and "ctrl+p" not in keys]
                least = min(shown, key=lambda cell: contrast(cell[1], cell[2]), default=None)
                assert least is None or contrast(least[1], least[2]) >= needed - 0.01, (keys, least)
            grounds = [Color.from_rich_color(style.bgcolor) for _, style, _ in drawn(screen) if style and style.bgcolor]
            dimmed = "ctrl+p" in keys  # what lies below the palette
            assert dimmed or grounds.count(Color.parse(palette.ground)) > len(grounds) / 2, keys
            while screen.app.screen is not screen.main:
                await screen.press("escape")
            await screen.press("escape")


@pytest.mark.turns("size")
@every_size
async def test_a_finding_has_its_glyph_and_its_colour_in_every_theme(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    styles = {}
    for name in THEMES:
        async with open_screen(NAN, size=size, config=Config(theme=name)) as screen:
            await screen.press("4", "down")
            glyphs = [s for s in drawn(screen) if s.text.strip() == theme.ORIGIN_GLYPH and s.style and s.style.color]
            plain = [s for s in drawn(screen) if "float32" in s.text or "Nodes" in s.text]
            assert glyphs, name
            assert plain, name
            styles[name] = {str(s.style.color.name) for s in glyphs if s.style and s.style.color}
            assert styles[name].isdisjoint(str(s.style.color.name) for s in plain if s.style and s.style.color), name
    assert styles["dark"] == {theme.ORANGE}
    assert styles["terminal"] == {"red"}


@pytest.mark.parametrize(("name", "terminal"), [("terminal", "xterm-256color"), *((name, "xterm") for name in THEMES)])
async def test_16_colours_are_those_of_the_terminal_and_the_selected_row_is_reversed(
    open_screen: OpenScreen, name: str, terminal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A colour never stands on another: nobody knows how a terminal draws its colours."""
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.delenv("COLORTERM")
    async with open_screen(NAN, size=(120, 40), config=Config(theme=name)) as screen:
        await screen.press("4", "home")
        selected = next(strip for strip in screen.app.screen._compositor.render_strips() if "▌" in strip.text)
        assert any(style.reverse for text, style, _ in selected if style and "Log-op381" in text)
        for keys in SCREENS:
            await screen.press(*keys)
            await screen.settled()
            colors: set[RichColor] = set()
            for _, style, _ in drawn(screen):
                if style is not None:
                    colors |= {color for color in (style.color, style.bgcolor) if color is not None}
            assert {color.type for color in colors} <= {ColorType.DEFAULT, ColorType.STANDARD}, keys
            for text, style, _ in drawn(screen):
                both = (style.color, style.bgcolor) if style and text.strip(" ▀") else ()
                assert not both or any(color is None or color.is_default for color in both), (keys, text)
            while screen.app.screen is not screen.main:
                await screen.press("escape")
            await screen.press("escape")


async def test_the_usual_theme_costs_nothing(open_screen: OpenScreen) -> None:
    async with open_screen(NAN) as screen:
        usual = list(screen.app.get_line_filters())
        assert not [each for each in usual if "palettes" in type(each).__module__]
    async with open_screen(NAN, config=Config(theme="light")) as screen:
        assert len(screen.app.get_line_filters()) == len(usual) + 1


@pytest.mark.parametrize("name", THEMES)
async def test_no_color_wins_over_every_theme(
    open_screen: OpenScreen, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with open_screen(NAN, config=Config(theme=name)) as screen:
        await screen.press("4", "home")
        for _, style, _ in drawn(screen):
            for color in (style.color, style.bgcolor) if style else ():
                if color is not None and not color.is_default:
                    red, green, blue = color.get_truecolor()
                    assert max(red, green, blue) - min(red, green, blue) <= 1, style
