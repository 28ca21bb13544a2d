"""What a program writes into its data: missing values, labels that were spoilt, masks made in other ways than usual.

Each healthy program stands beside its twin with a fault, and what is saved of both says the same as the training did.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

import torch.nn.functional as F  # noqa: E402, N812 - torch first; the name that PyTorch's users know
from torch import nn  # noqa: E402 - likewise

from tests.live.torch.test_kept_infinities import BAD, Loss, seen_of, trained  # noqa: E402 - likewise
from tests.zoo.watched import Seen, watch  # noqa: E402 - likewise

LOW: Final = -math.inf


def after_nothing(*_: object) -> None:
    """The program does nothing after a step."""


def at_modules(model: nn.Module, loss: Loss, *, fault: bool = False) -> Seen:
    """What a session saw of the same at the level of modules."""
    return watch(lambda attach: trained(model, loss, after_nothing, attach, fault=fault), "module", "TO", stops=0)


# -- missing values ----------------------------------------------------------------------------------

GUARDS: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "replaced": torch.nan_to_num,
    "selected": lambda x: torch.where(x.isnan(), torch.zeros(()), x),
    "written over": lambda x: x.masked_fill(x.ne(x), 0.0),
    "left out by an index": lambda x: x[~x.isnan().any(1)],
    "left out of a mean": lambda x: x.nanmean(1, keepdim=True).expand(-1, 4),
}


def data(*, written: bool) -> torch.Tensor:
    """Data in which a value is missing: ``written`` by the program, or as it was read."""
    if written:
        x = torch.randn(6, 4)
        x[2, 1] = math.nan
        return x
    values = np.arange(24, dtype=np.float32).reshape(6, 4) / 10
    values[2, 1] = np.nan
    return torch.tensor(values)


def guarded(guard: str, *, written: bool) -> Loss:
    """A loss of data that is guarded, but in the bad step."""

    def loss(model: nn.Module, bad: bool) -> torch.Tensor:
        x = data(written=written)
        made: torch.Tensor = model(x if bad else GUARDS[guard](x))
        return made.square().mean()

    return loss


@pytest.mark.parametrize("written", [False, True], ids=["read", "written"])
@pytest.mark.parametrize("guard", GUARDS)
def test_missing_values_that_are_left_out_are_no_findings(guard: str, written: bool, tmp_path: Path) -> None:
    assert seen_of(nn.Linear(4, 1), guarded(guard, written=written), tmp_path / "dump").findings == {}


@pytest.mark.parametrize("written", [False, True], ids=["read", "written"])
def test_missing_values_that_a_model_reads_are_the_origin(written: bool, tmp_path: Path) -> None:
    seen = seen_of(nn.Linear(4, 1), guarded("replaced", written=written), tmp_path / "dump", fault=True)
    assert min(seen.findings) == BAD
    assert seen.origins[BAD] == ["LiftFresh"]


class Guarding(nn.Module):
    """A model that replaces the missing values of its input itself."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.bad = nn.Linear(4, 1), False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.last(x if self.bad else torch.where(x.isnan(), torch.zeros(()), x))
        return made


@pytest.mark.parametrize("fault", [False, True])
def test_a_model_that_guards_its_input_is_healthy_at_the_level_of_modules(fault: bool) -> None:
    def loss(model: nn.Module, bad: bool) -> torch.Tensor:
        model.bad = bad
        made: torch.Tensor = model(data(written=True))
        return made.square().mean()

    found = at_modules(Guarding(), loss, fault=fault).findings
    assert (min(found, default=-1), "last/Linear" in found.get(BAD, {})) == ((BAD, True) if fault else (-1, False))


def labelled(way: str) -> Loss:
    """A loss of labels of which one is missing; in the bad step it goes on in some way."""

    def loss(model: nn.Module, bad: bool) -> torch.Tensor:
        y = torch.tensor([[1.0, 2.0], [math.nan, 3.0], [4.0, 5.0]])
        known, made = ~y.isnan(), model(torch.randn(3, 4))
        whole: torch.Tensor = (made[known] - y[known]).square().mean()
        with torch.no_grad():
            torch.nanmean((made - y).abs())  # a number for people, which nothing is made of
        if bad and way == "loss":
            return (made - y).square().mean()
        if bad and way == "gradient":
            return torch.where(known, (made - y).square(), torch.zeros(())).mean()
        return whole + made.gather(1, y.argmax(1, keepdim=True)).mean() if bad else whole

    return loss


