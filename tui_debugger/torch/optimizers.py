"""The objects that programs step: optimizers of PyTorch, wrappers around one, and others that have a ``step``.

Wrappers (accelerate's, Lightning's, a look-ahead) call the optimizer inside them, and some change weights after that.
Their own hooks are missing, shared with the inner optimizer, or never called. So the hooks of the inner optimizer are
used, and the step of a wrapper ends when its ``step`` returns.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable
from functools import update_wrapper
from types import MethodType
from typing import Any, Final, Protocol

import torch
from torch.utils.hooks import RemovableHandle


class Stepped(Protocol):
    """A thing that programs step."""

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Updates the weights."""


Told = Callable[[torch.optim.Optimizer | None], None]
DEPTH: Final = 8
"""The number of nested wrappers that are looked into."""


def optimizer_in(given: object) -> torch.optim.Optimizer | None:
    """The optimizer whose hooks PyTorch calls: ``given``, or the only one inside; None when there is none."""
    for _ in range(DEPTH):
        if isinstance(given, torch.optim.Optimizer) and _has_hooks(given):
            return given
        inside = {id(each): each for name, each in _attributes(given).items() if _may_be_inside(name, each)}
        if len(inside) != 1:
            return None
        (given,) = inside.values()
    return None


def _attributes(given: object) -> dict[str, Any]:
    """The attributes of the object itself, without those that wrappers forward."""
    found = getattr(given, "__dict__", None)
    return found if isinstance(found, dict) else {}


def _has_hooks(given: torch.optim.Optimizer) -> bool:
    """Tells whether PyTorch calls the hooks: the optimizer has them, and PyTorch has prepared its ``step``."""
    hooks = _attributes(given).get("_optimizer_step_post_hooks")
    return isinstance(hooks, OrderedDict) and bool(getattr(type(given).step, "hooked", False))


def _may_be_inside(name: str, value: object) -> bool:
    return isinstance(value, torch.optim.Optimizer) or ("optim" in name and callable(getattr(value, "step", None)))


class Steps:
    """Tells of each step of an object; ``optimizer`` is the stepped one of PyTorch, None for none or several."""

    def __init__(self, given: Stepped, told: Told) -> None:
        self.optimizer = optimizer_in(given)
        self._given = given
        self._told = told
        self._hook: RemovableHandle | None = None
        self._replaced: tuple[MethodType, Any] | None = None
        self._running = self._stepped = False
        if self.optimizer is not given:
            self._replace_step()
        if self.optimizer is not None:
            self._hook = self.optimizer.register_step_post_hook(self._did_step)

    @property
    def seen(self) -> bool:
        return self._hook is not None or self._replaced is not None

    def are_of(self, optimizer: object) -> bool:
        return optimizer is self._given or (optimizer is self.optimizer and optimizer is not None)

    def wraps(self, optimizer: object) -> bool:
        """Tells whether an object is a wrapper whose inner optimizer does the work: hooks of both may run."""
        return optimizer is self._given and self.optimizer is not None and optimizer is not self.optimizer

    def remove(self) -> None:
        """Stops listening. If the program wrapped our ``step``, it stays, and does nothing of ours."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        if self._replaced is not None:
            ours, before = self._replaced
            attributes = _attributes(self._given)
            if attributes.get("step") == ours:
                del attributes["step"]
                if before is not None:
                    attributes["step"] = before
            self._replaced = None

    # -- inside --------------------------------------------------------------------------------------

    def _did_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._running:
            self._stepped = True
        else:
            self._told(optimizer)

    def _replace_step(self) -> None:
        """Wraps the ``step`` of the object, in the object itself: its class serves others, too."""
        given, attributes = self._given, _attributes(self._given)
        original, before = given.step, attributes.get("step")

        def step(_: object, *args: Any, **kwargs: Any) -> Any:
            return self._around(original, *args, **kwargs)

        # A method with the attributes of the original: learning rate schedulers take it apart, and look for a mark.
        with contextlib.suppress(Exception):
            update_wrapper(step, original)
        ours = MethodType(step, given)
        with contextlib.suppress(Exception):  # an object without attributes of its own, or with __getattr__
            attributes["step"] = ours
            if given.step == ours:
                self._replaced = ours, before
            elif before is None:
                del attributes["step"]

    def _around(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._replaced is None or self._running:
            return original(*args, **kwargs)
        self._running, self._stepped = True, False
        try:
            returned = original(*args, **kwargs)
        finally:
            self._running = False
        if self._stepped or self.optimizer is None:  # a wrapper may accumulate gradients and step every fourth time
            self._told(self.optimizer)
        return returned
