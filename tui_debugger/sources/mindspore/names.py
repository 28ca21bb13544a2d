"""Names of tensor files, parsed from the right.

``{op_type}.{op_name}.{task}.{stream}.{timestamp}.{input|output}.{slot}.{format}[.{dtype}].npy``

Operator names and the names of parameters contain dots, so only the ends are fixed: the type before the
first dot, and six or seven fields before the suffix. All generations share this frame:

========== ======================================================= ===========
MindSpore  ``op_name``                                             ``dtype``
========== ======================================================= ===========
1.3 – 2.2  last component of the full name (``MatMul-op101``)      none
2.3        full name with ``/`` as ``--``                          none
2.4 – 2.6  full name with ``/`` as ``--``                          ``float32``
2.7 – 2.10 full name with ``/`` (and a parameter's ``.``) as ``_`` ``Float32``
========== ======================================================= ===========
"""

from __future__ import annotations

from dataclasses import dataclass
from sys import intern

from tui_debugger.model import Side
from tui_debugger.stats.dtypes import canonical_name

SUFFIX = b".npy"
SIDES = {b"input": 0, b"output": 1}
"""The side token of a file name and the value of ``model.Side`` that it stands for."""
MAX_SLOT = 2**15 - 1
MAX_TIMESTAMP = 2**63 - 1

Fields = tuple[bytes, bytes, bytes, int, int, int, bytes, bytes]
"""(prefix ``type.name``, task, stream, timestamp, side, slot, format, dtype token or ``b""``)."""


@dataclass(frozen=True, slots=True)
class ParsedName:
    """The fields of a tensor file's name.

    Attributes:
        op_type: operator type, ``Parameter`` for weights, inputs and constants.
        op_name: as in the file name, in whichever generation's spelling. Invalid UTF-8 survives as surrogates.
        task, stream: numbers of the device, 0 on CPU and GPU; 0 where the token is no number.
        timestamp: microseconds since the epoch.
        side, slot: which input or output.
        format: ``DefaultFormat`` or a device format.
        dtype: logical element type in lower case (``bfloat16``), empty when the name states none; an
            unknown token is kept in lower case.
    """

    op_type: str
    op_name: str
    task: int
    stream: int
    timestamp: int
    side: Side
    slot: int
    format: str
    dtype: str = ""


def decode(name: bytes) -> str:
    """Bytes of a name as text; bytes that are no UTF-8 survive a round trip as surrogates."""
    return name.decode("utf-8", "surrogateescape")


def logical_dtype(token: str | bytes, unknown: str | None = None) -> str:
    """Element type that a token of any generation names: ``Float32`` is ``float32``.

    Args:
        token: as written.
        unknown: what to return for an unknown token; the token in lower case by default.
    """
    text = decode(token) if isinstance(token, bytes) else token
    return canonical_name(text) or (text.lower() if unknown is None else unknown)


def split_name(name: bytes) -> Fields | None:
    """The fields of a name as cheaply as possible (about a microsecond); None when it is no tensor file's name."""
    parts = name[:-4].rsplit(b".", 7) if name.endswith(SUFFIX) else ()
    if len(parts) < 8:
        return None
    if parts[5] in SIDES:  # six fixed fields: the split of seven cut one too many
        prefix = parts[0] + b"." + parts[1]
        task, stream, when, side, slot, fmt = parts[2:]
        dtype = b""
    elif parts[4] in SIDES:
        prefix, task, stream, when, side, slot, fmt, dtype = parts
    else:
        return None
    numeric = when.isdigit() and slot.isdigit() and task.isdigit() and stream.isdigit()
    if not numeric or len(when) > 19 or len(slot) > 5 or not 0 < prefix.find(b".") < len(prefix) - 1:
        return None
    timestamp, index = int(when), int(slot)
    if timestamp > MAX_TIMESTAMP or index > MAX_SLOT:
        return None
    return prefix, task, stream, timestamp, SIDES[side], index, fmt, dtype


def split_prefix(prefix: bytes) -> tuple[str, str]:
    """(operator type, operator name) of a ``type.name`` prefix."""
    op_type, _, op_name = decode(prefix).partition(".")
    return intern(op_type), op_name  # there are a few dozen types


def parse_name(name: bytes | str) -> ParsedName | None:
    """Parses a file name of any generation; None when it is not the name of a tensor file.

    Args:
        name: bare file name (no directory), as bytes or as text decoded with surrogates.
    """
    raw = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name
    fields = split_name(raw)
    if fields is None:
        return None
    prefix, task, stream, timestamp, side, slot, fmt, dtype = fields
    op_type, op_name = split_prefix(prefix)
    return ParsedName(
        op_type, op_name, _number(task), _number(stream), timestamp, Side(side), slot, decode(fmt), logical_dtype(dtype)
    )


def _number(token: bytes) -> int:
    return int(token) if len(token) <= 19 else 0


def generation(op_name: str, dtype_token: str) -> str:
    """MindSpore versions that write a name like this one, for people; empty when it fits several.

    Args:
        op_name: operator name as in the file name.
        dtype_token: the token as written (``Float32``), empty when there is none.
    """
    if "--" in op_name:
        return "2.4 to 2.6" if dtype_token else "2.3"
    if dtype_token[:1].isupper():
        return "2.7 or newer"
    return "" if dtype_token else "2.2 or older"
