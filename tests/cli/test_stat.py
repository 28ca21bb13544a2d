"""What ``tdbg stat`` prints, streams and exits with."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.running import file_of
from tests.session.opened import snapshot, writable_copy
from tests.sources.writer import MLP, DumpWriter, Generation
from tui_debugger.cli.main import main
from tui_debugger.cli.stat import COLUMNS, SORTABLE
from tui_debugger.stats.records import ReadRequests
from tui_debugger.text.rows import STATS_COLUMNS

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]
MATMUL, RELU, MOMENTUM = (node.name for node in MLP.nodes)


def rows_of(capsys: Capsys, *words: object) -> tuple[int, list[dict[str, str]], str]:
    """Exit code, rows of the CSV, and stderr."""
    code = main(["stat", *map(str, words), "--csv"])
    out, err = capsys.readouterr()
    return code, list(csv.DictReader(io.StringIO(out))), err


def document_of(capsys: Capsys, *words: object) -> tuple[int, dict[str, Any], str]:
    """Exit code, the JSON document, and stderr."""
    code = main(["stat", *map(str, words), "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")), err


def test_every_row_holds_what_numpy_says_to_the_last_digit(capsys: Capsys, dump: Path) -> None:
    special = np.array([[np.nan, np.inf, -np.inf], [0.0, -0.0, 3.5]], np.float32)
    np.save(file_of(dump / "rank_1/Net/0/2", "ReLU.*.output.*"), special)
    code, rows, err = rows_of(capsys, dump)
    assert code == 0
    assert err == "tdbg: 66 tensors, 0 unreadable\n"
    assert len(rows) == 66
    for row in rows:
        short = row["node"].replace("/", "_").replace(".", "_")
        directory = dump / f"rank_{row['rank']}/Net/0/{row['step']}"
        values = np.load(file_of(directory, f"*.{short}.0.0.*.{row['side']}.{row['slot']}.*.npy")).astype(np.float64)
        finite = values[np.isfinite(values)]
        assert (row["dtype"], row["shape"], row["count"], row["nbytes"]) == ("float32", "(2, 3)", "6", "24")
        counts = (np.isnan(values), values == np.inf, values == -np.inf, values == 0, finite < 0, finite > 0)
        names = ("nan", "pos_inf", "neg_inf", "zero", "negative", "positive")
        assert [int(row[name]) for name in names] == [int(count.sum()) for count in counts]
        assert (float(row["min"]), float(row["max"])) == (finite.min(), finite.max())
        assert math.isclose(float(row["mean"]), finite.mean(), rel_tol=1e-12)
        assert math.isclose(float(row["abs_mean"]), np.abs(finite).mean(), rel_tol=1e-12)
        assert math.isclose(float(row["std"]), finite.std(), rel_tol=1e-9)
        assert math.isclose(float(row["norm"]), np.sqrt((finite**2).sum()), rel_tol=1e-12)
        assert (row["recorded"], row["error"]) == ("0", "")


def test_columns_are_those_that_hits_have_too() -> None:
    assert SORTABLE == STATS_COLUMNS
    assert len(set(COLUMNS)) == len(COLUMNS)


def test_json_says_the_same_as_csv(capsys: Capsys, dump: Path) -> None:
    _, rows, _ = rows_of(capsys, dump)
    code, document, err = document_of(capsys, dump)
    assert code == 0
    assert list(document)[:3] == ["schema", "command", "path"]
    assert (document["command"], document["path"], document["exit_code"]) == ("stat", str(dump), 0)
    assert document["coverage"] == {"tensors": 66, "unreadable": 0, "recorded": 0, "interrupted": False}
    assert err == ""
    for row, other in zip(document["tensors"], rows, strict=True):
        shape = str(tuple(row["shape"]))
        texts = {**{k: "" if v is None else str(v) for k, v in row.items()}, "shape": shape}
        assert {**texts, "recorded": str(int(row["recorded"])), "at_least": ""} == other


def test_the_table_is_for_people(capsys: Capsys, dumps: Dumps) -> None:
    code = main(["stat", str(dumps("mindspore-2.0-nan")), "--step", "3", "--filter", "/Log-op"])
    out, err = capsys.readouterr()
    head, *rows, empty, last = out.splitlines()
    assert (code, err, empty) == (0, "", "")
    assert head.split() == (
        [
            "step",
            "dtype",
            "shape",
            "count",
            "NaN",
            "+Inf",
            "-Inf",
            "zero",
            "min",
            "max",
            "mean",
            "mean",
            "|x|",
            "std",
            "norm",
            "tensor",
        ]
    )
    name = "Default/network-WithLossCell/_backbone-Net/Log-op381"
    assert [[*row.split()[:8], row.split()[-1]] for row in rows] == [
        ["3", "float32", "4", "4", "0", "0", "0", "1", f"{name}:in:0"],
        ["3", "float32", "4", "4", "0", "0", "1", "0", f"{name}:out:0"],
    ]
    assert last == "2 tensors, 0 unreadable"


def test_a_part_is_chosen_by_rank_step_node_side_slot_and_category(capsys: Capsys, dump: Path) -> None:
    def found(*words: str) -> list[tuple[str, ...]]:
        code, rows, _ = rows_of(capsys, dump, "--rank", "1", "--step", "1", *words)
        assert code == 0
        assert {(row["rank"], row["step"]) for row in rows} == {("1", "1")}
        return [(row["node"], row["side"], row["slot"]) for row in rows]

    assert found("--filter", "ReLU") == [(RELU, "input", "0"), (RELU, "output", "0")]
    assert found("--filter", "ReLU", "--side", "in") == [(RELU, "input", "0")]
    assert found("--slot", "1-9") == [(MATMUL, "input", "1"), (MOMENTUM, "input", "1")]
    assert found("--category", "weight,optimizer_state") == [
        ("fc1.weight", "output", "0"),
        ("accum.fc1.weight", "output", "0"),
    ]


def test_constants_come_when_they_are_named(capsys: Capsys, dumps: Dumps) -> None:
    where = (dumps("mindspore-2.0-nan"), "--step", "0", "--filter", "^cst1$")
    assert main(["stat", *map(str, where)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "tdbg: no tensor matches"
    assert "--category" in err
    code, (row,), _ = rows_of(capsys, *where, "--category", "constant")
    assert (code, row["node"], row["min"]) == (0, "cst1", "-1.0")


def test_sorting_by_a_field_puts_the_greatest_first_and_the_unknown_last(capsys: Capsys, dump: Path) -> None:
    np.save(file_of(dump / "rank_1/Net/0/2", "ReLU.*.output.*"), np.full((2, 3), np.nan, np.float32))
    for field in ("max", "abs_mean", "nan"):
        _, rows, _ = rows_of(capsys, dump, "--sort", field)
        values = [float(row[field]) for row in rows if row[field]]
        assert values == sorted(values, reverse=True)
        assert [bool(row[field]) for row in rows] == sorted((bool(row[field]) for row in rows), reverse=True)
        _, best, _ = rows_of(capsys, dump, "--sort", field, "--limit", 5)
        assert best == rows[:5]
    _, rows, _ = rows_of(capsys, dump, "--sort", "min", "--reverse")
    values = [float(row["min"]) for row in rows if row["min"]]
    assert values == sorted(values)
    assert (rows[-1]["node"], rows[-1]["min"], rows[-1]["nan"]) == (RELU, "", "6")


def test_a_limit_ends_the_work(capsys: Capsys, dump: Path) -> None:
    _, rows, _ = rows_of(capsys, dump)
    code, first, err = rows_of(capsys, dump, "--limit", 3)
    assert (code, first) == (0, rows[:3])
    assert err == "tdbg: 3 tensors, 0 unreadable\n"


def test_an_unreadable_tensor_is_a_row_with_its_reason(capsys: Capsys, dump: Path) -> None:
    file_of(dump / "rank_0/Net/0/1", "ReLU.*.output.*").write_bytes(b"\x93NUMPY")
    where = (dump, "--rank", "0", "--step", "1")
    code, rows, err = rows_of(capsys, *where)
    assert code == 2
    assert err == "tdbg: 11 tensors, 1 unreadable\n"
    (row,) = [row for row in rows if row["error"]]
    assert (row["node"], row["side"], row["dtype"], row["shape"], row["max"]) == (RELU, "output", "", "", "")
    assert row["error"] == "ends inside its header"
    code, document, _ = document_of(capsys, *where)
    assert (code, document["coverage"]["unreadable"]) == (2, 1)
    assert main(["stat", *map(str, where)]) == 2
    out = capsys.readouterr().out
    assert f"{RELU}:out:0  ! ends inside its header" in out
    assert out.splitlines()[-1] == "11 tensors, 1 unreadable"


def test_nothing_but_unreadable_tensors_is_exit_code_2(capsys: Capsys, dump: Path) -> None:
    for path in dump.rglob("*.npy"):
        path.write_bytes(b"")
    code, rows, err = rows_of(capsys, dump)
    assert (code, len(rows)) == (2, 66)
    assert err == "tdbg: 66 tensors, 66 unreadable\n"
    code, document, _ = document_of(capsys, dump)
    assert (code, document["exit_code"]) == (2, 2)


def test_statistics_that_the_dump_recorded(capsys: Capsys, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    writer.metadata()
    writer.graph(MLP)
    writer.statistics(0, [("ReLU", "ReLU-op2", "output", 0, np.array([[1.0, -2.0], [np.nan, 4.0]], np.float32))])
    code, (row,), err = rows_of(capsys, tmp_path)
    assert code == 0
    assert err == "tdbg: 1 tensor, 0 unreadable, 1 with recorded statistics only\n"
    assert (row["recorded"], row["count"], row["nan"], row["min"], row["max"]) == ("1", "4", "1", "-2.0", "4.0")
    assert (row["std"], row["norm"], row["abs_mean"]) == ("", "", "")
    main(["stat", str(tmp_path)])
    assert f"{RELU}:out:0  (recorded)" in capsys.readouterr().out


def test_foreign_names_are_made_safe_for_the_terminal(capsys: Capsys, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_10)
    writer.metadata()
    writer.tensor(0, "Add", "evil\x1b[2J\n=1+1", np.ones(2, np.float32))
    for option in ([], ["--csv"]):
        assert main(["stat", str(tmp_path), *option]) == 0
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert "evil\\x1b[2J\\n=1+1" in out
    _, document, _ = document_of(capsys, tmp_path)
    assert document["tensors"][0]["node"].endswith("evil\x1b[2J\n=1+1")


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        (["--category", "wight"], "no category is called 'wight'", "weight"),
        (["--filter", "("], "not a regular expression", "escape"),
        (["--filter", "nowhere"], "no node matches", "tdbg ls"),
        (["--filter", "ReLU", "--slot", "7"], "no tensor matches", "tdbg ls"),
        (["--step", "9"], "step 9 is not in this dump", "0-2"),
        (["--rank", "3"], "rank 3 is not in this dump", "0,1"),
        (["--reverse"], "--reverse needs --sort", "--sort"),
    ],
)
def test_mistakes_are_said_and_exit_code_2(capsys: Capsys, dump: Path, words: list[str], what: str, hint: str) -> None:
    assert main(["stat", str(dump), *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"tdbg: {what}")
    assert hint in err.partition("  do:")[2]
    code, document, err = document_of(capsys, dump, *words)
    assert code == document["exit_code"] == 2
    assert document["error"]["what"].startswith(what)
    assert err.startswith(f"tdbg: {what}")


@pytest.mark.parametrize("words", [["--sort", "size"], ["--limit", "0"], ["--limit", "x"], ["--side", "up"]])
def test_wrong_words_end_with_usage(capsys: Capsys, dump: Path, words: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["stat", str(dump), *words])
    assert end.value.code == 2
    assert "usage: tdbg stat" in capsys.readouterr().err


def test_no_dump_and_two_formats_at_once(capsys: Capsys, tmp_path: Path, dump: Path) -> None:
    assert main(["stat", str(tmp_path / "nothing")]) == 2
    assert main(["stat", str(dump), "--csv", "--json"]) == 2
    assert "exclude each other" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["--json", "--csv", "--limit=999"])
def test_an_interrupt_leaves_what_was_finished_and_says_so(
    capsys: Capsys, dump: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """A real Ctrl-C in the middle: sent when the third step begins to be measured."""
    from tui_debugger.check import measure

    real = measure.scan

    def pressed(requests: ReadRequests, *more: Any, **named: Any) -> None:
        if b"/2/" in requests.specs.paths[0]:
            os.kill(os.getpid(), signal.SIGINT)
        real(requests, *more, **named)

    monkeypatch.setattr(measure, "scan", pressed)
    assert main(["stat", str(dump), form]) == 130
    out, err = capsys.readouterr()
    line = "44 tensors, 0 unreadable; interrupted"
    if form == "--json":
        document = json.loads(out)
        assert document["exit_code"] == 130
        assert document["coverage"]["interrupted"]
        assert [row["step"] for row in document["tensors"]] == [0] * 22 + [1] * 22
    elif form == "--csv":
        assert len(out.splitlines()) == 45
    else:
        assert out.splitlines()[-1] == line
    assert form.startswith("--limit") or err == ("" if form == "--json" else f"tdbg: {line}\n")


def test_a_reader_that_leaves_ends_it_quietly(dumps: Dumps) -> None:
    command = f"{sys.executable} -m tui_debugger stat {dumps('mindspore-2.0-nan')} --csv | head -n 2"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 2
    assert "Traceback" not in done.stderr


def test_nothing_in_the_dump_is_touched(capsys: Capsys, tmp_path: Path, dumps: Dumps) -> None:
    copy = writable_copy(dumps("mindspore-2.0-mlp"), tmp_path / "copy")
    before = snapshot(copy)
    assert main(["stat", str(copy), "--csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 500
    assert snapshot(copy) == before
