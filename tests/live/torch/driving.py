"""Drives one training through the server, as a session does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.live.conftest import Happened
from tests.live.torch.forks import parent
from tests.live.torch.watching import recommended_watchpoints
from tests.patience import PATIENCE
from tui_debugger.graph.build import build_table
from tui_debugger.graph.messages import parse_graph
from tui_debugger.graph.table import NodeTable
from tui_debugger.live.graph import wire_params
from tui_debugger.live.server.training import RemoteTraining
from tui_debugger.live.wire import Event, Phase, ReceivedHit, RemoteStats, RemoteTensor, RemoteWatchpoint, TrainingStop
from tui_debugger.model import Watchpoint
from tui_debugger.stats.dtypes import dtype_of
from tui_debugger.watch.condition_table import CONDITIONS, validate

ROOT = Path(__file__).resolve().parents[3]


class Values:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.dtypes: dict[int, tuple[str, tuple[int, ...]]] = {}
        self.bytes: dict[int, bytearray] = {}

    def begin(self, number: int, dtype: str, shape: tuple[int, ...]) -> bool:
        """Wanted."""
        self.dtypes[number] = dtype, shape
        self.bytes[number] = bytearray()
        return True

    def write(self, number: int, chunk: bytes) -> None:
        """Some more."""
        self.bytes[number] += chunk

    def end(self, number: int, complete: bool) -> None:
        """All there."""


class Driven:
    """A training process, and the training that the server sees."""

    def __init__(self, address: str, happened: Happened, program: str, **options: object) -> None:
        self._happened = happened
        self._before = happened.count(Event.STOPPED)
        given = [f"--{name}={value}" for name, value in options.items()]
        self.process = parent().fork("tests.live.torch.programs", [program, f"--address={address}", *given])
        self.training: RemoteTraining
        self.table: NodeTable

    def arrived(self) -> Driven:
        """Waits for the first stop."""
        self.training = self._happened.training(Event.STOPPED, self._before + 1)
        self.table = build_table([parse_graph(graph) for graph in self.training.graphs])
        return self

    @property
    def stop(self) -> TrainingStop:
        """Where it stands."""
        assert self.training.stop is not None
        return self.training.stop

    def watch(
        self, *watchpoints: tuple[str, dict[str, float | str], str], more: Sequence[RemoteWatchpoint] = ()
    ) -> None:
        """Sets watchpoints: (condition, parameters, regular expression on names or ``*``)."""
        import re

        made = []
        for number, (condition, params, pattern) in enumerate(watchpoints, 1 + len(more)):
            names = [
                (self.table.names[row], self.table.op_type(row), "kernel_graph_0")
                for row in np.flatnonzero(self.table.watchable).tolist()
                if re.search(pattern, self.table.names[row])
            ]
            assert names, f"nothing is called {pattern}"
            watchpoint = Watchpoint(number, condition, validate(condition, params))
            wire = CONDITIONS[condition].wire
            made.append(RemoteWatchpoint(number, wire, wire_params(watchpoint), tuple(names)))
        self.training.set_watchpoints([*more, *made])

    def recommended(self) -> list[RemoteWatchpoint]:
        """The recommended watchpoints on this graph."""
        return recommended_watchpoints(self.training)

    def run(self, steps: int | None = 1, *, stop_on_hit: bool = True) -> Driven:
        """Runs on and waits for the next stop."""
        before = self.stop.count
        self.training.run(steps, stop_on_hit=stop_on_hit)
        return self.stopped_after(before)

    def run_to_node(self, name: str = "") -> Driven:
        """Runs to a node and waits."""
        before = self.stop.count
        self.training.run_to_node(name)
        return self.stopped_after(before)

    def stopped_after(self, count: int) -> Driven:
        """Waits for a later stop."""
        times = 1
        while True:
            self._happened.wait(Event.STOPPED, times)
            if self.training.stop is not None and self.training.stop.count > count:
                return self
            times = self._happened.count(Event.STOPPED) + 1

    def moved_on(self) -> None:
        """Runs on, and waits until it stands at another stop, or has ended."""
        before = self.stop.count
        self.training.run(None)
        self._happened.until(lambda: self.training.phase is Phase.DONE or self._stands_after(before))

    def _stands_after(self, count: int) -> bool:
        return self.training.phase is Phase.STOPPED and self.stop.count > count

    def hits(self) -> dict[str, ReceivedHit]:
        """The hits of this stop by node (the first one of each)."""
        return {hit.node: hit for hit in reversed(self.training.hits)}

    def value(self, name: str, slot: int = 0, *, previous: bool = False) -> npt.NDArray[np.generic] | None:
        """Values of a tensor; None when the training does not have them."""
        sink = Values()
        (there,) = self.training.values([RemoteTensor(name, slot, previous)], sink)
        if not there:
            return None
        dtype, shape = sink.dtypes[0]
        kind = dtype_of(dtype)
        assert kind is not None
        return np.frombuffer(bytes(sink.bytes[0]), kind).reshape(shape)

    def statistics(self, name: str, slot: int = 0) -> RemoteStats:
        """What the training says of a tensor."""
        (found,) = self.training.statistics([RemoteTensor(name, slot)])
        return found

    def finish(self) -> tuple[int, str, str]:
        """Lets the training go on to its end; exit code and what it printed."""
        self.training.release()
        return self.outcome()

    def outcome(self) -> tuple[int, str, str]:
        """Waits for the process."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.wait(PATIENCE), out, err

    def end(self) -> None:
        """Ends the process, however."""
        if self.process.poll() is None:
            self.process.kill()
        for pipe in (self.process.stdout, self.process.stderr):
            pipe.close()
        self.process.wait(PATIENCE)
