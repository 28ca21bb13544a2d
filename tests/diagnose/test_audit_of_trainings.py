"""The audit of what was saved of PyTorch trainings: healthy ones are accused of nothing, a wrong output is named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from torch import nn  # noqa: E402 - torch first

import tui_debugger.torch as tdbg  # noqa: E402 - likewise
from tests.linked import linked, own  # noqa: E402 - likewise
from tests.session.opened import opened  # noqa: E402 - likewise
from tui_debugger.diagnose.audit import AuditReport, audit  # noqa: E402 - likewise


def square() -> nn.Linear:
    """Its weight, input and output have one shape: only names tell them apart."""
    return nn.Linear(8, 8)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = square()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.inner(x).relu())  # type: ignore[no-any-return]  # a module may return anything


class Turned(nn.Module):
    """A module is given a view of what another one made: the recorded tensor is not what it read."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = square(), square()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).t())  # type: ignore[no-any-return]  # as above


class Doubled(nn.Linear):
    """Of a known name, and computes something else."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - the name in PyTorch
        return 2 * super().forward(input)


Doubled.__name__ = "Linear"


def hooked() -> nn.Module:
    model = nn.Sequential(square(), nn.ReLU(), square())
    model[0].register_forward_hook(lambda _module, _given, out: 2 * out)
    return model


class Residual(nn.Module):
    """The gradient of one output comes by two ways, as one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = square(), square()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        return h + self.second(h)  # type: ignore[no-any-return]  # as above


class Clamped(nn.Module):
    """A hook of the program changes a few elements of the gradient of an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = square(), square(), square()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.second(self.first(x))
        if h.requires_grad:
            h.register_hook(lambda came: came.clamp(-0.002, 0.002))
        return self.third(h)  # type: ignore[no-any-return]  # as above


class Recurrent(nn.Module):
    """Two layers of an LSTM, in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 4, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, (hidden, cell) = self.lstm(x)
        return out.flatten(1) + hidden.sum() + cell.sum()  # type: ignore[no-any-return]  # as above


