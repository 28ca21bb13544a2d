"""Infinities by design: a mask that a softmax absorbs is no finding, an Inf that nobody was told to write always is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.session.opened import watch
from tests.sources.memory import MemorySource, Op
from tui_debugger.causes.by_design_steps import by_design_text
from tui_debugger.causes.by_design_table import OPERATORS
from tui_debugger.causes.table import OriginKind
from tui_debugger.model import Category, Hit, Side, Verdict
from tui_debugger.session import Session

Array = npt.NDArray[Any]
INF = np.float32(np.inf)
rng = np.random.default_rng(0)


class Names(NamedTuple):
    """How a framework calls the operators of an attention."""

    masked_fill: str
    softmax: str
    matmul: str
    log: str
    exp: str


MINDSPORE = Names("MaskedFill", "Softmax", "BatchMatMul", "Log", "Exp")
TORCH = Names("aten::masked_fill.Scalar", "aten::_softmax", "aten::bmm", "aten::log", "aten::exp")
FRAMEWORKS = pytest.mark.parametrize("names", [MINDSPORE, TORCH], ids=["mindspore", "torch"])


def softmax(x: Array) -> Array:
    with np.errstate(all="ignore"):
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        found: Array = (e / e.sum(axis=-1, keepdims=True)).astype(x.dtype)
    return found


def session_of(
    ops: Sequence[Op],
    values: Mapping[str, Array],
    inputs: Mapping[tuple[str, int], Array] | None = None,
    *watches: str,
) -> Session:
    """A session on one step with these outputs, and input files of nodes by slot."""
    tensors: dict[tuple[str, Side, int], Array] = {(name, Side.OUTPUT, 0): value for name, value in values.items()}
    tensors |= {(name, Side.INPUT, slot): value for (name, slot), value in (inputs or {}).items()}
    session = Session(MemorySource({0: {0: tensors}}, ops=ops))
    watch(session, *(watches or ("TO",)))
    return session


def hits_of(session: Session) -> dict[str, Hit]:
    """The hits on outputs by node."""
    return {hit.key.node: hit for hit in session.check(session.pairs()).hits if hit.key.side is Side.OUTPUT}


def findings(session: Session) -> set[str]:
    return {hit.key.node for hit in session.check(session.pairs()).hits if hit.verdict is Verdict.FINDING}


def origins(session: Session) -> list[str]:
    """The marks, which are what the search finds as well."""
    marked = [hit.key.node for hit in session.check(session.pairs()).hits if hit.origin]
    report = session.find_origin(session.pairs())
    assert sorted(origin.node for origin in report.origins) == sorted(marked)
    return marked


def attention(names: Names, scores: Array, mask: Array, *, value: bool = False) -> tuple[list[Op], dict[str, Array]]:
    """Scores, a mask of -Inf, a softmax, and what is made with its weights."""
    ops = [
        Op("x", "Parameter", category=Category.PARAMETER),
        Op("mask", "Parameter", category=Category.PARAMETER),
        Op("qk", names.matmul, [("x", 0)]),
        Op("masked", names.masked_fill, [("qk", 0), ("mask", 0), *([("minus_inf", 0)] if value else [])]),
        Op("softmax", names.softmax, [("masked", 0)], Category.ACTIVATION),
        Op("out", names.matmul, [("softmax", 0), ("x", 0)]),
        *([Op("minus_inf", "Constant", category=Category.CONSTANT)] if value else []),
    ]
    masked = np.where(mask, -INF, scores).astype(np.float32)
    weights = softmax(masked)
    values = {"x": scores, "mask": mask, "qk": scores, "masked": masked, "softmax": weights, "out": weights @ scores}
    return ops, values


@FRAMEWORKS
@pytest.mark.parametrize("value", [False, True])
def test_a_mask_that_a_softmax_absorbs_is_no_finding(names: Names, value: bool) -> None:
    ops, values = attention(names, rng.normal(size=(4, 4)).astype(np.float32), ~np.tri(4, dtype=bool), value=value)
    session = session_of(ops, values)
    result = session.check(session.pairs())
    assert findings(session) == set()
    (hit,) = result.hits
    assert (hit.key.node, hit.verdict, hit.origin) == ("masked", Verdict.BY_DESIGN, False)
    assert [each.verdict for each in hit.results] == [Verdict.BY_DESIGN]
    assert result.coverage.by_design == 1
    assert by_design_text(result.hits) == f"-Inf by design: 1 tensor, absorbed by {names.softmax}"
    report = session.find_origin(session.pairs())
    assert (report.searches, report.origins, report.check.coverage.by_design) == ((), (), 1)


@FRAMEWORKS
def test_a_row_that_is_masked_as_a_whole_starts_at_the_softmax(names: Names) -> None:
    mask = ~np.tri(4, dtype=bool)
    mask[2] = True
    ops, values = attention(names, rng.normal(size=(4, 4)).astype(np.float32), mask)
    session = session_of(ops, values)
    assert origins(session) == ["softmax"]
    assert findings(session) == {"masked", "softmax", "out"}
    (origin,) = session.find_origin(session.pairs()).origins
    assert origin.start is OriginKind.MADE
    assert [feeder.designed for feeder in origin.inputs] == [True]
    from tui_debugger.diagnose.origin.text import why

    assert "its input is -Inf by design in a whole row: in:0" in why(origin, overflow=True)


@pytest.mark.parametrize("sign", [1, -1])
def test_what_nobody_was_told_to_write_is_a_finding_also_where_it_becomes_finite_later(sign: int) -> None:
    """Exp overflows; Minimum, Sigmoid and Softmax make it finite."""
    for absorbing in ("Minimum", "Sigmoid", "Softmax", "aten::clamp"):
        ops = [
            Op("x", "Parameter", category=Category.PARAMETER),
            Op("exp", "Exp", [("x", 0)]),
            Op("view", "aten::view", [("exp", 0)]),
            Op("fine", absorbing, [("view", 0)]),
        ]
        bad = np.array([1, sign * np.inf], np.float32)
        session = session_of(ops, {"x": np.ones(2, np.float32), "exp": bad, "view": bad, "fine": np.ones(2)})
        assert findings(session) == {"exp", "view"}
        assert origins(session) == ["exp"]


def test_a_mask_over_scores_that_overflowed_is_a_finding() -> None:
    """The mask is by design; what it lets through is not."""
    scores = np.array([[1, np.inf], [1, 2]], np.float32)
    ops, values = attention(MINDSPORE, scores, np.array([[False, False], [False, True]]))
    values["softmax"] = values["out"] = np.ones((2, 2), np.float32)
    session = session_of(ops, values)
    assert findings(session) == {"x", "qk", "masked"}
    assert origins(session) == ["x"]


def test_an_additive_mask_passes_through_scaling_and_casts() -> None:
    mask = np.array([[0, -np.inf], [0, 0]], np.float32)
    scores = np.array([[1, 2], [3, 4]], np.float32)
    ops = [
        Op("bias", "Parameter", category=Category.PARAMETER),
        Op("x", "Parameter", category=Category.PARAMETER),
        Op("half", "Cast", [("bias", 0)]),
        Op("scaled", "Mul", [("x", 0), ("x", 0)]),
        Op("wide", "BroadcastTo", [("half", 0)]),
        Op("sum", "Add", [("scaled", 0), ("wide", 0)]),
        Op("softmax", "Softmax", [("sum", 0)]),
    ]
    wide = np.broadcast_to(mask.astype(np.float16), (3, 2, 2)).copy()
    values = {
        "bias": mask,
        "x": scores,
        "half": mask.astype(np.float16),
        "scaled": scores * scores,
        "wide": wide,
        "sum": (scores * scores + wide).astype(np.float32),
    }
    session = session_of(ops, {**values, "softmax": softmax(values["sum"])})
    assert findings(session) == set()
    assert session.check(session.pairs()).coverage.by_design == 4
    overflow = values["sum"].copy()
    overflow[0, 1, 0] = np.inf  # the sum of finite numbers
    session = session_of(ops, {**values, "sum": overflow, "softmax": softmax(values["sum"])})
    assert findings(session) == {"bias", "half", "wide", "sum"}
    assert origins(session) == ["sum"]


def test_plus_inf_in_the_data_is_a_fault_of_the_data() -> None:
    ops = [Op("x", "Parameter", category=Category.PARAMETER), Op("fine", "Sigmoid", [("x", 0)])]
    session = session_of(ops, {"x": np.array([1, np.inf], np.float32), "fine": np.ones(2, np.float32)})
    assert findings(session) == {"x"}
    assert origins(session) == ["x"]


DATA_READERS = (
    ["Relu"],
    ["Softmax"],
    ["Minimum"],
    ["SGD"],
    ["Add", "Relu"],
    ["Mul", "Softmax"],
    ["Reshape", "Sigmoid"],
)


@pytest.mark.parametrize("types", DATA_READERS, ids=".".join)
def test_minus_inf_in_data_that_is_no_mask_is_a_fault_of_the_data(types: list[str]) -> None:
    """A learning rate, and what an activation makes finite: only what is added before a softmax is a mask."""
    bad = np.array([1, -np.inf], np.float32)
    ops, values, before = [Op("x", "Parameter", category=Category.PARAMETER)], {"x": bad}, "x"
    for kind in types:
        ops.append(Op(kind, kind, [(before, 0), ("weight", 0)]))
        values[kind], before = bad, kind
    values[before] = np.ones(2, np.float32)
    ops.append(Op("weight", "Parameter", category=Category.WEIGHT))
    session = session_of(ops, {**values, "weight": np.ones(2, np.float32)})
    assert "x" in findings(session)
    assert origins(session) == ["x"]


def test_a_mask_may_be_added_in_front_of_a_softmax_of_several_operators() -> None:
    mask = np.array([[0, -np.inf], [0, 0]], np.float32)
    peak = np.zeros((2, 1), np.float32)
    ops = [
        Op("mask", "Parameter", category=Category.PARAMETER),
        Op("x", "Parameter", category=Category.PARAMETER),
        Op("sum", "Add", [("x", 0), ("mask", 0)]),
        Op("peak", "ReduceMax", [("sum", 0)]),
        Op("centred", "Sub", [("sum", 0), ("peak", 0)]),
        Op("exp", "Exp", [("centred", 0)]),
    ]
    values = {"mask": mask, "x": np.zeros((2, 2), np.float32), "sum": mask, "peak": peak, "centred": mask}
    assert findings(session_of(ops, {**values, "exp": np.exp(mask)})) == set()


def test_the_copies_of_one_constant_hold_the_same() -> None:
    """A copy that says Inf where another copy, or another step, does not was never told."""
    ops = [
        Op("x", "Parameter", category=Category.PARAMETER),
        Op("limit", "Constant", category=Category.CONSTANT),
        Op("above", "Greater", [("x", 0), ("limit", 0)]),
        Op("below", "Less", [("x", 0), ("limit", 0)]),
    ]

    def step(above: float, below: float) -> dict[tuple[str, Side, int], Array]:
        made = {("x", Side.OUTPUT, 0): np.ones(2, np.float32)}
        for name, limit in (("above", above), ("below", below)):
            made[name, Side.INPUT, 1] = np.float32([limit])
            made[name, Side.OUTPUT, 0] = np.ones(2, np.float32)
        return made

    def bad(*steps: dict[tuple[str, Side, int], Array]) -> set[tuple[str, int]]:
        session = Session(MemorySource({0: dict(enumerate(steps))}, ops=ops))
        watch(session, "TO")
        hits = session.check(session.pairs()).hits
        return {(hit.key.node, hit.key.step) for hit in hits if hit.verdict is Verdict.FINDING}

    assert bad(step(np.inf, np.inf), step(np.inf, np.inf)) == set()
    assert bad(step(np.inf, 1)) == {("above", 0)}
    assert bad(step(1, np.inf)) == {("below", 0)}
    assert bad(step(1, 1), step(-np.inf, -np.inf)) == {("above", 1)}, "the other one is a copy of it"


def test_a_fill_that_was_told_to_write_inf_and_did_not_absorbs_nothing() -> None:
    ops = [
        Op("shape", "Parameter", category=Category.PARAMETER),
        Op("value", "Constant", category=Category.CONSTANT),
        Op("filled", "FillV2", [("shape", 0), ("value", 0)]),
    ]
    values = {"shape": np.ones(1, np.int32), "filled": np.zeros(3, np.float32)}
    assert findings(session_of(ops, values, {("filled", 1): np.full(1, INF)})) == {"filled"}


def test_what_an_operator_made_that_was_not_dumped_is_not_told() -> None:
    ops = [
        Op("x", "Parameter", category=Category.PARAMETER),
        Op("exp", "Exp", [("x", 0)]),
        Op("chosen", "Select", [("x", 0), ("x", 0), ("exp", 0)]),
        Op("fine", "Minimum", [("chosen", 0)]),
    ]
    ones = np.ones(2, np.float32)
    assert findings(session_of(ops, {"x": ones, "chosen": np.array([1, INF]), "fine": ones})) == {"chosen"}


@pytest.mark.parametrize("moved", [[1, np.inf], [-np.inf, -np.inf]])
def test_what_moves_a_mask_adds_no_inf(moved: list[float]) -> None:
    ops = [
        Op("x", "Parameter", category=Category.PARAMETER),
        Op("masked", "MaskedFill", [("x", 0), ("nobody", 0), ("nobody", 0)]),
        Op("moved", "Transpose", [("masked", 0)]),
        Op("softmax", "Softmax", [("moved", 0)]),
    ]
    ones = np.ones(2, np.float32)
    values = {"x": ones, "masked": np.array([1, -INF]), "moved": np.array(moved, np.float32), "softmax": ones}
    assert "moved" in findings(session_of(ops, values))
    assert findings(session_of(ops, {**values, "moved": np.array([-INF, 1])})) == set()


def test_weights_and_states_are_never_masks() -> None:
    ops = [Op("w", "Parameter", category=Category.WEIGHT), Op("fine", "Softmax", [("w", 0)])]
    session = session_of(ops, {"w": np.array([1, -np.inf], np.float32), "fine": np.ones(2, np.float32)})
    assert findings(session) == {"w"}


def test_consumers_that_nobody_knows_absorb_nothing() -> None:
    ops, values = attention(MINDSPORE, np.ones((4, 4), np.float32), ~np.tri(4, dtype=bool))
    del values["softmax"], values["out"]
    session = session_of(ops, values)
    assert findings(session) == {"masked"}
    assert origins(session) == []
    first = session.find_origin(session.pairs()).searches[0].first
    assert first is not None
    assert (first.node, first.start) == ("masked", OriginKind.DESIGNED)


def test_one_consumer_that_is_bad_or_unknown_is_enough() -> None:
    ops, values = attention(MINDSPORE, np.ones((4, 4), np.float32), ~np.tri(4, dtype=bool))
    ops.append(Op("log", "Log", [("masked", 0)]))
    assert findings(session_of(ops, values)) == {"masked"}
    bad = session_of(ops, {**values, "log": np.full((4, 4), np.nan, np.float32)})
    assert findings(bad) == {"masked", "log"}
    assert origins(bad) == ["log"]
    # A logarithm cannot have made it finite: something is wrong there.
    assert findings(session_of(ops, {**values, "log": np.ones((4, 4), np.float32)})) == {"masked"}
    ops[-1] = Op("log", "Sigmoid", [("masked", 0)])
    assert findings(session_of(ops, {**values, "log": np.ones((4, 4), np.float32)})) == set()


@pytest.mark.parametrize("writing", ["FillV2", "Full", "aten::full", "aten::full_like", "ConstantPadNd", "Select"])
def test_what_writes_without_a_dumped_operand_is_taken_by_its_type(writing: str) -> None:
    ops = [
        Op("x", "Parameter", category=Category.PARAMETER),
        Op("filled", writing, [("x", 0), ("never dumped", 0)]),
        Op("triu", "Triu", [("filled", 0)]),
        Op("softmax", "Softmax", [("triu", 0)]),
    ]
    filled = np.full((3, 3), -np.inf, np.float32)
    triu = np.where(np.tri(3, k=0, dtype=bool), np.float32(0), filled).astype(np.float32)
    values = {"x": np.ones(2, np.float32), "filled": filled, "triu": triu, "softmax": softmax(triu)}
    session = session_of(ops, values)
    assert findings(session) == set()
    assert session.check(session.pairs()).coverage.by_design == 2


def test_an_operand_that_is_finite_writes_no_inf() -> None:
    ops = [
        Op("x", "Parameter", category=Category.PARAMETER),
        Op("value", "Parameter", category=Category.PARAMETER),
        Op("filled", "FillV2", [("x", 0), ("value", 0)]),
        Op("softmax", "Softmax", [("filled", 0)]),
    ]
    filled = np.array([0, -np.inf], np.float32)
    values = {
        "x": np.ones(1, np.int32),
        "value": np.array(-1e4, np.float32),
        "filled": filled,
        "softmax": softmax(filled),
    }
    assert findings(session_of(ops, values)) == {"filled"}
    values["value"] = np.array(-np.inf, np.float32)
    assert findings(session_of(ops, values)) == set()


def test_torchs_select_is_an_index_and_writes_nothing() -> None:
    ops = [
        Op("x", "Parameter", category=Category.PARAMETER),
        Op("exp", "aten::exp", [("x", 0)]),
        Op("row", "aten::select.int", [("exp", 0)]),
        Op("softmax", "aten::_softmax", [("row", 0)]),
    ]
    bad = np.array([1, -np.inf], np.float32)
    values = {"x": np.ones(2, np.float32), "exp": bad, "row": bad, "softmax": np.ones(2, np.float32)}
    assert findings(session_of(ops, values)) == {"exp", "row"}
    del values["exp"]
    assert findings(session_of(ops, values)) == {"row"}


def test_input_files_are_judged_as_the_mask_that_they_hold() -> None:
    ops, values = attention(MINDSPORE, np.ones((4, 4), np.float32), ~np.tri(4, dtype=bool))
    inputs = {("softmax", 0): values["masked"], ("masked", 0): values["qk"], ("out", 0): values["softmax"]}
    assert findings(session_of(ops, values, inputs)) == set()
    del values["masked"]  # only its consumer saw it
    assert findings(session_of(ops, values, inputs)) == set()
    changed = values["qk"].copy()
    changed[0, 0] = np.inf
    assert findings(session_of(ops, {**values, "masked": values["qk"]}, {("softmax", 0): changed})) == {"softmax"}


def test_a_mask_of_an_earlier_run_of_the_step_is_no_origin() -> None:
    """The newest run masked nothing: that says nothing about the one before."""
    ops, values = attention(MINDSPORE, np.ones((4, 4), np.float32), ~np.tri(4, dtype=bool))
    _, later = attention(MINDSPORE, np.ones((4, 4), np.float32), np.zeros((4, 4), bool))
    del values["softmax"], values["out"], later["softmax"], later["out"]
    runs = {(name, Side.OUTPUT, 0, number): of[name] for number, of in ((1, values), (2, later)) for name in of}
    session = Session(MemorySource({0: {0: runs}}, ops=ops))
    watch(session, "TO")
    (hit,) = session.check(session.pairs()).hits
    assert (hit.key.node, hit.key.round, hit.verdict, hit.origin) == ("masked", 1, Verdict.FINDING, False)


def test_a_watchpoint_on_the_mask_alone_knows_its_neighbours() -> None:
    ops, values = attention(MINDSPORE, np.ones((4, 4), np.float32), ~np.tri(4, dtype=bool))
    session = session_of(ops, values, None, "TO @ type=MaskedFill", "TL max_gt=5 @ type=MaskedFill")
    (hit,) = session.check(session.pairs()).hits
    assert hit.verdict is Verdict.BY_DESIGN


KINDS = ("Exp", "Log", "MatMul", "RealDiv", "aten::pow", "Reciprocal", "Square", "aten::exp", "Sigmoid", "ReduceSum")


@given(data=st.data())
def test_masks_are_never_findings_and_other_infinities_always_are(data: st.DataObject) -> None:
    """Nets of random layers: each masks and absorbs, or makes an Inf of its own that a later layer makes finite."""
    ops = [Op("x", "Parameter", category=Category.PARAMETER)]
    values: dict[str, Array] = {"x": np.ones((3, 3), np.float32)}
    before, made = "x", set()
    for layer in range(data.draw(st.integers(1, 4))):
        sign = data.draw(st.sampled_from([-INF, INF]))
        bad = np.where(np.tri(3, dtype=bool), np.float32(1), sign).astype(np.float32)
        names = [f"{layer}.{part}" for part in ("first", "view", "last")]
        if data.draw(st.booleans()):
            kind = data.draw(st.sampled_from(["MaskedFill", "aten::masked_fill_", "Select", "aten::where.self"]))
        else:
            kind = data.draw(st.sampled_from(KINDS))
            made |= {names[0], names[1]}
        moving = data.draw(st.sampled_from(["Reshape", "aten::view", "Transpose", "Cast", "aten::clone"]))
        last = data.draw(st.sampled_from(["Softmax", "aten::_softmax", "Sigmoid", "Minimum"]))
        if kind in {"Select", "aten::where.self"} and "oftmax" not in last:
            made |= {names[0], names[1]}  # what it selects from is not known: it may be data
        ops += [
            Op(names[0], kind, [(before, 0), ("nobody", 0), ("nobody", 0)]),
            Op(names[1], moving, [(names[0], 0)]),
            Op(names[2], last, [(names[1], 0)]),
        ]
        values |= {names[0]: bad, names[1]: bad, names[2]: np.ones((3, 3), np.float32)}
        before = names[2]
    session = session_of(ops, values)
    assert findings(session) == made
    assert all(
        hit.verdict is Verdict.BY_DESIGN for hit in session.check(session.pairs()).hits if hit.key.node not in made
    )
    assert not {hit.key.node for hit in session.check(session.pairs()).hits if hit.origin} - made


def test_the_table_has_plain_names_only() -> None:
    from tui_debugger.graph.categories import plain_type

    assert all(plain_type(name) == name for name in OPERATORS)


@pytest.mark.parametrize(
    ("reader", "absorbed"), [("Softmax", True), ("ReLU", False), ("Momentum", False), ("Mul", False)]
)
def test_an_input_of_the_graph_is_a_mask_only_where_a_softmax_weighs_with_it(reader: str, absorbed: bool) -> None:
    """-Inf in data, or in a learning rate, is a fault, whatever makes it finite again."""
    ops = [
        Op("mask", "Parameter", category=Category.PARAMETER),
        Op("scores", "MatMul", category=Category.OTHER),
        Op("sum", "Add", [("scores", 0), ("mask", 0)]),
        Op("out", reader, [("sum", 0)]),
    ]
    mask = np.where(np.tri(3, dtype=bool), np.float32(0), -INF).astype(np.float32)
    values = {"mask": mask, "scores": np.zeros((3, 3), np.float32), "sum": mask, "out": np.ones((3, 3), np.float32)}
    assert findings(session_of(ops, values)) == (set() if absorbed else {"mask", "sum"})
