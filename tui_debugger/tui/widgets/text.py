"""Text in cells: cleaned, measured, cut and joined into strips. Widths are terminal cells."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from os.path import commonprefix

from rich.cells import cell_len, set_cell_size, split_text
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from tui_debugger.text.clean import clean
from tui_debugger.text.tables import NUMBER, kept_parts, told_apart

_LEAST = 5
"""Fewest cells to show of the end of a scope."""
_LEAST_SCOPE = 5
"""Cells that a call (see ``ScopedName``) leaves for its scope, if the scope is that long."""
_LEAST_CALL = 11
"""Fewest cells of a call."""
_NUMBERED = 10
"""Fewest cells in which a scope's part such as ``layers.7.mlp`` is shortened around its number."""
Spans = list[tuple[int, int]]
"""Parts of a text: (first character, character after the last)."""


@dataclass(frozen=True)
class SearchPattern:
    """The pattern of a search: a part of a text, or a regular expression after ``~``; case does not matter."""

    text: str
    regex: re.Pattern[str]

    @classmethod
    def of(cls, text: str) -> SearchPattern | None:
        """Returns the pattern of a search text; None for an empty text.

        Raises:
            BadQueryError: the text after ``~`` is not a valid regular expression.
        """
        from tui_debugger.graph.search import compile_pattern

        if text in {"", "~"}:
            return None
        source = text[1:] if text.startswith("~") else re.escape(text)
        return cls(text, compile_pattern(source, case_sensitive=False))

    def test(self, text: str) -> bool:
        return self.regex.search(text) is not None

    def spans(self, text: str) -> Spans:
        return [found.span() for found in self.regex.finditer(text) if found.end() > found.start()]


@dataclass(frozen=True)
class ScopedName:
    """The name of a node, and its scope behind it in dim text; a narrow cell drops outer parts of the scope."""

    name: Text
    scope: str = ""
    scope_style: Style = field(default_factory=Style.null)
    words_only: bool = False

    def __str__(self) -> str:
        return self.full.plain

    @property
    def full(self) -> Text:
        scope = clean(self.scope)
        return Text.assemble(self.name, ("  " + scope, self.scope_style), no_wrap=True) if scope else self.name

    def within(self, width: int) -> Text:
        name = self._short_name(width)
        room = width - name.cell_len - 2
        scope = inner_part(self.scope, room, words_only=self.words_only) if room > 0 else ""
        return Text.assemble(name, ("  " + scope, self.scope_style), no_wrap=True) if scope else name

    def _short_name(self, width: int) -> Text:
        room = self._room_of_name(width)
        return _ends(self.name, room) if self.name.cell_len > room else self.name

    def _room_of_name(self, width: int) -> int:
        """Returns the cells for the name; a longer name loses its middle.

        A call (``Functional.linear``) differs from other calls by its scope only, so it is shortened to make room for
        the scope.
        """
        whole = self.name.cell_len
        if self.scope and "." in self.name.plain and not self.words_only:
            least = width - 2 - min(cell_len(clean(self.scope)), _LEAST_SCOPE)
            if _LEAST_CALL <= least < whole and not inner_part(self.scope, width - whole - 2):
                return least
        return width

    def still(self, width: int) -> int:
        """Returns the cells at the left that do not move when text is moved sideways: a name with a scope."""
        return min(self.name.cell_len + 2, width) if self.scope else 0

    @property
    def path(self) -> str:
        return f"{clean(self.scope)}/{self.name.plain}" if self.scope else self.name.plain

    def drawn(self, spans: Spans, width: int) -> Spans:
        """Maps spans of ``path`` to spans of the text that ``within(width)`` returns."""
        name, scope = self.name.plain, clean(self.scope)
        start = len(scope) + 1 if scope else 0
        drawn, short = self.within(width).plain, self._short_name(width).plain
        names = [(max(first - start, 0), last - start) for first, last in spans]
        if short != name:  # see ``_ends``
            found, at, end = [], 0, 0
            for begin, stop in kept_parts(name, self._room_of_name(width)):
                at += begin > end  # the sign ``…`` of the gap
                found += [(max(first, begin) - begin + at, min(last, stop) - begin + at) for first, last in names]
                at, end = at + stop - begin, stop
            names = [(first, last) for first, last in found if first < last]
        shown = drawn[len(short) + 2 :]
        cut = shown.rfind("…") + 1 if shown != scope else 0  # the text after the last ``…`` is the scope's end
        moved = len(drawn) - len(scope)
        least = len(short) + 2 + cut
        scopes = [(max(first + moved, least), min(last, start - 1) + moved) for first, last in spans] if shown else []
        return [(first, last) for first, last in sorted([*names, *scopes]) if first < last]


