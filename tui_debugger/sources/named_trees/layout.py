"""Finds the dumps of TorchAir's FX graphs, of ATB and of msprobe's SingleSave by names of directories.

================= =============================================================================================
TorchAir FX       ``msprobe_fx_dump/[worldsize2_global_rank0/][GRAPH/]TOKEN/mm-aten.mm.default.OUTPUT.0.TIME.npy``
ATB               ``atb_dump_data/data/DEVICE_PID/ROUND/0_Layer/1_Linear/after/outtensor0.bin``
SingleSave        ``data/KEY/step0/rank0/[micro_step0/]KEY.npy`` and ``KEY.json``
================= =============================================================================================

A directory of FX also lies alone: ``data_dump/[TOKEN/gm_TIME_dump/]``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tui_debugger import opener
from tui_debugger.opener import why_not
from tui_debugger.sources.directories import NamesReader, directories_in, is_directory, names_in
from tui_debugger.sources.rank_names import rank_of_folder
from tui_debugger.sources.registry import SHOWS_NOTHING, Has, Order

if TYPE_CHECKING:
    from tui_debugger.sources.tensor_files.layout import Layout

FX_FILE: Final = re.compile(
    r"(?P<node>.+)-(?P<call>\w+\.\w[\w.]*)\.(?P<side>INPUT|OUTPUT)\.(?P<slot>\d{1,4})\.(?P<when>\d{14,26})\.npy"
)
_FX_TOPS: Final = ("msprobe_fx_dump", "data_dump")
_TOKEN: Final = re.compile(r"\d{1,11}")
_MODULE: Final = re.compile(r"gm_\w+_dump")
_PROCESS: Final = re.compile(r"(-?\d{1,9})_\d{1,18}")
ATB_FILE: Final = re.compile(r"(in|out)tensor(\d{1,4})\.bin", re.IGNORECASE)
_SINGLE_STEP: Final = re.compile(r"step(\d{1,9})")
_SINGLE_BATCH: Final = re.compile(r"micro_step(\d{1,9})")
_FEW: Final = 50
_LEVELS: Final = 64


class NamedPlace(NamedTuple):
    """The facts in the names of directories down to one of them."""

    rank: int | None = None
    """None where no name tells it."""
    step: int | None = None
    scope: tuple[str, ...] = ()
    """Parts of the names of nodes."""
    depth: int = 0


Says = Callable[[str, NamedPlace], NamedPlace | None]
"""Adds the facts in a directory's name; returns None when it is no part of the tree."""


def read_tree(root: Path, says: Says) -> Layout:
    """Lists the directories that hold files, by rank and step."""
    from tui_debugger.sources.tensor_files.layout import Layout, Unit  # not for the first frame, which finds the dump

    layout = Layout(os.fspath(root))
    waiting = [(layout.root, NamedPlace())]
    while waiting:
        path, place = waiting.pop()
        directories, has_files = [], False
        try:
            with opener.scandir(path) as entries:
                for entry in entries:
                    if is_directory(entry):
                        directories.append(entry.name)
                    else:
                        has_files = True
        except OSError as error:
            layout.miss(path, why_not(path, error), place.rank, place.step)
            continue
        if place.depth >= _LEVELS:
            layout.miss(path, f"more than {_LEVELS} directories below each other", place.rank, place.step)
            continue
        layout.directories.append(path)
        if has_files and place.step is not None:
            units = layout.units.setdefault(max(place.rank or 0, 0), {}).setdefault(place.step, [])
            units.append(Unit(path, place.scope, directory=True))
        below = ((name, says(name, place)) for name in sorted(directories, key=_in_order, reverse=True))
        waiting += [(f"{path}/{name}", at._replace(depth=place.depth + 1)) for name, at in below if at is not None]
    layout.sort()
    return layout


def _in_order(name: str) -> tuple[int, list[tuple[int, str]]]:
    """Sorts by numbers; ``before`` comes first and ``after`` last within an operation."""
    from tui_debugger.sources.tensor_files.layout import natural  # as above

    return {"before": 0, "after": 2}.get(name, 1), natural(name)


def says_fx(name: str, place: NamedPlace) -> NamedPlace | None:
    if (rank := rank_of_folder(name)) is not None and place.rank is None:
        return place._replace(rank=rank)
    if _TOKEN.fullmatch(name) and place.step is None:
        return place._replace(step=int(name))
    if name in _FX_TOPS or _MODULE.fullmatch(name):
        return place
    return place._replace(scope=(*place.scope, name))


