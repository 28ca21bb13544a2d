"""The screen in a pseudo-terminal of 200x50: its first frame, and what a key costs on a large run.

Beside it, in turn, runs the least that a Textual app can be, so that ratios stand where the machine is noisy.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.benchmarks.timing import Result
from tests.sources.writer import DumpWriter, Generation, Graph, Node
from tests.terminal.program import Program

NODES, STEPS, FILES = 100_000, 10, 1_000_000
CHROME: Final = (b"tdbg", b"1 Nodes", b"2 Stack", b"3 Watchpoints", b"4 Hits", b"5 Tensors", b"Help")
_ESCAPES: Final = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]")
PATIENCE: Final = 600.0
"""Seconds a large run may take to be there."""
HELD, QUIET = 0.03, 0.35
"""Seconds between two keys of one that is held, and without a byte when the panes that follow have followed."""
TINY: Final = 0.01
"""Below this scale everything is tried once, and quickly: whether it works is asked, and not what it costs."""
FRAME, KEY, PAGE, CURSOR = 0.35, 10.0, 16 << 10, 1 << 10
"""The bars: seconds, milliseconds, bytes, bytes."""
BARE: Final = """
from textual.app import App
from textual.widgets import Static
class Bare(App):
    BINDINGS = [("x", "turn", "")]
    def compose(self):
        yield Static("a")
    def action_turn(self):
        self.shown = "ab"[getattr(self, "shown", "a") == "a"]
        self.query_one(Static).update(self.shown)
