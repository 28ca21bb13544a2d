"""Quick looks, exact looks and what they decide: the same as offline checks, whatever the values and their type."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from tests.thorough import examples  # noqa: E402 - torch first
from tests.watch.scalar_judge import judge_scalar  # noqa: E402 - torch first
from tui_debugger.live.client.judging import ClientJudge  # noqa: E402
from tui_debugger.live.client.recorded import measure  # noqa: E402
from tui_debugger.model import Verdict, Watchpoint  # noqa: E402
from tui_debugger.stats.records import RequiredStats  # noqa: E402
from tui_debugger.torch import exact  # noqa: E402
from tui_debugger.torch.captures import CapturedStep, Plans  # noqa: E402
from tui_debugger.torch.exact import Waiting  # noqa: E402
from tui_debugger.torch.internals import as_array, chunks, type_name  # noqa: E402
from tui_debugger.torch.training import Previous, see_all  # noqa: E402
from tui_debugger.torch.verdicts import judge_step  # noqa: E402
from tui_debugger.watch.condition_table import validate  # noqa: E402 - torch first
from tui_debugger.watch.evaluate import needs  # noqa: E402

FLOATS = ["float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
OTHERS = ["int8", "uint8", "int32", "int64", "uint16", "bool", "complex64"]
WATCHED: list[tuple[str, dict[str, float | str]]] = [
    ("tensor_overflow", {}),
    ("tensor_all_zero", {"zero_percentage_ge": 100.0}),
    ("tensor_all_zero", {"zero_percentage_ge": 25.0}),
    ("tensor_too_large", {"abs_mean_gt": 0.5}),
    ("tensor_too_large", {"max_gt": 2.0, "mean_gt": 0.3}),
    ("tensor_too_small", {"abs_mean_lt": 1e-12}),
    ("tensor_too_small", {"min_lt": -2.0}),
    ("tensor_too_small", {"mean_lt": -0.3}),
    ("tensor_range", {"range_start_inclusive": -1.0, "range_end_inclusive": 0.1, "range_percentage_gt": 60.0}),
    ("tensor_range", {"max_min_lt": 1e-3}),
    ("expression", {"expression": "max > 2*std and zero_pct < 50 or norm < 1e-20"}),
    ("expression", {"expression": "nan > 0 and mean > -1e30 or pos_inf >= 1 or ndim != 2"}),
    ("weight_change_too_large", {"abs_mean_update_ratio_gt": 0.1}),
    ("weight_change_too_small", {"abs_mean_update_ratio_lt": 1e-4}),
    ("weight_not_changed", {"rtol": 1e-5, "atol": 1e-8}),
]
WATCHPOINTS = [Watchpoint(at, name, validate(name, params)) for at, (name, params) in enumerate(WATCHED, 1)]
EVERYTHING = RequiredStats(
    frozenset({(-1.0, 0.1), (-math.inf, 0.5)}), True, frozenset({(1e-5, 1e-8, False), (0.1, 0.0, True)})
)


def tensor_of(
    kind: str, seed: int, spoiled: str = "", shape: tuple[int, ...] = (9, 7), scale: float = 1.0
) -> torch.Tensor:
    """Some values of a type, with a few special ones."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
    flat = values.view(-1)
    for at, word in enumerate(spoiled.replace("zeros", "").split()):
        flat[at] = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "0": 0.0}[word]
    if spoiled == "zeros":
        values.zero_()
    if kind.startswith("complex"):
        return torch.complex(values, values.flip(0)).to(torch.complex64)
    if kind in OTHERS:
        return (values.nan_to_num(0, 0, 0) * 20).to(getattr(torch, kind))
    return values.to(getattr(torch, kind))


@pytest.mark.parametrize("spoiled", ["", "nan", "inf -inf nan 0", "zeros"])
@pytest.mark.parametrize("kind", FLOATS + OTHERS)
def test_an_exact_look_on_a_device_is_what_offline_checks_see(kind: str, spoiled: str) -> None:
    now, then = (
        tensor_of(kind, 1, spoiled if spoiled != "zeros" else "0"),
        tensor_of(kind, 2, spoiled.replace("zeros", "")),
    )
    waiting = Waiting()
    look = exact.on_device(now, EVERYTHING, waiting, then)
    (found,) = exact.finish([look], waiting.fetch())
    expected = measure(as_array(now), EVERYTHING, as_array(then))
    assert found.ranges == expected.ranges
    assert found.close == expected.close
    assert found.stats is not None
    assert expected.stats is not None
    assert found.stats.at_least == expected.stats.at_least
    for name in set(found.stats.__slots__) - {"at_least"}:
        assert getattr(found.stats, name) == pytest.approx(getattr(expected.stats, name), rel=1e-12, nan_ok=True), name
    assert found.change is not None
    assert expected.change is not None
    for name in found.change.__slots__:
        assert getattr(found.change, name) == pytest.approx(getattr(expected.change, name), rel=1e-12, nan_ok=True)


