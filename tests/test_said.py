"""What a training said beside values: the file of a saved dump that holds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tui_debugger.model import OperandState, UnreadablePart
from tui_debugger.opener import LINE_LIMIT
from tui_debugger.said import SAID_FILE, Said, SaidOfRank, doubt_line

NAMES = [("Sub", "g"), ("Add\u202e\n", "g"), ("Sub", "other")]
SAID = Said(
    frozenset({0}),
    {(0, 1): OperandState.NAN, (2, 0): OperandState.INFINITE, (1, 3): OperandState.CLEAN},
    {(1, 0): frozenset({"Softmax", "Exp"}), (2, 0): frozenset()},
)


def read(path: Path, text: str | bytes) -> SaidOfRank:
    file = path / SAID_FILE
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return SaidOfRank.read(file)


def find(name: str, graph: str) -> int:
    return NAMES.index((name, graph)) if (name, graph) in NAMES else -1


def test_what_was_said_is_read_back_and_belongs_to_its_step(tmp_path: Path) -> None:
    said = read(tmp_path, "".join(SAID.lines(3, NAMES.__getitem__)))
    assert (said.of(3, find), said.of(2, find), said.wrong) == (SAID, Said(), 0)


def test_nodes_that_the_graph_does_not_have_are_left_out(tmp_path: Path) -> None:
    said = read(tmp_path, "".join(SAID.lines(3, NAMES.__getitem__)))
    assert said.of(3, lambda *_: -1) == Said()


def test_what_was_not_recorded_is_read_back(tmp_path: Path) -> None:
    said = read(tmp_path, doubt_line(UnreadablePart("rank 0: tensors of a kind", "3, first a", unrecorded=True)))
    assert (said.not_recorded, said.wrong) == ([("rank 0: tensors of a kind", "3, first a")], 0)


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b"x" * (LINE_LIMIT + 2),
        b'{"step": -1, "graph": "g", "node": "Sub", "slot": 0, "read": "nan"}',
        b'{"step": true, "graph": "g", "node": "Sub", "slot": 0, "read": "nan"}',
        b'{"step": 1, "graph": "g", "node": ["Sub"], "slot": 0, "read": "nan"}',
        b'{"step": 1, "graph": "g", "node": "Sub", "slot": 1e99, "read": "nan"}',
        b'{"step": 1, "graph": "g", "node": "Sub", "slot": 0, "read": ["nan"]}',
        b'{"step": 1, "graph": "g", "node": "Sub", "slot": 0, "by_design": [1]}',
        b'{"not_recorded": 1, "why": "so"}',
    ],
    ids=range(12),
)
def test_a_line_without_sense_is_counted(tmp_path: Path, line: bytes) -> None:
    said = read(tmp_path, line + b"\n\n" + next(SAID.lines(0, NAMES.__getitem__)).encode())
    assert (said.wrong, said.of(0, find).inputs_unknown) == (1, {0})
