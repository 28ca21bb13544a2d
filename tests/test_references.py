"""What comments and docstrings point at is there: ``module.name`` names something in a module of the program.

A reader follows such a reference; one that leads to a file that was renamed long ago costs more than none.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import tui_debugger

ROOT = Path(tui_debugger.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py"))
REFERENCE = re.compile(r"``([a-z_]+)\.([A-Za-z_]\w*)(?:\([^`]*\))?``")
ELSEWHERE = {
    *sys.stdlib_module_names,
    *("mindinsight", "np", "pandas", "tdbg", "torch"),
    *("aten", "batch", "columns", "common_dump_settings", "debugger", "keys", "prev", "type"),
}
"""What the first word may be besides: modules of others, sections of files, beginnings of names that runs have."""
SUFFIXES = {path.suffix[1:] for path in ROOT.rglob("*.*")} | {"csv", "json", "jsonl", "proto", "toml"}


@cache
def names_in(path: Path) -> frozenset[str]:
    """Every name in the code of a file; texts and comments are no code."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline)
    return frozenset(token.string for token in tokens if token.type == tokenize.NAME)


def holds(module: Path, name: str) -> bool:
    """Whether a module uses a name, or a package has a module of that name."""
    inside = module.name == "__init__.py" and any(each.stem == name for each in module.parent.iterdir())
    return inside or name in names_in(module)


def modules_called(word: str) -> list[Path]:
    return [path for path in FILES if (path.parent.name if path.name == "__init__.py" else path.stem) == word]


def lost(path: Path) -> Iterator[str]:
    """The references in a file that lead nowhere."""
    for found in REFERENCE.finditer(path.read_text("utf-8")):
        word, name = found.groups()
        if word in ELSEWHERE or name in SUFFIXES or {word, name} <= names_in(path):
            continue
        if not any(holds(module, name) for module in modules_called(word)):
            yield found[0]


def test_every_reference_leads_somewhere() -> None:
    found = {path.relative_to(ROOT).as_posix(): list(lost(path)) for path in FILES}
    assert {path: references for path, references in found.items() if references} == {}


def test_a_reference_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text('"""See ``wire.TrainingStop``, ``wire.Nobody``, ``nowhere.Thing`` and ``torch.save``."""\n')
    assert list(lost(file)) == ["``wire.Nobody``", "``nowhere.Thing``"]
