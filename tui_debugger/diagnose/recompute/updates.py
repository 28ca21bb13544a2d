"""Operators that overwrite parameters, and operators that exchange values between ranks.

A parameter after the step is compared with the update of its value before the step, which comes from the step before.
Coefficients such as 0.999 are rounded to float32 first, because 1 - 0.999 differs between float32 and float64.
"""

# ruff: noqa: ARG001, PLR0917 - arguments are those of the frameworks, by name and order

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array, Float64
from tui_debugger.diagnose.recompute.judge import Expected, doubles, wide
from tui_debugger.diagnose.recompute.table import Alternatives, CannotBindError, operator


def _single(value: Any) -> Any:
    """A coefficient as the kernel has it: a Python number is rounded to float32."""
    return doubles(value) if isinstance(value, np.ndarray) else float(np.float32(value))


@operator("momentum", graphs="ApplyMomentum Momentum", writes=(0, 1))
def momentum(
    variable: Array,
    accumulation: Array,
    learning_rate: Any,
    gradient: Array,
    momentum: Any,
    *,
    use_nesterov: bool = False,
    gradient_scale: float = 1.0,
) -> Any:
    before, gathered, came = doubles(variable), doubles(accumulation), doubles(gradient) * gradient_scale
    rate, share = _single(learning_rate), _single(momentum)
    after = gathered * share + came
    size = np.hypot(gathered * share, came)
    moved = rate * (came + share * after) if use_nesterov else rate * after
    off = np.abs(rate) * (size + np.abs(came) * use_nesterov) * 2
    return Expected(before - moved, np.abs(before) + off), Expected(after, size * 2)


@operator("sgd", graphs="SGD", writes=(0, 3, 5))
def sgd(
    parameters: Array,
    gradient: Array,
    learning_rate: Any,
    accum: Array,
    momentum: Any,
    stat: Array,
    *,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
) -> Any:
    """MindSpore's SGD, whose first step uses the gradient as the momentum."""
    before, came, gathered = doubles(parameters), doubles(gradient), doubles(accum)
    came = came + weight_decay * before
    rate, share = _single(learning_rate), _single(momentum)
    first = doubles(stat) > 0
    after = np.where(first, came, gathered * share + (1 - dampening) * came)
    size = np.hypot(gathered * share, came) + np.abs(weight_decay * before)
    moved = came + share * after if nesterov else after
    if not np.any(share):
        moved, after = came, gathered
    off = np.abs(rate) * (size + np.abs(moved)) * 2
    return Expected(before - rate * moved, np.abs(before) + off), Expected(after, size * 2)


@operator("adam", graphs="Adam ApplyAdam", writes=(0, 1, 2))
def adam(
    var: Array,
    m: Array,
    v: Array,
    beta1_power: Any,
    beta2_power: Any,
    lr: Any,
    beta1: Any,
    beta2: Any,
    epsilon: Any,
    gradient: Array,
    *,
    use_nesterov: bool = False,
) -> Any:
    came, first, second = doubles(gradient), _single(beta1), _single(beta2)
    one, other = _moments(doubles(m), doubles(v), came, first, second)
    power = 1 - _single(beta1_power), 1 - _single(beta2_power)
    rate = _single(lr) * np.sqrt(power[1]) / power[0]
    # The relative error of 1 - power, whose power was rounded.
    lost = 1 + 1 / np.abs(power[0]) + 1 / np.abs(power[1])
    up = one.value * first + (1 - first) * came if use_nesterov else np.asarray(one.value)
    below = np.sqrt(np.asarray(other.value)) + _single(epsilon)
    move = rate * up / below
    off = np.abs(rate) * np.asarray(one.size) / below + np.abs(move) * (2 + lost)
    off = np.nan_to_num(off, posinf=0.0)
    before = doubles(var)
    return Expected(before - move, np.abs(before) + off), one, other


