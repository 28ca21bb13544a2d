"""Every call of an operator, for level "op".

Calls are seen below autograd and autocast, so forward, backward and casts are all there. An operator is named by the
running module, its own name, and the number of its call there; in the backward pass by the module of its forward
operator, below ``Gradients/``. Operators of an optimizer are not recorded, and neither is uninitialized memory, which
nothing computed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any, Final

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from tui_debugger.torch import internals
from tui_debugger.torch.arguments import call_of
from tui_debugger.torch.calls import Calls, Guard, Times, is_compiling, user_stack
from tui_debugger.torch.captures import CapturedOperand
from tui_debugger.torch.flow import PlaceInMemory, has_fractions, is_dense, place_of, range_of, written_by
from tui_debugger.torch.internals import CallHook, leaves
from tui_debugger.torch.operands import operands, read_and_written, read_tensors
from tui_debugger.torch.recording import Read, StepRecording, at_work
from tui_debugger.torch.structure import UNKNOWN, ModelTree, ModulePlace, kind_of, numbered, without_gradients

FORWARD_MARK: Final = "# Corresponding forward node candidate:\n"
REMEMBERED: Final = 200_000
"""Forward calls whose place is remembered for the backward pass."""
_WRITTEN_DOWN: Final = "LiftFresh"
"""The operator that makes a tensor of numbers of the program, without sources."""
_SCALER: Final = {"AmpForeachNonFiniteCheckAndUnscale", "AmpUpdateScale"}
"""The operators by which a GradScaler finds its scale."""
_ALLOCATING: Final = frozenset(
    {"Empty", "EmptyLike", "EmptyStrided", "NewEmpty", "NewEmptyStrided", "EmptyPermuted", "Resize", "ResizeAs"}
)
"""Return uninitialized memory: nothing computed NaN and Inf in there."""
_FILLS_IN_PART: Final = frozenset(
    {
        *("IndexPut", "IndexPutImpl", "IndexAdd", "IndexCopy", "IndexFill", "IndexReduce", "MaskedFill"),
        *("MaskedScatter", "Scatter", "ScatterAdd", "ScatterReduce", "Put", "FillDiagonal"),
        *("AsStrided", "Detach", "Squeeze", "Swapaxes", "Swapdims", "T", "Transpose", "Unsqueeze"),
    }
)
"""Kinds of operators that in place write to some elements of a tensor, or to none."""
_WITH_POLES: Final = frozenset(
    {
        *("Div", "Reciprocal", "Log", "Log2", "Log10", "Log1p", "Xlogy", "SpecialXlog1py", "Sqrt", "Rsqrt", "Pow"),
        *("FloatPower", "Exp", "Exp2", "Expm1", "LinalgVectorNorm", "Norm", "Std", "Var", "StdMean", "VarMean"),
        *("Softmax", "LogSoftmax", "Logsumexp", "Prod", "Acos", "Acosh", "Asin", "Atanh", "Tan", "Logit", "Erfinv"),
        *("SpecialErfinv", "Lgamma", "Digamma", "Fmod", "Remainder", "Sinh", "Cosh", "LinalgInvEx", "LinalgSolveEx"),
        *("LinalgCholeskyEx", "NativeLayerNorm", "NativeGroupNorm", "NativeBatchNorm", "FusedRmsNorm"),
    }
)
"""Kinds of operators that compute NaN or Inf from finite values at some places, as do their derivatives."""
_NO_NODES: Final = frozenset(_SCALER | _ALLOCATING)


Overwritten = list[tuple[torch.Tensor, CapturedOperand]]
"""Operands that an operator reads and overwrites, with their states from before."""


class Operators:
    """Sees every operator between ``install`` and ``remove``. Same interface as ``ModuleHooks``."""

    def __init__(self, recording: StepRecording, tree: ModelTree, guard: Guard) -> None:
        self._recording = recording
        self._tree = tree
        self._guard = guard
        self._handles: list[RemovableHandle] = []
        self._scopes: list[str] = []
        self._times = Times()
        self._times_bare = Times()
        self._forward: dict[int, tuple[str, str]] = {}
        self._described: dict[str, list[str]] = {}
        """By node the inputs with which its arguments were worked out last."""
        self._cloned = -1
        self._mode: internals.EveryOperator | None = None
        self._left: list[internals.EveryOperator] = []
        self._unfilled = Unfilled()
        self._thread = 0
        self._optimizing = False
        self._closure = False
        self._calls = Calls(recording, guard, self._began)

    @property
    def installed(self) -> bool:
        return self._mode is not None

    def install(self, tree: ModelTree) -> None:
        """Sees operators of this thread, and of the backward passes it starts, from now on."""
        if self.installed:
            return
        self._tree = tree
        for place in (*self._calls.place_of_root(tree), *tree.places):
            module, hooks = place.module, self._handles
            with self._calls.hooking(place):
                hooks.append(module.register_forward_pre_hook(CallHook(self._enter_module, place)))
                hooks.append(module.register_forward_pre_hook(self._calls.hook(place), with_kwargs=True, prepend=True))
                hooks.append(module.register_forward_hook(CallHook(self._leave_module, place), always_call=True))
        self._thread = get_ident()
        self._mode = internals.EveryOperator(self._seen, self._about_to_run)
        self._mode.enter()
        self._unfilled.watch()

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.new_step()
        self._unfilled.forget()
        mode, self._mode = self._mode, None
        if mode is not None:
            self._left.append(mode)
        self._leave()

    def new_step(self, *, ended: bool = False) -> None:
        self._leave()
        self._times.clear()
        self._forward.clear()
        self._scopes.clear()
        self._unfilled.new_step()
        self._calls.new_step(ended=ended)
        self._optimizing = False

    def optimizing(self, now: bool, *, closure: bool = False) -> None:
        """An optimizer begins or ends its step. ``closure``: the program's forward and backward pass run in it."""
        self._optimizing, self._closure = now, closure

    # -- hooks ---------------------------------------------------------------------------------------

    def _enter_module(self, place: ModulePlace, *_: Any) -> None:
        if get_ident() == self._thread or internals.in_backward():
            self._scopes.append(place.scope)
        elif not is_compiling():
            self._calls.elsewhere(place)

    def _leave_module(self, place: ModulePlace, module: nn.Module, *_: Any) -> None:
        if get_ident() != self._thread and not internals.in_backward():
            return
        if place.scope in self._scopes:
            while self._scopes.pop() != place.scope:
                pass
        self._calls.end(module)

    def _about_to_run(self, func: Any, args: Any, kwargs: Any) -> Overwritten:
        """Looks at the operands that an operator will overwrite: afterwards their state is lost."""
        found: Overwritten = []
        if self._recording.paused or at_work() or not self.installed or self._is_optimizers():
            return found

        def look() -> None:
            by_a_node = internals.returns_something(func)
            for tensor in read_and_written(func, kind_of(func), args, kwargs):
                operand = self._recording.read_and_written(tensor, by_a_node=by_a_node)
                if operand is not None:
                    found.append((tensor, operand))

        self._guard(look)
        return found

    def _seen(self, func: Any, args: Any, kwargs: Any, out: Any, overwritten: Overwritten | None = None) -> None:
        if self._recording.paused or at_work() or not self.installed:
            return
        recorded = not self._is_optimizers()
        self._guard(lambda: self._ran(func, args, kwargs, out, overwritten or [], recorded=recorded))

    def _is_optimizers(self) -> bool:
        """Tells whether the running operators belong to an optimizer, and not to the program that it calls."""
        return self._optimizing and not (self._closure and (torch.is_grad_enabled() or internals.in_backward()))

    def _leave(self) -> None:
        """Leaves old modes. A mode that cannot be left now does nothing until it can."""
        self._left = [mode for mode in self._left if not mode.leave()]

    # -- inside --------------------------------------------------------------------------------------

    def _began(self, of_the_root: bool) -> None:
        self._scopes.clear()
        if self._calls.no_grad:
            self._times_bare.clear()
        else:
            self._recording.end_pass()
            if of_the_root:
                self._recording.begin_call()
                self._times.begin_call()

    def _ran(self, func: Any, args: Any, kwargs: Any, out: Any, overwritten: Overwritten, *, recorded: bool) -> None:
        kind, later = kind_of(func), internals.ends_later(func)
        tensors = internals.received(func, args, out) if later else leaves(out)
        for each in self._unfilled.read_by(func, kind, args, kwargs):
            self._recording.flow.doubt(each)
        nobodys = self._unfilled.ran(func, kind, args, kwargs, tensors)
        if not recorded or self._recording.flow.lays(func, args):
            return
        backward, grads = internals.in_backward(), torch.is_grad_enabled()
        again = backward and (grads or self._scopes)  # recomputed for a checkpoint, under the same names
        own = internals.saves_for_itself(func, args)
        looks = self._recording.flow.shows_bytes([*tensors, *leaves((args, kwargs))])
        if again or own or nobodys or looks or not tensors or kind in _NO_NODES:
            if self._recording.flow.following:
                self._recording.flow.ran(func, args, kwargs, out)
            if not (again or own or tensors):  # an operator on lists that returns nothing
                with self._recording.at_work():
                    self._recording.wrote(UNKNOWN, written_by(func, args, kwargs))
            return
        written = written_by(func, args, kwargs)
        no_grad = not backward and (not grads if self._calls.outer is None else self._calls.no_grad)
        if no_grad and self._recording.passes.now is None:
            self._recording.begin_pass()
            self._times_bare.clear()
        scope, forward = self._scope(backward)
        name = f"{scope}/{kind}" if scope else kind
        name = numbered(name, (self._times_bare if no_grad else self._times).count(name))
        if no_grad:
            name = without_gradients(name)
        elif not backward:
            self._remember(scope, name, kind, in_place=any(each.requires_grad for each in written))
        with self._recording.at_work():
            if later:
                if internals.changes_its_arguments(func):
                    self._recording.flow.touch(tensors)  # their earlier values came from other nodes
                self._recording.began(name, kind, tensors, lambda: self._sources(func, kind, args, kwargs, forward))
                return
            self._recording.flow.touch(written)
            self._recording.made(
                name,
                kind,
                tensors,
                lambda: self._described_sources(name, func, kind, (args, kwargs), forward),
                lambda: self._stack(forward),
                mutated={id(each) for each in written},
                no_grad=no_grad,
                counters=internals.counters(func, args, kwargs, tensors),
                reads=lambda: self._read(func, kind, args, kwargs, overwritten),
            )
            self._recording.wrote(name, written)

    def _read(self, func: Any, kind: str, args: Any, kwargs: Any, overwritten: Overwritten) -> Iterator[Read]:
        """The operands of an operator that may be bad: overwritten ones as looked at before, others as they are."""
        yield from (operand for _, operand in overwritten)
        gone = {id(each) for each, _ in overwritten}
        for tensor in read_tensors(func, kind, args, kwargs):
            if has_fractions(tensor) and id(tensor) not in gone:
                yield self._recording.flow.sources([tensor]) or [UNKNOWN], tensor

    def _scope(self, backward: bool) -> tuple[str, str]:
        if not backward:
            return (self._scopes[-1] if self._scopes else ""), ""
        scope, name = self._forward.get(internals.backward_function(), ("", ""))
        return (f"Gradients/{scope}" if scope else "Gradients"), name

    def _stack(self, forward: str) -> str:
        known = self._recording.structure.nodes.get(forward)
        return FORWARD_MARK + known.source if known is not None and known.source else user_stack()

    def _remember(self, scope: str, name: str, kind: str, *, in_place: bool) -> None:
        """Notes the number of the autograd function of this call, which leads back here from the backward pass.

        Without gradient there is no new function: the last one belongs to an earlier call. Before an operator in place
        overwrites values that its derivative needs, autograd clones them: then the last function is that of the clone.
        """
        number = internals.last_function()
        if in_place and self._cloned == number:
            number -= 1
        if len(self._forward) < REMEMBERED:
            self._forward.setdefault(number, (scope, name))
        self._cloned = number if kind == "Clone" else -1

    def _described_sources(self, name: str, func: Any, kind: str, given: tuple[Any, Any], forward: str) -> list[str]:
        found = self._sources(func, kind, *given, forward)
        if self._described.get(name) != found:
            self._described[name] = found
            call = call_of(self._recording.flow, func, *given, _reads(func, kind, *given))
            self._recording.structure.add_call(name, call)
        return found

    def _sources(self, func: Any, kind: str, args: Any, kwargs: Any, forward: str) -> list[str]:
        """The inputs of an operator; in the backward pass also the differentiated operator if it has poles."""
        flow = self._recording.flow
        if kind == _WRITTEN_DOWN and not any(flow.has_maker(each) for each in leaves(args)):
            return []
        found = operands(flow, func, kind, args, kwargs)
        made = self._recording.structure.nodes.get(forward)
        # Where a function has a pole, so has its derivative: the fault lies with the function.
        return [*found, forward] if made is not None and made.kind in _WITH_POLES else found


