"""Keeps what the terminal shows, and writes only the cells that differ and only the colours that change.

Textual paints a screen that comes to the front or is resized two to four times, and writes every colour again for every
piece of text. Over a slow line each paint is 20 to 50 KB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple, cast

from rich.cells import cached_cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, Compositor, CompositorUpdate, LayoutUpdate, ReflowResult
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from tui_debugger.tui.widgets.text import changed_cells, same_blank

_GAP: Final = 6
"""Unchanged cells between two changes that are written anyway: moving the terminal's cursor costs as many bytes."""
Line = Sequence[Segment]
"""A line of the screen, or a part of one."""
Span = tuple[int, int]
"""The first cell of a part of a line, and the cell after its last."""
Part = tuple[int, int, int, Line]
"""A part of a screen line: line, first cell, cell after the last, contents."""
_Parts = dict[int, tuple[int, Line]]
"""The parts of a line from left to right: (end, contents) by first cell. Widgets that are drawn alone have own parts.
"""


class WrittenLines:
    """The lines that the terminal shows."""

    def __init__(self) -> None:
        self._lines: list[_Parts] = []
        self._width = 0

    def forget(self) -> None:
        """Has the next whole screen written completely: another program or a resize changed the terminal."""
        self._lines = []

    def write(self, update: LayoutUpdate | ChopsUpdate | PartsUpdate, console: Console) -> str:
        pen = Pen(console._color_system or ColorSystem.TRUECOLOR)  # noqa: SLF001 - as Textual asks
        if isinstance(update, LayoutUpdate):
            self._write_screen(update, pen)
        elif isinstance(update, PartsUpdate) and update.height == len(self._lines):
            self._write_parts(update.parts, pen)
        elif isinstance(update, ChopsUpdate) and len(update.chops) == len(self._lines):
            self._write_parts(_parts_of(update), pen)
        else:
            self.forget()
            return update.render_segments(console)
        return pen.written()

    def _write_screen(self, update: LayoutUpdate, pen: Pen) -> None:
        region = update.region
        lines: list[Line] = [[segment for strip in line for segment in strip] for line in update.strips]
        known = len(lines) == len(self._lines) and region.width == self._width
        old, self._width = self._lines, region.width
        self._lines = [{0: (region.width, line)} for line in lines]
        if not known or region.offset.x | region.offset.y:
            for y, line in enumerate(lines):
                pen.write(region.x, region.y + y, line)
            return
        for y, (before, line) in enumerate(zip(old, lines, strict=True)):
            _write_differences(0, y, _whole(before), line, pen)

    def _write_parts(self, parts: Iterable[Part], pen: Pen) -> None:
        for y, x, end, now in parts:
            line = self._lines[y]
            if x not in line or line[x][0] != end:
                line = self._lines[y] = _with_part(line, x, end)
            if _write_differences(x, y, line[x][1], now, pen):
                line[x] = end, now


def _whole(parts: _Parts) -> Line:
    return [segment for _, part in parts.values() for segment in part]


def _with_part(parts: _Parts, first: int, last: int) -> _Parts:
    """Returns a line split so that the cells ``first`` to ``last`` are a part; parts that they cut are joined first."""
    cut = {x: (end, part) for x, (end, part) in parts.items() if x < last and end > first}
    start, stop = min(cut, default=first), max((end for end, _ in cut.values()), default=last)
    left, middle, right = divided(_whole(cut), first - start, last - start)
    made = {start: (first, left), first: (last, middle), last: (stop, right)}
    kept = {x: part for x, part in parts.items() if x not in cut}
    return {x: part for x, part in sorted((kept | made).items()) if x < part[0]}


def _write_differences(x: int, y: int, before: Line, now: Line, pen: Pen) -> bool:
    """Writes what differs between two lines; False if nothing does."""
    alike, end = _alike(before, now)
    changed = differences(before[alike : len(before) - end], now[alike : len(now) - end])
    start = x + _cells(now[:alike]) if changed else x
    for first, pieces in changed:
        pen.write(start + first, y, pieces)
    return bool(changed)


def _alike(one: Line, other: Line) -> tuple[int, int]:
    """Returns how many segments two lines have in common at the left, and at the right."""
    most = min(len(one), len(other))
    first = next((at for at in range(most) if one[at] != other[at]), most)
    most -= first
    return first, next((at for at in range(most) if one[-1 - at] != other[-1 - at]), most)