def _moments(
    m: Float64, v: Float64, came: Float64, first: Any, second: Any, shifted: Any = 0.0
) -> tuple[Expected, Expected]:
    """The moments after an update; ``shifted`` is the size of the weight decay in the gradient that ``came``."""
    one = first * m + (1 - first) * came
    other = second * v + (1 - second) * came * came
    lost = np.hypot(first * m, (1 - first) * (np.abs(came) + shifted)) + np.abs(m)
    spread = 2 * np.abs(other) + np.abs(v) + 2 * (1 - second) * np.abs(came) * shifted
    return Expected(one, lost), Expected(other, spread)


@operator("adamw", graphs="AdamWeightDecay", writes=(0, 1, 2))
def adam_weight_decay(
    var: Array,
    m: Array,
    v: Array,
    lr: Any,
    beta1: Any,
    beta2: Any,
    epsilon: Any,
    decay: Any,
    gradient: Array,
) -> Any:
    """Adam without bias correction, with decoupled weight decay."""
    came = doubles(gradient)
    one, other = _moments(doubles(m), doubles(v), came, _single(beta1), _single(beta2))
    below = np.sqrt(np.asarray(other.value)) + _single(epsilon)
    before = doubles(var)
    move = np.asarray(one.value) / below + _single(decay) * before
    rate = _single(lr)
    off = np.abs(rate) * (np.asarray(one.size) / below + 3 * np.abs(move))
    return Expected(before - rate * move, np.abs(before) + off), one, other


@operator("assign", graphs="Assign", writes=(0,), unneeded=("variable",))
def assign(variable: Any, value: Array) -> Any:
    return (Expected(value, exact=True),)


@operator("assign", graphs="AssignAdd", writes=(0,))
def assign_add(variable: Array, value: Any) -> Any:
    if variable.dtype.kind in "iu":
        return (Expected(variable.astype(np.int64) + np.asarray(value).astype(np.int64), exact=True),)
    return (Expected(doubles(variable) + doubles(value)),)


# -- PyTorch's optimizers --------------------------------------------------------------------------------------


def _came(before: Float64, gradient: Array, weight_decay: float, maximize: bool) -> tuple[Float64, Float64]:
    """The gradient including weight decay, and the size of the weight decay."""
    came = -doubles(gradient) if maximize else doubles(gradient)
    return came + weight_decay * before, np.abs(weight_decay * before)


def _sgd(
    parameter: Array,
    gradient: Array,
    rate: Any,
    momentum_buffer: Any = None,
    *,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    maximize: bool = False,
    **_: Any,
) -> Any:
    """PyTorch's SGD, from the second step of a weight on."""
    before, speed = doubles(parameter), float(rate)
    came, size = _came(before, gradient, weight_decay, maximize)
    size = size + np.abs(came)
    if not momentum:
        off = np.abs(before) + np.abs(speed) * size
        return (Expected(before - speed * came, off, narrow=off),)
    if momentum_buffer is None:
        raise CannotBindError("the momentum was not recorded")
    gathered = doubles(momentum_buffer) * momentum
    after = gathered + (1 - dampening) * came
    lost = np.hypot(gathered, size) * 2
    moved = came + momentum * after if nesterov else after
    off = np.abs(before) + np.abs(speed) * (lost + size) * 2
    return Expected(before - speed * moved, off, narrow=off), Expected(after, lost, narrow=lost)


