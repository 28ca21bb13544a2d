"""A training that runs is a source as any other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.live.recordings import recorded_graph
from tests.live.scripted import Script
from tests.live.scripted import ScriptedTraining as WireTraining
from tests.live.session.doubles import LOSS, NET, RELU, WEIGHT, ScriptedTraining, ScriptedTrainings, ones
from tests.live.session.test_recorded_session import everything
from tests.live.session.test_several_networks import GAN, playing
from tests.sources.conformance import SourceConformance, pairs
from tui_debugger.live import wire
from tui_debugger.live.server import Server
from tui_debugger.live.source import LiveSource
from tui_debugger.live.wire import START, Event, TrainingStop
from tui_debugger.model import Side, TensorKey
from tui_debugger.sources.base import Source, TensorFlag
from tui_debugger.stats.npy import open_array


def every_value_can_be_read_or_is_known_to_be_elsewhere(source: Source) -> None:
    for _, _, table in pairs(source):
        for i in range(len(table)):
            flags = int(table.flags[i])
            if not flags & TensorFlag.STAT_ONLY:
                open_array(table.spec(i))
            elif not flags & TensorFlag.UNKNOWN:
                assert table.recorded(i) is not None
            else:
                assert flags & TensorFlag.REMOTE
                said = table.recorded(i)
                assert said is None or not said.bad, "no more than that it is clean"


class TestTrainingInMemory(SourceConformance):
    @pytest.fixture
    def source(self) -> Iterator[Source]:
        first, second = (ScriptedTraining(number=n + 1, rank=n, features=wire.FULL_STATISTICS) for n in (0, 1))
        source = LiveSource(ScriptedTrainings(first, second))
        for training in (first, second):
            rank = source.apply(training, Event.GRAPH)
            for step in (-1, 0, 3):
                training.stop_at(step)
                source.stopped(rank, TrainingStop(step + 2, step))
                graph = rank.graph
                assert graph is not None
                training.stop = TrainingStop(step + 2, step)
                rank.fetch_values(step, [graph.place(graph.find(WEIGHT), 0)])
                rank.fetch_statistics(step, [graph.place(graph.find(RELU), 0)])
                rank.fetch_values(step, [graph.place(graph.find(LOSS), 0)])
        yield source
        source.close()

    def test_every_value_can_be_read_or_has_recorded_statistics(self, source: Source) -> None:
        every_value_can_be_read_or_is_known_to_be_elsewhere(source)


class TestTrainingOnTheWire(SourceConformance):
    """The real server, the graph of a real training."""

    @pytest.fixture
    def source(self, server: Server) -> Iterator[Source]:
        graph = recorded_graph("mlp")
        stopped = threading.Event()
        server.listen(lambda _training, event: stopped.set() if event is Event.STOPPED else None)
        values = {("head.weight", 0, False): np.ones((3, 2), np.float32)}
        training = WireTraining(server.address, Script(graphs=[graph], values=lambda _step: values))
        assert stopped.wait(20)
        source = LiveSource(server)
        (rank,) = source.all()
        assert rank.graph is not None
        assert rank.fetch_values(-1, [rank.graph.place(rank.graph.find("head.weight"), 0)]) == 1
        yield source
        source.close()
        training.kill()

    def test_every_value_can_be_read_or_has_recorded_statistics(self, source: Source) -> None:
        every_value_can_be_read_or_is_known_to_be_elsewhere(source)


@contextmanager
def gan_at_step_5(path: Path) -> Iterator[LiveSource]:
    with playing(path) as live:
        live.start()
        live.session.watchpoints.add("tensor_overflow", selection=everything())
        live.session.read(TensorKey(0, "kernel_graph_0", "d_opt.disc.fc1.weight", Side.OUTPUT, 0, START))
        for step in range(6):
            assert live.run() == step
        yield live.session.live


@pytest.fixture(scope="module")
def gan(dumps: Callable[[str], Path]) -> Iterator[LiveSource]:
    with gan_at_step_5(dumps(GAN)) as source:
        yield source


class TestTrainingOfSeveralNetworks(SourceConformance):
    """The real server, and a generator and a discriminator whose graphs come one after the other."""

    @pytest.fixture
    def source(self, gan: LiveSource) -> LiveSource:
        return gan

    @pytest.fixture
    def fresh(self, dumps: Callable[[str], Path]) -> Iterator[LiveSource]:
        with gan_at_step_5(dumps(GAN)) as source:
            yield source

    def test_every_value_can_be_read_or_has_recorded_statistics(self, source: Source) -> None:
        every_value_can_be_read_or_is_known_to_be_elsewhere(source)


def test_a_training_has_no_rank_in_the_list_before_its_graph_came() -> None:
    training = ScriptedTraining(graphs=())
    source = LiveSource(ScriptedTrainings(training))
    assert source.ranks() == []
    assert len(source.nodes(0)) == len(source.tensors(0, 0)) == 0
    training.graphs = (NET,)
    source.apply(training, Event.GRAPH)
    assert source.ranks() == [0]
    assert source.refresh().new_ranks == (0,)
    source.close()


def test_two_trainings_that_say_the_same_rank_get_different_ones() -> None:
    source = LiveSource(ScriptedTrainings(*(ScriptedTraining(number=n) for n in (1, 2, 3))))
    assert source.ranks() == [0, 1, 2]
    assert any("rank 0 too" in notice for notice in source.info.notices)
    source.close()


@pytest.mark.parametrize("stop", [TrainingStop(1, -1), TrainingStop(2, 0)])
def test_before_the_first_step_there_are_parameters_only(
    stop: TrainingStop, live_source: Callable[..., LiveSource]
) -> None:
    source = live_source(stop)
    table, nodes = source.tensors(0, stop.step), source.nodes(0)
    names = {nodes.names[row] for row in table.node.tolist()}
    assert names == ({"x", WEIGHT} if stop.step < 0 else set(ones(0)))


def test_previous_values_are_listed_at_the_step_before(live_source: Callable[..., LiveSource]) -> None:
    source = live_source(TrainingStop(5, 7))
    assert list(source.steps(0)) == [6, 7]
    names = {source.nodes(0).names[row] for row in source.tensors(0, 6).node.tolist()}
    assert names == {"x", WEIGHT}
    assert source.previous_run(0, 0, 7) == (6, 0)
    assert source.previous_run(0, 0, 6) is None


def test_a_client_that_keeps_every_tensor_of_the_step_before_has_them_listed(
    live_source: Callable[..., LiveSource],
) -> None:
    source = live_source(TrainingStop(5, 7), features=wire.ANY_PREVIOUS)
    assert len(source.tensors(0, 6)) == len(source.tensors(0, 7))


@pytest.fixture
def live_source() -> Iterator[Callable[..., LiveSource]]:
    made: list[LiveSource] = []

    def make(stop: TrainingStop, features: int = 0) -> LiveSource:
        training = ScriptedTraining(features=features)
        training.stop_at(stop.step)
        training.stop = stop
        made.append(LiveSource(ScriptedTrainings(training)))
        return made[-1]

    yield make
    for source in made:
        source.close()
