"""What a person asks of the node list; apart from the search, which needs numpy: a screen has a query at once."""

from __future__ import annotations

from dataclasses import dataclass

from tui_debugger.model import Category


@dataclass(frozen=True)
class NodeQuery:
    """A filter of the node list. Empty parts do not filter; all parts must hold.

    Attributes:
        text: substring (or regular expression) on the canonical id or the display path.
        regex: ``text`` is a regular expression, searched anywhere.
        case_sensitive: compare ``text`` with case.
        categories: wanted categories.
        types: wanted operator types, lower-case.
        graphs: wanted graph names.
        watched: watchpoint id whose nodes are wanted, 0 for any enabled one; resolved by the session.
        hit: only nodes with a finding; resolved by the session.
        line: (source file, line) that the node's stack must name.
        structural: also nodes that only route values.
    """

    text: str = ""
    regex: bool = False
    case_sensitive: bool = False
    categories: frozenset[Category] = frozenset()
    types: frozenset[str] = frozenset()
    graphs: frozenset[str] = frozenset()
    watched: int | None = None
    hit: bool = False
    line: tuple[str, int] | None = None
    structural: bool = False
