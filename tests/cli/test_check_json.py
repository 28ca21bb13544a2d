"""``tdbg check --json``: one document, whatever happened, with everything the text says and every hit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.checking import check
from tests.cli.running import file_of
from tests.sources.writer import MLP, write_dump
from tui_debugger import __version__

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]

MATMUL, RELU, MOMENTUM = (node.name for node in MLP.nodes)
KEYS = [
    *("schema", "command", "path", "exit_code", "verdict", "reasons", "unreadable", "recommended", "fail_on"),
    *("watchpoints", "coverage"),
    *(
        "by_design",
        "findings",
        "failing",
        "origins",
        "hits",
        "notes",
        "seconds",
        "cancelled",
        "notices",
        "inventory",
        "limits",
        "version",
    ),
]


def test_the_document_of_a_finding(capsys: Capsys, dumps: Dumps) -> None:
    path = dumps("mindspore-2.0-nan")
    answer = check(capsys, path, "--json", "--watch", "TO", "--step", "2-3")
    found = answer.json
    assert list(found) == KEYS
    assert (answer.code, found["exit_code"], found["verdict"]) == (1, 1, "finding")
    assert (found["command"], found["path"], found["version"]) == ("check", str(path), __version__)
    assert (found["cancelled"], found["recommended"], found["reasons"], found["fail_on"]) == (False, False, [], [])
    assert [origin["node"].rpartition("/")[2] for origin in found["origins"]] == ["Log-op381", "Div-op385"]
    first = found["hits"][0]
    assert {key: first[key] for key in ("rank", "step", "side", "slot", "verdict", "origin")} == {
        "rank": 0,
        "step": 3,
        "side": "output",
        "slot": 0,
        "verdict": "finding",
        "origin": True,
    }
    assert first["node"].endswith("/Log-op381")
    assert first["stats"]["neg_inf"] == 1
    assert [(each["abbr"], each["verdict"]) for each in first["results"]] == [("TO", "finding")]
    assert found["failing"] == found["findings"] == len(found["hits"]) > 100, "every hit, not 20 of them"
    (watchpoint,) = found["watchpoints"]
    assert watchpoint["text"] == "TO"
    assert watchpoint["findings"] == found["findings"]
    assert watchpoint["tensors"] == watchpoint["judged"] == found["coverage"]["checked"]
    assert found["coverage"]["pairs"] == [{"rank": 0, "step": 2}, {"rank": 0, "step": 3}]
    assert found["coverage"]["pairs_asked"] == 2
    assert found["seconds"] >= 0


def test_values_that_json_cannot_spell_are_text(capsys: Capsys, dump: Path) -> None:
    values = np.array([np.nan, np.inf, 1], np.float32)
    np.save(file_of(dump, "rank_0/Net/0/1/ReLU*output*"), values)
    found = check(capsys, dump, "--json").json  # refuses NaN literals
    (hit,) = [hit for hit in found["hits"] if hit["node"] == RELU and hit["verdict"] == "finding"]
    assert (hit["stats"]["nan"], hit["stats"]["pos_inf"], hit["stats"]["max"]) == (1, 1, 1.0)
    assert found["recommended"] is True


def test_what_nan_blocks_is_counted_apart_and_fails_the_check(capsys: Capsys, dump: Path) -> None:
    np.save(file_of(dump, "rank_0/Net/0/1/ReLU*output*"), np.array([np.nan, 1, 1], np.float32))
    asked = ("--watch", f"TL max_gt=1e30 @ node={RELU}", "--watch", f"TO @ node={RELU}", "--fail-on", "TL")
    answer = check(capsys, dump, "--json", *asked)
    found = answer.json
    assert (answer.code, found["failing"], found["findings"]) == (1, 1, 1)
    (hit,) = found["hits"]
    assert (hit["verdict"], [each["verdict"] for each in hit["results"]]) == ("finding", ["blocked", "finding"])
    large, overflow = found["watchpoints"]
    assert (large["findings"], large["blocked"], large["judged"]) == (0, 1, large["tensors"] - 1)
    assert (overflow["findings"], overflow["blocked"], overflow["by_design"]) == (1, 0, 0)
    assert (found["coverage"]["by_design"], found["coverage"]["constants"]) == (0, 0)


def test_the_document_of_a_clean_check(capsys: Capsys, dump: Path) -> None:
    answer = check(capsys, dump, "--json", "--watch", "TO", "--watch", "WNC")
    found = answer.json
    assert (answer.code, found["exit_code"], found["verdict"], found["findings"]) == (0, 0, "clean", 0)
    assert [hit["verdict"] for hit in found["hits"]] == ["not_comparable"] * 2
    overflow, unchanged = found["watchpoints"]
    assert (overflow["tensors"], overflow["judged"], overflow["not_comparable"]) == (36, 36, 0)
    assert (unchanged["tensors"], unchanged["judged"], unchanged["not_comparable"]) == (6, 4, 2)
    coverage = found["coverage"]
    counts = {key: coverage[key] for key in ("checked", "unreadable", "not_comparable", "skipped", "pairs_asked")}
    assert counts == {"checked": 36, "unreadable": 0, "not_comparable": 2, "skipped": 30, "pairs_asked": 6}


LOST = {
    "rank": 0,
    "step": 1,
    "where": "rank_0/Net/0/1",
    "why": "nothing of Parameter.fc1_weight output 0 that steps 0 and 2 have: was the dump cut?",
    "graph": False,
    "incomplete": True,
}


def test_the_document_of_what_cannot_be_judged(capsys: Capsys, dump: Path) -> None:
    file_of(dump, "rank_1/Net/0/2/ReLU*output*").write_bytes(b"")
    file_of(dump, "rank_0/Net/0/1/Parameter.fc1*").unlink()
    answer = check(
        capsys, dump, "--json", "--watch", "TO", "--watch", "WNC @ node=fc1.weight", "--watch", "TO @ node=nosuch"
    )
    found = answer.json
    assert (answer.code, found["exit_code"], found["verdict"]) == (2, 2, "cannot_judge")
    assert found["reasons"] == [
        {"kind": "unmatched", "text": "TO @ node=nosuch looked at no tensor"},
        {"kind": "unreadable", "text": f"1 step is incomplete: {LOST['where']} ({LOST['why']})"},
        {"kind": "unreadable", "text": "1 tensor cannot be read"},
        {"kind": "uncomparable", "text": "1 tensor could not be compared: no previous step"},
    ]
    assert {hit["node"] for hit in found["hits"] if hit["verdict"] == "cannot_judge"} == {RELU, "fc1.weight"}
    assert found["coverage"]["unreadable"] == 1
    assert found["unreadable"] == [LOST]


def test_findings_that_do_not_count_are_in_the_document(capsys: Capsys, dump: Path) -> None:
    answer = check(capsys, dump, "--json", "--watch", "TL max_gt=-9", "--watch", "TO", "--fail-on", "TO")
    found = answer.json
    assert (answer.code, found["verdict"], found["fail_on"]) == (0, "clean", ["TO"])
    assert (found["findings"], found["failing"]) == (36, 0)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--watch", "XX"], "no condition is called 'XX'"),
        (["--fail-on", "nosuch"], "no condition is called 'nosuch'"),
        (["--step", "9"], "step 9 is not in this dump"),
        (["--filter", "nosuch"], "no node matches"),
        (["--filter", "("], "not a regular expression"),
    ],
)
def test_a_check_that_does_not_begin_has_a_document_too(
    capsys: Capsys, dump: Path, arguments: list[str], what: str
) -> None:
    answer = check(capsys, dump, "--json", *arguments)
    found = answer.json
    assert list(found) == ["schema", "command", "path", "exit_code", "verdict", "reasons", "error", "version"]
    assert (answer.code, found["exit_code"], found["verdict"]) == (2, 2, "cannot_judge")
    (reason,) = found["reasons"]
    assert reason["kind"] == "error"
    assert reason["text"].startswith(what)
    assert what in answer.err


def test_a_path_without_a_dump_has_a_document_too(capsys: Capsys, tmp_path: Path) -> None:
    answer = check(capsys, tmp_path, "--json")
    assert (answer.code, answer.json["verdict"]) == (2, "cannot_judge")
    assert answer.err.startswith("tdbg: ")


def test_names_that_are_no_text_survive_as_json(capsys: Capsys, tmp_path: Path) -> None:
    step = write_dump(tmp_path / "dump", steps=[0]).step(0)
    with open(bytes(step) + b"/Add.caf\xe9\x1b.0.0.5.output.0.DefaultFormat.Float32.npy", "wb") as file:  # noqa: PTH123 - a path of bytes
        np.save(file, np.array([np.nan, 1], np.float32))
    answer = check(capsys, tmp_path / "dump", "--json", "--watch", "TO")
    assert answer.code == 1
    (hit,) = answer.json["hits"]
    assert "caf\udce9\x1b" in hit["node"]
    assert answer.out.isascii()


def test_notices_are_in_the_document_and_on_stderr(capsys: Capsys, dump: Path) -> None:
    for path in dump.rglob("*.pb"):
        path.unlink()
    answer = check(capsys, dump, "--json", "--watch", "TO")
    notices: list[Any] = answer.json["notices"]
    assert notices
    assert all(notice in answer.err for notice in notices)
    assert json.loads(answer.out) == answer.json
