"""The same step, put in as a dump and as a training, gets the same answer: where it began, or why nobody can say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.causes.doors import checked, in_memory, on_disk, searched, session_on, stopped_at
from tests.causes.generated import Answer, generated, names_of, true_answer
from tests.thorough import few

SEEDS = few(range(240), 12)


def differences(found: Answer, true: Answer) -> list[str]:
    """What is wrong with an answer, a line each."""
    lines = []
    for what in ("origins", "designed", "findings", "unjudged"):
        said, meant = getattr(found, what), getattr(true, what)
        if what == "unjudged":
            said, meant = {(name, 0) for name in said}, {(name, 0) for name in meant}
        lines += [f"{what}: {name} is too much" for name in names_of(said - meant)]
        lines += [f"{what}: {name} is missing" for name in names_of(meant - said)]
    return lines


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dump_in_memory(seed: int) -> None:
    case = generated(seed)
    with session_on(in_memory(case), case) as session:
        assert differences(checked(session), true_answer(case)) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dump_on_disk(seed: int, tmp_path: Path) -> None:
    case = generated(seed)
    with session_on(on_disk(case, tmp_path / "dump"), case) as session:
        assert differences(checked(session), true_answer(case)) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_training(seed: int) -> None:
    case = generated(seed)
    with stopped_at(case) as session:
        assert differences(checked(session), true_answer(case)) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_the_dump_that_was_saved_of_a_training(seed: int, tmp_path: Path) -> None:
    case = generated(seed)
    with stopped_at(case) as live:
        live.save(tmp_path / "dump")
    with session_on(tmp_path / "dump", case) as session:
        assert differences(checked(session), true_answer(case)) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_check_and_origin_name_the_same_tensors(seed: int, tmp_path: Path) -> None:
    case = generated(seed)
    with session_on(on_disk(case, tmp_path / "dump"), case) as session:
        assert names_of(list(searched(session))) == names_of(list(checked(session).origins))
    with stopped_at(case) as live:
        assert names_of(list(searched(live))) == names_of(list(checked(live).origins))
