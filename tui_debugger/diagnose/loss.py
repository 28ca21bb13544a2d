"""Recognises the loss of a run that noted none: the scalar output of a loss function that feeds gradients only.

It is a guess by names and by the graph, and is shown as a guess. Candidates are nodes in the scope of a loss function
(``_loss_fn-SoftmaxCrossEntropyWithLogits``, ``mse-MSELoss``), calls of one (``Functional.cross_entropy``), and what a
program or recorder itself calls a loss. Their output must be one real number that no other forward node reads. The last
to run in a root graph counts.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from tui_debugger.check.tensors import tensor_row
from tui_debugger.errors import TdbgError
from tui_debugger.graph.table import NodeTable, real_consumers
from tui_debugger.model import PARAMETERS, Category, ProgressFn, Side, TensorKey, TensorMeta, TensorStats, no_progress
from tui_debugger.notes import ShownNote

if TYPE_CHECKING:
    from tui_debugger.check.types import TensorRow
    from tui_debugger.diagnose.run import DiagnosedRun

NAME: Final = "loss"
_GRADIENTS: Final = "Gradients/"
_LOSS_FUNCTION: Final = re.compile(r"_?(loss|loss_?fn|criterion)-.*", re.IGNORECASE)
"""Matches a part of a scope: a program's name for its loss function, and the class."""
_LOSS_CLASS: Final = re.compile(r"(.*-)?\w*(loss|crossentropy(withlogits)?)", re.IGNORECASE)
"""Matches the innermost part of a scope: a class that is called a loss."""
_OWN_NAME: Final = re.compile(r"(Backward)?Loss(#\d+)?")
"""Our client for PyTorch gives this name to the tensor that ``backward`` is called on."""
_LOSS_CALL: Final = re.compile(r"(Functional|Torch|Primitive|Mint)\.(\w+_loss|\w*cross_entropy(_with_logits)?)(\.\d+)?")
"""msprobe gives these names to calls of loss functions."""
_WORDS: Final = ("loss", "crossentropy", "cross_entropy", "criterion")
"""Each name that the patterns match contains one of these words: a fast check for most other names."""
_SCALARS: Final = ((), (1,))
_MOST: Final = 16
"""The most nodes of a root graph that are looked at."""
_NO_FORWARD: Final = PARAMETERS | {Category.CONSTANT, Category.GRADIENT}


def loss_nodes(nodes: NodeTable) -> tuple[int, ...]:
    """Returns the rows of nodes that may make the loss, by the graph; the last to run comes first."""
    found = [row for row, name in enumerate(nodes.names) if _may_be_loss(nodes, row, name)]
    return tuple(sorted(found, key=lambda row: int(nodes.order[row]), reverse=True))


def _may_be_loss(nodes: NodeTable, row: int, name: str) -> bool:
    lowered = name.lower()
    if not any(word in lowered for word in _WORDS) or nodes.structural[row]:
        return False
    if nodes.category_of(row) in _NO_FORWARD or _is_backward(nodes, row):
        return False
    *scopes, leaf = name.split("/")
    if not (
        name == NAME  # a program dumped it under this name
        or _OWN_NAME.fullmatch(leaf)
        or _LOSS_CALL.fullmatch(leaf)
        or any(_LOSS_FUNCTION.fullmatch(scope) for scope in scopes)
        or (scopes and _LOSS_CLASS.fullmatch(scopes[-1]))
    ):
        return False
    return all(_is_backward(nodes, reader) for reader, _ in real_consumers(nodes, row))


def _is_backward(nodes: NodeTable, row: int) -> bool:
    return nodes.category_of(row) is Category.GRADIENT or nodes.names[row].startswith(_GRADIENTS)


def recognised_losses(
    run: DiagnosedRun, rank: int, step: int, progress: ProgressFn = no_progress
) -> tuple[ShownNote, ...]:
    """Returns the losses of a step, one for each root graph; of a live training, only those that it has sent."""
    run.flow(rank, progress).table(step)  # first, because it may bring nodes
    nodes = run.nodes(rank, progress)
    found: dict[int, ShownNote] = {}
    looked: dict[int, int] = {}
    for row in nodes.memo(loss_nodes):
        root = nodes.graph_of(row).root_id
        looked[root] = looked.get(root, 0) + 1
        if root in found or looked[root] > _MOST:
            continue
        value = _value(run, rank, step, row, progress)
        if value is not None:
            found[root] = ShownNote(NAME, value, nodes.names[row])
    if len(looked) < 2:
        return tuple(found.values())
    return tuple(ShownNote(f"{NAME} {_scope_word(each.node)}", each.value, each.node) for each in found.values())


def _scope_word(node: str) -> str:
    """``DiscLoss`` of ``Default/network-DiscLoss/Sub-op1``: distinguishes the losses of a step."""
    scope = node.rpartition("/")[0].rpartition("/")[2]
    return scope.rpartition("-")[2] or node


def _value(run: DiagnosedRun, rank: int, step: int, row: int, progress: ProgressFn) -> float | None:
    try:
        flow = run.flow(rank)
        at = flow.located(step, row, Side.OUTPUT, 0)
        if at.index < 0:
            return None
        meta, stats = _known(run, tensor_row(flow, at, (Side.OUTPUT.label, 0, ""), _asks_no_check), progress)
    except TdbgError:
        return None
    if meta is None or stats is None or meta.shape not in _SCALARS or "float" not in meta.dtype:
        return None
    return scalar_of(stats)


def _asks_no_check(_key: TensorKey) -> bool:
    """Findings do not matter for a value."""
    return False


def _known(run: DiagnosedRun, row: TensorRow, progress: ProgressFn) -> tuple[TensorMeta | None, TensorStats | None]:
    if not row.remote:
        measured = run.measure([row], progress)[0]
        return measured.meta, measured.stats
    table = run.flow(row.key.rank).table(row.key.step)
    meta = table.recorded_meta(row.index)
    return (TensorMeta(*meta, 0) if meta is not None else None), table.recorded(row.index)


def scalar_of(stats: TensorStats) -> float | None:
    """Returns the only element of a tensor, from its statistics; None where it has several."""
    if stats.count != 1 or not stats.sized:
        return None
    if stats.nan:
        return math.nan
    if stats.pos_inf or stats.neg_inf:
        return math.inf if stats.pos_inf else -math.inf
    return stats.maximum
