"""Checks (rank, step) pairs one after the other and remembers what came out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tui_debugger.errors import CancelledError
from tui_debugger.model import ProgressFn, Watchpoint, no_progress
from tui_debugger.session.checking import Checker, PairResult
from tui_debugger.session.results import ResultBook, merged, scaled
from tui_debugger.session.types import CheckResult, Pair
from tui_debugger.session.undisturbed import ATTEMPTS, undisturbed
from tui_debugger.session.watchpoints import WatchpointList

MakeChecker = Callable[[int, Sequence[Watchpoint], ProgressFn], Checker]
"""(rank, watchpoints, progress): a checker of a rank as its files are now."""


class Checks:
    """The checks of one session.

    Attributes:
        book: what every pair was last found to be.
    """

    def __init__(self, watchpoints: WatchpointList, checker: MakeChecker) -> None:
        """Nothing is known yet."""
        self.book = ResultBook()
        self._watchpoints = watchpoints
        self._checker = checker

    def check(
        self, pairs: Sequence[Pair], progress: ProgressFn, on_result: Callable[[CheckResult], None] | None
    ) -> CheckResult:
        """See ``Session.check``."""
        version, watchpoints = self._watchpoints.snapshot()
        started, finished, cancelled = time.monotonic(), [], False
        for number, pair in enumerate(pairs):
            try:
                result = self.book.fresh(pair, version) or self._judge(
                    pair, version, watchpoints, scaled(progress, number, len(pairs))
                )
            except CancelledError:
                cancelled = True
                break
            finished.append((pair, result))
            if on_result is not None:
                on_result(merged([(pair, result)], watchpoints, version, 0.0, False))
        return merged(finished, watchpoints, version, time.monotonic() - started, cancelled)

    def known(self, pairs: Sequence[Pair]) -> CheckResult | None:
        """See ``Session.known``."""
        version, watchpoints = self._watchpoints.snapshot()
        found = [(pair, self.book.fresh(pair, version)) for pair in pairs]
        results = [(pair, result) for pair, result in found if result is not None]
        if len(results) != len(found):
            return None
        return merged(results, watchpoints, version, 0.0, False)

    def cost(self, pairs: Sequence[Pair]) -> int:
        """See ``Session.cost``."""
        version, watchpoints = self._watchpoints.snapshot()
        missing = [pair for pair in pairs if self.book.fresh(pair, version) is None]
        return undisturbed(
            lambda: sum(self._checker(rank, watchpoints, no_progress).cost(step) for rank, step in missing)
        )

    def _judge(self, pair: Pair, version: int, watchpoints: Sequence[Watchpoint], progress: ProgressFn) -> PairResult:
        """Judges a pair, again when its files changed meanwhile.

        Raises:
            CancelledError: from ``progress``.
        """
        rank, step = pair
        for _ in range(ATTEMPTS):
            with self.book.judging(pair) as ticket:
                result = undisturbed(lambda: self._checker(rank, watchpoints, progress).check(step, progress))
                if self.book.put(ticket, version, result):
                    break
        return result
