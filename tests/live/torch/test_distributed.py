"""Trainings of two processes: what one of them does wrong is told of that one, whatever hands it on to the other."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from tests.live.torch.driving import PATIENCE, ROOT
from tui_debugger.graph.edges import real_inputs
from tui_debugger.graph.operator_types import is_collective
from tui_debugger.model import Side
from tui_debugger.session.opening import open_dump
from tui_debugger.session.origin.path import trace
from tui_debugger.session.session import Session

pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

REDUCING = ["ddp", "bucket_views", "manual", "fsdp1", "fsdp1_flat", "fsdp2"]
"""Gradients are summed up over the processes."""
KINDS = [*REDUCING, "tensor_parallel"]
SHARDED = ["fsdp1", "fsdp1_flat", "fsdp2", "tensor_parallel"]


@dataclass
class Watched:
    """What came of two processes that ``tdbg listen`` watched."""

    code: int
    rows: list[dict[str, Any]]
    losses: list[list[str]]
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


def watch(directory: Path, kind: str, *options: str, listen: Sequence[str] = ()) -> Watched:
    """Runs both processes of a training to their end."""
    with tempfile.TemporaryDirectory(prefix="tdbg") as sockets, contextlib.ExitStack() as stack:
        address = f"unix:{sockets}/s"

        def start(module: str, *arguments: object, out: int | IO[str] = subprocess.PIPE) -> subprocess.Popen[str]:
            command = [sys.executable, "-m", module, *map(str, arguments)]
            process = subprocess.Popen(command, cwd=ROOT, text=True, stdout=out, stderr=subprocess.PIPE)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        given = ["listen", "--no-screen", "--host", address, "--ranks", 2, "--json", "--save", directory / "dump"]
        said = stack.enter_context((directory / "out").open("w+", encoding="utf-8"))
        listener = start("tui_debugger", *given, *listen, out=said)
        assert listener.stderr is not None
        assert address in listener.stderr.readline()
        same = ["--same"] if kind == "tensor_parallel" else []
        ranks = [
            start(
                "tests.live.torch.distributed_programs",
                *(kind, "--rank", rank, "--file", directory / "store", "--address", address, *same, *options),
            )
            for rank in (0, 1)
        ]
        printed = [each.communicate(timeout=PATIENCE) for each in ranks]
        assert [each.returncode for each in ranks] == [0, 0], printed
        assert not any("switched off" in err for _, err in printed), printed
        _, err = listener.communicate(timeout=PATIENCE)
        said.seek(0)
        rows = [json.loads(line) for line in said]
        assert rows, err
        return Watched(listener.returncode, rows, [text.splitlines() for text, _ in printed], directory / "dump")


def gradient(kind: str) -> str:
    return "Gradients/_flat_param" if kind == "fsdp1_flat" else "Gradients/head/weight"


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_batch_of_one_process_is_the_only_origin(kind: str, tmp_path: Path) -> None:
    run = watch(tmp_path, kind, "--bad=batch")
    assert run.code == 1
    assert run.origins == [(1, 1, "inputs.x")]
    assert {rank for rank, _ in run.bad} == {0, 1}
    assert (0, gradient(kind)) in run.bad
    for unwatched, attached in run.losses:
        assert unwatched == attached
    with run.session() as session:
        nodes = session.nodes(0)
        row = nodes.find(gradient(kind))
        if kind in REDUCING:
            assert is_collective(nodes.op_type(row))
            assert [nodes.names[each] for each, _ in real_inputs(nodes, row)] == [f"{gradient(kind)}/local"]
            assert (0, f"{gradient(kind)}/local") not in run.bad
            assert (1, f"{gradient(kind)}/local") in run.bad
        path = trace(session, nodes.key(0, 1, row, Side.OUTPUT))
        assert path.ranks == (0, 1)
        assert (path.end.tensor.key.rank, path.end.tensor.key.node) == (1, "inputs.x")


@pytest.mark.parametrize("kind", [each for each in KINDS if each not in ("bucket_views", "manual")])
def test_a_bad_weight_of_one_process_is_the_only_origin(kind: str, tmp_path: Path) -> None:
    run = watch(tmp_path, kind, "--bad=weight", "--again=0")
    assert run.code == 1
    ((rank, step, node),) = run.origins
    assert (rank, step) == (1, 1)
    part = {"fsdp1": "up.bias", "fsdp1_flat": "_flat_param"}.get(kind, "up.weight")  # that rank 1 has a part of
    assert node == f"blocks.1.{part}"
    with run.session() as session:
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
def test_what_is_not_known_of_the_processes_names_no_false_origin(kind: str, bad: str, tmp_path: Path) -> None:
    """Process groups within the world, inputs that are put together, and shards that tdbg does not find."""
    run = watch(tmp_path, kind, f"--bad={bad}", "--again=0")
    true = {"batch": "inputs.x", "weight": "blocks.1.up.weight"}
    assert run.origins == ([(1, 1, true[bad])] if bad in true else [])
    if kind == "hybrid":
        with run.session() as session:
            nodes = session.nodes(1)
            assert nodes.group_ranks[nodes.find("AllGather/head/weight")] == (1,)
            assert nodes.group_ranks[nodes.find("Gradients/head/weight")] == (0, 1)


def test_every_microbatch_counts_before_the_sum(tmp_path: Path) -> None:
    run = watch(tmp_path, "ddp", "--bad=batch", "--parts=3")
    assert run.origins == [(1, 1, "inputs.x")]
    assert (1, "Gradients/head/weight/local") in run.bad
    assert (0, "Gradients/head/weight/local") not in run.bad
    for unwatched, attached in run.losses:
        assert unwatched == attached


@pytest.mark.parametrize(("kind", "step"), [("ddp", 0), ("fsdp2", 1), ("fsdp1", 1), ("tensor_parallel", 0)])
def test_a_module_with_weights_of_its_own_is_the_only_origin(kind: str, step: int, tmp_path: Path) -> None:
    """Its weights are bad after the step, but that the optimizer has done."""
    run = watch(tmp_path, kind, "--bad=head", f"--at={step}", "--again=0")
    assert run.origins == [(1, step, "head/Head")]


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_a_healthy_training_is_clean(kind: str, tmp_path: Path) -> None:
    run = watch(tmp_path, kind, "--again=0", listen=["--watch=TO"])
    assert (run.code, len(run.rows)) == (0, 1)


@pytest.mark.parametrize("kind", ["fsdp1", "fsdp2"])
def test_looking_at_every_operator_changes_nothing(kind: str, tmp_path: Path) -> None:
    """FSDP resizes the memory that it gathers weights in, also after tdbg has read it."""
    run = watch(tmp_path, kind, "--bad=batch", "--level=op")
    assert run.code == 1
    assert (1, "inputs.x") in run.bad
    for unwatched, attached in run.losses:
        assert unwatched == attached
