"""Makes the pictures of README from the running program on the demo dump: ``python screenshots/make.py``."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from tests.tui.driver import Driver, opened  # noqa: E402 - the checkout comes before an installed package
from tests.tui.test_live_demo import demo  # noqa: E402
from tui_debugger.cli.demo import TRAINED_IN  # noqa: E402
from tui_debugger.demo import DEMO, unpack  # noqa: E402

WIDE, SMALL = (200, 50), (80, 24)
Scene = Callable[[Driver], Awaitable[None]]


async def wide(screen: Driver) -> None:
    """All five panes as they open: at the first origin."""
    await screen.settled()


async def hits(screen: Driver) -> None:
    """The hit list in a small terminal."""
    await screen.press("4")
    await screen.settled()


async def stack(screen: Driver) -> None:
    """The line that divides zero by zero, with the source around it."""
    await to_division(screen)
    await screen.press("2", "v")
    await screen.settled()


async def to_division(screen: Driver) -> None:
    """The second origin: the division."""
    await screen.press("O")
    await screen.settled()


async def to_output(screen: Driver) -> None:
    """The output of the division, in the tensor table."""
    await to_division(screen)
    await screen.press("5", "G")
    await screen.settled()


async def opened_by(screen: Driver, *keys: str) -> None:
    """One key after the other, each when the one before has done its work."""
    for key in keys:
        await screen.press(key)
        await screen.settled()


async def values(screen: Driver) -> None:
    """NaN in the values of the division's output."""
    await to_output(screen)
    await opened_by(screen, "enter", "n")


async def heat(screen: Driver) -> None:
    """The first row of every sample as a heat map: sample 2 is NaN."""
    await to_output(screen)
    await opened_by(screen, "enter", "s", "end", "ctrl+u")
    await screen.type("[:, 0, :]")
    await opened_by(screen, "enter", "t")


async def origin(screen: Driver) -> None:
    """The path from a parameter of step 5 to the logarithm of step 3."""
    await opened_by(screen, "4", "G", "o")


async def explain(screen: Driver) -> None:
    """What speaks for a logarithm of 0."""
    await opened_by(screen, "E")


async def relations(screen: Driver) -> None:
    """What made the logarithm, what uses it."""
    await opened_by(screen, "L")


async def trend(screen: Driver) -> None:
    """The division's output over the steps."""
    await to_output(screen)
    await opened_by(screen, "H")


async def compare(screen: Driver) -> None:
    """The division's output against the step before."""
    await to_output(screen)
    await opened_by(screen, "C", "n")


async def distribution(screen: Driver) -> None:
    """The division's output by powers of two."""
    await to_output(screen)
    await opened_by(screen, "b", "x")


async def health(screen: Driver) -> None:
    """The whole run."""
    await opened_by(screen, "M")


async def watchpoint(screen: Driver) -> None:
    """The form for a new watchpoint."""
    await screen.press("w")
    await screen.settled()


async def help_(screen: Driver) -> None:
    """The list of keys."""
    await screen.press("question_mark")
    await screen.settled()


async def live(screen: Driver) -> None:
    """A training that was run to its first hit."""
    await screen.press("c")
    await screen.until(lambda: "stopped after step 3" in screen.main.header.plain)
    await screen.press("n", "5")
    await screen.settled()


SCENES: tuple[tuple[str, tuple[int, int], Scene], ...] = (
    ("wide", WIDE, wide),
    ("hits", (110, 24), hits),
    ("stack", (110, 30), stack),
    ("values", (110, 30), values),
    ("heat", (110, 30), heat),
    ("origin", (150, 34), origin),
    ("explain", (110, 30), explain),
    ("relations", (160, 30), relations),
    ("trend", (150, 40), trend),
    ("compare", (200, 40), compare),
    ("distribution", (130, 34), distribution),
    ("health", (110, 34), health),
    ("watchpoint", SMALL, watchpoint),
    ("help", SMALL, help_),
)


async def main() -> None:
    """Every scene in a fresh program, written beside this file."""
    os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}  # whatever terminal this runs in
    os.environ.pop("NO_COLOR", None)
    with tempfile.TemporaryDirectory() as scratch:
        dump = unpack(DEMO, Path(scratch))
        for name, size, scene in SCENES:
            async with opened(dump, size=size, source_map=((TRAINED_IN, str(dump)),), title="demo") as screen:
                await scene(screen)
                picture = screen.app.export_screenshot(title="tdbg demo")
                (HERE / f"{name}.svg").write_text(picture.replace(scratch, "~/.cache/tdbg"), "utf-8")
                print(f"{name}.svg")  # noqa: T201 - a script that says what it made
    async with demo(size=WIDE) as screen:
        await live(screen)
        picture = screen.app.export_screenshot(title="tdbg demo --live")
        (HERE / "live.svg").write_text(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:50722", picture), "utf-8")
        print("live.svg")  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main())
