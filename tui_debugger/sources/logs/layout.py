"""Finds steps and ranks of the logs of a run, by names of files and directories."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tui_debugger.errors import NotADumpError
from tui_debugger.sources import directories
from tui_debugger.sources.directories import MOST_ENTRIES, directories_in, names_in
from tui_debugger.sources.registry import Shows
from tui_debugger.sources.tensor_files.layout import parse_name

TE_NAME: Final = re.compile(r"nvdlfw_inspect(?:_\d{8}_\d{6})?_globalrank-(\d{1,9})\.log")
MONITOR_FILE: Final = re.compile(
    r"(module|weight_grad|optimizer|param|cc|actv|actv_grad|grad_unreduced|grad_reduced|exp_avg|exp_avg_sq"
    r"|param_origin|param_updated)_(?:step)?(\d{1,12})-(\d{1,12})\.csv"
)
"""Names of msprobe's monitor: content of the file, its first and its last step."""
TE_STATISTICS: Final = "nvdlfw_inspect_statistics_logs"
_TE_MESSAGES: Final = "nvdlfw_inspect_logs"
_TE_TENSORS: Final = "tensor_dumps"


@dataclass(slots=True)
class LogLayout(directories.DumpLayout[str]):
    """The logs of a run; ``units`` are logs of one step, where there are such."""

    logs: dict[int, list[str]] = field(default_factory=dict)
    """Logs of a rank, oldest first, where each holds many steps."""
    messages: dict[int, str] = field(default_factory=dict)
    tensors: dict[int, dict[int, str]] = field(default_factory=dict)
    """The directory with dumped tensors, by rank and step."""


@dataclass(frozen=True, slots=True)
class LogKind:
    """One kind of log."""

    name: str
    module: str
    """Name of the module of this package that reads it."""
    looked_for: str
    logs: Callable[[str], list[str]]
    """Returns the names of the logs in a directory."""
    shows: Shows
    folder: str = ""
    """Directory of the logs below the run's; empty: the run's own."""
    rank_of: re.Pattern[str] | None = None
    """Finds the rank in a file name; None: as names of directories tell it."""
    damaged: Callable[[str, bool], list[str]] | None = None
    """Returns names in a directory of damaged logs, known by name only; its flag: the directory is of a step."""
    whole: bool = False
    """Whether a log holds all steps of a rank, not one step."""
    edges: bool = True
    """Whether the log tells producers of inputs."""
    ranks: Callable[[str, str], tuple[dict[int, list[str]], list[str]]] | None = None
    """Returns the logs of each rank of the run in a directory, and notices; given the one log or directory that was
    asked for. None: as names of files tell it.
    """
    rank_folder: re.Pattern[str] | None = None
    """Pattern of the directory of a rank, where logs lie in such."""

    def held(self, directory: str) -> tuple[str, list[str]]:
        """The directory at or right below another one that holds logs, and their names."""
        found = self.logs(directory)
        if not found and self.folder:
            directory = f"{directory}/{self.folder}"
            found = self.logs(directory)
        return directory, found

    def steps(self, directory: str, most: int | None = None) -> Iterator[tuple[int, str]]:
        """Step and path of directories named by a step alone, none if ``whole``; ``most``: as in ``names_in``."""
        if not self.whole:
            for name in directories_in(directory, most):
                if is_step(name):
                    yield parse_name(name).step or 0, f"{directory}/{name}"

    def is_run(self, directory: str) -> bool:
        return bool(self.held(directory)[1]) or any(
            self.held(path)[1] for _, path in self.steps(directory, MOST_ENTRIES)
        )


def is_step(name: str) -> bool:
    """Whether a directory is named after a step, and after nothing else."""
    says = parse_name(name)
    return says.step is not None and not says.rest


def read_layout(kind: LogKind, root: str, only: str = "") -> LogLayout:
    """Lists the logs of a run, or the one log ``only``; raises NotADumpError for several logs of one step and rank."""
    layout = LogLayout(root)
    if kind.ranks is not None:
        logs, layout.notices = kind.ranks(root, only)
        layout.logs = dict(sorted(logs.items()))
        if kind.rank_folder is not None and Path(os.path.realpath(root)) not in Path(os.path.realpath(only)).parents:
            layout.listable(root, kind.rank_folder.fullmatch)
        folders = (os.path.dirname(path) for paths in layout.logs.values() for path in paths)  # noqa: PTH120 - text
        layout.directories = list(dict.fromkeys((root, *folders)))
        return layout
    if kind.whole:
        return _whole(kind, layout)
    if not only:
        layout.listable(root, is_step)
    named = False
    for number, path in [(None, root), *kind.steps(root)]:
        directory, names = kind.held(path)
        if names:
            layout.directories.append(directory)
        for name in kind.damaged(directory, number is not None) if kind.damaged is not None and not only else ():
            layout.miss(f"{directory}/{name}", "empty, or no JSON", step=number)
        for name in names:
            file, says = f"{directory}/{name}", parse_name(name.rpartition(".")[0])
            if only and os.path.realpath(file) != os.path.realpath(only):
                continue
            match = kind.rank_of.fullmatch(name) if kind.rank_of is not None else None
            rank = int(match[1]) if match is not None else says.rank or 0
            step = says.step if says.step is not None and match is None else number
            named = named or step is not None
            other = layout.units.setdefault(rank, {}).setdefault(step or 0, file)
            if other != file:
                raise NotADumpError(
                    f"Several logs of rank {rank}, step {step or 0} here: {os.path.relpath(other, root)}, "
                    f"{os.path.relpath(file, root)}",
                    where=root,
                    hint="name one of them, or give their names steps (step3.json)",
                )
    if not named:
        layout.notices.append("nothing says of which step it is: it counts as step 0")
    layout.directories = list(dict.fromkeys((root, *layout.directories)))
    layout.sort()
    return layout


def _whole(kind: LogKind, layout: LogLayout) -> LogLayout:
    root = layout.root
    directory, names = kind.held(root)
    for name in names:
        match = TE_NAME.fullmatch(name)
        if match is not None:
            layout.logs.setdefault(int(match[1]), []).append(f"{directory}/{name}")
    layout.logs = dict(sorted(layout.logs.items()))
    found = {
        int(match[1]): name for name in names_in(f"{root}/{_TE_MESSAGES}", None) if (match := TE_NAME.fullmatch(name))
    }
    for rank in layout.logs:
        name = found.get(rank, found[min(found)] if found else "")
        if name:
            layout.messages[rank] = f"{root}/{_TE_MESSAGES}/{name}"
    if not layout.messages:
        layout.notices.append("no log of messages: layers are in the order in which their statistics are logged")
    layout.listable(root, {TE_STATISTICS, _TE_MESSAGES, _TE_TENSORS}.__contains__)
    for name in layout.listable(f"{root}/{_TE_TENSORS}", lambda name: not parse_name(name).rest):
        rank_says = parse_name(name)
        if rank_says.rank in layout.logs and not rank_says.rest:
            below = f"{root}/{_TE_TENSORS}/{name}"
            steps = {
                says.step: f"{below}/{each}"
                for each in layout.listable(below, is_step, rank_says.rank)
                if (says := parse_name(each)).step is not None
            }
            layout.tensors[rank_says.rank] = {step: path for step, path in steps.items() if step is not None}
            layout.directories.append(below)
    layout.directories = list(dict.fromkeys((root, directory, *layout.directories)))
    return layout
