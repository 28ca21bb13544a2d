"""Batches of requests: what they find, held against plain numpy, how often they read, what they do about bad files."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.opened_files import opened_tensor_files
from tests.sources.arrays import write_safetensors
from tests.stats.plain import assert_same, record_of
from tests.stats.requests import CLOSE, EVERYTHING, chains, look, requests_for
from tests.thorough import examples
from tui_debugger import opener
from tui_debugger.errors import CancelledError, UnreadableTensorError
from tui_debugger.model import ReadSpec
from tui_debugger.stats import kernel, scan, side_by_side
from tui_debugger.stats import measure as module
from tui_debugger.stats.measure import (
    LEAST,
    LIKE_BYTES,
    MOST,
    batch_bounds,
    compared_with,
    costs,
    read_all,
    subset,
)
from tui_debugger.stats.npy import FIRST_READ
from tui_debugger.stats.records import ONLY_COMPARED, ROW, ReadRequests, ReadSpecs, Records, RecordState, RequiredStats
from tui_debugger.stats.scan import joined, measure_file_span, spans_of

pytestmark = pytest.mark.usefixtures("measured_by")

Array = npt.NDArray[Any]

NEEDS = {
    "statistics": RequiredStats(),
    "everything": EVERYTHING,
    "closeness": RequiredStats(closeness=CLOSE),
    "change": RequiredStats(change=True),
}
SMALL, BIG = 1 << 11, FIRST_READ
"""Elements of a tensor whose file is read in one go, and of one that is not, whatever its type."""
OLD = 1_600_000_000_000_000_000


@pytest.mark.covering
@pytest.mark.parametrize("need", NEEDS)
@pytest.mark.parametrize("name", ["mindspore-2.0-mlp", "mindspore-2.0-nan", "mindspore-2.10-mlp"])
def test_every_tensor_of_real_dumps_is_what_plain_numpy_finds(
    dumps: Callable[[str], Path], name: str, need: str
) -> None:
    files, previous = chains(dumps(name))
    records = read_all(requests_for(files, previous, NEEDS[need]))
    arrays = [np.load(path) for path in files]
    for row, before in enumerate(previous):
        wanted = record_of(arrays[row], arrays[before] if before >= 0 else None, NEEDS[need])
        assert_same(records.get(row), wanted, files[row])


TYPES = [
    *("bool", "int8", "uint8", "int16", "int32", "int64", "uint64"),
    *("float16", "float32", "float64", ">f4", "complex64", "complex128"),
]
VALUES = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 1e-24, 3e4, -3e4, np.nan, np.inf, -np.inf])
SHAPES = st.sampled_from([(), (0,), (1,), (3,), (2, 3), (4, 0, 2), (SMALL,), (BIG,), (SMALL // 2, 3)])


@st.composite
def arrays(draw: st.DrawFn) -> Array:
    """Arrays of all types and orders, around the sizes where the ways part."""
    dtype, shape = np.dtype(draw(st.sampled_from(TYPES))), draw(SHAPES)
    pool = np.array(draw(st.lists(VALUES, min_size=1, max_size=8)))
    if dtype.kind in "biu":
        pool = np.nan_to_num(np.clip(np.nan_to_num(pool), 0 if dtype.kind != "i" else -100, 100))
    array = np.resize(pool, shape).astype(dtype)
    return np.asfortranarray(array) if draw(st.booleans()) else array


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(arrays(), min_size=1, max_size=6), st.sampled_from(sorted(NEEDS)))
def test_arrays_of_all_kinds_are_what_plain_numpy_finds(tmp_path: Path, steps: list[Array], need: str) -> None:
    files = [tmp_path / f"{number}.npy" for number in range(len(steps))]
    for path, array in zip(files, steps, strict=True):
        np.save(path, array)
    records = read_all(requests_for(files, range(-1, len(files) - 1), NEEDS[need]))
    for row, array in enumerate(steps):
        before = steps[row - 1] if row else None
        assert_same(records.get(row), record_of(array, before, NEEDS[need]), (array.dtype, array.shape))


@pytest.mark.parametrize("count", [7, BIG])
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_raw_bytes_of_types_that_numpy_does_not_know(tmp_path: Path, name: str, count: int) -> None:
    array = np.linspace(-2, 2, count).astype(getattr(ml_dtypes, name))
    steps = [array, (array * 2).astype(array.dtype)]
    specs = []
    for number, values in enumerate(steps):
        (tmp_path / f"{number}.bin").write_bytes(b"head" + values.tobytes())
        specs.append(ReadSpec(str(tmp_path / f"{number}.bin"), "raw", name, (count,), 4))
    records = read_all(requests_for(specs, [-1, 0], EVERYTHING))
    assert_same(records.get(0), record_of(steps[0], None, EVERYTHING, name))
    assert_same(records.get(1), record_of(steps[1], steps[0], EVERYTHING, name))


def test_sums_of_huge_doubles_do_not_overflow(tmp_path: Path) -> None:
    steps = [np.full(5, 1.5e308), np.array([1e308, 1.5e308, -1.7e308, 2.0]), np.ones(3)]
    files = [tmp_path / f"{number}.npy" for number in range(3)]
    for path, array in zip(files, steps, strict=True):
        np.save(path, array)
    records = read_all(requests_for(files, [-1, -1, -1], RequiredStats()))
    for row, array in enumerate(steps):
        record = records.get(row)
        assert record is not None
        assert record.stats is not None
        assert record.stats.mean == pytest.approx(float(array.astype(np.longdouble).mean()))
        assert record.stats.abs_mean == pytest.approx(float(np.abs(array.astype(np.longdouble)).mean()))


def test_a_tensor_is_what_it_is_whatever_its_neighbours_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    steps = [
        rng.standard_normal(300),
        np.full(50, 1.5e308),  # its sum overflows
        np.array([np.nan, np.inf, 1.0, 0.1, 0.3]),
        1000 + 1e-3 * rng.standard_normal(70),  # its variance is lost among the squares
        np.full(3, 0.1),
        rng.standard_normal(2000),
    ]
    files = [tmp_path / f"{number}.npy" for number in range(len(steps))]
    for path, array in zip(files, steps, strict=True):
        np.save(path, array)
        os.utime(path, ns=(OLD, OLD))
    together = read_all(requests_for(files, [-1] * len(files), EVERYTHING))
    for row, path in enumerate(files):
        assert_equal_bits(read_all(requests_for([path], [-1], EVERYTHING)), together, np.array([row]))
        if row != 1:  # whose sum plain numpy cannot have either
            assert_same(together.get(row), record_of(steps[row], None, EVERYTHING))


def test_each_look_gets_what_it_asked_for(tmp_path: Path) -> None:
    needs = [RequiredStats(), None, RequiredStats(frozenset({(0.0, 1.0)})), RequiredStats(change=True), EVERYTHING]
    files = [tmp_path / f"{number}.npy" for number in range(len(needs))]
    steps = [np.arange(4.0) * number for number in range(len(needs))]
    for path, array in zip(files, steps, strict=True):
        np.save(path, array)
    records = read_all(requests_for(files, range(-1, len(needs) - 1), needs))
    for row, need in enumerate(needs):
        if need is None:
            assert records.get(row) is None
        else:
            assert_same(records.get(row), record_of(steps[row], steps[row - 1], need))


# -- bad files ---------------------------------------------------------------------------------------------------------


def _missing(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _headless(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def _rubbish(path: Path) -> None:
    path.write_bytes(b"rubbish, and quite a lot of it")


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _pickled(path: Path) -> None:
    np.save(path, np.array([{}], object))


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing": (_missing, "no such file"),
    "empty": (_empty, "is empty"),
    "truncated": (_truncated, "is truncated: 1 of"),
    "headless": (_headless, "ends inside its header"),
    "rubbish": (_rubbish, "is not a .npy file"),
    "directory": (_directory, "found a directory"),
    "pipe": (_pipe, "found not a regular file"),
    "pickled": (_pickled, "pickled"),
}


@pytest.mark.parametrize("count", [5, BIG])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_bad_file_says_why_and_spoils_nothing_else(tmp_path: Path, damage: str, count: int) -> None:
    files = [tmp_path / f"{number}.npy" for number in range(5)]
    steps = [np.arange(count) + float(number) for number in range(5)]
    for path, array in zip(files, steps, strict=True):
        np.save(path, array)
    DAMAGE[damage][0](files[2])
    records = read_all(requests_for(files, range(-1, 4), EVERYTHING))
    for row in (0, 1, 4):
        assert_same(records.get(row), record_of(steps[row], steps[row - 1] if row else None, EVERYTHING))
    bad = records.get(2)
    assert bad is not None
    assert DAMAGE[damage][1] in bad.error
    assert (bad.meta, bad.stats, bad.change, bad.ranges, bad.close, bad.previous) == (None, None, None, {}, {}, "none")
    assert bad.need == EVERYTHING
    after = records.get(3)
    assert after is not None
    assert (after.previous, after.change, after.close, after.error) == ("unreadable", None, {}, "")
    assert after.stats == (alone.stats if (alone := look(files[3])) else None)


@pytest.mark.parametrize("count", [5, BIG])
def test_a_file_that_ends_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    files = [tmp_path / "before.npy", tmp_path / "now.npy"]
    for path in files:
        np.save(path, np.ones(count))
    shutil.copy(files[0], tmp_path / "whole.npy")
    size = files[0].stat().st_size
    real = os.fstat

    def growing(fd: int) -> os.stat_result:
        status = list(real(fd))
        status[6] = max(status[6], size)  # what it says of itself is more than there is
        return os.stat_result(status)

    with files[1].open("ab") as file:
        file.truncate(file.tell() - 8)
    monkeypatch.setattr(os, "fstat", growing)
    record = look(files[1], files[0], EVERYTHING)
    assert "became shorter while it was read" in record.error
    record = look(tmp_path / "whole.npy", files[1], EVERYTHING)
    assert (record.previous, record.error) == ("unreadable", "")
    assert record.stats is not None
    assert record.stats.count == count


@pytest.mark.parametrize("shrinks", ["now.npy", "before.npy"])
def test_a_file_that_shrinks_between_two_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shrinks: str) -> None:
    """Files are read, not mapped: touching what a map no longer has would end the program."""
    monkeypatch.setattr(side_by_side, "STRETCH", 1)
    files = [tmp_path / "before.npy", tmp_path / "now.npy"]
    for path in files:
        np.save(path, np.ones(1_000_000))
    requests = requests_for(files, [-1, 0], {"now.npy": NEEDS["statistics"], "before.npy": EVERYTHING}[shrinks])
    calls: list[int] = []

    def shrink() -> None:
        calls.append(1)
        if len(calls) == (20 if shrinks == "now.npy" else 3):  # some pieces of it have been read by then
            os.truncate(tmp_path / shrinks, 4096)

    records = read_all(requests, shrink)
    found = {path.name: records.get(row) for row, path in enumerate(files)}
    record = found[shrinks]
    assert record is not None
    assert "became shorter while it was read" in record.error
    assert record.stats is None


def test_elements_without_numbers_have_a_type_and_a_shape(tmp_path: Path) -> None:
    for number, array in enumerate([np.ones(2), np.array(["a", "bc"]), np.ones(2)]):
        np.save(tmp_path / f"{number}.npy", array)
    records = read_all(requests_for([tmp_path / f"{number}.npy" for number in range(3)], [-1, 0, 1], EVERYTHING))
    text = records.get(1)
    assert text is not None
    assert (text.stats, text.error, text.previous) == (None, "", "none")
    assert text.meta is not None
    assert (text.meta.dtype, text.meta.shape) == ("<U2", (2,))
    after = records.get(2)
    assert after is not None
    assert (after.previous, after.change) == ("unreadable", None)


# -- how often a file is read ------------------------------------------------------------------------------------------


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """The files that are opened, by path."""
    with opened_tensor_files() as paths:
        yield paths


def times(opened: list[str]) -> Counter[str]:
    """How often each file was opened, by its name."""
    return Counter(os.path.basename(path) for path in opened)  # noqa: PTH119 - names are wanted


def test_small_steps_of_a_tensor_are_read_once_each(tmp_path: Path, opened: list[str]) -> None:
    files = []
    for tensor in range(3):
        for step in range(200):
            files.append(tmp_path / f"{tensor}.{step}.npy")
            np.save(files[-1], np.full(40, step, np.float32))
    opened.clear()
    records = read_all(requests_for(files, [row - 1 if row % 200 else -1 for row in range(600)], EVERYTHING))
    assert set(times(opened).values()) == {1}
    assert len(opened) == 600
    assert [records.rows["difference"][row] for row in (1, 199, 201)] == [1, 1, 1]


def test_big_steps_of_a_tensor_are_read_once_each(tmp_path: Path, opened: list[str]) -> None:
    files = [tmp_path / f"{step}.npy" for step in range(5)]
    for step, path in enumerate(files):
        np.save(path, np.full(300_000, step, np.float32))
    opened.clear()
    records = read_all(requests_for(files, range(-1, 4), EVERYTHING))
    looked_at = 1 if kernel.available() else 0  # whether it is small is seen by opening it
    assert {name: count - looked_at for name, count in times(opened).items()} == dict.fromkeys(
        (path.name for path in files), 1
    )
    assert records.rows["difference"].tolist() == [0, 1, 1, 1, 1]
    assert records.rows["reference"].tolist() == [0, 0, 1, 2, 3]


def test_what_nobody_needs_is_not_opened(tmp_path: Path, opened: list[str]) -> None:
    for name in ("before", "now"):
        np.save(tmp_path / f"{name}.npy", np.ones(3))
    opened.clear()
    look(tmp_path / "now.npy", tmp_path / "before.npy", RequiredStats(frozenset({(0.0, 1.0)})))
    assert times(opened) == {"now.npy": 1}


def test_any_order_of_a_batch_gives_the_same_answers(dumps: Callable[[str], Path]) -> None:
    files, previous = chains(dumps("mindspore-2.0-mlp"))
    straight = read_all(requests_for(files, previous, EVERYTHING))
    order = np.random.default_rng(3).permutation(len(files))
    place = np.argsort(order)
    shuffled = requests_for(
        [files[row] for row in order], [place[previous[row]] if previous[row] >= 0 else -1 for row in order], EVERYTHING
    )
    assert_equal_bits(read_all(shuffled), straight, order)


def assert_equal_bits(found: Records, wanted: Records, rows: npt.NDArray[np.integer[Any]]) -> None:
    """Row i of ``found`` is row ``rows[i]`` of ``wanted``, to the last bit."""
    for name in ROW.names or ():
        if name != "meta":
            assert np.array_equal(found.rows[name], wanted.rows[name][rows], equal_nan=ROW[name].kind == "f"), name
    for columns, others in ((found.ranges, wanted.ranges), (found.close, wanted.close)):
        assert columns.keys() == others.keys()
        assert all(np.array_equal(column, others[key][rows]) for key, column in columns.items())
    assert [found.errors.get(at) for at in range(len(rows))] == [wanted.errors.get(row) for row in rows.tolist()]
    metas = [
        [records.metas[meta] if meta >= 0 else None for meta in records.rows["meta"]] for records in (found, wanted)
    ]
    assert metas[0] == [metas[1][row] for row in rows.tolist()]


# -- how the files looked ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, BIG])
def test_a_row_says_how_its_files_looked(tmp_path: Path, count: int) -> None:
    files = [tmp_path / f"{step}.npy" for step in range(3)]
    for step, path in enumerate(files):
        np.save(path, np.ones(count))
        os.utime(path, ns=(OLD, OLD + step))
    rows = read_all(requests_for(files, range(-1, 2), EVERYTHING)).rows
    size = files[0].stat().st_size
    assert rows["size"].tolist() == [size] * 3
    states = [opener.state_of(path.stat()) for path in files]
    assert 0 not in states
    assert rows["identity"].tolist() == states
    assert rows["before_size"].tolist() == [0, size, size]
    assert rows["before_identity"].tolist() == [0, *states[:2]]


@pytest.mark.parametrize("count", [3, BIG])
def test_a_file_that_may_still_be_written_is_not_to_be_believed_later(tmp_path: Path, count: int) -> None:
    files = [tmp_path / "before.npy", tmp_path / "now.npy"]
    for path in files:
        np.save(path, np.ones(count))
    os.utime(files[0], ns=(OLD, OLD))
    ahead = time.time_ns() + 10**12
    os.utime(files[1], ns=(ahead, ahead))  # another machine's clock
    rows = read_all(requests_for([*files, files[0]], [-1, 0, 1], EVERYTHING)).rows
    assert (rows["size"] > 0).tolist() == (rows["identity"] > 0).tolist() == [True, False, True]
    assert (rows["before_identity"] > 0).tolist() == [False, True, False]
    assert rows["state"].tolist() == [RecordState.MEASURED] * 3


# -- spans and checkpoints ---------------------------------------------------------------------------------------------


@pytest.fixture
def small_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans of 100,000 elements in pieces of 32 Ki elements of float32."""
    for target in (side_by_side, scan):
        monkeypatch.setattr(target, "SPAN", 100_000)
    monkeypatch.setattr(side_by_side, "PIECE", 1 << 17)


