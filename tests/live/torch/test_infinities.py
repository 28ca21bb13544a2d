"""Infinities of healthy trainings at the level of operators: masks that a model keeps, and steps that a scaler skips.

Each stands beside a twin with a fault, which has one origin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from torch import nn  # noqa: E402 - torch first

import tui_debugger.torch as tdbg  # noqa: E402 - likewise
from tests.session.opened import checked, opened  # noqa: E402 - likewise
from tests.zoo.watched import Seen, watch  # noqa: E402 - likewise
from tui_debugger.model import Verdict  # noqa: E402 - likewise

LOW: Final = -math.inf
STEPS, BAD = 4, 2
SIZE, MOST = 6, 8
Scores = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Attach = Callable[..., tdbg.Handle]

FOLLOWS: Final[dict[str, Scores]] = {
    "added": lambda scores, mask: scores + mask,
    "added in place": lambda scores, mask: scores.add_(mask),
    "converted": lambda scores, mask: scores + mask.to(scores.dtype),
    "detached": lambda scores, mask: scores + mask.detach(),
    "compared": lambda scores, mask: scores.masked_fill(mask < 0, LOW),
    "equal": lambda scores, mask: scores.masked_fill(mask == LOW, -1e4),
    "selected": lambda scores, mask: torch.where(mask == 0, scores, mask.to(scores.dtype)),
    "in a sum with a product": lambda scores, mask: torch.baddbmm(mask[None].to(scores.dtype), scores, scores),
}


class Attention(nn.Module):
    """An attention that keeps its causal mask, and takes the part of it that a step needs."""

    def __init__(self, follow: Scores | None, lowest: float, element: torch.dtype = torch.float32) -> None:
        """``follow``: lays the mask over the scores; None: the fused attention does that."""
        super().__init__()
        self.qkv, self.last = nn.Linear(8, 24), nn.Linear(8, 1)
        self.register_buffer("mask", torch.full((MOST, MOST), lowest, dtype=element).triu(1))
        self.follow = follow
        self.fault = ""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        part = self.mask[:SIZE, :SIZE]
        if self.follow is None:
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=part.to(q.dtype))
        else:
            mixed = self.follow(q @ k.transpose(-1, -2), part).softmax(-1).to(v.dtype) @ v
        if self.fault == "division":
            mixed = mixed / torch.zeros(())
        if self.fault == "mask":
            mixed = mixed + part[:, -1:].to(mixed.dtype)
        out: torch.Tensor = self.last(mixed)
        return out


def attending(model: Attention, attach: Attach, fault: str = "", *, evaluated: bool = False) -> None:
    """Trains an attention; a fault is in step ``BAD``. ``evaluated``: the model runs before that without gradients."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    handle = attach(model, optimizer)
    for step in range(STEPS):
        if evaluated and step == BAD:
            with torch.no_grad():
                model(torch.randn(4, SIZE, 8))
        model.fault = fault if step == BAD else ""
        optimizer.zero_grad()
        model(torch.randn(4, SIZE, 8, dtype=model.last.weight.dtype)).square().mean().backward()
        optimizer.step()
    handle.detach()


def seen_of(model: Attention, fault: str = "") -> Seen:
    seen = watch(lambda attach: attending(model, attach, fault), "op", "TO", stops=0)
    assert (seen.trouble, seen.unrecorded, seen.last) == ([], [], STEPS - 1)
    return seen


@pytest.mark.parametrize("follow", FOLLOWS)
def test_a_mask_that_a_model_keeps_is_no_finding(follow: str) -> None:
    assert seen_of(Attention(FOLLOWS[follow], LOW)).findings == {}


