"""Where it began, as a session says it of real trainings of every unusual kind: the true place, and no other."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.live.torch.forks import parent
from tests.patience import PATIENCE
from tests.session.opened import opened
from tui_debugger.live.server import Server, serve
from tui_debugger.live.wire import Event
from tui_debugger.model import NodeKind, NodeSelection, NodeSelector
from tui_debugger.session.live import LiveEvent, LiveSession

pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from tests.live.torch import nets

ANYWHERE = NodeSelection((NodeSelector(NodeKind.CATEGORY, "tensor"),))


@dataclass
class Said:
    """What was said of one training.

    Attributes:
        origins: (step, node, slot).
        hits: nodes by step, in order.
    """

    origins: set[tuple[int, str, int]] = field(default_factory=set)
    hits: dict[int, list[str]] = field(default_factory=dict)


class Watching:
    """A session that runs every training to its end, step by step."""

    def __init__(self, session: LiveSession) -> None:
        self.session = session
        session.watchpoints.add("tensor_overflow", {}, ANYWHERE)
        self.said: dict[int, Said] = {}
        self._changed = threading.Condition()
        self._stops: dict[int, int] = {}
        self._over: set[int] = set()
        session.subscribe(self._heard)

    def _heard(self, event: LiveEvent) -> None:
        with self._changed:
            if event.rank is not None and event.kind is Event.STOPPED:
                self._stops[event.rank] = self._stops.get(event.rank, 0) + 1
            if event.rank is not None and event.kind in (Event.DONE, Event.LOST):
                self._over.add(event.rank)
            self._changed.notify_all()

    def follow(self, rank: int, steps: int) -> None:
        """Goes along with one training."""
        said = self.said[rank] = Said()
        times = 1
        self._stopped(rank, times)
        for step in range(steps):
            said.hits[step] = []
            ended = False
            while not ended:  # at level op a hit stops inside the step
                self.session.run(1, [rank], stop_on_hit=False)
                times += 1
                self._stopped(rank, times)
                stop = self.session.state(rank).stop
                ended = stop is None or not stop.node
                known = self.session.check([(rank, step)])
                said.hits[step] += [hit.key.node for hit in known.hits if hit.key.node not in said.hits[step]]
                said.origins |= {(step, hit.key.node, hit.key.slot) for hit in known.hits if hit.origin}
        self.session.release([rank])

    def _stopped(self, rank: int, times: int) -> None:
        with self._changed:
            arrived = self._changed.wait_for(lambda: self._stops.get(rank, 0) >= times or rank in self._over, PATIENCE)
            assert arrived, f"rank {rank} did not stop {times} times"
            assert self._stops.get(rank, 0) >= times, f"rank {rank} ended"


def watched(
    server: Server,
    names: Sequence[str],
    level: str = "module",
    program: str = "tests.live.torch.nets",
    save: Path | None = None,
) -> dict[str, Said]:
    """What a session says of some trainings, and saves."""
    session = LiveSession(server)
    process = parent().fork(program, [server.address, level, *names])
    try:
        watching = Watching(session)
        for rank in range(len(names)):
            watching.follow(rank, nets.STEPS)
        out = "".join(process.communicate(PATIENCE))
        assert process.returncode == 0, out
        assert "switched off" not in out
        if save is not None:
            session.save(save)
        return {name: watching.said[rank] for rank, name in enumerate(names)}
    finally:
        process.end()
        session.close()


def watched_alone(names: Sequence[str], *how: str, save: Path | None = None) -> dict[str, Said]:
    """What ``watched`` returns, with a server of its own."""
    server = serve("127.0.0.1", 0)
    try:
        return watched(server, names, *how, save=save)
    finally:
        server.close(terminate=True)


Places = set[tuple[int, str, int]]


def saved_origins(saved: Path, names: Sequence[str]) -> dict[str, Places]:
    """The origins in what a session saved, by the names of the trainings."""
    session = opened(saved, "TO")
    found: dict[str, Places] = {name: set() for name in names}
    for rank, name in enumerate(names):
        for step in session.source.steps(rank):
            hits = session.check([(rank, step)]).hits
            found[name] |= {(step, hit.key.node, hit.key.slot) for hit in hits if hit.origin}
    return found


def at(*places: str) -> Places:
    """Outputs of the bad step: ``node`` or ``node:slot``."""
    named = [(each.partition(":")[0], int(each.partition(":")[2] or 0)) for each in places]
    return {(nets.BAD, node, slot) for node, slot in named}


TRUE: dict[str, tuple[Places, str]] = {
    # Every origin of all steps, and the first bad tensor of the bad step.
    "experts with bad data": (at("inputs.x"), "inputs.x"),
    "a bad expert": (at("experts/3/Broken"), "experts/3/Broken"),
    "an expert with a bad gradient": (at("Gradients/experts/3/layer/LinearGrad"),) * 2,
    "an LSTM with bad data": (at("inputs.x"), "inputs.x"),
    "the state of an LSTM": (at("LogFunction"), "LogFunction"),
    "a sum": (at("AddFunction"), "AddFunction"),
    "tied weights": (at("middle/Broken"), "middle/Broken"),
    "a bad tied weight": (at("embedding.weight"), "embedding/Embedding"),
    "a weight that got other data": (at("head.weight"), "head/Linear"),
    "the gradient of a weight": (at("Gradients/second/bias"),) * 2,
    # Clipping makes all of them bad before anybody looks.
    "the gradient of a weight among clipped ones": (set(), "Gradients/second/bias"),
    "averages of bad weights": (at("inputs.x"), "inputs.x"),
    "a bad average": (at("slow.weight"), "slow/Linear"),
    "a layer that is called twice": (at("LogFunction"), "LogFunction"),
    "the gradient of a layer that is called twice": (at("Gradients/shared/LinearGrad"),) * 2,
    # The derivative of a logarithm at zero is infinite, and zero times that is NaN: what went wrong there is the same.
    "a checkpoint": (at("blocks/1/Broken"), "blocks/1/Broken"),
    "a reentrant checkpoint": (at("blocks/1/Broken"), "blocks/1/Broken"),
    "the gradient in a checkpoint": (at("Gradients/blocks/1/layer/LinearGrad"),) * 2,
    "the gradient in a reentrant checkpoint": (at("Gradients/blocks/1/layer/LinearGrad"),) * 2,
    "functions between modules": (at("middle/Broken"), "middle/Broken"),
    "a division of zero by zero": (at("quotient/Quotient"), "quotient/Quotient"),
    "a branch that runs for the first time": (at("branch/Branch"), "branch/Branch"),
    "a branch, with a fused optimizer": (at("branch/Branch"), "branch/Branch"),
    "a sum of something else": (at("second/Broken"), "second/Broken"),
    "a loss of something else": (at("second/Broken"), "second/Broken"),
    "memory that a kernel fills": (at("0/Broken"), "0/Broken"),
    "a frozen backbone": (at("backbone/2/Broken"), "backbone/2/Broken"),
    "statistics of a norm": (at("inputs.x"), "inputs.x"),
    "data classes": (at("splits/Splits:1"), "splits/Splits"),
    "layers that are left out": (at("layers/1/Broken"), "layers/1/Broken"),
    "a loss": (at("Loss"), "Loss"),
    "a loss whose gradients are finite": (at("Loss"), "Loss"),
    "a loss of two batches": (at("Loss"), "Loss"),
    "a loss that is scaled": (at("Loss"), "Loss"),
    "the gradient of a loss": (at("Gradients/head/LinearGrad"),) * 2,
    "a loss that a module computes": (at("loss/CrossEntropyLoss"), "loss/CrossEntropyLoss"),
    # What ran as it never ran before is not recorded.
    "a function that runs now and then": (set(), "second/Linear"),
}


@pytest.fixture(scope="module")
def said() -> dict[str, Said]:
    """What a session says of all of them, in two processes."""
    found: dict[str, Said] = {}
    names = [
        *TRUE,
        "masks",
        "a derivative in a model",
        "a loss that is scaled too far",
        "an expert that is new and bad",
        "a branch that runs for the first time and is healthy",
        nets.RIVALS,
    ]
    for part in (names[::2], names[1::2]):
        found |= watched_alone(part)
    return found


@pytest.mark.parametrize("name", TRUE)
def test_the_true_origin_is_the_only_one(said: dict[str, Said], name: str) -> None:
    expected, first = TRUE[name]
    assert said[name].origins == expected
    assert said[name].hits[nets.BAD][0] == (first if isinstance(first, str) else next(iter(first))[1])
    assert not said[name].hits[0]
    assert not said[name].hits[1]


def test_masks_of_infinities_are_no_findings(said: dict[str, Said]) -> None:
    assert said["masks"].hits == {step: [] for step in range(nets.STEPS)}


def test_a_branch_that_runs_for_the_first_time_is_no_finding(said: dict[str, Said]) -> None:
    assert said["a branch that runs for the first time and is healthy"].hits == {step: [] for step in range(nets.STEPS)}


def test_a_fused_optimizer_makes_no_origins_of_weights_that_it_has_updated(server: Server) -> None:
    """Level op: views of weights were recorded before the optimizer ran, and its writing is not counted."""
    names = ["a branch, with a fused optimizer", "a branch that is healthy, with a fused optimizer"]
    bad, healthy = watched(server, names, "op").values()
    assert bad.origins <= at("branch/Log")  # an operator that never ran before may be judged in the step after
    assert bad.hits[nets.BAD]
    assert healthy.hits == {step: [] for step in range(nets.STEPS)}


def test_a_loss_is_found_though_its_gradients_are_finite_and_once(said: dict[str, Said]) -> None:
    assert said["a loss whose gradients are finite"].hits[nets.BAD] == ["Loss"]
    assert said["a loss of two batches"].hits[nets.BAD] == ["Loss"]
    assert said["a loss that is scaled"].hits[nets.BAD] == ["Loss", "ScaledLoss"]
    assert not [each for each in said["a loss that a module computes"].hits[nets.BAD] if each.startswith("Loss")]


def test_a_loss_that_only_its_scaler_makes_infinite_is_no_finding(said: dict[str, Said]) -> None:
    assert said["a loss that is scaled too far"].hits == {step: [] for step in range(nets.STEPS)}


def test_a_derivative_that_a_model_computes_for_itself_is_no_loss(said: dict[str, Said]) -> None:
    assert said["a derivative in a model"].hits == {step: [] for step in range(nets.STEPS)}


def test_an_expert_that_never_ran_before_is_no_origin_until_it_is_known_what_it_is_given(said: dict[str, Said]) -> None:
    it = said["an expert that is new and bad"]
    assert it.origins == {(nets.BAD + 1, "experts/3/Broken", 0)}
    assert it.hits[nets.BAD]


def test_weights_that_are_read_again_after_their_optimizer_are_not_taken_for_clean(said: dict[str, Said]) -> None:
    it = said[nets.RIVALS]
    assert it.origins
    assert {(step, node.partition("#")[0]) for step, node, _ in it.origins} == {(nets.BAD, "judge/2/Broken")}


def test_memory_is_judged_when_somebody_has_filled_it(server: Server) -> None:
    """Level op: what is found there is nobody's. Where it is not known that all was filled, what reads it counts."""
    (it,) = watched(server, ["memory as it was found"], "op").values()
    filled = ["Log", "Copy", "View", "Sub", "Neg", "Squeeze", "Slice", "Copy#2", "Slice#2", "Pow"]
    assert it.hits == {step: filled if step == nets.BAD else [] for step in range(nets.STEPS)}
    assert it.origins == at("Log")
