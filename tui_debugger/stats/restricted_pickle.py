"""Reads pickles as data: no name in a pickle is imported, made or called.

A pickle is a program for a small stack machine; this is that machine without its power. A class or a function is a
name. A call gives the result of the caller's table, or an ``Instance``: a stand-in that keeps the name, the arguments,
and everything that is put into the object later. A hostile pickle can ask for a lot with few bytes, so opcodes, objects
and memo entries are limited. Nesting costs no recursion: dictionary keys, which are hashed, must be plain values.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

MAX_OPERATIONS: Final = 1 << 24
"""Most opcodes of a pickle: enough for 400,000 tensors, or five seconds of work."""
MAX_OBJECTS: Final = 1 << 21
"""Most dictionaries, lists, tuples, calls and memo entries of a pickle: 300,000 tensors, or some 300 MB."""
MAX_PROTOCOL: Final = 5
_LONGEST_NUMBER: Final = 255
_LONGEST_NAME: Final = 1 << 10
_LONGEST_SHOWN: Final = 100
_KEY_DEPTH: Final = 4
_KEY_LENGTH: Final = 64
_PLAIN_VALUES: Final = (str, int, float, bool, complex, bytes, type(None), tuple)
"""Types without attributes."""
_PLAIN_KEYS: Final = (str, float, bool, bytes, type(None))


class PickleError(ValueError):
    """A pickle that is damaged, too big, or has something unknown."""


class PickleEndsError(PickleError):
    """A pickle that goes on where the bytes end."""


@dataclass(frozen=True, slots=True, eq=False)
class Global:
    """A class or a function that a pickle names.

    ``call`` makes the stand-in for its result or instance (None: a constant). ``foreign``: no table knows it.
    """

    name: str
    call: Callable[..., Any] | None = None
    foreign: bool = False


@dataclass(slots=True, eq=False)
class Instance:
    """Stands for an object; ``kind`` names its class, or the function that made it of ``arguments``.

    ``called``: an unknown function made the object; otherwise the object keeps the arguments, as a named tuple does.
    ``state`` is usually attributes by name; ``items`` are contents of a dictionary or list, if any.
    """

    kind: str
    arguments: tuple[Any, ...]
    called: bool = False
    state: Any = None
    items: dict[Any, Any] | list[Any] | None = None


class Loaded(NamedTuple):
    """The content of a pickle, and the offset of its end.

    ``states`` has attributes of dictionaries, lists and other values without room for them: (object, state) by ``id``.
    """

    value: Any
    end: int
    states: Mapping[int, tuple[Any, Any]]


Names = Callable[[str], Global | None]
"""Returns the class or function of a name; None: it is refused."""
Persistent = Callable[[Any], Any]
"""Makes the stand-in for an object outside of the pickle from its persistent id."""


def stand_in(name: str) -> Global:
    """Returns the global for a class whose objects are kept as ``Instance``."""
    return Global(name, lambda *arguments: Instance(name, arguments))


def load(data: bytes, names: Names, persistent: Persistent, start: int = 0) -> Loaded:
    """Returns the content of the pickle that begins at ``start``.

    Raises PickleError (damaged, too big, a refused name) or PickleEndsError (the bytes end before the pickle does).
    """
    machine = _Machine(data, names, persistent, start)
    try:
        return Loaded(machine.run(), machine.at, machine.states)
    except (IndexError, KeyError, struct.error, AttributeError, TypeError, OverflowError, RecursionError) as error:
        raise PickleError("has a damaged pickle") from error


def _nothing_outside(_: Any) -> Any:
    raise PickleError("names something outside of its pickle")


def no_names(_: str) -> None:
    """Refuses all names."""


def load_plain(data: bytes, names: Names) -> Loaded:
    """Returns the content of a pickle that fills ``data`` and refers to nothing outside; raises PickleError."""
    loaded = load(data, names, _nothing_outside)
    if loaded.end != len(data):
        raise PickleError("has bytes behind its pickle")
    return loaded


class _Machine:
    """The state of the machine; ``run`` executes the pickle and returns its object."""

    __slots__ = ("_data", "_free", "_marks", "_memo", "_names", "_persistent", "_stack", "at", "states")

    def __init__(self, data: bytes, names: Names, persistent: Persistent, start: int) -> None:
        self._data, self._names, self._persistent, self.at = data, names, persistent, start
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._free = MAX_OBJECTS
        self.states: dict[int, tuple[Any, Any]] = {}

    def run(self) -> Any:
        data, end, plain, numbered = self._data, len(self._data), _OPERATIONS, _NUMBERED
        for _ in range(MAX_OPERATIONS):
            start = self.at
            if start >= end:
                raise PickleEndsError("ends in the middle of its pickle")
            code = data[start]
            start += 1
            if code in numbered:  # most opcodes are
                operation, count = numbered[code]
                self.at = start + count
                if self.at > end:
                    raise PickleEndsError("ends in the middle of its pickle")
                operation(self, data[start] if count == 1 else int.from_bytes(data[start : self.at], "little"))
            elif code in plain:
                self.at = start
                plain[code](self)
            elif code == _STOP:
                self.at = start
                return self._stack.pop()
            else:
                what = f"has the instruction {chr(code)!r} in its pickle, which is not known here"
                raise PickleError(_NEVER.get(code, what))
        raise PickleError(f"has a pickle of more than {MAX_OPERATIONS:,} instructions")

    # -- bytes -------------------------------------------------------------------------------------

    def _take(self, count: int) -> bytes:
        start = self.at
        self.at = start + count
        if self.at > len(self._data):
            raise PickleEndsError("ends in the middle of its pickle")
        return self._data[start : self.at]

    def _line(self) -> str:
        end = self._data.find(b"\n", self.at, self.at + _LONGEST_NAME)
        if end < 0:
            if len(self._data) - self.at < _LONGEST_NAME:
                raise PickleEndsError("ends in the middle of its pickle")
            raise PickleError("has a damaged pickle")
        line = self._data[self.at : end]
        self.at = end + 1
        return _text(line)

    # -- the stack ---------------------------------------------------------------------------------

    def _above_mark(self) -> list[Any]:
        place = self._marks.pop()
        items = self._stack[place:]
        del self._stack[place:]
        return items

    def _made(self, value: Any) -> None:
        """Pushes a new object, and counts it."""
        self._free -= 1
        if self._free < 0:
            raise PickleError(f"has a pickle of more than {MAX_OBJECTS:,} objects")
        self._stack.append(value)

    def mark(self) -> None:
        self._marks.append(len(self._stack))

    def pop(self) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._stack.pop()

    def pop_mark(self) -> None:
        self._above_mark()

    def duplicate(self) -> None:
        self._stack.append(self._stack[-1])

    def remember(self, place: int) -> None:
        self._free -= 1
        if self._free < 0:
            raise PickleError(f"remembers more than {MAX_OBJECTS:,} objects in its pickle")
        self._memo[place] = self._stack[-1]

    def remember_next(self) -> None:
        self.remember(len(self._memo))

    def recall(self, place: int) -> None:
        self._stack.append(self._memo[place])

    # -- plain values ------------------------------------------------------------------------------

    def protocol(self, version: int) -> None:
        if version > MAX_PROTOCOL:
            raise PickleError(f"has a pickle of protocol {version}; those up to {MAX_PROTOCOL} are known")

    def frame(self, length: int) -> None:
        if self.at + length > len(self._data):
            raise PickleEndsError("ends in the middle of its pickle")

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def signed(self) -> None:
        self._stack.append(int.from_bytes(self._take(4), "little", signed=True))

    def long(self, length: int) -> None:
        if length > _LONGEST_NUMBER:
            raise PickleError(f"has a number of {length:,} bytes in its pickle")
        self._stack.append(int.from_bytes(self._take(length), "little", signed=True))

    def real(self) -> None:
        self._stack.append(struct.unpack(">d", self._take(8))[0])

    def text(self, length: int) -> None:
        self._stack.append(_text(self._take(length)))

    def octets(self, length: int) -> None:
        self._stack.append(self._take(length))

    # -- containers --------------------------------------------------------------------------------

    def empty_list(self) -> None:
        self._made([])

    def empty_dict(self) -> None:
        self._made({})

    def list_of(self) -> None:
        self._made(self._above_mark())

    def dict_of(self) -> None:
        items = self._above_mark()
        self._made({})
        self._put(items)

    def tuple_of(self) -> None:
        self._made(tuple(self._above_mark()))

    def short_tuple(self, length: int) -> None:
        items = tuple(self._stack[-length:]) if length else ()
        if len(items) != length:
            raise PickleError("has a damaged pickle")
        del self._stack[len(self._stack) - length :]
        self._made(items)

    def append(self) -> None:
        self._extend([self._stack.pop()])

    def extend(self) -> None:
        self._extend(self._above_mark())

    def put(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._put([key, value])

    def put_many(self) -> None:
        self._put(self._above_mark())

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is Instance:
            target.items = [] if target.items is None else target.items
            target = target.items
        if type(target) is not list:
            raise PickleError("has a damaged pickle: it adds to something that is no list")
        target.extend(items)

    def _put(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is Instance:
            target.items = {} if target.items is None else target.items
            target = target.items
        if type(target) is not dict or len(items) % 2:
            raise PickleError("has a damaged pickle: it sets a key of something that is no dictionary")
        keys = items[::2]
        for key in keys:
            if type(key) is not str:
                _check_key(key, _KEY_DEPTH)
        target.update(zip(keys, items[1::2], strict=True))

    # -- names and calls ---------------------------------------------------------------------------

    def name(self) -> None:
        module = self._line()
        self._name(module, self._line())

    def name_on_stack(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if type(name) is not str or type(module) is not str:
            raise PickleError("has a damaged pickle: a name in it is no text")
        self._name(module, name)

    def _name(self, module: str, name: str) -> None:
        full = f"{'builtins' if module == '__builtin__' else module}.{name}"
        found = self._names(full)
        if found is None:
            raise refuses(full)
        self._made(found)

    def call(self, new: bool) -> None:
        """Calls a function, or with ``new`` makes an object of a class by ``__new__`` alone."""
        arguments, called = self._stack.pop(), self._stack.pop()
        self._call(called, arguments, new)

    def call_with_names(self) -> None:
        """Makes a new object of a class with keyword arguments."""
        named, arguments, called = self._stack.pop(), self._stack.pop(), self._stack.pop()
        self._call(called, (*arguments, named) if named else arguments, new=True)

    def _call(self, called: Any, arguments: Any, new: bool) -> None:
        if type(arguments) is not tuple or type(called) not in (Global, Instance):
            raise PickleError("has a damaged pickle: it calls something that is no function")
        if type(called) is Instance:  # a method of an object, a function with some of its arguments
            self._made(Instance(called.kind, (called, *arguments), called=True))
            return
        if called.foreign:
            self._made(Instance(called.name, arguments, called=not new))
            return
        if called.call is None:
            raise PickleError(f"has a damaged pickle: it calls {called.name}, which is no function")
        try:
            result = called.call(*arguments)
        except (TypeError, ValueError, IndexError, KeyError, AttributeError, OverflowError) as error:
            if isinstance(error, PickleError):
                raise
            raise PickleError(f"has a damaged pickle: what it gives to {called.name} makes no sense") from error
        self._made(result)

    def build(self) -> None:
        state, target = self._stack.pop(), self._stack[-1]
        if type(target) is Instance:
            target.state = state if target.state is None else [target.state, state]
        elif type(target) in _PLAIN_VALUES or type(target) is Global:
            raise PickleError("has a damaged pickle: it sets the state of something that has none")
        else:
            before = self.states.get(id(target))
            self.states[id(target)] = target, state if before is None else [before[1], state]

    def outside(self) -> None:
        self._made(self._persistent(self._stack.pop()))


def refuses(name: str) -> PickleError:
    """Returns the error for a name that is refused."""
    shown = shown_name(name)
    if name.startswith("__torch__."):
        return PickleError(f"is a TorchScript program ({shown}), no file of tensors")
    return PickleError(f"names {shown} where no class and no function belongs")


def shown_name(name: str) -> str:
    return name if name.isprintable() and len(name) < _LONGEST_SHOWN else ascii(name[:_LONGEST_SHOWN])


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PickleError("has text in its pickle that is no UTF-8") from error


def _check_key(key: Any, depth: int) -> None:
    """Raises PickleError unless hashing the key is fast and not recursive, and keys of its type do not all collide."""
    kind = type(key)
    if kind is int:
        good = -(1 << 63) <= key < 1 << 64
    elif kind is tuple:
        good = depth > 0 and len(key) <= _KEY_LENGTH
        for part in key if good else ():
            _check_key(part, depth - 1)
    else:
        by_identity: Any = kind.__hash__
        good = kind in _PLAIN_KEYS or by_identity is object.__hash__
    if not good:
        raise PickleError("has a dictionary with a key that is no plain value")


_STOP: Final = ord(".")
_Operation = Callable[[_Machine], None]


def _with(operation: Callable[[_Machine, Any], None], value: Any) -> _Operation:
    return lambda machine: operation(machine, value)


_OPERATIONS: Final[dict[int, _Operation]] = {
    ord(code): operation
    for code, operation in (
        ("(", _Machine.mark),
        ("0", _Machine.pop),
        ("1", _Machine.pop_mark),
        ("2", _Machine.duplicate),
        ("\x94", _Machine.remember_next),
        ("N", _with(_Machine.push, None)),
        ("\x88", _with(_Machine.push, True)),
        ("\x89", _with(_Machine.push, False)),
        ("J", _Machine.signed),
        ("G", _Machine.real),
        ("]", _Machine.empty_list),
        ("}", _Machine.empty_dict),
        ("\x8f", _Machine.empty_list),  # a set
        (")", _with(_Machine.short_tuple, 0)),
        ("\x85", _with(_Machine.short_tuple, 1)),
        ("\x86", _with(_Machine.short_tuple, 2)),
        ("\x87", _with(_Machine.short_tuple, 3)),
        ("t", _Machine.tuple_of),
        ("l", _Machine.list_of),
        ("\x91", _Machine.tuple_of),  # a frozen set
        ("d", _Machine.dict_of),
        ("a", _Machine.append),
        ("e", _Machine.extend),
        ("\x90", _Machine.extend),
        ("s", _Machine.put),
        ("u", _Machine.put_many),
        ("c", _Machine.name),
        ("\x93", _Machine.name_on_stack),
        ("R", _with(_Machine.call, False)),
        ("\x81", _with(_Machine.call, True)),
        ("\x92", _Machine.call_with_names),
        ("b", _Machine.build),
        ("Q", _Machine.outside),
    )
}
"""Operations by opcode. Sets are lists: their items are not hashed."""
_NUMBERED: Final[dict[int, tuple[Callable[[_Machine, int], None], int]]] = {
    ord(code): (operation, width)
    for code, operation, width in (
        ("\x80", _Machine.protocol, 1),
        ("\x95", _Machine.frame, 8),
        ("q", _Machine.remember, 1),
        ("r", _Machine.remember, 4),
        ("h", _Machine.recall, 1),
        ("j", _Machine.recall, 4),
        ("K", _Machine.push, 1),
        ("M", _Machine.push, 2),
        ("\x8a", _Machine.long, 1),
        ("\x8b", _Machine.long, 4),
        ("\x8c", _Machine.text, 1),
        ("X", _Machine.text, 4),
        ("\x8d", _Machine.text, 8),
        ("U", _Machine.text, 1),
        ("T", _Machine.text, 4),
        ("C", _Machine.octets, 1),
        ("B", _Machine.octets, 4),
        ("\x8e", _Machine.octets, 8),
        ("\x96", _Machine.octets, 8),
    )
}
"""Operations by opcode with a number behind it, and the number's bytes."""
_EXTENSION: Final = "names a class by its number in the registry of the program that wrote it, which is not known here"
_NEVER: Final = {
    0x82: _EXTENSION,
    0x83: _EXTENSION,
    0x84: _EXTENSION,
    ord("P"): "names something outside of its pickle by text, as no file of torch.save does",
}
"""The messages for opcodes that are refused."""
