"""What the tests of the store share: payloads, its file, and other processes that use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tui_debugger.cache import DiskCache

RECORDS = {number.to_bytes(16, "big"): bytes([number]) * (1000 * number) for number in range(1, 11)}
"""Ten payloads of 1 kB to 10 kB."""

_HEAD = """
import os, signal, sys
from pathlib import Path
from tests.cache.stores import RECORDS
from tui_debugger.cache import DiskCache
store = DiskCache(Path(sys.argv[1]))
"""


def started(store: DiskCache, program: str, *arguments: str, **how: Any) -> subprocess.Popen[str]:
    """Another process with the same store, called ``store`` there; it talks through pipes."""
    command = [sys.executable, "-c", _HEAD + program, str(store.path), *arguments]
    root = Path(__file__).parents[2]
    return subprocess.Popen(command, cwd=root, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **how)


def said(process: subprocess.Popen[str]) -> str:
    """What the other process printed, once it has ended well."""
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    return out.strip()


def index_file(store: DiskCache) -> Path:
    """The one index of a store."""
    (path,) = store.path.glob("index-*.sqlite")
    return path


def works(store: DiskCache) -> bool:
    """Whether what is put can be had, now and by who opens it anew, and nothing is wrong."""
    store.put_many("records", RECORDS)
    again = DiskCache(store.path)
    had = (store.get_many("records", RECORDS), again.get_many("records", RECORDS))
    again.close()
    return had == (RECORDS, RECORDS) and (store.trouble, again.trouble) == ("", "")
