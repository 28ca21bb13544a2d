"""The clipboard of whoever sits at the terminal, by OSC 52: it works through SSH, where the terminal allows it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tui_debugger.errors import TdbgError
from tui_debugger.tui.screens.modal import clean_lines
from tui_debugger.words.numbers import plural

if TYPE_CHECKING:
    from textual.app import App

LIMIT = 74_994
"""Bytes of UTF-8. Base64 makes 99,992 of them: terminals that keep a limit cut or drop sequences above 100,000."""


def put(app: App[object], text: str) -> str:
    """Hands text to the terminal, made safe to be pasted; returns what to say about it.

    No terminal answers, so that nobody can know whether the clipboard has it: what is said names the condition.

    Raises:
        TdbgError: it is too long for one sequence; nothing was copied.
    """
    safe = clean_lines(text)
    size = len(safe.encode())
    if size > LIMIT:
        raise TdbgError(
            f"{size:,} bytes are too much for the clipboard of a terminal (at most {LIMIT:,})",
            hint="export to a file instead",
        )
    app.copy_to_clipboard(safe)
    condition = "tmux needs set-clipboard on" if os.environ.get("TMUX") else "the terminal must allow OSC 52"
    return f"copied {plural(len(safe), 'character')} ({condition})"
