"""Opens the trees whose names say everything: see ``layout``."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from tui_debugger.arrays import Float64
from tui_debugger.model import AtLeast, Category, ReadSpec, Side, TensorStats
from tui_debugger.opener import GRAPH_LIMIT, read_lines, read_regular
from tui_debugger.sources.base import TensorFlag
from tui_debugger.sources.named_trees.layout import (
    ATB_FILE,
    ATB_READER,
    FX_FILE,
    FX_READER,
    SINGLE_READER,
    read_tree,
    says_atb,
    says_fx,
    says_single,
)
from tui_debugger.sources.tensor_files.converted import IndexedTensor
from tui_debugger.sources.tensor_files.listing import GRAPH, STATISTICS, FileTree, NamedFile
from tui_debugger.sources.tensor_files.source import TensorFilesSource
from tui_debugger.stats.atb_file import named_instead
from tui_debugger.stats.dtypes import canonical_name
from tui_debugger.stats.records import mean_tells_nan

_TITLES: Final = (
    *("Device and PID", "Execution Count", "Op Name", "Op Type", "Op Id", "Input/Output", "Index", "Dtype", "Format"),
    *("Shape", "Max", "Min", "Mean", "Norm", "Tensor Path"),
)
_NUMBERS: Final = ("Max", "Min", "Mean", "Norm")
_NOT_KNOWN: Final = "N/A"
_NO_NUMBER: Final = frozenset({"", "-", "n/a", "na", "none", "null"})
"""Cells that stand for a number that was not recorded; any other word makes the row invalid."""
_NATURAL_SIDES: Final = {"before": Side.INPUT, "after": Side.OUTPUT}
"""The directory of inputs, and of outputs, in ATB's dumps."""


def fx_file(scope: Sequence[str], name: str) -> NamedFile | None:
    """Parses ``mm-aten.mm.default.OUTPUT.0.20240125031118787351.npy``."""
    found = FX_FILE.fullmatch(name)
    if found is None:
        return None
    _, function, *_ = found["call"].split(".")
    side = Side[found["side"]]
    return NamedFile(
        "/".join((*scope, found["node"])), function, side, int(found["slot"]), ReadSpec(""), int(found["when"])
    )


def atb_file(scope: Sequence[str], name: str) -> NamedFile | None:
    """Parses ``0_Layer/1_Linear/after/outtensor0.bin``."""
    found = ATB_FILE.fullmatch(name)
    if found is None or not scope:
        return None
    side = Side.INPUT if found[1].lower() == "in" else Side.OUTPUT
    *around, when = scope
    node = around if around and _NATURAL_SIDES.get(when) is side else scope
    return NamedFile("/".join(node), _type_of(node[-1]), side, int(found[2]), ReadSpec("", "atb"))


def _type_of(part: str) -> str:
    return part.partition("_")[2] or part


def single_file(scope: Sequence[str], name: str) -> NamedFile | None:
    """Parses a file of SingleSave: its key, and which part of a list or a dictionary it is."""
    stem, dot, suffix = name.rpartition(".")
    if not dot or suffix != "npy" or not stem or not scope:
        return None
    key, *more = scope
    rest = stem.removeprefix(f"{key}.") if stem.startswith(f"{key}.") else ""
    if rest.isdecimal() and len(rest) < 5:
        return NamedFile("/".join((key, *more)), "", Side.OUTPUT, int(rest), ReadSpec(""))
    return NamedFile("/".join((stem, *more)), "", Side.OUTPUT, 0, ReadSpec(""))


def _named_by_single(scope: Sequence[str], path: str) -> Sequence[str]:
    """The tensor files that ``KEY.json`` describes: one, a list of them, or those of a dictionary.

    Raises OSError when the file cannot be read, and ValueError for other content.
    """
    if not scope or os.path.basename(path) != f"{scope[0]}.json":  # noqa: PTH119 - text, for many
        return ()
    document = json.loads(read_regular(path, GRAPH_LIMIT))
    saved = document.get("data") if isinstance(document, dict) else None
    if isinstance(saved, list):
        return [f"{scope[0]}.{slot}.npy" for slot in range(len(saved))]
    if isinstance(saved, dict):
        several = all(isinstance(each, dict) for each in saved.values())
        return [f"{scope[0]}.{key}.npy" for key in saved] if several else [f"{scope[0]}.npy"]
    raise ValueError("does not say which tensors were saved")


def _named_by_atb(_: Sequence[str], path: str) -> Sequence[str]:
    """The file that a file of ATB names in place of its values."""
    return named_instead(path) if ATB_FILE.fullmatch(os.path.basename(path)) else ()  # noqa: PTH119 - text, for many


