"""A debugger never hurts a training: not when it is off, absent, killed, or when tdbg itself fails."""

from __future__ import annotations

import copy
import gc
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.live.torch.driving import ROOT, Driven
from tests.live.torch.forks import finished, parent
from tests.live.torch.watching import recommended_watchpoints
from tests.patience import PATIENCE
from tests.thorough import later
from tui_debugger.errors import TdbgError
from tui_debugger.graph.messages import parse_graph
from tui_debugger.live.wire import Event, Phase

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from torch.optim.optimizer import register_optimizer_step_pre_hook  # noqa: E402 - torch is there

import tui_debugger.torch as tdbg  # noqa: E402 - imports torch
from tests.live.torch import programs  # noqa: E402
from tui_debugger.torch import internals  # noqa: E402 - likewise

Train = Callable[..., Driven]


def hooks_of(model: torch.nn.Module) -> list[Any]:
    """Every hook that a model and its parameters have."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    found = [hook for module in model.modules() for kind in kinds for hook in getattr(module, kind).values()]
    found += [hook for each in model.parameters() for hook in (each._backward_hooks or {})]
    return found


def hooks_of_optimizers(optimizer: torch.optim.Optimizer) -> list[Any]:
    """Every hook that an optimizer has, and those that all have."""
    from torch.optim import optimizer as module

    own = [*optimizer._optimizer_step_post_hooks.values(), *optimizer._optimizer_step_pre_hooks.values()]
    every = [*module._global_optimizer_post_hooks.values(), *module._global_optimizer_pre_hooks.values()]
    return [*own, *every]


def one_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    programs.loss_of(model(programs.batch(0)), programs.batch(0)).backward()
    optimizer.step()
    optimizer.zero_grad()


def test_without_an_address_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TDBG_HOST", raising=False)
    monkeypatch.delenv("TDBG_PORT", raising=False)
    model = programs.Transformer()
    optimizer = torch.optim.AdamW(model.parameters())
    handle = tdbg.attach(model, optimizer)
    assert not handle.on
    assert hooks_of(model) == hooks_of_optimizers(optimizer) == []
    one_step(model, optimizer)
    with tdbg.step():
        one_step(model, optimizer)
    handle.detach()


def test_with_an_address_where_nobody_is_only_the_end_of_a_step_is_looked_at(capfd: pytest.CaptureFixture[str]) -> None:
    model = programs.Transformer()
    optimizer = torch.optim.AdamW(model.parameters())
    handle = tdbg.attach(model, optimizer, "127.0.0.1:9")
    for _ in range(3):
        assert hooks_of(model) == []
        assert len(hooks_of_optimizers(optimizer)) == 1
        one_step(model, optimizer)
    handle.detach()
    assert hooks_of_optimizers(optimizer) == []
    assert len(capfd.readouterr().err.splitlines()) == 1


def test_detach_removes_every_hook(server: Any, happened: Any) -> None:
    scaler_step, scaler_scale = torch.amp.GradScaler.step, torch.amp.GradScaler.scale
    run_backward = internals.run_backward()
    server.listen(lambda training, event: training.run(None) if event is Event.STOPPED else None)
    model = programs.Transformer()
    optimizer = torch.optim.AdamW(model.parameters())
    handle = tdbg.attach(model, optimizer, server.address)
    one_step(model, optimizer)
    assert handle.attached
    assert hooks_of(model)
    assert torch.amp.GradScaler.step is not scaler_step
    assert torch.amp.GradScaler.scale is not scaler_scale
    assert internals.run_backward() is not run_backward
    handle.detach()
    assert hooks_of(model) == hooks_of_optimizers(optimizer) == []
    assert torch.amp.GradScaler.step is scaler_step
    assert torch.amp.GradScaler.scale is scaler_scale
    assert internals.run_backward() is run_backward
    one_step(model, optimizer)
    assert happened.training(Event.DONE).phase is Phase.DONE


@pytest.mark.parametrize(
    "where", ["captures.meta_of", "training.gradient_of", "training.see_all", "attaching.judge_step"]
)
def test_a_failure_inside_tdbg_switches_it_off_and_training_goes_on(
    server: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], where: str
) -> None:
    def heard(training: Any, event: Event) -> None:
        if event is Event.STOPPED:
            training.set_watchpoints(recommended_watchpoints(training))
            training.run(None)

    server.listen(heard)
    model = programs.Transformer()
    optimizer = torch.optim.AdamW(model.parameters())
    others = [optimizer.register_step_pre_hook(lambda *_: None), optimizer.register_step_post_hook(lambda *_: None)]
    handle = tdbg.attach(model, optimizer, server.address)
    others += [register_optimizer_step_pre_hook(lambda *_: None), optimizer.register_step_post_hook(lambda *_: None)]
    monkeypatch.setattr(f"tui_debugger.torch.{where}", lambda *_, **__: 1 / 0)
    one_step(model, optimizer)
    one_step(model, optimizer)
    assert hooks_of(model) == []
    assert not handle.on
    lines = [line for line in capfd.readouterr().err.splitlines() if "ZeroDivisionError" in line]
    assert len(lines) == 1
    handle.detach()
    for each in others:
        each.remove()
    assert hooks_of_optimizers(optimizer) == []


def test_wrong_arguments_are_refused_at_once() -> None:
    model = programs.Transformer()
    for arguments in (
        {"level": "layer"},
        {"keep": "all"},
        {"address": "nowhere:99999999"},
        {"address": "127.0.0.1:9", "optimizer": object()},
    ):
        with pytest.raises(TdbgError):
            tdbg.attach(model, **arguments)


@pytest.mark.covering
@pytest.mark.parametrize("level", ["module", later("op")])
@pytest.mark.parametrize("command", ["run(1)", "run_to_node('blocks/0/feed/1/ReLU')", later("run_to_node('')")])
def test_a_debugger_that_is_killed_lets_the_training_go_on(level: str, command: str) -> None:
    """The debugger is a process of its own, killed while the training waits at a stop: of a step, or of a node."""
    serve = [sys.executable, "-c", SERVE.replace("run(1)", command, 1)]
    with subprocess.Popen(serve, cwd=ROOT, stdout=subprocess.PIPE, text=True) as debugger:
        assert debugger.stdout is not None
        address = debugger.stdout.readline().strip()
        given = ["plain", f"--address={address}", f"--level={level}", "--steps=6"]
        training = parent().fork("tests.live.torch.programs", given)
        try:
            assert debugger.stdout.readline() == "stopped\n"
            debugger.send_signal(signal.SIGKILL)
            out, err = training.communicate(PATIENCE)
            assert training.returncode == 0
        finally:
            training.end()
        assert [line.split()[1] for line in out.splitlines()] == [str(step) for step in range(6)]
        assert "detached" in err


SERVE = """
import sys, threading
from tui_debugger.live.wire import Event
from tui_debugger.live.server import serve
server = serve("127.0.0.1", 0)
stops = 0
def heard(training, event):
    global stops
    if event is Event.STOPPED:
        stops += 1
        if stops < 3:
            training.run(1)
        else:
            print("stopped", flush=True)
