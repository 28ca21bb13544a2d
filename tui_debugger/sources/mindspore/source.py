"""A MindSpore dump as a Source: ranks with run history, steps, nodes and tensors, read on demand and kept."""

from __future__ import annotations

import ast
import json
import os
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from tui_debugger import opener
from tui_debugger.cache.store import DiskCache
from tui_debugger.errors import BadGraphError
from tui_debugger.graph.messages import CALL, ParsedGraph, read_graph
from tui_debugger.graph.table import NodeTable, real_inputs
from tui_debugger.model import GraphRun, ProgressFn, ReadSpec, RunInfo, UnreadablePart, no_progress, sorted_parts
from tui_debugger.notes import RunNotes
from tui_debugger.opener import METADATA_LIMIT, read_regular, why_not
from tui_debugger.sources.base import (
    NOT_RECORDED,
    Argument,
    CallArguments,
    Capability,
    Changes,
    OtherArgument,
    StepEntries,
    StepPlace,
    TensorSlot,
    TensorTable,
    Writer,
)
from tui_debugger.sources.mindspore.device_tree import list_devices
from tui_debugger.sources.mindspore.layout import SHOWS, RunLocation, is_digits, list_ranks
from tui_debugger.sources.mindspore.names import writer_of
from tui_debugger.sources.mindspore.nodes import graph_paths, may_have_graph
from tui_debugger.sources.mindspore.rank import RankRun
from tui_debugger.sources.mindspore.statistics import read_rows
from tui_debugger.sources.mindspore.steps import StatisticFiles
from tui_debugger.sources.registry import Has, Shows
from tui_debugger.sources.scope import RunPart, Scope, part_of_run, scope_at, whole_run

OperatorAttributes = Mapping[tuple[str, str], tuple[tuple[str, str], ...]]
"""Names and texts of the attributes of operators, by graph and full name."""
_VALUES = (bool, int, float, str)
METADATA_DIRECTORY = ".dump_metadata"
_RECORDING = (1, 2, 3)
"""Values of ``op_debug_mode`` that ask for records of overflows: of the AI core, of atomic additions, of both."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """The facts in a rank's metadata; empty strings where unknown."""

    net: str = ""
    version: str = ""
    device: str = ""
    iteration: str = ""
    """The steps that were asked for, for example ``0|5-8`` or ``all``."""
    saved: str = ""
    """``tensor``, ``statistic`` or ``full``."""
    program: str = ""
    """Framework and version of a training whose dump tdbg itself wrote."""
    ranks: int = 0
    """Number of ranks of the training; 0 where unknown."""
    tells_overflow: bool = False
    """The device was told to record operators that overflow, in a mode in which it does."""
    steps_alike: bool = True
    """Every step of a graph should have the same tensors: not only overflowed operators were dumped, and no program
    chose the tensors.
    """
    notices: tuple[str, ...] = ()
    parts: tuple[UnreadablePart, ...] = ()


def read_metadata(rank: Path) -> Metadata:
    """Reads the metadata of a rank; anything missing or broken becomes a notice."""
    directory = rank / METADATA_DIRECTORY
    notices: list[str] = []
    parts: list[UnreadablePart] = []
    if METADATA_DIRECTORY not in _listed(rank, parts) or opener.isfile(directory):
        lacks = f"{rank.name} has no {METADATA_DIRECTORY}: net name, version and device are unknown"
        return Metadata(notices=(lacks,), parts=tuple(parts))
    listed = _listed(directory, parts)
    settings = _read(directory / "data_dump.json", listed, notices, parts)
    config = _read(directory / "config.json", listed, notices, parts)
    common, synchronous = (_object(settings, name) for name in ("common_dump_settings", "e2e_dump_settings"))
    version, program = _text(config.get("ms_version")), _text(config.get("program"))
    # From 2.3 on the host decides: it dumps operators whose values are not finite, and records nothing.
    records = common.get("op_debug_mode") in _RECORDING and bool(version) and not at_least(version, 2, 3)
    return Metadata(
        net=_text(common.get("net_name")),
        version=version,
        device=_text(config.get("device_target")),
        iteration=_text(common.get("iteration")),
        saved=_text(common.get("saved_data")),
        program=program,
        ranks=_ranks(directory / "hccl.json", listed, notices, parts),
        tells_overflow=records and not synchronous.get("enable"),
        steps_alike=not program and not common.get("op_debug_mode"),
        notices=tuple(notices),
        parts=tuple(parts),
    )


