"""Every step from the first to the last, and every pass, with gradients and without, is judged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.live.conftest import Happened
from tests.live.torch.driving import Driven
from tui_debugger.live.control import Event
from tui_debugger.live.types import Phase

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

Train = Callable[..., Driven]
OVERFLOW = ("tensor_overflow", {}, ".")
EVALUATION = {"NoGrad/inputs.input", "NoGrad/0/Linear", "NoGrad/1/ReLU", "NoGrad/2/Linear", "NoGrad/Sequential"}


def findings(run: Driven) -> list[tuple[int, str]]:
    """Runs to the end; (step, node) of every hit, and that the program is not hurt."""
    found: dict[tuple[int, str], None] = {}
    while run.training.phase is not Phase.DONE:
        run.moved_on()
        found |= dict.fromkeys((run.stop.step, hit.node) for hit in run.training.hits)
    return list(found)


@pytest.mark.parametrize("kind", ["no_grad", "inference"])
@pytest.mark.parametrize(("bad", "step"), [("eval.-1.1", 0), ("eval.0.2", 1), ("eval.2.0", 3), ("eval.4.1", 4)])
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
@pytest.mark.parametrize(("kind", "bad", "step"), [("blocks", "eval.1.1", 1), ("", "eval.3.1", 3)])
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


@pytest.mark.parametrize("level", ["module", "op"])
@pytest.mark.parametrize("step", [0, 1, 2])
def test_first_middle_and_last_step(train: Train, level: str, step: int) -> None:
    run = train("evaluating", steps=3, bad=f"train.{step}", level=level)
    run.watch(OVERFLOW)
    found = findings(run)
    assert {each for each, _ in found} == {step}
    assert "inputs.input" in {name for _, name in found}
    assert not any(name.startswith("NoGrad") for _, name in found)
    assert run.outcome()[0] == 0


@pytest.mark.parametrize("level", ["module", "op"])
def test_a_long_rollout_is_judged_call_by_call(train: Train, level: str) -> None:
    run = train("reference", steps=3, bad="eval.1.150", level=level)
    run.watch(OVERFLOW)
    found = findings(run)
    first = "NoGrad/inputs.reference.input"
    assert {each for each, _ in found} == {1}
    assert first in {name for _, name in found}
    assert all(name.startswith("NoGrad/") and "#" not in name for _, name in found)
    _, out, _ = run.outcome()
    held = [int(line.split()[-1]) for line in out.splitlines()]
    assert held[-1] - held[0] < 30  # MiB; nothing of a pass that was judged stays


@pytest.mark.parametrize("kind", ["", "raise", "exit", "detach"])
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
