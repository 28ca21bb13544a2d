"""What came from one training, by step: values in the spool, statistics in memory. Both bounded."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from tui_debugger.live.spool import Kept
from tui_debugger.live.table import Fetched, Told
from tui_debugger.live.types import RemoteStats

STEPS: Final = 4096
"""So many steps are remembered at which a training stopped."""
MOST_TOLD: Final = 1 << 18
"""So many statistics are kept; those of the oldest steps go first."""
_WRONG_MEAN_FROM: Final = 20_000
"""Elements from which the mean of MindSpore 1.6 to 2.3 is that of the first part of a tensor only."""


@dataclass(eq=False)
class StepKept:
    """What is kept of a step, by place in the graph.

    Attributes:
        values: in the spool.
        told: statistics.
        missing: what the training said it does not have.
        stopped: the training stopped here.
        version: grows with every change.
    """

    values: dict[int, Fetched] = field(default_factory=dict)
    told: dict[int, Told] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    stopped: bool = False
    version: int = 0

    @property
    def anything(self) -> bool:
        """Whether there is something to see."""
        return bool(self.values) or any(said.stats is not None for said in self.told.values())


class Keeping:
    """The steps of one training. To be used under a lock of its owner."""

    def __init__(self) -> None:
        """Starts empty."""
        self._steps: dict[int, StepKept] = {}
        self._told = 0
        self._clock = 0

    def at(self, step: int) -> StepKept | None:
        """What is kept of a step."""
        return self._steps.get(step)

    def steps(self) -> list[int]:
        """Steps that were stopped at, or of which something is kept."""
        return [step for step, kept in self._steps.items() if kept.stopped or kept.anything]

    def stopped(self, step: int) -> list[int]:
        """Notes a stop; returns steps that are too many now, which are forgotten."""
        self._kept(step).stopped = True
        dropped = []
        while len(self._steps) > STEPS:
            oldest = min(each for each in self._steps if each != step)
            dropped.append(oldest)
            self.forget(oldest)
        return dropped

    def renew(self, step: int, places: Iterable[int]) -> list[Kept]:
        """The values of some places changed within a step; returns the files that are not wanted any more."""
        kept = self._steps.get(step)
        if kept is None:
            return []
        gone = []
        for place in places:
            self._told -= kept.told.pop(place, None) is not None
            fetched = kept.values.pop(place, None)
            if fetched is not None:
                gone.append(fetched.kept)
        kept.missing.clear()
        kept.version += 1
        return gone

    def put_value(self, step: int, place: int, value: Kept) -> Kept | None:
        """Keeps values; returns those of before."""
        kept = self._kept(step)
        before = kept.values.get(place)
        kept.values[place] = Fetched(value, self._tick())
        kept.missing.discard(place)
        kept.version += 1
        return before.kept if before is not None else None

    def put_told(self, step: int, place: int, said: RemoteStats) -> None:
        """Keeps statistics; without type and shape the training does not have the tensor."""
        kept = self._kept(step)
        kept.version += 1
        if said.meta is None:
            kept.missing.add(place)
            return
        stats = said.stats
        if stats is not None and not said.complete and stats.count >= _WRONG_MEAN_FROM and stats.mean is not None:
            stats = replace(stats, mean=None)
        self._told += place not in kept.told
        kept.told[place] = Told(said.meta, stats, said.complete, self._tick())
        kept.missing.discard(place)
        while self._told > MOST_TOLD:
            oldest = min((each for each, of in self._steps.items() if of.told and each != step), default=None)
            if oldest is None:
                break
            of = self._steps[oldest]
            self._told -= len(of.told)
            of.told = {}
            of.version += 1

    def put_missing(self, step: int, places: Iterable[int]) -> None:
        """The training does not have these."""
        kept = self._kept(step)
        kept.missing.update(places)
        kept.version += 1

    def values_gone(self, step: int) -> None:
        """Forgets values whose files are gone."""
        kept = self._steps.get(step)
        if kept is not None:
            kept.values = {place: value for place, value in kept.values.items() if value.kept.path.exists()}
            kept.version += 1

    def forget(self, step: int) -> None:
        """Forgets a step."""
        kept = self._steps.pop(step, None)
        if kept is not None:
            self._told -= len(kept.told)

    def forget_all(self) -> list[int]:
        """Forgets everything; returns the steps that there were."""
        steps = list(self._steps)
        for step in steps:
            self.forget(step)
        return steps

    def _kept(self, step: int) -> StepKept:
        return self._steps.setdefault(step, StepKept())

    def _tick(self) -> int:
        self._clock = max(self._clock + 1, time.time_ns() // 1000)
        return self._clock
