"""The category of a node, by operator type and name: weight, gradient, optimizer update, collective operation ...

Rules: MindInsight 2.0's category table, and two of our own: a parameter that an optimizer's update operator updates is
a weight whatever its name, and fused operators that hold an activation are activations.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Mask
from tui_debugger.graph.table import NodeTable, real_consumers, real_inputs
from tui_debugger.model import BIAS, Category, words

_SPACES: Final = frozenset({"aten", "c10d", "_c10d_functional"})
"""Name spaces that PyTorch sets before an operator with a dot; an overload may follow."""


@lru_cache(1 << 12)
def plain_type(op_type: str) -> str:
    """Returns ``log`` for ``Log``, ``aten.log_.default``, ``aten::log.out``; ``allreduce`` for ``c10d::allreduce_``."""
    spaced, _, name = op_type.lower().rpartition("::")
    name = name.partition(".")[0] if spaced else name
    space, _, rest = name.partition(".")
    name = rest.partition(".")[0] if space in _SPACES else name
    return re.sub(r"[^a-z0-9]", "", name)


_GIVES_ALL_THE_SAME: Final = frozenset(
    {"allreduce", "allgather", "allgatherv", "broadcast", "allgatherintotensor", "allreducecoalesced"}
)
_REDUCES: Final = frozenset({"allreduce", "reducescatter", "reduce", "allreducecoalesced", "reducescattertensor"})
_COLLECTIVE: Final = (
    _GIVES_ALL_THE_SAME
    | _REDUCES
    | frozenset(
        words("""
        alltoall alltoallv alltoallsingle reducescatterv allgathercoalesced mirroroperator neighborexchange
        neighborexchangev2 neighborexchangev2grad collectivegather collectivescatter matmulallreduce allgathermatmul
        matmulreducescatter
        """)
    )
)
_SCRATCH: Final[Mapping[str, int]] = {"mkldnnrnnlayer": 3, "cudnnrnn": 3, "miopenrnn": 3, "cudnnbatchnorm": 3}
"""Operators with an output (by slot) that is scratch memory for their gradient, only partly written."""
_SENDING: Final = frozenset({"send", "isend", "p2psend"})
_RECEIVING: Final = frozenset({"receive", "recv", "irecv", "p2precv"})


def _plain(op_type: str) -> str:
    return plain_type(op_type).removeprefix("hcom").removeprefix("inner")


def is_scratch(op_type: str, slot: int) -> bool:
    """Tells whether an output is scratch memory of the kernel, with unwritten bytes."""
    return _SCRATCH.get(plain_type(op_type), -1) == slot


def is_collective(op_type: str) -> bool:
    """Tells whether every participating rank has a node of this kind, and may give values to the others."""
    return _plain(op_type) in _COLLECTIVE


def gives_all_the_same(op_type: str) -> bool:
    """Tells whether every participating rank gets the same tensor."""
    return _plain(op_type) in _GIVES_ALL_THE_SAME


def is_reducing(op_type: str) -> bool:
    """Tells whether the collective operation sums the tensors of all ranks, as for gradients."""
    return _plain(op_type) in _REDUCES


def is_sending(op_type: str) -> bool:
    return _plain(op_type) in _SENDING


def is_receiving(op_type: str) -> bool:
    return _plain(op_type) in _RECEIVING


_RANDOM_NUMBERS: Final = frozenset(
    words("""
        rand randn randint randperm randlike randnlike normal uniform bernoulli multinomial exponential dropoutgenmask
        standardnormal uniformreal truncatednormal
        """)
)
_RANDOM: Final = _RANDOM_NUMBERS | frozenset(
    words("""
    dropout dropout1d dropout2d dropout3d alphadropout featuredropout nativedropout dropoutdomask dropoutext
    statelessdropout rrelu randomchoicewithmask gumbelsoftmax
    """)
)


def makes_random_numbers(op_type: str) -> bool:
    return plain_type(op_type) in _RANDOM_NUMBERS


def is_random(op_type: str) -> bool:
    """Tells whether two runs may differ in the operator's output by chance."""
    return plain_type(op_type) in _RANDOM


ACTIVATIONS = frozenset(
    words("""
        elu fastgelu gelu hsigmoid hswish leakyrelu logsigmoid logsoftmax prelu relu relu6 reluv2 sigmoid softmax tanh
        """)
)
"""MindInsight's activation types, lower-case, matched exactly."""