def names_apart(cells: Iterable[ScopedName], width: int) -> dict[str, Text]:
    """Returns other short forms, by path, for names whose short forms are alike; scopes tell equal names apart."""
    by_path = {cell.path: cell for cell in cells}
    found = told_apart({path: cell.within(width).plain for path, cell in by_path.items()}, width)
    texts = {path: Text(text, by_path[path].name.style) for path, text in found.items()}
    scopes: dict[str, dict[str, ScopedName]] = {}
    for cell in (by_path[path] for path in found if by_path[path].scope):
        scopes.setdefault(cell.name.plain, {})[clean(cell.scope)] = cell
    for cells_of in scopes.values():
        name = next(iter(cells_of.values())).name
        room = max(width - 2 - _NUMBERED, _LEAST_CALL)
        name = _ends(name, room) if name.cell_len > room else name
        for scope, text in told_apart(dict.fromkeys(cells_of, ""), width - 2 - name.cell_len).items():
            cell = cells_of[scope]
            texts[cell.path] = Text.assemble(name, ("  " + text, cell.scope_style))
    return texts


Cell = Text | str | ScopedName
"""The content of a table cell. A string is plain text, never markup."""


@cache
def _console() -> Console:
    """Returns the console for rendering Rich text; wide, so that nothing is wrapped."""
    return Console(width=10_000, force_terminal=False, legacy_windows=False, _environ={})


def segments_of(cell: Cell, base: Style) -> list[Segment]:
    if isinstance(cell, str):
        return [Segment(clean(cell), base)]
    if isinstance(cell, ScopedName):
        cell = cell.full
    own = base + (Style.parse(cell.style) if isinstance(cell.style, str) else cell.style)
    if not cell.spans:
        return [Segment(clean(cell.plain), own)]
    return _side_by_side(cell, own) or [
        Segment(clean(text), base + (style or Style.null())) for text, style, _ in cell.render(_console()) if text
    ]


def _side_by_side(cell: Text, own: Style) -> list[Segment]:
    """Returns the segments of a text whose styles do not overlap, else an empty list; much faster than Rich."""
    plain, at, segments = cell.plain, 0, list[Segment]()
    for start, end, style in cell.spans:
        if start < at or isinstance(style, str):
            return []
        if start > at:
            segments.append(Segment(clean(plain[at:start]), own))
        if end > start:
            segments.append(Segment(clean(plain[start:end]), own + style))
        at = end
    if at < len(plain):
        segments.append(Segment(clean(plain[at:]), own))
    return segments


def with_spans(segments: Iterable[Segment], spans: Spans, style: Style) -> list[Segment]:
    """Returns segments with ``style`` added on ascending spans of their text."""
    found: list[Segment] = []
    edges = [edge for span in spans for edge in span]
    at, number = 0, 0
    for text, own, _ in segments:
        done, end = 0, at + len(text)
        while done < len(text):
            while number < len(edges) and edges[number] <= at + done:
                number += 1
            upto = min(edges[number], end) - at if number < len(edges) else len(text)
            piece = own or Style.null()
            found.append(Segment(text[done:upto], piece + style if number % 2 else piece))
            done = upto
        at = end
    return found


def width_of(segments: Iterable[Segment]) -> int:
    return sum(cell_len(segment.text) for segment in segments)


def joined(segments: Iterable[Segment]) -> list[Segment]:
    """Joins neighbours of one style, and blanks, whose text colour is invisible: a change of style costs 20 bytes."""
    found: list[Segment] = []
    text, style = "", Style.null()
    for piece, own, _ in segments:
        other = own or Style.null()
        if not text or other is style or other == style:
            text, style = text + piece, other
        elif piece.isspace() and same_blank(style, other):
            text += piece
        elif text.isspace() and same_blank(style, other):
            text, style = text + piece, other
        else:
            found.append(Segment(text, style))
            text, style = piece, other
    return [*found, Segment(text, style)] if text else found


def changed_until(old: Strip | None, new: Strip) -> int:
    """Returns how many cells of a line, counted from the left, must be drawn again; 0 if nothing changed.

    Textual draws a part of a line always from its first cell on.
    """
    if old is new:
        return 0
    width = new.cell_length
    if old is None or old.cell_length != width:
        return width
    for (text, style, _), (before, was, _) in zip(reversed([*new]), reversed([*old]), strict=False):
        if text == before and style == was:
            width -= cell_len(text)
            continue
        if style == was and cell_len(text) == len(text) and cell_len(before) == len(before):
            width -= len(commonprefix([text[::-1], before[::-1]]))  # noqa: RUF071 - characters are meant
        return width
    return width


