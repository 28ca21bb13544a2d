"""The hit list in columns: its filter, its search and its rows, against a walk over hits one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.session.opened import EVERYTHING
from tests.sources.memory import MemorySource, Op
from tui_debugger.check.hits import HitList, is_overflow
from tui_debugger.model import Hit, Side, Verdict
from tui_debugger.session import Session
from tui_debugger.session.session import open_dump
from tui_debugger.tui.panes.hit_rows import HitFilter, HitOrder, HitRows, abbreviation_text, found_in
from tui_debugger.tui.widgets.text import SearchPattern


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
    return HitRows(hits, chosen.mask(hits, None).nonzero()[0], many_ranks=False)


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


@pytest.mark.covering
@pytest.mark.parametrize(
    "text", ["log", "TO", "op3", "e-op", "-op38 ", "weight wcl", "~Log|Div", "~^Default.*TO$", "zz"]
)
def test_a_search_finds_what_stands_in_name_and_abbreviations(hits: HitList, text: str) -> None:
    pattern = SearchPattern.of(text)
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


# -- several ranks ---------------------------------------------------------------------------------

OPS = [Op(f"Default/{scope}/{name}", name.partition("-")[0], path=f"Default/{scope}/{name}") for scope, name in (
    ("a-Net", "Mul-op10"), ("a-Net", "Add-op9"), ("ab-Net", "Log-op2"), ("a-Net", "add-op100"), ("b-Net", "Exp-op1"),
)]  # fmt: skip
SHAPES = [(2,), (3, 3), (4,), (1,), (2, 2)]
KINDS = {"clean": 0.0, "large": 9.0, "NaN": np.nan, "Inf": np.inf}
RUNS = st.dictionaries(
    st.tuples(st.integers(0, 3), st.integers(0, 1)),
    st.lists(st.sampled_from(list(KINDS)), min_size=len(OPS), max_size=len(OPS)),
    min_size=1,
)
"""(rank, step) → what each node put out."""


def checked(values: dict[tuple[int, int], list[str]], *, overflow: bool = True) -> HitList:
    """The hits of a run in memory: a watchpoint for large values, and one for NaN and Inf where it is asked for."""
    steps: dict[int, dict[int, dict[tuple[str, Side, int], np.ndarray]]] = {}
    for (rank, step), kinds in values.items():
        made = zip(OPS, SHAPES, kinds, strict=True)
        steps.setdefault(rank, {})[step] = {
            (op.name, Side.OUTPUT, 0): np.full(shape, KINDS[kind], np.float32) for op, shape, kind in made
        }
    session = Session(MemorySource(steps, ops=OPS))
    session.open()
    session.watchpoints.add("tensor_too_large", (("max_gt", 5.0),), EVERYTHING)
    if overflow:
        session.watchpoints.add("tensor_overflow", (), EVERYTHING)
    try:
        return session.check(session.pairs()).hits
    finally:
        session.close()


def list_of(hits: HitList, chosen: HitFilter | None = None, **options: object) -> HitRows:
    chosen = chosen or HitFilter()
    kept = chosen.mask(hits, 0).nonzero()[0]
    return HitRows(hits, kept, True, watchpoints=chosen.watchpoints, **options)  # type: ignore[arg-type] # as they come


def says(hit: Hit) -> object:
    """What the row of a hit says, the rank aside."""
    verdicts = tuple(sorted((result.watchpoint, result.verdict) for result in hit.results))
    return hit.key.step, hit.key.node, hit.key.side, hit.key.slot, hit.key.round, hit.origin, verdicts


def tensors(rows: HitRows) -> list[list[int]]:
    """The ranks of each row that is no heading."""
    return [rows.ranks(row) for row in range(rows.row_count) if rows.hit(row) is not None]


@given(RUNS, st.integers(0, 3), st.booleans(), st.sampled_from(HitOrder), st.sampled_from([(), (1,), (2,)]))
def test_a_row_stands_for_all_ranks_on_which_the_same_was_found(
    values: dict[tuple[int, int], list[str]], rank: int, overflow: bool, order: HitOrder, watchpoints: tuple[int, ...]
) -> None:
    hits = checked(values, overflow=overflow)
    chosen = HitFilter(watchpoints=frozenset(watchpoints))
    rows = list_of(hits, chosen, rank=rank, order=order)
    expected: dict[object, list[Hit]] = {}
    for hit in hits:
        if not watchpoints or {result.watchpoint for result in hit.results} & set(watchpoints):
            expected.setdefault(says(hit), []).append(hit)
    found: dict[object, list[int]] = {}
    for row in range(rows.row_count):
        hit = rows.hit(row)
        if hit is not None:
            found[says(hit)] = rows.ranks(row)
            ranks = rows.ranks(row)
            assert hit.key.rank == (rank if rank in ranks else ranks[0]), "of the rank that is shown, else the first"
            assert rows.find(hit.key) == rows.find(rows.key(row)) == row
    assert found == {key: [hit.key.rank for hit in each] for key, each in expected.items()}
    assert rows.tensors == len(expected)
    stops = []
    for row in range(rows.row_count):
        hit = rows.hit(row)
        if hit is not None and (by_watchpoint(hit, watchpoints) if watchpoints else hit.verdict is Verdict.FINDING):
            stops.append(row)
    assert rows.findings.tolist() == stops


def by_watchpoint(hit: Hit, watchpoints: tuple[int, ...]) -> bool:
    return any(each.verdict is Verdict.FINDING and each.watchpoint in watchpoints for each in hit.results)


@given(RUNS, st.booleans(), st.sampled_from([(), (1,), (2,)]))
def test_what_nan_kept_from_being_judged_stands_at_the_end_and_is_no_finding_of_that_watchpoint(
    values: dict[tuple[int, int], list[str]], overflow: bool, watchpoints: tuple[int, ...]
) -> None:
    hits = checked(values, overflow=overflow)
    for order in HitOrder:
        rows = list_of(hits, HitFilter(watchpoints=frozenset(watchpoints)), order=order)
        headings = [row for row in range(rows.row_count) if rows.hit(row) is None]
        assert len(headings) <= 1
        end = headings[0] if headings else rows.row_count
        apart = 0
        for row in range(rows.row_count):
            hit = rows.hit(row)
            if hit is None:
                continue
            verdicts = {each.verdict for each in hit.results if not watchpoints or each.watchpoint in watchpoints}
            blocked = Verdict.BLOCKED in verdicts and Verdict.FINDING not in verdicts
            expected = blocked and (bool(watchpoints) or not hit.origin)
            assert (row > end) == expected
            apart += expected * len(rows.ranks(row))
            if watchpoints and expected:
                assert row not in rows.findings
        assert rows.not_judged == apart
        if headings:
            assert f"kept {apart} tensor" in str(rows.cells(end)[1])


def before(order: HitOrder, hit: Hit) -> object:
    """What decides where a hit stands, written for one hit."""
    if order is HitOrder.SEVERITY:
        if hit.verdict is not Verdict.FINDING:
            return 3
        return 0 if hit.origin else 1 if is_overflow(hit) else 2
    if order is HitOrder.SIZE:
        return -hit.stats.count if hit.stats is not None else 0
    names = ["Default/a-Net/Add-op9", "Default/a-Net/add-op100", "Default/b-Net/Exp-op1", "Default/ab-Net/Log-op2"]
    return ([*names, "Default/a-Net/Mul-op10"].index(hit.key.node)) if order is HitOrder.NAME else 0


@given(RUNS, st.sampled_from(HitOrder))
def test_rows_are_sorted_and_equal_ones_stay_in_the_order_of_execution(
    values: dict[tuple[int, int], list[str]], order: HitOrder
) -> None:
    hits = checked(values)
    rows = list_of(hits, order=order)
    found = [hit for row in range(rows.row_count) if (hit := rows.hit(row)) is not None]
    plain = list_of(hits)
    usual = [hit for row in range(plain.row_count) if (hit := plain.hit(row)) is not None]
    assert [hit.key for hit in found] == [hit.key for hit in sorted(usual, key=lambda hit: before(order, hit))]  # type: ignore[arg-type,return-value] # numbers
    for stops in (rows.findings.tolist(), rows.origins.tolist()):
        assert stops == sorted(stops), "n walks the list from above to below"


@given(RUNS, st.sampled_from(HitOrder), st.data())
def test_a_row_unfolds_to_its_ranks(
    values: dict[tuple[int, int], list[str]], order: HitOrder, data: st.DataObject
) -> None:
    hits = checked(values)
    folded = list_of(hits, order=order)
    several = folded.folders()
    unfolded = data.draw(st.none() | st.sets(st.sampled_from(several)) if several else st.none())
    rows = list_of(hits, order=order, unfolded=unfolded)
    expected = []
    for row in range(folded.row_count):
        ranks = folded.ranks(row)
        expected.append(ranks)
        if len(ranks) > 1 and (unfolded is None or folded.folder(row) in unfolded):
            expected += [[rank] for rank in ranks]
    assert [rows.ranks(row) for row in range(rows.row_count)] == expected
    keys = [rows.key(row) for row in range(rows.row_count)]
    assert len(set(keys)) == len(keys)
    assert [rows.find(key) for key in keys] == list(range(rows.row_count))
    assert [rows.folder(row) for row in rows.findings] == [folded.folder(row) for row in folded.findings]


@given(RUNS)
def test_origins_step_and_scope_filter(values: dict[tuple[int, int], list[str]]) -> None:
    hits = checked(values)

    def kept(chosen: HitFilter, step: int | None = 0) -> list[Hit]:
        return [hits[int(at)] for at in chosen.mask(hits, step).nonzero()[0]]

    assert kept(HitFilter(origins=True)) == [hit for hit in hits if hit.origin]
    for step in (0, 1, None):
        assert kept(HitFilter(here=True), step) == [hit for hit in hits if hit.key.step == step]
    for scope in ("Default", "Default/a-Net", "Default/ab-Net", "Default/a-Net/Mul-op10", "Default/a"):
        assert kept(HitFilter(scope=scope)) == [hit for hit in hits if f"{hit.key.node}/".startswith(f"{scope}/")]


def test_every_count_is_one_count() -> None:
    values = {(rank, 0): ["clean", "NaN", "large", "large", "clean"] for rank in range(3)}
    hits = checked(values, overflow=False)
    assert hits.findings == int(hits.found().sum()) == 9
    assert int(hits.found({1}).sum()) == 6, "NaN is a finding of the run, and none of the watchpoint that it blocks"
    assert int(hits.not_judged({1}).sum()) == 3
    assert tensors(list_of(hits)) == [[0, 1, 2]] * 3