def test_labels_that_are_missing_are_no_findings(tmp_path: Path) -> None:
    assert seen_of(nn.Linear(4, 2), labelled(""), tmp_path / "dump").findings == {}


@pytest.mark.parametrize("way", ["loss", "gradient", "decision"])
def test_labels_that_are_missing_and_used_are_the_origin(way: str, tmp_path: Path) -> None:
    seen = seen_of(nn.Linear(4, 2), labelled(way), tmp_path / "dump", fault=True)
    assert min(seen.findings) == BAD
    assert seen.origins[BAD] == ["LiftFresh"]


# -- labels with an Inf ------------------------------------------------------------------------------

LOSSES: Final[dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "huber": F.huber_loss,
    "absolute": F.l1_loss,
    "square": F.mse_loss,
    "entropy": F.binary_cross_entropy_with_logits,
    "by hand": lambda made, y: (y - made).abs().mean(),
}
WAYS: Final[dict[str, tuple[Callable[[torch.Tensor, float], object], str]]] = {
    "an element": (lambda y, value: y.__setitem__(3, value), "LiftFresh"),
    "filled": (lambda y, value: y[3:5].fill_(value) is None, "Fill"),
    "selected": (lambda y, value: torch.where(torch.arange(6)[:, None] == 2, value, y), "Where"),
    "masked": (lambda y, value: y.masked_fill(torch.arange(6)[:, None] == 2, value), "MaskedFill"),
}


@pytest.mark.parametrize(
    ("measure", "way", "value"),
    [*((each, "an element", math.inf) for each in LOSSES), *(("by hand", each, LOW) for each in WAYS)],
)
def test_an_infinite_label_begins_where_it_was_written(measure: str, way: str, value: float, tmp_path: Path) -> None:
    write, origin = WAYS[way]

    def loss(model: nn.Module, bad: bool) -> torch.Tensor:
        x = torch.randn(6, 4)
        y = x.sum(1, keepdim=True)
        written = write(y, value) if bad else y
        return LOSSES[measure](model(x), written if isinstance(written, torch.Tensor) else y)

    seen = seen_of(nn.Linear(4, 1), loss, tmp_path / "dump", fault=True)
    assert min(seen.findings) == BAD
    assert seen.origins[BAD] == [origin]


def test_penalties_and_bounds_that_are_infinite_are_no_findings(tmp_path: Path) -> None:
    def loss(model: nn.Module, _: bool) -> torch.Tensor:
        made = model(torch.randn(6, 4))
        penalty = torch.where(torch.arange(5) > 3, math.inf, 0.0)
        bounds = torch.full((6, 5), math.inf)
        bounds[:, :3] = 0
        nearest = (bounds - made.detach()).amin(1)
        return (made - penalty).softmax(-1).square().mean() + nearest.mean()

    assert seen_of(nn.Linear(4, 5), loss, tmp_path / "dump").findings == {}


# -- masks -------------------------------------------------------------------------------------------


def two_lowest(made: torch.Tensor, bad: bool) -> torch.Tensor:
    mask = torch.zeros(4, 4)
    mask[:, 0 if bad else 3 :] = torch.finfo(torch.float32).min
    return made + mask + mask


MASKS: Final[dict[str, Callable[[torch.Tensor, bool], torch.Tensor]]] = {
    "a logarithm": lambda made, bad: made + (torch.arange(4) < (0 if bad else 3)).float().log(),
    "a logarithm of what is no padding": lambda made, bad: (
        made + (~(torch.arange(4) >= (0 if bad else 3))).half().log()
    ),
    "two lowest numbers": two_lowest,
}


@pytest.mark.parametrize("mask", ["a logarithm", "a logarithm of what is no padding", "two lowest numbers"])
def test_a_mask_made_in_another_way_is_no_finding(mask: str, tmp_path: Path) -> None:
    def loss(model: nn.Module, _: bool) -> torch.Tensor:
        return MASKS[mask](model(torch.randn(4, 4)), False).softmax(-1).square().mean()

    assert seen_of(nn.Linear(4, 4), loss, tmp_path / "dump").findings == {}


