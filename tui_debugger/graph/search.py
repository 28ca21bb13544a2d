"""The query of the node list, and the search for its nodes."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tui_debugger.arrays import Mask
from tui_debugger.errors import BadQueryError
from tui_debugger.graph.categories import searched_weights, weight_gradients
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import (
    CATEGORY_WORDS,
    SEARCHED_WEIGHT,
    SELECTION_WORDS,
    WEIGHT_GRADIENT,
    Category,
    NodeKind,
    NodeSelection,
    NodeSelector,
)


@dataclass(frozen=True)
class NodeQuery:
    """A filter of the node list. Empty parts do not filter; all parts must hold.

    ``text`` is searched in canonical id and display path. ``types`` are lower-case. ``watched`` (watchpoint id, 0: any
    enabled one) and ``hit`` are resolved by the session. ``line`` is (source file, line) in the node's stack. With
    ``structural`` nodes that only route values count, too.
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


def match(table: NodeTable, query: NodeQuery) -> Mask:
    """Returns a mask of the matching rows, without ``watched`` and ``hit``; raises BadQueryError for a bad regex."""
    mask = np.ones(len(table), np.bool_) if query.structural else ~table.structural
    if query.categories:
        mask &= _of_categories(table, query.categories)
    if query.types:
        mask &= _of_types(table, query.types)
    if query.graphs:
        wanted = np.array([info.name in query.graphs for info in table.graphs], np.bool_)
        mask &= wanted[table.graph] if len(wanted) else False
    if query.line is not None:
        mask &= _of_line(table, query.line)
    if query.text:
        mask &= _of_text(table, query)
    return mask


def select(table: NodeTable, selection: NodeSelection) -> Mask:
    """Returns a mask of the rows that a watchpoint covers, never constants and structural nodes; or BadQueryError."""
    covered = _union(table, selection.include)
    if selection.exclude:
        covered &= ~_union(table, selection.exclude)
    return covered & table.watchable


def compile_pattern(text: str, *, case_sensitive: bool = True) -> re.Pattern[str]:
    """Compiles a typed regular expression, or raises BadQueryError with the position."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "possible nested set" is for authors of programs
            return re.compile(text, 0 if case_sensitive else re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        position = getattr(error, "pos", None)
        raise BadQueryError(
            f"not a regular expression: {error}",
            where=f"{text!r}" + (f", character {position + 1}" if position is not None else ""),
            hint="escape special characters such as [ ( * + ? with a backslash, or search as plain text",
        ) from error


def _union(table: NodeTable, selectors: Iterable[NodeSelector]) -> Mask:
    mask = np.zeros(len(table), np.bool_)
    for selector in selectors:
        mask |= _selected(table, selector)
    return mask


_BY_OPERATORS: Final[Mapping[str, Callable[[NodeTable], Mask]]] = {
    WEIGHT_GRADIENT: weight_gradients,
    SEARCHED_WEIGHT: searched_weights,
}
"""Words for nodes that only the optimizers' operators reveal."""


def _selected(table: NodeTable, selector: NodeSelector) -> Mask:
    text = selector.text
    if selector.kind is NodeKind.CATEGORY:
        if text not in SELECTION_WORDS:
            raise BadQueryError(f"unknown category {text!r}", where=text, hint=f"one of {', '.join(SELECTION_WORDS)}")
        found = _BY_OPERATORS.get(text)
        return found(table) if found is not None else _of_categories(table, CATEGORY_WORDS[text])
    if selector.kind is NodeKind.TYPE:
        return _of_types(table, frozenset({text.lower()}))
    if selector.kind is NodeKind.SCOPE:
        return _of_scope(table, text.strip("/"))
    if selector.kind is NodeKind.NODE:
        return _of_name(table, text)
    search = compile_pattern(text).search
    return _mask(search(name) is not None for name in table.names)


def _mask(values: Iterable[bool]) -> Mask:
    return np.fromiter(values, np.bool_)


def _of_categories(table: NodeTable, categories: Iterable[Category]) -> Mask:
    wanted = np.zeros(256, np.bool_)
    wanted[[int(category) for category in categories]] = True
    mask: Mask = wanted[table.category]
    return mask


def _of_types(table: NodeTable, types: frozenset[str]) -> Mask:
    wanted = np.array([name.lower() in types for name in table.types], np.bool_)
    mask: Mask = wanted[table.type_id] if len(wanted) else np.zeros(len(table), np.bool_)
    return mask


def _of_scope(table: NodeTable, scope: str) -> Mask:
    mask = _under(table.paths, scope)
    if len(table.graphs) > 1:
        graph, _, rest = scope.partition("/")
        for index, info in enumerate(table.graphs):
            if info.name == graph:
                mask |= (table.graph == index) & _under(table.paths, rest)
    return mask


def _under(paths: Sequence[str], scope: str) -> Mask:
    if not scope:
        return np.ones(len(paths), np.bool_)
    below = scope + "/"
    return _mask(path.startswith(below) or path == scope for path in paths)


def _of_name(table: NodeTable, name: str) -> Mask:
    mask = _mask(each == name for each in table.names)
    if not mask.any():  # graph_name/node_id, as some reports spell it
        graph, _, rest = name.partition("/")
        row = table.find(rest, graph) if rest else -1
        if row >= 0:
            mask[row] = True
    return mask


def _of_line(table: NodeTable, line: tuple[str, int]) -> Mask:
    path, number = line
    # One more entry for stack id -1: no stack.
    named = [
        any(frame.line == number and frame.path == path and not frame.context for frame in stack)
        for stack in table.stacks
    ]
    mask: Mask = np.array([*named, False], np.bool_)[table.stack_id]
    return mask


def _of_text(table: NodeTable, query: NodeQuery) -> Mask:
    if query.regex:
        search = compile_pattern(query.text, case_sensitive=query.case_sensitive).search
        return _mask(
            search(path) is not None or (name is not path and search(name) is not None)
            for name, path in zip(table.names, table.paths, strict=True)
        )
    if query.case_sensitive:
        return _contains(table.memo(_texts), query.text)
    return _contains(table.memo(_lower_texts), query.text.lower())


def _contains(texts: Sequence[str], needle: str) -> Mask:
    return np.array([needle in text for text in texts], np.bool_)


def _texts(table: NodeTable) -> list[str]:
    return [path if name in path else f"{name}\n{path}" for name, path in zip(table.names, table.paths, strict=True)]


def _lower_texts(table: NodeTable) -> list[str]:
    return [text.lower() for text in table.memo(_texts)]