@pytest.mark.usefixtures("small_spans")
@pytest.mark.parametrize("compared", [False, True])
def test_spans_measured_apart_add_up_to_the_same_bits(tmp_path: Path, compared: bool) -> None:
    specs = [ReadSpec(str(tmp_path / f"{step}.npy")) for step in range(2)]
    values = np.random.default_rng(0).standard_normal((2, 450_000)).astype(np.float32)
    values[1, 123_456] = np.nan
    for spec, array in zip(specs, values, strict=True):
        np.save(spec.path, array)
    before = specs[0] if compared else None
    parts = [measure_file_span(specs[1], before, EVERYTHING, span) for span in spans_of(specs[1], before)]
    assert len(parts) == 5
    whole = read_all(requests_for(specs, [-1, 0 if compared else -1], EVERYTHING))
    found = joined(parts, EVERYTHING)
    assert found is not None
    assert_equal_bits(found, whole, np.array([1]))
    assert_same(found.get(0), record_of(values[1], values[0] if compared else None, EVERYTHING))


@pytest.mark.usefixtures("small_spans")
def test_spans_of_a_file_that_changes_meanwhile_do_not_add_up(tmp_path: Path) -> None:
    spec = ReadSpec(str(tmp_path / "x.npy"))
    np.save(spec.path, np.ones(250_000))
    os.utime(spec.path, ns=(OLD, OLD))
    parts = [measure_file_span(spec, None, RequiredStats(), span) for span in spans_of(spec, None)]
    assert joined(parts, RequiredStats()) is not None
    os.utime(spec.path, ns=(OLD, OLD + 1))
    assert (
        joined([*parts[:-1], measure_file_span(spec, None, RequiredStats(), (200_000, 250_000))], RequiredStats())
        is None
    )
    np.save(spec.path, np.ones(220_000))
    assert measure_file_span(spec, None, RequiredStats(), (200_000, 250_000)) is None
    assert joined([*parts[:-1], None], RequiredStats()) is None


