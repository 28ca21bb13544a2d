"""Reads the log of Hugging Face's Trainer beside its checkpoints: ``log_history`` in ``trainer_state.json``.

Numbers are judged as in a pickle (see ``saved_objects``): the numbers of one name are one tensor unless all are finite.
The rest of the file is settings.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tui_debugger.model import ReadSpec
from tui_debugger.stats.archive import FileBytes, State, opened, state_of, unreadable
from tui_debugger.stats.kept import Kept
from tui_debugger.stats.names_of_numbers import LOG
from tui_debugger.stats.restricted_pickle import Loaded, PickleError
from tui_debugger.stats.saved_objects import Path, saved_tensors
from tui_debugger.stats.torch_file import PickledValues, member_of
from tui_debugger.stats.torch_pickle import SavedTensorRef

_LONGEST: Final = 1 << 27
_EACH: Final = 1000
"""Approximate bytes of memory for each entry."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingLog:
    """The log of a training, with an entry for each logged step.

    ``tensors`` are numbers of one name that are not all finite (``members``: by text of the place); ``apart`` counts
    non-finite numbers that are no findings; ``numbers`` are finite ones beside the log, and the number of entries.
    """

    entries: Sequence[Any]
    tensors: Sequence[tuple[Path, SavedTensorRef]]
    members: Mapping[str, SavedTensorRef]
    apart: Sequence[tuple[Path, int]]
    numbers: Mapping[Path, int | float]


def read_log(path: str) -> TrainingLog:
    """Returns the log of a file, perhaps empty; or raises UnreadableTensorError."""
    with opened(path) as (descriptor, status):
        return _known(descriptor, status, path)


def open_value(descriptor: int, status: os.stat_result, spec: ReadSpec) -> PickledValues:
    """Returns the reader of the numbers of one name: a ``npy.OpenValue``."""
    where = f"{spec.path}:{spec.member}"
    ref = _known(descriptor, status, spec.path).members.get(spec.member)
    if ref is None or ref.values is None:
        why, hint = (
            ("is not in the file", "the file was written anew: look again") if ref is None else (ref.problem, "")
        )
        raise unreadable(where, why, hint)
    return PickledValues(ref.values, where)


_logs: Kept[tuple[str, State], TrainingLog] = Kept(lambda log: len(log.entries) * _EACH)


def _known(descriptor: int, status: os.stat_result, path: str) -> TrainingLog:
    return _logs.get((path, state_of(status)), lambda: _read(descriptor, status.st_size, path))


def _read(descriptor: int, size: int, path: str) -> TrainingLog:
    if size > _LONGEST:
        raise unreadable(path, f"has {size:,} bytes: that is not plausible")
    try:
        state = json.loads(FileBytes(descriptor, 0, size, path).read(0, size))
        entries = state.get(LOG, []) if type(state) is dict else None
        if type(entries) is not list:
            raise unreadable(path, "is no state of the Trainer: it has no log")
        found = saved_tensors(Loaded({LOG: entries}, 0, {}), _nothing_inside)
    except (ValueError, RecursionError) as error:
        if isinstance(error, PickleError):
            raise unreadable(path, str(error)) from error
        raise unreadable(path, "is empty" if not size else "is no JSON: it is damaged or cut off") from error
    numbers: dict[Path, int | float] = {(LOG, "entries"): len(entries)}
    numbers |= {(name,): value for name, value in state.items() if type(value) in (int, float) and math.isfinite(value)}
    members = {member_of(place): ref for place, ref in found.tensors}
    return TrainingLog(entries, found.tensors, members, found.apart, numbers)


def _nothing_inside(_: bytes) -> list[tuple[Path, SavedTensorRef]]:
    return []
