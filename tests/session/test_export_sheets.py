"""Tables as .csv: numbers read back as they are, names harm nobody."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.errors import CancelledError
from tui_debugger.model import Progress
from tui_debugger.session.export_files import save_npy
from tui_debugger.session.export_graph import write_table, write_text
from tui_debugger.text.spreadsheets import cell_text


@given(st.floats())
def test_a_float_reads_back_as_it_is(value: float) -> None:
    assert np.array_equal(float(cell_text(value)), value, equal_nan=True)


@given(st.floats(width=32))
def test_a_numpy_float_has_the_digits_of_its_type_and_no_more(value: float) -> None:
    text = cell_text(np.float32(value))
    assert np.array_equal(np.float32(text), np.float32(value), equal_nan=True)
    digits = re.sub(r"\D", "", text.partition("e")[0]).strip("0")
    assert len(digits) <= len("123456789")


@given(st.text())
def test_no_text_is_a_formula_or_moves_a_terminal(text: str) -> None:
    shown = cell_text(text)
    assert not any(ord(c) < 32 and c != "\n" for c in shown)
    if shown[:1] in {"=", "+", "-", "@"} and len(shown) > 1 and set(shown.split("\n")) != {"-"}:
        complex(shown)  # only numbers start like this


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "True"),
        (12, "12"),
        (1 + 2j, "(1+2j)"),
        (ml_dtypes.bfloat16(0.1), "0.100098"),
        (float("inf"), "inf"),
        ("-inf", "-inf"),
        ("-", "-"),
        ("-Net/op", "'-Net/op"),
        ("-\n-", "-\n-"),
        ("-\n=1", "'-\n=1"),
        ("=1+1", "'=1+1"),
        ("@x", "'@x"),
        ("\t=1+1", "'\\t=1+1"),
    ],
)
def test_cells(value: object, text: str) -> None:
    assert cell_text(value) == text


def test_a_table_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    class Lazy(list[tuple[int, float]]):
        """Rows on demand."""

    rows = Lazy((i, i / 3) for i in range(10_000))
    path = write_table(("i", "value"), rows, tmp_path / "t.csv", tmp_path / "dump")
    with path.open(newline="") as file:
        back = list(csv.reader(file))
    assert back[0] == ["i", "value"]
    assert [(int(i), float(value)) for i, value in back[1:]] == rows

    def stop(progress: Progress) -> None:
        if progress.done:
            raise CancelledError("stopped")

    with pytest.raises(CancelledError):
        write_table(("i", "value"), rows, tmp_path / "u.csv", tmp_path / "dump", stop)
    assert [each.name for each in tmp_path.iterdir()] == ["t.csv"]


def test_text_is_written_line_by_line_and_cleaned(tmp_path: Path) -> None:
    path = write_text(["a\x1b[2J", "ü"], tmp_path / "t.txt", tmp_path / "dump")
    assert path.read_text(encoding="utf-8") == "a\\x1b[2J\nü\n"


@pytest.mark.parametrize("dtype", [">f8", ">i8", ">c16", "<f2", "?", "u1"])
@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_an_array_is_written_as_numpy_would(dtype: str, order: str, tmp_path: Path) -> None:
    """Big-endian float64 as well: other byte orders are numpy's own types, and stay what they are."""
    whole = (np.arange(24) / 7).astype(dtype).reshape(4, 6)
    values = {"C": whole, "F": np.asfortranarray(whole), "strided": whole[::2, 1::2]}[order]
    written = save_npy(values, tmp_path / "x.npy", tmp_path / "dump")
    np.save(tmp_path / "numpy.npy", values)
    assert written.read_bytes() == (tmp_path / "numpy.npy").read_bytes()


@pytest.mark.parametrize("values", [np.float64(0.1), np.zeros((0, 3)), np.arange(3, dtype=np.int64)])
def test_arrays_of_no_or_one_dimension(values: np.ndarray, tmp_path: Path) -> None:
    back = np.load(save_npy(np.asarray(values), tmp_path / "x.npy", tmp_path / "dump"))
    assert back.shape == values.shape
    assert np.array_equal(back, values)


def test_writing_a_big_array_tells_how_far_it_is_and_stops(tmp_path: Path) -> None:
    told: list[Progress] = []
    values = np.zeros(3 << 20, np.uint8)
    save_npy(values, tmp_path / "x.npy", tmp_path / "dump", progress=told.append)
    assert [each.done / each.total for each in told] == pytest.approx([0, 1 / 3, 2 / 3])

    def stop(_: Progress) -> None:
        raise CancelledError("stopped")

    with pytest.raises(CancelledError):
        save_npy(values, tmp_path / "y.npy", tmp_path / "dump", progress=stop)
    assert [each.name for each in tmp_path.iterdir()] == ["x.npy"]
