"""Records as bytes: nothing is lost on the way, and no bytes whatever do harm."""

from __future__ import annotations

import math
import random
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.thorough import examples
from tui_debugger.cache.blocks import pack, unpack
from tui_debugger.model import TensorMeta, TensorStats
from tui_debugger.stats.fields import STORED, Form
from tui_debugger.stats.records import (
    BEFORE_WORDS,
    ROW,
    Bounds,
    Closeness,
    Record,
    Records,
    RecordState,
    RequiredStats,
    StepChange,
)

INF = math.inf
REAL = st.floats(allow_nan=False)
COUNT = st.integers(0, 2**63 - 1)
TEXT = st.text(st.characters(), max_size=30)  # surrogates too: names of files that are no UTF-8
METAS = st.builds(
    TensorMeta,
    dtype=st.sampled_from(["float32", "bfloat16", "", "é\udcff"]),
    shape=st.lists(st.integers(0, 2**40), max_size=4).map(tuple),
    nbytes=COUNT,
)
OPTIONAL = REAL | st.none()
STATS = st.builds(
    TensorStats,
    **{each.name: COUNT if each.form is Form.COUNT else OPTIONAL if each.unknown is None else REAL for each in STORED},
)
BOUNDS: list[Bounds] = [(0.0, 1.0), (-INF, 0.1), (0.1, INF), (-INF, INF), (5e-324, 1.7976931348623157e308)]
CLOSE: list[Closeness] = [(1e-5, 1e-8, False), (1e-5, 1e-8, True), (0.1 + 0.2, INF, False)]


@st.composite
def record(draw: st.DrawFn) -> Record:
    """Any record that a look may yield."""
    need = RequiredStats(
        draw(st.frozensets(st.sampled_from(BOUNDS))), draw(st.booleans()), draw(st.frozensets(st.sampled_from(CLOSE)))
    )
    error = draw(st.one_of(st.just(""), TEXT.filter(bool)))
    if error:
        return Record(
            draw(METAS | st.none()), None, need=need, error=error, previous=draw(st.sampled_from(BEFORE_WORDS))
        )
    return Record(
        draw(METAS),
        draw(STATS | st.none()),
        {bounds: draw(COUNT) for bounds in need.ranges if draw(st.booleans())},
        StepChange(draw(REAL), draw(REAL)) if need.change and draw(st.booleans()) else None,
        {closeness: draw(st.booleans()) for closeness in need.closeness if draw(st.booleans())},
        draw(st.sampled_from(BEFORE_WORDS)),
        need=need,
    )


def made(records: list[Record | None]) -> Records:
    """A table of records; None was not looked at."""
    table = Records(len(records))
    for index, each in enumerate(records):
        if each is not None:
            table.put(index, each)
    return table


TABLES = st.lists(record() | st.none(), max_size=6)


def content(table: Records) -> list[Record | None]:
    return [table.get(index) for index in range(len(table))]


@examples(300)
@given(TABLES)
def test_what_goes_in_comes_out(records: list[Record | None]) -> None:
    table = made(records)
    found = unpack(pack(table), len(records))
    assert found is not None
    assert content(found) == content(table)
    assert found.rows.tobytes() == table.rows.tobytes(), "every bit, of what is not a number too"
    assert list(found.ranges) == list(table.ranges)
    assert list(found.close) == list(table.close)
    assert pack(found) == pack(table)


@examples(100)
@given(TABLES, st.data())
def test_a_part_of_a_table_takes_only_what_it_uses(records: list[Record | None], data: st.DataObject) -> None:
    table = made(records)
    start = data.draw(st.integers(0, len(records)))
    stop = data.draw(st.integers(start, len(records)))
    found = unpack(pack(table.part(start, stop)), stop - start)
    assert found is not None
    assert content(found) == content(table)[start:stop]
    assert set(found.metas) == {each.meta for each in content(found) if each is not None and each.meta is not None}


def sample() -> Records:
    """Some of everything."""
    stats = TensorStats(12, 1, 1, 1, 3, 2, 4, -1.5, 2.5, 0.1, 0.2, 0.3, sum_squares=9.5)
    need = RequiredStats(frozenset(BOUNDS), True, frozenset(CLOSE))
    full = Record(
        TensorMeta("float32", (3, 4), 48),
        stats,
        dict.fromkeys(BOUNDS, 5),
        StepChange(0.5, 0.25),
        dict.fromkeys(CLOSE, True),
        "ok",
        need=need,
    )
    return made(
        [
            full,
            replace(full, change=None, ranges={}, close={}, previous="shape"),
            Record(TensorMeta("float16", (), 2), replace(stats, minimum=None)),
            Record(TensorMeta("str", (2,), 10), None),
            Record(None, None, error="the file is “empty”\udcff"),
            None,
        ]
    )


def test_what_was_unpacked_can_be_worked_with() -> None:
    table = sample()
    found = unpack(pack(table), 6)
    assert found is not None
    new = Record(TensorMeta("float16", (), 2), None, need=RequiredStats(frozenset({(7.0, 8.0)})))
    for each in (table, found):
        each.put(5, new)
        each.forget(np.array([4]))
    assert content(found) == content(table)
    assert found.metas == table.metas, "an element type and shape that was known is not added again"
    again = unpack(pack(sample()), 6)
    assert again is not None
    assert content(again) == content(sample()), "tables that were unpacked from the same bytes are apart"


