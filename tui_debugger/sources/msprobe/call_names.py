"""Names the calls of a step: the node of each call, from its key and from the modules around it.

A node is a call without its counter, named by the module that it was called in, see ``calls``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

RECOMPUTED: Final = "Recomputed/"
"""Scope of calls that ran a second time for the backward pass (activation checkpointing)."""
PARAMETERS_GRAD: Final = "parameters_grad"
"""Direction in the keys of gradients of parameters."""
_MODULES: Final = ("Module.", "Cell.")
_DIRECTIONS: Final = frozenset({"forward", "backward"})
MOST_MODULES: Final = 10_000
"""Limit of nested modules: only a broken file has more."""

OPERATOR_TYPES: Final[Mapping[str, str]] = {
    **{f"__{way}{name}__": name for name in ("add", "sub", "mul", "matmul") for way in ("", "i")},
    **{f"__r{name}__": name for name in ("add", "mul")},
    **dict.fromkeys(("__truediv__", "__div__", "__itruediv__", "__idiv__", "true_divide", "divide"), "div"),
    **dict.fromkeys(("__rtruediv__", "__rdiv__"), "rdiv"),
    **dict.fromkeys(("__rsub__", "rsub"), "rsub"),
    "__pow__": "pow",
    "__ipow__": "pow",
    "__rpow__": "rpow",
    "__neg__": "neg",
    "__getitem__": "index",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "_all_gather_base": "all_gather_into_tensor",
}
"""Names of functions in the rules for operators, where Python or torch has another name. A reversed operator (``1 /
x``) has its operands in the other order, so it is another operator.
"""


@dataclass(slots=True)
class NodeInfo:
    """A node of a step."""

    name: str
    path: str
    type: str
    call: str = ""
    """Key of its first call; empty for parameters."""
    forward: int = -1
    """Number of the node whose backward it is, or of whose parameters it is the gradient; else -1."""
    ranks: tuple[int, ...] = ()
    """The ranks between which it exchanges values, where the dump tells them."""
    recomputed: bool = False
    """Whether it ran a second time for the backward pass."""


class ForwardCall:
    """A forward call: its name, and where it belongs.

    ``prefix`` is the key without direction and counter (``number``). ``again``: it ran a second time for the backward
    pass. ``rank`` is its number among the calls of its kind in the same module call and micro-batch; ``round`` the
    micro-batch from 1 (0: none, -1: not known yet); ``place`` its place in the dump (-1: not there). ``node`` and
    ``backward`` number the nodes of the call and of its backward (-1: none yet).
    """

    __slots__ = (
        *("again", "backward", "key", "module", "node", "number", "parent", "place", "prefix", "rank", "round"),
        "_scope",
    )

    def __init__(self, key: str, prefix: str, number: int) -> None:
        self.key, self.prefix, self.number = key, prefix, number
        self.module = prefix.startswith(_MODULES)
        self.parent: ForwardCall | None = None
        self.again = False
        self.rank, self.round, self.place, self.node, self.backward = 0, -1, -1, -1, -1
        self._scope: str | None = None

    @property
    def path(self) -> str:
        """The path of a module, with dots."""
        return self.prefix.partition(".")[2].rpartition(".")[0]

    @property
    def scope(self) -> str:
        """The scope of the module's calls; not before all ``rank`` are known."""
        if self._scope is None:
            path = self.path.replace(".", "/")
            self._scope = path if not self.rank else f"{path or self.kind}.{self.rank}"
        return self._scope

    @property
    def kind(self) -> str:
        """The class of a module."""
        return self.prefix.rpartition(".")[2]


def operator_type(prefix: str) -> str:
    """The type of a call: ``log`` of ``Torch.log``, ``LayerNorm`` of ``Primitive.norm.LayerNorm``."""
    family, _, function = prefix.partition(".")
    if family == "Primitive":
        function = function.rpartition(".")[2]
    return OPERATOR_TYPES.get(function, function) or prefix


def _split(key: str) -> tuple[str, str, int] | None:
    """(prefix, direction, number) of a key; None for an unknown form."""
    prefix, _, last = key.rpartition(".")
    prefix, _, before = prefix.rpartition(".")
    if last in _DIRECTIONS:
        before, last = last, before
    elif before not in _DIRECTIONS and before != PARAMETERS_GRAD:
        return None
    if not (prefix and last.isascii() and last.isdigit() and len(last) < 10):
        return None
    return prefix, before, int(last)


