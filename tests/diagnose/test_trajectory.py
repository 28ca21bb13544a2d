"""Trajectories: every number against plain float64, what sets a weight apart, and what cannot be told."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.session.opened import opened
from tests.sources.memory import MemorySource, Op, Recorded, Value
from tui_debugger.diagnose import trajectory as module
from tui_debugger.diagnose.trajectory import (
    RemarkKind,
    Stillness,
    Trajectory,
    WeightPath,
    bars,
    coverage_text,
    doubts,
    effective_rank,
    headline,
    moved,
    thinned_to,
    trajectory,
)
from tui_debugger.diagnose.trend import PointState
from tui_debugger.errors import CancelledError
from tui_debugger.model import Category, Progress, Side, TensorStats
from tui_debugger.session import Session

Dumps = Callable[[str], Path]
Array = npt.NDArray[Any]


def doubles(value: Array) -> npt.NDArray[np.float64]:
    return value.astype(np.float64)


def session_of(values: Mapping[str, list[Value | None]]) -> Session:
    """A run whose weights hold these values, step by step; None: not dumped then."""
    steps: dict[int, dict[Any, Value]] = {}
    for name, history in values.items():
        for step, value in enumerate(history):
            if value is not None:
                steps.setdefault(step, {})[name, Side.OUTPUT, 0] = value
    ops = [Op(name, "Parameter", category=Category.WEIGHT) for name in values]
    return Session(MemorySource({0: steps}, ops=ops))


def follow(session: Session) -> Trajectory:
    return trajectory(session, session.pairs())


def of(found: Trajectory, name: str) -> WeightPath:
    return next(each for each in found.weights if each.key.node == name)


def remarks(found: Trajectory) -> dict[str, list[RemarkKind]]:
    said: dict[str, list[RemarkKind]] = {}
    for each in found.remarks:
        said.setdefault(found.weights[each.weight].key.node, []).append(each.about)
    return said


def oracle(history: list[Array]) -> dict[str, list[float]]:
    """Norms, update ratios, cosines and effective ranks of whole arrays."""
    wide = [doubles(each).ravel() for each in history]
    norms = [float(np.linalg.norm(each)) for each in wide]
    steps = [after - before for before, after in pairwise(wide)]
    ranks = []
    for each in history:
        values = np.linalg.svd(doubles(each).reshape(each.shape[0], -1), compute_uv=False) if each.ndim > 1 else []
        shares = [value / sum(values) for value in values if value > 0]
        ranks.append(math.exp(-sum(share * math.log(share) for share in shares)) if shares else math.nan)
    return {
        "norm": norms,
        "ratio": [math.nan, *(float(np.linalg.norm(d)) / norm for d, norm in zip(steps, norms, strict=False))],
        "cosine": [
            *(math.nan, math.nan),
            *(math.nan if not (a.any() and b.any()) else cosine(a, b) for a, b in pairwise(steps)),
        ],
        "rank": ranks,
    }


def cosine(a: Array, b: Array) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def assert_like(path: WeightPath, expected: dict[str, list[float]]) -> None:
    for name, column in expected.items():
        np.testing.assert_allclose(getattr(path, name), column, rtol=1e-9, atol=1e-12, err_msg=name)


# -- numbers -----------------------------------------------------------------------------------------


@pytest.mark.covering
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(7,), (5, 9), (4, 3, 2, 2), (1, 6)])
def test_every_number_is_that_of_whole_arrays(dtype: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    history = [rng.normal(size=shape).astype(dtype) for _ in range(5)]
    found = follow(session_of({"w.weight": list(history)}))
    assert_like(of(found, "w.weight"), oracle(history))
    assert of(found, "w.weight").still is Stillness.MOVES


def test_blocks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    history = [rng.normal(size=(23, 11)).astype(np.float32) for _ in range(4)]
    history[2][:11] = history[1][:11]  # whole blocks that did not move
    monkeypatch.setattr(module, "_BLOCK", 7)
    assert_like(of(follow(session_of({"w": list(history)})), "w"), oracle(history))


def test_weights_of_real_dumps(dumps: Dumps) -> None:
    session = opened(dumps("mindspore-2.10-mlp"))
    found = follow(session)
    assert len(found.weights) == 10
    for each in found.weights:
        specs = [session.spec(each.key.at_step(step)) for step in each.steps.tolist()]
        assert_like(each, oracle([np.load(spec.path) for spec in specs if spec is not None]))


def test_small_steps_are_not_lost() -> None:
    before = np.full(1000, 1.0, np.float32)
    after = np.nextafter(before, np.float32(2))
    found = moved(after, before, None)
    assert math.isclose(math.sqrt(found.step), float(np.spacing(np.float32(1))) * math.sqrt(1000), rel_tol=1e-12)
    assert not found.equal


def test_a_matrix_of_known_rank() -> None:
    assert math.isclose(effective_rank(np.eye(12, dtype=np.float32)), 12)
    assert math.isclose(effective_rank(np.outer(np.arange(1, 9.0), np.arange(1, 6.0))), 1, rel_tol=1e-6)
    assert effective_rank(np.zeros((3, 3))) == 0
    assert math.isnan(effective_rank(np.ones(5)))
    assert math.isnan(effective_rank(np.array([[1.0, np.nan]])))


def test_a_large_matrix_is_thinned_out_evenly_and_that_is_said() -> None:
    rng = np.random.default_rng(5)
    large = rng.normal(size=(600, 1500)).astype(np.float32)
    kept = thinned_to(large.shape)
    assert kept == (256, 1024)
    part = doubles(large[np.arange(256) * 600 // 256][:, np.arange(1024) * 1500 // 1024])
    values = np.linalg.svd(part, compute_uv=False)
    shares = values / values.sum()
    assert math.isclose(effective_rank(large), math.exp(-float((shares * np.log(shares)).sum())), rel_tol=1e-9)
    found = follow(session_of({"w": [large, large + 1, large + 2]}))
    assert np.isnan(of(found, "w").rank[1]), "only where it is first and last"
    assert not np.isnan(of(found, "w").rank[[0, 2]]).any()
    assert "effective rank of 1 from 256 rows, 1024 columns at most" in coverage_text(found)


# -- what sets a weight apart --------------------------------------------------------------------------


def test_frozen_weights_are_named(dumps: Dumps) -> None:
    found = follow(opened(dumps("mindspore-2.10-mlp")))
    still = {each.key.node for each in found.weights if each.still is Stillness.BYTES}
    assert still == {"fc2.weight", "fc2.bias", "fc3.weight", "fc3.bias"}
    assert headline(found).startswith("4 of 10 weights never move: fc2.bias, fc2.weight, fc3.bias, fc3.weight; ")
    assert found.exit_code == 0


def test_half_the_learning_rate_is_half_the_update() -> None:
    """Two runs that differ in nothing but the learning rate."""
    rng = np.random.default_rng(6)
    start = {f"b.{at}.weight": rng.normal(size=(6, 5)) for at in range(8)}
    sides = []
    for rate in (0.1, 0.05):
        values: dict[str, list[Value | None]] = {}
        for name, value in start.items():
            step = np.random.default_rng(len(name)).normal(size=value.shape)
            values[name] = [value, value - rate * step]
        sides.append(follow(session_of(values)))
    for a, b in zip(sides[0].weights, sides[1].weights, strict=True):
        assert math.isclose(a.usual, 2 * b.usual, rel_tol=1e-9)


def test_growth_and_shrinking() -> None:
    ones = np.ones((4, 4), np.float32)
    found = follow(
        session_of({"up": [ones, 10 * ones, 40 * ones], "down": [ones, ones / 5], "same": [ones, ones * 1.5]})
    )
    assert remarks(found) == {"up": [RemarkKind.GROWS], "down": [RemarkKind.SHRINKS]}
    assert "1 of 3 weights grows 40×: up; 1 shrinks to 1/5: down" in headline(found)


def test_a_weight_that_began_as_zeros_is_no_remark() -> None:
    found = follow(session_of({"b": [np.zeros(4), np.ones(4), np.ones(4) * 1.1]}))
    assert of(found, "b").growth == math.inf
    assert of(found, "b").ratio[1] == math.inf
    assert math.isclose(of(found, "b").usual, 0.1), "Inf is left out of the median"
    assert remarks(found) == {}


def test_one_that_moves_more_or_less_than_its_kind() -> None:
    rng = np.random.default_rng(7)
    values: dict[str, list[Value | None]] = {}
    for at in range(12):
        start = rng.normal(size=(8, 8))
        size = {3: 1e-1, 7: 1e-6}.get(at, 1e-3)
        values[f"layers.{at}.weight"] = [start, start + size * rng.normal(size=(8, 8))]
    found = follow(session_of(values))
    assert re.search(
        r"1 of 12 weights changes \d+ times more than its kind: layers.3.weight; 1 changes \d+ times less",
        headline(found),
    )
    assert remarks(found) == {"layers.3.weight": [RemarkKind.MORE], "layers.7.weight": [RemarkKind.LESS]}
    few = {name: values[name] for name in ("layers.2.weight", "layers.3.weight", "layers.7.weight")}
    assert remarks(follow(session_of(few))) == {}, "three do not tell what is usual"


def test_lost_rank() -> None:
    rng = np.random.default_rng(8)
    full = rng.normal(size=(10, 10))
    found = follow(session_of({"w": [full, np.outer(full[0], full[1])]}))
    assert RemarkKind.RANK in remarks(found)["w"]
    assert "loses rank" in headline(found)


def test_nan_is_named_with_its_step_and_left_out_of_the_numbers() -> None:
    start, later = np.ones((3, 3)), np.full((3, 3), 2.0)
    bad = later.copy()
    bad[1, 1] = np.nan
    found = follow(session_of({"w": [start, later, bad, bad]}))
    each = of(found, "w")
    assert each.first_bad == 2
    assert each.ends == (3.0, 6.0)
    assert np.isnan(each.ratio[2:]).all()
    assert RemarkKind.STILL not in remarks(found)["w"]
    assert "1 of 1 weight holds NaN or Inf from step 2: w" in headline(found)
    assert bars(found, each, 10) == " █!!"


def test_the_first_step_is_said_where_weights_go_bad_one_after_the_other(dumps: Dumps) -> None:
    found = follow(opened(dumps("mindspore-2.10-nan")))
    assert headline(found).startswith("34 of 34 weights hold NaN or Inf from step 3: ")


# -- what cannot be told -------------------------------------------------------------------------------


def stats_of(value: Array) -> TensorStats:
    x = doubles(value)
    signs = int((x == 0).sum()), int((x < 0).sum()), int((x > 0).sum())
    squares = float((x * x).sum())
    mean, size, variance = float(x.mean()), float(np.abs(x).mean()), float(x.var())
    return TensorStats(x.size, 0, 0, 0, *signs, float(x.min()), float(x.max()), mean, size, variance, squares)


def test_of_recorded_statistics_only_norms_are_known() -> None:
    history = [np.arange(1.0, 7.0) * factor for factor in (1, 2, 4)]
    recorded: list[Value | None] = [Recorded(stats_of(each), "float32", (6,)) for each in history]
    found = follow(session_of({"w": recorded, "v": [recorded[0]] * 3}))
    each = of(found, "w")
    np.testing.assert_allclose(each.norm, [np.linalg.norm(value) for value in history])
    assert np.isnan(each.ratio).all()
    assert remarks(found) == {"w": [RemarkKind.GROWS], "v": [RemarkKind.STILL]}
    assert of(found, "v").still is Stillness.STATISTICS, "nobody knows whether its values changed"
    assert "only statistics were recorded" in headline(found)
    assert "2 by recorded statistics: norms only" in coverage_text(found)
    assert found.exit_code == 0


def test_one_step_is_nothing_to_compare() -> None:
    found = follow(session_of({"w": [np.ones(3)]}))
    assert found.exit_code == 2
    assert headline(found) == "nothing to compare: no weight of 1 has two steps"


def test_a_run_without_weights() -> None:
    session = Session(MemorySource({0: {0: {("Relu", Side.OUTPUT, 0): np.ones(3)}}}))
    found = follow(session)
    assert (found.exit_code, headline(found)) == (2, "no weight was dumped at these steps")


def test_a_broken_file_is_named_and_the_rest_is_followed() -> None:
    ones = np.ones((2, 2))
    found = follow(session_of({"w": [ones, b"broken", ones * 2], "v": [ones, ones, ones]}))
    each = of(found, "w")
    assert each.state.tolist() == [PointState.MEASURED, PointState.UNREADABLE, PointState.MEASURED]
    assert each.ratio[2] == 1.0, "held against the last one that was read"
    assert found.exit_code == 2
    (doubt,) = doubts(found)
    assert doubt.startswith("w: ")
    assert doubt.endswith("at step 1")
    assert bars(found, each, 10) == " ?█"


def test_another_shape_is_another_weight_from_there_on() -> None:
    found = follow(session_of({"w": [np.ones(3), np.ones(4), np.ones(4)]}))
    each = of(found, "w")
    assert each.errors == {(1, 0): "shape changed from 3 to 4"}
    assert np.isnan(each.ratio[:2]).all()
    assert each.ratio[2] == 0
    assert each.still is Stillness.MOVES


def test_steps_without_the_weight_are_left_out() -> None:
    ones = np.ones(3)
    found = follow(session_of({"w": [ones, None, ones * 3], "other": [ones, ones, ones], "never": [None, None, None]}))
    assert of(found, "w").steps.tolist() == [0, 2]
    assert of(found, "w").ratio[1] == 2
    assert found.absent == ((0, "never"),)
    assert "1 dumped at none of these steps" in coverage_text(found)


def test_weights_that_only_another_graph_updates_are_followed_once(dumps: Dumps) -> None:
    found = follow(opened(dumps("mindspore-2.10-multi-gan")))
    names = [each.key.node for each in found.weights]
    assert len(names) == len({name.partition(".")[2] for name in names}) == 8
    discriminator = of(found, "d_opt.disc.fc1.weight")
    assert list(zip(discriminator.steps.tolist(), discriminator.rounds.tolist(), strict=True)) == [
        *((0, 0), (1, 1), (1, 2), (2, 0), (3, 0))
    ]


def test_bars_of_many_steps_show_the_largest() -> None:
    history: list[Value | None] = [np.full(4, 1.0 + 1e-4 * step) for step in range(40)]
    history[20] = np.full(4, 5.0)
    found = follow(session_of({"w": history}))
    shown = bars(found, of(found, "w"), 8)
    assert len(shown) == 8
    assert shown.count("█") == 1


def test_it_can_be_stopped(dumps: Dumps) -> None:
    session = opened(dumps("mindspore-2.10-mlp"))

    def stop(_: Progress) -> None:
        raise CancelledError("stopped")

    with pytest.raises(CancelledError):
        trajectory(session, session.pairs(), stop)


def test_a_directory_of_checkpoints_is_a_run(dumps: Dumps) -> None:
    session = opened(dumps("checkpoints") / "ckpt-hf")
    found = follow(session)
    assert found.steps == [1, 2, 3, 4]
    assert headline(found).startswith("28 of 28 weights hold NaN or Inf, the first from step 3: ")
    embedding = of(found, "embedding.weight")
    values = [doubles(np.asarray(session.read(embedding.key.at_step(step)))).ravel() for step in (1, 2, 3)]
    steps = [after - before for before, after in pairwise(values)]
    assert embedding.first_bad == 4
    np.testing.assert_allclose(embedding.ratio[2], np.linalg.norm(steps[1]) / np.linalg.norm(values[1]), rtol=1e-12)
    np.testing.assert_allclose(embedding.cosine[2], cosine(*steps), rtol=1e-12)


def test_a_monitor_without_values_tells_norms(dumps: Dumps) -> None:
    found = follow(opened(dumps("msprobe-monitor") / "v1"))
    assert "only statistics were recorded: nothing but norms is known" in headline(found)
    assert not np.isnan(of(found, "layers.0.mlp.linear_fc1.weight").norm[:3]).any()
    assert "0 weights followed by values over steps 0–4, 56 by recorded statistics: norms only" in coverage_text(found)
