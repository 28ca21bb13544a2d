"""Tables of keys of any program's configuration: keys with their meaning, messages, the report."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeVar

from tui_debugger.recording.json_lines import JsonMember, Parsed, Slip, Value

T = TypeVar("T")
_LONGEST: Final = 60
"""Length of a value in a message, in characters."""


class Weight(Enum):
    """The effect of a message's subject: only ``NOTE`` is no mistake."""

    REJECTED = "rejected"
    CHANGED = "not as written"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Message:
    """A message about the file."""

    weight: Weight
    key: str
    """Path of the key: ``common_dump_settings.iteration``; empty for the file."""
    line: int
    """0 for a missing key."""
    what: str
    hint: str = ""
    """What to do; may be empty for a note."""


@dataclass(frozen=True, slots=True)
class Explained:
    """A key of the file with its line, its value as JSON, and its meaning."""

    key: str
    line: int
    value: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable to export, or a line to write into the program; ``value`` is empty where it depends."""

    name: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Key:
    """A key that a configuration may have."""

    meaning: str
    values: Mapping[str, str] = field(default_factory=dict)
    """Meaning of each value, by its JSON text."""
    since: tuple[int, int] | None = None
    """The version that first read it; None for all."""
    until: tuple[int, int] | None = None
    """The last version that reads it; None for all."""

    def says(self, value: Value) -> str:
        """The meaning of the key with this value."""
        text = value.text if not isinstance(value.content, list | dict) else ""
        chosen = self.values.get(text)
        return self.meaning + (f": {chosen}" if chosen else "")


def short(value: Value) -> str:
    """The value as JSON, cut where it is long."""
    text = value.text
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def near(name: str, known: Iterable[str], otherwise: str) -> str:
    """``did you mean ...?`` for a name with a similar spelling, else another hint."""
    by_lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
    return f"did you mean {by_lower[found[0]]}?" if found else otherwise


@dataclass(slots=True)
class ConfigurationReport:
    """The result of a check."""

    checked_as: str
    """For whom it was checked: ``MindSpore 2.3, Ascend``."""
    messages: list[Message] = field(default_factory=list)
    """In the order of the file."""
    keys: list[Explained] = field(default_factory=list)
    environment: list[Variable] = field(default_factory=list)
    """What the training needs besides the file."""

    @property
    def mistakes(self) -> list[Message]:
        return [each for each in self.messages if each.weight is not Weight.NOTE]

    @property
    def notes(self) -> list[Message]:
        return [each for each in self.messages if each.weight is Weight.NOTE]


class KeySection:
    """An object of the file, looked at key by key. ``explain`` and ``unknown`` use tables of known keys."""

    def __init__(self, checker: ConfigurationChecker, path: str, value: Value) -> None:
        """``path`` of the object, empty for the outermost one."""
        self.path = path
        self.line = value.line
        self._checker = checker
        self.members: dict[str, JsonMember] = value.content if isinstance(value.content, dict) else {}

    def key(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def get(self, name: str) -> Value | None:
        member = self.members.get(name)
        return None if member is None else member.value

    def of_type(self, name: str, kind: type[T], expected: str, hint: str) -> T | None:
        """The content of a key; None where it is missing, or of another type, which is reported."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value.content, kind):
            self.reject(name, f"{short(value)} is {value.kind}: {self._checker.who} takes {expected}", hint)
            return None
        return value.content

    def plain(self, name: str, default: Any = None) -> Any:
        value = self.get(name)
        return default if value is None else value.plain

    def say(self, weight: Weight, name: str, what: str, hint: str = "", *, line: int = 0) -> None:
        """Adds a message about a key, by default with the line of the key if that is there."""
        member = self.members.get(name)
        self._checker.say(weight, self.key(name), line or (member.line if member else 0), what, hint)

    def reject(self, name: str, what: str, hint: str) -> None:
        """Adds an error that would stop the training."""
        self.say(Weight.REJECTED, name, what, hint)

    def change(self, name: str, what: str, hint: str) -> None:
        """Adds a mistake that silently means something else."""
        self.say(Weight.CHANGED, name, what, hint)

    def note(self, name: str, what: str, hint: str = "") -> None:
        self.say(Weight.NOTE, name, what, hint)

    def note_repeated(self, name: str, values: Sequence[Value]) -> None:
        """Notes the first element that stood in a list before."""
        seen = set()
        for each in values:
            if each.text in seen:
                self.say(Weight.NOTE, name, f"{short(each)} is listed twice", line=each.line)
                return
            seen.add(each.text)

    def explain(self, keys: Mapping[str, Key]) -> None:
        """Explains the keys that a table knows."""
        for name, member in self.members.items():
            if (known := keys.get(name)) is not None:
                value = "{...}" if isinstance(member.value.content, dict) else short(member.value)
                explained = Explained(self.key(name), member.line, value, known.says(member.value))
                self._checker.report.keys.append(explained)

    def unknown(self, keys: Mapping[str, Key], elsewhere: Mapping[str, Iterable[str]]) -> None:
        """Reports the keys that the program does not read; ``elsewhere``: keys of other places, by place."""
        for name in self.members:
            if name in keys:
                continue
            place = next((where for where, known in elsewhere.items() if name in known), None)
            if place is not None:
                hint = f"move it into {place}" if place else "move it to the top level, outside of this object"
            else:
                hint = near(name, keys, f"take it away; here may stand {', '.join(keys)}")
            self.change(name, f"{self._checker.who} does not know this key here and silently ignores it", hint)


class ConfigurationChecker:
    """Collects messages; the base of every checker."""

    def __init__(self, checked_as: str, who: str) -> None:
        """``who``: the program that reads the file."""
        self.report = ConfigurationReport(checked_as)
        self.who = who

    def say(self, weight: Weight, key: str, line: int, what: str, hint: str = "") -> None:
        self.report.messages.append(Message(weight, key, line, what, hint))

    def top(self, parsed: Parsed, hint: str) -> KeySection | None:
        """The outermost object; None without one, which is reported unless nothing could be read."""
        root = parsed.root
        if root is not None and isinstance(root.content, dict):
            return KeySection(self, "", root)
        if root is not None:
            self.say(Weight.REJECTED, "", root.line, f"the file holds {root.kind}", hint)
        return None

    def spelling(self, parsed: Parsed, taken: Mapping[Slip, tuple[Weight, str]], who: str) -> None:
        """Adds the slips. ``taken``: slips that do not stop the reading program ``who``, with their effect."""
        for each in parsed.problems:
            weight, outcome = taken.get(each.slip, (Weight.REJECTED, f"{who} stops at it"))
            what = f"{each.what}; {outcome}" if outcome else each.what
            self.say(weight, each.key, each.line, what, each.hint if weight is not Weight.NOTE else "")

    def finish(self) -> ConfigurationReport:
        """Returns the report, its messages in the order of the file, those of missing keys last."""
        self.report.messages.sort(key=lambda each: each.line or 1 << 60)
        self.report.keys.sort(key=lambda each: each.line)
        return self.report


def first_wrong(values: Sequence[Value], right: Callable[[Value], bool]) -> tuple[Value, str] | None:
    """The first element of a list that is not right, and ``(and 3 more)`` for the others."""
    wrong = [each for each in values if not right(each)]
    return (wrong[0], f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else "") if wrong else None
