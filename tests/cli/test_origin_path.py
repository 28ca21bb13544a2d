"""``tdbg origin --from``: the path of one tensor, printed and as a document."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.cli.running import Answer, file_of, run
from tests.session.runs import LOG, MOMENTUM, REDUCE, write_run

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]
NAN_DUMPS = ["mindspore-2.0-nan", "mindspore-2.10-nan"]


def origin(capsys: Capsys, *arguments: object) -> Answer:
    return run(capsys, "origin", *arguments)


@pytest.mark.parametrize("dump", NAN_DUMPS)
def test_the_path_is_printed_hop_by_hop(dump: str, dumps: Dumps, capsys: Capsys) -> None:
    answer = origin(capsys, dumps(dump), "--from", "moment2.head.bias", "--step", "5")
    assert (answer.code, answer.err) == (1, "")
    assert answer.lines[0].startswith("path: 8 hops upstream, from step 5 back to step 3, ")
    hops = [line for line in answer.lines if line[:1] in ("✗", "◆") and ":out:0" in line]
    assert [line.split()[1] for line in hops] == ["5", "4", *["3"] * 7]
    assert hops[-1].startswith("◆")
    assert "Log-op" in hops[-1]
    assert "the logarithm of 0: 1 of 4 elements of in:0 is 0, where the logarithm gives" in answer.lines
    assert answer.lines[-1].startswith("origin: Log-op")
    assert "train_nan.py:53" in answer.out
    assert max(cell_len(line) for line in answer.lines if "/" not in line and "self." not in line) <= 80


@pytest.mark.parametrize("dump", NAN_DUMPS)
def test_without_a_step_it_begins_where_the_tensor_is_bad_first(dump: str, dumps: Dumps, capsys: Capsys) -> None:
    found = origin(capsys, dumps(dump), "--from", "head.weight", "--json").json
    assert (found["command"], found["exit_code"], found["verdict"]) == ("origin", 1, "finding")
    assert (found["from"]["node"], found["from"]["step"]) == ("head.weight", 3)
    assert (found["state"], found["ending"], found["question"]) == ("bad", "origin", "NaN or Inf")
    assert [hop["link"] for hop in found["hops"][:2]] == ["start", "update"]
    last = found["hops"][-1]
    assert last["made"]["starts_here"] is True
    assert last["tensor"]["stats"]["nan"] + last["tensor"]["stats"]["neg_inf"] > 0
    assert all(hop["tensor"]["bad"] for hop in found["hops"])


def test_a_clean_tensor_is_exit_code_0_and_names_the_origin_of_the_run(dumps: Dumps, capsys: Capsys) -> None:
    answer = origin(capsys, dumps("mindspore-2.0-nan"), "--from", "Log-op381:in", "--step", "3")
    assert (answer.code, answer.lines[-1]) == (0, "clean: Log-op381:in:0 of step 3 has no NaN or Inf")
    assert answer.lines[0] == "1 tensor looked at, step 3; rank 0"
    assert "the nearest origin is Log-op381:out:0, rank 0, step 3" in answer.lines[1]
    healthy = origin(capsys, dumps("mindspore-2.0-mlp"), "--from", "fc1.weight")
    assert healthy.code == 0
    assert healthy.lines == [
        "6 tensors looked at, steps 0-5; rank 0",
        "no origin is known in the steps that were checked",
        "clean: fc1.weight:out:0 of step 5 has no NaN or Inf",
    ]


def test_one_step_that_cannot_be_read_is_not_clean(dump: Path, capsys: Capsys) -> None:
    file_of(dump / "rank_0/Net/0/1", "Parameter.fc1_weight.*").write_bytes(b"broken")
    answer = origin(capsys, dump, "--from", "fc1.weight", "--rank", "0", "--json")
    assert (answer.code, answer.json["verdict"]) == (2, "cannot_judge")
    assert answer.json["from"]["step"] == 1
    assert answer.json["looked_at"] == {"tensors": 2, "ranks": [0], "steps": [0, 2]}


def test_a_watchpoint_is_followed_as_well(dumps: Dumps, capsys: Capsys) -> None:
    dump, watch = dumps("mindspore-2.0-mlp"), "TZ @ category=activation"
    node = origin(capsys, dump, "--watch", watch, "--json").json["origins"][0]["node"]
    answer = origin(capsys, dump, "--from", node, "--watch", watch)
    assert answer.code == 1
    said = " ".join(answer.lines)
    assert said.startswith("bad means: a finding of TZ activations: ")
    assert "category=" not in said
    assert answer.lines[-1].startswith("origin: ")
    assert "zeros ≥ 100 % → 100 %" in answer.lines[-1]


def test_ranks_are_crossed(tmp_path: Path, capsys: Capsys) -> None:
    bad = {(0, 0): {REDUCE, MOMENTUM, "w"}, (1, 0): {LOG, REDUCE, MOMENTUM, "w"}}
    answer = origin(capsys, write_run(tmp_path, bad, ranks=(0, 1)), "--from", "w", "--rank", "0")
    assert answer.code == 1
    assert "over ranks 0, 1" in answer.lines[0]
    assert "     ↑ sent by rank 1: in:0 of AllReduce-op3" in answer.lines
    assert answer.lines[-1] == "origin: Log-op2 (Log), rank 1, step 0 (NaN 1 of 6)"


def test_what_cannot_be_judged_is_exit_code_2(tmp_path: Path, capsys: Capsys) -> None:
    dump = write_run(tmp_path, {}, hidden={LOG})
    answer = origin(capsys, dump, "--from", "Log-op2")
    assert answer.code == 2
    assert origin(capsys, dump, "--from", "Log-op2", "--json").json["exit_code"] == 2
    for wrong in ("nosuchnode", "MatMul-op1:9"):
        refused = origin(capsys, dump, "--from", wrong, "--json")
        assert (refused.code, refused.json["verdict"]) == (2, "cannot_judge")
        assert refused.err.startswith("tdbg: ")


def test_no_line_of_a_path_is_broken_by_a_terminal_of_80_columns(
    dumps: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    answer = origin(capsys, dumps("mindspore-2.0-nan"), "--from", "MatMul-op444")
    lines = [line for line in answer.out.splitlines() if "self." not in line]
    assert max(map(len, lines)) <= 80
    assert any("SparseSoftmaxCrossEntropyWithLogits-op442:out:0" in line for line in lines)
