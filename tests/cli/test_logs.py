"""Commands on logs with statistics or hashes only: right origins, and nothing is clean that nobody could look at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import run

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]
NUMERICS, HASHES, TE = "torchtitan-numerics", "pytorch-debugmode", "te-logs"


@pytest.mark.parametrize(
    ("name", "found", "line"),
    [
        (NUMERICS, "step 0: energy/op_2_log", "src/model.py:7"),
        (HASHES, "step 3: TinyLM.energy/log.0", "/home/user/model.py:7"),
    ],
)
def test_the_origin_is_the_logarithm_and_not_the_mask(
    capsys: Capsys, dumps: Dumps, name: str, found: str, line: str
) -> None:
    answer = run(capsys, "origin", dumps(name) / "bad")
    assert answer.code == 1
    assert answer.lines[-1] == f"FOUND: 1 origin at {found}"
    assert "its inputs are clean" in answer.out
    assert line in answer.out


@pytest.mark.parametrize("name", [NUMERICS, HASHES])
def test_masks_of_a_healthy_step_are_by_design(capsys: Capsys, dumps: Dumps, name: str) -> None:
    answer = run(capsys, "origin", dumps(name) / "good")
    assert answer.code == 0
    assert "-Inf by design: 2 tensors, absorbed by _softmax" in answer.lines
    assert answer.lines[-1] == "clean: no NaN or Inf"


def test_without_edges_the_first_bad_layer_in_order_is_named_and_the_other_rank_is_clean(
    capsys: Capsys, dumps: Dumps
) -> None:
    answer = run(capsys, "origin", dumps(TE))
    assert answer.code == 1
    assert "rank 0 was first: step 3, layers.0.self_attention.linear_qkv/activation" in answer.lines
    assert "  rank 1: nothing bad in steps 0-4" in answer.lines
    assert "no edges: an origin is the first bad tensor in order" in answer.out
    assert "no edges" not in answer.err, "once is enough"


@pytest.mark.parametrize(
    ("place", "watch", "code"),
    [
        (f"{NUMERICS}/good", "TL max_gt=100", 1),  # the extremes of outputs are there
        (f"{NUMERICS}/good", "TL abs_mean_gt=1e9", 2),  # inputs have no shape, so a norm is no mean
        (f"{NUMERICS}/good", "TZ zero_percentage_ge=50", 2),
        (f"{HASHES}/good", "TL abs_mean_gt=0.5", 1),
        (f"{HASHES}/good", "TL abs_mean_gt=1e9", 0),  # known of each tensor
        (f"{HASHES}/good", "TL max_gt=1e9", 2),
        (f"{HASHES}/good", "TO", 0),
        (f"{HASHES}/good", "TZ zero_percentage_ge=50", 2),
        (f"{HASHES}/bad", "TO", 1),
    ],
)
def test_conditions_are_judged_by_what_is_there_and_never_clean_without(
    capsys: Capsys, dumps: Dumps, place: str, watch: str, code: int
) -> None:
    name, _, below = place.partition("/")
    answer = run(capsys, "check", dumps(name) / below, "--watch", watch, "--no-config")
    assert answer.code == code
    assert ("cannot judge" in answer.out) or code != 2


@pytest.mark.parametrize(
    ("watch", "code"),
    [
        ("TL max_gt=100", 0),
        ("TL abs_mean_lt=1e-6", 2),  # 0.0000 may be less
        ("TZ zero_percentage_ge=50", 2),  # nothing is zero, and nothing is known not to be
        ("TS min_lt=-1e-9", 1),
    ],
)
def test_four_decimals_decide_what_they_can(capsys: Capsys, dumps: Dumps, watch: str, code: int) -> None:
    text = watch.replace("TL abs_mean_lt", "TS abs_mean_lt")
    answer = run(capsys, "check", dumps(TE), "--watch", text, "--rank", "1", "--no-config")
    assert answer.code == code


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("v1", "step 3 of rank 0: energy"),
        ("v2", "step 3#2 of rank 0: energy"),
        ("v1-db", "step 3 of rank 0: energy"),
        ("dump-db", "step 3 of rank 0: Torch.log.1"),
        ("dump-db-parts", "step 43 of rank 0: Torch.log.0"),
    ],
)
def test_the_origin_of_msprobe_s_monitor_and_databases_is_the_first_inf(
    capsys: Capsys, dumps: Dumps, place: str, found: str
) -> None:
    answer = run(capsys, "origin", dumps("msprobe-monitor") / place)
    assert answer.code == 1
    assert answer.lines[-1] == f"FOUND: 1 origin at {found}"
    assert "-Inf ≥ 1" in answer.out


@pytest.mark.parametrize(
    ("place", "found", "begin"),
    [
        ("v1", [(0, 3, "energy")], 3),
        ("v2", [(0, 3, "energy")], 3),
        ("v1-db", [(0, 3, "energy")], 3),
        ("dump-db", [(0, 3, "Torch.log.1")], 3),
        ("dump-db-parts", [(0, 43, "Torch.log.0")], 42),  # gradients of a part may come before it
    ],
)
def test_a_check_of_all_steps_has_no_other_origin_and_no_finding_in_healthy_steps(
    capsys: Capsys, dumps: Dumps, place: str, found: list[tuple[int, int, str]], begin: int
) -> None:
    """Neither masks of healthy steps are findings, nor are modules origins whose weights went bad a step before."""
    answer = run(capsys, "check", dumps("msprobe-monitor") / place, "--watch", "TO", "--limit", "0", "--json")
    hits = [hit for hit in answer.json["hits"] if hit["verdict"] != "by_design"]
    assert [(hit["rank"], hit["step"], hit["node"]) for hit in hits if hit["origin"]] == found
    assert min(hit["step"] for hit in hits) == begin


@pytest.mark.parametrize("command", ["check", "health", "report"])
def test_a_dump_whose_only_file_is_damaged_is_said_to_be_so(
    capsys: Capsys, dumps: Dumps, tmp_path: Path, command: str
) -> None:
    (whole,) = (dumps(HASHES) / "good").glob("*.json")
    (tmp_path / whole.name).write_bytes(whole.read_bytes()[:100_000])
    said = run(capsys, command, tmp_path)
    assert said.code == 2
    assert f"1 part of the dump cannot be listed: {whole.name}" in said.out + said.err
    assert "no watchpoint is recommended" not in said.err
