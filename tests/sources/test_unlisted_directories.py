"""What lies in the place of a directory of a dump is named by a check, whatever layout: it is not left out silently.

Those of MindSpore are in ``tests/plants/test_unreadable.py``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.unreadable import WOUNDS, wound

Capsys = pytest.CaptureFixture[str]
PLACES = (
    ("msprobe-mix/good", "step1"),
    ("sglang-megatron/megatron-tp2/good", "activations/iter_0000002"),
    ("te-logs", "tensor_dumps"),
    ("te-logs", "tensor_dumps/rank_0"),
    ("te-logs", "tensor_dumps/rank_0/iter_000002"),
    ("te-logs", "nvdlfw_inspect_logs"),
    ("msprobe-monitor/v2", "rank_1"),
)
"""Of each layout, the directories that hold steps, ranks or something besides."""


@pytest.mark.covering
@pytest.mark.parametrize("kind", WOUNDS)
@pytest.mark.parametrize(("layout", "place"), PLACES)
def test_it_is_a_doubt(
    dumps: Callable[[str], Path], tmp_path: Path, *, capsys: Capsys, layout: str, place: str, kind: str
) -> None:
    name, _, part = layout.partition("/")
    root = tmp_path / "dump"
    shutil.copytree(dumps(name) / part, root, copy_function=shutil.copyfile)
    code = run(capsys, "check", root, "--no-cache", "--watch", "TO").code
    words = wound(root / place, kind)
    answer = run(capsys, "check", root, "--no-cache", "--watch", "TO", "--json")
    assert answer.code == (2 if code == 0 else code)
    assert (Path(place).name, words) in [(Path(part["where"]).name, part["why"]) for part in answer.json["unreadable"]]


def test_a_step_that_cannot_be_listed_is_no_part_of_another(
    dumps: Callable[[str], Path], tmp_path: Path, capsys: Capsys
) -> None:
    root = tmp_path / "dump"
    shutil.copytree(dumps("msprobe-mix") / "good", root, copy_function=shutil.copyfile)
    wound(root / "step1", "fifo")
    assert run(capsys, "check", root, "--no-cache", "--watch", "TO", "--step", "0").code == 0
    assert run(capsys, "check", root, "--no-cache", "--watch", "TO", "--step", "0:1").code == 2
    assert run(capsys, "check", root, "--no-cache", "--watch", "TO", "--allow-unreadable").code == 0
