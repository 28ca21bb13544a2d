"""Tensors of PyTorch from inside: tensors in nested values, their parts, types and bytes.

This is the only module that uses private names of PyTorch (tried with 2.4 to 2.13). If one is missing in another
version, attaching fails with a one-line message, and the training goes on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _python_dispatch as dispatch

from tui_debugger.model import TensorMeta
from tui_debugger.stats.dtypes import canonical_name, dtype_of

_DEEPEST: Final = 10
_NOT_OPENED: Final = (type, torch.nn.Module, torch.optim.Optimizer)
"""Objects whose tensors are their own: a module that takes or returns such an object did not make them."""
_KEPT: Final = (torch.Tensor, torch.distributions.Distribution)
"""The types that are looked at among the attributes of other objects."""


def leaves(value: Any) -> list[torch.Tensor]:
    """Tensors of nested containers, data classes, model outputs and attributes, in order: the slots."""
    if isinstance(value, torch.Tensor):
        return [value]
    found: list[torch.Tensor] = []
    _collect(value, found, _DEEPEST)
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


class CallHook:
    """Calls a function with arguments of its own first.

    A model that is deep-copied (for averaged weights), pickled or sent to another process takes its hooks along. A copy
    of this hook does nothing, can be loaded without tdbg, and keeps nothing alive.
    """

    __torch_unserializable__ = True  # PyTorch would warn that it is not saved with a tensor

    __slots__ = ("_act", "_first")

    def __init__(self, act: Callable[..., None], *first: Any) -> None:
        self._act = act
        self._first = first

    def __call__(self, *arguments: Any) -> None:
        """Returns nothing, so that PyTorch changes nothing."""
        self._act(*self._first, *arguments)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        return _nothing()

    def __reduce__(self) -> tuple[Any, ...]:
        """A hook that does nothing, made from the standard library."""
        return getattr, (contextlib.nullcontext(), "__exit__")


def _nothing() -> Callable[..., None]:
    return contextlib.nullcontext().__exit__


def changed_by_hooks(module: torch.nn.Module) -> bool:
    """Tells whether a program's own hook may return something else than a module computed."""
    return any(not isinstance(each, CallHook) for each in vars(module).get("_forward_hooks", {}).values())


def version_of(tensor: torch.Tensor) -> int:
    """How often the values were changed in place; 0 for tensors that do not count that."""
    try:
        return tensor._version  # noqa: SLF001 - see above
    except RuntimeError:  # made in inference mode
        return 0


Counter = torch.Tensor | weakref.ref[torch.Tensor]
"""The object that counts how often the values of a tensor were changed."""


def counters(operator: Any, args: Any, kwargs: Any, outputs: Sequence[torch.Tensor]) -> Sequence[Counter]:
    """The object that counts the changes of each output of a running operator.

    Views share the count of their base. An output made of nothing, or only like another tensor, gets a count of its
    own, but would be copied if one of our tensors shared it: so it is held weakly.
    """
    viewed = _viewed_argument(operator)
    if viewed is not None:
        place, name = viewed
        base = args[place] if place < len(args) else kwargs.get(name)
        if isinstance(base, torch.Tensor):
            return [base] * len(outputs)
    if name_of(operator).endswith("_like") or not leaves((args, kwargs)):
        return [weakref.ref(each) for each in outputs]
    return outputs


def counting(tensor: torch.Tensor) -> torch.Tensor:
    """The same values without history, with the same count of changes, even while an operator runs."""
    with torch._C._SetExcludeDispatchKeyGuard(_COUNTS, False):  # noqa: SLF001 - see above
        return tensor.detach()


def saves_for_itself(operator: Any, args: Sequence[Any]) -> bool:
    """Tells whether autograd itself, and no program, runs an operator.

    Autograd detaches the tensors that it saves without going through its own layers, and the gradient of a parameter
    before it keeps that.
    """
    if operator is not torch.ops.aten.detach.default or args[0].is_inference():
        return False
    function = torch._C._current_autograd_node()  # noqa: SLF001 - see above
    if function is not None and function.name() == "torch::autograd::AccumulateGrad":
        return True
    return not torch._C._dispatch_tls_is_dispatch_key_excluded(_COUNTS)  # noqa: SLF001 - see above


_COUNTS = torch._C.DispatchKey.ADInplaceOrView  # noqa: SLF001 - see above
"""The layer in which changes in place are counted."""


