"""Real trainings and dumps of every layout: live, saved, by ``check``, ``origin`` and a path it began at one place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.live.session.conftest import Told
from tests.mounts.places import LAYOUTS, local
from tests.plants.planting import make_ground
from tests.session.opened import opened
from tests.thorough import later, share
from tui_debugger.check.types import Pair
from tui_debugger.demo.live import SavedTraining, playing
from tui_debugger.diagnose.origin.path import PathEnd, Tracer
from tui_debugger.live.wire import Event
from tui_debugger.model import NodeKind, NodeSelection, NodeSelector, TensorKey, Verdict
from tui_debugger.session import Session
from tui_debugger.session.live import LiveSession

Dumps = Callable[[str], Path]
EVERYTHING = NodeSelection((NodeSelector(NodeKind.CATEGORY, "tensor"),))
WHERE_IT_BEGINS = (PathEnd.ORIGIN, PathEnd.SOURCE, PathEnd.FIRST_STEP)
"""The endings of a path from a tensor at which something bad begins."""


def marks(session: Session, pair: Pair) -> list[TensorKey]:
    """The tensors of a step that ``check`` marks."""
    return [hit.key for hit in session.check([pair]).hits if hit.origin]


def named(session: Session, pair: Pair) -> set[TensorKey]:
    """The tensors of a step that ``origin`` says something begins at; those that were bad from the start included."""
    report = session.find_origin([pair])
    origins = [origin for each in report.searches for origin in (*each.origins, *each.before)]
    return {hit.key for origin in origins for hit in origin.hits}


def unjudged(session: Session, pair: Pair) -> list[str]:
    """The nodes of a step that ``origin`` cannot judge."""
    return [each.node for each in session.find_origin([pair]).not_judged]


def saved(live: LiveSession, directory: Path) -> Session:
    """What a live session keeps, as a dump."""
    live.save(directory)
    return opened(directory, "TO")


# -- the client of MindSpore --------------------------------------------------------------------------


@contextmanager
def played(steps: int, *, gives_inputs: bool) -> Iterator[LiveSession]:
    """The recorded training of MindSpore 2.0, which stands that many steps after it began.

    Args:
        steps: so many.
        gives_inputs: it has the values of what the graph is fed with. The real client judges these, and cannot give
            them.
    """
    value = SavedTraining.value

    def given(recording: SavedTraining, node: str, slot: int, step: int) -> Any:
        return None if node.startswith("inputs") and not gives_inputs else value(recording, node, slot, step)

    with pytest.MonkeyPatch.context() as patch, playing(lambda _: None, pace=0) as (session, training):
        patch.setattr(SavedTraining, "value", given)
        told = Told(session)
        training.start()
        told.wait(Event.STOPPED)
        session.watchpoints.add("tensor_overflow", selection=EVERYTHING)
        for number in range(steps):
            session.run(1)
            told.wait(Event.STOPPED, 2 + number)
        yield session


@dataclass(frozen=True)
class Both:
    """What is said of one step, live and of what was saved there: names of the origins, nodes not judged."""

    live: tuple[list[str], list[str]]
    saved: tuple[list[str], list[str]]


@pytest.fixture(scope="module", params=[True, False], ids=["inputs are given", "inputs are judged only"])
def stop_of_mindspore(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int], Both]:
    """The answers at a step of the recorded training."""

    def said(session: Session, step: int) -> tuple[list[str], list[str]]:
        return [key.node for key in marks(session, (0, step))], unjudged(session, (0, step))

    @cache
    def at(step: int) -> Both:
        with played(step + 1, gives_inputs=request.param) as live:
            assert live.state(0).step == step
            answer = said(live, step)
            dump = saved(live, tmp_path_factory.mktemp("saved") / "dump")
        try:
            return Both(answer, said(dump, step))
        finally:
            dump.close()

    return at


def test_of_mindspore_the_same_two_origins_are_named_live_and_saved(stop_of_mindspore: Callable[[int], Both]) -> None:
    both = stop_of_mindspore(3)
    ends = [re.sub(r"-op\d+$", "", name.rpartition("/")[2]) for name in both.live[0]]
    assert ends == ["Log", "Div"]
    assert both.saved[0] == both.live[0]


def test_of_mindspore_every_input_at_the_bad_step_is_known(stop_of_mindspore: Callable[[int], Both]) -> None:
    both = stop_of_mindspore(3)
    assert both.live[1] == []
    assert both.saved[1] == []


@pytest.mark.parametrize("step", [2, 4, later(5)])
def test_of_mindspore_nothing_begins_at_other_steps(stop_of_mindspore: Callable[[int], Both], step: int) -> None:
    both = stop_of_mindspore(step)
    assert both.live[0] == both.saved[0] == []
    assert both.live[1] == both.saved[1] == []


# -- PyTorch ------------------------------------------------------------------------------------------

NETS = {
    "a bad expert": ["2 experts/3/Broken:0"],
    "a sum": ["2 AddFunction:0"],
    "a bad tied weight": ["2 embedding.weight:0"],
    "an expert with a bad gradient": ["2 Gradients/experts/3/layer/LinearGrad:0"],
    "averages of bad weights": ["2 inputs.x:0"],
    "a loss": ["2 Loss:0"],
    "masks": list[str](),
}
"""Where it begins at level module, as in tests/live/torch/test_origins.py."""
TRUE = {"module": NETS, "op": {"a bad expert": ["2 experts/3/Log:0"], "masks": list[str]()}}


@pytest.fixture(scope="module", params=TRUE)
def level(request: pytest.FixtureRequest) -> str:
    """How closely a training is looked at."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def torch_answers(level: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Both]:
    """What is said of each net while it trains, and of what was saved of all of them."""
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")
    from tests.live.torch import nets
    from tests.live.torch.forks import parent
    from tests.live.torch.test_origins import Watching
    from tui_debugger.live.server import serve

    server = serve("127.0.0.1", 0)
    session = LiveSession(server)
    process = parent().fork("tests.live.torch.nets", [server.address, level, *NETS])
    try:
        watching = Watching(session)
        for rank in range(len(NETS)):
            watching.follow(rank, nets.STEPS)
        out = "".join(process.communicate(60))
        assert process.returncode == 0, out
        dump = saved(session, tmp_path_factory.mktemp(level) / "dump")
    finally:
        process.end()
        session.close()
        server.close(terminate=True)
    found = {}
    for rank, name in enumerate(NETS):
        live = sorted(f"{step} {node}:{slot}" for step, node, slot in watching.said[rank].origins)
        pairs = [(rank, step) for step in range(nets.STEPS) if step in dump.steps(rank)]
        keys = [key for pair in pairs for key in marks(dump, pair)]
        there = sorted(f"{key.step} {key.node}:{key.slot}" for key in keys)
        found[name] = Both((live, []), (there, []))
    dump.close()
    return found


