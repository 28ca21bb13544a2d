"""The objects that programs step: optimizers of PyTorch, wrappers around one, and others that have a ``step``.

PyTorch calls hooks around the step of its own optimizers. Wrappers (accelerate's, Lightning's, a look-ahead) hand the
step on to the optimizer inside them, and some of them change weights after that. The hooks of a wrapper are missing, or
are those of the optimizer inside, or are never called. So the optimizer inside is looked for and its hooks are used,
and a step of a wrapper has ended when the ``step`` of the wrapper returns.
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
"""The number of wrappers around each other that are looked into."""


def optimizer_in(given: object) -> torch.optim.Optimizer | None:
    """Returns the optimizer whose hooks PyTorch calls: ``given``, or the only one inside; None when there is none."""
    for _ in range(DEPTH):
        if isinstance(given, torch.optim.Optimizer) and _has_hooks(given):
            return given
        inside = {id(each): each for name, each in _attributes(given).items() if _may_be_inside(name, each)}
        if len(inside) != 1:
            return None
        (given,) = inside.values()
    return None


def _attributes(given: object) -> dict[str, Any]:
    """The attributes of the object itself: wrappers make up those that they lack."""
    found = getattr(given, "__dict__", None)
    return found if isinstance(found, dict) else {}


def _has_hooks(given: torch.optim.Optimizer) -> bool:
    """Tells whether PyTorch calls the hooks: the optimizer has them, and its ``step`` is the one that was prepared."""
    hooks = _attributes(given).get("_optimizer_step_post_hooks")
    return isinstance(hooks, OrderedDict) and bool(getattr(type(given).step, "hooked", False))


def _may_be_inside(name: str, value: object) -> bool:
    return isinstance(value, torch.optim.Optimizer) or ("optim" in name and callable(getattr(value, "step", None)))


class Steps:
    """Tells of each step of an object that a program steps, until ``remove``.

    Attributes:
        optimizer: the one of PyTorch that is stepped; None when there is none, or several.
    """

    def __init__(self, given: Stepped, told: Told) -> None:
        """``told`` is called after each step, with ``optimizer``."""
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
        """Tells whether steps can be seen at all."""
        return self._hook is not None or self._replaced is not None

    def are_of(self, optimizer: object) -> bool:
        """Tells whether these are the steps of an object."""
        return optimizer is self._given or (optimizer is self.optimizer and optimizer is not None)

    def wraps(self, optimizer: object) -> bool:
        """Tells whether the optimizer inside does the work of an object: hooks of wrappers may run as well."""
        return optimizer is self._given and self.optimizer is not None and optimizer is not self.optimizer

    def remove(self) -> None:
        """Tells of nothing any more. What somebody put around our ``step`` stays, and then does nothing of ours."""
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
        """Puts a ``step`` of ours around the one of the object, in the object itself: its class serves others, too."""
        given, attributes = self._given, _attributes(self._given)
        original, before = given.step, attributes.get("step")

        def step(_: object, *args: Any, **kwargs: Any) -> Any:
            return self._around(original, *args, **kwargs)

        # A method with the attributes of the original: learning rate schedulers take it apart, and look for a mark.
        with contextlib.suppress(Exception):
            update_wrapper(step, original)
        ours = MethodType(step, given)
        with contextlib.suppress(Exception):  # an object without attributes of its own, or one that answers by itself
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
        if self._stepped or self.optimizer is None:  # a wrapper may gather gradients and step every fourth time
            self._told(self.optimizer)
        return returned
