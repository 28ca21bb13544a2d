"""What another rank puts into a collective operation comes out on all of them: the rank that put it in is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.diagnose.runs.test_judge import OUT, Array, compared_runs
from tests.sources.memory import Op
from tui_debugger.diagnose.runs.results import RunsReport
from tui_debugger.model import Category

WORK = "fc/Linear"
GRADIENT = "Gradients/fc/weight"
OPS = [
    Op("x", "Parameter", category=Category.PARAMETER),
    Op(WORK, "Linear", [("x", 0)]),
    Op(f"{GRADIENT}/local", "ParameterGrad", [(WORK, 0)], Category.GRADIENT),
    Op(GRADIENT, "AllReduce", [(f"{GRADIENT}/local", 0)], Category.GRADIENT),
]


def numbers(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((8, 8)).astype(np.float32)


def both(*, worked: float = 1.0, reduced: float = 1.0, local: bool = True) -> dict[int, Any]:
    """A step of two ranks; on the second one the work may come out otherwise, on both the reduction may.

    Args:
        worked: what the second rank makes, in what it should.
        reduced: the same of the mean.
        local: what goes into the reduction was recorded.
    """
    made = [numbers(rank) * np.float32(worked if rank else 1) for rank in range(2)]
    mean = (made[0] + made[1]) * np.float32(reduced)
    return {
        rank: {
            0: {
                ("x", OUT, 0): numbers(rank + 10),
                (WORK, OUT, 0): made[rank],
                **({(f"{GRADIENT}/local", OUT, 0): 2 * made[rank]} if local else {}),
                (GRADIENT, OUT, 0): mean,
            }
        }
        for rank in range(2)
    }


def found(report: RunsReport) -> list[tuple[int, str]]:
    return [(each.place.rank_a, each.name) for each in report.findings]


@pytest.mark.parametrize("local", [True, False])
def test_the_rank_that_differs_is_named_and_no_reduction(local: bool) -> None:
    report = compared_runs(both(local=local), both(worked=1.01, local=local), ops=OPS)
    assert found(report) == [(1, WORK)]


def test_a_reduction_of_the_same_that_makes_something_else_is_named() -> None:
    report = compared_runs(both(), both(reduced=2.0), ops=OPS)
    assert set(found(report)) == {(0, GRADIENT), (1, GRADIENT)}


def test_what_a_rank_put_in_that_was_not_dumped_is_a_doubt() -> None:
    first = [{0: run[0]} for run in (both(), both(worked=1.01))]
    report = compared_runs(*first, ops=OPS)
    assert (report.exit_code, found(report)) == (2, [])
    assert any(GRADIENT in doubt for doubt in report.doubts)


@pytest.mark.parametrize(("slot", "code"), [(3, 0), (0, 1)])
def test_memory_of_a_kernel_is_no_output(slot: int, code: int) -> None:
    """The fourth output of the kernel of an LSTM is room for its gradient: bytes that nobody wrote are in it."""
    ops = [OPS[0], Op("rnn/MkldnnRnnLayer", "MkldnnRnnLayer", [("x", 0)], outputs=4)]
    step = {("x", OUT, 0): numbers(0)} | {("rnn/MkldnnRnnLayer", OUT, each): numbers(each + 1) for each in range(4)}
    other = step | {("rnn/MkldnnRnnLayer", OUT, slot): numbers(20)}
    assert compared_runs({0: {0: step}}, {0: {0: other}}, ops=ops).exit_code == code