class Rotated(nn.Module):
    """Complex numbers, and a whole number of each fraction."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = square(), square()
        self.turn = nn.Parameter(torch.polar(torch.ones(5), torch.arange(5.0)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = torch.fft.irfft(torch.fft.rfft(self.first(x)) * self.turn, n=8)
        return self.second(made + (made * 10).int().float() * 0.01)  # type: ignore[no-any-return]  # as above


MODELS: dict[str, Callable[[], nn.Module]] = {
    "square": lambda: nn.Sequential(square(), nn.ReLU(), square(), nn.GELU(), square()),
    "in place": lambda: nn.Sequential(square(), nn.ReLU(inplace=True), square()),
    "dropout": lambda: nn.Sequential(square(), nn.Dropout(0.3), nn.ReLU(), square()),
    "norms": lambda: nn.Sequential(square(), nn.BatchNorm1d(8), nn.LayerNorm(8, eps=1e-2), nn.SiLU(), square()),
    "other norms": lambda: nn.Sequential(square(), nn.RMSNorm(8), nn.GroupNorm(2, 8), nn.SiLU(), square()),
    "recurrent": lambda: nn.Sequential(nn.Unflatten(1, (2, 4)), Recurrent()),
    "twice": Twice,
    "turned": Turned,
    "residual": Residual,
    "its own class": lambda: nn.Sequential(Doubled(8, 8), square()),
    "hooked": hooked,
    "hooked gradient": Clamped,
    "rotated": Rotated,
}


def clip(model: nn.Module) -> None:
    for each in model.parameters():
        assert each.grad is not None
        each.grad.data.clamp_(-0.005, 0.005)  # counts nowhere that it was


def clamp(model: nn.Module) -> None:
    for each in model.parameters():
        each.data.clamp_(-0.3, 0.3)


@dataclass(frozen=True)
class Way:
    """How a model is trained.

    Attributes:
        batches: calls of the model in a step.
        at_once: one backward pass goes through all of them.
        narrow: under autocast.
        before, after: what the program does to gradients before the optimizer's step, and to weights after it.
        optimizer: makes the optimizer.
        poke: called with the step and the model before each step.
    """

    batches: int = 1
    at_once: bool = False
    narrow: bool = False
    before: Callable[[nn.Module], None] = lambda _: None
    after: Callable[[nn.Module], None] = lambda _: None
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW
    poke: Callable[[int], None] = lambda _: None


WAYS: dict[str, Way] = {
    "accumulation": Way(batches=2),
    "autocast": Way(narrow=True),
    "values of gradients clipped": Way(before=clip),
    "norm clipped": Way(before=lambda model: void(nn.utils.clip_grad_norm_(model.parameters(), 0.01))),
    "SGD": Way(optimizer=torch.optim.SGD),
}
STEPS = 3
LEVELS = ("module", "op")


def void(_: object) -> None:
    """Nothing."""


def saved(model: nn.Module, path: Path, level: str = "module", way: Way = Way()) -> AuditReport:
    """What the audit says of a training that was saved whole."""
    address = f"unix:{path.parent}/s"
    watched = ["--no-recommended", "--watch", "TS abs_mean_lt=1e30", "--steps", str(STEPS)]
    options = ["--no-config", "--no-screen", *watched, "--host", address, "--save", str(path)]
    command = [sys.executable, "-m", "tui_debugger", "listen", *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as listening:
        assert listening.stderr is not None
        listening.stderr.readline()  # it waits for a training
        torch.manual_seed(0)
        optimizer = way.optimizer(model.parameters(), lr=0.01)
        handle = tdbg.attach(model, optimizer, address, level=level)
        for step in range(STEPS):
            way.poke(step)
            losses = []
            for _ in range(way.batches):
                with torch.autocast("cpu", torch.bfloat16, enabled=way.narrow):
                    losses.append(model(torch.randn(8, 8)).float().square().mean() / way.batches)
                if not way.at_once:
                    losses.pop().backward()
            if losses:
                torch.stack(losses).sum().backward()
            way.before(model)
            optimizer.step()
            optimizer.zero_grad()
            if step < STEPS - 1:
                way.after(model)
        handle.detach()
        try:
            listening.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            listening.kill()
            raise
    return audited(path)


def audited(path: Path) -> AuditReport:
    session = opened(path, "TO")
    try:
        return audit(session, session.pairs())
    finally:
        session.close()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Saves a healthy training of a model, each once."""
    found: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in found:
            found[name] = tmp_path_factory.mktemp("d") / name.replace(" ", "-")
            assert saved(MODELS[name](), found[name]).findings == ()
        return found[name]

    return of


def share(report: AuditReport) -> float:
    """The share of operators that were checked."""
    return report.checked / (report.checked + report.not_checked)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", MODELS)
def test_a_healthy_model_is_accused_of_nothing(name: str, level: str, tmp_path: Path) -> None:
    report = saved(MODELS[name](), tmp_path / "dump", level)
    assert (report.findings, report.exit_code) == ((), 0)
    assert share(report) > (0.7 if level == "op" else 0.2)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", WAYS)
def test_nor_is_a_healthy_way_to_train(name: str, level: str, tmp_path: Path) -> None:
    report = saved(MODELS["square"](), tmp_path / "dump", level, WAYS[name])
    assert (report.findings, report.exit_code) == ((), 0)
    assert share(report) >= 0.5


@pytest.mark.parametrize("level", LEVELS)
def test_nor_is_one_whose_backward_pass_goes_through_two_forward_passes(level: str, tmp_path: Path) -> None:
    """It goes through the last one first: its masks are others than those that were recorded."""
    model = nn.Sequential(square(), nn.Dropout(0.05), nn.ReLU(), square())
    report = saved(model, tmp_path / "dump", level, Way(batches=2, at_once=True))
    assert (report.findings, report.exit_code) == ((), 0)


