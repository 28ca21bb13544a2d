"""What stands on the terminal: only what differs from it is written, and of colours only what changes.

Textual paints a screen that comes to the front, or gets another size, two to four times: empty, laid out, and with its
contents. It says every colour anew for every piece of text. Over a slow line each paint is 20 to 50 KB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from os.path import commonprefix
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.strip import Strip

from tui_debugger.tui.widgets.text import changed_cells, same_blank

_GAP: Final = 6
"""Cells that are as they were and yet written, because going over them costs as much."""
Line = Sequence[Segment]
"""A line of the screen, or a part of one."""
Span = tuple[int, int]
"""The first cell of a part of a line, and the one after the last."""


class WrittenLines:
    """What stands on the terminal."""

    def __init__(self) -> None:
        """Nobody knows what stands there."""
        self._lines: list[Line] = []
        self._width = 0

    def forget(self) -> None:
        """Something else may have been written: all of the next whole screen is written again."""
        self._lines = []

    def write(self, update: LayoutUpdate | ChopsUpdate, console: Console) -> str:
        """Returns what has to be written for an update, and takes it as written."""
        pen = Pen(console._color_system or ColorSystem.TRUECOLOR)  # noqa: SLF001 - as Textual asks
        if isinstance(update, LayoutUpdate):
            self._write_screen(update, pen)
        elif len(update.chops) == len(self._lines):
            self._write_parts(update, pen)
        else:
            self.forget()
            return update.render_segments(console)
        return pen.written()

    def _write_screen(self, update: LayoutUpdate, pen: Pen) -> None:
        region = update.region
        lines: list[Line] = [[segment for strip in line for segment in strip] for line in update.strips]
        known = len(lines) == len(self._lines) and region.width == self._width
        old, self._lines, self._width = self._lines, lines, region.width
        if not known or region.offset.x | region.offset.y:
            for y, line in enumerate(lines):
                pen.write(region.x, region.y + y, line)
            return
        for y, (before, line) in enumerate(zip(old, lines, strict=True)):
            for first, last in differences(before, line):
                pen.write(first, y, divided(line, first, last)[1])

    def _write_parts(self, update: ChopsUpdate, pen: Pen) -> None:
        for y, start, stop in update.spans:
            for end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
                if strip is None or x > stop or end <= start:  # what Textual itself would not write
                    continue
                upto = min(end, stop)
                left, before, right = divided(self._lines[y], x, upto)
                now = list(strip) if upto == end else divided(list(strip), 0, upto - x)[1]
                spans = differences(before, now)
                for first, last in spans:
                    pen.write(x + first, y, divided(now, first, last)[1])
                if spans:
                    self._lines[y] = [*left, *now, *right]


class ScreenDifference(CompositorUpdate):
    """The part of an update that differs from what stands on the terminal, worked out when it is written."""

    def __init__(self, update: LayoutUpdate | ChopsUpdate, written: WrittenLines) -> None:
        self._update = update
        self._written = written

    def render_segments(self, console: Console) -> str:
        """Returns what is written."""
        return self._written.write(self._update, console)


# -- what differs ----------------------------------------------------------------------------------


def divided(line: Line, first: int, last: int) -> tuple[list[Segment], list[Segment], list[Segment]]:
    """Returns what stands before, in, and after some cells of a line."""
    left: list[Segment] = []
    middle: list[Segment] = []
    right: list[Segment] = []
    place = 0
    for segment in line:
        end = place + cell_len(segment.text)
        if end <= first:
            left.append(segment)
        elif place >= last:
            right.append(segment)
        else:
            inside = segment
            if place < first:
                before, inside = segment.split_cells(first - place)
                left.append(before)
            if end > last:
                inside, after = inside.split_cells(last - max(place, first))
                right.append(after)
            middle.append(inside)
        place = end
    return left, middle, right


def differences(old: Line, new: Line) -> list[Span]:
    """Returns the parts of a line that have to be written, from left to right."""
    if old == new:
        return []
    if not (_is_narrow(old) and _is_narrow(new)):
        first, last = changed_cells(Strip(old), Strip(new))
        return [(first, last)] if first < last else []
    spans: list[Span] = []
    for first, last in _changed_pieces(old, new):
        if spans and first - spans[-1][1] <= _GAP:
            spans[-1] = spans[-1][0], last
        else:
            spans.append((first, last))
    return spans


def _is_narrow(line: Line) -> bool:
    """Tells whether each character takes one cell."""
    return all(text.isascii() or cell_len(text) == len(text) for text, _, _ in line)


def _changed_pieces(old: Line, new: Line) -> Iterator[Span]:
    """Yields what differs, a piece of one style each time, in two lines of narrow characters."""
    before, was, place = "", _PLAIN, 0
    olds = iter(old)
    for whole, style, _ in new:
        text, now = whole, style or _PLAIN
        while text:
            while not before:
                found = next(olds, None)
                if found is None:  # nobody knows what stands there
                    yield place, place + len(text)
                    place, text = place + len(text), ""
                    break
                before, was = found.text, found.style or _PLAIN
            size = min(len(text), len(before))
            span = _changed_piece(before[:size], was, text[:size], now) if size else None
            if span is not None:
                yield place + span[0], place + span[1]
            place += size
            text, before = text[size:], before[size:]


def _changed_piece(before: str, was: Style, text: str, style: Style) -> Span | None:
    if style is was or style == was:
        if text == before:
            return None
        first = len(commonprefix([text, before]))  # noqa: RUF071 - characters are meant
        return first, len(text) - len(commonprefix([text[:first:-1], before[:first:-1]]))  # noqa: RUF071 - likewise
    if text.isspace() and before.isspace() and text == before and same_blank(style, was):
        return None
    return 0, len(text)


# -- colours ---------------------------------------------------------------------------------------


class _Look(NamedTuple):
    """The codes of a style: attributes, colours (empty for the terminal's own), address of a link."""

    attributes: frozenset[int]
    color: str
    background: str
    link: str = ""


_PLAIN: Final = Style.null()
_NO_LOOK: Final = _Look(frozenset(), "", "")
_ENDED_BY: Final = {1: 22, 2: 22, 3: 23, 4: 24, 7: 27, 9: 29}
"""The code that ends an attribute. The other attributes are ended by ending everything."""


@lru_cache(maxsize=4096)
def _look_of(style: Style, system: ColorSystem) -> _Look:
    attributes = {
        1: style.bold,
        2: style.dim,
        3: style.italic,
        4: style.underline,
        5: style.blink,
        6: style.blink2,
        7: style.reverse,
        8: style.conceal,
        9: style.strike,
        21: style.underline2,
        51: style.frame,
        52: style.encircle,
        53: style.overline,
    }
    color, background = style.color, style.bgcolor
    return _Look(
        frozenset(code for code, on in attributes.items() if on),
        ";".join(color.downgrade(system).get_ansi_codes()) if color is not None else "",
        ";".join(background.downgrade(system).get_ansi_codes(foreground=False)) if background is not None else "",
        style.link or "",
    )


@lru_cache(maxsize=4096)
def _turn(old: _Look, new: _Look) -> str:
    """Returns what makes one look another, in as few bytes as is safe in every terminal."""
    gone = old.attributes - new.attributes
    bare = (old.color and not new.color) or (old.background and not new.background)
    if bare or not gone <= _ENDED_BY.keys():
        codes = ["0", *map(str, sorted(new.attributes)), new.color, new.background]
    else:
        ended = {_ENDED_BY[code] for code in gone}
        kept = {code for code in new.attributes & old.attributes if _ENDED_BY.get(code) in ended}  # bold and dim
        codes = [*map(str, sorted(ended)), *map(str, sorted(kept | (new.attributes - old.attributes)))]
        codes += [new.color if new.color != old.color else "", new.background * (new.background != old.background)]
    codes = [code for code in codes if code]
    return f"\x1b[{';'.join(codes)}m" if codes else ""


class Pen:
    """Writes pieces of lines, from the terminal's own look on and back to it."""

    def __init__(self, system: ColorSystem) -> None:
        """Writes in the colours that a terminal has."""
        self._system = system
        self._look = _NO_LOOK
        self._written: list[str] = []
        self._row = -1

    def write(self, x: int, y: int, line: Line) -> None:
        """Writes a piece of a line."""
        # Where this line is written already, only the column is told: whole, because of what terminals think wide.
        self._written.append(f"\x1b[{x + 1}G" if y == self._row else f"\x1b[{y + 1};{x + 1}H")
        self._row = y
        for text, style, control in line:
            if text and not control:
                self._write_piece(text, style or _PLAIN)

    def _write_piece(self, text: str, style: Style) -> None:
        look = _look_of(style, self._system)
        if look != self._look:
            blank = not look.link and text.isspace() and look.background == self._look.background
            if blank and not (look.attributes | self._look.attributes) & _SEEN_ON_BLANKS:
                self._written.append(text)  # nobody sees the colour of a blank
                return
            self._written.append(_turn(self._look, look))
            self._look = look
        if look.link:
            text = f"\x1b]8;;{look.link}\x1b\\{text}\x1b]8;;\x1b\\"
        self._written.append(text)

    def written(self) -> str:
        """Returns everything that was written."""
        if self._look != _NO_LOOK:
            self._written.append("\x1b[0m")
            self._look = _NO_LOOK
        return "".join(self._written)


_SEEN_ON_BLANKS: Final = frozenset({4, 7, 9, 21, 51, 52, 53})
"""Attributes that show where there is no character: lines, and colours in reverse."""
