"""The pictures of README show the present program, and no empty screens: ``python screenshots/make.py`` renews them."""

from __future__ import annotations

import html
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

SCREENSHOTS = Path(__file__).parents[1] / "screenshots"
NAMES = sorted(path.stem for path in SCREENSHOTS.glob("*.svg"))
TERMINAL = (("TERM", "xterm-256color"), ("COLORTERM", "truecolor"))
TREE_ROW = re.compile(r"[▌ ][=◆↓] +[▸▾]? *\S")
"""A row of the tree of two runs: how far it is scrolled depends on which part of the answer came first."""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """``screenshots/make.py`` as a module."""
    spec = importlib.util.spec_from_file_location("screenshots_make", SCREENSHOTS / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def committed(name: str) -> str:
    return (SCREENSHOTS / f"{name}.svg").read_text("utf-8")


def screens(picture: str) -> list[list[str]]:
    """The lines of text of each screen in a picture, from above; lines without any are left out."""
    found = []
    for screen in re.split(r'<g class="frame"', picture)[1:] or [picture]:
        lines: dict[float, str] = {}
        for y, text in re.findall(r'<text [^>]*?y="([\d.]+)"[^>]*>(.*?)</text>', screen, re.DOTALL):
            lines[float(y)] = lines.get(float(y), "") + html.unescape(text).replace("\xa0", " ").strip("\n")
        found.append([line.rstrip() for _, line in sorted(lines.items())])
    return found


def drawn_by(screen: list[str]) -> float:
    """The share of lines on which more than a frame is drawn."""
    return sum(bool(line.strip("│┃╭╮╰╯━─┍┑┕┙ ")) for line in screen) / len(screen)


def test_there_is_a_scene_for_every_picture(script: ModuleType) -> None:
    assert sorted([*(name for name, *_ in script.SCENES), "runs", "tour", "live"]) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_no_picture_is_an_empty_screen(name: str) -> None:
    first, *later = screens(committed(name))
    assert drawn_by(first) > 0.6, "empty areas are given back"
    assert all(drawn_by(screen) > 0.3 for screen in later), "the screens of a tour have one size"


def test_the_tour_goes_from_the_first_screen_to_the_value_by_the_keys_that_it_names(script: ModuleType) -> None:
    tour = committed("tour")
    frames = screens(tour)
    assert [frame[-1] for frame in frames] == [words for _, words in script.TOUR], "what is said below each screen"
    assert "animation: turn" in tour
    for frame, shown in zip(
        frames,
        ("Begins at step 3: Log-op381", "self.log(", "the logarithm of 0", "Log-op381", "[2] = 0.0"),
        strict=True,
    ):
        assert any(shown in line for line in frame)


async def test_pictures_are_of_the_present_program(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in TERMINAL:
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    old = []
    async for name, picture in script.pictures():
        made, shown = (
            [[line for line in each if name != "runs" or not TREE_ROW.match(line)] for each in screens(which)]
            for which in (picture, committed(name))
        )
        if made != shown:
            old.append(name)
    assert old == [], "run: python screenshots/make.py"
