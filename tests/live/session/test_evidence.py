"""What speaks for a finding is kept while the training stands: a step further it is still there."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from tests.live.session.conftest import Live
from tests.live.session.doubles import LOSS, RELU, UPDATE, WEIGHT, Array, ones
from tests.live.session.test_live_session import key, overflow_at
from tui_debugger.diagnose.origin.path import trace
from tui_debugger.live import wire
from tui_debugger.live.wire import Event
from tui_debugger.text.hits import hit_text

Make = Callable[..., Live]


def bad_loss(step: int) -> Mapping[str, Array]:
    """A NaN in the loss and in what is made of it, from finite inputs."""
    values = dict(ones(step))
    if step == 2:
        values[LOSS] = np.array([[np.nan, 1, 2], [3, 4, 5]], np.float32)
        values[UPDATE] = values[LOSS]
    return values


@pytest.mark.parametrize("features", [0, wire.FULL_STATISTICS | wire.ANY_PREVIOUS], ids=["MindSpore", "ours"])
def test_the_way_to_the_origin_is_known_when_the_training_went_on(live: Make, features: int) -> None:
    it = live(hits=overflow_at(2, LOSS, UPDATE), values=bad_loss, features=features)
    it.arrive()
    it.session.add_recommended()
    it.run(None)
    it.run(3)
    assert it.session.state(0).step == 5
    path = trace(it.session, key(UPDATE, 2))
    assert path.end.tensor.key == key(LOSS, 2)
    assert path.ends_at_origin
    rows = {
        row.key.node: row for row in it.session.measure(it.session.tensor_rows(0, 2, it.session.nodes(0).find(LOSS)))
    }
    assert rows[RELU].stats is not None
    assert rows[RELU].stats.bad is False
    assert it.session.read(key(RELU, 2)).tolist() == ones(2)[RELU].tolist()
    known = it.session.known([(0, 2)])
    assert known is not None
    (origin,) = [hit for hit in known.hits if hit.origin]
    assert origin.key == key(LOSS, 2)


def test_hits_that_came_without_statistics_have_them(live: Make) -> None:
    it = live(hits=overflow_at(2, LOSS), values=bad_loss)
    it.arrive()
    it.session.add_recommended()
    it.run(None)
    event = it.told.wait(Event.STOPPED, 2)
    assert event.result is not None
    (hit,) = event.result.hits
    assert hit.stats is not None
    assert (hit.stats.nan, hit.stats.count) == (1, 6)


def test_what_a_hit_once_said_stays_when_it_is_checked_again(live: Make) -> None:
    """A screen that goes to the rank has the training check again what it holds; that says less of a hit."""
    it = live(hits=overflow_at(2, LOSS), values=bad_loss)
    it.arrive()
    it.session.add_recommended()
    it.run(None)
    event = it.told.wait(Event.STOPPED, 2)
    assert event.result is not None
    (hit,) = event.result.hits
    it.session.watchpoints.add("tensor_too_large", (("max_gt", 1e9),))
    (again,) = it.session.check([(0, 2)]).hits
    assert it.training.said[-1] == "recheck"
    assert hit_text(again) == hit_text(hit) == "NaN 1 of 6"
    it.run(1)
    known = it.session.so_far()
    assert known is not None
    assert [hit_text(each) for each in known.hits if each.key.step == 2] == ["NaN 1 of 6"]


def test_running_through_hits_asks_for_nothing(live: Make) -> None:
    it = live(hits=overflow_at(2, LOSS), values=bad_loss)
    it.arrive()
    it.session.add_recommended()
    it.session.run(4, stop_on_hit=False)
    it.told.wait(Event.STOPPED, 2)
    assert it.session.state(0).step == 3
    assert it.training.asked == []


def test_a_training_that_does_not_answer_holds_nobody_up(live: Make) -> None:
    it = live(hits=overflow_at(2, LOSS), values=bad_loss)
    it.arrive()
    it.session.add_recommended()

    def gone() -> None:
        it.training.lose()

    it.training.before_answer = gone
    it.run(None)
    assert it.told.wait(Event.STOPPED, 2).result is not None


def test_the_weight_that_a_step_read_is_kept_as_it_was_before_it(live: Make) -> None:
    it = live(hits=overflow_at(2, UPDATE), values=bad_loss, features=wire.FULL_STATISTICS)
    it.arrive()
    it.session.add_recommended()
    it.run(None)
    it.run(3)
    assert it.session.read(key(WEIGHT, 1))[0, 0] == 1
