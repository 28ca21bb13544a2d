"""Dumps of MindSpore 1.1 and 1.2: ``NET/[device_0/]iteration_3/Default--MatMul-op4_output_0_shape_2_3_Float32_ND.bin``.

The file name describes the tensor completely; the file holds values only. Devices are ranks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_debugger import opener
from tui_debugger.opener import why_not
from tui_debugger.sources.directories import NamesReader, names_in
from tui_debugger.sources.registry import SHOWS_NOTHING, Has

if TYPE_CHECKING:
    from tui_debugger.sources.base import Source
    from tui_debugger.sources.registry import Reader
    from tui_debugger.sources.tensor_files.layout import Layout
    from tui_debugger.sources.tensor_files.listing import NamedFile

_ITERATION: Final = re.compile(r"iteration_(\d{1,9})")
_DEVICE: Final = re.compile(r"device_(\d{1,9})")
_FILE: Final = re.compile(
    r"(?P<node>.+)_(?P<side>input|output)_(?P<slot>\d{1,4})_shape_(?P<shape>(?:\d{1,18}_)*)_?"
    r"(?P<dtype>[A-Za-z]+\d{0,3})_(?P<format>[A-Za-z]\w*)\.bin",
    re.DOTALL,
)
_NUMBERED: Final = re.compile(r"-op\d+$")
_PLAIN_TYPES: Final = {"float": "float32", "double": "float64", "half": "float16", "int": "int32", "uint": "uint32"}
_LEVELS_UP: Final = 3


def parse_file_name(_: Sequence[str], name: str) -> NamedFile | None:
    """Parses a file name; None where it is no tensor's."""
    from tui_debugger.model import ReadSpec, Side  # not for the first frame, which recognises the dump
    from tui_debugger.sources.tensor_files.listing import NamedFile

    found = _FILE.fullmatch(name)
    if found is None:
        return None
    node = "/".join(part for part in found["node"].split("--") if part)
    shape = tuple(int(each) for each in found["shape"].split("_") if each)
    dtype = found["dtype"].lower().removeprefix("knumbertype")
    dtype = _PLAIN_TYPES.get(dtype, dtype)
    last = node.rpartition("/")[2]
    return NamedFile(
        node=node,
        op_type=_NUMBERED.sub("", last) if _NUMBERED.search(last) else "",
        side=Side.INPUT if found["side"] == "input" else Side.OUTPUT,
        slot=int(found["slot"]),
        spec=ReadSpec("", "raw", dtype, shape),
    )


def read_layout(root: Path) -> Layout:
    from tui_debugger.model import UnreadablePart
    from tui_debugger.sources.tensor_files.layout import Layout, Unit

    layout = Layout(os.fspath(root))

    def miss(path: Path, why: str, rank: int | None) -> None:
        layout.parts.append(UnreadablePart(os.path.relpath(path, root), why, rank))

    def take(directory: Path, found: Sequence[str], rank: int) -> None:
        for name in found:
            match, path = _ITERATION.fullmatch(name), directory / name
            if match is None:
                if not (_DEVICE.fullmatch(name) and directory == root) and _holds_tensors(path):
                    miss(path, "tensors in a directory that is no iteration_N", rank if directory != root else None)
                continue
            steps = layout.units.setdefault(rank, {})
            if int(match[1]) in steps:
                miss(path, "the same iteration as another directory", rank)
            elif not opener.isdir(path):
                miss(path, why_not(path, None), rank)
            else:
                steps[int(match[1])] = [Unit(os.fspath(path), (), directory=True)]

    def names(directory: Path, rank: int | None) -> list[str]:
        try:
            found = opener.listdir(directory)
        except OSError as error:
            miss(directory, why_not(directory, error), rank)
            return []
        layout.directories.append(os.fspath(directory))
        loose = [name for name in found if _FILE.fullmatch(name)]
        if loose:
            miss(directory / "*.bin", f"{len(loose):,} tensors outside an iteration", rank)
        return sorted(found, key=lambda name: (len(name), name))

    inside = names(root, None)
    take(root, inside, 0)
    seen = set(layout.units)
    for name in inside:
        match = _DEVICE.fullmatch(name)
        if match is None:
            continue
        rank = int(match[1])
        if rank in seen:
            miss(root / name, "the same device as another directory", rank)
        else:
            seen.add(rank)
            take(root / name, names(root / name, rank), rank)
    layout.units = {rank: dict(sorted(steps.items())) for rank, steps in sorted(layout.units.items()) if steps}
    return layout


def _around(start: Path) -> Path | None:
    for place in (start, *list(start.parents)[:_LEVELS_UP]):
        if _ITERATION.fullmatch(place.name) and _holds_tensors(place):
            return _net_of(place.parent)
    return _net_of(start) if _is_net(os.fspath(start)) else None


def _net_of(directory: Path) -> Path:
    return directory.parent if _DEVICE.fullmatch(directory.name) else directory


def _is_net(directory: str) -> bool:
    """Whether a directory has iterations, or devices with iterations."""
    for name in names_in(directory):
        here = Path(directory, name)
        inside = (here / inner for inner in names_in(here)) if _DEVICE.fullmatch(name) else (here,)
        if any(_ITERATION.fullmatch(each.name) and _holds_tensors(each) for each in inside):
            return True
    return False


def _holds_tensors(directory: Path) -> bool:
    return any(_FILE.fullmatch(name) for name in names_in(directory))


def open_old_tree(root: Path, given: Path, notices: Sequence[str] = ()) -> Source:
    from tui_debugger.sources.tensor_files.listing import FileTree  # needs NumPy
    from tui_debugger.sources.tensor_files.source import TensorFilesSource

    tree = FileTree("MindSpore 1.1 or 1.2 dump", read_layout, parse_file_name, _SHOWS)
    return TensorFilesSource(root, given, notices, tree)


_SHOWS: Final = replace(
    SHOWS_NOTHING,
    values=Has.YES,
    gradients=Has.YES,
    record=(
        "export MINDSPORE_DUMP_CONFIG=/absolute/data_dump.json",
        "tdbg dump-config --mindspore 1.2 --path /absolute/dump -o data_dump.json",
        "python train.py",
    ),
    tensors_advice="MindSpore: in data_dump.json input_output 0, with all kernels or these in kernels",
)
READER: Final[Reader] = NamesReader(
    name="MindSpore 1.1 or 1.2",
    looked_for="files such as NET/iteration_0/NODE_output_0_shape_2_3_Float32_NCHW.bin",
    shows=_SHOWS,
    source="tui_debugger.sources.mindspore.old_tree:open_old_tree",
    holds=_is_net,
    around=_around,
)
