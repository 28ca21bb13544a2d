"""The colours of the themes, which replace the drawn colours on the way to the terminal.

Everything is drawn in the colours of ``theme``, for a dark ground. Another theme is a table from these colours to its
own, and a rule for all other colours: text gets a readable contrast. Pixels (half blocks of heat maps) do not, since
their colours stand for numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from rich.color import Color as RichColor
from rich.color import ColorSystem, ColorType
from rich.segment import Segment
from rich.style import Style
from textual.color import BLACK, WHITE, Color
from textual.filter import LineFilter

from tui_debugger.text.heat_map import Colors, palette_of
from tui_debugger.tui import theme

PIXEL: Final = "▀"
_STEPS: Final = 20
"""Number of steps in which a colour moves towards black or white until text is readable."""


@dataclass(frozen=True, slots=True)
class ThemePalette:
    """The colours of a theme.

    Attributes:
        ground: the default background.
        text: colours of text, by colours of ``theme``.
        behind: background colours, by colours of ``theme``.
        contrast: least contrast (WCAG) of text against its background.
        darkest, lightest: text moves towards one of them until it has that contrast.
        mirrored: other dark greys in the background are inverted.
    """

    ground: str
    text: Mapping[str, str]
    behind: Mapping[str, str]
    contrast: float
    mirrored: bool = False
    darkest: Color = field(default=BLACK)
    lightest: Color = field(default=WHITE)


LIGHT: Final = ThemePalette(
    ground="#fcfcfa",
    text={
        theme.BACKGROUND: "#fcfcfa",
        theme.FOREGROUND: "#1c2128",
        theme.GREY: "#59616e",
        theme.BLUE: "#0a58a8",
        theme.ORANGE: "#a34400",
        theme.BAR: "#8d95a1",
        theme.BAR_HOVERED: "#6a7381",
    },
    behind={
        theme.BACKGROUND: "#fcfcfa",
        theme.PANEL: "#eceef1",
        theme.CURSOR_COLOR: "#b5d4f4",
        theme.CURSOR_BLURRED_COLOR: "#e2e6eb",
        theme.MATCH_COLOR: "#ffe58a",
        theme.BAR: "#b8bfc9",
        theme.BAR_HOVERED: "#8d95a1",
    },
    contrast=4.5,
    mirrored=True,
)
HIGH_CONTRAST: Final = ThemePalette(
    ground="#000000",
    text={
        theme.BACKGROUND: "#000000",
        theme.FOREGROUND: "#ffffff",
        theme.GREY: "#d0d0d0",
        theme.BLUE: "#87d7ff",
        theme.ORANGE: "#ffaf00",
        theme.BAR: "#ffffff",
    },
    behind={
        theme.BACKGROUND: "#000000",
        theme.PANEL: "#000000",
        theme.CURSOR_COLOR: "#ffffff",
        theme.CURSOR_BLURRED_COLOR: "#444444",
        theme.MATCH_COLOR: "#ffff00",
        theme.BAR: "#ffffff",
    },
    contrast=7.0,
)
PALETTES: Final[Mapping[str, ThemePalette]] = {"light": LIGHT, "high-contrast": HIGH_CONTRAST}


def recoloring(name: str) -> LineFilter | None:
    """Returns the filter that makes a theme's colours (``config.THEMES``) from the drawn colours; None for ``dark``."""
    if name == "terminal":
        return TerminalColors()
    return Recolored(PALETTES[name]) if name in PALETTES else None


class Recolored(LineFilter):
    """Draws in the colours of a palette."""

    def __init__(self, palette: ThemePalette) -> None:
        super().__init__()
        self._text = lru_cache(4096)(_Recolor(palette, pixels=False))
        self._pixels = lru_cache(4096)(_Recolor(palette, pixels=True))

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        del background
        return [
            Segment(text, (self._pixels if _is_pixels(text) else self._text)(style or Style.null()), control)
            for text, style, control in segments
        ]


@dataclass(frozen=True, slots=True)
class _Recolor:
    """Changes a style; text without colours gets the theme's default colours."""

    palette: ThemePalette
    pixels: bool

    def __call__(self, style: Style) -> Style:
        palette = self.palette
        behind = self._behind(style.bgcolor)
        if self.pixels:
            return style + Style.from_color(self._behind(style.color).rich_color, behind.rich_color)
        drawn = theme.FOREGROUND if style.color is None or style.color.is_default else _hex(style.color)
        if style.dim:  # Textual would dim the colour without regard to the contrast
            drawn, style = theme.GREY, style + _NOT_DIM
        text = Color.parse(palette.text.get(drawn, drawn))
        if style.reverse:  # the terminal swaps both: the background colour is the text's
            behind = _readable(behind, text, palette)
        else:
            text = _readable(text, behind, palette)
        return style + Style.from_color(text.rich_color, behind.rich_color)

    def _behind(self, drawn: RichColor | None) -> Color:
        palette = self.palette
        if drawn is None or drawn.is_default:
            return Color.parse(palette.ground)
        name = _hex(drawn)
        if name in palette.behind:
            return Color.parse(palette.behind[name])
        color = Color.parse(name)
        return color.inverse if palette.mirrored and _is_dark_grey(color) else color


