"""The search for the first origin: which tensor, which rank, what else is said, and when it ends."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.linked import linked, own
from tests.session.opened import opened, snapshot, writable_copy
from tests.sources.memory import MemorySource, Op, table_of
from tests.sources.writer import MLP, DumpWriter, Generation, Graph, Node, write_dump, write_step
from tui_debugger.causes.table import InputState, OriginKind
from tui_debugger.diagnose.origin.search import Origin, OriginReport, SearchEnd
from tui_debugger.diagnose.origin.text import advice_words, first_known_words, not_judged_words
from tui_debugger.errors import CancelledError
from tui_debugger.graph.search import NodeQuery
from tui_debugger.model import Category, Progress, Side, Watchpoint
from tui_debugger.session import Session
from tui_debugger.watch.text import parse_watch

Array = npt.NDArray[Any]

MATMUL, RELU, MOMENTUM = (node.name for node in MLP.nodes)
NAN = np.full((2, 3), np.nan, np.float32)
NAN_DUMPS = ["mindspore-2.0-nan", "mindspore-2.10-nan"]
MLP_DUMPS = ["mindspore-2.0-mlp", "mindspore-2.10-mlp"]


def search(session: Session, *watches: str, steps: tuple[int, ...] | None = None, spread: int = 5) -> OriginReport:
    watchpoints = [Watchpoint(number, *parse_watch(text)) for number, text in enumerate(watches, 1)]
    return session.find_origin(session.pairs(steps=steps), watchpoints, spread=spread)


@pytest.fixture(scope="module")
def looked(dumps: Callable[[str], Path]) -> Callable[[str], tuple[Session, OriginReport]]:
    """One search in each real dump, for all tests that ask nothing special."""

    @cache
    def searched(dump: str) -> tuple[Session, OriginReport]:
        session = opened(dumps(dump))
        return session, search(session, spread=1000)

    return searched


def copy_of_steps(dump: Path, target: Path, *steps: int) -> Path:
    """A copy of a dump that holds only some of its steps."""

    def others(directory: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(directory).name == "0" and name.isdigit() and int(name) not in steps]

    linked(dump, target, ignore=others)
    return target


def last(name: str) -> str:
    """Last component without the operator's number, which differs between generations."""
    return name.rpartition("/")[2].rpartition("-op")[0]


def one(step: Path, pattern: str) -> Path:
    (path,) = step.glob(pattern)
    return path