def _parts_of(update: ChopsUpdate) -> Iterator[Part]:
    """Yields the parts of a line that an update of Textual changes."""
    for y, start, stop in update.spans:
        for end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
            if strip is None or x > stop or end <= start:  # Textual itself skips these
                continue
            upto = min(end, stop)
            if x < upto:
                yield y, x, upto, list(strip) if upto == end else divided(list(strip), 0, upto - x)[1]


class ScreenDifference(CompositorUpdate):
    """The difference between an update and the terminal; computed once, since computing marks it as written."""

    def __init__(self, update: LayoutUpdate | ChopsUpdate | PartsUpdate, written: WrittenLines) -> None:
        self._update = update
        self._written = written
        self._text: str | None = None

    def render_segments(self, console: Console) -> str:
        if self._text is None:
            self._text = self._written.write(self._update, console)
        return self._text


class PartsUpdate(CompositorUpdate):
    """An update of parts of lines, sorted by line and first cell; ``height`` is the number of lines of the screen."""

    def __init__(self, parts: Sequence[Part], height: int) -> None:
        self.parts = parts
        self.height = height

    def render_segments(self, console: Console) -> str:
        pen = Pen(console._color_system or ColorSystem.TRUECOLOR)  # noqa: SLF001 - as Textual asks
        for y, x, _, line in self.parts:
            pen.write(x, y, line)
        return pen.written()


class ExactCompositor(Compositor):
    """A compositor that tells every new widget its size."""

    def __init__(self) -> None:
        super().__init__()
        self._laid_out = self._full_map

    def reflow(self, parent: Widget, size: Size) -> ReflowResult:
        """Lays out; returns the widgets that came, went, or changed their size since the last layout.

        Textual compares with a map that it may have rebuilt since, and then misses new widgets.
        """
        self._full_map = self._laid_out
        result = super().reflow(parent, size)
        self._laid_out = self._full_map
        return result


class PartsCompositor(ExactCompositor):
    """Renders only changed lines of widgets that no other widget covers.

    Textual renders all widgets between the first and the last changed one, and cuts all of their lines.
    """

    def __init__(self) -> None:
        super().__init__()
        self._changed: list[tuple[Widget, Region, set[int]]] = []
        self._in_front: dict[Widget, bool] = {}
        self._of: object = None

    def reflow(self, parent: Widget, size: Size) -> ReflowResult:
        self._changed = []
        return super().reflow(parent, size)

    def update_widgets(self, widgets: set[Widget]) -> None:
        """Notes the changed lines of widgets; falls back to Textual if some widget is covered."""
        self._changed = []
        if self._dirty_regions or not all(map(self._is_in_front, widgets)):
            super().update_widgets(widgets)
            return
        for widget in widgets:
            region, _ = self.visible_widgets[widget]
            lines: set[int] = set()
            for dirty in widget._exchange_repaint_regions():  # noqa: SLF001 - as Textual does
                lines.update(dirty.line_range)
            lines.intersection_update(range(region.height))
            if lines:
                self._changed.append((widget, region, lines))
        self._dirty_regions.update(self._areas())

    def _areas(self) -> set[Region]:
        return {
            Region(region.x, region.y + min(lines), region.width, max(lines) - min(lines) + 1)
            for _, region, lines in self._changed
        }

    def render_partial_update(self) -> ChopsUpdate | None:
        """Returns the changes since the last frame; None for none."""
        if not self._changed or self._areas() != self._dirty_regions:
            self._changed = []
            return super().render_partial_update()
        self._dirty_regions.clear()
        update: Any = PartsUpdate(self._parts(), self.size.height)
        self._changed = []
        return cast("ChopsUpdate", update)

    def _parts(self) -> list[Part]:
        """Returns the whole changed lines of widgets; ``WrittenLines`` finds the cells that differ."""
        parts: list[Part] = []
        for widget, region, lines in self._changed:
            drawn = widget.render_lines(Region(0, 0, *region.size))
            y, x, end = region.y, region.x, region.right
            parts += [(y + line, x, end, drawn[line]._segments) for line in lines]  # noqa: SLF001 - not copied
        return sorted(parts, key=itemgetter(0, 1))

    def _is_in_front(self, widget: Widget) -> bool:
        """Tells whether a widget is completely on the screen and uncovered."""
        visible = self.visible_widgets
        if self._of is not visible:
            self._of = visible
            self._in_front.clear()
        found = self._in_front.get(widget)
        if found is None:
            found = self._in_front[widget] = self._is_uncovered(widget, visible)
        return found

    @staticmethod
    def _is_uncovered(widget: Widget, visible: dict[Widget, tuple[Region, Region]]) -> bool:
        own, clip = visible.get(widget, (Region(), Region()))
        if not clip.contains_region(own):
            return False
        for other, (region, clip) in visible.items():  # from front to back; containers come after their children
            if other is widget:
                return True
            if clip.intersection(region).overlaps(own):
                return False
        return False


