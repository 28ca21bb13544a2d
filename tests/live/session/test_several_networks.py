"""A training of several networks: all that a dump with several root graphs can do, while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.live.networks import Networks, NetworksTraining
from tests.live.session.conftest import Told
from tests.live.session.test_recorded_session import everything
from tests.patience import PATIENCE
from tui_debugger.check.types import CheckResult
from tui_debugger.live.server import serve
from tui_debugger.live.wire import START, Event
from tui_debugger.model import NodeKind, NodeSelection, NodeSelector, Side, TensorKey, Verdict
from tui_debugger.session import Session
from tui_debugger.session.live import LiveSession
from tui_debugger.session.session import open_dump
from tui_debugger.sources.registry import open_source

GAN, EVAL = "mindspore-2.0-multi-gan", "mindspore-2.0-multi-eval"
Dumps = Callable[[str], Path]
DISC, GEN = "kernel_graph_0", "kernel_graph_1"


class Playing:
    """A session, and a training that plays what was dumped."""

    def __init__(self, session: LiveSession, training: NetworksTraining) -> None:
        self.session, self.training = session, training
        self.told = Told(session)

    def start(self) -> None:
        self.training.start()
        self.told.wait(Event.STOPPED)

    def run(self, steps: int | None = 1) -> int | None:
        """Runs to the next stop; its step."""
        before = self.told.count(Event.STOPPED)
        self.session.run(steps)
        return self.told.wait(Event.STOPPED, before + 1).step

    def run_through(self) -> CheckResult:
        """Runs to the end of the training, whatever is found; the result."""
        self.session.run(None, stop_on_hit=False)
        self.told.wait(Event.DONE)
        result = self.session.so_far()
        assert result is not None
        return result

    @property
    def history(self) -> list[tuple[int, int]]:
        return [(run.step, run.root_graph) for run in self.session.history(0) if run.step > START]


@contextmanager
def playing(path: Path) -> Iterator[Playing]:
    with ExitStack() as stack:
        source = open_source(path)
        stack.callback(source.close)
        trainings = serve(port=0)
        stack.callback(trainings.close)
        training = NetworksTraining(Networks(path, source), trainings.address)
        stack.callback(training.close)
        session = LiveSession(trainings)
        stack.callback(session.close)
        yield Playing(session, training)


@pytest.fixture
def gan(dumps: Dumps) -> Iterator[Playing]:
    with playing(dumps(GAN)) as found:
        found.start()
        yield found


def checked(session: Session, condition: str = "tensor_overflow") -> CheckResult:
    session.watchpoints.add(condition, selection=everything())
    return session.check(session.pairs())


def outputs_found(result: CheckResult) -> set[tuple[int, str, str]]:
    """(step, graph, node) of the outputs with a finding: a client of MindSpore says nothing of inputs."""
    found = (hit.key for hit in result.hits if hit.verdict is Verdict.FINDING)
    return {(key.step, key.graph, key.node) for key in found if key.side is Side.OUTPUT}


def origins(result: CheckResult) -> list[tuple[int, str, str]]:
    return [(hit.key.step, hit.key.graph, hit.key.node) for hit in result.hits if hit.origin]


def test_the_second_graph_comes_to_the_first(gan: Playing) -> None:
    session = gan.session
    first = session.nodes(0)
    assert [info.name for info in first.graphs] == [DISC]
    assert gan.run(3) == 2
    nodes = session.nodes(0)
    assert [info.root_id for info in nodes.graphs] == [0, 1]
    assert list(nodes.names[: len(first)]) == list(first.names)
    assert nodes.lineage is first.lineage, "what is known of a row stays known"
    assert gan.history == [(1, 0), (2, 1)]
    changes = session.refresh()
    assert changes.new_nodes
    assert not changes.rebuilt


def test_each_step_has_the_tensors_of_the_graph_that_ran(gan: Playing) -> None:
    session = gan.session
    for step, name in ((0, DISC), (1, DISC), (2, GEN), (3, DISC)):
        assert gan.run() == step
        table, nodes = session.source.tensors(0, step), session.nodes(0)
        assert {nodes.graph_of(row).name for row in table.node.tolist()} == {name}
        assert (
            session.source.previous_run(0, int(name[-1]), step) == {0: (-1, 0), 1: (0, 0), 2: (-1, 0), 3: (1, 0)}[step]
        )


@pytest.mark.parametrize("name", [GAN, EVAL])
def test_findings_origins_and_what_was_looked_at_are_those_of_the_dump(dumps: Dumps, name: str) -> None:
    with closing(open_dump(dumps(name), remember=False)) as dump:
        offline = checked(dump)
    with playing(dumps(name)) as live:
        live.start()
        live.session.watchpoints.add("tensor_overflow", selection=everything())
        result = live.run_through()
        networks = live.training.networks
        tables = [live.session.nodes(0).graph_of(row).root_id for row in range(len(live.session.nodes(0)))]
        assert set(tables) == {0, 1}
        assert not live.session.unreadable()
        assert not live.session.source.info.notices
    assert outputs_found(result) == outputs_found(offline)
    assert origins(result) == origins(offline)
    assert result.silent + len(result.coverage.steps) == networks.steps


def test_what_was_found_before_the_second_graph_came_stays_found(gan: Playing) -> None:
    session = gan.session
    session.watchpoints.add("tensor_too_large", [("max_gt", 0.0)], selection=everything())
    assert gan.run() == 0
    before = session.known([(0, 0)])
    assert before is not None
    assert len(outputs_found(before)) > 40
    session.run(2, stop_on_hit=False)
    gan.told.wait(Event.STOPPED, 3)
    assert gan.history[-1] == (2, 1)
    after = session.known([(0, 0)])
    assert after is not None
    assert outputs_found(after) == outputs_found(before)


@pytest.mark.parametrize(("name", "begin", "unchanged"), [(GAN, 3, ""), (EVAL, 0, "fc2")])
def test_a_weight_is_not_to_be_changed_by_a_graph_that_only_reads_it(
    dumps: Dumps, name: str, begin: int, unchanged: str
) -> None:
    """The discriminator's step does not change the generator, before that came either, nor evaluation anything.

    Weights of the GAN are NaN from step 3 on, fc2 has learning rate 0.
    """
    with closing(open_dump(dumps(name), remember=False)) as dump:
        weights = NodeSelection((NodeSelector(NodeKind.CATEGORY, "weight"),))
        dump.watchpoints.add("weight_not_changed", selection=weights)
        offline = outputs_found(dump.check(dump.pairs()))
    with playing(dumps(name)) as live:
        live.start()
        live.session.watchpoints.add("weight_not_changed", selection=weights)
        found = outputs_found(live.run_through())
    assert {each for each in found if each[0] > 0} == offline, "a dump has no initial values"
    assert all(unchanged in node for _, _, node in found)
    assert min(step for step, _, _ in found) == begin


def test_what_is_saved_has_both_graphs_their_runs_and_the_origins(dumps: Dumps, tmp_path: Path) -> None:
    with playing(dumps(GAN)) as live:
        live.start()
        live.session.watchpoints.add("tensor_overflow", selection=everything())
        live.run(2)
        while live.run() != 8:
            pass
        result = live.session.so_far()
        assert result is not None
        live.session.save(tmp_path / "dump")
        order = live.training.networks.order
    with closing(open_dump(tmp_path / "dump", remember=False)) as saved:
        again = checked(saved)
        found = [(o.hit.key.step, o.hit.key.graph, o.hit.key.node) for o in saved.find_origin(saved.pairs()).origins]
        runs = [(run.step, run.root_graph) for run in saved.history(0) if run.has_data]
        assert not saved.unreadable()
    assert outputs_found(again) == outputs_found(result)
    assert found == origins(again) == origins(result)
    assert runs == [(step, order[step]) for step, _ in runs]
    assert {root for _, root in runs} == {0, 1}


def test_a_watchpoint_that_is_made_while_it_runs_counts_from_the_end_of_that_step_on(gan: Playing) -> None:
    session = gan.session

    def add(step: int) -> None:
        if step == 1:
            session.watchpoints.add("tensor_overflow", selection=everything())
            session.wait_until_idle(PATIENCE)

    gan.training.before_step = add
    assert gan.run(None) == 3, "where it hits"
    assert gan.told.wait(Event.LISTED).text == "rank 0: the watchpoints as they are now count from step 2 on"
    result = session.so_far()
    assert result is not None
    assert (result.silent, result.coverage.steps) == (1, ((0, 3),)), "steps 0 and 1 had another list"


class TestPausedBeforeTheFirstRun:
    """Of a network that came later: its initial values can be looked at, and are saved as what its first step reads."""

    @pytest.fixture
    def paused(self, gan: Playing) -> Playing:
        gan.training.before_first_run = gan.session.pause
        assert gan.run(None) == 1
        return gan

    def test_it_stands_after_the_step_that_ran_last(self, paused: Playing) -> None:
        session = paused.session
        stop = session.state(0).stop
        assert stop is not None
        assert (stop.step, stop.opens, stop.root) == (1, True, 1)
        assert paused.told.events[-1].text == "rank 0: after step 1, before the first run of another network"

    def test_its_initial_values_are_there_and_those_of_the_step_before_stay(
        self, paused: Playing, tmp_path: Path
    ) -> None:
        session = paused.session
        key = TensorKey(0, GEN, "g_opt.gen.fc1.weight", Side.OUTPUT, 0, START)
        accumulated = TensorKey(0, GEN, "g_opt.accum.gen.fc1.weight", Side.OUTPUT, 0, START)
        first = session.read(key)
        assert paused.run() == 2
        now = session.read(TensorKey(0, GEN, "g_opt.gen.fc1.weight", Side.OUTPUT, 0, 2))
        assert first.shape == now.shape
        assert not np.array_equal(first, now)
        assert session.before(TensorKey(0, GEN, "g_opt.accum.gen.fc1.weight", Side.OUTPUT, 0, 2)) == accumulated
        session.save(tmp_path / "dump")
        with closing(open_dump(tmp_path / "dump", remember=False)) as saved:
            table, nodes = saved.source.tensors(0, 2), saved.nodes(0)
            fed = [int(row) for row, side in zip(table.node, table.side, strict=True) if side == Side.INPUT]
            assert fed
            assert {nodes.graph_of(row).name for row in fed} == {GEN}

    def test_initial_values_that_nobody_judges_are_a_doubt(self, gan: Playing) -> None:
        gan.session.watchpoints.add("weight_initialization", [("max_gt", 1e9)], selection=everything())
        assert gan.run(1) == 0
        assert not gan.session.unreadable()
        while gan.run() != 2:
            pass
        (part,) = gan.session.unreadable()
        assert part.where == "rank 0: initial values of a network that came after the first step"
