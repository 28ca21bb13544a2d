"""What one session has measured, the next one knows, as long as the files are what they were."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.linked import linked, own
from tests.opened_files import opened_tensor_files
from tests.sources.writer import age
from tui_debugger.cache.store import DiskCache
from tui_debugger.check import records
from tui_debugger.session import CheckResult, Session
from tui_debugger.sources.registry import open_source
from tui_debugger.stats.records import Records
from tui_debugger.watch.text import parse_watch

SEVEN = (
    "TO",
    "TL abs_mean_gt=1e3",
    "TZ zero_percentage_ge=100",
    "TR range_percentage_lt=1 range_start_inclusive=-100 range_end_inclusive=100",
    "WNC @ category=tensor",
    "WCL abs_mean_update_ratio_gt=10 @ category=tensor",
    "TS abs_mean_lt=1e-12",
)


@pytest.fixture
def dump(dumps: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy whose files were written long ago."""
    copy = tmp_path / "dump"
    return linked(dumps("mindspore-2.0-nan"), copy)


class Opener:
    """Opens sessions that share an index."""

    def __init__(self, dump: Path, cache: Path) -> None:
        self.dump, self.cache = dump, cache

    def check(self, watch: Sequence[str], steps: Sequence[int] | None = None) -> tuple[CheckResult, list[str]]:
        """A check in a session of its own, and the tensor files that it opened."""
        store = DiskCache(self.cache)
        with opened_tensor_files() as opened:
            session = Session(open_source(self.dump, store), index=store)
            for text in watch:
                session.watchpoints.add(*parse_watch(text))
            result = session.check(session.pairs(steps=steps))
            assert all(hit.results for hit in result.hits)
            session.close()
        return result, opened


@pytest.fixture
def opener(dump: Path, tmp_path: Path) -> Opener:
    return Opener(dump, tmp_path / "cache")


def forgetful(dump: Path, watch: Sequence[str]) -> CheckResult:
    """The same check without an index."""
    session = Session(open_source(dump))
    for text in watch:
        session.watchpoints.add(*parse_watch(text))
    return session.check(session.pairs())


def file_of(dump: Path, step: int, part: str) -> Path:
    """A tensor file of a step."""
    return next(path for path in sorted(dump.rglob(f"{step}/*.npy")) if part in path.name)


def rewrite(path: Path, *, later_ns: int = 10**9) -> None:
    """Other values of the same size, as if written a while after the ones before."""
    before = path.stat().st_mtime_ns
    values = np.load(own(path))
    np.save(path, np.full_like(values, np.nan))
    os.utime(path, ns=(before + later_ns, before + later_ns))


def test_a_second_session_opens_no_tensor_file_and_finds_the_same(opener: Opener) -> None:
    first, opened = opener.check(SEVEN)
    assert len(set(opened)) > 5000
    second, again = opener.check(SEVEN)
    assert again == []
    assert second.hits == first.hits
    assert second.coverage == first.coverage
    assert first.hits == forgetful(opener.dump, SEVEN).hits


def test_other_thresholds_open_no_tensor_file(opener: Opener) -> None:
    opener.check(SEVEN)
    others = (
        "TL max_gt=5",
        "TL mean_gt=0.1",
        "TZ zero_percentage_ge=10",
        "TR range_percentage_gt=99.5 range_start_inclusive=-100 range_end_inclusive=100",
        "TR max_min_gt=3",
        "TS min_lt=-1",
        "WCS abs_mean_update_ratio_lt=1e-3 @ category=tensor",
        "WNC rtol=0 atol=0 @ category=weight",
    )
    result, opened = opener.check(others)
    assert opened == []
    assert result.hits == forgetful(opener.dump, others).hits


def test_the_origin_after_a_check_opens_no_tensor_file(opener: Opener) -> None:
    opener.check(["TO"])
    store = DiskCache(opener.cache)
    with opened_tensor_files() as opened:
        session = Session(open_source(opener.dump, store), index=store)
        report = session.find_origin(session.pairs())
        session.close()
    assert opened == []
    assert len(report.origins) == 2


