"""Tensor tables of steps with many files: what they share, what they cost, what names them."""

from __future__ import annotations

import gc
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.sources.writer import DumpWriter, Generation, write_dump
from tui_debugger.errors import CancelledError
from tui_debugger.model import Progress, Side
from tui_debugger.sources import open_source
from tui_debugger.sources.mindspore.tensors import MindSporeStepTable


def write_many(root: Path, nodes: int, *, steps: int = 1, files: int = 4) -> DumpWriter:
    """Empty tensor files: inputs and an output of every node."""
    writer = DumpWriter(root)
    for step in range(steps):
        directory = writer.step(step)
        for slot in range(files):
            side, at = ("output", 0) if slot == files - 1 else ("input", slot)
            for node in range(nodes):
                (
                    directory / writer.file_name("Add", f"Default/net-Net/block-{node // 9}/Add-op{node}", side, at)
                ).touch()
    return writer


def tables(root: Path, *steps: int) -> list[MindSporeStepTable]:
    source = open_source(root)
    found = [source.tensors(0, step) for step in steps]
    assert all(isinstance(table, MindSporeStepTable) for table in found)
    return found  # type: ignore[return-value] # just asserted


def test_steps_with_the_same_names_share_all_but_timestamps(tmp_path: Path) -> None:
    write_many(tmp_path, 50, steps=3)
    first, second, third = tables(tmp_path, 0, 1, 2)
    assert first.tensor_places is second.tensor_places is third.tensor_places
    assert second.node is first.node
    assert (second.timestamp > first.timestamp).all()
    assert first.find(3, Side.INPUT, 1) == third.find(3, Side.INPUT, 1) >= 0
    for table in (first, second, third):
        assert all(Path(table.spec(row).path).is_file() for row in range(len(table)))


def test_a_step_with_one_more_file_has_its_own_rows(tmp_path: Path) -> None:
    writer = write_many(tmp_path, 50, steps=2)
    writer.tensor(1, "Print", "Default/Print-op0", np.zeros(3))
    first, second = tables(tmp_path, 0, 1)
    assert len(second) == len(first) + 1 == 201
    assert all(Path(second.spec(row).path).is_file() for row in range(len(second)))


def test_of_the_same_names_written_twice_each_step_has_its_own_rounds(tmp_path: Path) -> None:
    """The names of both steps are alike, but which file is the newer one is not."""
    for step, stamps in enumerate([(5, 6), (8, 7)]):
        directory = DumpWriter(tmp_path).step(step)
        for value, (stamp, form) in enumerate(zip(stamps, ("ND", "NZ"), strict=True)):
            np.save(directory / f"Add.Add-op1.0.0.{stamp}.output.0.{form}.npy", np.full(2, value))
    first, second = tables(tmp_path, 0, 1)
    assert [table.round.tolist() for table in (first, second)] == [[1, 2], [1, 2]]
    assert [Path(table.spec(1).path).name.split(".")[7] for table in (first, second)] == ["NZ", "ND"]
    assert [table.timestamp.tolist() for table in (first, second)] == [[5, 6], [7, 8]]


def test_a_further_step_costs_little_more_than_its_timestamps(tmp_path: Path) -> None:
    write_many(tmp_path, 1000, steps=4)
    source = open_source(tmp_path)
    kept = [source.tensors(0, step) for step in (0, 1)]
    gc.collect()
    tracemalloc.start()
    kept += [source.tensors(0, step) for step in (2, 3)]
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size / sum(map(len, kept[2:])) < 12


def test_a_table_with_its_lookup_takes_few_bytes_a_tensor(tmp_path: Path) -> None:
    """Names of nodes aside, which the listing before has entered already."""
    writer = write_many(tmp_path, 500, steps=1, files=9)
    shutil.copytree(writer.step(0), writer.step(0).with_name("1"))
    next(writer.step(1).glob("*.output.*")).unlink()
    source = open_source(tmp_path)
    source.tensors(0, 0)
    gc.collect()
    tracemalloc.start()
    table = source.tensors(0, 1)
    table.find(0, Side.INPUT, 0)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(table) == 4499
    assert size / len(table) < 80


