"""Passes over tensors that threads share: the same to the last bit whoever works, and stopped when that is asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.stats.test_compare import arrays
from tests.thorough import examples
from tui_debugger.errors import CancelledError
from tui_debugger.model import Progress, ReadSpec
from tui_debugger.stats import spans, workers
from tui_debugger.stats.compare import compare
from tui_debugger.stats.compare_pairs import EXACT, Boundary, Pairs
from tui_debugger.stats.distribution import count_bins, count_classes, linear_bins
from tui_debugger.stats.npy import open_array
from tui_debugger.stats.quantiles import headroom, quantiles
from tui_debugger.stats.spans import SharedArrays, span_results
from tui_debugger.stats.workers import MeasureWorkers

pytestmark = pytest.mark.usefixtures("measured_by")

Array = npt.NDArray[Any]
NAN, INF = float("nan"), float("inf")
KINDS = ("f2", "f4", "f8", ">f4", "c8", "c16", "i4", "i8", "u8", "?", "i1", *(ml_dtypes.bfloat16,))
FP8 = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)


@pytest.fixture(scope="module")
def threads() -> Iterator[Callable[[int], MeasureWorkers]]:
    """So many threads."""
    made = {n: MeasureWorkers(n) for n in (1, 2, 5)}
    yield made.__getitem__
    for each in made.values():
        each.close()


@pytest.fixture(autouse=True)
def _everything_is_worth_sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "WORTH_HANDING_OVER", 0)


def saved(folder: Path, name: str, array: Array) -> ReadSpec:
    """A file of it, which says what is in it."""
    raw = array.dtype.kind == "V" or array.dtype.type.__module__ == "ml_dtypes"
    (folder / name).write_bytes(b"")
    if raw:
        array.tofile(folder / name)
        return ReadSpec(str(folder / name), "raw", array.dtype.name, array.shape)
    np.save(folder / name, array)
    return ReadSpec(str(folder / name) + ("" if name.endswith(".npy") else ".npy"))


def noise(kind: Any, size: int, seed: int) -> Array:
    """Values of either sign over some decades, some of them equal, zeros of both signs, NaN and Inf at the edges."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(size) * np.exp2(rng.integers(-4, 4, size))
    values[::5], values[3::10] = 0.0, -0.0
    values[1::7] = 1.5
    dtype = np.dtype(kind)
    with np.errstate(all="ignore"):
        if dtype.kind in "iu?":
            return (np.abs(values) * (2**60 if dtype.itemsize == 8 else 20)).astype(dtype)
        array = (values + 1j * np.roll(values, seed)).astype(dtype) if dtype.kind == "c" else values.astype(dtype)
        for at, odd in ((0, NAN), (size - 1, INF), (size // 2, -INF), (size // 3, NAN)):
            array[at] = np.array(odd).astype(dtype)
    return array


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kinds=st.tuples(st.sampled_from((*KINDS, *FP8)), st.sampled_from((*KINDS, *FP8))),
    same=st.booleans(),
    size=st.integers(2, 700),
    span=st.sampled_from((7, 64, 100, 333)),
    top=st.integers(0, 12),
    tolerance=st.sampled_from((EXACT, Boundary(0.1, 0.01), Boundary(percent=20))),
    seed=st.integers(0, 99),
)
def test_differences_are_the_same_whoever_works(
    *,
    kinds: tuple[Any, Any],
    same: bool,
    size: int,
    span: int,
    top: int,
    tolerance: Boundary,
    seed: int,
    threads: Callable[[int], MeasureWorkers],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spans, "SPAN", span)
    here = noise(kinds[0], size, seed)
    there = noise(kinds[0], size, seed) if same else noise(kinds[1], size, seed + 1)
    specs = (saved(tmp_path, "here.npy", here), saved(tmp_path, "there.npy", there))
    files = [open_array(spec) for spec in specs]
    alone = compare(Pairs(here, there), tolerance=tolerance, top=top)
    for n in (1, 2, 5):
        by_workers = compare(Pairs(files[0], files[1], threads(n)), tolerance=tolerance, top=top)
        assert repr(by_workers) == repr(alone)


def test_a_file_that_another_one_took_the_place_of_is_what_it_was_when_it_was_opened(
    threads: Callable[[int], MeasureWorkers], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "SPAN", 64)
    old, new = noise("f4", 500, 1), noise("f4", 500, 2)
    spec, other = saved(tmp_path, "tensor.npy", old), saved(tmp_path, "other.npy", new)
    opened = open_array(spec)
    pairs = Pairs(opened, opened, threads(2))
    shared = SharedArrays((opened,), opened.size, threads(2))
    Path(other.path).replace(spec.path)
    assert repr(compare(pairs)) == repr(compare(Pairs(old, old)))
    assert count_classes(shared).counts.tolist() == count_classes(old).counts.tolist()


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from((*KINDS, *FP8)),
    size=st.integers(2, 700),
    span=st.sampled_from((7, 64, 333)),
    kept=st.sampled_from((0, 50, 1 << 21)),
    seed=st.integers(0, 99),
)
def test_distributions_are_the_same_whoever_works(
    *,
    kind: Any,
    size: int,
    span: int,
    kept: int,
    seed: int,
    threads: Callable[[int], MeasureWorkers],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spans, "SPAN", span)
    monkeypatch.setattr("tui_debugger.stats.distribution.MOST_KEPT", kept)
    array = noise(kind, size, seed)
    spec = saved(tmp_path, "array.npy", array)

    def everything(values: Array | SharedArrays) -> str:
        classes = count_classes(values)
        found = quantiles(values, classes)
        bins = linear_bins(-3.3, 7.7, 9)
        room = headroom(values, classes, array.dtype.name)
        return repr((classes.counts.tolist(), classes.finite, found, room, count_bins(values, classes, bins)))

    alone = everything(array)
    for n in (1, 2, 5):
        assert everything(SharedArrays((open_array(spec),), size, threads(n))) == alone


