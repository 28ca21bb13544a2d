"""Operators that exchange values between ranks, however a framework spells them."""

from __future__ import annotations

from tui_debugger.graph.categories import is_collective, is_receiving, is_sending


def test_operators_that_exchange_values_between_ranks() -> None:
    for name in (
        "AllReduce",
        "HcomAllReduce",
        "c10d::allreduce_",
        "_c10d_functional.all_reduce.default",
        "AlltoAll",
        "Broadcast",
    ):
        assert is_collective(name), name
    for name in ("BroadcastTo", "ReduceSum", "ReduceMean", "Gather", "ScatterNd", "Add", "Reducescatters"):
        assert not is_collective(name), name
    assert (is_sending("Send"), is_receiving("Receive"), is_receiving("c10d::recv_")) == (True, True, True)
    assert not is_sending("Receive")
