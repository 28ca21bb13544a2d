"""How tensors came to be in a step in which nobody sees operators: compared with the steps that were followed.

Programs do not do the same in every step, and a step in which a branch runs for the first time is the one that breaks.
So what a module is given, what it returns, and what a loss is made of is held against the steps before: the node that
made the very tensor, or else the way back through autograd to the nodes that it was computed from. What has no
gradient, and was computed, shows nothing of that.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final

import torch

from tui_debugger.torch.internals import base_of, number_of
from tui_debugger.torch.recording import Recording

MOST: Final = 500
"""Functions of autograd on the way from a tensor back to nodes; beyond that it is not compared."""
_OF_LEAF: Final = "AccumulateGrad"
"""The type of the functions that keep gradients."""


class Makers:
    """What made the tensors of this step, and of those that were followed."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._usual: dict[Hashable, set[Hashable]] = {}
        self._made: dict[int, str] = {}
        """Outputs of nodes of this step by the number of the function that autograd has for them."""

    def new_step(self) -> None:
        """A step is over: functions are numbered anew where threads change."""
        self._made.clear()

    def made(self, node: str, tensors: Iterable[torch.Tensor]) -> None:
        """A node has run. What an inner node made stays its own when an outer one returns it."""
        for tensor in tensors:
            if tensor.grad_fn is not None:
                self._made.setdefault(number_of(tensor.grad_fn), node)

    def usual(self, node: str, role: str, tensors: Sequence[torch.Tensor]) -> bool:
        """Tells whether tensors came to be as in a step that was followed. While one is, that is learned.

        Args:
            node: that is given them, or returns them.
            role: what they are to it.
            tensors: in order; to be asked about before the node is said to have made them.
        """
        usual = True
        for at, tensor in enumerate(tensors):
            maker = self._maker(tensor)
            key = node, role, at
            if self._recording.flow.following:
                self._usual.setdefault(key, set()).add(maker)
            elif key in self._usual and maker not in self._usual[key]:
                usual = False
        return usual

    # -- inside --------------------------------------------------------------------------------------

    def _maker(self, tensor: torch.Tensor) -> Hashable:
        """The node that made a tensor, or the functions and nodes that it was computed by; None: that does not show."""
        maker = self._known(tensor)
        if maker:
            return maker
        if tensor.grad_fn is not None:
            return self._way_back(tensor.grad_fn)
        base = base_of(tensor)
        return None if base is None else ("view", self._known(base))

    def _known(self, tensor: torch.Tensor) -> str:
        return self._recording.seen_as(tensor) or self._recording.flow.parameter(tensor)

    def _way_back(self, function: Any) -> Hashable:
        found: list[Hashable] = []
        numbers: dict[int, int] = {}
        pending: list[tuple[Any, int]] = [(function, 0)]
        while pending:
            each, slot = pending.pop()
            if each is None:
                found.append("")
            elif type(each).__name__ == _OF_LEAF:
                found.append(self._known(each.variable))
            elif (number := number_of(each)) in self._made:
                found.append((self._made[number], slot))
            elif number in numbers:
                found.append(numbers[number])
            else:
                numbers[number] = len(found)
                found.append(type(each).__name__)
                pending += each.next_functions
            if len(found) > MOST:
                return None
        return tuple(found)
