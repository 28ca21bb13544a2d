"""``tdbg origin``: what it prints, its JSON document, its exit codes."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

from tests.session.opened import writable_copy
from tests.sources.writer import MLP, DumpWriter, Graph, Node, write_dump, write_step
from tui_debugger.cli.main import main
from tui_debugger.session import Session

MATMUL, RELU, MOMENTUM = (node.name for node in MLP.nodes)
NAN = np.full((2, 3), np.nan, np.float32)
NAN_DUMPS = ["mindspore-2.0-nan", "mindspore-2.10-nan"]
MLP_DUMPS = ["mindspore-2.0-mlp", "mindspore-2.10-mlp"]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``tdbg origin`` and gives exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main(["origin", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def document(run: Run, *arguments: object) -> dict[str, Any]:
    """The JSON document; its exit code is the real one."""
    code, out, _ = run(*arguments, "--json")

    def refuse(text: str) -> None:
        raise AssertionError(text)

    found: dict[str, Any] = json.loads(out, parse_constant=refuse)
    assert found["exit_code"] == code
    return found


def one(step: Path, pattern: str) -> Path:
    (path,) = step.glob(pattern)
    return path


def short(node: str) -> str:
    """The end of a name, as the last line has it."""
    return "/".join(node.strip().split("/")[-2:])


@pytest.mark.parametrize("dump", NAN_DUMPS)
def test_the_text_names_both_origins_their_lines_and_the_coverage(
    dump: str, dumps: Callable[[str], Path], run: Run
) -> None:
    code, out, _ = run(dumps(dump))
    lines = out.splitlines()
    assert code == 1
    assert lines[0] == "origin: rank 0, step 3  (Log)"
    assert lines[1].startswith("  Default/network-WithLossCell/_backbone-Net/Log-op")
    assert lines[2] == "  out:0: -Inf 1 of 4; its inputs are clean"
    assert lines[3].split() == ["NaN", "Inf", "min", "max", "mean", "zeros", "dtype,", "shape"]
    assert lines[4].split() == ["in:0", "0", "0", "0", "99.55", "71.08", "25.0%", "float32", "4"]
    assert lines[5].split() == ["out:0", "0", "1", "4.476", "4.601", "4.55", "0%", "float32", "4"]
    assert lines[6].startswith("  > ")
    assert lines[6].endswith("train_nan.py:53")
    assert lines[7].startswith("      e = self.log(")
    independent = lines.index("also independent: rank 0, step 3  (Div)")
    assert "/norm-RowNorm/Div-op" in lines[independent + 1]
    assert any(line.endswith("train_nan.py:31") for line in lines)
    end = " ".join(lines)
    assert " tensors checked, 0 unreadable, " in end
    assert "0 not comparable steps 0-3; rank 0 steps 4,5 not looked at: the search ends with the first step" in end
    log, div = (short(lines[at + 1]) for at in (0, independent))
    assert lines[-1] == f"FOUND: 2 independent origins at step 3: {log}, {div}"


@pytest.mark.parametrize("dump", NAN_DUMPS)
def test_it_fits_into_80_columns(dump: str, dumps: Callable[[str], Path], run: Run) -> None:
    for arguments in ((), ("--step", "4"), ("--watch", "TL max_gt=50 @ category=gradient")):
        _, out, _ = run(dumps(dump), *arguments)
        foreign = ("/", "self.")  # names, paths and code stay whole
        own = [line for line in out.splitlines() if not any(text in line for text in foreign)]
        assert len(own) > 8
        assert max(map(cell_len, own)) <= 80


@pytest.mark.parametrize("dump", NAN_DUMPS)
def test_the_document_holds_everything(dump: str, dumps: Callable[[str], Path], run: Run) -> None:
    found = document(run, dumps(dump))
    assert list(found)[:5] == ["schema", "command", "path", "exit_code", "verdict"]
    assert (found["command"], found["exit_code"], found["verdict"]) == ("origin", 1, "finding")
    log, division = found["origins"]
    assert (log["rank"], log["step"], log["type"], log["start"]) == (0, 3, "Log", "made")
    assert division["type"] == "Div"
    assert [(each["role"], each["index"], each["state"]) for each in division["inputs"]] == [
        ("in", 0, "clean"),
        ("in", 1, "clean"),
    ]
    (output,) = division["outputs"]
    assert (output["stats"]["nan"], output["shape"], output["bad"]) == (128, [4, 8, 16], True)
    assert (division["stack"][0]["line"], division["stack"][0]["framework"]) == (31, False)
    assert division["results"][0]["abbr"] == "TO"
    (first,) = found["first_by_rank"]
    assert (first["rank"], first["leads"], first["origins"]) == (0, True, 2)
    assert first["first"] == log
    assert found["spread"]["by_graph"] is True
    assert len(found["spread"]["tensors"]) == 5
    assert found["bad_tensors"][0]["tensors"] > 300
    assert [pair["step"] for pair in found["coverage"]["pairs"]] == [0, 1, 2, 3]
    assert [pair["step"] for pair in found["not_looked_at"]] == [4, 5]
    assert (found["reasons"], found["cancelled"], found["end"]) == ([], False, "origin")
    assert found["seconds"] >= 0
    assert len(document(run, dumps(dump), "--step", "3", "--spread", "2")["spread"]["tensors"]) == 2


@pytest.mark.parametrize("dump", MLP_DUMPS)
def test_a_healthy_run_is_clean(dump: str, dumps: Callable[[str], Path], run: Run) -> None:
    code, out, err = run(dumps(dump))
    assert code == 0
    assert out.splitlines()[-1] == "clean: no NaN or Inf"
    assert "steps 0-5; rank 0" in out
    assert "Traceback" not in err
    found = document(run, dumps(dump))
    assert (found["verdict"], found["origins"], found["first_by_rank"]) == ("clean", [], [])
    assert found["end"] == "all"


@pytest.mark.parametrize("dump", NAN_DUMPS)
def test_a_step_that_is_bad_already_says_through_which_inputs(
    dump: str, dumps: Callable[[str], Path], run: Run
) -> None:
    code, out, _ = run(dumps(dump), "--step", "4-5")
    lines = out.splitlines()
    assert code == 1
    assert lines[0] == "bad, but no origin: rank 0, step 4  (LayerNorm)"
    assert lines[2].endswith("; in:1, in:2 are bad already")
    assert lines[3:5] == ["    in:1 ← blocks.0.ln1.gamma:0", "    in:2 ← blocks.0.ln1.beta:0"]
    assert "step 5 not looked at: step 4 leaves bad parameters behind, and later steps compute with these" in " ".join(
        lines
    )
    assert lines[-1] == "FOUND: bad tensors at step 4, but no origin"
    found = document(run, dumps(dump), "--step", "4-5")
    assert (found["origins"], found["end"]) == ([], "carried")
    assert (found["first_by_rank"][0]["first"]["start"], found["first_by_rank"][0]["origins"]) == ("fed", 0)


@pytest.mark.parametrize("dump", NAN_DUMPS)
def test_a_dump_that_begins_too_late_says_so(dump: str, dumps: Callable[[str], Path], tmp_path: Path, run: Run) -> None:
    copy = writable_copy(dumps(dump), tmp_path / "dump")
    for step in range(4):
        (path,) = copy.glob(f"rank_0/*/0/{step}")
        shutil.rmtree(path)
    code, out, _ = run(copy)
    assert code == 1
    assert "bad already before step 4, the first dumped one (rank 0):\n" in out
    assert "  blocks.0.ln1.gamma\n" in out
    assert out.splitlines()[-1] == "FOUND: bad tensors at step 4, but no origin"


@pytest.mark.parametrize("dump", MLP_DUMPS)
def test_a_dead_activation_is_found_with_watch(dump: str, dumps: Callable[[str], Path], run: Run) -> None:
    code, out, _ = run(dumps(dump), "--watch", "TZ @ category=activation")
    assert code == 1
    assert "act3-ReLU" in out.splitlines()[1]
    assert out.splitlines()[2] == "  out:0: zeros ≥ 100 % → 100 %; its inputs are without such a finding"
    assert "spread: nowhere; it is the only bad tensor of step 0" in out
    assert "> " in out
    assert run(dumps(dump), "--watch", "TL max_gt=1e6")[0] == 0


def test_watch_files_are_taken_too(dumps: Callable[[str], Path], tmp_path: Path, run: Run) -> None:
    file = tmp_path / "w.toml"
    file.write_text("[[watchpoint]]\nwatch = 'TZ @ category=activation'\n")
    assert run(dumps("mindspore-2.10-mlp"), "--watch-file", file)[0] == 1
    file.write_text("[[watchpoint]]\nwatch = 'TZ'\nenabled = false\n")
    assert run(dumps("mindspore-2.10-mlp"), "--watch-file", file)[0] == 2


@pytest.mark.parametrize("dump", MLP_DUMPS)
def test_a_weight_that_stands_still_names_the_node_that_updates_it(
    dump: str, dumps: Callable[[str], Path], run: Run
) -> None:
    _, out, _ = run(dumps(dump), "--watch", "WNC @ fc2.weight")
    lines = out.splitlines()
    assert lines[:3] == [
        "origin: rank 0, step 1  (Parameter)",
        "  fc2.weight",
        "  value: did not change since the previous step",
    ]
    assert lines[3].startswith("  updated by Default/optimizer-SGD/SGD-op")
    assert any(line.startswith("  value ") for line in lines)
    assert "  * the value of before it was written over" in lines


# -- ranks -----------------------------------------------------------------------------------------


def test_it_says_which_rank_was_first(tmp_path: Path, run: Run) -> None:
    writer = write_dump(tmp_path, steps=(0, 1, 2), ranks=(0, 1, 2))
    np.save(one(writer.step(2, rank=0), "MatMul.*.output.*"), NAN)
    np.save(one(writer.step(1, rank=1), "ReLU.*.output.*"), NAN)
    code, out, _ = run(tmp_path)
    assert code == 1
    assert out.startswith("origin: rank 1, step 1  (ReLU)\n")
    assert f"rank 1 was first: step 1, {RELU}\n  ranks 0,2: nothing bad in steps 0,1\n" in out
    assert out.splitlines()[-1] == f"FOUND: 1 origin at step 1 of rank 1: {short(RELU)}"
    assert [row["rank"] for row in document(run, tmp_path)["first_by_rank"]] == [1]


def test_ranks_that_begin_later_in_the_same_step_are_named(tmp_path: Path, run: Run) -> None:
    writer = write_dump(tmp_path, steps=(0,), ranks=(0, 1))
    np.save(one(writer.step(0, rank=0), "ReLU.*.output.*"), NAN)
    np.save(one(writer.step(0, rank=1), "MatMul.*.output.*"), NAN)
    _, out, _ = run(tmp_path)
    assert f"rank 1 was first: step 0, {MATMUL}\n  rank 0: step 0, {RELU}, later in execution order\n" in out
    assert [(row["rank"], row["leads"]) for row in document(run, tmp_path)["first_by_rank"]] == [(1, True), (0, False)]


def test_no_rank_is_first_when_all_begin_with_the_same_tensor(tmp_path: Path, run: Run) -> None:
    writer = write_dump(tmp_path, steps=(0,), ranks=(0, 1))
    for rank in (0, 1):
        np.save(one(writer.step(0, rank=rank), "ReLU.*.output.*"), NAN)
    _, out, _ = run(tmp_path)
    assert f"ranks 0,1 begin together: step 0, {RELU}\n" in out
    assert out.splitlines()[-1] == f"FOUND: 1 origin at step 0 of ranks 0,1: {short(RELU)}"
    assert run(tmp_path, "--rank", "1")[1].startswith("origin: rank 1, step 0")


# -- cannot judge ----------------------------------------------------------------------------------


def test_unreadable_tensors_may_hide_it(tmp_path: Path, run: Run) -> None:
    writer = write_dump(tmp_path, steps=(0,))
    one(writer.step(0), "ReLU.*.output.*").write_bytes(b"")
    code, out, _ = run(tmp_path)
    assert code == 2
    assert "1 unreadable" in out
    assert out.splitlines()[-1] == "cannot judge: 1 tensor cannot be read"
    found = document(run, tmp_path)
    assert (found["verdict"], found["cannot_judge"][0]["node"]) == ("cannot_judge", RELU)
    np.save(one(writer.step(0), "MatMul.*.output.*"), NAN)
    code, out, _ = run(tmp_path)
    assert code == 1, "a finding outranks it"
    assert "cannot judge: 1 tensor cannot be read" in out


def test_nothing_recognisable_and_wrong_arguments(tmp_path: Path, run: Run, dumps: Callable[[str], Path]) -> None:
    dump = dumps("mindspore-2.10-mlp")
    for arguments in (
        (tmp_path,),
        (dump, "--step", "99"),
        (dump, "--rank", "7"),
        (dump, "--filter", "nothing like that"),
        (dump, "--filter", "("),
        (dump, "--watch", "XX"),
        (dump, "--watch", "TL max_gt=high"),
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (2, ""), arguments
        assert err.startswith("tdbg: ")
        assert "Traceback" not in err
        assert document(run, *arguments)["reasons"][0]["kind"] == "error"
    code, out, _ = run(dump, "--watch", "TZ @ nothing like that")
    assert code == 2
    assert out.splitlines()[-1].endswith("looked at no tensor")


@pytest.mark.parametrize("text", ["-1", "x", "1.5"])
def test_a_wrong_spread_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["origin", str(tmp_path), f"--spread={text}"])
    assert stop.value.code == 2
    assert "is not a number of nodes" in capsys.readouterr().err


def test_without_a_graph_the_following_tensors_are_those_executed_next(tmp_path: Path, run: Run) -> None:
    writer = DumpWriter(tmp_path)
    write_step(writer, 0)
    for pattern in ("MatMul.*.output.*", "ReLU.*.input.*", "ReLU.*.output.*"):
        np.save(one(writer.step(0), pattern), NAN)
    code, out, _ = run(tmp_path)
    assert code == 1
    assert "  next in execution order (no graph tells what follows):\n" in out
    assert document(run, tmp_path)["spread"]["by_graph"] is False


# -- foreign text, Ctrl-C --------------------------------------------------------------------------


def test_names_and_code_cannot_write_to_the_terminal(tmp_path: Path, run: Run) -> None:
    source = "# In file /p/\x1b]0;x\x07net.py:3/  \x1b[2Jboom()/"
    graph = Graph((Node("Default/a\x1b[31m/Log-op1", "Log", (("x", 0),), source=source),), ("x",))
    writer = DumpWriter(tmp_path)
    writer.graph(graph)
    write_step(writer, 0, graph)
    np.save(one(writer.step(0), "Log.*.output.*"), NAN)
    code, out, _ = run(tmp_path)
    assert code == 1
    assert "\x1b" not in out
    assert "\\x1b[31m" in out
    assert "boom()" in out


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_says_what_was_covered(as_json: bool, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dump(tmp_path, steps=(0, 1, 2))
    checker = Session._checker

    def pressed(self: Session, *arguments: Any) -> Any:
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        calls.append(arguments)
        return checker(self, *arguments)

    calls: list[Any] = []
    monkeypatch.setattr(Session, "_checker", pressed)
    if as_json:
        found = document(run, tmp_path)
        assert (found["exit_code"], found["verdict"], found["cancelled"]) == (130, "interrupted", True)
        assert [pair["step"] for pair in found["not_looked_at"]] == [2]
    else:
        code, out, _ = run(tmp_path)
        assert code == 130
        assert "steps 0,1; rank 0" in out
        assert out.splitlines()[-1] == "interrupted: 2 of 3 steps looked at; nothing bad so far"
