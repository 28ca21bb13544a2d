"""Tensors in pieces, put together: the values are those of the whole, and pieces that do not fill it are refused."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")
from tests.sources.arrays import write_safetensors
from tests.sources.checkpoints import INDEX, Cut, cuts_of, dcp, write_checkpoint, write_shards
from tests.stats.requests import look
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec
from tui_debugger.stats import sharded
from tui_debugger.stats.blocks import boxes
from tui_debugger.stats.npy import TensorFile, open_array, read_meta
from tui_debugger.stats.sharded import read_index, read_shards

Array = npt.NDArray[Any]
FOLDERS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(st.lists(st.integers(1, 5), max_size=4), st.data())
def test_a_stretch_of_elements_is_boxes_in_their_order(shape: list[int], data: st.DataObject) -> None:
    count = math.prod(shape)
    start = data.draw(st.integers(0, count))
    length = data.draw(st.integers(0, count - start))
    if not shape:
        start, length = 0, 1
    numbers = np.arange(count).reshape(shape)
    parts = [numbers[tuple(slice(*each) for each in box)].reshape(-1) for box in boxes(tuple(shape), start, length)]
    assert np.concatenate([np.zeros(0, int), *parts]).tolist() == list(range(start, start + length))
    assert len(parts) <= 2 * len(shape) + 1


def is_read(spec: ReadSpec, values: Array) -> None:
    array = open_array(spec)
    assert (array.dtype, array.shape, array.tobytes()) == (values.dtype, values.shape, values.tobytes())
    assert not array.flags.writeable
    assert read_meta(spec).shape == values.shape
    flat = values.reshape(-1)
    with TensorFile(spec) as file:
        for first, count in ((0, len(flat)), (len(flat) // 3, len(flat) // 2), (len(flat) // 2, 1)):
            if first + count <= len(flat):
                assert file.read(first, count).tobytes() == flat[first : first + count].tobytes()


@FOLDERS
@given(st.lists(st.integers(1, 6), max_size=3), st.data())
def test_any_grid_of_pieces(tmp_path: Path, shape: list[int], data: st.DataObject) -> None:
    edges = [data.draw(st.lists(st.integers(0, 6), max_size=3)) for _ in shape]
    values = np.arange(math.prod(shape), dtype=data.draw(st.sampled_from(["f4", "i8", "f2"]))).reshape(shape)
    cuts = data.draw(st.permutations(cuts_of(shape, edges)))
    index = write_checkpoint(tmp_path / "dcp", {"w": values}, {"w": cuts})
    is_read(ReadSpec(index, "dcp", member="w"), values)
    for path in tmp_path.glob("shards/*"):
        path.unlink()
    is_read(write_shards(tmp_path / "shards", values, cuts), values)


def test_names_come_in_the_order_of_the_index_and_objects_stand_apart(tmp_path: Path) -> None:
    values = {"model.w": np.ones((4, 2)), "model.b": np.ones(3), "optim.state.w.exp_avg": np.zeros((4, 2))}
    cuts = {name: cuts_of(array.shape, [[2], []][: array.ndim]) for name, array in values.items()}
    index = write_checkpoint(tmp_path, values, cuts)
    found = read_index(index)
    assert list(found.tensors) == list(values)
    assert list(found.objects) == ["lr"]


def test_statistics_are_those_of_the_whole(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(300, 1000)).astype(np.float32)
    np.save(tmp_path / "x.npy", values)
    index = write_checkpoint(tmp_path / "dcp", {"w": values}, {"w": cuts_of(values.shape, [[100, 200], [7, 600]])})
    assert look(ReadSpec(index, "dcp", member="w")).stats == look(tmp_path / "x.npy").stats


def test_big_tensors_are_put_together_in_a_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded, "WHOLE_FILE", 1 << 10)
    values = np.arange(10_000.0).reshape(100, 100)
    is_read(write_shards(tmp_path, values, cuts_of(values.shape, [[50], [30]])), values)


class TestRefused:
    VALUES = np.arange(24.0).reshape(4, 6)
    CUTS = cuts_of((4, 6), [[2], [3]])

    def refused(self, spec: ReadSpec, words: str) -> None:
        with pytest.raises(UnreadableTensorError, match=words):
            open_array(spec)

    @pytest.mark.parametrize(
        ("cuts", "words"),
        [
            (CUTS[:-1], "lacks 6 of its 24 elements: a piece of it is missing"),
            ([*CUTS, CUTS[0]], "pieces that overlap"),
            ([*CUTS[:-1], CUTS[0]], "pieces that overlap"),
        ],
    )
    def test_pieces_that_do_not_fill_it_once(self, tmp_path: Path, cuts: list[Cut], words: str) -> None:
        index = write_checkpoint(tmp_path / "dcp", {"w": self.VALUES}, {"w": cuts})
        self.refused(ReadSpec(index, "dcp", member="w"), words.replace("pieces that overlap", "overlap|does not place"))

    def test_shards_that_do_not_fill_it_once(self, tmp_path: Path) -> None:
        self.refused(write_shards(tmp_path / "a", self.VALUES, [*self.CUTS[:1], *self.CUTS[2:]]), "lacks 6 of its 24")
        self.refused(write_shards(tmp_path / "b", self.VALUES, [*self.CUTS, self.CUTS[0]]), "pieces that overlap")

    def test_a_piece_beyond_it(self, tmp_path: Path) -> None:
        index = write_checkpoint(tmp_path, {"w": self.VALUES}, {"w": self.CUTS}, shape=(4, 5))
        self.refused(ReadSpec(index, "dcp", member="w"), "reaches beyond it")

    @pytest.mark.parametrize("path", ["../__0_0.distcp", "/etc/passwd", "..", "a/b", ""])
    def test_a_file_elsewhere(self, tmp_path: Path, path: str) -> None:
        index = write_checkpoint(tmp_path, {"w": self.VALUES}, {"w": self.CUTS}, path=path)
        self.refused(ReadSpec(index, "dcp", member="w"), "in no file beside its index")

    def test_what_was_packed(self, tmp_path: Path) -> None:
        index = write_checkpoint(tmp_path, {"w": self.VALUES}, {"w": self.CUTS}, packed=True)
        self.refused(ReadSpec(index, "dcp", member="w"), "packed or encrypted")

    def test_a_file_that_is_gone_or_cut(self, tmp_path: Path) -> None:
        index = write_checkpoint(tmp_path, {"w": self.VALUES}, {"w": self.CUTS})
        part = tmp_path / "__1_0.distcp"
        part.write_bytes(part.read_bytes()[:-10])
        self.refused(ReadSpec(index, "dcp", member="w"), "ends before byte")
        part.unlink()
        self.refused(ReadSpec(index, "dcp", member="w"), "no such file")

    def test_an_index_that_is_none(self, tmp_path: Path) -> None:
        for content in (None, [], {"a": 1}, dcp.BytesStorageMetadata()):
            (tmp_path / INDEX).unlink(missing_ok=True)
            (tmp_path / INDEX).write_bytes(pickle.dumps(content))
            with pytest.raises(UnreadableTensorError, match="is no index of a distributed checkpoint"):
                read_index(str(tmp_path / INDEX))

    def test_shards_without_notes(self, tmp_path: Path) -> None:
        none = ["{", "{}", '{"w":1}', "[]"]
        for notes in (None, {}, *({"DCP_SHARDING_INFO": text} for text in none)):
            path = tmp_path / "shard-00001-model-00001-of-00001.safetensors"
            path.unlink(missing_ok=True)
            write_safetensors(path, {"w": self.VALUES}, notes)
            with pytest.raises(UnreadableTensorError, match="does not say where its pieces"):
                read_shards(str(tmp_path))
