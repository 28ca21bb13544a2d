"""The flight recorder: what went before a hit or an exception is written as a dump that every command reads."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.live.client.debugger import Debugger, run, watch
from tests.live.client.ending import BAD, STATUS
from tests.live.client.training import Network
from tests.patience import PATIENCE
from tui_debugger.errors import BadWatchpointError, TdbgError
from tui_debugger.live.client import Flight, Recorder
from tui_debugger.live.client.flight import LINE, REASON, ROW_BYTES, FlightRecorder, FlightRow, _begin, _finish
from tui_debugger.live.client.judging import ClientJudge
from tui_debugger.live.client.probe import Identity
from tui_debugger.live.client.recorded import measure, meta_of
from tui_debugger.live.dump_writer import DumpWriter
from tui_debugger.model import Category, Side, TensorKey, TensorStats
from tui_debugger.session.session import Session, open_dump
from tui_debugger.stats.records import RequiredStats

KEPT, WITH_VALUES = 4, 2
NAN = ("TO",)
"""Only NaN and Inf count."""


class Trained:
    """A training whose learning rate is far too high, and what is known of it from outside."""

    def __init__(self, directory: Path) -> None:
        flight = Flight(str(directory), steps=KEPT, tensor_steps=WITH_VALUES, watch=NAN)
        recorder = Recorder("", flight=flight)
        network = Network(rate=3.0)
        self.stats: list[Mapping[str, TensorStats | None]] = []
        self.weights: list[np.ndarray] = []
        for _ in range(60):
            network.step(recorder)
            held = recorder._recordings.held
            self.stats.append({name: each.record.stats for name, each in held.items() if each.record})
            self.weights.append(network.w1.copy())
            recorder.step()
        self.path = min(directory.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        self.bad = next(step for step, all_ in enumerate(self.stats) if any(s and s.bad for s in all_.values()))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("flights"))


@pytest.fixture
def opened(trained: Trained) -> Iterator[Session]:
    with closing(open_dump(trained.path, remember=False)) as session:
        session.open()
        yield session


def test_dump_ends_with_the_step_that_hit(trained: Trained, opened: Session) -> None:
    assert list(opened.ranks()) == [0]
    assert list(opened.steps(0)) == list(range(trained.bad - KEPT + 1, trained.bad + 1))
    assert f"at step {trained.bad}" in (trained.path / REASON).read_text()
    assert opened.info.notices == ()


def test_statistics_of_every_tensor_are_those_of_the_training(trained: Trained, opened: Session) -> None:
    nodes = opened.nodes(0)
    for step in opened.steps(0):
        found = {}
        for row in range(len(nodes)):
            for each in opened.measure([line for line in opened.tensor_rows(0, step, row) if line.role == "out"]):
                found[nodes.names[row]] = each.stats
        for name, stats in trained.stats[step].items():
            assert stats is not None
            read = found[name]
            assert read is not None, (step, name)
            for field in ("count", "nan", "pos_inf", "neg_inf", "zero", "negative", "positive", "minimum", "maximum"):
                assert getattr(read, field) == getattr(stats, field), (step, name, field)
            assert stats.mean is None or read.mean == pytest.approx(stats.mean, rel=1e-12)


def test_values_of_the_last_steps_are_there(trained: Trained, opened: Session) -> None:
    for step in list(opened.steps(0))[-WITH_VALUES:]:
        key = TensorKey(0, "kernel_graph_0", "fc1.weight", Side.OUTPUT, 0, step)
        np.testing.assert_array_equal(opened.read(key), trained.weights[step])


def test_categories_and_inputs_come_along(opened: Session) -> None:
    nodes = opened.nodes(0)
    assert nodes.category_of(nodes.find("fc1.weight")) is Category.WEIGHT
    assert nodes.category_of(nodes.find("fc1/relu")) is Category.ACTIVATION
    assert nodes.category_of(nodes.find("Gradients/fc1.weight")) is Category.GRADIENT
    assert nodes.inputs(nodes.find("fc1/relu")) == [(nodes.find("fc1/matmul"), 0)]


def test_a_check_of_the_dump_finds_the_same(trained: Trained, opened: Session) -> None:
    opened.add_recommended()
    result = opened.check(opened.pairs())
    overflow = {hit.key.step for hit in result.hits for each in hit.results if each.condition == "tensor_overflow"}
    assert overflow == {trained.bad}


@pytest.mark.parametrize("watch", [None, ["recommended"]])
def test_nan_and_inf_are_the_default_and_the_recommended_watchpoints_may_be_added(
    tmp_path: Path, watch: list[str] | None
) -> None:
    recorder = Recorder("", flight=Flight(str(tmp_path), steps=3, watch=watch))
    weight = np.ones(10, np.float32)
    for step in range(6):
        recorder.record("w", weight, kind="weight")
        recorder.record("h", np.zeros(5) if step == 3 else np.full(5, np.inf if step == 5 else 1.0), kind="relu")
        weight = weight * 1.01
        recorder.step()
    reasons = sorted((path / REASON).read_text() for path in tmp_path.iterdir())
    assert reasons == [*(["AR hit on h at step 3\n"] if watch else []), "TO hit on h at step 5\n"]


def test_a_weight_that_stands_still_is_found_from_the_second_step_on(tmp_path: Path) -> None:
    recorder = Recorder("", flight=Flight(str(tmp_path), watch=["WNC"]))
    for _ in range(2):
        recorder.record("w", np.arange(10.0), kind="weight")
        assert not list(tmp_path.iterdir())
        recorder.step()
    (path,) = tmp_path.iterdir()
    assert "WNC hit on w at step 1" in (path / REASON).read_text()


def test_nan_that_keeps_a_condition_from_being_judged_is_a_reason_as_nan(tmp_path: Path) -> None:
    recorder = Recorder("", flight=Flight(str(tmp_path), watch=["WNC"]))
    recorder.record("w", np.full(10, np.nan), kind="weight")
    recorder.step()
    (path,) = tmp_path.iterdir()
    assert (path / REASON).read_text() == "TO hit on w at step 0\n"


def test_where_nan_and_inf_count_can_be_said(tmp_path: Path) -> None:
    recorder = Recorder("", flight=Flight(str(tmp_path), watch=["TO @ category=weight", "WNC"]))
    recorder.record("mask", np.array([0, -np.inf]))
    recorder.step()
    assert not list(tmp_path.iterdir())
    recorder.record("w", np.full(10, np.nan), kind="weight")
    recorder.step()
    (path,) = tmp_path.iterdir()
    assert "hit on w at step 1" in (path / REASON).read_text()


@pytest.mark.parametrize("form", ["around the loop", "one step"])
def test_an_exception_is_a_reason_too(tmp_path: Path, form: str) -> None:
    def train() -> None:
        with Recorder("", flight=Flight(str(tmp_path), watch=NAN)) as recorder:
            for step in range(3):
                if form == "one step":
                    with recorder.step():
                        recorder.record("x", np.ones(3) * step)
                        assert step < 2, "no good"
                else:
                    recorder.record("x", np.ones(3) * step)
                    assert step < 2, "no good"
                    recorder.step()

    with pytest.raises(AssertionError):
        train()
    (path,) = tmp_path.iterdir()
    assert "AssertionError: no good" in (path / REASON).read_text()
    with closing(open_dump(path, remember=False)) as session:
        session.open()
        assert list(session.steps(0)) == [0, 1, 2]  # the step that it happened in as far as it came


def test_the_end_of_a_training_is_no_reason(tmp_path: Path) -> None:
    def train() -> None:
        with Recorder("", flight=Flight(str(tmp_path))) as recorder:
            recorder.record("x", np.ones(3))
            recorder.step()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train()
    assert not list(tmp_path.iterdir())


def test_nothing_is_written_of_what_an_attached_debugger_watches(tmp_path: Path) -> None:
    def train() -> None:
        recorder = Recorder(debugger.address, flight=Flight(str(tmp_path / "flights"), watch=NAN))
        for _ in range(2):
            recorder.record("x", np.full(3, np.nan))
            recorder.step()
        recorder.close()

    with Debugger() as debugger:
        thread = threading.Thread(target=train)
        thread.start()
        debugger.stop(watch(1, 13, ["x"]), run())
        debugger.stop(run())
        debugger.stop(run())
        thread.join()
    assert not list(tmp_path.glob("flights/*"))


def _row(name: str, size: int) -> FlightRow:
    values = np.ones(size, np.uint8)
    return FlightRow(name, meta_of(values), measure(values, RequiredStats()).stats, values)


def _recorder(flight: Flight) -> FlightRecorder:
    return FlightRecorder(flight, Identity("test"))


def test_memory_is_bounded(tmp_path: Path) -> None:
    recorder = _recorder(Flight(str(tmp_path), steps=1000, tensor_steps=1000, memory=100_000))
    for step in range(50):
        recorder.keep(step, [_row("a", 10_000), _row("b", 100)])
        assert recorder._nbytes <= 100_000
        assert recorder._nbytes == sum(kept.nbytes for kept in recorder._ring)
    assert list(recorder.steps) == list(range(42, 50))


def test_a_step_that_is_too_much_by_itself_loses_its_values_first(tmp_path: Path) -> None:
    recorder = _recorder(Flight(str(tmp_path), steps=10, tensor_steps=10, memory=10 * ROW_BYTES))
    recorder.keep(0, [_row("a", 1_000_000), _row("b", 10)])
    assert [row.values is None for row in recorder._ring[0].rows] == [True, False]
    recorder.keep(1, [_row(f"n{number}", 1) for number in range(1000)])
    assert recorder._nbytes <= 10 * ROW_BYTES
    assert len(recorder._ring) == 1


def test_the_number_of_dumps_is_bounded_and_events_do_not_repeat(tmp_path: Path) -> None:
    recorder = Recorder("", flight=Flight(str(tmp_path), steps=3, dumps=2, watch=NAN))
    for step in range(40):
        for number in range(4):  # one more goes wrong every five steps
            recorder.record(f"x{number}", np.full(3, np.nan if step >= 5 * (number + 1) else 1.0))
        recorder.step()
    names = sorted(path.name.split("-")[2] for path in tmp_path.iterdir())
    assert names == ["step10", "step5"]


def test_a_nan_is_written_at_once_whatever_was_written_before(tmp_path: Path) -> None:
    recorder = Recorder("", flight=Flight(str(tmp_path), steps=5, watch=NAN))
    for step in range(12):
        recorder.record("a", np.full(3, np.nan if step >= 2 else 1.0))
        recorder.record("b", np.full(3, np.nan if step == 4 else 1.0))  # once only
        recorder.step()
    reasons = sorted((path / REASON).read_text() for path in tmp_path.iterdir())
    assert reasons == ["TO hit on a at step 2\n", "TO hit on b and 1 more at step 4\n"]
    names = sorted(path.name.split("-")[2] for path in tmp_path.iterdir())
    assert names == ["step2", "step4"]


def test_disk_is_bounded(tmp_path: Path) -> None:
    recorder = Recorder("", flight=Flight(str(tmp_path), steps=3, tensor_steps=3, disk=200_000, watch=NAN))
    for step in range(4):
        recorder.record("a", np.full(10_000, np.nan if step == 3 else 1.0))
        recorder.step()
    (path,) = tmp_path.iterdir()
    values = sorted(path.rglob("*.npy"))
    assert [file.parent.name for file in values] == ["2", "3"]  # the newest ones
    assert len(list(path.rglob("statistic.csv"))) == 3


@pytest.mark.parametrize(
    ("limits", "steps", "said"),
    [
        ({}, ["0", "1", "2"], ""),
        ({"disk": 4 * LINE}, ["1", "2"], ", without 1 older step (disk=1,000)"),
        ({"memory": 100}, ["2"], ", without 1 tensor of step 2 (memory=100)"),
    ],
)
def test_what_is_said_of_a_dump_is_what_is_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], limits: dict[str, int], steps: list[str], said: str
) -> None:
    recorder = Recorder("", flight=Flight(str(tmp_path), tensor_steps=3, watch=NAN, **limits))
    for step in range(3):
        recorder.record("a", np.ones(1000))
        recorder.record("b", np.full(1000, np.nan if step == 2 else 1.0), inputs=["a"])
        recorder.step()
    (path,) = tmp_path.iterdir()
    written = sorted(path.rglob("statistic.csv"))
    assert [file.parent.name for file in written] == steps
    assert "b" in written[-1].read_text(), "what went bad is never left out"
    count = "step is" if len(steps) == 1 else f"{len(steps)} steps are"
    assert capsys.readouterr().err == f"tdbg: TO hit on b at step 2: the last {count} in {path}{said}\n"
    assert ("statistics only" in (path / REASON).read_text()) == ("disk" in limits)
    assert ("no memory for 1 tensor of step 2" in (path / REASON).read_text()) == ("memory" in limits)


def test_disk_is_bounded_by_statistics_too(tmp_path: Path) -> None:
    recorder = Recorder("", flight=Flight(str(tmp_path), steps=10, disk=4 * LINE, watch=NAN))
    for step in range(8):
        recorder.record("a", np.full(3, np.nan if step == 7 else 1.0))
        recorder.record("b", np.ones(3))
        recorder.step()
    (path,) = tmp_path.iterdir()
    assert sorted(file.parent.name for file in path.rglob("statistic.csv")) == ["6", "7"]


def test_two_recorders_of_one_process_do_not_overwrite_each_other(tmp_path: Path) -> None:
    for _ in range(2):
        recorder = Recorder("", flight=Flight(str(tmp_path), watch=NAN))
        recorder.record("a", np.full(3, np.nan))
        recorder.step()
    assert len(list(tmp_path.iterdir())) == 2


def test_graph_is_looked_at_when_there_are_new_names_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = []
    know = FlightRecorder.know

    def counted(self: FlightRecorder, graphs: Sequence[bytes]) -> ClientJudge:
        known.append(len(graphs))
        return know(self, graphs)

    monkeypatch.setattr(FlightRecorder, "know", counted)
    recorder = Recorder("", flight=Flight(str(tmp_path), watch=NAN))
    for step in range(6):
        recorder.record("a", np.ones(3))
        if step >= 3:
            recorder.record("late", np.full(3, np.nan if step == 5 else 1.0))
        recorder.step()
    assert len(known) == 2
    (path,) = tmp_path.iterdir()
    assert "late" in (path / REASON).read_text()


# -- a dump that cannot be written -------------------------------------------------------------------------


def _one_more(recorder: Recorder, step: int, bad: int) -> None:
    """A step; in every other one from step ``bad`` on one more tensor goes bad."""
    for number in range(4):
        recorder.record(f"x{number}", np.full(3, np.nan if step >= bad + 2 * number else 1.0))
    recorder.step()


def test_a_place_that_cannot_be_written_to_hurts_nothing_and_what_is_lost_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    recorder = Recorder("", flight=Flight(str(tmp_path / "file"), watch=NAN))
    for step in range(10):
        _one_more(recorder, step, bad=1)
    recorder.close()
    *lines, last = capsys.readouterr().err.splitlines()
    assert len(lines) == 4  # a line for each finding
    assert all("not written (FileExistsError" in line for line in lines)
    assert "4 dumps of the flight recorder could not be written, the first one: TO hit on x0 at step 1" in last


def test_the_next_finding_is_written_when_the_place_is_there_again(tmp_path: Path) -> None:
    place = tmp_path / "flights"
    place.write_text("")
    recorder = Recorder("", flight=Flight(str(place), steps=2, watch=NAN))
    for step in range(8):
        if step == 6:
            place.unlink()
        _one_more(recorder, step, bad=2)
    (dump,) = place.iterdir()
    lines = (dump / REASON).read_text().splitlines()
    assert lines[0] == "TO hit on x2 and 2 more at step 6"
    assert "2 dumps of the flight recorder could not be written, the first one: TO hit on x0 at step 2" in lines[-1]


def test_a_dump_is_tried_again_while_its_steps_are_there_without_another_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "flights"
    place.write_text("")
    recorder = Recorder("", flight=Flight(str(place), steps=10, watch=NAN))
    for step in range(8):
        if step == 3:
            place.unlink()
        recorder.record("x", np.full(3, np.nan if step >= 2 else 1.0))
        recorder.step()
    recorder.close()
    (dump,) = place.iterdir()
    assert (dump / REASON).read_text().splitlines()[0] == "TO hit on x at step 2"  # which is in the dump
    assert "could not be written" not in capsys.readouterr().err


def test_a_program_that_changes_its_directory_changes_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recorder = Recorder("", flight=Flight("flights", watch=NAN))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    recorder.record("x", np.full(2, np.nan))
    recorder.step()
    assert _reasons(tmp_path / "flights") == ["TO hit on x at step 0"]


def test_a_directory_that_vanishes_is_made_again(tmp_path: Path) -> None:
    place = tmp_path / "flights"
    recorder = Recorder("", flight=Flight(str(place), watch=NAN))
    for step in range(6):
        _one_more(recorder, step, bad=1)
        if step == 1:
            shutil.rmtree(place)
    assert _reasons(place) == ["TO hit on x1 and 1 more at step 3", "TO hit on x2 and 2 more at step 5"]


def test_a_disk_that_fills_up_while_a_dump_is_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    recorder = Recorder("", flight=Flight(str(tmp_path), dumps=2, watch=NAN))
    for step in range(6):
        with monkeypatch.context() as patched:
            if step < 5:
                patched.setattr(DumpWriter, "statistics", full)
            _one_more(recorder, step, bad=1)
        assert len(list(tmp_path.iterdir())) == (step == 5)
    (dump,) = tmp_path.iterdir()
    assert (dump / REASON).read_text().splitlines() == [
        "TO hit on x2 and 2 more at step 5",
        "TO hit on x1 and 1 more at step 3",
        "TO hit on x0 at step 1",
    ]


def test_half_of_what_is_free_is_left_to_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100_000))
    recorder = Recorder("", flight=Flight(str(tmp_path), steps=3, tensor_steps=3, watch=NAN))
    for step in range(4):
        recorder.record("a", np.full(4_000, np.nan if step == 3 else 1.0))
        recorder.step()
    (dump,) = tmp_path.iterdir()
    assert [file.parent.name for file in dump.rglob("*.npy")] == ["3"]
    assert len(list(dump.rglob("statistic.csv"))) == 3


def test_a_step_that_cannot_be_taken_in_is_counted_and_the_next_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = FlightRecorder.keep

    def no_memory(self: FlightRecorder, step: int, rows: Sequence[FlightRow], **options: Any) -> None:
        if step == 1:
            raise MemoryError
        keep(self, step, rows, **options)

    monkeypatch.setattr(FlightRecorder, "keep", no_memory)
    recorder = Recorder("", flight=Flight(str(tmp_path), watch=NAN))
    for step in range(4):
        recorder.record("a", np.full(3, np.nan if step == 3 else 1.0))
        recorder.step()
    (dump,) = tmp_path.iterdir()
    lines = (dump / REASON).read_text().splitlines()
    assert lines == ["TO hit on a at step 3", "1 step could not be taken in, the first one was step 1 (MemoryError)"]


def test_wrong_settings_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadWatchpointError):
        Recorder("", flight=Flight(str(tmp_path), watch=["nonsense"]))
    with pytest.raises(TdbgError, match="cannot keep"):
        Flight(str(tmp_path), steps=0)


# -- what waits is written when the program ends, however it does ------------------------------------------


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, list[Path]]]:
    """Exit status, standard error and dumps of real processes, by how they ended."""
    places = {how: tmp_path_factory.mktemp("ended") for how in STATUS}
    processes = {
        how: subprocess.Popen(
            [sys.executable, "-m", "tests.live.client.ending", how, str(place)], stderr=subprocess.PIPE, text=True
        )
        for how, place in places.items()
    }
    errors = {how: process.communicate(timeout=PATIENCE)[1] for how, process in processes.items()}
    return {how: (processes[how].returncode, errors[how], sorted(places[how].iterdir())) for how in STATUS}


@pytest.mark.parametrize("how", STATUS)
def test_the_step_in_which_a_program_ends_is_in_the_dump_and_it_ends_as_it_would_have(
    ended: dict[str, tuple[int, str, list[Path]]], how: str
) -> None:
    status, errors, dumps = ended[how]
    assert status == STATUS[how], errors
    (dump,) = dumps
    assert str(dump) in errors
    lines = (dump / REASON).read_text().splitlines()
    assert lines[0] == f"TO hit on h at step {BAD}"  # nothing about the weight, which was not updated yet
    assert ("did not come to its end" in "".join(lines)) == (
        how not in ("caught", "handler that goes on", "ignored", "fork")
    )
    assert ("ValueError: the loss is no number" in lines[-1]) == (how in ("raise", "in a thread"))
    with closing(open_dump(dump, remember=False)) as session:
        session.open()
        assert list(session.steps(0)) == [BAD - 2, BAD - 1, BAD]
        for name, value in (("h", np.full(4, np.nan)), ("x", np.ones(4) * BAD)):
            key = TensorKey(0, "kernel_graph_0", name, Side.OUTPUT, 0, BAD)
            np.testing.assert_array_equal(session.read(key), value)


def test_the_origin_of_a_dump_is_found(ended: dict[str, tuple[int, str, list[Path]]]) -> None:
    for how in ("exit", "fork"):
        command = [sys.executable, "-m", "tui_debugger", "origin", str(ended[how][2][0])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert f"origin: rank 0, step {BAD}  (Log)" in done.stdout
        assert "its inputs are clean" in done.stdout


def _reasons(directory: Path) -> list[str]:
    return sorted((path / REASON).read_text().splitlines()[0] for path in directory.iterdir())


def test_softer_hits_wait_and_are_written_at_the_end_and_never_take_the_place_of_a_nan(tmp_path: Path) -> None:
    recorder = Recorder("", flight=Flight(str(tmp_path), steps=4, dumps=2, watch=["WNC", "TZ @ node=z"]))
    for step in range(8):
        recorder.record("w", np.ones(3), kind="weight")
        recorder.record("z", np.zeros(3) if step == 2 else np.ones(3))
        recorder.record("x", np.full(3, np.nan if step == 7 else 1.0))
        recorder.step()
        written = [] if step < 1 else ["WNC hit on w at step 1"]
        assert _reasons(tmp_path) == (written if step < 7 else ["TO hit on x at step 7", *written])
    recorder.close()
    last = max(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    assert "TZ hit on z at step 2" in (last / REASON).read_text()


def test_what_waits_is_written_when_the_training_ends(tmp_path: Path) -> None:
    with Recorder("", flight=Flight(str(tmp_path), steps=10, watch=["WNC", "TZ @ node=z"])) as recorder:
        for step in range(4):
            recorder.record("w", np.ones(3), kind="weight")
            recorder.record("z", np.zeros(3) if step == 3 else np.ones(3))
            recorder.step()
    assert _reasons(tmp_path) == ["TZ hit on z at step 3", "WNC hit on w at step 1"]


def test_the_only_dump_is_for_a_nan_until_the_end(tmp_path: Path) -> None:
    with Recorder("", flight=Flight(str(tmp_path), dumps=1, watch=["WNC"])) as recorder:
        for _ in range(3):
            recorder.record("w", np.ones(3), kind="weight")
            recorder.step()
            assert not list(tmp_path.iterdir())
    assert _reasons(tmp_path) == ["WNC hit on w at step 1"]


def test_one_event_is_one_dump_and_another_one_is_another(tmp_path: Path) -> None:
    recorder = Recorder("", flight=Flight(str(tmp_path), steps=3))
    weight = np.ones(3)
    for step in range(12):
        recorder.record("mask", np.array([0, -np.inf]))  # by intent, from the first step on
        recorder.record("x", np.ones(3))
        recorder.record("h", weight * (np.nan if step == 4 else 1.0), inputs=("x", "w"))
        recorder.record("out", np.ones(3) if step < 9 else np.full(3, np.inf), inputs=("x",))
        recorder.record("w", np.full(3, np.nan) if step >= 4 else weight, kind="gradient")
        weight = weight + (np.nan if step >= 4 else 1.0)
        recorder.record("w", weight, kind="weight")
        recorder.step()
    assert _reasons(tmp_path) == [
        "TO hit on h and 3 more at step 4",
        "TO hit on mask at step 0",
        "TO hit on out and 4 more at step 9",
    ]


def test_a_nan_in_the_earlier_of_two_records_of_a_name_is_found(tmp_path: Path) -> None:
    recorder = Recorder("", flight=Flight(str(tmp_path)))
    for step in range(3):
        for part in range(3):
            recorder.record("x", np.full(3, np.nan if (step, part) == (1, 0) else part))
        recorder.step()
    (dump,) = tmp_path.iterdir()
    assert (dump / REASON).read_text().startswith("TO hit on x at step 1")
    with closing(open_dump(dump, remember=False)) as session:
        session.open()
        session.add_recommended()
        assert {hit.key.step for hit in session.check(session.pairs()).hits} == {1}
        assert np.isnan(session.read(TensorKey(0, "kernel_graph_0", "x", Side.OUTPUT, 0, 1))).all()


class OnDevice:
    """An array that does not convert."""

    def __array__(self, *_: object, **__: object) -> object:
        msg = "it is on a device"
        raise TypeError(msg)


def test_what_could_not_be_recorded_or_kept_is_said_in_the_dump(tmp_path: Path) -> None:
    recorder = Recorder("", flight=Flight(str(tmp_path)))
    recorder.record("thing", OnDevice())
    recorder.record("x", np.full(3 << 20, np.nan))
    recorder.step()
    (dump,) = tmp_path.iterdir()
    _, values, lost = (dump / REASON).read_text().splitlines()
    assert values.startswith("statistics only, the values were changed in place, not held any more or too large: x")
    assert lost.startswith("not recorded: 1 tensors that could not be converted to NumPy")


def test_two_processes_that_write_at_the_same_place_do_not_meet(tmp_path: Path) -> None:
    first, second = (_begin(tmp_path, "flight-rank0-step0-1") for _ in range(2))
    assert first != second
    third = _begin(tmp_path, "flight-rank0-step0-1")
    (third.with_name("flight-rank0-step0-1") / "of another process").mkdir(parents=True)
    for part in (first, second, third):
        (part / REASON).write_text("")
    assert len({_finish(part) for part in (first, second, third)}) == 3