# "activation" is our own client's name for an unspecified activation.
_NEWER_ACTIVATIONS = frozenset(
    words("""
        silu mish selu seluext celu softplus softsign hshrink softshrink glu swiglu hardswish hardsigmoid hardtanh
        rrelu threshold logsoftmaxv2 softmaxv2 leakyreluv2 reluv3 fastgeluv2 geluv2 relun siluext geluext eluext
        softplusext logsoftmaxext logsigmoidext softmaxext preluext swish tanhext sigmoidext gelu_ relu_ silu_
        maskedsoftmax scaledmaskedsoftmax activation
        """)
)
_WITHIN_FUSED = re.compile(r"relu|gelu|silu|selu|swish|mish|sigmoid|softmax|tanh")
_FUSED = re.compile(r"fusion|fused|matmul|bias|conv|dense|^add|add(?=relu|gelu)")
_NO_ACTIVATION = re.compile(r"grad|loss|crossentropy|logits|backprop")

_PARAMETER, _CONSTANTS = "parameter", frozenset({"constant", "const"})

_BIAS = re.compile(BIAS)
_NO_SIGNAL = re.compile(
    r"equal|notequal|greater\w*|less\w*|logical\w*|is(nan|inf|finite)|fill\w*|\w*(zeros|ones)(like)?|select\w*|where\w*"
    r"|(activation|bias)gradient",
    re.IGNORECASE,
)
"""Backward operators that make masks and constants, all zero in healthy runs; also gradients of activations, biases."""
_OWN_UPDATES = frozenset({"optimizerupdate", "parametergrad"})
"""Types in graphs of our PyTorch client, which names a gradient for every trained parameter."""

