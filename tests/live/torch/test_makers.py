"""Steps that nobody follows are held against those that were: what came to be in another way is not known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from torch import nn  # noqa: E402 - torch first

from tui_debugger.live import wire  # noqa: E402
from tui_debugger.live.client.messages import hit_messages  # noqa: E402
from tui_debugger.live.client.probe import ClientHit  # noqa: E402
from tui_debugger.live.server.answers import hit_of  # noqa: E402
from tui_debugger.live.wire import RemoteWatchpoint  # noqa: E402
from tui_debugger.model import Verdict, WatchResult  # noqa: E402
from tui_debugger.torch.module_hooks import ModuleHooks  # noqa: E402
from tui_debugger.torch.recording import Recording  # noqa: E402
from tui_debugger.torch.structure import Node  # noqa: E402
from tui_debugger.torch.training import Training  # noqa: E402

WIDTH = 4
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
    "a view": lambda made: made[1].t(),
    "a view of another output": lambda made: made[2].t(),
}


def doubted(first: Way, later: Way) -> set[str]:
    """The nodes of which it is not known in the second step what they were made of."""
    model = Net()
    recording = Recording(1 << 20, values=True)
    training = Training(model, [], recording)
    training.look_again()
    hooks = ModuleHooks(recording, training.tree, lambda act: act())
    hooks.install(training.tree)
    try:
        for way in (first, later):
            model.way = way
            model(torch.ones(WIDTH, WIDTH)).sum().backward()
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


def came_back(hit: ClientHit) -> bool:
    """What the debugger hears of a hit."""
    remote = RemoteWatchpoint(1, 13, (), ((hit.node, "", ""),))
    (message,) = hit_messages([hit], {1: remote})
    received = hit_of(wire.message("WatchpointHit").FromString(message.SerializeToString()))
    assert received is not None
    return received.inputs_unknown


def test_a_hit_says_whether_the_debugger_knows_what_its_node_was_made_of() -> None:
    recording = Recording(1 << 20, values=True)
    structure = recording.structure
    structure.add("node", Node("Add"))
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
