"""README says what the program does: its tables, commands and pictures are checked against the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.readme_blocks import BLOCKS, README, block
from tui_debugger.cli.main import build_parser
from tui_debugger.watch.text import parse_watch

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


def command_lines() -> list[str]:
    """Every line of the README's shell blocks that starts tdbg."""
    blocks = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    return [line for block_ in blocks for line in block_.splitlines() if line.startswith("tdbg ")]


@pytest.mark.parametrize("line", command_lines())
def test_every_command_line_is_understood(line: str) -> None:
    command = re.split(r" [|>] ", line)[0]
    words = shlex.split(command, comments=True)[1:]
    arguments = build_parser().parse_args(words)
    assert callable(arguments.run)
    for text in getattr(arguments, "watch", []):
        assert parse_watch(text)
