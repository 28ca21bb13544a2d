"""Checks (rank, step) pairs one after the other and remembers what came out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Final

from tui_debugger.errors import CancelledError
from tui_debugger.model import ProgressFn, UnreadablePart, Watchpoint, no_progress
from tui_debugger.session.ahead import Ahead, List
from tui_debugger.session.judges import Judges, MakeChecker
from tui_debugger.session.line import Group, Judged, Line
from tui_debugger.session.progress import Steady, scaled
from tui_debugger.session.results import ResultBook, merged
from tui_debugger.session.types import CheckResult, Pair
from tui_debugger.session.undisturbed import undisturbed
from tui_debugger.stats.workers import Workers

SOON: Final = 0.8
"""Seconds after which there should be something new to show: so many pairs are judged together."""
MOST: Final = 64
"""Most pairs that are judged together."""


Listed = Callable[[], "tuple[int, tuple[Watchpoint, ...]]"]
"""Answers the watchpoints that judge now, and the version of their list."""
Unreadable = Callable[[Sequence[Pair], Sequence[Watchpoint]], "tuple[UnreadablePart, ...]"]


def _nothing(_pairs: Sequence[Pair], _watchpoints: Sequence[Watchpoint]) -> tuple[UnreadablePart, ...]:
    return ()


class Checks:
    """The checks of one session.

    Attributes:
        book: what every pair was last found to be.
        listed: answers the watchpoints that judge, and the version of their list.
        unreadable: tells what of some pairs could not be looked at, where some watchpoints judge them.
    """

    def __init__(
        self,
        listed: Listed,
        checker: MakeChecker,
        workers: Workers,
        listing: List,
        unreadable: Unreadable = _nothing,
    ) -> None:
        """Nothing is known yet.

        Args:
            listed: answers the watchpoints that judge.
            checker: makes what judges.
            workers: who measures; they are got ready when much is to come.
            listing: lists a pair.
            unreadable: tells what of some pairs could not be looked at.
        """
        self.unreadable = unreadable
        self.book = ResultBook()
        self._workers = workers
        self._listing = listing
        self.listed = listed
        self._checker = checker

    def check(
        self, pairs: Sequence[Pair], progress: ProgressFn, on_result: Callable[[CheckResult], None] | None
    ) -> CheckResult:
        """See ``Session.check``."""
        version, watchpoints = self.listed()
        pairs = list(dict.fromkeys(pairs))
        started, finished, cancelled = time.monotonic(), list[Judged](), False

        def deliver(judged: Judged) -> None:
            finished.append(judged)
            if on_result is not None:
                on_result(replace(merged([judged], watchpoints, version, 0.0, False), asked=len(pairs)))

        with Ahead(self._listing) as ahead, ExitStack() as tickets:
            judges = Judges(self.book, self._checker, (version, watchpoints), tickets)
            steady, window = Steady(progress), _Window()
            groups = self._groups(pairs, judges, steady, window=window, ahead=ahead, deliver=deliver)
            line = Line(groups, deliver, steady, window.passed)
            try:
                line.run()
            except CancelledError:
                cancelled = True
                steady.silence()
                with suppress(CancelledError):  # the workers were closed
                    line.finish()
        place = {pair: number for number, pair in enumerate(pairs)}
        finished.sort(key=lambda each: place[each[0]])
        result = merged(finished, watchpoints, version, time.monotonic() - started, cancelled)
        return self._with_parts(replace(result, asked=len(pairs)), pairs)

    def known(self, pairs: Sequence[Pair]) -> CheckResult | None:
        """See ``Session.known``."""
        version, watchpoints = self.listed()
        found = [(pair, self.book.fresh(pair, version)) for pair in pairs]
        results = [(pair, result) for pair, result in found if result is not None]
        if len(results) != len(found):
            return None
        return self._with_parts(merged(results, watchpoints, version, 0.0, False), pairs)

    def fresh(self, pairs: Sequence[Pair]) -> bool:
        """See ``Session.fresh``."""
        version, _ = self.listed()
        return all(self.book.fresh(pair, version) is not None for pair in pairs)

    def cost(self, pairs: Sequence[Pair]) -> int:
        """See ``Session.cost``."""
        version, watchpoints = self.listed()
        missing = [pair for pair in pairs if self.book.fresh(pair, version) is None]
        return undisturbed(
            lambda: sum(self._checker(rank, watchpoints, no_progress).cost(step) for rank, step in missing)
        )

    def _with_parts(self, result: CheckResult, pairs: Sequence[Pair]) -> CheckResult:
        """The result with what could not be looked at: known only after the pairs were listed."""
        parts = self.unreadable(pairs, result.watchpoints)
        return replace(result, coverage=replace(result.coverage, parts=parts)) if parts else result

    def _groups(
        self,
        pairs: Sequence[Pair],
        judges: Judges,
        steady: Steady,
        *,
        window: _Window,
        ahead: Ahead,
        deliver: Callable[[Judged], None],
    ) -> Iterator[Group | None]:
        """What is to be checked, some steps of a rank at a time; what is known already is delivered on the way.

        None after a bit of work for that.
        """
        asked, end = self._workers.asked, 0
        while end < len(pairs):
            start, end = end, end + window.size
            part = pairs[start:end]
            to_come = (self._workers.asked - asked) * (len(pairs) - start) // max(start, 1)
            if to_come and self._workers.prestart(to_come):
                ahead.list(pairs[end : end + window.largest])
            found = {pair: result for pair in part if (result := self.book.fresh(pair, judges.version)) is not None}
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
                yield from judges.groups(rank, steps, tell) if len(part) > 1 else judges.alone(rank, steps, tell)
                done += len(steps)
            window.grow()


class _Window:
    """How many pairs are judged together: enough that each file is read once, few enough to show something soon."""

    def __init__(self) -> None:
        self.size = 1
        self._seconds_each = SOON
        self._since = time.monotonic()

    @property
    def largest(self) -> int:
        """How many the next time at most."""
        return 4 * self.size

    def passed(self, pairs: int) -> None:
        """So many were done since the last call."""
        now = time.monotonic()
        self._seconds_each = (now - self._since) / pairs
        self._since = now

    def grow(self) -> None:
        """Chooses the next size."""
        fitting = int(SOON / max(self._seconds_each, SOON / MOST))
        self.size = max(1, min(self.largest, fitting))
