"""The in-memory source, on which the tests of the layers above stand."""

from __future__ import annotations

import gc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.sources.memory import MemorySource, Op, table_of
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.graph.table import NodeFlag
from tui_debugger.model import Category, Side
from tui_debugger.sources.base import Changes
from tui_debugger.stats.npy import open_array, read_meta

A, B = ("a", Side.OUTPUT, 0), ("b", Side.OUTPUT, 0)


def test_values_are_spilled_when_asked_for_and_deleted_on_close() -> None:
    source = MemorySource({0: {0: {A: np.arange(3.0), B: np.zeros(2)}}}, ops=[Op("a"), Op("b")])
    table = source.tensors(0, 0)
    spec = table.spec(0)
    assert table.spec(0) == spec
    np.testing.assert_array_equal(open_array(spec), np.arange(3.0))
    directory = Path(spec.path).parent
    assert len(list(directory.iterdir())) == 1
    source.close()
    assert not directory.exists()


def test_what_was_spilled_goes_with_a_source_that_nobody_closed() -> None:
    source = MemorySource({0: {0: {A: np.arange(3.0)}}})
    directory = Path(source.tensors(0, 0).spec(0).path).parent
    assert directory.exists()
    del source
    gc.collect()
    assert not directory.exists()


def test_bfloat16_travels_as_float32_with_its_declared_type() -> None:
    source = MemorySource({0: {0: {A: np.array([1.5], ml_dtypes.bfloat16)}}})
    spec = source.tensors(0, 0).spec(0)
    assert read_meta(spec).dtype == "bfloat16"
    assert float(open_array(spec)[0]) == 1.5
    source.close()


def test_broken_files_can_be_made() -> None:
    source = MemorySource({0: {0: {A: b"not an array", B: np.array([None])}}})
    for index in (0, 1):
        with pytest.raises(UnreadableTensorError):
            open_array(source.tensors(0, 0).spec(index))
    source.close()


def test_nodes_have_the_given_edges_types_and_categories() -> None:
    table = table_of([Op("w", "Parameter", category=Category.WEIGHT), Op("mul", "Mul", inputs=[("w", 0), ("?", 0)])])
    assert table.inputs(1) == [(0, 0), (-1, 0)]
    assert table.category_of(0) is Category.WEIGHT
    assert table.op_type(1) == "Mul"


def test_unknown_nodes_are_appended() -> None:
    source = MemorySource({0: {0: {B: np.zeros(1)}}}, ops=[Op("a")])
    nodes = source.nodes(0)
    assert nodes.names == ["a", "b"]
    assert nodes.flags[1] == NodeFlag.FILE_ONLY


def test_what_is_added_is_reported_once() -> None:
    source = MemorySource({0: {0: {A: np.zeros(1)}}})
    source.nodes(0)
    old = source.tensors(0, 0)
    source.add(0, 0, {B: np.zeros(1)})
    source.add(0, 1, {A: np.zeros(1)})
    source.add(3, 0, {A: np.zeros(1)})
    assert source.refresh() == Changes(
        new_steps=((0, 1), (3, 0)), grown_steps=((0, 0),), new_nodes=True, new_ranks=(3,)
    )
    assert source.refresh() == Changes()
    assert (len(old), len(source.tensors(0, 0))) == (1, 2)
