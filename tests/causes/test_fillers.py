"""What fused attention keeps for its own backward pass is filled up with +Inf by its kernel: that is by design."""

from __future__ import annotations

import pytest

from tui_debugger.causes.by_design import Designs
from tui_debugger.causes.by_design_readers import ElementCounts
from tui_debugger.live.client.messages import GraphBuilder
from tui_debugger.live.graph import LiveRankGraph

KIND = "ScaledDotProductEfficientAttention"
SLOTS = [("float32", (2, 4, 6, 8)), ("float32", (2, 4, 32))]
FINITE, FILLED = ElementCounts(count=384), ElementCounts(positive=52, count=64)


def designs(result: ElementCounts, sums: ElementCounts, reader: str) -> tuple[Designs, int]:
    """A net of one attention, whose second output is read by an operator."""
    made = GraphBuilder()
    made.add_parameter("inputs.x", SLOTS[0])
    made.add_node("net/Attention", KIND, ["inputs.x"], SLOTS)
    made.add_item("net/Attention:1", "net/Attention", 1)
    made.add_node("net/Reader", reader, ["net/Attention:1"], [SLOTS[1]])
    nodes = LiveRankGraph([made.serialize()]).nodes
    row = nodes.find("net/Attention")
    held = {
        (row, 0): result,
        (row, 1): sums,
        (nodes.find("net/Reader"), 0): FINITE,
        (nodes.find("inputs.x"), 0): FINITE,
    }
    return Designs(nodes, lambda at, slot: held.get((at, slot))), row


@pytest.mark.parametrize(
    ("result", "sums", "reader", "by_design"),
    [
        (FINITE, FILLED, f"{KIND}Backward", True),
        (FINITE, FILLED, "Sum", False),  # something else computes with it
        (ElementCounts(nan=6, count=384), FILLED, f"{KIND}Backward", False),
        (FINITE, ElementCounts(negative=6, count=64), f"{KIND}Backward", False),
        (FINITE, ElementCounts(nan=6, count=64), f"{KIND}Backward", False),
    ],
    ids=["its own backward pass reads it", "another operator reads it", "the result is NaN", "-Inf", "NaN"],
)
def test_the_filler_of_a_kernel_is_by_design(
    result: ElementCounts, sums: ElementCounts, reader: str, by_design: bool
) -> None:
    found, row = designs(result, sums, reader)
    assert found.intended(row, 1) is by_design
    assert found.absorbed_by(row, 1) == (frozenset({KIND}) if by_design else frozenset())
