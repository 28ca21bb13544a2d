"""A session on a training that runs, as the panes and commands use it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.live.session.conftest import Live, Told
from tests.live.session.doubles import (
    LOSS,
    MATMUL,
    NET,
    RELU,
    UPDATE,
    WEIGHT,
    Array,
    ScriptedTraining,
    ScriptedTrainings,
    graph,
    ones,
)
from tests.patience import PATIENCE
from tui_debugger.check.verdicts import Outcome, judge
from tui_debugger.diagnose.headline import headline
from tui_debugger.errors import CancelledError, LostError, NotStoppedError, TdbgError, UnsupportedError
from tui_debugger.live import wire
from tui_debugger.live.wire import START, Event, Phase, ReceivedHit, RemoteWatchpoint, TrainingStop, Unrecorded
from tui_debugger.model import (
    NodeKind,
    NodeSelection,
    NodeSelector,
    Progress,
    Side,
    TensorKey,
    TensorMeta,
    TensorStats,
    Verdict,
)
from tui_debugger.session import live_events
from tui_debugger.session.live import LiveSession
from tui_debugger.stats.blocks import measure_stats

Make = Callable[..., Live]


def overflow_at(step: int, *nodes: str) -> Callable[[int, Sequence[RemoteWatchpoint]], list[ReceivedHit]]:
    """NaN in some nodes at one step, reported for every overflow watchpoint."""

    def hits(at: int, watched: Sequence[RemoteWatchpoint]) -> list[ReceivedHit]:
        ids = [each.id for each in watched if each.condition == 13]
        return [ReceivedHit(node, 0, number, 13, ()) for node in nodes for number in ids] if at == step else []

    return hits


def key(node: str, step: int) -> TensorKey:
    return TensorKey(0, "kernel_graph_0", node, Side.OUTPUT, 0, step)


def asked(live: Live, kind: str) -> list[tuple[str, bool]]:
    return [
        (tensor.node, tensor.previous) for what, tensors in live.training.asked if what == kind for tensor in tensors
    ]


# -- attaching ---------------------------------------------------------------------------------------


def test_before_a_training_came_there_is_nothing(live: Make) -> None:
    it = live(graphs=())
    assert list(it.session.ranks()) == []
    assert it.session.recommended() == ()
    assert it.session.check([]).hits == ()
    it.session.open()


def test_waiting_says_what_has_to_be_set(live: Make) -> None:
    text = live().session.waiting_text()
    assert "ENABLE_MS_DEBUGGER=1 MS_DEBUGGER_HOST=127.0.0.1 MS_DEBUGGER_PORT=50051" in text
    assert "TDBG_HOST=127.0.0.1 TDBG_PORT=50051" in text


def test_a_training_that_came_has_a_graph_and_stands_before_its_first_step(live: Make) -> None:
    it = live()
    it.arrive()
    state = it.session.state(0)
    assert (state.phase, state.step, state.graph, state.remaining) == (Phase.STOPPED, START, True, 0)
    assert list(it.session.ranks()) == [0]
    assert list(it.session.steps(0)) == [START]
    assert [event.kind for event in it.told.events] == [Event.CONNECTED, Event.GRAPH, Event.STOPPED]
    assert len(it.session.recommended()) > 3


def test_a_rank_that_nobody_has_is_an_error(live: Make) -> None:
    with pytest.raises(TdbgError, match="no training has rank 7"):
        live().session.state(7)


def test_a_client_that_is_turned_away_is_told_with_the_reason(live: Make) -> None:
    it = live()
    it.trainings.refuse("MindSpore 1.0 speaks other messages")
    assert it.told.wait(Event.REFUSED).text == "MindSpore 1.0 speaks other messages"


# -- driving -----------------------------------------------------------------------------------------


def test_it_runs_some_steps_or_until_a_hit_with_the_list_as_it_is(live: Make) -> None:
    it = live(hits=overflow_at(5, LOSS))
    it.arrive()
    it.session.add_recommended()
    assert it.run(3) == 2
    assert it.run(None) == 5
    known = it.session.known([(0, 5)])
    assert known is not None
    assert [hit.key.node for hit in known.hits] == [LOSS]
    assert it.told.events[-1].text == "rank 0: step 5, 1 hit"
    assert it.session.fresh([(0, 5)])


def test_one_that_does_not_stand_cannot_run(live: Make) -> None:
    it = live()
    with pytest.raises(NotStoppedError):
        it.session.run()
    it.arrive()
    it.training.lose()
    with pytest.raises(NotStoppedError, match="no training stands"):
        it.session.run()


def test_a_client_that_stops_at_the_end_of_steps_cannot_run_to_a_node(live: Make) -> None:
    it = live()
    it.arrive()
    assert not it.session.can_run_to_nodes(0)
    with pytest.raises(UnsupportedError):
        it.session.run_to_node(0)
    assert it.session.state(0).phase is Phase.STOPPED


def test_it_runs_to_a_node_by_its_name(live: Make) -> None:
    it = live(features=wire.RUNS_TO_NODES)
    it.arrive()
    it.session.run_to_node(0, it.session.nodes(0).find(RELU))
    it.told.wait(Event.STOPPED, 2)
    stop = it.session.state(0).stop
    assert stop is not None
    assert (stop.step, stop.node) == (0, RELU)


def test_all_or_one_of_several_trainings(opened: Callable[..., LiveSession]) -> None:
    trainings = [ScriptedTraining(number=n + 1, rank=n) for n in range(3)]
    session = opened(ScriptedTrainings(*trainings))
    told = Told(session)
    for training in trainings:
        training.arrive()
    told.wait(Event.STOPPED, 3)
    assert session.run(2) == (0, 1, 2)
    told.wait(Event.STOPPED, 6)
    assert session.run(2, [1]) == (1,)
    told.wait(Event.STOPPED, 7)
    assert [session.state(rank).step for rank in (0, 1, 2)] == [1, 3, 1]
    session.pause([2])
    session.terminate([0])
    session.release([1])
    assert [training.said[-1] for training in trainings] == ["terminate", "release", "pause"]


def test_initial_values_are_judged_before_the_first_step_and_a_finding_keeps_it_there(live: Make) -> None:
    def hits(step: int, watched: Sequence[RemoteWatchpoint]) -> list[ReceivedHit]:
        return [ReceivedHit(WEIGHT, 0, each.id, 14, ()) for each in watched if each.condition == 14 and step < 0]

    it = live(hits=hits)
    it.arrive()
    it.session.watchpoints.add(
        "weight_initialization", {"zero_percentage_ge": 100}, it.session.recommended()[0].selection
    )
    assert it.session.run(1) == ()
    assert it.told.wait(Event.HITS).step == START
    known = it.session.known([(0, START)])
    assert known is not None
    assert [hit.key.node for hit in known.hits] == [WEIGHT]
    assert known.coverage.checked == 1
    assert it.session.run(1) == (0,)


# -- checks ------------------------------------------------------------------------------------------


def test_a_changed_list_is_rechecked_by_the_client(live: Make) -> None:
    it = live(hits=overflow_at(2, LOSS))
    it.arrive()
    assert it.run(3) == 2
    assert it.session.check([(0, 2)]).hits == ()
    assert "recheck" not in it.training.said  # there was nothing to ask
    it.session.add_recommended()
    assert not it.session.fresh([(0, 2)])
    result = it.session.check([(0, 2)])
    assert it.training.said[-1] == "recheck"
    assert [hit.key.node for hit in result.hits] == [LOSS]
    it.session.check([(0, 2)])
    assert it.training.said.count("recheck") == 1


def test_the_coverage_is_what_the_client_was_asked_to_watch(live: Make) -> None:
    it = live(hits=overflow_at(0, LOSS))
    it.arrive()
    it.session.watchpoints.add("tensor_overflow", selection=it.session.recommended()[-1].selection)
    overflow = it.session.watchpoints.items()[0]
    it.run()
    known = it.session.known([(0, 0)])
    assert known is not None
    watched = int(it.session.watch_state(0, overflow.id).sum())
    assert known.coverage.checked == watched == dict(known.coverage.watched)[overflow.id]
    assert known.coverage.skipped == 6 - watched


def test_the_first_bad_tensor_is_the_origin_where_its_inputs_were_watched(live: Make) -> None:
    it = live(hits=overflow_at(1, RELU, LOSS))
    it.arrive()
    it.session.add_recommended()
    it.run(None)
    known = it.session.known([(0, 1)])
    assert known is not None
    assert [(hit.key.node, hit.origin) for hit in known.hits] == [(RELU, True), (LOSS, False)]


def test_what_was_fed_in_bad_is_the_origin_and_not_what_was_made_from_it(live: Make) -> None:
    it = live(hits=overflow_at(1, "x", MATMUL, RELU, LOSS, UPDATE, WEIGHT))
    it.arrive()
    it.session.add_recommended()
    it.run(None)
    known = it.session.known([(0, 1)])
    assert known is not None
    assert {hit.key.node for hit in known.hits if hit.origin} == {"x"}
    assert len(known.hits) == 6


def test_a_weight_that_its_update_spoiled_is_an_origin(live: Make) -> None:
    it = live(hits=overflow_at(1, WEIGHT))
    it.arrive()
    it.session.add_recommended()
    it.run(None)
    known = it.session.known([(0, 1)])
    assert known is not None
    assert {hit.key.node: hit.origin for hit in known.hits} == {WEIGHT: True}


@pytest.mark.parametrize("told", [True, False], ids=["it can be asked", "it cannot be asked"])
def test_an_origin_whose_input_nobody_watched_needs_its_value(live: Make, told: bool) -> None:
    def values(step: int) -> dict[str, Array]:
        return {name: array for name, array in ones(step).items() if told or name != RELU}

    it = live(hits=overflow_at(1, LOSS), values=values)
    it.arrive()
    it.session.watchpoints.add("tensor_overflow", selection=NodeSelection((NodeSelector(NodeKind.NODE, LOSS),)))
    it.run(None)
    known = it.session.known([(0, 1)])
    assert known is not None
    assert [(hit.key.node, hit.origin) for hit in known.hits] == [(LOSS, told)]


def test_an_earlier_step_is_judged_from_what_was_fetched(live: Make) -> None:
    def values(step: int) -> dict[str, Array]:
        found = ones(step)
        if step == 1:
            found[LOSS][0, 0] = np.nan
        return found

    it = live(values=values)
    it.arrive()
    it.run(2)
    it.session.measure(it.session.tensor_rows(0, 1, it.session.nodes(0).find(LOSS)))
    it.run(3)
    it.session.add_recommended()
    result = it.session.check([(0, 1)])
    assert [hit.key.node for hit in result.hits] == [LOSS]
    assert result.coverage.checked == 2  # and its input
    assert result.coverage.unreadable == 0


def test_hits_of_a_training_that_goes_on_by_itself_are_told_with_their_step(live: Make) -> None:
    it = live(hits=overflow_at(2, LOSS), end=5)
    it.arrive()
    it.session.add_recommended()
    it.session.run(None, stop_on_hit=False)
    event = it.told.wait(Event.DONE)
    assert event.rank == 0
    (hits,) = [each for each in it.told.events if each.kind is Event.HITS and each.step == 2]
    known = it.session.known([(0, 2)])
    assert known is not None
    assert (hits.rank, known.hits.findings) == (0, 1)
    assert 2 in it.session.steps(0)
    ((rank, steps, coverage),) = it.session.silent()
    assert (rank, steps) == (0, 4)
    assert coverage.checked == 6


def test_steps_that_a_training_ended_without_a_stop_count_when_somebody_sums_up(
    live: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = live(hits=overflow_at(2, LOSS), end=5)
    monkeypatch.setattr(it.training, "finish", lambda: None)  # it runs on
    it.arrive()
    it.session.add_recommended()
    it.session.run(None, stop_on_hit=False)
    it.told.wait(Event.HITS)
    for _ in range(2):
        it.session.settle()
        assert it.session.ended() == {0: 4}
        assert [(rank, steps) for rank, steps, _ in it.session.silent()] == [(0, 4)]


def test_steps_that_a_training_ended_without_a_stop_count_when_it_is_let_go(
    live: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as those of a rank that is far ahead of the one with the first finding."""
    it = live(end=5)
    monkeypatch.setattr(it.training, "finish", lambda: None)  # it runs on
    it.arrive()
    it.session.add_recommended()
    it.session.run(None)
    it.session.wait_until_idle(PATIENCE)
    it.session.release()
    assert it.session.ended() == {0: 4}
    ((rank, steps, coverage),) = it.session.silent()
    assert (rank, steps, coverage.checked) == (0, 5, 6)


