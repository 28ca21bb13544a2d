"""Tables of keys of a configuration, of whichever program: keys with their meaning, messages, the report."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from tui_debugger.recording.json_lines import JsonMember, Parsed, Slip, Value

_LONGEST: Final = 60
"""Characters of a value in a message."""


class Weight(Enum):
    """The outcome of what is written: only the last is no mistake."""

    REJECTED = "rejected"
    CHANGED = "not as written"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Message:
    """Something about the file.

    Attributes:
        weight: how bad it is.
        key: path of the key: ``common_dump_settings.iteration``; empty for the file.
        line: where it stands; 0 for what is missing.
        what: one sentence.
        hint: what to do; may be empty for a note.
    """

    weight: Weight
    key: str
    line: int
    what: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Explained:
    """A key of the file with its line, its value as JSON, and what it does."""

    key: str
    line: int
    value: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable to export, or a line to write into the program: ``value`` is empty where it depends."""

    name: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Key:
    """A key that a configuration may have.

    Attributes:
        meaning: what it does, for any value.
        values: what each value does, by its JSON text.
        since: the version that first read it; None for all.
        until: the last one; None for all.
    """

    meaning: str
    values: Mapping[str, str] = field(default_factory=dict)
    since: tuple[int, int] | None = None
    until: tuple[int, int] | None = None

    def says(self, value: Value) -> str:
        """Returns what this value does."""
        text = value.text if not isinstance(value.content, list | dict) else ""
        chosen = self.values.get(text)
        return self.meaning + (f": {chosen}" if chosen else "")


def short(value: Value) -> str:
    """The value as JSON, cut where it is long."""
    text = value.text
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def near(name: str, known: Iterable[str], otherwise: str) -> str:
    """``did you mean ...?`` for what is spelled alike, else another hint."""
    by_lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
    return f"did you mean {by_lower[found[0]]}?" if found else otherwise


@dataclass(slots=True)
class ConfigurationReport:
    """The result of a check.

    Attributes:
        checked_as: for whom it was checked: ``MindSpore 2.3, Ascend``.
        messages: in the order of the file.
        keys: every key that was read, explained.
        environment: what the training needs besides the file.
    """

    checked_as: str
    messages: list[Message] = field(default_factory=list)
    keys: list[Explained] = field(default_factory=list)
    environment: list[Variable] = field(default_factory=list)

    @property
    def mistakes(self) -> list[Message]:
        """The messages that are more than a note."""
        return [each for each in self.messages if each.weight is not Weight.NOTE]

    @property
    def notes(self) -> list[Message]:
        """The messages that are no mistakes."""
        return [each for each in self.messages if each.weight is Weight.NOTE]


class KeySection:
    """An object of the file, looked at key by key.

    Keys that ``take`` asked for are known; ``unknown`` yields the others.
    """

    def __init__(self, checker: ConfigurationChecker, path: str, value: Value) -> None:
        """``path``: of the object, empty for the outermost one."""
        self.path = path
        self.line = value.line
        self._checker = checker
        self.members: dict[str, JsonMember] = value.content if isinstance(value.content, dict) else {}

    def key(self, name: str) -> str:
        """The path of a key."""
        return f"{self.path}.{name}" if self.path else name

    def get(self, name: str) -> Value | None:
        """The value of a key; None when it is missing."""
        member = self.members.get(name)
        return None if member is None else member.value

    def plain(self, name: str, default: Any = None) -> Any:
        """The value of a key as Python has it."""
        value = self.get(name)
        return default if value is None else value.plain

    def say(self, weight: Weight, name: str, what: str, hint: str = "", *, line: int = 0) -> None:
        """Adds a message about a key; the line is that of the key, where it is there."""
        member = self.members.get(name)
        self._checker.say(weight, self.key(name), line or (member.line if member else 0), what, hint)

    def reject(self, name: str, what: str, hint: str) -> None:
        """Adds what would stop the training."""
        self.say(Weight.REJECTED, name, what, hint)

    def change(self, name: str, what: str, hint: str) -> None:
        """Adds what would silently be another thing than what is written."""
        self.say(Weight.CHANGED, name, what, hint)

    def note(self, name: str, what: str, hint: str = "") -> None:
        """Adds what is good to know."""
        self.say(Weight.NOTE, name, what, hint)

    def explain(self, keys: Mapping[str, Key]) -> None:
        """Explains the keys that a table knows."""
        for name, member in self.members.items():
            if (known := keys.get(name)) is not None:
                value = "{...}" if isinstance(member.value.content, dict) else short(member.value)
                explained = Explained(self.key(name), member.line, value, known.says(member.value))
                self._checker.report.keys.append(explained)

    def unknown(self, keys: Mapping[str, Key], elsewhere: Mapping[str, Iterable[str]], who: str) -> None:
        """Adds the keys that nobody reads.

        Args:
            keys: what may stand here.
            elsewhere: keys of other places, by the name of the place.
            who: who would read them.
        """
        for name in self.members:
            if name in keys:
                continue
            place = next((where for where, known in elsewhere.items() if name in known), None)
            if place is not None:
                hint = f"move it into {place}" if place else "move it to the top level, outside of this object"
            else:
                hint = near(name, keys, f"take it away; here may stand {', '.join(keys)}")
            self.change(name, f"{who} does not know this key here and silently ignores it", hint)


class ConfigurationChecker:
    """Collects messages; what every checker needs."""

    def __init__(self, checked_as: str) -> None:
        """``checked_as``: see ``ConfigurationReport``."""
        self.report = ConfigurationReport(checked_as)

    def say(self, weight: Weight, key: str, line: int, what: str, hint: str = "") -> None:
        """Adds a message."""
        self.report.messages.append(Message(weight, key, line, what, hint))

    def spelling(self, parsed: Parsed, taken: Mapping[Slip, tuple[Weight, str]], who: str) -> None:
        """Adds the slips in the spelling.

        Args:
            parsed: the file.
            taken: the slips that do not stop the program that reads it, with their effect.
            who: who reads it.
        """
        for each in parsed.problems:
            weight, outcome = taken.get(each.slip, (Weight.REJECTED, f"{who} stops at it"))
            what = f"{each.what}; {outcome}" if outcome else each.what
            self.say(weight, each.key, each.line, what, each.hint if weight is not Weight.NOTE else "")

    def finish(self) -> ConfigurationReport:
        """Returns the report, its messages in the order of the file; what is missing comes last."""
        self.report.messages.sort(key=lambda each: each.line or 1 << 60)
        self.report.keys.sort(key=lambda each: each.line)
        return self.report


def first_wrong(values: Sequence[Value], right: Callable[[Value], bool]) -> tuple[Value, str] | None:
    """The first element of a list that is not right, and ``(and 3 more)`` for the others."""
    wrong = [each for each in values if not right(each)]
    return (wrong[0], f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else "") if wrong else None


def repeated(values: Sequence[Value]) -> Iterator[Value]:
    """Yields the elements that stood in the list before."""
    seen = set()
    for each in values:
        text = each.text
        if text in seen:
            yield each
        seen.add(text)
