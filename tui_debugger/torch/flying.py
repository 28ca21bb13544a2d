"""The flight recorder on a PyTorch training: statistics of every tensor of the last steps.

Unlike a debugger it wants to know everything about every tensor at every step, which costs accordingly: all of them
are looked at exactly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tui_debugger.analysis.blocks import Array
from tui_debugger.live.client.flight import Flight, FlightRecorder, Row
from tui_debugger.torch.captures import Capture
from tui_debugger.torch.elements import as_array
from tui_debugger.torch.plans import Plans
from tui_debugger.torch.training import Training
from tui_debugger.torch.verdicts import find_records, judge_step


class Flying:
    """Takes every step into the ring, and has it written when something goes wrong and nobody watches."""

    def __init__(self, flight: Flight, training: Training, say: Callable[[str], None]) -> None:
        """Waits for exceptions that end the program.

        Raises:
            BadWatchpointError: a watch text is wrong.
        """
        self._recorder = FlightRecorder(flight, training.identity())
        self._training = training
        self._say = say
        self._before = sys.excepthook
        self._mine = self._uncaught
        self._step = 0
        self._known: BaseException | None = None
        sys.excepthook = self._mine

    def close(self) -> None:
        """Waits for nothing any more."""
        if sys.excepthook is self._mine:
            sys.excepthook = self._before

    def plans(self) -> Plans:
        """What it watches, of the graph that it knows."""
        return Plans(self._recorder.judge)

    def take(self, step: int, *, attached: bool) -> None:
        """A step has ended. ``attached``: a debugger sees to its hits."""
        recording = self._training.recording
        if recording.structure.changed or not self._recorder.knows_graph:
            self._recorder.know([self._training.graph()])
            recording.structure.changed = False
        self._keep(step)
        if not attached:
            self._recorder.judge.patience = self._training.patience
            self._training.expectation.look_at(recording.step, recording.structure.nodes)
            hits = judge_step(recording.step, self._recorder.judge, recheck=True)
            self._tell(self._recorder.judged(step, hits))

    def failed(self, error: BaseException, step: int) -> None:
        """An exception ends the training in a step."""
        if isinstance(error, Exception) and error is not self._known:
            self._known = error
            with self._training.recording.at_work():
                if self._recorder.knows_graph and self._training.recording.step.captures:
                    self._keep(step)
                self._tell(self._recorder.failed(error))

    def begins(self, step: int) -> None:
        """A step begins: its number, in case that it does not end."""
        self._step = step

    def _keep(self, step: int) -> None:
        training = self._training
        training.see_weights()
        captures = list(training.recording.step)
        find_records(training.recording.step, captures, self._recorder.judge)
        with_values = self._recorder.flight.tensor_steps > 0
        rows = [_row(each, with_values) for each in captures if each.record is not None and not each.rough]
        self._recorder.keep(step, list({(row.name, row.slot): row for row in rows}.values()))

    def _tell(self, text: str) -> None:
        if text:
            self._say(text)

    def _uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        try:
            self.failed(error, self._step)
        finally:
            self._before(kind, error, trace)


def _row(capture: Capture, with_values: bool) -> Row:
    values: Array | None = None
    if with_values and capture.intact and capture.tensor is not None:
        values = as_array(capture.tensor.cpu()).copy()
    stats = capture.record.stats if capture.record is not None else None
    return Row(capture.name, capture.meta, stats, values, capture.slot)
