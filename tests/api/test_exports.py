"""``export_graphs``: the sheets and columns that MindInsight writes, from what the graph files say."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pytest

from tests.session.opened import opened, snapshot
from tests.sources.writer import DumpWriter, Generation, Graph, Node, write_dump
from tui_debugger.api.statistic import export_graphs
from tui_debugger.errors import TdbgError
from tui_debugger.graph.messages import read_graph
from tui_debugger.text import spreadsheets
from tui_debugger.text.spreadsheets import cell_text

Dumps = Callable[[str], Path]
COLUMNS = {
    "info": ["argument", "value"],
    "constant": ["name", "value", "downstream", "rank_id", "graph_name"],
    "parameter": ["name", "output_dtype", "output_shape", "downstream", "rank_id", "graph_name"],
    "operator": [
        *("operator", "input", "input_dtype", "input_shape", "output_dtype", "output_shape", "downstream", "name"),
        *("attrs", "full_name", "rank_id", "graph_name", "stack"),
    ],
    "statistics": ["operator", "count"],
    "source": ["stack", "operator", "full_name", "rank_id", "graph_name"],
}


def sheets(path: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of every sheet by title."""
    book = openpyxl.load_workbook(path)
    found = {}
    for page in book:
        titles, *rows = page.iter_rows(values_only=True)
        assert list(titles) == COLUMNS.get(page.title, list(titles))
        found[page.title] = [dict(zip(titles, row, strict=True)) for row in rows]
    return found


@pytest.mark.parametrize("dump", ["mindspore-2.0-nan", "mindspore-2.10-nan"])
def test_a_real_graph(dump: str, dumps: Dumps, tmp_path: Path) -> None:
    session = opened(dumps(dump))
    path = export_graphs(session, str(tmp_path))
    assert re.fullmatch(r"dump_\d{8}_\d{6}\.xlsx", Path(path).name)
    found = sheets(path)
    assert list(found) == list(COLUMNS)
    (file,) = dumps(dump).glob("rank_0/graphs/*.pb")
    graph = read_graph(file)
    assert [row["name"] for row in found["parameter"]] == [each.name for each in graph.parameters]
    shapes = [str(each.type.shape or "-") for each in graph.parameters]
    assert [row["output_shape"] for row in found["parameter"]] == shapes
    assert sum(shape != "-" for shape in shapes) > 30
    assert [row["name"] for row in found["constant"]][: len(graph.constants)] == [each.key for each in graph.constants]
    operators = found["operator"][: len(graph.nodes)]
    assert [row["name"] for row in operators] == [node.index for node in graph.nodes]
    for row, node in zip(operators, graph.nodes, strict=True):
        assert len(str(row["input"] or "").splitlines()) == len(node.inputs)
        assert str(row["output_dtype"]).splitlines() == [slot.dtype for slot in node.outputs]
        assert (row["rank_id"], row["graph_name"]) == (0, graph.name)
    counts = {row["operator"]: row["count"] for row in found["statistics"]}
    assert sum(counts.values()) == len(found["operator"])
    assert counts["Adam"] == sum(node.op_type == "Adam" for node in graph.nodes)
    assert list(counts) == sorted(counts)
    stacks = {row["full_name"]: row["stack"] for row in found["operator"] if row["stack"]}
    assert {row["full_name"]: row["stack"] for row in found["source"]} == stacks
    assert all(re.match(r"/.*\.py:\d+\n", stack) for stack in stacks.values())


def test_operators_are_named_by_type_and_number_as_long_as_that_is_one(dumps: Dumps, tmp_path: Path) -> None:
    def labels(dump: str) -> list[str]:
        rows = sheets(export_graphs(opened(dumps(dump)), str(tmp_path / dump)))["operator"]
        found = [row["operator"] for row in rows]
        assert len(set(found)) == len(found)
        return found

    old = labels("mindspore-2.0-nan")
    assert {"Log_381", "ReduceSum_382", "Load_4"} <= set(old)
    new = labels("mindspore-2.10-nan")
    assert "Log_0" in new
    assert sum(label.startswith("ReduceSum_Default/") for label in new) >= 2


