"""The bars around the panes: header lines, tabs, edges, footer; and the header while a run is opened."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Span, Text
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip

from tui_debugger.text.clean import clean
from tui_debugger.tui import theme
from tui_debugger.tui.widgets.line_window import PaintedLines
from tui_debugger.tui.widgets.text import fit, inner_part, segments_of, shorten, width_of

if TYPE_CHECKING:
    from tui_debugger.model import Progress


_BAR = 12
_WORDS = {
    "open": "opening",
    "check": "checking",
    "nodes": "reading nodes",
    "save": "writing",
    "tensors": "measuring",
    "order": "asking",
    "follow": "taking in",
}
HeaderLines = tuple[tuple[Text, Text], ...]
"""Each line as left and right part."""


def opening_lines(title: str, progress: Mapping[str, Progress]) -> HeaderLines:
    run = Text(no_wrap=True).append("tdbg", theme.GOOD).append("  " + clean(title), theme.NORMAL)
    state = progress_line(progress) if progress else Text("▶ opening", theme.GOOD, no_wrap=True)
    nothing = Text(no_wrap=True)
    return (run, nothing), (nothing, nothing), (state, nothing)


def progress_line(progress: Mapping[str, Progress]) -> Text:
    """Returns the progress of the first lane."""
    lane, snapshot = next(iter(progress.items()))
    text = Text(no_wrap=True).append("▶ ", theme.GOOD)
    text.append(_WORDS.get(lane, lane) + " ", theme.GOOD)
    if (part := snapshot.part) is not None:
        full = int(_BAR * part)
        text.append("━" * full, theme.GOOD).append("─" * (_BAR - full), theme.DIM).append(f" {100 * part:3.0f} % ")
    text.append(clean(snapshot.text))
    return text.append("  Esc stops", theme.DIM)


_GAP = 2
_PLACE, _ANSWER, _STATE = 0, 1, 2
"""The lines of run and position, of the answer, and of the state of the hits."""
SCOPE = Style(color=theme.GREY, bold=False)
"""The style of the scope in an answer, which goes first."""


class HeaderBar(PaintedLines):
    """Three lines, each with a left and a right part; in a narrow terminal the right part is kept first.

    Exceptions: a whole answer (second line) goes before keys, and the first key before the number of other findings. In
    the other lines dim details at the right go first.
    """

    DEFAULT_CSS = "HeaderBar { height: 3; background: $panel; }"

    def __init__(self) -> None:
        super().__init__(id="header")
        self._lines: HeaderLines = ((Text(), Text()),) * 3

    def show(self, *lines: tuple[Text, Text]) -> None:
        old, self._lines = self._lines, lines
        for y, (before, now) in enumerate(zip(old, lines, strict=True)):
            if before != now:
                self.refresh(Region(0, y, max(self.size.width, 1), 1))

    @property
    def plain(self) -> str:
        return "\n".join(f"{left.plain}  {right.plain}" for left, right in self._lines)

    def render_line(self, y: int) -> Strip:
        base = self.base_style
        width = self.size.width
        if y >= len(self._lines):
            return Strip.blank(width, base)
        room = width - 2
        answer, beside = self._lines[y]
        if y == _ANSWER:
            answer, beside = _fitting(answer, beside, room)
        else:
            kept = answer if y == _STATE else _with_title(answer)
            beside = _without_details(beside, room - _GAP - kept.cell_len)
        left, right = segments_of(answer, base), segments_of(beside, base)
        tail = width_of(right)
        if tail > room:
            right, tail = fit(right, max(room, 0), base), max(room, 0)
        left = fit(left, max(room - tail - (_GAP if tail else 0), 0), base)
        gap = Segment(" " * (_GAP if tail else 0), base)
        edge = Segment(" ", base)
        return Strip([edge, *left, gap, *right, edge]).adjust_cell_length(width, base)


_BETWEEN = " · "
"""The separator between the parts of a title."""
_NAME = 8
"""Fewest cells to which an answer shortens a name."""
_ARTICLE = "the "
"""The word that a reason loses before a name is shortened."""


_MORE = re.compile(r"( · [0-9,]+ more) (?:origin|finding)s?$")
"""The number of other findings, and the noun that the number can do without."""
_KIND = "tensor "
"""The word that a condition's name can do without: ``tensor all zero``."""


