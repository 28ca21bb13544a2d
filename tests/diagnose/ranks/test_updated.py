"""Weights that no other rank holds: which are a finding, a doubt, or not compared, by the updates of their parts."""

from __future__ import annotations

import pytest

from tui_debugger.diagnose.ranks.results import RankTensorPlace
from tui_debugger.diagnose.ranks.updated import UpdatesOfWeights, judged_updates
from tui_debugger.diagnose.recompute.weight_updates import WeightUpdate

FITS = WeightUpdate(True)
WRONG = WeightUpdate(False)
NOT_KNOWN = WeightUpdate(None, "input 3 was not dumped")
WRITTEN = WeightUpdate(False, "the program writes to m.weight itself", written=True)
KEPT = WeightUpdate(True, written=True)
"""The program writes to it, and it fits: a limit that no element exceeds."""
UNLIKE = WeightUpdate(False, "most of it does not fit")


def judged(*ranks: list[WeightUpdate], name: str = "m.weight") -> UpdatesOfWeights:
    """The judgement of the parts of a weight, for each rank the updates of all steps."""
    updates = {(rank, step): each for rank, steps in enumerate(ranks) for step, each in enumerate(steps)}
    return judged_updates({RankTensorPlace("", name, 0, 0): updates})


def test_parts_that_fit_are_counted_and_those_of_the_first_step_are_not_compared() -> None:
    found = judged([NOT_KNOWN, FITS, FITS], [NOT_KNOWN, FITS, FITS])
    assert (found.astray, dict(found.doubted), found.compared) == ((), {}, 4)
    assert {(key.rank, key.step, why) for key, why in found.left.items()} == {
        (rank, 0, "input 3 was not dumped") for rank in (0, 1)
    }


@pytest.mark.parametrize("update", [WRONG, WRITTEN, UNLIKE])
def test_a_part_that_alone_does_not_fit_is_a_finding(update: WeightUpdate) -> None:
    found = judged([NOT_KNOWN, FITS, FITS, FITS], [NOT_KNOWN, FITS, update, FITS])
    (finding,) = found.astray
    assert (finding.key.rank, finding.key.step, finding.key.node) == (1, 2, "m.weight")
    assert (finding.named, finding.why, finding.first) == ((1,), update.why, True)
    assert not found.doubted


def test_a_later_step_of_the_same_rank_is_no_new_finding() -> None:
    found = judged([FITS, FITS, FITS], [FITS, WRITTEN, WRITTEN])
    assert [(each.key.step, each.first) for each in found.astray] == [(1, True), (2, False)]


@pytest.mark.parametrize("other", [WRITTEN, KEPT, NOT_KNOWN])
def test_programs_that_write_to_all_parts_are_not_accused(other: WeightUpdate) -> None:
    """For example weights that are limited, or averaged every few steps."""
    found = judged([FITS, other], [FITS, WRITTEN])
    assert (found.astray, dict(found.doubted)) == ((), {})
    assert {key.rank for key in found.left} >= {1}


def test_a_rule_that_never_fits_a_part_is_a_doubt() -> None:
    """For example a row of an embedding that the rank which holds it sets to zero at every step."""
    found = judged([FITS, FITS], [WRITTEN, WRITTEN])
    assert not found.astray
    assert {(key.rank, key.step) for key in found.doubted} == {(1, 0), (1, 1)}


def test_an_expert_that_one_rank_draws_anew_is_a_doubt() -> None:
    found = judged([FITS, FITS], [FITS, WRITTEN], name="experts.0.weight")
    assert not found.astray
    assert {(key.rank, key.step) for key in found.doubted} == {(1, 1)}
