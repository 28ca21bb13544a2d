"""tdbg: a terminal debugger for the values of deep-learning training.

How data flows (imports point one way; CI checks that)::

    live training  ──► live ──────┐
    dump directory ─┐             ▼
    memory (tests) ─┴─► sources ─► session ─► front ends: tui/, cli/, api/
                           │          │
                           ▼          ▼
                        cache/    watch/, stats/ (numpy only)   graph/ (node table, stacks)

``live/`` and ``torch/`` are also what runs inside a training process.
``cache/`` remembers statistics between runs. ``opener`` is the one way to list and open the files of a dump;
``mounts/`` answers it for those in a tar or at a URL.
``text/`` is how results read, for the screen and the commands alike.
``from tui_debugger import DumpAnalyzer, Watchpoint, ...`` is the Python API (``api/``), loaded when first asked for.
``config`` reads the user's configuration, for the front ends.
``model`` holds the frozen dataclasses that cross a seam, ``errors`` the one exception tree.
"""

from __future__ import annotations

from tui_debugger.version import __version__

TYPE_CHECKING = False
"""Checkers take it for true. ``typing`` would be read before ``cli.start`` can answer Ctrl-C."""

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
        """Loads the Python API when one of its names is first asked for: the program itself starts without NumPy."""
        if name not in __all__:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        from tui_debugger import api

        value = globals()[name] = getattr(api, name)
        return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *__all__})