def says_atb(name: str, place: NamedPlace) -> NamedPlace | None:
    if place.depth == 0:
        return place if name == "data" else None
    if place.depth == 1:
        process = _PROCESS.fullmatch(name)
        return place._replace(rank=int(process[1])) if process is not None else None
    if place.depth == 2:
        return place._replace(step=int(name)) if _TOKEN.fullmatch(name) else None
    return place._replace(scope=(*place.scope, name))


def says_single(name: str, place: NamedPlace) -> NamedPlace | None:
    if place.depth == 0:
        return place if name == "data" else None
    if (step := _SINGLE_STEP.fullmatch(name)) is not None and place.step is None and place.scope:
        return place._replace(step=int(step[1]))
    if (rank := rank_of_folder(name)) is not None and place.step is not None:
        return place._replace(rank=rank)
    batch = _SINGLE_BATCH.fullmatch(name)
    if batch is not None and not int(batch[1]):
        return place  # SingleSave.save writes one even where there are no others
    return place._replace(scope=(*place.scope, name))


def _holds_fx(directory: str) -> bool:
    return os.path.basename(directory) in _FX_TOPS and any(map(FX_FILE.fullmatch, _first_files(directory, 4)))  # noqa: PTH119


def _first_files(directory: str, levels: int) -> Iterator[str]:
    yield from islice(names_in(directory), _FEW)
    for name in islice(directories_in(directory), 4) if levels else ():
        yield from _first_files(f"{directory}/{name}", levels - 1)


def _holds_atb(directory: str) -> bool:
    return any(
        _PROCESS.fullmatch(process) and any(map(_TOKEN.fullmatch, directories_in(f"{directory}/data/{process}")))
        for process in islice(directories_in(f"{directory}/data"), _FEW)
    )


def _holds_single(directory: str) -> bool:
    """Whether a key has steps, in which ranks have a file of its name."""
    data = f"{directory}/data"
    return any(
        f"{key}.json" in _first_files(f"{data}/{key}/{step}/{rank}", 1)
        for key in islice(directories_in(data), _FEW)
        for step in islice(directories_in(f"{data}/{key}"), 2)
        if _SINGLE_STEP.fullmatch(step)
        for rank in islice(directories_in(f"{data}/{key}/{step}"), 2)
        if rank_of_folder(rank) is not None
    )


def _around(holds: Callable[[str], bool], levels: int) -> Callable[[Path], Path | None]:
    def around(start: Path) -> Path | None:
        places = (start, *list(start.parents)[:levels])
        return next((place for place in places if holds(os.fspath(place))), None)

    return around


_SOURCE: Final = "tui_debugger.sources.named_trees.source"
_SHOWS: Final = replace(
    SHOWS_NOTHING,
    values=Has.YES,
)


FX_READER: Final = NamesReader(
    name="TorchAir FX",
    looked_for="msprobe_fx_dump/ or data_dump/ with files such as mm-aten.mm.default.OUTPUT.0.20240125031118787351.npy",
    shows=replace(
        _SHOWS,
        order=Order.EXECUTION,
        record=(
            "config = torchair.CompilerConfig()",
            'config.debug.data_dump.type = "npy"',
            "model = torch.compile(model, backend=torchair.get_npu_backend(compiler_config=config))",
        ),
        tensors_advice="TorchAir: it writes the inputs and outputs of every call",
    ),
    source=f"{_SOURCE}:open_fx",
    holds=_holds_fx,
    around=_around(_holds_fx, 5),
)
ATB_READER: Final = NamesReader(
    name="ATB",
    looked_for="data/DEVICE_PID/ROUND/ of ATB, with files such as 0_Layer/after/outtensor0.bin",
    shows=replace(
        _SHOWS,
        order=Order.EXECUTION,
        values=Has.SOME,
        statistics=Has.SOME,
        record=("source load_atb_probe.sh --output=/data/dump  # of msprobe", "python serve.py"),
        recorded_in="statistic.csv",
        values_advice="ATB: task tensor",
        tensors_advice="ATB: save the children of layers, too",
    ),
    source=f"{_SOURCE}:open_atb",
    holds=_holds_atb,
    around=_around(_holds_atb, _LEVELS),
)
SINGLE_READER: Final = NamesReader(
    name="msprobe SingleSave",
    looked_for="data/KEY/step0/rank0/ with KEY.npy and KEY.json",
    shows=replace(
        _SHOWS,
        gradients=Has.SOME,
        record=(
            "from msprobe.core.single_save.single_saver import SingleSave",
            'saver = SingleSave("dump")',
            'saver.save({"loss": loss}); saver.step()',
        ),
        tensors_advice="SingleSave: name them in save()",
    ),
    source=f"{_SOURCE}:open_single",
    holds=_holds_single,
    around=_around(_holds_single, 6),
)