def test_a_step_without_a_word_of_which_something_is_kept_is_checked(live: Make) -> None:
    """The parameters of the step before a pause are kept: nobody has to check that step again."""
    it = live(end=9)
    it.arrive()
    it.session.add_recommended()
    it.session.check([(0, -1)])
    it.session.run(4)
    it.told.wait(Event.STOPPED, 2)
    pairs, known = it.session.pairs(), it.session.so_far()
    assert pairs == ((0, -1), (0, 2), (0, 3))
    assert known is not None
    assert (known.silent, known.silent_pairs, known.not_checked(pairs)) == (3, {(0, 2)}, set())
    assert str(headline(known, pairs, ongoing=True)) == "Clean so far: 24 tensors of 4 steps looked at"
    it.session.check([(0, 2)])
    known = it.session.so_far()
    assert known is not None
    assert (known.silent, known.silent_pairs) == (2, frozenset()), "a step counts once"


def test_what_ran_under_the_list_of_before_is_said(live: Make) -> None:
    it = live(end=9)
    it.arrive()
    it.session.add_recommended()
    it.session.run(4)
    it.told.wait(Event.STOPPED, 2)
    it.session.watchpoints.add("tensor_overflow")
    it.session.recheck()
    known = it.session.so_far()
    assert known is not None
    assert (known.silent, known.silent_before) == (0, 3)
    assert ", 3 more steps by the watchpoints of before" in str(headline(known, it.session.pairs(), ongoing=True))


