"""``tdbg explain``: which tensor and step it chooses, what it prints, its JSON document, its exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import run
from tests.sources.writer import write_dump

Dumps = Callable[[str], Path]
Capture = pytest.CaptureFixture[str]


def test_without_a_step_it_explains_the_first_one_with_a_finding(dumps: Dumps, capsys: Capture) -> None:
    answer = run(capsys, "explain", dumps("mindspore-2.0-nan"), "Log-op381")
    assert answer.code == 1
    assert answer.lines[:2] == ["Default/network-WithLossCell/_backbone-Net/Log-op381:out:0", "rank 0, step 3"]
    assert "  ● likely: the logarithm of 0" in answer.lines
    assert answer.err == ""


def test_every_command_it_advises_works(dumps: Dumps, capsys: Capture) -> None:
    import shlex

    answer = run(capsys, "explain", dumps("mindspore-2.0-nan"), "head.weight", "--step", "5")
    commands = [line.strip() for line in answer.lines if line.strip().startswith("tdbg ")]
    assert commands
    for command in commands:
        _, *arguments = shlex.split(command)
        assert run(capsys, *arguments).code in (0, 1), command


def test_a_node_without_a_finding_is_clean_and_says_what_was_looked_for(dumps: Dumps, capsys: Capture) -> None:
    answer = run(capsys, "explain", dumps("mindspore-2.0-nan"), "Log-op381", "--step", "0-2")
    assert answer.code == 0
    assert "rank 0, step 2" in answer.lines
    assert "No NaN or Inf" in answer.lines
    assert "no watchpoint of the list has a finding here" in answer.out


def test_watchpoints_of_the_user_replace_the_recommended_ones(dumps: Dumps, capsys: Capture) -> None:
    answer = run(
        capsys, "explain", dumps("mindspore-2.0-mlp"), "head.weight", "--watch", "WCL abs_mean_update_ratio_gt=0.1"
    )
    assert answer.code == 1
    assert "rank 0, step 1" in answer.lines
    assert "Weight change too large (WCL)" in answer.lines


def test_the_json_document_holds_causes_with_their_standing_and_advice_as_arguments(
    dumps: Dumps, capsys: Capture
) -> None:
    answer = run(capsys, "explain", dumps("mindspore-2.0-nan"), "Div-op385", "--json")
    document = answer.json
    assert (answer.code, document["exit_code"], document["command"]) == (1, 1, "explain")
    (tensor,) = document["tensors"]
    assert (tensor["step"], tensor["type"], tensor["finding"]) == (3, "Div", True)
    (section,) = tensor["sections"]
    assert section["conditions"] == ["tensor_overflow"]
    assert [cause["standing"] for cause in section["causes"]] == ["likely", "ruled_out"]
    assert section["look_next"][0]["arguments"][0] == "show"


def test_an_input_can_be_asked_for(dumps: Dumps, capsys: Capture) -> None:
    answer = run(capsys, "explain", dumps("mindspore-2.0-nan"), "Mul-op383:in:1", "--step", "3")
    assert answer.code == 1
    assert answer.lines[0].endswith("Mul-op383:in:1")
    assert "this is what in:1 of Mul-op383 read; ReduceSum-op382 made it" in answer.out


@pytest.mark.parametrize(
    ("arguments", "what"),
    [(["nothing-like-it"], "no node"), (["Log-op381", "--step", "99"], "step 99 is not in this dump")],
)
def test_a_mistake_is_named_without_a_traceback(arguments: list[str], what: str, dumps: Dumps, capsys: Capture) -> None:
    answer = run(capsys, "explain", dumps("mindspore-2.0-nan"), *arguments)
    assert answer.code == 2
    assert what in answer.err
    assert "Traceback" not in answer.err


def test_no_line_is_wider_than_a_terminal_but_for_names_and_commands(dumps: Dumps, capsys: Capture) -> None:
    answer = run(capsys, "explain", dumps("mindspore-2.0-mlp"), "fc2.weight")
    assert all(len(line) <= 80 or line.strip().startswith(("tdbg ", "Default/")) for line in answer.lines)


def test_statistics_alone_that_a_watchpoint_cannot_judge_by_are_not_clean(tmp_path: Path, capsys: Capture) -> None:
    writer = write_dump(tmp_path, steps=[0])
    for step in (1, 2):
        writer.statistics(step, [("Parameter", "fc1.weight", "output", 0, np.ones(3, np.float32))])
    assert run(capsys, "explain", tmp_path, "fc1.weight", "--step", "2").code == 2
    assert run(capsys, "explain", tmp_path, "fc1.weight", "--step", "2", "--watch", "TO").code == 0
    assert run(capsys, "explain", tmp_path, "fc1.weight", "--step", "0").code == 0, (
        "nothing to compare with is no doubt"
    )


def test_where_no_input_is_known_nobody_promises_clean_ones(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "step_0").mkdir()
    np.save(tmp_path / "step_0" / "a.npy", np.array([1.0, np.nan]))
    answer = run(capsys, "explain", tmp_path, "a")
    assert answer.code == 1
    assert "See what has to be dumped to know whether it begins here." in answer.out
    assert "inputs are clean" not in answer.out