Bare().run()
"""


@dataclass(frozen=True)
class Keys:
    """A kind of key, pressed again and again.

    Attributes:
        name: what it does.
        pressed: the keys of one round.
        before: keys that lead there, waited for.
        most: bytes that one press may cost until the next.
    """

    name: str
    pressed: Sequence[str]
    before: Sequence[str] = ()
    most: int = PAGE


KINDS: Final = (
    Keys("a node further", ("down", "down", "down", "up", "up", "up"), ("1", "home", "*"), CURSOR),
    Keys("a page of nodes", ("pgdn", "pgdn", "pgdn", "pgup")),
    Keys("a scope closed and opened", ("left", "right"), ("home", "down", "down")),
    Keys("another pane", ("tab",)),
    Keys("another step", ("]", "[")),
    Keys("a hit further", ("down", "down", "down", "up", "up", "up"), ("4", "home"), CURSOR),
    Keys("a page of hits", ("pgdn", "pgdn", "pgdn", "pgup")),
)


def run(scale: float, folder: Path) -> list[Result]:
    """Everything; at full scale 100,000 nodes and 1,000,000 tensors in ten steps, all of them hits."""
    env = {
        # As an installed program: modules are compiled once, and nothing of the user's is read or written.
        "PYTHONDONTWRITEBYTECODE": "",
        **({"PYTHONPYCACHEPREFIX": str(folder / "compiled")} if scale >= TINY else {}),
        **{name: str(folder / name) for name in ("TDBG_CACHE_DIR", "XDG_STATE_HOME")},
    }
    return [*first_frames(scale, folder, env), *keys(scale, env)]


# -- the first frame -------------------------------------------------------------------------------


def first_frames(scale: float, folder: Path, env: dict[str, str]) -> list[Result]:
    """From the start of the process to header, titles of all panes and footer, best of several starts in turn."""
    files = max(round(FILES * scale), 100)
    small, large = dump(folder / "small", 10), dump(folder / "large", files)
    starts: list[Callable[[], float]] = [
        lambda: seconds_to([b"a"], ["-c", BARE], env),
        lambda: seconds_to(CHROME, ["-m", "tui_debugger", "open", str(small)], env),
        lambda: seconds_to(CHROME, ["-m", "tui_debugger", "open", str(large)], env),
    ]
    repeat = max(3, round(10 * min(scale, 1))) if scale >= TINY else 1
    rounds = [[start() for start in starts] for _ in range(repeat)]
    bare, of_small, of_large = (min(times) for times in zip(*rounds, strict=True))
    return [
        Result("first frame, small dump", of_small, FRAME, "s", at_most=True),
        Result("first frame, large dump", of_large, FRAME, "s", at_most=True, note=f"{files:,} files in one step"),
        Result("first frame, large dump / small dump", of_large / of_small, 1.15, at_most=True),
        Result("first frame / that of a bare Textual app", of_small / bare, note=f"which takes {bare:.3g} s"),
    ]


def dump(root: Path, files: int) -> Path:
    """A dump whose one step has so many files; nothing of them is read before the first frame."""
    writer = DumpWriter(root, Generation.V2_10)
    writer.metadata()
    writer.graph(Graph([Node("Default/ReLU-op1", "ReLU")]))
    step = writer.step(0)
    for number in range(files):
        name = writer.file_name("ReLU", f"Default/ReLU-op{number}", "output", 0)
        os.close(os.open(step / name, os.O_CREAT | os.O_WRONLY))
    return root


def seconds_to(words: Sequence[bytes], arguments: Sequence[str], env: dict[str, str]) -> float:
    """How long a program takes until all of some words stand on the terminal."""
    started = time.perf_counter()
    with Program(arguments, columns=200, rows=50, env=env) as program:
        wait_for(program, words)
        return time.perf_counter() - started


def wait_for(program: Program, words: Sequence[bytes]) -> None:
    """Reads until all of some words were written."""
    output, deadline = b"", time.monotonic() + PATIENCE
    while not all(word in _ESCAPES.sub(b"", output) for word in words):
        if time.monotonic() > deadline:
            msg = f"never wrote {words}: {_ESCAPES.sub(b'', output)[-2000:]!r}"
            raise AssertionError(msg)
        output += program.read(1)


# -- keys ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Press:
    """What a key cost: seconds to the first byte, bytes altogether."""

    seconds: float
    bytes: int


def keys(scale: float, env: dict[str, str]) -> list[Result]:
    """Every kind of key, and in turn with it one of the bare app; what is idle in between."""
    nodes, steps = max(round(NODES * scale), 300), STEPS if scale >= 0.1 else 3
    rounds, quiet = (max(round(40 * min(scale, 1)), 4), QUIET) if scale >= TINY else (1, HELD)
    results: list[Result] = []
    with (
        Program(["-c", BARE], columns=200, rows=50, env=env) as bare,
        Program(["-m", "tests.terminal.large", str(nodes), str(steps)], columns=200, rows=50, env=env) as screen,
    ):
        wait_for(bare, [b"a"])
        wait_for(screen, [b"Begins at step"])
        drained(screen, 5 * quiet)
        least = [pressed(bare, "x", quiet) for _ in range(rounds)]
        for kind in KINDS:
            for key in kind.before:
                pressed(screen, key, quiet)
            costs = [
                (pressed(bare, "x", quiet), pressed(screen, kind.pressed[i % len(kind.pressed)], quiet))
                for i in range(rounds)
            ]
            least += [cost for cost, _ in costs]
            repeated = held(screen, [kind.pressed[i % len(kind.pressed)] for i in range(rounds)])
            drained(screen, quiet)
            results += of_kind(kind, [cost for _, cost in costs], [cost for cost, _ in costs], repeated)
        drained(screen, QUIET)
        idle = drained(screen, 1.0)
    note = f"{nodes:,} nodes, {nodes * steps:,} tensors, {rounds} keys a kind; {_times(least)}"
    results.append(Result("a key of a bare Textual app to its first byte", _late(least) * 1e3, unit="ms", note=note))
    results.append(Result("bytes written in an idle second", idle, 0, "B", at_most=True))
    return results


def of_kind(kind: Keys, costs: Sequence[Press], least: Sequence[Press], repeated: Sequence[int]) -> list[Result]:
    """Time and bytes of one kind of key; ``repeated`` are the bytes of each press while it is held."""
    most, typical = max(repeated), statistics.median(repeated)
    total = max(cost.bytes for cost in costs)
    note = f"all panes {total / 1024:.1f} KB"
    return [
        Result(f"{kind.name}: to the first byte, p95", _late(costs) * 1e3, KEY, "ms", at_most=True, note=_times(costs)),
        Result(f"{kind.name}: the same / bare app", _late(costs) / _late(least)),
        Result(
            f"{kind.name}: bytes",
            (most if kind.most >= PAGE else typical) / 1024,
            kind.most / 1024,
            "KB",
            at_most=True,
            note=note,
        ),
    ]


def pressed(program: Program, key: str, quiet: float = QUIET) -> Press:
    """Presses a key and waits until everything it leads to is written, so many seconds after the last of it."""
    started = time.perf_counter()
    program.send(key)
    first = program.read(3 * quiet)
    seconds = time.perf_counter() - started
    return Press(seconds, len(first) + drained(program, quiet))


def held(program: Program, keys: Sequence[str]) -> list[int]:
    """Presses keys as fast as a terminal repeats one that is held; returns the bytes of each until the next."""
    sizes = []
    for key in keys:
        program.send(key)
        size, until = 0, time.perf_counter() + HELD
        while (left := until - time.perf_counter()) > 0:
            size += len(program.read(left))
        sizes.append(size)
    return sizes


def drained(program: Program, quiet: float) -> int:
    """Bytes that come until none has come for a while."""
    size = 0
    while data := program.read(quiet):
        size += len(data)
    return size


def _late(costs: Sequence[Press]) -> float:
    """The 95th percentile of the seconds to the first byte."""
    ordered = sorted(cost.seconds for cost in costs)
    return ordered[min(int(0.95 * len(ordered)), len(ordered) - 1)]


def _times(costs: Sequence[Press]) -> str:
    ordered = sorted(1e3 * cost.seconds for cost in costs)
    return f"median {statistics.median(ordered):.1f} ms, best {ordered[0]:.1f} ms"
