"""``tdbg audit``: what is said, in every form; exit codes."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import Answer, run
from tests.json_page import assert_described
from tui_debugger.cli.audit import COVERAGE_TITLES, TITLES

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]
MLP = "mindspore-2.0-mlp"


def audit(capsys: Capsys, *words: object) -> Answer:
    return run(capsys, "audit", *words, "--jobs", "1")


def test_a_sound_run(capsys: Capsys, dumps: Dumps) -> None:
    answer = audit(capsys, dumps(MLP))
    assert answer.code == 0
    assert answer.lines[-1] == "no known operator is wrong"
    assert "224 operators checked of 234: 10 lack a recorded value" in answer.out


def test_the_operator_that_is_wrong(capsys: Capsys, faulty: Path) -> None:
    answer = audit(capsys, faulty)
    assert answer.code == 1
    assert "Tanh-op88 at step 2: its output was written over before it was saved" in answer.out
    assert "what was recorded is what is expected times 1.01" in answer.out
    assert answer.lines[-1] == "1 output wrong"


def test_filters_leave_the_rest_out(capsys: Capsys, faulty: Path) -> None:
    assert audit(capsys, faulty, "--step", "0-1").code == 0
    assert audit(capsys, faulty, "--step", "2", "--filter", "Tanh").code == 1
    assert audit(capsys, faulty, "--filter", "Sigmoid").code == 0
    answer = audit(capsys, faulty, "--node", "Tanh-op88", "--json")
    assert answer.code == 1
    assert answer.json["coverage"]["checked"] == 6
    assert audit(capsys, faulty, "--node", "no-such-node").code == 2


def test_the_document_says_all_of_it(capsys: Capsys, faulty: Path) -> None:
    answer = audit(capsys, faulty, "--json")
    found = answer.json
    assert_described(found, "audit")
    assert (found["verdict"], found["exit_code"], answer.code) == ("finding", 1, 1)
    headline = found["headline"]
    assert found["findings"] == [headline]
    assert (headline["step"], headline["fault"], headline["kind"]) == (2, "overwritten", "tanh")
    assert headline["difference_kind"] == "scale"
    assert headline["tensor"]["node"] == headline["node"]
    assert headline["found"] == pytest.approx(1.01 * headline["expected"], rel=1e-5)
    assert headline["r"] > 6
    assert headline["inputs_sound"] is True
    tanh = next(each for each in found["coverage"]["operators"] if each["kind"] == "tanh")
    assert (tanh["checked"], tanh["wrong"], tanh["known"]) == (6, 1, True)


def test_what_is_required_and_missing_is_2(capsys: Capsys, dumps: Dumps) -> None:
    answer = audit(capsys, dumps("mindspore-2.10-multi-flow"), "--require", "tanh,matmul", "--json")
    assert answer.code == 2
    assert_described(answer.json, "audit")
    assert (answer.json["verdict"], answer.json["required"][0]["kind"]) == ("cannot_judge", "matmul")
    answer = audit(capsys, dumps(MLP), "--require", "nonsense")
    assert answer.code == 2
    assert "no kind of operator is called 'nonsense'" in answer.err


def test_nothing_that_can_be_audited_is_2(capsys: Capsys, dumps: Dumps) -> None:
    answer = audit(capsys, dumps("msprobe-xor"))
    assert answer.code == 2
    assert answer.lines[-1] == "cannot judge: no operator could be checked"
    assert "only statistics" in answer.out


def test_tables_and_reports_are_written(capsys: Capsys, faulty: Path, tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    words = ("--markdown", tmp_path / "r.md", "--xlsx", tmp_path / "r.xlsx", "--csv")
    answer = audit(capsys, faulty, *words)
    assert answer.code == 1
    (row,) = csv.DictReader(io.StringIO(answer.out))
    assert list(row) == list(TITLES)
    assert row["node"].endswith("Tanh-op88")
    text = (tmp_path / "r.md").read_text("utf-8")
    assert text.startswith("# Audit\n")
    assert "**1 output wrong**" in text
    findings, coverage = openpyxl.load_workbook(tmp_path / "r.xlsx").worksheets
    assert [cell.value for cell in findings[1]] == list(TITLES)
    assert [cell.value for cell in coverage[1]] == list(COVERAGE_TITLES)
    assert findings.max_row == 2


def test_csv_and_json_exclude_each_other(capsys: Capsys, faulty: Path) -> None:
    answer = audit(capsys, faulty, "--csv", "--json")
    assert answer.code == 2
    assert "exclude each other" in answer.err
