"""Lets programs written for MindInsight run unchanged: ``from mindinsight.debugger import ...`` finds the API here.

    >>> import tui_debugger.compat
    >>> tui_debugger.compat.install()
    >>> from mindinsight.debugger import DumpAnalyzer
    >>> DumpAnalyzer.__module__
    'tui_debugger.api.dump_analyzer'
    >>> tui_debugger.compat.uninstall()

The modules live in ``sys.modules`` of this process only. Of an installed MindInsight, ``mindinsight.debugger`` and its
``api`` modules are replaced; other modules are still found on disk.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from tui_debugger import errors

__all__ = ["install", "uninstall"]

_TOP = "mindinsight"
_API = f"{_TOP}.debugger.api"
_ALWAYS = {
    f"{_TOP}.debugger": "tui_debugger.api",
    _API: "",
    f"{_API}.conditions": "tui_debugger.api.conditions",
    f"{_API}.debugger_tensor": "tui_debugger.api.nodes_and_tensors",
    f"{_API}.dump_analyzer": "tui_debugger.api.dump_analyzer",
    f"{_API}.node": "tui_debugger.api.nodes_and_tensors",
    f"{_API}.statistic": "tui_debugger.api.statistic",
}
"""Sources of the public names by module; these modules replace those of an installed MindInsight, too."""
_ALONE = {
    _TOP: "",
    f"{_TOP}.debugger.common": "",
    f"{_TOP}.debugger.dump": "tui_debugger.api.dump_parser",
    f"{_TOP}.debugger.dump.parser": "tui_debugger.api.dump_parser",
    f"{_TOP}.parser": "tui_debugger.api.dump_parser",
    f"{_TOP}.parser.dump": "tui_debugger.api.dump_parser",
    f"{_TOP}.debugger.common.exceptions": "",
    f"{_TOP}.debugger.common.exceptions.exceptions": "tui_debugger.errors",
    f"{_TOP}.utils": "",
    f"{_TOP}.utils.exceptions": "tui_debugger.errors",
}
"""The same for modules that an installed MindInsight keeps, because its other parts need them."""
_RENAMED = {"MindInsightException": "TdbgError", "RankDirNotFound": "NotADumpError"}
"""Errors with another name here."""
_NEVER_RAISED = (
    *("DebuggerCreateWatchPointError", "DebuggerUpdateWatchPointError", "DebuggerDeleteWatchPointError"),
    *("DebuggerRecheckError", "DebuggerCompareTensorError", "DebuggerContinueError", "DebuggerPauseError"),
    *("DebuggerNodeNotInGraphError", "DebuggerGraphNotExistError", "DebuggerStepNumError"),
    *("DebuggerTensorGraphError", "DebuggerTensorHitError", "DebuggerSetRecommendWatchpointsError"),
    *("DebuggerConditionUnavailableError", "DebuggerServerRunningError", "DeviceIdUnregistered"),
    *("DebuggerModuleNotFoundError", "DebuggerSessionNumOverBoundError", "DebuggerSessionNotFoundError"),
    *("DebuggerOnlineSessionUnavailable", "DebuggerDownloadOverQueue", "DebuggerDownloadTensorNotExist"),
    "DebuggerJsonFileParseError",
)
"""MindInsight's other debugger errors, most of them its server's, so that programs can name them."""
_EXTRA = {
    f"{_API}.conditions": ("tui_debugger.api.hits", "tui_debugger.api.hits"),
}

_OURS = frozenset({"ExpressionCondition"})
"""Names that MindInsight never had; ``import *`` must not add them."""

_undo: list[Callable[[], None]] = []


def install() -> None:
    """Makes ``mindinsight.debugger`` importable in this process. Idempotent."""
    if _undo:
        return
    real = _real_package()
    _undo.append(_forget_others(frozenset(sys.modules)))
    for name, source in (_ALWAYS if real else {**_ALONE, **_ALWAYS}).items():
        _put(_module(name, source, real))
    for name in sorted(_ALWAYS if real else {**_ALONE, **_ALWAYS}):
        parent, _, leaf = name.rpartition(".")
        if parent in sys.modules:
            _set(sys.modules[parent], leaf, sys.modules[name])


def uninstall() -> None:
    """Undoes ``install``; modules that were imported before are restored. Idempotent."""
    while _undo:
        _undo.pop()()


def _real_package() -> ModuleType | None:
    """Returns MindInsight itself if installed; a mere directory of that name does not count."""
    loaded = sys.modules.get(_TOP)
    spec = loaded.__spec__ if loaded is not None else importlib.util.find_spec(_TOP)
    return importlib.import_module(_TOP) if spec is not None and spec.origin is not None else None


def _module(name: str, source: str, real: ModuleType | None) -> ModuleType:
    """Returns a module with our public names; a package still finds the other modules of the real one."""
    module = ModuleType(name, f"The part of {_TOP} that tui_debugger stands in for.")
    package = any(other.startswith(f"{name}.") for other in (*_ALWAYS, *_ALONE))
    module.__spec__ = ModuleSpec(name, None, origin="tui_debugger", is_package=package)
    if package:
        below = name.split(".")[1:]
        path = [f"{entry}/{'/'.join(below)}" for entry in getattr(real, "__path__", ())]
        module.__path__ = path
        module.__spec__.submodule_search_locations = path
    for each in (source, *_EXTRA.get(name, ())):
        if each:
            module.__dict__.update(_public(importlib.import_module(each)))
    if source == "tui_debugger.errors":
        module.__dict__.update({old: getattr(errors, new) for old, new in _RENAMED.items()})
        module.__dict__.update({old: type(old, (errors.TdbgError,), {}) for old in _NEVER_RAISED})
    vars(module)["__all__"] = sorted(each for each in vars(module) if not each.startswith("_"))
    return module


def _public(module: ModuleType) -> dict[str, Any]:
    names = getattr(module, "__all__", None)
    if names is None:
        names = [name for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__]
    return {name: getattr(module, name) for name in names if name not in _OURS}


def _forget_others(before: frozenset[str]) -> Callable[[], None]:
    def undo() -> None:
        for name in [name for name in sys.modules if name.startswith(f"{_TOP}.debugger.") and name not in before]:
            del sys.modules[name]

    return undo


def _put(module: ModuleType) -> None:
    name, before = module.__name__, sys.modules.get(module.__name__)

    def undo() -> None:
        if before is not None:
            sys.modules[name] = before
        elif sys.modules.get(name) is module:
            del sys.modules[name]

    sys.modules[name] = module
    _undo.append(undo)


def _set(parent: ModuleType, leaf: str, module: ModuleType) -> None:
    before = vars(parent).get(leaf)

    def undo() -> None:
        if before is not None:
            setattr(parent, leaf, before)
        elif vars(parent).get(leaf) is module:
            delattr(parent, leaf)

    setattr(parent, leaf, module)
    _undo.append(undo)
