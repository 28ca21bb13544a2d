"""The inputs of every tensor of a step, followed from operator to operator, below autograd.

While a step is *followed*, every operator hands the sources of its arguments on to its outputs; the outputs of a node
(a module, a recorded operator, a gradient) have only this node as source. So the inputs of a node are exactly the
sources of its outputs, with gradients or without.

A tensor is known by its memory: its storage, which is held weakly, and its place in there. That outlives the Python
objects of one tensor: autograd makes new ones for saved tensors and views.
"""

from __future__ import annotations

import math
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch

from tui_debugger.torch import internals
from tui_debugger.torch.internals import leaves
from tui_debugger.torch.structure import UNKNOWN, kind_of, unique

MOST: Final = 64
"""The most sources of one tensor. A tensor with more (a norm of all gradients) gets one unknown source."""
MOVES: Final = frozenset(
    {
        *("Alias", "AsStrided", "BroadcastTo", "Cat", "Chunk", "Clone", "Contiguous", "Copy", "Detach", "Diagonal"),
        *("Embedding", "Expand", "ExpandAs", "Fill", "Flatten", "Flip", "Gather", "Index", "IndexFill", "IndexPut"),
        *("IndexSelect", "Lift", "LiftFresh", "MaskedFill", "MaskedScatter", "MaskedSelect", "Movedim", "Narrow"),
        *("NewZeros", "Permute", "Repeat", "RepeatInterleave", "Reshape", "ReshapeAlias", "Roll", "Scatter", "Select"),
        *("SelectScatter", "Slice", "SliceScatter", "Split", "SplitWithSizes", "Squeeze", "Stack", "T", "Take"),
        *("TakeAlongDim", "Tile", "Transpose", "Tril", "Triu", "Unbind", "Unflatten", "Unfold", "UnsafeView"),
        *("Unsqueeze", "View", "ViewAs", "ViewAsComplex", "ViewAsReal", "Where", "Zero", "Zeros", "ZerosLike"),
        *("OnesLike", "EmptyLike", "NewEmpty", "NewEmptyStrided", "Relu", "Neg", "Abs"),
    }
)
"""Kinds of operators that never make NaN or Inf from finite values."""
_WRITES_NUMBERS: Final = frozenset(
    {
        "ConstantPadNd",
        "Fill",
        "FillDiagonal",
        "Full",
        "FullLike",
        "IndexFill",
        "MaskedFill",
        "NewFull",
        "Scatter",
        "Where",
    }
)
"""Kinds of operators that set some elements to a number of the program."""
_KEEPS_LOW: Final = (MOVES - {"Relu", "Neg", "Abs", "Zero", "Zeros", "ZerosLike", "OnesLike", "NewZeros"}) | {
    *("Add", "Sub", "Mul", "Div", "ToCopy"),
}
"""Kinds of operators that keep an element of -Inf: they add it to others, or scale it."""
_LOGARITHMS: Final = frozenset({"Log", "Log2", "Log10"})
_LOW: Final = -65504.0
"""The lowest number of the smallest type: lower numbers may become -Inf."""
OVERWRITES: Final = frozenset({"Copy", "Fill", "Zero"})
"""Kinds of operators that leave nothing of a tensor's earlier values."""
ALLOCATES: Final = frozenset({"Empty", "EmptyLike", "EmptyStrided", "EmptyPermuted", "NewEmpty", "NewEmptyStrided"})
"""Kinds of operators that return uninitialized memory."""
_AS_FOUND: Final = "\0found"
"""The source of uninitialized memory: something else than an operator may have written there."""
_SEED: Final = "\0seed"
"""The source of the gradient of a loss by itself; the name of the loss's node follows if known."""


@dataclass(frozen=True, slots=True)
class TensorInputs:
    """The origin of a tensor."""

    sources: tuple[str, ...] = ()  # outputs of nodes, parameters and inputs that it was made of; ``UNKNOWN``: others
    work: str = ""  # kind of the operator that computed it; of several the last, as ``LogFunction``; empty: moved only
    own: bool = False  # it is itself the output of a node
    masked: bool = False  # the program set elements so low that a softmax gives them no weight
    truth: bool = False  # its 1 and 0 stand for True and False: the logarithm of these is a mask


def _together(last: str, before: Sequence[str]) -> str:
    """The type of the work of several operators, which differs from each operator's; of one its own."""
    return f"{last.removesuffix(_SEVERAL)}{_SEVERAL}" if before else last


_SEVERAL: Final = "Function"
_NOBODY: Final = TensorInputs((UNKNOWN,))
_CONSTANT: Final = TensorInputs()
PlaceInMemory = tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype]
"""Offset, shape, strides and element type: where in its storage a tensor lies."""


