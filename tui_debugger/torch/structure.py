"""The graph of a step: its nodes, their order, what each was made of, and the names that a user recognises."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import torch
from torch import nn

from tui_debugger.graph.categories import without_wrappers
from tui_debugger.torch import internals
from tui_debugger.torch.internals import part_of, type_name
from tui_debugger.torch.node_calls import NodeCall

_WRAPPED: Final = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module")  # attributes of wrappers
_PARALLEL: Final = frozenset({"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "DDP"})

GRADIENTS: Final = "Gradients/"
NO_GRAD: Final = "NoGrad"
"""Scope of what a pass without gradients makes: an evaluation, a rollout, a reference model."""


@dataclass(frozen=True, slots=True, eq=False)
class ModulePlace:
    """A module in the tree."""

    module: nn.Module
    scope: str  # path with ``/``, empty for the root
    name: str  # of the node that stands for its output: scope and class
    kind: str


class ModuleBuffers(Mapping[str, torch.Tensor]):
    """Tensors that modules have besides their parameters, as they are now: a program may put others in their places.

    Beside the registered ones those that are plain attributes: a mask, a table of positions.
    """

    def __init__(self, owners: dict[str, tuple[nn.Module, str]]) -> None:
        self._owners = owners  # by clean name the module, and what it calls the tensor

    def add(self, name: str, module: nn.Module, attribute: str) -> bool:
        """Adds a tensor that a module registers now; False when it is known already."""
        return self._owners.setdefault(name, (added := (module, attribute))) is added

    def __getitem__(self, name: str) -> torch.Tensor:
        module, attribute = self._owners[name]
        found = getattr(module, attribute, None)
        if not isinstance(found, torch.Tensor):
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return (name for name, (module, attribute) in self._owners.items() if _holds(module, attribute))

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True, eq=False)
class ModelTree:
    """A model by names."""

    root: nn.Module  # without what wraps it
    places: tuple[ModulePlace, ...]  # the root first; each once; none of those inside a compiled one
    parameters: dict[str, nn.Parameter]  # by clean name; each once
    buffers: ModuleBuffers  # by clean name; not those that are made anew in every step
    compiled: tuple[str, ...]  # scopes of modules that torch.compile took; their inside is not seen
    hidden: int  # number of modules inside them


def tree_of(model: nn.Module, *, uncompiled: bool = False) -> ModelTree:
    """Walks through a model. ``uncompiled``: modules that torch.compile took run as they were written."""
    root = _bare(model)
    places: list[ModulePlace] = []
    compiled: list[str] = []
    hidden: set[int] = set()
    for name, module in root.named_modules():
        if id(module) in hidden:
            continue
        scope = without_wrappers(name).replace(".", "/")
        inner = getattr(module, "_orig_mod", None)
        whole = not uncompiled and getattr(module, "_compiled_call_impl", None) is not None
        if whole or (isinstance(inner, nn.Module) and not uncompiled):
            compiled.append(scope or type(inner if isinstance(inner, nn.Module) else module).__name__)
            hidden |= {id(each) for each in module.modules() if each is not module}
        if whole or _transparent(module):
            continue
        kind = class_of(inner if isinstance(inner, nn.Module) else module).__name__
        places.append(ModulePlace(module, scope, f"{scope}/{kind}" if scope else kind, kind))
    return ModelTree(
        root,
        tuple(places),
        {without_wrappers(name): parameter for name, parameter in root.named_parameters()},
        ModuleBuffers(_owners(root)),
        tuple(compiled),
        len(hidden),
    )


def class_of(module: nn.Module) -> type[nn.Module]:
    """The user's class of a module: ``fully_shard`` replaces it by a class that is derived from it."""
    made = type(module)
    return next((base for base in made.__bases__ if made.__name__ == f"FSDP{base.__name__}"), made)


def gradient_of(parameter: str) -> str:
    return GRADIENTS + parameter.replace(".", "/")


def local_of(parameter: str) -> str:
    """The node of this process's own gradient of a parameter, before it is summed over processes."""
    return gradient_of(parameter) + "/local"


def local_output_of(node: str) -> str:
    """The node of this process's own part of a module's output."""
    return node + "/local"


