"""What ``tdbg check`` finds, prints and exits with: real dumps, and dumps written for one question each."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.checking import check
from tests.cli.running import file_of, run
from tests.session.opened import writable_copy
from tests.sources.arrays import write_arrays
from tests.sources.writer import MLP, DumpWriter, Generation, write_dump, write_step

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]

MATMUL, RELU, MOMENTUM = (node.name for node in MLP.nodes)


# -- real dumps ------------------------------------------------------------------------------------


def test_the_recommended_watchpoints_find_the_frozen_weights_and_the_dead_relu(capsys: Capsys, dumps: Dumps) -> None:
    answer = check(capsys, dumps("mindspore-2.0-mlp"), "--limit", "0")
    assert answer.code == 1
    assert "no watchpoint was given: these are the recommended ones" in answer.lines
    frozen = [row.split()[-1] for row in answer.rows if re.search(r"\bWNC\b", row)]
    assert frozen == ["fc2.weight:out:0", "fc3.weight:out:0"] * 5
    dead = [row for row in answer.rows if re.search(r"\bAR\b", row)]
    assert len(dead) == 6
    assert all("act3-ReLU/MatMulBiasAddReluFusion" in row for row in dead)
    assert re.fullmatch(r"FINDINGS: \d+ tensors at steps 0-5", answer.last)


@pytest.mark.parametrize("dump", ["mindspore-2.0-nan", "mindspore-2.10-nan"])
def test_the_first_finding_is_the_logarithm_at_step_3(capsys: Capsys, dumps: Dumps, dump: str) -> None:
    answer = check(capsys, dumps(dump), "--watch", "TO")
    assert answer.code == 1
    first, *rest = answer.rows
    assert re.fullmatch(r"   3  TO     ◆  -Inf 1 of 4 +Default/.*/Log-op\d+:out:0", first)
    assert len(rest) == 19 + 1
    assert re.fullmatch(r"… [\d,]+ more \(--limit 0 prints all\)", rest[-1])
    assert sum("◆" in row for row in rest) == 1
    assert answer.last.endswith("tensors at steps 3-5, 2 origins ◆")


@pytest.mark.parametrize(
    ("dump", "arguments"),
    [
        ("mindspore-2.0-nan", ["--step", "0-2"]),
        ("mindspore-2.10-nan", ["--step", "0-2"]),
        ("mindspore-2.0-mlp", ["--watch", "TO", "--watch", "WO", "--watch", "GE"]),
        ("mindspore-2.10-mlp", ["--watch", "TO"]),
        ("mindspore-2.0-mlp", ["--filter", "fc1"]),
    ],
)
def test_what_is_healthy_is_clean(capsys: Capsys, dumps: Dumps, dump: str, arguments: list[str]) -> None:
    if "--filter" in arguments:  # the first layer changes little, but is not frozen
        arguments = [*arguments, "--watch", "WNC", "--watch", "TO"]
    answer = check(capsys, dumps(dump), *arguments)
    assert (answer.code, answer.last) == (0, "clean")
    assert answer.rows == []


def test_a_hit_says_the_set_and_the_actual_value(capsys: Capsys, dump: Path) -> None:
    values = np.load(file_of(dump, "rank_1/Net/0/2/ReLU*output*"))
    answer = check(capsys, dump, "--watch", f"TL max_gt=-9 @ node={RELU}", "--rank", "1", "--step", "2")
    assert answer.code == 1
    (row,) = answer.rows
    assert row == f"   2  TL       max > -9 → {values.max():.5g}  {RELU}:out:0"


# -- coverage --------------------------------------------------------------------------------------


def test_the_coverage_counts_every_file_once(capsys: Capsys, dump: Path) -> None:
    files = list(dump.rglob("*.npy"))
    outputs = [path for path in files if ".output." in path.name]
    answer = check(capsys, dump, "--watch", "TO")
    assert (
        f"{len(outputs)} tensors checked, 0 unreadable, {len(files) - len(outputs)} skipped, 0 not comparable; "
        "steps 0-2; ranks 0,1"
    ) in answer.lines
    assert f"     {len(outputs)}         0  TO" in answer.lines


def test_counts_have_commas_and_files_add_up(capsys: Capsys, dumps: Dumps) -> None:
    dump = dumps("mindspore-2.10-nan")
    (line,) = [line for line in check(capsys, dump, "--watch", "TO").lines if "checked" in line]
    counts = re.fullmatch(
        r"([\d,]+) tensors checked, 0 unreadable, ([\d,]+) skipped, 0 not .*; steps 0-5; rank 0", line
    )
    assert counts is not None
    checked, skipped = (int(text.replace(",", "")) for text in counts.groups())
    files = [p for p in dump.rglob("*.npy") if p.parent.name.isdigit()]
    assert checked > 1000
    assert checked + skipped == len(files)
    assert f"{checked:,}" == counts[1]


def test_steps_and_ranks_that_do_not_fill_the_grid_are_counted(capsys: Capsys, tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=[0, 1])
    write_step(writer, 0, rank=3)
    (line,) = [line for line in check(capsys, tmp_path, "--watch", "TO").lines if "checked" in line]
    assert line.endswith("; steps 0,1; ranks 0,3; 3 of these pairs: rank 3 without step 1")


def test_rank_and_step_choose_and_are_covered(capsys: Capsys, dump: Path) -> None:
    answer = check(capsys, dump, "--watch", "TO", "--rank", "1", "--step", "0,2")
    assert "6 tensors" not in answer.out
    assert "12 tensors checked, 0 unreadable, 10 skipped, 0 not comparable; steps 0,2; rank 1" in answer.lines


def test_filter_and_graph_choose_nodes(capsys: Capsys, dump: Path) -> None:
    answer = check(capsys, dump, "--watch", "TL max_gt=-9", "--filter", "ReLU$|ReLU-op", "--graph", "0")
    assert {row.split()[-1] for row in answer.rows} == {f"{RELU}:in:0", f"{RELU}:out:0"}
    assert answer.code == 1
    assert check(capsys, dump, "--watch", "TL max_gt=-9", "--filter", "^x$").last == (
        "FINDINGS: 6 tensors at steps 0-2 of ranks 0,1"
    )


# -- not comparable --------------------------------------------------------------------------------


def test_nothing_to_compare_with_is_never_clean(capsys: Capsys, dump: Path) -> None:
    answer = check(capsys, dump, "--watch", "WNC", "--step", "0")
    assert answer.code == 2
    assert answer.rows == []
    assert "2 not comparable" in answer.out
    assert (
        "NOT COMPARED: WNC rtol=1e-05 compared none of its 2 tensors: there is no step before the first dumped one"
        in answer.lines
    )
    why = "compared any tensor: there is no step before the first dumped one"
    assert answer.last == f"cannot judge: no watchpoint {why}"
    named = check(capsys, dump, "--watch", "WNC", "--watch", "TO", "--step", "0", "--fail-on", "WNC")
    assert (named.code, named.last) == (2, f"cannot judge: no watchpoint that can fail this check (WNC) {why}")
    both = check(capsys, dump, "--watch", "WNC", "--watch", "TO", "--step", "0")
    assert "NOT COMPARED" in both.out
    assert both.last == "clean"
    assert "NOT COMPARED" not in check(capsys, dump, "--watch", "WNC").out


# -- cannot judge ----------------------------------------------------------------------------------


def test_an_unreadable_tensor_under_a_watchpoint_is_not_clean(capsys: Capsys, dump: Path) -> None:
    file_of(dump, "rank_1/Net/0/2/ReLU*output*").write_bytes(b"\x93NUMPY")
    answer = check(capsys, dump, "--watch", "TO")
    assert answer.code == 2
    assert answer.last == "cannot judge: 1 tensor cannot be read (--allow-unreadable accepts that)"
    (row,) = answer.rows
    assert re.fullmatch(rf" +2 +1 +TO\? +unreadable, .+  {re.escape(RELU)}:out:0", row)
    assert "35 tensors checked, 1 unreadable" in answer.out
    allowed = check(capsys, dump, "--watch", "TO", "--allow-unreadable")
    assert (allowed.code, allowed.last) == (0, "clean: tensors that could not be judged are allowed")
    elsewhere = check(capsys, dump, "--watch", f"TO @ node={MATMUL}")
    assert (elsewhere.code, elsewhere.last) == (0, "clean")


def test_a_finding_outranks_what_cannot_be_judged(capsys: Capsys, dump: Path) -> None:
    file_of(dump, "rank_0/Net/0/0/ReLU*output*").write_bytes(b"")
    np.save(file_of(dump, "rank_1/Net/0/1/ApplyMomentum*output*"), np.array([np.nan, 1, np.inf]))
    answer = check(capsys, dump, "--watch", "TO")
    assert answer.code == 1
    finding, unsure = answer.rows
    assert "NaN 1 +Inf 1 of 3" in finding
    assert "TO?" in unsure, "findings come first, although this one is of an earlier step"
    assert answer.lines[-2] == "cannot judge: 1 tensor cannot be read (--allow-unreadable accepts that)"
    assert answer.last == "FINDINGS: NaN or Inf in 1 tensor at step 1 of rank 1, 1 origin ◆"


def test_a_missing_previous_step_cannot_be_judged(capsys: Capsys, dump: Path) -> None:
    file_of(dump, "rank_0/Net/0/1/Parameter.fc1*").unlink()
    answer = check(capsys, dump, "--watch", "WNC @ node=fc1.weight", "--rank", "0")
    assert answer.code == 2
    assert answer.last == (
        "cannot judge: 1 tensor could not be compared: no previous step (--allow-unreadable accepts that)"
    )
    assert check(capsys, dump, "--watch", "WNC", "--rank", "0", "--allow-unreadable").code == 0


def test_an_unreadable_previous_step_is_named(capsys: Capsys, dump: Path) -> None:
    file_of(dump, "rank_0/Net/0/1/Parameter.fc1*").write_bytes(b"")
    answer = check(capsys, dump, "--watch", "WNC @ node=fc1.weight", "--rank", "0", "--step", "2")
    assert answer.code == 2
    assert "1 tensor could not be compared: the previous step is unreadable" in answer.last


def test_nothing_readable_at_all_is_never_clean(capsys: Capsys, dump: Path) -> None:
    for path in dump.rglob("*.npy"):
        path.write_bytes(b"")
    answer = check(capsys, dump, "--watch", "TO", "--allow-unreadable")
    assert (answer.code, answer.last) == (2, "cannot judge: no tensor could be read")


@pytest.mark.parametrize(
    ("watch", "why"),
    [
        ("TO @ fc1\\.wieght", ""),
        ("TO @ type=ReLu6", ""),
        ("OO", ": nothing here tells what the device recorded of operators that overflow"),
        ("WI", ": initial values are judged at the first dumped step only"),
    ],
)
def test_a_watchpoint_that_looked_at_nothing_is_not_clean(capsys: Capsys, dump: Path, watch: str, why: str) -> None:
    answer = check(capsys, dump, "--watch", watch, "--watch", "TO", "--step", "1-2")
    assert answer.code == 2
    assert answer.last.endswith(f" looked at no tensor{why} (--allow-unmatched accepts that)")
    allowed = check(capsys, dump, "--watch", watch, "--watch", "TO", "--step", "1-2", "--allow-unmatched")
    assert (allowed.code, allowed.last) == (0, "clean")
    alone = check(capsys, dump, "--watch", watch, "--step", "1-2", "--allow-unmatched")
    assert (alone.code, alone.last) == (2, "cannot judge: no tensor was looked at")


def test_clean_ranks_were_judged_each_by_itself_and_it_is_said_what_compares_them(capsys: Capsys, dump: Path) -> None:
    said = "each rank was judged by itself: tdbg ranks compares what ranks must have in common"
    both = check(capsys, dump, "--watch", "TO", "--step", "0")
    assert (both.code, both.last) == (0, "clean")
    assert said in both.lines
    assert said not in check(capsys, dump, "--watch", "TO", "--step", "0", "--rank", "0").lines


def test_initial_weights_are_judged_at_the_first_step(capsys: Capsys, dump: Path) -> None:
    answer = check(capsys, dump, "--watch", "WI max_gt=-9", "--rank", "0")
    assert answer.code == 1
    (row,) = answer.rows
    assert row.endswith(f"  {MATMUL}:in:1")


def test_a_recommended_watchpoint_without_nodes_is_normal(capsys: Capsys, dump: Path) -> None:
    answer = check(capsys, dump, "--filter", "ReLU", "--fail-on", "TO")
    assert (answer.code, answer.last) == (0, "clean: no finding of TO")
    assert "      0         0  WCL " in answer.out


# -- which findings count --------------------------------------------------------------------------


def test_only_the_named_conditions_fail_the_check(capsys: Capsys, dump: Path) -> None:
    both = ["--watch", "TL max_gt=-9", "--watch", f"TS max_lt=9 @ node={RELU}"]
    answer = check(capsys, dump, *both, "--fail-on", "wnc,TO", "--watch", "WNC", "--watch", "TO")
    assert answer.code == 0
    assert answer.last == "clean: no finding of TO, WNC"
    assert "36 tensors with findings that --fail-on does not name" in answer.lines
    assert len(answer.rows) == 21
    answer = check(capsys, dump, *both, "--fail-on", "tensor_too_small")
    assert answer.code == 1
    assert answer.last == "FINDINGS of TS: 6 tensors at steps 0-2 of ranks 0,1"
    assert "30 tensors with findings that --fail-on does not name" in answer.lines
    assert all(row.endswith((f"{RELU}:in:0", f"{RELU}:out:0")) for row in answer.rows[:6]), (
        "those that count come first"
    )
    twice = check(capsys, dump, *both, "--fail-on", "TS", "--fail-on", "TL")
    assert twice.last == "FINDINGS of TL, TS: 36 tensors at steps 0-2 of ranks 0,1"


def test_what_can_fail_the_check_has_to_look_at_something(capsys: Capsys, dump: Path) -> None:
    answer = check(capsys, dump, "--filter", "ReLU", "--fail-on", "WNC", "--recommended")
    assert (answer.code, answer.last) == (
        2,
        "cannot judge: no watchpoint that can fail this check (WNC) looked at any tensor",
    )


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "rows", "more"), [("5", 5, 31), ("36", 36, 0), ("100", 36, 0), ("0", 36, 0)])
def test_the_table_is_as_long_as_asked(capsys: Capsys, dump: Path, limit: str, rows: int, more: int) -> None:
    answer = check(capsys, dump, "--watch", "TL max_gt=-9", "--limit", limit)
    tail = [f"… {more} more (--limit 0 prints all)"] if more else []
    assert len(answer.rows) == rows + len(tail)
    assert answer.rows[rows:] == tail
    assert [row.split()[:2] for row in answer.rows[:2]] == [["0", "0"], ["0", "1"]], "ranks side by side"


def test_names_from_the_dump_cannot_command_the_terminal(capsys: Capsys, tmp_path: Path) -> None:
    step = DumpWriter(tmp_path / "dump", Generation.V2_3).step(0)
    np.save(step / "Add.Default--a\x1b[2J\nb[bold]-op1.0.0.5.output.0.DefaultFormat.npy", np.array([np.nan, 1]))
    answer = check(capsys, tmp_path / "dump", "--watch", "TO @ \x1b")
    assert answer.code == 1
    assert answer.rows[0].endswith("Default/a\\x1b[2J\\nb[bold]-op1:out:0")
    assert "\x1b" not in answer.out + answer.err


def test_nodes_of_several_graphs_name_their_graph(capsys: Capsys, tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=[0])
    other = type(MLP)(MLP.nodes, MLP.parameters, id=1, root=1)
    writer.graph(other)
    write_step(writer, 0, other)
    answer = check(capsys, tmp_path, "--watch", f"TL max_gt=-9 @ node={RELU}")
    assert [row.split()[-1] for row in answer.rows] == [f"kernel_graph{number}/{RELU}:out:0" for number in (0, 1)]


# -- where words go --------------------------------------------------------------------------------


def test_notices_of_the_dump_go_to_stderr(capsys: Capsys, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    write_step(writer, 0)
    answer = check(capsys, tmp_path, "--watch", "TO")
    assert answer.code == 0
    assert "tdbg: " in answer.err
    assert "graph" in answer.err
    assert "tdbg: " not in answer.out


def test_a_terminal_is_not_assumed(capsys: Capsys, dump: Path) -> None:
    answer = check(capsys, dump)
    assert "\x1b" not in answer.out + answer.err
    assert answer.err == ""


def test_the_dump_is_left_as_it_is(capsys: Capsys, dumps: Dumps, tmp_path: Path) -> None:
    root = writable_copy(dumps("mindspore-2.10-mlp"), tmp_path / "dump")
    before = {path: path.lstat().st_mtime_ns for path in [root, *root.rglob("*")]}
    assert check(capsys, root).code == 1
    assert {path: path.lstat().st_mtime_ns for path in [root, *root.rglob("*")]} == before


def test_a_norm_that_overflowed_is_no_equal_of_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The squares of finite float64 beyond 1e154 are Inf: the norm grew by 1e90, and nothing says so."""
    for step, size in ((1, 1e160), (2, 1e250)):
        write_arrays(tmp_path / f"run/step_{step}", {"x": np.array([3 * size, -4 * size])})
    answer = run(capsys, "check", tmp_path / "run", "--watch", "EX norm > 10*prev.norm @ x")
    assert answer.code == 2
    assert "cannot judge" in answer.out
    assert run(capsys, "check", tmp_path / "run", "--watch", "EX norm > 1000 @ x").code == 1
