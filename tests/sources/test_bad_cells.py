"""One bad cell is one bad row: in every table that is read, whatever stands where a number should be."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from tests.cli.running import run
from tests.sources.writer import DumpWriter
from tests.thorough import few

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]

BAD: Final = [
    "9" * 25,
    "1e25",
    "-" + "9" * 25,
    "9" * 400,
    "1e400",
    "-1e400",
    "1e-400",
    "nan",
    "-inf",
    "",
    "null",
    '"',
    "0x10",
    "1_000",
    "١٢",
    "1,2",
    "-1",
    "1.5",
    "True",
    "\x00",
    "\ufeff3",
    " 3 ",
    "--",
    "x" * 5_000,
    "\udcff",
]
"""What programs, spreadsheets, editors and broken disks make of a number."""
PLACES: Final = 37
"""Cells of a table that are spoilt, spread over it; each in turn by a fifth of what is bad."""
NUMBER: Final = re.compile(rb'(?<=[,=:\[ \t"])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?=[,\]}\s"])')


def statistic_csv(root: Path, _: Dumps) -> Path:
    writer = DumpWriter(root)
    values = np.linspace(-3, 4, 12, dtype=np.float32).reshape(3, 4)
    for step in range(3):
        rows = [("Log", f"Default/net/Log-op{number}", "output", 0, values + number) for number in range(12)]
        writer.statistics(step, rows)
    return writer.step(1) / "statistic.csv"


def recorded(name: str, files: str, dump: str = "") -> Callable[[Path, Dumps], Path]:
    """Copies a recorded dump, or the one in a directory of it."""

    def copy(root: Path, dumps: Dumps) -> Path:
        shutil.copytree(dumps(name) / dump, root)
        return min(root.glob(files))

    return copy


TABLES: Final = {
    "statistic.csv": statistic_csv,
    "monitor V1": recorded("msprobe-monitor", "**/actv_*.csv", "v1"),
    "monitor V2": recorded("msprobe-monitor", "**/module_step*.csv", "v2"),
    "TE logs": recorded("te-logs", "nvdlfw_inspect_statistics_logs/*.log"),
    "torchtitan": recorded("torchtitan-numerics", "**/*.log", "good"),
}


def looked_at(capsys: Capsys, root: Path) -> tuple[int, int]:
    """Tensors that a check looked at, with those that it could not read; and its exit code."""
    said = run(capsys, "check", root, "--watch", "TO", "--json", "--jobs", "1", "--no-cache")
    assert "Traceback" not in said.err
    assert said.code in {0, 1, 2}
    coverage = said.json["coverage"]
    return coverage["checked"] + coverage["unreadable"], said.code


@pytest.mark.covering
@pytest.mark.parametrize("place", few(range(PLACES), 2))
@pytest.mark.parametrize("table", TABLES)
def test_what_is_no_number_spoils_its_row_and_nothing_else(
    capsys: Capsys, dumps: Dumps, tmp_path: Path, table: str, place: int
) -> None:
    file = TABLES[table](tmp_path / "dump", dumps)
    root = tmp_path / "dump"
    whole = file.read_bytes()
    tensors, _ = looked_at(capsys, root)
    assert tensors > 0
    cells = [match.span() for match in NUMBER.finditer(whole)]
    start, stop = cells[place * (len(cells) - 1) // (PLACES - 1)]
    line = whole.count(b"\n", 0, start)
    for bad in BAD[(place + list(TABLES).index(table)) % 5 :: 5]:
        file.write_bytes(whole[:start] + bad.encode("utf-8", "surrogateescape") + whole[stop:])
        left, _ = looked_at(capsys, root)
        assert left >= tensors - 1, f"line {line + 1}: {bad[:30]!r} in place of {whole[start:stop]!r}"


@pytest.mark.parametrize("table", TABLES)
def test_a_line_without_end_is_no_table_and_never_clean(
    capsys: Capsys, dumps: Dumps, tmp_path: Path, table: str
) -> None:
    file = TABLES[table](tmp_path / "dump", dumps)
    whole = file.read_bytes()
    start, stop = next(NUMBER.finditer(whole)).span()
    file.write_bytes(whole[:start] + b"x" * 70_000 + whole[stop:])
    said = run(capsys, "check", tmp_path / "dump", "--watch", "TL max_gt=1e300", "--json", "--jobs", "1", "--no-cache")
    assert said.code == (1 if table.startswith("monitor") else 2), "those two have NaN in other files"
    assert any(reason["kind"] == "unreadable" for reason in said.json["reasons"])
