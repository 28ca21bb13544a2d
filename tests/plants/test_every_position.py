"""One tensor at a time is made bad, at every rank, step and side of real dumps: none is missed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import run
from tests.session.opened import file_of, opened
from tui_debugger.model import Verdict

pytestmark = pytest.mark.usefixtures("measured_by")

Dumps = Callable[[str], Path]

NAMES = ("mindspore-2.0-multi-gan", "mindspore-2.10-mlp")
RANKS = (0, 1)
KINDS = {"input": ".input.", "output": ".output.", "parameter": "Parameter."}
VALUES = (np.nan, np.inf, -np.inf)


@pytest.fixture(scope="module", params=NAMES)
def copy(request: pytest.FixtureRequest, dumps: Dumps, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with two ranks, made of links: a plant replaces a link for a while."""
    root = tmp_path_factory.mktemp("positions") / str(request.param)
    for rank in RANKS:
        shutil.copytree(dumps(request.param) / "rank_0", root / f"rank_{rank}", copy_function=os.link)
    return root


def is_kind(path: Path, kind: str) -> bool:
    """Whether a file is of a kind: outputs are those of operators."""
    return KINDS[kind] in path.name and (kind == "parameter") == path.name.startswith("Parameter.")


def healthy(path: Path) -> bool:
    values = np.load(path)
    return values.dtype.kind == "f" and values.size > 0 and bool(np.isfinite(values).all())


def positions(root: Path) -> list[tuple[Path, str]]:
    """One healthy file of every (rank, graph, step, kind) that has one, another one each time."""
    chance = np.random.default_rng(7)
    found = []
    for step in sorted(path for path in root.glob("rank_*/*/*/*") if path.name.isdigit()):
        for kind in KINDS:
            files = sorted(path for path in step.glob("*.npy") if is_kind(path, kind))
            some = [files[at] for at in chance.permutation(len(files)).tolist()]
            path = next((path for path in some if healthy(path)), None)
            found += [(path, kind)] if path is not None else []
    return found


@contextmanager
def planted(path: Path, value: float, at: int) -> Iterator[None]:
    """One element of a file replaced, for a while."""
    kept = path.with_name("kept")
    values = np.load(path)
    values.reshape(-1)[at % values.size] = value
    path.rename(kept)
    np.save(path, values)
    try:
        yield
    finally:
        kept.replace(path)


def is_found(root: Path, path: Path) -> bool:
    """Whether a check of its step, in this process, has a finding on a file."""
    session = opened(root, "TO")
    rank, step = int(path.relative_to(root).parts[0].removeprefix("rank_")), int(path.parent.name)
    result = session.check([(rank, step)])
    return any(file_of(session, hit) == path for hit in result.hits.with_verdict(Verdict.FINDING))


def test_no_position_is_missed(copy: Path) -> None:
    every = positions(copy)
    missed = []
    for number, (path, _) in enumerate(every):
        with planted(path, VALUES[number % len(VALUES)], number):
            missed += [] if is_found(copy, path) else [path]
    assert missed == []
    where = {(*path.relative_to(copy).parts[::2], kind) for path, kind in every}
    assert {(rank, kind) for rank, _, _, kind in where} >= {(f"rank_{r}", kind) for r in RANKS for kind in KINDS}
    steps = {int(path.name) for path in copy.glob("rank_0/*/*/*") if path.name.isdigit()}
    assert {int(path.parent.name) for path, _ in every} == steps


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_ends_with_a_finding(copy: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a healthy step: the exit code is that of the plant."""
    files = [path for path, of in positions(copy) if of == kind and path.parent.name == "1"]
    for number, path in enumerate(files):
        where = ("--rank", path.relative_to(copy).parts[0][-1], "--step", "1", "--watch", "TO @ category=tensor")
        assert run(capsys, "check", copy, *where).code == 0
        with planted(path, VALUES[number % len(VALUES)], number):
            answer = run(capsys, "check", copy, *where, "--json", "--jobs", "1")
        assert (answer.code, len(answer.json["hits"])) == (1, 1), path
    assert len(files) == len(RANKS)
