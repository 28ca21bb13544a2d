"""What a step directory holds, whatever lies in it."""

from __future__ import annotations

import os
import timeit
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.sources.writer import MLP, DumpWriter, Generation, Graph, Node, write_bare_rank, write_dump, write_step
from tui_debugger.graph.table import NodeFlag
from tui_debugger.model import Side, no_progress
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source, TensorFlag
from tui_debugger.sources.mindspore.layout import GraphDirectory
from tui_debugger.sources.mindspore.listing import KnownNames, MindSporeStepListing, Place, list_directory
from tui_debugger.stats.npy import open_array, read_meta

RELU = "Default/network-Net/act-ReLU/ReLU-op2"


def value(
    source: Source, node: str, *, step: int = 0, rank: int = 0, side: Side = Side.OUTPUT, slot: int = 0
) -> np.ndarray:
    table = source.tensors(rank, step)
    index = table.find(source.nodes(rank).find(node), side, slot)
    assert index >= 0, f"{node} has no such tensor"
    return open_array(table.spec(index))


@pytest.mark.parametrize("generation", list(Generation))
def test_every_generation_of_names_leads_to_the_nodes_of_the_graph(tmp_path: Path, generation: Generation) -> None:
    writer = DumpWriter(tmp_path, generation)
    writer.graph(MLP)
    written = write_step(writer, 0)
    source = open_source(tmp_path)
    for name, values in written.items():
        np.testing.assert_array_equal(value(source, name), values)
    for node in MLP.nodes:
        for slot, (producer, _) in enumerate(node.inputs):
            np.testing.assert_array_equal(value(source, node.name, side=Side.INPUT, slot=slot), written[producer])
    assert not np.any(source.nodes(0).flags & NodeFlag.FILE_ONLY)


