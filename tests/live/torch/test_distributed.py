"""Trainings of several processes: what one of them does wrong is told of that one, whatever hands it on to others."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import run
from tests.live.torch.forks import parent
from tui_debugger.diagnose.origin.path import trace
from tui_debugger.graph.categories import is_collective
from tui_debugger.graph.table import real_inputs
from tui_debugger.model import Side
from tui_debugger.session.session import Session, open_dump

pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from tests.live.torch.distributed_programs import Job

REDUCING = ["ddp", "bucket_views", "manual", "fsdp1", "fsdp1_flat", "fsdp2"]
"""Gradients are summed up over the processes."""
KINDS = [*REDUCING, "tensor_parallel"]
Capture = pytest.CaptureFixture[str]
SHARDED = ["fsdp1", "fsdp1_flat", "fsdp2", "tensor_parallel"]


@dataclass
class Watched:
    """What came of the processes that ``tdbg listen`` watched."""

    code: int
    rows: list[dict[str, Any]]
    losses: list[list[list[str]]]
    dump: Path

    @property
    def origins(self) -> list[tuple[int, int, str]]:
        """(rank, step, node) of each."""
        return [(each["rank"], each["step"], each["node"]) for each in self.rows[-1]["origins"]]

    @property
    def bad(self) -> set[tuple[int, str]]:
        """(rank, node) of the findings at the bad step."""
        return {(row["rank"], row["node"]) for row in self.rows if row["event"] == "hit" and row["step"] == 1}

    @contextlib.contextmanager
    def session(self) -> Iterator[Session]:
        """The saved dump, opened."""
        session = open_dump(self.dump)
        try:
            yield session
        finally:
            session.close()


class Trainings:
    """Processes that do one training after the other, together."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self._folder = folder
        self._ranks = ranks
        self._number = 0
        self._said = [(folder / f"stderr{rank}").open("w+") for rank in range(ranks)]
        given = [f"--store=file://{folder}/store", f"--ranks={ranks}"]
        self._processes = [
            parent().fork(
                "tests.live.torch.distributed_programs", [*given, f"--rank={rank}"], stdin=True, stderr=said.fileno()
            )
            for rank, said in enumerate(self._said)
        ]

    def watch(
        self, capsys: Capture, directory: Path, kind: str, listen: Sequence[str] = ("--recommended",), **job: Any
    ) -> Watched:
        """One training, and what ``tdbg listen`` says of it; the losses are those of each process."""
        made = self.begin(kind, **job)
        options = ["--no-screen", "--json", "--timeout", "60", "--ranks", self._ranks]
        if made.level == "module":  # at every operator that hits values would be fetched
            options += ["--save", directory / "dump"]
        answer = run(capsys, "listen", "--host", made.address, *options, *listen)
        losses = self.losses()
        rows = [json.loads(line) for line in answer.lines]
        assert rows, answer.err
        return Watched(answer.code, rows, losses, directory / "dump")

    def begin(self, kind: str, **job: Any) -> Job:
        """One training, which waits for its debugger."""
        self._number += 1
        made = Job(kind, f"unix:{self._folder}/{self._number}", **job)
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps(asdict(made)) + "\n")
            process.stdin.flush()
        return made

    def losses(self) -> list[list[list[str]]]:
        """The losses of each process, when the training has ended."""
        return [json.loads(line) for line in self._answers()]

    def _answers(self) -> Iterator[str]:
        for process, said in zip(self._processes, self._said, strict=True):
            line = process.stdout.readline()
            said.seek(0)
            text = said.read()
            assert line, text
            assert "switched off" not in text
            yield line

    def end(self) -> None:
        for process in self._processes:
            process.end()
        for said in self._said:
            said.close()


@contextlib.contextmanager
def started(ranks: int) -> Iterator[Trainings]:
    with tempfile.TemporaryDirectory(prefix="tdbg") as folder:  # paths of sockets are short
        trainings = Trainings(Path(folder), ranks)
        try:
            yield trainings
        finally:
            trainings.end()


@pytest.fixture(scope="module")
def two() -> Iterator[Trainings]:
    with started(2) as trainings:
        yield trainings


