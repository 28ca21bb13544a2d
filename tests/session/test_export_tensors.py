"""Tensors as .npz, directories and .csv: the values of the dump, under names that say which."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.session.opened import opened
from tests.sources.memory import MemorySource, Op, Value
from tui_debugger.check.sweep import SweptTensor, TensorChoice
from tui_debugger.errors import BadSliceError, CancelledError, TdbgError
from tui_debugger.model import Progress, Side, TensorKey
from tui_debugger.session import Session
from tui_debugger.session.export_files import INDEX, safe_path, tensor_path, write_csv, write_directory, write_npz

NOWHERE = Path("/no/dump/here")


@pytest.fixture
def session_of() -> Iterator[Callable[..., Session]]:
    sources = []

    def make(values: dict[str, Value]) -> Session:
        tensors = {(name, Side.OUTPUT, 0): value for name, value in values.items()}
        sources.append(MemorySource({0: {3: tensors}}, ops=[Op(name) for name in values]))
        return Session(sources[-1])

    yield make
    for source in sources:
        source.close()


def listed(session: Session) -> Iterator[SweptTensor]:
    return session.sweep(session.pairs()).listed()


def only(session: Session) -> SweptTensor:
    (tensor,) = listed(session)
    return tensor


# -- names -----------------------------------------------------------------------------------------


def test_names_tell_rank_step_and_node() -> None:
    key = TensorKey(2, "kernel_graph_1", "Default/net/MatMul-op1", Side.INPUT, 1, 7)
    assert tensor_path(key) == "rank2/step7/Default/net/MatMul-op1"
    assert tensor_path(key, with_graph=True) == "rank2/step7/kernel_graph_1/Default/net/MatMul-op1"


@given(st.text(st.characters(codec="utf-8") | st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF), max_size=40))
def test_every_name_is_safe_and_tells_the_node_again(name: str) -> None:
    path = safe_path(name)
    assert unquote(path, errors="surrogateescape") == name
    assert not path.startswith("/")
    assert {".", ".."}.isdisjoint(path.split("/"))
    assert not set(path) & set('\\:*?"<>|\0\x1b\n\u202e')
    path.encode()


def test_components_that_are_too_long_keep_their_beginning_and_stay_apart() -> None:
    one, other = safe_path("é" * 300 + "1/x"), safe_path("é" * 300 + "2/x")
    assert one != other
    assert all(len(part.encode()) <= 200 for part in one.split("/"))
    assert one.startswith("é" * 50)


# -- .npz ------------------------------------------------------------------------------------------


def test_npz_holds_the_values_of_every_chosen_tensor(tmp_path: Path, dumps: Callable[[str], Path]) -> None:
    session = opened(dumps("mindspore-2.10-mlp"))
    sweep = session.sweep(session.pairs(steps=(1,)), TensorChoice(side=Side.OUTPUT))
    written = write_npz(sweep.listed(), tmp_path / "x.npz", Path(session.info.path))
    with np.load(tmp_path / "x.npz") as archive:
        assert written.tensors == len(archive.files) == sweep.count() > 20
        for tensor in sweep.listed():
            name = f"{tensor_path(tensor.key)}:out:{tensor.key.slot}"
            np.testing.assert_array_equal(archive[name], np.load(tensor.spec.path))  # type: ignore[union-attr]
    assert written.failures == []


def test_npz_names_never_lead_out_of_the_archive(tmp_path: Path, session_of: Callable[..., Session]) -> None:
    session = session_of({"../../evil": np.ones(1), "/abs": np.ones(1), "a//b": np.ones(1), "c\\d\x1b": np.ones(1)})
    write_npz(listed(session), tmp_path / "x.npz", NOWHERE)
    with zipfile.ZipFile(tmp_path / "x.npz") as archive:
        names = archive.namelist()
        assert archive.testzip() is None
    assert len(set(names)) == 4
    assert all(PurePosixPath(name).parts[:2] == ("rank0", "step3") for name in names)
    assert not any(".." in PurePosixPath(name).parts for name in names)


def test_types_that_npy_cannot_name_are_float32(tmp_path: Path, session_of: Callable[..., Session]) -> None:
    session = session_of({"a": np.array([1.5, -2.0], ml_dtypes.bfloat16)})
    write_npz(listed(session), tmp_path / "x.npz", NOWHERE)
    with np.load(tmp_path / "x.npz") as archive:
        values = archive["rank0/step3/a:out:0"]
    assert values.dtype == np.float32
    assert values.tolist() == [1.5, -2.0]


def test_unreadable_tensors_are_left_out_and_named(tmp_path: Path, session_of: Callable[..., Session]) -> None:
    session = session_of({"a": np.ones(2), "broken": b"nothing", "c": np.zeros(3)})
    written = write_npz(listed(session), tmp_path / "x.npz", NOWHERE)
    assert (written.tensors, written.nbytes) == (2, 40)
    ((key, reason),) = written.failures
    assert key.node == "broken"
    assert "not a .npy file" in reason
    with zipfile.ZipFile(tmp_path / "x.npz") as archive:
        assert archive.namelist() == ["rank0/step3/a:out:0.npy", "rank0/step3/c:out:0.npy"]


@pytest.mark.parametrize("write", [write_npz, write_directory])
def test_nothing_is_written_when_nothing_can_be_read_or_it_is_stopped(
    tmp_path: Path, session_of: Callable[..., Session], write: Callable[..., object]
) -> None:
    with pytest.raises(TdbgError, match="no tensor can be exported"):
        write(listed(session_of({"broken": b""})), tmp_path / "x.npz", NOWHERE)

    def stop(_: Progress) -> None:
        raise CancelledError("stopped")

    session = session_of({"a": np.ones(2)})
    with pytest.raises(CancelledError):
        write(session.sweep(session.pairs()).listed(stop), tmp_path / "x.npz", NOWHERE)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_in_the_middle_leaves_nothing(tmp_path: Path, session_of: Callable[..., Session]) -> None:
    session = session_of({"a": np.ones(2), "b": np.ones(2)})

    def interrupted() -> Iterator[SweptTensor]:
        yield next(listed(session))
        raise KeyboardInterrupt

    for write in (write_npz, write_directory):
        with pytest.raises(KeyboardInterrupt):
            write(interrupted(), tmp_path / "x", NOWHERE)
    assert list(tmp_path.iterdir()) == []


# -- a directory -----------------------------------------------------------------------------------


def test_a_directory_has_a_file_per_tensor_and_an_index(tmp_path: Path, session_of: Callable[..., Session]) -> None:
    values: dict[str, Value] = {
        "Default/net/MatMul-op1": np.arange(6, dtype=np.float16).reshape(2, 3),
        "fc1.weight": np.array(2.5, ml_dtypes.bfloat16),
        "broken": b"nothing",
    }
    written = write_directory(listed(session_of(values)), tmp_path / "out", NOWHERE)
    assert written.tensors == 2
    with (tmp_path / "out" / INDEX).open(newline="") as file:
        rows = {row["node"]: row for row in csv.DictReader(file)}
    assert list(rows) == list(values)
    assert rows["Default/net/MatMul-op1"] == {
        "file": "rank0/step3/Default/net/MatMul-op1.out.0.npy",
        "rank": "0",
        "step": "3",
        "graph": "kernel_graph_0",
        "node": "Default/net/MatMul-op1",
        "side": "output",
        "slot": "0",
        "round": "0",
        "dtype": "float16",
        "stored": "float16",
        "shape": "(2, 3)",
        "error": "",
    }
    assert (rows["fc1.weight"]["dtype"], rows["fc1.weight"]["stored"]) == ("bfloat16", "float32")
    assert rows["broken"]["file"] == ""
    assert "not a .npy file" in rows["broken"]["error"]
    loaded = np.load(tmp_path / "out" / rows["Default/net/MatMul-op1"]["file"])
    np.testing.assert_array_equal(loaded, values["Default/net/MatMul-op1"])
    assert np.load(tmp_path / "out" / rows["fc1.weight"]["file"]) == 2.5
    assert len(list((tmp_path / "out").rglob("*.npy"))) == 2


# -- .csv ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "uint8", "complex64"])
def test_csv_reads_back_as_the_same_values(tmp_path: Path, session_of: Callable[..., Session], dtype: str) -> None:
    random = np.random.default_rng(7)
    values = (random.standard_normal((3, 4, 5)) * 10.0 ** random.integers(-7, 4, (3, 4, 5))).astype(dtype)
    write_csv(only(session_of({"a": values})), tmp_path / "x.csv", NOWHERE)
    with (tmp_path / "x.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["i0", "i1", "i2", "value"]
    back = np.zeros_like(values)
    for *index, value in rows:
        back[tuple(map(int, index))] = np.dtype(dtype).type(complex(value) if "complex" in dtype else value)
    np.testing.assert_array_equal(back, values)
    assert len(rows) == values.size


def test_csv_of_fortran_order_scalars_empty_tensors_and_special_values(
    tmp_path: Path, session_of: Callable[..., Session]
) -> None:
    def text(value: Value) -> list[str]:
        write_csv(only(session_of({"a": value})), tmp_path / "x.csv", NOWHERE, force=True)
        return (tmp_path / "x.csv").read_text().split()

    assert text(np.asfortranarray([[1, 2], [3, 4]])) == ["i0,i1,value", "0,0,1", "0,1,2", "1,0,3", "1,1,4"]
    assert text(np.array(0.1, np.float32)) == ["value", "0.1"]
    assert text(np.zeros((0, 3))) == ["i0,i1,value"]
    assert text(np.array([np.nan, np.inf, -np.inf, -0.0])) == ["i0,value", "0,nan", "1,inf", "2,-inf", "3,-0.0"]
    assert text(np.array([True, False])) == ["i0,value", "0,True", "1,False"]
    assert text(np.array([1.5], ml_dtypes.bfloat16)) == ["i0,value", "0,1.5"]


def test_csv_of_a_window_has_the_indices_as_titles(tmp_path: Path, session_of: Callable[..., Session]) -> None:
    tensor = only(session_of({"a": np.arange(24).reshape(2, 3, 4)}))

    def rows(window: str) -> list[list[str]]:
        write_csv(tensor, tmp_path / "x.csv", NOWHERE, window=window, force=True)
        with (tmp_path / "x.csv").open(newline="") as file:
            return list(csv.reader(file))

    assert rows("[1, ::-1, 1:3]") == [
        ["[1, 2::-1, 1:3]", "1", "2"],
        ["2", "21", "22"],
        ["1", "17", "18"],
        ["0", "13", "14"],
    ]
    assert rows("0, 1, 2:") == [["i2", "value"], ["2", "6"], ["3", "7"]]
    assert rows("0, 1, 2") == [["value"], ["6"]]
    with pytest.raises(BadSliceError):
        rows("0, 1")
    with pytest.raises(TdbgError, match=r"not a \.npy file"):
        write_csv(only(session_of({"a": b"none"})), tmp_path / "y.csv", NOWHERE)
    assert not (tmp_path / "y.csv").exists()
