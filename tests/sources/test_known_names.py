"""File names as numbers, and back."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sources.writer import DumpWriter
from tui_debugger.sources import open_source
from tui_debugger.sources.mindspore.names import KnownNames, logical_dtype, split_name
from tui_debugger.stats.npy import open_array

WORDS = st.sampled_from(
    [b"Add", b"input", b"output", b"0", b"00", b"7", b"1700000000000000", b"npy", b"F", b"", b"a-b"]
)
NAMES = st.lists(WORDS, max_size=12).map(lambda words: b".".join(words) + b".npy")
GOOD = st.builds(
    lambda prefix, task, when, side, slot, rest: b".".join([prefix, task, b"0", when, side, slot, rest, b"npy"]),
    st.sampled_from([b"Add.Add-op1", b"Parameter.a.input.0.b", b"Mul.x.output.1.F", b"caf\xe9.\xff"]),
    st.sampled_from([b"0", b"12", b"007"]),
    st.sampled_from([b"0", b"5", b"05", b"1700000000000000", b"9223372036854775807", b"9223372036854775808"]),
    st.sampled_from([b"input", b"output"]),
    st.sampled_from([b"0", b"3", b"03", b"99999"]),
    st.sampled_from([b"F", b"DefaultFormat.Float32", b"input", b"output.F32", b"F."]),
)


def spell(known_names: KnownNames, parts: tuple[int, int, int, int, bool]) -> bytes:
    prefix, device, ending, timestamp, _ = parts
    return known_names.prefixes[prefix] + known_names.devices[device] + b"%d" % timestamp + known_names.endings[ending]


@given(names=st.lists(NAMES | GOOD, min_size=1, max_size=8))
def test_numbers_say_what_the_name_says(names: list[bytes]) -> None:
    known_names = KnownNames()
    place = known_names.place(0, constants=False)
    for name in [*names, *names]:  # new parts the first time, known ones the second
        fields, parts = split_name(name), known_names.parts(place, name)
        assert (parts is None) == (fields is None)
        if fields is None or parts is None:
            continue
        text, _, _, timestamp, side, slot, _, dtype = fields
        prefix, _, ending, when, spelled = parts
        assert known_names.prefix(prefix) == (0, False, text)
        assert (known_names.sides()[ending], known_names.slots()[ending], when) == (side, slot, timestamp)
        assert known_names.kinds[ending].dtype == logical_dtype(dtype, unknown="")
        assert spelled == (spell(known_names, parts) == name)


def test_places_tell_prefixes_apart() -> None:
    known_names = KnownNames()
    places = [known_names.place(*place) for place in ((0, False), (0, True), (3, False), (0, False))]
    assert places == [0, 1, 2, 0]
    numbers = [known_names.prefix_number(place, b"Add.op") for place in places]
    assert numbers == [0, 1, 2, 0]
    assert [known_names.prefix(number) for number in numbers[:3]] == [
        (0, False, b"Add.op"),
        (0, True, b"Add.op"),
        (3, False, b"Add.op"),
    ]
    assert known_names.places_of().tolist() == [0, 1, 2]
    assert known_names.find_prefix(1, b"Add.op") == 1
    assert known_names.find_prefix(1, b"Mul.op") == -1


@pytest.mark.parametrize(
    "text", [b"", b".npy", b".output.npy", b".output.x.F.npy", b"x.output.0.F.npy", b".a.output.0.F.npy"]
)
def test_endings_that_make_no_sense_have_no_number(text: bytes) -> None:
    known_names = KnownNames()
    assert known_names.ending_number(text) == -1
    assert known_names.ending_number(b".output.0.F.npy") == 0


def test_equal_patterns_are_one_object_for_as_long_as_someone_has_it() -> None:
    known_names = KnownNames()

    def columns(*values: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return np.array(values, np.int32), np.broadcast_to(np.int32(0), len(values)), np.array(values, np.int32)

    first = known_names.pattern(*columns(1, 1, 2))
    assert known_names.pattern(*columns(1, 1, 2)) is first
    assert known_names.pattern(*columns(1, 2, 2)) is not first
    assert first.prefixes.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        first.prefix[0] = 7
    del first
    gc.collect()
    assert len(known_names._patterns) == 0


def test_timestamps_with_zeros_before_them_are_read_where_they_lie(tmp_path: Path) -> None:
    step = DumpWriter(tmp_path).step(0)
    for number, stamp in enumerate(("007", "0", "00", "12")):
        np.save(step / f"Add.Add-op{number}.0.0.{stamp}.output.0.DefaultFormat.npy", np.full(2, number))
    table = open_source(tmp_path).tensors(0, 0)
    assert table.timestamp.tolist() == [0, 0, 7, 12]
    assert sorted(int(open_array(table.spec(i))[0]) for i in range(4)) == [0, 1, 2, 3]
    assert [Path(table.spec(i).path).exists() for i in range(4)] == [True] * 4
    assert (table.file_states(np.arange(4))[0] > 0).all()
    assert [path.decode() for path in table.specs(np.array([2, 0])).paths] == [table.spec(2).path, table.spec(0).path]
