"""Everything that plain numpy finds in the files of damaged dumps, ``tdbg check`` finds, and nothing else.

Nothing of the package takes part in the expectation but what a constant is. A file in which a condition holds has to
be named, or one with the same bytes has: a producer's output and the inputs that are copies of it are one tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from tests.check.test_brute_force import CHANGES, OVERFLOW, PLAIN, UNCHANGED, Values, expectation
from tests.plants.planting import ONCE, RANKS, File, Finding, Ground, check, watches
from tests.plants.test_together import many_faults
from tests.session.opened import opened
from tests.thorough import few
from tui_debugger.model import Category, ErrorBits, Side

pytestmark = pytest.mark.usefixtures("measured_by")

STEPS = {"mlp": (2, 3), "nan": (1, 2)}
FINDING = ErrorBits.NAN | ErrorBits.INF | ErrorBits.SHAPE_CHANGED
TEXTS = (*OVERFLOW, *PLAIN, *CHANGES, *UNCHANGED)


class Truth:
    """What plain numpy says about the files of some steps."""

    def __init__(self, ground: Ground, steps: tuple[int, ...]) -> None:
        wanted = {step - back for step in steps for back in range(3)}
        self.ground = ground
        self.files = [file for file in ground.files if file.step in wanted]
        with np.errstate(invalid="ignore"):  # a signalling NaN
            self.values: dict[File, Values] = {file: file.load().astype(np.float64) for file in self.files}
        self.bytes = {file: file.load().tobytes() for file in self.files}

    def finds(self, text: str, file: File) -> bool | None:
        """Whether a condition holds in a file, or cannot be judged for a reason that is a finding; None: too close."""
        before = self.ground.before(file)
        expected = expectation(text, self.values[file], self.values.get(before) if before else None)
        return None if expected.close_call else expected.hit or bool(expected.error & FINDING)


def files_of(ground: Ground, findings: set[Finding]) -> set[Path]:
    """The files that findings are about."""
    session = opened(ground.root)
    found = set()
    for rank, step, node, side, slot in findings:
        table = session.source.tensors(rank, step)
        found.add(Path(table.spec(table.find(session.nodes(rank).find(node), Side[side.upper()], slot)).path))
    return found


@pytest.mark.parametrize("seed", few(range(2), 1))
@pytest.mark.parametrize("name", ONCE)
def test_findings_are_those_of_plain_numpy(grounds: Callable[[str], Ground], name: str, seed: int) -> None:
    ground, chance = grounds(name), np.random.default_rng([seed, 40])
    texts = [str(text) for text in chance.choice(TEXTS, 7, replace=False)]
    steps = STEPS[name[-3:]]
    arguments = (*watches(*texts), "--step", ",".join(map(str, steps)))
    with ExitStack() as plants:
        plants.enter_context(many_faults(ground, chance, 12))
        truth = Truth(ground, steps)
        answer = check(ground.root, *arguments)
        for number, text in enumerate(texts, start=1):
            named = files_of(ground, answer.findings.get(number, set()))
            compare(truth, text, named, steps)
    assert answer.code == 1


def compare(truth: Truth, text: str, named: set[Path], steps: tuple[int, ...]) -> None:
    """Named files deserve it, and what deserves it is named."""
    contents = {(file.rank, truth.bytes[file]) for file in truth.files if file.path in named}
    deserving = {file: truth.finds(text, file) for file in truth.files if file.step in steps}
    for file, deserves in deserving.items():
        if deserves is None:
            continue
        if file.path in named:
            assert deserves, (text, file.path)
        elif deserves and (file.holds is not Category.CONSTANT or text in OVERFLOW):
            copy = (file.rank, truth.bytes[file]) in contents or was_rearranged(truth, file, named)
            assert copy or stands_in_the_step_before(truth, text, file, steps), (text, file.path)


def was_rearranged(truth: Truth, file: File, named: set[Path]) -> bool:
    """Whether the operator's own output is named that holds the same values, as a Transpose's does."""
    return any(
        other.path in named
        and np.array_equal(np.sort(truth.values[other].ravel()), np.sort(truth.values[file].ravel()))
        for other in truth.files
        if (other.rank, other.step, other.name, other.side) == (file.rank, file.step, file.name, "output")
    )


def stands_in_the_step_before(truth: Truth, text: str, file: File, steps: tuple[int, ...]) -> bool:
    """Whether an input is the parameter of the step before the checked ones, where the same holds."""
    return file.side == "input" and any(
        truth.bytes[other] == truth.bytes[file] and truth.finds(text, other) is not False
        for other in truth.files
        if (other.rank, other.step, other.op) == (file.rank, file.step - 1, "Parameter") and other.step not in steps
    )


def test_every_rank_has_its_own_answer(grounds: Callable[[str], Ground]) -> None:
    """The same command on each rank alone gives what it gives on all ranks together."""
    ground, chance = grounds("mindspore-2.10-mlp"), np.random.default_rng(41)
    texts = ("TO", "TZ", "WNC", "TL max_gt=0.5")
    with many_faults(ground, chance, 20):
        together = check(ground.root, *watches(*texts))
        alone = [check(ground.root, *watches(*texts), f"--rank={rank}") for rank in RANKS[ground.name]]
    assert together.found == set().union(*(answer.found for answer in alone))
    assert len({len(answer.found) for answer in alone}) > 1
