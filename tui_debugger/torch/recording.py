"""Records the step of a training: what ran in it, and the passes without gradients.

There may be hundreds of such passes between two steps, under the same names. Each is judged when it ends. What hit goes
to the step that ends next; the values of the first pass that hit and of the last one stay while there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import get_ident
from types import TracebackType
from typing import Final

import torch

from tui_debugger.graph.categories import is_collective
from tui_debugger.live.client.agent import Agent, ClientHit
from tui_debugger.live.client.judging import ClientJudge
from tui_debugger.live.client.recorded import UnrecordedCounts
from tui_debugger.model import OperandState
from tui_debugger.stats.records import Record
from tui_debugger.torch.arguments import AS_IT_CAME, as_it_came, gradient_call
from tui_debugger.torch.captures import (
    EVERYTHING,
    NOWHERE,
    Capture,
    CapturedOperand,
    CapturedStep,
    Key,
    MemoryBudget,
    Plans,
    UnknownWatchpoints,
    WatchPlan,
    extremes,
    foreseen,
    plain,
    time_now,
)
from tui_debugger.torch.exact import Waiting
from tui_debugger.torch.flow import StepSources
from tui_debugger.torch.internals import (
    Counter,
    dense,
    in_backward,
    local,
    no_autocast,
    numeric,
    part_of,
    readable,
    storage_of,
    when_backward_ends,
)
from tui_debugger.torch.structure import GRADIENTS, UNKNOWN, Structure, TracedNode, is_constant, output_of, split_output
from tui_debugger.torch.verdicts import find_records, judge_one, judge_step

_UNREADABLE: Final = "unreadable"


class Passes:
    """The passes without gradients of the step that runs."""

    def __init__(self, step: CapturedStep, room: MemoryBudget) -> None:
        self.now: CapturedStep | None = None  # the pass that runs
        self.names: set[str] = set()  # of all that ran in those that are over
        self._step = step
        self._room = room
        self._first: CapturedStep | None = None
        self._last: CapturedStep | None = None
        self._said: set[tuple[str, int, int]] = set()
        self._outermost: dict[Key, dict[str, tuple[float, Capture]]] = {}
        room.make = self._make_room

    def __bool__(self) -> bool:
        return self.now is not None or self._last is not None

    def begin(self) -> CapturedStep:
        self.now = CapturedStep(self._room, self._step.volatile)
        return self.now

    def end(self, judge: ClientJudge | None) -> None:
        """The pass is over. ``judge``: None before any watchpoint could be set."""
        now, self.now = self.now, None
        if now is None or not len(now):
            return
        if judge is None:
            self._remember(now)
            caught = False
        else:
            caught = bool(self.caught(now, judge_step(now, judge, recheck=False)))
            caught |= any(isinstance(each, Capture) and each.told and each.record is not None for each in now.entries)
        self.names.update(now.names())
        before, self._last = self._last, now
        if before is not None and before is not self._first:
            before.clear()
        if caught and self._first is None:
            self._first = now

    def caught(self, now: CapturedStep, hits: Sequence[ClientHit]) -> list[ClientHit]:
        """Adds new hits of a pass to the step, and returns them; the same hit of a later pass does not count."""
        new = [hit for hit in hits if (hit.node, hit.slot, hit.result.watchpoint) not in self._said]
        self._said |= {(hit.node, hit.slot, hit.result.watchpoint) for hit in new}
        found = (now.get((hit.node, hit.slot)) for hit in new)
        hit_by = list({id(each): each for each in found if each is not None}.values())
        for each in hit_by:
            each.fetched = each.fetched or now.fetched  # not the numbers of the step that takes it in
        self._step.adopt(hit_by)
        return new

    def settle(self) -> None:
        """Hands captures of earlier passes to the step: watchpoints may be set and judge them from now on."""
        found = {id(capture): capture for kept in self._outermost.values() for _, capture in kept.values()}
        self._outermost.clear()
        self._step.adopt(list(found.values()))

    def find(self, key: Key) -> tuple[CapturedStep, Capture] | None:
        """Finds a tensor in the running pass, the step, the first pass that hit, or the last pass."""
        for each in (self.now, self._step, self._first, self._last):
            capture = each.get(key) if each is not None else None
            if each is not None and capture is not None:
                return each, capture
        return None

    def kept(self) -> Iterator[CapturedStep]:
        """The passes whose tensors are still known: the first that hit, and the last that ended."""
        yield from (each for each in (self._first, self._last) if each is not None)

    def clear(self) -> None:
        for each in (self.now, self._first, self._last):
            if each is not None:
                each.clear()
        self.now = self._first = self._last = None
        self.names.clear()
        self._said.clear()
        self._outermost.clear()

    # -- inside --------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        if self._last is not None and self._last is not self._first:
            self._last.drop_values()

    def _remember(self, now: CapturedStep) -> None:
        """Keeps of each tensor the passes with the outermost numbers: if any crosses a threshold, one of these does."""
        find_records(now, list(now), UnknownWatchpoints())
        for capture in now:
            if capture.record is None:
                continue
            capture.fetched = capture.fetched or now.fetched
            kept = self._outermost.setdefault((capture.name, capture.slot), {})
            for name, value in _numbers(capture.record):
                if name not in kept or value > kept[name][0]:
                    kept[name] = value, capture


def _numbers(record: Record) -> Iterator[tuple[str, float]]:
    """The numbers of a tensor that thresholds compare, each so that larger is more extreme."""
    stats = record.stats
    if stats is None:
        yield _UNREADABLE, 0.0
        return
    yield "nan", float(stats.nan > 0)
    yield "inf", float(stats.inf > 0)
    low, high = stats.minimum, stats.maximum
    span = None if low is None or high is None else high - low
    for name, value in (
        ("min", low),
        ("max", high),
        ("max_min", span),
        ("mean", stats.mean),
        ("abs_mean", stats.abs_mean),
        ("zero", stats.zero_percentage),
        *((f"inside {bounds}", float(count)) for bounds, count in record.ranges.items()),
    ):
        if value is not None:
            yield f"least {name}", -value
            yield f"greatest {name}", value


MOST: Final = 50_000
"""Tensors of one step, or of one pass without gradients, that are looked at: memory is bounded."""

CALM: Final = 20
"""Steps in which nothing ran in a new order, after which a program that does so now and then is not followed."""

Sources = Callable[[], list[str]]
Read = CapturedOperand | tuple[list[str], torch.Tensor]
"""What a node read: looked at already, or sources and values."""
Reads = Callable[[], Iterable[Read]]


def _nothing() -> Iterable[Read]:
    return ()


class StepRecording:
    """The step that is being recorded.

    Attributes:
        learning: the graph is not known yet.
        measuring: everything is found out about every tensor, for the flight recorder.
        scaled: a GradScaler is in use: which gradients count shows when it lets its optimizer step, or does not.
        settled: nothing but the values of tensors is looked at in this step: the graph and its data flow are known.
        paused: tdbg itself is at work: operators are its own.
        updated: parameters that an optimizer changed in this step.
        bad_at_start: buffers that held NaN before anything ran in this step, and nothing is seen to have written that.
        at_begin: called when a forward pass begins.
        by_hand: no optimizer is known: gradients are looked at when a backward pass ends.
        escaped: what a signal handler of the training raised during such a stop: none of our failures.
    """

    def __init__(self, budget: int, *, values: bool, at_once: bool = False) -> None:
        """``budget``: bytes of outputs that are held at most; ``at_once``: a tensor is judged when it is made."""
        room = MemoryBudget(budget if values else 0)
        self.step = CapturedStep(room)
        self.passes = Passes(self.step, room)
        self.structure = Structure()
        self.flow = StepSources(doubts_found=not at_once, touch=self.structure.touch)
        self._called = False
        self.plans = Plans(ClientJudge())
        self.learning = True
        self.measuring = False
        self.scaled = False
        self.paused = False
        self.agent: Agent | None = None
        self.unrecorded = UnrecordedCounts()
        self.escaped: Exception | None = None
        self.settled = False
        self._at_once = at_once
        self.updated: list[str] = []
        self.bad_at_start: set[str] = set()
        self._states: dict[str, list[tuple[int, OperandState]]] = {}
        """Of weights and buffers that were bad in this step for a while: since when they were what."""
        self._evaluated: list[str] = []
        self._evaluations = 0
        self.at_begin: Callable[[], None] = lambda: None
        self.by_hand = False
        self.at_backward_end: Callable[[], None] = lambda: None
        self._awaiting = False
        self._orders: set[int] = set()
        self._order = 0
        self._order_bare = 0
        self._last = ""
        self._surprised = False
        self._surprises = 0
        self._calm = 0
        self._now_and_then = False
        """A pass without gradients ran in a new order: it need not come again in the next step."""
        self._read: dict[str, set[str]] = {}
        """What nodes were made of in this step, as far as that is followed."""
        self._off_course: set[bool] = set()
        """Passes (without gradients or not) in which something is not what the debugger knows. What runs after it is
        judged at the end, when the debugger was told."""

    @property
    def every_operator(self) -> bool:
        return self._at_once

    def begin_call(self) -> None:
        """The model is called with gradients."""
        if self._called:
            self.structure.repeat()
        self._called = True
        self.step.begin_call()
        self.updated += self._evaluated if self._evaluations else ()
        self._evaluations += 1
        self._order = 0
        self.at_begin()

    def evaluates(self, weights: Iterable[str]) -> None:
        """An optimizer runs that itself calls the model and changes ``weights`` between calls; none: it ended."""
        self._evaluated, self._evaluations = list(weights), 0

    def begin_pass(self) -> None:
        self.end_pass()
        self.passes.begin()
        self._order_bare = 1
        self._off_course.discard(True)
        self.at_begin()

    def end_pass(self) -> None:
        """The pass that runs, if any, is over: it is judged, unless nobody had an occasion to watch anything yet."""
        if self.passes.now is None:
            return
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
        mutated: Collection[int] = (),
        no_grad: bool = False,
        counters: Sequence[Counter] = (),
        reads: Reads = _nothing,
    ) -> None:
        """A node has run, and made ``tensors``: one per slot.

        ``sources`` are only asked for while they are followed, ``source`` (a stack text) once. ``mutated``: the ``id``
        of each tensor that was changed in place. ``counters``: what counts changes of outputs that do not count them
        yet. ``reads``: what it read and left as it was, where that tells more than its sources.
        """
        step = self._step(name, len(tensors), no_grad=no_grad)
        if step is None:
            return
        if self.updated:
            self._read_again()
        if self._at_once:
            self._await_backward_end()
        structure, known = self.structure, self._in_known_order(name, no_grad=no_grad)
        if self._at_once and step.has(name):
            structure.repeat(name)
        if name not in structure.nodes:
            structure.add(name, TracedNode(kind, source=source()), self._last)
        if self.flow.following:
            inputs = sources()
            self._read.setdefault(name, set()).update(inputs)
            structure.add_inputs(name, inputs)
            if self._at_once:
                structure.note_gradients(name, inputs, trained=any(each.requires_grad for each in tensors))
        elif not known:
            structure.doubt(name)
        if self._at_once and (structure.fed_anew or not structure.is_sent(name)):
            self._off_course.add(no_grad)
        self._last = name
        hits: list[ClientHit] = []
        for slot, tensor in enumerate(tensors):
            given = {"mutated": id(tensor) in mutated, "no_grad": no_grad}
            hits += self._see(
                step, name, slot, tensor, **given, counter=counters[slot] if counters else None, reads=reads
            )
        self._stop(name, hits)

    def _in_known_order(self, name: str, *, no_grad: bool = False) -> bool:
        """Tells whether all that ran in this pass up to a node was followed before in this order.

        In a new order it is not known what a node is made of. From the next step on it is followed.
        """
        order = hash((self._order_bare if no_grad else self._order, name))
        if no_grad:
            self._order_bare = order
        else:
            self._order = order
        if order in self._orders:
            return True
        if self.flow.following:
            self._orders.add(order)
            self._calm = 0
        else:
            self._doubt_plan(no_grad=no_grad)
        return False

    def unexpected(self, name: str) -> None:
        """A node is given something else than in the steps that were followed."""
        self._order = hash((self._order, name, "unexpected"))
        self._order_bare = hash((self._order_bare, name, "unexpected"))
        self.structure.doubt(name)
        self._doubt_plan()

    def _doubt_plan(self, *, no_grad: bool = False) -> None:
        self._surprised = self.structure.changed = True
        self._now_and_then |= no_grad
        if not no_grad:
            self.structure.gradients_doubted = True

    def came(self, name: str, kind: str, slot: int, gradient: torch.Tensor, forward: str) -> None:
        """The gradient of output ``slot`` of the node ``forward`` came; the node ``name`` stands for it."""
        self._await_backward_end()
        step = self._step(name, 1)
        if step is None:
            return
        structure, known = self.structure, self._in_known_order(name)
        if name not in structure.nodes:
            structure.add(name, TracedNode(kind, forward=forward), self._last)
        if self.flow.following:
            structure.add_inputs(name, structure.gone_through(self.flow.sources([gradient])))
            structure.add_call(name, AS_IT_CAME)
            self.flow.lost(gradient)  # whatever it was made of, it is this node's from now on
        elif not known:
            structure.doubt(name)
        self._last = name
        self._stop(name, self._see(step, name, slot, gradient))

    def _await_backward_end(self) -> None:
        """Has the end of the running backward pass reported, once; a checkpoint's inner pass ends before it."""
        if self.by_hand and not self._awaiting and in_backward():
            self._awaiting = True
            when_backward_ends(self._backward_ended)

    def _backward_ended(self) -> None:
        self._awaiting = False
        with self.at_work():
            self.at_backward_end()

    def read_and_written(self, tensor: torch.Tensor, *, by_a_node: bool) -> CapturedOperand | None:
        """What is known of a tensor that an operator is about to read and overwrite; None without numbers."""
        if not (readable(tensor) and numeric(tensor) and tensor.numel()):
            return None
        bare = self.passes.now
        step = bare if bare is not None and bare.line_of(tensor) is not None else self.step
        with self.at_work():
            return step.read_and_written(tensor, self.flow.sources([tensor]) or [UNKNOWN], by_a_node=by_a_node)

    def wrote(self, name: str, tensors: Iterable[torch.Tensor]) -> None:
        """The program wrote to tensors: buffers and weights that are bad now are made of the node ``name``."""
        for held, value in (each for tensor in tensors for each in self.flow.held_in(tensor)):
            if not isinstance(value, torch.nn.Parameter) or not bool(local(value).isfinite().all()):
                self.structure.feed(held, [name], anew=False)

    def _read_again(self) -> None:
        """Marks weights that an optimizer changed: a later node of the same step may read them."""
        self.structure.touch(self.updated)
        for name in self.updated:
            self.structure.feed(name, [UNKNOWN])
        self.updated.clear()

    def collected(self, parameter: str, name: str, value: torch.Tensor, gradient: torch.Tensor) -> None:
        """The gradient of a parameter, node ``name``, is what an optimizer will use now."""
        self.updated.append(parameter)
        if self.flow.following:
            # What it was before the program mixed others in is not seen: any of them may be where something began.
            mixed = [UNKNOWN] if self.flow.mixed(gradient) else []
            sources = self.flow.sources([gradient])
            self.structure.add_gradient(name, [*self.structure.gone_through(sources), *mixed])
            once = self._at_once and not mixed
            self.structure.add_call(name, gradient_call(self.flow, gradient) if once else as_it_came(self.flow, value))
            line = self.step.line_at(split_output(sources[0]), gradient) if self._at_once and sources else None
            if line is not None:
                self.step.collected[name] = CapturedOperand(sources, line)

    def left(self, name: str, gradient: torch.Tensor) -> None:
        """A gradient remains at the end of the step, used by no optimizer; it may include those of earlier steps."""
        if name in self.structure.gradients:
            sources = self.flow.sources([gradient]) if self.flow.following else [UNKNOWN]
            self.structure.add_gradient(name, self.structure.gone_through(sources or [UNKNOWN]))

    def given(self, name: str, tensor: torch.Tensor, *, no_grad: bool = False) -> None:
        step = self._step(name, 1, no_grad=no_grad)
        if step is None or not self._readable(name, tensor):
            return
        if name not in self.structure.inputs:
            self.structure.inputs[name] = (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
            self.structure.changed = True
        if self.flow.following:
            made = [each for each in self.flow.sources([tensor]) if split_output(each)[0] in self.structure.nodes]
            if made:  # a model that is called with what it returned before
                self.structure.feed(name, [*made, UNKNOWN])
            self.flow.replaced(tensor, name)
        self._look(step, name, 0, tensor, self._plan(name))

    def began(self, name: str, kind: str, tensors: Sequence[torch.Tensor], sources: Sources) -> None:
        """A collective operation began; its results are not known yet."""
        if name not in self.structure.nodes:
            self.structure.add(name, TracedNode(kind), self._last)
        if self.flow.following:
            self.structure.add_inputs(name, sources())
            for tensor in tensors:
                self.flow.replaced(tensor, name)

    def passed(
        self, name: str, kind: str, tensor: torch.Tensor, inputs: Sequence[str] | None = None, *, keep: bool = False
    ) -> None:
        """A collective took or made a tensor whose memory is used again soon. ``keep``: copies it if there is room."""
        step = self._step(name, 1)
        if step is None:
            return
        if name not in self.structure.nodes:
            self.structure.add(name, TracedNode(kind, list(inputs or ())), self._last)
        if self.flow.following:
            if inputs is None:
                self.structure.add_inputs(name, self.flow.sources([tensor]))
            self.flow.made(tensor, name)
        if not self._readable(name, tensor):
            return
        self.structure.add_slot(name, 0, tensor)
        plan, values = self._plan(name), local(tensor)
        look = self.learning or self.measuring
        if keep and step.room >= values.numel() * values.element_size():
            step.see(name, 0, values.clone(), plan, look=look, screen=self.learning)
        else:
            step.glance(name, 0, values, plan, look=look)

    def told(self, hits: Iterable[ClientHit]) -> list[ClientHit]:
        """Hits, of which each says whether the debugger knows what its node was made of in this step."""
        found = [self._with_weights(each) for each in hits]
        unknown = [each for each in found if not self.structure.is_known(each.node) or self._read_others(each)]
        return [replace(each, inputs_unknown=True) if each in unknown else self._without_others(each) for each in found]

    def _without_others(self, hit: ClientHit) -> ClientHit:
        """A hit of a node that has further inputs in other steps: it did not read these, so they count as clean."""
        read, node = self._read.get(hit.node), self.structure.nodes.get(hit.node)
        if read is None or node is None:
            return hit
        others = (each for each in node.inputs if each not in read and not is_constant(each))
        return replace(hit, operands=(*hit.operands, *((each, OperandState.CLEAN) for each in others)))

    def _read_others(self, hit: ClientHit) -> bool:
        """Tells whether a node read something bad that the graph need not name. An Inf may be a mask to operators."""
        bad = {OperandState.NAN} if self._at_once else {OperandState.NAN, OperandState.INFINITE}
        return any(name == UNKNOWN and state in bad for name, state in hit.operands)

    def read_as(self, states: Mapping[str, OperandState]) -> None:
        """Weights and buffers are bad from now on, or clean again: modules read them as they are."""
        now = time_now()
        for name, state in states.items():
            if state is not OperandState.CLEAN or name in self._states:
                self._states.setdefault(name, []).append((now, state))

    def was_clean(self) -> bool:
        """Tells whether all quick numbers of this step are finite so far; a device is waited for."""
        step = self.step
        step.fetched = step.waiting.fetch(step.fetched)
        return step.fetched.are_finite

    def _with_weights(self, hit: ClientHit) -> ClientHit:
        """A hit of a module with the weights and buffers that were bad when it read them; of operators that is seen."""
        node = self.structure.nodes.get(hit.node)
        if node is None:
            return replace(hit, operands=(*hit.operands, *self._not_made_of(hit.node)))
        if self._at_once or is_collective(node.kind):
            return hit
        line = self.step.get((hit.node, hit.slot))
        states: dict[str, OperandState] = {}
        for name in node.inputs:
            for since, state in self._states.get(name, ()):
                if line is None or since < line.order:
                    states[name] = state
        return replace(hit, operands=(*hit.operands, *states.items()))

    def _not_made_of(self, name: str) -> list[tuple[str, OperandState]]:
        """What a weight or buffer was made of in other steps, and not in this one.

        A buffer that was bad before anything ran was made bad by none of the modules that change it. A weight to which
        the program once wrote something bad is made by its optimizer again.
        """
        fed, states = self.structure.fed.get(name), self._states.get(name)
        if name in self.bad_at_start:
            return [(each, OperandState.CLEAN) for each in fed or ()]
        written = states is not None and states[-1][1] is not OperandState.CLEAN
        return [(name, OperandState.CLEAN)] if fed == [] and not written else []

    def seen_as(self, tensor: torch.Tensor) -> str:
        """See ``CapturedStep``: in the pass without gradients that runs, or in the step."""
        bare = self.passes.now.seen_as(tensor) if self.passes.now is not None else ""
        return bare or self.step.seen_as(tensor)

    def overwrite(self, tensors: Iterable[torch.Tensor]) -> None:
        """Tensors have new values: captures in their memory do not hold the seen values any more."""
        memory = {at for each in tensors if (at := storage_of(part_of(each))) is not None}
        self.flow.overwrite(memory)
        for each in (self.step, self.passes.now, *self.passes.kept()):
            if each is not None:
                each.overwrite(memory)

    def lost(self, what: str, example: str, count: int = 1) -> None:
        self.unrecorded.add(what, self.agent.step + 1 if self.agent is not None else 0, example, count)

    def clear(self) -> None:
        """The step is over, and nobody looks at it any more."""
        self.passes.clear()
        self.step.clear()
        self.flow.clear()
        self.updated.clear()
        self.bad_at_start.clear()
        self._states.clear()
        self._awaiting = self._called = False
        self._order, self._order_bare, self._last = 0, 1, ""
        if self._surprised:
            self._surprises += 1
            self._calm = 0
        elif self.flow.following:
            self._calm += 1
        often = (self._surprises > 1 or self._now_and_then) and self._calm < CALM
        self.flow.following = self._at_once or self.learning or self._surprised or often
        if self.flow.following and self.structure.gradients_doubted:
            self.structure.gradients_doubted = False
            self.structure.changed = True
        self._surprised = False
        self._off_course.clear()
        self._read.clear()
        self.settled = not (self.flow.following or self.learning or self.measuring or self._at_once)

    # -- inside --------------------------------------------------------------------------------------

    def _step(self, name: str, count: int, *, no_grad: bool = False) -> CapturedStep | None:
        """The step or pass that a tensor belongs to; None when that has too many tensors."""
        step = (self.passes.now or self.passes.begin()) if no_grad else self.step
        if len(step) < MOST:
            return step
        self.lost(f"tensors beyond {MOST:,} in one {'pass' if no_grad else 'step'}", name, count)
        return None

    def _readable(self, name: str, tensor: torch.Tensor) -> bool:
        if readable(tensor):
            return True
        self.lost("tensors without plain values (quantized, nested, on no device, inside torch.func)", name)
        return False

    def _see(
        self,
        step: CapturedStep,
        name: str,
        slot: int,
        tensor: torch.Tensor,
        *,
        mutated: bool = False,
        no_grad: bool = False,
        counter: Counter | None = None,
        reads: Reads = _nothing,
    ) -> Sequence[ClientHit]:
        plan = self._plan(name)
        known = self.settled and not mutated and counter is None and reads is _nothing
        known &= slot in self.structure.nodes[name].outputs
        if known and step.note(name, slot, tensor, plan):
            return ()
        with self.at_work():
            given = {"mutated": mutated, "no_grad": no_grad}
            return self._see_whole(step, name, slot, tensor, plan, **given, counter=counter, reads=reads)

    def _see_whole(
        self,
        step: CapturedStep,
        name: str,
        slot: int,
        tensor: torch.Tensor,
        plan: WatchPlan | None,
        *,
        mutated: bool,
        no_grad: bool,
        counter: Counter | None,
        reads: Reads,
    ) -> Sequence[ClientHit]:
        if not self._readable(name, tensor):
            self.flow.lost(tensor)
            return ()
        if self.flow.following:
            (self.flow.replaced if mutated else self.flow.made)(tensor, output_of(name, slot))
        self.structure.add_slot(name, slot, tensor)
        unsure = self.scaled and (name.startswith(GRADIENTS) or name in self.structure.of_gradients)
        later = not self._at_once or no_grad in self._off_course or unsure
        if later or plan is None or not self.plans.knows(name):
            operands = self._read_until_then(step, reads) if not slot else ()
            self._look(step, name, slot, tensor, plan, mutated=mutated, counter=counter).operands = operands
            return ()
        waiting = Waiting()
        capture = self._look(step, name, slot, tensor, plan, mutated=mutated, alone=waiting, counter=counter)
        hits = judge_one(step, capture, waiting, self.plans.judge, lambda: _read_now(reads))
        return self.passes.caught(step, hits) if no_grad and hits else hits

    def _read_until_then(self, step: CapturedStep, reads: Reads) -> list[CapturedOperand]:
        """What a node read that is judged at the end of the step: what no operator made may change by then."""
        found = []
        for each in reads():
            if isinstance(each, CapturedOperand):
                found.append(each)
                continue
            sources, tensor = each
            line = step.line_of(tensor) or step.line_at(split_output(sources[0]), tensor)
            look = line is None and numeric(tensor) and tensor.numel() > 0
            place = extremes(plain(local(tensor)), step.waiting) if look else NOWHERE
            found.append(CapturedOperand(sources, line, place))
        return found

    def _plan(self, name: str) -> WatchPlan | None:
        plan = self.plans.of(name)
        if plan is None and self.plans.strange(name):
            self.lost("tensors of nodes that came after the watchpoints", name)
        return plan

    def _look(
        self,
        step: CapturedStep,
        name: str,
        slot: int,
        tensor: torch.Tensor,
        plan: WatchPlan | None,
        *,
        mutated: bool = False,
        alone: Waiting | None = None,
        counter: Counter | None = None,
    ) -> Capture:
        known = {"look": self.learning, "exactly": self.measuring, "screen": self.learning}
        unwatched = foreseen(name) if plan is None and self.learning else EVERYTHING
        return step.see(
            name, slot, tensor, plan, mutated=mutated, alone=alone, counter=counter, unwatched=unwatched, **known
        )

    def _stop(self, name: str, hits: Sequence[ClientHit]) -> None:
        agent = self.agent
        if agent is not None and (hits or agent.wants_nodes):
            try:
                agent.node_end(name, self.told(hits))
            except Exception as error:
                self.escaped = error
                raise

    def at_work(self) -> AtWork:
        """Around our own computations: they are not recorded, and autocast is off."""
        return AtWork(self)


def _read_now(reads: Reads) -> list[CapturedOperand]:
    """The operands that a node has just read, with their states."""
    found = []
    for each in reads():
        if isinstance(each, CapturedOperand):
            found.append(each)
            continue
        sources, tensor = each
        values, state = dense(local(tensor)), None
        if numeric(tensor):
            finite = bool(values.isfinite().all())
            state = OperandState.CLEAN if finite else OperandState.INFINITE
            state = OperandState.NAN if bool(values.isnan().any()) else state
        found.append(CapturedOperand(sources, state=state))
    return found


_at_work: Final[set[int]] = set()
"""Threads in which something of ours is computed, for whichever of several models that are recorded."""


def at_work() -> bool:
    """Tells whether this thread runs our own computations, and not the program."""
    return get_ident() in _at_work


class AtWork:
    """See ``StepRecording.at_work``. A class, as it runs hundreds of times a step: a generator costs twice as much."""

    __slots__ = ("_before", "_guard", "_inside", "_recording")

    def __init__(self, recording: StepRecording) -> None:
        self._recording = recording
        self._before = recording.paused
        self._inside = True
        self._guard = no_autocast()  # alone: what is computed is detached from autograd anyway

    def __enter__(self) -> None:
        self._inside = (thread := get_ident()) in _at_work
        _at_work.add(thread)
        self._recording.paused = True
        self._guard.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._inside:
            _at_work.discard(get_ident())
        self._recording.paused = self._before
        self._guard.__exit__(kind, error, trace)
