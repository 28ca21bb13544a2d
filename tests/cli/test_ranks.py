"""``tdbg ranks``: what it says first, the grid in glyphs, numbers, CSV and JSON, exit codes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.ranks import write_ranks
from tests.cli.running import file_of, run
from tests.sources.writer import write_dump
from tui_debugger.cli.ranks import SHOWN
from tui_debugger.diagnose.ranks import grid

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]


def test_the_command_shows_what_the_grid_can() -> None:
    assert SHOWN == grid.SHOWN


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("sglang-megatron/sglang-2rank", "Rank 0 broke first: step 3, energy:out:0"),
        ("sglang-megatron/megatron-tp2/bad", "Ranks 0,1 broke first: step 3, decoder.layers.0.self_attention.linear"),
        ("msprobe-mix-2rank-mb-md5/dump", "Rank 0 broke first: step 3, energy/Torch.log:out:0"),
        ("msprobe-ranks/k_noreduce/B", "The gradient of b.0.mlp.fc1.bias was not reduced over ranks 0,1 at step 0"),
    ],
)
def test_the_first_line_names_the_rank_and_the_tensor(capsys: Capsys, dumps: Dumps, name: str, begins: str) -> None:
    archive, _, path = name.partition("/")
    answer = run(capsys, "ranks", dumps(archive) / path)
    assert answer.lines[0].startswith(begins)
    assert answer.code == 1


def test_the_last_lines_on_a_terminal_are_the_verdict_and_the_exit_code(
    capsys: Capsys, dumps: Dumps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The grid is longer than a terminal, and scrolls the first line away."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "400")
    answer = run(capsys, "ranks", dumps("msprobe-ranks") / "k_noreduce/B")
    verdict, last = [line for line in answer.lines if line][-2:]
    assert (answer.code, last) == (1, "exit code 1: a finding")
    assert verdict.startswith("The gradient of b.0.mlp.fc1.bias was not reduced over ranks 0,1")
    assert answer.lines.count(verdict) == 1


def test_clean_ranks_say_what_was_compared(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "ranks", dumps("msprobe-ranks") / "k_noreduce/A")
    assert answer.code == 0
    assert answer.lines[0].startswith("Clean: 2 ranks, 74 tensors compared between them by their bytes (weights 37")
    assert "layout: dp 2 (inferred: from the weights that are equal)" in answer.lines


def test_where_ranks_differ_the_grid_shows_where(capsys: Capsys, dumps: Dumps) -> None:
    dump = dumps("msprobe-ranks") / "k_noreduce/B"
    answer = run(capsys, "ranks", dump)
    assert "0 1   rank: replicas at step 0" in answer.lines
    assert "≠ ≠   Gradients/" in answer.lines
    assert run(capsys, "ranks", dump, "--json").json["shown"] == "verdict"
    assert "0 1   rank: verdict" in run(capsys, "ranks", dump, "--stat", "verdict").lines


def test_one_rank_cannot_be_compared(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "ranks", dumps("mindspore-2.10-mlp"))
    assert answer.code == 2
    assert answer.lines[:2] == ["Cannot judge: there is one rank: nothing to compare", "layout: 1 rank"]


def test_the_grid_has_a_column_for_every_rank(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "ranks", dumps("sglang-megatron") / "sglang-2rank")
    lines = [line for line in answer.lines if line.endswith(("    energy", "    input_ids", " model/"))]
    assert lines == ["◆ N   model/", "· ·     input_ids", "◆ ·     energy"]


def test_few_ranks_are_shown_in_numbers(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(
        capsys, "ranks", dumps("msprobe-ranks") / "k_noreduce/B", "--stat", "norm", "--step", "1", "--nodes",
        "--filter", "^b.0.mlp.fc1.bias$",
    )  # fmt: skip
    (line,) = [line for line in answer.lines if line.endswith("  b.0.mlp.fc1.bias")]
    rank_0, rank_1, _ = line.split()
    assert rank_0 != rank_1


def test_replicas_that_differ_are_marked(capsys: Capsys, dumps: Dumps) -> None:
    path = dumps("msprobe-ranks") / "k_noreduce/B"
    answer = run(capsys, "ranks", path, "--stat", "replicas", "--nodes", "--bad", "--json")
    assert [(row["path"], row["cells"]) for row in answer.json["rows"]] == [
        ("Gradients/b/0/mlp/fc1/bias", ["differs from other ranks"] * 2),
        ("b/0/mlp/fc1/bias", ["nothing differs"] * 2),
    ]


def test_csv_has_every_node_and_scope(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "ranks", dumps("sglang-megatron") / "sglang-2rank", "--csv")
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    energy = next(row for row in rows if row["path"] == "model/energy")
    assert (energy["rank 0"], energy["rank 1"], energy["scope"]) == ("origin", "clean", "False")


def test_csv_and_json_exclude_each_other(capsys: Capsys, dump: Path) -> None:
    assert run(capsys, "ranks", dump, "--csv", "--json").code == 2


def test_a_document_says_who_told_the_layout(capsys: Capsys, dumps: Dumps) -> None:
    document = run(capsys, "ranks", dumps("sglang-megatron") / "sglang-2rank", "--json").json
    assert document["layout"]["told_by"] == "recorded"
    assert [(each["rank"], each["axis"], each["place"]) for each in document["layout"]["places"]] == [
        (0, "dp", 0),
        (1, "dp", 1),
    ]
    assert document["findings"][0]["ranks"] == [0]
    assert [each["step"] for each in document["first_bad"]] == [3, 3]


def test_a_rank_that_is_another_one_in_a_second_run_is_named(capsys: Capsys, tmp_path: Path) -> None:
    one, two = (write_dump(tmp_path / name, ranks=(0, 1)).root for name in ("one", "two"))
    same = run(capsys, "ranks", one, "--against", two, "--json").json
    assert not [each for each in same["findings"] if each["kind"] == "differs from the other run"]
    path = file_of(two, "rank_1/Net/0/1/ReLU.*.output.0.*.npy")
    np.save(path, np.load(path) + 1)
    answer = run(capsys, "ranks", one, "--against", two)
    assert answer.code == 1
    assert answer.lines[0].startswith("Rank 1 differs from ")
    assert "step 1, " in answer.lines[0]
    assert answer.lines[0].endswith("rank 0 is equal there")


def test_a_rank_with_another_batch_is_named(capsys: Capsys, dumps: Dumps) -> None:
    pair = dumps("msprobe-ranks") / "j_batch"
    answer = run(capsys, "ranks", pair / "B", "--against", pair / "A")
    assert answer.code == 1
    assert answer.lines[0].startswith("Rank 1 reads another batch than in ")
    assert answer.lines[0].endswith(": step 0, emb/Functional.embedding:in:0; rank 0 is equal there")


def test_what_is_the_same_of_all_ranks_is_said_once(capsys: Capsys, tmp_path: Path) -> None:
    root = write_ranks(tmp_path / "dump", 4, 25, 1)
    told = "ranks 0-3 have no run history: derived from the dumped steps"
    for command in ("ranks", "check", "health"):
        assert run(capsys, command, root).err.count("run history") == 1
        assert told in json.loads(run(capsys, command, root, "--json").out)["notices"]
