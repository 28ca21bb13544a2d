"""A MindSpore dump as a Source, and what ``.dump_metadata`` (all of it optional) tells about it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from tui_debugger.cache.store import DiskCache
from tui_debugger.errors import BadGraphError
from tui_debugger.graph.messages import ParsedGraph, read_graph
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import GraphRun, ProgressFn, ReadSpec, RunInfo, UnreadablePart, no_progress
from tui_debugger.opener import METADATA_LIMIT, read_regular, why_not
from tui_debugger.sources.base import Capability, Changes, TensorTable, Writer
from tui_debugger.sources.mindspore.layout import Found, find_dump, is_directory, list_ranks
from tui_debugger.sources.mindspore.names import parse_name
from tui_debugger.sources.mindspore.nodes import graph_paths
from tui_debugger.sources.mindspore.rank import RankRun
from tui_debugger.sources.mindspore.statistics import read_rows

DIRECTORY = ".dump_metadata"


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a rank says about itself; empty strings where it does not.

    Attributes:
        net: net name.
        version: MindSpore version, for example ``2.10.0``.
        device: ``CPU``, ``GPU`` or ``Ascend``.
        iteration: the steps that were asked for, for example ``0|5-8`` or ``all``.
        saved: ``tensor``, ``statistic`` or ``full``.
        program: framework and version of a training that tdbg itself wrote the dump of.
        ranks: how many ranks the training had; 0 where nothing tells.
        notices: what is missing or broken.
        parts: the files that are there and cannot be read.
    """

    net: str = ""
    version: str = ""
    device: str = ""
    iteration: str = ""
    saved: str = ""
    program: str = ""
    ranks: int = 0
    notices: tuple[str, ...] = ()
    parts: tuple[UnreadablePart, ...] = ()


def read_metadata(rank: Path) -> Metadata:
    """Reads the metadata of a rank; anything missing or broken becomes a notice."""
    directory = rank / DIRECTORY
    if not is_directory(directory):
        return Metadata(notices=(f"{rank.name} has no {DIRECTORY}: net name, version and device are unknown",))
    notices: list[str] = []
    parts: list[UnreadablePart] = []
    settings = _read(directory / "data_dump.json", notices, parts).get("common_dump_settings")
    config = _read(directory / "config.json", notices, parts)
    common = settings if isinstance(settings, dict) else {}
    return Metadata(
        net=_text(common.get("net_name")),
        version=_text(config.get("ms_version")),
        device=_text(config.get("device_target")),
        iteration=_text(common.get("iteration")),
        saved=_text(common.get("saved_data")),
        program=_text(config.get("program")),
        ranks=_ranks(directory / "hccl.json", notices, parts),
        notices=tuple(notices),
        parts=tuple(parts),
    )


def at_least(version: str, major: int, minor: int) -> bool:
    """Tells whether a version text is at least major.minor; an unknown version is not."""
    parts = version.split(".")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        return False
    return (int(parts[0]), int(parts[1])) >= (major, minor)


def _read(path: Path, notices: list[str], parts: list[UnreadablePart]) -> dict[str, Any]:
    name = f"{path.parent.parent.name}/{DIRECTORY}/{path.name}"
    try:
        content = json.loads(read_regular(path, METADATA_LIMIT).decode("utf-8", "replace"))
    except FileNotFoundError:
        notices.append(f"{name} is missing")
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


def _ranks(path: Path, notices: list[str], parts: list[UnreadablePart]) -> int:
    """Number of ranks in the table of devices that a distributed training on Ascend has."""
    servers = _read(path, notices, parts).get("server_list") if os.path.lexists(path) else None
    devices = [each.get("device") for each in servers if isinstance(each, dict)] if isinstance(servers, list) else []
    return sum(len(each) for each in devices if isinstance(each, list))


