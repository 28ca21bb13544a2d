"""Records of an Ascend device about operators that overflowed: ``Opdebug`` files, binary or JSON.

A record says on which task and stream it happened. The operator is the one of the same step whose files bear these two
numbers in their names: see ``tensors``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tui_debugger import opener
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec, Side
from tui_debugger.opener import METADATA_LIMIT, read_regular, why_not
from tui_debugger.sources.base import OverflowRecord
from tui_debugger.stats.ascend_file import BadHeaderError, member_name, read_header
from tui_debugger.stats.npy import open_array

DIRECTORY: Final = "debug_files"
PREFIX: Final = b"Opdebug."
UNKNOWN: Final = 65535
"""A task or stream that is not known."""
_JSON: Final = b".json"
_WORDS: Final = 8
_BLOCKS: Final = (("DHA Atomic Add", 0, 512), ("L2 Atomic Add", 128, 768), ("AI Core", 256, 1024))
"""Name of each block, where it tells who it was, and where its status begins, in bytes."""
_SIZE: Final = 1024 + 3 * _WORDS
"""Bytes up to the last status that has a meaning."""
_CORE: Final = "AI Core"
_KEYS: Final = (
    *("task_id", "stream_id", "status", "model_id", "kernel_code", "block_idx"),
    *("pc_start", "para_base"),
)
"""The names of blocks in JSON, in the order of ``OverflowRecord``."""


@dataclass(frozen=True, slots=True)
class OverflowFiles:
    """The records of one step.

    Attributes:
        records: by the path of the file that holds them.
        missing: (path, why) of files that cannot be read.
    """

    records: Mapping[bytes, tuple[OverflowRecord, ...]]
    missing: tuple[tuple[bytes, str], ...] = ()

    def __bool__(self) -> bool:
        """Tells whether there is any file."""
        return bool(self.records or self.missing)


def list_records(directory: str) -> tuple[list[bytes], list[tuple[bytes, str]]]:
    """Returns paths of the records in a directory, and (path, why) where it cannot be listed.

    There are none where there is no directory: most dumps have none, and that is told for every step of them.
    """
    path = os.fsencode(directory)
    try:
        opener.stat(path)
        return sorted(path + b"/" + name for name in opener.listdir(path) if is_record(name)), []
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [(path, why_not(directory, error))]


def is_record(name: bytes) -> bool:
    """Tells whether a file of a dump is a record of an overflow."""
    return name.startswith(PREFIX)


def read_records(paths: Iterable[bytes]) -> OverflowFiles:
    """Reads the records of some files."""
    records: dict[bytes, tuple[OverflowRecord, ...]] = {}
    missing: list[tuple[bytes, str]] = []
    for path in paths:
        found = _read(path)
        if isinstance(found, str):
            missing.append((path, found))
        else:
            records[path] = found
    return OverflowFiles(records, tuple(missing))


def _read(path: bytes) -> tuple[OverflowRecord, ...] | str:
    """The blocks of a record that report something; or why they cannot be read."""
    try:
        return _from_json(path) if path.endswith(_JSON) else _from_payload(path)
    except OSError as error:
        return why_not(path, error, wanted="a file")
    except ValueError as error:
        why = str(error)
    except UnreadableTensorError as error:
        why = error.what
    return f"an overflow record that makes no sense: it {why}"


def _from_payload(path: bytes) -> tuple[OverflowRecord, ...]:
    header = read_header(path)
    if not any(tensor.side == Side.OUTPUT for tensor in header.tensors):
        raise BadHeaderError("has no output")
    payload = open_array(ReadSpec(os.fsdecode(path), "ascend", member=member_name(Side.OUTPUT, 0))).tobytes()
    if len(payload) < _SIZE:
        raise BadHeaderError(f"has {len(payload):,} bytes of {_SIZE:,}")

    def words(start: int, count: int) -> list[int]:
        found: list[int] = np.frombuffer(payload, "<u8", count, start).tolist()
        return found

    found = []
    for name, who, status in _BLOCKS:
        model, stream, task, _, code_at, parameters_at = words(who, 6)
        kernel, block, code = words(status, 3) if name == _CORE else (0, 0, *words(status, 1))
        found.append(OverflowRecord(name, task, stream, code, model, kernel, block, code_at, parameters_at))
    return _that_count(found)


def _from_json(path: bytes) -> tuple[OverflowRecord, ...]:
    try:
        content = json.loads(read_regular(path, METADATA_LIMIT))
    except (ValueError, RecursionError) as error:
        raise ValueError("is no JSON") from error
    if not isinstance(content, dict):
        raise ValueError("is no JSON object")
    found = []
    for name, _, _ in _BLOCKS:
        block = content.get(name)
        if block is None:
            continue
        if not isinstance(block, dict):
            raise ValueError(f"has no object at {name!r}")
        found.append(OverflowRecord(name, *(_number(block, key) for key in _KEYS)))
    if not found:
        raise ValueError("has none of the blocks that such a record has")
    return _that_count(found)


def _number(block: Mapping[str, Any], key: str) -> int:
    """A number, or its text: decimal, or hexadecimal with 0x; 0 where it is missing."""
    value = block.get(key, 0)
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(?:0[xX]([0-9a-fA-F]{1,16})|([0-9]{1,20}))\s*", value)
        value = found and (int(found[1], 16) if found[1] else int(found[2]))
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 64:
        raise ValueError(f"has no number at {key!r}")
    return value


def _that_count(records: list[OverflowRecord]) -> tuple[OverflowRecord, ...]:
    """The blocks that report something; the AI core's where none has a status: the file itself reports an overflow.

    Raises:
        ValueError: there is neither.
    """
    found = tuple(each for each in records if each.status) or tuple(each for each in records if each.unit == _CORE)
    if not found:
        raise ValueError(f"tells of no overflow: no status, and no {_CORE!r}")
    return found
