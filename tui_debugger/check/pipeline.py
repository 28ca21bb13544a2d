"""Checks steps in a pipeline: while the workers read a batch, this thread judges the last and plans the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Final

from tui_debugger.check.measure import FileReading
from tui_debugger.check.plan import RequiredByStep, StepPlan
from tui_debugger.check.progress import (
    ATTEMPTS,
    RENUMBERINGS,
    List,
    ListingAhead,
    Steady,
    retry_when_renumbered,
    scaled,
)
from tui_debugger.check.results import KnownResults, Ticket, merged
from tui_debugger.check.step import PairResult, StepChecker
from tui_debugger.check.types import CheckResult, Pair
from tui_debugger.errors import CancelledError, RenumberedError
from tui_debugger.model import ProgressFn, UnreadablePart, Watchpoint, no_progress
from tui_debugger.stats.scan import Meanwhile
from tui_debugger.stats.workers import MeasureWorkers

Judged = tuple[Pair, PairResult]

_END: Final = object()


class StepBatch:
    """Plans, reads and judges steps of a rank in run order; ``reading``: files to read, None without."""

    def __init__(
        self, runner: CheckRunner, rank: int, steps: Sequence[int], checker: StepChecker | None, progress: ProgressFn
    ) -> None:
        """``runner`` takes results. It judges steps whose files or nodes changed; without a ``checker``, every step."""
        self.steps = list(steps)
        self.reading: FileReading | None = None
        self._rank = rank
        self._checker = checker
        self._progress = progress
        self._runner = runner
        self._plans: list[StepPlan] = []

    def prepare(self, under_way: FileReading | None) -> Iterator[None]:
        """Plans the reading in small parts; the files of ``under_way`` are about to be known."""
        if self._checker is None:
            return
        required = RequiredByStep()
        try:
            for step in self.steps:
                self._plans.append(self._checker.planner.plan(step, required))
                yield
            self.reading = self._checker.measurements.missing(required, under_way)
        except RenumberedError:
            self._give_up()

    def read(self, meanwhile: Meanwhile) -> None:
        if self._checker is None or self.reading is None:
            return
        try:
            text = self._checker.text(self.steps)
            self._checker.measurements.read(self.reading, self._progress, text, meanwhile)
        except RenumberedError:
            self._give_up()

    def judge(self) -> Iterator[Judged]:
        left = dict.fromkeys(self.steps)
        self.reading = None
        try:
            for step, result in () if self._checker is None else self._checker.judge(self._plans, self._progress):
                if self._runner.put((self._rank, step), result):
                    del left[step]
                    yield (self._rank, step), result
        except RenumberedError:
            self._give_up()
        if left:
            yield from self._runner.judge(self._rank, list(left), self._progress)

    def _give_up(self) -> None:
        self._checker, self.reading = None, None


class CheckPipeline:
    """Sends batches through, one after the other; ``batches`` yields None after a part of the planning work."""

    def __init__(
        self,
        batches: Iterator[StepBatch | None],
        deliver: Callable[[Judged], None],
        steady: Steady,
        passed: Callable[[int], None],
    ) -> None:
        """``steady`` takes the progress of all batches, ``passed`` the number of newly finished steps."""
        self._batches = batches
        self._deliver = deliver
        self._passed = passed
        self._steady = steady
        self._unjudged: Iterator[Judged] = iter(())
        self._following: tuple[StepBatch, Iterator[None]] | None = None

    def run(self) -> None:
        """Runs all batches; after a CancelledError of a progress, ``finish`` judges the steps that were read."""
        while (batch := self._next()) is not None:
            if batch.reading is not None:
                self._read(batch)
            else:
                self.finish()
                self._unjudged = batch.judge()
                self.finish()
                self._passed(len(batch.steps))
        self.finish()

    def finish(self) -> None:
        while self._judge_one():
            pass

    def _next(self) -> StepBatch | None:
        while self._prepare_following(None):
            pass
        batch, self._following = self._following, None
        return batch[0] if batch is not None else None

    def _read(self, batch: StepBatch) -> None:
        shared = False

        def bit() -> bool:
            nonlocal shared
            shared = True
            with self._steady.aside():
                return self._judge_one() or self._prepare_following(batch.reading)

        batch.read(bit)
        self.finish()
        self._unjudged = batch.judge()
        self._passed(len(batch.steps))
        if not shared:  # there are no workers: this thread read the batch
            self.finish()

    def _judge_one(self) -> bool:
        """Judges a step that was read; False when there is none."""
        judged = next(self._unjudged, None)
        if judged is not None:
            self._deliver(judged)
        return judged is not None

    def _prepare_following(self, under_way: FileReading | None) -> bool:
        """Does a part of the planning of the next batch; False when it is ready, or there is none."""
        if self._following is not None:
            return next(self._following[1], _END) is not _END
        batch = next(self._batches, _END)
        if isinstance(batch, StepBatch):
            self._following = batch, batch.prepare(under_way)
        return batch is not _END


MakeChecker = Callable[[int, Sequence[Watchpoint], ProgressFn], StepChecker]
"""(rank, watchpoints, progress): a checker of a rank as its files are now."""


class CheckRunner:
    """The state that the batches of one check share; results are stored under ``version`` of the watchpoint list."""

    def __init__(
        self,
        known_results: KnownResults,
        checker: MakeChecker,
        listed: tuple[int, Sequence[Watchpoint]],
        tickets: ExitStack,
    ) -> None:
        self.version, self._watchpoints = listed
        self._known_results = known_results
        self._checker = checker
        self._tickets = tickets
        self._given: dict[Pair, Ticket] = {}

    def batches(self, rank: int, steps: Sequence[int], progress: ProgressFn) -> Iterator[StepBatch | None]:
        """Batches of a rank's steps that can be read while others are judged; None after a part of the planning."""
        for step in steps:
            pair = rank, step
            self._given[pair] = self._tickets.enter_context(self._known_results.judging(pair))
        done = 0
        try:
            checker = self._checker(rank, self._watchpoints, progress)
            for some in checker.batches(steps) if not checker.alone else ():
                if some is None:
                    yield None
                    continue
                tell = scaled(progress, done, len(steps), len(some))
                yield StepBatch(self, rank, some, checker, tell)
                done += len(some)
        except RenumberedError:  # the remaining steps are checked below
            pass
        if done < len(steps):
            yield from self.alone(rank, steps[done:], scaled(progress, done, len(steps), len(steps) - done))

    def alone(self, rank: int, steps: Sequence[int], progress: ProgressFn) -> Iterator[StepBatch]:
        yield StepBatch(self, rank, steps, None, progress)

    def put(self, pair: Pair, result: PairResult) -> bool:
        """Takes a result; False when the files changed meanwhile, so that it does not count."""
        return self._known_results.put(self._given[pair], self.version, result)

    def judge(self, rank: int, steps: list[int], progress: ProgressFn) -> Iterator[Judged]:
        """Judges steps of a rank; again if their files changed meanwhile, up to ``ATTEMPTS`` times."""
        for attempt in range(1, RENUMBERINGS + 1):
            changed: list[int] = []
            with ExitStack() as stack:
                tickets = {step: stack.enter_context(self._known_results.judging((rank, step))) for step in steps}
                try:
                    for step, result in self._checker(rank, self._watchpoints, progress).check_all(steps, progress):
                        if self._known_results.put(tickets.pop(step), self.version, result) or attempt >= ATTEMPTS:
                            yield (rank, step), result
                        else:
                            changed.append(step)
                except RenumberedError:
                    if attempt == RENUMBERINGS:
                        raise
                changed += tickets  # not reached, because the nodes were read anew
            steps = [step for step in steps if step in changed]
            if not steps:
                return


