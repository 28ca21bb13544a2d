"""Finds all tensors in the objects of a pickle, wherever they are.

A tensor here is a torch tensor, a storage, a NumPy array, or a number that is not finite; a list of numbers with
non-finite ones is one tensor. Its place is the path of dictionary keys, attribute names and list indices. An object
that cannot be understood is an entry with a ``problem`` at its place, and so is each storage that no tensor refers to:
no part of a file is dropped silently.

Non-finite numbers are no findings in settings (``max_grad_norm=inf``), infinite numbers only where their name says that
they are values (``loss``), and gradient norms of a training log not if the last one is finite (loss scaling skipped
those steps): ``apart`` counts them. Tensors are never such numbers, except a single infinite value within settings (the
best score so far). A module within settings has tensors of a model.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.stats.names_of_numbers import (
    LOG,
    is_class_of_settings,
    is_norm_of_gradients,
    is_of_settings,
    is_value,
)
from tui_debugger.stats.pickled_arrays import KINDS, SCALAR, array_in
from tui_debugger.stats.restricted_pickle import Global, Instance, Loaded, PickleError, shown_name
from tui_debugger.stats.torch_pickle import (
    OF_GENERATORS,
    SavedTensorRef,
    StorageRef,
    in_pickle,
    is_function,
    is_not_known,
    not_read,
    whole_storage,
)

MAX_TENSORS: Final = 1 << 18
"""Most tensors of a file."""
MAX_NUMBERS: Final = 1 << 16
"""Most finite numbers of a file that are kept."""
MAX_DEPTH: Final = 64
"""Deepest nesting of dictionaries and lists around a tensor."""

Path = tuple[Any, ...]
"""The dictionary keys and list indices that lead to a tensor."""


@dataclass(slots=True)
class SavedTensors:
    """The findings in a pickle.

    ``tensors`` are in the order of the pickle; places may repeat, because keys can be alike. ``apart`` counts
    non-finite numbers that are no findings. ``settings`` has indices of tensors that are single numbers within
    settings, of which infinite ones are dropped later. ``storages`` are keys that a tensor refers to. ``numbers`` are
    finite and have names.
    """

    tensors: list[tuple[Path, SavedTensorRef]] = field(default_factory=list)
    apart: list[tuple[Path, int]] = field(default_factory=list)
    settings: list[int] = field(default_factory=list)
    storages: set[str] = field(default_factory=set)
    numbers: dict[Path, int | float] = field(default_factory=dict)


Inside = Callable[[bytes], list[tuple[Path, SavedTensorRef]]]
"""Returns the tensors of a file that lies in a pickle as bytes, or an entry that says why they are not read."""
MARKS: Final = (b"PK\3\4", b"\x93NUMPY", *(b"\x80" + bytes([protocol]) for protocol in range(2, 6)))
"""First bytes of files that hold tensors: archives, arrays of NumPy, pickles."""


def saved_tensors(loaded: Loaded, inside: Inside) -> SavedTensors:
    """Returns all tensors of a pickle; ``inside`` looks into bytes that begin with one of ``MARKS``.

    Raises:
        PickleError: there are too many.
    """
    walk = _ObjectWalk(loaded.states, inside)
    walk.run(loaded.value)
    return walk.found


def storage_without_tensor(key: str, size: int | None) -> tuple[Path, SavedTensorRef]:
    """Returns the entry for a storage that no tensor of its file refers to."""
    bytes_ = "some" if size is None else f"{size:,}"
    return (f"<storage {key}>",), not_read(f"is a storage that no tensor refers to: its {bytes_} bytes are not read")


# -- the walk --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _UnknownArguments:
    """The arguments of a call of an unknown function."""

    maker: str
    arguments: list[tuple[Any, Any]]


@dataclass(frozen=True, slots=True, eq=False)
class _NonFiniteNumbers:
    """Numbers, some of which are not finite."""

    values: Array


@dataclass(slots=True)
class _WalkedObject:
    """An object on the current path of the walk; ``before`` is the number of findings before it.

    ``maker`` is an unknown function that made something else of its contents, or ``OF_GENERATORS``. ``module``,
    ``settings``: it belongs to a torch module, to settings.
    """

    container: int
    children: Iterator[tuple[Any, Any]]
    place: Path
    before: int
    maker: str
    module: bool
    settings: bool


class _Here:
    """The key of an entry for the object itself."""


_HERE: Final = _Here()
_MESH: Final = "torch.distributed.device_mesh.DeviceMesh"


class _ObjectWalk:
    """Visits every object once for each of its places; not again if it held nothing, and never within itself."""

    def __init__(self, states: Mapping[int, tuple[Any, Any]], inside: Inside) -> None:
        self.found = SavedTensors()
        self._states, self._inside = states, inside
        self._files: dict[int, list[tuple[Path, SavedTensorRef]]] = {}
        self._known: dict[int, tuple[Any, list[tuple[Any, Any]], Mapping[Path, int | float]]] = {}
        self._without, self._around, self._of_modules = set[int](), set[int](), set[int]()
        self._bare: list[tuple[Path, StorageRef]] = []
        self._count = 0

    def run(self, root: Any) -> None:
        frames = [_WalkedObject(0, iter(list(_looked_at([(_HERE, root)]))), (), 0, "", module=False, settings=False)]
        steps = 0
        while frames:
            top = frames[-1]
            steps += 1
            for key, child in top.children:
                if (inside := self._take(top, key, child)) is not None:
                    frames.append(inside)
                    break
            else:
                frames.pop()
                self._around.discard(top.container)
                if top.before == self._count:
                    self._without.add(top.container)
            if self._count > MAX_TENSORS or steps > 4 * MAX_TENSORS:
                raise PickleError(f"holds more than {MAX_TENSORS:,} tensors")
        for place, storage in self._bare:
            if storage.dtype or storage.key not in self.found.storages:
                self._add(place, whole_storage(storage))

    def _take(self, top: _WalkedObject, key: Any, child: Any) -> _WalkedObject | None:
        """Adds a tensor, or returns the frame of an object with contents."""
        place = top.place if key is _HERE else (*top.place, key)
        kind = type(child)
        if kind is SavedTensorRef:
            if self._is_known(top, child):
                return None
            if not child.shape and top.settings:
                self.found.settings.append(len(self.found.tensors))
            self._add(place, _as_made(child, top.maker))
            if child.attributes is None and id(child) not in self._states:
                return None
        elif kind is StorageRef:
            self._count += 1
            self._bare.append((place, child))
            return None
        elif kind is _NonFiniteNumbers or kind is bytes:
            if kind is _NonFiniteNumbers:
                self._take_numbers(top, place, child.values)
            else:
                if id(child) not in self._files:
                    self._files[id(child)] = self._inside(child)
                for below, ref in self._files[id(child)]:
                    self._add((*place, *below), ref)
            return None
        if id(child) in self._without or id(child) in self._around:
            return None
        return self._frame(top, place, key, child)

    def _is_known(self, top: _WalkedObject, ref: SavedTensorRef) -> bool:
        """Tells whether a module's tensor was found before, or a tensor is the state of a random generator."""
        if top.maker is OF_GENERATORS:
            return ref.values is not None and ref.values.dtype.kind in "iu"
        known = top.module and id(ref) in self._of_modules
        if top.module:
            self._of_modules.add(id(ref))
        return known

    def _frame(self, top: _WalkedObject, place: Path, key: Any, child: Any) -> _WalkedObject | None:
        if len(place) > MAX_DEPTH:
            self._add(place, not_read(f"nests deeper than {MAX_DEPTH} dictionaries and lists"))
            return None
        kind = type(child)
        if kind is Instance and child.kind == _MESH:
            self._take_mesh(child)
            return None
        found = self._known.get(id(child))
        if found is None:
            numbers = {} if key == LOG else dict(_named_numbers(child, self._states))
            found = self._known[id(child)] = child, list(self._children(child, is_log=key == LOG)), numbers
        self._around.add(id(child))
        maker = child.maker if kind is _UnknownArguments else top.maker
        if _is_generator(child):
            maker = OF_GENERATORS
        is_module = kind is Instance and type(child.state) is dict and _PARAMETERS in child.state
        settings = top.settings or is_of_settings(key)
        settings = settings or (kind is Instance and is_class_of_settings(child.kind))
        settings = settings and not is_module
        if maker is not OF_GENERATORS and len(self.found.numbers) < MAX_NUMBERS:
            self.found.numbers.update(((*place, *below), number) for below, number in found[2].items())
        return _WalkedObject(id(child), iter(found[1]), place, self._count, maker, top.module or is_module, settings)

    def _take_mesh(self, mesh: Instance) -> None:
        """Marks the storages of a device mesh as seen: they hold numbers of ranks."""
        for _, value in _state_items(mesh.state, self._states):
            if type(value) is SavedTensorRef and value.storage is not None:
                self.found.storages.add(value.storage.key)
            elif type(value) is Instance and value.kind == _MESH and value is not mesh:
                self._take_mesh(value)

    def _add(self, place: Path, ref: SavedTensorRef) -> None:
        self._count += 1
        self.found.tensors.append((place, ref))
        if ref.storage is not None and ref.storage.content is None:
            self.found.storages.add(ref.storage.key)

    def _take_numbers(self, top: _WalkedObject, place: Path, values: Array) -> None:
        name = next((key for key in reversed(place) if type(key) is str), "")
        settings = top.settings or is_of_settings(name)
        judged = np.isnan(values).any() or is_value(name)
        scaled = LOG in place[:-1] and is_norm_of_gradients(name) and np.isfinite(values.flat[-1])
        if judged and not settings and not scaled:
            self._add(place, in_pickle(values))
        else:
            self._count += 1
            self.found.apart.append((place, int((~np.isfinite(values)).sum())))

    def _children(self, container: Any, *, is_log: bool) -> Iterator[tuple[Any, Any]]:
        """Yields the contents of a container that may hold tensors, with keys."""
        kind = type(container)
        if kind is SavedTensorRef:
            items = _state_items(container.attributes, self._states)
        elif kind is _UnknownArguments:
            items = container.arguments
        elif kind is Instance:
            items = _parts(container, self._states)
        else:
            items = _columns(container, self._states) if is_log and kind is list else _items(container)
        if id(container) in self._states:
            items = [*items, *_state_items(self._states[id(container)][1], self._states)]
        yield from _looked_at(items)