def _fitting(answer: Text, keys: Text, room: int) -> tuple[Text, Text]:
    """Returns an answer and as many keys as fit; a whole answer first, then a shorter answer with the first key."""
    first = keys[:end] if (end := keys.plain.find("  ")) > 0 else keys
    whole = answer
    for span in (span for span in whole.spans if span.style == SCOPE):
        answer = whole[: span.start] + whole[span.end :]
    shorter = [answer, *_in_fewer_words(answer)]
    shown = (
        *((whole, keys), (answer, keys), (answer, first), (answer, Text())),
        *((each, first) for each in shorter if first),
    )
    for left, right in (*shown, *((each, Text()) for each in shorter)):
        if left.cell_len + (_GAP + right.cell_len if right else 0) <= room:
            return left, right
    return _with_less_detail(answer, room), Text()


def _in_fewer_words(answer: Text) -> Iterator[Text]:
    """Yields a shorter and shorter answer with its whole name, at last without the number of other findings.

    That number also stands in the line below.
    """
    brief = _brief(answer)
    yield from (brief, _without_article(brief))
    if _without_more(brief) != brief:
        yield from (_without_more(brief), _without_article(_without_more(brief)))
        if _MORE.search(answer.plain) is not None:
            rest = brief[: brief.plain.rfind(" · ")]
            yield from (rest, _without_article(rest))


def _without_more(answer: Text) -> Text:
    """Returns an answer with ``…`` in place of its last part, since a cut number would be another number."""
    end = answer.plain.rfind(" · ")
    return answer[:end] + Text(" …", theme.DIM) if end > 0 else answer


def _brief(answer: Text) -> Text:
    if (found := _MORE.search(answer.plain)) is not None:
        answer = answer[: found.end(1)]
    strong = _strong(answer)
    kind = answer.plain.find(f", {_KIND}", strong.start, strong.end) if strong is not None else -1
    return answer if kind < 0 else answer[: kind + 2] + answer[kind + 2 + len(_KIND) :]


def _without_article(answer: Text) -> Text:
    strong = _strong(answer)
    at = answer.plain.find(f"({_ARTICLE}", strong.end) if strong is not None else -1
    return answer if at < 0 else answer[: at + 1] + answer[at + 1 + len(_ARTICLE) :]


def _strong(answer: Text) -> Span | None:
    return next((span for span in answer.spans if span.style == theme.STRONG), None)


def _with_less_detail(answer: Text, room: int) -> Text:
    """Returns an answer with a shortened name, or without the last reasons why nothing can be judged."""
    answer = _without_more(_brief(answer))
    strong = _strong(answer)
    if strong is None:
        return answer
    named = answer.plain.find(", ", strong.start, strong.end)
    if named > 0 and " " not in answer.plain[strong.start : named]:  # a name has no blanks
        return _with_short_name(answer, strong.start, named, room)
    while answer.cell_len > room and (end := answer.plain.rfind("; ", strong.start)) > 0:
        answer = answer[:end] + Text(" …", theme.DIM)
    return answer


def _with_short_name(answer: Text, first: int, last: int, room: int) -> Text:
    """Returns an answer with its name (``first`` to ``last``) shortened to fit: its scope first, then its middle.

    ``…`` at the end goes as well if the answer then fits. A name that would get shorter than ``_NAME`` stays whole.
    """
    whole = answer
    name = answer.plain[first:last]
    excess = answer.cell_len - room
    if excess > len(name) - _NAME and answer.plain.endswith(" …"):
        answer, excess = answer[:-2], excess - 2
    size = len(name) - excess
    if size < _NAME:
        return whole
    own = name.rpartition("/")[2]
    if size - 2 < len(own) <= size:
        short = own
    elif own == name or len(own) > size:
        short = shorten(name, size)
    else:
        short = f"{inner_part(name.rpartition('/')[0], size - len(own) - 1)}/{own}"
    return answer[:first] + Text(short, theme.STRONG) + answer[last:]


