"""While workers read some steps, those before are judged and those after planned: with the same results."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.patience import PATIENCE
from tests.sources.memory import MemorySource
from tui_debugger.check import measure, pipeline
from tui_debugger.check import step as checked_step
from tui_debugger.check.measure import Measurements
from tui_debugger.check.plan import Planner, RequiredByStep, StepPlan
from tui_debugger.check.progress import Steady
from tui_debugger.check.types import CheckResult
from tui_debugger.errors import CancelledError, RenumberedError
from tui_debugger.model import Progress, Side, no_progress
from tui_debugger.session import Session
from tui_debugger.sources.registry import open_source
from tui_debugger.stats import workers as workers_module
from tui_debugger.stats.records import ONLY_COMPARED, RequiredStats
from tui_debugger.stats.scan import scan
from tui_debugger.stats.workers import MeasureWorkers
from tui_debugger.watch.text import parse_watch

STEPS = 25
"""Read as 0, 1 to 4, 5 to 20, and the rest."""
BAD = 7
WATCH = ("TO", "TL max_gt=1e3", "WNC @ category=tensor", "WCL abs_mean_update_ratio_gt=10 @ category=tensor")


@pytest.fixture(autouse=True)
def _always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups grow and are handed over however slow this machine is, and however small they are."""
    monkeypatch.setattr(pipeline, "SOON", 1e6)
    monkeypatch.setattr(workers_module, "WORTH_HANDING_OVER", 0)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


def run_of_25_steps(workers: MeasureWorkers) -> Session:
    values = {step: {("a", Side.OUTPUT, 0): np.full(9, np.nan if step == BAD else step)} for step in range(STEPS)}
    session = Session(MemorySource({0: values}), workers=workers)
    session.watchpoints.add(*parse_watch("TO"))
    return session


def bad_steps(result: CheckResult) -> list[int]:
    return [hit.key.step for hit in result.hits]


def recorded(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, note: Callable[..., None]) -> None:
    real = getattr(owner, name)

    def noted(*arguments: Any, **named: Any) -> Any:
        note(*arguments)
        return real(*arguments, **named)

    monkeypatch.setattr(owner, name, noted)


def test_groups_are_judged_and_planned_while_another_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    readings, judged, planned = list[object](), set[int](), set[int]()
    all_done = threading.Event()

    def look() -> None:
        if {1, 2, 3, 4} <= judged and set(range(21, STEPS)) <= planned:
            all_done.set()

    def on_judge(plans: Sequence[StepPlan], *_: object) -> None:
        judged.update(plan.step for plan in plans)
        look()

    def on_plan(_: Planner, step: int, *__: object) -> None:
        planned.add(step)
        look()

    recorded(monkeypatch, Measurements, "read", lambda *_: readings.append(None))
    recorded(monkeypatch, checked_step, "judged_steps", on_judge)
    recorded(monkeypatch, Planner, "plan", on_plan)

    class Waiting(ThreadPoolExecutor):
        """The third group is not read before the second is judged and the fourth planned."""

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            third = len(readings) == 3

            def later(*arguments: Any) -> Any:
                assert not third or all_done.wait(PATIENCE)
                return fn(*arguments)

            return super().submit(later, *args, **kwargs)

    with Waiting(2) as executor, closing(run_of_25_steps(MeasureWorkers(executor=executor))) as session:
        result = session.check(session.pairs())
    assert all_done.is_set()
    assert len(readings) == 4
    assert bad_steps(result) == [BAD]
    assert [step for _, step in result.pairs] == list(range(STEPS))


