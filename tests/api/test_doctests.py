"""Every example in the documentation of the API runs as it stands there, on the demo dump."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import tui_debugger.api

MODULES = [
    *(f"tui_debugger.api.{each.name}" for each in pkgutil.iter_modules(tui_debugger.api.__path__)),
    "tui_debugger.compat",
]
DOCUMENTED = 20
"""So many classes and methods have an example, at least."""


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    result = doctest.testmod(module)
    assert result.failed == 0


def test_the_public_classes_have_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(found) >= DOCUMENTED