@pytest.mark.parametrize("mask", ["a logarithm", "two lowest numbers"])
def test_such_a_mask_over_everything_begins_at_the_softmax(mask: str, tmp_path: Path) -> None:
    def loss(model: nn.Module, bad: bool) -> torch.Tensor:
        return MASKS[mask](model(torch.randn(4, 4)), bad).softmax(-1).square().mean()

    seen = seen_of(nn.Linear(4, 4), loss, tmp_path / "dump", fault=True)
    assert seen.findings.keys() >= {BAD}
    assert seen.origins[BAD] == ["Softmax"]


def test_the_logarithm_of_a_number_that_is_0_is_the_origin(tmp_path: Path) -> None:
    def loss(model: nn.Module, bad: bool) -> torch.Tensor:
        shares = torch.tensor([0.5, 0.3, 0.2, 0.0 if bad else 0.1])
        return (model(torch.randn(4, 4)) + shares.log()).softmax(-1).square().mean()

    seen = seen_of(nn.Linear(4, 4), loss, tmp_path / "dump", fault=True)
    assert (seen.findings.keys(), seen.origins[BAD]) == ({BAD}, ["Log"])


@pytest.mark.parametrize("fault", [False, True])
def test_the_start_of_a_recursion_has_no_part_in_a_fault_beside_it(fault: bool, tmp_path: Path) -> None:
    """A number of the program stands at another place in the step in which the program spoils its data before."""

    def loss(model: nn.Module, bad: bool) -> torch.Tensor:
        x = torch.randn(4, 4)
        if bad:
            x[2, 1] = math.nan
        made = model(x)
        alpha = torch.full((3,), LOW).index_fill(0, torch.tensor([0]), 0.0) + made[0]
        for each in made[1:]:
            alpha = torch.logsumexp(alpha[:, None] + torch.zeros(3, 3), 0) + each
        return alpha.sum()

    seen = seen_of(nn.Linear(4, 3), loss, tmp_path / "dump", fault=fault)
    assert seen.origins.get(BAD, []) == (["LiftFresh"] if fault else [])
    assert bool(seen.findings) is fault


@pytest.mark.parametrize("read", [False, True], ids=["unread", "read after the step"])
def test_the_best_of_too_few_beams_is_no_finding(read: bool) -> None:
    best: list[torch.Tensor] = []

    def loss(model: nn.Module, _: bool) -> torch.Tensor:
        made: torch.Tensor = model(torch.randn(5, 4))
        beams = torch.full((5, 4), LOW)
        beams[:, 0] = 0
        best.append((beams + made.log_softmax(-1).detach()).topk(2, 1)[0])
        return made.square().mean()

    def after(*_: object) -> None:
        if read:
            best[-1][:, 0].sum()

    model = nn.Linear(4, 4)
    assert watch(lambda attach: trained(model, loss, after, attach, fault=False), "op", "TO", stops=0).findings == {}


class Given(nn.Module):
    """A model that gives a tensor to a function, beside what its layer makes."""

    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.function = nn.Linear(5, 5), nn.Linear(5, 1), function

    def forward(self, x: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.last(self.function(self.first(x), given))
        return made


def attend(made: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(made, made, made, attn_mask=mask)


def add(made: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
    return made.tanh() + features.relu()


def test_a_mask_that_only_functions_read_is_no_finding_at_the_level_of_modules() -> None:
    def loss(model: nn.Module, _: bool) -> torch.Tensor:
        mask = torch.zeros(3, 5, 5)
        mask[:, :, 4] = LOW
        made: torch.Tensor = model(torch.randn(3, 5, 5), mask)
        return made.square().mean()

    assert at_modules(Given(attend), loss).findings == {}


def test_data_with_an_inf_that_only_functions_read_is_a_finding_at_the_level_of_modules() -> None:
    def loss(model: nn.Module, bad: bool) -> torch.Tensor:
        features = torch.randn(3, 5, 5)
        if bad:
            features[0, 0, 0] = LOW
        made: torch.Tensor = model(torch.randn(3, 5, 5), features)
        return made.square().mean()

    found = at_modules(Given(add), loss, fault=True).findings
    assert {step: set(nodes) for step, nodes in found.items()} == {BAD: {"inputs.given"}}
