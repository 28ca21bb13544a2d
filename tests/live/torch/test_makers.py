"""Steps that nobody follows are held against those that were: what came to be in another way is not known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from torch import nn  # noqa: E402 - torch first
from torch.nn import functional  # noqa: E402

from tui_debugger.live import wire  # noqa: E402
from tui_debugger.live.client.messages import hit_messages  # noqa: E402
from tui_debugger.live.client.probe import ClientHit  # noqa: E402
from tui_debugger.live.server.answers import hit_of  # noqa: E402
from tui_debugger.live.wire import RemoteWatchpoint  # noqa: E402
from tui_debugger.model import Verdict, WatchResult  # noqa: E402
from tui_debugger.torch.module_hooks import ModuleHooks  # noqa: E402
from tui_debugger.torch.recording import StepRecording  # noqa: E402
from tui_debugger.torch.structure import TracedNode  # noqa: E402
from tui_debugger.torch.training import TrainingState  # noqa: E402

WIDTH = 4
ONES = torch.ones(WIDTH, WIDTH)
Way = Callable[[tuple[Any, Any, Any]], Any]


class Net(nn.Module):
    """Two layers, and a third one that is given something made of what both make."""

    way: Way

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.third = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        return self.third(self.way((x, y, self.second(y))))


WAYS: dict[str, Way] = {
    "an output": lambda made: made[1],
    "another output": lambda made: made[2],
    "the input": lambda made: made[0],
    "a sum": lambda made: made[1] + made[2],
    "a sum of the same twice": lambda made: made[1] + made[1],
    "a difference": lambda made: made[1] - made[2],
    "a view of a sum": lambda made: (made[2] + made[2]).t(),
    "an output that was written to": lambda made: spoilt(made[1]),
}
MOVED: dict[str, Way] = {
    "itself": lambda made: made[1],
    "a view": lambda made: made[1].t(),
    "a view of a view": lambda made: made[1].t().reshape(-1)[:WIDTH].expand(WIDTH, WIDTH),
    "a copy": lambda made: made[1].clone(),
    "memory put in order": lambda made: made[1].t().contiguous(),
}


def spoilt(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor, with another value in it that autograd does not know of."""
    with torch.no_grad():
        tensor[0, 0] = 2
    return tensor


def doubted(first: Way, later: Way) -> set[str]:
    """The nodes of which it is not known in the second step what they were made of."""

    def step(model: Net, way: Way) -> Any:
        model.way = way
        return model(torch.ones(WIDTH, WIDTH)).sum()

    model = Net()
    return doubted_in(model, lambda: step(model, first), lambda: step(model, later))


def doubted_in(model: nn.Module, *steps: Callable[[], Any]) -> set[str]:
    """The same of any model. ``steps``: compute a loss; the first one is followed."""
    recording = StepRecording(1 << 20, values=True)
    training = TrainingState(model, [], recording)
    training.look_again()
    hooks = ModuleHooks(recording, training.tree, lambda act: act())
    hooks.install(training.tree)
    found: set[str] = set()
    try:
        for step in steps:
            step().backward()
            found = set(recording.structure.doubted)
            recording.learning = False
            recording.clear()
            hooks.new_step()
    finally:
        hooks.remove()
    return found


@pytest.mark.parametrize("way", WAYS)
def test_the_same_way_again_is_known(way: str) -> None:
    assert doubted(WAYS[way], WAYS[way]) == set()


@pytest.mark.parametrize("later", WAYS)
@pytest.mark.parametrize("first", WAYS)
def test_another_way_is_not_known(first: str, later: str) -> None:
    """Whatever is made of it, too: the sum of functions, or the module that is given it."""
    if first != later:
        assert doubted(WAYS[first], WAYS[later]) & {"Add", "Sub", "third/Linear"}


@pytest.mark.parametrize("later", MOVED)
@pytest.mark.parametrize("first", MOVED)
def test_what_is_only_moved_is_the_same(first: str, later: str) -> None:
    assert doubted(MOVED[first], MOVED[later]) == set()


WRITTEN: dict[str, Way] = {
    "itself": lambda made: spoilt(made[1]),
    "a view of it": lambda made: spoilt(made[1]).t(),
    "through a view": lambda made: spoilt(made[1].t()),
}


@pytest.mark.parametrize("later", WRITTEN)
def test_what_was_written_to_is_not_the_same(later: str) -> None:
    assert "third/Linear" in doubted(MOVED["itself"], WRITTEN[later])


@pytest.mark.parametrize("later", MOVED)
@pytest.mark.parametrize("first", MOVED)
def test_what_is_moved_and_then_computed_is_the_same(first: str, later: str) -> None:
    """As ``reshape`` is one function of autograd while operators are seen and another one while they are not."""
    ways: list[Way] = [lambda made, way=MOVED[each]: way(made).reshape(WIDTH, WIDTH) + 1 for each in (first, later)]  # type: ignore[misc] # defaults
    assert doubted(*ways) == set()


class Taking(nn.Module):
    """A module with arguments that may be left out."""

    def forward(self, **given: Any) -> torch.Tensor:
        return torch.stack([each.float() for each in given.values() if each is not None]).sum(0)


class Choosing(nn.Module):
    """Gives outputs of two layers, and others, to a module. ``given``: arguments and what they are."""

    given: dict[str, str]

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.taking = Taking()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        known = {"first": self.first(x), "second": self.second(x), "table": ONES, "mask": ONES.bool(), "nothing": None}
        return self.taking(**{name: known[each] for name, each in self.given.items()}).sum()