def _is_generator(value: Any) -> bool:
    """Tells whether an object is a NumPy random generator, or the state of one."""
    kind = type(value)
    if kind is tuple:
        return len(value) > 1 and value[0] == "MT19937"
    if kind is dict:
        return type(value.get("bit_generator")) is str
    return kind is Instance and value.kind.startswith(OF_GENERATORS)


def _as_made(ref: SavedTensorRef, maker: str) -> SavedTensorRef:
    """Returns the tensor, with a problem if an unknown function may have made other numbers of its bits."""
    if not maker or maker is OF_GENERATORS or ref.problem or ref.dtype not in _PACKED_BITS:
        return ref
    return replace(ref, problem=f"went into {shown_name(maker)}, which is not known: what that made is not read")


_PACKED_BITS: Final = frozenset({"int8", "uint8", "int16", "uint16", "int32", "uint32"})
"""Element types that numbers of other types are packed into."""


def _named_numbers(container: Any, attributed: Container[int]) -> Iterator[tuple[Path, int | float]]:
    """Yields the named finite numbers of a dictionary or an object, and of short lists in it."""
    items = _items(container) if type(container) is dict else []
    if type(container) is Instance:
        items = _state_items(container.state, attributed)
    for key, value in items:
        if type(key) is str:
            several = type(value) in (list, tuple) and len(value) <= _FEW
            numbers = [((key, at), each) for at, each in enumerate(value)] if several else [((key,), value)]
            for below, number in numbers:
                if type(number) in (bool, int, float) and number - number == 0:
                    yield below, number


