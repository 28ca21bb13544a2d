"""What a training says it could not record: read without believing anything, and kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from tui_debugger.live.server.identity import clean, text
from tui_debugger.live.types import Unrecorded

KINDS: Final = 32
"""So many kinds are told apart."""
_MOST: Final = 1 << 62
_OTHERS: Final = "other things"


def unrecorded_of(message: Any) -> tuple[Unrecorded, ...]:
    """Reads the ``unrecorded`` of a ``Metadata``: texts are cleaned, what counts nothing is left out."""
    found = (
        Unrecorded(
            clean(text(each.what)) or _OTHERS,
            min(int(each.count), _MOST),
            clean(text(each.example)),
            max(int(each.step), 0),
        )
        for each, _ in zip(message.unrecorded, range(16 * KINDS), strict=False)
    )
    return together((), (each for each in found if each.count > 0))


def together(before: Iterable[Unrecorded], now: Iterable[Unrecorded]) -> tuple[Unrecorded, ...]:
    """What was said before and what is said now, by kind: counts are of all so far, so the larger one is right."""
    kinds = {each.what: each for each in before}
    for each in now:
        what = each.what if each.what in kinds or len(kinds) < KINDS - 1 else _OTHERS
        known = kinds.get(what)
        if known is None:
            kinds[what] = replace(each, what=what)
        else:
            kinds[what] = replace(known, count=max(known.count, each.count), step=min(known.step, each.step))
    return tuple(kinds.values())
