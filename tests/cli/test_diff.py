"""``tdbg diff``: which tensors, what is said, exit codes; expected numbers from plain numpy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.cli.running import Answer, file_of, run
from tests.sources.arrays import write_arrays
from tests.sources.writer import MLP, DumpWriter, write_dump

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]
Array = npt.NDArray[Any]

NAN = "mindspore-2.0-nan"
DIV = "Default/network-WithLossCell/_backbone-Net/norm-RowNorm/Div-op385"
MATMUL, RELU, MOMENTUM = (node.name for node in MLP.nodes)
FILES = {"ReLU-op2": "ReLU.*.output.0.*", "MatMul-op1": "MatMul.*.output.0.*", "fc1.weight": "Parameter.fc1_weight.*"}


def values(dump: Path, node: str, step: int, rank: int = 0) -> Array:
    """What a node left in the written dump."""
    return np.asarray(np.load(file_of(dump / f"rank_{rank}/Net/0/{step}", FILES[node])))


def diff(capsys: Capsys, *words: object) -> Answer:
    return run(capsys, "diff", *words)


def check_numbers(answer: Answer, here: Array, there: Array) -> None:
    """The document says what numpy says."""
    found = answer.json
    d = here.astype(np.float64) - there
    assert (found["verdict"], found["exit_code"], answer.code) == ("different", 1, 1)
    assert found["max_abs"] == np.abs(d).max()
    assert found["mean_abs"] == pytest.approx(np.abs(d).mean(), rel=1e-12)
    assert found["norm"] == pytest.approx(np.linalg.norm(d), rel=1e-12)
    first = found["largest"][0]
    place = np.unravel_index(np.abs(d).argmax(), d.shape)
    assert tuple(first["index"]) == place
    assert (first["here"], first["there"]) == (float(here[place]), float(there[place]))
    assert first["difference"] == d[place]


# -- which other side ------------------------------------------------------------------------------


def test_by_default_the_previous_step_of_the_last_one(capsys: Capsys, dump: Path) -> None:
    answer = diff(capsys, dump, "fc1.weight", "--json")
    assert (answer.json["here"]["key"]["step"], answer.json["there"]["key"]["step"]) == (2, 1)
    check_numbers(answer, values(dump, "fc1.weight", 2), values(dump, "fc1.weight", 1))


@pytest.mark.parametrize(
    ("words", "there"),
    [
        (("--with", "step=0"), ("ReLU-op2", 0, 0)),
        (("--with", "rank=1"), ("ReLU-op2", 1, 1)),
        (("--with", "tensor=MatMul-op1"), ("MatMul-op1", 1, 0)),
        (("--with", "tensor=fc1.weight", "--with", "step=2", "--with", "rank=1"), ("fc1.weight", 2, 1)),
    ],
)
def test_another_step_rank_or_tensor(
    capsys: Capsys, dump: Path, words: tuple[str, ...], there: tuple[str, int, int]
) -> None:
    answer = diff(capsys, dump, "ReLU-op2:0", "--step", 1, "--rank", 0, *words, "--json")
    key = answer.json["there"]["key"]
    assert (key["node"].rpartition("/")[2], key["step"], key["rank"]) == there
    check_numbers(answer, values(dump, "ReLU-op2", 1), values(dump, *there))


def test_a_file_and_another_run(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    golden = tmp_path / "golden.npy"
    np.save(golden, values(dump, "ReLU-op2", 2))
    answer = diff(capsys, dump, "ReLU-op2", "--with", golden)
    assert (answer.code, answer.lines[3]) == (0, "equal: all 6 elements")
    np.save(golden, values(dump, "ReLU-op2", 2) + 1)
    answer = diff(capsys, dump, "ReLU-op2", "--with", golden, "--json")
    check_numbers(answer, values(dump, "ReLU-op2", 2), np.load(golden))
    assert (answer.json["there"]["key"], answer.json["there"]["path"]) == (None, str(golden))
    other = tmp_path / "other"
    shutil.copytree(dump, other)
    np.save(file_of(other / "rank_0/Net/0/1", FILES["ReLU-op2"]), np.zeros((2, 3), np.float32))
    same = diff(capsys, dump, "ReLU-op2", "--with", other)
    assert same.code == 0
    assert f"there  run {other}  step 2" in same.out
    changed = diff(capsys, dump, "ReLU-op2", "--with", other, "--with", "step=1", "--json")
    check_numbers(changed, values(dump, "ReLU-op2", 2), np.zeros((2, 3)))


def test_an_input_that_the_step_before_left_is_compared_as_the_input_of_the_other_step(
    capsys: Capsys, dumps: Dumps
) -> None:
    """``in:0`` of an update is the weight before it: at step 3 the file of step 2."""
    words = (dumps(NAN), "Log-op381:in0", "--step", 3)
    assert diff(capsys, *words, "--with", "step=1", "--json").json["there"]["key"]["step"] == 1
    assert diff(capsys, *words, "--json").json["there"]["key"]["step"] == 2


# -- what it says ----------------------------------------------------------------------------------


def test_what_is_said_about_the_first_nan_of_a_real_dump(capsys: Capsys, dumps: Dumps) -> None:
    answer = diff(capsys, dumps(NAN), "RowNorm/Div-op385", "--step", 3, "--top", 4)
    assert (answer.code, answer.err) == (1, "")
    assert answer.lines[:4] == [
        f"here   {DIV}:out:0  rank 0  step 3  float32 4×8×16",
        "there  step 2  float32 4×8×16",
        "",
        "different: 512 of 512 (100 %)",
    ]
    assert "sign flips 198  NaN only here 128" in answer.out
    assert "over 384 finite pairs" in answer.out
    places = [line.partition("]")[0] + "]" for line in answer.lines if line.startswith("[")]
    assert places[:2] == ["[2, 0, 0]", "[2, 0, 1]"], "NaN on one side first"
    assert len(places) == 4


def test_tolerances_decide_the_exit_code(capsys: Capsys, dump: Path) -> None:
    here, there = values(dump, "ReLU-op2", 2), values(dump, "ReLU-op2", 1)
    d = np.abs(here.astype(np.float64) - there)
    reaching = [("--atol", repr(float(d.max()))), ("--rtol", repr(float((d / np.abs(there)).max() * (1 + 1e-12))))]
    for words in (*reaching, ("--tolerance", "100")):
        answer = diff(capsys, dump, "ReLU-op2", *words, "--json")
        assert (answer.code, answer.json["outside"], answer.json["different"]) == (0, 0, 6), words
        assert answer.json["verdict"] == "equal"
    answer = diff(capsys, dump, "ReLU-op2", "--tolerance", "50", "--json")
    assert answer.json["tolerance"]["boundary"] == d.max() * 0.5
    assert answer.json["outside"] == int((d > d.max() * 0.5).sum())
    text = diff(capsys, dump, "ReLU-op2", "--tolerance", "100")
    assert "equal within the tolerance: 6 of 6 (100 %) differ by less" in text.out
    assert "100 % of the greatest" in text.out


def test_nan_at_the_same_places_is_equal_and_said(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    here = values(dump, "ReLU-op2", 2).copy()
    here[0, 0] = np.nan
    np.save(file_of(dump / "rank_0/Net/0/2", FILES["ReLU-op2"]), here)
    np.save(tmp_path / "golden.npy", here)
    answer = diff(capsys, dump, "ReLU-op2", "--rank", 0, "--with", tmp_path / "golden.npy")
    assert (answer.code, answer.lines[3]) == (0, "equal: 5 of 6 (83.3 %); 1 is NaN on both sides")


def test_nothing_is_compared_where_both_are_nan_everywhere(capsys: Capsys, dumps: Dumps) -> None:
    """No number says that they are alike: what nobody compared is not equal."""
    words = (dumps(NAN), "head.weight", "--step", 5, "--with", "step=4")
    answer = diff(capsys, *words)
    assert answer.code == 2
    assert "cannot judge: all 64 elements are NaN on both sides: nothing to compare" in answer.out
    document = diff(capsys, *words, "--json").json
    assert (document["verdict"], document["exit_code"], document["both_nan"]) == ("cannot_judge", 2, 64)


def test_the_order_of_the_largest(capsys: Capsys, dump: Path) -> None:
    here, there = values(dump, "ReLU-op2", 2), values(dump, "ReLU-op2", 1)
    relative = np.abs(here.astype(np.float64) - there) / np.abs(there)
    answer = diff(capsys, dump, "ReLU-op2", "--by", "rel", "--json")
    assert answer.json["largest"][0]["relative"] == relative.max() == answer.json["max_rel"]
    assert [entry["relative"] for entry in answer.json["largest"]] == sorted(relative.ravel().tolist(), reverse=True)
    ulps = diff(capsys, dump, "ReLU-op2", "--by", "ulp", "--top", 2, "--json").json
    assert ulps["largest"][0]["ulp"] == ulps["ulp"]["greatest"]
    assert len(ulps["largest"]) == 2


def test_other_shapes_only_when_asked(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    turned = tmp_path / "turned.npy"
    np.save(turned, np.ascontiguousarray(values(dump, "ReLU-op2", 2).T))
    answer = diff(capsys, dump, "ReLU-op2", "--with", turned)
    assert answer.code == 2
    assert answer.err.splitlines() == [
        "tdbg: these tensors have different shapes",
        "  where: (2, 3) and (3, 2)",
        "  do:    they can be compared element by element in C order, when that is meant: --reshape",
    ]
    asked = diff(capsys, dump, "ReLU-op2", "--with", turned, "--reshape")
    assert asked.code == 1
    assert "compared as 2×3, element by element in C order" in asked.out
    assert "note: equal when the other one is transposed: (1, 0)" in asked.out
    np.save(turned, np.zeros((5, 7)))
    never = diff(capsys, dump, "ReLU-op2", "--with", turned, "--reshape", "--json")
    assert (never.code, never.json["error"]["where"]) == (2, "(2, 3) and (5, 7)")


# -- what cannot be judged -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        (("ReLU-op2", "--step", "0"), "there is no step before 0", "rank 0 has it at steps 1,2"),
        (("ReLU-op2", "--with", "step=9"), "step 9 was not dumped", "rank 0 has it at steps 0-2"),
        (("ReLU-op2", "--with", "rank=7"), "rank 7 is not in this dump", "there is rank 0, 1"),
        (("ReLU-op2", "--with", "step=x"), "'x' is not a number", "--with step=0"),
        (("ReLU-op2", "--with", "step=1", "--with", "step=0"), "two of step", "at most once"),
        (("ReLU-op2", "--with", "no.npy"), "cannot be read: no such file", ""),
        (("ReLU-op2", "--with", "no.npy", "--with", "step=1"), "a file has no steps", "leave the others out"),
        (("ReLU-op2", "--with", "tensor=nosuch"), "no node is called 'nosuch'", "tdbg ls"),
        (("ReLU-op2:in7",), "this node has no tensor in 7", "it has in:0, out:0"),
        (("ApplyMomentum-op3:in",), "several tensors may be meant", "it has in:0"),
        (("ReLU-op2", "--step", "0-2"), "one step can be compared at a time", "--with step=N"),
        (("ReLU-op2", "--rank", "0,1"), "one rank can be compared at a time", "--with rank=N"),
    ],
)
def test_what_cannot_be_compared_says_what_there_is(
    capsys: Capsys, dump: Path, words: tuple[str, ...], what: str, hint: str
) -> None:
    answer = diff(capsys, dump, *words, "--json")
    error = answer.json["error"]
    assert (answer.code, answer.json["verdict"]) == (2, "cannot_judge")
    assert what in error["what"]
    assert hint in error["hint"]
    assert error["where"] or "no node" in what


def test_a_step_without_this_tensor_says_which_have_it(capsys: Capsys, dump: Path) -> None:
    file_of(dump / "rank_0/Net/0/1", FILES["ReLU-op2"]).unlink()
    answer = diff(capsys, dump, "ReLU-op2", "--step", 2)
    assert answer.code == 2
    assert answer.err.splitlines() == [
        "tdbg: this tensor has no values at step 1",
        f"  where: rank 0 {RELU}:out:0",
        "  do:    rank 0 has it at steps 0,2; at step 1 it is in rank 1",
    ]


@pytest.mark.parametrize("wrong", [("--rtol", "-1"), ("--atol", "nan"), ("--tolerance", "101"), ("--atol", "inf")])
def test_wrong_tolerances(capsys: Capsys, dump: Path, wrong: tuple[str, str]) -> None:
    answer = diff(capsys, dump, "ReLU-op2", *wrong)
    assert (answer.code, f"{wrong[1]!r} is not" in answer.err) == (2, True)


def test_other_element_types(capsys: Capsys, tmp_path: Path) -> None:
    """bfloat16 that is kept in float32 is measured in bfloat16; whole numbers and bools are numbers."""
    writer = DumpWriter(tmp_path / "dump")
    writer.metadata()
    writer.graph(MLP)
    one = np.array([[1.0, 2.0, 3.0]], np.float32)
    for step, factor in ((0, 1), (1, 1.0078125)):
        writer.tensor(step, "ReLU", RELU, (one * factor).astype(np.float32), dtype="bfloat16")
        writer.tensor(step, "MatMul", MATMUL, np.array([0, 255 - step], np.uint8))
        writer.tensor(step, "ApplyMomentum", MOMENTUM, np.array([True, step == 0]))
    ulp = diff(capsys, writer.root, "ReLU-op2", "--json").json["ulp"]
    assert (ulp["type"], ulp["measured"]) == ("bfloat16", 3)
    assert 0 < ulp["greatest"] <= 2
    unsigned = diff(capsys, writer.root, "MatMul-op1", "--json").json
    assert (unsigned["difference"]["min"], unsigned["ulp"], unsigned["largest"][0]["here"]) == (-1, None, 254)
    bools = diff(capsys, writer.root, "ApplyMomentum-op3", "--json").json
    assert (bools["max_abs"], bools["largest"][0]["here"]) == (1, False)


def test_nothing_and_text(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    for step in (1, 2):
        np.save(file_of(dump / f"rank_0/Net/0/{step}", FILES["ReLU-op2"]), np.zeros((0, 3), np.float32))
    answer = diff(capsys, dump, "ReLU-op2")
    assert (answer.code, answer.lines[3]) == (0, "equal: both are without elements")
    np.save(tmp_path / "x.npy", np.array(["text"]))
    text = diff(capsys, dump, "MatMul-op1", "--with", tmp_path / "x.npy", "--reshape")
    assert (text.code, text.err.splitlines()[0]) == (2, "tdbg: only numbers can be compared")


def test_a_dump_of_old_names_too(capsys: Capsys, tmp_path: Path) -> None:
    writer = write_dump(tmp_path / "dump")
    assert diff(capsys, writer.root / "rank_0/Net/0/1", "ReLU-op2").lines[2].startswith("there  step 0")


def test_without_values_it_says_that_statistics_are_all_there_is(capsys: Capsys, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    for step in (0, 1):
        writer.statistics(step, [("ReLU", RELU, "output", 0, np.ones(3, np.float32))])
    answer = diff(capsys, tmp_path, RELU, "--json")
    assert answer.code == 2
    assert answer.json["error"]["what"] == "only statistics of this tensor were dumped at step 1, no values"


def test_another_run_without_the_node_is_named(capsys: Capsys, dump: Path, dumps: Dumps) -> None:
    other = dumps(NAN)
    answer = diff(capsys, dump, "fc1.weight", "--with", other, "--with", "step=1", "--json")
    assert answer.code == 2
    assert answer.json["error"]["what"] == "the other run has no such node"
    assert str(other) in answer.json["error"]["where"]


class TestFiles:
    @pytest.mark.parametrize("form", ["npz", "pt", "safetensors"])
    def test_a_tensor_of_a_file_with_several_is_named_behind_a_colon(
        self, capsys: Capsys, dump: Path, tmp_path: Path, form: str
    ) -> None:
        here = values(dump, "ReLU-op2", 2)
        write_arrays(tmp_path / "saved", {"relu.out": here, "other": here + 1}, form)
        (file,) = (tmp_path / "saved").iterdir()
        same = diff(capsys, dump, "ReLU-op2", "--with", f"{file}:relu.out")
        assert (same.code, same.lines[3]) == (0, "equal: all 6 elements")
        check_numbers(diff(capsys, dump, "ReLU-op2", "--with", f"{file}:other", "--json"), here, here + 1)
        several = diff(capsys, dump, "ReLU-op2", "--with", file, "--json")
        assert several.code == 2
        assert several.json["error"]["what"] == "the file holds several tensors"
        assert "relu.out" in several.json["error"]["hint"]
        wrong = diff(capsys, dump, "ReLU-op2", "--with", f"{file}:nosuch", "--json")
        assert (wrong.code, wrong.json["error"]["what"]) == (2, "the file has no tensor 'nosuch'")

    @pytest.mark.parametrize("form", ["npz", "pt", "safetensors"])
    def test_the_only_tensor_of_a_file_needs_no_name(
        self, capsys: Capsys, dump: Path, tmp_path: Path, form: str
    ) -> None:
        write_arrays(tmp_path / "saved", {"a": values(dump, "ReLU-op2", 2)}, form)
        (file,) = (tmp_path / "saved").iterdir()
        assert diff(capsys, dump, "ReLU-op2", "--with", file).code == 0

    def test_a_file_with_a_colon_in_its_name_is_that_file(self, capsys: Capsys, dump: Path, tmp_path: Path) -> None:
        np.save(tmp_path / "a:b.npy", values(dump, "ReLU-op2", 2))
        assert diff(capsys, dump, "ReLU-op2", "--with", tmp_path / "a:b.npy").code == 0

    def test_a_bare_tensor_that_torch_saved(self, capsys: Capsys, dump: Path, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        torch.save(torch.from_numpy(values(dump, "ReLU-op2", 2)), tmp_path / "x.pt")
        assert diff(capsys, dump, "ReLU-op2", "--with", tmp_path / "x.pt").code == 0


class TestNodesOfLaterSteps:
    """Where nothing but files tells of nodes, a later step has some that the first one lacks."""

    @pytest.fixture
    def arrays(self, tmp_path: Path) -> Path:
        write_arrays(tmp_path / "run/step_0", {"a": np.ones(3, np.float32)})
        for step in (1, 2):
            write_arrays(tmp_path / f"run/step_{step}", {"a": np.ones(3), "late": np.full(3, step, np.float32)})
        return tmp_path / "run"

    def test_it_is_found(self, capsys: Capsys, arrays: Path) -> None:
        check_numbers(diff(capsys, arrays, "late", "--json"), np.full(3, 2.0), np.full(3, 1.0))
        other = diff(capsys, arrays, "a", "--step", 1, "--with", "tensor=late", "--json")
        assert (other.json["there"]["key"]["node"], other.code) == ("late", 0)

    def test_in_another_run_too(self, capsys: Capsys, arrays: Path, tmp_path: Path) -> None:
        shutil.copytree(arrays, tmp_path / "again")
        answer = diff(capsys, arrays, "a", "--step", 2, "--with", tmp_path / "again", "--with", "tensor=late", "--json")
        assert (answer.json["there"]["key"]["node"], answer.code) == ("late", 1)
        same = diff(capsys, arrays, "late", "--step", 2, "--with", tmp_path / "again")
        assert same.code == 0, same.err

    def test_around_it_a_graph_is_exported(self, capsys: Capsys, arrays: Path, tmp_path: Path) -> None:
        said = run(capsys, "export", arrays, "graph", "--around", "late", "-o", tmp_path / "g.json")
        assert said.code == 0, said.err
