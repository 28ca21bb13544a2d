"""``tui_debugger.compat``: MindInsight's import paths, without and with a MindInsight on disk."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tui_debugger
from tui_debugger import compat, errors

PUBLIC = [
    *("DumpAnalyzer", "Node", "DebuggerTensor", "Watchpoint", "WatchpointHit", "ConditionBase"),
    *("TensorTooLargeCondition", "TensorTooSmallCondition", "TensorRangeCondition", "TensorOverflowCondition"),
    *("OperatorOverflowCondition", "TensorAllZeroCondition", "TensorUnchangedCondition"),
    *("TensorChangeBelowThresholdCondition", "TensorChangeAboveThresholdCondition"),
]
"""What ``mindinsight.debugger`` exports."""


def ours() -> set[str]:
    return {name for name in sys.modules if name.split(".")[0] == "mindinsight"}


@pytest.fixture
def _clean() -> Iterator[None]:
    assert not ours()
    yield
    compat.uninstall()
    assert not ours()


@pytest.mark.usefixtures("_clean")
def test_the_public_names_are_ours() -> None:
    compat.install()
    debugger = importlib.import_module("mindinsight.debugger")
    for name in PUBLIC:
        assert getattr(debugger, name) is getattr(tui_debugger, name)
        assert name in debugger.__all__


@pytest.mark.usefixtures("_clean")
@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("conditions", ["Watchpoint", "WatchpointHit", "HitDetail", "ConditionBase", "TensorRangeCondition"]),
        ("debugger_tensor", ["DebuggerTensor"]),
        ("dump_analyzer", ["DumpAnalyzer"]),
        ("node", ["Node"]),
        ("statistic", ["TensorStatistic", "SummaryStatistic"]),
    ],
)
def test_the_modules_below_are_there(module: str, names: list[str]) -> None:
    compat.install()
    found = importlib.import_module(f"mindinsight.debugger.api.{module}")
    assert [name for name in names if not hasattr(found, name)] == []


@pytest.mark.usefixtures("_clean")
def test_errors_are_caught_by_their_old_paths() -> None:
    compat.install()
    old = importlib.import_module("mindinsight.debugger.common.exceptions.exceptions")
    assert old.DebuggerParamTypeError is errors.DebuggerParamTypeError
    assert old.DebuggerParamValueError is errors.DebuggerParamValueError
    assert importlib.import_module("mindinsight.utils.exceptions").VersionNotMatchError is errors.VersionNotMatchError
    assert old.RankDirNotFound is errors.NotADumpError
    assert issubclass(errors.DebuggerParamTypeError, old.MindInsightException)
    assert issubclass(old.DebuggerNodeNotInGraphError, errors.TdbgError)


@pytest.mark.usefixtures("_clean")
def test_attributes_lead_from_the_top_down() -> None:
    compat.install()
    top = importlib.import_module("mindinsight")
    assert top.debugger.api.node.Node is tui_debugger.Node
    assert importlib.util.find_spec("mindinsight.debugger") is not None


@pytest.mark.usefixtures("_clean")
def test_installing_twice_is_installing_once() -> None:
    compat.install()
    first = sys.modules["mindinsight.debugger"]
    compat.install()
    assert sys.modules["mindinsight.debugger"] is first
    compat.uninstall()
    compat.uninstall()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("mindinsight")


@pytest.mark.usefixtures("_clean")
def test_a_directory_of_that_name_is_no_mindinsight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mindinsight").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    compat.install()
    assert importlib.import_module("mindinsight.debugger").DumpAnalyzer is tui_debugger.DumpAnalyzer


REAL = {
    "__init__.py": "__version__ = '2.3.1'",
    "backend.py": (
        "from mindinsight.debugger.stream import server\nfrom mindinsight.debugger.common.errors import Own\n"
    ),
    "debugger/__init__.py": "DumpAnalyzer = 'theirs'",
    "debugger/stream.py": "server = 'theirs'",
    "debugger/common/__init__.py": "",
    "debugger/common/errors.py": "class Own(Exception):\n    pass\n",
    "debugger/api/__init__.py": "",
    "debugger/api/node.py": "Node = 'theirs'",
    "debugger/api/engine.py": "Engine = 'theirs'",
}
"""A MindInsight on disk, in small: its server imports parts of its debugger that are no API."""
USE = """
import sys
import {first}
import tui_debugger, tui_debugger.compat
tui_debugger.compat.install()
import mindinsight
from mindinsight.debugger import DumpAnalyzer
from mindinsight.debugger.api.node import Node
assert DumpAnalyzer is tui_debugger.DumpAnalyzer and Node is tui_debugger.Node
assert mindinsight.debugger.DumpAnalyzer is DumpAnalyzer
assert mindinsight.__version__ == "2.3.1"
from mindinsight.backend import server, Own
from mindinsight.debugger.api.engine import Engine
assert (server, Engine) == ("theirs", "theirs")
tui_debugger.compat.uninstall()
import mindinsight.debugger.common.errors
from mindinsight.debugger import DumpAnalyzer
from mindinsight.debugger.api.node import Node
assert (DumpAnalyzer, Node) == ("theirs", "theirs")
assert issubclass(mindinsight.debugger.common.errors.Own, Exception)
print("fine")
"""


@pytest.mark.parametrize("first", ["os", "mindinsight", "mindinsight.debugger.api.node", "mindinsight.backend"])
def test_the_other_parts_of_a_real_mindinsight_go_on_working(first: str, tmp_path: Path) -> None:
    for name, text in REAL.items():
        path = tmp_path / "site" / "mindinsight" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    program = tmp_path / "site" / "program.py"
    program.write_text(USE.format(first=first))
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("fine\n", "")
