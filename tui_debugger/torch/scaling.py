"""What a GradScaler skips: gradients that overflowed because the loss was scaled up, which is how it finds its scale.

Such gradients are no findings. No step ends when the optimizer is not called, so they stand before those of the pass
that was used. That its optimizer is called by a scaler shows when it is called; how often the scaler was updated since
the step before tells how many passes it skipped.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final

import torch

from tui_debugger.torch import internals
from tui_debugger.torch.naming import GRADIENTS
from tui_debugger.torch.recording import Recording

FOR_GOOD: Final = 20
"""Steps that are skipped one after the other until the training ends: no scale is small enough."""


class Scaling:
    """The scaler of a training, once it was seen."""

    def __init__(self, recording: Recording, say: Callable[[str], None]) -> None:
        """None was seen."""
        self._recording = recording
        self._say = say
        self._scaler: weakref.ref[Any] | None = None
        self._updates = 0
        self._looked = False

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> bool:
        """Puts aside what was skipped before; whether this call of the optimizer is skipped, too."""
        scaler = internals.calling_scaler()
        if scaler is None:
            return False
        if not self._looked:
            self._looked = True
            first = self._scaler is None
            if first:
                self._scaler = weakref.ref(scaler)
                self._recording.scaled = True
            self._put_aside(internals.updates_of(scaler) - self._updates - (0 if first else 1))
        found = getattr(optimizer, "found_inf", None)  # of optimizers that look at it themselves
        if not isinstance(found, torch.Tensor) or not found.item():
            return False
        self._skipped(list(self._recording.step))
        return True

    def training_ends(self) -> None:
        """After the last step: what was skipped since."""
        scaler = self._scaler() if self._scaler is not None else None
        if scaler is not None and not self._looked:
            skipped = internals.updates_of(scaler) - self._updates - 1
            if skipped > FOR_GOOD:
                return
            starts = self._recording.step.starts
            if skipped > 0 and not len(starts) % skipped:
                self._skipped(list(self._recording.step))
            else:
                self._put_aside(skipped)

    def step_ended(self) -> None:
        """The scaler is updated once more for this step."""
        scaler = self._scaler() if self._scaler is not None else None
        self._looked = False
        if scaler is not None:
            self._updates = internals.updates_of(scaler)

    def _put_aside(self, skipped: int) -> None:
        """Each step of the scaler took the same number of passes; the last one was used."""
        step = self._recording.step
        passes = len(step.starts)
        if skipped > 0 and passes > 1:
            used = passes // (skipped + 1) or 1
            self._skipped([each for each in step if each.order < step.starts[-used]])

    def _skipped(self, captures: list[Any]) -> None:
        gradients = [each for each in captures if each.name.startswith(GRADIENTS)]
        if gradients:
            self._recording.step.forget(gradients)
            self._say("a GradScaler skipped a step: gradients that overflowed in it are not judged")
