"""Keeps what the terminal shows, and writes only what differs from it, and only the colours that change.

Textual paints a screen that comes to the front, or gets another size, two to four times: empty, laid out, and with its
contents. It says every colour anew for every piece of text. Over a slow line each paint is 20 to 50 KB.
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
"""Cells that are as they were and yet written, because going over them costs as much: between two of their look."""
Line = Sequence[Segment]
"""A line of the screen, or a part of one."""
Span = tuple[int, int]
"""The first cell of a part of a line, and the one after the last."""
Part = tuple[int, int, int, Line]
"""A part of a line of the screen: line, first cell, the one after the last, what is to stand there."""
_Parts = dict[int, tuple[int, Line]]
"""The parts of a line from left to right: end and contents by first cell. Widgets that are drawn for themselves have
parts of their own."""


class WrittenLines:
    """The lines that the terminal shows."""

    def __init__(self) -> None:
        """Begins with a screen of which nothing is known."""
        self._lines: list[_Parts] = []
        self._width = 0

    def forget(self) -> None:
        """Something else may have been written: all of the next whole screen is written again."""
        self._lines = []

    def write(self, update: LayoutUpdate | ChopsUpdate | PartsUpdate, console: Console) -> str:
        """Returns what has to be written for an update, and takes it as written."""
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
    """Returns all of a line."""
    return [segment for _, part in parts.values() for segment in part]


def _with_part(parts: _Parts, first: int, last: int) -> _Parts:
    """Returns a line divided so that some cells of it are a part of their own; what they cut is put together."""
    cut = {x: (end, part) for x, (end, part) in parts.items() if x < last and end > first}
    start, stop = min(cut, default=first), max((end for end, _ in cut.values()), default=last)
    left, middle, right = divided(_whole(cut), first - start, last - start)
    made = {start: (first, left), first: (last, middle), last: (stop, right)}
    kept = {x: part for x, part in parts.items() if x not in cut}
    return {x: part for x, part in sorted((kept | made).items()) if x < part[0]}


def _write_differences(x: int, y: int, before: Line, now: Line, pen: Pen) -> bool:
    """Makes one line another; False where it is the same."""
    alike, end = _alike(before, now)
    changed = differences(before[alike : len(before) - end], now[alike : len(now) - end])
    start = x + _cells(now[:alike]) if changed else x
    for first, pieces in changed:
        pen.write(start + first, y, pieces)
    return bool(changed)


def _alike(one: Line, other: Line) -> tuple[int, int]:
    """Returns how many pieces of two lines are the same, from the left, and from the right."""
    most = min(len(one), len(other))
    first = next((at for at in range(most) if one[at] != other[at]), most)
    most -= first
    return first, next((at for at in range(most) if one[-1 - at] != other[-1 - at]), most)


def _parts_of(update: ChopsUpdate) -> Iterator[Part]:
    """Yields what an update of Textual changes."""
    for y, start, stop in update.spans:
        for end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
            if strip is None or x > stop or end <= start:  # what Textual itself would not write
                continue
            upto = min(end, stop)
            if x < upto:
                yield y, x, upto, list(strip) if upto == end else divided(list(strip), 0, upto - x)[1]


class ScreenDifference(CompositorUpdate):
    """The part of an update that differs from what stands on the terminal, worked out once, when it is written."""

    def __init__(self, update: LayoutUpdate | ChopsUpdate | PartsUpdate, written: WrittenLines) -> None:
        self._update = update
        self._written = written
        self._text: str | None = None

    def render_segments(self, console: Console) -> str:
        """Returns what is written."""
        if self._text is None:
            self._text = self._written.write(self._update, console)
        return self._text


class PartsUpdate(CompositorUpdate):
    """Parts of lines.

    Attributes:
        parts: from the top to the bottom of a widget.
        height: lines of the screen.
    """

    def __init__(self, parts: Sequence[Part], height: int) -> None:
        self.parts = parts
        self.height = height

    def render_segments(self, console: Console) -> str:
        """Returns what is written where it is not known what stands on the terminal."""
        pen = Pen(console._color_system or ColorSystem.TRUECOLOR)  # noqa: SLF001 - as Textual asks
        for y, x, _, line in self.parts:
            pen.write(x, y, line)
        return pen.written()


class ExactCompositor(Compositor):
    """Tells every widget that came of its size."""

    def __init__(self) -> None:
        super().__init__()
        self._laid_out = self._full_map

    def reflow(self, parent: Widget, size: Size) -> ReflowResult:
        """Lays the screen out, and returns the widgets that came, went, or have another size since it last was.

        Textual compares with a map that it may have made anew in between, for someone who asked where a widget is. A
        widget that had come by then would never hear of its size.
        """
        self._full_map = self._laid_out
        result = super().reflow(parent, size)
        self._laid_out = self._full_map
        return result


class PartsCompositor(ExactCompositor):
    """Asks only widgets that changed what stands in them, where nothing lies above them.

    Textual asks all widgets between the first and the last that changed, and cuts all of their lines into pieces.
    """

    def __init__(self) -> None:
        super().__init__()
        self._changed: list[tuple[Widget, Region, set[int]]] = []
        self._in_front: dict[Widget, bool] = {}
        self._of: object = None

    def reflow(self, parent: Widget, size: Size) -> ReflowResult:
        """Lays the screen out: what was to be drawn may stand elsewhere now."""
        self._changed = []
        return super().reflow(parent, size)

    def update_widgets(self, widgets: set[Widget]) -> None:
        """Notes what widgets have to have drawn again."""
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
        """Returns where each widget changed: from its first line that did to its last."""
        return {
            Region(region.x, region.y + min(lines), region.width, max(lines) - min(lines) + 1)
            for _, region, lines in self._changed
        }

    def render_partial_update(self) -> ChopsUpdate | None:
        """Returns what changed on the screen; None for nothing."""
        if not self._changed or self._areas() != self._dirty_regions:
            self._changed = []
            return super().render_partial_update()
        self._dirty_regions.clear()
        update: Any = PartsUpdate(self._parts(), self.size.height)
        self._changed = []
        return cast("ChopsUpdate", update)

    def _parts(self) -> list[Part]:
        """Returns the lines of widgets with something that changed, whole: what differs is found out later anyway."""
        parts: list[Part] = []
        for widget, region, lines in self._changed:
            drawn = widget.render_lines(Region(0, 0, *region.size))
            y, x, end = region.y, region.x, region.right
            parts += [(y + line, x, end, drawn[line]._segments) for line in lines]  # noqa: SLF001 - not copied
        return sorted(parts, key=itemgetter(0, 1))

    def _is_in_front(self, widget: Widget) -> bool:
        """Tells whether all of a widget is on the screen, and nothing above it."""
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
        for other, (region, clip) in visible.items():  # from the front to the back, containers behind what is in them
            if other is widget:
                return True
            if clip.intersection(region).overlaps(own):
                return False
        return False


# -- what differs ----------------------------------------------------------------------------------


def divided(line: Line, first: int, last: int) -> tuple[list[Segment], list[Segment], list[Segment]]:
    """Returns what stands before, in, and after some cells of a line."""
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
    """Returns the parts of a line that have to be written, from left to right: first cell, contents."""
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
    """Tells whether each character takes one cell."""
    for text, _, _ in line:  # noqa: SIM110 - a generator takes twice as long
        if not text.isascii() and cached_cell_len(text) != len(text):
            return False
    return True


def _changed_cells(old: Line, new: Line) -> Iterator[tuple[int, int, int, int]]:
    """Yields what differs in two lines of narrow characters, cells of one style each time.

    Yields:
        The number of the piece of the new line that they belong to, and its first cell; then their own first cell, and
        the one after their last.
    """
    before, was, place = "", _PLAIN, 0
    olds = iter(old)
    for number, (whole, style, _) in enumerate(new):
        text, now, begin = whole, style or _PLAIN, place
        while text:
            while not before:
                found = next(olds, None)
                if found is None:  # it is not known what stands there
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
    """Returns what differs in two texts of one size."""
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
    """Returns where two texts of one size begin to differ: what ``commonprefix`` looks for character by character."""
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
    """The codes of a style: attributes, colours (empty for the terminal's own), address of a link."""

    attributes: frozenset[int]
    color: str
    background: str
    link: str = ""


_PLAIN: Final = Style.null()
_NO_STYLE: Final = _TerminalStyle(frozenset(), "", "")
_ENDED_BY: Final = {1: 22, 2: 22, 3: 23, 4: 24, 7: 27, 9: 29}
"""The code that ends an attribute. The other attributes are ended by ending everything."""


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


class _TextPiece(NamedTuple):
    """Text of one look: where it begins, the cell after its last one, what it is written with.

    ``told`` says that the terminal is told where, also where it should be there already: it may think otherwise.
    """

    y: int
    x: int
    end: int
    text: str
    written_with: _TerminalStyle
    told: bool


_Pieces = list[_TextPiece]


class Pen:
    """Writes pieces of lines, from the terminal's own look on and back to it."""

    def __init__(self, system: ColorSystem) -> None:
        """Writes in the colours that a terminal has."""
        self._system = system
        self._pieces: _Pieces = []
        self._narrow = True

    def write(self, x: int, y: int, line: Line) -> None:
        """Writes a piece of a line."""
        last: _TextPiece | None = None
        for text, style, control in line:
            if text and not control:
                size = _cells_of(text)
                self._narrow &= size == len(text)
                written_with = _terminal_style(style or _PLAIN, self._system)
                both = _common_style(last, text, written_with) if last is not None else None
                if last is not None and both is not None:  # nobody sees the colour of a blank
                    last = self._pieces[-1] = _TextPiece(y, last.x, x + size, last.text + text, both, last.told)
                else:
                    last = _TextPiece(y, x, x + size, text, written_with, last is None)
                    self._pieces.append(last)
                x += size

    def written(self) -> str:
        """Returns everything that was written.

        Where that is shorter, what has one look is written together. What terminals may think to be of another width
        than it is keeps to the order of reading: what follows it covers the rest of it.
        """
        found = _in_turn(self._pieces)
        if self._narrow and len(self._pieces) > 2:
            found = min(found, _in_turn(_by_style(self._pieces)), key=len)
        self._pieces = []
        return found


def _common_style(piece: _TextPiece, text: str, written_with: _TerminalStyle) -> _TerminalStyle | None:
    """Returns the look that a piece and the text behind it may both be written with; None where there is none."""
    own = piece.written_with
    if own == written_with:
        return written_with
    seen = own.link or written_with.link or (own.attributes | written_with.attributes) & _SEEN_ON_BLANKS
    if seen or own.background != written_with.background:
        return None
    return own if text.isspace() else written_with if piece.text.isspace() else None


def _by_style(pieces: _Pieces) -> _Pieces:
    """Returns pieces so that those of one look follow each other, and after each look comes the nearest one."""
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
    """Returns what writes pieces one after the other."""
    written: list[str] = []
    written_with, row, column = _NO_STYLE, -1, -1
    for piece in pieces:
        if piece.y != row:
            written.append(f"\x1b[{piece.y + 1};{piece.x + 1}H")
        elif piece.told or piece.x != column:  # the column whole, because of what terminals think wide
            written.append(f"\x1b[{piece.x + 1}G")
        if piece.written_with != written_with:
            written.append(_turn(written_with, piece.written_with))
        written_with, row, column = piece.written_with, piece.y, piece.end
        link = written_with.link
        written.append(f"\x1b]8;;{link}\x1b\\{piece.text}\x1b]8;;\x1b\\" if link else piece.text)
    return "".join(written) + ("\x1b[0m" if written_with != _NO_STYLE else "")


_SEEN_ON_BLANKS: Final = frozenset({4, 7, 9, 21, 51, 52, 53})
"""Attributes that show where there is no character: lines, and colours in reverse."""
