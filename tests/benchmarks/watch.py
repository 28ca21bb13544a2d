"""Seven watchpoints over dumps: two gigabytes of big tensors, fifty steps of small ones, one tensor of 8 GB."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from tests.benchmarks.dumps import big_tensors, break_steps, files_of, many_steps, one_tensor
from tests.benchmarks.timing import Result, anonymous_peak, best
from tui_debugger.session import Session
from tui_debugger.session.session import open_dump
from tui_debugger.session.watchpoints import watchpoints_from
from tui_debugger.sources.base import directory_states
from tui_debugger.stats.workers import MeasureWorkers

SEVEN: Final = (
    "TO @ category=tensor",
    "TL abs_mean_gt=100 @ category=tensor",
    "TZ zero_percentage_ge=100 @ category=tensor",
    "TR range_start_inclusive=-1 range_end_inclusive=1 range_percentage_lt=10 @ category=tensor",
    "WNC rtol=1e-5 @ category=tensor",
    "WCL abs_mean_update_ratio_gt=10 @ category=tensor",
    "TS abs_mean_lt=1e-9 @ category=tensor",
)
JOBS: Final = 2
TENSORS, ELEMENTS, STEPS, HUGE = 585, 427_350, 50, 2_000_000_000


def run(scale: float, folder: Path) -> list[Result]:
    """All three."""
    small = max(scale, 0.01)
    big = big_tensors(folder, max(10, round(TENSORS * min(1, 10 * small))), max(5000, round(ELEMENTS * min(1, small))))
    results = [*of_big_tensors(big), *of_many_steps(many_steps(folder, max(4, round(STEPS * small))), folder)]
    return [*results, *of_one_tensor(one_tensor(folder, max(1 << 20, round(HUGE * scale))))]


def of_big_tensors(root: Path) -> list[Result]:
    """Against a bare scan of the same files, memory-mapped, in one thread."""
    files, command = files_of(root), check_command(root)
    rounds = [(best(lambda: scan(files), 1), engine(root), best(lambda: done(command), 1)) for _ in range(3)]
    scanned, checked, whole = (min(times) for times in zip(*rounds, strict=True))
    gigabytes = sum(file.stat().st_size for file in files) / 1e9
    note = f"{gigabytes:.3g} GB in {len(files)} tensors, {JOBS} workers"
    return [
        Result("seven watchpoints over big tensors, engine / isfinite scan", scanned / checked, 0.3, note=note),
        Result("the whole command / isfinite scan", scanned / whole, 0.15, note="tdbg check, start included"),
        memory("memory of that command", command),
    ]


def of_many_steps(root: Path, folder: Path) -> list[Result]:
    """Against the time that numpy alone takes to read the same files once."""
    files = files_of(root)
    named = [str(file) for file in files]
    loaded = best(lambda: [np.load(file) for file in named], 2)

    def opened_and_checked() -> None:
        with closing(open_dump(root, workers=MeasureWorkers(JOBS))) as session:
            prepare(session)
            session.check(session.pairs())

    cold, known = [], []
    for _ in range(2):
        with index_in(Path(tempfile.mkdtemp(dir=folder))):
            cold.append(best(opened_and_checked, 1))
            known.append(best(opened_and_checked, 3))
    folders: dict[bytes, list[bytes]] = {}
    for file in files:
        folders.setdefault(os.fsencode(file.parent), []).append(os.fsencode(file.name))
    asked = best(lambda: [directory_states(folder, names) for folder, names in folders.items()], 3)
    break_steps(root)
    with index_in(Path(tempfile.mkdtemp(dir=folder))):
        broken = [best(opened_and_checked, 1), best(opened_and_checked, 3)]
    note = f"{len(files)} files in {len(list(root.glob('rank_0/*/*/*')))} steps: opened, checked, closed"
    return [
        Result("seven watchpoints over many steps / numpy.load", min(cold) / loaded, 0.25, at_most=True, note=note),
        Result("the same from the index / numpy.load", min(known) / loaded, 0.08, at_most=True, note="another session"),
        Result("every tensor NaN from step 3 on / the healthy run", broken[0] / min(cold), note="origins included"),
        Result("the same, both from the index", broken[1] / min(known)),
        Result("size and time of every file / numpy.load", asked / loaded, note="a part of it: the index may be old"),
    ]


def of_one_tensor(root: Path) -> list[Result]:
    """Memory only: how long it takes the disk says."""
    show = [sys.executable, "-m", "tui_debugger", "show", str(root), "MatMul-op1", "[1000:1010, 0:8]", "--no-cache"]
    note = f"{sum(file.stat().st_size for file in files_of(root)) / 1e9:.3g} GB"
    return [
        memory("memory of a check of one huge tensor", check_command(root), note),
        memory("memory of showing a slice of it", show, note),
    ]


def prepare(session: Session) -> None:
    """Everything before the check."""
    session.open()
    session.watchpoints.add_missing(watchpoints_from(SEVEN, ()))


def engine(root: Path) -> float:
    """Seconds of a check alone: the session is open, and its workers are there."""
    workers = MeasureWorkers(JOBS)
    with closing(open_dump(root, workers=workers, remember=False)) as session:
        prepare(session)
        executor = workers.executor(1 << 62)
        wait([executor.submit(os.getpid) for _ in range(JOBS)] if executor is not None else ())
        return best(lambda: session.check(session.pairs()), 1)


def check_command(root: Path) -> list[str]:
    """The command that does the same."""
    watches = [word for text in SEVEN for word in ("--watch", text)]
    command = ["check", str(root), *watches, "--no-cache", "--jobs", str(JOBS)]
    return [sys.executable, "-m", "tui_debugger", *command]


def done(command: Sequence[str]) -> None:
    """Runs a check, which finds something or not."""
    code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    if code > 1:
        raise subprocess.CalledProcessError(code, command)


def scan(files: Sequence[Path]) -> None:
    """The least that any check for NaN and Inf has to do."""
    for file in files:
        np.isfinite(np.load(file, mmap_mode="r")).all()


def memory(name: str, command: Sequence[str], note: str = "") -> Result:
    """The greatest anonymous memory of a command and its workers together."""
    peak, code = anonymous_peak(command)
    if code > 1:
        raise subprocess.CalledProcessError(code, command)
    return Result(name, peak / 1e6, 250, "MB", at_most=True, note=note)


@contextmanager
def index_in(folder: Path) -> Iterator[None]:
    """An index of statistics that nobody has used yet."""
    before = os.environ.get("TDBG_CACHE_DIR")
    os.environ["TDBG_CACHE_DIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["TDBG_CACHE_DIR"]
        else:
            os.environ["TDBG_CACHE_DIR"] = before
