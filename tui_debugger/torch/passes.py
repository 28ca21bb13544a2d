"""Passes without gradients: each is judged when it ends, and let go but for what its watchpoints found.

There may be hundreds between the ends of two steps (an evaluation, the tokens of a rollout), under the same names. What
hit is handed to the step that ends next. Beside that the values of the first pass that hit and of the last one stay, as
long as nothing else needs the room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tui_debugger.live.client.agent import ClientHit
from tui_debugger.live.client.judging import Judge
from tui_debugger.stats.records import Record
from tui_debugger.torch.captures import Capture, Key, Room, Step
from tui_debugger.torch.plans import Foresight
from tui_debugger.torch.verdicts import find_records, judge_step

_UNREADABLE: Final = "unreadable"


class Passes:
    """Those of the step that runs.

    Attributes:
        now: the pass that runs, None between passes.
        names: of all that ran in those that are over.
    """

    def __init__(self, step: Step, room: Room) -> None:
        """There was none. ``step``: takes what hit; ``room``: for values, shared with it."""
        self.now: Step | None = None
        self.names: set[str] = set()
        self._step = step
        self._room = room
        self._first: Step | None = None
        self._last: Step | None = None
        self._said: set[tuple[str, int, int]] = set()
        self._outermost: dict[Key, dict[str, tuple[float, Capture]]] = {}
        room.make = self._make_room

    def __bool__(self) -> bool:
        """Whether there was any."""
        return self.now is not None or self._last is not None

    def begin(self) -> Step:
        """A pass begins."""
        self.now = Step(self._room, self._step.volatile)
        return self.now

    def end(self, judge: Judge | None) -> None:
        """It is over. ``judge``: the watchpoints, None while nobody had an occasion to set any."""
        now, self.now = self.now, None
        if now is None or not len(now):
            return
        if judge is None:
            self._remember(now)
            caught = False
        else:
            caught = bool(self.caught(now, judge_step(now, judge, recheck=False)))
            caught |= any(isinstance(each, Capture) and each.told and each.record is not None for each in now.entries)
        self.names.update(now.names())
        before, self._last = self._last, now
        if before is not None and before is not self._first:
            before.clear()
        if caught and self._first is None:
            self._first = now

    def caught(self, now: Step, hits: Sequence[ClientHit]) -> list[ClientHit]:
        """Hands what hit to the step; those hits that are new. Several passes of one step: the first one counts."""
        new = [hit for hit in hits if (hit.node, hit.slot, hit.result.watchpoint) not in self._said]
        self._said |= {(hit.node, hit.slot, hit.result.watchpoint) for hit in new}
        found = (now.get((hit.node, hit.slot)) for hit in new)
        self._step.adopt(list({id(each): each for each in found if each is not None}.values()))
        return new

    def settle(self) -> None:
        """Watchpoints may be set from now on, and judge the passes that were before that."""
        found = {id(capture): capture for kept in self._outermost.values() for _, capture in kept.values()}
        self._outermost.clear()
        self._step.adopt(list(found.values()))

    def find(self, key: Key) -> tuple[Step, Capture] | None:
        """What is known of a tensor: of the pass that runs, that hit first, that ended last."""
        for each in (self.now, self._step, self._first, self._last):
            capture = each.get(key) if each is not None else None
            if each is not None and capture is not None:
                return each, capture
        return None

    def kept(self) -> Iterator[Step]:
        """The passes whose tensors are still known: the one that hit first, and the one that ended last."""
        yield from (each for each in (self._first, self._last) if each is not None)

    def clear(self) -> None:
        """The step is over: forgets everything."""
        for each in (self.now, self._first, self._last):
            if each is not None:
                each.clear()
        self.now = self._first = self._last = None
        self.names.clear()
        self._said.clear()
        self._outermost.clear()

    # -- inside --------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        if self._last is not None and self._last is not self._first:
            self._last.drop_values()

    def _remember(self, now: Step) -> None:
        """Keeps of each tensor the passes whose numbers were the outermost ones.

        Whatever threshold a watchpoint will have: if any pass crosses it, one of these does.
        """
        find_records(now, list(now), Foresight())
        for capture in now:
            if capture.record is None:
                continue
            kept = self._outermost.setdefault((capture.name, capture.slot), {})
            for name, value in _numbers(capture.record):
                if name not in kept or value > kept[name][0]:
                    kept[name] = value, capture


def _numbers(record: Record) -> Iterator[tuple[str, float]]:
    """Numbers of a tensor that thresholds are set for, each so that more of it is further out."""
    stats = record.stats
    if stats is None:
        yield _UNREADABLE, 0.0
        return
    yield "nan", float(stats.nan > 0)
    yield "inf", float(stats.pos_inf + stats.neg_inf > 0)
    low, high = stats.minimum, stats.maximum
    span = None if low is None or high is None else high - low
    for name, value in (
        ("min", low),
        ("max", high),
        ("max_min", span),
        ("mean", stats.mean),
        ("abs_mean", stats.abs_mean),
        ("zero", stats.zero_percentage),
        *((f"inside {bounds}", float(count)) for bounds, count in record.ranges.items()),
    ):
        if value is not None:
            yield f"least {name}", -value
            yield f"greatest {name}", value