@pytest.mark.parametrize("element", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("infinite", [True, False], ids=["infinite", "lowest number"])
def test_a_mask_of_any_type_is_no_finding(element: torch.dtype, infinite: bool) -> None:
    lowest = LOW if infinite else torch.finfo(element).min
    for follow in (FOLLOWS["added"], None):
        assert seen_of(Attention(follow, lowest, element).to(element)).findings == {}


def test_a_mask_that_overflows_in_a_smaller_type_is_no_finding() -> None:
    kept = Attention(FOLLOWS["converted"], torch.finfo(torch.float32).min)
    kept.qkv.half()
    kept.last.half()
    assert kept.mask.dtype == torch.float32
    assert seen_of(kept).findings == {}


def test_a_mask_on_an_attribute_is_no_finding() -> None:
    model = Attention(FOLLOWS["added"], LOW)
    mask = model.mask
    del model.mask
    model.mask = mask
    assert not dict(model.named_buffers())
    assert seen_of(model).findings == {}


@pytest.mark.parametrize("follow", ["added", "compared"])
def test_the_fault_beside_a_mask_is_the_origin(follow: str) -> None:
    seen = seen_of(Attention(FOLLOWS[follow], LOW), "division")
    assert min(seen.findings) == BAD
    assert not seen.findings[BAD].keys() & {"mask", "Slice", "Add", "MaskedFill"}
    assert seen.origins[BAD] == ["Div"]


def test_a_mask_that_goes_on_is_a_finding() -> None:
    seen = seen_of(Attention(FOLLOWS["added"], LOW), "mask")
    assert min(seen.findings) == BAD
    assert {"mask", "Slice", "Add#2", "last/Addmm"} <= seen.findings[BAD].keys()
    assert seen.origins[BAD] == ["mask"]


@pytest.mark.parametrize("fault", ["", "division", "mask"])
@pytest.mark.parametrize("follow", ["added", "in a sum with a product"])
def test_what_is_saved_says_the_same(fault: str, follow: str, tmp_path: Path) -> None:
    model = Attention(FOLLOWS[follow], LOW)
    seen = watch(lambda attach: attending(model, attach, fault, evaluated=True), "op", "TO", 0, tmp_path / "dump")
    session = opened(tmp_path / "dump", "TO")
    hits = session.check([pair for pair in session.pairs() if pair[1] <= BAD]).hits
    assert {hit.key.step for hit in hits if hit.verdict is Verdict.FINDING} == ({BAD} if fault else set())
    assert [hit.key.node for hit in hits if hit.origin] == seen.origins.get(BAD, [])
    assert seen.origins.get(BAD, []) == {"": [], "division": ["Div"], "mask": ["mask"]}[fault]
    session.close()


def test_a_mask_that_is_saved_with_the_weights_is_no_finding() -> None:
    model, kept = Attention(FOLLOWS["added"], LOW), dict[str, torch.Tensor]()

    def training(attach: Attach) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        handle = attach(model, optimizer)
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(torch.randn(4, SIZE, 8)).square().mean().backward()
            optimizer.step()
            kept.update((name, each.cpu().clone().double()) for name, each in model.state_dict().items())
        handle.detach()

    assert watch(training, "op", "TO").findings == {}
    assert kept["mask"].isinf().any()


@pytest.mark.parametrize("fault", [False, True])
def test_a_mask_of_a_layer_that_is_left_out_is_no_finding(fault: bool) -> None:
    first, second = Attention(FOLLOWS["added"], LOW), Attention(FOLLOWS["added"], LOW)
    model = nn.ModuleList([first, second])

    def training(attach: Attach) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        handle = attach(model, optimizer)
        for step in range(STEPS + 1):
            optimizer.zero_grad()
            x = torch.randn(4, SIZE, 8)
            first.fault = "division" if fault and step == STEPS else ""
            out = first(x) + (second(x) if step % 2 == 0 else 0)
            out.square().mean().backward()
            optimizer.step()
        handle.detach()

    seen = watch(training, "op", "TO", stops=0)
    assert seen.last == STEPS
    assert {step: nodes for step, nodes in seen.origins.items() if nodes} == ({STEPS: ["0/Div"]} if fault else {})
    assert seen.findings.keys() == ({STEPS} if fault else set())


def test_a_row_that_is_masked_as_a_whole_begins_at_the_softmax() -> None:
    model = Attention(FOLLOWS["added"], LOW)
    model.mask[1] = LOW
    assert seen_of(model).origins[0] == ["Softmax"]


def test_a_mask_that_nothing_absorbs_is_the_origin() -> None:
    seen = seen_of(Attention(lambda scores, mask: (scores + mask).cumsum(-1), LOW))
    assert seen.origins[0] == ["mask"]


# -- masks that are written into a part ----------------------------------------------------------------------

WRITTEN: Final[dict[str, Callable[[torch.Tensor, slice, float], object]]] = {
    "set in a slice": lambda mask, part, value: mask[0].__setitem__(part, value),
    "filled in a slice": lambda mask, part, value: mask[:, part].fill_(value),
    "masked in a row": lambda mask, part, value: mask[0].masked_fill_(torch.arange(SIZE) >= part.start, value),
    "copied into a slice": lambda mask, part, value: mask[0, part].copy_(torch.tensor(value)),
    "by an index": lambda mask, part, value: mask.__setitem__((0, torch.arange(SIZE)[part]), value),
    "filled by an index": lambda mask, part, value: mask.index_fill_(1, torch.arange(SIZE)[part], value),
}
WRITTEN_FAULTS: Final = {"row": "Softmax", "positive": "Softmax", "sum": "Sum"}


class Written(nn.Module):
    """Writes a mask in each step: into a new tensor, a copy, a buffer, or the scores themselves."""

    def __init__(self, write: Callable[[torch.Tensor, slice, float], object], into: str) -> None:
        super().__init__()
        self.first, self.write, self.into, self.fault = nn.Linear(8, 8), write, into, ""
        self.register_buffer("kept", torch.zeros(SIZE, SIZE))
        self.empty = torch.zeros(SIZE, SIZE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.first(x)
        scores = made @ made.transpose(-1, -2)
        if self.into == "buffer":
            mask = self.kept.zero_()
        else:
            mask = self.empty.clone() if self.into == "copy" else torch.zeros(SIZE, SIZE)
        self.write(mask, slice(0 if self.fault == "row" else 4, None), -LOW if self.fault == "positive" else LOW)
        mixed = (scores + mask).softmax(-1) @ made
        out: torch.Tensor = mixed + mask.sum() if self.fault == "sum" else mixed
        return out


def written(model: Written, attach: Attach, fault: str) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    handle = attach(model, optimizer)
    for step in range(BAD + 1):
        model.fault = fault if step == BAD else ""
        optimizer.zero_grad()
        model(torch.randn(3, SIZE, 8)).square().mean().backward()
        optimizer.step()
    handle.detach()


@pytest.mark.parametrize("into", ["tensor", "copy", "buffer"])
@pytest.mark.parametrize("write", WRITTEN)
def test_a_mask_that_is_written_into_a_part_is_no_finding(write: str, into: str, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    seen = watch(lambda attach: written(Written(WRITTEN[write], into), attach, ""), "op", "TO", 0, dump)
    assert (seen.trouble, seen.findings, seen.last) == ([], {}, BAD)
    session = opened(dump, "TO")
    assert not [hit for hit in checked(session) if hit.verdict is Verdict.FINDING]
    session.close()


@pytest.mark.parametrize("fault", WRITTEN_FAULTS)
@pytest.mark.parametrize(
    ("write", "into"),
    [("set in a slice", "tensor"), ("filled in a slice", "buffer"), ("filled by an index", "buffer")],
)
def test_a_mask_in_a_part_that_nothing_absorbs_has_one_origin(
    write: str, into: str, fault: str, tmp_path: Path
) -> None:
    model = Written(WRITTEN[write], into)
    seen = watch(lambda attach: written(model, attach, fault), "op", "TO", 0, tmp_path / "dump")
    assert seen.findings.keys() == {BAD}
    assert seen.origins[BAD] == [WRITTEN_FAULTS[fault]]
    session = opened(tmp_path / "dump", "TO")
    assert [hit.key.node for hit in session.check([(0, BAD)]).hits if hit.origin] == [WRITTEN_FAULTS[fault]]
    session.close()


def test_a_number_of_the_program_that_is_nan_begins_where_it_is_used() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))

    def training(attach: Attach) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        handle = attach(model, optimizer)
        for step in range(BAD + 1):
            if step == BAD:
                with torch.no_grad():
                    model[0].weight.mul_(math.nan)
            optimizer.zero_grad()
            model(torch.randn(6, 4)).square().mean().backward()
            optimizer.step()
        handle.detach()

    assert {step: found for step, found in watch(training, "op", "TO", stops=0).origins.items() if found} == {
        BAD: ["NoGrad/Mul"]
    }


# -- gradients that a scaler leaves out ---------------------------------------------------------------------

SCALED, LATE = 9, 8
"""Steps of a training with a scaler, which skips the first ones, and one that it does not skip."""
Gradients = Callable[[nn.Module], None]


def nothing(_: nn.Module) -> None:
    """Leaves gradients as they are."""


def clip(model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def clip_one_by_one(model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)


def norm_by_hand(model: nn.Module) -> None:
    norm = torch.stack([_gradient(each).detach().square().sum() for each in model.parameters()]).sum().sqrt()
    for each in model.parameters():
        _gradient(each).mul_(1 / (norm + 1e-6))


def spoil(model: nn.Module) -> None:
    """Divides a gradient by 0, which the scaler has looked at before."""
    weight = next(model.parameters())
    weight.grad = _gradient(weight) / torch.zeros(())
    clip(model)


def _gradient(parameter: nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad


def scaled(attach: Attach, act: Gradients, *, bad: int = -1, unscaled: bool = True, fault: bool = False) -> list[int]:
    """Trains in half precision, with a scale that is too great at first; returns the steps that were made.

    Args:
        attach: of the debugger.
        act: what the program does with gradients in step ``bad``, or in all of them.
        bad: the step.
        unscaled: the program has the scaler unscale them before.
        fault: the loss is NaN in step ``bad``.
    """
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    handle, scaler, x, made = attach(model, optimizer), torch.amp.GradScaler("cpu", 2.0**24), torch.randn(16, 8), []
    for step in range(SCALED):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = model(x).float().square().mean()
            if fault and step == bad:
                loss = loss + (loss - loss).log() * 0
        scaler.scale(loss).backward()
        if unscaled:
            scaler.unscale_(optimizer)
        if bad in (step, -1) or fault:
            act(model)
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        made += [step] if scaler.get_scale() >= scale else []
    handle.detach()
    return made


@pytest.mark.parametrize("act", [nothing, clip, clip_one_by_one, norm_by_hand])
@pytest.mark.parametrize("only", ["TO", ""], ids=["overflow", "recommended"])
def test_gradients_of_a_step_that_a_scaler_skips_are_no_findings(act: Gradients, only: str) -> None:
    made: list[int] = []
    seen = watch(lambda attach: made.extend(scaled(attach, act)), "op", only)
    assert made[0] > 1
    assert LATE in made
    assert (seen.trouble, seen.unrecorded, seen.findings, seen.stops, seen.last) == ([], [], {}, [], SCALED - 1)


def test_gradients_that_are_clipped_as_they_are_scaled_are_no_findings() -> None:
    seen = watch(lambda attach: scaled(attach, clip, unscaled=False), "op", "TO")
    assert (seen.findings, seen.last) == ({}, SCALED - 1)


def test_bad_gradients_that_the_optimizer_steps_with_are_findings() -> None:
    made: list[int] = []
    seen = watch(lambda attach: made.extend(scaled(attach, spoil, bad=LATE)), "op", "TO", stops=0)
    assert LATE in made
    assert min(seen.findings) == LATE
    assert {"Div", "NoGrad/ForeachNorm", "0.weight"} <= seen.findings[LATE].keys()
    assert seen.origins[LATE] == ["Div"]


@pytest.mark.parametrize("bad", [1, LATE])
def test_a_bad_loss_is_a_finding_though_the_scaler_skips_its_step(bad: int) -> None:
    seen = watch(lambda attach: scaled(attach, clip, bad=bad, fault=True), "op", "TO", stops=0)
    assert seen.findings.keys() == {bad}
    assert "Log" in seen.findings[bad]
    assert not any("ForeachNorm" in node or node.startswith("Gradients/") for node in seen.findings[bad])
    assert seen.origins[bad] == ["Log"]