@pytest.mark.usefixtures("small_spans")
def test_what_is_odd_has_no_spans(tmp_path: Path) -> None:
    specs = {name: ReadSpec(str(tmp_path / f"{name}.npy")) for name in ("huge", "fortran", "small", "text", "missing")}
    np.save(specs["huge"].path, np.ones((500, 500)))
    np.save(specs["fortran"].path, np.asfortranarray(np.ones((500, 500))))
    np.save(specs["small"].path, np.ones(100_000))
    np.save(specs["text"].path, np.full(200_000, "a"))
    assert [bool(spans_of(spec, None)) for spec in specs.values()] == [True, True, False, False, False]
    assert not spans_of(specs["huge"], specs["fortran"])
    assert not spans_of(specs["huge"], specs["missing"])


def test_a_checkpoint_stops_inside_a_big_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "PIECE", 1 << 17)
    np.save(tmp_path / "big.npy", np.zeros(1 << 20))
    calls = 0

    def checkpoint() -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise CancelledError("stopped")

    with pytest.raises(CancelledError):
        read_all(requests_for([tmp_path / "big.npy"], [-1], RequiredStats()), checkpoint)
    assert calls == 5


def test_a_checkpoint_stops_between_small_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(10))
    calls = 0

    def checkpoint() -> None:
        nonlocal calls
        calls += 1

    requests = requests_for([tmp_path / "x.npy"] * 2000, [-1] * 2000, RequiredStats())
    read_all(requests, checkpoint)
    assert calls >= 5


