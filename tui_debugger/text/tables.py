"""Tables and sentences that fit a terminal: width of text, cuts, choice of columns, line breaks.

Nothing is cut in a pipe or a file. On a terminal no line is wider than it: names lose their middle and keep the
number of their operator and their slot, which tell rows apart; the least important columns without room are left
out and named below the table.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from os.path import commonprefix
from typing import Final

from tui_debugger.text.writer import Line, Meant, Pieces, Terminal, meant, pieces_of

GAP: Final = "  "
CUT: Final = "…"
_LEAST_NAME: Final = 30, 18
_LEAST_TEXT: Final = 14, 8
"""The least cells of a cut name or text before columns are left out; the second number if it saves an important one."""
IMPORTANT: Final = 7
"""The least weight of an important column."""


# -- how wide text is ------------------------------------------------------------------------------

_WIDER: Final = (
    (0x2630, 0x2637),
    (0x268A, 0x268F),
    (0x4DC0, 0x4DFF),
    (0x1D300, 0x1D376),
    (0x1F000, 0x1FAFF),
)
"""Symbols that terminals draw in two cells, and newer versions of Unicode than Python's may call wide."""


def width_of(text: str) -> int:
    """Returns the cells of a cleaned text, never less than a terminal uses."""
    return len(text) if text.isascii() else _wide(text)


@lru_cache(maxsize=4096)
def _wide(text: str) -> int:
    return sum(map(_cells, text))


@lru_cache(maxsize=4096)
def _cells(character: str) -> int:
    code = ord(character)
    if code < 0x300:
        return 1
    if unicodedata.category(character) in {"Mn", "Me"}:
        return 0
    if unicodedata.east_asian_width(character) in "WF" or any(first <= code <= last for first, last in _WIDER):
        return 2
    return 1


def _first(text: str, width: int) -> str:
    used = 0
    for at, character in enumerate(text):
        used += _cells(character)
        if used > width:
            return text[:at]
    return text


def _last(text: str, width: int) -> str:
    """Returns the end of the text that fits; no combining mark without its character."""
    used = 0
    for at in range(len(text) - 1, -1, -1):
        used += _cells(text[at])
        if used > width:
            rest = text[at + 1 :]
            return rest[next((i for i, each in enumerate(rest) if _cells(each)), len(rest)) :]
    return text


# -- what is cut -----------------------------------------------------------------------------------


class Cut(Enum):
    """How the cells of a column become narrower."""

    NEVER = "never"
    END = "end"
    """Text: its end is left out."""
    FOLD = "fold"
    MIDDLE = "middle"
    """Names: the number of the operator and the slot stay."""


_TELLING: Final = re.compile(r"(?:[-_.]?[a-z]{0,8}\d+)?(?::[a-z]{1,8}:\d+(?:#\d+)?|:\d+|#\d+)?$")
"""The end of a name that tells it from its neighbours: ``-op385:out:0#2``, ``.12``, ``:in:1``."""


def cut_end(text: str, width: int, mark: str = CUT) -> str:
    if width_of(text) <= width:
        return text
    return _first(text, width - width_of(mark)) + mark if width >= width_of(mark) else _first(text, width)


def split_name(name: str) -> tuple[str, str]:
    """Returns a name without its end, and the end that tells it from its neighbours: ``Div``, ``-op385``."""
    found = _TELLING.search(name)
    at = found.start() if found is not None else len(name)
    return name[:at], name[at:]


_RANK: Final = re.compile(r"rank \d+ ")
_LEAST_APART: Final = 8
"""From this number of cells on a name is told apart from its neighbours."""
_LEAST_NUMBERED: Final = 12
"""From this number of cells on a name keeps the numbers of its layers."""
_PART: Final = re.compile(r"[/.:]")
NUMBER: Final = re.compile(r"(?<![^.])\d+(?![^.])")
"""A number between dots, the number of the layer: it tells ``layers.7.mlp.weight`` from similar names."""