def _with_title(text: Text) -> Text:
    """Returns the part of the first line that is always shown: up to the title, with the sign of a cut."""
    title = next((span for span in text.spans if span.style == theme.STRONG), None)
    return text[: title.end] + Text("…") if title is not None else Text()


def _without_details(text: Text, room: int) -> Text:
    """Returns a text without its last dim parts, until it fits.

    A dim part that ends with a blank names the part behind it, and stays.
    """
    while text.cell_len > room:
        dim = [span for span in text.spans if span.style == theme.DIM]
        details = [span for span in dim if not text.plain[span.start : span.end].endswith(" ")]
        if not details:
            break
        text = text[: details[-1].start] + text[details[-1].end :]
    return text


def _with_whole_counts(text: str, room: int) -> str:
    """Removes inner parts, the last first, until the text fits: cut in the middle, a count could lose its number."""
    parts = text.split(_BETWEEN)
    while len(parts) > 2 and cell_len(_BETWEEN.join(parts)) > room:
        del parts[-2]
    return _BETWEEN.join(parts)


class FrameLine(PaintedLines):
    """The upper or lower edge of a pane with text; Textual's border titles repaint the whole pane on each change."""

    DEFAULT_CSS = "FrameLine { height: 1; color: $border; background: $background; }"

    def __init__(self, *, upper: bool) -> None:
        super().__init__()
        self._upper = upper
        self._title = ""
        self._text = ""
        self._active = False
        self._corners = True
        self._drawn: tuple[object, Strip] | None = None

    def show(self, title: str, text: str) -> None:
        if (title, text) != (self._title, self._text):
            self._title, self._text = title, text
            self._refresh()

    def set_frame(self, *, active: bool, corners: bool) -> None:
        """Draws a heavy line for the active pane; corners only if the pane has side frames."""
        if (active, corners) != (self._active, self._corners):
            self._active, self._corners = active, corners
            self._refresh()

    def _refresh(self) -> None:
        self.refresh(Region(0, 0, max(self.size.width, 1), 1))  # without a region Textual computes all effects again

    def render_line(self, y: int) -> Strip:
        return self._line() if y == 0 else Strip.blank(self.size.width, self.base_style)

    def _line(self) -> Strip:
        width, base = self.size.width, self.base_style
        looks = (width, base, self._title, self._text, self._active, self._corners)
        if self._drawn is None or self._drawn[0] != looks:
            self._drawn = looks, self._draw(width, base)
        return self._drawn[1]

    def _draw(self, width: int, base: Style) -> Strip:
        if width < 1:
            return Strip.blank(width, base)
        line = base + theme.WATCHED if self._active else base
        words = base + theme.PLAIN
        left, dash, right = self._glyphs()
        title_style = (line if self._active else words) + Style(bold=True)
        segments = [Segment(left + dash, line)]
        if self._title or self._text:
            room = max(width - 5 - cell_len(self._title) - 1, 1)
            text = shorten(_with_whole_counts(self._text, room) if self._upper else self._text, room)
            segments.append(Segment(" ", line))
            segments += [Segment(self._title, title_style), Segment(" ", line)] if self._title else []
            segments += [Segment(text, words if self._upper else words + theme.DIM), Segment(" ", line)] if text else []
        used = width_of(segments)
        segments.append(Segment(dash * max(width - used - len(right), 0) + right, line))
        return Strip(segments).adjust_cell_length(width, line)

    def _glyphs(self) -> tuple[str, str, str]:
        dash = "━" if self._active else "─"
        if not self._corners:
            return "", dash, ""
        if self._upper:
            return ("┍", dash, "┑") if self._active else ("╭", dash, "╮")
        return ("┕", dash, "┙") if self._active else ("╰", dash, "╯")


