"""Custom conditions: expressions over statistics of a tensor, of its previous step, and its facts.

Grammar::

    expression = both *( "or" both )
    both       = negated *( "and" negated )
    negated    = "not" negated / comparison
    comparison = sum *( ( "<" / "<=" / ">" / ">=" / "==" / "!=" ) sum )
    sum        = product *( ( "+" / "-" ) product )
    product    = unary *( ( "*" / "/" ) unary )
    unary      = "-" unary / number / text / quantity / "prev." quantity / fact / call / "(" expression ")"
    call       = "abs" ( sum ) / "sqrt" ( sum ) / "log10" ( sum ) / "min" ( sum, sum ... ) / "max" ( sum, sum ... )

Quantities are ``stats.fields.QUANTITIES``. A quoted text is compared with ``==`` and ``!=``. Expressions never run as
Python: this parser makes a tree, which ``watch.evaluate`` evaluates to true, false or unknown. A comparison is unknown
when a side is: an unknown quantity, or an undefined result (``0 / 0``). ``and`` and ``or`` are known where one side
decides. This file must not import numpy: the command line reads it at start-up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from textwrap import wrap
from typing import Final, NoReturn

from tui_debugger.errors import BadWatchpointError, did_you_mean
from tui_debugger.model import CATEGORY_WORDS
from tui_debugger.stats.fields import QUANTITIES

LONGEST: Final = 2000
"""Most characters of an expression."""
DEEPEST: Final = 25
"""Deepest nesting of parentheses, calls, signs and ``not``."""

NUMBER_FACTS: Final[Mapping[str, str]] = {
    "step": "number of the step, from 0",
    "rank": "number of the process",
    "size": "number of elements, by the shape",
    "ndim": "number of dimensions",
}
TEXT_FACTS: Final[Mapping[str, str]] = {
    "dtype": "element type, for example 'float32'",
    "category": "'weight', 'gradient', 'activation' ...: the words that selections have",
    "type": "operator type, in any case",
    "name": "name of the node",
}
"""Facts about a tensor, known without its values: numbers (above), and texts."""
OF_NODES: Final = frozenset({"category", "type", "name"})
"""Facts that belong to the node, not to the tensor."""
FUNCTIONS: Final[Mapping[str, str]] = {
    "abs": "magnitude",
    "min": "the least of several",
    "max": "the greatest of several",
    "sqrt": "root",
    "log10": "decimal logarithm",
}
_SEVERAL: Final = frozenset({"min", "max"})
OF_NOT_FINITE: Final = frozenset({"nan", "inf", "pos_inf", "neg_inf"})
"""Quantities about NaN and Inf; an expression that names one is judged on tensors with NaN or Inf, too."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number literal."""

    value: float


@dataclass(frozen=True, slots=True)
class Text:
    """A text literal."""

    value: str


@dataclass(frozen=True, slots=True)
class Quantity:
    """A statistic of the tensor, or of the same tensor at the previous step."""

    name: str
    previous: bool = False


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that is known without values."""

    name: str


@dataclass(frozen=True, slots=True)
class Negative:
    """The number with the other sign."""

    of: Node


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Sums (``+``, ``-``) or products (``*``, ``/``), from left to right."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """One of ``FUNCTIONS``."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ComparisonChain:
    """Comparisons of neighbours, all of which have to hold."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Negation."""

    of: Node


@dataclass(frozen=True, slots=True)
class Joined:
    """Conditions that are joined by ``and`` or ``or``."""

    word: str
    parts: tuple[Node, ...]


Node = Number | Text | Quantity | Fact | Negative | Arithmetic | FunctionCall | ComparisonChain | Not | Joined
_CONDITIONS: Final = (ComparisonChain, Not, Joined)
"""Nodes that are true or false; the others are numbers or texts."""
Named = Quantity | Fact


