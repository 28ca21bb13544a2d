"""Objects that programs step: wrappers around an optimizer of PyTorch, and things that only have a ``step``."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from torch import nn  # noqa: E402 - torch first

import tui_debugger.torch as tdbg  # noqa: E402 - imports torch
from tests.live.conftest import Happened  # noqa: E402
from tests.live.torch import programs  # noqa: E402
from tui_debugger.errors import TdbgError  # noqa: E402
from tui_debugger.live.server.training import RemoteTraining  # noqa: E402
from tui_debugger.live.wire import Event  # noqa: E402

RATE = 1e-2


class Forwarding:
    """As accelerate's and Lightning's: it has no hooks, and makes up what it lacks."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.optimizer, name)


class Gathering(torch.optim.Optimizer):
    """As accelerate's: an optimizer by its class that was never made as one; it steps every second time."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.inner_one = optimizer
        self.calls = 0

    param_groups = property(lambda self: self.inner_one.param_groups)
    state = property(lambda self: self.inner_one.state)

    def step(self, closure: Any = None) -> Any:
        self.calls += 1
        return self.inner_one.step(closure) if self.calls % 2 == 0 else None

    def zero_grad(self, set_to_none: bool = True) -> None:
        if self.calls % 2 == 0:
            self.inner_one.zero_grad(set_to_none)


class Imitating:
    """As Lightning's: its class becomes one of the optimizer's, whose hooks it reaches through ``__getattr__``."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self.__class__ = type("Imitating" + type(optimizer).__name__, (type(self), type(optimizer)), {})

    def step(self, closure: Any = None) -> Any:
        return self._optimizer.step(closure or (lambda: None))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)


class Slow(torch.optim.Optimizer):
    """As timm's look-ahead: it changes the weights after the optimizer inside. Its hooks run from ``zero_grad`` on."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer_step_pre_hooks = OrderedDict()
        self._optimizer_step_post_hooks = OrderedDict()
        self._base_optimizer = optimizer
        self.param_groups = optimizer.param_groups
        self.state = optimizer.state
        self.defaults = optimizer.defaults

    def step(self, closure: Any = None) -> Any:
        returned = self._base_optimizer.step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for each in group["params"]:
                    each.fill_(0.25)
        return returned


class ByHand:
    """No optimizer of PyTorch at all."""

    def __init__(self, parameters: Any) -> None:
        self._weights = list(parameters)

    def step(self) -> None:
        with torch.no_grad():
            for each in self._weights:
                each.sub_(RATE * each.grad)

    def zero_grad(self) -> None:
        for each in self._weights:
            each.grad = None


class Shut:
    """Nothing can be put into it."""

    __slots__ = ()

    def step(self) -> None:
        """Changes nothing."""


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))


def learn(model: nn.Module, optimizer: Any, steps: int = 4) -> list[float]:
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8, generator=torch.Generator().manual_seed(step))).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def watched(
    server: Any, model: nn.Module, given: Any, act: Callable[[], Any], level: str = "module"
) -> tuple[int, Any]:
    """Runs a training under a debugger. How many steps it saw, and what ``act`` returned."""
    server.listen(lambda training, event: training.run(None) if event is Event.STOPPED else None)
    handle = tdbg.attach(model, given, server.address, level=level)
    returned = act()
    assert handle.attached
    assert handle.unrecorded == ()
    handle.detach()
    return handle._agent.step + 1, returned  # type: ignore[attr-defined]


WRAPPERS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "forwarding": (Forwarding, 4),
    "twice": (lambda optimizer: Forwarding(Forwarding(optimizer)), 4),
    "gathering": (Gathering, 2),
    "imitating": (Imitating, 4),
    "slow": (Slow, 4),
    "a list": (Forwarding, 4),
}


@pytest.mark.parametrize("level", ["module", "op"])
@pytest.mark.parametrize("name", WRAPPERS)
def test_each_step_of_a_wrapper_is_one_and_the_training_is_as_without(server: Any, name: str, level: str) -> None:
    wrap, steps = WRAPPERS[name]
    alone = small()
    expected = learn(alone, wrap(torch.optim.SGD(alone.parameters(), RATE)))
    model = small()
    wrapper = wrap(torch.optim.SGD(model.parameters(), RATE))
    given = [wrapper] if name == "a list" else wrapper
    seen, losses = watched(server, model, given, lambda: learn(model, wrapper), level)
    assert seen == steps
    assert losses == expected
    assert "step" not in vars(wrapper)


def test_what_the_program_steps_may_be_the_optimizer_inside_or_another_wrapper(server: Any) -> None:
    """Lightning's trainer steps the optimizer inside what it handed to the program."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    given = Imitating(optimizer)

    def act() -> None:
        learn(model, optimizer, 2)
        learn(model, Imitating(optimizer), 3)
        learn(model, given, 4)

    assert watched(server, model, given, act)[0] == 9


@pytest.mark.parametrize("level", ["module", "op"])
def test_a_step_ends_when_the_wrapper_has_changed_the_weights(server: Any, level: str) -> None:
    model = small()
    wrapper = Slow(torch.optim.SGD(model.parameters(), RATE))
    handle = tdbg.attach(model, wrapper, server.address, level=level)
    seen: list[float] = []

    def look(training: RemoteTraining, event: Event) -> None:
        if event is Event.STOPPED:
            seen.append(float(model[0].weight.detach().max()))
            training.run(1)

    server.listen(look)
    learn(model, wrapper, 3)
    handle.detach()
    assert seen[-3:] == [0.25, 0.25, 0.25]


