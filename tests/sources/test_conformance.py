"""Every source keeps the promises of the protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.sources.conformance import SourceConformance
from tests.sources.memory import MemorySource, Op, Recorded
from tests.sources.writer import MLP, DumpWriter, Generation, write_dump, write_step
from tui_debugger.model import Side, TensorStats
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source


class TestRealDumps(SourceConformance):
    @pytest.fixture(
        params=[
            *("mindspore-2.0-mlp", "mindspore-2.0-nan", "mindspore-2.10-mlp", "mindspore-2.10-nan"),
            *("mindspore-2.0-multi-eval", "mindspore-2.0-multi-gan", "mindspore-2.0-multi-flow"),
            *("mindspore-2.10-multi-eval", "mindspore-2.10-multi-gan", "mindspore-2.10-multi-flow"),
            "mindspore-2.10-multi-order",
        ]
    )
    def source(self, request: pytest.FixtureRequest, dumps: Callable[[str], Path]) -> Iterator[Source]:
        source = open_source(dumps(request.param))
        yield source
        source.close()


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
