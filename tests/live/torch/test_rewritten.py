"""Values that change within a step: what a node read counts, not what stands there before the step or after it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from tests.live.torch import nets
from tests.live.torch.rewriting import FIRST, HEALTHY, PROGRAMS
from tests.live.torch.test_origins import Places, Said, at, saved_origins, watched_alone

LEVELS = ("module", "op")
TRUE: dict[str, dict[str, Places]] = {
    "a sparse gradient": {"module": at("Bag"), "op": at("Div")},
    "a branch that runs once": {"module": set(), "op": at("Log")},
    "two optimizers": {"module": at("Loss"), "op": at("Log")},
    "a closure": {"module": at("Loss"), "op": at("Log")},
    "the data of a tied weight": {"module": at("embedding.weight"), "op": at("LiftFresh")},
    "the data of a frozen weight": {"module": at("0.weight"), "op": at("LiftFresh")},
    "the state of an optimizer": {"module": at("exp_avg.weight"), "op": at("LiftFresh")},
    "the input of one of several batches": {"module": at("inputs.input"), "op": at("LiftFresh")},
    # A label is no tensor of the model: that it is bad clears the loss.
    "a label of one of several batches": {"module": set(), "op": at("LiftFresh")},
    "a label, and a look at the loss": {"module": set(), "op": at("LiftFresh")},
    "a reentrant checkpoint": {"module": at("NoGrad/root/Root"), "op": at("NoGrad/root/Sqrt")},
    "two backward passes": {"module": at("weight") | at("bias"), "op": at("NoGrad/Reciprocal")},
    "an average in place": {"module": at("teacher.weight") | at("teacher.bias"), "op": at("NoGrad/Div")},
    "an average by out=": {"module": at("teacher.weight") | at("teacher.bias"), "op": at("NoGrad/Div")},
    "an operator in place that runs once": {"module": set(), "op": at("Div")},
}
IN_THE_FIRST_STEP = ("two optimizers", "the data of a tied weight", "the data of a frozen weight")
NOT_JUDGED = {("two optimizers", "module"), ("a closure", "module")}
"""Several passes of a step went through the module: nothing false is said, and maybe nothing at all."""


@pytest.fixture(scope="module", params=LEVELS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Said], Path]:
    """The level, what a session says of all programs and of their healthy twins, and what it saved."""
    directory = tmp_path_factory.mktemp(request.param) / "saved"
    names = [*PROGRAMS, *(name + HEALTHY for name in PROGRAMS), *(name + FIRST for name in IN_THE_FIRST_STEP)]
    said = watched_alone(names, request.param, "tests.live.torch.rewriting", save=directory)
    return request.param, said, directory


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_fault_is_the_only_origin(run: tuple[str, dict[str, Said], Path], name: str) -> None:
    level, said, _ = run
    found, true = said[name].origins, TRUE[name][level]
    assert found == true or ((name, level) in NOT_JUDGED and not found)
    assert said[name].hits[nets.BAD]


def test_a_weight_that_was_written_before_the_first_step_is_the_only_origin(
    run: tuple[str, dict[str, Said], Path],
) -> None:
    level, said, _ = run
    name = "the data of a frozen weight"
    assert said[name + FIRST].origins == {(0, node, slot) for _, node, slot in TRUE[name][level]}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_healthy_twin_is_clean(run: tuple[str, dict[str, Said], Path], name: str) -> None:
    _, said, _ = run
    assert not any(said[f"{name}{HEALTHY}"].hits.values())


def test_the_saved_dump_names_the_same_origins(run: tuple[str, dict[str, Said], Path]) -> None:
    _, said, directory = run
    assert saved_origins(directory, list(said)) == {name: each.origins for name, each in said.items()}
