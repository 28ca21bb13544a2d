"""Reads the execution order of operators and of runs, and describes the damage of such a file.

The recorder ends every line, and begins a list of operators with a header: a file with neither was cut, or is another
file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from tui_debugger.sources.text_lines import text_lines
from tui_debugger.text.numbers import plural

HEADER: Final = "NodeExecutionOrder"
_STEP_DIGITS: Final = 9


class OperatorOrder(NamedTuple):
    """The full names of operators in the order in which they ran, as far as readable; ``damage`` in a few words."""

    names: tuple[str, ...]
    damage: str


class StepsThatRan(NamedTuple):
    """The steps at which a graph ran, in their order."""

    steps: tuple[int, ...]
    broken: int
    """Number of lines that are no steps."""
    damage: str
    """In a few words; empty without damage."""


def read_order(path: Path) -> OperatorOrder:
    """Reads ``ms_execution_order_graph_N.csv``, a header, then a name on each line; raises OSError."""
    lines = list(text_lines(path))
    texts = [text.strip().rstrip(",") for text, whole in lines if whole]
    names = tuple([text for text in texts if text and not text.startswith(HEADER)])
    return OperatorOrder(names, _damage(len(lines), len(lines) - len(texts)))


def read_steps(path: Path) -> StepsThatRan:
    """Reads ``ms_global_execution_order_graph_N.csv``, a step on each line, no header; raises OSError."""
    lines = [(text.strip().rstrip(","), whole) for text, whole in text_lines(path)]
    steps = tuple([int(text) for text, _ in lines if _is_step(text)])
    broken = sum(1 for text, _ in lines if text and not _is_step(text))
    return StepsThatRan(
        steps, broken, _damage(len(lines), sum(not whole or not _is_step(text) for text, whole in lines if text))
    )


def _is_step(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _STEP_DIGITS


def _damage(lines: int, broken: int) -> str:
    return plural(broken, "broken line") if broken else "" if lines else "empty"