_NOT_DIM: Final = Style(dim=False)


class TerminalColors(LineFilter):
    """Draws in the 16 colours of the terminal, on its own ground; important parts are reversed."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        del background
        return [
            Segment(text, _of_terminal(style or Style.null(), _is_pixels(text)), control)
            for text, style, control in segments
        ]


_PLAIN: Final = RichColor.default()
_FEW: Final = palette_of(Colors.FEW)
_TERMINAL: Final = {
    theme.FOREGROUND: Style(color=_PLAIN),
    theme.BACKGROUND: Style(color=_PLAIN),
    theme.GREY: Style(color=_PLAIN, dim=True),
    theme.BAR: Style(color=_PLAIN, dim=True),
    theme.BLUE: Style(color="blue"),
    theme.ORANGE: Style(color="red"),
    _FEW.positive[0]: Style(color="red"),
    _FEW.negative[0]: Style(color="blue"),
    _FEW.nan: Style(color="magenta"),
}
"""Red and blue, because yellow and cyan are hard to read on light grounds; colour-blind people can tell them apart."""
_BEHIND_TERMINAL: Final = {
    theme.BACKGROUND: Style(bgcolor=_PLAIN),
    theme.PANEL: Style(bgcolor=_PLAIN),
    theme.CURSOR_COLOR: Style(color=_PLAIN, bgcolor=_PLAIN, reverse=True, dim=False),
    theme.CURSOR_BLURRED_COLOR: Style(bgcolor=_PLAIN, underline=True),
    theme.MATCH_COLOR: Style(color=_PLAIN, bgcolor=_PLAIN, underline=True, bold=True),
    theme.BAR: Style(color=_PLAIN, bgcolor=_PLAIN, reverse=True, dim=True),
    theme.BAR_HOVERED: Style(color=_PLAIN, bgcolor=_PLAIN, reverse=True),
}
_STRONG_BEHIND: Final = frozenset({theme.BLUE, theme.ORANGE})


@lru_cache(4096)
def _of_terminal(style: Style, pixels: bool) -> Style:
    behind = "" if style.bgcolor is None or style.bgcolor.is_default else _hex(style.bgcolor)
    drawn = "" if style.color is None or style.color.is_default else _hex(style.color)
    if not pixels and behind in _STRONG_BEHIND:  # a chip: its colour reversed, with the terminal's ground as text
        return style + _TERMINAL[behind] + Style(bgcolor=_PLAIN, reverse=True)
    found = style
    if drawn:
        found += _TERMINAL.get(drawn) or Style(color=_hue(drawn))
    if behind:
        found += _BEHIND_TERMINAL.get(behind) or Style(bgcolor=_hue(behind))
    return found


def _hue(name: str) -> RichColor:
    """Returns the nearest of the 16 colours; for greys the default, since the terminal's ground may have that grey."""
    return _PLAIN if _is_grey(Color.parse(name)) else RichColor.parse(name).downgrade(ColorSystem.STANDARD)


def _hex(color: RichColor) -> str:
    if color.type is ColorType.DEFAULT:
        return ""
    return color.get_truecolor().hex.lower()


def _is_pixels(text: str) -> bool:
    return bool(text) and not text.strip(PIXEL)


def _is_dark_grey(color: Color) -> bool:
    return _is_grey(color) and max(color.rgb) < 112


def _is_grey(color: Color) -> bool:
    return max(color.rgb) - min(color.rgb) < 24


def _readable(text: Color, behind: Color, palette: ThemePalette) -> Color:
    """Moves a text colour towards ``darkest`` or ``lightest``, whichever contrasts more, until it can be read."""
    if contrast(text, behind) >= palette.contrast:
        return text
    aim = max(palette.darkest, palette.lightest, key=lambda end: contrast(end, behind))
    moved = (text.blend(aim, step / _STEPS) for step in range(1, _STEPS + 1))
    return next((each for each in moved if contrast(each, behind) >= palette.contrast), aim)


def contrast(one: Color, other: Color) -> float:
    """Returns the contrast of two colours as WCAG defines it: from 1 (none) to 21."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(color: Color) -> float:
    parts = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (value / 255 for value in color.rgb)
    ]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
