"""The path upstream from a bad tensor: where it leads, over which tensors, and why it ends there."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.opened_files import opened_tensor_files
from tests.session.opened import opened
from tests.session.runs import LOG, MATMUL, MOMENTUM, REDUCE, TRAINING, write_run
from tests.sources.writer import Graph, Node
from tests.thorough import share
from tui_debugger.diagnose.origin.path import Path as OriginPath
from tui_debugger.diagnose.origin.path import PathEnd, Tracer, questions_about, trace
from tui_debugger.diagnose.origin.text import explanation, headline, way_words
from tui_debugger.diagnose.origin.upstream import HopLink
from tui_debugger.errors import CancelledError, UnreadableTensorError
from tui_debugger.model import Hit, Progress, Side, TensorKey, Watchpoint
from tui_debugger.session import Session
from tui_debugger.watch.text import parse_watch

DUMPS = ["mindspore-2.0-nan", "mindspore-2.10-nan"]


def last(name: str) -> str:
    """Last component without the operator's number, which differs between generations."""
    return name.rpartition("/")[2].rpartition("-op")[0] or name


@pytest.fixture(scope="module")
def checked(dumps: Callable[[str], Path]) -> Callable[[str], tuple[Session, list[Hit]]]:
    """A real dump with the hits of its recommended watchpoints that are NaN or Inf."""

    @cache
    def check(dump: str) -> tuple[Session, list[Hit]]:
        session = opened(dumps(dump))
        session.add_recommended()
        hits = session.check(session.pairs()).hits
        return session, [hit for hit in hits if hit.stats is not None and hit.stats.bad]

    return check


def key_of(
    session: Session, name: str, step: int, *, rank: int = 0, at: tuple[Side, int] = (Side.OUTPUT, 0)
) -> TensorKey:
    nodes = session.nodes(rank)
    (row,) = [row for row in range(len(nodes)) if nodes.names[row] == name or last(nodes.names[row]) == name]
    return TensorKey(rank, nodes.graph_of(row).name, nodes.names[row], *at, step)


def path_from(session: Session, name: str, step: int, *, rank: int = 0) -> OriginPath:
    return trace(session, key_of(session, name, step, rank=rank))


def names(path: OriginPath) -> list[tuple[int, int, str]]:
    """(rank, step, node) of the hops."""
    return [(hop.tensor.key.rank, hop.tensor.key.step, hop.tensor.key.node) for hop in path.hops]


# -- real dumps ------------------------------------------------------------------------------------


@pytest.mark.turns("dump")
@pytest.mark.parametrize("dump", DUMPS)
def test_every_bad_tensor_of_every_step_comes_from_the_logarithm_or_the_division(
    dump: str, checked: Callable[[str], tuple[Session, list[Hit]]]
) -> None:
    session, hits = checked(dump)
    assert len(hits) > 900
    assert {hit.key.step for hit in hits} == {3, 4, 5}
    tracer = Tracer(session)
    ends, seen = set(), {}
    for hit in (*share(hits, 4), *(hit for hit in hits if hit.origin)):
        path = tracer.trace(hit.key)
        assert path.ending is PathEnd.ORIGIN, headline(path)
        assert path.start.tensor.key == hit.key
        ends.add((last(path.end.origin.node), path.end.tensor.key.step, path.end.tensor.key.rank))
        steps = [hop.tensor.key.step for hop in path.hops]
        assert steps == sorted(steps, reverse=True), "it goes back in time only"
        assert len({hop.tensor.key for hop in path.hops}) == len(path.hops), "and never in a circle"
        seen.update({hop.tensor.key: hop.tensor for hop in path.hops})
        assert hit.origin == (len(path.hops) == 1), "an origin is its own end, and the only kind that is"
    assert ends == {("Log", 3, 0), ("Div", 3, 0)}
    for key, row in seen.items():
        values = session.read(key)
        assert row.stats is not None
        assert (row.stats.nan, row.stats.inf) == (int(np.isnan(values).sum()), int(np.isinf(values).sum()))
        assert row.stats.bad
        finite = values[np.isfinite(values)].astype(np.float64)
        assert row.stats.minimum == (float(finite.min()) if len(finite) else None)


