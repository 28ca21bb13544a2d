"""Notes: which values there are, their limits, and the file of a dump that holds them."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tui_debugger.graph.messages import GRAPH_PACKAGE, add_file, describe, message_class, pool
from tui_debugger.live import wire
from tui_debugger.live.client.messages import Process, metadata
from tui_debugger.live.client.probe import Identity
from tui_debugger.live.dump_writer import DumpWriter
from tui_debugger.live.server.identity import notes_of
from tui_debugger.notes import (
    LONGEST_NAME,
    LONGEST_TEXT,
    MOST_KEPT,
    MOST_NOTES,
    NOTES_FILE,
    Note,
    RunNotes,
    limited,
    notes_line,
    notes_of_line,
    read_notes,
)
from tui_debugger.opener import LINE_LIMIT, NotRegularError

TEXT = st.text(st.characters(exclude_categories=()), max_size=150)
"""Whatever a program may have in a text: control characters, lone surrogates, line separators."""
VALUES = st.one_of(st.booleans(), st.integers(), st.floats(), TEXT)
NOTES = st.dictionaries(TEXT, VALUES, max_size=80).map(lambda notes: limited(notes.items()))


def same(one: Note, other: Note) -> bool:
    """The same value of the same type; NaN is NaN."""
    return type(one) is type(other) and (one == other or repr(one) == repr(other) == "nan")


def alike(one: dict[str, Note], other: dict[str, Note]) -> bool:
    return list(one) == list(other) and all(same(one[name], other[name]) for name in one)


@given(NOTES)
@example(limited({f"{number:040}": "\x00" * 200 for number in range(99)}.items()))
def test_every_note_comes_back_from_the_file(notes: dict[str, Note]) -> None:
    line = notes_line(7, notes).encode()
    assert line.count(b"\n") == 1
    assert len(line) <= LINE_LIMIT
    found = notes_of_line(line.rstrip(b"\n"))
    assert found is not None
    assert found[0] == 7
    assert alike(found[1], notes)


@given(NOTES)
def test_every_note_comes_over_the_wire(notes: dict[str, Note]) -> None:
    sent = metadata(Process(Identity("some"), "s", "h", 1, ""), 3, notes=[(3, notes)])
    received = wire.message("Metadata").FromString(sent.SerializeToString())
    ((step, found),) = notes_of(received)
    assert step == 3
    assert alike(found, notes)


def test_a_peer_that_knows_no_notes_reads_the_rest() -> None:
    older = {name: fields.replace("; 109 notes StepNotes*", "") for name, fields in wire.MESSAGES.items()}
    assert older != wire.MESSAGES
    file = describe("tdbg/older.proto", "tdbg.older", older, {"TensorProto": GRAPH_PACKAGE})
    file.dependency.append("tdbg/graph.proto")
    add_file(pool(), file)
    sent = metadata(Process(Identity("some"), "s", "h", 1, ""), 3, notes=[(3, {"loss": 0.5})])
    received = message_class("Metadata", "tdbg.older").FromString(sent.SerializeToString())
    assert (received.step, received.session) == (3, b"s")
    assert notes_of(wire.message("Metadata").FromString(received.SerializeToString())) == [(3, {"loss": 0.5})]


@given(st.binary(max_size=200))
def test_a_line_that_is_none_is_none(line: bytes) -> None:
    found = notes_of_line(line)
    assert found is None or isinstance(found[0], int)


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "{}",
        '{"step": 1}',
        '{"step": true, "notes": {}}',
        '{"step": -1, "notes": {}}',
        '{"step": 1e400, "notes": {}}',
        '{"step": 99999999999999999999, "notes": {}}',
        '{"step": 1, "notes": []}',
        "[" * 50_000,
        '{"step": 1, "notes": {"x": 1',
    ],
)
def test_lines_of_other_things_are_no_notes(line: str) -> None:
    assert notes_of_line(line.encode()) is None


def test_values_of_other_kinds_are_left_out_of_a_line() -> None:
    line = b'{"step": 1, "notes": {"a": null, "b": [1], "c": {"float": "x"}, "d": {"float": "-inf"}, "": 1}}'
    assert notes_of_line(line) == (1, {"d": -math.inf})


def test_names_texts_and_their_number_have_limits() -> None:
    found = limited({f"{'n' * 50}{number}" if number < 2 else str(number): "t" * 500 for number in range(99)}.items())
    assert len(found) == MOST_NOTES
    assert {len(name) for name in found} == {LONGEST_NAME, 1, 2}
    assert {len(str(text)) for text in found.values()} == {LONGEST_TEXT}


def test_integers_that_nobody_can_send_become_reals() -> None:
    assert limited([("a", 2**63), ("b", -(2**63)), ("c", 10**400)]) == {"a": 2.0**63, "b": -(2**63), "c": math.inf}


def test_a_writer_and_a_reader_agree(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, rank=1)
    writer.notes([(-1, {"x": 1}), (0, {"loss": math.nan, "lr": 1e-4}), (1, {}), (2, {"phase": "warm-up", "amp": True})])
    notes, wrong = read_notes(tmp_path / "rank_1" / NOTES_FILE)
    assert not wrong
    assert [step for step, _ in notes.all()] == [0, 2]
    assert notes.names() == ["loss", "lr", "phase", "amp"]
    assert notes.curves() == ["loss", "lr", "amp"]
    assert notes.curve("lr") == ([0], [1e-4])
    first = (tmp_path / "rank_1" / NOTES_FILE).read_text(encoding="utf-8").splitlines()[0]
    assert json.loads(first)["notes"]["loss"] == {"float": "nan"}


def test_lines_that_are_no_notes_are_counted(tmp_path: Path) -> None:
    path = tmp_path / NOTES_FILE
    path.write_bytes(notes_line(1, {"a": 1}).encode() + b"nonsense\n\n" + b"x" * 3 * LINE_LIMIT + b"\n" + b'{"step": 2')
    notes, wrong = read_notes(path)
    assert notes.all() == [(1, {"a": 1})]
    assert wrong == 3


def test_a_pipe_in_place_of_the_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NOTES_FILE)
    with pytest.raises(NotRegularError):
        read_notes(tmp_path / NOTES_FILE)


def test_only_so_many_notes_are_kept() -> None:
    step = {str(number): number for number in range(MOST_NOTES)}
    notes = RunNotes((number, step) for number in range(MOST_KEPT // MOST_NOTES + 10))
    assert len(notes) == MOST_KEPT // MOST_NOTES
    assert notes.all()[0][0] == 10


def test_notes_of_a_step_add_up() -> None:
    notes = RunNotes([(1, {"a": 1, "b": 2})])
    edition = notes.edition
    notes.add([(1, {"b": 3, "c": 4})])
    assert notes.at(1) == {"a": 1, "b": 3, "c": 4}
    assert notes.edition != edition
    assert notes.at(5) == {}