BACKWARD: Final = "Backward"
"""Suffix of the type of a node that is the backward of another node, where a dump says so."""
PARAMETER_GRADIENT: Final = "ParameterGrad"
"""Type of a weight's gradient in graphs of our PyTorch client and in msprobe's dumps."""
BIAS_ADD_GRADIENT: Final = "BiasAddGrad"
"""MindSpore's operator for a bias gradient; in graphs of our client the bias gradient itself."""
PARAMETER_GRADIENTS: Final = (PARAMETER_GRADIENT, "BiasGrad")
"""Types of the gradients of weights and of biases in msprobe's dumps."""
ACTIVATION_GRADIENT, WEIGHT_GRADIENT, BIAS_GRADIENT = "ActivationGradient", "WeightGradient", "BiasGradient"
"""Types of gradients in dumps of files of torch: see ``sources/torch_dumps``."""
NAMED_GRADIENT: Final = "Gradient"
"""Type of a tensor named as a gradient in plain tensor files; its name may tell of which tensor."""
_GRADIENT_NAME = re.compile(r"gradients(?:/|--|_default|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Update:
    """Input slots of an optimizer's update operator; None for a setting that is no input.

    Attributes:
        states: the optimizer's own parameters.
        stride: inputs for each parameter if the operator updates several at once, else 0.
        normalised: the step is divided by a running size of the gradient.
    """

    weight: int
    states: tuple[int, ...]
    gradient: int
    stride: int
    rate: int | None
    momentum: int | None
    decay: int | None
    normalised: bool


def _updates(table: str) -> Iterator[tuple[str, Update]]:
    for name, weight, states, gradient, stride, *settings, normalised in map(str.split, table.splitlines()[2:]):
        slots = tuple(int(slot) for slot in states.split(",") if slot != "-")
        rate, momentum, decay = (None if slot == "-" else int(slot) for slot in settings)
        own = 0 if stride == "-" else int(stride)
        yield name, Update(int(weight), slots, int(gradient), own, rate, momentum, decay, normalised == "yes")


# Names are those of mindspore.ops, without "Apply" where both spellings exist; see update_of(). The last two are of our
# own client: one knows weight, gradient, rate and state (which shows whether it is normalised, see ``divides``), the
# other knows weights and gradients only.
UPDATES: Final = dict(
    _updates(
        """
    operator                         weight  states            gradient  stride  rate  momentum  decay  normalised
    momentum                         0       1                 3         -       2     4         -      -
    kerasmomentum                    0       1                 3         -       2     4         -      -
    sparseapplymomentum              0       1                 3         -       2     5         -      -
    fusedscaleapplymomentum          1       2                 4         -       3     5         -      -
    fusedweightapplymomentum         1       2                 4         -       3     5         0      -
    fusedweightscaleapplymomentum    2       3                 5         -       4     6         0      -
    combinescalemomentum             1       2                 4         6       3     5         -      -
    combineweightdecayscalemomentum  2       3                 5         7       4     6         0      -
    sgd                              0       3,5               1         -       2     4         -      -
    gradientdescent                  0       -                 2         -       1     -         -      -
    proximalgradientdescent          0       -                 4         -       1     -         -      -
    adam                             0       1,2,3,4           9         -       5     6         -      yes
    fusedsparseadam                  0       1,2,3,4           9         -       5     6         -      yes
    fusedsparselazyadam              0       1,2,3,4           9         -       5     6         -      yes
    adamweightdecay                  0       1,2               8         -       3     4         7      yes
    fusedcastadamweightdecay         0       1,2               8         -       3     4         7      yes
    fusedadam                        6       7,8               9         -       5     0         -      yes
    fusedadamweightdecay             6       7,8               9         -       5     0         -      yes
    adamw                            0       1,2,3,4           10        -       5     7         6      yes
    adamwithamsgrad                  0       1,2,3,4,5         7         -       6     -         -      yes
    adamwithamsgradv2                0       1,2,3,4,5         10        -       6     7         -      yes
    adamax                           0       1,2,3             8         -       4     5         -      yes
    lamb                             0       1,2,8             9         -       3     4         7      yes
    adadelta                         0       1,2               6         -       3     -         -      yes
    sparseapplyadadelta              0       1,2               5         -       3     -         -      yes
    adagrad                          0       1                 3         -       2     -         -      yes
    adagradv2                        0       1                 3         -       2     -         -      yes
    adagradda                        0       1,2,7             3         -       4     -         -      yes
    sparseapplyadagrad               0       1                 2         -       -     -         -      -
    sparseapplyadagradv2             0       1                 2         -       -     -         -      -
    sparseapplyadagradda             0       1,2,8             3         -       5     -         -      yes
    proximaladagrad                  0       1                 5         -       2     -         -      yes
    sparseapplyproximaladagrad       0       1                 5         -       2     -         -      yes
    fusedsparseproximaladagrad       0       1                 5         -       2     -         -      yes
    ftrl                             0       1,2               3         -       4     -         -      yes
    ftrlv2                           0       1,2               3         -       4     -         -      yes
    sparseapplyftrl                  0       1,2               3         -       -     -         -      -
    sparseapplyftrlv2                0       1,2               3         -       -     -         -      -
    fusedsparseftrl                  0       1,2               3         -       -     -         -      -
    rmsprop                          0       1,2               4         -       3     -         -      yes
    centeredrmsprop                  0       1,2,3             4         -       5     -         -      yes
    sparseapplyrmsprop               0       1,2               4         -       3     -         -      yes
    sparseapplycenteredrmsprop       0       1,2,3             8         -       4     6         -      yes
    addsign                          0       1                 6         -       2     -         -      yes
    powersign                        0       1                 6         -       2     -         -      yes
    optimizerupdate                  0       3,4,5,6,7,8,9,10  1         -       2     -         -      -
    weightupdate                     0       -                 1         2       -     -         -      -"""
    )
)
"""Update operators by lower-case type. Slots: the operators' signatures in mindspore.ops (1.3 to 2.10)."""
# Prefixes that MindSpore's optimizers clone parameters with. A layer can bear the names of the second
# group, so those count only before the name of another parameter of the graph.
_SURE_PREFIX = re.compile(
    r"""(?:moment[12]|moments|accum|accum_update|stat|vhat|mean_square|mean_grad|adam_[mv]|lamb_[mv]
      |(?:max_)?exp_avg(?:_sq(?:_row|_col)?)?|exp_inf|grad_accum|momentum_buffer|velocity)[._](?=.)""",
    re.VERBOSE | re.IGNORECASE,
)
_STATE_PLACE = re.compile(
    r"(?:^|[._/])optim(?:izer)?(?:_state(?:_dict)?|_states[./]\d+|_\d+)?[./](?:state|param_groups|optimizer_state)[./].+"
    r"|^state\.\d+\.[a-z_]+$",
    re.IGNORECASE,
)
"""The place of optimizer state in a PyTorch checkpoint: ``optimizer.state.0.exp_avg``."""
_POSSIBLE_PREFIX = re.compile(r"(?:moment|momentum|linear|prev|step_size|mu|eta|ax|m|v)[._](?=.)", re.IGNORECASE)
_STATE_NAMES = frozenset({"beta1_power", "beta2_power", "global_step", "step_t", "state_step"})

_WRAPPERS: Final = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})