server.listen(heard)
print(server.address, flush=True)
threading.Event().wait()
"""


def test_a_training_that_is_killed_is_lost_and_its_hits_stay(train: Train, happened: Any) -> None:
    run = train("plain", steps=5, spoil=1)
    run.watch(("tensor_overflow", {}, "."))
    run.run(None)
    run.process.kill()
    run.process.wait(PATIENCE)
    happened.wait(Event.LOST)
    assert run.training.phase is Phase.LOST
    assert run.training.hits


def test_a_model_can_be_copied_and_saved_while_it_is_watched(server: Any, tmp_path: Any) -> None:
    server.listen(lambda training, event: training.run(None) if event is Event.STOPPED else None)
    model = programs.Transformer()
    optimizer = torch.optim.AdamW(model.parameters())
    with tdbg.attach(model, optimizer, server.address) as handle:
        one_step(model, optimizer)
        assert handle.attached
        averaged = copy.deepcopy(model)
        torch.save(model, tmp_path / "model.pt")
        model.head(torch.randn(2, programs.WIDTH, requires_grad=True))
        averaged(programs.batch(0))
        one_step(model, optimizer)
        assert handle.attached
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    assert torch.equal(loaded(programs.batch(0)), averaged(programs.batch(0)))
    assert b"tui_debugger" not in (tmp_path / "model.pt").read_bytes()


def test_the_training_itself_is_not_changed(train: Train) -> None:
    run = train("plain", steps=4)
    run.watch(more=run.recommended())
    _, out, _ = run.run(2, stop_on_hit=False).finish()
    alone = finished("tests.live.torch.programs", "plain", "--address=", "--steps=4")
    assert alone.returncode == 0
    assert out == alone.stdout


@pytest.fixture
def compiled() -> Iterator[tuple[Callable[[Any], Any], list[Any]]]:
    """``torch.compile`` of whole graphs, and one of them for each time that they ran."""
    ran: list[Any] = []

    def backend(graph: Any, _inputs: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            ran.append(graph)
            return graph.forward(*args)

        return run

    torch._dynamo.reset()
    yield lambda each: torch.compile(each, backend=backend, fullgraph=True), ran
    torch._dynamo.reset()  # others in this process compile nothing


def small_net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(8, 4)))


@pytest.mark.parametrize("how", ["attached first", "compiled first", "a part", "the forward of a part", "a function"])
def test_what_is_compiled_stays_compiled_and_is_told(
    server: Any, compiled: Any, capfd: pytest.CaptureFixture[str], how: str
) -> None:
    server.listen(lambda training, event: training.run(None) if event is Event.STOPPED else None)
    compile_, ran = compiled
    model, loss_of = small_net(), torch.nn.functional.mse_loss
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run: Any = compile_(model) if how == "compiled first" else model
    x, compiled_in = torch.ones(2, 4), list[bool]()
    with tdbg.attach(model, optimizer, server.address) as handle:
        if how == "attached first":
            run = compile_(model)
        elif how == "a part":
            model[1] = compile_(model[1])
        elif how == "the forward of a part":
            model[1].forward = compile_(model[1].forward)
        elif how == "a function":
            loss_of = compile_(loss_of)
        for _ in range(3):
            before = len(ran)
            loss_of(run(x), x).backward()
            optimizer.step()
            compiled_in.append(len(ran) > before)
        unrecorded = [each.what for each in handle.unrecorded]
    assert all(compiled_in[1:]), "as without a debugger, but for the step in which the graph is learned"
    assert compiled_in[0] or how != "compiled first"
    hidden = how != "a function"
    assert ("passes of modules inside torch.compile" in unrecorded) is hidden
    assert capfd.readouterr().err.count("torch.compile") == hidden


def test_every_operator_is_recorded_of_what_would_be_compiled(
    server: Any, compiled: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    server.listen(lambda training, event: training.run(None) if event is Event.STOPPED else None)
    compile_, ran = compiled
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = compile_(model)
    with tdbg.attach(model, optimizer, server.address, level="op") as handle:
        for _ in range(2):
            run(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        assert not handle.unrecorded
    assert not ran
    assert capfd.readouterr().err.count("torch.compile stands back while every operator is recorded") == 1
    run(torch.ones(2, 4))
    assert len(ran) == 1, "compiled again once nobody records"


@pytest.mark.usefixtures("compiled")
def test_torch_compile_hides_what_is_inside_and_says_so(server: Any, capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []

    def heard(training: Any, event: Event) -> None:
        if event is Event.STOPPED:
            seen.append((training.info.program, training.graphs))
            training.run(None)

    server.listen(heard)
    model = programs.Transformer()
    model.blocks[0] = torch.compile(model.blocks[0], backend="eager")
    optimizer = torch.optim.AdamW(model.parameters())
    with tdbg.attach(model, optimizer, server.address):
        one_step(model, optimizer)
        one_step(model, optimizer)
    program, graphs = seen[0]
    assert "torch.compile hides 8 modules" in program
    names = {node.full_name for node in parse_graph(graphs[0]).nodes}
    assert {"blocks/0/Block", "blocks/1/feed/1/ReLU", "Gradients/blocks/0/feed/0/weight"} <= names
    assert not any(name.startswith("blocks/0/feed") for name in names)
    assert "torch.compile hides the 8 modules inside blocks/0" in capfd.readouterr().err


def test_a_model_that_is_let_go_is_not_kept_alive() -> None:
    model = programs.Transformer()
    optimizer = torch.optim.AdamW(model.parameters())
    tdbg.attach(model, optimizer, "127.0.0.1:9").detach()
    tdbg.attach(model, address="127.0.0.1:9").detach()
    with tdbg.step():
        one_step(model, optimizer)
    there = weakref.ref(model)
    del model, optimizer
    gc.collect()
    assert there() is None


def test_a_second_attach_takes_the_place_of_the_first() -> None:
    model = programs.Transformer()
    optimizer = torch.optim.AdamW(model.parameters())
    first = tdbg.attach(model, optimizer, "127.0.0.1:9")
    second = tdbg.attach(model, optimizer, "127.0.0.1:9")
    assert not first.on
    assert second.on
    assert len(hooks_of_optimizers(optimizer)) == 1
    second.detach()