@pytest.mark.turns("dump")
@pytest.mark.parametrize("dump", DUMPS)
def test_every_hop_went_into_the_one_before_it(dump: str, checked: Callable[[str], tuple[Session, list[Hit]]]) -> None:
    session, hits = checked(dump)
    nodes = session.nodes(0)
    for hit in hits[:: max(len(hits) // 40, 1)]:
        path = trace(session, hit.key)
        for before, hop in zip(path.hops, path.hops[1:], strict=False):
            into = nodes.find(hop.way.into, hop.tensor.key.graph)
            feeder = [session.producers(0, into)[slot][0] for slot in hop.way.slots]
            assert hop.row in feeder
            earlier = hop.tensor.key.step < before.tensor.key.step
            assert earlier == (hop.way.link in (HopLink.WEIGHT, HopLink.BEFORE)) or hop.way.link is HopLink.UPDATE
            assert all(branch.tensor.stats is not None and branch.tensor.stats.bad for branch in before.others)


@pytest.mark.turns("dump")
@pytest.mark.parametrize("dump", DUMPS)
def test_a_weight_that_is_bad_leads_through_its_update_to_the_gradient(
    dump: str, checked: Callable[[str], tuple[Session, list[Hit]]]
) -> None:
    session, _ = checked(dump)
    path = path_from(session, "head.bias", 5)
    links = [hop.way.link for hop in path.hops[:4]]
    assert links == [HopLink.START, HopLink.BEFORE, HopLink.BEFORE, HopLink.UPDATE]
    assert [hop.tensor.key.step for hop in path.hops[:4]] == [5, 4, 3, 3]
    assert last(path.hops[3].tensor.key.node) == "BiasAddGrad"
    assert "Adam" in way_words(path.hops[1])
    assert "which wrote it" in way_words(path.hops[3])


@pytest.mark.turns("dump")
@pytest.mark.parametrize("dump", DUMPS)
def test_the_end_says_what_the_inputs_have_to_do_with_it(
    dump: str, checked: Callable[[str], tuple[Session, list[Hit]]]
) -> None:
    session, _ = checked(dump)
    (said,) = explanation(path_from(session, "Log", 3))
    assert said.startswith("the logarithm of 0: 1 of 4 elements of in:0 is 0, where the logarithm gives -Inf")
    division = key_of(session, next(h for h in session.nodes(0).names if "RowNorm/Div-op" in h), 3)
    (said,) = explanation(trace(session, division))
    assert said.startswith("division by 0: 8 of ")
    assert "the denominator in:1 are 0; NaN without Inf means that 0 is divided by 0 there" in said


@pytest.mark.turns("dump")
@pytest.mark.parametrize("dump", DUMPS)
def test_a_clean_tensor_is_said_to_be_clean_and_names_the_nearest_origin(
    dump: str, checked: Callable[[str], tuple[Session, list[Hit]]], dumps: Callable[[str], Path]
) -> None:
    session, _ = checked(dump)
    path = path_from(session, "Log", 2)
    assert (path.ending, len(path.hops)) == (PathEnd.CLEAN, 1)
    assert path.nearest is not None
    assert (last(path.nearest.tensor.key.node), path.nearest.tensor.key.step) == ("Log", 3)
    assert path_from(opened(dumps(dump)), "Log", 2).nearest is None, "nothing was checked"


def test_only_what_is_on_the_way_is_read(dumps: Callable[[str], Path]) -> None:
    session = opened(dumps("mindspore-2.0-nan"))
    (end,) = [name for name in session.nodes(0).names if name.endswith("/Mul-op383")]
    with opened_tensor_files() as files:
        path = path_from(session, end, 3)
    assert len(path.hops) == 3
    assert {Path(file).parent.name for file in files} <= {"3", "constants"}
    assert len(set(files)) < 16
    with opened_tensor_files() as files:
        assert path_from(session, end, 3) == path
    assert files == [], "what was measured is known"


def test_it_can_be_stopped(dumps: Callable[[str], Path]) -> None:
    session = opened(dumps("mindspore-2.0-nan"))
    told: list[Progress] = []

    def stop(progress: Progress) -> None:
        told.append(progress)
        if len(told) > 5:
            raise CancelledError("stopped")

    with pytest.raises(CancelledError):
        trace(session, key_of(session, "head.bias", 5), progress=stop)
    assert any("hops" in progress.text for progress in told)


def test_a_node_that_is_not_there_is_refused(dumps: Callable[[str], Path]) -> None:
    session = opened(dumps("mindspore-2.0-nan"))
    with pytest.raises(UnreadableTensorError, match="no such node"):
        trace(session, TensorKey(0, "kernel_graph_0", "nobody", Side.OUTPUT, 0, 3))


# -- other questions than NaN ------------------------------------------------------------------------


def test_the_same_watchpoint_is_asked_upstream(dumps: Callable[[str], Path]) -> None:
    session = opened(dumps("mindspore-2.0-mlp"))
    question = Watchpoint(1, *parse_watch("TZ @ category=tensor"))
    tracer, bad = Tracer(session, question), []
    nodes = session.nodes(0)
    table = session.source.tensors(0, 0)
    for index in range(len(table)):
        row = int(table.node[index])
        key = TensorKey(
            0, nodes.graph_of(row).name, nodes.names[row], Side(int(table.side[index])), int(table.slot[index]), 0
        )
        if table.side[index] == Side.OUTPUT and tracer.state(key).value == "bad":
            bad.append(key)
    assert bad
    for key in bad:
        path = tracer.trace(key)
        assert all(not session.read(hop.tensor.key).any() for hop in path.hops), "all of them are zero"
        if path.ending is PathEnd.ORIGIN:
            inputs = [
                feeder.row.key
                for feeder in path.end.origin.inputs
                if feeder.state.value == "clean" and not feeder.constant
            ]
            assert all(session.read(key).any() for key in inputs)


def test_a_hit_asks_what_it_was_found_for(checked: Callable[[str], tuple[Session, list[Hit]]]) -> None:
    session, hits = checked("mindspore-2.0-nan")
    nan = next(hit for hit in hits if len({result.condition for result in hit.results}) > 1)
    first, *others = questions_about(session, nan)
    assert first.condition == "tensor_overflow"
    assert {each.condition for each in others} <= {result.condition for result in nan.results}
    assert [each.condition for each in questions_about(session, None)] == ["tensor_overflow"]


# -- over ranks ------------------------------------------------------------------------------------


def test_what_another_rank_sent_is_followed_there(tmp_path: Path) -> None:
    bad = {(0, 0): {REDUCE, MOMENTUM, "w"}, (1, 0): {LOG, REDUCE, MOMENTUM, "w"}}
    path = path_from(opened(write_run(tmp_path, bad, ranks=(0, 1))), "w", 0)
    assert names(path) == [(0, 0, "w"), (0, 0, REDUCE), (1, 0, LOG)]
    assert [hop.way.link for hop in path.hops] == [HopLink.START, HopLink.UPDATE, HopLink.SENT]
    assert path.ending is PathEnd.ORIGIN
    assert "sent by rank 1" in way_words(path.end)
    assert "rank 1" in headline(path)


def test_of_several_ranks_the_one_where_it_began_first_is_followed(tmp_path: Path) -> None:
    later = {LOG, REDUCE, MOMENTUM, "w"}
    bad = {(0, 0): later, (1, 0): {MATMUL, *later}, (2, 0): later}
    path = path_from(opened(write_run(tmp_path, bad, ranks=(0, 1, 2))), "w", 0)
    assert names(path) == [(0, 0, "w"), (0, 0, REDUCE), (1, 0, LOG), (1, 0, MATMUL)]
    others = [(branch.tensor.key.rank, branch.tensor.key.node) for branch in path.hops[1].others]
    assert others == [(0, LOG), (2, LOG)]


def test_an_exchange_of_clean_values_is_itself_the_origin(tmp_path: Path) -> None:
    bad = {(rank, 0): {REDUCE, MOMENTUM, "w"} for rank in (0, 1)}
    path = path_from(opened(write_run(tmp_path, bad, ranks=(0, 1))), "w", 0)
    assert (names(path)[-1], path.ending) == ((0, 0, REDUCE), PathEnd.ORIGIN)
    assert [(feeder.row.key.rank, feeder.state.value) for feeder in path.end.peers] == [(1, "clean")]
    assert explanation(path) == ["what rank 1 put in is clean as well"]


def test_a_dump_of_one_rank_says_that_another_may_have_sent_it(tmp_path: Path) -> None:
    path = path_from(opened(write_run(tmp_path, {(0, 0): {REDUCE, MOMENTUM, "w"}})), "w", 0)
    assert path.ending is PathEnd.RANKS
    assert "no other rank here has such a node" in explanation(path)[0]


def test_what_another_rank_put_in_and_was_not_dumped_is_looked_through(tmp_path: Path) -> None:
    bad = {(0, 0): {REDUCE, MOMENTUM, "w"}, (1, 0): {MATMUL, LOG, REDUCE, MOMENTUM, "w"}}
    write_run(tmp_path, bad, ranks=(0, 1))
    for pattern in ("Log.*.output.*", "AllReduce.*.input.*"):
        for file in (tmp_path / "rank_1").rglob(pattern):
            file.unlink()
    path = path_from(opened(tmp_path), "w", 0)
    assert names(path) == [(0, 0, "w"), (0, 0, REDUCE), (1, 0, MATMUL)]
    assert (path.end.way.link, path.end.way.hidden) == (HopLink.SENT, (LOG,))
    for file in (tmp_path / "rank_1").rglob("MatMul.*.output.*"):
        np.save(file, np.ones((2, 3), np.float32))
    for file in (tmp_path / "rank_1").rglob("Log.*.input.*"):
        np.save(file, np.ones((2, 3), np.float32))
    path = path_from(opened(tmp_path), "w", 0)
    assert (path.ending, path.suspects) == (PathEnd.NOT_DUMPED, (LOG,))
    assert "Log-op2:in:0 of step 0 of rank 1" in "\n".join(explanation(path))


def test_what_was_received_is_found_at_the_rank_that_sent_it(tmp_path: Path) -> None:
    sending = Graph(
        (Node("Default/Log-op1", "Log", (("x", 0),)), Node("Default/Send-op2", "Send", (("Default/Log-op1", 0),))),
        ("x",),
    )
    receiving = Graph(
        (Node("Default/Receive-op1", "Receive"), Node("Default/Mul-op2", "Mul", (("Default/Receive-op1", 0),))), ("y",)
    )
    bad = {(0, 0): {"Default/Log-op1", "Default/Send-op2"}, (1, 0): {"Default/Receive-op1", "Default/Mul-op2"}}
    write_run(tmp_path, bad, ranks=(0, 1), graph_of=lambda rank: (sending, receiving)[rank])
    path = path_from(opened(tmp_path), "Default/Mul-op2", 0, rank=1)
    assert names(path) == [(1, 0, "Default/Mul-op2"), (1, 0, "Default/Receive-op1"), (0, 0, "Default/Log-op1")]
    assert not path.end.way.certain, "another tensor of the same kind"
    assert path.ending is PathEnd.ORIGIN
    (sent,) = (tmp_path / "rank_0").rglob("Log.*.output.0.*")
    (received,) = (tmp_path / "rank_1").rglob("Receive.*.output.0.*")
    np.save(received, np.load(sent))
    assert path_from(opened(tmp_path), "Default/Mul-op2", 0, rank=1).end.way.certain, "the very same values"


# -- over steps --------------------------------------------------------------------------------------


@pytest.mark.parametrize("inputs", [True, False])
def test_a_weight_leads_into_the_step_that_spoilt_it(tmp_path: Path, inputs: bool) -> None:
    bad = {
        (0, 1): {LOG, REDUCE, MOMENTUM, "w"},
        (0, 2): {MATMUL, LOG, REDUCE, MOMENTUM, "w", "accum.w"},
    }
    session = opened(write_run(tmp_path, bad, steps=(0, 1, 2), inputs=inputs))
    path = path_from(session, MATMUL, 2)
    assert names(path)[:4] == [(0, 2, MATMUL), (0, 1, "w"), (0, 1, REDUCE), (0, 1, LOG)]
    assert path.hops[1].way.link is HopLink.WEIGHT
    assert "value after step 1" in way_words(path.hops[1])


def test_what_was_bad_from_the_beginning_ends_there(tmp_path: Path) -> None:
    everything = {MATMUL, LOG, REDUCE, MOMENTUM, "w"}
    session = opened(write_run(tmp_path, {(0, 4): everything, (0, 5): everything}, steps=(4, 5)))
    table = session.source.tensors(0, 4)
    row = session.nodes(0).find(MATMUL)
    before = Path(table.spec(table.find(row, Side.INPUT, 1)).path)
    np.save(before, np.full((2, 3), np.nan, np.float32))
    path = path_from(opened(tmp_path), LOG, 5)
    assert path.ending is PathEnd.FIRST_STEP
    assert "bad before the first dumped step" in headline(path)


def test_bad_data_comes_from_outside(tmp_path: Path) -> None:
    path = path_from(opened(write_run(tmp_path, {(0, 0): {"x", MATMUL, LOG}})), LOG, 0)
    assert names(path)[-1] == (0, 0, "x")
    assert path.ending is PathEnd.SOURCE


# -- what was not dumped -----------------------------------------------------------------------------


def test_tensors_that_were_not_dumped_are_looked_through(tmp_path: Path) -> None:
    session = opened(write_run(tmp_path, {(0, 0): {MATMUL, LOG, REDUCE}}, hidden={LOG}, ranks=(0, 1)))
    path = path_from(session, REDUCE, 0)
    assert names(path) == [(0, 0, REDUCE), (0, 0, MATMUL)]
    assert path.end.way.hidden == (LOG,)
    assert "through Log-op2 (not dumped)" in way_words(path.end)


def test_where_the_path_is_lost_both_ends_and_what_to_dump_are_said(tmp_path: Path) -> None:
    graph = Graph((*TRAINING.nodes[:2], Node("Default/Abs-op3", "Abs", ((LOG, 0),))), TRAINING.parameters)
    session = opened(write_run(tmp_path, {(0, 0): {"Default/Abs-op3"}}, graph=graph, hidden={LOG}))
    path = path_from(session, "Default/Abs-op3", 0)
    assert path.ending is PathEnd.NOT_DUMPED
    assert path.suspects == (LOG,)
    assert [row.key.node for row in path.clean] == [MATMUL]
    said = "\n".join(explanation(path))
    assert "bad end: Abs-op3:out:0 of step 0" in said
    assert "clean end: MatMul-op1" in said
    assert "not dumped: Log-op2" in said
    assert "dump" in said.splitlines()[-1]


def test_a_tensor_that_was_not_dumped_cannot_be_judged(tmp_path: Path) -> None:
    path = path_from(opened(write_run(tmp_path, {(0, 0): {REDUCE}}, hidden={LOG})), LOG, 0)
    assert path.ending is PathEnd.NO_VALUE
    assert "was not dumped" in headline(path)


# -- weights that do not change --------------------------------------------------------------------


@pytest.mark.parametrize("dump", ["mindspore-2.0-mlp", "mindspore-2.10-mlp"])
def test_a_weight_without_a_gradient_leads_to_the_dead_activation(dump: str, dumps: Callable[[str], Path]) -> None:
    """A learning rate that did not change is no cause of that."""
    session = opened(dumps(dump))
    path = trace(session, weight_at(session, "fc3.weight", 1), NOT_CHANGED)
    assert path.ending is PathEnd.ORIGIN
    assert "act3-ReLU" in path.end.origin.node
    assert not any("learning_rate" in hop.tensor.key.node for hop in path.hops)
    (reason,) = path.reasons
    assert reason.startswith("all elements of the gradient that SGD-op")


@pytest.mark.parametrize("dump", ["mindspore-2.0-mlp", "mindspore-2.10-mlp"])
def test_a_learning_rate_of_0_keeps_a_weight(dump: str, dumps: Callable[[str], Path]) -> None:
    session = opened(dumps(dump))
    path = trace(session, weight_at(session, "fc2.weight", 1), NOT_CHANGED)
    assert [hop.tensor.key.node for hop in path.hops] == ["fc2.weight", "learning_rate_group_0"]
    assert path.ending is PathEnd.SOURCE
    assert "the learning rate that SGD-op" in path.reasons[0]


def test_a_weight_of_a_graph_that_only_reads_it_is_not_frozen(dumps: Callable[[str], Path]) -> None:
    """Evaluation (graph 1) ran at 2, 3, 6: training (graph 0) in between only before the last one."""
    session = opened(dumps("mindspore-2.0-multi-eval"))
    early, late = (weight_at(session, "_backbone.fc2.weight", step, "kernel_graph_1") for step in (3, 6))
    path = trace(session, early, NOT_CHANGED)
    assert path.ending is PathEnd.FROZEN
    (reason,) = path.reasons
    assert reason.startswith("nothing updated the weight in between: ApplyMomentum-op111 of kernel_graph_0 updates it;")
    path = trace(session, late, NOT_CHANGED)
    assert path.reasons == ("the learning rate that ApplyMomentum-op111 used is 0",)


@pytest.mark.parametrize("dump", ["mindspore-2.0-multi-eval", "mindspore-2.10-multi-eval"])
def test_the_recommended_watchpoints_judge_a_weight_where_it_is_updated(
    dump: str, dumps: Callable[[str], Path]
) -> None:
    session = opened(dumps(dump))
    session.add_recommended()
    hits = session.check(session.pairs()).hits
    kept = {hit.key for hit in hits.chosen(hits.found_by({"weight_not_changed", "weight_change_too_small"}))}
    assert {(key.node, key.graph[-1]) for key in kept} == {("_backbone.fc2.weight", "0")}


NOT_CHANGED = Watchpoint(1, *parse_watch("WNC @ category=weight"))


def weight_at(session: Session, name: str, step: int, graph: str | None = None) -> TensorKey:
    nodes = session.nodes(0)
    return nodes.key(0, step, nodes.find(name, graph))
