"""Asynchronous dumps with something wrong in one file: that file is said to be wrong, all others are looked at."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ascend_files import (
    DeviceDump,
    Overflow,
    Written,
    damaged,
    file_bytes,
    overflow_bytes,
    overflow_json,
    task_of,
    write,
    write_device_dump,
)
from tests.sources.writer import MLP
from tests.thorough import later
from tui_debugger.cli.main import main

RELU = MLP.nodes[1].name
NONE = np.ones((2, 3), np.float32)
Check = Callable[..., dict[str, Any]]
MOST_MEMORY = 256 << 10
"""Kilobytes by which the process may grow, whatever a damaged file claims to be."""


def dumped(root: Path) -> tuple[DeviceDump, dict[str, Path]]:
    """A dump with a file of every kind; none of them repeats what another one tells."""
    dump = write_device_dump(root, steps=(0, 1))
    core = Overflow(task_of(RELU), 2, 0x20)
    weights = [Written(np.ones((4, 6, 2, 2), np.float32), format="FRACTAL_Z", groups=2), Written(NONE, format="ND")]
    name = dump.file_name("Conv2D", "Default/network-Net/conv-Conv2D/Conv2D-op8", 40)
    long = dump.file_name("Mul", "Default/network-Net/long-Mul/Mul-op9", 41)
    step = dump.writer.step(1)
    rows = [("Foo", f"Foo-op{number}", "output", 0, NONE) for number in (1, 2, 3)]
    np.save(step / "123456789.npy", NONE)
    return dump, {
        "tensors": next(path for path in sorted(dump.writer.step(0).iterdir()) if path.name.startswith("MatMul")),
        "weights": write(step / name, file_bytes(weights[1:], weights[:1])),
        "record": dump.overflow(0, overflow_bytes({"AI Core": core})),
        "record as JSON": dump.overflow(1, overflow_json({"AI Core": core})),
        "mapping.csv": write(step / "mapping.csv", f"123456789.npy,{long}.output.0.ND.npy\n".encode()),
        "statistic.csv": dump.writer.statistics(1, rows),
        "data_dump.json": dump.writer.rank() / ".dump_metadata" / "data_dump.json",
    }


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    """What ``tdbg check --json`` says of a dump."""

    def check(root: Path, *watches: str) -> dict[str, Any]:
        words = [word for watch in watches for word in ("--watch", watch)]
        capsys.readouterr()
        code = main(["check", str(root), *words, "--no-cache", "--jobs", "1", "--json"])
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        document: dict[str, Any] = json.loads(shown.out)
        assert document["exit_code"] == code
        return document

    return check


def held(document: dict[str, Any], good: dict[str, Any], kind: str, path: Path, cut: int = 0) -> None:
    """Nothing but what stands in the damaged file is missing, and that it is missing is said.

    Nobody can know of whole lines that are ``cut`` from a table.
    """
    coverage, before = document["coverage"], good["coverage"]
    lost = before["checked"] - coverage["checked"]
    said = [reason["text"] for reason in document["reasons"]]
    assert all(each["why"] for each in document["unreadable"])
    own = 3 if kind in {"tensors", "weights", "statistic.csv"} else 1
    assert lost <= own, "all other files are looked at"
    assert coverage["unreadable"] <= 2 * own, "with what is made of them in another step"
    if document["exit_code"] == 0:
        assert not said
        assert lost <= cut, f"{path.name}: what is not looked at is said"
    elif lost > 0 or coverage["unreadable"]:
        assert said


def lines_cut(good: bytes, data: bytes) -> int:
    """How many lines a table has lost, where it ends after a whole line."""
    return max(good.count(b"\n") - data.count(b"\n"), 0) if data.endswith(b"\n") else 0


def mutations(good: bytes, count: int, seed: int) -> Iterator[bytes]:
    rng = np.random.default_rng(seed)
    yield b""
    for _ in range(count - 1):
        yield damaged(good, rng)


KINDS = ("tensors", "weights", "record", "record as JSON", "mapping.csv", "statistic.csv", "data_dump.json")


@pytest.mark.parametrize("count", [14, later(1450)])
@pytest.mark.parametrize("kind", KINDS)
def test_one_damaged_file_hides_nothing_else(tmp_path: Path, check: Check, kind: str, count: int) -> None:
    """Each kind of file, so and so often: the dump is opened, listed, measured and judged."""
    dump, files = dumped(tmp_path)
    assert tuple(files) == KINDS
    path = files[kind]
    good, content = check(dump.writer.root, "TO"), path.read_bytes()
    assert (good["exit_code"], good["coverage"]["unreadable"]) == (0, 0)
    assert len(check(dump.writer.root, "OO")["hits"]) == 2
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + MOST_MEMORY
    codes = set()
    for number, data in enumerate(mutations(content, count, KINDS.index(kind))):
        path.write_bytes(data)
        if kind.startswith("record") and number % 2:
            document = check(dump.writer.root, "OO")
            assert len(document["hits"]) == 2 or document["reasons"]
        else:
            document = check(dump.writer.root, "TO")
            held(document, good, kind, path, lines_cut(content, data) if path.suffix == ".csv" else 0)
        codes.add(document["exit_code"])
    assert codes >= ({0} if kind == "data_dump.json" else {2})
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < most
    path.write_bytes(content)
    assert check(dump.writer.root, "TO")["coverage"] == good["coverage"]
