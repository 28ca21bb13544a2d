"""Real dumps and recorded answers for every test."""

from __future__ import annotations

import json
import lzma
import os
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tui_debugger.demo import DEMO, unpack

DATA = Path(__file__).with_name("data")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell without job control lets what it starts in the background ignore Ctrl-C, and programs hand that on: the
    # tests of Ctrl-C, and the programs that they start, are to be as they are in front.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def archive(name: str) -> Path:
    """Where the archive of a dump lies: the demo's ships inside the package."""
    return DEMO if DEMO.name.startswith(name + ".") else DATA / f"{name}.tar.xz"


@pytest.fixture(scope="session")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Unpacks a real dump once per test run, for all workers: ``dumps("mindspore-2.0-nan")``. Treat it as read-only."""
    base = tmp_path_factory.getbasetemp()
    parent = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "dumps"
    return cache(lambda name: unpack(archive(name), parent))


@cache
def _golden(name: str) -> dict[str, Any]:
    with lzma.open(DATA / f"{name}.golden.json.xz", "rt") as file:
        answers: dict[str, Any] = json.load(file)
    return answers


@pytest.fixture(scope="session")
def golden() -> Callable[[str], dict[str, Any]]:
    """The answers MindInsight 2.0.0 gave on a dump: ``golden("mindspore-2.0-mlp")``."""
    return _golden


@pytest.fixture(autouse=True)
def _private_user_directories(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the state, cache or configuration of the person who runs it."""
    home = tmp_path_factory.mktemp("home")
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(home / name.lower()))
    monkeypatch.setenv("TDBG_CACHE_DIR", str(home / "cache"))
    monkeypatch.delenv("TDBG_CACHE_LIMIT", raising=False)
