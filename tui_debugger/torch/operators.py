"""Every call of an operator: what level "op" sees.

The calls are seen below autograd and autocast, so forward, backward and casts are all there. An operator is named by
the module that runs, its own name, and the number of its call there; in the backward pass by the module whose forward
operator it belongs to, below ``Gradients/``. What an optimizer does is not recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from tui_debugger.torch import internals
from tui_debugger.torch.frames import user_stack
from tui_debugger.torch.hook import Hook
from tui_debugger.torch.leaves import leaves, named_leaves
from tui_debugger.torch.naming import Place, Tree, numbered
from tui_debugger.torch.recording import Recording
from tui_debugger.torch.structure import unique

Guard = Callable[[Callable[[], None]], None]

FORWARD_MARK: Final = "# Corresponding forward node candidate:\n"
REMEMBERED: Final = 200_000
"""Forward calls whose place is remembered for the backward pass."""


class Operators:
    """Sees every operator between ``install`` and ``remove``. Same interface as ``ModuleHooks``."""

    def __init__(self, recording: Recording, tree: Tree, guard: Guard) -> None:
        """Installs nothing yet."""
        self._recording = recording
        self._tree = tree
        self._guard = guard
        self._handles: list[RemovableHandle] = []
        self._scopes: list[str] = []
        self._calls: Counter[str] = Counter()
        self._forward: dict[int, tuple[str, str]] = {}
        self._mode: internals.EveryOperator | None = None
        self._left: list[internals.EveryOperator] = []
        self._optimizing = False
        self._root_counts = True

    @property
    def installed(self) -> bool:
        """Whether operators are seen."""
        return self._mode is not None

    def install(self) -> None:
        """Sees operators of this thread, and of the backward passes it starts, from now on."""
        if self.installed:
            return
        root = self._tree.root
        self._handles.append(root.register_forward_pre_hook(Hook(self._before), with_kwargs=True, prepend=True))
        for place in self._tree.places:
            module = place.module
            self._handles.append(module.register_forward_pre_hook(Hook(self._enter_module, place)))
            self._handles.append(module.register_forward_hook(Hook(self._leave_module, place), always_call=True))
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

    def new_step(self) -> None:
        """A step is over."""
        self._leave()
        self._calls.clear()
        self._forward.clear()
        self._scopes.clear()
        self._optimizing = False

    def optimizing(self, now: bool) -> None:
        """An optimizer begins or ends its step."""
        self._optimizing = now

    # -- hooks ---------------------------------------------------------------------------------------

    def _before(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if internals.in_backward():
            return
        self._root_counts = torch.is_grad_enabled()
        self._scopes.clear()
        if self._root_counts:
            self._calls.clear()
            self._guard(lambda: self._given(args, kwargs))

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with self._recording.at_work():
            for key, value in (*enumerate(args), *kwargs.items()):
                for name, tensor in named_leaves(f"inputs.{key}", value):
                    self._recording.given(name, tensor)

    def _enter_module(self, place: Place, *_: Any) -> None:
        self._scopes.append(place.scope)

    def _leave_module(self, place: Place, *_: Any) -> None:
        if place.scope in self._scopes:
            while self._scopes.pop() != place.scope:
                pass

    def _seen(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if self.installed and not self._optimizing and not self._recording.paused and not _allocates(func):
            self._guard(lambda: self._ran(func, args, kwargs, out))

    def _leave(self) -> None:
        """Takes away what is there for nothing any more. What cannot be left now does nothing until it can."""
        self._left = [mode for mode in self._left if not mode.leave()]

    # -- inside --------------------------------------------------------------------------------------

    def _ran(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        backward, grads = internals.in_backward(), torch.is_grad_enabled()
        if backward and (grads or self._scopes):
            return  # a recomputation for a checkpoint, which ran before under the same names
        if not backward and not (grads or (self._scopes and self._root_counts)):
            return
        if not (tensors := leaves(out)):
            return
        kind = kind_of(func)
        scope, stack = self._scope(backward)
        name = f"{scope}/{kind}" if scope else kind
        self._calls[name] += 1
        name = numbered(name, self._calls[name])
        if not backward:
            self._remember(scope, name)
        with self._recording.at_work():
            self._recording.made(
                name,
                kind,
                tensors,
                lambda: self._sources(args, kwargs),
                lambda: FORWARD_MARK + stack if stack else user_stack(),
                mutated=internals.changes_its_arguments(func),
            )

    def _scope(self, backward: bool) -> tuple[str, str]:
        """Scope of what runs now, and in the backward pass the stack of the forward operator."""
        if not backward:
            return (self._scopes[-1] if self._scopes else ""), ""
        scope, name = self._forward.get(internals.backward_function(), ("", ""))
        known = self._recording.structure.nodes.get(name)
        return (f"Gradients/{scope}" if scope else "Gradients"), (known.source if known is not None else "")

    def _remember(self, scope: str, name: str) -> None:
        """Autograd has just made the function for this call: its number leads back here from the backward pass."""
        if len(self._forward) < REMEMBERED:
            self._forward[internals.last_function()] = (scope, name)

    def _sources(self, args: Any, kwargs: Any) -> list[str]:
        flow = self._recording.flow
        return unique(flow.maker(tensor) for tensor in leaves((args, kwargs)))


@lru_cache(maxsize=4096)
def _allocates(func: Any) -> bool:
    """Whether an operator returns memory as it finds it: NaN and Inf in there are nobody's."""
    return kind_of(func) in {"Empty", "EmptyLike", "EmptyStrided", "NewEmpty", "NewEmptyStrided", "EmptyPermuted"}


def kind_of(func: Any) -> str:
    """Operator type: ``aten._log_softmax.default`` is ``LogSoftmax``, which is what categories know it by."""
    name = internals.name_of(func).rpartition("::")[2].strip("_")
    return "".join(part[:1].upper() + part[1:] for part in name.split("_") if part) or "Operator"