def in_backward() -> bool:
    """Tells whether autograd runs in this thread: a module that is called now is recomputed for a checkpoint."""
    return bool(torch._C._current_graph_task_id() != -1)  # noqa: SLF001 - see above


def run_backward() -> Any:
    """The function that ``backward`` and ``torch.autograd.grad`` call with tensors, gradients, and more."""
    autograd: Any = torch.autograd
    return autograd._engine_run_backward  # noqa: SLF001 - see above


def replace_run_backward(function: Any) -> None:
    autograd: Any = torch.autograd
    autograd._engine_run_backward = function  # noqa: SLF001 - see above


def when_backward_ends(act: Callable[[], None]) -> None:
    """Calls ``act`` when the running backward pass is over, and all gradients are there."""
    torch.autograd.Variable._execution_engine.queue_callback(act)  # noqa: SLF001 - see above


def backward_function() -> int:
    """Number of the function that autograd runs now; -1 when no function runs."""
    function = torch._C._current_autograd_node()  # noqa: SLF001 - see above
    return -1 if function is None else int(function._sequence_nr())  # noqa: SLF001 - see above


def number_of(function: Any) -> int:
    return int(function._sequence_nr())  # noqa: SLF001 - see above


def last_function() -> int:
    """Number of the function that autograd made last: for the running operator, if it is differentiated."""
    autograd: Any = torch.autograd
    return int(autograd._get_sequence_nr()) - 1  # noqa: SLF001 - see above


def no_autocast() -> AbstractContextManager[None]:
    """Operators compute in the types of their arguments."""
    guard: AbstractContextManager[None] = torch._C._DisableAutocast()  # noqa: SLF001 - see above
    return guard


def transforming() -> bool:
    """Tells whether ``torch.func`` (vmap, grad ...) runs.

    Whatever is computed while it runs has no values of its own, not even what is made of a plain tensor.
    """
    return _transform_level() is not None


def transformed(tensor: torch.Tensor) -> bool:
    """Tells whether ``torch.func`` runs, or a tensor stands for others in there."""
    return transforming() or _wrapped(tensor)


_wrapped: Callable[[torch.Tensor], bool] = torch._C._functorch.is_functorch_wrapped_tensor  # noqa: SLF001 - see above
_transform_level: Callable[[], int | None] = torch._C._functorch.maybe_current_level  # noqa: SLF001 - see above


def norms(tensors: Sequence[torch.Tensor], order: int, dtype: torch.dtype | None) -> Sequence[torch.Tensor]:
    options = {} if dtype is None else {"dtype": dtype}
    found: Sequence[torch.Tensor] = torch._foreach_norm(list(tensors), order, **options)  # noqa: SLF001 - see above
    return found