def at_least(version: str, major: int, minor: int) -> bool:
    """Whether a version text is at least major.minor; an unknown version is not."""
    parts = version.split(".")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        return False
    return (int(parts[0]), int(parts[1])) >= (major, minor)


def _listed(directory: Path, parts: list[UnreadablePart]) -> Collection[str]:
    try:
        return opener.listdir(directory)
    except OSError as error:
        where = directory.name if directory.name != METADATA_DIRECTORY else f"{directory.parent.name}/{directory.name}"
        parts.append(UnreadablePart(where, why_not(directory, error), graph=True))
        return ()


def _read(path: Path, listed: Collection[str], notices: list[str], parts: list[UnreadablePart]) -> dict[str, Any]:
    name = f"{path.parent.parent.name}/{METADATA_DIRECTORY}/{path.name}"
    if path.name not in listed:
        notices.append(f"{name} is missing")
        return {}
    try:
        content = json.loads(read_regular(path, METADATA_LIMIT).decode("utf-8", "replace"))
    except OSError as error:
        notices.append(f"{name} cannot be read")
        parts.append(UnreadablePart(name, why_not(path, error, wanted="a file"), graph=True))
    except (ValueError, RecursionError):
        notices.append(f"{name} cannot be read")
    else:
        if isinstance(content, dict):
            return content
        notices.append(f"{name} is no JSON object")
    return {}


def _object(settings: dict[str, Any], name: str) -> dict[str, Any]:
    found = settings.get(name)
    return found if isinstance(found, dict) else {}


def _ranks(path: Path, listed: Collection[str], notices: list[str], parts: list[UnreadablePart]) -> int:
    """Number of ranks in the table of devices that a distributed training on Ascend has."""
    servers = _read(path, listed, notices, parts).get("server_list") if path.name in listed else None
    devices = [each.get("device") for each in servers if isinstance(each, dict)] if isinstance(servers, list) else []
    return sum(len(each) for each in devices if isinstance(each, list))


