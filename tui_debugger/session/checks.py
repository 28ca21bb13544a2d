"""Checks (rank, step) pairs one after the other and remembers what came out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Final

from tui_debugger.analysis.workers import Workers
from tui_debugger.errors import CancelledError, RenumberedError
from tui_debugger.model import ProgressFn, Watchpoint, no_progress
from tui_debugger.session.ahead import Ahead, List
from tui_debugger.session.checking import Checker, PairResult
from tui_debugger.session.progress import scaled
from tui_debugger.session.results import ResultBook, merged
from tui_debugger.session.types import CheckResult, Pair
from tui_debugger.session.undisturbed import ATTEMPTS, RENUMBERINGS, undisturbed
from tui_debugger.session.watchpoints import WatchpointList

SOON: Final = 0.8
"""Seconds after which there should be something new to show: so many pairs are judged together."""
MOST: Final = 64
"""Most pairs that are judged together."""

MakeChecker = Callable[[int, Sequence[Watchpoint], ProgressFn], Checker]
"""(rank, watchpoints, progress): a checker of a rank as its files are now."""


class Checks:
    """The checks of one session.

    Attributes:
        book: what every pair was last found to be.
    """

    def __init__(self, watchpoints: WatchpointList, checker: MakeChecker, workers: Workers, listing: List) -> None:
        """Nothing is known yet.

        Args:
            watchpoints: the list.
            checker: makes what judges.
            workers: who measures; they are got ready when much is to come.
            listing: lists a pair.
        """
        self.book = ResultBook()
        self._workers = workers
        self._listing = listing
        self._watchpoints = watchpoints
        self._checker = checker

    def check(
        self, pairs: Sequence[Pair], progress: ProgressFn, on_result: Callable[[CheckResult], None] | None
    ) -> CheckResult:
        """See ``Session.check``."""
        version, watchpoints = self._watchpoints.snapshot()
        pairs = list(dict.fromkeys(pairs))
        started, finished, cancelled = time.monotonic(), list[tuple[Pair, PairResult]](), False
        window, asked = _Window(), self._workers.asked
        with Ahead(self._listing) as ahead:
            while len(finished) < len(pairs):
                at = len(finished)
                part = pairs[at : at + window.size]
                to_come = (self._workers.asked - asked) * (len(pairs) - at) // max(at, 1)
                if to_come and self._workers.prestart(to_come):
                    ahead.list(pairs[at + len(part) : at + len(part) + window.largest])
                try:
                    with window:
                        within = scaled(progress, at, len(pairs), len(part))
                        for each in self._judge(part, version, watchpoints, within):
                            finished.append(each)
                            if on_result is not None:
                                on_result(merged([each], watchpoints, version, 0.0, False))
                except CancelledError:
                    cancelled = True
                    break
        place = {pair: number for number, pair in enumerate(pairs)}
        finished.sort(key=lambda each: place[each[0]])
        return merged(finished, watchpoints, version, time.monotonic() - started, cancelled)

    def known(self, pairs: Sequence[Pair]) -> CheckResult | None:
        """See ``Session.known``."""
        version, watchpoints = self._watchpoints.snapshot()
        found = [(pair, self.book.fresh(pair, version)) for pair in pairs]
        results = [(pair, result) for pair, result in found if result is not None]
        if len(results) != len(found):
            return None
        return merged(results, watchpoints, version, 0.0, False)

    def fresh(self, pairs: Sequence[Pair]) -> bool:
        """See ``Session.fresh``."""
        version, _ = self._watchpoints.snapshot()
        return all(self.book.fresh(pair, version) is not None for pair in pairs)

    def cost(self, pairs: Sequence[Pair]) -> int:
        """See ``Session.cost``."""
        version, watchpoints = self._watchpoints.snapshot()
        missing = [pair for pair in pairs if self.book.fresh(pair, version) is None]
        return undisturbed(
            lambda: sum(self._checker(rank, watchpoints, no_progress).cost(step) for rank, step in missing)
        )

    def _judge(
        self, pairs: Sequence[Pair], version: int, watchpoints: Sequence[Watchpoint], progress: ProgressFn
    ) -> Iterator[tuple[Pair, PairResult]]:
        """The result of each pair, in whatever order; the steps of a rank are judged together.

        Raises:
            CancelledError: from ``progress``.
        """
        found = {pair: result for pair in pairs if (result := self.book.fresh(pair, version)) is not None}
        yield from found.items()
        missing = [pair for pair in pairs if pair not in found]
        done = len(found)
        for rank in dict.fromkeys(rank for rank, _ in missing):
            steps = [step for of, step in missing if of == rank]
            part = scaled(progress, done, len(pairs), len(steps))
            for step, result in self._judge_rank(rank, steps, version, watchpoints, part):
                yield (rank, step), result
            done += len(steps)

    def _judge_rank(
        self, rank: int, steps: list[int], version: int, watchpoints: Sequence[Watchpoint], progress: ProgressFn
    ) -> Iterator[tuple[int, PairResult]]:
        """Judges steps of a rank; again those whose files changed meanwhile, the last answer then stands."""
        for attempt in range(1, RENUMBERINGS + 1):
            changed: list[int] = []
            with ExitStack() as stack:
                tickets = {step: stack.enter_context(self.book.judging((rank, step))) for step in steps}
                try:
                    for step, result in self._checker(rank, watchpoints, progress).check_all(steps, progress):
                        if self.book.put(tickets.pop(step), version, result) or attempt >= ATTEMPTS:
                            yield step, result
                        else:
                            changed.append(step)
                except RenumberedError:
                    if attempt == RENUMBERINGS:
                        raise
                changed += tickets  # not reached, because the nodes were read anew
            steps = sorted(changed)
            if not steps:
                return


class _Window:
    """How many pairs are judged together: enough that each file is read once, few enough to show something soon."""

    def __init__(self) -> None:
        self.size = 1
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = time.monotonic()

    def __exit__(self, *_: object) -> None:
        seconds_each = (time.monotonic() - self._started) / self.size
        fitting = int(SOON / max(seconds_each, SOON / MOST))
        self.size = max(1, min(self.largest, fitting))

    @property
    def largest(self) -> int:
        """How many the next time at most."""
        return 4 * self.size
