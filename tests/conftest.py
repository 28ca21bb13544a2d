"""Real dumps and recorded answers for every test."""

from __future__ import annotations

import fcntl
import gc
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests import slow, thorough
from tests.linked import GUARDED
from tui_debugger.demo import DEMO, unpack
from tui_debugger.stats import kernel
from tui_debugger.stats.kernel import build

DATA = Path(__file__).with_name("data")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell without job control lets what it starts in the background ignore Ctrl-C, and programs hand that on: the
    # tests of Ctrl-C, and the programs that they start, are to be as they are in front.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # as above
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it


# Nothing is garbage while tests are collected, see ``pytest_collection_finish``.
gc.disable()

# Containers often forbid it: then each worker, and each of the hundreds of programs that the tests start, would compile
# this package and the tests anew, which takes longer than what is tested.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


# Each worker has a core. Threads of a library would wait for each other in a loop, which takes the core from the other
# worker and from the programs that the tests start (they inherit this).
for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help="all parameters, and many more examples of each property")


MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes a directory of its own in it
ROOM = 8 << 30
"""Bytes that must be free in memory; a run takes less than one tenth."""


def _in_memory() -> bool:
    """Tells whether directories for tests can lie in memory: on a disk the tests wait for it a third of their time."""
    try:
        there = os.statvfs(MEMORY)
    except OSError:
        return False
    return (
        there.f_bavail * there.f_frsize >= ROOM
        and not there.f_flag & (os.ST_NOEXEC | os.ST_RDONLY)
        and os.access(MEMORY, os.W_OK)
    )


@pytest.hookimpl(tryfirst=True)
def pytest_make_parametrize_id(val: object) -> str | None:
    """Names signals by their numbers, as Python 3.11 does: the list of slow tests has one name for each."""
    return str(int(val)) if isinstance(val, signal.Signals) else None


def pytest_cmdline_main(config: pytest.Config) -> None:
    """Of several workers each begins with tests that lie together and share fixtures; none is idle at the end."""
    if sys.platform == "linux" and config.option.basetemp is None and _in_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", os.fspath(MEMORY))
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist = "worksteal"
    if thorough.everyday(config):
        config.option.markexpr = "not slow"


def pytest_configure(config: pytest.Config) -> None:
    thorough.choose(config.getoption("--thorough"))
    wanted = os.environ.get(kernel.SWITCH, "").lower() != "off" and not hasattr(config, "workerinput")
    if wanted and not kernel.available():  # workers of xdist find what is there
        with suppress(build.NoCompilerError, OSError):  # then the tests of the kernel are left out
            build.build()
            kernel.forget()


@pytest.fixture(params=["compiled", "numpy"], scope="module")
def measured_by(request: pytest.FixtureRequest) -> Iterator[str]:
    """The kernel measures, then numpy does."""
    if request.param == "compiled" and not kernel.available():
        pytest.skip("the kernel is not built, and there is no C compiler")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "numpy":
            patch.setenv(kernel.SWITCH, "off")
        yield str(request.param)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is left to a thorough run runs with ``--thorough``, and where it is asked for by its whole name.

    Of the others pytest then leaves out the slow ones, unless they are asked for.
    """
    slow.mark(items)
    config.stash[thorough.ALL] = list(items)
    if config.getoption("--thorough"):
        return
    left_out = {item for item in thorough.left_to_thorough(items) if item.nodeid not in config.args}
    config.stash[thorough.LEFT] = [item for item in items if item in left_out]
    if left_out:
        config.hook.pytest_deselected(items=config.stash[thorough.LEFT])
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """All tests and what they import stay until the end: the collector of garbage need not look at them again.

    What comes after them is looked at less often than a process that is short of memory would have to.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


def archive(name: str) -> Path:
    """Where the archive of a dump lies: the demo's ships inside the package."""
    return DEMO if DEMO.name.startswith(name + ".") else DATA / f"{name}.tar.xz"


def _unpacked(packed: Path, parent: Path) -> Path:
    """What ``unpack`` makes; the tar of the system takes a fifth of its time for the 50,000 files of all dumps."""
    name = packed.name.removesuffix(".tar.xz")
    if not (parent / name).exists() and shutil.which("tar") and shutil.which("xz"):
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent) as scratch:
            command = ["tar", "--no-same-owner", "-xpJf", os.fspath(packed), "-C", scratch]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                (Path(scratch) / name).rename(parent / name)
    return unpack(packed, parent)  # only where it is not there yet


UNPACKED = "TDBG_TEST_DUMPS"
"""Where a test that runs tests in another process tells it that dumps are unpacked."""


@pytest.fixture(scope="session")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """Unpacks a real dump once per test run, for all workers: ``dumps("mindspore-2.0-nan")``.

    Nobody may change it: a test that wants to takes a copy of ``linked``.
    """
    base = tmp_path_factory.getbasetemp()
    parent = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "dumps"
    parent = Path(os.environ.get(UNPACKED) or parent)

    @cache
    def unpacked(name: str) -> Path:
        with parent.with_name(f"{name}.lock").open("w") as lock:  # the others wait for the first
            fcntl.flock(lock, fcntl.LOCK_EX)
            return GUARDED.add(_unpacked(archive(name), parent))

    yield unpacked
    GUARDED.check()


@cache
def _golden(name: str) -> dict[str, Any]:
    with lzma.open(DATA / f"{name}.golden.json.xz", "rt") as file:
        answers: dict[str, Any] = json.load(file)
    return answers


@pytest.fixture(scope="session")
def golden() -> Callable[[str], dict[str, Any]]:
    """The answers MindInsight 2.0.0 gave on a dump: ``golden("mindspore-2.0-mlp")``."""
    return _golden


_homes = count()


@pytest.fixture(scope="session")
def _homes_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(autouse=True)
def _private_user_directories(
    _homes_folder: Path, dumps: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """No test reads or writes the state, cache or configuration of the person who runs it.

    The demo dump is in each cache: one for all tests, as nobody changes it.
    """
    demo = dumps("mindspore-2.0-nan")
    home = _homes_folder / str(next(_homes))
    home.mkdir()
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(home / name.lower()))
    (home / "xdg_cache_home" / "tdbg").mkdir(parents=True)
    (home / "xdg_cache_home" / "tdbg" / demo.name).symlink_to(demo)
    monkeypatch.setenv("TDBG_CACHE_DIR", str(home / "cache"))
    monkeypatch.delenv("TDBG_CACHE_LIMIT", raising=False)
    monkeypatch.delenv("TDBG_CONFIG", raising=False)
    yield
    shutil.rmtree(home, ignore_errors=True)  # thousands of them would make each new one slower to make
