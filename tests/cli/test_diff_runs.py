"""``tdbg diff A B``: two runs. What is said, in every form; exit codes; which of two meanings a word has."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import Answer, file_of, run
from tests.cli.terminals import Terminal
from tests.json_page import assert_described
from tests.linked import linked, own
from tests.sources.arrays import write_arrays
from tests.sources.writer import huge_file, write_dump
from tui_debugger.cli import open_
from tui_debugger.cli.diff_runs import how_compared
from tui_debugger.cli.main import build_parser
from tui_debugger.diagnose.runs import step
from tui_debugger.diagnose.runs.text import ROW_TITLES
from tui_debugger.errors import TdbgError
from tui_debugger.session.comparison import ComparedRun

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]
MLP = "mindspore-2.0-mlp"


def diff(capsys: Capsys, *words: object) -> Answer:
    return run(capsys, "diff", *words)


def test_the_same_run_twice(capsys: Capsys, dumps: Dumps) -> None:
    answer = diff(capsys, dumps(MLP), dumps(MLP))
    assert answer.code == 0
    assert answer.lines[-1] == "the same, within what is expected"
    assert "compared " in answer.out


@pytest.mark.parametrize(("one", "other"), [(1234567890, 1234567891), (2**53, 2**53 + 2), (2**63, 2**63 + 1)])
def test_whole_numbers_are_counted_and_shown_exactly(capsys: Capsys, tmp_path: Path, one: int, other: int) -> None:
    for run_name, value in {"a": one, "b": other}.items():
        (tmp_path / run_name / "step_0").mkdir(parents=True)
        np.save(tmp_path / run_name / "step_0" / "ids.npy", np.array([1, value], np.uint64))
    answer = diff(capsys, tmp_path / "a", tmp_path / "b")
    assert answer.code == 1
    assert "; 1 of 2 differ" in answer.out
    if other < 2**53 + 3:
        assert f"at [1]: {one} in A, {other} in B" in answer.out


def test_the_headline_is_the_operator_that_is_wrong(capsys: Capsys, dumps: Dumps, faulty: Path) -> None:
    answer = diff(capsys, dumps(MLP), faulty)
    assert answer.code == 1
    assert "Tanh-op88 at step 2: its inputs agree and its output does not; B is A times 1.01; B is wrong" in answer.out
    assert answer.lines[-1].startswith("different: 1 difference")


def test_the_document_says_all_of_it(capsys: Capsys, dumps: Dumps, faulty: Path) -> None:
    answer = diff(capsys, dumps(MLP), faulty, "--json")
    found = answer.json
    assert_described(found, "diff")
    assert (found["verdict"], found["exit_code"], answer.code) == ("different", 1, 1)
    headline = found["headline"]
    assert headline == found["findings"][0]
    assert headline["node"].endswith("Tanh-op88")
    assert (headline["step"], headline["kind"], headline["difference_kind"]) == (2, "introduced", "scale")
    assert headline["wrong_side"] == "there"
    assert headline["here"]["file"] == headline["there"]["file"]
    assert [row["node"] for row in found["nodes"]] == [headline["node"]]
    assert found["coverage"]["by_values"] > 1000


def test_the_table_has_a_row_for_every_node_and_step(capsys: Capsys, dumps: Dumps, faulty: Path) -> None:
    answer = diff(capsys, dumps(MLP), faulty, "--csv", "--step", "2")
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    assert list(rows[0]) == list(ROW_TITLES)
    assert {row["step"] for row in rows} == {"2"}
    (wrong,) = [row for row in rows if row["judgement"] == "introduced"]
    assert wrong["node"].endswith("Tanh-op88")


def test_a_report_and_a_workbook_are_written(capsys: Capsys, dumps: Dumps, faulty: Path, tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    words = ("--markdown", tmp_path / "r.md", "--xlsx", tmp_path / "r.xlsx")
    assert diff(capsys, dumps(MLP), faulty, *words).code == 1
    text = (tmp_path / "r.md").read_text("utf-8")
    assert text.startswith("# Two runs compared\n")
    assert "Tanh-op88" in text
    (page,) = openpyxl.load_workbook(tmp_path / "r.xlsx").worksheets
    assert [cell.value for cell in page[1]] == list(ROW_TITLES)
    assert page.max_row > 400


def test_within_a_tolerance_nothing_differs(capsys: Capsys, dumps: Dumps, faulty: Path) -> None:
    assert diff(capsys, dumps(MLP), faulty, "--rtol", "0.1", "--atol", "0.1").code == 0
    assert diff(capsys, dumps(MLP), faulty, "--type-tolerance", "float32=0.1,0.1").code == 0
    assert diff(capsys, dumps(MLP), faulty, "--rtol", "1e-6").code == 1


def test_a_step_that_is_missing_is_a_doubt(capsys: Capsys, dumps: Dumps, tmp_path: Path) -> None:
    copy = linked(dumps(MLP), tmp_path / "short")
    for folder in [each for each in copy.rglob("5") if each.is_dir()]:
        shutil.rmtree(folder)
    answer = diff(capsys, dumps(MLP), copy)
    assert answer.code == 2
    assert "doubt: step 5 is in the first run only" in answer.out
    assert diff(capsys, dumps(MLP), copy, "--step", "0-4").code == 0


def test_steps_and_names_can_be_mapped(capsys: Capsys, dumps: Dumps, tmp_path: Path) -> None:
    mapping = tmp_path / "map.json"
    mapping.write_text('{"steps": {"2": 2}, "names": ["s/^fc1/fc1/"]}', "utf-8")
    answer = diff(capsys, dumps(MLP), dumps(MLP), "--map-file", mapping, "--json")
    assert [step["step"] for step in answer.json["coverage"]["steps"]] == [2]
    assert diff(capsys, dumps(MLP), dumps(MLP), "--map-step", "1:1", "--map-rank", "0:0").code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("B", "--map-name", "nonsense"), "is no substitution"),
        (("B", "--map-file", "/does/not/exist"), "no mapping can be read"),
        (("B", "--with", "step=1"), "are for one tensor"),
        (("B", "--csv", "--json"), "exclude each other"),
        (("Tanh-op88", "--csv"), "is for two runs"),
        (("./nowhere",), "no such file or directory"),
        (("B", "--map-step", "x"), "is not two numbers"),
        (("B", "--type-tolerance", "float99=1"), "is not a type with tolerances"),
        (("B", "--map-step", "77:78"), "no step in common"),
        (("B", "--map-rank", "0:5"), "no rank in common"),
    ],
)
def test_what_cannot_be_done_is_said(capsys: Capsys, dumps: Dumps, words: tuple[str, ...], says: str) -> None:
    answer = diff(capsys, dumps(MLP), *(str(dumps(MLP)) if word == "B" else word for word in words))
    assert answer.code == 2
    assert says in answer.err


def test_a_name_that_is_no_path_is_a_node(capsys: Capsys, dumps: Dumps) -> None:
    assert diff(capsys, dumps(MLP), "head.weight", "--json").json["compared_as"]


def test_a_path_that_is_also_a_node_is_taken_for_the_run(
    capsys: Capsys, dumps: Dumps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked(dumps(MLP), tmp_path / "head.weight")
    monkeypatch.chdir(tmp_path)
    answer = diff(capsys, dumps(MLP), "head.weight")
    assert answer.code == 0
    assert "head.weight is a node and a path: it is taken for the run" in answer.err
    assert diff(capsys, dumps(MLP), "head.weight:0", "--json").json["compared_as"]


def test_other_digests_of_the_same_statistics_are_not_the_same_values(
    capsys: Capsys, dumps: Dumps, tmp_path: Path
) -> None:
    """Nothing tells how far the values are apart: neither the same nor a finding."""
    dump = dumps("msprobe-mix-2rank-mb-md5")
    copy = linked(dump, tmp_path / "copy")
    file = own(max(copy.rglob("rank1/dump.json")))
    digest = next(iter(re.findall(r'"md5": "(\w+)"', file.read_text())))
    file.write_text(file.read_text().replace(digest, "f" * len(digest), 1))
    answer = diff(capsys, dump, copy, "--json")
    assert answer.code == 2
    assert answer.json["coverage"]["by_values"] == answer.json["coverage"]["by_statistics"] == 0
    assert answer.json["coverage"]["not_compared"] == 1
    assert "hashes differ; how far the values are apart was not recorded" in answer.json["reasons"][0]["text"]
    assert diff(capsys, dump, dump).code == 0


def test_a_repeat_of_the_first_run_gives_the_noise(capsys: Capsys, dumps: Dumps, faulty: Path) -> None:
    """What it differs by is none, and is said."""
    hidden = diff(capsys, dumps(MLP), faulty, "--noise", faulty)
    assert hidden.code == 0
    assert "noise between the first run and its repeat" in hidden.err
    assert diff(capsys, dumps(MLP), faulty, "--noise", dumps(MLP)).code == 1


def test_ranks_that_share_tensors_are_compared_together(capsys: Capsys, dumps: Dumps) -> None:
    pair = dumps("msprobe-pairs-tp") / "l_tp"
    answer = diff(capsys, pair / "A", pair / "B", "--json")
    found = answer.json
    assert_described(found, "diff")
    assert (answer.code, found["verdict"], found["headline"]) == (0, "same", None)
    assert set(found["coverage"]["joined"]) == {"split", "sum", "replicated"}
    assert found["coverage"]["steps"][0]["there_ranks"] == [0, 1]
    wrong = diff(capsys, pair / "A", pair / "B", "--dims", "b/0/mlp/fc1/*=sum")
    assert wrong.code != 0
    assert "no layout given with --dims, does not fit" in wrong.out


def test_a_file_can_say_which_ranks_share_what(capsys: Capsys, dumps: Dumps, tmp_path: Path) -> None:
    pair = dumps("msprobe-pairs-tp") / "l_tp"
    mapping = tmp_path / "map.json"
    mapping.write_text('{"ranks": {"0": [0, 1]}, "dims": {"b/0/mlp/fc1/*": "2", "b/0/mlp/act/*": "2"}}', "utf-8")
    answer = diff(capsys, pair / "A", pair / "B", "--map-file", mapping, "--json")
    assert answer.json["coverage"]["steps"][0]["there_ranks"] == [0, 1]
    mapping.write_text('{"dims": {"b/0": "q"}}', "utf-8")
    refused = diff(capsys, pair / "A", pair / "B", "--map-file", mapping)
    assert (refused.code, "does not say how ranks share" in refused.err) == (2, True)
    mapping.write_text('{"ranks": {"0": ["x"]}}', "utf-8")
    assert "no mapping can be read" in diff(capsys, pair / "A", pair / "B", "--map-file", mapping).err


def test_what_says_no_layout_is_refused(capsys: Capsys, dumps: Dumps) -> None:
    answer = diff(capsys, dumps(MLP), dumps(MLP), "--dims", "x")
    assert answer.code == 2
    assert "does not say how ranks share" in answer.err


# -- long comparisons ----------------------------------------------------------------------------------


def huge_pair(root: Path) -> tuple[Path, Path]:
    """Two dumps that differ at step 0 and whose step 2 nobody can wait for."""
    for name in "AB":
        write_dump(root / name, steps=range(5))
        huge_file(next((root / name).glob("rank_0/Net/0/2/ReLU*output*")))
    file = next((root / "B").glob("rank_0/Net/0/0/ReLU*output*"))
    np.save(file, np.load(file) * np.float32(2))
    return root / "A", root / "B"


def test_ctrl_c_says_how_far_it_came(tmp_path: Path) -> None:
    shell = Terminal(200, "diff", *huge_pair(tmp_path), "--jobs", "1")
    shell.until("step 2, first difference at step 0")
    began = time.monotonic()
    assert shell.interrupt() == 130
    assert time.monotonic() - began < 10, "it does not wait for the file"
    last = shell.out.splitlines()[-1]
    assert last.startswith("interrupted: 2 of 5 steps compared; ")
    assert last.endswith(" so far")
    assert "Traceback" not in shell.err


def test_ctrl_c_leaves_one_json_document(tmp_path: Path) -> None:
    shell = Terminal(200, "diff", *huge_pair(tmp_path), "--json")
    shell.until("step 2")
    assert shell.interrupt() == 130
    found = json.loads(shell.out)
    assert (found["verdict"], found["exit_code"], found["cancelled"]) == ("interrupted", 130, True)
    assert (len(found["coverage"]["steps"]), found["coverage"]["steps_asked"]) == (2, 5)
    assert found["headline"]["step"] == 0


def test_what_was_compared_is_not_read_again(
    capsys: Capsys, dumps: Dumps, faulty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TDBG_CACHE_DIR", str(tmp_path / "cache"))
    copy = linked(dumps(MLP), tmp_path / "copy")
    wrong = file_of(next(faulty.rglob("2/Tanh*.output.*")).parent, "Tanh*Tanh-op88*.output.0.*")
    os.utime(wrong, (1.6e9, 1.6e9))  # nobody relies on what was written a moment ago
    first = diff(capsys, copy, faulty, "--jobs", "1", "--json").json
    monkeypatch.setattr(step, "distance_of_files", lambda *_: pytest.fail("a file is read again"))
    assert diff(capsys, copy, faulty, "--jobs", "1", "--json").json == first


def test_what_was_written_since_is_read_again(
    capsys: Capsys, dumps: Dumps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TDBG_CACHE_DIR", str(tmp_path / "cache"))
    copy = linked(dumps(MLP), tmp_path / "copy")
    assert diff(capsys, dumps(MLP), copy).code == 0
    file = own(file_of(next(copy.rglob("2/Tanh*.output.*")).parent, "Tanh*Tanh-op88*.output.0.*"))
    state = file.stat()
    np.save(file, np.load(file) * np.float32(1.01))
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert diff(capsys, dumps(MLP), copy).code == 1


@pytest.mark.parametrize("jobs", [1, 2])
def test_any_number_of_workers_says_the_same(
    capsys: Capsys, dumps: Dumps, faulty: Path, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui_debugger.stats.workers.WORTH_HANDING_OVER", 1)
    found = diff(capsys, dumps(MLP), faulty, "--jobs", jobs, "--json").json
    monkeypatch.undo()
    assert found == diff(capsys, dumps(MLP), faulty, "--jobs", 1, "--json").json


def test_the_screen_compares_as_the_command_does(dumps: Dumps, tmp_path: Path) -> None:
    mapping = tmp_path / "map.json"
    mapping.write_text('{"nodes": {"a": "b"}, "dims": {"fc*": "0"}}', "utf-8")
    words = ["--map-name", "s/x/y/", "--map-step", "0:1", "--map-rank", "0:1", "--map-file", str(mapping)]
    words += ["--dims", "*=sum", "--noise", str(dumps(MLP)), "--rtol", "0.1", "--atol", "0.2"]
    words += ["--type-tolerance", "float16=1,2"]
    a = str(dumps(MLP))
    diffed = build_parser("diff").parse_args(["diff", a, a, *words])
    shown = build_parser("open").parse_args(["open", a, "--against", a, *words])
    against = open_._against(shown)
    assert against == ComparedRun(a, how_compared(diffed), a)
    assert [pattern for pattern, _ in against.options.dims.rules] == ["*", "fc*"]
    with pytest.raises(TdbgError, match="--dims is for two runs"):
        open_._against(build_parser("open").parse_args(["open", a, "--dims", "*=sum"]))


def test_squares_that_overflow_say_nothing_of_numpy(tmp_path: Path) -> None:
    """Warnings of NumPy are no text of ours; another process prints them as a user sees them."""
    for name, size in (("a", 1e160), ("b", 1e250)):
        write_arrays(tmp_path / name / "step_1", {"x": np.array([3 * size, -4 * size])})
    done = subprocess.run(
        [sys.executable, "-m", "tui_debugger", "diff", str(tmp_path / "a"), str(tmp_path / "b")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Warning" not in done.stderr


@pytest.mark.parametrize("form", ["npz", "npy"])
@pytest.mark.parametrize(("fault", "wrong"), [(1.0, []), (1.5, ["layer04"]), (float("nan"), ["layer04"])])
def test_what_only_passes_on_is_told_by_the_order_of_layers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str, fault: float, wrong: list[str]
) -> None:
    """Nobody recorded what feeds what."""
    for side, factor in {"A": 1.0, "B": fault}.items():
        values, layers = np.linspace(-1, 1, 64, dtype=np.float32), {}
        for number in range(11):
            values = np.tanh(values) * np.float32(factor if number == 4 else 1.0)
            layers[f"layer{number:02d}"] = values
        write_arrays(tmp_path / side / "step_0", layers, form)
    answer = run(capsys, "diff", tmp_path / "A", tmp_path / "B", "--json")
    assert [each["node"].rpartition("/")[2] for each in answer.json["findings"]] == wrong
    assert answer.code == bool(wrong)


def test_other_shapes_of_activations_are_said_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Another size of a batch: what follows from it is no doubt of its own."""
    for side, batch in {"A": 4, "B": 8}.items():
        layers = {f"layer{number:02d}": np.linspace(0, 1, 6 * batch).reshape(batch, 6) for number in range(11)}
        write_arrays(tmp_path / side / "step_0", layers, "npz")
    answer = run(capsys, "diff", tmp_path / "A", tmp_path / "B", "--json")
    assert answer.code == 2
    texts = [each["text"] for each in answer.json["reasons"] if "shapes differ" in each["text"]]
    assert len(texts) == 1
    assert "layer00:0: shapes differ [4, 6] and [8, 6], and so do 10 tensors behind it" in texts[0]
