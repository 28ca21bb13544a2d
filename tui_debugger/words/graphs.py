"""Graphs as people read them where every cell counts."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tui_debugger.words.clean import clean

_NUMBER = re.compile(r"\d+$")


def short_names(names: Iterable[str]) -> dict[str, str]:
    """The shortest text that tells graphs apart: the number at the end (``1`` of ``kernel_graph_1``), else the name.

    The number is what ``--graph`` takes, too.
    """
    every = sorted(set(names))
    numbers = [match[0] for name in every if (match := _NUMBER.search(name)) is not None]
    if len(numbers) == len(every) == len(set(numbers)):
        return dict(zip(every, numbers, strict=True))
    return {name: clean(name) for name in every}
