"""Where in the user's program something is called, in the text form that graphs carry."""

from __future__ import annotations

import linecache
import sys
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Final

import torch

from tui_debugger.graph.stacks import is_framework
from tui_debugger.live.client.graph import stack_text

DEEPEST: Final = 24
"""Lines of a stack at most."""
_OURS: Final = str(Path(__file__).resolve().parents[1])
_TORCH: Final = str(Path(torch.__file__).resolve().parent)


def user_stack() -> str:
    """The lines of the user's program that are being run, innermost first; those of frameworks left out."""
    found: list[tuple[str, int, str]] = []
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the only way, and part of Python's documentation
    while frame is not None and len(found) < DEEPEST:
        path = frame.f_code.co_filename
        if _is_users(path):
            found.append((path, frame.f_lineno, linecache.getline(path, frame.f_lineno).strip()))
        frame = frame.f_back
    return stack_text(found)


@lru_cache(maxsize=4096)
def _is_users(path: str) -> bool:
    if path.startswith(("<", _OURS, _TORCH)):
        return False
    return not is_framework(path)