CALLS: dict[str, tuple[dict[str, str], dict[str, str], bool]] = {
    # The arguments in the step that is followed, those in the next one, and whether it is known of what they were made.
    "one left out": ({"a": "first", "b": "second"}, {"a": "nothing", "b": "second"}, True),
    "the other way round": ({"a": "first", "b": "second"}, {"a": "second", "b": "first"}, True),
    "a mask of True": ({"a": "first"}, {"a": "first", "b": "mask"}, True),
    "one more table": ({"a": "first", "b": "table"}, {"a": "first", "b": "table", "c": "table"}, True),
    "a table": ({"a": "first"}, {"a": "first", "b": "table"}, False),
    "a table for an output": ({"a": "first", "b": "second"}, {"a": "first", "b": "table"}, False),
    "a new output": ({"a": "first"}, {"a": "first", "b": "second"}, False),
    "another output": ({"a": "first"}, {"a": "second"}, False),
}


@pytest.mark.parametrize("name", CALLS)
def test_arguments_may_be_left_out_and_stand_elsewhere(name: str) -> None:
    first, later, known = CALLS[name]
    model = Choosing()

    def step(given: dict[str, str]) -> Any:
        model.given = given
        return model(ONES)

    assert ("taking/Taking" not in doubted_in(model, lambda: step(first), lambda: step(later))) == known


class Spoiling(nn.Module):
    """Returns what it is given, or NaN."""

    bad = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * math.nan if self.bad else x * 1


class Around(nn.Module):
    """Has modules inside, and a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.other = nn.Linear(WIDTH, WIDTH), Spoiling()
        self.table = ONES * 1
        self.branch = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        other = self.other(x.detach())
        made = self.linear(x)
        return made + (other - self.table).detach() / 0 if self.branch else made


@pytest.mark.parametrize("bad", ["", "given", "inside", "held"])
def test_a_new_branch_of_a_module_with_others_inside_is_its_own_work_if_it_can_have_read_nothing_bad(bad: str) -> None:
    around = Around()
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), around, nn.Linear(WIDTH, WIDTH))

    def later() -> Any:
        around.branch, around.other.bad = True, bad == "inside"
        if bad == "held":
            around.table[0, 0] = math.nan
        return model(ONES * (math.nan if bad == "given" else 1)).sum()

    found = doubted_in(model, lambda: model(ONES).sum(), later)
    assert ("1/Around" not in found) == (not bad)
    assert "2/Linear" in found


class Own(torch.autograd.Function):
    """A function of the program, of which nobody knows what it reads."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x * math.nan

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def kept_elsewhere(y: torch.Tensor) -> torch.Tensor:
    """What derivatives need is kept, and fetched, by the program."""
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept, lambda kept: kept):
        return (y * (y.detach() * 0)).sum()


LOSSES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], bool]] = {
    # How the loss is computed in the step after the one that is followed, and whether it is known of what.
    "other functions": (lambda y: y.square().log().mean(), True),
    "a division of zero by zero": (lambda y: y.sum() * 0 / (y.detach().sum() * 0), True),
    "labels": (lambda y: functional.mse_loss(y, ONES), True),
    "weights of classes": (lambda y: functional.cross_entropy(y, ONES[0].long(), weight=ONES[0]), True),
    "bad labels": (lambda y: functional.mse_loss(y, ONES * math.nan), False),
    "bad weights of classes": (lambda y: functional.cross_entropy(y, ONES[0].long(), weight=ONES[0] * math.inf), False),
    "a bad factor": (lambda y: (y * (ONES * math.nan)).sum(), False),
    "a summand that autograd does not keep": (lambda y: (y + ONES).sum(), False),
    "a choice that autograd does not keep": (lambda y: torch.where(y > 0, y, ONES).sum(), False),
    "a function of the program": (lambda y: Own.apply(y).sum(), False),
    "a factor that the program keeps": (kept_elsewhere, False),
}


@pytest.mark.skipif(
    not hasattr(torch._C._autograd.SavedTensor, "unpack_hook"),
    reason="this PyTorch does not tell how it keeps what derivatives need",
)
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_made_of_the_same_whatever_functions_compute_it(name: str) -> None:
    loss_of, known = LOSSES[name]
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH))
    assert ("Loss" not in doubted_in(model, lambda: model(ONES).sum(), lambda: loss_of(model(ONES)))) == known


def came_back(hit: ClientHit) -> bool:
    """What the debugger hears of a hit."""
    remote = RemoteWatchpoint(1, 13, (), ((hit.node, "", ""),))
    (message,) = hit_messages([hit], {1: remote})
    received = hit_of(wire.message("WatchpointHit").FromString(message.SerializeToString()))
    assert received is not None
    return received.inputs_unknown


def test_a_hit_says_whether_the_debugger_knows_what_its_node_was_made_of() -> None:
    recording = StepRecording(1 << 20, values=True)
    structure = recording.structure
    structure.add("node", TracedNode("Add"))
    structure.add_inputs("node", ["x"])
    hit = ClientHit("node", 0, WatchResult(1, "tensor_overflow", Verdict.FINDING))

    def told() -> bool:
        (said,) = recording.told([hit])
        return came_back(said)

    assert told()  # no graph was sent
    structure.sent()
    assert not told()
    structure.add_inputs("node", ["x"])
    assert not told()
    structure.add_inputs("node", ["y"])
    assert told()
    structure.sent()
    assert not told()
    structure.doubt("node")
    assert told()
    structure.sent()  # which says itself that there is an unknown input
    assert not told()
