"""Several directories as one run: ranks of several hosts, clashes, what is told of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import file_of, run
from tests.sources.conformance import SourceConformance
from tests.sources.writer import write_dump
from tui_debugger.errors import TdbgError
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source
from tui_debugger.sources.joined import JoinedSource, open_sources

Capsys = pytest.CaptureFixture[str]


def hosts(folder: Path) -> tuple[Path, Path]:
    """Ranks 0 and 1 of one host, 2 and 3 of another one."""
    one = write_dump(folder / "hostA/dump", ranks=(0, 1)).root
    return one, write_dump(folder / "hostB/dump", ranks=(2, 3)).root


class TestJoined(SourceConformance):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Iterator[Source]:
        with closing(open_sources(hosts(tmp_path))) as source:
            yield source


def test_every_rank_is_that_of_its_own_directory(tmp_path: Path) -> None:
    paths = hosts(tmp_path)
    with closing(open_sources(paths)) as joined, closing(open_source(paths[1])) as alone:
        assert isinstance(joined, JoinedSource)
        assert list(joined.ranks()) == [0, 1, 2, 3]
        assert list(joined.steps(3)) == list(alone.steps(3))
        assert joined.nodes(3).names == alone.nodes(3).names
        table, other = joined.tensors(3, 1), alone.tensors(3, 1)
        assert table.spec(0) == other.spec(0)
        assert joined.hosts_of_ranks() == {0: "hostA", 1: "hostA", 2: "hostB", 3: "hostB"}
        assert "2 directories are one run: ranks 0,1 in hostA; ranks 2,3 in hostB" in joined.info.notices


def test_a_rank_in_two_directories_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    one, two = (write_dump(tmp_path / name).root for name in ("one", "two"))
    with pytest.raises(TdbgError) as refused:
        open_sources((one, two))
    assert "rank 0 is in two of the dumps" in str(refused.value)
    assert str(one) in str(refused.value)
    assert str(two) in str(refused.value)
    assert "tdbg diff" in str(refused.value)


def test_what_grows_in_any_of_them_is_seen(tmp_path: Path) -> None:
    with closing(open_sources(hosts(tmp_path))) as joined:
        for rank in joined.ranks():
            joined.tensors(rank, 0)
        writer = write_dump(tmp_path / "hostC/dump", ranks=(2,), steps=range(4))
        before = set(joined.steps(2))
        source = writer.root / "rank_2" / writer.net / "0/3"
        target = tmp_path / "hostB/dump/rank_2" / writer.net / "0/3"
        target.mkdir()
        for file in source.iterdir():
            (target / file.name).write_bytes(file.read_bytes())
        assert joined.refresh().new_steps == ((2, 3),)
        assert set(joined.steps(2)) == before | {3}
        assert tmp_path / "hostB/dump/rank_2" / writer.net / "0" in joined.watch_paths()


def test_a_part_that_cannot_be_read_is_found_from_the_first_dump(tmp_path: Path) -> None:
    paths = hosts(tmp_path)
    step = next((paths[1] / "rank_3").glob("*/0/1"))
    for file in step.iterdir():
        file.unlink()
    step.rmdir()
    step.write_text("no directory")
    with closing(open_sources(paths)) as joined:
        joined.tensors(3, 1)
        parts = [(Path(joined.info.path) / part.where).resolve() for part in joined.unreadable()]
        assert parts == [step.resolve()] * len(parts) != []


def test_commands_take_several_directories(capsys: Capsys, tmp_path: Path) -> None:
    one, two = hosts(tmp_path)
    path = file_of(two, "rank_3/Net/0/1/ReLU.*.output.0.*.npy")
    np.save(path, np.full((2, 3), np.nan, np.float32))
    checked = run(capsys, "check", one, two, "--watch", "TO", "--json").json
    assert {hit["rank"] for hit in checked["hits"]} == {3}
    assert len(checked["coverage"]["pairs"]) == 12
    origin = run(capsys, "origin", one, two, "--json").json
    assert [each["rank"] for each in origin["origins"]] == [3]
    ranks = run(capsys, "ranks", one, two)
    assert ranks.lines[0].startswith("Rank 3 broke first: step 1, Default/network-Net/act-ReLU/ReLU-op2:out:0")
    assert any(line.startswith("  rank 3: hostB") for line in ranks.lines)
    clash = run(capsys, "ranks", one, one)
    assert clash.code == 2
    assert "rank 0 is in two of the dumps" in clash.err