def test_values_of_big_tensors_are_not_mixed_up_when_one_of_them_breaks_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / f"{step}.npy" for step in range(4)]
    for step, path in enumerate(files):
        np.save(path, np.full(50_000, step + 1.0))
    real = module.PairReader.measure
    seen: list[str] = []

    def failing(self: Any, file: Any, room: Any = None) -> Any:
        seen.append(self.spec.path)
        if seen == [str(path) for path in files[:2]]:
            raise UnreadableTensorError("the device fails")
        return real(self, file, room)

    monkeypatch.setattr(module.PairReader, "measure", failing)
    records = read_all(requests_for(files, [-1, 0, 0, 2], EVERYTHING))
    assert records.rows["state"].tolist() == [
        RecordState.MEASURED,
        RecordState.UNREADABLE,
        RecordState.MEASURED,
        RecordState.MEASURED,
    ]
    assert records.rows["reference"].tolist() == [0, 0, 1, 3]


def test_looks_without_files_are_no_work() -> None:
    empty = requests_for([], [], [])
    assert isinstance(empty, ReadRequests)
    assert len(read_all(empty)) == 0


CHANGE = RequiredStats(change=True)


def requests(chains: list[int], need: RequiredStats | None = CHANGE) -> ReadRequests:
    """Tensors of so many steps each, one after the other."""
    previous: list[int] = []
    for steps in chains:
        previous += [-1, *range(len(previous), len(previous) + steps - 1)]
    return requests_for([Path(f"/{row}") for row in range(len(previous))], previous, [need] * len(previous))


