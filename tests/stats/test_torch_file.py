"""Files of torch.save, read without it: every number is torch's, and nothing in them is ever run."""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import math
import os
import pickle
import random
import resource
import struct
import subprocess
import sys
import time
import warnings
import zipfile
from argparse import Namespace
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")
from tests import thorough  # noqa: E402 - see above
from tests.stats.requests import look, requests_for  # noqa: E402
from tui_debugger.errors import UnreadableTensorError  # noqa: E402
from tui_debugger.model import ReadSpec  # noqa: E402
from tui_debugger.stats import (  # noqa: E402
    npy,
    pickled_arrays,
    restricted_pickle,
    saved_objects,
    torch_file,
    torch_pickle,
)
from tui_debugger.stats.measure import read_all  # noqa: E402
from tui_debugger.stats.npy import TensorFile, open_array, read_meta  # noqa: E402
from tui_debugger.stats.records import RequiredStats  # noqa: E402
from tui_debugger.stats.restricted_pickle import Instance  # noqa: E402
from tui_debugger.stats.scan import SPAN, spans_of  # noqa: E402
from tui_debugger.stats.torch_file import SavedTree, member_of, path_of, read_objects, read_tree  # noqa: E402
from tui_debugger.stats.torch_pickle import SavedTensorRef  # noqa: E402

