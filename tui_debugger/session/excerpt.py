"""Source lines around a stack frame, where the file exists on this machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tui_debugger.model import Frame
from tui_debugger.opener import read_regular
from tui_debugger.session.types import SourceExcerpt

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
MAX_BYTES = 4 << 20
"""Source files above this size are not read: no program is that long, a wrong path may be."""


def mapped_paths(path: str, source_map: Sequence[tuple[str, str]]) -> list[Path]:
    """Local candidates for a path of the training machine, best first.

    Every ``OLD=NEW`` whose OLD is the path or a directory above it gives a candidate; then the path itself.
    """
    candidates = []
    for old, new in source_map:
        base = old.rstrip("/")
        if path == base or path.startswith(base + "/"):
            candidates.append(Path(new) / path[len(base) :].lstrip("/") if path != base else Path(new))
    candidates.append(Path(path))
    return candidates


def read_excerpt(frame: Frame, source_map: Sequence[tuple[str, str]], context: int) -> SourceExcerpt | None:
    """The lines around a frame, or None when the file is not here, too large, or too short for the line."""
    for candidate in mapped_paths(frame.path, source_map):
        try:
            lines = read_regular(candidate, MAX_BYTES).decode("utf-8", "replace").splitlines()
        except (OSError, ValueError):
            continue
        if not 1 <= frame.line <= len(lines):
            continue
        first = max(1, frame.line - context)
        last = min(len(lines), max(frame.line, frame.end_line) + context)
        shown = tuple(_CONTROL.sub("·", line.expandtabs(4)) for line in lines[first - 1 : last])
        return SourceExcerpt(str(candidate), first, shown, frame.line)
    return None
