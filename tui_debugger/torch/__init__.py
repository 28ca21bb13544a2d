"""The training side for PyTorch: ``import tui_debugger.torch as tdbg; tdbg.attach(model, optimizer)``.

With an optimizer no other line of the training changes: its ``step`` ends a step. Without one, or with several, put
``with tdbg.step():`` around each step. ``tdbg.note(loss=loss, lr=lr)`` adds scalars to the running step. Without an
address (argument, or ``TDBG_HOST``/``TDBG_PORT``) no hook is installed and no thread is started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tui_debugger.errors import TdbgError

if TYPE_CHECKING:
    from tui_debugger.live.client.flight import Flight
    from tui_debugger.live.client.probe import TrainingTerminated
    from tui_debugger.torch.attaching import Handle, attach, note, step

__all__ = ["Flight", "Handle", "TrainingTerminated", "attach", "note", "step"]

_WHERE = {
    "attach": "tui_debugger.torch.attaching",
    "note": "tui_debugger.torch.attaching",
    "step": "tui_debugger.torch.attaching",
    "Handle": "tui_debugger.torch.attaching",
    "Flight": "tui_debugger.live.client.flight",
    "TrainingTerminated": "tui_debugger.live.client.probe",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module

    try:
        found = globals()[name] = getattr(import_module(_WHERE[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise TdbgError("PyTorch is not installed", hint="pip install torch") from error
    return found
