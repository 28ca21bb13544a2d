"""Random objects in files of torch.save: a NaN anywhere in them is found, or said to be not looked at."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")
from tests import thorough  # noqa: E402 - see above
from tests.stats import object_trees  # noqa: E402
from tui_debugger.errors import UnreadableTensorError  # noqa: E402
from tui_debugger.model import ReadSpec  # noqa: E402
from tui_debugger.stats.npy import open_array  # noqa: E402
from tui_debugger.stats.torch_file import read_tree  # noqa: E402

FORMATS: tuple[dict[str, Any], ...] = (
    {},
    {"_use_new_zipfile_serialization": False},
    {"pickle_protocol": 4},
    {"pickle_protocol": 5},
)


def judged(path: Path) -> dict[str, str]:
    """Returns what is wrong with a file: by place of a tensor that it has NaN, or why it cannot be read."""
    try:
        members = read_tree(str(path)).members
    except UnreadableTensorError as error:
        return {"": error.what}
    found = {}
    for member in members:
        try:
            array = open_array(ReadSpec(str(path), "pt", member=member))
        except UnreadableTensorError as error:
            found[member] = error.what
            continue
        if not np.isfinite(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)).all():
            found[member] = "NaN"
    return found


def saved(folder: Path, what: Any, how: dict[str, Any]) -> Path:
    path = folder / "x.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(what, path, **how)
    return path


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(60), thorough.later(range(60, 500))], ids=["some", "all"])
def test_no_nan_is_clean(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(seed)  # noqa: S311 - no secret
        what, kind = object_trees.tree(chance, object_trees.NAN)
        assert judged(saved(tmp_path, what, FORMATS[seed % len(FORMATS)])), f"seed {seed}: {kind}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(1000, 1040), thorough.later(range(1040, 1200))], ids=["some", "all"])
def test_healthy_objects_are_clean(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(seed)  # noqa: S311 - no secret
        what, kind = object_trees.tree(chance, 0.25)
        found = judged(saved(tmp_path, what, FORMATS[seed % len(FORMATS)]))
        assert found == {}, f"seed {seed}: {kind}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", FORMATS, ids=["zip", "legacy", "protocol 4", "protocol 5"])
@pytest.mark.parametrize("kind", object_trees.LEAVES)
def test_every_leaf_and_its_healthy_twin(tmp_path: Path, kind: str, how: dict[str, Any]) -> None:
    leaf = object_trees.LEAVES[kind]
    assert "NaN" in judged(saved(tmp_path, {"x": leaf(object_trees.NAN)}, how)).values()
    assert judged(saved(tmp_path, {"x": leaf(0.25)}, how)) == {}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("around", object_trees.AROUND)
def test_whatever_is_around_a_tensor(tmp_path: Path, around: Any) -> None:
    assert "NaN" in judged(saved(tmp_path, {"x": around(torch.tensor([object_trees.NAN]))}, {})).values()
    assert judged(saved(tmp_path, {"x": around(torch.ones(2))}, {})) == {}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", FORMATS, ids=["zip", "legacy", "protocol 4", "protocol 5"])
@pytest.mark.parametrize("number", range(len(object_trees.SETTINGS)))
def test_settings_are_no_doubt(tmp_path: Path, number: int, how: dict[str, Any]) -> None:
    assert judged(saved(tmp_path, {"x": object_trees.SETTINGS[number]()}, how)) == {}
