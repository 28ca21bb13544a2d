"""Recent dumps in the state directory, and the overview of everything that can be opened."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from tests.hostile import EVIL_FILE
from tests.sources.writer import write_dump
from tui_debugger.check.verdicts import Outcome
from tui_debugger.diagnose.headline import Headline
from tui_debugger.errors import CancelledError
from tui_debugger.model import Progress
from tui_debugger.session.dumps import (
    KEPT,
    KnownDump,
    LastVerdict,
    Overview,
    RecentDumps,
    overview,
    state_directory,
)

FOUND = LastVerdict("Begins at step 3: Log-op1, NaN 1 of 4", "finding", 1, 1e9)


def paths(recent: RecentDumps) -> list[str]:
    return [each.path for each in recent.dumps()]


@pytest.fixture
def recent(tmp_path: Path) -> RecentDumps:
    return RecentDumps(tmp_path / "state")


def test_the_state_directory_is_where_xdg_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert state_directory() == tmp_path / "state/tdbg"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_directory() == tmp_path / ".local/state/tdbg"


def test_the_one_that_was_opened_last_comes_first(recent: RecentDumps) -> None:
    for name in ("/a", "/b", "/c", "/a"):
        recent.opened(name)
    assert paths(recent) == ["/a", "/c", "/b"]
    assert recent.problems == []


def test_links_lead_to_one_dump(recent: RecentDumps, tmp_path: Path) -> None:
    (tmp_path / "dump").mkdir()
    (tmp_path / "link").symlink_to("dump")
    recent.opened(str(tmp_path / "link"))
    recent.opened(str(tmp_path / "dump"))
    assert paths(recent) == [str(tmp_path / "dump")]


def test_the_verdict_stays_when_the_dump_is_opened_again(recent: RecentDumps) -> None:
    recent.opened("/a")
    recent.judged("/a", FOUND)
    recent.opened("/a")
    (known,) = recent.dumps()
    assert known.verdict == FOUND


@pytest.mark.parametrize(
    ("before", "now", "kept"),
    [
        ("finding", "clean", "clean"),
        ("clean", "interrupted", "clean"),
        ("interrupted", "interrupted", "interrupted"),
        ("interrupted", "cannot_judge", "cannot_judge"),
    ],
)
def test_a_check_that_was_not_finished_replaces_none_that_was(
    recent: RecentDumps, before: str, now: str, kept: str
) -> None:
    for outcome in (before, now):
        recent.judged("/a", LastVerdict(outcome, outcome, 0, 1e9))
    (known,) = recent.dumps()
    assert known.verdict is not None
    assert known.verdict.words == kept


@pytest.mark.parametrize(("outcome", "code"), [*zip(Outcome, (1, 0, 2, 130), strict=True)])
def test_a_verdict_has_the_words_of_the_headline_and_its_exit_code(outcome: Outcome, code: int) -> None:
    verdict = LastVerdict.of(Headline(outcome, "Begins at step 3:", "Log-op1, NaN", "the logarithm of 0", "1 more"))
    assert verdict.words == "Begins at step 3: Log-op1, NaN (the logarithm of 0) · 1 more"
    assert (verdict.outcome, verdict.exit_code) == (outcome.value, code)
    assert verdict.when > 1e9


def test_only_so_many_are_kept(recent: RecentDumps, tmp_path: Path) -> None:
    for number in range(KEPT + 5):
        recent.opened(f"/dump{number}")
        for file in (tmp_path / "state").iterdir():  # as if time had gone by
            os.utime(file, (file.stat().st_mtime - 10,) * 2)
    assert paths(recent) == [f"/dump{number}" for number in range(KEPT + 4, 4, -1)]
    assert len(list((tmp_path / "state").iterdir())) == KEPT


def test_one_can_be_forgotten(recent: RecentDumps) -> None:
    recent.opened("/a")
    recent.opened("/b")
    recent.forget("/a")
    recent.forget("/never opened")
    assert paths(recent) == ["/b"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1]",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"path": "relative", "opened": 1}',
        b'{"path": "/a\\u0000b", "opened": 1}',
        b'{"path": "/a", "opened": "yesterday"}',
        b'{"path": "/a", "opened": NaN}',
        b'{"path": "/a", "opened": true}',
        b'{"path": "/a", "opened": 1, "verdict": {"words": 3}}',
        b'{"path": "/a", "opened": 1, "x": "' + b"x" * 70_000 + b'"}',
    ],
)
def test_a_damaged_file_is_left_out_with_a_notice(recent: RecentDumps, tmp_path: Path, content: bytes) -> None:
    recent.opened("/good")
    (tmp_path / "state/recent-0000000000000000.json").write_bytes(content)
    assert paths(recent) == ["/good"]
    (problem,) = recent.problems
    assert problem.startswith("a recent dump is left out, its file cannot be used: ")
    assert "recent-0000000000000000.json" in problem


def test_a_pipe_in_the_place_of_a_file_does_not_hang(recent: RecentDumps, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    os.mkfifo(tmp_path / "state/recent-0.json")
    assert paths(recent) == []
    assert "a FIFO in place of a file" in recent.problems[0]


def test_a_state_directory_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    recent = RecentDumps(tmp_path / "file")
    recent.opened("/a")
    assert paths(recent) == []
    assert recent.problems == ["a recent dump could not be remembered: File exists"]


def test_without_a_home_nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", nobody)
    recent = RecentDumps()
    recent.opened("/a")
    recent.judged("/a", FOUND)
    recent.forget("/a")
    assert recent.dumps() == ()
    assert recent.problems == ["recent dumps are not remembered: Could not determine home directory."]


def test_any_path_survives(recent: RecentDumps) -> None:
    for path in (f"/dump{EVIL_FILE}", "/" + "long/" * 800 + "end", "/ü\udcff"):
        recent.opened(path)
        assert path in paths(recent)
    assert recent.problems == []


def _open_many(directory: Path, name: str) -> None:
    recent = RecentDumps(directory)
    for number in range(10):
        recent.opened(f"/{name}{number}")
        recent.judged(f"/{name}{number}", FOUND)


def test_programs_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    programs = [context.Process(target=_open_many, args=(tmp_path, name)) for name in "ab"]
    for program in programs:
        program.start()
    for program in programs:
        program.join(60)
        assert program.exitcode == 0
    recent = RecentDumps(tmp_path)
    assert sorted(paths(recent)) == sorted(f"/{name}{number}" for name in "ab" for number in range(10))
    assert all(each.verdict == FOUND for each in recent.dumps())
    assert recent.problems == []
    assert not list(tmp_path.glob("*.tmp"))


def test_a_file_is_plain_json(recent: RecentDumps, tmp_path: Path) -> None:
    recent.judged("/a", FOUND)
    (file,) = (tmp_path / "state").iterdir()
    assert json.loads(file.read_text("ascii"))["verdict"]["words"] == FOUND.words


# -- the overview --------------------------------------------------------------------------------------


def last(start: Path, recent: RecentDumps, *, with_recent: bool = True) -> Overview:
    *_, end = overview(start, recent, with_recent=with_recent)
    return end


def named(found: Overview) -> list[tuple[str, bool, bool]]:
    """(name, found here, opened before)."""
    return [(Path(each.path).name, each.here, each.recent is not None) for each in found.dumps]


def test_recent_dumps_come_first_and_once(recent: RecentDumps, tmp_path: Path) -> None:
    here = tmp_path / "here"
    for path in (here / "one", here / "two", tmp_path / "elsewhere"):
        write_dump(path, steps=(0, 1))
    recent.opened(str(tmp_path / "elsewhere"))
    recent.opened(str(here / "two"))
    found = last(here, recent)
    assert named(found) == [("two", True, True), ("elsewhere", False, True), ("one", True, False)]
    assert all(each.facts is not None and each.facts.steps == (0, 1) for each in found.dumps)
    assert (found.ended, found.complete, found.stopped, found.notices) == (True, True, False, ())
    found = last(here, recent, with_recent=False)
    assert named(found) == [("one", True, False), ("two", True, True)]


def test_the_first_answer_needs_no_look_at_any_dump(recent: RecentDumps, tmp_path: Path) -> None:
    recent.opened("/elsewhere")
    first = next(iter(overview(tmp_path, recent)))
    assert first.dumps == (KnownDump("/elsewhere", recent.dumps()[0]),)
    assert not first.ended


def test_a_dump_that_is_gone_is_marked(recent: RecentDumps, tmp_path: Path) -> None:
    recent.opened(str(tmp_path / "gone"))
    (dump,) = last(tmp_path, recent).dumps
    assert (dump.gone, dump.facts) == (True, None)


def test_what_was_written_after_the_verdict_is_known(recent: RecentDumps, tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", steps=(0,))
    recent.judged(str(tmp_path / "dump"), FOUND)
    (dump,) = last(tmp_path, recent).dumps
    assert dump.outdated, "the verdict is of long ago"
    recent.judged(str(tmp_path / "dump"), LastVerdict("Clean", "clean", 0, 9e9))
    (dump,) = last(tmp_path, recent).dumps
    assert not dump.outdated


def test_an_overview_that_is_stopped_keeps_what_it_found(recent: RecentDumps, tmp_path: Path) -> None:
    for number in range(3):
        write_dump(tmp_path / f"run{number}", steps=(0,))

    def stop(progress: Progress) -> None:
        if progress.done == 3:
            raise CancelledError("stopped")

    *_, end = overview(tmp_path, recent, stop)
    assert [name for name, _, _ in named(end)] == ["run0", "run1"]
    assert (end.ended, end.stopped, end.complete) == (True, True, False)
    assert end.notices[0] == "stopped: not everything was looked at"


def test_damaged_files_are_told_of(recent: RecentDumps, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/recent-1.json").touch()
    assert "is left out" in last(tmp_path, recent).notices[0]
