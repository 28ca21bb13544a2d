"""How a training is driven, whatever framework it uses. The server implements these; sessions and tests use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

from tui_debugger.live.types import (
    Phase,
    ReceivedHit,
    RemoteStats,
    RemoteTensor,
    RemoteWatchpoint,
    Stop,
    TrainingInfo,
    Unrecorded,
    ValueSink,
)
from tui_debugger.model import ProgressFn, no_progress


class Event(Enum):
    """Something happened to a training."""

    CONNECTED = "connected"
    GRAPH = "graph"
    """Its graphs are there: ``Training.graphs``."""
    STOPPED = "stopped"
    """It waits at a new stop; hits that came with it are in ``Training.hits``."""
    HITS = "hits"
    """It reported hits while it goes on by itself (``stop_on_hit=False``), or in a recheck."""
    RUNNING = "running"
    LOST = "lost"
    BACK = "back"
    """One that was lost was heard of again."""
    DONE = "done"
    REFUSED = "refused"
    """A client was turned away: see ``Trainings.refusals``."""


Listener = Callable[["Training | None", Event], None]
"""Called from threads of the server, without locks held: must be quick and must not raise."""


class Training(Protocol):
    """One training process. All methods may be called from any thread."""

    @property
    def info(self) -> TrainingInfo:
        """Who it is."""

    @property
    def phase(self) -> Phase:
        """What it is doing."""

    @property
    def stop(self) -> Stop | None:
        """Where it stopped last; None before the first stop."""

    @property
    def graphs(self) -> Sequence[bytes]:
        """Its graphs, each a serialized ``GraphProto``; empty until all are there."""

    @property
    def hits(self) -> Sequence[ReceivedHit]:
        """The hits of the last stop."""

    @property
    def unrecorded(self) -> Sequence[Unrecorded]:
        """All that it ran so far and could not record."""

    def set_watchpoints(self, watchpoints: Sequence[RemoteWatchpoint]) -> None:
        """The list as it should be. The client learns of the differences with the next ``run`` or ``recheck``."""

    def run(self, steps: int | None = 1, *, stop_on_hit: bool = True) -> None:
        """Goes on for some steps (None: until a hit or ``pause``).

        Raises:
            NotStoppedError: it is not waiting.
        """

    def run_to_node(self, name: str = "") -> None:
        """Goes on to a node (empty: the next one), at most to the end of the step.

        Raises:
            NotStoppedError: it is not waiting.
            UnsupportedError: the client stops at the end of steps only.
        """

    def pause(self) -> None:
        """Stops at the end of the step that runs; nothing when it is not running."""

    def terminate(self) -> None:
        """Ends the training process, at once when it is waiting, else at its next stop."""

    def release(self) -> None:
        """Lets the training go on by itself, without watchpoints, until its end."""

    def recheck(self, progress: ProgressFn = no_progress) -> Sequence[ReceivedHit]:
        """Has every watchpoint judge the tensors that the client holds now.

        Raises:
            NotStoppedError: it is not waiting.
            LostError: it went away meanwhile.
            CancelledError: from ``progress``, which is called a few times a second.
        """

    def statistics(self, tensors: Sequence[RemoteTensor], progress: ProgressFn = no_progress) -> Sequence[RemoteStats]:
        """What the client says of tensors, in the order asked. Raises as ``recheck``."""

    def bases(self, tensors: Sequence[RemoteTensor], progress: ProgressFn = no_progress) -> Sequence[RemoteStats]:
        """Types and shapes only. Raises as ``recheck``."""

    def values(
        self, tensors: Sequence[RemoteTensor], sink: ValueSink, progress: ProgressFn = no_progress
    ) -> Sequence[bool]:
        """Fetches values into ``sink``; for each tensor whether all of it came. ``progress`` counts bytes.

        Raises as ``recheck``. A request that is cancelled still has its answer taken off the wire, unread.
        """


class Trainings(Protocol):
    """All trainings that have come to a server, in the order of first contact."""

    @property
    def address(self) -> str:
        """Where the server listens: ``127.0.0.1:50051`` (with the port it got for 0), ``unix:/run/...``."""

    @property
    def refusals(self) -> Sequence[str]:
        """Why clients were turned away, the newest last; bounded."""

    def all(self) -> Sequence[Training]:
        """Every training, those that are lost or done included."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Calls ``listener`` for every event from now on; what is returned ends that."""

    def close(self, *, terminate: bool = False) -> None:
        """Lets every training go on by itself (or ends it), waits shortly for that, and stops. Idempotent."""
