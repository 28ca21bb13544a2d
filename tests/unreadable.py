"""What can lie in the place of a directory or a file of a dump, so that it cannot be looked at, whoever looks."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path


def _file(path: Path) -> None:
    path.write_text("no directory")


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("s")
        os.rename("s", path.name)  # noqa: PTH104 - both are beside us
    finally:
        os.chdir(here)


WOUNDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "dangling": (lambda path: path.symlink_to("nowhere"), "a dangling link"),
    "loop": (lambda path: path.symlink_to(path.name), "a loop of links"),
    "fifo": (os.mkfifo, "a FIFO in place of a directory"),
    "socket": (_socket, "a socket in place of a directory"),
    "file": (_file, "a file in place of a directory"),
}
"""What makes it, and the words for it, by name."""


def wound(path: Path, kind: str) -> str:
    """Puts something else in the place of a path; returns the words for it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    make, words = WOUNDS[kind]
    make(path)
    return words
