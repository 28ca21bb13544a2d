"""A real dump as many small batches, for whoever hands batches over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.stats.requests import EVERYTHING, chains, requests_for
from tui_debugger.stats import measure
from tui_debugger.stats import workers as workers_module
from tui_debugger.stats.measure import read_all
from tui_debugger.stats.records import ReadRequests, Records


@pytest.fixture
def many_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real dump is 40 batches, and always worth handing over."""
    monkeypatch.setattr(measure, "LEAST", measure.LIKE_BYTES * 30)
    monkeypatch.setattr(measure, "SHARES", 100)
    monkeypatch.setattr(workers_module, "WORTH_HANDING_OVER", 0)


@pytest.fixture
def requests(dumps: Callable[[str], Path]) -> ReadRequests:
    """Every tensor of a real dump."""
    return requests_for(*chains(dumps("mindspore-2.0-mlp")), EVERYTHING)


@pytest.fixture
def alone(requests: ReadRequests) -> Records:
    """What they are."""
    return read_all(requests)
