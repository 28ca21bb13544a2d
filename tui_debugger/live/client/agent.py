"""The protocol loop inside a training process, whatever the framework.

A framework implements ``Probe`` and calls ``begin``, ``node_end``, ``step_end`` and ``close``.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import uuid
import weakref
from collections.abc import Callable, Sequence
from typing import Final

from tui_debugger.live.client.address import Settings
from tui_debugger.live.client.conversation import Conversation
from tui_debugger.live.client.interruption import of_the_training
from tui_debugger.live.client.keeper import Keeper
from tui_debugger.live.client.link import InterruptedWait, Link, LinkLostError
from tui_debugger.live.client.notice import Notice
from tui_debugger.live.client.probe import ClientHit, ClientValue, Identity, Probe
from tui_debugger.live.client.termination import TrainingTerminated
from tui_debugger.live.wire import START

__all__ = ["Agent", "ClientHit", "ClientValue", "Identity", "Probe", "TrainingTerminated"]

_GOODBYE: Final = 1.0
"""Seconds at most that the end of a training waits for the debugger to hear of it."""
_SILENCE: Final = 5.0
"""Seconds after which a training that ends with hits goes on when the debugger tells it nothing."""


class Agent:
    """Speaks with a debugger on behalf of one training, and never hurts it.

    One background thread looks for the debugger, sends signs of life and finds out when it stopped giving any; all
    calls of the protocol, and all calls of the probe, are made in the thread that trains, at the ends of steps and
    nodes. Without an address there is no thread, and every method returns at once.

    No exception leaves this class but ``TrainingTerminated``, ``KeyboardInterrupt`` and what the training's own signal
    handlers raise. After a fork the child's copy is off.

    Attributes:
        step: the step that ended last, ``START`` (-1) before the first.
    """

    def __init__(self, probe: Probe, settings: Settings) -> None:
        """Starts to look for the debugger in the background when there is an address, else does nothing.

        Args:
            probe: the framework's tensors.
            settings: from ``address.settings(address)``, which knows the environment.
        """
        self.step = START
        self._probe = probe
        self._settings = settings
        self._say = Notice()
        self._talk: Conversation | None = None
        self._graph_changed = False
        self._busy = threading.Lock()
        self._session = uuid.uuid4().hex
        self._keeper: Keeper | None = None
        if settings.address:
            self._start()

    def _start(self) -> None:
        try:
            self._keeper = Keeper(self._settings, self._session, self._say)
        except Exception as error:  # noqa: BLE001 - gRPC absent or broken, no more threads ...
            self._say(f"the debugger cannot be used ({type(error).__name__}: {error}); training goes on")
            return
        me = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _off_in_child(me))
        atexit.register(self._at_exit)  # which also keeps it: a loop that forgot ``close`` is done when the process is

    @property
    def on(self) -> bool:
        """Whether there is an address, so that a debugger may come at any time. False for good after a fork."""
        return self._keeper is not None

    @property
    def attached(self) -> bool:
        """Whether a debugger is connected now."""
        return self._talk is not None

    @property
    def expected(self) -> bool:
        """Whether a debugger is attached, or will be at the end of this step: time to keep values.

        Before the first step it waits for the first attempt to connect, at most the time-out.
        """
        keeper = self._keeper
        if keeper is None or self._talk is not None:
            return keeper is not None
        return (keeper.first_attempt() if self.step == START else keeper.link) is not None

    @property
    def wants_nodes(self) -> bool:
        """Whether ``node_end`` has anything to do without hits: the debugger asked to stop at a node.

        Look at it before doing any work for a node.
        """
        return self._talk is not None and self._talk.node is not None

    def begin(self) -> None:
        """Before the first step, when the graph is known by then, and at any later time to attach without delay.

        Waits for the first attempt to connect (at most the time-out, in practice for milliseconds), and stops there
        when the debugger is reached. Nothing when a debugger is attached already.

        Raises:
            TrainingTerminated: the debugger ended the training.
        """
        keeper = self._keeper
        if keeper is not None and self._talk is None:
            self._guarded(lambda: self._attach(keeper.first_attempt()))

    def node_end(self, name: str, hits: Sequence[ClientHit] = ()) -> None:
        """A node has run. Stops when there are hits, or when the debugger asked to stop here.

        Args:
            name: its name in the graph.
            hits: what its watchpoints said, judged by the framework; judge them again in ``Probe.evaluate`` only on
                ``recheck``, they would be reported twice otherwise.

        Raises:
            TrainingTerminated: the debugger ended the training.
        """
        talk = self._talk
        if talk is not None and (hits or talk.node in ("", name)):
            self._guarded(lambda: talk.stop(self.step + 1, name, hits))

    def step_end(self) -> None:
        """A step has run: judges, reports hits and waits for commands; attaches when a debugger has come.

        Raises:
            TrainingTerminated: the debugger ended the training.
        """
        first = self.step == START
        self.step += 1
        keeper = self._keeper
        if keeper is None:
            return
        if self._talk is None:
            link = keeper.first_attempt() if first else keeper.link
            if link is not None:
                self._guarded(lambda: self._attach(link) if first else self._attach_after(link))
        else:
            self._guarded(self._stop)

    def graph_changed(self) -> None:
        """The graphs that were sent are no longer right: they are sent again at the end of this step."""
        self._graph_changed = True

    def close(self) -> None:
        """The training is done: judges what ran after its last step, says so, and stops the thread.

        With short time-outs; idempotent; run at exit.
        """
        if not self.on:
            return
        atexit.unregister(self._at_exit)
        with contextlib.suppress(TrainingTerminated):
            self._guarded(self._judge_rest)
        keeper, talk = self._keeper, self._talk
        self._keeper = None
        if keeper is None:
            return
        if talk is not None:
            with contextlib.suppress(LinkLostError):
                talk.done(self.step, min(_GOODBYE, self._settings.timeout))
        self._let_go()
        keeper.stop()

    def _at_exit(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    # -- inside --------------------------------------------------------------------------------------

    def _judge_rest(self) -> None:
        """Hits of a step that never ends: reported at a stop inside it. Nothing where there are none."""
        if not self._probe.unfinished():
            return
        limit = min(_SILENCE, self._settings.timeout)
        keeper = self._keeper
        if self._talk is None and keeper is not None:  # no step has ended since the debugger came
            self._attach(keeper.link, limit)
        talk = self._talk
        hits = talk.rest() if talk is not None else ()
        if talk is None or not hits:
            return
        talk.link.timeout = limit
        if self._graph_changed:
            self._graph_changed = False
            talk.introduce(self.step)
        talk.stop(self.step + 1, hits[0].node, hits, limit=limit)

    def _attach(self, link: Link | None, limit: float | None = None) -> None:
        if link is None or link.lost.is_set():
            return
        talk = Conversation(link, self._probe, self._session)
        self._talk = talk
        self._graph_changed = False
        self._probe.attached()
        talk.introduce(self.step)
        self._say(f"attached to the debugger at {self._settings.address}")
        talk.stop(self.step, limit=limit)

    def _attach_after(self, link: Link) -> None:
        """Attaches at the end of a step, which is judged if it was recorded: the debugger sets watchpoints first."""
        self._attach(link)
        talk = self._talk
        if talk is not None and (hits := talk.judge(self.step)):
            talk.stop(self.step, hits=hits)

    def _stop(self) -> None:
        """The end of a step."""
        talk = self._talk
        if talk is None:
            return
        hits = talk.judge(self.step)
        if self._graph_changed:
            self._graph_changed = False
            talk.introduce(self.step)
        elif not hits and talk.passes():
            return
        talk.stop(self.step, hits=hits)

    def _guarded(self, act: Callable[[], None]) -> None:
        """Runs a part of the conversation: whatever goes wrong in it ends it, and nothing else."""
        busy = self._busy
        if not busy.acquire(blocking=False):
            return  # a hook that runs inside a stop (a value is made), or another thread: not a stop of its own
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
        """Ends the conversation that there is, if any; a new one may begin at the end of a later step."""
        talk, self._talk = self._talk, None
        if talk is None:
            return
        if isinstance(reason, LinkLostError):
            self._say(f"detached: the debugger {reason}; training goes on {self._where}")
        elif reason is not None:
            what = f"{type(reason).__name__}: {reason}".splitlines()[0]
            self._say(f"detached for good: the debugger's client failed ({what}); training goes on")
        talk.link.fail(LinkLostError("was let go"))
        with contextlib.suppress(Exception):
            self._probe.detached()

    @property
    def _where(self) -> str:
        return f"after step {self.step}" if self.step > START else "with its first step"

    def _shut(self) -> None:
        """Off for good."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            atexit.unregister(self._at_exit)
            keeper.stop()

    def forget(self) -> None:
        """In a child after a fork: the thread is not there, and the connection is the parent's. Called by itself."""
        _PARENTS.append((self._keeper, self._talk))
        attached, self._talk, self._keeper = self._talk is not None, None, None
        self._busy = threading.Lock()
        if attached:
            with contextlib.suppress(Exception):
                self._probe.detached()


_PARENTS: Final[list[object]] = []
"""In a child: what belongs to the parent. Never freed, because closing a channel of gRPC after a fork may hang."""


def _off_in_child(agent: weakref.ref[Agent]) -> None:
    found = agent()
    if found is not None:
        found.forget()
