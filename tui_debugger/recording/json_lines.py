"""JSON as people write it: every value with its line, and every slip in the spelling.

Parsers of JSON stop at the first slip, often with a place behind it. Here a surplus comma, a comment or a word of
Python is a slip with its line, and the rest is read as it was meant.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NoReturn

from tui_debugger.text.documents import to_json

Content = None | bool | int | float | str | list["Value"] | dict[str, "JsonMember"]

DEEPEST: Final = 64
"""Limit of nested lists and objects; no configuration has more than five."""
MOST_SLIPS: Final = 100
"""Number of slips after which reading ends."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value and the line on which it begins."""

    content: Content
    line: int

    @property
    def is_whole(self) -> bool:
        """Whether it is an integer; ``True`` is none."""
        return isinstance(self.content, int) and not isinstance(self.content, bool)

    @property
    def kind(self) -> str:
        """The type in JSON's words: ``a text``, ``an object``."""
        content = self.content
        if isinstance(content, bool):
            return "true" if content else "false"
        names = {
            int: "a whole number",
            float: "a number with a point",
            str: "a text",
            list: "a list",
            dict: "an object",
        }
        return "null" if content is None else names[type(content)]

    @property
    def text(self) -> str:
        """The value as JSON on one line."""
        return to_json(self.plain)

    @property
    def plain(self) -> object:
        """The value as Python has it."""
        if isinstance(self.content, list):
            return [each.plain for each in self.content]
        if isinstance(self.content, dict):
            return {key: member.value.plain for key, member in self.content.items()}
        return self.content


@dataclass(frozen=True, slots=True)
class JsonMember:
    """A member of an object: the line of its key, and its value."""

    line: int
    value: Value


class Slip(Enum):
    """The kinds of slips: parsers differ in which they accept."""

    BOM = "bom"
    DUPLICATE = "duplicate"
    COMMENT = "comment"
    COMMA = "comma"
    WORD = "word"
    NOT_FINITE = "not finite"
    NUMBER = "number"
    QUOTES = "quotes"
    TEXT = "text"
    REST = "rest"
    END = "end"


@dataclass(frozen=True, slots=True)
class Problem:
    """A slip with its line and a hint; ``key`` is the path of the object that contains it."""

    slip: Slip
    line: int
    what: str
    hint: str
    key: str = ""


@dataclass(slots=True)
class Parsed:
    """A file as it was meant: its value, None where nothing could be read, and its slips."""

    root: Value | None = None
    problems: list[Problem] = field(default_factory=list)


class _JsonError(Exception):
    pass


