"""A recorder in a process that was forked: what it records there is counted, and its flight recorder is its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.live.client.debugger import Debugger, run
from tests.live.client.processes import Process
from tui_debugger.live.client import Flight, Recorder
from tui_debugger.live.client.flight import REASON
from tui_debugger.live.client.forked import FORKED, ForkedCounts


@pytest.fixture
def debugger() -> Iterator[Debugger]:
    with Debugger() as server:
        yield server


@pytest.mark.parametrize("records", [True, False])
def test_what_a_forked_process_records_is_counted_and_said(debugger: Debugger, records: bool) -> None:
    host, _, port = debugger.address.rpartition(":")
    arguments = ["records"] if records else []
    with Process(
        "tests.live.client.forking", *arguments, environment={"TDBG_HOST": host, "TDBG_PORT": port}
    ) as process:
        stops = [debugger.stop(run()) for _ in range(3)]
        assert process.until("trained") == ["child off", "child ended with 0", "trained"]
        status, errors = process.finish()
    assert status == 0
    assert [list(stop.unrecorded) for stop in stops[:2]] == [[], []]
    lost = [(each.what, each.count, each.example, each.step) for each in debugger.done().unrecorded]
    assert lost == ([(FORKED.encode(), 3, b"of a child", 1)] if records else [])
    said = [line for line in errors if not line.startswith("tdbg: attached")]
    assert len(said) == records
    assert not records or "a forked process is not seen by the debugger" in said[0]


def test_a_forked_process_has_a_flight_recorder_of_its_own(tmp_path: Path) -> None:
    with Process("tests.live.client.forking", "records", str(tmp_path)) as process:
        assert process.until("trained")[-2] == "child ended with 0"
        process.finish()
    (dump,) = tmp_path.iterdir()
    assert not dump.name.endswith(f"-{process.popen.pid}")  # it is the child's
    assert (dump / REASON).read_text() == "TO hit on of a child at step 2\n"


def _in_child(recorder: Recorder) -> None:
    recorder.record("x", np.full(2, np.nan))
    with recorder.step():
        recorder.record("x", np.ones(2))
    recorder.note(loss=1.0)
    recorder.begin()
    recorder.close()


def test_a_recorder_without_an_address_does_nothing_in_a_forked_process(tmp_path: Path) -> None:
    off, flying = Recorder(""), Recorder("", flight=Flight(str(tmp_path)))
    flying.record("bad", np.full(2, np.nan))
    pid = os.fork()
    if not pid:
        try:
            _in_child(off)
            flying.close()  # what its parent has recorded is its parent's
        finally:
            os._exit(0 if not list(tmp_path.iterdir()) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    flying.close()
    assert len(list(tmp_path.iterdir())) == 1


def test_counts_of_several_processes_are_added() -> None:
    counts = ForkedCounts()
    assert counts.all() == ()
    for number in range(3):
        pid = os.fork()
        if not pid:
            counts.add("ä" * 100, 5 - number)
            os._exit(0)
        os.waitpid(pid, 0)
    (lost,) = counts.all()
    assert (lost.what, lost.count, lost.step) == (FORKED, 3, 3)
    assert lost.example == "ä" * 24
