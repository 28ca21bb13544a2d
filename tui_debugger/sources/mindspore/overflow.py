"""Records of an Ascend device about operators that overflowed: ``Opdebug`` files, binary or JSON.

A record tells task and stream; the operator is the one of the same step with these numbers in its file names: see
``tensors``. The old layout has three blocks, each with its own status. The new one begins with a magic number, and
tells of one unit of the device.
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
from tui_debugger.opener import METADATA_LIMIT, read_regular, why_not
from tui_debugger.sources.base import NO_NUMBER, OverflowRecord
from tui_debugger.stats.ascend_file import first_output
from tui_debugger.stats.ascend_nano import BadHeaderError

DIRECTORY: Final = "debug_files"
PREFIX: Final = b"Opdebug."
_JSON: Final = b".json"
_BLOCKS: Final = (("DHA Atomic Add", 0, 512), ("L2 Atomic Add", 128, 768), ("AI Core", 256, 1024))
"""Of each block of the old layout: name, and offsets in bytes of its numbers and of its status."""
_SIZE: Final = 2048
"""Bytes of a record of the old layout."""
_CORE: Final = "AI Core"
_KEYS: Final = ("model_id", "stream_id", "task_id", "task_type", "pc_start", "para_base")
"""The numbers of each block of the old layout, in their order."""

_MAGIC: Final = 0x5A5A5A5A
_HEAD: Final = 24
"""Bytes of a record of the new layout before its numbers."""
_PLACE: Final = ("model_id", "stream_id", "task_id", "task_type", "context_id")
_CORE_KEYS: Final = (*_PLACE, "thread_id", "pc_start", "para_base", "core_id", "block_id", "status")
_UNITS: Final = {
    "AIC": (_CORE, _CORE_KEYS),
    "AIV": ("AI Vector Core", _CORE_KEYS),
    "AICPU": ("AI CPU", (*_PLACE, "cpu_id", "thread_id", "status")),
    "SDMA": ("SDMA", (*_PLACE, "thread_id", "src_addr", "dst_addr", "channel_id", "status")),
}
"""The units in records of the new layout, in the order of their numbers, and the numbers of each."""
_STATUS_WORDS: Final = 4
"""Words of status that a core has from version 1 on."""
_VERSIONS: Final = (0, 1)


@dataclass(frozen=True, slots=True)
class OverflowFiles:
    """The records of one step, by the path of their file."""

    records: Mapping[bytes, tuple[OverflowRecord, ...]]
    missing: tuple[tuple[bytes, str], ...] = ()
    """(path, why) of files that cannot be read."""

    def __bool__(self) -> bool:
        """Whether there is any file."""
        return bool(self.records or self.missing)


def list_records(directory: str) -> tuple[list[bytes], list[tuple[bytes, str]]]:
    """Paths of the records in a directory, and (path, why) where it cannot be listed."""
    path = os.fsencode(directory)
    try:
        opener.stat(path)
        return sorted(path + b"/" + name for name in opener.listdir(path) if is_record(name)), []
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [(path, why_not(directory, error))]


def is_record(name: bytes) -> bool:
    return name.startswith(PREFIX)


def read_records(paths: Iterable[bytes]) -> OverflowFiles:
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
    """The blocks of a record that report an overflow; or the reason why there is none."""
    try:
        found = _from_json(path) if path.endswith(_JSON) else _from_payload(path)
    except OSError as error:
        return why_not(path, error, wanted="a file")
    except ValueError as error:
        why = str(error)
    except UnreadableTensorError as error:
        why = error.what
    else:
        reported = tuple(each for each in found if each.reports)
        if reported:
            return reported
        why = "tells of no overflow: no status is set"
    return f"an overflow record that makes no sense: it {why}"


# -- binary ------------------------------------------------------------------------------------------------------------


def _from_payload(path: bytes) -> list[OverflowRecord]:
    size, payload = first_output(path, _SIZE)
    if int.from_bytes(payload[:4], "little") == _MAGIC:
        return [_new_from_payload(payload)]
    if size != _SIZE or len(payload) != _SIZE:
        raise BadHeaderError(f"has {min(size, len(payload)) if size <= _SIZE else size:,} bytes of {_SIZE:,}")
    found = []
    for name, who, status in _BLOCKS:
        numbers: dict[str, Any] = dict(zip(_KEYS, _words(payload, who, len(_KEYS)), strict=True))
        if name == _CORE:
            numbers |= zip(("kernel_code", "block_idx", "status"), _words(payload, status, 3), strict=True)
        else:
            numbers["status"] = _words(payload, status, 1)[0]
        found.append(_record(name, numbers))
    return found


def _new_from_payload(payload: bytes) -> OverflowRecord:
    if len(payload) < _HEAD:
        raise BadHeaderError(f"has {len(payload):,} bytes of {_HEAD:,}")
    version, valid, number = np.frombuffer(payload, "<u4", 3, 4).tolist()
    kind = list(_UNITS)[number] if number < len(_UNITS) else str(number)
    name, keys, words = _unit(kind, version, valid)
    wanted = _HEAD + 8 * (len(keys) - 1 + words)
    if len(payload) < wanted:
        raise BadHeaderError(f"has {len(payload):,} bytes of {wanted:,}")
    found = _words(payload, _HEAD, len(keys) - 1 + words)
    numbers: dict[str, Any] = dict(zip(keys[:-1], found, strict=False))
    return _record(name, {**numbers, "status": found[len(keys) - 1 :]})


def _words(payload: bytes, start: int, count: int) -> list[int]:
    found: list[int] = np.frombuffer(payload, "<u8", count, start).tolist()
    return found


def _unit(kind: str, version: int, valid: int) -> tuple[str, tuple[str, ...], int]:
    """The name of a unit, the numbers in its records, and the words of its status; ValueError for an unknown layout."""
    if kind not in _UNITS:
        raise ValueError(f"tells of the unknown unit {kind!r}")
    if version not in _VERSIONS:
        raise ValueError(f"has the unknown version {version}")
    if valid != 1:
        raise ValueError("is marked as not valid")
    name, keys = _UNITS[kind]
    return name, keys, _STATUS_WORDS if version == 1 and keys == _CORE_KEYS else 1


# -- JSON --------------------------------------------------------------------------------------------------------------


def _from_json(path: bytes) -> list[OverflowRecord]:
    try:
        content = json.loads(read_regular(path, METADATA_LIMIT))
    except (ValueError, RecursionError) as error:
        raise ValueError("is no JSON") from error
    if not isinstance(content, dict):
        raise ValueError("is no JSON object")
    if "magic" in content or "acc_list" in content:
        return [_new_from_json(content)]
    found = [_record(name, _object(content, name)) for name, _, _ in _BLOCKS if content.get(name) is not None]
    if not found:
        raise ValueError("has none of the blocks that such a record has")
    return found


def _new_from_json(content: Mapping[str, Any]) -> OverflowRecord:
    unit = _object(content, "acc_list")
    name, _, words = _unit(str(unit.get("acc_type")), _number(content, "version"), _number(unit, "valid", 1))
    numbers = _object(unit, "data")
    status = numbers.get("status")
    if isinstance(status, list) and len(status) != words:
        raise ValueError(f"has {len(status)} words of status, where its version has {words}")
    return _record(name, numbers)


def _object(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = content.get(key)
    if not isinstance(found, dict):
        raise ValueError(f"has no object at {key!r}")
    return found


def _record(unit: str, numbers: Mapping[str, Any]) -> OverflowRecord:
    """Makes a record of its numbers by name, or raises ValueError for one that is no number.

    A missing task or stream is unknown, and a missing status reports nothing.
    """
    status = numbers.get("status", 0)
    words = status if isinstance(status, list) else [status]
    block = next((key for key in ("block_idx", "block_id") if key in numbers), None)
    return OverflowRecord(
        unit,
        task=_number(numbers, "task_id", NO_NUMBER),
        stream=_number(numbers, "stream_id", NO_NUMBER),
        status=tuple(_number({"status": word}, "status") for word in words),
        context=_number(numbers, "context_id", NO_NUMBER),
        thread=_number(numbers, "thread_id", NO_NUMBER),
        model=_number(numbers, "model_id"),
        kernel=_number(numbers, "kernel_code"),
        block=_number(numbers, block) if block else None,
        pc_start=_number(numbers, "pc_start"),
        para_base=_number(numbers, "para_base"),
    )


def _number(block: Mapping[str, Any], key: str, missing: int = 0) -> int:
    """A number, or its text: decimal, or hexadecimal with 0x; ``missing`` where it is missing."""
    value = block.get(key, missing)
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(?:0[xX]([0-9a-fA-F]{1,16})|([0-9]{1,20}))\s*", value)
        value = found and (int(found[1], 16) if found[1] else int(found[2]))
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 64:
        raise ValueError(f"has no number at {key!r}")
    return value
