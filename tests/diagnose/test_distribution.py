"""Where a tensor's values lie: read once, counted exactly, and said where only statistics are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.sources.memory import MemorySource
from tests.sources.writer import MLP, DumpWriter, Generation
from tui_debugger.diagnose import distribution as module
from tui_debugger.diagnose.distribution import (
    BinOptions,
    choose_bins,
    distribution_of,
    fitting_bins,
    histograms_of,
    percentiles,
)
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import Side, TensorKey
from tui_debugger.session import Session
from tui_debugger.sources.registry import open_source

DIV = "Default/network-WithLossCell/_backbone-Net/norm-RowNorm/Div-op385"


@pytest.fixture
def session(dumps: Callable[[str], Path]) -> Iterator[Session]:
    found = Session(open_source(dumps("mindspore-2.0-nan")))
    yield found
    found.close()


def key_of(session: Session, node: str, step: int) -> TensorKey:
    nodes = session.nodes(0)
    return TensorKey(0, nodes.graph_of(nodes.find(node)).name, node, Side.OUTPUT, 0, step)


def in_memory(*values: npt.NDArray[Any]) -> tuple[Session, list[TensorKey]]:
    session = Session(MemorySource({0: {step: {("a", Side.OUTPUT, 0): value} for step, value in enumerate(values)}}))
    return session, [key_of(session, "a", step) for step in range(len(values))]


def test_a_real_tensor(session: Session) -> None:
    key = key_of(session, DIV, 3)
    values = np.asarray(session.read(key)).astype(np.float64)
    good = values[np.isfinite(values)]
    found = distribution_of(session, key)
    assert found.bounds == (good.min(), good.max())
    assert found.quantiles is not None
    assert found.quantiles.values == tuple(np.percentile(good, found.quantiles.percents).tolist())
    assert found.headroom is not None
    assert (found.headroom.greatest, found.headroom.least) == (np.abs(good).max(), np.abs(good).min())


@pytest.mark.parametrize("log", [False, True])
def test_two_steps_share_their_bins(session: Session, log: bool) -> None:
    keys = [key_of(session, DIV, 3), key_of(session, DIV, 2)]
    found = histograms_of(session, keys, BinOptions(60, log))
    assert found.bars[0].bins == found.bars[1].bins
    for key, bars in zip(keys, found.bars, strict=True):
        assert sum(bars.counts) == np.isfinite(session.read(key)).sum()


def test_zoom_counts_what_lies_between(session: Session) -> None:
    key = key_of(session, DIV, 3)
    found = histograms_of(session, [key], BinOptions(60, between=(0.0, 0.1)))
    values = session.read(key).astype(np.float64)
    assert found.bars[0].bins[0].low == 0.0
    assert sum(found.bars[0].counts) == ((values >= 0) & (values <= 0.1)).sum()


def test_what_is_known_is_not_looked_at_again(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    key = key_of(session, DIV, 3)
    known = distribution_of(session, key)
    monkeypatch.setattr(module, "distribution_of_row", None)
    assert histograms_of(session, [known], BinOptions(10)).distributions == (known,)


def test_percentiles_of_large_tensors_wait_until_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUICK", 10)
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    session, (key,) = in_memory(values)
    found = distribution_of(session, key)
    assert found.quantiles is None
    assert percentiles(session, found).values == tuple(
        np.percentile(values.astype(np.float64), (0.1, 1, 5, 25, 50, 75, 95, 99, 99.9)).tolist()
    )


def test_statistics_without_values_have_no_bars(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    writer.metadata()
    writer.graph(MLP)
    writer.statistics(0, [("MatMul", "MatMul-op1", "output", 0, np.array([1.0, 2.0]))])
    session = Session(open_source(tmp_path))
    name = next(name for name in session.nodes(0).names if name.endswith("MatMul-op1"))
    found = histograms_of(session, [key_of(session, name, 0)], BinOptions(10))
    assert found.distributions[0].classes is None
    assert found.distributions[0].stats is not None
    assert found.bars[0].bins == ()
    with pytest.raises(UnreadableTensorError, match="only statistics"):
        percentiles(session, found.distributions[0])


def test_a_tensor_that_was_not_dumped_is_an_error(session: Session) -> None:
    with pytest.raises(UnreadableTensorError):
        distribution_of(session, TensorKey(0, "kernel_graph_0", DIV, Side.OUTPUT, 7, 3))


def test_whole_numbers_get_bins_of_whole_numbers() -> None:
    session, keys = in_memory(np.array([True, False]), np.arange(100, dtype=np.int16), np.full(3, np.nan))
    distributions = [distribution_of(session, key) for key in keys]
    assert [each.low for each in choose_bins(distributions[:1], 50, log=False)] == [0.0, 1.0]
    assert [each.low for each in choose_bins(distributions[1:2], 10, log=False)] == [
        float(i) for i in range(0, 100, 10)
    ]
    assert choose_bins(distributions[2:], 10, log=False) == ()


def test_few_values_get_few_bins() -> None:
    session, keys = in_memory(np.arange(4.0), np.arange(40_000.0))
    few, many = (distribution_of(session, key) for key in keys)
    assert fitting_bins([few], 180) == 16
    assert fitting_bins([few, many], 180) == 180
