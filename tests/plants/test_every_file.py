"""Every file of every recorder's dump in turn filled with zeros, cut in half, emptied, or without one page: a doubt.

What may stay without one: files that say nothing of tensors, and bytes that are values, of which zeros are as good as
any others.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from tests import thorough
from tests.ascend_files import write_device_dump
from tests.cli.running import Answer, run
from tests.linked import linked, own
from tests.mounts.places import LAYOUTS, local
from tests.sources.writer import MLP, write_dump

Dumps = Callable[[str], Path]
PAGE: Final = 4096
DAMAGES: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "zeros": lambda raw, _: bytes(len(raw)),
    "half": lambda raw, _: raw[: len(raw) // 2].rstrip(b"\r\n"),  # text that ends behind a line looks whole
    "empty": lambda raw, _: raw[:0],
    "a page of zeros": lambda raw, at: raw[:at] + bytes(len(raw[at : at + PAGE])) + raw[at + PAGE :],
}
SAYS_NOTHING: Final = re.compile(
    r"(.*/)?(expected\.json|_run/.*"  # beside the samples
    r"|.*\.debug_string\.txt|.*/ms_output_trace_code_graph_\d+\.ir"  # for people; JSON and .pb say the same
    r"|overflow_check_result/.*"  # what msprobe made of the dump
    r"|\.dump_metadata/.*|configurations\.json"  # settings of the recorder
    r"|data/\w+/step\d+/rank\d+/.*\.json"  # of SingleSave: statistics of the values that lie beside
    r")"
)
VALUES: Final = re.compile(r".*\.(npy|npz|pt|pth|safetensors|bin)|.*\.\d{10,}")
"""Files most of whose bytes are values."""
RAW: Final = re.compile(r".*_shape_.*\.bin")
"""Files of values alone: MindSpore 1.1 says in the name what they are."""


def device_dump(folder: Path, dumps: Dumps) -> Path:  # noqa: ARG001 - as the others
    write_device_dump(folder)
    return folder


def statistics(folder: Path, dumps: Dumps) -> Path:  # noqa: ARG001 - as the others
    writer = write_dump(folder, steps=())
    for step in range(3):
        values = np.arange(6, dtype="f4").reshape(2, 3) + step
        rows = [(node.type, node.name, "output", 0, values) for node in MLP.nodes]
        writer.statistics(step, rows)
    writer.history((0, 1, 2))
    return folder


def killed_msprobe(folder: Path, dumps: Dumps) -> Path:
    whole = linked(dumps("msprobe-mindspore"), folder) / "dump"
    for file in whole.rglob("dump.json"):
        own(file).write_bytes(file.read_bytes()[:90_000])
    return whole


WRITTEN: Final[dict[str, Callable[[Path, Dumps], Path]]] = {
    "device": device_dump,
    "statistics": statistics,
    "msprobe-mindspore, cut": killed_msprobe,
}
KINDS: Final = (*WRITTEN, *LAYOUTS, "pytorch-debugmode/good", "msprobe-monitor/v1")


def place_of(kind: str, folder: Path, dumps: Dumps) -> Path:
    """A dump of a kind that may be changed."""
    if kind in WRITTEN:
        return WRITTEN[kind](folder, dumps)
    place = local(kind, folder, dumps)
    if place == folder:
        return folder
    name, _, part = kind.partition("/")
    return linked(dumps(name), folder) / part


def kinds_of(root: Path) -> list[list[Path]]:
    """The files with something in them, those of a kind together."""
    found: dict[str, list[Path]] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.stat().st_size and not SAYS_NOTHING.fullmatch(path.relative_to(root).as_posix()):
            name = path.suffix if VALUES.fullmatch(path.name) else re.sub(r"\d+", "N", path.name)
            found.setdefault(name, []).append(path)
    return list(found.values())


def is_doubted(answer: Answer) -> bool:
    """Tells whether a check says that something could not be looked at."""
    document = answer.json
    return bool("error" in document or document["unreadable"] or document["coverage"]["unreadable"])


def places(path: Path, damage: str, chance: random.Random) -> Sequence[int]:
    """The pages to damage: of values the first and the last one, which hold more than these."""
    last = (path.stat().st_size - 1) // PAGE
    if damage != "a page of zeros":
        return (0,)
    return [PAGE * page for page in {0, last if VALUES.fullmatch(path.name) else chance.randint(0, last)}]


@pytest.mark.covering
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_a_doubt(
    dumps: Dumps, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, damage: str
) -> None:
    chance = random.Random(f"{kind} {damage}")  # noqa: S311 - the same files in every run
    root = place_of(kind, tmp_path / "dump", dumps)
    silent = []
    for files in thorough.share(kinds_of(root), 6):
        for path in chance.sample(files, min(len(files), 2)):
            if damage in {"zeros", "a page of zeros"} and RAW.fullmatch(path.name):
                continue
            raw = own(path).read_bytes()
            for at in places(path, damage, chance):
                if path.suffix in {".npy", ".safetensors"} and at:  # values to the end
                    continue
                path.write_bytes(DAMAGES[damage](raw, at))
                answer = run(capsys, "check", root, "--watch", "TO", "--json", "--no-cache")
                if answer.code == 0 or not is_doubted(answer):
                    silent.append(f"{path.relative_to(root)} at {at}: {answer.code}")
            path.write_bytes(raw)
    assert not silent
