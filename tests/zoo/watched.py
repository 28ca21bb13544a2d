"""One training under the recommended watchpoints: the real client, the real server, a real session, in one process."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import tui_debugger.torch as tdbg
from tests.patience import PATIENCE
from tui_debugger.diagnose.explain.explain import explain
from tui_debugger.diagnose.explain.guidance import Standing
from tui_debugger.live.server import serve
from tui_debugger.live.wire import Event
from tui_debugger.model import Hit, Verdict, Watchpoint
from tui_debugger.session.live import LiveEvent, LiveSession
from tui_debugger.session.live_evidence import AT_STOPS
from tui_debugger.watch.text import parse_watch

STOPS = 6
"""So many stops at findings are looked at closely."""


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
        unrecorded: what the training could not record.
    """

    findings: dict[int, dict[str, set[str]]] = field(default_factory=dict)
    origins: dict[int, list[str]] = field(default_factory=dict)
    causes: dict[str, list[str]] = field(default_factory=dict)
    stops: list[int] = field(default_factory=list)
    last: int = -1
    trouble: list[str] = field(default_factory=list)
    unrecorded: list[str] = field(default_factory=list)

    def first(self, condition: str) -> dict[str, int]:
        """By node the first step at which a condition held."""
        found: dict[str, int] = {}
        for step in sorted(self.findings):
            for node, conditions in self.findings[step].items():
                if condition in conditions:
                    found.setdefault(node, step)
        return found


class Watcher:
    """Drives the one training that comes, from a thread of its own, as ``tdbg listen --stop-on-hit --save`` does."""

    def __init__(self, only: str = "", stops: int = STOPS, save: Path | None = None) -> None:
        """Listens.

        Args:
            only: a watchpoint as ``--watch`` takes it; empty: the recommended ones.
            stops: after so many stops at findings the training runs on.
            save: a directory to which a dump of what is known is written at the end.
        """
        self.seen = Seen()
        self._save = save
        self._only = only
        self._stops = stops
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
        told: set[int] = set()
        try:
            while True:
                event = self._events.get(timeout=PATIENCE)
                if event.kind is Event.HITS and event.step is not None:
                    told.add(event.step)
                    if not self._events.empty():
                        continue  # operators tell of their hits one by one
                for step in told:
                    self._report(step)
                told.clear()
                if event.kind is Event.STOPPED:
                    self._stopped(event)
                elif event.kind is Event.GRAPH and self._begun:
                    if self._add():
                        self._session.update([0])
                elif event.kind in (Event.DONE, Event.LOST):
                    passed = self._session.state(0).passed
                    self.seen.last = passed if passed is not None else -1
                    if self._save is not None:
                        self._session.save(self._save)
                    return
        except Exception as error:  # noqa: BLE001 - a test must see it, and the training must not hang
            self.seen.trouble.append(repr(error))
            self._session.release()

    def _stopped(self, event: LiveEvent) -> None:
        assert event.step is not None
        if not self._begun:
            self._begun = True
            self._add()
        stop = self._session.state(0).stop
        if stop is not None and stop.node:  # what becomes of an Inf is known at the end of the step
            self._session.run(1, [0], stop_on_hit=False, stop_at_nodes=False)
            return
        hits = self._report(event.step)
        if hits and event.step >= 0:
            self.seen.stops.append(event.step)
            if self._save is not None and (known := self._session.known([(0, event.step)])) is not None:
                self._session.keep(0, event.step, known.hits, AT_STOPS)
            for hit in hits:
                if hit.key.node not in self.seen.causes:
                    sections = explain(self._session, hit.key, hit).sections
                    likely = [cause for each in sections for cause in each.causes if cause.standing is Standing.LIKELY]
                    self.seen.causes[hit.key.node] = [f"{cause.title}: {cause.evidence}" for cause in likely]
        stops = len(self.seen.stops) < self._stops
        if not self._session.run(None, [0], stop_on_hit=stops):
            self._report(event.step)
            self._session.run(None, [0], stop_on_hit=stops)

    def _add(self) -> int:
        if not self._only:
            return self._session.add_recommended()
        condition, params, nodes = parse_watch(self._only)
        return self._session.watchpoints.add_missing([Watchpoint(0, condition, params, nodes)])

    def _report(self, step: int) -> list[Hit]:
        known = self._session.known([(0, step)])
        if known is None:
            return []
        hits = [hit for hit in known.hits if hit.verdict is Verdict.FINDING]
        # What was a finding while the step ran may turn out to be by design at its end.
        self.seen.findings.pop(step, None)
        self.seen.origins.pop(step, None)
        if hits:
            found: dict[str, set[str]] = defaultdict(set)
            for hit in hits:
                found[hit.key.node] |= {each.condition for each in hit.results if each.verdict >= Verdict.BLOCKED}
            self.seen.findings[step] = dict(found)
            self.seen.origins[step] = [hit.key.node for hit in hits if hit.origin]
        return hits


def watch(
    training: Callable[[Callable[..., tdbg.Handle]], object],
    level: str = "module",
    only: str = "",
    stops: int = STOPS,
    save: Path | None = None,
) -> Seen:
    """Runs a training that attaches by what it is given, under a ``Watcher``; returns what that saw."""
    watcher = Watcher(only, stops, save)
    handles: list[tdbg.Handle] = []

    def attach(*given: Any) -> tdbg.Handle:
        handles.append(tdbg.attach(*given, address=watcher.address, level=level))
        return handles[-1]

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        training(attach)
    finally:
        torch.set_num_threads(threads)
        watcher.close()
    watcher.seen.unrecorded = [each.what for handle in handles for each in handle.unrecorded]
    return watcher.seen
