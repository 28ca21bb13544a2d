"""Directories that the API writes into."""

from __future__ import annotations

from pathlib import Path

from tui_debugger.errors import TdbgError


def made(directory: Path, parameter: str) -> None:
    """Makes a directory that was given as ``parameter``, unless it is there.

    Raises:
        TdbgError: it cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise TdbgError(
            f"the directory could not be made: {reason}", where=str(directory), hint=f"choose another {parameter}"
        ) from None
