"""A PyTorch training as the protocol loop asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from tui_debugger.live.client.agent import ClientHit, ClientValue, Identity
from tui_debugger.live.client.judging import Judge, resolve
from tui_debugger.live.wire import RemoteTensor, RemoteWatchpoint, Unrecorded
from tui_debugger.model import TensorMeta, TensorStats
from tui_debugger.stats.records import RequiredStats
from tui_debugger.torch import exact
from tui_debugger.torch.captures import Capture
from tui_debugger.torch.elements import chunks, local, meta_of, readable, type_name
from tui_debugger.torch.naming import GRADIENTS
from tui_debugger.torch.training import Training
from tui_debugger.torch.verdicts import find_records, initial_hits, judge_step


class TorchProbe:
    """Answers questions about the step that just ended (or that the training stands in).

    It may be asked at any time, also when the program has ended: all that it computes is marked as our own work.
    """

    def __init__(
        self,
        training: Training,
        attached: Callable[[], None],
        detached: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        """``attached`` installs hooks, ``detached`` removes them, ``ended`` ends a step before it is judged."""
        self._training = training
        self._ended = ended
        self._attached = attached
        self._detached = detached
        self._resting = False
        """A step runs that will never end: weights and gradients are those of the one before."""
        self.initial = False
        """The training stands before its first step as far as the debugger is concerned: see ``attaching``."""

    def identity(self) -> Identity:
        """Rank and world size of torch.distributed, where that is in use."""
        return self._training.identity()

    def attached(self) -> None:
        """A debugger came."""
        self._attached()

    def detached(self) -> None:
        """It is gone."""
        self._detached()

    def unrecorded(self) -> Sequence[Unrecorded]:
        """See ``Probe``."""
        return self._training.recording.unrecorded.all()

    def graphs(self) -> Sequence[bytes]:
        """One graph."""
        with self._training.recording.at_work():
            return [self._training.graph()]

    def watch(self, watchpoints: Sequence[RemoteWatchpoint]) -> None:
        """Another list of watchpoints."""
        with self._training.recording.at_work():
            self._training.recording.plans = self._training.plans(watchpoints)

    def evaluate(self, recheck: bool, initial: bool) -> Sequence[ClientHit]:
        """Judges the step."""
        training = self._training
        judge = training.recording.plans.judge
        with training.recording.at_work():
            if initial or self.initial:
                return self._judge_initial(judge)
            if not self._resting:
                training.see_weights()
            training.expectation.look_at(training.recording.step, training.recording.structure)
            return judge_step(training.recording.step, judge, recheck=recheck)

    def unfinished(self) -> bool:
        """See ``Probe``."""
        recording = self._training.recording
        return bool(len(recording.step) or recording.passes)

    def rest(self) -> Sequence[ClientHit]:
        """Parameters are what they were; their gradients are there if a backward pass ran."""
        training = self._training
        recording = training.recording
        self._resting = True
        with recording.at_work():
            self._ended()
            if any(name.startswith(GRADIENTS) for name in recording.step.names()):
                training.see_gradients()
            training.expectation.look_at(recording.step, recording.structure)
            return judge_step(recording.step, recording.plans.judge, recheck=False)

    def describe(self, tensor: RemoteTensor) -> TensorMeta | None:
        """Type and shape."""
        with self._training.recording.at_work():
            values, capture = self._find(tensor)
        if values is not None:
            return meta_of(values)
        return capture.meta if capture is not None else None

    def statistics(self, tensor: RemoteTensor) -> tuple[TensorMeta, TensorStats | None] | None:
        """Of the values, or what was found out about them when they were there."""
        recording = self._training.recording
        with recording.at_work():
            values, capture = self._find(tensor)
            if values is not None:
                return meta_of(values), exact.records([(values, RequiredStats(), None)])[0].stats
            if capture is None:
                return None
            seen = recording.passes.find((capture.name, capture.slot))
            if capture.record is None and capture.look is not None and seen is not None:
                find_records(seen[0], [capture], recording.plans.judge)
        record = capture.record
        return None if record is None or capture.rough else (capture.meta, record.stats)

    def value(self, tensor: RemoteTensor) -> ClientValue | None:
        """The values, copied to the host piece by piece."""
        with self._training.recording.at_work():
            values, _ = self._find(tensor)
            if values is None:
                return None
            part = local(values)
        return ClientValue(type_name(part.dtype), tuple(part.shape), self._chunks(part))

    # -- inside --------------------------------------------------------------------------------------

    def _chunks(self, values: torch.Tensor) -> Iterator[bytes]:
        pieces = chunks(values)
        while True:
            with self._training.recording.at_work():
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    def _judge_initial(self, judge: Judge) -> list[ClientHit]:
        weights = [(name, each) for name, each in self._training.initial() if judge.need(name) is not None]
        found = exact.records([(values, RequiredStats(), None) for _, values in weights])
        return initial_hits([name for name, _ in weights], found, judge)

    def _find(self, tensor: RemoteTensor) -> tuple[torch.Tensor | None, Capture | None]:
        """The values that are there now, and what was seen of them."""
        training = self._training
        name = resolve(tensor.node, training.names())
        if self.initial or tensor.previous:
            return (training.previous.get(name) if not (self.initial and tensor.previous) else None), None
        seen = training.recording.passes.find((name, tensor.slot))
        if seen is not None:
            return (seen[1].tensor if seen[1].intact else None), seen[1]
        found = training.parameter(name) if not tensor.slot else None
        return (found if found is not None and readable(found) else None), None