def changed_cells(old: Strip, new: Strip) -> tuple[int, int]:
    """Returns the first changed cell of a line and the cell after the last; equal numbers if nothing changed."""
    last = changed_until(old, new)
    if old.cell_length != new.cell_length:
        return 0, last
    first = 0
    for (text, style, _), (before, was, _) in zip(new, old, strict=False):
        if text == before and style == was:
            first += cell_len(text)
            continue
        if style == was and cell_len(text) == len(text) and cell_len(before) == len(before):
            first += len(commonprefix([text, before]))  # noqa: RUF071 - characters are meant
        break
    return min(first, last), last


@lru_cache(maxsize=256)
def same_blank(one: Style, other: Style) -> bool:
    """Tells whether a blank looks the same in two styles."""
    seen = [style.reverse or style.underline or style.strike or style.overline or style.link for style in (one, other)]
    return one.bgcolor == other.bgcolor and not any(seen)


def shift(segments: list[Segment], cells: int) -> list[Segment]:
    if cells <= 0:
        return segments
    kept: list[Segment] = []
    for text, style, _ in segments:
        size = cell_len(text)
        if cells >= size:
            cells -= size
            continue
        kept.append(Segment(split_text(text, cells)[1] if cells else text, style))
        cells = 0
    return kept


def fit(segments: list[Segment], width: int, base: Style, *, right: bool = False) -> list[Segment]:
    """Returns exactly ``width`` cells: padded, or cut with ``…``."""
    used = width_of(segments)
    if used == width:
        return segments
    if used < width:
        pad = Segment(" " * (width - used), base)
        return [pad, *segments] if right else [*segments, pad]
    kept: list[Segment] = []
    room = width - 1
    last = base
    for text, style, _ in segments:
        last = style or base
        size = cell_len(text)
        if size >= room:
            kept.append(Segment(set_cell_size(text, room), style))
            break
        kept.append(Segment(text, style))
        room -= size
    return [*kept, Segment("…", last)] if width > 0 else []


def inner_part(scope: str, width: int, *, words_only: bool = False) -> str:
    """Returns the innermost parts of a scope that fit: ``…/_backbone-Net/norm-RowNorm``, or the end of the last part.

    That end consists of whole words if they fit, or if ``words_only``; a part with numbers between dots keeps its
    numbers.
    """
    scope = clean(scope)
    if cell_len(scope) <= width:
        return scope
    parts = scope.split("/")
    for first in range(1, len(parts)):
        shorter = "…/" + "/".join(parts[first:])
        if cell_len(shorter) <= width:
            return shorter
    if width >= _NUMBERED and not words_only and NUMBER.search(parts[-1]):
        return shorten(parts[-1], width)  # layers.7.mlp.linear: the number says more than a whole word
    words = re.split("(?<=[-_])", parts[-1])
    ends = ("…" + "".join(words[first:]) for first in range(len(words)))
    found = next((text for text in ends if 3 < cell_len(text) <= width), "")
    if found or words_only or width < _LEAST:
        return found
    return "…" + split_text(parts[-1], cell_len(parts[-1]) - width + 1)[1]


def _ends(text: Text, width: int) -> Text:
    """Returns a name without its middle: the number at its end distinguishes it from other names."""
    if text.cell_len != len(text) or (width - 1) * 2 // 3 < _LEAST:
        return text
    parts: list[Text | str] = []
    end = 0
    for first, last in kept_parts(text.plain, width):
        parts += [*(["…"] if first > end else []), text[first:last]]
        end = last
    return Text.assemble(*parts, no_wrap=True)


def shorten(text: str, width: int) -> str:
    """Shortens the middle of a path or name: whole parts if possible, so that both ends stay readable."""
    text = clean(text)
    if cell_len(text) <= width:
        return text
    parts = text.split("/")
    for first in range(2, len(parts)):
        shorter = "/".join((parts[0], "…", *parts[first:]))
        if cell_len(shorter) <= width:
            return shorter
    if len(parts) > 1 and cell_len(parts[-1]) + 2 <= width:
        return f"…/{parts[-1]}"
    if width < 8:
        return set_cell_size(text, max(width - 1, 0)) + "…"
    if cell_len(text) == len(text) and NUMBER.search(text):
        return _ends(Text(text), width).plain
    head = (width - 1) // 3
    tail = width - 1 - head
    return split_text(text, head)[0] + "…" + split_text(text, cell_len(text) - tail)[1]
