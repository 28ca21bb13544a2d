"""Runs a headless command as the shell would, in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tui_debugger.cli.main import main


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> dict[str, Any]:
        """The one document on stdout, which must not use what JSON does not know."""

        def never(constant: str) -> None:
            raise AssertionError(f"{constant} is no JSON")

        document: dict[str, Any] = json.loads(self.out, parse_constant=never)
        return document


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> Answer:
    """Exit code and output of ``tdbg ...``."""
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as left:  # argparse leaves by itself
        code = int(left.code or 0)
    out, err = capsys.readouterr()
    return Answer(code, out, err)


def file_of(root: Path, pattern: str) -> Path:
    """The one file below a directory that a pattern names."""
    (path,) = root.rglob(pattern) if "/" not in pattern else root.glob(pattern)
    return path
