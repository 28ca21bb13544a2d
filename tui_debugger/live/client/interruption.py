"""Tells what the training's own signal handlers raise from what goes wrong in the client."""

from __future__ import annotations

import signal
from types import CodeType
from typing import Any


def of_the_training(error: BaseException) -> bool:
    """Whether an exception was raised in a signal handler that the training installed.

    Python runs handlers between any two instructions of the main thread, those of the client included; time limits of
    clusters and "save and stop" handlers raise from there, and the training has to get it.
    """
    handlers = {code for number in signal.valid_signals() if (code := _code(signal.getsignal(number))) is not None}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _code(handler: Any) -> CodeType | None:
    while hasattr(handler, "func"):  # functools.partial
        handler = handler.func
    function = getattr(handler, "__func__", handler)
    if not hasattr(function, "__code__") and callable(handler):
        function = getattr(type(handler), "__call__", None)  # noqa: B004 - its code is wanted, not whether it can
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None