def test_bounds_that_are_no_numbers_survive() -> None:
    table = Records(1)
    table.range_column((math.nan, -INF))[0] = 4
    table.close_column((math.nan, -0.0, True))[0] = 1
    found = unpack(pack(table), 1)
    assert found is not None
    ((start, end), counts), ((rtol, atol, equal), answers) = *found.ranges.items(), *found.close.items()
    assert math.isnan(start)
    assert (end, counts.tolist()) == (-INF, [4])
    assert math.isnan(rtol)
    assert (math.copysign(1, atol), equal, answers.tolist()) == (-1, True, [1])


def test_bounds_may_be_whole_numbers() -> None:
    table = Records(1)
    table.range_column((0, 2**60))[0] = 4
    found = unpack(pack(table), 1)
    assert found is not None
    assert found.ranges.keys() == {(0.0, float(2**60))}


@pytest.mark.parametrize("n", [0, 1, 950])
def test_tables_of_which_nothing_is_known(n: int) -> None:
    found = unpack(pack(Records(n)), n)
    assert found is not None
    assert content(found) == [None] * n


@pytest.mark.parametrize("n", [0, 5, 7, 2**31, 2**62])
def test_the_number_of_tensors_must_be_right(n: int) -> None:
    assert unpack(pack(sample()), n) is None


@pytest.mark.parametrize(
    "payload", [b"", b"\0", b"tdbR", bytes(32), bytes(10_000), b"\xff" * 5000, b'{"metas":[]}' * 100]
)
@pytest.mark.parametrize("n", [0, 1, 6])
def test_what_is_no_block_at_all(payload: bytes, n: int) -> None:
    assert unpack(payload, n) is None


def usable(found: Records | None, n: int) -> bool:
    """None, or a table of which every row can be looked at, packed and placed."""
    if found is None:
        return True
    other = Records(n)
    other.place(found, np.arange(n), np.arange(n))
    assert len(found) == n
    assert all(len(column) == n for column in (*found.ranges.values(), *found.close.values()))
    assert len(content(found)) == n
    assert unpack(pack(found), n) is not None
    assert unpack(pack(other), n) is not None
    return True


@pytest.mark.parametrize("change", [1, 0x80, 0xFF])
def test_any_damaged_byte_is_found_out_or_does_no_harm(change: int) -> None:
    payload = pack(sample())
    refused = 0
    for at in range(len(payload)):
        damaged = payload[:at] + bytes([payload[at] ^ change]) + payload[at + 1 :]
        found = unpack(damaged, 6)
        assert usable(found, 6), at
        refused += found is None
    assert 0 < refused < len(payload)


def test_any_cut_is_found_out() -> None:
    payload = pack(sample())
    assert all(unpack(payload[:length], 6) is None for length in range(len(payload)))
    assert all(unpack(payload[start:], 6) is None for start in range(1, len(payload)))
    assert unpack(payload + b"\0", 6) is None


def test_wild_damage_is_found_out_or_does_no_harm() -> None:
    payload = pack(sample())
    dice = random.Random(4)  # noqa: S311 - the same damage every time
    for _ in range(2000):
        damaged = bytearray(payload)
        for _ in range(dice.randint(1, 8)):
            at = dice.randrange(len(damaged))
            damaged[at : at + dice.randint(0, 4)] = dice.randbytes(dice.randint(0, 4))
        assert usable(unpack(bytes(damaged), 6), 6)


def test_lengths_in_the_header_are_not_trusted() -> None:
    payload = pack(sample())
    for place, number in ((24, 2**32 - 1), (28, 2**32 - 1), (24, 0), (28, 0), (24, 6), (16, 2**32 - 1), (20, 1)):
        damaged = bytearray(payload)
        struct.pack_into("<I", damaged, place, number)
        assert unpack(bytes(damaged), 6) is None


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ('"float32"', '["float3"]'),
        ("[3,4]", "[3,-4]"),
        ("[3,4]", "[3.0,4]"),
        ("[3,4]", "[3,true]"),
        ("48", "1" + "0" * 30),
        ("[[4,", "[[-1,"),
        ("[[4,", "[[6,"),
        ("[[4,", '[["4",'),
        ('"metas":', '"metal":'),
        ('"inf"', '"infinite"'),
        ('"inf"', "1e999"),
        ('"metas":', '"metas":' + "[" * 100_000),
        ('["float16",[],2]', '["float32",[3,4],48]'),
    ],
)
def test_json_of_another_shape_is_found_out(was: str, becomes: str) -> None:
    payload = pack(sample())
    assert was.encode() in payload
    assert unpack(payload.replace(was.encode(), becomes.encode(), 1), 6) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("state", RecordState.COUNT), ("before", 5), ("asked", 4), ("meta", 3), ("meta", -2), ("meta", 2**31 - 1)],
)
def test_numbers_that_mean_nothing_are_found_out(name: str, value: int) -> None:
    table = sample()
    damaged = bytearray(pack(table))
    np.frombuffer(damaged, ROW, 6, 32)[name][2] = value
    assert unpack(bytes(damaged), 6) is None


def test_rows_of_another_layout_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = pack(sample())
    monkeypatch.setattr("tui_debugger.cache.blocks._ROW_DIGEST", b"12345678")
    assert unpack(payload, 6) is None
    assert unpack(pack(sample()), 6) is not None


def test_a_block_holds_no_python_objects() -> None:
    payload = pack(sample())
    assert b"tui_debugger" not in payload
    assert len(payload) < 6 * (ROW.itemsize + 8 * len(BOUNDS) + len(CLOSE)) + 1000