@examples(50)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=60),
    st.lists(st.sampled_from([-1, 0, 400, 1 << 20, 1 << 24, 1 << 26, 1 << 33]), min_size=1, max_size=7),
    st.integers(1, 4),
)
def test_batches_follow_each_other_and_stay_small(chains: list[int], pattern: list[int], workers: int) -> None:
    whole = requests(chains)
    sizes = np.resize(np.array(pattern, np.int64), len(whole))
    found = list(batch_bounds(whole, sizes, workers))
    assert [start for start, _ in found] == [0, *(end for _, end in found[:-1])]
    assert found[-1][1] == len(whole)
    firsts = set(np.flatnonzero(whole.previous < 0).tolist())
    for start, end in found:
        cost = int(costs(sizes[start:end]).sum())
        assert end - start == 1 or cost <= MOST
        if start not in firsts:  # a tensor is cut apart only where its steps are too much together
            first = max(row for row in firsts if row < start)
            assert int(costs(sizes[first:end]).sum()) > LEAST


def test_work_is_shared_and_small_work_is_not_chopped() -> None:
    whole = requests([50] * 400)
    sizes = np.full(len(whole), 200)
    assert len(list(batch_bounds(whole, sizes, 2))) >= 12
    few = requests([6] * 20)
    assert len(list(batch_bounds(few, np.full(len(few), 200), 2))) == 1
    assert LEAST // LIKE_BYTES == 256


