"""The table of operators that can be recomputed: by name, and how their arguments are bound.

An operator is a function with the signature that the framework documents, on arrays as they were recorded; it returns
what each output is (``Expected``), None for outputs that it says nothing of. Arguments are bound by that signature,
by position and by name, so a call with an argument that is not known here is never recomputed wrongly.
"""

from __future__ import annotations

import inspect
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

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
}
"""Names of arguments that are spelled otherwise here and there; used where the signature knows the second only."""
IGNORED: Final = frozenset(
    {
        *("inplace", "out", "name", "generator", "layout", "memory_format", "non_blocking", "copy"),
        *("device", "pin_memory"),
    }
)
"""Arguments that say nothing of the values."""


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
"""The kind of what is computed from the inputs of all ranks: no function of one call."""
UPDATE_OF_OPTIMIZER: Final = "optimizer"
"""The kind of the update of a weight by an optimizer of PyTorch's own."""
WEIGHT_GRADIENT: Final = "gradient of weight"
"""The kind of the gradient of a module's own weight."""
GRADIENTS: Final[dict[str, str]] = {}
"""The kinds of gradients of modules' inputs, by class."""
LINEAR_GRADIENT: Final = "gradient of linear"
"""The kind of the gradient of a module's input: the weight is that of another node."""


class CannotBindError(Exception):
    """The call does not fit the operator; the text says why."""


class UnlikeError(CannotBindError):
    """Arithmetic says otherwise, and something else than what was recorded may have been meant; the text says what."""


@dataclass(frozen=True, slots=True)
class MissingArgument:
    """An argument that was not recorded.

    Attributes:
        reason: why not.
    """

    reason: str


class Alternatives:
    """Several outcomes, of which the dump does not say which was meant: the one that fits best counts.

    Attributes:
        choices: what an operator may return.
        guessed: what to say where not even most elements fit any of them, because there may be other choices; empty
            where these are all.
    """

    def __init__(self, *choices: Any, guessed: str = "") -> None:
        self.choices = choices
        self.guessed = guessed


class ByShape:
    """An outcome that needs the shape of the output: the compiler took out the reshapes of the inputs."""

    def __init__(self, function: Callable[[tuple[int, ...]], Any]) -> None:
        """``function`` makes the outcome of the shape."""
        self.function = function


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator that can be recomputed.

    Attributes:
        kind: what it is called in coverage, whatever the framework's name is.
        function: computes it.
        split: how a large one is taken part by part: ``elements``: every element by itself; ``rows``: along all but
            the last dimension of the first argument; ``last``: the same, where the operator goes along that; ``sums``:
            the same, where that is reduced; ``batches``: along all but the last two; empty: at once.
        graph: its arguments are those of MindSpore's graphs: attributes count.
        module: a module of PyTorch or MindSpore: parameters are arguments by name.
        writes: the inputs that are parameters and written over, in the order of the outputs.
        unneeded: arguments that may be missing, because the output tells as much.
        single: of values of 16 bits float32 loses next to nothing: no difference of larger numbers is on the way.
    """

    kind: str
    function: Function
    split: str = ""
    graph: bool = False
    module: bool = False
    writes: tuple[int, ...] = ()
    unneeded: tuple[str, ...] = ()
    single: bool = False

    def bind(
        self,
        positional: Sequence[Any],
        keywords: Mapping[str, Any],
        attributes: Mapping[str, Any],
        parameters: Mapping[str, Any],
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns positional and keyword arguments for the function.

        Raises:
            CannotBindError: they do not fit its signature.
        """
        signature = inspect.signature(self.function)
        known = signature.parameters
        several = next((name for name, each in known.items() if each.kind is each.VAR_POSITIONAL), "")
        named: dict[str, Any] = {}
        for key, value in {**keywords, **parameters}.items():
            name = key if key in known else ALIASES.get(key, key)
            if name in known:
                named[name] = value
            elif key not in IGNORED and not any(each.kind is each.VAR_KEYWORD for each in known.values()):
                raise CannotBindError(f"argument not known: {key}")
        if len(positional) > _most(signature) and isinstance(positional[-1], bool):
            positional = positional[:-1]  # inplace, which comes last
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
        for name, value in list(bound.arguments.items()):
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, MissingArgument) and name not in self.unneeded:
                    raise CannotBindError(each.reason)
        bound = _reordered(signature, bound)
        return bound.args, bound.kwargs