def spoil(path: Path, value: float = np.nan) -> Array:
    values = np.load(path).copy()
    values.reshape(-1)[values.size // 2] = value
    np.save(path, values)
    return values


def write_with_constants(writer: DumpWriter, step: int, graph: Graph) -> None:
    """A step of a graph with constants: the files that hold them get a parameter's values first."""
    nodes = [
        replace(n, inputs=[("x" if name in graph.constants else name, at) for name, at in n.inputs])
        for n in graph.nodes
    ]
    write_step(writer, step, Graph(nodes, graph.parameters))


def only(report: OriginReport) -> Origin:
    (origin,) = report.origins
    return origin


# -- real dumps ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dump", NAN_DUMPS)
def test_the_logarithm_is_first_and_the_division_independent(
    dump: str, looked: Callable[[str], tuple[Session, OriginReport]]
) -> None:
    session, report = looked(dump)
    log, division = report.origins
    assert [(last(o.node), o.step, o.rank, o.start) for o in report.origins] == [
        ("Log", 3, 0, OriginKind.MADE),
        ("Div", 3, 0, OriginKind.MADE),
    ]
    assert "norm-RowNorm" in division.node
    (feeder,) = log.inputs
    (output,) = log.outputs
    for row in (feeder.row, output):
        values = session.read(row.key)
        assert row.stats is not None
        assert (row.stats.nan, row.stats.inf) == (int(np.isnan(values).sum()), int(np.isinf(values).sum()))
        assert row.stats.maximum == pytest.approx(float(values[np.isfinite(values)].max()))
    assert (feeder.state, output.hit) == (InputState.CLEAN, True)
    own = log.stack[0]
    assert (own.framework, own.line, "self.log" in own.code) == (False, 53, True)
    assert not any(frame.context for frame in log.stack)


@pytest.mark.parametrize("dump", NAN_DUMPS)
def test_it_says_how_it_spread_along_the_graph(
    dump: str, looked: Callable[[str], tuple[Session, OriginReport]]
) -> None:
    session, report = looked(dump)
    (searched,) = report.searches
    assert searched.by_graph
    assert [last(hit.key.node) for hit in searched.spread[:2]] == ["ReduceSum", "Mul"]
    nodes = session.nodes(0)
    reached, front = set(), [report.origins[0].row]
    while front:  # the closure again, edge by edge
        for consumer, _ in session.consumers(0, front.pop()):
            if consumer not in reached:
                reached.add(consumer)
                front.append(consumer)
    operators = [hit for hit in searched.spread if nodes.op_type(hit.row) != "Parameter"]
    assert operators
    assert {hit.row for hit in operators} <= reached
    assert any(nodes.op_type(hit.row) == "Parameter" for hit in searched.spread), "an optimizer writes its parameters"
    orders = [hit.order for hit in searched.spread]
    assert orders == sorted(orders)
    table = session.source.tensors(0, 3)
    outputs = [i for i in range(len(table)) if int(table.side[i]) == Side.OUTPUT]
    bad = sum(not np.isfinite(np.load(table.spec(i).path)).all() for i in outputs)
    assert bad <= searched.bad <= bad + 5, "beside the outputs hardly any input holds what no output does"


@pytest.mark.parametrize("dump", NAN_DUMPS)
def test_the_search_ends_with_the_step_of_the_origin(
    dump: str, looked: Callable[[str], tuple[Session, OriginReport]]
) -> None:
    _, report = looked(dump)
    assert report.end is SearchEnd.ORIGIN
    assert report.check.pairs == ((0, 0), (0, 1), (0, 2), (0, 3))
    assert report.left == ((0, 4), (0, 5))


@pytest.mark.parametrize("dump", NAN_DUMPS)
def test_a_step_that_was_bad_from_the_start_has_no_origin(dump: str, dumps: Callable[[str], Path]) -> None:
    """Its weights were: looking on would only find what is made from them."""
    report = search(opened(dumps(dump)), steps=(4, 5))
    assert report.origins == ()
    assert (report.end, report.left) == (SearchEnd.CARRIED, ((0, 5),))
    first = report.searches[0].first
    assert first is not None
    assert (first.start, last(first.node)) == (OriginKind.TAINTED, "LayerNorm")
    assert {feeder.row.slot for feeder in first.inputs if feeder.state is InputState.BAD} == {1, 2}


@pytest.mark.parametrize("dump", NAN_DUMPS)
def test_the_first_dumped_step_may_be_the_one_of_the_origin(
    dump: str, dumps: Callable[[str], Path], tmp_path: Path
) -> None:
    """Parameter files show the values of after the step: they do not make it look bad from the start."""
    report = search(opened(copy_of_steps(dumps(dump), tmp_path / "dump", 3)))
    assert [last(origin.node) for origin in report.origins] == ["Log", "Div"]


@pytest.mark.parametrize("dump", NAN_DUMPS)
def test_weights_that_were_bad_before_the_first_dumped_step_are_no_origin(
    dump: str, dumps: Callable[[str], Path], tmp_path: Path
) -> None:
    report = search(opened(copy_of_steps(dumps(dump), tmp_path / "dump", 4, 5)))
    assert report.origins == ()
    searched = report.searches[0]
    assert {origin.start for origin in searched.before} == {OriginKind.BEFORE}
    assert "blocks.0.ln1.gamma" in {origin.node for origin in searched.before}


@pytest.mark.parametrize("history", [True, False])
@pytest.mark.parametrize("dump", NAN_DUMPS)
def test_weights_that_went_bad_between_the_dumped_steps_make_no_origin(
    dump: str, history: bool, dumps: Callable[[str], Path], tmp_path: Path
) -> None:
    """Steps 0, 2 and 4 of outputs alone: the weights that step 4 began with are those of step 3, not of step 2."""
    path = copy_of_steps(dumps(dump), tmp_path / "dump", 0, 2, 4)
    for file in path.rglob("*.input.*.npy"):
        file.unlink()
    for file in path.rglob("ms_global_execution_order_graph_*.csv") if not history else ():
        file.unlink()
    report = search(opened(path))
    assert report.origins == ()
    assert {searched.pair for searched in report.searches} == {(0, 4)}


@pytest.mark.parametrize("dump", MLP_DUMPS)
def test_a_healthy_run_has_none(dump: str, looked: Callable[[str], tuple[Session, OriginReport]]) -> None:
    _, report = looked(dump)
    assert (report.origins, report.searches, report.end, report.left) == ((), (), SearchEnd.ALL, ())
    assert len(report.check.pairs) == 6
    assert report.check.coverage.unreadable == 0


@pytest.mark.parametrize("dump", [NAN_DUMPS[1], MLP_DUMPS[0]])
def test_nothing_is_written_and_nothing_is_added_to_the_list(dump: str, dumps: Callable[[str], Path]) -> None:
    session = opened(dumps(dump))
    before = snapshot(dumps(dump))
    search(session, "TZ", "TO")
    assert snapshot(dumps(dump)) == before
    assert session.watchpoints.items() == ()


@pytest.mark.parametrize("dump", MLP_DUMPS)
def test_a_dead_activation_starts_where_its_input_is_alive(dump: str, dumps: Callable[[str], Path]) -> None:
    origin = only(search(opened(dumps(dump)), "TZ @ category=activation"))
    assert "act3-ReLU" in origin.node
    assert (origin.step, origin.start) == (0, OriginKind.MADE)
    assert all(feeder.state is InputState.CLEAN for feeder in origin.inputs)
    assert origin.outputs[0].stats is not None
    assert origin.outputs[0].stats.zero_percentage == 100.0


@pytest.mark.parametrize("dump", MLP_DUMPS)
def test_a_weight_that_does_not_change_starts_with_itself_and_names_its_update(
    dump: str, dumps: Callable[[str], Path]
) -> None:
    report = search(opened(dumps(dump)), "WNC @ category=weight")
    assert {"fc2.weight", "fc3.weight"} <= {origin.node for origin in report.origins}
    for origin in report.origins:
        assert (origin.step, origin.start) == (1, OriginKind.UPDATED)
        assert last(origin.other) == "SGD"
        assert [feeder.row.slot for feeder in origin.inputs if feeder.before] == [0, 3, 5], (
            "what it updates, as it was before"
        )


# -- planted into copies of real dumps -------------------------------------------------------------


@pytest.fixture(scope="module", params=MLP_DUMPS)
def healthy(
    request: pytest.FixtureRequest, dumps: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return writable_copy(dumps(request.param), tmp_path_factory.mktemp("origins") / "dump")


@cache
def files(root: Path, side: Side, *, parameters: bool) -> list[tuple[Path, int]]:
    """(file, node row) of the float tensors of steps 1 to 3, by what a healthy session says they are."""
    session = opened(root)
    found = []
    for step in (1, 2, 3):
        table = session.source.tensors(0, step)
        for i in range(len(table)):
            path = Path(table.spec(i).path)
            if int(table.side[i]) == side and path.name.startswith("Parameter.") == parameters:
                found.append((path, int(table.node[i])))
    return [(path, row) for path, row in sorted(found) if np.load(path).dtype == np.float32]


@pytest.mark.covering
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("side", list(Side))
def test_a_planted_nan_starts_at_the_node_of_its_file(healthy: Path, side: Side, seed: int) -> None:
    choices = files(healthy, side, parameters=False)
    path, row = choices[int(np.random.default_rng(seed).integers(len(choices)))]
    kept = own(path).read_bytes()
    spoil(path)
    try:
        session = opened(healthy)
        origin = only(search(session))
    finally:
        path.write_bytes(kept)
    table = session.source.tensors(0, origin.step)
    key = origin.hit.key
    found = table.spec(table.find(session.nodes(0).find(key.node, key.graph), key.side, key.slot)).path
    assert Path(found) == path
    if side is Side.OUTPUT:
        assert (origin.node, origin.start) == (session.nodes(0).names[row], OriginKind.MADE)
    elif origin.start is OriginKind.CHANGED:  # the producer's file is here, and clean
        assert origin.node == session.nodes(0).names[row]
        assert origin.inputs
        assert all(feeder.state is InputState.CLEAN for feeder in origin.inputs)
    else:
        assert origin.start in (OriginKind.UNSEEN, OriginKind.SOURCE, OriginKind.UPDATED)


@pytest.mark.covering
@pytest.mark.parametrize("seed", range(3))
def test_a_planted_nan_in_a_parameter_starts_after_its_update(healthy: Path, seed: int) -> None:
    choices = files(healthy, Side.OUTPUT, parameters=True)
    path, row = choices[int(np.random.default_rng(seed).integers(len(choices)))]
    kept = own(path).read_bytes()
    spoil(path)
    try:
        session = opened(healthy)
        report = search(session, steps=(int(path.parent.name),))
    finally:
        path.write_bytes(kept)
    origin = only(report)
    assert origin.node == session.nodes(0).names[row]
    assert origin.start in (OriginKind.UPDATED, OriginKind.SOURCE)


# -- written dumps: what an origin is --------------------------------------------------------------


def test_every_output_of_a_node_belongs_to_one_origin(tmp_path: Path) -> None:
    graph = Graph((Node("Default/Split-op1", "Split", (("x", 0),)),), parameters=("x",))
    writer = DumpWriter(tmp_path)
    writer.graph(graph)
    write_step(writer, 0, graph)
    writer.tensor(0, "Split", "Default/Split-op1", NAN, at=("output", 1))
    spoil(one(writer.step(0), "Split.*.output.0.*"))
    origin = only(search(opened(tmp_path)))
    assert [(hit.key.side, hit.key.slot) for hit in origin.hits] == [(Side.OUTPUT, 0), (Side.OUTPUT, 1)]
    assert [row.slot for row in origin.outputs] == [0, 1]


def test_an_input_that_differs_from_what_was_written_starts_there(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    spoil(one(writer.step(1), "ReLU.*.input.0.*"))
    origin = only(search(opened(tmp_path)))
    assert (origin.node, origin.start, origin.other) == (RELU, OriginKind.CHANGED, MATMUL)
    (feeder,) = origin.inputs
    assert (feeder.row.key.node, feeder.row.key.side, feeder.state) == (MATMUL, Side.OUTPUT, InputState.CLEAN)
    assert [(row.role, row.hit) for row in origin.outputs] == [("in", True)]


def test_inputs_only_the_producer_is_the_origin_and_its_consumer_the_witness(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0,))
    for path in writer.step(0).glob("*.output.*"):
        path.unlink()
    spoil(one(writer.step(0), "ReLU.*.input.0.*"))
    origin = only(search(opened(tmp_path)))
    assert (origin.node, origin.start, origin.other) == (MATMUL, OriginKind.UNSEEN, RELU)
    assert [feeder.state for feeder in origin.inputs] == [InputState.CLEAN, InputState.CLEAN]
    assert (origin.outputs[0].key.node, origin.outputs[0].key.side) == (RELU, Side.INPUT)


def test_an_unreadable_output_does_not_hide_what_its_consumer_got(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0,))
    output = one(writer.step(0), "MatMul.*.output.0.*")
    output.write_bytes(output.read_bytes()[:-4])
    spoil(one(writer.step(0), "ReLU.*.input.0.*"))
    report = search(opened(tmp_path))
    assert (only(report).node, only(report).start) == (MATMUL, OriginKind.UNSEEN)
    assert report.check.coverage.unreadable == 1


def test_bad_data_from_outside_is_an_origin(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    for pattern in ("Parameter.x.*", "MatMul.*.input.0.*", "MatMul.*.output.0.*"):
        np.save(one(writer.step(1), pattern), NAN)
    origin = only(search(opened(tmp_path)))
    assert (origin.node, origin.type, origin.start, origin.inputs) == ("x", "Parameter", OriginKind.SOURCE, ())


def test_an_operator_without_inputs_is_an_origin(tmp_path: Path) -> None:
    graph = Graph((Node("Default/GetNext-op1", "GetNext"),))
    writer = DumpWriter(tmp_path)
    writer.graph(graph)
    write_step(writer, 0, graph)
    np.save(one(writer.step(0), "GetNext.*"), NAN)
    origin = only(search(opened(tmp_path)))
    assert (origin.node, origin.start) == ("Default/GetNext-op1", OriginKind.SOURCE)


def test_a_bad_initial_weight_is_an_origin_at_step_0_and_only_there(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 5))
    for step in (0, 5):
        np.save(one(writer.step(step), "MatMul.*.input.1.*"), NAN)
    origin = only(search(opened(tmp_path)))
    assert (origin.node, origin.start, origin.step, origin.other) == ("fc1.weight", OriginKind.BEFORE, 0, MATMUL)
    shutil.rmtree(writer.step(0))
    report = search(opened(tmp_path))
    assert report.origins == ()
    assert [(searched.pair, [o.node for o in searched.before]) for searched in report.searches] == [
        ((0, 5), ["fc1.weight"])
    ]


def test_an_optimizer_that_breaks_a_weight_is_the_origin(tmp_path: Path) -> None:
    """Its first inputs show the new values: in-place operators are dumped after the kernel."""
    writer = write_dump(tmp_path, steps=(0, 1))
    step = writer.step(1)
    broken = spoil(one(step, "ApplyMomentum.*.output.0.*"))
    np.save(one(step, "ApplyMomentum.*.input.0.*"), broken)
    np.save(one(step, "ApplyMomentum.*.input.1.*"), NAN)
    np.save(one(step, "Parameter.fc1_weight.*"), broken)
    np.save(one(step, "Parameter.accum_fc1_weight.*"), NAN)
    origin = only(search(opened(tmp_path)))
    assert (origin.node, origin.start) == (MOMENTUM, OriginKind.MADE)
    assert [(feeder.row.slot, feeder.before, feeder.row.key.node) for feeder in origin.inputs] == [
        (0, True, "fc1.weight"),
        (1, True, "accum.fc1.weight"),
    ]


def test_unknown_inputs_give_no_origin_and_are_named(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    for step in (0, 1):
        for path in writer.step(step).glob("*.npy"):
            if not path.name.startswith("ReLU") or ".input." in path.name:
                path.unlink()
        np.save(one(writer.step(step), "ReLU.*.output.*"), NAN)
    report = search(opened(tmp_path))
    assert (report.origins, report.end) == ((), SearchEnd.ALL)
    first = report.searches[0].first
    assert first is not None
    assert (first.node, first.start) == (RELU, OriginKind.UNKNOWN)
    assert [(feeder.row.index, feeder.state) for feeder in first.inputs] == [(-1, InputState.UNKNOWN)]


def test_a_node_with_an_unreadable_input_is_not_judged(tmp_path: Path) -> None:
    graph = Graph((Node("Default/Div-op1", "Div", (("a", 0), ("b", 0))),), parameters=("a", "b"))
    writer = DumpWriter(tmp_path)
    writer.graph(graph)
    write_step(writer, 0, graph)
    one(writer.step(0), "Div.*.input.1.*").write_bytes(b"")
    spoil(one(writer.step(0), "Div.*.output.0.*"))
    report = search(opened(tmp_path))
    assert report.origins == ()
    first = report.first_known
    assert first is not None
    assert first.start is OriginKind.UNKNOWN
    assert [feeder.state for feeder in first.inputs] == [InputState.CLEAN, InputState.UNKNOWN]
    assert first.inputs[1].row.error
    assert first_known_words(first) == "first known bad; in:1 cannot be read"
    (node,) = report.not_judged
    assert not_judged_words(node) == "not judged: in:1 unknown (b:0)"


def test_a_node_is_an_origin_only_when_everything_that_it_was_made_from_is_known(tmp_path: Path) -> None:
    graph = Graph((Node("Default/Div-op1", "Div", (("a", 0), ("b", 0))),), parameters=("a", "b"))
    writer = DumpWriter(tmp_path)
    writer.graph(graph)
    write_step(writer, 0, graph)
    spoil(one(writer.step(0), "Div.*.output.0.*"))
    assert only(search(opened(tmp_path))).node == "Default/Div-op1"
    for path in (*writer.step(0).glob("Div.*.input.1.*"), *writer.step(0).glob("Parameter.b.*")):
        path.unlink()
    session = opened(tmp_path, "TO")
    report = search(session)
    assert (report.origins, bool(report.searches)) == ((), True)
    first = report.first_known
    assert first is not None
    assert (first.node, first.starts_here) == ("Default/Div-op1", False)
    assert first_known_words(first) == "first known bad; in:1 was not dumped"
    assert advice_words(first) == "dump the inputs of Default/Div-op1"
    assert advice_words(first, "msprobe: level mix") == "dump the inputs of Default/Div-op1 (msprobe: level mix)"
    assert not any(hit.origin for hit in session.check(session.pairs()).hits)


def test_what_only_orders_the_run_is_no_missing_value() -> None:
    """A node may have a monad among its inputs, as a parameter of its graph."""
    parameters = [Op(name, "Parameter", category=Category.PARAMETER) for name in ("u", "x")]
    values = {("x", Side.OUTPUT, 0): np.ones(2, np.float32), ("log", Side.OUTPUT, 0): NAN}
    for monads, origins in (({0: "umonad"}, ["log"]), ({}, [])):
        table = replace(table_of([*parameters, Op("log", "Log", [("x", 0), ("u", 0)])]), constants=monads)
        report = search(Session(MemorySource({0: {0: values}}, table=table)))
        assert [origin.node for origin in report.origins] == origins


@pytest.mark.covering
@pytest.mark.parametrize("dump", NAN_DUMPS)
@pytest.mark.parametrize("side", ["input", "output"])
def test_one_side_of_every_node_is_full_evidence(
    dump: str, side: str, dumps: Callable[[str], Path], tmp_path: Path
) -> None:
    copy = copy_of_steps(dumps(dump), tmp_path / "dump", 2, 3)
    for path in copy.glob(f"rank_0/*/0/*/*.{side}.*.npy"):
        if not path.name.startswith("Parameter."):
            path.unlink()
    assert [last(origin.node) for origin in search(opened(copy)).origins] == ["Log", "Div"]


@pytest.mark.parametrize("dump", NAN_DUMPS)
def test_a_dump_of_a_few_kernels_has_no_origin_without_evidence(
    dump: str, dumps: Callable[[str], Path], tmp_path: Path
) -> None:
    copy = copy_of_steps(dumps(dump), tmp_path / "dump", 2, 3)
    for path in copy.glob("rank_0/*/0/*/*.npy"):
        if not path.name.startswith(("Mul.", "LayerNorm.")) and ".output." in path.name:
            path.unlink()
    for path in copy.glob("rank_0/*/0/*/*.input.*.npy"):
        path.unlink()
    session = opened(copy, "TO")
    report = search(session)
    assert (report.origins, report.check.hits.findings > 0) == ((), True)
    assert report.first_known is not None
    assert not any(hit.origin for hit in session.check(session.pairs()).hits)


@pytest.mark.parametrize("dump", ["mindspore-2.0-multi-flow", "mindspore-2.10-multi-flow"])
def test_what_other_graphs_gave_is_not_known_and_makes_no_origin(dump: str, dumps: Callable[[str], Path]) -> None:
    session = opened(dumps(dump), "TO")
    report = search(session)
    origin = only(report)
    assert (last(origin.node), origin.step, origin.graph.rpartition("h")[2].strip("_")) == ("Sqrt", 3, "18")
    marked = [hit.key.node for hit in session.check([(0, 3)]).hits if hit.origin]
    assert marked == [origin.node]
    assert not {(each.graph, each.node) for each in report.not_judged} & {(origin.graph, origin.node)}
    sub = next(each for each in report.not_judged if last(each.node) == "Sub")
    assert [missing.slot for missing in sub.missing] == [0]


@pytest.mark.parametrize("generation", [Generation.V2_0, Generation.V2_10])
def test_a_constant_is_no_origin_and_the_search_goes_on(tmp_path: Path, generation: Generation) -> None:
    """The -Inf of a constant is there in every step; the first real fault comes later."""
    mask = Graph(
        nodes=(
            Node("Default/Add-op1", "Add", (("x", 0), ("cst1", 0))),
            Node("Default/Softmax-op2", "Softmax", (("Default/Add-op1", 0),)),
            Node("Default/Log-op3", "Log", (("Default/Softmax-op2", 0),)),
        ),
        parameters=("x",),
        constants={"cst1": "Default--data-0"},
    )
    writer = DumpWriter(tmp_path, generation)
    writer.graph(mask)
    infinite = np.full((2, 3), -np.inf, np.float32)
    for step in (0, 1, 2):
        write_with_constants(writer, step, mask)
        for pattern in ("Add*input.1.*", "Add*output.0.*", "Softmax*input.0.*"):
            for path in writer.step(step).glob(pattern):
                np.save(path, infinite)
    spoil(one(writer.step(1), "Log*output.0.*"))
    report = search(opened(tmp_path))
    assert (only(report).node, only(report).step) == ("Default/Log-op3", 1)
    assert [searched.pair for searched in report.searches] == [(0, 1)], "a softmax absorbs the mask"
    assert report.check.coverage.by_design == 2, "the sum, at each of two steps"


@pytest.mark.parametrize("dump", NAN_DUMPS)
def test_without_a_graph_it_works_from_input_files(dump: str, dumps: Callable[[str], Path], tmp_path: Path) -> None:
    copy = copy_of_steps(dumps(dump), tmp_path / "dump", 2, 3)
    shutil.rmtree(copy / "rank_0" / "graphs")
    report = search(opened(copy))
    assert [last(origin.node).rpartition("_")[2] for origin in report.origins] == ["Log", "Div"]
    (searched,) = report.searches
    assert not searched.by_graph
    assert len(searched.spread) == 5
    assert [hit.order for hit in searched.spread] == sorted(hit.order for hit in searched.spread)
    assert report.origins[0].stack == ()


@pytest.mark.parametrize("dump", ["mindspore-2.0-multi-flow", "mindspore-2.10-multi-flow"])
def test_without_a_graph_an_input_that_was_never_dumped_is_missing(
    dump: str, dumps: Callable[[str], Path], tmp_path: Path
) -> None:
    """MindSpore does not dump what crosses graphs: a product of a clean tensor and one nobody knows is no origin."""
    copy = tmp_path / "dump"
    linked(dumps(dump), copy)
    shutil.rmtree(copy / "rank_0" / "graphs")
    session = opened(copy, "TO")
    marked = [hit.key for hit in session.check(session.pairs()).hits if hit.origin]
    assert [(key.step, key.side) for key in marked] == [(3, Side.OUTPUT)]
    assert "Sqrt-op" in marked[0].node


# -- watchpoints -----------------------------------------------------------------------------------


def test_inputs_count_whatever_the_watchpoint_selects(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0,))
    big = np.full((2, 3), 1000, np.float32)
    for pattern in ("MatMul.*.output.0.*", "ReLU.*.input.0.*", "ReLU.*.output.0.*"):
        np.save(one(writer.step(0), pattern), big)
    assert only(search(opened(tmp_path), "TL max_gt=100")).node == MATMUL
    report = search(opened(tmp_path), "TL max_gt=100 @ type=ReLU")
    assert report.origins == ()
    first = report.searches[0].first
    assert first is not None
    assert (first.node, first.start, first.inputs[0].state) == (RELU, OriginKind.TAINTED, InputState.BAD)


def test_of_several_watchpoints_the_one_that_starts_is_named(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0,))
    step = writer.step(0)
    for pattern in ("MatMul.*.input.0.*", "Parameter.x.*"):
        np.save(one(step, pattern), np.full((2, 3), 1000, np.float32))
    for pattern in ("MatMul.*.output.0.*", "ReLU.*.input.0.*"):
        np.save(one(step, pattern), np.array([[np.nan, 1000, 1000], [0, 0, 0]], np.float32))
    report = search(opened(tmp_path), "TL max_gt=100", "TO")
    matmul = next(origin for origin in report.origins if origin.node == MATMUL)
    assert [result.watchpoint for result in matmul.results] == [2]


