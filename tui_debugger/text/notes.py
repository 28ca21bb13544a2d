"""Notes of a step as people read them, and as rows of documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tui_debugger.notes import Note, ShownNote
from tui_debugger.text.clean import clean
from tui_debugger.text.documents import plain_values
from tui_debugger.text.numbers import number

RECOGNISED = "recognised"
"""The remark on a value that the program did not note but the dump holds."""


def value_text(value: Note) -> str:
    """Returns a value in a few cells: ``0.53``, ``1e-4``, ``NaN``, ``yes``, ``warm-up``."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return clean(value)
    return str(value) if isinstance(value, int) and abs(value) < 10**9 else number(float(value))


def note_text(note: ShownNote, *, marked: bool = True) -> str:
    return f"{clean(note.name)} {value_text(note.value)}" + (f" ({RECOGNISED})" if note.recognised and marked else "")


NOTES_ROOM: Final = 36
"""The most cells for the notes of a step beside something else."""


def notes_text(notes: Sequence[ShownNote], room: int = 0, *, marked: bool = True) -> str:
    """Returns the notes of a step as ``loss 0.53  lr 1e-4``; ``room``: the most cells (0: no limit), cut by ``…``."""
    texts = [note_text(note, marked=marked) for note in notes]
    if not room:
        return "  ".join(texts)
    shown: list[str] = []
    for text in texts:
        if shown and len("  ".join((*shown, text))) > room - 3:
            return "  ".join((*shown, "…"))
        shown.append(text if len(text) <= room else text[: room - 1] + "…")
    return "  ".join(shown)


def notes_row(notes: Sequence[ShownNote]) -> dict[str, Any]:
    """Returns ``notes`` (noted by the program, by name) and ``recognised`` (found in the dump instead)."""
    return {
        "notes": {note.name: plain_values(note.value) for note in notes if not note.recognised},
        "recognised": {
            note.name: {"value": plain_values(note.value), "node": note.node} for note in notes if note.recognised
        },
    }
