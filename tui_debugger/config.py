"""The user's configuration: one TOML file, read whole or not at all.

``~/.config/tdbg/config.toml`` (``$XDG_CONFIG_HOME``; ``$TDBG_CONFIG`` names another file, or none when it is empty). A
mistake is an error with its line, never a silent default: a check with other watchpoints than requested must not say
"clean". ``--no-config`` ignores the file. Ids of keys are checked by ``tui.settings``, which knows the actions.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tui_debugger.environment import user_directory
from tui_debugger.errors import BadWatchpointError, ConfigError, did_you_mean
from tui_debugger.opener import METADATA_LIMIT, read_regular, why_not
from tui_debugger.text.clean import clean

if TYPE_CHECKING:
    from tui_debugger.stats.fields import StatisticField
    from tui_debugger.watch.recommended import RecommendedChanges

VARIABLE: Final = "TDBG_CONFIG"
NAME: Final = "config.toml"
THEMES: Final[Mapping[str, str]] = {
    "dark": "light text on a dark ground",
    "light": "dark text on a light ground",
    "high-contrast": "black, white, and the brightest colours",
    "terminal": "the 16 colours and the ground of the terminal itself",
}


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose columns can be chosen: where it is shown, its default columns, and all columns by name."""

    help: str
    default: tuple[StatisticField, ...]
    known: Mapping[str, StatisticField]


@cache
def tables() -> Mapping[str, Table]:
    """Returns the tables whose columns can be chosen; imported here, because the first frame needs no statistics."""
    from tui_debugger.stats.fields import FIELDS, STAT_TABLE, TENSOR_TABLE

    shown = {each.column or each.name: each for each in FIELDS if each.title}
    return {
        "tensors": Table("the list of tensors on screen, and the way to an origin", TENSOR_TABLE, shown),
        "stat": Table("what tdbg stat prints", STAT_TABLE, {each.column: each for each in FIELDS if each.column}),
    }


def column_names(fields: Sequence[StatisticField]) -> list[str]:
    return [each.column or each.name for each in fields]


_DO: Final = "correct it, or use --no-config; `tdbg help configuration` explains the file"

_KEY_NAMES: Final = (
    *("up", "down", "left", "right", "pageup", "pagedown", "home", "end", "insert", "delete"),
    *("enter", "escape", "space", "backspace", "tab", "shift+tab", "comma"),
)
_FUNCTION_KEYS: Final = tuple(f"f{number}" for number in range(1, 13))
_CHARACTER_KEYS: Final = {",": "comma", " ": "space"}
_TAKEN: Final = {
    "ctrl+z": "belongs to the shell",
    "ctrl+a": "is the prefix of screen",
    "ctrl+b": "is the prefix of tmux",
    "ctrl+h": "is Backspace in a terminal",
    "ctrl+i": "is Tab in a terminal",
    "ctrl+j": "is Enter in a terminal",
    "ctrl+m": "is Enter in a terminal",
}


@dataclass(frozen=True, slots=True)
class Config:
    """The user's choices; defaults where there is no file to read.

    Attributes:
        path: the file's place, even if it does not exist; None when none was to be read.
        keys: keys by the id of their action, in Textual's spelling.
        columns: statistics by table, without defaults.
        recommended: changes to the recommended watchpoints, if any.
        asks: whether the screen asks before it adds the recommended watchpoints.
        ignore: globs of files and directories that every command ignores.
        lines: line of each setting, by ``theme``, ``keys.recheck``.
    """

    path: Path | None = None
    found: bool = False
    theme: str = "dark"
    mouse: bool = True
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    columns: Mapping[str, tuple[StatisticField, ...]] = field(default_factory=dict)
    recommended: RecommendedChanges | None = None
    asks: bool = False
    ignore: tuple[str, ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict)

    def where(self, name: str) -> str:
        return _place(self.path, self.lines, name)

    def table(self, name: str) -> tuple[StatisticField, ...]:
        return self.columns.get(name) or tables()[name].default


_screen = Config()


def use(config: Config) -> None:
    global _screen  # noqa: PLW0603 - what is drawn asks for it everywhere, as for the terminal
    _screen = config


def in_use() -> Config:
    return _screen


