"""A generated step put in through every door: a dump in memory, a dump on disk, a training, what a training saved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tests.causes.generated import BEFORE, NOW, Case, Place, Told
from tests.causes.protos import graph_of
from tests.causes.rule import Answer, Why
from tests.live.session.conftest import Live
from tests.live.session.doubles import Array, ScriptedTraining, ScriptedTrainings
from tests.sources.memory import Key, MemorySource
from tui_debugger.graph.build import build_table
from tui_debugger.graph.messages import parse_graph
from tui_debugger.live import wire
from tui_debugger.live.dump_writer import DumpWriter, TensorName
from tui_debugger.live.wire import START, ReceivedHit, RemoteTensor, RemoteWatchpoint
from tui_debugger.model import NodeKind, NodeSelection, NodeSelector, Side, TensorMeta, Verdict
from tui_debugger.session import Session
from tui_debugger.session.live import LiveSession
from tui_debugger.session.session import open_dump
from tui_debugger.sources.base import Source
from tui_debugger.stats.blocks import measure_stats
from tui_debugger.watch.condition_table import WIRE_OVERFLOW

OURS = wire.FULL_STATISTICS | wire.ANY_PREVIOUS
"""What our own client can do; MindSpore's can do nothing of it."""


# -- the answer of a session --------------------------------------------------------------------------


def watch(session: Session, case: Case, step: int) -> None:
    """Has NaN and Inf looked for wherever the case says that somebody looks."""
    session.watchpoints.clear()
    everything = (NodeSelector(NodeKind.CATEGORY, "tensor"),)
    unwatched = tuple(NodeSelector(NodeKind.NODE, name) for name in case.unwatched(step))
    session.watchpoints.add("tensor_overflow", {}, NodeSelection(everything, unwatched))


def checked(session: Session) -> Answer:
    """The answer of ``check``, which says nothing of what cannot be judged, and of ``origin``, which does."""
    hits = [hit for hit in session.check([(0, NOW)]).hits if hit.key.side is Side.OUTPUT or hit.origin]
    return Answer(
        origins=frozenset((hit.key.node, hit.key.slot) for hit in hits if hit.origin),
        designed=frozenset((hit.key.node, hit.key.slot) for hit in hits if hit.verdict is Verdict.BY_DESIGN),
        findings=frozenset((hit.key.node, hit.key.slot) for hit in hits if hit.verdict is Verdict.FINDING),
        unjudged=frozenset(unjudged(session)),
    )


def unjudged(session: Session) -> list[Why]:
    """The nodes that ``origin`` lists as not judged, and why."""
    report = session.find_origin([(0, NOW)], session.watchpoints.snapshot()[1])
    return [(each.node, tuple(missing.slot for missing in each.missing), each.exchanged) for each in report.not_judged]


def searched(session: Session) -> set[Place]:
    """The tensors of the origins that ``origin`` lists."""
    report = session.find_origin([(0, NOW)], session.watchpoints.snapshot()[1])
    return {(hit.key.node, hit.key.slot) for origin in report.origins for hit in origin.hits}


# -- dumps --------------------------------------------------------------------------------------------


def recorded(case: Case, step: int) -> Iterator[tuple[Place, str, Array]]:
    """What a dump has of a step: place, operator type, values."""
    for node, slot, _ in case.places():
        values = case.value((node.name, slot), step)
        if values is not None:
            yield (node.name, slot), node.type, values


def in_memory(case: Case) -> Source:
    """The dump that a test double holds."""
    steps: dict[int, dict[Key, Array]] = {
        step: {(name, Side.OUTPUT, slot): values for (name, slot), _, values in recorded(case, step)}
        for step in (BEFORE, NOW)
    }
    return MemorySource({0: steps}, table=build_table([parse_graph(graph_of(case))]))


def fed(case: Case) -> Iterator[tuple[TensorName, Array]]:
    """What the nodes of a step were fed with, as far as it can be had: as input files of a dump have it.

    An operator that writes over an input is dumped after its kernel: the file shows what it wrote.
    """
    for node in case.nodes.values():
        for at, (name, slot) in enumerate(node.inputs):
            producer = case.nodes.get(name)
            if producer is None or not node.outputs:
                continue
            before = producer.updater and at not in node.writes
            values = case.value((name, slot), BEFORE if before else NOW)
            if values is not None:
                yield TensorName(node.type, node.name, at, side="input"), values


