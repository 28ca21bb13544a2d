"""What a node is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.graph.graphs import DUMPS, graph, op, real_table
from tui_debugger.graph.build import FileNode, append_nodes, build_table
from tui_debugger.graph.categories import (
    UPDATES,
    is_activation,
    is_gradient,
    is_optimizer_state,
    parameter_by_name,
    update_of,
)
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import Category

Dumps = Callable[[str], Path]


def of_category(table: NodeTable, category: Category) -> list[str]:
    return [name for name, each in zip(table.names, table.category.tolist(), strict=True) if each == category]


def category(table: NodeTable, name: str) -> Category:
    return table.category_of(table.find(name))


# The real dumps


@pytest.mark.parametrize(("net", "weights"), [("mlp", 10), ("nan", 26)])
@pytest.mark.parametrize("version", ["2.0", "2.10"])
def test_weights_of_the_real_dumps(dumps: Dumps, version: str, net: str, weights: int) -> None:
    table = real_table(dumps, f"mindspore-{version}-{net}")
    found = of_category(table, Category.WEIGHT)
    assert len(found) == weights
    assert all(name.endswith((".weight", ".bias")) for name in found)


@pytest.mark.parametrize("dump", DUMPS)
def test_optimizer_state_is_never_a_weight(dumps: Dumps, dump: str) -> None:
    table = real_table(dumps, dump)
    prefixes = ("accum.", "stat.", "moment1.", "moment2.", "moments.", "beta1_power", "beta2_power", "global_step")
    for node, name in enumerate(table.names):
        if table.op_type(node) == "Parameter":
            assert (table.category_of(node) == Category.OPTIMIZER_STATE) == name.startswith(prefixes), name


@pytest.mark.parametrize("dump", DUMPS)
def test_inputs_and_learning_rates_are_other_parameters(dumps: Dumps, dump: str) -> None:
    others = of_category(real_table(dumps, dump), Category.PARAMETER)
    assert {"inputs0", "inputs1"} < set(others)
    assert {name for name in others if name.startswith("learning_rate")}


@pytest.mark.parametrize("dump", DUMPS)
def test_activations_include_the_fused_ones(dumps: Dumps, dump: str) -> None:
    """Both nets have four: ReLU, Tanh, ReLU, Sigmoid in the one, two Softmax and two ReLU in the other."""
    found = of_category(real_table(dumps, dump), Category.ACTIVATION)
    scopes = ["act1", "act2", "act3", "act4"] if dump.endswith("mlp") else ["softmax", "activation"] * 2
    assert len(found) == 4
    assert sum(any(f"/{scope}-" in name for scope in scopes) for name in found) == 4


@pytest.mark.parametrize("dump", DUMPS)
def test_gradients_are_the_backward_operators(dumps: Dumps, dump: str) -> None:
    table = real_table(dumps, dump)
    found = of_category(table, Category.GRADIENT)
    assert found == [name for name in table.names if name.startswith("Gradients/")]
    assert len(found) > 20


@pytest.mark.parametrize("dump", DUMPS)
def test_every_node_of_a_constant_is_a_constant(dumps: Dumps, dump: str) -> None:
    table = real_table(dumps, dump)
    assert set(of_category(table, Category.CONSTANT)) == {name for name in table.names if name.startswith("cst")}


# Optimizers


@pytest.mark.parametrize("op_type", sorted(UPDATES))
def test_update_operators_tell_weights_from_state(op_type: str) -> None:
    update = UPDATES[op_type]
    slots = max(update.weight, update.gradient, *update.states, update.weight)
    inputs = [f"p{slot}" for slot in range(slots + 1)]
    inputs[update.gradient] = "9"
    nodes = [op(9, "Gradients/a/MatMul-op9"), op(1, f"Default/optimizer/{op_type}-op1", inputs)]
    table = build_table([graph(nodes, [name for name in inputs if name != "9"])])
    assert of_category(table, Category.WEIGHT) == [f"p{update.weight}"]
    assert of_category(table, Category.OPTIMIZER_STATE) == [f"p{slot}" for slot in sorted(update.states)]


@pytest.mark.parametrize(
    ("op_type", "same_as"),
    [
        ("ApplyMomentum", "momentum"),
        ("Momentum", "momentum"),
        ("ApplyAdam", "adam"),
        ("Adam", "adam"),
        ("ApplyRMSProp", "rmsprop"),
        ("ApplyFtrl", "ftrl"),
        ("ApplyAdagradD", "adagrad"),
        ("FusedSparseAdam", "fusedsparseadam"),
        ("SparseApplyFtrl", "sparseapplyftrl"),
    ],
)
def test_update_operators_are_known_by_all_their_spellings(op_type: str, same_as: str) -> None:
    assert update_of(op_type) is UPDATES[same_as]


@pytest.mark.parametrize("op_type", ["Add", "Assign", "AssignAdd", "MatMul", "", "apply", "D"])
def test_other_operators_update_nothing(op_type: str) -> None:
    assert update_of(op_type) is None


def test_an_embedding_table_is_a_weight_because_the_optimizer_updates_it() -> None:
    nodes = [
        op(1, "Load-op1", ["embedding_table"]),
        op(2, "Default/Gather-op2", ["1"]),
        op(3, "Default/Momentum-op3", ["embedding_table", "moments.embedding_table", "lr", "2", "momentum"]),
    ]
    table = build_table(
        [graph(nodes, ["embedding_table", "moments.embedding_table", "lr", "momentum", "frozen.weight"])]
    )
    assert of_category(table, Category.WEIGHT) == ["embedding_table", "frozen.weight"]
    assert of_category(table, Category.OPTIMIZER_STATE) == ["moments.embedding_table"]
    assert of_category(table, Category.PARAMETER) == ["lr", "momentum"]


def test_an_updated_parameter_behind_a_depend_is_found() -> None:
    nodes = [op(1, "Depend-op1", ["table", "2"]), op(2, "A-op2"), op(3, "SGD-op3", ["1", "2", "lr", "acc", "m", "st"])]
    table = build_table([graph(nodes, ["table", "lr", "acc", "m", "st"])])
    assert category(table, "table") == Category.WEIGHT
    assert category(table, "acc") == category(table, "st") == Category.OPTIMIZER_STATE


def test_one_operator_may_update_many_parameters() -> None:
    groups = [["wd", "sc", f"w{i}", f"m{i}", "lr", "1", "mom"] for i in range(3)]
    flat = [name for group in groups for name in group]
    names = [name for name in dict.fromkeys(flat) if name != "1"]
    table = build_table([graph([op(1, "A-op1"), op(2, "CombineWeightDecayScaleMomentum-op2", flat)], names)])
    assert of_category(table, Category.WEIGHT) == ["w0", "w1", "w2"]
    assert of_category(table, Category.OPTIMIZER_STATE) == ["m0", "m1", "m2"]


def test_a_parameter_that_one_graph_trains_is_a_weight_in_the_other_too() -> None:
    train = graph(
        [op(1, "A-op1"), op(2, "SGD-op2", ["table", "1", "lr", "acc", "m", "st"])], ["table", "lr", "acc", "m", "st"]
    )
    evaluate = graph([op(1, "Gather-op1", ["table"])], ["table"], name="kernel_graph_1", root="1")
    table = build_table([train, evaluate])
    assert [int(c) for n, c in zip(table.names, table.category, strict=True) if n == "table"] == [Category.WEIGHT] * 2


# Names alone


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fc1.weight", Category.WEIGHT),
        ("fc1_weight", Category.WEIGHT),
        ("backbone.bn.gamma", Category.NORM),
        ("backbone_bn_beta", Category.NORM),
        ("embedding_table", Category.WEIGHT),
        ("word.embedding_table", Category.WEIGHT),
        ("weight", Category.WEIGHT),
        ("moment1.fc1.weight", Category.OPTIMIZER_STATE),
        ("moment2_fc1_weight", Category.OPTIMIZER_STATE),
        ("moments.fc1.bias", Category.OPTIMIZER_STATE),
        ("accum_fc1_bias", Category.OPTIMIZER_STATE),
        ("stat.fc1.bias", Category.OPTIMIZER_STATE),
        ("beta1_power", Category.OPTIMIZER_STATE),
        ("global_step", Category.OPTIMIZER_STATE),
        ("decoder.layers.0.mlp.experts.linear_fc1.weight3", Category.WEIGHT),
        ("model.layers.0.mlp.experts.gate_up_proj", Category.WEIGHT),
        ("model.layers.0.mlp.experts.down_proj_bias", Category.WEIGHT),
        ("model.layers.0.self_attn.sinks", Category.WEIGHT),
        ("model.layers.0.mlp.down_proj", Category.PARAMETER),
        ("inputs0", Category.PARAMETER),
        ("learning_rate", Category.PARAMETER),
        ("bn.moving_mean", Category.PARAMETER),
        ("lightweight", Category.PARAMETER),
        ("alphabeta", Category.PARAMETER),
    ],
)
def test_parameters_by_name(name: str, expected: Category) -> None:
    assert parameter_by_name(name) == expected


def test_a_prefix_that_a_layer_may_bear_needs_the_parameter_it_belongs_to() -> None:
    assert parameter_by_name("linear.weight") == Category.WEIGHT
    assert parameter_by_name("linear.fc1.weight", {"fc1.weight"}) == Category.OPTIMIZER_STATE
    assert not is_optimizer_state("linear.fc1.weight", {"fc2.weight"})


def test_file_nodes_without_a_graph_are_told_by_name() -> None:
    names = ["fc1_weight", "moment1_fc1_weight", "bn_gamma", "inputs0"]
    nodes = [FileNode("g0", 0, name, name, "Parameter") for name in names]
    nodes += [
        FileNode("g0", 0, "Gradients/a/MatMul-op1", "Gradients/a/MatMul-op1", "MatMul"),
        FileNode("g0", 0, "ReLU-op2", "ReLU-op2", "ReLU"),
        FileNode("g0", 0, "data-1", "Constant/data-1", "Constant"),
    ]
    table = append_nodes(build_table([]), nodes)[0]
    assert [Category(each).name for each in table.category] == [
        "WEIGHT",
        "OPTIMIZER_STATE",
        "NORM",
        "PARAMETER",
        "GRADIENT",
        "ACTIVATION",
        "CONSTANT",
    ]


# Operators


@pytest.mark.parametrize(
    "name",
    [
        "Gradients/Default/a/MatMul-op1",
        "gradients/x",
        "Gradients",
        "Gradients--Default--a--Mul-op1",
        "Gradients_Default_a",
    ],
)
def test_backward_names(name: str) -> None:
    assert is_gradient(name)


@pytest.mark.parametrize("name", ["Default/Gradients/x", "Default/a", "gradients2/x", "GradientsNet/x"])
def test_names_that_are_not_backward(name: str) -> None:
    assert not is_gradient(name)


@pytest.mark.parametrize(
    "op_type",
    [
        *("ELU", "FastGeLU", "GeLU", "HSigmoid", "HSwish", "LeakyReLU", "LogSigmoid", "LogSoftmax"),
        *("PReLU", "ReLU", "ReLU6", "ReLUV2", "Sigmoid", "Softmax", "Tanh"),
        *("SiLU", "Mish", "SeLU", "Softplus", "MatMulBiasAddReluFusion", "Conv2DBiasAddReLU", "FusedMatMulGelu"),
        *("MatMulBiasAddTanhFusion", "Fused_MatMul_BiasAdd_ReLU_split"),
    ],
)
def test_activation_types(op_type: str) -> None:
    assert is_activation(op_type)


@pytest.mark.parametrize(
    "op_type",
    [
        *("ReluGrad", "SoftmaxGradFusion", "MatMulReluGradFusion", "SparseSoftmaxCrossEntropyWithLogits", "Atanh"),
        *("SigmoidCrossEntropyWithLogits", "MatMulBiasAddFusion", "MatMul", "", "BiasAdd", "Parameter", "TanhGrad"),
    ],
)
def test_other_types(op_type: str) -> None:
    assert not is_activation(op_type)


def test_an_activation_in_the_backward_pass_is_a_gradient() -> None:
    table = build_table([graph([op(1, "Gradients/Default/act-ReLU/ReLU-op1")])])
    assert category(table, "Gradients/Default/act-ReLU/ReLU-op1") == Category.GRADIENT


def test_an_activation_cell_of_primitives_is_one_by_its_last_operator() -> None:
    nodes = [
        op(1, "Default/net/act-GELU/Erf-op1"),
        op(2, "Default/net/act-GELU/Mul-op2", ["1"]),
        op(3, "Default/net/act-GELU/Load-op3", ["2"]),
        op(4, "Default/net/fc-Dense/MatMul-op4", ["2"]),
        op(5, "Default/net/act-Softmax/Cast-op5"),
        op(6, "Default/net/act-Softmax/Softmax-op6", ["5"]),
    ]
    table = build_table([graph(nodes)])
    assert of_category(table, Category.ACTIVATION) == [nodes[1].full_name, nodes[5].full_name]
