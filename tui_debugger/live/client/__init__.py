"""The training side of the live protocol: needs NumPy and gRPC only, and never hurts the training.

``agent``     the protocol loop, driven by a framework through ``probe.Probe``.
``recorder``  a ``Probe`` for any loop whose arrays convert to NumPy.
``flight``    the flight recorder: writes the last steps as a dump when something goes wrong and nobody watches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tui_debugger.live.client.flight import Flight
    from tui_debugger.live.client.probe import TrainingTerminated
    from tui_debugger.live.client.recorder import Recorder

__all__ = ["Flight", "Recorder", "TrainingTerminated"]

_WHERE = {"Flight": "flight", "Recorder": "recorder", "TrainingTerminated": "probe"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
