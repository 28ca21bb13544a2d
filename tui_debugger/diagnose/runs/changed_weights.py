"""Weights that the program of one run changed between two steps.

The value that nodes read is not recorded where parts of a weight are gathered first: these nodes, on all ranks, only
differ with unknown inputs. The update tells: the weight agrees where the step before ends, in one run it is then what
the optimizer makes of it, and in the other run it is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tui_debugger.diagnose.recompute.weight_updates import weight_update
from tui_debugger.diagnose.runs.results import BothRuns, DiffFinding, DiffKind, JudgedNode, NodeJudgement, StepReport
from tui_debugger.model import TRAINABLE, Side

_AGREES: Final = frozenset({NodeJudgement.SAME, NodeJudgement.ROUNDING})


def changed_weights(runs: BothRuns, steps: Sequence[StepReport]) -> Iterator[DiffFinding]:
    """Yields the weights that one run changed at the first step with nodes that differ with unknown inputs."""
    doubted = [step.place.step_a for step in steps if any(map(_is_unproven, step.judged))]
    for step in steps:
        before = [each for each in steps if each.ranks == step.ranks and each.place.step_a < step.place.step_a]
        if step.place.step_a == min(doubted, default=None) and before and max(map(len, step.ranks)) == 1:
            yield from _changed(runs, before[-1], step)


def _is_unproven(judged: JudgedNode) -> bool:
    return judged.judgement is NodeJudgement.UNPROVEN and not judged.match.doubtful


def _changed(runs: BothRuns, before: StepReport, step: StepReport) -> Iterator[DiffFinding]:
    place = step.place
    ranks, steps = place[:2], place[2:]
    agreed = {each.match.rows for each in before.judged if each.judgement in _AGREES}
    for judged in step.judged:
        rows = judged.match.rows
        nodes = [run.nodes(rank) for run, rank in zip(runs, ranks, strict=True)]
        if nodes[0].category_of(rows[0]) not in TRAINABLE or rows not in agreed or judged.judgement in _AGREES:
            continue
        updates = [weight_update(*of) for of in zip(runs, ranks, steps, rows, strict=True)]
        wrong = next((side for side in (0, 1) if updates[side].told and updates[1 - side].fits), -1)
        if wrong < 0 or updates[1 - wrong].written:
            continue
        why = updates[wrong].why
        name = nodes[0].names[rows[0]]
        yield DiffFinding(
            DiffKind.PARAMETER,
            place,
            -0.5,
            *rows,
            name,
            nodes[1].names[rows[1]],
            (
                nodes[0].key(ranks[0], steps[0], rows[0], Side.OUTPUT, judged.slot),
                nodes[1].key(ranks[1], steps[1], rows[1], Side.OUTPUT, judged.slot),
            ),
            judged.worst,
            times=judged.times,
            text=f"it agrees where step {before.place.step_a} ends, and in {'AB'[wrong]} alone it is then not what the "
            f"optimizer makes of it{why and f': {why}'}",
        )
