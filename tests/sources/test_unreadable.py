"""What cannot be listed or read is a part that the source tells of, at every level; it never just vanishes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.sources.writer import DumpWriter, Generation, write_dump
from tests.unreadable import WOUNDS, wound
from tui_debugger.cache.store import DiskCache
from tui_debugger.errors import NotADumpError
from tui_debugger.model import UnreadablePart
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source
from tui_debugger.sources.mindspore.reader import find_dump


def parts(source: Source) -> list[UnreadablePart]:
    """After everything was listed."""
    for rank in source.ranks():
        source.nodes(rank)
        for step in source.steps(rank):
            source.tensors(rank, step)
    return list(source.unreadable())


def dump(root: Path) -> Path:
    """Two ranks, two graphs, three steps, with metadata: it names the net."""
    writer = write_dump(root, ranks=(0, 1))
    writer.metadata()
    for rank in (0, 1):
        writer.constant(0, np.zeros(3, np.float32), rank=rank)
        for step in range(2):
            writer.tensor(step, "Add", "Default/Add-op9", np.ones(3, np.float32), rank=rank, graph=5)
    return root


def test_a_dump_that_can_be_read_has_none(tmp_path: Path) -> None:
    assert parts(open_source(dump(tmp_path))) == []


@pytest.mark.covering
@pytest.mark.parametrize("kind", WOUNDS)
@pytest.mark.parametrize(
    ("where", "rank", "step"),
    [
        ("rank_1", 1, None), ("rank_0", 0, None), ("rank_1/Net", 1, None), ("rank_0/Net/0", 0, None),
        ("rank_1/Net/5", 1, None), ("rank_0/Net/0/0", 0, 0), ("rank_1/Net/0/1", 1, 1), ("rank_0/Net/0/2", 0, 2),
        ("rank_1/Net/5/1", 1, 1), ("rank_0/Net/0/constants", 0, None),
    ],
)  # fmt: skip
def test_something_else_in_the_place_of_a_directory(
    tmp_path: Path, where: str, rank: int, step: int | None, kind: str
) -> None:
    words = wound(dump(tmp_path) / where, kind)
    assert parts(open_source(tmp_path)) == [UnreadablePart(where, words, rank, step)]


@pytest.mark.parametrize("kind", WOUNDS)
def test_a_step_that_cannot_be_listed_is_still_a_step(tmp_path: Path, kind: str) -> None:
    """What comes after it must not be compared with what came before it."""
    wound(dump(tmp_path) / "rank_0/Net/0/1", kind)
    source = open_source(tmp_path)
    assert list(source.steps(0)) == [0, 1, 2]
    assert source.previous_run(0, 0, 2) == (1, 0)
    assert len(source.unreadable()) == 1, "known before a step is listed"


@pytest.mark.covering
@pytest.mark.parametrize("name", ["statistic.csv", "mapping.csv"])
@pytest.mark.parametrize("kind", sorted(WOUNDS.keys() - {"file"}))
def test_a_table_of_a_step(tmp_path: Path, name: str, kind: str) -> None:
    words = wound(dump(tmp_path) / "rank_1/Net/0/1" / name, kind).replace("a directory", "a file")
    assert parts(open_source(tmp_path)) == [UnreadablePart(f"rank_1/Net/0/1/{name}", words, 1, 1)]


@pytest.mark.parametrize("name", ["statistic.csv", "mapping.csv", "ReLU.ReLU-op2.0.0.9.output.0.F.npy", "77.npy"])
def test_a_directory_in_place_of_a_file(tmp_path: Path, name: str) -> None:
    (dump(tmp_path) / "rank_0/Net/0/2" / name).mkdir()
    kind = "a tensor file" if name.endswith("npy") else "a file"
    found = parts(open_source(tmp_path))
    assert found == [UnreadablePart(f"rank_0/Net/0/2/{name}", f"a directory in place of {kind}", 0, 2)]


def test_files_that_nobody_can_name(tmp_path: Path) -> None:
    step = dump(tmp_path) / "rank_0/Net/0/2"
    (step / "broken.npy").touch()
    (step / "555.npy").touch()
    assert {part.why for part in parts(open_source(tmp_path))} == {"2 files whose name makes no sense"}


@pytest.mark.parametrize("name", ["statistic.csv", "mapping.csv"])
def test_broken_lines(tmp_path: Path, name: str) -> None:
    (dump(tmp_path) / "rank_0/Net/0/2" / name).write_text("no,sense\n")
    assert parts(open_source(tmp_path)) == [UnreadablePart(f"rank_0/Net/0/2/{name}", "1 broken line", 0, 2)]


@pytest.mark.parametrize(
    "name",
    [
        "rank_0/README", "rank_0/Net/README", "rank_0/Net/0/notes.txt", "rank_0/Net/0/0/notes.txt~", "README",
        "rank_x", "rank_0/Net~",
    ],
)  # fmt: skip
def test_what_is_plainly_none_of_ours(tmp_path: Path, name: str) -> None:
    (dump(tmp_path) / name).touch()
    (tmp_path / "rank_0/.#train.py").symlink_to("me@host.123")
    (tmp_path / "rank_0/Net/0/lost").symlink_to("nowhere")
    assert parts(open_source(tmp_path)) == []


@pytest.mark.covering
@pytest.mark.parametrize("kind", sorted(WOUNDS.keys() - {"file"}))
@pytest.mark.parametrize(
    "name",
    [
        "graphs/ms_output_trace_code_graph_0.pb",
        "execution_order/ms_execution_order_graph_0.csv",
        "execution_order/ms_global_execution_order_graph_0.csv",
    ],
)
def test_a_graph_or_its_order_or_history(tmp_path: Path, name: str, kind: str) -> None:
    words = wound(dump(tmp_path) / "rank_0" / name, kind).replace("a directory", "a file")
    (part,) = parts(open_source(tmp_path))
    assert (part.where, part.rank, part.step, part.graph) == (f"rank_0/{name}", 0, None, True)
    assert words in part.why


@pytest.mark.covering
@pytest.mark.parametrize("kind", WOUNDS)
@pytest.mark.parametrize("name", ["graphs", "execution_order"])
def test_the_directory_of_graphs_or_orders(tmp_path: Path, name: str, kind: str) -> None:
    words = wound(dump(tmp_path) / "rank_0" / name, kind)
    assert parts(open_source(tmp_path)) == [UnreadablePart(f"rank_0/{name}", words, 0, None, graph=True)]


def test_two_directories_of_one_number(tmp_path: Path) -> None:
    root = dump(tmp_path)
    (root / "rank_0/Net/0/01").mkdir()
    (root / "rank_00").mkdir()
    (root / "rank_0/Net/0/12345678901").mkdir()
    assert [(part.where, part.why) for part in parts(open_source(root))] == [
        ("rank_0/Net/0/01", "the same step as 1"),
        ("rank_0/Net/0/12345678901", "a number of more than 9 digits"),
        ("rank_00", "the same rank as rank_0"),
    ]


def test_a_step_that_vanished_before_it_was_listed_until_somebody_looks_again(tmp_path: Path) -> None:
    source = open_source(dump(tmp_path))
    source.nodes(0)
    shutil.rmtree(tmp_path / "rank_0/Net/0/2")
    source.tensors(0, 2)
    assert list(source.unreadable()) == [UnreadablePart("rank_0/Net/0/2", "vanished", 0, 2)]
    source.refresh()
    assert list(source.unreadable()) == []


def test_what_heals_is_no_part_any_more(tmp_path: Path) -> None:
    writer = DumpWriter(dump(tmp_path), Generation.V2_10)
    names = ("rank_0/Net/0/1", "rank_1/Net")
    kept = {name: (tmp_path / name).rename(tmp_path / f"kept-{name.replace('/', '-')}") for name in names}
    for name in names:
        (tmp_path / name).symlink_to("nowhere")
    source = open_source(writer.root)
    assert [part.where for part in parts(source)] == list(names)
    for name, path in kept.items():
        (tmp_path / name).unlink()
        path.rename(tmp_path / name)
    source.refresh()
    assert parts(source) == []
    assert len(source.tensors(0, 1)) == len(source.tensors(0, 0))


def test_a_remembered_listing_forgets_nothing(tmp_path: Path) -> None:
    step = dump(tmp_path) / "rank_0/Net/0/1"
    for number in range(300):
        np.save(step / f"Add.Add-op{number}.0.0.{number + 1}.output.0.DefaultFormat.Float32.npy", np.ones(1))
    (step / "Mul.Mul-op1.0.0.9.output.0.DefaultFormat.Float32.npy").mkdir()
    for path in (step, tmp_path):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    found = [parts(open_source(tmp_path, DiskCache(tmp_path / "index"))) for _ in range(2)]
    assert found[0] == found[1] != []


@pytest.mark.parametrize("kind", WOUNDS)
def test_when_no_rank_can_be_listed_it_is_said(tmp_path: Path, kind: str) -> None:
    words = wound(write_dump(tmp_path).root / "rank_0", kind)
    with pytest.raises(NotADumpError, match=f"rank_0 cannot be listed: {words}"):
        find_dump(tmp_path)
