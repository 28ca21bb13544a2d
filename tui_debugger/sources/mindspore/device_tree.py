"""Trees of the directories into which Ascend devices dump: ``TIME/DEVICE``, and what lies around and below them.

================================================== ===============================================================
``STEP/TIME/DEVICE/[MODEL/]ID/ITERATION``          MindSpore, graph mode O2
``STEP/TIME/DEVICE``                               MindSpore 2.3, O0 and O1: operators; those that communicate lie below
``TIME/DEVICE/MODEL/ID/STEP``                      ACL, GE, TensorFlow; MindSpore with ENABLE_MS_GE_DUMP
``TIME/DEVICE``, formerly ``DEVICE/OPERATOR``       ACL, operators one by one
``step0/TIME/DEVICE``                              msprobe at level L2, vLLM, SGLang
``rank_0/TIME/step_0``                             msprobe for graph mode O2
``worldsize2_global_rank0/TIME/DEVICE/GRAPH/ID/STEP`` TorchAir
``TIME/dump_data/npu/TIME/DEVICE/MODEL/ID/STEP``   msit, of a model that ran offline: each of the first is a run
================================================== ===============================================================

Names alone tell the level of a directory, so that one walk reads all of these trees.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from tui_debugger.sources.directories import directories_in, dumps_below, names_in
from tui_debugger.sources.mindspore.layout import (
    DirectoryReader,
    GraphDirectory,
    RankLayout,
    Ranks,
    is_digits,
    is_number,
    relative,
)
from tui_debugger.sources.rank_names import rank_of_folder

TIME: Final = re.compile(r"\d{14}")
"""The beginning of the training."""
_STEP: Final = re.compile(r"(?:step_?)?(\d{1,9})")
_STEP_BELOW: Final = re.compile(r"step_?(\d{1,9})")
_DUMPED: Final = re.compile(r"[0-9a-f]+|.+\.(?:npy|csv)|.+\.\d+\.\d{13,}(?:\.\d+)*")
"""Names of files that a device, or a converter, writes."""
_OF_DEVICE: Final = re.compile(
    r".+(?:\.\d+){1,2}\.\d{13,}(?:\.\d+)*(?:\.(?:input|output)\..+|\.csv)?|statistic\.csv|mapping\.csv|Opdebug\..+"
)
"""Names of files that tell a tree of devices from any directory that is named like a time."""
_OFFLINE: Final = "dump_data/npu"
OPERATORS: Final = "operators"
"""The net of files that lie in the directory of a device."""
_LEVELS: Final = 3
"""Number of levels below the directory of a device: MODEL/ID/ITERATION."""
_MOST: Final = 200
_FEW: Final = 8


class _Leaf(NamedTuple):
    """A directory with files of a device."""

    step: int | None
    """Its number, where a directory above tells."""
    below: tuple[str, ...]
    """Names of the directories below the device's."""
    path: Path

    @property
    def numbers(self) -> list[int]:
        """Number of the model and of its iteration, as far as there are any."""
        return [int(name) for name in self.below[-2:] if is_number(name)]


def find_tree(start: Path) -> list[Path]:
    """The trees at, around or up to two levels below a directory; several only where they lie below."""
    for place in (start, *list(start.parents)[: _LEVELS + 2]):
        if TIME.fullmatch(place.name) and _has_devices(place):
            top = _top_of(place.parent)
            return [place if top == place.parent else top]
    time = _first_time(start)
    if time is not None:
        return [_top_of(time.parent)]
    alone = next((place for place in (start, *list(start.parents)[:3]) if _holds_operators(place)), None)
    return [alone] if alone is not None else dumps_below(start, lambda path: holds_tree(Path(path)), _names_below)


def _names_below(directory: str) -> Iterator[str]:
    """Names of directories that may lead to a tree; msit has two directories above its devices."""
    return (_OFFLINE if name == _OFFLINE.partition("/")[0] else name for name in directories_in(directory))


def holds_tree(directory: Path) -> bool:
    """Whether a directory has ``TIME/DEVICE``, perhaps below directories of steps and ranks, or operators."""
    return _first_time(directory) is not None or _holds_operators(directory)


def _holds_operators(directory: Path) -> bool:
    """Whether a directory has ``DEVICE/OPERATOR`` with a file that a device wrote."""
    return any(
        _has_files(directory / device / operator, 0)
        for device in islice(directories_in(directory), _MOST)
        if is_number(device)
        for operator in islice(directories_in(directory / device), 1)
        if not is_digits(operator)
    )


def _first_time(directory: Path) -> Path | None:
    return next((time for time in _times(directory, []) if _has_devices(time)), None)


