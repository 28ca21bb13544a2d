"""The real dumps that ship with the package, and the unpacking of dump archives."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Final

from tui_debugger.environment import user_directory
from tui_debugger.errors import TdbgError, reason_of

DEMO: Final = Path(__file__).with_name("mindspore-2.0-nan.tar.xz")
"""A tiny transformer trained by MindSpore 2.0.0 on CPU; step 3 divides 0 by 0 and takes log(0)."""
PYTORCH: Final = Path(__file__).with_name("msprobe-nan.tar.xz")
"""A tiny transformer trained by PyTorch on CPU, recorded by msprobe 26.2; step 1 takes the log of values below 0."""


def demo_dump(archive: Path = DEMO) -> Path:
    """Unpacks a demo dump (``DEMO`` or ``PYTORCH``) once into the user's cache directory, or raises TdbgError."""
    where = "XDG_CACHE_HOME"
    try:
        cache = user_directory(where, ".cache")
        where = str(cache)
        return unpack(archive, cache)
    except (OSError, RuntimeError) as error:
        raise TdbgError(
            f"the demo dump could not be unpacked: {reason_of(error)}",
            where=where,
            hint="set XDG_CACHE_HOME to a directory you can write",
        ) from None


def unpack(archive: Path, parent: Path) -> Path:
    """Unpacks a dump archive below ``parent`` once and returns the folder of the archive's name.

    Renames a temporary sibling, so that neither two processes nor an interrupted one leave half a dump.
    """
    import shutil
    import tempfile

    name = archive.name.removesuffix(".tar.xz")
    target = parent / name
    if target.is_dir():
        return target
    parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=parent))
    try:
        with tarfile.open(archive, "r:xz") as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(scratch, filter="data")
            else:  # Python before the security back-ports; the archive is our own
                tar.extractall(scratch)  # noqa: S202 - the archive ships with this package
        try:
            (scratch / name).rename(target)
        except OSError:
            if not target.is_dir():  # another process may have been faster
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target
