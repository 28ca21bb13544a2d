"""Bytes and times of keys of the whole program in a pseudo-terminal, on the real dump of a training that breaks.

``python -m tests.benchmarks.keys TREE`` does the same with the program of another tree, in turn with this one: what a
key cost in a commit before. Only what a person has is used: the terminal, and names of keys.
"""

from __future__ import annotations

import argparse
import fcntl
import statistics
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.benchmarks.timing import Result
from tests.terminal.program import TREE, Program
from tui_debugger.demo import DEMO, unpack

SIZES: Final = ((80, 24), (120, 40), (200, 50))
QUIET: Final = 0.4
"""Seconds without a byte after which everything that a key leads to is on the screen."""
START: Final = 2.0
"""The same for the start of the program, which checks the dump."""
SCREENS: Final = 1.6
"""The bar: times the bytes of the whole screen, as Ctrl-L writes it, that a key may cost. One screen is painted, and
the parts of it that arrive later."""


@dataclass(frozen=True)
class Step:
    """A key that is measured.

    Attributes:
        name: what it does.
        keys: pressed one after the other, each measured; a number of columns is a resize by so many.
        before: lead there, not measured.
    """

    name: str
    keys: tuple[str | int, ...]
    before: tuple[str, ...] = ()


STEPS: Final = (
    Step("down, up in nodes", ("down", "down", "up", "up"), ("1", "home", "*")),
    Step("page down, up in nodes", ("pgdn", "pgdn", "pgup", "pgup")),
    Step("] and [", ("[", "]")),
    Step("down, up in hits", ("down", "down", "up", "up"), ("4", "home")),
    Step("page down, up in hits", ("pgdn", "pgdn", "pgup", "pgup")),
    Step("n and N", ("n", "n", "N", "N"), ("home",)),
    Step("Tab", ("tab",)),
    Step("Enter on a hit", ("enter",), ("4",)),
    Step("o", ("o",), ("4", "n")),
    Step("Esc from o", ("esc",)),
    Step("E", ("E",)),
    Step("Esc from E", ("esc",)),
    Step("H", ("H",)),
    Step("Esc from H", ("esc",)),
    Step("?", ("?",)),
    Step("Esc from ?", ("esc",)),
    Step("w", ("w",)),
    Step("Esc from w", ("esc",)),
    Step("/", ("/",), ("1",)),
    Step("typing a filter", ("l", "o", "g")),
    Step("Esc from /", ("esc",)),
    Step("a resize by a column", (-1, 1)),
)
TWICE: Final = {"Esc from /": ("esc",)}
"""Pressed once more after a key, so that the next one finds the screen as it was."""


@dataclass(frozen=True)
class Cost:
    """The cost of one key: bytes, seconds to the first and to the last of them, processor seconds of the program."""

    bytes: int
    first: float
    last: float
    processor: float


class Keyboard:
    """A person at a program."""

    def __init__(self, program: Program, columns: int, rows: int) -> None:
        self.program = program
        self.columns, self.rows = columns, rows

    def press(self, key: str | int, quiet: float = QUIET) -> Cost:
        """Presses a key, or makes the window wider, and waits until nothing more is written."""
        spent, started = _processor_seconds(self.program.process.pid), time.perf_counter()
        if isinstance(key, int):
            self.columns += key
            fcntl.ioctl(self.program.master, termios.TIOCSWINSZ, struct.pack("HHHH", self.rows, self.columns, 0, 0))
        else:
            self.program.send(key)
        written, first, last = 0, 0.0, 0.0
        while data := self.program.read(quiet):
            last = time.perf_counter() - started
            first = first or last
            written += len(data)
        return Cost(written, first, last, _processor_seconds(self.program.process.pid) - spent)


