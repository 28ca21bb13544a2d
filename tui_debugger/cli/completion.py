"""The files for shells and man in the package. ``tests/shell_files.py`` writes them from the command line's tables."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SHARE: Final = Path(__file__).parents[1] / "share"
FILES: Final = {
    "bash": "bash-completion/completions/tdbg",
    "zsh": "zsh/site-functions/_tdbg",
    "fish": "fish/vendor_completions.d/tdbg.fish",
    "man": "man/man1/tdbg.1",
}
"""The paths below ``share``, both in this package and in the prefix of an installation."""


def shell_file(kind: str) -> str:
    return (SHARE / FILES[kind]).read_text("utf-8")
