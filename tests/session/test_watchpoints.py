"""The watchpoint list: ids, versions, and what survives a restart."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tui_debugger.errors import BadWatchpointError
from tui_debugger.model import NodeKind, NodeSelection, NodeSelector
from tui_debugger.session.watchpoints import WatchpointList, WatchpointStore, read_watch_file

SOME = NodeSelection(
    (NodeSelector(NodeKind.REGEX, r"fc\d, [x]"), NodeSelector(NodeKind.SCOPE, "Default/a b")),
    (NodeSelector(NodeKind.NODE, "fc1.weight"),),
)


def test_ids_start_at_one_and_are_not_reused() -> None:
    watchpoints = WatchpointList()
    first = watchpoints.add("tensor_overflow")
    second = watchpoints.add("tensor_all_zero", {"zero_percentage_ge": 50.0})
    assert (first.id, second.id) == (1, 2)
    watchpoints.delete(2)
    assert watchpoints.add("tensor_overflow").id == 3


def test_every_change_that_can_change_a_result_raises_the_version() -> None:
    watchpoints = WatchpointList()
    made = watchpoints.add("tensor_overflow")
    versions = [watchpoints.version]
    watchpoints.set_enabled(made.id, False)
    versions.append(watchpoints.version)
    watchpoints.set_enabled(made.id, False)
    assert watchpoints.version == versions[-1], "nothing changed"
    watchpoints.replace(made)
    versions.append(watchpoints.version)
    watchpoints.clear()
    versions.append(watchpoints.version)
    assert versions == sorted(set(versions))


def test_a_broken_watchpoint_is_refused_and_nothing_changes() -> None:
    watchpoints = WatchpointList()
    with pytest.raises(BadWatchpointError):
        watchpoints.add("tensor_all_zero", {"zero_percentage_ge": 101.0})
    assert watchpoints.items() == ()
    assert watchpoints.version == 0
    with pytest.raises(BadWatchpointError):
        watchpoints.replace(WatchpointList().add("tensor_overflow"))


def test_the_list_is_restored_for_the_same_dump_only(tmp_path: Path) -> None:
    store = WatchpointStore("/data/run", tmp_path)
    watchpoints = WatchpointList(store)
    watchpoints.add("tensor_too_large", {"abs_mean_gt": 0.1}, SOME, name="mine")
    watchpoints.set_enabled(1, False)
    watchpoints.offered = True

    again = WatchpointList(WatchpointStore("/data/run", tmp_path))
    assert again.items() == watchpoints.items()
    assert again.offered
    assert again.add("tensor_overflow").id == 2
    assert WatchpointList(WatchpointStore("/data/other", tmp_path)).items() == ()


@pytest.mark.parametrize("text", ["{", "[]", "format = 99", "\0", "watchpoint = 1", "[[watchpoint]]\nwatch = 'XX'"])
def test_a_broken_file_is_a_problem_to_mention_not_an_error_and_is_put_aside(tmp_path: Path, text: str) -> None:
    store = WatchpointStore("/data/run", tmp_path)
    store.path.write_text(text)
    watchpoints = WatchpointList(store)
    assert watchpoints.items() == ()
    assert watchpoints.problem
    watchpoints.add("tensor_overflow")
    assert store.path.with_suffix(".old").read_text() == text
    assert [w.condition for w in WatchpointList(WatchpointStore("/data/run", tmp_path)).items()] == ["tensor_overflow"]


def test_one_broken_entry_does_not_take_the_others_along(tmp_path: Path) -> None:
    store = WatchpointStore("/data/run", tmp_path)
    store.path.write_text("offered = true\n[[watchpoint]]\nwatch = 'TO'\n[[watchpoint]]\nwatch = 'XX'\n")
    watchpoints = WatchpointList(store)
    assert [w.condition for w in watchpoints.items()] == ["tensor_overflow"]
    assert watchpoints.offered
    assert "watchpoint 2: XX" in watchpoints.problem


def test_what_the_list_keeps_is_a_watchpoint_file(tmp_path: Path) -> None:
    store = WatchpointStore("/data/run", tmp_path)
    watchpoints = WatchpointList(store)
    watchpoints.add("tensor_too_large", {"abs_mean_gt": 0.1}, SOME, name="mine")
    watchpoints.set_enabled(watchpoints.add("tensor_overflow").id, False)
    assert read_watch_file(store.path) == watchpoints.items()


def test_a_state_directory_that_cannot_be_written_is_a_problem_to_mention(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    watchpoints = WatchpointList(WatchpointStore("/data/run", tmp_path / "file" / "below"))
    watchpoints.add("tensor_overflow")
    assert len(watchpoints) == 1
    assert "could not be" in watchpoints.problem


def test_what_the_list_holds_already_is_not_added_again() -> None:
    watchpoints = WatchpointList()
    first = watchpoints.add("tensor_too_large", {"abs_mean_gt": 0.1}, SOME)
    other = dataclasses.replace(first, params=(("abs_mean_gt", 0.2),))
    assert watchpoints.add_missing([first, other, other]) == 1
    assert [dict(w.params) for w in watchpoints.items()] == [{"abs_mean_gt": 0.1}, {"abs_mean_gt": 0.2}]


def test_a_disabled_watchpoint_is_added_disabled_and_a_name_makes_no_other_rule() -> None:
    watchpoints = WatchpointList()
    off = dataclasses.replace(WatchpointList().add("tensor_overflow"), enabled=False, name="one")
    assert watchpoints.add_missing([off, dataclasses.replace(off, name="two")]) == 1
    assert watchpoints.items() == (off,)


def test_a_snapshot_is_a_version_and_what_it_means() -> None:
    watchpoints = WatchpointList()
    kept = watchpoints.add("tensor_overflow")
    watchpoints.set_enabled(watchpoints.add("tensor_all_zero").id, False)
    assert watchpoints.snapshot() == (watchpoints.version, (kept,))