def _processor_seconds(pid: int) -> float:
    """What all threads of a process have used, to the nanosecond; threads that ended are left out."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except OSError:  # it has just ended  # noqa: PERF203
            continue
    return total / 1e9


@contextmanager
def opened(tree: Path, dump: Path, home: Path, columns: int, rows: int) -> Iterator[Keyboard]:
    """The program of a tree, once it has checked a dump."""
    env = {
        "PYTHONPATH": str(tree),
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(home / "compiled"),
        **{name: str(home / name) for name in ("TDBG_CACHE_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME")},
    }
    arguments = ["-m", "tui_debugger", "open", "--recommended", "--no-state", "--jobs", "1", str(dump)]
    with Program(arguments, columns=columns, rows=rows, env=env, tree=tree) as program:
        while not program.read(10):
            pass
        while program.read(START):
            pass
        person = Keyboard(program, columns, rows)
        person.press("R", START)
        person.press("c", START)
        yield person


def measure(people: Sequence[Keyboard], rounds: int, only: str = "") -> list[dict[str, Cost]]:
    """What each step costs each of some people, typing in turn.

    Args:
        people: one program each.
        rounds: how often every step is taken.
        only: a part of the names of the steps that are measured.

    Returns:
        By step bytes, medians of the times, and the processor time of a key in the round in which it was least: what
        else the machine does makes it more, and never less.
    """
    costs: list[dict[str, list[list[Cost]]]] = [{"Ctrl-L": []} for _ in people]
    for _ in range(rounds):
        for person, own in zip(people, costs, strict=True):
            own["Ctrl-L"].append([person.press("\x0c")])
        for step in STEPS:
            for person, own in zip(people, costs, strict=True):
                for key in step.before:
                    person.press(key)
                if only in step.name:
                    own.setdefault(step.name, []).append([person.press(key) for key in step.keys])
                else:
                    for key in step.keys:
                        person.press(key)
                for key in TWICE.get(step.name, ()):
                    person.press(key)
    return [{name: _together(each) for name, each in own.items()} for own in costs]


def _together(rounds: Sequence[Sequence[Cost]]) -> Cost:
    costs = [cost for each in rounds for cost in each]
    return Cost(
        round(statistics.mean(cost.bytes for cost in costs)),
        *(statistics.median(getattr(cost, name) for cost in costs) for name in ("first", "last")),
        statistics.mean(min(cost.processor for cost in same) for same in zip(*rounds, strict=True)),
    )


def run(scale: float, folder: Path) -> list[Result]:
    """Bytes of every key, against those of the whole screen."""
    results = []
    dump = unpack(DEMO, folder)
    for columns, rows in SIZES if scale >= 0.1 else SIZES[1:2]:
        with opened(TREE, dump, folder / "home", columns, rows) as person:
            (costs,) = measure([person], max(round(4 * scale), 1))
        whole = costs.pop("Ctrl-L").bytes
        results += [
            Result(
                f"{columns}x{rows} {name}: bytes / those of the screen",
                cost.bytes / whole,
                SCREENS,
                at_most=True,
                note=f"{cost.bytes / 1024:.1f} KB, first byte {1e3 * cost.first:.1f} ms, last {1e3 * cost.last:.0f} ms,"
                f" processor {1e3 * cost.processor:.0f} ms",
            )
            for name, cost in costs.items()
        ]
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints both trees side by side."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.keys", description=__doc__)
    parser.add_argument("tree", type=Path, help="the checkout to compare with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", metavar="TEXT", help="steps with this in their names")
    parser.add_argument("--size", action="append", metavar="80x24", help="sizes (default: all three)")
    asked = parser.parse_args(arguments)
    sizes = [tuple(map(int, size.split("x"))) for size in asked.size or ()] or SIZES
    trees = [asked.tree.resolve(), TREE]
    with tempfile.TemporaryDirectory(prefix="tdbg-keys-") as temporary:
        folder = Path(temporary)
        dump = unpack(DEMO, folder)
        for columns, rows in sizes:
            with ExitStack() as stack:
                people = [
                    stack.enter_context(opened(tree, dump, folder / str(number), columns, rows))
                    for number, tree in enumerate(trees)
                ]
                sides = measure(people, asked.rounds, asked.only)
            _say(f"{columns}x{rows}: there → here    bytes             first byte ms    last byte ms     processor ms")
            for name in sides[0]:
                there, here = (side[name] for side in sides)
                _say(
                    f"  {name:24}  {there.bytes:7,} → {here.bytes:7,}"
                    + "".join(
                        f"  {1e3 * getattr(there, what):5.1f} → {1e3 * getattr(here, what):5.1f}"
                        for what in ("first", "last", "processor")
                    )
                )
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
