"""What the program itself writes to weights and buffers, and which of them are bad when modules read them.

Averages that stand in for weights during an evaluation, weights that are moved between two forward passes, a buffer
that is loaded again: such a tensor may be bad in a part of a step only, and be clean before the step and after it.

A write of PyTorch changes the version of a tensor. A write in NumPy, or to the data of a weight, does not: what is
small is compared with its values of before, and all is looked at when an evaluation begins.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final

import numpy as np
import torch

from tui_debugger.model import OperandState
from tui_debugger.torch.captures import norms, plain
from tui_debugger.torch.exact import Waiting
from tui_debugger.torch.flow import has_fractions
from tui_debugger.torch.internals import dense, local, numeric, part_of, readable, transforming, version_of
from tui_debugger.torch.recording import StepRecording
from tui_debugger.torch.structure import UNKNOWN, ModelTree

Mark = tuple[int, int, int]
"""What changes when the program writes to a tensor or gives it other memory (``weight.data = ...``)."""
SMALL: Final = 1 << 16
"""Bytes of a weight whose values of the step before are kept whatever is watched."""
_NEVER_SEEN: Final = (0, -1, 0)
"""The mark of a weight of which nothing is known."""


class ProgramWrites:
    """Looks at weights and buffers when a forward pass or an optimizer begins."""

    def __init__(
        self,
        recording: StepRecording,
        before: Callable[[str], torch.Tensor | None],
        tree: Callable[[], ModelTree],
        shards: Callable[[], set[str]],
    ) -> None:
        """Nothing is known yet.

        Args:
            recording: of the step.
            before: the values that a weight had when the last step ended, where they are kept.
            tree: the model by names.
            shards: names of weights that stand for what was gathered from all processes while the model runs.
        """
        self._recording = recording
        self._before = before
        self._tree = tree
        self._shards = shards
        self._weights: dict[str, Mark] = {}
        """Weights that are not looked at yet in this step, as they were when the last one ended."""
        self._buffers: dict[str, Mark] = {}
        self._held: list[tuple[str, torch.Tensor]] = []
        self._marked: list[tuple[int, int]] = []
        """Weights and buffers in memory of their own, and their marks when they were looked at last in this step."""
        self._begun = 0
        """Steps at whose beginning weights were looked at."""
        self._bad_before: set[str] = set()
        """Nodes that were bad in the step before."""

    def first_step_begins(self) -> None:
        """The program initialized all weights: whether it did so well is looked at once."""
        self._weights = dict.fromkeys((name for name, _ in self._readable_weights()), _NEVER_SEEN)

    def step_ends(self) -> None:
        """Remembers weights and buffers as the step leaves them."""
        self._bad_before = set(self._recording.step.bad)
        watched = bool(self._recording.plans)
        shards = self._shards()
        self._weights = {name: _mark(each, name in shards) for name, each in self._readable_weights() if watched}
        self._buffers = {name: _mark(each) for name, each in self._readable_buffers() if watched}
        self._held.clear()
        self._marked.clear()

    def call_begins(self) -> None:
        """A forward pass begins; weights of which each process has a part are looked at when they were gathered."""
        if transforming():
            return
        if self._marked:
            self._look_again()
            return
        self._look(self._shards())
        if self._recording.plans:
            self._hold()

    def optimizer_begins(self) -> None:
        """An optimizer begins a step."""
        self._look()

    def gradients_became_bad(self) -> None:
        """Gradients are bad for the first time: a weight that is bad before its update was written by the program.

        ``weight.data[0] = ...`` counts nowhere that it was.
        """
        but, plans = self._shards() | self._bad_before, self._recording.plans
        watched = [each for each in self._readable_weights() if each[0] not in but and plans.of(each[0])]
        with self._recording.at_work():
            bad = _bad_among(watched)
            self._recording.read_as(bad)
        for name in bad:
            self._recording.structure.feed(name, ())

    # -- inside --------------------------------------------------------------------------------------

    def _readable_weights(self) -> Iterable[tuple[str, torch.Tensor]]:
        return ((name, each) for name, each in self._tree().parameters.items() if readable(each))

    def _readable_buffers(self) -> Iterable[tuple[str, torch.Tensor]]:
        return ((name, each) for name, each in self._tree().buffers.items() if has_fractions(each) and readable(each))

    def _look(self, but: Container[str] = ()) -> None:
        """Looks at weights and buffers for the first time in a step.

        Args:
            but: names of those to be looked at later.
        """
        structure, weights, shards = self._recording.structure, self._tree().parameters, self._shards()
        asked = {name: known for name, known in self._weights.items() if name not in but}
        changed = {name for name, known in asked.items() if _mark(weights[name], name in shards) != known}
        self._begun += bool(asked)
        # Else a device is waited for. An evaluation, in which others may stand in for weights, waits for it anyway.
        now_and_then = self._begun & (self._begun - 1) == 0
        waits = now_and_then or self._recording.passes.now is not None
        with self._recording.at_work():
            structure.touch(name for name in changed if asked[name] != _NEVER_SEEN)
            rest = [name for name in asked if name not in changed]
            # ``weight.data.clamp_()`` counts nowhere that it was.
            kept = (name for name in rest if self._before(name) is not None)
            compared = {name for name in kept if now_and_then or _is_cheap(weights[name])}
            silently = {name for name in compared if self._is_another(name)}
            more = [name for name in rest if name not in compared] if waits else []
            # What was bad before the program wrote to it, as it clamps a weight, is not bad by that.
            wanted = [name for name in (*changed, *silently, *more) if name not in self._bad_before]
            bad = _bad_among([(name, weights[name]) for name in wanted])
            self._recording.read_as(bad)
            silently.update(name for name in bad if name in more and self._is_another(name))
            structure.touch(silently)
            self._look_at_buffers(waits=waits)
        for name in asked:
            if name in bad and name in changed | silently:
                structure.feed(name, ())  # for good: another graph would cost what is known of this step
            del self._weights[name]

    def _look_at_buffers(self, *, waits: bool) -> None:
        """Finds the buffers that hold NaN: infinite ones may be masks."""
        recording, known = self._recording, self._buffers
        there = [(name, each) for name, each in self._readable_buffers() if name in known]
        wanted = [(name, each) for name, each in there if waits or _is_cheap(each) or _mark(each) != known[name]]
        found = _bad_among([(name, each) for name, each in wanted if name not in self._bad_before])
        nan = {name: state for name, state in found.items() if state is OperandState.NAN}
        recording.read_as(nan)
        # What an operator is seen to write made it.
        written = recording.flow.written if recording.every_operator else _by_nobody
        recording.bad_at_start |= {name for name, each in there if name in nan and not written(each)}
        known.clear()

    def _hold(self) -> None:
        """Remembers the weights and buffers that are looked at, to find those that are others in a later pass."""
        shards = self._shards()
        weights = [(name, each) for name, each in self._readable_weights() if name not in shards]
        self._held = [(name, each) for name, each in (*weights, *self._readable_buffers()) if _is_plain(each)]
        self._marked = [_place(each) for _, each in self._held]

    def _look_again(self) -> None:
        """Looks at what was written to since the last pass of the step began, but not by an optimizer."""
        before, self._marked = self._marked, [_place(each) for _, each in self._held]
        if self._marked == before:
            return
        recording, weights = self._recording, self._tree().parameters
        pairs = zip(self._held, before, self._marked, strict=True)
        updated = set(recording.updated)
        changed = [each for each, old, new in pairs if old != new and each[0] not in updated]
        # Modules write to their own buffers in every pass: no device is waited for.
        wanted = [(name, each) for name, each in changed if name in weights or _is_cheap(each)]
        with recording.at_work():
            found = _bad_among(wanted)
            bad = {name: state for name, state in found.items() if name in weights or state is OperandState.NAN}
            clean = recording.was_clean() if bad else True
            recording.read_as({name: bad.get(name, OperandState.CLEAN) for name, _ in wanted})
        for name in bad:
            if name in weights:
                recording.structure.feed(name, () if clean else [UNKNOWN])

    def _is_another(self, name: str) -> bool:
        """Tells whether a weight is not what it was at the end of the step, as far as that is kept."""
        before, now = self._before(name), dense(local(self._tree().parameters[name]))
        same = before is None or before.shape != now.shape or before.dtype != now.dtype or before.device != now.device
        return not same and before is not None and not torch.equal(before, now)


def _mark(tensor: torch.Tensor, shard: bool = False) -> Mark:
    part = part_of(tensor)
    fixed = part is tensor and part.layout is torch.strided and not shard
    return id(tensor), version_of(part), part.data_ptr() if fixed else 0


def _is_plain(tensor: torch.Tensor) -> bool:
    return part_of(tensor) is tensor and tensor.layout is torch.strided and not tensor.is_inference()


def _place(tensor: torch.Tensor) -> tuple[int, int]:
    """``_mark`` of a plain tensor: it runs for every pass."""
    return tensor._version, tensor.data_ptr()  # noqa: SLF001 - see ``internals.version_of``


def _by_nobody(_: torch.Tensor) -> bool:
    return False


def _is_cheap(tensor: torch.Tensor) -> bool:
    """Tells whether a tensor is small, and no device has to be waited for."""
    return tensor.device.type == "cpu" and part_of(tensor).nbytes <= SMALL


def _bad_among(tensors: Sequence[tuple[str, torch.Tensor]]) -> dict[str, OperandState]:
    """Those of some tensors that hold NaN or Inf: by one number of each, and one transfer from each device."""
    there = [(name, plain(dense(local(each)))) for name, each in tensors if numeric(each)]
    waiting = Waiting()
    for each in norms([values for _, values in there], 2):
        waiting.add(each)
    finite = np.isfinite(waiting.fetch().first(np.arange(len(there))))
    found = {}
    for (name, values), good in zip(there, finite.tolist(), strict=True):
        if not good and not bool(values.isfinite().all()):  # a sum of squares may be too large
            found[name] = OperandState.NAN if bool(values.isnan().any()) else OperandState.INFINITE
    return found
