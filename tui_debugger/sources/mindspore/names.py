"""Names of tensor files, parsed from the right.

``{op_type}.{op_name}.{task}.{stream}.{timestamp}.{input|output}.{slot}.{format}[.{dtype}].npy``

Operator and parameter names contain dots, so only the ends are fixed: the type before the first dot, and six or seven
fields before the suffix. All generations share this frame:

========== ======================================================= ===========
MindSpore  ``op_name``                                             ``dtype``
========== ======================================================= ===========
1.3 – 2.2  last component of the full name (``MatMul-op101``)      none
2.3        full name with ``/`` as ``--``                          none
2.4 – 2.6  full name with ``/`` as ``--``                          ``float32``
2.7 – 2.10 full name with ``/`` (and a parameter's ``.``) as ``_`` ``Float32``
========== ======================================================= ===========

An Ascend device that dumps asynchronously writes one file with all inputs and outputs of an operator run, and the name
ends after the timestamp (old devices: without stream). A device that divides an operator among threads appends
``.{task_type}.{context}.{thread}.{device}`` for each thread's file; these numbers are no part of the operator's name.
Tools convert such files to ``{head}.{input|output}.{slot}.npy``, without a format.

A name is ``prefix + device + timestamp + ending``: ``Add.Add-op1``, ``.0.0.``, ``1700000000000000``,
``.output.0.DefaultFormat.npy``. A rank has as many prefixes as nodes, and a few dozen devices and endings, each kept
once. So a file is three small numbers and a timestamp, and the numbers of a directory are a ``DirectoryNames`` that the
steps of a run share. A tensor in a file of several has an ending (``:output.0``) that is no part of the file's name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import count
from sys import intern
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from tui_debugger.arrays import Int16, Int32, Mask, UInt8
from tui_debugger.last_result import LastResult
from tui_debugger.model import ReadSpec
from tui_debugger.sources.base import NO_NUMBER, Writer
from tui_debugger.stats.ascend_file import DEVICE_FORMATS, member_name
from tui_debugger.stats.dtypes import canonical_name

SUFFIX = b".npy"
SIDES = {b"input": 0, b"output": 1}
"""Value of ``model.Side`` by the side token of a file name."""
MAX_SLOT = 2**15 - 1
MAX_TIMESTAMP = 2**63 - 1

UNKNOWN: Final = b"%d" % NO_NUMBER
"""The stream of a file whose name has none."""
_TIMES: Final = range(15, 18)
"""Number of digits of a time in a name without a stream."""

MEMBER = b":"
"""The start of an ending that names a tensor in a file of several."""

Fields = tuple[bytes, bytes, bytes, int, int, int, bytes, bytes]
"""(prefix ``type.name``, task, stream, timestamp, side, slot, format, dtype token or ``b""``)."""


def decode(name: bytes) -> str:
    """Decodes a name; bytes that are no UTF-8 survive a round trip as surrogates."""
    return name.decode("utf-8", "surrogateescape")


def logical_dtype(token: str | bytes, unknown: str | None = None) -> str:
    """Element type of a token of any generation: ``Float32`` is ``float32``; ``unknown`` replaces unknown ones."""
    text = decode(token) if isinstance(token, bytes) else token
    return canonical_name(text) or (text.lower() if unknown is None else unknown)


def split_name(name: bytes) -> Fields | None:
    """The fields of a tensor file's name, else None; must be fast (about a microsecond)."""
    parts = name[:-4].rsplit(b".", 7) if name.endswith(SUFFIX) else ()
    if len(parts) < 6:
        return None
    if len(parts) == 8 and parts[5] in SIDES:  # six fixed fields: the split of seven cut one too many
        prefix = parts[0] + b"." + parts[1]
        task, stream, when, side, slot, fmt = parts[2:]
        dtype = b""
    elif len(parts) == 8 and parts[4] in SIDES:
        prefix, task, stream, when, side, slot, fmt, dtype = parts
    else:
        return _split_converted(name, parts)
    numeric = when.isdigit() and slot.isdigit() and task.isdigit() and stream.isdigit()
    if prefix.rpartition(b".")[2].isdigit():  # numbers of a thread may stand behind the time
        return _split_converted(name, parts)
    if not numeric or len(when) > 19 or len(slot) > 5 or not 0 < prefix.find(b".") < len(prefix) - 1:
        return _split_converted(name, parts)
    timestamp, index = int(when), int(slot)
    if timestamp > MAX_TIMESTAMP or index > MAX_SLOT:
        return None
    return prefix, task, stream, timestamp, SIDES[side], index, fmt, dtype


