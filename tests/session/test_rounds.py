"""Runs in their own order: a graph that runs several times in a step, and graphs that share weights.

Expectations come from the arrays that a test made itself, in plain float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.session.opened import found, opened, watch
from tests.sources.memory import GRAPH, Key, MemorySource, Op, table_of
from tests.thorough import share
from tui_debugger.diagnose.compare import ComparedTensor, Comparer
from tui_debugger.diagnose.origin.path import trace
from tui_debugger.diagnose.relations import relations
from tui_debugger.diagnose.trend import trend
from tui_debugger.graph.table import GraphInfo
from tui_debugger.model import Category, GraphRun, Side, TensorKey, Verdict
from tui_debugger.session import Session

Array = npt.NDArray[np.float32]
Values = dict[int, dict[Key, Any]]

X, W, ACCUM, RATE = "x", "fc.weight", "accum.fc.weight", "rate"
MATMUL, ACT, GRAD, MOMENTUM = "net/MatMul-op1", "net/ReLU-op2", "grad/Mul-op3", "opt/ApplyMomentum-op4"


def training(graph: str = GRAPH) -> list[Op]:
    """A graph that trains one weight: parameters stand behind its operators, as in a dump."""
    return [
        Op(MATMUL, "MatMul", ((X, 0), (W, 0)), graph=graph),
        Op(ACT, "ReLU", ((MATMUL, 0),), Category.ACTIVATION, graph=graph),
        Op(GRAD, "Mul", ((ACT, 0), (MATMUL, 0)), Category.GRADIENT, graph=graph),
        Op(MOMENTUM, "ApplyMomentum", ((W, 0), (ACCUM, 0), (RATE, 0), (GRAD, 0)), graph=graph),
        Op(X, "Parameter", category=Category.PARAMETER, graph=graph),
        Op(W, "Parameter", category=Category.WEIGHT, graph=graph),
        Op(ACCUM, "Parameter", category=Category.OPTIMIZER_STATE, graph=graph),
        Op(RATE, "Parameter", category=Category.PARAMETER, graph=graph),
    ]


RUNS = ((0, 0), (1, 1), (1, 2), (1, 3), (2, 1), (2, 2))
"""(step, round)."""
SECOND = 1_000_000


def written(runs: tuple[tuple[int, int], ...] = RUNS, seed: int = 1) -> dict[tuple[int, int], dict[Key, Array]]:
    """What each run wrote: every value is another one, every input file holds what was written before."""
    rng = np.random.default_rng(seed)
    weight, accum = (rng.normal(size=(4, 4)).astype(np.float32) for _ in range(2))
    found = {}
    for step, number in runs:
        x, rate = rng.normal(size=(4, 4)).astype(np.float32), np.array([0.1], np.float32)
        matmul, act, grad = (rng.normal(size=(4, 4)).astype(np.float32) for _ in range(3))
        update = rng.normal(size=(4, 4)).astype(np.float32)
        inputs = {MATMUL: (x, weight), ACT: (matmul,), GRAD: (act, matmul)}
        after = weight + update, accum * np.float32(0.5)
        of: dict[Key, Array] = {
            (node, Side.INPUT, slot, number): v for node, s in inputs.items() for slot, v in enumerate(s)
        }
        of |= {(MOMENTUM, Side.INPUT, slot, number): v for slot, v in enumerate((*after, rate, grad))}
        outputs = {
            MATMUL: matmul,
            ACT: act,
            GRAD: grad,
            MOMENTUM: update,
            X: x,
            RATE: rate,
            W: after[0],
            ACCUM: after[1],
        }
        found[step, number] = of | {(node, Side.OUTPUT, 0, number): v for node, v in outputs.items()}
        weight, accum = after
    return found


def by_step(of_run: dict[tuple[int, int], dict[Key, Array]]) -> Values:
    steps: Values = {}
    for (step, _), values in of_run.items():
        steps.setdefault(step, {}).update(values)
    return steps


def history(runs: tuple[tuple[int, int], ...], *, timed: bool) -> tuple[GraphRun, ...]:
    return tuple(
        GraphRun(step, 0, GRAPH, True, number, (place + 1) * SECOND if timed else 0)
        for place, (step, number) in enumerate(runs)
    )


def session_of(of_run: dict[tuple[int, int], dict[Key, Array]], *, timed: bool, watches: tuple[str, ...]) -> Session:
    source = MemorySource({0: by_step(of_run)}, ops=training(), history=history(tuple(of_run), timed=timed))
    session = Session(source)
    watch(session, *watches)
    return session


# -- several runs of a step ------------------------------------------------------------------------


@pytest.mark.parametrize("timed", [True, False])
def test_one_bad_value_is_found_in_whatever_round_it_was_written(timed: bool) -> None:
    runs = RUNS if timed else RUNS[2:3]
    for number, run in enumerate(runs):
        values = written()[run]
        for key in share(list(values), 4 if timed else 1, number):  # every day each place in some of the runs
            of_run = written()
            of_run[run][key] = np.where(
                np.arange(values[key].size).reshape(values[key].shape) == 0, np.nan, values[key]
            )
            with closing(session_of(of_run, timed=timed, watches=("TO",))) as session:
                result = session.check(session.pairs())
                assert {bad(hit.key) for hit in result.hits} == {(run[0], *key)}
                report = session.find_origin(session.pairs())
                assert report.searches
                assert {bad(hit.key) for searched in report.searches for hit in searched.result.hits} == {
                    (run[0], *key)
                }
                if key[1] is Side.OUTPUT:
                    assert [bad(origin.hit.key) for origin in report.origins] == [(run[0], *key)]


def bad(key: TensorKey) -> tuple[int, str, Side, int, int]:
    return key.step, key.node, key.side, key.slot, key.round


@pytest.mark.parametrize("timed", [True, False])
def test_changes_are_those_since_the_run_before_in_plain_arithmetic(timed: bool) -> None:
    of_run = written()
    of_run[1, 2][W, Side.OUTPUT, 0, 2] = of_run[1, 1][W, Side.OUTPUT, 0, 1].copy()
    expected, unchanged = {}, set()
    for before, now in pairwise(RUNS):
        for key, value in of_run[now].items():
            old = of_run[before][key[0], key[1], key[2], before[1]]
            if key[1] is Side.OUTPUT:
                ratio = np.abs(value.astype(np.float64) - old).mean() / (np.abs(old.astype(np.float64)).mean() + 1e-9)
                expected[(now[0], *key)] = ratio
                if np.array_equal(value, old):
                    unchanged.add((now[0], *key))
    watches = ("WCL abs_mean_update_ratio_gt=0 epsilon=1e-9", "WNC")
    with closing(session_of(of_run, timed=timed, watches=watches)) as session:
        hits = session.check(session.pairs()).hits
        seen, same, first = {}, set(), set()
        for hit in hits:
            for result in hit.results if hit.key.side is Side.OUTPUT else ():
                if result.verdict is Verdict.NOT_COMPARABLE:
                    first.add(hit.key.step)
                elif result.condition == "weight_not_changed":
                    same.add(bad(hit.key))
                else:
                    seen[bad(hit.key)] = next(p.actual for p in result.params if p.name.startswith("abs_mean"))
    assert first == {0}
    assert same == unchanged
    assert seen.keys() == {key for key, ratio in expected.items() if ratio > 0}
    assert all(seen[key] == pytest.approx(expected[key], rel=1e-6) for key in seen)


def test_hits_come_in_run_order_and_are_found_by_their_round() -> None:
    of_run = written()
    for number in (1, 3):
        of_run[1, number][ACT, Side.OUTPUT, 0, number] = np.full((4, 4), np.nan, np.float32)
    with closing(session_of(of_run, timed=True, watches=("TO",))) as session:
        hits = session.check(session.pairs()).hits
        assert [(hit.key.step, hit.key.round) for hit in hits] == [(1, 1), (1, 3)]
        assert [hit.order[0] for hit in hits] == sorted(hit.order[0] for hit in hits)
        key = hits[0].key
        assert hits.find(key) == 0
        assert hits.find(TensorKey(0, key.graph, key.node, key.side, key.slot, 1)) == 1  # the newest
        assert hits.find(TensorKey(0, key.graph, key.node, key.side, key.slot, 1, 2)) == -1


def test_a_tensor_is_read_measured_and_compared_in_its_round() -> None:
    of_run = written()
    with closing(session_of(of_run, timed=True, watches=())) as session:
        for (step, number), values in of_run.items():
            key = TensorKey(0, GRAPH, W, Side.OUTPUT, 0, step, number)
            np.testing.assert_array_equal(session.read(key), values[W, Side.OUTPUT, 0, number])
            (row,) = session.measure([session.row_of(key)])
            assert row.stats is not None
            assert row.stats.maximum == values[W, Side.OUTPUT, 0, number].max()
        runs = list(of_run)
        for before, now in pairwise(runs):
            other = session.before(TensorKey(0, GRAPH, W, Side.OUTPUT, 0, *now))
            assert other is not None
            assert (other.step, other.round) == before
            assert Comparer(session).previous(TensorKey(0, GRAPH, W, Side.OUTPUT, 0, *now)).key == other
        side = ComparedTensor(TensorKey(0, GRAPH, ACT, Side.OUTPUT, 0, 1, 2))
        beside = [Comparer(session).beside(side, by) for by in (-1, 1)]
        assert [(each.key.step, each.key.round) for each in beside if each is not None and each.key is not None] == [
            (1, 1),
            (1, 3),
        ]


def test_the_input_of_a_node_is_what_was_there_when_it_ran() -> None:
    """Without input files of its own, in every round."""
    of_run = {
        run: {key: value for key, value in values.items() if key[1] is Side.OUTPUT} for run, values in written().items()
    }
    runs = list(of_run)
    for timed in (True, False):
        with closing(session_of(of_run, timed=timed, watches=())) as session:
            flow = session.flow(0)
            for place, (step, number) in enumerate(runs):
                at = flow.locate_input(step, flow.nodes.find(ACT), 0, number)
                assert at is not None
                assert (at.step, at.round) == (step, number)
                weight = flow.locate_input(step, flow.nodes.find(MATMUL), 1, number)
                assert (weight and (weight.step, weight.round)) == (runs[place - 1] if place else None)
                inputs = relations(session, TensorKey(0, GRAPH, MATMUL, Side.OUTPUT, 0, step, number)).producers
                assert [(each.key.step, each.key.round) for each in inputs if each.key.node == X] == [(step, number)]


@pytest.mark.parametrize("inputs", [False, True])
@pytest.mark.parametrize("timed", [False, True])
def test_what_an_earlier_run_wrote_is_no_evidence_for_a_later_one(inputs: bool, timed: bool) -> None:
    """What the later run wrote is missing: that the file of the earlier one is clean says nothing."""
    clean, bad = np.ones(2, np.float32), np.full(2, np.nan, np.float32)
    first: dict[Key, Array] = {("x", Side.OUTPUT, 0): clean, ("a", Side.OUTPUT, 0): clean, ("b", Side.OUTPUT, 0): clean}
    second: dict[Key, Array] = {("x", Side.OUTPUT, 0): clean, ("a", Side.OUTPUT, 0): bad, ("b", Side.OUTPUT, 0): bad}
    del second["a", Side.OUTPUT, 0]
    if inputs:  # as that of an operator that writes over its input
        first["b", Side.INPUT, 0], second["b", Side.INPUT, 0] = clean, bad
    tensors = {(*key[:3], number): value for number, of in ((1, first), (2, second)) for key, value in of.items()}
    ops = [
        Op("x", "Parameter", category=Category.PARAMETER),
        Op("a", "BiasAddGrad", [("x", 0)]),
        Op("b", "AddN", [("a", 0)]),
    ]
    runs = [GraphRun(0, 0, GRAPH, True, number, 1000 * number if timed else 0) for number in (1, 2)]
    session = Session(MemorySource({0: {0: tensors}}, ops=ops, history=runs))
    watch(session, "TO")
    result = session.check(session.pairs())
    assert ("b", 0) in found(result.hits)
    assert [hit.key.node for hit in result.hits if hit.origin] == []
    tensors["a", Side.OUTPUT, 0, 2] = clean
    session = Session(MemorySource({0: {0: tensors}}, ops=ops, history=runs))
    watch(session, "TO")
    assert [hit.key.node for hit in session.check(session.pairs()).hits if hit.origin] == ["b"]


def test_a_history_has_a_point_for_every_run() -> None:
    of_run = written()
    with closing(session_of(of_run, timed=True, watches=())) as session:
        series = trend(session, TensorKey(0, GRAPH, ACT, Side.OUTPUT, 0, 0), session.steps(0))
        assert [series.point(index) for index in range(len(series.steps))] == list(of_run)
        largest = [float(values[ACT, Side.OUTPUT, 0, run[1]].max()) for run, values in of_run.items()]
        assert series.of("max").tolist() == pytest.approx(largest)


# -- several graphs --------------------------------------------------------------------------------

TRAIN, EVAL = "kernel_graph_0", "kernel_graph_1"
LOSS = "eval/MatMul-op9"
ORDER = ((0, 0), (1, 0), (2, 1), (1, 1), (2, 0), (3, 0), (4, 1), (3, 1), (5, 0))
"""(step, root graph): 0 trains and 1 evaluates; several steps hold a run of each, and not in the order of numbers."""


def two_graphs(own_weights: bool = False) -> tuple[Values, list[Op], tuple[GraphRun, ...]]:
    """A graph that trains a weight and one that reads it; ``own_weights``: one of the same name but its own values."""
    ops = [
        *training(TRAIN),
        Op(LOSS, "MatMul", (("y", 0), (W, 0)), graph=EVAL),
        Op("y", "Parameter", category=Category.PARAMETER, graph=EVAL),
        Op(W, "Parameter", category=Category.WEIGHT, graph=EVAL),
    ]
    trained = written(tuple((place, 0) for place in range(len(ORDER))), seed=3)
    rng = np.random.default_rng(4)
    weight = np.zeros((4, 4), np.float32)
    own = rng.normal(size=(4, 4)).astype(np.float32)
    steps: Values = {}
    for place, (step, root) in enumerate(ORDER):
        values = steps.setdefault(step, {})
        if root == 0:
            values.update({(f"{TRAIN}:{key[0]}", key[1], key[2]): value for key, value in trained[place, 0].items()})
            values[f"{TRAIN}:{MATMUL}", Side.INPUT, 1] = weight if place else trained[0, 0][MATMUL, Side.INPUT, 1, 0]
            weight = trained[place, 0][W, Side.OUTPUT, 0, 0]
            continue
        held, y, loss = own if own_weights else weight, *rng.normal(size=(2, 4, 4)).astype(np.float32)
        for slot, value in enumerate((y, held)):
            values[f"{EVAL}:{LOSS}", Side.INPUT, slot] = value
        for name, value in ((LOSS, loss), ("y", y), (W, held)):
            values[f"{EVAL}:{name}", Side.OUTPUT, 0] = value
    runs = tuple(
        GraphRun(step, root, (TRAIN, EVAL)[root], True, 0, (place + 1) * SECOND)
        for place, (step, root) in enumerate(ORDER)
    )
    return steps, ops, runs


def graphs_session(values: Values, ops: list[Op], runs: tuple[GraphRun, ...], *watches: str) -> Session:
    table = table_of(ops, (GraphInfo(TRAIN, 0), GraphInfo(EVAL, 1)))
    session = Session(MemorySource({0: values}, table=table, history=runs))
    watch(session, *watches)
    return session


def weight_key(step: int, root: int) -> TensorKey:
    return TensorKey(0, (TRAIN, EVAL)[root], W, Side.OUTPUT, 0, step)


def test_a_shared_weight_was_before_what_the_last_run_of_any_graph_left() -> None:
    with closing(graphs_session(*two_graphs())) as session:
        assert session.before(weight_key(*ORDER[0])) is None
        for before, now in pairwise(ORDER):
            assert session.before(weight_key(*now)) == weight_key(*before)


def test_weights_of_one_name_that_differ_are_two_weights() -> None:
    with closing(graphs_session(*two_graphs(own_weights=True), "WNC @ category=weight")) as session:
        assert session.before(weight_key(3, 1)) == weight_key(4, 1)
        assert session.before(weight_key(2, 1)) is None
        assert found(session.check(session.pairs()).hits) == [(W, 1), (W, 4), (W, 3)]  # its own, which nobody trains


@pytest.mark.parametrize("own_weights", [False, True])
def test_a_name_with_a_prefix_is_the_same_weight_only_where_the_values_are(own_weights: bool) -> None:
    values, ops, runs = two_graphs(own_weights)
    named = {f"{EVAL}:{W}": f"{EVAL}:opt.{W}"}
    renamed = {
        step: {(named.get(key[0], key[0]), key[1], key[2]): value for key, value in of.items()}
        for step, of in values.items()
    }
    ops = [
        *ops[:-3],
        Op(LOSS, "MatMul", (("y", 0), (f"opt.{W}", 0)), graph=EVAL),
        ops[-2],
        replace(ops[-1], name=f"opt.{W}"),
    ]
    with closing(graphs_session(renamed, ops, runs)) as session:
        before = session.before(replace(weight_key(2, 1), node=f"opt.{W}"))
        assert before == (None if own_weights else weight_key(1, 0))


def test_that_evaluation_left_a_shared_weight_as_it_was_is_no_finding() -> None:
    values, ops, runs = two_graphs()
    with closing(graphs_session(values, ops, runs, "WNC @ category=weight")) as session:
        assert not found(session.check(session.pairs()).hits)
    stuck = values[1][f"{TRAIN}:{W}", Side.OUTPUT, 0]
    values[2][f"{TRAIN}:{W}", Side.OUTPUT, 0] = stuck  # the run after both evaluations
    with closing(graphs_session(values, ops, runs, "WNC @ category=weight")) as session:
        (hit,) = [hit for hit in session.check(session.pairs()).hits if hit.verdict is Verdict.FINDING]
        assert (hit.key.graph, hit.key.step) == (TRAIN, 2)


def test_the_path_from_a_shared_weight_leads_to_the_graph_that_wrote_it() -> None:
    values, ops, runs = two_graphs()
    nan = np.full((4, 4), np.nan, np.float32)
    for key in (GRAD, MOMENTUM, W):
        values[3][f"{TRAIN}:{key}", Side.OUTPUT, 0] = nan
    values[3][f"{TRAIN}:{MOMENTUM}", Side.INPUT, 0] = values[3][f"{TRAIN}:{MOMENTUM}", Side.INPUT, 3] = nan
    for step in (4, 3):
        values[step][f"{EVAL}:{LOSS}", Side.INPUT, 1] = values[step][f"{EVAL}:{W}", Side.OUTPUT, 0] = nan
        values[step][f"{EVAL}:{LOSS}", Side.OUTPUT, 0] = nan
    with closing(graphs_session(values, ops, runs)) as session:
        for key in (weight_key(3, 1), TensorKey(0, EVAL, LOSS, Side.OUTPUT, 0, 4)):
            end = trace(session, key).end.tensor.key
            assert (end.graph, end.node, end.step) == (TRAIN, GRAD, 3)


def test_the_origin_is_the_earliest_by_time_though_its_step_has_a_greater_number() -> None:
    values, ops, runs = two_graphs()
    nan = np.full((4, 4), np.nan, np.float32)
    values[4][f"{EVAL}:{LOSS}", Side.OUTPUT, 0] = nan
    values[3][f"{EVAL}:{LOSS}", Side.OUTPUT, 0] = nan  # after step 4, though in a step that began before it
    with closing(graphs_session(values, ops, runs, "TO")) as session:
        report = session.find_origin(session.pairs())
        assert [(origin.graph, origin.node, origin.step) for origin in report.origins] == [(EVAL, LOSS, 4)]
        assert [(searched.pair[1]) for searched in report.searches] == [3, 4]
        assert report.first_searches[0].pair == (0, 4)
        assert [hit.key.step for hit in session.check(session.pairs()).hits] == [4, 3]


def test_what_ran_after_a_changed_step_is_judged_anew() -> None:
    values, ops, runs = two_graphs()
    session = graphs_session(values, ops, runs, "TO")
    with closing(session):
        session.check(session.pairs())
        source = session.source
        assert isinstance(source, MemorySource)
        source.add(0, 4, {(f"{EVAL}:{LOSS}", Side.OUTPUT, 0): np.zeros((4, 4), np.float32)})
        session.refresh()
        fresh = [step for step in range(6) if session.fresh([(0, step)])]
        assert fresh == [0, 1, 2]  # step 3 holds a run that came after step 4


# -- real dumps ------------------------------------------------------------------------------------


def expected_origins() -> Iterator[tuple[str, list[tuple[int, int, str]]]]:
    """(dump, (step, round, end of the node's name)) by the time stamps of the files and what the training said."""
    yield "mindspore-2.0-multi-eval", [(6, 0, "Log-op191")]
    yield "mindspore-2.10-multi-eval", [(4, 0, "network-Eval/Log-op0")]
    yield "mindspore-2.0-multi-gan", [(3, 0, "DiscLoss/Log-op153"), (3, 0, "Reciprocal-op157")]
    yield "mindspore-2.10-multi-gan", [(1, 2, "DiscLoss/Log-op0"), (1, 2, "Grad_Log/Div-op0")]
    yield "mindspore-2.10-multi-order", [(4, 0, "inputs0")]


@pytest.mark.parametrize(("dump", "expected"), list(expected_origins()))
def test_origins_of_dumps_with_several_root_graphs(
    dumps: Callable[[str], Path], dump: str, expected: list[tuple[int, int, str]]
) -> None:
    session = opened(dumps(dump))
    report = session.find_origin(session.pairs())
    assert [(origin.step, origin.hit.key.round) for origin in report.origins] == [each[:2] for each in expected]
    assert all(origin.node.endswith(name) for origin, (_, _, name) in zip(report.origins, expected, strict=True))
