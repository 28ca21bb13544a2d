"""Formats of tensors: what a row of the table has to bring, and that everybody who reads then reads it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.stats.requests import look, requests_for
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec
from tui_debugger.stats import npy
from tui_debugger.stats.measure import read_all
from tui_debugger.stats.npy import TensorFile, ValueLayout, ValueReader, open_array, read_meta
from tui_debugger.stats.records import RequiredStats
from tui_debugger.stats.scan import SPAN, spans_of

pytestmark = pytest.mark.usefixtures("measured_by")

Array = npt.NDArray[Any]
LENGTH = 4


class Halves(ValueReader):
    """A format of its own: float32 values, each stored as half of what it is."""

    def __init__(self, descriptor: int, status: os.stat_result, spec: ReadSpec) -> None:
        if status.st_size % LENGTH:
            raise UnreadableTensorError("is cut", where=spec.path)
        count = status.st_size // LENGTH
        self.layout = ValueLayout(np.dtype(np.float32), "float32", (count,), False, 0, count)
        self.packed = spec.member == "packed"
        self._descriptor = descriptor
        self.closed = False

    def read_into(self, start: int, target: Array) -> None:
        data = os.pread(self._descriptor, target.nbytes, start * LENGTH)
        target[:] = np.frombuffer(data, np.float32) * 2

    def array(self) -> Array:
        values = np.empty(self.layout.count, np.float32)
        self.read_into(0, values)
        return values

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReadSpec:
    monkeypatch.setitem(npy.FORMATS, "halves", f"{__name__}:Halves")
    np.arange(6, dtype=np.float32).tofile(tmp_path / "x.halves")
    return ReadSpec(str(tmp_path / "x.halves"), "halves")


def test_its_values_and_facts_are_read(spec: ReadSpec) -> None:
    array = open_array(spec)
    assert array.tolist() == [0, 2, 4, 6, 8, 10]
    assert not array.flags.writeable
    assert (read_meta(spec).dtype, read_meta(spec).shape) == ("float32", (6,))
    with TensorFile(spec) as file:
        assert file.read(2, 3).tolist() == [4, 6, 8]
        assert file.read(2, 3, np.empty(100, np.uint8)).tolist() == [4, 6, 8]


def test_its_statistics_are_those_of_a_file_of_numpy(spec: ReadSpec, tmp_path: Path) -> None:
    np.save(tmp_path / "same.npy", open_array(spec))
    assert look(spec).stats == look(tmp_path / "same.npy").stats


def test_it_is_compared_with_files_of_other_formats(spec: ReadSpec, tmp_path: Path) -> None:
    np.save(tmp_path / "before.npy", np.ones(6, np.float32))
    need = RequiredStats(change=True)
    for first, second in ((tmp_path / "before.npy", spec), (spec, tmp_path / "before.npy")):
        record = look(second, first, need)
        assert (record.previous, record.error) == ("ok", "")
        assert record.change is not None
        assert record.change.mean_abs_difference == np.abs(np.arange(6) * 2.0 - 1).mean()


def test_what_is_wrong_with_it_is_said_of_its_row_only(spec: ReadSpec, tmp_path: Path) -> None:
    (tmp_path / "cut.halves").write_bytes(b"123")
    cut = ReadSpec(str(tmp_path / "cut.halves"), "halves")
    records = read_all(requests_for([spec, cut], [-1, -1], RequiredStats()))
    found = [records.get(row) for row in range(2)]
    assert [record.error for record in found if record is not None] == ["", "is cut"]


def test_long_tensors_are_shared_unless_they_are_packed(spec: ReadSpec) -> None:
    with Path(spec.path).open("wb") as file:
        file.truncate((SPAN + 1) * LENGTH)
    assert len(spans_of(spec, None)) > 1
    assert spans_of(ReadSpec(spec.path, "halves", member="packed"), None) == ()


def test_no_such_format(spec: ReadSpec) -> None:
    for name in ("other", "missing"):
        npy.FORMATS["missing"] = "tui_debugger.stats.no_such_file:open_value"
        try:
            with pytest.raises(UnreadableTensorError, match=f"a format that is not read: {name}"):
                open_array(ReadSpec(spec.path, name))
        finally:
            del npy.FORMATS["missing"]
