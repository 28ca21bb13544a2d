"""What a training says to an attached debugger, and what it does when it is told something.

The order of calls is that of MindSpore's client (1.5 to 2.3): who I am, my graphs, then commands until one says run;
after every step hits if there are any, then commands again. As there, what is answered to graphs, hits and tensors
is not looked at: a debugger that does not want them any more says so in its next command.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tui_debugger.live import wire
from tui_debugger.live.client import messages
from tui_debugger.live.client.link import Link, LinkLostError
from tui_debugger.live.client.probe import ClientHit, Probe
from tui_debugger.live.client.termination import TrainingTerminated
from tui_debugger.live.wire import START, RemoteTensor, RemoteWatchpoint

FAILURES: Final = 5
"""Replies in a row that tell of a failure before the debugger is given up."""
UNASKED: Final = 0.2
"""Seconds that a training runs on without asking, where it may."""
_PAUSE: Final = 0.2
"""Seconds to wait after the first of them, twice as long after the second ..."""


class Conversation:
    """One connection from the introduction to its end. All methods run in the thread that trains.

    Attributes:
        link: the connection.
        node: where the debugger wants the training to stop inside a step: None nowhere, empty at the next node.
        ahead: steps that may end without a word, because nothing is to be said of them.
    """

    def __init__(self, link: Link, probe: Probe, session: str) -> None:
        """Says nothing yet."""
        self.link = link
        self.node: str | None = None
        self.ahead = 0
        self._asked = 0.0
        self._probe = probe
        self._process = messages.Process(probe.identity(), session, socket.gethostname(), os.getpid())
        self._watchpoints: dict[int, RemoteWatchpoint] = {}
        self._reported: dict[int, RemoteWatchpoint] = {}
        """The list that the last hits were judged by: they are reported after the graph was sent again."""
        self._told = True
        """Whether the probe knows the watchpoints."""

    def introduce(self, step: int) -> None:
        """Says who this is and sends the graphs. The debugger knows nothing of what was said before.

        Raises:
            LinkLostError: the debugger is gone, or speaks another version.
        """
        self._watchpoints.clear()
        self._told = False
        graphs = list(self._probe.graphs())
        reply = self.link.call("SendMetadata", messages.metadata(self._process, step, graphs=len(graphs)))
        if not (reply.HasField("version_matched") and reply.version_matched):
            raise LinkLostError("does not speak this version of the protocol", refused=True)
        self.link.hold_line()
        name = "SendGraph" if len(graphs) == 1 else "SendMultiGraphs"
        self.link.stream(name, messages.graph_chunks(graphs))

    def judge(self, step: int, *, recheck: bool = False) -> Sequence[ClientHit]:
        """What the watchpoints say about the step that just ended."""
        self._tell()
        self._reported = dict(self._watchpoints)
        return self._probe.evaluate(recheck, step == START) if self._watchpoints else ()

    def rest(self) -> Sequence[ClientHit]:
        """What the watchpoints say about what ran after the last step ended."""
        self._tell()
        self._reported = dict(self._watchpoints)
        return self._probe.rest() if self._watchpoints else ()

    def stop(self, step: int, node: str = "", hits: Sequence[ClientHit] = (), *, limit: float | None = None) -> None:
        """Reports hits and does what it is told, until it is told to run.

        Args:
            step: the step that ended, or that ``node`` belongs to.
            node: where it stands in the step; empty at its end.
            hits: of this stop.
            limit: seconds after which it goes on when it is told nothing; None: never.

        Raises:
            LinkLostError: the debugger is gone.
            TrainingTerminated: it said exit.
        """
        self._report(hits)
        self.node, self.ahead = None, 0
        failures = 0
        while True:
            where = messages.metadata(self._process, step, node, unrecorded=self._probe.unrecorded())
            command = self.link.call("WaitCMD", where, patient=True, limit=limit)
            if command is None:
                return
            if command.status != wire.OK:
                failures += 1
                self._after_failure(failures)
                if failures == 1:  # another process may listen there now, which has never heard of this training
                    self.introduce(step)
                    self._report(hits)
            elif command.HasField("exit") and command.exit:
                raise TrainingTerminated(step)
            elif command.HasField("run_cmd") and command.run_cmd.run_level != wire.LEVEL_RECHECK:
                self._run(command.run_cmd)
                return
            else:
                failures = 0
                self._obey(command, step)

    def passes(self) -> bool:
        """A step has ended of which there is nothing to say: whether it goes on without asking.

        It asks every now and then all the same, so that a debugger which wants it to stop is soon heard.
        """
        if self.ahead <= 0 or self.link.lost.is_set() or time.monotonic() - self._asked > UNASKED:
            return False
        self.ahead -= 1
        return True

    def done(self, step: int, limit: float) -> None:
        """Says that the training is over."""
        self.link.timeout = limit
        if not self.link.lost.is_set():
            left = self._probe.unrecorded()
            self.link.call("SendMetadata", messages.metadata(self._process, step, done=True, unrecorded=left))

    def _run(self, command: Any) -> None:
        self._tell()
        self.ahead, self._asked = command.ahead, time.monotonic()
        if command.run_level == wire.LEVEL_NODE:
            self.node = messages.text_of(command.node_name)

    def _obey(self, command: Any, step: int) -> None:
        """A command after which the training still waits. One that is not known is passed over."""
        if command.HasField("run_cmd"):
            self._report(self.judge(step, recheck=True))
        elif command.HasField("set_cmd"):
            self._set(command.set_cmd)
        elif command.HasField("view_cmd"):
            self._show(command.view_cmd)
        else:
            self.link.lost.wait(_PAUSE)  # not in a tight loop

    def _after_failure(self, failures: int) -> None:
        if failures > FAILURES:
            raise LinkLostError("answers with nothing but failures")
        self.link.lost.wait(_PAUSE * failures)

    def _set(self, command: Any) -> None:
        self._told = False
        if command.delete:
            self._watchpoints.pop(command.id, None)
        else:
            self._watchpoints[command.id] = messages.watchpoint_of(command)

    def _tell(self) -> None:
        """Hands the list of watchpoints on, when it is another one."""
        if not self._told:
            self._told = True
            self._probe.watch(tuple(self._watchpoints.values()))

    def _report(self, hits: Sequence[ClientHit]) -> None:
        if hits:
            known = {**self._reported, **self._watchpoints}
            self.link.stream("SendWatchpointHits", messages.hit_messages(hits, known))

    def _show(self, command: Any) -> None:
        """Answers a view command: every tensor that was asked for, in that order."""
        tensors = messages.asked(command)
        if command.level == wire.STATISTICS:
            summaries = (messages.summary(self._probe.statistics(each)) for each in tensors)
            self.link.stream("SendTensorStats", summaries)
        elif command.level == wire.BASE:
            self.link.stream("SendTensorBase", (messages.base(self._probe.describe(each)) for each in tensors))
        else:
            self.link.stream("SendTensors", self._values(tensors))

    def _values(self, tensors: Sequence[RemoteTensor]) -> Iterator[Any]:
        for tensor in tensors:
            yield from messages.tensor_messages(tensor, self._probe.value(tensor))
