"""Random nets of masks, poles, overflows and what absorbs them: the answer is that of who knows every element."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.check.masked_nets import INF, SPELLINGS, Array, Net, softmax

SIZE: Final = 3
BoolArray = npt.NDArray[np.bool_]
SELECTS: Final = frozenset({"Where", "Gather"})
ABSORBS: Final = SELECTS | {"Softmax", "Amax"}
TOLD, POLE, BAD = "told", "pole", "bad"


@dataclass
class Tracked(Net):
    """A net that knows of every infinite element who put it there.

    Attributes:
        sources: by node and by the node that put them there which elements are infinite.
        kinds: by node that put some there, whether it was told to.
        types, readers: by node its type, and the nodes that read it.
    """

    sources: dict[str, dict[str, BoolArray]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    readers: dict[str, list[str]] = field(default_factory=dict)

    def made(self, kind: str, inputs: list[str], value: Array, sources: dict[str, BoolArray], own: str = "") -> str:
        """An operator. ``own``: why those elements are infinite that none of the sources accounts for."""
        name = self.op(kind, inputs, value)
        bad = ~np.isfinite(value)
        sources = {source: part & bad for source, part in sources.items() if (part & bad).any()}
        rest = bad & ~np.logical_or.reduce([np.zeros_like(bad), *sources.values()])
        if rest.any():
            sources[name], self.kinds[name] = rest, own or BAD
        self.sources[name], self.types[name] = sources, kind
        for each in dict.fromkeys(inputs):
            self.readers.setdefault(each, []).append(name)
        return name

    def is_bad(self, name: str) -> bool:
        return not np.isfinite(self.values[name]).all()

    def is_mixed(self) -> bool:
        """Tells whether numbers do not say which Inf went on: a pole beside another one, or a fault below one."""
        for op in self.ops:
            own = self.sources.get(op.name, {})
            kinds = {self.kinds[source] for source in own}
            below = {source for name, _ in op.inputs for source in self.sources.get(name, {}) if own}
            lost = {self.kinds[source] for source in below if source not in own}
            if (POLE in kinds and len(kinds) > 1) or lost & {POLE, BAD}:
                return True
        return False

    def by_design(self, name: str) -> bool:
        """Tells whether all infinite elements of a node were meant, and nothing that reads them passes them on."""
        if np.isnan(self.values[name]).any():
            return False
        readers = [each for each in self.readers.get(name, []) if self.types[each] != "View" or each in self.readers]
        if not readers and self.types[name] == "View":
            (source,) = next(op.inputs for op in self.ops if op.name == name)
            return self.by_design(source[0])
        if not readers:
            return self.types[name] != "Mean" and self.is_number(name)
        for source in self.sources[name]:
            if self.kinds[source] == BAD or (self.kinds[source] == POLE and not self.selected_away(source)):
                return False
        return all(
            self.by_design(reader) if self.is_bad(reader) else self.types[reader] in ABSORBS for reader in readers
        )

    def is_number(self, name: str) -> bool:
        """Tells whether a tensor is made of what ``Full`` wrote alone."""
        inputs = next(op.inputs for op in self.ops if op.name == name)
        return self.types.get(name) == "Full" or (bool(inputs) and all(self.is_number(each) for each, _ in inputs))

    def selected_away(self, name: str) -> bool:
        """Tells whether only selections end what a pole put out."""
        readers = [each for each in self.readers.get(name, []) if self.types[each] != "View" or each in self.readers]
        return bool(readers) and all(
            self.types[reader] != "Mean" and self.selected_away(reader)
            if self.is_bad(reader)
            else self.types[reader] in SELECTS
            for reader in readers
        )


def some(data: st.DataObject) -> BoolArray:
    """Some elements."""
    bits = data.draw(st.lists(st.booleans(), min_size=SIZE * SIZE, max_size=SIZE * SIZE))
    chosen = np.array(bits, np.bool_).reshape(SIZE, SIZE)
    chosen[:, 0] &= data.draw(st.integers(0, 5)) == 0  # mostly something is left in every row
    return chosen


def grow(net: Tracked, data: st.DataObject) -> None:
    """One more operator on earlier ones."""
    names = [name for name in net.values if name != "x"]
    on = data.draw(st.sampled_from(["x", *names]))
    value, parts = net.values[on], net.sources.get(on, {})
    kind = data.draw(
        st.sampled_from(
            ["MaskedFill", "Where", "Full", "Log", "Exp", "View", "Roll", "Add", "Mul", "Softmax", "Amax", "Gather"]
        )
    )
    chosen = some(data)
    if kind == "MaskedFill":
        left = {source: part & ~chosen for source, part in parts.items()}
        net.made(kind, [on, on], np.where(chosen, -INF, value), left, TOLD)
    elif kind == "Where":
        other = data.draw(st.sampled_from(["x", *names]))
        kept = {source: part & chosen for source, part in parts.items()}
        for source, part in net.sources.get(other, {}).items():
            kept[source] = kept.get(source, np.zeros_like(chosen)) | (part & ~chosen)
        net.made(kind, [on, on, other], np.where(chosen, value, net.values[other]), kept)
    elif kind == "Full":
        net.made(kind, [], np.full((SIZE, SIZE), -INF), {}, TOLD)
    elif kind in {"Log", "Exp"}:
        assume(not parts)
        net.made(
            kind,
            ["x"],
            np.where(chosen, -INF if kind == "Log" else INF, np.float32(1)),
            {},
            {"Log": POLE}.get(kind, BAD),
        )
    elif kind == "Roll":
        rolled = {source: np.roll(part, 1) for source, part in parts.items()}
        net.made(kind, [on], np.roll(value, 1), rolled)
    elif kind == "Gather":
        columns = data.draw(st.lists(st.integers(0, SIZE - 1), min_size=SIZE, max_size=SIZE))
        net.made(kind, [on], value[:, columns], {source: part[:, columns] for source, part in parts.items()})
    elif kind == "Softmax":
        net.made(kind, [on], softmax(value), {})
    elif kind == "Amax":
        peak = np.broadcast_to(value.max(-1, keepdims=True), value.shape).copy()
        # Of a row that is infinite as a whole, the first element stands for all of them.
        same = {source: np.repeat(part.any(-1, keepdims=True), SIZE, -1) for source, part in parts.items()}
        net.made(kind, [on], peak, same)
    elif kind == "Add":
        net.made(kind, [on, "x"], value + net.values["x"], parts)
    else:
        net.made(kind, [on], value.reshape(value.shape) if kind == "View" else value * np.float32(2), parts)


def absorb(net: Tracked, data: st.DataObject) -> None:
    """Mostly gives whatever is infinite and unread a reader that may absorb it."""
    for name in [name for name in net.values if net.is_bad(name) and name not in net.readers]:
        kind = data.draw(st.sampled_from(["Softmax", "Amax", "Gather", "Where", "Where", "nobody"]))
        value, parts = net.values[name], net.sources[name]
        if value.shape != (SIZE, SIZE) or kind == "nobody":
            continue
        if kind == "Where":
            net.made(kind, [name, name, "x"], np.where(np.isfinite(value), value, net.values["x"]), {})
        elif kind == "Gather":
            columns = [0] * SIZE
            net.made(kind, [name], value[:, columns], {source: part[:, columns] for source, part in parts.items()})
        elif kind == "Softmax":
            net.made(kind, [name], softmax(value), {})
        else:
            peak = np.broadcast_to(value.max(-1, keepdims=True), value.shape).copy()
            net.made(kind, [name], peak, {source: np.ones_like(part) for source, part in parts.items()})


def net_at_random(data: st.DataObject) -> Tracked:
    """A net in which no pole lies beside another Inf."""
    net = Tracked()
    net.fed("x", np.arange(1, 1 + SIZE * SIZE, dtype=np.float32).reshape(SIZE, SIZE))
    for _ in range(data.draw(st.integers(1, 7))):
        grow(net, data)
    if data.draw(st.integers(0, 3)) == 0:
        on = data.draw(st.sampled_from([name for name in net.values if name != "x"]))
        with np.errstate(invalid="ignore"):
            net.made("Mean", [on], np.asarray(net.values[on].mean()), {})
    absorb(net, data)
    assume(not net.is_mixed())
    return net


@given(data=st.data())
def test_the_answer_is_that_of_who_knows_every_element(data: st.DataObject) -> None:
    net = net_at_random(data)
    expected = {name for name in net.bad() if not net.by_design(name)}
    plain = Net(net.ops, net.values).in_spelling(data.draw(st.sampled_from(SPELLINGS)))
    assert plain.as_training() == expected
    findings, origins = plain.as_dump()
    assert findings == expected
    assert origins <= expected
