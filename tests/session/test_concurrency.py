"""A session is used by several threads at once, and work on it is stopped anywhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.session.opened import checked, found, opened
from tests.sources.writer import MLP, DumpWriter, write_dump, write_step
from tui_debugger.check.flow import DataFlow
from tui_debugger.errors import CancelledError, RenumberedError
from tui_debugger.graph.search import NodeQuery
from tui_debugger.model import NodeKind, NodeSelection, NodeSelector, Progress
from tui_debugger.session import Session
from tui_debugger.session.asked import known_selections

MATMUL, RELU, _ = (node.name for node in MLP.nodes)
NAN = np.full((2, 3), np.nan, np.float32)
THREADS_END = 60.0
"""Seconds after which a thread that still runs counts as stuck."""


def once(action: Callable[[], object]) -> Callable[[Progress], None]:
    """Progress that does something the first time it is told of measuring."""
    done = threading.Event()

    def tell(snapshot: Progress) -> None:
        if "step" in snapshot.text and not done.is_set():
            done.set()
            action()

    return tell


def spoil(writer: DumpWriter, step: int, op_type: str) -> None:
    (path,) = writer.step(step).glob(f"{op_type}.*.output.*")
    path.unlink()
    writer.tensor(step, op_type, {"MatMul": MATMUL, "ReLU": RELU}[op_type], NAN)


def test_threads_that_check_refresh_and_edit_never_meet_an_error(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    session = opened(tmp_path, "TO", "WNC", "TZ")
    errors: list[Exception] = []
    stop = threading.Event()

    def repeat(action: Callable[[], object]) -> None:
        try:
            while not stop.is_set():
                action()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test fails with it
            errors.append(error)
            stop.set()

    def look() -> None:
        nodes = session.nodes(0)
        for row in range(len(nodes)):
            session.measure(session.tensor_rows(0, 1, row))
        session.select(0, NodeQuery(hit=True))
        session.watch_state(0)
        session.known(session.pairs())
        session.cost(session.pairs())

    def edit() -> None:
        made = session.watchpoints.add("tensor_all_zero", (), NodeSelection((NodeSelector(NodeKind.REGEX, "M"),)))
        session.watchpoints.set_enabled(made.id, False)
        session.watchpoints.delete(made.id)

    actions = (lambda: session.check(session.pairs()), session.refresh, look, edit)
    threads = [threading.Thread(target=repeat, args=(action,), daemon=True) for action in actions]
    for thread in threads:
        thread.start()
    for step in range(2, 12):
        if step == 6:
            writer.graph(MLP)  # rewritten: the table of nodes is made anew
        write_step(writer, step)
        write_step(writer, step - 2)  # once more: duplicates
    spoil(writer, 11, "ReLU")
    stop.set()
    for thread in threads:
        thread.join(THREADS_END)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []
    session.refresh()
    assert found(checked(session, 11)) == [(RELU, 11)]


def test_a_step_that_grows_while_it_is_judged_is_judged_again(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    session = opened(tmp_path, "TO")

    def grow() -> None:
        spoil(writer, 1, "ReLU")
        session.refresh()

    result = session.check(session.pairs(steps=(1,)), once(grow))
    assert found(result.hits) == [(RELU, 1)]
    assert session.known(session.pairs(steps=(1,))) is not None


def test_files_that_vanish_while_a_step_is_judged_take_nothing_down(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    session = opened(tmp_path, "TO", "WNC")

    def shrink() -> None:
        for path in writer.step(1).glob("*.input.*"):
            path.unlink()
        session.refresh()

    result = session.check(session.pairs(steps=(1,)), once(shrink))
    assert result.coverage.unreadable == 0
    assert all(hit.key.side.label == "out" for hit in result.hits)


def test_nodes_that_are_numbered_anew_while_a_step_is_judged_are_judged_by_their_new_numbers(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    write_step(writer, 0)
    write_step(writer, 1)
    spoil(writer, 1, "ReLU")
    session = opened(tmp_path, "TO")

    def rebuild() -> None:
        writer.graph(MLP)
        assert session.refresh().rebuilt == (0,)

    (hit,) = session.check(session.pairs(steps=(1,)), once(rebuild)).hits
    assert hit.key.node == RELU
    assert session.nodes(0).names[hit.row] == RELU


def test_one_look_never_mixes_old_and_new_numbers(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    for step in (0, 1):
        write_step(writer, step)
    session = opened(tmp_path)
    flow = DataFlow(session.source, 0)
    table = flow.table(0)
    writer.graph(MLP)
    session.refresh()
    assert flow.table(0) is table
    with pytest.raises(RenumberedError):
        flow.table(1)


def test_rows_of_an_older_listing_are_measured_by_what_they_name(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    session = opened(tmp_path)
    relu = session.nodes(0).find(RELU)
    rows = session.tensor_rows(0, 1, relu)
    before = session.measure(rows)
    for path in writer.step(1).glob("MatMul.*"):
        path.unlink()
    session.refresh()
    assert [row.stats for row in session.measure(rows) if row.role == "out"] == [
        row.stats for row in before if row.role == "out"
    ]


def test_a_watchpoint_that_changes_meanwhile_leaves_an_outdated_result(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0,))
    session = opened(tmp_path, "TO")
    result = session.check(session.pairs(), once(session.watchpoints.clear))
    assert [w.condition for w in result.watchpoints] == ["tensor_overflow"]
    assert result.version < session.watchpoints.version
    assert session.known(session.pairs()) is None


@pytest.mark.parametrize("dump", ["mindspore-2.0-nan", "mindspore-2.10-mlp"])
def test_stopping_anywhere_leaves_the_session_usable(dump: str, dumps: Callable[[str], Path]) -> None:
    whole = opened(dumps(dump), "TO", "WCL abs_mean_update_ratio_gt=0.1")
    pairs = whole.pairs(steps=(2, 3))
    expected = whole.check(pairs)

    class Stopper:
        def __init__(self, after: int) -> None:
            self.left = after

        def __call__(self, _: Progress) -> None:
            self.left -= 1
            if self.left < 0:
                raise CancelledError("stopped")

    def open_with(stopper: Stopper, session: Session) -> bool:
        try:
            session.open(stopper)
        except CancelledError:
            return False
        return True

    for after in (0, 1, 2, 3):
        session = opened(dumps(dump))
        fresh = Session(session.source)
        open_with(Stopper(after), fresh)
        fresh.open()
        assert len(fresh.nodes(0)) == len(whole.nodes(0))

    session = Session(opened(dumps(dump)).source)
    for watchpoint in whole.watchpoints.items():
        session.watchpoints.add(watchpoint.condition, watchpoint.params, watchpoint.selection)
    after, stops = 0, 0
    while (result := session.check(pairs, Stopper(after))).cancelled:
        assert set(result.pairs) < set(pairs)
        assert session.known(pairs) is None
        after, stops = after + 1, stops + 1
    assert stops > 3
    assert result.hits == expected.hits
    assert result.coverage == expected.coverage


def test_listing_a_step_is_told_and_can_be_stopped(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0, 1))
    session = opened(tmp_path, "TO")
    texts: list[str] = []
    session.check(session.pairs(steps=(1,)), lambda snapshot: texts.append(snapshot.text))
    assert any(text.startswith("listing") for text in texts)
    assert any(text.startswith("rank 0 step 1") for text in texts)


def test_selections_that_were_only_tried_do_not_pile_up(tmp_path: Path) -> None:
    write_dump(tmp_path)
    session = opened(tmp_path)
    for number in range(1000):
        session.watched_count(NodeSelection((NodeSelector(NodeKind.REGEX, f"x{number}"),)))
    assert len(session.nodes(0).memo(known_selections)) < 300
