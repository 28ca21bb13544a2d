"""In which order runs ran: by time stamps, and where these make no sense."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from tests.sources.writer import MLP, START, DumpWriter, Graph, Node, write_dump, write_run, write_step
from tui_debugger.model import Side, turns
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source
from tui_debugger.sources.mindspore import steps
from tui_debugger.sources.mindspore.run_order import Span, run_order

DAY = 24 * 3600 * 10**6
CRITIC = Graph((Node("Default/critic/Mul-op1", "Mul"), Node("Default/critic/Add-op2", "Add")), id=1, root=1)

TRAIN_AND_EVAL = "0:0 0:1 1:2 1:1 0:2 0:3 1:4 1:3 0:4 0:5 1:6 1:5"
RUN_ORDERS = {
    "mindspore-2.0-multi-eval": "0:0 0:1 1:2 1:3 0:4 0:5 1:6 1:7 0:8 0:9 1:10 1:11",
    "mindspore-2.0-multi-gan": "0:0 0:1 1:2 0:3 1:4 0:5 1:6 0:7 1:8",
    "mindspore-2.10-multi-eval": TRAIN_AND_EVAL,
    "mindspore-2.10-multi-gan": "0:0 0:1#1 1:2 0:1#2 1:3 0:2 1:4 0:3 1:5",
    "mindspore-2.10-multi-order": TRAIN_AND_EVAL,
}
"""GRAPH:STEP, and #ROUND where a step has several runs: by the files' time stamps and the programs' own logs."""


def runs(source: Source, rank: int = 0) -> str:
    return " ".join(
        f"{run.root_graph}:{run.step}{f'#{run.round}' if run.round else ''}{'' if run.has_data else '-'}"
        for run in source.history(rank)
    )


def looped(step: int) -> str:
    """The graphs of one step of the dumps with control flow: the loop runs once, twice, three times ..."""
    rounds = 1 + step % 3
    loop = [f"3#{at} {f'7#{at}' if rounds > 1 else '7'}" for at in range(1, rounds + 1)]
    backward = [f"10#{at}" for at in range(1, rounds + 1)] if rounds > 1 else ["10"]
    odd = step % 2
    branch = "18 19" if odd else "16"
    middle = [f"3#{rounds + 1} 11 {branch} 13 1 14", "20" if odd else "17", "15"]
    return " ".join(["0", *loop, *middle, *backward, "2"])


@pytest.mark.parametrize("name", RUN_ORDERS)
def test_runs_of_real_dumps_come_in_the_order_in_which_they_ran(dumps: Callable[[str], Path], name: str) -> None:
    source = open_source(dumps(name))
    expected = RUN_ORDERS[name]
    assert runs(source) == expected
    for step in source.steps(0):
        source.tensors(0, step)
    assert runs(source) == expected
    history = source.history(0)
    assert [run.turn for run in history] == turns([run.step for run in history])
    began = [run.began for run in history]
    assert began == sorted(began)
    assert began[0] > START // 2
    for graph in (0, 1):
        mine = [run for run in history if run.root_graph == graph]
        before = [source.previous_run(0, graph, run.step, run.round) for run in mine]
        assert before == [None, *((run.step, run.round) for run in mine[:-1])]
    assert [info.is_root for info in source.nodes(0).graphs] == [True, True]
    assert not source.info.notices


@pytest.mark.parametrize("name", ["mindspore-2.0-multi-flow", "mindspore-2.10-multi-flow"])
def test_graphs_of_control_flow_come_as_they_ran_and_loops_are_rounds(dumps: Callable[[str], Path], name: str) -> None:
    source = open_source(dumps(name))
    nodes = source.nodes(0)
    assert [info.root_id for info in nodes.graphs if info.is_root] == [0]
    assert list(source.steps(0)) == [0, 1, 2, 3, 4, 5]
    for step in range(6):
        ran = " ".join(
            f"{run.root_graph}{f'#{run.round}' if run.round else ''}" for run in source.history(0) if run.step == step
        )
        assert ran == looped(step)
        table = source.tensors(0, step)
        blocks = [
            f"{nodes.graph_of(node).root_id}{f'#{number}' if number else ''}"
            for node, number in zip(table.node.tolist(), table.round.tolist(), strict=True)
            if nodes.op_type(node) not in ("Parameter", "Constant")
        ]
        assert " ".join(block for block, _ in groupby(blocks)) == looped(step)
    assert [source.previous_run(0, 18, step) for step in (1, 3, 5)] == [None, (1, 0), (3, 0)]
    assert source.previous_run(0, 7, 1, 2) == (1, 1)
    assert source.previous_run(0, 7, 1, 1) == (0, 0)
    assert source.previous_run(0, 7, 2, 1) == (1, 2)
    order = [graph for graph, _ in groupby(nodes.graph_of(int(row)).root_id for row in np.argsort(nodes.order))]
    assert order[:15] == [0, 3, 7, 11, 18, 19, 16, 13, 1, 14, 20, 17, 15, 10, 2]
    assert not source.info.notices


