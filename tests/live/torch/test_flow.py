"""What nodes are made of is exactly what they were built of, whatever the net."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from torch import nn  # noqa: E402 - torch first

from tests.thorough import examples  # noqa: E402 - torch first
from tui_debugger.torch.internals import leaves, named_leaves  # noqa: E402 - imports torch
from tui_debugger.torch.module_hooks import ModuleHooks  # noqa: E402 - likewise
from tui_debugger.torch.recording import StepRecording  # noqa: E402 - likewise
from tui_debugger.torch.structure import UNKNOWN  # noqa: E402 - likewise
from tui_debugger.torch.training import TrainingState  # noqa: E402 - likewise

WIDTH = 4
MOVES = {
    "as it is": lambda x: x,
    "detached": lambda x: x.detach(),
    "views": lambda x: x.t().t().reshape(2, 2, WIDTH).flatten(0, 1),
    "rows": lambda x: x[torch.tensor([3, 2, 1, 0])],
    "halves": lambda x: torch.cat(x.chunk(2, -1)[::-1], -1),
    "written": lambda x: torch.zeros_like(x).copy_(x),
    "numbers": lambda x: torch.where(x > 0, x, torch.zeros(())),
}


@dataclass(frozen=True)
class Layer:
    """What a layer is given: the outputs of earlier ones (0 is the input of the net), moved, added up."""

    parents: tuple[int, ...]
    move: str
    grad: bool


@st.composite
def nets(draw: st.DrawFn) -> list[Layer]:
    count = draw(st.integers(1, 6))
    return [
        Layer(
            tuple(sorted(draw(st.sets(st.integers(0, number), min_size=1, max_size=3)))),
            draw(st.sampled_from(sorted(MOVES))),
            draw(st.booleans()),
        )
        for number in range(count)
    ]


class Net(torch.nn.Module):
    """Layers in a row, each of which is given what it says."""

    def __init__(self, layers: list[Layer]) -> None:
        super().__init__()
        self.plan = layers
        self.layers = torch.nn.ModuleList([torch.nn.Linear(WIDTH, WIDTH) for _ in layers])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = [x]
        for layer, module in zip(self.plan, self.layers, strict=True):
            with torch.set_grad_enabled(layer.grad):
                parts = [MOVES[layer.move](made[each]) for each in layer.parents]
                total = parts[0]
                for part in parts[1:]:
                    total = total + part
                made.append(module(total))
        return made[-1]


@examples(60)
@given(nets())
def test_edges_are_those_of_the_net(layers: list[Layer]) -> None:
    model = Net(layers)
    recording = StepRecording(1 << 20, values=True)
    training = TrainingState(model, [], recording)
    training.look_again()
    hooks = ModuleHooks(recording, training.tree, lambda act: act())
    hooks.install(training.tree)
    try:
        model(torch.ones(4, WIDTH))
    finally:
        hooks.remove()
    names = ["inputs.x", *(f"layers/{number}/Linear" for number in range(len(layers)))]
    nodes = recording.structure.nodes
    for number, layer in enumerate(layers):
        own = {f"layers.{number}.weight", f"layers.{number}.bias"}
        feeders = set(nodes[names[number + 1]].inputs) - own
        if len(layer.parents) > 1:  # a sum is a node of its own
            (total,) = feeders
            assert nodes[total].kind == ("Add" if len(layer.parents) == 2 else "AddFunction")
            feeders = set(nodes[total].inputs)
        assert feeders == {names[each] for each in layer.parents}
    assert nodes["Net"].inputs == [names[-1]]
    assert not any(UNKNOWN in node.inputs for node in nodes.values())


nested = st.recursive(
    st.sampled_from([1, None, "text", 2.5, "a tensor"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(nested)
def test_tensors_are_the_same_with_names_and_without(shape: object) -> None:
    def filled(each: object) -> object:
        if each == "a tensor":
            return torch.zeros(1)
        if isinstance(each, dict):
            return {key: filled(value) for key, value in each.items()}
        return type(each)(map(filled, each)) if isinstance(each, list | tuple) else each

    value = filled(shape)
    named = [tensor for _, tensor in named_leaves("x", value)]
    assert [id(each) for each in leaves(value)] == [id(each) for each in named]


def test_the_tensors_of_objects_are_found() -> None:
    a, b = torch.zeros(2), torch.ones(2)
    assert [id(each) for each in leaves(SimpleNamespace(a=a, text="a", more=[b]))] == [id(a)]
    normal = torch.distributions.Normal(a, b)
    assert [id(each) for each in leaves((normal, a))] == [id(normal.loc), id(normal.scale), id(a)]
    assert len(leaves(torch.distributions.Independent(normal, 1))) == 2
    assert [name for name, _ in named_leaves("out", SimpleNamespace(logits=a))] == ["out.logits"]
    assert leaves(nn.Linear(2, 2)) == leaves(nn.Linear) == []


def test_what_a_module_returns_in_an_object_is_judged() -> None:
    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = nn.Linear(WIDTH, 2)

        def forward(self, x: torch.Tensor) -> torch.distributions.Distribution:
            return torch.distributions.Normal(self.mean(x), torch.ones(2), validate_args=False)

    model = nn.ModuleDict({"policy": Policy()})
    recording = StepRecording(1 << 20, values=True)
    tree = TrainingState(model, [], recording).tree
    hooks = ModuleHooks(recording, tree, lambda act: act())
    hooks.install(tree)
    try:
        model["policy"](torch.ones(3, WIDTH))
        assert {(each.name, each.slot) for each in recording.step} >= {("policy/Policy", 0), ("policy/Policy", 1)}
    finally:
        hooks.remove()
