"""What ``tdbg export`` writes, says and exits with."""

from __future__ import annotations

import csv
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pytest

from tests.cli.running import file_of
from tests.session.opened import opened, snapshot
from tests.sources.writer import MLP, DumpWriter, Generation
from tui_debugger.cli.main import main
from tui_debugger.text.rows import FLAT_HIT_COLUMNS, flat_hit_rows, hit_row

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]
MATMUL, RELU, MOMENTUM = (node.name for node in MLP.nodes)


def export(capsys: Capsys, *words: object) -> tuple[int, str]:
    """Exit code and stderr; stdout stays empty."""
    code = main(["export", *map(str, words)])
    out, err = capsys.readouterr()
    assert out == ""
    return code, err


RELU_OUT = ("--rank", 1, "--step", 2, "--filter", "ReLU", "--side", "out")


# -- tensors ---------------------------------------------------------------------------------------


def test_one_tensor_as_npy(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.npy"
    code, err = export(capsys, dump, "tensors", *RELU_OUT, "-o", out)
    assert (code, err) == (0, f"tdbg: 1 tensor (24 B) written to {out}\n")
    np.testing.assert_array_equal(np.load(out), np.load(file_of(dump / "rank_1/Net/0/2", "ReLU.*.output.*")))


@pytest.mark.parametrize("name", ["x.npy", "x.csv"])
def test_a_file_of_one_tensor_takes_exactly_one(capsys: Capsys, dump: Path, tmp_path: Path, name: str) -> None:
    code, err = export(capsys, dump, "tensors", "--step", 1, "-o", tmp_path / name)
    assert code == 2
    what, where, do = err.splitlines()
    assert what == f"tdbg: 22 tensors are chosen, but {name[1:]} holds one"
    assert where == f"  where: the first one: rank 0 step 1 {MATMUL}:in:0"
    assert "--slot" in do
    assert not (tmp_path / name).exists()
    code, err = export(capsys, dump, "tensors", "--slot", 9, "-o", tmp_path / name)
    assert (code, err.splitlines()[0]) == (2, "tdbg: no tensor matches")


def test_many_tensors_as_npz_and_directory(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    where = (dump, "tensors", "--category", "weight")
    assert export(capsys, *where, "-o", tmp_path / "w.npz")[0] == 0
    assert export(capsys, *where, "-o", f"{tmp_path}/w/")[0] == 0
    with np.load(tmp_path / "w.npz") as archive:
        names = [f"rank{rank}/step{step}/fc1.weight" for step in (0, 1, 2) for rank in (0, 1)]
        assert archive.files == [f"{name}:out:0" for name in names]
        for name in names:
            rank, step, _ = name.split("/")
            original = np.load(file_of(dump / f"rank_{rank[4:]}/Net/0/{step[4:]}", "Parameter.fc1_weight.*"))
            np.testing.assert_array_equal(archive[f"{name}:out:0"], original)
            np.testing.assert_array_equal(np.load(tmp_path / "w" / f"{name}.out.0.npy"), original)
    assert len((tmp_path / "w" / "index.csv").read_text().splitlines()) == 7


def test_graphs_are_part_of_a_name_where_there_are_several(capsys: Capsys, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump", Generation.V2_0)
    for graph in (0, 1):
        writer.tensor(0, "Add", "Add-op1", np.full(2, graph), graph=graph)
    assert export(capsys, tmp_path / "dump", "tensors", "-o", tmp_path / "x.npz")[0] == 0
    with np.load(tmp_path / "x.npz") as archive:
        assert {name.split("/")[2]: archive[name].tolist() for name in archive.files} == {
            "kernel_graph_0": [0, 0],
            "kernel_graph_1": [1, 1],
        }


def test_values_as_csv_and_a_window_of_them(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    values = np.load(file_of(dump / "rank_1/Net/0/2", "ReLU.*.output.*"))
    assert export(capsys, dump, "tensors", *RELU_OUT, "-o", tmp_path / "x.csv")[0] == 0
    with (tmp_path / "x.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [np.float32(row["value"]) for row in rows] == values.ravel().tolist()
    assert (rows[4]["i0"], rows[4]["i1"]) == ("1", "1")
    out = tmp_path / "y.csv"
    assert export(capsys, dump, "tensors", *RELU_OUT, "-o", out, "--slice", "[1:, 1:]")[0] == 0
    assert out.read_text().splitlines()[0] == '"[1:2, 1:3]",1,2'
    code, err = export(capsys, dump, "tensors", *RELU_OUT, "-o", tmp_path / "z.csv", "--slice", "[7, :]")
    assert (code, err.splitlines()[0]) == (2, "tdbg: index 7 is outside dimension 0, which has 2 elements")


def test_unreadable_tensors_are_left_out_said_and_exit_code_2(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    file_of(dump / "rank_1/Net/0/2", "ReLU.*.output.*").write_bytes(b"")
    code, err = export(capsys, dump, "tensors", "-o", tmp_path / "x.npz", "--side", "out", "--step", 2)
    assert code == 2
    assert err.splitlines() == [
        f"tdbg: 11 tensors (264 B) written to {tmp_path / 'x.npz'}",
        f"tdbg: left out: rank 1 step 2 {RELU}:out:0: is empty",
    ]
    code, err = export(capsys, dump, "tensors", *RELU_OUT, "-o", tmp_path / "x.npy")
    assert (code, err.splitlines()[0]) == (2, "tdbg: is empty")
    for name in ("y.npz", "y.csv", "dir/"):
        assert export(capsys, dump, "tensors", *RELU_OUT, "-o", f"{tmp_path}/{name}")[0] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dump", "x.npz"]


# -- hits ------------------------------------------------------------------------------------------


def test_hits_as_json_and_csv_are_those_of_a_check(capsys: Capsys, dumps: Dumps, tmp_path: Path) -> None:
    path = dumps("mindspore-2.0-nan")
    hits = opened(path, "TO").check(opened(path).pairs()).hits
    watch = ("--watch", "TO @ category=tensor")
    code, err = export(capsys, path, "hits", *watch, "-o", tmp_path / "h.json")
    assert code == 0
    assert err.splitlines() == [
        f"tdbg: {len(hits)} hits written to {tmp_path / 'h.json'}",
        "tdbg: 2,292 tensors checked, 0 unreadable, 3,888 skipped, 0 not comparable; steps 0-5; rank 0",
    ]
    document = json.loads((tmp_path / "h.json").read_text())
    assert document["hits"] == [hit_row(hit) for hit in hits]
    assert document["coverage"]["checked"] == 2292
    assert [(row["text"], row["tensors"]) for row in document["watchpoints"]] == [("TO", 2292)]
    assert export(capsys, path, "hits", *watch, "-o", tmp_path / "h.csv")[0] == 0
    with (tmp_path / "h.csv").open(newline="") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
    assert reader.fieldnames == list(FLAT_HIT_COLUMNS)
    assert rows == [
        {name: "" if value is None else str(value) for name, value in row.items()}
        for hit in hits
        for row in flat_hit_rows(hit)
    ]


def test_hits_of_the_recommended_watchpoints_of_a_file_and_of_a_part(
    capsys: Capsys, dumps: Dumps, tmp_path: Path
) -> None:
    path = dumps("mindspore-2.0-mlp")
    assert export(capsys, path, "hits", "-o", tmp_path / "r.json", "--step", "1-2")[0] == 0
    document = json.loads((tmp_path / "r.json").read_text())
    assert {row["step"] for row in document["hits"]} == {1, 2}
    assert {"fc2.weight", "fc3.weight"} <= {row["node"] for row in document["hits"]}
    (tmp_path / "w.toml").write_text(
        '[[watchpoint]]\nwatch = "TZ zero_percentage_ge=100 @ type=MatMulBiasAddReluFusion"\n'
    )
    assert export(capsys, path, "hits", "-o", tmp_path / "w.json", "--watch-file", tmp_path / "w.toml")[0] == 0
    assert [row["abbr"] for row in json.loads((tmp_path / "w.json").read_text())["watchpoints"]] == ["TZ"]


def test_a_healthy_dump_gives_a_file_without_hits(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    code, err = export(capsys, dump, "hits", "--watch", "TO", "-o", tmp_path / "h.csv")
    assert code == 0
    assert err.startswith("tdbg: 0 hits written")
    assert "tensors checked" in err
    assert (tmp_path / "h.csv").read_text() == ",".join(FLAT_HIT_COLUMNS) + "\n"


# -- graph -----------------------------------------------------------------------------------------


def test_the_graph_as_json_csv_and_workbook(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    for name in ("g.json", "g.csv", "g.xlsx"):
        code, err = export(capsys, dump, "graph", "--rank", 1, "-o", tmp_path / name)
        assert (code, err) == (0, f"tdbg: 6 nodes written to {tmp_path / name}\n")
    nodes = json.loads((tmp_path / "g.json").read_text())["nodes"]
    assert [(node["rank"], node["node"]) for node in nodes] == [
        (1, name) for name in (MATMUL, RELU, MOMENTUM, "x", "fc1.weight", "accum.fc1.weight")
    ]
    matmul, weight = nodes[0], nodes[4]
    assert (matmul["type"], matmul["inputs"], matmul["consumers"]) == ("MatMul", ["x:0", "fc1.weight:0"], [f"{RELU}:0"])
    assert matmul["outputs"] == [{"dtype": "float32", "shape": [2, 3]}]
    assert (weight["category"], weight["consumers"]) == ("weight", [f"{MATMUL}:1", f"{MOMENTUM}:0"])
    with (tmp_path / "g.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["node"] for row in rows] == [node["node"] for node in nodes]
    assert (rows[0]["inputs"], rows[0]["outputs"]) == ("x:0; fc1.weight:0", "float32[2, 3]")
    book = openpyxl.load_workbook(tmp_path / "g.xlsx")
    assert book.sheetnames == ["info", "constant", "parameter", "operator", "statistics", "source"]
    assert [cell.value for cell in book["operator"]["J"]] == ["full_name", MATMUL, RELU, MOMENTUM]


def test_a_drawing_has_the_findings_of_the_steps_that_are_asked_for(
    capsys: Capsys, dumps: Dumps, tmp_path: Path
) -> None:
    where = (dumps("mindspore-2.0-nan"), "graph", "--around", "Log-op381", "--hops", "1")
    code, err = export(capsys, *where, "--watch", "TO", "-o", tmp_path / "x.dot")
    assert (code, err.splitlines()[0]) == (0, f"tdbg: 3 nodes and 2 edges written to {tmp_path / 'x.dot'}")
    assert "2,292 tensors checked" in err
    text = (tmp_path / "x.dot").read_text("utf-8")
    assert '"◆ Log-op381"' in text
    assert '"✗ ReduceSum-op382"' in text
    assert '"ReduceSum-op380"' in text
    assert export(capsys, *where, "--step", "0-2", "-o", tmp_path / "y.gv")[0] == 0
    text = (tmp_path / "y.gv").read_text("utf-8")
    assert '"Log-op381"' in text
    assert "penwidth=4" in text
    code, err = export(capsys, *where, "--no-marks", "-o", tmp_path / "z.gv")
    assert (code, "nothing was checked" in err) == (0, True)
    assert "◆ Log" not in (tmp_path / "z.gv").read_text("utf-8")


def test_a_part_of_the_graph_as_a_table(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    where = (dump, "graph", "--rank", 0)
    assert export(capsys, *where, "--around", "ReLU", "--hops", 1, "-o", tmp_path / "g.json")[0] == 0
    nodes = json.loads((tmp_path / "g.json").read_text())["nodes"]
    assert {RELU, MATMUL} <= {node["node"] for node in nodes}
    assert export(capsys, *where, "-o", tmp_path / "whole.json")[0] == 0
    assert len(nodes) < len(json.loads((tmp_path / "whole.json").read_text())["nodes"])


def test_a_filter_narrows_the_graph(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    assert export(capsys, dump, "graph", "--filter", "fc1[.]", "-o", tmp_path / "g.json")[0] == 0
    nodes = json.loads((tmp_path / "g.json").read_text())["nodes"]
    assert [(node["rank"], node["node"]) for node in nodes] == [
        (rank, name) for rank in (0, 1) for name in ("fc1.weight", "accum.fc1.weight")
    ]


def test_a_workbook_without_openpyxl(
    capsys: Capsys, dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    code, err = export(capsys, dump, "graph", "-o", tmp_path / "g.xlsx")
    assert code == 2
    assert err.startswith("tdbg: writing .xlsx needs openpyxl")
    assert ".csv" in err
    assert not (tmp_path / "g.xlsx").exists()


# -- where, and what not ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "name"),
    [("tensors", "x.npz"), ("tensors", "x.npy"), ("tensors", "x.csv"), ("hits", "x.csv"), ("hits", "x.json"),
     ("graph", "x.csv"), ("graph", "x.json"), ("graph", "x.xlsx"), ("graph", "x.dot")],
)  # fmt: skip
def test_an_existing_file_is_replaced_by_force_only(
    capsys: Capsys, dump: Path, tmp_path: Path, what: str, name: str
) -> None:
    out = tmp_path / name
    out.write_text("mine")
    where = (dump, what, *(RELU_OUT if what == "tensors" else ()), "-o", out)
    code, err = export(capsys, *where)
    assert code == 2
    assert err.splitlines() == [
        "tdbg: there is something of that name already",
        f"  where: {out}",
        "  do:    choose another name, or --force to replace it",
    ]
    assert out.read_text() == "mine"
    assert export(capsys, *where, "--force")[0] == 0
    assert out.read_bytes() != b"mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["dump", name])


def test_a_directory_with_files_is_added_to_by_force_only(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert export(capsys, dump, "tensors", *RELU_OUT, "-o", out)[0] == 0
    code, err = export(capsys, dump, "tensors", *RELU_OUT, "-o", out)
    assert (code, err.splitlines()[2]) == (2, "  do:    choose another name, or --force to add to it")
    assert export(capsys, dump, "tensors", "--step", 0, "--rank", 0, "-o", out, "--force")[0] == 0
    assert len(list(out.rglob("*.npy"))) == 12


@pytest.mark.parametrize("what", ["tensors", "hits", "graph"])
def test_a_dump_is_never_written_to(capsys: Capsys, dump: Path, what: str) -> None:
    before = snapshot(dump)
    for name in ("x.csv", "rank_0/x.csv"):
        code, err = export(capsys, dump, what, "-o", dump / name, *(RELU_OUT if what == "tensors" else ()))
        assert (code, err.splitlines()[0]) == (2, "tdbg: a dump is never written to")
    assert export(capsys, dump, "tensors", "-o", f"{dump}/out/")[0] == 2
    assert snapshot(dump) == before


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["tensors", "-o", "x.txt"], "what tensors should be written as is not clear"),
        (["hits", "-o", "x.npy"], "what hits should be written as is not clear"),
        (["graph", "-o", "x"], "what graph should be written as is not clear"),
        (["graph", "-o", "no/where/x.csv"], "the file could not be written: No such file or directory"),
        (["tensors", "-o", "no/where/"], "the directory could not be written: No such file or directory"),
        (["hits", "-o", "x.csv", "--side", "in"], "--side has no meaning here"),
        (["hits", "-o", "x.csv", "--slice", "0"], "--slice has no meaning here"),
        (["tensors", "-o", "x.npz", "--slice", "0"], "--slice has no meaning here"),
        (["tensors", "-o", "x.npz", "--watch", "TO"], "--watch has no meaning here"),
        (["graph", "-o", "x.csv", "--step", "0"], "--step has no meaning here"),
        (["graph", "-o", "x.dot", "--step", "0", "--no-marks"], "--step has no meaning here"),
        (["graph", "-o", "x.dot", "--watch", "TO", "--no-marks"], "--watch has no meaning here"),
        (["graph", "-o", "x.csv", "--watch", "TO"], "--watch has no meaning here"),
        (["graph", "-o", "x.csv", "--no-marks"], "--no-marks has no meaning here"),
        (["graph", "-o", "x.dot", "--hops", "3"], "--hops has no meaning here"),
        (["hits", "-o", "x.csv", "--around", "ReLU"], "--around has no meaning here"),
        (["graph", "-o", "x.dot", "--around", "nosuch"], "no node is called 'nosuch'"),
        (["graph", "-o", "x.dot", "--scope", "nosuch"], "no node is inside this scope"),
        (["hits", "-o", "x.csv", "--watch", "XX"], ""),
        (["hits", "-o", "x.csv", "--watch-file", "none.toml"], ""),
        (["tensors", "-o", "x.npz", "--category", "wight"], "no category is called 'wight'"),
        (["graph", "-o", "x.csv", "--rank", "7"], "rank 7 is not in this dump"),
    ],
)
def test_mistakes_are_said_in_parts(
    capsys: Capsys, dump: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], what: str
) -> None:
    monkeypatch.chdir(dump.parent)
    code, err = export(capsys, dump, *words)
    assert code == 2
    assert err.startswith(f"tdbg: {what}")
    assert "\n  do:" in err
    assert main(["export", str(dump), *words, "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["command"], document["exit_code"]) == ("export", 2)
    assert document["error"]["what"].startswith(what)
    assert [path.name for path in dump.parent.iterdir()] == ["dump"]


def test_json_says_what_was_written(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    file_of(dump / "rank_1/Net/0/2", "ReLU.*.output.*").write_bytes(b"")
    out = tmp_path / "x.npz"
    assert main(["export", str(dump), "tensors", "--step", "2", "-o", str(out), "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert list(document)[:3] == ["schema", "command", "path"]
    assert (document["output"], document["tensors"], document["nbytes"]) == (str(out), 21, 21 * 24)
    assert [(row["node"], row["error"]) for row in document["left_out"]] == [(RELU, "is empty")]
    assert main(["export", str(dump), "hits", "-o", str(tmp_path / "h.csv"), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["coverage"]["unreadable"] == 1
    assert main(["export", str(dump), "graph", "-o", str(tmp_path / "g.csv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nodes"] == 12


@pytest.mark.parametrize("words", [["tensors", "-o", "x.npz"], ["tensors", "-o", "x/"], ["hits", "-o", "x.csv"]])
def test_an_interrupt_leaves_nothing_half(
    capsys: Capsys, dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """A real Ctrl-C while the second half is being read."""
    from tui_debugger.check import measure
    from tui_debugger.session import export_files

    calls: list[Any] = []

    def pressed(real: Callable[..., Any], after: int) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            calls.append(given)
            if len(calls) == after:
                os.kill(os.getpid(), signal.SIGINT)
            return real(*given, **named)

        return call

    monkeypatch.setattr(export_files, "open_lazily", pressed(export_files.open_lazily, 30))
    monkeypatch.setattr(measure, "scan", pressed(measure.scan, 2))
    monkeypatch.chdir(tmp_path)
    code, err = export(capsys, dump, *words)
    assert code == 130
    assert "interrupted" in err
    assert [path.name for path in tmp_path.iterdir()] == ["dump"]


def test_help_says_that_check_judges(capsys: Capsys) -> None:
    with pytest.raises(SystemExit):
        main(["export", "--help"])
    assert "`tdbg check` is what judges hits" in capsys.readouterr().out