@dataclass(frozen=True)
class Expression:
    """A parsed expression."""

    tree: Node

    @cached_property
    def text(self) -> str:
        """The expression in a canonical form that ``parse`` accepts."""
        return written(self.tree)

    @cached_property
    def names(self) -> tuple[Named, ...]:
        """The quantities and facts that it names, each once, in order of appearance."""
        return tuple(dict.fromkeys(_names(self.tree)))

    @property
    def previous(self) -> bool:
        return any(isinstance(each, Quantity) and each.previous for each in self.names)

    @property
    def of_not_finite(self) -> bool:
        """Tells whether it names counts of NaN or Inf, so that these do not block it."""
        own = {each.name for each in self.names if isinstance(each, Quantity) and not each.previous}
        return bool(own & OF_NOT_FINITE)

    @property
    def of_nodes(self) -> bool:
        """Tells whether it names a fact of the node, so that equal values may be judged differently."""
        return any(isinstance(each, Fact) and each.name in OF_NODES for each in self.names)


def name_text(name: Named) -> str:
    return f"prev.{name.name}" if isinstance(name, Quantity) and name.previous else name.name


def written(  # noqa: PLR0911 - one for each kind of node
    node: Node, shown: Callable[[Named], str] = name_text, times: str = "*"
) -> str:
    """Returns a tree as text; ``shown`` gives the text of a name (itself, or its value), ``times`` replaces ``*``."""

    def inner(each: Node, tighter_than: int) -> str:
        text = written(each, shown, times)
        return f"({text})" if _binding(each) <= tighter_than else text

    match node:
        case Number(value):
            return _number_text(value)
        case Text(value):
            return _quoted(value)
        case Quantity() | Fact():
            return shown(node)
        case Negative(of):
            return "-" + inner(of, _binding(node) - 1)
        case Arithmetic(first, rest) if rest[0][0] in "+-":
            own = _binding(node)
            return inner(first, own - 1) + "".join(f" {sign} {inner(each, own)}" for sign, each in rest)
        case Arithmetic(first, rest):
            own = _binding(node)
            signs = {"*": times, "/": "/"}
            return inner(first, own - 1) + "".join(f"{signs[sign]}{inner(each, own)}" for sign, each in rest)
        case FunctionCall(function, arguments):
            return f"{function}({', '.join(written(each, shown, times) for each in arguments)})"
        case ComparisonChain(first, rest):
            own = _binding(node)
            return inner(first, own) + "".join(f" {sign} {inner(each, own)}" for sign, each in rest)
        case Not(of):
            return "not " + inner(of, _binding(node) - 1)
        case Joined(word, parts):
            return f" {word} ".join(inner(each, _binding(node)) for each in parts)


def _binding(node: Node) -> int:
    """Returns the precedence of a node; higher binds tighter."""
    match node:
        case Joined(word, _):
            return 1 if word == "or" else 2
        case Not():
            return 3
        case ComparisonChain():
            return 4
        case Arithmetic(_, rest):
            return 5 if rest[0][0] in "+-" else 6
        case Negative():
            return 7
        case _:
            return 8


def _number_text(value: float) -> str:
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _quoted(text: str) -> str:
    return f'"{text}"' if "'" in text else f"'{text}'"


def _names(node: Node) -> Iterator[Named]:
    match node:
        case Quantity() | Fact():
            yield node
        case Negative(of) | Not(of):
            yield from _names(of)
        case Arithmetic(first, rest) | ComparisonChain(first, rest):
            for each in (first, *(part for _, part in rest)):
                yield from _names(each)
        case FunctionCall(_, parts) | Joined(_, parts):
            for each in parts:
                yield from _names(each)


def parse(text: str) -> Expression:
    """Reads an expression, or raises BadWatchpointError with the marked place."""
    _check_length(text)
    expression = _parse(text)
    _check_length(expression.text)  # the canonical text, which is stored and read again, may be longer
    return expression


def _check_length(text: str) -> None:
    if len(text) > LONGEST:
        msg = f"the expression has {len(text):,} characters, more than {LONGEST:,}"
        where, _ = _excerpt(text, 0)
        raise BadWatchpointError(msg, where=where, hint="write a shorter one, or several watchpoints")