def test_constants_and_attributes_hide_nothing(tmp_path: Path) -> None:
    """A zero axis is no dead tensor."""
    graph = Graph((Node("Default/Sum-op1", "ReduceSum", (("x", 0), ("cst1", 0))),), ("x",), {"cst1": "Default--data-0"})
    writer = DumpWriter(tmp_path)
    writer.graph(graph)
    write_with_constants(writer, 0, graph)
    np.save(one(writer.step(0), "ReduceSum.*.input.1.*"), np.array(0))
    np.save(one(writer.step(0), "ReduceSum.*.output.0.*"), np.zeros(3, np.float32))
    assert only(search(opened(tmp_path), "TZ")).node == "Default/Sum-op1"
    shutil.rmtree(tmp_path / "rank_0" / "graphs")
    assert "Sum-op1" in only(search(opened(tmp_path), "TZ @ category=other")).node


def test_the_scope_limits_what_is_looked_at_but_not_what_counts_as_input(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0,))
    for pattern in ("MatMul.*.output.0.*", "ReLU.*.input.0.*", "ReLU.*.output.0.*"):
        np.save(one(writer.step(0), pattern), NAN)
    session = opened(tmp_path)
    session.restrict(NodeQuery(text="ReLU-op2$", regex=True))
    report = search(session)
    assert report.origins == ()
    assert report.searches[0].bad == 1
    assert report.searches[0].first is not None
    assert report.searches[0].first.start is OriginKind.TAINTED


