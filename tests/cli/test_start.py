"""Ctrl-C before the program has begun: nothing of it that takes time is read where nobody answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_package_reads_nothing_before_ctrl_c_is_answered() -> None:
    program = (
        "import sys; before = set(sys.modules)\n"
        "import tui_debugger, tui_debugger.cli.start\n"
        "print(sorted(name for name in set(sys.modules) - before if not name.startswith('tui_debugger')))\n"
    )
    root = str(Path(__file__).parents[2])
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {root!r})\n{program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == "['__future__']\n"
