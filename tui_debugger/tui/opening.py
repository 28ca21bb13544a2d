"""The two header lines while a run is being opened, and the line that says how far long work is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.text import Text

from tui_debugger.text.clean import clean
from tui_debugger.tui import theme

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
"""Both lines, each as left and right part."""


def opening_lines(title: str, progress: Mapping[str, Progress]) -> HeaderLines:
    """What is being opened, and how far that is."""
    run = Text(no_wrap=True).append("tdbg", theme.GOOD).append("  " + clean(title), theme.NORMAL)
    state = progress_line(progress) if progress else Text("▶ opening", theme.GOOD, no_wrap=True)
    return (run, Text(no_wrap=True)), (state, Text(no_wrap=True))


def progress_line(progress: Mapping[str, Progress]) -> Text:
    """The first work that tells how far it is."""
    lane, snapshot = next(iter(progress.items()))
    text = Text(no_wrap=True).append("▶ ", theme.GOOD)
    text.append(_WORDS.get(lane, lane) + " ", theme.GOOD)
    if snapshot.total:
        part = min(snapshot.done / snapshot.total, 1.0)
        full = int(_BAR * part)
        text.append("━" * full, theme.GOOD).append("─" * (_BAR - full), theme.DIM).append(f" {part:4.0%} ")
    text.append(clean(snapshot.text))
    return text.append("  Esc stops", theme.DIM)
