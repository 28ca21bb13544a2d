"""Reads the calls of one rank in one step: ``dump.json``, ``construct.json`` and ``stack.json`` as columns.

A node is a call without its counter, named by the module that it was called in: ``layers/0/mlp/Functional.gelu``,
``layers/0/mlp/MLP`` for the module itself, ``Gradients/layers/0/mlp/MLP`` for its backward, ``layers.0.mlp.fc.weight``
for a parameter. A second call of the same kind in one module is ``Functional.gelu.1``. Where every module is called
several times in a step, these are micro-batches: rounds of the same nodes. Without modules (level L1) nothing tells
micro-batches from other calls: there a node is called as the dump calls it, ``Torch.log.0``.
"""

from __future__ import annotations

import gc
import json
import math
import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tui_debugger import opener
from tui_debugger.arrays import Float64, Int32, Int64, Mask
from tui_debugger.graph.build import MAX_SLOTS
from tui_debugger.graph.categories import BACKWARD, PARAMETER_GRADIENTS
from tui_debugger.graph.stacks import is_framework
from tui_debugger.graph.table import PARAMETER
from tui_debugger.model import BIAS, Frame, Side
from tui_debugger.opener import GRAPH_LIMIT, read_regular, why_not
from tui_debugger.sources.base import Names
from tui_debugger.sources.msprobe.layout import CALLS, SAVED
from tui_debugger.stats.dtypes import canonical_name

GRADIENTS: Final = "Gradients/"
"""Scope of what backward passes make."""
RECOMPUTED: Final = "Recomputed/"
"""Scope of calls that ran a second time for the backward pass (activation checkpointing)."""
SAVED_TYPE: Final = "Saved"
"""Type of what the program saved by name."""
_MODULES: Final = ("Module.", "Cell.")
_DIRECTIONS: Final = frozenset({"forward", "backward"})
SCALAR: Final = "…"
"""Stands for an argument that is no tensor."""
_BIAS: Final = re.compile(BIAS)
_MOST_ROUNDS: Final = 0x3FFF
_LEADS_ELSEWHERE: Final = re.compile(r"[/\0]|^\.\.?$", re.MULTILINE)
_ZEROS: Final = frozenset({"0" * 8, "0x" + "0" * 16})
"""Digests that zeros have, whatever their shape."""
_DEPTH: Final = 64
"""Lists in lists that are looked into."""
_MOST_MODULES: Final = 10_000
"""Modules inside each other: only a broken file has more."""
_GRADIENTS_OF: Final = "parameters_grad"
_GRADIENT: Final = "_grad"
"""Ends the name of the gradient of what the program saved."""

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
"""What the rules for operators call a function that Python, or torch, calls otherwise. All others have one name; a
reversed operator (``1 / x``) has its operands in the other order, so it is another operator."""


class BadCallsError(Exception):
    """The calls of a step cannot be read; the text says why."""


@dataclass(slots=True)
class NodeInfo:
    """A node of a step.

    Attributes:
        name, path, type: see ``graph.table.NodeTable``.
        call: the key of its first call; empty for parameters.
        forward: number of the node that it is the backward of, or of whose parameters it is the gradient; -1 else.
        ranks: between which ranks it exchanges values, where the dump says so.
        recomputed: it ran a second time for the backward pass.
    """

    name: str
    path: str
    type: str
    call: str = ""
    forward: int = -1
    ranks: tuple[int, ...] = ()
    recomputed: bool = False


