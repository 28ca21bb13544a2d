"""Steps that differ: each is judged by what its own nodes read, also in the dump that is saved after later steps."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from tests.live.torch import nets
from tests.live.torch.differing import PROGRAMS
from tests.live.torch.rewriting import HEALTHY
from tests.live.torch.test_origins import Places, Said, at, saved_origins, watched_alone

TRUE: dict[str, dict[str, Places]] = {
    # Nothing of the model is bad at module level: the loss was given something bad that is no tensor of it.
    "a division around the model": {"module": set(), "op": at("Div")},
    "a gradient that nothing uses": {"module": at("Loss"), "op": at("Log")},
    "a product more": {"module": at("Loss"), "op": at("Mul#2")},
    "a weight that is clamped": {"module": at("Scaled"), "op": at("Log")},
    "an average by a number": {
        "module": at("teacher.weight", "teacher.bias"),
        "op": at("NoGrad/Mul", "NoGrad/Mul#2"),
    },
    "rows that are switched off": {"module": at("Experts"), "op": at("Div")},
    "an evaluation now and then": {
        "module": {(nets.BAD + 1, "NoGrad/1/BatchNorm1d", 0)},
        "op": {(nets.BAD + 1, "NoGrad/1/NativeBatchNorm", 0)},
    },
    "a buffer that its module spoils": {"module": at("Counting"), "op": at("Mul")},
    # Its optimizer ended the step before. At module level the buffer is bad before anything runs in the step.
    "a statistic times NaN": {"module": {(nets.BAD + 1, "1.running_mean", 0)}, "op": {(nets.BAD + 1, "Mul", 0)}},
}


@pytest.fixture(scope="module", params=("module", "op"))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Said], Path]:
    """The level, what a session says of all programs and of their healthy twins, and what it saved."""
    directory = tmp_path_factory.mktemp(request.param) / "saved"
    names = [*PROGRAMS, *(name + HEALTHY for name in PROGRAMS)]
    said = watched_alone(names, request.param, "tests.live.torch.differing", save=directory)
    return request.param, said, directory


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_fault_is_the_only_origin(run: tuple[str, dict[str, Said], Path], name: str) -> None:
    level, said, _ = run
    assert said[name].origins == TRUE[name][level]
    assert any(said[name].hits.values())


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_healthy_twin_has_no_origin(run: tuple[str, dict[str, Said], Path], name: str) -> None:
    _, said, _ = run
    assert not said[name + HEALTHY].origins


def test_the_saved_dump_names_the_same_origins(run: tuple[str, dict[str, Said], Path]) -> None:
    _, said, directory = run
    assert saved_origins(directory, list(said)) == {name: each.origins for name, each in said.items()}
