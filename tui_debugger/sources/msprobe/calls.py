"""Reads the calls of one rank in one step: ``dump.json``, ``construct.json`` and ``stack.json`` as columns.

A node is a call without its counter, named by the module that it was called in: ``layers/0/mlp/Functional.gelu``,
``layers/0/mlp/MLP`` for the module itself, ``Gradients/layers/0/mlp/MLP`` for its backward, ``layers.0.mlp.fc.weight``
for a parameter. A second call of the same kind in one module is ``Functional.gelu.1``. Where every module is called
several times in a step, these are micro-batches: rounds of the same nodes. Without modules (level L1) nothing tells
micro-batches from other calls, and a node has its name in the dump, ``Torch.log.0``.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Float64, Int32, Int64, Mask
from tui_debugger.graph.build import MAX_SLOTS
from tui_debugger.graph.categories import BACKWARD, PARAMETER_GRADIENTS
from tui_debugger.graph.table import PARAMETER
from tui_debugger.model import BIAS, Frame, Side
from tui_debugger.sources.base import ZEROS_DIGEST, Argument, CallArguments, Names, OtherArgument, TensorSlot
from tui_debugger.sources.msprobe.call_names import (
    MOST_MODULES,
    PARAMETERS_GRAD,
    RECOMPUTED,
    CallNames,
    ForwardCall,
    NodeInfo,
)
from tui_debugger.sources.msprobe.files import BadCallsError, StepFiles, read_files
from tui_debugger.sources.msprobe.layout import CALLS, TENSORS
from tui_debugger.sources.msprobe.unnamed import calls_of_files
from tui_debugger.stats.dtypes import canonical_name
from tui_debugger.stats.records import mean_tells_nan
from tui_debugger.text.numbers import plural

GRADIENTS: Final = "Gradients/"
"""Scope of the results of backward passes."""
SAVED_TYPE: Final = "Saved"
"""Type of tensors that the program saved by name."""
SCALAR: Final = "…"
"""Stands for an argument that is no tensor."""
_BIAS: Final = re.compile(BIAS)
_MOST_ROUNDS: Final = 0x3FFF
_LEADS_ELSEWHERE: Final = re.compile(r"[/\0]|^\.\.?$", re.MULTILINE)
_ZEROS: Final = frozenset({"0" * 8, "0x" + "0" * 16})
"""Digests of zeros of any shape."""
_DEPTH: Final = 64
"""Limit of nested lists."""
_STATISTICS: Final = ("Max", "Min", "Mean", "Norm")
_PIECE: Final = 1024
"""Number of records that are looked at together."""
_GRADIENT: Final = "_grad"
"""Suffix of the gradient of a tensor that the program saved."""


def _no_numbers() -> Int32:
    return np.zeros(0, np.int32)


def _no_reals() -> Float64:
    return np.zeros(0)


def _no_marks() -> Mask:
    return np.zeros(0, np.bool_)


@dataclass(slots=True)
class StepCalls:
    """The calls of one rank in one step.

    Columns have a row per tensor in the order of calls, parameters last, or per call.
    """

    nodes: list[NodeInfo] = field(default_factory=list)
    """In the order of their first calls; parameters where their module was called."""
    calls: int = 0
    node: Int32 = field(default_factory=_no_numbers)
    side: Int32 = field(default_factory=_no_numbers)
    slot: Int32 = field(default_factory=_no_numbers)
    round: Int32 = field(default_factory=_no_numbers)
    """``node``, ``side``, ``slot`` and ``round`` of each tensor: see ``base.TensorTable``."""
    call: Int32 = field(default_factory=_no_numbers)
    """Number of each tensor's call; -1: a parameter."""
    first: Int32 = field(default_factory=_no_numbers)
    """Number of the first call inside each call; its own number without any."""
    parent: Int32 = field(default_factory=_no_numbers)
    """Number of the module call around each call; -1 without one."""
    module: Mask = field(default_factory=_no_marks)
    """Mask of the calls of modules."""
    call_node: Int32 = field(default_factory=_no_numbers)
    largest: Float64 = field(default_factory=_no_reals)
    smallest: Float64 = field(default_factory=_no_reals)
    mean: Float64 = field(default_factory=_no_reals)
    norm: Float64 = field(default_factory=_no_reals)
    """Extremes, mean and norm as recorded; NaN where not recorded, or NaN."""
    nan: Mask = field(default_factory=_no_marks)
    """Mask of the tensors that hold NaN, by their statistics."""
    known: Mask = field(default_factory=_no_marks)
    """Mask of the tensors that have statistics."""
    dtypes: tuple[str, ...] = ()
    dtype: Int32 = field(default_factory=_no_numbers)
    """Index into ``dtypes``."""
    shapes: tuple[tuple[int, ...], ...] = ()
    shape: Int32 = field(default_factory=_no_numbers)
    """Index into ``shapes``; -1 without one."""
    hashes: Int64 | None = None
    """Number of each recorded digest; None without any."""
    hashes_are_sums: bool = False
    """Whether digests are the exclusive or of the elements, not a checksum."""
    contents: Int64 | None = None
    """Number that tells tensors with NaN apart by their values, 0 where nothing does; None: not computed."""
    digests_alone: bool = False
    """Whether all tensors but scalars have a digest only."""
    files: Names = field(default_factory=lambda: Names.of(()))
    """Names of the files with the values, empty without one."""
    has_file: Mask = field(default_factory=_no_marks)
    tensors_listed: bool = False
    """Whether the directory of these files exists."""
    scalars: list[tuple[int, int, str]] = field(default_factory=list)
    """(node, slot, text) of arguments that are no tensors."""
    links: list[tuple[int, int, int]] = field(default_factory=list)
    """(node, slot, node of the parameter) of the parameters of modules."""
    summed: list[int] = field(default_factory=list)
    """Nodes of gradients that hold the sum over micro-batches: each also depends on itself."""
    stacks: list[tuple[Frame, ...]] = field(default_factory=list)
    """Frames of calls, innermost first."""
    stack_of: dict[str, int] = field(default_factory=dict)
    """Index into ``stacks`` by call."""
    problems: list[tuple[str, str]] = field(default_factory=list)
    """(file, why) of unreadable parts beside the calls."""
    notices: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        """Number of tensors."""
        return len(self.node)

    def sizes(self) -> Int64:
        """Number of elements of every tensor; -1 for an unknown shape."""
        most = np.iinfo(np.int64).max
        counts = np.array([*(min(math.prod(shape), most) for shape in self.shapes), -1], np.int64)
        found: Int64 = counts[self.shape]
        return found