@pytest.fixture(scope="module")
def four() -> Iterator[Trainings]:
    with started(4) as trainings:
        yield trainings


def gradient(kind: str) -> str:
    return "Gradients/_flat_param" if kind == "fsdp1_flat" else "Gradients/head/weight"


@pytest.mark.turns("kind")
@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_batch_of_one_process_is_the_only_origin(
    two: Trainings, capsys: Capture, kind: str, tmp_path: Path
) -> None:
    found = two.watch(capsys, tmp_path, kind, bad="batch", again=True)
    assert found.code == 1
    assert found.origins == [(1, 1, "inputs.x")]
    assert {rank for rank, _ in found.bad} == {0, 1}
    assert (0, gradient(kind)) in found.bad
    for unwatched, attached in found.losses:
        assert unwatched == attached
    with found.session() as session:
        nodes = session.nodes(0)
        row = nodes.find(gradient(kind))
        if kind in REDUCING:
            assert is_collective(nodes.op_type(row))
            assert [nodes.names[each] for each, _ in real_inputs(nodes, row)] == [f"{gradient(kind)}/local"]
            assert (0, f"{gradient(kind)}/local") not in found.bad
            assert (1, f"{gradient(kind)}/local") in found.bad
        path = trace(session, nodes.key(0, 1, row, Side.OUTPUT))
        assert path.ranks == (0, 1)
        assert (path.end.tensor.key.rank, path.end.tensor.key.node) == (1, "inputs.x")


@pytest.mark.turns("kind")
@pytest.mark.parametrize("kind", [each for each in KINDS if each not in ("bucket_views", "manual")])
def test_a_bad_weight_of_one_process_is_the_only_origin(
    two: Trainings, capsys: Capture, kind: str, tmp_path: Path
) -> None:
    found = two.watch(capsys, tmp_path, kind, bad="weight")
    assert found.code == 1
    ((rank, step, node),) = found.origins
    assert (rank, step) == (1, 1)
    part = {"fsdp1": "up.bias", "fsdp1_flat": "_flat_param"}.get(kind, "up.weight")  # that rank 1 has a part of
    assert node == f"blocks.1.{part}"
    with found.session() as session:
        nodes = session.nodes(0)
        path = trace(session, nodes.key(0, 1, nodes.find(gradient(kind)), Side.OUTPUT))
        assert (path.end.tensor.key.rank, path.end.tensor.key.node) == (1, node)
        if kind in SHARDED:
            name = {"fsdp1_flat": "_flat_param", "tensor_parallel": "blocks.0.up.weight"}.get(kind, "head.weight")
            text = {
                "fsdp1": "elements 0 to 17 of [4, 8]",
                "fsdp1_flat": "shard 0 of 2 along dimension 0 of [36]",
                "fsdp2": "shard 0 of 2 along dimension 0 of [4, 8]",
                "tensor_parallel": "shard 0 of 2 along dimension 0 of [16, 8]",
            }[kind]
            (shard,) = session.tensor_rows(0, 1, nodes.find(name))
            assert shard.placement == text
            assert nodes.placements[nodes.find(f"exp_avg.{name}")] == text


@pytest.mark.parametrize(
    ("kind", "bad"),
    [("hybrid", "weight"), ("sequence_parallel", "batch"), ("not_understood", "batch"), ("not_understood", "head")],
)
def test_what_is_not_known_of_the_processes_names_no_false_origin(
    two: Trainings, capsys: Capture, kind: str, bad: str, tmp_path: Path
) -> None:
    """Process groups within the world, inputs that are put together, and shards that tdbg does not find."""
    found = two.watch(capsys, tmp_path, kind, bad=bad)
    true = {"batch": "inputs.x", "weight": "blocks.1.up.weight"}
    assert found.origins == ([(1, 1, true[bad])] if bad in true else [])
    if kind == "hybrid":
        with found.session() as session:
            nodes = session.nodes(1)
            assert nodes.group_ranks[nodes.find("AllGather/head/weight")] == (1,)
            assert nodes.group_ranks[nodes.find("Gradients/head/weight")] == (0, 1)


