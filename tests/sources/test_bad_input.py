"""Bad input: the rest works, and nothing in the dump is ever written or deleted."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.linked import linked
from tests.sources.writer import MLP, DumpWriter, Generation, overwrite, write_dump, write_step
from tui_debugger.errors import CancelledError, UnreadableTensorError
from tui_debugger.graph.table import NodeFlag
from tui_debugger.model import Progress
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source
from tui_debugger.stats.npy import open_array


def everything(source: Source) -> int:
    """Asks for all there is; returns the number of tensors."""
    count = 0
    for rank in source.ranks():
        source.history(rank)
        source.nodes(rank)
        for step in source.steps(rank):
            count += len(source.tensors(rank, step))
    source.refresh()
    source.watch_paths()
    assert all(isinstance(notice, str) for notice in source.info.notices)
    return count


def snapshot(root: Path) -> dict[str, tuple[int, int, int]]:
    result = {}
    for path in [root, *root.rglob("*")]:
        status = path.stat()
        result[str(path)] = (status.st_mtime_ns, status.st_size, stat.S_IMODE(status.st_mode))
    return result


@pytest.mark.parametrize("name", ["mindspore-2.0-mlp", "mindspore-2.10-mlp"])
def test_nothing_in_the_dump_is_written_or_deleted(dumps: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    linked(dumps(name), root)
    before = snapshot(root)
    source = open_source(root)
    everything(source)
    table = source.tensors(0, 0)
    for i in range(len(table)):
        open_array(table.spec(i))
    source.close()
    assert snapshot(root) == before


@pytest.mark.parametrize("content", [None, b"", b"\xff" * 100, b"\x08", b"\0" * 4096])
@pytest.mark.parametrize("where", ["graphs/ms_output_trace_code_graph_0.pb"])
def test_a_broken_graph_is_a_notice_and_nodes_come_from_files(
    tmp_path: Path, content: bytes | None, where: str
) -> None:
    write_dump(tmp_path, steps=(0,))
    path = tmp_path / "rank_0" / where
    path.unlink()
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    source = open_source(tmp_path)
    assert everything(source) == 11
    assert np.all(source.nodes(0).flags & NodeFlag.FILE_ONLY)
    assert any(path.name in notice for notice in source.info.notices)


def test_one_broken_graph_of_two_leaves_the_other(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0,))
    (tmp_path / "rank_0/graphs/ms_output_trace_code_graph_1.pb").write_bytes(b"\xff")
    source = open_source(tmp_path)
    everything(source)
    assert not np.any(source.nodes(0).flags & NodeFlag.FILE_ONLY)


@pytest.mark.parametrize(
    "name",
    [
        "execution_order/ms_execution_order_graph_0.csv",
        "execution_order/ms_global_execution_order_graph_0.csv",
        "Net/0/0/statistic.csv",
        "Net/0/0/mapping.csv",
    ],
)
@pytest.mark.parametrize("content", [None, b"", b"\xff\0\n" * 50, b"a,b\n"])
def test_broken_tables_are_ignored(tmp_path: Path, name: str, content: bytes | None) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    np.save(writer.step(0) / "12345.npy", np.zeros(1))
    overwrite(tmp_path / "rank_0" / name, content)
    assert everything(open_source(tmp_path)) == 22


@pytest.mark.parametrize("where", ["graphs", "execution_order"])
def test_what_was_listed_and_is_gone_is_a_doubt(tmp_path: Path, where: str) -> None:
    write_dump(tmp_path, steps=(0,))
    (tmp_path / "rank_0" / where).mkdir(exist_ok=True)
    source = open_source(tmp_path)
    assert list(source.steps(0)) == [0]
    assert not source.unreadable()
    shutil.rmtree(tmp_path / "rank_0" / where)
    everything(source)
    assert [(part.where, part.why) for part in source.unreadable()] == [(f"rank_0/{where}", "vanished")]
    assert not open_source(tmp_path).unreadable(), "nobody has seen it there"


@pytest.mark.parametrize(
    "where", ["graphs", "execution_order", ".dump_metadata", "Net/0/0", "Net/0", "Net/1", "Net/0/7"]
)
def test_files_where_directories_should_be(tmp_path: Path, where: str) -> None:
    write_dump(tmp_path, steps=(0, 1))
    path = tmp_path / "rank_0" / where
    if path.exists():
        shutil.rmtree(path)
    path.touch()
    source = open_source(tmp_path)
    everything(source)
    assert set(source.steps(0)) <= {0, 1, int(path.name) if where.startswith("Net/0/") else 0}
    parts = [(part.where, part.why) for part in source.unreadable()]
    # Without metadata, a net and a version are not known: that hides no tensor.
    assert parts == ([] if where.startswith(".") else [(f"rank_0/{where}", "a file in place of a directory")])


@pytest.mark.parametrize("gone", ["Net/0/1", "Net/0", "Net", "graphs", "execution_order", "."])
def test_directories_that_vanish_after_opening(tmp_path: Path, gone: str) -> None:
    write_dump(tmp_path, steps=(0, 1))
    source = open_source(tmp_path)
    assert list(source.steps(0)) == [0, 1]
    shutil.rmtree(tmp_path / "rank_0" / gone)
    for step in (0, 1):
        source.tensors(0, step)
    everything(source)
    source.refresh()
    assert not source.refresh()


def test_a_vanished_step_is_a_notice(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0, 1))
    source = open_source(tmp_path)
    source.steps(0)
    shutil.rmtree(tmp_path / "rank_0/Net/0/1")
    assert len(source.tensors(0, 1)) == 0
    assert any("directories that vanished" in notice for notice in source.info.notices)


def test_a_file_that_vanishes_between_listing_and_reading(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0,))
    source = open_source(tmp_path)
    table = source.tensors(0, 0)
    spec = table.spec(0)
    Path(spec.path).unlink()
    with pytest.raises(UnreadableTensorError):
        open_array(spec)
    assert source.refresh().grown_steps == ((0, 0),)
    assert len(source.tensors(0, 0)) == len(table) - 1


def test_a_directory_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dump(tmp_path, steps=(0, 1))
    source = open_source(tmp_path)
    source.steps(0)
    scandir = os.scandir

    def closed(path: str | bytes | Path | int) -> object:
        if not isinstance(path, int) and os.fsdecode(path).endswith("/Net/0/1"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    assert len(source.tensors(0, 0)) == 11
    assert len(source.tensors(0, 1)) == 0
    assert any("directories that cannot be listed" in notice for notice in source.info.notices)


def test_unreadable_values_do_not_keep_the_match_from_working(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    for path in writer.step(0).glob("*.npy"):
        path.write_bytes(b"")
    source = open_source(tmp_path)
    assert everything(source) == 22
    assert not np.any(source.nodes(0).flags & NodeFlag.FILE_ONLY)


def test_a_cancelled_listing_leaves_nothing_behind(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    write_step(writer, 0)
    source = open_source(tmp_path)
    calls = 0

    def cancel(_: Progress) -> None:
        nonlocal calls
        calls += 1
        raise CancelledError("stopped")

    for ask in (lambda: source.nodes(0, cancel), lambda: source.tensors(0, 0, cancel)):
        with pytest.raises(CancelledError):
            ask()
    assert calls == 2
    assert len(source.tensors(0, 0)) == 11


def test_an_unknown_rank_is_empty(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0,))
    source = open_source(tmp_path)
    assert list(source.steps(77)) == []
    assert len(source.tensors(77, 0)) == 0
    assert source.previous_run(77, 0, 5) is None
    assert source.ranks() == [0]


def test_two_nets_in_one_dump_are_a_notice(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0,))
    write_step(DumpWriter(tmp_path, net="Other"), 1, MLP)
    source = open_source(tmp_path)
    assert list(source.steps(0)) == [0, 1]
    assert "several nets in one dump: Net, Other" in source.info.notices


def test_threads_that_ask_at_once_get_the_same_table(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    write_dump(tmp_path, steps=(0, 1))
    source = open_source(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        tables = list(pool.map(lambda step: source.tensors(0, step % 2), range(32)))
    assert len({id(table) for table in tables}) == 2
