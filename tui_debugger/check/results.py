"""The known results of checks, and the parts of a run that could not be looked at."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np

from tui_debugger.arrays import Mask
from tui_debugger.check.hits import HitList
from tui_debugger.check.step import PairResult
from tui_debugger.check.types import CheckResult, Pair
from tui_debugger.model import Coverage, UnreadablePart, Verdict, Watchpoint, sorted_parts
from tui_debugger.text.numbers import are, plural

Span = tuple[int, int]
"""First and last number, both included."""
ADVICE: Final = "see that it may be read and that its copy is complete, or leave it out with --rank and --step"
UNCLAIMED_ADVICE: Final = "name it as PATH to look at it, or leave it out with --ignore"
_NAMED: Final = 3
"""The number of parts that a sentence names."""


@dataclass(frozen=True, slots=True)
class AskedPart:
    """The ranks and steps that were asked for; None: all of them."""

    ranks: tuple[Span, ...] | None = None
    steps: tuple[Span, ...] | None = None

    def covers(self, part: UnreadablePart) -> bool:
        """Tells whether a part may hold something of them; an unknown rank or step belongs to all."""
        return _within(part.rank, self.ranks) and _within(part.step, self.steps)


def _within(number: int | None, spans: tuple[Span, ...] | None) -> bool:
    return number is None or spans is None or any(first <= number <= last for first, last in spans)


def belonging(
    parts: Iterable[UnreadablePart], pairs: Collection[Pair], steps: Mapping[int, Collection[int]]
) -> tuple[UnreadablePart, ...]:
    """The parts that belong to some (rank, step) pairs; ``steps`` are the known steps of each rank.

    Parts of a rank without known steps belong to every question, parts of an unknown step to those about all known
    steps.
    """
    chosen = set(pairs)
    of_ranks = {rank for rank, _ in chosen}
    of_steps = {step for _, step in chosen}
    known = {step for each in steps.values() for step in each}

    def belongs(part: UnreadablePart) -> bool:
        if part.rank is None or not steps.get(part.rank):
            if part.step is None or part.step in known:
                return part.step is None or part.step in of_steps
            return known <= of_steps
        if part.step is None or part.step in steps[part.rank]:
            return part.rank in of_ranks if part.step is None else (part.rank, part.step) in chosen
        return all((part.rank, step) in chosen for step in steps[part.rank])

    return tuple(part for part in parts if belongs(part))


def is_closed(parts: Iterable[UnreadablePart], rank: int, root_graph: int, step: int) -> bool:
    """Tells whether the directory of a step of a graph, or the one of the graph, cannot be listed."""
    for part in parts:
        if part.rank == rank and not part.graph and not part.incomplete:
            inside = [int(name) if name.isdigit() else -1 for name in part.where.split("/")[2:]]
            if inside == [root_graph] or (inside == [root_graph, step] and part.step == step):
                return True
    return False


def parts_text(parts: Sequence[UnreadablePart]) -> str:
    """``2 parts of the dump cannot be listed: rank_0/Net/0/3 (permission denied), ...; 1 step is incomplete: ...``."""
    listed = [part for part in parts if not part.unrecorded and not part.incomplete and not part.unclaimed]
    unclaimed = [part for part in parts if part.unclaimed]
    incomplete = [part for part in parts if part.incomplete]
    lost = [part for part in parts if part.unrecorded]
    texts = []
    if listed:
        texts.append(f"{plural(len(listed), 'part')} of the dump cannot be listed: {_named(listed)}")
    if incomplete:
        texts.append(f"{_incomplete(incomplete)}: {_named(incomplete)}")
    if unclaimed:
        texts.append(f"{_unclaimed(unclaimed)}: {_named(unclaimed)}")
    if lost:
        texts.append(f"not recorded by the training: {_named(lost)}")
    return "; ".join(texts)


def counted_parts(parts: Sequence[UnreadablePart]) -> list[str]:
    """``1 part of the dump not listed``, ``2 steps are incomplete``; includes parts that a training did not record."""
    incomplete = [part for part in parts if part.incomplete]
    unclaimed = [part for part in parts if part.unclaimed]
    unlisted = len(parts) - len(incomplete) - len(unclaimed)
    words = [f"{plural(unlisted, 'part')} of the dump not listed"] if unlisted else []
    words += [_incomplete(incomplete)] if incomplete else []
    return [*words, _unclaimed(unclaimed)] if unclaimed else words


def _unclaimed(parts: Sequence[UnreadablePart]) -> str:
    return f"{plural(len(parts), 'entry', 'entries')} not looked at"


def advice_for(parts: Sequence[UnreadablePart]) -> str:
    return UNCLAIMED_ADVICE if parts and all(part.unclaimed for part in parts) else ADVICE


def _incomplete(parts: Sequence[UnreadablePart]) -> str:
    return f"{plural(len(parts), 'step')} {are(len(parts))} incomplete"


def part_words(part: UnreadablePart) -> str:
    """One part and its problem: ``cannot be listed: rank_0/Net/0/3 (permission denied)``."""
    what = "not recorded" if part.unrecorded else "incomplete" if part.incomplete else "cannot be listed"
    what = "not looked at" if part.unclaimed else what
    return f"{what}: {part_text(part)}"


def _named(parts: Sequence[UnreadablePart]) -> str:
    named = ", ".join(part_text(part) for part in parts[:_NAMED])
    return named + (f", and {len(parts) - _NAMED:,} more" if len(parts) > _NAMED else "")


def part_text(part: UnreadablePart) -> str:
    """One part: ``rank_0/Net/0/3 (permission denied)``."""
    return f"{part.where} ({part.why})"


class Ticket:
    """Stands for a pair that is being judged; ``KnownResults`` sets ``outdated`` when its files change."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.outdated = False