def test_steps_without_a_hit_are_in_what_is_known_so_far(live: Make) -> None:
    """Else the screen would say of a healthy training that no tensor was looked at."""
    it = live(end=5)
    it.arrive()
    it.session.add_recommended()
    it.session.run(None)
    it.told.wait(Event.DONE)
    known = it.session.so_far()
    assert known is not None
    assert (known.silent, known.coverage.checked) == (5, 5 * 6)
    assert headline(known, ()).outcome is Outcome.CLEAN
    it.session.watchpoints.add("tensor_overflow")
    assert it.session.so_far() is None, "another list looked at these"


# -- tensors -----------------------------------------------------------------------------------------


def test_small_tensors_are_fetched_whole_when_somebody_looks(live: Make) -> None:
    it = live()
    it.arrive()
    it.run(4)
    rows = it.session.tensor_rows(0, 3, it.session.nodes(0).find(MATMUL))
    assert [(row.role, row.key.node, row.key.step) for row in rows] == [
        ("in", "x", 3),
        ("in", WEIGHT, 2),
        ("out", MATMUL, 3),
        ("param", WEIGHT, 3),
    ]
    assert all(row.has_value and row.remote and row.stats is None for row in rows)
    looked = it.session.measure(rows)
    assert [row.stats.mean for row in looked if row.stats] == [3, 2, 3, 3]
    assert not any(row.recorded or row.remote or row.error for row in looked)
    assert (WEIGHT, True) in asked(it, "values")
    it.training.asked.clear()
    assert it.session.measure(it.session.tensor_rows(0, 3, it.session.nodes(0).find(MATMUL))) == looked
    assert it.training.asked == []


