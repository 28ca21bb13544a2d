"""The protocol loop inside a training process, for any framework.

The order of calls is that of MindSpore's client (1.5 to 2.3): metadata, graphs, then commands until one says run;
after every step its hits, then commands again. Replies to graphs, hits and tensors are ignored, as in MindSpore.

A framework implements ``Probe`` and calls ``begin``, ``node_end``, ``step_end`` and ``close``.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import sys
import threading
import time
import uuid
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import CodeType
from typing import Any, Final

from tui_debugger.live import wire
from tui_debugger.live.client import messages
from tui_debugger.live.client.endings import EndListener, cause_of_handled
from tui_debugger.live.client.launch import run_of
from tui_debugger.live.client.link import DebuggerLink, InterruptedWait, LinkLostError, LinkSettings, Notice
from tui_debugger.live.client.messages import PERIOD
from tui_debugger.live.client.notebook import Notebook
from tui_debugger.live.client.probe import ClientHit, ClientValue, Identity, Probe, TrainingTerminated
from tui_debugger.live.wire import START, RemoteTensor, RemoteWatchpoint, Unrecorded

__all__ = ["Agent", "ClientHit", "ClientValue", "Identity", "Probe", "TrainingTerminated"]


def of_the_training(error: BaseException) -> bool:
    """Tells whether an exception comes from a signal handler of the training, which must get it.

    Python runs handlers between any two instructions of the main thread, also inside the client.
    """
    handlers = {code for number in signal.valid_signals() if (code := _code(signal.getsignal(number))) is not None}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _code(handler: Any) -> CodeType | None:
    while hasattr(handler, "func"):  # functools.partial
        handler = handler.func
    function = getattr(handler, "__func__", handler)
    if not hasattr(function, "__code__") and callable(handler):
        function = getattr(type(handler), "__call__", None)  # noqa: B004 - its code is wanted, not whether it can
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds between attempts to connect: doubled from ``FIRST_PAUSE`` to this."""
SETTLED: Final = 60.0
"""Seconds after which a connection counts as good: after its loss the next attempt comes soon."""
TICKS: Final = 5
"""Ticks per time-out.

A call counts as waiting after one tick, the keeper notices within another, and the rest is for the heartbeat: a frozen
debugger is found out within the time-out.
"""


class Keeper:
    """Owns the thread and the connection. ``link`` is set while the debugger answers."""

    def __init__(self, settings: LinkSettings, session: str, say: Callable[[str], None]) -> None:
        self.link: DebuggerLink | None = None
        self._settings = settings
        self._session = session
        self._say = say
        self._started = time.monotonic()
        self._stop = threading.Event()
        self._tried = threading.Event()
        self._opening: DebuggerLink | None = None
        self._thread = threading.Thread(target=self._run, name="tdbg-keeper", daemon=True)
        self._thread.start()

    def first_attempt(self) -> DebuggerLink | None:
        """Waits for the first attempt to connect, at most the time-out since the start; later it returns at once."""
        self._tried.wait(max(self._started + self._settings.timeout - time.monotonic(), 0.0))
        return self.link

    def stop(self) -> None:
        """Ends the thread and closes connections; waits shortly. Idempotent."""
        self._stop.set()
        for link in (self.link, self._opening):
            if link is not None:
                link.close()
        self._tried.set()
        if self._thread is not threading.current_thread():
            self._thread.join(1.0)

    def _run(self) -> None:
        pause = FIRST_PAUSE
        try:
            while not self._stop.is_set():
                link = self._open()
                self._tried.set()
                if link is not None:
                    self._keep(link)
                    pause = FIRST_PAUSE if time.monotonic() - link.opened > SETTLED else pause
                self._stop.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        except Exception as error:  # noqa: BLE001 - a thread that dies must not look like a debugger that is away
            self._say(f"the debugger cannot be used ({type(error).__name__}: {error}); training goes on")
        finally:
            self._tried.set()

    def _open(self) -> DebuggerLink | None:
        link = self._opening = DebuggerLink(self._settings, self._session)
        error = link.heartbeat(self._settings.timeout)
        if error is None and not self._stop.is_set():
            self.link = link
            return link
        self._opening = None
        link.close()
        if error is not None and not self._stop.is_set() and (error.refused or not self._tried.is_set()):
            refusal = f"the debugger at {self._settings.address} {error}"
            vouched = "" if self._settings.trusted is None else " whose certificate TDBG_TLS_CA vouches for"
            absent = f"no debugger at {self._settings.address}{vouched}"
            self._say(f"{refusal if error.refused else absent}; training goes on, it is looked for in the background")
        return None

    def _keep(self, link: DebuggerLink) -> None:
        """Stays until the connection is lost, or given up by the training's thread."""
        tick = self._settings.timeout / TICKS
        heard = time.monotonic()
        while not link.lost.wait(tick):
            silent = time.monotonic() - heard
            if silent >= PERIOD or (silent >= tick and link.waiting() >= tick):
                error = link.heartbeat(min((TICKS - 2) * tick, self._settings.timeout))
                if error is not None:
                    link.fail(error if str(error) else LinkLostError("is gone"))
                heard = time.monotonic()
        self.link = None
        link.close()


