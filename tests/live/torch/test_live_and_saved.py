"""A training and the dump that is saved of it have one answer, whatever the graph came to be after a step was judged.

Each program with a fault stands beside its healthy twin.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

import torch.nn.functional as F  # noqa: E402, N812 - torch first; the name that PyTorch's users know
from torch import nn  # noqa: E402 - likewise

from tests.session.opened import checked, found, opened  # noqa: E402 - likewise
from tests.zoo.watched import Seen, watch  # noqa: E402 - likewise
from tui_debugger.model import Verdict  # noqa: E402 - likewise
from tui_debugger.said import SAID_FILE  # noqa: E402 - likewise
from tui_debugger.session.convert import convert  # noqa: E402 - likewise

LEVELS: Final = ("module", "op")
LOW: Final = -math.inf
BAD: Final = 2
STEPS: Final = 4
Attach = Callable[..., Any]
Program = Callable[[Attach, bool], None]
Place = tuple[int, str]


def trained(attach: Attach, model: nn.Module, loss: Callable[[int], torch.Tensor]) -> None:
    """Trains a model by the loss of each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    handle = attach(model, optimizer)
    for step in range(STEPS):
        made = loss(step)
        optimizer.zero_grad()
        made.backward()
        optimizer.step()
    handle.detach()


def policy(attach: Attach, fault: bool) -> None:
    """Actions are masked; the bad step is the only one that multiplies with their infinite logarithms."""
    model = nn.Linear(4, 3)
    forbidden = torch.zeros(6, 3, dtype=torch.bool)
    forbidden[:, 1] = True

    def loss(step: int) -> torch.Tensor:
        logarithms = model(torch.randn(6, 4)).masked_fill(forbidden, LOW).log_softmax(-1)
        shown = logarithms if fault and step == BAD else logarithms.masked_fill(forbidden, 0.0)
        return (logarithms.exp() * shown).sum(1).mean() - logarithms[:, 0].mean()

    trained(attach, model, loss)


def lattice(attach: Attach, fault: bool) -> None:
    """Sums over the paths of a lattice, which begins at an infinite number; the bad step has the logarithm of 0."""
    model = nn.Linear(5, 4)

    def loss(step: int) -> torch.Tensor:
        scores = model(torch.randn(3, 5))
        steps = (scores * 1e4).softmax(-1).log() if fault and step == BAD else scores.log_softmax(-1)
        none = torch.full((4,), LOW)
        best = torch.logaddexp(none, steps[0])
        for each in steps[1:]:
            best = torch.logaddexp(best + each, each.roll(1))
        return -best.mean()

    trained(attach, model, loss)