# -- statistics of ATB ---------------------------------------------------------------------------------------------


def recorded_by_atb(directory: str) -> Iterator[tuple[IndexedTensor, str]]:
    """Yields the tensors of a table of statistics, each with its problem: a file that should be there.

    Raises OSError when the table cannot be read, and ValueError when it makes no sense.
    """
    texts = (line.decode("utf-8", "surrogateescape") for line in read_lines(f"{directory}/{STATISTICS}", cut=True))
    lines = csv.reader(texts)
    try:
        titles = tuple(next(lines, ()))
        if titles != _TITLES:
            raise ValueError("not the titles of a table of ATB")
        for cells in lines:
            if len(cells) != len(_TITLES):
                raise ValueError(f"line {lines.line_num}: a row of another length")
            yield _row(dict(zip(_TITLES, cells, strict=True)))
    except csv.Error as error:
        raise ValueError(str(error)) from error


def _row(cells: dict[str, str]) -> tuple[IndexedTensor, str]:
    names, ids = cells["Op Name"].split("/"), cells["Op Id"].split("_")
    side = cells["Input/Output"].strip().lower()[:2]
    slot = cells["Index"].strip()
    shape = tuple(int(size) for size in re.findall(r"\d{1,15}", cells["Shape"]))
    if len(names) != len(ids) or side not in {"in", "ou"} or not (slot.isdecimal() and len(slot) < 5):
        raise ValueError(f"a row that makes no sense: {','.join(cells.values())[:80]}")
    node = "/".join(f"{number}_{name}" for number, name in zip(ids, names, strict=True))
    numbers = [_number(cells[title]) for title in _NUMBERS]
    row = IndexedTensor(
        file="",
        graph=GRAPH,
        node=node,
        path=node,
        type=cells["Op Type"],
        category=Category.OTHER,
        side=Side.INPUT if side == "in" else Side.OUTPUT,
        slot=int(slot),
        marks=TensorFlag.STAT_ONLY,
        dtype=canonical_name(cells["Dtype"].strip()) or cells["Dtype"].strip().lower(),
        shape=shape,
        stats=_stats(math.prod(shape), *numbers) if any(each is not None for each in numbers) else None,
    )
    path = cells["Tensor Path"].strip()
    has_file = row.stats is None and path != _NOT_KNOWN
    return row, f"its file is not there: {path.rpartition('/')[2]}" if has_file else ""


def _number(text: str) -> float | None:
    if text.strip().lower() in _NO_NUMBER:
        return None
    return float(text)


def _or_nan(value: float | None) -> Float64:
    return np.array(math.nan if value is None else value)


def _stats(
    count: int, largest: float | None, smallest: float | None, mean: float | None, norm: float | None
) -> TensorStats:
    """The statistics of a row. Extremes may skip NaN: only the norm proves that there is none."""
    told = [each for each in (largest, smallest, norm) if each is not None]
    by_mean = mean is not None and math.isnan(mean) and bool(mean_tells_nan(*map(_or_nan, (largest, smallest, norm))))
    nan = int(by_mean or any(map(math.isnan, told)))
    pos_inf, neg_inf = int(largest == math.inf), int(smallest == -math.inf)
    unknown = norm is None or nan or pos_inf or neg_inf
    finite = [None if each is None or not math.isfinite(each) else each for each in (smallest, largest, mean, norm)]
    return TensorStats(
        count=count,
        nan=nan,
        pos_inf=pos_inf,
        neg_inf=neg_inf,
        zero=0,
        negative=0,
        positive=0,
        minimum=finite[0],
        maximum=finite[1],
        mean=finite[2],
        abs_mean=None,
        variance=None,
        sum_squares=finite[3] ** 2 if finite[3] is not None else 0.0,
        at_least=AtLeast.NAN | AtLeast.INF if unknown and count else AtLeast.NONE,
    )


def _open(tree: FileTree, root: Path, given: Path, notices: Sequence[str] = ()) -> TensorFilesSource:
    return TensorFilesSource(root, given, notices, tree)


open_fx: Final = partial(
    _open, FileTree("dump of TorchAir (FX)", partial(read_tree, says=says_fx), fx_file, FX_READER.shows, ending=".npy")
)
open_atb: Final = partial(
    _open,
    FileTree(
        "dump of ATB",
        partial(read_tree, says=says_atb),
        atb_file,
        ATB_READER.shows,
        refers=_named_by_atb,
        recorded=recorded_by_atb,
    ),
)
open_single: Final = partial(
    _open,
    FileTree(
        "dump of msprobe (SingleSave)",
        partial(read_tree, says=says_single),
        single_file,
        SINGLE_READER.shows,
        refers=_named_by_single,
        ending=".npy",
    ),
)
