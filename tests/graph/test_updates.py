"""What an optimizer's update operator brings together."""

from __future__ import annotations

from tests.sources.memory import MemorySource, Op
from tui_debugger.graph.categories import Relative, relatives
from tui_debugger.graph.table import NodeTable


def nodes_of(*ops: Op) -> NodeTable:
    return MemorySource({0: {}}, ops=ops).nodes(0)


def test_of_a_momentum_update_each_names_the_others() -> None:
    nodes = nodes_of(
        Op("w", "Parameter"),
        Op("accum.w", "Parameter"),
        Op("lr", "Parameter"),
        Op("grad", "MatMul"),
        Op("m", "Parameter"),
        Op("update", "ApplyMomentum", (("w", 0), ("accum.w", 0), ("lr", 0), ("grad", 0), ("m", 0))),
    )
    weight, state, _, gradient, _, _ = range(6)
    assert relatives(nodes, weight) == (Relative("gradient", gradient, 0), Relative("state", state, 0))
    assert relatives(nodes, gradient) == (Relative("weight", weight, 0), Relative("state", state, 0))
    assert relatives(nodes, state) == (Relative("weight", weight, 0), Relative("gradient", gradient, 0))
    assert relatives(nodes, 2) == ()  # a learning rate belongs to no weight


def test_groups_of_an_operator_that_updates_many_stay_apart() -> None:
    nodes = nodes_of(
        *(Op(name, "Parameter") for name in ("w0", "g0", "w1", "g1")),
        Op("update", "WeightUpdate", (("w0", 0), ("g0", 0), ("w1", 0), ("g1", 0))),
    )
    assert relatives(nodes, 2) == (Relative("gradient", 3, 0),)
    assert relatives(nodes, 1) == (Relative("weight", 0, 0),)


def test_another_output_of_the_node_is_another_tensor() -> None:
    nodes = nodes_of(
        Op("w", "Parameter"),
        Op("both", "Split", outputs=2),
        Op("update", "WeightUpdate", (("w", 0), ("both", 1))),
    )
    assert relatives(nodes, 1, 0) == ()
    assert relatives(nodes, 1, 1) == (Relative("weight", 0, 0),)
