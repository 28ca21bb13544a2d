"""Real pairs of runs: other precision, other kernels, a fault, a missing call, a renamed model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from tests.session.opened import opened
from tests.thorough import few
from tui_debugger.diagnose.runs.comparison import compare_runs
from tui_debugger.diagnose.runs.results import DiffKind, RunsReport
from tui_debugger.errors import TdbgError
from tui_debugger.model import UnreadablePart

Dumps = Callable[[str], Path]
PAIRS = ("c_kernels", "d_sdpa", "e_mul", "e_mul_bf16", "k_noreduce", "n_prefix")


def compared(a: Path, b: Path) -> RunsReport:
    sessions = opened(a), opened(b)
    report = compare_runs(*sessions)
    for session in sessions:
        session.close()
    return report


@pytest.mark.covering
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("name", few(PAIRS, 4))
def test_every_pair_is_judged_as_it_was_made(dumps: Dumps, name: str, *, swapped: bool) -> None:
    pair = dumps("msprobe-pairs") / name
    expected: dict[str, Any] = json.loads((pair / "expected.json").read_text("utf-8"))
    sides = (pair / "B", pair / "A") if swapped else (pair / "A", pair / "B")
    report = compared(*sides)
    assert report.exit_code in {expected["exit"], *expected["exit_also_ok"]}
    if report.headline is not None:
        keys = [key for key in report.headline.keys if key is not None]
        assert keys
        assert report.headline.place.step_a == expected["first_introduced"]["step"]
        assert not any(fnmatch(report.headline.name, pattern) for pattern in expected["must_not_be_named"])


def test_the_faulty_gelu_is_named_and_the_side_that_is_wrong(dumps: Dumps) -> None:
    for name in ("e_mul", "e_mul_bf16"):
        pair = dumps("msprobe-pairs") / name
        (finding,) = compared(pair / "A", pair / "B").findings
        assert (finding.name, finding.place.step_a) == ("b/1/mlp/act/Functional.gelu", 1)
        assert (finding.kind, finding.side) == (DiffKind.INTRODUCED, 1)


def test_the_reduction_that_one_run_leaves_out_is_named(dumps: Dumps) -> None:
    pair = dumps("msprobe-pairs") / "k_noreduce"
    headline = compared(pair / "A", pair / "B").headline
    assert headline is not None
    assert (headline.kind, headline.name, headline.consumer) == (
        DiffKind.MISSING,
        "Distributed.all_reduce.14",
        "b.0.mlp.fc1.bias",
    )


@pytest.mark.parametrize(
    "name",
    [
        "mindspore-2.0-mlp",
        "mindspore-2.10-multi-eval",
        "msprobe-mix/good",
        "msprobe-mix/nan",
        "msprobe-mix-2rank-mb-md5",
        "sglang-megatron/megatron-tp2/good",
    ],
)
def test_a_dump_is_the_same_as_itself(dumps: Dumps, name: str) -> None:
    archive, _, inside = name.partition("/")
    run = dumps(archive) / inside
    assert compared(run, run).exit_code == 0


def test_other_versions_differ_by_their_initial_weights_and_no_operator_is_wrong(dumps: Dumps) -> None:
    report = compared(dumps("mindspore-2.0-mlp"), dumps("mindspore-2.10-mlp"))
    assert report.exit_code == 1
    assert {finding.kind for finding in report.findings} == {DiffKind.PARAMETER}
    assert all(finding.name.startswith(("fc", "head")) for finding in report.findings)


def test_a_repeat_with_other_kernels_hides_no_fault(dumps: Dumps) -> None:
    """Every output of the repeat is noisy; the fault is 2,000 times the noise. Its own repeat hides it, as it must."""
    pairs = dumps("msprobe-pairs")
    sessions = [opened(pairs / name) for name in ("c_kernels/A", "e_mul/B", "c_kernels/B")]
    for repeat, code in ((sessions[2], 1), (sessions[1], 0)):
        report = compare_runs(*sessions[:2], repeat=repeat)
        assert report.exit_code == code
        if code:
            assert report.headline is not None
            assert report.headline.name == "b/1/mlp/act/Functional.gelu"
    for session in sessions:
        session.close()


@pytest.mark.parametrize("name", ["pytorch-debugmode", "torchtitan-numerics"])
def test_logs_of_hashes_are_compared(dumps: Dumps, name: str) -> None:
    """The same log is the same; in the bad one a logarithm is infinite."""
    for kind in ("good", "bad"):
        assert compared(dumps(name) / kind, dumps(name) / kind).exit_code == 0
    report = compared(dumps(name) / "good", dumps(name) / "bad")
    assert report.exit_code == 1
    assert "log" in next(each.name for each in report.findings if each.distance and each.distance.odd)


def test_another_hash_in_a_log_is_a_difference(dumps: Dumps, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(dumps("pytorch-debugmode") / "good", copy)
    file = copy / "step3.json"
    (copy / "step3.debug_string.txt").unlink()
    norm = "834.1606820030138"
    assert norm in file.read_text("utf-8")
    file.write_text(file.read_text("utf-8").replace(norm, "844.1606820030138"), "utf-8")
    headline = compared(dumps("pytorch-debugmode") / "good", copy).headline
    assert headline is not None
    assert headline.name == "TinyLM.embedding/embedding.0"


@pytest.mark.parametrize("at", [0, 1])
def test_a_run_whose_directories_cannot_be_listed_has_nothing_to_compare(
    dumps: Dumps, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """It was recognised, and then the listing was refused."""
    pair = dumps("msprobe-pairs") / "e_mul"
    sessions = opened(pair / "A"), opened(pair / "B")
    monkeypatch.setattr(sessions[at], "ranks", tuple)
    refused = UnreadablePart(".", "permission denied")
    monkeypatch.setattr(sessions[at], "unreadable", lambda: (refused,))
    with pytest.raises(TdbgError, match=r"no rank of the run can be read: \. \(permission denied\)") as caught:
        compare_runs(*sessions)
    assert caught.value.where == str(sessions[at].info.path)
    for session in sessions:
        session.close()
