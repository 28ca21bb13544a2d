"""Every step from the first to the last, and every pass, with gradients and without, is judged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pytest

from tests.live.conftest import Happened
from tests.live.torch.driving import Driven
from tests.live.torch.forks import finished
from tests.thorough import few, later
from tui_debugger.live.wire import Event, Phase
from tui_debugger.model import Category

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

Train = Callable[..., Driven]
OVERFLOW = ("tensor_overflow", {}, ".")
NO_OPERATORS = {"Parameter", "ParameterGrad", "BiasAddGrad", "TupleGetItem", "BufferUpdate", "InputUpdate"}
EVALUATION = {"NoGrad/inputs.input", "NoGrad/0/Linear", "NoGrad/1/ReLU", "NoGrad/2/Linear", "NoGrad/Sequential"}


def findings(run: Driven) -> list[tuple[int, str]]:
    """Runs to the end; (step, node) of every hit, and that the program is not hurt."""
    found: dict[tuple[int, str], None] = {}
    while run.training.phase is not Phase.DONE:
        run.moved_on()
        found |= dict.fromkeys((run.stop.step, hit.node) for hit in run.training.hits)
    return list(found)


@pytest.mark.parametrize(
    ("kind", "bad", "step"),
    [
        ("no_grad", "eval.-1.1", 0),
        later("inference", "eval.0.2", 1),
        later("no_grad", "eval.2.0", 3),
        ("inference", "eval.4.1", 4),
    ],
)
def test_an_evaluation_is_judged_with_the_step_that_ends_next(train: Train, kind: str, bad: str, step: int) -> None:
    run = train("evaluating", steps=4, kind=kind, bad=bad)
    assert set(run.table.names) >= EVALUATION
    run.watch(OVERFLOW)
    found = findings(run)
    assert {each for each, _ in found} == {step}
    assert {name for _, name in found} == EVALUATION
    code, out, _ = run.outcome()
    assert (code, out) == (0, "unrecorded ()\n")


@pytest.mark.parametrize("level", ["module", "op"])
@pytest.mark.parametrize(("kind", "bad", "step"), [("blocks", "eval.1.1", 1), later("", "eval.3.1", 3)])
def test_an_evaluation_that_was_not_in_the_graph_is_judged(
    train: Train, level: str, kind: str, bad: str, step: int
) -> None:
    run = train("evaluating_late", steps=3, kind=kind, bad=bad, level=level)
    assert not any(name.startswith("NoGrad") for name in run.table.names)
    run.watch(OVERFLOW)
    found = findings(run)
    assert {each for each, _ in found} == {step}
    assert "NoGrad/inputs.input" in {name for _, name in found}
    assert all(name.startswith("NoGrad/") for _, name in found)
    assert run.outcome()[0] == 0


@pytest.mark.parametrize(("level", "step"), few([("module", 0), ("module", 1), ("module", 2), ("op", 0), ("op", 2)], 2))
def test_first_middle_and_last_step(train: Train, level: str, step: int) -> None:
    run = train("evaluating", steps=3, bad=f"train.{step}", level=level)
    run.watch(OVERFLOW)
    found = findings(run)
    assert {each for each, _ in found} == {step}
    assert "inputs.input" in {name for _, name in found}
    assert not any(name.startswith("NoGrad") for _, name in found)
    assert run.outcome()[0] == 0


@pytest.mark.parametrize("kind", ["", "steps"])
def test_the_last_step_counts_although_the_last_stop_was_inside_it(train: Train, happened: Happened, kind: str) -> None:
    run = train("masked_layer", steps=4, kind=kind, level="op")
    run.watch(("tensor_overflow", {}, "^Full$"))  # nothing else of the step is found, and it ends without a word
    run.training.run(None, stop_on_hit=False)
    happened.until(lambda: run.training.phase is Phase.DONE)
    assert (run.stop.ended, run.stop.node) == (3, "")


@pytest.mark.parametrize("level", ["module", later("op")])
def test_a_long_rollout_is_judged_call_by_call(train: Train, level: str) -> None:
    run = train("reference", steps=3, bad="eval.1.150", level=level)
    run.watch(OVERFLOW)
    found = findings(run)
    first = "NoGrad/inputs.reference.input" if level == "module" else "NoGrad/reference/0/Addmm"
    assert {each for each, _ in found} == {1}
    assert first in {name for _, name in found}
    assert all(name.startswith("NoGrad/") and "#" not in name for _, name in found)
    _, out, _ = run.outcome()
    held = [int(line.split()[-1]) for line in out.splitlines()]
    assert held[-1] - held[0] < 30  # MiB; nothing of a pass that was judged stays


@pytest.mark.parametrize("memory", [0, 1500])
def test_passes_before_the_first_step_are_judged_without_their_values(train: Train, memory: int) -> None:
    """Where activations are saturated is counted before anybody has asked, as far as that is recommended."""
    run = train("reference", steps=1, memory=memory)
    run.training.set_watchpoints(run.recommended())
    assert findings(run) == []
    assert run.outcome()[0] == 0


@pytest.mark.parametrize("level", ["module", "op"])
def test_a_frozen_part_of_a_pass_with_gradients_belongs_to_it(train: Train, level: str) -> None:
    run = train("frozen", steps=3, bad="train.1", level=level)
    names = set(run.table.names)
    inside = "backbone/1/ReLU" if level == "module" else "backbone/1/Relu"
    assert {inside, f"NoGrad/{inside}"} <= names
    assert "inputs.backbone.input" not in names
    run.watch(OVERFLOW)
    found = findings(run)
    assert {step for step, _ in found} == {1}
    assert not any(name.startswith("NoGrad") for _, name in found)
    assert "unrecorded ()" in run.outcome()[1]


@pytest.mark.parametrize("kind", few(["", "raise", "exit", "detach"], 2))
def test_a_step_that_never_ends_is_judged_when_the_training_ends(train: Train, happened: Happened, kind: str) -> None:
    run = train("unfinished", steps=2, kind=kind, bad="train.2")
    run.watch(OVERFLOW)
    run.run(None)
    assert (run.stop.step, run.stop.node) == (2, "inputs.input")
    assert {"inputs.input", "0/Linear", "Gradients/0/weight"} <= set(run.hits())
    assert run.value("2/Linear") is not None
    run.training.run(None)
    happened.wait(Event.DONE)
    code, out, _ = run.outcome()
    assert code == {"": 0, "raise": 1, "exit": 3, "detach": 0}[kind]
    assert ("the end" in out) == (kind in {"", "detach"})


def test_an_unfinished_step_without_hits_ends_silently(train: Train) -> None:
    run = train("unfinished", steps=2)
    run.watch(OVERFLOW)
    assert findings(run) == []
    assert run.stop.step == 1


def test_nothing_that_the_debugger_does_is_recorded(train: Train) -> None:
    alone = finished("tests.live.torch.programs", "counting", "--steps=3")
    assert alone.returncode == 0
    run = train("counting", steps=4)
    run.watch(OVERFLOW, ("weight_change_too_large", {"abs_mean_update_ratio_gt": 1e9}, "weight$"))
    run.run(2)
    run.arrived()
    of_the_program = json.loads(alone.stdout)
    nodes = [
        run.table.names[row]
        for row in range(len(run.table))
        if not run.table.names[row].startswith("Optimizer/")
        and run.table.op_type(row) not in NO_OPERATORS
        and run.table.category_of(row) is not Category.CONSTANT
    ]
    recorded = Counter(name.rpartition("/")[2].partition("#")[0] for name in nodes)
    assert recorded == of_the_program
    assert not [hit.node for hit in run.training.hits]


@pytest.mark.parametrize("level", ["module", "op"])
def test_what_a_gradient_scaler_skips_is_no_finding(train: Train, level: str) -> None:
    run = train("scaled", steps=12, level=level)
    run.watch(OVERFLOW)
    assert findings(run) == []
    _, out, err = run.outcome()
    assert int(out.split()[1]) > 3
    assert run.stop.step == 11  # what is skipped is a step, too
    assert err.count("a GradScaler skipped a step") == 1
    assert "unrecorded ()" in out


def test_a_bad_batch_of_a_skipped_step_is_a_finding(train: Train) -> None:
    run = train("scaled", steps=12, bad="train.10.0")
    run.watch(OVERFLOW)
    found = findings(run)
    assert {"inputs.input", "0/Linear", "Sequential"} <= {name for _, name in found}
    assert {step for step, _ in found} == {10}
    assert not any(name.startswith("Gradients/") for _, name in found)


@pytest.mark.parametrize("level", ["module", "op"])
def test_what_runs_inside_an_optimizer_is_judged(train: Train, level: str) -> None:
    run = train("closures", steps=3, bad="train.1", level=level)
    run.watch(OVERFLOW)
    found = findings(run)
    assert {step for step, _ in found} == {1}
    assert "inputs.input" in {name for _, name in found}
    assert "unrecorded ()" in run.outcome()[1]


@pytest.mark.parametrize(
    ("kind", "level", "what"),
    [
        ("compile", "module", "torch.compile"),
        ("thread", "module", "other threads"),
        ("thread", "op", "other threads"),
        ("vmap", "module", "torch.func"),
        ("script", "module", "no hooks"),
    ],
)
def test_what_cannot_be_recorded_is_counted(train: Train, kind: str, level: str, what: str) -> None:
    run = train("hidden", steps=2, kind=kind, level=level)
    _, out, _ = run.finish()
    assert what in out


@pytest.mark.parametrize("level", ["module", "op"])
@pytest.mark.parametrize("kind", ["zeros", later("none")])
def test_gradients_that_the_program_has_cleared_are_judged_as_they_were(train: Train, level: str, kind: str) -> None:
    run = train("by_hand", steps=5, level=level, kind=kind, bad="train.3.0")
    run.training.set_watchpoints(run.recommended())
    found = findings(run)
    assert {step for step, _ in found} == {3}
    assert {f"Gradients/{each}" for each in ("0/weight", "0/bias", "2/weight", "2/bias")} <= {name for _, name in found}
    assert "switched off" not in run.outcome()[2]