# -- what differs ----------------------------------------------------------------------------------


def divided(line: Line, first: int, last: int) -> tuple[list[Segment], list[Segment], list[Segment]]:
    """Returns the segments before, in and after the cells ``first`` to ``last`` of a line."""
    left: list[Segment] = []
    middle: list[Segment] = []
    right: list[Segment] = []
    place = 0
    for segment in line:
        end = place + _cells_of(segment.text)
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


def _cells_of(text: str) -> int:
    return len(text) if text.isascii() else cached_cell_len(text)


def _cells(line: Line) -> int:
    return sum([_cells_of(segment.text) for segment in line])


def differences(old: Line, new: Line) -> list[tuple[int, Line]]:
    """Returns the parts of a line to write, from left to right: (first cell, contents)."""
    if old == new:
        return []
    if not (_is_narrow(old) and _is_narrow(new)):
        first, last = changed_cells(Strip(old), Strip(new))
        return [(first, divided(new, first, last)[1])] if first < last else []
    parts: list[tuple[int, Line]] = []
    pieces: list[Segment] = []
    number, begin, end = -1, 0, -_GAP
    for of, place, first, last in _changed_cells(old, new):
        text, style, _ = new[of]
        if of == number and first - end <= _GAP:
            pieces[-1] = Segment(text[begin - place : last - place], style or _PLAIN)
        else:
            if first != end:
                pieces = []
                parts.append((first, pieces))
            begin = first
            pieces.append(Segment(text[begin - place : last - place], style or _PLAIN))
        number, end = of, last
    return parts


def _is_narrow(line: Line) -> bool:
    for text, _, _ in line:  # noqa: SIM110 - a generator takes twice as long
        if not text.isascii() and cached_cell_len(text) != len(text):
            return False
    return True


def _changed_cells(old: Line, new: Line) -> Iterator[tuple[int, int, int, int]]:
    """Yields the changed cells of lines of narrow characters, each time cells of one style.

    Each item: index of the segment in ``new``, the segment's first cell, first changed cell, cell after the last
    changed.
    """
    before, was, place = "", _PLAIN, 0
    olds = iter(old)
    for number, (whole, style, _) in enumerate(new):
        text, now, begin = whole, style or _PLAIN, place
        while text:
            while not before:
                found = next(olds, None)
                if found is None:  # unknown contents
                    yield number, begin, place, place + len(text)
                    place, text = place + len(text), ""
                    break
                before, was = found.text, found.style or _PLAIN
            size = min(len(text), len(before))
            span = _changed_piece(before[:size], was, text[:size], now) if size else None
            text, before = text[size:], before[size:]
            if span is not None:
                yield number, begin, place + span[0], place + span[1]
            place += size


def _changed_piece(before: str, was: Style, text: str, style: Style) -> Span | None:
    """Returns the span of characters to rewrite between two texts of equal length; None if they look the same."""
    if style is was or style == was:
        if text == before:
            return None
        first = _alike_until(text, before)
        return first, len(text) - _alike_until(text[:first:-1], before[:first:-1])
    if not same_blank(style, was):
        return 0, len(text)
    first = len(text) - max(len(text.lstrip(" ")), len(before.lstrip(" ")))
    last = max(len(text.rstrip(" ")), len(before.rstrip(" ")))
    return (first, last) if first < last else None


def _alike_until(one: str, other: str) -> int:
    """Returns the length of the common prefix of two texts of equal length; a faster ``commonprefix``."""
    first, last = 0, len(one) if one[:1] == other[:1] else 0
    while first < last:
        middle = (first + last + 1) // 2
        if one[first:middle] == other[first:middle]:
            first = middle
        else:
            last = middle - 1
    return first


# -- colours ---------------------------------------------------------------------------------------


class _TerminalStyle(NamedTuple):
    """The codes of a style: attributes, colours (empty: the terminal's default), target of a link."""

    attributes: frozenset[int]
    color: str
    background: str
    link: str = ""


_PLAIN: Final = Style.null()
_NO_STYLE: Final = _TerminalStyle(frozenset(), "", "")
_ENDED_BY: Final = {1: 22, 2: 22, 3: 23, 4: 24, 7: 27, 9: 29}
"""The code that ends an attribute. All other attributes are ended by a reset of everything."""


