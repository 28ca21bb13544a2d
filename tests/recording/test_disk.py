"""How much disk a dump will take."""

from __future__ import annotations

import pytest

from tui_debugger.errors import TdbgError
from tui_debugger.recording.disk import ELEMENT, INPUTS, OUTPUTS, ROW, StepSize, amount, estimate, from_model

STEP = StepSize(inputs=3000, outputs=1000, tensors=(30, 10), of="run")


@pytest.mark.parametrize(
    ("sides", "saves", "bytes_"),
    [
        ("both", "tensor", 4000),
        ("input", "tensor", 3000),
        ("output", "tensor", 1000),
        ("both", "statistic", 40 * ROW),
        ("output", "statistic", 10 * ROW),
        ("both", "full", 4000 + 40 * ROW),
    ],
)
def test_what_is_recorded_is_what_it_takes(sides: str, saves: str, bytes_: int) -> None:
    found = estimate(STEP, steps=5, ranks=8, sides=sides, saves=saves)
    assert found.per_step == bytes_
    assert found.total == bytes_ * 40


def test_all_steps_have_no_end() -> None:
    found = estimate(STEP, steps=None, ranks=2)
    assert found.total is None
    assert "say with --steps" in found.text


def test_parts_of_tensors_take_less() -> None:
    large = StepSize(10**9, 10**9, (10, 10), "run")
    found = estimate(large, steps=1, ranks=1, sample={"elements": 100})
    assert found.per_step == 20 * (100 * ELEMENT + 128)
    assert any("100 elements" in each for each in found.assumes)


def test_a_model_says_what_it_assumes() -> None:
    found = estimate(from_model(7 * 10**9, None), steps=5, ranks=8)
    weights = 7 * 10**9 * ELEMENT
    assert found.per_step == (INPUTS + OUTPUTS + 3) * weights
    assert "a guess" in " ".join(found.assumes)
    assert "a guess" not in " ".join(from_model(10, 100).assumes)
    assert "Adam" not in " ".join(from_model(10, 100, optimizer=False).assumes)


@pytest.mark.parametrize(
    ("text", "number"), [("7B", 7 * 10**9), ("350m", 350 * 10**6), ("1.5G", 15 * 10**8), ("1000", 1000), ("2 k", 2000)]
)
def test_amounts(text: str, number: int) -> None:
    assert amount(text, "parameters") == number


@pytest.mark.parametrize("text", ["", "B", "-7B", "7X", "7e9", "0", "9" * 30])
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(TdbgError, match="no number of parameters"):
        amount(text, "parameters")
