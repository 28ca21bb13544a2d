"""Steps that lack what the steps beside them have: a run that was killed, a full disk, a copy that was cut."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.linked import linked
from tests.sources.writer import DumpWriter, write_dump, write_step
from tui_debugger.model import UnreadablePart
from tui_debugger.sources.mindspore.rank import nearest
from tui_debugger.sources.registry import open_source

Capsys = pytest.CaptureFixture[str]
STEPS = range(6)


@pytest.fixture
def writer(tmp_path: Path) -> DumpWriter:
    return write_dump(tmp_path / "dump", steps=STEPS)


def lose(writer: DumpWriter, step: int, pattern: str) -> int:
    """Removes files of a step; how many."""
    lost = list((writer.root / "rank_0" / writer.net / "0" / str(step)).glob(pattern))
    for path in lost:
        path.unlink()
    return len(lost)


def incomplete(root: Path, steps: list[int] | None = None) -> list[UnreadablePart]:
    """What is said of the steps of rank 0, or of some of them, in the order in which they are looked at."""
    source = open_source(root)
    for step in source.steps(0) if steps is None else steps:
        source.tensors(0, step)
    return [part for part in source.unreadable() if part.incomplete]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("alone", [False, True])
def test_one_file_that_all_other_steps_have_is_missed(writer: DumpWriter, step: int, alone: bool) -> None:
    assert lose(writer, step, "ReLU*output.0*") == 1
    beside = nearest(list(STEPS), step)
    (part,) = incomplete(writer.root, [step] if alone else None)
    assert (part.rank, part.step, part.graph) == (0, step, False)
    assert part.where == f"rank_0/{writer.net}/0/{step}"
    assert part.why.startswith("nothing of ReLU.")
    assert part.why.endswith(f"output 0 that steps {beside[0]} and {beside[1]} have: was the dump cut?")


@pytest.mark.parametrize(
    ("steps", "step", "others"),
    [
        ([0, 1, 2, 5, 9], 9, [2, 5]),
        ([0, 1, 2, 5, 9], 2, [0, 1]),
        ([0, 1, 2, 5, 9], 1, [0, 2]),
        ([0, 1, 2, 5, 9], 0, [1, 2]),
        ([3, 4], 4, [3]),
        ([3], 3, []),
    ],
)
def test_a_step_is_compared_with_the_two_before_it_else_the_nearest(
    steps: list[int], step: int, others: list[int]
) -> None:
    assert nearest(steps, step) == others


def test_of_two_steps_nobody_knows_which_is_whole(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    lose(writer, 1, "ReLU*")
    assert incomplete(tmp_path) == []


def test_what_runs_in_every_fourth_step_is_not_missed_between(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=range(12))
    for step in range(12):
        if step % 4 != 3:
            lose(writer, step, "Parameter*")
    assert incomplete(tmp_path) == []


def test_a_step_that_has_more_than_the_others_is_whole(writer: DumpWriter) -> None:
    for step in range(5):
        lose(writer, step, "ReLU*")
    assert incomplete(writer.root) == []


def test_a_step_that_is_being_written_is_whole_once_it_is(writer: DumpWriter) -> None:
    lose(writer, 5, "[MP]*")
    source = open_source(writer.root)
    source.tensors(0, 5)
    (part,) = source.unreadable()
    assert "more tensors that steps 3 and 4 have" in part.why
    write_step(writer, 5)
    source.refresh()
    source.tensors(0, 5)
    assert not source.unreadable()


def test_a_step_beside_that_is_whole_now_is_compared_anew(writer: DumpWriter) -> None:
    for step in (3, 5):
        lose(writer, step, "ReLU*output.0*")
    source = open_source(writer.root)
    source.tensors(0, 5)
    assert not source.unreadable()
    write_step(writer, 3)
    source.refresh()
    source.tensors(0, 5)
    (part,) = source.unreadable()
    assert part.step == 5


def test_a_dump_of_operators_that_overflowed_has_other_tensors_in_every_step(writer: DumpWriter) -> None:
    path = writer.root / "rank_0" / ".dump_metadata" / "data_dump.json"
    settings = json.loads(path.read_text())
    settings["common_dump_settings"]["op_debug_mode"] = 3
    path.write_text(json.dumps(settings))
    lose(writer, 5, "ReLU*")
    assert incomplete(writer.root) == []


def test_rows_of_statistics_are_missed_as_files_are(tmp_path: Path, dumps: Callable[[str], Path]) -> None:
    root = linked(dumps("mindspore-2.10-mlp"), tmp_path / "dump")
    net = next(path for path in (root / "rank_0").iterdir() if (path / "0").is_dir())
    before = incomplete(root)
    for step in (net / "0").iterdir():
        rows = [
            f"{path.name.split('.')[0]},{path.name.split('.')[1]},0,0,1,{path.name.split('.')[5]},"
            f'{path.name.split(".")[6]},4,float32,"(1,)",1,1,1'
            for path in sorted(step.glob("*.npy"))
            if path.name.split(".")[5] in ("input", "output")
        ]
        shutil.rmtree(step)
        step.mkdir()
        kept = rows[: len(rows) // 2] if step.name == "5" else rows
        head = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value"
        (step / "statistic.csv").write_text("\n".join([f"{head},Avg Value", *kept]) + "\n")
    assert before == []
    (part,) = incomplete(root)
    assert part.step == 5


@pytest.mark.parametrize(
    "command", [("check", "--watch", "TL max_gt=1e30"), ("origin",), ("stat",), ("ls",), ("ls", "--steps")]
)
def test_it_is_never_clean(capsys: Capsys, writer: DumpWriter, command: tuple[str, ...]) -> None:
    name, *options = command
    assert run(capsys, name, writer.root, *options).code == 0
    lose(writer, 5, "[MP]*")
    for steps in ((), ("--step", "5")):
        answer = run(capsys, name, writer.root, *options, *(steps if "--steps" not in options else ()))
        assert answer.code == 2
        assert "incomplete" in answer.out + answer.err
    if name != "ls":
        assert run(capsys, name, writer.root, *options, "--step", "0-4").code == 0


def test_it_can_be_accepted(capsys: Capsys, writer: DumpWriter) -> None:
    lose(writer, 5, "ReLU*output.0*")
    command = ("check", writer.root, "--watch", "TL max_gt=1e30")
    answer = run(capsys, *command)
    assert answer.code == 2
    assert "1 step is incomplete: rank_0/" in answer.out + answer.err
    answer = run(capsys, *command, "--allow-unreadable")
    assert answer.code == 0
    assert "steps that are incomplete are allowed" in answer.out + answer.err


def test_what_is_there_of_it_is_judged(capsys: Capsys, writer: DumpWriter) -> None:
    lose(writer, 5, "ReLU*output.0*")
    answer = run(capsys, "check", writer.root, "--watch", "TL max_gt=-9", "--step", "5")
    assert answer.code == 1


def test_real_dumps_are_complete(dumps: Callable[[str], Path]) -> None:
    """Also of a net with loops and branches, and of two graphs that take turns."""
    for name in ("2.0-multi-flow", "2.10-multi-flow", "2.10-multi-order", "2.0-multi-gan", "2.0-mlp", "2.10-nan"):
        assert incomplete(dumps(f"mindspore-{name}")) == [], name
