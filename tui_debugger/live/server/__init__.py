"""The gRPC server that trainings connect to: ``serve`` opens it.

``conversation`` decides as a pure state machine what to tell one training and when; ``service`` has the calls;
``training`` finds the training of a call and locks its conversation; ``answers`` takes messages without trusting
declared sizes; ``identity`` says which clients are understood, and within which limits. gRPC is loaded with the first
use of ``serve``, so that limits can be named without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tui_debugger.live.server.identity import ServerLimits

if TYPE_CHECKING:
    from tui_debugger.live.server.serving import Server, serve

__all__ = ["Server", "ServerLimits", "serve"]


def __getattr__(name: str) -> Any:
    if name in ("Server", "serve"):
        from tui_debugger.live.server import serving

        return getattr(serving, name)
    raise AttributeError(name)
