"""README says what the program does: its tables, commands and pictures are checked against the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.readme_blocks import BLOCKS, README, block

TEXT = README.read_text("utf-8")
ROOT = README.parent


@pytest.mark.parametrize("name", BLOCKS)
def test_tables_are_those_of_the_registries(name: str) -> None:
    assert block(TEXT, name) == BLOCKS[name](), "run: python -m tests.readme_blocks"


def test_ci_runs_the_test_command_of_the_readme() -> None:
    (command,) = [line for line in TEXT.splitlines() if line.startswith("python3 -m venv") and "pytest" in line]
    script = (ROOT / ".ci" / "run").read_text("utf-8").replace('"$python"', "python3")
    assert command in script.splitlines()


def test_every_picture_exists_and_every_screenshot_is_shown() -> None:
    shown = set(re.findall(r"\]\((screenshots/[^)]+)\)", TEXT))
    there = {f"screenshots/{path.name}" for path in Path(ROOT / "screenshots").glob("*.svg")}
    assert shown == there