def _reads(func: Any, kind: str, args: Any, kwargs: Any) -> Callable[[torch.Tensor], bool]:
    """Returns a predicate for the tensors that an operator reads, without running statistics in training."""
    statistics = written_by(func, args, kwargs) if "BatchNorm" in kind else ()
    read = {id(each) for each in read_tensors(func, kind, args, kwargs)} - {id(each) for each in statistics}
    return lambda tensor: id(tensor) in read


# -- memory that nobody has filled ----------------------------------------------------------------------------------

_Bytes = tuple[int, int]
"""First byte, and the one after the last, in a storage."""


@dataclass(slots=True, eq=False)
class _UncomputedStorage:
    """A storage with values that nothing computed."""

    reference: Any  # keeps its address from being reused, not its memory
    holes: list[_Bytes] = field(default_factory=list)  # bytes that no operator was seen to fill
    filled: set[PlaceInMemory] = field(default_factory=set)  # filled places that lie across holes
    arriving: list[list[_Bytes]] = field(default_factory=list)  # targets of each unfinished collective operation


class Unfilled:
    """Memory that was allocated and not written to yet, or that a collective operation still writes to.

    It counts as filled when an operator has written to all of it, or has read it other than through a view. No NaN or
    Inf is missed: it shows in the tensors made from such memory.
    """

    def __init__(self) -> None:
        self._memories: dict[int, _UncomputedStorage] = {}

    def watch(self) -> None:
        """Listens to storages that the program resizes (as FSDP does), which no operator shows."""
        if self._resized not in _listeners:
            _listeners.append(self._resized)
        if not hasattr(_storages.resize_, _WRAPPED):
            _storages.resize_ = _reporting(_storages.resize_)

    def forget(self) -> None:
        """Forgets all memory and stops listening; the last listener restores the storage class."""
        self._memories.clear()
        if self._resized in _listeners:
            _listeners.remove(self._resized)
        if not _listeners and hasattr(_storages.resize_, _WRAPPED):
            _storages.resize_ = getattr(_storages.resize_, _WRAPPED)

    def new_step(self) -> None:
        for address in [address for address, each in self._memories.items() if each.reference.expired()]:
            del self._memories[address]

    def ran(self, func: Any, kind: str, args: Any, kwargs: Any, tensors: Sequence[torch.Tensor]) -> bool:
        """Notes that an operator ran; tells whether an output in ``tensors`` holds values that nothing computed."""
        if kind in _ALLOCATING:
            for tensor in map(internals.part_of, tensors):
                if internals.storage_of(tensor) is not None:
                    self._resized(tensor.untyped_storage(), 0)
            return True
        if internals.ends_later(func):
            self._began(tensors)
            return False
        if not self._memories:
            return False
        given = leaves((args, kwargs))
        if not any(_address(each) in self._memories for each in given):
            return False
        self._filled(func, kind, given, internals.written(func, args, kwargs), tensors)
        return any(self._in(each) for each in tensors)

    def read_by(self, func: Any, kind: str, args: Any, kwargs: Any) -> list[torch.Tensor]:
        """The tensors that an operator reads although not all of their memory was seen to be filled."""
        if not self._memories or kind in _ALLOCATING:
            return []
        found = [each for each in read_tensors(func, kind, args, kwargs) if self._has_hole(each)]
        return [] if internals.views_argument(func) else found

    # -- inside --------------------------------------------------------------------------------------

    def _resized(self, storage: torch.UntypedStorage, before: int) -> None:
        """A storage has new memory, in which the first ``before`` bytes are unchanged."""
        address, size = internals.address_of(storage), storage.nbytes()
        memory = self._memories.get(address)
        if memory is None:
            memory = self._memories[address] = _UncomputedStorage(internals.hold_weakly(storage))
        memory.holes = _without(memory.holes, min(before, size), sys.maxsize)
        memory.holes += [(before, size)] if before < size else []
        if not before:
            memory.filled.clear()
        if not size:
            memory.arriving.clear()
        self._tidy(address, memory)

    def _began(self, tensors: Iterable[torch.Tensor]) -> None:
        begun: dict[int, list[_Bytes]] = {}
        for tensor in map(internals.part_of, tensors):
            address = internals.storage_of(tensor)
            if address is not None:
                if address not in self._memories:
                    self._memories[address] = _UncomputedStorage(internals.hold_weakly(tensor.untyped_storage()))
                begun.setdefault(address, []).append(range_of(place_of(tensor)))
        for address, ranges in begun.items():
            self._memories[address].arriving.append(ranges)

    def _filled(
        self,
        func: Any,
        kind: str,
        given: Sequence[torch.Tensor],
        written: Sequence[torch.Tensor],
        tensors: Sequence[torch.Tensor],
    ) -> None:
        name = internals.name_of(func)
        waited = name.endswith("::wait_tensor")
        in_part = kind in _FILLS_IN_PART and name.endswith("_")
        looked_into = {_address(each) for each in tensors}
        for tensor in given:
            if any(tensor is each for each in written):
                fills = not in_part
            else:
                fills = waited or _address(tensor) not in looked_into
            if fills:
                self._fill(tensor)
        for tensor in tensors:
            if internals.is_exchanged(tensor):  # looking at it waits for it
                self._fill(tensor)

    def _in(self, tensor: torch.Tensor) -> bool:
        plain = internals.part_of(tensor)
        memory = self._memories.get(internals.storage_of(plain) or 0)
        if memory is None:
            return False
        place = place_of(plain)
        if any(_overlap(range_of(place), each) for ranges in memory.arriving for each in ranges):
            return True
        return place not in memory.filled and any(_overlap(range_of(place), each) for each in memory.holes)

    def _has_hole(self, tensor: torch.Tensor) -> bool:
        memory = self._memories.get(_address(tensor) or 0)
        if memory is None or not memory.holes:
            return False
        place = place_of(internals.part_of(tensor))
        return place not in memory.filled and any(_overlap(range_of(place), each) for each in memory.holes)

    def _fill(self, tensor: torch.Tensor) -> None:
        plain = internals.part_of(tensor)
        address = internals.storage_of(plain) or 0
        memory = self._memories.get(address)
        if memory is None:
            return
        place = place_of(plain)
        found = range_of(place)
        over = [ranges for ranges in memory.arriving if any(_overlap(found, each) for each in ranges)]
        memory.arriving = [ranges for ranges in memory.arriving if ranges not in over]
        if not is_dense(place):
            memory.filled.add(place)
        for start, end in [*([found] if is_dense(place) else []), *(each for ranges in over for each in ranges)]:
            memory.holes = _without(memory.holes, start, end)
        self._tidy(address, memory)

    def _tidy(self, address: int, memory: _UncomputedStorage) -> None:
        if not memory.holes and not memory.arriving:
            del self._memories[address]


def _address(tensor: torch.Tensor) -> int | None:
    return internals.storage_of(tensor if type(tensor) is torch.Tensor else internals.part_of(tensor))


def _overlap(one: _Bytes, other: _Bytes) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _without(holes: Iterable[_Bytes], start: int, end: int) -> list[_Bytes]:
    parts = (part for first, last in holes for part in ((first, min(last, start)), (max(first, end), last)))
    return [(first, last) for first, last in parts if first < last]


_storages: Any = torch.UntypedStorage
_listeners: Final[list[Callable[[torch.UntypedStorage, int], None]]] = []
_WRAPPED: Final = "_tdbg_wrapped"


def _reporting(original: Any) -> Any:
    """``UntypedStorage.resize_``, which then reports the storage, and its earlier size."""

    def resize_(storage: torch.UntypedStorage, size: int) -> Any:
        before = storage.nbytes()
        returned = original(storage, size)
        for tell in tuple(_listeners):
            tell(storage, before)
        return returned

    setattr(resize_, _WRAPPED, original)
    return resize_
