"""What a step left behind, and what a model hands out: bad values that go on are no origins where they arrive."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.session.opened import opened
from tui_debugger.live.server import serve

pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from tests.live.torch import nets
from tests.live.torch.carrying import PROGRAMS
from tests.live.torch.rewriting import HEALTHY
from tests.live.torch.test_origins import Places, Said, at, watched
from tui_debugger.model import Verdict

TRUE: dict[str, Places] = {
    # What a module writes into a buffer is not seen in every step: nobody is accused.
    "a buffer that the next step reads": set(),
    "a state that is carried over": at("inputs.state"),
    # A label is no tensor of the model: that it is bad clears the loss.
    "a label": set(),
    "a label of a difference": set(),
    "weights of nothing": at("Loss"),
    "actions of a distribution": at("Loss"),
    "actions of a softmax": at("Loss"),
    "actions that are selected": at("Loss"),
    "actions put out by an index": at("Loss"),
    "actions under a mask that is added": at("Loss"),
    "actions under a logarithm that is added": at("Loss"),
    "actions that are copied": at("Loss"),
    "actions that nothing weighs": {(step, "Loss", 0) for step in range(nets.STEPS)},
}
NOT_WEIGHED = "actions that nothing weighs"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Said], Path]:
    """What a session says of all programs and of their healthy twins at module level, and what it saved."""
    directory = tmp_path_factory.mktemp("carried") / "saved"
    names = [*PROGRAMS, *(f"{name}{HEALTHY}" for name in PROGRAMS)]
    server = serve("127.0.0.1", 0)
    try:
        return watched(server, names, "module", "tests.live.torch.carrying", directory), directory
    finally:
        server.close(terminate=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_only_the_fault_is_an_origin(run: tuple[dict[str, Said], Path], name: str) -> None:
    said, _ = run
    assert said[name].origins == TRUE[name]
    assert said[name].hits[nets.BAD]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_healthy_twin_is_clean(run: tuple[dict[str, Said], Path], name: str) -> None:
    """Masks that are by design are hits of their own, and no findings."""
    _, directory = run
    rank = len(PROGRAMS) + list(PROGRAMS).index(name)
    with contextlib.closing(opened(directory, "TO")) as session:
        hits = [hit for step in session.source.steps(rank) for hit in session.check([(rank, step)]).hits]
    findings = [hit.key.node for hit in hits if hit.verdict is Verdict.FINDING]
    assert bool(findings) == (name == NOT_WEIGHED)
    assert bool(hits) == name.startswith("actions")


def test_the_saved_dump_names_the_same_origins(run: tuple[dict[str, Said], Path]) -> None:
    said, directory = run
    found: dict[str, Places] = {name: set() for name in said}
    with contextlib.closing(opened(directory, "TO")) as session:
        for rank, name in enumerate(said):
            for step in session.source.steps(rank):
                hits = session.check([(rank, step)]).hits
                found[name] |= {(step, hit.key.node, hit.key.slot) for hit in hits if hit.origin}
    assert found == {name: each.origins for name, each in said.items()}
