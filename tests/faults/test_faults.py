"""Whatever call of the system fails, once or for good: an answer is whole, or it is said that there is none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.faults.cases import CASES, EVERY_DAY, Case
from tests.faults.injection import Injector, build_shim
from tests.thorough import later

ALL = 0
"""Tries: each call with each error."""
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the shim knows the calls of Linux")


@pytest.fixture(scope="module")
def injector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Injector]:
    """A process with the compiled shim."""
    shim = build_shim(tmp_path_factory.mktemp("shim"))
    if shim is None:
        pytest.skip("no C compiler at hand: the shim cannot be made")
    with closing(Injector(shim)) as process:
        yield process


def assert_kept(answer: dict[str, Any]) -> None:
    broken = [
        f"{each.get('fault')}: {each['why']} (exit code {each['code']})\n{each['err']}" for each in answer["broken"]
    ]
    assert not broken, "\n".join([f"{len(broken)} of {answer['tried']} faults break the promise", *broken[:10]])
    assert answer["tried"] > 0, "nothing was tried: no call was counted"


def test_the_cases_of_every_day_are_cases() -> None:
    assert {str(case) for case in CASES} >= EVERY_DAY
    assert len({str(case) for case in CASES}) == len(CASES)


@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize(
    ("case", "tries"),
    [
        *(pytest.param(case, 1, id=str(case)) for case in CASES if str(case) in EVERY_DAY),
        *(later(case, ALL, id=f"{case}-all") for case in CASES),
    ],
)
def test_an_answer_is_whole_or_it_is_said_that_there_is_none(
    injector: Injector, dumps: Callable[[str], Path], case: Case, tries: int, tmp_path: Path
) -> None:
    """The screen says "Clean" only where nothing was unread; an error is a dialog, not a mistake of the program."""
    assert_kept(injector.inject(case.job(tmp_path, dumps, tries)))
