"""The screen on logs that hold statistics or hashes only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tui.driver import opened


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("torchtitan-numerics/bad", "Begins at step 0: op_2_log, -Inf ≥ 1 of 4"),
        ("pytorch-debugmode/bad", "Begins at step 3: log.0, +Inf ≥ 1 of 4"),
        (
            "te-logs",
            "First known bad at step 3 of rank 0: layers.0.self_attention.linear_qkv/activation, NaN 256 of 1,024",
        ),
        ("msprobe-monitor/v2", "Begins at step 3 of rank 0: energy, -Inf ≥ 1"),
    ],
)
async def test_the_screen_names_the_first_bad_tensor(dumps: Callable[[str], Path], place: str, said: str) -> None:
    name, _, below = place.partition("/")
    async with opened(dumps(name) / below, size=(150, 40)) as driver:
        if name in {"te-logs", "msprobe-monitor"}:
            await driver.press("c")
            await driver.settled()
        await driver.until(lambda: all(part in driver.lines[1] for part in said.split(": ", 1)))
        assert driver.pane("hits")


async def test_what_uses_an_output_is_not_known_without_a_graph(dumps: Callable[[str], Path]) -> None:
    async with opened(dumps("te-logs"), size=(150, 40)) as driver:
        await driver.press("c")
        await driver.settled()
        await driver.until(lambda: bool(driver.pane("tensors")))
        await driver.press("5", "right_parenthesis")
        await driver.settled()
        assert "no graph was recorded: what uses this node's outputs is not known" in driver.text
