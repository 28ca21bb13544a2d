"""The tensors inside whatever a module takes or returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch

_DEEPEST: Final = 10
_NOT_OPENED: Final = (type, torch.nn.Module, torch.optim.Optimizer)
"""Objects whose tensors are their own: whoever takes or returns one did not make them."""
_KEPT: Final = (torch.Tensor, torch.distributions.Distribution)
"""What is looked at among the attributes of other objects."""


def leaves(value: Any, depth: int = _DEEPEST) -> list[torch.Tensor]:
    """Tensors of nested tuples, lists, dicts, named tuples, data classes and model outputs, in order: the slots.

    Of any other object (a namespace, a distribution) the tensors that are its attributes.
    """
    if isinstance(value, torch.Tensor):
        return [value]
    found: list[torch.Tensor] = []
    _collect(value, found, depth)
    return found


def _collect(value: Any, found: list[torch.Tensor], depth: int) -> None:
    """``_walk`` without names: it runs for every call of a module."""
    kind = type(value)
    if kind is tuple or kind is list:
        parts = value
    elif kind is dict:
        parts = value.values()
    elif value is None or kind in _SCALARS:
        return
    else:
        parts = [each for _, each in _parts(value)]
    for each in parts:
        if isinstance(each, torch.Tensor):
            found.append(each)
        elif depth > 1 and each is not None:
            _collect(each, found, depth - 1)


_SCALARS: Final = frozenset({int, float, bool, str, bytes, torch.dtype, torch.device})


def named_leaves(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors with a name each: ``x``, ``batch.ids``, ``states.0``."""
    return _walk(value, name, _DEEPEST)


def _walk(value: Any, name: str, depth: int) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif depth and not isinstance(value, str | bytes):
        for key, each in _parts(value):
            yield from _walk(each, f"{name}.{key}", depth - 1)


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list | tuple):
        names = getattr(value, "_fields", range(len(value)))
        yield from zip(names, value, strict=False)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((each.name, getattr(value, each.name, None)) for each in dataclasses.fields(value))
    elif not isinstance(value, _NOT_OPENED):
        yield from ((name, each) for name, each in getattr(value, "__dict__", {}).items() if isinstance(each, _KEPT))
