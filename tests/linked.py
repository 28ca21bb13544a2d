"""Copies of dumps for tests that change some of their files: made of hard links, because most files stay as they are.

A file of such a copy is written to only after ``own``: it would be the file of other tests, too. ``Guarded`` notices
when that was forgotten.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any


def linked(dump: Path, target: Path, ignore: Callable[[Any, list[str]], Any] | None = None) -> Path:
    """A copy of a dump that was given by ``dumps``; its files are links.

    They are links to the files of another copy, made once per process: a link changes the ctime of what it leads to,
    and other tests may look whether a dump has changed.
    """
    original = dump.parent.with_name(f"originals-{os.getpid()}") / dump.name
    if not original.exists():
        shutil.copytree(dump, original)
        GUARDED.add(original)
    shutil.copytree(original, target, copy_function=os.link, ignore=ignore)
    for folder, _, _ in os.walk(target):
        Path(folder).chmod(0o755)
    return target


def own(file: Path) -> Path:
    """Makes a file of a linked copy a file of its own, which may be written to, and returns it."""
    if file.stat().st_nlink > 1:
        kept = file.with_name(f".{file.name}.own")
        shutil.copy2(file, kept)
        kept.chmod(0o600)
        kept.replace(file)
    return file


class Guarded:
    """Directories that nobody may change, not even through a link."""

    def __init__(self) -> None:
        self._before: dict[Path, dict[str, tuple[int, int, int]]] = {}

    def add(self, root: Path) -> Path:
        """Takes care of a directory from now on, and returns it."""
        if root not in self._before:
            self._before[root] = _statuses(root)
        return root

    def check(self) -> None:
        """Fails when anything has changed."""
        for root, before in self._before.items():
            now = _statuses(root)
            changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
            assert not changed, f"a test has changed {changed[:3]} in {root}: it lacks own() of tests.linked"


GUARDED = Guarded()
"""Every dump that was given to a test of this process."""


def _statuses(root: Path) -> dict[str, tuple[int, int, int]]:
    """Size, time of the last change and mode of every file below a directory."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)  # noqa: PTH118 - thousands of files, each time the tests run
            status = os.lstat(path)
            found[path] = status.st_size, status.st_mtime_ns, status.st_mode
    return found
