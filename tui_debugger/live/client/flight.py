"""The flight recorder: the last steps are kept, and written down when something goes wrong while nobody watches.

What is written is a dump directory that ``tdbg open`` reads: the graph, statistics of every tensor of the last steps,
and, when asked for, values of the last few. Memory, disk and the number of dumps are bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tui_debugger.analysis.blocks import Array
from tui_debugger.analysis.conditions import by_abbr, not_finite_words
from tui_debugger.analysis.watch_text import parse_watch
from tui_debugger.errors import TdbgError
from tui_debugger.live.client.judging import Judge
from tui_debugger.live.client.probe import ClientHit, Identity
from tui_debugger.model import TensorMeta, TensorStats, Verdict

ROW_BYTES: Final = 600
"""What one tensor's statistics take in memory, about."""
_FOUND: Final = (Verdict.FINDING, Verdict.BLOCKED)
"""What makes a tensor a finding."""
REMEMBERED: Final = 100_000
"""Hits that are not reported a second time."""


@dataclass(frozen=True, slots=True)
class Flight:
    """What a flight recorder keeps, and where it writes.

    Attributes:
        directory: every dump becomes a directory in here.
        steps: steps of which statistics are kept.
        tensor_steps: steps of which values are kept as well; 0: none.
        watch: texts such as ``"TL abs_mean_gt=10 @ category=weight"``; None: the recommended watchpoints.
        memory: bytes that are kept at most; older steps go first.
        disk: bytes of all dumps together at most: values that do not fit are left out, then no more is written.
        dumps: dumps of this process at most.
    """

    directory: str
    steps: int = 20
    tensor_steps: int = 0
    watch: Sequence[str] | None = None
    memory: int = 256 << 20
    disk: int = 1 << 30
    dumps: int = 4

    def __post_init__(self) -> None:
        """Refuses what makes no sense."""
        if self.steps < 1 or not 0 <= self.tensor_steps <= self.steps:
            raise TdbgError(
                f"a flight recorder cannot keep {self.steps} steps and values of {self.tensor_steps}",
                hint="steps must be 1 or more, tensor_steps between 0 and steps",
            )


@dataclass(frozen=True, slots=True)
class Row:
    """One tensor of one step.

    Attributes:
        name: of its node in the graph.
        stats: None when its elements are no numbers.
        values: a copy that nobody changes; None when it was not made.
        slot: output slot.
    """

    name: str
    meta: TensorMeta
    stats: TensorStats | None
    values: Array | None = None
    slot: int = 0


@dataclass(slots=True)
class KeptStep:
    """One step in the ring."""

    step: int
    rows: list[Row]
    nbytes: int