def test_every_writing_of_a_directory_with_two_runs_is_a_row(dumps: Callable[[str], Path]) -> None:
    root = dumps("mindspore-2.10-multi-gan")
    source = open_source(root)
    table = source.tensors(0, 1)
    on_disk = {str(path) for path in root.glob("rank_0/*/0/1/*.npy")}
    assert {table.spec(row).path for row in range(len(table))} == on_disk
    assert table.round.tolist() == [1] * 313 + [2] * 313
    first, second = (table.timestamp[table.round == number] for number in (1, 2))
    assert first.max() < source.tensors(0, 2).timestamp.min() < second.min()
    for row in range(313):
        node, side, slot = int(table.node[row]), Side(int(table.side[row])), int(table.slot[row])
        assert table.find(node, side, slot, 1) == row
        assert table.find(node, side, slot) == table.find(node, side, slot, 2) > 312


def test_runs_are_numbered_by_time_and_the_table_follows(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    writer.graph(MLP)
    writer.graph(CRITIC)
    for at, step, graph in ((0, 0, MLP), (1, 1, CRITIC), (2, 0, MLP), (3, 1, MLP), (4, 0, CRITIC)):
        write_run(writer, step, graph, at=at * 100_000)
    source = open_source(tmp_path)
    assert runs(source) == "0:0#1 1:1 0:0#2 0:1 1:0"
    assert list(source.steps(0)) == [0, 1]
    assert source.previous_run(0, 0, 0) == source.previous_run(0, 0, 0, 2) == (0, 1)
    assert source.previous_run(0, 0, 1) == (0, 2)
    assert source.previous_run(0, 1, 0) == (1, 0)
    assert source.previous_run(0, 1, 1) is None
    table, nodes = source.tensors(0, 0), source.nodes(0)
    graphs = [nodes.graph_of(int(node)).root_id for node in table.node]
    assert list(zip(graphs, table.round.tolist(), strict=True)) == [(0, 1)] * 11 + [(0, 2)] * 11 + [(1, 0)] * 2


def test_a_step_that_is_not_dumped_follows_the_newest_run_of_a_smaller_number(dumps: Callable[[str], Path]) -> None:
    source = open_source(dumps("mindspore-2.10-multi-order"))
    assert source.previous_run(0, 1, 100) == (5, 0)
    assert source.previous_run(0, 0, 3) == (2, 0)
    assert source.previous_run(0, 1, 0) is None
    assert source.previous_run(0, 7, 3) is None


def test_two_trainings_in_one_directory_have_nothing_to_do_with_each_other(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    for step in (0, 1):
        write_step(writer, step, seed=1)
    writer.history((0, 1))
    source = open_source(tmp_path)
    assert runs(source) == "0:0#1 0:1#1 0:0#2 0:1#2"
    assert [source.previous_run(0, 0, *run) for run in ((0, 1), (1, 1), (0, 2), (1, 2))] == [None, (0, 1), None, (0, 2)]
    (notice,) = source.info.notices
    assert notice.startswith("rank_0: the directory holds 2 trainings one after the other; dump each into a directory")
    assert source.tensors(0, 1).round.max() == 2


def test_a_second_training_that_went_further_is_one_too(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    for step in (0, 1, 2):
        write_step(writer, step, seed=1)
    writer.history((0, 1, 2))
    source = open_source(tmp_path)
    assert runs(source) == "0:0#1 0:1#1 0:0#2 0:1#2 0:2"
    assert source.previous_run(0, 0, 0) is None
    assert source.previous_run(0, 0, 2) == (1, 2)


def test_a_graph_that_ran_twice_at_one_step_is_no_second_training(dumps: Callable[[str], Path]) -> None:
    source = open_source(dumps("mindspore-2.10-multi-gan"))
    assert not any("trainings" in notice for notice in source.info.notices)


def test_clocks_that_step_back_do_not_turn_an_ascending_history_around(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    writer.graph(MLP)
    for step in range(8):
        write_run(writer, step, at=step * 10_000 - (35_000 if step > 4 else 0))
    source = open_source(tmp_path)
    assert [run.step for run in source.history(0)] != list(range(8))  # nothing but time stamps to go by
    writer.history(range(8))
    source.refresh()
    assert [run.step for run in source.history(0)] == list(range(8))
    assert [source.previous_run(0, 0, step) for step in range(1, 8)] == [(step, 0) for step in range(7)]
    for step in source.steps(0):
        source.tensors(0, step)
    assert [run.step for run in source.history(0)] == list(range(8))


@pytest.mark.parametrize("stamp", ["0", "5", str(2**63 - 1), str(START + 10 * 365 * DAY)])
def test_a_file_with_an_odd_stamp_does_not_move_its_run(tmp_path: Path, stamp: str) -> None:
    writer = DumpWriter(tmp_path)
    writer.graph(MLP)
    writer.graph(CRITIC)
    for at, (step, graph) in enumerate([(0, MLP), (1, CRITIC), (1, MLP), (2, CRITIC), (2, MLP)]):
        write_run(writer, step, graph, at=at * 100_000)
    path = next(writer.step(1).glob("ReLU*output*"))
    copied = path.with_name(path.name.replace(path.name.split(".")[4], stamp))
    shutil.copy(path, copied)
    source = open_source(tmp_path)
    assert runs(source) == "0:0 1:1 0:1 1:2 0:2"
    table = source.tensors(0, 1)
    assert table.round.tolist().count(0) == len(table) - 2
    assert runs(source) == "0:0 1:1 0:1 1:2 0:2"
    path.unlink()
    source = open_source(tmp_path)
    assert runs(source) == "0:0 1:1 0:1 1:2 0:2"


def test_without_usable_time_stamps_steps_come_by_number(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    for step in (2, 0, 1):
        for graph in (MLP, CRITIC):
            write_step(writer, step, graph)
            for path in writer.step(step, graph=graph.id).glob("*.npy"):
                path.rename(path.with_name(path.name.replace(path.name.split(".")[4], "0")))
    source = open_source(tmp_path)
    assert runs(source) == "0:0 1:0 0:1 1:1 0:2 1:2"
    assert [run.began for run in source.history(0)] == [0] * 6
    assert all(len(source.tensors(0, step)) for step in range(3))


def test_a_big_directory_is_read_to_its_end_only_where_it_may_hold_several_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    read_times = steps.read_times

    def noting(path: Path, *, whole: bool = False, statistics: steps.StatisticFiles | None = None) -> object:
        read.extend([path.name] if whole else [])
        return read_times(path, whole=whole, statistics=statistics)

    monkeypatch.setattr(steps, "read_times", noting)
    writer = DumpWriter(tmp_path)
    nodes = [Node(f"Default/net/Add-op{number}", "Add") for number in range(60)]
    for step, at in ((0, 0), (1, 1), (2, 2)):
        write_run(writer, step, Graph(nodes), at=at * 1_000_000)
    source = open_source(tmp_path)
    assert runs(source) == "0:0 0:1 0:2"
    assert read == []
    write_run(writer, 1, Graph(nodes), at=3_000_000)
    writer.history((0, 1, 2, 1))
    source.refresh()
    assert runs(source) == "0:0 0:1#1 0:2 0:1#2"


def test_runs_that_were_not_dumped_stand_where_their_numbers_belong(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    for at, (step, graph) in enumerate([(0, MLP), (5, MLP), (6, CRITIC)]):
        write_run(writer, step, graph, at=at * 100_000)
    writer.history((0, 1, 4, 5, 8))
    writer.history((2, 3, 6, 7), graph=1)
    source = open_source(tmp_path)
    assert runs(source) == "0:0 0:1- 1:2- 1:3- 0:4- 0:5 1:6 1:7- 0:8-"


def spans(times: Sequence[tuple[int, int]]) -> dict[int, tuple[Span, ...]]:
    return {step: (Span(time, time),) for step, time in times}


def test_the_longest_ascending_series_of_times_is_believed() -> None:
    dumped = {0: spans([(0, 10), (1, 20), (2, 900), (3, 30), (4, 40)]), 1: spans([(0, 15), (1, 35)])}
    order = run_order(dumped, {0: (0, 1, 2, 3, 4)})
    assert [(run.root, run.step) for run in order.runs] == [(0, 0), (1, 0), (0, 1), (0, 2), (0, 3), (1, 1), (0, 4)]


def test_a_long_history_is_put_in_order_quickly() -> None:
    dumped = {0: spans([(step, 100 + step) for step in range(0, 200_000, 50)])}
    order = run_order(dumped, {0: tuple(range(200_000))})
    assert [run.step for run in order.runs] == list(range(200_000))
    assert order.previous(0, 100, 0) == (50, 0)
    assert order.previous(0, 101, 0) == (100, 0)
