"""Recognises logs with statistics or hashes of tensors, kind by kind, and opens them.

Imported before the first frame. Names tell the kind of a log, except for DebugMode's, which programs name as they like:
the first bytes of a few ``.json`` files are read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_debugger import opener
from tui_debugger.errors import NotADumpError
from tui_debugger.sources.directories import directories_in, find_dump, names_in, root_of
from tui_debugger.sources.logs.layout import MONITOR_FILE, TE_NAME, TE_STATISTICS, LogKind, is_step, read_layout
from tui_debugger.sources.registry import SHOWS_NOTHING, Edges, Has, Order, Recognised, Sureness
from tui_debugger.sources.tensor_files.layout import parse_name

if TYPE_CHECKING:
    from tui_debugger.cache.store import DiskCache
    from tui_debugger.sources.base import Source
    from tui_debugger.sources.registry import Reader


_LEVELS_UP: Final = 3
_HEADS: Final = 16
"""Number of .json files of a directory whose first bytes are read first."""
_HEAD_BYTES: Final = 256
_DEBUG_MODE: Final = re.compile(rb'\s*\{\s*"format"\s*:\s*"torch\.utils\._debug_mode\.DebugMode\.logs"')
_TORCHTITAN: Final = re.compile(r"rank_(\d{1,9})_activations\.log")
_MONITOR_RANK: Final = re.compile(
    r"rank_?(\d{1,9})|[A-Z][a-z]{2}\d{1,2}_\d{2}-\d{2}-\d{2}-rank(\d{1,9})-[0-9a-f]{1,16}"
)
_TREND: Final = re.compile(r".+\.trend\.db")


def _named(pattern: re.Pattern[str], folder: str = "") -> Callable[[str], list[str]]:
    def logs(directory: str) -> list[str]:
        if folder and os.path.basename(directory) != folder:  # noqa: PTH119 - text all the way
            return []
        return sorted(name for name in names_in(directory) if pattern.fullmatch(name))

    return logs


def _debug_mode_logs(directory: str) -> list[str]:
    names = sorted(name for name in names_in(directory) if name.endswith(".json"))
    if not any(_is_debug_mode(f"{directory}/{name}") for name in names[:_HEADS]):
        return []
    return [name for name in names if _is_debug_mode(f"{directory}/{name}")]


def _is_debug_mode(path: str) -> bool:
    return _DEBUG_MODE.match(_head(path)) is not None


def _damaged_logs(directory: str, of_step: bool) -> list[str]:
    """Names of files that are no JSON, but logs by their own name or that of their directory."""
    names = (name for name in names_in(directory, None) if name.endswith(".json"))
    mine = (name for name in names if of_step or is_step(name.removesuffix(".json")))
    return sorted(name for name in mine if not _head(f"{directory}/{name}").lstrip().startswith((b"{", b"[")))


def _head(path: str) -> bytes:
    try:
        return opener.first_bytes(path, _HEAD_BYTES)
    except (OSError, ValueError):
        return b""


TORCHTITAN: Final = LogKind(
    "torchtitan numerics log",
    "torchtitan",
    "rank_0_activations.log of torchtitan in a directory numerics",
    _named(_TORCHTITAN),
    replace(
        SHOWS_NOTHING,
        statistics=Has.YES,
        hashes=Has.YES,
        order=Order.EXECUTION,
        edges=Edges.INFERRED,
        stacks=Has.YES,
        gradients=Has.YES,
        record=("torchtitan's run_train.sh ... --profiler.dump_numerics",),
        recorded_in="the numerics log",
        values_advice="torchtitan's log never holds values; msprobe with task tensor records them",
        tensors_advice="torchtitan: a smaller min_numel, and no excluded operators",
    ),
    "numerics",
    _TORCHTITAN,
)
DEBUG_MODE: Final = LogKind(
    "PyTorch DebugMode log",
    "debug_mode",
    ".json files of PyTorch's DebugMode (step3.json)",
    _debug_mode_logs,
    replace(
        SHOWS_NOTHING,
        statistics=Has.SOME,
        hashes=Has.YES,
        order=Order.EXECUTION,
        edges=Edges.INFERRED,
        stacks=Has.YES,
        gradients=Has.YES,
        record=(
            "with DebugMode(record_ids=True, record_stack_trace=True) as mode:",
            "    with DebugMode.log_tensor_hashes(hash_inputs=True): train_step()",
            'DebugMode.save_logs(mode.logs, "step3.json")',
        ),
        recorded_in="the log of DebugMode",
        values_advice="DebugMode never writes values; msprobe with task tensor records them",
        tensors_advice="DebugMode: log_tensor_hashes(hash_inputs=True) around the whole step",
        limits=("L1 norms: they tell of NaN, Inf and the mean magnitude, and of nothing else",),
    ),
    damaged=_damaged_logs,
)
TE_LOGS: Final = LogKind(
    "Transformer Engine statistics log",
    "te_logs",
    f"{TE_STATISTICS}/nvdlfw_inspect_globalrank-0.log of Transformer Engine",
    _named(TE_NAME, TE_STATISTICS),
    replace(
        SHOWS_NOTHING,
        values=Has.SOME,
        statistics=Has.YES,
        order=Order.EXECUTION,
        gradients=Has.YES,
        record=(
            "# LogTensorStats (and DumpTensors for values) in stats.yaml, then",
            'nvdlfw_inspect.api.initialize(config_file="stats.yaml", log_dir="run")',
        ),
        recorded_in="the statistics log",
        values_advice="Transformer Engine: DumpTensors in stats.yaml",
        tensors_advice="Transformer Engine: LogTensorStats for more layers and tensors in stats.yaml",
        limits=("four decimals: 0.0000 is less than 0.00005, not zero",),
    ),
    TE_STATISTICS,
    TE_NAME,
    whole=True,
    edges=False,
)


def _monitor_logs(directory: str) -> list[str]:
    """The directories of ranks that hold files of msprobe's monitor."""
    places = [name for name in directories_in(directory) if _MONITOR_RANK.fullmatch(name)]
    return sorted(name for name in places if any(map(MONITOR_FILE.fullmatch, names_in(f"{directory}/{name}"))))


