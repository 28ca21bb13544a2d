"""The table of operators that can be recomputed: by name, with how their arguments are bound.

An operator is a function with the signature that the framework documents, on arrays as they were recorded. It returns
an ``Expected`` for each output, or None for outputs that it cannot predict. Arguments are bound by that signature, by
position and by name; a call with an unknown argument is refused, so it is never recomputed wrongly. Functions run
without numpy's warnings of numbers that overflow or are not finite.
"""

from __future__ import annotations

import inspect
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from tui_debugger.arrays import Shape
from tui_debugger.graph.categories import plain_type

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)
ALIASES: Final[Mapping[str, str]] = {
    "axis": "dim",
    "keepdims": "keepdim",
    "keep_dims": "keepdim",
    "x": "input",
    "self": "input",
    "min_val": "min",
    "max_val": "max",
    "epsilon": "eps",
    "indices": "input",
    "size": "shape",
    "split_sizes": "split_size",
    "train": "training",
    **dict.fromkeys(("other", "vec", "tensor", "batch2"), "mat2"),
    **dict.fromkeys(("mat", "batch1"), "mat1"),
}
"""Other spellings of argument names; used where the signature has only the second spelling."""
IGNORED: Final = frozenset(
    {
        *("inplace", "out", "name", "generator", "layout", "memory_format", "non_blocking", "copy"),
        *("device", "pin_memory", "implicit", "half_to_float", "input_dtype"),
    }
)
"""Arguments that do not affect the values."""


COMPLEX_TOO: Final = frozenset(
    {
        *("reshape", "transpose", "expand", "repeat", "flip", "roll", "triangle", "concatenate", "stack", "split"),
        *("index", "gather", "embedding", "copy", "conj", "cast", "fill", "where", "masked fill"),
        *("add", "sub", "mul", "neg", "abs", "sum", "mean", "matmul", "linear", "addmm", "norm"),
        *("comparison", "logic"),
    }
)
"""Kinds of operators whose rule holds for complex numbers as well."""
COMPLEX: Final = "complex values"
"""The reason why an operator of any other kind is not checked."""


ALL_REDUCE: Final = "all reduce"
"""The kind of an all-reduce, which needs the inputs of all ranks and so has no function in the tables."""
UPDATE_OF_OPTIMIZER: Final = "optimizer"
"""The kind of the update of a weight by an optimizer of PyTorch's own."""
WEIGHT_GRADIENT: Final = "gradient of weight"
"""The kind of the gradient of a module's own weight."""
GRADIENTS: Final[dict[str, str]] = {}
"""The kinds of gradients of modules' inputs, by class of the module."""
LINEAR_GRADIENT: Final = "gradient of linear"
"""The kind of the gradient of a linear module's input; the weight is recorded with the forward node."""


class CannotBindError(Exception):
    """The call does not fit the operator; the message is the reason for people."""


class UnlikeError(CannotBindError):
    """The output differs from arithmetic, but the node may have used other values than the recorded ones."""


@dataclass(frozen=True, slots=True)
class MissingArgument:
    """An argument that was not recorded."""

    reason: str


class Alternatives:
    """Several possible outcomes, where the dump does not tell which one is meant: the one that fits best counts.

    ``guessed`` is the reason not to check if no choice fits most elements; empty where the choices are complete.
    """

    def __init__(self, *choices: Any, guessed: str = "") -> None:
        self.choices = choices
        self.guessed = guessed


def choices_of(result: Any) -> tuple[Any, ...]:
    return result.choices if isinstance(result, Alternatives) else (result,)


