"""Infinities beside a healthy training, at the level of operators: what losses keep, what formulas select away, copies.

Each program stands beside its twin with a fault, and what is saved of both says the same as the training did.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

import torch.nn.functional as F  # noqa: E402, N812 - torch first; the name that PyTorch's users know
from torch import nn  # noqa: E402 - likewise

from tests.session.opened import checked, opened  # noqa: E402 - likewise
from tests.zoo.watched import Seen, watch  # noqa: E402 - likewise
from tui_debugger.model import Verdict  # noqa: E402 - likewise

LOW: Final = -math.inf
BAD: Final = 1
STEPS: Final = 3
Loss = Callable[[nn.Module, bool], torch.Tensor]
After = Callable[[nn.Module, torch.Tensor, int], object]


def trained(model: nn.Module, loss: Loss, after: After, attach: Callable[..., Any], *, fault: bool) -> None:
    """Trains; the fault is in step ``BAD``. ``after``: what the program does after each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    handle = attach(model, optimizer)
    for step in range(STEPS):
        optimizer.zero_grad()
        made = loss(model, fault and step == BAD)
        made.backward()
        optimizer.step()
        after(model, made.detach(), step)
    handle.detach()


def nothing(*_: object) -> None:
    """The program does nothing after a step."""


def seen_of(model: nn.Module, loss: Loss, dump: Path, after: After = nothing, *, fault: bool = False) -> Seen:
    """What a session saw; what it saved has the same findings and origins."""
    seen = watch(lambda attach: trained(model, loss, after, attach, fault=fault), "op", "TO", 0, dump)
    assert (seen.trouble, seen.unrecorded) == ([], [])
    session = opened(dump, "TO")
    hits = [hit for hit in checked(session) if hit.key.step <= BAD or not fault]
    session.close()
    assert {hit.key.step for hit in hits if hit.verdict is Verdict.FINDING} == {
        step for step in seen.findings if step <= BAD or not fault
    }
    if fault:
        assert [hit.key.node for hit in hits if hit.origin and hit.key.step == BAD] == seen.origins[BAD]
    return seen


# -- losses ------------------------------------------------------------------------------------------


def ctc(*, zero_infinity: bool, long: bool = False) -> Loss:
    """A CTC loss; in the bad step, or where ``long`` in all, a label is longer than its input."""

    def loss(model: nn.Module, bad: bool) -> torch.Tensor:
        likely = model(torch.randn(8, 3, 5)).log_softmax(-1)
        lengths = torch.tensor([3, 9 if bad or long else 2, 3])
        labels = torch.randint(1, 6, (3, 9))
        return F.ctc_loss(likely, labels, torch.full((3,), 8), lengths, zero_infinity=zero_infinity)

    return loss


@pytest.mark.parametrize(
    "loss", [ctc(zero_infinity=False), ctc(zero_infinity=True, long=True)], ids=["plain", "zeroed"]
)
def test_what_a_ctc_loss_keeps_is_no_finding(loss: Loss, tmp_path: Path) -> None:
    assert seen_of(nn.Linear(5, 6), loss, tmp_path / "dump").findings == {}


def test_a_ctc_loss_that_is_infinite_is_the_only_origin(tmp_path: Path) -> None:
    seen = seen_of(nn.Linear(5, 6), ctc(zero_infinity=False), tmp_path / "dump", fault=True)
    assert min(seen.findings) == BAD
    assert seen.origins[BAD] == ["CtcLoss"]


# -- formulas of backward passes ---------------------------------------------------------------------

FORMULAS: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "a norm of zeros": lambda made: F.normalize(made, dim=-1).pow(3),
    "a cosine of zeros": lambda made: F.cosine_similarity(made, made.flip(0), dim=-1),
    "a product of zeros": lambda made: made.cumprod(-1),
    "a quotient of zeros": torch.sinc,
    "powers of zeros": lambda made: made.relu() ** torch.tensor([0.0, 1.0, 2.0]),
    "a deviation of equals": lambda made: made.std(-1),
}


def of_zeros(formula: Callable[[torch.Tensor], torch.Tensor]) -> Loss:
    """A loss of rows of which one is zero."""

    def loss(model: nn.Module, _: bool) -> torch.Tensor:
        x = torch.randn(5, 4)
        x[2] = 0
        made = model(x)
        return formula(made).mean()

    return loss