SOON: Final = 0.8
"""Seconds after which there should be something new to show; limits the pairs that are judged together."""
MOST: Final = 64
"""Most pairs that are judged together."""


Listed = Callable[[], "tuple[int, tuple[Watchpoint, ...]]"]
"""Returns the version of the watchpoint list, and the watchpoints that judge now."""
Unreadable = Callable[[Sequence[Pair]], "tuple[UnreadablePart, ...]"]


def _nothing(_pairs: Sequence[Pair]) -> tuple[UnreadablePart, ...]:
    return ()


class Checks:
    """The checks of one session; ``known_results`` has the last result of every pair."""

    def __init__(
        self,
        listed: Listed,
        checker: MakeChecker,
        workers: MeasureWorkers,
        listing: List,
        unreadable: Unreadable = _nothing,
    ) -> None:
        """``listing`` lists a pair in advance; ``workers`` are started when there is much to measure."""
        self.unreadable = unreadable
        self.known_results = KnownResults()
        self._workers = workers
        self._listing = listing
        self.listed = listed
        self._checker = checker

    def check(
        self, pairs: Sequence[Pair], progress: ProgressFn, on_result: Callable[[CheckResult], None] | None
    ) -> CheckResult:
        version, watchpoints = self.listed()
        pairs = list(dict.fromkeys(pairs))
        started, finished, cancelled = time.monotonic(), list[Judged](), False

        def deliver(judged: Judged) -> None:
            finished.append(judged)
            if on_result is not None:
                on_result(replace(merged([judged], watchpoints, version, 0.0, False), asked=len(pairs)))

        with ListingAhead(self._listing) as ahead, ExitStack() as tickets:
            runner = CheckRunner(self.known_results, self._checker, (version, watchpoints), tickets)
            steady, window = Steady(progress), _BatchWindow()
            batches = self._batches(pairs, runner, steady, window=window, ahead=ahead, deliver=deliver)
            pipeline = CheckPipeline(batches, deliver, steady, window.passed)
            try:
                pipeline.run()
            except CancelledError:
                cancelled = True
                steady.silence()
                with suppress(CancelledError):  # the workers were closed
                    pipeline.finish()
        place = {pair: number for number, pair in enumerate(pairs)}
        finished.sort(key=lambda each: place[each[0]])
        result = merged(finished, watchpoints, version, time.monotonic() - started, cancelled)
        return self._with_parts(replace(result, asked=len(pairs)), pairs)

    def known(self, pairs: Sequence[Pair]) -> CheckResult | None:
        version, watchpoints = self.listed()
        found = [(pair, self.known_results.fresh(pair, version)) for pair in pairs]
        results = [(pair, result) for pair, result in found if result is not None]
        if len(results) != len(found):
            return None
        return self._with_parts(merged(results, watchpoints, version, 0.0, False), pairs)

    def so_far(self) -> CheckResult | None:
        version, watchpoints = self.listed()
        results = self.known_results.all()
        if not results:
            return None
        outdated = frozenset(pair for pair, (judged_by, _) in results.items() if judged_by != version)
        found = [(pair, result) for pair, (_, result) in results.items()]
        result = replace(merged(found, watchpoints, version, 0.0, False), outdated=outdated)
        return self._with_parts(result, list(results))

    def fresh(self, pairs: Sequence[Pair]) -> bool:
        version, _ = self.listed()
        return all(self.known_results.fresh(pair, version) is not None for pair in pairs)

    def cost(self, pairs: Sequence[Pair]) -> int:
        version, watchpoints = self.listed()
        missing = [pair for pair in pairs if self.known_results.fresh(pair, version) is None]
        return retry_when_renumbered(
            lambda: sum(self._checker(rank, watchpoints, no_progress).cost(step) for rank, step in missing)
        )

    def size(self, pairs: Sequence[Pair]) -> int:
        return retry_when_renumbered(
            lambda: sum(self._checker(rank, (), no_progress).measurements.size(step) for rank, step in pairs)
        )

    def _with_parts(self, result: CheckResult, pairs: Sequence[Pair]) -> CheckResult:
        """Adds the unreadable parts, which are known only after the pairs were listed."""
        parts = self.unreadable(pairs)
        return replace(result, coverage=replace(result.coverage, parts=parts)) if parts else result

    def _batches(
        self,
        pairs: Sequence[Pair],
        runner: CheckRunner,
        steady: Steady,
        *,
        window: _BatchWindow,
        ahead: ListingAhead,
        deliver: Callable[[Judged], None],
    ) -> Iterator[StepBatch | None]:
        """Yields batches of steps of one rank, or None after a part of the planning; delivers known results."""
        asked, end = self._workers.asked, 0
        while end < len(pairs):
            start, end = end, end + window.size
            part = pairs[start:end]
            to_come = (self._workers.asked - asked) * (len(pairs) - start) // max(start, 1)
            if to_come and self._workers.shares(to_come):
                ahead.list(pairs[end : end + window.largest])
            found = {
                pair: result for pair in part if (result := self.known_results.fresh(pair, runner.version)) is not None
            }
            for judged in found.items():
                deliver(judged)
            if found:
                window.passed(len(found))
            missing = [pair for pair in part if pair not in found]
            done = start + len(found)
            for rank in dict.fromkeys(rank for rank, _ in missing):
                steps = [step for of, step in missing if of == rank]
                tell = scaled(steady, done, len(pairs), len(steps))
                # A step that takes long is shown before anything is done for the next one.
                yield from runner.batches(rank, steps, tell) if len(part) > 1 else runner.alone(rank, steps, tell)
                done += len(steps)
            window.grow()


class _BatchWindow:
    """Decides how many pairs are judged together: each file is read once, and something is shown soon."""

    def __init__(self) -> None:
        self.size = 1
        self._seconds_each = SOON
        self._since = time.monotonic()

    @property
    def largest(self) -> int:
        return 4 * self.size

    def passed(self, pairs: int) -> None:
        now = time.monotonic()
        self._seconds_each = (now - self._since) / pairs
        self._since = now

    def grow(self) -> None:
        """Chooses the next size: as many pairs as take ``SOON`` seconds, at most ``largest``."""
        fitting = int(SOON / max(self._seconds_each, SOON / MOST))
        self.size = max(1, min(self.largest, fitting))
