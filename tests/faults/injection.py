"""Makes each system call of a command fail once, in a process that has the shim loaded: ``python -m`` this.

All modules are imported once; then a child is forked for each fault, which costs no start of a process. Jobs come as
lines of JSON on stdin (see ``Job``), and what each of them broke goes to stdout as a line of JSON.

The promise that every run is held to, on a dump of which the command says 0:

- exit code 0 means the same answer, byte for byte, on stdout and in the files that were written;
- a fault is no finding: exit code 1 is as wrong as another answer;
- whatever happens, there is no traceback, no other exit code, no end by a signal, and an end;
- a file that was to be written is there whole, or not at all, and nothing else stays; where exit code 2 says that
  modules could not be read, a tensor's file may lack them in its name;
- what happens to the index of earlier sessions changes no answer; nor does a read or write in two pieces.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import hashlib
import importlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tui_debugger.sources import registry

KINDS: Final = (
    *("", "open", "stat", "read", "opendir", "readdir", "mmap", "write", "fsync", "rename"),
    *("unlink", "mkdir", "create", "truncate"),
)
"""What is counted, as the shim numbers it."""
SHORT, VANISH = -1, -2
"""Besides numbers of errors, as the shim has them."""
LASTS: Final = 1 << 16
"""Added to an error: all calls of this kind fail from this one on."""
ERRORS: Final[dict[str, tuple[int, ...]]] = {
    "open": (errno.EACCES, errno.EIO, errno.EMFILE, VANISH, errno.EIO + LASTS),
    "stat": (errno.EACCES, errno.EIO, VANISH),
    "read": (errno.EIO, SHORT, VANISH),
    "opendir": (errno.EACCES, errno.EIO, errno.EMFILE, VANISH, errno.EACCES + LASTS),
    "readdir": (errno.EIO, VANISH),
    "mmap": (errno.ENOMEM, errno.EACCES),
    "write": (errno.ENOSPC, errno.EIO, SHORT, errno.ENOSPC + LASTS),
    "fsync": (errno.EIO, errno.ENOSPC),
    "rename": (errno.EIO, errno.EACCES, errno.ENOSPC),
    "unlink": (errno.EACCES, errno.EIO),
    "mkdir": (errno.EACCES, errno.ENOSPC),
    "create": (errno.EACCES, errno.ENOSPC, errno.EMFILE),
    "truncate": (errno.EIO, errno.ENOSPC),
}
"""What may happen to a call of each kind."""
_NOTICE: Final = re.compile(rb"^## Notices\n\n(- .*\n)*", re.MULTILINE)
"""The same in a report."""
LIMIT: Final = 60.0
"""Seconds after which a run hangs."""
_APART: Final = re.compile(r'"seconds": [0-9.e-]+|"notices": \[[^]]*\]')
"""Of an answer in JSON, what may differ: how long it took, and what is said about files that it does not depend on."""
UNTIDY: Final = ("Traceback (most recent call last)", "internal error", "Exception ignored")


@dataclass(frozen=True)
class Job:
    """What to try.

    Attributes:
        command: the command line; ``screen`` and a path opens the screen instead, ``listen`` and a path saves what was
            kept of a training there, with its values where ``values`` follows.
        prefix: calls on files below it fail.
        work: a directory of our own; the command line writes into ``work/out`` only.
        tries: faults of each kind and error; 0: all there are.
        places: so many of each place in the program, a stack of lines, that makes calls of a kind.
        warm: the index knows the dump.
        index: only the index is touched.
    """

    command: Sequence[str]
    prefix: str
    work: str
    tries: int = 0
    places: bool = False
    warm: bool = False
    index: bool = False


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    code: int
    out: str
    err: str
    files: dict[str, str]
    calls: int
    happened: str


class Shim:
    """What ``shim.c`` offers."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.fault_calls.restype = ctypes.c_long
        self._library.fault_happened.restype = ctypes.c_char_p
        self._library.fault_kinds.restype = ctypes.POINTER(ctypes.c_ubyte)
        self._library.fault_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int]

    def arm(self, prefix: str, call: int, error: int) -> None:
        lasts = error >= LASTS
        self._library.fault_arm(os.fsencode(prefix), call, error - LASTS * lasts, lasts)

    def disarm(self) -> None:
        self._library.fault_disarm()

    def calls(self) -> int:
        return int(self._library.fault_calls())

    def happened(self) -> str:
        return bytes(self._library.fault_happened()).decode(errors="replace")

    def kinds(self) -> list[str]:
        """The kind of each call that was counted."""
        return [KINDS[number] for number in self._library.fault_kinds()[1 : self.calls() + 1]]


def run_command(words: Sequence[str]) -> int:
    if words[0] == "screen":
        from tests.faults.screen import opened

        return asyncio.run(opened(Path(words[1])))
    if words[0] == "listen":
        from tests.faults.listening import listened

        return listened(Path(words[1]), values=words[2:] == ["values"])
    from tui_debugger.cli.main import main

    try:
        return main(list(words))
    except SystemExit as left:
        return int(left.code or 0)


