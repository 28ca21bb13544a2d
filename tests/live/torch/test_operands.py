"""Level "op": every operand of an operator is an input of its node, and nothing is said to be made of less."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

import tui_debugger.torch as tdbg  # noqa: E402
from tui_debugger.graph.build import build_table  # noqa: E402
from tui_debugger.graph.messages import parse_graph  # noqa: E402
from tui_debugger.graph.table import NodeTable, real_inputs  # noqa: E402

NEG = float("-inf")
UNKNOWN = "?"


Compute = Callable[..., Any]
Graph = Callable[..., dict[str, list[str]]]


class Computing(torch.nn.Module):
    """A layer, and what a test computes of its output ``y``."""

    def __init__(self, compute: Compute) -> None:
        super().__init__()
        self.q = torch.nn.Linear(4, 4)
        self.register_buffer("rows", torch.arange(4)[:, None])
        self.register_buffer("table", torch.ones(4, 4))
        self.compute = compute
        self.step = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.compute(self.q(x), self.step, self)
        self.step += 1
        return made


@pytest.fixture
def graph_of(tmp_path: Path) -> Graph:
    """The inputs of each node after some steps of what a test computes: names, values of constants, or unknown."""

    def graph(compute: Callable[..., torch.Tensor], steps: int = 1) -> dict[str, list[str]]:
        model = Computing(compute)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        with tdbg.attach(model, optimizer, "", level="op", flight=tdbg.Flight(tmp_path)) as handle:
            for _ in range(steps):
                optimizer.zero_grad()
                model(torch.ones(4, 4)).sum().backward()
                optimizer.step()
            assert not handle.unrecorded
            data = handle._training.graph()  # type: ignore[attr-defined]
        table = build_table([parse_graph(data)])
        return {table.names[row]: inputs(table, row) for row in range(len(table)) if row not in table.constants}

    return graph


def inputs(table: NodeTable, row: int) -> list[str]:
    found = [each for each, _ in real_inputs(table, row)]
    return [UNKNOWN if each < 0 else table.constants.get(each, table.names[each]) for each in found]


Y = "q/Addmm"
KEEP = torch.ones(4, 4).tril().bool()
OUTSIDE = torch.ones(4, 4)


@pytest.mark.parametrize(
    ("compute", "node", "expected"),
    [
        (lambda y: torch.where(KEEP, y, NEG).exp(), "Where", ["'bool tensor'", Y, "ScalarTensor"]),
        (lambda y: torch.where(KEEP, y, NEG).exp(), "ScalarTensor", ["-inf"]),
        (lambda y: y.masked_fill(KEEP, NEG).exp(), "MaskedFill", [Y, "'bool tensor'", "-inf"]),
        (lambda y: torch.full((4, 4), NEG).exp() + y, "Full", ["(4, 4)", "-inf"]),
        (lambda y: torch.full((4, 4), NEG).triu(1).exp() + y, "Triu", ["Full", "1"]),
        (lambda y: torch.full_like(y, NEG).exp() + y, "FullLike", [Y, "-inf"]),
        (lambda y: torch.empty(4, 4).fill_(NEG).exp() + y, "Fill", ["'overwritten'", "-inf"]),
        (lambda y: y.index_fill(0, KEEP[0].long(), NEG).exp(), "IndexFill", [Y, "0", "ToCopy", "-inf"]),
        (lambda y: y * float("nan"), "Mul", [Y, "nan"]),
        (lambda y: y * y, "Mul", [Y, Y]),
        (lambda y: torch.add(y, other=OUTSIDE, alpha=2.5), "Add", [Y, UNKNOWN, "2.5"]),
        (lambda y: torch.cat([y, OUTSIDE, y]), "Cat", [Y, UNKNOWN, Y]),
        (lambda y: y * torch.tensor(0.5), "Mul", [Y, "LiftFresh"]),
        (lambda y: y + torch.empty(4, 4), "Add", [Y, UNKNOWN]),
        (lambda y: y.abs().mul_(2.0), "Mul", ["Abs", "2.0"]),
        (lambda y: y + torch.zeros(4, 4), "Add", [Y, "Zeros"]),
    ],
)
def test_operands_stand_at_their_places_in_the_schema(
    graph_of: Graph,
    compute: Callable[[torch.Tensor], torch.Tensor],
    node: str,
    expected: Sequence[str],
) -> None:
    assert graph_of(lambda y, *_: compute(y))[node] == expected


def test_buffers_stand_by_name_and_those_of_whole_numbers_as_constants(
    graph_of: Graph,
) -> None:
    graph = graph_of(lambda y, _, model: y.scatter(1, model.rows, model.table))
    assert graph["Scatter"] == [Y, "1", "'int64 tensor'", "table"]


def test_a_tensor_of_which_a_part_was_never_filled_is_not_known(graph_of: Graph) -> None:
    def partly(y: torch.Tensor, rows: int) -> torch.Tensor:
        memory = torch.empty(4, 4)
        ctypes.memset(memory.data_ptr(), 0, memory.nbytes)
        memory[:rows] = y[:rows]
        return memory + y

    assert UNKNOWN in graph_of(lambda y, *_: partly(y, 3))["Add"]
    assert UNKNOWN not in graph_of(lambda y, *_: partly(y, 4))["Add"]


def test_a_number_that_changes_stays_a_constant_that_says_what_was_not_finite(
    graph_of: Graph,
) -> None:
    def scaled(*scales: float) -> list[str]:
        return graph_of(lambda y, step, _: y * scales[step], len(scales))["Mul"]

    assert scaled(0.5, 0.5) == [Y, "0.5"]
    assert scaled(0.5, 0.25, 0.125) == [Y, "'finite numbers'"]
    assert scaled(0.5, float("nan")) == [Y, "'finite numbers, nan'"]
    assert scaled(0.5, 0.25, NEG) == [Y, "'finite numbers, -inf'"]
    assert scaled(NEG, NEG) == [Y, "-inf"]


def test_another_operand_in_a_later_step_is_an_input_too(graph_of: Graph) -> None:
    def added(y: torch.Tensor, step: int, _: object) -> torch.Tensor:
        made = y.abs()
        return y + (OUTSIDE if step == 1 else made)

    assert graph_of(added, 2)["Add"] == [Y, "Abs", UNKNOWN]


@pytest.mark.parametrize(
    ("compute", "node"),
    [
        (lambda y: y / (y.abs() + 1), "Div"),
        (lambda y: (y.abs() + 1).log(), "Log"),
        (lambda y: (y.abs() + 1).sqrt(), "Sqrt"),
        (lambda y: (y.abs() + 1).pow(-0.5), "Pow"),
        (lambda y: (y + 1).norm(), "LinalgVectorNorm"),
    ],
)
def test_the_derivative_of_a_function_that_has_poles_is_made_of_its_value_too(
    graph_of: Graph, compute: Callable[[torch.Tensor], torch.Tensor], node: str
) -> None:
    graph = graph_of(lambda y, *_: compute(y))
    assert any(node in found for name, found in graph.items() if name.startswith("Gradients/"))


def test_the_derivative_of_a_sum_is_not(graph_of: Graph) -> None:
    graph = graph_of(lambda y, *_: y.abs() + y)
    assert not any("Add" in found for name, found in graph.items() if name.startswith("Gradients/"))


def test_what_is_worked_out_for_one_model_is_no_operator_of_another(tmp_path: Path) -> None:
    def operators_of(attached: int) -> list[set[str]]:
        models = [torch.nn.Linear(4, 1) for _ in range(2)]
        optimizers = [torch.optim.SGD(each.parameters(), 0.01) for each in models]
        handles = [
            tdbg.attach(*pair, "", level="op", flight=tdbg.Flight(tmp_path / str(at)))
            for at, pair in enumerate(zip(models[:attached], optimizers, strict=False))
        ]
        for _ in range(3):
            for model, optimizer in zip(models, optimizers, strict=True):
                optimizer.zero_grad()
                model(torch.ones(4, 4)).square().mean().backward()
                optimizer.step()
        tables = [build_table([parse_graph(each._training.graph())]) for each in handles]  # type: ignore[attr-defined]
        for each in handles:
            each.detach()
        return [{table.types[kind] for kind in table.type_id.tolist() if kind >= 0} for table in tables]

    (alone,) = operators_of(1)
    both = operators_of(2)
    assert both[0] == alone
    assert both[1] == alone


@pytest.mark.parametrize("first", [0, 1])
def test_nothing_looks_at_operators_when_all_models_are_detached_in_any_order(first: int, tmp_path: Path) -> None:
    models = [torch.nn.Linear(4, 1) for _ in range(2)]
    handles = [
        tdbg.attach(
            each, torch.optim.SGD(each.parameters(), 0.01), "", level="op", flight=tdbg.Flight(tmp_path / str(at))
        )
        for at, each in enumerate(models)
    ]
    for each in models:
        each(torch.ones(4, 4)).square().mean().backward()
    for each in (handles[first], handles[1 - first]):
        each.detach()
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
