"""One small error in a copy of a real dump: the node whose output was changed is the headline.

An error below the floor is no plant. The floor, for float32: a factor or an offset of 1 % of the root mean square, a
turned sign, or one element of at least that size changed by half of it. For 16-bit types, which round to 0.2 %: 5 %
instead of 1 %, and the one element turned in sign. NaN, and another whole number, are above any floor.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.session.opened import opened
from tests.thorough import few
from tui_debugger.diagnose.runs.comparison import compare_runs
from tui_debugger.model import Category, Side
from tui_debugger.session import Session
from tui_debugger.stats.torch_file import path_of

Array = npt.NDArray[Any]
Dumps = Callable[[str], Path]

LAYOUTS = (
    "mindspore-2.0-mlp",
    "mindspore-2.0-multi-eval",
    "mindspore-2.10-mlp",
    "mindspore-2.10-multi-gan",
    "msprobe-L1-nan",
    "msprobe-mix/good",
    "msprobe-mindspore/dump",
    "msprobe-L0-slice/dump",
    "msprobe-pairs/k_noreduce/A",
    "sglang-megatron/megatron-tp2/good",
)
"""MindSpore's own dumps of two versions; msprobe's of PyTorch calls, modules and both, of two ranks, and of MindSpore's
cells; and files of one tensor each, of two ranks."""
KINDS = ("scale", "offset", "sign", "row", "element", "nan")
SEEDS = range(5)
PLANTS = list(product(LAYOUTS, KINDS, SEEDS))
"""300 in a thorough run; every day 17 of them, of every layout, kind and seed."""


@dataclass(frozen=True)
class Target:
    """A tensor that may be changed."""

    rank: int
    step: int
    node: str
    file: Path
    member: str


def targets(session: Session) -> list[Target]:
    """Every output that has values, but constants."""
    found = []
    for rank in session.ranks():
        flow = session.flow(rank)
        for step in session.steps(rank):
            table = flow.table(step)
            for index in np.flatnonzero(table.side == int(Side.OUTPUT)).tolist():
                row = int(table.node[index])
                if flow.nodes.category_of(row) is not Category.CONSTANT:
                    spec = table.spec(index)
                    found.append(Target(rank, step, flow.nodes.names[row], Path(spec.path), spec.member))
    return found


def changed(kind: str, values: Array, size: int) -> Array | None:
    """One small error; None where there is nothing to change. ``size`` is that of an element as it was saved."""
    if not values.size:
        return None
    if values.dtype.kind in "iu":
        other = values.copy()
        other.reshape(-1)[values.size // 2] += 1
        return other
    if values.dtype.kind != "f":
        return None
    wide = values.astype(np.float64)
    rms = float(np.sqrt(np.mean(wide[np.isfinite(wide)] ** 2))) if np.isfinite(wide).any() else 0.0
    if not rms and kind != "nan":
        return None
    part = 0.01 if size > 2 else 0.05
    at = int(np.argmax(np.where(np.isfinite(wide), np.abs(wide), -1)))
    other = wide.copy()
    flat = other.reshape(-1)
    if kind == "scale":
        other *= 1 + part
    elif kind == "offset":
        other += part * rms
    elif kind == "sign":
        other = -other
    elif kind == "row":
        rows = np.flatnonzero(np.abs(wide.reshape(len(wide), -1)).sum(axis=1) > 0) if wide.ndim else np.zeros(0, int)
        if not len(rows):
            return None
        other[rows[-1]] *= 1.5
    elif kind == "element":
        flat[at] *= 0.5 if size > 2 else -1
    else:
        flat[at] = np.nan
    return other.astype(values.dtype)


def plant(kind: str, file: Path, member: str) -> bool:
    """Changes a tensor of a file; False where there is nothing to change."""
    if file.suffix == ".npy":
        values = np.load(file)
        wrong = changed(kind, values, values.itemsize)
        if wrong is None or np.array_equal(values, wrong, equal_nan=values.dtype.kind == "f"):
            return False
        np.save(file, wrong)
        return True
    torch = pytest.importorskip("torch")
    saved: dict[str, Any] = {"": torch.load(file, weights_only=False)}
    holder: Any = saved
    key: Any = ""
    for each in path_of(member):
        holder, key = holder[key], each
    tensor = holder[key].detach()
    as_numpy = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    wrong = changed(kind, as_numpy, tensor.element_size())
    if wrong is None:
        return False
    other = torch.from_numpy(np.asarray(wrong)).to(tensor.dtype)
    if torch.equal(torch.nan_to_num(other, 0.5), torch.nan_to_num(tensor, 0.5)):
        return False
    holder[key] = other
    torch.save(saved[""], file)
    return True


def plants(dump: Path, session: Session, kind: str, folder: Path, seed: str) -> Iterator[tuple[Target, Path]]:
    """Yields places drawn by chance, each with a copy of the dump that is wrong there."""
    every = targets(session)
    for number, target in enumerate(random.Random(seed).sample(every, len(every))):  # noqa: S311 - no secret
        copy = folder / f"{number}"
        shutil.copytree(dump, copy)
        if plant(kind, copy / target.file.relative_to(dump), target.member):
            yield target, copy
        shutil.rmtree(copy)


@pytest.mark.parametrize(("name", "kind", "seed"), few(PLANTS, 17))
def test_a_planted_error_is_the_headline(dumps: Dumps, tmp_path: Path, name: str, kind: str, seed: int) -> None:
    archive, _, inside = name.partition("/")
    dump = dumps(archive) / inside
    original = opened(dump)
    drawn = plants(dump, original, kind, tmp_path, f"{name} {kind} {seed}")
    target, copy = next(drawn)
    wrong = opened(copy)
    for sides in ((original, wrong), (wrong, original)):
        headline = compare_runs(*sides).headline
        assert headline is not None, target
        assert (headline.place.step_a, headline.place.rank_a, headline.name) == (target.step, target.rank, target.node)
    wrong.close()
    original.close()
