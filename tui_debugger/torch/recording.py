"""What hooks tell: a tensor was made, a gradient came. Nothing here raises into the training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final

import torch

from tui_debugger.live.client.agent import Agent, ClientHit
from tui_debugger.live.client.judging import Judge
from tui_debugger.live.client.losses import Losses
from tui_debugger.torch.captures import Capture, Step
from tui_debugger.torch.elements import local, readable
from tui_debugger.torch.internals import no_autocast
from tui_debugger.torch.plans import Plan, Plans
from tui_debugger.torch.structure import Flow, Node, Structure

MOST: Final = 50_000
"""Tensors of one step that are looked at: a loop that never ends a step must not fill the memory."""

Sources = Callable[[], list[str]]
Verdicts = Callable[[Capture], Sequence[ClientHit]]


class Recording:
    """The step that is being recorded.

    Attributes:
        step: what was seen.
        structure, flow: the graph, and who made what.
        plans: what is watched.
        learning: the graph is not known yet.
        measuring: everything is found out about every tensor, for the flight recorder.
        paused: tdbg itself is at work: operators are its own.
        agent: the protocol loop: hooks may stop at a node.
        unrecorded: what ran and could not be recorded.
        escaped: what a signal handler of the training raised during such a stop: none of our failures.
    """

    def __init__(self, budget: int, *, values: bool, judge_at_once: Verdicts | None = None) -> None:
        """Nothing is recorded yet.

        Args:
            budget: bytes of outputs that are held at most.
            values: see the class.
            judge_at_once: what watchpoints say about a tensor when it is made (in op level, not at the end).
        """
        self.step = Step(budget if values else 0)
        self.structure = Structure()
        self.flow = Flow()
        self.plans = Plans(Judge())
        self.learning = True
        self.measuring = False
        self.paused = False
        self.agent: Agent | None = None
        self.unrecorded = Losses()
        self.escaped: Exception | None = None
        self._judge_at_once = judge_at_once

    def made(
        self,
        name: str,
        kind: str,
        tensors: Sequence[torch.Tensor],
        sources: Sources,
        source: Callable[[], str] = str,
        *,
        mutated: bool = False,
    ) -> None:
        """A node has run.

        Args:
            name: of the node.
            kind: operator type.
            tensors: its outputs, one per slot.
            sources: what fed it; only asked when the graph is not known.
            source: stack text, likewise.
            mutated: the outputs were changed in place.
        """
        if len(self.step.captures) >= MOST:
            return
        structure = self.structure
        if name not in structure.nodes:
            structure.add(name, Node(kind, source=source()))
            structure.nodes[name].inputs = [each for each in sources() if each != name]
        hits: list[ClientHit] = []
        for slot, tensor in enumerate(tensors):
            hits += self._see(name, slot, tensor, mutated)
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
        if len(self.step.captures) >= MOST:
            return
        if name not in self.structure.nodes:
            self.structure.add(name, Node(kind, forward=forward))
        self._stop(name, self._see(name, slot, gradient, False))

    def began(self, name: str, kind: str, tensors: Sequence[torch.Tensor], sources: Sources) -> None:
        """A collective operation has begun, and nobody can see yet what it makes of its tensors."""
        if name not in self.structure.nodes:
            self.structure.add(name, Node(kind))
            self.structure.nodes[name].inputs = [each for each in sources() if each != name]
        if self.learning:
            for tensor in tensors:
                self.flow.replaced(tensor, name)

    def passed(self, name: str, kind: str, tensor: torch.Tensor, inputs: list[str], *, keep: bool = False) -> None:
        """A collective operation takes or has made a tensor, whose memory is used for something else soon.

        Args:
            name: of the node.
            kind: operator type.
            tensor: the values.
            inputs: names of nodes and parameters.
            keep: holds a copy of the values when there is room for one.
        """
        step = self.step
        if len(step.captures) >= MOST:
            return
        if name not in self.structure.nodes:
            self.structure.add(name, Node(kind, inputs))
        if self.learning:
            self.flow.made(tensor, name)
        if not readable(tensor):
            return
        self.structure.add_slot(name, 0, tensor)
        plan = self.plans.of(name)
        values = local(tensor)
        if keep and step.room >= values.numel() * values.element_size():
            self._stop(name, self._judged(step.see(name, 0, values.clone(), plan, look=self.measuring), plan))
        else:
            self._stop(name, self._judged(step.glance(name, 0, values, plan, look=self.measuring), plan))

    def _see(self, name: str, slot: int, tensor: torch.Tensor, mutated: bool) -> Sequence[ClientHit]:
        if self.learning:
            (self.flow.replaced if mutated else self.flow.made)(tensor, name)
        if not readable(tensor):
            return ()
        self.structure.add_slot(name, slot, tensor)
        plan = self.plans.of(name)
        capture = self.step.see(name, slot, tensor, plan, look=self.learning or self.measuring, mutated=mutated)
        return self._judged(capture, plan)

    def _judged(self, capture: Capture, plan: Plan | None) -> Sequence[ClientHit]:
        return self._judge_at_once(capture) if self._judge_at_once is not None and plan is not None else ()

    def _stop(self, name: str, hits: Sequence[ClientHit]) -> None:
        agent = self.agent
        if agent is not None and (hits or agent.wants_nodes):
            try:
                agent.node_end(name, hits)
            except Exception as error:
                self.escaped = error
                raise

    def given(self, name: str, tensor: torch.Tensor) -> None:
        """The model was called with a tensor."""
        if len(self.step.captures) >= MOST or not readable(tensor):
            return
        if name not in self.structure.inputs:
            self.structure.inputs[name] = (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
            self.structure.changed = True
        self.step.see(name, 0, tensor, self.plans.of(name), look=self.learning or self.measuring)
        if self.learning:
            self.flow.made(tensor, name)

    def clear(self) -> None:
        """The step is over, and nobody looks at it any more."""
        self.step.clear()
        self.flow.clear()

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