def read_calls(directory: str) -> StepCalls:
    """Reads the calls in the directory of a step and rank, or raises BadCallsError.

    A file that was listed and cannot be opened is an error, even if it is gone by now.
    """
    files = read_files(directory)
    builder = _built(files)
    builder.finish()
    if files.values is not None and files.values != (named := builder.files_named()):
        _tell_the_difference(files.values, named, builder.step)
    return builder.step


def read_entries(directory: str, known: Collection[str] = ()) -> dict[tuple[int, int], dict[str, Any]]:
    """Reads the forward calls of a step, unchanged, by (node, round) with the numbers of ``read_calls``.

    ``known``: files that ``read_calls`` could not read either. Raises BadCallsError when the calls cannot be read, or
    not as by ``read_calls``.
    """
    files = read_files(directory)
    for name, why in files.problems:
        if name not in known:
            raise BadCallsError(why)
    return _built(files).entries


def _built(files: StepFiles) -> _Builder:
    """Builds the calls of a step, with the calls of value files that ``dump.json`` does not name."""
    builder = _Builder(_new_step(files))
    builder.take_calls(files.data, files.construct)
    builder.take_saved(files.saved)
    unnamed = (files.values or frozenset()).difference(builder.files_named())
    if not unnamed:
        return builder
    more = calls_of_files(files.directory, unnamed, files.data, files.construct)
    builder = _Builder(_new_step(files))
    builder.take_calls({**files.data, **more}, files.construct)
    builder.take_saved(files.saved)
    if not files.data and not files.problems:
        return builder  # of AclGraphDumper, whose files no JSON names
    builder.step.notices.append(
        f"{CALLS} does not name all files in {TENSORS}, as if the recorder was killed: the names of the others tell "
        "which tensors they hold"
    )
    return builder


def _new_step(files: StepFiles) -> StepCalls:
    return StepCalls(
        tensors_listed=files.tensors_listed,
        stacks=files.stacks,
        stack_of=files.stack_of,
        problems=list(files.problems),
    )