def test_every_microbatch_counts_before_the_sum(two: Trainings, capsys: Capture, tmp_path: Path) -> None:
    found = two.watch(capsys, tmp_path, "ddp", bad="batch", parts=3, again=True)
    assert found.origins == [(1, 1, "inputs.x")]
    assert (1, "Gradients/head/weight/local") in found.bad
    assert (0, "Gradients/head/weight/local") not in found.bad
    for unwatched, attached in found.losses:
        assert unwatched == attached


@pytest.mark.parametrize(("kind", "step"), [("ddp", 0), ("fsdp2", 1), ("fsdp1", 1), ("tensor_parallel", 0)])
def test_a_module_with_weights_of_its_own_is_the_only_origin(
    two: Trainings, capsys: Capture, kind: str, step: int, tmp_path: Path
) -> None:
    """Its weights are bad after the step, but that the optimizer has done."""
    found = two.watch(capsys, tmp_path, kind, bad="head", at=step)
    assert found.origins == [(1, step, "head/Head")]


MORE = ["--recommended", "--watch=TO"]


def looked_at_all(found: Watched) -> bool:
    """Nothing was left out: neither nodes, nor steps."""
    return not (found.rows[-1]["unrecorded"] or found.rows[-1]["reasons"]) and not found.rows[-1]["coverage"]["skipped"]


@pytest.mark.turns("kind")
@pytest.mark.parametrize("level", ["module", "op"])
@pytest.mark.parametrize("kind", ["ddp", "fsdp1", "fsdp2", "tensor_parallel"])
def test_a_healthy_training_is_clean(two: Trainings, capsys: Capture, kind: str, level: str, tmp_path: Path) -> None:
    """Also where weights are put together, and sums made, in memory that held NaN before."""
    found = two.watch(capsys, tmp_path, kind, MORE, level=level, steps=4)
    assert (found.code, len(found.rows)) == (0, 1)
    assert looked_at_all(found)


VALUES = ["--watch", "TL max_gt=-1000"]
"""Everything hits: the values of all tensors are saved."""


@pytest.mark.turns("kind")
@pytest.mark.parametrize("kind", ["ddp", "fsdp2", "hybrid", "tensor_parallel"])
def test_ranks_of_a_healthy_training_accuse_nobody(two: Trainings, capsys: Capture, kind: str, tmp_path: Path) -> None:
    found = two.watch(capsys, tmp_path, kind, VALUES)
    answer = run(capsys, "ranks", found.dump)
    assert answer.code == 0, answer.out


def test_what_a_copy_held_before_others_were_added_is_not_saved_as_another_value(
    two: Trainings, capsys: Capture, tmp_path: Path
) -> None:
    """The sum over the processes goes into the memory of the copy, and no version counts that."""
    options = ["--recommended", *VALUES, "--save", str(tmp_path / "dump")]
    found = two.watch(capsys, tmp_path, "summed", options, level="op", steps=2)
    answer = run(capsys, "audit", found.dump, "--json")
    assert answer.json["findings"] == []
    assert answer.json["coverage"]["checked"] > 100


def test_norms_whose_gradients_nobody_reduces_are_a_doubt(two: Trainings, capsys: Capture, tmp_path: Path) -> None:
    """They read parts of a sequence, and are no DTensors: each rank updates its own."""
    found = two.watch(capsys, tmp_path, "sequence_parallel", VALUES)
    answer = run(capsys, "ranks", found.dump)
    assert answer.code == 2
    assert "blocks.0.norm.weight" in answer.lines[0]


@pytest.mark.parametrize(("kind", "what"), [("ddp", "weight"), ("hybrid", "shard of weight")])
def test_a_weight_that_one_rank_has_otherwise_is_named(
    two: Trainings, capsys: Capture, kind: str, what: str, tmp_path: Path
) -> None:
    """Replicas of a weight, and copies of a shard of it. What follows in the next step is not saved."""
    found = two.watch(capsys, tmp_path, kind, VALUES, bad="drift", steps=3)
    answer = run(capsys, "ranks", found.dump)
    assert answer.code == 1
    found_first = f"{what} blocks.1.up.weight:out:0 at step 2, equal at step 1"
    (line,) = {line for line in answer.lines if found_first in line and " more finding" not in line}
    assert line.endswith("on rank 1 it is not what the optimizer makes of it")


