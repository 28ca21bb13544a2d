"""Real pairs of runs: other precision, other kernels, a fault, a missing call, a renamed model; and planted errors."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.linked import linked, own
from tests.session.opened import opened
from tests.thorough import few
from tui_debugger.diagnose.runs.comparison import compare_runs
from tui_debugger.diagnose.runs.results import Kind, RunsReport
from tui_debugger.model import Category, Side
from tui_debugger.session import Session

Dumps = Callable[[str], Path]
PAIRS = ("c_kernels", "d_sdpa", "e_mul", "e_mul_bf16", "k_noreduce", "n_prefix")


def compared(a: Path, b: Path) -> RunsReport:
    sessions = opened(a), opened(b)
    report = compare_runs(*sessions)
    for session in sessions:
        session.close()
    return report


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
        assert (finding.kind, finding.side) == (Kind.INTRODUCED, 1)


def test_the_reduction_that_one_run_leaves_out_is_named(dumps: Dumps) -> None:
    pair = dumps("msprobe-pairs") / "k_noreduce"
    headline = compared(pair / "A", pair / "B").headline
    assert headline is not None
    assert (headline.kind, headline.name, headline.consumer) == (
        Kind.MISSING,
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
    assert {finding.kind for finding in report.findings} == {Kind.PARAMETER}
    assert all(finding.name.startswith(("fc", "head")) for finding in report.findings)


# -- one small error in a copy -----------------------------------------------------------------------


def places(session: Session, seed: int, count: int) -> Iterator[tuple[int, int, str, Path]]:
    """Yields (rank, step, node, file) of outputs, drawn by chance."""
    found = []
    for rank in session.ranks():
        flow = session.flow(rank)
        for step in session.steps(rank):
            table = flow.table(step)
            for index in np.flatnonzero(table.side == int(Side.OUTPUT)).tolist():
                row = int(table.node[index])
                if flow.nodes.category_of(row) is not Category.CONSTANT:
                    found.append((rank, step, flow.nodes.names[row], Path(table.spec(index).path)))
    yield from random.Random(seed).sample(found, count)  # noqa: S311 - which places are tried is no secret


def change(kind: str, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """One small error."""
    flat = values.reshape(-1).copy()
    size = float(np.abs(flat[np.isfinite(flat)]).mean()) if np.isfinite(flat).any() else 0.0
    if kind == "scale":
        flat *= flat.dtype.type(1.01)
    elif kind == "element":
        flat[0] += 0.05 * size + 1e-3
    elif kind == "offset":
        flat += flat.dtype.type(0.01 * size + 1e-4)
    else:
        flat[-1] = np.nan
    return flat.reshape(values.shape)


@pytest.mark.parametrize("kind", ["scale", "element", "offset", "nan"])
@pytest.mark.parametrize("name", few(["mindspore-2.10-mlp", "mindspore-2.10-multi-gan", "mindspore-2.0-multi-eval"], 1))
def test_a_planted_error_is_the_headline(dumps: Dumps, tmp_path: Path, name: str, kind: str) -> None:
    original = opened(dumps(name))
    for number, (rank, step, node, file) in enumerate(places(original, len(kind), 4)):
        copy = linked(dumps(name), tmp_path / f"{number}")
        target = own(copy / file.relative_to(dumps(name)))
        values = np.load(target)
        wrong = change(kind, values) if values.dtype.kind == "f" and values.size else values
        if np.array_equal(values, wrong, equal_nan=True):
            continue
        np.save(target, wrong)
        planted = opened(copy)
        headline = compare_runs(original, planted).headline
        planted.close()
        assert headline is not None, (node, step)
        assert (headline.name, headline.place.step_a, headline.place.rank_a) == (node, step, rank)
    original.close()
