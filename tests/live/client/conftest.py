"""Recorders of a test end with it: one that is not closed goes on looking for a debugger until the process ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tui_debugger.live.client import Recorder


@pytest.fixture(autouse=True)
def _closed_recorders(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made: list[Recorder] = []
    begin = Recorder.__init__

    def begun(self: Recorder, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(Recorder, "__init__", begun)
    yield
    for recorder in made:
        recorder.close()
