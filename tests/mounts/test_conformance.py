"""A dump is the same dump in a tar or at a URL: it keeps the promises of the protocol, and has the same values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import run
from tests.mounts.places import LAYOUTS, Dumps, local, pack, to_memory
from tests.sources.conformance import SourceConformance, pairs
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source, TensorFlag
from tui_debugger.sources.registry import READERS, layout_of, own_reader
from tui_debugger.stats.npy import open_array

PLACES: dict[str, Callable[[Path, Path], Path]] = {
    "tar": lambda dump, folder: pack(dump, folder / "dump.tar"),
    "memory": lambda dump, _: to_memory(dump),
}
"""How a copy of a dump comes to a place, and what it is opened by there."""


NOT_IN_RANGES = {"msprobe trend database"}


def test_every_layout_is_among_them(tmp_path: Path, dumps: Dumps) -> None:
    there = {layout_of(local(each, tmp_path / each.replace("/", "-"), dumps)) for each in LAYOUTS}
    assert there == {own_reader(text).name for text in READERS} - NOT_IN_RANGES, "add a dump to tests/mounts/places.py"


@pytest.fixture(scope="module", params=LAYOUTS)
def dump(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, dumps: Dumps) -> Path:
    return local(request.param, tmp_path_factory.mktemp("local") / "dump", dumps)


@pytest.fixture(scope="module", params=PLACES)
def placed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, dump: Path) -> Path:
    return PLACES[request.param](dump, tmp_path_factory.mktemp("placed"))


@pytest.fixture(scope="module")
def asked_before(placed: Path) -> Iterator[Source]:
    with closing(open_source(placed)) as source:
        yield source


@pytest.mark.covering
class TestPlaced(SourceConformance):
    @pytest.fixture
    def source(self, asked_before: Source) -> Source:
        return asked_before

    @pytest.fixture
    def fresh(self, placed: Path) -> Iterator[Source]:
        with closing(open_source(placed)) as source:
            yield source

    def test_refresh_on_a_static_source_finds_nothing(self, fresh: Source) -> None:
        """Stores keep no times of directories, so the first refresh lists those again."""
        list(pairs(fresh))
        fresh.refresh()
        super().test_refresh_on_a_static_source_finds_nothing(fresh)


@pytest.mark.covering
def test_it_has_the_tensors_of_the_directory(dump: Path, placed: Path) -> None:
    with closing(open_source(dump)) as here, closing(open_source(placed)) as there:
        assert there.info.layout == here.info.layout
        assert list(there.ranks()) == list(here.ranks())
        for rank in here.ranks():
            assert list(there.steps(rank)) == list(here.steps(rank))
            for step in here.steps(rank):
                mine, theirs = here.tensors(rank, step), there.tensors(rank, step)
                assert np.array_equal(mine.node, theirs.node)
                for row in np.flatnonzero(~(mine.flags & TensorFlag.STAT_ONLY).astype(bool)).tolist():
                    assert _value(mine.spec(row)) == _value(theirs.spec(row))


def _value(spec: ReadSpec) -> bytes | str:
    try:
        return open_array(spec).tobytes()
    except UnreadableTensorError as error:
        return error.what


@pytest.mark.covering
def test_a_check_says_the_same_of_it(dump: Path, placed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, there = (run(capsys, "check", path, "--json", "--no-cache") for path in (dump, placed))
    assert there.code == here.code != 2
    for key in ("verdict", "hits", "origins", "coverage"):
        assert there.json.get(key) == here.json.get(key)