def differences(tensors: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    found: Sequence[torch.Tensor] = torch._foreach_sub(list(tensors), list(others))  # noqa: SLF001 - see above
    return found


def copy_all(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    torch._foreach_copy_(list(targets), list(sources))


def name_of(operator: Any) -> str:
    """Name of an operator with its namespace: ``aten::mm``."""
    return str(operator._schema.name)  # noqa: SLF001 - see above


@functools.cache
def changes_its_arguments(operator: Any) -> bool:
    return bool(operator._schema.is_mutable) or name_of(operator).startswith("c10d::")  # noqa: SLF001 - see above


@functools.cache
def returns_something(operator: Any) -> bool:
    return bool(operator._schema.returns)  # noqa: SLF001 - see above


def exchanges(operator: Any) -> bool:
    """Tells whether an operator is part of a collective operation: its result may come from another process."""
    return name_of(operator).startswith(("c10d::", "_c10d_functional", "_dtensor::"))


@functools.cache
def ends_later(operator: Any) -> bool:
    """Tells whether the result of an operator is not there yet: processes exchange it while the program goes on."""
    name = name_of(operator)
    return name.startswith(("c10d::", "_c10d_functional::")) and not name.endswith(("wait_tensor", "_autograd"))


def received(operator: Any, args: Any, out: Any) -> list[torch.Tensor]:
    """The tensors that an operator which ends later writes to; some of them return only a handle to wait for."""
    name = name_of(operator)
    if not name.startswith("c10d::"):
        return leaves(out)
    return [] if name.endswith(("::send", "barrier", "barrier_")) else leaves(args[:1])


@functools.cache
def _viewed_argument(operator: Any) -> tuple[int, str] | None:
    """The argument, by place and name, whose memory an operator returns views of; None for most operators."""
    schema = operator._schema  # noqa: SLF001 - see above
    if schema.is_mutable or not any(each.alias_info is not None for each in schema.returns):
        return None
    arguments = enumerate(schema.arguments)
    return next(((at, each.name) for at, each in arguments if each.alias_info is not None), None)


def views_argument(operator: Any) -> bool:
    return _viewed_argument(operator) is not None


def written(operator: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    values = (args[at] if at < len(args) else kwargs.get(name) for at, name in written_arguments(operator))
    return [tensor for value in values for tensor in leaves(value)]


@functools.cache
def written_arguments(operator: Any) -> tuple[tuple[int, str], ...]:
    arguments = enumerate(operator._schema.arguments)  # noqa: SLF001 - see above
    return tuple((at, each.name) for at, each in arguments if each.alias_info is not None and each.alias_info.is_write)


def storage_of(tensor: torch.Tensor) -> int | None:
    """Identifies the memory of a tensor while it lives; None where a tensor has none of its own."""
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_nested or transformed(tensor):
        return None
    try:
        return address_of(tensor.untyped_storage())
    except (NotImplementedError, RuntimeError):
        return None


def address_of(storage: torch.UntypedStorage) -> int:
    """``storage_of`` the tensors in a storage."""
    return int(storage._cdata)  # noqa: SLF001 - see above


def hold_weakly(storage: torch.UntypedStorage) -> StorageWeakRef:
    """Keeps the address of a storage from being reused, but not its memory."""
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call] # PyTorch does not say its type


def other_mode() -> bool:
    return bool(torch._C._len_torch_dispatch_stack())  # noqa: SLF001 - see above


# -- torch.compile --------------------------------------------------------------------------------------------------


def compiles() -> bool:
    """Tells whether the program has called ``torch.compile``; optimizers load the compiler, too, without a backend."""
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    backends: dict[int, object] = getattr(compiler, "cached_backends", {})
    return any(map(callable, tuple(backends.values())))


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Keeps torch.compile from compiling the code in here, even if the code around it is compiled."""
    set_compiler = torch._C._dynamo.eval_frame.set_eval_frame  # noqa: SLF001 - see above
    before = set_compiler(None)
    try:
        yield
    finally:
        set_compiler(before)


def can_stand_back() -> bool:
    return hasattr(torch.compiler, "set_stance")


class _CompilerStandsBack:
    """Makes torch.compile run eagerly while a mode sees every operator: a failed compilation would be final."""

    def __init__(self) -> None:
        self._seeing = 0
        self._stance: Any = None

    def begin(self) -> None:
        self._seeing += 1
        if self._seeing == 1 and can_stand_back():
            self._stance = torch.compiler.set_stance("force_eager")

    def end(self) -> None:
        self._seeing -= 1
        if not self._seeing and self._stance is not None:
            self._stance.__exit__(None, None, None)
            self._stance = None


_compiler = _CompilerStandsBack()


_waiting_to_leave: Final[list[Any]] = []
"""Modes below another mode, which are to be left and show nothing any more."""


class EveryOperator(dispatch.TorchDispatchMode):  # type: ignore[no-untyped-call] # PyTorch does not say its type
    """Shows every operator that runs, with its arguments and outputs."""

    def __init__(self, show: Callable[..., None], look: Callable[[Any, Any, Any], Any] | None = None) -> None:
        """``show`` gets each operator after it ran, with the earlier result of ``look`` if it writes to arguments."""
        super().__init__()  # type: ignore[no-untyped-call] # likewise
        self._show = show
        self._look = look
        self._inference = False
        self._is_left = True

    def enter(self) -> None:
        self._inference = torch.is_inference_mode_enabled()
        _compiler.begin()
        self._is_left = False
        self.__enter__()  # type: ignore[no-untyped-call] # PyTorch does not say its type

    def leave(self) -> bool:
        """Shows no more; False if that must wait for the end of another mode, of inference mode, or of an operator."""
        current: Any = dispatch._get_current_dispatch_mode  # noqa: SLF001 - see above
        if self._is_left:
            return True
        if current() is not self or torch.is_inference_mode_enabled() != self._inference:
            if self not in _waiting_to_leave:
                _waiting_to_leave.append(self)
            return False
        self.__exit__(None, None, None)
        _compiler.end()
        self._is_left = True
        if (below := current()) in _waiting_to_leave:  # the mode of another model, which was detached first
            _waiting_to_leave.remove(below)
            below.leave()
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._look is None or not changes_its_arguments(func):
            out = func(*args, **kwargs)
            self._show(func, args, kwargs, out)
            return out
        seen = self._look(func, args, kwargs)
        out = func(*args, **kwargs)
        self._show(func, args, kwargs, out, seen)
        return out


# -- tensors and weights that several processes share ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MeshPlacement:
    """The placement of a distributed tensor on the processes; ``ranks`` have parts of it."""

    text: str  # which part this process has, in words
    ranks: tuple[int, ...]
    replicated: bool  # several processes have the same part


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """A weight of a module under ``fully_shard``."""

    parameter: torch.Tensor  # the shard that the optimizer updates
    owners: tuple[tuple[torch.nn.Module, str], ...]  # (module, attribute) of those that read the whole weight
    group: Any
    ranks: tuple[int, ...]
    parallel: bool  # the whole weight is itself only a part: modules compute with it in parallel


@dataclass(frozen=True, slots=True, eq=False)
class FlatPart:
    """A weight inside a flat parameter: its owner, its name there, and its parameter for the optimizer, if any."""

    module: torch.nn.Module
    attribute: str
    name: str
    parameter: torch.Tensor | None
    placement: str


@dataclass(frozen=True, slots=True, eq=False)
class FlatShard:
    """A flat parameter of ``FullyShardedDataParallel``; ``group`` puts it together, ``placement`` is in words."""

    flat: torch.Tensor
    parts: tuple[FlatPart, ...]
    group: Any
    more_groups: bool  # gradients are summed over further processes
    sharded: bool  # every process has only a part of it
    placement: str


def flat_shards(module: torch.nn.Module) -> list[FlatShard]:
    handle: Any = getattr(module, "_handle", None)
    flat = getattr(handle, "flat_param", None)
    if not isinstance(flat, torch.Tensor):
        return []
    of: Any = flat
    originals = of._params or [None] * len(of._param_infos)  # noqa: SLF001 - see above
    rows = zip(of._param_infos, of._fqns, of._shard_param_infos, of._shapes, originals, strict=True)  # noqa: SLF001 - see above
    parts = tuple(
        FlatPart(info.module, info.param_name, name, original, _flat_text(shard, shape) if original is not None else "")
        for info, name, shard, shape, original in rows
    )
    whole = math.prod(of._unpadded_unsharded_size)  # noqa: SLF001 - see above
    place = f"shard {handle.rank} of {handle.world_size} along dimension 0 of [{whole}]"
    sharded = bool(handle.uses_sharded_strategy)
    more = getattr(module, "_inter_node_pg", None) is not None
    return [FlatShard(flat, parts, handle.process_group, more, sharded, place if sharded else "")]


def _flat_text(shard: Any, shape: Sequence[int]) -> str:
    whole = f"[{', '.join(map(str, shape))}]"
    if not shard.in_shard:
        return f"no elements of {whole}"
    if shard.numel_in_shard == math.prod(shape):
        return f"all elements of {whole}"
    return f"elements {shard.intra_param_start_idx} to {shard.intra_param_end_idx} of {whole}"


def shards(module: torch.nn.Module) -> list[Shard]:
    get: Any = getattr(module, "_get_fsdp_state", None)
    if get is None:
        return []
    state = get()
    groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
    return [_shard(each) for group in groups if group is not None for each in group.fsdp_params]


def _shard(each: Any) -> Shard:
    info, mesh = each._module_info, each.mesh_info  # noqa: SLF001 - see above
    owners = ((info.module, info.param_name), *zip(info.shared_modules, info.shared_param_names, strict=True))
    ranks = tuple(int(rank) for rank in mesh.mesh.mesh.flatten().tolist())
    return Shard(each.sharded_param, owners, mesh.shard_process_group, ranks, bool(each.is_dtensor))


def spread_of(tensor: torch.Tensor) -> MeshPlacement | None:
    """The placement of a distributed tensor; None for any other tensor."""
    mesh: Any = getattr(tensor, "device_mesh", None)
    placements: Any = getattr(tensor, "placements", None)
    if mesh is None or placements is None:
        return None
    coordinate = mesh.get_coordinate() or [0] * mesh.ndim
    parts: list[str] = []
    for place, at, size in zip(placements, coordinate, mesh.mesh.shape, strict=True):
        if place.is_replicate():
            parts.append(f"copy {at} of {size}")
        elif getattr(place, "dim", None) is not None:
            parts.append(f"shard {at} of {size} along dimension {place.dim}")
        else:
            parts.append(f"part {at} of {size} of a sum")
    replicated = any(place.is_replicate() and size > 1 for place, size in zip(placements, mesh.mesh.shape, strict=True))
    ranks = tuple(int(rank) for rank in mesh.mesh.flatten().tolist())
    return MeshPlacement(f"{', '.join(parts)} of [{', '.join(map(str, tensor.shape))}]", ranks, replicated)


def is_view(tensor: torch.Tensor) -> bool:
    return bool(tensor._is_view())  # noqa: SLF001 - see above


def base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    base: torch.Tensor | None = tensor._base if is_view(tensor) else None  # noqa: SLF001 - see above
    return base


def freed(tensor: torch.Tensor) -> bool:
    """Tells whether the memory of the values was given back, as FSDP does with gathered weights."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return False
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.untyped_storage().nbytes() < (tensor.storage_offset() + last + 1) * tensor.element_size()


def part_of(tensor: torch.Tensor) -> torch.Tensor:
    """This process's part of a distributed tensor, any other tensor as it is; waits for values on their way."""
    if type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter:
        return tensor
    part = getattr(tensor, "_local_tensor", tensor)
    wait = getattr(part, "trigger_wait", None)
    found: torch.Tensor = wait() if wait is not None else part
    return found


def is_partial(tensor: torch.Tensor) -> bool:
    return any(place.is_partial() for place in getattr(tensor, "placements", ()))


def is_replicated(tensor: torch.Tensor) -> bool:
    return any(place.is_replicate() for place in getattr(tensor, "placements", ()))


def is_exchanged(tensor: torch.Tensor) -> bool:
    """Tells whether a tensor is the direct result of a collective operation."""
    return hasattr(getattr(tensor, "_local_tensor", tensor), "trigger_wait")


PIECE: Final = 1 << 20
"""Bytes of values that are copied to the host at a time."""


def local(tensor: torch.Tensor) -> torch.Tensor:
    """``part_of`` a tensor, without history."""
    return part_of(tensor).detach()


def readable(tensor: torch.Tensor) -> bool:
    """Tells whether a tensor has plain values in memory: not quantized, not without a device, not transformed."""
    return not (tensor.is_meta or tensor.is_quantized or tensor.is_nested or transformed(tensor))


def is_simple(tensor: torch.Tensor) -> bool:
    """Tells whether a tensor is plain, dense, not empty, and of a type whose norm can be taken."""
    plain = type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter
    return (
        plain and tensor.dtype in _SIMPLE and tensor.layout is torch.strided and tensor.numel() > 0 and readable(tensor)
    )


_SIMPLE: Final = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})