def test_of_several_writings_the_newest_is_found_comparing_timestamps_as_numbers(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    for clock, values in ((104, 2.0), (99, 1.0)):
        np.save(writer.step(0) / f"Add.Add-op1.0.0.{clock}.output.0.DefaultFormat.npy", np.full(3, values))
    source = open_source(tmp_path)
    assert source.tensors(0, 0).timestamp.tolist() == [99, 104]
    assert source.tensors(0, 0).round.tolist() == [1, 2]
    assert value(source, "Add-op1")[0] == 2.0


def test_a_second_run_into_the_same_directory_stands_behind_the_first(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    writer.graph(MLP)
    write_step(writer, 0, seed=1)
    second = write_step(writer, 0, seed=2)
    source = open_source(tmp_path)
    assert source.tensors(0, 0).round.tolist() == [1] * (5 + 3 + 3) + [2] * (5 + 3 + 3)
    np.testing.assert_array_equal(value(source, RELU), second[RELU])


def test_names_of_digits_are_looked_up_in_mapping_csv(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_5)
    original = "ReLU." + "Default--" + "x" * 300 + "--ReLU-op7.0.0.5.output.0.DefaultFormat.float32.npy"
    writer.mapped(0, "1234567890", original, np.full(3, 7.0))
    with (writer.step(0) / "mapping.csv").open("a") as file:
        file.write("99999.npy,row.without.file.0.0.5.output.0.ND.npy\nnonsense\n")
    np.save(writer.step(0) / "555.npy", np.zeros(1))
    source = open_source(tmp_path)
    assert value(source, "Default/" + "x" * 300 + "/ReLU-op7")[0] == 7.0
    assert len(source.tensors(0, 0)) == 1
    assert any("1 broken lines in mapping.csv" in notice for notice in source.info.notices)
    assert any("1 files whose name makes no sense" in notice for notice in source.info.notices)


def test_bfloat16_as_float32_and_as_raw_bits(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    values = np.array([1.0, -2.5, 3e38], ml_dtypes.bfloat16)
    writer.tensor(0, "Add", "Default/Add-op0", values.astype(np.float32), dtype="bfloat16")
    writer.raw_bfloat16(0, "Mul", "Default/Mul-op0", values.astype(np.float32))
    source = open_source(tmp_path)
    table = source.tensors(0, 0)
    for name, index in (("Default_Add-op0", 0), ("Default_Mul-op0", 1)):
        assert table.spec(index).dtype == "bfloat16"
        assert read_meta(table.spec(index)).dtype == "bfloat16"
        np.testing.assert_array_equal(value(source, name).astype(np.float32), values.astype(np.float32))


def test_constants_belong_to_every_step_and_come_last(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    writer.graph(Graph(MLP.nodes, MLP.parameters, {"cst1": "Default--data-0"}))
    for step in range(2):
        write_step(writer, step)
    writer.constant(0, np.full((2, 3), 4.0))
    writer.constant(7, np.full((2, 3), 5.0))
    source = open_source(tmp_path)
    for step in range(2):
        table = source.tensors(0, step)
        assert list(table.flags[-2:]) == [TensorFlag.CONSTANT] * 2
        assert not np.any(table.flags[:-2])
        assert value(source, "cst1", step=step)[0, 0] == 4.0
        assert value(source, "data-7", step=step)[0, 0] == 5.0


def test_several_root_graphs_and_sub_graphs(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    first = Graph((Node("Default/A/Add-op1", "Add"),), id=0, root=0)
    second = Graph((Node("Default/B/Mul-op1", "Mul"),), id=1, root=1)
    child = Graph((Node("Default/B/Sub-op2", "Sub"),), id=2, root=1)
    for graph in (first, second, child):
        writer.graph(graph)
    for step, graphs in enumerate([(first,), (second, child), (first, second, child), (first,)]):
        for graph in graphs:
            write_step(writer, step, graph)
    source = open_source(tmp_path)
    nodes = source.nodes(0)
    assert list(source.steps(0)) == [0, 1, 2, 3]
    names = [sorted(nodes.names[row] for row in source.tensors(0, step).node) for step in range(4)]
    a, b, c = "Default/A/Add-op1", "Default/B/Mul-op1", "Default/B/Sub-op2"
    assert names == [[a], [b, c], [a, b, c], [a]]
    assert [nodes.graph_of(nodes.find(name)).root_id for name in (a, b, c)] == [0, 1, 1]
    assert source.previous_run(0, 0, 3) == (2, 0)
    assert source.previous_run(0, 1, 3) == (2, 0)
    assert source.previous_run(0, 0, 2) == (0, 0)
    assert source.previous_run(0, 1, 2) == (1, 0)
    assert source.previous_run(0, 1, 1) is None
    assert [(run.step, run.root_graph) for run in source.history(0)] == [(0, 0), (1, 1), (2, 0), (2, 1), (3, 0)]


def test_ranks_are_separate_and_need_not_start_at_zero(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, ranks=(3, 12))
    source = open_source(tmp_path)
    assert source.ranks() == [3, 12]
    assert not np.array_equal(value(source, RELU, rank=3), value(source, RELU, rank=12))
    assert writer.net == source.info.title


def test_without_a_graph_nodes_come_from_file_names(tmp_path: Path) -> None:
    for generation, name, path in [
        (Generation.V2_0, "ReLU-op2", "ReLU/ReLU-op2"),
        (Generation.V2_3, RELU, RELU),
        (Generation.V2_5, RELU, RELU),
        (Generation.V2_10, RELU.replace("/", "_"), "ReLU/" + RELU.replace("/", "_")),
    ]:
        root = tmp_path / generation.value
        write_step(DumpWriter(root, generation), 0)
        source = open_source(root)
        nodes = source.nodes(0)
        row = nodes.find(name)
        assert nodes.paths[row] == path
        assert nodes.op_type(row) == "ReLU"
        assert nodes.flags[row] & NodeFlag.FILE_ONLY
        assert any("no graph" in notice for notice in source.info.notices)
        assert any("no run history" in notice for notice in source.info.notices)
        assert any("no .dump_metadata" in notice for notice in source.info.notices)


def test_without_a_graph_the_order_is_that_of_the_timestamps(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    write_step(writer, 0)
    source = open_source(tmp_path)
    names = [source.nodes(0).names[row] for row in source.tensors(0, 0).node]
    assert list(dict.fromkeys(names)) == [
        "MatMul-op1",
        "ReLU-op2",
        "ApplyMomentum-op3",
        "x",
        "fc1.weight",
        "accum.fc1.weight",
    ]


def test_the_version_is_guessed_from_names(tmp_path: Path) -> None:
    write_step(DumpWriter(tmp_path, Generation.V2_10), 0)
    source = open_source(tmp_path)
    source.tensors(0, 0)
    assert source.info.layout == "MindSpore 2.7 or newer dump"
    assert source.info.framework_version == ""


def test_files_of_later_steps_that_no_node_knows_are_appended(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    writer.tensor(1, "Print", "Default/Print-op0", np.zeros(3))
    source = open_source(tmp_path)
    before = source.nodes(0)
    first = source.tensors(0, 0)
    second = source.tensors(0, 1)
    after = source.nodes(0)
    assert list(after.names[: len(before)]) == list(before.names)
    assert after.names[len(before) :] == ["Default_Print-op0"]
    assert len(second) == len(first) + 1
    assert source.refresh().new_nodes
    assert not source.refresh()


def test_a_rank_without_a_graph_borrows_that_of_another_rank(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, ranks=(0,))
    written = write_step(writer, 0, rank=1)
    source = open_source(tmp_path)
    np.testing.assert_array_equal(value(source, RELU, rank=1), written[RELU])
    assert any("rank_1 has no graph: that of rank_0 is used" in notice for notice in source.info.notices)


def test_a_rank_without_metadata_and_history_but_with_its_own_graph(tmp_path: Path) -> None:
    write_bare_rank(tmp_path)
    source = open_source(tmp_path)
    assert source.ranks() == [0, 1]
    assert list(source.steps(1)) == [0, 2]
    assert source.previous_run(1, 0, 2) == (0, 0)
    assert [run.step for run in source.history(0)] == [0, 1, 2]
    assert not any("borrow" in notice or "is used" in notice for notice in source.info.notices)
    assert not np.any(source.nodes(1).flags & NodeFlag.FILE_ONLY)


def test_directories_and_foreign_files_are_ignored_with_a_count(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0,))
    before = len(open_source(tmp_path).tensors(0, 0))
    step = writer.step(0)
    (step / "Add.Add-op1.0.0.5.output.0.DefaultFormat.Float32.npy").mkdir()
    (step / "notes.txt").touch()
    (step / "broken.npy").touch()
    source = open_source(tmp_path)
    assert len(source.tensors(0, 0)) == before
    text = "\n".join(source.info.notices)
    for part in (
        "1 directories where files should be",
        "1 other files",
        "1 files whose name makes no sense",
    ):
        assert part in text


def test_strange_names_are_nodes_like_others(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    step = writer.step(0)
    names = [b"Add.[red]\x1b[31m-op1", b"Add.caf\xe9-op2", b"Add.." + b"x" * 180, "Add.ж-op3".encode()]
    for number, name in enumerate(names):
        path = bytes(step) + b"/" + name + b".0.0.%d.output.0.DefaultFormat.npy" % number
        with open(path, "wb") as file:  # noqa: PTH123 - a path of bytes
            np.save(file, np.full(2, number))
    source = open_source(tmp_path)
    table = source.tensors(0, 0)
    assert sorted(int(open_array(table.spec(i))[0]) for i in range(len(table))) == [0, 1, 2, 3]


def test_real_dumps_hold_every_file(dumps: Callable[[str], Path]) -> None:
    for name in ("mindspore-2.0-mlp", "mindspore-2.10-nan"):
        root = dumps(name)
        source = open_source(root)
        for step in source.steps(0):
            listed = {source.tensors(0, step).spec(i).path for i in range(len(source.tensors(0, step)))}
            on_disk = {str(path) for path in root.glob(f"rank_0/*/0/{step}/*.npy")}
            constants = {str(path) for path in root.glob("rank_0/*/0/constants/*.npy")}
            assert listed == on_disk | constants


def listed(place: Place) -> MindSporeStepListing:
    known_names = KnownNames()
    return MindSporeStepListing(known_names, [list_directory(known_names, place, no_progress)])


def test_no_object_per_file_is_kept(tmp_path: Path) -> None:
    """A hundred nodes with fifty files each: what stays is columns and the ends of names."""
    step = DumpWriter(tmp_path).step(0)
    for number in range(5000):
        name = f"Add.Default_network-Net_{'block_' * 15}Add-op{number % 100}"
        (step / f"{name}.0.0.{10**15 + number}.output.{number // 100}.DefaultFormat.Float32.npy").touch()
    place = (GraphDirectory("Net", 0, step.parent, {0: step}), step, False)
    listed(place)
    tracemalloc.start()
    listing = listed(place)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(listing) == 5000
    assert kept / len(listing) < 40


def test_listing_costs_little_more_than_reading_the_directory(tmp_path: Path) -> None:
    step = DumpWriter(tmp_path).step(0)
    for number in range(20_000):
        (step / f"Add.Default_Add-op{number}.0.0.{10**15 + number}.output.0.DefaultFormat.Float32.npy").touch()
    place = (GraphDirectory("Net", 0, step.parent, {0: step}), step, False)

    def seconds(work: Callable[[], object]) -> float:
        return min(timeit.repeat(work, number=1, repeat=3))

    def scan() -> int:
        with os.scandir(step) as entries:
            return sum(1 for _ in entries)

    assert seconds(lambda: listed(place)) < 20 * seconds(scan)