def test_no_files_are_no_batches() -> None:
    assert list(batch_bounds(requests([]), np.zeros(0, np.int64), 2)) == []


@examples(50)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.data())
def test_a_part_brings_what_it_is_compared_with(chains: list[int], data: st.DataObject) -> None:
    whole = requests(chains)
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, len(whole) - 1), min_size=1))))
    batch, every = subset(whole, rows)
    assert [batch.specs.paths[at] for at in range(len(batch))] == [whole.specs.paths[row] for row in every]
    asked = every[batch.need != ONLY_COMPARED]
    assert asked.tolist() == rows.tolist()
    for at, row in enumerate(every.tolist()):
        if row in rows:
            before = int(whole.previous[row])
            assert (int(every[batch.previous[at]]) if batch.previous[at] >= 0 else -1) == before
        else:
            assert row + 1 in rows


def test_what_nobody_compares_does_not_come_along() -> None:
    whole = requests([5], RequiredStats())
    assert compared_with(whole).tolist() == [-1] * 5
    batch, every = subset(whole, np.array([3, 4]))
    assert every.tolist() == [3, 4]
    assert batch.previous.tolist() == [-1, -1]


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_a_huge_file_is_alone(workers: int) -> None:
    whole = requests([1, 1, 1])
    assert list(batch_bounds(whole, np.array([100, 1 << 33, 100]), workers)) == [(0, 1), (1, 2), (2, 3)]


