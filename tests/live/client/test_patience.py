"""How long something has to hold until our clients report it, and what excuses it."""

from __future__ import annotations

import numpy as np

from tui_debugger.live.client.judging import EXCUSED, ClientJudge, ConsecutiveSteps
from tui_debugger.live.client.recorded import measure
from tui_debugger.model import Watchpoint, WatchResult
from tui_debugger.stats.records import Record
from tui_debugger.watch.condition_table import validate

NAME = "fc.weight"


def judge(patience: ConsecutiveSteps | None, **params: float) -> ClientJudge:
    watchpoint = Watchpoint(1, "weight_not_changed", validate("weight_not_changed", {"rtol": 0, "atol": 0, **params}))
    made = ClientJudge([(watchpoint, [NAME])])
    made.patience = patience
    return made


def record(changed: bool) -> Record:
    before = np.ones(3, np.float32)
    found = judge(None).need(NAME)
    assert found is not None
    return measure(before + changed, found, before)


def run(made: ClientJudge, steps: str) -> str:
    """What is reported: ``=`` a step without a change, ``~`` one with, ``.`` one in which it is not seen."""
    told = ""
    for step in steps:
        hits: list[WatchResult] = []
        if step != ".":
            hits = made.results(NAME, record(step == "~"))
            assert hits == made.results(NAME, record(step == "~"))  # asked again in the same step, nothing counts twice
        if made.patience is not None:
            made.patience.next_step([] if step == "." else [NAME])
        told += "!" if hits else "-"
    return told


def test_what_is_asked_for_without_steps_in_a_row_is_reported_at_once() -> None:
    assert run(judge(ConsecutiveSteps()), "=~==") == "!-!!"
    assert run(judge(None, in_a_row=3), "===") == "!!!"


def test_it_is_reported_from_so_many_steps_in_a_row_on() -> None:
    assert run(judge(ConsecutiveSteps(), in_a_row=3), "==~=====~===") == "-----!!!---!"


def test_a_step_in_which_it_is_not_seen_neither_counts_nor_ends_the_row() -> None:
    assert run(judge(ConsecutiveSteps(), in_a_row=3), "=.=..==") == "-----!!"


def test_steps_with_an_excuse_count_only_when_there_are_very_many() -> None:
    made = judge(ConsecutiveSteps(lambda *_: True), in_a_row=3)
    assert run(made, "=" * (EXCUSED + 2)) == "-" * (EXCUSED - 1) + "!!!"


def test_a_change_begins_anew() -> None:
    made = judge(ConsecutiveSteps(lambda *_: True), in_a_row=3)
    assert "!" not in run(made, "=" * (EXCUSED - 1) + "~" + "=" * (EXCUSED - 1))


def test_an_excuse_holds_for_what_is_reported_at_once_too() -> None:
    """A gradient scaler left the step out: its Inf is no finding."""
    assert run(judge(ConsecutiveSteps(lambda *_: True)), "==") == "--"