def test_a_real_run_gives_what_one_thread_finds_and_no_file_is_read_twice(
    dumps: Callable[[str], Path], threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Counter[bytes]()

    def counting(requests: Any, *arguments: Any, **named: Any) -> None:
        wanted = np.flatnonzero(requests.need != ONLY_COMPARED).tolist()
        asked.update(requests.specs.paths[at] for at in wanted)
        scan(requests, *arguments, **named)

    monkeypatch.setattr(measure, "scan", counting)

    def checked(workers: MeasureWorkers) -> tuple[CheckResult, Counter[bytes]]:
        asked.clear()
        with closing(Session(open_source(dumps("mindspore-2.0-nan")), workers=workers)) as session:
            for text in WATCH:
                session.watchpoints.add(*parse_watch(text))
            return session.check(session.pairs()), asked.copy()

    (one, files), (several, same_files) = checked(MeasureWorkers(jobs=1)), checked(MeasureWorkers(executor=threads))
    assert len(one.pairs) > 5
    assert several.hits == one.hits
    assert several.coverage == one.coverage
    assert several.pairs == one.pairs
    assert same_files == files
    assert {count for path, count in files.items() if b"/constants/" not in path} == {1}  # those are every step's


@pytest.mark.parametrize("name", ["mindspore-2.0-nan", "mindspore-2.10-multi-gan"])
def test_steps_that_are_judged_as_one_table_are_judged_like_each_alone(
    name: str, dumps: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = list[int]()
    recorded(monkeypatch, checked_step, "judged_steps", lambda plans, *_: together.append(len(plans)))

    def checked() -> CheckResult:
        together.clear()
        with closing(Session(open_source(dumps(name)), workers=MeasureWorkers(jobs=1))) as session:
            for text in (*WATCH, "EX norm > 0.5*prev.norm and step > 1", "WI zero_percentage_ge=1"):
                session.watchpoints.add(*parse_watch(text))
            return session.check(session.pairs())

    several = checked()
    assert max(together) > 1
    monkeypatch.setattr(checked_step, "JUDGED_TOGETHER", 1)
    alone = checked()
    assert set(together) == {1}
    assert len(alone.hits) > 0
    assert several.hits == alone.hits
    assert several.coverage == alone.coverage


def test_progress_comes_in_the_callers_thread_and_never_goes_back(threads: ThreadPoolExecutor) -> None:
    told, callers = list[float](), set[threading.Thread]()

    def progress(snapshot: Progress) -> None:
        callers.add(threading.current_thread())
        told.append(snapshot.done / snapshot.total if snapshot.total else 0.0)

    def on_result(_: CheckResult) -> None:
        callers.add(threading.current_thread())

    with closing(run_of_25_steps(MeasureWorkers(executor=threads))) as session:
        session.open()
        session.check(session.pairs(), progress, on_result)
    assert callers == {threading.current_thread()}
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_what_was_read_before_cancelling_is_judged(
    threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings, results = list[object](), list[CheckResult]()
    recorded(monkeypatch, Measurements, "read", lambda *_: readings.append(None))

    def progress(_: Progress) -> None:
        if len(readings) == 3:
            raise CancelledError("stopped")

    with closing(run_of_25_steps(MeasureWorkers(executor=threads))) as session:
        part = session.check(session.pairs(), progress, results.append)
        assert part.cancelled
        assert [step for _, step in part.pairs] == [0, 1, 2, 3, 4]
        assert [step for result in results for _, step in result.pairs] == [0, 1, 2, 3, 4]
        assert bad_steps(session.check(session.pairs())) == [BAD]


def test_a_step_whose_files_change_while_it_waits_to_be_judged_is_judged_again(
    threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged, results = Counter[int](), list[CheckResult]()
    with closing(run_of_25_steps(MeasureWorkers(executor=threads))) as session:

        def on_judge(plans: Sequence[StepPlan], *_: object) -> None:
            steps = [plan.step for plan in plans]
            judged.update(steps)
            if BAD in steps and judged[BAD] == 1:
                session._checks.known_results.drop_from(0, BAD)

        recorded(monkeypatch, checked_step, "judged_steps", on_judge)
        result = session.check(session.pairs(), on_result=results.append)
        assert judged[BAD] == 2
        assert sorted(step for each in results for _, step in each.pairs) == list(range(STEPS))
        assert bad_steps(result) == [BAD]
        assert session.fresh(session.pairs())


def test_nodes_that_are_read_anew_in_the_middle_put_the_question_again(
    threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = 6

    def steps_of(what: object) -> list[int]:
        if isinstance(what, int):
            return [what]
        return [each.step for each in what if isinstance(each, StepPlan)] if isinstance(what, list) else []

    for owner, name in ((Planner, "plan"), (checked_step, "judged_steps")):
        with monkeypatch.context() as patches, closing(run_of_25_steps(MeasureWorkers(executor=threads))) as session:
            raised = list[int]()

            def once(*arguments: object, raised: list[int] = raised) -> None:
                if not raised and any(at in steps_of(each) for each in arguments):
                    raised.append(at)
                    raise RenumberedError("the graph of this rank was just read anew")

            recorded(patches, owner, name, once)
            result = session.check(session.pairs())
            assert raised == [at]
            assert bad_steps(result) == [BAD]
            assert [step for _, step in result.pairs] == list(range(STEPS))


def test_ranks_are_told_apart(threads: ThreadPoolExecutor) -> None:
    values = {step: {("a", Side.OUTPUT, 0): np.full(9, float(step))} for step in range(12)}
    bad = values | {BAD: {("a", Side.OUTPUT, 0): np.full(9, np.nan)}}
    found = []
    for workers in (MeasureWorkers(jobs=1), MeasureWorkers(executor=threads)):
        with closing(Session(MemorySource({0: values, 1: bad, 2: values}), workers=workers)) as session:
            session.watchpoints.add(*parse_watch("TO"))
            result = session.check(session.pairs())
            assert result.pairs == session.pairs()
            found.append([(hit.key.rank, hit.key.step) for hit in result.hits])
    assert found == [[(1, BAD)], [(1, BAD)]]


def test_what_another_shelf_will_keep_is_read_for_this_one(threads: ThreadPoolExecutor) -> None:
    with closing(run_of_25_steps(MeasureWorkers(executor=threads))) as session:
        first, same = (session.measurements(0, no_progress) for _ in range(2))
        rows, required = np.arange(1), RequiredByStep()
        required.ask(3, first.flow.table(3), rows, RequiredStats())
        reading = first.missing(required)
        assert reading is not None
        assert same.missing(required, reading) is None
        session._cache.forget_changes(0)
        other = session.measurements(0, no_progress)
        left = other.missing(required, reading)
        assert left is not None
        assert left.index.tolist() == [0]


def test_what_is_done_aside_repeats_the_progress_and_can_be_stopped() -> None:
    told = list[Progress]()
    steady = Steady(told.append)
    steady(Progress(3, 10, "reading"))
    with steady.aside():
        steady(Progress(9, 10, "listing"))
    steady(Progress(4, 10, "reading"))
    assert [each.done for each in told] == [3, 3, 4]

    def stop(_: Progress) -> None:
        raise CancelledError("stopped")

    stopping = Steady(stop)
    with pytest.raises(CancelledError), stopping.aside():
        stopping(Progress(0, 0))
    stopping.silence()
    stopping(Progress(1, 1))
