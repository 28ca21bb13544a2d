"""The kernel is built where there is a compiler; where there is none, everything works, and nothing fails."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tui_debugger
from tui_debugger.stats import kernel
from tui_debugger.stats.kernel import build

ROOT = Path(tui_debugger.__file__).parents[1]


@pytest.fixture
def looked_for() -> object:
    """The library is looked for anew by the test, and after it."""
    kernel.forget()
    yield
    kernel.forget()


def test_a_missing_compiler_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build.NoCompilerError, match="looked for gcc, clang, cc"):
        build.build(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_compiler_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.raises(build.CompileError, match="false failed"):
        build.build(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_why_there_is_no_kernel(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tui_debugger.stats.kernel.build"],
        env={"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "no C compiler was found" in done.stderr
    assert "numpy does its work" in done.stderr


@pytest.mark.usefixtures("looked_for")
@pytest.mark.parametrize("content", [None, b"", b"no library"])
def test_a_missing_or_damaged_library_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "kernel.so"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(kernel, "shared_library_path", lambda: path)
    assert not kernel.available()


@pytest.mark.usefixtures("looked_for")
def test_a_library_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its name has the checksum of the sources: when they change, it is another one."""
    for path in [*kernel.FOLDER.glob("*.c"), *kernel.FOLDER.glob("*.h")]:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    before = kernel.shared_library_path().name
    monkeypatch.setattr(kernel, "FOLDER", tmp_path)
    assert kernel.shared_library_path().name == before
    with (tmp_path / "kernel.h").open("a") as header:
        header.write("\n")
    assert kernel.shared_library_path().name != before


def wheel(folder: Path, **environment: str) -> Path:
    """A wheel of this program, built in an environment."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling, which builds wheels, is not installed")
    path = os.pathsep.join(each for each in sys.path if each)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        env={"PYTHONPATH": path, "HOME": str(folder), **environment},
        capture_output=True,
        check=True,
    )
    (made,) = folder.glob("*.whl")
    return made


def version_of(unpacked: Path) -> str:
    """What ``tdbg --version`` of an unpacked wheel says."""
    path = os.pathsep.join([str(unpacked), *(each for each in sys.path if each.endswith("site-packages"))])
    done = subprocess.run(
        [sys.executable, "-m", "tui_debugger", "--version"],
        cwd=unpacked,
        env={"PYTHONPATH": path, "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def quick_compiler(script: Path) -> str:
    """This machine's compiler, which leaves out only what makes the code fast."""
    script.write_text(f'#!/bin/sh\nexec {shlex.join(build.compiler())} "$@" -O0\n')
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize("there", [False, True])
def test_a_wheel_is_for_all_processors_unless_there_is_a_compiler(tmp_path: Path, there: bool) -> None:
    path = os.environ.get("PATH", "") if there else str(tmp_path / "empty")
    chosen = {}
    if there:
        try:
            chosen["CC"] = quick_compiler(tmp_path / "cc")
        except build.NoCompilerError:
            pytest.skip("there is no C compiler")
    made = wheel(tmp_path / "made", PATH=path, **chosen)
    assert made.name.endswith("-py3-none-any.whl") is not there
    with zipfile.ZipFile(made) as archive:
        libraries = [name for name in archive.namelist() if name.endswith(".so")]
        archive.extractall(tmp_path / "unpacked")
    assert len(libraries) == there
    how = "compiled" if there else "numpy"
    assert version_of(tmp_path / "unpacked") == f"tdbg {tui_debugger.__version__} ({how})"


def test_a_wheel_for_another_processor_needs_a_compiler_for_it(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as error:
        wheel(tmp_path / "made", PATH=str(tmp_path), TDBG_MACHINE="riscv64")
    assert b"CompileError" in error.value.stderr or b"no C compiler was found" in error.value.stderr
    assert not list(tmp_path.glob("made/*.whl"))