LARGE = graph([(LOSS, "Log", ["x"], (400, 400))], ["x"])


def large(step: int) -> dict[str, Array]:
    return {LOSS: np.full((400, 400), step, np.float32), "x": np.zeros((2, 3), np.float32)}


@pytest.mark.parametrize("features", [0, wire.FULL_STATISTICS])
def test_of_large_ones_statistics_are_asked(live: Make, features: int) -> None:
    it = live(graphs=(LARGE,), values=large, features=features)
    it.arrive()
    it.run(2)
    row = it.session.nodes(0).find(LOSS)
    out = next(each for each in it.session.measure(it.session.tensor_rows(0, 1, row)) if each.role == "out")
    assert out.meta == TensorMeta("float32", (400, 400), 0 if out.meta is None else out.meta.nbytes)
    assert out.stats is not None
    assert out.stats.maximum == 1
    assert out.remote
    assert out.has_value
    assert out.recorded == (features == 0)
    assert (out.stats.mean is None) == (features == 0)  # MindSpore's mean of so many elements is wrong
    assert asked(it, "statistics") == [(LOSS, False)]


def test_reading_fetches_once_and_counts(live: Make) -> None:
    it = live()
    it.arrive()
    it.run(1)
    seen: list[Progress] = []
    np.testing.assert_array_equal(it.session.read(key(LOSS, 0), seen.append), ones(0)[LOSS])
    it.session.read(key(LOSS, 0))
    assert asked(it, "values") == [(LOSS, False)]
    assert seen
    assert it.session.state(0).fetched == 24
    assert it.told.count(Event.FETCHED) == 1


def test_what_the_training_does_not_have_is_an_error_with_a_hint(live: Make) -> None:
    it = live(values=lambda step: {LOSS: ones(step)[LOSS]})
    it.arrive()
    it.run(1)
    with pytest.raises(TdbgError, match="does not have this tensor"):
        it.session.read(key(RELU, 0))
    rows = it.session.measure(it.session.tensor_rows(0, 0, it.session.nodes(0).find(LOSS)))
    assert [(row.role, row.error) for row in rows] == [("in", "the training does not have this tensor"), ("out", "")]


def test_fetched_values_can_be_looked_at_when_the_training_is_further(live: Make) -> None:
    it = live()
    it.arrive()
    it.run(1)
    it.session.read(key(LOSS, 0))
    it.run(5)
    np.testing.assert_array_equal(it.session.read(key(LOSS, 0)), ones(0)[LOSS])
    with pytest.raises(TdbgError):
        it.session.read(key(RELU, 0))
    assert list(it.session.steps(0)) == [START, 0, 4, 5]


def test_cancelling_a_fetch_leaves_nothing_half(live: Make) -> None:
    it = live()
    it.arrive()
    it.run(1)

    def cancel(snapshot: Progress) -> None:
        if snapshot.done:
            raise CancelledError("stopped")

    with pytest.raises(CancelledError):
        it.session.read(key(LOSS, 0), cancel)
    files = [path for path in it.session.live.spool.path.rglob("*") if path.is_file() and path.name != "pid"]
    assert files == []
    np.testing.assert_array_equal(it.session.read(key(LOSS, 0)), ones(0)[LOSS])


def test_what_came_while_the_training_went_on_is_not_taken_for_the_step_before(live: Make) -> None:
    it = live()
    it.arrive()
    it.run(1)
    it.training.before_answer = lambda: it.training.stop_at(1)
    with pytest.raises(NotStoppedError):
        it.session.read(key(LOSS, 0))
    it.told.wait(Event.STOPPED, 3)
    it.training.before_answer = lambda: None
    assert it.session.read(key(LOSS, 1))[0, 0] == 1
    rows = it.session.tensor_rows(0, 0, it.session.nodes(0).find(LOSS))
    assert not any(row.has_value for row in rows)


