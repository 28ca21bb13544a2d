"""``tdbg ls``: which nodes, in which order, with how many files; expected values from the files and their names."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import Answer, run
from tests.session.opened import writable_copy
from tests.sources.memory import MemorySource, Op
from tests.sources.writer import DumpWriter, Generation, Graph, Node, write_dump, write_step
from tui_debugger.model import Side

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]

NAN, MLP = "mindspore-2.0-nan", "mindspore-2.10-mlp"
DIV = "Default/network-WithLossCell/_backbone-Net/norm-RowNorm/Div-op385"
ROWNORM = (
    "Default/network-WithLossCell/_backbone-Net/norm-RowNorm/Abs-op379",
    "Default/network-WithLossCell/_backbone-Net/norm-RowNorm/ReduceSum-op384",
    DIV,
)


def names(answer: Answer) -> list[str]:
    """The names in a table whose header ends with ``name``."""
    at = answer.lines[0].index("name")
    return [line[at:] for line in answer.lines[1:]]


@pytest.mark.parametrize("dump", [NAN, MLP])
def test_operators_stand_in_the_order_of_the_execution_order_file(capsys: Capsys, dumps: Dumps, dump: str) -> None:
    path = dumps(dump)
    order = (path / "rank_0/execution_order/ms_execution_order_graph_0.csv").read_text().split()[1:]
    answer = run(capsys, "ls", path)
    assert answer.code == 0
    listed = [name for name in names(answer) if name in order]
    assert listed == sorted(listed, key=order.index)
    assert len(listed) > 40


@pytest.mark.parametrize("dump", [NAN, MLP])
def test_every_file_of_the_last_step_is_counted_at_one_node(capsys: Capsys, dumps: Dumps, dump: str) -> None:
    path = dumps(dump)
    nodes = run(capsys, "ls", path, "--json").json["nodes"]
    (step,) = path.glob("rank_0/*/0/5")
    files = [file.name for file in step.glob("*.npy")]
    assert {node["step"] for node in nodes} == {5}
    constants = [node for node in nodes if node["category"] == "constant"]
    others = [node for node in nodes if node["category"] != "constant"]
    assert sum(node["dumped_inputs"] for node in others) == sum(".input." in name for name in files)
    assert sum(node["dumped_outputs"] for node in others) == sum(".output." in name for name in files)
    assert sum(node["dumped_outputs"] for node in constants) == len(list(step.parent.glob("constants/*.npy")))


def test_the_table_shows_type_category_files_and_name(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "ls", dumps(NAN), "--filter", "RowNorm/.*-op")
    assert [line.split() for line in answer.lines] == [
        ["type", "category", "in", "out", "name"],
        ["Abs", "other", "1", "1", ROWNORM[0]],
        ["ReduceSum", "other", "2", "1", ROWNORM[1]],
        ["Div", "other", "2", "1", ROWNORM[2]],
    ]
    assert answer.err == ""


@pytest.mark.parametrize(("dump", "word", "count"), [(NAN, "trainable", 34), (NAN, "weight", 26), (MLP, "weight", 10)])
def test_a_category(capsys: Capsys, dumps: Dumps, dump: str, word: str, count: int) -> None:
    answer = run(capsys, "ls", dumps(dump), "--category", word)
    assert len(names(answer)) == count
    assert all(line.split()[0] == "Parameter" for line in answer.lines[1:])


def test_categories_and_types_add_up(capsys: Capsys, dumps: Dumps) -> None:
    both = run(capsys, "ls", dumps(MLP), "--category", "weight", "--category", "activation")
    alone = [run(capsys, "ls", dumps(MLP), "--category", word) for word in ("activation", "weight")]
    assert set(names(both)) == {name for answer in alone for name in names(answer)}


def test_a_type_in_any_case(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "ls", dumps(MLP), "--type", "tanh", "--type", "SIGMOID")
    assert [line.split()[0] for line in answer.lines[1:]] == ["Tanh", "Sigmoid"]


def test_nodes_of_a_source_line(capsys: Capsys, dumps: Dumps) -> None:
    everything = run(capsys, "ls", dumps(NAN), "--stack", "--json").json["nodes"]
    expected = [
        node["node"]
        for node in everything
        if any(frame["file"].endswith("/train_nan.py") and frame["line"] == 19 for frame in node["stack"])
    ]
    assert len(expected) == 12
    full = next(
        frame["file"] for node in everything for frame in node["stack"] if frame["file"].endswith("/train_nan.py")
    )
    for path in ("train_nan.py", "_run/train_nan.py", full):
        assert names(run(capsys, "ls", dumps(NAN), "--line", f"{path}:19")) == expected


def test_a_stack_innermost_line_first(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "ls", dumps(NAN), "--type", "Log", "--stack")
    below = [line.strip() for line in answer.lines[2:]]
    assert "train_nan.py:53  e = self.log(" in below[0]
    assert "cell_wrapper.py:119" in below[1]


def test_files_of_the_last_step_and_of_the_chosen_ones(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "ls", dumps(NAN), "--filter", "Div-op385$", "--files")
    assert [line.strip() for line in answer.lines[2:]] == ["in:0 step 5", "in:1 step 5", "out:0 step 5"]
    answer = run(capsys, "ls", dumps(NAN), "--filter", "Div-op385$", "--files", "--step", "2-3")
    assert [line.split()[-1] for line in answer.lines[2:]] == ["2", "2", "2", "3", "3", "3"]


def test_json_names_producers_and_files(capsys: Capsys, dumps: Dumps) -> None:
    path = dumps(NAN)
    document = run(capsys, "ls", path, "--filter", "Div-op385$", "--files", "--step", "3", "--json").json
    assert document["command"] == "ls"
    assert document["path"] == str(path)
    (node,) = document["nodes"]
    assert node["ranks"] == [0]
    assert (node["graph"], node["node"], node["path"], node["type"]) == ("kernel_graph_0", DIV, DIV, "Div")
    assert node["category"] == "other"
    assert node["inputs"] == ["inputs0:0", f"{ROWNORM[1]}:0"]
    assert "stack" not in node
    files = {(tensor["side"], tensor["slot"]): tensor for tensor in node["tensors"]}
    assert sorted(files) == [("input", 0), ("input", 1), ("output", 0)]
    (expected,) = path.glob("rank_0/*/0/3/Div.Div-op385.*.output.0.*")
    assert Path(files["output", 0]["file"]) == expected
    assert {(tensor["rank"], tensor["step"]) for tensor in node["tensors"]} == {(0, 3)}


# -- ranks, graphs, steps --------------------------------------------------------------------------


def test_nodes_that_are_the_same_in_all_ranks_stand_once(capsys: Capsys, tmp_path: Path) -> None:
    root = write_dump(tmp_path / "dump", ranks=(0, 1, 2)).root
    answer = run(capsys, "ls", root)
    assert answer.lines[0].split() == ["type", "category", "in", "out", "name"]
    assert len(names(answer)) == 6
    assert all(node["ranks"] == [0, 1, 2] for node in run(capsys, "ls", root, "--json").json["nodes"])
    files = run(capsys, "ls", root, "--files", "--type", "relu").lines[2:]
    assert [line.strip() for line in files] == [
        f"{side}:0 step 2 rank {rank}" for rank in (0, 1, 2) for side in ("in", "out")
    ]


def test_a_rank_column_where_ranks_differ(capsys: Capsys, tmp_path: Path) -> None:
    root = write_dump(tmp_path / "dump", ranks=(0, 1, 2)).root
    (lost,) = root.glob("rank_1/Net/0/2/ReLU.*.input.0.*")
    lost.unlink()
    answer = run(capsys, "ls", root, "--filter", "ReLU|MatMul")
    assert [line.split()[:5] for line in answer.lines] == [
        ["rank", "type", "category", "in", "out"],
        ["0-2", "MatMul", "other", "2", "1"],
        ["0,2", "ReLU", "activation", "1", "1"],
        ["1", "ReLU", "activation", "0", "1"],
    ]
    assert run(capsys, "ls", root, "--rank", "1", "--filter", "ReLU").lines[1].split()[:4] == [
        *("ReLU", "activation", "0", "1")
    ]


@pytest.fixture
def two_graphs(tmp_path: Path) -> Path:
    """Graph 0 ran at steps 0 to 2, graph 1 at step 1 only."""
    writer = DumpWriter(tmp_path / "dump", Generation.V2_3)
    graphs = [
        Graph((Node(f"Default/net{number}-Net/Add-op{number}", "Add", (("x", 0),)),), ("x",), id=number, root=number)
        for number in (0, 1)
    ]
    for graph, steps in zip(graphs, ((0, 1, 2), (1,)), strict=True):
        writer.graph(graph)
        for step in steps:
            write_step(writer, step, graph)
    return writer.root


def test_each_graph_counts_at_its_own_last_step(capsys: Capsys, two_graphs: Path) -> None:
    nodes = run(capsys, "ls", two_graphs, "--files", "--type", "add", "--json").json["nodes"]
    assert [(node["graph"], node["step"], node["dumped_inputs"]) for node in nodes] == [
        ("kernel_graph_0", 2, 1),
        ("kernel_graph_1", 1, 1),
    ]
    assert [{tensor["step"] for tensor in node["tensors"]} for node in nodes] == [{2}, {1}]
    assert "graph" in run(capsys, "ls", two_graphs).lines[0].split()


def test_one_graph_by_name_or_number(capsys: Capsys, two_graphs: Path) -> None:
    for word in ("1", "kernel_graph_1"):
        answer = run(capsys, "ls", two_graphs, "--graph", word)
        assert names(answer) == ["Default/net1-Net/Add-op1", "x"]


def test_a_step_before_the_graph_ran_has_no_files(capsys: Capsys, two_graphs: Path) -> None:
    answer = run(capsys, "ls", two_graphs, "--step", "0", "--graph", "1", "--type", "add")
    assert answer.lines[1].split()[2:4] == ["0", "0"]


def test_statistics_without_values_have_no_file(capsys: Capsys, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump", Generation.V2_3)
    writer.statistics(0, [("Add", "Default/Add-op1", "output", 0, np.ones(3, np.float32))])
    (node,) = run(capsys, "ls", writer.root, "--files", "--json").json["nodes"]
    assert node["dumped_outputs"] == 1
    assert [tensor["file"] for tensor in node["tensors"]] == [None]


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "what", "hint"),
    [
        (("--type", "Conv3D"), "no node matches", "there is Abs, Adam, Add,"),
        (("--line", "train_nan.py:3"), "no node matches", "stacks name train_nan.py:16,19-22,31"),
        (("--line", "other.py:3"), "no node matches", "/_run/train_nan.py"),
        (("--type", "Log", "--category", "weight"), "no node matches", "--category weight --type Log"),
        (("--filter", "nothing like it"), "no node matches", "`tdbg ls` lists the nodes"),
        (("--filter", "("), "not a regular expression", "backslash"),
        (("--graph", "7"), "no graph is called '7'", "kernel_graph_0"),
        (("--step", "9"), "step 9 is not in this dump", "there is step 0-5"),
        (("--rank", "3"), "rank 3 is not in this dump", "there is rank 0"),
        (("--line", "train.py"), "not FILE:LINE", ""),
        (("--category", "wieght"), "no category is called 'wieght'", "weight"),
    ],
)
def test_nothing_matches(capsys: Capsys, dumps: Dumps, arguments: tuple[str, ...], what: str, hint: str) -> None:
    answer = run(capsys, "ls", dumps(NAN), *arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert what in answer.err
    assert hint in answer.err


def test_no_dump(capsys: Capsys, tmp_path: Path) -> None:
    answer = run(capsys, "ls", tmp_path)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("tdbg: ")


def test_names_are_safe_to_print(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "Default/bad\x1b[31m-op1"
    source = MemorySource({0: {0: {(name, Side.OUTPUT, 0): np.ones(2)}}}, ops=[Op(name)])
    monkeypatch.setattr("tui_debugger.session.session.open_source", lambda *_: source)
    assert "\x1b" not in run(capsys, "ls", "memory").out
    assert run(capsys, "ls", "memory", "--json").json["nodes"][0]["node"] == name


def test_a_reader_that_leaves_early_sees_no_traceback(dumps: Dumps) -> None:
    command = f"'{sys.executable}' -m tui_debugger ls '{dumps(NAN)}' --files --step 0-5 | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)  # noqa: S602 - a real pipe
    assert re.fullmatch(r"type +category +in +out +name\n", done.stdout)
    assert done.stderr == ""


def test_the_dump_stays_as_it_is(capsys: Capsys, dumps: Dumps, tmp_path: Path) -> None:
    copy = writable_copy(dumps(MLP), tmp_path / "copy")
    before = sorted(copy.rglob("*"))
    run(capsys, "ls", copy, "--files")
    assert sorted(copy.rglob("*")) == before
