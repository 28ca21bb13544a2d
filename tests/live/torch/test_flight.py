"""The flight recorder on a PyTorch training: what it leaves is a dump that tdbg opens."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

import tui_debugger.torch as tdbg  # noqa: E402 - imports torch
from tests.live.torch import programs  # noqa: E402
from tests.live.torch.driving import ROOT  # noqa: E402
from tests.live.torch.flights import BAD, STATUS, Net  # noqa: E402
from tests.live.torch.forks import finished  # noqa: E402
from tests.live.torch.test_harmless import hooks_of, hooks_of_optimizers, one_step  # noqa: E402
from tests.live.torch.watching import recommended_watchpoints  # noqa: E402
from tests.patience import PATIENCE  # noqa: E402
from tests.zoo.trainings import HEALTHY, SICK  # noqa: E402
from tui_debugger.api import DumpAnalyzer  # noqa: E402
from tui_debugger.live.client.flight import REASON  # noqa: E402
from tui_debugger.live.client.judging import EXCUSED  # noqa: E402
from tui_debugger.live.wire import Event  # noqa: E402


def dumps_in(directory: Path) -> list[Path]:
    return [each for each in sorted(directory.iterdir()) if each.is_dir()]


def test_a_nan_without_a_debugger_leaves_a_dump(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = programs.Transformer()
    optimizer = torch.optim.AdamW(model.parameters())
    flight = tdbg.Flight(str(tmp_path), steps=3, tensor_steps=1)
    with tdbg.attach(model, optimizer, "", flight=flight):
        for step in range(4):
            if step == 3:
                programs.spoil(model)
            one_step(model, optimizer)
    assert hooks_of(model) == hooks_of_optimizers(optimizer) == []
    (dump,) = dumps_in(tmp_path)
    assert str(dump) in capfd.readouterr().err
    analyzer = DumpAnalyzer(str(dump))
    bad = {node.name for node in analyzer.select_nodes("blocks/1/feed/0") if node.name.startswith("blocks")}
    assert "blocks/1/feed/0/Linear" in bad
    assert analyzer.get_iterations() == [1, 2, 3]


@pytest.mark.parametrize("level", ["module", "op"])
def test_steps_that_a_gradient_scaler_skips_leave_a_dump_only_when_there_is_no_end_to_it(
    tmp_path: Path, level: str
) -> None:
    attach = partial(tdbg.attach, address="", level=level, flight=tdbg.Flight(str(tmp_path), steps=2))
    HEALTHY["grad_scaler"](attach)
    assert dumps_in(tmp_path) == []
    SICK["scale_too_large"].training(attach)
    first = dumps_in(tmp_path)[0]
    assert DumpAnalyzer(str(first)).get_iterations()[0] == EXCUSED - 2


def test_an_exception_leaves_a_dump(tmp_path: Path) -> None:
    model = programs.Transformer()
    optimizer = torch.optim.AdamW(model.parameters())
    handle = tdbg.attach(model, address="", flight=tdbg.Flight(str(tmp_path)))
    with tdbg.step():
        one_step(model, optimizer)
    with pytest.raises(IndexError), tdbg.step():
        model(torch.tensor([[10_000]]))
    assert len(dumps_in(tmp_path)) == 1
    handle.detach()


def test_an_exception_that_ends_the_program_leaves_a_dump_without_a_line_about_it(tmp_path: Path) -> None:
    done = finished("tests.live.torch.programs", "plain", "--fail=2", f"--flight={tmp_path}")
    assert done.returncode == 1
    assert "ValueError: the data ended" in done.stderr
    (dump,) = dumps_in(tmp_path)
    assert str(dump) in done.stderr
    assert DumpAnalyzer(str(dump)).get_iterations() == [0, 1]


Ends = dict[str, tuple[int, str, list[Path]]]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ends:
    """Exit status, standard error and dumps of real trainings, by how they ended."""
    places = {how: tmp_path_factory.mktemp("ended") for how in STATUS}
    done = {how: finished("tests.live.torch.flights", how, place, timeout=PATIENCE) for how, place in places.items()}
    return {how: (done[how].returncode, done[how].stderr, dumps_in(places[how])) for how in STATUS}


@pytest.mark.parametrize("how", STATUS)
def test_a_nan_in_the_step_in_which_the_program_ends_is_in_the_dump(ended: Ends, how: str) -> None:
    status, errors, dumps = ended[how]
    assert status == STATUS[how], errors
    (dump,) = dumps
    lines = (dump / REASON).read_text().splitlines()
    assert lines[0] == f"TO hit on log/Log and 2 more at step {BAD}"
    assert lines[1].startswith(f"step {BAD} did not come to its end")
    assert ("FloatingPointError: the loss is no number" in lines[-1]) == (how == "raise")
    assert DumpAnalyzer(str(dump)).get_iterations() == [BAD - 2, BAD - 1, BAD]


def test_the_true_origin_is_named_with_its_values(ended: Ends) -> None:
    (dump,) = ended["exit"][2]
    done = tdbg_command("origin", dump)
    assert done.returncode == 1
    assert f"origin: rank 0, step {BAD}  (Log)\n  log/Log\n" in done.stdout
    assert "also independent" not in done.stdout
    (values,) = dump.glob(f"rank_0/*/0/{BAD}/Log.log--Log.*.npy")
    import numpy as np

    assert np.isnan(np.load(values)).all()


def tdbg_command(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tui_debugger", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("bad", "steps"), [(0, 1), (2, 1), (2, 2)])
def test_the_weights_of_the_step_before_are_evidence(tmp_path: Path, bad: int, steps: int) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    torch.nn.init.ones_(model[0].weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with tdbg.attach(model, optimizer, "", flight=tdbg.Flight(str(tmp_path), steps=steps)):
        for step in range(bad + 3):
            x = torch.full((2, 8), 3e38 if step == bad else 1.0)
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    (dump,) = dumps_in(tmp_path)  # what follows from it, in this step and the next ones, is the same event
    done = tdbg_command("origin", dump)
    assert f"origin: rank 0, step {bad}  (Linear)\n  0/Linear\n" in done.stdout
    assert "its inputs are clean" in done.stdout


def test_a_soft_hit_at_the_beginning_delays_no_nan(tmp_path: Path) -> None:
    net = Net()
    groups = [{"params": net.first.parameters(), "lr": 0.0}, {"params": net.last.parameters()}]
    optimizer = torch.optim.SGD(groups, lr=1e-2)
    watch = ["WNC @ node=first.weight"]
    with tdbg.attach(net, optimizer, "", flight=tdbg.Flight(str(tmp_path), steps=8, tensor_steps=1, watch=watch)):
        for step in range(4):
            net.bad = step == BAD
            net(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            assert len(dumps_in(tmp_path)) == (1, 1, 1, 2)[step]
    nan = next(each for each in dumps_in(tmp_path) if f"step{BAD}" in each.name)
    assert (nan / REASON).read_text().startswith("TO hit on log/Log and ")
    names = {each.name.split(".")[1] for each in nan.glob(f"rank_0/*/0/{BAD}/*.npy")}
    assert {"log--Log", "last--Linear", "first"} <= names


def test_a_pass_without_gradients_is_in_the_flight(tmp_path: Path) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    with tdbg.attach(net, optimizer, "", flight=tdbg.Flight(str(tmp_path))):
        for step in range(4):
            for number in range(3):
                with torch.no_grad():
                    net.bad = (step, number) == (2, 0)
                    net(torch.randn(4, 8))
            net.bad = False
            net(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    (dump,) = dumps_in(tmp_path)
    assert (dump / REASON).read_text().startswith("TO hit on NoGrad/log/Log and 2 more at step 2")
    assert "origin: rank 0, step 2  (Log)\n  NoGrad/log/Log\n" in tdbg_command("origin", dump).stdout


def test_a_debugger_sees_to_what_it_watches_and_the_flight_recorder_takes_over_when_it_goes(
    serving: Any, tmp_path: Path
) -> None:
    server = serving()

    def heard(training: Any, event: Event) -> None:
        if event is Event.STOPPED:
            training.set_watchpoints(recommended_watchpoints(training))
            training.run(None, stop_on_hit=False)

    server.listen(heard)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    with tdbg.attach(net, optimizer, server.address, flight=tdbg.Flight(str(tmp_path))) as handle:
        _steps(net, optimizer, 3, bad=1)
        assert handle.attached
        assert not dumps_in(tmp_path)
        server.close()
        while handle.attached:
            _steps(net, optimizer, 1)
        assert not dumps_in(tmp_path)
        _steps(net, optimizer, 2, bad=1)
    (dump,) = dumps_in(tmp_path)
    assert (dump / REASON).read_text().startswith("TO hit on log/Log")


def _steps(net: Net, optimizer: torch.optim.Optimizer, count: int, bad: int = -1) -> None:
    """The weights stay what they are."""
    for step in range(count):
        net.bad = step == bad
        net(torch.randn(4, 8)).square().mean().backward()
        optimizer.zero_grad()
        optimizer.step()


def test_a_training_that_is_over_is_not_kept_alive(tmp_path: Path) -> None:
    def train() -> list[weakref.ref[Any]]:
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
        tdbg.attach(net, optimizer, "", flight=tdbg.Flight(str(tmp_path)))
        _steps(net, optimizer, 2)
        net.bad = True
        net(torch.randn(4, 8))
        return [weakref.ref(net), weakref.ref(optimizer)]

    scaler_step = torch.amp.GradScaler.step
    kept = train()
    gc.collect()
    assert [each() for each in kept] == [None, None]
    assert torch.amp.GradScaler.step is scaler_step
    (dump,) = dumps_in(tmp_path)  # what waited was written
    assert (dump / REASON).read_text().startswith("TO hit on log/Log and 2 more at step 2")


def test_a_process_that_was_forked_says_that_its_flight_recorder_writes_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    with tdbg.attach(net, optimizer, "", flight=tdbg.Flight(str(tmp_path))):
        _steps(net, optimizer, 1)
        pid = os.fork()
        if not pid:
            try:
                _steps(net, optimizer, 1, bad=0)
            finally:
                os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert "not written, because this process was forked from" in capfd.readouterr().err
        assert dumps_in(tmp_path) == []
        _steps(net, optimizer, 1, bad=0)
    assert len(dumps_in(tmp_path)) == 1
