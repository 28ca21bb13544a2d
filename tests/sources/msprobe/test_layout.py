"""Where a dump of msprobe lies, and what its steps and ranks are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sources.msprobe.written import forward, tensor, write
from tui_debugger.errors import NotADumpError
from tui_debugger.sources import open_source
from tui_debugger.sources.msprobe.layout import READER
from tui_debugger.sources.registry import Sureness

CALLS = {"Torch.f.0.forward": forward([tensor(1)], [tensor(2)])}


@pytest.mark.parametrize("part", ["", "run", "run/dump", "run/dump/step3", "run/dump/step3/rank1"])
def test_it_is_found_at_above_and_below_a_path(tmp_path: Path, part: str) -> None:
    for rank in (0, 1):
        write(tmp_path / "run/dump", CALLS, step=3, unit=f"rank{rank}")
    found = READER.recognises(tmp_path / part)
    assert found is not None
    assert (found.root, found.sureness) == (tmp_path / "run/dump", Sureness.SURE)


def test_other_directories_are_none(tmp_path: Path) -> None:
    (tmp_path / "step0/rank0").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/dump.json").write_text("{}")
    assert READER.recognises(tmp_path) is None
    assert READER.recognises(tmp_path / "elsewhere") is None


def test_the_files_of_one_rank_alone(tmp_path: Path) -> None:
    alone = write(tmp_path / "dump", CALLS, step=0, unit="rank4").rename(tmp_path / "rank4")
    source = open_source(alone)
    assert (list(source.ranks()), list(source.steps(4))) == ([4], [0])
    assert len(source.tensors(4, 0)) == 2


def test_several_dumps_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, CALLS)
    with pytest.raises(NotADumpError, match="Several dumps here: a, b"):
        open_source(tmp_path)


def test_the_only_process_without_a_rank_is_rank_0(tmp_path: Path) -> None:
    write(tmp_path, CALLS, step=0, unit="proc77")
    write(tmp_path, CALLS, step=1, unit="proc81")
    source = open_source(tmp_path)
    assert (list(source.ranks()), list(source.steps(0))) == ([0], [0, 1])
    assert not any("proc" in notice for notice in source.info.notices)


def test_several_processes_are_ranks_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for unit in ("proc81", "proc9"):
        write(tmp_path, CALLS, unit=unit)
    source = open_source(tmp_path)
    assert list(source.ranks()) == [0, 1]
    assert any("proc9 is rank 0, proc81 is rank 1" in notice for notice in source.info.notices)


def test_ranks_may_have_different_steps(tmp_path: Path) -> None:
    write(tmp_path, CALLS, step=0, unit="rank0")
    write(tmp_path, CALLS, step=5, unit="rank3")
    source = open_source(tmp_path)
    assert {rank: list(source.steps(rank)) for rank in source.ranks()} == {0: [0], 3: [5]}


def test_nothing_is_read_to_list_steps(tmp_path: Path) -> None:
    for step in range(50):
        (write(tmp_path, CALLS, step=step) / "dump.json").write_text("no JSON")
    source = open_source(tmp_path)
    assert list(source.steps(0)) == list(range(50))
    assert source.unreadable() == ()


def test_a_new_rank_is_told(tmp_path: Path) -> None:
    write(tmp_path, CALLS, unit="rank0")
    source = open_source(tmp_path)
    write(tmp_path, CALLS, unit="rank1")
    assert source.refresh().new_ranks == (1,)
    assert list(source.ranks()) == [0, 1]
