"""A check that several jobs share: four shards in four processes, merged, give the answers of one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Answer, file_of, run
from tests.opened_files import opened_tensor_files
from tests.sources.writer import write_dump
from tui_debugger.check.shards import IndexPart, Shard, pack_part, shard_mask, unpack_part
from tui_debugger.session.session import open_dump

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]
NAN = "mindspore-2.0-nan"


def settled(dump: Path) -> Path:
    """The same dump, old enough that what is known of its files is believed."""
    for file in dump.rglob("*"):
        if file.is_file():
            os.utime(file, (1_700_000_000, 1_700_000_000))
    return dump


def answer(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in {"seconds", "path"}}


def part_of(path: Path) -> tuple[str, str]:
    return "--part", str(path)


def shards(capsys: Capsys, dump: Path, folder: Path, of: int) -> list[Path]:
    found = []
    for number in range(1, of + 1):
        part = folder / f"part{number}"
        assert run(capsys, "check", dump, "--shard", f"{number}/{of}", "--part", part, "--no-cache").code == 0
        found.append(part)
    return found


@pytest.mark.parametrize("kind", ["real", "two ranks"])
def test_four_processes_give_the_answers_of_one(capsys: Capsys, dumps: Dumps, tmp_path: Path, kind: str) -> None:
    dump = tmp_path / "dump"
    if kind == "real":
        shutil.copytree(dumps(NAN), dump)
    else:
        write_dump(dump, ranks=(0, 1), steps=range(4))
    settled(dump)
    alone = run(capsys, "check", dump, "--no-cache", "--json")
    parts = [tmp_path / f"part{number}" for number in range(1, 5)]
    jobs = [
        subprocess.Popen(
            [sys.executable, "-m", "tui_debugger", "check", dump, "--no-cache", f"--shard={number}/4", *part_of(part)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number, part in enumerate(parts, 1)
    ]
    for job in jobs:
        _, errors = job.communicate(timeout=120)
        assert job.returncode == 0, errors
    merged = run(capsys, "merge", dump, *parts)
    assert (merged.code, merged.lines) == (0, ["4 parts of 4 merged into the index"])
    with opened_tensor_files() as opened:
        again = run(capsys, "check", dump, "--json", "--jobs", "1")
    assert opened == []
    assert again.code == alone.code
    assert answer(again.json) == answer(alone.json)


def test_shards_divide_all_tensors_and_share_none(dumps: Dumps) -> None:
    session = open_dump(dumps(NAN), remember=False)
    table, nodes = session.flow(0).table(2), session.nodes(0)
    masks = [shard_mask(nodes, table, 0, Shard(number, 3)) for number in (1, 2, 3)]
    session.close()
    assert (sum(mask.astype(int) for mask in masks) == 1).all()
    assert all(mask.sum() > len(table) / 6 for mask in masks)


def test_a_missing_part_is_named(capsys: Capsys, tmp_path: Path) -> None:
    dump = settled(write_dump(tmp_path / "dump").root)
    first, _, third = shards(capsys, dump, tmp_path, 3)
    merged = run(capsys, "merge", dump, first, third)
    assert merged.code == 2
    assert "part 2 of 3 is missing: tdbg check will read its tensors" in merged.out


def test_parts_of_the_same_rows_are_put_beside_each_other(capsys: Capsys, tmp_path: Path) -> None:
    dump = settled(write_dump(tmp_path / "dump").root)
    first, second = shards(capsys, dump, tmp_path, 2)
    assert run(capsys, "merge", dump, first).code == 2
    assert run(capsys, "merge", dump, second).code == 2
    with opened_tensor_files() as opened:
        run(capsys, "check", dump, "--jobs", "1")
    assert opened == []


def test_a_file_that_changed_since_is_read_again(capsys: Capsys, tmp_path: Path) -> None:
    dump = settled(write_dump(tmp_path / "dump").root)
    parts = shards(capsys, dump, tmp_path, 2)
    run(capsys, "merge", dump, *parts)
    path = file_of(dump, "rank_0/Net/0/1/ReLU.*.output.0.*.npy")
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\xc0\x7f")
    changed: Answer = run(capsys, "check", dump, "--watch", "TO", "--jobs", "1")
    assert changed.code == 1


def test_an_unreadable_tensor_of_a_shard_is_a_doubt(capsys: Capsys, tmp_path: Path) -> None:
    dump = settled(write_dump(tmp_path / "dump").root)
    file_of(dump, "rank_0/Net/0/1/ReLU.*.output.0.*.npy").write_bytes(b"no array")
    codes = [run(capsys, "check", dump, "--shard", f"{n}/2", "--part", tmp_path / f"p{n}").code for n in (1, 2)]
    assert sorted(codes) == [0, 2]


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/", "a/b", "-1/4", "1/0"])
def test_a_shard_is_one_of_a_number(capsys: Capsys, dump: Path, text: str) -> None:
    assert run(capsys, "check", dump, f"--shard={text}").code == 2


def test_a_part_of_another_dump_is_refused(capsys: Capsys, tmp_path: Path) -> None:
    one, two = (write_dump(tmp_path / name).root for name in ("one", "two"))
    (part,) = shards(capsys, one, tmp_path, 1)
    refused = run(capsys, "merge", two, part)
    assert refused.code == 2
    assert "this part is of another dump" in refused.err


def test_a_file_that_is_no_part_is_neither_merged_nor_replaced(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    other = tmp_path / "letter"
    other.write_text("dear reader")
    assert run(capsys, "merge", dump, other).code == 2
    assert run(capsys, "check", dump, "--shard", "1/1", "--part", other).code == 2
    assert other.read_text() == "dear reader"


def test_a_damaged_part_is_refused_as_a_whole() -> None:
    part = IndexPart("/run", 1, 2, {b"key": b"payload" * 9, b"other": b""})
    data = pack_part(part)
    assert unpack_part(data) == part
    for at in range(len(data)):
        assert unpack_part(data[:at]) is None
        assert unpack_part(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) is None


@pytest.mark.parametrize(
    ("shard", "says"),
    [("0/4", "parts are 1/4 to 4/4"), ("5/4", "parts are 1/4 to 4/4"), ("2", "write I/N"), ("1/0", "write I/N")],
)
def test_what_is_no_part_says_which_there_are(capsys: pytest.CaptureFixture[str], shard: str, says: str) -> None:
    answer = run(capsys, "check", "anywhere", "--shard", shard)
    assert answer.code == 2
    assert says in answer.err