def test_pieces_of_a_tensor_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "PIECE", 100)
    tensor = torch.randn(3, 50, 7).transpose(0, 2) + 1e4
    waiting = Waiting()
    (found,) = exact.finish([exact.on_device(tensor, RequiredStats(), waiting)], waiting.fetch())
    expected = measure(as_array(tensor), RequiredStats()).stats
    assert found.stats is not None
    assert expected is not None
    assert found.stats.count == 1050
    assert found.stats.variance == pytest.approx(expected.variance, rel=1e-9)
    assert b"".join(chunks(tensor)) == tensor.contiguous().numpy().tobytes()


@pytest.fixture(params=["on the host", "on a device"])
def _place(request: pytest.FixtureRequest) -> Iterator[None]:
    """Exact looks by the functions of offline checks, and by those for GPUs (which run on a CPU as well)."""
    before = set(exact.HOST)
    if request.param == "on a device":
        exact.HOST.clear()
    yield
    exact.HOST.update(before)


def said(watchpoint: Watchpoint, now: torch.Tensor, then: torch.Tensor | None) -> set[int]:
    """What an offline check says."""
    record = measure(as_array(now), needs(watchpoint), None if then is None else as_array(then))
    result = judge_scalar(watchpoint, record, first_step=True)
    return set() if result is None or result.verdict is Verdict.NOT_COMPARABLE else {watchpoint.id}


@pytest.mark.usefixtures("_place")
@examples(300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(FLOATS + OTHERS),
    seed=st.integers(0, 10_000),
    spoiled=st.sampled_from(["", "", "nan", "inf", "-inf 0", "zeros", "0 0 0 0"]),
    scale=st.sampled_from([1e-30, 1e-13, 1e-3, 0.5, 0.627, 1.0, 3.0, 1e20]),
    moved=st.sampled_from([0.0, 1e-9, 1e-5, 1.2e-4, 0.1, 0.125, 1.0]),
    weight=st.booleans(),
    chosen=st.sets(st.sampled_from(WATCHPOINTS), min_size=1, max_size=2),
)
def test_the_verdicts_on_a_step_are_those_of_offline_checks(
    *, kind: str, seed: int, spoiled: str, scale: float, moved: float, weight: bool, chosen: set[Watchpoint]
) -> None:
    now = tensor_of(kind, seed, spoiled, scale=scale)
    then = (now.to(torch.complex64 if kind.startswith("complex") else torch.float64) * (1 - moved)).to(now.dtype)
    judge = ClientJudge([(each, ["x"]) for each in chosen])
    step, plans = CapturedStep(1 << 30), Plans(judge)
    if weight:
        previous = Previous()
        previous.keep([("x", then)])
        see_all(step, [("x", now)], plans, previous)
    else:
        step.see("x", 0, now, plans.of("x"))
    hits = judge_step(step, judge, recheck=False)
    expected = set().union(*(said(each, now, then if weight else None) for each in chosen))
    assert {hit.result.watchpoint for hit in hits} == expected
    assert all(hit.stats is not None for hit in hits)
    assert {hit.result.watchpoint for hit in judge_step(step, judge, recheck=True)} == expected


@pytest.mark.covering
@pytest.mark.usefixtures("_place")
@pytest.mark.parametrize("watchpoint", WATCHPOINTS[-3:], ids=lambda each: each.condition)
def test_weights_are_followed_over_many_steps(watchpoint: Watchpoint) -> None:
    """Σ|prev| is not measured at every step: it cannot have drifted far."""
    judge = ClientJudge([(watchpoint, ["x"])])
    plans, step, previous = Plans(judge), CapturedStep(0), Previous()
    generator = torch.Generator().manual_seed(3)
    weight, measured = torch.randn(500, generator=generator), 0
    previous.keep([("x", weight)])
    for turn in range(60):
        before = weight.clone()
        weight += torch.randn(500, generator=generator) * 10.0 ** -(turn % 12)
        see_all(step, [("x", weight)], plans, previous)
        measured += bool(next(iter(step)).reference)
        hits = judge_step(step, judge, recheck=False)
        assert {hit.result.watchpoint for hit in hits} == said(watchpoint, weight, before), turn
        previous.follow(step)
        previous.keep([("x", weight)])
        step.clear()
    assert measured < 40