@pytest.mark.parametrize("name", NETS)
def test_of_pytorch_the_same_origins_are_named_live_and_saved(torch_answers: dict[str, Both], name: str) -> None:
    both = torch_answers[name]
    assert both.saved[0] == both.live[0]


def test_of_pytorch_the_true_origins_are_named_live(level: str, torch_answers: dict[str, Both]) -> None:
    true = TRUE[level]
    assert {name: torch_answers[name].live[0] for name in true} == true


def test_of_pytorch_the_true_origins_are_named_in_what_was_saved(level: str, torch_answers: dict[str, Both]) -> None:
    true = TRUE[level]
    assert {name: torch_answers[name].saved[0] for name in true} == true


# -- dumps of every layout ----------------------------------------------------------------------------

REAL = ("mindspore-2.0-nan", "mindspore-2.10-nan", "msprobe-L1-nan")
PLANTED = ("mindspore-2.0-mlp", later("mindspore-2.10-mlp"))


def agree(session: Session, pair: Pair, part: int = 1) -> int:
    """``check``, ``origin`` and the paths say the same of a step. Returns how many origins there are.

    Args:
        session: with a watchpoint on NaN and Inf in every tensor.
        pair: rank and step.
        part: every how many bad tensors a path is looked at.
    """
    hits = session.check([pair]).hits
    marked = {hit.key for hit in hits if hit.origin}
    assert named(session, pair) == marked
    tracer = Tracer(session)
    for key in sorted(marked, key=lambda key: (key.node, key.slot)):
        path = tracer.trace(key)
        assert path.ending in WHERE_IT_BEGINS, key
        assert path.end.tensor.key == key, "the path from an origin ends at itself"
    bad = [hit.key for hit in hits if hit.verdict is Verdict.FINDING and not hit.origin]
    for key in share(bad, part):
        path = tracer.trace(key)
        end = path.end.tensor.key
        if path.ending is PathEnd.ORIGIN:
            assert end in marked or end in set(marks(session, (end.rank, end.step))), (key, end)
        assert path.ending is not PathEnd.CLEAN, key
    return len(marked)


@pytest.mark.parametrize("layout", [*LAYOUTS, *REAL])
def test_of_every_layout_check_origin_and_paths_agree(layout: str, tmp_path: Path, dumps: Dumps) -> None:
    session = opened(local(layout, tmp_path / "dump", dumps), "TO")
    try:
        origins = [agree(session, pair, part=8) for pair in session.pairs()]
        assert layout not in REAL or any(origins)
    finally:
        session.close()


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("seed", [0, 1, 2, later(3), later(4), later(5)])
def test_wherever_a_nan_is_put_check_origin_and_paths_agree(name: str, seed: int, tmp_path: Path, dumps: Dumps) -> None:
    ground = make_ground(name, dumps(name), tmp_path / "ground")
    chance = np.random.default_rng([seed, 40])
    file = ground.pick(chance, lambda each: each.rank == 0)
    values = file.load()
    values.flat[0] = np.nan
    with ground.planted(file, values):
        session = opened(ground.root, "TO")
        try:
            assert session.check([(0, file.step)]).hits
            for step in session.steps(0):
                agree(session, (0, step))
        finally:
            session.close()