def test_a_range_that_the_extremes_do_not_decide_is_read_again_and_then_known(opener: Opener) -> None:
    opener.check(SEVEN)
    other = ["TR range_percentage_gt=50 range_start_inclusive=0 range_end_inclusive=0.5"]
    result, opened = opener.check(other)
    assert 0 < len(set(opened)) < 5000
    assert result.hits == forgetful(opener.dump, other).hits
    assert opener.check(other)[1] == []


def test_a_file_that_changed_is_read_again_and_what_was_compared_with_it(opener: Opener) -> None:
    opener.check(SEVEN)
    changed = file_of(opener.dump, 1, "Parameter.head.weight")
    rewrite(changed)
    result, opened = opener.check(SEVEN)
    names = {(Path(path).parent.name, Path(path).name.rsplit(".", 4)[0]) for path in opened}
    assert {step for step, _ in names} <= {"0", "1", "2"}
    assert str(changed) in opened
    assert result.hits == forgetful(opener.dump, SEVEN).hits


def test_a_file_of_another_size_with_the_old_time_is_read_again(opener: Opener) -> None:
    opener.check(["TO"])
    path = file_of(opener.dump, 2, "head.bias")
    when = path.stat().st_mtime_ns
    np.save(own(path), np.full(7, np.inf, np.float32))
    os.utime(path, ns=(when, when))
    result, opened = opener.check(["TO"])
    assert set(opened) == {str(path)}
    assert any(hit.key.step == 2 for hit in result.hits)