_FEW: Final = 8
"""Most numbers of one setting, such as the betas of Adam."""


# -- what is in an object --------------------------------------------------------------------------


def _looked_at(items: list[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Yields the items that may hold tensors, with plain keys."""
    for number, (key, value) in enumerate(items):
        kind, at = type(value), key
        if type(key) is not str and type(key) is not int:
            at = _plain(key, number)
            if type(key) is SavedTensorRef:
                yield f"{at} itself", key
        if kind is SavedTensorRef or kind is dict or kind is StorageRef or kind is _UnknownArguments:
            yield at, value
        elif kind is float or kind is complex:
            if value - value != 0:
                yield at, _NonFiniteNumbers(np.array(value))
        elif kind is list or kind is tuple:
            numbers = _numbers_in(value)
            yield at, value if numbers is None else numbers
        elif kind is np.ndarray:
            yield at, in_pickle(value)
        elif kind is bytes:
            if value.startswith(MARKS):
                yield at, value
        elif kind is Instance:
            yield from _understood(at, value)


def _plain(key: Any, number: int) -> Any:
    """Returns a key in a form that a place can hold."""
    kind = type(key)
    if kind is Global:
        return f"<{shown_name(key.name)}>"
    if kind is Instance:
        arguments = ", ".join(str(each) for each in key.arguments if type(each) in (str, int, float, bool))
        return f"<{shown_name(f'{key.kind}({arguments})')}>"
    if kind is tuple and any(type(part) not in _PLAIN_PARTS for part in key):
        return f"<key {number}>"
    return f"<key {number}>" if kind in (SavedTensorRef, StorageRef) else key


_PLAIN_PARTS: Final = (str, int, float, bool, bytes, type(None))


def _understood(key: Any, found: Instance) -> Iterator[tuple[Any, Any]]:
    """Yields the content of an array or a number; objects of other kinds are visited later."""
    if found.kind in KINDS:
        try:
            value = array_in(found)
        except PickleError as error:
            yield key, not_read(str(error))
            return
        if found.kind == SCALAR and type(value) is np.ndarray and not value.shape:
            if not np.isfinite(value):
                yield key, _NonFiniteNumbers(value)
            return
        yield from _looked_at([(key, value)])
    elif found.kind == _DECIMAL and found.arguments and str(found.arguments[0]).lower().lstrip("-+s") in _NOT_FINITE:
        yield key, _NonFiniteNumbers(np.array(float(str(found.arguments[0]).lower().replace("snan", "nan"))))
    else:
        yield key, found


_DECIMAL: Final = "decimal.Decimal"
_NOT_FINITE: Final = ("nan", "inf", "infinity")


def _numbers_in(values: list[Any] | tuple[Any, ...]) -> _NonFiniteNumbers | None:
    """Returns the items of a list if all are numbers and some are not finite."""
    odd = False
    for value in values:
        kind = type(value)
        if kind is float:
            odd = odd or value - value != 0
        elif kind is not int and kind is not bool:
            return None
    return _NonFiniteNumbers(np.array([_as_float(value) for value in values])) if odd else None


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(sys.float_info.max, value)


def _items(container: Any) -> list[tuple[Any, Any]]:
    if type(container) is dict:
        return list(container.items())
    return list(enumerate(container)) if type(container) in (list, tuple) else []


def _columns(log: list[Any], attributed: Container[int]) -> list[tuple[Any, Any]]:
    """Returns the numbers of a log by name, in the order of its entries, and all other contents."""
    columns: dict[str, list[Any]] = {}
    rest: list[tuple[Any, Any]] = []
    for at, entry in enumerate(log):
        if type(entry) is not dict or id(entry) in attributed:
            rest.append((at, entry))
            continue
        other = {}
        for name, value in entry.items():
            if type(name) is str and type(value) in (int, float, bool):
                columns.setdefault(name, []).append(value)
            else:
                other[name] = value
        if other:
            rest.append((at, other))
    return [*columns.items(), *rest]


def _state_items(state: Any, attributed: Container[int]) -> list[tuple[Any, Any]]:
    """Returns attributes by name, from a state that is a dictionary, or two of them for a class with slots.

    ``attributed`` are the ids of objects that have attributes themselves; they are visited as a whole.
    """
    if id(state) in attributed:
        return [("state", state)]
    if type(state) is tuple and len(state) == 2 and type(state[0]) in (dict, type(None)) and type(state[1]) is dict:
        return [*_state_items(state[0], attributed), *_state_items(state[1], attributed)]
    if type(state) is dict and _PARAMETERS in state:
        # Parameters, buffers and modules of a module are attributes of it, as in PyTorch.
        parts = [item for name in _OF_A_MODULE for item in _state_items(state.get(name), attributed)]
        return [*parts, *((key, value) for key, value in state.items() if key not in _OF_A_MODULE)]
    if state is None or type(state) in (dict, list, tuple):
        return _items(state)
    return [("state", state)]


def _parts(found: Instance, attributed: Container[int]) -> list[tuple[Any, Any]]:
    """Returns the contents of an object, each once: attributes, items, and constructor arguments."""
    items = _items(found.items)
    put = {(key, id(value)) for key, value in items}
    state = [(key, value) for key, value in _state_items(found.state, attributed) if (key, id(value)) not in put]
    held = {id(value) for _, value in (*items, *state) if type(value) in _SHARED}
    made_of = [(key, value) for key, value in enumerate(found.arguments) if id(value) not in held]
    problem = _problem_of(found, made_of)
    given = (
        [("made_of", _UnknownArguments(found.kind, made_of))]
        if found.called and is_function(found.kind) and made_of
        else made_of
    )
    return [*([(_HERE, not_read(problem))] if problem else []), *state, *items, *given]


_SHARED: Final = (SavedTensorRef, StorageRef, dict, list, tuple, Instance)


def _problem_of(found: Instance, made_of: list[tuple[Any, Any]]) -> str:
    """Returns why an object may hold numbers that this module does not find; empty: it cannot."""
    name = shown_name(found.kind)
    if found.called and is_not_known(found.kind):
        return f"was made by {name}, which is not known: what that makes is not read"
    if found.kind.startswith(_CODE):
        return ""
    if found.called and _has_bytes([value for _, value in made_of], _DEPTH_OF_BYTES):
        return f"was made by {name} of bytes, which are not read"
    if type(found.state) is not dict and _has_bytes(found.state, _DEPTH_OF_BYTES):
        return f"is a {name} that was made of bytes, which are not read"
    return ""


_CODE: Final = ("types.CodeType", "cloudpickle.")
"""Makers of functions."""
_DEPTH_OF_BYTES: Final = 3


def _has_bytes(value: Any, depth: int) -> bool:
    """Tells whether there are bytes that may be numbers, not text."""
    if type(value) is bytes:
        if value.startswith(MARKS):
            return False  # files within the pickle are read
        try:
            return b"\0" in value or not value.decode("utf-8").isascii()
        except UnicodeDecodeError:
            return True
    return depth > 0 and type(value) in (list, tuple) and any(_has_bytes(part, depth - 1) for part in value)


_PARAMETERS: Final = "_parameters"
_OF_A_MODULE: Final = (_PARAMETERS, "_buffers", "_modules")
"""See ``torch.nn.Module.__init__``."""
