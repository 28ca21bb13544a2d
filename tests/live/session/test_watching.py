"""Watchpoints as they are sent: what the real client of MindSpore 2.0.0 was sent and hit on is the measure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.live.recordings import recorded_graph, recording
from tests.live.session.doubles import LOSS, MATMUL, NET, RELU, UPDATE, WEIGHT
from tui_debugger.graph.search import select
from tui_debugger.live.graph import LiveRankGraph, remote_watchpoints, wire_params
from tui_debugger.live.wire import TrainingInfo
from tui_debugger.model import NodeKind, NodeSelection, NodeSelector, Watchpoint
from tui_debugger.watch.condition_table import CONDITIONS, IN_A_ROW, validate

GPU = TrainingInfo(1, 0, None, "", "0", "GPU", "MindSpore 2.0.0")
ASCEND = TrainingInfo(1, 0, None, "", "0", "Ascend", "MindSpore 2.0.0")


def watch(condition: str, **params: float | str) -> Watchpoint:
    return Watchpoint(1, condition, validate(condition, params))


def sent(session: str) -> Iterator[Any]:
    """The watchpoints that a server of MindInsight's kind sent in a recorded session."""
    for call in recording(session):
        if call.name == "WaitCMD" and call.command.HasField("set_cmd") and not call.command.set_cmd.delete:
            yield call.command.set_cmd


@pytest.mark.parametrize("session", ["mlp", "nan"])
def test_nodes_and_parameters_are_written_as_the_real_client_understood_them(session: str) -> None:
    graph = LiveRankGraph([recorded_graph(session)])
    for command in sent(session):
        condition = next(each for each in CONDITIONS.values() if each.wire == command.watch_condition.condition)
        given = {p.name.decode(): p.value for p in command.watch_condition.params if not p.disabled}
        names = [node.node_name.decode() for node in command.watch_nodes]
        clauses = tuple(NodeSelector(NodeKind.NODE, name) for name in names)
        made = Watchpoint(command.id, condition.id, validate(condition.id, given), NodeSelection(clauses))
        (remote,) = remote_watchpoints([(made, select(graph.nodes, made.selection))], graph.nodes, GPU)
        assert (remote.id, remote.condition) == (command.id, command.watch_condition.condition)
        known = {node.node_name.decode() for node in command.watch_nodes} & set(graph.nodes.names)
        expected = {
            (node.node_name.decode(), node.node_type.decode(), node.graph_name.decode())
            for node in command.watch_nodes
            if node.node_name.decode() in known
        }
        assert set(remote.nodes) == expected
        order = [p.name.decode() for p in command.watch_condition.params]
        assert [name for name, _, _ in remote.params] == order
        assert {name: value for name, value, disabled in remote.params if not disabled}.items() >= given.items()


@pytest.mark.parametrize("condition", CONDITIONS)
def test_every_parameter_of_a_condition_is_sent_in_its_place(condition: str) -> None:
    """Clients read some by position: those that are not set are sent as disabled."""
    specs = CONDITIONS[condition].params
    wanted = {
        "weight_too_large": {"mean_gt": 3.0},
        "tensor_range": {"max_min_gt": 2.0},
        "tensor_too_small": {"max_lt": 1.0},
        "expression": {"expression": "max > 1"},
    }
    visible = next((spec for spec in specs if spec.check and spec.visible and not spec.needs), None)
    given = wanted.get(condition, {visible.name: 1.0} if visible is not None else {})
    params = wire_params(watch(condition, **given))
    assert [name for name, _, _ in params] == [spec.name for spec in specs if spec.name != IN_A_ROW]
    enabled = {name for name, _, disabled in params if not disabled}
    assert enabled == set(given) | {spec.name for spec in specs if spec.required}


def test_only_our_own_client_is_told_of_steps_in_a_row() -> None:
    watchpoint = watch("weight_not_changed", rtol=0.0, in_a_row=3.0)
    assert wire_params(watchpoint, ours=True)[-1] == (IN_A_ROW, 3.0, False)
    assert IN_A_ROW not in {name for name, _, _ in wire_params(watchpoint)}
    assert IN_A_ROW not in {name for name, _, _ in wire_params(watch("weight_not_changed", rtol=0.0), ours=True)}


def test_hidden_parameters_are_sent_with_their_defaults() -> None:
    assert wire_params(watch("weight_not_changed", rtol=0.5)) == (
        ("rtol", 0.5, False),
        ("atol", 1e-8, False),
        ("equal_nan", 0.0, False),
    )


def test_scopes_are_sent_as_their_nodes_and_a_star_is_never_sent() -> None:
    nodes = LiveRankGraph([NET]).nodes
    scope = watch("tensor_overflow")
    below = select(nodes, NodeSelection((NodeSelector(NodeKind.SCOPE, "Default/net"),)))
    (remote,) = remote_watchpoints([(scope, below)], nodes, GPU)
    operators = {each for each in remote.nodes if each[1] != "Parameter"}
    assert operators == {(MATMUL, "MatMul", "kernel_graph_0"), (RELU, "ReLU", "kernel_graph_0")}
    (everything,) = remote_watchpoints([(scope, np.ones(len(nodes), np.bool_))], nodes, GPU)
    assert {name for name, _, _ in everything.nodes} == {MATMUL, RELU, LOSS, UPDATE, WEIGHT, "x"}
    assert (WEIGHT, "Parameter", "kernel_graph_0") in everything.nodes


def test_a_watchpoint_without_nodes_is_not_sent() -> None:
    nodes = LiveRankGraph([NET]).nodes
    assert remote_watchpoints([(watch("tensor_overflow"), np.zeros(len(nodes), np.bool_))], nodes, GPU) == []


def test_what_the_device_records_is_asked_of_ascend_only() -> None:
    nodes = LiveRankGraph([NET]).nodes
    pair = (watch("operator_overflow"), np.ones(len(nodes), np.bool_))
    assert remote_watchpoints([pair], nodes, GPU) == []
    assert len(remote_watchpoints([pair], nodes, ASCEND)) == 1
