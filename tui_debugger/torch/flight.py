"""The flight recorder on a PyTorch training: exact statistics of every tensor at every step, which is slow."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

from tui_debugger.arrays import Array
from tui_debugger.live.client.agent import ClientHit
from tui_debugger.live.client.endings import EndListener
from tui_debugger.live.client.flight import Flight, FlightRecorder, FlightRow
from tui_debugger.live.client.judging import ClientJudge
from tui_debugger.live.client.notebook import Notebook
from tui_debugger.stats.records import RequiredStats
from tui_debugger.torch.captures import Capture, CapturedStep, Key, Plans
from tui_debugger.torch.exact import records
from tui_debugger.torch.internals import as_array, meta_of, numeric
from tui_debugger.torch.training import TrainingState
from tui_debugger.torch.verdicts import find_records, judge_step


class TrainingFlight:
    """Takes every step into the ring, and has it written when something goes wrong that no debugger sees."""

    def __init__(self, flight: Flight, training: TrainingState, say: Callable[[str], None], notes: Notebook) -> None:
        self._recorder = FlightRecorder(
            flight, training.identity(), training.recording.unrecorded.all, training.patience, training.memory
        )
        self._training = training
        self._say = say
        self._notes = notes
        self._step = 0
        self._attached = False
        self._withheld: Sequence[ClientHit] = ()
        """The hits of the last step, including those that a debugger sees."""
        self._known: BaseException | None = None
        self._closed = False
        self._ending = EndListener(self._ended)

    def close(self) -> None:
        """The training is over: writes what waits to be written. Idempotent."""
        if not self._closed:
            self._closed = True
            self._ending.close()
            self._ended(None, True)

    def __del__(self) -> None:
        """The model and its optimizers are gone: the training is over."""
        with contextlib.suppress(Exception):
            self.close()

    def plans(self) -> Plans:
        return Plans(self._recorder.judge)

    def begins(self, step: int, *, attached: bool) -> None:
        self._step, self._attached = step, attached
        self._ending.thread = threading.get_ident()

    def take(self, step: int, *, attached: bool) -> None:
        with self._ending.at_work():
            self._attached = attached
            self._report(self._judge(step))

    def lost(self, step: int) -> None:
        """The debugger left at the end of this step, maybe before it saw the hits."""
        with self._ending.at_work():
            self._attached = False
            self._report(self._recorder.judged(step, self._withheld))

    def failed(self, error: BaseException, *, ends: bool = False) -> None:
        """An exception came in the step that began last. ``ends``: it ends the training."""
        with self._training.recording.at_work(), self._ending.at_work():
            self._rest()
            if ends:
                self._report(self._recorder.flush())
            if isinstance(error, Exception) and error is not self._known and not self._attached:
                self._known = error
                self._report(self._recorder.failed(error, ends=ends))

    # -- inside --------------------------------------------------------------------------------------

    def _ended(self, error: BaseException | None, ends: bool) -> None:
        """The program ends, or a signal came: then the step may go on, and is left alone."""
        if error is not None:
            self.failed(error, ends=True)
            return
        with self._training.recording.at_work(), self._ending.at_work():
            if ends:
                self._rest()
            self._report(self._recorder.flush(ends=ends))

    def _rest(self) -> None:
        recording = self._training.recording
        if len(recording.step) or recording.passes:
            recording.end_pass()
            self._report(self._judge(self._step, partial=True))
            self._training.goes_on()

    def _judge(self, step: int, *, partial: bool = False) -> str:
        """Takes a step into the ring and judges it; returns the text of ``FlightRecorder.judged``."""
        training, recorder = self._training, self._recorder
        recording = training.recording
        if not recorder.knows_graph:
            recorder.begin(_initial(training))
        self._know(partial)
        training.see_weights()
        captures = self._captures()
        with_values = recorder.flight.tensor_steps > 0
        rows = [_row(each, with_values) for each in captures.values() if each.record is not None and not each.rough]
        recorder.keep(step, rows, partial=partial, notes=self._notes.of(step))
        training.expectation.look_at(recording.step, recording.structure)
        self._withheld = judge_step(recording.step, recorder.judge, recheck=True)
        seen = recording.plans.judge if self._attached else ClientJudge()
        hits = [hit for hit in self._withheld if seen.need(hit.node) is None]
        return recorder.judged(step, hits, lambda name, slot: _values(captures.get((name, slot))))

    def _know(self, partial: bool) -> None:
        recording = self._training.recording
        if not recording.structure.changed and self._recorder.knows_graph:
            return
        learning = recording.learning
        recording.learning = False  # the graph so far counts, even of a first step that does not end
        try:
            self._recorder.know([self._training.graph()])
        finally:
            recording.learning = learning
        recording.structure.changed = partial and learning

    def _captures(self) -> dict[Key, Capture]:
        """The captures of the step, one for each tensor: the first bad one if there is any, else the last."""
        found: dict[Key, Capture] = {}
        for capture in self._all():
            key = capture.name, capture.slot
            if key not in found or not _bad(found[key]):
                found.pop(key, None)
                found[key] = capture
        return found

    def _all(self) -> Iterator[Capture]:
        recording = self._training.recording
        steps: list[CapturedStep] = [*recording.passes.kept(), recording.step]
        for each in steps:
            captures = list(each)
            find_records(each, captures, self._recorder.judge)
            yield from captures

    def _report(self, text: str) -> None:
        if text:
            self._say(text)


def _initial(training: TrainingState) -> list[FlightRow]:
    """The weights before the first step, as far as they were kept."""
    weights = [(name, values) for name, values in training.initial() if numeric(values)]
    found = records([(values, RequiredStats(), None) for _, values in weights])
    return [
        FlightRow(name, meta_of(values), record.stats) for (name, values), record in zip(weights, found, strict=True)
    ]


def _bad(capture: Capture) -> bool:
    return capture.record is not None and capture.record.stats is not None and capture.record.stats.bad


def _row(capture: Capture, with_values: bool) -> FlightRow:
    stats = capture.record.stats if capture.record is not None else None
    return FlightRow(capture.name, capture.meta, stats, _values(capture) if with_values else None, capture.slot)


def _values(capture: Capture | None) -> Array | None:
    """A copy of the values in host memory, if they are unchanged."""
    if capture is None or not capture.intact or capture.tensor is None:
        return None
    values: Array = as_array(capture.tensor.cpu()).copy()
    return values
