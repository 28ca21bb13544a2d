"""Two trainings that were recorded and saved: a repeat is the same, and a fault is named where it begins."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

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
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH, bias=name != "k") for name in "qkv")
        self.diagonal, self.fused = 1, False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fused:
            seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(self.diagonal - 1)
            return nn.functional.scaled_dot_product_attention(
                self.q(x)[:, None], self.k(x)[:, None], self.v(x)[:, None], attn_mask=seen, scale=1.0
            ).squeeze(1)
        scores = self.q(x) @ self.k(x).transpose(-1, -2)
        future = torch.ones(*scores.shape[-2:], dtype=torch.bool).triu(self.diagonal)
        found: torch.Tensor = scores.masked_fill(future, -1e9).softmax(-1) @ self.v(x)
        return found


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention, self.drop = nn.LayerNorm(WIDTH), Attention(), nn.Dropout(0.2)
        self.up, self.approximate = nn.Linear(WIDTH, WIDTH), "none"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.drop(nn.functional.gelu(self.up(x), approximate=self.approximate))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(10, WIDTH), nn.Linear(WIDTH, 10, bias=False)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.narrow = False

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.narrow):
            for block in self.blocks:
                x = block(x)
        return self.head(x)  # type: ignore[no-any-return]  # a module may return anything


def healthy(*_: object) -> None:
    """Nothing happens."""


def mask(model: Model, *_: object) -> None:
    model.blocks[1].attention.diagonal = 2


def fused(model: Model, *_: object) -> None:
    """Attention is written in another way."""
    for block in model.blocks:
        block.attention.fused = True


def fused_mask(model: Model, *_: object) -> None:
    fused(model)
    mask(model)


def approximate(model: Model, *_: object) -> None:
    model.blocks[0].approximate = "tanh"


def narrow(model: Model, *_: object) -> None:
    model.narrow = True


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


class Compared(Protocol):
    def __call__(self, fault: Fault, level: str, clips: bool = True) -> RunsReport: ...


def record(path: Path, level: str, fault: Fault, clips: bool) -> None:
    """Trains a model, and saves what the recorder tells of it: all values, where nothing clips gradients in place."""
    address = f"unix:{path.parent}/s"
    watched = [*["--recommended"] * clips, "--watch", "TL max_gt=-1e30", "--steps", str(STEPS)]
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
            if clips:
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
    known: dict[tuple[str, str, bool], Path] = {}

    def recorded(fault: Fault, level: str, name: str, clips: bool) -> Path:
        at = name, level, clips
        if at not in known:
            known[at] = tmp_path_factory.mktemp(name) / "dump"
            record(known[at], level, fault, clips)
        return known[at]

    def compare(fault: Fault, level: str, clips: bool = True) -> RunsReport:
        paths = recorded(healthy, level, "first", clips), recorded(fault, level, fault.__name__, clips)
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


@pytest.mark.parametrize("way", [fused, narrow])
def test_another_way_to_compute_the_same_is_no_difference(compared: Compared, way: Fault) -> None:
    """Calls that only one way has are bridged: what comes out of them is compared, and what views show."""
    report = compared(way, "op", clips=False)
    assert (report.findings, report.doubts, report.exit_code) == ((), (), 0)


def test_but_another_mask_in_it_is_where_the_difference_begins(compared: Compared) -> None:
    found = headline(compared(fused_mask, "op"))
    assert (found.kind, found.place.step_a) == (DiffKind.REGION, 0)
    assert found.name.startswith("blocks/1/attention/")
    assert "ScaledDotProduct" in found.text


def test_an_operator_that_is_called_with_another_text_is_the_first_difference(compared: Compared) -> None:
    """Each run is right by itself; but its inputs are equal, so that it passes nothing on."""
    found = headline(compared(approximate, "op"))
    assert (found.kind, found.name, found.place.step_a) == (DiffKind.ARGUMENT, "blocks/0/Gelu", 0)
    assert "approximate is the default in A and 'tanh' in B" in found.text


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
