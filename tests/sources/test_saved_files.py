"""Checkpoints and arrays that PyTorch, safetensors and NumPy themselves wrote: every value, and what damage does."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import thorough
from tests.cli.running import run
from tests.linked import linked, own
from tests.stats.test_torch_file import damaged
from tui_debugger.errors import TdbgError, UnreadableTensorError
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source
from tui_debugger.stats.npy import open_array, read_meta
from tui_debugger.stats.torch_file import path_of

Capsys = pytest.CaptureFixture[str]
NAME = "checkpoints"


@pytest.fixture
def root(dumps: Callable[[str], Path]) -> Path:
    return dumps(NAME)


def expected(root: Path, sample: str) -> dict[str, dict[str, Any]]:
    """What torch says of tensors of a sample."""
    found: dict[str, Any] = json.loads((root / "expected.json").read_text())[sample]["stats"]
    return {name: said for name, said in found.items() if isinstance(said, dict) and "shape" in said}


def by_place(source: Source) -> dict[tuple[int, str], Any]:
    """How each tensor is read, by step and node."""
    found = {}
    for step in source.steps(0):
        table, nodes = source.tensors(0, step), source.nodes(0)
        found |= {(step, nodes.names[int(table.node[at])]): table.spec(at) for at in range(len(table))}
    return found


def is_read(spec: Any) -> bool:
    try:
        return open_array(spec)[...] is not None
    except UnreadableTensorError:
        return False


def assert_as_said(spec: Any, said: dict[str, Any], name: str) -> None:
    values = np.asarray(open_array(spec))
    assert list(values.shape) == said["shape"], name
    assert read_meta(spec).dtype == said["dtype"], name
    if values.dtype.kind == "c":
        assert np.isclose(values.astype(np.complex128).sum(), complex(said["sum"]), rtol=1e-12), name
        return
    if not values.size:
        return
    wide = values.astype(np.float64)
    assert int(np.isnan(wide).sum()) == said["nan"], name
    assert (int((wide == np.inf).sum()), int((wide == -np.inf).sum())) == (said["posinf"], said["neginf"]), name
    assert int((wide == 0).sum()) == said["zero"], name
    finite = wide[np.isfinite(wide)]
    if "finite_min" in said:
        assert (finite.min(), finite.max()) == (said["finite_min"], said["finite_max"]), name
        assert math.isclose(float(np.sqrt((finite**2).sum())), said["finite_l2_f64"], rel_tol=1e-9), name


def test_every_value_of_whole_checkpoints_in_all_element_types(root: Path) -> None:
    with closing(open_source(root / "ckpt-hf")) as source:
        found = by_place(source)
        assert list(source.steps(0)) == [1, 2, 3, 4]
        for name, said in expected(root, "ckpt-hf").items():
            checkpoint, _, node = name.partition(" ")
            step = int(checkpoint.rpartition("-")[2])
            assert_as_said(found[step, node], said, name)


def test_every_value_of_checkpoints_in_pieces_is_that_of_the_whole(root: Path) -> None:
    """Headers of shards have the shape of the shard; nothing but their offsets tells that of the tensor."""
    with closing(open_source(root / "ckpt-dcp/dcp")) as source:
        pieces = by_place(source)
    for name, said in expected(root, "ckpt-dcp").items():
        _, step, node = name.split(" ", 2) if name.startswith("dcp step") else ("", "", "")
        if step:
            assert_as_said(pieces[int(step.rpartition("-")[2]), node], said, name)
    for other in ("dcp_hf", "dcp_hf_consolidated"):
        with closing(open_source(root / "ckpt-dcp" / other)) as source:
            shards = by_place(source)
        assert len(shards) in {28, 56}
        for (step, node), spec in shards.items():
            same = np.array_equal(open_array(spec), open_array(pieces[step, f"model.{node}"]), equal_nan=True)
            assert same, (other, step, node)


def test_every_value_that_torch_saved(root: Path) -> None:
    """All element types, views, conjugated and negated ones, files of before PyTorch 1.6, checkpoints with settings."""
    with closing(open_source(root / "torch-save-files")) as source:
        table = source.tensors(0, 0)
        found = {}
        for at in range(len(table)):
            spec = table.spec(at)
            found[Path(spec.path).name, ".".join(str(key) for key in path_of(spec.member))] = spec
        names, refused = set(), []
        for name, said in expected(root, "torch-save-files").items():
            file, _, place = name.partition(":")
            if (file, place) not in found:
                continue
            names.add(file)
            if is_read(found[file, place]):
                assert_as_said(found[file, place], said, name)
            else:
                refused.append(file)
        assert set(refused) <= {"sparse_coo.pt", "sparse_csr.pt", "quantized.pt", "meta_device.pt"}
        assert {"conj.pt", "neg.pt", "views.pt", "legacy_views.pt", "tied.pt", "zip_protocol4.pt"} <= names
        assert sum(file.startswith("dtype_") for file in names) > 15
        assert [part.where for part in source.unreadable()] == ["torchscript.pt"]


def test_every_value_of_archives_of_numpy(root: Path) -> None:
    with closing(open_source(root / "npy-npz/npz")) as source:
        found = by_place(source)
        for name, said in expected(root, "npy-npz").items():
            kind, step, node = name.split(" ", 2)
            if kind == "npz":
                assert_as_said(found[int(step.rpartition("_")[2]), node], said, name)


@pytest.mark.parametrize(
    ("place", "code", "first"),
    [
        ("ckpt-hf", 1, (3, "layers.0.input_layernorm.weight")),
        ("ckpt-dcp/dcp", 1, (3, "model.layers.0.input_layernorm.weight")),
        ("ckpt-dcp/dcp_hf", 1, (3, "layers.0.input_layernorm.bias")),
        ("ckpt-dcp/dcp_hf_consolidated", 0, None),
        ("npy-npz/npz", 1, (3, "energy")),
        ("npy-npz/npy", 1, (3, "activations/energy")),
    ],
)
def test_the_first_bad_tensor_is_named_and_the_exit_code_is_right(
    root: Path, capsys: Capsys, place: str, code: int, first: tuple[int, str] | None
) -> None:
    assert run(capsys, "check", root / place).code == code
    answer = run(capsys, "origin", root / place, "--json")
    assert (answer.code, answer.json["origins"]) == (code, [])
    known = answer.json["first_known"]
    assert (None if known is None else (known["step"], known["node"])) == first


def test_the_embedding_stays_finite_where_every_other_weight_is_bad(root: Path, capsys: Capsys) -> None:
    answer = run(capsys, "check", root / "ckpt-hf", "--watch", "TO", "--step", "3", "--limit", "0", "--json").json
    bad = {hit["node"] for hit in answer["hits"]}
    assert "output_layer.weight" in bad
    assert not [name for name in bad if name.startswith("embedding")]


@pytest.mark.covering
@pytest.mark.parametrize("count", [20, thorough.later(3_400)])
@pytest.mark.parametrize("place", ["ckpt-dcp/dcp", "ckpt-dcp/dcp_hf", "ckpt-hf"])
def test_damaged_checkpoints_are_read_or_refused_piece_by_piece(
    root: Path, tmp_path: Path, place: str, count: int
) -> None:
    copy = linked(root, tmp_path / "all") / place
    files = sorted(path for path in copy.rglob("*") if path.is_file() and "step-3" not in str(path))
    files = [path for path in files if path.suffix in {".distcp", ".safetensors", ".json"} or path.name == ".metadata"]
    whole = {path: path.read_bytes() for path in files}
    chance = random.Random(20260101)  # noqa: S311 - only damage is made of it
    unread = 0
    for number in range(count):
        victim = own(files[number % len(files)])
        victim.write_bytes(damaged(whole[victim], chance))
        try:
            with closing(open_source(copy)) as source:
                step = source.steps(0)[0] if source.steps(0) else 0
                table = source.tensors(0, step)
                unread += sum(not is_read(table.spec(at)) for at in range(0, len(table), 5))
                unread += len(source.unreadable())
        except TdbgError:
            unread += 1
        victim.write_bytes(whole[victim])
    assert unread
