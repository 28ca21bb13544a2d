"""A check of a mixed tree: a bad tensor is never passed over, and what is no tensor is never a doubt.

Each seed is a tree. ``python -m tests.trees bad 17 DIR`` writes it anew.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests import thorough
from tests.cli.running import run
from tests.trees import generator, stories
from tests.trees.foreign import FOREIGN
from tests.trees.layouts import LAYOUTS
from tests.trees.leaves import FORMATS, WRAPPINGS

QUESTION: Final = ("--watch", "TO", "--no-cache", "--jobs", "1")


BLOCKS: Final = 79
"""Blocks of bad trees; in each are trees of every layout."""
HEALTHY_BLOCKS: Final = 8


@pytest.mark.parametrize("block", thorough.few(range(BLOCKS), 3))
def test_a_bad_tensor_is_never_passed_over(block: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passed_over = []
    for seed in generator.BAD[block::BLOCKS]:
        root, tree = generator.bad(seed, tmp_path / str(seed))
        answer = run(capsys, "check", root, *QUESTION)
        if answer.code not in {1, 2}:
            passed_over.append(f"python -m tests.trees bad {seed} DIR\n{tree}\n{answer.out}")
    assert not passed_over, "\n\n".join(passed_over)


@pytest.mark.parametrize("block", thorough.few(range(HEALTHY_BLOCKS), 2))
def test_what_is_no_tensor_is_no_doubt(block: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accused = []
    for seed in generator.HEALTHY[block::HEALTHY_BLOCKS]:
        root, tree = generator.healthy(seed, tmp_path / str(seed))
        answer = run(capsys, "check", root, *QUESTION)
        if answer.code != 0:
            accused.append(f"python -m tests.trees healthy {seed} DIR\n{tree}\n{answer.out}{answer.err}")
    assert not accused, "\n\n".join(accused)


def test_every_class_of_bad_trees_occurs() -> None:
    """At least three times each."""
    found: Counter[str] = Counter()
    for seed in generator.BAD:
        found.update(generator.classes_of(seed))
    wanted = {*LAYOUTS, *(form.name for form in FORMATS), *WRAPPINGS, *generator.STYLES, *generator.PLACES}
    wanted |= {story.__name__ for story in stories.STORIES} | {*FOREIGN}
    assert {name for name in wanted if found[name] < 3} == set()
