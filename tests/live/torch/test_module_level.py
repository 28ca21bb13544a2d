"""A real training at module level: stops, hits, values, in another process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.live.torch.driving import Driven
from tui_debugger.graph.table import real_inputs
from tui_debugger.live.graph import wire_params
from tui_debugger.live.wire import START, Event, RemoteWatchpoint
from tui_debugger.model import Category, Watchpoint
from tui_debugger.watch.condition_table import CONDITIONS, validate

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

import tui_debugger.torch as tdbg  # noqa: E402 - imports torch
from tests.live.torch import programs  # noqa: E402 - likewise

Train = Callable[..., Driven]


def test_a_planted_nan_is_found_at_its_module_and_step(train: Train) -> None:
    run = train("plain", steps=5, spoil=3)
    assert run.stop.step == START
    run.watch(more=run.recommended())
    run.run(None)
    assert run.stop.step == 3
    first = run.training.hits[0]
    assert (first.node, first.slot, first.stats is not None) == ("blocks/1/feed/0/Linear", 0, True)
    hits = run.hits()
    assert not any(name.startswith("blocks/0/") for name in hits)
    assert {"blocks/1/feed/1/ReLU", "head/Linear", "Gradients/head/weight", "blocks.1.feed.0.weight"} <= set(hits)
    values = run.value("blocks/1/feed/0/Linear")
    assert values is not None
    assert first.stats is not None
    assert (first.stats.nan, first.stats.count) == (np.isnan(values).sum(), values.size)


def test_a_healthy_training_is_silent(train: Train) -> None:
    run = train("plain", steps=4)
    run.watch(more=run.recommended())
    run.run(3, stop_on_hit=False)
    assert run.stop.step == 2
    assert [hit.node for hit in run.training.hits] == []
    code, out, _ = run.finish()
    assert (code, out.count("step")) == (0, 4)


def test_values_and_statistics_are_those_of_the_training(train: Train) -> None:
    run = train("plain", steps=3)
    model = programs.Transformer()
    weights = {name: each.detach().numpy().copy() for name, each in seeded(model).named_parameters()}
    for name, expected in weights.items():
        values = run.value(name)
        assert values is not None
        assert np.array_equal(values, expected), name
    run.run()
    out, gradients = first_step(model)
    found = run.value("head/Linear")
    assert found is not None
    assert np.array_equal(found, out)
    for name, expected in gradients.items():
        values = run.value("Gradients/" + name.replace(".", "/"))
        assert values is not None
        assert np.array_equal(values, expected), name
    stats = run.statistics("head/Linear").stats
    assert stats is not None
    wide = out.astype(np.float64)
    assert stats.minimum == wide.min()
    assert stats.mean == pytest.approx(wide.mean(), rel=1e-12)
    assert stats.variance == pytest.approx(wide.var(), rel=1e-12)
    assert run.value("blocks/0/feed/1/ReLU") is not None
    assert run.value("exp_avg.head.weight") is not None
    assert run.value("no/such/Node") is None
    run.run()
    assert not np.array_equal(run.value("head.weight"), weights["head.weight"])  # type: ignore[arg-type]


def test_the_graph_tells_what_fed_what_across_functions(train: Train) -> None:
    run = train("plain", steps=2)
    table = run.table
    made = {
        table.names[row]: {table.names[each] for each, _ in real_inputs(table, row) if each >= 0}
        for row in range(len(table))
    }
    # x + attended is a function between two modules: it is recorded where it goes into the second one.
    assert made["blocks/0/feed/0/Linear"] == {"blocks/0/Add", "blocks.0.feed.0.weight", "blocks.0.feed.0.bias"}
    assert made["blocks/0/Add"] == {"embedding/Embedding", "blocks/0/attention/MultiheadAttention"}
    assert made["Gradients/blocks/0/AddGrad"] == {
        "Gradients/blocks/0/feed/0/LinearGrad",  # through the layer
        "blocks.0.feed.0.weight",
        "Gradients/blocks/0/feed/2/LinearGrad",  # and past it: a sum gives both its parts the very same gradient
    }
    assert "inputs.ids" in made["embedding/Embedding"]
    assert made["Loss"] == {"head/Linear", "inputs.ids"}  # what the program computes before it calls backward
    assert made["Gradients/head/LinearGrad"] == {"Loss", "head/Linear", "inputs.ids"}
    assert "Gradients/blocks/1/feed/1/ReLUGrad" in made["Gradients/blocks/1/feed/0/LinearGrad"]
    assert "Gradients/head/LinearGrad" in made["Gradients/head/weight"]
    of = {table.names[row]: table.category_of(row) for row in range(len(table))}
    assert of["head.weight"] is Category.WEIGHT
    assert of["exp_avg.head.weight"] is Category.OPTIMIZER_STATE
    assert of["inputs.ids"] is Category.PARAMETER
    assert of["blocks/0/feed/1/ReLU"] is Category.ACTIVATION
    assert of["Gradients/head/weight"] is of["Gradients/head/LinearGrad"] is Category.GRADIENT


def test_changes_are_judged_against_the_step_before(train: Train) -> None:
    run = train("plain", steps=4)
    run.watch(
        ("weight_change_too_large", {"abs_mean_update_ratio_gt": 1e-6}, r"^head\.weight$"),
        ("weight_not_changed", {"rtol": 1e9}, r"^embedding\.weight$"),
    )
    run.run()
    before = run.value("head.weight", previous=True)
    now = run.value("head.weight")
    assert before is not None
    assert now is not None
    hits = run.hits()
    assert set(hits) == {"head.weight", "embedding.weight"}
    expected = np.abs(now.astype(float) - before).mean() / (np.abs(before.astype(float)).mean() + 1e-9)
    assert hits["head.weight"].params[0].actual == pytest.approx(expected, rel=1e-12)
    run.run()
    again = run.value("head.weight", previous=True)
    assert np.array_equal(again, now)  # type: ignore[arg-type]


def test_a_condition_of_ones_own_is_judged_on_everything_at_its_step(train: Train) -> None:
    """Activations, gradients and weights: by the statistics of this step, and of the one before."""
    run = train("plain", steps=5)
    names = ["blocks/1/feed/0/Linear", "Gradients/head/weight", "head.weight"]
    pattern = f"^({'|'.join(names)})$"
    run.watch(("expression", {"expression": "step == 2 and norm != prev.norm and rank == 0"}, pattern))
    found: dict[tuple[str, int], float] = {}
    run.run()
    for _ in range(2):
        run.run()
        for name in names:
            values = run.value(name)
            assert values is not None
            found[name, run.stop.step] = float(np.linalg.norm(values.astype(np.float64)))
    assert run.stop.step == 2
    assert sorted(hit.node for hit in run.training.hits) == sorted(names)
    for hit in run.training.hits:
        (param,) = hit.params
        quantities = dict(param.quantities)
        assert quantities["norm"] == pytest.approx(found[hit.node, 2], rel=1e-6)
        assert quantities["prev.norm"] == pytest.approx(found[hit.node, 1], rel=1e-6)


def test_initial_weights_are_judged_before_the_first_step(train: Train) -> None:
    run = train("plain", steps=2)
    run.watch(("weight_initialization", {"zero_percentage_ge": 100}, r"(weight|bias)$"))
    names = {hit.node for hit in run.training.recheck()}
    assert "blocks.0.norm.bias" in names
    assert "head.weight" not in names


def test_a_recheck_judges_the_step_that_stands(train: Train) -> None:
    run = train("plain", steps=3)
    run.run()
    assert not run.training.hits
    run.watch(("tensor_too_large", {"max_gt": -1e9}, r"^blocks/0/feed/1/ReLU$"))
    assert [hit.node for hit in run.training.recheck()] == ["blocks/0/feed/1/ReLU"]
    run.run()
    assert set(run.hits()) == {"blocks/0/feed/1/ReLU"}


def test_runs_to_a_node_and_to_the_next_one(train: Train) -> None:
    run = train("plain", steps=3)
    run.run()
    run.run_to_node("blocks/1/feed/1/ReLU")
    assert (run.stop.step, run.stop.node) == (1, "blocks/1/feed/1/ReLU")
    assert run.value("blocks/1/feed/1/ReLU") is not None
    run.run_to_node()
    assert run.stop.node == "blocks/1/feed/2/Linear"
    run.run()
    assert (run.stop.step, run.stop.node) == (1, "")


def test_terminate_ends_the_process_with_status_0(train: Train) -> None:
    run = train("plain", steps=1000)
    run.run()
    run.training.terminate()
    code, out, _ = run.outcome()
    assert code == 0
    assert "step 5" not in out


def test_statistics_without_values(train: Train) -> None:
    run = train("plain", steps=4, spoil=2, keep="statistics")
    run.watch(("tensor_overflow", {}, "."))
    run.run(None)
    assert run.stop.step == 2
    first = run.training.hits[0]
    assert first.node == "blocks/1/feed/0/Linear"
    assert first.stats is not None
    assert 0 < first.stats.nan <= first.stats.count
    assert run.value(first.node) is None
    assert run.statistics(first.node).stats == first.stats


def test_memory_for_values_is_bounded(train: Train) -> None:
    run = train("plain", steps=3, memory=4 * 8 * programs.WIDTH * 4)  # one output of the embedding
    run.watch(("tensor_too_large", {"max_gt": -1e9}, r"(LayerNorm|Embedding|ReLU)$"))
    run.run(2, stop_on_hit=False)
    assert run.value("embedding/Embedding") is None or run.value("blocks/1/feed/1/ReLU") is None
    hit = run.hits()["blocks/1/feed/1/ReLU"]
    assert hit.stats is not None
    assert hit.stats.minimum == 0


def seeded(model: torch.nn.Module) -> torch.nn.Module:
    """The weights that the program begins with."""
    torch.manual_seed(0)
    fresh = type(model)()
    model.load_state_dict(fresh.state_dict())
    return model


def first_step(model: torch.nn.Module) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """What the model of the program returns in its first step, and the gradients."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    out = model(programs.batch(0))
    programs.loss_of(out, programs.batch(0)).backward()
    torch.set_num_threads(threads)
    return out.detach().numpy(), {name: each.grad.numpy() for name, each in model.named_parameters()}


