"""One tensor at a time is made bad, at every position of a training that runs: none is missed, and none is invented."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import run
from tests.live.torch.forks import parent
from tests.thorough import few

pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from tests.live.torch.spoiling import FORWARD, STEPS, Plant

PARAMETERS = ("embed.weight", "embed.bias", "head.weight", "head.bias")
Capture = pytest.CaptureFixture[str]


class Trainings:
    """One process, or two that train together, that do one training after the other."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self.ranks = ranks
        self._said = (folder / "stderr").open("w")
        store = [f"--store=file://{folder}/store"] if ranks > 1 else []
        self._processes = [
            parent().fork(
                "tests.live.torch.spoiling", [*store, f"--rank={rank}"], stdin=True, stderr=self._said.fileno()
            )
            for rank in range(ranks)
        ]
        self._folder = folder
        self._number = 0

    def verdict(self, capsys: Capture, **plant: Any) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
        """Exit code, hits and summary of ``tdbg listen`` on one training."""
        self._number += 1
        made = Plant(f"unix:{self._folder}/{self._number}", **plant)
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps(asdict(made)) + "\n")
            process.stdin.flush()
        options = ["--no-screen", "--watch", "TO", "--json", "--timeout", "60", "--ranks", str(self.ranks)]
        answer = run(capsys, "listen", "--host", made.address, *options)
        for process in self._processes:
            assert process.stdout.readline() == "done\n"
        rows = [json.loads(line) for line in answer.lines]
        return answer.code, [row for row in rows if row["event"] == "hit"], rows[-1]

    def end(self) -> None:
        for process in self._processes:
            process.end()
        self._said.close()


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "two processes"])
def trainings(request: pytest.FixtureRequest) -> Iterator[Trainings]:
    with tempfile.TemporaryDirectory(prefix="tdbg") as folder:  # paths of sockets are short
        started = Trainings(Path(folder), request.param)
        yield started
        started.end()


def node_of(how: str, where: str) -> str:
    """The node that has to hit."""
    if how in ("forward", "backward"):
        return f"{where}/Spoiling" if how == "forward" else f"Gradients/{where}/SpoilingGrad"
    if how == "gradient":
        return "Gradients/" + where.replace(".", "/")
    return where if how == "weight" else f"NoGrad/{where}/Spoiling"


def positions() -> Iterator[tuple[str, str, int]]:
    """(how, where, step)."""
    for step in range(STEPS):
        for how in ("forward", "backward", "evaluation", "inference"):
            yield from ((how, where, step) for where in FORWARD)
        yield from ((how, where, step) for how in ("weight", "gradient") for where in PARAMETERS)


def bad_at(hits: Sequence[dict[str, Any]], node: str) -> set[tuple[int, int]]:
    """(rank, step) of the findings on a node."""
    return {(hit["rank"], hit["step"]) for hit in hits if hit["node"] == node}


@pytest.mark.covering
@pytest.mark.parametrize("blocks", [False, True], ids=["optimizer", "blocks"])
def test_nothing_bad_is_clean_and_every_step_counts(trainings: Trainings, capsys: Capture, blocks: bool) -> None:
    code, hits, summary = trainings.verdict(capsys, blocks=blocks)
    assert (code, hits, summary["verdict"]) == (0, [], "clean")
    assert summary["steps"] == [{"rank": rank, "steps": STEPS} for rank in range(trainings.ranks)]


@pytest.mark.covering
@pytest.mark.parametrize(("how", "where", "step"), few(positions(), 12))
def test_a_bad_tensor_is_found_where_it_is(
    trainings: Trainings, capsys: Capture, how: str, where: str, step: int
) -> None:
    rank = (step + len(where)) % trainings.ranks
    code, hits, summary = trainings.verdict(capsys, how=how, where=where, step=step, rank=rank)
    assert code == 1, (how, where, step, summary)
    assert (rank, step) in bad_at(hits, node_of(how, where))
    assert min(hit["step"] for hit in hits) == step  # and not before
    assert summary["steps"] == [{"rank": each, "steps": STEPS} for each in range(trainings.ranks)]


@pytest.mark.covering
@pytest.mark.parametrize("step", [0, STEPS - 1])
@pytest.mark.parametrize("how", ["forward", "backward", "evaluation", "inference", "gradient", "weight"])
def test_steps_may_be_blocks(trainings: Trainings, capsys: Capture, how: str, step: int) -> None:
    where = "head.weight" if how in ("gradient", "weight") else "act"
    code, hits, summary = trainings.verdict(capsys, how=how, where=where, step=step, blocks=True)
    assert code == 1
    assert (0, step) in bad_at(hits, node_of(how, where))
    assert summary["steps"] == [{"rank": each, "steps": STEPS} for each in range(trainings.ranks)]


@pytest.mark.covering
@pytest.mark.parametrize("where", FORWARD)
@pytest.mark.parametrize("how", ["after", "unfinished"])
def test_what_follows_the_last_step_is_judged(trainings: Trainings, capsys: Capture, how: str, where: str) -> None:
    if how == "unfinished" and trainings.ranks > 1:
        pytest.skip("the other process would wait for the gradients of this one")
    code, hits, _ = trainings.verdict(capsys, how=how, where=where)
    assert code == 1
    assert (0, STEPS) in bad_at(hits, node_of("forward" if how == "unfinished" else "evaluation", where))


@pytest.mark.covering
@pytest.mark.parametrize("step", range(STEPS))
@pytest.mark.parametrize("how", ["forward", "backward", "evaluation", "inference", "gradient", "weight"])
def test_every_operator_is_judged(trainings: Trainings, capsys: Capture, how: str, step: int) -> None:
    where = "head.weight" if how in ("gradient", "weight") else "act"
    rank = step % trainings.ranks
    code, hits, summary = trainings.verdict(capsys, how=how, where=where, step=step, rank=rank, level="op")
    assert code == 1
    assert (rank, step) in {(hit["rank"], hit["step"]) for hit in hits}
    assert min(hit["step"] for hit in hits) == step
    assert summary["steps"] == [{"rank": each, "steps": STEPS} for each in range(trainings.ranks)]