@pytest.mark.parametrize(("kind", "node"), [("fsdp2", "blocks.1.up.weight"), ("tensor_parallel", "blocks/1/up/Linear")])
def test_a_part_of_a_weight_that_the_program_of_one_rank_changes_is_named(
    two: Trainings, capsys: Capture, kind: str, node: str, tmp_path: Path
) -> None:
    """No other rank holds this part. Where it is gathered, all that reads the weight differs on all ranks."""
    healthy, drifted = (
        two.watch(capsys, tmp_path / name, kind, VALUES, bad=bad).dump
        for name, bad in (("healthy", ""), ("drifted", "drift"))
    )
    assert "weights that no other rank holds" in run(capsys, "ranks", healthy).lines[0]
    answer = run(capsys, "ranks", drifted)
    assert answer.code == 1
    start = "Rank 1: weight blocks.1.up.weight:out:0 at step 2 is not what the optimizer makes of it"
    assert [line for line in answer.lines if line.startswith(start) and " more finding" not in line]
    compared = run(capsys, "diff", healthy, drifted, "--json")
    assert compared.code == 1
    first = compared.json["findings"][0]
    assert (first["rank"], first["step"], first["node"]) == (1, 2, node)


@pytest.mark.turns("kind")
@pytest.mark.parametrize("kind", [*REDUCING, "hybrid", "tensor_parallel"])
def test_a_repeat_is_accused_by_nobody_and_only_the_rank_that_differs_is_named(
    two: Trainings, capsys: Capture, kind: str, tmp_path: Path
) -> None:
    first, repeat, drifted = (
        two.watch(capsys, tmp_path / name, kind, VALUES, bad=bad).dump
        for name, bad in (("first", ""), ("repeat", ""), ("drifted", "drift"))
    )
    for command in (["audit", first], ["ranks", first], ["diff", first, repeat]):
        assert run(capsys, *command).code == 0, command
    other = run(capsys, "diff", first, drifted, "--json")
    assert other.code != 0
    assert {each["rank"] for each in other.json["findings"]} <= {1}


@pytest.mark.turns("kind")
@pytest.mark.parametrize("kind", ["ddp", "fsdp1", "fsdp2", "tensor_parallel"])
def test_among_all_operators_a_bad_batch_is_the_only_origin(
    two: Trainings, capsys: Capture, kind: str, tmp_path: Path
) -> None:
    """FSDP resizes the memory that it gathers weights in, also after tdbg has read it: looking changes nothing."""
    found = two.watch(capsys, tmp_path, kind, MORE, bad="batch", level="op", steps=2, again=True)
    assert found.code == 1
    assert found.origins == [(1, 1, "inputs.x")]
    assert {rank for rank, _ in found.bad} == {0, 1}
    for unwatched, attached in found.losses:
        assert unwatched == attached


@pytest.mark.turns("kind")
@pytest.mark.parametrize("kind", ["fsdp1", "fsdp2"])
def test_among_all_operators_a_bad_weight_is_found_where_it_was_gathered(
    two: Trainings, capsys: Capture, kind: str, tmp_path: Path
) -> None:
    """What comes through an all-gather is looked at where it is read: rank 0 has nothing bad of its own."""
    found = two.watch(capsys, tmp_path, kind, MORE, bad="weight", level="op", steps=2)
    assert [(rank, step) for rank, step, _ in found.origins] == [(1, 1)]
    assert (0, "blocks/1/up/Addmm") in found.bad


@pytest.mark.thorough  # four processes that import PyTorch
@pytest.mark.parametrize("level", ["module", "op"])
def test_parts_and_shards_together(four: Trainings, capsys: Capture, level: str, tmp_path: Path) -> None:
    """Tensor-parallel in pairs, and FSDP over these."""
    healthy = four.watch(capsys, tmp_path / "healthy", "two_d", MORE, level=level, steps=4)
    assert (healthy.code, len(healthy.rows)) == (0, 1)
    assert looked_at_all(healthy)
    bad = four.watch(capsys, tmp_path / "bad", "two_d", MORE, level=level, steps=2, bad="batch")
    assert bad.origins == [(1, 1, "inputs.x")]
