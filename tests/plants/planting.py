"""Copies of real dumps in which one file at a time is damaged, and what ``tdbg check`` answers about them.

Which file a hit is about is decided by names alone, so that a wrong assignment inside the program cannot hide.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tests.session.opened import opened
from tests.thorough import later
from tui_debugger.cli.main import main
from tui_debugger.model import Category, Side

Array = npt.NDArray[Any]
Finding = tuple[int, int, str, str, int]
"""Rank, step, node, side, slot."""

HEALTHY = {
    "mindspore-2.0-mlp": range(6),
    "mindspore-2.10-mlp": range(6),
    "mindspore-2.0-nan": range(3),
    "mindspore-2.10-nan": range(3),
}
"""The steps of each dump that have no bad value."""
DUMPS = tuple(HEALTHY)
ONCE = [later("mindspore-2.0-mlp"), "mindspore-2.10-mlp", "mindspore-2.0-nan", later("mindspore-2.10-nan")]
"""Parameters: each network and each generation every day, all of them in a thorough run."""
RANKS = {name: (0, 1, 2) if name.endswith("mlp") else (0, 3) for name in DUMPS}
"""The ranks of each copy: all the same values."""
NAME = re.compile(
    r"(?P<op>[^.]+)\.(?P<name>.+)\.\d+\.\d+\.\d+\.(?P<side>input|output)\.(?P<slot>\d+)\.DefaultFormat(\.\w+)?\.npy"
)
SIDES = ("output", "input")
WATCH_ALL = " @ category=tensor"


@dataclass(frozen=True)
class File:
    """A tensor file: where it is, and what it holds the values of."""

    path: Path
    rank: int
    step: int
    op: str
    name: str
    side: str
    slot: int
    holds: Category

    @property
    def place(self) -> tuple[str, str, int]:
        """The same in every step."""
        return self.name, self.side, self.slot

    def load(self) -> Array:
        """The values, writable."""
        values: Array = np.load(self.path)
        return values


@dataclass
class Answer:
    """What one command said: its exit code and its JSON document."""

    code: int
    document: dict[str, Any]

    @property
    def hits(self) -> list[dict[str, Any]]:
        """All rows, findings or not."""
        rows: list[dict[str, Any]] = self.document["hits"]
        return rows

    @cached_property
    def findings(self) -> dict[int, set[Finding]]:
        """What each watchpoint found, or could not judge because of the NaN or Inf that makes it a finding."""
        found: dict[int, set[Finding]] = {}
        for hit in self.hits:
            key = (hit["rank"], hit["step"], hit["node"], hit["side"], hit["slot"])
            for result in hit["results"]:
                if result["verdict"] in ("finding", "blocked"):
                    found.setdefault(result["watchpoint"], set()).add(key)
        return found

    @property
    def found(self) -> set[Finding]:
        """What any watchpoint found."""
        return set().union(*self.findings.values())


def check(root: Path, *arguments: str) -> Answer:
    """Runs ``tdbg check``; the document must be JSON in the strict sense."""

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(constant)

    out = io.StringIO()
    with redirect_stdout(out):
        code = main(["check", str(root), "--json", *arguments])
    document = json.loads(out.getvalue(), parse_constant=refuse)
    assert document["exit_code"] == code
    return Answer(code, document)


def watches(*texts: str) -> tuple[str, ...]:
    """Arguments for watchpoints; without ``@`` they cover every tensor."""
    return tuple(word for text in texts for word in ("--watch", text if "@" in text else text + WATCH_ALL))


@dataclass
class Ground:
    """A copy of a dump with several ranks, made of links: a plant replaces a link for a while."""

    name: str
    root: Path
    _healthy: dict[tuple[str, ...], Answer] = field(default_factory=dict)

    @cached_property
    def files(self) -> tuple[File, ...]:
        """Every tensor file of the healthy steps, of all ranks."""
        session = opened(self.root)
        nodes, flow = session.nodes(0), session.flow(0)
        found = []
        for step in HEALTHY[self.name]:
            table = session.source.tensors(0, step)
            for i in range(len(table)):
                path, row, side = Path(table.spec(i).path), int(table.node[i]), Side(int(table.side[i]))
                if path.parent.name == "constants":
                    continue
                holder = row if side is Side.OUTPUT else flow.holder(row, int(table.slot[i])).row
                found += [self._file(path, rank, nodes.category_of(holder)) for rank in RANKS[self.name]]
        return tuple(sorted(found, key=lambda file: file.path))

    def _file(self, path: Path, rank: int, holds: Category) -> File:
        match = NAME.fullmatch(path.name)
        assert match is not None, path.name
        there = self.root / f"rank_{rank}" / path.relative_to(self.root / "rank_0")
        step = int(path.parent.name)
        return File(there, rank, step, match["op"], match["name"], match["side"], int(match["slot"]), holds)

    @cached_property
    def _by_place(self) -> dict[tuple[object, ...], File]:
        return {(file.rank, file.step, *file.place): file for file in self.files}

    def before(self, file: File) -> File | None:
        """The same tensor at the step before."""
        return self._by_place.get((file.rank, file.step - 1, *file.place))

    def after(self, file: File) -> File | None:
        """The same tensor at the step after."""
        return self._by_place.get((file.rank, file.step + 1, *file.place))

    def changes(self, file: File) -> bool:
        """Whether a tensor is clearly not what it was at the step before."""
        before = self.before(file)
        return before is not None and not np.allclose(file.load(), before.load(), 1e-4, 1e-7)

    def pick(self, chance: np.random.Generator, wanted: Callable[[File], bool] = lambda _: True) -> File:
        """A random file of float values that is wanted."""
        for at in chance.permutation(len(self.files)):
            file = self.files[int(at)]
            if wanted(file) and file.load().dtype == np.float32:
                return file
        raise AssertionError("nothing fits")

    @staticmethod
    def needed(file: File | None) -> File:
        """A file that has to be there."""
        assert file is not None
        return file

    def of(self, rank: int, step: int) -> list[File]:
        """The files of one step of one rank."""
        return [file for file in self.files if (file.rank, file.step) == (rank, step)]

    @contextmanager
    def planted(self, file: File, content: Array | bytes | None, slot: int = 0) -> Iterator[None]:
        """Other values, other bytes, or nothing in the place of a file for a while; nested ones have other slots."""
        kept = self.root.with_name(f"{self.root.name}.kept{slot}")
        assert not kept.exists()
        file.path.replace(kept)
        try:
            if isinstance(content, bytes):
                file.path.write_bytes(content)
            elif content is not None:
                np.save(file.path, content)
            yield
        finally:
            kept.replace(file.path)

    def healthy(self, *arguments: str) -> Answer:
        """The answer about the copy without a plant."""
        if arguments not in self._healthy:
            self._healthy[arguments] = check(self.root, *arguments)
        return self._healthy[arguments]

    def is_about(self, finding: Finding, file: File) -> bool:
        """Whether a finding names a file."""
        rank, step, node, side, slot = finding
        if (rank, step, side, slot) != (file.rank, file.step, file.side, file.slot):
            return False
        old = "-2.0-" in self.name
        named = node.rpartition("/")[2] if old else re.sub(r"[/.]", "_", node)
        if old or file.op not in ("AddN", "Mul"):
            return named == file.name
        # The graph and the files number these differently: which is whose is decided by their values.
        if re.sub(r"\d+$", "", named) != re.sub(r"\d+$", "", file.name):
            return False
        session = opened(self.root)
        table = session.source.tensors(rank, step)
        index = table.find(session.nodes(rank).find(node), Side[side.upper()], slot)
        return Path(table.spec(index).path) == file.path

    def about(self, answer: Answer, file: File) -> set[Finding]:
        """The findings of an answer that name a file."""
        return {finding for finding in answer.found if self.is_about(finding, file)}


def make_ground(name: str, dump: Path, target: Path) -> Ground:
    """Links a dump's files into several ranks; the last rank has what real later ranks have: no metadata of its own."""
    ranks = RANKS[name]
    for rank in ranks:
        shutil.copytree(dump / "rank_0", target / f"rank_{rank}", copy_function=os.link)
    last = target / f"rank_{ranks[-1]}"
    shutil.rmtree(last / ".dump_metadata")
    (last / "execution_order" / "ms_global_execution_order_graph_0.csv").unlink()
    return Ground(name, target)


