"""Every source keeps the promises of the protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.sources.arrays import write_arrays
from tests.sources.conformance import SourceConformance
from tests.sources.memory import MemorySource, Op, Recorded
from tests.sources.writer import MLP, DumpWriter, Generation, write_dump, write_step
from tests.thorough import later
from tui_debugger.model import Side, TensorStats
from tui_debugger.session.convert import convert
from tui_debugger.session.session import Session
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source

FIRST_ASKED = ("mindspore-2.0-multi-gan", "mindspore-2.10-mlp")
"""Dumps on which every test asks a source that nobody has asked before; in a thorough run all are."""


@pytest.fixture(
    scope="class",
    params=[
        # Each network every day, of one generation.
        *("mindspore-2.0-nan", "mindspore-2.10-mlp", "mindspore-2.10-multi-eval", "mindspore-2.0-multi-gan"),
        *("mindspore-2.10-multi-flow", "mindspore-2.10-multi-order"),
        *(later("mindspore-2.10-nan"), later("mindspore-2.0-mlp"), later("mindspore-2.0-multi-eval")),
        *(later("mindspore-2.10-multi-gan"), later("mindspore-2.0-multi-flow")),
    ],
)
def name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="class")
def asked_before(name: str, dumps: Callable[[str], Path]) -> Iterator[Source]:
    with closing(open_source(dumps(name))) as source:
        yield source


class TestRealDumps(SourceConformance):
    @pytest.fixture
    def fresh(self, name: str, dumps: Callable[[str], Path]) -> Iterator[Source]:
        with closing(open_source(dumps(name))) as source:
            yield source

    @pytest.fixture
    def source(self, name: str, request: pytest.FixtureRequest) -> Source:
        alone = request.config.getoption("--thorough") or name in FIRST_ASKED
        source: Source = request.getfixturevalue("fresh" if alone else "asked_before")
        return source


class TestWrittenDumps(SourceConformance):
    @pytest.fixture(params=list(Generation))
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> Source:
        write_dump(tmp_path, request.param, steps=(0, 2, 7), ranks=(0, 1))
        return open_source(tmp_path)


class TestPyNativeDump(SourceConformance):
    """No graph, no history, no metadata."""

    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        writer = DumpWriter(tmp_path)
        for step in range(3):
            write_step(writer, step)
        return open_source(tmp_path / "rank_0" / "Net" / "0" / "1")


class TestStatisticsOnly(SourceConformance):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        writer = DumpWriter(tmp_path, Generation.V2_0)
        writer.graph(MLP)
        for step in range(2):
            rows = [(n.type, n.name.rpartition("/")[2], "output", 0, np.ones((2, 3))) for n in MLP.nodes]
            writer.statistics(step, rows)
        return open_source(tmp_path)


class TestTensorFiles(SourceConformance):
    """Directories of .npy files, archives and checkpoints in them, and archives alone; two ranks."""

    @pytest.fixture(params=["npy", "npz", "packed", "archives", "pt", "safetensors"])
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Source]:
        values = {
            "net/fc1/act.in.0": np.ones((2, 3), np.float32),
            "net/fc1/act.out.0": np.zeros((2, 3), np.float32),
            "net/fc1.weight": np.arange(3.0),
            "grads/fc1.weight": np.ones(3),
        }
        for rank in (0, 2):
            for step in (0, 3, 10):
                at = tmp_path / f"rank_{rank}" / f"step_{step}"
                write_arrays(at, values, request.param)
        source = open_source(tmp_path)
        yield source
        source.close()


MONITORS = tuple(f"msprobe-monitor/{name}" for name in ("v1", "v2", "v1-db", "dump-db"))


@pytest.fixture(scope="class", params=[*("torchtitan-numerics/bad", "pytorch-debugmode/bad", "te-logs"), *MONITORS])
def log(request: pytest.FixtureRequest, dumps: Callable[[str], Path]) -> Path:
    name, _, below = request.param.partition("/")
    return dumps(name) / below


@pytest.fixture(scope="class")
def log_asked_before(log: Path) -> Iterator[Source]:
    with closing(open_source(log)) as source:
        yield source


class TestLogs(SourceConformance):
    """Logs with statistics or hashes only."""

    @pytest.fixture
    def fresh(self, log: Path) -> Iterator[Source]:
        with closing(open_source(log)) as source:
            yield source

    @pytest.fixture
    def source(self, log: Path, request: pytest.FixtureRequest) -> Source:  # noqa: ARG002 - one for each of them
        alone = request.config.getoption("--thorough")
        source: Source = request.getfixturevalue("fresh" if alone else "log_asked_before")
        return source


@pytest.fixture(scope="module", params=["mindspore-2.10-multi-eval", "msprobe-mix-2rank-mb-md5"])
def converted_dump(
    request: pytest.FixtureRequest, dumps: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    session = Session(open_source(dumps(request.param)))
    session.open()
    with closing(session):
        return convert(session, session.pairs(), tmp_path_factory.mktemp("converted") / "result").path


@pytest.fixture(scope="class")
def converted_asked_before(converted_dump: Path) -> Iterator[Source]:
    with closing(open_source(converted_dump)) as source:
        yield source


class TestConverted(SourceConformance):
    """What ``tdbg convert`` wrote of dumps with a graph, of several root graphs that ran in another order."""

    @pytest.fixture
    def fresh(self, converted_dump: Path) -> Iterator[Source]:
        with closing(open_source(converted_dump)) as source:
            yield source

    @pytest.fixture
    def source(self, converted_dump: Path, request: pytest.FixtureRequest) -> Source:  # noqa: ARG002 - likewise
        alone = request.config.getoption("--thorough")
        source: Source = request.getfixturevalue("fresh" if alone else "converted_asked_before")
        return source


class TestMemory(SourceConformance):
    @pytest.fixture
    def source(self) -> Iterator[Source]:
        stats = TensorStats(1, 0, 0, 0, 0, 0, 1, 1.0, 1.0, 1.0, None, None, 1.0)
        ones = np.ones((2, 3), np.float32)
        tensors = {
            rank: {
                step: {("b", Side.OUTPUT, 0): ones, ("b", Side.INPUT, 0): ones, ("a", Side.OUTPUT, 0): Recorded(stats)}
                for step in (0, 3)
            }
            for rank in (0, 2)
        }
        ops = [Op("a"), Op("b", inputs=[("a", 0)]), Op("w", "Parameter")]
        source = MemorySource(tensors, ops=ops)
        yield source
        source.close()
