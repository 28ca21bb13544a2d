"""Where update operators get their learning rate: consistent with the table of their other inputs."""

from __future__ import annotations

import pytest

from tui_debugger.graph.categories import UPDATES, group_start, is_learning_rate, update_of


@pytest.mark.parametrize("name", sorted(UPDATES))
def test_no_setting_is_the_slot_of_something_else(name: str) -> None:
    update = UPDATES[name]
    taken = {update.weight, update.gradient, *update.states}
    slots = [slot for slot in (update.rate, update.momentum, update.decay) if slot is not None]
    assert not taken & set(slots)
    assert len(set(slots)) == len(slots)
    if update.stride:
        assert all(slot < update.stride for slot in slots)


@pytest.mark.parametrize(
    ("op_type", "rate"),
    [("ApplyMomentum", 2), ("Momentum", 2), ("SGD", 2), ("Adam", 5), ("ApplyAdamD", 5), ("AdamWeightDecay", 3)],
)
def test_the_learning_rate_is_found_whichever_way_a_type_is_spelled(op_type: str, rate: int) -> None:
    update = update_of(op_type)
    assert update is not None
    assert update.rate == rate


def test_an_operator_that_updates_nothing_has_no_settings() -> None:
    assert update_of("MatMul") is None
    assert UPDATES["weightupdate"].rate is None


def test_of_many_parameters_the_group_is_found() -> None:
    update = update_of("CombineScaleMomentum")
    assert update is not None
    assert [group_start(update, slot) for slot in (1, 7, 13)] == [0, 6, 12]


@pytest.mark.parametrize(
    ("name", "yes"),
    [
        ("learning_rate", True),
        ("learning_rate_group_1", True),
        ("opt.lr", True),
        ("lr_1", True),
        ("flr.weight", False),
        ("alr", False),
    ],
)
def test_a_learning_rate_by_its_name(name: str, yes: bool) -> None:
    assert is_learning_rate(name) is yes