@pytest.mark.parametrize("formula", FORMULAS)
def test_what_a_backward_pass_selects_away_is_no_finding(formula: str, tmp_path: Path) -> None:
    model = nn.Linear(4, 3, bias=False)
    assert seen_of(model, of_zeros(FORMULAS[formula]), tmp_path / "dump").findings == {}


def test_what_is_nan_in_the_forward_pass_is_the_origin(tmp_path: Path) -> None:
    def loss(model: nn.Module, bad: bool) -> torch.Tensor:
        x = torch.randn(5, 4)
        x[2] = 0
        made: torch.Tensor = model(x)
        return (made / (made.norm(dim=-1, keepdim=True) + (0 if bad else 1e-6)) - 1).square().mean()

    seen = seen_of(nn.Linear(4, 3, bias=False), loss, tmp_path / "dump", fault=True)
    assert min(seen.findings) == BAD
    assert seen.origins[BAD] == ["Div"]


def test_nan_of_a_backward_pass_that_goes_on_is_the_origin(tmp_path: Path) -> None:
    def loss(model: nn.Module, bad: bool) -> torch.Tensor:
        x = torch.randn(5, 4)
        x[2] = 0
        made: torch.Tensor = model(x)
        return (made.square().sum(-1) + (0 if bad else 1e-6)).sqrt().mean()

    seen = seen_of(nn.Linear(4, 3, bias=False), loss, tmp_path / "dump", fault=True)
    assert min(seen.findings) == BAD
    (origin,) = seen.origins[BAD]
    assert origin.startswith("Gradients/Div")


SOURCES, TARGETS = torch.tensor([0, 1, 2, 3, 4, 5, 1, 0]), torch.tensor([1, 0, 1, 2, 3, 4, 2, 3])
"""The edges of a graph in which nothing leads to the last node."""
REDUCTIONS: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "scattered": lambda scores: torch.full((6,), LOW).scatter_reduce(0, TARGETS, scores, "amax"),
    "by index": lambda scores: torch.full((6,), LOW).index_reduce(0, TARGETS, scores, "amax"),
}


