"""What programs do beside a plain loop: they go on as without us, and what cannot be recorded is said."""

from __future__ import annotations

import gc
import signal
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from torch import nn  # noqa: E402 - torch first

import tui_debugger.torch as tdbg  # noqa: E402
from tui_debugger.torch.attaching import STRANGER, Handle  # noqa: E402
from tui_debugger.torch.module_hooks import ModuleHooks  # noqa: E402

Attach = Callable[..., Handle]


@pytest.fixture
def attach(tmp_path: Path) -> Attach:
    """Attaches a model without a debugger: the flight recorder needs everything that one would."""

    def attached(
        model: nn.Module, optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None
    ) -> Handle:
        return tdbg.attach(model, optimizer, "", flight=tdbg.Flight(tmp_path / "flights"))

    return attached


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()


def unrecorded(handle: Handle) -> dict[str, str]:
    """What was not recorded: an example of each."""
    assert handle.on
    found = {each.what: each.example for each in handle.unrecorded}
    handle.detach()
    return found


def test_a_step_that_ends_in_inference_mode_leaves_no_mode_behind(attach: Attach) -> None:
    model = small().eval()
    handle = attach(model)
    for _ in range(3):
        with torch.inference_mode(), tdbg.step():
            model(torch.randn(4, 8))
    assert torch.randn(4, 8).isfinite().all()  # outside, where nobody looks at operators
    assert not unrecorded(handle)
    assert torch.randn(4, 8).isfinite().all()


def test_nested_tensors_are_not_recorded_and_everything_else_is(attach: Attach) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    handle = attach(model, optimizer)
    padding = torch.zeros(2, 4, dtype=torch.bool)
    padding[0, 2:] = True
    for _ in range(2):
        optimizer.zero_grad()
        model.train()(torch.randn(2, 4, 8)).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            model.eval()(torch.randn(2, 4, 8), src_key_padding_mask=padding)
    (what,) = unrecorded(handle)
    assert "nested" in what


def test_what_runs_inside_torch_func_is_not_recorded(attach: Attach) -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    handle = attach(model, optimizer)
    for _ in range(2):
        x = torch.randn(4, 8)
        weights = {name: each.detach() for name, each in model.named_parameters()}
        found = torch.func.grad(lambda p, x=x: torch.func.functional_call(model, p, (x,)).square().mean())(weights)
        for name, each in model.named_parameters():
            each.grad = found[name]
        optimizer.step()
    (what,) = unrecorded(handle)
    assert "torch.func" in what


class Held(torch.autograd.Function):
    """Hands on its input; what it saves for the backward pass is known weakly."""

    saved: list[weakref.ref[Callable[[], None]]]

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.saved = lambda: None
        Held.saved.append(weakref.ref(ctx.saved))
        return x.clone()

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


@pytest.mark.parametrize("followed", [True, False], ids=["first step", "later"])
def test_a_loss_keeps_nothing_alive(attach: Attach, followed: bool) -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    handle = attach(model, optimizer)
    if not followed:
        learn(model, optimizer)
    Held.saved = []
    loss = Held.apply(model(torch.randn(4, 8))).square().mean()
    loss.backward(retain_graph=True)
    loss.backward()
    there = weakref.ref(loss)
    del loss
    gc.collect()
    assert there() is None
    assert [each() for each in Held.saved] == [None]
    assert not unrecorded(handle)


def test_backward_may_be_called_on_anything(attach: Attach) -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    handle = attach(model, optimizer)
    for _ in range(3):
        first, second = model(torch.randn(4, 8)), model(torch.randn(4, 8))
        torch.autograd.backward([first, second.sum()], [torch.ones(4, 4), None])
        model[0].bias.sum().backward()
        torch.nn.Parameter(torch.ones(())).backward()
        out = model(torch.randn(4, 8))
        torch.autograd.backward(torch.autograd.graph.get_gradient_edge(out), torch.ones(4, 4))
        with pytest.raises(RuntimeError, match="scalar outputs"):
            model(torch.randn(4, 8)).backward()
        with pytest.raises(RuntimeError, match="does not require grad"):
            torch.ones(()).backward()
        other = threading.Thread(target=nn.Linear(8, 1)(torch.randn(8)).backward)
        other.start()
        other.join()
        optimizer.step()
    assert not unrecorded(handle)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_inside_of_torchscript_is_not_recorded(attach: Attach) -> None:
    model = torch.jit.trace(small(), torch.randn(4, 8))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    handle = attach(model, optimizer)
    learn(model, optimizer)
    assert any("TorchScript" in what for what in unrecorded(handle))