def config_path() -> Path | None:
    """Returns the file's place, even if it does not exist; None when the environment says that there is none."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(named).expanduser() if named else None
    try:
        return user_directory("XDG_CONFIG_HOME", ".config") / NAME
    except RuntimeError:  # the user's home is unknown
        return None


def load(path: Path | None) -> Config:
    """Reads the file, or raises ConfigError with the line; without a file every setting has its default."""
    if path is None:
        return Config()
    try:
        data = read_regular(path, METADATA_LIMIT)
    except FileNotFoundError as error:
        if path.is_symlink():
            raise _unreadable(path, error) from None
        return Config(path=path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return parse(data, path)


def parse(data: bytes, path: Path | None) -> Config:
    # Loaded where it is used: starting the program needs no parser. tomli is the same module for Python 3.10.
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        text = data.decode("utf-8-sig")
        document: dict[str, Any] = toml.loads(text)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(
            "the configuration is no UTF-8 text", where=f"{_shown(path)}, line {line}", hint="save it as UTF-8"
        ) from None
    except (ValueError, RecursionError) as error:
        line_of = re.search(r"\(at line (\d+)", str(error))
        where = f"{_shown(path)}, line {line_of[1] if line_of else len(text.splitlines())}"
        raise ConfigError(f"the configuration is no TOML: {clean(str(error))}", where=where, hint=_DO) from None
    return _ConfigReader(path, document, _lines_of(text)).config()


class _ConfigReader:
    def __init__(self, path: Path | None, document: Mapping[str, Any], lines: Mapping[str, int]) -> None:
        self._path = path
        self._document = document
        self._lines = lines
        self._asks = False

    def config(self) -> Config:
        parts: dict[str, Callable[[Any], Any]] = {
            "theme": self._theme,
            "mouse": self._mouse,
            "keys": self._keys,
            "columns": self._columns,
            "recommended": self._recommended,
            "ignore": self._ignore,
        }
        for name in self._document:
            if name not in parts:
                raise self._unknown("setting", name, name, parts)
        read = {name: part(self._document[name]) for name, part in parts.items() if name in self._document}
        return Config(path=self._path, found=True, lines=self._lines, asks=self._asks, **read)

    def _wrong(self, what: str, name: str, hint: str = _DO) -> ConfigError:
        return ConfigError(what, where=_place(self._path, self._lines, name), hint=hint)

    def _unknown(self, kind: str, name: str, at: str, known: Sequence[str] | Mapping[str, Any]) -> ConfigError:
        return self._wrong(f"no {kind} is called {clean(name)!r}", at, near(name, known))

    def _theme(self, value: Any) -> str:
        if not isinstance(value, str) or value not in THEMES:
            raise self._wrong(f"no theme is called {clean(repr(value))}", "theme", "one of " + ", ".join(THEMES))
        return value

    def _mouse(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise self._wrong("mouse is neither true nor false", "mouse")
        return value

    def _ignore(self, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(glob, str) and glob for glob in value):
            raise self._wrong("ignore is no list of globs", "ignore", "write ignore = ['*.bak', 'old/*.pt']")
        return tuple(value)

    def _table(self, value: Any, name: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong(f"{clean(name)} is no table", name, f"write [{clean(name)}] and below it one line each")
        return value

    def _keys(self, value: Any) -> Mapping[str, tuple[str, ...]]:
        found = {}
        for action, given in self._table(value, "keys").items():
            name = f"keys.{action}"
            keys = [given] if isinstance(given, str) else given
            if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
                raise self._wrong(
                    f"the keys of {clean(action)} are neither a key nor a list of keys",
                    name,
                    f'write {clean(action)} = "x" or {clean(action)} = ["x", "f5"]',
                )
            found[action] = tuple(self._key(key, name) for key in keys)
            twice = next((key for key in found[action] if found[action].count(key) > 1), None)
            if twice is not None:
                raise self._wrong(f"the keys of {clean(action)} name {twice} twice", name, "write each key once")
        return found

    def _key(self, text: str, name: str) -> str:
        key = _CHARACTER_KEYS.get(text, text if len(text) == 1 else text.lower())
        if len(text) == 1 and text.isprintable():
            return key
        if key in _KEY_NAMES or key in _FUNCTION_KEYS:
            return key
        if key in _TAKEN:
            raise self._wrong(f"the key {key} cannot be used: it {_TAKEN[key]}", name)
        if re.fullmatch(r"ctrl\+[a-z]", key):
            return key
        raise self._wrong(
            f"the key {clean(text)!r} is none that every terminal sends",
            name,
            "a character such as x, ctrl+ and a letter, or one of " + " ".join((*_KEY_NAMES, "f1 … f12")),
        )

    def _columns(self, value: Any) -> Mapping[str, tuple[StatisticField, ...]]:
        found = {}
        for table, names in self._table(value, "columns").items():
            at = f"columns.{table}"
            if table not in tables():
                raise self._unknown("table", table, at, tables())
            known = tables()[table].known
            if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
                hint = f"write {table} = [{', '.join(map(repr, list(known)[:3]))}]; there are {', '.join(known)}"
                raise self._wrong(f"the columns of {table} are no list of statistics", at, hint)
            for name in names:
                if name not in known:
                    raise self._unknown("statistic", name, at, known)
            if len(set(names)) < len(names):
                raise self._wrong(f"the columns of {table} name a statistic twice", at)
            found[table] = tuple(known[name] for name in names)
        return found

    def _recommended(self, value: Any) -> RecommendedChanges:
        from tui_debugger.watch.recommended import RecommendedChanges, built_in

        known = built_in()
        left_out: set[str] = set()
        params: dict[str, Mapping[str, float | bool]] = {}
        also = []
        chosen = {"ask": True} if value == "ask" else self._table(value, "recommended")
        for name, given in chosen.items():
            at = f"recommended.{name}"
            if name == "also":
                also = self._also(given)
            elif name == "ask":
                if not isinstance(given, bool):
                    raise self._wrong("ask is neither true nor false", at)
                self._asks = given
            elif name not in known:
                raise self._unknown("recommended watchpoint", name, at, [*known, "also", "ask"])
            elif given is False:
                left_out.add(name)
            elif given is not True:
                if not isinstance(given, dict):
                    hint = f"write {name} = false, or {name} = {{ parameter = value }}"
                    raise self._wrong(f"{name} is neither true nor false nor a table of parameters", at, hint)
                params[name] = given
        changes = RecommendedChanges(frozenset(left_out), params, tuple(also))
        for name in params:
            self._valid(partial(changes.changed, known[name]), f"recommended.{name}")
        if left_out == known.keys() and not also:
            raise self._wrong("no recommended watchpoint is left", "recommended", "leave one in, or add one with also")
        return changes

    def _also(self, given: Any) -> list[str]:
        from tui_debugger.watch.text import parse_watch

        at = "recommended.also"
        if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
            hint = "write also = ['TL abs_mean_gt=0.001 @ category=gradient']"
            raise self._wrong("also is no list of watchpoints", at, hint)
        for text in given:
            self._valid(partial(parse_watch, text), at, clean(text))
            if given.count(text) > 1:
                raise self._wrong(f"also names {clean(text)} twice", at)
        return given

    def _valid(self, read: Callable[[], object], name: str, text: str = "") -> None:
        try:
            read()
        except BadWatchpointError as error:
            where = ": ".join(filter(None, (_place(self._path, self._lines, name), text)))
            raise ConfigError(clean(error.what), where=where, hint=error.hint or _DO) from None


def near(name: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    if question := did_you_mean(name, known):
        return f"{question} `tdbg help configuration` lists them all"
    return "one of " + ", ".join(known) if len(known) <= 20 else "`tdbg help configuration` lists them all"


def _shown(path: Path | None) -> str:
    return clean(str(path)) if path is not None else "the configuration"


def _place(path: Path | None, lines: Mapping[str, int], name: str) -> str:
    while name and name not in lines:
        name = name.rpartition(".")[0]
    return f"{_shown(path)}, line {lines[name]}" if name else _shown(path)


def _unreadable(path: Path, error: OSError | ValueError) -> ConfigError:
    why = why_not(path, error if isinstance(error, OSError) else None, wanted="a file")
    return ConfigError(
        f"the configuration cannot be read: {why}",
        where=_shown(path),
        hint="see that it is a file that you may read, or use --no-config",
    )


_HEADER: Final = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?")
_SETTING: Final = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART: Final = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def _lines_of(text: str) -> dict[str, int]:
    """Returns the line of each setting, found without a parser; for errors only."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(line):
            table = _dotted(header[1])
            found.setdefault(table, number)
        elif setting := _SETTING.match(line):
            found.setdefault(f"{table}.{_dotted(setting[1])}".lstrip("."), number)
    return found


def _dotted(name: str) -> str:
    return ".".join(part.strip("\"'") for part in _PART.findall(name))
