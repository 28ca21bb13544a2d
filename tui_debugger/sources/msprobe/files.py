"""The files of one rank in one step: their JSON, as far as it can be read, and the names of files with values.

A killed recorder may leave a ``dump.json`` that ends in the middle: the complete calls count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from tui_debugger import opener
from tui_debugger.graph.stacks import is_framework
from tui_debugger.model import Frame
from tui_debugger.opener import GRAPH_LIMIT, read_regular, why_not
from tui_debugger.sources.msprobe.layout import CALLS, SAVED, TENSORS
from tui_debugger.sources.msprobe.unnamed import is_of_replay

_SMALL: Final = 1 << 26
"""Limit of bytes of a step's files for a second read that compares them with other steps."""
_VALUES: Final = (".pt", ".npy")
_DATA: Final = re.compile(r'"data"\s*:\s*\{')
_KEY: Final = re.compile(r'[\s,]*("(?:[^"\\]|\\.)*")\s*:\s*')


class BadCallsError(Exception):
    """The calls of a step cannot be read; the text says why."""


class _NoJsonError(BadCallsError):
    """A file is no JSON."""

    def __init__(self, why: str, whole: dict[str, Any]) -> None:
        super().__init__(why)
        self.whole = whole
        """The calls in front of the damage."""


@dataclass(slots=True)
class StepFiles:
    """The contents of the files of a step."""

    directory: str
    data: dict[str, Any] = field(default_factory=dict)
    saved: dict[str, Any] = field(default_factory=dict)
    """Tensors that the program saved by name."""
    construct: dict[str, Any] = field(default_factory=dict)
    """By key of a call, the key of the call around it."""
    stacks: list[tuple[Frame, ...]] = field(default_factory=list)
    """Frames of calls, innermost first."""
    stack_of: dict[str, int] = field(default_factory=dict)
    """Index into ``stacks`` by call."""
    tensors_listed: bool = False
    """Whether there is a directory of values."""
    values: frozenset[str] | None = None
    """Names of the files in it; None where it cannot be listed."""
    problems: list[tuple[str, str]] = field(default_factory=list)
    """(file, why) of unreadable parts."""


def read_files(directory: str) -> StepFiles:
    """Reads the files of a step and rank but for the values.

    Raises BadCallsError when the directory cannot be listed, or holds neither calls nor values.
    """
    listed = _names_in(directory)
    files = StepFiles(directory, tensors_listed=TENSORS in listed)
    # The small files first: the JSON of stacks is freed before the calls need memory.
    _read_stacks(_beside("stack.json", files, listed), files)
    files.construct = _beside("construct.json", files, listed)
    if files.tensors_listed:
        try:
            files.values = frozenset(name for name in _names_in(f"{directory}/{TENSORS}") if name.endswith(_VALUES))
        except BadCallsError as error:
            files.problems.append((TENSORS, str(error)))
    if not listed.intersection((CALLS, SAVED)):
        if not files.values:
            raise BadCallsError(f"no {CALLS}")
        if all(map(is_of_replay, files.values)):
            return files  # AclGraphDumper writes none beside values
        files.problems.append((CALLS, f"no {CALLS}: only the names of files in {TENSORS} tell what they hold"))
    files.data = _calls_in(CALLS, files, listed)
    files.saved = _calls_in(SAVED, files, listed)
    if CALLS in listed and not (files.data or files.values or files.problems):
        files.data = {key: {} for key in files.construct}  # task structure: calls without tensors
    return files


def content_of(directory: str) -> bytes:
    """Digest of all that ``read_calls`` reads of a step; empty where there are values, or too many bytes."""
    hasher, left = blake2b(digest_size=16), _SMALL
    try:
        listed = _names_in(directory)
        if TENSORS in listed:
            return b""
        for name in sorted(listed.intersection((CALLS, SAVED, "construct.json", "stack.json"))):
            raw = read_regular(f"{directory}/{name}", left)
            left -= len(raw)
            hasher.update(f"{name} {len(raw)} ".encode())
            hasher.update(raw)
    except (OSError, ValueError, BadCallsError):
        return b""
    return hasher.digest()