def test_a_lost_training_says_so_and_what_was_fetched_stays(live: Make) -> None:
    it = live()
    it.arrive()
    it.run(1)
    it.session.read(key(LOSS, 0))
    it.training.lose()
    it.told.wait(Event.LOST)
    assert it.session.state(0).phase is Phase.LOST
    assert it.session.read(key(LOSS, 0)).shape == (2, 3)
    rows = it.session.measure(it.session.tensor_rows(0, 0, it.session.nodes(0).find(RELU)))
    assert not any(row.has_value for row in rows)
    it.training.back()
    it.told.wait(Event.BACK)
    assert it.session.read(key(RELU, 0)).shape == (2, 3)


def test_losing_it_in_the_middle_of_a_look_is_told_on_the_row(live: Make) -> None:
    it = live()
    it.arrive()
    it.run(1)
    rows = it.session.tensor_rows(0, 0, it.session.nodes(0).find(LOSS))
    it.training.phase = Phase.LOST  # before anybody was told
    looked = it.session.measure(rows)
    assert all(row.error and row.stats is None for row in looked)
    with pytest.raises((LostError, NotStoppedError)):
        it.session.read(key(LOSS, 0))


def test_within_a_step_parameters_are_fetched_again(live: Make) -> None:
    count = 0

    def values(step: int) -> dict[str, Array]:
        return {name: array + count for name, array in ones(step).items()}

    it = live(values=values, features=wire.RUNS_TO_NODES)
    it.arrive()
    it.training.stop_at(0, RELU)
    it.told.wait(Event.STOPPED, 2)
    assert it.session.read(key(WEIGHT, 0))[0, 0] == it.session.read(key(RELU, 0))[0, 0] == 0
    count = 10
    it.training.stop_at(0, LOSS)
    it.told.wait(Event.STOPPED, 3)
    assert it.session.read(key(WEIGHT, 0))[0, 0] == 10
    assert it.session.read(key(RELU, 0))[0, 0] == 0


def test_statistics_that_come_with_hits_need_no_question(live: Make) -> None:
    stats = TensorStats(6, 2, 0, 0, 0, 0, 4, 1.0, 2.0, 1.5, 1.5, 0.25, 10.0)

    def hits(_step: int, watched: Sequence[RemoteWatchpoint]) -> list[ReceivedHit]:
        meta = TensorMeta("float32", (2, 3), 24)
        return [ReceivedHit(LOSS, 0, each.id, 13, (), 0, meta, stats) for each in watched if each.condition == 13]

    it = live(hits=hits)
    it.arrive()
    it.session.watchpoints.add_missing(each for each in it.session.recommended() if each.condition == "tensor_overflow")
    it.run(1)
    known = it.session.known([(0, 0)])
    assert known is not None
    assert [hit.stats for hit in known.hits] == [stats]
    assert LOSS not in {tensor.node for kind, asked in it.training.asked if kind == "statistics" for tensor in asked}


# -- changes -----------------------------------------------------------------------------------------


def test_refresh_tells_what_came_and_forgets_no_result(live: Make) -> None:
    it = live(hits=overflow_at(0, LOSS))
    it.arrive()
    assert it.session.refresh().new_ranks == (0,)
    it.session.add_recommended()
    it.run(1)
    changes = it.session.refresh()
    assert changes.new_steps == ((0, 0),)
    it.session.read(key(MATMUL, 0))
    assert (0, 0) in it.session.refresh().grown_steps
    assert it.session.known([(0, 0)]) is not None
    assert not it.session.refresh()


def test_a_graph_that_comes_again_in_another_form_numbers_the_nodes_anew(live: Make) -> None:
    it = live()
    it.arrive()
    it.session.refresh()
    before = it.session.nodes(0)
    it.training.emit(Event.GRAPH)
    it.told.wait(Event.GRAPH, 2)
    assert it.session.nodes(0) is before
    it.training.graphs = (LARGE,)
    it.training.emit(Event.GRAPH)
    it.told.wait(Event.GRAPH, 3)
    assert it.session.refresh().rebuilt == (0,)
    assert it.session.nodes(0).find(MATMUL) == -1


def test_a_broken_graph_is_a_notice(live: Make) -> None:
    it = live(graphs=(b"\xff\xff\xff",))
    it.arrive()
    assert list(it.session.ranks()) == []
    assert any("graph" in notice for notice in it.session.info.notices)


def test_the_spool_lets_the_oldest_steps_go_and_says_so(live: Make) -> None:
    it = live(graphs=(LARGE,), values=large, spool_limit=3 * 400 * 400 * 4)
    it.arrive()
    for step in range(4):
        it.run(1)
        it.session.read(key(LOSS, step))
    there = [it.session.tensor_rows(0, step, 0)[1].has_value for step in range(4)]
    assert there == [False, False, True, True]
    assert any("spool is full" in notice for notice in it.session.info.notices)


def test_closing_lets_trainings_go_ends_the_thread_and_leaves_no_files(live: Make) -> None:
    it = live()
    it.arrive()
    it.run(1)
    it.session.read(key(LOSS, 0))
    spool = it.session.live.spool.path
    it.session.close()
    it.session.close()
    assert it.training.said[-1] == "release"
    assert it.trainings.closed.is_set()
    assert not spool.exists()
    assert not [thread for thread in threading.enumerate() if thread.name == "tdbg-live-events"]


