"""The hits of every condition equal those that MindInsight 2.0.0 recorded on the same dumps.

The old tool resolves what a Watchpoint names to outputs; ours also judges input files that hold what no
output file holds. Beside those extra rows, one documented difference shows on these dumps: see ``tests.old_tool``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.old_tool import CONDITIONS, DUMPS, WRONG
from tests.session.opened import EVERYTHING
from tui_debugger.model import ErrorBits, Hit, Side
from tui_debugger.session import Session
from tui_debugger.sources.registry import open_source

pytestmark = pytest.mark.usefixtures("measured_by")

NOT_COMPARED = {"rtol", "atol", "equal_nan", "epsilon", "range_start_inclusive", "range_end_inclusive"}
Place = tuple[str, int, int]


@pytest.fixture(scope="module")
def sessions(dumps: Callable[[str], Path]) -> Callable[[str], Session]:
    kept: dict[str, Session] = {}

    def make(name: str) -> Session:
        if name not in kept:
            kept[name] = Session(open_source(dumps(name)))
        return kept[name]

    return make


def check(session: Session, key: str, threshold: dict[str, float]) -> list[Hit]:
    session.watchpoints.clear()
    session.watchpoints.add(CONDITIONS[key], threshold, EVERYTHING)
    return list(session.check(session.pairs()).hits)


def old_rows(answers: dict[str, Any]) -> dict[tuple[str, int, int], dict[str, Any]]:
    return {(hit["id"][2], hit["id"][3], hit["id"][4]): hit for hit in answers["hits"]}


@pytest.mark.parametrize("dump", DUMPS)
@pytest.mark.parametrize("key", sorted(CONDITIONS))
def test_output_hits_equal_the_old_tool(
    dump: str, key: str, sessions: Callable[[str], Session], golden: Callable[[str], dict[str, Any]]
) -> None:
    answers = golden(dump)["hits"][key]
    hits = check(sessions(dump), key, answers["threshold"])
    ours = {(h.key.node, h.key.slot, h.key.step): h for h in hits if h.key.side is Side.OUTPUT}
    theirs = old_rows(answers)
    assert len(theirs) == answers["n"]
    wrong: set[Place] = WRONG.get((dump, key), set())
    assert set(theirs) - set(ours) == wrong
    assert set(ours) <= set(theirs)
    for place, hit_row in ours.items():
        old = theirs[place]
        (result,) = hit_row.results
        assert result.error == ErrorBits(old["error_code"]), place
        actual = {p.name: p for p in result.params}
        for name, (value, hit, found) in old["params"].items():
            if name in NOT_COMPARED or old["error_code"]:
                continue
            assert actual[name].hit == hit, (place, name)
            assert math.isclose(float(actual[name].value), value), (place, name)
            value_found = actual[name].actual
            assert value_found is not None
            assert math.isclose(value_found, found, rel_tol=1e-9, abs_tol=rounding(hit_row)), (place, name)


def rounding(hit: Hit) -> float:
    """What a running mean over mixed signs may lose: a few ulps of the largest magnitude in the tensor."""
    stats = hit.stats
    if stats is None or stats.minimum is None or stats.maximum is None:
        return 0.0
    return 1e-15 * max(abs(stats.minimum), abs(stats.maximum))


@pytest.mark.parametrize("dump", DUMPS)
def test_hits_come_in_execution_order(
    dump: str, sessions: Callable[[str], Session], golden: Callable[[str], dict[str, Any]]
) -> None:
    """The old order is by timestamp inside a step; three orders exist and disagree in few places, so the
    order is compared where both agree: operators by the execution-order file, parameters after them."""
    session = sessions(dump)
    hits = check(session, "range_maxmin", golden(dump)["hits"]["range_maxmin"]["threshold"])
    nodes = session.nodes(0)
    for before, after in pairwise(hits):
        assert before.order <= after.order
        if before.key.step == after.key.step and before.row != after.row:
            assert nodes.order[before.row] <= nodes.order[after.row]
