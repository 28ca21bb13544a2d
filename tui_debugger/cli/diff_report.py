"""The output of ``tdbg diff``: for people, and as JSON."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tui_debugger import __version__
from tui_debugger.cli.output import (
    Answer,
    Unseen,
    meaning_of,
    outcome_of,
    print_exit,
    print_table,
    print_text,
)
from tui_debugger.cli.show_report import nested
from tui_debugger.diagnose.compare import Couple, ReadableSide
from tui_debugger.model import TensorStats
from tui_debugger.stats.compare import Differences, DifferingElement
from tui_debugger.stats.compare_pairs import Fit
from tui_debugger.stats.fields import COLUMNS
from tui_debugger.text import differences as words
from tui_debugger.text.distribution import statistic_cells, statistic_columns
from tui_debugger.text.documents import Row, plain, row_of
from tui_debugger.text.numbers import NONE, number
from tui_debugger.text.rows import key_row, meta_row, stats_row
from tui_debugger.text.tables import Column
from tui_debugger.text.tensors import index_text, shape_text, type_text
from tui_debugger.text.values import exact_text
from tui_debugger.text.writer import meant, write_lines


@dataclass(frozen=True, slots=True)
class ComparedTensors:
    """The comparison that is printed.

    ``hint`` says what both tensors may be to each other; ``by`` is the measure of the list of largest differences.
    """

    couple: Couple
    found: Differences
    hint: str
    by: str
    graphs: bool = False

    def answer(self, missing: Unseen) -> Answer:
        """``missing`` parts of the same rank and step leave a difference a difference; NaN everywhere is a doubt."""
        found = self.found
        unknown = found.nothing_to_compare
        return Answer(
            code=outcome_of(finding=found.outside and not unknown, doubt=unknown),
            verdict="cannot_judge" if unknown else "different" if found.outside else "equal",
            missing=missing,
            reasons=[{"kind": "uncomparable", "text": words.verdict(found).partition(": ")[2]}] if unknown else [],
            document=lambda: document(self),
            show=lambda code: _print(self, code),
        )

    @property
    def largest(self) -> tuple[DifferingElement, ...]:
        """The elements that differ most, by the chosen measure."""
        found = self.found
        return {"abs": found.by_abs, "rel": found.by_rel, "ulp": found.by_ulp}[self.by]


def _print(compared: ComparedTensors, code: int) -> None:
    couple, found = compared.couple, compared.found
    here, there = couple.here, couple.there
    verdict = meant(words.verdict(found), meaning_of(code))
    print_text(f"here   {here.side.text(with_graph=compared.graphs)}  {type_text(here.meta)}")
    print_text(f"there  {there.side.text(here.side.key)}  {type_text(there.meta)}")
    if couple.fit is not Fit.SAME:
        print_text(f"       compared as {shape_text(found.shape)}, {couple.fit.value}")
    print_text("", verdict)
    if not found.tolerance.exact:
        print_text(f"tolerance: {words.tolerance_text(found.tolerance, found.boundary)}")
    for line in (words.counts_text, words.error_text, words.vector_text, words.ulp_text):
        if text := line(found):
            print_text(text)
    if compared.hint:
        print_text(f"note: {compared.hint}")
    write_lines("")
    rows = [("here", found.here), ("there", found.there), ("difference", found.difference)]
    print_table([Column("", weight=9), *statistic_columns(COLUMNS)], [[name, *_cells(stats)] for name, stats in rows])
    if compared.largest:
        print_text("", f"largest differences by {_BY[compared.by]}, NaN and Inf on one side first:")
        columns = [Column("index", weight=9), *(Column(title, right=True, weight=at) for title, at in _SHOWN.items())]
        print_table(columns, [_line(entry) for entry in compared.largest])
    print_exit(code, _EXITS.get(code, ""))


_SHOWN = {"here": 7, "there": 7, "difference": 8, "relative": 6, "ULP": 5}
"""Columns of the largest differences, and their weights."""
_EXITS = {0: "equal, as far as the tolerance goes", 1: "different", 2: "cannot judge"}


_BY = {"abs": "absolute error", "rel": "relative error", "ulp": "units in the last place"}


def _cells(stats: TensorStats) -> list[str]:
    return statistic_cells(COLUMNS, stats)


def _line(entry: DifferingElement) -> list[str]:
    return [
        index_text(entry.index),
        exact_text(entry.here),
        exact_text(entry.there),
        exact_text(entry.difference),
        number(entry.relative),
        NONE if entry.ulp is None else str(entry.ulp),
    ]


def document(compared: ComparedTensors) -> Row:
    found, couple = compared.found, compared.couple
    return {
        "here": _side(couple.here, found.here),
        "there": _side(couple.there, found.there),
        "compared_as": {"shape": list(found.shape), "fit": couple.fit.value},
        "tolerance": {
            **row_of(found.tolerance, "rtol", "atol", "percent"),
            "boundary": plain(found.boundary),
        },
        **row_of(found, "count", "outside", "equal", "different", "finite"),
        **row_of(found.odd, *found.odd.__slots__),
        **row_of(found, "sign_flips", "from_zero", "max_abs", "mean_abs", "max_rel", "norm", "relative_norm", "cosine"),
        "ulp": None if found.ulps is None else row_of(found.ulps, *found.ulps.__slots__),
        "difference": stats_row(found.difference),
        "largest_by": compared.by,
        "largest": [_entry(entry) for entry in compared.largest],
        "hint": compared.hint or None,
        "version": __version__,
    }


def _side(opened: ReadableSide, stats: TensorStats) -> Row:
    side = opened.side
    return {
        "path": side.path or None,
        "key": None if side.key is None else key_row(side.key),
        **meta_row(opened.meta),
        "stats": stats_row(stats),
    }


def _entry(entry: DifferingElement) -> Row:
    return {
        "index": list(entry.index),
        "here": nested(np.asarray(entry.here)),
        "there": nested(np.asarray(entry.there)),
        "difference": nested(np.asarray(entry.difference)),
        **row_of(entry, "relative", "ulp"),
    }
