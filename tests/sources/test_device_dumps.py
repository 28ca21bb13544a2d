"""Dumps that Ascend servers write asynchronously: files of several tensors, and records of overflows."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.ascend_files import (
    DeviceDump,
    Overflow,
    Written,
    damaged,
    file_bytes,
    overflow_bytes,
    overflow_json,
    task_of,
    to_device,
    with_header,
    write,
    write_device_dump,
)
from tests.sources.conformance import SourceConformance, asked
from tests.sources.writer import MLP, Generation, Graph, Node, age, write_dump
from tui_debugger.cache.store import DiskCache
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import Side
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source, TensorFlag, TensorTable, Writer
from tui_debugger.stats.measure import read_all
from tui_debugger.stats.npy import open_array
from tui_debugger.stats.records import ReadRequests, RecordState, RequiredStats

MATMUL, RELU, MOMENTUM = (node.name for node in MLP.nodes)


def values_at(source: Source, step: int, node: str, side: Side, slot: int) -> npt.NDArray[Any]:
    table, nodes = source.tensors(0, step), source.nodes(0)
    index = table.find(nodes.find(node), side, slot)
    assert index >= 0
    return open_array(table.spec(index))


def overflowed(source: Source, step: int, rank: int = 0) -> set[str]:
    table = source.tensors(rank, step)
    names = source.nodes(rank).names
    return {names[row] for row in table.node[(table.flags & int(TensorFlag.OVERFLOWED)) != 0].tolist()}


class TestConformance(SourceConformance):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        dump = write_device_dump(tmp_path, steps=(0, 2, 7), ranks=(0, 1))
        dump.overflow(2, overflow_bytes({"AI Core": Overflow(task_of(RELU), 2, 1)}))
        return open_source(tmp_path)


def write_tree(root: Path, *, steps: tuple[int, ...] = (3, 5), devices: tuple[int, ...] = (0, 1)) -> Path:
    """What graph mode O2 writes: ``STEP/TIME/DEVICE/MODEL/ID/ITERATION``; returns a leaf."""
    clock = 1_700_000_000_000_000
    leaf = root
    for step in steps:
        for device in devices:
            leaf = root / str(step) / "20240102030405" / str(device) / "ge_default" / "1" / "0"
            for task, node in enumerate(MLP.nodes, 10):
                clock += 100
                values = [Written(np.full((2, 3), step + device, np.float16), format="FRACTAL_NZ")]
                name = f"{node.type}.{node.name.replace('/', '_')}.{task}.2.{clock}"
                write(leaf / name, file_bytes(values * len(node.inputs), values))
        (leaf.parents[2] / "acl_dump_0.json").touch()
    return leaf


class TestTreeConformance(SourceConformance):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        leaf = write_tree(tmp_path / "dump")
        record = overflow_json({"AI Core": Overflow(task_of(RELU), 2, 1)})
        write(leaf / "Opdebug.Node_OpDebug.1.1.5.output.0.json", record.encode())
        return open_source(tmp_path / "dump")


class TestTree:
    """Graph mode O2: steps and devices in the place of ranks."""

    def test_devices_are_ranks_and_models_are_graphs(self, tmp_path: Path) -> None:
        write_tree(tmp_path / "dump")
        with closing(open_source(tmp_path / "dump")) as source:
            assert source.info.layout == "Ascend GE/ACL dump"
            assert (list(source.ranks()), list(source.steps(1))) == ([0, 1], [3, 5])
            table = source.tensors(1, 5)
            assert len(table) == sum(1 + len(node.inputs) for node in MLP.nodes)
            assert open_array(table.spec(0)).tolist() == [[6, 6, 6], [6, 6, 6]]
            assert not source.unreadable()

    @pytest.mark.parametrize(
        ("inside", "rank", "step"), [("..", None, None), ("", None, None), ("5", None, 5), ("5/20240102030405/1", 1, 5)]
    )
    def test_any_place_around_leads_to_it(
        self, tmp_path: Path, inside: str, rank: int | None, step: int | None
    ) -> None:
        write_tree(tmp_path / "dump")
        with closing(open_source(tmp_path / "dump" / inside)) as source:
            assert source.info.path == str(tmp_path / "dump")
            steps = list(source.steps(0)) if step is None else [step]
            assert asked(source) == dict.fromkeys([rank] if rank is not None else source.ranks(), steps)

    def test_records_of_overflows_lie_beside_the_tensors(self, tmp_path: Path) -> None:
        leaf = write_tree(tmp_path / "dump", devices=(0,))
        name = "Opdebug.Node_OpDebug.1.1.5.output.0.json"
        write(leaf / name, overflow_json({"AI Core": Overflow(task_of(RELU), 2, 1)}).encode())
        with closing(open_source(tmp_path / "dump")) as source:
            assert overflowed(source, 5) == {RELU.replace("/", "_")}
            assert overflowed(source, 3) == set()

    def test_a_second_iteration_of_a_step_is_said_to_be_left_out(self, tmp_path: Path) -> None:
        leaf = write_tree(tmp_path / "dump", steps=(3,), devices=(0,))
        write(leaf.with_name("1") / next(leaf.iterdir()).name, file_bytes())
        with closing(open_source(tmp_path / "dump")) as source:
            source.tensors(0, 3)
            (part,) = source.unreadable()
            assert part.why.startswith("the same step of the same model as ")
            assert part.where.endswith("/1/1")

    def test_it_grows(self, tmp_path: Path) -> None:
        write_tree(tmp_path / "dump", steps=(3,), devices=(0,))
        with closing(open_source(tmp_path / "dump")) as source:
            assert list(source.steps(0)) == [3]
            write_tree(tmp_path / "dump", steps=(4,), devices=(0, 7))
            changes = source.refresh()
            assert (changes.new_steps, changes.new_ranks) == (((0, 4),), (7,))


class TestTensors:
    def test_one_file_is_several_tensors(self, tmp_path: Path) -> None:
        dump = DeviceDump(tmp_path)
        dump.metadata()
        dump.writer.graph(MLP)
        written = [dump.step(step) for step in range(3)]
        with closing(open_source(tmp_path)) as source:
            assert list(source.steps(0)) == [0, 1, 2]
            for step, values in enumerate(written):
                for node in MLP.nodes:
                    assert (values_at(source, step, node.name, Side.OUTPUT, 0) == values[node.name]).all()
                    for slot, (producer, _) in enumerate(node.inputs):
                        assert (values_at(source, step, node.name, Side.INPUT, slot) == values[producer]).all()
            table = source.tensors(0, 0)
            assert len(table) == sum(1 + len(node.inputs) for node in MLP.nodes)
            assert (np.diff(table.order) > 0).all()
            at = table.find(source.nodes(0).find(RELU), Side.OUTPUT, 0)
            by = source.written_by(table.spec(at))
            assert by == Writer("ReLU", RELU.replace("/", "_"), task_of(RELU), 2, int(table.timestamp[at]))

    def test_specs_and_states_in_columns_say_the_same_as_one_by_one(self, tmp_path: Path) -> None:
        dump = write_device_dump(tmp_path, steps=(0,))
        write(dump.writer.step(0) / "MatMul.Default_other.0.0.1.output.0.FRACTAL_NZ.float16.npy", b"")
        with closing(open_source(tmp_path)) as source:
            table = source.tensors(0, 0)
            rows = np.arange(len(table))
            specs = table.specs(rows)
            for row in rows.tolist():
                spec = table.spec(row)
                kind = specs.kinds[specs.kind[row]]
                assert (specs.paths[row].decode(), kind.format, kind.member) == (spec.path, spec.format, spec.member)
                assert int(table.file_states(rows)[0][row]) == Path(spec.path).stat().st_size
            formats = {(kind.format, kind.member, kind.dtype) for kind in specs.kinds}
            assert ("ascend", "FRACTAL_NZ", "float16") in formats
            assert ("ascend", "output.0", "") in formats

    def test_an_operator_that_ran_twice_in_a_step(self, tmp_path: Path) -> None:
        dump = write_device_dump(tmp_path, steps=(0,))
        again = dump.step(0)
        with closing(open_source(tmp_path)) as source:
            table = source.tensors(0, 0)
            assert set(table.round.tolist()) == {1, 2}
            assert (values_at(source, 0, RELU, Side.OUTPUT, 0) == again[RELU]).all()

    def test_what_another_tool_converted_beside_is_read_in_place_of_the_file(self, tmp_path: Path) -> None:
        dump = DeviceDump(tmp_path)
        node = MLP.nodes[1]
        path = dump.operator(0, node, [Written(np.zeros(3, np.float32))], [Written(np.ones(3, np.float32))], task=5)
        np.save(path.with_name(path.name + ".output.0.ND.npy"), np.full(3, 7, np.float32))
        with closing(open_source(tmp_path)) as source:
            table = source.tensors(0, 0)
            assert [(int(side), int(slot)) for side, slot in zip(table.side, table.slot, strict=True)] == [
                (0, 0),
                (1, 0),
            ]
            assert open_array(table.spec(0)).tolist() == [0, 0, 0]
            assert open_array(table.spec(1)).tolist() == [7, 7, 7]

    def test_it_is_listed_from_memory_the_next_time(self, tmp_path: Path) -> None:
        graph = Graph([Node(f"Default/n-N/Abs-op{number}", "Abs") for number in range(120)])
        dump = DeviceDump(tmp_path / "dump")
        dump.writer.graph(graph)
        for task, node in enumerate(graph.nodes):
            each = np.full(2, task, np.float32)
            dump.operator(0, node, [Written(each)], [Written(each), Written(each + 0.5)], task=task)
        for number in range(100):  # directories are worth remembering from 200 entries on
            write(dump.writer.step(0) / f"other{number}", b"")
        age(tmp_path)
        found = []
        for _ in range(2):
            with (
                closing(DiskCache(tmp_path / "cache")) as store,
                closing(open_source(tmp_path / "dump", store)) as source,
            ):
                table = source.tensors(0, 0)
                found.append((table.digest, [open_array(table.spec(row)).tolist() for row in range(len(table))]))
        assert found[0] == found[1]
        assert len(found[0][1]) == 360

    def test_names_of_synchronous_and_asynchronous_files_stand_in_one_step(self, tmp_path: Path) -> None:
        writer = write_dump(tmp_path, Generation.V2_10, steps=(0,))
        device = DeviceDump(tmp_path)
        device.writer.clock = writer.clock
        node = Node("Default/other-Other/Add-op9", "Add")
        device.operator(0, node, [], [Written(np.ones(3, np.float32))], task=3)
        with closing(open_source(tmp_path)) as source:
            table = source.tensors(0, 0)
            assert {kind.format for kind in table.specs(np.arange(len(table))).kinds} == {"npy", "ascend"}


class TestNotices:
    def test_tensors_that_stay_as_the_device_held_them(self, tmp_path: Path) -> None:
        dump = write_device_dump(tmp_path, steps=(0,))
        odd = with_header(Written(np.zeros((2, 5, 3, 3), np.float32), format="NC1HWC0"), original_shape=None)
        dump.operator(0, Node("Default/x/Conv2D-op9", "Conv2D"), [odd], [odd], task=99)
        with closing(open_source(tmp_path)) as source:
            source.tensors(0, 0)
            (notice,) = (each for each in source.info.notices if "as the device held" in each)
            assert notice.startswith("rank_0: 2 tensors that stay as the device held them")
            assert not notice.endswith("ignored")

    def test_files_that_the_recorder_left_unconverted(self, tmp_path: Path) -> None:
        writer = write_dump(tmp_path, Generation.V2_0, steps=(0,))
        values = np.arange(32 * 48, dtype=np.float32).reshape(32, 48)
        path = writer.step(0) / f"MatMul.MatMul-op77.3.2.{writer.clock + 1}.output.0.FRACTAL_NZ.npy"
        np.save(path, to_device(values, "FRACTAL_NZ", 16).reshape(32, 48))
        with closing(open_source(tmp_path)) as source:
            assert (values_at(source, 0, "MatMul-op77", Side.OUTPUT, 0) == values).all()
            assert any(each.startswith("rank_0: 1 files that the recorder left") for each in source.info.notices)


class TestDamaged:
    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"123",
            b"\xff" * 50,
            b"\0" * 8,
            b"\0" * 9000,
            b"\0" * 8 + b"\x0a\x032.0" + b"\x7f" * 64,
            b"\x05" + b"\0" * 7 + b"\x0a\x032.0" + b"\x7f" * 64,
        ],
        ids=["empty", "short", "ones", "8 zeros", "zeros", "length 0", "no tensor, but bytes"],
    )
    def test_a_file_without_a_header_is_one_unreadable_tensor(self, tmp_path: Path, content: bytes) -> None:
        dump = write_device_dump(tmp_path, steps=(0,))
        name = dump.file_name("Foo", "Default/Foo-op77", 99)
        write(dump.writer.step(0) / name, content)
        with closing(open_source(tmp_path)) as source:
            row = source.tensors(0, 0).find(source.nodes(0).find("Default_Foo-op77"), Side.OUTPUT, 0)
            with pytest.raises(UnreadableTensorError):
                open_array(source.tensors(0, 0).spec(row))
            write(dump.writer.step(0) / name, file_bytes(outputs=[Written(np.ones(3, np.float32))] * 2))
            assert source.refresh().grown_steps == ((0, 0),)
            assert values_at(source, 0, "Default_Foo-op77", Side.OUTPUT, 1).tolist() == [1, 1, 1]

    def test_an_operator_without_tensors_is_no_doubt(self, tmp_path: Path) -> None:
        dump = write_device_dump(tmp_path, steps=(0,))
        write(dump.writer.step(0) / dump.file_name("Foo", "Default/Foo-op77", 99), b"\x05" + b"\0" * 7 + b"\x0a\x032.0")
        with closing(open_source(tmp_path)) as source:
            assert source.tensors(0, 0).find(source.nodes(0).find("Default_Foo-op77"), Side.OUTPUT, 0) == -1
            assert any("without any tensor" in each for each in source.info.notices)
            assert not source.unreadable()

    def test_damaged_files_never_keep_a_step_from_being_listed(self, tmp_path: Path) -> None:
        dump = write_device_dump(tmp_path, steps=(0,))
        rng = np.random.default_rng(1)
        good = file_bytes([Written(np.ones((2, 3), np.float16))], [Written(np.ones((2, 3), np.float16))])
        record = overflow_bytes({"AI Core": Overflow(3, 2, 1)})
        for number in range(150):
            name = dump.file_name("Abs", f"Default/Abs-op{number + 100}", number + 100)
            write(dump.writer.step(0) / name, damaged(good, rng))
            write(dump.writer.step(0) / dump.file_name("Opdebug", "Node_OpDebug", number, 1), damaged(record, rng))
        with closing(open_source(tmp_path)) as source:
            table: TensorTable = source.tensors(0, 0)
            alone = np.full(len(table), -1, np.int32)
            need = np.zeros(len(table), np.int16)
            records = read_all(ReadRequests(table.specs(np.arange(len(table))), alone, (RequiredStats(),), need))
            states = {int(state) for state in records.rows["state"]}
            assert states <= {RecordState.MEASURED, RecordState.UNREADABLE, RecordState.NO_NUMBERS}
            assert all(records.errors.values())
            assert all(part.why for part in source.unreadable())


class TestOverflows:
    RECORD = Overflow(task_of(RELU), 2, status=0x20, model=1, kernel_code=7, block=3)

    @pytest.mark.parametrize("beside", [False, True])
    @pytest.mark.parametrize("form", [overflow_bytes, overflow_json])
    def test_the_operator_with_that_task_and_stream_is_marked(self, tmp_path: Path, form: Any, beside: bool) -> None:
        dump = write_device_dump(tmp_path)
        dump.overflow(1, form({"AI Core": self.RECORD}), beside=beside)
        with closing(open_source(tmp_path)) as source:
            assert [overflowed(source, step) for step in range(3)] == [set(), {RELU}, set()]
            table = source.tensors(0, 1)
            row = table.find(source.nodes(0).find(RELU), Side.OUTPUT, 0)
            (record,) = table.overflows(row)
            assert (record.unit, record.task, record.stream, record.status) == ("AI Core", task_of(RELU), 2, (0x20,))
            assert record.meaning == "floating-point arithmetic"
            assert (record.model, record.kernel, record.block) == (1, 7, 3)
            assert (record.pc_start, record.para_base) == (0x1000, 0x2000)
            assert str(record) == f"AI Core status 0x20 (task {task_of(RELU)}, stream 2, block 3)"
            other = table.find(source.nodes(0).find(MATMUL), Side.OUTPUT, 0)
            assert not table.overflows(other)
            assert not source.unreadable()

    def test_of_several_blocks_those_with_a_status_count(self, tmp_path: Path) -> None:
        dump = write_device_dump(tmp_path, steps=(0,))
        blocks = {"L2 Atomic Add": Overflow(task_of(MATMUL), 2, 4), "AI Core": Overflow(task_of(RELU), 2, 0)}
        dump.overflow(0, overflow_bytes(blocks))
        with closing(open_source(tmp_path)) as source:
            assert overflowed(source, 0) == {MATMUL}

    @pytest.mark.parametrize("form", [overflow_bytes, overflow_json])
    def test_without_any_status_nobody_overflowed_and_it_is_said(self, tmp_path: Path, form: Any) -> None:
        dump = write_device_dump(tmp_path, steps=(0,))
        dump.overflow(0, form({"AI Core": Overflow(task_of(RELU), 2, 0)}))
        with closing(open_source(tmp_path)) as source:
            assert overflowed(source, 0) == set()
            (part,) = source.unreadable()
            assert part.why.endswith("it tells of no overflow: no status is set")

    def test_an_operator_that_was_not_dumped_is_said_to_be_missing(self, tmp_path: Path) -> None:
        dump = write_device_dump(tmp_path, steps=(0,))
        path = dump.overflow(0, overflow_bytes({"AI Core": Overflow(77, 2, 1)}))
        with closing(open_source(tmp_path)) as source:
            assert overflowed(source, 0) == set()
            (part,) = source.unreadable()
            assert part.where == str(path.relative_to(tmp_path))
            assert part.why.startswith("AI Core status 0x1 (task 77, stream 2, block 0): no file here")
            assert (part.rank, part.step) == (0, 0)

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "it is empty"),
            (overflow_bytes({})[:-1], "it has 2,047 bytes of 2,048"),
            (file_bytes(outputs=[Written(np.zeros(100, np.uint8))]), "it has 100 bytes of 2,048"),
            (file_bytes([Written(np.zeros(100, np.uint8))]), "it has no output"),
            ("", "it is no JSON"),
            ("[" * 100_000, "it is no JSON"),
            ("[]", "it is no JSON object"),
            ("{}", "it has none of the blocks"),
            (json.dumps({"AI Core": []}), "it has no object at 'AI Core'"),
            (json.dumps({"DHA Atomic Add": {"status": 0}}), "it tells of no overflow: no status is set"),
            (json.dumps({"AI Core": {"task_id": "x"}}), "it has no number at 'task_id'"),
            (json.dumps({"AI Core": {"task_id": -1}}), "it has no number at 'task_id'"),
        ],
    )
    def test_a_record_that_makes_no_sense(self, tmp_path: Path, content: bytes | str, words: str) -> None:
        dump = write_device_dump(tmp_path, steps=(0,))
        dump.overflow(0, content)
        with closing(open_source(tmp_path)) as source:
            assert overflowed(source, 0) == set()
            (part,) = source.unreadable()
            assert f"an overflow record that makes no sense: {words}" in part.why

    def test_a_record_that_comes_later(self, tmp_path: Path) -> None:
        dump = write_device_dump(tmp_path, steps=(0, 1))
        with closing(open_source(tmp_path)) as source:
            assert overflowed(source, 1) == set()
            dump.overflow(1, overflow_bytes({"AI Core": self.RECORD}))
            assert (0, 1) in source.refresh().grown_steps
            assert overflowed(source, 1) == {RELU}

    @pytest.mark.parametrize(
        ("mode", "version", "tells"), [(3, "1.9.0", True), (1, "2.2.0", True), (0, "1.9.0", False), (3, "2.3.0", False)]
    )
    def test_whether_an_overflow_would_be_known(self, tmp_path: Path, mode: int, version: str, tells: bool) -> None:
        write_device_dump(tmp_path, steps=(0,), op_debug_mode=mode, version=version)
        with closing(open_source(tmp_path)) as source:
            assert source.tensors(0, 0).tells_overflow is tells

    def test_a_record_tells_even_where_the_settings_do_not(self, tmp_path: Path) -> None:
        dump = write_device_dump(tmp_path, steps=(0,), op_debug_mode=0)
        dump.overflow(0, overflow_bytes({"AI Core": self.RECORD}))
        with closing(open_source(tmp_path)) as source:
            assert source.tensors(0, 0).tells_overflow


class TestKernelNames:
    """Kernels of the vendor's library that are run one by one: the name of a file says the type of its operator."""

    @pytest.mark.parametrize(
        "name", ["aclnnMatmul_0_L0.MatMulV2", "MatMulV2.aclnnMatmul_0_L0", "aclnnMatmul.aclnnMatmul", "aclnnMatmulV2.x"]
    )
    def test_the_only_node_of_that_type_has_the_file(self, tmp_path: Path, name: str) -> None:
        dump = DeviceDump(tmp_path)
        dump.metadata()
        dump.writer.graph(MLP)
        ones = Written(np.ones((2, 3), np.float32))
        write(dump.writer.step(0) / f"{name}.65535.65535.1700000000000100", file_bytes([ones, ones], [ones]))
        with closing(open_source(tmp_path)) as source:
            table, nodes = source.tensors(0, 0), source.nodes(0)
            assert {nodes.names[row] for row in table.node} == {MATMUL}
            assert len(table) == 3

    def test_a_type_that_the_graph_does_not_have_is_a_node_of_its_own(self, tmp_path: Path) -> None:
        dump = DeviceDump(tmp_path)
        dump.metadata()
        dump.writer.graph(MLP)
        name = "aclnnSoftmax_3_L0.SoftmaxV2.65535.65535.1700000000000100"
        write(dump.writer.step(0) / name, file_bytes([], [Written(np.ones((2, 3), np.float32))]))
        with closing(open_source(tmp_path)) as source:
            table, nodes = source.tensors(0, 0), source.nodes(0)
            assert len(table) == 1
            assert nodes.names[table.node[0]] not in {node.name for node in MLP.nodes}
