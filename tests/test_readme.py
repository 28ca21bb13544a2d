"""README says what the program does: its tables, commands and pictures are checked against the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.readme_blocks import README, block, conditions, keys
from tui_debugger.cli.main import build_parser

TEXT = README.read_text("utf-8")
ROOT = README.parent


@pytest.mark.parametrize("name", ["keys", "conditions"])
def test_tables_are_those_of_the_registries(name: str) -> None:
    made = {"keys": keys, "conditions": conditions}[name]()
    assert block(TEXT, name) == made, "run: python -m tests.readme_blocks"


def test_ci_runs_the_test_command_of_the_readme() -> None:
    (command,) = [line for line in TEXT.splitlines() if line.startswith("python3 -m venv") and "pytest" in line]
    script = (ROOT / ".ci" / "run").read_text("utf-8").replace('"$python"', "python3")
    assert command in script.splitlines()


def test_every_picture_exists_and_every_screenshot_is_shown() -> None:
    shown = set(re.findall(r"\]\((screenshots/[^)]+)\)", TEXT))
    there = {f"screenshots/{path.name}" for path in Path(ROOT / "screenshots").glob("*.svg")}
    assert shown == there


def test_every_option_of_open_is_described() -> None:
    parser = build_parser()
    (commands,) = [a for a in parser._actions if a.dest == "==SUPPRESS==" or getattr(a, "choices", None)]
    assert isinstance(commands.choices, dict)
    for name, command in commands.choices.items():
        assert f"`tdbg {name}" in TEXT
        for action in command._actions:
            for option in action.option_strings:
                assert option in ("-h", "--help") or option in TEXT, option