def without_wrappers(name: str) -> str:
    """Returns a dotted name without the attributes of torch.compile, FSDP and checkpoint_wrapper."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS) if "._" in f".{name}" else name


_WEIGHT_OR_BIAS = re.compile(r"(?:^|[._])(?:weight|bias)$", re.IGNORECASE)
_WEIGHT_LIKE = re.compile(
    r"(?:^|[._])(?:weight\d*|bias\d*|embedding_table)$"
    r"|(?:^|\.)experts\.\w+_proj$"  # a stack of experts: no module has this name
    r"|(?:^|\.)(?:sinks|A_log)$",
    re.IGNORECASE,
)
# Gain and shift of a normalisation are trained too, but are not counted as weights where a graph tells
# what the optimizer updates: 26 weights in a two-block transformer, not 34.
_NORMALISATION = re.compile(r"(?:^|[._])(?:gamma|beta)$", re.IGNORECASE)


def update_of(op_type: str) -> Update | None:
    """Returns the slots of an optimizer's update operator, in any spelling of its type; None for another operator."""
    name = op_type.lower()
    spellings = (name, name.removesuffix("d")) if op_type.endswith("D") else (name,)
    for each in spellings:
        found = UPDATES.get(each) or UPDATES.get(each.removeprefix("apply"))
        if found is not None:
            return found
    return None


def in_place_slots(op_type: str, inputs: int) -> frozenset[int]:
    """Returns the input slots with parameters that the operator updates; empty unless it is an optimizer's."""
    update = update_of(op_type)
    if update is None:
        return frozenset()
    slots = (update.weight, *update.states)
    if not update.stride:
        return frozenset(slots)
    return frozenset(start + slot for start in range(0, inputs, update.stride) for slot in slots)


def is_optimizer_state(name: str, names: Container[str] = ()) -> bool:
    """Tells whether a bare name (with dots or ``_``) is an optimizer's own parameter; ``names``: other parameters."""
    if name in _STATE_NAMES or _SURE_PREFIX.match(name) or _STATE_PLACE.search(name):
        return True
    possible = _POSSIBLE_PREFIX.match(name)
    return possible is not None and name[possible.end() :] in names


def parameter_by_name(name: str, names: Container[str] = ()) -> Category:
    if is_optimizer_state(name, names):
        return Category.OPTIMIZER_STATE
    if _NORMALISATION.search(name):
        return Category.NORM
    return Category.WEIGHT if _WEIGHT_LIKE.search(name) else Category.PARAMETER


def is_parameter_name(name: str) -> bool:
    return bool(_WEIGHT_LIKE.search(name) or _NORMALISATION.search(name)) or is_optimizer_state(name)


def is_gradient(name: str) -> bool:
    """Tells whether an operator's full name (or its rest in a file name) lies in the backward pass."""
    return name[:1] in {"g", "G"} and _GRADIENT_NAME.match(name) is not None


def is_activation(op_type: str) -> bool:
    name = op_type.lower()
    if name in ACTIVATIONS or name in _NEWER_ACTIVATIONS:
        return True
    fused = _WITHIN_FUSED.search(name) is not None and _FUSED.search(name) is not None
    return fused and _NO_ACTIVATION.search(name) is None