def _monitor_ranks(root: str, only: str) -> tuple[dict[int, list[str]], list[str]]:
    """The files of each rank, the oldest first.

    Raises NotADumpError when several directories are of one rank, and none of them was asked for.
    """
    found: dict[int, list[str]] = {}
    names = _monitor_logs(root)
    real = os.path.realpath(only)
    mine = [each for each in names if f"{real}/".startswith(f"{os.path.realpath(f'{root}/{each}')}/")]
    for name in names:
        rank = _rank_of_monitor(name)
        again = sum(_rank_of_monitor(each) == rank for each in names) > 1
        if again and mine and name not in mine:
            continue
        if again and not mine:
            raise NotADumpError(
                f"Several directories of rank {rank} here: they are several runs",
                where=root,
                hint=f"name one of them: {root}/{name}",
            )
        files = [
            (match[1], int(match[2]), each)
            for each in names_in(f"{root}/{name}", None)
            if (match := MONITOR_FILE.fullmatch(each)) is not None
        ]
        found[rank] = [f"{root}/{name}/{file}" for _, _, file in sorted(files)]
    return found, []


def _rank_of_monitor(name: str) -> int:
    match = _MONITOR_RANK.fullmatch(name)
    return int(match[1] or match[2]) if match is not None else -1


def _trend_ranks(root: str, only: str) -> tuple[dict[int, list[str]], list[str]]:
    """The one database, for every rank in it; raises NotADumpError for several, or an unreadable one."""
    from tui_debugger.sources.logs.trend_db import ranks_of  # needs SQLite

    names = _named(_TREND)(root)
    chosen = [name for name in names if os.path.realpath(f"{root}/{name}") == os.path.realpath(only)] or names
    if len(chosen) != 1:
        raise NotADumpError(
            f"Several databases here: {', '.join(chosen[:4])}" if chosen else "The database is gone",
            where=root,
            hint="name one of them",
        )
    path = f"{root}/{chosen[0]}"
    try:
        ranks, notices = ranks_of(path)
    except (OSError, ValueError) as error:
        raise NotADumpError(f"{chosen[0]} cannot be read: {error}", where=path, hint="make it anew") from error
    return {rank: [path] for rank in ranks}, notices


