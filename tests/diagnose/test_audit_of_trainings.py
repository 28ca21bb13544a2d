"""The audit of what was saved of PyTorch trainings: healthy ones are accused of nothing, a wrong output is named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from torch import nn  # noqa: E402 - torch first

import tui_debugger.torch as tdbg  # noqa: E402 - likewise
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


MODELS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "square": (lambda: nn.Sequential(square(), nn.ReLU(), square(), nn.GELU(), square()), 5),
    "in place": (lambda: nn.Sequential(square(), nn.ReLU(inplace=True), square()), 1),
    "dropout": (lambda: nn.Sequential(square(), nn.Dropout(0.3), nn.ReLU(), square()), 3),
    "norms": (lambda: nn.Sequential(square(), nn.BatchNorm1d(8), nn.LayerNorm(8), square()), 3),
    "another epsilon": (lambda: nn.Sequential(square(), nn.LayerNorm(8, eps=1e-2), square()), 2),
    "twice": (Twice, 1),
    "turned": (Turned, 1),
    "its own class": (lambda: nn.Sequential(Doubled(8, 8), square()), 1),
    "hooked": (hooked, 2),
}
"""Models, and how many of their modules are checked in a step at least."""
STEPS = 2


def saved(model: nn.Module, path: Path, level: str = "module", *, narrow: bool = False) -> AuditReport:
    """What the audit says of a training that was saved whole."""

    address = f"unix:{path.parent}/s"
    options = [
        "--no-config",
        "--no-screen",
        "--no-recommended",
        "--watch",
        "TS abs_mean_lt=1e30",
        "--steps",
        str(STEPS),
    ]
    command = [sys.executable, "-m", "tui_debugger", "listen", *options, "--host", address, "--save", str(path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as listening:
        assert listening.stderr is not None
        listening.stderr.readline()  # it waits for a training
        torch.manual_seed(0)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        handle = tdbg.attach(model, optimizer, address, level=level)
        for _ in range(STEPS):
            for _ in range(2):  # two batches for a step
                with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
                    loss = model(torch.randn(8, 8)).float().square().mean() / 2
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        handle.detach()
        listening.communicate(timeout=60)
    return audited(path)


def audited(path: Path) -> AuditReport:
    session = opened(path, "TO")
    try:
        return audit(session, session.pairs())
    finally:
        session.close()


@pytest.mark.parametrize("name", MODELS)
def test_a_healthy_training_is_accused_of_nothing(name: str, tmp_path: Path) -> None:
    make, least = MODELS[name]
    report = saved(make(), tmp_path / "dump")
    assert (report.findings, report.doubts) == ((), ())
    assert report.checked >= least * len(report.pairs)


def test_nor_under_autocast(tmp_path: Path) -> None:
    report = saved(MODELS["square"][0](), tmp_path / "dump", narrow=True)
    assert (report.findings, report.exit_code) == ((), 0)


def test_nor_where_every_operator_is_recorded(tmp_path: Path) -> None:
    assert saved(MODELS["square"][0](), tmp_path / "dump", "op").findings == ()


def test_an_output_that_was_made_wrong_is_named(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    assert saved(MODELS["square"][0](), path).checked
    step = max(path.glob("rank_0/*/0/*"), key=lambda each: each.name if each.name.isdigit() else "")
    (file,) = step.glob("Linear.2--Linear.*.output.0.*.npy")
    values = np.load(file)
    values[3, 4] += 0.5
    np.save(file, values)
    finding = audited(path).headline
    assert finding is not None
    assert (finding.rank, finding.step, finding.name) == (0, int(step.name), "2/Linear")
    assert finding.check.worst == (3, 4)