class FlightRecorder:
    """The ring, the watchpoints and the decision when to write. Not tied to a framework.

    Attributes:
        flight: the settings.
        judge: the watchpoints on the nodes of the graph that it knows: what has to be measured.
    """

    def __init__(self, flight: Flight, identity: Identity) -> None:
        """Keeps nothing yet.

        Raises:
            BadWatchpointError: a watch text is wrong.
        """
        self.flight = flight
        self.judge = Judge()
        self._identity = identity
        self._graphs: Sequence[bytes] = ()
        self._watch = None if flight.watch is None else [parse_watch(text) for text in flight.watch]
        self._ring: deque[KeptStep] = deque()
        self._nbytes = 0
        self._seen: set[tuple[int, str, int]] = set()
        self._quiet_until = -1
        self._reason = ""
        self._dumps = 0
        self._disk = 0

    @property
    def knows_graph(self) -> bool:
        """Whether ``know`` was called."""
        return bool(self._graphs)

    @property
    def steps(self) -> Sequence[int]:
        """The steps that are in the ring."""
        return [kept.step for kept in self._ring]

    def know(self, graphs: Sequence[bytes]) -> Judge:
        """The graph is this one from now on. Returns the watchpoints on its nodes, as ``judge``."""
        from tui_debugger.live.client.selecting import flight_watchpoints  # reads graphs: not before it is needed

        self._graphs = tuple(graphs)
        self.judge = Judge(flight_watchpoints(self._graphs, self._watch, self._identity.backend))
        return self.judge

    def keep(self, step: int, rows: Sequence[Row]) -> None:
        """Takes a step into the ring."""
        nbytes = sum(ROW_BYTES + _values_bytes(row) for row in rows)
        self._ring.append(KeptStep(step, list(rows), nbytes))
        self._nbytes += nbytes
        self._drop_values()
        while len(self._ring) > self.flight.steps or (self._nbytes > self.flight.memory and len(self._ring) > 1):
            self._nbytes -= self._ring.popleft().nbytes
        if self._nbytes > self.flight.memory:  # the newest step alone is too much
            self._strip(self._ring[-1])
            most = self.flight.memory // ROW_BYTES
            del self._ring[-1].rows[most:]
            self._ring[-1].nbytes = self._nbytes = ROW_BYTES * len(self._ring[-1].rows)

    def judged(self, step: int, hits: Sequence[ClientHit]) -> str:
        """What the watchpoints said about the step kept last: writes when that is new.

        One event has many hits, in this step and the following ones: after a dump none is written until as many steps
        have passed as are kept. What comes up meanwhile is in the ring then, and is the reason of the next one.

        Returns:
            A sentence for people when something was written; empty else.
        """
        fresh = [hit for hit in hits if hit.result.verdict in _FOUND and _key(hit) not in self._seen]
        if len(self._seen) < REMEMBERED:
            self._seen.update(map(_key, fresh))
        if fresh and not self._reason:
            more = f" and {len(fresh) - 1} more" if len(fresh) > 1 else ""
            self._reason = f"{_what(fresh[0])} {fresh[0].node}{more} at step {step}"
        if not self._reason or step < self._quiet_until:
            return ""
        reason, self._reason = self._reason, ""
        return self._write(reason)

    def failed(self, error: BaseException) -> str:
        """An exception ends the training: writes what is kept. Returns as ``judged``."""
        what = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        return self._write(f"{what} after step {self._ring[-1].step}") if self._ring else ""

    def _drop_values(self) -> None:
        """Values are kept of the last few steps only."""
        if len(self._ring) > self.flight.tensor_steps:
            self._nbytes -= self._strip(self._ring[-1 - self.flight.tensor_steps])

    def _strip(self, kept: KeptStep) -> int:
        """Lets go of the values of a step; returns their bytes."""
        freed = sum(map(_values_bytes, kept.rows))
        if freed:
            kept.rows = [Row(row.name, row.meta, row.stats, None, row.slot) for row in kept.rows]
            kept.nbytes -= freed
        return freed

    def _write(self, reason: str) -> str:
        """Writes a dump, unless there were enough."""
        from tui_debugger.live.client.flight_dump import write_flight

        room = self.flight.disk - self._disk
        if self._dumps >= self.flight.dumps or room <= 0 or not self._ring:
            return ""
        self._dumps += 1
        self._quiet_until = self._ring[-1].step + self.flight.steps
        directory = Path(self.flight.directory)
        path, nbytes = write_flight(directory, self._identity, self._graphs, self._ring, room=room, reason=reason)
        self._disk += nbytes
        return f"{reason}: the last {len(self._ring)} steps are in {path}"


def _what(hit: ClientHit) -> str:
    """``TL hit on``; what kept a condition from being judged is no hit of it."""
    if hit.result.verdict is Verdict.BLOCKED:
        return f"{not_finite_words(hit.result.error)} in"
    return f"{by_abbr(hit.result.condition).abbr} hit on"


def _key(hit: ClientHit) -> tuple[int, str, int]:
    return hit.result.watchpoint, hit.node, hit.slot


def _values_bytes(row: Row) -> int:
    return 0 if row.values is None else row.values.nbytes
