"""The headless rooms stay headless, starting loads only what it needs, and no import leads back to where it began."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath

import pytest

from tests import program_files
from tests.program_files import PACKAGE


def modules_after(statement: str) -> set[str]:
    """Names in sys.modules of a fresh interpreter that ran one statement."""
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


HEADLESS = (
    *("errors", "model", "opener", "graph", "stats", "watch", "text", "cache", "sources", "session", "api", "compat"),
    *("live", "live.client", "live.server", "recording"),
)


@pytest.mark.parametrize("package", HEADLESS)
def test_headless_packages_never_load_the_screen(package: str) -> None:
    loaded = modules_after(
        "import pkgutil, importlib, tui_debugger\n"
        f"m = importlib.import_module('tui_debugger.{package}')\n"
        "[importlib.import_module(f'{m.__name__}.{i.name}') for i in pkgutil.iter_modules(getattr(m, '__path__', []))]"
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


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the program, by its dotted name."""
    found = {}
    for name, tree in program_files.modules().items():
        parts = (PACKAGE.name, *PurePosixPath(name).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = tree
    return found


def import_statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """All of a file: those that run when it is loaded, those in functions, those for annotations only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif not isinstance(child, ast.expr):  # most of a program; no statement is part of one
            yield from import_statements(child)


@cache
def imports() -> dict[str, set[str]]:
    """What each module imports of the program."""
    graph: dict[str, set[str]] = {}
    for name, tree in modules().items():
        named = set()
        for statement in import_statements(tree):
            if isinstance(statement, ast.Import):
                named |= {alias.name for alias in statement.names}
            elif statement.module:
                module = statement.module
                inner = {f"{module}.{alias.name}" for alias in statement.names}
                named |= {each if each in modules() else module for each in inner}
        graph[name] = (named & modules().keys()) - {name}
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in graph[name]:
            if other not in number:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], number[other])
        if low[name] == number[name]:
            at = stack.index(name)
            if len(stack) > at + 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in graph:
        if name not in number:
            visit(name)
    return found


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a", "f"}, "f": {"g"}, "g": {"e"}}
    assert circles(graph) == [["b", "c"], ["e", "f", "g"]]


def test_no_module_knows_itself_through_others_not_even_in_functions_or_for_annotations() -> None:
    assert len(imports()) > 350
    assert circles(imports()) == []


@pytest.mark.parametrize(
    ("who", "not_whom"),
    [
        ("views", ("app", "main_screen", "live", "checker", "watcher")),
        ("values", ("app", "main_screen", "live", "checker", "navigator", "watcher", "inspector", "context")),
        ("panes", ("app", "main_screen", "live", "checker", "navigator", "watcher", "inspector", "context", "views")),
        ("dialogs", ("app", "main_screen", "live", "checker", "navigator", "watcher", "inspector", "context")),
        ("widgets", ("app", "main_screen", "live", "context", "panes", "dialogs", "values", "work")),
    ],
)
def test_what_is_shown_does_not_know_who_shows_it(who: str, not_whom: tuple[str, ...]) -> None:
    room = "tui_debugger.tui"
    known = {
        (name, other)
        for name, others in imports().items()
        if name.startswith(f"{room}.{who}.")
        for other in others
        if any(f"{other}.".startswith(f"{room}.{each}.") for each in not_whom)
    }
    assert known == set()


def test_one_file_of_the_screen_starts_threads() -> None:
    starts = {
        name
        for name, tree in modules().items()
        if name.startswith("tui_debugger.tui")
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and {"threading", "concurrent", "multiprocessing"}
        & {part.partition(".")[0] for part in [getattr(node, "module", None) or "", *(a.name for a in node.names)]}
    }
    waits_for_the_shell = "tui_debugger.tui.job_control"
    assert starts == {"tui_debugger.tui.work", waits_for_the_shell}


@pytest.mark.parametrize("package", ["api", "cache", "live.client", "live.server"])
def test_packages_have_the_names_that_they_promise(package: str) -> None:
    """Some load them when they are asked for: a name in the wrong place would show only then."""
    modules_after(f"import tui_debugger.{package} as m\nassert m.__all__\n[getattr(m, name) for name in m.__all__]")
