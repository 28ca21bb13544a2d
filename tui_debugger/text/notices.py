"""Notices about a dump: what is the same on several ranks is one sentence."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from tui_debugger.text.numbers import named

_RANK: Final = re.compile(r"\brank[_ ]?(\d{1,9})\b")
_VERBS: Final = {" has ": " have ", " is ": " are ", " was ": " were ", " lacks ": " lack "}


@lru_cache(maxsize=4)
def grouped(notices: tuple[str, ...]) -> tuple[str, ...]:
    """Returns notices; those that differ in the number of the rank alone as one, which names all of these ranks.

    It stands where the first of them stood: ``ranks 0-999 have no run history: derived from the dumped steps``.
    """
    found: dict[tuple[str, ...], dict[int, str]] = {}
    for notice in notices:
        mention = _RANK.search(notice)
        if mention is None:
            found.setdefault((notice,), {})
        else:
            alike = notice[: mention.start()], notice[mention.end() :]
            found.setdefault(alike, {})[int(mention[1])] = notice
    return tuple([_merged(alike, ranks) for alike, ranks in found.items()])


def _merged(alike: tuple[str, ...], ranks: dict[int, str]) -> str:
    if len(ranks) < 2:
        return next(iter(ranks.values()), alike[0])
    before, after = alike
    first, *others = sorted(ranks)
    if before.endswith(("/", "\\")) or after.startswith(("/", "\\")):  # a part of a path stays as it is
        return f"{ranks[first]} (the same of {named('rank', others)})"
    return before + named("rank", [first, *others]) + _of_several(after)


def _of_several(text: str) -> str:
    """Returns what follows the name of a rank, said of several."""
    for one, several in _VERBS.items():
        if text.startswith(one):
            return several + text[len(one) :]
    if re.match(r": \d", text):  # a number of things: it is that of every one
        return f", each{text}"
    return text