def test_what_is_put_into_the_model_later_is_said_not_to_be_recorded(attach: Attach) -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    handle = attach(model, optimizer)
    learn(model, optimizer)
    assert not handle.unrecorded
    model[2] = nn.Linear(8, 3)
    optimizer.add_param_group({"params": list(model[2].parameters())})
    learn(model, optimizer)
    assert list(unrecorded(handle).values()) == ["2"]
    handle = attach(model, optimizer)
    learn(model, optimizer)
    assert not unrecorded(handle)


def test_a_weight_in_the_place_of_another_one_is_that_weight(attach: Attach) -> None:
    model = small()
    handle = attach(model, torch.optim.SGD(model.parameters(), 1e-3))
    learn(model, torch.optim.SGD(model.parameters(), 1e-3))
    model.load_state_dict({name: each * 0.5 for name, each in model.state_dict().items()}, assign=True)
    tree = handle._training.tree  # type: ignore[attr-defined]
    assert all(tree.parameters[name] is each for name, each in model.named_parameters())
    assert not unrecorded(handle)


def test_what_a_signal_handler_raises_gets_through(attach: Attach, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time-outs of programs: the signal may come while something of ours runs."""

    def expired(_: int, __: FrameType | None) -> None:
        raise TimeoutError("too slow")

    before = signal.signal(signal.SIGUSR1, expired)
    try:
        model = small()
        handle = attach(model)
        monkeypatch.setattr(ModuleHooks, "_ran", lambda *_: signal.raise_signal(signal.SIGUSR1))
        with pytest.raises(TimeoutError, match="too slow"):
            model(torch.randn(4, 8))
        monkeypatch.undo()
        with tdbg.step():
            model(torch.randn(4, 8)).sum().backward()
        assert not unrecorded(handle)
    finally:
        signal.signal(signal.SIGUSR1, before)


def steps(handle: Handle) -> int:
    """How many steps have ended."""
    return int(handle._agent.step) + 1  # type: ignore[attr-defined]


def test_a_new_optimizer_takes_over_ending_the_steps(attach: Attach) -> None:
    model = small()
    first = torch.optim.SGD(model.parameters(), 1e-3)
    handle = attach(model, first)
    learn(model, first)
    learn(model, torch.optim.Adam(model.parameters(), 1e-3), 4)
    assert steps(handle) == 3 + 3  # the first two of it were one
    learn(model, first)
    assert steps(handle) == 3 + 3 + 2
    (what,) = handle.unrecorded
    assert "optimizer" in what.what
    assert what.count == 2
    handle.detach()


def test_an_optimizer_that_was_given_and_never_steps_ends_no_steps_for_long(attach: Attach) -> None:
    model = small()
    handle = attach(model, torch.optim.SGD(model.parameters(), 1e-3))
    learn(model, torch.optim.SGD(model.parameters(), 1e-3), STRANGER + 2)
    assert steps(handle) == 3
    assert "optimizer" in next(iter(unrecorded(handle)))


@pytest.mark.parametrize("given", [True, False])
def test_several_steps_of_a_critic_stay_one_step(attach: Attach, given: bool) -> None:
    model = nn.ModuleDict({"maker": small(), "critic": nn.Linear(4, 1)})
    maker, critic = (torch.optim.SGD(each.parameters(), 1e-3) for each in model.values())
    handle = attach(model, [critic, maker] if given else maker)
    for _ in range(3):
        for _ in range(STRANGER + 5):
            critic.zero_grad()
            model["critic"](model["maker"](torch.randn(4, 8)).detach()).mean().backward()
            critic.step()
        maker.zero_grad()
        (-model["critic"](model["maker"](torch.randn(4, 8)))).mean().backward()
        maker.step()
    assert steps(handle) == 3
    assert not unrecorded(handle)


def test_an_optimizer_that_steps_inside_another_one_ends_no_steps(attach: Attach) -> None:
    class Twice(torch.optim.SGD):
        def step(self, *_: object) -> None:
            inner = torch.optim.SGD(self.param_groups[0]["params"], 1e-3)
            for _ in range(3):
                inner.step()

    model = small()
    optimizer = Twice(model.parameters(), 1e-3)
    handle = attach(model, optimizer)
    learn(model, optimizer)
    assert steps(handle) == 3
    assert not unrecorded(handle)


def test_steps_of_an_inner_loop_on_the_same_weights_are_no_steps(attach: Attach) -> None:
    """Reptile: some steps of an optimizer of its own, then one of the outer one."""
    model = small()
    outer = torch.optim.SGD(model.parameters(), 1e-3)
    handle = attach(model, outer)
    for _ in range(3):
        learn(model, torch.optim.SGD(model.parameters(), 1e-3), 5)
        outer.step()
    assert steps(handle) == 3
    assert not unrecorded(handle)