def test_it_takes_in_a_training_that_stood_there_before_the_session(opened: Callable[..., LiveSession]) -> None:
    training = ScriptedTraining(graphs=(NET,))
    trainings = ScriptedTrainings(training)
    training.stop_at(8)
    session = opened(trainings)
    assert session.state(0).step == 8
    assert session.read(key(LOSS, 8))[0, 0] == 8


def test_hits_of_several_stops_within_a_step_are_one_list(live: Make) -> None:
    it = live(features=wire.RUNS_TO_NODES)
    it.arrive()
    it.session.add_recommended()
    overflow = next(each.id for each in it.session.watchpoints.items() if each.condition == "tensor_overflow")
    it.session.run(1)
    it.told.wait(Event.STOPPED, 2)
    for number, node in enumerate((RELU, LOSS)):
        it.training.reports(ReceivedHit(node, 0, overflow, 13, ()))
        it.training.stop_at(1, node)
        it.told.wait(Event.STOPPED, 3 + number)
    known = it.session.known([(0, 1)])
    assert known is not None
    assert [hit.key.node for hit in known.hits] == [RELU, LOSS]


def test_nodes_that_come_later_are_watched_without_being_told_again(live: Make) -> None:
    """A loop that records names as it goes sends its graph anew when there are more of them."""
    it = live(graphs=(graph([(MATMUL, "MatMul", ["x"], (2, 3))], ["x"]),), hits=overflow_at(4, LOSS))
    it.arrive()
    it.session.watchpoints.add("tensor_overflow", selection=NodeSelection((NodeSelector(NodeKind.CATEGORY, "tensor"),)))
    it.run(2)
    assert {name for each in it.training.watchpoints for name, _, _ in each.nodes} == {MATMUL, "x"}
    it.training.graphs = (NET,)
    it.training.emit(Event.GRAPH)
    it.told.wait(Event.GRAPH, 2)
    assert {name for each in it.training.watchpoints for name, _, _ in each.nodes} == set(ones(0))
    assert it.run(None) == 4
    known = it.session.known([(0, 4)])
    assert known is not None
    assert [hit.key.node for hit in known.hits] == [LOSS]
    assert [(steps, coverage.checked) for _, steps, coverage in it.session.silent()] == [(1, 2), (2, 6)]


# -- infinities by design ------------------------------------------------------------------------------

MASKED, WEIGHTS = "Default/attn/MaskedFill-op1", "Default/attn/Softmax-op2"


@pytest.mark.parametrize("types", [("MaskedFill", "Softmax"), ("aten::masked_fill", "aten::_softmax")])
@pytest.mark.parametrize("whole", [False, True])
def test_a_mask_is_no_finding_unless_a_whole_row_of_it_makes_nan(
    live: Make, types: tuple[str, str], whole: bool
) -> None:
    net = graph([(MASKED, types[0], ["x"], (2, 3)), (WEIGHTS, types[1], [MASKED], (2, 3))], ["x"])
    values = {MASKED: np.array([[1, 2, -np.inf], [1, 2, 3]], np.float32)}
    if whole:
        values[MASKED][0] = -np.inf
        values[WEIGHTS] = np.full((2, 3), np.nan, np.float32)

    def hits(_step: int, watched: Sequence[RemoteWatchpoint]) -> list[ReceivedHit]:
        return [
            ReceivedHit(name, 0, each.id, 13, (), 0, TensorMeta("float32", (2, 3), 24), measure_stats(bad)[0])
            for each in watched
            if each.condition == 13
            for name, bad in values.items()
        ]

    it = live(hits=hits, graphs=(net,))
    it.arrive()
    it.session.watchpoints.add("tensor_overflow", selection=NodeSelection((NodeSelector(NodeKind.CATEGORY, "tensor"),)))
    it.run(None if whole else 1)
    known = it.session.known([(0, 0)])
    assert known is not None
    mask = Verdict.FINDING if whole else Verdict.BY_DESIGN
    assert {hit.key.node: (hit.verdict, hit.origin) for hit in known.hits} == {
        MASKED: (mask, False),
        **({WEIGHTS: (Verdict.FINDING, True)} if whole else {}),
    }
    assert known.coverage.by_design == (0 if whole else 1)


