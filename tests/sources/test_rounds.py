"""Which run wrote what: runs of any shape, with parameters, lost files and copies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.sources.writer import DumpWriter, Generation
from tests.thorough import examples
from tui_debugger.sources import open_source
from tui_debugger.sources.base import TensorFlag
from tui_debugger.sources.mindspore.listing import RunBlock, in_order
from tui_debugger.sources.mindspore.run_order import begins, is_ascending, numbered, runs_at, span


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[tuple[int, int, bool]], int]:
    """(tensor, time, whether an operator's) of some runs, written one after the other, and how many they are."""
    count = draw(st.integers(1, 6))
    operators, parameters = draw(st.integers(1, 12)), draw(st.integers(0, 5))
    time, written = draw(st.integers(1, 1000)), []
    for _ in range(count):
        time += draw(st.integers(1000, 5000))
        for tensor in range(operators + parameters):
            time += draw(st.integers(1, 50))
            written.append((tensor, time, tensor < operators))
    return written, count


def columns(written: list[tuple[int, int, bool]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    key, time, operator = (np.array(column) for column in zip(*written, strict=True))
    return key.astype(np.int64), time.astype(np.int64), operator.astype(np.bool_)


@given(runs(), st.randoms(use_true_random=False))
def test_whole_runs_are_told_apart_in_whatever_order_the_files_are_listed(
    case: tuple[list[tuple[int, int, bool]], int], random: st.DataObject
) -> None:
    written, count = case
    length = len(written) // count
    expected = {entry[:2]: number // length + 1 for number, entry in enumerate(written)}
    random.shuffle(written)  # type: ignore[attr-defined] # a random.Random
    key, time, operator = columns(written)
    began = begins(key, time, operator)
    assert len(began) == count - 1
    run = runs_at(time, began)
    assert run.tolist() == [expected[entry[:2]] for entry in written]
    rounds = numbered(key, time, run, np.full(len(key), count > 1), np.zeros(len(key), np.bool_))
    assert rounds.tolist() == (run.tolist() if count > 1 else [0] * len(key))


@given(runs(), st.data())
def test_a_tensor_that_some_runs_did_not_write_keeps_the_runs_that_did(
    case: tuple[list[tuple[int, int, bool]], int], data: st.DataObject
) -> None:
    written, count = case
    tensors = 1 + max(entry[0] for entry in written)
    operators = sum(entry[2] for entry in written) // count
    if operators < 5:
        return
    lost = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    expected = {entry[:2]: number // tensors + 1 for number, entry in enumerate(written)}
    kept = [entry for number, entry in enumerate(written) if not (entry[0] == 2 and number // tensors in lost)]
    key, time, operator = columns(kept)
    run = runs_at(time, begins(key, time, operator))
    assert run.tolist() == [expected[entry[:2]] for entry in kept]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2**63 - 1), st.booleans()), max_size=60), st.booleans())
def test_rounds_are_unique_and_in_the_order_of_time_whatever_the_stamps(
    written: list[tuple[int, int, bool]], recorded: bool
) -> None:
    if not written:
        return
    key, time, operator = columns(written)
    began = begins(key, time, operator)
    assert (np.diff(began) >= 0).all()
    rows = np.arange(len(key)) % 2 == 0 if recorded else np.zeros(len(key), np.bool_)
    rounds = numbered(key, time, runs_at(time, began), np.full(len(key), len(began) > 0), rows)
    for tensor in set(key.tolist()):
        for kind in (False, True):
            mine = np.flatnonzero((key == tensor) & (rows == kind))
            mine = mine[np.argsort(time[mine], kind="stable")]
            numbers = rounds[mine].astype(np.int64)
            assert len(set(numbers.tolist())) == len(mine)
            if len(set(time[mine].tolist())) == len(mine):
                assert (np.diff(numbers) > 0).all()


@given(st.lists(st.integers(0, 2**63 - 1), max_size=30))
def test_a_span_is_made_of_stamps_that_were_written(times: list[int]) -> None:
    stamps = np.array(times, np.int64)
    found = span(stamps, np.ones(len(stamps), np.bool_))
    known = {time for time in times if time}
    assert (found.began in known and found.ended in known and found.began <= found.ended) or (
        not known and not found[1]
    )


def test_a_copy_of_one_file_makes_no_run() -> None:
    written = [(tensor, 100 + tensor, True) for tensor in range(9)] + [(4, 999, True)]
    assert len(begins(*columns(written))) == 0


def test_parameters_end_a_run_whatever_the_pauses() -> None:
    first = [(0, 100, True), (1, 110, True), (8, 900, False), (9, 910, False)]
    second = [(0, 920, True), (1, 930, True), (8, 940, False), (9, 950, False)]
    key, time, operator = columns(first + second)
    assert runs_at(time, begins(key, time, operator)).tolist() == [1] * 4 + [2] * 4


def test_a_graph_whose_times_are_not_known_stands_where_its_number_is() -> None:
    blocks = in_order(
        {2: (span(np.array([50]), np.array([True])),), 3: (span(np.array([7]), np.array([True])),), 1: ()}
    )
    assert [block.root for block in blocks if not block.parameters] == [3, 2]
    unknown = span(np.array([0]), np.array([True]))
    blocks = in_order({2: (unknown,), 1: (span(np.array([7]), np.array([True])),)})
    assert blocks == (RunBlock(1, 1, False), RunBlock(1, 1, True), RunBlock(2, 1, False), RunBlock(2, 1, True))


def test_a_history_is_ascending_only_when_it_names_every_step() -> None:
    assert is_ascending((0, 0, 1, 2, 7), {0, 1, 2})
    assert not is_ascending((0, 2), {0, 1, 2})
    assert not is_ascending((0, 1, 0, 1), {0, 1})


@examples(20)
@given(st.integers(1, 4))
def test_of_a_constant_only_the_newest_file_counts(tmp_path_factory: object, count: int) -> None:
    root = Path(tmp_path_factory.mktemp("constants"))  # type: ignore[attr-defined] # pytest's
    writer = DumpWriter(root, Generation.V2_0)
    writer.tensor(0, "Add", "Add-op1", np.zeros(2))
    for number in range(count):
        newest = writer.constant(0, np.full(2, number))
    table = open_source(root).tensors(0, 0)
    assert table.round.tolist() == [0, 0]
    assert table.flags.tolist() == [0, TensorFlag.CONSTANT]
    assert table.spec(1).path == str(newest)


def test_files_and_recorded_rows_of_one_writing_are_one_row(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    for number in range(3):
        for name in ("Add-op1", "Add-op2"):
            values = np.full(2, float(number))
            writer.tensor(0, "Add", name, values)
            writer.statistics(0, [("Add", name, "output", 0, values)])
    table = open_source(tmp_path).tensors(0, 0)
    assert table.round.tolist() == [1, 1, 2, 2, 3, 3]
    recorded = [table.recorded(row) for row in range(6)]
    assert [each.maximum for each in recorded if each is not None] == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
    assert (table.file_states(np.arange(6))[0] > 0).all()
