"""The table of statistics: its rows are whole, and the fast code makes what the rows say."""

from __future__ import annotations

import dataclasses
import math
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.stats.requests import look
from tui_debugger.live.wire import message
from tui_debugger.model import ReadSpec, TensorStats
from tui_debugger.stats.blocks import Accumulator
from tui_debugger.stats.fields import (
    COLUMNS,
    FAST,
    FIELDS,
    METRICS,
    OURS,
    SENT,
    STORED,
    STORED_NAMES,
    Form,
    StatisticField,
    made_of,
    sums_of,
)
from tui_debugger.stats.records import ROW, Record, Records

pytestmark = pytest.mark.usefixtures("measured_by")

Array = npt.NDArray[Any]
random = np.random.default_rng(7)
ARRAYS: dict[str, Array] = {
    "normal": random.standard_normal(3000),
    "few": np.array([1.5, -2.0, 0.0]),
    "one": np.array([-4.25]),
    "equal": np.full(300, 0.125),
    "off": random.standard_normal(1000) + 1000,
    "spoiled": np.where(random.random(500) < 0.3, random.choice([np.nan, np.inf, -np.inf], 500), 1.0),
    "no finite": np.array([np.nan, np.inf, -np.inf]),
    "empty": np.zeros(0),
    "several blocks": random.standard_normal(200_000).astype(np.float32).astype(np.float64),
}
"""Values that float64 holds, so that every way to them sees the same ones."""


def plainly(field: StatisticField, array: Array, parts: int) -> float | None:
    """A statistic as its row makes it, of so many parts."""
    made = made_of(field)
    with np.errstate(all="ignore"):
        chosen = array if made.every else array[np.isfinite(array)]
        return made.result(reduce(made.merge, (sums_of(made, x) for x in np.array_split(chosen, parts)), made.identity))


def assert_close(found: float | None, wanted: float | None, array: Array, field: StatisticField) -> None:
    finite = array[np.isfinite(array)]
    scale = float((finite * finite).sum()) + 1
    if found is None or wanted is None or field.form is Form.COUNT or field.name in {"minimum", "maximum"}:
        assert found == wanted
    else:
        assert abs(found - wanted) <= 1e-12 * scale


@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("field", STORED, ids=lambda field: field.name)
class TestEveryWayMakesTheSame:
    def test_blocks(self, field: StatisticField, name: str, parts: int) -> None:
        total = Accumulator()
        for x in np.array_split(ARRAYS[name], parts):
            part = Accumulator()
            part.add(x)
            total.merge(part)
        assert_close(getattr(total.stats(), field.name), plainly(field, ARRAYS[name], parts), ARRAYS[name], field)

    def test_files(
        self, field: StatisticField, name: str, parts: int, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        """A file of many elements goes through blocks, a small one through windows."""
        array = np.resize(ARRAYS[name], 2048) if parts == 2 and ARRAYS[name].size else ARRAYS[name]
        file = tmp_path_factory.mktemp("files") / "x.npy"
        np.save(file, array)
        stats = look(ReadSpec(str(file))).stats
        assert stats is not None
        assert_close(getattr(stats, field.name), plainly(field, array, parts), array, field)


@pytest.mark.parametrize("field", STORED, ids=lambda field: field.name)
def test_sums_of_nothing_change_nothing(field: StatisticField) -> None:
    made = made_of(field)
    sums = made.part(ARRAYS["few"])
    assert made.merge(made.identity, sums) == pytest.approx(sums)
    assert made.merge(sums, made.identity) == pytest.approx(sums)
    assert len(sums) == len(made.identity)


@pytest.mark.parametrize("name", ARRAYS)
def test_torch_makes_the_same_on_a_device(name: str) -> None:
    torch = pytest.importorskip("torch")
    from tui_debugger.stats.records import RequiredStats
    from tui_debugger.torch import exact

    waiting = exact.Waiting()
    (found,) = exact.finish(
        [exact.on_device(torch.from_numpy(ARRAYS[name]), RequiredStats(), waiting)], waiting.fetch()
    )
    for field in STORED:
        made = made_of(field)
        plain = torch.from_numpy(ARRAYS[name])
        chosen = plain if made.every else plain[torch.isfinite(plain)]
        sums = tuple(float(number) for number in sums_of(made, chosen))
        assert_close(getattr(found.stats, field.name), made.result(sums), ARRAYS[name], field)


def test_every_attribute_of_stats_is_a_row_that_is_stored() -> None:
    about = ["at_least"]  # which of them are lower bounds
    assert [each.name for each in dataclasses.fields(TensorStats)] == [*STORED_NAMES, *about]
    assert STORED[: len(FAST)] == FAST, "the fast ones come first, in the order of the attributes"
    assert {each.form for each in STORED} == {Form.COUNT, Form.REAL}


def test_rows_have_names_of_their_own_and_say_what_they_are() -> None:
    for said in ([each.name for each in FIELDS], [each.column for each in COLUMNS], [each.help for each in FIELDS]):
        assert len(set(said)) == len(said)
        assert all(said)
    assert all(each.title for each in (*COLUMNS, *METRICS.values()))
    assert all((each.made is None) or (each.of is None) for each in FIELDS)


def test_records_hold_every_statistic_in_eight_bytes() -> None:
    names = ROW.names
    assert names is not None
    assert names[: len(STORED)] == STORED_NAMES
    assert all(ROW[name].itemsize == 8 for name in STORED_NAMES)
    stats = TensorStats(9, 1, 2, 3, 1, 1, 1, -1.5, 2.5, 0.1, 0.2, 0.3, 9.5)
    records = Records(1)
    records.put(0, Record(None, stats))
    found = records.get(0)
    assert found is not None
    assert found.stats == stats


def test_numbers_on_the_wire_belong_to_one_field_each_and_those_that_are_out_never_change() -> None:
    numbers = {sent.name: sent.number for _, sent in SENT}
    assert len(set(numbers.values())) == len(numbers)
    published = ("minimum", "maximum", "mean", "abs_mean", "variance", "sum_squares")
    assert [numbers[name] for name in published] == [100, 101, 102, 103, 104, 105]
    descriptor = message("Statistics").DESCRIPTOR
    for field, sent in SENT:
        assert descriptor.fields_by_name[sent.name].number == sent.number
        assert sent.ours == (sent.number >= OURS)
        assert not sent.rounded or sent.rounded in descriptor.fields_by_name
        assert field.form in (Form.COUNT, Form.REAL)


def test_what_is_not_known_is_no_number() -> None:
    for field in STORED:
        if field.form is Form.REAL:
            assert field.unknown is None or math.isnan(field.unknown)
