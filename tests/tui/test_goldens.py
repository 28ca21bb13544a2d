"""The screen looks as it did: text goldens of the demo dump (``python -m tests.tui.goldens --write`` renews them)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tui.goldens import DIRECTORY, SCENES, picture


@pytest.mark.parametrize("name", SCENES)
async def test_the_screen_looks_like_its_golden(name: str, dumps: Callable[[str], Path]) -> None:
    assert await picture(dumps("mindspore-2.0-nan"), SCENES[name]) == (DIRECTORY / f"{name}.txt").read_text("utf-8")


def test_there_is_no_golden_without_a_scene() -> None:
    assert {path.stem for path in DIRECTORY.glob("*.txt")} == set(SCENES)