MONITOR: Final = LogKind(
    "msprobe monitor",
    "msprobe_monitor",
    "rank_0/module_step0-9.csv of msprobe's monitor, or TIME-rank0-ID/actv_0-9.csv",
    _monitor_logs,
    replace(
        SHOWS_NOTHING,
        statistics=Has.YES,
        edges=Edges.INFERRED,
        gradients=Has.YES,
        record=('TrainerMonitorV2("monitor.json").start(model=model, optimizer=optimizer)',),
        recorded_in="the monitor's files",
        values_advice="msprobe's monitor never writes values; its PrecisionDebugger with task tensor records them",
        tensors_advice="msprobe's monitor: more modules in monitor.json; PrecisionDebugger records every call",
        limits=("NaN counted, not Inf: an Inf shows in extremes, mean and norm alone",),
    ),
    whole=True,
    ranks=_monitor_ranks,
    rank_folder=_MONITOR_RANK,
)
TREND: Final = LogKind(
    "msprobe trend database",
    "trend_db",
    "dump_data.trend.db or monitor_data.trend.db of msprobe",
    _named(_TREND),
    replace(
        SHOWS_NOTHING,
        statistics=Has.YES,
        edges=Edges.INFERRED,
        gradients=Has.YES,
        record=("msprobe data2db --data DUMP --db OUT",),
        recorded_in="the database",
        values_advice="a trend database never holds values; open the dump that it was made of, or record one with task "
        "tensor",
        tensors_advice="open the dump that the database was made of",
        limits=("clamped: 1e9 stands for everything beyond",),
    ),
    whole=True,
    ranks=_trend_ranks,
)


class LogReader:
    """One kind of log: see ``registry.QuickReader``."""

    def __init__(self, kind: LogKind) -> None:
        self._kind = kind
        self.name = kind.name
        self.looked_for = kind.looked_for
        self.shows = kind.shows

    def recognises(self, path: Path) -> Recognised | None:
        found = find_dump(path, self._around, self._kind.is_run)
        if found is None or found.refusal is not None:
            return found
        try:
            read_layout(self._kind, os.fspath(found.root), self._only(path))
        except NotADumpError as error:
            return Recognised(found.root, Sureness.SURE, error)
        return found

    def is_dump(self, directory: Path) -> bool:
        return self._kind.is_run(os.fspath(directory))

    def open(self, path: Path, store: DiskCache | None = None, notices: Sequence[str] = ()) -> Source:  # noqa: ARG002
        from tui_debugger.sources.logs.source import LogSource  # needs NumPy

        root = root_of(find_dump(path, self._around, self._kind.is_run), path)
        return LogSource(self._kind, root, path, notices, only=self._only(path))

    def _only(self, path: Path) -> str:
        """The path itself where it is a log whose name tells no step: no log beside it belongs to the run."""
        here = Path(os.path.abspath(path))  # noqa: PTH100 - keeps links
        kind = self._kind
        if kind.ranks is not None:
            return os.fspath(here)
        if kind.whole or kind.rank_of is not None or parse_name(here.stem).step is not None:
            return ""
        return os.fspath(here) if here.name in kind.logs(os.fspath(here.parent)) else ""

    def _around(self, start: Path) -> Path | None:
        kind = self._kind
        for place in (start, *list(start.parents)[:_LEVELS_UP]):
            here = os.fspath(place)
            in_folder = bool(kind.folder) and place.name == kind.folder and bool(kind.logs(here))
            in_step = not kind.whole and is_step(place.name)
            if not in_folder and not in_step and kind.is_run(here):
                return place  # else the run is the directory above
        return start if not kind.whole and kind.is_run(os.fspath(start)) else None


TORCHTITAN_READER: Reader = LogReader(TORCHTITAN)
DEBUG_MODE_READER: Reader = LogReader(DEBUG_MODE)
TE_LOGS_READER: Reader = LogReader(TE_LOGS)
MONITOR_READER: Reader = LogReader(MONITOR)
TREND_READER: Reader = LogReader(TREND)
