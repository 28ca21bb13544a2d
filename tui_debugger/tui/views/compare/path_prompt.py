"""Asks for a path, which is completed while one types."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.suggester import Suggester

from tui_debugger.tui.screens.modal import Field
from tui_debugger.tui.screens.prompts import TextPrompt

MOST = 2000
"""Entries of a directory that are looked at for a completion."""


class PathPrompt(TextPrompt):
    """See ``TextPrompt``; Tab and the right arrow take the completion that is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("tab", "complete", show=False, priority=True)]
    hints = (("Tab Enter", "complete, accept"), ("Esc", "back"))

    def __init__(self, title: str, check: Callable[[str], str | None], *, suffix: str, note: str = "") -> None:
        """Starts empty.

        Args:
            title: the question.
            check: what is wrong with a path.
            suffix: files that end otherwise are not suggested.
            note: a line below.
        """
        super().__init__(title, "", check, note=note)
        self._suffix = suffix

    def on_mount(self) -> None:
        """Suggestions from the disk."""
        super().on_mount()
        self.query_one(Field).suggester = _Paths(self._suffix)

    def action_complete(self) -> None:
        """Tab."""
        field = self.query_one(Field)
        field.action_end()
        found = completion(field.value, self._suffix)
        if found is not None:
            field.value = found
            field.action_end()


class _Paths(Suggester):
    def __init__(self, suffix: str) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._suffix = suffix

    async def get_suggestion(self, value: str) -> str | None:
        """The first path in order that begins so."""
        return completion(value, self._suffix)


def completion(text: str, suffix: str) -> str | None:
    """The first directory or file with a suffix whose path begins with a text; None when there is none."""
    if not text:
        return None
    head, _, start = text.rpartition("/")
    names = []
    try:
        folder = Path(f"{head}/" if "/" in text else ".").expanduser()
        with os.scandir(folder) as entries:
            for _, entry in zip(range(MOST), entries, strict=False):
                directory = entry.is_dir()
                if entry.name.startswith(start) and (directory or entry.name.endswith(suffix)):
                    names.append(entry.name + ("/" if directory else ""))
    except (OSError, ValueError, RuntimeError):  # RuntimeError: ~ of nobody
        return None
    visible = [name for name in names if start or not name.startswith(".")]
    return (f"{head}/" if "/" in text else "") + min(visible) if visible else None