def categorise(table: NodeTable) -> npt.NDArray[np.uint8]:
    """Returns the category of every row from types, names and data flow (not from ``table.category``).

    A parameter is a weight when an optimizer's update operator updates it, or when its name ends in ``.weight`` or
    ``.bias`` without an optimizer's prefix; graphs without such operators use ``parameter_by_name``. Other inputs of
    the update operator are optimizer state. In graphs of our PyTorch client the named gradients decide.
    """
    categories = np.full(len(table), int(Category.OTHER), np.uint8)
    lower = [name.lower() for name in table.types]
    parameters = _rows_of(table, [name == _PARAMETER for name in lower])
    names = {table.names[row] for row in parameters}
    # By name, not by row: a parameter that one graph trains may be read by another.
    updated, states = ({table.names[row] for row in rows} for rows in _optimizer_slots(table, set(parameters)))
    trained = _trained(table, names)
    for row in parameters:
        name = table.names[row]
        if trained is not None and name not in states | updated:  # frozen on purpose, or in no optimizer
            known = Category.WEIGHT if name in trained else Category.PARAMETER
        elif updated:
            known = _parameter(name, names, name in updated, name in states)
        else:
            known = parameter_by_name(name, names)
        categories[row] = int(known)
    categories[_rows_of(table, [name in _CONSTANTS for name in lower])] = int(Category.CONSTANT)
    operator = [name != _PARAMETER and name not in _CONSTANTS for name in lower]
    active = [mine and is_activation(name) for mine, name in zip(operator, table.types, strict=True)]
    categories[_rows_of(table, active)] = int(Category.ACTIVATION)
    both = ((row, table.names[row], table.paths[row]) for row in _rows_of(table, operator))
    backward = [row for row, name, path in both if is_gradient(name) or (path is not name and is_gradient(path))]
    categories[backward] = int(Category.GRADIENT)
    categories[_by_scope(table, categories)] = int(Category.ACTIVATION)
    return categories


def weight_gradients(table: NodeTable) -> Mask:
    """Returns a mask over rows of the gradients that optimizers use, without biases.

    The gradient input of an update operator is followed back through clipping, scaling and collectives; without update
    operators the mask has all gradients except masks and constants.
    """
    return table.memo(_weight_gradients)


def _weight_gradients(table: NodeTable) -> Mask:
    mask = np.zeros(len(table), np.bool_)
    parameters = [name.lower() == _PARAMETER for name in table.types]
    names = {table.names[row] for row in _rows_of(table, parameters)}
    trained = _trained(table, names)
    for row in [table.find(gradient_of(name)) for name in trained or () if not _BIAS.search(name)]:
        mask[row] = True
    gradient = table.category == int(Category.GRADIENT)
    if trained is not None:
        return mask
    for update, made in _update_inputs(table):
        for weight in made[update.weight :][:1]:
            if weight >= 0 and not _BIAS.search(table.names[weight]):
                mask[_nearest(table, made[update.gradient :][:1], gradient)] = True
    if mask.any():
        return mask
    signal = np.array([_NO_SIGNAL.fullmatch(name) is None for name in (*table.types, "")], np.bool_)
    fallback: Mask = gradient & signal[table.type_id]
    return fallback


_FOLLOWED = 64
"""Most operators between a gradient and the optimizer that are followed back; clipping by norm has many."""


def _nearest(table: NodeTable, rows: list[int], wanted: Mask) -> list[int]:
    """Returns the nearest wanted rows upstream; a wanted row itself counts."""
    found: list[int] = []
    seen = set(rows)
    waiting = [row for row in rows if row >= 0]
    for _ in range(_FOLLOWED):
        if not waiting:
            break
        row = waiting.pop(0)
        if wanted[row]:
            found.append(row)
            continue
        feeders = [producer for producer, _ in real_inputs(table, row)]
        waiting += [each for each in feeders if each >= 0 and each not in seen]
        seen.update(feeders)
    return found


def is_backward(op_type: str) -> bool:
    return op_type.endswith(BACKWARD) or op_type in PARAMETER_GRADIENTS


def gradient_of(parameter: str) -> str:
    """Returns the name of a parameter's gradient in graphs of our PyTorch client (``torch.structure``)."""
    return "Gradients/" + parameter.replace(".", "/")


def _trained(table: NodeTable, names: Iterable[str]) -> set[str] | None:
    """Returns the trained parameters in a graph of our PyTorch client; None in other graphs, which do not say."""
    if not any(name.lower() in _OWN_UPDATES for name in table.types):
        return None
    return {name for name in names if table.find(gradient_of(name)) >= 0}


def _rows_of(table: NodeTable, types: list[bool]) -> list[int]:
    rows: list[int] = np.flatnonzero(np.array([*types, False])[table.type_id]).tolist()
    return rows


def _parameter(name: str, names: Container[str], updated: bool, state: bool) -> Category:
    if is_optimizer_state(name, names) or (state and not updated):
        return Category.OPTIMIZER_STATE
    if updated and _NORMALISATION.search(name):
        return Category.NORM
    return Category.WEIGHT if updated or _WEIGHT_OR_BIAS.search(name) else Category.PARAMETER