class Spoiled:
    """A kernel that makes one element wrong, in one step."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.step = -1
        kernel = getattr(nn.functional, name)

        def spoiled(*args: Any, **kwargs: Any) -> Any:
            made = kernel(*args, **kwargs)
            if self.step == 1:
                self.step = -1
                made.detach().numpy()[3, 4] += 1.0  # behind PyTorch's back, as a kernel does
            return made

        monkeypatch.setattr(nn.functional, name, spoiled)

    def __call__(self, step: int) -> None:
        self.step = step


def test_nor_is_one_that_clamps_its_weights(tmp_path: Path) -> None:
    report = saved(MODELS["square"](), tmp_path / "dump", "module", Way(after=clamp))
    assert (report.findings, report.exit_code) == ((), 0)
    assert share(report) >= 0.5


@pytest.mark.parametrize(("level", "named"), [("module", "3/GELU"), ("op", "3/Gelu")])
@pytest.mark.parametrize("batches", [1, 2])
def test_an_element_that_a_kernel_makes_wrong_is_named(
    level: str, named: str, batches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = Way(batches, poke=Spoiled("gelu", monkeypatch))
    finding = saved(MODELS["square"](), tmp_path / "dump", level, way).headline
    assert finding is not None
    assert (finding.rank, finding.step, finding.name, finding.check.worst) == (0, 1, named, (3, 4))


@pytest.mark.parametrize(
    ("level", "file", "named"),
    [
        ("module", "GELUGrad.*", "Gradients/3/GELUGrad"),
        ("module", "ParameterGrad.Gradients--2--weight.*", "Gradients/2/weight"),
        ("module", "Parameter.exp_avg_sq.2.weight.*", "Optimizer/2/weight"),
        ("op", "GeluBackward.*", "Gradients/3/GeluBackward"),
        ("op", "Mm.Gradients--2--Mm.*", "Gradients/2/Mm"),
        ("op", "Parameter.exp_avg.2.weight.*", "Optimizer/2/weight"),
    ],
)
def test_a_wrong_gradient_or_state_is_named(level: str, file: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / "dump"
    assert saved(MODELS["square"](), path, level).findings == ()
    (spoiled,) = path.glob(f"rank_0/*/0/{STEPS - 1}/{file}output.0.*.npy")
    values = np.load(spoiled)
    values[3, 4] += 0.5
    np.save(spoiled, values)
    finding = audited(path).headline
    assert finding is not None
    assert (finding.rank, finding.step, finding.name, finding.check.worst) == (0, STEPS - 1, named, (3, 4))


@pytest.mark.parametrize(
    ("model", "file", "named"),
    [
        ("other norms", "RMSNormGrad.*output.0", "Gradients/1/RMSNormGrad"),
        ("other norms", "LinearGrad.Gradients--0--*output.0", "Gradients/0/LinearGrad"),
        ("recurrent", "LSTM.*output.0", "1/lstm/LSTM"),
        ("recurrent", "LSTM.*output.1", "1/lstm/LSTM"),
        ("recurrent", "LSTM.*output.2", "1/lstm/LSTM"),
    ],
)
def test_an_element_of_a_norm_or_a_recurrent_layer_is_named(
    model: str, file: str, named: str, trained: Callable[[str], Path], tmp_path: Path
) -> None:
    path = linked(trained(model), tmp_path / "dump")
    (spoiled,) = path.glob(f"rank_0/*/0/{STEPS - 1}/{file}.*.npy")
    values = np.load(spoiled)
    values.flat[3] += 0.01 + 0.01 * abs(values.flat[3])
    np.save(own(spoiled), values)
    finding = audited(path).headline
    assert finding is not None
    assert (finding.step, finding.name, str(finding.check.slot)) == (STEPS - 1, named, file[-1])
    assert np.ravel_multi_index(finding.check.worst, values.shape) == 3


def test_what_a_norm_keeps_for_the_backward_pass_is_checked_too(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    assert saved(MODELS["norms"](), path, "op").findings == ()
    (deviations,) = path.glob(f"rank_0/*/0/{STEPS - 1}/NativeLayerNorm.*output.2.*.npy")
    np.save(deviations, -np.load(deviations))
    finding = audited(path).headline
    assert finding is not None
    assert (finding.step, finding.name, finding.check.slot) == (STEPS - 1, "2/NativeLayerNorm", 2)
