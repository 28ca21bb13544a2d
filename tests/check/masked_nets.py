"""Small nets with masks, computed by numpy: the same net as a dump and as what a training tells of it.

A net is written with the names that PyTorch gives its operators; ``spelled`` gives it the names of another recorder.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tests.session.opened import watch
from tests.sources.memory import MemorySource, Op, table_of
from tui_debugger.causes.by_design import Designs
from tui_debugger.causes.by_design_readers import ElementCounts
from tui_debugger.causes.by_design_steps import elements_of_stats
from tui_debugger.model import AtLeast, Category, Side, TensorStats, Verdict
from tui_debugger.session import Session

Array = npt.NDArray[Any]
INF: Final = np.float32(np.inf)
LOWEST: Final = np.finfo(np.float16).min

MINDSPORE: Final = {
    "MaskedFill": "MaskedFill",
    "Where": "Select",
    "Full": "FillV2",
    "Softmax": "Softmax",
    "LogSoftmax": "LogSoftmax",
    "Bmm": "BatchMatMul",
    "Div": "RealDiv",
    "ToCopy": "Cast",
    "View": "Reshape",
    "Amax": "ReduceMax",
    "Mean": "ReduceMean",
    "Gather": "GatherD",
    "Lt": "Less",
    "Gt": "Greater",
    "IndexPut": "TensorScatterUpdate",
    "Scatter": "TensorScatterElements",
    "MaxPool2dWithIndices": "MaxPool",
    "ConstantPadNd": "PadV3",
    "Slice": "StridedSlice",
    "NllLossForward": "NLLLoss",
    "TopK": "TopK",
    "Topk": "TopK",
}
FUNCTIONS: Final = {
    "MaskedFill": "masked_fill_",
    "LogSoftmax": "log_softmax",
    "Bmm": "matmul",
    "ToCopy": "to",
    "IndexPut": "__setitem__",
    "ConstantPadNd": "pad",
    "MaxPool2dWithIndices": "max_pool2d",
    "NllLossForward": "nll_loss",
}
"""Names of Python functions, as msprobe writes them, where they are not the lower-case ones."""
SPELLINGS: Final = ("client", "aten", "functions", "mindspore")


def spelled(kind: str, spelling: str) -> str:
    """The operator type in the spelling of a recorder."""
    words = "".join(f"_{each.lower()}" if each.isupper() else each for each in kind).strip("_")
    if spelling == "aten":
        return f"aten::{words}"
    if spelling == "functions":
        return FUNCTIONS.get(kind, words)
    return MINDSPORE.get(kind, kind) if spelling == "mindspore" else kind


def softmax(x: Array) -> Array:
    with np.errstate(all="ignore"):
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        found: Array = (e / e.sum(axis=-1, keepdims=True)).astype(x.dtype)
    return found


def logsumexp(x: Array) -> Array:
    peak = np.where(np.isfinite(x.max(axis=-1)), x.max(axis=-1), 0)
    with np.errstate(divide="ignore"):
        found: Array = (np.log(np.exp(x - peak[..., None]).sum(axis=-1)) + peak).astype(x.dtype)
    return found


@dataclass
class Net:
    """Operators in their order, and what each put out.

    Attributes:
        ops, values: by the order of ``op``.
    """

    ops: list[Op] = field(default_factory=list)
    values: dict[str, Array] = field(default_factory=dict)

    def fed(self, name: str, value: Array) -> str:
        """An input of the model."""
        self.ops.append(Op(name, "Parameter", category=Category.PARAMETER))
        self.values[name] = value
        return name

    def op(
        self, kind: str, inputs: Iterable[str], value: npt.ArrayLike, *, name: str = "", backward: bool = False
    ) -> str:
        """An operator; returns its name."""
        count = sum(each.type == kind for each in self.ops)
        name = name or (kind if not count else f"{kind}#{count + 1}")
        category = Category.GRADIENT if backward else Category.OTHER
        self.ops.append(Op(name, kind, [(each, 0) for each in inputs], category))
        self.values[name] = np.asarray(value)
        return name

    def value(self, name: str) -> Array:
        return self.values[name]

    def bad(self) -> set[str]:
        """The nodes that put out NaN or Inf."""
        return {name for name, value in self.values.items() if not np.isfinite(value.astype(np.float64)).all()}

    def in_spelling(self, spelling: str) -> Net:
        """The same net as another recorder would name its operators."""
        ops = [
            each if each.type == "Parameter" else replace(each, type=spelled(each.type, spelling)) for each in self.ops
        ]
        return Net(ops, self.values)

    def as_dump(self) -> tuple[set[str], set[str]]:
        """Findings and origins of a check of a dump."""
        tensors: dict[Any, Any] = {(name, Side.OUTPUT, 0): value for name, value in self.values.items()}
        session = Session(MemorySource({0: {0: tensors}}, ops=self.ops))
        watch(session, "TO")
        hits = session.check(session.pairs()).hits
        assert {hit.verdict for hit in hits} <= {Verdict.FINDING, Verdict.BY_DESIGN}
        findings = {hit.key.node for hit in hits if hit.verdict is Verdict.FINDING}
        return findings, {hit.key.node for hit in hits if hit.origin}

    def as_training(self, *, counted: bool = True) -> set[str]:
        """Findings by what a training tells: statistics of what is bad, and which tensors are clean.

        Its graph says of an operator what it was made of, each once, and nothing of tensors of True and False that
        were made of nothing. ``counted``: the statistics say how many elements are bad, and not only that some are.
        """
        made = {op.name for op in self.ops if op.inputs}
        masks = {name for name, value in self.values.items() if value.dtype.kind == "b" and name not in made}
        ops = [
            replace(op, inputs=[each for each in dict.fromkeys(op.inputs) if each[0] not in masks]) for op in self.ops
        ]
        nodes, bad = table_of(ops), self.bad()

        def contents(row: int, slot: int) -> ElementCounts | None:
            value = self.values.get(nodes.names[row]) if row >= 0 and slot == 0 else None
            if value is None:
                return None
            return told(value, counted=counted) if nodes.names[row] in bad else ElementCounts()

        designs = Designs(nodes, contents)
        return {name for name in bad if not designs.absorbed_by(nodes.find(name), 0)}


def told(value: Array, *, counted: bool) -> ElementCounts:
    """The statistics of an array, as a client sends them."""
    finite = value[np.isfinite(value)].astype(np.float64)
    nan, positive, negative = (int(found.sum()) for found in (np.isnan(value), value == np.inf, value == -np.inf))
    stats = TensorStats(
        count=value.size,
        nan=nan if counted else min(nan, 1),
        pos_inf=positive if counted else min(positive, 1),
        neg_inf=negative if counted else min(negative, 1),
        zero=int((finite == 0).sum()),
        negative=int((finite < 0).sum()),
        positive=int((finite > 0).sum()),
        minimum=float(finite.min()) if finite.size else None,
        maximum=float(finite.max()) if finite.size else None,
        mean=None,
        abs_mean=None,
        variance=None,
        sum_squares=0.0,
        at_least=AtLeast.NONE if counted else AtLeast.INF,
    )
    return elements_of_stats(stats, value.dtype.name)


def attend(net: Net, scores: str, x: Array, kind: str = "Softmax") -> str:
    """A softmax over scores, and what is made with its weights."""
    weights = net.op(kind, [scores], softmax(net.value(scores)))
    return net.op("Bmm", [weights], net.value(weights) @ x, name="out")


def causal(size: int) -> Array:
    """Elements that are kept."""
    return np.tri(size, dtype=bool)


def rows_of(values: Sequence[Sequence[float]]) -> Array:
    """A float32 array."""
    return np.array(values, np.float32)
