"""Generated steps: a graph, what each tensor of it held, and who can tell.

A ``Case`` knows the state of every tensor of one step, and of the weights after the step before. Of each tensor it says
who can tell: it is watched, it is not watched but can be asked for, or nobody can tell. ``rule`` has the true answer.

The generator makes branches, joins, nodes of several outputs, nodes without inputs, inputs of no known producer,
constants (stated, unstated, infinite, NaN), collective operations, graph inputs, masks of -Inf (absorbed or not),
weights with an optimizer's update, and weights that the program itself wrote.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
BEFORE, NOW = 0, 1
"""The steps: the one before, of which only parameters matter, and the one that is asked about."""
Place = tuple[str, int]
"""An output: name of the node, slot."""


class Holds(Enum):
    """What a tensor holds."""

    CLEAN = "finite"
    NAN = "NaN"
    INF = "Inf"
    MASK = "some -Inf"
    ALL = "-Inf only"

    @property
    def bad(self) -> bool:
        """Tells whether there is any NaN or Inf."""
        return self is not Holds.CLEAN


class Told(Enum):
    """Who can tell what a tensor holds."""

    WATCHED = "watched"
    """A dump has it; a training was told to watch it, and reports it where it is bad."""
    ASKED = "asked"
    """A dump has it; a training was not told to watch it, and gives it when it is asked."""
    NEVER = "never"
    """It was not dumped; a training was not told to watch it, and cannot give it."""
    STATED = "stated"
    """The graph itself says the value of a constant."""


@dataclass
class Tensor:
    """One output in one step.

    Attributes:
        holds: what it holds.
        told: who can tell.
        intended: all that is bad about it is an Inf that an operator was told to write.
        absorbed: and whatever reads it made that finite.
    """

    holds: Holds = Holds.CLEAN
    told: Told = Told.WATCHED
    intended: bool = False
    absorbed: bool = False


@dataclass
class Node:
    """One node of the graph.

    Attributes:
        name: its name.
        type: operator type; ``Parameter`` and ``Constant`` included.
        inputs: what feeds it; an empty name where nobody knows.
        outputs: what it made in the step; empty: nobody sees what it makes.
        before: of a weight what it held after the step before.
        writes: the input slots of an optimizer's update that hold the parameters it updates.
        updater: of a weight the node that updates it; empty: nothing does.
        written: of a weight: the program itself wrote it before the step ran.
    """

    name: str
    type: str
    inputs: tuple[Place, ...] = ()
    outputs: list[Tensor] = field(default_factory=lambda: [Tensor()])
    before: Tensor | None = None
    writes: frozenset[int] = frozenset()
    updater: str = ""
    written: bool = False


@dataclass
class Case:
    """One step of one training.

    Attributes:
        nodes: by name, in the order of execution; then parameters, then constants.
        pytorch: the graph is drawn as the client for PyTorch draws it; else as MindSpore does.
        seed: of the values.
    """

    nodes: dict[str, Node]
    pytorch: bool
    seed: int

    def places(self) -> Iterator[tuple[Node, int, Tensor]]:
        """Every output of the step."""
        for node in self.nodes.values():
            yield from ((node, slot, tensor) for slot, tensor in enumerate(node.outputs))

    def unwatched(self, step: int) -> list[str]:
        """The nodes that no watchpoint covers in a step; parameters and operators, as constants are never watched."""
        found = []
        for node in self.nodes.values():
            of_step = [node.before] if step == BEFORE and node.before else node.outputs
            if node.type != "Constant" and any(each.told is not Told.WATCHED for each in of_step):
                found.append(node.name)
        return found

    def tensor(self, place: Place, step: int) -> Tensor | None:
        """An output in a step; None where the case says nothing of it."""
        node = self.nodes.get(place[0])
        if node is None or place[1] >= len(node.outputs):
            return None
        return node.outputs[place[1]] if step == NOW else node.before

    def value(self, place: Place, step: int) -> Array | None:
        """What can be had of it: by the dump, or by asking the training. None: it cannot be had."""
        tensor, node = self.tensor(place, step), self.nodes.get(place[0])
        if step == BEFORE and tensor is None and node is not None and (node.type, place[1]) == ("Parameter", 0):
            tensor = Tensor()  # a graph input of the step before was clean
        if tensor is None or tensor.told in (Told.NEVER, Told.STATED):
            return None
        return array_of(tensor.holds, f"{self.seed} {place} {step}")


def array_of(holds: Holds, name: str) -> Array:
    """Values of which a tensor could consist: finite ones are between 1 and 2."""
    values = np.random.default_rng(list(name.encode())).uniform(1, 2, (2, 3)).astype(np.float32)
    if holds is Holds.NAN:
        values[0, 0] = np.nan
    elif holds is Holds.INF:
        values[0, 0] = np.inf
    elif holds is Holds.MASK:
        values[0, 1:] = -np.inf
    elif holds is Holds.ALL:
        values[:] = -np.inf
    return values


# -- the generator ------------------------------------------------------------------------------------

_PLAIN: Final = ("MatMul", "Mul", "Add", "Div", "ReLU", "LayerNorm", "Log", "Exp", "Sqrt", "Cast", "Reshape", "Gelu")
_MAKES_INF: Final = frozenset({"Log", "Exp", "Sqrt", "MatMul"})
"""Types that write an Inf only as a fault of theirs."""


_AFTER_A_MASK: Final = ("clean", "clean", "clean", "bad", "unseen", "read by others")
"""What becomes of a masked tensor: a softmax makes it finite, makes NaN of it, is not seen, or is not alone."""


class _Generator:
    def __init__(self, seed: int, healthy: bool) -> None:
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.healthy = healthy
        self.seed = seed
        self.pytorch = seed % 3 == 2
        self.nodes: dict[str, Node] = {}
        self.parameters: dict[str, Node] = {}
        self.constants: dict[str, Node] = {}
        self.pool: list[Place] = []
        self.unknown = self.random.choice((0.0, 0.1, 0.25))

    def case(self) -> Case:
        for number in range(self.random.randint(1, 3)):
            self._input(number)
        weights = [self._weight(number) for number in range(self.random.randint(0, 3))]
        for _ in range(self.random.randint(4, 14)):
            self._operator()
            if self.random.random() < 0.25:
                self._mask()
        for weight in weights:
            if not weight.written:
                self._update(weight)
            elif self.pytorch:
                self._drawn_gradient(weight)
        if any(weight.written for weight in weights):  # the training is not asked for what a program may have averaged
            for each in self.parameters.values():
                if each.before is not None and each.before.told is Told.ASKED:
                    each.before.told = Told.WATCHED
        return Case({**self.nodes, **self.parameters, **self.constants}, self.pytorch, self.seed)

    # -- what there is before a step -----------------------------------------------------------------

    def _input(self, number: int) -> None:
        prefixed = self.random.random() < 0.5 or self.pytorch
        name = f"{'inputs.' if prefixed else ''}x{number}"
        holds = self._bad(0.12)
        self._parameter(Node(name, "Parameter", outputs=[Tensor(holds, self._told())]))
        self.pool.append((name, 0))

    def _weight(self, number: int) -> Node:
        weight = self._parameter(Node(f"layer{number}.weight", "Parameter"))
        tensor = Tensor(self._bad(0.12), self._told())
        weight.before = tensor
        earlier = [each.before.holds.bad for each in self.parameters.values() if each.before]
        if self.pytorch and self._chance(0.4) and not any(earlier):
            weight.before, weight.written = Tensor(), True
            weight.outputs = [Tensor(self._bad(0.4))]
            self._add(Node(f"write/layer{number}", "BufferUpdate", ((weight.name, 0),), outputs=[]))
        else:
            weight.updater = f"{'optimizer/layer' if self.pytorch else 'Default/ApplyMomentum-op9'}{number}"
        self.pool.append((weight.name, 0))
        return weight

    def _parameter(self, node: Node) -> Node:
        return self.parameters.setdefault(node.name, node)

    def _constant(self, holds: Holds, told: Told) -> Place:
        name = f"cst{len(self.constants) + 1}"
        intended = holds in (Holds.INF, Holds.ALL)
        self.constants[name] = Node(name, "Constant", outputs=[Tensor(holds, told, intended)])
        return name, 0

    # -- operators -------------------------------------------------------------------------------------

    def _operator(self) -> None:
        kind = self.random.choice(_PLAIN)
        inputs = [self.random.choice(self.pool) for _ in range(self.random.choice((1, 1, 2, 2, 3)))]
        if self._chance(0.15):
            kind = self.random.choice(("AllReduce", "AllGather"))
        elif self._chance(0.06):
            kind, inputs = self.random.choice((("StandardNormal", []), ("Receive", [])))
        elif self._chance(0.05):
            inputs.append(("", 0))
        elif self._chance(0.25):
            kind = self.random.choice(("Pow", "MatMul", "Atan2"))  # whose type says nothing about infinities
            holds = (
                Holds.CLEAN if self.healthy else self.random.choice((Holds.CLEAN, Holds.CLEAN, Holds.INF, Holds.NAN))
            )
            inputs.append(self._constant(holds, self.random.choice((Told.STATED, Told.ASKED, Told.NEVER))))
        node = Node(self._name(kind), kind, tuple(inputs))
        told = self._told()
        node.outputs = [Tensor(self._made(node), told) for _ in range(self.random.choice((1, 1, 1, 2, 3)))]
        self._add(node)
        self.pool += [(node.name, slot) for slot in range(len(node.outputs))]

    def _made(self, node: Node) -> Holds:
        """A bad input mostly makes a bad output; of clean ones something bad begins at times."""
        bad = any(self._really_bad(place) for place in node.inputs)
        holds = self._bad(0.85 if bad else 0.1)
        return Holds.INF if holds.bad and node.type in _MAKES_INF and self._chance(0.3) else holds

    def _really_bad(self, place: Place) -> bool:
        node = {**self.nodes, **self.parameters, **self.constants}.get(place[0])
        if node is None:
            return False
        return (node.before if node.updater and node.before else node.outputs[place[1]]).holds.bad

    def _mask(self) -> None:
        """A mask of -Inf in front of a softmax, in one of the ways in which nets make one."""
        scores = self.random.choice(self.pool)
        way = self.random.choice(("filled", "added", "fed"))
        spoilt = self._really_bad(scores)
        keep = self._constant(Holds.CLEAN, Told.STATED)
        masks: list[Node] = []
        if way == "filled":
            low = self._constant(Holds.ALL, Told.STATED)
            masked = self._add(Node(self._name("MaskedFill"), "MaskedFill", (scores, keep, low)))
        else:
            if way == "added":
                low = self._constant(Holds.ALL, Told.STATED)
                full = self._add(Node(self._name("FillV2"), "FillV2", (keep, low), [Tensor(Holds.ALL)]))
                mask = self._add(Node(self._name("Triu"), "Triu", ((full.name, 0),), [Tensor(Holds.MASK)]))
                masks = [full, mask]
            else:
                mask = self._parameter(Node(f"mask{len(self.parameters)}", "Parameter", outputs=[Tensor(Holds.MASK)]))
                masks = [mask]
            masked = self._add(Node(self._name("Add"), "Add", (scores, (mask.name, 0))))
        masked.outputs = [Tensor(Holds.NAN if spoilt else Holds.MASK, intended=not spoilt)]
        after = "clean" if self.healthy else self.random.choice(_AFTER_A_MASK)
        holds = Holds.NAN if spoilt or after == "bad" else Holds.CLEAN
        told = Told.NEVER if after == "unseen" else Told.WATCHED
        soft = self._add(Node(self._name("Softmax"), "Softmax", ((masked.name, 0),), [Tensor(holds, told)]))
        absorbed = told is Told.WATCHED and not holds.bad
        if after == "read by others":
            absorbed = False
            log = self._add(Node(self._name("Sqrt"), "Sqrt", ((masked.name, 0),), [Tensor(Holds.NAN)]))
            self.pool.append((log.name, 0))
        for node in (*masks, masked):
            if node is not masked or not spoilt:
                # What is fed as a mask is one only by what reads it.
                node.outputs[0].intended = True
                node.outputs[0].absorbed = absorbed
        if way == "fed" and after == "read by others":
            masks[0].outputs[0].intended = masked.outputs[0].intended = False
        self.pool.append((soft.name, 0))

    # -- updates ---------------------------------------------------------------------------------------

    def _drawn_gradient(self, weight: Node) -> Place:
        name = "Gradients/" + weight.name.replace(".", "/")
        node = Node(name, "ParameterGrad", (self.random.choice(self.pool),))
        node.outputs = [Tensor(self._made(node), self._told())]
        self._add(node)
        return name, 0

    def _update(self, weight: Node) -> None:
        """The optimizer's update; MindSpore's has an output, the one that is drawn for PyTorch has none."""
        state = self._parameter(Node(f"accum.{weight.name}", "Parameter", updater=weight.updater))
        state.before = Tensor(Holds.CLEAN, self._told())
        if self.pytorch:
            rate = self._constant(Holds.CLEAN, Told.STATED)
            inputs: tuple[Place, ...] = ((weight.name, 0), self._drawn_gradient(weight), rate, (state.name, 0))
            node = Node(weight.updater, "OptimizerUpdate", inputs, [], writes=frozenset({0, 3}))
        else:
            rate, momentum = (self._constant(Holds.CLEAN, Told.STATED) for _ in range(2))
            made = Node(self._name("Grad"), "MatMul", (self.random.choice(self.pool),))
            made.outputs = [Tensor(self._made(made), self._told())]
            self._add(made)
            inputs = ((weight.name, 0), (state.name, 0), rate, (made.name, 0), momentum)
            node = Node(weight.updater, "ApplyMomentum", inputs, writes=frozenset({0, 1}))
        holds = Holds.NAN if any(self._really_bad(place) for place in inputs) else self._bad(0.06)
        if node.outputs:
            node.outputs = [Tensor(holds, self._told())]
        self._add(node)
        weight.outputs = [Tensor(holds, self._told())]
        state.outputs = [Tensor(holds, self._told())]

    # -- chance ----------------------------------------------------------------------------------------

    def _add(self, node: Node) -> Node:
        return self.nodes.setdefault(node.name, node)

    def _name(self, kind: str) -> str:
        return f"Default/net/{kind}-op{len(self.nodes) + 1}"

    def _bad(self, share: float) -> Holds:
        return Holds.NAN if self._chance(share) and not self.healthy else Holds.CLEAN

    def _chance(self, share: float) -> bool:
        return self.random.random() < share

    def _told(self) -> Told:
        if not self._chance(self.unknown):
            return Told.WATCHED
        return self.random.choice((Told.ASKED, Told.NEVER, Told.NEVER))


def generated(seed: int, *, healthy: bool = False) -> Case:
    """The case of a seed; ``healthy``: one in which nothing is bad but what is so by design."""
    return _Generator(seed, healthy).case()