# -- ranks -----------------------------------------------------------------------------------------


def test_the_rank_with_the_earlier_step_is_first(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1, 2), ranks=(0, 1))
    spoil(one(writer.step(2, rank=0), "MatMul.*.output.*"))
    spoil(one(writer.step(1, rank=1), "ReLU.*.output.*"))
    report = search(opened(tmp_path))
    assert [(origin.rank, origin.step, origin.node) for origin in report.origins] == [(1, 1, RELU)]
    assert report.check.pairs == ((0, 0), (1, 0), (0, 1), (1, 1)), "every rank of the step is looked at"
    assert [searched.pair for searched in report.leading] == [(1, 1)]


def test_in_the_same_step_execution_order_decides(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1), ranks=(0, 1, 2))
    spoil(one(writer.step(1, rank=0), "ReLU.*.output.*"))
    spoil(one(writer.step(1, rank=2), "MatMul.*.output.*"))
    report = search(opened(tmp_path))
    assert [(origin.rank, origin.node) for origin in report.origins] == [(2, MATMUL), (0, RELU)]
    assert [searched.pair[0] for searched in report.first_searches] == [2, 0]
    assert [searched.pair[0] for searched in report.leading] == [2]


def test_the_same_tensor_in_the_same_step_makes_no_rank_first(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0,), ranks=(0, 3))
    for rank in (0, 3):
        spoil(one(writer.step(0, rank=rank), "ReLU.*.output.*"))
    report = search(opened(tmp_path))
    assert [searched.pair[0] for searched in report.leading] == [0, 3]


