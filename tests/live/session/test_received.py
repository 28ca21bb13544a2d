"""What a client says of a tensor is shown, and nothing else."""

from __future__ import annotations

import pytest

from tests.live.session.doubles import LOSS, MATMUL, NET, RELU, WEIGHT, graph
from tui_debugger.check.hits import HitList
from tui_debugger.check.received import ReceivedHits, received_hits, result_of
from tui_debugger.live.client.messages import GraphBuilder
from tui_debugger.live.graph import LiveRankGraph
from tui_debugger.live.wire import ReceivedHit
from tui_debugger.model import ErrorBits, ParamResult, TensorMeta, TensorStats, Verdict, Watchpoint
from tui_debugger.text.rows import hit_row
from tui_debugger.watch.condition_table import validate

GRAPH = LiveRankGraph([NET])
TO = Watchpoint(3, "tensor_overflow")
TL = Watchpoint(5, "tensor_too_large", validate("tensor_too_large", {"max_gt": 1.0, "mean_gt": 2.0}))
WNC = Watchpoint(6, "weight_not_changed", validate("weight_not_changed", {}))


def said(node: str, watchpoint: Watchpoint, *params: ParamResult, error: int = 0, slot: int = 0) -> ReceivedHit:
    return ReceivedHit(node, slot, watchpoint.id, 0, params, error)


def received(*hits: ReceivedHit, step: int = 4) -> tuple[ReceivedHits, list[str]]:
    notices: list[str] = []
    return received_hits((2, step), GRAPH, (TO, TL, WNC), hits, notices.append), notices


def test_hits_are_in_the_order_in_which_they_came_parameters_last_with_all_that_was_said_of_a_tensor() -> None:
    actual = ParamResult("max_gt", 1.0, hit=True, actual=7.5)
    hits, notices = received(said(LOSS, TO), said(WEIGHT, WNC), said(MATMUL, TL, actual), said(LOSS, TL, actual))
    assert [hit.key.node for hit in HitList([hits])] == [LOSS, MATMUL, WEIGHT]
    loss = hits.get(0)
    assert [result.watchpoint for result in loss.results] == [3, 5]
    assert loss.results[1].params == (actual,)
    assert (loss.key.rank, loss.key.step, loss.stats) == (2, 4, None)
    assert notices == []


def test_of_a_client_that_reports_in_no_order_a_node_stands_after_what_it_was_made_from() -> None:
    hits = [said(WEIGHT, WNC), said(LOSS, TO), said(RELU, TO), said(MATMUL, TO), said("x", TO)]
    found = received_hits((0, 4), GRAPH, (TO, TL, WNC), hits, print, by_client=False)
    assert [hit.key.node for hit in HitList([found])] == ["x", MATMUL, RELU, LOSS, WEIGHT]


def test_of_two_independent_nodes_the_first_one_reported_stands_first() -> None:
    independent = LiveRankGraph(
        [graph([(f"Default/{name}", "Log", ["x"], (2, 3)) for name in ("A-op1", "B-op2")], ["x"])]
    )
    hits = [said("Default/B-op2", TO), said("Default/A-op1", TO)]
    for by_client in (True, False):
        found = received_hits((0, 4), independent, (TO,), hits, print, by_client=by_client)
        assert [hit.key.node for hit in HitList([found])] == ["Default/B-op2", "Default/A-op1"]


def test_inputs_of_the_model_stand_where_our_client_reports_them_and_slots_ascend() -> None:
    two = ("float32", (2, 3))
    made = GraphBuilder()
    made.add_parameter("inputs.x", two)
    made.add_node("net/Split", "Split", ["inputs.x"], [two, two])
    hits = [said("inputs.x", TO), said("net/Split", TO, slot=1), said("net/Split", TO)]
    found = received_hits((0, 4), LiveRankGraph([made.serialize()]), (TO,), hits, print)
    assert [(hit.key.node, hit.key.slot) for hit in HitList([found])] == [
        ("inputs.x", 0),
        ("net/Split", 0),
        ("net/Split", 1),
    ]


def test_a_client_that_sends_statistics_has_them_shown() -> None:
    stats = TensorStats(6, 1, 0, 0, 0, 0, 5, 1.0, 2.0, 1.5, 1.5, 0.1, 9.0)
    hit = ReceivedHit(LOSS, 0, TO.id, 13, (), 0, TensorMeta("float32", (2, 3), 24), stats)
    hits, _ = received(hit)
    assert hits.get(0).stats == stats
    assert hit_row(hits.get(0))["stats"]["nan"] == 1


@pytest.mark.parametrize("name", [f"kernel_graph_0/{WEIGHT}", WEIGHT, f"Default/net/{WEIGHT}"])
def test_a_parameter_is_known_with_and_without_what_is_in_front_of_its_name(name: str) -> None:
    hits, _ = received(said(name, WNC))
    assert hits.get(0).key.node == WEIGHT


def test_unknown_nodes_and_watchpoints_are_dropped_with_one_notice_each() -> None:
    stranger = Watchpoint(99, "tensor_overflow")
    hits, notices = received(said("*", TO), said("gone", TO), said(LOSS, stranger), said(RELU, TO, slot=-1))
    assert len(hits) == 0
    assert len(notices) == 2


@pytest.mark.parametrize(
    ("error", "step", "verdict"),
    [
        (0, 4, Verdict.FINDING),
        (int(ErrorBits.NAN), 4, Verdict.BLOCKED),
        (int(ErrorBits.INF | ErrorBits.NO_PREVIOUS), 0, Verdict.BLOCKED),
        (int(ErrorBits.NAN | ErrorBits.SHAPE_CHANGED), 4, Verdict.FINDING),
        (int(ErrorBits.NO_PREVIOUS), 0, Verdict.NOT_COMPARABLE),
        (int(ErrorBits.NO_PREVIOUS), 4, Verdict.CANNOT_JUDGE),
        (int(ErrorBits.OUT_OF_MEMORY), 4, Verdict.CANNOT_JUDGE),
        (int(ErrorBits.NO_VALUE), 0, Verdict.CANNOT_JUDGE),
        (1 << 30, 4, Verdict.FINDING),
    ],
)
def test_an_error_means_what_it_means_in_a_dump(error: int, step: int, verdict: Verdict) -> None:
    assert result_of(said(LOSS, TL, error=error), TL, first=step <= 0).verdict is verdict


def test_with_an_error_there_are_no_actual_values() -> None:
    result = result_of(said(LOSS, TL, ParamResult("max_gt", 1.0, True, 0.0), error=1), TL)
    assert [(param.hit, param.actual) for param in result.params] == [(False, None)]


def test_parameters_that_decide_nothing_have_no_actual_value() -> None:
    result = result_of(said(WEIGHT, WNC, ParamResult("rtol", 1e-5, False, 0.0)), WNC)
    assert result.params == (ParamResult("rtol", 1e-5, False, None),)
