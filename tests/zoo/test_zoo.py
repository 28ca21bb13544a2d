"""The recommended watchpoints do not cry wolf, and name what is wrong: some forty real trainings in one process.

Each runs under the real client, the real server and a real session, as under ``tdbg listen --stop-on-hit``.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from tests.thorough import few  # noqa: E402 - torch first
from tests.zoo.trainings import HEALTHY, SICK  # noqa: E402 - imports torch
from tests.zoo.watched import watch  # noqa: E402 - imports torch


def test_the_zoo_is_large_enough() -> None:
    assert len(HEALTHY) >= 10
    assert len(SICK) >= 15


@pytest.mark.parametrize("name", few(HEALTHY, 6))
def test_nothing_is_found_in_a_healthy_training(name: str) -> None:
    seen = watch(HEALTHY[name])
    assert seen.trouble == []
    assert seen.unrecorded == []
    assert seen.findings == {}
    assert seen.stops == []
    assert seen.last >= 5, "steps were lost"


@pytest.mark.parametrize(
    "name", few(["trainer", "dense_experts", "switched_experts", "grad_scaler", "grad_scaler_fused"], 1)
)
def test_nothing_is_found_at_the_level_of_operators_either(name: str) -> None:
    seen = watch(HEALTHY[name], level="op")
    assert (seen.trouble, seen.findings, seen.stops) == ([], {}, [])
    assert seen.last >= 5, "steps were lost"


@pytest.mark.parametrize("name", few(SICK, 8))
def test_the_cause_is_named_in_a_sick_training(name: str) -> None:
    expected = SICK[name]
    seen = watch(expected.training)
    assert seen.trouble == []
    first = seen.first(expected.condition)
    assert set(expected.nodes) <= first.keys()
    assert min(first.values()) == expected.step
    if expected.origin:
        assert seen.stops[0] == expected.step
        assert seen.origins[expected.step] == list(expected.nodes)
    else:
        assert {node for node, step in first.items() if step == expected.step} == set(expected.nodes)
    for node in expected.nodes:
        assert not expected.why or seen.causes[node][0].startswith(expected.why), seen.causes[node]
    if expected.alone:
        assert {node for found in seen.findings.values() for node in found} == set(expected.nodes)
        assert {each for found in seen.findings.values() for some in found.values() for each in some} == {
            expected.condition
        }
