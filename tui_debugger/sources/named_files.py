"""Lists of files that recorders and converters on Ascend servers write beside the files.

``mapping.csv`` names files whose own names are too long; ``FAILED`` names the device files that the vendor's converter
could not convert. A named file that does not exist is a tensor that nobody reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tui_debugger import opener
from tui_debugger.opener import read_lines

MAPPING: Final = "mapping.csv"
FAILED: Final = "convert_failed_file_list.txt"
_ARRAY: Final = b".npy"
_SHORT: Final = re.compile(rb"(?:[0-9]+|[0-9a-f]{32})(?:\.(?:npy|bin|pt))?")
_OF_DEVICE: Final = re.compile(rb".+\.\d{13,}(?:\..+)?", re.DOTALL)
"""Names of device files and their conversions: other programs have a ``mapping.csv``, too."""
_TENSOR: Final = re.compile(rb"(input|output):(\d{1,4})")


def is_short(name: bytes) -> bool:
    """Whether recorders and their tools give this name to a file whose own name is too long."""
    return _SHORT.fullmatch(name) is not None


def read_mapping(path: Path) -> tuple[dict[bytes, bytes], int]:
    """``mapping.csv``: rows ``short name,original name`` without a header. Raises OSError.

    Short names are decimal digits, or 32 hexadecimal ones, with or without the ending of the original. Returns the
    original by short name without ``.npy``, and the number of rows that make no sense.
    """
    mapping: dict[bytes, bytes] = {}
    broken = 0
    for line in read_lines(path, cut=True):
        short, comma, original = line.strip().partition(b",")
        short, original = short.strip().strip(b'"'), original.strip().strip(b'"')
        if comma and is_short(short) and original:
            mapping[short.removesuffix(_ARRAY)] = original
        elif line.strip():
            broken += 1
    return mapping, broken


def original_name(mapping: Mapping[bytes, bytes], name: bytes) -> bytes:
    """The name of a file before it was shortened; its own where ``mapping.csv`` has no row for it."""
    original = mapping.get(name.removesuffix(_ARRAY), name)
    return original if not name.endswith(_ARRAY) or original.endswith(_ARRAY) else original + _ARRAY


def missing_beside(path: str) -> Iterator[tuple[str, str]]:
    """Yields path and problem of each file that the list ``path`` names and that is not beside it. Raises OSError."""
    directory, _, name = path.rpartition("/")
    find = {MAPPING: _missing_of_mapping, FAILED: _missing_of_converter}.get(name)
    if find is None:
        return
    with opener.scandir(os.fsencode(directory)) as entries:
        there = {entry.name.removesuffix(_ARRAY) for entry in entries}
    for missing, why in find(Path(path), there):
        yield f"{directory}/{os.fsdecode(missing)}", why


def _missing_of_mapping(path: Path, there: set[bytes]) -> Iterator[tuple[bytes, str]]:
    for short, original in read_mapping(path)[0].items():
        if short not in there and _OF_DEVICE.fullmatch(original):
            yield short, f"is not there: {MAPPING} names it for {os.fsdecode(original)}"


def _missing_of_converter(path: Path, there: set[bytes]) -> Iterator[tuple[bytes, str]]:
    """``/dump/Add.add.1.2.1700000000000000,output:0``: without tensors, the whole file could not be read."""
    for line in read_lines(path, cut=True):
        file, *tensors = line.strip().split(b",")
        name = file.rpartition(b"/")[2]
        parts = [b".%s.%s." % found.groups() for found in map(_TENSOR.fullmatch, tensors) if found is not None]
        if not name or name in there or (parts and all(_starts(there, name + part) for part in parts)):
            continue
        yield name, f"was not converted: {FAILED} names it, and it is not there"


def _starts(names: set[bytes], start: bytes) -> bool:
    return any((name + b".").startswith(start) for name in names)
