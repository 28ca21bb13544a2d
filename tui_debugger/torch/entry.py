"""The two functions that a training calls."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any, Final

import torch

from tui_debugger.errors import TdbgError
from tui_debugger.live.client.address import TIMEOUT, Notice, settings
from tui_debugger.live.client.flight import Flight
from tui_debugger.torch.attaching import Attachment, Handle

LEVELS: Final = ("module", "op")
KEEPS: Final = ("values", "statistics")

_lock = threading.Lock()
_attached: weakref.WeakKeyDictionary[torch.nn.Module, weakref.ref[Handle]] = weakref.WeakKeyDictionary()
_current: list[Handle] = []
"""Handles that ``step`` ends the steps of."""


def attach(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    address: str | None = None,
    *,
    level: str = "module",
    keep: str = "values",
    memory: int | None = None,
    flight: Flight | None = None,
    timeout: float = TIMEOUT,
) -> Handle:
    """Lets a debugger (``tdbg listen``) watch a training.

    Args:
        model: of any kind; inside DistributedDataParallel too.
        optimizer: ends a step whenever it has stepped; of several the last one does. None: put ``with tdbg.step():``
            around each step. A step that a GradScaler leaves out is one, too.
        address: ``host:port`` or ``unix:/path``; None: from ``TDBG_HOST`` and ``TDBG_PORT``; empty, or neither: off.
        level: ``module``: what modules return, their gradients, weights; ``op``: every operator call, with the line of
            the program that made it. That is slow, and watchpoints stop the training at the operator.
        keep: ``values``: outputs of modules are held until the debugger lets go of the step, so that they can be
            looked at; ``statistics``: they are not, and everything about watched ones is found out when they are made.
        memory: bytes of outputs and gradients of outputs that are held at most, on their own device; those for which
            there is no room are treated as with ``statistics``. None: 1 GiB, on a GPU at most an eighth of what is
            free. Beside that, one copy of the weights that are compared with the step before is kept.
        flight: also keep the statistics of the last steps, and write them down as a dump when a watchpoint hits or an
            exception ends the loop while no debugger is attached. Needs no address. Looks at every tensor exactly.
        timeout: seconds after which a debugger that does not answer is given up.

    A model that is attached already is detached first.

    Returns:
        A handle; ``handle.detach()`` removes everything.

    Raises:
        TdbgError: an argument cannot be used.
    """
    for name, value, allowed in (("level", level, LEVELS), ("keep", keep, KEEPS)):
        if value not in allowed:
            raise TdbgError(f"{name} is {' or '.join(allowed)}, not {value!r}")
    found = settings(address, timeout=timeout)
    if not found.address and flight is None:
        return Handle()
    optimizers = [] if optimizer is None else [*optimizer] if isinstance(optimizer, Sequence) else [optimizer]
    _check(model, optimizers)
    reference = _attached.get(model)
    earlier = reference() if reference is not None else None
    if earlier is not None:
        earlier.detach()
    try:
        handle = Attachment(model, optimizers, found, level=level, keep=keep, memory=memory, flight=flight)
    except TdbgError:
        raise
    except Exception as error:  # noqa: BLE001 - a model that cannot be looked at is trained all the same
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        Notice()(f"switched off: the model cannot be looked at ({what}); training goes on")
        return Handle()
    _attached[model] = weakref.ref(handle)
    with _lock:
        _current[:] = [each for each in _current if each.on] + ([] if optimizers else [handle])
    return handle


def step() -> Step:
    """``with tdbg.step():`` around one step of every training that was attached without an optimizer."""
    return _STEP


class Step:
    """Around one step. A step that an exception ends is none."""

    def __enter__(self) -> None:
        """A step begins."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """A step has ended."""
        for handle in tuple(_current):
            if error is None:
                handle.step_end()
            else:
                handle.failed(error)
            if not handle.on:
                with _lock:
                    _current[:] = [each for each in _current if each is not handle]


_STEP: Final = Step()


def _check(model: Any, optimizers: Sequence[Any]) -> None:
    if not isinstance(model, torch.nn.Module):
        raise TdbgError(f"the model must be a torch.nn.Module, not {type(model).__name__}")
    for each in optimizers:
        if not isinstance(each, torch.optim.Optimizer):
            hint = "leave it out, and put `with tdbg.step():` around each step"
            raise TdbgError(f"the optimizer must be a torch.optim.Optimizer, not {type(each).__name__}", hint=hint)
