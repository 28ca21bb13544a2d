"""The words of a hit row in their colours."""

from __future__ import annotations

from rich.text import Text

from tui_debugger.model import Hit, Verdict
from tui_debugger.tui import theme
from tui_debugger.words import hits
from tui_debugger.words.hits import Weight

_STYLES = {
    Weight.PLAIN: theme.NORMAL,
    Weight.DIM: theme.DIM,
    Weight.DOUBT: theme.DOUBT,
    Weight.FINDING: theme.FINDING,
}


def abbreviations(hit: Hit) -> Text:
    """Each watchpoint's abbreviation once, coloured by its verdict: what NaN or Inf blocked is dimmed."""
    text = Text(no_wrap=True)
    for abbr, verdict in hits.abbreviations(hit):
        text.append(" " if text.plain else "")
        text.append(abbr, theme.FINDING if verdict is Verdict.FINDING else theme.DIM)
    return text


def details(hit: Hit) -> Text:
    """``mean |x| > 0.5 → 0.73``: for every hit parameter the set and the actual value; else the reasons."""
    text = Text(no_wrap=True)
    for part in hits.hit_parts(hit):
        if text.plain:
            text.append(hits.SEPARATOR if part.apart else "  ", theme.DIM if part.apart else "")
        text.append(part.text, _STYLES[part.weight])
        if part.actual:
            text.append(" → ", theme.DIM)
            text.append(part.actual, theme.FINDING)
    return text
