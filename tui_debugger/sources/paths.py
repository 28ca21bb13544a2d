"""Relations of paths and directories by text, and where links lead. Imported before the first frame."""

from __future__ import annotations

import os

from tui_debugger import opener


def is_inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def leads_back(path: str, top: str) -> bool:
    """Whether a path is a link to a directory or to something inside it."""
    return opener.islink(path) and is_inside(os.path.realpath(path), os.path.realpath(top))


def ways_to(top: str, path: str) -> tuple[str, ...]:
    """Spellings of a path below ``top``: as given, and with links resolved; none where it leads to all of ``top``.

    A link may lead into the run, and the run may be made of links.
    """
    real_top, real = os.path.realpath(top), os.path.realpath(path)
    if is_inside(top, path) or is_inside(real_top, real):
        return ()
    resolved = [top + real[len(real_top.rstrip("/")) :]] if is_inside(real, real_top) else []
    return tuple(dict.fromkeys((path, *resolved)))