_BLANK: Final = re.compile(r"[ \t\r\n]*")
_COMMENT: Final = re.compile(r"//[^\n]*|#[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_STRING: Final = re.compile(r'"((?:[^"\\\n]|\\.)*)("?)')
_SINGLE: Final = re.compile(r"'((?:[^'\\\n]|\\.)*)('?)")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_NUMBER_LIKE: Final = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|\d[\d_]*\.?\d*(?:[eE][+-]?\d+)?|\.\d+)")
_WORD: Final = re.compile(r"[-+]?[A-Za-z_][A-Za-z0-9_]*")
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_PYTHON: Final = {"True": "true", "False": "false", "None": "null", "TRUE": "true", "FALSE": "false", "NULL": "null"}
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_LARGEST: Final = 2**64 - 1


def parse(data: bytes) -> Parsed:
    """Reads a file; never fails: errors become problems."""
    found = Parsed()
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        found.problems.append(Problem(Slip.END, 1, "the file is UTF-16", "save it as UTF-8"))
        return found
    if data.startswith(codecs.BOM_UTF8):
        data = data[len(codecs.BOM_UTF8) :]
        hint = "save it as UTF-8 without a byte order mark"
        found.problems.append(Problem(Slip.BOM, 1, "the file begins with a byte order mark", hint))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found.problems.append(Problem(Slip.TEXT, line, "a character is no UTF-8", "save the file as UTF-8"))
        text = data.decode("utf-8", "replace")
    reader = _JsonReader(text, found.problems)
    try:
        found.root = reader.document()
    except _JsonError:
        found.root = reader.root
    return found


class _JsonReader:
    """Reads a text from its beginning."""

    def __init__(self, text: str, problems: list[Problem]) -> None:
        self.root: Value | None = None
        """Outermost object so far, for slips that end the reading."""
        self._text = text
        self._at = 0
        self._line = 1
        self._counted = 0
        self._keys: list[str] = []
        self._problems = problems

    def document(self) -> Value:
        self._blank()
        if self._at == len(self._text):
            self._stop("the file is empty", "tdbg dump-config writes one")
        value = self._value(0)
        self._blank()
        if self._at < len(self._text):
            self._note(Slip.REST, "something stands behind the end of the configuration", "take it away")
        return value

    # -- places and slips ----------------------------------------------------------------------------

    def _here(self) -> int:
        """The current line, counted from the last call."""
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def _note(self, slip: Slip, what: str, hint: str, line: int = 0) -> None:
        key = ".".join(self._keys)
        self._problems.append(Problem(slip, line or self._here(), what, hint, key))
        if len(self._problems) >= MOST_SLIPS:
            raise _JsonError

    def _stop(self, what: str, hint: str) -> NoReturn:
        self._note(Slip.END, what, hint)
        raise _JsonError

    def _blank(self) -> None:
        """Skips blanks; comments are slips."""
        while True:
            match = _BLANK.match(self._text, self._at)
            self._at = match.end() if match else self._at
            comment = _COMMENT.match(self._text, self._at)
            if comment is None:
                return
            self._note(Slip.COMMENT, "JSON has no comments", "take the comment away")
            self._at = comment.end()

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    # -- values --------------------------------------------------------------------------------------

    def _value(self, depth: int) -> Value:
        line, sign = self._here(), self._next()
        if depth > DEEPEST:
            self._stop(f"more than {DEEPEST} lists and objects stand inside each other", "write fewer")
        if sign == "{":
            return self._object(line, depth)
        if sign == "[":
            return self._list(line, depth)
        if sign in {'"', "'"}:
            return Value(self._string(), line)
        number = _NUMBER.match(self._text, self._at)
        if number is not None and not re.match(r"[\w.+]", self._text[number.end() : number.end() + 1]):
            self._at = number.end()
            return Value(_number(number[0]), line)
        return self._odd(line)

    def _odd(self, line: int) -> Value:
        """Reads a value that JSON does not know."""
        word = _WORD.match(self._text, self._at)
        if word is not None:
            self._at = word.end()
            name = word[0]
            if name in _CONSTANTS:
                return Value(_CONSTANTS[name], line)
            if name in _PYTHON:
                self._note(Slip.WORD, f"{name} is no JSON", f"write {_PYTHON[name]}", line)
                return Value(_CONSTANTS[_PYTHON[name]], line)
            if name.lstrip("+-") in {"NaN", "nan", "Infinity", "inf", "Inf"}:
                self._note(Slip.NOT_FINITE, f"{name} is no number in JSON", "write a number", line)
                return Value(math.nan, line)
            self._note(Slip.WORD, f"{name} is no value in JSON", f'write "{name}" if a text is meant', line)
            return Value(name, line)
        number = _NUMBER_LIKE.match(self._text, self._at)
        if number is not None and number[0]:
            self._at = number.end()
            self._note(Slip.NUMBER, f"{number[0]} is no number in JSON", "write it with digits, without 0 or + before")
            return Value(_odd_number(number[0]), line)
        if not self._next():
            self._stop("the file ends in the middle", "complete it: a value and closing brackets are missing")
        return self._stop(f"{self._next()!r} is not expected here", "a value belongs here")

    def _string(self) -> str:
        line, quote = self._here(), self._next()
        match = (_STRING if quote == '"' else _SINGLE).match(self._text, self._at)
        if match is None or not match[2]:
            self._stop("a text has no closing quotation mark on its line", f"write {quote} at its end")
        self._at = match.end()
        if quote == "'":
            self._note(Slip.QUOTES, "texts stand in double quotation marks", f'write "{match[1]}"', line)
            return match[1]
        if _CONTROL.search(match[1]):
            self._note(Slip.TEXT, "a text holds a tab or another control character", r"write it as \t", line)
        try:
            return str(json.loads(match[0], strict=False))
        except ValueError:
            self._note(Slip.TEXT, f"a text holds a backslash that means nothing: {match[0]}", r"write \\ for one", line)
            return match[1]

    def _object(self, line: int, depth: int) -> Value:
        members: dict[str, JsonMember] = {}
        value = Value(members, line)
        if depth == 0:
            self.root = value
        self._at += 1
        first = True
        while self._more("}", "an object", line, first=first):
            first = False
            at = self._here()
            key = self._key()
            self._blank()
            if self._next() == ":":
                self._at += 1
            elif self._next() == "=":
                self._note(Slip.WORD, f"= stands behind {key}", "write :")
                self._at += 1
            else:
                self._stop(f"no : stands behind the key {key}", "write : and the value")
            self._blank()
            if key in members:
                before = members[key].line
                what = f"{key} stands here twice: on line {before} and on line {at}; the last one counts"
                self._note(Slip.DUPLICATE, what, "take one away", at)
            self._keys.append(key)
            members[key] = JsonMember(at, self._value(depth + 1))
            self._keys.pop()
        return value

    def _key(self) -> str:
        if self._next() in {'"', "'"}:
            return self._string()
        word = _WORD.match(self._text, self._at)
        if word is None:
            self._stop(f"{self._next()!r} is not expected here", "a key in quotation marks belongs here")
        self._at = word.end()
        self._note(Slip.QUOTES, f"the key {word[0]} has no quotation marks", f'write "{word[0]}"')
        return word[0]

    def _list(self, line: int, depth: int) -> Value:
        values: list[Value] = []
        self._at += 1
        first = True
        while self._more("]", "a list", line, first=first):
            first = False
            values.append(self._value(depth + 1))
        return Value(values, line)

    def _more(self, end: str, what: str, line: int, *, first: bool) -> bool:
        """Skips the separator of two parts; returns whether another part follows."""
        self._blank()
        commas = 0
        at = self._here()
        while self._next() == ",":
            commas += 1
            self._at += 1
            self._blank()
        if not self._next():
            self._stop(f"{what} that begins on line {line} has no end", f"write {end} where it ends")
        if self._next() == end:
            self._at += 1
            if commas:
                self._note(Slip.COMMA, f"a comma stands before {end}", "take the comma away", at)
            return False
        if self._next() in "]}":
            self._stop(f"{self._next()} stands where {end} belongs", f"{what} begins on line {line}")
        if commas > 1 or (commas and first):
            self._note(Slip.COMMA, "a comma too many", "take it away", at)
        if not commas and not first:
            self._note(Slip.COMMA, "a comma is missing before this", "write one between two values")
        return True


def _number(text: str) -> int | float:
    if re.fullmatch(r"-?\d{1,20}", text) and -(2**63) <= int(text) <= _LARGEST:
        return int(text)
    return float(text)


def _odd_number(text: str) -> int | float:
    plain = text.replace("_", "").lstrip("+")
    try:
        return int(plain, 16) if plain[:3].lower().find("x") >= 0 else _number(str(int(plain)))
    except ValueError:
        try:
            return float(plain)
        except ValueError:
            return math.nan