def _names_in(directory: str) -> frozenset[str]:
    try:
        return frozenset(opener.listdir(directory))
    except OSError as error:
        raise BadCallsError(why_not(directory, error)) from error


def _beside(name: str, files: StepFiles, listed: Collection[str]) -> dict[str, Any]:
    """Reads a file that the calls can do without; notes its problem."""
    try:
        return _load(files.directory, name) if name in listed else {}
    except BadCallsError as error:
        files.problems.append((name, str(error)))
        return {}


def _calls_in(name: str, files: StepFiles, listed: Collection[str]) -> dict[str, Any]:
    """The calls in a file, none without it; of a damaged file the calls in front of the damage."""
    if name not in listed:
        return {}
    try:
        top = _load(files.directory, name)
    except _NoJsonError as error:
        top = error.whole
        files.problems.append((name, f"{error}; {len(top['data']):,} calls stand in front of that"))
    except BadCallsError as error:
        files.problems.append((name, str(error)))
        return {}
    data = top.get("data")
    if isinstance(data, dict):
        return data
    files.problems.append((name, "no calls in it: it holds no object named data"))
    return {}


def _load(directory: str, name: str) -> dict[str, Any]:
    """Returns the object in a file that was listed.

    Raises _NoJsonError when it is no JSON, and BadCallsError for any other problem.
    """
    path = f"{directory}/{name}"
    try:
        raw = read_regular(path, GRAPH_LIMIT)
    except OSError as error:
        raise BadCallsError(f"{name}: {why_not(path, error, wanted='a file')}") from error
    try:
        found: object = json.loads(raw)
    except UnicodeDecodeError as error:
        raise _NoJsonError(f"{name} is no text", _whole_calls(raw)) from error
    except json.JSONDecodeError as error:
        why = f"{name} is no JSON (line {error.lineno}, column {error.colno}): incomplete, or damaged"
        raise _NoJsonError(why, _whole_calls(raw)) from error
    except ValueError as error:  # a number of too many digits
        raise BadCallsError(f"{name} is no JSON of a recorder: {error}") from error
    except RecursionError as error:
        raise BadCallsError(f"{name} is nested too deeply") from error
    if not isinstance(found, dict):
        raise BadCallsError(f"{name} holds no object")
    return found


def _whole_calls(raw: bytes) -> dict[str, Any]:
    """The calls in front of the damage of a file of calls."""
    text = bytes(raw).decode("utf-8", "replace")
    begin = _DATA.search(text)
    if begin is None:
        return {"data": {}}
    decoder, data, at = json.JSONDecoder(), dict[str, Any](), begin.end()
    while (key := _KEY.match(text, at)) is not None:
        try:
            name: str = json.loads(key[1])
            value, at = decoder.raw_decode(text, key.end())
        except (ValueError, RecursionError):
            break
        data[name] = value
    return {"data": data}


# -- stacks -----------------------------------------------------------------------------------------------

_FRAME: Final = re.compile(
    r"\s*File (?P<path>.+?), line (?P<line>\d{1,9}), in (?P<function>.*?),?\s*\n(?P<code>.*)", re.DOTALL
)


def _read_stacks(groups: Mapping[str, Any], files: StepFiles) -> None:
    """Takes ``stack.json``: groups of calls that share a stack."""
    frames_of: dict[str, Frame | None] = {}
    for group in groups.values():
        if not (isinstance(group, list) and len(group) == 2 and all(isinstance(each, list) for each in group)):
            continue
        calls, lines = group
        frames = []
        for line in lines:
            if not isinstance(line, str):
                continue
            if line not in frames_of:
                frames_of[line] = _frame(line)
            frame = frames_of[line]
            if frame is not None:
                frames.append(frame)
        if frames:
            files.stack_of.update(dict.fromkeys((key for key in calls if isinstance(key, str)), len(files.stacks)))
            files.stacks.append(tuple(frames))


def _frame(text: str) -> Frame | None:
    found = _FRAME.match(text)
    if found is None:
        return None
    line, path = int(found["line"]), found["path"]
    return Frame(path=path, line=line, code=found["code"].strip(), end_line=line, framework=is_framework(path))