def test_calls_of_a_step_that_is_no_optimizers_are_steps(server: Any) -> None:
    model = small()
    optimizer = ByHand(model.parameters())
    assert watched(server, model, optimizer, lambda: learn(model, optimizer))[0] == 4


def test_several_optimizers_behind_one_step_make_one_step(server: Any) -> None:
    class Both:
        def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
            self.first_optimizer, self.second_optimizer = optimizers

        def step(self) -> None:
            self.first_optimizer.step()
            self.second_optimizer.step()

        def zero_grad(self) -> None:
            self.first_optimizer.zero_grad()
            self.second_optimizer.zero_grad()

    model = small()
    both = Both(*(torch.optim.SGD(model[at].parameters(), RATE) for at in (0, 2)))
    assert watched(server, model, both, lambda: learn(model, both))[0] == 4


def test_an_exception_in_the_step_of_a_wrapper_ends_no_step(server: Any) -> None:
    class Failing(Forwarding):
        def step(self) -> None:
            self.optimizer.step()
            raise OSError("full")

    model = small()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    failing = Failing(optimizer)

    def act() -> None:
        with pytest.raises(OSError, match="full"):
            learn(model, failing)
        learn(model, optimizer, 2)

    assert watched(server, model, failing, act)[0] == 2


def test_a_learning_rate_scheduler_may_come_later(server: Any) -> None:
    """It takes the method ``step`` apart, and puts one of its own around it."""
    model = small()
    wrapper = Slow(torch.optim.SGD(model.parameters(), RATE))

    def act() -> None:
        scheduler = torch.optim.lr_scheduler.StepLR(wrapper, 1)
        for _ in range(3):
            learn(model, wrapper, 1)
            scheduler.step()

    assert watched(server, model, wrapper, act)[0] == 3
    learn(model, wrapper, 1)


def test_a_learning_rate_scheduler_that_was_there_before_does_not_complain(server: Any, recwarn: Any) -> None:
    """It warns when the ``step`` that it marked was replaced."""
    model = small()
    wrapper = Slow(torch.optim.SGD(model.parameters(), RATE))
    scheduler = torch.optim.lr_scheduler.StepLR(wrapper, 1)

    def act() -> None:
        for _ in range(3):
            learn(model, wrapper, 1)
            scheduler.step()

    assert watched(server, model, wrapper, act)[0] == 3
    learn(model, wrapper, 1)
    scheduler.step()
    assert [str(each.message) for each in recwarn if "step" in str(each.message)] == []


def test_a_wrapper_is_copied_and_pickled_as_ever(server: Any) -> None:
    model = small()
    optimizer = ByHand([*model.parameters()])

    def act() -> None:
        learn(model, optimizer, 2)
        twin = copy.deepcopy(optimizer)
        other = pickle.loads(pickle.dumps(optimizer))  # noqa: S301 - our own
        learn(model, optimizer, 1)
        assert type(twin) is type(other) is ByHand

    assert watched(server, model, optimizer, act)[0] == 3


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("wrap", [Slow, "by hand"])
def test_a_gradient_scaler_steps_a_wrapper_or_leaves_the_step_out(server: Any, wrap: Any, enabled: bool) -> None:
    def train(model: nn.Module, optimizer: Any) -> list[float]:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, enabled=enabled)
        losses = []
        for step in range(4):
            optimizer.zero_grad()
            loss = model(torch.full((4, 8), 100.0 + step)).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        return losses

    def made(model: nn.Module) -> Any:
        if wrap != "by hand":
            return wrap(torch.optim.SGD(model.parameters(), 1e-9))
        optimizer = ByHand(model.parameters())
        optimizer.param_groups = [{"params": [*model.parameters()]}]  # type: ignore[attr-defined] # the scaler needs it
        return optimizer

    alone, model = small(), small()
    expected = train(alone, made(alone))
    optimizer = made(model)
    assert watched(server, model, optimizer, lambda: train(model, optimizer)) == (4, expected)


@pytest.mark.parametrize("optimizer", [object(), Shut()], ids=["no step", "no room"])
def test_what_cannot_be_counted_is_refused_and_the_debugger_hears_of_it(
    server: Any, happened: Happened, optimizer: Any
) -> None:
    server.listen(lambda training, event: training.run(None) if event is Event.STOPPED else None)
    with pytest.raises(TdbgError) as refused:
        tdbg.attach(small(), optimizer, server.address)
    assert "tdbg.step()" in refused.value.hint
    (unseen,) = happened.training(Event.DONE).unrecorded
    assert refused.value.what in unseen.what


def test_the_debugger_of_a_model_that_cannot_be_looked_at_does_not_wait(
    server: Any, happened: Happened, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    server.listen(lambda training, event: training.run(None) if event is Event.STOPPED else None)
    monkeypatch.setattr("tui_debugger.torch.training.tree_of", lambda *_, **__: 1 / 0)
    model = small()
    optimizer = Forwarding(torch.optim.SGD(model.parameters(), RATE))
    handle = tdbg.attach(model, optimizer, server.address)
    assert not handle.on
    assert len(learn(model, optimizer)) == 4
    (unseen,) = happened.training(Event.DONE).unrecorded
    assert "ZeroDivisionError" in unseen.what
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_without_a_debugger_no_step_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TDBG_HOST", raising=False)
    monkeypatch.delenv("TDBG_PORT", raising=False)
    model = programs.small()
    wrapper = Forwarding(torch.optim.SGD(model.parameters(), RATE))
    assert not tdbg.attach(model, wrapper).on
    assert vars(wrapper).keys() == {"optimizer"}