def _optimizer_slots(table: NodeTable, parameters: set[int]) -> tuple[set[int], set[int]]:
    """Returns parameter rows that update operators update, and those that hold their state."""
    updated: set[int] = set()
    states: set[int] = set()
    for update, made in _update_inputs(table):
        updated.update(made[update.weight :][:1])
        states.update(each for slot in update.states for each in made[slot:][:1])
    return updated & parameters, states & parameters


def _update_inputs(table: NodeTable) -> Iterator[tuple[Update, list[int]]]:
    """Yields for each parameter that an update operator updates the rows of the operator's inputs, from its own on."""
    updates = [update_of(name) for name in table.types]
    for row in _rows_of(table, [update is not None for update in updates]):
        update, made = updates[int(table.type_id[row])], [producer for producer, _ in real_inputs(table, row)]
        if update is not None:
            for start in range(0, len(made), update.stride) if update.stride else (0,):
                yield update, made[start:]


def _by_scope(table: NodeTable, categories: npt.NDArray[np.uint8]) -> list[int]:
    """Returns operators that are activations by their scope only.

    An activation cell (``act1-ReLU``) without such an operator was fused: its last operator yields the activation.
    """
    last: dict[tuple[int, str], int] = {}
    settled: set[tuple[int, str]] = set()
    for row, path in enumerate(table.paths):
        scope = path.rpartition("/")[0]
        cell = scope.rpartition("/")[2].rpartition("-")[2].lower()
        if cell not in ACTIVATIONS and cell not in _NEWER_ACTIVATIONS:
            continue
        key = (int(table.graph[row]), scope)
        if categories[row] == int(Category.ACTIVATION):
            settled.add(key)
        elif categories[row] == int(Category.OTHER) and not table.structural[row]:
            best = last.get(key)
            if best is None or table.order[row] >= table.order[best]:
                last[key] = row
    return [row for key, row in last.items() if key not in settled]


_RATE_NAME: Final = re.compile(r"(?:^|[._/])(?:learning_?rate|lr)(?:$|[._/\d])", re.IGNORECASE)


_SIZES: Final = re.compile(r"(?:exp_avg_sq|square_avg|exp_inf|sum|acc_delta)(?:$|[._])")


def divides(states: Iterable[str]) -> bool:
    """Tells whether a PyTorch optimizer with these states divides by a running size of the gradient."""
    return any(_SIZES.match(name) is not None for name in states)


def is_learning_rate(name: str) -> bool:
    return _RATE_NAME.search(name) is not None


def group_start(update: Update, slot: int) -> int:
    return slot - slot % update.stride if update.stride else 0


ALL_REDUCE: Final = "AllReduce"
ALL_GATHER: Final = "AllGather"
REDUCE_SCATTER: Final = "ReduceScatter"
EXCHANGES: Final = frozenset({ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER})
"""Types of collective operations in graphs of our PyTorch client, with the participating ranks."""
BUFFER_UPDATE: Final = "BufferUpdate"
"""Operator type of our PyTorch client: a parameter or buffer, and its sources in the step."""
INPUT_UPDATE: Final = "InputUpdate"
"""The same for an input of the model, which had no values before the step."""
OPTIMIZER_UPDATE: Final = "OptimizerUpdate"
"""The same for the update of a parameter: weight, gradient, learning rate, optimizer state."""
DRAWN_UPDATES: Final = frozenset({BUFFER_UPDATE, INPUT_UPDATE, OPTIMIZER_UPDATE})
"""Types of nodes that only show the sources of an update; the values belong to a parameter."""


@dataclass(frozen=True, slots=True)
class Relative:
    """A tensor (output ``slot`` of ``row``) related to another one; ``word``: ``weight``, ``gradient``, ``state``."""

    word: str
    row: int
    slot: int


