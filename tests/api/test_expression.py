"""``ExpressionCondition``: a condition of one's own in the Python API, which MindInsight's does not have."""

from __future__ import annotations

import importlib
import math

import pytest

from tui_debugger import DumpAnalyzer, ExpressionCondition, Watchpoint, compat
from tui_debugger.demo import demo_dump
from tui_debugger.errors import DebuggerParamTypeError, DebuggerParamValueError
from tui_debugger.model import Verdict


@pytest.fixture(scope="module")
def run() -> DumpAnalyzer:
    return DumpAnalyzer(demo_dump())


def test_it_finds_what_the_statistics_say(run: DumpAnalyzer) -> None:
    """Held against the statistics of every tensor, one by one."""
    tensors = run.select_tensors(".", use_regex=True)
    hits = run.check_watchpoints([Watchpoint(tensors, ExpressionCondition("max > 3*std and zero_pct < 50"))])
    found = {(hit.tensor.node.name, hit.tensor.slot, hit.tensor.iteration) for hit in hits if not hit.error_code}
    expected = set()
    for tensor in tensors:
        if tensor.node.name.startswith("cst"):
            continue  # constants of the graph are never judged
        record = tensor.statistics()
        if record is None or record.nan or record.inf or record.maximum is None or record.variance is None:
            continue
        if record.maximum > 3 * math.sqrt(record.variance) and 100 * record.zero / record.count < 50:
            expected.add((tensor.node.name, tensor.slot, tensor.iteration))
    assert found == expected
    assert expected


def test_the_previous_step_is_that_of_the_same_tensor(run: DumpAnalyzer) -> None:
    tensors = run.select_tensors("head.weight")
    hits = run.check_watchpoints([Watchpoint(tensors, ExpressionCondition("norm != prev.norm"))])
    first, *later = sorted(hits, key=lambda hit: hit.tensor.iteration)
    assert first.verdict is Verdict.NOT_COMPARABLE
    later = [hit for hit in later if not hit.error_code]  # from step 3 on there is NaN
    assert later
    for hit in later:
        detail = hit.get_hit_detail()
        assert detail is not None
        (param,) = detail.params
        assert param.quantities["norm"] != param.quantities["prev.norm"]
        assert "prev.norm = " in str(detail)


def test_what_cannot_be_read_is_refused_with_its_place() -> None:
    with pytest.raises(DebuggerParamValueError, match="no quantity is called 'maxx'") as raised:
        ExpressionCondition("maxx > 1")
    assert raised.value.hint.splitlines()[1] == "^"
    with pytest.raises(DebuggerParamTypeError, match="should be a str"):
        ExpressionCondition(3)  # type: ignore[arg-type]  # that is the test


def test_programs_written_for_mindinsight_do_not_see_it() -> None:
    compat.install()
    try:
        for name in ("mindinsight.debugger", "mindinsight.debugger.api.conditions"):
            assert not hasattr(importlib.import_module(name), "ExpressionCondition")
    finally:
        compat.uninstall()
