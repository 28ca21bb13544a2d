"""The search for dumps below a directory: what it finds, where it stops, and what it says that it did not look at."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.sources.arrays import write_arrays
from tests.sources.test_registry import OPENS, READER
from tests.sources.writer import age, write_dump
from tests.unprivileged import forbidden, unprivileged
from tui_debugger.errors import CancelledError, NotADumpError, SeveralDumpsError
from tui_debugger.model import Progress
from tui_debugger.sources.registry import find_run
from tui_debugger.sources.search import DumpFacts, DumpSearch, facts_of


def found(search: DumpSearch, start: Path) -> list[str]:
    return [os.path.relpath(path, start) for path in search.dumps()]


def empty_dump(root: Path) -> Path:
    """The names of a dump, which is all that the search looks at."""
    (root / "rank_0/.dump_metadata").mkdir(parents=True)
    return root


def test_dumps_of_every_layout_are_found_the_nearest_first(tmp_path: Path) -> None:
    write_dump(tmp_path / "runs/monday/dump", steps=(0,))
    empty_dump(tmp_path / "first")
    write_arrays(tmp_path / "runs/arrays/step_3", {"a": np.ones(2)})
    (tmp_path / "notes/empty").mkdir(parents=True)
    (tmp_path / "notes/text.txt").touch()
    search = DumpSearch(tmp_path)
    assert found(search, tmp_path) == ["first", "runs/arrays", "runs/monday/dump"]
    assert search.notices == ()
    assert search.complete


def test_nothing_is_looked_for_inside_a_dump(tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", steps=(0, 1))
    empty_dump(tmp_path / "dump/rank_0/Net/0/copy")
    search = DumpSearch(tmp_path)
    assert found(search, tmp_path) == ["dump"]
    assert search.looked == 2


@pytest.mark.parametrize("inside", [".", "rank_0", "rank_0/Net/0/1"])
def test_a_start_in_a_dump_is_that_dump(tmp_path: Path, inside: str) -> None:
    write_dump(tmp_path / "dump", steps=(0, 1))
    start = next((tmp_path / "dump").glob("rank_0/*/0/1")) if inside.endswith("1") else tmp_path / "dump" / inside
    assert list(DumpSearch(start).dumps()) == [tmp_path / "dump"]


def test_links_in_circles_are_followed_once(tmp_path: Path) -> None:
    empty_dump(tmp_path / "elsewhere/dump")
    start = tmp_path / "start"
    (start / "a/b").mkdir(parents=True)
    (start / "a/b/up").symlink_to(start)
    (start / "a/again").symlink_to(start / "a")
    (start / "link").symlink_to(tmp_path / "elsewhere")
    (start / "same").symlink_to(tmp_path / "elsewhere")
    (start / "nowhere").symlink_to(tmp_path / "missing")
    (start / "itself").symlink_to(start / "itself")
    search = DumpSearch(start)
    assert found(search, start) == ["link/dump"]
    assert search.complete


def test_hidden_directories_and_those_of_packages_are_left_out(tmp_path: Path) -> None:
    for name in (".git", "__pycache__", "node_modules", "lib/site-packages"):
        empty_dump(tmp_path / name / "dump")
    assert found(DumpSearch(tmp_path), tmp_path) == []


def test_it_says_where_it_stopped(tmp_path: Path) -> None:
    for number in range(5):
        empty_dump(tmp_path / f"many/run{number}")
    empty_dump(tmp_path / "a/b/c/deep")
    search = DumpSearch(tmp_path, most=4)
    assert found(search, tmp_path) == []
    assert (search.looked, search.left) == (4, 6)
    assert search.notices == (
        "stopped after 4 directories: 6 more and those below were left out; name one that is nearer to the dumps",
    )
    assert not search.complete
    search = DumpSearch(tmp_path, depth=2)
    assert found(search, tmp_path) == [f"many/run{number}" for number in range(5)]
    assert search.notices == ("left out 1 directory more than 2 levels below",)
    assert search.complete, "that it looks so many levels below is what it promises"


def test_a_directory_of_very_many_entries_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui_debugger.sources.search.MOST_ENTRIES", 3)
    for number in range(4):
        (tmp_path / f"d{number}").mkdir()
    search = DumpSearch(tmp_path)
    assert found(search, tmp_path) == []
    assert search.notices == (". cannot be listed: more than 3 entries",)
    assert not search.complete


def test_what_may_not_be_listed_is_said(tmp_path: Path) -> None:
    empty_dump(tmp_path / "dump")
    (tmp_path / "secret/dump").mkdir(parents=True)
    search = DumpSearch(tmp_path)
    with forbidden(tmp_path / "secret"):
        assert unprivileged(lambda: found(search, tmp_path)) == ["dump"]
    assert search.notices == ("secret cannot be listed: permission denied",)
    assert [part.where for part in search.unlisted] == [str(tmp_path / "secret")]
    assert not search.complete


def test_it_can_be_stopped(tmp_path: Path) -> None:
    for number in range(3):
        empty_dump(tmp_path / f"run{number}")
    search = DumpSearch(tmp_path)

    def stop(progress: Progress) -> None:
        if progress.done == 2:
            raise CancelledError("stopped")

    dumps = search.dumps(stop)
    assert next(dumps) == tmp_path / "run0"
    with pytest.raises(CancelledError):
        next(dumps)


def test_readers_of_other_packages_are_asked(tmp_path: Path, install) -> None:
    install("theirs_searched", READER.replace("{open}", OPENS))
    install("theirs_broken", "import no_such_module_at_all")
    install("theirs_raising", READER.replace("return Recognised", "1 / 0; return Recognised").replace("{open}", OPENS))
    start = tmp_path / "start"
    for name in ("one", "two/three"):
        (start / name).mkdir(parents=True)
        (start / name / "theirs.txt").touch()
    search = DumpSearch(start)
    assert found(search, start) == ["one", "two/three"]
    assert not search.complete
    broken, raising = search.notices
    assert "theirs_broken" in broken
    assert "update or remove its package" in broken
    assert "theirs_raising" in raising
    assert "ZeroDivisionError" in raising


# -- what a dump is ------------------------------------------------------------------------------------


def test_facts_come_from_names_and_metadata(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    write_dump(dump, steps=(0, 2, 5), ranks=(0, 3))
    age(dump)
    facts = facts_of(dump)
    assert (facts.layout, facts.framework, facts.device) == ("MindSpore", "MindSpore 2.10.0", "CPU")
    assert (facts.ranks, facts.steps, facts.problem) == ((0, 3), (0, 2, 5), "")
    newest = max(path.stat().st_mtime for path in dump.glob("rank_*/*/*/"))
    assert facts.written == pytest.approx(newest, abs=1)
    write_arrays(tmp_path / "arrays/step_3", {"a": np.ones(2)})
    facts = facts_of(tmp_path / "arrays")
    assert (facts.layout, facts.framework, facts.steps) == ("tensor files", "", (3,))


def test_what_is_no_dump_any_more_has_a_problem(tmp_path: Path) -> None:
    assert facts_of(tmp_path / "gone") == DumpFacts(problem="No such file or directory, or no right to read it")
    assert facts_of(tmp_path).problem.startswith("No dump found")


def test_several_dumps_are_an_error_of_their_own(tmp_path: Path) -> None:
    for number in range(10):
        empty_dump(tmp_path / f"run{number}")
    with pytest.raises(SeveralDumpsError) as caught:
        find_run(tmp_path)
    assert isinstance(caught.value, NotADumpError)
    assert caught.value.what == f"Several dumps here: {', '.join(f'run{number}' for number in range(8))}, …"
    assert (caught.value.where, caught.value.hint) == (str(tmp_path), "name one of them")