def _times(directory: Path, above: list[str]) -> Iterator[Path]:
    """Yields directories of times, below at most one level of steps and one of ranks."""
    for name in islice(directories_in(directory), _MOST):
        if TIME.fullmatch(name):
            yield directory / name
        else:
            level = _level(name)
            if level is not None and level not in above:
                yield from _times(directory / name, [*above, level])


def _level(name: str) -> str | None:
    return "step" if _STEP.fullmatch(name) else "rank" if rank_of_folder(name) is not None else None


def _has_devices(time: Path) -> bool:
    """Whether a directory of a time has one of a device, or of a step, with a file that a device wrote."""
    names = (name for name in islice(directories_in(time), _MOST) if is_digits(name) or _STEP_BELOW.fullmatch(name))
    return any(_has_files(time / name, _LEVELS) for name in islice(names, _FEW))


def _has_files(directory: Path, levels: int) -> bool:
    """Whether a device wrote one of the first files at and below a directory."""
    if any(map(_OF_DEVICE.fullmatch, islice(names_in(directory), _MOST))):
        return True
    return levels > 0 and any(
        _has_files(directory / name, levels - 1) for name in islice(directories_in(directory), _FEW)
    )


def _top_of(place: Path) -> Path:
    """The directory above the directories of a step and a rank."""
    above: list[str] = []
    while (level := _level(place.name)) is not None and level not in above:
        above.append(level)
        place = place.parent
    return place


def list_devices(root: Path) -> Ranks:
    """The devices of a tree, each as a rank; all with the directory of the tree."""
    reader = DirectoryReader(root, None)
    found = {rank for rank, _, _ in _each_device(reader, root)}
    parts = tuple(sorted(reader.parts, key=lambda part: part.where))
    return Ranks(dict.fromkeys(sorted(found), root), frozenset(), parts)


def read_device_layout(root: Path, device: int) -> RankLayout:
    """The layout of one device: a root graph for each model, with the steps at which it ran.

    Where operators lie in the directory of the device, models hold operators of the same program: all are one graph. A
    second time or iteration within a step is reported as unread: which came first is not known.
    """
    reader = DirectoryReader(root, device)
    leaves: list[_Leaf] = []
    for rank, step, place in _each_device(reader, root):
        if rank == device:
            leaves += _leaves(reader, place, step, ())
    one_by_one = any(not leaf.below for leaf in leaves)
    steps: dict[tuple[str, int], dict[int, Path]] = {}
    for leaf in leaves:
        names = [name for name in leaf.below if not is_number(name)]
        model, *more = leaf.numbers or [0]
        step = leaf.step if leaf.step is not None else next(iter(more), 0)
        net = "/".join(names) or OPERATORS
        found = steps.setdefault((f"{net}/{model}", 0) if one_by_one and leaf.below else (net, model), {})
        if step in found:
            first = relative(found[step], root)
            reader.miss(leaf.path, OSError(0, f"the same step of the same model as {first}"), step)
        else:
            found[step] = leaf.path
    graphs = [
        GraphDirectory(net, number, root / net, found, is_around=net == OPERATORS)
        for (net, number), found in sorted(steps.items())
    ]
    return RankLayout(root, tuple(graphs), tuple(sorted(reader.parts, key=lambda part: part.where)))


def _each_device(
    reader: DirectoryReader, place: Path, rank: int | None = None, step: int | None = None
) -> Iterator[tuple[int, int | None, Path]]:
    """Yields (rank, step, directory of a device, or of a step below a time)."""
    if _first_time(place) is None and _holds_operators(place):
        yield from (
            (int(each.name), None, each) for each in reader.inside(place, numbers=True)[0] if is_number(each.name)
        )
        return
    for here in [place] if TIME.fullmatch(place.name) else reader.inside(place)[0]:
        if TIME.fullmatch(here.name):
            for device in reader.inside(here, numbers=True)[0]:
                below = _STEP_BELOW.fullmatch(device.name)
                if is_number(device.name):
                    yield int(device.name) if rank is None else rank, step, device
                elif below is not None:
                    yield rank or 0, int(below[1]), device
        elif step is None and (number := _STEP.fullmatch(here.name)) is not None:
            yield from _each_device(reader, here, rank, int(number[1]))
        elif rank is None and (own := rank_of_folder(here.name)) is not None:
            yield from _each_device(reader, here, own, step)


def _leaves(reader: DirectoryReader, path: Path, step: int | None, below: tuple[str, ...]) -> Iterator[_Leaf]:
    """Yields the directories with files at and below a device's; also directories without any in them."""
    if len(below) == _LEVELS or (len(below) == _LEVELS - 1 and is_number(below[0])):
        yield _Leaf(step, below, path)  # it may hold a million files
        return
    directories, has_files = reader.inside(path, _DUMPED)
    if has_files or not directories:
        yield _Leaf(step, below, path)
    for directory in directories:
        yield from _leaves(reader, directory, step, (*below, directory.name))
