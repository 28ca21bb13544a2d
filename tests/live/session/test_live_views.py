"""The health map and the history of a tensor on a training that runs: what its client judged, what can be fetched."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.live.session.conftest import Live
from tests.live.session.doubles import LOSS, MATMUL, RELU
from tui_debugger.diagnose.health import HealthChecks, HealthMap, health
from tui_debugger.diagnose.trend import PointState, trend
from tui_debugger.live.wire import ReceivedHit, RemoteWatchpoint
from tui_debugger.model import Side, TensorKey, TensorMeta, TensorStats
from tui_debugger.stats.health import Health

Make = Callable[..., Live]
STATS = TensorStats(6, 2, 0, 0, 0, 0, 4, 1.0, 2.0, 1.5, 1.5, 0.25, 10.0)


def overflow_at(step: int) -> Callable[[int, Sequence[RemoteWatchpoint]], list[ReceivedHit]]:
    """At one step NaN in the ReLU, with statistics, and something bad in the loss, without."""

    def hits(at: int, watched: Sequence[RemoteWatchpoint]) -> list[ReceivedHit]:
        if at != step:
            return []
        meta = TensorMeta("float32", (2, 3), 24)
        ids = [each.id for each in watched if each.condition == 13]
        with_stats = [ReceivedHit(RELU, 0, number, 13, (), 0, meta, STATS) for number in ids]
        return [*with_stats, *(ReceivedHit(LOSS, 0, number, 13, ()) for number in ids)]

    return hits


def shown(map_: HealthMap, node: str) -> str:
    """The last step's cell of a node."""
    entry = np.array([map_.tree.index_of_row(map_.nodes.find(node))])
    return Health(int(map_.cells(entry, map_.steps, map_.ranks)[0, -1])).name


def test_the_map_is_what_the_client_judged(live: Make) -> None:
    it = live(hits=overflow_at(1))
    it.arrive()
    it.session.add_recommended()
    it.run(None)
    map_ = health(it.session, HealthChecks(it.session))
    assert map_.steps[-1] == 1
    assert [shown(map_, node) for node in (MATMUL, RELU, LOSS)] == ["CLEAN", "ORIGIN", "NOT_FINITE"]
    assert map_.findings == 2


def test_a_node_that_the_client_was_not_asked_about_was_not_judged(live: Make) -> None:
    it = live(hits=overflow_at(9))
    it.arrive()
    it.session.watchpoints.add("tensor_overflow", selection=it.session.recommended()[0].selection)
    it.run(1)
    it.session.check([(0, 0)])
    map_ = health(it.session, HealthChecks(it.session))
    watched = {it.session.nodes(0).names[row] for row in np.flatnonzero(it.session.watch_state(0))}
    assert MATMUL not in watched
    assert {shown(map_, node) for node in watched} == {"CLEAN"}
    assert shown(map_, MATMUL) == "NOT_JUDGED"


def test_a_history_fetches_what_the_training_still_has(live: Make) -> None:
    it = live()
    it.arrive()
    it.run(2)
    nodes = it.session.nodes(0)
    key = TensorKey(0, nodes.graph_of(0).name, MATMUL, Side.OUTPUT, 0, 1)
    series = trend(it.session, key, it.session.steps(0))
    last = series.at(1)
    assert PointState(int(series.state[last])) is PointState.MEASURED
    assert float(series.of("mean")[last]) == 1.0
    assert set(series.state[:last].tolist()) <= {PointState.ABSENT, PointState.UNREADABLE}