# -- files of several tensors ----------------------------------------------------------------------


def members(folder: Path, steps: int, count: int, form: str) -> list[ReadSpec]:
    """The tensors of a file a step, by tensor, then step; some are too large for a window, one has text."""
    generator = np.random.default_rng(0)
    specs: dict[str, list[ReadSpec]] = {}
    for step in range(steps):
        values: dict[str, Array] = {
            f"t{at}": generator.normal(size=(at % 5, 3) if at % 7 else (3 * BIG,)).astype(["f4", "f8", "i2"][at % 3])
            for at in range(count)
        }
        values["t1"] = np.array([[np.nan, np.inf, -np.inf]], "f4") + step
        values["t2"] = np.zeros((2, 3), "f8")
        path = folder / f"{step}.{form}"
        if form == "npz":
            np.savez(path, **values, text=np.array(["words"]))  # type: ignore[arg-type] # numpy's stub forgets names
        elif form == "packed.npz":
            np.savez_compressed(path, **values, text=np.array(["words"]))  # type: ignore[arg-type] # as above
        else:
            write_safetensors(path, values)
        os.utime(path, ns=(OLD, OLD))
        kind = form.rpartition(".")[2]
        for name in [*values, *(["text"] if kind == "npz" else [])]:
            specs.setdefault(name, []).append(ReadSpec(str(path), kind, member=name))
    return [spec for each in specs.values() for spec in each]


@pytest.mark.parametrize("form", ["npz", "packed.npz", "safetensors"])
def test_tensors_of_one_file_are_what_they_are_alone_and_their_file_is_opened_once_a_window(
    tmp_path: Path, opened: list[str], form: str
) -> None:
    steps, count = 3, 60
    specs = members(tmp_path, steps, count, form)
    previous = [row - 1 if row % steps else -1 for row in range(len(specs))]
    together = read_all(requests_for(specs, previous, EVERYTHING))
    large = sum(not at % 7 for at in range(count)) * steps + (steps if "npz" in form else 0)
    if kernel.available():
        assert len(opened) <= steps + 2 * large
    for row, before in enumerate(previous):
        pair = [specs[row]] if before < 0 else [specs[before], specs[row]]
        alone = read_all(requests_for(pair, range(-1, len(pair) - 1), EVERYTHING))
        assert_same(together.get(row), alone.get(len(pair) - 1), specs[row].member)


def test_a_batch_carries_the_kinds_of_its_own_files_only(tmp_path: Path) -> None:
    specs = members(tmp_path, 1, 40, "safetensors")
    batch, _ = subset(requests_for(specs, [-1] * len(specs), RequiredStats()), np.array([5, 6]))
    assert [kind.member for kind in batch.specs.kinds] == ["t5", "t6"]


def test_a_batch_carries_the_members_of_its_own_files_only(tmp_path: Path) -> None:
    specs = members(tmp_path, 1, 40, "safetensors")
    kind = replace(specs[0], path="", member="")
    paths, places = [os.fsencode(spec.path) for spec in specs], [spec.member for spec in specs]
    every = ReadSpecs(paths, (kind,), np.zeros(len(specs), np.int32), places)
    requests = replace(requests_for(specs, [-1] * len(specs), RequiredStats()), specs=every)
    batch, _ = subset(requests, np.array([5, 6]))
    assert [batch.specs.spec(row) for row in (0, 1)] == specs[5:7]


def test_a_damaged_member_says_why_and_spoils_no_neighbour(tmp_path: Path) -> None:
    specs = members(tmp_path, 1, 6, "npz")
    path = Path(specs[0].path)
    content = bytearray(path.read_bytes())
    at = content.index(np.array([[np.nan, np.inf, -np.inf]], "f4").tobytes())
    content[at : at + 4] = b"\0\0\0\0"
    path.write_bytes(content)
    records = read_all(requests_for(specs, [-1] * len(specs), RequiredStats()))
    bad = [row for row in range(len(specs)) if records.rows["state"][row] == RecordState.UNREADABLE]
    assert [specs[row].member for row in bad] == ["t1"]
