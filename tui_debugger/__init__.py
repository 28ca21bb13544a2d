"""tdbg: a terminal debugger for the values of deep-learning training.

How data flows (imports point one way; CI checks that)::

    live training  ──► live ──────┐
    dump directory ─┐             ▼
    memory (tests) ─┴─► sources ─► session ─► front ends: tui/, cli/, api/
                           │          │
                           ▼          ▼
                        cache/    watch/, stats/ (numpy only)   graph/ (node table, stacks)

``live/`` and ``torch/`` also run inside a training process. ``cache/`` keeps statistics between runs. ``opener`` lists
and opens the files of a dump, with ``mounts/`` for a tar or a URL. ``text/`` words results for screen and commands.
``config`` reads the user's configuration. ``model`` holds shared frozen dataclasses, ``errors`` the exceptions. The
Python API (``from tui_debugger import DumpAnalyzer, Watchpoint, ...``) is loaded when first used.
"""

from __future__ import annotations

from tui_debugger.version import __version__

TYPE_CHECKING = False
"""Checkers take it for true. Importing ``typing`` would delay ``cli.start`` before it can answer Ctrl-C."""

if TYPE_CHECKING:
    from tui_debugger.api import (
        ConditionBase,
        DebuggerTensor,
        DumpAnalyzer,
        ExpressionCondition,
        Node,
        OperatorOverflowCondition,
        TensorAllZeroCondition,
        TensorChangeAboveThresholdCondition,
        TensorChangeBelowThresholdCondition,
        TensorInitializationCondition,
        TensorOverflowCondition,
        TensorRangeCondition,
        TensorTooLargeCondition,
        TensorTooSmallCondition,
        TensorUnchangedCondition,
        Watchpoint,
        WatchpointHit,
    )


__all__ = [
    "ConditionBase",
    "DebuggerTensor",
    "DumpAnalyzer",
    "ExpressionCondition",
    "Node",
    "OperatorOverflowCondition",
    "TensorAllZeroCondition",
    "TensorChangeAboveThresholdCondition",
    "TensorChangeBelowThresholdCondition",
    "TensorInitializationCondition",
    "TensorOverflowCondition",
    "TensorRangeCondition",
    "TensorTooLargeCondition",
    "TensorTooSmallCondition",
    "TensorUnchangedCondition",
    "Watchpoint",
    "WatchpointHit",
    "__version__",
]


if not TYPE_CHECKING:  # a type checker would take any name for an attribute

    def __getattr__(name: str) -> object:
        """Loads the Python API when first used: the program itself starts without numpy."""
        if name not in __all__:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        from tui_debugger import api

        value = globals()[name] = getattr(api, name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
