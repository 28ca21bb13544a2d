"""Notes: scalars that a program logs for its own steps (loss, learning rate, batch), by step and name.

This module defines the allowed values, the limits, and the file ``notes.jsonl`` in a rank's directory, a line a step::

    {"step": 3, "notes": {"loss": {"float": "nan"}, "lr": 0.0001, "batch": 7, "phase": "warm-up", "amp": true}}

Names and texts are the program's: code that shows them must clean them.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tui_debugger.opener import read_lines

Note = bool | int | float | str
Notes = Mapping[str, Note]
"""The notes of one step by name, in the order in which they were made."""

MOST_NOTES: Final = 64
"""Most notes of one step; further names are dropped."""
LONGEST_NAME: Final = 40
LONGEST_TEXT: Final = 100
"""Characters; longer texts are cut."""
MOST_KEPT: Final = 1 << 20
"""Most notes of a rank in memory; the oldest steps are dropped first."""
NOTES_FILE: Final = "notes.jsonl"
_LARGEST_INTEGER: Final = 1 << 63
_SPELLED: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def text_note(text: str, most: int) -> str:
    """Returns the beginning of a text; lone surrogates, which no file can hold, become ``?``."""
    return text[:most].encode("utf-8", "replace").decode("utf-8")


def plain_note(value: object) -> Note | None:
    """Returns a plain number, bool or text as a note; None for other values."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        value = int(value)  # enumerations, too
        return value if -_LARGEST_INTEGER <= value < _LARGEST_INTEGER else _real(value)
    if isinstance(value, float):
        return float(value)
    return text_note(value, LONGEST_TEXT) if isinstance(value, str) else None


def _real(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def limited(notes: Iterable[tuple[str, object]]) -> dict[str, Note]:
    """Returns the notes of one step within the limits: other values are dropped, names and texts are cut."""
    found: dict[str, Note] = {}
    for name, value in notes:
        note = plain_note(value)
        short = text_note(name, LONGEST_NAME)
        if note is not None and short and (short in found or len(found) < MOST_NOTES):
            found[short] = note
    return found


def notes_line(step: int, notes: Notes) -> str:
    spelled = {name: _spelled(note) for name, note in notes.items()}
    return json.dumps({"step": step, "notes": spelled}, ensure_ascii=False, allow_nan=False) + "\n"


def _spelled(note: Note) -> Note | dict[str, str]:
    if isinstance(note, float) and not math.isfinite(note):
        return {"float": "nan" if math.isnan(note) else "inf" if note > 0 else "-inf"}
    return note


def notes_of_line(line: bytes) -> tuple[int, dict[str, Note]] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step, notes = (found.get("step"), found.get("notes")) if isinstance(found, dict) else (None, None)
    if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step < _LARGEST_INTEGER:
        return None
    if not isinstance(notes, dict):
        return None
    return step, limited((name, _read(value)) for name, value in notes.items())


def _read(value: object) -> object:
    spelled = value.get("float") if isinstance(value, dict) else None
    return _SPELLED.get(spelled) if isinstance(spelled, str) else value


class RunNotes:
    """The notes of one rank by step. One thread may add while others read; ``edition`` changes with every addition."""

    def __init__(self, notes: Iterable[tuple[int, Notes]] = ()) -> None:
        self.edition = 0
        self._lock = threading.Lock()
        self._steps: dict[int, dict[str, Note]] = {}
        self._count = 0
        self.add(notes)

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, notes: Iterable[tuple[int, Notes]]) -> None:
        """Adds notes; a note replaces an earlier one of its name and step."""
        with self._lock:
            for step, of_step in notes:
                before = self._steps.get(step, {})
                found = limited({**before, **of_step}.items())
                if not found:
                    continue
                self.edition += 1
                self._steps[step] = found
                self._count += len(found) - len(before)
                while self._count > MOST_KEPT and len(self._steps) > 1:
                    self._count -= len(self._steps.pop(next(iter(self._steps))))

    def at(self, step: int) -> Notes:
        return self._steps.get(step, {})

    def all(self) -> Sequence[tuple[int, Notes]]:
        with self._lock:
            return sorted(self._steps.items(), key=lambda each: each[0])

    def names(self) -> list[str]:
        return list(dict.fromkeys(name for _, notes in self.all() for name in notes))

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """Returns the steps at which a name has a number, ascending, and the numbers; bools count as 0 and 1."""
        points = [(step, notes[name]) for step, notes in self.all() if name in notes]
        found = [(step, float(note)) for step, note in points if not isinstance(note, str)]
        return [step for step, _ in found], [value for _, value in found]

    def curves(self) -> list[str]:
        return [name for name in self.names() if self.curve(name)[0]]


NO_NOTES: Final = RunNotes()


def read_notes(path: Path) -> tuple[RunNotes, int]:
    """Reads a rank's file of notes (raises OSError as ``opener.read_lines``); returns also its number of bad lines."""
    wrong = 0

    def lines() -> Iterator[tuple[int, dict[str, Note]]]:
        nonlocal wrong
        for line in read_lines(path, cut=True):
            found = notes_of_line(line)
            if found is not None:
                yield found
            else:
                wrong += bool(line.strip())

    return RunNotes(lines()), wrong


@dataclass(frozen=True, slots=True)
class ShownNote:
    """A note for display; ``node`` is the node it was recognised from, if the program did not log it."""

    name: str
    value: Note
    node: str = ""

    @property
    def recognised(self) -> bool:
        return bool(self.node)
