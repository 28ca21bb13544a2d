"""What tests of listings share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tui_debugger.cache.store import DiskCache
from tui_debugger.sources.mindspore import steps


@pytest.fixture
def store(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "store")


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the directories that were really listed."""
    names: list[str] = []
    list_directory = steps.list_directory

    def noting(known_names: Any, place: Any, *others: Any) -> Any:
        names.append(place[1].name)
        return list_directory(known_names, place, *others)

    monkeypatch.setattr(steps, "list_directory", noting)
    return names
