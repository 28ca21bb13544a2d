"""Which path lies in which directory, by text, and where links lead. Light: it is imported before the first frame."""

from __future__ import annotations

import os

from tui_debugger import opener


def is_inside(path: str, directory: str) -> bool:
    """Tells whether a path is a directory or lies in it, by its text."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def leads_back(path: str, top: str) -> bool:
    """Tells whether a path is a link to something that a directory holds anyway, or to that directory."""
    return opener.islink(path) and is_inside(os.path.realpath(path), os.path.realpath(top))


def ways_to(top: str, path: str) -> tuple[str, ...]:
    """Returns a path as it is written, then once links are followed, if it may lead into a directory; else nothing.

    A link may lead into the run, and the run may be made of links.
    """
    real_top, real = os.path.realpath(top), os.path.realpath(path)
    if is_inside(top, path) or is_inside(real_top, real):
        return ()
    resolved = [top + real[len(real_top.rstrip("/")) :]] if is_inside(real, real_top) else []
    return tuple(dict.fromkeys((path, *resolved)))