def gathered_of(weight: str) -> str:
    """The node of a weight that is put together from the shards of all processes."""
    return "AllGather/" + weight.replace(".", "/")


def update_of(parameter: str) -> str:
    return "Optimizer/" + parameter.replace(".", "/")


def change_of(buffer: str) -> str:
    """The node for the changes of a buffer, or of an input of the model, in a step."""
    return "Changes/" + buffer.replace(".", "/")


def numbered(name: str, call: int) -> str:
    """The node of the second, third ... call of a module in one step."""
    return name if call == 1 else f"{name}#{call}"


@functools.cache
def kind_of(func: Any) -> str:
    """Operator type: ``aten._log_softmax.default`` is ``LogSoftmax``, which is what categories know it by."""
    name = internals.name_of(func).rpartition("::")[2].strip("_")
    return "".join(part[:1].upper() + part[1:] for part in name.split("_") if part) or "Operator"


def without_gradients(name: str) -> str:
    """The node that stands for another one in a pass without gradients."""
    return f"{NO_GRAD}/{name}"


def _bare(model: nn.Module) -> nn.Module:
    """The user's module inside the wrappers that only distribute it."""
    inner: Any = model
    while type(inner).__name__ in _PARALLEL and isinstance(getattr(inner, "module", None), nn.Module):
        inner = inner.module
    found: nn.Module = inner
    return found


def _owners(root: nn.Module) -> dict[str, tuple[nn.Module, str]]:
    """The tensors of a model that are no parameters: the modules that hold them, and what they are called there."""
    found: dict[str, tuple[nn.Module, str]] = {}
    seen: set[int] = set()
    for scope, module in root.named_modules():
        plain = ((name, each) for name, each in vars(module).items() if isinstance(each, torch.Tensor))
        for name, tensor in (*module.named_buffers(recurse=False), *plain):
            # What a graph hangs on is what the module computed last, not what it has.
            if not isinstance(tensor, nn.Parameter) and id(tensor) not in seen and _is_kept(tensor):
                seen.add(id(tensor))
                found[without_wrappers(f"{scope}.{name}" if scope else name)] = module, name
    return found


def _is_kept(tensor: torch.Tensor) -> bool:
    """Tells whether a tensor belongs to a module for good: FSDP replaces weights by views of gathered memory."""
    try:
        return tensor.grad_fn is None and not internals.is_view(tensor)
    except RuntimeError:  # the gathered weights are gone
        return False


def _holds(module: nn.Module, attribute: str) -> bool:
    return isinstance(getattr(module, attribute, None), torch.Tensor)


def _transparent(module: nn.Module) -> bool:
    """Tells whether a module only wraps another one, whose output is its own."""
    return any(isinstance(getattr(module, name, None), nn.Module) for name in _WRAPPED)


Slot = tuple[str, tuple[int, ...]]
"""Element type and shape."""

_CONSTANT: Final = "\0="
VARIES: Final = "finite numbers"
"""The value of a constant that is another one in some steps."""
_NOT_FINITE: Final = re.compile(r"-?\b(?:nan|inf)\b")

UNKNOWN: Final = ""
"""Stands among the inputs of a node for what was not recorded: the graph says that the node has such an input."""


@dataclass(slots=True)
class TracedNode:
    """One operator, module or gradient."""

    kind: str
    inputs: list[str] = field(default_factory=list)  # outputs of nodes (``output_of``), parameters, ``UNKNOWN``
    outputs: dict[int, Slot] = field(default_factory=dict)  # type and shape by slot
    source: str = ""  # stack text
    forward: str = ""  # the node whose gradient this is, empty for others


def slot_of(tensor: torch.Tensor) -> Slot:
    """Element type and shape of a tensor; of a distributed tensor those of the local part."""
    return type_name(tensor.dtype), tuple(part_of(tensor).shape)


def output_of(name: str, slot: int) -> str:
    """The name of a node's output among the inputs of other nodes."""
    return f"{name}:{slot}" if slot else name


def split_output(output: str) -> tuple[str, int]:
    name, _, slot = output.rpartition(":")
    return (name, int(slot)) if name and slot.isdecimal() else (output, 0)


