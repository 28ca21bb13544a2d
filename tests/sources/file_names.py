"""The fields of a tensor file's name, as words and numbers."""

from __future__ import annotations

from dataclasses import dataclass

from tui_debugger.model import Side
from tui_debugger.sources.mindspore.names import decode, logical_dtype, split_name, split_prefix


@dataclass(frozen=True, slots=True)
class ParsedFileName:
    """The fields of a tensor file's name."""

    op_type: str
    """Operator type, ``Parameter`` for weights, inputs and constants."""
    op_name: str
    """As spelled in the file name. Invalid UTF-8 survives as surrogates."""
    task: int
    stream: int
    """``task`` and ``stream`` are 0 on CPU and GPU, and where the token is no number."""
    timestamp: int
    """Microseconds since the epoch."""
    side: Side
    slot: int
    format: str
    """``DefaultFormat`` or a device format."""
    dtype: str = ""
    """Logical element type in lower case (``bfloat16``), empty when the name states none; an unknown token is kept in
    lower case.
    """


def parse_name(name: bytes | str) -> ParsedFileName | None:
    """Parses a file name of any generation (text with surrogates); None when it is no tensor file's."""
    raw = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name
    fields = split_name(raw)
    if fields is None:
        return None
    prefix, task, stream, timestamp, side, slot, fmt, dtype = fields
    op_type, op_name = split_prefix(prefix)
    return ParsedFileName(
        op_type, op_name, int(task), int(stream), timestamp, Side(side), slot, decode(fmt), logical_dtype(dtype)
    )