def _split_converted(name: bytes, parts: Sequence[bytes]) -> Fields | None:
    """``split_name`` for names whose head is a device's: see ``split_device_name``. A format may be missing."""
    at = next((at for at in (-4, -3, -2) if len(parts) >= -at and parts[at] in SIDES), 0)
    if not at or not parts[at + 1].isdigit() or len(parts[at + 1]) > 5 or int(parts[at + 1]) > MAX_SLOT:
        return None
    head = split_device_name(name[:-4].rsplit(b".", -at)[0])
    if head is None:
        return None
    fmt, dtype = parts[-2] if at == -4 else parts[-1] if at == -3 else b"", parts[-1] if at == -4 else b""
    return head.prefix, head.task, head.stream, head.timestamp, SIDES[parts[at]], int(parts[at + 1]), fmt, dtype


_VALUES: Final = re.compile(rb"(.+)\.(?:input|output)\.[0-9]{1,5}(?:\.[^/]*)?", re.DOTALL)


def names_values(name: bytes) -> bool:
    """Whether a name is that of one tensor of a device's file, in any form that a tool wrote."""
    found = _VALUES.fullmatch(name)
    return found is not None and split_device_name(found[1]) is not None


class DeviceName(NamedTuple):
    """The parts of the name of a file that a device wrote."""

    prefix: bytes
    """``type.name``."""
    task: bytes
    stream: bytes
    """``task`` and ``stream`` as written; ``UNKNOWN`` for a missing stream."""
    timestamp: int
    """Microseconds since the epoch."""
    context: int = NO_NUMBER
    thread: int = NO_NUMBER
    """``context`` and ``thread`` of the part of a divided operator, else ``NO_NUMBER``."""


def split_device_name(name: bytes) -> DeviceName | None:
    """Splits the name of a file that a device wrote; None for any other name."""
    parts = name.split(b".")
    digits = 0
    while digits < len(parts) - 2 and parts[-digits - 1].isdigit():
        digits += 1
    context = thread = NO_NUMBER
    # A time is longer than the numbers around it: that tells the forms apart where the operator's name has dots.
    if digits > 5 and len(parts[-5]) > max(map(len, parts[-4:])):
        context, thread = (int(part) if len(part) < 6 else NO_NUMBER for part in parts[-3:-1])
        parts, digits = parts[:-4], digits - 4
    if digits == 2 and len(parts[-1]) in _TIMES:
        parts.insert(-1, UNKNOWN)
    elif digits < 3:
        return None
    prefix, task, stream, when = b".".join(parts[:-3]), *parts[-3:]
    if len(when) > 19 or int(when) > MAX_TIMESTAMP or not 0 < prefix.find(b".") < len(prefix) - 1:
        return None
    return DeviceName(prefix, task, stream, int(when), context, thread)


def is_later_slice(name: DeviceName | None) -> bool:
    """Whether a file is of a later one of the threads that share a run of an operator."""
    return name is not None and name.thread not in (0, NO_NUMBER)


def split_prefix(prefix: bytes) -> tuple[str, str]:
    """(operator type, operator name) of a ``type.name`` prefix."""
    op_type, _, op_name = decode(prefix).partition(".")
    return intern(op_type), op_name  # there are a few dozen types


def writer_of(name: str) -> Writer | None:
    """The operator that a tensor file's name of any generation tells of; surrogates are its bytes that are no UTF-8."""
    fields = split_name(os.fsencode(name)) or split_device_name(os.fsencode(name))
    if fields is None:
        return None
    prefix, task, stream, timestamp, *_ = fields
    return Writer(*split_prefix(prefix), _number(task), _number(stream), timestamp)


def _number(token: bytes) -> int:
    return int(token) if len(token) <= 19 else 0


def generation(op_name: str, dtype_token: str) -> str:
    """MindSpore versions that write such a name, for people; empty when several do."""
    if "--" in op_name:
        return "2.4 to 2.6" if dtype_token else "2.3"
    if dtype_token[:1].isupper():
        return "2.7 or newer"
    return "" if dtype_token else "2.2 or older"


Prefix = tuple[int, bool, bytes]
"""(root graph, whether from the constants directory, ``type.name``): identifies a node on disk."""

_ZERO = ord("0")
_OF_DEVICE = frozenset(fmt.encode() for fmt in DEVICE_FORMATS)
PARAMETER = b"Parameter."
_ANY_PREFIX = b"Type.name"
_ANY_FILE = _ANY_PREFIX + b".0.0.0"


Parts = tuple[int, int, int, int, bool]
"""A name as numbers: prefix, device, ending, timestamp; and whether they spell the whole name: it has a stream, no
numbers of a thread, no zeros before the timestamp. A plain tuple, because one is made for every file.
"""


