"""The rule that says where something bad begins, written down once more in the plainest form, tensor by tensor.

It takes no part of the program: it is what the answers of the program are held against.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from tests.causes.generated import Case, Node, Place, Tensor, Told

EXCHANGES: Final = frozenset({"AllReduce", "AllGather", "Receive"})
"""Types of nodes in which other ranks have a part."""

Why = tuple[str, tuple[int, ...], bool]
"""A node that cannot be judged, the input slots that are not known, whether other ranks had a part in it. Of a weight
the slots are those of the node that updates it."""


@dataclass(frozen=True)
class Answer:
    """Where it began.

    Attributes:
        origins: the tensors that are marked.
        designed: those with an Inf by design.
        findings: the watched tensors that are bad, those by design left out.
        unjudged: the nodes of which it cannot be said whether it began there, and why.
    """

    origins: frozenset[Place]
    designed: frozenset[Place]
    findings: frozenset[Place]
    unjudged: frozenset[Why]


class Start(Enum):
    """The answer for one bad tensor."""

    ORIGIN = "origin"
    PASSED = "passed on"
    UNJUDGED = "not judged"
    INTENDED = "intended"


def true_answer(case: Case) -> Answer:
    """The rule: an origin is bad, and every value that its node was made from is known and clean."""
    bad = [
        (node, slot, tensor)
        for node, slot, tensor in case.places()
        if tensor.holds.bad and tensor.told is Told.WATCHED and node.type != "Constant"
    ]
    starts = {(node.name, slot): _start(case, node, tensor) for node, slot, tensor in bad}
    designed = {(node.name, slot) for node, slot, tensor in bad if tensor.intended and tensor.absorbed}
    unjudged = {name for (name, _), start in starts.items() if start is Start.UNJUDGED}
    return Answer(
        origins=frozenset(place for place, start in starts.items() if start is Start.ORIGIN),
        designed=frozenset(designed),
        findings=frozenset(starts.keys() - designed),
        unjudged=frozenset(_why(case, case.nodes[name]) for name in unjudged),
    )


def _start(case: Case, node: Node, tensor: Tensor) -> Start:
    if tensor.intended:
        return Start.INTENDED
    made_from = _made_from(case, node)
    if True in made_from:
        return Start.PASSED
    return Start.UNJUDGED if node.type in EXCHANGES or None in made_from else Start.ORIGIN


def _why(case: Case, node: Node) -> Why:
    slots = [at for at, bad in enumerate(_made_from(case, node)) if bad is None]
    return node.name, tuple(slots), node.type in EXCHANGES


def _made_from(case: Case, node: Node) -> list[bool | None]:
    """Tells of each value that a node (of a weight: its update) was made from whether it was bad, as far as known."""
    if node.written:
        assert node.before is not None
        own = _known(node.before)
        others = [each.before for each in case.nodes.values() if each.before is not None and each is not node]
        return [None if not own and any(map(_known, others)) else own]  # averages are made of other weights
    maker = case.nodes[node.updater] if node.updater else node
    inputs = [_used(case, maker, at) for at in range(len(maker.inputs))]
    if node.updater and not node.name.startswith("accum."):  # the optimizer's states change before the weight
        inputs += [True for each in case.nodes.values() if each.updater == node.updater and _is_bad_state(each)]
    return [*inputs, *(_known(each) for each in maker.outputs if node.updater and each.told is not Told.NEVER)]


def _is_bad_state(node: Node) -> bool:
    return node.name.startswith("accum.") and _known(node.outputs[0]) is True


def _used(case: Case, node: Node, at: int) -> bool | None:
    """Tells whether a value was bad when a node used it; None: nobody knows."""
    name, slot = node.inputs[at]
    producer = case.nodes.get(name)
    if producer is None:
        return None
    now = producer.outputs[slot]
    if not producer.updater or producer.written:
        return _known(now)
    assert producer.before is not None
    before = _known(producer.before)
    if before is None and _known(now) is False:
        return False  # no update of an optimizer takes a NaN away
    return before


def _known(tensor: Tensor) -> bool | None:
    if tensor.told is Told.NEVER:
        return None
    return tensor.holds.bad and not tensor.intended
