"""Text for GitHub-flavoured Markdown: any name stays text and breaks no table."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tui_debugger.text.clean import clean

LONGEST: Final = 240
"""Characters of one name or sentence, so that a report stays readable."""
_SPECIAL = re.compile(r"[\\`*_\[\]~|<>&]|[@#](?=\w)")
_ENTITIES: Final = {
    "|": "&#124;",
    "<": "&lt;",
    ">": "&gt;",
    "&": "&amp;",
    "@": "@&#8203;",  # or GitHub tells a person of that name
    "#": "#&#8203;",  # or links an issue of that number
}
_TICKS = re.compile("`+")
_AWKWARD = re.compile(r"[`|\\]")
_PLAIN = re.compile(r"[A-Za-z0-9 /.,:;=-]")


def prose(text: str) -> str:
    """Escapes a sentence with user data: no emphasis, link, mention, HTML or cell border."""
    return _SPECIAL.sub(lambda match: _ENTITIES.get(match[0], "\\" + match[0]), _cut(text))


def code(text: str) -> str:
    """Returns a name in code style, as ``<code>`` with entities where a code span could not hold it."""
    shown = _cut(text).strip()
    if not shown:
        return "–"
    if _AWKWARD.search(shown) is None:
        return f"`{shown}`"
    return "<code>" + "".join(char if _PLAIN.match(char) else f"&#{ord(char)};" for char in shown) + "</code>"


def fenced(lines: Iterable[str], language: str = "text") -> list[str]:
    """Returns lines unchanged in a fence that none of them can close."""
    body = [clean(line) for line in lines]
    longest = max((len(run) for line in body for run in _TICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence + language, *body, fence]


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> Iterator[str]:
    """Yields the lines of a table; the cells must be Markdown already (``prose``, ``code``)."""
    yield f"| {' | '.join(titles)} |"
    yield f"|{'|'.join('--:' if title in right else '---' for title in titles)}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def with_tilde(text: str) -> str:
    """Replaces the user's home directory by ``~``."""
    home = os.path.expanduser("~")  # noqa: PTH111 - text; never raises
    for place in {home, os.path.realpath(home)} - {"/"}:
        text = re.sub(rf"(?<![\w.~-]){re.escape(place)}(?![\w.-])", "~", text)
    return text


def _cut(text: str) -> str:
    shown = clean(text)
    if len(shown) <= LONGEST:
        return shown
    half = (LONGEST - 1) // 2
    return f"{shown[:half]}…{shown[-half:]}"