def relatives(nodes: NodeTable, row: int, slot: int = 0) -> tuple[Relative, ...]:
    """Returns the weight, gradient and optimizer state that an output belongs to, without itself.

    Empty where no update operator reads it directly: a clipped or summed gradient is another tensor.
    """
    found: dict[tuple[int, int], Relative] = {}
    for operator, at in real_consumers(nodes, row, slot):
        update = update_of(nodes.op_type(operator))
        if update is None:
            continue
        inputs = real_inputs(nodes, operator)
        slots = [("weight", update.weight), ("gradient", update.gradient), *(("state", each) for each in update.states)]
        group = [(word, group_start(update, at) + slot) for word, slot in slots]
        if at not in (place for _, place in group):
            continue
        for word, place in group:
            if place != at and place < len(inputs) and inputs[place][0] >= 0:
                found.setdefault(inputs[place], Relative(word, *inputs[place]))
    found.pop((row, slot), None)
    return tuple(found.values())


def assigned(nodes: NodeTable, row: int) -> list[int] | None:
    """Returns the rows that a parameter is made of in the step (-1: unknown); None where the graph does not say.

    A buffer that a module changes is made by that module. Empty: the program itself put the values there.
    """
    change = change_of(nodes, row)
    return None if change is None else [made for made, _ in real_inputs(nodes, change)[1:]]


def change_of(nodes: NodeTable, row: int) -> int | None:
    """Returns the node whose inputs after the first are the sources of a parameter in the step."""
    changes = (each for each, at in real_consumers(nodes, row) if at == 0)
    return next((each for each in changes if nodes.op_type(each) in {BUFFER_UPDATE, INPUT_UPDATE}), None)


def outlives_steps(nodes: NodeTable, row: int) -> bool:
    """Tells whether a parameter that is made in the step had values before it, perhaps used in the step."""
    return not any(at == 0 and nodes.op_type(consumer) == INPUT_UPDATE for consumer, at in real_consumers(nodes, row))


def may_be_written(nodes: NodeTable, row: int) -> bool:
    """Tells whether the program may have written a parameter itself, unseen by the graph.

    Only the model's inputs surely come from outside: averages of weights, which many programs keep, are buffers.
    """
    made = assigned(nodes, row)
    if made is not None:
        return made == []
    return draws_updates(nodes) and not nodes.names[row].startswith(_MODEL_INPUTS)


LEARNING_RATE: Final = "LearningRate"
"""Operator type of our PyTorch client: hands the learning rate of a group of weights to the optimizer."""
STEP_FACTOR: Final = "StepFactor"
"""The same for L-BFGS, which searches the size of its steps by the curvature."""
_MODEL_INPUTS: Final = ("inputs.", "NoGrad/inputs.")
"""Prefixes of the model's inputs in our PyTorch client's graphs; they hold no weight."""


def draws_updates(nodes: NodeTable) -> bool:
    """Tells whether a graph is from our PyTorch client, where the program decides what runs when."""
    return nodes.memo(_draws_any_update)


def _draws_any_update(nodes: NodeTable) -> bool:
    return any(kind in DRAWN_UPDATES for kind in nodes.types)


def rates(nodes: NodeTable) -> Mapping[int, int]:
    """Returns for each weight that an optimizer updates the node of its learning rate, in our client's graphs."""
    return nodes.memo(_rates)


def _rates(nodes: NodeTable) -> Mapping[int, int]:
    found: dict[int, int] = {}
    for row in _rows_of(nodes, [name == OPTIMIZER_UPDATE for name in nodes.types]):
        weight, *_, rate = (each for each, _ in [*real_inputs(nodes, row), *[(-1, 0)] * 3][:3])
        if weight >= 0 and rate >= 0 and nodes.op_type(rate) in {LEARNING_RATE, STEP_FACTOR}:
            found[weight] = rate
    return found


def searched_weights(nodes: NodeTable) -> Mask:
    """Returns a mask of weights whose optimizer searches its step size, so that no size is too large."""
    mask = np.zeros(len(nodes), np.bool_)
    mask[[weight for weight, rate in rates(nodes).items() if nodes.op_type(rate) == STEP_FACTOR]] = True
    return mask


def changed_by_modules(nodes: NodeTable, row: int) -> bool:
    """Tells whether modules change a parameter in the step, perhaps after using its previous value."""
    return row in nodes.memo(_changed_buffers)


def _changed_buffers(nodes: NodeTable) -> frozenset[int]:
    if BUFFER_UPDATE not in nodes.types:
        return frozenset()
    changes = np.flatnonzero(nodes.type_id == nodes.types.index(BUFFER_UPDATE)).tolist()
    inputs = [real_inputs(nodes, each) for each in changes]
    return frozenset(each[0][0] for each in inputs if len(each) > 1)
