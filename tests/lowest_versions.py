"""Runs a core part of the tests with the lowest version of every dependency that ``pyproject.toml`` allows.

``python -m tests.lowest_versions [PYTHON] [FOLDER]`` makes a virtual environment (in FOLDER, default: a temporary one)
with PYTHON (default: 3.10 where it is at hand), installs each dependency at its lower bound, and runs the tests. Too
slow for every run: do it when a bound changes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
CORE: Final = (
    *("tests/stats/test_npy.py", "tests/stats/test_measure.py", "tests/stats/test_dtypes.py", "tests/watch"),
    *("tests/graph", "tests/sources/test_conformance.py", "tests/check/test_pipeline.py", "tests/cache/test_store.py"),
    *("tests/live/server/test_replay.py", "tests/live/server/test_serving.py", "tests/live/client/test_recorder.py"),
    *("tests/tui/test_app.py", "tests/tui/test_first_screen.py", "tests/cli/test_check.py", "tests/cli/test_export.py"),
)
"""Tests that use every dependency."""
TESTED_WITH: Final = ("pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "hypothesis", "pyte")
_BOUND: Final = re.compile(r'^\s*"([A-Za-z0-9_-]+)>=([0-9.]+)[^"]*"', re.MULTILINE)


def bounds(text: str) -> list[str]:
    """``name==lowest`` for each dependency of the program, and of the spreadsheets that its tests read."""
    start = text.index("\ndependencies = [")
    program = text[start : text.index("\n]", start)]
    found = [*_BOUND.findall(program), ("openpyxl", "3.1")]
    return [f"{name}=={lowest}" for name, lowest in found]


def main(arguments: list[str]) -> int:
    """Returns pytest's exit code."""
    python = arguments[0] if arguments else shutil.which("python3.10") or sys.executable
    folder = Path(arguments[1]) if len(arguments) > 1 else Path(tempfile.mkdtemp(prefix="lowest-"))
    environment = folder / "venv"
    subprocess.run([python, "-m", "venv", environment], check=True)
    pip = environment / "bin" / "pip"
    pinned = bounds((ROOT / "pyproject.toml").read_text("utf-8"))
    subprocess.run([pip, "install", "-q", *pinned, *TESTED_WITH], check=True)
    subprocess.run([pip, "install", "-q", "--no-deps", "-e", ROOT], check=True)
    sys.stdout.write(f"{' '.join(pinned)}\n")
    sys.stdout.flush()
    ran = subprocess.run([environment / "bin" / "python", "-m", "pytest", "-q", *CORE], cwd=ROOT, check=False)
    return ran.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