Array = npt.NDArray[Any]
FOLDERS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
SEED = 20260101
PLAIN = {
    torch.bool: np.bool_,
    **{getattr(torch, name): getattr(np, name) for name in ("int8", "int16", "int32", "int64")},
    **{getattr(torch, name): getattr(np, name) for name in ("uint8", "uint16", "uint32", "uint64")},
    **{
        getattr(torch, name): getattr(np, name) for name in ("float16", "float32", "float64", "complex64", "complex128")
    },
}
BITS = {
    torch.bfloat16: (torch.uint16, ml_dtypes.bfloat16),
    **{
        getattr(torch, name): (torch.uint8, getattr(ml_dtypes, name))
        for name in (*("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),)
        if hasattr(torch, name) and hasattr(ml_dtypes, name)
    },
}
"""Types that numpy has no name for: what their bits are seen as, and what they are."""
EVERY = [*PLAIN, *BITS]
FORMATS: dict[str, dict[str, Any]] = {
    "zip": {},
    "legacy": {"_use_new_zipfile_serialization": False},
    "protocol 3": {"pickle_protocol": 3},
    "protocol 4": {"pickle_protocol": 4},
    "legacy, protocol 4": {"_use_new_zipfile_serialization": False, "pickle_protocol": 4},
}
EVERY_FORMAT = pytest.mark.parametrize("how", FORMATS)


def filled(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """A tensor of random bits, NaN and Inf among them."""
    size = dtype.itemsize
    random_bits = np.random.default_rng(SEED).integers(0, 256, (*shape, size), np.uint8)
    if dtype == torch.bool:
        random_bits &= 1
    return torch.from_numpy(random_bits).view(dtype).reshape(shape)


def values_of(tensor: torch.Tensor) -> Array:
    """The values of a tensor as torch has them."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype in BITS:
        bits, dtype = BITS[tensor.dtype]
        found: Array = tensor.contiguous().view(bits).numpy().view(dtype)
        return found
    return np.array(tensor.contiguous().numpy())


def saved(folder: Path, what: Any, how: str = "zip") -> Path:
    path = folder / "x.pt"
    path.unlink(missing_ok=True)
    torch.save(what, path, **FORMATS[how])
    return path


def spec(path: Path, *place: Any) -> ReadSpec:
    return ReadSpec(str(path), "pt", member=member_of(place))


def same(array: Array, expected: Array) -> bool:
    return (array.dtype, array.shape) == (expected.dtype, expected.shape) and array.tobytes() == expected.tobytes()


def is_read(path: Path, tensor: torch.Tensor, *place: Any) -> None:
    """All ways to read a tensor say what torch says."""
    at, expected = spec(path, *place), values_of(tensor)
    array = open_array(at)
    assert same(array, expected)
    assert not array.flags.writeable
    assert read_meta(at).shape == tuple(tensor.shape)
    assert read_meta(at).dtype == str(tensor.dtype).removeprefix("torch.")
    flat = expected.reshape(-1)
    with TensorFile(at) as file:
        assert file.layout.count == len(flat)
        for first, end in ((0, len(flat)), (len(flat) // 3, len(flat)), (1, len(flat) // 2), (5, 6)):
            if first < end <= len(flat):
                assert same(file.read(first, end - first), flat[first:end])


class TestValues:
    @EVERY_FORMAT
    def test_every_element_type(self, tmp_path: Path, how: str) -> None:
        these = {str(dtype): filled(dtype, 3, 5) for dtype in EVERY}
        if how.startswith("legacy"):
            these = {name: tensor for name, tensor in these.items() if not is_new(tensor.dtype)}
        path = saved(tmp_path, these, how)
        assert [place for place, _ in read_tree(str(path)).tensors] == [(name,) for name in these]
        for name, tensor in these.items():
            is_read(path, tensor, name)

    @EVERY_FORMAT
    def test_views(self, tmp_path: Path, how: str) -> None:
        base = torch.arange(48, dtype=torch.float32).reshape(6, 8)
        number = torch.complex(base, base + 100)
        these = {
            "base": base,
            "transposed": base.T,
            "every second": base[::2, 1::3],
            "row": base[3],
            "expanded": base[:, :1].expand(6, 5),
            "one number": base[2, 3],
            "expanded number": base[0, 0].expand(3, 4),
            "permuted": base.reshape(2, 3, 8).permute(2, 0, 1),
            "empty": base[:0],
            "empty inside": base[:, 3:3],
            "windows": base.reshape(-1).unfold(0, 4, 3),
            "conjugated": number.conj(),
            "conjugated view": number.conj().T[1:, ::2],
            "negated": number.conj().imag,
            "imaginary": number.imag[1:],
        }
        for name, tensor in these.items():
            is_read(saved(tmp_path, {name: tensor}, how), tensor, name)

    def test_shared_storages_are_stored_once_and_read_from_each(self, tmp_path: Path) -> None:
        weight = torch.randn(50, 40)
        path = saved(tmp_path, {"embed": weight, "head": weight, "half": weight[:25]})
        with zipfile.ZipFile(path) as archive:
            assert sum("/data/" in name for name in archive.namelist()) == 1
        for name, tensor in (("embed", weight), ("head", weight), ("half", weight[:25])):
            is_read(path, tensor, name)

    @FOLDERS
    @given(data=st.data())
    def test_any_shape_and_strides(self, tmp_path: Path, data: st.DataObject) -> None:
        shape = data.draw(st.lists(st.integers(0, 5), max_size=5))
        stride = data.draw(st.lists(st.integers(0, 9), min_size=len(shape), max_size=len(shape)))
        offset = data.draw(st.integers(0, 9))
        dtype = data.draw(st.sampled_from(EVERY))
        how = data.draw(st.sampled_from([*FORMATS][: 2 if is_new(dtype) else None])) if not is_new(dtype) else "zip"
        end = offset + sum((n - 1) * step for n, step in zip(shape, stride, strict=True)) + 1 if all(shape) else offset
        tensor = torch.as_strided(filled(dtype, max(end, 1)), shape, stride, offset)
        path = saved(tmp_path, [tensor], how)
        (_, ref) = read_tree(str(path)).tensors[0]
        assert (ref.shape, ref.stride, ref.offset) == (tuple(shape), tuple(stride), offset)
        is_read(path, tensor, 0)

    @pytest.mark.filterwarnings("ignore:ComplexHalf")
    def test_complex_halves_are_widened(self, tmp_path: Path) -> None:
        halves = torch.view_as_complex(torch.randn(3, 5, 2, dtype=torch.float16))
        for tensor in (halves, halves.T, halves.conj(), halves[1, 2]):
            path = saved(tmp_path, tensor)
            array = open_array(spec(path))
            assert same(
                array, np.asarray(tensor.resolve_conj().to(torch.complex64).numpy()).reshape(array.shape).copy()
            )
            assert read_meta(spec(path)).dtype == "complex32"
            with TensorFile(spec(path)) as file:
                assert same(file.read(0, array.size), array.reshape(-1))

    def test_four_bits_are_two_values_a_byte(self, tmp_path: Path) -> None:
        octets = torch.arange(256, dtype=torch.uint8).reshape(8, 32)
        for seen in (octets, octets[::3], octets[2:, 1:7], octets.T):
            path = saved(tmp_path, seen.view(torch.float4_e2m1fn_x2))
            array = open_array(spec(path))
            halves = np.stack([seen.numpy() & 15, seen.numpy() >> 4], axis=-1).reshape(*seen.shape[:-1], -1)
            assert same(array, halves.astype(np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32))
            flat = array.reshape(-1)
            with TensorFile(spec(path)) as file:
                assert file.layout.shape == array.shape
                for first, count in ((0, len(flat)), (1, 7), (4, 3), (len(flat) - 1, 1)):
                    assert same(file.read(first, count), flat[first : first + count])

    @pytest.mark.parametrize("order", ["contiguous", "strided", "decoded"])
    def test_big_tensors_are_mapped_never_loaded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
    ) -> None:
        monkeypatch.setattr(torch_file, "WHOLE_FILE", 1 << 12)
        tensor = torch.randn(100, 100, dtype=torch.complex64)
        tensor = {"contiguous": tensor, "strided": tensor.T, "decoded": tensor.conj().T}[order]
        path = saved(tmp_path, {"x": tensor})
        is_read(path, tensor, "x")
        base: Any = open_array(spec(path, "x"))
        while isinstance(base, np.ndarray):
            base = base.base
        assert type(base.obj if isinstance(base, memoryview) else base).__name__ == "mmap"

    def test_expanded_tensors_are_never_laid_out(self, tmp_path: Path) -> None:
        path = saved(
            tmp_path, {"big": torch.arange(3.0)[:, None].expand(3, 1 << 28), "huge": torch.ones(()).expand(1 << 40)}
        )
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        array = open_array(spec(path, "big"))
        assert array[:, -1].tolist() == [0, 1, 2]
        with TensorFile(spec(path, "big")) as file:
            assert file.read((1 << 28) - 2, 4).tolist() == [0, 0, 1, 1]
        with pytest.raises(UnreadableTensorError, match="repeats its elements to 1,099,511,627,776"):
            open_array(spec(path, "huge"))
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000

    @pytest.mark.parametrize("dtype", ["<f4", ">f4", ">f8", ">i2", ">c8"])
    def test_the_byte_order_of_the_machine_that_wrote_it(self, tmp_path: Path, dtype: str) -> None:
        values = np.arange(12).astype(dtype).reshape(3, 4)
        native = torch.from_numpy(values.astype(np.dtype(dtype).newbyteorder("=")))
        path = saved(tmp_path, native)
        order = b"big" if dtype.startswith(">") else b"little"
        replace_members(path, {"byteorder": order, "data/0": values.tobytes()})
        assert (open_array(spec(path)) == values).all()
        assert look(spec(path)).stats == look(spec(saved(tmp_path, native))).stats

    def test_quantiles_and_statistics_are_those_of_a_file_of_numpy(self, tmp_path: Path) -> None:
        for tensor in (torch.randn(7), torch.randn(300, 1000).T, torch.tensor([1.0, math.nan, math.inf])):
            np.save(tmp_path / "x.npy", tensor.numpy())
            record = look(spec(saved(tmp_path, [tensor]), 0))
            np.save(tmp_path / "x.npy", np.ascontiguousarray(tensor.numpy()))
            assert record.stats == look(tmp_path / "x.npy").stats

    def test_long_tensors_are_shared_by_workers(self, tmp_path: Path) -> None:
        path = saved(tmp_path, torch.zeros(SPAN + 1, dtype=torch.int8))
        assert len(spans_of(spec(path), None)) > 1


def is_new(dtype: torch.dtype) -> bool:
    """Whether its storages have no class of their own: files of before PyTorch 1.6 do not hold them."""
    return dtype not in torch.storage._dtype_to_storage_type_map()


def replace_members(path: Path, contents: dict[str, bytes], *, compression: int = zipfile.ZIP_STORED) -> None:
    """Writes an archive anew with other members."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    folder = next(iter(members)).partition("/")[0]
    members |= {f"{folder}/{name}": content for name, content in contents.items()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


class TestTrees:
    @EVERY_FORMAT
    def test_nested_dictionaries_and_lists(self, tmp_path: Path, how: str) -> None:
        one = torch.ones(2)
        path = saved(
            tmp_path,
            {
                "model": OrderedDict(w=one, b=one[0]),
                "optimizer": {"state": {0: {"exp_avg": one, "step": 3}, 1: {}}, "param_groups": [{"lr": 1e-3}]},
                "text": "é",
                "more": (1, -(2**40), 2.5, None, True, False, 1 + 2j, b"bytes", bytearray(b"more")),
                "sets": [{1}, frozenset({2})],
                "count": Counter("aab"),
                "size": one.shape,
                "type": torch.float16,
                "device": torch.device("cpu"),
                7: {"a/b": [one], "~": one, "[0]": one, (1, "x"): one, None: one, 2.5: one},
            },
            how,
        )
        tree = read_tree(str(path))
        value = tree.value
        assert value["more"] == (1, -(2**40), 2.5, None, True, False, 1 + 2j, b"bytes", b"more")
        assert (value["text"], value["sets"], value["count"]) == ("é", [[1], (2,)], {"a": 2, "b": 1})
        assert (value["size"], value["type"].name, value["device"]) == ((2,), "torch.float16", "cpu")
        assert value["optimizer"]["param_groups"] == [{"lr": 1e-3}]
        places = [place for place, _ in tree.tensors]
        assert places == [
            ("model", "w"),
            ("model", "b"),
            ("optimizer", "state", 0, "exp_avg"),
            *((7, "a/b", 0), (7, "~"), (7, "[0]"), (7, (1, "x")), (7, None), (7, 2.5)),
        ]
        assert member_of(places[2]) == "/optimizer/state/[0]/exp_avg"
        for place in places:
            assert open_array(spec(path, *place)).tolist() in ([1, 1], 1)

    @given(
        st.lists(
            st.text(st.characters(exclude_categories=["Cs"]))
            | st.integers()
            | st.booleans()
            | st.none()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.integers())
            | st.binary()
        ).map(tuple)
    )
    def test_places_and_their_texts_are_one_to_one(self, place: tuple[Any, ...]) -> None:
        again = path_of(member_of(place))
        assert again == place
        assert [type(key) for key in again] == [type(key) for key in place]

    def test_what_is_no_place(self) -> None:
        for text in ("weight", "/[weight]", "/[__import__('os')]", "/[1"):
            with pytest.raises(ValueError, match="no "):
                path_of(text)

    def test_a_tensor_by_itself(self, tmp_path: Path) -> None:
        for tensor in (torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(2))):
            path = saved(tmp_path, tensor)
            ((place, ref),) = read_tree(str(path)).tensors
            assert (place, ref.requires_grad) == ((), True)
            is_read(path, tensor)

    def test_parameters_attributes_and_hooks_of_modules(self, tmp_path: Path) -> None:
        net = torch.nn.Linear(3, 2)
        tagged = torch.ones(2)
        tagged.tag = "x"  # type: ignore[attr-defined]
        path = saved(tmp_path, {**net.state_dict(), "parameter": net.weight, "tagged": tagged})
        for name, tensor in (*net.state_dict().items(), ("parameter", net.weight), ("tagged", tagged)):
            is_read(path, tensor, name)

    def test_settings_beside_the_model(self, tmp_path: Path) -> None:
        path = saved(tmp_path, {"args": Namespace(lr=0.1, path=Path("x")), "w": torch.ones(1)})
        value = read_tree(str(path)).value
        assert isinstance(value["args"], Instance)
        assert (value["args"].kind, value["args"].state["lr"]) == ("argparse.Namespace", 0.1)
        is_read(path, torch.ones(1), "w")

    @pytest.mark.parametrize("module", ["pathlib", "pathlib._local"])
    def test_paths_that_any_python_wrote(self, tmp_path: Path, module: str) -> None:
        """Python 3.13 names another module than those before and after it."""
        path = saved(tmp_path, [])
        replace_members(path, {"data.pkl": pickled(f"c{module}\nPosixPath\n".encode(), "run", b"\x85R.")})
        value = read_tree(str(path)).value
        assert isinstance(value, Instance)
        assert (value.kind, value.arguments) == (f"{module}.PosixPath", ("run",))

    @pytest.mark.parametrize(
        ("tensor", "words"),
        [
            (lambda: torch.empty(2, 5, device="meta"), r"device meta, which has no values.*shape is \(2, 5\)"),
            (
                lambda: torch.quantize_per_tensor(torch.ones(2, 4), 0.1, 3, torch.quint8),
                r"is quantized \(quint8\).*shape is \(2, 4\)",
            ),
            (lambda: torch.ones(2, 2, dtype=torch.uint8).view(torch.bits8), r"type bits8.*shape is \(2, 2\)"),
        ],
        ids=["meta", "quantized", "bits"],
    )
    @pytest.mark.filterwarnings("ignore")
    def test_what_is_known_and_not_read_says_so_by_itself(
        self, tmp_path: Path, tensor: Callable[[], torch.Tensor], words: str
    ) -> None:
        path = saved(tmp_path, {"odd": tensor(), "good": torch.ones(3)})
        with pytest.raises(UnreadableTensorError, match=words):
            open_array(spec(path, "odd"))
        assert "odd" in look(spec(path, "odd")).error or look(spec(path, "odd")).stats is None
        is_read(path, torch.ones(3), "good")

    @pytest.mark.filterwarnings("ignore")
    def test_sparse_tensors_are_the_tensors_that_they_are_made_of(self, tmp_path: Path) -> None:
        dense = torch.tensor([[0.0, 3.0], [math.nan, 0.0]])
        path = saved(tmp_path, {"coo": dense.to_sparse(), "csr": dense.to_sparse_csr()})
        assert list(read_tree(str(path)).members) == [
            *("/coo/indices", "/coo/values"),
            *("/csr/crow_indices", "/csr/col_indices", "/csr/values"),
        ]
        for name in ("coo", "csr"):
            assert np.array_equal(open_array(spec(path, name, "values")), [3, math.nan], equal_nan=True)

    @pytest.mark.parametrize("core", ["core", "_core"])
    def test_arrays_of_numpy_are_tensors(self, tmp_path: Path, core: str) -> None:
        """Megatron and others save the state of NumPy's random numbers in the file of the model."""
        states = {"numpy": np.random.RandomState(1).get_state(), "torch": torch.ones(3, dtype=torch.uint8)}
        content = {
            "model": {"w": torch.ones(2)},
            "rng_state": [states],
            "losses": np.array([[1.0, np.nan]], np.float32),
            "loss": np.float32(2.5),
            "objects": np.array([None, "text"], object),
            "tokens": np.arange(3),
        }
        path = saved(tmp_path, content)
        with zipfile.ZipFile(path) as archive:
            (name,) = [each for each in archive.namelist() if each.endswith("/data.pkl")]
            pickled = archive.read(name).replace(b"numpy._core.", f"numpy.{core}.".encode())
        replace_members(path, {"data.pkl": pickled})
        assert list(read_tree(str(path)).members) == [*("/model/w", "/rng_state/[0]/torch", "/losses", "/tokens")]
        assert open_array(spec(path, "model", "w")).tolist() == [1, 1]
        assert np.array_equal(open_array(spec(path, "losses")), content["losses"], equal_nan=True)
        assert open_array(spec(path, "tokens")).tolist() == [0, 1, 2]

    def test_a_window_of_a_bigger_file(self, tmp_path: Path) -> None:
        first, second = torch.randn(4, 3), torch.randn(1000).to(torch.bfloat16)
        parts = [saved(tmp_path, first).read_bytes(), saved(tmp_path, [second], "legacy").read_bytes()]
        path = tmp_path / "__0_0.distcp"
        path.write_bytes(b"before" + parts[0] + parts[1] + b"behind")
        starts = [6, 6 + len(parts[0])]
        for start, part, tensor, place in zip(starts, parts, (first, second), ((), (0,)), strict=True):
            assert len(read_tree(str(path), (start, len(part))).tensors) == 1
            at = ReadSpec(str(path), "pt", member=member_of(place), offset=start, length=len(part))
            assert same(open_array(at), values_of(tensor))
        with pytest.raises(UnreadableTensorError, match="ends before byte"):
            read_tree(str(path), (6, 1 << 30))

    def test_the_index_of_a_distributed_checkpoint(self, tmp_path: Path) -> None:
        import torch.distributed.checkpoint as dcp

        state = {"w": torch.randn(4, 3), "step": 7}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.save(state, checkpoint_id=tmp_path / "dcp")
        index = read_objects(str(tmp_path / "dcp" / ".metadata"))
        assert (index.kind, set(index.state["state_dict_metadata"])) == (
            "torch.distributed.checkpoint.metadata.Metadata",
            {"w", "step"},
        )
        for key, where in index.state["storage_data"].items():
            if key.state["fqn"] == "w":
                found = where.state
                at = ReadSpec(
                    str(tmp_path / "dcp" / found["relative_path"]), "pt", offset=found["offset"], length=found["length"]
                )
                assert same(open_array(at), state["w"].numpy())

    def test_trees_are_read_once_and_anew_when_the_file_changed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = saved(tmp_path, {str(number): torch.full((2,), number) for number in range(100)})
        loads: list[int] = []
        real = torch_file.load
        monkeypatch.setattr(torch_file, "load", lambda *given: loads.append(1) or real(*given))
        for number in range(100):
            assert open_array(spec(path, str(number))).tolist() == [number] * 2
        assert len(loads) == 1
        saved(tmp_path, {"0": torch.full((3,), 5.0)})
        assert open_array(spec(path, "0")).tolist() == [5] * 3
        with pytest.raises(UnreadableTensorError, match="is not in the file"):
            open_array(spec(path, "1"))

    def test_a_file_of_many_tensors_is_measured_in_one_batch(self, tmp_path: Path) -> None:
        path = saved(tmp_path, {str(number): torch.full((5,), float(number)) for number in range(500)})
        specs = [spec(path, str(number)) for number in range(500)]
        need = RequiredStats(change=True)
        records = read_all(requests_for(specs, [-1, *range(499)], need))
        for number in range(500):
            record = records.get(number)
            assert record is not None
            assert record.stats is not None
            assert record.stats.mean == number
            assert record.change is None if number == 0 else record.change.mean_abs_difference == 1  # type: ignore[union-attr]


class Command:
    """An object whose pickle runs a command, for whoever lets it."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.what = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.what


class TestNothingIsRun:
    @pytest.fixture
    def canary(self, tmp_path: Path) -> Path:
        return tmp_path / "executed"

    @pytest.mark.parametrize("protocol", range(6))
    @pytest.mark.parametrize("place", ["zip", "legacy", "plain", "beside a tensor", "as a key"])
    def test_commands(self, tmp_path: Path, canary: Path, protocol: int, place: str) -> None:
        for command in (
            Command(os.system, f"touch {canary}"),
            Command(eval, f"open({str(canary)!r}, 'w')"),
            Command(exec, f"open({str(canary)!r}, 'w')"),
            Command(open, str(canary), "w"),
            Command(subprocess.check_call, ["touch", str(canary)]),
            Command(Path.touch, canary),
            Command(torch.load, str(canary)),
            Command(getattr, "", "upper"),
        ):
            path = tmp_path / "x.pt"
            what = {"beside a tensor": [torch.ones(1), command], "as a key": {"x": {1: command}}}.get(place, command)
            if place == "plain":
                path.write_bytes(pickle.dumps(command, protocol))
            else:
                torch.save(
                    what,
                    path,
                    pickle_protocol=protocol,
                    _use_new_zipfile_serialization=place != "legacy" and protocol > 1,
                )
            for read in (read_tree, read_objects):
                found = None
                with contextlib.suppress(UnreadableTensorError):
                    found = read(str(path))
                assert not canary.exists()
                if isinstance(found, SavedTree) and place != "as a key":  # what is a key is no value
                    problems = [ref.problem for _, ref in found.tensors if ref.problem]
                    assert problems or command.what[0] in (getattr, Path.touch)

    def test_what_an_unknown_function_made_is_not_known_and_the_rest_is_read(self, tmp_path: Path) -> None:
        for function, name in ((eval, "builtins.eval"), (os.system, f"{os.name}.system"), (torch.load, "torch.")):
            path = saved(tmp_path, [Command(function, "1"), torch.ones(2)])
            with pytest.raises(UnreadableTensorError, match=rf"was made by {name}.*, which is not known"):
                open_array(spec(path, 0))
            is_read(path, torch.ones(2), 1)

    def test_a_program_is_no_file_of_tensors(self, tmp_path: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.script(torch.nn.Linear(2, 2)).save(tmp_path / "x.pt")
        with pytest.raises(UnreadableTensorError, match="TorchScript program"):
            read_tree(str(tmp_path / "x.pt"))

    def test_the_readers_import_and_run_nothing(self) -> None:
        for module in (restricted_pickle, pickled_arrays, torch_pickle, saved_objects, torch_file):
            tree = ast.parse(inspect.getsource(module))
            imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
            imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
            assert not imported & {"pickle", "torch", "importlib", "subprocess", "marshal", "builtins"}
            called = {
                node.func.id
                for node in ast.walk(tree)
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            }
            assert not called & {"eval", "exec", "compile", "getattr", "__import__"}

    def test_no_torch_is_needed(self, tmp_path: Path) -> None:
        path = saved(tmp_path, torch.ones(3))
        code = (
            "import sys; sys.modules['torch'] = None; from tui_debugger.model import ReadSpec; "
            "from tui_debugger.stats.npy import open_array; "
            f"print(open_array(ReadSpec({str(path)!r}, 'pt')).tolist(), 'pickle' in open_array.__globals__)"
        )
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        assert done.stdout == "[1.0, 1.0, 1.0] False\n"


def outcome(path: Path) -> tuple[SavedTree | None, dict[tuple[Any, ...], Array | str]]:
    """What a file holds: its tree, and for each place the values or what is wrong."""
    try:
        tree = read_tree(str(path))
    except UnreadableTensorError:
        return None, {}
    found: dict[tuple[Any, ...], Array | str] = {}
    for place, ref in tree.tensors:
        try:
            with TensorFile(spec(path, *place)) as file:
                layout = file.layout
                file.read(0, min(layout.count, 1000))
            found[place] = open_array(spec(path, *place))
        except UnreadableTensorError as error:  # noqa: PERF203 - each by itself
            found[place] = error.what
        except (ValueError, MemoryError) as error:
            pytest.fail(f"{path.name} {place} {ref}: {error!r}")
    return tree, found


class TestHostileFiles:
    """Files that were made by hand to hurt whoever reads them, and what ``torch.load(weights_only=True)`` did."""

    @pytest.fixture
    def folder(self, dumps: Callable[[str], Path]) -> Path:
        return dumps("hostile-tensor-files")

    @pytest.fixture
    def files(self, folder: Path) -> list[tuple[str, Path]]:
        reference = json.loads((folder / "reference.json").read_text())
        return [(said, folder / name) for name, said in reference.items() if not name.endswith(".safetensors")]

    def test_what_torch_refuses_is_never_all_right(self, files: list[tuple[str, Path]]) -> None:
        refused = [path for said, path in files if said == "refused"]
        assert len(refused) > 40
        for path in refused:
            tree, found = outcome(path)
            assert tree is None or any(isinstance(values, str) for values in found.values()), path.name

    def test_what_torch_reads_is_the_same_or_refused(self, files: list[tuple[str, Path]]) -> None:
        names = set()
        for said, path in files:
            tree, found = outcome(path) if said == "accepted" else (None, {})
            for place, values in found.items():
                if isinstance(values, str):
                    continue
                expected: Any = torch.load(path, weights_only=True)
                for key in place:
                    expected = expected[key]
                assert np.array_equal(values, expected.numpy())
                names.add(path.stem)
            if tree is None and said == "accepted":
                assert path.stem in ("deep_nesting", "deep_tuple")
        assert names == {
            *("ok_reference", "ok_handmade", "deflated_member", "byteorder_big"),
            *("zip_cd_offset_lies", "zip_crc_wrong", "zip_eocd_count_lies"),
        }

    def test_none_of_them_takes_long_or_much(self, files: list[tuple[str, Path]]) -> None:
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        for _, path in files:
            outcome(path)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
        assert time.process_time() - began < 20

    def test_what_is_wrong_is_said_by_name(self, folder: Path) -> None:
        for name, words in (
            ("unknown_storage_class.pt", "has a storage in its pickle that is none"),
            ("git_lfs_pointer.pt", "a pointer of Git LFS"),
            ("empty_file.pt", "is empty"),
            ("not_a_zip.pt", "is no file that torch.save wrote"),
            ("missing_pkl.pt", "none that torch.save wrote"),
            ("ext_registry.pt", "registry of the program that wrote it"),
            ("huge_long.pt", "a number of 2,147,483,647 bytes"),
        ):
            with pytest.raises(UnreadableTensorError, match=words):
                read_tree(str(folder / name))
        for name, words in (
            ("offset_out_of_bounds.pt", "reaches to byte 448 of a storage of 48"),
            ("zip_bomb.pt", "has a storage of 67,108,864 bytes in place of 48"),
            ("numel_lies.pt", "has a storage of 48 bytes in place of 4,000"),
            ("key_traversal.pt", "has no storage '../../../../etc/passwd'"),
            ("duplicate_member.pt", "is in the archive several times"),
            ("rank_300.pt", "has an impossible shape"),
            ("size_huge_zero_stride.pt", "repeats its elements to 4,611,686,018,427,387,904"),
        ):
            assert words in next(map(str, outcome(folder / name)[1].values()))
        for name, place, words in (
            ("exec_eval.pt", ("evil",), "was made by builtins.eval, which is not known"),
            ("dotted_global.pt", (), "was made by torch._utils.torch.serialization.load, which is not known"),
        ):
            assert words in str(outcome(folder / name)[1][place])


def pickled(*parts: bytes | int | str) -> bytes:
    """A pickle made of instructions."""
    return b"\x80\x02" + b"".join(
        part if isinstance(part, bytes) else b"J" + struct.pack("<i", part) if isinstance(part, int) else text(part)
        for part in parts
    )


def text(content: str) -> bytes:
    return b"X" + struct.pack("<I", len(content.encode())) + content.encode()


class TestLimits:
    """What grows without end in a few bytes ends by itself."""

    def zipped(self, folder: Path, content: bytes) -> Path:
        path = saved(folder, [])
        replace_members(path, {"data.pkl": content})
        return path

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"]" * (restricted_pickle.MAX_OBJECTS + 1) + b".", "more than 2,097,152 objects"),
            (b"N" + b"\x94" * (restricted_pickle.MAX_OBJECTS + 1) + b".", "remembers more than 2,097,152"),
            thorough.later(
                b"N0" * (restricted_pickle.MAX_OPERATIONS // 2) + b"N.",
                "more than 16,777,216 instructions",
                id="instructions",
            ),
        ],
        ids=["objects", "memory", None],
    )
    def test_instructions(self, tmp_path: Path, content: bytes, words: str) -> None:
        with pytest.raises(UnreadableTensorError, match=words):
            read_tree(str(self.zipped(tmp_path, pickled(content))))

    def test_fewer_instructions(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(restricted_pickle, "MAX_OPERATIONS", 1 << 16)
        assert read_tree(str(self.zipped(tmp_path, pickled(b"N0" * 1000 + b"N.")))) is not None
        with pytest.raises(UnreadableTensorError, match="more than 65,536 instructions"):
            read_tree(str(self.zipped(tmp_path, pickled(b"N0" * (1 << 15) + b"N."))))

    def test_lists_of_one_list_over_and_over(self, tmp_path: Path) -> None:
        """A tensor that 40 lists within each other hold twice each would be there a million million times."""
        tensor: Any = torch.ones(1)
        for _ in range(40):
            tensor = [tensor, tensor]
        with pytest.raises(UnreadableTensorError, match="holds more than 262,144 tensors"):
            read_tree(str(saved(tmp_path, tensor)))
        nothing: Any = []
        for _ in range(40):
            nothing = [nothing, nothing]
        assert read_tree(str(saved(tmp_path, [nothing, torch.ones(1)]))).tensors != []

    def test_a_wide_list_that_is_there_many_times(self, tmp_path: Path) -> None:
        wide = [*range(100_000), torch.ones(1)]
        began = time.process_time()
        assert len(read_tree(str(saved(tmp_path, [wide] * 2000))).tensors) == 2000
        assert time.process_time() - began < 10

    def test_what_holds_itself(self, tmp_path: Path) -> None:
        ring: list[Any] = [torch.ones(1)]
        ring.append({"again": ring})
        path = saved(tmp_path, ring)
        assert [place for place, _ in read_tree(str(path)).tensors] == [(0,)]

    @pytest.mark.parametrize("key", [b"]", b"}", b"]\x85", b"N" + b"\x85" * 100_000, b"\x8a\xff" + b"\x01" * 255])
    def test_keys_are_plain_values(self, tmp_path: Path, key: bytes) -> None:
        with pytest.raises(UnreadableTensorError, match="no plain value"):
            read_tree(str(self.zipped(tmp_path, pickled(b"}", key, b"Ns."))))

    @pytest.mark.parametrize(
        "content",
        [
            *(b".", b"0.", b"R.", b"b.", b"a.", b"e.", b"s.", b"u.", b"t.", b"Q.", b"h\5.", b"\x85.", b"2.", b"1."),
            *(
                b"N)R.",
                b"]NR.",
                b"NNs.",
                b"(NNu.",
                b"}(Nu.",
                b"}]Ns.",
                b"NNa.",
                b"cx\n",
                b"NNb.",
                b"N)\x81.",
            ),
            *(b"ctorch\nfloat32\n)R.", b"ctorch\nfloat32\n}b.", b"NQ.", b"(tQ."),
            *(
                b"\x80\x09N.",
                b"\x95" + b"\xff" * 8,
                b"G1234",
                b"ctorch._utils\n_rebuild_tensor_v2\n)R.",
                b"X\1\0\0\0\xff.",
            ),
            b"ctorch._utils\n_rebuild_sparse_tensor\n(NNtR.",
            b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._tensor\n_rebuild_from_type_v2\nNNNtR.",
        ],
    )
    def test_damaged_pickles_are_named(self, tmp_path: Path, content: bytes) -> None:
        with pytest.raises(UnreadableTensorError):
            read_tree(str(self.zipped(tmp_path, pickled(content))))


def originals(folder: Path) -> list[Path]:
    """Real files of every kind, to be damaged."""
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16))
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    checkpoint = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": 3}
    views = {
        "a": torch.randn(6, 8).T,
        "b": torch.randn(5, dtype=torch.complex64).conj(),
        "c": [torch.ones(3).bfloat16()],
    }
    files = []
    for number, (what, how) in enumerate(
        (what, how) for what in (checkpoint, views, torch.randn(10), net) for how in ("zip", "legacy", "protocol 4")
    ):
        path = folder / f"original{number}.pt"
        torch.save(what, path, **FORMATS[how])
        files.append(path)
    packed = folder / "packed.pt"
    packed.write_bytes(files[0].read_bytes())
    replace_members(packed, {}, compression=zipfile.ZIP_DEFLATED)
    return [*files, packed]


def damaged(content: bytes, chance: random.Random) -> bytes:
    """A file with some bytes changed, cut out, put in, repeated, or its end cut off."""
    found = bytearray(content)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(found)) if found else 0
        length = chance.choice((1, 1, 1, 2, 4, 8, 64))
        match chance.randrange(6):
            case 0 | 1:
                found[at : at + 1] = bytes([chance.randrange(256)])
            case 2:
                found[at : at + length] = chance.choice((b"\xff", b"\0", b"\x7f")) * length
            case 3:
                del found[at : at + length]
            case 4:
                found[at:at] = found[at : at + length]
            case 5 if chance.random() < 0.2:
                del found[at:]
    return bytes(found)


@pytest.mark.parametrize("count", [100, thorough.later(10_000)])
def test_damaged_files_never_crash_hang_or_fill_the_memory(tmp_path: Path, count: int) -> None:
    contents = [path.read_bytes() for path in originals(tmp_path)]
    chance = random.Random(SEED)  # noqa: S311 - only damage is made of it
    path = tmp_path / "damaged.pt"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    readable = 0
    for number in range(count):
        path.unlink(missing_ok=True)
        path.write_bytes(damaged(contents[number % len(contents)], chance))
        began = time.process_time()
        tree, found = outcome(path)
        assert time.process_time() - began < 5
        readable += any(not isinstance(values, str) for values in found.values())
        for _, ref in tree.tensors if tree is not None else ():
            assert isinstance(ref, SavedTensorRef)
    assert count // 20 < readable < count
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
    assert npy.FORMATS["pt"] is torch_file.open_value
