"""Readers of other packages, found by their entry points."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.sources.arrays import write_arrays
from tests.sources.memory import MemorySource
from tests.sources.writer import write_dump
from tui_debugger.errors import NotADumpError, TdbgError
from tui_debugger.model import Side
from tui_debugger.sources.registry import contents_text, find_run, open_source

READER = """
from pathlib import Path
from tests.sources.memory import MemorySource
from tui_debugger.sources.registry import Recognised, Sureness

class Reader:
    name = "theirs"
    looked_for = "a file called theirs.txt"
    def recognises(self, path):
        return Recognised(path, Sureness.SURE) if (path / "theirs.txt").exists() else None
    def open(self, path, store=None, notices=()):
        {open}
"""
OPENS = 'return MemorySource({0: {3: {("a", 1, 0): __import__("numpy").ones(2)}}}, notices=notices)'


def dump(folder: Path) -> Path:
    folder.mkdir()
    (folder / "theirs.txt").touch()
    return folder


def test_a_reader_of_another_package_opens_what_it_recognises(tmp_path: Path, install) -> None:
    install("theirs_one", READER.replace("{open}", OPENS))
    source = open_source(dump(tmp_path / "dump"))
    assert isinstance(source, MemorySource)
    assert source.steps(0) == [3]
    assert source.tensors(0, 3).find(0, Side.OUTPUT, 0) == 0
    with pytest.raises(NotADumpError, match=r"Looked for MindSpore, .*, tensor files, theirs"):
        find_run(tmp_path)


@pytest.mark.parametrize(
    ("code", "value", "words"),
    [
        ("import no_such_module_at_all", "", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("Reader = 3", "", "AttributeError"),
        ("", "", "AttributeError"),
        ("class Reader:\n    def __init__(self): raise ValueError('two\\nlines')", "", "ValueError: two lines"),
        (READER.replace("return Recognised", "1 / 0; return Recognised").replace("{open}", OPENS), "", "ZeroDivision"),
        ("Reader = None", "no such thing", ""),
    ],
)
def test_a_broken_one_is_told_of_and_everything_else_opens(
    tmp_path: Path,
    install,
    code: str,
    value: str,
    words: str,
) -> None:
    name = f"broken_{abs(hash((code, value)))}"
    install(name, code, value)
    with pytest.raises(NotADumpError, match=f"The reader '{name}' .* cannot be used: .*{words}") as caught:
        open_source(dump(tmp_path / "dump"))
    assert caught.value.where
    assert caught.value.hint
    write_arrays(tmp_path / "arrays/step_0", {"a": np.ones(3)})
    source = open_source(tmp_path / "arrays")
    assert source.steps(0) == [0]
    assert any(name in notice and "update or remove its package" in notice for notice in source.info.notices)


def test_one_that_fails_when_it_opens(tmp_path: Path, install) -> None:
    install("theirs_failing", READER.replace("{open}", "raise KeyError('lost')"))
    with pytest.raises(TdbgError, match=r"the reader 'theirs_failing' .* failed: KeyError: 'lost'") as caught:
        open_source(dump(tmp_path / "dump"))
    assert caught.value.where == str(tmp_path / "dump")
    assert "package" in caught.value.hint


def test_nobody_is_asked_where_a_reader_here_is_sure(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0,))
    code = (
        "import sys; from pathlib import Path; from tui_debugger.sources.registry import find_run;"
        "find_run(Path(sys.argv[1])); print('importlib.metadata' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_a_directory_without_files_says_so_and_what_cannot_be_listed_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    with pytest.raises(NotADumpError, match=r"above\. It holds no files\. Looked for MindSpore,"):
        find_run(tmp_path)
    assert contents_text(tmp_path / "gone") == ""
    (tmp_path / "a/b/notes.h5").touch()
    assert contents_text(tmp_path) == "It holds 1 .h5 file (not read; .npy or .npz would be)"
    assert contents_text(tmp_path / "a/b/notes.h5") == ""
