"""The notes of a training from the logs that Hugging Face's Trainer saved: see ``stats.training_log``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from tui_debugger.errors import UnreadableTensorError
from tui_debugger.notes import Notes, RunNotes, limited
from tui_debugger.stats.training_log import TrainingLog, read_log
from tui_debugger.text.numbers import first_of

_STEP: Final = "step"
_TOLD: Final = 3


def read_notes_of_logs(paths: Iterable[str]) -> RunNotes:
    """Logged values by step; of two logs of a step the later one counts.

    An unreadable log is left out: the listing of its step reports it.
    """
    notes = RunNotes()
    for path in paths:
        try:
            notes.add(_notes(read_log(path)))
        except UnreadableTensorError:  # noqa: PERF203 - of a few files
            continue
    return notes


def _notes(log: TrainingLog) -> Iterator[tuple[int, Notes]]:
    for entry in log.entries:
        step = entry.get(_STEP) if type(entry) is dict else None
        if type(step) is int and 0 <= step < 1 << 63:
            yield step, limited((name, value) for name, value in entry.items() if name != _STEP)


def notices_of(rank: int, notes: RunNotes) -> Iterator[str]:
    """Yields the steps at which a logged number was not finite."""
    for name in notes.curves():
        steps, values = notes.curve(name)
        if bad := np.array(steps)[~np.isfinite(values)].tolist():
            yield f"log of rank {rank}: {name} is not finite at step {first_of(list(map(str, bad)), _TOLD)}"