@lru_cache(maxsize=4096)
def _terminal_style(style: Style, system: ColorSystem) -> _TerminalStyle:
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
    return _TerminalStyle(
        frozenset(code for code, on in attributes.items() if on),
        ";".join(color.downgrade(system).get_ansi_codes()) if color is not None else "",
        ";".join(background.downgrade(system).get_ansi_codes(foreground=False)) if background is not None else "",
        style.link or "",
    )


@lru_cache(maxsize=4096)
def _turn(old: _TerminalStyle, new: _TerminalStyle) -> str:
    """Returns the escape sequence from one style to another, in as few bytes as is safe in every terminal."""
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


class _TextPiece(NamedTuple):
    """Text of one style from cell ``x`` to ``end``; ``told``: write the column: the cursor may stand elsewhere."""

    y: int
    x: int
    end: int
    text: str
    written_with: _TerminalStyle
    told: bool


_Pieces = list[_TextPiece]


class Pen:
    """Collects pieces of lines; begins and ends with the terminal's default style."""

    def __init__(self, system: ColorSystem) -> None:
        self._system = system
        self._pieces: _Pieces = []
        self._narrow = True

    def write(self, x: int, y: int, line: Line) -> None:
        last: _TextPiece | None = None
        for text, style, control in line:
            if text and not control:
                size = _cells_of(text)
                self._narrow &= size == len(text)
                written_with = _terminal_style(style or _PLAIN, self._system)
                both = _common_style(last, text, written_with) if last is not None else None
                if last is not None and both is not None:  # a blank's colour is invisible
                    last = self._pieces[-1] = _TextPiece(y, last.x, x + size, last.text + text, both, last.told)
                else:
                    last = _TextPiece(y, x, x + size, text, written_with, last is None)
                    self._pieces.append(last)
                x += size

    def written(self) -> str:
        """Returns the escape sequences of everything written so far, and clears it.

        Groups pieces by style where that is shorter; not with wide characters, whose width terminals count differently:
        then a later piece covers what is too much of an earlier one.
        """
        found = _in_turn(self._pieces)
        if self._narrow and len(self._pieces) > 2:
            found = min(found, _in_turn(_by_style(self._pieces)), key=len)
        self._pieces = []
        return found


def _common_style(piece: _TextPiece, text: str, written_with: _TerminalStyle) -> _TerminalStyle | None:
    """Returns a style in which a piece and the text behind it look the same as before; None if there is none."""
    own = piece.written_with
    if own == written_with:
        return written_with
    seen = own.link or written_with.link or (own.attributes | written_with.attributes) & _SEEN_ON_BLANKS
    if seen or own.background != written_with.background:
        return None
    return own if text.isspace() else written_with if piece.text.isspace() else None


def _by_style(pieces: _Pieces) -> _Pieces:
    """Returns pieces grouped by style; each group is followed by the style that takes the fewest bytes to switch to."""
    of_style: dict[_TerminalStyle, _Pieces] = {}
    for piece in pieces:
        of_style.setdefault(piece.written_with, []).append(piece)
    ordered: _Pieces = []
    written_with = _NO_STYLE
    while of_style:
        written_with = min(of_style, key=lambda other: len(_turn(written_with, other)))
        ordered += of_style.pop(written_with)
    return ordered


def _in_turn(pieces: _Pieces) -> str:
    """Returns the escape sequences that write pieces in the given order."""
    written: list[str] = []
    written_with, row, column = _NO_STYLE, -1, -1
    for piece in pieces:
        if piece.y != row:
            written.append(f"\x1b[{piece.y + 1};{piece.x + 1}H")
        elif piece.told or piece.x != column:  # an absolute column, since terminals count wide characters differently
            written.append(f"\x1b[{piece.x + 1}G")
        if piece.written_with != written_with:
            written.append(_turn(written_with, piece.written_with))
        written_with, row, column = piece.written_with, piece.y, piece.end
        link = written_with.link
        written.append(f"\x1b]8;;{link}\x1b\\{piece.text}\x1b]8;;\x1b\\" if link else piece.text)
    return "".join(written) + ("\x1b[0m" if written_with != _NO_STYLE else "")


_SEEN_ON_BLANKS: Final = frozenset({4, 7, 9, 21, 51, 52, 53})
"""Attributes that are visible without a character: lines, and reversed colours."""