class Structure:
    """All nodes that were seen, in the order in which they run."""

    def __init__(self) -> None:
        self.nodes: dict[str, TracedNode] = {}
        self.inputs: dict[str, Slot] = {}  # tensors that the model was called with
        self.gradients: dict[str, list[str]] = {}  # by the node of a parameter's gradient what that was made of
        self.losses: set[str] = set()  # nodes: what ``backward`` is called on
        self.scaled: set[str] = set()  # those of them that a gradient scaler made
        self.of_gradients: set[str] = set()  # nodes computed of gradients that get none themselves, as norms
        self.fed: dict[str, list[str]] = {}  # by buffer or input of the model what it was made of in a step
        self.calls: dict[str, NodeCall] = {}  # of operators, of gradients, of modules whose class tells what they do
        self.touched: set[str] = set()  # what the program writes to itself: recorded need not be what was read
        self.repeated = False  # the model is called several times in a step
        self.again: set[str] = set()  # nodes that run several times in a step under one name
        self.doubted: set[str] = set()  # nodes that ran in an unknown order while nobody looked at their inputs
        self.gradients_doubted = False  # the same of the gradients of all parameters
        self.changed = self.fed_anew = False  # since the last reset; fed by nodes unknown to the debugger
        self._sent: dict[str, list[str] | None] = {}

    def add(self, name: str, node: TracedNode, after: str = "") -> None:
        """Adds a new node behind the node that ran before it."""
        self.changed = True
        if after not in self.nodes or after == next(reversed(self.nodes)):
            self.nodes[name] = node
            return
        nodes: dict[str, TracedNode] = {}
        for each, known in self.nodes.items():
            nodes[each] = known
            if each == after:
                nodes[name] = node
        self.nodes = nodes

    def add_slot(self, name: str, slot: int, tensor: torch.Tensor) -> None:
        if slot not in self.nodes[name].outputs:
            self.nodes[name].outputs[slot] = slot_of(tensor)
            self.changed = True

    def add_inputs(self, name: str, inputs: Iterable[str]) -> None:
        """Adds the inputs of a known node in this step to its inputs in other steps."""
        node = self.nodes[name]
        merged = without(_merged(node.inputs, list(inputs)), name)
        if merged != node.inputs:
            node.inputs = merged
            self.changed = True
        if name in self.doubted:
            self.doubted.discard(name)
            self.changed = True

    def text_of(self, call: NodeCall, name: str, inputs: Sequence[str], left_out: Collection[str] = ()) -> str:
        several = self.repeated or name in self.again or not self.again.isdisjoint(inputs)
        return call.text(name, inputs, left_out, self.touched, several=several)

    def add_call(self, name: str, call: NodeCall | None) -> None:
        """Notes the arguments of a node in this step; None when they are unknown."""
        known = self.calls.get(name)
        merged = (call or NodeCall()) if known is None else known.merged(call or NodeCall())
        if merged is not known:
            self.calls[name], self.changed = merged, True

    def touch(self, names: Iterable[str]) -> None:
        if new := set(names) - self.touched:
            self.touched |= new
            self.changed = True

    def repeat(self, name: str = "") -> None:
        """Notes that a node, or without ``name`` the model, runs once more in a step."""
        if name and name not in self.again:
            self.again.add(name)
            self.changed = True
        elif not name and not self.repeated:
            self.repeated = self.changed = True

    def note_gradients(self, name: str, inputs: Iterable[str], *, trained: bool) -> None:
        """Notes whether a node was computed of gradients in this step. ``trained``: it will get a gradient itself."""
        made = (split_output(each)[0] for each in inputs)
        if not trained and any(each.startswith(GRADIENTS) or each in self.of_gradients for each in made):
            self.of_gradients.add(name)
        else:
            self.of_gradients.discard(name)

    def add_gradient(self, name: str, inputs: Iterable[str]) -> None:
        merged = without(unique([*self.gradients.get(name, ()), *inputs]), name)
        if merged != self.gradients.get(name):
            self.gradients[name] = merged
            self.changed = True

    def feed(self, name: str, sources: Iterable[str], *, anew: bool = True) -> None:
        """A buffer or an input is made of ``sources``. ``anew``: nobody is to judge before the debugger knows that."""
        merged = unique([*self.fed.get(name, ()), *sources])
        if merged != self.fed.get(name):
            self.fed[name] = merged
            self.changed = True
            self.fed_anew |= anew

    def doubt(self, name: str) -> None:
        """Notes that a node ran while its inputs were not followed."""
        if name not in self.doubted:
            self.doubted.add(name)
            self.changed = True

    def inputs_of(self, name: str) -> list[str]:
        known = self.nodes[name].inputs
        return unique([*known, UNKNOWN]) if name in self.doubted else known

    def gone_through(self, made: Sequence[str]) -> list[str]:
        """Returns what a gradient was made of, with the outputs of the nodes that it came back through.

        A derivative is bad where its node's values are: a division of zero by zero has gone wrong once, not twice.
        """
        parts = [(self.nodes.get(node), slot) for node, slot in map(split_output, made)]
        if not any(node is not None and not node.forward for node, _ in parts) and self.inputs.keys().isdisjoint(made):
            return list(made)
        back = (output_of(node.forward, slot) for node, slot in parts if node is not None and node.forward)
        return unique([*made, *back])

    def inputs_of_gradient(self, name: str) -> list[str]:
        known = self.gradients.get(name)
        if known is None or self.gradients_doubted:
            return unique([*(known or ()), UNKNOWN])
        return known

    def sent(self) -> None:
        """Notes that the debugger has the present inputs of all nodes."""
        self.fed_anew = False
        self._sent = {name: self._made_of(name) for name in chain(self.nodes, self.gradients, self.fed)}

    def is_sent(self, name: str) -> bool:
        """Tells whether the debugger has the present inputs of a node, a gradient or a fed tensor."""
        return self._made_of(name) == self._sent.get(name)

    def is_known(self, name: str) -> bool:
        """Tells whether the debugger has the inputs of a node, and the origins of the fed tensors among them."""
        return self.is_sent(name) and all(self.is_sent(each) for each in self._made_of(name) or () if each in self.fed)

    def _made_of(self, name: str) -> list[str] | None:
        if name in self.nodes:
            return self.inputs_of(name)
        if name in self.gradients:
            return self.inputs_of_gradient(name)
        return self.fed.get(name)

    def used(self) -> set[str]:
        made = [*(node.inputs for node in self.nodes.values()), *self.gradients.values()]
        return {each for inputs in made for each in inputs if not is_constant(each)}


def unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _merged(before: list[str], now: list[str]) -> list[str]:
    """The inputs of a node over all steps: each at its place, and different later inputs behind them."""
    if not before:
        return now
    merged = list(before)
    for at, each in enumerate(now):
        known = before[at] if at < len(before) else None
        if each == known:
            continue
        if is_constant(each):
            if known is not None and is_constant(known):
                merged[at] = _either(known, each)
            elif not is_finite(each) and UNKNOWN not in merged:
                merged.append(UNKNOWN)
        elif each not in merged:
            merged.append(each)
    return merged


def _either(before: str, now: str) -> str:
    """A constant with several values; NaN and Inf among them are kept, because only they make a result bad."""
    bad = unique(_NOT_FINITE.findall(f"{constant_text(before)} {constant_text(now)}"))
    always = all(_NOT_FINITE.fullmatch(constant_text(each)) for each in (before, now))
    return constant(", ".join(bad if always else [VARIES, *bad]))


def constant(text: str) -> str:
    """The entry for a value of the program among the inputs of a node."""
    return _CONSTANT + text


def is_constant(each: str) -> bool:
    return each.startswith(_CONSTANT)


def constant_text(each: str) -> str:
    return each.removeprefix(_CONSTANT)


def is_finite(each: str) -> bool:
    """Tells whether a constant holds neither NaN nor Inf."""
    return not _NOT_FINITE.search(constant_text(each))


def without(inputs: Sequence[str], name: str) -> list[str]:
    """The inputs without the outputs of the node itself, whose changes are its own work."""
    return [each for each in inputs if each != name and split_output(each)[0] != name]