def _tell_the_difference(values: Collection[str], named: Collection[object], step: StepCalls) -> None:
    """Reports files with values that belong to no call, and files that calls name and that are gone."""
    if left := len(set(values).difference(named)):
        step.problems.append((TENSORS, f"no place among the calls for {plural(left, 'file')} with values"))
    gone = {name.encode("utf-8", "replace") for name in set(named).difference(values) if isinstance(name, str)}
    lost = np.array([name in gone for name in step.files], np.bool_) if gone else np.zeros(0, np.bool_)
    if len(lost) and (lost := lost & step.known).any():
        step.has_file &= ~lost
        files = plural(int(lost.sum()), "file")
        why = f"{files} with values gone that {CALLS} names: the statistics that it recorded are judged"
        step.problems.append((TENSORS, why))


# -- calls ------------------------------------------------------------------------------------------------


def _summed_gradients(names: CallNames, data: Mapping[str, Any]) -> dict[str, tuple[int, list[object]]]:
    """By key of gradients of parameters: the round (0: there is one only), and the inputs of the module's backward."""
    gradients, backward = dict[str, list[str]](), dict[str, list[str]]()
    for key, (direction, call) in names.calls.items():
        if direction != "forward" and call.module and type(data.get(key)) is dict:
            (gradients if direction == PARAMETERS_GRAD else backward).setdefault(call.prefix, []).append(key)
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
    def __init__(self, step: StepCalls) -> None:
        self.step = step
        self._rows: dict[str, int] = {}
        self._tensors = _RecordColumns()
        self._parameters: dict[str, dict[str, Any]] = {}
        self._linked: set[tuple[int, int, int]] = set()
        self.entries: dict[tuple[int, int], dict[str, Any]] = {}
        """The forward calls, unchanged, by node and round, for ``read_entries``."""
        self._call_node, self._parent, self._module, self._first = array("i"), array("i"), array("b"), array("i")

    def take_calls(self, data: Mapping[str, Any], construct: Mapping[str, Any]) -> None:
        """Takes ``dump.json``, in the order of its keys."""
        names = CallNames(data, construct)
        summed = _summed_gradients(names, data)
        for place, (key, entry) in enumerate(data.items()):
            known = names.calls.get(key)
            module = False
            if type(entry) is not dict:
                self.step.problems.append((CALLS, f"{key[:80]} is no call"))
                node = -1
            elif known is None:
                node = self._node(NodeInfo(key, key.replace(".", "/", 1), "ForwardCall", key))
                self._tensors.take(entry, node, Side.OUTPUT, 0, place)
            elif key in summed:
                self._take_gradients(entry, names, known[1], (*summed[key], place))
                node = -1
            else:
                node, module = self._take_call(entry, names, known, place), known[1].module
            self._call_node.append(node)
            self._module.append(module)
        self._nest(data, construct)

    def _take_call(self, entry: dict[str, Any], names: CallNames, at: tuple[str, ForwardCall], place: int) -> int:
        """Takes a forward or backward call; returns its node."""
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
                values = list(named.values()) if isinstance(named, dict) else named
                used = take(values, node, Side.INPUT, call.round, place, used)
            if own:
                self._take_parameters(own, call, used, place)
        take(entry.get("output"), node, Side.OUTPUT, call.round, place)
        return node

    def take_saved(self, data: Mapping[str, Any]) -> None:
        """Takes ``debug.json``: tensors that the program saved by name, ``NAME.0.debug``, and their gradients."""
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

    def files_named(self) -> set[object]:
        return self._tensors.files_named()

    def finish(self) -> None:
        """Sets the columns, parameters last."""
        for name, record in self._parameters.items():
            self._tensors.take(record, self._rows[name], Side.OUTPUT, 0, -1)
        step = self.step
        step.calls = len(self._call_node)
        step.call_node, step.parent = np.array(self._call_node, np.int32), np.array(self._parent, np.int32)
        step.first, step.module = np.array(self._first, np.int32), np.array(self._module, np.bool_)
        self._tensors.fill(step)

    def _node(self, info: NodeInfo) -> int:
        row = self._rows.setdefault(info.name, len(self.step.nodes))
        if row == len(self.step.nodes):
            self.step.nodes.append(info)
        return row

    def _backward(self, names: CallNames, call: ForwardCall) -> int:
        if call.backward < 0:
            ahead = self.step.nodes[call.node] if call.node >= 0 else names.node(call)
            forward = call.node if call.node >= 0 else self._rows.get(ahead.name, -1)
            name = path = GRADIENTS + ahead.name.removeprefix(RECOMPUTED)
            if ahead.path != ahead.name:
                path = GRADIENTS + ahead.path.removeprefix(RECOMPUTED)
            kind = ahead.type + BACKWARD
            call.backward = self._node(NodeInfo(name, path, kind, call.key, forward, recomputed=ahead.recomputed))
        return call.backward

    def _take_parameters(self, own: object, call: ForwardCall, used: int, place: int) -> None:
        """Takes the parameters of a module: as inputs of the call, and as nodes of their own."""
        for slot, (name, record) in enumerate(own.items() if isinstance(own, dict) else (), used):
            self._tensors.take(record, call.node, Side.INPUT, call.round, place, slot)
            if isinstance(record, dict):
                full = f"{call.path}.{name}" if call.path else str(name)
                self._parameters.setdefault(full, record)
                node = self._node(NodeInfo(full, full.replace(".", "/"), PARAMETER))
                if (link := (call.node, slot, node)) not in self._linked:
                    self._linked.add(link)
                    self.step.links.append(link)

    def _take_gradients(
        self, entry: dict[str, Any], names: CallNames, call: ForwardCall, at: tuple[int, Sequence[object], int]
    ) -> None:
        """Takes the gradients of a module's parameters, as far as they were summed up by then.

        ``at``: the round, the inputs of the module's backward, the place in the dump.
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
                self.step.summed.append(node)

    def _nest(self, data: Mapping[str, Any], construct: Mapping[str, Any]) -> None:
        """Finds the recorded module call around each call, and the first call inside each."""
        count = len(data)
        first = array("i", range(count))
        parents = array("i", [-1]) * count
        place = {key: at for at, key in enumerate(data)} if construct else {}
        for at, key in enumerate(place):
            around, hops = construct.get(key), 0
            if around is None:
                continue
            while isinstance(around, str) and around not in place and hops < MOST_MODULES:
                around, hops = construct.get(around), hops + 1
            parent = place.get(around, -1) if isinstance(around, str) else -1
            if parent >= 0 and parent != at:
                parents[at] = parent
                first[parent] = min(first[parent], first[at])
        self._parent, self._first = parents, first


def _saved_name(key: str) -> str:
    """``energy`` of ``energy.0.debug``."""
    parts = key.rsplit(".", 2)
    return parts[0] if len(parts) == 3 and parts[2] == "debug" and parts[0] else key


def _named_records(entry: object, depth: int = 0) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yields the tensors of a saved entry, each with its path in it."""
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


