"""A dump that is still being written."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from tests.patience import PATIENCE
from tests.sources.memory import MemorySource
from tests.sources.writer import MLP, DumpWriter, Generation, write_dump, write_step
from tui_debugger.graph.table import NodeFlag
from tui_debugger.model import Side
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Changes
from tui_debugger.sources.follow import DiskFollower, one_a_device, sends_no_events


def test_new_steps_are_found_and_listed(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0,))
    source = open_source(tmp_path)
    source.tensors(0, 0)
    write_step(writer, 4)
    assert source.refresh() == Changes(new_steps=((0, 4),))
    assert list(source.steps(0)) == [0, 4]
    assert len(source.tensors(0, 4)) == len(source.tensors(0, 0))
    assert not source.refresh()


def test_a_step_that_grows_gets_a_new_table_and_the_old_one_stays_valid(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    source = open_source(tmp_path)
    old = source.tensors(0, 1)
    length = len(old)
    writer.tensor(1, "Print", "Default/Print-op0", np.zeros(3))
    assert source.refresh().grown_steps == ((0, 1),)
    new = source.tensors(0, 1)
    assert (len(old), len(new)) == (length, length + 1)
    assert old.find(int(old.node[3]), Side(int(old.side[3])), int(old.slot[3])) == 3


def test_a_file_that_arrives_within_the_same_tick_of_the_clock_is_not_missed(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0,))
    source = open_source(tmp_path)
    before = len(source.tensors(0, 0))
    status = writer.step(0).stat()
    writer.tensor(0, "Print", "Default/Print-op0", np.zeros(3))
    import os

    os.utime(writer.step(0), ns=(status.st_atime_ns, status.st_mtime_ns))
    assert source.refresh().grown_steps == ((0, 0),)
    assert len(source.tensors(0, 0)) == before + 1


def test_statistics_that_are_appended_are_a_change(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    ones = np.ones(3)
    writer.statistics(0, [("Add", "Add-op1", "output", 0, ones)])
    source = open_source(tmp_path)
    assert len(source.tensors(0, 0)) == 1
    writer.statistics(0, [("Add", "Add-op2", "output", 0, ones)])
    assert source.refresh().grown_steps == ((0, 0),)
    assert len(source.tensors(0, 0)) == 2


def test_steps_that_were_not_looked_at_are_not_looked_at_again(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1, 2))
    source = open_source(tmp_path)
    source.steps(0)
    writer.tensor(2, "Print", "Default/Print-op0", np.zeros(3))
    assert not source.refresh()


def test_a_new_rank_appears(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, ranks=(0,))
    source = open_source(tmp_path)
    writer.rank(5)
    assert not source.refresh()
    writer.graph(MLP, rank=5)
    write_step(writer, 0, rank=5)
    assert source.refresh().new_ranks == (5,)
    assert source.ranks() == [0, 5]
    assert len(source.tensors(5, 0)) > 0


def test_a_graph_that_arrives_late_rebuilds_the_nodes(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    write_step(writer, 0)
    source = open_source(tmp_path)
    assert np.all(source.nodes(0).flags & NodeFlag.FILE_ONLY)
    source.tensors(0, 0)
    writer.graph(MLP)
    changes = source.refresh()
    assert changes.new_nodes
    assert changes.rebuilt == (0,)
    assert changes.grown_steps == ((0, 0),)
    nodes = source.nodes(0)
    assert not np.any(nodes.flags & NodeFlag.FILE_ONLY)
    assert len(nodes.in_node) > 0
    assert source.tensors(0, 0).node.max() < len(nodes)
    assert not source.refresh()


def test_a_first_step_that_was_half_written_is_matched_again_when_it_is_complete(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    writer.graph(MLP)
    relu = MLP.nodes[1]
    writer.tensor(0, relu.type, relu.name, np.ones((2, 3), np.float32))
    source = open_source(tmp_path)
    assert len(source.tensors(0, 0)) == 1
    write_step(writer, 0)
    assert source.refresh().grown_steps == ((0, 0),)
    write_step(writer, 1)
    assert source.refresh().new_nodes
    assert len(source.tensors(0, 1)) == 11
    assert len(source.tensors(0, 0)) == 12
    assert source.tensors(0, 0).round.max() == 2


def test_the_history_grows_too(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0,))
    source = open_source(tmp_path)
    source.history(0)
    writer.history((1, 2))
    source.refresh()
    assert [run.step for run in source.history(0)] == [0, 1, 2]


def test_an_empty_dump_is_opened_and_grows(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    writer.metadata()
    source = open_source(tmp_path)
    assert list(source.steps(0)) == []
    assert len(source.nodes(0)) == 0
    assert any("no tensors are dumped" in notice for notice in source.info.notices)
    writer.graph(MLP)
    write_step(writer, 0)
    writer.history((0,))
    assert source.refresh().new_steps == ((0, 0),)
    assert len(source.tensors(0, 0)) == 11
    assert source.info.notices == ()


@pytest.mark.parametrize("polling", [True, False])
def test_a_follower_tells_about_new_steps(tmp_path: Path, polling: bool) -> None:
    writer = write_dump(tmp_path, steps=(0,))
    source = open_source(tmp_path)
    source.tensors(0, 0)
    seen: list[Changes] = []
    arrived = threading.Event()

    def on_change(changes: Changes) -> None:
        seen.append(changes)
        arrived.set()

    follower = DiskFollower(source, on_change, interval=0.05, heartbeat=0.5, polling=polling)
    follower.start()
    try:
        for step in (1, 2):
            arrived.clear()
            write_step(writer, step)
            while not any((0, step) in changes.new_steps for changes in seen):
                assert arrived.wait(PATIENCE)
                arrived.clear()
    finally:
        follower.stop()


def test_a_follower_survives_errors_of_the_callback_and_of_the_source(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0,))
    source = open_source(tmp_path)
    source.steps(0)
    calls = 0
    twice = threading.Event()

    def on_change(_: Changes) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            twice.set()
        write_step(writer, calls + 1)
        raise RuntimeError("a broken listener")

    follower = DiskFollower(source, on_change, interval=0.05, polling=True)
    write_step(writer, 1)
    follower.start()
    assert twice.wait(PATIENCE)
    follower.stop()


def test_a_follower_stops_at_once_and_can_start_again() -> None:
    source = MemorySource({0: {0: {("a", Side.OUTPUT, 0): np.zeros(3)}}})
    arrived = threading.Event()
    follower = DiskFollower(source, lambda _: arrived.set(), interval=0.05, heartbeat=60, polling=False)
    follower.stop()
    for step in (1, 2):
        follower.start()
        follower.start()
        arrived.clear()
        source.add(0, step, {("a", Side.OUTPUT, 0): np.zeros(3)})
        assert arrived.wait(PATIENCE)
        follower.stop()
        follower.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "tdbg-follow"]


def test_stopping_does_not_wait_for_the_heartbeat(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0,))
    follower = DiskFollower(open_source(tmp_path), lambda _: None, interval=0.05, heartbeat=600, polling=False)
    follower.start()
    follower.stop(timeout=PATIENCE)
    assert not [thread for thread in threading.enumerate() if thread.name == "tdbg-follow"]


def test_network_file_systems_send_no_events(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/vda / ext4 rw 0 0\n"
        f"server:/x {tmp_path}/net\\040work nfs4 rw 0 0\n"
        f"/dev/vdb {tmp_path}/net\\040work/local xfs rw 0 0\n"
        f"me@host:/ {tmp_path}/ssh fuse.sshfs rw 0 0\n"
        "broken\n"
    )
    assert not sends_no_events(tmp_path, mounts)
    assert sends_no_events(tmp_path / "net work" / "dump", mounts)
    assert not sends_no_events(tmp_path / "net work" / "local" / "dump", mounts)
    assert not sends_no_events(tmp_path / "net workshop", mounts)
    assert sends_no_events(tmp_path / "ssh", mounts)
    assert not sends_no_events(tmp_path, tmp_path / "no such table")


def test_one_path_stands_for_all_on_its_file_system(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    for path in paths[:2]:
        path.mkdir()
    assert one_a_device([paths[2], *paths[:2]]) == [paths[0]], "what vanished is left out"
    assert one_a_device([Path("/proc"), *paths]) == [Path("/proc"), paths[0]]