FAILURES: Final = 5
"""Failures in a row after which the debugger is given up."""
UNASKED: Final = 0.2
"""Seconds that a training may run on without asking."""
ASKING: Final = 30
"""The first steps, after which it always asks: if it dies early, the debugger knows its last step."""
_PAUSE: Final = 0.2
"""Seconds to wait after the first failure, twice as long after the second, and so on."""


class DebuggerConversation:
    """One connection from the introduction to its end. All methods run in the thread that trains."""

    def __init__(self, link: DebuggerLink, probe: Probe, session: str, notes: Notebook) -> None:
        self.link = link
        self._notes = notes
        self.node: str | None = None  # where to stop inside a step: None nowhere, empty at the next node
        self.ahead = 0  # steps that may end without a question, if they have nothing to report
        self.waiting_hits: list[ClientHit] = []  # hits inside the step that are reported at its end
        self._together = self._told = False
        self._asked = 0.0
        self._questions = 0
        self._probe = probe
        host = socket.gethostname()
        self._process = messages.Process(probe.identity(), session, host, os.getpid(), run_of(os.environ, host))
        self._watchpoints: dict[int, RemoteWatchpoint] = {}
        self._reported: dict[int, RemoteWatchpoint] = {}
        """The list that the last hits were judged by: they are reported after the graph was sent again."""
        self._probe_knows_list = True

    def introduce(self, step: int) -> None:
        """Sends metadata and graphs; earlier watchpoints are forgotten. LinkLostError: gone, or another version."""
        self._watchpoints.clear()
        self._probe_knows_list = False
        graphs = list(self._probe.graphs())
        reply = self.link.call("SendMetadata", messages.metadata(self._process, step, graphs=len(graphs)))
        if not (reply.HasField("version_matched") and reply.version_matched):
            raise LinkLostError("does not speak this version of the protocol", refused=True)
        self.link.hold_line()
        name = "SendGraph" if len(graphs) == 1 else "SendMultiGraphs"
        self.link.stream(name, messages.graph_chunks(graphs))

    def judge(self, step: int, *, recheck: bool = False) -> Sequence[ClientHit]:
        self._send_watchpoints()
        self._reported = dict(self._watchpoints)
        return self._probe.evaluate(recheck, step == START) if self._watchpoints else ()

    def rest(self) -> Sequence[ClientHit]:
        """The watchpoints' results on what ran after the last step ended."""
        self._send_watchpoints()
        self._reported = dict(self._watchpoints)
        return self._probe.rest() if self._watchpoints else ()

    def postpones(self, hits: Sequence[ClientHit]) -> bool:
        """Keeps hits inside a step for its end if nobody stops there: all after the first report of the step."""
        if not (self._together and self._told):
            self._told = bool(hits)
            return False
        self.waiting_hits += hits
        return True

    def collected_hits(self) -> list[ClientHit]:
        """Returns the postponed hits, as the step is over."""
        hits, self.waiting_hits, self._told = self.waiting_hits, [], False
        return hits

    def stop(self, step: int, node: str = "", hits: Sequence[ClientHit] = (), *, limit: float | None = None) -> None:
        """Reports hits and follows commands until one says run, or none comes for ``limit`` seconds.

        TrainingTerminated: the debugger said exit.
        """
        self._report(hits)
        self.node, self.ahead = None, 0
        self._questions += 1
        failures = 0
        while True:
            notes = self._notes.batch()
            where = messages.metadata(self._process, step, node, unrecorded=self._probe.unrecorded(), notes=notes)
            command = self.link.call("WaitCMD", where, patient=True, limit=limit)
            if command is None:
                return
            if command.status == wire.OK:
                self._notes.sent(notes)
            if command.status != wire.OK:
                failures += 1
                self._after_failure(failures)
                if failures == 1:  # a new process may listen there, which does not know this training
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
        """Tells whether to go on without asking after a step with nothing to report; now and then it asks anyway."""
        if self.ahead <= 0 or self.link.lost.is_set() or time.monotonic() - self._asked > UNASKED:
            return False
        if self._questions <= ASKING:
            return False
        if self._notes.urgent:
            return False
        self.ahead -= 1
        return True

    def done(self, step: int, cause: str, limit: float, *more: Unrecorded) -> None:
        """Says that the training is over, what ended it early, if anything, and what is not recorded from now on."""
        self.link.timeout = limit
        if not self.link.lost.is_set():
            left = [*self._probe.unrecorded(), *more]
            notes = self._notes.batch()
            last = messages.metadata(self._process, step, done=True, cause=cause, unrecorded=left, notes=notes)
            self.link.call("SendMetadata", last)
            self._notes.sent(notes)

    def _run(self, command: Any) -> None:
        self._send_watchpoints()
        self.ahead, self._asked = command.ahead, time.monotonic()
        self._together = command.together
        if command.run_level == wire.LEVEL_NODE:
            self.node = wire.text_of(command.node_name)

    def _obey(self, command: Any, step: int) -> None:
        """Follows a command after which the training still waits. Unknown commands are skipped."""
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
        self._probe_knows_list = False
        if command.delete:
            self._watchpoints.pop(command.id, None)
        else:
            self._watchpoints[command.id] = messages.watchpoint_of(command)

    def _send_watchpoints(self) -> None:
        """Hands a changed list of watchpoints to the probe."""
        if not self._probe_knows_list:
            self._probe_knows_list = True
            self._probe.watch(tuple(self._watchpoints.values()))

    def _report(self, hits: Sequence[ClientHit]) -> None:
        if hits:
            known = {**self._reported, **self._watchpoints}
            self.link.stream("SendWatchpointHits", messages.hit_messages(hits, known))

    def _show(self, command: Any) -> None:
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


