"""A little training in memory, of which a test says every value: data, layer, activation, gradient, update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.sources.memory import MemorySource, Op
from tui_debugger.model import Category, Side
from tui_debugger.session import Session

Array = npt.NDArray[Any]
MATMUL, RELU, LOG = "Default/net/MatMul-op1", "Default/net/ReLU-op2", "Default/net/Log-op3"
LOSS, RELU_GRAD, MATMUL_GRAD = "Gradients/Loss-op4", "Gradients/ReluGrad-op5", "Gradients/MatMul-op6"
UPDATE = "Default/optimizer/Momentum-op7"
OPS = (
    Op("x", "Parameter", category=Category.PARAMETER),
    Op("w", "Parameter", category=Category.WEIGHT),
    Op("accum.w", "Parameter", category=Category.OPTIMIZER_STATE),
    Op("learning_rate", "Parameter", category=Category.PARAMETER),
    Op("momentum", "Parameter", category=Category.PARAMETER),
    Op(MATMUL, "MatMul", (("x", 0), ("w", 0))),
    Op(RELU, "ReLU", ((MATMUL, 0),), category=Category.ACTIVATION),
    Op(LOG, "Log", ((RELU, 0),)),
    Op(LOSS, "LossGrad", ((LOG, 0),), category=Category.GRADIENT),
    Op(RELU_GRAD, "ReluGrad", ((LOSS, 0), (RELU, 0)), category=Category.GRADIENT),
    Op(MATMUL_GRAD, "MatMul", (("x", 0), (RELU_GRAD, 0)), category=Category.GRADIENT),
    Op(UPDATE, "Momentum", (("w", 0), ("accum.w", 0), ("learning_rate", 0), (MATMUL_GRAD, 0), ("momentum", 0))),
)
NAMES = tuple(op.name for op in OPS)


def values(step: int = 0) -> dict[str, Array]:
    """Healthy values of one step."""
    random = np.random.default_rng(step)
    found: dict[str, Array] = {name: random.standard_normal((4, 4)).astype(np.float32) for name in NAMES}
    found[RELU] = np.maximum(found[MATMUL], 0)
    found[LOG] = np.log(found[RELU] + 1)
    found["learning_rate"] = np.float32(0.01)
    found["momentum"] = np.float32(0.9)
    return found


def training(steps: Mapping[int, Mapping[str, Array]], ops: tuple[Op, ...] = OPS) -> Session:
    """A session on these values, by step and name; a name that is missing was not dumped."""
    tensors = {
        step: {(name, Side.OUTPUT, 0): np.asarray(array) for name, array in by_name.items()}
        for step, by_name in steps.items()
    }
    return Session(MemorySource({0: tensors}, ops=ops))