def _adam(
    parameter: Array,
    gradient: Array,
    rate: Any,
    exp_avg: Any = None,
    exp_avg_sq: Any = None,
    after: Array | None = None,
    *,
    betas: Any = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
    amsgrad: bool = False,
    maximize: bool = False,
    **_: Any,
) -> Any:
    """PyTorch's Adam and AdamW; the number of the optimizer's step is deduced from the updated weight (``after``)."""
    if exp_avg is None or exp_avg_sq is None or amsgrad or after is None:
        raise CannotBindError("moments were not recorded, or the largest ones count")
    before, speed = doubles(parameter), float(rate)
    came, shifted = _came(before, gradient, 0.0 if decoupled else weight_decay, maximize)
    first, second = (float(each) for each in betas)
    one, other = _moments(doubles(exp_avg), doubles(exp_avg_sq), came, first, second, shifted)
    kept = before * (1 - speed * weight_decay) if decoupled else before

    def move(step: Any, up: Any, root: Any) -> Any:
        return speed / (1 - first**step) * up / (root / np.sqrt(1 - second**step) + eps)

    up, root = np.asarray(one.value), np.sqrt(other.value)
    step = _step_of(lambda at, some: move(at, up.reshape(-1)[some], root.reshape(-1)[some]), kept - doubles(after))
    moved = np.nan_to_num(move(step, up, root))
    off = np.abs(before) + np.nan_to_num(np.abs(move(step, one.size, root)), posinf=0.0) + 4 * np.abs(moved)
    made = Expected(kept - moved, off), one, other
    return tuple(replace(each, narrow=each.size) for each in made)


_STEPS: Final = np.concatenate([np.arange(1.0, 20_001.0), np.geomspace(20_001, 1e8, 2_000)])
"""Step numbers to try; late steps are sampled, because neighbours give the same update."""
_ASKED: Final = 16
"""How many elements decide on the step number."""


def _step_of(move: Callable[[Any, Any], Any], moved: Float64) -> float:
    """The optimizer's step number whose update is nearest to the actual one, by the elements that moved most."""
    flat = np.abs(np.nan_to_num(moved)).reshape(-1)
    some = np.argsort(flat)[-_ASKED:]
    off = np.abs(move(_STEPS[:, None], some[None, :]) - moved.reshape(-1)[some])
    return float(_STEPS[int(np.argmin(np.median(np.nan_to_num(off, nan=np.inf), axis=1)))])


def optimizer_update(
    optimizer: str, after: Array, parameter: Array, gradient: Array, rate: Any, **more: Any
) -> tuple[Any, ...]:
    """The weight and its states (in the order of ``STATES``) after an update; CannotBindError if not computable."""
    if after.shape != parameter.shape or gradient.shape != parameter.shape:
        raise CannotBindError("shapes do not fit")
    if more.get("differentiable") or optimizer not in STATES:
        raise CannotBindError(f"optimizer not known: {optimizer}")
    if optimizer == "SGD":
        return tuple(_sgd(parameter, gradient, rate, **more))
    decoupled = optimizer == "AdamW" or bool(more.pop("decoupled_weight_decay", False))
    return tuple(_adam(parameter, gradient, rate, after=after, decoupled=decoupled, **more))


STATES: Final[Mapping[str, tuple[str, ...]]] = {
    "SGD": ("momentum_buffer",),
    "Adam": ("exp_avg", "exp_avg_sq"),
    "AdamW": ("exp_avg", "exp_avg_sq"),
}
"""The states that optimizers keep for a weight, by class of the optimizer."""


def all_reduced(inputs: Sequence[Array], reduction: str = "sum") -> Any:
    """What each rank has after an all-reduce; an empty ``reduction`` means that it was not recorded."""
    if len({each.shape for each in inputs}) != 1:
        raise CannotBindError("inputs of several shapes")
    wides = [wide(each) for each in inputs]
    whole = np.sum(wides, axis=0)
    size = np.sqrt(np.sum([each * each for each in wides], axis=0))
    # Values on their way between ranks have the type of the tensor: each partial sum is rounded to it.
    narrow = np.sum(np.abs(wides), axis=0) if len(wides) > 2 else 0.0
    found = {
        "sum": Expected(whole, size, len(wides), narrow=narrow),
        "mean": Expected(whole / len(wides), size / len(wides), len(wides), narrow=narrow / len(wides)),
        "max": Expected(np.max(wides, axis=0)),
        "min": Expected(np.min(wides, axis=0)),
    }
    if not reduction:
        return Alternatives(*found.values())
    if reduction not in found:
        raise CannotBindError(f"reduction not known: {reduction}")
    return found[reduction]
