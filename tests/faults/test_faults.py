"""Whatever call of the system fails, once or for good: an answer is whole, or it is said that there is none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.dumps import AUDITED, COMMANDS, LAYOUTS, REMEMBERING, WRITING, words
from tests.faults.injection import Job, inject
from tests.thorough import later

SOURCE = Path(__file__).with_name("shim.c")
ALL = 0
"""Tries: each call with each error."""
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the shim knows the calls of Linux")


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled shim."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler at hand: the shim cannot be made")
    made = tmp_path_factory.mktemp("shim") / "shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, SOURCE, "-ldl"], check=True)
    return made


@pytest.fixture
def layout(request: pytest.FixtureRequest) -> str:
    """The layout of the test's parameter."""
    return str(request.param)


@pytest.fixture
def dump(layout: str, tmp_path: Path, dumps: Callable[[str], Path]) -> Path:
    """A dump of that layout; another one lies beside it, which nobody asks for."""
    LAYOUTS["arrays"](tmp_path / "another", dumps)
    made = tmp_path / "dump"
    LAYOUTS[layout](made, dumps)
    return made


def assert_kept(answer: dict[str, Any]) -> None:
    broken = [
        f"{each.get('fault')}: {each['why']} (exit code {each['code']})\n{each['err']}" for each in answer["broken"]
    ]
    assert not broken, "\n".join([f"{len(broken)} of {answer['tried']} faults break the promise", *broken[:10]])
    assert answer["tried"] > 0, "nothing was tried: no call was counted"


def pairs(every_day: set[tuple[str, str]], commands: tuple[str, ...]) -> list[Any]:
    """(layout, command, tries): a few of each kind every day for those that are named, all of them thoroughly."""
    combined = [
        (layout, command) for layout in LAYOUTS for command in commands if command != "audit" or layout in AUDITED
    ]
    quick = [pytest.param(*pair, 1, id="-".join(pair)) for pair in combined if pair in every_day]
    return quick + [later(*pair, ALL, id="-".join((*pair, "all"))) for pair in combined]


HEADLESS = tuple(command for command in COMMANDS if command != "screen")
TIMEOUT = pytest.mark.timeout(4 * 3600)


@TIMEOUT
@pytest.mark.parametrize(
    ("layout", "command", "tries"),
    pairs(
        {("mindspore", "check"), ("msprobe", "origin"), ("checkpoint", "stat"), ("arrays", "export to one file")},
        HEADLESS,
    ),
    indirect=["layout"],
)
def test_a_dump_that_cannot_be_read(shim: Path, dump: Path, command: str, tries: int, tmp_path: Path) -> None:
    work = tmp_path / "work"
    assert_kept(inject(shim, Job(words(command, dump, work / "out"), str(dump), str(work), tries)))


@TIMEOUT
@pytest.mark.parametrize(
    ("layout", "command", "tries"), pairs({("megatron", "check")}, REMEMBERING), indirect=["layout"]
)
def test_a_dump_that_the_index_knows(shim: Path, dump: Path, command: str, tries: int, tmp_path: Path) -> None:
    work = tmp_path / "work"
    assert_kept(inject(shim, Job(words(command, dump, work / "out"), str(dump), str(work), tries, warm=True)))


@TIMEOUT
@pytest.mark.parametrize("warm", [False, True], ids=["new", "filled"])
@pytest.mark.parametrize(("layout", "command", "tries"), pairs({("arrays", "check")}, REMEMBERING), indirect=["layout"])
def test_an_index_that_cannot_be_used(
    shim: Path, dump: Path, command: str, tries: int, *, warm: bool, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    job = Job(words(command, dump, work / "out"), str(work / "cache"), str(work), tries, warm=warm, index=True)
    assert_kept(inject(shim, job))


@TIMEOUT
@pytest.mark.parametrize(
    ("layout", "command", "tries"),
    pairs({("arrays", "export to files"), ("sglang", "report")}, WRITING),
    indirect=["layout"],
)
def test_a_place_that_cannot_be_written(shim: Path, dump: Path, command: str, tries: int, tmp_path: Path) -> None:
    work = tmp_path / "work"
    assert_kept(inject(shim, Job(words(command, dump, work / "out"), str(work / "out"), str(work), tries)))


@TIMEOUT
@pytest.mark.parametrize("tries", [1, later(ALL, id="all")])
def test_a_place_that_what_was_listened_to_cannot_be_saved_in(shim: Path, tries: int, tmp_path: Path) -> None:
    work = tmp_path / "work"
    assert_kept(inject(shim, Job(("listen", str(work / "out" / "saved")), str(work / "out"), str(work), tries)))


@TIMEOUT
@pytest.mark.parametrize(
    ("layout", "command", "tries"), pairs({("arrays", "screen")}, ("screen",)), indirect=["layout"]
)
def test_a_dump_that_the_screen_cannot_read(shim: Path, dump: Path, command: str, tries: int, tmp_path: Path) -> None:
    """The screen says "Clean" only where nothing was unread; an error is a dialog, not a mistake of the program."""
    assert_kept(inject(shim, Job(words(command, dump, tmp_path), str(dump), str(tmp_path / "work"), tries)))
