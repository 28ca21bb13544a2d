"""Who judges the steps of a check, and sees to it that no result is kept that speaks of files as they were before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from tui_debugger.errors import RenumberedError
from tui_debugger.model import ProgressFn, Watchpoint
from tui_debugger.session.checking import Checker, PairResult
from tui_debugger.session.line import Group, Judged
from tui_debugger.session.progress import scaled
from tui_debugger.session.results import ResultBook
from tui_debugger.session.types import Pair
from tui_debugger.session.undisturbed import ATTEMPTS, RENUMBERINGS

MakeChecker = Callable[[int, Sequence[Watchpoint], ProgressFn], Checker]
"""(rank, watchpoints, progress): a checker of a rank as its files are now."""


class Judges:
    """What the groups of one check share.

    Attributes:
        version: of the watchpoint list.
    """

    def __init__(
        self, book: ResultBook, checker: MakeChecker, listed: tuple[int, Sequence[Watchpoint]], tickets: ExitStack
    ) -> None:
        """``book`` takes results by the version of the list; ``tickets`` is held until the end of the check."""
        self.version, self._watchpoints = listed
        self._book = book
        self._checker = checker
        self._tickets = tickets

    def groups(self, rank: int, steps: Sequence[int], progress: ProgressFn) -> Iterator[Group | None]:
        """Steps of a rank as groups that can be read while others are judged; None after a bit of work for that."""
        given = {(rank, step): self._tickets.enter_context(self._book.judging((rank, step))) for step in steps}

        def put(pair: Pair, result: PairResult) -> bool:
            return self._book.put(given[pair], self.version, result)

        done = 0
        try:
            checker = self._checker(rank, self._watchpoints, progress)
            for some in checker.groups(steps) if not checker.alone else ():
                if some is None:
                    yield None
                    continue
                tell = scaled(progress, done, len(steps), len(some))
                yield Group(rank, some, checker, tell, put=put, again=self._again(rank, tell))
                done += len(some)
        except RenumberedError:  # those that are left are divided anew
            pass
        if done < len(steps):
            yield from self.alone(rank, steps[done:], scaled(progress, done, len(steps), len(steps) - done))

    def alone(self, rank: int, steps: Sequence[int], progress: ProgressFn) -> Iterator[Group]:
        """Steps of a rank as one group that is checked by itself."""
        yield Group(rank, steps, None, progress, put=_kept, again=self._again(rank, progress))

    def _again(self, rank: int, progress: ProgressFn) -> Callable[[Sequence[int]], Iterator[Judged]]:
        return lambda steps: self._judge(rank, list(steps), progress)

    def _judge(self, rank: int, steps: list[int], progress: ProgressFn) -> Iterator[Judged]:
        """Judges steps of a rank; again those whose files changed meanwhile, the last answer then stands."""
        for attempt in range(1, RENUMBERINGS + 1):
            changed: list[int] = []
            with ExitStack() as stack:
                tickets = {step: stack.enter_context(self._book.judging((rank, step))) for step in steps}
                try:
                    for step, result in self._checker(rank, self._watchpoints, progress).check_all(steps, progress):
                        if self._book.put(tickets.pop(step), self.version, result) or attempt >= ATTEMPTS:
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


def _kept(_pair: Pair, _result: PairResult) -> bool:
    """Whoever checks by himself has put the result where it belongs."""
    return True