def dense(tensor: torch.Tensor) -> torch.Tensor:
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
    """The name of an element type, as in NumPy and ml_dtypes where they have it."""
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
    return tensor.dtype in _NAMES


def as_array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """The values of a numeric tensor in host memory; only sparse or conjugated tensors are copied."""
    plain = dense(local(tensor)).resolve_conj().resolve_neg()
    kind = dtype_of(type_name(plain.dtype))
    if kind is None:
        raise TypeError(plain.dtype)
    if not plain.numel():
        return np.empty(tuple(plain.shape), kind)
    bits = np.dtype(np.uint8 if plain.element_size() == 1 else np.int16)
    width = bits if plain.dtype in _AS_BITS else np.dtype(kind)
    return np.asarray(_TensorMemory(plain, width.str)).view(kind)


class _TensorMemory:
    """The memory of a tensor as NumPy reads it. After ``Tensor.numpy`` FSDP could not resize it any more."""

    __slots__ = ("__array_interface__", "_tensor")

    def __init__(self, tensor: torch.Tensor, width: str) -> None:
        """``width``: NumPy's text for the type of the elements. The tensor lives as long as an array of it."""
        self._tensor = tensor
        self.__array_interface__ = {
            "version": 3,
            "typestr": width,
            "shape": tuple(tensor.shape),
            "strides": tuple(step * tensor.element_size() for step in tensor.stride()),
            "data": (tensor.data_ptr(), True),
        }


def flat_pieces(tensor: torch.Tensor, elements: int) -> Iterator[torch.Tensor]:
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
    plain = dense(tensor).resolve_conj().resolve_neg()
    for piece in flat_pieces(plain, max(1, PIECE // plain.element_size())):
        row = piece.contiguous().cpu()
        if row.stride() != (1,):  # an expanded single element is contiguous with any stride
            row = row.clone(memory_format=torch.contiguous_format)
        yield as_array(row.view(torch.uint8)).tobytes()
