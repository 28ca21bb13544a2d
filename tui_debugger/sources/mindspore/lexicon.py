"""The parts that the file names of one rank are made of, each kept once.

A name is ``prefix + device + timestamp + ending``, for example ``Add.Add-op1`` ``.0.0.`` ``1700000000000000``
``.output.0.DefaultFormat.npy``. A rank has as many prefixes as nodes, and a few dozen devices and endings; only
timestamps differ from file to file and from step to step. So a file is three small numbers and a timestamp, and the
numbers of a whole directory are a ``Pattern`` that the steps of a run share.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int16, Int32, UInt8
from tui_debugger.sources.mindspore.names import split_name

Prefix = tuple[int, bool, bytes]
"""(root graph, whether from the constants directory, ``type.name``): what names a node on disk."""

_ZERO = ord("0")
_PARAMETER = b"Parameter."
_ANY_PREFIX = b"Type.name"
_ANY_FILE = _ANY_PREFIX + b".0.0.0"


Parts = tuple[int, int, int, int, bool]
"""A name as numbers: prefix, device, ending, timestamp, and whether the timestamp is written as ``str`` writes it, so
that the name can be put together again. A plain tuple: one is made for every file."""


class Pattern:
    """The names of a directory's files but for their timestamps: three columns, sorted by prefix and ending.

    Patterns of one lexicon that are equal are the same object.
    """

    __slots__ = ("__dict__", "__weakref__", "device", "ending", "prefix")

    def __init__(self, prefix: Int32, device: Int32, ending: Int32) -> None:
        """Takes the columns and makes them read-only."""
        self.prefix, self.device, self.ending = prefix, device, ending
        for column in (prefix, device, ending):
            column.flags.writeable = False

    def __len__(self) -> int:
        """Number of files."""
        return len(self.prefix)

    @cached_property
    def prefixes(self) -> Int32:
        """The distinct prefixes, ascending."""
        if not len(self.prefix):
            return self.prefix
        first = np.ones(len(self.prefix), np.bool_)
        np.not_equal(self.prefix[1:], self.prefix[:-1], out=first[1:])
        return self.prefix[first]


class Lexicon:
    """Numbers for the parts of names. Only grows; not thread-safe: its owner locks.

    Attributes:
        places: (root graph, whether constants) of directories; every prefix belongs to one.
        prefixes: ``type.name`` texts by number.
        devices: ``.task.stream.`` by number.
        endings: ``.side.slot.format[.dtype].npy`` by number.
        dtypes: distinct dtype tokens as written, ``b""`` for none.
    """

    def __init__(self) -> None:
        """Knows nothing but the empty token."""
        self.places: list[tuple[int, bool]] = []
        self.prefixes: list[bytes] = []
        self.devices: list[bytes] = []
        self.endings: list[bytes] = []
        self.dtypes: list[bytes] = [b""]
        self._place_of: list[int] = []
        self._fields: list[tuple[int, int, int]] = []
        self._prefix_numbers: list[dict[bytes, int]] = []
        self._device_numbers: dict[bytes, int] = {}
        self._ending_numbers: dict[bytes, int] = {}
        self._inputs: dict[bytes, int] = {}
        self._outputs: dict[bytes, int] = {}
        """Numbers of endings by what follows ``.input.`` and ``.output.``."""
        self._dtype_numbers: dict[bytes, int] = {b"": 0}
        self._patterns: WeakValueDictionary[bytes, Pattern] = WeakValueDictionary()
        self._columns = (np.zeros(0, np.uint8), np.zeros(0, np.int16), np.zeros(0, np.int32))
        self._place_column = np.zeros(0, np.int32)
        self._operator_column = np.zeros(0, np.bool_)

    def operators(self) -> npt.NDArray[np.bool_]:
        """By prefix, whether it names an operator: else a parameter or a constant."""
        known = len(self._operator_column)
        if known < len(self.prefixes):
            fresh = [not text.startswith(_PARAMETER) for text in self.prefixes[known:]]
            self._operator_column = np.append(self._operator_column, np.array(fresh, np.bool_))
        return self._operator_column

    def place(self, root: int, constants: bool) -> int:
        """Number of a kind of directory."""
        if (root, constants) not in self.places:
            self.places.append((root, constants))
            self._prefix_numbers.append({})
        return self.places.index((root, constants))

    def parts(self, place: int, name: bytes) -> Parts | None:
        """A tensor file's name as numbers, new parts entered; None when it is no such name. About a microsecond."""
        left, mark, right = name.rpartition(b".output.")
        ending = self._outputs.get(right) if mark else None
        if ending is None:
            left, mark, right = name.rpartition(b".input.")
            ending = self._inputs.get(right) if mark else None
        fields = left.rsplit(b".", 3)
        if ending is None or len(fields) < 4:
            return self._parts(place, name)
        text, _, _, when = fields
        prefix = self._prefix_numbers[place].get(text)
        device = self._device_numbers.get(left[len(text) : -len(when)])
        if prefix is None or device is None or not when.isdigit() or len(when) > 18:
            return self._parts(place, name)
        return prefix, device, ending, int(when), when[0] != _ZERO or len(when) == 1

    def prefix_number(self, place: int, text: bytes) -> int:
        """Number of a prefix, entered when it is new."""
        numbers = self._prefix_numbers[place]
        number = numbers.setdefault(text, len(self.prefixes))
        if number == len(self.prefixes):
            self.prefixes.append(text)
            self._place_of.append(place)
        return number

    def find_prefix(self, place: int, text: bytes) -> int:
        """Number of a prefix, -1 when it is unknown."""
        return self._prefix_numbers[place].get(text, -1)

    def device_number(self, text: bytes) -> int:
        """Number of ``.task.stream.``, entered when it is new."""
        number = self._device_numbers.setdefault(text, len(self.devices))
        if number == len(self.devices):
            self.devices.append(text)
        return number

    def ending_number(self, text: bytes) -> int:
        """Number of ``.side.slot.format[.dtype].npy``, entered when it is new; -1 when it makes no sense."""
        number = self._ending_numbers.get(text)
        if number is None:
            fields = split_name(_ANY_FILE + text)
            if fields is None or fields[0] != _ANY_PREFIX:
                return -1
            token = fields[7]
            if token not in self._dtype_numbers:
                self._dtype_numbers[token] = len(self.dtypes)
                self.dtypes.append(token)
            number = self._ending_numbers[text] = len(self.endings)
            self.endings.append(text)
            (self._outputs if fields[4] else self._inputs)[text.split(b".", 2)[2]] = number
            self._fields.append((fields[4], fields[5], self._dtype_numbers[token]))
        return number

    def prefix(self, number: int) -> Prefix:
        """(root graph, whether constants, text) of a prefix."""
        root, constants = self.places[self._place_of[number]]
        return root, constants, self.prefixes[number]

    def dtype(self, ending: int) -> bytes:
        """Dtype token of an ending."""
        return self.dtypes[self._fields[ending][2]]

    def sides(self) -> UInt8:
        """Side by ending."""
        return self._ending_columns()[0]

    def slots(self) -> Int16:
        """Slot by ending."""
        return self._ending_columns()[1]

    def dtype_numbers(self) -> Int32:
        """Index into ``dtypes`` by ending."""
        return self._ending_columns()[2]

    def places_of(self) -> Int32:
        """Index into ``places`` by prefix."""
        if len(self._place_column) < len(self._place_of):
            self._place_column = np.array(self._place_of, np.int32)
        return self._place_column

    def pattern(self, prefix: Int32, device: Int32, ending: Int32) -> Pattern:
        """The pattern of these columns; the same object for equal ones."""
        hasher = blake2b(digest_size=16)
        for column in (prefix, device, ending):
            hasher.update(np.ascontiguousarray(column).data)
        key = hasher.digest()
        found = self._patterns.get(key)
        if found is None:
            found = self._patterns[key] = Pattern(prefix, device, ending)
        return found

    def _parts(self, place: int, name: bytes) -> Parts | None:
        """``parts`` for a name with something new."""
        fields = split_name(name)
        if fields is None:
            return None
        text, task, stream, timestamp = fields[:4]
        start = len(text) + len(task) + len(stream) + 3
        stop = name.index(b".", start)
        prefix, device = self.prefix_number(place, text), self.device_number(name[len(text) : start])
        return prefix, device, self.ending_number(name[stop:]), timestamp, name[start] != _ZERO or stop == start + 1

    def _ending_columns(self) -> tuple[UInt8, Int16, Int32]:
        if len(self._columns[0]) < len(self.endings):
            fields = np.array(self._fields, np.int32)
            self._columns = (fields[:, 0].astype(np.uint8), fields[:, 1].astype(np.int16), fields[:, 2].copy())
        return self._columns