@dataclass(slots=True, eq=False)
class _StorageView:
    place: PlaceInMemory
    tensor: weakref.ref[torch.Tensor]
    version: int
    made: TensorInputs


@dataclass(slots=True, eq=False)
class _Storage:
    """A storage: the reference keeps its address from being reused, not its memory."""

    reference: Any
    views: list[_StorageView] = field(default_factory=list)


class StepSources:
    """The sources of the tensors of this step."""

    def __init__(self, *, doubts_found: bool = True, touch: Callable[[Iterable[str]], None] = lambda _: None) -> None:
        """``doubts_found``: uninitialized memory has an unknown source.

        ``touch`` is called with the names of outputs and weights that the program writes to.
        """
        self._touch = touch
        self.updating = False  # an optimizer runs: it is to write to weights
        self._doubts_found = doubts_found
        self.changed: set[str] = set()  # weights and buffers that operators changed
        self.following = True  # the step is followed
        self.seeing = True  # operators are seen; else only the very outputs of nodes are known
        self._storages: dict[int, _Storage] = {}
        self._mixed: set[int] = set()
        """Storages that got values of additional sources outside of backward passes."""
        self._written: set[int] = set()
        """Storages to which the program, and no optimizer, wrote outside of backward passes."""
        self._others: dict[int, tuple[weakref.ref[torch.Tensor], TensorInputs]] = {}
        self._parameters: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}
        self._in_storage: dict[int, str] | None = None
        self._process = os.getpid()

    def clear(self) -> None:
        self._storages.clear()
        self._mixed.clear()
        self._written.clear()
        self._others.clear()
        self._in_storage = None

    def know_parameters(self, parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Weights and buffers are their own sources. Each has the first name that it is given."""
        self._parameters.clear()
        self._in_storage = None
        for name, tensor in parameters:
            self.know_parameter(name, tensor)

    def know_parameter(self, name: str, tensor: torch.Tensor) -> None:
        known = self._parameters.get(id(tensor))
        if known is None or known[0]() is not tensor:
            self._parameters[id(tensor)] = weakref.ref(tensor), name

    # -- nodes ---------------------------------------------------------------------------------------

    def made(self, tensor: torch.Tensor, output: str) -> None:
        """A node made a tensor. The output of an inner node stays its own when an outer node returns it."""
        known = self._find(tensor)
        if known is None or not known.own:
            self._set(tensor, TensorInputs((output,), own=True, masked=known is not None and known.masked), anew=True)

    def replaced(self, tensor: torch.Tensor, output: str) -> None:
        """A node changed a tensor in place: it is the output of this node from now on, and a source of its views."""
        self._change(tensor, TensorInputs((output,), own=True), overwritten=False)

    def recomputed(self, tensor: torch.Tensor, output: str) -> None:
        known = self._find(tensor)
        if known is None or not known.own:
            self._set(tensor, TensorInputs((output,), own=bool(output)), anew=True)

    def doubt(self, tensor: torch.Tensor) -> None:
        """Adds an unknown source to a tensor."""
        made = self.of(tensor)
        self._set(tensor, TensorInputs(tuple(unique([*made.sources, UNKNOWN])), masked=made.masked), anew=True)

    def overwrite(self, memory: Iterable[int]) -> None:
        """Some storages (see ``internals.storage_of``) have new values of unknown origin."""
        for address in memory:
            self._storages.pop(address, None)

    def lost(self, tensor: torch.Tensor) -> None:
        """A tensor was made that cannot be looked at: its content is unknown."""
        self._set(tensor, _NOBODY, anew=True)

    def parameter(self, tensor: torch.Tensor) -> str:
        known = self._parameters.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else ""

    def held_in(self, tensor: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
        plain = internals.part_of(tensor)
        address = internals.storage_of(plain)
        if address is None or self._parameter_at(address) is None:
            return []
        start, end = range_of(place_of(plain))
        found = []
        for reference, name in self._parameters.values():
            held = reference()
            part = None if held is None else internals.part_of(held)
            if held is not None and part is not None and internals.storage_of(part) == address:
                first, last = range_of(place_of(part))
                if first < end and start < last:
                    found.append((name, held))
        return found

    def shows_bytes(self, tensors: Iterable[torch.Tensor]) -> bool:
        """Tells whether a tensor shows the bytes of a weight or buffer, as copies of a model read them."""
        whole = (each for each in tensors if not has_fractions(each))
        return any(has_fractions(held) for each in whole for _, held in self.held_in(each))

    def of(self, tensor: torch.Tensor) -> TensorInputs:
        """The origin of a tensor. An unknown tensor without fractions counts as constant: it cannot hold NaN or Inf."""
        known = self._find(tensor)
        if known is not None:
            return known
        return _NOBODY if has_fractions(tensor) else _CONSTANT

    def itself(self, tensor: torch.Tensor) -> str:
        """The output, weight or input that a tensor is, or shows completely in the same shape; else empty."""
        made = self.of(tensor)
        if made.work or len(made.sources) != 1 or not made.sources[0] or made.sources[0].startswith("\0"):
            return ""
        if made.own:
            return made.sources[0]
        plain = internals.part_of(tensor)
        address = internals.storage_of(plain)
        if address is None:
            return ""
        place = place_of(plain)
        for reference, name in self._parameters.values():
            held = reference() if name == made.sources[0] else None
            if held is not None and place_of(internals.part_of(held)) == place:
                return name
        return ""

    def written(self, tensor: torch.Tensor) -> bool:
        return internals.storage_of(internals.part_of(tensor)) in self._written

    def mixed(self, tensor: torch.Tensor) -> bool:
        """Tells whether the program added sources to a tensor, as clipping mixes all gradients into each."""
        return internals.storage_of(internals.part_of(tensor)) in self._mixed

    def has_maker(self, tensor: torch.Tensor) -> bool:
        return any(each != UNKNOWN and not each.startswith(_SEED) for each in self.of(tensor).sources)

    def sources(self, tensors: Iterable[torch.Tensor]) -> list[str]:
        """The sources of tensors, in order, without the gradients that a backward pass was given."""
        found = unique(each for tensor in tensors for each in self.of(tensor).sources if not each.startswith(_SEED))
        return [UNKNOWN if each == _AS_FOUND else each for each in found]

    def began_backward(self, seed: torch.Tensor, loss: str) -> None:
        """A backward pass of a loss begins; ``seed`` is the gradient of the loss, which the program may have made."""
        if self.of(seed).sources == (_SEED,):
            self._set(seed, TensorInputs((_SEED + loss,)), anew=True)

    # -- operators -----------------------------------------------------------------------------------

    def ran(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if os.getpid() != self._process:
            return  # a forked process, such as a data loader's worker
        if self.lays(func, args):
            return
        name, kind = internals.name_of(func), kind_of(func)
        outputs = leaves(out) or (internals.received(func, args, out) if internals.ends_later(func) else [])
        written = written_by(func, args, kwargs)
        if "_foreach_" in name:
            self._each(kind, args, kwargs, outputs, written)
            return
        given = leaves(((*args[:3], *args[5:]) if _updates_statistics(func, args) else args, kwargs))
        if kind == "OnesLike" and _begins_backward():
            made = TensorInputs((_SEED,))
        elif internals.exchanges(func):  # the result also depends on other processes
            made = TensorInputs(tuple(unique([*self.sources(given), UNKNOWN])))
        elif kind in ALLOCATES and self._doubts_found and any(map(has_fractions, outputs)):
            made = TensorInputs((_AS_FOUND,))
        elif kind in OVERWRITES and written:
            made = self._union(kind, [each for each in given if all(each is not other for other in written)])
        else:
            made = self._union(kind, given)
            read = [each for each in given if all(each is not other for other in written)]
            if _AS_FOUND in made.sources and written and not any(_AS_FOUND in self.of(each).sources for each in read):
                made = replace(made, sources=tuple(each for each in made.sources if each != _AS_FOUND))
        if kind in _WRITES_NUMBERS and any(map(_is_low, (*args, *kwargs.values()))):
            made = replace(made, masked=True)
        elif kind == "LiftFresh" and len(outputs) == 1 and _is_low_tensor(outputs[0]):
            made = TensorInputs(masked=True)
        elif kind == "ToCopy" and given[0].dtype is torch.bool:
            made = replace(made, truth=True)
        self._hand_on(made, outputs, written, overwritten=kind in OVERWRITES)

    def lays(self, func: Any, args: Any) -> bool:
        """Tells whether an operator lays a tensor into other memory without writing; not for a weight or buffer."""
        return internals.name_of(func) == "aten::set_" and not any(map(self.parameter, leaves(args[:1])))

    def _each(
        self, kind: str, args: Any, kwargs: Any, outputs: Sequence[torch.Tensor], written: Sequence[torch.Tensor]
    ) -> None:
        """An operator on lists: each output is made of the tensors at its place, and of shared tensors."""
        lists = [list(each) for each in (*args, *kwargs.values()) if isinstance(each, list | tuple)]
        lists = [each for each in lists if each and isinstance(each[0], torch.Tensor)]
        shared = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)]
        count = len(lists[0]) if lists else 0
        rows = [each for each in lists if len(each) == count]
        shared += [tensor for each in lists if len(each) != count for tensor in each]
        for at in range(count):
            own = [each[at] for each in rows]
            overwrites = kind.endswith("Copy") and len(own) > 1
            made = self._union(kind, [*(own[1:] if overwrites else own), *shared])
            changed = [each for each in written if any(each is other for other in own)]
            made = _CONSTANT if kind.endswith("Zero") else made
            self._hand_on(made, outputs[at : at + 1], changed, overwritten=overwrites or kind.endswith("Zero"))
        rest = [each for each in written if all(each is not tensor for row in rows for tensor in row)]
        self._hand_on(self._union(kind, [*(each for row in rows for each in row), *shared]), (), rest)

    def _union(self, kind: str, tensors: Iterable[torch.Tensor]) -> TensorInputs:
        parts = [(self.of(each), has_fractions(each)) for each in tensors]
        sources = unique(each for part, _ in parts for each in part.sources)
        masked = kind in _KEEPS_LOW and any(part.masked for part, _ in parts[: 1 if kind in {"Sub", "Div"} else None])
        truth = any(part.truth for part, _ in parts[:1])
        masked |= truth and kind in _LOGARITHMS
        truth &= kind in MOVES or kind == "ToCopy"
        if not sources:
            return TensorInputs(masked=masked, truth=truth) if masked or truth else _CONSTANT
        # Computed indices do not make values bad.
        works = [part.work for part, fractions in parts if fractions and part.work]
        work = _together(kind, works) if kind not in MOVES or len(works) > 1 else "".join(works)
        if work:  # the loss itself was computed with: its node is the source, if known
            sources = [each.removeprefix(_SEED) for each in sources]
        if len(sources) > MOST:
            sources = unique([*sources[:MOST], UNKNOWN])
        return TensorInputs(tuple(unique(sources)), work, masked=masked, truth=truth)

    def _hand_on(
        self,
        made: TensorInputs,
        outputs: Iterable[torch.Tensor],
        written: Sequence[torch.Tensor],
        *,
        overwritten: bool = False,
    ) -> None:
        self.touch(written)
        for tensor in written:
            self._change(tensor, made, overwritten=overwritten)
        for tensor in outputs:
            if all(tensor is not each for each in written):
                self._set(tensor, made)

    def touch(self, written: Iterable[torch.Tensor]) -> None:
        """The program writes to tensors: recorded tensors in their memory have other values then."""
        if self.updating:
            return
        for tensor in written:
            plain = internals.part_of(tensor)
            address = internals.storage_of(plain)
            if address is not None and not internals.in_backward():
                self._written.add(address)
            found = {self.parameter(tensor)}
            if address is not None:
                found.add(self._parameter_at(address) or "")
                start, end = range_of(place_of(plain))
                for view in self._storages[address].views if address in self._storages else ():
                    first, last = range_of(view.place)
                    if view.made.own and first < end and start < last:
                        found.update(view.made.sources)
            if found := found - {""}:
                self._touch(found)

    # -- memory --------------------------------------------------------------------------------------

    def _find(self, tensor: torch.Tensor) -> TensorInputs | None:
        name = self.parameter(tensor)
        if name:
            return TensorInputs((name,), own=True)
        plain = internals.part_of(tensor)
        address = internals.storage_of(plain)
        if address is None:
            other = self._others.get(id(tensor))
            return other[1] if other is not None and other[0]() is tensor else None
        storage = self._storages.get(address)
        if storage is not None and storage.views:
            found = self._in(storage, tensor, place_of(plain))
            if found is not None:
                return found
        parameter = self._parameter_at(address)
        return TensorInputs((parameter,)) if parameter else None

    def _in(self, storage: _Storage, tensor: torch.Tensor, place: PlaceInMemory) -> TensorInputs | None:
        same = [view for view in storage.views if view.place == place]
        if not self.seeing:
            version = internals.version_of(tensor)
            same = [view for view in same if view.tensor() is tensor and view.version == version]
        for view in reversed(same):
            if view.tensor() is tensor:
                return view.made
        if same:
            return same[-1].made
        if not self.seeing:
            return None
        start, end = range_of(place)
        others = [view for view in storage.views if range_of(view.place)[0] < end and start < range_of(view.place)[1]]
        if not others:
            return None
        works = [view.made.work for view in others if view.made.work]
        work = _together(works[-1], works[:-1]) if works else ""
        sources = tuple(unique(each for view in others for each in view.made.sources))
        return TensorInputs(sources, work, masked=any(view.made.masked for view in others))

    def _set(self, tensor: torch.Tensor, made: TensorInputs, *, anew: bool = False) -> None:
        """Notes the origin of a tensor; ``anew``: also for others at the same place, with the same values."""
        plain = internals.part_of(tensor)
        address = internals.storage_of(plain)
        if address is None:
            self._others[id(tensor)] = weakref.ref(tensor), made
            return
        storage = self._storages.get(address)
        if storage is None:
            storage = self._storages[address] = _Storage(internals.hold_weakly(plain.untyped_storage()))
        place = place_of(plain)
        if not made.own and not made.work:  # a complete output, in its own shape
            itself = (view.made for view in storage.views if view.place == place and view.made.own)
            made = next((each for each in itself if each.sources == made.sources), made)
        storage.views = [
            view for view in storage.views if view.place != place or (not anew and view.tensor() is not None)
        ]
        if not anew and any(view.made == made for view in storage.views if view.place == place):
            return
        storage.views.append(_StorageView(place, weakref.ref(tensor), internals.version_of(tensor), made))

    def _change(self, tensor: torch.Tensor, made: TensorInputs, *, overwritten: bool) -> None:
        """A tensor was written to, and with it all views of the same memory."""
        if name := self.parameter(tensor):
            self.changed.add(name)
            return
        plain = internals.part_of(tensor)
        address = internals.storage_of(plain)
        storage = None if address is None else self._storages.get(address)
        if storage is not None and address is not None:
            if not made.own and not internals.in_backward():
                known = {each for view in storage.views for each in view.made.sources}
                if known and not known.issuperset(made.sources):
                    self._mixed.add(address)
            place = place_of(plain)
            start, end = range_of(place)
            for view in storage.views:
                first, last = range_of(view.place)
                if view.place == place or not (first < end and start < last):
                    continue
                if overwritten and start <= first and last <= end and is_dense(place):
                    view.made = made
                else:
                    sources = unique([*(each for each in view.made.sources if each != _AS_FOUND), *made.sources])
                    works = [each for each in (view.made.work, made.work) if each]
                    work = _together(works[-1], works[:-1]) if works else ""
                    view.made = TensorInputs(tuple(sources), work, masked=view.made.masked or made.masked)
        self._set(tensor, made, anew=True)

    def _parameter_at(self, address: int) -> str | None:
        """The parameter in a storage: empty if several lie there, None if there is none."""
        if self._in_storage is None:
            self._in_storage = {}
            for reference, name in self._parameters.values():
                tensor = reference()
                at = None if tensor is None else internals.storage_of(internals.part_of(tensor))
                if at is not None:
                    # Several in one storage: which of them a view looks into is not told.
                    self._in_storage[at] = name if at not in self._in_storage else ""
        return self._in_storage.get(address)


def written_by(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors that an operator writes to, including those missing in its schema."""
    if _updates_statistics(func, args):  # PyTorch does not say that it writes to them
        return leaves(args[3:5])
    return internals.written(func, args, kwargs)


def _updates_statistics(func: Any, args: Any) -> bool:
    """Tells whether an operator is a training batch norm: it changes its running statistics without reading them."""
    name = internals.name_of(func)
    return "batch_norm" in name and "backward" not in name and ("with_update" in name or args[5:6] == (True,))


def _is_low(value: Any) -> bool:
    return isinstance(value, float | int) and value <= _LOW


def _is_low_tensor(tensor: torch.Tensor) -> bool:
    """Tells whether a tensor in host memory is one very low number of the program."""
    return tensor.device.type == "cpu" and tensor.numel() == 1 and has_fractions(tensor) and _is_low(tensor.item())


def has_fractions(tensor: torch.Tensor) -> bool:
    """Tells whether a tensor can hold a NaN."""
    return tensor.is_floating_point() or tensor.is_complex()


def _begins_backward() -> bool:
    """Tells whether ``backward`` is just making the gradient of a loss by itself."""
    frame = sys._getframe(1)  # noqa: SLF001 - the only way to look at the callers
    for _ in range(8):
        if frame.f_code.co_name == "_make_grads":
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


def place_of(tensor: torch.Tensor) -> PlaceInMemory:
    return int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride(), tensor.dtype


def range_of(place: PlaceInMemory) -> tuple[int, int]:
    offset, shape, stride, dtype = place
    if 0 in shape:
        return 0, 0
    last = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) + 1
    return offset * dtype.itemsize, last * dtype.itemsize


def is_dense(place: PlaceInMemory) -> bool:
    start, end = range_of(place)
    return math.prod(place[1]) * place[3].itemsize == end - start
