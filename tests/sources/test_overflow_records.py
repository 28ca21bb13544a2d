"""Records of overflows of Ascend devices in both layouts: the operator that they are about, or nobody."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import ascend_vendor as vendor
from tests.ascend_files import (
    NEW_UNITS,
    DeviceDump,
    Overflow,
    Written,
    file_bytes,
    new_overflow_bytes,
    new_overflow_json,
    overflow_bytes,
    task_of,
    write,
    write_device_dump,
)
from tests.sources.writer import MLP
from tui_debugger.model import Side
from tui_debugger.sources import open_source
from tui_debugger.sources.base import NO_NUMBER, OverflowRecord, Source, TensorFlag
from tui_debugger.sources.mindspore.overflow import read_records

MATMUL, RELU, MOMENTUM = (node.name for node in MLP.nodes)
FORMS = [new_overflow_bytes, new_overflow_json]


def overflowed(source: Source, step: int = 0) -> set[str]:
    table, names = source.tensors(0, step), source.nodes(0).names
    return {names[row] for row in table.node[(table.flags & int(TensorFlag.OVERFLOWED)) != 0].tolist()}


def said(source: Source) -> list[str]:
    source.tensors(0, 0)
    return [part.why for part in source.unreadable()]


@pytest.fixture
def dump(tmp_path: Path) -> DeviceDump:
    return write_device_dump(tmp_path, steps=(0,))


NAMES = {"AIC": "AI Core", "AIV": "AI Vector Core", "AICPU": "AI CPU", "SDMA": "SDMA"}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("unit", NAMES)
class TestNewLayout:
    def test_the_operator_with_that_task_and_stream_is_marked(
        self, tmp_path: Path, dump: DeviceDump, form: Callable[..., Any], version: int, unit: str
    ) -> None:
        dump.overflow(0, form(unit, version, task_id=task_of(RELU), stream_id=2, model_id=5))
        with closing(open_source(tmp_path)) as source:
            assert overflowed(source) == {RELU}
            assert not said(source)
            table = source.tensors(0, 0)
            (record,) = table.overflows(table.find(source.nodes(0).find(RELU), Side.OUTPUT, 0))
            status = (0, 0x20, 0, 0) if version == 1 and NAMES[unit].endswith("Core") else (0x20,)
            assert (record.unit, record.task, record.stream, record.status) == (NAMES[unit], task_of(RELU), 2, status)
            assert (record.model, record.context, record.thread) == (5, NO_NUMBER, NO_NUMBER)

    def test_a_status_of_zeros_reports_nothing_and_that_is_said(
        self, tmp_path: Path, dump: DeviceDump, form: Callable[..., Any], version: int, unit: str
    ) -> None:
        dump.overflow(0, form(unit, version, task_id=task_of(RELU), stream_id=2, status=0))
        with closing(open_source(tmp_path)) as source:
            assert overflowed(source) == set()
            (why,) = said(source)
            assert why.endswith("it tells of no overflow: no status is set")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (new_overflow_bytes("AIC", 2), "it has the unknown version 2"),
        (new_overflow_bytes("4"), "it tells of the unknown unit '4'"),
        (new_overflow_bytes("AIC", valid=0), "it is marked as not valid"),
        (new_overflow_bytes("AIC", size=100), "it has 100 bytes of 112"),
        (new_overflow_bytes("AIC", 1, size=112), "it has 112 bytes of 136"),
        (new_overflow_json("DVPP"), "it tells of the unknown unit 'DVPP'"),
        (new_overflow_json("AIC", 7), "it has the unknown version 7"),
        ('{"magic": "0x5a5a5a5a"}', "it has no object at 'acc_list'"),
        ('{"acc_list": {"acc_type": "AIC"}}', "it has no object at 'data'"),
        (
            '{"acc_list": {"acc_type": "AIC", "data": {"status": [1, 2]}}}',
            "it has 2 words of status, where its version has 1",
        ),
        ('{"acc_list": {"acc_type": "AIC", "data": {"status": {}}}}', "it has no number at 'status'"),
    ],
)
def test_a_record_of_the_new_layout_that_makes_no_sense(
    tmp_path: Path, dump: DeviceDump, content: bytes | str, words: str
) -> None:
    dump.overflow(0, content)
    with closing(open_source(tmp_path)) as source:
        assert overflowed(source) == set()
        (why,) = said(source)
        assert f"an overflow record that makes no sense: {words}" in why


def test_a_record_that_is_as_short_as_its_numbers(tmp_path: Path, dump: DeviceDump) -> None:
    dump.overflow(0, new_overflow_bytes("AICPU", size=24 + 64, task_id=task_of(RELU), stream_id=2))
    with closing(open_source(tmp_path)) as source:
        assert overflowed(source) == {RELU}


class TestWhichOperator:
    """An operator that happens to have task 0 is never blamed for a record that does not name it."""

    @pytest.mark.parametrize("numbers", [{}, {"task_id": 65535, "stream_id": 2}, {"task_id": 10, "stream_id": 65535}])
    def test_numbers_that_are_not_known_blame_nobody(self, tmp_path: Path, numbers: dict[str, int]) -> None:
        dump = DeviceDump(tmp_path)
        dump.writer.graph(MLP)
        ones = Written(np.ones((2, 3), np.float32))
        for node, device in zip(MLP.nodes, ("65535.2", "10.65535", "0.1"), strict=True):
            name = f"{node.type}.{node.name.replace('/', '_')}.{device}.1700000000000100"
            write(dump.writer.step(0) / name, file_bytes([ones] * len(node.inputs), [ones]))
        dump.overflow(0, new_overflow_bytes("AIC", **numbers))
        with closing(open_source(tmp_path)) as source:
            assert overflowed(source) == set()
            (why,) = said(source)
            assert "no file here is known to be of the operator that overflowed" in why

    def test_task_and_stream_0_of_several_operators_blame_nobody(self, tmp_path: Path) -> None:
        for several in (False, True):
            dump = DeviceDump(tmp_path / str(several))
            dump.writer.graph(MLP)
            ones = Written(np.ones((2, 3), np.float32))
            for task, node in enumerate(MLP.nodes):
                device = 0 if several else 10 * task
                name = f"{node.type}.{node.name.replace('/', '_')}.{device}.{device}.1700000000000100"
                write(dump.writer.step(0) / name, file_bytes([ones] * len(node.inputs), [ones]))
            dump.overflow(0, new_overflow_bytes("AIC"))
            with closing(open_source(tmp_path / str(several))) as source:
                assert overflowed(source) == (set() if several else {MATMUL})

    def test_of_several_operators_with_these_numbers_it_is_the_first(self, tmp_path: Path) -> None:
        dump = DeviceDump(tmp_path)
        dump.writer.graph(MLP)
        ones = Written(np.ones((2, 3), np.float32))
        for node in (MLP.nodes[1], MLP.nodes[0]):
            dump.operator(0, node, [ones] * len(node.inputs), [ones], task=7)
        dump.overflow(0, new_overflow_bytes("AIC", task_id=7, stream_id=2))
        with closing(open_source(tmp_path)) as source:
            assert overflowed(source) == {RELU}

    @pytest.mark.parametrize(
        ("context", "thread", "who"),
        [(3, 1, {RELU}), (4, 1, {MATMUL}), (NO_NUMBER, NO_NUMBER, {MATMUL}), (3, 9, set()), (0, 0, set())],
    )
    def test_the_part_of_a_divided_operator(self, tmp_path: Path, context: int, thread: int, who: set[str]) -> None:
        dump = DeviceDump(tmp_path)
        dump.writer.graph(MLP)
        ones = Written(np.ones((2, 3), np.float32))
        for number, node in ((4, MLP.nodes[0]), (3, MLP.nodes[1])):
            for part in range(2):
                name = f"{dump.file_name(node.type, node.name, 7)}.4.{number}.{part}.0"
                write(dump.writer.step(0) / name, file_bytes([ones] * len(node.inputs), [ones]))
        dump.overflow(0, new_overflow_bytes("AIC", task_id=7, stream_id=2, context_id=context, thread_id=thread))
        with closing(open_source(tmp_path)) as source:
            assert overflowed(source) == who
            assert bool(said(source)) is (not who)

    def test_a_name_without_a_stream_is_of_an_unknown_one(self, tmp_path: Path) -> None:
        dump = DeviceDump(tmp_path)
        dump.writer.graph(MLP)
        node, ones = MLP.nodes[1], Written(np.ones((2, 3), np.float32))
        name = f"{node.type}.{node.name.replace('/', '_')}.7.1700000000000100"
        write(dump.writer.step(0) / name, file_bytes([ones], [ones]))
        dump.overflow(0, new_overflow_bytes("AIC", task_id=7, stream_id=2))
        with closing(open_source(tmp_path)) as source:
            assert overflowed(source) == set()
            assert len(said(source)) == 1


@pytest.mark.parametrize(
    ("unit", "status", "meaning"),
    [
        ("AI Core", (0x8,), "negation of the smallest integer"),
        ("AI Core", (0x120,), "floating-point arithmetic, conversion of float32 or int32 to float16"),
        ("AI Vector Core", (0x400,), "accumulation in the cube"),
        ("AI Core", (0x1,), ""),
        ("AI Core", (0x20, 0, 0, 0), ""),
        ("SDMA", (0x20,), ""),
        ("DHA Atomic Add", (0x0B00,), "the source is NaN"),
        ("L2 Atomic Add", (0x20000,), "below the range"),
    ],
)
def test_a_status_means_what_the_vendor_says_and_no_more(unit: str, status: tuple[int, ...], meaning: str) -> None:
    assert OverflowRecord(unit, 1, 2, status).meaning == meaning


class TestVendor:
    """Held against the vendor's parser."""

    @pytest.fixture(autouse=True)
    def vendor_is_here(self) -> None:
        vendor.needed()

    def ours(self, path: Path) -> tuple[OverflowRecord, ...]:
        return read_records([os.fsencode(path)]).records[os.fsencode(path)]

    @pytest.mark.parametrize("version", [0, 1])
    @pytest.mark.parametrize("unit", NEW_UNITS)
    def test_records_of_the_new_layout_say_the_same(self, tmp_path: Path, unit: str, version: int) -> None:
        numbers = {"task_id": 7, "stream_id": 2, "model_id": 5, "thread_id": 3, "context_id": 4, "status": 0x120}
        name = "Opdebug.Node_OpDebug.1.1.1700000000000100"
        path = write(tmp_path / "in" / name, new_overflow_bytes(unit, version, **numbers))
        (tmp_path / "out").mkdir()
        theirs = vendor.record(path, tmp_path / "out")
        assert theirs is not None
        data = theirs["acc_list"]["data"]
        (record,) = self.ours(path)
        assert self.ours(tmp_path / "out" / f"{name}.output.0.json") == (record,), "and so does what it converts"
        mine = (record.task, record.stream, record.context, record.thread, record.model)
        assert mine == tuple(data[f"{key}_id"] for key in ("task", "stream", "context", "thread", "model"))
        status = data["status"]
        assert record.status == (tuple(status) if isinstance(status, list) else (status,))

    def test_records_of_the_old_layout_say_the_same(self, tmp_path: Path) -> None:
        blocks = {"L2 Atomic Add": Overflow(7, 2, 4, model=3), "AI Core": Overflow(8, 3, 0x20, 1, 9, 6)}
        name = "Opdebug.Node_OpDebug.1.1.1700000000000100"
        path = write(tmp_path / "in" / name, overflow_bytes(blocks))
        (tmp_path / "out").mkdir()
        theirs = vendor.record(path, tmp_path / "out")
        assert theirs is not None
        for record in self.ours(path):
            block = theirs[record.unit]
            assert (record.task, record.stream, record.status) == (
                block["task_id"],
                block["stream_id"],
                (block["status"],),
            )
        assert self.ours(tmp_path / "out" / f"{name}.output.0.json") == self.ours(path)

    @pytest.mark.parametrize(("task", "who"), [(task_of(RELU), "ReLU"), (task_of(MATMUL), "MatMul"), (77, "")])
    def test_the_same_operator_is_named(self, tmp_path: Path, dump: DeviceDump, task: int, who: str) -> None:
        dump.overflow(0, new_overflow_bytes("AIC", task_id=task, stream_id=2), beside=True)
        (tmp_path / "out").mkdir()
        text = vendor.overflowed(dump.writer.step(0), tmp_path / "out")
        assert [name for name in ("ReLU", "MatMul", "ApplyMomentum") if f"[{name}]" in text] == ([who] if who else [])
        with closing(open_source(tmp_path)) as source:
            assert {name.rpartition("/")[2].partition("-")[0] for name in overflowed(source)} == (
                {who} if who else set()
            )
