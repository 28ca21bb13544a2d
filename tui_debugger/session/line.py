"""Checks groups of steps as an assembly line does.

While the workers read one group, this thread judges the one before and finds out what has to be read for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tui_debugger.errors import RenumberedError
from tui_debugger.model import ProgressFn
from tui_debugger.session.checking import Checker, PairResult
from tui_debugger.session.plan import Plan
from tui_debugger.session.progress import Steady
from tui_debugger.session.reading import Reading
from tui_debugger.session.types import Pair
from tui_debugger.session.wants import Wants
from tui_debugger.stats.scan import Meanwhile

Judged = tuple[Pair, PairResult]
Put = Callable[[Pair, PairResult], bool]
"""Takes a result; False when the files changed meanwhile, so that it does not count."""
Again = Callable[[Sequence[int]], Iterator[Judged]]
"""Checks steps from the beginning to the end."""

_END: Final = object()


class Group:
    """Some steps of one rank.

    Attributes:
        steps: in run order.
        reading: what has to be read; None when there is nothing.
    """

    def __init__(
        self, rank: int, steps: Sequence[int], checker: Checker | None, progress: ProgressFn, *, put: Put, again: Again
    ) -> None:
        """Nothing is done yet.

        Args:
            rank: of the steps.
            steps: in run order.
            checker: of the rank; without one the steps are left to ``again``.
            progress: told how far reading is.
            put: takes the results.
            again: checks steps whose files or nodes changed meanwhile.
        """
        self.steps = list(steps)
        self.reading: Reading | None = None
        self._rank = rank
        self._checker = checker
        self._progress = progress
        self._put = put
        self._again = again
        self._plans: list[Plan] = []

    def prepare(self, under_way: Reading | None) -> Iterator[None]:
        """Finds out bit by bit what has to be read; ``under_way`` is about to be known."""
        if self._checker is None:
            return
        wants = Wants()
        try:
            for step in self.steps:
                self._plans.append(self._checker.planner.plan(step, wants))
                yield
            self.reading = self._checker.measurements.missing(wants, under_way)
        except RenumberedError:
            self._give_up()

    def read(self, meanwhile: Meanwhile) -> None:
        """Reads it.

        Raises:
            CancelledError: from the progress.
        """
        if self._checker is None or self.reading is None:
            return
        try:
            text = self._checker.text(self.steps)
            self._checker.measurements.read(self.reading, self._progress, text, meanwhile)
        except RenumberedError:
            self._give_up()

    def judge(self) -> Iterator[Judged]:
        """The result of each step.

        Raises:
            CancelledError: from the progress.
        """
        left = dict.fromkeys(self.steps)
        self.reading = None
        try:
            for plan in self._plans:
                if self._checker is None:
                    break
                pair, result = (self._rank, plan.step), self._checker.judge(plan, self._progress)
                if self._put(pair, result):
                    del left[plan.step]
                    yield pair, result
        except RenumberedError:
            self._give_up()
        if left:
            yield from self._again(list(left))

    def _give_up(self) -> None:
        self._checker, self.reading = None, None


class Line:
    """Sends groups through, one after the other."""

    def __init__(
        self,
        groups: Iterator[Group | None],
        deliver: Callable[[Judged], None],
        steady: Steady,
        passed: Callable[[int], None],
    ) -> None:
        """Nothing is done yet.

        Args:
            groups: made when they are asked for; None after a bit of work for that.
            deliver: gets every result.
            steady: where the progress of all groups goes.
            passed: told how many steps were read, or checked, since it was told last.
        """
        self._groups = groups
        self._deliver = deliver
        self._passed = passed
        self._steady = steady
        self._unjudged: Iterator[Judged] = iter(())
        self._following: tuple[Group, Iterator[None]] | None = None

    def run(self) -> None:
        """Sends all of them through.

        Raises:
            CancelledError: from a progress; ``finish`` then judges what was read.
        """
        while (group := self._next()) is not None:
            if group.reading is not None:
                self._read(group)
            else:
                self.finish()
                self._unjudged = group.judge()
                self.finish()
                self._passed(len(group.steps))
        self.finish()

    def finish(self) -> None:
        """Judges what was read.

        Raises:
            CancelledError: from a progress.
        """
        while self._judge_one():
            pass

    def _next(self) -> Group | None:
        """The next group, ready to be read."""
        while self._prepare_following(None):
            pass
        group, self._following = self._following, None
        return group[0] if group is not None else None

    def _read(self, group: Group) -> None:
        shared = False

        def bit() -> bool:
            nonlocal shared
            shared = True
            with self._steady.aside():
                return self._judge_one() or self._prepare_following(group.reading)

        group.read(bit)
        self.finish()
        self._unjudged = group.judge()
        self._passed(len(group.steps))
        if not shared:  # this thread reads: then it judges nothing meanwhile
            self.finish()

    def _judge_one(self) -> bool:
        """Judges a step that was read; False when there is none."""
        judged = next(self._unjudged, None)
        if judged is not None:
            self._deliver(judged)
        return judged is not None

    def _prepare_following(self, under_way: Reading | None) -> bool:
        """Does a bit for the next group; False when it is ready, or there is none."""
        if self._following is not None:
            return next(self._following[1], _END) is not _END
        group = next(self._groups, _END)
        if isinstance(group, Group):
            self._following = group, group.prepare(under_way)
        return group is not _END
