"""Makes the pictures of README from the running program on the demo dump: ``python screenshots/make.py``."""

from __future__ import annotations

import asyncio
import html
import os
import re
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from tests.tui.driver import Driver, opened  # noqa: E402 - the checkout comes before an installed package
from tests.tui.test_live_demo import demo  # noqa: E402
from tui_debugger.cli.demo import TRAINED_IN  # noqa: E402
from tui_debugger.demo import DEMO, unpack  # noqa: E402
from tui_debugger.session.comparison import ComparedRun  # noqa: E402

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


async def sketch(screen: Driver) -> None:
    """The scopes around the network, with the flow between them."""
    await opened_by(screen, "L", "t", "minus")


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
    await opened_by(screen, "b", "t")


async def health(screen: Driver) -> None:
    """The whole run."""
    await opened_by(screen, "M")


async def runs(screen: Driver) -> None:
    """Where one of two runs is wrong first, and where that goes."""
    await screen.until(lambda: "166000" in screen.text)
    await screen.settled()


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
    await screen.until(lambda: "stopped after step 3" in screen.main.header.plain and screen.pane("hits"))
    await screen.settled()
    await screen.press("5")
    await screen.settled()


SCENES: tuple[tuple[str, tuple[int, int], Scene], ...] = (
    ("wide", WIDE, wide),
    ("hits", (110, 24), hits),
    ("stack", (110, 30), stack),
    ("values", (110, 18), values),
    ("heat", (110, 24), heat),
    ("origin", (150, 28), origin),
    ("explain", (110, 24), explain),
    ("relations", (160, 14), relations),
    ("sketch", (110, 20), sketch),
    ("trend", (150, 40), trend),
    ("compare", (200, 40), compare),
    ("distribution", (130, 34), distribution),
    ("health", (110, 34), health),
    ("watchpoint", SMALL, watchpoint),
    ("help", SMALL, help_),
)


TOUR: tuple[tuple[str, str], ...] = (
    ("", "tdbg demo    the first screen says where it begins"),
    ("o", "o    the path to the origin, and the line of the program"),
    ("E", "E    explains: what speaks for which cause"),
    ("enter", "Enter    follows the advice, to the values"),
    ("m", "m    the smallest value: element 2 is 0"),
)
"""The keys of README in their order, and what is said below each screen."""
TOUR_SIZE, SECONDS, CAPTION = (110, 30), 4, 56


async def tour(screen: Driver) -> str:
    """Returns the way from the first screen to the cause as one picture that moves: a frame after each key."""
    frames: list[str] = []
    for key, _ in TOUR:
        if key:
            await screen.press(key)
        await screen.settled()
        frames.append(screen.app.export_screenshot(title="tdbg demo"))
    return animated(frames, [words for _, words in TOUR])


def animated(frames: Sequence[str], captions: Sequence[str]) -> str:
    """Returns pictures as one that shows each for some seconds, with words below; the first one where nothing moves."""
    width, height = (float(side) for side in frames[0].split('viewBox="0 0 ', 1)[1].split('"', 1)[0].split())
    share = 100 / len(frames)
    style = f"""
    .frame {{ visibility: hidden; animation: turn {SECONDS * len(frames)}s steps(1) infinite }}
    .words {{ font: 26px "Fira Code", monospace; fill: #5fafff }}
    @keyframes turn {{ 0% {{ visibility: visible }} {share:.4f}% {{ visibility: hidden }} }}
    @media (prefers-reduced-motion: reduce) {{ .frame {{ animation: none }} #frame0 {{ visibility: visible }} }}"""
    shown = "\n".join(
        f'<g class="frame" id="frame{number}" style="animation-delay: {number * SECONDS}s">\n'
        + _placed(frame, number, f'<svg width="{width:g}" height="{height:g}" ')
        + f'<text class="words" x="24" y="{height + CAPTION - 20}" xml:space="preserve">{html.escape(words)}</text></g>'
        for number, (frame, words) in enumerate(zip(frames, captions, strict=True))
    )
    return (
        f'<svg viewBox="0 0 {width:g} {height + CAPTION:g}" xmlns="http://www.w3.org/2000/svg">\n<style>{style}\n</style>\n'
        f'<rect width="100%" height="100%" rx="8" fill="#10141b"/>\n{shown}\n</svg>\n'
    )


def _placed(frame: str, number: int, start: str) -> str:
    """Returns a frame of a size of its own, without the fonts that the first one brings."""
    frame = frame.replace("<svg ", start, 1)
    return frame if not number else re.sub(r"@font-face \{.*?\}\s*", "", frame, flags=re.DOTALL)


def two_runs(folder: Path) -> dict[str, Path]:
    """Two runs of one program: an activation of the second one is off by 1 %."""
    with tarfile.open(HERE.parent / "tests/data/msprobe-pairs.tar.xz") as archive:
        archive.extractall(folder)  # noqa: S202 - the archive is one of the tests
    pair = folder / "msprobe-pairs" / "e_mul"
    return {"fine": pair / "A", "faulty": pair / "B"}


async def pictures() -> AsyncIterator[tuple[str, str]]:
    """Yields the name of each picture and the picture; every scene is in a fresh program."""
    with tempfile.TemporaryDirectory() as scratch:
        dump = unpack(DEMO, Path(scratch))
        for name, size, scene in SCENES:
            async with opened(dump, size=size, source_map=((TRAINED_IN, str(dump)),), title="demo") as screen:
                await scene(screen)
                picture = screen.app.export_screenshot(title="tdbg demo")
            yield name, picture.replace(scratch, "~/.cache/tdbg")
        for run, path in two_runs(Path(scratch)).items():
            path.rename(path.parents[2] / run)
        fine, faulty = (Path(scratch) / name for name in ("fine", "faulty"))
        async with opened(fine, size=(130, 40), against=ComparedRun(str(faulty))) as screen:
            await runs(screen)
            picture = screen.app.export_screenshot(title="tdbg open fine --against faulty")
        yield "runs", picture.replace(scratch, "~/runs")
        async with opened(dump, size=TOUR_SIZE, source_map=((TRAINED_IN, str(dump)),), title="demo") as screen:
            picture = await tour(screen)
        yield "tour", picture.replace(scratch, "~/.cache/tdbg")
    async with demo(size=WIDE) as screen:
        await live(screen)
        picture = screen.app.export_screenshot(title="tdbg demo --live")
    yield "live", re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:50722", picture)


async def main() -> None:
    """Writes every picture beside this file."""
    os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}  # whatever terminal this runs in
    os.environ.pop("NO_COLOR", None)
    async for name, picture in pictures():
        (HERE / f"{name}.svg").write_text(picture, "utf-8")
        print(f"{name}.svg")  # noqa: T201 - a script that says what it made


if __name__ == "__main__":
    asyncio.run(main())
