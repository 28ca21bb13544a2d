"""Two trainings that were recorded and saved: a repeat is the same, and a fault is named where it begins."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from torch import nn  # noqa: E402 - torch first

import tui_debugger.torch as tdbg  # noqa: E402 - likewise
from tests.session.opened import opened  # noqa: E402 - likewise
from tui_debugger.diagnose.runs.comparison import compare_runs  # noqa: E402 - likewise
from tui_debugger.diagnose.runs.results import DiffFinding, DiffKind, NodeJudgement, RunsReport  # noqa: E402 - likewise
from tui_debugger.diagnose.runs.text import coverage_text  # noqa: E402 - likewise

STEPS = 3
WIDTH = 8


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.diagonal = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.q(x) @ self.k(x).transpose(-1, -2)
        future = torch.ones(*scores.shape[-2:], dtype=torch.bool).triu(self.diagonal)
        found: torch.Tensor = scores.masked_fill(future, -1e9).softmax(-1) @ self.v(x)
        return found


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention, self.drop = nn.LayerNorm(WIDTH), Attention(), nn.Dropout(0.2)
        self.up = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.drop(nn.functional.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(10, WIDTH), nn.Linear(WIDTH, 10, bias=False)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)  # type: ignore[no-any-return]  # a module may return anything


def healthy(*_: object) -> None:
    """Nothing happens."""


def mask(model: Model, *_: object) -> None:
    model.blocks[1].attention.diagonal = 2


def drop(model: Model, *_: object) -> None:
    model.blocks[0].drop.p = 0.0


def stale(model: Model, step: int, when: str) -> None:
    """A weight is put back behind an update."""
    if (step, when) == (2, "begin"):
        with torch.no_grad():
            model.blocks[1].up.weight.copy_(model.kept)
    if (step, when) == (1, "begin"):
        model.kept = model.blocks[1].up.weight.detach().clone()


def gradient(model: Model, step: int, when: str) -> None:
    """One gradient is three times as large before all are clipped."""
    if (step, when) == (1, "backward"):
        model.blocks[0].attention.v.weight.grad.mul_(3.0)


def nan(model: Model, step: int, when: str) -> None:
    if (step, when) == (1, "begin"):
        with torch.no_grad():
            model.blocks[1].up.weight[3, 4] = float("nan")


Fault = Callable[[Model, int, str], None]
Compared = Callable[[Fault, str], RunsReport]


def record(path: Path, level: str, fault: Fault) -> None:
    """Trains a model, and saves what the recorder tells of it."""
    address = f"unix:{path.parent}/s"
    watched = ["--recommended", "--watch", "TL max_gt=-1e30", "--steps", str(STEPS)]
    options = ["--no-config", "--no-screen", *watched, "--host", address, "--save", str(path)]
    with subprocess.Popen(
        [sys.executable, "-m", "tui_debugger", "listen", *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as listening:
        assert listening.stderr is not None
        listening.stderr.readline()  # it waits for a training
        torch.manual_seed(0)
        model = Model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        handle = tdbg.attach(model, optimizer, address, level=level)
        for step in range(STEPS):
            torch.manual_seed(step)
            tokens = torch.randint(0, 10, (2, 6))
            fault(model, step, "begin")
            loss = nn.functional.cross_entropy(model(tokens[:, :-1]).reshape(-1, 10), tokens[:, 1:].reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            fault(model, step, "backward")
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
        handle.detach()
        try:
            listening.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            listening.kill()
            raise


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """Compares a healthy training with another one; each is recorded once."""
    known: dict[tuple[str, str], Path] = {}

    def recorded(fault: Fault, level: str, name: str) -> Path:
        if (name, level) not in known:
            known[name, level] = tmp_path_factory.mktemp(name) / "dump"
            record(known[name, level], level, fault)
        return known[name, level]

    def compare(fault: Fault, level: str) -> RunsReport:
        paths = recorded(healthy, level, "first"), recorded(fault, level, fault.__name__)
        sessions = opened(paths[0]), opened(paths[1])
        try:
            return compare_runs(*sessions)
        finally:
            for session in sessions:
                session.close()

    return compare


def headline(report: RunsReport) -> DiffFinding:
    assert report.headline is not None
    assert report.exit_code == 1
    return report.headline


LEVELS = pytest.mark.parametrize("level", ["module", "op"])


@LEVELS
def test_a_repeat_is_the_same(compared: Compared, level: str) -> None:
    """No state of the optimizer is there before its first step, and nobody records all views of weights."""
    report = compared(healthy, level)
    assert (report.findings, report.doubts, report.exit_code) == ((), (), 0)
    assert sum(step.covered for step in report.steps) > 0
    assert "could not be compared" not in coverage_text(report)
    assert not [
        each
        for step in report.steps
        for each in step.judged
        if each.judgement in {NodeJudgement.INSIDE, NodeJudgement.UNPROVEN}
    ]


def test_another_mask_is_where_the_difference_begins(compared: Compared) -> None:
    report = compared(mask, "op")
    found = headline(report)
    assert (found.name, found.place.step_a) == ("blocks/1/attention/Triu", 0)
    assert {each.name for each in report.findings} == {found.name}
    opaque = headline(compared(mask, "module"))
    assert opaque.place.step_a == 0
    assert opaque.name.startswith("blocks/1/attention/")


@pytest.mark.parametrize(
    ("level", "kind", "name", "text"),
    [
        ("module", DiffKind.RANDOM, "blocks/0/drop/Dropout", "switched off in B"),
        ("op", DiffKind.REGION, "blocks/0/drop/Mul", "only A has blocks/0/drop/Bernoulli"),
    ],
)
def test_operators_of_one_run_only_are_where_the_difference_begins(
    compared: Compared, level: str, kind: DiffKind, name: str, text: str
) -> None:
    """Other operators may draw other random numbers from then on: nothing else is accused."""
    report = compared(drop, level)
    found = headline(report)
    assert (found.kind, found.name, found.place.step_a) == (kind, name, 0)
    assert text in found.text
    assert {each.kind for each in report.findings} <= {kind, DiffKind.RANDOM}


@pytest.mark.parametrize(("level", "name"), [("module", "blocks/1/up/Linear"), ("op", "blocks.1.up.weight")])
@pytest.mark.parametrize(("fault", "step"), [(stale, 2), (nan, 1)])
def test_a_weight_that_was_changed_between_steps_is_the_cause(
    compared: Compared, level: str, name: str, fault: Fault, step: int
) -> None:
    """A recorder of modules sees only what computes with it: the finding says so."""
    report = compared(fault, level)
    found = headline(report)
    assert (found.name, found.place.step_a) == (name, step)
    assert "changed" in found.text
    assert len(report.findings) == 1


@pytest.mark.parametrize(("level", "name"), [("module", "Gradients/blocks/0/attention/v/weight"), ("op", "Mul")])
def test_the_gradient_that_was_scaled_is_named_and_not_those_that_were_clipped_with_it(
    compared: Compared, level: str, name: str
) -> None:
    report = compared(gradient, level)
    (found,) = report.findings
    assert (report.exit_code, found.name, found.place.step_a) == (1, name, 1)
    assert level == "module" or "Gradients/blocks/0/attention/v" in found.text
