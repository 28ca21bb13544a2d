"""Files that Megatron-LM saves of an iteration as a Source: activations, weights, and gradients of both.

A file holds a dictionary for each chunk of the model, with keys ``decoder.layers.0.mlp.linear_fc1/input0`` for
activations and their gradients, else names of parameters. Of activations and their gradients only the last micro-batch
was saved, and only linear modules were recorded.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ProgressFn, Side
from tui_debugger.notes import NO_NOTES, RunNotes
from tui_debugger.opener import read_lines, why_not
from tui_debugger.sources.base import RankPlaces
from tui_debugger.sources.graphless import state_of_files
from tui_debugger.sources.megatron.layout import ACTIVATIONS, DGRADS, FILE, ITERATION, KINDS, PARAMS, TOKENS, WGRADS
from tui_debugger.sources.rank_names import megatron_numbers, rank_of_folder
from tui_debugger.sources.torch_dumps import (
    Layout,
    TorchDumpSource,
    TorchDumpTensor,
    TorchStepListing,
    gradient,
    module_tensor,
    modules_around,
    parameter,
    weight_gradient,
)
from tui_debugger.stats.saved_objects import Path as Place
from tui_debugger.stats.torch_file import member_of, read_tree
from tui_debugger.text.numbers import first_of, plural

_SIDED: Final = re.compile(r"(input|output)(\d{1,4})")
_FIRST_CHUNK: Final = "model_chunk0"
_LINES: Final = ".jsonl"
"""The suffix of the token counts of experts: ``rank0.jsonl``."""
_LAST_MICRO_BATCH: Final = (
    "of activations and their gradients there is only the last micro-batch of an iteration, weight gradients are of "
    "all: what went wrong in an earlier one shows in weight gradients alone"
)
_ONLY_LINEAR: Final = "only linear modules were recorded: what begins between two of them is seen first in the next one"
_TOLD: Final = 8

_Rank = tuple[int, ...]
"""The numbers in the name of a file."""


class MegatronSource(TorchDumpSource):
    """See ``base.Source``."""

    layout = "Megatron-LM"

    def __init__(self, root: Path, given: Path, notices: Sequence[str] = ()) -> None:
        self._values: dict[str, str] = {}
        self._notes: dict[int, RunNotes] = {}
        self._numbers: dict[int, _Rank] = {}
        super().__init__(root, given, notices)

    def _find(self) -> Layout:
        layout = Layout(os.fspath(self._root))
        found: dict[_Rank, dict[int, list[str]]] = {}
        kinds: set[str] = set()
        weighted: dict[_Rank, set[int]] = {}
        listed = layout.names(layout.root)
        for kind in (each for each in KINDS if each in listed):
            path = os.fspath(self._root / kind)
            for name in layout.names(path):
                match = ITERATION.fullmatch(name)
                if match is None:
                    continue
                for file in layout.names(f"{path}/{name}"):
                    rank = megatron_numbers(file.removesuffix(FILE)) if file.endswith(FILE) else ()
                    if rank:
                        found.setdefault(rank, {}).setdefault(int(match[1]), []).append(f"{path}/{name}/{file}")
                        kinds.add(kind)
                        if kind == PARAMS:
                            weighted.setdefault(rank, set()).add(int(match[1]))
        ranks = _rank_numbers(found)
        self._numbers = {rank: numbers for numbers, rank in ranks.items()}
        layout.parameters = {ranks[key]: steps for key, steps in weighted.items()}
        layout.units = {ranks[key]: {step: tuple(each) for step, each in steps.items()} for key, steps in found.items()}
        layout.sort()
        layout.notices += _rank_notices(ranks)
        if kinds & {ACTIVATIONS, DGRADS}:
            layout.notices += [_LAST_MICRO_BATCH, _ONLY_LINEAR]
        if TOKENS in listed:
            self._read_tokens(layout)
        return layout

    def _layout_notices(self) -> Iterable[str]:
        yield from super()._layout_notices()
        if self._values:
            told = [f"{name} ({value})" for name, value in sorted(self._values.items())]
            yield "no tensors, and not judged: " + first_of(told, _TOLD)

    def parallel_places(self, rank: int) -> tuple[RankPlaces, str]:
        """By the names of the rank's files; empty for two numbers, whose second axis is unknown."""
        with self._lock:
            numbers = self._numbers.get(rank, ())
            if len(numbers) == 2 or len({len(each) for each in self._numbers.values()}) != 1:
                return {}, ""
            sizes = [max(of) + 1 for of in zip(*self._numbers.values(), strict=True)]
            return dict(zip(("tp", "pp", "ep"), zip(numbers, sizes, strict=True), strict=False)), "names of files"

    def notes(self, rank: int) -> RunNotes:
        """The tokens that each expert got, by layer."""
        return self._notes.get(rank, NO_NOTES)

    def _list(self, rank: int, step: int, files: tuple[str, ...], progress: ProgressFn) -> TorchStepListing:  # noqa: ARG002 - few files
        listing = TorchStepListing(state=state_of_files(files))
        for path in files:
            kind = os.path.relpath(path, self._root).split(os.sep, 1)[0]
            try:
                tree = read_tree(path)
            except UnreadableTensorError as error:
                listing.parts.append(self._part(path, error.what, rank, step))
                continue
            if type(tree.value) is dict:
                self._note_values(tree.value)
            places = [place for place, _ in tree.tensors]
            if kind in {ACTIVATIONS, DGRADS}:
                listing.tensors += _modules(places, tree.value, path, kind == DGRADS)
            else:
                of = weight_gradient if kind == WGRADS else parameter
                listing.tensors += [of(_chunk(place) + _key(place), path, member_of(place)) for place in places]
        return listing

    def _note_values(self, value: dict[Any, Any]) -> None:
        """Notes entries that are no tensors, such as the number of tokens of each expert."""
        for chunk in value.values():
            for key, each in chunk.items() if type(chunk) is dict else ():
                if type(each) in (int, float, bool, str, type(None)):
                    self._values[str(key)] = type(each).__name__
                elif type(each) is list and all(type(item) in (int, float) for item in each):
                    self._values[str(key)] = "a list of numbers"

    def _read_tokens(self, layout: Layout) -> None:
        path = os.fspath(self._root / TOKENS)
        found: dict[int, RunNotes] = {}
        for name in layout.names(path):
            rank = rank_of_folder(name.removesuffix(_LINES)) if name.endswith(_LINES) else None
            if rank is None:
                continue
            try:
                lines = list(read_lines(Path(path, name), cut=True))
            except OSError as error:
                layout.miss(f"{path}/{name}", why_not(f"{path}/{name}", error))
                continue
            notes = self._notes.get(rank) or RunNotes()
            told = [_tokens_of(line) for line in lines if line.strip()]
            notes.add(note for note in told if note is not None)
            if not told or None in told:
                why = f"{plural(told.count(None), 'line')} that tell of no tokens" if told else "empty"
                layout.miss(f"{path}/{name}", why)
            found[rank] = notes
        left = sorted(set(found).difference(layout.units))
        if left:
            layout.notices.append(
                f"{TOKENS} of rank {', '.join(map(str, left[:_TOLD]))}: no other file is of that rank"
            )
        self._notes = found


