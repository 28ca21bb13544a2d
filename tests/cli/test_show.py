"""``tdbg show``: a node's tensors in a line, values, history, statistics; expected numbers from plain numpy."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.cli.running import run
from tests.linked import own
from tests.session.opened import writable_copy
from tests.sources.memory import MemorySource, Op, table_of
from tests.sources.writer import DumpWriter, Generation, write_dump
from tui_debugger.model import Category, Side

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]
Memory = Callable[..., str]
Array = npt.NDArray[Any]

NAN, MLP = "mindspore-2.0-nan", "mindspore-2.10-mlp"
LOG = "Default/network-WithLossCell/_backbone-Net/Log-op381"
DIV = "Default/network-WithLossCell/_backbone-Net/norm-RowNorm/Div-op385"


def on_disk(dump: Path, pattern: str) -> Array:
    """The values of the one file that a pattern names."""
    (path,) = dump.glob(f"rank_0/*/0/{pattern}")
    return np.asarray(np.load(path))


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """Makes ``tdbg show memory`` about one node whose outputs are the given arrays."""

    def make(*outputs: Any, name: str = "Default/Add-op1", **more: Any) -> str:
        values = {(name, Side.OUTPUT, slot): value for slot, value in enumerate(outputs)}
        source = MemorySource({0: {0: values}}, ops=[Op(name, "Add", outputs=len(outputs), **more)])
        monkeypatch.setattr("tui_debugger.session.session.open_source", lambda *_: source)
        return "memory"

    return make


# -- one line per tensor, and values ---------------------------------------------------------------


def test_a_node_with_inputs_outputs_and_values(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "show", dumps(NAN), "Log-op381", "--step", "3")
    assert (answer.code, answer.err) == (0, "")
    assert answer.lines == [
        LOG,
        "Log, other, kernel_graph_0",
        "",
        "step 3",
        "in:0 float32 4 n=4 ▅▁▁▁▁▁▁▁▅█ x∈[0, 99.55] μ=71.08 σ=41.26 zeros 25.0%",
        "  from Default/network-WithLossCell/_backbone-Net/ReduceSum-op380:0",
        "  [96.8826 99.5472       0 87.8831]",
        "out:0 float32 4 n=4 █▁▁▁▁▁▁█▁█ x∈[4.476, 4.601] μ=4.55 σ=0.05351 -Inf! 1",
        "  [4.5735 4.6006   -Inf 4.4760]",
    ]
    values = on_disk(dumps(NAN), "3/Log.Log-op381.*.output.0.*")
    assert [f"{value:.4f}" for value in values if np.isfinite(value)] == ["4.5735", "4.6006", "4.4760"]


def test_without_a_step_it_is_the_last_dumped_one(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "show", dumps(NAN), "Log-op381:0")
    assert "step 5" in answer.lines
    value = on_disk(dumps(NAN), "5/Log.Log-op381.*.output.0.*")[0]
    assert answer.lines[-1].startswith(f"  [{value:.4f} ")


def test_the_last_step_is_one_in_which_the_node_was_dumped(capsys: Capsys, tmp_path: Path) -> None:
    root = write_dump(tmp_path / "dump").root
    for path in root.glob("rank_0/Net/0/2/ReLU.*"):
        path.unlink()
    assert "step 1" in run(capsys, "show", root, "ReLU-op2").lines
    assert "step 2" in run(capsys, "show", root, "fc1.weight").lines
    assert "step 2" not in run(capsys, "show", root, "ReLU-op2").lines


def test_a_path_that_points_at_a_step_shows_that_step(capsys: Capsys, tmp_path: Path) -> None:
    root = write_dump(tmp_path / "dump", ranks=(0, 1)).root
    answer = run(capsys, "show", root / "rank_1" / "Net" / "0" / "1", "fc1.weight", "--json")
    assert [(tensor["rank"], tensor["step"]) for tensor in answer.json["tensors"]] == [(1, 1)]


@pytest.mark.parametrize(
    ("slot", "tensors"),
    [
        ("", ["in:0", "in:1", "out:0", "param:1"]),
        (":0", ["out:0"]),
        (":out0", ["out:0"]),
        (":in0", ["in:0"]),
        (":in:1", ["in:1"]),
        (":in", ["in:0", "in:1"]),
        (":param", ["param:1"]),
    ],
)
def test_slots(capsys: Capsys, tmp_path: Path, slot: str, tensors: list[str]) -> None:
    root = write_dump(tmp_path / "dump").root
    answer = run(capsys, "show", root, f"MatMul-op1{slot}", "--json")
    assert [f"{each['role']}:{each['slot']}" for each in answer.json["tensors"]] == tensors


def test_an_input_without_a_file_shows_the_producers_and_a_parameter_that_of_the_step_before(
    capsys: Capsys, tmp_path: Path
) -> None:
    root = write_dump(tmp_path / "dump").root
    for path in root.glob("rank_0/Net/0/*/MatMul.*.input.*"):
        path.unlink()
    answer = run(capsys, "show", root, "MatMul-op1:in", "--step", "2")
    assert "  from x:0" in answer.lines
    assert "  from fc1.weight:0, value of step 1" in answer.lines
    document = run(capsys, "show", root, "MatMul-op1:in1", "--step", "2", "--json").json
    (tensor,) = document["tensors"]
    assert (tensor["step"], tensor["key"]["step"], tensor["key"]["node"]) == (2, 1, "fc1.weight")
    assert tensor["from"] == "fc1.weight:0"
    assert tensor["values"] == on_disk(root, "1/Parameter.fc1_weight.*").astype(float).tolist()


def test_a_slice_is_printed_exactly(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "show", dumps(NAN), "Div-op385:0", "[0, :, 3:9]", "--step", "3", "--precision", "6")
    values = on_disk(dumps(NAN), "3/Div.Div-op385.*.output.0.*")[0, :, 3:9]
    assert "  [0, :, 3:9]" in answer.lines
    printed = [[float(word) for word in line.strip(" []").split()] for line in answer.lines[6:]]
    np.testing.assert_allclose(printed, values, atol=5e-7)
    assert "..." not in answer.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("[..., 0, 1]", "--step", "3", "--json"),
        ("--step", "3", "[..., 0, 1]", "--json"),
        ("--step", "3", "--json", "[..., 0, 1]"),
    ],
)
def test_a_slice_may_stand_before_and_after_options(capsys: Capsys, dumps: Dumps, arguments: tuple[str, ...]) -> None:
    (tensor,) = run(capsys, "show", dumps(NAN), "Div-op385:0", *arguments).json["tensors"]
    assert tensor["slice"] == "[:, 0, 1]"
    values = on_disk(dumps(NAN), "3/Div.Div-op385.*.output.0.*")[..., 0, 1]
    assert tensor["values"] == [float(value) if np.isfinite(value) else "nan" for value in values]


def test_more_than_one_dimension_too_many_is_refused(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "show", dumps(NAN), "Div-op385:0", "[0, 0]", "--step", "3")
    assert (answer.code, answer.out) == (2, "")
    assert "the tensor has 3 dimensions, the slice 2 entries" in answer.err


def test_a_slice_that_fits_only_some_tensors(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "show", dumps(NAN), "Softmax-op399", "[0, 0, 0, :]", "--json")
    assert answer.code == 0
    answer = run(capsys, "show", dumps(NAN), "ReduceSum-op380", "[0]", "--step", "3")
    assert answer.code == 0
    refused = "  the tensor has 3 dimensions, the slice 1 entries: the shape is (4, 8, 16)"
    assert refused in answer.lines
    value = on_disk(dumps(NAN), "3/ReduceSum.ReduceSum-op380.*.output.0.*")[0]
    assert answer.lines[-2:] == ["  [0]", f"  {value:.4f}"]


# -- several steps, several ranks, statistics ------------------------------------------------------


def test_several_steps_are_a_history(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "show", dumps(NAN), "head.weight", "--step", "0-5")
    assert answer.code == 0
    about = "Parameter, weight, kernel_graph_0, out:0"
    assert answer.lines[:4] == ["head.weight", about, "float32 4×16 n=64", "step"]
    assert [line.split()[0] for line in answer.lines[4:]] == ["0", "1", "2", "3", "4", "5"]
    for step, line in enumerate(answer.lines[4:]):
        values = on_disk(dumps(NAN), f"{step}/Parameter.head.weight.*")
        bad = int(np.isnan(values).sum())
        assert line.endswith(f"NaN! {bad}") if bad else f"μ={values.astype(float).mean():.4g}" in line
    assert max(map(len, answer.lines)) <= 80


def test_a_history_of_a_whole_node_goes_tensor_by_tensor(capsys: Capsys, dumps: Dumps) -> None:
    lines = run(capsys, "show", dumps(NAN), "Div-op385", "--step", "2,3").lines
    assert [line.split()[:2] for line in lines[2:]] == [
        ["slot", "step"],
        *([slot, step] for slot in ("in:0", "in:1", "out:0") for step in ("2", "3")),
    ]
    assert lines[-1].endswith("NaN! 128")


def test_a_slice_of_several_steps_shows_values_of_each(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "show", dumps(NAN), "Log-op381:0", "[1]", "--step", "0-2")
    values = [on_disk(dumps(NAN), f"{step}/Log.Log-op381.*.output.0.*")[1] for step in range(3)]
    assert [line.strip() for line in answer.lines if re.fullmatch(r"  \d\.\d{4}", line)] == [
        f"{value:.4f}" for value in values
    ]


def test_ranks_stand_side_by_side(capsys: Capsys, tmp_path: Path) -> None:
    root = write_dump(tmp_path / "dump", ranks=(0, 1)).root
    assert [line for line in run(capsys, "show", root, "fc1.weight").lines if line.startswith("step")] == [
        "step 2 rank 0",
        "step 2 rank 1",
    ]
    history = run(capsys, "show", root, "fc1.weight", "--step", "0-1").lines
    assert history[2] == "float32 2×3 n=6"
    assert [line.split()[:2] for line in history[3:]] == [
        *(["step", "rank"], ["0", "0"], ["0", "1"], ["1", "0"], ["1", "1"])
    ]
    one = run(capsys, "show", root, "fc1.weight", "--rank", "1", "--json").json
    assert [tensor["key"]["rank"] for tensor in one["tensors"]] == [1]


def test_ranks_that_stopped_at_other_steps_show_their_own_last_one(capsys: Capsys, tmp_path: Path) -> None:
    root = write_dump(tmp_path / "dump", ranks=(0, 1)).root
    for path in (root / "rank_1/Net/0/2").iterdir():
        path.unlink()
    (root / "rank_1/Net/0/2").rmdir()
    answer = run(capsys, "show", root, "fc1.weight")
    assert [line for line in answer.lines if line.startswith("step")] == ["step 1 rank 1", "step 2 rank 0"]


def test_full_statistics_of_every_step(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "show", dumps(NAN), "Div-op385:0", "--stat")
    titles = re.split(r"\s{2,}", answer.lines[2])
    rows = [dict(zip(titles, re.split(r"\s{2,}", line), strict=True)) for line in answer.lines[3:]]
    assert [row["step"] for row in rows] == ["0", "1", "2", "3", "4", "5"]
    for step, row in enumerate(rows):
        values = on_disk(dumps(NAN), f"{step}/Div.Div-op385.*.output.0.*").astype(float)
        good = values[np.isfinite(values)]
        assert (row["dtype"], row["shape"], row["count"]) == ("float32", "4×8×16", "512")
        assert int(row["NaN"]) == np.isnan(values).sum()
        assert (row["+Inf"], row["-Inf"]) == ("0", "0")
        assert (int(row["neg"]), int(row["zero"]), int(row["pos"])) == (
            *((good < 0).sum(), (good == 0).sum(), (good > 0).sum()),
        )
        shown = [float(row[name]) for name in ("min", "max", "mean", "mean |x|", "std", "norm")]
        expected = [good.min(), good.max(), good.mean(), np.abs(good).mean(), good.std(), np.sqrt((good**2).sum())]
        np.testing.assert_allclose(shown, expected, rtol=1e-3)


def test_statistics_of_one_step(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "show", dumps(NAN), "Div-op385", "--stat", "--step", "3")
    assert [line.split()[:2] for line in answer.lines[3:]] == [["in:0", "3"], ["in:1", "3"], ["out:0", "3"]]


# -- JSON ------------------------------------------------------------------------------------------


def test_json_holds_statistics_histogram_and_values(capsys: Capsys, dumps: Dumps) -> None:
    path = dumps(NAN)
    document = run(capsys, "show", path, "Div-op385", "--step", "3", "--json").json
    assert (document["command"], document["path"]) == ("show", str(path))
    assert (document["node"], document["graph"], document["ranks"]) == (DIV, "kernel_graph_0", [0])
    assert (document["type"], document["category"]) == ("Div", "other")
    first, second, out = document["tensors"]
    assert first["from"] == "inputs0:0"
    assert (second["role"], second["slot"], second["key"]["side"], second["key"]["slot"]) == ("in", 1, "input", 1)
    values = on_disk(path, "3/Div.Div-op385.*.output.0.*")
    doubles = values.astype(float)
    good = doubles[np.isfinite(doubles)]
    assert (out["dtype"], out["shape"], out["error"]) == ("float32", [4, 8, 16], "")
    assert out["stats"]["nan"] == np.isnan(doubles).sum() == 128
    assert out["stats"]["std"] == pytest.approx(good.std())
    counts, edges = np.histogram(good, 10)
    assert out["histogram"] == {"edges": edges.tolist(), "counts": counts.tolist()}
    assert out["slice"] == "[...]"
    flat = np.array(out["values"], dtype=object).reshape(-1)
    assert [value for value in flat if value == "nan"] == ["nan"] * 128
    assert [value for value in flat if value != "nan"] == good.tolist()


def test_json_leaves_out_the_values_of_big_tensors_and_of_histories(capsys: Capsys, memory: Memory) -> None:
    path = memory(np.arange(2000.0))
    (tensor,) = run(capsys, "show", path, "Add-op1", "--json").json["tensors"]
    assert (tensor["slice"], tensor["values"]) == (None, None)
    (tensor,) = run(capsys, "show", path, "Add-op1", "[3:5]", "--json").json["tensors"]
    assert (tensor["slice"], tensor["values"]) == ("[3:5]", [3.0, 4.0])
    (tensor,) = run(capsys, "show", path, "Add-op1", "--stat", "--json").json["tensors"]
    assert (tensor["histogram"], tensor["values"]) == (None, None)
    assert tensor["stats"]["count"] == 2000


# -- what cannot be shown --------------------------------------------------------------------------


def test_an_unreadable_tensor_says_why(capsys: Capsys, dumps: Dumps, tmp_path: Path) -> None:
    copy = writable_copy(dumps(NAN), tmp_path / "copy")
    (broken,) = copy.glob("rank_0/*/0/3/Log.Log-op381.*.output.0.*")
    own(broken).write_bytes(broken.read_bytes()[:-4])
    some = run(capsys, "show", copy, "Log-op381", "--step", "3")
    assert some.code == 2
    assert some.lines[-1] == "out:0 is truncated: 4 of 16 bytes of values are missing"
    only = run(capsys, "show", copy, "Log-op381:0", "--step", "3")
    assert only.code == 2
    assert only.lines[-1] == some.lines[-1]
    assert "nothing of what was asked for can be shown" in only.err
    history = run(capsys, "show", copy, "Log-op381:0", "--step", "2-4")
    assert history.code == 2
    assert history.lines[-2] == "3    is truncated: 4 of 16 bytes of values are missing"
    stat = run(capsys, "show", copy, "Log-op381:0", "--stat")
    assert (stat.code, stat.lines[-1]) == (2, f"out:0 step 3 {only.lines[-1].removeprefix('out:0 ')}")
    for others in (
        ("trend", "--step", "2-4"),
        ("relations", "--step", "3"),
        ("show", "--step", "2-4", "--distribution"),
    ):
        command, *options = others
        answer = run(capsys, command, copy, "Log-op381:out:0", *options)
        assert answer.code == 2, f"{command} looked at everything but one, which is not everything"
        assert answer.lines
    document = run(capsys, "show", copy, "Log-op381:0", "--step", "3", "--json")
    assert document.code == 2
    (tensor,) = document.json["tensors"]
    assert tensor["error"] == "is truncated: 4 of 16 bytes of values are missing"
    assert (tensor["stats"], tensor["values"], tensor["histogram"]) == (None, None, None)


def test_statistics_without_values(capsys: Capsys, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump", Generation.V2_3)
    writer.statistics(0, [("Add", "Default/Add-op1", "output", 0, np.array([1.0, 3.0, np.nan], np.float32))])
    answer = run(capsys, "show", writer.root, "Add-op1:0")
    assert answer.code == 0
    line = answer.lines[-1]
    assert line.startswith("out:0 float32 3 n=3 x∈[1, 3]")
    assert line.endswith("NaN! 1 (recorded in the dump)")
    sliced = run(capsys, "show", writer.root, "Add-op1:0", "[0]")
    assert sliced.code == 2
    assert sliced.lines[-1] == "  only statistics were dumped, no values"


def test_a_dumped_constant(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "show", dumps(NAN), "cst1")
    assert (answer.code, answer.lines[-1]) == (0, "  -1")


def test_a_constant_that_only_the_graph_holds(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    ops = [Op("Add-op1", "Add", [("cst1", 0), ("x", 0)]), Op("cst1", "Constant", category=Category.CONSTANT)]
    table = replace(table_of([*ops, Op("x", "Parameter")]), constants={1: "2.5"})
    source = MemorySource({0: {0: {("Add-op1", Side.OUTPUT, 0): np.ones(2)}}}, table=table)
    monkeypatch.setattr("tui_debugger.session.session.open_source", lambda *_: source)
    node = run(capsys, "show", "memory", "Add-op1")
    assert node.lines[4:6] == ["in:0 constant cst1 = 2.5, not dumped", "in:1 not dumped (from x:0)"]
    constant = run(capsys, "show", "memory", "cst1")
    assert (constant.code, constant.lines[-1]) == (0, "out:0 constant 2.5, not dumped")
    (tensor,) = run(capsys, "show", "memory", "cst1", "--json").json["tensors"]
    assert (tensor["constant"], tensor["from"], tensor["values"]) == ("2.5", None, None)
    assert run(capsys, "show", "memory", "Add-op1:in1").code == 2


def test_a_tensor_that_was_not_dumped(capsys: Capsys, tmp_path: Path) -> None:
    root = write_dump(tmp_path / "dump").root
    for path in root.glob("rank_0/Net/0/1/ReLU.*.output.*"):
        path.unlink()
    answer = run(capsys, "show", root, "ReLU-op2:0", "--step", "1")
    assert (answer.code, answer.lines[-1]) == (2, "out:0 not dumped")
    history = run(capsys, "show", root, "ReLU-op2:0", "--step", "0-2")
    assert (history.code, history.lines[-2]) == (2, "1    not dumped")  # steps 0 and 2 have it


@pytest.mark.parametrize(
    ("arguments", "what", "hint"),
    [
        (("ReduceSum",), "3 nodes match 'ReduceSum'", "ReduceSum-op382"),
        (("Logg-op38",), "no node is called 'Logg-op38'", LOG),
        (("Log-op381:3",), "this node has no tensor out 3", "it has in:0, out:0"),
        (("Log-op381:param",), "this node has no tensor param", "it has in:0, out:0"),
        (("Log-op381", "--step", "9"), "step 9 is not in this dump", "there is step 0-5"),
        (("Log-op381", "--rank", "4"), "rank 4 is not in this dump", "there is rank 0"),
        (("Log-op381", "--filter", "Div"), "no node is called 'Log-op381'", ""),
        (("Log-op381", "--graph", "3"), "no graph is called '3'", "kernel_graph_0"),
        (("Log-op381", "[0"), "the brackets do not match", "[0, :, 3:9, :]"),
        (("Log-op381", "[9]"), "index 9 is outside dimension 0, which has 4 elements", ""),
        (("Log-op381", "[0]", "--stat"), "--stat is about whole tensors", "leave --stat or the slice out"),
        (("Log-op381", "--precision", "11"), "'11' is not a number from 0 to 10", ""),
        (("Log-op381", "[0]", "[1]"), "unrecognized arguments: [1]", ""),
    ],
)
def test_errors(capsys: Capsys, dumps: Dumps, arguments: tuple[str, ...], what: str, hint: str) -> None:
    answer = run(capsys, "show", dumps(NAN), *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert what in answer.err
    assert hint in answer.err


def test_foreign_text_is_safe_to_print(capsys: Capsys, memory: Memory) -> None:
    name = "Default/bad\x1b[31m-op1"
    assert "\x1b" not in run(capsys, "show", memory(np.ones(2), name=name), name).out
    assert "\x1b" not in run(capsys, "show", memory(np.array(["\x1b[31m"]), name=name), name).out
    assert "\x1b" not in run(capsys, "show", memory(np.ones(2), name=name), f"{name}:7").err


def test_a_node_that_only_routes_values(capsys: Capsys, memory: Memory) -> None:
    answer = run(capsys, "show", memory(name="Default/Load-op4", structural=True), "Default/Load-op4")
    assert (answer.code, answer.out) == (2, "")
    assert "this node has no tensor" in answer.err
    assert "nothing of it was dumped" in answer.err


def test_nodes_all_over_a_real_dump_can_be_shown(capsys: Capsys, dumps: Dumps) -> None:
    nodes = [node["node"] for node in run(capsys, "ls", dumps(MLP), "--json").json["nodes"] if node["dumped_outputs"]]
    for name in nodes[::20]:
        answer = run(capsys, "show", dumps(MLP), name)
        assert answer.code == 0
        assert answer.lines[0] == name


def test_a_round_of_a_step_is_named_and_said(capsys: Capsys, dumps: Callable[[str], Path]) -> None:
    path, node = dumps("mindspore-2.10-multi-gan"), "DiscLoss/Log-op0"
    newest = run(capsys, "show", path, f"{node}:out:0", "--step", "1")
    assert "out:0#2 of 2" in "\n".join(newest.lines)
    assert "-Inf! 1" in "\n".join(newest.lines)
    first = run(capsys, "show", path, f"{node}:out:0#1", "--step", "1", "--json").json["tensors"]
    assert [(each["round"], each["rounds"], each["stats"]["neg_inf"]) for each in first] == [(1, 2, 0)]
    assert first[0]["key"]["round"] == 1
    none = run(capsys, "show", path, f"{node}:out:0#3", "--step", "1")
    assert (none.code, "out:0#3 of 2" in "\n".join(none.lines)) == (2, True)


def test_one_round_of_a_history(capsys: Capsys, dumps: Callable[[str], Path]) -> None:
    path, node = dumps("mindspore-2.10-multi-gan"), "DiscLoss/Log-op0:out:0"
    (every,) = run(capsys, "trend", path, node, "--json").json["tensors"]
    assert [(each["step"], each.get("round", 0)) for each in every["steps"]][:4] == [(0, 0), (1, 1), (1, 2), (2, 0)]
    (first,) = run(capsys, "trend", path, f"{node}#1", "--json").json["tensors"]
    assert [(each["step"], each.get("round", 0)) for each in first["steps"]][:3] == [(0, 0), (1, 1), (2, 0)]


def test_the_run_before_may_be_of_the_same_step(capsys: Capsys, dumps: Callable[[str], Path]) -> None:
    path = dumps("mindspore-2.10-multi-gan")
    lines = run(capsys, "diff", path, "DiscLoss/Log-op0:out:0", "--step", "1").lines
    assert "kernel_graph0/Default/network-DiscLoss/Log-op0:out:0#2" in lines[0]
    assert lines[1].startswith("there  step 1#1")
