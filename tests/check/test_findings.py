"""What the recommended watchpoints say about the real dumps, and where they say it started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.linked import linked, own
from tests.session.opened import EVERYTHING
from tui_debugger.model import Category, ErrorBits, Hit, NodeKind, NodeSelection, NodeSelector, Side, Verdict
from tui_debugger.session import Session
from tui_debugger.sources.registry import open_source

NAN_DUMPS = ["mindspore-2.0-nan", "mindspore-2.10-nan"]
MLP_DUMPS = ["mindspore-2.0-mlp", "mindspore-2.10-mlp"]


def recommended(path: Path) -> Session:
    session = Session(open_source(path))
    session.open()
    session.add_recommended()
    return session


def findings(session: Session, step: int) -> list[Hit]:
    return [h for h in session.check(session.pairs(steps=(step,))).hits if h.verdict is Verdict.FINDING]


def last(hit: Hit) -> str:
    """Last component without the operator's number, which differs between generations."""
    return hit.key.node.rpartition("/")[2].rpartition("-op")[0]


@pytest.mark.parametrize("dump", NAN_DUMPS)
def test_steps_before_the_fault_are_silent(dump: str, dumps: Callable[[str], Path]) -> None:
    session = recommended(dumps(dump))
    for step in (0, 1, 2):
        assert [(h.key.node, h.results) for h in findings(session, step)] == []


@pytest.mark.parametrize("dump", NAN_DUMPS)
def test_step_3_starts_with_the_logarithm_and_the_division(dump: str, dumps: Callable[[str], Path]) -> None:
    hits = findings(recommended(dumps(dump)), 3)
    assert [last(hit) for hit in hits[:4]] == ["Log", "ReduceSum", "Mul", "Div"]
    origins = [hit for hit in hits if hit.origin]
    assert [last(hit) for hit in origins] == ["Log", "Div"]
    assert "norm-RowNorm" in origins[1].key.node


@pytest.mark.parametrize("dump", NAN_DUMPS)
def test_bad_values_that_come_from_the_step_before_have_no_origin(dump: str, dumps: Callable[[str], Path]) -> None:
    session = recommended(dumps(dump))
    for step in (4, 5):
        hits = findings(session, step)
        assert hits
        assert not any(hit.origin for hit in hits)


@pytest.mark.parametrize("dump", MLP_DUMPS)
def test_the_healthy_net_shows_what_does_not_learn(dump: str, dumps: Callable[[str], Path]) -> None:
    session = recommended(dumps(dump))
    nodes = session.nodes(0)
    result = session.check(session.pairs())
    named = {hit.key.node for hit in result.hits if hit.verdict is Verdict.FINDING}
    assert {"fc2.weight", "fc3.weight"} <= named
    dead = "act3" if dump.endswith("2.10-mlp") else "act3-ReLU"
    assert any(dead in name for name in named)
    states = {name for name in named if nodes.category_of(nodes.find(name)) is Category.OPTIMIZER_STATE}
    assert states == set()
    unchanged = {
        hit.key.node
        for hit in result.hits
        for r in hit.results
        if r.condition == "weight_not_changed" and r.verdict is Verdict.FINDING and not r.error
    }
    assert {name for name in unchanged if name.endswith("weight")} == {"fc2.weight", "fc3.weight"}


@pytest.mark.parametrize("dump", [*NAN_DUMPS, *MLP_DUMPS])
def test_every_verdict_states_its_coverage(dump: str, dumps: Callable[[str], Path]) -> None:
    session = recommended(dumps(dump))
    result = session.check(session.pairs(steps=(1,)))
    table = session.source.tensors(0, 1)
    assert result.coverage.checked + result.coverage.unreadable + result.coverage.skipped == len(table)
    assert result.coverage.unreadable == 0
    assert result.coverage.checked > 0


@pytest.fixture
def damaged(dumps: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of a healthy dump that a test may damage."""
    target = tmp_path / "dump"
    return linked(dumps("mindspore-2.10-mlp"), target)


def plant(root: Path, pattern: str, value: float) -> Path:
    (path,) = root.glob(pattern)
    values = np.load(path).copy()
    values.reshape(-1)[values.size // 2] = value
    own(path)
    np.save(path, values)
    return path


def overflow(root: Path, step: int) -> list[Hit]:
    session = Session(open_source(root))
    session.watchpoints.add("tensor_overflow", (), EVERYTHING)
    return list(session.check(session.pairs(steps=(step,))).hits)


def test_nan_in_an_output_file_is_found(damaged: Path) -> None:
    plant(damaged, "rank_0/MLP/0/2/BiasAdd.*fc1-Dense_BiasAdd-op0.*.output.0.*", np.nan)
    hits = overflow(damaged, 2)
    assert [(hit.key.side, hit.key.slot, hit.origin) for hit in hits] == [(Side.OUTPUT, 0, True)]


def test_inf_in_an_input_file_is_found_although_its_producer_is_clean(damaged: Path) -> None:
    plant(damaged, "rank_0/MLP/0/2/BiasAdd.*fc1-Dense_BiasAdd-op0.*.input.0.*", np.inf)
    hits = overflow(damaged, 2)
    assert [(hit.key.side, hit.key.slot) for hit in hits] == [(Side.INPUT, 0)]


def test_nan_in_the_initial_weights_is_found_in_the_input_of_their_first_consumer(damaged: Path) -> None:
    plant(damaged, "rank_0/MLP/0/0/MatMul.*fc1-Dense_MatMul-op0.*.input.1.*", np.nan)
    hits = overflow(damaged, 0)
    assert [(hit.key.side, hit.key.slot, hit.origin) for hit in hits] == [(Side.INPUT, 1, True)]


def test_a_truncated_file_cannot_be_judged_and_is_counted(damaged: Path) -> None:
    (path,) = damaged.glob("rank_0/MLP/0/2/BiasAdd.*fc1-Dense_BiasAdd-op0.*.output.0.*")
    own(path)
    path.write_bytes(path.read_bytes()[:-4])
    session = Session(open_source(damaged))
    session.watchpoints.add("tensor_overflow", (), EVERYTHING)
    result = session.check(session.pairs(steps=(2,)))
    assert result.coverage.unreadable == 1
    (hit,) = result.hits
    assert hit.verdict is Verdict.CANNOT_JUDGE
    assert hit.results[0].error is ErrorBits.UNREADABLE
    assert hit.detail


def test_initial_weights_are_judged_on_what_the_first_step_was_fed_with(damaged: Path) -> None:
    for path in damaged.glob("rank_0/MLP/0/0/MatMul.*fc1-Dense_MatMul-op0.*.input.1.*"):
        own(path)
        np.save(path, np.zeros_like(np.load(path)))
    session = Session(open_source(damaged))
    only = NodeSelection((NodeSelector(NodeKind.NODE, "fc1.weight"),))
    session.watchpoints.add("weight_initialization", {"zero_percentage_ge": 100.0}, only)
    hits = {step: session.check(session.pairs(steps=(step,))).hits for step in (0, 1)}
    assert [(hit.key.node.rpartition("/")[2], hit.key.side) for hit in hits[0]] == [("MatMul-op0", Side.INPUT)]
    assert hits[1] == ()
