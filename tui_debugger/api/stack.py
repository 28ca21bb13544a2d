"""Source stacks as MindInsight gives them: a list of dicts with a textual form that queries are matched with."""

from __future__ import annotations

from collections.abc import Iterable

from tui_debugger.model import Frame

_OWN = "# Corresponding code candidate:"
_FORWARD = "# Corresponding forward node candidate:"


class StackEntry(dict[str, str | int | bool]):
    """One entry: ``file_path``, ``line_no``, ``code_line`` and ``has_substack``, as items and as attributes.

    A heading (of a stack with several candidates, or of the forward node's part) has no file: its text is its
    ``code_line``. ``str()`` is what ``select_by="code_stack"`` searches: path, line number and code.
    """

    @property
    def file_path(self) -> str:
        """Source file as the training process saw it."""
        return str(self["file_path"])

    @property
    def line_no(self) -> int:
        """Line, from 1; 0 for a heading."""
        return int(self["line_no"])

    @property
    def code_line(self) -> str:
        """Text of the line."""
        return str(self["code_line"])

    @property
    def has_substack(self) -> bool:
        """Whether this entry begins a stack of its own."""
        return bool(self["has_substack"])

    def __str__(self) -> str:
        """Mark, ``path:line``, code."""
        if not self.file_path:
            return self.code_line
        return f"{'# - ' if self.has_substack else '#   '}{self.file_path}:{self.line_no}  {self.code_line}"


def stack_entries(frames: Iterable[Frame]) -> list[StackEntry]:
    """The entries of a stack, innermost first, with the headings that the graph file has."""
    entries: list[StackEntry] = []
    part = ""
    for frame in frames:
        heading = _FORWARD if frame.forward else _OWN if frame.depth else ""
        if heading != part:
            part = heading
            if heading:
                entries.append(_entry("", 0, heading, False))
        entries.append(_entry(frame.path, frame.line, frame.code, frame.substack))
    return entries


def _entry(path: str, line: int, code: str, substack: bool) -> StackEntry:
    return StackEntry(file_path=path, line_no=line, code_line=code, has_substack=substack)
