"""How tensors came to be in a step in which operators are not seen: compared with the steps that were followed.

Programs do not do the same in every step, and a step in which a branch runs for the first time is the one that breaks.
So the inputs and outputs of modules and the sources of losses are compared with earlier steps: by the node that made
the very tensor, or else by the way back through autograd to the nodes that it was computed from. A computed tensor
without gradient shows nothing of that.

Functions that only move elements are left out of the way: PyTorch uses others while operators are seen, or for another
memory layout, and they never make NaN or Inf.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from tui_debugger.torch.flow import has_fractions
from tui_debugger.torch.internals import base_of, leaves, number_of, readable, version_of
from tui_debugger.torch.recording import StepRecording
from tui_debugger.torch.structure import UNKNOWN

MOST: Final = 500
"""Functions of autograd on the way from a tensor back to nodes; longer ways are not compared."""
_OF_LEAF: Final = "AccumulateGrad"
"""The type of the functions that keep gradients."""
_COPIES: Final = frozenset({"CloneBackward0"})
_MOVES: Final = _COPIES | {
    f"{kind}Backward{number}"
    for kind in (
        *("Alias", "AsStrided", "Diagonal", "Expand", "Permute", "ReshapeAlias", "Select", "Slice", "Split"),
        *("SplitWithSizes", "Squeeze", "T", "Transpose", "Unbind", "Unfold", "UnsafeView", "Unsqueeze", "View"),
    )
    for number in range(4)
}
"""Types of the functions that only move elements of one tensor."""


class Makers:
    """The makers of the tensors of this step, and of the steps that were followed."""

    def __init__(self, recording: StepRecording) -> None:
        self._recording = recording
        self._usual: dict[Hashable, set[Hashable]] = {}
        self._anywhere: dict[Hashable, set[Hashable]] = {}
        """Like ``_usual``, for all tensors that a node was given or returned, at any place among the arguments."""
        self._nodes: dict[str, set[Hashable]] = {}
        """The nodes that a loss was computed from."""
        self._made: dict[int, tuple[str, int]] = {}
        """Outputs of nodes of this step, with their versions, by the number of their autograd function."""

        self.masks: set[str] = set()
        """Nodes that wrote masks which modules returned."""

    def writer(self, tensor: torch.Tensor) -> str:
        """The type of the function that made the elements of a tensor, such as ``MaskedFill``; empty without one."""
        function: Any = tensor.grad_fn
        while function is not None and type(function).__name__ in _MOVES:
            function = function.next_functions[0][0]
        return "" if function is None else _FUNCTION.sub("", type(function).__name__)

    def weighs(self, tensor: torch.Tensor) -> str:
        """The type of the function that weighed masks on the way to a tensor (``LogSoftmaxFunction``), or empty."""
        functions: list[Any] = []
        if self.masks.isdisjoint(self._recording.flow.sources([tensor])) or self._way_back(tensor, functions) is None:
            return ""
        kinds = (_FUNCTION.sub("", type(each).__name__) for each in functions)
        return next((f"{kind}Function" for kind in kinds if WEIGHS.search(kind)), "")

    def new_step(self) -> None:
        self._made.clear()

    def made(self, node: str, tensors: Iterable[torch.Tensor]) -> None:
        """A node has run. The output of an inner node stays its own when an outer node returns it."""
        for tensor in tensors:
            if tensor.grad_fn is not None:
                self._made.setdefault(number_of(tensor.grad_fn), (node, version_of(tensor)))

    def usual(self, node: str, role: str, tensors: Sequence[torch.Tensor]) -> bool:
        """Tells whether the tensors of a node came to be as in a followed step; learns while a step is followed.

        Ask before the node counts as their maker. Arguments may be left out in some steps, which shifts others: a known
        maker counts at any place, an unknown one only at its place, or at a new place.
        """
        if self._recording.flow.following:
            self._learn(node, role, tensors)
            return True
        usual = True
        for at, tensor in enumerate(tensors):
            maker = self._maker(tensor)
            here = self._usual.get((node, role, at))
            if here is None or maker not in here:
                usual &= self._is_elsewhere(node, role, tensor, maker if maker or here is None else _NOBODY)
        return usual

    def usual_loss(self, node: str, loss: torch.Tensor) -> bool:
        """Like ``usual``: the node of a loss stands for all functions that compute it, which may differ between steps.

        It is made of the same as before if these functions read the same nodes. Their other operands are kept by
        autograd.
        """
        usual = self.usual(node, "computed", [loss])
        if usual and not self._recording.flow.following:
            return True
        functions: list[Any] = []
        maker = self._way_back(loss, functions)
        if maker is None:
            return usual
        nodes = {each for each in maker if isinstance(each, tuple)} if functions else {maker}
        if self._recording.flow.following:
            self._nodes.setdefault(node, set()).update(nodes)
        elif nodes <= self._nodes.get(node, set()):
            usual = all(map(_reads_nothing_bad, functions))
        return usual

    def read(self, loss: torch.Tensor) -> Iterator[tuple[list[str], torch.Tensor]]:
        """What the functions of a loss read besides computed tensors, such as labels: (sources, values).

        Autograd keeps what derivatives need; other operands may show in a result that the next function keeps.
        """
        functions: list[Any] = []
        if self._way_back(loss, functions) is None or len(functions) > MOST_READ:
            return
        made: dict[int, torch.Tensor] = {}
        hiding: list[int] = []
        for function in functions:
            kept = _kept_by(function)
            for each in (each for some in (kept or {}).values() for each in some if _may_be_operand(each)):
                if not each.requires_grad:
                    yield [self._known(each) or UNKNOWN], each
                elif each.grad_fn is not None:
                    made[number_of(each.grad_fn)] = each
            if kept is None or not _shows_operands(function, kept):
                hiding.append(number_of(function))
        yield from (([UNKNOWN], made[number]) for number in hiding if number in made)
        yield [UNKNOWN], _NOWHERE  # there may be more operands: never report all as clean

    # -- inside --------------------------------------------------------------------------------------

    def _learn(self, node: str, role: str, tensors: Sequence[torch.Tensor]) -> None:
        anywhere = self._anywhere.setdefault((node, role), set())
        for at, tensor in enumerate(tensors):
            maker = self._maker(tensor)
            self._usual.setdefault((node, role, at), set()).add(maker)
            if has_fractions(tensor):
                anywhere.add(maker)

    def _is_elsewhere(self, node: str, role: str, tensor: torch.Tensor, maker: Hashable) -> bool:
        """Tells whether a tensor came to be as one at another place; True for any node that was never followed."""
        anywhere = self._anywhere.get((node, role))
        return anywhere is None or maker in anywhere or not has_fractions(tensor)

    def _maker(self, tensor: torch.Tensor) -> Hashable:
        """The node that made a tensor, or the functions and nodes it was computed by; None: unknown."""
        known = self._known(tensor)
        if known:
            return known, tensor.output_nr
        if tensor.grad_fn is not None:
            made: Hashable = self._way_back(tensor)
            return made
        base = base_of(tensor)
        known = "" if base is None else self._known(base)
        return (known, 0) if known else None

    def _known(self, tensor: torch.Tensor) -> str:
        return self._recording.seen_as(tensor) or self._recording.flow.parameter(tensor)

    def _way_back(self, tensor: torch.Tensor, functions: list[Any] | None = None) -> Any:
        function: Any = tensor.grad_fn
        slot, copied = tensor.output_nr, False
        while (number := number_of(function)) not in self._made and type(function).__name__ in _MOVES:
            copied |= type(function).__name__ in _COPIES
            function, slot = function.next_functions[0]
            if function is None:
                return None
        if number in self._made:
            node, version = self._made[number]
            # If the program wrote to it since, without gradients, its maker is unknown.
            same = copied or version == version_of(tensor)
            return (node, slot) if same else (node, slot, _CHANGED)
        found: list[Hashable] = []
        numbers: dict[int, int] = {}
        pending: list[tuple[Any, int]] = [(function, slot)]
        while pending:
            each, slot = pending.pop()
            if each is None:
                found.append("")
            elif (kind := type(each).__name__) == _OF_LEAF:
                found.append((self._known(each.variable), 0))
            elif (number := number_of(each)) in self._made:
                found.append((self._made[number][0], slot))
            elif kind in _MOVES:
                pending.append(each.next_functions[0])
            elif number in numbers:
                found.append(numbers[number])
            else:
                numbers[number] = len(found)
                found.append(kind)
                if functions is not None:
                    functions.append(each)
                pending += each.next_functions
            if len(found) > MOST:
                return None
        return found[0] if len(found) == 1 and not numbers else tuple(found)


MOST_READ: Final = 64
"""The most functions of a loss whose operands are looked at."""
_NOWHERE: Final = torch.empty(0)
"""Stands for values that cannot be looked at."""
WEIGHS: Final = re.compile(r"softmax|attention|logsumexp", re.IGNORECASE)
"""Types of operators that expect masked values."""
_FUNCTION: Final = re.compile(r"Backward\d*$")
_NOBODY: Final = ""
_CHANGED: Final = "changed"


Kept = Mapping[str, Sequence[torch.Tensor]]
"""By name the tensors that a function of autograd keeps."""


def _reads_nothing_bad(function: Any) -> bool:
    """Tells whether a function of autograd is known to have read finite values besides computed tensors."""
    kept = _kept_by(function)
    if kept is None or not _shows_operands(function, kept):
        return False
    return all(bool(each.isfinite().all()) for some in kept.values() for each in some if not each.requires_grad)


def _may_be_operand(tensor: torch.Tensor) -> bool:
    """Tells whether a tensor is readable, and not a number of the program, which operators do not take for a tensor."""
    return has_fractions(tensor) and readable(tensor) and (tensor.dim() > 0 or tensor.requires_grad)


def _shows_operands(function: Any, kept: Kept) -> bool:
    """Tells whether a function keeps all its operands without gradients, as known for functions of two operands."""
    read = [each for each, _ in function.next_functions]
    operands = (each for name in _OPERANDS for each in kept.get(name, ()) if not each.requires_grad)
    return None not in read or (len(read) == 2 and len(list(operands)) == 1)


def _kept_by(function: Any) -> Kept | None:
    """The tensors that a function keeps; None if unknown: freed, written to since, or kept by hooks of the program."""
    if isinstance(function, torch.autograd.function.BackwardCFunction):
        return None  # a function of the program may read anything
    kept: dict[str, list[torch.Tensor]] = {}
    try:
        for attribute in dir(function):
            name = attribute.removeprefix(_KEPT)
            if name == attribute:
                continue
            given = getattr(function, attribute)
            for each in given if isinstance(given, tuple | list) else (given,):
                if each is not None and getattr(each, "unpack_hook", function) is not None:
                    return None  # hooks of the program would run again
            kept[name] = leaves(getattr(function, f"_saved_{name}"))
    except RuntimeError:
        return None
    return kept


_KEPT: Final = "_raw_saved_"
_OPERANDS: Final = ("self", "other", "mat2", "exponent", "target")
"""PyTorch's names of the operands of functions of two."""
