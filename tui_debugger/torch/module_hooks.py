"""Hooks on modules: their outputs, and the gradients of their outputs."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from tui_debugger.torch.hook import Hook
from tui_debugger.torch.internals import in_backward, version_of
from tui_debugger.torch.leaves import leaves, named_leaves
from tui_debugger.torch.naming import Place, Tree, numbered
from tui_debugger.torch.recording import Recording
from tui_debugger.torch.structure import unique

Guard = Callable[[Callable[[], None]], None]


class ModuleHooks:
    """Hooks on every module of a tree, while they are installed.

    A forward pass counts when gradients are wanted of it: an evaluation under ``no_grad`` does not. Inside a pass that
    counts, modules below a checkpoint run without gradients at first, and a second time in the backward pass: that
    second time is not recorded again, but may be the only one whose outputs have gradients.
    """

    def __init__(self, recording: Recording, tree: Tree, guard: Guard) -> None:
        """Installs nothing yet. ``guard``: runs something without letting an exception out."""
        self._recording = recording
        self._tree = tree
        self._guard = guard
        self._handles: list[RemovableHandle] = []
        self._calls: Counter[str] = Counter()
        self._again: Counter[str] = Counter()
        self._inside = False
        self._counts = False
        self._parameters = inspect.signature(tree.root.forward).parameters if tree.root is not None else {}

    @property
    def installed(self) -> bool:
        """Whether there are hooks."""
        return bool(self._handles)

    def install(self) -> None:
        """Adds the hooks."""
        if self._handles:
            return
        root = self._tree.root
        self._handles.append(root.register_forward_pre_hook(Hook(self._before), with_kwargs=True, prepend=True))
        for place in self._tree.places:
            hook = Hook(self._after, place)
            self._handles.append(place.module.register_forward_hook(hook, with_kwargs=True))
        self._handles.append(root.register_forward_hook(Hook(self._left), always_call=True))

    def remove(self) -> None:
        """Takes them all away. Gradients that are still to come are not recorded."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.new_step()

    def new_step(self) -> None:
        """A step is over."""
        self._calls.clear()
        self._again.clear()
        self._inside = False

    # -- hooks ---------------------------------------------------------------------------------------

    def _before(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The model is called: a forward pass begins."""
        if _not_ours() or in_backward():
            return
        self._inside, self._counts = True, torch.is_grad_enabled()
        if self._counts:
            self._calls.clear()
            self._again.clear()
            self._guard(lambda: self._given(args, kwargs))

    def _left(self, _: nn.Module, __: Any, ___: Any) -> None:
        if not _not_ours() and not in_backward():
            self._inside = False

    def _after(self, place: Place, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """A module has run."""
        if module is place.module and not _not_ours():
            self._guard(lambda: self._ran(place, args, kwargs, out))

    # -- inside --------------------------------------------------------------------------------------

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        names = [name for name, each in self._parameters.items() if each.kind not in _MANY]
        named = [*zip([*names, *(f"arg{at}" for at in range(len(names), len(args)))], args, strict=False)]
        with self._recording.at_work():
            for key, value in (*named, *kwargs.items()):
                for name, tensor in named_leaves(f"inputs.{key}", value):
                    self._recording.given(name, tensor)

    def _ran(self, place: Place, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        again = in_backward()
        if not again and not (self._counts if self._inside else torch.is_grad_enabled()):
            return
        calls = self._again if again else self._calls
        calls[place.name] += 1
        tensors = leaves(out)
        if not again:
            name = numbered(place.name, calls[place.name])
            with self._recording.at_work():
                self._recording.made(name, place.kind, tensors, lambda: self._sources(place, args, kwargs, tensors))
        elif self._calls[place.name] > 1:  # which of its calls is recomputed cannot be told
            return
        self._await_gradients(place, calls[place.name], tensors)

    def _await_gradients(self, place: Place, call: int, tensors: list[torch.Tensor]) -> None:
        scope, _, _ = place.name.rpartition("/")
        name = "/".join(part for part in ("Gradients", scope, f"{place.kind}Grad") if part)
        for slot, tensor in enumerate(tensors):
            # A leaf would keep the hook for good; what an inner module made has its hook.
            if tensor.grad_fn is not None and not self._hooked(tensor):
                hook = Hook(self._gradient, place, call, numbered(name, call), slot)
                tensor.register_hook(hook)  # type: ignore[no-untyped-call] # PyTorch does not say its type

    def _hooked(self, tensor: torch.Tensor) -> bool:
        if getattr(tensor, _MARK, None) == version_of(tensor):
            return True
        setattr(tensor, _MARK, version_of(tensor))  # an inner module may have made it and another one changed it since
        return False

    def _gradient(self, place: Place, call: int, name: str, slot: int, gradient: torch.Tensor) -> None:
        if self.installed and not _not_ours():
            self._guard(lambda: self._came(place, call, name, slot, gradient))

    def _came(self, place: Place, call: int, name: str, slot: int, gradient: torch.Tensor) -> None:
        with self._recording.at_work():
            self._recording.came(name, f"{place.kind}Grad", slot, gradient, numbered(place.name, call))

    def _sources(
        self, place: Place, args: tuple[Any, ...], kwargs: dict[str, Any], out: list[torch.Tensor]
    ) -> list[str]:
        """What fed a module: what its outputs were made of; where that is not known what it was called with."""
        flow = self._recording.flow
        behind = [
            name for tensor in out for name in (flow.sources(tensor) if flow.maker(tensor) else flow.behind(tensor))
        ]
        own = [flow.maker(parameter) for parameter in place.module.parameters(recurse=False)]
        if behind and next(place.module.children(), None) is not None:
            return unique([*behind, *own])
        fed = [name for tensor in leaves((args, kwargs)) for name in flow.sources(tensor)]
        return unique([*fed, *behind, *own])


_MARK = "_tdbg_hooked"
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _not_ours() -> bool:
    """Whether Python code runs without tensors: torch.compile traces it, or a CUDA graph is being captured."""
    cuda: Any = torch.cuda
    return bool(torch.compiler.is_compiling() or (cuda.is_initialized() and cuda.is_current_stream_capturing()))
