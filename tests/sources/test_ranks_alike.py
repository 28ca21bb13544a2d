"""Ranks that are nearly alike: what is kept of the one before must not be taken for what another one has."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.ranks import write_ranks
from tui_debugger.last_result import LastResult
from tui_debugger.sources.registry import open_source


def table_of(root: Path, rank: int, step: int) -> list[tuple[Any, ...]]:
    """What a session sees of a step, as plain values."""
    with closing(open_source(root)) as source:
        for before in range(rank):  # as the grid reads them: one after the other
            source.nodes(before)
            source.tensors(before, step)
        table, nodes = source.tensors(rank, step), source.nodes(rank)
        columns = (table.node, table.side, table.slot, table.round, table.flags)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [
            (nodes.names[row[0]], int(nodes.order[row[0]]), *row[1:], table.recorded(index))
            for index, row in enumerate(rows)
        ]


def lines_of(root: Path, rank: int) -> tuple[Path, list[str]]:
    path = root / f"rank_{rank}/Net/0/0/statistic.csv"
    return path, path.read_text().splitlines(keepends=True)


def other_order(root: Path) -> None:
    """Two operators ran the other way round."""
    path, lines = lines_of(root, 1)
    for at, stamp in ((3, 6), (6, 3)):
        cells = lines[at].split(",")
        cells[4] = str(1_700_000_000_000_000 + stamp)
        lines[at] = ",".join(cells)
    path.write_text("".join(lines))


def an_input(root: Path) -> None:
    """One row is an input's."""
    path, lines = lines_of(root, 1)
    lines[4] = lines[4].replace(",output,", ",input,")
    path.write_text("".join(lines))


def written_twice(root: Path) -> None:
    """One tensor was written twice."""
    path, lines = lines_of(root, 1)
    path.write_text("".join([*lines, lines[4].replace("16999", "17000")]))


def one_less(root: Path) -> None:
    """One operator is not there."""
    path, lines = lines_of(root, 1)
    path.write_text("".join(lines[:4] + lines[5:]))


def another_name(root: Path) -> None:
    """One operator is called otherwise."""
    path, lines = lines_of(root, 1)
    lines[4] = lines[4].replace("op3", "other3")
    path.write_text("".join(lines))


def alike(root: Path) -> None:
    """Nothing is different but the numbers."""


@pytest.mark.parametrize("change", [alike, other_order, an_input, written_twice, one_less, another_name])
def test_a_rank_is_what_it_is_whatever_the_one_before_was(
    change: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_ranks(tmp_path / "dump", 3, 8, 1)
    change(root)
    found = [table_of(root, rank, 0) for rank in range(3)]
    monkeypatch.setattr(LastResult, "of", lambda _self, *_columns, make: make())
    assert found == [table_of(root, rank, 0) for rank in range(3)]
    assert len(found[0]) == len(found[2]) == 8
    assert found[1] != found[0]
    assert [row[:2] for row in found[0]] == [row[:2] for row in found[2]]
