"""The answer of a check in one line, on real dumps and on each thing that keeps a run from being clean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.session.opened import opened
from tests.sources.writer import MLP, Generation, write_dump
from tests.unreadable import wound
from tui_debugger.check.verdicts import Outcome
from tui_debugger.diagnose.headline import Headline, headline, with_reason
from tui_debugger.session import Session

Dumps = Callable[[str], Path]
RELU = MLP.nodes[1].name


def answer(session: Session) -> Headline:
    result = session.so_far()
    assert result is not None
    return with_reason(headline(result, session.pairs()), session)


def checked(path: Path, *watchpoints: str, steps: tuple[int, ...] | None = None) -> Session:
    session = opened(path, *watchpoints)
    if not watchpoints:
        session.add_recommended()
    session.check(session.pairs(steps=steps))
    return session


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "mindspore-2.0-nan",
            "Begins at step 3: Log-op381, -Inf 1 of 4 (the logarithm of 0) · 1 more origin",
        ),
        (
            "mindspore-2.10-nan",
            "Begins at step 3: _backbone-Net/Log-op0, -Inf 1 of 4 (the logarithm of 0) · 1 more origin",
        ),
        (
            "mindspore-2.10-mlp",
            "Found at step 0: act3-ReLU/ReLU-op0, tensor all zero (the units are dead) · 21 more findings",
        ),
    ],
)
def test_it_names_where_it_begins_and_why(dumps: Dumps, name: str, text: str) -> None:
    assert str(answer(checked(dumps(name)))) == text


def test_frozen_weights_are_named_with_what_froze_them(dumps: Dumps) -> None:
    found = answer(checked(dumps("mindspore-2.10-mlp"), "WNC @ category=weight"))
    assert str(found) == (
        "Found at step 1: fc2.bias, weight not changed (the learning rate is too low) · 19 more findings"
    )


def test_a_clean_run_says_how_much_was_looked_at(tmp_path: Path) -> None:
    write_dump(tmp_path)
    session = checked(tmp_path, "TO")
    found = answer(session)
    assert found.outcome is Outcome.CLEAN
    result = session.so_far()
    assert result is not None
    looked_at = f"{result.coverage.checked} tensors of steps 0–2 looked at"
    assert str(found) == f"Clean: {looked_at}"
    assert str(headline(result, session.pairs(), ongoing=True)) == f"Clean so far: {looked_at}"


def test_several_ranks_are_told_apart(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, ranks=(0, 1))
    for path in writer.step(1, rank=1).glob("ReLU.*output*"):
        path.unlink()
    writer.tensor(1, "ReLU", RELU, np.array([np.nan, 1.0], np.float32), rank=1)
    assert str(answer(checked(tmp_path, "TO"))).startswith("Begins at step 1 of rank 1: ReLU-op")
    write_dump(tmp_path / "clean", ranks=(0, 1))
    assert "of steps 0–2 of 2 ranks looked at" in str(answer(checked(tmp_path / "clean", "TO")))


def test_a_part_of_a_run_is_never_clean(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0, 1, 2, 5))
    found = answer(checked(tmp_path, "TO", steps=(1, 2)))
    assert found.outcome is Outcome.INTERRUPTED
    assert str(found).startswith("Steps 0, 5 not checked yet: no finding in ")
    assert str(found).endswith("of steps 1–2")


def test_what_cannot_be_looked_at_is_said(tmp_path: Path) -> None:
    root = write_dump(tmp_path).root
    wound(root / "rank_0/Net/0/2", "fifo")
    found = answer(checked(tmp_path, "TO"))
    assert found.outcome is Outcome.CANNOT_JUDGE
    assert str(found).startswith("Cannot judge: 1 part of the dump cannot be listed: rank_0/Net/0/2")


def test_statistics_without_values_are_enough_for_an_answer_and_not_for_a_reason(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, Generation.V2_10, steps=(0,))
    for path in writer.step(0).glob("*.npy"):
        path.unlink()
    values = np.array([1.0, np.nan], np.float32)
    writer.statistics(0, [("ReLU", RELU, "output", 0, values)])
    assert str(answer(checked(tmp_path, "TO"))).startswith("First known bad at step 0: ReLU-op")


def test_after_a_change_of_watchpoints_the_answer_of_before_is_called_so(tmp_path: Path) -> None:
    write_dump(tmp_path)
    session = checked(tmp_path, "TO")
    session.watchpoints.set_enabled(session.watchpoints.items()[0].id, False)
    session.watchpoints.add("tensor_all_zero", {"zero_percentage_ge": 100.0}, session.watchpoints.items()[0].selection)
    found = answer(session)
    assert found.outcome is Outcome.INTERRUPTED
    assert str(found).startswith("No finding by the watchpoints of before:")


def test_a_tensor_that_is_not_an_output_says_its_slot(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0,))
    writer.tensor(0, "ReLU", RELU, np.array([np.inf], np.float32), at=("input", 3))
    assert ":in:3" in str(answer(checked(tmp_path, "TO")))


def test_a_name_that_many_scopes_hold_is_told_with_its_scope(dumps: Dumps) -> None:
    found = answer(checked(dumps("te-logs"), "TO"))
    assert str(found).startswith(
        "First known bad at step 3 of rank 0: layers.0.self_attention.linear_qkv/activation, NaN "
    )


def test_what_begins_on_every_rank_alike_is_one_origin(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, ranks=(0, 1, 2), steps=(0,))
    for rank in (0, 1, 2):
        for path in writer.step(0, rank=rank).glob("ReLU.*output*"):
            path.unlink()
        writer.tensor(0, "ReLU", RELU, np.array([np.nan, 1.0], np.float32), rank=rank)
    found = answer(checked(tmp_path, "TO"))
    assert str(found).startswith("Begins at step 0 of ranks 0–2: ReLU-op")
    assert "more origin" not in str(found)