def test_a_frozen_weight_that_no_module_of_its_own_reads_is_judged_by_what_the_user_asked_for(
    server: Any,
) -> None:
    """Attention reads the weights of its projection without calling it: that is no excuse for their size."""
    model = torch.nn.MultiheadAttention(4, 1)
    head = torch.nn.Linear(4, 2)
    for each in model.parameters():
        each.requires_grad_(False)
    whole = torch.nn.ModuleList([model, head])
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
    name = "0.out_proj.weight"
    heard: list[tuple[int, str, int]] = []

    def listen(training: Any, event: Event) -> None:
        if event is Event.STOPPED:
            heard.extend((training.stop.step, hit.node, hit.watchpoint) for hit in training.hits)
            watched = ((name, "Parameter", "kernel_graph_0"),)
            conditions = ("expression", {"expression": "count > 0"}), ("weight_too_large", {"max_gt": -10.0})
            training.set_watchpoints(
                [
                    RemoteWatchpoint(
                        number,
                        CONDITIONS[condition].wire,
                        wire_params(Watchpoint(number, condition, validate(condition, params))),
                        watched,
                    )
                    for number, (condition, params) in enumerate(conditions, 1)
                ]
            )
            training.run(1, stop_on_hit=True)

    server.listen(listen)
    with tdbg.attach(whole, optimizer, server.address):
        for _ in range(2):
            x = torch.ones(3, 1, 4)
            head(model(x, x, x)[0]).sum().backward()
            optimizer.step()
    assert {(step, number) for step, _, number in heard} >= {(0, 1), (0, 2)}