def _text(value: object) -> str:
    return str(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else ""


def open_mindspore(path: Path, store: DiskCache | None = None, notices: Sequence[str] = ()) -> MindSporeSource:
    """Finds and opens the dump at, around or below a path.

    Raises:
        NotADumpError: see ``layout.find_dump``.
    """
    return MindSporeSource(find_dump(path), store, notices)


class MindSporeSource:
    """See ``base.Source``. A rank is looked at when it is first asked for."""

    def __init__(self, found: Found, store: DiskCache | None = None, notices: Sequence[str] = ()) -> None:
        """Reads the names of ranks and the metadata; ``store`` remembers listings, ``notices`` come first."""
        self._given_notices = tuple(notices)
        self._found = found
        self._store = store
        self._lock = threading.RLock()
        self._listed = list_ranks(found.root)
        self._directories = self._listed.directories
        self._metadata = self._read_metadata()
        self._ranks: dict[int, RankRun] = {}

    @property
    def info(self) -> RunInfo:
        """What was found; notices grow while more is read."""
        metadata = self._metadata
        with self._lock:
            ranks = [self._ranks[number] for number in sorted(self._ranks)]
        version = metadata.version or next((rank.generation for rank in ranks if rank.generation), "")
        nets = tuple(dict.fromkeys(net for rank in ranks for net in rank.nets))
        notices = [*self._given_notices, *self._own_notices(nets), *metadata.notices]
        for rank in ranks:
            notices += rank.notices()
        layout = f"MindSpore {version} dump" if version else "MindSpore dump"
        return RunInfo(
            path=str(self._found.root),
            layout=f"saved from {metadata.program}" if metadata.program else layout,
            title=metadata.net or ", ".join(nets),
            framework_version="" if metadata.program else metadata.version,
            device=metadata.device,
            notices=tuple(dict.fromkeys(notices)),
        )

    @property
    def capabilities(self) -> Capability:
        """A dump may grow; a graph when any rank has one."""
        graph = any(graph_paths(path) for path in self._directories.values())
        return Capability.GROWS | (Capability.GRAPH if graph else Capability.NONE)

    @property
    def focus(self) -> tuple[int | None, int | None]:
        """(rank, step) that the opened path points into; None where it does not say."""
        return self._found.rank, self._found.step

    def ranks(self) -> Sequence[int]:
        """Ranks, ascending."""
        return list(self._directories)

    def steps(self, rank: int) -> Sequence[int]:
        """Dumped steps of a rank over all its graphs, in the order of their first runs: see ``run_order``."""
        return self._rank(rank).steps()

    def history(self, rank: int) -> Sequence[GraphRun]:
        """The runs of a rank in the order in which they ran."""
        return self._rank(rank).history()

    def previous_run(
        self,
        rank: int,
        root_graph: int,
        step: int,
        round: int = 0,  # noqa: A002 - see base.Source
    ) -> tuple[int, int] | None:
        """The dumped run of a graph before the one that is named."""
        return self._rank(rank).previous_run(root_graph, step, round)

    def unreadable(self) -> Sequence[UnreadablePart]:
        """The parts that could not be listed: of ranks that were looked at; of graphs whose nodes were read."""
        with self._lock:
            parts = [*self._listed.parts, *self._metadata.parts]
            ranks = [rank for number, rank in self._ranks.items() if number in self._directories]
        for rank in ranks:
            parts += rank.unreadable()
        return tuple(sorted(set(parts), key=lambda part: (part.where, part.why)))

    def nodes(self, rank: int, progress: ProgressFn = no_progress) -> NodeTable:
        """Node table of a rank."""
        return self._rank(rank).nodes(progress)

    def tensors(self, rank: int, step: int, progress: ProgressFn = no_progress) -> TensorTable:
        """Tensor table of a step."""
        return self._rank(rank).tensors(step, progress)

    def graphs(self, rank: int) -> Sequence[ParsedGraph]:
        """The graphs of a rank, or of the one that lends them."""
        found = []
        for path in self._rank(rank).graph_files():
            with suppress(BadGraphError):
                found.append(read_graph(path, attributes=True))
        return found

    def recorded_rows(self, rank: int, step: int) -> Iterator[dict[str, str]] | None:
        """The rows of the statistic files of a step."""
        files = self._rank(rank).statistic_files(step)
        return chain.from_iterable(map(read_rows, files)) if files else None

    def written_by(self, spec: ReadSpec) -> Writer | None:
        """Returns what the name of a tensor's file says: see ``names``."""
        parsed = parse_name(os.path.basename(spec.path))  # noqa: PTH119 - keeps surrogates, and is quick
        if parsed is None:
            return None
        return Writer(parsed.op_type, parsed.op_name, parsed.task, parsed.stream, parsed.timestamp)

    def refresh(self) -> Changes:
        """Looks for new ranks, steps, files and graphs; only ranks that were looked at are looked at again."""
        with self._lock:
            before = self._directories
            self._listed = list_ranks(self._found.root)
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
        """Directories in which something new shows."""
        with self._lock:
            ranks = list(self._ranks.values())
        return [self._found.root, *(path for rank in ranks for path in rank.watch_paths())]

    def close(self) -> None:
        """Forgets what was read; nothing is open between calls."""
        with self._lock:
            self._ranks.clear()

    def _rank(self, number: int) -> RankRun:
        with self._lock:
            if number in self._ranks:
                return self._ranks[number]
            path = self._directories.get(number, self._found.root / f"rank_{number}")
            right_mean = at_least(self._metadata.version, 2, 4)
            rank = RankRun(number, path, self._lend_graph, right_mean, self._store, nets=self._nets)
            if number in self._directories:
                self._ranks[number] = rank
            return rank

    def _lend_graph(self, borrower: RankRun) -> Path | None:
        """The lowest other rank that has a graph and dumped the same net."""
        for number, path in self._directories.items():
            if number == borrower.number or not graph_paths(path):
                continue
            nets = self._rank(number).nets
            if not nets or not borrower.nets or set(nets) & set(borrower.nets):
                return path
        return None

    def _nets(self) -> Collection[str]:
        """Returns what the nets of this dump are called, as far as the metadata and the names in any rank tell."""
        return {*self._listed.nets, self._metadata.net} - {""}

    def _read_metadata(self) -> Metadata:
        paths = list(self._directories.values())
        path = next((path for path in paths if is_directory(path / DIRECTORY)), paths[0] if paths else self._found.root)
        return read_metadata(path)

    def _own_notices(self, nets: Sequence[str]) -> list[str]:
        notices = []
        if self._found.inside:
            notices.append(f"the path leads into the dump, to {self._found.inside}: the whole dump is opened")
        notices += [
            f"{name} is left out: a rank is called rank_N, so rename it to look at it" for name in self._listed.others
        ]
        expected = self._metadata.ranks
        if expected > len(self._directories):
            notices.append(f"the training had {expected} ranks, {len(self._directories)} are here")
        empty = [rank for rank in list(self._ranks.values()) if nets and not rank.nets]
        notices += [f"{rank.path.name}: no tensors are dumped (yet)" for rank in empty]
        if len(nets) > 1:
            notices.append(f"several nets in one dump: {', '.join(nets)}")
        if self._ranks and not nets:
            notices.append("no tensors are dumped (yet)")
        return notices
