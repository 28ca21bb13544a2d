"""The headless rooms stay headless, and starting the program loads only what it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest


def modules_after(statement: str) -> set[str]:
    """Names in sys.modules of a fresh interpreter that ran one statement."""
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


HEADLESS = (
    *("errors", "model", "opener", "graph", "stats", "watch", "text", "cache", "sources", "session", "api", "compat"),
    *("live", "live.client", "live.server"),
)


@pytest.mark.parametrize("package", HEADLESS)
def test_headless_packages_never_load_the_screen(package: str) -> None:
    loaded = modules_after(
        "import pkgutil, importlib, tui_debugger\n"
        f"m = importlib.import_module('tui_debugger.{package}')\n"
        "[importlib.import_module(f'{m.__name__}.{i.name}') for i in pkgutil.walk_packages(getattr(m, '__path__', []))"
        " if '.' not in i.name]"
    )
    assert not loaded & {"textual", "rich"}


@pytest.mark.parametrize("package", ["model", "stats", "watch"])
def test_statistics_need_numpy_only(package: str) -> None:
    loaded = modules_after(f"import tui_debugger.{package}")
    assert not loaded & {"google.protobuf", "grpc", "watchfiles", "sqlite3"}


@pytest.mark.parametrize("package", ["torch", "live.client"])
def test_a_training_pays_for_the_network_only_when_it_has_an_address(package: str) -> None:
    loaded = modules_after(f"import tui_debugger.{package}")
    assert not loaded & {"grpc", "torch", "textual", "rich", "sqlite3", "tui_debugger.sources", "tui_debugger.session"}


def test_a_store_loads_sqlite_and_numpy_only_when_it_is_used() -> None:
    made = "import tui_debugger.cache as c, tempfile, os\nos.environ['TDBG_CACHE_DIR'] = tempfile.gettempdir()\n"
    loaded = modules_after(f"{made}assert c.default_store() is not None")
    assert not loaded & {"numpy", "sqlite3", "_sqlite3"}


def test_the_command_line_starts_without_numpy_and_textual() -> None:
    loaded = modules_after("import tui_debugger.cli.main as m\nm.build_parser()")
    assert not loaded & {"numpy", "textual", "rich", "google.protobuf", "grpc", "watchfiles", "sqlite3"}


def test_a_command_starts_without_the_others() -> None:
    loaded = modules_after("import tui_debugger.cli.main as m\nm.build_parser('open')")
    commands = {name for name in loaded if name.startswith("tui_debugger.cli.")}
    needed = {"main", "options", "output", "open_"}
    assert commands <= {f"tui_debugger.cli.{name}" for name in needed}


@pytest.mark.parametrize("package", ["api", "cache", "live.client", "live.server"])
def test_packages_have_the_names_that_they_promise(package: str) -> None:
    """Some load them when they are asked for: a name in the wrong place would show only then."""
    modules_after(f"import tui_debugger.{package} as m\nassert m.__all__\n[getattr(m, name) for name in m.__all__]")
