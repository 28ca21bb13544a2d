"""``import tui_debugger`` is light, and knows its public names before it loads them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tui_debugger
import tui_debugger.api
from tests.test_imports import modules_after


def test_importing_loads_nothing_heavy() -> None:
    assert not modules_after("import tui_debugger") & {"numpy", "textual", "rich", "tui_debugger.api"}


def test_asking_for_a_name_loads_the_api_without_a_screen() -> None:
    loaded = modules_after("from tui_debugger import DumpAnalyzer")
    assert "tui_debugger.api" in loaded
    assert not loaded & {"textual", "rich", "grpc"}


def test_every_public_name_is_there_and_listed() -> None:
    assert set(tui_debugger.__all__) == {*tui_debugger.api.__all__, "__version__"}
    assert set(tui_debugger.__all__) <= set(dir(tui_debugger))
    for name in tui_debugger.api.__all__:
        assert getattr(tui_debugger, name) is getattr(tui_debugger.api, name)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(tui_debugger.__file__).read_text())
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert set(tui_debugger.api.__all__) <= set(imported)
    assert Path(tui_debugger.__file__).with_name("py.typed").exists()


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="DumpAnalyser"):
        _ = tui_debugger.DumpAnalyser


def test_type_checkers_know_a_wrong_name() -> None:
    """A ``__getattr__`` that they see would make every name an attribute."""
    tree = ast.parse(Path(tui_debugger.__file__).read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    (hidden,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING")
    assert ast.unparse(hidden.test) == "not TYPE_CHECKING"
    assert "__getattr__" not in functions
    assert [node.name for node in hidden.body if isinstance(node, ast.FunctionDef)] == ["__getattr__"]