def kept_parts(name: str, width: int) -> list[tuple[int, int]]:
    """Returns the parts of a name that remain: both ends, or the numbers between dots and the end."""
    tail = (width - 1) * 2 // 3
    ends = [(0, width - 1 - tail), (len(name) - tail, len(name))]
    numbers = [found.span() for found in NUMBER.finditer(name)] if "/" not in name else []
    if all(last <= ends[0][1] or first >= ends[1][0] for first, last in numbers):
        return ends
    while numbers:
        tail = width - sum(last - first + 1 for first, last in numbers) - 1
        if numbers[-1][1] > len(name) - tail:
            numbers.pop()  # in the end that is left it is anyway
            ends = [(len(name) - width + 1, len(name))]
        elif tail < width // 2:
            numbers.pop(0)
        else:
            break
    if not numbers:
        return ends
    first = len(name) - tail
    if first == numbers[-1][1] + 1:  # a dot takes no more room than the sign
        first = numbers.pop()[0]
    return [*numbers, (first, len(name))]


def cut_middle(name: str, width: int, mark: str = CUT) -> str:
    """Returns a name without its middle, if it does not fit: whole parts of the path if they are enough.

    ``Default/…/norm-RowNorm/Div-op385:out:0``, ``…/Div-op385:out:0``, ``SoftmaxC…ts-op12:out:0``, ``…-op12:out:0``,
    ``rank 1 …7….fc.weight``.
    """
    if width_of(name) <= width:
        return name
    rank = _RANK.match(name)
    if rank is not None and width - rank.end() >= _LEAST_NUMBERED:
        return rank[0] + cut_middle(name[rank.end() :], width - rank.end(), mark)
    parts = name.split("/")
    for first in range(2, len(parts)):
        shorter = "/".join((parts[0], mark, *parts[first:]))
        if width_of(shorter) <= width:
            return shorter
    for first in range(1, len(parts)):
        shorter = "/".join((mark, *parts[first:]))
        if width_of(shorter) <= width:
            return shorter
    return _cut_own(parts[-1], width, mark)


