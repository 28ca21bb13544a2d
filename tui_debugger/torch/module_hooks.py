"""Hooks on modules: their outputs, and the gradients of their outputs."""

from __future__ import annotations

from collections import Counter
from threading import get_ident
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from tui_debugger.torch.calls import Calls, Guard, is_compiling
from tui_debugger.torch.hook import Hook
from tui_debugger.torch.internals import in_backward, version_of
from tui_debugger.torch.leaves import leaves
from tui_debugger.torch.naming import Place, Tree, numbered, without_gradients
from tui_debugger.torch.recording import Recording
from tui_debugger.torch.structure import unique


class ModuleHooks:
    """Hooks on every module of a tree, while they are installed.

    Whether gradients are wanted when a pass begins decides what it is: a part of the training step, or a pass of its
    own below ``NoGrad``. Inside a pass with gradients, modules below a checkpoint run without gradients at first, and
    a second time in the backward pass: that second time is not recorded again, but may be the only one whose outputs
    have gradients.
    """

    def __init__(self, recording: Recording, tree: Tree, guard: Guard) -> None:
        """Installs nothing yet. ``guard``: runs something without letting an exception out."""
        self._recording = recording
        self._tree = tree
        self._guard = guard
        self._handles: list[RemovableHandle] = []
        self._times: Counter[str] = Counter()
        self._again: Counter[str] = Counter()
        self._times_bare: Counter[str] = Counter()
        self._calls = Calls(recording, tree, guard, self._began)

    @property
    def installed(self) -> bool:
        """Whether there are hooks."""
        return bool(self._handles)

    def install(self, tree: Tree) -> None:
        """Adds the hooks."""
        if self._handles:
            return
        self._tree = tree
        for place in (*self._calls.place_of_root(tree), *tree.places):
            module, hooks = place.module, self._handles
            with self._calls.hooking(place):
                hooks.append(module.register_forward_pre_hook(self._calls.hook(place), with_kwargs=True, prepend=True))
                hooks.append(module.register_forward_hook(Hook(self._after, place), with_kwargs=True, always_call=True))

    def remove(self) -> None:
        """Takes them all away. Gradients that are still to come are not recorded."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.new_step()

    def new_step(self, *, ended: bool = False) -> None:
        """A step is over."""
        self._times.clear()
        self._again.clear()
        self._calls.new_step(ended=ended)

    # -- hooks ---------------------------------------------------------------------------------------

    def _after(self, place: Place, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """A module has run, or failed: then nothing came out."""
        if is_compiling():
            return
        calls = self._calls
        if module is place.module and (calls.thread == get_ident() or in_backward()):
            if place.kind:
                self._guard(lambda: self._ran(place, args, kwargs, out))
            if calls.end(module) and calls.no_grad:
                self._guard(self._recording.end_pass)
        elif calls.outer is not None:
            calls.elsewhere(place)

    # -- inside --------------------------------------------------------------------------------------

    def _began(self, of_the_root: bool) -> None:
        if self._calls.no_grad:
            self._times_bare.clear()
        elif of_the_root:
            self._recording.begin_call()
            self._times.clear()
            self._again.clear()

    def _ran(self, place: Place, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        tensors = leaves(out)
        if in_backward():
            self._ran_again(place, tensors)
        elif self._calls.outer is None or not tensors:
            return
        elif self._calls.no_grad:
            times = self._times_bare
            times[place.name] += 1
            name = without_gradients(numbered(place.name, times[place.name]))
            with self._recording.at_work():
                self._recording.made(
                    name, place.kind, tensors, lambda: self._sources(place, args, kwargs, tensors), no_grad=True
                )
        else:
            self._times[place.name] += 1
            call = self._times[place.name]
            with self._recording.at_work():
                self._recording.made(
                    numbered(place.name, call),
                    place.kind,
                    tensors,
                    lambda: self._sources(place, args, kwargs, tensors),
                )
            self._await_gradients(place, call, tensors)

    def _ran_again(self, place: Place, tensors: list[torch.Tensor]) -> None:
        """For a checkpoint. Which of several calls is recomputed cannot be told."""
        self._again[place.name] += 1
        if self._times[place.name] <= 1:
            self._await_gradients(place, self._again[place.name], tensors)

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
        if self.installed and not is_compiling():
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
