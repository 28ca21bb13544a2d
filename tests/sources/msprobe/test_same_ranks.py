"""Ranks whose files are the same, byte by byte, are read once; answers are those of reading each of them."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import run
from tui_debugger.model import Side
from tui_debugger.sources import open_source
from tui_debugger.sources.msprobe import source as msprobe

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]
RANKS, STEPS = 9, 3


def without_values(dump: Any) -> Any:
    """What is recorded of the tensors, as the task ``statistics`` writes it."""
    if isinstance(dump, dict):
        return {key: without_values(each) for key, each in dump.items() if key != "data_name"}
    return [*map(without_values, dump)] if isinstance(dump, list) else dump


def tensors_in(dump: Any) -> list[dict[str, Any]]:
    """The records of tensors of which there are numbers."""
    if isinstance(dump, dict):
        found = [dump] if dump.get("type") == "torch.Tensor" and dump["Norm"] is not None else []
        return found + [each for value in dump.values() for each in tensors_in(value)]
    return [each for value in dump for each in tensors_in(value)] if isinstance(dump, list) else []


@pytest.fixture
def dump(dumps: Dumps, tmp_path: Path) -> Path:
    """Of nine ranks one has NaN, one lacks calls, one has other values, each from another step on."""
    for step in range(STEPS):
        (directory,) = (dumps("msprobe-mix") / "good" / f"step{min(step, 1)}").iterdir()
        calls = without_values(json.loads((directory / "dump.json").read_text())) | {"task": "statistics"}
        for rank in range(RANKS):
            target = tmp_path / "dump" / f"step{step}" / f"rank{rank}"
            target.mkdir(parents=True)
            own = json.loads(json.dumps(calls))
            if rank == 2 and step >= 1:
                tensors_in(own["data"])[20].update(Max=float("nan"), Min=float("nan"), Norm=float("nan"))
            if rank == 4 and step != 1:
                own["data"] = dict([*own["data"].items()][: 40 if step else 60])
            if rank == 7 and step == 2:
                for each in tensors_in(own["data"]):
                    each["Norm"] = 2 * each["Norm"]
            (target / "dump.json").write_text(json.dumps(own))
            for name in ("construct.json", "stack.json"):
                (target / name).write_bytes((directory / name).read_bytes())
    return tmp_path / "dump"


@pytest.fixture
def each_by_itself(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(msprobe, "content_of", lambda _: b"")


@pytest.mark.parametrize(
    "words",
    [
        ("ranks",),
        ("ranks", "--stat", "norm", "--nodes"),
        ("check", "--watch", "TO", "--watch", "TL max_gt=3", "--watch", "CT"),
        ("origin",),
        ("health",),
        ("ls", "--steps"),
    ],
    ids=" ".join,
)
def test_every_command_answers_as_if_each_rank_were_read(
    dump: Path, capsys: Capsys, each_by_itself: Callable[[], None], words: tuple[str, ...]
) -> None:
    command, *more = words
    together = run(capsys, command, dump, "--json", "--no-cache", *more)
    each_by_itself()
    apart = run(capsys, command, dump, "--json", "--no-cache", *more)
    assert together.code == apart.code
    assert {**together.json, "seconds": 0} == {**apart.json, "seconds": 0}


def test_ranks_that_differ_are_told_and_equal_ones_are_clean(dump: Path, capsys: Capsys) -> None:
    answer = run(capsys, "ranks", dump, "--json", "--no-cache")
    assert answer.code == 1
    assert {hit["rank"] for hit in run(capsys, "check", dump, "--watch", "TO", "--json").json["hits"]} == {2}
    for rank in (2, 4, 7):
        for step in range(STEPS):
            for name in ("dump.json", "construct.json", "stack.json"):
                healthy = dump / f"step{step}" / "rank0" / name
                (dump / f"step{step}" / f"rank{rank}" / name).write_bytes(healthy.read_bytes())
    assert not run(capsys, "ranks", dump, "--json", "--no-cache").json["findings"]


def test_a_rank_that_is_written_anew_is_read_anew(dump: Path) -> None:
    with closing(open_source(dump)) as source:
        before = [source.tensors(rank, 0) for rank in range(RANKS)]
        file = dump / "step0" / "rank3" / "dump.json"
        calls = json.loads(file.read_text())
        tensors_in(calls["data"])[0]["Max"] = 12345.0
        file.write_text(json.dumps(calls))
        assert source.refresh().grown_steps == ((3, 0),)
        largest = [
            max(found.maximum or 0.0 for at in range(len(table)) if (found := table.recorded(at)) is not None)
            for table in (source.tensors(rank, 0) for rank in (0, 3, 5))
        ]
        assert largest[1] == 12345.0
        assert largest[0] == largest[2] < 12345.0
        assert source.tensors(5, 0) is before[5]


def test_each_rank_adds_its_own_nodes(dump: Path) -> None:
    """Row numbers of one rank never change: what it adds stands behind what it has, whatever other ranks add."""
    with closing(open_source(dump)) as source:
        first = {rank: source.nodes(rank) for rank in range(RANKS)}
        for step in range(STEPS):
            for rank in range(RANKS):
                table, nodes = source.tensors(rank, step), source.nodes(rank)
                assert nodes.lineage is first[rank].lineage
                assert nodes.names[: len(first[rank])] == first[rank].names
                assert int(table.node.max()) < len(nodes)
                assert {int(Side.INPUT), int(Side.OUTPUT)} >= set(table.side.tolist())
        assert len({id(each.lineage) for each in first.values()}) == RANKS


def test_equal_ranks_take_next_to_no_memory(dumps: Dumps, tmp_path: Path) -> None:
    (directory,) = (dumps("msprobe-mix") / "good" / "step0").iterdir()
    calls = json.dumps(without_values(json.loads((directory / "dump.json").read_text())))
    for rank in range(12):
        target = tmp_path / "step0" / f"rank{rank}"
        target.mkdir(parents=True)
        (target / "dump.json").write_text(calls)
        (target / "construct.json").write_bytes((directory / "construct.json").read_bytes())
    with closing(open_source(tmp_path)) as source:
        source.tensors(0, 0), source.tensors(1, 0)
        tracemalloc.start()
        for rank in range(2, 12):
            source.tensors(rank, 0)
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert taken < 10 * 20_000