@given(arrays(), st.integers(1, 9))
def test_spans_of_any_size_merge_into_what_one_pass_finds(pair: tuple[Array, Array], span: int) -> None:
    """All but the last bits of sums: those depend on where a tensor is cut, which is always the same."""
    whole = compare(Pairs(*pair), top=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spans, "SPAN", span)
        cut = compare(Pairs(*pair), top=5)
    for name in ("odd", "finite", "equal", "sign_flips", "from_zero", "max_abs", "max_rel", "ulps", "outside"):
        assert repr(getattr(cut, name)) == repr(getattr(whole, name))
    for name in ("by_abs", "by_rel", "by_ulp"):
        assert repr(getattr(cut, name)) == repr(getattr(whole, name))


def total(prepared: Array, span: tuple[int, int], checkpoint: Callable[[int], None]) -> int:
    checkpoint(0)
    return int(prepared[slice(*span)].sum())


def shared(tmp_path: Path, crew: MeasureWorkers) -> SharedArrays:
    return SharedArrays((open_array(saved(tmp_path, "values.npy", np.arange(100))),), 100, crew)


class Waiting:
    """Does nothing before it may."""

    def __init__(self) -> None:
        self.may, self.begun = threading.Event(), list[tuple[int, int]]()

    def __call__(self, prepared: Array, span: tuple[int, int], checkpoint: Callable[[int], None]) -> int:
        self.begun.append(span)
        assert self.may.wait(60)
        return total(prepared, span, checkpoint)


def test_progress_can_stop_while_others_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: Callable[[int], MeasureWorkers]
) -> None:
    monkeypatch.setattr(spans, "SPAN", 10)
    told: list[Progress] = []

    def stop(progress: Progress) -> None:
        told.append(progress)
        if len(told) > 2:
            raise CancelledError("stopped")

    task = Waiting()
    with pytest.raises(CancelledError):
        list(span_results(shared(tmp_path, threads(2)), task, "adding", stop, cost=1))
    assert told[0] == Progress(0, 100, "adding")
    task.may.set()
    assert len(task.begun) <= 2  # what was handed over besides is not begun any more


def test_closing_the_workers_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "SPAN", 10)
    crew = MeasureWorkers(2)
    with pytest.raises(CancelledError):
        list(span_results(shared(tmp_path, crew), total, "adding", lambda _: crew.close(), cost=1))


def test_a_file_that_was_written_over_is_read_from_where_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: Callable[[int], MeasureWorkers]
) -> None:
    monkeypatch.setattr(spans, "SPAN", 10)
    values = shared(tmp_path, threads(2))
    (tmp_path / "values.npy").unlink()
    assert sum(span_results(values, total, "adding", cost=1)) == sum(range(100))


def test_what_workers_elsewhere_cannot_have_is_done_right_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "SPAN", 10)
    with ThreadPoolExecutor(2) as executor:
        executor.submit = None  # type: ignore[method-assign, assignment]  # nobody calls it
        values = SharedArrays((np.arange(100),), 100, MeasureWorkers(executor=executor))
        assert sum(span_results(values, total, "adding", cost=1)) == sum(range(100))
