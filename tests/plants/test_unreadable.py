"""One part of a real dump that cannot be looked at, at every level: no command ends as if all had been looked at."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.session.opened import opened
from tests.unprivileged import forbidden, unprivileged
from tests.unreadable import WOUNDS
from tui_debugger.check.verdicts import Outcome, judge
from tui_debugger.model import UnreadablePart

Dumps = Callable[[str], Path]
Capsys = pytest.CaptureFixture[str]

NAMES = ("mindspore-2.0-multi-gan", "mindspore-2.10-mlp")
CLEAN = NAMES[1]
"""The other one has NaN of its own: a finding outranks a doubt, which is told all the same."""
RANKS = (0, 1)
WATCH = "TO"
"""Looks at every tensor."""
LEVELS = {
    "rank": ("rank_1",),
    "net": ("rank_0/[NM]*",),
    "graph": ("rank_1/[NM]*/[0-9]*",),
    "step": ("rank_0/[NM]*/*/[0-9]*", "rank_1/[NM]*/*/[0-9]*"),
    "constants": ("rank_1/[NM]*/*/constants",),
    "graphs": ("rank_0/graphs",),
    "order": ("rank_1/execution_order",),
    "tensor": ("rank_0/[NM]*/*/[0-9]*/*.npy",),
}
"""Where to look for directories, and for files, of every level."""
GRAPHS = ("graphs", "order")
"""What says which nodes there are: without these every tensor is found all the same."""


@pytest.fixture(scope="module")
def copies(dumps: Dumps, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Copies with two ranks, made of links: a part of them is put away for a while."""
    made: dict[str, Path] = {}

    def copy(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("unreadable") / name
            for rank in RANKS:
                shutil.copytree(dumps(name) / "rank_0", made[name] / f"rank_{rank}", copy_function=os.link)
        return made[name]

    return copy


def places(root: Path, level: str) -> list[Path]:
    """The first, one in the middle, and the last of a level."""
    found = sorted(path for pattern in LEVELS[level] for path in root.glob(pattern))
    return list(dict.fromkeys(found[at] for at in (0, len(found) // 2, -1))) if found else []


@contextmanager
def instead(root: Path, path: Path, make: Callable[[Path], object]) -> Iterator[None]:
    """Something else in the place of a path, for a while."""
    kept = root.with_name(f"{root.name}.kept")
    path.rename(kept)
    make(path)
    try:
        yield
    finally:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()
        kept.rename(path)


def wounded(root: Path, path: Path, kind: str) -> AbstractContextManager[None]:
    """One of the things that cannot be listed in the place of a path, for a while."""
    return instead(root, path, WOUNDS[kind][0])


def doubted(root: Path, level: str) -> tuple[UnreadablePart, ...]:
    """Checks everything in this process; returns the parts that were in doubt."""
    session = opened(root, WATCH)
    result = session.check(session.pairs())
    judgement = judge(result)
    assert judgement.outcome is (Outcome.CANNOT_JUDGE if root.name == CLEAN else Outcome.FINDING)
    assert "unreadable" in [doubt.kind for doubt in judgement.doubts]
    if level != "tensor" and root.name == CLEAN:
        assert judge(result, allow_unreadable=True).outcome is Outcome.CLEAN
    return result.coverage.parts


def test_the_copy_is_clean(copies: Callable[[str], Path]) -> None:
    session = opened(copies(CLEAN), WATCH)
    assert judge(session.check(session.pairs())).outcome is Outcome.CLEAN
    assert session.unreadable() == ()


@pytest.mark.covering
@pytest.mark.parametrize("level", sorted(LEVELS.keys() - {"tensor"}))
@pytest.mark.parametrize("kind", WOUNDS)
@pytest.mark.parametrize("name", NAMES)
def test_something_else_in_the_place_of_a_directory(
    copies: Callable[[str], Path], name: str, level: str, kind: str
) -> None:
    root = copies(name)
    for path in places(root, level):
        with wounded(root, path, kind):
            parts = doubted(root, level)
        assert [(part.where, part.why) for part in parts] == [(str(path.relative_to(root)), WOUNDS[kind][1])]


@pytest.mark.covering
@pytest.mark.parametrize("kind", ["dangling", "loop", "fifo", "socket", "directory"])
@pytest.mark.parametrize("name", NAMES)
def test_something_else_in_the_place_of_a_tensor(copies: Callable[[str], Path], name: str, kind: str) -> None:
    root = copies(name)
    for path in places(root, "tensor"):
        with instead(root, path, WOUNDS[kind][0] if kind in WOUNDS else Path.mkdir):
            parts = doubted(root, "tensor")
        assert [part.where for part in parts] == ([str(path.relative_to(root))] if kind == "directory" else [])


@pytest.mark.covering
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", sorted(LEVELS.keys() - {"tensor"}))
@pytest.mark.parametrize("mode", [0, 0o300, 0o600])
def test_a_directory_that_may_not_be_read(copies: Callable[[str], Path], name: str, level: str, mode: int) -> None:
    root = copies(name)
    for path in places(root, level):
        with forbidden(path, mode):
            parts = unprivileged(lambda: doubted(root, level))
        where = str(path.relative_to(root))
        assert {part.why for part in parts} == {"permission denied"}
        assert all(part.where.startswith(where) for part in parts)
        if not mode & 0o400:
            assert [part.where for part in parts] == [where]


@pytest.mark.parametrize("name", NAMES)
def test_a_tensor_that_may_not_be_read(copies: Callable[[str], Path], name: str) -> None:
    root = copies(name)
    for path in places(root, "tensor"):
        content = path.read_bytes()

        def forbid(path: Path, content: bytes = content) -> None:  # a copy: what is linked has one mode everywhere
            path.write_bytes(content)
            path.chmod(0)

        with instead(root, path, forbid):
            assert unprivileged(lambda: doubted(root, "tensor")) == ()


COMMANDS = {
    "check": ("check", "PATH", "--watch", "TO @ category=tensor"),
    "origin": ("origin", "PATH"),
    "origin --from": ("origin", "PATH", "--from", "NODE"),
    "health": ("health", "PATH"),
    "report": ("report", "PATH", "--watch", "TO @ category=tensor"),
    "stat": ("stat", "PATH"),
    "steps": ("ls", "PATH", "--steps"),
    "steps --no-count": ("ls", "PATH", "--steps", "--no-count"),
    "ls": ("ls", "PATH"),
    "trend": ("trend", "PATH", "NODE"),
    "relations": ("relations", "PATH", "NODE", "--rank", "RANK"),
    "explain": ("explain", "PATH", "NODE", "--watch", "TO @ category=tensor"),
    "show": ("show", "PATH", "NODE", "--rank", "RANK"),
    "export tensors": ("export", "PATH", "tensors", "--filter", "NODE", "-o", "OUT/", "--force"),
    "export hits": ("export", "PATH", "hits", "--watch", "TO @ category=tensor", "-o", "OUT.csv", "--force"),
    "export graph": ("export", "PATH", "graph", "-o", "OUT.json", "--force"),
}


@pytest.mark.covering
@pytest.mark.parametrize("level", ["rank", "net", "graph", "step", "last step"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_so(
    copies: Callable[[str], Path], capsys: Capsys, tmp_path: Path, command: str, level: str
) -> None:
    root = copies(NAMES[1])
    path = places(root, level.rsplit(maxsplit=1)[-1])[-1 if level == "last step" else 0]
    where = str(path.relative_to(root))
    named = {"PATH": str(root), "NODE": "fc1.weight", "RANK": where[len("rank_")], "OUT": str(tmp_path / "out")}
    words = [named.get(word[:3] if word.startswith("OUT") else word, word) for word in COMMANDS[command]]
    words = [
        known + word.removeprefix("OUT") if word.startswith("OUT") else known
        for word, known in zip(COMMANDS[command], words, strict=True)
    ]
    if "--rank" in words and level == "step":  # else the last one is shown
        words += ["--step", "0"]
    with wounded(root, path, "fifo"):
        said = run(capsys, *words)
        document = run(capsys, *words, "--json")
    assert (said.code, document.code) == (2, 2), said.err
    assert where in (said.out + said.err).replace("\\", "")  # Markdown escapes what it would take for a sign
    assert document.json["exit_code"] == 2
    if "error" not in document.json:
        assert [part["where"] for part in document.json["unreadable"]] == [where]
        assert [reason["kind"] for reason in document.json["reasons"]] == ["unreadable"]
        assert where in document.json["reasons"][0]["text"]
    assert not any(line.startswith("clean") for line in said.lines)


@pytest.mark.parametrize("level", ["rank", "step"])
def test_a_part_that_was_not_asked_for_is_no_matter(copies: Callable[[str], Path], capsys: Capsys, level: str) -> None:
    root = copies(NAMES[1])
    with wounded(root, places(root, level)[-1], "dangling"):
        assert run(capsys, "check", root, *COMMANDS["check"][2:], "--rank", "0").code == 0
        assert run(capsys, "check", root, *COMMANDS["check"][2:], "--rank", "1").code == 2
        assert run(capsys, "check", root, *COMMANDS["check"][2:], "--step", "0").code == (2 if level == "rank" else 0)
        assert run(capsys, "check", root, *COMMANDS["check"][2:], "--allow-unreadable").code == 0


@pytest.mark.parametrize("level", GRAPHS)
def test_what_depends_on_a_graph_is_in_doubt_without_one(
    copies: Callable[[str], Path], capsys: Capsys, level: str
) -> None:
    root = copies(NAMES[1])
    every, weights = (("--watch", f"TO @ category={word}") for word in ("tensor", "weight"))
    with wounded(root, places(root, level)[0], "fifo"):
        for watched in (every, weights):  # on every tensor too: the graph says which Inf an operator was told to write
            answer = run(capsys, "check", root, *watched)
            assert answer.code == 2
            assert "a FIFO in place of a directory" in answer.out + answer.err
            assert " no execution order" not in answer.err
            assert " no graph:" not in answer.err
        assert run(capsys, "check", root, *every, "--filter", "fc1").code == 2
        assert run(capsys, "ls", root).code == 2
        assert run(capsys, "stat", root).code == 2, "the graph names its rows, and puts them in order"
        assert run(capsys, "stat", root, "--category", "weight").code == 2