@dataclass(slots=True)
class StepCalls:
    """The calls of one rank in one step.

    Attributes:
        task, level, framework: as the recorder says.
        nodes: in the order of their first calls; parameters where their module was called.
        calls: number of calls.
        node, side, slot, round: of each tensor, see ``base.TensorTable``; parameters after all calls.
        call: number of the call that each tensor belongs to; -1: a parameter.
        first: of each call the number of the first one inside it; its own where it has none.
        parent: of each call the number of the module call around it, -1 without one.
        module: of each call whether it is a module's.
        call_node: the node of each call.
        largest, smallest, mean, norm: as recorded; NaN where they were not, or are NaN.
        nan: of which tensors an extreme was NaN.
        known: of which tensors there are statistics.
        dtypes, shapes: distinct ones; ``dtype`` and ``shape`` index into them, -1 where there is none.
        hashes: digest of the elements of each, as recorded; None without any.
        files, has_file: names of the files with the values, empty where there is none.
        scalars: (node, slot, text) of arguments that are no tensors.
        links: (node, slot, node of the parameter) of the parameters of modules.
        summed: nodes of gradients that hold the sum over micro-batches: each is made of itself, too.
        stacks, stack_of: frames of calls, innermost first; number of the stack by call.
        problems: (file, why) of what beside the calls cannot be read.
        notices: what people have to know.
    """

    task: str = ""
    level: str = ""
    framework: str = ""
    nodes: list[NodeInfo] = field(default_factory=list)
    calls: int = 0
    node: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))
    side: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))
    slot: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))
    round: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))
    call: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))
    first: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))
    parent: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))
    module: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    call_node: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))
    largest: Float64 = field(default_factory=lambda: np.zeros(0))
    smallest: Float64 = field(default_factory=lambda: np.zeros(0))
    mean: Float64 = field(default_factory=lambda: np.zeros(0))
    norm: Float64 = field(default_factory=lambda: np.zeros(0))
    nan: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    known: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    dtypes: tuple[str, ...] = ()
    dtype: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))
    shapes: tuple[tuple[int, ...], ...] = ()
    shape: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))
    hashes: Int64 | None = None
    files: Names = field(default_factory=lambda: Names.of(()))
    has_file: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    scalars: list[tuple[int, int, str]] = field(default_factory=list)
    links: list[tuple[int, int, int]] = field(default_factory=list)
    summed: list[int] = field(default_factory=list)
    stacks: list[tuple[Frame, ...]] = field(default_factory=list)
    stack_of: dict[str, int] = field(default_factory=dict)
    problems: list[tuple[str, str]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        """Number of tensors."""
        return len(self.node)

    def sizes(self) -> Int64:
        """Number of elements of every tensor; -1 where its shape is not known."""
        most = np.iinfo(np.int64).max
        counts = np.array([*(min(math.prod(shape), most) for shape in self.shapes), -1], np.int64)
        found: Int64 = counts[self.shape]
        return found


def read_calls(directory: str) -> StepCalls:
    """Reads the calls in the directory of a step and rank.

    Raises:
        BadCallsError: they cannot be read.
    """
    # A million objects come and go, none of them in a circle: looking for circles would take longer than reading.
    collects = gc.isenabled()
    gc.disable()
    try:
        return _read(directory)
    finally:
        if collects:
            gc.enable()


def _read(directory: str) -> StepCalls:
    step = StepCalls()
    recorded = _load(directory, CALLS)
    saved = _load(directory, SAVED)
    if recorded is None and saved is None:
        raise BadCallsError(f"no {CALLS}")
    for top in (recorded, saved):
        if top is not None:
            step.task, step.level, step.framework = (_text(top.get(key)) for key in ("task", "level", "framework"))
            if not isinstance(top.get("data"), dict):
                raise BadCallsError("no calls in it: it holds no object named data")
    data: dict[str, Any] = recorded["data"] if recorded is not None else {}
    construct = _beside(directory, "construct.json", step) if recorded is not None else {}
    _read_stacks(_beside(directory, "stack.json", step) if recorded is not None else {}, step)
    if not data and construct:
        data = {key: {} for key in construct}  # task structure: calls without tensors
    builder = _Builder(step)
    builder.take_calls(data, construct)
    if saved is not None:
        builder.take_saved(saved["data"])
    builder.finish()
    return step


def read_entries(directory: str) -> dict[tuple[int, int], dict[str, Any]]:
    """Reads the forward calls of a step as they stand in ``dump.json``, by number of their node and round.

    The numbers are those that ``read_calls`` gives.

    Raises:
        BadCallsError: they cannot be read.
    """
    recorded = _load(directory, CALLS)
    data = recorded.get("data") if recorded is not None else None
    if not isinstance(data, dict):
        return {}
    construct = _beside(directory, "construct.json", StepCalls())
    builder = _Builder(StepCalls())
    builder.take_calls(data, construct)
    return builder.entries


def _load(directory: str, name: str) -> dict[str, Any] | None:
    """Returns the object in a file; None where there is no such file.

    Raises:
        BadCallsError: it cannot be read.
    """
    path = f"{directory}/{name}"
    try:
        found = json.loads(read_regular(path, GRAPH_LIMIT))
    except FileNotFoundError as error:
        if opener.lexists(path):
            raise BadCallsError(f"{name}: {why_not(path, error, wanted='a file')}") from error
        return None
    except OSError as error:
        why = error.strerror if type(error) is not OSError and error.strerror else why_not(path, error, wanted="a file")
        raise BadCallsError(f"{name}: {why}") from error
    except UnicodeDecodeError as error:
        raise BadCallsError(f"{name} is no text") from error
    except json.JSONDecodeError as error:
        why = f"{name} is no JSON (line {error.lineno}, column {error.colno}): incomplete, or damaged"
        raise BadCallsError(why) from error
    except ValueError as error:  # a number of too many digits
        raise BadCallsError(f"{name} is no JSON of a recorder: {error}") from error
    except RecursionError as error:
        raise BadCallsError(f"{name} is nested too deeply") from error
    if not isinstance(found, dict):
        raise BadCallsError(f"{name} holds no object")
    return found


def _beside(directory: str, name: str, step: StepCalls) -> dict[str, Any]:
    """A file without which there is less to be known; what is wrong with it is kept."""
    try:
        found = _load(directory, name)
    except BadCallsError as error:
        step.problems.append((name, str(error)))
        return {}
    return found or {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# -- names ------------------------------------------------------------------------------------------------


class _Call:
    """A forward call: what it is called, and where it belongs.

    Attributes:
        key: in the dump.
        prefix, number: the key without counter and direction; the counter.
        module: a module's.
        parent: the module call around it.
        again: it ran a second time for the backward pass.
        rank: its number among the calls of its kind in the same module call, in the same micro-batch.
        round: the micro-batch that it belongs to, from 1; 0 where there are none, or it belongs to none; -1 before
            that is known.
        place: its place in the dump; -1 where it is not in it.
        node, backward: number of the node that stands for it, and of the one for its backward; -1 before there is one.
    """

    __slots__ = (
        *("again", "backward", "key", "module", "node", "number", "parent", "place", "prefix", "rank", "round"),
        "_scope",
    )

    def __init__(self, key: str, prefix: str, number: int) -> None:
        self.key, self.prefix, self.number = key, prefix, number
        self.module = prefix.startswith(_MODULES)
        self.parent: _Call | None = None
        self.again = False
        self.rank, self.round, self.place, self.node, self.backward = 0, -1, -1, -1, -1
        self._scope: str | None = None

    @property
    def path(self) -> str:
        """The path of a module, with dots."""
        return self.prefix.partition(".")[2].rpartition(".")[0]

    @property
    def scope(self) -> str:
        """The scope of what a module calls, once all ranks are known."""
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
    """(prefix, direction, number) of a key; None for one of no known form."""
    prefix, _, last = key.rpartition(".")
    prefix, _, before = prefix.rpartition(".")
    if last in _DIRECTIONS:
        before, last = last, before
    elif before not in _DIRECTIONS and before != _GRADIENTS_OF:
        return None
    if not (prefix and last.isascii() and last.isdigit() and len(last) < 10):
        return None
    return prefix, before, int(last)


class _Names:
    """The forward calls of a step, each with its place among the others of its kind.

    Attributes:
        calls: (direction, forward call) of every key of the dump that has a known form; of gradients of parameters
            the first call of their module.
        named: the forward calls by (prefix, number).
    """

    def __init__(self, data: Mapping[str, Any], construct: Mapping[str, Any]) -> None:
        self._construct = construct
        self.calls: dict[str, tuple[str, _Call]] = {}
        self.named: dict[tuple[str, int], _Call] = {}
        for place, (key, entry) in enumerate(data.items()):
            call = self._add(key)
            if call is not None and call.key == key:
                call.place = place
                call.again = type(entry) is dict and bool(entry.get("is_recompute"))
        for key in construct:
            if key not in self.calls:
                self._add(key)
        groups: dict[tuple[bool, int, str], list[_Call]] = {}
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

    def _add(self, key: str) -> _Call | None:
        split = _split(key)
        if split is None:
            return None
        prefix, direction, number = split
        call = self.named.get((prefix, number))
        if call is None:
            forward = f"{prefix}.forward.{number}" if prefix.startswith(_MODULES) else f"{prefix}.{number}.forward"
            call = self.named[prefix, number] = _Call(forward, prefix, number)
        self.calls[key] = direction, call
        return call

    def _parent(self, call: _Call) -> _Call | None:
        """The module call around a forward call; None at the top."""
        around = self._construct.get(call.key)
        backward = False
        if around is None and call.key not in self._construct:
            key = call.key.replace(".forward", ".backward")  # only its backward was recorded
            around, backward = self._construct.get(key), True
        split = _split(around) if isinstance(around, str) else None
        if split is None or not split[0].startswith(_MODULES) or (split[1] == "backward") != backward:
            return None
        found = self.named.get((split[0], split[2]))
        return found if found is not call else None

    def _micro_batches(self) -> int:
        """How often the modules at the top are called in the step: most of them."""
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
            inside: list[_Call] = []
            at: _Call | None = call
            while at is not None and at.round < 0 and len(inside) < _MOST_MODULES:
                inside.append(at)
                at = at.parent
            found = at.round if at is not None and at.round >= 0 else 0
            for each in inside:
                each.round = found

    def _number_modules(self) -> None:
        """Numbers the calls of one module within a micro-batch, whatever module they were made in."""
        groups: dict[tuple[bool, str, int], list[_Call]] = {}
        for call in self.named.values():
            if call.module:
                groups.setdefault((call.again, call.prefix, call.round), []).append(call)
        for each in groups.values():
            each.sort(key=_number)
            for rank, call in enumerate(each):
                call.rank = rank

    def node(self, call: _Call) -> NodeInfo:
        """The node of a forward call."""
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


def _number(call: _Call) -> int:
    return call.number


def _are_among(calls: Sequence[_Call], times: int, anchors: Sequence[tuple[int, int]]) -> bool:
    """Tells whether calls at the top stand beside the modules of their micro-batches.

    Others may come in a number that could be divided as well: gradients are summed up after all micro-batches.

    Args:
        calls: in the order of their counters.
        times: how many a micro-batch has.
        anchors: (place, micro-batch) of calls of modules, ascending.
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


# -- calls ------------------------------------------------------------------------------------------------


def _summed_gradients(names: _Names, data: Mapping[str, Any]) -> dict[str, tuple[int, list[object]]]:
    """Of gradients of parameters, by key, the round (0: there is one only), and what came into the backward."""
    gradients, backward = dict[str, list[str]](), dict[str, list[str]]()
    for key, (direction, call) in names.calls.items():
        if direction != "forward" and call.module and type(data.get(key)) is dict:
            (gradients if direction == _GRADIENTS_OF else backward).setdefault(call.prefix, []).append(key)
    found: dict[str, tuple[int, list[object]]] = {}
    for prefix, keys in gradients.items():
        back = sorted(backward.get(prefix, ()), key=lambda key: names.calls[key][1].number)
        for times, key in enumerate(keys):
            mine = back
            if len(back) == len(keys):
                mine = [back[times]]
            elif len(keys) > 1:
                mine = [each for each in back if names.calls[each][1].round == times + 1]
            number = times + 1 if len(keys) > 1 else 0
            found[key] = number, [data[each].get("input") for each in mine]
    return found


class _Builder:
    """Takes in calls, and makes columns of them."""

    def __init__(self, step: StepCalls) -> None:
        self._step = step
        self._rows: dict[str, int] = {}
        self._tensors = _Tensors()
        self._parameters: dict[str, dict[str, Any]] = {}
        self._linked: set[tuple[int, int, int]] = set()
        self.entries: dict[tuple[int, int], dict[str, Any]] = {}
        """The forward calls as the dump has them, by node and round: who asks for arguments wants them."""
        self._call_node, self._parent, self._module, self._first = array("i"), array("i"), array("b"), array("i")

    def take_calls(self, data: Mapping[str, Any], construct: Mapping[str, Any]) -> None:
        """Takes in ``dump.json``, in the order of its keys."""
        names = _Names(data, construct)
        summed = _summed_gradients(names, data)
        for place, (key, entry) in enumerate(data.items()):
            known = names.calls.get(key)
            module = False
            if type(entry) is not dict:
                self._step.problems.append((CALLS, f"{key[:80]} is no call"))
                node = -1
            elif known is None:
                node = self._node(NodeInfo(key, key.replace(".", "/", 1), "Call", key))
                self._tensors.take(entry, node, Side.OUTPUT, 0, place)
            elif key in summed:
                self._take_gradients(entry, names, known[1], (*summed[key], place))
                node = -1
            else:
                node, module = self._take_call(entry, names, known, place), known[1].module
            self._call_node.append(node)
            self._module.append(module)
        self._nest(data, construct)

    def _take_call(self, entry: dict[str, Any], names: _Names, at: tuple[str, _Call], place: int) -> int:
        """A forward or backward call; returns its node."""
        direction, call = at
        take = self._tensors.take
        if direction == "backward":
            node = self._backward(names, call)
            take(entry.get("input"), node, Side.INPUT, call.round, place)
        else:
            node = call.node = call.node if call.node >= 0 else self._node(names.node(call))
            self.entries.setdefault((node, call.round), entry)
            used = take(entry.get("input_args"), node, Side.INPUT, call.round, place)
            named, own = entry.get("input_kwargs"), entry.get("parameters")
            if named:
                used = take(named, node, Side.INPUT, call.round, place, used)
            if own:
                self._take_parameters(own, call, used, place)
        take(entry.get("output"), node, Side.OUTPUT, call.round, place)
        return node

    def take_saved(self, data: Mapping[str, Any]) -> None:
        """Takes in ``debug.json``: tensors that the program saved by name, ``NAME.0.debug``, and their gradients."""
        names = {key: _saved_name(key) for key in data}
        known = set(names.values())
        gradients = [
            key for key, name in names.items() if name.endswith(_GRADIENT) and name[: -len(_GRADIENT)] in known
        ]
        behind = set(gradients)
        ahead = [key for key in data if key not in behind]
        times, rounds = Counter(names.values()), Counter[str]()
        for place, key in enumerate((*ahead, *reversed(gradients)), len(self._call_node)):
            name = names[key]
            rounds[name] += 1
            gradient = key in behind
            for path, record in _named_records(data[key]):
                full = "/".join((name.removesuffix(_GRADIENT) if gradient else name, *path))
                info = NodeInfo(full, full, SAVED_TYPE, key)
                if gradient:
                    info = NodeInfo(GRADIENTS + full, GRADIENTS + full, SAVED_TYPE + BACKWARD, key)
                node = self._node(info)
                self._tensors.take(record, node, Side.OUTPUT, rounds[name] if times[name] > 1 else 0, place)
            self._call_node.append(-1)
            self._module.append(0)
            self._parent.append(-1)
            self._first.append(place)

    def finish(self) -> None:
        """Sets the columns. Parameters come after everything else."""
        for name, record in self._parameters.items():
            self._tensors.take(record, self._rows[name], Side.OUTPUT, 0, -1)
        step = self._step
        step.calls = len(self._call_node)
        step.call_node, step.parent = np.array(self._call_node, np.int32), np.array(self._parent, np.int32)
        step.first, step.module = np.array(self._first, np.int32), np.array(self._module, np.bool_)
        self._tensors.fill(step)

    def _node(self, info: NodeInfo) -> int:
        row = self._rows.setdefault(info.name, len(self._step.nodes))
        if row == len(self._step.nodes):
            self._step.nodes.append(info)
        return row

    def _backward(self, names: _Names, call: _Call) -> int:
        if call.backward < 0:
            ahead = self._step.nodes[call.node] if call.node >= 0 else names.node(call)
            forward = call.node if call.node >= 0 else self._rows.get(ahead.name, -1)
            name, path = (GRADIENTS + text.removeprefix(RECOMPUTED) for text in (ahead.name, ahead.path))
            kind = ahead.type + BACKWARD
            call.backward = self._node(NodeInfo(name, path, kind, call.key, forward, recomputed=ahead.recomputed))
        return call.backward

    def _take_parameters(self, own: object, call: _Call, used: int, place: int) -> None:
        """The parameters of a module: what it was called with, and nodes of their own."""
        for slot, (name, record) in enumerate(own.items() if isinstance(own, dict) else (), used):
            self._tensors.take(record, call.node, Side.INPUT, call.round, place, slot)
            if isinstance(record, dict):
                full = f"{call.path}.{name}" if call.path else str(name)
                self._parameters.setdefault(full, record)
                node = self._node(NodeInfo(full, full.replace(".", "/"), PARAMETER))
                if (link := (call.node, slot, node)) not in self._linked:
                    self._linked.add(link)
                    self._step.links.append(link)

    def _take_gradients(
        self, entry: dict[str, Any], names: _Names, call: _Call, at: tuple[int, Sequence[object], int]
    ) -> None:
        """The gradients of the parameters of a module, as far as they were summed up by then.

        Args:
            entry: by name of the parameter.
            names: of the step.
            call: of the module.
            at: the round, what came into the module's backward, the place in the dump.
        """
        number, came, place = at
        forward = call.node if call.node >= 0 else self._rows.get(names.node(call).name, -1)
        for name, record in entry.items():
            full = f"{call.path}.{name}" if call.path else str(name)
            path = GRADIENTS + full.replace(".", "/")
            kind = PARAMETER_GRADIENTS[_BIAS.search(full) is not None]
            node = self._node(NodeInfo(path, path, kind, forward=forward))
            used = 0
            for each in came:
                used = self._tensors.take(each, node, Side.INPUT, number, place, used)
            self._tensors.take(record, node, Side.OUTPUT, number, place)
            if number == 1:
                self._step.summed.append(node)

    def _nest(self, data: Mapping[str, Any], construct: Mapping[str, Any]) -> None:
        """Finds out for every call which recorded module call is around it, and which call is the first inside it."""
        count = len(data)
        first = array("i", range(count))
        parents = array("i", [-1]) * count
        place = {key: at for at, key in enumerate(data)} if construct else {}
        for at, key in enumerate(place):
            around, hops = construct.get(key), 0
            while isinstance(around, str) and around not in place and hops < _MOST_MODULES:
                around, hops = construct.get(around), hops + 1
            parent = place.get(around, -1) if isinstance(around, str) else -1
            if parent >= 0 and parent != at:
                parents[at] = parent
                first[parent] = min(first[parent], first[at])
        self._parent, self._first = parents, first


def _saved_name(key: str) -> str:
    """The name under which the program saved a tensor: ``energy`` of ``energy.0.debug``."""
    parts = key.rsplit(".", 2)
    return parts[0] if len(parts) == 3 and parts[2] == "debug" and parts[0] else key


def _named_records(entry: object, depth: int = 0) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """The tensors in what the program saved, each with its path in it."""
    if depth > _DEPTH:
        return
    if isinstance(entry, dict):
        if "shape" in entry and "dtype" in entry:
            yield (), entry
        elif type(entry.get("type")) is not str:
            for key, value in entry.items():
                for path, record in _named_records(value, depth + 1):
                    yield (key, *path), record
    elif isinstance(entry, list):
        for at, value in enumerate(entry):
            for path, record in _named_records(value, depth + 1):
                yield (str(at), *path), record


class _Tensors:
    """The tensor records of a step, one after the other, until they become columns."""

    def __init__(self) -> None:
        self._records: list[dict[str, Any]] = []
        self._places, self._calls = array("q"), array("i")
        self._scalars: list[tuple[int, int, str]] = []
        self._groups: dict[int, tuple[int, ...]] = {}
        self._scalars_of: dict[int, int] = {}
        """By node the call whose scalars were taken: the first one."""

    def take(  # noqa: PLR0917 - called for every argument: names would take time
        self,
        value: object,
        node: int,
        side: Side,
        round: int,  # noqa: A002 - see base.TensorTable
        call: int,
        slot: int = 0,
        depth: int = 0,
    ) -> int:
        """Takes in an argument, or a list or dict of them; returns the slot after the last one."""
        if type(value) is list:
            items: Iterable[object] = value
        elif type(value) is dict:
            leaf = ("shape" in value and "dtype" in value) or type(value.get("type")) is str
            items = (value,) if leaf else value.values()
        elif value is None:
            return slot
        else:
            items = (value,)
        base = (min(round, _MOST_ROUNDS) << 49) | (node << 17) | (int(side) << 16)
        for item in items:
            kind = type(item)
            if slot > MAX_SLOTS:
                break
            if kind is dict and "shape" in item and "dtype" in item:  # type: ignore[operator]  # a dict, see above
                self._records.append(item)  # type: ignore[arg-type]  # as above
                self._places.append(base | slot)
                self._calls.append(call)
                slot += 1
            elif kind is list or (kind is dict and type(item.get("type")) is not str):  # type: ignore[attr-defined]
                slot = self.take(item, node, side, round, call, slot, depth + 1) if depth < _DEPTH else slot
            else:
                if side is Side.INPUT and self._scalars_of.setdefault(node, call) == call:
                    self._scalars.append((node, slot, _scalar_text(item)))
                    if kind is dict and type(item.get("group_ranks")) is list:  # type: ignore[attr-defined]  # a dict
                        ranks = item["group_ranks"]  # type: ignore[index]  # as above
                        self._groups[node] = tuple(each for each in ranks if type(each) is int)
                slot += 1
        return slot

    def fill(self, step: StepCalls) -> None:
        """Sets the columns of a step."""
        records = self._records
        places = np.array(self._places, np.int64)
        keep = np.arange(len(places))
        unique, first = np.unique(places, return_index=True)
        if len(unique) < len(places):
            keep = np.sort(first)
            lost = len(places) - len(unique)
            step.problems.append((CALLS, f"{lost:,} tensors have the name and place of others"))
            records = [records[at] for at in keep.tolist()]
        places = places[keep]
        step.round = (places >> 49).astype(np.int32)
        step.node = ((places >> 17) & 0xFFFFFFFF).astype(np.int32)
        step.side = ((places >> 16) & 1).astype(np.int32)
        step.slot = (places & 0xFFFF).astype(np.int32)
        step.call = np.array(self._calls, np.int32)[keep]
        step.scalars = self._scalars
        _fill_statistics(records, step)
        step.dtypes, step.dtype = _distinct([record["dtype"] for record in records], _dtype_name)
        step.shapes, step.shape = _distinct_shapes([record["shape"] for record in records])
        hashes = [record.get("md5") for record in records]
        if any(hashes):
            wanted = [hash(each) if type(each) is str and each not in _ZEROS else 0 for each in hashes]
            step.hashes = np.array(wanted, np.int64)
        names = [record.get("data_name") for record in records]
        step.has_file = np.zeros(len(records), np.bool_)
        if any(names):
            files = _file_names(names, step)
            step.files, step.has_file = Names.of(files), np.array([bool(each) for each in files], np.bool_)
        for node, ranks in self._groups.items():
            step.nodes[node].ranks = ranks


def _scalar_text(item: object) -> str:
    """What is shown of an argument that is no tensor: only what does not change from step to step by nature."""
    value = item.get("value") if isinstance(item, dict) else item
    if item is None or (isinstance(item, dict) and value is None and "value" in item):
        return "None"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return SCALAR


def _fill_statistics(records: Sequence[dict[str, Any]], step: StepCalls) -> None:
    columns, missing = [], []
    for name in ("Max", "Min", "Mean", "Norm"):
        values = [record.get(name) for record in records]
        column = _numbers(values)
        columns.append(column)
        missing.append(np.array([each is None for each in values], np.bool_) if np.isnan(column).any() else None)
    step.largest, step.smallest, step.mean, step.norm = columns
    none = [np.zeros(len(records), np.bool_) if each is None else each for each in missing]
    nans = [np.isnan(column) & ~absent for column, absent in zip(columns, none, strict=True)]
    # A mean can be NaN because +Inf met -Inf: it speaks only where the extremes were not recorded.
    step.nan = nans[0] | nans[1] | (none[0] & none[1] & (nans[2] | nans[3]))
    step.known = ~(none[0] & none[1] & none[2] & none[3])


def _numbers(values: Sequence[object]) -> Float64:
    """A column of numbers, NaN for None and for what is none."""
    try:
        found = np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.array([_number_or_nan(each) for each in values], np.float64)
    return found if found.ndim == 1 else np.full(len(values), np.nan)


def _number_or_nan(value: object) -> float:
    if not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _distinct(values: Sequence[object], name: Callable[[object], str]) -> tuple[tuple[str, ...], Int32]:
    """Distinct texts, and which of them each is."""
    numbers: dict[str, int] = {}
    try:
        by_value: dict[object, int] = {each: numbers.setdefault(name(each), len(numbers)) for each in set(values)}
        found = [by_value[each] for each in values]
    except TypeError:  # no text at all
        found = [numbers.setdefault(name(each), len(numbers)) for each in values]
    return tuple(numbers), np.array(found, np.int32)


def _dtype_name(token: object) -> str:
    text = token if isinstance(token, str) else ""
    return canonical_name(text) or text.lower().removeprefix("torch.")


def _distinct_shapes(values: Sequence[object]) -> tuple[tuple[tuple[int, ...], ...], Int32]:
    numbers: dict[tuple[Any, ...], int] = {}
    found = array("i")
    for value in values:
        try:
            found.append(numbers.setdefault(tuple(value), len(numbers)))  # type: ignore[arg-type]  # tried
        except TypeError:  # noqa: PERF203 - each by itself
            found.append(-1)
    wrong = [at for key, at in numbers.items() if not all(type(size) is int and 0 <= size < 1 << 62 for size in key)]
    column = np.array(found, np.int32)
    if wrong:
        column[np.isin(column, wrong)] = -1
    shapes = tuple(() if at in wrong else key for key, at in numbers.items())
    return shapes, column


def _file_names(values: Sequence[object], step: StepCalls) -> list[bytes]:
    """Names of files beside the calls; one that leads elsewhere is refused."""
    try:
        joined = "\n".join([each or "" for each in values])  # type: ignore[misc]  # tried
        found = joined.encode().split(b"\n") if values else []
        if len(found) == len(values) and not _LEADS_ELSEWHERE.search(joined):
            return found
    except (TypeError, UnicodeEncodeError):
        pass
    names, refused = [], 0
    for each in values:
        text = each if isinstance(each, str) else ""
        wrong = "/" in text or "\0" in text or text in {".", ".."} or not text.isprintable()
        refused += wrong
        names.append(b"" if wrong else text.encode())
    if refused:
        step.problems.append((CALLS, f"{refused:,} names of files lead elsewhere"))
    return names


# -- stacks -----------------------------------------------------------------------------------------------

_FRAME: Final = re.compile(
    r"\s*File (?P<path>.+?), line (?P<line>\d{1,9}), in (?P<function>.*?),?\s*\n(?P<code>.*)", re.DOTALL
)


def _read_stacks(groups: Mapping[str, Any], step: StepCalls) -> None:
    """Takes in ``stack.json``: groups of calls that share a stack."""
    frames_of: dict[str, Frame | None] = {}
    for group in groups.values():
        if not (isinstance(group, list) and len(group) == 2 and all(isinstance(each, list) for each in group)):
            continue
        calls, lines = group
        frames = []
        for line in lines:
            if not isinstance(line, str):
                continue
            if line not in frames_of:
                frames_of[line] = _frame(line)
            frame = frames_of[line]
            if frame is not None:
                frames.append(frame)
        if frames:
            step.stack_of.update(dict.fromkeys((key for key in calls if isinstance(key, str)), len(step.stacks)))
            step.stacks.append(tuple(frames))


def _frame(text: str) -> Frame | None:
    found = _FRAME.match(text)
    if found is None:
        return None
    line, path = int(found["line"]), found["path"]
    return Frame(path=path, line=line, code=found["code"].strip(), end_line=line, framework=is_framework(path))
