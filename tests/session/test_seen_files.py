"""Files that are written over in place: no directory tells, so those that are shown are looked at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.session.opened import opened
from tests.sources.writer import MLP, write_dump
from tui_debugger.model import ReadSpec, Side, TensorKey
from tui_debugger.session.following import MOST, SeenFiles, state_of

RELU = MLP.nodes[1].name
NAN = np.full((2, 3), np.nan)
"""Of another type, and so of another size: the clock of a file system may not have moved."""


def test_a_tensor_that_is_shown_is_measured_and_judged_anew_once_its_file_was_written_over(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1, 2))
    session = opened(tmp_path, "TO")
    assert not session.check(session.pairs()).hits.findings
    nodes = session.nodes(0)
    key = TensorKey(0, nodes.graph_of(nodes.find(RELU)).name, RELU, Side.OUTPUT, 0, 1)
    (file,) = writer.step(1).glob("ReLU*output*")
    assert session.measure([session.row_of(key)])[0].stats is not None
    before = session.file_state(key)
    assert session.file_state(key) == before
    assert not session.refresh()
    (beside,) = writer.step(1).glob("MatMul*output*")
    for each in (file, beside):
        with each.open("r+b") as there:
            np.save(there, NAN)
    assert session.refresh().grown_steps == ((0, 1),)
    assert not session.refresh(), "told once"
    assert session.file_state(key) != before
    other = replace(key, node=MLP.nodes[0].name)
    for row in session.measure([session.row_of(key), session.row_of(other)]):
        assert row.stats is not None
        assert row.stats.nan == 6, "what nobody looks at was written over with it"
    assert session.fresh([(0, 0)])
    assert not session.fresh([(0, 1)])
    assert not session.fresh([(0, 2)]), "it is compared with the step before"


def test_what_was_noted_stays_until_it_was_told(tmp_path: Path) -> None:
    path, seen, key = tmp_path / "x.npy", SeenFiles(), TensorKey(0, "g", "n", Side.OUTPUT, 0, 0)
    path.write_bytes(b"1")
    spec = ReadSpec(str(path))
    seen.note(key, state_of(spec))
    path.write_bytes(b"22")
    seen.note(key, state_of(spec))
    assert seen.rewritten() == [key]
    assert seen.rewritten() == []
    path.unlink()
    assert seen.rewritten() == [key]


def test_as_many_are_looked_after_as_can_be_looked_at(tmp_path: Path) -> None:
    seen = SeenFiles()
    for number in range(2 * MOST):
        path = tmp_path / str(number)
        path.touch()
        seen.note(TensorKey(0, "g", "n", Side.OUTPUT, number, 0), state_of(ReadSpec(str(path))))
        path.write_bytes(b"x")
    assert [key.slot for key in seen.rewritten()] == list(range(MOST, 2 * MOST))