def test_inputs_and_consumers_of_a_small_graph(tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", steps=(0,), ranks=(0, 1))
    found = sheets(export_graphs(opened(tmp_path / "dump"), str(tmp_path / "out")))
    assert found["info"] == [{"argument": "dump-dir", "value": str((tmp_path / "dump").resolve())}]
    assert [(row["rank_id"], row["operator"], row["input"], row["downstream"]) for row in found["operator"]] == [
        (rank, *cells)
        for rank in (0, 1)
        for cells in (
            ("MatMul_1", "x\nfc1.weight", "ReLU_2"),
            ("ReLU_2", "MatMul_1", None),
            ("ApplyMomentum_3", "fc1.weight\naccum.fc1.weight", None),
        )
    ]
    assert found["operator"][0]["input_dtype"] == "float32\nfloat32"
    assert found["operator"][0]["input_shape"] == "(2, 3)\n(2, 3)"
    assert {row["name"]: row["downstream"] for row in found["parameter"]} == {
        "x": "MatMul_1",
        "fc1.weight": "MatMul_1\nApplyMomentum_3",
        "accum.fc1.weight": "ApplyMomentum_3",
    }
    assert found["statistics"] == [{"operator": name, "count": 2} for name in ("ApplyMomentum", "MatMul", "ReLU")]


def test_without_a_graph_the_nodes_of_the_files_are_listed(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump", Generation.V2_10)
    writer.metadata()
    writer.tensor(0, "Add", "Default/Add-op1", np.ones(2))
    (row,) = sheets(export_graphs(opened(tmp_path / "dump"), str(tmp_path)))["operator"]
    assert (row["operator"], row["input"], row["output_dtype"], row["attrs"]) == ("Add_1", None, None, "{}")


def test_foreign_text_is_never_a_formula_and_never_breaks_the_workbook(tmp_path: Path) -> None:
    names = ["=1+1", "#REF!", "+1", "a\x0bb\x1b", "long" * 10_000]
    source = '# In file /p/t.py:3/        =HYPERLINK("http://x")/'
    writer = DumpWriter(tmp_path / "dump", Generation.V2_0)
    writer.metadata()
    writer.graph(Graph(tuple(Node(name, "=Evil", source=source) for name in names)))
    book = openpyxl.load_workbook(export_graphs(opened(tmp_path / "dump"), str(tmp_path)))
    cells = [cell for page in book for row in page.iter_rows() for cell in row]
    assert {cell.data_type for cell in cells if cell.value is not None} == {"s", "n"}
    found = [cell.value for cell in book["operator"]["J"]][1:]
    assert found[:4] == ["=1+1", "#REF!", "+1", "a\\x0bb\\x1b"]
    assert len(str(found[4])) == 32_767


def test_a_full_sheet_goes_on_in_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreadsheets, "MOST_ROWS", 2)
    write_dump(tmp_path / "dump", steps=(0,))
    found = sheets(export_graphs(opened(tmp_path / "dump"), str(tmp_path)))
    assert [row["operator"] for row in found["operator"]] == ["MatMul_1", "ReLU_2"]
    assert [row["operator"] for row in found["operator_2"]] == ["ApplyMomentum_3"]


def test_without_openpyxl_every_sheet_is_a_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dumps: Dumps) -> None:
    session = opened(dumps("mindspore-2.0-nan"))
    workbook = sheets(export_graphs(session, str(tmp_path / "with")))
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    path = Path(export_graphs(session, str(tmp_path / "without")))
    assert re.fullmatch(r"dump_\d{8}_\d{6}_operator\.csv", path.name)
    stem = path.name.removesuffix("_operator.csv")
    assert {each.name for each in path.parent.iterdir()} == {f"{stem}_{name}.csv" for name in COLUMNS}
    for name, rows in workbook.items():
        with (path.parent / f"{stem}_{name}.csv").open(newline="") as file:
            reader = csv.DictReader(file)
            assert reader.fieldnames == COLUMNS[name]
            texts = [{k: cell_text(v) for k, v in row.items()} for row in rows]  # no cell is a formula
            assert list(reader) == texts


def test_the_directory_is_made_and_none_means_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dump(tmp_path / "dump", steps=(0,))
    session = opened(tmp_path / "dump")
    deep = tmp_path / "a" / "b"
    assert Path(export_graphs(session, deep)).parent == deep
    monkeypatch.chdir(deep)
    paths = {export_graphs(session) for _ in range(3)}  # within one second
    assert len(paths) == 3
    assert len(list(deep.iterdir())) == 4


def test_what_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = write_dump(tmp_path / "dump", steps=(0,)).root
    session = opened(dump)
    before = snapshot(dump)
    monkeypatch.chdir(dump)
    for directory in (None, str(dump / "new"), "."):
        with pytest.raises(TdbgError, match="never written") as stop:
            export_graphs(session, directory)
        assert "output_dir" in stop.value.hint
    assert snapshot(dump) == before
    (tmp_path / "file").touch()
    with pytest.raises(TdbgError, match="could not be made"):
        export_graphs(session, str(tmp_path / "file" / "x"))