def _rank_numbers(found: Iterable[_Rank]) -> dict[_Rank, int]:
    """The rank of each file: its number, or its place in order where files have several numbers."""
    ordered = sorted(found)
    plain = all(len(each) == 1 for each in ordered)
    return {each: each[0] if plain else place for place, each in enumerate(ordered)}


def _rank_notices(ranks: dict[_Rank, int]) -> list[str]:
    """Explains the numbers in names, as far as that is certain."""
    longest = max((len(each) for each in ranks), default=0)
    if longest <= 1:
        return ["ranks are numbers of tensor-parallel ranks, of the first data-parallel one"]
    named = [(f"mp_rank_{each[0]:02}" + "".join(f"_{n:03}" for n in each[1:]), rank) for each, rank in ranks.items()]
    told = first_of([f"{name} is rank {rank}" for name, rank in named], _TOLD)
    axes = (
        "the numbers are of tensor-parallel ranks, pipeline stages and experts"
        if longest > 2
        else "the second number is of pipeline stages or of experts: the names do not tell which"
    )
    return [f"{told}; {axes}", "where there are pipeline stages, layers are counted from the start of each"]


def _key(place: Place) -> str:
    return ".".join(str(each) for each in place[1:]) if len(place) > 1 else str(place[0]) if place else ""


def _chunk(place: Place) -> str:
    """The prefix of names in all chunks of the model but the first."""
    return f"{place[0]}." if len(place) > 1 and place[0] != _FIRST_CHUNK else ""


def _modules(places: Sequence[Place], value: Any, path: str, backward: bool) -> list[TorchDumpTensor]:
    """Inputs and outputs of modules in the order of the file; keyword arguments follow the other inputs."""
    split = [_split(place) for place in places]
    outer = modules_around(module for module, _ in split)
    numbered: dict[str, int] = {}
    for module, label in [*split, *_labels(value)]:
        match = _SIDED.fullmatch(label)
        if match is not None and match[1] == "input":
            numbered[module] = max(numbered.get(module, 0), int(match[2]) + 1)
    found: list[TorchDumpTensor] = []
    for place, (module, label) in zip(places, split, strict=True):
        member, match = member_of(place), _SIDED.fullmatch(label)
        if backward:
            found.append(gradient(f"{module}.{label}", path, member))
        elif match is not None:
            side = Side.INPUT if match[1] == "input" else Side.OUTPUT
            found.append(module_tensor(module, side, int(match[2]), path, member, around=module in outer, partial=True))
        else:
            slot = numbered[module] = numbered.get(module, 0) + 1
            found.append(
                module_tensor(module, Side.INPUT, slot - 1, path, member, around=module in outer, partial=True)
            )
    return found


def _split(place: Place) -> tuple[str, str]:
    """The module, and the label of its input or output."""
    module, slash, label = str(place[1] if len(place) > 1 else place[0] if place else "").rpartition("/")
    rest = "".join(f".{each}" for each in place[2:])
    return (_chunk(place) + module, label + rest) if slash else (_chunk(place) + label + rest, "output0")


def _labels(value: Any) -> list[tuple[str, str]]:
    """``_split`` of all keys, also of keys without tensors."""
    if type(value) is not dict:
        return []
    return [_split((chunk, key)) for chunk, keys in value.items() if type(keys) is dict for key in keys]


def _tokens_of(line: bytes) -> tuple[int, dict[str, str]] | None:
    """The iteration, and the tokens of the experts of a layer by micro-batch; None for any other line."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if type(found) is not dict or type(found.get("iter")) is not int or type(found.get("tpe")) is not list:
        return None
    rows = [each for each in found["tpe"] if type(each) is list]
    layer, block = found.get("layer"), found.get("block")
    name = f"tokens per expert, {'' if block == 'decoder' else f'{block!s:.10} '}layer {layer!s:.10}"
    return found["iter"], {name: " | ".join(" ".join(str(count) for count in row[:64]) for row in rows[:64])}