def test_a_rank_that_is_bad_without_an_origin_comes_after_those_that_have_one(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0,), ranks=(0, 1))
    for path in writer.step(0, rank=0).glob("*.npy"):
        if not (path.name.startswith("ReLU") and ".output." in path.name):
            path.unlink()
    np.save(one(writer.step(0, rank=0), "ReLU.*.output.*"), NAN)
    spoil(one(writer.step(0, rank=1), "ApplyMomentum.*.output.*"))
    report = search(opened(tmp_path))
    assert [(searched.pair[0], bool(searched.origins)) for searched in report.first_searches] == [(1, True), (0, False)]
    assert [searched.pair[0] for searched in report.leading] == [1]


# -- cancelling ------------------------------------------------------------------------------------


def test_a_search_that_is_stopped_says_what_it_covered(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1, 2), ranks=(0, 1))
    spoil(one(writer.step(1, rank=0), "ReLU.*.output.*"))
    session = opened(tmp_path)

    def stop(snapshot: Progress) -> None:
        if "rank 1 step 1" in snapshot.text:
            raise CancelledError("enough")

    report = session.find_origin(session.pairs(), progress=stop)
    assert (report.end, report.check.cancelled) == (SearchEnd.CANCELLED, True)
    assert report.check.pairs == ((0, 0), (1, 0), (0, 1))
    assert [(origin.rank, origin.node) for origin in report.origins] == [(0, RELU)]
    assert report.left == ((1, 1), (0, 2), (1, 2))