def test_a_step_that_appeared_in_between_is_what_the_next_one_is_compared_with(opener: Opener, tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    (step,) = [path for path in opener.dump.rglob("2") if path.is_dir()]
    shutil.move(step, aside)
    opener.check(SEVEN)
    shutil.move(aside, step)
    result, _ = opener.check(SEVEN)
    assert result.hits == forgetful(opener.dump, SEVEN).hits


def test_a_young_file_is_never_believed(opener: Opener) -> None:
    path = file_of(opener.dump, 0, "head.weight")
    np.save(own(path), np.load(path))
    opener.check(["TO"])
    assert str(path) in opener.check(["TO"])[1]


def test_unreadable_files_are_looked_at_again(opener: Opener) -> None:
    path = file_of(opener.dump, 0, "head.weight")
    when, whole = path.stat().st_mtime_ns, path.read_bytes()
    own(path).write_bytes(whole[:-4])
    os.utime(path, ns=(when, when))
    assert opener.check(["TO"])[0].coverage.unreadable == 1
    path.write_bytes(whole)
    os.utime(path, ns=(when, when))
    assert opener.check(["TO"])[0].coverage.unreadable == 0


def test_one_step_after_another_is_remembered_like_all_at_once(opener: Opener) -> None:
    for step in range(6):
        opener.check(SEVEN, [step])
    result, opened = opener.check(SEVEN)
    assert opened == []
    assert result.hits == forgetful(opener.dump, SEVEN).hits


def test_a_table_that_is_looked_at_node_by_node_is_remembered_at_the_end(opener: Opener) -> None:
    def look() -> tuple[list[object], list[str]]:
        store = DiskCache(opener.cache)
        with opened_tensor_files() as opened:
            session = Session(open_source(opener.dump, store), index=store)
            row = session.nodes(0).find("head.weight")
            rows = session.measure(session.tensor_rows(0, 1, row))
            session.close()
        return [each.stats for each in rows], opened

    first, opened = look()
    assert opened
    assert look() == (first, [])


# -- the index is never a liar ---------------------------------------------------------------------


def index_of(opener: Opener) -> tuple[CheckResult, Session]:
    """A check of a session that takes its sample of the index; and that session, still open."""
    store = DiskCache(opener.cache)
    session = Session(open_source(opener.dump, store), index=store)
    session.watchpoints.add(*parse_watch("TO"))
    return session.check(session.pairs()), session


@pytest.fixture
def lying(opener: Opener, monkeypatch: pytest.MonkeyPatch) -> Opener:
    """An index that says of every tensor what was never measured, as a file system without times makes it."""
    measured = records.pack

    def other(found: Records) -> bytes:
        found.rows["maximum"] += 1
        return measured(found)

    with monkeypatch.context() as patch:
        patch.setattr(records, "pack", other)
        opener.check(["TO"])
    return opener


def test_a_replaced_file_of_the_same_size_and_time_is_read_again(opener: Opener, tmp_path: Path) -> None:
    opener.check(["TO"])
    path = file_of(opener.dump, 0, "head.bias")
    status = path.stat()
    np.save(tmp_path / "other.npy", np.full_like(np.load(path), np.nan))
    os.utime(tmp_path / "other.npy", ns=(status.st_atime_ns, status.st_mtime_ns))
    (tmp_path / "other.npy").replace(path)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    result, opened = opener.check(["TO"])
    assert str(path) in opened
    assert any(hit.key.step == 0 and hit.key.node == "head.bias" for hit in result.hits)


def test_some_of_the_index_is_measured_again_in_every_session(opener: Opener) -> None:
    opener.check(["TO"])
    _, session = index_of(opener)
    assert session.unreadable() == ()
    session.close()
    assert opener.check(["TO"])[1] == [], "it was right, and stays"


def test_an_index_that_lies_is_emptied_and_nothing_is_clean(lying: Opener) -> None:
    _, session = index_of(lying)
    (part,) = session.unreadable()
    assert part.where == "the index"
    assert "emptied, check again" in part.why
    assert session.unreadable(session.pairs()[:1]) == (part,), "whatever is asked"
    session.close()
    result, session = index_of(lying)
    assert session.unreadable() == ()
    assert result.hits == forgetful(lying.dump, ["TO"]).hits
    session.close()


def test_sums_beyond_float64_are_what_the_index_says(tmp_path: Path) -> None:
    """Their squares are infinite, each time they are measured."""
    (tmp_path / "dump" / "step_0").mkdir(parents=True)
    for name, values in {"all": [1e300, 1e300], "mixed": [1e308, -1e308, 1.0]}.items():
        np.save(tmp_path / "dump" / "step_0" / f"{name}.npy", np.array(values))
    age(tmp_path / "dump")
    opener = Opener(tmp_path / "dump", tmp_path / "cache")
    opener.check(["TO"])
    store = DiskCache(opener.cache)
    session = Session(open_source(opener.dump, store), index=store)
    found = session.verify_index()
    session.close()
    assert (found.right, found.unread, found.lie) == (2, 0, "")


def test_verify_measures_everything_again(opener: Opener) -> None:
    opener.check(["TO"])
    _, session = index_of(opener)
    found = session.verify_index()
    assert (found.unread, found.lie) == (0, "")
    assert found.right > 5000
    session.close()


def test_verify_says_which_file_and_empties(lying: Opener) -> None:
    with opened_tensor_files():
        session = Session(open_source(lying.dump), index=DiskCache(lying.cache))
    found = session.verify_index()
    assert found.right == 0
    assert Path(found.lie).is_relative_to(lying.dump)
    session.close()
    assert lying.check(["TO"])[1], "everything is measured anew"


def test_verify_counts_what_cannot_be_read_any_more(opener: Opener) -> None:
    opener.check(["TO"])
    with opened_tensor_files():
        store = DiskCache(opener.cache)
        session = Session(open_source(opener.dump, store), index=store)
    for rank, step in session.pairs():
        session.measurements(rank).kept(step)
    gone = file_of(opener.dump, 0, "head.bias")
    own(gone).unlink()
    assert session.verify_index().unread == 1
    session.close()