@pytest.mark.parametrize("held", [True, False])
def test_what_is_changed_in_place_is_judged_as_it_was_made(held: bool) -> None:
    judge = ClientJudge([(WATCHPOINTS[0], ["x"])])
    plans, step = Plans(judge), CapturedStep(1 << 30 if held else 0)
    for turn in range(2):
        tensor = torch.tensor([1.0, math.nan, math.nan])
        capture = step.see("x", 0, tensor, plans.of("x"))
        tensor.zero_()
        assert not capture.intact
        (hit,) = judge_step(step, judge, recheck=False)
        assert hit.result.verdict is Verdict.FINDING
        exactly_known = turn == 1 or not held  # the first time only that there are NaN
        assert (hit.stats is not None and hit.stats.nan == 2) == exactly_known
        step.clear()


def test_one_transfer_for_all_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    transfers = []
    original = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: transfers.append(self.numel()) or original(self))
    judge = ClientJudge([(WATCHPOINTS[0], [f"x{at}" for at in range(200)])])
    plans, step = Plans(judge), CapturedStep(1 << 30)
    for at in range(100):
        step.see(f"x{at}", 0, torch.randn(10), plans.of(f"x{at}"))
    see_all(step, [(f"x{at}", torch.randn(10)) for at in range(100, 200)], plans, None)
    assert judge_step(step, judge, recheck=False) == []
    assert len(transfers) == 1


def test_a_tensor_that_two_modules_return_is_looked_at_once() -> None:
    judge = ClientJudge([(WATCHPOINTS[0], ["x", "y"])])
    plans, step = Plans(judge), CapturedStep(100)
    tensor = torch.randn(20)
    step.see("x", 0, tensor, plans.of("x"))
    before = len(step.waiting)
    other = step.see("y", 0, tensor, plans.of("y"))
    assert len(step.waiting) == before
    assert other.intact


def test_memory_for_values_has_a_bound_and_what_does_not_fit_is_looked_at_when_made() -> None:
    judge = ClientJudge([(WATCHPOINTS[0], ["x", "y"])])
    plans, step = Plans(judge), CapturedStep(100)
    assert step.see("x", 0, torch.randn(20), plans.of("x")).tensor is not None
    second = step.see("y", 0, torch.tensor([math.nan] * 20), plans.of("y"))
    assert second.tensor is None
    (hit,) = judge_step(step, judge, recheck=False)
    assert hit.stats is not None
    assert hit.stats.nan == 20


def test_names_of_element_types_are_those_of_numpy() -> None:
    assert type_name(torch.bfloat16) == "bfloat16"
    assert type_name(torch.float8_e4m3fn) == "float8_e4m3fn"
    assert type_name(torch.float32) == np.dtype(np.float32).name


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int64", "bool", "complex64"])
def test_memory_that_was_looked_at_can_still_be_resized(dtype: str) -> None:
    """FSDP frees and fills the same storage again and again: reading it must not keep it from doing so."""
    whole = torch.arange(-12, 12).reshape(4, 6).to(getattr(torch, dtype))
    for part in (whole, whole.t(), whole[1:, ::2], whole[:0], whole[2, 3]):
        expected = part.float().numpy() if dtype == "bfloat16" else part.clone().numpy()
        np.testing.assert_array_equal(as_array(part).astype(expected.dtype), expected)
        assert b"".join(chunks(part)) == part.contiguous().clone().view(-1).view(torch.uint8).numpy().tobytes()
    whole.untyped_storage().resize_(0)


def test_numbers_that_come_after_others_were_fetched_keep_their_places() -> None:
    """A step that is looked at in its middle goes on; several numbers of one result have a place each."""
    waiting = Waiting()
    first = waiting.add(torch.tensor(1.0)), waiting.add_each([torch.tensor(2.0), torch.tensor(3.0)])
    fetched = waiting.fetch()
    later = waiting.add_each([torch.tensor(4.0), torch.tensor(5.0)]), waiting.add(torch.tensor(6.0))
    assert (first, later) == ((0, 1), (3, 5))
    every = waiting.fetch(fetched)
    assert every.first(np.arange(6)).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert every.all(5).tolist() == [6.0]
    assert waiting.fetch(every) is every