class TabStrip(PaintedLines):
    """The panes by number, if only one of them is shown."""

    DEFAULT_CSS = "TabStrip { height: 1; background: $panel; }"

    @dataclass
    class Chosen(Message):
        """A tab was clicked."""

        pane: str

    def __init__(self) -> None:
        super().__init__(id="tabs")
        self._tabs: tuple[tuple[str, str], ...] = ()
        self._current = ""

    def show(self, tabs: Sequence[tuple[str, str]], current: str) -> None:
        if (tuple(tabs), current) != (self._tabs, self._current):
            self._tabs, self._current = tuple(tabs), current
            self.refresh()

    def render_line(self, y: int) -> Strip:
        base = self.base_style
        segments = [Segment(" ", base)]
        for pane, text in self._tabs:
            style = base + Style(bold=True, reverse=True) if pane == self._current else base
            segments += [Segment(f" {clean(text)} ", style), Segment(" ", base)]
        return Strip(fit(segments, self.size.width, base)) if y == 0 else Strip.blank(self.size.width, base)

    def on_click(self, event: events.Click) -> None:
        x = 1
        for pane, text in self._tabs:
            size = width_of([Segment(clean(text))]) + 2
            if x <= event.x < x + size:
                self.post_message(self.Chosen(pane))
            x += size + 1


class FooterBar(PaintedLines):
    """Two lines: a message until the next key, else the detail under the cursor; then the keys of the focused pane."""

    DEFAULT_CSS = "FooterBar { height: 2; background: $panel; }"

    @dataclass
    class Pressed(Message):
        """A key of the footer was clicked."""

        action: str

    def __init__(self) -> None:
        super().__init__(id="footer")
        self._keys: tuple[tuple[str, str, str], ...] = ()
        self.notice = ""
        self._style = theme.GOOD
        self._detail = ""

    def show(self, keys: Sequence[tuple[str, str, str]]) -> None:
        if tuple(keys) != self._keys:
            self._keys = tuple(keys)
            self._refresh_line(1)

    def show_detail(self, text: str) -> None:
        """Shows the detail under the cursor if the pane has no edge for it."""
        if text != self._detail:
            self._detail = text
            if not self.notice:
                self._refresh_line(0)

    def say(self, text: str, *, bad: bool = False) -> None:
        self.notice, self._style = ("✗ " if bad else "") + clean(text), theme.FINDING if bad else theme.GOOD
        self._refresh_line(0)

    def clear_notice(self) -> None:
        if self.notice:
            self.notice = ""
            self._refresh_line(0)

    def _refresh_line(self, y: int) -> None:
        self.refresh(Region(0, y, max(self.size.width, 1), 1))

    def render_line(self, y: int) -> Strip:
        """Draws a line; leaves out keys that do not fit, but never the last key (help)."""
        base, width = self.base_style, self.size.width
        if y == 0:
            detail = Segment(shorten(self._detail, max(width - 2, 1)), base + theme.DIM)
            shown = Segment(self.notice, base + self._style) if self.notice else detail
            return Strip(fit([Segment(" ", base), shown], width, base))
        segments: list[Segment] = [Segment(" ", base)]
        for key, title, _ in self._shown():
            segments += [Segment(key, base + theme.GOOD), Segment(f" {title}  ", base)]
        return Strip(segments).adjust_cell_length(width, base) if y == 1 else Strip.blank(width, base)

    def _shown(self) -> list[tuple[str, str, str]]:
        *others, pinned = self._keys or (("", "", ""),)
        used = _key_width(pinned) - 1  # a blank before, none after
        shown = []
        for each in others:
            if used + _key_width(each) <= self.size.width:
                shown.append(each)
                used += _key_width(each)
        return [*shown, pinned]

    def on_click(self, event: events.Click) -> None:
        x = 1
        for each in self._shown():
            if event.y == 1 and x <= event.x < x + _key_width(each) - 2:
                self.post_message(self.Pressed(each[2]))
            x += _key_width(each)


def _key_width(key: tuple[str, str, str]) -> int:
    return cell_len(f"{key[0]} {key[1]}  ")
