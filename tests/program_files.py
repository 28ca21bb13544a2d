"""The program as it is written: what tests of its files and imports look through, parsed once per process."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path

import tui_debugger

PACKAGE = Path(tui_debugger.__file__).parent


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the program, by its path below the package."""
    collecting = gc.isenabled()
    gc.disable()  # a million objects, all of which stay: to look for garbage among them takes longer than to make them
    try:
        paths = sorted(PACKAGE.rglob("*.py"))
        return {path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    finally:
        if collecting:
            gc.enable()