def _text(value: object) -> str:
    return str(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else ""


class MindSporeSource:
    """See ``base.Source``. A rank is looked at when it is first asked for."""

    def __init__(self, found: RunLocation, store: DiskCache | None = None, notices: Sequence[str] = ()) -> None:
        """Reads the names of ranks and the metadata; ``store`` remembers listings, ``notices`` come first."""
        self._given_notices = tuple(notices)
        self._found = found
        self._store = store
        self._statistics = StatisticFiles()
        self._lock = threading.RLock()
        self._list = list_devices if found.by_device else list_ranks
        self._listed = self._list(found.root)
        self._directories = self._listed.directories
        self._scope: Scope | None = None
        self._metadata = self._read_metadata()
        self._ranks: dict[int, RankRun] = {}
        self._graph_ranks: tuple[int, ...] | None = None
        self._may_have_graph: bool | None = None
        self._attributes: dict[int, tuple[tuple[Path, ...], OperatorAttributes]] = {}

    @property
    def info(self) -> RunInfo:
        metadata = self._metadata
        with self._lock:
            ranks = [self._ranks[number] for number in sorted(self._ranks)]
        version = metadata.version or next((rank.generation for rank in ranks if rank.generation), "")
        nets = tuple(dict.fromkeys(net for rank in ranks for net in rank.nets))
        notices = [*self._given_notices, *self._own_notices(nets), *metadata.notices]
        for rank in ranks:
            notices += rank.notices()
        layout = f"MindSpore {version} dump" if version else "MindSpore dump"
        if self._found.by_device:
            layout = "Ascend GE/ACL dump"
        return RunInfo(
            path=str(self._found.root),
            layout=f"saved from {metadata.program}" if metadata.program else layout,
            title=metadata.net or ", ".join(nets),
            framework_version="" if metadata.program else metadata.version,
            device=metadata.device,
            notices=tuple(dict.fromkeys(notices)),
            framework=metadata.program or (f"MindSpore {version}" if version else "MindSpore"),
        )

    @property
    def shows(self) -> Shows:
        """The abilities of this dump: no values if its configuration, or the listed steps, have statistics only."""
        with self._lock:
            listed = [rank.has_values for rank in self._ranks.values()]
        known = [each for each in listed if each is not None]
        statistics_only = not any(known) if known else self._metadata.saved == "statistic"
        return replace(SHOWS, values=Has.NO, statistics=Has.YES) if statistics_only else SHOWS

    @property
    def capabilities(self) -> Capability:
        if self._may_have_graph is None:
            self._may_have_graph = any(may_have_graph(path) for path in self._directories.values())
        graph = self._may_have_graph
        return Capability.GROWS | (Capability.GRAPH if graph else Capability.NONE)

    @property
    def scope(self) -> Scope:
        """The rank, graph, step or file that the opened path names."""
        scope = self._scope
        if scope is None:
            scope = self._scope = self._find_scope()
        return scope

    def _find_scope(self) -> Scope:
        found = self._found
        if found.by_device:
            return scope_at(found.root, found.given, chain.from_iterable(map(self._device_parts, self._directories)))
        if not found.inside:
            return whole_run(found.given, root=found.root)
        here, parts = f"{found.root}/{found.inside}", found.inside.split("/")
        if found.beside or found.rank is None:
            return part_of_run(found.root, here, ())
        net, *below = [*parts[1:], ""]
        held = list(self._rank(found.rank).places())
        graph = int(below[0]) if below and is_digits(below[0]) else None
        graphs = {each[1] for each in held if each[0] == net and graph in {None, each[1]}}
        if not graphs:  # graphs and metadata are about the whole rank
            here = f"{found.root}/{parts[0]}"
        if graphs == {each[1] for each in held} or not graphs:  # the rank has nothing else
            places = [RunPart(found.rank, found.step)]
        else:
            places = [RunPart(found.rank, found.step, each) for each in sorted(graphs)]
        is_inside = graph is not None and len(below) > 3  # graph, step, more, and the empty end
        alike = [os.fspath(path) for path in self._directories.values()] + [each[3] for each in held]
        return part_of_run(found.root, here, places, files=is_inside, alike=alike)

    def _device_parts(self, rank: int) -> Iterator[tuple[RunPart, str]]:
        """Yields the steps of a device, each with its directory; with the graph where there are several."""
        held = list(self._rank(rank).places())
        several = len({graph for _, graph, _, _ in held}) > 1
        for _, graph, step, path in held:
            if step is not None:
                yield RunPart(rank, step, graph if several else None), path

    def ranks(self) -> Sequence[int]:
        return list(self._directories)

    def steps(self, rank: int) -> Sequence[int]:
        return self._rank(rank).steps()

    def history(self, rank: int) -> Sequence[GraphRun]:
        return self._rank(rank).history()

    def previous_run(
        self,
        rank: int,
        root_graph: int,
        step: int,
        round: int = 0,  # noqa: A002 - see base.Source
    ) -> tuple[int, int] | None:
        return self._rank(rank).previous_run(root_graph, step, round)

    def unreadable(self) -> Sequence[UnreadablePart]:
        with self._lock:
            parts = [*self._listed.parts, *self._metadata.parts]
            ranks = [rank for number, rank in self._ranks.items() if number in self._directories]
        for rank in ranks:
            parts += rank.unreadable()
        return sorted_parts(parts)

    def places(self) -> Iterator[StepPlace]:
        """See ``base.AccountingSource``. A rank that was not looked at is one place, and its layout is not read."""
        with self._lock:
            ranks = dict(self._ranks)
        for number, path in self._directories.items():
            if number in ranks or self._found.by_device:
                yield from ((number, *place) for place in self._rank(number).step_directories())
            else:
                yield number, None, os.fspath(path)

    @property
    def listed(self) -> int:
        with self._lock:
            return sum(len(rank.listed_steps) for rank in self._ranks.values())

    def step_entries(self) -> Iterator[StepEntries]:
        with self._lock:
            ranks = list(self._ranks.values())
        return chain.from_iterable(rank.step_entries() for rank in ranks)

    def nodes(self, rank: int, progress: ProgressFn = no_progress) -> NodeTable:
        return self._rank(rank).nodes(progress)

    def tensors(self, rank: int, step: int, progress: ProgressFn = no_progress) -> TensorTable:
        return self._rank(rank).tensors(step, progress)

    def graphs(self, rank: int) -> Sequence[ParsedGraph]:
        """The graphs of a rank, or of the one that lends them."""
        found = []
        run = self._rank(rank)
        for path in run.graph_files():
            try:
                found.append(read_graph(path, attributes=True))
            except BadGraphError as problem:  # noqa: PERF203 - each file by itself
                run.miss_graph(path, problem)
        return found

    def arguments(
        self,
        rank: int,
        step: int,  # noqa: ARG002 - see base.Source
        row: int,
        round: int = 0,  # noqa: A002, ARG002 - as above
    ) -> CallArguments | None:
        """Arguments by the graph: inputs in order, constants by their value; the same in every step."""
        nodes = self.nodes(rank)
        if not 0 <= row < len(nodes) or not len(nodes.in_node):
            return None
        attributes = self._attributes_of(rank).get((nodes.graph_of(row).name, nodes.names[row]), ())
        if self._metadata.program and not self._metadata.program.startswith("MindSpore"):
            return recorded_call(dict(attributes).get(CALL, ""))
        return graph_arguments(nodes, row, attributes)

    def _attributes_of(self, rank: int) -> OperatorAttributes:
        """The attributes of all operators of a rank, read once for every state of its graph files."""
        files = tuple(self._rank(rank).graph_files())
        with self._lock:
            known = self._attributes.get(rank)
        if known is None or known[0] != files:
            read = {
                (graph.name, node.full_name): node.attributes
                for graph in self.graphs(rank)
                for node in graph.nodes
                if node.full_name
            }
            known = files, read
            with self._lock:
                self._attributes[rank] = known
        return known[1]

    def recorded_rows(self, rank: int, step: int) -> Iterator[dict[str, str]] | None:
        files = self._rank(rank).statistic_files(step)
        return chain.from_iterable(map(read_rows, files)) if files else None

    def notes(self, rank: int) -> RunNotes:
        return self._rank(rank).notes()

    def written_by(self, spec: ReadSpec) -> Writer | None:
        return writer_of(os.path.basename(spec.path))  # noqa: PTH119 - keeps surrogates, and is quick

    def refresh(self) -> Changes:
        """Looks for new ranks, steps, files and graphs; only ranks that were looked at are looked at again."""
        with self._lock:
            before, self._graph_ranks, self._may_have_graph, self._scope = self._directories, None, None, None
            self._listed = self._list(self._found.root)
            self._directories = self._listed.directories
            new_ranks = tuple(number for number in self._directories if number not in before)
            if not self._metadata.version:
                self._metadata = self._read_metadata()
            ranks = [rank for number, rank in self._ranks.items() if number in self._directories]
        new_steps: list[tuple[int, int]] = []
        grown: list[tuple[int, int]] = []
        new_nodes = False
        rebuilt: list[int] = []
        for rank in ranks:
            changes = rank.refresh()
            if changes.rebuilt:
                rebuilt.append(rank.number)
            new_steps += [(rank.number, step) for step in changes.new_steps]
            grown += [(rank.number, step) for step in changes.grown_steps]
            new_nodes = new_nodes or changes.new_nodes
        return Changes(tuple(new_steps), tuple(grown), new_nodes, new_ranks, tuple(rebuilt))

    def watch_paths(self) -> Sequence[Path]:
        with self._lock:
            ranks = list(self._ranks.values())
        paths = [self._found.root, *(path for rank in ranks for path in rank.watch_paths())]
        return list(dict.fromkeys(paths))  # devices share a tree

    def close(self) -> None:
        """Forgets the ranks; nothing is open between calls."""
        with self._lock:
            self._ranks.clear()

    def _rank(self, number: int) -> RankRun:
        with self._lock:
            if number in self._ranks:
                return self._ranks[number]
            path = self._directories.get(number, self._found.root / f"rank_{number}")
            right_mean = at_least(self._metadata.version, 2, 4)
            rank = RankRun(
                number,
                path,
                self._lend_graph,
                right_mean,
                self._store,
                nets=self._nets,
                tells_overflow=self._metadata.tells_overflow,
                steps_alike=self._metadata.steps_alike,
                by_device=self._found.by_device,
                statistics=self._statistics,
            )
            if number in self._directories:
                self._ranks[number] = rank
            return rank

    def _lend_graph(self, borrower: RankRun) -> Path | None:
        """The lowest other rank that has a graph and dumped the same net."""
        for number in self._with_graph():
            if number == borrower.number:
                continue
            nets = self._rank(number).nets
            if not nets or not borrower.nets or set(nets) & set(borrower.nets):
                return self._directories.get(number)
        return None

    def _with_graph(self) -> tuple[int, ...]:
        """The ranks that have a graph; lists all their directories, once until ``refresh``."""
        if self._graph_ranks is None:
            self._graph_ranks = tuple(number for number, path in self._directories.items() if graph_paths(path))
        return self._graph_ranks

    def _nets(self) -> Collection[str]:
        """Net names of this dump, by the metadata and the names in any rank."""
        return {*self._listed.nets, self._metadata.net} - {""}

    def _read_metadata(self) -> Metadata:
        if self._found.by_device:
            return Metadata(device="Ascend")
        paths = list(self._directories.values())
        path = next(
            (path for path in paths if opener.isdir(path / METADATA_DIRECTORY)), paths[0] if paths else self._found.root
        )
        return read_metadata(path)

    def _own_notices(self, nets: Sequence[str]) -> list[str]:
        notices = []
        expected = self._metadata.ranks
        if expected > len(self._directories):
            notices.append(f"the training had {expected} ranks, {len(self._directories)} are here")
        empty = [rank for rank in list(self._ranks.values()) if nets and not rank.nets]
        notices += [f"{rank.path.name}: no tensors are dumped (yet)" for rank in empty]
        if len(nets) > 1 and not self._found.by_device:
            notices.append(f"several nets in one dump: {', '.join(nets)}")
        if self._ranks and not nets:
            notices.append("no tensors are dumped (yet)")
        return notices


def graph_arguments(nodes: NodeTable, row: int, attributes: Iterable[tuple[str, str]]) -> CallArguments:
    positional: list[Argument] = []
    for slot, (holder, _) in enumerate(real_inputs(nodes, row)):
        if holder >= 0 and nodes.orders_only(holder):
            continue
        text = nodes.constants.get(holder, "") if holder >= 0 else ""
        value = _value(text) if text else OtherArgument("")
        positional.append(TensorSlot(slot) if isinstance(value, OtherArgument) else value)
    return CallArguments(tuple(positional), attributes={name: _value(text) for name, text in attributes})


def recorded_call(text: str) -> CallArguments | None:
    """The arguments of a call that our own client recorded; None without a record."""
    try:
        said = json.loads(_value(text)) if text else {}  # type: ignore[arg-type]  # another type is an error as well
    except (ValueError, TypeError, RecursionError):
        return None
    arguments = said.get("arguments") if isinstance(said, dict) else None
    if not isinstance(arguments, dict):
        return None
    found = {str(name): _said(each) for name, each in arguments.items()}
    unsure = ", ".join(map(str, said["unsure"])) if isinstance(said.get("unsure"), list) else ""
    doubt = f"the program writes to {unsure} itself" if unsure else ""
    settings: dict[str, Argument] = {}
    parameters: dict[str, Argument] | None = None
    if said.get("module"):
        settings = {name: each for name, each in found.items() if not isinstance(each, TensorSlot)}
        parameters = {name: each for name, each in found.items() if name != "input" and name not in settings}
        found = {name: each for name, each in found.items() if name == "input"}
    return CallArguments((), found, settings or None, parameters, doubt, bool(said.get("passes")), parameters is None)


def _said(value: object) -> Argument:
    if isinstance(value, dict):
        if isinstance(value.get("in"), int):
            return TensorSlot(value["in"])
        missing = "no" in value
        return OtherArgument(NOT_RECORDED if missing else "type", str(value.get("no" if missing else "type", "")))
    return tuple([_said(each) for each in value]) if isinstance(value, list) else _plain(value)


def _value(text: str) -> Argument:
    """A constant or attribute by its text; a text that was cut stays text."""
    lowered = text.lower()
    if lowered in {"inf", "-inf", "nan"}:
        return float(lowered)
    try:
        return _plain(ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return OtherArgument("", text)


def _plain(value: object) -> Argument:
    if isinstance(value, (tuple, list)):
        return tuple([_plain(each) for each in value])
    if value is None or isinstance(value, _VALUES):
        return value
    return OtherArgument(type(value).__name__, str(value))