def ensemble(attach: Attach, fault: bool) -> None:
    """Several models run as one, which weights that are not its own stand in for."""
    models = [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)) for _ in range(2)]
    weights, buffers = torch.func.stack_module_state(models)
    weights = {name: each.detach().requires_grad_() for name, each in weights.items()}
    optimizer = torch.optim.Adam(weights.values(), 1e-2)
    handle = attach(models[0], optimizer)

    def run(parameters: Any, others: Any, x: torch.Tensor) -> Any:
        return torch.func.functional_call(models[0], (parameters, others), (x,))

    for step in range(STEPS):
        loss = (torch.vmap(run, (0, 0, None))(weights, buffers, torch.randn(5, 3)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if fault and step == BAD - 1:
            with torch.no_grad():
                weights["0.weight"][1, 0, 0] = math.nan
    handle.detach()


class Branching(nn.Module):
    """A branch runs in the bad step alone; what it is given may be bad."""

    def __init__(self, fault: bool) -> None:
        super().__init__()
        self.a, self.b, self.c, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.fault, self.step = fault, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x)
        if self.fault and self.step == BAD:
            h = (h * 0).log() * 0
        if self.step == BAD:
            h = torch.tanh(self.c(self.b(h))) + F.softplus(h).sqrt()
        self.step += 1
        made: torch.Tensor = self.out(self.b(h))
        return made


def branch(attach: Attach, fault: bool) -> None:
    """See ``Branching``."""
    model = Branching(fault)
    trained(attach, model, lambda _: model(torch.randn(6, 8)).square().mean())


class Positions(nn.Module):
    """Returns a view of its weight, which is read after a fused optimizer has changed that."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 8))

    def forward(self, _: torch.Tensor) -> torch.Tensor:
        return self.weight[:6]


def view(attach: Attach, fault: bool) -> None:
    """See ``Positions``; the loss is bad, and so is what the optimizer makes of the weight."""
    model = nn.Sequential(Positions(), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), 0.1, fused=True)
    handle = attach(model, optimizer)
    for step in range(STEPS):
        loss = model(torch.randn(2, 6, 8)).square().mean()
        if fault and step == BAD:
            loss = loss * 0 / (loss.detach() * 0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    handle.detach()


class WithTarget(nn.Module):
    """A model, and a copy that follows it slowly, of which the program makes what to learn."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Linear(5, 1)
        self.target = copy.deepcopy(self.model).requires_grad_(False)


def target(attach: Attach, fault: bool) -> None:
    """Something out of sight breaks the copy; only the graph of later steps says that averages are written to it."""
    both = WithTarget()
    optimizer = torch.optim.Adam(both.model.parameters(), 1e-3)
    handle = attach(both, optimizer)
    for step in range(STEPS):
        x = torch.randn(6, 5)
        if fault and step == BAD:
            both.target.weight.data.numpy()[0, 1] = math.nan
        with torch.no_grad():
            wanted = torch.randn(6, 1) + 0.9 * both.target(x)
        loss = F.huber_loss(both.model(x), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for own, followed in zip(both.target.parameters(), both.model.parameters(), strict=True):
                own.mul_(0.99).add_(followed, alpha=0.01)
    handle.detach()


def scaler(attach: Attach, fault: bool) -> None:
    """A gradient scaler leaves every step out; the bad step overflows before its loss, which the next step shows."""
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaling = torch.amp.GradScaler("cpu", init_scale=2.0**30)
    handle = attach(model, optimizer)
    for step in range(STEPS):
        with torch.autocast("cpu", torch.float16):
            made = model(torch.randn(5, 4))
            if fault and step == BAD:
                made = made * 6e4 * 6e4
            loss = made.float().square().mean()
        optimizer.zero_grad()
        scaling.scale(loss).backward()
        scaling.step(optimizer)
        scaling.update()
        loss.detach()
    handle.detach()


def swap(attach: Attach, fault: bool) -> None:
    """Other values stand in a weight while the model is evaluated, and only then; in one step they are bad."""
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    handle = attach(model, optimizer)
    for step in range(STEPS):
        loss = model(torch.randn(5, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            own = model.weight.clone()
            model.weight.mul_(math.nan if fault and step == BAD - 1 else 0.5)
            model(torch.randn(3, 4))
            model.weight.copy_(own)
    handle.detach()


class Queue(nn.Module):
    """Reads a buffer, and writes to a part of it in every step."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Linear(4, 3)
        self.register_buffer("kept", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.rows(x) * self.kept.clone()
        self.kept.mul_(0.9).add_(0.1)
        return made


def queue(attach: Attach, fault: bool) -> None:
    """The program writes something bad into the buffer of a module before it runs: see ``Queue``."""
    model = Queue()

    def loss(step: int) -> torch.Tensor:
        if fault and step == BAD:
            model.kept[1] = math.nan
        return model(torch.randn(5, 4)).square().mean()

    trained(attach, model, loss)


PROGRAMS: Final[dict[str, tuple[Program, dict[str, set[Place]]]]] = {
    "a mask that is read in one step more": (policy, {"module": {(BAD, "Loss")}, "op": {(BAD, "Mul")}}),
    "a sum over paths": (lattice, {"op": {(BAD, "Log")}}),
    "weights that stand in": (ensemble, {"op": {(BAD, "NoGrad/LiftFresh")}}),
    "a branch that runs once": (branch, {"op": {(BAD, "Log")}}),
    "a view of a weight": (view, {"module": {(BAD, "Loss")}, "op": {(BAD, "Div")}}),
    "averages that the program writes": (target, {level: {(BAD, "target.weight")} for level in LEVELS}),
    "a buffer that the program and its module write": (
        queue,
        {"module": {(BAD, "kept")}, "op": {(BAD, "LiftFresh")}},
    ),
    "a weight that is bad for a while": (swap, {"op": {(BAD, "NoGrad/Mul")}}),
}


def both(program: Callable[[Attach], None], level: str, dump: Path) -> tuple[Seen, set[Place], set[Place]]:
    """What a session saw of a training; its origins, and those of what it saved, in the steps up to the bad one."""
    seen = watch(program, level, "TO", 0, dump)
    assert seen.trouble == []
    live = {(step, node) for step, nodes in seen.origins.items() for node in nodes}
    session = opened(dump, "TO")
    hits = checked(session)
    session.close()
    assert {step for _, step in found(hits)} == set(seen.findings)
    return seen, live, {(hit.key.step, hit.key.node) for hit in hits if hit.origin}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_fault_has_one_origin_live_and_saved(name: str, level: str, tmp_path: Path) -> None:
    program, true = PROGRAMS[name]
    seen, live, saved = both(lambda attach: program(attach, True), level, tmp_path / "dump")
    assert live == saved == true.get(level, set())
    assert level == "module" or min(seen.findings) == BAD


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_healthy_twin_is_clean_live_and_saved(name: str, level: str, tmp_path: Path) -> None:
    seen, live, saved = both(lambda attach: PROGRAMS[name][0](attach, False), level, tmp_path / "dump")
    assert (seen.findings, live, saved) == ({}, set(), set())


def test_the_verdict_by_design_is_saved_though_what_reads_the_mask_changes(tmp_path: Path) -> None:
    watch(lambda attach: policy(attach, True), "op", "TO", 0, tmp_path / "dump")
    lines = [json.loads(line) for line in (tmp_path / "dump" / "rank_0" / SAID_FILE).read_text().splitlines()]
    of_masks = [each for each in lines if each.get("node") == "MaskedFill" and "by_design" in each]
    assert {each["step"] for each in of_masks if "Exp" in each["by_design"]} == {*range(BAD)}


def test_what_a_scaler_left_out_is_by_design_in_a_step_that_is_saved_for_something_else(tmp_path: Path) -> None:
    seen = watch(lambda attach: scaler(attach, True), "op", "TO", save=tmp_path / "dump")
    assert (seen.origins[BAD], seen.findings[BAD + 1]) == (["Mul"], {"Detach": {"tensor_overflow"}})
    session = opened(tmp_path / "dump", "TO")
    hits = checked(session)
    session.close()
    left_out = {each.key.node for each in hits if each.key.step == BAD + 1 and each.verdict is Verdict.BY_DESIGN}
    assert "Gradients/ToCopy" in left_out
    found = {(each.key.step, each.key.node, each.origin) for each in hits if each.verdict is Verdict.FINDING}
    assert {each for each in found if each[2] or each[0] != BAD} == {(BAD, "Mul", True), (BAD + 1, "Detach", False)}


def test_a_training_whose_scaler_leaves_steps_out_is_clean(tmp_path: Path) -> None:
    seen, live, saved = both(lambda attach: scaler(attach, False), "op", tmp_path / "dump")
    assert (seen.findings, live, saved) == ({}, set(), set())


@pytest.mark.parametrize("level", LEVELS)
def test_weights_that_others_stand_in_for_need_not_change(level: str) -> None:
    seen = watch(lambda attach: ensemble(attach, False), level, "WNC rtol=0 atol=0 @ category=trainable")
    assert seen.findings == {}


@pytest.mark.parametrize("level", LEVELS)
def test_what_a_training_could_not_record_is_a_doubt_in_what_is_saved_of_it(level: str, tmp_path: Path) -> None:
    seen = watch(lambda attach: ensemble(attach, False), level, "TO", save=tmp_path / "dump")
    session = opened(tmp_path / "dump", "TO")
    coverage = session.check(session.pairs()).coverage
    assert [part.where for part in coverage.parts if part.unrecorded] == [f"rank 0: {seen.unrecorded[0]}"]
    session.close()


@pytest.mark.parametrize("program", [policy, target, ensemble], ids=["by-design", "operands", "not-recorded"])
def test_what_is_converted_of_a_saved_dump_says_what_the_dump_says(program: Program, tmp_path: Path) -> None:
    watch(lambda attach: program(attach, True), "op", "TO", save=tmp_path / "dump")
    said = []
    for place in ("dump", "converted"):
        session = opened(tmp_path / place, "TO")
        result = session.check(session.pairs())
        hits = {(hit.key.step, hit.key.node, hit.key.slot, hit.verdict, hit.origin) for hit in result.hits}
        said.append((hits, [(part.where, part.why, part.unrecorded) for part in result.coverage.parts]))
        if place == "dump":
            convert(session, session.pairs(), tmp_path / "converted")
        session.close()
    assert said[0] == said[1]
    assert any(hit[-1] for hit in said[0][0])


@pytest.mark.parametrize("level", LEVELS)
def test_of_a_training_that_was_clean_the_last_step_is_saved(level: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    seen = watch(
        lambda attach: trained(attach, model, lambda _: model(torch.randn(5, 4)).square().mean()),
        level,
        "TO",
        save=tmp_path / "dump",
    )
    session = opened(tmp_path / "dump", "TO")
    result = session.check(session.pairs())
    assert (seen.findings, list(result.hits), session.source.steps(0)) == ({}, [], (STEPS - 1,))
    assert result.coverage.checked > 0
    assert not result.coverage.parts
    session.close()
