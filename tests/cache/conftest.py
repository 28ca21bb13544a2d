"""A store in a directory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tui_debugger.cache import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Empty; its directory is not there yet."""
    made = Store(tmp_path / "cache" / "index")
    yield made
    made.close()
