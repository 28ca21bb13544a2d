"""Which node of one run is which of another: names that versions spell differently, calls that one run leaves out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.session.opened import opened
from tests.sources.memory import Op, table_of
from tests.thorough import examples
from tui_debugger.diagnose.runs.matching import NameMaps, NodeMatch, NodesOfRun, Rule, RunMatching, match_nodes
from tui_debugger.diagnose.runs.matching import parse_substitution as parsed
from tui_debugger.errors import TdbgError
from tui_debugger.model import Category

Dumps = Callable[[str], Path]
WIDTH = 8


def side(
    ops: Sequence[Op], shapes: dict[str, tuple[int, ...]] | None = None, maps: NameMaps | None = None
) -> NodesOfRun:
    table = table_of(ops)
    sizes = shapes or {}
    return NodesOfRun(table, range(len(table)), lambda row: (sizes.get(table.names[row], (WIDTH,)),), maps)


def names(matching: RunMatching, a: NodesOfRun, b: NodesOfRun) -> dict[str, str]:
    return {a.nodes.names[match.a]: b.nodes.names[match.b] for match in matching.matches}


def chain(*calls: str) -> list[Op]:
    """Calls of which each feeds the next one; the type is what stands before the counter."""
    made: list[Op] = []
    for call in calls:
        feeds = [(made[-1].name, 0)] if made else []
        made.append(Op(call, call.rpartition("/")[2].partition(".")[0], feeds))
    return made


def test_equal_names_are_the_same_node() -> None:
    a, b = side(chain("x/mul", "x/add", "y/mul")), side(chain("x/mul", "x/add", "y/mul"))
    matching = match_nodes(a, b)
    assert names(matching, a, b) == {name: name for name in ("x/mul", "x/add", "y/mul")}
    assert not matching.only_a
    assert not matching.only_b


@given(st.integers(2, 12), st.data())
@examples(80)
def test_a_call_that_is_left_out_shifts_no_other_one(count: int, data: st.DataObject) -> None:
    """Counters of the calls behind the hole are one less: what feeds a call tells which one it is."""
    hole = data.draw(st.integers(0, count - 1))
    sources = [Op(f"w{number}", "Parameter", (), Category.WEIGHT) for number in range(count)]
    calls = [Op("reduce" + (f".{n}" if n else ""), "reduce", [(f"w{n}", 0)]) for n in range(count)]
    left = [number for number in range(count) if number != hole]
    fewer = [Op("reduce" + (f".{n}" if n else ""), "reduce", [(f"w{w}", 0)]) for n, w in enumerate(left)]
    a, b = side([*sources, *calls]), side([*sources, *fewer])
    matching = match_nodes(a, b)
    assert [a.nodes.names[row] for row in matching.only_a] == [calls[hole].name]
    assert not matching.only_b
    found = names(matching, a, b)
    assert {calls[w].name: fewer[n].name for n, w in enumerate(left)}.items() <= found.items()


@given(st.permutations(range(6)))
@examples(40)
def test_nodes_that_do_not_depend_on_each_other_may_run_in_any_order(order: list[int]) -> None:
    weights = [Op(f"w{number}", "Parameter", (), Category.WEIGHT) for number in range(6)]
    updates = [Op(f"opt/SGD-op{n}", "SGD", [(f"w{n}", 0)]) for n in range(6)]
    others = [Op(f"opt/SGD-op{9 - n}", "SGD", [(f"w{n}", 0)]) for n in order]
    a, b = side([*weights, *updates]), side([*weights, *others])
    assert {updates[n].name: f"opt/SGD-op{9 - n}" for n in range(6)}.items() <= names(match_nodes(a, b), a, b).items()


@given(st.lists(st.sampled_from(["mul", "add", "norm", "gelu"]), min_size=1, max_size=8), st.sampled_from(["m", "a/b"]))
@examples(40)
def test_a_wrapper_around_the_model_changes_no_match(types: list[str], wrapper: str) -> None:
    calls = [f"net/l{number}/{of}" for number, of in enumerate(types)]
    a, b = side(chain(*calls)), side(chain(*(f"{wrapper}/{call}" for call in calls)))
    matching = match_nodes(a, b)
    assert names(matching, a, b) == {call: f"{wrapper}/{call}" for call in calls}


def test_a_module_that_was_renamed_is_found_by_the_calls_inside() -> None:
    a = side(chain("attn/q", "attn/k", "attn/softmax", "mlp/fc"))
    b = side(chain("attention/q", "attention/k", "attention/softmax", "mlp/fc"))
    assert not match_nodes(a, b).only_a


def test_a_fused_operator_is_the_last_of_the_chain_that_reads_its_weight() -> None:
    """MindSpore 2.0 files the fused operator of one layer under the scope of another one: the weight tells."""
    weights = [Op(f"{name}.weight", "Parameter", (), Category.WEIGHT) for name in ("fc1", "head")]
    fused = [
        Op("head-Dense/MatMulBiasAddFusion-op1", "MatMulBiasAddFusion", [("x", 0), ("fc1.weight", 0)]),
        Op("head-Dense/MatMulBiasAddFusion-op2", "MatMulBiasAddFusion", [("x", 0), ("head.weight", 0)]),
    ]
    plain = [
        op
        for layer in ("fc1", "head")
        for op in (
            Op(f"{layer}-Dense/MatMul-op0", "MatMul", [("x", 0), (f"{layer}.weight", 0)]),
            Op(f"{layer}-Dense/BiasAdd-op0", "BiasAdd", [(f"{layer}-Dense/MatMul-op0", 0)]),
        )
    ]
    a, b = side([*weights, *fused]), side([*weights, *plain])
    matching = match_nodes(a, b)
    found = names(matching, a, b)
    assert found["head-Dense/MatMulBiasAddFusion-op1"] == "fc1-Dense/BiasAdd-op0"
    assert found["head-Dense/MatMulBiasAddFusion-op2"] == "head-Dense/BiasAdd-op0"
    assert not matching.only_b, "the parts of a fused operator are not on their own"
    assert {match.rule for match in matching.matches} == {Rule.NAME, Rule.FUSED}


def test_a_fused_operator_of_another_graph_is_found_by_the_weight_that_it_reads_last() -> None:
    """In a branch the weights of the product are inputs of the graph: only the bias has its name."""
    weight = Op("▸head.bias", "Parameter", (), Category.WEIGHT)
    fused = Op("fc1-Dense/MatMulBiasAddFusion-op1", "MatMulBiasAddFusion", [("x", 0), ("w", 0), ("▸head.bias", 0)])
    parts = [
        Op("head-Dense/MatMul-op0", "MatMul", [("x", 0), ("w", 0)]),
        Op("head-Dense/BiasAdd-op0", "BiasAdd", [("head-Dense/MatMul-op0", 0), ("▸head.bias", 0)]),
    ]
    for one, other in (([weight, fused], [weight, *parts]), ([weight, *parts], [weight, fused])):
        a, b = side(one), side(other)
        matching = match_nodes(a, b)
        assert {match.rule for match in matching.matches} == {Rule.NAME, Rule.FUSED}
        assert not matching.only_a
        assert not matching.only_b


def test_other_shapes_are_other_calls() -> None:
    a = side(chain("x/reduce", "x/reduce.1"), {"x/reduce": (2,), "x/reduce.1": (3,)})
    b = side(chain("x/reduce"), {"x/reduce": (3,)})
    assert names(match_nodes(a, b), a, b) == {"x/reduce.1": "x/reduce"}


def test_where_several_fit_the_match_is_a_doubt() -> None:
    alone = [Op("reduce", "reduce"), Op("reduce.1", "reduce")]
    a, b = side(alone), side(alone[:1])
    (match,) = match_nodes(a, b).matches
    assert match.doubtful


def test_names_can_be_mapped() -> None:
    maps = NameMaps((parsed("s/^enc/model.encoder/"),), {"odd": "even"})
    a, b = side(chain("enc/mul", "odd"), maps=maps), side(chain("model.encoder/mul", "even"))
    matching = match_nodes(a, b, maps)
    assert names(matching, a, b) == {"enc/mul": "model.encoder/mul", "odd": "even"}
    assert NodeMatch(1, 1, Rule.GIVEN) in matching.matches


@pytest.mark.parametrize("text", ["", "s", "s/a/b", "y/a/b/", "s//b/", "s/(/b/", "s/a/b/x", r"s/a/\9/"])
def test_what_is_no_substitution_is_refused(text: str) -> None:
    with pytest.raises(TdbgError, match=r"substitution|used"):
        parsed(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [("mindspore-2.0-mlp", "mindspore-2.10-mlp"), ("mindspore-2.0-nan", "mindspore-2.10-nan")],
)
def test_the_versions_of_mindspore_agree_on_what_the_weights_feed(dumps: Dumps, old: str, new: str) -> None:
    """No two matched nodes are fed by different weights, and nearly every operator of the old version is found."""
    sides = []
    for name in (old, new):
        session = opened(dumps(name))
        table = session.nodes(0)
        rows = [row for row in range(len(table)) if not table.structural[row] and not _constant(table.op_type(row))]
        sides.append(NodesOfRun(table, rows, lambda row: None))  # noqa: ARG005 - no shape is known
        session.close()
    a, b = sides
    matching = match_nodes(a, b)
    pairs = matching.to_b
    for match in matching.matches:
        feeders = {pairs.get(each) for each in a.weights(match.a)} - {None}
        chain_b = {each for row in (match.b, *match.within_b) for each in b.weights(row)}
        assert not feeders or not chain_b or feeders & chain_b, a.nodes.names[match.a]
    assert len(matching.only_a) <= 0.05 * len(a.rows)


def _constant(op_type: str) -> bool:
    return op_type == "Constant"