class _RecordColumns:
    """Collects the tensor records of a step, and makes columns of them."""

    def __init__(self) -> None:
        self._records: list[dict[str, Any]] = []
        self._places, self._calls = array("q"), array("i")
        self._add_record = self._records.append
        self._add_place, self._add_call = self._places.append, self._calls.append
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
        """Takes an argument, or a list or dict of arguments; returns the slot after the last one."""
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
                self._add_record(item)  # type: ignore[arg-type]  # as above
                self._add_place(base | slot)
                self._add_call(call)
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

    def files_named(self) -> set[object]:
        return {name for record in self._records if type(name := record.get("data_name")) is str}

    def fill(self, step: StepCalls) -> None:
        records = self._records
        places = np.array(self._places, np.int64)
        keep = np.arange(len(places))
        ordered = np.sort(places)
        if (ordered[1:] == ordered[:-1]).any():
            keep = np.sort(np.unique(places, return_index=True)[1])
            lost = len(places) - len(keep)
            step.problems.append((CALLS, f"{lost:,} tensors have the name and place of others"))
            records = [records[at] for at in keep.tolist()]
        places = places[keep]
        step.round = (places >> 49).astype(np.int32)
        step.node = ((places >> 17) & 0xFFFFFFFF).astype(np.int32)
        step.side = ((places >> 16) & 1).astype(np.int32)
        step.slot = (places & 0xFFFF).astype(np.int32)
        step.call = np.array(self._calls, np.int32)[keep]
        step.scalars = self._scalars
        columns = _columns_of(records)
        scalars = _fill_scalars(columns) if any(columns["md5"]) else 0
        step.dtypes, step.dtype = _distinct(columns["dtype"], _dtype_name)
        step.shapes, step.shape = _distinct_shapes(columns["shape"])
        _fill_statistics([columns[name] for name in _STATISTICS], step)
        step.digests_alone = bool(any(columns["md5"])) and int(step.known.sum()) == scalars
        hashes = columns["md5"]
        if any(hashes):
            step.hashes = np.array([_digest(each) for each in hashes], np.int64)
            step.hashes_are_sums = any(type(each) is str and each.startswith("0x") for each in hashes)
        names = columns["data_name"]
        step.has_file = np.zeros(len(records), np.bool_)
        if any(names):
            files = _file_names(names, step)
            step.files, step.has_file = Names.of(files), np.array([bool(each) for each in files], np.bool_)
        for node, ranks in self._groups.items():
            step.nodes[node].ranks = ranks