_GOODBYE: Final = 1.0
"""Seconds at most that an ending training waits for the debugger to hear of it."""
_SILENCE: Final = 5.0
"""Seconds after which a training that ends with hits goes on without a command."""


class Agent:
    """Speaks with a debugger on behalf of one training, and never hurts it.

    One background thread looks for the debugger, sends heartbeats and notices when the debugger stops answering. All
    calls of the protocol and the probe are made in the thread that trains, at the ends of steps and nodes. Without an
    address there is no thread, and every method returns at once.

    Only ``TrainingTerminated`` (the debugger ended the training), ``KeyboardInterrupt`` and exceptions of the
    training's own signal handlers leave this class. After a fork the child's copy is off.
    """

    def __init__(self, probe: Probe, settings: LinkSettings, notes: Notebook | None = None) -> None:
        """Starts to look for the debugger in the background when ``settings`` have an address."""
        self.step = START  # the step that ended last
        self._probe = probe
        self._settings = settings
        self._say = Notice()
        self.notes = notes if notes is not None else Notebook(self._say)
        self._talk: DebuggerConversation | None = None
        self._graph_changed = False
        self._busy = threading.Lock()
        self._session = uuid.uuid4().hex
        self._keeper: Keeper | None = None
        self._ending: EndListener | None = None
        self._around = sys.exc_info()[1]
        """An exception that the program was handling at the start: it ends nothing."""
        if settings.address:
            self._start()

    def _start(self) -> None:
        try:
            self._keeper = Keeper(self._settings, self._session, self._say)
        except Exception as error:  # noqa: BLE001 - gRPC absent or broken, no more threads ...
            self._say(f"the debugger cannot be used ({type(error).__name__}: {error}); training goes on")
            return
        os.register_at_fork(after_in_child=partial(call_if_alive, weakref.WeakMethod(self.forget)))
        # This also keeps the agent alive: a loop that forgot ``close`` is closed at exit.
        atexit.register(self.close_quietly)
        self._ending = EndListener()
        _at_end_of_child(weakref.WeakMethod(self.close_quietly))

    @property
    def on(self) -> bool:
        """Whether there is an address, so that a debugger may come at any time. False for good after a fork."""
        return self._keeper is not None

    @property
    def attached(self) -> bool:
        return self._talk is not None

    @property
    def expected(self) -> bool:
        """Whether a debugger is attached, or will be at the end of this step; before the first step it may wait."""
        keeper = self._keeper
        if keeper is None or self._talk is not None:
            return keeper is not None
        return (keeper.first_attempt() if self.step == START else keeper.link) is not None

    @property
    def wants_nodes(self) -> bool:
        """Whether the debugger asked to stop at a node; if not, ``node_end`` needs to be called only for hits."""
        return self._talk is not None and self._talk.node is not None

    def begin(self) -> None:
        """Attaches and stops, if a debugger can be reached and is not attached yet; may wait for the time-out.

        Call it before the first step if the graph is known by then. TrainingTerminated: the debugger ended the
        training.
        """
        keeper = self._keeper
        if keeper is not None and self._talk is None:
            self._guarded(lambda: self._attach(keeper.first_attempt()))

    def node_end(self, name: str, hits: Sequence[ClientHit] = ()) -> bool:
        """A node has run: stops when there are hits, or when the debugger asked to stop here; tells whether it did.

        ``hits`` are judged by the framework; ``Probe.evaluate`` may judge them again on ``recheck`` only, or they would
        be reported twice.
        """
        talk = self._talk
        if talk is None or not (talk.node in ("", name) or (hits and not talk.postpones(hits))):
            return False
        self._guarded(lambda: talk.stop(self.step + 1, name, hits))
        return True

    def nodes_ended(self, names: Iterable[str]) -> None:
        """Goes through nodes of a step that ran before the debugger was told of it, as if they ran now."""
        found: defaultdict[str, list[ClientHit]] | None = None
        for name in names:
            if not self.wants_nodes:
                return
            found = self._hits_by_node() if found is None else found  # once for each list
            found = None if self.node_end(name, found[name]) else found

    def step_end(self) -> None:
        """A step has run: judges, reports hits, waits for commands, and attaches when a debugger has come."""
        first = self.step == START
        self.step += 1
        keeper = self._keeper
        if self._ending is not None:
            self._ending.goes_on()
        self.notes.end(self.step, send=keeper is not None)
        if keeper is None:
            return
        if self._talk is None:
            link = keeper.first_attempt() if first else keeper.link
            if link is not None:
                self._guarded(lambda: self._attach(link) if first else self._attach_after(link))
        else:
            self._guarded(self._stop)

    def graph_changed(self) -> None:
        """The graphs that were sent are outdated: they are sent again at the end of this step."""
        self._graph_changed = True

    def close(self, cause: str | None = None) -> None:
        """The training is done: judges the rest after its last step, says goodbye, and stops the thread. Idempotent.

        ``cause`` is what ended it early; None: the exception that is handled now, or that ended its thread or the
        process.
        """
        if not self.on:
            return
        found = self._cause() if cause is None else cause
        atexit.unregister(self.close_quietly)
        with contextlib.suppress(TrainingTerminated):
            self._guarded(self._judge_rest)
        keeper, talk = self._keeper, self._talk
        self._keeper = None
        if keeper is None:
            return
        if talk is not None:
            with contextlib.suppress(LinkLostError):
                talk.done(self.step, found, min(_GOODBYE, self._settings.timeout))
        self._let_go()
        self._stop_keeper(keeper)

    def close_quietly(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    # -- inside --------------------------------------------------------------------------------------

    def _cause(self) -> str:
        now, known = sys.exc_info()[1], self._ending.cause if self._ending is not None else ""
        cause = cause_of_handled(now) if now is not self._around else ""
        return known or cause if isinstance(now, SystemExit) else cause or known  # an exit's cause is the earlier error

    def _hits_by_node(self) -> defaultdict[str, list[ClientHit]]:
        found = defaultdict[str, list[ClientHit]](list)
        talk = self._talk

        def judge() -> None:
            for hit in talk.judge(self.step + 1, recheck=True) if talk is not None else ():
                found[hit.node].append(hit)

        self._guarded(judge)
        return found

    def _judge_rest(self) -> None:
        """Reports hits of a step that never ends, at a stop inside it."""
        if not self._probe.unfinished():
            return
        self.notes.end(self.step + 1)
        limit = min(_SILENCE, self._settings.timeout)
        keeper = self._keeper
        if self._talk is None and keeper is not None:  # a debugger came after the last step ended
            self._attach(keeper.link, limit)
        talk = self._talk
        hits = [*talk.collected_hits(), *talk.rest()] if talk is not None else []
        if talk is None or not hits:
            return
        talk.link.timeout = limit
        if self._graph_changed:
            self._graph_changed = False
            talk.introduce(self.step)
        talk.stop(self.step + 1, hits[0].node, hits, limit=limit)

    def _attach(self, link: DebuggerLink | None, limit: float | None = None) -> None:
        if link is None or link.lost.is_set():
            return
        talk = DebuggerConversation(link, self._probe, self._session, self.notes)
        self._talk = talk
        self._graph_changed = False
        self._probe.attached()
        talk.introduce(self.step)
        self._say(f"attached to the debugger at {self._settings.address}")
        talk.stop(self.step, limit=limit)

    def _attach_after(self, link: DebuggerLink) -> None:
        """Attaches at the end of a step, which is judged if it was recorded: the debugger sets watchpoints first."""
        self._attach(link)
        talk = self._talk
        if talk is not None and (hits := talk.judge(self.step)):
            talk.stop(self.step, hits=hits)

    def _stop(self) -> None:
        talk = self._talk
        if talk is None:
            return
        hits = [*talk.collected_hits(), *talk.judge(self.step)]
        if self._graph_changed:
            self._graph_changed = False
            talk.introduce(self.step)
        elif not hits and talk.passes():
            return
        talk.stop(self.step, hits=hits)

    def _guarded(self, act: Callable[[], None]) -> None:
        """Runs a part of the conversation: an error ends the conversation, and nothing else."""
        busy = self._busy
        if not busy.acquire(blocking=False):
            return  # a hook inside a stop (which makes a value), or another thread
        try:
            act()
        except TrainingTerminated:
            self._say(f"the debugger ended this training ({self._where})")
            self._let_go()
            self._shut()
            raise
        except InterruptedWait as interruption:
            self._let_go()
            raise interruption.cause from None
        except LinkLostError as lost:
            self._let_go(lost)
            if lost.refused:
                self._shut()
        except Exception as error:  # the one place where "never hurts training" is kept
            if of_the_training(error):
                self._let_go()
                raise
            self._let_go(error)
            self._shut()
        except BaseException:
            self._let_go()
            raise
        finally:
            busy.release()

    def _let_go(self, reason: Exception | None = None) -> None:
        """Ends the conversation; a new one may begin at the end of a later step."""
        talk, self._talk = self._talk, None
        if talk is None:
            return
        if isinstance(reason, LinkLostError):
            self._say(f"detached: the debugger {reason}; training goes on {self._where}")
        elif reason is not None:
            what = f"{type(reason).__name__}: {reason}".splitlines()[0]
            self._say(f"detached for good: the debugger's client failed ({what}); training goes on")
            missing = Unrecorded("steps after the debugger's client failed", 1, what, max(self.step, 0))
            with contextlib.suppress(Exception):  # the debugger need not wait for further reports
                talk.done(self.step, "", min(_GOODBYE, self._settings.timeout), missing)
        talk.link.fail(LinkLostError("was let go"))
        with contextlib.suppress(Exception):
            self._probe.detached()

    @property
    def _where(self) -> str:
        return f"after step {self.step}" if self.step > START else "with its first step"

    def _shut(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            atexit.unregister(self.close_quietly)
            self._stop_keeper(keeper)

    def _stop_keeper(self, keeper: Keeper) -> None:
        if self._ending is not None:
            self._ending.close()
        keeper.stop()

    def forget(self) -> None:
        """In a child after a fork: the thread does not exist, and the connection is the parent's."""
        _PARENTS.append((self._keeper, self._talk))
        attached, self._talk, self._keeper = self._talk is not None, None, None
        self._busy = threading.Lock()
        if attached:
            with contextlib.suppress(Exception):
                self._probe.detached()


def _at_end_of_child(close: weakref.WeakMethod[Callable[[], None]]) -> None:
    """Has a process of multiprocessing close, too: forked processes do not run ``atexit`` functions."""
    module = sys.modules.get("multiprocessing.process")
    if module is not None and module.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, call_if_alive, args=(close,), exitpriority=_EARLY)


def call_if_alive(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    found = method()
    if found is not None:
        found()


_EARLY: Final = 1000
"""Runs before the program's own finalizers, while the connection still stands."""
_PARENTS: Final[list[object]] = []
"""In a child: objects of the parent. Never freed, because closing a channel of gRPC after a fork may hang."""
