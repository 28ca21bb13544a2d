"""One analyzer per real dump for all tests of the API: nothing they do changes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tui_debugger import DumpAnalyzer


@pytest.fixture(scope="session")
def analyzer(dumps: Callable[[str], Path]) -> Iterator[Callable[[str], DumpAnalyzer]]:
    """``analyzer("mindspore-2.0-nan")``."""
    made: list[DumpAnalyzer] = []

    @cache
    def make(name: str) -> DumpAnalyzer:
        made.append(DumpAnalyzer(dumps(name)))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="session")
def nan(analyzer: Callable[[str], DumpAnalyzer]) -> DumpAnalyzer:
    """The dump that goes to NaN at step 3."""
    return analyzer("mindspore-2.0-nan")


@pytest.fixture(scope="session")
def mlp(analyzer: Callable[[str], DumpAnalyzer]) -> DumpAnalyzer:
    """The small healthy-looking network with dead units."""
    return analyzer("mindspore-2.0-mlp")