def _digest(said: object) -> int:
    """A number for a digest, or for the number in place of one; 0 without."""
    if type(said) in {int, float}:
        return hash(f"number {said!r}")
    return 0 if type(said) is not str else ZEROS_DIGEST if said in _ZEROS else hash(said)


def _scalar_text(item: object) -> str:
    """The text of an argument that is no tensor, if it is the same in all healthy steps."""
    value = item.get("value") if isinstance(item, dict) else item
    if item is None or (isinstance(item, dict) and value is None and "value" in item):
        return "None"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return SCALAR


def _columns_of(records: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """The fields of records, as columns by key, None where missing.

    Piece by piece, while a record is still in the processor's cache.
    """
    columns: dict[str, list[Any]] = {key: [] for key in (*_STATISTICS, "dtype", "shape", "md5", "data_name")}
    for start in range(0, len(records), _PIECE):
        piece = records[start : start + _PIECE]
        for key, column in columns.items():
            column += [record.get(key) for record in piece]
    return columns


def _fill_scalars(columns: dict[str, list[Any]]) -> int:
    """Copies the values of scalars, which task xor writes in place of a digest; returns their number."""
    found = 0
    for at, said in enumerate(columns["md5"]):
        if type(said) in {int, float} and columns["shape"][at] == []:
            found += 1
            for key in _STATISTICS:
                columns[key][at] = said if columns[key][at] is None else columns[key][at]
    return found


def _fill_statistics(said: Sequence[Sequence[object]], step: StepCalls) -> None:
    """Sets the statistics of a step; its shapes must be set.

    One NaN makes all four NaN in PyTorch. MindSpore's extremes skip NaN: there the mean and the norm tell.
    """
    columns, missing = [], []
    for values in said:
        column, absent = _numbers(values)
        columns.append(column)
        missing.append(absent)
    step.largest, step.smallest, step.mean, step.norm = largest, smallest, _, norm = columns
    no_largest, no_smallest = missing[:2]
    nan_largest, nan_smallest, nan_mean, nan_norm = (
        np.isnan(column) & ~absent for column, absent in zip(columns, missing, strict=True)
    )
    finite = ~(np.isinf(largest) | np.isinf(smallest))
    nan = nan_largest | nan_smallest | (nan_norm & finite) | (nan_mean & mean_tells_nan(largest, smallest, norm))
    step.nan = nan & (step.sizes() != 0)
    # One extreme alone does not bound the other end, and a mean that is not finite says nothing of elements.
    alone = no_largest & no_smallest & (np.isfinite(step.mean) | np.isfinite(norm))
    step.known = step.nan | ~(no_largest | no_smallest) | alone | (step.sizes() == 0)  # of no elements all is known


def _numbers(values: Sequence[object]) -> tuple[Float64, Mask]:
    """A column of numbers with NaN for missing ones, and the mask of missing ones."""
    try:
        found = np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.zeros(0)
    if found.shape == (len(values),):
        absent = np.zeros(len(values), np.bool_)
        if np.isnan(found).any():
            absent = np.array([each is None for each in values], np.bool_)
        return found, absent
    numbers = [_number(each) for each in values]
    absent = np.array([each is None for each in numbers], np.bool_)
    return np.array([math.nan if each is None else each for each in numbers], np.float64), absent


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, (int, float, str)) else None
    except ValueError:
        return None
    except OverflowError:
        return math.inf if isinstance(value, int) and value > 0 else -math.inf


