"""A store in a directory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tui_debugger.cache import DiskCache


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskCache]:
    """Empty; its directory is not there yet."""
    made = DiskCache(tmp_path / "cache" / "index")
    yield made
    made.close()