def on_disk(case: Case, directory: Path, *, inputs: bool = False) -> Path:
    """The dump as files; ``inputs``: those of nodes have files of their own."""
    writer = DumpWriter(directory, program="a test")
    writer.metadata()
    writer.graphs([graph_of(case)])
    writer.history([BEFORE, NOW])
    constants = [name for name, node in case.nodes.items() if node.type == "Constant"]
    for step in (BEFORE, NOW):
        for (name, slot), kind, values in recorded(case, step):
            if kind != "Constant":
                writer.array(step, TensorName(kind, name, slot), values)
            elif step == NOW:
                place = directory / "rank_0" / "training" / "0" / "constants"
                place.mkdir(exist_ok=True)
                file = f"Parameter.Default--data-{constants.index(name)}.0.0.1700000000000000.output.0.DefaultFormat"
                np.save(place / f"{file}.float32.npy", values)
    for tensor, values in fed(case) if inputs else ():
        writer.array(NOW, tensor, values)
    return directory


@contextmanager
def session_on(source: Source | Path, case: Case) -> Iterator[Session]:
    """A session on a dump, with the watchpoints of the case."""
    session = open_dump(source, remember=False) if isinstance(source, Path) else Session(source)
    try:
        session.open()
        watch(session, case, NOW)
        yield session
    finally:
        session.close()


# -- trainings ----------------------------------------------------------------------------------------


class GeneratedTraining(ScriptedTraining):
    """Runs a generated step: reports what is bad where it was told to watch, and keeps silent of what is clean."""

    def __init__(self, case: Case) -> None:
        self._case = case
        program = "PyTorch 2.13.0 (tdbg 0.1)" if case.pytorch else "MindSpore 2.0.0"
        features = OURS if case.pytorch else 0
        super().__init__(graphs=(graph_of(case),), hits=self._reported, features=features, program=program)

    def _reported(self, step: int, watchpoints: Sequence[RemoteWatchpoint]) -> list[ReceivedHit]:
        found = []
        for node, slot, now in self._case.places():
            tensor = now if step == NOW else node.before
            if tensor is None or not tensor.holds.bad or step not in (BEFORE, NOW):
                continue
            values = self._case.value((node.name, slot), step)
            for watchpoint in watchpoints:
                if watchpoint.condition != WIRE_OVERFLOW or node.name not in {each[0] for each in watchpoint.nodes}:
                    continue
                assert tensor.told is Told.WATCHED
                assert values is not None
                hit = ReceivedHit(node.name, slot, watchpoint.id, WIRE_OVERFLOW, ())
                if self._case.pytorch:
                    meta = TensorMeta("float32", values.shape, values.nbytes)
                    hit = ReceivedHit(
                        node.name, slot, watchpoint.id, WIRE_OVERFLOW, (), 0, meta, measure_stats(values)[0]
                    )
                found.append(hit)
        return found

    def _find(self, tensor: RemoteTensor) -> Array | None:
        step = self.stop.step if self.stop else START
        step -= tensor.previous
        name = tensor.node
        for node in self._case.nodes.values():  # constants are asked for by the names of their files
            if node.type == "Constant" and name.rpartition("-")[2] == str(self._number(node.name)) and "data" in name:
                name = node.name
                break
        return self._case.value((name, tensor.slot), step) if step in (BEFORE, NOW) else None

    def _number(self, constant: str) -> int:
        return [name for name, node in self._case.nodes.items() if node.type == "Constant"].index(constant)


@contextmanager
def stopped_at(case: Case) -> Iterator[LiveSession]:
    """A live session whose training stands at the step in question."""
    training = GeneratedTraining(case)
    trainings = ScriptedTrainings(training)
    session = LiveSession(trainings)
    try:
        live = Live(session, trainings, training)
        live.arrive()
        for step in (BEFORE, NOW):
            if step == BEFORE or case.unwatched(step) != case.unwatched(BEFORE):
                watch(session, case, step)
            assert live.run(1) == step
        yield session
    finally:
        session.close()
