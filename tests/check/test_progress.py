"""While workers read some steps, the next ones are listed; and what goes wrong with workers is said."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.patience import PATIENCE
from tests.sources.memory import MemorySource
from tui_debugger.check.progress import ListingAhead
from tui_debugger.check.types import Pair
from tui_debugger.errors import CancelledError, NotADumpError
from tui_debugger.model import Progress, ProgressFn, Side
from tui_debugger.session import Session
from tui_debugger.stats.workers import MeasureWorkers
from tui_debugger.watch.text import parse_watch


def test_what_comes_next_is_listed_in_the_background() -> None:
    listed: list[Pair] = []
    done = threading.Event()

    def listing(pair: Pair, _: ProgressFn) -> None:
        assert threading.current_thread() is not threading.main_thread()
        listed.append(pair)
        if pair == (0, 2):
            done.set()

    with ListingAhead(listing) as ahead:
        ahead.list([(0, 1), (0, 2)])
        assert done.wait(PATIENCE)
    assert listed == [(0, 1), (0, 2)]


def test_leaving_gives_up_a_listing_that_is_under_way() -> None:
    begun, ended = threading.Event(), list[str]()

    def endless(_: Pair, progress: ProgressFn) -> None:
        begun.set()
        try:
            while True:
                progress(Progress(0, 0))
        except CancelledError:
            ended.append("cancelled")
            raise

    with ListingAhead(endless) as ahead:
        ahead.list([(0, 1), (0, 2)])
        assert begun.wait(PATIENCE)
    assert ended == ["cancelled"]


def test_a_step_that_cannot_be_listed_is_left_to_whoever_needs_it() -> None:
    asked: list[Pair] = []

    def broken(pair: Pair, _: ProgressFn) -> None:
        asked.append(pair)
        raise NotADumpError("gone")

    with ListingAhead(broken) as ahead:
        ahead.list([(0, 1), (0, 2)])
    assert asked == [(0, 1)]


def test_a_long_check_with_workers_finds_what_one_thread_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {step: {("a", Side.OUTPUT, 0): np.full(9, np.nan if step == 7 else step)} for step in range(30)}
    listers = set[str]()

    def checked(workers: MeasureWorkers) -> list[int]:
        source = MemorySource({0: values})
        tensors = source.tensors

        def watched(rank: int, step: int, progress: ProgressFn) -> object:
            listers.add(threading.current_thread().name)
            return tensors(rank, step, progress)

        monkeypatch.setattr(source, "tensors", watched)
        with closing(Session(source, workers=workers)) as session:
            session.watchpoints.add(*parse_watch("TO"))
            return [hit.key.step for hit in session.check(session.pairs()).hits]

    with ThreadPoolExecutor(2) as threads:
        assert checked(MeasureWorkers(executor=threads)) == checked(MeasureWorkers(jobs=1)) == [7]
    assert "tdbg listing" in listers


def test_workers_that_are_lost_are_a_notice_of_the_run(dumps: Callable[[str], Path]) -> None:
    from tui_debugger.sources.registry import open_source

    gone = ThreadPoolExecutor(1)
    gone.shutdown()
    with closing(Session(open_source(dumps("mindspore-2.0-nan")), workers=MeasureWorkers(executor=gone))) as session:
        before = session.info.notices
        session.watchpoints.add(*parse_watch("TO"))
        assert session.check(session.pairs()).hits.findings
        assert session.info.notices == (*before, "the workers were lost: the work was finished by this process alone")
