"""What tests of listings share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tui_debugger.cache.store import DiskCache
from tui_debugger.sources import registry
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


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs a package with a reader, as pip would."""

    def install(name: str, code: str, value: str = "") -> None:
        where = tmp_path / f"installed-{name}"
        info = where / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (where / f"{name}.py").write_text(code)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{name} = {value or name + ':Reader'}\n")
        monkeypatch.syspath_prepend(where)

    return install
