"""Run history and metadata: optional files, never a reason to fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sources.writer import MLP, DumpWriter, write_dump, write_step
from tui_debugger import opener
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source


def previous(source: Source, rank: int = 0) -> list[int | None]:
    runs = [source.previous_run(rank, 0, step) for step in source.steps(rank)]
    return [run[0] if run is not None else None for run in runs]


def test_the_previous_step_is_the_greatest_dumped_step_below(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 2, 7))
    writer.history((1, 3, 4, 5, 6, 8))
    source = open_source(tmp_path)
    assert previous(source) == [None, 0, 2]
    assert source.previous_run(0, 0, 1) == (0, 0)
    assert source.previous_run(0, 0, 100) == (7, 0)
    assert [run.step for run in source.history(0)] == list(range(9))
    assert [run.step for run in source.history(0) if run.has_data] == [0, 2, 7]


def test_repeated_and_interleaved_lines_mean_nothing(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1, 2))
    writer.history((0, 0, 2, 1, 2, 0, 1))
    source = open_source(tmp_path)
    assert previous(source) == [None, 0, 1]
    assert [run.step for run in source.history(0)] == [0, 1, 2]
    assert not source.info.notices


def test_a_missing_history_is_derived_with_a_notice(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    for step in (1, 5):
        write_step(writer, step)
    source = open_source(tmp_path)
    assert previous(source) == [None, 1]
    assert [(run.step, run.has_data) for run in source.history(0)] == [(1, True), (5, True)]
    assert "rank_0 has no run history: derived from the dumped steps" in source.info.notices


def test_notices_list_no_directory_until_the_dump_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The screen asks for them whenever it draws its header, of a thousand ranks."""
    write_step(DumpWriter(tmp_path), 1)
    source = open_source(tmp_path)
    assert list(source.steps(0)) == [1]
    told = source.info.notices
    listed: list[Any] = []
    monkeypatch.setattr(opener, "listdir", lambda path: listed.append(path) or [])
    assert source.info.notices == told
    assert not listed
    monkeypatch.undo()
    DumpWriter(tmp_path).history((1,))
    source.refresh()
    assert "rank_0 has no run history: derived from the dumped steps" in told
    assert not any("run history" in notice for notice in source.info.notices)


def test_a_history_that_contradicts_the_disk_does_not_count(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    for step in (0, 1, 2):
        write_step(writer, step)
    writer.history((0, 2))
    source = open_source(tmp_path)
    assert previous(source) == [None, 0, 1]
    assert any("steps 1 of graph 0 are dumped but not in the run history" in notice for notice in source.info.notices)


def test_broken_lines_are_counted(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0, 1))
    path = tmp_path / "rank_0/execution_order/ms_global_execution_order_graph_0.csv"
    path.write_bytes(b"0\r\n1,\n\nabc\n-3\n\xff\n99999999999999999999\n 2 ")
    source = open_source(tmp_path)
    assert [run.step for run in source.history(0)] == [0, 1, 2]
    assert any("4 broken lines ignored" in notice for notice in source.info.notices)


def test_graph_names_in_the_history_are_those_of_the_graph(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0,))
    source = open_source(tmp_path)
    source.nodes(0)
    assert [run.graph for run in source.history(0)] == ["kernel_graph0"]


def test_metadata_of_a_healthy_dump(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0,))
    info = open_source(tmp_path).info
    assert (info.title, info.framework_version, info.device) == ("Net", "2.10.0", "CPU")
    assert info.layout == "MindSpore 2.10.0 dump"
    assert info.notices == ()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"common_dump_settings": 3}', b"[" * 100_000])
def test_broken_metadata_is_a_notice_at_most(tmp_path: Path, content: bytes) -> None:
    write_dump(tmp_path, steps=(0,))
    for name in ("config.json", "data_dump.json"):
        (tmp_path / "rank_0/.dump_metadata" / name).write_bytes(content)
    source = open_source(tmp_path)
    assert list(source.steps(0)) == [0]
    assert source.info.title == "Net"
    assert source.info.framework_version == ""


def test_metadata_files_that_are_missing_or_directories(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0,))
    metadata = tmp_path / "rank_0/.dump_metadata"
    (metadata / "config.json").unlink()
    (metadata / "data_dump.json").unlink()
    (metadata / "data_dump.json").mkdir()
    notices = open_source(tmp_path).info.notices
    assert notices == (
        "rank_0/.dump_metadata/data_dump.json cannot be read",
        "rank_0/.dump_metadata/config.json is missing",
    )


def test_the_first_rank_that_has_metadata_speaks_for_all(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, ranks=(1,))
    writer.graph(MLP, rank=0)
    assert open_source(tmp_path).info.framework_version == "2.10.0"