@pytest.mark.parametrize("fault", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_the_largest_of_nothing_is_no_finding_where_nobody_reads_it(
    reduction: str, fault: bool, tmp_path: Path
) -> None:
    """A softmax over the edges that lead to each node; where the maximum is not taken off, it overflows."""

    def loss(model: nn.Module, bad: bool) -> torch.Tensor:
        scores = model(torch.randn(6, 4))[SOURCES, 0]
        highest = REDUCTIONS[reduction](scores.detach())
        weights = (scores + 1e3 if bad else scores - highest[TARGETS]).exp()
        found: torch.Tensor = (weights / torch.zeros(6).index_add(0, TARGETS, weights)[TARGETS]).square().mean()
        return found

    seen = seen_of(nn.Linear(4, 1), loss, tmp_path / "dump", fault=fault)
    assert min(seen.findings, default=None) == (BAD if fault else None)
    assert seen.origins.get(BAD, []) == ["Exp"] * fault


class Encoded(nn.Module):
    """PyTorch compares the mask with a causal one, and never adds it to anything."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.encoder(x, mask=mask)
        return found


@pytest.mark.parametrize("fault", [False, True])
def test_a_mask_that_is_only_compared_is_no_finding(fault: bool, tmp_path: Path) -> None:
    mask = nn.Transformer.generate_square_subsequent_mask(5)

    def loss(model: nn.Module, bad: bool) -> torch.Tensor:
        x = torch.randn(2, 5, 8)
        found: torch.Tensor = model(x / torch.zeros(()) if bad else x, mask).square().mean()
        return found

    seen = seen_of(Encoded(), loss, tmp_path / "dump", fault=fault)
    assert min(seen.findings, default=None) == (BAD if fault else None)
    assert seen.origins.get(BAD, []) == ["Div"] * fault


@pytest.mark.parametrize("fault", [False, True])
def test_what_reads_another_tensor_in_other_steps_does_not_speak_against_a_mask(fault: bool, tmp_path: Path) -> None:
    """Every second step computes a difference more, so that nodes of one name are other calls."""
    actions = torch.tensor([[0], [1], [0], [1]])
    steps: list[int] = []

    def loss(model: nn.Module, bad: bool) -> torch.Tensor:
        steps.append(0)
        made: torch.Tensor = model(torch.randn(4, 3))
        more = nn.functional.smooth_l1_loss(made[:, 0] - 1, torch.zeros(4)) if len(steps) % 2 else made.new_zeros(())
        scores = made.masked_fill(torch.tensor([False, False, True]), LOW)
        chances = (scores - scores.logsumexp(-1, keepdim=True)).gather(1, actions).exp()
        return chances.mean() / (0 if bad else 1) + more

    seen = seen_of(nn.Linear(3, 3), loss, tmp_path / "dump", fault=fault)
    assert min(seen.findings, default=None) == (BAD if fault else None)
    assert seen.origins.get(BAD, []) == ["Div"] * fault


# -- what the program keeps --------------------------------------------------------------------------


class Masked(nn.Module):
    """Keeps a causal mask; in the bad step the mask is added to what the attention returns."""

    def __init__(self, *, fused: bool) -> None:
        super().__init__()
        self.first, self.fused = nn.Linear(6, 6), fused
        self.register_buffer("mask", torch.full((4, 4), LOW).triu(1))

    def forward(self, x: torch.Tensor, bad: bool) -> torch.Tensor:
        made = self.first(x)
        if self.fused:
            made = F.scaled_dot_product_attention(made[:, None], made[:, None], made[:, None], is_causal=True)
        else:
            made = (made @ made.transpose(1, 2) + self.mask).softmax(-1) @ made
        found: torch.Tensor = made + self.mask[:, -1:] if bad else made
        return found


def attended(model: nn.Module, bad: bool) -> torch.Tensor:
    found: torch.Tensor = model(torch.randn(2, 4, 6), bad).square().mean()
    return found


KEEPS: Final[dict[str, Callable[[nn.Module], object]]] = {
    "clones of its state": lambda model: {
        name: each.detach().cpu().clone() for name, each in model.state_dict().items()
    },
    "a copy of all": copy.deepcopy,
}


@pytest.mark.parametrize("fused", [True, False], ids=["a mask that nothing reads", "a mask that is read"])
@pytest.mark.parametrize("keep", KEEPS)
def test_a_mask_that_the_program_copies_is_no_finding(keep: str, fused: bool, tmp_path: Path) -> None:
    kept: list[object] = []
    model = Masked(fused=fused)
    seen = seen_of(model, attended, tmp_path / "dump", lambda model, *_: kept.append(KEEPS[keep](model)))
    assert seen.findings == {}
    assert len(kept) == STEPS


@pytest.mark.parametrize("keep", KEEPS)
def test_a_mask_that_is_copied_and_goes_on_is_a_finding(keep: str, tmp_path: Path) -> None:
    model = Masked(fused=True)  # which reads the mask in the bad step alone
    seen = seen_of(model, attended, tmp_path / "dump", lambda model, *_: KEEPS[keep](model), fault=True)
    assert min(seen.findings) == BAD
    assert "Add" in seen.findings[BAD]


def best_loss(compared: bool) -> tuple[Loss, After]:
    """Keeps the best loss, which begins infinite; where it is not ``compared`` the bad step multiplies with it."""
    best: list[torch.Tensor] = []

    def loss(model: nn.Module, bad: bool) -> torch.Tensor:
        if not best:
            best.append(torch.tensor(math.inf))
        made: torch.Tensor = model(torch.randn(5, 4)).square().mean()
        return made * torch.tensor(math.inf) if bad and not compared else made

    def after(_: nn.Module, made: torch.Tensor, __: int) -> None:
        if made < best[0]:
            best[0] = made.clone()

    return loss, after


def test_a_best_loss_that_begins_infinite_is_no_finding(tmp_path: Path) -> None:
    loss, after = best_loss(compared=True)
    assert seen_of(nn.Linear(4, 2), loss, tmp_path / "dump", after).findings == {}


def test_a_loss_that_is_multiplied_with_an_infinite_number_is_a_finding(tmp_path: Path) -> None:
    loss, after = best_loss(compared=False)
    seen = seen_of(nn.Linear(4, 2), loss, tmp_path / "dump", after, fault=True)
    assert min(seen.findings) == BAD
    assert "Mul" in seen.findings[BAD]
