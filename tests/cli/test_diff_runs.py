"""``tdbg diff A B``: two runs. What is said, in every form; exit codes; which of two meanings a word has."""

from __future__ import annotations

import csv
import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import Answer, file_of, run
from tests.json_page import assert_described
from tests.linked import linked, own
from tui_debugger.cli.diff_runs import ROW_TITLES

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]
MLP = "mindspore-2.0-mlp"


@pytest.fixture
def faulty(dumps: Dumps, tmp_path: Path) -> Path:
    """A copy in which one operator is wrong at step 2."""
    copy = linked(dumps(MLP), tmp_path / "faulty")
    file = own(file_of(next(copy.rglob("2/Tanh*.output.*")).parent, "Tanh*Tanh-op88*.output.0.*"))
    np.save(file, np.load(file) * np.float32(1.01))
    return copy


def diff(capsys: Capsys, *words: object) -> Answer:
    return run(capsys, "diff", *words)


def test_the_same_run_twice(capsys: Capsys, dumps: Dumps) -> None:
    answer = diff(capsys, dumps(MLP), dumps(MLP))
    assert answer.code == 0
    assert answer.lines[-1] == "the same, within what is expected"
    assert "compared " in answer.out


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
