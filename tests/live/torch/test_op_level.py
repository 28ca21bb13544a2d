"""Level "op": every operator call, with the line that made it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.live.conftest import Happened
from tests.live.torch.driving import Driven
from tui_debugger.graph.table import real_inputs
from tui_debugger.live.wire import Event, Phase
from tui_debugger.model import Category

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

import tui_debugger.torch as tdbg  # noqa: E402

Train = Callable[..., Driven]


def test_a_hit_stops_at_the_operator_with_its_line(train: Train) -> None:
    run = train("plain", steps=4, spoil=2, level="op")
    run.watch(("tensor_overflow", {}, "^(?!Gradients)"))
    run.run(None)
    assert run.stop.step == 2
    assert run.stop.node.startswith("blocks/1/feed/0/")
    (hit,) = run.training.hits
    assert hit.node == run.stop.node
    values = run.value(hit.node)
    assert values is not None
    row = run.table.find(hit.node)
    frames = run.table.stack(row)
    assert any(frame.path.endswith("programs.py") and frame.code == "return x + self.feed(x)" for frame in frames)
    assert any("def " not in frame.code and "model" in frame.code for frame in frames)


def test_hits_after_the_first_one_come_together_at_the_end_of_the_step_when_nobody_stops(
    train: Train, happened: Happened
) -> None:
    run = train("plain", steps=4, spoil=3, level="op")
    run.watch(("tensor_overflow", {}, "."))
    run.run(3)
    run.training.run(None, stop_on_hit=False)
    happened.wait(Event.HITS, 2)
    nodes = {hit.node for hit in run.training.hits}
    assert len(nodes) > 20
    assert any(node.startswith("Gradients/") for node in nodes)
    happened.until(lambda: run.training.phase is Phase.DONE)
    assert happened.count(Event.HITS) == 2, "the first operator, and all others"
    assert run.stop.ended == 3


def test_the_backward_pass_belongs_to_the_forward_operators(train: Train) -> None:
    run = train("plain", steps=2, level="op")
    table = run.table
    backward = [row for row in range(len(table)) if table.names[row].startswith("Gradients/blocks/1/feed/1/")]
    assert backward
    assert {table.category_of(row) for row in backward} == {Category.GRADIENT}
    assert any(frame.forward for row in backward for frame in table.stack(row))
    relu = table.find("blocks/1/feed/1/Relu")
    assert table.category_of(relu) is Category.ACTIVATION
    (source,) = [each for each, _ in real_inputs(table, relu)]
    assert table.names[source].startswith("blocks/1/feed/0/")


def test_runs_to_an_operator_and_to_the_next_one(train: Train) -> None:
    run = train("plain", steps=3, level="op")
    run.run()
    run.run_to_node("blocks/0/feed/1/Relu")
    assert run.stop.node == "blocks/0/feed/1/Relu"
    assert run.value("blocks/0/feed/1/Relu") is not None
    run.run_to_node()
    assert run.stop.node.startswith("blocks/0/feed/")
    assert run.stop.node != "blocks/0/feed/1/Relu"
    run.run()
    assert (run.stop.step, run.stop.node) == (1, "")


def test_from_before_the_first_step_it_runs_to_an_operator_of_that_step(train: Train) -> None:
    run = train("plain", steps=2, level="op")
    run.run_to_node()
    assert (run.stop.step, run.stop.node) == (0, "Randint")
    run.run_to_node("blocks/0/feed/1/Relu")
    assert (run.stop.step, run.stop.node) == (0, "blocks/0/feed/1/Relu")
    assert run.value("blocks/0/feed/1/Relu") is not None
    run.run()
    assert (run.stop.step, run.stop.node) == (0, "")


def test_on_the_way_through_the_first_step_what_is_bad_stops_it(train: Train) -> None:
    run = train("plain", steps=2, spoil=0, level="op")
    run.watch(("tensor_overflow", {}, "^blocks"))
    run.run_to_node("Loss")
    assert run.stop.step == 0
    assert run.stop.node.startswith("blocks/1/feed/0/")
    assert {hit.node for hit in run.training.hits} == {run.stop.node}
    bad = run.stop.node
    run.run()
    assert (run.stop.step, run.stop.node) == (0, "")
    assert bad in run.hits()


@pytest.mark.parametrize("kind", ["reentrant", "not reentrant"])
def test_recomputed_operators_are_not_recorded_again(train: Train, kind: str) -> None:
    run = train("checkpointed", steps=2, kind=kind, level="op")
    assert not [name for name in run.table.names if name.startswith("blocks/") and "Relu#" in name]
    assert "blocks/1/feed/1/Relu" in run.table.names


COMPILED: dict[str, Callable[[Any], Any]] = {
    "the model": lambda model: torch.compile(model, backend="eager"),
    "a part": lambda model: setattr(model, "1", torch.compile(model[1], backend="eager")) or model,
    "the model in place": lambda model: model.compile(backend="eager") or model,
    "a part in place": lambda model: model[1].compile(backend="eager") or model,
}


@pytest.mark.parametrize("what", COMPILED)
def test_operators_have_the_names_of_the_modules_inside_what_was_compiled(tmp_path: Path, what: str) -> None:
    def seen(*, compiled: bool) -> tuple[set[str], set[str]]:
        inner = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(8, 4))
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), inner)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        run = COMPILED[what](model) if compiled else model
        with tdbg.attach(run, optimizer, "", level="op", flight=tdbg.Flight(tmp_path)) as handle:
            for _ in range(2):
                run(torch.ones(2, 4)).sum().backward()
                optimizer.step()
            assert not handle.unrecorded
            structure = handle._recording.structure  # type: ignore[attr-defined]
            return {*structure.nodes}, {*structure.inputs}

    try:
        nodes, inputs = seen(compiled=True)
    finally:
        torch._dynamo.reset()
    assert {"1/0/Relu", "1/1/Addmm", "Gradients/1/1/Mm"} <= nodes
    assert (nodes, inputs) == seen(compiled=False)
