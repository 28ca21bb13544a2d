"""Pictures of the screen as text, compared by ``test_goldens.py``. ``python -m tests.tui.goldens --write`` renews them.

Look at what changed (``git diff tests/tui/goldens``) before you commit it: a golden is what a person should see.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.tui.driver import opened
from tests.tui.sizes import SIZES
from tui_debugger.demo import DEMO, unpack

DIRECTORY = Path(__file__).with_name("goldens")
SHOWN_AS = "/dumps/mindspore-2.0-nan"
"""What stands for the path of the dump: its length decides how the header is cut."""


@dataclass(frozen=True)
class Scene:
    """A size, and the keys that lead to the picture."""

    size: tuple[int, int]
    keys: tuple[str, ...]


NARROW, USUAL, WIDE = SIZES
SCENES: dict[str, Scene] = {
    "80x24-first": Scene(NARROW, ()),
    "80x24-nodes": Scene(NARROW, ("1",)),
    "80x24-stack": Scene(NARROW, ("n", "2")),
    "80x24-watchpoints": Scene(NARROW, ("3",)),
    "80x24-hits": Scene(NARROW, ("4",)),
    "80x24-tensors": Scene(NARROW, ("n", "5")),
    "80x24-values": Scene(NARROW, ("n", "5", "enter")),
    "120x40-first": Scene(USUAL, ()),
    "120x40-hit": Scene(USUAL, ("n",)),
    "200x50-first": Scene(WIDE, ()),
    "200x50-hit": Scene(WIDE, ("n",)),
}


async def picture(dump: Path, scene: Scene) -> str:
    """The screen of a scene as text; nothing in it depends on where the dump lies or on how long anything took."""
    async with opened(dump, size=scene.size, shown_as=SHOWN_AS) as screen:
        await screen.press_each(*scene.keys)
        return screen.text.rstrip() + "\n"


def write() -> None:
    """Renews all goldens."""
    with tempfile.TemporaryDirectory() as home:
        for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
            os.environ[name] = home
        dump = unpack(DEMO, Path(home))
        DIRECTORY.mkdir(exist_ok=True)
        for name, scene in SCENES.items():
            (DIRECTORY / f"{name}.txt").write_text(asyncio.run(picture(dump, scene)), "utf-8")


if __name__ == "__main__":
    if "--write" not in sys.argv:
        sys.exit("python -m tests.tui.goldens --write")
    write()
