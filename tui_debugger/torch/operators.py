"""Every call of an operator: what level "op" sees.

The calls are seen below autograd and autocast, so forward, backward and casts are all there. An operator is named by
the module that runs, its own name, and the number of its call there; in the backward pass by the module whose forward
operator it belongs to, below ``Gradients/``. What an optimizer does is not recorded.
"""

from __future__ import annotations

from collections import Counter
from threading import get_ident
from typing import Any, Final

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from tui_debugger.torch import internals
from tui_debugger.torch.calls import Calls, Guard, is_compiling
from tui_debugger.torch.frames import user_stack
from tui_debugger.torch.hook import Hook
from tui_debugger.torch.leaves import leaves
from tui_debugger.torch.naming import Place, Tree, kind_of, numbered, without_gradients
from tui_debugger.torch.recording import Recording

FORWARD_MARK: Final = "# Corresponding forward node candidate:\n"
REMEMBERED: Final = 200_000
"""Forward calls whose place is remembered for the backward pass."""
_WRITTEN_DOWN: Final = "LiftFresh"
"""What makes a tensor of numbers of the program: no operator made them."""
_SCALER: Final = {"AmpForeachNonFiniteCheckAndUnscale", "AmpUpdateScale"}
"""What a GradScaler does to find its scale."""
_ALLOCATING: Final = {"Empty", "EmptyLike", "EmptyStrided", "NewEmpty", "NewEmptyStrided", "EmptyPermuted"}
"""Returns memory as it finds it: NaN and Inf in there are nobody's."""
_NO_NODES: Final = frozenset(_SCALER | _ALLOCATING)


class Operators:
    """Sees every operator between ``install`` and ``remove``. Same interface as ``ModuleHooks``.

    What runs without gradients outside of any module (the loss of an evaluation) belongs to the pass without gradients
    before it, or is one of its own.
    """

    def __init__(self, recording: Recording, tree: Tree, guard: Guard) -> None:
        """Installs nothing yet."""
        self._recording = recording
        self._tree = tree
        self._guard = guard
        self._handles: list[RemovableHandle] = []
        self._scopes: list[str] = []
        self._times: Counter[str] = Counter()
        self._times_bare: Counter[str] = Counter()
        self._forward: dict[int, tuple[str, str]] = {}
        self._mode: internals.EveryOperator | None = None
        self._left: list[internals.EveryOperator] = []
        self._thread = 0
        self._optimizing = False
        self._closure = False
        self._calls = Calls(recording, tree, guard, self._began)

    @property
    def installed(self) -> bool:
        """Whether operators are seen."""
        return self._mode is not None

    def install(self, tree: Tree) -> None:
        """Sees operators of this thread, and of the backward passes it starts, from now on."""
        if self.installed:
            return
        self._tree = tree
        for place in (*self._calls.place_of_root(tree), *tree.places):
            module, hooks = place.module, self._handles
            with self._calls.hooking(place):
                hooks.append(module.register_forward_pre_hook(Hook(self._enter_module, place)))
                hooks.append(module.register_forward_pre_hook(self._calls.hook(place), with_kwargs=True, prepend=True))
                hooks.append(module.register_forward_hook(Hook(self._leave_module, place), always_call=True))
        self._thread = get_ident()
        self._mode = internals.EveryOperator(self._seen)
        self._mode.enter()

    def remove(self) -> None:
        """Sees nothing any more."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.new_step()
        mode, self._mode = self._mode, None
        if mode is not None:
            self._left.append(mode)
        self._leave()

    def new_step(self, *, ended: bool = False) -> None:
        """A step is over."""
        self._leave()
        self._times.clear()
        self._forward.clear()
        self._scopes.clear()
        self._calls.new_step(ended=ended)
        self._optimizing = False

    def optimizing(self, now: bool, *, closure: bool = False) -> None:
        """An optimizer begins or ends its step. ``closure``: the program's forward and backward pass run in it."""
        self._optimizing, self._closure = now, closure

    # -- hooks ---------------------------------------------------------------------------------------

    def _enter_module(self, place: Place, *_: Any) -> None:
        if get_ident() == self._thread or internals.in_backward():
            self._scopes.append(place.scope)
        elif not is_compiling():
            self._calls.elsewhere(place)

    def _leave_module(self, place: Place, module: nn.Module, *_: Any) -> None:
        if get_ident() != self._thread and not internals.in_backward():
            return
        if place.scope in self._scopes:
            while self._scopes.pop() != place.scope:
                pass
        self._calls.end(module)

    def _seen(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if self._recording.paused or not self.installed:
            return
        if self._optimizing and not (self._closure and (torch.is_grad_enabled() or internals.in_backward())):
            return
        self._guard(lambda: self._ran(func, args, kwargs, out))

    def _leave(self) -> None:
        """Takes away what is there for nothing any more. What cannot be left now does nothing until it can."""
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
                self._times.clear()

    def _ran(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        backward, grads = internals.in_backward(), torch.is_grad_enabled()
        again = backward and (grads or self._scopes)  # for a checkpoint: it ran before under the same names
        own = internals.saves_for_itself(func, args)
        if again or own or not (tensors := leaves(out)) or (kind := kind_of(func)) in _NO_NODES:
            if self._recording.flow.following:
                self._recording.flow.ran(func, args, kwargs, out)
            return
        no_grad = not backward and (not grads if self._calls.outer is None else self._calls.no_grad)
        if no_grad and self._recording.passes.now is None:
            self._recording.begin_pass()
            self._times_bare.clear()
        scope, stack = self._scope(backward)
        name = f"{scope}/{kind}" if scope else kind
        times = self._times_bare if no_grad else self._times
        times[name] += 1
        name = numbered(name, times[name])
        if no_grad:
            name = without_gradients(name)
        elif not backward:
            self._remember(scope, name)
        with self._recording.at_work():
            if internals.ends_later(func):
                self._recording.began(name, kind, tensors, lambda: self._sources(kind, args, kwargs))
                return
            self._recording.made(
                name,
                kind,
                tensors,
                lambda: self._sources(kind, args, kwargs),
                lambda: FORWARD_MARK + stack if stack else user_stack(),
                mutated=internals.changes_its_arguments(func),
                no_grad=no_grad,
                counters=internals.counters(func, args, kwargs, tensors),
            )

    def _scope(self, backward: bool) -> tuple[str, str]:
        """Scope of what runs now, and in the backward pass the stack of the forward operator."""
        if not backward:
            return (self._scopes[-1] if self._scopes else ""), ""
        scope, name = self._forward.get(internals.backward_function(), ("", ""))
        known = self._recording.structure.nodes.get(name)
        return (f"Gradients/{scope}" if scope else "Gradients"), (known.source if known is not None else "")

    def _remember(self, scope: str, name: str) -> None:
        """Autograd has just made the function for this call: its number leads back here from the backward pass.

        For what has no gradient it made none: the last one belongs to a call before.
        """
        if len(self._forward) < REMEMBERED:
            self._forward.setdefault(internals.last_function(), (scope, name))

    def _sources(self, kind: str, args: Any, kwargs: Any) -> list[str]:
        flow, given = self._recording.flow, leaves((args, kwargs))
        if kind == _WRITTEN_DOWN and not any(flow.has_maker(each) for each in given):
            return []
        return flow.sources(given)
