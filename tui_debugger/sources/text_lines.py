"""Lines of text that a recorder wrote, and whether each is intact.

A recorder ends every line: a line without an end was cut, or is being written. Zeros and invalid UTF-8 stand where a
disk lost data.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tui_debugger.opener import LINE_LIMIT, read_lines


def text_lines(path: str | Path, *, cut: bool = False) -> Iterator[tuple[str, bool]]:
    """Yields the lines of a file without their ends, and whether each is whole. Raises OSError.

    ``cut``: of a line of more than ``LINE_LIMIT`` bytes the first ones are yielded, and count as whole.
    """
    for line in read_lines(path, cut=cut, ends=True):
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        ended = line.endswith(b"\n") or (cut and len(line) > LINE_LIMIT)
        yield text, ended and "\0" not in text and "\N{REPLACEMENT CHARACTER}" not in text