class TestMasksInsideAStep:
    """Somebody who wants to stop at findings does not stop at each mask: the end of the step tells what it becomes."""

    def arrived(self, live: Make, bad: int, target: int | None = None) -> Live:
        """It ran from the end of step 0; the mask makes a row of NaN in one step."""
        net = graph([(MASKED, "MaskedFill", ["x"], (2, 3)), (WEIGHTS, "Softmax", [MASKED], (2, 3))], ["x"])
        mask = np.array([[1, 2, -np.inf], [1, 2, 3]], np.float32)

        def hits(step: int, watched: Sequence[RemoteWatchpoint]) -> list[ReceivedHit]:
            values = {MASKED: mask, **({WEIGHTS: np.full((2, 3), np.nan, np.float32)} if step == bad else {})}
            return [
                ReceivedHit(name, 0, each.id, 13, (), 0, TensorMeta("float32", (2, 3), 24), measure_stats(value)[0])
                for each in watched
                for name, value in values.items()
            ]

        it = live(hits=hits, graphs=(net,), features=wire.RUNS_TO_NODES, end=6)
        it.arrive()
        chosen = NodeSelection((NodeSelector(NodeKind.CATEGORY, "tensor"),))
        it.session.watchpoints.add("tensor_overflow", selection=chosen)
        it.run(1)
        it.session.run(target, stop_at_inf=False)
        it.session.wait_until_idle(PATIENCE)
        return it

    @pytest.mark.parametrize("bad", [2, 9])
    def test_are_passed_until_a_finding_or_the_end(self, live: Make, bad: int) -> None:
        it = self.arrived(live, bad)
        state = it.session.state(0)
        assert (state.phase, state.ended) == ((Phase.STOPPED, 2) if bad == 2 else (Phase.DONE, 5))

    def test_take_no_step_away_from_those_that_were_wanted(self, live: Make) -> None:
        it = self.arrived(live, 9, 3)
        assert (it.session.state(0).phase, it.session.state(0).ended) == (Phase.STOPPED, 3)

    @pytest.mark.parametrize(("node", "bad"), [(MASKED, 9), (WEIGHTS, 2)])
    def test_inside_a_step_what_no_later_operator_can_absorb_stops_it_there(
        self, live: Make, node: str, bad: int
    ) -> None:
        it = self.arrived(live, bad, 1)
        it.training.stop_at(2, node)
        it.session.wait_until_idle(PATIENCE)
        state = it.session.state(0)
        assert it.training.said[2:4] == (["run 1", "run None"] if node == MASKED else [])
        assert (state.phase, state.ended) == ((Phase.DONE, 5) if node == MASKED else (Phase.STOPPED, 1))

    def test_a_pause_holds_at_the_end_of_the_step(self, live: Make) -> None:
        it = self.arrived(live, 9, 1)
        it.session.pause()
        it.training.stop_at(2, MASKED)
        it.session.wait_until_idle(PATIENCE)
        assert (it.session.state(0).phase, it.session.state(0).ended) == (Phase.STOPPED, 2)

    def test_a_run_to_a_node_ends_there(self, live: Make) -> None:
        it = self.arrived(live, 9, 1)
        it.session.run_to_node(0, it.session.nodes(0).find(MASKED))
        it.session.wait_until_idle(PATIENCE)
        assert (it.session.state(0).phase, it.session.state(0).ended) == (Phase.STOPPED, 1)


# -- what nobody judged ------------------------------------------------------------------------------


def lost(it: Live) -> list[str]:
    return [f"{part.where} ({part.why})" for part in it.session.unreadable() if part.unrecorded]


def test_what_a_client_could_not_record_belongs_to_every_step_of_it(live: Make) -> None:
    it = live()
    it.arrive()
    it.session.add_recommended()
    it.training.unrecorded = (Unrecorded("passes inside torch.compile", 3, "blocks.1", 2), Unrecorded("tensors", 1))
    it.run(2)
    assert lost(it) == [
        "rank 0: passes inside torch.compile (3, first blocks.1 at step 2)",
        "rank 0: tensors (1, first at step 0)",
    ]
    known = it.session.known([(0, 1)])
    assert known is not None
    assert len(known.coverage.parts) == 2
    (doubt,) = judge(known).doubts
    assert doubt.kind == "unrecorded"
    assert doubt.text.startswith("not recorded by the training: rank 0: passes inside torch.compile (3, first")


def test_steps_that_ran_while_it_was_lost_are_not_called_clean(live: Make) -> None:
    it = live()
    it.arrive()
    it.session.add_recommended()
    it.run(2)
    it.training.lose()
    it.training.come_back(7)
    it.told.wait(Event.STOPPED, 3)
    assert it.session.known([(0, 7)]) is None
    assert lost(it) == ["rank 0: steps that ran while the connection was lost (5, first step 2)"]
    it.session.run(1)
    it.told.wait(Event.STOPPED, 4)
    assert it.training.said[-2:] == ["recheck", "run 1"], "the step that it came back with is judged before it goes on"
    assert it.session.known([(0, 7), (0, 8)]) is not None
    assert it.session.ended() == {0: 8}


def test_a_step_that_ended_before_the_list_came_is_judged_and_what_is_found_holds_it(live: Make) -> None:
    it = live(hits=overflow_at(4, LOSS), features=wire.FULL_STATISTICS)
    it.training.emit(Event.CONNECTED)
    it.training.emit(Event.GRAPH)
    it.training.come_back(4)
    it.told.wait(Event.STOPPED)
    it.session.add_recommended()
    assert it.session.run(1) == ()
    known = it.session.known([(0, 4)])
    assert known is not None
    assert known.hits.findings == 1
    assert it.session.run(1) == (0,)
    assert lost(it) == []