def _distinct(values: Sequence[object], name: Callable[[object], str]) -> tuple[tuple[str, ...], Int32]:
    """Distinct texts, and the index of each value's text."""
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
    found: Sequence[int]
    try:
        keys: list[tuple[Any, ...]] = list(map(tuple, values))  # type: ignore[arg-type]  # tried
        numbers.update((key, at) for at, key in enumerate(dict.fromkeys(keys)))
        found = list(map(numbers.__getitem__, keys))
    except TypeError:
        found = [_number_of(value, numbers) for value in values]
    wrong = [at for key, at in numbers.items() if not all(type(size) is int and 0 <= size < 1 << 62 for size in key)]
    column = np.array(found, np.int32)
    if wrong:
        column[np.isin(column, wrong)] = -1
    shapes = tuple(() if at in wrong else key for key, at in numbers.items())
    return shapes, column


def _number_of(shape: object, numbers: dict[tuple[Any, ...], int]) -> int:
    try:
        return numbers.setdefault(tuple(shape), len(numbers))  # type: ignore[arg-type]  # tried
    except TypeError:
        return -1


def _file_names(values: Sequence[object], step: StepCalls) -> list[bytes]:
    """Names of files beside the calls; a name that leads elsewhere is refused."""
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


# -- arguments ---------------------------------------------------------------------------------------------

_PLAIN: Final = {"float": float, "int": int, "bool": bool, "str": str}
_NOT_FINITE: Final = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class StepArguments:
    """The arguments of the calls of one step."""

    def __init__(self, directory: str, rows: Int32, known: Collection[str] = ()) -> None:
        """Reads the calls again, or raises BadCallsError.

        ``rows``: the table row of every node of the step. ``known``: see ``read_entries``.
        """
        self._rounds: dict[int, dict[int, dict[str, Any]]] = {}
        for (node, number), entry in read_entries(directory, known).items():
            self._rounds.setdefault(int(rows[node]), {})[number] = entry

    def of(self, row: int, round: int) -> CallArguments | None:  # noqa: A002 - see base.Source
        """The arguments of a node's forward call; round 0 is the newest one."""
        rounds = self._rounds.get(row, {})
        entry = rounds.get(round, rounds.get(0)) if round else rounds.get(max(rounds, default=0))
        return None if entry is None else _arguments(entry)


def _arguments(entry: Mapping[str, Any]) -> CallArguments:
    """Counts slots as ``_Builder`` does: positional ones, keywords, parameters of the module."""
    slots = _ArgumentSlots()
    positional = entry.get("input_args")
    if isinstance(positional, list):
        values = slots.items(positional)
    else:
        values = () if positional is None else slots.items((positional,))
    named, own = entry.get("input_kwargs"), entry.get("parameters")
    keywords = slots.named(named) if isinstance(named, dict) else {}
    parameters = slots.named(own) if isinstance(own, dict) else None
    return CallArguments(values, keywords, parameters=parameters)


class _ArgumentSlots:
    """Gives arguments the slots that their tensors have."""

    def __init__(self) -> None:
        self._next = 0

    def items(self, values: Iterable[object], depth: int = 0) -> tuple[Argument, ...]:
        return tuple([self._one(value, depth) for value in values])

    def named(self, values: Mapping[str, object], depth: int = 0) -> dict[str, Argument]:
        return {str(key): self._one(value, depth) for key, value in values.items()}

    def _one(self, value: object, depth: int) -> Argument:
        if isinstance(value, dict) and not ("shape" in value and "dtype" in value):
            if type(value.get("type")) is not str:
                return self.named(value, depth + 1) if depth < _DEPTH else OtherArgument("dict")
        elif isinstance(value, list):
            return self.items(value, depth + 1) if depth < _DEPTH else OtherArgument("list")
        slot, self._next = self._next, self._next + 1
        if isinstance(value, dict):
            return TensorSlot(slot) if "shape" in value and "dtype" in value else _scalar(value)
        return value if value is None or isinstance(value, (bool, int, float, str)) else OtherArgument("")


def _scalar(record: Mapping[str, Any]) -> Argument:
    kind, value = record["type"], record.get("value")
    if value is None and "value" in record:
        return None
    if kind == "slice" and isinstance(value, list) and len(value) == 3:
        return slice(*(each if isinstance(each, int) else None for each in value))
    if kind == "float" and isinstance(value, str):
        return _NOT_FINITE.get(value.lower(), OtherArgument(kind, value))
    wanted = _PLAIN.get(kind)
    if wanted is float and isinstance(value, int):
        return float(value)
    if isinstance(value, (bool, int, float, str)) and type(value) is wanted:
        return value
    return OtherArgument(kind, value if isinstance(value, str) else "")
