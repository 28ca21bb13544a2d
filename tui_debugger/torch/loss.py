"""Losses: what functions compute after the last module, recorded where ``backward`` is called on it.

A loss may be NaN while all its gradients are finite, so none of the gradients tells of it. What a gradient scaler is
given is the loss then, and what it makes of that a node of its own, which may overflow where the loss does not.
"""

from __future__ import annotations

import functools
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from threading import get_ident
from typing import Any, Final

import torch

from tui_debugger.torch.calls import Calls, Guard, capturing, is_compiling
from tui_debugger.torch.internals import in_backward, replace_run_backward, run_backward, transformed
from tui_debugger.torch.naming import Tree, numbered
from tui_debugger.torch.recording import Recording

LOSS: Final = "Loss"
"""The node of the first loss of a call of the model, and its operator type where nobody saw what computed it."""
SCALED: Final = "Scaled"
"""How the name of what a gradient scaler made of it begins."""


class Losses:
    """Sees what is differentiated, while it is installed."""

    def __init__(self, recording: Recording, calls: Calls, guard: Guard) -> None:
        """Sees nothing yet. ``guard``: runs something without letting an exception out."""
        self._recording = recording
        self._calls = calls
        self._guard = guard
        self._times: Counter[str] = Counter()
        self._name = LOSS
        self._reference = weakref.ref(self, _stop_telling)

    def install(self, tree: Tree) -> None:
        """Listens to every backward pass and every gradient scaler of the program."""
        # The whole model may be of a class of that name: then its node has it.
        self._name = LOSS if all(place.name != LOSS for place in tree.places) else f"Backward{LOSS}"
        if self._reference not in _listeners:
            _listeners.append(self._reference)
        if not hasattr(run_backward(), _WRAPPED):
            replace_run_backward(_telling_of_backward(run_backward()))
        for each in _scalers():
            if not hasattr(each.scale, _WRAPPED):
                each.scale = _telling_of_scale(each.scale)

    def remove(self) -> None:
        """Listens no more; the last one leaves PyTorch as it was."""
        _stop_telling(self._reference)

    def begin(self) -> None:
        """The model is called, or a step is over: losses are numbered anew, as modules are."""
        self._times.clear()

    def differentiated(self, tensors: Sequence[Any], gradients: Sequence[Any], adds: bool) -> None:
        """``backward`` (it ``adds`` to the gradients of parameters) or ``torch.autograd.grad`` is called on tensors.

        A derivative that a model computes for itself is its own work, as all else between its modules; one of many
        numbers is the derivative of no loss.
        """
        if self._in_training() and (self._calls.outer is None or (adds and not self._calls.no_grad)):
            self._guard(lambda: self._know(tensors, gradients, adds))

    def to_scale(self, losses: Any) -> None:
        """A gradient scaler is given losses."""
        if self._in_training() and self._calls.outer is None:
            given = _several(losses)
            self._guard(lambda: self._know(given, [None] * len(given), adds=True))

    def scaled(self, losses: Any, made: Any) -> None:
        """It has made others of them; one that is switched off returns the same."""
        for before, after in zip(_several(losses), _several(made), strict=False):
            if isinstance(after, torch.Tensor) and after is not before:
                self._guard(functools.partial(setattr, after, _IS_SCALED, True))

    # -- inside --------------------------------------------------------------------------------------

    def _in_training(self) -> bool:
        """Whether this is the thread that trains, and no backward pass runs (for a checkpoint there is another one)."""
        return not is_compiling() and not in_backward() and self._calls.thread in (None, get_ident())

    def _know(self, tensors: Sequence[Any], gradients: Sequence[Any], adds: bool) -> None:
        """Records tensors, but for what is known: the output of a module, or a weight."""
        recording = self._recording
        flow, structure = recording.flow, recording.structure
        if capturing():
            return
        for tensor, gradient in zip(tensors, gradients, strict=False):
            if not isinstance(tensor, torch.Tensor) or tensor.grad_fn is None or transformed(tensor):
                continue
            if not adds and tensor.numel() > 1:
                continue
            name = recording.step.seen_as(tensor)
            with recording.at_work():
                if not name:
                    scaled = hasattr(tensor, _IS_SCALED)
                    kind = f"{SCALED}{self._name}" if scaled else self._name
                    self._times[kind] += 1
                    name = numbered(kind, self._times[kind])
                    structure.losses.add(name)
                    if scaled:
                        structure.scaled.add(name)
                    sources = functools.partial(flow.sources, [tensor])
                    recording.made(name, flow.of(tensor).work or LOSS, [tensor], sources)
                if name in structure.losses and flow.following and isinstance(gradient, torch.Tensor):
                    flow.began_backward(gradient, name)


def _several(losses: Any) -> list[Any]:
    return list(losses) if isinstance(losses, list | tuple) else [losses]


def _scalers() -> Iterator[Any]:
    """Every class of gradient scalers that scales in its own way."""
    pending: list[Any] = [torch.amp.GradScaler]
    while pending:
        each = pending.pop()
        pending += each.__subclasses__()
        if "scale" in vars(each):
            yield each


def _stop_telling(reference: weakref.ref[Losses]) -> None:
    """One listens no more; the last one leaves PyTorch as it was."""
    if reference not in _listeners:
        return
    _listeners.remove(reference)
    if _listeners:
        return
    if hasattr(run_backward(), _WRAPPED):
        replace_run_backward(getattr(run_backward(), _WRAPPED))
    for each in _scalers():
        if hasattr(each.scale, _WRAPPED):
            each.scale = getattr(each.scale, _WRAPPED)


_listeners: Final[list[weakref.ref[Losses]]] = []
_WRAPPED: Final = "_tdbg_wrapped"
_IS_SCALED: Final = "_tdbg_scaled"


def _telling_of_backward(original: Any) -> Any:
    """What runs backward passes, which says first what it begins with."""

    @functools.wraps(original)
    def run(tensors: Sequence[Any], gradients: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        for each in tuple(_listeners):
            if (losses := each()) is not None:
                losses.differentiated(tensors, gradients, bool(kwargs.get("accumulate_grad")))
        return original(tensors, gradients, *args, **kwargs)

    setattr(run, _WRAPPED, original)
    return run


def _telling_of_scale(original: Any) -> Any:
    """``GradScaler.scale``, which says what it is given, and then what it made of it."""

    @functools.wraps(original)
    def scale(scaler: Any, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        listening = [losses for each in _listeners if (losses := each()) is not None]
        for losses in listening:
            losses.to_scale(outputs)
        made = original(scaler, outputs, *args, **kwargs)
        for losses in listening:
            losses.scaled(outputs, made)
        return made

    setattr(scale, _WRAPPED, original)
    return scale
