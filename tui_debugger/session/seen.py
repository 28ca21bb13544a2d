"""The files whose values somebody looks at, and whether they are still what they were.

A source looks at directories: a file that is written over in place leaves no trace there.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_debugger.stats.side_by_side import Identity, identity

if TYPE_CHECKING:
    from tui_debugger.model import ReadSpec, TensorKey

MOST: Final = 32
"""So many files are looked after, those that were asked for last."""


@dataclass(frozen=True, slots=True)
class FileState:
    """What tells the values of a tensor from others that take their place.

    Attributes:
        spec: where they lie.
        status: size, times and number of the file; None where it is gone, or where others share it.
    """

    spec: ReadSpec
    status: Identity | None


def state_of(spec: ReadSpec) -> FileState:
    """How the file of a tensor looks now."""
    shared = spec.format == "raw"  # a part of a file that goes on growing
    return FileState(spec, None if shared else identity(spec.path))


class SeenFiles:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        """Nothing is shown."""
        self._lock = threading.Lock()
        self._states: dict[TensorKey, FileState] = {}

    def note(self, key: TensorKey, state: FileState) -> None:
        """The values of a tensor are shown; what was noted before stays until ``rewritten`` has told of it."""
        with self._lock:
            self._states[key] = self._states.pop(key, state)
            while len(self._states) > MOST:
                del self._states[next(iter(self._states))]

    def directories(self) -> list[Path]:
        """Where these files are."""
        with self._lock:
            return [Path(state.spec.path).parent for state in self._states.values() if state.spec.format != "raw"]

    def rewritten(self) -> list[TensorKey]:
        """The tensors whose file looks different now; each is told once."""
        with self._lock:
            seen = list(self._states.items())
        found = []
        for key, state in seen:
            now = state_of(state.spec)
            if now != state:
                found.append(key)
                with self._lock:
                    if self._states.get(key) is state:
                        self._states[key] = now
        return found
