"""The watchpoint list: ids, versions, and what survives a restart."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.errors import BadWatchpointError
from tui_debugger.model import NodeKind, NodeSelection, NodeSelector
from tui_debugger.session import watchpoints as module
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


# -- undo ------------------------------------------------------------------------------------------

Edit = Callable[[WatchpointList, int], object]
FILE = [
    dataclasses.replace(WatchpointList().add("tensor_too_large", {"max_gt": limit}), enabled=limit < 3)
    for limit in (1.0, 2.0, 3.0)
]


def pick(watchpoints: WatchpointList, at: int) -> int:
    """The id of some watchpoint of the list, or one that is not there."""
    items = watchpoints.items()
    return items[at % len(items)].id if items else at


def edit(watchpoints: WatchpointList, at: int) -> None:
    found = watchpoints.get(pick(watchpoints, at))
    if found is not None:
        watchpoints.replace(dataclasses.replace(found, selection=SOME if at % 2 else NodeSelection(), name=str(at)))


EDITS: dict[str, Edit] = {
    "add": lambda list_, at: list_.add("tensor_all_zero", {"zero_percentage_ge": float(at)}),
    "edit": edit,
    "enable": lambda list_, at: list_.set_enabled(pick(list_, at), True),
    "disable": lambda list_, at: list_.set_enabled(pick(list_, at), False),
    "delete": lambda list_, at: list_.delete(pick(list_, at)),
    "clear": lambda list_, _: list_.clear(),
    "load": lambda list_, at: list_.add_missing(FILE[: at % 4]),
}
STEPS = st.lists(st.tuples(st.sampled_from([*EDITS, "undo", "redo"]), st.integers(0, 20)), max_size=30)


@given(STEPS)
def test_undoing_everything_and_doing_it_again_goes_through_the_same_lists(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = WatchpointStore("/data/run", Path(directory))
        watchpoints = WatchpointList(store)
        lists = [watchpoints.items()]
        at = 0  # which of the lists is the present one: those before it can be reached by undo
        for name, number in steps:
            before, version = watchpoints.items(), watchpoints.version
            if name == "undo":
                assert (watchpoints.undo() is None) == (at == 0)
                at = max(at - 1, 0)
            elif name == "redo":
                assert (watchpoints.redo() is None) == (at == len(lists) - 1)
                at = min(at + 1, len(lists) - 1)
            else:
                EDITS[name](watchpoints, number)
                if watchpoints.items() != before:
                    lists[at + 1 :] = [watchpoints.items()]
                    at += 1
            assert watchpoints.items() == lists[at]
            assert (watchpoints.version > version) == (watchpoints.items() != before)
            kept = read_watch_file(store.path) if store.path.exists() else ()
            assert [dataclasses.replace(w, id=0) for w in kept] == [dataclasses.replace(w, id=0) for w in lists[at]]
        while at:
            at -= 1
            watchpoints.undo()
            assert watchpoints.items() == lists[at]
        assert watchpoints.undo() is None
        for again in lists[1:]:
            watchpoints.redo()
            assert watchpoints.items() == again
        assert watchpoints.redo() is None


def test_a_deleted_watchpoint_comes_back_under_its_own_number_and_a_new_one_gets_another() -> None:
    watchpoints = WatchpointList()
    first, second = watchpoints.add("tensor_overflow"), watchpoints.add("tensor_all_zero")
    watchpoints.delete(first.id)
    watchpoints.undo()
    assert watchpoints.items() == (first, second)
    watchpoints.undo()
    assert watchpoints.items() == (first,)
    assert watchpoints.add("tensor_all_zero").id == 3, "2 may be redone, or stand in an older result"
    assert watchpoints.redo() is None, "a change after an undo: what was undone is gone"


def test_what_was_undone_is_not_kept_for_the_next_session(tmp_path: Path) -> None:
    watchpoints = WatchpointList(WatchpointStore("/data/run", tmp_path))
    kept = watchpoints.add("tensor_overflow")
    watchpoints.add("tensor_all_zero")
    watchpoints.undo()
    assert WatchpointList(WatchpointStore("/data/run", tmp_path)).items() == (kept,)
    watchpoints.undo()
    assert WatchpointList(WatchpointStore("/data/run", tmp_path)).items() == ()


def test_every_change_says_what_it_did() -> None:
    watchpoints = WatchpointList()
    watchpoints.add("tensor_overflow")
    watchpoints.set_enabled(1, False)
    watchpoints.set_enabled(1, True)
    watchpoints.replace(dataclasses.replace(watchpoints.items()[0], selection=SOME))
    watchpoints.replace(dataclasses.replace(watchpoints.items()[0], selection=NodeSelection()), "3 nodes taken out")
    watchpoints.add_missing(FILE)
    watchpoints.delete(4)
    watchpoints.clear()
    said = []
    while change := watchpoints.undo():
        said.append(change.words)
    assert said == [
        "3 watchpoints deleted",
        "TL #4 deleted",
        "3 watchpoints added",
        "3 nodes taken out",
        "TO #1 edited",
        "TO #1 enabled",
        "TO #1 disabled",
        "TO #1 added",
    ]


def test_a_wrong_watchpoint_among_several_adds_none_of_them() -> None:
    watchpoints = WatchpointList()
    wrong = dataclasses.replace(FILE[0], params=(("max_gt", float("nan")),))
    with pytest.raises(BadWatchpointError):
        watchpoints.add_missing([FILE[0], wrong])
    assert watchpoints.items() == ()
    assert watchpoints.undo() is None


def test_undo_ends_at_the_list_that_a_person_found(monkeypatch: pytest.MonkeyPatch) -> None:
    watchpoints = WatchpointList()
    watchpoints.add("tensor_overflow")
    watchpoints.forget_changes()
    assert watchpoints.undo() is None
    monkeypatch.setattr(module, "UNDONE_AT_MOST", 2)
    limited = WatchpointList()
    for _ in range(4):
        limited.add("tensor_overflow")
    assert [change is not None for change in (limited.undo(), limited.undo(), limited.undo())] == [True, True, False]
    assert len(limited) == 2
