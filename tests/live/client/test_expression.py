"""Conditions of one's own in a training that runs: sent as text, judged there, with what their names stood for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.live.client.processes import training
from tests.live.conftest import Happened
from tests.live.session.doubles import NET
from tests.live.session.test_watching import GPU, watch
from tui_debugger.check.received import GivenWatchpoints, judgement_of, result_of
from tui_debugger.check.types import CheckResult
from tui_debugger.check.verdicts import Outcome, judge
from tui_debugger.live import wire
from tui_debugger.live.client.judging import ClientJudge, StepMemory, as_watchpoint, watched
from tui_debugger.live.client.messages import hit_messages, watchpoint_of
from tui_debugger.live.client.probe import ClientHit, Identity
from tui_debugger.live.client.recorded import CopyBudget, Recordings, measure
from tui_debugger.live.graph import LiveRankGraph, remote_watchpoints
from tui_debugger.live.server import Server
from tui_debugger.live.server.answers import hit_of
from tui_debugger.live.server.conversation import _watch
from tui_debugger.live.wire import Event, RemoteWatchpoint, TrainingStop
from tui_debugger.model import ErrorBits, Verdict, Watchpoint, WatchResult
from tui_debugger.stats.records import RequiredStats
from tui_debugger.watch import condition_table
from tui_debugger.watch.condition_table import CONDITIONS

OURS = wire.TrainingInfo(1, 0, None, "", "0", "CPU", "NumPy (tdbg 1)", wire.OWN_CONDITIONS)


def expression(text: str, number: int = 1) -> Watchpoint:
    return Watchpoint(number, "expression", watch("expression", expression=text).params)


def memory_at(step: int) -> StepMemory:
    memory = StepMemory(rank=0)
    memory.step = step
    return memory


def test_it_arrives_as_it_was_written_with_the_categories_that_it_asks_for() -> None:
    graph = LiveRankGraph([NET])
    everything = np.ones(len(graph.nodes), np.bool_)
    made = expression("norm > 10*prev.norm or category == 'weight'")
    (remote,) = remote_watchpoints([(made, everything)], graph.nodes, OURS)
    command = wire.message("SetCMD")()
    _watch(command, remote, False)
    arrived = watchpoint_of(wire.message("SetCMD").FromString(command.SerializeToString()))
    assert as_watchpoint(arrived) == made
    assert arrived.categories == {name: int(graph.nodes.category[graph.nodes.find(name)]) for name, *_ in remote.nodes}
    judging = watched([arrived], graph.nodes.names)
    judging.memory = memory_at(0)
    found = {name for name, *_ in remote.nodes if judging.results(name, measure(np.ones(3), RequiredStats()))}
    assert found == {name for name, *_ in remote.nodes if graph.nodes.category_of(graph.nodes.find(name)) == 1} != set()


def test_what_its_names_stood_for_comes_back() -> None:
    made = expression("max > 6*std and dtype == 'float64' or prev.max > 1")
    judging = ClientJudge([(made, ["x"])])
    judging.memory = memory_at(0)
    (result,) = judging.results("x", measure(np.array([0.0, 0.0, 8.0] + [0.0] * 60), RequiredStats()))
    remote = RemoteWatchpoint(1, 1000, (("expression", made.params[0][1], False),), (("x", "", ""),))
    (message,) = hit_messages([ClientHit("x", 0, result)], {1: remote})
    received = hit_of(wire.message("WatchpointHit").FromString(message.SerializeToString()))
    assert received is not None
    assert result_of(received, made) == result
    assert dict(result.params[0].quantities)["prev.max"] is None


def test_it_is_not_sent_to_those_who_do_not_know_it_and_that_is_not_clean() -> None:
    graph = LiveRankGraph([NET])
    everything = np.ones(len(graph.nodes), np.bool_)
    both = (expression("max > 1"), Watchpoint(2, "tensor_overflow"))
    assert [each.id for each in remote_watchpoints([(each, everything) for each in both], graph.nodes, GPU)] == [2]
    given = GivenWatchpoints(1, both, (everything, everything), graph, GPU)
    found = judgement_of(0, TrainingStop(4, 3), given, (), pytest.fail)
    result = CheckResult(((0, 3),), found.result().hits, found.coverage, both, 1)
    judgement = judge(result)
    assert judgement.outcome is Outcome.CANNOT_JUDGE
    assert any("MindSpore 2.0.0 does not know this condition" in doubt.text for doubt in judgement.doubts)


NEXT_BIT = 2 * max(condition.feature for condition in CONDITIONS.values())
NEXT_NUMBER = 1 + max(condition.wire for condition in CONDITIONS.values())


@pytest.mark.parametrize("features", [0, wire.FULL_STATISTICS | wire.OWN_CONDITIONS])
def test_another_condition_of_ours_needs_no_more_than_its_row(monkeypatch: pytest.MonkeyPatch, features: int) -> None:
    new = replace(CONDITIONS["expression"], id="constant", abbr="CO", wire=NEXT_NUMBER, params=(), feature=NEXT_BIT)
    assert isinstance(CONDITIONS, dict)
    monkeypatch.setitem(CONDITIONS, "constant", new)
    monkeypatch.setattr(condition_table, "_BY_ABBR", condition_table._BY_ABBR | {"CO": new})
    graph = LiveRankGraph([NET])
    everything = np.ones(len(graph.nodes), np.bool_)
    both = (Watchpoint(1, "constant"), Watchpoint(2, "tensor_overflow"))
    masked = [(each, everything) for each in both]
    for told, sent in ((features, [2]), (features | NEXT_BIT, [1, 2])):
        info = replace(OURS, features=told)
        assert [each.id for each in remote_watchpoints(masked, graph.nodes, info)] == sent
        given = GivenWatchpoints(1, both, (everything, everything), graph, info)
        found = judgement_of(0, TrainingStop(4, 3), given, (), pytest.fail)
        judgement = judge(CheckResult(((0, 3),), found.result().hits, found.coverage, both, 1))
        assert judgement.outcome is (Outcome.CLEAN if sent == [1, 2] else Outcome.CANNOT_JUDGE)
        doubts = [doubt.text for doubt in judgement.doubts]
        assert any("NumPy (tdbg 1) does not know this condition" in text for text in doubts) is (sent == [2])


@pytest.mark.parametrize("text", ["norm > 10*prev.norm", "norm > 1"])
def test_a_silent_first_step_has_judged_no_comparison_with_the_step_before(text: str) -> None:
    graph = LiveRankGraph([NET])
    made = (expression(text),)
    given = GivenWatchpoints(1, made, (np.ones(len(graph.nodes), np.bool_),), graph, OURS)
    outcome = {}
    for step in (0, 1):
        found = judgement_of(0, TrainingStop(step + 1, step), given, (), pytest.fail)
        assert (found.coverage.not_comparable > 0) is (found.coverage.checked == 0) is ("prev" in text and step == 0)
        outcome[step] = judge(CheckResult(((0, step),), found.result().hits, found.coverage, made, 1)).outcome
    assert outcome == {0: Outcome.CANNOT_JUDGE if "prev" in text else Outcome.CLEAN, 1: Outcome.CLEAN}


def test_a_training_that_just_got_an_expression_has_nothing_to_compare_with() -> None:
    graph = LiveRankGraph([NET])
    given = GivenWatchpoints(
        1, (expression("norm > 10*prev.norm"),), (np.ones(len(graph.nodes), np.bool_),), graph, OURS
    )
    for remembered in (False, True):
        found = judgement_of(0, TrainingStop(8, 7), given, (), pytest.fail, remembered=remembered)
        assert (found.coverage.checked > 0) is remembered


def outcomes(memory: StepMemory | None, text: str, *sizes: float | None) -> list[str]:
    """What is said of one tensor step by step; None: it is not there."""
    judging = ClientJudge([(expression(text), ["x"])])
    judging.memory, said = memory, []
    for size in sizes:
        results: list[WatchResult] = []
        if size is not None:
            record = measure(np.array([size, 0.0]), RequiredStats())
            results = judging.results("x", record)
            assert results == judging.results("x", record)  # asked again in the same step
        said.append(results[0].verdict.name if results else "-")
        if memory is not None:
            memory.next_step()
            memory.step += 1
    return said


def test_the_step_before_is_remembered() -> None:
    text = "norm > 10*prev.norm"
    assert outcomes(memory_at(0), text, 1, 2, 30, 30) == ["-", "-", "FINDING", "-"]
    assert outcomes(memory_at(0), text, 1, None, 30, 30) == ["-", "-", "CANNOT_JUDGE", "-"]
    assert outcomes(None, text, 1, 30) == ["CANNOT_JUDGE", "CANNOT_JUDGE"]


def test_the_number_of_the_step_is_known() -> None:
    assert outcomes(memory_at(5), "step == 6 and rank == 0", 1, 1, 1) == ["-", "FINDING", "-"]
    assert outcomes(None, "step == 6", 1) == ["CANNOT_JUDGE"]


def test_of_two_lists_the_second_one_knows_what_the_first_one_saw() -> None:
    recordings = Recordings(Identity("test"), CopyBudget(1 << 20), keeping=True)
    recordings.add("a", "activation", np.ones(2))
    for number in (1, 2):
        remote = RemoteWatchpoint(number, 1000, (("expression", "max > 3*prev.max", False),), (("a", "", ""),))
        recordings.watch([remote])
        recordings.evaluate(recheck=False, initial=False)
        recordings.next_step()
        recordings.add("a", "activation", np.full(2, 5.0 * number))
    (hit,) = recordings.evaluate(recheck=False, initial=False) or (None,)
    assert hit is None  # 10 after 5
    recordings.next_step()
    recordings.add("a", "activation", np.full(2, 50.0))
    (found,) = recordings.evaluate(recheck=False, initial=False)
    assert found.result.verdict is Verdict.FINDING
    assert found.result.error is ErrorBits.NONE


def test_a_training_stops_where_it_holds(server: Server, happened: Happened) -> None:
    with training(server.address, "--rate", "0.01", "--steps", "20") as process:
        found = happened.training(Event.STOPPED)
        assert found.info.features & wire.OWN_CONDITIONS
        graph = LiveRankGraph(list(found.graphs))
        everything = np.ones(len(graph.nodes), np.bool_)
        made = expression("step == 3 and prev.max > -1e30 and name == 'loss'")
        found.set_watchpoints(remote_watchpoints([(made, everything)], graph.nodes, found.info))
        found.run(None)
        happened.wait(Event.STOPPED, 2)
        assert found.stop is not None
        assert found.stop.step == 3
        (hit,) = found.hits
        (param,) = result_of(hit, made).params
        assert hit.node == "loss"
        assert dict(param.quantities)["step"] == 3
        assert isinstance(dict(param.quantities)["prev.max"], float)
        found.terminate()
        happened.wait(Event.DONE)
        process.until("terminated")
        assert process.finish()[0] == 0
