"""``tdbg ls --steps``: the run history and the dumped steps, against the files on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import run
from tests.sources.writer import DumpWriter, Generation, Graph, Node, write_dump, write_step

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]


@pytest.mark.parametrize("dump", ["mindspore-2.0-nan", "mindspore-2.10-mlp"])
def test_every_step_with_its_number_of_files(capsys: Capsys, dumps: Dumps, dump: str) -> None:
    path = dumps(dump)
    answer = run(capsys, "ls", "--steps", path, "--json")
    assert answer.code == 0
    runs = answer.json["runs"]
    assert [run_["step"] for run_ in runs] == [0, 1, 2, 3, 4, 5]
    for row in runs:
        (step,) = path.glob(f"rank_0/*/0/{row['step']}")
        assert row["tensors"] == len(list(step.glob("*.npy")))
        assert (row["rank"], row["root_graph"], row["has_data"]) == (0, 0, True)
        assert row["graph"] in ("kernel_graph_0", "kernel_graph0")
    (graph,) = answer.json["graphs"]
    assert (graph["ran"], graph["dumped"]) == ("0-5", "0-5")


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Graph 0 ran at steps 0 to 4, dumped at 0, 2 and 3; graph 1 ran and was dumped at step 2."""
    writer = DumpWriter(tmp_path / "dump", Generation.V2_10)
    graphs = [
        Graph((Node(f"Default/net{number}-Net/Add-op{number}", "Add", (("x", 0),)),), ("x",), id=number, root=number)
        for number in (0, 1)
    ]
    for graph, ran in zip(graphs, ((0, 1, 2, 3, 4), (2,)), strict=True):
        writer.graph(graph)
        writer.history(ran, graph=graph.root)
    for step, graph in ((0, 0), (2, 0), (2, 1), (3, 0)):  # in the order in which they ran: time stamps tell it
        write_step(writer, step, graphs[graph])
    return writer.root


def test_steps_that_ran_without_being_dumped(capsys: Capsys, history: Path) -> None:
    answer = run(capsys, "ls", "--steps", history)
    assert answer.code == 0
    assert [line.split() for line in answer.lines] == [
        ["rank", "step", "root", "data", "tensors", "graph"],
        ["0", "0", "0", "yes", "3", "kernel_graph0"],
        ["0", "1", "0", "no", "0", "kernel_graph0"],
        ["0", "2", "0", "yes", "3", "kernel_graph0"],
        ["0", "2", "1", "yes", "3", "kernel_graph1"],
        ["0", "3", "0", "yes", "3", "kernel_graph0"],
        ["0", "4", "0", "no", "0", "kernel_graph0"],
        [],
        ["rank", "ran", "at", "steps", "dumped", "graph"],
        ["0", "0-4", "0,2,3", "kernel_graph0"],
        ["0", "2", "2", "kernel_graph1"],
    ]


def test_one_graph(capsys: Capsys, history: Path) -> None:
    rows = run(capsys, "ls", "--steps", history, "--graph", "1", "--json").json["runs"]
    assert [(row["step"], row["root_graph"], row["tensors"]) for row in rows] == [(2, 1, 3)]


def test_only_nodes_that_match_are_counted(capsys: Capsys, history: Path) -> None:
    rows = run(capsys, "ls", "--steps", history, "--filter", "Add-op0$", "--json").json["runs"]
    assert [(row["step"], row["root_graph"], row["tensors"]) for row in rows] == [
        *((0, 0, 2), (1, 0, 0), (2, 0, 2), (3, 0, 2), (4, 0, 0))
    ]


def test_chosen_steps_may_be_ones_that_were_not_dumped(capsys: Capsys, history: Path) -> None:
    rows = run(capsys, "ls", "--steps", history, "--step", "1-2", "--json").json["runs"]
    assert [row["step"] for row in rows] == [1, 2, 2]
    answer = run(capsys, "ls", "--steps", history, "--step", "7")
    assert (answer.code, answer.out) == (2, "")
    assert "step 7 is not in this dump" in answer.err
    assert "there is step 0-4" in answer.err