@lru_cache(maxsize=512)
def _parse(text: str) -> Expression:
    parser = _ExpressionParser(text)
    tree = parser.expression(0)
    if parser.kind:
        parser.fail(f"{_short(parser.word)!r} is one too many", "join comparisons by and, or")
    if not isinstance(tree, _CONDITIONS):
        parser.fail_at(0, "this is a value, and says neither true nor false", "compare it: max > 1")
    return Expression(tree)


_SHOWN: Final = 60
"""Characters of an expression that an error shows around the place."""


def _excerpt(text: str, at: int) -> tuple[str, str]:
    """Returns the surroundings of a place, and a line with a caret to be shown below them."""
    start = max(0, min(at - _SHOWN // 2, len(text) - _SHOWN))
    piece = "".join(each if each.isprintable() else " " for each in text[start : start + _SHOWN])
    before = "…" if start else ""
    after = "…" if start + _SHOWN < len(text) else ""
    return f"{before}{piece}{after}", " " * (len(before) + at - start) + "^"


_TOKEN: Final = re.compile(
    r"""(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<name>[A-Za-z_][A-Za-z_0-9]*(?:\.[A-Za-z_][A-Za-z_0-9]*)*)
    | (?P<text>'[^']*'|"[^"]*")
    | (?P<sign><=|>=|==|!=|[≤≥≠]|[-+*/·<>(),])""",
    re.VERBOSE,
)
_SAME: Final = {"≤": "<=", "≥": ">=", "≠": "!=", "·": "*"}
_COMPARING: Final = frozenset({"<", "<=", ">", ">=", "==", "!="})
_OTHER_LANGUAGES: Final = {
    "=": "write == for equal",
    "&": "write and",
    "|": "write or",
    "!": "write not",
    "%": "percentages are numbers from 0 to 100",
    "^": "write x*x",
    "'": "close the quote",
    '"': "close the quote",
}
_ENDS: Final = frozenset({"and", "or", "not"})
_LIKE_DTYPE: Final = re.compile(
    r"(?:torch\.)?(?:(?:b?f|fp|b?float|u?int|[iu])[0-9]*|half|double|bool(?:ean)?)", re.IGNORECASE
)
"""Names of element types in this and other tools."""


class _ExpressionParser:
    """Reads an expression from left to right.

    ``kind``, ``word`` and ``at`` are the next token and its place; ``kind`` is empty at the end.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._next = 0
        self.kind, self.word, self.at = "", "", 0
        self.advance()

    def advance(self) -> None:
        text = self._text
        while self._next < len(text) and text[self._next].isspace():
            self._next += 1
        self.at = self._next
        if self.at == len(text):
            self.kind, self.word = "", ""
            return
        found = _TOKEN.match(text, self.at)
        if found is None:
            sign = text[self.at]
            self.fail(f"{sign!r} is no part of an expression", _OTHER_LANGUAGES.get(sign, _HINT))
        self.kind, self.word = found.lastgroup or "", _SAME.get(found[0], found[0])
        self._next = found.end()

    def fail(self, what: str, hint: str) -> NoReturn:
        self.fail_at(self.at, what, hint)

    def fail_at(self, at: int, what: str, hint: str) -> NoReturn:
        where, caret = _excerpt(self._text, at)
        # The place is repeated in the hint, which callers do not overwrite when they set ``where``.
        raise BadWatchpointError(f"{what} (character {at + 1})", where=where, hint=f"{where}\n{caret}\n{hint}")

    def expression(self, depth: int) -> Node:
        return self._joined("or", lambda: self._joined("and", lambda: self._negated(depth)))

    def _joined(self, word: str, part: Callable[[], Node]) -> Node:
        at = self.at
        parts = [part()]
        if not (self.kind == "name" and self.word == word):
            return parts[0]
        self._condition(parts[0], at)
        while self.kind == "name" and self.word == word:
            self.advance()
            at = self.at
            parts.append(part())
            self._condition(parts[-1], at)
        flat: list[Node] = []
        for each in parts:
            flat += each.parts if isinstance(each, Joined) and each.word == word else (each,)
        return Joined(word, tuple(flat))

    def _condition(self, node: Node, at: int) -> None:
        if not isinstance(node, _CONDITIONS):
            self.fail_at(at, "this is a value, and says neither true nor false", "compare it: max > 1")

    def _value(self, node: Node, at: int) -> None:
        if isinstance(node, _CONDITIONS):
            self.fail_at(at, "this is true or false, and no number", "compare numbers, and join comparisons by and, or")

    def _number(self, node: Node, at: int) -> None:
        self._value(node, at)
        if _is_text(node):
            self.fail_at(at, "this is a text, and no number", "texts are compared by == and !=")

    def _deeper(self, depth: int) -> int:
        if depth >= DEEPEST:
            self.fail(f"the expression is more than {DEEPEST} levels deep", "write it with fewer parentheses")
        return depth + 1

    def _negated(self, depth: int) -> Node:
        if self.kind == "name" and self.word == "not":
            depth = self._deeper(depth)
            self.advance()
            at = self.at
            found = self._negated(depth)
            self._condition(found, at)
            return Not(found)
        return self._comparison(depth)

    def _comparison(self, depth: int) -> Node:
        at = self.at
        first = self._arithmetic(depth, "+-")
        rest: list[tuple[str, Node]] = []
        places = [at]
        while self.kind == "sign" and self.word in _COMPARING:
            sign = self.word
            self.advance()
            places.append(self.at)
            rest.append((sign, self._arithmetic(depth, "+-")))
        if not rest:
            return first
        for node, place in zip([first, *(each for _, each in rest)], places, strict=True):
            self._value(node, place)
        left = first
        for (sign, right), place in zip(rest, places[1:], strict=True):
            self._comparable(left, sign, right, place)
            left = right
        return ComparisonChain(first, tuple(rest))

    def _comparable(self, left: Node, sign: str, right: Node, at: int) -> None:
        """Refuses comparing texts with numbers, and words that no fact can equal."""
        if not _is_text(left) and not _is_text(right):
            return
        if not (_is_text(left) and _is_text(right)):
            self.fail_at(at, "a text is compared with a number", "put names into quotes: category == 'weight'")
        if sign not in ("==", "!="):
            self.fail_at(at, "texts are equal or not, never greater", "write == or !=")
        facts = [each for each in (left, right) if isinstance(each, Fact)]
        texts = [each for each in (left, right) if isinstance(each, Text)]
        if len(facts) != 1:
            self.fail_at(at, "a fact is compared with a text in quotes", "for example dtype == 'float16'")
        if facts[0].name == "category" and texts[0].value not in CATEGORY_WORDS:
            what = f"no category is called {_short(texts[0].value)!r}"
            self.fail_at(at, what, _known(texts[0].value.lower(), CATEGORY_WORDS))
        if facts[0].name == "dtype" and _LIKE_DTYPE.fullmatch(texts[0].value):
            self._dtype(texts[0].value, at)

    def _dtype(self, word: str, at: int) -> None:
        """Refuses misspelled element types, which nothing would ever equal."""
        from tui_debugger.stats.dtypes import NAMES, canonical_name

        found = canonical_name(word)
        if found != word:
            hint = f"write {_quoted(found)}" if found else _known("", NAMES)
            self.fail_at(at, f"no element type is called {word!r}", hint)

    def _arithmetic(self, depth: int, signs: str) -> Node:
        def part() -> Node:
            return self._arithmetic(depth, "*/") if signs == "+-" else self._unary(depth)

        at = self.at
        first = part()
        rest: list[tuple[str, Node]] = []
        while self.kind == "sign" and self.word in signs:
            if not rest:
                self._number(first, at)
            sign = self.word
            self.advance()
            place = self.at
            each = part()
            self._number(each, place)
            rest.append((sign, each))
        if not rest:
            return first
        if isinstance(first, Arithmetic) and first.rest[0][0] in signs:  # (a + b) + c is a + b + c
            return Arithmetic(first.first, (*first.rest, *rest))
        return Arithmetic(first, tuple(rest))

    def _unary(self, depth: int) -> Node:
        word, at = self.word, self.at
        if self.kind == "name" and word not in _ENDS:
            self.advance()
            return self._call(word, at, depth) if self._stands("(") else self._named(word, at)
        match self.kind:
            case "number":
                self.advance()
                value = float(word)
                if not math.isfinite(value):
                    self.fail_at(at, "the number is too large", "write one below 1.8e308")
                return Number(value)
            case "text":
                if not word.isprintable():
                    self.fail("the text holds a control character", "write it without")
                self.advance()
                return Text(word[1:-1])
            case "sign" if word == "-":
                depth = self._deeper(depth)
                self.advance()
                place = self.at
                found = self._unary(depth)
                self._number(found, place)
                return Negative(found)
            case "sign" if word == "(":
                depth = self._deeper(depth)
                self.advance()
                inner = self.expression(depth)
                self._close()
                return inner
            case _:
                missing = f"a value is missing before {_short(word)!r}" if word else "something is missing at the end"
                return self.fail(missing, _HINT)

    def _stands(self, sign: str) -> bool:
        return self.kind == "sign" and self.word == sign

    def _close(self) -> None:
        if not self._stands(")"):
            self.fail("a parenthesis is not closed", "write ) here")
        self.advance()

    def _call(self, function: str, at: int, depth: int) -> Node:
        if function not in FUNCTIONS:
            self.fail_at(at, f"no function is called {_short(function)!r}", _known(function, FUNCTIONS))
        depth = self._deeper(depth)
        arguments: list[Node] = []
        while not arguments or self._stands(","):
            self.advance()
            place = self.at
            arguments.append(self._arithmetic(depth, "+-"))
            self._number(arguments[-1], place)
        self._close()
        if function in _SEVERAL and len(arguments) < 2:
            self.fail_at(at, f"{function} takes two numbers or more", f"the statistic is called {function}, without ()")
        if function not in _SEVERAL and len(arguments) != 1:
            self.fail_at(at, f"{function} takes one number", f"for example {function}(mean)")
        return FunctionCall(function, tuple(arguments))

    def _named(self, word: str, at: int) -> Node:
        if word in NUMBER_FACTS or word in TEXT_FACTS:
            return Fact(word)
        name = word.removeprefix("prev.")
        if name in QUANTITIES:
            return Quantity(name, previous=name != word)
        if word.startswith("prev.") and (name in NUMBER_FACTS or name in TEXT_FACTS):
            self.fail_at(at, f"{name} is a fact, and the same at the previous step", f"write {name}")
        names = (*QUANTITIES, *NUMBER_FACTS, *TEXT_FACTS)
        question = did_you_mean(name.lower(), names)
        return self.fail_at(at, f"no quantity is called {_short(word)!r}", f"{question}\n{_HINT}".lstrip("\n"))


def _short(word: str) -> str:
    return word if len(word) <= 40 else word[:39] + "…"


def _is_text(node: Node) -> bool:
    return isinstance(node, Text) or (isinstance(node, Fact) and node.name in TEXT_FACTS)


def _known(word: str, names: Iterable[str]) -> str:
    """Returns a hint with the known names, and the nearest one."""
    lines = wrap("one of " + ", ".join(names), _HINT_WIDTH, subsequent_indent="  ")
    return "\n".join(filter(None, (did_you_mean(word, names), *lines)))


_HINT_WIDTH: Final = 68
"""Characters of a hint's line, which stands behind ``do:`` in a terminal of 80 columns."""
_HINT: Final = "\n".join(
    line
    for text in (
        f"quantities: {' '.join(QUANTITIES)}",
        f"of the previous step: prev.max ...; facts: {' '.join((*NUMBER_FACTS, *TEXT_FACTS))}",
        f"functions: {' '.join(FUNCTIONS)}",
    )
    for line in wrap(text, _HINT_WIDTH, subsequent_indent="  ")
)


def filled_in(text: str, values: Mapping[str, str]) -> str:
    """Returns an expression with values for its names, ``12.3 > 6·0.5``; a name without a value stays."""
    return written(parse(text).tree, lambda name: values.get(name_text(name), name_text(name)), "·")


def pretty(text: str) -> str:
    """Returns an expression in reading form: ``max > 6·std``."""
    return written(parse(text).tree, times="·")
