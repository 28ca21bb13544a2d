"""A training loop that shows its values through a ``Recorder``, seen from the debugger."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.live.client.debugger import Debugger, run, unwatch, view, watch
from tests.live.client.recorded_values import LAYERS, LEAVES, NAN, OTHERS, UNREADABLE, Nameless
from tests.live.client.training import Network
from tests.patience import PATIENCE
from tui_debugger.graph.build import build_table
from tui_debugger.graph.messages import parse_graph
from tui_debugger.graph.table import NodeTable
from tui_debugger.live import wire
from tui_debugger.live.client import Recorder, TrainingTerminated
from tui_debugger.live.client.recorded import NOT_ANNOUNCED
from tui_debugger.live.client.unpacking import name_text
from tui_debugger.model import Category, ErrorBits

OVERFLOW, TOO_LARGE, CHANGED = 13, 15, 18


class Loop:
    """A training in a thread of its own; what it raised is seen at the end."""

    def __init__(self, train: Callable[[], None]) -> None:
        self._outcome: queue.Queue[BaseException | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, args=(train,), daemon=True)
        self._thread.start()

    def _run(self, train: Callable[[], None]) -> None:
        try:
            train()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self._outcome.put(error)
        else:
            self._outcome.put(None)

    def end(self) -> BaseException | None:
        """Waits for its end."""
        return self._outcome.get(timeout=PATIENCE)


@pytest.fixture
def debugger() -> Iterator[Debugger]:
    with Debugger() as server:
        yield server


def _network(debugger: Debugger, steps: int, **options: Any) -> Loop:
    def train() -> None:
        recorder = Recorder(debugger.address, **options)
        network = Network(rate=0.01)
        for _ in range(steps):
            network.step(recorder)
            recorder.step()
        recorder.close()

    return Loop(train)


def _graphs(debugger: Debugger) -> list[NodeTable]:
    """Every graph that was sent."""
    sent = [chunks for name, chunks in debugger.calls if name == "SendGraph"]
    return [build_table([parse_graph(b"".join(chunk.buffer for chunk in chunks))]) for chunks in sent]


def test_order_of_calls_is_that_of_mindspores_client(debugger: Debugger) -> None:
    loop = _network(debugger, 2)
    debugger.stop(watch(1, OVERFLOW, ["loss"]), run())
    debugger.stop(run())
    debugger.stop(run())
    debugger.done()
    assert loop.end() is None
    names = [name for name, _ in debugger.calls]
    assert names == ["SendMetadata", "SendGraph", *4 * ["WaitCMD"], "SendMetadata"]
    assert debugger.heart[0].message == b"Debugger is alive"
    assert debugger.heart[0].period == 30


def test_it_says_who_it_is(debugger: Debugger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TDBG_TOKEN", "secret")
    loop = _network(debugger, 1, rank=3, world_size=8, program="Some 1.0", device="5", backend="GPU")
    stop = debugger.stop(run())
    debugger.stop(run())
    assert loop.end() is None
    first = debugger.calls[0][1]
    assert (first.ms_version, first.graph_num, first.device_name, first.backend) == (b"2.3.0", 1, b"5:0", b"GPU")
    assert (first.rank, first.world_size) == (3, 8)
    assert first.client.startswith(b"Some 1.0 (tdbg ")
    assert first.features == wire.FULL_STATISTICS | wire.RUNS_AHEAD | wire.OWN_CONDITIONS
    assert first.session == stop.session
    for header in debugger.headers.values():
        assert header == {"tdbg-session": stop.session.decode(), "tdbg-token": "secret"}


def test_steps_are_counted_and_the_end_is_said(debugger: Debugger) -> None:
    loop = _network(debugger, 3)
    assert [debugger.stop(run()).step for _ in range(4)] == [-1, 0, 1, 2]
    assert debugger.done().training_done
    assert loop.end() is None


def test_graph_is_made_of_the_names(debugger: Debugger) -> None:
    loop = _network(debugger, 1)
    debugger.stop(run())
    debugger.stop(run())
    assert loop.end() is None
    (nodes,) = _graphs(debugger)
    row = nodes.find
    assert nodes.category_of(row("fc1/relu")) is Category.ACTIVATION
    assert nodes.category_of(row("fc1.weight")) is Category.WEIGHT
    assert nodes.category_of(row("Gradients/fc1.weight")) is Category.GRADIENT
    assert nodes.category_of(row("loss")) is Category.OTHER
    assert nodes.inputs(row("fc1/matmul")) == [(row("input"), 0), (row("fc1.weight"), 0)]
    assert nodes.paths[row("fc1.weight")].startswith("fc1/")
    assert nodes.order[row("fc1/matmul")] < nodes.order[row("fc1/relu")] < nodes.order[row("loss")]


def test_names_that_come_later_are_told_at_the_end_of_their_step(debugger: Debugger) -> None:
    def train() -> None:
        recorder = Recorder(debugger.address)
        for step in range(3):
            recorder.record("a", np.ones(2))
            if step:
                recorder.record("late", np.full(2, np.nan))
            recorder.step()
        recorder.close()

    loop = Loop(train)
    debugger.stop(run())
    debugger.stop(watch(1, OVERFLOW, ["late"]), run())
    stop = debugger.stop(watch(1, OVERFLOW, ["late"]), run())
    (hit,) = debugger.answer("SendWatchpointHits")
    assert (stop.step, hit.tensor.node_name) == (1, b"late")
    debugger.stop(run())
    assert loop.end() is None
    assert [len(nodes) for nodes in _graphs(debugger)] == [1, 2]
    sessions = {message.session for name, message in debugger.calls if name == "SendMetadata"}
    assert len(sessions) == 1


@pytest.mark.parametrize("changes", [1, 101])
def test_new_names_are_told_a_hundred_times_however_many_there_are(debugger: Debugger, changes: int) -> None:
    def train() -> None:
        recorder = Recorder(debugger.address)
        for step in range(changes + 1):
            for number in range(150 + step):
                recorder.record(f"x{number}", np.ones(1))
            recorder.step()
        recorder.close()

    loop = Loop(train)
    debugger.stop(run())
    debugger.give(*[run()] * (changes + 1))
    assert loop.end() is None
    lost = [(each.what, each.count, each.example) for each in debugger.done().unrecorded]
    assert lost == ([] if changes == 1 else [(NOT_ANNOUNCED.encode(), 1, b"x250")])


def test_hits_come_with_parameters_type_and_full_statistics(debugger: Debugger) -> None:
    loop = _network(debugger, 2)
    debugger.stop(run())
    debugger.stop(watch(7, TOO_LARGE, ["loss", "fc1/relu"], abs_mean_gt=0.0, max_gt=1e9), run())
    stop = debugger.stop(run())
    first, second = debugger.answer("SendWatchpointHits")
    assert loop.end() is None
    assert stop.step == 1
    assert (first.tensor.node_name, second.tensor.node_name) == (b"fc1/relu", b"loss")  # order of execution
    assert (second.id, second.error_code, second.watch_condition.condition) == (7, 0, TOO_LARGE)
    over, under = second.watch_condition.params
    assert (over.name, over.hit, over.value) == (b"abs_mean_gt", True, 0.0)
    assert (under.name, under.hit, under.actual_value) == (b"max_gt", False, over.actual_value)
    assert (second.base.data_type, list(second.base.shape)) == (12, [])
    assert second.statistics.maximum == over.actual_value  # the loss is one number
    assert second.statistics.variance == 0.0


def test_nan_that_prevents_a_comparison_is_reported_as_an_error(debugger: Debugger) -> None:
    def train() -> None:
        recorder = Recorder(debugger.address)
        recorder.record("x", np.array([1.0, np.nan, np.inf]))
        recorder.step()

    loop = Loop(train)
    debugger.stop(run())
    debugger.stop(watch(1, TOO_LARGE, ["x"], max_gt=0.0), run(wire.LEVEL_RECHECK), run())
    (hit,) = debugger.answer("SendWatchpointHits")
    assert hit.error_code == ErrorBits.NAN | ErrorBits.INF
    assert not hit.watch_condition.params[0].HasField("actual_value")
    assert loop.end() is None


def test_changes_are_judged_from_the_first_step_after_the_watchpoint(debugger: Debugger) -> None:
    def train() -> None:
        recorder = Recorder(debugger.address)
        weight = np.ones(4)
        for _ in range(3):
            recorder.record("w", weight, kind="weight")
            recorder.step()
            weight *= 2  # in place: what was recorded must not change with it

    loop = Loop(train)
    debugger.stop(run())
    debugger.stop(watch(1, CHANGED, ["w"], abs_mean_update_ratio_gt=0.5), run(wire.LEVEL_RECHECK), run())
    debugger.stop(run())
    (hit,) = debugger.answer("SendWatchpointHits")  # none of the recheck: there was nothing to compare with
    assert hit.watch_condition.params[0].actual_value == pytest.approx(1.0)
    debugger.stop(unwatch(1), run())
    debugger.answer("SendWatchpointHits")
    assert loop.end() is None


def test_values_types_and_statistics_are_those_of_the_arrays(debugger: Debugger) -> None:
    values = np.arange(24, dtype=">i4").reshape(2, 3, 4).T  # neither little-endian nor in C order

    def train() -> None:
        recorder = Recorder(debugger.address)
        recorder.record("x", values)
        recorder.record("empty", np.zeros((0, 3), np.float16))
        recorder.step()

    loop = Loop(train)
    debugger.stop(view(wire.VALUE, "x"), view(wire.STATISTICS, "x"), run())
    assert not debugger.answer("SendTensors")[0].tensor_content  # no step has run yet
    assert debugger.answer("SendTensorStats")[0].statistics.count == 0
    debugger.stop(
        view(wire.VALUE, "x", "empty", "nowhere"),
        view(wire.BASE, "x", "nowhere"),
        view(wire.STATISTICS, "x", "nowhere"),
        run(),
    )
    whole, empty, missing = debugger.answer("SendTensors")
    assert list(whole.dims) == [4, 3, 2]
    np.testing.assert_array_equal(np.frombuffer(whole.tensor_content, "<i4").reshape(4, 3, 2), values)
    assert (whole.node_name, whole.slot, whole.iter, whole.data_type, whole.finished) == (b"x", b"0", b"", 4, True)
    assert (list(empty.dims), empty.data_type, empty.tensor_content, empty.finished) == ([0, 3], 10, b"", True)
    assert (missing.node_name, missing.HasField("data_type"), missing.finished) == (b"nowhere", False, True)
    base, no_base = debugger.answer("SendTensorBase")
    assert (base.data_type, list(base.shape), base.data_size) == (4, [4, 3, 2], 96)
    assert (no_base.data_type, list(no_base.shape), no_base.data_size) == (0, [0], 0)
    summary, nothing = debugger.answer("SendTensorStats")
    assert (summary.statistics.count, summary.statistics.zero_count, summary.statistics.mean) == (24, 1, 11.5)
    assert (nothing.tensor_base.data_type, nothing.statistics.count) == (0, 0)
    assert loop.end() is None


def test_big_values_come_in_chunks_of_three_mebibytes(debugger: Debugger) -> None:
    values = np.random.default_rng(0).integers(0, 255, 7 * (1 << 20) + 5, np.uint8)

    def train() -> None:
        recorder = Recorder(debugger.address)
        recorder.record("big", values)
        recorder.step()

    loop = Loop(train)
    debugger.stop(run())
    debugger.stop(view(wire.VALUE, "big"), run())
    chunks = debugger.answer("SendTensors")
    assert [len(chunk.tensor_content) for chunk in chunks] == [3 << 20, 3 << 20, (1 << 20) + 5]
    assert [chunk.finished for chunk in chunks] == [False, False, True]
    assert all(list(chunk.dims) == [values.size] and chunk.node_name == b"big" for chunk in chunks)
    assert b"".join(chunk.tensor_content for chunk in chunks) == values.tobytes()
    assert loop.end() is None


def test_previous_values_of_parameters_can_be_looked_at(debugger: Debugger) -> None:
    def train() -> None:
        recorder = Recorder(debugger.address)
        for step in range(2):
            recorder.record("w", np.full(2, float(step)), kind="weight")
            recorder.record("x", np.full(2, float(step)))
            recorder.step()

    loop = Loop(train)
    debugger.stop(run())
    debugger.stop(run())
    debugger.stop(view(wire.VALUE, "w", "x", previous=True), view(wire.STATISTICS, "w", previous=True), run())
    weight, other = debugger.answer("SendTensors")
    assert (weight.iter, np.frombuffer(weight.tensor_content).tolist()) == (b"prev", [0.0, 0.0])
    assert not other.tensor_content
    assert debugger.answer("SendTensorStats")[0].statistics.maximum == 0.0
    assert loop.end() is None


def test_names_are_found_behind_a_graphs_name_and_by_their_last_part(debugger: Debugger) -> None:
    loop = _network(debugger, 2)
    debugger.stop(run())
    debugger.stop(watch(1, TOO_LARGE, ["kernel_graph_0/loss", "somewhere/fc1.weight"], max_gt=-1e9), run())
    debugger.stop(run())
    names = [hit.tensor.node_name for hit in debugger.answer("SendWatchpointHits")]
    assert names == [b"loss", b"fc1.weight"]
    assert loop.end() is None


def test_initial_weights_can_be_looked_at_before_the_first_step(debugger: Debugger) -> None:
    def train() -> None:
        recorder = Recorder(debugger.address)
        recorder.record("w", np.zeros(4), kind="weight")
        recorder.begin()
        recorder.record("w", np.ones(4), kind="weight")
        recorder.step()

    loop = Loop(train)
    initialization = watch(1, 14, ["w"], zero_percentage_ge=100.0)
    stop = debugger.stop(initialization, run(wire.LEVEL_RECHECK), run())
    assert (stop.step, stop.cur_step) == (-1, 0)
    assert [hit.id for hit in debugger.answer("SendWatchpointHits")] == [1]
    assert debugger.stop(run()).step == 0
    assert loop.end() is None


def test_steps_may_be_blocks(debugger: Debugger) -> None:
    def train() -> None:
        recorder = Recorder(debugger.address)
        for step in range(3):
            with recorder.step():
                if step != 1:  # a step in which nothing is recorded is one as well
                    recorder.record("x", np.full(1, step))
        recorder.close()

    loop = Loop(train)
    assert [debugger.stop(run()).step for _ in range(4)] == [-1, 0, 1, 2]
    assert loop.end() is None


def test_steps_without_a_recording_count_in_the_other_form_too() -> None:
    recorder = Recorder("127.0.0.1:1", timeout=0.1)
    for step in range(4):
        if step == 2:
            recorder.record("x", np.ones(1))
        recorder.step()
    recorder.close()
    assert recorder.steps == 4


def test_exit_raises_in_the_training(debugger: Debugger) -> None:
    loop = _network(debugger, 5)
    debugger.stop(run())
    debugger.stop(run())
    command = run()
    command.Clear()
    command.exit = True
    debugger.stop(command)
    outcome = loop.end()
    assert isinstance(outcome, TrainingTerminated)
    assert isinstance(outcome, SystemExit)
    assert (outcome.code, outcome.step) == (0, 1)


def test_a_debugger_of_another_version_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with Debugger(matched=False) as server:
        assert _network(server, 3).end() is None
        assert [name for name, _ in server.calls] == ["SendMetadata"]
    assert "does not speak this version" in capsys.readouterr().err


def test_room_for_copies_is_bounded(debugger: Debugger) -> None:
    def train() -> None:
        recorder = Recorder(debugger.address, keep_bytes=1000)
        for _ in range(2):
            recorder.record("a", np.ones(100))
            recorder.record("b", np.full(100, np.nan))
            recorder.step()

    loop = Loop(train)
    debugger.stop(run())
    debugger.stop(watch(1, OVERFLOW, ["b"]), run())
    debugger.stop(view(wire.VALUE, "a", "b"), view(wire.STATISTICS, "b"), run())
    (hit,) = debugger.answer("SendWatchpointHits")  # judged although it was not kept
    assert hit.tensor.node_name == b"b"
    kept, not_kept = debugger.answer("SendTensors")
    assert len(kept.tensor_content) == 800
    assert not not_kept.HasField("data_type")
    assert debugger.answer("SendTensorStats")[0].statistics.nan_count == 100
    assert loop.end() is None


def test_what_does_not_convert_is_said_once_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    class OnDevice:
        def __array__(self, *_: Any, **__: Any) -> Any:
            msg = "it is on a device"
            raise TypeError(msg)

    recorder = Recorder("127.0.0.1:1", timeout=0.1)
    for _ in range(3):
        recorder.record("x", OnDevice())
        recorder.step()
    recorder.close()
    lines = [line for line in capsys.readouterr().err.splitlines() if "it is on a device" in line]
    assert len(lines) == 1


def test_types_that_numpy_does_not_know(debugger: Debugger) -> None:
    import ml_dtypes

    def train() -> None:
        recorder = Recorder(debugger.address)
        recorder.record("half", np.array([1, 2, np.inf], ml_dtypes.bfloat16))
        recorder.record("eighth", np.array([1, 2, 4], ml_dtypes.float8_e4m3fn))
        recorder.record("words", np.array(["a", "b"]))
        recorder.step()

    loop = Loop(train)
    debugger.stop(run())
    debugger.stop(
        watch(1, OVERFLOW, ["half", "eighth", "words"]),
        run(wire.LEVEL_RECHECK),
        view(wire.STATISTICS, "half", "eighth"),
        run(),
    )
    assert [hit.tensor.node_name for hit in debugger.answer("SendWatchpointHits")] == [b"half"]
    half, eighth = debugger.answer("SendTensorStats")
    assert (half.tensor_base.data_type, half.statistics.maximum) == (46, 2.0)
    assert (eighth.tensor_base.data_type, eighth.statistics.maximum) == (wire.OWN_TYPES["float8_e4m3fn"], 4.0)
    assert loop.end() is None


# -- nothing is lost ---------------------------------------------------------------------------------------


def _nan_in(steps: int, bad: int, recorder: Recorder) -> None:
    """One more tensor after the last step: its number is ``steps``."""
    for step in range(steps + 1):
        recorder.record("x", np.full(4, np.nan if step == bad else 1.0), kind="activation")
        if step < steps:
            recorder.step()
    recorder.close()


def _listened(tmp_path: Path, train: Callable[[str], None], *options: str) -> tuple[int, str, str]:
    """Exit status and output of ``tdbg listen``, which looks for NaN and Inf in a training of this process."""
    address = f"unix:{tmp_path}/listen"
    command = [sys.executable, "-m", "tui_debugger", "listen", "--no-screen", "--host", address, "--watch", "TO"]
    listening = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert listening.stderr is not None
    assert "waiting for a training" in listening.stderr.readline()
    train(address)
    out, err = listening.communicate(timeout=PATIENCE)
    return listening.returncode, out, err


@pytest.mark.parametrize("bad", [0, 3, 5, 6, 7])
def test_every_step_is_judged_and_what_follows_the_last_one(tmp_path: Path, bad: int) -> None:
    status, out, err = _listened(tmp_path, lambda address: _nan_in(6, bad, Recorder(address)))
    assert status == (0 if bad == 7 else 1), err
    assert [line for line in out.splitlines() if "◆" in line] == (
        [] if bad == 7 else [f"step {bad}  rank 0  TO  ◆ NaN 4 of 4  x:out:0"]
    )
    assert "6 steps" in err or bad == 6


def _record_all(address: str, values: Mapping[str, Any]) -> None:
    recorder = Recorder(address)
    for _ in range(2):
        for name, value in values.items():
            recorder.record(name, value)
        recorder.step()
    recorder.close()


@pytest.mark.parametrize("last", [3.0, NAN])
def test_a_nan_in_any_kind_of_value_is_a_finding_and_healthy_twins_are_clean(tmp_path: Path, last: float) -> None:
    values = {name: leaf(last) for name, leaf in LEAVES.items()}
    values |= {
        f"{name} with {other}": LAYERS[name](np.array([last]), OTHERS[other]()) for name in LAYERS for other in OTHERS
    }
    status, out, err = _listened(tmp_path, lambda address: _record_all(address, values), "--all-hits")
    found = {line.split("  ")[-1].partition("/")[0].partition(":")[0] for line in out.splitlines() if "◆" in line}
    assert (status, found) == ((0, set()) if last == 3.0 else (1, set(values))), err


@pytest.mark.parametrize("kind", ["values", "names"])
def test_what_cannot_be_looked_into_is_counted_and_the_rest_is_judged(tmp_path: Path, kind: str) -> None:
    def train(address: str) -> None:
        recorder = Recorder(address)
        for step in range(3):
            if kind == "names":
                recorder.record(Nameless(), np.ones(2))
                recorder.record("y", np.ones(2), kind=Nameless(), inputs=[Nameless(), "x"])  # type: ignore[arg-type,list-item]  # mistakes of programs
            for name, make in UNREADABLE.items() if kind == "values" else ():
                recorder.record(name, make())
            recorder.record("x", np.full(2, np.nan if step == 2 else 1.0))
            recorder.step()
        recorder.close()

    status, out, err = _listened(tmp_path, train)
    assert status == 1
    assert "step 2  rank 0  TO  ◆ NaN 2 of 2  x:out:0" in out
    count = 3 * (len(UNREADABLE) if kind == "values" else 1)
    assert f"({count}, first {'on a device' if kind == 'values' else 'a name of type Nameless'} at step 0)" in err


@pytest.mark.parametrize("bad", [0, 1])
def test_the_earlier_of_two_tensors_of_one_name_is_judged(debugger: Debugger, bad: int) -> None:
    def train() -> None:
        recorder = Recorder(debugger.address)
        for step in range(2):
            for part in range(4):
                recorder.record("x", np.full(2, np.nan if (step, part) == (bad, 1) else float(part)))
                recorder.record(f"y{part}", np.full(2, np.nan if step == bad else 1.0))
            recorder.step()
        recorder.close()

    loop = Loop(train)
    debugger.stop(watch(1, OVERFLOW, ["x", "y0", "y3"]), run())
    if bad:
        debugger.stop(run())
    stop = debugger.stop(view(wire.VALUE, "x"), run())
    hits = debugger.answer("SendWatchpointHits")
    assert (stop.step, [hit.tensor.node_name for hit in hits]) == (bad, [b"y0", b"x", b"y3"])
    assert hits[1].statistics.nan_count == 2
    assert np.frombuffer(debugger.answer("SendTensors")[0].tensor_content).tolist() == [3.0, 3.0]  # the later one
    if not bad:
        debugger.stop(run())
    assert loop.end() is None


def test_a_weight_that_is_recorded_before_and_after_its_update_has_changed(debugger: Debugger) -> None:
    def train() -> None:
        recorder = Recorder(debugger.address)
        weight = np.ones(4)
        for _ in range(3):
            recorder.record("w", weight, kind="weight")
            weight = weight * 2
            recorder.record("w", weight, kind="weight")
            recorder.step()
        recorder.close()

    loop = Loop(train)
    debugger.stop(watch(1, 19, ["w"], rtol=1e-5, atol=1e-8), run())
    for _ in range(3):
        debugger.stop(run())
    assert loop.end() is None
    assert "SendWatchpointHits" not in [name for name, _ in debugger.calls]


def test_what_cannot_be_recorded_or_judged_is_counted(debugger: Debugger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui_debugger.live.client.recorded.NODES", 3)

    class OnDevice:
        def __array__(self, *_: Any, **__: Any) -> Any:
            msg = "it is on a device"
            raise TypeError(msg)

    def train() -> None:
        recorder = Recorder(debugger.address, keep_bytes=100)
        for step in range(3):
            recorder.record("gone", OnDevice())
            recorder.record("w", np.full(10, 2.0**step), kind="weight")
            recorder.record("large", np.full(10, 2.0**step), kind="weight")
            for number in range(2):
                recorder.record(f"n{number}", np.ones(1))
            recorder.step()
        recorder.close()

    loop = Loop(train)
    change = {"abs_mean_update_ratio_gt": 10.0}
    first = debugger.stop(watch(1, CHANGED, ["w", "large"], **change), run())
    for _ in range(3):
        last = debugger.stop(run())
    assert loop.end() is None
    assert [(each.what, each.count) for each in first.unrecorded] == [
        (b"tensors that could not be converted to NumPy, or copied", 1),
        (b"tensors under names beyond the first 100,000", 1),
    ]
    counts = {each.what.split(b" ", 1)[1]: (each.count, each.example, each.step) for each in last.unrecorded}
    assert counts == {
        b"that could not be converted to NumPy, or copied": (3, b"gone", 0),
        b"under names beyond the first 100,000": (3, b"n1", 0),
        b"that found no room to be kept until watchpoints on them came (keep_bytes)": (1, b"large", 0),
        b"whose values of the step before found no room (keep_bytes)": (3, b"large", 1),
    }
    assert list(debugger.done().unrecorded) == list(last.unrecorded)


def test_the_parts_of_a_value_are_nodes_and_its_name_means_all_of_them(debugger: Debugger) -> None:
    def train() -> None:
        recorder = Recorder(debugger.address)
        recorder.record("batch", {"image": np.ones(2), "label": [1, 2], "text": ["a"]})
        recorder.record("out", np.ones(2), kind="relu", inputs="batch")
        recorder.record("w", (np.ones(2), None), kind="gradient")
        recorder.step()

    loop = Loop(train)
    debugger.stop(run())
    debugger.stop(run())
    assert loop.end() is None
    (nodes,) = _graphs(debugger)
    assert {*nodes.names} >= {"batch/image", "batch/label", "out", "Gradients/w/0"}
    inputs = [nodes.names[node] for node, _ in nodes.inputs(nodes.find("out"))]
    assert inputs == ["batch/image", "batch/label"]


@pytest.mark.parametrize("name", [7, None, b"x", ("a", 1), "", "a\0b\n", "\ud800", "x" * 100_000, "*", "Gradients/"])
def test_a_name_of_any_kind_is_judged(debugger: Debugger, name: Any) -> None:
    def train() -> None:
        recorder = Recorder(debugger.address)
        for step in range(2):
            recorder.record(name, np.full(2, float(step)), kind=name, inputs=name)
            recorder.step()
        recorder.close()

    loop = Loop(train)
    debugger.stop(watch(1, TOO_LARGE, [name_text(name), f"Gradients/{name_text(name)}"], max_gt=0.5), run())
    debugger.stop(run())
    debugger.stop(run())
    (hit,) = debugger.answer("SendWatchpointHits")
    assert hit.tensor.node_name.decode() == name_text(name)
    assert loop.end() is None
    assert not debugger.done().unrecorded


def test_initial_values_that_were_not_recorded_are_not_called_clean(debugger: Debugger) -> None:
    loop = _network(debugger, 1)
    debugger.stop(watch(1, 14, ["fc1.weight"], zero_percentage_ge=100.0), run(wire.LEVEL_RECHECK), run())
    (hit,) = debugger.answer("SendWatchpointHits")
    assert hit.error_code == ErrorBits.NO_PREVIOUS
    debugger.stop(run())
    assert loop.end() is None


def test_a_debugger_that_comes_late_judges_from_the_next_step_on(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/late"
    recorder = Recorder(address, timeout=1.0)
    for step in range(2):
        recorder.record("x", np.full(2, np.nan if step == 0 else 1.0))
        recorder.step()
    with Debugger(address) as debugger:

        def train() -> None:
            while not recorder.attached:
                recorder.record("x", np.full(2, np.nan))
                recorder.step()
            recorder.record("x", np.full(2, np.nan))
            recorder.step()
            recorder.close()

        loop = Loop(train)
        first = debugger.stop(watch(1, OVERFLOW, ["x"]), run())
        debugger.give(run(), run())  # one more where the step at which it came was recorded whole
        assert loop.end() is None
        assert [name for name, _ in debugger.calls].count("SendWatchpointHits") in (1, 2)
        assert debugger.done().step == first.step + 1
        assert not list(debugger.calls[-1][1].unrecorded)  # what was before is nobody's question