def test_only_the_steps_that_are_looked_at_are_listed(tmp_path: Path, listed: list[str]) -> None:
    write_many(tmp_path, 10, steps=9)
    source = open_source(tmp_path)
    assert list(source.steps(0)) == [*range(9)]
    assert listed == []
    source.tensors(0, 7)
    assert sorted(listed) == ["0", "5", "6", "7"]  # the nodes come from the first; a step is compared with two others


def test_listing_can_be_stopped_in_the_middle(tmp_path: Path) -> None:
    write_many(tmp_path, 5000, files=2)
    seen: list[int] = []

    def stop(snapshot: Progress) -> None:
        seen.append(snapshot.done)
        if snapshot.done:
            raise CancelledError("stopped")

    source = open_source(tmp_path)
    with pytest.raises(CancelledError):
        source.tensors(0, 0, stop)
    assert 0 < seen[-1] < 10_000
    assert len(source.tensors(0, 0)) == 10_000


def test_matching_can_be_stopped_in_the_middle(dumps: Callable[[str], Path]) -> None:
    def stop(snapshot: Progress) -> None:
        if "reading tensors" in snapshot.text and snapshot.done:
            raise CancelledError("stopped")

    source, other = (open_source(dumps("mindspore-2.10-nan")) for _ in range(2))
    with pytest.raises(CancelledError):
        source.tensors(0, 0, stop)
    found, expected = source.tensors(0, 0), other.tensors(0, 0)
    assert found.node.tolist() == expected.node.tolist()
    assert found.flags.tolist() == expected.flags.tolist()
    assert source.nodes(0).order.tolist() == other.nodes(0).order.tolist()


class TestDigest:
    """Equal digests: the same files in the same rows."""

    def test_it_is_the_same_in_every_session_and_through_links(self, tmp_path: Path) -> None:
        write_many(tmp_path / "dump", 30, steps=2)
        (tmp_path / "link").symlink_to("dump")
        first, second = tables(tmp_path / "dump", 0, 1)
        assert len(first.digest) == 16
        assert first.digest != second.digest
        late, early = tables(tmp_path / "link", 1, 0)
        assert (early.digest, late.digest) == (first.digest, second.digest)

    def test_contents_do_not_count(self, tmp_path: Path) -> None:
        writer = write_dump(tmp_path)
        before = tables(tmp_path, 0)[0].digest
        for path in writer.step(0).glob("*.npy"):
            np.save(path, np.zeros(7))
        assert tables(tmp_path, 0)[0].digest == before

    def test_another_timestamp_name_or_directory_is_another_table(self, tmp_path: Path) -> None:
        writer = write_dump(tmp_path / "dump")
        seen = [tables(tmp_path / "dump", 0)[0].digest]
        path = next(writer.step(0).glob("ReLU*output*"))
        for old, new in ((".output.0", ".output.1"), ("DefaultFormat", "NZ"), (".0.0.", ".1.0."), (".0.17", ".0.18")):
            path = path.rename(path.with_name(path.name.replace(old, new)))
            seen.append(tables(tmp_path / "dump", 0)[0].digest)
        (tmp_path / "dump").rename(tmp_path / "moved")
        seen.append(tables(tmp_path / "moved", 0)[0].digest)
        assert len(set(seen)) == 6

    def test_what_the_dump_spells_otherwise_counts(self, tmp_path: Path) -> None:
        """Files of digits have no name but what mapping.csv says, and rows of statistics have no file."""
        writer = DumpWriter(tmp_path, Generation.V2_5)
        original = "ReLU.Default--ReLU-op7.0.0.5.output.0.DefaultFormat.float32.npy"
        writer.mapped(0, "111", original, np.zeros(3))
        seen = [tables(tmp_path, 0)[0].digest]
        (writer.step(0) / "111.npy").rename(writer.step(0) / "222.npy")
        (writer.step(0) / "mapping.csv").write_text(f"222.npy,{original}\n")
        seen.append(tables(tmp_path, 0)[0].digest)
        (writer.step(0) / "mapping.csv").write_text(f"222.npy,{original.replace('float32', 'bfloat16')}\n")
        seen.append(tables(tmp_path, 0)[0].digest)
        writer.statistics(0, [("Add", "Add-op1", "output", 0, np.ones(3))])
        seen.append(tables(tmp_path, 0)[0].digest)
        assert len(set(seen)) == 4
        assert tables(tmp_path, 0)[0].digest == seen[-1]