def written(folder: Path) -> dict[str, str]:
    """The files below a directory, by what is in them."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            told = _NOTICE.sub(b"", content) if path.suffix == ".md" else content
            found[str(path.relative_to(folder))] = hashlib.sha256(told).hexdigest()
    return found


class Runs:
    """Runs a command again and again, each time in a child."""

    def __init__(self, job: Job, shim: Shim) -> None:
        self.job, self.shim = job, shim
        self.work = Path(job.work)
        self.cache = self.work / "cache"
        self.remembered = self.work / "cache.warm"
        self.out = self.work / "out"
        os.environ["TDBG_CACHE_DIR"] = str(self.cache)

    def prepare(self) -> None:
        """Imports what the command imports, and fills the index where it shall know the dump."""
        names = self.asked(lambda: json.dumps([name for name in sys.modules if name != "__main__"]))
        for name in json.loads(names):
            if name not in sys.modules:
                try:
                    importlib.import_module(name)
                except ImportError:
                    continue
        points = list(registry._entry_points())  # looking through all installed packages is a third of a short run
        registry._entry_points = lambda: iter(points)  # type: ignore[assignment]  # who asks takes any iterator
        gc.collect()
        gc.freeze()  # else each child copies all that is there
        if self.job.warm:
            self.once(0, 0)
        if self.job.warm and self.cache.exists():
            shutil.copytree(self.cache, self.remembered)

    def asked(self, ask: Callable[[], str], run: Callable[[Sequence[str]], int] = run_command) -> str:
        """What a child says after a run without a fault."""
        with tempfile.TemporaryFile("w+") as answer:
            self._fresh()

            def tell() -> None:
                answer.write(ask())
                answer.flush()

            child = self._forked(0, 0, tell, run)
            os.waitpid(child, 0)
            answer.seek(0)
            return answer.read()

    def calls(self) -> tuple[list[str], list[int]]:
        """The kind of each call of a run without a fault, and a number for the place in the program that makes it."""
        places = Places(self.shim)

        def run_noted(words: Sequence[str]) -> int:
            with places:
                return run_command(words)

        told = self.asked(lambda: json.dumps([self.shim.kinds(), places.places]), run_noted)
        kinds, numbers = json.loads(told)
        return kinds, numbers

    def once(self, call: int, error: int) -> Ended:
        """Runs it, with a fault at a call."""
        self._fresh()
        with tempfile.TemporaryFile("w+") as answer:

            def tell() -> None:
                answer.write(json.dumps([self.shim.calls(), self.shim.happened()]))
                answer.flush()

            child = self._forked(call, error, tell)
            code = self._waited(child)
            answer.seek(0)
            calls, happened = json.loads(answer.read() or '[0, "?"]')
        out, err = (
            (self.work / name).read_text("utf-8", "backslashreplace").replace("\r", "\n")
            for name in ("stdout", "stderr")
        )
        out = _APART.sub("", out)
        return Ended(code, out, err, written(self.out), calls, happened)

    def _fresh(self) -> None:
        for folder in (self.cache, self.out):
            shutil.rmtree(folder, ignore_errors=True)
        self.out.mkdir()
        if self.remembered.exists():
            shutil.copytree(self.remembered, self.cache)

    def _forked(
        self,
        call: int,
        error: int,
        tell: Callable[[], None],
        run: Callable[[Sequence[str]], int] = run_command,
    ) -> int:
        child = os.fork()
        if child:
            return child
        code = 99
        try:
            os.setpgid(0, 0)
            for number, name in ((1, "stdout"), (2, "stderr")):
                file = os.open(self.work / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                os.dup2(file, number)
                os.close(file)
            sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - until the end of the process
            sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115 - as above
            self.shim.arm(self.job.prefix, call, error)
            code = run(self.job.command)
            sys.stdout.flush()
            self.shim.disarm()
            tell()
        except BaseException:  # noqa: BLE001 - it is printed, and a traceback is what is looked for
            import traceback

            self.shim.disarm()
            traceback.print_exc()
            sys.stderr.flush()
            tell()
        finally:
            os._exit(code & 0xFF)

    def _waited(self, child: int) -> int:
        """The exit code of a child; negative: the signal that ended it, -1000: it never ended."""
        handle = os.pidfd_open(child)
        try:
            ended, _, _ = select.select([handle], [], [], LIMIT)
        finally:
            os.close(handle)
        if not ended:
            os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status) if ended else -1000


def spread(calls: Sequence[int], tries: int) -> Iterable[int]:
    """So many of them, from first to last."""
    if not tries or len(calls) <= tries:
        return calls
    return [calls[round(i * (len(calls) - 1) / max(tries - 1, 1))] for i in range(tries)]


class Places:
    """Notes in which place of the program each call is made: the lines of all functions that were called by then."""

    def __init__(self, shim: Shim) -> None:
        self._shim = shim
        self.places: list[int] = []

    def __enter__(self) -> None:
        threading.setprofile(self._happens)
        sys.setprofile(self._happens)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _happens(self, frame: FrameType, *_: object) -> None:
        """Something is called, or returns: calls of the system that were made meanwhile belong to this place."""
        missing = self._shim.calls() - len(self.places)
        if missing > 0:
            lines: list[tuple[str, int]] = []
            at: FrameType | None = frame
            while at is not None:
                lines.append((at.f_code.co_filename, at.f_lineno))
                at = at.f_back
            self.places += [zlib.crc32(repr(lines).encode())] * missing


def faults(kinds: Sequence[str], places: Sequence[int], tries: int) -> Iterator[tuple[int, int]]:
    """The calls, and what happens to each; ``places`` has a number for the place of each, as far as that matters."""
    alike: dict[tuple[str, int], list[int]] = {}
    for number, (kind, place) in enumerate(zip_longest(kinds, places[: len(kinds)], fillvalue=0), 1):
        alike.setdefault((str(kind), int(place)), []).append(number)
    for (kind, _), calls in alike.items():
        for place, error in enumerate(ERRORS[kind]):
            few = spread(calls[place % 2 :] or calls, tries)  # not the same calls for each error
            yield from ((call, error) for call in few)


def wrong(job: Job, whole: Ended, ended: Ended, error: int) -> str:
    """What a run broke of the promise; empty: nothing."""
    said = ended.out + ended.err
    written_there = job.prefix == f"{job.work}/out"  # else a file may hold less, which is said
    tensors = set(whole.files.values())
    if job.prefix == f"{job.work}/spool" and ended.code:  # of what was lost the statistics are saved, which is said
        ended = replace(ended, files={name: made for name, made in ended.files.items() if "statistic" not in name})
    other = [
        name
        for name, made in ended.files.items()
        if whole.files.get(name) != made
        and (written_there or not ended.code or (name not in whole.files and made not in tensors))
    ]
    unharmed = job.index or error == SHORT
    rules = {
        f"it hangs: no end after {LIMIT:g} s": ended.code == -1000,
        f"exit code {ended.code}": ended.code not in (0, 1, 2),
        "a traceback": any(words in said for words in UNTIDY),
        f"files that are not whole, or should not be there: {other}": bool(other),
        "a finding that is none": ended.code == 1,
        "exit code 0 with another answer": ended.code == 0 and ended.out != whole.out,
        "exit code 0 without a file": ended.code == 0 and len(ended.files) < len(whole.files),
        "exit code 2, although nothing was unread": ended.code == 2 and unharmed,
        "exit code 2 without a word": ended.code == 2 and not said.strip(),
    }
    return next((why for why, is_so in rules.items() if is_so), "")


def name_of(error: int) -> str:
    if error >= LASTS:
        return f"{name_of(error - LASTS)} from here on"
    return {SHORT: "in two pieces", VANISH: "vanished"}.get(error) or errno.errorcode[error]


def tried(job: Job) -> dict[str, Any]:
    """Tries all faults; returns how many there were, and what broke."""
    shim = Shim()
    runs = Runs(job, shim)
    runs.prepare()
    whole = runs.once(0, 0)
    kinds, places = runs.calls()
    if whole.code != 0 or wrong(job, whole, runs.once(0, 0), 0):
        return {"calls": len(kinds), "tried": 0, "broken": [{"why": "without a fault", **asdict(whole)}]}
    broken: list[dict[str, Any]] = []
    count = survived = 0
    for call, error in faults(kinds, places if job.places else (), job.tries):
        ended = runs.once(call, error)
        count += 1
        survived += ended.code == 0
        why = wrong(job, whole, ended, error)
        if why:
            fault = f"call {call} {name_of(error)}: {ended.happened}"
            broken.append({"fault": fault, "why": why, "code": ended.code, "out": ended.out, "err": ended.err})
    return {"calls": len(kinds), "tried": count, "answered": survived, "broken": broken}


def build_shim(folder: Path) -> Path | None:
    """Compiles the shim into a directory; None where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    made, source = folder / "shim.so", Path(__file__).with_name("shim.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, source, "-ldl"], check=True)
    return made


def inject(shim: Path, job: Job) -> dict[str, Any]:
    """Tries a job in a process with the shim; the answer is that of ``tried``."""
    with closing(Injector(shim)) as injector:
        return injector.inject(job)


class Injector:
    """A process with the shim, which tries one job after the other: what one of them imported is there for the next."""

    def __init__(self, shim: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.injection"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            cwd=Path(__file__).parents[2],
        )

    def close(self) -> None:
        """Lets the process end."""
        self._process.communicate()

    def inject(self, job: Job) -> dict[str, Any]:
        """Tries a job; the answer is that of ``tried``."""
        Path(job.work).mkdir(parents=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(job)) + "\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline()
        assert said, f"the process ended, see its stderr: exit code {self._process.wait()}"
        answer: dict[str, Any] = json.loads(said)
        return answer


def serve() -> None:
    """Tries the jobs that come on stdin, one a line; each has a home of its own."""
    for line in sys.stdin:
        job = Job(**json.loads(line))
        home = str(Path(job.work) / "home")
        os.environ.update(dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"), home))
        sys.stdout.write(json.dumps(tried(job)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