def test_a_step_of_which_nothing_is_left_is_not_called_clean(live: Make) -> None:
    it = live(values=lambda _step: {WEIGHT: ones(0)[WEIGHT]})
    it.training.emit(Event.CONNECTED)
    it.training.emit(Event.GRAPH)
    it.training.come_back(4)
    it.told.wait(Event.STOPPED)
    it.session.add_recommended()
    assert it.session.run(1) == (0,)
    assert lost(it) == ["rank 0: steps of which it kept no values (1, first step 4)"]
    assert it.session.known([(0, 4)]) is None


def test_before_the_first_step_there_is_nothing_that_could_not_be_judged(live: Make) -> None:
    """A training that came stands there by itself: no operator has run of which it could have kept a value."""
    it = live(
        values=lambda step: ones(step) if step > START else {WEIGHT: ones(0)[WEIGHT]}, features=wire.RUNS_TO_NODES
    )
    it.training.emit(Event.CONNECTED)
    it.training.emit(Event.GRAPH)
    it.training.come_back(START)
    it.told.wait(Event.STOPPED)
    it.session.add_recommended()
    it.session.run_to_node(0, it.session.nodes(0).find(RELU))
    stop = it.told.wait(Event.STOPPED, 2)
    assert (stop.step, stop.ended) == (0, START)
    assert lost(it) == []


def test_inside_a_step_only_what_ran_was_looked_at(live: Make) -> None:
    it = live(features=wire.RUNS_TO_NODES)
    it.arrive()
    it.session.watchpoints.add("tensor_overflow", selection=NodeSelection((NodeSelector(NodeKind.CATEGORY, "tensor"),)))
    looked_at = []
    for node in (MATMUL, RELU):
        it.session.run_to_node(0, it.session.nodes(0).find(node))
        result = it.told.wait(Event.STOPPED, 2 + len(looked_at)).result
        assert result is not None
        looked_at.append(result.coverage.checked)
    assert looked_at == [1, 2], "parameters are looked at when the step ends"


def test_hits_on_unknown_nodes_are_not_called_clean(live: Make) -> None:
    it = live(hits=overflow_at(1, "what/is/this"))
    it.arrive()
    it.session.add_recommended()
    it.run(3)
    what = "steps with hits on nodes that are not in the graph: where it began is not known"
    assert lost(it) == [f"rank 0: {what} (1, first what/is/this at step 1)"]


@pytest.mark.parametrize(
    ("beside", "said", "origins"),
    [
        ((), (), 1),
        (("what/is/this",), (), 0),
        ((), (Unrecorded(f"{wire.UNSENT_NODES} 20 times", 3, "a", 1),), 0),
        ((), (Unrecorded(f"{wire.UNSENT_NODES} 20 times", 3, "a", 2),), 1),  # a step later
    ],
)
def test_what_a_node_was_made_from_is_known_only_while_the_graph_is_that_of_the_step(
    live: Make, beside: tuple[str, ...], said: tuple[Unrecorded, ...], origins: int
) -> None:
    it = live(hits=overflow_at(1, LOSS, *beside), features=wire.FULL_STATISTICS)
    it.arrive()
    it.session.add_recommended()
    it.training.unrecorded = said
    it.run(None)
    known = it.session.known([(0, 1)])
    assert known is not None
    assert [hit.origin for hit in known.hits].count(True) == origins


def test_hits_of_a_step_that_come_one_by_one_are_one_result(live: Make) -> None:
    it = live()
    it.arrive()
    it.session.add_recommended()
    it.run(1)
    it.training.phase = Phase.RUNNING
    it.training.emit(Event.RUNNING)
    number = next(each.id for each in it.training.watchpoints if each.condition == 13)
    for node in (MATMUL, RELU, LOSS):
        it.training.stop = TrainingStop(9, 1, node)
        it.training.hits = (ReceivedHit(node, 0, number, 13, ()),)
        it.training.emit(Event.HITS)
    it.training.finish()
    it.told.wait(Event.DONE)
    known = it.session.known([(0, 1)])
    assert known is not None
    assert [hit.key.node for hit in known.hits] == [MATMUL, RELU, LOSS]
    assert it.session.ended() == {0: 0}, "a step that it only began does not count"


def test_reports_that_come_faster_than_they_are_taken_in_wait_and_are_none_lost(
    live: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_events, "_MOST", 2)
    it = live(hits=lambda step, watched: overflow_at(step, LOSS)(step, watched), end=50)
    it.arrive()
    it.session.add_recommended()
    it.session.run(None, stop_on_hit=False)
    it.told.wait(Event.DONE)
    known = it.session.known([(0, step) for step in range(50)])
    assert known is not None
    assert known.hits.findings == 50
    assert it.session.silent() == []
    assert lost(it) == []
