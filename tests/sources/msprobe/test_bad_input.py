"""Real dumps with damaged files: no crash, no hang, no memory without end, and what is lost is said."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests import thorough
from tests.cli.running import run
from tests.linked import linked, own
from tui_debugger.errors import TdbgError
from tui_debugger.sources import open_source
from tui_debugger.sources.base import TensorFlag
from tui_debugger.stats.npy import open_array

Dumps = Callable[[str], Path]
SAMPLES = ("msprobe-mix-2rank-mb-md5", "msprobe-debug-save", "msprobe-L0-slice", "msprobe-structure")


def looked_at(path: Path) -> tuple[int, int]:
    """Number of tensors and of parts that cannot be read, after everything was asked for."""
    source = open_source(path)
    count = 0
    for rank in source.ranks():
        for step in source.steps(rank):
            table, nodes = source.tensors(rank, step), source.nodes(rank)
            count += len(table)
            assert table.node.max(initial=-1) < len(nodes)
            assert np.all(np.diff(table.order) > 0)
            for at in range(0, len(table), 41):
                table.recorded(at)
                table.recorded_meta(at)
                if not table.flags[at] & TensorFlag.STAT_ONLY:
                    try:
                        open_array(table.spec(at))
                    except TdbgError:
                        continue
            list(source.recorded_rows(rank, step) or ())
    assert source.info.layout
    source.refresh()
    return count, len(source.unreadable())


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Some bytes of a file changed, lost, doubled or put elsewhere."""
    kind, at = chance.randrange(6), chance.randrange(len(content))
    length = min(chance.choice((1, 2, 9, 80, 900)), len(content) - at)
    part = content[at : at + length]
    if kind == 0:
        return content[:at]
    if kind == 1:
        return content[:at] + content[at + length :]
    if kind == 2:
        return content[:at] + part * chance.choice((2, 3, 40)) + content[at + length :]
    if kind == 3:
        return content[:at] + bytes(chance.randrange(256) for _ in part) + content[at + length :]
    words = (b"null", b"NaN", b"-Infinity", b"[]", b"{}", b"-1", b'"x"', b"1e999", b"9" * 400, b"true", b"[[[[", b'""')
    if kind == 4:
        return content[:at] + chance.choice(words) + content[at:]
    other = chance.randrange(len(content))
    return content[:at] + content[other : other + length] + content[at + length :]


@pytest.mark.parametrize(
    "seed", [*range(5), *(thorough.later(seed) for seed in range(5, 500))], ids=lambda seed: f"seed{seed}"
)
def test_mutated_files(dumps: Dumps, tmp_path: Path, seed: int) -> None:
    """Twenty changes for each seed: 100 every time, 10,000 in a thorough run."""
    chance = random.Random(seed)  # noqa: S311 - the same damage in every run
    sample = dumps(SAMPLES[seed % len(SAMPLES)])
    kept = chance.choice(sorted(path.name for path in sample.rglob("step*")))
    path = linked(
        sample, tmp_path / "dump", lambda _, names: [each for each in names if each.startswith("step") and each != kept]
    )
    files = sorted(path.rglob("*.json")) + sorted(path.rglob("*.pt"))[:1]
    for _ in range(20):
        file = own(chance.choice([each for each in files if each.stat().st_size]))
        content = file.read_bytes()
        file.write_bytes(damaged(content, chance))
        looked_at(path)
        file.write_bytes(content)


@pytest.mark.covering
@pytest.mark.parametrize("name", ["dump.json", "construct.json", "stack.json"])
@pytest.mark.parametrize("kind", ["fifo", "device", "directory", "dangling"])
def test_anything_in_place_of_a_file(dumps: Dumps, tmp_path: Path, name: str, kind: str) -> None:
    path = linked(dumps("msprobe-mix-2rank-mb-md5"), tmp_path / "whole") / "dump"
    file = path / "step1/rank0" / name
    file.unlink()
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    elif kind == "directory":
        file.mkdir()
    else:
        file.symlink_to(tmp_path / "nothing")
    count, parts = looked_at(path)
    assert parts == 1
    assert count >= 9 * 700


def test_what_cannot_be_read_is_a_doubt(dumps: Dumps, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = linked(dumps("msprobe-mix"), tmp_path / "whole") / "good"
    assert run(capsys, "check", path, "--watch", "TO").code == 0
    (damaged_file,) = path.glob("step1/*/stack.json")
    own(damaged_file).write_text("{")
    (calls,) = path.glob("step0/*/dump.json")
    own(calls).write_bytes(calls.read_bytes()[:-5])
    answer = run(capsys, "check", path, "--watch", "TO")
    assert answer.code == 2
    assert "incomplete, or damaged" in answer.out


def test_of_a_lost_file_the_statistics_are_judged(
    dumps: Dumps, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = linked(dumps("msprobe-mix"), tmp_path / "whole") / "good"
    next(path.glob("step1/*/dump_tensor_data/Functional.gelu.0.forward.output.0.pt")).unlink()
    answer = run(capsys, "check", path, "--watch", "TO")
    assert answer.code == 2
    assert "1 file with values gone" in answer.out


def test_without_any_values_there_are_the_statistics(
    dumps: Dumps, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = linked(dumps("msprobe-mix"), tmp_path / "whole") / "nan"
    for directory in path.glob("step*/*/dump_tensor_data"):
        shutil.rmtree(directory)
    answer = run(capsys, "origin", path, "--json")
    assert answer.code == 1
    assert [each["node"] for each in answer.json["origins"]] == ["Torch.log"]
    assert any("no dump_tensor_data" in notice for notice in answer.json["notices"])
