"""Expressions of all kinds for tests, and what they come to on one tensor, number by number.

Of the program the evaluator uses the tree and the table of statistics, nothing of what judges columns.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Final

from hypothesis import strategies as st

from tui_debugger.model import CATEGORY_WORDS, AtLeast, TensorMeta, TensorStats
from tui_debugger.stats.fields import QUANTITIES
from tui_debugger.stats.records import Record
from tui_debugger.watch.expression import (
    NUMBER_FACTS,
    Arithmetic,
    ComparisonChain,
    Expression,
    Fact,
    FunctionCall,
    Joined,
    Negative,
    Node,
    Not,
    Number,
    Quantity,
    Text,
)

numbers = st.sampled_from([0.0, 1e-12, 0.5, 1.0, 2.0, 6.0, 99.5, 1e30]).map(Number)
quantities = st.builds(Quantity, st.sampled_from(sorted(QUANTITIES)), st.booleans())
number_facts = st.sampled_from(sorted(NUMBER_FACTS)).map(Fact)


def _sums_and_products(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    def chain(signs: str) -> st.SearchStrategy[Node]:
        rest = st.lists(st.tuples(st.sampled_from(signs), inner), min_size=1, max_size=3).map(tuple)
        return st.builds(joined, inner, rest)

    def joined(first: Node, rest: tuple[tuple[str, Node], ...]) -> Node:
        """As it is read: (a + b) + c is a + b + c."""
        if isinstance(first, Arithmetic) and (first.rest[0][0] in "+-") == (rest[0][0] in "+-"):
            return Arithmetic(first.first, first.rest + rest)
        return Arithmetic(first, rest)

    def call(function: str, least: int, most: int) -> st.SearchStrategy[Node]:
        return st.builds(FunctionCall, st.just(function), st.lists(inner, min_size=least, max_size=most).map(tuple))

    calls = [call(each, 1, 1) for each in ("abs", "sqrt", "log10")] + [call(each, 2, 3) for each in ("min", "max")]
    return st.one_of(chain("+-"), chain("*/"), st.builds(Negative, inner), *calls)


values = st.recursive(st.one_of(numbers, quantities, quantities, number_facts), _sums_and_products, max_leaves=5)
texts = st.sampled_from(["weight", "MatMul", "float32", "it's", 'a "b"', "a@b"]).map(Text)
_links = st.lists(st.tuples(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), values), min_size=1, max_size=2)
_equal = st.sampled_from(["==", "!="])
comparisons = st.one_of(
    st.builds(ComparisonChain, values, _links.map(tuple)),
    st.builds(
        lambda name, sign, text: ComparisonChain(Fact(name), ((sign, text),)),
        st.sampled_from(["dtype", "type", "name"]),
        _equal,
        texts,
    ),
    st.builds(
        lambda sign, word: ComparisonChain(Text(word), ((sign, Fact("category")),)),
        _equal,
        st.sampled_from(sorted(CATEGORY_WORDS)),
    ),
)


def _joined(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    parts = st.lists(inner, min_size=2, max_size=3)

    def by(word: str) -> st.SearchStrategy[Node]:
        flat = parts.filter(lambda some: not any(isinstance(each, Joined) and each.word == word for each in some))
        return st.builds(Joined, st.just(word), flat.map(tuple))

    return st.one_of(by("and"), by("or"), st.builds(Not, inner))


trees = st.recursive(comparisons, _joined, max_leaves=4)


def depth(node: Node) -> int:
    """Returns how deep a tree is."""
    match node:
        case Negative(of) | Not(of):
            return 1 + depth(of)
        case Arithmetic(first, rest) | ComparisonChain(first, rest):
            return 1 + max(depth(first), *(depth(each) for _, each in rest))
        case FunctionCall(_, parts) | Joined(_, parts):
            return 1 + max(depth(each) for each in parts)
        case _:
            return 0


expressions = trees.filter(lambda tree: depth(tree) < 12).map(Expression)


CALCULATED: Final[Mapping[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: a / b if b else math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * _sign(b),
}
COMPARED: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def _sign(x: float) -> float:
    return math.copysign(1.0, x)


def holds(node: Node, record: Record) -> bool | None:
    """Tells whether a condition holds; None: nobody knows. Only what a record tells of facts is known."""
    match node:
        case Not(of):
            inner = holds(of, record)
            return None if inner is None else not inner
        case Joined("and", parts):
            found = [holds(each, record) for each in parts]
            return False if False in found else None if None in found else True
        case Joined(_, parts):
            found = [holds(each, record) for each in parts]
            return True if True in found else None if None in found else False
        case ComparisonChain(Quantity(name, previous), ((sign, Number(value)),)) if beyond(
            least(name, record, previous), sign, value
        ):
            return sign in {">", ">=", "!="}
        case ComparisonChain(Number(value), ((sign, Quantity(name, previous)),)) if beyond(
            least(name, record, previous), sign.translate(TURNED), value
        ):
            return sign in {"<", "<=", "!="}
        case ComparisonChain(first, rest):
            found = []
            for sign, right in rest:
                a, b = side(first, record), side(right, record)
                found.append(None if a is None or b is None else COMPARED[sign](a, b))
                first = right
            return False if False in found else None if None in found else True
    raise TypeError(node)


BITS = {"count": AtLeast.COUNT, "nan": AtLeast.NAN, **dict.fromkeys(("inf", "pos_inf", "neg_inf"), AtLeast.INF)}
BITS |= dict.fromkeys(("zero", "negative", "positive"), AtLeast.COUNT)
"""By quantity what says that there may be more."""


def least(name: str, record: Record, previous: bool) -> float:
    """The least that a count can be; -Inf for what is no count, or not known at all."""
    before = record.previous_stats
    old = before.stats if before is not None and before.state == "ok" else None
    stats = old if previous else record.stats
    return -math.inf if stats is None or name not in BITS else float(getattr(stats, name))


TURNED = str.maketrans("<>", "><")


def beyond(least_one: float, sign: str, value: float) -> bool:
    """Tells whether the least that a count can be answers how it compares with a number."""
    return least_one >= value if sign in {">=", "<"} else least_one > value


def side(node: Node, record: Record) -> float | str | None:
    """Returns one side of a comparison."""
    match node:
        case Text(value):
            return value
        case Fact("dtype"):
            return record.meta.dtype if record.meta is not None else None
        case Fact("name" | "type" | "category"):
            return None
    found = number(node, record)
    return None if math.isnan(found) else found


def number(node: Node, record: Record) -> float:  # noqa: PLR0911 - one for each kind of node
    """Returns what a part comes to; NaN: nobody knows."""
    match node:
        case Number(value):
            return value
        case Fact(name):
            return fact(name, record.meta)
        case Quantity(name, previous=True):
            before = record.previous_stats
            found = quantity(name, before.stats if before is not None and before.state == "ok" else None, record.meta)
            overflowed = found == math.inf and name in {"norm", "std", "variance", "sum_squares"}
            return math.nan if overflowed else found
        case Quantity(name):
            return quantity(name, record.stats, record.meta)
        case Negative(of):
            return -number(of, record)
        case Arithmetic(first, rest):
            result = number(first, record)
            for sign, each in rest:
                result = CALCULATED[sign](result, number(each, record))
            return result
        case FunctionCall(function, arguments):
            return called(function, [number(each, record) for each in arguments])
    raise TypeError(node)


def called(function: str, arguments: list[float]) -> float:
    """Returns what a function makes of numbers."""
    if any(math.isnan(each) for each in arguments):
        return math.nan
    (x, *_) = arguments
    match function:
        case "abs":
            return abs(x)
        case "sqrt":
            return math.sqrt(x) if x >= 0 else math.nan
        case "log10":
            return math.log10(x) if x > 0 else -math.inf if x == 0 else math.nan
        case "min":
            return min(arguments)
    return max(arguments)


def fact(name: str, meta: TensorMeta | None) -> float:
    """Returns a number that is known without values."""
    if meta is None or name in ("step", "rank"):
        return math.nan
    return float(math.prod(meta.shape) if name == "size" else len(meta.shape))


def quantity(name: str, stats: TensorStats | None, meta: TensorMeta | None) -> float:
    """Returns a statistic, where it is known: a count of 0 of a tensor with elements is none."""
    if stats is None:
        return math.nan
    if not stats.count and name in ("count", "zero_pct"):
        empty = meta is not None and not math.prod(meta.shape)
        return 0.0 if name == "count" and empty else math.nan
    if name in ("zero", "zero_pct", "negative", "positive") and (
        stats.zero + stats.negative + stats.positive != stats.finite
    ):
        return math.nan
    if stats.at_least & BITS.get(name, AtLeast.NONE):
        return math.nan
    try:
        found = QUANTITIES[name].value(stats)
    except ValueError:  # the root of a negative number
        return math.nan
    return math.nan if found is None else float(found)
