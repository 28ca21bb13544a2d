"""What hooks tell: a tensor was made, a gradient came. Nothing here raises into the training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final

import torch

from tui_debugger.live.client.agent import Agent, ClientHit
from tui_debugger.live.client.judging import Judge
from tui_debugger.live.client.losses import Losses
from tui_debugger.torch.captures import Capture, Room, Step
from tui_debugger.torch.elements import readable
from tui_debugger.torch.internals import no_autocast
from tui_debugger.torch.naming import GRADIENTS
from tui_debugger.torch.passes import Passes
from tui_debugger.torch.plans import Plan, Plans
from tui_debugger.torch.structure import Flow, Node, Structure
from tui_debugger.torch.transfer import Waiting
from tui_debugger.torch.verdicts import judge_one

MOST: Final = 50_000
"""Tensors of one step, or of one pass without gradients, that are looked at: memory is bounded."""

Sources = Callable[[], list[str]]


class Recording:
    """The step that is being recorded.

    Attributes:
        step: what was seen.
        passes: what was seen of the passes without gradients.
        structure, flow: the graph, and who made what.
        plans: what is watched.
        learning: the graph is not known yet.
        measuring: everything is found out about every tensor, for the flight recorder.
        scaled: a GradScaler is in use: which gradients count shows when the optimizer is called.
        paused: tdbg itself is at work: operators are its own.
        agent: the protocol loop: hooks may stop at a node.
        unrecorded: what ran and could not be recorded.
        escaped: what a signal handler of the training raised during such a stop: none of our failures.
    """

    def __init__(self, budget: int, *, values: bool, at_once: bool = False) -> None:
        """Nothing is recorded yet.

        Args:
            budget: bytes of outputs that are held at most.
            values: see the class.
            at_once: watchpoints judge a tensor when it is made (in op level), not at the end of the step.
        """
        room = Room(budget if values else 0)
        self.step = Step(room)
        self.passes = Passes(self.step, room)
        self.structure = Structure()
        self.flow = Flow()
        self.plans = Plans(Judge())
        self.learning = True
        self.measuring = False
        self.scaled = False
        self.paused = False
        self.agent: Agent | None = None
        self.unrecorded = Losses()
        self.escaped: Exception | None = None
        self._at_once = at_once
        self._follows_pass = False
        self._pass = ""
        self._followed: set[str] = set()
        self._again = False
        self._once_more = False

    def following(self, *, no_grad: bool = False) -> bool:
        """Whether it is found out who makes what: at first, and once more after nodes came that were not known."""
        return self._follows_pass if no_grad else self.learning or self._once_more

    def begin_call(self) -> None:
        """The model is called with gradients."""
        self.step.begin_call()

    def begin_pass(self, what: str) -> None:
        """A pass without gradients begins. ``what``: the same for passes that run the same modules."""
        self.end_pass()
        self.passes.begin()
        self._pass, self._follows_pass = what, what not in self._followed

    def end_pass(self) -> None:
        """The pass that runs, if any, is over: it is judged, unless nobody had an occasion to watch anything yet."""
        if self.passes.now is None:
            return
        if self._follows_pass:
            self._followed.add(self._pass)
        self._follows_pass = False
        with self.at_work():
            self.passes.end(self.plans.judge if self.plans or not self.learning else None)

    def made(
        self,
        name: str,
        kind: str,
        tensors: Sequence[torch.Tensor],
        sources: Sources,
        source: Callable[[], str] = str,
        *,
        mutated: bool = False,
        no_grad: bool = False,
    ) -> None:
        """A node has run.

        Args:
            name: of the node.
            kind: operator type.
            tensors: its outputs, one per slot.
            sources: what fed it; only asked when the graph is not known.
            source: stack text, likewise.
            mutated: the outputs were changed in place.
            no_grad: in the pass without gradients that runs.
        """
        step = self._step(name, len(tensors), no_grad=no_grad)
        if step is None:
            return
        structure = self.structure
        if name not in structure.nodes:
            structure.add(name, Node(kind, source=source()))
            structure.nodes[name].inputs = [each for each in sources() if each != name]
            self._came_late(no_grad=no_grad)
        elif self._follows_pass if no_grad else self._once_more:
            structure.feed(name, (each for each in sources() if each != name))
        hits: list[ClientHit] = []
        for slot, tensor in enumerate(tensors):
            hits += self._see(step, name, slot, tensor, mutated=mutated, no_grad=no_grad)
        self._stop(name, hits)

    def came(self, name: str, kind: str, slot: int, gradient: torch.Tensor, forward: str) -> None:
        """The gradient of one output of a node came.

        Args:
            name: of the node that stands for the gradients.
            kind: operator type.
            slot: which output.
            gradient: the values.
            forward: the node whose output it is.
        """
        step = self._step(name, 1)
        if step is None:
            return
        if name not in self.structure.nodes:
            self.structure.add(name, Node(kind, forward=forward))
        self._stop(name, self._see(step, name, slot, gradient))

    def given(self, name: str, tensor: torch.Tensor, *, no_grad: bool = False) -> None:
        """The model was called with a tensor."""
        step = self._step(name, 1, no_grad=no_grad)
        if step is None or not self._readable(name, tensor):
            return
        if name not in self.structure.inputs:
            self.structure.inputs[name] = (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
            self.structure.changed = True
            self._came_late(no_grad=no_grad)
        self._look(step, name, 0, tensor, self._plan(name))
        if self.following(no_grad=no_grad):
            self.flow.made(tensor, name)

    def lost(self, what: str, example: str, count: int = 1) -> None:
        """Something ran and could not be recorded."""
        self.unrecorded.add(what, self.agent.step + 1 if self.agent is not None else 0, example, count)

    def next_step(self) -> None:
        """Another step begins. If nodes came late in the last one it is found out in this one what feeds them."""
        self._once_more, self._again = self._again, False

    def clear(self) -> None:
        """The step is over, and nobody looks at it any more."""
        self._follows_pass = False
        self.passes.clear()
        self.step.clear()
        self.flow.clear()

    # -- inside --------------------------------------------------------------------------------------

    def _step(self, name: str, count: int, *, no_grad: bool = False) -> Step | None:
        """Where a tensor belongs; None when there are too many."""
        step = (self.passes.now or self.passes.begin()) if no_grad else self.step
        if len(step) < MOST:
            return step
        self.lost(f"tensors beyond {MOST:,} in one {'pass' if no_grad else 'step'}", name, count)
        return None

    def _came_late(self, *, no_grad: bool) -> None:
        """A node or input was not known: what was made before it in this step or pass was not followed."""
        if no_grad:
            if not self._follows_pass:
                self._followed.discard(self._pass)
        elif not self.learning and not self._once_more:
            self._again = True

    def _readable(self, name: str, tensor: torch.Tensor) -> bool:
        if readable(tensor):
            return True
        self.lost("tensors without plain values (quantized, nested, on no device, inside torch.func)", name)
        return False

    def _see(
        self,
        step: Step,
        name: str,
        slot: int,
        tensor: torch.Tensor,
        *,
        mutated: bool = False,
        no_grad: bool = False,
    ) -> Sequence[ClientHit]:
        if self.following(no_grad=no_grad):
            (self.flow.replaced if mutated else self.flow.made)(tensor, name)
        if not self._readable(name, tensor):
            return ()
        self.structure.add_slot(name, slot, tensor)
        plan = self._plan(name)
        later = not self._at_once or (self.scaled and name.startswith(GRADIENTS))
        if later or plan is None or not self.plans.knows(name):
            self._look(step, name, slot, tensor, plan, mutated=mutated)
            return ()
        waiting = Waiting()
        capture = self._look(step, name, slot, tensor, plan, mutated=mutated, alone=waiting)
        hits = judge_one(capture, waiting, self.plans.judge)
        return self.passes.caught(step, hits) if no_grad and hits else hits

    def _plan(self, name: str) -> Plan | None:
        plan = self.plans.of(name)
        if plan is None and self.plans.strange(name):
            self.lost("tensors of nodes that came after the watchpoints", name)
        return plan

    def _look(
        self,
        step: Step,
        name: str,
        slot: int,
        tensor: torch.Tensor,
        plan: Plan | None,
        *,
        mutated: bool = False,
        alone: Waiting | None = None,
    ) -> Capture:
        known = {"look": self.learning, "exactly": self.measuring, "screen": self.learning}
        return step.see(name, slot, tensor, plan, mutated=mutated, alone=alone, **known)

    def _stop(self, name: str, hits: Sequence[ClientHit]) -> None:
        agent = self.agent
        if agent is not None and (hits or agent.wants_nodes):
            try:
                agent.node_end(name, hits)
            except Exception as error:
                self.escaped = error
                raise

    def at_work(self) -> AtWork:
        """Something of ours is computed: nothing of that is recorded, or cast by autocast."""
        return AtWork(self)


class AtWork:
    """See ``Recording.at_work``. Runs hundreds of times a step: a class costs half of what a generator does.

    What is computed is detached from autograd anyway (``elements.local``).
    """

    __slots__ = ("_before", "_guard", "_recording")

    def __init__(self, recording: Recording) -> None:
        """Begins with ``with``."""
        self._recording = recording
        self._before = recording.paused
        self._guard = no_autocast()

    def __enter__(self) -> None:
        """Begins."""
        self._recording.paused = True
        self._guard.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends."""
        self._recording.paused = self._before
        self._guard.__exit__(kind, error, trace)