def test_ranks(capsys: Capsys, tmp_path: Path) -> None:
    root = write_dump(tmp_path / "dump", ranks=(0, 1), steps=(0, 1)).root
    rows = run(capsys, "ls", "--steps", root, "--json").json["runs"]
    assert [(row["step"], row["rank"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [row["rank"] for row in run(capsys, "ls", "--steps", root, "--rank", "1", "--json").json["runs"]] == [1, 1]
    answer = run(capsys, "ls", "--steps", root, "--rank", "5")
    assert answer.code == 2
    assert "rank 5 is not in this dump" in answer.err


def test_a_derived_history_is_said(capsys: Capsys, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump")
    write_step(writer, 3)
    answer = run(capsys, "ls", "--steps", writer.root)
    assert answer.code == 0
    assert "no run history: derived from the dumped steps" in answer.err
    assert "derived" not in answer.out
    document = run(capsys, "ls", "--steps", writer.root, "--json")
    assert any("derived" in notice for notice in document.json["notices"])
    assert document.err == ""


def test_many_steps_are_counted_only_when_asked(capsys: Capsys, history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui_debugger.cli.ls_steps.COUNTED", 2)
    answer = run(capsys, "ls", "--steps", history)
    assert answer.lines[0].split() == ["rank", "step", "root", "data", "graph"]
    assert "3 steps were not counted; --count" in answer.err
    counted = run(capsys, "ls", "--steps", history, "--count", "--json").json["runs"]
    assert [row["tensors"] for row in counted] == [3, 0, 3, 3, 3, 0]
    quiet = run(capsys, "ls", "--steps", history, "--no-count")
    assert "tensors" not in quiet.lines[0]
    assert "not counted" not in quiet.err
    assert {row["tensors"] for row in run(capsys, "ls", "--steps", history, "--no-count", "--json").json["runs"]} == {
        None
    }


def test_constants_are_no_tensors_of_a_step(capsys: Capsys, tmp_path: Path) -> None:
    writer = write_dump(tmp_path / "dump", steps=(0,))
    before = run(capsys, "ls", "--steps", writer.root, "--json").json["runs"]
    writer.constant(0, np.ones(2, np.float32))
    assert run(capsys, "ls", "--steps", writer.root, "--json").json["runs"] == before


def test_no_dump(capsys: Capsys, tmp_path: Path) -> None:
    answer = run(capsys, "ls", "--steps", tmp_path / "nowhere")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("tdbg: ")


def test_runs_are_listed_in_the_order_in_which_they_ran(capsys: Capsys, dumps: Dumps) -> None:
    """Two runs of the discriminator were written into directory 1, the second one after step 2 of the generator."""
    path = dumps("mindspore-2.10-multi-gan")
    answer = run(capsys, "ls", "--steps", path, "--json")
    ran = [(run_["root_graph"], run_["step"], run_["round"]) for run_ in answer.json["runs"]]
    assert ran == [(0, 0, 0), (0, 1, 1), (1, 2, 0), (0, 1, 2), (1, 3, 0), (0, 2, 0), (1, 4, 0), (0, 3, 0), (1, 5, 0)]
    assert {run_["tensors"] for run_ in answer.json["runs"] if run_["root_graph"] == 0} == {313}
    lines = run(capsys, "ls", "--steps", path).lines
    assert any(line.split()[:3] == ["0", "1#2", "0"] for line in lines)
    assert lines[-1] == "runs are listed in the order in which they ran, which is not that of their steps"


def test_a_graph_that_ran_out_of_order_says_so(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "ls", "--steps", dumps("mindspore-2.10-multi-order"), "--json")
    assert [(graph["ran"], graph["in_order"]) for graph in answer.json["graphs"]] == [
        ("0-5", True),
        ("2,1,4,3,6,5", False),
    ]


def test_branches_and_loop_bodies_are_sub_graphs(capsys: Capsys, dumps: Dumps) -> None:
    path = dumps("mindspore-2.0-multi-flow")
    graphs = run(capsys, "ls", "--steps", path, "--json").json["graphs"]
    assert [graph["root_graph"] for graph in graphs if graph["is_root"]] == [0]
    lines = run(capsys, "ls", "--steps", path, "--step", "0").lines
    assert any(line.endswith("kernel_graph_16  sub graph") for line in lines)
