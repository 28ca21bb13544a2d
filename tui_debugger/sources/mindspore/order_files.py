"""Reads the files that say in which order operators and runs ran, and tells what is wrong with one that is damaged.

The recorder ends every line, and begins a list of operators with a header: a file that has neither was cut, or holds
something else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from tui_debugger.opener import read_lines
from tui_debugger.text.numbers import plural

HEADER: Final = "NodeExecutionOrder"
_STEP_DIGITS: Final = 9


class OperatorOrder(NamedTuple):
    """The full names of operators in the order in which they ran.

    Attributes:
        names: as far as they can be read.
        damage: in a few words; empty where there is none.
    """

    names: tuple[str, ...]
    damage: str


class StepsThatRan(NamedTuple):
    """The steps at which a graph ran, in their order.

    Attributes:
        steps: as far as they can be read.
        broken: the number of lines that are no steps.
        damage: in a few words; empty where there is none.
    """

    steps: tuple[int, ...]
    broken: int
    damage: str


def read_order(path: Path) -> OperatorOrder:
    """Reads ``ms_execution_order_graph_N.csv``: a header, then a name on each line.

    Raises:
        OSError: it cannot be read.
    """
    lines = list(read_lines(path, ends=True))
    texts = [line.decode("utf-8", "replace").strip().rstrip(",") for line in lines]
    readable = [text for text in texts if text.isprintable() and "\N{REPLACEMENT CHARACTER}" not in text]
    names = tuple([text for text in readable if text and not text.startswith(HEADER)])
    return OperatorOrder(names, _damage(lines, len(texts) - len(readable)))


def read_steps(path: Path) -> StepsThatRan:
    """Reads ``ms_global_execution_order_graph_N.csv``: a step on each line, no header.

    Raises:
        OSError: it cannot be read.
    """
    lines = list(read_lines(path, ends=True))
    texts = [text for line in lines if (text := line.strip().rstrip(b","))]
    good = tuple([int(text) for text in texts if text.isdigit() and len(text) <= _STEP_DIGITS])
    broken = len(texts) - len(good)
    return StepsThatRan(good, broken, _damage(lines, broken))


def _damage(lines: list[bytes], broken: int) -> str:
    if not lines:
        return "empty"
    found = [plural(broken, "broken line")] if broken else []
    return ", ".join(found if lines[-1].endswith(b"\n") else [*found, "the last line is cut"])
