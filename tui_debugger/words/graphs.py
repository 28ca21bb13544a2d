"""Graphs as people read them where every cell counts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tui_debugger.model import Frame
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


def stack_text(stack: Sequence[Frame], of: str = "", node: str = "", *, lines: int = 2) -> tuple[str, ...]:
    """``train.py:53  e = self.log(x)``: the user's own lines, innermost first; without any those of the framework.

    Args:
        stack: innermost frame first.
        of: the node whose stack it is.
        node: the node it is shown for; when that is another one, the first line says so.
        lines: how many at most.
    """
    frames = [frame for frame in stack if not frame.context]
    own = [frame for frame in frames if not frame.framework] or frames
    said = [
        f"{clean(frame.path.rpartition('/')[2])}:{frame.line}  {clean(frame.code).strip()}" for frame in own[:lines]
    ]
    if said and of and of != node:
        said[0] = f"source of {clean(of.rpartition('/')[2])}: {said[0]}"
    return tuple(said)
