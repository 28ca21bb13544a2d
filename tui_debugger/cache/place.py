"""Where the index of this user lies, and how large it may become."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

LIMIT = 10**9
"""Bytes that the index may take when nobody says otherwise: statistics of about 6,000 steps of a small transformer."""
DIRECTORY = "TDBG_CACHE_DIR"
"""Environment variable: where the index lies; empty: there is none."""
SIZE = "TDBG_CACHE_LIMIT"
"""Environment variable: how many bytes it may take, as ``500M`` or ``2 GiB``; 0: there is none."""

_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*(?:([kmgt])(i?))?b?", re.IGNORECASE)
_UNITS = " kmgt"


def default_directory(dump: Path | None = None) -> tuple[Path | None, str]:
    """The directory of the index, or None and why there is none."""
    base, why = _base()
    if base is None:
        return None, why
    directory = base / "index"
    if dump is not None and _inside(directory, dump):
        return None, "the cache directory lies inside the dump"
    return directory, ""


def why_off() -> str:
    """Why nothing is remembered although there is a place for it; empty when all is well."""
    if find_spec("_sqlite3") is None:
        return "this Python has no sqlite3"
    return "" if default_limit()[0] else f"{SIZE} is 0"


def default_limit() -> tuple[int, str]:
    """How many bytes the index may take; and what is wrong with the variable that says it, if anything."""
    text = os.environ.get(SIZE, "").strip()
    if not text:
        return LIMIT, ""
    match = _SIZE.fullmatch(text)
    if match is None:
        return LIMIT, f"{SIZE} is no size such as 500M: {text!r}"
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** _UNITS.index((match[2] or " ").lower())), ""


def _base() -> tuple[Path | None, str]:
    chosen = os.environ.get(DIRECTORY)
    if chosen is not None:
        return (Path(chosen).absolute(), "") if chosen else (None, f"{DIRECTORY} is empty")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "")
    if cache.is_absolute():  # others are to be ignored, says the XDG specification: the place must not move with us
        return cache / "tdbg", ""
    try:
        return Path.home() / ".cache" / "tdbg", ""
    except RuntimeError:
        return None, "there is no home directory"


def _inside(directory: Path, dump: Path) -> bool:
    try:
        return directory.resolve().is_relative_to(dump.resolve())
    except (OSError, RuntimeError):  # links that lead in circles
        return True
