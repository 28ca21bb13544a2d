"""What a tensor was made from and what uses it: against the graph, over steps, with what watchpoints say."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.session.opened import opened
from tests.session.runs import LOG, MATMUL, MOMENTUM, REDUCE, write_run
from tests.sources.writer import Graph, Node
from tui_debugger.diagnose.relations import (
    MOST_OF_A_HOP,
    Related,
    RelationKind,
    Relations,
    consumers,
    measured,
    neighbourhood,
    producers,
    relations,
    relations_lines,
    sketch_notes,
    sketch_of,
    tie_words,
    watch_words,
)
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.graph.table import real_consumers, real_inputs
from tui_debugger.model import Side, TensorKey
from tui_debugger.session import Session

DUMPS = ["mindspore-2.0-nan", "mindspore-2.10-nan"]


@pytest.fixture(scope="module")
def checked(dumps: Callable[[str], Path]) -> Callable[[str], Session]:
    @cache
    def check(dump: str) -> Session:
        session = opened(dumps(dump))
        session.add_recommended()
        session.check(session.pairs())
        return session

    return check


def key_of(session: Session, name: str, step: int, side: Side = Side.OUTPUT, slot: int = 0) -> TensorKey:
    nodes = session.nodes(0)
    row = next(row for row in range(len(nodes)) if nodes.names[row] == name)
    return TensorKey(0, nodes.graph_of(row).name, name, side, slot, step)


def related_trees(session: Session, name: str, step: int) -> Relations:
    return relations(session, key_of(session, name, step))


def short(related: Related) -> tuple[str, int, RelationKind]:
    return related.key.node, related.key.step, related.tie


@pytest.mark.parametrize("dump", DUMPS)
def test_every_operator_has_the_producers_and_consumers_of_the_graph(
    dump: str, checked: Callable[[str], Session]
) -> None:
    session = checked(dump)
    nodes, flow = session.nodes(0), session.flow(0)
    asked = 0
    for row in range(len(nodes)):
        name = nodes.names[row]
        if nodes.structural[row] or flow.table(3).find(row, Side.OUTPUT, 0) < 0 or flow.updated(row):
            continue
        found = related_trees(session, name, 3)
        asked += 1
        feeders = {held for held, _ in real_inputs(nodes, row)}
        assert {each.row for each in found.producers} == feeders
        readers = {reader for reader, _ in real_consumers(nodes, row, 0)}
        between = {
            nodes.find(each.node, found.centre.key.graph)
            for each in found.consumers
            if each.tie is not RelationKind.WRITTEN
        }
        assert between == readers
        assert sum(len(each.slots) for each in found.producers) == len(real_inputs(nodes, row))
    assert asked > 150


@pytest.mark.parametrize("dump", DUMPS)
def test_statistics_are_those_of_the_values(dump: str, checked: Callable[[str], Session]) -> None:
    session = checked(dump)
    log = next(name for name in session.nodes(0).names if "/Log-op" in name)
    found = related_trees(session, log, 3)
    assert all(each.tensor.stats is None for each in found.producers), "listed, not measured"
    for each in measured(session, [*found.producers, *found.consumers]):
        values = session.read(each.tensor.key)
        assert each.tensor.stats is not None
        assert each.tensor.stats.nan == int(np.isnan(values).sum())
        assert each.tensor.stats.maximum == (
            float(values[np.isfinite(values)].max()) if np.isfinite(values).any() else None
        )


def test_a_hit_and_the_watchpoints_that_cover_it_are_said(checked: Callable[[str], Session]) -> None:
    session = checked("mindspore-2.0-nan")
    log = next(name for name in session.nodes(0).names if "/Log-op" in name)
    found = related_trees(session, log, 3)
    assert found.centre.hit is not None
    assert found.centre.hit.origin
    assert watch_words(found.centre) == "✗TO"
    assert [watch_words(each) for each in found.producers] == ["TO"]
    weight = relations(session, key_of(session, "blocks.0.ln1.gamma", 2)).centre
    assert watch_words(weight).split() == ["WCL", "WNC", "TO"]


def test_a_weight_is_read_in_the_next_step_and_made_from_gradient_and_itself(tmp_path: Path) -> None:
    session = opened(write_run(tmp_path, {}, steps=(0, 1, 2)))
    found = related_trees(session, "w", 1)
    assert found.maker == MOMENTUM
    assert [short(each) for each in found.producers] == [
        ("w", 0, RelationKind.BEFORE),
        ("accum.w", 0, RelationKind.UPDATE),
        ("rate", 1, RelationKind.UPDATE),
        (REDUCE, 1, RelationKind.UPDATE),
    ]
    assert [short(each) for each in found.consumers] == [
        (MATMUL, 2, RelationKind.WEIGHT),
        ("w", 2, RelationKind.BEFORE),
    ]
    assert tie_words(found.consumers[0], upstream=False) == "in:1 of MatMul-op1, which reads it in step 2"
    assert tie_words(found.producers[0], upstream=True) == "itself after step 0, before ApplyMomentum-op4 wrote it"
    reader = related_trees(session, MATMUL, 2)
    assert [short(each) for each in reader.producers] == [("x", 2, RelationKind.INPUT), ("w", 1, RelationKind.WEIGHT)]
    assert tie_words(reader.producers[1], upstream=True) == "in:1 of MatMul-op1: value after step 1"


def test_a_weight_is_not_read_across_steps_that_were_not_dumped(tmp_path: Path) -> None:
    """Step 2 ran, too, and left another value."""
    session = opened(write_run(tmp_path, {}, steps=(0, 1, 3)))
    reader = related_trees(session, MATMUL, 3)
    weight = reader.producers[1]
    assert short(weight) == ("w", 2, RelationKind.INPUT)
    assert (weight.tensor.key.step, weight.tensor.key.side) == (3, Side.INPUT), "what went in was recorded there"
    readers = related_trees(session, "w", 1).consumers
    assert [(each.tensor.key.step, each.tensor.index) for each in readers] == [(2, -1), (2, -1)]
    assert tie_words(readers[0], upstream=False) == "in:1 of MatMul-op1, which reads it in the next step"


def test_after_the_last_step_the_readers_are_named_without_values(tmp_path: Path) -> None:
    found = related_trees(opened(write_run(tmp_path, {})), "w", 0)
    assert [(each.tensor.index, each.ahead) for each in found.consumers] == [(-1, True)]
    assert (
        tie_words(found.consumers[0], upstream=False) == "in:1 of MatMul-op1, which reads it after the last dumped step"
    )
    assert found.producers[0].tensor.index >= -1


def test_without_edges_nothing_is_said_of_what_makes_and_uses_a_tensor(tmp_path: Path) -> None:
    (tmp_path / "step_0").mkdir()
    np.save(tmp_path / "step_0" / "a.npy", np.ones(3))
    session = opened(tmp_path)
    found = relations(session, key_of(session, "a", 0))
    assert (found.producers, found.consumers, found.edges) == ((), (), False)
    lines = relations_lines(found)
    said = "not known: nothing in the dump tells what is made from what"
    assert [line.strip() for line in lines if "from:" in line or "used by:" in line] == [
        f"made by a from: {said}",
        f"used by: {said}",
    ]


def test_an_optimizers_node_names_what_it_writes_and_a_gradient_what_is_written_with_it(tmp_path: Path) -> None:
    session = opened(write_run(tmp_path, {}, steps=(0, 1)))
    assert [short(each) for each in related_trees(session, MOMENTUM, 1).consumers] == [
        ("w", 1, RelationKind.WRITTEN),
        ("accum.w", 1, RelationKind.WRITTEN),
    ]
    (written,) = related_trees(session, REDUCE, 1).consumers
    assert short(written) == ("w", 1, RelationKind.UPDATE)
    assert tie_words(written, upstream=False) == "written with it by ApplyMomentum-op4 (in:3)"


def test_a_tensor_that_goes_in_twice_is_one_line(tmp_path: Path) -> None:
    graph = Graph((Node(LOG, "Log", (("x", 0),)), Node("Default/Mul-op9", "Mul", ((LOG, 0), (LOG, 0)))), ("x",))
    session = opened(write_run(tmp_path, {}, graph=graph))
    (producer,) = related_trees(session, "Default/Mul-op9", 0).producers
    assert producer.slots == (0, 1)
    (consumer,) = related_trees(session, LOG, 0).consumers
    assert (consumer.tensor.key.node, consumer.slots) == ("Default/Mul-op9", (0, 1))


def test_an_input_file_leads_to_what_was_written_and_to_its_node(tmp_path: Path) -> None:
    session = opened(write_run(tmp_path, {}))
    found = relations(session, key_of(session, LOG, 0, Side.INPUT))
    assert [short(each) for each in found.producers] == [(MATMUL, 0, RelationKind.COPY)]
    assert [short(each) for each in found.consumers] == [(LOG, 0, RelationKind.INPUT)]


def test_what_was_not_dumped_is_there_without_values(tmp_path: Path) -> None:
    session = opened(write_run(tmp_path, {}, hidden={MATMUL}))
    (producer,) = related_trees(session, LOG, 0).producers
    assert (producer.key.node, producer.tensor.index) == (MATMUL, -1)
    assert "not dumped" in "\n".join(relations_lines(related_trees(session, LOG, 0)))


def test_hundreds_of_consumers_are_all_there(tmp_path: Path) -> None:
    many = tuple(Node(f"Default/Neg-op{number}", "Neg", (("x", 0),)) for number in range(300))
    session = opened(write_run(tmp_path, {}, graph=Graph(many, ("x",)), inputs=False))
    found = related_trees(session, "x", 0)
    assert len(found.consumers) == 300
    assert len({each.tensor.key.node for each in measured(session, found.consumers) if each.tensor.stats}) == 300


def test_walking_down_and_up_again_comes_back(checked: Callable[[str], Session]) -> None:
    session = checked("mindspore-2.0-nan")
    log = next(name for name in session.nodes(0).names if "/Log-op" in name)
    for consumer in consumers(session, key_of(session, log, 3)):
        assert log in {each.key.node for each in producers(session, consumer.key)}


def test_a_node_that_is_not_there_is_refused(checked: Callable[[str], Session]) -> None:
    with pytest.raises(UnreadableTensorError, match="no such node"):
        relations(checked("mindspore-2.0-nan"), TensorKey(0, "kernel_graph_0", "nobody", Side.OUTPUT, 0, 3))


# -- some hops around ------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["Log-op381", "Mul-op383", "Add-op440", "head.weight", "Adam-op573", "learning_rate"])
def test_the_graph_around_has_every_edge_between_what_it_shows_and_no_other(
    dumps: Callable[[str], Path], end: str
) -> None:
    session = opened(dumps("mindspore-2.0-nan"))
    nodes = session.nodes(0)
    row = next(row for row in range(len(nodes)) if nodes.names[row].rpartition("/")[2] == end)
    around = neighbourhood(session, nodes.key(0, 3, row))
    number = {each.key: at for at, each in enumerate(around.tensors)}
    assert len(number) == len(around.tensors), "each tensor once"
    expected = {
        (number[source.key], at, ",".join(map(str, source.slots)))
        for at, each in enumerate(around.tensors)
        if not each.ahead
        for source in producers(session, each.key)
        if source.key in number
    }
    drawn = {(edge.source, edge.target, edge.label) for edge in around.edges}
    written = {
        (at, number[target.key], ",".join(map(str, target.slots)))
        for at, each in enumerate(around.tensors)
        if not each.ahead
        for target in consumers(session, each.key)
        if target.tie is RelationKind.WRITTEN and target.key in number
    }
    assert expected <= drawn <= expected | written
    for sign, look in ((-1, producers), (1, consumers)):
        one = {each.key for each in look(session, around.tensors[0].key)}
        shown = {each.key for each, hop in zip(around.tensors, around.hops, strict=True) if hop == sign}
        others = {each.key for each, hop in zip(around.tensors, around.hops, strict=True) if hop == -sign}
        assert shown <= one
        assert len(one - others) == len(shown) + around.hidden.get(sign, 0)


def test_findings_stay_where_there_are_too_many(tmp_path: Path) -> None:
    many = tuple(Node(f"Default/Neg-op{number}", "Neg", (("x", 0),)) for number in range(40))
    bad = {(0, 0): {"Default/Neg-op37"}}
    session = opened(write_run(tmp_path, bad, graph=Graph(many, ("x",)), inputs=False), "TO")
    session.check(session.pairs())
    nodes = session.nodes(0)
    around = neighbourhood(session, nodes.key(0, 0, nodes.find("x")))
    assert len(around.tensors) == 1 + MOST_OF_A_HOP
    assert around.hidden == {1: 40 - MOST_OF_A_HOP}
    assert "Default/Neg-op37" in {each.key.node for each in around.tensors}
    drawn = sketch_of(around, 40, 9)
    assert any("◆" in row for row in drawn.rows), drawn.rows
    assert sketch_notes(around, drawn) == []
