"""``tdbg listen --stop-on-hit`` with several processes: all judge the step of the first finding, none is held."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from tests.live.torch.test_distributed import Trainings, started

Capture = pytest.CaptureFixture[str]
STOP = ("--watch", "TO", "--stop-on-hit")
STEPS = 5


@pytest.fixture(scope="module")
def two() -> Iterator[Trainings]:
    with started(2) as trainings:
        yield trainings


@pytest.fixture(scope="module")
def four() -> Iterator[Trainings]:
    with started(4) as trainings:
        yield trainings


@pytest.mark.turns("kind")
@pytest.mark.parametrize("kind", ["ddp", "fsdp2", "fsdp1", "tensor_parallel"])
@pytest.mark.parametrize("level", ["module", "op"])
def test_the_rank_that_broke_is_heard_and_every_rank_trains_on(
    two: Trainings, capsys: Capture, kind: str, level: str, tmp_path: Path
) -> None:
    """Rank 0 gets the NaN through a collective, and may be the first that says so."""
    found = two.watch(capsys, tmp_path, kind, STOP, bad="batch", steps=STEPS, level=level)
    summary = found.rows[-1]
    assert (found.code, summary["reasons"]) == (1, [])
    assert found.origins == [(1, 1, "inputs.x")]
    assert {rank for rank, _ in found.bad} == {0, 1}
    assert {row["step"] for row in found.rows[:-1]} == {1}
    for ((*_, losses),) in zip(found.losses, strict=True):
        assert len(losses) == STEPS


@pytest.mark.thorough  # four processes that import PyTorch
@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_four_ranks_are_heard(four: Trainings, capsys: Capture, kind: str, tmp_path: Path) -> None:
    found = four.watch(capsys, tmp_path, kind, STOP, bad="batch", steps=STEPS)
    assert (found.code, found.rows[-1]["reasons"]) == (1, [])
    assert found.origins == [(1, 1, "inputs.x")]
    assert {rank for rank, _ in found.bad} == {0, 1, 2, 3}


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_a_healthy_training_runs_to_its_end_and_is_clean(
    two: Trainings, capsys: Capture, kind: str, tmp_path: Path
) -> None:
    found = two.watch(capsys, tmp_path, kind, STOP, steps=STEPS)
    assert (found.code, len(found.rows)) == (0, 1)
    assert [each["steps"] for each in found.rows[-1]["steps"]] == [STEPS, STEPS]
