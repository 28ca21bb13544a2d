"""The small written dump that most command tests use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sources.writer import write_dump


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Healthy: two ranks, three steps; 11 tensors each; every input file is a copy of another file."""
    return write_dump(tmp_path / "dump", ranks=(0, 1)).root
