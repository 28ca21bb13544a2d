"""The hit list in columns: its filter, its search and its rows, against a walk over hits one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tui_debugger.check.hits import HitList
from tui_debugger.model import Verdict
from tui_debugger.session.opening import open_dump
from tui_debugger.tui.panes.hit_rows import HitFilter, HitRows, abbreviation_text, found_in
from tui_debugger.tui.widgets.text import Pattern


@pytest.fixture(params=["mindspore-2.0-nan", "mindspore-2.10-mlp"])
def hits(request: pytest.FixtureRequest, dumps: Callable[[str], Path]) -> HitList:
    """All hits of the recommended watchpoints in all steps."""
    session = open_dump(dumps(request.param), remember=False)
    session.open()
    session.add_recommended()
    try:
        return session.check(session.pairs()).hits
    finally:
        session.close()


def rows_of(hits: HitList, chosen: HitFilter) -> HitRows:
    return HitRows(hits, chosen.mask(hits, (0, None)).nonzero()[0], many_ranks=False)


@pytest.mark.parametrize("quiet", [False, True])
def test_a_filter_keeps_what_all_its_parts_keep(hits: HitList, quiet: bool) -> None:
    numbers = {result.watchpoint for hit in hits for result in hit.results}
    graphs = {hit.key.graph for hit in hits}
    for watchpoints in (set(), {min(numbers)}, {max(numbers)}, {min(numbers), max(numbers)}, {999}):
        for names in (set(), graphs, {"elsewhere"}):
            for ranks in (set(), {0}, {7}):
                chosen = HitFilter(frozenset(watchpoints), frozenset(names), frozenset(ranks), quiet)
                kept = [
                    hit
                    for hit in hits
                    if (quiet or hit.verdict is not Verdict.NOT_COMPARABLE)
                    and (not watchpoints or watchpoints & {result.watchpoint for result in hit.results})
                    and (not names or hit.key.graph in names)
                    and (not ranks or hit.key.rank in ranks)
                ]
                rows = rows_of(hits, chosen)
                assert [rows.hit(index) for index in range(rows.row_count)] == kept


@pytest.mark.parametrize(
    "text", ["log", "TO", "op3", "e-op", "-op38 ", "weight wcl", "~Log|Div", "~^Default.*TO$", "zz"]
)
def test_a_search_finds_what_stands_in_name_and_abbreviations(hits: HitList, text: str) -> None:
    pattern = Pattern.of(text)
    assert pattern is not None
    expected = [pattern.test(f"{hit.key.node} {abbreviation_text(hit).plain}") for hit in hits]
    assert found_in(hits, pattern.test).tolist() == expected


def test_a_search_in_nothing_finds_nothing() -> None:
    assert found_in(HitList(), lambda _: True).tolist() == []


def test_rows_are_found_by_their_tensor_and_only_when_shown(hits: HitList) -> None:
    rows, everything = rows_of(hits, HitFilter()), rows_of(hits, HitFilter(quiet=True))
    shown = {rows.key(index): index for index in range(rows.row_count)}
    for index in range(everything.row_count):
        key = everything.key(index)
        assert everything.find(key) == index
        assert rows.find(key) == shown.get(key, -1)
    assert rows.find("no tensor") == -1


def test_the_stops_of_n_and_o_are_the_findings_and_the_origins(hits: HitList) -> None:
    rows = rows_of(hits, HitFilter(quiet=True))
    all_rows = range(rows.row_count)
    assert rows.findings.tolist() == [i for i in all_rows if rows.hit(i).verdict is Verdict.FINDING]
    assert rows.origins.tolist() == [i for i in all_rows if rows.hit(i).origin]
