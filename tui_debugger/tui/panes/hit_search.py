"""Which rows of the hit list a search text finds: every different text is looked at once, whatever its rows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int64
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import Verdict
from tui_debugger.session.hits import HitList, StepHits
from tui_debugger.words.hits import abbreviations

_WAYS = len(Verdict) + 1
"""A verdict, or none."""
_CODES = int(62 // math.log2(_WAYS))
"""Watchpoints whose verdicts fit into one number."""


def found_in(hits: HitList, test: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
    """Marks the hits of which ``NODE ABBREVIATIONS`` passes a test, of several graphs also ``GRAPH/NODE …``."""
    words: dict[str, int] = {}
    tables: dict[int, int] = {}
    keys = np.zeros((3, len(hits)), np.int64)
    nodes: list[NodeTable] = []
    for part, places, at in hits.by_step():
        number = tables.setdefault(id(part.nodes), len(tables))
        if number == len(nodes):
            nodes.append(part.nodes)
        keys[0, places] = number
        keys[1, places] = part.node[at]
        keys[2, places] = _words(part, at, words)
    texts, inverse = _unique(keys)
    said = list(words)
    answers = [
        any(test(f"{name} {said[word]}") for name in _names(nodes[table], row)) for table, row, word in texts.T.tolist()
    ]
    return np.array(answers, np.bool_)[inverse]


def _names(nodes: NodeTable, row: int) -> list[str]:
    """What a node is found by."""
    name = nodes.names[row]
    return [name, f"{nodes.graph_of(row).name}/{name}"] if len(nodes.graphs) > 1 else [name]


def _words(part: StepHits, at: Int64, words: dict[str, int]) -> Int64:
    """The number in ``words`` of what each hit's watchpoints are called; the text of a new one is added."""
    codes = np.zeros(len(at), np.int64)
    for number, row in enumerate(part.verdicts, 1):
        codes = codes * _WAYS + row[at] + 1  # no verdict is -1
        if number % _CODES == 0:
            codes = np.unique(codes, return_inverse=True)[1]
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    texts = [" ".join(abbr for abbr, _ in abbreviations(part.make(index))) for index in at[first].tolist()]
    return np.array([words.setdefault(text, len(words)) for text in texts], np.int64)[inverse]


def _unique(keys: Int64) -> tuple[Int64, Int64]:
    """The different columns of three rows of numbers, and which of them each column is."""
    size = keys.max(axis=1, initial=0) + 1
    codes = np.ravel_multi_index(tuple(keys), tuple(size)) if keys.size else keys[0]
    found, inverse = np.unique(codes, return_inverse=True)
    return np.array(np.unravel_index(found, tuple(size)), np.int64), inverse
