"""Dumps of SGLang as Sources: of its dumper, and of its option ``--debug-tensor-dump-output-folder``.

The dumper writes a file for each tensor. Steps are listed by names alone; of each tensor name one file is opened, but
not its values: it may hold request ids instead of a tensor, and it tells how ranks share the work and which part of a
larger tensor it is.

``non_intrusive__layers.0.mlp.output`` is an output of a module; all other names are tensors that the program recorded.
Tags that the program added, such as ``layer_id``, are the scope of such tensors; the tag of the micro-batch tells
rounds apart. Their gradients have no tags: the first gradient of a name belongs to the last tensor of that name.

The option writes the outputs of every pass. A pass is a step, its file a dictionary of the outputs of modules in the
order in which they ran. Outputs of the outermost module, the head and the logits processor are written with the next
pass, first in its file, and are moved to their own pass here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import Progress, ProgressFn, Side
from tui_debugger.sources.base import RankPlaces
from tui_debugger.sources.graphless import state_of_files
from tui_debugger.sources.sglang.layout import PASS, PASS_RANK, STEP_TAGS, SUFFIX, is_tagged, read_tags
from tui_debugger.sources.torch_dumps import (
    KeywordSlots,
    Layout,
    TorchDumpSource,
    TorchDumpTensor,
    TorchStepListing,
    gradient,
    module_tensor,
    modules_around,
    named_tensor,
    parameter,
    weight_gradient,
)
from tui_debugger.stats.torch_file import ONLY, SavedTree, member_of, read_tree
from tui_debugger.text.numbers import first_of

_GRADIENT: Final = "grad__"
_PARAMETER: Final = "param__"
_HOOK: Final = "non_intrusive__"
_INDEX: Final = "dump_index"
_KNOWN: Final = frozenset({*STEP_TAGS, "rank", _INDEX, "name", "recompute_status", "filename"})
_RANKS: Final = frozenset({"pp_rank", "tp_rank", "cp_rank", "ep_rank", "etp_rank"})
_ROUNDS: Final = frozenset({"microbatch", "micro_batch", "microbatch_id", "micro_batch_id", "mb"})
_HOOKED: Final = re.compile(r"(?:(.*)\.)?(?:(inputs)\.([^.]+(?:\..+)?)|(output)(?:\.(.+))?)", re.DOTALL)
_VALUE: Final = "/value"
_AXES: Final = frozenset(
    {*("tp", "pp", "dp", "cp", "vpp", "ep", "sp"), *("attn_tp", "attn_dp", "attn_cp", "moe_ep", "moe_tp", "moe_dp")}
)
"""Axes of parallelism that are shown; axes that Megatron derives from them are not."""
_INFO: Final = ("megatron_parallel_info", "sglang_parallel_info")
_PAIRED: Final = "gradients carry no layer_id: of several with one name the first belongs to the tensor recorded last"
_TOLD: Final = 8
_PROGRESS_EVERY: Final = 256
_LONG: Final = 200
_LARGEST: Final = 1 << 40


_Context = tuple[tuple[str, str], ...]
"""Tags that the program added, by name."""


@dataclass(frozen=True, slots=True)
class _Tags:
    """A file, by the tags in its name."""

    path: str
    index: int
    """Order of recording."""
    name: str
    """Without ``grad__``."""
    gradient: bool
    recomputed: bool
    """Recorded when a part ran a second time for the backward pass."""
    context: _Context
    """Tags that the program added."""

    @property
    def module(self) -> tuple[str, Side, str] | None:
        """(module, side, label of the input or output); None for other tensors."""
        found = _HOOKED.fullmatch(self.name[len(_HOOK) :]) if self.name.startswith(_HOOK) else None
        if found is None:
            return None
        return found[1] or "", Side.INPUT if found[2] else Side.OUTPUT, found[3] or found[5] or "0"


@dataclass(frozen=True, slots=True)
class _Saved:
    """The tensors that files of one name hold."""

    members: tuple[str, ...]
    """Places of the tensors."""
    what: str = ""
    """The content in words where there is no tensor; else empty."""
    dims: str = ""
    """Names of the dimensions, as the program gave them."""


class DumperSource(TorchDumpSource):
    """See ``base.Source``."""

    layout = "SGLang dumper"

    def __init__(self, root: Path, given: Path, notices: Sequence[str] = ()) -> None:
        self._saved: dict[tuple[int, str], _Saved] = {}
        self._others: dict[str, str] = {}
        self._parallel: dict[int, str] = {}
        self._axes: dict[int, dict[str, tuple[int, int]]] = {}
        self._around: dict[int, dict[str, bool]] = {}
        self._slots: dict[int, KeywordSlots] = {}
        self._weighted: dict[int, set[str]] = {}
        self._paired = False
        super().__init__(root, given, notices)

    def _find(self) -> Layout:
        root = os.fspath(self._root)
        layout = Layout(root)
        found: dict[int, dict[int, list[str]]] = {}
        parameters: dict[int, set[str]] = {}
        for name in layout.names(root):
            if not name.endswith(SUFFIX):
                continue
            tags = read_tags(name[: -len(SUFFIX)]) if is_tagged(name) else {}
            step = next((_number(tags[tag]) for tag in STEP_TAGS if tag in tags), None)
            rank = _number(tags.get("rank", "0"))
            if step is not None and rank is not None and tags.get("name"):  # the inventory looks at any other file
                found.setdefault(rank, {}).setdefault(step, []).append(f"{root}/{name}")
                what = tags["name"].removeprefix(_GRADIENT)
                if what.startswith(_PARAMETER):
                    parameters.setdefault(rank, set()).add(what[len(_PARAMETER) :])
                    if what == tags["name"]:
                        layout.parameters.setdefault(rank, set()).add(step)
        self._weighted = {rank: modules_around(names) for rank, names in parameters.items()}
        layout.units = {rank: {step: tuple(files) for step, files in steps.items()} for rank, steps in found.items()}
        layout.sort()
        return layout

    def parallel_places(self, rank: int) -> tuple[RankPlaces, str]:
        with self._lock:
            self.nodes(rank)  # looks into the files of a step
            return self._axes.get(rank, {}), "parallel_info of the dumper"

    def _layout_notices(self) -> Iterable[str]:
        yield from super()._layout_notices()
        if self._paired:
            yield _PAIRED
        if self._parallel:
            told = [f"rank {rank} is {text}" for rank, text in sorted(self._parallel.items())]
            yield first_of(told, _TOLD, "; ")
        if self._others:
            told = [f"{name} ({what})" for name, what in sorted(self._others.items())]
            yield "no tensors, and not judged: " + first_of(told, _TOLD)

    def _list(self, rank: int, step: int, files: tuple[str, ...], progress: ProgressFn) -> TorchStepListing:
        listing = TorchStepListing()
        looked: list[str] = []
        found = sorted((_tags_of(path) for path in files), key=lambda each: (each.index, each.path))
        around = self._around.setdefault(rank, {})
        modules = {each.module[0] for each in found if each.module is not None}
        outer = modules_around(modules | set(around))
        for module in modules:
            around.setdefault(module, module in outer)
        contexts = _contexts(found)
        self._paired = self._paired or any(
            each.gradient and each.module is None and each.context != context
            for each, context in zip(found, contexts, strict=True)
        )
        for at, (each, context) in enumerate(zip(found, contexts, strict=True)):
            if at % _PROGRESS_EVERY == 0:
                progress(Progress(at, len(found), f"listing step {step}"))
            saved = self._held_by_file(rank, each, looked)
            scope = "/".join(f"{name}={value}" for name, value in context)
            for number, member in enumerate(saved.members):
                tensor = self._tensor(rank, each, scope, member, number)
                listing.tensors.append(tensor)
                if saved.dims:
                    part = self._parallel.get(rank, "")
                    listing.placements[tensor.node] = f"dims {saved.dims}" + (f"; {part}" if part else "")
        listing.state = state_of_files(looked)
        return listing

    def _tensor(self, rank: int, tags: _Tags, scope: str, member: str, number: int) -> TorchDumpTensor:
        if tags.name.startswith(_PARAMETER):
            of = weight_gradient if tags.gradient else parameter
            return of(tags.name[len(_PARAMETER) :], tags.path, member)
        module = tags.module
        if tags.gradient:
            name = tags.name[len(_HOOK) :] if module is not None else tags.name
            return gradient(f"{scope}/{name}" if scope and module is None else name, tags.path, member, number)
        if module is None:
            return named_tensor(tags.name, scope, tags.path, member, number, tags.recomputed)
        label = f"{module[2]}.{number}" if number else module[2]
        slot = self._slots.setdefault(rank, KeywordSlots()).of(module[0], module[1], label)
        weighted = self._weighted.get(rank)
        return module_tensor(
            module[0],
            module[1],
            slot,
            tags.path,
            member,
            around=self._around[rank][module[0]],
            recomputed=tags.recomputed,
            partial=weighted is None or module[0] in weighted,
        )

    def _held_by_file(self, rank: int, tags: _Tags, looked: list[str]) -> _Saved:
        """The content of a file: the same as in other files of its name, if these hold one tensor."""
        name = (_GRADIENT if tags.gradient else "") + tags.name
        saved = self._saved.get((rank, name))
        if saved is not None and len(saved.members) == 1:
            return replace(saved, members=(ONLY,))
        first, saved = saved is None, self._open(rank, tags.path)
        if first or len(saved.members) == 1:
            self._saved.setdefault((rank, name), saved)
        if len(saved.members) != 1:
            looked.append(tags.path)
        if not saved.members:
            self._others[name] = saved.what
        return saved

    def _open(self, rank: int, path: str) -> _Saved:
        """Opens a file; an unreadable one counts as a tensor, whose reading will say why."""
        try:
            tree = read_tree(path)
        except UnreadableTensorError:
            return _Saved((_VALUE,))
        value, meta = tree.value, None
        if type(value) is dict and "value" in value and set(value) <= {"value", "meta"}:
            value, meta = value["value"], value.get("meta")
        meta = meta if type(meta) is dict else {}
        if rank not in self._axes and (axes := _parallel(meta)):
            self._axes[rank] = axes
            self._parallel[rank] = ", ".join(
                f"{axis} {place} of {size}"[:_LONG] for axis, (place, size) in axes.items()
            )
        dims = meta.get("dims")
        members = tuple(tree.members)
        return _Saved(members, "" if members else _words(value), dims[:_LONG] if type(dims) is str else "")


def _tags_of(path: str) -> _Tags:
    tags = read_tags(os.path.basename(path)[: -len(SUFFIX)])  # noqa: PTH119 - text all the way
    name = tags["name"]
    context = tuple(
        (tag, value) for tag, value in tags.items() if tag not in _KNOWN and tag not in _RANKS and tag not in _ROUNDS
    )
    return _Tags(
        path,
        _number(tags.get(_INDEX, "0")) or 0,
        name.removeprefix(_GRADIENT),
        name.startswith(_GRADIENT),
        tags.get("recompute_status") == "recompute",
        context,
    )


def _contexts(found: Sequence[_Tags]) -> list[_Context]:
    """The scope tags of each file; a gradient has the tags of the tensor that it belongs to.

    The backward pass reaches the tensor that was recorded last first.
    """
    values: dict[str, list[_Context]] = {}
    contexts: list[_Context] = []
    for each in found:
        context = each.context
        waiting = values.setdefault(each.name, [])
        if not each.gradient:
            if not each.recomputed:
                waiting.append(context)
        elif (at := _newest(waiting, context)) >= 0:
            context = waiting.pop(at)
        contexts.append(context)
    return contexts


def _newest(waiting: Sequence[_Context], context: _Context) -> int:
    """Index of the last context that includes these tags; -1 without one."""
    wanted = set(context)
    return next((at for at in range(len(waiting) - 1, -1, -1) if wanted <= set(waiting[at])), -1)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 16 and int(text) < _LARGEST else None


def _parallel(meta: dict[Any, Any]) -> dict[str, tuple[int, int]]:
    """Place of a rank along each axis, and the size of the axis."""
    for key in _INFO:
        info = meta.get(key)
        if type(info) is not dict:
            continue
        found: dict[str, tuple[int, int]] = {}
        for name, size in info.items():
            axis = name.removesuffix("_size") if type(name) is str else name
            place = info.get(f"{axis}_rank")
            if axis in _AXES and type(size) is int and size > 1 and type(place) is int and len(found) < _TOLD:
                found[axis] = (place, size)
        if found:
            return found
    return {}


def _words(value: Any) -> str:
    if type(value) in (list, tuple):
        return f"{len(value)} of {_words(value[0])}" if value else "an empty list"
    return {str: "text", type(None): "None", bool: "a flag", int: "a number", float: "a number"}.get(
        type(value), "an object"
    )


_LATE: Final = ("model", "lm_head", "logits_processor")
"""Modules whose outputs are written with the next pass."""
_FED: Final = "model.forward_batch_info."
"""The prefix of the inputs of a pass, which are written after its outputs."""
_NAMED: Final = 3


class PassSource(TorchDumpSource):
    """See ``base.Source``."""

    layout = "SGLang passes"

    def __init__(self, root: Path, given: Path, notices: Sequence[str] = ()) -> None:
        self._lacking: dict[int, str] = {}
        self._numbers: dict[int, tuple[int, int]] = {}
        super().__init__(root, given, notices)

    def _find(self) -> Layout:
        layout = Layout(os.fspath(self._root))
        processes: dict[int, list[str]] = {}
        for name in layout.names(layout.root):
            match = PASS_RANK.fullmatch(name)
            if match is not None:
                processes.setdefault(int(match[3]), []).append(name)
        for rank, found in processes.items():
            name = self._chosen(layout, rank, found)
            self._find_passes(layout, rank, name)
            match = PASS_RANK.fullmatch(name)
            if match is not None and rank in layout.units:
                self._numbers[rank] = int(match[1]), int(match[2])
        layout.sort()
        self._lacking = {}
        return layout

    def _chosen(self, layout: Layout, rank: int, names: list[str]) -> str:
        """The directory of a rank: the opened one, else the first one; the others are reported as unread."""
        given = Path(os.path.abspath(self._given))  # noqa: PTH100 - keeps links
        inside = [name for name in names if given.is_relative_to(os.path.abspath(self._root / name))]  # noqa: PTH100
        chosen = (inside or names)[0]
        for name in names:
            if name != chosen and not inside:
                layout.miss(f"{layout.root}/{name}", f"another process of rank {rank}: open it by itself", rank)
        return chosen

    def _find_passes(self, layout: Layout, rank: int, name: str) -> None:
        path = f"{layout.root}/{name}"
        names = layout.names(path, rank)
        found = {int(match[1]): f"{path}/{each}" for each in names if (match := PASS.fullmatch(each))}
        if found:
            layout.units[rank] = {step: (file, found.get(step + 1, "")) for step, file in found.items()}

    def _paths(self, unit: tuple[str, ...]) -> Iterable[str]:
        return unit[:1]

    def parallel_places(self, rank: int) -> tuple[RankPlaces, str]:
        """By the name of the rank's directory: tensor-parallel rank and pipeline stage."""
        with self._lock:
            sizes = [max(numbers, default=0) + 1 for numbers in zip(*self._numbers.values(), strict=True)]
            found = zip(("tp", "pp"), self._numbers.get(rank, ()), sizes, strict=False)
            return {axis: (number, size) for axis, number, size in found}, "names of directories"

    def _layout_notices(self) -> Iterable[str]:
        yield from super()._layout_notices()
        for rank, lacking in self._lacking.items():
            yield f"the last pass of rank {rank} lacks {lacking}: their outputs are written with the next pass"

    def _list(self, rank: int, step: int, files: tuple[str, ...], progress: ProgressFn) -> TorchStepListing:  # noqa: ARG002 - few files
        listing = TorchStepListing(state=state_of_files(path for path in files if path))
        own = self._read_pass(files[0], rank, step, listing)
        late, mine = _split(own) if step else ([], own)
        if late and step - 1 not in self._layout.units[rank]:
            told = ", ".join(dict.fromkeys(each.node for each in late[:_NAMED]))
            why = f"{told} in it are of pass {step - 1}, whose own file is missing"
            listing.parts.append(self._part(files[0], why, rank, step))
        fed = [each for each in mine if each.node.startswith(_FED)]
        listing.tensors = fed + [each for each in mine if not each.node.startswith(_FED)]
        if files[1]:
            listing.tensors += _split(self._read_pass(files[1], rank, step, listing, of_next=True))[0]
        elif step == max(self._layout.units[rank]):
            self._lacking[rank] = ", ".join(dict.fromkeys(each.node for each in late)) or ", ".join(_LATE)
        else:
            why = f"pass {step + 1} has no file, and with it outputs of this pass"
            listing.parts.append(self._part(files[0], why, rank, step))
        return listing

    def _read_pass(
        self, path: str, rank: int, step: int, listing: TorchStepListing, of_next: bool = False
    ) -> list[TorchDumpTensor]:
        try:
            tree = read_tree(path)
        except UnreadableTensorError as error:
            why = f"{error.what}; outputs of pass {step} are in it" if of_next else error.what
            listing.parts.append(self._part(path, why, rank, step))
            return []
        return _tensors(tree, path)


def _tensors(tree: SavedTree, path: str) -> list[TorchDumpTensor]:
    """The outputs in the order of the file; several outputs of a module are its slots."""
    found: list[TorchDumpTensor] = []
    counts: dict[str, int] = {}
    for place, _ in tree.tensors:
        module = str(place[0]) if place else ""
        slot = counts[module] = counts.get(module, -1) + 1
        found.append(module_tensor(module, Side.OUTPUT, slot, path, member_of(place)))
    return found


def _split(tensors: Sequence[TorchDumpTensor]) -> tuple[list[TorchDumpTensor], list[TorchDumpTensor]]:
    """The outputs of the previous pass, which stand first in a file, and the others."""
    end = next((at for at, each in enumerate(tensors) if not _is_late(each.node)), len(tensors))
    return list(tensors[:end]), list(tensors[end:])


def _is_late(node: str) -> bool:
    return node in _LATE or node.startswith(tuple(f"{name}." for name in _LATE[1:]))
