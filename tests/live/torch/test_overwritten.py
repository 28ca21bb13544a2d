"""Values that are held are shown and judged only while they are what they were, whoever writes to them, and however."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from torch import nn  # noqa: E402 - torch first

import tui_debugger.torch as tdbg  # noqa: E402
from tui_debugger.live.client.judging import ClientJudge  # noqa: E402
from tui_debugger.model import NodeSelection, Watchpoint  # noqa: E402
from tui_debugger.torch.captures import Capture, Plans  # noqa: E402
from tui_debugger.torch.recording import StepRecording  # noqa: E402
from tui_debugger.torch.training import TrainingState  # noqa: E402
from tui_debugger.torch.verdicts import judge_step, values_of  # noqa: E402

WATCHED = Watchpoint(1, "tensor_overflow", selection=NodeSelection())
JUDGE = ClientJudge([(WATCHED, ["view", "copy"])])
OPTIMIZERS = (torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD, torch.optim.Adagrad)
WAYS = ("fused", "foreach", "plain")


def of_a_step(weight: Any, *, grouped: bool) -> tuple[StepRecording, Callable[[str], Capture]]:
    """A recorded step with a view of a weight, and a copy of it; and what finds the line of each."""
    recording = StepRecording(1 << 20, values=True)
    plans = Plans(JUDGE)
    for name, tensor in (("view", weight.detach().t()), ("copy", weight.detach().clone())):
        if not (grouped and recording.step.note(name, 0, tensor, plans.of(name))):
            recording.step.see(name, 0, tensor, plans.of(name))

    def line(name: str) -> Capture:
        found = recording.step.get((name, 0))
        assert found is not None
        return found

    return recording, line


@pytest.mark.parametrize("grouped", [True, False], ids=["together", "one by one"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_view_of_a_weight_is_not_read_after_the_optimizer_ran(
    kind: type[torch.optim.Optimizer], way: str, grouped: bool
) -> None:
    model = nn.Linear(4, 4)
    options: dict[str, Any] = {} if way == "plain" else {way: True}
    optimizer = kind(model.parameters(), lr=0.1, **options)
    recording, line = of_a_step(model.weight, grouped=grouped)
    model.weight.grad = torch.full((4, 4), float("nan"))
    optimizer.step()
    assert model.weight.isnan().all()
    TrainingState(model, [optimizer], recording).stepped(optimizer)
    assert judge_step(recording.step, JUDGE, recheck=True) == []
    assert values_of(recording.step, line("view")) is None
    copied = values_of(recording.step, line("copy"))
    assert copied is not None
    assert copied.isfinite().all()


def test_what_the_optimizer_does_not_write_to_stays() -> None:
    model = nn.Linear(4, 4)
    recording, line = of_a_step(nn.Linear(4, 4).weight, grouped=False)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    TrainingState(model, [optimizer], recording).stepped(optimizer)
    assert line("view").intact


def by_data(weight: Any) -> None:
    weight.data.fill_(float("nan"))


def by_numpy(weight: Any) -> None:
    weight.detach().numpy()[...] = 7


@pytest.mark.parametrize("write", [by_data, by_numpy])
def test_a_write_that_nothing_counts_is_noticed_by_the_values(write: Callable[[Any], None]) -> None:
    weight = nn.Linear(4, 4).weight
    recording, line = of_a_step(weight, grouped=False)
    versions = weight._version
    write(weight)
    assert weight._version == versions
    assert judge_step(recording.step, JUDGE, recheck=True) == []
    assert line("view").rough
    assert not line("copy").rough
    assert values_of(recording.step, line("view")) is None
    assert values_of(recording.step, line("copy")) is not None


@pytest.mark.parametrize("fused", [True, False])
def test_gradients_that_an_optimizer_unscales_itself_are_those_that_it_used(tmp_path: Path, fused: bool) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    handle: Any = tdbg.attach(model, None, "", flight=tdbg.Flight(tmp_path))
    try:
        for _ in range(2):
            with tdbg.step():
                optimizer.zero_grad()
                scaler.scale(model(torch.ones(2, 4)).sum()).backward()
                scaler.step(optimizer)
                scaler.update()
                line = handle._training.recording.step.get(("Gradients/weight", 0))
                assert line.tensor.tolist() == [[2.0] * 4]
                assert line.intact
        assert not handle.unrecorded
    finally:
        handle.detach()


def test_what_an_operator_changes_in_place_has_numbers_of_its_own() -> None:
    """While it is run, the version of the tensor is still that of before."""
    recording, plan = StepRecording(1 << 20, values=True), Plans(JUDGE).of("view")
    tensor = torch.tensor([-8.0, 1.0])
    before = recording.step.see("view", 0, tensor, plan)
    tensor.data.relu_()
    after = recording.step.see("copy", 0, tensor, plan, mutated=True)
    recording.step.fetched = recording.step.waiting.fetch()
    first, second = (float(recording.step.fetched.all(each.energy)[0]) for each in (before, after))
    assert first > 8 > second
