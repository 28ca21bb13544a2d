"""Reads damaged files and messages, and sees to it that nothing worse happens than that they cannot be read.

``python -m tests.fuzz`` tries a fixed number, the same ones every time, in about half a minute; ``--thorough`` tries
others for an hour, or ``--minutes``. What breaks is written to ``--keep`` and belongs into the corpus
(``tests/data/fuzz-corpus.tar.xz``, made anew by ``--pack``), which is tried first.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import resource
import select
import shutil
import signal
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.fuzz.messages import messages_tried
from tests.fuzz.mutations import mutated
from tests.fuzz.seeds import SEEDS, Seed, planted

CORPUS: Final = Path(__file__).parents[1] / "data" / "fuzz-corpus.tar.xz"
EVERY_RUN: Final = 40
"""Damaged files of each kind, in every run."""
MESSAGES: Final = 400
"""Damaged messages, in every run."""
LIMIT: Final = 20.0
"""Seconds that a file of a few kilobytes may take."""
MEMORY: Final = 512 << 20
"""Bytes by which reading one may make the process grow."""
MEMORY_DISK: Final = "/dev/shm"  # noqa: S108 - a directory of our own is made in it
UNTIDY: Final = ("Traceback (most recent call last)", "internal error", "Exception ignored", "RuntimeWarning")


@dataclass(frozen=True)
class Broken:
    """A damaged file that did harm."""

    name: str
    content: bytes
    why: str


def _run(words: tuple[str, ...]) -> int:
    from tui_debugger.cli.main import main

    try:
        return main(list(words))
    except SystemExit as left:
        return int(left.code or 0)


def _grown() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _try_here(seed: Seed, contents: Iterable[bytes], tell: Callable[[str], None]) -> None:
    """Reads damaged files in this process, which is a child; tells a line for each: empty, or what is wrong."""
    for content in contents:
        seed.file.write_bytes(content)
        out, err = io.StringIO(), io.StringIO()
        sys.stdout, sys.stderr = out, err
        before = _grown()
        try:
            code = _run(seed.command)
        finally:
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        said = out.getvalue() + err.getvalue()
        why = next((words for words in UNTIDY if words in said), "")
        if code not in (0, 1, 2):
            why = f"exit code {code}"
        elif not why and _grown() - before > MEMORY:
            why = f"it took {(_grown() - before) >> 20} MiB"
        where = re.findall(r'File ".*?tui_debugger/(\S+?)", line (\d+)', said)
        tell(f"{why} {' '.join(':'.join(each) for each in where[-1:])}".strip())


def tried(seed: Seed, contents: list[bytes]) -> Iterator[Broken]:
    """Reads damaged files one after the other in children, each of which goes on until something breaks."""
    whole = seed.file.read_bytes()
    done = 0
    while done < len(contents):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            for number in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            try:
                _try_here(seed, contents[done:], partial(_tell, writing))
            finally:
                os._exit(3)
        os.close(writing)
        with os.fdopen(reading, "r", encoding="utf-8") as lines:
            ended = False
            while done < len(contents) and not ended:
                ready, _, _ = select.select([lines], [], [], LIMIT)
                line = lines.readline() if ready else ""
                ended = not line
                if ended:
                    with suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
                    yield Broken(
                        seed.name, contents[done], "the process died" if ready else f"no end after {LIMIT:g} s"
                    )
                elif line.strip():
                    yield Broken(seed.name, contents[done], line.strip())
                done += 1
        os.waitpid(child, 0)
    seed.file.write_bytes(whole)


def _tell(descriptor: int, line: str) -> None:
    os.write(descriptor, f"{line}\n".encode())


def corpus() -> dict[str, list[bytes]]:
    """The damaged files that are kept, by kind."""
    found: dict[str, list[bytes]] = {}
    with tarfile.open(CORPUS) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                found.setdefault(member.name.split("/")[0].replace("-", " "), []).append(file.read())
    return found


def packed(folder: Path) -> None:
    """Adds the files of a directory (KIND/any-name) to the corpus; nothing in it is there twice."""
    contents = {name.replace(" ", "-"): set(files) for name, files in corpus().items()} if CORPUS.exists() else {}
    for path in folder.glob("*/*"):
        contents.setdefault(path.parent.name, set()).add(path.read_bytes())
    with tarfile.open(CORPUS, "w:xz", preset=9) as archive:
        for name in sorted(contents):
            for number, content in enumerate(sorted(contents[name])):
                member = tarfile.TarInfo(f"{name}/{number:03}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def main() -> int:
    """Returns 1 when something broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--thorough", action="store_true", help="for an hour, with new numbers")
    parser.add_argument("--minutes", type=float, default=60.0, help="with --thorough: so long")
    parser.add_argument("--first", type=int, default=1_000_000, help="with --thorough: the first number")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="where findings are written")
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="add the files of a directory to the corpus")
    arguments = parser.parse_args()
    if arguments.pack:
        packed(arguments.pack)
        return 0
    began, count = time.monotonic(), 0
    broken: list[Broken] = []
    kept = corpus() if CORPUS.exists() else {}
    folder = Path(tempfile.mkdtemp(prefix="tdbg-fuzz-", dir=MEMORY_DISK if os.access(MEMORY_DISK, os.W_OK) else None))
    os.environ.update(HOME=str(folder), XDG_CACHE_HOME=str(folder), XDG_CONFIG_HOME=str(folder), TDBG_CACHE_DIR="")
    try:
        seeds = [planted(name, folder) for name in SEEDS]
        wholes = {seed.name: seed.file.read_bytes() for seed in seeds}
        numbers = range(EVERY_RUN)
        while True:
            for seed in seeds:
                contents = [mutated(wholes[seed.name], number) for number in numbers] + kept.pop(seed.name, [])
                broken += tried(seed, contents)
                count += len(contents)
            first = arguments.first if numbers.start == 0 else numbers.stop
            numbers = range(first, first + EVERY_RUN)
            if not arguments.thorough or time.monotonic() - began > 60 * arguments.minutes:
                break
        messages, complaints = messages_tried(MESSAGES * (1 + 20 * arguments.thorough))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for place, each in enumerate(broken):
        path = arguments.keep / each.name.replace(" ", "-") / f"{place:03}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(each.content)
        sys.stdout.write(f"{path}: {each.why}\n")
    for text in complaints:
        sys.stdout.write(f"message: {text}\n")
    took = time.monotonic() - began
    failures = len(broken) + len(complaints)
    sys.stdout.write(
        f"fuzz: {count:,} damaged files of {len(SEEDS)} kinds and {messages:,} damaged messages in {took:.0f} s\n"
        f"{count + messages - failures} passed, {failures} failed\n"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
