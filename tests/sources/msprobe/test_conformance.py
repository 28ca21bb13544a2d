"""Real dumps of msprobe keep the promises of the protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.sources.conformance import SourceConformance
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source

DUMPS = (
    *("msprobe-L1-nan", "msprobe-mix/nan", "msprobe-mix/good", "msprobe-L0-slice", "msprobe-debug-save"),
    *("msprobe-mindspore", "msprobe-mix-2rank-mb-md5"),
)


@pytest.fixture(scope="class", params=DUMPS)
def path(request: pytest.FixtureRequest, dumps: Callable[[str], Path]) -> Path:
    name, _, part = str(request.param).partition("/")
    return dumps(name) / part


@pytest.fixture(scope="class")
def asked_before(path: Path) -> Iterator[Source]:
    with closing(open_source(path)) as source:
        yield source


class TestRealDumps(SourceConformance):
    @pytest.fixture
    def source(self, asked_before: Source) -> Source:
        return asked_before

    @pytest.fixture
    def fresh(self, path: Path) -> Iterator[Source]:
        with closing(open_source(path)) as source:
            yield source
