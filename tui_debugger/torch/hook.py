"""A hook that stays behind when its module is copied or saved."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any


class Hook:
    """Calls a function with arguments of its own first.

    A model that is deep-copied (for averaged weights), pickled or sent to another process takes its hooks along. A copy
    of this one does nothing, needs nothing of tdbg to be loaded, and keeps nothing alive.
    """

    __torch_unserializable__ = True  # PyTorch would warn that a tensor is saved without it

    __slots__ = ("_act", "_first")

    def __init__(self, act: Callable[..., None], *first: Any) -> None:
        """``act(*first, *arguments)`` is called."""
        self._act = act
        self._first = first

    def __call__(self, *arguments: Any) -> None:
        """What PyTorch calls. Nothing is returned: nothing is changed."""
        self._act(*self._first, *arguments)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        """A hook that does nothing."""
        return _nothing()

    def __reduce__(self) -> tuple[Any, ...]:
        """The same, by what every Python has."""
        return getattr, (contextlib.nullcontext(), "__exit__")


def _nothing() -> Callable[..., None]:
    return contextlib.nullcontext().__exit__
