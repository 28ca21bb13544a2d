"""Results of checks by (rank, step): which are fresh, and how several are shown as one."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from tui_debugger.arrays import Mask
from tui_debugger.model import Coverage, Verdict, Watchpoint
from tui_debugger.session.checking import PairResult
from tui_debugger.session.hits import HitList
from tui_debugger.session.types import CheckResult, Pair


class Ticket:
    """Stands for a pair that is being judged."""

    def __init__(self, pair: Pair) -> None:
        """``outdated`` is set by the book that gave the ticket."""
        self.pair = pair
        self.outdated = False


class ResultBook:
    """What every (rank, step) was last found to be, with the watchpoint version it was judged by.

    Attributes:
        edition: another number whenever something in it is different.
    """

    def __init__(self) -> None:
        """Starts empty."""
        self.edition = 0
        self._lock = threading.Lock()
        self._results: dict[Pair, tuple[int, PairResult]] = {}
        self._tickets: set[Ticket] = set()

    @contextmanager
    def judging(self, pair: Pair) -> Iterator[Ticket]:
        """Notices what happens to the files of a pair while it is judged: see ``put``."""
        ticket = Ticket(pair)
        with self._lock:
            self._tickets.add(ticket)
        try:
            yield ticket
        finally:
            with self._lock:
                self._tickets.discard(ticket)

    def put(self, ticket: Ticket, version: int, result: PairResult) -> bool:
        """Keeps a result, unless the files it speaks of changed since the ticket was given; whether it was kept."""
        with self._lock:
            if not ticket.outdated:
                self._results[ticket.pair] = (version, result)
                self.edition += 1
            return not ticket.outdated

    def fresh(self, pair: Pair, version: int) -> PairResult | None:
        """The result of a pair if it was judged by this version."""
        with self._lock:
            kept = self._results.get(pair)
        return kept[1] if kept is not None and kept[0] == version else None

    def latest(self, pair: Pair) -> PairResult | None:
        """The last result of a pair, outdated or not."""
        with self._lock:
            kept = self._results.get(pair)
        return kept[1] if kept is not None else None

    def drop_from(self, rank: int, step: int) -> None:
        """Forgets a rank's results from a step on, by number: see ``keep_only``."""
        self._drop(lambda pair: pair[0] == rank and pair[1] >= step)

    def keep_only(self, rank: int, earlier: Collection[int]) -> None:
        """Forgets a rank's results of all but some steps: files of the others changed, or of what came before."""
        self._drop(lambda pair: pair[0] == rank and pair[1] not in earlier)

    def _drop(self, which: Callable[[Pair], bool]) -> None:
        with self._lock:
            for pair in [pair for pair in self._results if which(pair)]:
                del self._results[pair]
                self.edition += 1
            for ticket in self._tickets:
                ticket.outdated = ticket.outdated or which(ticket.pair)

    def forget(self, pair: Pair) -> None:
        """Forgets the result of one pair."""
        with self._lock:
            self.edition += self._results.pop(pair, None) is not None

    def rows_with_finding(self, rank: int, step: int | None, count: int) -> Mask:
        """Marks the node rows (of ``count``) that have a finding in a step (None: in any)."""
        with self._lock:
            results = [r for (of, at), (_, r) in self._results.items() if of == rank and step in (None, at)]
        mask = np.zeros(count, bool)
        for result in results:
            rows = result.hits.node[result.hits.verdict == Verdict.FINDING]
            mask[rows[rows < count]] = True  # a table that was just built anew may be shorter
        return mask


def combined(covers: Sequence[Coverage]) -> Coverage:
    """One coverage from those of several pairs."""
    watched, blocked = Counter[int](), Counter[int]()
    for cover in covers:
        watched.update(dict(cover.watched))
        blocked.update(dict(cover.blocked))
    return Coverage(
        checked=sum(c.checked for c in covers),
        unreadable=sum(c.unreadable for c in covers),
        not_comparable=sum(c.not_comparable for c in covers),
        skipped=sum(c.skipped for c in covers),
        steps=tuple(pair for c in covers for pair in c.steps),
        watched=tuple(sorted(watched.items())),
        blocked=tuple(sorted(blocked.items())),
        by_design=sum(c.by_design for c in covers),
        constants=sum(c.constants for c in covers),
        parts=tuple(sorted({part for c in covers for part in c.parts}, key=lambda part: (part.where, part.why))),
    )


def merged(
    results: Sequence[tuple[Pair, PairResult]],
    watchpoints: tuple[Watchpoint, ...],
    version: int,
    seconds: float,
    cancelled: bool,
) -> CheckResult:
    """One result from the results of several pairs."""
    coverage = combined([result.coverage for _, result in results])
    return CheckResult(
        pairs=tuple(pair for pair, _ in results),
        hits=HitList.merged(result.hits for _, result in results),
        coverage=coverage,
        watchpoints=watchpoints,
        version=version,
        seconds=seconds,
        cancelled=cancelled,
    )


def joined(parts: Sequence[CheckResult]) -> CheckResult:
    """One result from those of several checks of different pairs with the same watchpoints."""
    coverage = combined([part.coverage for part in parts])
    pairs = tuple(pair for part in parts for pair in part.pairs)
    hits = HitList.merged(part.hits for part in parts)
    return dataclasses.replace(parts[-1], pairs=pairs, hits=hits, coverage=coverage)
