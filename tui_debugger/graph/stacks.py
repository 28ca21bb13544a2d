"""Source stacks of nodes: parsing the text in a graph file, and an index by source line.

The text is MindSpore's ``source_address`` (2.0 to 2.10): one entry a line, innermost first::

    # In file /p/train.py:31/        code/
    # In file /p/train.py:31, 36~47/        code/          column range
    # In file /p/train.py:30~31, 4~53/    def f(self):/    enclosing function: context
    #  - In file ...                                       begins a sub-stack
    #    In file ...                                       goes on with it
    # Corresponding forward node candidate:                what follows is the forward node's
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tui_debugger.arrays import Int32
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import Frame

_AFTER_PATH = r":(?P<line>\d{1,9})(?:~(?P<end>\d{1,9}))?(?:, ?\d+(?:~\d+)?)?/(?P<code>.*)"
_MARK = r"\s*(?P<mark>#?[ \t]*-?)[ \t]*In file "
# A path or the code may itself hold ":31/", so a path that ends like a source file is preferred.
_SOURCE_ENTRY = re.compile(_MARK + r"(?P<path>.+?\.(?:pyx|pyi|pyc|py|ipynb))" + _AFTER_PATH, re.DOTALL)
_ANY_ENTRY = re.compile(_MARK + r"(?P<path>.+?)" + _AFTER_PATH, re.DOTALL)

_FRAMEWORK = re.compile(
    r"""(?:^|[/\\])(?:
        (?:site|dist)-packages
      | lib/python\d[\d.]*
      | mindspore/(?:python|nn|ops|common|train|parallel|dataset|boost|rewrite|amp|mint|_extends|experimental)
      | torch(?:_npu|vision|audio)?/(?:nn|optim|autograd|utils|_ops|_tensor|functional|amp|distributed|fx|jit)
    )[/\\]""",
    re.VERBOSE,
)


def parse_stack(text: str) -> tuple[Frame, ...]:
    """Returns the frames of a stack text, innermost first. Unknown lines are skipped; never raises."""
    frames = []
    forward = False
    for line in text.split("\n"):  # a code text may hold a form feed, which splitlines() would cut at
        frame = _frame(line, forward)
        if frame is not None:
            frames.append(frame)
        elif "Corresponding forward node" in line:
            forward = True
        elif "Corresponding code" in line:
            forward = False
    return tuple(frames)


@lru_cache(maxsize=1 << 17)
def _frame(line: str, forward: bool) -> Frame | None:
    """Parses one entry. Cached: the stacks of a graph repeat the same few hundred lines."""
    if "In file " not in line:
        return None
    found = _SOURCE_ENTRY.match(line) or _ANY_ENTRY.match(line)
    if found is None:
        return None
    first = int(found["line"])
    last = int(found["end"]) if found["end"] else first
    code = found["code"].rstrip("\r")
    nested = len(found["mark"]) > 2 or line[found.end("mark") :].startswith("  ")
    return Frame(
        path=found["path"],
        line=first,
        code=code.removesuffix("/").strip(" \t\r"),
        end_line=max(first, last),
        depth=1 if nested else 0,
        substack=found["mark"].endswith("-"),
        forward=forward,
        context=last > first,
        framework=is_framework(found["path"]),
    )


@lru_cache(maxsize=1 << 14)
def is_framework(path: str) -> bool:
    """Tells whether a source path lies in an installed package or in the framework, not in the user's program."""
    return _FRAMEWORK.search(path) is not None


@dataclass(frozen=True, slots=True, eq=False)
class SourceLine:
    """One source line and the node rows whose stack names it (ascending, without structural nodes)."""

    line: int
    code: str
    rows: Int32


@dataclass(frozen=True, slots=True, eq=False)
class SourceFile:
    """One source file with its lines, ascending."""

    path: str
    framework: bool
    lines: tuple[SourceLine, ...]


@dataclass(frozen=True, slots=True, eq=False)
class StackIndex:
    """All source lines of a rank's nodes: the user's files first, then the framework's."""

    files: tuple[SourceFile, ...]


def stack_index(table: NodeTable) -> StackIndex:
    """Returns the source lines of a rank, without entries that span lines (enclosing functions).

    A backward node is also found by its forward node's frames.
    """
    return table.memo(_build_index)


def _build_index(table: NodeTable) -> StackIndex:
    rows_of_stack = _rows_by_stack(table)
    # Equal lines share one Frame object (see _frame), so identity finds the line without hashing nine fields.
    line_of_frame: dict[int, tuple[str, int] | None] = {}
    code: dict[tuple[str, int], str] = {}
    stacks_of_line: dict[tuple[str, int], dict[int, None]] = {}
    for stack, frames in enumerate(table.stacks):
        if not len(rows_of_stack[stack]):
            continue
        for frame in frames:
            key = id(frame)
            if key not in line_of_frame:
                line_of_frame[key] = None if frame.context else (frame.path, frame.line)
                code.setdefault((frame.path, frame.line), frame.code)
            line = line_of_frame[key]
            if line is not None:
                stacks_of_line.setdefault(line, {})[stack] = None
    files: dict[str, list[SourceLine]] = {}
    for path, number in sorted(stacks_of_line):
        groups = [rows_of_stack[stack] for stack in stacks_of_line[path, number]]
        rows = np.sort(np.concatenate(groups)) if len(groups) > 1 else groups[0]
        files.setdefault(path, []).append(SourceLine(number, code[path, number], rows))
    return StackIndex(
        tuple(
            SourceFile(path, is_framework(path), tuple(files[path]))
            for path in sorted(files, key=lambda path: (is_framework(path), path))
        )
    )


def _rows_by_stack(table: NodeTable) -> Sequence[Int32]:
    rows = np.flatnonzero((table.stack_id >= 0) & ~table.structural)
    ids = table.stack_id[rows]
    by_stack = np.argsort(ids, kind="stable")
    ends = np.cumsum(np.bincount(ids, minlength=len(table.stacks)))
    return np.split(rows[by_stack].astype(np.int32), ends[:-1]) if len(table.stacks) else []


def search(index: StackIndex, test: Callable[[str], bool]) -> StackIndex:
    """Returns the part of an index whose ``path:line code`` passes a test."""
    files = []
    for file in index.files:
        lines = tuple(line for line in file.lines if test(f"{file.path}:{line.line} {line.code}"))
        if lines:
            files.append(SourceFile(file.path, file.framework, lines))
    return StackIndex(tuple(files))