class DirectoryNames:
    """The names of a directory's files but for their timestamps: three columns, sorted by prefix and ending.

    Equal patterns of one table of known names are the same object.
    """

    __slots__ = ("__dict__", "__weakref__", "device", "ending", "prefix")

    def __init__(self, prefix: Int32, device: Int32, ending: Int32) -> None:
        self.prefix, self.device, self.ending = prefix, device, ending
        for column in (prefix, device, ending):
            column.flags.writeable = False

    def __len__(self) -> int:
        return len(self.prefix)

    @cached_property
    def prefixes(self) -> Int32:
        if not len(self.prefix):
            return self.prefix
        first = np.ones(len(self.prefix), np.bool_)
        np.not_equal(self.prefix[1:], self.prefix[:-1], out=first[1:])
        return self.prefix[first]


class _Numbered(NamedTuple):
    """The names of the only ``statistic.csv`` of a rank, and their numbers."""

    texts: tuple[bytes, ...]
    prefixes: list[bytes]
    numbers: dict[bytes, int]
    column: Int32


_latest: list[_Numbered] = []
"""Of the rank that was read last: the ranks of a run have the same names, which are kept once then."""


_operators: Final = LastResult[Mask]()


def are_operators(prefixes: Sequence[bytes]) -> Mask:
    return np.array([not text.startswith(PARAMETER) for text in prefixes], np.bool_)


