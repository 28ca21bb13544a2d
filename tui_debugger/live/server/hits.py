"""Hits as clients report them. Pure."""

from __future__ import annotations

from typing import Any, Final

from tui_debugger.live.server.elements import stats_beside_hit
from tui_debugger.live.server.watchlist import own_id
from tui_debugger.live.types import ReceivedHit
from tui_debugger.model import ParamResult

_NO_ACTUAL: Final = frozenset(
    {b"rtol", b"atol", b"equal_nan", b"epsilon", b"range_start_inclusive", b"range_end_inclusive"}
)
"""Parameters that only support others: nothing is measured for them."""
_BOOLS: Final = frozenset({b"equal_nan"})
_MOST_PARAMS: Final = 32


def hit_of(message: Any) -> ReceivedHit | None:
    """A ``WatchpointHit``; None for one without a tensor, or with a slot that is none."""
    slot = message.tensor.slot or b"0"
    if not message.tensor.node_name or not slot.isdigit() or len(slot) > 9:
        return None
    error = max(0, int(message.error_code))
    meta, stats = stats_beside_hit(message)
    return ReceivedHit(
        node=_text(message.tensor.node_name),
        slot=int(slot),
        watchpoint=own_id(int(message.id)),
        condition=int(message.watch_condition.condition),
        params=tuple(
            _param(param, error) for param in message.watch_condition.params[:_MOST_PARAMS] if not param.disabled
        ),
        error=error,
        meta=meta,
        stats=stats,
    )


def _param(param: Any, error: int) -> ParamResult:
    value = bool(param.value) if param.name in _BOOLS else float(param.value)
    measured = not error and param.name not in _NO_ACTUAL
    return ParamResult(_text(param.name), value, bool(param.hit), float(param.actual_value) if measured else None)


def _text(data: bytes) -> str:
    return bytes(data).decode("utf-8", errors="replace")
