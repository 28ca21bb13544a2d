"""Where is the run? PATH may be the dump, above it, or anything inside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sources.conformance import asked
from tests.sources.writer import DumpWriter, write_dump
from tui_debugger.errors import NotADumpError
from tui_debugger.sources import open_source
from tui_debugger.sources.inventory import RunInventory
from tui_debugger.sources.mindspore.reader import find_dump

ROOT = Path(__file__).parents[2]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    root = tmp_path / "runs" / "monday"
    write_dump(root, steps=(0, 3))
    return root


INSIDE = [
    ("", None, None),
    ("rank_0", 0, None),
    ("rank_0/Net", 0, None),
    ("rank_0/Net/0", 0, None),
    ("rank_0/Net/0/3", 0, 3),
    ("rank_0/graphs", 0, None),
    ("rank_0/execution_order", 0, None),
    ("rank_0/.dump_metadata", 0, None),
    ("rank_0/.dump_metadata/config.json", 0, None),
    ("rank_0/graphs/ms_output_trace_code_graph_0.pb", 0, None),
]


@pytest.mark.parametrize(("inside", "rank", "step"), INSIDE)
def test_any_place_inside_leads_to_the_dump(dump: Path, inside: str, rank: int | None, step: int | None) -> None:
    found = find_dump(dump / inside)
    assert (found.root, found.rank, found.step) == (dump, rank, step)


def test_a_tensor_file_leads_to_its_step(dump: Path) -> None:
    file = next((dump / "rank_0/Net/0/3").iterdir())
    source = open_source(file)
    assert asked(source) == {0: [3]}
    assert source.scope.text.startswith(f"rank_0/Net/0/3/{file.name} of monday/: give ")


def test_one_and_two_levels_above(tmp_path: Path) -> None:
    dump = tmp_path / "far/runs/monday"
    write_dump(dump, steps=(0, 3))
    assert find_dump(dump.parent).root == dump
    assert find_dump(dump.parent.parent).root == dump
    with pytest.raises(NotADumpError):
        find_dump(dump.parent.parent.parent)


def test_relative_paths_trailing_slashes_and_dots(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(dump / "rank_0")
    for text in (".", "..", "../", "Net/0/3/", "../rank_0/../rank_0/Net"):
        assert find_dump(Path(text)).root == dump


def test_symbolic_links_to_a_dump_into_it_and_as_parts_of_it(dump: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(dump)
    (tmp_path / "third").symlink_to(dump / "rank_0/Net/0/3")
    assert find_dump(tmp_path / "latest").root == tmp_path / "latest"
    assert find_dump(tmp_path / "latest/rank_0/Net/0/3").step == 3
    assert find_dump(tmp_path / "third").root == dump
    elsewhere = tmp_path / "disk2" / "r0"
    elsewhere.parent.mkdir()
    (dump / "rank_0").rename(elsewhere)
    (dump / "rank_0").symlink_to(elsewhere)
    assert find_dump(dump / "rank_0/Net/0/3").root == dump


def test_a_folder_beside_the_ranks(dump: Path) -> None:
    (dump / "script").mkdir()
    assert find_dump(dump / "script").root == dump


def test_a_rank_without_metadata_counts(tmp_path: Path) -> None:
    DumpWriter(tmp_path).step(0, rank=1)
    assert find_dump(tmp_path).root == tmp_path
    assert open_source(tmp_path).ranks() == [1]


def test_a_directory_that_is_only_called_rank_is_no_dump(tmp_path: Path) -> None:
    (tmp_path / "rank_0").mkdir()
    with pytest.raises(NotADumpError):
        find_dump(tmp_path)


def test_several_dumps_are_listed(tmp_path: Path) -> None:
    for name in ("a", "b/c"):
        write_dump(tmp_path / name, steps=(0,))
    with pytest.raises(NotADumpError, match=r"Several dumps here: a, b/c") as caught:
        find_dump(tmp_path)
    assert "one of them" in caught.value.hint


def test_nothing_recognisable_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(NotADumpError) as caught:
        open_source(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "Looked for MindSpore, " in caught.value.what
    assert caught.value.hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["nothing", "x" * 300, "nul\0byte"])
def test_a_path_that_does_not_exist(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotADumpError):
        open_source(tmp_path / name)


@pytest.mark.parametrize(
    ("tree", "inside", "layout"),
    [
        ("net/device_0/iteration_0/x.bin", "", "1.1 or 1.2"),
        ("net/iteration_3/x.bin", "net/iteration_3", "1.1 or 1.2"),
        ("out/acl_dump_0.json", "", "GE/ACL"),
        ("step0/rank0/dump.json", "", "msprobe"),
        ("step0/rank0/dump_tensor_data/x.npy", "step0/rank0/dump_tensor_data", "msprobe"),
    ],
)
def test_layouts_that_cannot_be_read_yet_are_named(tmp_path: Path, tree: str, inside: str, layout: str) -> None:
    file = tmp_path / "dump" / tree
    file.parent.mkdir(parents=True)
    file.touch()
    with pytest.raises(NotADumpError, match=layout):
        find_dump(tmp_path / "dump" / inside)


LISTINGS = """
import json, os, sys
from pathlib import Path
from tui_debugger.sources.registry import open_source

found, scandir = [], os.scandir

def watching(path):
    found[-1].append(str(path))
    return scandir(path)

os.scandir = watching
for inside in sys.argv[2:]:
    found.append([])
    assert list(open_source(Path(sys.argv[1]) / inside).steps(0)) == [0, 3]
print(json.dumps(found))
"""


def test_opening_lists_a_few_directories_and_no_step(dump: Path) -> None:
    """In a process of its own: threads, readers and mounts that other tests have left look at directories, too."""
    command = [sys.executable, "-c", LISTINGS, str(dump), *(inside for inside, _, _ in INSIDE)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    for listed in json.loads(answer.stdout):
        below = [path for path in listed if path.startswith(str(dump.parent))]
        assert below
        assert not [path for path in below if path.endswith(("/0/0", "/0/3"))]
        assert len(below) <= 8, below


def test_the_inventory_enters_no_step_that_was_not_listed(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step may hold very many files."""
    seen: list[str] = []
    scandir = os.scandir

    @contextmanager
    def watching(path: str | Path) -> Iterator[Iterator[os.DirEntry[str]]]:
        def entries() -> Iterator[os.DirEntry[str]]:
            for entry in each:
                seen.append(str(path))
                yield entry

        with scandir(path) as each:
            yield entries()

    source = open_source(dump)
    monkeypatch.setattr(os, "scandir", watching)
    assert RunInventory().take(source).parts == ()
    assert len([path for path in seen if path.endswith(("/0/0", "/0/3"))]) <= 2


def test_real_dumps_side_by_side(dumps: Callable[[str], Path]) -> None:
    first, second = dumps("mindspore-2.0-mlp"), dumps("mindspore-2.0-nan")
    assert first.parent == second.parent
    with pytest.raises(NotADumpError, match="Several dumps"):
        find_dump(first.parent)


def test_loops_of_links_and_dangling_links(tmp_path: Path, dump: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    for name in ("loop", "gone"):
        with pytest.raises(NotADumpError):
            find_dump(tmp_path / name)
    assert find_dump(tmp_path).root == dump


def test_places_that_may_not_be_read_are_no_dumps(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", denied)
    monkeypatch.setattr(os, "stat", denied)
    with pytest.raises(NotADumpError):
        find_dump(dump)