def _most(signature: inspect.Signature) -> float:
    """The number of positional arguments that there may be."""
    kinds = [each.kind for each in signature.parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return math.inf
    return sum(each is inspect.Parameter.POSITIONAL_OR_KEYWORD for each in kinds)


def _reordered(signature: inspect.Signature, bound: inspect.BoundArguments) -> inspect.BoundArguments:
    """Arguments in the order of the signature: attributes were added behind."""
    given = {name: bound.arguments[name] for name in signature.parameters if name in bound.arguments}
    return inspect.BoundArguments(signature, OrderedDict(given))


CALLS: Final[dict[str, Operator]] = {}
"""Functions of PyTorch, and MindSpore's where they have the same signature, by plain name."""
GRAPHS: Final[dict[str, Operator]] = {}
"""Operators of MindSpore's graphs, by lower-case name."""
ATEN: Final[dict[str, Operator]] = {}
"""Operators of PyTorch below autograd, by the type that our client gives them, with the arguments of their schemas."""
MODULES: Final[dict[str, Operator]] = {}
"""Modules whose outputs follow from what is recorded of them, by class."""


def call(kind: str, *names: str, split: str = "", single: bool = False) -> Callable[[F], F]:
    """Enters a function of PyTorch under its names."""

    def enter(function: F) -> F:
        for name in names or (kind,):
            CALLS[plain_type(name)] = Operator(kind, function, split, single=single)
        return function

    return enter


def graph(
    kind: str,
    *names: str,
    split: str = "",
    writes: tuple[int, ...] = (),
    unneeded: tuple[str, ...] = (),
    single: bool = False,
) -> Callable[[F], F]:
    """Enters an operator of MindSpore's graphs under its names."""

    def enter(function: F) -> F:
        for name in names:
            made = Operator(kind, function, split, graph=True, writes=writes, unneeded=unneeded, single=single)
            GRAPHS[name.lower()] = made
        return function

    return enter


def aten(kind: str, *names: str, split: str = "", single: bool = False) -> Callable[[F], F]:
    """Enters an operator below autograd under its types."""

    def enter(function: F) -> F:
        for name in names:
            ATEN[name] = Operator(kind, function, split, single=single)
        return function

    return enter


def module(kind: str, *names: str, split: str = "", single: bool = False) -> Callable[[F], F]:
    """Enters a module under the names of its classes."""

    def enter(function: F) -> F:
        for name in names:
            MODULES[name] = Operator(kind, function, split, module=True, single=single)
        return function

    return enter


def find_operator(op_type: str, *, is_module: bool, is_graph: bool, is_aten: bool = False) -> Operator | None:
    """Returns how to recompute operators of a type; None where that is not known."""
    if is_aten:
        return ATEN.get(op_type)
    if is_module:
        return MODULES.get(op_type)
    # A function of msprobe's that MindSpore made may be one of its operators: ``Primitive.norm.LayerNorm``.
    found = GRAPHS.get(op_type.lower()) if is_graph or op_type[:1].isupper() else None
    return found or CALLS.get(plain_type(op_type))


def kinds() -> tuple[str, ...]:
    """Every kind of operator that can be recomputed, in the order of the alphabet."""
    tables = (CALLS, GRAPHS, MODULES, ATEN)
    others = {ALL_REDUCE, LINEAR_GRADIENT, UPDATE_OF_OPTIMIZER, *GRADIENTS.values(), WEIGHT_GRADIENT}
    return tuple(sorted({each.kind for table in tables for each in table.values()} | others))
