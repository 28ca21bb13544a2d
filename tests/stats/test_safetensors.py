"""Headers of .safetensors files: what they say, and what is refused by name."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests import thorough
from tests.sources.arrays import TYPES, write_safetensors
from tests.stats.requests import look, look_at
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec
from tui_debugger.stats.npy import open_array
from tui_debugger.stats.safetensors import read_header

Array = npt.NDArray[Any]
FOLDERS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
SEED = 20260102
ONES = np.ones((2, 3), np.float32)


def read(path: Path) -> dict[str, Array]:
    return {name: open_array(replace(spec, path=str(path))) for name, spec in read_header(str(path)).specs.items()}


def refused(path: Path, words: str) -> None:
    with pytest.raises(UnreadableTensorError, match=words) as caught:
        read_header(str(path))
    assert caught.value.where == str(path)


def test_every_element_type(tmp_path: Path) -> None:
    values = {
        name: np.frombuffer(np.arange(64, dtype=np.uint8).tobytes(), dtype)[:4].reshape(2, 2)
        for dtype, name in TYPES.items()
        if name != "BOOL"
    } | {"BOOL": np.array([[True, False]]), "number": np.array(2.5), "empty": np.ones((0, 3))}
    write_safetensors(tmp_path / "x.safetensors", values, {"format": "pt"})
    assert read_header(str(tmp_path / "x.safetensors")).metadata == {"format": "pt"}
    found = read(tmp_path / "x.safetensors")
    assert sorted(found) == sorted(values)
    for name, array in found.items():
        assert (array.dtype, array.shape, array.tobytes()) == (
            values[name].dtype,
            values[name].shape,
            values[name].tobytes(),
        )


@FOLDERS
@given(
    st.dictionaries(
        st.text(max_size=20).filter(lambda name: name != "__metadata__"),
        hnp.arrays(st.sampled_from(["f4", "i8", "?"]), hnp.array_shapes(min_dims=0, min_side=0, max_side=4)),
        max_size=5,
    )
)
def test_what_is_written_comes_back(tmp_path: Path, values: dict[str, Array]) -> None:
    path = tmp_path / "x.safetensors"
    path.unlink(missing_ok=True)
    write_safetensors(path, values)
    found = read(path)
    assert found.keys() == values.keys()
    for name, array in found.items():
        assert np.array_equal(array, values[name], equal_nan=array.dtype.kind == "f")


def test_values_of_four_and_six_bits_are_known_by_name(tmp_path: Path) -> None:
    header = json.dumps(
        {
            "half": {"dtype": "F4", "shape": [2, 4], "data_offsets": [0, 4]},
            "good": {"dtype": "U8", "shape": [2], "data_offsets": [4, 6]},
        }
    ).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(6))
    specs = read_header(str(path)).specs
    with pytest.raises(UnreadableTensorError, match="unknown element type 'F4'"):
        open_array(replace(specs["half"], path=str(path)))
    assert open_array(replace(specs["good"], path=str(path))).tolist() == [0, 0]


def test_the_names_and_bytes_of_all_tensors_in_the_order_of_their_values(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x.safetensors", {"b": ONES, "none": np.ones((0, 3), np.float32), "a": np.int8([1])})
    specs = read_header(str(tmp_path / "x.safetensors")).specs
    assert list(specs.sizes()) == [("b", 24), ("none", 0), ("a", 1)]
    assert [(spec.member, spec.dtype, spec.shape, spec.length) for spec in specs.values()] == [
        ("b", "float32", (2, 3), 24),
        ("none", "float32", (0, 3), 0),
        ("a", "int8", (1,), 1),
    ]
    assert "c" not in specs


def test_places_beyond_64_bits_are_refused(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "U8", "shape": [2**70], "data_offsets": [0, 2**70]}}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    refused(path, "is cut off")


def test_a_file_that_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"a": ONES})
    assert list(read(path)) == ["a"]
    write_safetensors(path, {"a": ONES, "b": ONES})
    assert list(read(path)) == ["a", "b"]


def test_a_tensor_is_where_its_file_says_now(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"a": ONES, "b": ONES * 2})
    spec = ReadSpec(str(path), "safetensors", member="b")
    assert open_array(spec).tolist() == (ONES * 2).tolist()
    assert look(spec).stats == look_at(ONES * 2).stats
    write_safetensors(path, {"new": np.arange(50), "b": np.float64([3, 4, 5])})
    assert open_array(spec).tolist() == [3, 4, 5]
    with pytest.raises(UnreadableTensorError, match="is not in the file"):
        open_array(replace(spec, member="a"))


class TestHostileFiles:
    """Files that were made by hand, and what the library of that name did with them."""

    def test_what_the_library_refuses_is_refused(self, dumps: Callable[[str], Path]) -> None:
        folder = dumps("hostile-tensor-files")
        reference = json.loads((folder / "reference.json").read_text())
        seen = 0
        for name, said in reference.items():
            if not name.endswith(".safetensors"):
                continue
            seen += 1
            if said == "refused":
                with pytest.raises(UnreadableTensorError):
                    read(folder / name)
            else:
                read(folder / name)
        assert seen > 15

    def test_what_is_wrong_is_said_by_name(self, dumps: Callable[[str], Path]) -> None:
        folder = dumps("hostile-tensor-files")
        for name, words in (
            ("duplicate_key", "a key in its header twice"),
            ("overlap", "an overlap before 'b'"),
            ("hole", "a hole before 'b'"),
            ("not_json", "its header is no JSON"),
            ("deep_json", "notes in its header that are no text|its header is no JSON"),
            ("header_len_huge", "ends inside its header"),
            ("shape_mismatch", "do not fit its shape"),
            ("unknown_dtype", "unknown element type 'F128'"),
            ("offsets_past_end", "is cut off"),
        ):
            refused(folder / f"st_{name}.safetensors", words)


@pytest.mark.parametrize("count", [100, thorough.later(10_000)])
def test_damaged_files_are_read_or_refused(tmp_path: Path, count: int) -> None:
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"layer.0.weight": ONES, "b": np.arange(5), "c": np.float16(3)}, {"format": "pt"})
    whole = path.read_bytes()
    chance = random.Random(SEED)  # noqa: S311 - only damage is made of it
    refusals = 0
    for _ in range(count):
        content = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(content))
            match chance.randrange(3):
                case 0:
                    content[at] = chance.randrange(256)
                case 1:
                    del content[at : at + chance.randrange(8)]
                case 2:
                    content[at:at] = content[at : at + chance.randrange(8)]
        path.unlink()
        path.write_bytes(content)
        try:
            read(path)
        except UnreadableTensorError:
            refusals += 1
    assert count // 4 < refusals < count
