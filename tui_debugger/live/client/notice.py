"""The one line that people see when a debugger comes or goes."""

from __future__ import annotations

import contextlib
import sys


class Notice:
    """Writes lines to the standard error, never the same twice in a row, and never fails."""

    def __init__(self) -> None:
        """Has said nothing yet."""
        self._last = ""

    def __call__(self, text: str) -> None:
        """Says something."""
        if text == self._last:
            return
        self._last = text
        with contextlib.suppress(Exception):  # no standard error, a closed pipe ...
            sys.stderr.write(f"tdbg: {text}\n")
            sys.stderr.flush()
