"""Places of dumps where the operating system has no directories: a tar, a URL.

``reached`` registers what answers for such a place with ``opener``, under a path that no file has: that of the tar
itself, or ``/s3:/bucket`` for ``s3://bucket``. Whoever reads a dump calls ``opener`` and need not know. Light: it looks
at the text of a path, and imports what a place needs when there is one.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from tui_debugger import opener
from tui_debugger.errors import NotADumpError

_TAR: Final = ".tar"
_COMPRESSED: Final = {
    ".tar.gz": "tar xzf", ".tgz": "tar xzf", ".tar.xz": "tar xJf", ".txz": "tar xJf", ".tar.bz2": "tar xjf",
    ".tbz2": "tar xjf", ".tbz": "tar xjf", ".tar.zst": "tar --zstd -xf", ".tzst": "tar --zstd -xf",
    ".tar.lz4": "tar -I lz4 -xf",
}  # fmt: skip
"""Compressed tars by suffix, with the command that unpacks one."""
_ANY: Final = re.compile(r"\.(?:tar|tgz|txz|tbz2?|tzst)(?:\.\w+)?(?:/|$)", re.IGNORECASE)


def reached(path: Path) -> Path:
    """Returns the path that a dump's files are asked for by, after whatever answers for it was registered.

    Args:
        path: as people gave it; that of a directory comes back as it is.

    Raises:
        NotADumpError: a tar that is damaged, compressed or hostile.
    """
    text = os.fspath(path)
    if _ANY.search(text) is not None:
        return _in_tar(path, text)
    return path


def _in_tar(path: Path, text: str) -> Path:
    """Registers the tar that a path is, or lies in."""
    absolute = os.path.abspath(text)  # noqa: PTH100 - keeps links
    place, inside = absolute, ""
    while place:
        suffix = next((each for each in _COMPRESSED if place.lower().endswith(each)), "")
        if (suffix or place.lower().endswith(_TAR)) and os.path.isfile(place):  # noqa: PTH113 - never raises
            if suffix:
                raise NotADumpError(
                    "a compressed tar cannot be read where it lies",
                    where=text,
                    hint=f"unpack it: {_COMPRESSED[suffix]} {os.path.basename(place)}",  # noqa: PTH119 - text
                )
            from tui_debugger.mounts.tar import TarMount

            known = opener.mount_at(place)
            if isinstance(known, TarMount) and known.is_current():
                mount = known
            else:
                opener.forget(place)  # the file itself is asked for now
                mount = TarMount.read(place)
                opener.register(place, mount)
            return Path(absolute) if inside else Path(place, mount.folder)
        place, _, name = place.rpartition("/")
        inside = f"{name}/{inside}"
    return path
