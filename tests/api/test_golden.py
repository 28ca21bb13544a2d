"""Every answer that MindInsight 2.0.0 recorded on four real dumps, asked again through the same classes.

Two of the dumps have two root graphs.

One difference is deliberate and listed in ``tests.old_tool``: a tensor that went from -Inf to finite counts as changed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from tests.api.analyzers import Id, node_id, tensor_id
from tests.old_tool import DUMPS, SEVERAL_GRAPHS, WRONG
from tui_debugger import (
    ConditionBase,
    DumpAnalyzer,
    Node,
    OperatorOverflowCondition,
    TensorAllZeroCondition,
    TensorChangeAboveThresholdCondition,
    TensorChangeBelowThresholdCondition,
    TensorOverflowCondition,
    TensorRangeCondition,
    TensorTooLargeCondition,
    TensorTooSmallCondition,
    TensorUnchangedCondition,
    Watchpoint,
    WatchpointHit,
)

pytestmark = pytest.mark.usefixtures("measured_by")

Golden = Callable[[str], dict[str, Any]]
Analyzers = Callable[[str], DumpAnalyzer]

CONDITIONS: Mapping[str, Callable[..., ConditionBase]] = {
    "all_zero": TensorAllZeroCondition,
    "change_above": TensorChangeAboveThresholdCondition,
    "change_below": TensorChangeBelowThresholdCondition,
    "operator_overflow": OperatorOverflowCondition,
    "overflow": TensorOverflowCondition,
    "range": TensorRangeCondition,
    "too_large": TensorTooLargeCondition,
    "too_small": TensorTooSmallCondition,
    "unchanged": TensorUnchangedCondition,
}
NO_VALUE = "+enov"
"""Ends the keys of answers that were asked for with ``error_on_no_value``."""
OLD_TYPES = {1: "bool", 4: "int32", 5: "int64", 10: "float16", 11: "float32", 12: "float64"}
"""The numbers that the old statistics name element types by, as far as these dumps have them."""


@pytest.fixture(params=DUMPS + SEVERAL_GRAPHS)
def dump(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def answers(dump: str, golden: Golden) -> dict[str, Any]:
    return golden(dump)


@pytest.fixture
def run(dump: str, analyzer: Analyzers) -> DumpAnalyzer:
    return analyzer(dump)


@pytest.fixture
def by_id(run: DumpAnalyzer) -> dict[tuple[Any, ...], Node]:
    return {tuple(node_id(node)): node for node in run.select_nodes("")}


def test_every_kind_of_answer_is_compared(answers: dict[str, Any]) -> None:
    assert set(answers) - {"about"} == {
        *("run", "hits", "values", "select", "neighbours", "affected", "io_tensors", "statistics")
    }


def test_ranks_and_iterations(run: DumpAnalyzer, answers: dict[str, Any]) -> None:
    assert run.get_ranks() == answers["run"]["ranks"]
    assert run.get_iterations() == answers["run"]["iterations"]
    per_rank = {str(rank): run.get_iterations(rank) for rank in run.get_ranks()}
    assert per_rank == answers["run"]["iterations_per_rank"]


def test_selected_nodes_and_tensors_come_in_the_same_order(run: DumpAnalyzer, answers: dict[str, Any]) -> None:
    assert len(answers["select"]) == 12
    for asked, found in answers["select"].items():
        query, options = json.loads(asked)
        assert [node_id(node) for node in run.select_nodes(query, **options)] == found["nodes"], asked
        tensors = run.select_tensors(query, iterations=[0], **options)
        assert [tensor_id(tensor) for tensor in tensors] == found["tensors"], asked


def test_nodes_have_the_same_neighbours_stacks_and_slots(
    run: DumpAnalyzer, answers: dict[str, Any], by_id: dict[tuple[Any, ...], Node]
) -> None:
    assert len(by_id) == len(answers["neighbours"])
    for old in answers["neighbours"]:
        node = by_id[tuple(old["id"])]
        assert [node_id(each) for each in run.get_input_nodes(node)] == old["inputs"], node
        assert [node_id(each) for each in run.get_output_nodes(node)] == old["outputs"], node
        assert [str(entry) for entry in node.stack] == old["stack"], node
        assert node.root_graph_id == old["root_graph_id"]
        first = node.get_output_tensors()[0].iteration  # not every graph ran at step 0
        assert len(node.get_output_tensors(iterations=first)) == old["slots"], node


def test_nodes_have_the_same_input_and_output_tensors(
    answers: dict[str, Any], by_id: dict[tuple[Any, ...], Node]
) -> None:
    for old in answers["io_tensors"]:
        node = by_id[tuple(old["id"])]
        assert [tensor_id(each) for each in node.get_input_tensors(iterations=[0])] == old["inputs"], node
        assert [tensor_id(each) for each in node.get_output_tensors(iterations=[0])] == old["outputs"], node


def test_tensors_affect_the_same_nodes(
    run: DumpAnalyzer, answers: dict[str, Any], by_id: dict[tuple[Any, ...], Node]
) -> None:
    for key, affected in answers["affected"].items():
        *node, slot, step = json.loads(key)
        (tensor,) = by_id[tuple(node)].get_output_tensors(iterations=step, slots=[slot])
        assert [node_id(each) for each in run.list_affected_nodes(tensor)] == affected, key


def test_values_are_the_same_bytes(run: DumpAnalyzer, answers: dict[str, Any]) -> None:
    tensors = run.select_tensors("")
    assert len(tensors) == len(answers["values"])
    for tensor, old in zip(tensors, answers["values"], strict=True):
        assert tensor_id(tensor) == old["id"]
        values = tensor.value()
        assert (values is None) == old["none"], tensor
        assert (tensor.shape is None) == old["none"], tensor
        if values is not None:
            assert (values.dtype.name, list(values.shape), values.nbytes) == (old["dtype"], old["shape"], old["nbytes"])
            assert hashlib.sha1(values.tobytes(), usedforsecurity=False).hexdigest() == old["sha1"], tensor
            assert (tensor.dtype, tensor.shape) == (values.dtype.name, values.shape), tensor


def test_statistics_agree(dump: str, answers: dict[str, Any], by_id: dict[tuple[Any, ...], Node]) -> None:
    assert (answers["statistics"] is None) == (dump in SEVERAL_GRAPHS)
    if dump in SEVERAL_GRAPHS:
        return
    recorded = {tuple(old["id"]): old for old in answers["statistics"]}
    assert len(recorded) > 400
    for (*node, slot, step), old in recorded.items():
        (tensor,) = by_id[tuple(node)].get_output_tensors(iterations=[step], slots=[slot])
        stats = tensor.statistics()
        assert stats is not None, tensor
        assert (stats.count, stats.nan, stats.zero) == (old["count"], old["nan_count"], old["zero_count"]), tensor
        assert (stats.neg_inf, stats.pos_inf) == (old["neg_inf_count"], old["pos_inf_count"]), tensor
        # The old names are misnomers: these count finite elements below and above zero.
        assert (stats.negative, stats.positive) == (old["neg_zero_count"], old["pos_zero_count"]), tensor
        assert (tensor.dtype, list(tensor.shape or ())) == (OLD_TYPES[old["dtype"]], old["shape"]), tensor
        if stats.mean is None:  # nothing finite: the old tool shows the limits of a double instead
            assert (old["max_value"], old["min_value"]) == (-np.finfo(np.float64).max, np.finfo(np.float64).max)
        else:
            assert (stats.maximum, stats.minimum) == (old["max_value"], old["min_value"]), tensor
            magnitude = max(abs(old["max_value"]), abs(old["min_value"]))
            assert math.isclose(stats.mean, old["avg_value"], rel_tol=1e-9, abs_tol=1e-14 * magnitude), tensor


def asked_again(run: DumpAnalyzer, key: str, threshold: Mapping[str, float]) -> list[WatchpointHit]:
    condition = next(make for word, make in CONDITIONS.items() if key.startswith(word))(**threshold)
    assert condition.param_dict == threshold
    return run.check_watchpoints([Watchpoint(run.select_tensors(""), condition)], key.endswith(NO_VALUE))


def test_hits_agree_in_tensors_codes_and_values(run: DumpAnalyzer, dump: str, answers: dict[str, Any]) -> None:
    assert {next(word for word in CONDITIONS if key.startswith(word)) for key in answers["hits"]} == set(CONDITIONS)
    for key, old in answers["hits"].items():
        found = asked_again(run, key, old["threshold"])
        ours = {tuple(tensor_id(hit.tensor)): hit for hit in found}
        theirs = {tuple(hit["id"]): hit for hit in old["hits"]}
        assert len(ours) == len(found)
        assert len(theirs) == old["n"]
        known = WRONG.get((dump, key.removesuffix(NO_VALUE)), set())
        wrong = {tuple(hit["id"]) for hit in old["hits"] if tuple(hit["id"][2:]) in known}
        assert len(wrong) == len(known)
        assert theirs.keys() - ours.keys() == wrong, key
        assert ours.keys() <= theirs.keys(), key
        for place, hit in ours.items():
            compare(hit, theirs[place])


def compare(hit: WatchpointHit, old: dict[str, Any]) -> None:
    assert hit.error_code == old["error_code"], hit
    detail = hit.get_hit_detail()
    if old["error_code"]:
        assert detail is None
        return
    assert detail is not None
    assert list(detail.param_dict) == list(old["params"]), hit
    stats = hit.record.stats
    magnitude = max(abs(stats.minimum or 0.0), abs(stats.maximum or 0.0)) if stats else 0.0
    for param in detail.params:
        value, was_hit, found = old["params"][param]
        assert (param.value, param.hit, param.disabled) == (value, was_hit, False), (hit, param)
        # Their running mean of values that cancel is off by some units in the last place of the largest.
        assert math.isclose(param.actual_value, found, rel_tol=1e-9, abs_tol=1e-15 * magnitude), (hit, param)


def test_hits_come_by_iteration_and_those_without_a_value_last(run: DumpAnalyzer, answers: dict[str, Any]) -> None:
    old = answers["hits"]["overflow" + NO_VALUE]
    hits = asked_again(run, "overflow" + NO_VALUE, old["threshold"])
    for step, rows in itertools.groupby(hits, key=lambda hit: hit.tensor.iteration):
        found = list(rows)
        codes = [hit.error_code for hit in found]
        assert codes == sorted(codes)
        theirs: list[Id] = [each["id"] for each in old["hits"] if each["error_code"] == 32 and each["id"][4] == step]
        assert [tensor_id(hit.tensor) for hit in found if hit.error_code == 32] == theirs
    steps = [hit.tensor.iteration for hit in hits]
    assert steps == sorted(steps)