class CallNames:
    """The forward calls of a step, each with its rank among the others of its kind."""

    def __init__(self, data: Mapping[str, Any], construct: Mapping[str, Any]) -> None:
        self._construct = construct
        self.calls: dict[str, tuple[str, ForwardCall]] = {}
        """(direction, forward call) by key, for keys of a known form. A gradient of parameters has the first call of
        their module.
        """
        self.named: dict[tuple[str, int], ForwardCall] = {}
        """Forward calls by (prefix, number)."""
        for place, (key, entry) in enumerate(data.items()):
            call = self._add(key)
            if call is not None and call.key == key:
                call.place = place
                call.again = type(entry) is dict and bool(entry.get("is_recompute"))
        for key in construct:
            if key not in self.calls:
                self._add(key)
        groups: dict[tuple[bool, int, str], list[ForwardCall]] = {}
        for call in list(self.named.values()):
            parent = self._parent(call)
            call.parent = parent
        for call in self.named.values():
            group = call.again, id(call.parent), call.prefix
            groups.setdefault(group, []).append(call)
        for each in groups.values():
            if len(each) > 1:
                each.sort(key=_number)
                for rank, call in enumerate(each):
                    call.rank = rank
        self._top = [each for each in groups.values() if each[0].parent is None]
        self.rounds = self._micro_batches()
        self._number_rounds()
        self._number_modules()

    def _add(self, key: str) -> ForwardCall | None:
        split = _split(key)
        if split is None:
            return None
        prefix, direction, number = split
        call = self.named.get((prefix, number))
        if call is None:
            forward = f"{prefix}.forward.{number}" if prefix.startswith(_MODULES) else f"{prefix}.{number}.forward"
            call = self.named[prefix, number] = ForwardCall(forward, prefix, number)
        self.calls[key] = direction, call
        return call

    def _parent(self, call: ForwardCall) -> ForwardCall | None:
        """The module call around a forward call; None at the top."""
        around = self._construct.get(call.key)
        backward = False
        if around is None and call.key not in self._construct:
            key = call.key.replace(".forward", ".backward")  # only its backward was recorded
            around, backward = self._construct.get(key), True
        if not isinstance(around, str):
            return None
        direction, found = self.calls.get(around) or self._outside(around)
        if found is None or found is call or not found.module or (direction == "backward") != backward:
            return None
        return found

    def _outside(self, key: str) -> tuple[str, ForwardCall | None]:
        """``calls`` of a key that is in neither file; its other direction may be."""
        split = _split(key)
        return ("", None) if split is None else (split[1], self.named.get((split[0], split[2])))

    def _micro_batches(self) -> int:
        """How often most modules at the top are called in the step."""
        counts = Counter(len(each) for each in self._top if each[0].module and not each[0].again)
        return max(counts, key=lambda count: (counts[count], count)) if counts else 1

    def _number_rounds(self) -> None:
        if self.rounds < 2:
            for call in self.named.values():
                call.round = 0
            return
        anchors = sorted(
            (call.place, rank)
            for each in self._top
            if each[0].module and not each[0].again and len(each) == self.rounds
            for rank, call in enumerate(each)
            if call.place >= 0
        )
        for top in self._top:
            times, rest = divmod(len(top), self.rounds)
            fits = not rest and (top[0].module or _are_among(top, times, anchors))
            for rank, call in enumerate(top):
                call.rank, call.round = (rank % times, rank // times + 1) if fits else (rank, 0)
        for call in self.named.values():
            inside: list[ForwardCall] = []
            at: ForwardCall | None = call
            while at is not None and at.round < 0 and len(inside) < MOST_MODULES:
                inside.append(at)
                at = at.parent
            found = at.round if at is not None and at.round >= 0 else 0
            for each in inside:
                each.round = found

    def _number_modules(self) -> None:
        """Numbers the calls of one module within a micro-batch, whichever module they were made in."""
        groups: dict[tuple[bool, str, int], list[ForwardCall]] = {}
        for call in self.named.values():
            if call.module:
                groups.setdefault((call.again, call.prefix, call.round), []).append(call)
        for each in groups.values():
            each.sort(key=_number)
            for rank, call in enumerate(each):
                call.rank = rank

    def node(self, call: ForwardCall) -> NodeInfo:
        again = RECOMPUTED if call.again else ""
        if call.module:
            scope = call.scope
            name = f"{again}{scope}/{call.kind}" if scope else again + call.kind
            return NodeInfo(name, name, call.kind or "Module", call.key, recomputed=call.again)
        if call.parent is not None:
            scope = f"{again}{call.parent.scope}"
            leaf = f"{call.prefix}.{call.rank}" if call.rank else call.prefix
            name = f"{scope}/{leaf}" if scope else leaf
            return NodeInfo(name, name, operator_type(call.prefix), call.key, recomputed=call.again)
        number = call.rank if self._construct else call.number
        leaf = f"{call.prefix}.{number}" if number or not self._construct else call.prefix
        path = again + leaf.replace(".", "/", 1)
        return NodeInfo(again + leaf, path, operator_type(call.prefix), call.key, recomputed=call.again)


def _number(call: ForwardCall) -> int:
    return call.number


def _are_among(calls: Sequence[ForwardCall], times: int, anchors: Sequence[tuple[int, int]]) -> bool:
    """Whether calls at the top stand beside the modules of their micro-batches.

    A multiple of the number of micro-batches is not enough: gradients are summed up after all micro-batches. ``times``
    is the number of these calls per micro-batch, ``anchors`` are (place, micro-batch) of module calls, ascending.
    """
    places = [place for place, _ in anchors]
    for rank, call in enumerate(calls):
        if call.place < 0:
            continue
        at = bisect_right(places, call.place)
        near = {anchors[each][1] for each in (at - 1, at) if 0 <= each < len(anchors)}
        if rank // times not in near:
            return False
    return True
