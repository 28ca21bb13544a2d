"""The log of Hugging Face's Trainer beside its checkpoints: notes, findings, doubts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")
from tests.cli.running import Answer, run
from tests.sources.arrays import write_safetensors
from tests.trees.layouts import trainer
from tui_debugger.sources import open_source

Capsys = pytest.CaptureFixture[str]
PLACES = pytest.mark.parametrize("place", ["checkpoint-100", "checkpoint-200", "."])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    trainer(tmp_path / "run")
    return tmp_path / "run"


def write_log(folder: Path, name: str, values: list[float]) -> Path:
    """Writes a log in which a number of that name stands every ten steps, among settings that are not finite."""
    log = [{"step": 10 * at, "epoch": 0.1 * at, name: value} for at, value in enumerate(values, 1)]
    path = folder / "trainer_state.json"
    path.write_text(json.dumps({"best_metric": math.nan, "max_steps": math.inf, "log_history": log}))
    return path


def check(capsys: Capsys, path: Path) -> Answer:
    return run(capsys, "check", path, "--watch", "TO", "--json", "--no-cache")


def found(answer: Answer) -> list[tuple[int, str]]:
    return [(hit["step"], hit["node"]) for hit in answer.json["hits"]]


def test_it_is_the_notes_of_the_run(root: Path) -> None:
    write_log(root / "checkpoint-200", "loss", [3.0, 2.0])
    assert open_source(root).notes(0).curve("loss") == ([1, 10, 20, 51], [1.0, 3.0, 2.0, 1 / 51])
    write_log(root, "eval_loss", [1.5])
    assert open_source(root).notes(0).at(10) == {"epoch": 0.1, "loss": 3.0, "eval_loss": 1.5}


def test_notes_follow_a_training(root: Path) -> None:
    source = open_source(root)
    assert "eval_loss" not in source.notes(0).names()
    write_log(root / "checkpoint-200", "eval_loss", [1.5])
    source.refresh()
    assert source.notes(0).curve("eval_loss") == ([10], [1.5])


@PLACES
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_bad_number_is_a_finding_of_one_tensor(root: Path, capsys: Capsys, place: str, value: float) -> None:
    write_log(root / place, "loss", [1.0, value, value, 0.5])
    answer = check(capsys, root)
    step = int(place.rpartition("-")[2]) if place != "." else 200
    assert (answer.code, found(answer)) == (1, [(step, "trainer_state/log_history/loss")])
    if place != "checkpoint-100":  # notes are those of the newest
        assert "log of rank 0: loss is not finite at step 20, 30" in answer.json["notices"]


@PLACES
def test_a_norm_of_gradients_that_loss_scaling_left_out_is_by_design(root: Path, capsys: Capsys, place: str) -> None:
    write_log(root / place, "grad_norm", [math.nan, math.inf, 1.0])
    answer = check(capsys, root)
    assert (answer.code, found(answer)) == (0, [])
    assert any("no finding there: log_history/grad_norm" in notice for notice in answer.json["notices"])
    write_log(root / place, "grad_norm", [1.0, math.inf])
    assert check(capsys, root).code == 1


@PLACES
@pytest.mark.parametrize(
    "damage",
    [lambda _: b"", lambda content: bytes(len(content)), lambda content: content[:-9], lambda _: b"[1, 2]"],
    ids=["emptied", "zeros", "cut", "something else"],
)
def test_a_damaged_log_is_a_doubt(root: Path, capsys: Capsys, place: str, damage: Callable[[bytes], bytes]) -> None:
    path = write_log(root / place, "loss", [1.0])
    assert check(capsys, root).code == 0
    path.write_bytes(damage(path.read_bytes()))
    answer = check(capsys, root)
    assert answer.code == 2
    assert [part["where"] for part in answer.json["unreadable"]] == [str(path.relative_to(root))]


def test_of_a_checkpoint_its_own_log_counts(root: Path, capsys: Capsys) -> None:
    write_log(root / "checkpoint-200", "loss", [math.nan])
    write_log(root, "loss", [math.nan])
    assert check(capsys, root / "checkpoint-100").code == 0
    assert check(capsys, root / "checkpoint-200/model.safetensors").code == 0
    answer = check(capsys, root / "checkpoint-200")
    assert (answer.code, len(found(answer))) == (1, 1)


def test_beside_the_final_model_it_belongs_to_that(root: Path, capsys: Capsys) -> None:
    write_safetensors(root / "model.safetensors", {"w": np.ones(3)})
    write_log(root, "loss", [1.0])
    assert check(capsys, root).code == 0
    write_log(root, "loss", [math.nan])
    assert found(check(capsys, root)) == [(201, "trainer_state/log_history/loss")]


def test_settings_beside_the_checkpoints_are_no_step(root: Path, capsys: Capsys) -> None:
    (root / "checkpoint-100/scheduler.pt").rename(root / "scheduler.pt")
    assert check(capsys, root).code == 0
