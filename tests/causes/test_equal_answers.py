"""The same step, put in as a dump and as a training, gets the same answer: where it began, or why nobody can say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.causes.doors import checked, in_memory, on_disk, searched, session_on, stopped_at
from tests.causes.generated import Holds, Node, Told, generated
from tests.causes.rule import Answer, true_answer
from tests.thorough import later
from tui_debugger.session import Session

VARIED = (6, 8, 14, 35, 41, 74, 76, 109, 157, 168, 172, 237)
"""Seeds that have between them nearly all kinds of inputs that an answer can rest on."""
SEEDS = [seed if seed in VARIED else later(seed) for seed in range(240)]


def differences(found: Answer, true: Answer) -> list[str]:
    """What is wrong with an answer, a line each."""
    lines = []
    for what in ("origins", "designed", "findings", "unjudged"):
        said, meant = getattr(found, what), getattr(true, what)
        lines += [f"{what}: {each} is too much" for each in sorted(said - meant)]
        lines += [f"{what}: {each} is missing" for each in sorted(meant - said)]
    return lines


def answers(session: Session, true: Answer) -> None:
    """A session gives an answer."""
    wrong = differences(checked(session), true)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dump_in_memory(seed: int) -> None:
    case = generated(seed)
    with session_on(in_memory(case), case) as session:
        answers(session, true_answer(case))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dump_on_disk(seed: int, tmp_path: Path) -> None:
    case = generated(seed)
    with session_on(on_disk(case, tmp_path / "dump"), case) as session:
        answers(session, true_answer(case))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dump_on_disk_whose_nodes_have_files_of_their_inputs(seed: int, tmp_path: Path) -> None:
    case = generated(seed)
    with session_on(on_disk(case, tmp_path / "dump", inputs=True), case) as session:
        answers(session, true_answer(case))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_training(seed: int) -> None:
    case = generated(seed)
    with stopped_at(case) as session:
        answers(session, true_answer(case))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_dump_that_was_saved_of_a_training(seed: int, tmp_path: Path) -> None:
    case = generated(seed)
    with stopped_at(case) as live:
        live.save(tmp_path / "dump")
    with session_on(tmp_path / "dump", case) as session:
        answers(session, true_answer(case))


@pytest.mark.parametrize("seed", SEEDS)
def test_check_and_origin_name_the_same_tensors(seed: int, tmp_path: Path) -> None:
    case = generated(seed)
    with session_on(on_disk(case, tmp_path / "dump"), case) as session:
        assert sorted(searched(session)) == sorted(checked(session).origins)
    with stopped_at(case) as live:
        assert sorted(searched(live)) == sorted(checked(live).origins)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_healthy_twin_has_no_finding_and_no_doubt(seed: int) -> None:
    case = generated(seed, healthy=True)
    assert not true_answer(case).findings
    with session_on(in_memory(case), case) as session:
        answers(session, true_answer(case))
    with stopped_at(case) as live:
        answers(live, true_answer(case))


@pytest.mark.parametrize("seed", SEEDS)
def test_nor_has_what_was_saved_of_the_healthy_twin(seed: int, tmp_path: Path) -> None:
    case = generated(seed, healthy=True)
    with stopped_at(case) as live:
        live.save(tmp_path / "dump")
    with session_on(tmp_path / "dump", case) as session:
        answers(session, true_answer(case))


def test_the_generator_makes_all_of_it() -> None:
    cases = [generated(seed) for seed in range(240)]
    true = [true_answer(case) for case in cases]
    for what in ("origins", "designed", "unjudged"):
        assert sum(bool(getattr(answer, what)) for answer in true) > 60, what
    assert sum(len(answer.findings) > len(answer.origins) for answer in true) > 100
    nodes = [node for case in cases for node in case.nodes.values()]
    assert {told for node in nodes for told in {each.told for each in node.outputs}} == set(Told)
    made: dict[str, Callable[[Node], bool]] = {
        "an origin of several outputs": lambda node: len(node.outputs) > 1 and node.outputs[1].holds.bad,
        "no inputs": lambda node: node.type == "StandardNormal",
        "no known producer": lambda node: ("", 0) in node.inputs,
        "a bad collective operation": lambda node: node.type == "AllReduce" and node.outputs[0].holds.bad,
        "a bad graph input": lambda node: node.name.startswith("x") and node.outputs[0].holds.bad,
        "a weight that was bad before": lambda node: node.before is not None and node.before.holds.bad,
        "a weight that is known from before only": lambda node: (
            node.before is not None and (node.before.told, node.outputs[0].told) == (Told.WATCHED, Told.NEVER)
        ),
        "a weight that is known from now only": lambda node: (
            node.before is not None and (node.before.told, node.outputs[0].told) == (Told.NEVER, Told.WATCHED)
        ),
        "a weight that the program made bad": lambda node: node.written and node.outputs[0].holds.bad,
        "a weight that its update made bad": lambda node: bool(node.updater) and node.outputs[0].holds.bad,
        "an infinite constant": lambda node: node.type == "Constant" and node.outputs[0].holds is Holds.INF,
        "a constant that nobody knows": lambda node: node.type == "Constant" and node.outputs[0].told is Told.NEVER,
        "a mask that is absorbed": lambda node: any(each.absorbed for each in node.outputs),
        "a mask that is not": lambda node: any(
            each.intended and not each.absorbed for each in node.outputs if node.type == "MaskedFill"
        ),
    }
    for what, holds in made.items():
        assert sum(map(holds, nodes)) > 9, what
