"""Runs ``tdbg check`` as the shell would, in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import running


class Answer(running.Answer):
    """What a check left behind."""

    @property
    def last(self) -> str:
        """The verdict."""
        return self.lines[-1]

    @property
    def rows(self) -> list[str]:
        """The rows of the table of hits."""
        end = self.lines.index("") if self.lines[0].startswith("step ") else 0
        return self.lines[1:end]


def check(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str) -> Answer:
    """Exit code and output of ``tdbg check PATH ...``."""
    found = running.run(capsys, "check", path, *arguments)
    return Answer(found.code, found.out, found.err)
