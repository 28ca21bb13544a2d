"""The notes of a training in its own process: taken at once, read when the step ends, sent with the next question.

A tensor of one element is copied on its device, and read only when the step ends and the device is waited for anyway.
Errors of notes never reach the program: there is one warning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from tui_debugger.notes import LONGEST_TEXT, MOST_NOTES, Note, Notes, limited, plain_note

WAITING: Final = 4096
"""Steps whose notes wait to be sent; older ones are dropped."""
_AS_THEY_ARE: Final = frozenset((float, int, bool))
"""Types that are stored at once; limits are checked when the step ends."""
BATCH: Final = 1 << 20
"""Bytes of notes that are sent with one message, about: gRPC refuses messages above 4 MiB."""


class Notebook:
    """The notes of the running step, and of steps that a debugger was not told of yet."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._warned = False
        self._now: dict[str, Any] = {}
        """The notes of the running step: values, or objects that give one when they are read."""
        self._ended: tuple[int, Notes] = -1, {}
        self._waiting: deque[tuple[int, Notes]] = deque(maxlen=WAITING)

    def add(self, notes: Mapping[str, Any]) -> None:
        """Takes notes of the running step; a later note of the same name replaces an earlier one. Never raises."""
        for name, value in notes.items():
            try:
                note = value if type(value) in _AS_THEY_ARE else _taken(value)
            except Exception as error:  # noqa: BLE001 - a broken tensor, a device out of memory ...
                self._warn(name, f"{type(error).__name__}: {error}")
                continue
            if note is None:
                self._warn(name, f"{type(value).__name__} is no number, bool, text or tensor of one element")
            elif name in self._now or len(self._now) < MOST_NOTES:
                self._now[name] = note
            else:
                self._warn(name, f"a step has {MOST_NOTES} notes at most")

    def end(self, step: int, *, send: bool = True) -> None:
        """Reads the notes of an ended step; a further call for the step adds notes. ``send``: a debugger may come."""
        now, self._now = self._now, {}
        before = self._ended[1] if self._ended[0] == step else {}
        self._ended = step, ({**before, **self._read(now)} if now else before)
        if now and send and self._ended[1]:
            self._waiting.append(self._ended)

    def of(self, step: int) -> Notes:
        """The notes of the step that ended last; for any other step the notes since then, as it has not ended."""
        return self._ended[1] if step == self._ended[0] else self._read(self._now)

    def batch(self) -> list[tuple[int, Notes]]:
        """The notes to send next, the oldest steps first."""
        found: list[tuple[int, Notes]] = []
        left = BATCH
        for each in self._waiting:
            left -= _size(each[1])
            if left < 0 and found:
                break
            found.append(each)
        return found

    def sent(self, batch: list[tuple[int, Notes]]) -> None:
        while batch and self._waiting and self._waiting[0] is batch[0]:
            self._waiting.popleft()
            batch = batch[1:]

    @property
    def urgent(self) -> bool:
        return len(self._waiting) >= WAITING // 2 or sum(_size(each[1]) for each in self._waiting) > BATCH // 2

    def _read(self, notes: Mapping[str, Any]) -> dict[str, Note]:
        return limited((name, self._value(name, value)) for name, value in notes.items())

    def _value(self, name: str, value: Any) -> object:
        try:
            return value.item() if hasattr(value, "item") else value
        except Exception as error:  # noqa: BLE001 - see add
            self._warn(name, f"{type(error).__name__}: {error}")
            return None

    def _warn(self, name: str, why: str) -> None:
        if not self._warned:
            self._warned = True
            self._say(f"note: {name[:100]} cannot be kept ({why}); the training goes on".splitlines()[0])


def _taken(value: Any) -> Any:
    """A note, or a copy that gives one when it is read; None for other values."""
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    note = plain_note(value)
    if note is not None or not hasattr(value, "item"):
        return note
    if _elements(value) != 1:
        return None
    if hasattr(value, "detach"):
        return value.item() if value.device.type == "cpu" else value.detach().clone()
    # NumPy arrays are in memory and may change; others (JAX) do not change, but may not be computed yet.
    return value.item() if type(value).__module__ == "numpy" else value


def _elements(value: Any) -> int:
    count = value.numel() if hasattr(value, "numel") else getattr(value, "size", 1)
    return int(count() if callable(count) else count)


def _size(notes: Notes) -> int:
    return 32 + sum(
        32 + 4 * (len(name) + (len(value) if isinstance(value, str) else 0)) for name, value in notes.items()
    )