class ByShape:
    """An outcome that depends on the shape of the output, because the compiler removed reshapes."""

    def __init__(self, function: Callable[[Shape], Any]) -> None:
        self.function = function


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator that can be recomputed.

    Attributes:
        kind: its name in coverage, the same for every framework.
        split: where a large output is cut into parts. ``elements``: anywhere; ``rows``: along all but the last
            dimension of the first argument; ``last``: the same, where the operator works along the last dimension;
            ``sums``: the same, where the last dimension is reduced; ``batches``: along all but the last two dimensions;
            empty: nowhere.
        graph: of MindSpore's graphs: attributes are arguments.
        writes: slots of the inputs that are parameters and overwritten, in the order of the outputs.
        unneeded: arguments that may be missing, because the output tells as much.
        recorded: arguments that must have a value, although the function has a default for them.
        single: float32 loses next to nothing for values of 16 bits, because no larger numbers cancel on the way.
    """

    kind: str
    function: Function
    split: str = ""
    graph: bool = False
    writes: tuple[int, ...] = ()
    unneeded: tuple[str, ...] = ()
    recorded: tuple[str, ...] = ()
    single: bool = False

    def bind(
        self,
        positional: Sequence[Any],
        keywords: Mapping[str, Any],
        attributes: Mapping[str, Any],
        parameters: Mapping[str, Any],
    ) -> BoundCall:
        """Returns the call of the function; CannotBindError where the arguments do not fit."""
        signature = inspect.signature(self.function)
        known = signature.parameters
        several = next((name for name, each in known.items() if each.kind is each.VAR_POSITIONAL), "")
        others = next((name for name, each in known.items() if each.kind is each.VAR_KEYWORD), "")
        named: dict[str, Any] = {}
        for key, value in {**keywords, **parameters}.items():
            name = key if key in known else ALIASES.get(key, key)
            if name in known or others.strip("_"):
                named[name] = value
            elif key not in IGNORED and not others:
                raise CannotBindError(f"argument not known: {key}")
        if len(positional) > _most(signature) and isinstance(positional[-1], bool):
            positional = positional[:-1]  # ``inplace`` comes last
        sizes = named.pop(several, None)  # sizes or dimensions, as a list by name
        try:
            bound = signature.bind(*positional, **named)
        except TypeError as error:
            raise CannotBindError(f"arguments do not fit: {error}") from error
        if sizes is not None:
            if several in bound.arguments:
                raise CannotBindError(f"arguments do not fit: several values for {several}")
            bound.arguments[several] = (sizes,)
        for key, value in attributes.items():
            name = key if key in known else ALIASES.get(key, key)
            if name in known and name not in bound.arguments:
                bound.arguments[name] = value
        self._require_recorded(bound.arguments)
        bound = _reordered(signature, bound)
        return BoundCall(self, bound.args, bound.kwargs)

    def _require_recorded(self, arguments: Mapping[str, Any]) -> None:
        for name, value in arguments.items():
            for each in value if isinstance(value, tuple) else value.values() if isinstance(value, dict) else (value,):
                if isinstance(each, MissingArgument) and name not in self.unneeded:
                    raise CannotBindError(each.reason)
        for name in self.recorded:
            if arguments.get(name) is None:
                raise CannotBindError(f"its {name} was not recorded")


class BoundCall(NamedTuple):
    """An operator with the arguments for its function."""

    operator: Operator
    args: tuple[Any, ...]
    named: dict[str, Any]

    @property
    def values(self) -> tuple[Any, ...]:
        return *self.args, *self.named.values()

    def result(self, shape: Shape | None = None) -> Any:
        """What the operator makes of the arguments, of a ``shape`` if given; CannotBindError where they do not fit."""
        with np.errstate(all="ignore"):
            try:
                made = self.operator.function(*self.args, **self.named)
                return made.function(shape) if isinstance(made, ByShape) and shape is not None else made
            except (ValueError, IndexError, TypeError, AttributeError, OverflowError) as error:
                raise CannotBindError(f"arguments do not fit: {error}") from error

    def with_each(self, change: Callable[[Any], Any]) -> BoundCall:
        return self._replace(
            args=tuple(map(change, self.args)), named={name: change(each) for name, each in self.named.items()}
        )

    def along_last(self) -> BoundCall:
        """The same call for rows, which keep only the last dimension."""
        args = (self.args[0], -1, *self.args[2:]) if len(self.args) > 1 else self.args
        return self._replace(args=args, named={**self.named, "dim": -1} if "dim" in self.named else self.named)


def _most(signature: inspect.Signature) -> float:
    kinds = [each.kind for each in signature.parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return math.inf
    return sum(each is inspect.Parameter.POSITIONAL_OR_KEYWORD for each in kinds)


def _reordered(signature: inspect.Signature, bound: inspect.BoundArguments) -> inspect.BoundArguments:
    given = {name: bound.arguments[name] for name in signature.parameters if name in bound.arguments}
    return inspect.BoundArguments(signature, OrderedDict(given))


CALLS: Final[dict[str, Operator]] = {}
"""Functions of PyTorch, and of MindSpore where the signature is the same, by plain name."""
GRAPHS: Final[dict[str, Operator]] = {}
"""Operators of MindSpore's graphs, by lower-case name."""
ATEN: Final[dict[str, Operator]] = {}
"""Operators of PyTorch below autograd, by the type that our client records, with the arguments of their schemas."""
MODULES: Final[dict[str, Operator]] = {}
"""Modules whose outputs follow from their recorded inputs and attributes, by class."""


def operator(
    kind: str,
    calls: str = "",
    *,
    graphs: str = "",
    modules: str = "",
    aten: str = "",
    **how: Any,
) -> Callable[[F], F]:
    """Enters a function in the tables, under the names (words) that each of them has for it.

    ``how`` are the other attributes of ``Operator``.
    """

    def enter(function: F) -> F:
        made = Operator(kind, function, **how)
        CALLS.update({plain_type(name): made for name in calls.split()})
        GRAPHS.update({name.lower(): replace(made, graph=True) for name in graphs.split()})
        MODULES.update(dict.fromkeys(modules.split(), made))
        ATEN.update(dict.fromkeys(aten.split(), made))
        return function

    return enter


def find_operator(op_type: str, *, is_module: bool, is_graph: bool, is_aten: bool = False) -> Operator | None:
    if is_aten:
        return ATEN.get(op_type)
    if is_module:
        return MODULES.get(op_type)
    # msprobe may record an operator of MindSpore's graphs as a function: ``Primitive.norm.LayerNorm``.
    found = GRAPHS.get(op_type.lower()) if is_graph or op_type[:1].isupper() else None
    return found or CALLS.get(plain_type(op_type))


def kinds() -> tuple[str, ...]:
    tables = (CALLS, GRAPHS, MODULES, ATEN)
    others = {ALL_REDUCE, LINEAR_GRADIENT, UPDATE_OF_OPTIMIZER, *GRADIENTS.values(), WEIGHT_GRADIENT}
    return tuple(sorted({each.kind for table in tables for each in table.values()} | others))