def _cut_own(text: str, width: int, mark: str) -> str:
    room = width - width_of(mark)
    if room < 1:
        return _last(text, width)
    found = _TELLING.search(text)
    telling = width_of(found[0]) if found is not None else 0
    if width >= _LEAST_NUMBERED and len(mark) == 1 and text.isascii() and NUMBER.search(text):
        spans = kept_parts(text, width)
        if spans[-1][1] - spans[-1][0] >= telling:
            first = mark if spans[0][0] else ""
            return first + mark.join(text[begin:end] for begin, end in spans)
    tail = _last(text, max(min(telling, room), room * 2 // 3))
    return _first(text, room - width_of(tail)) + mark + tail


def told_apart(short: Mapping[str, str], width: int, mark: str = CUT) -> dict[str, str]:
    """Returns other short forms for names whose short forms (``short``, by name) are alike, as far as there is room.

    They begin where the names begin to differ: ``…0.input_norm.weight``, ``…0.output_norm.weight``.
    """
    groups: dict[str, list[str]] = {}
    for name, text in short.items():
        groups.setdefault(text, []).append(name)
    alike = [names for names in groups.values() if len(names) > 1]
    found = dict[str, str]()
    for tried in (alike, [[name for names in alike for name in names]]):
        found = {name: text for names in tried if names for name, text in _begun_later(names, width, mark).items()}
        if len({**short, **found}) == len(set({**short, **found}.values())):
            break
    return found


def _begun_later(names: Sequence[str], width: int, mark: str) -> dict[str, str]:
    """Returns different short forms without the beginning that the names share; empty if there is no room for them."""
    same = len(commonprefix(names))  # noqa: RUF071 - characters are meant
    begins = max(same - len(_PART.split(names[0][:same])[-1]), same - width // 2)
    for cut in (cut_middle, cut_end):
        texts = {name: cut(mark * (begins > 0) + name[begins:], width, mark) for name in names}
        if width >= _LEAST_APART and len(set(texts.values())) == len(names):
            return texts
    return {}


# -- which columns stay ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Without room the column with the least ``weight`` goes first, the last of equal ones; one of the greatest weight
    always stays, and names are cut shorter for an important one. ``label``: its name among left-out columns.
    """

    title: str
    right: bool = False
    cut: Cut = Cut.NEVER
    weight: int = 5
    label: str = ""

    @property
    def called(self) -> str:
        return self.label or self.title

    def least(self, width: int, *, tight: bool = False) -> int:
        """Returns the least width for ``width`` cells; ``tight``: for the sake of important columns."""
        if self.cut is Cut.NEVER:
            return width
        return min(width, (_LEAST_NAME if self.cut is Cut.MIDDLE else _LEAST_TEXT)[tight])


@dataclass(frozen=True, slots=True)
class FullWidthLine:
    """A line between the rows of a table that does not keep to its columns."""

    line: Line


Row = Sequence[str] | FullWidthLine
"""The cells of a row; a line between rows."""


def table_lines(columns: Sequence[Column], rows: Iterable[Row], terminal: Terminal | None = None) -> list[Pieces]:
    """Returns a table as lines, safe to print; with ``terminal`` None everything stays whole."""
    titles = tuple(column.title for column in columns)
    lines = [
        row if isinstance(row, FullWidthLine) else pieces_of(tuple(row))
        for row in ([titles] if any(titles) else []) + [*rows]
    ]
    if terminal is not None:
        lines = [line if isinstance(line, FullWidthLine) else tuple(map(terminal.spelled, line)) for line in lines]
    widths = [
        max(map(width_of, cells)) for cells in zip(*(line for line in lines if isinstance(line, tuple)), strict=True)
    ]
    kept = list(range(len(columns)))
    if terminal is not None and widths:
        kept = _kept(columns, widths, terminal.columns)
        widths = _narrowed(columns, widths, kept, terminal.columns)
    mark = CUT if terminal is None or terminal.shows(CUT) else ".."
    apart = {
        at: _names_apart({line[at] for line in lines if isinstance(line, tuple)}, widths[at], mark)
        for at in kept
        if columns[at].cut is Cut.MIDDLE and terminal is not None
    }
    found: list[Pieces] = []
    for line in lines:
        if isinstance(line, FullWidthLine):
            found += fold(line.line, terminal)
            continue
        if terminal is None:
            found.append(_aligned(columns, kept, dict(enumerate(line)), widths))
            continue
        cells = {at: _narrow(columns[at].cut, line[at], widths[at], mark, apart.get(at, {})) for at in kept}
        for number in range(max(map(len, cells.values()))):
            below = {at: parts[number] if number < len(parts) else "" for at, parts in cells.items()}
            found.append(_aligned(columns, kept, below, widths))
    left_out = [column.called for at, column in enumerate(columns) if at not in kept and column.called]
    if left_out and terminal is not None:
        found += fold(more_columns(left_out), terminal)
    return found


def more_columns(names: Sequence[str]) -> str:
    return f"more columns: {', '.join(names)} (wider terminal or --json)"


def _kept(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """Returns the columns that stay, in their order."""
    kept = list(range(len(columns)))

    def fits(*, tight: bool) -> bool:
        used = sum(columns[at].least(widths[at], tight=tight) for at in kept)
        return used + len(GAP) * (len(kept) - 1) <= room

    while len(kept) > 1:
        last = min(reversed(kept), key=lambda at: columns[at].weight)
        if fits(tight=columns[last].weight >= IMPORTANT):
            break
        kept.remove(last)
    return kept


def _narrowed(columns: Sequence[Column], widths: Sequence[int], kept: Sequence[int], room: int) -> list[int]:
    """Returns widths that fit: columns that can be cut share the rest, and none gets more than it needs."""
    found = list(widths)
    left = room - len(GAP) * (len(kept) - 1)
    flexible = [at for at in kept if columns[at].cut is not Cut.NEVER]
    left -= sum(widths[at] for at in kept if at not in flexible)
    # Text first: it is short, and a name can lose its middle.
    for number, at in enumerate(sorted(flexible, key=lambda at: widths[at])):
        found[at] = max(min(widths[at], left // (len(flexible) - number)), 0)
        left -= found[at]
    if len(kept) == 1:
        found[kept[0]] = min(widths[kept[0]], room)
    return found


def _names_apart(names: Iterable[str], width: int, mark: str) -> dict[str, str]:
    return told_apart({name: cut_middle(name, width, mark) for name in names}, width, mark)


def _narrow(cut: Cut, cell: str, width: int, mark: str, apart: Mapping[str, str]) -> list[str]:
    if width_of(cell) <= width:
        return [cell]
    meaning = getattr(cell, "meaning", None)
    if cut is Cut.FOLD:
        return [meant("".join(part), meaning) for part in fold(cell, Terminal(width))]
    short = apart.get(cell) or (cut_middle if cut is Cut.MIDDLE else cut_end)(cell, width, mark)
    return [meant(short, meaning)]


def _aligned(columns: Sequence[Column], kept: Iterable[int], cells: Mapping[int, str], widths: Sequence[int]) -> Pieces:
    pieces: list[str] = []
    text = gap = ""
    for at in kept:
        cell = cells[at]
        pad = " " * (widths[at] - width_of(cell))
        text += gap
        gap = GAP
        if not isinstance(cell, Meant):
            text += pad + cell if columns[at].right else cell + pad
            continue
        before, after = (pad, "") if columns[at].right else ("", pad)
        pieces += [*filter(None, [text + before]), cell]
        text = after
    pieces.append(text)
    while pieces and not pieces[-1].strip():
        pieces.pop()
    if pieces:
        pieces[-1] = meant(pieces[-1].rstrip(), getattr(pieces[-1], "meaning", None))
    return tuple(pieces)


# -- where lines break -----------------------------------------------------------------------------


def fold(line: Line, terminal: Terminal | None, hang: int | None = None) -> list[Pieces]:
    """Returns a sentence in lines that fit, safe to print, broken at blanks; ``hang``: blanks before later lines."""
    pieces = pieces_of(line)
    if terminal is None:
        return [pieces]
    pieces = tuple(map(terminal.spelled, pieces))
    text = "".join(pieces)
    if width_of(text) <= terminal.columns:
        return [pieces]
    indent = len(text) - len(text.lstrip(" "))
    hang = min(indent + 2 if hang is None else hang, terminal.columns // 2)
    found: list[Pieces] = []
    start, before = 0, ""
    while start < len(text):
        rest = text[start:]
        fitting = _first(rest, terminal.columns - len(before)) or rest[:1]
        after = start + len(fitting)
        stop = start + len(fitting.rstrip(" "))
        if after < len(text) and text[after] != " " and not fitting.endswith(" "):
            blank, slash = fitting.rfind(" "), fitting.rfind("/")
            if blank > (0 if found else indent):
                stop = start + len(fitting[:blank].rstrip(" "))
            elif slash >= 0:
                stop = start + slash + 1
        found.append((before, *_part(pieces, start, stop)) if before else _part(pieces, start, stop))
        start = stop + len(text[stop:]) - len(text[stop:].lstrip(" "))
        before = " " * hang
    return found


def _part(pieces: Pieces, start: int, stop: int) -> Pieces:
    """Returns a slice of a line's characters, with their meaning."""
    found = []
    at = 0
    for piece in pieces:
        part = piece[max(start - at, 0) : max(stop - at, 0)]
        if part:
            found.append(meant(part, piece.meaning) if isinstance(piece, Meant) else part)
        at += len(piece)
    return tuple(found)