class KnownNames:
    """Numbers for the parts of names. Only grows; not thread-safe: its owner locks."""

    def __init__(self) -> None:
        self.places: list[tuple[int, bool]] = []
        """(root graph, whether constants) of directories; every prefix belongs to one."""
        self.prefixes: list[bytes] = []
        """``type.name`` texts by number."""
        self.devices: list[bytes] = []
        """``.task.stream.`` by number."""
        self.endings: list[bytes] = []
        """``.side.slot.format[.dtype].npy`` or ``:side.slot`` by number."""
        self.tails: list[bytes] = []
        """The part of each ending in the file name: empty where the ending names a tensor in a file."""
        self.kinds: list[ReadSpec] = []
        """How values are read by ending, without the path."""
        self.dtypes: dict[bytes, None] = {}
        """Distinct dtype tokens as written, in the order in which they came; ``b""`` for none."""
        self._place_of: list[int] = []
        self._fields: list[tuple[int, int]] = []
        self._prefix_numbers: list[dict[bytes, int]] = []
        self._device_numbers: dict[bytes, int] = {}
        self._ending_numbers: dict[bytes, int] = {}
        self._inputs: dict[bytes, int] = {}
        self._outputs: dict[bytes, int] = {}
        """Numbers of endings by the text after ``.input.``, and after ``.output.``."""
        self._patterns: WeakValueDictionary[bytes, DirectoryNames] = WeakValueDictionary()
        self._columns = (np.zeros(0, np.uint8), np.zeros(0, np.int16))
        self._lent = False
        """Another rank shares the prefixes and their numbers: copy them before one is added."""
        self._place_column = np.zeros(0, np.int32)
        self._operator_column = np.zeros(0, np.bool_)
        self.recorded: dict[tuple[int, tuple[bytes, ...]], Int32] = {}
        """Numbers by kind of directory and names of a ``statistic.csv``; see ``MindSporeStepListing.statistics``."""

    def operators(self) -> Mask:
        """By prefix, whether it names an operator: else a parameter or a constant."""
        known, length = len(self._operator_column), len(self.prefixes)
        if not known and length:
            self._operator_column = _operators.of(self.prefixes, length, make=lambda: are_operators(self.prefixes))
        elif known < length:
            self._operator_column = np.append(self._operator_column, are_operators(self.prefixes[known:]))
        return self._operator_column

    def place(self, root: int, constants: bool) -> int:
        if (root, constants) not in self.places:
            self.places.append((root, constants))
            self._prefix_numbers.append({})
        return self.places.index((root, constants))

    def parts(self, place: int, name: bytes) -> Parts | None:
        """A tensor file's name as numbers, new parts entered; None for any other name. Takes about a microsecond."""
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
        number = numbers.get(text, -1)
        if number < 0:
            self._own()
            number = self._prefix_numbers[place][text] = len(self.prefixes)
            self.prefixes.append(text)
            self._place_of.append(place)
        return number

    def _own(self) -> None:
        """Copies the shared prefixes before one is added."""
        if self._lent:
            self.prefixes, self._lent = self.prefixes.copy(), False
            self._prefix_numbers = [numbers.copy() for numbers in self._prefix_numbers]

    def prefix_numbers(self, place: int, texts: tuple[bytes, ...]) -> Int32:
        numbers, first = self._prefix_numbers[place], not self.prefixes
        latest = next(iter(_latest), None) if first else None
        if latest is not None and latest.texts == texts:
            self.prefixes, self._prefix_numbers[place], self._lent = latest.prefixes, latest.numbers, True
            self._place_of = [place] * len(self.prefixes)
            return latest.column
        fresh = [text for text in dict.fromkeys(texts) if text not in numbers]
        if fresh:
            self._own()
            numbers = self._prefix_numbers[place]
        numbers.update(zip(fresh, count(len(self.prefixes)), strict=False))
        self.prefixes += fresh
        self._place_of += [place] * len(fresh)
        found = np.fromiter(map(numbers.__getitem__, texts), np.int32, len(texts))
        if first:
            _latest[:] = [_Numbered(texts, self.prefixes, numbers, found)]
            self._lent = True
        return found

    def find_prefix(self, place: int, text: bytes) -> int:
        """Number of a prefix, -1 when it is unknown."""
        return self._prefix_numbers[place].get(text, -1)

    def device_number(self, text: bytes) -> int:
        number = self._device_numbers.setdefault(text, len(self.devices))
        if number == len(self.devices):
            self.devices.append(text)
        return number

    def find_device(self, task: int, stream: int) -> int:
        """Number of ``.task.stream.``, -1 when it is unknown."""
        return self._device_numbers.get(b".%d.%d." % (task, stream), -1)

    def ending_number(self, text: bytes) -> int:
        """Number of an ending, entered when it is new; -1 when it makes no sense."""
        number = self._ending_numbers.get(text)
        return self._new_ending(text) if number is None else number

    def member_number(self, side: int, slot: int) -> int:
        """Number of the ending of a tensor in a file of several."""
        return self.ending_number(MEMBER + member_name(side, slot).encode())

    def keeps_device_order(self, ending: int) -> bool:
        """Whether the elements of a ``.npy`` file stand as a device held them, or no format tells their order."""
        fields = split_name(_ANY_FILE + self.endings[ending])
        return fields is not None and (not fields[6] or fields[6] in _OF_DEVICE)

    def _new_ending(self, text: bytes) -> int:
        of_member = text.startswith(MEMBER)
        ending = b"." + text[1:] + b"..npy" if of_member else text
        fields = split_name(_ANY_FILE + ending)
        if fields is None or fields[0] != _ANY_PREFIX or (of_member and text[1:].count(b".") != 1):
            return -1
        side, slot, fmt, token = fields[4:]
        number = self._ending_numbers[text] = len(self.endings)
        self.endings.append(text)
        self._fields.append((side, slot))
        self.dtypes.setdefault(token)
        if of_member:
            self.tails.append(b"")
            self.kinds.append(ReadSpec("", "ascend", member=member_name(side, slot)))
            return number
        self.tails.append(text)
        dtype = logical_dtype(token, unknown="")
        of_device = ReadSpec("", "ascend", dtype, member=decode(fmt))
        self.kinds.append(of_device if fmt in _OF_DEVICE else ReadSpec("", dtype=dtype))
        (self._outputs if side else self._inputs)[text.split(b".", 2)[2]] = number
        return number

    def prefix(self, number: int) -> Prefix:
        root, constants = self.places[self._place_of[number]]
        return root, constants, self.prefixes[number]

    def sides(self) -> UInt8:
        return self._ending_columns()[0]

    def slots(self) -> Int16:
        return self._ending_columns()[1]

    def places_of(self) -> Int32:
        if len(self._place_column) < len(self._place_of):
            self._place_column = np.array(self._place_of, np.int32)
        return self._place_column

    def pattern(self, prefix: Int32, device: Int32, ending: Int32) -> DirectoryNames:
        """The pattern of these columns; the same object for equal ones."""
        hasher = blake2b(digest_size=16)
        for column in (prefix, device, ending):
            hasher.update(np.ascontiguousarray(column).data)
        key = hasher.digest()
        found = self._patterns.get(key)
        if found is None:
            found = self._patterns[key] = DirectoryNames(prefix, device, ending)
        return found

    def _parts(self, place: int, name: bytes) -> Parts | None:
        """``parts`` for a name with a new part."""
        fields = split_name(name)
        if fields is None:
            return None
        text, task, stream, timestamp, _, _, fmt, dtype = fields
        count = 3 + bool(fmt) + bool(dtype)
        parts = name.rsplit(b".", count)
        parts = parts if parts[1] in SIDES else name.rsplit(b".", count + 1)  # a format that is there and empty
        ending = b"." + b".".join(parts[1:])
        device = b".%s.%s." % (task, stream)
        numbers = self.prefix_number(place, text), self.device_number(device), self.ending_number(ending)
        return *numbers, timestamp, name == text + device + b"%d" % timestamp + ending

    def _ending_columns(self) -> tuple[UInt8, Int16]:
        if len(self._columns[0]) < len(self.endings):
            fields = np.array(self._fields, np.int32)
            self._columns = (fields[:, 0].astype(np.uint8), fields[:, 1].astype(np.int16))
        return self._columns