def must_find(
    ground: Ground,
    file: File,
    content: Array,
    *arguments: str,
    clean: bool = True,
    beside: bool = False,
    incomplete: bool = False,
) -> Answer:
    """The command finds the plant in its rank and nothing new in the others; without the plant it did not name it.

    Args:
        clean: nothing at all is found without the plant.
        beside: the ground has another plant already.
        incomplete: that plant is a file that is not there: without a finding nobody can say that the step is clean.
    """
    healthy = check(ground.root, *arguments) if beside else ground.healthy(*arguments)
    assert not ground.about(healthy, file), "found without a plant"
    assert healthy.code == (1 if healthy.found else 2 if incomplete else 0)
    assert not (clean and healthy.found)
    with ground.planted(file, content, slot=int(beside)):
        answer = check(ground.root, *arguments)
        assert answer.code == 1, file.path
        assert ground.about(answer, file), file.path
    assert {finding[0] for finding in answer.found - healthy.found} == {file.rank}
    return answer


def spoiled(values: Array, chance: np.random.Generator, value: float) -> Array:
    """The values with one of them replaced; NaN with a random sign and payload."""
    bits = np.float32(value).view(np.uint32)
    if np.isnan(value):
        bits = np.uint32(0x7F800000 | int(chance.integers(1, 1 << 23)) | int(chance.integers(2)) << 31)
    out = np.array(values, order="F" if chance.integers(2) else "C")
    out.view(np.uint32)[np.unravel_index(int(chance.integers(values.size)), values.shape)] = bits
    return out


def step_of(file: File) -> tuple[str, ...]:
    """Arguments for the step of a file."""
    return "--step", str(file.step)


def place_of(file: File) -> tuple[str, ...]:
    """Arguments for the step and the rank of a file: quicker than all ranks."""
    return *step_of(file), "--rank", str(file.rank)
