"""Tensors of PyTorch by the names and bytes that the protocol uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from tui_debugger.model import TensorMeta
from tui_debugger.stats.dtypes import canonical_name, dtype_of
from tui_debugger.torch.internals import part_of, transformed

PIECE: Final = 1 << 20
"""Bytes of values that are copied to the host at a time."""


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a distributed tensor that this process has, any other tensor as it is; without its history."""
    return part_of(tensor).detach()


def readable(tensor: torch.Tensor) -> bool:
    """Whether a tensor has plain values in memory: not quantized, not on no device, not inside a transformation."""
    return not (tensor.is_meta or tensor.is_quantized or tensor.is_nested or transformed(tensor))


def is_simple(tensor: torch.Tensor) -> bool:
    """Tells whether a tensor is a dense one with elements, of a type whose norm can be taken, and no subclass's."""
    plain = type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter
    return (
        plain and tensor.dtype in _SIMPLE and tensor.layout is torch.strided and tensor.numel() > 0 and readable(tensor)
    )


_SIMPLE: Final = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """A sparse tensor with all its elements, any other as it is."""
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def meta_of(tensor: torch.Tensor) -> TensorMeta:
    """Element type, shape, and bytes of the values: of a distributed tensor those of this process."""
    tensor = part_of(tensor)
    key = tensor.dtype, tensor.shape
    found = _METAS.get(key)
    if found is None:
        found = TensorMeta(type_name(tensor.dtype), tuple(tensor.shape), tensor.numel() * tensor.element_size())
        if len(_METAS) < _MOST_METAS:
            _METAS[key] = found
    return found


_METAS: Final[dict[tuple[torch.dtype, torch.Size], TensorMeta]] = {}
_MOST_METAS: Final = 10_000


def type_name(dtype: torch.dtype) -> str:
    """The name of an element type: that of NumPy and ml_dtypes where they have it."""
    return _NAMES.get(dtype) or str(dtype).removeprefix("torch.")


_AS_BITS: Final = frozenset(
    dtype
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    if (dtype := getattr(torch, name, None)) is not None
)
"""Element types that NumPy knows through ml_dtypes only."""
_NAMES: Final = {
    dtype: canonical_name(str(dtype))
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and canonical_name(str(dtype))
}


def numeric(tensor: torch.Tensor) -> bool:
    """Tells whether statistics are defined for a tensor."""
    return tensor.dtype in _NAMES


def as_array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """The values of a numeric tensor in the memory of the host; nothing is copied but what is sparse or conjugated."""
    plain = dense(local(tensor)).resolve_conj().resolve_neg()
    kind = dtype_of(type_name(plain.dtype))
    if kind is None:
        raise TypeError(plain.dtype)
    if not plain.numel():
        return np.empty(tuple(plain.shape), kind)
    bits = np.dtype(np.uint8 if plain.element_size() == 1 else np.int16)
    width = bits if plain.dtype in _AS_BITS else np.dtype(kind)
    return np.asarray(_Memory(plain, width.str)).view(kind)


class _Memory:
    """The memory of a tensor as NumPy reads it. ``Tensor.numpy`` would keep FSDP from resizing it ever after."""

    __slots__ = ("__array_interface__", "_tensor")

    def __init__(self, tensor: torch.Tensor, width: str) -> None:
        """``width``: type of the elements, as NumPy writes it. The tensor lives as long as an array of it."""
        self._tensor = tensor
        self.__array_interface__ = {
            "version": 3,
            "typestr": width,
            "shape": tuple(tensor.shape),
            "strides": tuple(step * tensor.element_size() for step in tensor.stride()),
            "data": (tensor.data_ptr(), True),
        }


def flat_pieces(tensor: torch.Tensor, elements: int) -> Iterator[torch.Tensor]:
    """All elements in C order as 1-D tensors of a bounded length: views where possible, never a copy of the whole."""
    if tensor.is_contiguous():
        flat = tensor.view(-1)
        for start in range(0, flat.numel(), elements):
            yield flat[start : start + elements]
    elif tensor.numel() <= elements:
        yield tensor.reshape(-1)
    elif tensor.dim() == 1:
        for start in range(0, len(tensor), elements):
            yield tensor[start : start + elements].contiguous()
    else:
        for part in tensor.unbind(0):
            yield from flat_pieces(part, elements)


def chunks(tensor: torch.Tensor) -> Iterator[bytes]:
    """The elements, little-endian and in C order."""
    plain = dense(tensor).resolve_conj().resolve_neg()
    for piece in flat_pieces(plain, max(1, PIECE // plain.element_size())):
        yield as_array(piece.contiguous().cpu().view(torch.uint8)).tobytes()
