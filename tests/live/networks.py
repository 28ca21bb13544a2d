"""A client of MindSpore that trains several networks: each sends its graph before it runs for the first time.

The introduction is that of the recorded session of the real client; graphs, values and the order of runs are those of
a real dump with several root graphs, which a live session has to say the same of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from tui_debugger.arrays import Array
from tui_debugger.demo.live import RecordedTraining, SavedTraining
from tui_debugger.graph.build import build_table
from tui_debugger.graph.messages import message_class, parse_graph
from tui_debugger.graph.table import PARAMETER, NodeTable
from tui_debugger.live import wire
from tui_debugger.live.client.judging import watched
from tui_debugger.live.client.probe import ClientHit
from tui_debugger.live.client.recorded import measure
from tui_debugger.live.wire import START
from tui_debugger.model import Side
from tui_debugger.sources.base import Source, TensorFlag
from tui_debugger.stats.npy import open_array


class Networks(SavedTraining):
    """The networks of a dump of MindSpore 2.0: there every run of a root graph is a step of its own.

    Attributes:
        order: the root graph that each step ran.
        graphs: of each root graph the serialized ``GraphProto``.
    """

    def __init__(self, path: Path, dump: Source) -> None:
        """``dump``: what is at the path, open. The caller that opened it closes it."""
        super().__init__(dump)
        for step in dump.steps(0):
            dump.tensors(0, step)
        self.order = {run.step: run.root_graph for run in dump.history(0) if run.has_data}
        self.graphs: dict[int, bytes] = {}
        for file in sorted(path.glob("rank_0/graphs/*.pb")):
            model = message_class("ModelProto").FromString(file.read_bytes())
            root = int(re.sub(r"\D", "", model.graph.root_name.decode()))
            self.graphs[root] = model.graph.SerializeToString()

    @property
    def steps(self) -> int:
        return len(self.order)

    @cached_property
    def table(self) -> NodeTable:
        return build_table([parse_graph(graph) for graph in self.graphs.values()])

    @cached_property
    def parameters(self) -> frozenset[str]:
        return frozenset(name for row, name in enumerate(self.table.names) if self.table.op_type(row) == PARAMETER)

    def value(self, node: str, slot: int, step: int) -> Array | None:
        """An operator has one in the steps of its graph; a parameter keeps that of the last run which had it."""
        dump, at = self._dump.nodes(0), step
        if step == START and node in self.parameters:
            return self._initial(dump.find(node, dump.graphs[0].name))
        while at >= 0:
            table = self._dump.tensors(0, at)
            graph = next(info.name for info in dump.graphs if info.root_id == self.order[at])
            index = table.find(dump.find(node, graph), Side.OUTPUT, slot)
            if index >= 0 and not int(table.flags[index]) & TensorFlag.STAT_ONLY:
                return open_array(table.spec(index))
            if node not in self.parameters:
                break
            at -= 1
        return None

    def rows_of(self, root: int) -> list[int]:
        """Rows of a root graph in the order in which the client goes through them."""
        dump = self._dump.nodes(0)
        graph = next(info.name for info in dump.graphs if info.root_id == root)
        place = {row: dump.find(name, graph) for row, name in enumerate(self.table.names)}
        rows = [row for row in range(len(self.table)) if self.table.graph_of(row).root_id == root]
        order = {row: int(dump.order[place[row]]) if place[row] >= 0 else -1 for row in rows}
        return sorted(rows, key=lambda row: (self.table.op_type(row) != PARAMETER, order[row]))


class NetworksTraining(RecordedTraining):
    """See the module. Every run of a network is a step, and the client names the network where it waits.

    Attributes:
        before_step: called before each step, when the client was told to run it.
        before_first_run: called before the graph of a network is sent that comes later.
    """

    def __init__(self, networks: Networks, address: str) -> None:
        super().__init__(networks, address)
        self.networks = networks
        self.sent: set[int] = set()
        self.root = networks.order[0]
        self.before_first_run: Callable[[], None] = lambda: None
        self.before_step: Callable[[int], None] = lambda _: None

    def _send(self, name: str, message: Any) -> Any:
        if name == "SendMetadata" and not message.training_done:
            message = self._introduction()
        elif name == "SendGraph":
            message = self._graph()
        return super()._send(name, message)

    def _introduction(self) -> Any:
        message = wire.message("Metadata")()
        message.CopyFrom(self.networks.metadata)
        message.device_name = f"0:{self.root}".encode()
        return message

    def _graph(self) -> Iterator[Any]:
        self.sent.add(self.root)
        yield wire.message("Chunk")(buffer=self.networks.graphs[self.root])

    def _metadata(self, **more: Any) -> Any:
        message = super()._metadata(**more)
        message.device_name = f"0:{self.root}".encode()
        return message

    def _set(self, command: Any) -> None:
        super()._set(command)
        self._judge = watched(self._watchpoints.values(), self.networks.table.names)

    def _go(self, command: Any) -> bool:
        following = self.networks.order.get(self._step + 1)
        if command.run_level != wire.LEVEL_RECHECK:
            self.before_step(self._step + 1)
        if command.run_level == wire.LEVEL_RECHECK or following is None:
            return super()._go(command)
        self.root = following
        if following not in self.sent:
            self.before_first_run()
            self._send("SendMetadata", wire.message("Metadata")())
            self._send("SendGraph", None)
            if not self._wait_before_the_first_run():
                return False
        return super()._go(command)

    def _wait_before_the_first_run(self) -> bool:
        while not self._stop.is_set():
            reply = self._send("WaitCMD", self._metadata())
            if reply.HasField("set_cmd"):
                self._set(reply.set_cmd)
            elif reply.HasField("view_cmd"):
                self._show(reply.view_cmd)
            elif reply.HasField("run_cmd"):
                return True
            elif reply.exit:
                return False
        return False

    def hits(self, step: int) -> Iterator[ClientHit]:
        """As the client judges: the nodes of the graph that ran; it compares parameters with their last value."""
        if step <= START:
            return
        networks, table, judge = self.networks, self.networks.table, self._judge
        for row in networks.rows_of(networks.order[step]):
            name = table.names[row]
            need = judge.need(name)
            for slot in range(int(table.outputs[row])) if need is not None else ():
                value = networks.value(name, slot, step)
                if value is None or need is None:
                    continue
                before = networks.value(name, slot, step - 1) if name in networks.parameters else None
                for result in judge.results(name, measure(value, need, before), initial=False):
                    yield ClientHit(name, slot, result)
