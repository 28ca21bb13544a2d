"""Where it began, as a session says it of real trainings of every unusual kind: the true place, and no other."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tests.live.torch.driving import PATIENCE, ROOT
from tui_debugger.live.server import Server
from tui_debugger.model import NodeKind, NodeSelection, NodeSelector
from tui_debugger.session.live import LiveEvent, LiveKind, LiveSession

pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from tests.live.torch import nets

ANYWHERE = NodeSelection((NodeSelector(NodeKind.CATEGORY, "tensor"),))


@dataclass
class Said:
    """What was said of one training.

    Attributes:
        origins: (step, node, slot).
        hits: nodes by step, in order.
        inputs: by node the names of what it was made of; empty names for what is not known.
    """

    origins: set[tuple[int, str, int]] = field(default_factory=set)
    hits: dict[int, list[str]] = field(default_factory=dict)


class Watching:
    """A session that runs every training to its end, step by step."""

    def __init__(self, session: LiveSession) -> None:
        self.session = session
        session.watchpoints.add("tensor_overflow", {}, ANYWHERE)
        self.said: dict[int, Said] = {}
        self._changed = threading.Condition()
        self._stops: dict[int, int] = {}
        self._over: set[int] = set()
        session.subscribe(self._heard)

    def _heard(self, event: LiveEvent) -> None:
        with self._changed:
            if event.rank is not None and event.kind is LiveKind.STOPPED:
                self._stops[event.rank] = self._stops.get(event.rank, 0) + 1
            if event.rank is not None and event.kind in (LiveKind.DONE, LiveKind.LOST):
                self._over.add(event.rank)
            self._changed.notify_all()

    def follow(self, rank: int, steps: int) -> None:
        """Goes along with one training."""
        said = self.said[rank] = Said()
        self._stopped(rank, 1)
        for step in range(steps):
            self.session.run(1, [rank], stop_on_hit=False)
            self._stopped(rank, step + 2)
            known = self.session.known([(rank, step)])
            assert known is not None
            said.hits[step] = list(dict.fromkeys(hit.key.node for hit in known.hits))
            said.origins |= {(step, hit.key.node, hit.key.slot) for hit in known.hits if hit.origin}
        self.session.release([rank])

    def _stopped(self, rank: int, times: int) -> None:
        with self._changed:
            arrived = self._changed.wait_for(lambda: self._stops.get(rank, 0) >= times or rank in self._over, PATIENCE)
            assert arrived, f"rank {rank} did not stop {times} times"
            assert self._stops.get(rank, 0) >= times, f"rank {rank} ended"


def watched(server: Server, names: Sequence[str], level: str = "module") -> dict[str, Said]:
    """What a session says of some trainings."""
    session = LiveSession(server)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.live.torch.nets", server.address, level, *names],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        watching = Watching(session)
        for rank in range(len(names)):
            watching.follow(rank, nets.STEPS)
        out, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, out
        assert "switched off" not in out
        return {name: watching.said[rank] for rank, name in enumerate(names)}
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
        session.close()
