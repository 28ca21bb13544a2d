"""Tells of which steps and ranks the logs of a run are, by names of files and directories."""

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
"""The names of msprobe's monitor: what a file holds, and its first and last step."""
TE_STATISTICS: Final = "nvdlfw_inspect_statistics_logs"
_TE_MESSAGES: Final = "nvdlfw_inspect_logs"
_TE_TENSORS: Final = "tensor_dumps"


@dataclass(slots=True)
class LogLayout(directories.DumpLayout[str]):
    """The logs of a run; ``units`` are logs of one step, where there are such.

    Attributes:
        logs: the logs of a rank, oldest first, where one holds many steps.
        messages: the log of messages of a rank.
        tensors: the directory with dumped tensors, by rank and step.
    """

    logs: dict[int, list[str]] = field(default_factory=dict)
    messages: dict[int, str] = field(default_factory=dict)
    tensors: dict[int, dict[int, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogKind:
    """One kind of log.

    Attributes:
        name: for people.
        module: reads it, below this package.
        looked_for, shows: see ``registry.Reader``.
        logs: returns the names of the logs in a directory.
        folder: the directory that logs lie in, below that of the run; empty: in that itself.
        rank_of: finds the rank in a name; None: as names of directories tell it.
        damaged: returns the names in a directory of what should be logs, and is damaged so that it is known by its name
            only; given whether the directory is that of a step.
        whole: a log is that of a rank with all its steps, not of one step.
        edges: it tells what feeds what.
        ranks: returns the logs of each rank of the run in a directory, and what people have to know; given the one log
            or directory that was asked for. None: as names of files tell it.
        rank_folder: what the directory of a rank is called, where logs lie in such.
    """

    name: str
    module: str
    looked_for: str
    logs: Callable[[str], list[str]]
    shows: Shows
    folder: str = ""
    rank_of: re.Pattern[str] | None = None
    damaged: Callable[[str, bool], list[str]] | None = None
    whole: bool = False
    edges: bool = True
    ranks: Callable[[str, str], tuple[dict[int, list[str]], list[str]]] | None = None
    rank_folder: re.Pattern[str] | None = None

    def held(self, directory: str) -> tuple[str, list[str]]:
        """The directory at or right below another one that holds logs, and their names."""
        found = self.logs(directory)
        if not found and self.folder:
            directory = f"{directory}/{self.folder}"
            found = self.logs(directory)
        return directory, found

    def steps(self, directory: str, most: int | None = None) -> Iterator[tuple[int, str]]:
        """Directories that are called after a step, with the step; ``most``: see ``directories.names_in``."""
        if not self.whole:
            for name in directories_in(directory, most):
                if is_step(name):
                    yield parse_name(name).step or 0, f"{directory}/{name}"

    def is_run(self, directory: str) -> bool:
        """Tells whether logs of a run lie here, or below directories called after steps."""
        return bool(self.held(directory)[1]) or any(
            self.held(path)[1] for _, path in self.steps(directory, MOST_ENTRIES)
        )


def is_step(name: str) -> bool:
    """Tells whether a directory is called after a step, and after nothing else."""
    says = parse_name(name)
    return says.step is not None and not says.rest


def read_layout(kind: LogKind, root: str, only: str = "") -> LogLayout:
    """Lists the logs of a run; ``only``: this one alone.

    Raises:
        NotADumpError: several logs are of the same step and rank.
    """
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
