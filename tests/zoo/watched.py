"""One training under the recommended watchpoints: the real client, the real server, a real session, in one process."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch

import tui_debugger.torch as tdbg
from tests.patience import PATIENCE
from tui_debugger.diagnose.explain.explain import explain
from tui_debugger.diagnose.explain.guidance import Standing
from tui_debugger.live.server import serve
from tui_debugger.model import Hit, Verdict
from tui_debugger.session.live import LiveEvent, LiveKind, LiveSession

STOPS = 6
"""So many stops at findings are looked at closely; after that the training runs on."""


@dataclass
class Seen:
    """What came of a training.

    Attributes:
        findings: conditions by node, by step, of every step that had some.
        origins: nodes that were marked as the origin of NaN or Inf, by step.
        causes: by node the likely causes that Explain gave at its first finding, the first one first.
        stops: steps at which ``--stop-on-hit`` would have stopped.
        last: the last step that was judged.
        trouble: what the session could not do.
    """

    findings: dict[int, dict[str, set[str]]] = field(default_factory=dict)
    origins: dict[int, list[str]] = field(default_factory=dict)
    causes: dict[str, list[str]] = field(default_factory=dict)
    stops: list[int] = field(default_factory=list)
    last: int = -1
    trouble: list[str] = field(default_factory=list)

    def first(self, condition: str) -> dict[str, int]:
        """By node the first step at which a condition held."""
        found: dict[str, int] = {}
        for step in sorted(self.findings):
            for node, conditions in self.findings[step].items():
                if condition in conditions:
                    found.setdefault(node, step)
        return found


class Watcher:
    """Drives the one training that comes, from a thread of its own, as ``tdbg listen --stop-on-hit`` does."""

    def __init__(self) -> None:
        """Listens."""
        self.seen = Seen()
        self._server = serve("127.0.0.1", 0)
        self.address = self._server.address
        self._session = LiveSession(self._server)
        self._events: queue.SimpleQueue[LiveEvent] = queue.SimpleQueue()
        self._session.subscribe(self._events.put)
        self._begun = False
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Waits until the training is done, and closes the server."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the training did not say that it is done"
        self._session.close()

    def _follow(self) -> None:
        try:
            while True:
                event = self._events.get(timeout=PATIENCE)
                if event.kind is LiveKind.STOPPED:
                    self._stopped(event)
                elif event.kind is LiveKind.HITS and event.step is not None:
                    self._report(event.step)
                elif event.kind is LiveKind.GRAPH and self._begun:
                    if self._session.add_recommended():
                        self._session.update([0])
                elif event.kind in (LiveKind.DONE, LiveKind.LOST):
                    passed = self._session.state(0).passed
                    self.seen.last = passed if passed is not None else -1
                    return
        except Exception as error:  # noqa: BLE001 - a test must see it, and the training must not hang
            self.seen.trouble.append(repr(error))
            self._session.release()

    def _stopped(self, event: LiveEvent) -> None:
        assert event.step is not None
        if not self._begun:
            self._begun = True
            self._session.add_recommended()
        hits = self._report(event.step)
        if hits and event.step >= 0:
            self.seen.stops.append(event.step)
            for hit in hits:
                if hit.key.node not in self.seen.causes:
                    sections = explain(self._session, hit.key, hit).sections
                    likely = [cause for each in sections for cause in each.causes if cause.standing is Standing.LIKELY]
                    self.seen.causes[hit.key.node] = [f"{cause.title}: {cause.evidence}" for cause in likely]
        stops = len(self.seen.stops) < STOPS
        if not self._session.run(None, [0], stop_on_hit=stops):
            self._report(event.step)
            self._session.run(None, [0], stop_on_hit=stops)

    def _report(self, step: int) -> list[Hit]:
        known = self._session.known([(0, step)])
        if known is None:
            return []
        hits = [hit for hit in known.hits if hit.verdict is Verdict.FINDING]
        if hits:
            found: dict[str, set[str]] = defaultdict(set)
            for hit in hits:
                found[hit.key.node] |= {each.condition for each in hit.results if each.verdict >= Verdict.BLOCKED}
            self.seen.findings[step] = dict(found)
            self.seen.origins[step] = [hit.key.node for hit in hits if hit.origin]
        return hits


def watch(training: Callable[[Callable[..., tdbg.Handle]], None], level: str = "module") -> Seen:
    """Runs a training that attaches by what it is given; what the recommended watchpoints found."""
    watcher = Watcher()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        training(partial(tdbg.attach, address=watcher.address, level=level))
    finally:
        torch.set_num_threads(threads)
        watcher.close()
    return watcher.seen