class KnownResults:
    """The last result of every (rank, step); ``edition`` changes with every change of a result."""

    def __init__(self) -> None:
        self.edition = 0
        self._lock = threading.Lock()
        self._results: dict[Pair, tuple[int, PairResult]] = {}
        self._tickets: set[Ticket] = set()

    @contextmanager
    def judging(self, pair: Pair) -> Iterator[Ticket]:
        """Notices changes of a pair's files while it is judged: see ``put``."""
        ticket = Ticket(pair)
        with self._lock:
            self._tickets.add(ticket)
        try:
            yield ticket
        finally:
            with self._lock:
                self._tickets.discard(ticket)

    def put(self, ticket: Ticket, version: int, result: PairResult) -> bool:
        """Keeps a result unless its files changed since the ticket was given; tells whether it was kept."""
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
        with self._lock:
            kept = self._results.get(pair)
        return kept[1] if kept is not None else None

    def all(self) -> dict[Pair, tuple[int, PairResult]]:
        """The last result of every pair, with the version it was judged by; by step, then by rank."""
        with self._lock:
            return dict(sorted(self._results.items(), key=lambda each: each[0][::-1]))

    def drop_from(self, rank: int, step: int) -> None:
        self._drop(lambda pair: pair[0] == rank and pair[1] >= step)

    def keep_only(self, rank: int, earlier: Collection[int]) -> None:
        """Drops a rank's results except for ``earlier`` steps: files of the others or of their past changed."""
        self._drop(lambda pair: pair[0] == rank and pair[1] not in earlier)

    def _drop(self, which: Callable[[Pair], bool]) -> None:
        with self._lock:
            for pair in [pair for pair in self._results if which(pair)]:
                del self._results[pair]
                self.edition += 1
            for ticket in self._tickets:
                ticket.outdated = ticket.outdated or which(ticket.pair)

    def forget(self, pair: Pair) -> None:
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
        parts=sorted_parts(part for c in covers for part in c.parts),
    )


def repeated(coverage: Coverage, count: int) -> Coverage:
    """The coverage of ``count`` steps in which the same tensors were checked."""
    return dataclasses.replace(
        coverage,
        checked=coverage.checked * count,
        skipped=coverage.skipped * count,
        watched=tuple((watchpoint, tensors * count) for watchpoint, tensors in coverage.watched),
    )


def merged(
    results: Sequence[tuple[Pair, PairResult]],
    watchpoints: tuple[Watchpoint, ...],
    version: int,
    seconds: float,
    cancelled: bool,
) -> CheckResult:
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
    """One result from several checks of different pairs with the same watchpoints."""
    coverage = combined([part.coverage for part in parts])
    pairs = tuple(pair for part in parts for pair in part.pairs)
    hits = HitList.merged(part.hits for part in parts)
    return dataclasses.replace(parts[-1], pairs=pairs, hits=hits, coverage=coverage)
